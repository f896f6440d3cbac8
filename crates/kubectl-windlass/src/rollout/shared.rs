//! Lists that several workloads share: each gets what tells its rollout. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;
use windlass::model::{Job, Node, PersistentVolumeClaim, Pod, Record as _, Resource, Selector, StringMap};

use super::{Workload, live};
use crate::target::Kind;

/// The lists of one or several namespaces.
#[derive(Debug, Default)]
pub struct SharedLists {
    /// Objects by resource and the UID of their controller.
    by_controller: BTreeMap<(&'static str, String), Vec<Value>>,
    /// Objects that names or labels may connect with a workload, by resource and namespace.
    by_namespace: BTreeMap<(&'static str, String), Vec<Value>>,
    /// Nodes, which are in no namespace: all DaemonSets share them.
    nodes: Arc<Vec<Value>>,
    /// Lists that could not be read, by resource and namespace, with the server's answer; without a namespace, in all.
    missing: BTreeMap<(&'static str, Option<String>), String>,
}

/// A text of `metadata`.
pub fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

/// The UID of the controller of an object.
pub fn controller(object: &Value) -> Option<&str> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    owners.iter().find(|owner| owner["controller"] == true)?["uid"].as_str()
}

/// An object without what no assessment reads.
pub fn trimmed(mut object: Value) -> Value {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        // Of nodes: as many as 50 names.
        status.remove("images");
    }
    object
}

impl SharedLists {
    /// Takes the objects of a list in.
    pub fn add(&mut self, resource: Resource, items: Vec<Value>) {
        let of = resource.plural;
        for item in items {
            let by_name = resource == PersistentVolumeClaim::RESOURCE || resource == Job::RESOURCE;
            match controller(&item).filter(|_| !by_name) {
                _ if resource == Node::RESOURCE => Arc::make_mut(&mut self.nodes).push(item),
                Some(controller) => {
                    self.by_controller.entry((of, controller.to_owned())).or_default().push(item);
                }
                None => {
                    let namespace = text(&item, "namespace").to_owned();
                    self.by_namespace.entry((of, namespace)).or_default().push(item);
                }
            }
        }
    }

    /// Takes note of a list that the user may not read.
    pub fn lacks(&mut self, resource: Resource, namespace: Option<&str>, why: String) {
        self.missing.insert((resource.plural, namespace.map(str::to_owned)), why);
    }

    /// The UIDs of the objects of a resource that one of these controls.
    pub fn controlled(&self, resource: Resource, controllers: &BTreeSet<String>) -> Vec<String> {
        let of_these = self
            .by_controller
            .iter()
            .filter(|((of, uid), _)| *of == resource.plural && controllers.contains(uid));
        of_these.flat_map(|(_, objects)| objects).map(|object| text(object, "uid").to_owned()).collect()
    }

    /// The lists that could not be read.
    pub fn missing(&self) -> impl Iterator<Item = &String> {
        self.missing.values()
    }

    /// A workload with what tells its rollout. Each is asked for once: its objects move into it.
    ///
    /// # Errors
    /// When the object is not what its kind says.
    pub fn workload(&mut self, kind: Kind, object: Value) -> Result<Workload, serde_json::Error> {
        let selector = live::selector(kind, &object)?;
        let mut workload = Workload { kind, object, ..Workload::default() };
        let Some(selector) = selector else { return Ok(workload) };
        for (resource, _) in live::parts(kind, "") {
            let namespace = text(&workload.object, "namespace").to_owned();
            let why =
                [None, Some(namespace)].into_iter().find_map(|it| self.missing.get(&(resource.plural, it)));
            match why {
                Some(why) => workload.lacks(resource, why.clone()),
                None if resource == Node::RESOURCE => workload.nodes = self.nodes.clone(),
                None => {
                    let items = self.of(resource, &workload, selector.as_ref());
                    *workload.list_mut(resource) = items;
                }
            }
        }
        Ok(workload)
    }

    /// The objects of a resource that tell the rollout of a workload.
    fn of(&mut self, resource: Resource, workload: &Workload, selector: Option<&Selector>) -> Vec<Value> {
        let object = &workload.object;
        let (name, uid) = (text(object, "name"), text(object, "uid"));
        let plural = resource.plural;
        let mut own = self.by_controller.remove(&(plural, uid.to_owned())).unwrap_or_default();
        if workload.kind == Kind::Deployment && resource == Pod::RESOURCE {
            for replica_set in &workload.replica_sets {
                let key = (plural, text(replica_set, "uid").to_owned());
                own.extend(self.by_controller.remove(&key).unwrap_or_default());
            }
        }
        let others = self.by_namespace.get(&(plural, text(object, "namespace").to_owned()));
        let is_meant = |other: &&Value| {
            let is_selected =
                || controller(other).is_none() && selector.is_some_and(|it| it.matches(&labels(other)));
            match (workload.kind, resource) {
                (Kind::StatefulSet, PersistentVolumeClaim::RESOURCE) => {
                    text(other, "name").contains(&format!("-{name}-"))
                }
                (Kind::StatefulSet, Pod::RESOURCE) => {
                    text(other, "name").starts_with(&format!("{name}-")) || is_selected()
                }
                (Kind::CronJob, _) => {
                    controller(other) == Some(uid) || text(other, "name").starts_with(&format!("{name}-"))
                }
                _ => is_selected(),
            }
        };
        own.extend(others.into_iter().flatten().filter(is_meant).cloned());
        if (workload.kind, resource) == (Kind::StatefulSet, Pod::RESOURCE) {
            // The pod of another owner may have a name that the StatefulSet needs.
            let (namespace, prefix) = (text(object, "namespace"), format!("{name}-"));
            let all =
                self.by_controller.iter().filter(|((of, _), _)| *of == plural).flat_map(|(_, pods)| pods);
            let has_name =
                |pod: &&Value| text(pod, "namespace") == namespace && text(pod, "name").starts_with(&prefix);
            own.extend(all.filter(has_name).cloned());
        }
        own
    }
}

/// The labels of an object.
pub fn labels(object: &Value) -> StringMap {
    let labels = object["metadata"]["labels"].as_object().into_iter().flatten();
    labels.filter_map(|(key, value)| Some((key, value.as_str()?))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use windlass::model::ReplicaSet;

    use super::*;

    fn object(name: &str, owner: Option<&str>, labels: Value) -> Value {
        let owners: Vec<Value> =
            owner.map(|uid| json!({"uid": uid, "controller": true, "kind": "Any"})).into_iter().collect();
        json!({"metadata": {"namespace": "shop", "name": name, "uid": format!("u-{name}"), "labels": labels,
               "resourceVersion": "1", "ownerReferences": owners}})
    }

    fn workload(name: &str) -> Value {
        let mut workload = object(name, None, json!({}));
        workload["spec"] = json!({"selector": {"matchLabels": {"app": name}}, "serviceName": name});
        workload
    }

    fn names(objects: &[Value]) -> Vec<&str> {
        objects.iter().map(|object| text(object, "name")).collect()
    }

    #[test]
    fn a_deployment_gets_its_replica_sets_their_pods_and_the_orphans_that_it_selects() {
        let mut lists = SharedLists::default();
        let web = json!({"app": "web"});
        lists.add(
            ReplicaSet::RESOURCE,
            vec![
                object("web-1", Some("u-web"), web.clone()),
                object("api-1", Some("u-api"), json!({"app": "api"})),
                object("loose", None, web.clone()),
                object("other", None, json!({"app": "other"})),
            ],
        );
        lists.add(
            Pod::RESOURCE,
            vec![
                object("web-1-a", Some("u-web-1"), web.clone()),
                object("api-1-a", Some("u-api-1"), json!({})),
                object("stray", None, web),
            ],
        );
        let got = lists.workload(Kind::Deployment, workload("web")).unwrap();
        assert_eq!(names(&got.replica_sets), ["web-1", "loose"]);
        assert_eq!(names(&got.pods), ["web-1-a", "stray"]);
        assert!(!got.is_partial);
    }

    #[test]
    fn a_stateful_set_gets_what_has_its_names_whoever_owns_it() {
        let mut lists = SharedLists::default();
        let none = json!({});
        lists.add(
            Pod::RESOURCE,
            vec![
                object("db-0", Some("u-db"), none.clone()),
                object("db-1", None, none.clone()),
                object("dbx-1", None, none.clone()),
                object("db-2", Some("u-other"), none.clone()),
            ],
        );
        lists.add(
            PersistentVolumeClaim::RESOURCE,
            vec![object("data-db-0", Some("u-db-0"), none.clone()), object("data-api-0", None, none)],
        );
        let got = lists.workload(Kind::StatefulSet, workload("db")).unwrap();
        assert_eq!(names(&got.pods), ["db-0", "db-1", "db-2"]);
        assert_eq!(names(&got.claims), ["data-db-0"]);
    }

    #[test]
    fn nodes_are_kept_once_for_all_daemon_sets() {
        let mut lists = SharedLists::default();
        lists.add(Node::RESOURCE, vec![object("n1", None, json!({}))]);
        let [one, other] =
            ["agent", "probe"].map(|name| lists.workload(Kind::DaemonSet, workload(name)).unwrap());
        assert_eq!((names(&one.nodes), Arc::ptr_eq(&one.nodes, &other.nodes)), (vec!["n1"], true));
    }

    #[test]
    fn a_list_that_is_missing_in_one_namespace_is_missing_for_its_workloads_alone() {
        let mut lists = SharedLists::default();
        lists.lacks(Pod::RESOURCE, Some("else"), "no pods in else".to_owned());
        assert!(!lists.workload(Kind::Deployment, workload("web")).unwrap().is_partial);
        lists.lacks(Pod::RESOURCE, Some("shop"), "no pods in shop".to_owned());
        let got = lists.workload(Kind::Deployment, workload("web")).unwrap();
        assert!(got.is_partial && !got.lacks_nodes_only, "{got:?}");
        assert_eq!(got.unreadable, ["no pods in shop"]);
        let mut lists = SharedLists::default();
        lists.lacks(Node::RESOURCE, None, "no nodes".to_owned());
        assert!(lists.workload(Kind::DaemonSet, workload("agent")).unwrap().lacks_nodes_only);
    }
}
