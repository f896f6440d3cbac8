//! Objects that exist and cannot be decoded, of which no readable state is known: their owners must not create others in
//! their place.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::{ObjectKey, Owner, Uid};

/// The unreadable objects of one kind.
#[derive(Debug, Default)]
pub(crate) struct Unreadable {
    objects: BTreeMap<ObjectKey, Object>,
    owned: BTreeMap<Owner, BTreeSet<ObjectKey>>,
}

#[derive(Debug)]
struct Object {
    uid: Uid,
    owner: Option<Owner>,
    /// The number of the list that has shown it.
    list: u64,
}

impl Unreadable {
    /// A list or a watch shows such an object.
    pub(crate) fn add(&mut self, key: &ObjectKey, uid: Uid, owner: Option<Owner>, list: u64) {
        self.remove(key);
        if let Some(owner) = owner.clone() {
            self.owned.entry(owner).or_default().insert(key.clone());
        }
        self.objects.insert(key.clone(), Object { uid, owner, list });
    }

    /// The object of this name can be decoded, or is another one.
    pub(crate) fn remove(&mut self, key: &ObjectKey) {
        let Some(Object { owner: Some(owner), .. }) = self.objects.remove(key) else { return };
        if let Some(owned) = self.owned.get_mut(&owner) {
            owned.remove(key);
            if owned.is_empty() {
                self.owned.remove(&owner);
            }
        }
    }

    /// The object was deleted.
    pub(crate) fn deleted(&mut self, key: &ObjectKey, uid: &Uid) {
        if self.objects.get(key).is_some_and(|object| object.uid == *uid) {
            self.remove(key);
        }
    }

    /// A list has ended: what it has not shown is gone.
    pub(crate) fn listed(&mut self, list: u64) {
        let gone = self.objects.iter().filter(|(_, object)| object.list != list);
        let gone: Vec<ObjectKey> = gone.map(|(key, _)| key.clone()).collect();
        gone.iter().for_each(|key| self.remove(key));
    }

    /// Those that this owner controls.
    pub(crate) fn of(&self, owner: &Owner) -> Vec<ObjectKey> {
        self.owned.get(owner).into_iter().flatten().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::Resource;

    const OWNERS: Resource =
        Resource { group: "apps", version: "v1", kind: "ReplicaSet", plural: "replicasets" };

    fn owner(uid: &str) -> Owner {
        Owner::by_uid(&OWNERS, &Arc::from("shop"), &Uid::new(uid))
    }

    #[test]
    fn an_object_counts_for_its_owner_until_it_is_gone_or_can_be_read() {
        let mut unreadable = Unreadable::default();
        let key = |name: &str| ObjectKey::new("shop", name);
        for (name, of) in [("a", "x"), ("b", "x"), ("c", "x"), ("d", "y")] {
            unreadable.add(&key(name), Uid::new(name), Some(owner(of)), 1);
        }
        unreadable.add(&key("orphan"), Uid::new("o"), None, 1);
        assert_eq!(unreadable.of(&owner("x")).len(), 3);
        unreadable.deleted(&key("a"), &Uid::new("another"));
        assert_eq!(unreadable.of(&owner("x")).len(), 3, "another object of that name was deleted");
        unreadable.deleted(&key("a"), &Uid::new("a"));
        unreadable.remove(&key("b"));
        assert_eq!(unreadable.of(&owner("x")), [key("c")]);
        unreadable.add(&key("c"), Uid::new("c"), Some(owner("y")), 2);
        assert_eq!((unreadable.of(&owner("x")).len(), unreadable.of(&owner("y")).len()), (0, 2));
        unreadable.listed(2);
        assert_eq!(unreadable.of(&owner("y")), [key("c")]);
        unreadable.listed(3);
        assert!(unreadable.objects.is_empty() && unreadable.owned.is_empty());
    }
}
