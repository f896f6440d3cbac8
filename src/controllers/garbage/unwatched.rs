//! Owners of resources that are not watched: `--gc-resources` leaves them out, or they are in no namespace where only one
//! is watched.
//!
//! Nobody reports their end, so that each is read again after a while, once for all its dependents.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;

use super::owners::is_about;
use super::{Collector, key};
use crate::engine::error::SyncError;
use crate::model::Uid;
use crate::model::discovered::DiscoveredResource;
use crate::model::metadata::Metadata;
use crate::plan::garbage::graph::Wake;
use crate::runtime::request;
use crate::runtime::worker::Next;

/// How often such an owner is read.
const PERIOD: Duration = Duration::from_secs(300);

/// An owner that existed when it was last read.
#[derive(Clone, Debug)]
pub(super) struct Unwatched {
    pub(super) resource: DiscoveredResource,
    pub(super) name: String,
    pub(super) path: String,
}

/// These owners, by UID.
#[derive(Debug, Default)]
pub(super) struct UnwatchedOwners(Mutex<BTreeMap<Uid, Unwatched>>);

impl UnwatchedOwners {
    /// Whether the owner was found at this path, and will be read there again.
    pub(super) fn is_known(&self, owner: &Uid, path: &str) -> bool {
        self.0.lock().get(owner).is_some_and(|known| known.path == path)
    }

    fn get(&self, owner: &Uid) -> Option<Unwatched> {
        self.0.lock().get(owner).cloned()
    }

    /// Whether it is new.
    fn insert(&self, owner: Uid, unwatched: Unwatched) -> bool {
        self.0.lock().insert(owner, unwatched).is_none()
    }

    fn remove(&self, owner: &Uid) {
        self.0.lock().remove(owner);
    }
}

impl Collector {
    /// An owner was found that is not watched.
    pub(super) fn begin_to_look_at(&self, owner: Uid, unwatched: Unwatched) {
        let later = key(&owner);
        if self.unwatched.insert(owner, unwatched) {
            self.queue.add_after(later, PERIOD);
        }
    }

    /// Reads an owner that is not watched. Once it is gone, its dependents are looked at. `None` if it is none of them.
    pub(super) async fn look_at_unwatched(&self, owner: &Uid) -> Result<Option<Next>, SyncError> {
        let Some(Unwatched { resource, name, path }) = self.unwatched.get(owner) else { return Ok(None) };
        let is_needed = self.graph.lock().is_owner(owner) && !self.kinds.is_seen(&resource);
        if is_needed && self.is_there(owner, &resource, &name, &path).await? {
            return Ok(Some(Next::After(PERIOD)));
        }
        self.unwatched.remove(owner);
        let dependents = self.graph.lock().dependents(owner);
        self.wake(dependents.into_iter().map(|(uid, _)| Wake::Check(uid)).collect());
        Ok(None)
    }

    /// Whether an owner exists and keeps its dependents.
    async fn is_there(
        &self,
        owner: &Uid,
        resource: &DiscoveredResource,
        name: &str,
        path: &str,
    ) -> Result<bool, SyncError> {
        let what = || format!("reading the owner {path}");
        let request = request::get_as(request::METADATA, path, &[]);
        let body = match self.api.on_behalf_of(owner).call_bytes(request).await {
            Ok(body) => body,
            Err(error) if is_about(&error, resource, name) => return Ok(false),
            Err(error) => return Err(SyncError::creation(what(), error)),
        };
        let json = std::str::from_utf8(&body).unwrap_or_default();
        let found = Metadata::decode(json).map_err(|error| SyncError::Json { what: what(), error })?;
        Ok(found.uid == *owner && !found.waits_for_dependents())
    }
}
