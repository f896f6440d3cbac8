//! Rollouts of StatefulSets before they begin.

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::*;
use crate::model::Interner;
use crate::plan::revisions::data;
use crate::plan::statefulset::Reason;

const CREATED: &str = "2026-01-01T00:00:00Z";

fn decode<T: Record>(object: &Value) -> T {
    T::decode(&object.to_string(), &mut Interner::default()).unwrap()
}

fn owners(kind: &str, name: &str, uid: &str) -> Value {
    let version = if kind == "Pod" { "v1" } else { "apps/v1" };
    json!([{"apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": true}])
}

/// A StatefulSet that has run `replicas` pods of `db:1` for an hour, each with a claim, and its spec changed since.
fn start(replicas: i32, change: impl FnOnce(&mut Value)) -> StatefulStart {
    let mut set = json!({
        "metadata": {"name": "db", "namespace": "shop", "uid": "s", "resourceVersion": "9", "generation": 2},
        "spec": {
            "replicas": replicas, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
            "template": {"metadata": {"labels": {"app": "db"}},
                         "spec": {"containers": [{"name": "c", "image": "db:1"}]}},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {}}],
        },
        "status": {"observedGeneration": 1, "replicas": replicas, "readyReplicas": replicas,
                   "availableReplicas": replicas, "currentReplicas": replicas, "updatedReplicas": replicas,
                   "currentRevision": "db-old", "updateRevision": "db-old"},
    });
    let data: Value = serde_json::from_str(&data(&decode::<StatefulSet>(&set).template).unwrap()).unwrap();
    let revision = json!({
        "metadata": {"name": "db-old", "namespace": "shop", "uid": "r", "resourceVersion": "1",
                     "labels": {"app": "db", "controller.kubernetes.io/hash": "old"},
                     "ownerReferences": owners("StatefulSet", "db", "s")},
        "revision": 4, "data": data,
    });
    let pod = |nth: i32| {
        json!({
            "metadata": {"name": format!("db-{nth}"), "namespace": "shop", "uid": format!("u-{nth}"),
                         "resourceVersion": "7", "creationTimestamp": CREATED,
                         "labels": {"app": "db", "controller-revision-hash": "db-old",
                                    "statefulset.kubernetes.io/pod-name": format!("db-{nth}"),
                                    "apps.kubernetes.io/pod-index": nth.to_string()},
                         "ownerReferences": owners("StatefulSet", "db", "s")},
            "spec": {"nodeName": "n1", "volumes": [
                {"name": "data", "persistentVolumeClaim": {"claimName": format!("data-db-{nth}")}}]},
            "status": {"phase": "Running",
                       "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": CREATED}]},
        })
    };
    let claim = |nth: i32| {
        json!({"metadata": {"name": format!("data-db-{nth}"), "namespace": "shop", "uid": format!("c-{nth}"),
                            "resourceVersion": "3"}})
    };
    change(&mut set["spec"]);
    StatefulStart {
        set: decode(&set),
        revisions: vec![Arc::new(decode(&revision))],
        pods: (0..replicas).map(|nth| Arc::new(decode(&pod(nth)))).collect(),
        claims: (0..replicas).map(|nth| Arc::new(decode(&claim(nth)))).collect(),
        now: "2026-01-01T01:00:00Z".parse().unwrap(),
        kubelet: Kubelet {
            ready_after: SignedDuration::from_secs(10),
            stop_after: SignedDuration::from_secs(2),
            broken: 0,
        },
        rooms: Vec::new(),
    }
}

fn new_image(spec: &mut Value) {
    spec["template"]["spec"]["containers"][0]["image"] = "db:2".into();
}

/// The steps as text: seconds, what changes, available of pods.
fn rows(preview: &Preview) -> Vec<String> {
    let change = |change: &Change| match change {
        Change::Deleted(pod, Reason::Condemned) => format!("--{pod}"),
        Change::Deleted(pod, _) => format!("-{pod}"),
        Change::Created(pod, claims) if claims.is_empty() => format!("+{pod}"),
        Change::Created(pod, claims) => format!("+{pod}({})", claims.join(",")),
        Change::ClaimDeleted(claim) => format!("-claim {claim}"),
        of_node => panic!("{of_node:?}"),
    };
    let row = |step: &Step| {
        let changes: Vec<String> = step.changes.iter().map(change).collect();
        format!("{} {} {}/{}", step.after.as_secs(), changes.join(" "), step.available, step.pods)
    };
    preview.steps.iter().map(row).collect()
}

#[test]
fn a_new_image_replaces_the_pods_from_the_highest_ordinal_down_and_keeps_their_claims() {
    let preview = preview_stateful_set(start(2, new_image));
    let expected = ["0  2/2", "0 -db-1 1/1", "2 +db-1 1/2", "12 -db-0 1/1", "14 +db-0 1/2", "24  2/2"];
    assert_eq!(rows(&preview), expected);
    assert_eq!((preview.end, preview.took.as_secs()), (End::Complete, 24));
    let parts: Vec<_> = preview.parts.iter().map(|part| (part.revision, part.is_new)).collect();
    assert_eq!(parts, [(Some(4), false), (Some(5), true)]);
    assert_eq!((preview.most_allowed, preview.least_allowed), (2, 1));
}

#[test]
fn a_partition_holds_back_the_pods_below_it() {
    let preview = preview_stateful_set(start(3, |spec| {
        new_image(spec);
        spec["updateStrategy"]["rollingUpdate"]["partition"] = 2.into();
    }));
    assert_eq!(rows(&preview), ["0  3/3", "0 -db-2 2/2", "2 +db-2 2/3", "12  3/3"]);
    assert_eq!(preview.end, End::Complete);
}

#[test]
fn a_scale_up_creates_claims_and_pods_one_after_the_other() {
    let preview = preview_stateful_set(start(1, |spec| spec["replicas"] = 3.into()));
    let expected = ["0  1/1", "0 +db-1(data-db-1) 1/2", "10 +db-2(data-db-2) 2/3", "20  3/3"];
    assert_eq!(rows(&preview), expected);
    assert_eq!(preview.end, End::Complete);
}

#[test]
fn a_scale_down_deletes_the_claims_only_if_the_policy_says_so() {
    let scale = |when_scaled: &str| {
        rows(&preview_stateful_set(start(2, |spec| {
            spec["replicas"] = 0.into();
            spec["persistentVolumeClaimRetentionPolicy"] =
                json!({"whenDeleted": "Retain", "whenScaled": when_scaled});
        })))
    };
    assert_eq!(scale("Retain"), ["0  2/2", "0 --db-1 1/1", "2 --db-0 0/0", "4  0/0"]);
    let deleted = ["0  2/2", "0 --db-1 1/1", "2 -claim data-db-1 --db-0 0/0", "4 -claim data-db-0 0/0"];
    assert_eq!(scale("Delete"), deleted);
}

#[test]
fn a_pod_that_never_gets_ready_ends_it_with_its_name() {
    let mut start = start(3, new_image);
    start.kubelet.broken = 1;
    let preview = preview_stateful_set(start);
    assert_eq!(rows(&preview), ["0  3/3", "0 -db-2 2/2", "2 +db-2 2/3"]);
    assert_eq!(preview.end, End::Waits);
    let waits = preview.waits_for.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    assert!(waits.contains("Pod db-2: it is not ready"), "{waits}");
}

#[test]
fn nothing_is_replaced_with_on_delete() {
    let preview = preview_stateful_set(start(2, |spec| {
        new_image(spec);
        spec["updateStrategy"] = json!({"type": "OnDelete"});
    }));
    assert_eq!((rows(&preview), preview.end), (vec!["0  2/2".to_owned()], End::Waits));
    assert_eq!(preview.least_allowed, 2);
    assert!(
        matches!(
            preview.waits_for[..],
            [crate::plan::Reason::Ordinals(PlanReason::OnDelete { outdated: 2, .. })]
        ),
        "{:?}",
        preview.waits_for
    );
}

#[test]
fn a_quota_without_room_refuses_the_pod_that_comes_back() {
    let mut start = start(1, |spec| spec["replicas"] = 3.into());
    start.rooms = vec![Room { free: 1, new_pod: 1, old_pod: 1 }];
    let preview = preview_stateful_set(start);
    assert_eq!(preview.end, End::Waits);
    let last = preview.steps.last().unwrap();
    assert_eq!((last.pods, last.refused), (2, 1), "{:?}", rows(&preview));
}
