//! The informer's loop: list, watch, and what to do when either ends.
//!
//! No watch is silent for long. A real API server sends a bookmark once a minute and 2 s before a watch ends, so that
//! silence alone proves nothing. A watch that has been silent for [`SILENCE`] is resumed where it is, which costs the
//! server one small request and loses no event, and from then on it is requested in pieces of [`QUIET_WATCH`]
//! seconds for as long as nothing happens. One that outlives its piece is broken: the next uses another
//! connection (`client::transport`).

mod destination;
mod encoding;
mod events;
mod list;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use http_body_util::BodyExt;
use prometheus::IntCounterVec;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::api::{Api, ApiError};
use super::backoff::delay;
use super::encoding::DecodeError;
use super::informer::InformerOptions;
use super::list_turns::{ListTurns, Turn};
use super::lost_history::LostHistory;
use super::reachability::Reachability;
use super::request;
use super::watch_decoder::{EventSplitter, WatchEvent};
use crate::model::Resource;
use crate::model::wire::Version;
pub(crate) use destination::{Accept, Destination};

/// So many attempts without an answer are left to the line about an outage.
const QUIET_ATTEMPTS: u32 = 3;

/// The delays after breaks: 0.8 s, doubled up to 30 s, as in client-go's reflector.
const SHORTEST_DELAY: Duration = Duration::from_millis(800);
const LONGEST_DELAY: Duration = Duration::from_secs(30);

/// How long a watch may last at the server, in seconds; chosen at random, so that many informers do
/// not reconnect together.
const WATCH_SECONDS: std::ops::RangeInclusive<u64> = 300..=600;

/// How long a watch may be silent before it is resumed.
const SILENCE: Duration = Duration::from_secs(30);

/// How long a watch of a kind that is quiet lasts, in seconds.
const QUIET_WATCH: u64 = 25;

/// How long after its own end a watch counts as dead.
const GRACE: Duration = Duration::from_secs(5);

/// How long the answer to a watch may take to begin: the first time, when its connection may be dead
/// unnoticed, and after that, when a loaded API server may delay it. With [`SILENCE`], a dead connection is
/// replaced within 45 s.
const FIRST_START: Duration = Duration::from_secs(10);
const LATER_START: Duration = Duration::from_secs(30);

/// How long a streaming list may be silent before its end. A server that does not know streaming lists
/// and ignores the parameter sends the objects, and then never the bookmark that ends the list.
const LIST_SILENCE: Duration = Duration::from_secs(30);

/// A watch that ends sooner than this is followed by a delay, however well it ended.
const SHORT: Duration = Duration::from_secs(1);

/// How often a list that is older than the cache is refused before it is accepted.
const REFUSED_STALE_LISTS: u32 = 3;

/// How often a streaming list may end early before lists are read in pages.
const STREAM_ATTEMPTS: u32 = 3;

/// For how long lists are read in pages after the server did not send one as a stream: it may have been upgraded since, or
/// a proxy that cut the streams was repaired. The price is one request for each list of an old server.
const PAGES_FOR: Duration = Duration::from_secs(600);

/// The reason for giving up a dead watch.
const SILENT: &str = "silent";

/// The reason for giving up a list that goes on for ever.
const ENDLESS: &str = "endless_list";

/// How a list or watch ended.
#[derive(Debug)]
enum End {
    /// The list in pages is complete.
    Listed,
    /// The server ended the watch.
    Closed,
    /// The watch has been silent, which may be normal.
    Quiet,
    /// The server cannot resume from our version.
    Expired,
    /// The server does not support streaming lists.
    StreamingRefused,
    /// The server refuses the media types that were asked for.
    EncodingRefused,
    /// A new list was requested.
    RelistRequested,
    /// The list is older than the cache.
    Stale,
    /// The server refuses watches. Lists alone keep the cache current then.
    NoWatch(&'static str),
    /// Anything else, in one word for the metrics.
    Broken(&'static str),
}

/// Lists and watches one kind.
pub(crate) struct Reflector {
    api: Api,
    resource: Resource,
    path: String,
    selector: Option<String>,
    field_selector: Option<&'static str>,
    page_size: u32,
    destination: Box<dyn Destination>,
    ready: watch::Sender<bool>,
    relist_requested: Arc<Notify>,
    breaks: IntCounterVec,
    rng: fastrand::Rng,
    /// Until when lists are read in pages, since the server does not stream them as far as we know.
    pages_until: Option<Instant>,
    /// Whether the server has refused other media types than JSON.
    json_only: bool,
    /// Streaming lists that ended early, one after the other.
    failed_streams: u32,
    /// Lists in pages that expired on the way, one after the other.
    expired_lists: u32,
    /// Lists refused for being older than the store, one after the other.
    stale_lists: u32,
    /// Whether the first list may come from a server's own cache, which may lag.
    may_lag: bool,
    /// Whether a watch that broke is followed by a list.
    relists_after_breaks: bool,
    lost_history: LostHistory,
    /// How long the last watch was to last.
    lasts: Duration,
    /// Whether the next list must show everything that has happened until then.
    consistent: bool,
    /// Whether nothing has happened to the kind for a while.
    quiet: bool,
    reachability: Reachability,
    turns: Option<ListTurns>,
    /// That of the list that is under way.
    turn: Option<Turn>,
    /// Delays since the last successful answer.
    attempt: u32,
    /// Whether an event has arrived since the last break.
    progress: bool,
    /// How long the server asked to wait with the next watch, at least.
    retry_after: Duration,
}

impl Reflector {
    pub(crate) fn new(
        resource: Resource,
        api: Api,
        options: InformerOptions,
        destination: Box<dyn Destination>,
        ready: watch::Sender<bool>,
        relist_requested: Arc<Notify>,
        reachability: Reachability,
    ) -> Self {
        let InformerOptions {
            namespace,
            label_selector,
            field_selector,
            page_size,
            seed,
            may_lag,
            turns,
            relists_after_breaks,
            lost_history,
        } = options;
        Reflector {
            resource,
            path: resource.path(namespace.as_deref()),
            selector: label_selector.filter(|selector| !selector.is_empty()),
            field_selector,
            page_size,
            destination,
            ready,
            relist_requested,
            breaks: api.metrics().informer_breaks.clone(),
            api,
            rng: fastrand::Rng::with_seed(seed),
            pages_until: None,
            json_only: false,
            failed_streams: 0,
            expired_lists: 0,
            stale_lists: 0,
            may_lag,
            relists_after_breaks,
            lost_history,
            lasts: Duration::ZERO,
            consistent: false,
            quiet: false,
            reachability,
            turns,
            turn: None,
            attempt: 0,
            progress: false,
            retry_after: Duration::ZERO,
        }
    }

    /// Runs for ever. The store is consistent at every await, so that this may be dropped at any time.
    pub(crate) async fn run(mut self) -> Infallible {
        let mut listing = true;
        loop {
            let start = Instant::now();
            self.progress = false;
            let in_pages = self.pages_until.is_some_and(|until| start < until);
            let end = if listing && in_pages { self.list().await } else { self.stream(listing).await };
            self.turn = None;
            if !matches!(end, End::Listed | End::Quiet) {
                self.destination.end_watch();
            }
            let wait = self.after_end(&end, start.elapsed() >= SHORT);
            listing = match end {
                End::Listed | End::Quiet => false,
                // The server may have come back with another history, in which a resumed watch shows nothing.
                End::Closed if start.elapsed() + SHORT < self.lasts && self.relists_after_breaks => true,
                End::Broken(reason) if reason != SILENT && self.relists_after_breaks => true,
                End::Closed | End::Broken(_) | End::EncodingRefused => self.destination.is_listing(),
                End::Expired if planted!("an expired watch is resumed without a new list") => false,
                End::Expired
                | End::StreamingRefused
                | End::RelistRequested
                | End::Stale
                | End::NoWatch(_) => true,
            };
            // A request for a list does not wait for the next retry.
            if tokio::time::timeout(wait, self.relist_requested.notified()).await.is_ok() {
                (listing, self.consistent) = (true, true);
            }
        }
    }

    /// Handles the end of a list or watch and returns how long to wait before the next. `lasted`
    /// tells whether it ran for a while, so that an end without an error needs no delay.
    fn after_end(&mut self, end: &End, lasted: bool) -> Duration {
        let resource = self.resource.plural;
        if self.progress {
            self.attempt = 0;
        }
        match end {
            End::Listed | End::Quiet => Duration::ZERO,
            End::RelistRequested => {
                self.consistent = true;
                tracing::info!(resource, "cache is behind a known resourceVersion; listing again");
                Duration::ZERO
            }
            End::StreamingRefused => {
                self.pages_until = Some(Instant::now() + PAGES_FOR);
                self.failed_streams = 0;
                self.count("streaming_list_refused");
                tracing::info!(resource, "the API server does not support streaming lists; listing in pages");
                Duration::ZERO
            }
            End::EncodingRefused => {
                self.count("encoding_refused");
                tracing::info!(resource, "the API server accepts requests for JSON only");
                Duration::ZERO
            }
            End::Closed if lasted => Duration::ZERO,
            End::Closed => self.next_delay(),
            End::Expired => {
                self.count("expired");
                tracing::info!(
                    resource,
                    position = self.destination.position(),
                    "watch position has expired; listing again"
                );
                // The first time at once. If the list does not help, a server that answers so again and again
                // must not be called without a pause.
                if lasted || self.attempt == 0 {
                    self.attempt = 1;
                    Duration::ZERO
                } else {
                    self.next_delay()
                }
            }
            // It may be resumed as soon as it is known to be broken.
            End::Broken(SILENT) => {
                self.count(SILENT);
                tracing::warn!(resource, "watch did not end at its timeout; resuming over a new connection");
                Duration::ZERO
            }
            // The third is accepted. With growing delays that would take longer than the ten seconds in which the end of a
            // history is to be noticed.
            End::Stale => {
                self.count("stale_list");
                self.delay_for(1)
            }
            End::Broken(reason) | End::NoWatch(reason) => {
                self.count(reason);
                let asked = std::mem::take(&mut self.retry_after);
                self.next_delay().max(asked)
            }
        }
    }

    fn next_delay(&mut self) -> Duration {
        self.attempt = self.attempt.saturating_add(1);
        self.delay_for(self.attempt)
    }

    fn delay_for(&mut self, attempt: u32) -> Duration {
        let base = delay(SHORTEST_DELAY, LONGEST_DELAY, attempt.saturating_sub(1));
        base.mul_f64(1.0 + self.rng.f64()).min(LONGEST_DELAY)
    }

    fn count(&self, reason: &str) {
        self.breaks.with_label_values(&[self.resource.group, self.resource.plural, reason]).inc();
    }

    fn begin_list(&mut self) -> bool {
        // This list covers all requests until now.
        self.consistent |= self.relist_requested.notified().now_or_never().is_some();
        let accept_older = self.stale_lists >= REFUSED_STALE_LISTS;
        self.destination.begin_list(accept_older);
        accept_older
    }

    /// Whether a list of this version must be refused: it is older than the cache, so applying
    /// it would undo later changes. If the server insists, its history was set back, by a restored
    /// backup for example, and the list is accepted.
    ///
    /// The price: a streaming list tells its version only at its end. Deleted objects that an old one showed
    /// stay in the store until the next list.
    /// A version that is no number cannot be compared.
    fn is_stale(&mut self, version: &Version, accept_older: bool) -> bool {
        let position = self.destination.position();
        let Version::Number(version) = *version else { return false };
        if version >= position {
            return false;
        }
        let resource = self.resource.plural;
        if accept_older {
            if self.lost_history.is_news() {
                tracing::error!(
                    resource,
                    version,
                    position,
                    "resourceVersions went back, as after a restore of etcd; the caches accept the older state"
                );
            } else {
                tracing::info!(resource, version, position, "the cache accepts an older state");
            }
            return false;
        }
        tracing::info!(resource, version, position, "list is older than the cache; refused, listing again");
        self.stale_lists += 1;
        true
    }

    fn end_list(&mut self, version: &Version) {
        self.destination.end_list(version);
        self.reachability.listed();
        self.turn = None;
        (self.failed_streams, self.expired_lists, self.stale_lists) = (0, 0, 0);
        self.consistent = false;
        if !self.ready.send_replace(true) {
            let objects = self.destination.len();
            tracing::debug!(resource = self.resource.plural, objects, %version, "cache is complete");
        }
    }

    /// Watches, from the last position or, as a list, from the beginning.
    async fn stream(&mut self, list: bool) -> End {
        if list {
            self.take_turn().await;
        }
        let accept_older = list && self.begin_list();
        let short = self.quiet && !list;
        let seconds = if short { QUIET_WATCH } else { self.rng.u64(WATCH_SECONDS) };
        self.lasts = Duration::from_secs(seconds);
        let (timeout, position) = (seconds.to_string(), self.destination.resumes_at().to_string());
        let mut query =
            vec![("watch", "true"), ("allowWatchBookmarks", "true"), ("timeoutSeconds", timeout.as_str())];
        if list {
            // Without a resourceVersion the list is at least as new as anything written before.
            query.extend([("sendInitialEvents", "true"), ("resourceVersionMatch", "NotOlderThan")]);
        } else {
            query.push(("resourceVersion", &position));
        }
        query.extend(self.selector.as_deref().map(|selector| ("labelSelector", selector)));
        query.extend(self.field_selector.map(|selector| ("fieldSelector", selector)));
        let timeout = if list || self.attempt > 0 { LATER_START } else { FIRST_START };
        let starting = self.api.with_timeout(timeout);
        let request = request::get_as(self.accept_watch(), &self.path, &query);
        let response = match starting.stream(request).await {
            Ok(response) => response,
            Err(error) => {
                self.reachability.failed(&error);
                return self.not_begun(&error, list);
            }
        };
        self.reachability.record();
        // From here on the end of the watch is known.
        let end = Instant::now() + Duration::from_secs(seconds) + GRACE;
        self.quiet = short;
        let relist_requested = self.relist_requested.clone();
        let mut events = EventSplitter::of(response.headers());
        let mut body = response.into_body();
        loop {
            let listing = self.destination.is_listing();
            let silent_until = Instant::now() + if listing { LIST_SILENCE } else { SILENCE };
            let frame = tokio::select! {
                biased;
                () = relist_requested.notified() => return End::RelistRequested,
                frame = tokio::time::timeout_at(silent_until.min(end), body.frame()) => frame,
            };
            match frame {
                Err(_) if listing => return self.cut(End::StreamingRefused),
                // The server ends a watch in time.
                _ if listing && Instant::now() >= end => return self.cut(End::Broken(ENDLESS)),
                Err(_) if Instant::now() >= end => return End::Broken(SILENT),
                Err(_) => {
                    self.quiet = true;
                    return End::Quiet;
                }
                Ok(None) if events.is_cut() => return self.cut(End::Broken("truncated")),
                Ok(None) => return self.cut(End::Closed),
                Ok(Some(Err(error))) => {
                    tracing::debug!(resource = self.resource.plural, %error, "watch connection broke; resuming");
                    return self.cut(End::Broken("transport"));
                }
                Ok(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data() {
                        self.received();
                        events.push(data);
                    }
                }
            }
            if let Err(end) = self.read(&mut events, accept_older) {
                return self.cut(end);
            }
        }
    }

    /// Treats the early end of a streaming list as a refusal when it happens again and again.
    fn cut(&mut self, end: End) -> End {
        if !self.destination.is_listing() || matches!(end, End::Stale) {
            return end;
        }
        self.failed_streams += 1;
        if self.failed_streams >= STREAM_ATTEMPTS { End::StreamingRefused } else { end }
    }

    fn not_begun(&mut self, error: &ApiError, list: bool) -> End {
        let resource = self.resource.plural;
        let code = error.status().map_or(0, |status| status.code);
        if self.falls_back_to_json(error) {
            return End::EncodingRefused;
        }
        if list && matches!(code, 400 | 403 | 405 | 406 | 415 | 422 | 501) {
            tracing::debug!(resource, %error, "the API server refused a streaming list");
            return End::StreamingRefused;
        }
        if error.is_gone() || error.has_cause("ResourceVersionTooLarge") {
            return if list { self.cut(End::Expired) } else { End::Expired };
        }
        if code == 404 && self.destination.may_be_removed() {
            tracing::info!(resource, %error, "the API server no longer serves a resource");
        } else if error.status().is_none() && (self.attempt < QUIET_ATTEMPTS || self.api.is_out()) {
            // An outage has a line of its own, which is not one for each kind. A watch that alone gets no answer has none.
            tracing::debug!(resource, %error, "watch request failed; retrying");
        } else {
            tracing::warn!(resource, %error, "watch request failed; retrying");
        }
        if list {
            self.reachability.list_failed(error);
        }
        self.retry_after = error.asks_to_wait().unwrap_or_default();
        match code {
            429 => End::Broken(error.label()),
            400..500 if !list => End::NoWatch(error.label()),
            _ => End::Broken(error.label()),
        }
    }
}

#[cfg(test)]
mod tests;
