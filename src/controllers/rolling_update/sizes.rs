//! The sizes that ReplicationControllers were given in an update, to tell what another client has changed. A restart
//! forgets them; then the user only misses an event.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::engine::owner_memory::Forget;
use crate::model::{ReplicaSet, Uid};
use crate::plan::EventNote;
use crate::plan::rolling_update::job::changed_by_another;

/// The sizes by UID.
#[derive(Debug, Default)]
pub(super) struct Sizes(Mutex<BTreeMap<Uid, i32>>);

impl Sizes {
    /// A controller was given this size.
    pub(super) fn given(&self, controller: &ReplicaSet, size: i32) {
        self.0.lock().insert(controller.meta.uid.clone(), size);
    }

    /// The event about a size that another client has changed, once for each change.
    pub(super) fn changed(&self, controller: &ReplicaSet) -> Option<EventNote> {
        let mut sizes = self.0.lock();
        let given = sizes.get_mut(&controller.meta.uid)?;
        let note = changed_by_another(controller, *given);
        *given = controller.replicas;
        note
    }

    /// The update is over: sizes are the user's again.
    pub(super) fn end(&self, controller: &ReplicaSet) {
        self.0.lock().remove(&controller.meta.uid);
    }
}

impl Forget for Sizes {
    fn forget(&self, owner: &Uid) {
        self.0.lock().remove(owner);
    }
}
