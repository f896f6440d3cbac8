//! The first lists of all kinds: few at a time, and none waits for one that does not come.

use std::sync::atomic::AtomicUsize;

use axum::body::Body;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::Response;

use super::*;

/// How long the server takes for a list.
const TAKES: Duration = Duration::from_millis(500);

/// Kinds that the server does not list: their requests stay open, and some even begin to be answered.
const HANGING: [&str; 6] = ["/secrets", "/services", "/nodes", "/serviceaccounts", "/replicasets", "/leases"];

#[derive(Default)]
struct Counts {
    now: AtomicUsize,
    most: AtomicUsize,
    all: AtomicUsize,
}

/// Delays all lists, and answers none of those kinds.
fn slow(counts: Arc<Counts>, hanging: &'static [&'static str]) -> impl FnOnce(axum::Router) -> axum::Router {
    move |router| {
        router.layer(from_fn(move |request: Request, next: Next| {
            let counts = counts.clone();
            let query = request.uri().query().unwrap_or_default().to_owned();
            let is_list = query.contains("sendInitialEvents");
            let hangs = hanging.iter().position(|plural| request.uri().path().ends_with(plural));
            async move {
                if let Some(at) = hangs.filter(|_| is_list) {
                    if at % 2 == 0 {
                        std::future::pending::<()>().await;
                    }
                    let silence = futures::stream::pending::<Result<axum::body::Bytes, std::io::Error>>();
                    let answer = Response::builder().header("content-type", "application/json");
                    return answer.body(Body::from_stream(silence)).unwrap();
                }
                if !is_list {
                    return next.run(request).await;
                }
                let now = counts.now.fetch_add(1, Ordering::SeqCst) + 1;
                counts.most.fetch_max(now, Ordering::SeqCst);
                counts.all.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(TAKES).await;
                let answer = next.run(request).await;
                counts.now.fetch_sub(1, Ordering::SeqCst);
                answer
            }
        }))
    }
}

/// Only the collector: the informers of other controllers have no turns.
fn alone() -> ControllerConfig {
    let enabled = Enabled::none().with("garbage-collector-controller");
    ControllerConfig { enabled, ..config() }
}

#[tokio::test(start_paused = true)]
async fn the_kinds_are_listed_four_at_a_time() {
    let cluster = Cluster::without_collectors(Faults::default()).await;
    let counts = Arc::<Counts>::default();
    let _daemon = cluster.start_with(1, alone(), slow(counts.clone(), &[]));
    seconds(60).await;
    let (most, all) = (counts.most.load(Ordering::SeqCst), counts.all.load(Ordering::SeqCst));
    assert!(all > 12, "only {all} kinds were listed");
    assert_eq!(most, 4, "of {all} lists");
}

#[tokio::test(start_paused = true)]
async fn lists_that_hang_hold_the_others_up_for_seconds_only() {
    let cluster = Cluster::without_collectors(Faults::default()).await;
    let owner = create(&cluster, "owner", &[]).await;
    create(&cluster, "a", &[to(&owner)]).await;
    let daemon = cluster.start_with(1, alone(), slow(Arc::default(), &HANGING));
    let is_listed = |daemon: &Daemon| {
        let text = daemon.metrics.render();
        let listing =
            text.lines().find_map(|line| line.strip_prefix("windlass_garbage_resources{state=\"listing\"} "));
        listing.is_some_and(|count| count == HANGING.len().to_string())
    };
    cluster.eventually(12, "all others are listed", |_| is_listed(&daemon)).await;
    delete_map(&cluster, "owner", "Background").await;
    cluster.eventually(1, "its dependent is gone", |cluster| are_gone(cluster, &["owner", "a"])).await;
}
