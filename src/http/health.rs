//! The health endpoints: named checks, and how often each of them failed.
//!
//! They answer as those of Kubernetes' own programs do: `ok`, or with `?verbose` one line per check;
//! `/healthz/<check>` runs one. Each run of a check is counted for `/metrics/slis` (KEP-3466).

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::Response;
use prometheus::{Encoder, IntCounterVec, IntGaugeVec, Opts, Registry, TextEncoder};
use tokio::time::Instant;

use super::log_limit::LogLimit;
use super::router::plain;

/// Checks a component; the error describes the failure. Must not block.
type Probe = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

#[derive(Clone)]
struct Check {
    name: String,
    probe: Probe,
    /// Any client may ask, as often as it likes. By the name of the check, since its reason may count seconds.
    failures: Arc<LogLimit>,
}

impl Check {
    fn new(name: impl Into<String>, probe: impl Fn() -> Result<(), String> + Send + Sync + 'static) -> Self {
        Check { name: name.into(), probe: Arc::new(probe), failures: Arc::default() }
    }
}

/// Named checks for the health endpoints.
#[derive(Clone, Default)]
pub struct Checks {
    live: Vec<Check>,
    ready: Vec<Check>,
}

impl Checks {
    /// Adds a check to all three endpoints: if it fails, the process should be restarted.
    #[must_use]
    pub fn live(
        mut self,
        name: impl Into<String>,
        probe: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        self.live.push(Check::new(name, probe));
        self
    }

    /// Adds a check to `/readyz` only: the process works, but is not ready yet.
    #[must_use]
    pub fn ready(
        mut self,
        name: impl Into<String>,
        probe: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        self.ready.push(Check::new(name, probe));
        self
    }

    /// Adds a check to all three endpoints that fails while a sync has been running for more than
    /// `limit`: a wedged worker. `longest` returns how long the longest one has been running.
    #[must_use]
    pub fn workers(
        self,
        name: impl Into<String>,
        limit: Duration,
        longest: impl Fn() -> Duration + Send + Sync + 'static,
    ) -> Self {
        self.live(name, move || {
            let running = longest();
            if running <= limit {
                return Ok(());
            }
            let (running, limit) = (running.as_secs(), limit.as_secs());
            Err(format!("a sync has been running for {running} s; none should take more than {limit} s"))
        })
    }

    fn of(&self, endpoint: Endpoint) -> impl Iterator<Item = &Check> {
        let ready = if endpoint == Endpoint::Readyz { self.ready.as_slice() } else { &[] };
        self.live.iter().chain(ready)
    }
}

/// The most writes that one sync makes: a ReplicaSet's burst of pods.
const WRITES_PER_SYNC: f64 = 500.0;

/// A sync that runs for longer than this is wedged and not merely slow; for [`Checks::workers`]. `syncs` is how many
/// one controller runs at once.
///
/// A restart costs a list of everything, so the limit must exceed all regular work. The longest such is every sync in a
/// burst of 500 pods, all behind the rate limiter of their controller: 25 syncs and 20 requests a second take 625 s.
/// Twice that leaves room for a server that asks us to wait, and ten minutes is the least, since a single call may
/// take half a minute and be told to retry after another one. The price: a real deadlock is found only after about
/// twenty minutes with the defaults.
pub fn wedged_after(syncs: usize, qps: f64) -> Duration {
    const LEAST: Duration = Duration::from_secs(600);
    const MOST: Duration = Duration::from_secs(24 * 3600);
    let honest = syncs as f64 * WRITES_PER_SYNC / qps;
    Duration::try_from_secs_f64(2.0 * honest).unwrap_or(LEAST).clamp(LEAST, MOST)
}

/// The three endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
    Healthz,
    Livez,
    Readyz,
}

impl Endpoint {
    pub(super) fn name(self) -> &'static str {
        match self {
            Endpoint::Healthz => "healthz",
            Endpoint::Livez => "livez",
            Endpoint::Readyz => "readyz",
        }
    }
}

/// The results of the checks, under upstream's names, in a registry of its own: `/metrics/slis` may be scraped
/// every few seconds, so it holds nothing else.
pub(super) struct Slis {
    registry: Registry,
    state: Option<(IntGaugeVec, IntCounterVec)>,
}

impl Slis {
    pub(super) fn new() -> Self {
        let registry = Registry::new();
        let state = slis(&registry)
            .inspect_err(|error| tracing::error!(%error, "could not register the metrics of the health checks; they are not served"))
            .ok();
        Slis { registry, state }
    }

    fn observe(&self, check: &str, endpoint: Endpoint, ok: bool) {
        let Some((gauge, counter)) = &self.state else { return };
        gauge.with_label_values(&[check, endpoint.name()]).set(ok.into());
        let status = if ok { "success" } else { "error" };
        counter.with_label_values(&[check, endpoint.name(), status]).inc();
    }

    pub(super) fn render(&self) -> String {
        let mut text = Vec::new();
        if let Err(error) = TextEncoder::new().encode(&self.registry.gather(), &mut text) {
            tracing::error!(%error, "could not render the health checks");
        }
        String::from_utf8_lossy(&text).into_owned()
    }
}

fn slis(registry: &Registry) -> prometheus::Result<(IntGaugeVec, IntCounterVec)> {
    let gauge = IntGaugeVec::new(
        Opts::new("kubernetes_healthcheck", "1 if the last run of a health check succeeded, else 0."),
        &["name", "type"],
    )?;
    let counter = IntCounterVec::new(
        Opts::new("kubernetes_healthchecks_total", "Runs of a health check, by result."),
        &["name", "type", "status"],
    )?;
    registry.register(Box::new(gauge.clone()))?;
    registry.register(Box::new(counter.clone()))?;
    Ok((gauge, counter))
}

/// Runs the checks of an endpoint. `?exclude=name` leaves one out, and may be repeated.
pub(super) fn health(checks: &Checks, slis: &Slis, endpoint: Endpoint, query: &str) -> Response {
    let parameters = || query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let verbose = parameters().any(|(name, _)| name == "verbose");
    let excluded = |check: &str| parameters().any(|(name, value)| name == "exclude" && value == check);
    let mut text = String::new();
    let mut failed = false;
    let ping = Check::new("ping", || Ok(()));
    for Check { name, probe, failures } in std::iter::once(&ping).chain(checks.of(endpoint)) {
        if excluded(name) {
            // Writing to a string cannot fail, here and below.
            let _ = writeln!(text, "[+]{name} excluded: ok");
            continue;
        }
        let found = probe();
        slis.observe(name, endpoint, found.is_ok());
        let line = match found {
            Ok(()) => format!("[+]{name} ok"),
            Err(reason) => {
                failed = true;
                if failures.admits(Instant::now()) {
                    tracing::info!(endpoint = endpoint.name(), check = name, reason, "health check failed");
                }
                format!("[-]{name} failed: {reason}")
            }
        };
        let _ = writeln!(text, "{line}");
    }
    let name = endpoint.name();
    match (failed, verbose) {
        (true, _) => plain(StatusCode::INTERNAL_SERVER_ERROR, format!("{text}{name} check failed\n")),
        (false, true) => plain(StatusCode::OK, format!("{text}{name} check passed\n")),
        (false, false) => plain(StatusCode::OK, "ok".to_owned()),
    }
}

/// Runs one check.
pub(super) fn single(checks: &Checks, endpoint: Endpoint, name: &str) -> Response {
    if name == "ping" {
        return plain(StatusCode::OK, "ok".to_owned());
    }
    match checks.of(endpoint).find(|check| check.name == name).map(|check| (check.probe)()) {
        Some(Ok(())) => plain(StatusCode::OK, "ok".to_owned()),
        Some(Err(reason)) => {
            plain(StatusCode::INTERNAL_SERVER_ERROR, format!("internal server error: {reason}\n"))
        }
        None => plain(StatusCode::NOT_FOUND, "404 page not found\n".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::logging::LogOptions;
    use crate::logging::tests::Memory;

    #[tokio::test(start_paused = true)]
    async fn a_failing_check_is_logged_once_a_minute_however_often_it_is_asked() {
        // Its reason is another one each time.
        let asked = AtomicUsize::new(0);
        let checks = Checks::default()
            .live("wedged", move || Err(format!("for {} s", asked.fetch_add(1, Ordering::Relaxed))))
            .ready("cache", || Err("it is not complete".to_owned()))
            .ready("good", || Ok(()));
        let (slis, seen) = (Slis::new(), Memory::default());
        let _logs = tracing::subscriber::set_default(seen.subscriber(&LogOptions::default()));
        let probe = || {
            for endpoint in [Endpoint::Readyz, Endpoint::Healthz, Endpoint::Livez] {
                for checks in [&checks, &checks.clone()] {
                    assert_eq!(health(checks, &slis, endpoint, "").status(), 500);
                }
            }
        };
        let lines = |check: &str| seen.text().lines().filter(|line| line.contains(check)).count();
        for minute in 1..=3 {
            (0..100).for_each(|_| probe());
            tokio::time::advance(Duration::from_secs(59)).await;
            (0..100).for_each(|_| probe());
            assert_eq!((lines("wedged"), lines("cache"), lines("good")), (minute, minute, 0));
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert!(seen.text().contains("it is not complete"), "{}", seen.text());
    }

    #[test]
    fn a_worker_is_wedged_only_beyond_all_regular_work() {
        let minutes = |n: u64| Duration::from_secs(60 * n);
        assert_eq!(wedged_after(1, 100.0), minutes(10));
        assert_eq!(wedged_after(25, 20.0), Duration::from_secs(1250));
        // A tiny rate makes work slow, and a rate of nothing at all must not make it endless.
        assert_eq!(wedged_after(1000, 1e-300), minutes(10));
        assert!(wedged_after(1000, 0.001) <= minutes(24 * 60));
    }
}
