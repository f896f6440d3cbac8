//! DaemonSets: nodes, updates, revisions, and whose pods they are.

use serde_json::json;

use super::super::declared::{Declared, differs};
use super::super::objects::{Object, daemon_set, pod_quota};
use super::super::rows::{DAEMON_NODES, DAEMON_STATUS};
use super::super::stage::Stage;

super::workloads! {
    daemon_pods_run_on_each_node: TERMINATING_PODS,
    daemon_pods_follow_nodes_that_are_added_and_labelled,
    daemon_pods_and_taints: TAINTS,
    daemon_update_one_node_at_a_time: TERMINATING_PODS,
    daemon_update_in_percent: TERMINATING_PODS,
    daemon_update_with_surge: NEW_PODS,
    daemon_update_of_broken_pods_and_back: TERMINATING_PODS,
    daemon_update_on_delete: TERMINATING_PODS,
    daemon_pods_that_fail_and_succeed_are_replaced,
    daemon_pods_available_after_some_seconds,
    daemon_history_is_trimmed: TERMINATING_PODS,
    daemon_pods_are_orphaned_and_adopted,
    daemon_pods_are_deleted_with_the_daemon_set,
    daemon_pod_is_released_by_a_label,
    daemon_pods_refused_by_a_quota,
    daemon_placement_is_edited: TERMINATING_PODS,
}

const AGENT: &str = "DaemonSet/agent";

/// The pods of a node that is terminating are not ready.
static TERMINATING_PODS: &[Declared] = &[
    differs(&DAEMON_STATUS, ["rest", AGENT, "status.numberReady"], "*", "*"),
    differs(&DAEMON_STATUS, ["rest", AGENT, "status.numberAvailable"], "*", "*"),
    differs(&DAEMON_STATUS, ["rest", AGENT, "status.numberUnavailable"], "*", "*"),
];

/// A new pod stands for its node while the old one ends.
static NEW_PODS: &[Declared] =
    &[differs(&DAEMON_STATUS, ["rest", AGENT, "status.updatedNumberScheduled"], "*", "*")];

/// The taint that keeps new pods away wakes the DaemonSet.
static TAINTS: &[Declared] = &[
    differs(&DAEMON_NODES, ["rest", AGENT, "status.desiredNumberScheduled"], "3", "2"),
    differs(&DAEMON_NODES, ["rest", AGENT, "status.currentNumberScheduled"], "3", "2"),
    differs(&DAEMON_NODES, ["rest", AGENT, "status.updatedNumberScheduled"], "3", "2"),
    differs(&DAEMON_NODES, ["rest", AGENT, "status.numberReady"], "3", "2"),
    differs(&DAEMON_NODES, ["rest", AGENT, "status.numberAvailable"], "3", "2"),
    differs(&DAEMON_NODES, ["rest", AGENT, "status.numberMisscheduled"], "0", "1"),
];

fn agent(s: &Stage) -> Object {
    daemon_set("agent", &s.namespace)
}

/// Three nodes, and the DaemonSet on all of them.
async fn on_three_nodes(s: &Stage, daemon_set: Object) {
    for node in ["a", "b", "c"] {
        s.add_node(node).await;
    }
    s.create(daemon_set).await;
    s.come_up().await;
}

async fn daemon_pods_run_on_each_node(s: &Stage) {
    on_three_nodes(s, agent(s)).await;
    let pod = s.pod_on("b");
    s.act("delete a pod");
    s.evict(&pod).await;
    s.come_up().await;
}

async fn daemon_pods_follow_nodes_that_are_added_and_labelled(s: &Stage) {
    on_three_nodes(s, agent(s)).await;
    s.add_node("d").await;
    s.come_up().await;
    s.label_node("a", "workload", None).await;
    s.come_up().await;
    s.label_node("a", "workload", Some(&s.namespace.clone())).await;
    s.come_up().await;
}

async fn daemon_pods_and_taints(s: &Stage) {
    on_three_nodes(s, agent(s)).await;
    s.taint("a", &["busy:NoSchedule"]).await;
    s.come_up().await;
    s.taint("b", &["leave:NoExecute"]).await;
    s.come_up().await;
    s.taint("b", &[]).await;
    s.come_up().await;
    s.taint("a", &[]).await;
    s.come_up().await;
    // Tolerated by all DaemonSets.
    s.taint("c", &["node.kubernetes.io/unschedulable:NoSchedule"]).await;
    s.come_up().await;
}

async fn daemon_update_one_node_at_a_time(s: &Stage) {
    on_three_nodes(s, agent(s)).await;
    s.daemon_image("agent", "v2").await;
    s.roll().await;
    s.daemon_image("agent", "v1").await;
    s.roll().await;
}

async fn daemon_update_in_percent(s: &Stage) {
    on_three_nodes(s, agent(s).updating(0, "50%")).await;
    s.daemon_image("agent", "v2").await;
    s.roll().await;
}

async fn daemon_update_with_surge(s: &Stage) {
    on_three_nodes(s, agent(s).updating(1, 0)).await;
    s.daemon_image("agent", "v2").await;
    s.roll().await;
}

async fn daemon_update_of_broken_pods_and_back(s: &Stage) {
    on_three_nodes(s, agent(s)).await;
    s.daemon_image("agent", "broken").await;
    s.come_up().await;
    s.daemon_image("agent", "v1").await;
    s.roll().await;
}

async fn daemon_update_on_delete(s: &Stage) {
    let on_delete = json!({"type": "OnDelete"});
    on_three_nodes(s, agent(s).spec("updateStrategy", on_delete)).await;
    s.daemon_image("agent", "v2").await;
    s.come_up().await;
    let pod = s.pod_on("a");
    s.act("delete a pod");
    s.evict(&pod).await;
    s.come_up().await;
    let rolling = json!({"type": "RollingUpdate"});
    s.patch("DaemonSet", "agent", json!({"spec": {"updateStrategy": rolling}})).await;
    s.roll().await;
}

async fn daemon_pods_that_fail_and_succeed_are_replaced(s: &Stage) {
    on_three_nodes(s, agent(s)).await;
    let pod = s.pod_on("a");
    s.act("a pod fails");
    s.fail(&pod, Some("Evicted")).await;
    s.come_up().await;
    let pod = s.pod_on("b");
    s.act("a pod succeeds");
    s.succeed(&pod).await;
    s.come_up().await;
}

async fn daemon_pods_available_after_some_seconds(s: &Stage) {
    on_three_nodes(s, agent(s).spec("minReadySeconds", 3)).await;
    s.until("all are available", 20, |s| s.one("DaemonSet", "agent")["status"]["numberAvailable"] == 3).await;
}

async fn daemon_history_is_trimmed(s: &Stage) {
    on_three_nodes(s, agent(s).spec("revisionHistoryLimit", 1)).await;
    for tag in ["v2", "v3", "v4", "v2"] {
        s.daemon_image("agent", tag).await;
        s.roll().await;
    }
}

async fn daemon_pods_are_orphaned_and_adopted(s: &Stage) {
    on_three_nodes(s, agent(s)).await;
    s.delete("DaemonSet", "agent", "Orphan").await;
    s.rest().await;
    s.create(agent(s)).await;
    s.come_up().await;
}

async fn daemon_pods_are_deleted_with_the_daemon_set(s: &Stage) {
    on_three_nodes(s, agent(s)).await;
    s.delete("DaemonSet", "agent", "Background").await;
    s.come_up().await;
}

async fn daemon_pod_is_released_by_a_label(s: &Stage) {
    on_three_nodes(s, agent(s)).await;
    let pod = s.pod_on("a");
    s.act("relabel a pod");
    s.patch_pod(&pod, json!({"metadata": {"labels": {"app": "debug"}}})).await;
    s.come_up().await;
}

async fn daemon_pods_refused_by_a_quota(s: &Stage) {
    s.create(pod_quota(2)).await;
    s.counted().await;
    on_three_nodes(s, agent(s)).await;
    s.patch("ResourceQuota", "pods", json!({"spec": {"hard": {"pods": "5"}}})).await;
    s.until("there are three", 60, |s| s.active().len() == 3).await;
    s.come_up().await;
}

async fn daemon_placement_is_edited(s: &Stage) {
    on_three_nodes(s, agent(s)).await;
    s.label_node("a", "zone", Some("one")).await;
    s.rest().await;
    let selector = json!({"nodeSelector": {"zone": "one"}});
    s.patch("DaemonSet", "agent", json!({"spec": {"template": {"spec": selector}}})).await;
    s.roll().await;
}
