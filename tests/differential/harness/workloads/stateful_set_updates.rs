//! StatefulSets: updates, partitions, revisions.

use serde_json::{Value, json};

use super::super::declared::{Declared, differs};
use super::super::objects::{Object, stateful_set};
use super::super::rows::{
    STATEFUL_BROKEN_FIRST, STATEFUL_CONDITIONS, STATEFUL_NEVER_STARTED, STATEFUL_PROMOTION,
};
use super::super::stage::Stage;
use super::stateful_sets::{change, db, image, pod, scale, up};

super::workloads! {
    stateful_rolling_update_and_back,
    stateful_rolling_update_at_once,
    stateful_update_in_phases,
    stateful_partition_counts_from_the_start_ordinal,
    stateful_deleted_pods_keep_their_side_of_the_partition,
    stateful_update_at_size_zero,
    stateful_update_on_delete: PROMOTED_ON_DELETE,
    stateful_update_on_delete_goes_on_by_itself,
    stateful_update_without_a_rolling_update,
    stateful_update_of_broken_pods_and_back,
    stateful_update_that_never_starts_is_corrected: NEVER_STARTED,
    stateful_update_with_a_broken_pod_at_once: BROKEN_FIRST,
    stateful_update_waits_until_pods_are_available: PROMOTED_WHEN_AVAILABLE,
    stateful_templates_change_faster_than_pods,
    stateful_scale_during_an_update,
    stateful_labels_and_annotations_of_the_template_change,
    stateful_history_is_trimmed,
    stateful_history_of_none,
    stateful_conditions_of_others: CONDITION,
}

const DB: &str = "StatefulSet/db";
const PODS: &str = "pods of StatefulSet/db";

static PROMOTED_ON_DELETE: &[Declared] = &[
    differs(&STATEFUL_PROMOTION, ["rest", DB, "status.currentReplicas"], "absent", "2"),
    differs(&STATEFUL_PROMOTION, ["rest", DB, "status.currentRevision"], "db#1", "db#2"),
];

static PROMOTED_WHEN_AVAILABLE: &[Declared] = &[
    differs(&STATEFUL_PROMOTION, ["rest", DB, "status.currentReplicas"], "2", "absent"),
    differs(&STATEFUL_PROMOTION, ["rest", DB, "status.currentRevision"], "db#2", "db#1"),
];

static NEVER_STARTED: &[Declared] = &[
    differs(&STATEFUL_NEVER_STARTED, ["counts", PODS, "active"], "2 to 2", "1 to 2"),
    differs(&STATEFUL_NEVER_STARTED, ["created", PODS, "*"], "absent", "*"),
    differs(&STATEFUL_NEVER_STARTED, ["deleted", PODS, ""], "absent", "db-1: Pending not ready without node"),
    differs(&STATEFUL_NEVER_STARTED, ["rest", DB, "status.updatedReplicas"], "absent", "1"),
    differs(
        &STATEFUL_NEVER_STARTED,
        ["rest", PODS, "db-1.metadata.labels.controller-revision-hash"],
        "db#2",
        "db#3",
    ),
    differs(&STATEFUL_NEVER_STARTED, ["events", DB, "Normal SuccessfulCreate *Pod db-1 *"], "2", "3"),
    differs(&STATEFUL_NEVER_STARTED, ["events", DB, "Normal SuccessfulDelete *Pod db-1 *"], "1", "2"),
];

static BROKEN_FIRST: &[Declared] = &[
    differs(&STATEFUL_BROKEN_FIRST, ["counts", "all pods", "ready"], "1 to *", "2 to 2"),
    differs(&STATEFUL_BROKEN_FIRST, ["counts", PODS, "ready"], "1 to *", "2 to 2"),
    differs(
        &STATEFUL_BROKEN_FIRST,
        ["deleted", PODS, ""],
        "db-2: Running ready on a node",
        "db-0: Running not ready on a node",
    ),
    differs(&STATEFUL_BROKEN_FIRST, ["rest", PODS, "db-2.metadata.deletion*"], "*", "absent"),
    differs(&STATEFUL_BROKEN_FIRST, ["rest", PODS, "db-0.metadata.deletion*"], "absent", "*"),
    differs(&STATEFUL_BROKEN_FIRST, ["rest", PODS, "db-2.metadata.generation"], "2", "1"),
    differs(&STATEFUL_BROKEN_FIRST, ["rest", PODS, "db-0.metadata.generation"], "1", "2"),
    differs(&STATEFUL_BROKEN_FIRST, ["events", DB, "Normal SuccessfulDelete *Pod db-2 *"], "1", "absent"),
    differs(&STATEFUL_BROKEN_FIRST, ["events", DB, "Normal SuccessfulDelete *Pod db-0 *"], "absent", "1"),
];

static CONDITION: &[Declared] =
    &[differs(&STATEFUL_CONDITIONS, ["rest", DB, "status.conditions.Backup"], "absent", "True Done:*")];

fn partition(partition: i64) -> Value {
    json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": partition}}})
}

fn partitioned(object: Object, at: i64) -> Object {
    object.spec("updateStrategy", partition(at)["updateStrategy"].clone())
}

fn on_delete(object: Object) -> Object {
    object.spec("updateStrategy", json!({"type": "OnDelete"}))
}

async fn stateful_rolling_update_and_back(s: &Stage) {
    up(s, db(3)).await;
    image(s, "v2").await;
    s.roll().await;
    image(s, "v1").await;
    s.roll().await;
}

async fn stateful_rolling_update_at_once(s: &Stage) {
    up(s, db(3).parallel()).await;
    image(s, "v2").await;
    s.roll().await;
}

async fn stateful_update_in_phases(s: &Stage) {
    up(s, partitioned(db(3), 3)).await;
    image(s, "v2").await;
    s.rest().await;
    for at in [2, 1, 0] {
        change(s, partition(at)).await;
        s.roll().await;
    }
}

async fn stateful_partition_counts_from_the_start_ordinal(s: &Stage) {
    up(s, partitioned(stateful_set("db").replicas(3), 1).spec("ordinals", json!({"start": 4}))).await;
    image(s, "v2").await;
    s.roll().await;
}

async fn stateful_deleted_pods_keep_their_side_of_the_partition(s: &Stage) {
    up(s, partitioned(stateful_set("db").replicas(3), 2)).await;
    image(s, "v2").await;
    s.roll().await;
    s.act("delete a pod of each side");
    s.evict(&pod(s, 0)).await;
    s.evict(&pod(s, 2)).await;
    s.come_up().await;
}

async fn stateful_update_at_size_zero(s: &Stage) {
    up(s, partitioned(stateful_set("db").replicas(2), 2)).await;
    scale(s, 0).await;
    s.roll().await;
    image(s, "v2").await;
    s.rest().await;
    scale(s, 2).await;
    s.roll().await;
}

async fn stateful_update_on_delete(s: &Stage) {
    up(s, on_delete(stateful_set("db").replicas(2))).await;
    image(s, "v2").await;
    s.rest().await;
    for ordinal in [0, 1] {
        s.act("delete a pod");
        s.evict(&pod(s, ordinal)).await;
        s.come_up().await;
    }
}

async fn stateful_update_on_delete_goes_on_by_itself(s: &Stage) {
    up(s, on_delete(stateful_set("db").replicas(3))).await;
    image(s, "v2").await;
    s.rest().await;
    s.act("delete a pod");
    s.evict(&pod(s, 0)).await;
    s.come_up().await;
    change(s, partition(0)).await;
    s.roll().await;
}

async fn stateful_update_without_a_rolling_update(s: &Stage) {
    up(s, stateful_set("db").replicas(3).spec("updateStrategy", json!({"type": "RollingUpdate"}))).await;
    image(s, "v2").await;
    s.roll_some(2).await;
    s.roll().await;
}

async fn stateful_update_of_broken_pods_and_back(s: &Stage) {
    up(s, stateful_set("db").replicas(2)).await;
    image(s, "broken").await;
    s.come_up().await;
    image(s, "v1").await;
    s.rest().await;
    s.act("delete the broken pod");
    s.evict(&pod(s, 1)).await;
    s.roll().await;
}

async fn stateful_update_that_never_starts_is_corrected(s: &Stage) {
    up(s, stateful_set("db").replicas(2)).await;
    image(s, "v2").await;
    s.rest().await;
    s.end_terminating().await;
    // The new pod stays without a node.
    image(s, "v3").await;
    s.rest().await;
}

async fn stateful_update_with_a_broken_pod_at_once(s: &Stage) {
    up(s, stateful_set("db").replicas(3).parallel()).await;
    s.act("pod 0 becomes unready");
    s.unready(&pod(s, 0)).await;
    s.rest().await;
    image(s, "v2").await;
    s.rest().await;
}

async fn stateful_update_waits_until_pods_are_available(s: &Stage) {
    // Longer than a rest, in which Windlass may gather numbers for five seconds.
    s.create(stateful_set("db").replicas(2).parallel().spec("minReadySeconds", 12)).await;
    s.come_up().await;
    let status = |s: &Stage, field: &str| s.one("StatefulSet", "db")["status"][field].clone();
    s.until("all are available", 60, |s| status(s, "availableReplicas") == 2).await;
    image(s, "v2").await;
    s.rest().await;
    for updated in [1, 2] {
        s.end_terminating().await;
        s.come_up().await;
        let is_there =
            |s: &Stage| status(s, "availableReplicas") == 2 && status(s, "updatedReplicas") == updated;
        s.until("the new pod is available", 60, is_there).await;
    }
}

async fn stateful_templates_change_faster_than_pods(s: &Stage) {
    up(s, stateful_set("db").replicas(2)).await;
    image(s, "v2").await;
    s.rest().await;
    image(s, "v3").await;
    s.rest().await;
    s.roll().await;
}

async fn stateful_scale_during_an_update(s: &Stage) {
    up(s, stateful_set("db").replicas(3)).await;
    image(s, "v2").await;
    s.rest().await;
    scale(s, 4).await;
    s.roll().await;
    image(s, "v3").await;
    s.rest().await;
    scale(s, 2).await;
    s.roll().await;
}

async fn stateful_labels_and_annotations_of_the_template_change(s: &Stage) {
    up(s, stateful_set("db").replicas(2)).await;
    let metadata = json!({"labels": {"zone": "one"}, "annotations": {"restartedAt": "noon"}});
    change(s, json!({"template": {"metadata": metadata}})).await;
    s.roll().await;
}

async fn stateful_history_is_trimmed(s: &Stage) {
    up(s, stateful_set("db").spec("revisionHistoryLimit", 1)).await;
    for tag in ["v2", "v3", "v4", "v2"] {
        image(s, tag).await;
        s.roll().await;
    }
}

async fn stateful_history_of_none(s: &Stage) {
    up(s, stateful_set("db").spec("revisionHistoryLimit", 0)).await;
    for tag in ["v2", "v1"] {
        image(s, tag).await;
        s.roll().await;
    }
    change(s, json!({"revisionHistoryLimit": 3})).await;
    image(s, "v3").await;
    s.roll().await;
}

async fn stateful_conditions_of_others(s: &Stage) {
    up(s, stateful_set("db")).await;
    s.act("an operator writes a condition");
    let condition = json!({"type": "Backup", "status": "True", "reason": "Done", "message": "",
                           "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let path = format!("{}/db/status", s.path("StatefulSet"));
    s.call(http::Method::PATCH, &path, &json!({"status": {"conditions": [condition]}})).await;
    s.rest().await;
    scale(s, 2).await;
    s.roll().await;
}
