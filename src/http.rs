//! The daemon's own HTTP: `/metrics`, `/healthz`, `/livez` and `/readyz`, and explanations of objects.
//!
//! The health endpoints answer as those of Kubernetes' own programs do: `ok`, or with `?verbose` one
//! line per check; `/healthz/<check>` asks for one. Health is about the process: a standby that leads
//! nothing is healthy and ready. Only `/readyz` waits for the caches.

use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::serve::Listener;
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Sleep, sleep};
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;

/// So many connections may be open; further ones wait to be accepted. A scraper and a kubelet use two.
const CONNECTIONS: usize = 256;

/// How long a connection may be without a byte from its client before it is closed. This also ends
/// clients that hold a connection open on purpose.
const IDLE: Duration = Duration::from_secs(90);

/// How long open connections may take to end at shutdown.
const DRAIN: Duration = Duration::from_secs(2);

/// Looks whether something is in order; the error says what is not. Must not block.
type Probe = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

#[derive(Clone)]
struct Check {
    name: String,
    probe: Probe,
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
        self.live.push(Check { name: name.into(), probe: Arc::new(probe) });
        self
    }

    /// Adds a check to `/readyz` only: the process is well, but not at work yet.
    #[must_use]
    pub fn ready(
        mut self,
        name: impl Into<String>,
        probe: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        self.ready.push(Check { name: name.into(), probe: Arc::new(probe) });
        self
    }

    fn of(&self, endpoint: Endpoint) -> impl Iterator<Item = &Check> {
        let ready = if endpoint == Endpoint::Readyz { self.ready.as_slice() } else { &[] };
        self.live.iter().chain(ready)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Endpoint {
    Healthz,
    Livez,
    Readyz,
}

impl Endpoint {
    fn name(self) -> &'static str {
        match self {
            Endpoint::Healthz => "healthz",
            Endpoint::Livez => "livez",
            Endpoint::Readyz => "readyz",
        }
    }
}

/// The router over these metrics and checks.
pub fn router(metrics: Arc<Metrics>, checks: Checks) -> Router {
    let checks = Arc::new(checks);
    let mut router = Router::new().route("/metrics", get(move || async move { metrics_text(&metrics) }));
    for endpoint in [Endpoint::Healthz, Endpoint::Livez, Endpoint::Readyz] {
        let all = move |State(checks): State<Arc<Checks>>, RawQuery(query): RawQuery| async move {
            health(&checks, endpoint, &query.unwrap_or_default())
        };
        let one = move |State(checks): State<Arc<Checks>>, Path(name): Path<String>| async move {
            single(&checks, endpoint, &name)
        };
        let name = endpoint.name();
        router = router.merge(
            Router::new()
                .route(&format!("/{name}"), get(all))
                .route(&format!("/{name}/{{check}}"), get(one))
                .with_state(checks.clone()),
        );
    }
    router
}

/// A route that explains an object of a namespace as indented JSON; `path` has `{namespace}` and `{name}`.
/// What `explain` knows nothing of is a 404 with its message. It must not block.
pub fn explanations<T: Serialize>(
    path: &str,
    explain: impl Fn(&str, &str) -> Result<T, String> + Clone + Send + Sync + 'static,
) -> Router {
    let answer = move |Path((namespace, name)): Path<(String, String)>| async move {
        let explained = match explain(&namespace, &name) {
            Ok(explained) => serde_json::to_string_pretty(&explained),
            Err(message) => return plain(StatusCode::NOT_FOUND, format!("{message}\n")),
        };
        match explained {
            Ok(json) => {
                let headers = [
                    (header::CONTENT_TYPE, "application/json"),
                    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
                    (header::CACHE_CONTROL, "no-store"),
                ];
                (headers, json + "\n").into_response()
            }
            Err(error) => plain(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
        }
    };
    Router::new().route(path, get(answer))
}

fn metrics_text(metrics: &Metrics) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], metrics.render()).into_response()
}

fn plain(code: StatusCode, text: String) -> Response {
    let headers =
        [(header::CONTENT_TYPE, "text/plain; charset=utf-8"), (header::X_CONTENT_TYPE_OPTIONS, "nosniff")];
    (code, headers, text).into_response()
}

/// Runs the checks of an endpoint. `?exclude=name` leaves one out, and may be repeated.
fn health(checks: &Checks, endpoint: Endpoint, query: &str) -> Response {
    let parameters = || query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let verbose = parameters().any(|(name, _)| name == "verbose");
    let excluded = |check: &str| parameters().any(|(name, value)| name == "exclude" && value == check);
    let mut text = String::from("[+]ping ok\n");
    let mut failed = false;
    for Check { name, probe } in checks.of(endpoint) {
        let line = if excluded(name) {
            format!("[+]{name} excluded: ok")
        } else if let Err(reason) = probe() {
            failed = true;
            tracing::info!(endpoint = endpoint.name(), check = name, reason, "health check failed");
            format!("[-]{name} failed: {reason}")
        } else {
            format!("[+]{name} ok")
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{line}");
    }
    let name = endpoint.name();
    match (failed, verbose) {
        (true, _) => plain(StatusCode::INTERNAL_SERVER_ERROR, format!("{text}{name} check failed\n")),
        (false, true) => plain(StatusCode::OK, format!("{text}{name} check passed\n")),
        (false, false) => plain(StatusCode::OK, "ok".to_owned()),
    }
}

fn single(checks: &Checks, endpoint: Endpoint, name: &str) -> Response {
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

/// Serves `router` on `listener` until `shutdown`, and then for two seconds the requests under way.
///
/// # Errors
/// When the listener fails for good.
pub async fn serve(listener: TcpListener, router: Router, shutdown: CancellationToken) -> io::Result<()> {
    let listener = Bounded { listener, free: Arc::new(Semaphore::new(CONNECTIONS)) };
    let stop = shutdown.clone();
    let serving = axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned());
    let overdue = async {
        shutdown.cancelled().await;
        sleep(DRAIN).await;
    };
    tokio::select! {
        biased;
        result = serving => result,
        () = overdue => Ok(()),
    }
}

/// A listener that accepts so many connections at once, and none that says nothing.
struct Bounded {
    listener: TcpListener,
    free: Arc<Semaphore>,
}

impl Listener for Bounded {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        loop {
            // The semaphore is never closed, so this is only a wait.
            let permit = self.free.clone().acquire_owned().await.ok();
            match self.listener.accept().await {
                Ok((stream, address)) => {
                    return (Connection { stream, idle: Box::pin(sleep(IDLE)), _permit: permit }, address);
                }
                Err(error) => {
                    tracing::warn!(%error, "could not accept a connection");
                    sleep(Duration::from_secs(1)).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that ends when its client has been silent for too long.
struct Connection<S = TcpStream> {
    stream: S,
    idle: Pin<Box<Sleep>>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Connection<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Poll::Ready(result) = Pin::new(&mut self.stream).poll_read(cx, buffer) {
            let deadline = tokio::time::Instant::now() + IDLE;
            self.idle.as_mut().reset(deadline);
            return Poll::Ready(result);
        }
        self.idle.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Connection<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use axum::body::Body;
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    use super::*;

    async fn ask(router: &Router, path: &str) -> (u16, String) {
        let request = axum::http::Request::get(path).body(Body::empty()).unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (code, String::from_utf8(body.to_vec()).unwrap())
    }

    fn app() -> (Router, Arc<AtomicBool>, Arc<AtomicBool>) {
        let (lease, synced) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(false)));
        let probe = |flag: &Arc<AtomicBool>, reason: &'static str| {
            let flag = flag.clone();
            move || if flag.load(Ordering::Relaxed) { Ok(()) } else { Err(reason.to_owned()) }
        };
        let checks = Checks::default()
            .live("leaderElection", probe(&lease, "the lease was not renewed"))
            .ready("informer-sync", probe(&synced, "pods are not synced"));
        (router(Metrics::new(), checks), lease, synced)
    }

    #[tokio::test]
    async fn a_process_is_healthy_before_it_is_ready() {
        let (app, _, synced) = app();
        assert_eq!(ask(&app, "/healthz").await, (200, "ok".into()));
        assert_eq!(ask(&app, "/livez").await.0, 200);
        let (code, text) = ask(&app, "/readyz").await;
        assert_eq!(code, 500);
        assert!(text.contains("[-]informer-sync failed: pods are not synced\n"), "{text}");
        assert!(text.ends_with("readyz check failed\n"), "{text}");
        synced.store(true, Ordering::Relaxed);
        assert_eq!(ask(&app, "/readyz").await, (200, "ok".into()));
    }

    #[tokio::test]
    async fn verbose_names_the_checks_and_each_can_be_asked_for_or_left_out() {
        let (app, lease, _) = app();
        let (_, text) = ask(&app, "/healthz?verbose").await;
        assert_eq!(text, "[+]ping ok\n[+]leaderElection ok\nhealthz check passed\n");
        lease.store(false, Ordering::Relaxed);
        assert_eq!(ask(&app, "/healthz").await.0, 500);
        assert_eq!(ask(&app, "/healthz?verbose&exclude=leaderElection").await.0, 200);
        assert_eq!(ask(&app, "/healthz/leaderElection").await.0, 500);
        assert_eq!(ask(&app, "/healthz/ping").await.0, 200);
        assert_eq!(ask(&app, "/healthz/informer-sync").await.0, 404);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_says_nothing_is_cut_off_and_each_byte_gives_it_more_time() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let (mut client, stream) = tokio::io::duplex(64);
        let mut connection = Connection { stream, idle: Box::pin(sleep(IDLE)), _permit: None };
        let start = tokio::time::Instant::now();
        let reading = tokio::spawn(async move { connection.read_to_end(&mut Vec::new()).await });
        sleep(IDLE / 2).await;
        client.write_all(b"G").await.unwrap();
        assert_eq!(reading.await.unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(start.elapsed() >= IDLE + IDLE / 2);
    }

    #[tokio::test]
    async fn metrics_are_served_over_a_socket_until_the_shutdown() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let serving = tokio::spawn(serve(listener, app().0, shutdown.clone()));
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        assert!(text.starts_with("HTTP/1.1 200"), "{text}");
        shutdown.cancel();
        serving.await.unwrap().unwrap();
    }
}
