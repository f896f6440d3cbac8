//! A bad network in front of an API server, over real HTTP: replies that get lost after the server did
//! the request, and watches that are seconds behind.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use http::{Method, StatusCode};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// A running proxy.
pub struct Proxy {
    /// Where it listens.
    pub address: SocketAddr,
    /// The traffic that it has seen.
    pub counts: Arc<Counts>,
    task: AbortHandle,
}

/// The traffic that a proxy has seen.
#[derive(Default)]
pub struct Counts {
    /// Pods that the server made.
    pub pods: AtomicUsize,
    /// Replies that got lost.
    pub lost: AtomicUsize,
}

struct Network {
    client: kube::Client,
    /// Of a hundred replies to creations, so many get lost.
    loss: u8,
    /// How far behind the watch of a path is.
    lag: Box<dyn Fn(&str) -> Duration + Send + Sync>,
    rng: parking_lot::Mutex<fastrand::Rng>,
    counts: Arc<Counts>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Proxy {
    /// Starts one that loses this part of the replies to creations, in percent, and delays watches by `lag`.
    pub async fn start(client: kube::Client, loss: u8, lag: Duration, seed: u64) -> Self {
        Self::start_by(client, loss, Box::new(move |_| lag), seed).await
    }

    /// Starts one that loses nothing, and delays the watch of each path by what this says.
    pub async fn delaying(
        client: kube::Client,
        lag: impl Fn(&str) -> Duration + Send + Sync + 'static,
    ) -> Self {
        Self::start_by(client, 0, Box::new(lag), 0).await
    }

    async fn start_by(
        client: kube::Client,
        loss: u8,
        lag: Box<dyn Fn(&str) -> Duration + Send + Sync>,
        seed: u64,
    ) -> Self {
        let counts = Arc::<Counts>::default();
        let rng = parking_lot::Mutex::new(fastrand::Rng::with_seed(seed));
        let network = Network { client, loss, lag, rng, counts: counts.clone() };
        let router = Router::new().fallback(forward).with_state(Arc::new(network));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Proxy { address, counts, task: task.abort_handle() }
    }

    /// A kubeconfig that leads through the proxy.
    pub fn kubeconfig(&self) -> String {
        format!(
            r#"{{"apiVersion":"v1","kind":"Config","current-context":"proxy",
                "clusters":[{{"name":"proxy","cluster":{{"server":"http://{}"}}}}],
                "contexts":[{{"name":"proxy","context":{{"cluster":"proxy","user":"anonymous"}}}}],
                "users":[{{"name":"anonymous","user":{{}}}}]}}"#,
            self.address
        )
    }
}

async fn forward(State(network): State<Arc<Network>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let creates = parts.method == Method::POST;
    let creates_pod = creates && parts.uri.path().ends_with("/pods");
    let watches = parts.uri.query().is_some_and(|query| query.contains("watch=true"));
    let lag = if watches { (network.lag)(parts.uri.path()) } else { Duration::ZERO };
    let Ok(body) = axum::body::to_bytes(body, 16 << 20).await else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let mut onwards = http::Request::builder().method(parts.method).uri(parts.uri);
    for name in ["accept", "content-type", "user-agent"] {
        if let Some(value) = parts.headers.get(name) {
            onwards = onwards.header(name, value);
        }
    }
    let onwards = onwards.body(kube::client::Body::from(body.to_vec())).unwrap();
    let Ok(answer) = network.client.send(onwards).await else {
        return StatusCode::BAD_GATEWAY.into_response();
    };
    if creates_pod && answer.status() == StatusCode::CREATED {
        network.counts.pods.fetch_add(1, Ordering::SeqCst);
    }
    if creates && network.rng.lock().u8(0..100) < network.loss {
        network.counts.lost.fetch_add(1, Ordering::SeqCst);
        // The connection breaks before the first byte of the body.
        let broken = futures::stream::once(async { Err::<Vec<u8>, _>(io::Error::other("lost")) });
        return Response::new(Body::from_stream(broken));
    }
    let (parts, body) = answer.into_parts();
    let body = Body::new(body);
    Response::from_parts(parts, if lag > Duration::ZERO { late(body, lag) } else { body })
}

/// The same stream, each part of it later by `lag`.
fn late(body: Body, lag: Duration) -> Body {
    let (send, receive) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut frames = body.into_data_stream();
        while let Some(frame) = frames.next().await {
            if send.send((Instant::now() + lag, frame)).is_err() {
                return;
            }
        }
    });
    let delayed = futures::stream::unfold(receive, |mut receive| async {
        let (due, frame) = receive.recv().await?;
        tokio::time::sleep_until(due).await;
        Some((frame, receive))
    });
    Body::from_stream(delayed)
}
