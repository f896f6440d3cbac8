//! Lost replies, caches that are behind, and two daemons at once: no pod too many, and each counted once.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use axum::middleware::{Next, from_fn};
use windlass_apiserver::FaultDecision;
use windlass_testkit::cluster::is_request;

use super::*;

/// How many status writes were refused with 409.
#[derive(Clone, Default)]
struct Conflicts(Arc<AtomicUsize>);

impl Conflicts {
    /// The server; its refusals are counted.
    fn around(&self, router: axum::Router) -> axum::Router {
        let count = self.0.clone();
        router.layer(from_fn(move |request: axum::extract::Request, next: Next| {
            let count = count.clone();
            async move {
                let path = request.uri().path().to_owned();
                let response = next.run(request).await;
                if response.status() == 409 && path.contains("/jobs/") && path.ends_with("/status") {
                    count.fetch_add(1, Ordering::Relaxed);
                }
                response
            }
        }))
    }
}

fn start_behind(cluster: &Cluster, seed: u64, conflicts: &Conflicts) -> Daemon {
    let config = ControllerConfig { enabled: Enabled::all(), root_ca: "pem".into(), ..unlimited() };
    cluster.start_with(seed, config, |router| conflicts.around(router))
}

/// The names of pods that the daemons asked for, and those that exist.
fn names(cluster: &Cluster) -> (BTreeSet<String>, Vec<String>) {
    let name = |pod: &Value| pod["metadata"]["name"].as_str().unwrap().to_owned();
    let log = cluster.log.lock().unwrap();
    let creations = log.iter().filter(|request| is_request(request, "create", "Pod"));
    let asked = creations.map(|request| name(&serde_json::from_slice(&request.body).unwrap()));
    (asked.collect(), cluster.objects("Pod").iter().map(name).collect())
}

#[tokio::test(start_paused = true)]
async fn two_daemons_at_once_count_each_pod_once_and_the_later_status_is_refused() {
    let cluster = Cluster::new().await;
    let conflicts = Conflicts::default();
    let daemons = [1, 2].map(|seed| start_behind(&cluster, seed, &conflicts));
    let spec = json!({"completions": 12, "parallelism": 4, "backoffLimit": 50});
    create(&cluster, "exit:1/0,after:2s", spec).await;
    finished(&cluster, 4000).await;
    assert!(conflicts.0.load(Ordering::Relaxed) > 0, "both write the same status");
    let pods = cluster.objects("Pod");
    let count = |phase: &str| pods.iter().filter(|pod| pod["status"]["phase"] == phase).count();
    let counted = [number(&cluster, "succeeded"), number(&cluster, "failed")];
    assert_eq!(counted, [count("Succeeded"), count("Failed")].map(|count| count as i64));
    assert_eq!(count("Succeeded"), 12);
    for daemon in daemons {
        daemon.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_daemon_that_sees_pods_late_counts_none_that_another_has_counted() {
    let cluster = Cluster::new().await;
    let config = ControllerConfig { enabled: Enabled::all(), root_ca: "pem".into(), ..unlimited() };
    let late = cluster.start_with(1, config, |router| crate::takeover::with_slow_watches(router, "/pods"));
    let daemon = start(&cluster, 2);
    create(&cluster, "exit:0,after:2s", json!({"completions": 24, "parallelism": 4})).await;
    finished(&cluster, 4000).await;
    // Both may ask for the same pod. One that succeeded just before the end may be deleted with the last.
    let (asked, _) = names(&cluster);
    assert_eq!((number(&cluster, "succeeded"), asked.len()), (24, 24), "{asked:?}");
    for daemon in [late, daemon] {
        daemon.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_creates_no_second_pod_of_an_index_or_of_a_place() {
    for spec in [
        json!({"completions": 4, "parallelism": 4}),
        json!({"completions": 4, "parallelism": 4, "completionMode": "Indexed"}),
    ] {
        let is_on = Arc::new(AtomicBool::new(true));
        let on = is_on.clone();
        let cluster = Cluster::answering(move |request| {
            match is_request(request, "create", "Pod") && on.load(Ordering::Relaxed) {
                true => FaultDecision::LoseReply,
                false => FaultDecision::Proceed,
            }
        })
        .await;
        let daemon = start(&cluster, 1);
        create(&cluster, "exit:0,after:900s", spec.clone()).await;
        eventually(&cluster, 300, "four run", |c| active(c) == 4).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        // Another daemon, which knows nothing of the requests.
        daemon.kill();
        let daemon = start(&cluster, 2);
        is_on.store(false, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_secs(60)).await;
        let (asked, there) = names(&cluster);
        assert_eq!((there.len(), active(&cluster)), (4, 4), "{spec}: {there:?}");
        assert!(asked.len() <= 4, "{spec}: {asked:?}");
        daemon.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_of_a_status_or_of_a_finalizer_counts_no_pod_twice() {
    let turn = Arc::new(AtomicUsize::new(0));
    let cluster = Cluster::answering(move |request| {
        let is_ours = is_request(request, "patch", "Job") || is_request(request, "patch", "Pod");
        match is_ours && turn.fetch_add(1, Ordering::Relaxed) % 3 == 1 {
            true => FaultDecision::LoseReply,
            false => FaultDecision::Proceed,
        }
    })
    .await;
    let daemon = start(&cluster, 1);
    let spec = json!({"completions": 6, "parallelism": 3, "backoffLimit": 50});
    create(&cluster, "exit:1/0,after:2s", spec).await;
    finished(&cluster, 8000).await;
    let pods = cluster.objects("Pod");
    let count = |phase: &str| pods.iter().filter(|pod| pod["status"]["phase"] == phase).count() as i64;
    assert_eq!(number(&cluster, "succeeded"), 6);
    assert_eq!(
        (number(&cluster, "succeeded"), number(&cluster, "failed")),
        (count("Succeeded"), count("Failed"))
    );
    daemon.stop().await;
}
