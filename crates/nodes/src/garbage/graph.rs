//! The graph of owners and dependents, by UID. Pure: changes in; objects to process, and the action for one, out.
//!
//! An object is processed after a change that affects it: it appeared with an unknown owner, its owner was deleted or
//! began a foreground deletion, its own deletion with foreground or orphan propagation began, or the last dependent
//! that blocked it was deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};

/// Set by `--cascade=foreground`: the object is kept until its blocking dependents are deleted.
pub const FOREGROUND: &str = "foregroundDeletion";
/// Set by `--cascade=orphan`: the object is kept until no dependent has an owner reference to it.
pub const ORPHAN: &str = "orphan";

/// One object, as far as ownership needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// Index of its kind in the collector's list.
    pub kind: usize,
    /// Group and kind, such as `("apps", "ReplicaSet")`, which owner references are compared with.
    pub type_name: Arc<(String, String)>,
    /// Its name, and its owners.
    pub metadata: Metadata,
}

/// The metadata that ownership needs; all of them are twice as large.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metadata {
    /// The name.
    pub name: Option<String>,
    /// None for cluster-scoped objects.
    pub namespace: Option<String>,
    /// The UID.
    pub uid: Option<String>,
    /// The resourceVersion, for preconditions.
    pub resource_version: Option<String>,
    /// Since when it is being deleted.
    pub deletion_timestamp: Option<Time>,
    /// The finalizers that hold its deletion up.
    pub finalizers: Option<Vec<String>>,
    /// Its owners.
    pub owner_references: Option<Vec<OwnerReference>>,
}

impl From<ObjectMeta> for Metadata {
    fn from(metadata: ObjectMeta) -> Self {
        Metadata {
            name: metadata.name,
            namespace: metadata.namespace,
            uid: metadata.uid,
            resource_version: metadata.resource_version,
            deletion_timestamp: metadata.deletion_timestamp,
            finalizers: metadata.finalizers,
            owner_references: metadata.owner_references,
        }
    }
}

impl Item {
    /// The UID.
    pub fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }

    /// The owner references.
    pub fn owners(&self) -> &[OwnerReference] {
        self.metadata.owner_references.as_deref().unwrap_or_default()
    }

    /// Whether it has that finalizer.
    pub fn has_finalizer(&self, finalizer: &str) -> bool {
        self.metadata.finalizers.iter().flatten().any(|have| have == finalizer)
    }

    fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// Whether it waits for its dependents to be deleted.
    pub fn is_deleting_dependents(&self) -> bool {
        self.is_deleting() && self.has_finalizer(FOREGROUND)
    }

    fn is_orphaning(&self) -> bool {
        self.is_deleting() && self.has_finalizer(ORPHAN)
    }

    fn blocks(&self, owner: &str) -> bool {
        self.owners()
            .iter()
            .any(|reference| reference.uid == owner && reference.block_owner_deletion == Some(true))
    }

    /// Whether it blocks the deletion of `owner`. A reference that is wrong about its owner blocks nobody: the object may
    /// stay for ever.
    fn holds(&self, owner: &Item) -> bool {
        self.blocks(owner.uid()) && self.means(owner)
    }

    /// Whether a reference of it means `owner`.
    fn means(&self, owner: &Item) -> bool {
        let namespace = self.metadata.namespace.as_deref();
        self.owners()
            .iter()
            .any(|reference| reference.uid == owner.uid() && owner.is_meant_by(reference, namespace))
    }

    /// Whether `reference`, found on a dependent in `namespace`, means this object: group, kind, name and
    /// namespace must agree, not only the UID. A namespaced owner is looked for in the dependent's own
    /// namespace; one in another is as good as absent.
    fn is_meant_by(&self, reference: &OwnerReference, namespace: Option<&str>) -> bool {
        let group = reference.api_version.rsplit_once('/').map_or("", |(group, _)| group);
        (self.type_name.0.as_str(), self.type_name.1.as_str()) == (group, reference.kind.as_str())
            && self.metadata.name.as_deref() == Some(reference.name.as_str())
            && (self.metadata.namespace.is_none() || self.metadata.namespace.as_deref() == namespace)
    }
}

/// The state of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// It exists.
    Solid,
    /// It exists, but waits for its dependents to be deleted.
    WaitsForDependents,
    /// It does not exist on the server.
    Absent,
    /// It is not in the cache, which proves nothing: a live read is needed.
    Unknown,
}

/// The next action for an object.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Nothing.
    Keep,
    /// Its dependents are deleted or released: remove the finalizer.
    RemoveFinalizer(&'static str),
    /// Process these dependents first; the object itself waits.
    Await(Vec<String>),
    /// It waits for itself, through these owners: stop blocking them.
    Unblock(Vec<String>),
    /// Release these dependents, then remove the orphan finalizer.
    Orphan(Vec<String>),
    /// Determine the state of its owners, then call [`resolve`].
    CheckOwners,
}

/// The decision about an object whose owners are all known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// An owner exists.
    Keep,
    /// An owner exists, but the owners with these UIDs do not.
    DropOwners(Vec<String>),
    /// No owner exists. The propagation is `Background`, `Foreground` or `Orphan`.
    Delete(&'static str),
}

/// The objects and their relations.
#[derive(Debug, Default)]
pub struct Graph {
    /// Boxed: the nodes of such a map have room for eleven.
    items: BTreeMap<String, Box<Item>>,
    /// Owner's UID to the dependents' UIDs; the owner need not exist.
    dependents: BTreeMap<String, BTreeSet<String>>,
}

impl Graph {
    /// The object with that UID.
    pub fn get(&self, uid: &str) -> Option<&Item> {
        self.items.get(uid).map(|item| &**item)
    }

    /// The dependents of an owner, existing or not.
    pub fn dependents(&self, owner: &str) -> impl Iterator<Item = &Item> {
        self.dependents.get(owner).into_iter().flatten().filter_map(|uid| self.get(uid))
    }

    /// Adds or updates an object. Returns the UIDs to process.
    pub fn put(&mut self, item: Item) -> BTreeSet<String> {
        let uid = item.uid().to_owned();
        let before = self.items.insert(uid.clone(), Box::new(item.clone())).map(|before| *before);
        let old_owners: BTreeSet<&str> =
            before.iter().flat_map(Item::owners).map(|owner| owner.uid.as_str()).collect();
        let new_owners: BTreeSet<&str> = item.owners().iter().map(|owner| owner.uid.as_str()).collect();
        let mut look = BTreeSet::new();
        for &left in old_owners.difference(&new_owners) {
            self.unlink(left, &uid);
        }
        for &joined in new_owners.difference(&old_owners) {
            self.dependents.entry(joined.to_owned()).or_default().insert(uid.clone());
        }
        if old_owners != new_owners || before.is_none() {
            let doubtful = item.owners().iter().any(|owner| self.known(owner, &item) != Owner::Solid);
            if doubtful {
                look.insert(uid.clone());
            }
        }
        // An owner in a foreground deletion may have lost a dependent, or one may not block it any more.
        for owner in old_owners.union(&new_owners) {
            let blocked = before.as_ref().is_some_and(|before| before.blocks(owner));
            let waits = self.get(owner).is_some_and(Item::is_deleting_dependents);
            let is_new = before.as_ref().is_none_or(|before| before.is_deleting() != item.is_deleting());
            if waits && (is_new || !new_owners.contains(owner) || blocked != item.blocks(owner)) {
                look.insert((*owner).to_owned());
            }
        }
        let was = |state: fn(&Item) -> bool| before.as_ref().is_some_and(state);
        if (item.is_deleting_dependents() && !was(Item::is_deleting_dependents))
            || (item.is_orphaning() && !was(Item::is_orphaning))
        {
            look.insert(uid);
        }
        look
    }

    /// Removes a deleted object. Returns the UIDs to process.
    pub fn remove(&mut self, uid: &str) -> BTreeSet<String> {
        let mut look: BTreeSet<String> = self.dependents(uid).map(|item| item.uid().to_owned()).collect();
        if let Some(item) = self.items.remove(uid) {
            for owner in item.owners() {
                self.unlink(&owner.uid, uid);
                if self.get(&owner.uid).is_some_and(Item::is_deleting_dependents) {
                    look.insert(owner.uid.clone());
                }
            }
        }
        look
    }

    fn unlink(&mut self, owner: &str, dependent: &str) {
        if let Some(dependents) = self.dependents.get_mut(owner) {
            dependents.remove(dependent);
            if dependents.is_empty() {
                self.dependents.remove(owner);
            }
        }
    }

    /// The state of an owner of `item` according to the cache.
    pub fn known(&self, owner: &OwnerReference, item: &Item) -> Owner {
        match self.items.get(&owner.uid) {
            Some(found) if !found.is_meant_by(owner, item.metadata.namespace.as_deref()) => Owner::Unknown,
            Some(found) if found.is_deleting_dependents() => Owner::WaitsForDependents,
            Some(_) => Owner::Solid,
            None => Owner::Unknown,
        }
    }

    /// The next action for one object.
    pub fn action(&self, uid: &str) -> Action {
        let Some(item) = self.items.get(uid) else { return Action::Keep };
        let uids = |items: Vec<&Item>| items.into_iter().map(|item| item.uid().to_owned()).collect();
        if item.is_orphaning() {
            // An object that is elsewhere has no owner here, whatever it refers to.
            let namespace = &item.metadata.namespace;
            let is_in_reach =
                |dependent: &&Item| namespace.is_none() || dependent.metadata.namespace == *namespace;
            return Action::Orphan(uids(self.dependents(uid).filter(is_in_reach).collect()));
        }
        if item.is_deleting_dependents() {
            let rest: Vec<&Item> =
                self.dependents(uid).filter(|dependent| !dependent.is_deleting()).collect();
            let holds = |dependent: &Item| dependent.holds(item);
            // Those that do not block are deleted, too: while the owner waits, since another finalizer may keep it after that.
            let is_to_be_deleted = |dependent: &&Item| dependent.means(item);
            if !self.dependents(uid).any(holds) && !rest.iter().any(is_to_be_deleted) {
                return Action::RemoveFinalizer(FOREGROUND);
            }
            let circle = self.circle(item);
            if !circle.is_empty() {
                return Action::Unblock(circle);
            }
            return Action::Await(uids(rest));
        }
        if item.is_deleting() || item.owners().is_empty() {
            return Action::Keep;
        }
        Action::CheckOwners
    }

    /// The owners that `item` blocks and that wait, in the end, for `item` itself: among objects in a foreground deletion
    /// each waits for the dependents that block it.
    fn circle(&self, item: &Item) -> Vec<String> {
        let awaited = |owner: &Item| -> Vec<&Item> {
            let waits = |dependent: &&Item| dependent.holds(owner) && dependent.is_deleting_dependents();
            self.dependents(owner.uid()).filter(waits).collect()
        };
        let mut all = BTreeSet::new();
        let mut ahead = awaited(item);
        while let Some(next) = ahead.pop() {
            if all.insert(next.uid()) {
                ahead.extend(awaited(next));
            }
        }
        let is_in_circle =
            |owner: &&OwnerReference| item.blocks(&owner.uid) && all.contains(owner.uid.as_str());
        item.owners().iter().filter(is_in_circle).map(|owner| owner.uid.clone()).collect()
    }

    /// Whether an object has dependents.
    pub fn has_dependents(&self, uid: &str) -> bool {
        self.dependents.contains_key(uid)
    }
}

/// Decides about an object from the states of its owners. `None` while one is unknown: that one keeps the object, but not
/// its references to others.
pub fn resolve(item: &Item, owners: &[Owner], has_dependents: bool) -> Option<Resolution> {
    let of = |wanted: Owner| owners.iter().filter(|owner| **owner == wanted).count();
    if owners.len() != item.owners().len() {
        return None;
    }
    if of(Owner::Solid) + of(Owner::Unknown) > 0 {
        let dropped: Vec<String> = item
            .owners()
            .iter()
            .zip(owners)
            .filter(|(_, state)| matches!(state, Owner::Absent | Owner::WaitsForDependents))
            .map(|(owner, _)| owner.uid.clone())
            .collect();
        return match dropped.is_empty() {
            true if of(Owner::Unknown) > 0 => None,
            true => Some(Resolution::Keep),
            false => Some(Resolution::DropOwners(dropped)),
        };
    }
    if owners.is_empty() {
        return Some(Resolution::Keep);
    }
    // An owner in a foreground deletion also waits for the dependents of its dependents.
    if of(Owner::WaitsForDependents) > 0 && has_dependents {
        return Some(Resolution::Delete("Foreground"));
    }
    Some(Resolution::Delete(match () {
        () if item.has_finalizer(ORPHAN) => "Orphan",
        () if item.has_finalizer(FOREGROUND) => "Foreground",
        () => "Background",
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn item(uid: &str, owners: &[&str], more: Value) -> Item {
        let references: Vec<Value> = owners
            .iter()
            .map(|owner| {
                json!({"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": owner,
                       "blockOwnerDeletion": true})
            })
            .collect();
        let mut metadata =
            json!({"name": uid, "namespace": "shop", "uid": uid, "ownerReferences": references});
        json_patch::merge(&mut metadata, &more);
        Item {
            kind: 0,
            type_name: Arc::new((String::new(), "ConfigMap".to_owned())),
            metadata: serde_json::from_value::<ObjectMeta>(metadata).unwrap().into(),
        }
    }

    fn deleting(finalizer: &str) -> Value {
        json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [finalizer]})
    }

    fn set(uids: &[&str]) -> BTreeSet<String> {
        uids.iter().map(|uid| (*uid).to_owned()).collect()
    }

    #[test]
    fn the_dependents_of_a_deleted_object_are_processed() {
        let mut graph = Graph::default();
        graph.put(item("owner", &[], json!({})));
        assert_eq!(graph.put(item("a", &["owner"], json!({}))), set(&[]));
        graph.put(item("b", &["owner"], json!({})));
        assert_eq!(graph.remove("owner"), set(&["a", "b"]));
        assert_eq!(graph.action("a"), Action::CheckOwners);
    }

    #[test]
    fn an_object_with_an_unknown_owner_is_processed_and_a_missing_cache_entry_proves_nothing() {
        let mut graph = Graph::default();
        assert_eq!(graph.put(item("a", &["owner"], json!({}))), set(&["a"]));
        let a = graph.get("a").unwrap();
        assert_eq!(graph.known(&a.owners()[0], a), Owner::Unknown);
        assert_eq!(resolve(a, &[Owner::Unknown], false), None);
        let two = item("b", &["owner", "gone"], json!({}));
        let kept = resolve(&two, &[Owner::Unknown, Owner::Absent], false);
        assert_eq!(kept, Some(Resolution::DropOwners(vec!["gone".to_owned()])));
    }

    #[test]
    fn an_owner_in_another_namespace_or_of_another_kind_does_not_match() {
        let mut graph = Graph::default();
        graph.put(item("owner", &[], json!({"namespace": "elsewhere"})));
        graph.put(item("a", &["owner"], json!({})));
        let a = graph.get("a").unwrap();
        assert_eq!(graph.known(&a.owners()[0], a), Owner::Unknown);
        graph.put(item("owner", &[], json!({})));
        let a = graph.get("a").unwrap();
        assert_eq!(graph.known(&a.owners()[0], a), Owner::Solid);
        let mut other = a.owners()[0].clone();
        other.kind = "Secret".to_owned();
        assert_eq!(graph.known(&other, a), Owner::Unknown);
    }

    #[test]
    fn the_decision_depends_on_all_owners_together() {
        let two = item("a", &["x", "y"], json!({}));
        let resolution = |owners: &[Owner]| resolve(&two, owners, false).unwrap();
        assert_eq!(resolution(&[Owner::Solid, Owner::Solid]), Resolution::Keep);
        assert_eq!(resolution(&[Owner::Solid, Owner::Absent]), Resolution::DropOwners(vec!["y".to_owned()]));
        assert_eq!(
            resolution(&[Owner::WaitsForDependents, Owner::Solid]),
            Resolution::DropOwners(vec!["x".to_owned()])
        );
        assert_eq!(resolution(&[Owner::Absent, Owner::Absent]), Resolution::Delete("Background"));
        assert_eq!(resolution(&[Owner::Absent, Owner::WaitsForDependents]), Resolution::Delete("Background"));
        assert_eq!(
            resolve(&two, &[Owner::Absent, Owner::WaitsForDependents], true).unwrap(),
            Resolution::Delete("Foreground")
        );
        let orphaning = item("a", &["x"], json!({"finalizers": ["orphan"]}));
        assert_eq!(resolve(&orphaning, &[Owner::Absent], false).unwrap(), Resolution::Delete("Orphan"));
    }

    #[test]
    fn a_foreground_deletion_waits_for_blocking_dependents_and_ends_when_the_last_is_gone() {
        let mut graph = Graph::default();
        graph.put(item("owner", &[], json!({})));
        graph.put(item("a", &["owner"], json!({})));
        assert_eq!(graph.put(item("owner", &[], deleting(FOREGROUND))), set(&["owner"]));
        assert_eq!(graph.action("owner"), Action::Await(vec!["a".to_owned()]));
        graph.put(item("a", &["owner"], deleting("example.com/slow")));
        assert_eq!(graph.action("owner"), Action::Await(Vec::new()), "it is on its way already");
        assert_eq!(graph.remove("a"), set(&["owner"]));
        assert_eq!(graph.action("owner"), Action::RemoveFinalizer(FOREGROUND));
    }

    #[test]
    fn a_dependent_that_stops_blocking_allows_the_deletion_of_its_owner() {
        let mut graph = Graph::default();
        graph.put(item("owner", &[], deleting(FOREGROUND)));
        let mut dependent = item("a", &["owner"], json!({}));
        graph.put(dependent.clone());
        dependent.metadata.owner_references.as_mut().unwrap()[0].block_owner_deletion = Some(false);
        assert_eq!(graph.put(dependent.clone()), set(&["owner"]));
        assert_eq!(graph.action("owner"), Action::Await(vec!["a".to_owned()]), "it is deleted all the same");
        dependent.metadata.deletion_timestamp =
            item("a", &[], deleting("example.com/slow")).metadata.deletion_timestamp;
        graph.put(dependent);
        assert_eq!(
            graph.action("owner"),
            Action::RemoveFinalizer(FOREGROUND),
            "it goes on without its owner"
        );
    }

    #[test]
    fn a_reference_that_is_wrong_about_its_owner_blocks_nobody() {
        let mut graph = Graph::default();
        graph.put(item("owner", &[], deleting(FOREGROUND)));
        graph.put(item("a", &["owner"], json!({"namespace": "elsewhere"})));
        assert_eq!(graph.action("owner"), Action::RemoveFinalizer(FOREGROUND));
    }

    #[test]
    fn an_orphaning_owner_releases_its_dependents() {
        let mut graph = Graph::default();
        graph.put(item("a", &["owner"], json!({})));
        assert_eq!(graph.put(item("owner", &[], deleting(ORPHAN))), set(&["owner"]));
        assert_eq!(graph.action("owner"), Action::Orphan(vec!["a".to_owned()]));
        graph.put(item("a", &[], json!({})));
        assert_eq!(graph.action("owner"), Action::Orphan(Vec::new()));
    }

    #[test]
    fn a_circle_of_foreground_deletions_is_opened_where_it_closes() {
        let mut graph = Graph::default();
        for (uid, owner) in [("a", "c"), ("b", "a"), ("c", "b")] {
            graph.put(item(uid, &[owner], json!({})));
        }
        for (uid, owner, next) in [("a", "c", "b"), ("b", "a", "c")] {
            graph.put(item(uid, &[owner], deleting(FOREGROUND)));
            assert_eq!(graph.action(uid), Action::Await(vec![next.to_owned()]), "no circle yet");
        }
        let mut last = item("c", &["b"], deleting(FOREGROUND));
        graph.put(last.clone());
        assert_eq!(graph.action("c"), Action::Unblock(vec!["b".to_owned()]));
        last.metadata.owner_references.as_mut().unwrap()[0].block_owner_deletion = Some(false);
        assert_eq!(graph.put(last), set(&["b"]));
        assert_eq!(graph.action("b"), Action::RemoveFinalizer(FOREGROUND));
    }

    #[test]
    fn what_owns_itself_does_not_wait_for_itself() {
        let mut graph = Graph::default();
        graph.put(item("a", &["a"], deleting(FOREGROUND)));
        assert_eq!(graph.action("a"), Action::Unblock(vec!["a".to_owned()]));
    }
}
