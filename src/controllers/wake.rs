//! A change in a store becomes the keys that it concerns. No API call, and no waiting.
//!
//! Only the owner itself is woken, found by what an owner reference says of it, with whatever name. An
//! object without an owner concerns everybody who selects it once: when it comes, and when its labels or its
//! owner change. What else changes about it changes nothing about who may adopt it.

use std::time::Duration;

use super::cluster::Cluster;
use super::pod_owner::PodOwner;
use crate::model::{Deployment, Pod, Record, ReplicaSet, ReplicationController, Strategy};
use crate::runtime::store::Change;

impl Cluster {
    /// A Deployment has changed: its own key.
    pub fn deployment_changed(&self, change: &Change<Deployment>) {
        let deployment = change.object();
        if let Change::Deleted(_) = change {
            self.forget(&deployment.meta.uid);
        }
        self.deployment_queue.add(deployment.meta.key.clone());
    }

    /// A ReplicaSet has changed: its own key, and the Deployment's that it belongs or belonged to. One
    /// that nobody owns any more, or with other labels, concerns every Deployment that selects it.
    pub fn set_changed(&self, change: &Change<ReplicaSet>) {
        let set = change.object();
        if let Change::Deleted(_) = change {
            self.forget(&set.meta.uid);
        }
        self.set_queue.add(set.meta.key.clone());
        if let Change::Updated { old, new } = change
            && old.meta.controller != new.meta.controller
        {
            self.wake_deployment_of(old);
        }
        match &set.meta.controller {
            Some(_) => self.wake_deployment_of(set),
            None if set.meta.is_deleting() || !may_be_adopted_anew(change) => {}
            None => {
                for deployment in self.deployments.in_namespace(&set.meta.key.namespace) {
                    if deployment.selector.matches(&set.meta.labels) {
                        self.deployment_queue.add(deployment.meta.key.clone());
                    }
                }
            }
        }
    }

    /// A ReplicationController has changed: its own key.
    pub fn replication_controller_changed(&self, change: &Change<ReplicationController>) {
        let meta = &change.object().0.meta;
        if let Change::Deleted(_) = change {
            self.forget(&meta.uid);
        }
        self.replication_controller_queue.add(meta.key.clone());
    }

    /// A pod has changed: the ReplicaSet's key that it belongs or belonged to. One that nobody owns any
    /// more, or with other labels, concerns everybody who selects it.
    pub fn pod_changed(&self, change: &Change<Pod>) {
        let pod = change.object();
        self.pod_name_seen(change);
        if let Change::Updated { old, new } = change
            && old.meta.controller != new.meta.controller
            && !planted!("who loses a pod is not woken")
        {
            self.wake_owner_of(old);
        }
        match &pod.meta.controller {
            Some(_)
                if matches!(change, Change::Deleted(_)) && planted!("a pod that is gone wakes nobody") => {}
            Some(_) => self.wake_owner_of(pod),
            None if planted!("an orphan wakes nobody") => {}
            None if pod.is_active() && may_be_adopted_anew(change) => {
                self.wake_who_selects::<ReplicaSet>(pod);
                self.wake_who_selects::<ReplicationController>(pod);
            }
            None => {}
        }
        let ended = matches!(change, Change::Deleted(_)) || pod.is_terminal();
        // A pod counts against a quota until it has ended.
        let counted = match change {
            Change::Added(_) => false,
            Change::Updated { old, .. } => !old.is_terminal(),
            Change::Deleted(last) => !last.is_terminal(),
        };
        if ended && counted {
            self.wake_refused(&pod.meta.key.namespace);
        }
        // `ImagePullBackOff` changes no count of the set, and would not be told of before the deadline.
        // The price is a sync without a write for each pod that gets into trouble or out of it.
        let said = match change {
            Change::Added(new) => new.trouble().is_some(),
            Change::Updated { old, new } => old.trouble() != new.trouble(),
            Change::Deleted(_) => false,
        };
        // Recreate waits for its old pods to end: the last one to go, or to fail, lets it go on.
        if (ended || said)
            && let Some(set) = self.set_of(pod)
            && let Some(deployment) = self.deployment_of(&set)
            && (said || deployment.strategy == Strategy::Recreate)
        {
            self.deployment_queue.add(deployment.meta.key.clone());
        }
    }

    /// An owner that is not in the cache is woken when it comes.
    fn wake_deployment_of(&self, set: &ReplicaSet) {
        if let Some(deployment) = self.deployment_of(set) {
            self.deployment_queue.add(deployment.meta.key.clone());
        }
    }

    fn wake_owner_of(&self, pod: &Pod) {
        let _is_of_neither =
            self.wake_owner::<ReplicaSet>(pod) || self.wake_owner::<ReplicationController>(pod);
    }

    /// Wakes the owner of the pod, if it is of this kind.
    fn wake_owner<O: PodOwner>(&self, pod: &Pod) -> bool {
        let Some(owner) = O::store(self).controller_of(&pod.meta) else { return false };
        let pods = self.pods.count_owned_by(&owner.as_owner());
        O::queue(self).add_after(owner.meta().key.clone(), gathering(pods));
        true
    }

    fn wake_who_selects<O: PodOwner>(&self, pod: &Pod) {
        for owner in O::store(self).in_namespace(&pod.meta.key.namespace) {
            if owner.as_set().selector.matches(&pod.meta.labels) {
                O::queue(self).add(owner.meta().key.clone());
            }
        }
    }

    /// A pod of the namespace has ended, or a refused set got its pods: there may be room for more.
    pub(super) fn wake_refused(&self, namespace: &str) {
        if let Some((kind, key)) = self.refused.next(namespace) {
            let is_set = kind == ReplicaSet::RESOURCE;
            if is_set { &self.set_queue } else { &self.replication_controller_queue }.add(key);
        }
    }
}

/// Whether somebody may adopt an object without an owner who could not before: it is new, or its labels or
/// its owner have changed (upstream: `updatePod` of `replica_set.go`).
fn may_be_adopted_anew<T: Record>(change: &Change<T>) -> bool {
    match change {
        Change::Added(_) => true,
        Change::Updated { old, new } => {
            let (old, new) = (old.meta(), new.meta());
            old.labels != new.labels || old.controller != new.controller
        }
        Change::Deleted(_) => false,
    }
}

/// How long changes of a set's pods are gathered before the set looks at them all: 20 µs a pod, which is
/// 20 ms for a thousand. A sync looks at each pod for some 120 ns (`benches/sync.rs`), so that however fast
/// the pods change, a set keeps a core busy for less than a hundredth of the time, and the cost of a change
/// does not grow with the set.
fn gathering(pods: usize) -> Duration {
    Duration::from_micros(20).saturating_mul(u32::try_from(pods).unwrap_or(u32::MAX)).min(LONGEST_GATHERING)
}

/// So long nothing is left lying, however large the set.
const LONGEST_GATHERING: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::controllers::fixture::cluster;
    use crate::model::{Interner, ObjectKey};
    use crate::runtime::worker::WorkQueue;

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

    /// A cluster with a Deployment, a ReplicaSet and a ReplicationController, all of the name `web`.
    fn shop() -> Cluster {
        let cluster = cluster(200, |_| {});
        cluster.deployments.put(decode(&object("web", "u-deployment")));
        cluster.sets.put(decode(&object("web", "u-set")));
        let mut controller = object("web", "u-controller");
        controller["spec"]["selector"] = json!({"app": "web"});
        cluster.replication_controllers.put(decode(&controller));
        cluster
    }

    /// Empties the queues: `d` for a Deployment's, `r` for a ReplicaSet's, `c` for a
    /// ReplicationController's key.
    fn woken(cluster: &Cluster) -> Vec<String> {
        let mut woken = Vec::new();
        let mut empty = |letter: &str, queue: &WorkQueue<ObjectKey>| {
            queue.retain(|key| {
                woken.push(format!("{letter} {key}"));
                false
            });
        };
        empty("d", &cluster.deployment_queue);
        empty("r", &cluster.set_queue);
        empty("c", &cluster.replication_controller_queue);
        woken
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
    async fn an_orphan_pod_concerns_those_who_select_it_when_it_comes_and_when_labels_or_owner_change() {
        let cluster = shop();
        let pod = object("p", "u-pod");
        let wakes = |change: &Change<Pod>| {
            cluster.pod_changed(change);
            woken(&cluster)
        };
        let everybody = ["r shop/web", "c shop/web"];
        assert_eq!(wakes(&Change::Added(Arc::new(decode(&pod)))), everybody);
        assert_eq!(wakes(&updated(&with(pod.clone(), "/metadata/labels", json!({})), &pod)), everybody);
        let another = owned_by(pod.clone(), "apps/v1", "StatefulSet", "db", "u-db");
        assert_eq!(wakes(&updated(&another, &pod)), everybody);
        // Anything else, thousands of times.
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
            assert_eq!(wakes(&change), [""; 0], "{change:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_orphan_replica_set_concerns_those_who_select_it_when_it_comes_and_when_labels_or_owner_change()
     {
        let cluster = shop();
        let set = object("other", "u-other");
        let wakes = |change: &Change<ReplicaSet>| {
            cluster.set_changed(change);
            woken(&cluster)
        };
        let everybody = ["d shop/web", "r shop/other"];
        let itself = ["r shop/other"];
        assert_eq!(wakes(&Change::Added(Arc::new(decode(&set)))), everybody);
        assert_eq!(wakes(&updated(&with(set.clone(), "/metadata/labels", json!({})), &set)), everybody);
        let another = owned_by(set.clone(), "argoproj.io/v1alpha1", "Rollout", "r", "u-rollout");
        assert_eq!(wakes(&updated(&another, &set)), everybody);
        for change in [
            updated(&with(set.clone(), "/status/replicas", 3.into()), &set),
            Change::Deleted(Arc::new(decode(&set))),
            Change::Added(Arc::new(decode(&with(
                set.clone(),
                "/metadata/deletionTimestamp",
                DELETED.into(),
            )))),
        ] {
            assert_eq!(wakes(&change), itself, "{change:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_owner_is_woken_whatever_name_and_version_the_reference_has() {
        let cluster = shop();
        for (api_version, name) in [("apps/v1", "web"), ("apps/v1beta2", "web"), ("apps/v1", "another")] {
            let pod = owned_by(object("p", "u-pod"), api_version, "ReplicaSet", name, "u-set");
            cluster.pod_changed(&Change::Added(Arc::new(decode(&pod))));
            assert_eq!(woken(&cluster), ["r shop/web"], "{api_version} {name}");
            let set = owned_by(object("s", "u-s"), api_version, "Deployment", name, "u-deployment");
            cluster.set_changed(&Change::Added(Arc::new(decode(&set))));
            assert_eq!(woken(&cluster), ["d shop/web", "r shop/s"], "{api_version} {name}");
        }
        let pod = owned_by(object("p", "u-pod"), "v1", "ReplicationController", "another", "u-controller");
        cluster.pod_changed(&Change::Deleted(Arc::new(decode(&pod))));
        assert_eq!(woken(&cluster), ["c shop/web"]);
        // Who loses a pod is told, too.
        cluster.pod_changed(&updated(&pod, &with(pod.clone(), "/metadata/ownerReferences", json!([]))));
        assert_eq!(woken(&cluster), ["r shop/web", "c shop/web"], "and who may adopt it");
    }

    #[tokio::test(start_paused = true)]
    async fn a_forged_reference_wakes_nobody() {
        let cluster = shop();
        let pod = |api_version, kind, uid| owned_by(object("p", "u-pod"), api_version, kind, "web", uid);
        let forged = [
            pod("apps/v1", "Deployment", "u-set"),
            pod("v1", "ReplicationController", "u-set"),
            pod("example.com/v1", "ReplicaSet", "u-set"),
            pod("v1", "ReplicaSet", "u-set"),
            pod("apps/v1", "ReplicaSet", "u-deployment"),
            pod("apps/v1", "ReplicaSet", "u-nobody"),
            with(pod("apps/v1", "ReplicaSet", "u-set"), "/metadata/namespace", "other".into()),
        ];
        for pod in forged {
            cluster.pod_changed(&Change::Added(Arc::new(decode(&pod))));
            cluster.pod_changed(&Change::Deleted(Arc::new(decode(&pod))));
            assert_eq!(woken(&cluster), [""; 0], "{pod}");
        }
        let set = owned_by(object("s", "u-s"), "apps/v1", "Deployment", "web", "u-deployment");
        let set = with(set, "/metadata/namespace", "other".into());
        cluster.set_changed(&Change::Added(Arc::new(decode(&set))));
        assert_eq!(woken(&cluster), ["r other/s"]);
    }
}
