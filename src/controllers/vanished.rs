//! What vanishes as fast as it is made: who must make the same thing again asks first whether its owner is
//! still there.
//!
//! An owner that was deleted stays in a cache whose watch lags. The garbage collector takes whatever is made
//! for it, and the cache of what was made shows that at once: without this, pods or sets would be made as
//! fast as they go, for as long as the watch lags. The price is one read where a set has to make pods anew
//! within a minute of having had them all, as after an eviction; a rollout pays nothing, because each of its
//! steps changes the set's generation.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::context::Context;
use super::error::SyncError;
use super::execute::path;
use crate::model::{Meta, Record, Uid};

/// How long a creation is remembered. A watch that lags for longer costs a few doomed writes a minute.
const REMEMBERED: Duration = Duration::from_secs(60);

/// For which generation of each owner something was last created, and when.
#[derive(Debug, Default)]
pub struct Creations(Mutex<BTreeMap<Uid, (i64, Instant)>>);

impl Creations {
    /// Notes that something was created for an owner.
    pub fn created(&self, owner: &Meta, now: Instant) {
        self.0.lock().insert(owner.uid.clone(), (owner.generation, now));
    }

    /// Whether something was created for this generation of the owner a moment ago.
    pub fn just_created(&self, owner: &Meta, now: Instant) -> bool {
        if planted!("nobody asks before something is made again") {
            return false;
        }
        let all = self.0.lock();
        all.get(&owner.uid).is_some_and(|(generation, at)| {
            *generation == owner.generation && now.saturating_duration_since(*at) < REMEMBERED
        })
    }

    /// The owner is gone.
    pub fn forget(&self, owner: &Uid) {
        self.0.lock().remove(owner);
    }
}

impl Context {
    /// Whether the owner may adopt: not unless it is still there (S15).
    ///
    /// # Errors
    /// When the API server cannot be asked.
    pub async fn may_adopt<T: Record>(&self, owner: &T) -> Result<bool, SyncError> {
        Ok(planted!("adoption happens unasked") || self.is_there(owner).await?)
    }

    /// Whether the owner is still the object that the cache shows, and not on its way out: asked of the API
    /// server before anything is adopted (S15), or made a second time. If it is not, the owner is not decided
    /// about before the cache shows that.
    ///
    /// # Errors
    /// When the API server cannot be asked.
    pub async fn is_there<T: Record>(&self, owner: &T) -> Result<bool, SyncError> {
        let meta = owner.meta();
        match self.read::<T>(owner, &path(T::RESOURCE, meta)).await {
            Ok(fresh) if fresh.meta().uid == meta.uid => {
                self.expectations.wrote(&meta.uid, T::RESOURCE, fresh.meta().resource_version);
                Ok(!fresh.meta().is_deleting())
            }
            Ok(_) | Err(SyncError::Gone { .. }) => {
                self.expectations.deleted(&meta.uid, T::RESOURCE, &meta.key, &meta.uid, None);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Interner, ReplicaSet};

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
        let (creations, start) = (Creations::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(!creations.just_created(&owner(1), start));
        creations.created(&owner(1), start);
        assert!(creations.just_created(&owner(1), at(59)));
        assert!(!creations.just_created(&owner(1), at(60)));
        assert!(!creations.just_created(&owner(2), at(1)), "a step of a rollout");
        creations.forget(&owner(1).uid);
        assert!(!creations.just_created(&owner(1), at(1)));
    }
}
