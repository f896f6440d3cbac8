//! StatefulSets: their claims, and when these are deleted.

use http::Method;
use serde_json::{Value, json};

use super::super::declared::{Declared, differs, may_differ};
use super::super::objects::{claim, config_map};
use super::super::rows::{STATEFUL_CLAIM_EVENTS, STATEFUL_CONFLICTS, STATEFUL_TAKEN_BACK};
use super::super::stage::Stage;
use super::stateful_sets::{change, db, pod, scale, up};

super::workloads! {
    stateful_claims_go_with_a_scale_down,
    stateful_claims_go_with_the_statefulset,
    stateful_claims_go_with_both,
    stateful_claims_stay_with_pods_that_are_replaced,
    stateful_retention_is_changed,
    stateful_retention_is_changed_in_a_scale_down: CONFLICTS,
    stateful_claims_are_orphaned,
    stateful_claims_in_a_foreground_deletion: super::stateful_set_ownership::NO_REVISION,
    stateful_scale_down_is_taken_back: TAKEN_BACK,
    stateful_scale_down_is_taken_back_at_once,
    stateful_claim_of_a_pending_pod_is_deleted: MISSING_CLAIM,
    stateful_claim_was_there_before,
    stateful_claim_is_managed_by_another,
    stateful_claim_has_another_owner,
    stateful_claim_loses_its_controller: LOST_CONTROLLER,
    stateful_claim_is_being_deleted,
}

const DB: &str = "StatefulSet/db";
const PODS: &str = "pods of StatefulSet/db";
const FIRST: &str = "PersistentVolumeClaim/data-db-0";
const SECOND: &str = "PersistentVolumeClaim/data-db-1";

static CONFLICTS: &[Declared] = &[may_differ(
    &STATEFUL_CONFLICTS,
    ["events", DB, "Warning FailedUpdate *could not update claim *"],
    "some",
    "absent",
)];

static TAKEN_BACK: &[Declared] = &[
    differs(&STATEFUL_TAKEN_BACK, ["rest", SECOND, "metadata.ownerReferences.Pod/db-1.*"], "*", "absent"),
    differs(&STATEFUL_TAKEN_BACK, ["events", DB, "Normal SuccessfulUpdate *Pod db-1 *"], "absent", "1"),
    differs(&STATEFUL_TAKEN_BACK, ["rest", SECOND, "exists"], "absent", "yes"),
    differs(&STATEFUL_TAKEN_BACK, ["rest", DB, "status.*"], "1", "2"),
    differs(&STATEFUL_TAKEN_BACK, ["rest", PODS, "db-1.*"], "absent", "*"),
    differs(&STATEFUL_TAKEN_BACK, ["rest", PODS, "number"], "1", "2"),
    differs(&STATEFUL_TAKEN_BACK, ["created", PODS, "*"], "absent", "*"),
    differs(&STATEFUL_TAKEN_BACK, ["counts", PODS, "active"], "1 to 1", "* to 2"),
    differs(&STATEFUL_TAKEN_BACK, ["events", DB, "Normal SuccessfulCreate *Pod db-1 *"], "1", "2"),
];

static MISSING_CLAIM: &[Declared] = &[
    differs(&STATEFUL_CLAIM_EVENTS, ["rest", FIRST, "exists"], "absent", "yes"),
    differs(&STATEFUL_CLAIM_EVENTS, ["created", FIRST, "*"], "absent", "*"),
    differs(&STATEFUL_CLAIM_EVENTS, ["created", FIRST, "*"], "*", "absent"),
    differs(&STATEFUL_CLAIM_EVENTS, ["sizes", FIRST, "*"], "*", "*"),
];

static LOST_CONTROLLER: &[Declared] = &[differs(
    &STATEFUL_CLAIM_EVENTS,
    ["rest", FIRST, "metadata.ownerReferences.StatefulSet/db.controller"],
    "false",
    "true",
)];

const CLAIM: &str = "PersistentVolumeClaim";

fn retention(when_deleted: &str, when_scaled: &str) -> Value {
    json!({"persistentVolumeClaimRetentionPolicy": {"whenDeleted": when_deleted, "whenScaled": when_scaled}})
}

/// Something that wakes the StatefulSet and changes nothing.
async fn touch(s: &Stage) {
    s.act("annotate a pod");
    s.patch_pod(&pod(s, 0), json!({"metadata": {"annotations": {"seen": "yes"}}})).await;
    s.rest().await;
}

async fn stateful_claims_go_with_a_scale_down(s: &Stage) {
    up(s, db(2).retention("Retain", "Delete")).await;
    scale(s, 1).await;
    s.come_up().await;
    scale(s, 2).await;
    s.come_up().await;
}

async fn stateful_claims_go_with_the_statefulset(s: &Stage) {
    up(s, db(2).retention("Delete", "Retain")).await;
    scale(s, 1).await;
    s.come_up().await;
    s.delete("StatefulSet", "db", "Background").await;
    s.come_up().await;
}

async fn stateful_claims_go_with_both(s: &Stage) {
    up(s, db(2).retention("Delete", "Delete")).await;
    scale(s, 1).await;
    s.come_up().await;
    s.delete("StatefulSet", "db", "Background").await;
    s.come_up().await;
}

async fn stateful_claims_stay_with_pods_that_are_replaced(s: &Stage) {
    up(s, db(2).retention("Delete", "Delete")).await;
    s.act("a pod fails, another is deleted");
    s.fail(&pod(s, 0), None).await;
    s.evict(&pod(s, 1)).await;
    s.come_up().await;
}

async fn stateful_retention_is_changed(s: &Stage) {
    up(s, db(2)).await;
    for [when_deleted, when_scaled] in [["Delete", "Delete"], ["Retain", "Delete"], ["Retain", "Retain"]] {
        change(s, retention(when_deleted, when_scaled)).await;
        s.rest().await;
    }
}

async fn stateful_retention_is_changed_in_a_scale_down(s: &Stage) {
    up(s, db(3).parallel().retention("Delete", "Delete")).await;
    scale(s, 1).await;
    s.rest().await;
    change(s, retention("Retain", "Retain")).await;
    s.rest().await;
    s.end_terminating().await;
}

async fn stateful_claims_are_orphaned(s: &Stage) {
    up(s, db(2).retention("Delete", "Delete")).await;
    s.delete("StatefulSet", "db", "Orphan").await;
    s.rest().await;
}

async fn stateful_claims_in_a_foreground_deletion(s: &Stage) {
    up(s, db(2).retention("Delete", "Retain")).await;
    s.delete("StatefulSet", "db", "Foreground").await;
    s.come_up().await;
}

async fn stateful_scale_down_is_taken_back(s: &Stage) {
    up(s, db(2).retention("Retain", "Delete")).await;
    scale(s, 1).await;
    s.rest().await;
    scale(s, 2).await;
    s.rest().await;
    s.end_terminating().await;
}

async fn stateful_scale_down_is_taken_back_at_once(s: &Stage) {
    up(s, db(2).parallel().retention("Retain", "Delete")).await;
    scale(s, 1).await;
    s.rest().await;
    scale(s, 2).await;
    s.rest().await;
    s.come_up().await;
}

async fn stateful_claim_of_a_pending_pod_is_deleted(s: &Stage) {
    s.create(db(1)).await;
    s.rest().await;
    s.delete(CLAIM, "data-db-0", "Background").await;
    s.rest().await;
    touch(s).await;
}

async fn stateful_claim_was_there_before(s: &Stage) {
    s.create(claim("data-db-0").label("by", "hand")).await;
    up(s, db(1).retention("Delete", "Delete")).await;
    scale(s, 0).await;
    s.come_up().await;
}

async fn stateful_claim_is_managed_by_another(s: &Stage) {
    let manager = s.create(config_map("manager")).await;
    s.create(claim("data-db-0").owned_by(&manager, true)).await;
    up(s, db(1).retention("Delete", "Delete")).await;
    scale(s, 0).await;
    s.come_up().await;
}

async fn stateful_claim_has_another_owner(s: &Stage) {
    let other = s.create(config_map("other")).await;
    s.create(claim("data-db-0").owned_by(&other, false)).await;
    up(s, db(1).retention("Delete", "Delete")).await;
    scale(s, 0).await;
    s.come_up().await;
}

async fn stateful_claim_loses_its_controller(s: &Stage) {
    up(s, db(1).retention("Delete", "Retain")).await;
    let mut owners = s.one(CLAIM, "data-db-0")["metadata"]["ownerReferences"].clone();
    owners[0]["controller"] = false.into();
    s.act("a claim loses its controller");
    let path = format!("{}/data-db-0", s.path(CLAIM));
    s.call(Method::PATCH, &path, &json!({"metadata": {"ownerReferences": owners}})).await;
    s.rest().await;
    touch(s).await;
}

async fn stateful_claim_is_being_deleted(s: &Stage) {
    s.create(claim("data-db-0").metadata("finalizers", json!(["example.com/hold"]))).await;
    s.delete(CLAIM, "data-db-0", "Background").await;
    s.rest().await;
    up(s, db(1)).await;
    s.patch(CLAIM, "data-db-0", json!({"metadata": {"finalizers": null}})).await;
    s.until("there is a pod", 60, |s| s.active().len() == 1).await;
    s.come_up().await;
}
