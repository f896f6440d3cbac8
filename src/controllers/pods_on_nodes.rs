//! The pods of each node, so that a change of a node costs what its own pods do, and not what those of the cluster do.

use std::sync::Arc;

use parking_lot::RwLock;

use crate::engine::entry::ControllerEntry;
use crate::engine::setup::{HandlerOrder, Setup};
use crate::model::{ObjectKey, Pod};
use crate::runtime::index::Index;
use crate::runtime::store::{Change, Store};

/// The keys of the pods of each node. Shared by the controllers that look for them, and empty without one.
#[derive(Default)]
pub(super) struct PodsOnNodes(RwLock<Index<Arc<str>, ObjectKey>>);

impl PodsOnNodes {
    /// The index, for a controller that looks for the pods of nodes if it is enabled.
    pub(super) fn of_setup(entry: &ControllerEntry, setup: &mut Setup) -> Arc<Self> {
        if !setup.is_enabled(entry) {
            return Arc::default();
        }
        let (index, is_first) = setup.shared::<PodsOnNodes>();
        if is_first {
            let own = index.clone();
            // Before the handlers that queue keys: a worker must not miss a pod that the index does not know yet.
            setup.on_change(HandlerOrder::Owner, move |change| own.update(change));
        }
        index
    }

    /// Follows a change of a pod.
    fn update(&self, change: &Change<Pod>) {
        let (old, new) = change.states();
        let (before, after) = (old.and_then(Pod::node), new.and_then(Pod::node));
        // Most changes of a pod do not move it: they need no lock.
        if before != after {
            self.0.write().change(&change.object().meta.key, before.cloned(), after.cloned());
        }
    }

    /// The pods of a node, in the order of their keys.
    pub(super) fn on(&self, node: &Arc<str>, pods: &Store<Pod>) -> Vec<Arc<Pod>> {
        let index = self.0.read();
        index.get(node).filter_map(|key| pods.get(key).filter(|pod| pod.node() == Some(node))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Interner, Record as _};

    fn pod(name: &str, uid: &str, node: &str) -> Arc<Pod> {
        let json = format!(
            r#"{{"metadata":{{"name":"{name}","namespace":"shop","uid":"{uid}","resourceVersion":"1"}},"spec":{{"nodeName":"{node}"}}}}"#
        );
        Arc::new(Pod::decode(&json, &mut Interner::default()).unwrap())
    }

    #[test]
    fn a_pod_is_on_its_node_from_when_it_is_bound_until_it_is_gone() {
        let (index, store) = (PodsOnNodes::default(), Store::<Pod>::default());
        let mut version = 1;
        let mut follow = |change: Change<Pod>| {
            version += 1;
            match &change {
                Change::Deleted(pod) => drop(store.remove(&pod.meta.key, &pod.meta.uid, version, None)),
                Change::Added(pod) | Change::Updated { new: pod, .. } => {
                    let mut pod = (**pod).clone();
                    pod.meta.resource_version = version;
                    drop(store.put(pod));
                }
            }
            index.update(&change);
        };
        let on = |node: &str| {
            let pods = index.on(&node.into(), &store);
            pods.iter().map(|pod| pod.meta.uid.to_string()).collect::<Vec<_>>()
        };
        follow(Change::Added(pod("a", "u-a", "")));
        follow(Change::Added(pod("b", "u-b", "n1")));
        assert_eq!((on("n1"), on("n2")), (vec!["u-b".to_owned()], vec![]));
        follow(Change::Updated { old: pod("a", "u-a", ""), new: pod("a", "u-a", "n1") });
        assert_eq!(on("n1"), ["u-a", "u-b"]);
        // Another pod of the name, on another node.
        follow(Change::Updated { old: pod("a", "u-a", "n1"), new: pod("a", "u-c", "n2") });
        assert_eq!((on("n1"), on("n2")), (vec!["u-b".to_owned()], vec!["u-c".to_owned()]));
        follow(Change::Deleted(pod("b", "u-b", "n1")));
        follow(Change::Deleted(pod("a", "u-c", "n2")));
        assert!(index.0.read().is_empty() && on("n1").is_empty());
    }
}
