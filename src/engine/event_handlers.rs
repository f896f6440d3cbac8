//! Maps a change in a store to the keys that it concerns. No API call, and no waiting.
//!
//! Each controller has handlers of its own (`watch` of [`super::controller::Controller`]); this is the part that they
//! share. Only the owner itself is woken, found by the kind and UID of the owner reference, whatever its name. An
//! object without an owner concerns every owner that selects it: when it is added, and when its labels or its
//! owner change. No other change affects who may adopt it.

use std::time::Duration;

use super::context::Context;
use crate::model::Record;
use crate::runtime::store::{Change, Store};

impl Context {
    /// Wakes the owner of an object, if it is of this kind. An owner that is not in the cache yet is woken once it is added.
    pub(crate) fn wake_owner_of<O: Record>(&self, owners: &Store<O>, object: &impl Record) {
        if let Some(owner) = owners.controller_of(object.meta()) {
            self.queue_of::<O>().add(owner.meta().key.clone());
        }
    }
}

/// Whether an object without an owner may be adopted by an owner that could not adopt it before: it is new, or its
/// labels or its owner have changed (upstream: `updatePod` of `replica_set.go`).
pub(crate) fn may_be_adopted_anew<T: Record>(change: &Change<T>) -> bool {
    match change {
        Change::Added(_) => true,
        Change::Updated { old, new } => {
            let (old, new) = (old.meta(), new.meta());
            old.labels != new.labels || old.controller != new.controller
        }
        Change::Deleted(_) => false,
    }
}

/// How long changes of a ReplicaSet's pods are gathered before the ReplicaSet is synced: 20 µs a pod, which is
/// 20 ms for a thousand. A sync visits each pod for some 120 ns (`benches/sync.rs`), so that however fast
/// the pods change, a ReplicaSet keeps a core busy for less than a hundredth of the time, and the cost of a change
/// does not grow with the ReplicaSet.
pub(crate) fn coalescing_delay(pods: usize) -> Duration {
    Duration::from_micros(20).saturating_mul(u32::try_from(pods).unwrap_or(u32::MAX)).min(LONGEST_COALESCING)
}

/// The longest delay, however large the ReplicaSet.
const LONGEST_COALESCING: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::controllers::fixture::{Rig, rig};
    use crate::model::{Deployment, Interner, Pod, ReplicaSet, ReplicationController};

    fn decode<T: Record>(object: &Value) -> T {
        T::decode(&object.to_string(), &mut Interner::default()).unwrap()
    }

    /// An object that selects `app=web`, or matches it, of whatever kind.
    fn object(name: &str, uid: &str) -> Value {
        json!({
            "metadata": {"name": name, "namespace": "shop", "uid": uid, "resourceVersion": "1",
                         "labels": {"app": "web"}},
            "spec": {"selector": {"matchLabels": {"app": "web"}}},
            "status": {"phase": "Running"},
        })
    }

    fn owned_by(mut object: Value, api_version: &str, kind: &str, name: &str, uid: &str) -> Value {
        object["metadata"]["ownerReferences"] = json!([{"apiVersion": api_version, "kind": kind, "name": name,
                                                        "uid": uid, "controller": true}]);
        object
    }

    /// A Deployment, a ReplicaSet and a ReplicationController, all of the name `web`.
    fn shop() -> Rig {
        let rig = rig(200, |_| {});
        rig.context.store::<Deployment>().put(decode(&object("web", "u-deployment")));
        rig.context.store::<ReplicaSet>().put(decode(&object("web", "u-set")));
        let mut controller = object("web", "u-controller");
        controller["spec"]["selector"] = json!({"app": "web"});
        rig.context.store::<ReplicationController>().put(decode(&controller));
        rig
    }

    fn updated<T: Record>(old: &Value, new: &Value) -> Change<T> {
        Change::Updated { old: Arc::new(decode(old)), new: Arc::new(decode(new)) }
    }

    fn with(mut object: Value, pointer: &str, value: Value) -> Value {
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        object.pointer_mut(parent).unwrap()[field] = value;
        object
    }

    const DELETED: &str = "2026-01-01T00:00:00Z";

    #[tokio::test(start_paused = true)]
    async fn an_orphan_pod_enqueues_owners_that_select_it_when_added_and_when_labels_or_owner_change() {
        let mut rig = shop();
        let pod = object("p", "u-pod");
        let mut wakes = |change: Change<Pod>| {
            rig.dispatch(change);
            rig.woken()
        };
        let both = ["replicaset shop/web", "replicationcontroller shop/web"];
        assert_eq!(wakes(Change::Added(Arc::new(decode(&pod)))), both);
        assert_eq!(wakes(updated(&with(pod.clone(), "/metadata/labels", json!({})), &pod)), both);
        let another = owned_by(pod.clone(), "apps/v1", "StatefulSet", "db", "u-db");
        assert_eq!(wakes(updated(&another, &pod)), both);
        // Other changes, thousands of times.
        for change in [
            updated(&with(pod.clone(), "/status/phase", "Pending".into()), &pod),
            updated(&with(pod.clone(), "/metadata/resourceVersion", "0".into()), &pod),
            Change::Deleted(Arc::new(decode(&pod))),
            updated(&pod, &with(pod.clone(), "/metadata/deletionTimestamp", DELETED.into())),
            Change::Added(Arc::new(decode(&with(
                pod.clone(),
                "/metadata/deletionTimestamp",
                DELETED.into(),
            )))),
        ] {
            let what = format!("{change:?}");
            let mut woken = wakes(change);
            // It looks after pods without a node that are being deleted.
            woken.retain(|key| key != "pod-garbage-collector pass");
            assert_eq!(woken, [""; 0], "{what}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_orphan_replica_set_enqueues_owners_that_select_it_when_added_and_when_labels_or_owner_change()
    {
        let mut rig = shop();
        let replica_set = object("other", "u-other");
        let mut wakes = |change: Change<ReplicaSet>| {
            rig.dispatch(change);
            rig.woken()
        };
        let both = ["deployment shop/web", "replicaset shop/other"];
        let itself = ["replicaset shop/other"];
        assert_eq!(wakes(Change::Added(Arc::new(decode(&replica_set)))), both);
        assert_eq!(
            wakes(updated(&with(replica_set.clone(), "/metadata/labels", json!({})), &replica_set)),
            both
        );
        let another = owned_by(replica_set.clone(), "argoproj.io/v1alpha1", "Rollout", "r", "u-rollout");
        assert_eq!(wakes(updated(&another, &replica_set)), both);
        for change in [
            updated(&with(replica_set.clone(), "/status/replicas", 3.into()), &replica_set),
            Change::Deleted(Arc::new(decode(&replica_set))),
            Change::Added(Arc::new(decode(&with(
                replica_set.clone(),
                "/metadata/deletionTimestamp",
                DELETED.into(),
            )))),
        ] {
            let what = format!("{change:?}");
            assert_eq!(wakes(change), itself, "{what}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_owner_is_enqueued_regardless_of_the_name_and_version_in_the_reference() {
        let mut rig = shop();
        for (api_version, name) in [("apps/v1", "web"), ("apps/v1beta2", "web"), ("apps/v1", "another")] {
            let pod = owned_by(object("p", "u-pod"), api_version, "ReplicaSet", name, "u-set");
            rig.dispatch(Change::Added(Arc::new(decode::<Pod>(&pod))));
            assert_eq!(rig.woken(), ["replicaset shop/web"], "{api_version} {name}");
            let replica_set = owned_by(object("s", "u-s"), api_version, "Deployment", name, "u-deployment");
            rig.dispatch(Change::Added(Arc::new(decode::<ReplicaSet>(&replica_set))));
            assert_eq!(rig.woken(), ["deployment shop/web", "replicaset shop/s"], "{api_version} {name}");
        }
        let pod = owned_by(object("p", "u-pod"), "v1", "ReplicationController", "another", "u-controller");
        rig.dispatch(Change::Deleted(Arc::new(decode::<Pod>(&pod))));
        assert_eq!(rig.woken(), ["replicationcontroller shop/web"]);
        // The owner that loses a pod is woken, too.
        rig.dispatch(updated::<Pod>(&pod, &with(pod.clone(), "/metadata/ownerReferences", json!([]))));
        assert_eq!(
            rig.woken(),
            ["replicaset shop/web", "replicationcontroller shop/web"],
            "and who may adopt it"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_forged_reference_enqueues_no_owner() {
        let mut rig = shop();
        let pod = |api_version, kind, uid| owned_by(object("p", "u-pod"), api_version, kind, "web", uid);
        let forged = [
            pod("apps/v1", "Deployment", "u-set"),
            pod("v1", "ReplicationController", "u-set"),
            pod("example.com/v1", "ReplicaSet", "u-set"),
            pod("v1", "ReplicaSet", "u-set"),
            pod("apps/v1", "ReplicaSet", "u-deployment"),
            pod("apps/v1", "ReplicaSet", "u-unknown"),
            with(pod("apps/v1", "ReplicaSet", "u-set"), "/metadata/namespace", "other".into()),
        ];
        for pod in forged {
            rig.dispatch(Change::Added(Arc::new(decode::<Pod>(&pod))));
            rig.dispatch(Change::Deleted(Arc::new(decode::<Pod>(&pod))));
            assert_eq!(rig.woken(), [""; 0], "{pod}");
        }
        let replica_set = owned_by(object("s", "u-s"), "apps/v1", "Deployment", "web", "u-deployment");
        let replica_set = with(replica_set, "/metadata/namespace", "other".into());
        rig.dispatch(Change::Added(Arc::new(decode::<ReplicaSet>(&replica_set))));
        assert_eq!(rig.woken(), ["replicaset other/s"]);
    }
}
