//! Which DaemonSets have pods for each node: when a node is added or deleted, only those are synced.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::model::{DaemonSet, Pod, Record, Uid};
use crate::runtime::store::Change;

/// The controllers of the DaemonSet pods for each node, one entry for each pod.
#[derive(Debug, Default)]
pub struct NodePods(Mutex<BTreeMap<Arc<str>, Vec<Uid>>>);

/// The node that a DaemonSet pod is for, and the DaemonSet that controls it.
fn place(pod: &Pod) -> Option<(&Arc<str>, &Uid)> {
    let controller = pod.meta.controller.as_ref().filter(|owner| owner.is_of(&DaemonSet::RESOURCE))?;
    Some((pod.target()?, &controller.uid))
}

impl NodePods {
    /// The cache of pods has changed.
    pub fn changed(&self, change: &Change<Pod>) {
        let (before, after) = match change {
            Change::Added(pod) => (None, place(pod)),
            Change::Updated { old, new } => (place(old), place(new)),
            Change::Deleted(last) => (place(last), None),
        };
        if before == after {
            return;
        }
        let mut all = self.0.lock();
        if let Some((node, owner)) = before
            && let Some(owners) = all.get_mut(node)
        {
            if let Some(at) = owners.iter().position(|other| other == owner) {
                owners.swap_remove(at);
            }
            if owners.is_empty() {
                all.remove(node);
            }
        }
        if let Some((node, owner)) = after {
            all.entry(node.clone()).or_default().push(owner.clone());
        }
    }

    /// Whether a DaemonSet has a pod for this node.
    pub fn has(&self, node: &str, owner: &Uid) -> bool {
        self.0.lock().get(node).is_some_and(|owners| owners.contains(owner))
    }

    /// For how many nodes there are DaemonSet pods.
    pub fn len(&self) -> usize {
        self.0.lock().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Interner;

    fn pod(name: &str, node: &str, kind: &str, owner: &str) -> Arc<Pod> {
        let json = format!(
            r#"{{"metadata":{{"name":"{name}","namespace":"ops","uid":"u-{name}","resourceVersion":"1","ownerReferences":
                [{{"apiVersion":"apps/v1","kind":"{kind}","name":"agent","uid":"{owner}","controller":true}}]}},
                "spec":{{"nodeName":"{node}"}}}}"#
        );
        Arc::new(Pod::decode(&json, &mut Interner::default()).unwrap())
    }

    #[test]
    fn a_daemon_set_has_a_node_as_long_as_it_has_a_pod_there() {
        let pods = NodePods::default();
        let has = |node: &str, owner: &str| pods.has(node, &Uid::new(owner));
        let [a, b, c] = ["a", "b", "c"].map(|name| pod(name, "n1", "DaemonSet", "u-1"));
        pods.changed(&Change::Added(a.clone()));
        pods.changed(&Change::Added(b.clone()));
        pods.changed(&Change::Added(pod("d", "n1", "ReplicaSet", "u-2")));
        assert!(has("n1", "u-1") && !has("n2", "u-1") && !has("n1", "u-2"));
        pods.changed(&Change::Deleted(a));
        assert!(has("n1", "u-1"));
        pods.changed(&Change::Updated { old: b, new: c.clone() });
        assert!(has("n1", "u-1"));
        let taken_over = pod("c", "n1", "DaemonSet", "u-3");
        pods.changed(&Change::Updated { old: c, new: taken_over.clone() });
        assert!(has("n1", "u-3") && !has("n1", "u-1"));
        pods.changed(&Change::Deleted(taken_over));
        assert!(pods.is_empty());
    }
}
