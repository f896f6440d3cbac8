//! Lists in pages, applied while they arrive.

use std::time::Duration;

use http_body_util::BodyExt;

use super::{ENDLESS, End, Reflector};
use crate::model::wire::Version;
use crate::runtime::api::{ApiError, LIST_TIMEOUT};
use crate::runtime::list_decoder::{AnyListDecoder, ListMeta, Part};
use crate::runtime::request;

/// How often a paged list may expire on the way before it is requested in one piece.
const PAGED_ATTEMPTS: u32 = 2;

/// How long the answer to a page may take to begin. A whole list, which the API server reads from its database, may
/// take as long as the server lets any request take.
const PAGE_TIMEOUT: Duration = Duration::from_secs(40);

/// How long a list may pause once it has begun.
const PAUSE: Duration = Duration::from_secs(30);

/// How many pages without an object may follow each other, and how many pages a list may have: 10 million objects at 500 a
/// page. Tokens that change for ever would keep a cache from being complete without a word.
const EMPTY_PAGES: u32 = 50;
const PAGES: u32 = 20_000;

/// The state that the next list must show.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ListFreshness {
    /// Any state: it only fills a cache that is brought up to date before it is used.
    Any,
    /// At least the state of the cache. The server may take it from a cache of its own.
    NotOlder(Version),
    /// Everything that has happened until now.
    Everything,
}

/// Why a page failed.
pub(super) struct Failure {
    reason: &'static str,
    text: String,
    wait: Option<Duration>,
}

impl Failure {
    fn malformed(text: impl std::fmt::Display) -> Self {
        Failure { reason: "malformed", text: text.to_string(), wait: None }
    }

    fn of(error: &ApiError) -> Self {
        Failure { reason: error.label(), text: error.to_string(), wait: error.retry_after() }
    }
}

/// The end of a failed page.
enum PageError {
    /// The page may be requested again.
    Failed(Failure),
    /// The whole list must begin again.
    Restart(End),
}

impl Reflector {
    /// Waits for the turn of a list, unless it has one.
    pub(super) async fn take_turn(&mut self) {
        if let (None, Some(turns)) = (&self.turn, &self.turns) {
            self.turn = Some(turns.take().await);
        }
    }

    /// The server has sent something.
    pub(super) fn received(&self) {
        self.reachability.record();
        if let Some(turn) = &self.turn {
            turn.progressed();
        }
    }

    /// Reads a list in pages. A page that fails is requested again, not the pages before it.
    pub(super) async fn list(&mut self) -> End {
        self.take_turn().await;
        let mut accept_older = self.begin_list();
        let (mut token, mut first_version, mut attempt) = (None::<String>, None, 0);
        let (mut pages, mut empty_pages) = (0, 0);
        loop {
            self.take_turn().await;
            let failure = match self.page(token.as_deref(), first_version.is_none(), accept_older).await {
                Ok((meta, objects)) if meta.next.is_none() || meta.next != token => {
                    attempt = 0;
                    pages += 1;
                    empty_pages = if objects == 0 { empty_pages + 1 } else { 0 };
                    if meta.next.is_some() && (empty_pages == EMPTY_PAGES || pages == PAGES) {
                        let text = format!(
                            "the list has no end: {pages} pages, the last {empty_pages} without an object"
                        );
                        self.reachability.list_failed(&text);
                        tracing::warn!(
                            resource = self.resource.plural,
                            error = text,
                            "list is given up; listing again"
                        );
                        return End::Broken(ENDLESS);
                    }
                    let version = first_version.get_or_insert(meta.version);
                    token = meta.next;
                    if token.is_none() {
                        self.end_list(version);
                        return End::Listed;
                    }
                    continue;
                }
                Ok(_) => Failure::malformed("the next page is this page"),
                Err(PageError::Restart(end)) => return end,
                Err(PageError::Failed(failure)) => failure,
            };
            if first_version.is_none() {
                // Objects of the first page may be missing when it is read again, at another version.
                accept_older = self.begin_list();
            }
            attempt += 1;
            let wait = self.delay_for(attempt).max(failure.wait.unwrap_or_default());
            self.count(failure.reason);
            self.reachability.failed(&failure.text);
            self.reachability.list_failed(&failure.text);
            self.warn(&failure.text, wait);
            self.turn = None;
            tokio::time::sleep(wait).await;
        }
    }

    fn list_freshness(&self) -> ListFreshness {
        match self.destination.position() {
            _ if self.consistent || self.stale_lists > 0 => ListFreshness::Everything,
            0 if self.may_lag => ListFreshness::Any,
            0 => ListFreshness::Everything,
            _ => ListFreshness::NotOlder(self.destination.resumes_at()),
        }
    }

    /// Applies one page, and tells how many objects it had. A server that has a cache of its own may send the whole list, whatever the limit.
    async fn page(
        &mut self,
        token: Option<&str>,
        first: bool,
        accept_older: bool,
    ) -> Result<(ListMeta, usize), PageError> {
        let (limit, position);
        let mut query = Vec::new();
        let in_pieces = self.expired_lists < PAGED_ATTEMPTS;
        match (token, self.list_freshness()) {
            (Some(token), _) => {
                limit = self.page_size.to_string();
                query.extend([("limit", limit.as_str()), ("continue", token)]);
            }
            // In one piece, since only then it comes from the server's cache and does not load etcd.
            (None, ListFreshness::NotOlder(seen)) if in_pieces => {
                position = seen.to_string();
                query.extend([
                    ("resourceVersion", position.as_str()),
                    ("resourceVersionMatch", "NotOlderThan"),
                ]);
            }
            (None, freshness) => {
                limit = if in_pieces { self.page_size } else { 0 }.to_string();
                query.push(("limit", limit.as_str()));
                query.extend(
                    (freshness == ListFreshness::Any && in_pieces).then_some(("resourceVersion", "0")),
                );
            }
        }
        query.extend(self.selector.as_deref().map(|selector| ("labelSelector", selector)));
        query.extend(self.field_selector.map(|selector| ("fieldSelector", selector)));
        let timeout = if in_pieces { PAGE_TIMEOUT } else { LIST_TIMEOUT };
        let request = request::get_as(self.accept_list(), &self.path, &query);
        let response = match self.api.with_timeout(timeout).stream(request).await {
            Ok(response) => response,
            Err(error) if self.falls_back_to_json(&error) => {
                return Err(PageError::Restart(End::EncodingRefused));
            }
            Err(error) if error.is_gone() && token.is_some() => {
                self.expired_lists += 1;
                return Err(PageError::Restart(End::Expired));
            }
            Err(error) if error.is_gone() || error.has_cause("ResourceVersionTooLarge") => {
                // The server has compacted our version, or has never had it.
                self.consistent = true;
                return Err(PageError::Failed(Failure::of(&error)));
            }
            Err(error) => return Err(PageError::Failed(Failure::of(&error))),
        };
        let mut decoder = AnyListDecoder::of(response.headers());
        let mut body = response.into_body();
        let (mut received, mut objects) = (0, 0);
        let failed = |text: &dyn std::fmt::Display| PageError::Failed(Failure::malformed(text));
        loop {
            match tokio::time::timeout(PAUSE, body.frame()).await {
                Err(_) => {
                    let text = format!("the list stopped on the way for {} s", PAUSE.as_secs());
                    return Err(PageError::Failed(Failure { reason: "timeout", text, wait: None }));
                }
                Ok(None) => break,
                Ok(Some(Err(error))) => {
                    let text = format!("the list broke off: {error}");
                    return Err(PageError::Failed(Failure { reason: "transport", text, wait: None }));
                }
                Ok(Some(Ok(frame))) => {
                    let Ok(data) = frame.into_data() else { continue };
                    self.received();
                    received += data.len();
                    decoder.push(data);
                }
            }
            while let Some(part) = decoder.next().map_err(|error| failed(&error))? {
                match part {
                    Part::Meta(meta) => {
                        self.accepts(&meta.version).map_err(|error| failed(&error))?;
                        if first && self.is_stale(&meta.version, accept_older) {
                            return Err(PageError::Restart(End::Stale));
                        }
                    }
                    Part::Item(item) => {
                        objects += 1;
                        self.destination.put(decoder.encoded(&item));
                    }
                }
            }
        }
        self.api.received("GET", received);
        Ok((decoder.finish().map_err(|error| failed(&error))?, objects))
    }

    fn warn(&self, error: &str, wait: Duration) {
        let (resource, seconds) = (self.resource.plural, wait.as_secs_f64());
        tracing::warn!(resource, error, retry_seconds = seconds, "list request failed; retrying");
    }
}
