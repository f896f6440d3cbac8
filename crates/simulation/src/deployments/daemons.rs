//! Starts the controllers, and restarts them, as the kubelet would, when they end or are killed.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::scenario::{Scenario, Skew};
use super::server::Server;
use crate::engine::breach::Breach;
use windlass::app::{Candidacy, Controllers, Parts};
use windlass::config::{ControllerConfig, OnConflict};
use windlass::runtime::leader_election::rules::ElectionOptions;

/// How long running syncs may take to finish.
const DRAIN: Duration = Duration::from_secs(10);

/// How long a stopped daemon may take to end: the drain, an open call of the election, the last events, and the
/// release of the Lease.
const LONGEST_END: Duration = Duration::from_secs(10 + 5 + 2 + 3);

/// The same where no sync and no call is open.
const SHORT_END: Duration = Duration::from_secs(1);

/// Runs the `number`-th daemon, one incarnation after the other, for ever. A message on `stops` stops it.
pub async fn run(
    server: Arc<Server>,
    scenario: Scenario,
    number: usize,
    mut stops: tokio::sync::mpsc::UnboundedReceiver<()>,
) {
    let mut rng = fastrand::Rng::with_seed(scenario.seed ^ (number as u64 + 1) << 32);
    for life in 1u32.. {
        let agent = format!("d{number}.{life}");
        let shutdown = CancellationToken::new();
        server.starts(&agent);
        let mut skew = scenario.clocks.get(number).copied().unwrap_or_default();
        // Every other incarnation runs on another node with another clock, so that the time of day jumps.
        skew.ahead *= i64::from(life % 2);
        let controllers = controllers(&server, &scenario, skew, &agent, rng.u64(..));
        let mut task = tokio::spawn(controllers.run(shutdown.clone(), DRAIN));
        let Some(killed) = server.killed(number) else { return };
        let mut stopped = None;
        let how = loop {
            tokio::select! {
                biased;
                () = killed.notified() => {
                    task.abort();
                    let _aborted = task.await;
                    break "is killed".to_owned();
                }
                ended = &mut task => break ended_as(&server, &agent, ended),
                _ = stops.recv(), if stopped.is_none() => {
                    server.stop_signalled(&agent);
                    stopped = Some(Instant::now());
                    shutdown.cancel();
                }
            }
        };
        let longest = if server.settled().is_some() { SHORT_END } else { LONGEST_END };
        if let Some(took) = stopped.map(|stopped| stopped.elapsed()).filter(|took| *took > longest) {
            server.fail(Breach::new("L10", format!("{agent} took {took:?} to end")));
        }
        if stopped.is_some() && server.settled().is_some() && server.leader() == agent {
            server.fail(Breach::new("H4", format!("{agent} was stopped without releasing the Lease")));
        }
        server.say(&format!("{agent} {how}"));
        tokio::time::sleep(Duration::from_millis(rng.u64(100..5000))).await;
    }
}

fn ended_as(
    server: &Server,
    agent: &str,
    ended: Result<anyhow::Result<()>, tokio::task::JoinError>,
) -> String {
    match ended {
        Ok(Ok(())) => "has ended".into(),
        Ok(Err(error)) => {
            let error = format!("{error:#}");
            if error.contains("panicked") {
                server.fail(Breach::new("R1", format!("{agent}: {error}")));
            }
            format!("ends: {error}")
        }
        Err(error) => {
            server.fail(Breach::new("R1", format!("{agent}: {error}")));
            "panicked".into()
        }
    }
}

fn controllers(server: &Arc<Server>, scenario: &Scenario, skew: Skew, agent: &str, seed: u64) -> Controllers {
    let defaults = ElectionOptions::default();
    let options = ElectionOptions {
        // The duration that a slow clock measures as ten seconds.
        renew_deadline: skew.takes_for(defaults.renew_deadline),
        retry_period: skew.takes_for(defaults.retry_period),
        namespace: Some("kube-system".into()),
        identity: Some(agent.to_owned()),
        ..defaults
    };
    let election =
        scenario.election.then(|| Candidacy { client: server.client(agent).into(), options, thread: None });
    let metrics = server.metrics();
    let parts = Parts {
        client: server.client(agent).into(),
        host: "simulation".into(),
        clock: server.clock.ahead_by(SignedDuration::from_millis(skew.ahead)),
        seed,
        metrics,
        election,
    };
    let (qps, burst) = server.rate();
    Controllers::new(
        ControllerConfig { qps, burst, on_conflict: OnConflict::Ignore, ..ControllerConfig::default() },
        parts,
    )
}
