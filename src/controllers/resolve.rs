//! What is asked of the API server itself, because the cache may not know it yet: what became of writes
//! whose replies were lost.

use serde_json::value::RawValue;

use super::context::Context;
use super::error::SyncError;
use crate::model::Record;
use crate::runtime::request;
use crate::runtime::store::Store;

impl Context {
    /// Reads one object past the cache, in a sync of this owner.
    ///
    /// # Errors
    /// As the API server answers; an object that is not there is [`SyncError::Gone`].
    pub async fn read<T: Record>(&self, owner: &impl Record, path: &str) -> Result<T, SyncError> {
        let what = || format!("reading {path}");
        let bytes = self
            .api_for(owner)
            .call_bytes(request::get(path, &[]))
            .await
            .map_err(|error| SyncError::api(what(), error))?;
        let json = serde_json::from_slice::<&RawValue>(&bytes)
            .map_err(|error| SyncError::Json { what: what(), error })?;
        T::decode(json.get(), &mut Default::default())
            .map_err(|error| SyncError::Json { what: what(), error })
    }

    /// Finds out what became of writes to an owner's children whose replies were lost: the cache must
    /// show what is there now before anything is decided (S23).
    ///
    /// # Errors
    /// When the API server cannot be asked; what is not resolved is kept.
    pub async fn resolve_children<T: Record>(
        &self,
        parent: &impl Record,
        children: &Store<T>,
    ) -> Result<(), SyncError> {
        let owner = &parent.meta().uid;
        let (mut names, _) = self.unresolved.take(owner);
        let collection = T::RESOURCE.path(Some(&parent.meta().key.namespace));
        let mut result = Ok(());
        while let Some(name) = names.pop() {
            match self.read::<T>(parent, &format!("{collection}/{name}")).await {
                Ok(child) => {
                    let version = child.meta().resource_version;
                    self.expectations.wrote(owner, T::RESOURCE, version);
                    self.expectations.wrote(&child.meta().uid, T::RESOURCE, version);
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
        names.into_iter().for_each(|name| self.unresolved.created(owner, name));
        result
    }
}
