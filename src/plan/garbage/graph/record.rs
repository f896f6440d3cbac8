//! The record of an object.

use std::collections::HashMap;
use std::sync::Arc;

use crate::plan::garbage::name_arena::NameRef;

/// The address of no record.
pub(super) const NONE: u32 = u32::MAX;

/// The resource of an owner whose kind is not watched.
pub(super) const UNSERVED: u16 = u16::MAX;

/// The name of an object whose name is not kept.
pub(super) const NO_NAME: NameRef = NameRef::EMPTY;

/// A version that is no number. API servers of Kubernetes give none of this value.
pub(super) const NO_NUMBER: u64 = 0;

/// A UID in 16 bytes.
pub(super) type UidKey = [u8; 16];

/// A fact about an object.
#[derive(Clone, Copy, Debug)]
#[repr(u16)]
pub(super) enum Flag {
    /// It was seen, and not deleted since.
    Observed = 1,
    /// It is being deleted.
    Deleting = 1 << 1,
    /// It has the finalizer `foregroundDeletion`.
    Foreground = 1 << 2,
    /// It has the finalizer `orphan`.
    Orphan = 1 << 3,
    /// Its first reference blocks the owner.
    Blocks = 1 << 4,
    /// It has a relation.
    Related = 1 << 5,
    /// Its deletion was seen.
    Deleted = 1 << 6,
    /// The API server has said that none is what its record claims.
    Absent = 1 << 7,
    /// The list that is under way has shown it.
    Listed = 1 << 8,
    /// Its UID is no UUID.
    OtherUid = 1 << 9,
    /// Its deletion was seen, by a watch that has ended since.
    Doubted = 1 << 10,
    /// The API server has another state of it than its watch has shown.
    Outdated = 1 << 11,
}

/// The part of a record that every object has.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Record {
    pub(super) uid: UidKey,
    /// A hash of group, kind and name: of the object, or of what the first reference says if it was never seen.
    pub(super) claim: u64,
    pub(super) resource: u16,
    flags: u16,
    /// Its relation, or else its namespace.
    pub(super) place: u32,
}

impl Record {
    pub(super) fn new(uid: UidKey, namespace: u32) -> Self {
        Record { uid, claim: 0, resource: UNSERVED, flags: 0, place: namespace }
    }

    pub(super) fn is(&self, flag: Flag) -> bool {
        self.flags & flag as u16 != 0
    }

    pub(super) fn set(&mut self, flag: Flag, value: bool) {
        if value {
            self.flags |= flag as u16;
        } else {
            self.flags &= !(flag as u16);
        }
    }

    pub(super) fn waits_for_dependents(&self) -> bool {
        self.is(Flag::Observed) && self.is(Flag::Deleting) && self.is(Flag::Foreground)
    }

    pub(super) fn is_orphaning(&self) -> bool {
        self.is(Flag::Observed) && self.is(Flag::Deleting) && self.is(Flag::Orphan)
    }
}

/// The additional part for owners, owned objects, and those that wait for their dependents.
#[derive(Clone, Copy, Debug)]
pub(super) struct Relation {
    /// The version that its references were seen at; or [`NO_NUMBER`].
    pub(super) version: u64,
    /// The name, of all but mere owners.
    pub(super) name: NameRef,
    pub(super) namespace: u32,
    /// The owner of the first reference.
    pub(super) owner: u32,
    /// The next dependent of that owner.
    pub(super) next: u32,
    /// The one before.
    pub(super) previous: u32,
    pub(super) first_dependent: u32,
    /// How many references block the deletion of this object.
    pub(super) blocking: u32,
}

impl Relation {
    pub(super) const NEW: Relation = Relation {
        version: 0,
        name: NO_NAME,
        namespace: 0,
        owner: NONE,
        next: NONE,
        previous: NONE,
        first_dependent: NONE,
        blocking: 0,
    };
}

impl Default for Relation {
    fn default() -> Self {
        Relation::NEW
    }
}

/// The names of namespaces, each once.
#[derive(Debug, Default)]
pub(super) struct Namespaces {
    /// Each with the number of its users.
    names: Vec<(Arc<str>, u32)>,
    by_name: HashMap<Arc<str>, u32>,
    free: Vec<u32>,
}

impl Namespaces {
    /// Counts one more user of a namespace.
    pub(super) fn take(&mut self, name: &str) -> u32 {
        if let Some(at) = self.by_name.get(name) {
            self.names[*at as usize].1 += 1;
            return *at;
        }
        let name: Arc<str> = name.into();
        let at = match self.free.pop() {
            Some(at) => {
                self.names[at as usize] = (name.clone(), 1);
                at
            }
            None => {
                self.names.push((name.clone(), 1));
                self.names.len() as u32 - 1
            }
        };
        self.by_name.insert(name, at);
        at
    }

    pub(super) fn find(&self, name: &str) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    /// The name of one that has users.
    pub(super) fn shared(&self, at: u32) -> Option<Arc<str>> {
        self.names.get(at as usize).map(|(name, _)| name.clone())
    }

    /// The same for one that has users.
    pub(super) fn share(&mut self, at: u32) -> u32 {
        self.names[at as usize].1 += 1;
        at
    }

    /// Counts one user less.
    pub(super) fn release(&mut self, at: u32) {
        let Some((name, users)) = self.names.get_mut(at as usize) else { return };
        *users = users.saturating_sub(1);
        if *users == 0 && self.by_name.remove(name).is_some() {
            self.free.push(at);
        }
    }

    pub(super) fn name(&self, at: u32) -> &str {
        self.names.get(at as usize).map_or("", |(name, _)| name)
    }

    pub(super) fn bytes(&self) -> usize {
        self.names.iter().map(|(name, _)| name.len() + 80).sum()
    }
}
