//! Watches that are resumed: a list, then changes, and a new list after anything that may have lost some.

use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt as _;
use kube::core::WatchEvent;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::Instant;
use windlass::model::{Node, Pod, Record as _, Resource};
use windlass::runtime::request;

use crate::api::{Api, ApiError};
use crate::rollout::shared::trimmed;
use crate::trace;

/// How long the server keeps a watch open.
const WATCH_SECONDS: &str = "290";

/// How long a watch may be silent: longer than the server keeps it open.
const IDLE: Duration = Duration::from_secs(300);

/// The delays between attempts: from the first, doubled, to the last.
const BACKOFF: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(20)];

/// The objects of a watch.
#[derive(Clone, Debug)]
pub struct Selection {
    /// The kind.
    pub resource: Resource,
    /// The namespace; `None` for all, and for nodes.
    pub namespace: Option<String>,
    /// The label selector, or the empty string.
    pub labels: String,
    /// The field selector, or the empty string.
    pub fields: String,
    /// Whether changes are watched once the objects are listed.
    pub follows: bool,
    /// The version of a list that is known already: the watch begins there, without another list.
    pub known: Option<String>,
}

/// A change of the selected objects.
#[derive(Clone, Debug)]
pub enum Change {
    /// These are all objects.
    Listed(Vec<Value>),
    /// The object was created or changed.
    Applied(Value),
    /// The object was deleted, or no longer matches.
    Deleted(Value),
    /// The server cannot be reached or refuses at the moment; the watch tries again.
    Interrupted(String),
    /// The user may not watch these objects. The watch has ended.
    Forbidden(String),
}

/// How long a watch may be interrupted before the user is told: an API server restarts within that time.
const SILENCE: Duration = Duration::from_secs(10);

/// Whether a watch is interrupted, and since when.
#[derive(Debug, Default)]
pub struct Silence {
    /// The first trouble, and whether the user knows.
    since: Option<(Instant, bool)>,
    trouble: String,
}

impl Silence {
    /// An attempt has failed.
    pub fn begin(&mut self, trouble: &str) {
        self.since.get_or_insert_with(|| (Instant::now(), false));
        self.trouble = trouble.to_owned();
    }

    /// The watch works.
    pub fn end(&mut self) {
        *self = Silence::default();
    }

    /// The last trouble, while the watch is interrupted.
    pub fn trouble(&self) -> Option<&str> {
        self.since.map(|_| self.trouble.as_str())
    }

    /// The same, if the interruption lasts.
    pub fn lasting(&self) -> Option<&str> {
        self.trouble().filter(|_| self.since.is_some_and(|(since, _)| since.elapsed() >= SILENCE))
    }

    /// The same, once for each interruption that lasts.
    pub fn news(&mut self) -> Option<String> {
        match &mut self.since {
            Some((since, is_told @ false)) if since.elapsed() >= SILENCE => {
                *is_told = true;
                Some(self.trouble.clone())
            }
            _ => None,
        }
    }
}

impl Selection {
    fn query(&self) -> Vec<(&str, &str)> {
        let all = [("labelSelector", &*self.labels), ("fieldSelector", &*self.fields)];
        all.into_iter().filter(|(_, value)| !value.is_empty()).collect()
    }
}

/// Sends the selected objects and, if they are followed, their changes until the receiver is dropped: each made a message by
/// `wrap`.
pub async fn watch<M>(
    api: Arc<Api>,
    selection: Selection,
    changes: mpsc::Sender<M>,
    wrap: impl Fn(Change) -> M,
) {
    let mut delay = BACKOFF[0];
    let mut known = selection.known.clone();
    loop {
        let ended = list_and_watch(&api, &selection, known.take(), &changes, &wrap, &mut delay).await;
        let error = match ended {
            Ok(()) => return,
            Err(error) => error,
        };
        let is_forbidden = error.is_forbidden();
        let text = error.to_string();
        let change = if is_forbidden { Change::Forbidden(text) } else { Change::Interrupted(text) };
        if changes.send(wrap(change)).await.is_err() || is_forbidden {
            return;
        }
        tokio::time::sleep(delay).await;
        delay = (delay * 2).min(BACKOFF[1]);
    }
}

/// Returns once nobody receives the changes, or after the list if no more is wanted.
async fn list_and_watch<M>(
    api: &Api,
    selection: &Selection,
    known: Option<String>,
    changes: &mpsc::Sender<M>,
    wrap: &impl Fn(Change) -> M,
    delay: &mut Duration,
) -> Result<(), ApiError> {
    let path = selection.resource.path(selection.namespace.as_deref());
    let what = selection.resource.plural;
    let query = selection.query();
    let mut version = match known {
        Some(version) => version,
        None => {
            // A list of one object or of those with certain labels is small.
            let is_wide = selection.labels.is_empty() && selection.fields.is_empty();
            let listed = match is_wide {
                true => api.list_kept(what, &path, &query, &|object| Some(kept(selection, object))).await?,
                false => api.list(what, &path, &query).await?,
            };
            if changes.send(wrap(Change::Listed(listed.items))).await.is_err() {
                return Ok(());
            }
            listed.resource_version
        }
    };
    if !selection.follows {
        return Ok(());
    }
    let failed = |error: &kube::Error| ApiError::of(&format!("cannot watch {what}"), error);
    loop {
        let mut query = query.clone();
        query.extend([
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", WATCH_SECONDS),
            ("resourceVersion", &version),
        ]);
        let request = request::get(&path, &query);
        let (method, uri, started) = (request.method().clone(), request.uri().clone(), Instant::now());
        let events = api.client.request_events::<Value>(request).await;
        let outcome = if events.is_ok() { "watch began" } else { "no watch" };
        trace::request(&method, &uri, outcome, started.elapsed());
        let events = events.map_err(|error| failed(&error))?;
        let mut events = std::pin::pin!(events);
        let mut newest = None;
        loop {
            let next = tokio::time::timeout(IDLE, events.try_next()).await;
            let Ok(next) = next else { break };
            let Some(event) = next.map_err(|error| failed(&error))? else { break };
            *delay = BACKOFF[0];
            let (change, seen) = match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    let seen = object["metadata"]["resourceVersion"].as_str().map(str::to_owned);
                    (Some(Change::Applied(kept(selection, object))), seen)
                }
                WatchEvent::Deleted(object) => {
                    let seen = object["metadata"]["resourceVersion"].as_str().map(str::to_owned);
                    (Some(Change::Deleted(object)), seen)
                }
                WatchEvent::Bookmark(bookmark) => (None, Some(bookmark.metadata.resource_version)),
                // 410 among others: the list is read again.
                WatchEvent::Error(status) => return Err(failed(&kube::Error::Api(status))),
            };
            newest = seen.or(newest);
            if let Some(change) = change
                && changes.send(wrap(change)).await.is_err()
            {
                return Ok(());
            }
        }
        // The server ended the watch, as it does every few minutes.
        version = newest.unwrap_or(version);
        if changes.is_closed() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The part of an object that is kept: those of which there are many lose what nothing reads.
fn kept(selection: &Selection, object: Value) -> Value {
    match selection.resource {
        Pod::RESOURCE | Node::RESOURCE => trimmed(object),
        _ => object,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_interruption_is_told_once_and_only_if_it_lasts() {
        let mut silence = Silence::default();
        silence.begin("refused");
        tokio::time::sleep(Duration::from_secs(9)).await;
        assert_eq!((silence.news(), silence.trouble()), (None, Some("refused")));
        silence.begin("reset");
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!((silence.news(), silence.news()), (Some("reset".to_owned()), None));
        silence.end();
        assert_eq!((silence.news(), silence.trouble()), (None, None));
        silence.begin("refused");
        assert_eq!(silence.news(), None, "the next one begins anew");
    }
}
