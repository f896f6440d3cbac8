//! The references between records.

use std::collections::{BTreeMap, BTreeSet};

use super::record::{Flag, NONE, UNSERVED};
use super::{Graph, Known, Wake};
use crate::model::metadata::{Metadata, OwnerReference};

/// A reference after the first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Further {
    owner: u32,
    blocks: bool,
}

/// A reference of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reference {
    pub(super) owner: u32,
    pub(super) blocks: bool,
}

impl Graph {
    /// The API server serves a resource that it did not serve before. Wakes what refers to a kind that was not served.
    pub fn more_is_served(&mut self) -> Vec<Wake> {
        let mut wakes = Vec::new();
        self.wake_dependents_of_unseen(UNSERVED, &mut wakes);
        self.wake_disputed(&mut wakes);
        wakes
    }

    /// Wakes what refers to a UID that others refer to as another kind or name: its owner's record says only one of them,
    /// so that it does not tell who waits for which kind. They are few.
    fn wake_disputed(&self, wakes: &mut Vec<Wake>) {
        let disputed: BTreeSet<u32> = self.claims.keys().map(|(_, owner)| *owner).collect();
        for owner in disputed {
            let record = &self.records[owner];
            if record.resource == UNSERVED && self.unseen.contains(&owner) {
                continue; // Woken as such.
            }
            let is_observed = record.is(Flag::Observed);
            let is_meant = |dependent: &u32| !is_observed || self.claims.contains_key(&(*dependent, owner));
            let meant = self.dependents_of(owner).filter(is_meant);
            wakes.extend(meant.map(|dependent| Wake::Check(self.uid_of(dependent))));
        }
    }

    /// The references of an object, each owner once.
    pub(super) fn references_of(&self, slot: u32) -> impl Iterator<Item = Reference> {
        let record = &self.records[slot];
        let owner = if record.is(Flag::Related) { self.relations[record.place].owner } else { NONE };
        let first = (owner != NONE).then_some(Reference { owner, blocks: record.is(Flag::Blocks) });
        let further = self.further.get(&slot).into_iter().flatten();
        first.into_iter().chain(further.map(|&Further { owner, blocks }| Reference { owner, blocks }))
    }

    /// The objects that refer to an owner.
    pub(super) fn dependents_of(&self, owner: u32) -> impl Iterator<Item = u32> {
        let record = &self.records[owner];
        let first =
            if record.is(Flag::Related) { self.relations[record.place].first_dependent } else { NONE };
        let known = |slot: u32| (slot != NONE).then_some(slot);
        let siblings = std::iter::successors(known(first), move |slot| {
            known(self.relations[self.records[*slot].place].next)
        });
        siblings.chain(self.further_dependents.get(&owner).into_iter().flatten().copied())
    }

    pub(super) fn refers_to(&self, dependent: u32, owner: u32) -> bool {
        self.references_of(dependent).any(|reference| reference.owner == owner)
    }

    /// The claim of a dependent about its owner.
    pub(super) fn claim_of(&self, dependent: u32, owner: u32) -> u64 {
        self.claims.get(&(dependent, owner)).copied().unwrap_or(self.records[owner].claim)
    }

    /// Whether a reference means the object that has its UID.
    pub(super) fn agrees(&self, dependent: u32, owner: u32) -> bool {
        self.claim_of(dependent, owner) == self.records[owner].claim
            && self.is_in_reach(self.namespace_of(dependent), owner)
    }

    /// Whether a dependent in this namespace can have this owner: one in the same namespace, or a cluster-scoped one.
    pub(super) fn is_in_reach(&self, namespace: u32, owner: u32) -> bool {
        let owners = self.namespace_of(owner);
        owners == namespace || self.namespaces.name(owners).is_empty()
    }

    /// Whether the references of an object are those that the graph has. Nothing is allocated where there are few.
    pub(super) fn has_references(&self, slot: u32, object: &Metadata<'_>) -> bool {
        let is_known = |reference: &OwnerReference<'_>| {
            self.find(&reference.uid).is_some_and(|owner| {
                self.references_of(slot).any(|known| known == Reference { owner, blocks: reference.blocks })
                    && self.claim_of(slot, owner) == self.claim_by(reference)
            })
        };
        match object.owners.len() {
            // More are compared where they are linked again.
            0..=4 => {
                object.owners.len() == self.references_of(slot).count() && object.owners.iter().all(is_known)
            }
            _ => false,
        }
    }

    pub(super) fn claim_by(&self, reference: &OwnerReference<'_>) -> u64 {
        self.claim(reference.group(), reference.kind.as_str(), reference.name.as_str())
    }

    /// Gives an object the references that it has now. Wakes it if one may lead nowhere, and an owner that waits for it
    /// and need not any more.
    pub(super) fn relink(&mut self, slot: u32, object: &Metadata<'_>, wakes: &mut Vec<Wake>) {
        let mut after: BTreeMap<u32, (bool, &OwnerReference<'_>)> = BTreeMap::new();
        for reference in &object.owners {
            let owner = self.slot_of(&reference.uid);
            let (blocks, _) = after.entry(owner).or_insert((false, reference));
            *blocks |= reference.blocks;
        }
        let before: BTreeMap<u32, bool> =
            self.references_of(slot).map(|reference| (reference.owner, reference.blocks)).collect();
        for owner in before.keys().filter(|owner| !after.contains_key(owner)) {
            self.unlink(slot, *owner, wakes);
        }
        self.keep_name(slot, object, !after.is_empty());
        let mut worst = None;
        for (owner, (blocks, reference)) in after {
            let claim = self.claim_by(reference);
            match before.get(&owner) {
                Some(did) if *did == blocks => {}
                Some(_) => {
                    self.unlink(slot, owner, wakes);
                    // It may have been freed, being known from this reference alone.
                    let owner = self.slot_of(&reference.uid);
                    self.join(slot, owner, blocks, claim, reference);
                }
                None => self.join(slot, owner, blocks, claim, reference),
            }
            let owner = self.slot_of(&reference.uid);
            self.set_claim(slot, owner, claim);
            worst = worst.max(self.urgency(slot, owner));
        }
        match worst {
            Some(true) => wakes.push(Wake::Check(object.uid.clone())),
            Some(false) => wakes.push(Wake::CheckLater(object.uid.clone())),
            None => {}
        }
    }

    /// Keeps the name of an object that is owned, or that waits for its dependents: it may have to be written.
    pub(super) fn keep_name(&mut self, slot: u32, object: &Metadata<'_>, is_needed: bool) {
        let is_kept = self.relation_mut(slot).is_some_and(|relation| relation.name != super::record::NO_NAME);
        match (is_needed, is_kept) {
            (true, false) => {
                let name = self.names.insert(object.name.as_str());
                self.relate(slot).name = name;
            }
            (false, true) => {
                let relation = self.relate(slot);
                let name = std::mem::replace(&mut relation.name, super::record::NO_NAME);
                self.names.remove(name);
            }
            _ => {}
        }
    }

    /// Whether a reference makes a look at its object necessary: at once, or after a while.
    fn urgency(&self, dependent: u32, owner: u32) -> Option<bool> {
        let record = &self.records[owner];
        match self.known(dependent, owner) {
            Known::Solid => None,
            Known::Unknown if self.unseen.contains(&owner) => {
                let resource = self.resources.get(usize::from(record.resource));
                let may_be_listed = resource.is_some_and(|entry| entry.is_served && entry.is_filling);
                (!may_be_listed).then_some(false)
            }
            _ => Some(true),
        }
    }

    /// Adds a reference.
    fn join(&mut self, slot: u32, owner: u32, blocks: bool, claim: u64, reference: &OwnerReference<'_>) {
        let record = self.records[owner];
        if !record.is(Flag::Observed) && !record.is(Flag::Deleted) && !self.has_dependents(owner) {
            // The first that says anything of it.
            self.records[owner].claim = claim;
            self.records[owner].resource = self.resource_by(reference);
            let namespace = self.namespaces.share(self.namespace_of(slot));
            self.set_namespace(owner, namespace);
            self.unseen.insert(owner);
        }
        self.link(slot, owner, blocks);
    }

    fn resource_by(&self, reference: &OwnerReference<'_>) -> u16 {
        let is_meant = |entry: &super::ResourceEntry| {
            entry.is_served
                && entry.resource.group == reference.group()
                && entry.resource.kind == reference.kind.as_str()
        };
        let at = self.resources.iter().position(is_meant);
        at.and_then(|at| u16::try_from(at).ok()).unwrap_or(UNSERVED)
    }

    fn set_claim(&mut self, slot: u32, owner: u32, claim: u64) {
        if claim == self.records[owner].claim {
            self.claims.remove(&(slot, owner));
        } else {
            self.claims.insert((slot, owner), claim);
        }
    }

    fn link(&mut self, slot: u32, owner: u32, blocks: bool) {
        if blocks {
            self.relate(owner).blocking += 1;
        }
        if self.relate(slot).owner == NONE {
            self.link_first(slot, owner, blocks);
        } else {
            self.further.entry(slot).or_default().push(Further { owner, blocks });
            self.further_dependents.entry(owner).or_default().insert(slot);
        }
    }

    fn link_first(&mut self, slot: u32, owner: u32, blocks: bool) {
        let next = std::mem::replace(&mut self.relate(owner).first_dependent, slot);
        let relation = self.relate(slot);
        (relation.owner, relation.next, relation.previous) = (owner, next, NONE);
        if next != NONE {
            self.relate(next).previous = slot;
        }
        self.records[slot].set(Flag::Blocks, blocks);
    }

    /// Removes a reference. The owner is woken if it waits, and its record freed if only this reference knew it.
    pub(super) fn unlink(&mut self, slot: u32, owner: u32, wakes: &mut Vec<Wake>) {
        let relation = *self.relate(slot);
        let blocks =
            if relation.owner == owner { self.unlink_first(slot) } else { self.unlink_further(slot, owner) };
        let Some(blocks) = blocks else { return };
        if blocks {
            let owners = self.relate(owner);
            owners.blocking = owners.blocking.saturating_sub(1);
        }
        self.claims.remove(&(slot, owner));
        if self.records[owner].waits_for_dependents() {
            wakes.push(Wake::Check(self.uid_of(owner)));
        }
        self.free_if_unused(owner);
    }

    fn unlink_first(&mut self, slot: u32) -> Option<bool> {
        let super::record::Relation { owner, next, previous, .. } = *self.relate(slot);
        let blocks = self.records[slot].is(Flag::Blocks);
        if next != NONE {
            self.relate(next).previous = previous;
        }
        match previous {
            NONE => self.relate(owner).first_dependent = next,
            previous => self.relate(previous).next = next,
        }
        let relation = self.relate(slot);
        (relation.owner, relation.next, relation.previous) = (NONE, NONE, NONE);
        self.records[slot].set(Flag::Blocks, false);
        // Another takes its place, so that an object with references has a first.
        if let Some(Further { owner, blocks }) = self.further.get(&slot).and_then(|list| list.last().copied())
        {
            self.unlink_further(slot, owner);
            self.link_first(slot, owner, blocks);
        }
        Some(blocks)
    }

    fn unlink_further(&mut self, slot: u32, owner: u32) -> Option<bool> {
        let list = self.further.get_mut(&slot)?;
        let at = list.iter().position(|reference| reference.owner == owner)?;
        let Further { blocks, .. } = list.swap_remove(at);
        if list.is_empty() {
            self.further.remove(&slot);
        }
        if let Some(dependents) = self.further_dependents.get_mut(&owner) {
            dependents.remove(&slot);
            if dependents.is_empty() {
                self.further_dependents.remove(&owner);
            }
        }
        Some(blocks)
    }
}
