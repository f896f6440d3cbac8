//! StatefulSets: their pods in order and all at once, sizes, and pods that are broken.

use serde_json::{Value, json};

use super::super::declared::{Declared, differs};
use super::super::objects::{Object, pod_quota, quota, stateful_set};
use super::super::rows::STATEFUL_FAILED_PODS;
use super::super::stage::{Pod, Stage};

super::workloads! {
    stateful_pods_are_created_one_by_one,
    stateful_pods_are_created_at_once,
    stateful_pods_and_claims_have_what_their_templates_say,
    stateful_pods_have_two_claims_each,
    stateful_scale_one_by_one,
    stateful_scale_at_once,
    stateful_scale_to_zero_and_back,
    stateful_scaled_by_its_subresource,
    stateful_broken_pod_halts_the_creation,
    stateful_broken_pod_halts_a_scale_down,
    stateful_broken_pods_out_of_range,
    stateful_broken_pods_halt_nothing_at_once,
    stateful_pods_that_fail_and_succeed_are_replaced,
    stateful_pods_that_fail_at_once_are_replaced,
    stateful_pod_fails_again_and_again: BACK_OFF,
    stateful_pod_is_deleted_by_a_user,
    stateful_pod_with_a_finalizer_fails,
    stateful_pod_fails_and_its_condition_still_says_ready,
    stateful_pods_available_after_some_seconds,
    stateful_min_ready_seconds_are_changed,
    stateful_start_ordinal_moves,
    stateful_start_ordinal_moves_at_once,
    stateful_identity_labels_are_put_back,
    stateful_pods_refused_by_a_quota,
    stateful_claims_refused_by_a_quota,
}

const PODS: &str = "pods of StatefulSet/db";

/// The pod that fails for the fifth time is replaced in the next step.
static BACK_OFF: &[Declared] = &[
    differs(&STATEFUL_FAILED_PODS, ["rest", PODS, "db-0.status.phase"], "Pending", "Failed"),
    differs(&STATEFUL_FAILED_PODS, ["deleted", PODS, ""], "db-0: Failed not ready on a node", "absent"),
    differs(&STATEFUL_FAILED_PODS, ["created", PODS, "*"], "*", "absent"),
    differs(&STATEFUL_FAILED_PODS, ["deleted", PODS, ""], "absent", "db-0: Failed not ready on a node"),
    differs(&STATEFUL_FAILED_PODS, ["created", PODS, "*"], "absent", "*"),
    differs(&STATEFUL_FAILED_PODS, ["counts", PODS, "active"], "1 to 1", "0 to 1"),
];

/// A StatefulSet of so many pods, each with a claim.
pub(super) fn db(replicas: i64) -> Object {
    stateful_set("db").replicas(replicas).claims(&["data"])
}

/// Creates it, and its pods become ready.
pub(super) async fn up(s: &Stage, object: Object) {
    s.create(object).await;
    s.come_up().await;
}

/// Changes its spec.
pub(super) async fn change(s: &Stage, spec: Value) {
    s.patch("StatefulSet", "db", json!({"spec": spec})).await;
}

/// Changes the image of its template.
pub(super) async fn image(s: &Stage, tag: &str) {
    let containers = json!([{"name": "app", "image": format!("app:{tag}")}]);
    change(s, json!({"template": {"spec": {"containers": containers}}})).await;
}

pub(super) async fn scale(s: &Stage, replicas: i64) {
    s.scale("StatefulSet", "db", replicas).await;
}

/// The pod of an ordinal.
pub(super) fn pod(s: &Stage, ordinal: i64) -> Pod {
    let name = format!("db-{ordinal}");
    s.pods().into_iter().find(|pod| pod.name() == name).unwrap_or_else(|| panic!("no pod {name}"))
}

async fn becomes_unready(s: &Stage, ordinal: i64) {
    s.act(format!("pod {ordinal} becomes unready"));
    s.unready(&pod(s, ordinal)).await;
}

async fn becomes_ready(s: &Stage, ordinal: i64) {
    s.act(format!("pod {ordinal} becomes ready"));
    s.ready(&pod(s, ordinal)).await;
}

async fn stateful_pods_are_created_one_by_one(s: &Stage) {
    s.create(db(3)).await;
    s.roll().await;
}

async fn stateful_pods_are_created_at_once(s: &Stage) {
    up(s, db(3).parallel()).await;
}

async fn stateful_pods_and_claims_have_what_their_templates_say(s: &Stage) {
    let mut object = stateful_set("db").annotation("team", "storage").label("tier", "data");
    let volumes = json!([{"name": "data", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}]);
    object.0["spec"]["template"]["metadata"]["annotations"] = json!({"scrape": "yes"});
    object.0["spec"]["template"]["spec"]["volumes"] = volumes;
    object.0["spec"]["template"]["spec"]["hostname"] = "chosen".into();
    object.0["spec"]["template"]["spec"]["subdomain"] = "by-a-user".into();
    let mut object = object.template_label("zone", "one").claims(&["data"]);
    let metadata = json!({"name": "data", "labels": {"app": "other", "kind": "disk"}, "annotations": {"backup": "daily"}});
    object.0["spec"]["volumeClaimTemplates"][0]["metadata"] = metadata;
    up(s, object).await;
    // Without a Service that governs it.
    let mut object = stateful_set("alone");
    object.0["spec"].as_object_mut().unwrap().remove("serviceName");
    up(s, object).await;
}

async fn stateful_pods_have_two_claims_each(s: &Stage) {
    up(s, db(2).claims(&["data", "log"])).await;
}

async fn stateful_scale_one_by_one(s: &Stage) {
    up(s, db(2)).await;
    scale(s, 4).await;
    s.roll().await;
    scale(s, 1).await;
    s.roll().await;
}

async fn stateful_scale_at_once(s: &Stage) {
    up(s, db(2).parallel()).await;
    scale(s, 4).await;
    s.come_up().await;
    scale(s, 1).await;
    s.come_up().await;
}

async fn stateful_scale_to_zero_and_back(s: &Stage) {
    up(s, db(2)).await;
    scale(s, 0).await;
    s.roll().await;
    scale(s, 2).await;
    s.roll().await;
}

async fn stateful_scaled_by_its_subresource(s: &Stage) {
    up(s, stateful_set("db")).await;
    s.scale_by_subresource("StatefulSet", "db", 2).await;
    s.roll().await;
}

async fn stateful_broken_pod_halts_the_creation(s: &Stage) {
    s.create(db(3)).await;
    s.rest().await;
    becomes_unready(s, 0).await;
    s.rest().await;
    becomes_ready(s, 0).await;
    s.rest().await;
    becomes_ready(s, 1).await;
    s.rest().await;
    // The third exists by now, and is not held up by one that breaks again.
    becomes_unready(s, 0).await;
    s.rest().await;
    becomes_ready(s, 2).await;
    s.rest().await;
}

async fn stateful_broken_pod_halts_a_scale_down(s: &Stage) {
    up(s, db(3)).await;
    becomes_unready(s, 0).await;
    s.rest().await;
    scale(s, 1).await;
    s.rest().await;
    becomes_ready(s, 0).await;
    s.roll().await;
}

async fn stateful_broken_pods_out_of_range(s: &Stage) {
    up(s, stateful_set("db").replicas(4)).await;
    becomes_unready(s, 1).await;
    becomes_unready(s, 2).await;
    s.rest().await;
    scale(s, 1).await;
    s.roll().await;
    becomes_ready(s, 1).await;
    s.roll().await;
}

async fn stateful_broken_pods_halt_nothing_at_once(s: &Stage) {
    up(s, stateful_set("db").replicas(3).parallel()).await;
    becomes_unready(s, 0).await;
    s.rest().await;
    scale(s, 4).await;
    s.rest().await;
    scale(s, 1).await;
    s.rest().await;
    s.end_terminating().await;
}

async fn stateful_pods_that_fail_and_succeed_are_replaced(s: &Stage) {
    up(s, db(3)).await;
    s.act("a pod fails");
    s.fail(&pod(s, 1), Some("Evicted")).await;
    s.come_up().await;
    s.act("a pod succeeds");
    s.succeed(&pod(s, 0)).await;
    s.come_up().await;
}

async fn stateful_pods_that_fail_at_once_are_replaced(s: &Stage) {
    up(s, stateful_set("db").replicas(3).parallel()).await;
    s.act("two pods fail");
    s.fail(&pod(s, 1), None).await;
    s.fail(&pod(s, 2), Some("Evicted")).await;
    s.come_up().await;
}

/// Makes the pod fail that is there now.
async fn fails(s: &Stage) {
    s.act("the pod fails");
    s.fail(&pod(s, 0), Some("OutOfcpu")).await;
}

async fn stateful_pod_fails_again_and_again(s: &Stage) {
    s.create(stateful_set("db")).await;
    s.rest().await;
    let is_new = |s: &Stage| s.active().len() == 1;
    for _ in 0..4 {
        fails(s).await;
        s.until("there is a new pod", 20, is_new).await;
    }
    // By now Windlass waits for eight seconds.
    fails(s).await;
    s.rest().await;
    s.until("there is a new pod", 20, is_new).await;
}

async fn stateful_pod_is_deleted_by_a_user(s: &Stage) {
    up(s, db(3)).await;
    s.act("delete a pod");
    s.evict(&pod(s, 1)).await;
    s.rest().await;
    s.end_terminating().await;
    s.come_up().await;
    s.act("delete a pod by force");
    s.end(&pod(s, 0)).await;
    s.come_up().await;
}

async fn stateful_pod_with_a_finalizer_fails(s: &Stage) {
    up(s, stateful_set("db").replicas(2).parallel()).await;
    s.act("a pod is held by a finalizer, and fails");
    s.patch_pod(&pod(s, 0), json!({"metadata": {"finalizers": ["example.com/hold"]}})).await;
    s.fail(&pod(s, 0), None).await;
    s.rest().await;
    s.act("the finalizer is removed");
    s.patch_pod(&pod(s, 0), json!({"metadata": {"finalizers": null}})).await;
    s.come_up().await;
}

async fn stateful_pod_fails_and_its_condition_still_says_ready(s: &Stage) {
    up(s, stateful_set("db").replicas(2).parallel()).await;
    s.act("a pod is held by a finalizer, and its phase is Failed");
    s.patch_pod(&pod(s, 0), json!({"metadata": {"finalizers": ["example.com/hold"]}})).await;
    let path = format!("{}/db-0/status", s.path("Pod"));
    s.call(http::Method::PATCH, &path, &json!({"status": {"phase": "Failed"}})).await;
    s.rest().await;
}

async fn stateful_pods_available_after_some_seconds(s: &Stage) {
    s.create(db(2).spec("minReadySeconds", 3)).await;
    s.rest().await;
    let available =
        |count: i64| move |s: &Stage| s.one("StatefulSet", "db")["status"]["availableReplicas"] == count;
    becomes_ready(s, 0).await;
    s.until("the first is available", 20, available(1)).await;
    becomes_ready(s, 1).await;
    s.until("all are available", 20, available(2)).await;
}

async fn stateful_min_ready_seconds_are_changed(s: &Stage) {
    up(s, stateful_set("db").replicas(2).parallel().spec("minReadySeconds", 3600)).await;
    change(s, json!({"minReadySeconds": 0})).await;
    s.rest().await;
}

async fn stateful_start_ordinal_moves(s: &Stage) {
    up(s, db(2)).await;
    change(s, json!({"ordinals": {"start": 3}})).await;
    s.roll().await;
    change(s, json!({"ordinals": {"start": 2}})).await;
    s.roll().await;
}

async fn stateful_start_ordinal_moves_at_once(s: &Stage) {
    up(s, stateful_set("db").replicas(2).parallel().spec("ordinals", json!({"start": 2}))).await;
    change(s, json!({"ordinals": null})).await;
    s.come_up().await;
}

async fn stateful_identity_labels_are_put_back(s: &Stage) {
    up(s, stateful_set("db")).await;
    s.act("remove the label with the name");
    let labels = json!({"statefulset.kubernetes.io/pod-name": null});
    s.patch_pod(&pod(s, 0), json!({"metadata": {"labels": labels}})).await;
    s.rest().await;
}

async fn stateful_pods_refused_by_a_quota(s: &Stage) {
    s.create(pod_quota(1)).await;
    s.counted().await;
    up(s, stateful_set("db").replicas(2).parallel()).await;
    s.patch("ResourceQuota", "pods", json!({"spec": {"hard": {"pods": "5"}}})).await;
    s.until("there are two", 60, |s| s.active().len() == 2).await;
    s.come_up().await;
}

async fn stateful_claims_refused_by_a_quota(s: &Stage) {
    s.create(quota("persistentvolumeclaims", 1)).await;
    s.counted().await;
    up(s, db(2)).await;
    s.patch("ResourceQuota", "pods", json!({"spec": {"hard": {"persistentvolumeclaims": "5"}}})).await;
    s.until("there are two", 60, |s| s.active().len() == 2).await;
    s.come_up().await;
}
