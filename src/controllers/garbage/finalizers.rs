//! The ends of the deletions that wait for dependents: what comes before the finalizers `orphan` and
//! `foregroundDeletion` are removed.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;

use super::barrier::{Answer, Deletion, Patience, Unread};
use super::execute::Target;
use super::referents::Asked;
use super::watch::fixed;
use super::{Collector, ENTRY, key};
use crate::engine::error::SyncError;
use crate::engine::execute::AT_ONCE;
use crate::model::discovered::DiscoveredResource;
use crate::model::metadata::{FOREGROUND, ORPHAN};
use crate::model::{ObjectKey, Uid};
use crate::plan::garbage::graph::{Address, NextStep};
use crate::plan::garbage::patch::Change;
use crate::runtime::events::{EventTarget, EventType};
use crate::runtime::worker::Next;

/// The pause before dependents that turned up late are looked for again.
const AGAIN: Duration = Duration::from_millis(20);

/// How long a deletion waits for kinds that cannot be read: an orphaning one, and a foreground one, which loses nothing
/// when it ends too early, since what is left is deleted after it. The latter gives up a kind that has been missed for this
/// long, whoever missed it.
const ORPHANING_PATIENCE: Duration = Duration::from_secs(120);
const FOREGROUND_PATIENCE: Duration = Duration::from_secs(30);

/// The first pause before such a kind is asked again; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(250);

/// The events about an owner that keeps `orphan` for the time being, and about one that has lost it.
const UNREADABLE: &str = "DependentsUnreadable";
const NOT_RELEASED: &str = "DependentsNotReleased";

/// After what time an event says why `orphan` stays: most failures are over by then.
const SAID_AFTER: Duration = Duration::from_secs(5);

/// Owners that wait for a barrier.
#[derive(Debug, Default)]
pub(super) struct Waiting(Mutex<BTreeMap<(Uid, Deletion), Wait>>);

#[derive(Debug)]
struct Wait {
    since: Instant,
    /// Whether it keeps `orphan` because something could not be read.
    is_stuck: bool,
    is_said: bool,
}

impl Waiting {
    /// How many keep `orphan` because something could not be read.
    pub(super) fn stuck(&self) -> usize {
        self.0.lock().values().filter(|wait| wait.is_stuck).count()
    }

    /// Since when an owner has been waiting; from now on, if it was not.
    fn since(&self, owner: &Uid, deletion: Deletion, now: Instant) -> Instant {
        let wait = Wait { since: now, is_stuck: false, is_said: false };
        self.0.lock().entry((owner.clone(), deletion)).or_insert(wait).since
    }

    /// Whether an owner was waiting.
    fn end(&self, owner: &Uid, deletion: Deletion) -> bool {
        self.0.lock().remove(&(owner.clone(), deletion)).is_some()
    }

    /// An owner keeps `orphan`. Whether an event is due.
    fn is_stuck(&self, owner: &Uid, now: Instant) -> bool {
        let mut all = self.0.lock();
        let Some(wait) = all.get_mut(&(owner.clone(), Deletion::Orphaning)) else { return false };
        wait.is_stuck = true;
        now >= wait.since + SAID_AFTER && !std::mem::replace(&mut wait.is_said, true)
    }
}

/// Until when an owner is to wait for what could not be read, and why; `None` if everything was.
fn awaited(unread: &[Unread], patience: Patience) -> Option<(Instant, &str)> {
    let last = unread.iter().max_by_key(|unread| patience.ends(unread.since))?;
    Some((patience.ends(last.since), last.reason.as_str()))
}

/// The pause before what could not be read is asked again: as long as it was waited for until now.
fn pause(since: Instant, ends: Instant, now: Instant) -> Next {
    Next::After((now - since).max(FIRST_PAUSE).min(ends - now))
}

impl Collector {
    /// Ends a foreground deletion that no dependent blocks any more.
    pub(super) async fn end_foreground(&self, uid: &Uid) -> Result<Next, SyncError> {
        let next_step = self.graph.lock().next_step(uid);
        let NextStep::Foreground { address, is_blocked: false, .. } = next_step else {
            self.forget_foreground(uid);
            return Ok(Next::Settled);
        };
        let Some(target) = self.target(&address) else {
            self.forget_foreground(uid);
            return Ok(Next::Settled);
        };
        let since = self.waiting.since(uid, Deletion::Foreground, Instant::now());
        let patience = Patience { with_each: FOREGROUND_PATIENCE, until: since + FOREGROUND_PATIENCE };
        let Some(Answer { referents, unread, asked }) = self.barrier.take(uid, Deletion::Foreground) else {
            self.ask_for_referents(uid, &address, &target.resource, Deletion::Foreground, patience);
            return Ok(Next::Unfinished);
        };
        let is_blocked = referents.iter().any(|referent| referent.blocks);
        if is_blocked {
            self.forget_foreground(uid);
            // The watch will show them soon, and wake the owner when they are gone.
            referents.iter().for_each(|referent| self.queue.add_after(key(&referent.uid), super::LATE));
            return Ok(Next::After(super::LATE));
        }
        let (object, now) = (&target.path, Instant::now());
        if let Some((ends, reason)) = awaited(&unread, patience) {
            if now < ends {
                tracing::debug!(object, reason, "a foreground deletion waits for what cannot be read");
                return Ok(pause(since, ends, now));
            }
            if asked < ends {
                // Resources that could not be read then may be readable now.
                self.ask_for_referents(uid, &address, &target.resource, Deletion::Foreground, patience);
                return Ok(Next::Unfinished);
            }
            tracing::warn!(object, reason, "a foreground deletion ends although dependents may be left");
        }
        self.remove_finalizer(uid, &target, FOREGROUND).await?;
        self.forget_foreground(uid);
        Ok(Next::Settled)
    }

    /// An owner is blocked, gone or deleted in another way: its patience begins anew with the next deletion.
    pub(super) fn forget_foreground(&self, uid: &Uid) {
        if self.waiting.end(uid, Deletion::Foreground) {
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
        let since = self.waiting.since(uid, Deletion::Orphaning, Instant::now());
        if let Some(answer) = self.barrier.take(uid, Deletion::Orphaning) {
            let end = self.end_orphaning(uid, &address, &target, answer, since).await;
            return end.inspect_err(|_| self.count_orphaning("failed"));
        }
        if !self.keeps_orphan(uid, &target).await? {
            self.count_orphaning("dropped");
            return Ok(self.is_not_orphaning(uid));
        }
        match self.release(uid, &address, dependents).await {
            // Of a dependent that is out of reach the barrier says whether its kind can be read.
            Err(error) if error.code() < 500 && error.code() != 404 => {
                self.count_orphaning("failed");
                return Err(error);
            }
            Err(error) => tracing::debug!(object = target.path, %error, "a dependent is not released yet"),
            Ok(()) => {}
        }
        let patience = Patience { with_each: ORPHANING_PATIENCE, until: since + ORPHANING_PATIENCE };
        self.ask_for_referents(uid, &address, &target.resource, Deletion::Orphaning, patience);
        Ok(Next::Unfinished)
    }

    async fn end_orphaning(
        &self,
        uid: &Uid,
        address: &Address,
        target: &Target,
        Answer { referents, unread, asked }: Answer,
        since: Instant,
    ) -> Result<Next, SyncError> {
        if !referents.is_empty() {
            if !self.keeps_orphan(uid, target).await? {
                self.count_orphaning("dropped");
                return Ok(self.is_not_orphaning(uid));
            }
            let late = referents.into_iter().map(|referent| (referent.uid, referent.address)).collect();
            self.release(uid, address, late).await?;
            return Ok(Next::After(AGAIN));
        }
        let (now, ends) = (Instant::now(), since + ORPHANING_PATIENCE);
        if let Some(Unread { reason, .. }) = unread.first() {
            if now < ends {
                if self.waiting.is_stuck(uid, now) {
                    let message = format!(
                        "The finalizer orphan stays for up to {} s, because objects that cannot be read may refer to this \
                         one: {reason}",
                        ORPHANING_PATIENCE.as_secs()
                    );
                    self.say_of(uid, address, &target.resource, UNREADABLE, message);
                }
                self.count_orphaning("unread");
                return Ok(pause(since, ends, now));
            }
            if asked < ends {
                // Resources that could not be read then may be readable now.
                let patience = Patience { with_each: ORPHANING_PATIENCE, until: ends };
                self.ask_for_referents(uid, address, &target.resource, Deletion::Orphaning, patience);
                return Ok(Next::Unfinished);
            }
            let message = format!(
                "The finalizer orphan is removed, although objects that cannot be read may refer to this one: {reason}. They \
                 lose the reference once they can be read"
            );
            tracing::warn!(object = target.path, "{message}");
            self.say_of(uid, address, &target.resource, NOT_RELEASED, message);
        }
        let groups = unread.into_iter().map(|unread| unread.group).collect();
        self.released.lock().insert(uid.clone(), groups, now);
        self.keep_record().await?;
        self.remove_finalizer(uid, target, ORPHAN).await?;
        self.count_orphaning("orphaned");
        Ok(self.is_not_orphaning(uid))
    }

    fn count_orphaning(&self, result: &str) {
        self.context.metrics().garbage.orphanings.with_label_values(&[result]).inc();
    }

    fn is_not_orphaning(&self, uid: &Uid) -> Next {
        self.waiting.end(uid, Deletion::Orphaning);
        self.barrier.forget(uid, Deletion::Orphaning);
        Next::Settled
    }

    /// Whether an object is still being deleted without its dependents. A second deletion can have changed the policy: then
    /// they are not to be released.
    async fn keeps_orphan(&self, uid: &Uid, target: &Target) -> Result<bool, SyncError> {
        let keeps = self.read(uid, target).await?.is_some_and(|object| has_finalizer(&object, ORPHAN));
        if !keeps {
            self.outdate(uid);
        }
        Ok(keeps)
    }

    fn say_of(
        &self,
        uid: &Uid,
        Address { namespace, name, .. }: &Address,
        resource: &DiscoveredResource,
        reason: &'static str,
        message: String,
    ) {
        let about = EventTarget {
            resource: fixed(resource),
            key: ObjectKey::new(namespace.as_str(), name.as_str()),
            uid: uid.clone(),
            resource_version: None,
        };
        self.context.recorder.record(&about, EventType::Warning, reason, message, ENTRY.component);
    }

    /// Removes the references of these objects to an owner. All are tried; the error with the lowest code is returned, as
    /// what is refused matters more than what is out of reach.
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
        let mut worst: Option<SyncError> = None;
        while let Some(removed) = removals.next().await {
            let Err(error) = removed else { continue };
            if worst.as_ref().is_none_or(|worst| error.code() < worst.code()) {
                worst = Some(error);
            }
        }
        worst.map_or(Ok(()), Err)
    }

    /// Asks who still refers to an owner, by what the API server has from now on: see [`super::barrier`].
    fn ask_for_referents(
        &self,
        uid: &Uid,
        address: &Address,
        resource: &DiscoveredResource,
        deletion: Deletion,
        patience: Patience,
    ) {
        let namespace = resource.namespaced.then(|| address.namespace.clone());
        let DiscoveredResource { group, kind, .. } = resource.clone();
        let owner = Asked { uid: uid.clone(), group, kind, name: address.name.clone(), namespace };
        self.barrier.ask(owner, deletion, patience);
    }
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
    fn an_event_says_once_why_orphan_stays_after_five_seconds() {
        let (waiting, owner, start) = (Waiting::default(), Uid::new("u"), Instant::now());
        let second = |n: u64| start + Duration::from_secs(n);
        waiting.since(&owner, Deletion::Orphaning, start);
        assert_eq!(waiting.stuck(), 0);
        let due: Vec<u64> = (0..120).filter(|n| waiting.is_stuck(&owner, second(*n))).collect();
        assert_eq!((due, waiting.stuck()), (vec![5], 1));
        assert!(waiting.end(&owner, Deletion::Orphaning) && waiting.stuck() == 0);
    }

    #[test]
    fn a_kind_that_has_been_missed_for_long_is_waited_for_no_longer() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let missed =
            |at: u32| Unread { group: "x.io".into(), reason: "down".into(), since: start + at * second };
        let patience = Patience { with_each: 30 * second, until: start + 130 * second };
        let ends = |unread: &[Unread]| {
            awaited(unread, patience).map(|(ends, _)| ends.duration_since(start).as_secs())
        };
        assert_eq!((ends(&[]), ends(&[missed(70)]), ends(&[missed(71)])), (None, Some(100), Some(101)));
        assert_eq!(
            ends(&[missed(10), missed(110)]),
            Some(130),
            "the deletion has waited for long enough then"
        );
    }
}
