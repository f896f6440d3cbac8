//! How many objects of each resource are in each namespace, for whoever waits until there are none.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Graph, ResourceId};

/// A resource of which nothing is left in a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Emptied {
    /// The namespace.
    pub namespace: Arc<str>,
    /// The resource.
    pub resource: ResourceId,
}

/// The counts of the objects that have been seen and not deleted.
#[derive(Debug, Default)]
pub(super) struct Content {
    /// By namespace and resource.
    counts: HashMap<(u32, u16), u32>,
    /// The resources and namespaces whose last object has gone since these were taken.
    emptied: Vec<Emptied>,
}

impl Content {
    pub(super) fn bytes(&self) -> usize {
        self.counts.capacity() * 13
    }
}

impl Graph {
    /// How many objects of a resource are known in a namespace.
    pub fn count(&self, namespace: &str, resource: ResourceId) -> usize {
        let at = self.namespaces.find(namespace);
        at.and_then(|at| self.content.counts.get(&(at, resource.0))).map_or(0, |count| *count as usize)
    }

    /// How many objects of a resource are known, in all namespaces or in none.
    pub fn count_everywhere(&self, resource: ResourceId) -> usize {
        self.resources[usize::from(resource.0)].objects as usize
    }

    /// The resources and namespaces emptied since the last call, by the deletion of the last object or by a list
    /// without any.
    pub fn take_emptied(&mut self) -> Vec<Emptied> {
        std::mem::take(&mut self.content.emptied)
    }

    pub(super) fn count_in(&mut self, namespace: u32, resource: u16) {
        *self.content.counts.entry((namespace, resource)).or_default() += 1;
    }

    pub(super) fn count_out(&mut self, namespace: u32, resource: u16) {
        let Some(count) = self.content.counts.get_mut(&(namespace, resource)) else { return };
        *count -= 1;
        if *count > 0 {
            return;
        }
        self.content.counts.remove(&(namespace, resource));
        let name = self.namespaces.shared(namespace);
        if let Some(namespace) = name.filter(|name| !name.is_empty()) {
            self.content.emptied.push(Emptied { namespace, resource: ResourceId(resource) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Uid;
    use crate::model::metadata::Metadata;
    use crate::plan::garbage::graph::GraphResource;

    fn put(graph: &mut Graph, resource: ResourceId, namespace: &str, uid: &str) {
        let json = format!(
            r#"{{"metadata":{{"name":"{uid}","namespace":"{namespace}","uid":"{uid}","resourceVersion":"1",
                "ownerReferences":[{{"apiVersion":"v1","kind":"Owner","name":"o","uid":"o"}}]}}}}"#
        );
        graph.put(resource, &Metadata::decode(&json).unwrap());
    }

    fn emptied(graph: &mut Graph) -> Vec<(String, ResourceId)> {
        graph.take_emptied().into_iter().map(|it| (it.namespace.to_string(), it.resource)).collect()
    }

    #[test]
    fn the_last_object_of_a_resource_in_a_namespace_is_told_and_owners_that_nobody_saw_do_not_count() {
        let mut graph = Graph::default();
        let mut resource = |plural: &str| {
            let (group, kind) = (String::new(), plural.to_uppercase());
            graph
                .add_resource(&GraphResource { group, kind, plural: plural.into(), namespaced: true })
                .unwrap()
                .0
        };
        let (pods, secrets) = (resource("pods"), resource("secrets"));
        for (resource, namespace, uid) in [
            (pods, "shop", "a"),
            (pods, "shop", "b"),
            (pods, "other", "c"),
            (secrets, "shop", "d"),
            (secrets, "", "e"),
        ] {
            put(&mut graph, resource, namespace, uid);
            put(&mut graph, resource, namespace, uid);
        }
        let counts = |graph: &Graph| {
            [("shop", pods), ("other", pods), ("shop", secrets), ("none", pods)]
                .map(|(namespace, resource)| graph.count(namespace, resource))
        };
        assert_eq!(counts(&graph), [2, 1, 1, 0]);
        assert_eq!((graph.count_everywhere(pods), graph.count_everywhere(secrets)), (3, 2));
        graph.remove(&Uid::new("a"));
        graph.remove(&Uid::new("a"));
        graph.remove(&Uid::new("o"));
        assert_eq!((counts(&graph), emptied(&mut graph)), ([1, 1, 1, 0], vec![]));
        graph.remove(&Uid::new("b"));
        graph.remove(&Uid::new("e"));
        assert_eq!(emptied(&mut graph), [("shop".to_owned(), pods)]);
        // A list without it is as good as its deletion.
        graph.begin_list(secrets);
        graph.end_list(secrets);
        assert_eq!(emptied(&mut graph), [("shop".to_owned(), secrets)]);
        assert_eq!(counts(&graph), [0, 1, 0, 0]);
    }
}
