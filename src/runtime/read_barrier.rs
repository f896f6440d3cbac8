//! The read barrier of a cache, for controllers that read nothing past their caches ([`super::lazy_read_barrier`]).

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::api::{Api, ApiError};
use super::backoff::delay;
use super::encoding::DecodeError;
use super::expectations::CacheView;
use super::informer::Relist;
use super::list_decoder::ListMeta;
use super::request;
use crate::model::Resource;

/// How long a healthy watch takes to show a change. After that there was either nothing to show,
/// since bookmarks come once a minute, or the watch lags: a new list decides.
const PROMPT_WAIT: Duration = Duration::from_millis(250);

/// How often to check whether the cache has caught up.
const POLL_INTERVAL: Duration = Duration::from_millis(25);

/// How long to wait silently. Then a log line names the cache, the version is read once more, since
/// etcd may have been restored, and a list is requested again if the last one did not suffice.
const LONG_WAIT: Duration = Duration::from_secs(30);

/// The delays between tries to read the version.
const SHORTEST_DELAY: Duration = Duration::from_millis(100);
const LONGEST_DELAY: Duration = Duration::from_secs(5);

/// Waits until one cache has reached the current resourceVersion; see the module.
pub struct ReadBarrier {
    pub(super) resource: Resource,
    pub(super) api: Api,
    pub(super) path: String,
    /// Of the informer: the rights of the daemon may not go beyond it.
    pub(super) field_selector: Option<&'static str>,
    pub(super) cache: Arc<dyn CacheView + Send + Sync>,
    pub(super) relist: Relist,
}

/// Why the version could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    /// The API server refused, or did not answer.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// The answer is no list.
    #[error(transparent)]
    Decode(#[from] DecodeError),
}

impl ReadBarrier {
    /// Waits until the cache shows everything that had happened before this was called. Costs a list of one object,
    /// and a whole one where nothing has happened to the kind since, or its watch lags.
    ///
    /// Never gives up: a process that cannot read must not write either.
    pub async fn run(&self) {
        // The first list must not be interrupted.
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
            // Again only after a list has completed since: a list in progress, however long, would be interrupted.
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

    /// The resource that is listed and watched.
    pub fn resource(&self) -> Resource {
        self.resource
    }

    /// The current version. Without a version in the request, the server reads from etcd and not from a
    /// cache of its own. Retries until there is an answer.
    pub async fn current_version(&self) -> u64 {
        self.current_version_reporting(|_| {}).await
    }

    /// The same; `failed` is called with each error.
    pub(crate) async fn current_version_reporting(&self, failed: impl Fn(&ReadError)) -> u64 {
        let mut attempt = 0u32;
        loop {
            match self.read().await {
                Ok(version) => return version,
                Err(error) => {
                    failed(&error);
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

    /// The current version, by one request.
    ///
    /// # Errors
    /// When there is no answer, or it cannot be decoded.
    pub(crate) async fn read(&self) -> Result<u64, ReadError> {
        let mut query = vec![("limit", "1")];
        query.extend(self.field_selector.map(|selector| ("fieldSelector", selector)));
        let body = self.api.call_bytes(request::get(&self.path, &query)).await?;
        Ok(ListMeta::read(&body)?.version.number().map_err(DecodeError::from)?)
    }
}
