//! Rollouts before they begin.

use serde_json::{Value, json};

use super::rolling_update::{RollingStart, preview_rolling_update};
use super::*;
use crate::model::{Interner, Pod, Record, ReplicaSet};

mod policies;

const NOW: &str = "2026-01-01T01:00:00Z";

fn decode<T: Record>(object: &Value) -> T {
    T::decode(&object.to_string(), &mut Interner::default()).unwrap()
}

fn template(image: &str, hash: Option<&str>) -> Value {
    let mut labels = json!({"app": "web"});
    if let Some(hash) = hash {
        labels["pod-template-hash"] = hash.into();
    }
    json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "app", "image": image}]}})
}

/// A Deployment that has run `replicas` pods of `app:1` for an hour, with its spec changed since.
fn start(replicas: i32, change: impl FnOnce(&mut Value)) -> Start {
    let created = "2026-01-01T00:00:00Z";
    let condition = |kind: &str, reason: &str| {
        json!({"type": kind, "status": "True", "reason": reason, "message": "",
               "lastUpdateTime": created, "lastTransitionTime": created})
    };
    let mut deployment = json!({
        "metadata": {"name": "web", "namespace": "shop", "uid": "d", "resourceVersion": "9", "generation": 2,
                     "creationTimestamp": created, "annotations": {"deployment.kubernetes.io/revision": "7"}},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template("app:1", None),
                 "progressDeadlineSeconds": 600, "revisionHistoryLimit": 10,
                 "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}}},
        "status": {"observedGeneration": 1, "replicas": replicas, "updatedReplicas": replicas,
                   "readyReplicas": replicas, "availableReplicas": replicas,
                   "conditions": [condition("Available", "MinimumReplicasAvailable"),
                                  condition("Progressing", "NewReplicaSetAvailable")]},
    });
    let owner = |kind: &str, name: &str, uid: &str| json!([{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": uid, "controller": true}]);
    let replica_set = json!({
        "metadata": {"name": "web-old", "namespace": "shop", "uid": "old", "resourceVersion": "8", "generation": 1,
                     "creationTimestamp": created, "labels": {"app": "web", "pod-template-hash": "old"},
                     "annotations": {"deployment.kubernetes.io/revision": "7",
                                     "deployment.kubernetes.io/desired-replicas": replicas.to_string(),
                                     "deployment.kubernetes.io/max-replicas": (replicas + (replicas + 3) / 4).to_string()},
                     "ownerReferences": owner("Deployment", "web", "d")},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web", "pod-template-hash": "old"}},
                 "template": template("app:1", Some("old"))},
        "status": {"observedGeneration": 1, "replicas": replicas, "fullyLabeledReplicas": replicas,
                   "readyReplicas": replicas, "availableReplicas": replicas},
    });
    let pod = |nth: i32| {
        json!({
            "metadata": {"name": format!("web-old-{nth}"), "namespace": "shop", "uid": format!("pod-{nth}"),
                         "resourceVersion": "7", "creationTimestamp": created,
                         "labels": {"app": "web", "pod-template-hash": "old"},
                         "ownerReferences": owner("ReplicaSet", "web-old", "old")},
            "spec": {"nodeName": "n1"},
            "status": {"phase": "Running",
                       "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": created}]},
        })
    };
    change(&mut deployment["spec"]);
    Start {
        deployment: decode(&deployment),
        replica_sets: vec![decode(&replica_set)],
        pods: (0..replicas).map(|nth| Arc::new(decode(&pod(nth)))).collect(),
        now: NOW.parse().unwrap(),
        kubelet: Kubelet {
            ready_after: SignedDuration::from_secs(12),
            stop_after: SignedDuration::from_secs(1),
            broken: 0,
        },
        rooms: Vec::new(),
        free_replica_sets: None,
    }
}

fn new_image(spec: &mut Value) {
    spec["template"] = template("app:2", None);
}

/// The steps as text: seconds, the sizes of old and new, pods and available.
fn rows(preview: &Preview) -> Vec<String> {
    let row = |step: &Step| {
        let sizes: Vec<String> = preview
            .parts
            .iter()
            .map(|part| step.sizes.get(&part.name).copied().unwrap_or(0).to_string())
            .collect();
        format!("{} {} {}/{}", step.after.as_secs(), sizes.join("+"), step.available, step.pods)
    };
    preview.steps.iter().map(row).collect()
}

#[test]
fn a_preview_of_two_thousand_million_pods_ends() {
    let scaled = start(1, |spec| spec["replicas"] = i32::MAX.into());
    assert_eq!(preview(scaled).end, End::GoesOn);
}

#[test]
fn a_new_image_rolls_out_within_its_bounds() {
    let preview = preview(start(10, new_image));
    assert_eq!(rows(&preview), ["0 10 10/10", "0 8+5 8/13", "12 3+10 8/13", "24 0+10 10/10"].map(fix));
    assert_eq!((preview.end, preview.most_allowed, preview.least_allowed), (End::Complete, 13, 8));
    assert_eq!((preview.lowest().unwrap().0, preview.most()), (1, 13));
    assert_eq!(preview.parts.iter().map(|part| part.revision).collect::<Vec<_>>(), [Some(7), Some(8)]);
}

/// Without a new ReplicaSet, its size is 0.
fn fix(row: &str) -> String {
    row.replace(" 10 ", " 10+0 ")
}

#[test]
fn a_pod_that_is_starting_becomes_ready_even_if_it_takes_longer_than_most() {
    for (created, reason, end) in [
        ("2026-01-01T00:59:56Z", "ContainerCreating", End::Complete),
        ("2026-01-01T00:59:40Z", "ContainerCreating", End::Complete),
        ("2026-01-01T00:50:00Z", "ContainerCreating", End::Waits),
        ("2026-01-01T00:59:56Z", "ImagePullBackOff", End::Waits),
    ] {
        let mut start = start(3, |spec| spec["replicas"] = 4.into());
        let waiting = json!({"name": "app", "restartCount": 0, "state": {"waiting": {"reason": reason}}});
        let pod = json!({
            "metadata": {"name": "web-old-0", "namespace": "shop", "uid": "pod-0", "resourceVersion": "7",
                         "creationTimestamp": created, "labels": {"app": "web", "pod-template-hash": "old"},
                         "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-old",
                                              "uid": "old", "controller": true}]},
            "spec": {"nodeName": "n1"},
            "status": {"phase": "Pending", "containerStatuses": [waiting]},
        });
        start.pods[0] = Arc::new(decode(&pod));
        start.kubelet.ready_after = SignedDuration::from_secs(15);
        assert_eq!(preview(start).end, end, "{created} {reason}");
    }
}

#[test]
fn pods_that_never_get_ready_stop_it_with_as_many_available_as_must_be() {
    let mut start = start(10, new_image);
    start.kubelet.broken = usize::MAX;
    let preview = preview(start);
    assert_eq!(rows(&preview), ["0 10+0 10/10", "0 8+5 8/13"]);
    assert_eq!((preview.end, preview.took.as_secs()), (End::Stuck, 600));
}

#[test]
fn one_broken_pod_does_not_stop_what_the_budget_allows() {
    let mut start = start(4, new_image);
    start.kubelet.broken = 1;
    let preview = preview(start);
    assert_eq!(preview.end, End::Stuck);
    let last = preview.steps.last().unwrap();
    assert_eq!((last.pods, last.available), (4, 3), "{:?}", rows(&preview));
}

#[test]
fn without_a_deadline_it_waits() {
    let mut start = start(2, |spec| {
        new_image(spec);
        spec["progressDeadlineSeconds"] = i32::MAX.into();
    });
    start.kubelet.broken = usize::MAX;
    assert_eq!(preview(start).end, End::Waits);
}

#[test]
fn a_quota_refuses_pods_until_old_ones_are_gone() {
    let mut start = start(10, new_image);
    start.rooms = vec![Room { free: 3, new_pod: 1, old_pod: 1 }];
    let preview = preview(start);
    assert_eq!(preview.end, End::Complete);
    let first = &preview.steps[1];
    assert_eq!((first.pods, first.refused), (11, 2), "two old pods are deleted and still count");
    assert!(preview.steps.iter().all(|step| step.available >= 8), "{:?}", rows(&preview));
}

#[test]
fn a_quota_without_room_for_a_replica_set_stops_a_new_template_and_no_other_change() {
    let of = |free: i64, change: fn(&mut Value)| {
        let mut start = start(3, change);
        start.free_replica_sets = Some(free);
        preview(start)
    };
    let refused = of(0, new_image);
    assert_eq!(rows(&refused), ["0 3 3/3"]);
    assert!(refused.is_replica_set_refused && refused.end != End::Complete);
    let scaled = of(0, |spec| spec["replicas"] = 4.into());
    assert_eq!((scaled.end, scaled.is_replica_set_refused), (End::Complete, false));
    assert_eq!(of(1, new_image).end, End::Complete);
}

#[test]
fn recreate_ends_all_old_pods_first() {
    let preview = preview(start(3, |spec| {
        new_image(spec);
        spec["strategy"] = json!({"type": "Recreate"});
    }));
    assert_eq!(rows(&preview), ["0 3+0 3/3", "0 0+0 0/0", "1 0+3 0/3", "13 0+3 3/3"]);
    assert_eq!((preview.end, preview.least_allowed, preview.most_allowed), (End::Complete, 0, 3));
}

#[test]
fn a_pod_counts_once_it_was_ready_for_long_enough() {
    let preview = preview(start(1, |spec| {
        new_image(spec);
        spec["minReadySeconds"] = 30.into();
    }));
    assert_eq!(rows(&preview), ["0 1+0 1/1", "0 1+1 1/2", "42 0+1 1/1"]);
}

#[test]
fn a_change_of_the_size_alone_keeps_the_template() {
    let preview = preview(start(2, |spec| spec["replicas"] = 5.into()));
    assert_eq!(rows(&preview), ["0 2 2/2", "0 5 2/5", "12 5 5/5"]);
}

#[test]
fn the_largest_generation_that_a_server_can_store_stays_as_it_is() {
    let mut start = start(2, |spec| spec["replicas"] = 1.into());
    start.replica_sets[0].meta.generation = i64::MAX;
    start.replica_sets[0].status.observed_generation = i64::MAX;
    let preview = preview(start);
    assert_eq!(rows(&preview), ["0 2 2/2", "0 1 1/1"]);
}

#[test]
fn nothing_to_do_is_complete_at_once_and_a_paused_one_waits() {
    let preview_of = |change: fn(&mut Value)| preview(start(3, change));
    let same = preview_of(|_| {});
    assert_eq!((rows(&same), same.end), (vec!["0 3 3/3".to_owned()], End::Complete));
    let paused = preview_of(|spec| {
        new_image(spec);
        spec["paused"] = true.into();
    });
    assert_eq!((paused.steps.len(), paused.end), (1, End::Waits));
}

#[test]
fn every_pair_of_bounds_is_kept_at_every_step() {
    for replicas in [1, 2, 3, 7, 10] {
        for (surge, unavailable) in [(0, 1), (1, 0), (2, 1), (0, 5), (9, 0)] {
            let preview = preview(start(replicas, |spec| {
                new_image(spec);
                spec["strategy"]["rollingUpdate"] = json!({"maxSurge": surge, "maxUnavailable": unavailable});
            }));
            let case = format!("{replicas} {surge}/{unavailable}: {:?}", rows(&preview));
            assert_eq!(preview.end, End::Complete, "{case}");
            let least = i64::from((replicas - unavailable).max(0));
            assert!(preview.steps.iter().all(|step| step.available >= least), "{case}");
            assert!(preview.most() <= i64::from(replicas + surge), "{case}");
        }
    }
}

/// A ReplicationController of this size that has run for an hour, with its pods.
fn controller(name: &str, size: i32) -> (ReplicaSet, Vec<Arc<Pod>>) {
    let created = "2026-01-01T00:00:00Z";
    let labels = json!({"app": "api", "deployment": name});
    let template =
        json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": name}]}});
    let object = json!({
        "metadata": {"name": name, "namespace": "shop", "uid": name, "resourceVersion": "8", "generation": 1,
                     "creationTimestamp": created},
        "spec": {"replicas": size, "selector": labels, "template": template},
        "status": {"observedGeneration": 1, "replicas": size, "readyReplicas": size, "availableReplicas": size},
    });
    let owner = json!([{"apiVersion": "v1", "kind": "ReplicationController", "name": name, "uid": name, "controller": true}]);
    let pod = |nth: i32| {
        let name = format!("{name}-{nth}");
        Arc::new(decode(&json!({
            "metadata": {"name": name, "namespace": "shop", "uid": name, "resourceVersion": "7",
                         "creationTimestamp": created, "labels": labels, "ownerReferences": owner},
            "spec": {"nodeName": "n1"},
            "status": {"phase": "Running",
                       "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": created}]},
        })))
    };
    (decode::<crate::model::ReplicationController>(&object).0, (0..size).map(pod).collect())
}

fn rolling(size: i32, surge: i64, unavailable: i64) -> RollingStart {
    use crate::model::int_or_percent::IntOrPercent;
    let ((old, pods), (new, _)) = (controller("old", size), controller("new", 0));
    let (surge, unavailable) = (IntOrPercent::Int(surge), IntOrPercent::Int(unavailable));
    RollingStart {
        old,
        new,
        pods,
        bounds: crate::plan::rolling_update::Bounds::resolve(size, surge, unavailable),
        period: SignedDuration::ZERO,
        timeout: SignedDuration::from_mins(5),
        now: NOW.parse().unwrap(),
        kubelet: Kubelet {
            ready_after: SignedDuration::from_secs(12),
            stop_after: SignedDuration::from_secs(1),
            broken: 0,
        },
        rooms: Vec::new(),
    }
}

#[test]
fn a_rolling_update_takes_one_resize_a_look_within_its_bounds() {
    let preview = preview_rolling_update(rolling(3, 1, 0));
    assert_eq!(
        rows(&preview),
        [
            "0 3+0 3/3",
            "0 3+1 3/4",
            "12 3+1 4/4",
            "12 2+1 3/3",
            "12 2+2 3/4",
            "24 2+2 4/4",
            "24 1+2 3/3",
            "24 1+3 3/4",
            "36 1+3 4/4",
            "36 0+3 3/3"
        ]
    );
    assert_eq!((preview.end, preview.most(), preview.least_allowed), (End::Complete, 4, 3));
    assert_eq!(preview.parts.iter().map(|part| part.is_new).collect::<Vec<_>>(), [false, true]);
}

#[test]
fn a_pause_stands_between_new_pods_and_the_end_of_old_ones() {
    let preview =
        preview_rolling_update(RollingStart { period: SignedDuration::from_secs(60), ..rolling(1, 1, 0) });
    assert_eq!(rows(&preview), ["0 1+0 1/1", "0 1+1 1/2", "12 1+1 2/2", "60 0+1 1/1"]);
}

#[test]
fn a_rolling_update_to_broken_pods_stops_without_fewer_than_must_be_available() {
    let mut start = rolling(3, 1, 0);
    start.kubelet.broken = usize::MAX;
    let preview = preview_rolling_update(start);
    assert_eq!(
        (rows(&preview), preview.end),
        (vec!["0 3+0 3/3".to_owned(), "0 3+1 3/4".to_owned()], End::Stuck)
    );
    assert_eq!(preview.took.as_secs(), 300);
}

#[test]
fn a_quota_holds_a_rolling_update_up_too() {
    let mut start = rolling(3, 1, 0);
    start.rooms = vec![Room { free: 0, new_pod: 1, old_pod: 1 }];
    let preview = preview_rolling_update(start);
    assert!(preview.end == End::Stuck && preview.steps[1].refused == 1, "{:?}", rows(&preview));
}
