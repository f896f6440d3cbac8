//! Connections that are there and relay nothing: neither data nor an end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use futures::StreamExt;
use serde_json::json;
use tokio::sync::watch;

use windlass_planner_testkit::objects::deployment;
use windlass_testkit::cluster::{Cluster, unlimited};

/// How long a frozen connection may hold up work.
const LIMIT: u64 = 45;

/// A network whose connections can freeze, all that there are at one moment; later ones work.
#[derive(Clone)]
struct Freezer {
    /// How often they have frozen.
    times: watch::Sender<usize>,
    /// So many requests still go over connections that were idle then.
    idle: Arc<AtomicUsize>,
}

impl Freezer {
    fn new() -> Self {
        Freezer { times: watch::Sender::new(0), idle: Arc::default() }
    }

    fn freeze(&self, idle: usize) {
        self.idle.store(idle, Ordering::SeqCst);
        self.times.send_modify(|times| *times += 1);
    }

    fn around(&self, server: Router) -> Router {
        let freezer = self.clone();
        server.layer(from_fn(move |request: Request, next: Next| freezer.clone().carry(request, next)))
    }

    async fn carry(self, request: Request, next: Next) -> Response {
        if self.idle.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
            return std::future::pending().await;
        }
        let begun = *self.times.borrow();
        let (parts, body) = next.run(request).await.into_parts();
        let frozen = self.times.subscribe();
        let relayed = futures::stream::unfold(
            (body.into_data_stream(), frozen),
            move |(mut body, mut frozen)| async move {
                let chunk = tokio::select! {
                    biased;
                    () = async { let _ = frozen.wait_for(|times| *times > begun).await.is_ok(); } => std::future::pending().await,
                    chunk = body.next() => chunk?,
                };
                Some((chunk, (body, frozen)))
            },
        );
        Response::from_parts(parts, Body::from_stream(relayed))
    }
}

#[tokio::test(start_paused = true)]
async fn work_continues_over_new_connections_within_45_seconds_after_all_froze() {
    let cluster = Cluster::new().await;
    let freezer = Freezer::new();
    let _daemon = cluster.start_with(1, unlimited(), |router| freezer.around(router));
    cluster.create(deployment("web").replicas(1)).await;
    cluster.rolled_out("web").await;
    for (quiet, replicas) in [(0, 2), (20, 3), (29, 4), (31, 5), (56, 6), (300, 7), (607, 8)] {
        tokio::time::sleep(Duration::from_secs(quiet)).await;
        // Each of the four watches meets a connection that was idle.
        freezer.freeze(4);
        cluster.patch("web", json!({"spec": {"replicas": replicas}})).await;
        cluster
            .eventually(LIMIT, &format!("there are {replicas} pods, {quiet} s after the last"), |c| {
                c.objects("Pod").len() == replicas
            })
            .await;
        cluster.rolled_out("web").await;
    }
}
