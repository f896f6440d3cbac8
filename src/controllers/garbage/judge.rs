//! Decides about one object by what the API server has of it, and of its owners.
//!
//! An object may have ten thousand owners, and none of them need exist. It is asked for some of them in a turn; then its key
//! goes back behind the others, and the next turn goes on from there.

use std::collections::BTreeMap;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::Collector;
use super::execute::Target;
use super::owners::Owner;
use crate::engine::error::SyncError;
use crate::model::Uid;
use crate::model::metadata::Metadata;
use crate::plan::garbage::decision::{Decision, OwnerState, Policy, decide};
use crate::plan::garbage::graph::Address;
use crate::runtime::worker::Next;
use std::time::Duration;

/// How many owners are asked for in a turn.
const OWNERS_IN_A_TURN: usize = 50;

/// An object with more references than these is read only while there is room for it.
const FEW: usize = 64;

/// About how many bytes such objects may take at a time, and what each reference takes: 104 bytes of JSON, and as much again
/// once it is decoded.
const ROOM: usize = 8 << 20;
const BYTES_OF_A_REFERENCE: usize = 256;

/// Objects that are looked at in several turns.
#[derive(Debug)]
pub(super) struct Turns {
    begun: Mutex<BTreeMap<Uid, Turn>>,
    room: Semaphore,
}

/// The states of the first owners of an object at this version.
#[derive(Debug)]
struct Turn {
    version: String,
    owners: Vec<OwnerState>,
}

impl Default for Turns {
    fn default() -> Self {
        Turns { begun: Mutex::default(), room: Semaphore::new(ROOM) }
    }
}

impl Turns {
    /// Waits until there is room for an object with so many references.
    async fn room_for(&self, references: usize) -> Option<SemaphorePermit<'_>> {
        let bytes = references.saturating_mul(BYTES_OF_A_REFERENCE).min(ROOM);
        let bytes = u32::try_from(bytes).ok().filter(|_| references > FEW)?;
        // It is never closed.
        self.room.acquire_many(bytes).await.ok()
    }

    /// The states of the first owners of an object, if they are known.
    fn take(&self, object: &Metadata<'_>) -> Vec<OwnerState> {
        let turn = self.begun.lock().remove(&object.uid);
        let is_same = |turn: &Turn| turn.version == object.resource_version.as_str();
        turn.filter(is_same).map(|turn| turn.owners).unwrap_or_default()
    }

    fn keep(&self, object: &Metadata<'_>, owners: Vec<OwnerState>) {
        if owners.len() > OWNERS_IN_A_TURN / 2 {
            let version = object.resource_version.as_str().to_owned();
            self.begun.lock().insert(object.uid.clone(), Turn { version, owners });
        }
    }

    /// An object is gone, or need not be looked at.
    pub(super) fn forget(&self, uid: &Uid) {
        self.begun.lock().remove(uid);
    }
}

fn decode<'a>(body: &'a Bytes, target: &Target) -> Result<Metadata<'a>, SyncError> {
    let text = std::str::from_utf8(body).unwrap_or_default();
    Metadata::decode(text).map_err(|error| target.malformed("reading", error))
}

impl Collector {
    /// Decides about an object by what the API server has of it, and does that.
    pub(super) async fn judge(&self, uid: &Uid, address: &Address) -> Result<Next, SyncError> {
        let Some(target) = self.target(address) else { return Ok(Next::Settled) };
        let references = self.graph.lock().references(uid);
        let _room = self.turns_of_owners.room_for(references).await;
        let body = self.read_body(uid, &target).await?;
        let live = body.as_ref().map(|body| decode(body, &target)).transpose()?;
        let Some(live) = live.filter(|live| live.uid == *uid && !live.is_deleting) else {
            self.turns_of_owners.forget(uid);
            self.outdate(uid);
            return Ok(Next::Settled);
        };
        let Some(owners) = self.owners_of(&live, address).await? else {
            return Ok(Next::After(Duration::ZERO));
        };
        let has_dependents = self.graph.lock().is_owner(uid);
        match decide(&owners, has_dependents, Policy::kept_by(&live)) {
            Decision::Keep => Ok(Next::Settled),
            Decision::DropReferences(gone) => {
                self.drop_references(uid, &target, &gone, &live).await?;
                // The remaining references are judged when the watch shows this change.
                Ok(Next::Settled)
            }
            Decision::Delete(policy) => self.delete_as_read(uid, &target, &live, policy).await,
        }
    }

    /// The states of all owners of an object; `None` if more have to be asked for than a turn may.
    async fn owners_of(
        &self,
        live: &Metadata<'_>,
        address: &Address,
    ) -> Result<Option<Vec<(Uid, OwnerState)>>, SyncError> {
        let mut states = self.turns_of_owners.take(live);
        let mut asked = 0;
        while let Some(reference) = live.owners.get(states.len()) {
            if asked == OWNERS_IN_A_TURN {
                self.turns_of_owners.keep(live, states);
                return Ok(None);
            }
            states.push(match self.owner_state(live, address, reference, &mut asked).await {
                Ok(Owner::Is(state)) => state,
                // It may exist, and keeps the object alive. Other owners are not held up by that.
                Ok(Owner::IsBeyondReach) => OwnerState::Solid,
                Err(error) => {
                    self.turns_of_owners.keep(live, states);
                    return Err(error);
                }
            });
        }
        Ok(Some(live.owners.iter().map(|reference| reference.uid.clone()).zip(states).collect()))
    }

    /// Deletes an object all of whose owners are proved absent, as it was at this version.
    pub(super) async fn delete_as_seen(
        &self,
        uid: &Uid,
        address: &Address,
        version: u64,
        policy: Policy,
    ) -> Result<Next, SyncError> {
        let Some(target) = self.target(address) else { return Ok(Next::Settled) };
        match self.delete(uid, &target, Some(&version.to_string()), policy).await {
            Err(SyncError::Conflict { .. }) => self.judge(uid, address).await,
            result => result.map(|()| Next::Settled),
        }
    }

    /// Deletes an object as it was read. One that others change all the time would never go: if its references are still
    /// the same after a conflict, its UID suffices.
    async fn delete_as_read(
        &self,
        uid: &Uid,
        target: &Target,
        live: &Metadata<'_>,
        policy: Policy,
    ) -> Result<Next, SyncError> {
        let version = Some(live.resource_version.as_str()).filter(|version| !version.is_empty());
        let Err(error) = self.delete(uid, target, version, policy).await else { return Ok(Next::Settled) };
        if !matches!(error, SyncError::Conflict { .. }) {
            return Err(error);
        }
        let Some(body) = self.read_body(uid, target).await? else { return Ok(Next::Settled) };
        let now = decode(&body, target)?;
        if now.uid != *uid {
            return Ok(Next::Settled);
        }
        // Not by their UIDs alone: one that was wrong about the kind or the name of its owner may have been corrected.
        let are_same = now.owners.len() == live.owners.len()
            && now.owners.iter().zip(&live.owners).all(|(now, then)| now.means_the_same(then));
        if !are_same {
            return Err(error);
        }
        self.delete(uid, target, None, policy).await.map(|()| Next::Settled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_goes_on_at_the_same_version_and_begins_anew_at_another() {
        let json = |version: u32| {
            format!(r#"{{"metadata":{{"name":"a","uid":"u","resourceVersion":"{version}"}}}}"#)
        };
        let (first, second) = (json(1), json(2));
        let (first, second) = (Metadata::decode(&first).unwrap(), Metadata::decode(&second).unwrap());
        let (turns, known) = (Turns::default(), vec![OwnerState::Absent; 50]);
        turns.keep(&first, known.clone());
        assert_eq!(turns.take(&first), known);
        assert_eq!(turns.take(&first), [], "once");
        turns.keep(&first, known);
        assert_eq!(turns.take(&second), []);
    }

    #[tokio::test]
    async fn few_objects_with_many_references_are_read_at_a_time_and_all_with_few() {
        let turns = Turns::default();
        let large =
            [turns.room_for(10_000).await, turns.room_for(10_000).await, turns.room_for(10_000).await];
        assert!(large.iter().all(Option::is_some));
        assert!(futures::FutureExt::now_or_never(turns.room_for(10_000)).is_none());
        assert!(futures::FutureExt::now_or_never(turns.room_for(2)).is_some());
        drop(large);
        assert!(turns.room_for(usize::MAX).await.is_some(), "even the largest is read");
    }
}
