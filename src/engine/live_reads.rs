//! Reads of the API server itself, where the cache may lag: whether an owner still exists, and the outcome of
//! writes whose replies were lost.

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::context::Context;
use super::error::SyncError;
use super::execute::path;
use crate::model::Record;
use crate::runtime::api::Api;
use crate::runtime::request;
use crate::runtime::store::Store;

impl Context {
    /// Reads one object past the cache, in a sync of this owner.
    ///
    /// # Errors
    /// The API server's error; an object that does not exist is [`SyncError::Gone`].
    pub async fn read<T: Record>(&self, owner: &impl Record, path: &str) -> Result<T, SyncError> {
        self.read_by(&self.api_for(owner), path).await
    }

    /// The same by the client of a controller that shares the kind of its keys with others.
    ///
    /// # Errors
    /// See [`Context::read`].
    pub(crate) async fn read_by<T: Record>(&self, api: &Api, path: &str) -> Result<T, SyncError> {
        let what = || format!("reading {path}");
        let bytes =
            api.call_bytes(request::get(path, &[])).await.map_err(|error| SyncError::api(what(), error))?;
        let json = serde_json::from_slice::<&RawValue>(&bytes)
            .map_err(|error| SyncError::Json { what: what(), error })?;
        T::decode(json.get(), &mut Default::default())
            .map_err(|error| SyncError::Json { what: what(), error })
    }

    /// Whether all objects of an owner can be decoded, where a decision depends on the contents of each.
    ///
    /// # Errors
    /// When one cannot. It is tried again until the object can be decoded or is deleted.
    pub(crate) fn all_readable<T: Record>(owner: &impl Record, children: &Store<T>) -> Result<(), SyncError> {
        let unreadable = children.unreadable_of(&owner.as_owner());
        let Some(first) = unreadable.first() else { return Ok(()) };
        let what = format!("planning {} {}", owner.resource().kind, owner.meta().key);
        let reason = format!("{} {first} exists and cannot be decoded", T::RESOURCE.kind);
        Err(SyncError::Unread { what, reason })
    }

    /// Resolves writes to an owner's children whose replies were lost: the cache must
    /// show the current state before the next decision (S23).
    ///
    /// # Errors
    /// When the API server cannot be read; what is not resolved is kept.
    pub async fn resolve_children<T: Record>(
        &self,
        parent: &impl Record,
        children: &Store<T>,
    ) -> Result<(), SyncError> {
        let owner = &parent.meta().uid;
        let (mut names, _) = self.in_doubt_writes.take(owner);
        let collection = T::RESOURCE.path(Some(&parent.meta().key.namespace));
        let mut result = Ok(());
        while let Some(name) = names.pop() {
            match self.read::<T>(parent, &format!("{collection}/{name}")).await {
                Ok(child) => {
                    let version = child.meta().resource_version;
                    self.expectations.expect_write(owner, T::RESOURCE, version);
                    self.expectations.expect_write(&child.meta().uid, T::RESOURCE, version);
                    self.forget_if_gone(children, child.meta());
                }
                Err(SyncError::Gone { .. }) => {}
                Err(error) => {
                    names.push(name);
                    result = Err(error);
                    break;
                }
            }
        }
        names.into_iter().for_each(|name| self.in_doubt_writes.created(owner, name));
        result
    }

    /// The same where objects are created under chosen names and deleted by UID, as pods are: `created` is called for
    /// each that exists, and the cache must show that deleted ones are removed.
    ///
    /// # Errors
    /// When the API server cannot be read; what is not resolved is kept.
    pub(crate) async fn resolve_named<O: Record, T: Record>(
        &self,
        parent: &O,
        created: impl Fn(&T) + Send + Sync,
    ) -> Result<(), SyncError> {
        let owner = &parent.meta().uid;
        let (mut creates, mut deletes) = self.in_doubt_writes.take(owner);
        let collection = T::RESOURCE.path(Some(&parent.meta().key.namespace));
        let mut result = Ok(());
        while let Some(name) = creates.pop() {
            match self.read::<T>(parent, &format!("{collection}/{name}")).await {
                Ok(pod) if parent.controls(pod.meta()) => created(&pod),
                Ok(_) => {}
                Err(SyncError::Gone { .. }) => {
                    self.in_doubt_writes.not_yet_created(owner, name, Instant::now())
                }
                Err(error) => {
                    creates.push(name);
                    result = Err(error);
                    break;
                }
            }
        }
        while let Some((key, uid)) = deletes.pop() {
            match self.read::<T>(parent, &format!("{collection}/{}", key.name)).await {
                Ok(pod) if pod.meta().uid == uid && !pod.meta().is_deleting() => {
                    self.in_doubt_writes.maybe_deleted(owner, key, uid, Instant::now());
                }
                Ok(_) | Err(SyncError::Gone { .. }) => {
                    self.expectations.expect_deletion(owner, T::RESOURCE, &key, &uid, None);
                }
                Err(error) => {
                    deletes.push((key, uid));
                    result = Err(error);
                    break;
                }
            }
        }
        creates.into_iter().for_each(|name| self.in_doubt_writes.created(owner, name));
        deletes.into_iter().for_each(|(key, uid)| self.in_doubt_writes.deleted(owner, key, uid));
        result
    }

    /// Whether the owner is still the object that the cache shows, and not being deleted: read from the API
    /// server before anything is adopted (S15), or created a second time. If it is not, no decision about the owner is
    /// made before the cache shows that.
    ///
    /// # Errors
    /// When the API server cannot be read.
    pub async fn still_exists<T: Record>(&self, owner: &T) -> Result<bool, SyncError> {
        let meta = owner.meta();
        match self.read::<T>(owner, &path(T::RESOURCE, meta)).await {
            Ok(fresh) if fresh.meta().uid == meta.uid => {
                self.expectations.expect_write(&meta.uid, T::RESOURCE, fresh.meta().resource_version);
                Ok(!fresh.meta().is_deleting())
            }
            Ok(_) | Err(SyncError::Gone { .. }) => {
                self.expectations.expect_deletion(&meta.uid, T::RESOURCE, &meta.key, &meta.uid, None);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}
