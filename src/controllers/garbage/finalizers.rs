//! The ends of the deletions that wait for dependents: what comes before the finalizers `orphan` and
//! `foregroundDeletion` are removed.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;

use super::barrier::{Answer, Deletion};
use super::execute::Target;
use super::referents::Asked;
use super::watch::fixed;
use super::{Collector, ENTRY, key};
use crate::controllers::error::SyncError;
use crate::controllers::execute::AT_ONCE;
use crate::model::discovered::DiscoveredResource;
use crate::model::metadata::{FOREGROUND, ORPHAN};
use crate::model::{ObjectKey, Uid};
use crate::plan::garbage::graph::{Address, Look};
use crate::plan::garbage::patch::Change;
use crate::runtime::events::{EventTarget, EventType};
use crate::runtime::worker::Next;

/// The pause before dependents that turned up late are looked for again.
const AGAIN: Duration = Duration::from_millis(20);

/// How long a foreground deletion waits for kinds that cannot be read. Unlike an orphaning deletion it loses nothing when
/// it ends too early: what is left is deleted after it.
const FOREGROUND_PATIENCE: Duration = Duration::from_secs(30);

/// The first pause before such a kind is asked again; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(250);

/// The event about an owner that keeps `orphan`.
const UNREADABLE: &str = "DependentsUnreadable";

/// After what time, and how often then, an event says why `orphan` stays: most failures are over by then.
const SAID_AFTER: Duration = Duration::from_secs(5);
const SAID_EVERY: Duration = Duration::from_secs(300);

/// Owners that keep `orphan` because something could not be read.
#[derive(Debug, Default)]
pub(super) struct StuckOrphanings(Mutex<BTreeMap<Uid, Stuck>>);

#[derive(Debug)]
struct Stuck {
    since: Instant,
    said: Option<Instant>,
}

impl StuckOrphanings {
    pub(super) fn len(&self) -> usize {
        self.0.lock().len()
    }

    fn remove(&self, owner: &Uid) {
        self.0.lock().remove(owner);
    }

    /// Adds an owner. Whether an event is due.
    fn add(&self, owner: &Uid, now: Instant) -> bool {
        let mut all = self.0.lock();
        let stuck = all.entry(owner.clone()).or_insert(Stuck { since: now, said: None });
        let is_due =
            now >= stuck.since + SAID_AFTER && stuck.said.is_none_or(|said| now >= said + SAID_EVERY);
        if is_due {
            stuck.said = Some(now);
        }
        is_due
    }
}

impl Collector {
    /// Ends a foreground deletion that no dependent blocks any more.
    pub(super) async fn end_foreground(&self, uid: &Uid) -> Result<Next, SyncError> {
        let look = self.graph.lock().look(uid);
        let Look::Foreground { address, is_blocked: false, .. } = look else {
            self.forget_foreground(uid);
            return Ok(Next::Settled);
        };
        let Some(target) = self.target(&address) else {
            self.forget_foreground(uid);
            return Ok(Next::Settled);
        };
        let since = *self.foreground_since.lock().entry(uid.clone()).or_insert_with(Instant::now);
        let Some(Answer { referents, unread }) = self.barrier.take(uid, Deletion::Foreground) else {
            let patience = Some(since + FOREGROUND_PATIENCE);
            self.ask_for_referents(uid, &address, &target.resource, Deletion::Foreground, patience);
            return Ok(Next::Unfinished);
        };
        let is_blocked = referents.iter().any(|referent| referent.blocks);
        if is_blocked && !planted!("a foreground deletion ends without a barrier") {
            self.forget_foreground(uid);
            // The watch will show them soon, and wake the owner when they are gone.
            referents.iter().for_each(|referent| self.queue.add_after(key(&referent.uid), super::LATE));
            return Ok(Next::After(super::LATE));
        }
        let waited = since.elapsed();
        if let Some(reason) = unread {
            let object = &target.path;
            if waited < FOREGROUND_PATIENCE {
                tracing::debug!(object, reason, "a foreground deletion waits for what cannot be read");
                return Ok(Next::After(waited.max(FIRST_PAUSE).min(FOREGROUND_PATIENCE - waited)));
            }
            tracing::warn!(object, reason, "a foreground deletion ends although dependents may be left");
        }
        self.remove_finalizer(uid, &target, FOREGROUND).await?;
        self.forget_foreground(uid);
        Ok(Next::Settled)
    }

    /// An owner is blocked, gone or deleted in another way: its patience begins anew with the next deletion.
    pub(super) fn forget_foreground(&self, uid: &Uid) {
        if self.foreground_since.lock().remove(uid).is_some() {
            self.barrier.forget(uid, Deletion::Foreground);
        }
    }

    /// Releases the dependents of an object that is being deleted without them, and then removes its finalizer.
    pub(super) async fn orphan(&self, uid: &Uid) -> Result<Next, SyncError> {
        let found = {
            let graph = self.graph.lock();
            graph.orphaning(uid).map(|address| (address, graph.dependents(uid)))
        };
        let Some((address, dependents)) = found else { return Ok(self.is_not_orphaning(uid)) };
        let Some(target) = self.target(&address) else { return Ok(self.is_not_orphaning(uid)) };
        if let Some(answer) = self.barrier.take(uid, Deletion::Orphaning) {
            let end = self.end_orphaning(uid, &address, &target, answer).await;
            return end.inspect_err(|error| self.count_orphaning(failure(error)));
        }
        if !self.keeps_orphan(uid, &target).await? {
            self.count_orphaning("dropped");
            return Ok(self.is_not_orphaning(uid));
        }
        let released = self.release(uid, &address, dependents).await;
        released.inspect_err(|error| self.count_orphaning(failure(error)))?;
        self.ask_for_referents(uid, &address, &target.resource, Deletion::Orphaning, None);
        Ok(Next::Unfinished)
    }

    async fn end_orphaning(
        &self,
        uid: &Uid,
        address: &Address,
        target: &Target,
        Answer { referents, unread }: Answer,
    ) -> Result<Next, SyncError> {
        if !referents.is_empty() && !planted!("an orphaning deletion ends without a barrier") {
            if !self.keeps_orphan(uid, target).await? {
                self.count_orphaning("dropped");
                return Ok(self.is_not_orphaning(uid));
            }
            let late = referents.into_iter().map(|referent| (referent.uid, referent.address)).collect();
            self.release(uid, address, late).await?;
            return Ok(Next::After(AGAIN));
        }
        if let Some(reason) = unread {
            if self.stuck.add(uid, Instant::now()) {
                self.say_why_orphan_stays(uid, address, &target.resource, &reason);
            }
            let what = format!("looking for dependents of {}", target.path);
            return Err(SyncError::Unread { what, reason });
        }
        self.released.lock().insert(uid.clone(), Instant::now());
        self.remove_finalizer(uid, target, ORPHAN).await?;
        self.count_orphaning("orphaned");
        Ok(self.is_not_orphaning(uid))
    }

    fn count_orphaning(&self, result: &str) {
        self.context.metrics().garbage.orphanings.with_label_values(&[result]).inc();
    }

    fn is_not_orphaning(&self, uid: &Uid) -> Next {
        self.stuck.remove(uid);
        self.barrier.forget(uid, Deletion::Orphaning);
        Next::Settled
    }

    /// Whether an object is still being deleted without its dependents. A second deletion can have changed the policy: then
    /// they are not to be released.
    async fn keeps_orphan(&self, uid: &Uid, target: &Target) -> Result<bool, SyncError> {
        Ok(self.read(uid, target).await?.is_some_and(|object| has_finalizer(&object, ORPHAN)))
    }

    fn say_why_orphan_stays(
        &self,
        uid: &Uid,
        Address { namespace, name, .. }: &Address,
        resource: &DiscoveredResource,
        reason: &str,
    ) {
        let message = format!(
            "The finalizer orphan stays, because objects that cannot be read may refer to this one, and would be deleted \
             after it: {reason}"
        );
        let about = EventTarget {
            resource: fixed(resource),
            key: ObjectKey::new(namespace.as_str(), name.as_str()),
            uid: uid.clone(),
            resource_version: None,
        };
        self.context.recorder.record(&about, EventType::Warning, UNREADABLE, message, ENTRY.component);
    }

    /// Removes the references of these objects to an owner. All are tried; the first error is returned.
    async fn release(
        &self,
        owner: &Uid,
        owner_address: &Address,
        dependents: Vec<(Uid, Address)>,
    ) -> Result<(), SyncError> {
        // An object in another namespace has no owner here, whatever it refers to.
        let in_reach = dependents.into_iter().filter(|(_, address)| {
            owner_address.namespace.is_empty() || address.namespace == owner_address.namespace
        });
        let removals: Vec<_> = in_reach
            .map(|(uid, address)| async move {
                let Some(target) = self.target(&address) else { return Ok(()) };
                self.change_references(&uid, &target, std::slice::from_ref(owner), Change::Remove).await
            })
            .collect();
        let mut removals = futures::stream::iter(removals).buffer_unordered(AT_ONCE);
        let mut result = Ok(());
        while let Some(removed) = removals.next().await {
            result = result.and(removed);
        }
        result
    }

    /// Asks who still refers to an owner, by what the API server has from now on: see [`super::barrier`].
    fn ask_for_referents(
        &self,
        uid: &Uid,
        address: &Address,
        resource: &DiscoveredResource,
        deletion: Deletion,
        patience: Option<Instant>,
    ) {
        let namespace = resource.namespaced.then(|| address.namespace.clone());
        let DiscoveredResource { group, kind, .. } = resource.clone();
        let owner = Asked { uid: uid.clone(), group, kind, name: address.name.clone() };
        self.barrier.ask(owner, namespace, deletion, patience);
    }
}

/// The result of an attempt that failed.
fn failure(error: &SyncError) -> &'static str {
    if matches!(error, SyncError::Unread { .. }) { "unread" } else { "failed" }
}

fn has_finalizer(object: &Value, finalizer: &str) -> bool {
    let all = object["metadata"]["finalizers"].as_array();
    object["metadata"]["deletionTimestamp"].is_string()
        && all.is_some_and(|all| all.iter().any(|known| known == finalizer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_says_why_orphan_stays_after_five_seconds_and_then_every_five_minutes() {
        let (stuck, owner, start) = (StuckOrphanings::default(), Uid::new("u"), Instant::now());
        let second = |n: u64| start + Duration::from_secs(n);
        let due: Vec<u64> = (0..700).filter(|n| stuck.add(&owner, second(*n))).collect();
        assert_eq!(due, [5, 305, 605]);
        assert_eq!(stuck.len(), 1);
        stuck.remove(&owner);
        assert_eq!(stuck.len(), 0);
        assert!(!stuck.add(&owner, second(700)), "another deletion begins anew");
    }
}
