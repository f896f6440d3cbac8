//! Everything that is kept per owner, and its end: one [`OwnerMemory::forget`] for all of it.

use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;

use super::explanations::Explanations;
use super::in_doubt_writes::InDoubtWrites;
use super::recreate_guard::RecreateGuard;
use super::status_throttle::{FailureTextThrottle, StatusThrottle};
use crate::model::Uid;
use crate::runtime::expectations::Expectations;
use crate::runtime::lazy_read_barrier::LazyReadBarrier;

/// Keeps something per owner, by UID.
pub trait Forget: Send + Sync {
    /// The owner was deleted.
    fn forget(&self, owner: &Uid);
}

/// Everything that keeps something per owner.
#[derive(Default)]
pub struct OwnerMemory(RwLock<Vec<Arc<dyn Forget>>>);

impl OwnerMemory {
    /// Registers one more memory.
    pub fn includes(&self, memory: Arc<dyn Forget>) {
        self.0.write().push(memory);
    }

    /// Drops everything that is kept for an owner.
    pub fn forget(&self, owner: &Uid) {
        self.0.read().iter().for_each(|memory| memory.forget(owner));
    }
}

impl fmt::Debug for OwnerMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnerMemory").field("memories", &self.0.read().len()).finish()
    }
}

macro_rules! forgets {
    ($($memory:ty),*) => {
        $(impl Forget for $memory {
            fn forget(&self, owner: &Uid) {
                <$memory>::forget(self, owner);
            }
        })*
    };
}

forgets!(
    Expectations,
    LazyReadBarrier,
    Explanations,
    InDoubtWrites,
    RecreateGuard,
    StatusThrottle,
    FailureTextThrottle
);

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[test]
    fn one_call_forgets_an_owner_everywhere_and_no_other_owner() {
        let (status_throttle, in_doubt_writes) =
            (Arc::new(StatusThrottle::default()), Arc::new(InDoubtWrites::default()));
        let memory = OwnerMemory::default();
        memory.includes(status_throttle.clone());
        memory.includes(in_doubt_writes.clone());
        let now = Instant::now();
        for owner in ["gone", "there"] {
            status_throttle.wrote(&Uid::new(owner), now);
            in_doubt_writes.created(&Uid::new(owner), "web-1".into());
        }
        memory.forget(&Uid::new("gone"));
        let known = |owner| {
            (
                status_throttle.wait(&Uid::new(owner), now).is_some(),
                in_doubt_writes.take(&Uid::new(owner)).0.len(),
            )
        };
        assert_eq!([known("gone"), known("there")], [(false, 0), (true, 1)]);
    }
}
