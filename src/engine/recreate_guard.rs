//! Before children are created again for the same owner and generation within a minute, the owner is re-read from the
//! API server.
//!
//! A deleted owner stays in a cache whose watch lags. The garbage collector deletes what is created for it, and the
//! cache of the children shows that at once: without this, pods or ReplicaSets would be created as fast as they are
//! deleted, for as long as the watch lags. The price is one read where a ReplicaSet creates pods again within a minute
//! of having had them all, as after an eviction; a rollout pays nothing, because each of its steps changes the
//! ReplicaSet's generation.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::model::{Meta, Uid};

/// How long a creation is remembered. A watch that lags for longer costs a few useless writes a minute.
const REMEMBERED: Duration = Duration::from_secs(60);

/// For which generation of each owner something was last created, and when.
#[derive(Debug, Default)]
pub struct RecreateGuard(Mutex<BTreeMap<Uid, (i64, Instant)>>);

impl RecreateGuard {
    /// Records a creation for an owner.
    pub fn created(&self, owner: &Meta, now: Instant) {
        self.0.lock().insert(owner.uid.clone(), (owner.generation, now));
    }

    /// Whether something was created for this generation of the owner within the last minute.
    pub fn was_just_created(&self, owner: &Meta, now: Instant) -> bool {
        let all = self.0.lock();
        all.get(&owner.uid).is_some_and(|(generation, at)| {
            *generation == owner.generation && now.saturating_duration_since(*at) < REMEMBERED
        })
    }

    /// The owner was deleted.
    pub fn forget(&self, owner: &Uid) {
        self.0.lock().remove(owner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Interner, Record as _, ReplicaSet};

    fn owner(generation: i64) -> Meta {
        let json = format!(
            r#"{{"metadata": {{"name": "web", "namespace": "shop", "uid": "u", "generation": {generation},
                "resourceVersion": "1"}},
                "spec": {{"selector": {{}}, "template": {{}}}}}}"#
        );
        ReplicaSet::decode(&json, &mut Interner::default()).unwrap().meta
    }

    #[test]
    fn a_creation_is_a_repetition_for_the_same_generation_within_a_minute() {
        let (recreate_guard, start) = (RecreateGuard::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(!recreate_guard.was_just_created(&owner(1), start));
        recreate_guard.created(&owner(1), start);
        assert!(recreate_guard.was_just_created(&owner(1), at(59)));
        assert!(!recreate_guard.was_just_created(&owner(1), at(60)));
        assert!(!recreate_guard.was_just_created(&owner(2), at(1)), "a step of a rollout");
        recreate_guard.forget(&owner(1).uid);
        assert!(!recreate_guard.was_just_created(&owner(1), at(1)));
    }
}
