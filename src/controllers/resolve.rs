//! What is asked of the API server itself, because the cache may not know it yet: what became of writes
//! whose replies were lost.

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::cluster::Cluster;
use super::error::SyncError;
use super::pod_owner::PodOwner;
use crate::model::{Deployment, Pod, Record, ReplicaSet};
use crate::runtime::request;

impl Cluster {
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

    /// Finds out what became of writes to a Deployment's sets whose replies were lost: the cache must
    /// show what is there now before anything is decided (S23).
    ///
    /// # Errors
    /// When the API server cannot be asked; what is not resolved is kept.
    pub async fn resolve_sets(&self, deployment: &Deployment) -> Result<(), SyncError> {
        let owner = &deployment.meta.uid;
        let (mut names, _) = self.unresolved.take(owner);
        let collection = ReplicaSet::RESOURCE.path(Some(&deployment.meta.key.namespace));
        let mut result = Ok(());
        while let Some(name) = names.pop() {
            match self.read::<ReplicaSet>(deployment, &format!("{collection}/{name}")).await {
                Ok(set) => {
                    let version = set.meta.resource_version;
                    self.expectations.wrote(owner, ReplicaSet::RESOURCE, version);
                    self.expectations.wrote(&set.meta.uid, ReplicaSet::RESOURCE, version);
                    self.forget_if_gone(&self.sets, &set.meta);
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

    /// Finds out what became of writes whose replies were lost, before anything is decided.
    ///
    /// # Errors
    /// When the API server cannot be asked; what is not resolved is kept.
    pub async fn resolve(&self, set: &impl PodOwner) -> Result<(), SyncError> {
        let owner = &set.meta().uid;
        let (mut creates, mut deletes) = self.unresolved.take(owner);
        let collection = Pod::RESOURCE.path(Some(&set.meta().key.namespace));
        let mut result = Ok(());
        while let Some(name) = creates.pop() {
            match self.read::<Pod>(set, &format!("{collection}/{name}")).await {
                Ok(pod) if set.controls(&pod.meta) => {
                    self.pod_created(set, &name, pod.meta.resource_version);
                }
                Ok(_) => {}
                Err(SyncError::Gone { .. }) => self.unresolved.not_yet_created(owner, name, Instant::now()),
                Err(error) => {
                    creates.push(name);
                    result = Err(error);
                    break;
                }
            }
        }
        while let Some((key, uid)) = deletes.pop() {
            match self.read::<Pod>(set, &format!("{collection}/{}", key.name)).await {
                Ok(pod) if pod.meta.uid == uid && !pod.meta.is_deleting() => {
                    self.unresolved.doomed(owner, key, uid, Instant::now());
                }
                Ok(_) | Err(SyncError::Gone { .. }) => {
                    self.expectations.deleted(owner, Pod::RESOURCE, &key, &uid, None);
                }
                Err(error) => {
                    deletes.push((key, uid));
                    result = Err(error);
                    break;
                }
            }
        }
        creates.into_iter().for_each(|name| self.unresolved.created(owner, name));
        deletes.into_iter().for_each(|(key, uid)| self.unresolved.deleted(owner, key, uid));
        result
    }
}
