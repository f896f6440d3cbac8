//! One copy of what many objects share: namespaces, node names, label sets, owner references.

use std::any::{Any, TypeId};
use std::collections::{BTreeMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;

use super::meta::{ControllerRef, StringMap};
use super::texts::Texts;
use super::tolerations::Tolerations;

/// Returns shared copies of equal values. One per informer, so that no lock is needed.
///
/// Five thousand pods of one ReplicaSet then hold one label set and one owner reference between them.
/// The price is a hash look-up per string at decode time, and a sweep over the table each time it has
/// doubled, which drops what no record uses any more.
#[derive(Debug, Default)]
pub struct Interner {
    strings: Table<str>,
    maps: Table<StringMap>,
    owners: Table<ControllerRef>,
    /// Parts of records, by their type.
    parts: BTreeMap<TypeId, Box<dyn Any + Send + Sync>>,
}

impl Interner {
    /// The shared copy of `text`.
    pub fn string(&mut self, text: &str) -> Arc<str> {
        if text.len() > LARGEST {
            return text.into();
        }
        self.strings.intern(text, |t| Arc::from(t))
    }

    /// The shared copy of a label or annotation set.
    pub fn map(&mut self, map: StringMap) -> Arc<StringMap> {
        if map.heap_bytes() > LARGEST {
            return Arc::new(map);
        }
        self.maps.intern_owned(map)
    }

    /// The shared copy of a list, such as that of the finalizers.
    pub fn list(&mut self, list: Texts) -> Arc<Texts> {
        let heap_bytes = list.heap_bytes();
        self.part(list, heap_bytes)
    }

    /// The shared copy of an owner reference.
    pub fn owner(&mut self, owner: ControllerRef) -> Arc<ControllerRef> {
        let texts = [owner.api_version.len(), owner.kind.len(), owner.name.len(), owner.uid.heap_bytes()];
        if texts.iter().sum::<usize>() > LARGEST {
            return Arc::new(owner);
        }
        self.owners.intern_owned(owner)
    }

    /// The shared copy of a part that many records have alike. It has so many bytes of heap besides itself.
    pub fn part<T>(&mut self, part: T, heap_bytes: usize) -> Arc<T>
    where
        T: Hash + Eq + Send + Sync + 'static,
    {
        if heap_bytes > LARGEST {
            return Arc::new(part);
        }
        let table = self.parts.entry(TypeId::of::<T>()).or_insert_with(|| Box::new(Table::<T>::default()));
        match table.downcast_mut::<Table<T>>() {
            Some(table) => table.intern_owned(part),
            None => Arc::new(part),
        }
    }

    /// The shared copy of the tolerations of a pod.
    pub fn tolerations(&mut self, tolerations: Tolerations) -> Arc<Tolerations> {
        let heap_bytes = tolerations.heap_bytes();
        self.part(tolerations, heap_bytes)
    }
}

#[derive(Debug)]
struct Table<T: ?Sized> {
    held: HashSet<Arc<T>>,
    sweep_at: usize,
}

/// The largest value, in bytes, that is shared. A table keeps what no record uses until its next sweep: a thousand states
/// of an object with the most annotations that it may have, 256 KiB, would be as many MiB.
const LARGEST: usize = 4096;

/// Below this size a sweep is not worth its time.
const SMALLEST_SWEEP: usize = 1024;

impl<T: ?Sized> Default for Table<T> {
    fn default() -> Self {
        Table { held: HashSet::new(), sweep_at: SMALLEST_SWEEP }
    }
}

impl<T: ?Sized + Hash + Eq> Table<T> {
    fn intern(&mut self, value: &T, share: impl FnOnce(&T) -> Arc<T>) -> Arc<T> {
        if let Some(known) = self.held.get(value) {
            return known.clone();
        }
        let shared = share(value);
        self.insert(shared.clone());
        shared
    }

    fn insert(&mut self, shared: Arc<T>) {
        if self.held.len() >= self.sweep_at {
            self.held.retain(|value| Arc::strong_count(value) > 1);
            self.sweep_at = (self.held.len() * 2).max(SMALLEST_SWEEP);
        }
        self.held.insert(shared);
    }
}

impl<T: Hash + Eq> Table<T> {
    fn intern_owned(&mut self, value: T) -> Arc<T> {
        if let Some(known) = self.held.get(&value) {
            return known.clone();
        }
        let shared = Arc::new(value);
        self.insert(shared.clone());
        shared
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_strings_share_one_allocation() {
        let mut interner = Interner::default();
        let a = interner.string("kube-system");
        let b = interner.string("kube-system");
        assert!(Arc::ptr_eq(&a, &b));
    }

    #[test]
    fn large_values_leave_no_trace_once_unused() {
        let mut interner = Interner::default();
        let large = "x".repeat(LARGEST + 1);
        let map = interner.map([("a", &*large)].into_iter().collect());
        let text: Arc<str> = large.as_str().into();
        let owner = interner.owner(ControllerRef {
            api_version: "v1".into(),
            kind: text,
            name: "a".into(),
            uid: crate::model::Uid::new("u"),
        });
        let string = interner.string(&large);
        let list = interner.list([&large].into_iter().collect());
        assert_eq!(
            (Arc::strong_count(&map), Arc::strong_count(&owner), Arc::strong_count(&string)),
            (1, 1, 1)
        );
        assert_eq!(Arc::strong_count(&list), 1);
    }

    #[test]
    fn unused_strings_are_dropped_when_the_table_has_doubled() {
        let mut interner = Interner::default();
        let kept = interner.string("kept");
        for n in 0..10 * SMALLEST_SWEEP {
            interner.string(&format!("passing-{n}"));
        }
        assert!(interner.strings.held.len() <= SMALLEST_SWEEP + 1);
        assert!(Arc::ptr_eq(&kept, &interner.string("kept")));
    }
}
