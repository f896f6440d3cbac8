//! Watches: a stream of the changes of one kind.
//!
//! The guarantee: a watch from a revision delivers every change after it that concerns its selection,
//! once, in order, or says with `410 Expired` that it cannot. A watcher keeps only a position; the
//! changes wait in the store's history, so a slow reader costs nothing and loses nothing silently.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures::stream;
use jiff::Timestamp;
use serde_json::json;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, sleep_until};
use tokio_util::sync::CancellationToken;

use super::object::Object;
use super::options::ExpiredWatch;
use super::params::{Match, Params};
use super::render::Renderer;
use super::request::Request;
use super::selection::Selection;
use super::server::Server;
use super::status::Failure;
use super::store::{Change, Cursor, Key, Unreadable};

/// Changes taken from the history at a time, so that a long backlog is not rendered all at once.
const BATCH: usize = 256;
/// When a watch without `timeoutSeconds` ends. A real server picks something between 30 and 60 minutes.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(3600);
/// A watch has a last bookmark so long before its end, as on a real server: a client that resumes it has missed little.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);
/// Marks the bookmark that ends the initial events of a streaming list (KEP-3157).
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// The body of a watch's answer.
pub(crate) fn open(
    server: &Arc<Server>,
    closing: CancellationToken,
    request: &Request,
) -> Result<Body, Failure> {
    let selection = Selection::of(request)?;
    let start = start_of(&request.params, server.options.streaming_lists)?;
    let kind = request.kind();
    let renderer = Renderer { kind, form: request.form, include: request.params.include };
    let changed = server.store.subscribe(kind.storage()).ok_or_else(Failure::unknown_path)?;
    let timeout = match request.params.timeout_seconds {
        None | Some(0) => DEFAULT_TIMEOUT,
        Some(seconds) => Duration::from_secs(seconds.min(24 * 3600)),
    };
    let begun = Instant::now();
    // An interval of zero would ring for ever.
    let period = server.options.bookmark_interval.max(Duration::from_millis(1));
    let mut bookmarks = interval_at(begun + period, period);
    bookmarks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut watcher = Watcher {
        server: server.clone(),
        selection,
        renderer,
        changed,
        closing,
        broken: server.watches(),
        deadline: begun + timeout,
        bookmarks: request.params.allow_watch_bookmarks.then_some(bookmarks),
        last_bookmark: (request.params.allow_watch_bookmarks && timeout > LAST_BOOKMARK)
            .then(|| begun + timeout - LAST_BOOKMARK),
        position: 0,
        cursor: server.store.cursor(kind.storage(), 0),
        initial: Vec::new().into_iter(),
        initial_events_end: false,
        headers_sent: false,
        pending: VecDeque::new(),
        ended: false,
    };
    watcher.begin(start)?;
    watcher.cursor.advance(watcher.position);
    let events = stream::unfold(watcher, |mut watcher| async move {
        let event = watcher.next().await?;
        Some((Ok::<_, std::io::Error>(event), watcher))
    });
    Ok(Body::from_stream(events))
}

/// Where a watch begins.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Start {
    /// After this revision.
    After(u64),
    /// With an ADDED event for each object there is.
    Existing,
    /// The same, closed by a bookmark that says so: a streaming list.
    StreamingList,
    /// With the next change.
    Now,
}

/// The rules of the API's concepts page, "the resourceVersion parameter" for watches.
fn start_of(params: &Params, streaming_lists: bool) -> Result<Start, Failure> {
    let forbidden =
        |field, why: &str| Err(Failure::invalid_option("ListOptions", field, format!("Forbidden: {why}")));
    match (params.send_initial_events, params.resource_version_match, params.resource_version) {
        (Some(_), _, _) if !streaming_lists => forbidden(
            "sendInitialEvents",
            "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled",
        ),
        (Some(_), matching, _) if matching != Some(Match::NotOlderThan) => forbidden(
            "resourceVersionMatch",
            "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        ),
        (None, Some(_), _) => forbidden(
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        ),
        (Some(true), _, _) => Ok(Start::StreamingList),
        (Some(false), _, None | Some(0)) => Ok(Start::Now),
        (None, _, None | Some(0)) => Ok(Start::Existing),
        (_, _, Some(revision)) => Ok(Start::After(revision)),
    }
}

struct Watcher {
    server: Arc<Server>,
    selection: Selection,
    renderer: Renderer,
    changed: tokio::sync::broadcast::Receiver<u64>,
    /// The connection's server is going down.
    closing: CancellationToken,
    /// A test breaks all watches.
    broken: CancellationToken,
    deadline: Instant,
    bookmarks: Option<Interval>,
    /// When the one is due that comes shortly before the end.
    last_bookmark: Option<Instant>,
    /// Everything up to this revision has been delivered or queued.
    position: u64,
    /// Has the history keep what comes after the position.
    cursor: Cursor,
    /// The objects that the watch begins with and that have not been queued yet.
    initial: std::vec::IntoIter<(Arc<Key>, Arc<Object>)>,
    /// A bookmark is due after them.
    initial_events_end: bool,
    headers_sent: bool,
    pending: VecDeque<Bytes>,
    ended: bool,
}

impl Watcher {
    fn begin(&mut self, start: Start) -> Result<(), Failure> {
        let kind = self.renderer.kind.storage();
        match start {
            Start::Now => self.position = self.server.store.revision(),
            Start::After(revision) => match self.server.store.check_watchable(kind, revision) {
                Ok(()) => self.position = revision,
                Err(why) => match self.server.options.expired_watch {
                    ExpiredWatch::Http => return Err(Failure::unreadable(revision, why)),
                    ExpiredWatch::Event => self.expire(revision, why),
                },
            },
            Start::Existing | Start::StreamingList => {
                let snapshot = self
                    .server
                    .store
                    .list(kind, "", None, None)
                    .map_err(|why| Failure::unreadable(0, why))?;
                self.position = snapshot.revision;
                self.initial = snapshot.objects.into_iter();
                self.initial_events_end = start == Start::StreamingList && self.bookmarks.is_some();
            }
        }
        Ok(())
    }

    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(event) = self.pending.pop_front() {
                return Some(event);
            }
            if self.ended || self.closing.is_cancelled() || self.broken.is_cancelled() {
                return None;
            }
            if self.begins() {
                continue;
            }
            // Marked before reading, so that a change between the two rings again.
            self.changed = self.changed.resubscribe();
            self.collect();
            if !self.pending.is_empty() {
                continue;
            }
            let bookmark = async {
                match &mut self.bookmarks {
                    Some(interval) => interval.tick().await,
                    None => std::future::pending().await,
                }
            };
            let last_bookmark_at = self.last_bookmark;
            let last_bookmark = async {
                match last_bookmark_at {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = self.closing.cancelled() => return None,
                () = self.broken.cancelled() => return None,
                changed = self.changed.recv() => if changed == Err(tokio::sync::broadcast::error::RecvError::Closed) { return None },
                () = sleep_until(self.deadline) => return None,
                _ = bookmark => self.push_bookmark(false),
                () = last_bookmark => {
                    self.last_bookmark = None;
                    self.push_bookmark(false);
                }
            }
        }
    }

    /// Queues the next of the objects that the watch begins with, and the bookmark after the last of them. False once there
    /// are no more.
    fn begins(&mut self) -> bool {
        let now = self.now();
        for (key, object) in self.initial.by_ref().take(BATCH).collect::<Vec<_>>() {
            if self.selection.matches(&key, &object) {
                self.push("ADDED", &object, now);
            }
        }
        if self.initial.len() == 0 && std::mem::take(&mut self.initial_events_end) {
            self.push_bookmark(true);
        }
        !self.pending.is_empty() || self.initial.len() > 0
    }

    /// Queues the events of what has changed since the position.
    fn collect(&mut self) {
        match self.server.store.changes(self.renderer.kind.storage(), self.position, BATCH) {
            Ok((changes, position)) => {
                let now = self.now();
                for change in changes {
                    if let Some((event, object)) = event_of(&self.selection, &change) {
                        self.push(event, &object, now);
                    }
                }
                self.position = position;
                self.cursor.advance(position);
            }
            Err(why) => self.expire(self.position, why),
        }
    }

    fn now(&self) -> Timestamp {
        (self.server.options.now)()
    }

    fn push(&mut self, event: &str, object: &Object, now: Timestamp) {
        let text = self.renderer.object(object, now, !self.headers_sent);
        self.headers_sent = true;
        self.pending.push_back(self.renderer.event(event, &text));
    }

    fn push_bookmark(&mut self, initial_events_end: bool) {
        let annotations = initial_events_end.then(|| json!({INITIAL_EVENTS_END: "true"}));
        let text = self.renderer.bookmark(self.position, annotations);
        self.pending.push_back(self.renderer.event("BOOKMARK", &text));
    }

    fn expire(&mut self, revision: u64, why: Unreadable) {
        let status = self.renderer.value(&Failure::unreadable(revision, why).to_value());
        self.pending.push_back(self.renderer.event("ERROR", &status));
        self.ended = true;
    }
}

/// The event that a watcher with this selection sees for a change: an object that stops matching is DELETED for this
/// watcher, with the content that last matched, and one that starts matching is ADDED.
fn event_of(selection: &Selection, change: &Change) -> Option<(&'static str, Arc<Object>)> {
    let matching =
        |object: &Option<Arc<Object>>| object.clone().filter(|object| selection.matches(&change.key, object));
    match (matching(&change.before), matching(&change.after)) {
        (None, None) => None,
        (None, Some(after)) => Some(("ADDED", after)),
        (Some(_), Some(after)) => Some(("MODIFIED", after)),
        (Some(_), None) => Some(("DELETED", change.departed()?)),
    }
}
