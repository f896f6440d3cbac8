//! A bad network between a daemon and its API server: messages are lost or late, watches lag.
//!
//! The faults are here and not in the sandbox's hook, so that the hook sees each request at the moment
//! it is carried out, however late that is: it sees the state at that time.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use futures::StreamExt;
use parking_lot::Mutex;
use tokio::time::Instant;

/// How bad the network is right now. Chances are in percent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NetworkFaults {
    /// Requests that never arrive.
    pub lost_requests: u8,
    /// Requests that are carried out and whose replies never arrive.
    pub lost_replies: u8,
    /// Requests that are carried out 20 to 60 s later, most of them after the client has abandoned them.
    pub late_requests: u8,
    /// Replies that come 20 to 60 s late.
    pub late_replies: u8,
    /// How far the watches lag behind.
    pub lag: Duration,
}

/// The network, shared by its clients.
#[derive(Clone)]
pub struct Network(Arc<Mutex<State>>);

struct State {
    faults: NetworkFaults,
    rng: fastrand::Rng,
}

enum MessageFault {
    None,
    LostRequest,
    LostReply,
    LateRequest(Duration),
    LateReply(Duration),
}

impl Network {
    /// A good network, whose chances come from this seed.
    pub fn new(seed: u64) -> Self {
        let state = State { faults: NetworkFaults::default(), rng: fastrand::Rng::with_seed(seed) };
        Network(Arc::new(Mutex::new(state)))
    }

    /// Changes it for every message from now on.
    pub fn set(&self, faults: NetworkFaults) {
        self.0.lock().faults = faults;
    }

    /// How bad it is.
    fn faults(&self) -> NetworkFaults {
        self.0.lock().faults
    }

    fn message_fault(&self) -> MessageFault {
        let State { faults, rng } = &mut *self.0.lock();
        let late = Duration::from_secs(rng.u64(20..60));
        let mut chance = rng.u8(0..100);
        let mut hits = |percent: u8| {
            let hit = chance < percent;
            chance = if hit { u8::MAX } else { chance - percent };
            hit
        };
        if hits(faults.lost_requests) {
            MessageFault::LostRequest
        } else if hits(faults.lost_replies) {
            MessageFault::LostReply
        } else if hits(faults.late_requests) {
            MessageFault::LateRequest(late)
        } else if hits(faults.late_replies) {
            MessageFault::LateReply(late)
        } else {
            MessageFault::None
        }
    }

    /// The API server as seen through the network.
    pub fn around(&self, server: Router) -> Router {
        let network = self.clone();
        server.layer(from_fn(move |request: Request, next: Next| {
            let network = network.clone();
            async move { Ok::<Response, Infallible>(network.carry(request, next).await) }
        }))
    }

    async fn carry(self, request: Request, next: Next) -> Response {
        if request
            .uri()
            .query()
            .is_some_and(|query| query.contains("watch=true") || query.contains("watch=1"))
        {
            return self.behind(next.run(request).await);
        }
        match self.message_fault() {
            MessageFault::None => next.run(request).await,
            MessageFault::LostRequest => lost(),
            MessageFault::LostReply => {
                let _never_seen = next.run(request).await;
                lost()
            }
            // On a task of its own: it is carried out even if the client has hung up, or died.
            MessageFault::LateRequest(late) => {
                let carried = tokio::spawn(async move {
                    tokio::time::sleep(late).await;
                    next.run(request).await
                });
                carried.await.unwrap_or_else(|_| lost())
            }
            MessageFault::LateReply(late) => {
                let reply = next.run(request).await;
                tokio::time::sleep(late).await;
                reply
            }
        }
    }

    /// A watch whose lines arrive in order, each as late as the lag is by then.
    fn behind(self, response: Response) -> Response {
        let (parts, body) = response.into_parts();
        let (sent, received) = tokio::sync::mpsc::unbounded_channel();
        tokio::spawn(async move {
            let mut lines = body.into_data_stream();
            while let Some(line) = lines.next().await {
                if sent.send((Instant::now(), line)).is_err() {
                    return;
                }
            }
        });
        let lines = futures::stream::unfold((received, self), |(mut received, network)| async move {
            let (at, line) = received.recv().await?;
            // In steps, because the lag may end early.
            while at.elapsed() < network.faults().lag {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Some((line, (received, network)))
        });
        Response::from_parts(parts, Body::from_stream(lines))
    }
}

/// An answer that breaks off before its first byte.
fn lost() -> Response {
    let broken = futures::stream::iter([Err::<Bytes, _>(std::io::Error::other("the connection was lost"))]);
    Response::new(Body::from_stream(broken))
}
