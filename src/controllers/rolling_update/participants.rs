//! Which updates a ReplicationController takes part in: a change of it, or of one of its pods, concerns them.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;

use crate::model::ObjectKey;

/// The updates by their participants.
#[derive(Debug, Default)]
pub(super) struct Participants(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// The participants of an update, itself included.
    of: BTreeMap<ObjectKey, BTreeSet<ObjectKey>>,
    updates: BTreeMap<ObjectKey, BTreeSet<ObjectKey>>,
}

impl Participants {
    /// These take part in the update of this controller; without any, there is none.
    pub(super) fn set(&self, update: &ObjectKey, beside: &[ObjectKey]) {
        let mut known = self.0.lock();
        let Known { of, updates } = &mut *known;
        for participant in of.remove(update).unwrap_or_default() {
            if let Some(all) = updates.get_mut(&participant) {
                all.remove(update);
                if all.is_empty() {
                    updates.remove(&participant);
                }
            }
        }
        if beside.is_empty() {
            return;
        }
        let all: BTreeSet<ObjectKey> = beside.iter().chain([update]).cloned().collect();
        for participant in &all {
            updates.entry(participant.clone()).or_default().insert(update.clone());
        }
        of.insert(update.clone(), all);
    }

    /// The updates in which this controller takes part.
    pub(super) fn updates_of(&self, participant: &ObjectKey) -> Vec<ObjectKey> {
        self.0.lock().updates.get(participant).into_iter().flatten().cloned().collect()
    }

    /// The updates in a namespace.
    pub(super) fn of_namespace(&self, namespace: &str) -> Vec<ObjectKey> {
        self.0.lock().of.keys().filter(|key| *key.namespace == *namespace).cloned().collect()
    }

    /// Whether there is no update.
    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().of.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_take_part_until_the_update_ends_and_nothing_is_kept_then() {
        let participants = Participants::default();
        let key = |name: &str| ObjectKey::new("shop", name);
        participants.set(&key("old"), &[key("new")]);
        participants.set(&key("older"), &[key("old")]);
        assert_eq!(participants.updates_of(&key("new")), [key("old")]);
        assert_eq!(participants.updates_of(&key("old")), [key("old"), key("older")]);
        assert_eq!(participants.of_namespace("shop"), [key("old"), key("older")]);
        assert_eq!(participants.of_namespace("sho"), []);
        // Another target.
        participants.set(&key("old"), &[key("other")]);
        assert_eq!(participants.updates_of(&key("new")), []);
        participants.set(&key("old"), &[]);
        participants.set(&key("older"), &[]);
        assert!(participants.is_empty() && participants.updates_of(&key("other")).is_empty());
        assert!(participants.0.lock().updates.is_empty());
    }
}
