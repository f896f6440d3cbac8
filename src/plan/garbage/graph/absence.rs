//! Proofs that an owner is absent, how long they count, and how a restore of etcd can have undone them.

use super::record::{Flag, Record, UNSERVED};
use super::{Graph, ResourceId, Wake};
use crate::model::Uid;
use crate::model::metadata::OwnerReference;

impl Graph {
    /// The API server has said that the owner, as this object claims it, does not exist.
    ///
    /// The proof is for all references with the same claim: those in the same namespace, or everywhere if the claimed kind
    /// is not `namespaced`.
    /// Wakes the others, which may have waited for a list that would show the owner.
    pub fn prove_absent(&mut self, dependent: &Uid, owner: &Uid, namespaced: bool) -> Vec<Wake> {
        let mut wakes = Vec::new();
        let (Some(dependent), Some(owner)) = (self.find(dependent), self.find(owner)) else { return wakes };
        let record = self.records[owner];
        if record.is(Flag::Observed) || record.is(Flag::Deleted) || !self.refers_to(dependent, owner) {
            return wakes;
        }
        let claim = self.claim_of(dependent, owner);
        let namespace = match namespaced {
            true => self.namespaces.share(self.namespace_of(dependent)),
            false => self.namespaces.take(""),
        };
        let reclaimed: Vec<u32> = self.dependents_of(owner).collect();
        let before = record.claim;
        self.records[owner].claim = claim;
        for dependent in reclaimed {
            let own = self.claims.remove(&(dependent, owner)).unwrap_or(before);
            if own != claim {
                self.claims.insert((dependent, owner), own);
            }
        }
        self.set_namespace(owner, namespace);
        self.records[owner].set(Flag::Absent, true);
        self.absent.insert(owner);
        if self.unseen.remove(&owner) {
            self.wake_dependents(owner, &mut wakes);
        }
        wakes
    }

    /// The API server has, or is about to have, another state of an object than its watch has shown. If a list shows the
    /// same state as before, etcd was restored: what was done about the object has not happened.
    pub fn outdate(&mut self, uid: &Uid) {
        if let Some(slot) = self.find(uid).filter(|slot| self.records[*slot].is(Flag::Observed)) {
            self.records[slot].set(Flag::Outdated, true);
        }
    }

    /// An object was listed, added or modified that was `before`. Wakes it if that undoes what was done about it, which
    /// nothing but a restore of etcd does.
    pub(super) fn look_again(
        &mut self,
        slot: u32,
        before: &Record,
        has_same_references: bool,
        wakes: &mut Vec<Wake>,
    ) {
        let after = self.records[slot];
        let is_listed_anew = !before.is(Flag::Listed);
        let lives_again = before.is(Flag::Deleting) && !after.is(Flag::Deleting);
        let is_undone = before.is(Flag::Outdated) && is_listed_anew || lives_again;
        if before.is(Flag::Observed) && is_undone {
            let uid = self.uid_of(slot);
            wakes.push(Wake::Check(uid.clone()));
            if after.is_orphaning() {
                wakes.push(Wake::Orphan(uid));
            }
        }
        let is_same = |flag| before.is(flag) == after.is(flag);
        let is_unchanged =
            has_same_references && [Flag::Deleting, Flag::Foreground, Flag::Orphan].into_iter().all(is_same);
        if is_listed_anew || !is_unchanged {
            self.records[slot].set(Flag::Outdated, false);
        }
    }

    /// The watch of a resource has ended. Until its next list or watch shows something, the API server may have gone back to
    /// an earlier state, as after a restore of etcd, so that objects exist whose end was seen: they are asked for.
    pub fn doubt(&mut self, resource: ResourceId) {
        // An owner of a kind that is not watched may have come back with the others.
        let is_meant = |slot: &u32| {
            let own = self.records[*slot].resource;
            own == resource.0 || self.resources.get(usize::from(own)).is_none_or(|entry| !entry.is_served)
        };
        let doubted: Vec<u32> = self.absent.iter().copied().filter(is_meant).collect();
        for slot in doubted {
            self.absent.remove(&slot);
            if self.records[slot].is(Flag::Deleted) {
                self.records[slot].set(Flag::Doubted, true);
            }
            self.records[slot].set(Flag::Deleted, false);
            self.records[slot].set(Flag::Absent, false);
            self.unseen.insert(slot);
        }
    }

    /// The resource of an owner whose deletion was seen, by a watch that has ended since; `None` if there is no such owner.
    pub fn doubted(&self, namespace: &str, reference: &OwnerReference<'_>) -> Option<ResourceId> {
        let owner = self.find(&reference.uid)?;
        let record = &self.records[owner];
        let is_doubted = record.is(Flag::Doubted) && self.agrees_with(owner, namespace, reference);
        (is_doubted && record.resource != UNSERVED).then_some(ResourceId(record.resource))
    }

    /// The API server has said that a kind is not defined any more: those of its objects whose deletion was seen have not
    /// come back. Wakes what refers to them.
    pub fn kind_is_gone(&mut self, resource: ResourceId) -> Vec<Wake> {
        let mut wakes = Vec::new();
        let is_meant =
            |record: &super::record::Record| record.resource == resource.0 && record.is(Flag::Doubted);
        let unseen = self.unseen.iter().copied();
        let gone: Vec<u32> = unseen.filter(|slot| is_meant(&self.records[*slot])).collect();
        for slot in gone {
            self.unseen.remove(&slot);
            self.absent.insert(slot);
            self.records[slot].set(Flag::Doubted, false);
            self.records[slot].set(Flag::Deleted, true);
            self.wake_dependents(slot, &mut wakes);
        }
        wakes
    }
}
