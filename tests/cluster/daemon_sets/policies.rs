//! Rollout policies: steps, nodes that are not ready, the condition about progress.

use super::*;
use windlass::config::ControllerConfig;
use windlass_apiserver::FaultDecision;
use windlass_testkit::cluster::{Daemon, condition, inject_faults, unlimited};

/// Sets annotations of ours; `null` removes one.
async fn annotate(cluster: &Cluster, policies: Value) {
    let mut annotations = json!({});
    for (key, value) in policies.as_object().unwrap() {
        annotations[format!("windlass.dev/{key}")] = value.clone();
    }
    patch(cluster, json!({"metadata": {"annotations": annotations}})).await;
}

fn events(cluster: &Cluster, reason: &str) -> usize {
    cluster.objects("Event").iter().filter(|event| event["reason"] == reason).count()
}

fn with_tag(cluster: &Cluster, tag: &str) -> usize {
    images(cluster).values().filter(|images| **images == [tag]).count()
}

/// The state on the revision with this number.
fn state(cluster: &Cluster, number: i64) -> Value {
    let revisions = cluster.objects("ControllerRevision");
    let revision = revisions.iter().find(|revision| revision["revision"] == number).unwrap();
    let state = &revision["metadata"]["annotations"]["windlass.dev/rollout-state"];
    serde_json::from_str(state.as_str().unwrap_or("null")).unwrap()
}

/// A daemon, and a DaemonSet on three nodes that runs v1.
async fn running(cluster: &Cluster, seed: u64, policies: Value) -> Daemon {
    let daemon = cluster.start_controllers(seed);
    let mut spec = unavailable(1);
    spec["template"] = json!({"spec": {"tolerations": [{"operator": "Exists"}]}});
    create(cluster, spec).await;
    annotate(cluster, policies).await;
    rolled_out(cluster, 3).await;
    daemon
}

#[tokio::test(start_paused = true)]
async fn a_step_holds_over_a_restart_until_its_revision_is_approved() {
    let cluster = Cluster::new().await;
    let daemon = running(&cluster, 1, json!({"steps": "1, 2 for 10m"})).await;
    set_image(&cluster, "v2").await;
    cluster
        .eventually(60, "the step holds", |c| condition(&agent(c), "Progressing").contains("RolloutStep"))
        .await;
    daemon.stop().await;
    let _daemon = cluster.start_controllers(2);
    tokio::time::sleep(3600 * S).await;
    assert_eq!((with_tag(&cluster, "v2"), events(&cluster, "RolloutStepReached")), (1, 1));
    assert!(state(&cluster, 2)["since"].is_string(), "{}", state(&cluster, 2));

    annotate(&cluster, json!({"rollout": "approve 1"})).await;
    tokio::time::sleep(60 * S).await;
    assert_eq!(with_tag(&cluster, "v2"), 1, "that is another revision");
    annotate(&cluster, json!({"rollout": "approve 2/1"})).await;
    cluster.eventually(60, "two nodes follow", |c| with_tag(c, "v2") == 2).await;
    tokio::time::sleep(500 * S).await;
    assert_eq!((with_tag(&cluster, "v2"), state(&cluster, 2)["passed"].as_i64()), (2, Some(1)));
    cluster.eventually(200, "the time is over", |c| is_complete(c, 3)).await;
    cluster
        .eventually(5, "no condition is left", |c| {
            agent(c)["status"]["conditions"].as_array().is_none_or(Vec::is_empty)
        })
        .await;
    let writes = cluster.writes().len();
    tokio::time::sleep(3600 * S).await;
    assert_eq!(cluster.writes().len(), writes, "a settled DaemonSet writes nothing");
}

#[tokio::test(start_paused = true)]
async fn a_value_that_cannot_be_read_holds_and_is_said_once() {
    let cluster = Cluster::new().await;
    let _daemon = running(&cluster, 1, json!({})).await;
    annotate(&cluster, json!({"progress-deadline": "soon", "stepps": "1"})).await;
    set_image(&cluster, "v2").await;
    tokio::time::sleep(600 * S).await;
    assert_eq!(with_tag(&cluster, "v2"), 0);
    let shown = condition(&agent(&cluster), "Progressing");
    assert!(shown.contains("InvalidPolicy"), "{shown}");
    assert!(events(&cluster, "InvalidPolicy") >= 1 && events(&cluster, "UnknownPolicy") >= 1);
    annotate(&cluster, json!({"progress-deadline": "10m"})).await;
    rolled_out(&cluster, 3).await;
    let is_over = |c: &Cluster| condition(&agent(c), "Progressing").contains("NewReplicaSetAvailable");
    cluster.eventually(5, "the condition says so", is_over).await;
    annotate(&cluster, json!({"progress-deadline": null})).await;
    cluster
        .eventually(5, "no condition is left", |c| {
            agent(c)["status"]["conditions"].as_array().is_none_or(Vec::is_empty)
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_not_ready_is_left_alone_until_its_taint_goes() {
    let cluster = Cluster::without_node_lifecycle(inject_faults(|_| FaultDecision::Proceed)).await;
    let daemon = running(&cluster, 1, json!({"not-ready-nodes": "ignore"})).await;
    let keys = || {
        let text = daemon.metrics.render();
        let name = "workqueue_adds_total{name=\"daemonset\"}";
        text.lines().find(|line| line.starts_with(name)).map(str::to_owned)
    };
    tokio::time::sleep(5 * S).await;
    let before = keys();
    taint(&cluster, &node(2), &["node.kubernetes.io/unreachable:NoExecute"]).await;
    tokio::time::sleep(2 * S).await;
    assert_ne!(keys(), before, "an update that waits for this node may go on");
    set_image(&cluster, "v2").await;
    cluster.eventually(60, "the others follow", |c| with_tag(c, "v2") == 2).await;
    tokio::time::sleep(60 * S).await;
    assert_eq!(images(&cluster)[&node(2)], ["v1"], "it is left alone");
    taint(&cluster, &node(2), &[]).await;
    rolled_out(&cluster, 3).await;
}

#[tokio::test(start_paused = true)]
async fn without_rollout_policies_the_keys_mean_nothing() {
    let cluster = Cluster::new().await;
    let config = ControllerConfig { rollout_policy: false, ..unlimited() };
    let _daemon = cluster.start_with(1, config, |router| router);
    create(&cluster, unavailable(1)).await;
    annotate(&cluster, json!({"steps": "1", "progress-deadline": "1s", "bypass-until": "never"})).await;
    rolled_out(&cluster, 3).await;
    set_image(&cluster, "v2").await;
    rolled_out(&cluster, 3).await;
    assert!(agent(&cluster)["status"]["conditions"].as_array().is_none_or(Vec::is_empty));
    assert_eq!((state(&cluster, 2), events(&cluster, "InvalidPolicy")), (Value::Null, 0));
}
