//! A change in a store becomes the keys that it concerns. No API call, and no waiting.

use std::sync::Arc;
use std::time::Duration;

use super::cluster::Cluster;
use super::pod_owner::PodOwner;
use crate::model::{Deployment, ObjectKey, Pod, Record, ReplicaSet, ReplicationController, Strategy};
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
    /// that belongs to nobody concerns every Deployment that selects it.
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

    /// A pod has changed: the set's key that it belongs or belonged to. One that belongs to nobody
    /// concerns every set that selects it.
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
            None if pod.is_active() => {
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

    /// By the name in the reference: a key without an object costs nothing.
    fn wake_deployment_of(&self, set: &Arc<ReplicaSet>) {
        let controller = set.meta.controller.as_ref().filter(|controller| &*controller.kind == "Deployment");
        if let Some(deployment) = controller {
            let namespace = set.meta.key.namespace.clone();
            self.deployment_queue.add(ObjectKey::new(namespace, deployment.name.clone()));
        }
    }

    fn wake_owner_of(&self, pod: &Pod) {
        let Some(controller) = &pod.meta.controller else { return };
        let queue = match &*controller.kind {
            "ReplicaSet" => &self.set_queue,
            "ReplicationController" => &self.replication_controller_queue,
            _ => return,
        };
        let key = ObjectKey::new(pod.meta.key.namespace.clone(), controller.name.clone());
        queue.add_after(key, gathering(self.pods.count_owned_by(&controller.uid)));
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

/// How long changes of a set's pods are gathered before the set looks at them all: 20 µs a pod, which is
/// 20 ms for a thousand. A sync looks at each pod for some 120 ns (`benches/sync.rs`), so that however fast
/// the pods change, a set keeps a core busy for less than a hundredth of the time, and the cost of a change
/// does not grow with the set.
fn gathering(pods: usize) -> Duration {
    Duration::from_micros(20).saturating_mul(u32::try_from(pods).unwrap_or(u32::MAX)).min(LONGEST_GATHERING)
}

/// So long nothing is left lying, however large the set.
const LONGEST_GATHERING: Duration = Duration::from_millis(200);
