//! The queries that the graph answers.

use std::collections::BTreeSet;

use super::record::{Flag, NO_NUMBER};
use super::{Graph, GraphResource, ResourceId};
use crate::model::Uid;
use crate::model::metadata::OwnerReference;
use crate::plan::garbage::decision::Policy;

/// The graph's knowledge of the owner behind a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// It has been seen, and not deleted since.
    Solid,
    /// The same, and it waits for its dependents to be deleted.
    Waiting,
    /// It is proved not to exist.
    Absent,
    /// The API server has to be asked.
    Unknown,
}

/// Where an object is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The resource.
    pub resource: ResourceId,
    /// The namespace; empty for a cluster-scoped object.
    pub namespace: String,
    /// The name.
    pub name: String,
}

/// The next step for an object, as far as the graph can tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextStep {
    /// Nothing: it is gone, on its way, or its owners are there.
    Nothing,
    /// All its owners are proved not to exist: to be deleted as it was seen at this version.
    Delete {
        /// The object.
        address: Address,
        /// The version.
        version: u64,
        /// The policy that its finalizers name.
        policy: Policy,
    },
    /// It is kept until its dependents are gone.
    Foreground {
        /// The object.
        address: Address,
        /// Whether a dependent blocks its deletion.
        is_blocked: bool,
        /// Its owners that wait, through others, for this object itself.
        circle: Vec<Uid>,
    },
    /// It has to be read.
    Read(Address),
}

impl Graph {
    /// The next step for an object.
    pub fn next_step(&self, uid: &Uid) -> NextStep {
        let Some(slot) = self.find(uid) else { return NextStep::Nothing };
        let record = &self.records[slot];
        if !record.is(Flag::Observed) {
            return NextStep::Nothing;
        }
        if record.waits_for_dependents() {
            let is_blocked = self.is_blocked(slot);
            let circle = if is_blocked { self.circle(slot) } else { Vec::new() };
            return NextStep::Foreground { address: self.address(slot), is_blocked, circle };
        }
        if record.is(Flag::Deleting) || !record.is(Flag::Related) {
            return NextStep::Nothing;
        }
        let owners: Vec<Known> =
            self.references_of(slot).map(|reference| self.known(slot, reference.owner)).collect();
        if owners.iter().all(|known| *known == Known::Solid) {
            return NextStep::Nothing;
        }
        let address = self.address(slot);
        if owners.iter().any(|known| *known != Known::Absent) || record.is(Flag::OtherUid) {
            return NextStep::Read(address);
        }
        let version = self.relations[record.place].version;
        if version == NO_NUMBER {
            return NextStep::Read(address);
        }
        let policy = match () {
            () if record.is(Flag::Orphan) => Policy::Orphan,
            () if record.is(Flag::Foreground) => Policy::Foreground,
            () => Policy::Background,
        };
        NextStep::Delete { address, version, policy }
    }

    /// Whether an object that means this one by its reference blocks the deletion. One whose reference is wrong may stay for
    /// ever.
    fn is_blocked(&self, slot: u32) -> bool {
        let record = &self.records[slot];
        let blocks = |dependent: u32| {
            self.agrees(dependent, slot)
                && self.references_of(dependent).any(|reference| reference.owner == slot && reference.blocks)
        };
        record.is(Flag::Related)
            && self.relations[record.place].blocking > 0
            && self.dependents_of(slot).any(blocks)
    }

    /// Where an object is that is being deleted with `orphan`; `None` if there is none.
    pub fn orphaning(&self, uid: &Uid) -> Option<Address> {
        let slot = self.find(uid).filter(|slot| self.records[*slot].is_orphaning())?;
        Some(self.address(slot))
    }

    /// The graph's knowledge of the owner behind this reference of an object in this namespace.
    pub fn known_by(&self, namespace: &str, reference: &OwnerReference<'_>) -> Known {
        let Some(owner) = self.find(&reference.uid) else { return Known::Unknown };
        self.judge(owner, self.claim_by(reference), self.is_owner_in(owner, namespace))
    }

    /// Whether a reference of an object in this namespace means the owner as its record says.
    pub(super) fn agrees_with(&self, owner: u32, namespace: &str, reference: &OwnerReference<'_>) -> bool {
        self.records[owner].claim == self.claim_by(reference) && self.is_owner_in(owner, namespace)
    }

    fn is_owner_in(&self, owner: u32, namespace: &str) -> bool {
        let owners = self.namespaces.name(self.namespace_of(owner));
        owners.is_empty() || owners == namespace
    }

    /// Whether the owner that a reference means has been seen in another namespace, where it is nobody's owner here.
    pub fn is_in_another_namespace(&self, namespace: &str, reference: &OwnerReference<'_>) -> bool {
        self.find(&reference.uid).is_some_and(|owner| {
            let record = &self.records[owner];
            let owners = self.namespaces.name(self.namespace_of(owner));
            record.is(Flag::Observed)
                && record.claim == self.claim_by(reference)
                && !owners.is_empty()
                && owners != namespace
        })
    }

    pub(super) fn known(&self, dependent: u32, owner: u32) -> Known {
        let is_in_reach = self.is_in_reach(self.namespace_of(dependent), owner);
        self.judge(owner, self.claim_of(dependent, owner), is_in_reach)
    }

    fn judge(&self, owner: u32, claim: u64, is_in_reach: bool) -> Known {
        let record = &self.records[owner];
        let agrees = record.claim == claim && is_in_reach;
        match () {
            // Also where the UID is known to be gone: a kind that nobody serves proves nothing.
            () if !agrees => Known::Unknown,
            () if record.is(Flag::Deleted) => Known::Absent,
            () if record.waits_for_dependents() => Known::Waiting,
            () if record.is(Flag::Observed) => Known::Solid,
            () if record.is(Flag::Absent) => Known::Absent,
            () if planted!("an owner that was not seen counts as absent") => Known::Absent,
            () => Known::Unknown,
        }
    }

    /// Whether an object has dependents.
    pub fn is_owner(&self, uid: &Uid) -> bool {
        self.find(uid).is_some_and(|slot| self.has_dependents(slot))
    }

    /// Whether an object has this reference.
    pub fn has_reference(&self, dependent: &Uid, reference: &OwnerReference<'_>) -> bool {
        let both = self.find(dependent).zip(self.find(&reference.uid));
        both.is_some_and(|(dependent, owner)| {
            self.refers_to(dependent, owner) && self.claim_of(dependent, owner) == self.claim_by(reference)
        })
    }

    /// How many references an object has.
    pub fn references(&self, uid: &Uid) -> usize {
        self.find(uid).map_or(0, |slot| self.references_of(slot).count())
    }

    /// The UIDs that an object refers to.
    pub fn owners(&self, uid: &Uid) -> Vec<Uid> {
        let slot = self.find(uid);
        let of = |slot| self.references_of(slot).map(|reference| self.uid_of(reference.owner));
        slot.into_iter().flat_map(of).collect()
    }

    /// The dependents of an object that can be read, with their UIDs.
    pub fn dependents(&self, owner: &Uid) -> Vec<(Uid, Address)> {
        let slot = self.find(owner);
        let of = |slot| {
            self.dependents_of(slot).map(|dependent| (self.uid_of(dependent), self.address(dependent)))
        };
        slot.into_iter().flat_map(of).collect()
    }

    /// Those of its dependents that it can be the owner of, each with whether it blocks the deletion of the owner.
    pub fn referents(&self, owner: &Uid) -> Vec<(Uid, Address, bool)> {
        let Some(slot) = self.find(owner) else { return Vec::new() };
        let blocks = |dependent| {
            self.agrees(dependent, slot)
                && self.references_of(dependent).any(|reference| reference.owner == slot && reference.blocks)
        };
        self.dependents_of(slot)
            .filter(|dependent| self.is_in_reach(self.namespace_of(*dependent), slot))
            .map(|dependent| (self.uid_of(dependent), self.address(dependent), blocks(dependent)))
            .collect()
    }

    /// The resource with this number.
    pub fn resource(&self, resource: ResourceId) -> &GraphResource {
        &self.resources[usize::from(resource.0)].resource
    }

    fn address(&self, slot: u32) -> Address {
        let record = &self.records[slot];
        let name =
            if record.is(Flag::Related) { self.relations[record.place].name } else { super::record::NO_NAME };
        Address {
            resource: ResourceId(record.resource),
            namespace: self.namespaces.name(self.namespace_of(slot)).to_owned(),
            name: self.names.get(name).to_owned(),
        }
    }

    /// The owners that this object blocks and that, by what they block in turn, wait for itself. Each object of the way
    /// waits for its dependents, so that none of them would ever go.
    fn circle(&self, slot: u32) -> Vec<Uid> {
        let waiting = |from: u32| {
            let blocked = self.references_of(from).filter(|reference| reference.blocks);
            blocked
                .map(|reference| reference.owner)
                .filter(|owner| self.records[*owner].waits_for_dependents())
        };
        let leads_back = |owner: &u32| {
            let (mut seen, mut open) = (BTreeSet::from([*owner]), vec![*owner]);
            while let Some(at) = open.pop() {
                if at == slot {
                    return true;
                }
                open.extend(waiting(at).filter(|next| seen.insert(*next)));
            }
            false
        };
        waiting(slot).filter(leads_back).map(|owner| self.uid_of(owner)).collect()
    }
}
