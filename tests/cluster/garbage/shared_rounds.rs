//! The rounds in which all resources are asked who refers to an owner: what they cost, and whom they answer.

use axum::body::Body;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use futures::StreamExt;

use super::*;

const NAMESPACES: usize = 100;
/// With those that every API server has they are more than 300.
const CUSTOM_KINDS: usize = 275;
const SECRETS: &str = "/api/v1/namespaces/shop/secrets";

fn definition(number: usize) -> Value {
    let (plural, kind) = (format!("things{number}"), format!("Thing{number}"));
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    json!({"metadata": {"name": format!("{plural}.x.io")},
           "spec": {"group": "x.io", "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
                    "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]}})
}

fn maps(namespace: usize) -> String {
    format!("/api/v1/namespaces/n{namespace}/configmaps")
}

/// An API server with so many kinds, each with an object, and so many namespaces.
async fn large_cluster() -> Cluster {
    let cluster = Cluster::without_collectors(Faults::default()).await;
    for number in 0..CUSTOM_KINDS {
        let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        cluster.call(Method::POST, definitions, &definition(number)).await;
        let thing = json!({"metadata": {"name": "there"}});
        cluster.call(Method::POST, &format!("/apis/x.io/v1/namespaces/shop/things{number}"), &thing).await;
    }
    for number in 0..NAMESPACES {
        let namespace = json!({"metadata": {"name": format!("n{number}")}});
        cluster.call(Method::POST, "/api/v1/namespaces", &namespace).await;
    }
    cluster
}

/// Deletes a tree of three levels in each namespace in the foreground, and counts what that takes.
async fn requests_for_a_hundred_trees(cluster: &Cluster, config: ControllerConfig) -> usize {
    for number in 0..NAMESPACES {
        let mut owners = Vec::new();
        for name in ["top", "middle", "leaf"] {
            let created = cluster.call(Method::POST, &maps(number), &map(name, &owners, &[])).await;
            owners = vec![blocking(&created)];
        }
    }
    let daemon = cluster.start_with(1, config, |router| router);
    seconds(60).await;
    let text = daemon.metrics.render();
    let synced =
        text.lines().find_map(|line| line.strip_prefix("windlass_garbage_resources{state=\"synced\"} "));
    assert!(synced.unwrap().parse::<usize>().unwrap() >= 300, "{synced:?}");
    let before = cluster.log.lock().unwrap().len();
    for number in 0..NAMESPACES {
        delete(cluster, &format!("{}/top", maps(number)), "Foreground").await;
    }
    let is_of_a_tree = |map: &Value| map["metadata"]["namespace"].as_str().unwrap().starts_with('n');
    cluster
        .eventually(60, "all are gone", |cluster| {
            !cluster.sandbox.objects("ConfigMap").iter().any(is_of_a_tree)
        })
        .await;
    let log = cluster.log.lock().unwrap();
    let is_own = |request: &&RequestInfo| request.user_agent == USER_AGENT && request.verb != "watch";
    log[before..].iter().filter(is_own).count()
}

#[tokio::test(start_paused = true)]
async fn a_hundred_trees_of_three_levels_beside_300_kinds_take_2000_requests_at_any_rate() {
    let cluster = large_cluster().await;
    let enabled = Enabled::default().with("garbage-collector-controller");
    let limited = ControllerConfig { enabled, ..ControllerConfig::default() };
    for (rate, config) in [("without a limit", config()), ("at the default rate", limited)] {
        let sent = requests_for_a_hundred_trees(&cluster, config).await;
        assert!(sent <= 2000, "{sent} requests {rate}");
    }
}

/// Holds back what watches of Secrets show while the switch is on.
fn with_late_secrets(are_held: Arc<AtomicBool>) -> impl FnOnce(axum::Router) -> axum::Router {
    move |router| {
        router.layer(from_fn(move |request: Request, next: Next| {
            let query = request.uri().query().unwrap_or_default();
            let is_meant = request.uri().path().ends_with("/secrets") && query.contains("watch=true");
            let are_held = are_held.clone();
            async move {
                let (parts, body) = next.run(request).await.into_parts();
                if !is_meant {
                    return Response::from_parts(parts, body);
                }
                let frames = body.into_data_stream().then(move |frame| {
                    let are_held = are_held.clone();
                    async move {
                        while are_held.load(Ordering::SeqCst) {
                            tokio::time::sleep(Duration::from_millis(20)).await;
                        }
                        frame
                    }
                });
                Response::from_parts(parts, Body::from_stream(frames))
            }
        }))
    }
}

/// A deletion that begins while a round asks for others, after that round has read the Secrets. One of them, which its watch
/// does not show, refers to the owner.
async fn a_deletion_in_the_middle_of_a_round(policy: &str) -> (Cluster, Daemon, Arc<AtomicBool>) {
    let faults = inject_faults(|request: &RequestInfo| {
        match request.verb == "list" && request.kind == "Service" && request.query.contains("limit=") {
            true => FaultDecision::Delay(Duration::from_secs(4)),
            false => FaultDecision::Proceed,
        }
    });
    let cluster = Cluster::without_collectors(faults).await;
    let are_held = Arc::new(AtomicBool::new(false));
    let daemon = cluster.start_with(1, config(), with_late_secrets(are_held.clone()));
    let (_, owner) = (create(&cluster, "first", &[]).await, create(&cluster, "second", &[]).await);
    seconds(10).await;
    are_held.store(true, Ordering::SeqCst);
    delete_map(&cluster, "first", policy).await;
    seconds(1).await;
    assert!(stored(&cluster, "first").is_some(), "the round is under way");
    cluster.call(Method::POST, SECRETS, &map("late", &[blocking(&owner)], &[])).await;
    delete_map(&cluster, "second", policy).await;
    cluster.eventually(4, "the round has ended", |cluster| are_gone(cluster, &["first"])).await;
    assert!(stored(&cluster, "second").is_some(), "what was read before its deletion answers nothing");
    (cluster, daemon, are_held)
}

#[tokio::test(start_paused = true)]
async fn an_orphaning_deletion_in_the_middle_of_a_round_has_its_answer_from_the_next() {
    let (cluster, _daemon, _are_held) = a_deletion_in_the_middle_of_a_round("Orphan").await;
    cluster.eventually(20, "it is gone", |cluster| are_gone(cluster, &["second"])).await;
    let secrets = cluster.objects("Secret");
    let late = secrets.iter().find(|secret| secret["metadata"]["name"] == "late").unwrap();
    assert!(late["metadata"]["ownerReferences"].as_array().is_none_or(Vec::is_empty), "{late}");
}

#[tokio::test(start_paused = true)]
async fn a_foreground_deletion_in_the_middle_of_a_round_has_its_answer_from_the_next() {
    let (cluster, _daemon, are_held) = a_deletion_in_the_middle_of_a_round("Foreground").await;
    seconds(20).await;
    assert!(stored(&cluster, "second").is_some(), "a Secret blocks it that no watch has shown");
    are_held.store(false, Ordering::SeqCst);
    cluster.eventually(20, "it is gone", |cluster| are_gone(cluster, &["second"])).await;
    assert!(!cluster.objects("Secret").iter().any(|secret| secret["metadata"]["name"] == "late"));
}

#[tokio::test(start_paused = true)]
async fn an_object_in_another_namespace_blocks_no_deletion_of_a_shared_round() {
    let (cluster, _daemon) = cluster().await;
    let elsewhere = "/api/v1/namespaces/default/configmaps";
    let owner = create(&cluster, "owner", &[]).await;
    cluster.call(Method::POST, elsewhere, &map("other", &[], &[])).await;
    let stranger = map("stranger", &[blocking(&owner)], &["example.com/keep"]);
    cluster.call(Method::POST, elsewhere, &stranger).await;
    seconds(3).await;
    delete_map(&cluster, "owner", "Foreground").await;
    delete(&cluster, &format!("{elsewhere}/other"), "Foreground").await;
    let left = |cluster: &Cluster, name: &str| {
        cluster.sandbox.objects("ConfigMap").iter().any(|map| map["metadata"]["name"] == name)
    };
    cluster
        .eventually(3, "both are gone", |cluster| !left(cluster, "owner") && !left(cluster, "other"))
        .await;
    assert!(left(&cluster, "stranger"), "its finalizer keeps it");
}
