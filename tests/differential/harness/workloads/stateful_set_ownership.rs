//! StatefulSets: whose pods they are, names that are taken, and deletions.

use serde_json::json;

use super::super::declared::{Declared, differs, may_differ};
use super::super::objects::{pod as single_pod, stateful_set};
use super::super::rows::{STATEFUL_DELETED, STATEFUL_LONG_NAME, STATEFUL_ORDINALS, STATEFUL_TAKEN_NAME};
use super::super::stage::Stage;
use super::stateful_sets::{db, pod, up};

super::workloads! {
    stateful_pods_are_orphaned_and_adopted,
    stateful_orphans_of_an_older_template_are_updated,
    stateful_pods_are_deleted_with_the_statefulset,
    stateful_pods_are_deleted_before_the_statefulset: NO_REVISION,
    stateful_pod_is_released_by_a_label_and_comes_back: TAKEN_NAME,
    stateful_pod_without_its_reference_is_adopted,
    stateful_pod_that_has_failed_is_adopted,
    stateful_name_of_a_pod_is_taken: TAKEN_NAME,
    stateful_pods_of_other_names_are_left_alone,
    stateful_pod_with_a_zero_before_its_ordinal: ORDINAL,
    stateful_two_with_one_selector,
    stateful_selector_with_expressions,
    stateful_name_is_too_long: LONG_NAME,
}

const DB: &str = "StatefulSet/db";
const PODS: &str = "pods of StatefulSet/db";
const OTHERS: &str = "pods of no owner";
const REVISION: &str = "ControllerRevision/db#1";

/// Upstream creates the revision again that the garbage collector has deleted.
pub(super) static NO_REVISION: &[Declared] = &[
    differs(&STATEFUL_DELETED, ["created", REVISION, "*"], "*", "absent"),
    may_differ(&STATEFUL_DELETED, ["sizes", REVISION, "*"], "*", "absent"),
    may_differ(&STATEFUL_DELETED, ["rest", REVISION, "exists"], "yes", "absent"),
];

static TAKEN_NAME: &[Declared] = &[differs(
    &STATEFUL_TAKEN_NAME,
    ["events", DB, "Warning FailedCreate *: a pod of this name exists and belongs to no controller"],
    "absent",
    "some",
)];

static ORDINAL: &[Declared] = &[
    differs(&STATEFUL_ORDINALS, ["rest", DB, "status.replicas"], "2", "1"),
    differs(&STATEFUL_ORDINALS, ["rest", PODS, "db-01.*"], "*", "absent"),
    differs(&STATEFUL_ORDINALS, ["rest", PODS, "number"], "2", "1"),
    differs(&STATEFUL_ORDINALS, ["rest", OTHERS, "*"], "absent", "*"),
    differs(&STATEFUL_ORDINALS, ["counts", PODS, "active"], "* to 2", "1 to 1"),
    differs(&STATEFUL_ORDINALS, ["counts", OTHERS, "*"], "*", "*"),
];

static LONG_NAME: &[Declared] = &[
    differs(
        &STATEFUL_LONG_NAME,
        ["conditions", "StatefulSet/d*", "ReplicaFailure=True NameTooLong: *"],
        "absent",
        "seen",
    ),
    differs(
        &STATEFUL_LONG_NAME,
        ["rest", "StatefulSet/d*", "status.conditions.ReplicaFailure"],
        "absent",
        "True NameTooLong: *",
    ),
    differs(
        &STATEFUL_LONG_NAME,
        ["events", "StatefulSet/d*", "Warning FailedCreate *must be no more than 63 bytes"],
        "some",
        "absent",
    ),
    differs(
        &STATEFUL_LONG_NAME,
        ["events", "StatefulSet/d*", "Warning FailedCreate *use a name of at most 52"],
        "absent",
        "some",
    ),
];

async fn stateful_pods_are_orphaned_and_adopted(s: &Stage) {
    up(s, db(2)).await;
    s.delete("StatefulSet", "db", "Orphan").await;
    s.rest().await;
    s.create(db(2)).await;
    s.come_up().await;
}

async fn stateful_orphans_of_an_older_template_are_updated(s: &Stage) {
    up(s, stateful_set("db").replicas(2)).await;
    s.delete("StatefulSet", "db", "Orphan").await;
    s.rest().await;
    s.create(stateful_set("db").replicas(2).image("v2")).await;
    s.roll().await;
}

async fn stateful_pods_are_deleted_with_the_statefulset(s: &Stage) {
    up(s, db(2)).await;
    s.delete("StatefulSet", "db", "Background").await;
    s.come_up().await;
}

async fn stateful_pods_are_deleted_before_the_statefulset(s: &Stage) {
    up(s, db(2)).await;
    s.delete("StatefulSet", "db", "Foreground").await;
    s.rest().await;
    s.come_up().await;
}

async fn stateful_pod_is_released_by_a_label_and_comes_back(s: &Stage) {
    up(s, stateful_set("db").replicas(2)).await;
    s.act("relabel a pod");
    s.patch_pod(&pod(s, 1), json!({"metadata": {"labels": {"app": "debug"}}})).await;
    s.rest().await;
    s.act("label it as before");
    s.patch_pod(&pod(s, 1), json!({"metadata": {"labels": {"app": "db"}}})).await;
    s.rest().await;
}

async fn stateful_pod_without_its_reference_is_adopted(s: &Stage) {
    up(s, stateful_set("db")).await;
    s.act("remove the owner of a pod");
    s.patch_pod(&pod(s, 0), json!({"metadata": {"ownerReferences": null}})).await;
    s.rest().await;
}

async fn stateful_pod_that_has_failed_is_adopted(s: &Stage) {
    s.create(single_pod("db-0", "db")).await;
    s.rest().await;
    s.act("the pod fails");
    s.fail(&pod(s, 0), None).await;
    up(s, stateful_set("db")).await;
}

async fn stateful_name_of_a_pod_is_taken(s: &Stage) {
    s.create(single_pod("db-0", "other")).await;
    s.create(stateful_set("db").replicas(2)).await;
    s.rest().await;
    s.act("delete the pod of that name");
    s.end(&pod(s, 0)).await;
    let is_there = |s: &Stage| s.one("Pod", "db-0")["metadata"]["labels"]["app"] == "db";
    s.until("there is a pod of ours", 60, is_there).await;
    s.roll().await;
}

async fn stateful_pods_of_other_names_are_left_alone(s: &Stage) {
    for name in ["web-0", "db", "db-x", "my-db-0"] {
        s.create(single_pod(name, "db")).await;
    }
    s.create(stateful_set("db")).await;
    s.rest().await;
}

async fn stateful_pod_with_a_zero_before_its_ordinal(s: &Stage) {
    s.create(single_pod("db-01", "db")).await;
    s.create(stateful_set("db")).await;
    s.rest().await;
}

async fn stateful_two_with_one_selector(s: &Stage) {
    let labels = json!({"app": "db"});
    up(s, stateful_set("db").replicas(2)).await;
    up(s, stateful_set("db-1").template_label("app", "db").selecting(labels)).await;
}

async fn stateful_selector_with_expressions(s: &Stage) {
    let expressions = json!([{"key": "app", "operator": "In", "values": ["db", "store"]}]);
    let selector = json!({"matchLabels": {"tier": "data"}, "matchExpressions": expressions});
    up(s, db(1).template_label("tier", "data").spec("selector", selector)).await;
}

async fn stateful_name_is_too_long(s: &Stage) {
    s.create(stateful_set(&"d".repeat(54))).await;
    s.rest().await;
}
