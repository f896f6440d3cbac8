//! The memory of a controller between syncs: what a sync leaves to the next one of the same object, and which versions of other
//! objects this process has written.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::engine::owner_memory::Forget;
use crate::model::{Meta, Uid};
use crate::plan::endpointslice::{Counts, Memory};

/// The memory of all objects, by UID.
#[derive(Debug)]
pub(in crate::controllers) struct SyncMemory<M>(Mutex<State<M>>);

#[derive(Debug)]
struct State<M> {
    last: BTreeMap<Uid, M>,
    /// The owner of each object that this process has written or deleted.
    written: BTreeMap<Uid, (Uid, Write)>,
}

impl<M> Default for SyncMemory<M> {
    fn default() -> Self {
        SyncMemory(Mutex::new(State { last: BTreeMap::new(), written: BTreeMap::new() }))
    }
}

/// The last write to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Write {
    /// It has this resourceVersion.
    Version(u64),
    /// It is deleted.
    Deletion,
}

impl<M: Default> State<M> {
    fn write(&mut self, owner: &Uid, object: Uid, write: Write) {
        // The end of the owner ends what is kept for it.
        self.last.entry(owner.clone()).or_default();
        self.written.insert(object, (owner.clone(), write));
    }
}

impl<M: Clone + Default> SyncMemory<M> {
    /// The outcome of the last sync.
    pub(in crate::controllers) fn of(&self, owner: &Uid) -> M {
        self.0.lock().last.get(owner).cloned().unwrap_or_default()
    }

    /// A sync has succeeded.
    pub(in crate::controllers) fn keep(&self, owner: &Uid, memory: M) {
        self.0.lock().last.insert(owner.clone(), memory);
    }

    /// An object was written.
    pub(in crate::controllers) fn wrote(&self, owner: &Uid, object: Uid, version: u64) {
        self.0.lock().write(owner, object, Write::Version(version));
    }

    /// An object is about to be deleted.
    pub(super) fn deletes(&self, owner: &Uid, object: Uid) {
        self.0.lock().write(owner, object, Write::Deletion);
    }

    /// Whether the state of an object is one that this process has written, or an earlier one.
    pub(in crate::controllers) fn has_written(&self, object: &Meta) -> bool {
        match self.0.lock().written.get(&object.uid) {
            Some((_, Write::Version(version))) => object.resource_version <= *version,
            Some((_, Write::Deletion)) => true,
            None => false,
        }
    }

    /// Forgets which version of an object this process has written.
    pub(in crate::controllers) fn forget_object(&self, object: &Uid) {
        self.0.lock().written.remove(object);
    }

    /// Whether this process has deleted an object that is gone now, which it forgets.
    pub(in crate::controllers) fn has_deleted(&self, object: &Meta) -> bool {
        let write = self.0.lock().written.remove(&object.uid);
        write.is_some_and(|(_, write)| write == Write::Deletion)
    }
}

impl SyncMemory<Memory> {
    /// The sums over all objects.
    pub(in crate::controllers) fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        for memory in self.0.lock().last.values() {
            let Counts { endpoints, slices, ideal, .. } = memory.counts;
            sum.endpoints += endpoints;
            sum.slices += slices;
            sum.ideal += ideal;
        }
        sum
    }
}

impl<M: Send + Sync> Forget for SyncMemory<M> {
    fn forget(&self, owner: &Uid) {
        let mut state = self.0.lock();
        if state.last.remove(owner).is_some() {
            state.written.retain(|_, (of, _)| of != owner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{EndpointSlice, Interner, Record as _};

    fn slice(version: u64) -> Meta {
        let json = format!(
            r#"{{"metadata":{{"name":"web-a","namespace":"shop","uid":"u-a","resourceVersion":"{version}"}}}}"#
        );
        EndpointSlice::decode(&json, &mut Interner::default()).unwrap().meta
    }

    #[test]
    fn a_later_version_is_one_of_others() {
        let (memory, owner) = (SyncMemory::<()>::default(), Uid::new("u-web"));
        assert!(!memory.has_written(&slice(7)));
        memory.wrote(&owner, Uid::new("u-a"), 7);
        assert_eq!([5, 7, 8].map(|version| memory.has_written(&slice(version))), [true, true, false]);
        memory.forget_object(&Uid::new("u-a"));
        assert!(!memory.has_written(&slice(5)), "after a restore");
    }

    #[test]
    fn an_own_deletion_is_known_once_and_forgotten_with_the_owner() {
        let (memory, owner) = (SyncMemory::<()>::default(), Uid::new("u-web"));
        memory.deletes(&owner, Uid::new("u-a"));
        assert!(memory.has_written(&slice(9)), "its deletion timestamp");
        assert_eq!([memory.has_deleted(&slice(9)), memory.has_deleted(&slice(9))], [true, false]);
        memory.wrote(&owner, Uid::new("u-a"), 7);
        memory.forget(&owner);
        assert!(!memory.has_written(&slice(7)));
    }
}
