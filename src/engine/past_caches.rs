//! Reads of an owner and its children past the caches, before the first write of a process that cannot rely on them
//! yet ([`crate::runtime::lazy_read_barrier`]).

use std::collections::BTreeSet;

use super::context::Context;
use super::error::SyncError;
use crate::model::{ObjectKey, Owner, Record, Resource, Selector, Uid};
use crate::runtime::expectations::{Awaited, Behind, CacheView as _, SAFETY_NET};
use crate::runtime::lazy_read_barrier::{Difference, difference};
use crate::runtime::parked_keys::ParkedKeys;
use crate::runtime::worker::Next;

/// Objects that decisions about an owner depend on.
#[derive(Clone, Debug)]
pub struct Children {
    /// Their kind.
    pub resource: &'static Resource,
    /// The selector of these objects in the owner's namespace.
    pub selector: Selector,
    /// Their owner.
    pub owned_by: OwnedBy,
}

/// The owner of these objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnedBy {
    /// The owner itself.
    Owner,
    /// Those of the owner's own objects that were read before.
    Children,
}

impl Context {
    /// Reads an owner and its children past the caches. What the caches do not show yet is awaited as our own writes
    /// are: see [`Context::behind`].
    ///
    /// # Errors
    /// When the API server cannot be read.
    pub(crate) async fn read_past_caches<O: Record>(
        &self,
        owner: &O,
        children: &[Children],
    ) -> Result<(), SyncError> {
        let (meta, api) = (owner.meta(), self.api_for(owner));
        let mut owners = BTreeSet::new();
        // Of one that is on its way out a status is written, too.
        self.still_exists(owner).await?;
        for Children { resource, selector, owned_by } in children {
            let (resource, namespace) = (*resource, &meta.key.namespace);
            let Some(list) = self.fresh_lists.get(resource) else { continue };
            let what = || format!("listing {} of {}", resource.plural, meta.key);
            let listed = list.list(&api, namespace, selector).await;
            let listed = listed.map_err(|error| SyncError::api(what(), error))?;
            let cached_of = |owner: &Owner| self.caches.owned_by(*resource, owner, selector);
            let cached = match owned_by {
                OwnedBy::Owner => {
                    let cached = cached_of(&owner.as_owner());
                    let uids = listed.objects.iter().chain(&cached).map(|object| &object.uid);
                    owners.extend(uids.map(|uid| Owner::by_uid(resource, namespace, uid)));
                    cached
                }
                OwnedBy::Children => owners.iter().flat_map(cached_of).collect(),
            };
            let Difference { reach, unlisted } = difference(*resource, &listed, cached, &self.caches);
            if let Some(version) = reach {
                self.expectations.expect_write(&meta.uid, *resource, version);
            }
            for (key, uid) in unlisted {
                let what = || format!("reading {} {key}", resource.kind);
                let there = list.get(&api, &key).await.map_err(|error| SyncError::api(what(), error))?;
                match there.filter(|there| there.uid == uid) {
                    Some(there) => self.expectations.expect_write(&meta.uid, *resource, there.version),
                    None => {
                        let version = listed.version;
                        self.expectations.expect_absence(&meta.uid, *resource, &key, &uid, version);
                    }
                }
            }
        }
        self.expectations.expect_at_once(&meta.uid);
        self.barrier.was_read(&meta.uid);
        Ok(())
    }

    /// Parks a key until the caches of these kinds are complete, and show the state at the election.
    pub(crate) fn wait_for_caches(
        &self,
        key: &ObjectKey,
        kinds: &[Resource],
        parked: &ParkedKeys<ObjectKey>,
    ) -> Next {
        let awaited = kinds.iter().filter_map(|&resource| {
            let position = self.barrier.awaited(resource);
            let is_behind = self.caches.position(resource) < position;
            is_behind.then_some(Awaited { resource, position: Some(position), object: None })
        });
        self.barrier.request(kinds);
        let behind = Behind { awaited: awaited.collect(), check_again: SAFETY_NET };
        if behind.awaited.is_empty() {
            return Next::After(std::time::Duration::ZERO);
        }
        parked.park(key, &behind, &self.caches);
        Next::After(behind.check_again)
    }

    /// Whether an owner was read past the caches since the election.
    pub(crate) fn was_read(&self, owner: &Uid) -> bool {
        self.barrier.is_read(owner)
    }
}
