//! Has a cache show what there is: what a process must know that begins to act where another has acted before.
//!
//! A cache that lags is harmless to whoever acts alone, because each of its own writes is waited for. A new leader
//! has no such memory. With an old `spec.replicas` it would take back what the leader before it has done, pods and
//! all.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::api::{Api, ApiError};
use super::backoff::delay;
use super::expectations::CacheView;
use super::frame::FrameError;
use super::informer::Relist;
use super::list_decoder::ListMeta;
use super::request;
use crate::model::Resource;

/// How long a watch that is alive takes to show what has happened. After that there was either nothing to show,
/// since bookmarks come once a minute, or the watch lags: a new list tells.
const PROMPTLY: Duration = Duration::from_millis(250);

/// How often is looked whether the cache has caught up.
const STEP: Duration = Duration::from_millis(25);

/// How long to wait in silence. Then a line in the log says what is waited for, the version is read once more, since
/// the server's history may have been set back, and what a list has not shown that has come is asked for again.
const LONG: Duration = Duration::from_secs(30);

/// The delays between tries to read the version.
const SHORTEST_DELAY: Duration = Duration::from_millis(100);
const LONGEST_DELAY: Duration = Duration::from_secs(5);

/// Has one cache show what there is; see the module.
pub struct CatchUp {
    pub(super) resource: Resource,
    pub(super) api: Api,
    pub(super) path: String,
    pub(super) cache: Arc<dyn CacheView + Send + Sync>,
    pub(super) relist: Relist,
}

/// Why the version could not be read.
#[derive(Debug, thiserror::Error)]
enum Unknown {
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error(transparent)]
    Frame(#[from] FrameError),
}

impl CatchUp {
    /// Waits until the cache shows everything that had happened before this was called. Costs a list of one object,
    /// and a whole one where nothing has happened to the kind since, or its watch lags.
    ///
    /// Never gives up: a process that cannot read must not write either.
    pub async fn run(&self) {
        let mut wanted = self.version().await;
        let (mut patience, mut demanded_after) = (PROMPTLY, None);
        while !self.shows(wanted, patience).await {
            if patience == LONG {
                let (resource, position) = (self.resource.plural, self.cache.position(self.resource));
                tracing::warn!(resource, position, wanted, "waiting for the cache to show what there is");
                wanted = wanted.min(self.version().await);
            }
            // Again only if a list has come since: one that is on its way, for however long, would be broken off.
            let completed = Some(self.cache.lists(self.resource).completed);
            if demanded_after != completed {
                demanded_after = completed;
                self.relist.demand();
            }
            patience = LONG;
        }
    }

    async fn shows(&self, version: u64, patience: Duration) -> bool {
        let end = Instant::now() + patience;
        while self.cache.position(self.resource) < version {
            if Instant::now() >= end {
                return false;
            }
            tokio::time::sleep(STEP).await;
        }
        true
    }

    /// The version of what there is. Asked for without one, the server answers from its majority and not from a
    /// cache of its own.
    async fn version(&self) -> u64 {
        let mut attempt = 0u32;
        loop {
            match self.read().await {
                Ok(version) => return version,
                Err(error) => {
                    let asked = match &error {
                        Unknown::Api(error) => error.retry_after().unwrap_or_default(),
                        Unknown::Frame(_) => Duration::ZERO,
                    };
                    let wait = delay(SHORTEST_DELAY, LONGEST_DELAY, attempt).max(asked);
                    attempt = attempt.saturating_add(1);
                    tracing::warn!(resource = self.resource.plural, %error, ?wait, "could not read what there is");
                    tokio::time::sleep(wait).await;
                }
            }
        }
    }

    async fn read(&self) -> Result<u64, Unknown> {
        let body = self.api.call_bytes(request::get(&self.path, &[("limit", "1")])).await?;
        Ok(ListMeta::read(&body)?.version)
    }
}
