//! Has a cache show what there is, for controllers that read nothing past their caches ([`super::lazy_read_barrier`]).

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::api::{Api, ApiError};
use super::backoff::delay;
use super::expectations::CacheView;
use super::informer::Relist;
use super::list_decoder::ListMeta;
use super::request;
use super::watch_decoder::DecodeError;
use crate::model::Resource;

/// How long a watch that is alive takes to show what has happened. After that there was either nothing to show,
/// since bookmarks come once a minute, or the watch lags: a new list tells.
const PROMPT_WAIT: Duration = Duration::from_millis(250);

/// How often is looked whether the cache has caught up.
const POLL_INTERVAL: Duration = Duration::from_millis(25);

/// How long to wait in silence. Then a line in the log says what is waited for, the version is read once more, since
/// the server's history may have been set back, and what a list has not shown that has come is asked for again.
const LONG_WAIT: Duration = Duration::from_secs(30);

/// The delays between tries to read the version.
const SHORTEST_DELAY: Duration = Duration::from_millis(100);
const LONGEST_DELAY: Duration = Duration::from_secs(5);

/// Has one cache show what there is; see the module.
pub struct ReadBarrier {
    pub(super) resource: Resource,
    pub(super) api: Api,
    pub(super) path: String,
    pub(super) cache: Arc<dyn CacheView + Send + Sync>,
    pub(super) relist: Relist,
}

/// Why the version could not be read.
#[derive(Debug, thiserror::Error)]
enum ReadError {
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error(transparent)]
    Decode(#[from] DecodeError),
}

impl ReadBarrier {
    /// Waits until the cache shows everything that had happened before this was called. Costs a list of one object,
    /// and a whole one where nothing has happened to the kind since, or its watch lags.
    ///
    /// Never gives up: a process that cannot read must not write either.
    pub async fn run(&self) {
        // The first list is not to be broken off.
        while self.cache.lists(self.resource).completed == 0 {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        let mut required = self.current_version().await;
        let (mut limit, mut relisted_after) = (PROMPT_WAIT, None);
        while !self.wait_for_version(required, limit).await {
            if limit == LONG_WAIT {
                let (resource, position) = (self.resource.plural, self.cache.position(self.resource));
                tracing::warn!(
                    resource,
                    position,
                    required,
                    "waiting for the cache to reach the current resourceVersion"
                );
                required = required.min(self.current_version().await);
            }
            // Again only if a list has come since: one that is on its way, for however long, would be broken off.
            let completed = Some(self.cache.lists(self.resource).completed);
            if relisted_after != completed {
                relisted_after = completed;
                self.relist.request_relist();
            }
            limit = LONG_WAIT;
        }
    }

    async fn wait_for_version(&self, version: u64, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        while self.cache.position(self.resource) < version {
            if Instant::now() >= end {
                return false;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        true
    }

    /// What is listed and watched.
    pub fn resource(&self) -> Resource {
        self.resource
    }

    /// The version of what there is. Asked for without one, the server answers from its majority and not from a
    /// cache of its own. Asks until there is an answer.
    pub async fn current_version(&self) -> u64 {
        let mut attempt = 0u32;
        loop {
            match self.read().await {
                Ok(version) => return version,
                Err(error) => {
                    let asked = match &error {
                        ReadError::Api(error) => error.retry_after().unwrap_or_default(),
                        ReadError::Decode(_) => Duration::ZERO,
                    };
                    let wait = delay(SHORTEST_DELAY, LONGEST_DELAY, attempt).max(asked);
                    attempt = attempt.saturating_add(1);
                    tracing::warn!(resource = self.resource.plural, %error, ?wait, "could not read the current resourceVersion; retrying");
                    tokio::time::sleep(wait).await;
                }
            }
        }
    }

    async fn read(&self) -> Result<u64, ReadError> {
        let body = self.api.call_bytes(request::get(&self.path, &[("limit", "1")])).await?;
        Ok(ListMeta::read(&body)?.version)
    }
}
