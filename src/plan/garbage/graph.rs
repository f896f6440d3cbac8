//! The graph of owners and dependents: all objects of an API server in a few bytes each.
//!
//! The one guarantee: what the graph says to be absent has been seen to be deleted, or was asked for. That an object is
//! missing from the graph, or from a list, proves nothing.
//!
//! An object that neither owns nor is owned takes 32 bytes and its place in the table: it is needed only as somebody's
//! owner. A relation of 40 bytes is added to the others, and the name of an object that may have to be deleted. Siblings
//! are linked through their relations, so that no owner has a list. Further references, and those that disagree with their
//! owner about its kind or name, are in tables beside: they are rare. An owner that only references know has a record, too.

mod absence;
mod content;
mod links;
mod queries;
mod record;

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use hashbrown::HashTable;

use super::arena::Arena;
use super::name_arena::NameArena;
use crate::model::Uid;
use crate::model::metadata::{FOREGROUND, Metadata, ORPHAN};
use content::Content;
pub use content::Emptied;
pub use queries::{Address, Known, NextStep};
use record::{Flag, NO_NUMBER, NONE, Namespaces, Record, Relation, UNSERVED, UidKey};

/// A resource whose objects are in the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceId(u16);

impl From<ResourceId> for u64 {
    fn from(id: ResourceId) -> Self {
        id.0.into()
    }
}

/// The properties of a resource that the graph needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphResource {
    /// The API group; empty for the core group.
    pub group: String,
    /// The kind of its objects.
    pub kind: String,
    /// The name in URLs.
    pub plural: String,
    /// Whether its objects are in namespaces.
    pub namespaced: bool,
}

#[derive(Debug)]
struct ResourceEntry {
    resource: GraphResource,
    is_served: bool,
    /// Whether its first list is under way: an owner of this kind that has not been seen may be in the rest of it.
    is_filling: bool,
    objects: u32,
}

/// A step that an event makes necessary.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wake {
    /// Look at this object.
    Check(Uid),
    /// The same, later: its owner was not seen yet, which may only be a watch that is slower than another.
    CheckLater(Uid),
    /// Release the dependents of this object, which is being deleted without them.
    Orphan(Uid),
}

/// The objects, and the references between them.
#[derive(Debug, Default)]
pub struct Graph {
    hasher: RandomState,
    slots: HashTable<u32>,
    records: Arena<Record>,
    relations: Arena<Relation>,
    names: NameArena,
    namespaces: Namespaces,
    content: Content,
    resources: Vec<ResourceEntry>,
    /// The references of an object after the first.
    further: HashMap<u32, Vec<links::Further>>,
    /// The dependents of an owner by references after their first.
    further_dependents: HashMap<u32, BTreeSet<u32>>,
    /// The claim of a reference about its owner, by dependent and owner, where it differs from the owner's record.
    claims: HashMap<(u32, u32), u64>,
    /// UIDs that are no UUIDs, by the hash that stands for them.
    other_uids: HashMap<UidKey, Arc<str>>,
    /// Owners that only references know, and of which nothing is proved.
    unseen: BTreeSet<u32>,
    /// Owners that are proved absent.
    absent: BTreeSet<u32>,
    observed: usize,
}

impl Graph {
    /// A resource is watched from now on; again, if it was before. Its first list begins.
    ///
    /// `None` if 65,534 resources have been watched already, each under another name. Wakes what refers to a kind that
    /// was not served until now.
    pub fn add_resource(&mut self, resource: &GraphResource) -> Option<(ResourceId, Vec<Wake>)> {
        let is_known = |entry: &ResourceEntry| {
            entry.resource.group == resource.group && entry.resource.plural == resource.plural
        };
        let entry =
            ResourceEntry { resource: resource.clone(), is_served: true, is_filling: true, objects: 0 };
        let at = match self.resources.iter().position(is_known) {
            Some(at) => {
                let objects = self.resources[at].objects;
                self.resources[at] = ResourceEntry { objects, ..entry };
                at
            }
            None if self.resources.len() >= usize::from(UNSERVED) => return None,
            None => {
                self.resources.push(entry);
                self.resources.len() - 1
            }
        };
        let wakes = self.more_is_served();
        u16::try_from(at).ok().map(|at| (ResourceId(at), wakes))
    }

    /// A resource is not watched any more. That proves nothing about its objects: they leave the graph as dependents, and
    /// as owners nothing is known of them. Wakes the owners that waited for them.
    pub fn remove_resource(&mut self, resource: ResourceId) -> Vec<Wake> {
        self.resources[usize::from(resource.0)].is_served = false;
        self.resources[usize::from(resource.0)].is_filling = false;
        self.unmark(resource);
        let mut wakes = Vec::new();
        self.drop_unlisted(resource, &mut wakes);
        // Their dependents are not checked: their kind has gone with them, so that no request could tell.
        wakes.retain(|wake| match wake {
            Wake::Check(uid) => self.find(uid).is_some_and(|slot| self.records[slot].waits_for_dependents()),
            Wake::CheckLater(_) | Wake::Orphan(_) => true,
        });
        wakes
    }

    /// A list begins. Objects that it does not show are not known any more when it ends.
    pub fn begin_list(&mut self, resource: ResourceId) {
        if self.resources[usize::from(resource.0)].objects > 0 {
            self.unmark(resource);
        }
    }

    /// A list has ended. Wakes what refers to owners of this resource that neither it nor an earlier one has shown: they
    /// may have been deleted while there was no watch, after an answer had said that they exist.
    pub fn end_list(&mut self, resource: ResourceId) -> Vec<Wake> {
        let mut wakes = Vec::new();
        self.drop_unlisted(resource, &mut wakes);
        self.resources[usize::from(resource.0)].is_filling = false;
        self.wake_dependents_of_unseen(resource.0, &mut wakes);
        wakes.sort();
        wakes.dedup();
        wakes
    }

    /// Nobody waits for the first list of this resource any more, because it is complete, or because it takes too long:
    /// what refers to owners that it has not shown is looked at.
    pub fn stop_waiting_for(&mut self, resource: ResourceId) -> Vec<Wake> {
        let mut wakes = Vec::new();
        let entry = &mut self.resources[usize::from(resource.0)];
        if std::mem::take(&mut entry.is_filling) {
            self.wake_dependents_of_unseen(resource.0, &mut wakes);
        }
        wakes
    }

    /// The API server is about to be asked for an owner that was not seen, as an object of this resource. If it exists,
    /// what refers to it is settled until a list of the resource ends without it.
    pub fn expect(&mut self, owner: &Uid, resource: ResourceId) {
        let Some(slot) = self.find(owner) else { return };
        let record = &mut self.records[slot];
        if record.is(Flag::Observed) || record.is(Flag::Deleted) {
            return;
        }
        // References that disagree claim different kinds. The one that was proved wrong does not count.
        if self.unseen.insert(slot) || record.resource == UNSERVED {
            record.resource = resource.0;
        }
    }

    fn wake_dependents_of_unseen(&mut self, resource: u16, wakes: &mut Vec<Wake>) {
        let unseen = self.unseen.iter().copied();
        let waiting: Vec<u32> = unseen.filter(|slot| self.records[*slot].resource == resource).collect();
        waiting.into_iter().for_each(|slot| self.wake_dependents(slot, wakes));
    }

    /// An object was listed, added or modified.
    pub fn put(&mut self, resource: ResourceId, object: &Metadata<'_>) -> Vec<Wake> {
        let mut wakes = Vec::new();
        let slot = self.slot_of(&object.uid);
        let before = self.records[slot];
        if !before.is(Flag::Observed) {
            self.observe(slot, resource, object, &mut wakes);
        }
        self.records[slot].set(Flag::Listed, true);
        self.records[slot].set(Flag::Deleting, object.is_deleting);
        self.records[slot].set(Flag::Foreground, object.has_finalizer(FOREGROUND));
        self.records[slot].set(Flag::Orphan, object.has_finalizer(ORPHAN));
        let has_references = self.has_references(slot, object);
        if !has_references {
            self.relink(slot, object, &mut wakes);
        }
        self.look_again(slot, &before, has_references, &mut wakes);
        let after = self.records[slot];
        if after.waits_for_dependents() || after.is_orphaning() {
            self.keep_name(slot, object, true);
        }
        if let Some(relation) = self.relation_mut(slot) {
            relation.version = object.version().unwrap_or(NO_NUMBER);
        }
        if after.waits_for_dependents() && !before.waits_for_dependents() {
            self.wake_dependents(slot, &mut wakes);
            wakes.push(Wake::Check(object.uid.clone()));
        }
        if after.is_orphaning() && !before.is_orphaning() {
            wakes.push(Wake::Orphan(object.uid.clone()));
        }
        wakes
    }

    /// An object was deleted: the proof that nobody with its UID exists.
    pub fn remove(&mut self, uid: &Uid) -> Vec<Wake> {
        let mut wakes = Vec::new();
        let Some(slot) = self.find(uid) else { return wakes };
        self.withdraw(slot, &mut wakes);
        if self.has_dependents(slot) {
            self.records[slot].set(Flag::Deleted, true);
            self.records[slot].set(Flag::Doubted, false);
            self.unseen.remove(&slot);
            self.absent.insert(slot);
            self.wake_dependents(slot, &mut wakes);
        }
        self.free_if_unused(slot);
        wakes
    }

    /// How many objects have been seen and not deleted.
    pub fn len(&self) -> usize {
        self.observed
    }

    /// Whether no object has been seen.
    pub fn is_empty(&self) -> bool {
        self.observed == 0
    }

    /// How many owners only references know, without a proof that they do not exist.
    pub fn unseen(&self) -> usize {
        self.unseen.len()
    }

    /// About how many bytes the graph takes.
    pub fn bytes(&self) -> usize {
        let further: usize =
            self.further.values().map(|list| list.capacity() * size_of::<links::Further>()).sum();
        let dependents: usize = self.further_dependents.values().map(|set| set.len() * 8).sum();
        self.slots.capacity() * 5
            + self.records.bytes()
            + self.relations.bytes()
            + self.names.bytes()
            + self.namespaces.bytes()
            + self.content.bytes()
            + self.further.capacity() * 32
            + further
            + self.further_dependents.capacity() * 32
            + dependents
            + self.claims.capacity() * 17
            + self.other_uids.values().map(|uid| uid.len() + 48).sum::<usize>()
    }

    /// An object is seen for the first time, or again after a list without it.
    fn observe(&mut self, slot: u32, resource: ResourceId, object: &Metadata<'_>, wakes: &mut Vec<Wake>) {
        let entry = &mut self.resources[usize::from(resource.0)];
        entry.objects += 1;
        self.observed += 1;
        let (group, kind) = (entry.resource.group.clone(), entry.resource.kind.clone());
        let claim = self.claim(&group, &kind, object.name.as_str());
        let before = self.records[slot].claim;
        self.unseen.remove(&slot);
        self.absent.remove(&slot);
        let namespace = self.namespaces.take(object.namespace.as_str());
        self.set_namespace(slot, namespace);
        self.count_in(namespace, resource.0);
        let record = &mut self.records[slot];
        record.resource = resource.0;
        record.claim = claim;
        record.set(Flag::Observed, true);
        record.set(Flag::Deleted, false);
        record.set(Flag::Doubted, false);
        record.set(Flag::Absent, false);
        let dependents: Vec<u32> = self.dependents_of(slot).collect();
        for dependent in dependents {
            let own = self.claims.remove(&(dependent, slot)).unwrap_or(before);
            if own != claim {
                self.claims.insert((dependent, slot), own);
            }
            if !self.agrees(dependent, slot) {
                wakes.push(Wake::Check(self.uid_of(dependent)));
            }
        }
    }

    /// An object is not seen any more: its references end. Who waits for it is woken.
    fn withdraw(&mut self, slot: u32, wakes: &mut Vec<Wake>) {
        let owners: Vec<u32> = self.references_of(slot).map(|reference| reference.owner).collect();
        owners.into_iter().for_each(|owner| self.unlink(slot, owner, wakes));
        let namespace = self.namespace_of(slot);
        let record = &mut self.records[slot];
        if record.is(Flag::Observed) {
            let resource = record.resource;
            record.set(Flag::Observed, false);
            record.set(Flag::Deleting, false);
            record.set(Flag::Outdated, false);
            self.resources[usize::from(resource)].objects -= 1;
            self.observed -= 1;
            self.count_out(namespace, resource);
        }
    }

    fn unmark(&mut self, resource: ResourceId) {
        for slot in self.records.numbers() {
            let record = &mut self.records[slot];
            if record.is(Flag::Observed) && record.resource == resource.0 {
                record.set(Flag::Listed, false);
            }
        }
    }

    /// Objects that a list has not shown are not known any more.
    fn drop_unlisted(&mut self, resource: ResourceId, wakes: &mut Vec<Wake>) {
        for slot in self.records.numbers() {
            let record = self.records[slot];
            if !record.is(Flag::Observed) || record.resource != resource.0 || record.is(Flag::Listed) {
                continue;
            }
            self.withdraw(slot, wakes);
            if self.has_dependents(slot) {
                self.unseen.insert(slot);
                self.wake_dependents(slot, wakes);
            }
            self.free_if_unused(slot);
        }
    }

    fn wake_dependents(&mut self, slot: u32, wakes: &mut Vec<Wake>) {
        let uids = self.dependents_of(slot).map(|dependent| Wake::Check(self.uid_of(dependent)));
        wakes.extend(uids);
    }

    /// The record of this UID, which is made if there is none.
    fn slot_of(&mut self, uid: &Uid) -> u32 {
        let key = self.key(uid);
        if let Some(slot) = self.find_key(key) {
            return slot;
        }
        if let Uid::Other(text) = uid {
            self.other_uids.insert(key, text.clone());
        }
        let nowhere = self.namespaces.take("");
        let slot = self.records.insert(Record::new(key, nowhere));
        self.records[slot].set(Flag::OtherUid, matches!(uid, Uid::Other(_)));
        let Graph { slots, records, hasher, .. } = self;
        slots.insert_unique(hasher.hash_one(key), slot, |slot| hasher.hash_one(records[*slot].uid));
        slot
    }

    fn free_if_unused(&mut self, slot: u32) {
        let record = self.records[slot];
        if record.is(Flag::Observed) || self.has_dependents(slot) {
            return;
        }
        self.unseen.remove(&slot);
        self.absent.remove(&slot);
        self.namespaces.release(self.namespace_of(slot));
        if record.is(Flag::Related) {
            let relation = self.relations[record.place];
            self.names.remove(relation.name);
            self.relations.remove(record.place);
        }
        if record.is(Flag::OtherUid) {
            self.other_uids.remove(&record.uid);
        }
        let hash = self.hasher.hash_one(record.uid);
        if let Ok(entry) = self.slots.find_entry(hash, |known| *known == slot) {
            entry.remove();
        }
        self.records.remove(slot);
    }

    fn find(&self, uid: &Uid) -> Option<u32> {
        self.find_key(self.key(uid))
    }

    fn find_key(&self, key: UidKey) -> Option<u32> {
        self.slots.find(self.hasher.hash_one(key), |slot| self.records[*slot].uid == key).copied()
    }

    /// The UID itself, or a hash of what is none. It is keyed, so that nobody can make two of them meet.
    fn key(&self, uid: &Uid) -> UidKey {
        match uid {
            Uid::Uuid(bytes) => *bytes,
            Uid::Other(text) => {
                let halves = [self.hasher.hash_one((1, text)), self.hasher.hash_one((2, text))];
                (u128::from(halves[0]) << 64 | u128::from(halves[1])).to_be_bytes()
            }
        }
    }

    fn uid_of(&self, slot: u32) -> Uid {
        let record = &self.records[slot];
        let other = record.is(Flag::OtherUid).then(|| self.other_uids.get(&record.uid)).flatten();
        other.map_or(Uid::Uuid(record.uid), |text| Uid::Other(text.clone()))
    }

    /// A hash of what a reference says of an owner besides its UID. The version is not part of it: all versions of a kind
    /// are the same objects. Neither is the namespace, which is that of the dependent.
    fn claim(&self, group: &str, kind: &str, name: &str) -> u64 {
        self.hasher.hash_one((group, kind, name))
    }

    fn relation_mut(&mut self, slot: u32) -> Option<&mut Relation> {
        let record = self.records[slot];
        record.is(Flag::Related).then(|| &mut self.relations[record.place])
    }

    fn namespace_of(&self, slot: u32) -> u32 {
        let record = &self.records[slot];
        if record.is(Flag::Related) { self.relations[record.place].namespace } else { record.place }
    }

    /// Takes over one count of `namespace`.
    fn set_namespace(&mut self, slot: u32, namespace: u32) {
        let before = self.namespace_of(slot);
        match self.relation_mut(slot) {
            Some(relation) => relation.namespace = namespace,
            None => self.records[slot].place = namespace,
        }
        self.namespaces.release(before);
    }

    /// The relation of a record, which is made if there is none.
    fn relate(&mut self, slot: u32) -> &mut Relation {
        if !self.records[slot].is(Flag::Related) {
            let namespace = self.records[slot].place;
            let place = self.relations.insert(Relation { namespace, ..Relation::NEW });
            self.records[slot].place = place;
            self.records[slot].set(Flag::Related, true);
        }
        let place = self.records[slot].place;
        &mut self.relations[place]
    }

    fn has_dependents(&self, slot: u32) -> bool {
        let record = &self.records[slot];
        record.is(Flag::Related) && self.relations[record.place].first_dependent != NONE
            || self.further_dependents.contains_key(&slot)
    }
}

#[cfg(test)]
mod tests;
