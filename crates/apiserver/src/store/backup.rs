//! Backups of the whole store, as etcd has them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Store;
use super::change::Key;
use super::log::Log;
use super::services::{Held, SERVICE};
use crate::object::Object;

/// After a restore that leaves no revision twice, the revision is so much higher than any before it.
const BUMP: u64 = 1000;

/// All objects at one revision.
#[derive(Clone, Debug)]
pub(crate) struct Backup {
    revision: u64,
    objects: BTreeMap<&'static str, BTreeMap<Arc<Key>, Arc<Object>>>,
}

impl Backup {
    /// The objects of a kind, in the order of namespace and name.
    pub(crate) fn objects(&self, kind: &str) -> impl Iterator<Item = &Arc<Object>> {
        self.objects.get(kind).into_iter().flat_map(|objects| objects.values())
    }
}

impl Store {
    /// All objects as they are now.
    pub(crate) fn back_up(&self) -> Backup {
        let state = self.state.read();
        let objects = state.shelves.iter().map(|(kind, shelf)| (*kind, shelf.objects.clone())).collect();
        Backup { revision: state.revision, objects }
    }

    /// Stores the objects of the backup in place of all others. No change is recorded, and the history is forgotten.
    pub(crate) fn restore(&self, backup: &Backup, bumps: bool) {
        let mut state = self.state.write();
        let revision = if bumps { state.revision.max(backup.revision) + BUMP } else { backup.revision };
        state.revision = revision;
        state.held = Held::default();
        for service in backup.objects(SERVICE) {
            state.held.follow(None, Some(&service.peek()));
        }
        for (kind, shelf) in &mut state.shelves {
            shelf.objects = backup.objects.get(kind).cloned().unwrap_or_default();
            shelf.log = Log::from(revision);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::admission::quota;
    use crate::options::Options;
    use crate::store::{Limits, Unreadable};

    #[test]
    fn a_restored_store_has_the_objects_of_the_backup_and_no_history() {
        let charge = quota::charge(&Options::new(Arc::new(|| jiff::Timestamp::UNIX_EPOCH)));
        let store = Store::new(Limits::default(), ["Pod"].into_iter(), charge);
        let (a, b) = (Key::new("ns", "a"), Key::new("ns", "b"));
        let first = store.put("Pod", &a, None, json!({"metadata": {"uid": "1"}})).unwrap();
        let backup = store.back_up();
        store.remove("Pod", &a, &first).unwrap();
        store.put("Pod", &b, None, json!({"metadata": {"uid": "2"}})).unwrap();
        let lost = store.revision();

        store.restore(&backup, true);
        assert!(store.get("Pod", &b).is_none());
        assert_eq!(store.get("Pod", &a).unwrap().value()["metadata"]["resourceVersion"], "2");
        assert!(store.revision() > lost, "no revision is used twice");
        assert_eq!(
            store.check_watchable("Pod", lost),
            Err(Unreadable::Compacted { oldest: store.revision() }),
            "a watch from before has to list again"
        );

        store.restore(&backup, false);
        assert_eq!(store.revision(), backup.revision, "revisions go back");
        store.put("Pod", &b, None, json!({})).unwrap();
        assert_eq!(store.changes("Pod", backup.revision, 10).unwrap().0.len(), 1);
    }
}
