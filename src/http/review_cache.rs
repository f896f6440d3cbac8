//! A cache of the API server's answers to TokenReviews and SubjectAccessReviews, for a short time.
//!
//! The one guarantee: however many requests need the same review at once, and whether or not they wait for the
//! answer, one review is sent; and the cache is bounded.
//!
//! Its keys are hashes: a key is as large as the client chooses, or secret, and the cache is full of those of strangers.
//!
//! A client whose last review had a good answer is known: its reviews are not throttled, and have a share of their own.
//! Otherwise a client with many useless requests would lock out a scraper, which needs a review every half minute and
//! whose answer is cached for ten seconds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use tokio::sync::watch;
use tokio::time::Instant;

/// The most answers that are kept.
const ANSWERS: usize = 4096;

/// The most reviews of unknown clients in flight at once; known clients may have as many on top.
const QUESTIONS: usize = 64;

/// The most known clients that are remembered.
const KNOWN_CLIENTS: usize = 1024;

/// How long a client stays known after the last good answer: longer than any scrape interval.
const KNOWN_FOR: Duration = Duration::from_secs(3600);

/// The hash of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key([u8; 32]);

impl Key {
    /// Of the bytes that tell this question from any other.
    pub(super) fn of(question: &[u8]) -> Self {
        let mut key = Key([0; 32]);
        key.0.copy_from_slice(digest(&SHA256, question).as_ref());
        key
    }
}

/// The longest reason that is cached and shown, in bytes: an API server may answer with a long one.
const LONGEST_REASON: usize = 1024;

/// Cuts a reason of the API server.
pub(super) fn shorten(mut reason: String) -> String {
    reason.truncate(reason.floor_char_boundary(LONGEST_REASON));
    reason.shrink_to_fit();
    reason
}

/// Why no review was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotReviewed {
    /// Too many others are in flight.
    Overloaded,
    /// The client is throttled: too many of its questions had no good answer.
    Throttled,
}

/// Whether the last answer to a question was good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientClass {
    /// It was good.
    Known,
    /// There was none, or it was not good.
    Unknown,
}

/// An answer, and how it is cached.
pub(super) struct Answered<V> {
    pub(super) answer: V,
    /// How long it is cached.
    pub(super) keep: Duration,
    /// Whether it was a good one; `None` without an answer.
    pub(super) good: Option<bool>,
}

enum Slot<V> {
    Known { answer: V, until: Instant },
    InFlight(watch::Receiver<Option<V>>),
}

struct Slots<V> {
    slots: BTreeMap<Key, Slot<V>>,
    /// The known ones of them, the first to expire first.
    expiry: BTreeSet<(Instant, Key)>,
    in_flight: usize,
    /// Until when each is remembered.
    known_clients: BTreeMap<Key, Instant>,
}

/// A cache from questions to answers. Clones share it.
pub(super) struct ReviewCache<V> {
    inner: Arc<Mutex<Slots<V>>>,
}

impl<V> Clone for ReviewCache<V> {
    fn clone(&self) -> Self {
        ReviewCache { inner: self.inner.clone() }
    }
}

impl<V> Default for ReviewCache<V> {
    fn default() -> Self {
        let (slots, expiry, known_clients) = Default::default();
        let slots = Slots { slots, expiry, in_flight: 0, known_clients };
        ReviewCache { inner: Arc::new(Mutex::new(slots)) }
    }
}

/// How a caller gets its answer.
enum Lookup<V> {
    Known(V),
    Wait(watch::Receiver<Option<V>>),
    Ask(ClientClass, watch::Sender<Option<V>>, watch::Receiver<Option<V>>),
}

impl<V: Clone + Send + Sync + 'static> ReviewCache<V> {
    /// The answer, if it is cached.
    pub(super) fn known(&self, question: Key, now: Instant) -> Option<V> {
        match self.inner.lock().slots.get(&question) {
            Some(Slot::Known { answer, until }) if *until > now => Some(answer.clone()),
            _ => None,
        }
    }

    /// Whether the last answer to it was good.
    pub(super) fn class(&self, question: Key, now: Instant) -> ClientClass {
        self.inner.lock().class(question, now)
    }

    /// The answer, from the cache or through `ask`. `pay` decides whether a review for an unknown client is sent.
    ///
    /// The review runs in a task of its own: otherwise a client that disconnects and asks again would cause one
    /// review each time.
    pub(super) async fn get<F>(
        &self,
        question: Key,
        pay: impl FnOnce() -> bool,
        ask: impl FnOnce(ClientClass) -> F,
    ) -> Result<V, NotReviewed>
    where
        F: Future<Output = Answered<V>> + Send + 'static,
    {
        let mut waiting = match self.look_up(question, pay)? {
            Lookup::Known(answer) => return Ok(answer),
            Lookup::Wait(waiting) => waiting,
            Lookup::Ask(class, sender, waiting) => {
                let in_flight = InFlight { cache: self.clone(), question, answered: None };
                let asking = ask(class);
                tokio::spawn(async move {
                    let mut in_flight = in_flight;
                    let answered = asking.await;
                    let answer = answered.answer.clone();
                    in_flight.answered = Some(answered);
                    drop(in_flight);
                    // The caller may have disconnected.
                    let _ = sender.send(Some(answer));
                });
                waiting
            }
        };
        let answer = waiting.wait_for(Option::is_some).await.map_err(|_| NotReviewed::Overloaded)?;
        answer.clone().ok_or(NotReviewed::Overloaded)
    }

    fn look_up(&self, question: Key, pay: impl FnOnce() -> bool) -> Result<Lookup<V>, NotReviewed> {
        let now = Instant::now();
        let mut inner = self.inner.lock();
        match inner.slots.get(&question) {
            Some(Slot::Known { answer, until }) if *until > now => return Ok(Lookup::Known(answer.clone())),
            Some(Slot::InFlight(waiting)) => return Ok(Lookup::Wait(waiting.clone())),
            _ => {}
        }
        let class = inner.class(question, now);
        let most = if class == ClientClass::Known { 2 * QUESTIONS } else { QUESTIONS };
        if inner.in_flight >= most {
            return Err(NotReviewed::Overloaded);
        }
        if class == ClientClass::Unknown && !pay() {
            return Err(NotReviewed::Throttled);
        }
        let (sender, waiting) = watch::channel(None);
        inner.forget_expired(now);
        inner.slots.insert(question, Slot::InFlight(waiting.clone()));
        inner.in_flight += 1;
        Ok(Lookup::Ask(class, sender, waiting))
    }

    /// How many answers and reviews in flight there are.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.inner.lock().slots.len()
    }
}

impl<V> Slots<V> {
    fn class(&self, question: Key, now: Instant) -> ClientClass {
        let known = self.known_clients.get(&question).is_some_and(|until| *until > now);
        if known { ClientClass::Known } else { ClientClass::Unknown }
    }

    fn remember(&mut self, question: Key, good: bool, now: Instant) {
        self.known_clients.remove(&question);
        if !good {
            return;
        }
        if self.known_clients.len() >= KNOWN_CLIENTS {
            let soonest = self.known_clients.iter().min_by_key(|(_, until)| **until).map(|(key, _)| *key);
            soonest.and_then(|soonest| self.known_clients.remove(&soonest));
        }
        self.known_clients.insert(question, now + KNOWN_FOR);
    }

    /// Each answer is dropped once, so that this costs no scan.
    fn forget_expired(&mut self, now: Instant) {
        while self.expiry.first().is_some_and(|(until, _)| *until <= now) {
            self.forget_soonest();
        }
    }

    fn forget_soonest(&mut self) {
        if let Some((_, key)) = self.expiry.pop_first() {
            self.slots.remove(&key);
        }
    }
}

/// A review in flight. When it ends, even by a panic, the next caller may send it again.
struct InFlight<V> {
    cache: ReviewCache<V>,
    question: Key,
    answered: Option<Answered<V>>,
}

impl<V> Drop for InFlight<V> {
    fn drop(&mut self) {
        let now = Instant::now();
        let mut inner = self.cache.inner.lock();
        inner.in_flight -= 1;
        inner.slots.remove(&self.question);
        let Some(Answered { answer, keep, good }) = self.answered.take() else { return };
        if let Some(good) = good {
            inner.remember(self.question, good, now);
        }
        if keep.is_zero() {
            return;
        }
        if inner.slots.len() >= ANSWERS {
            inner.forget_soonest();
        }
        let until = now + keep;
        inner.expiry.insert((until, self.question));
        inner.slots.insert(self.question, Slot::Known { answer, until });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[derive(Clone, Default)]
    struct Server(Arc<AtomicUsize>);

    impl Server {
        fn answer(&self, keep: Duration) -> impl Future<Output = Answered<usize>> + Send + 'static {
            let asked = self.0.clone();
            async move {
                tokio::time::sleep(S).await;
                Answered { answer: asked.fetch_add(1, Ordering::Relaxed) + 1, keep, good: None }
            }
        }
    }

    fn key(n: usize) -> Key {
        Key::of(&n.to_le_bytes())
    }

    fn free() -> bool {
        true
    }

    fn answered(good: Option<bool>) -> impl Future<Output = Answered<bool>> + Send + 'static {
        std::future::ready(Answered { answer: good == Some(true), keep: S, good })
    }

    #[tokio::test(start_paused = true)]
    async fn a_thousand_equal_questions_cause_one_review() {
        let (cache, server) = (ReviewCache::default(), Server::default());
        let asking = (0..1000).map(|_| cache.get(Key::of(b"k"), free, |_| server.answer(10 * S)));
        let answers = futures::future::join_all(asking).await;
        assert!(answers.iter().all(|answer| *answer == Ok(1)));
        tokio::time::sleep(9 * S).await;
        assert_eq!(cache.get(Key::of(b"k"), free, |_| server.answer(S)).await, Ok(1));
        tokio::time::sleep(2 * S).await;
        assert_eq!(cache.get(Key::of(b"k"), free, |_| server.answer(S)).await, Ok(2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_disconnects_and_retries_causes_no_second_review() {
        let (cache, server) = (ReviewCache::default(), Server::default());
        for _ in 0..1000 {
            let impatient = cache.get(Key::of(b"k"), free, |_| server.answer(10 * S));
            let _ = tokio::time::timeout(Duration::from_micros(1), impatient).await;
        }
        assert_eq!(cache.get(Key::of(b"k"), free, |_| server.answer(10 * S)).await, Ok(1));
    }

    #[tokio::test(start_paused = true)]
    async fn many_different_questions_are_refused_instead_of_queued() {
        let (cache, server) = (ReviewCache::default(), Server::default());
        let asking = (0..1000).map(|n| cache.get(key(n), free, |_| server.answer(10 * S)));
        let answers = futures::future::join_all(asking).await;
        assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), QUESTIONS);
        assert_eq!(cache.len(), QUESTIONS);
    }

    #[tokio::test(start_paused = true)]
    async fn the_cache_is_bounded() {
        let cache = ReviewCache::default();
        for n in 0..2 * ANSWERS {
            let _ = cache
                .get(
                    key(n),
                    free,
                    |_| async move { Answered { answer: n, keep: 3600 * S, good: Some(true) } },
                )
                .await;
        }
        assert_eq!(cache.len(), ANSWERS);
        assert_eq!(cache.inner.lock().expiry.len(), ANSWERS);
        assert_eq!(cache.inner.lock().known_clients.len(), KNOWN_CLIENTS);
        assert!(cache.known(key(2 * ANSWERS - 1), Instant::now()).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_review_drops_every_answer_that_has_expired() {
        let cache = ReviewCache::default();
        let answer =
            |seconds| move |_| std::future::ready(Answered { answer: (), keep: seconds * S, good: None });
        for n in 0..1000 {
            assert_eq!(cache.get(key(n), free, answer(10)).await, Ok(()));
        }
        assert_eq!(cache.get(key(1000), free, answer(30)).await, Ok(()));
        tokio::time::sleep(10 * S).await;
        assert_eq!(cache.get(key(1001), free, answer(30)).await, Ok(()));
        assert_eq!(cache.len(), 2);
        // One that is asked again after it has expired has one time of expiry, the new one.
        tokio::time::sleep(30 * S).await;
        assert_eq!(cache.get(key(1000), free, answer(30)).await, Ok(()));
        assert_eq!((cache.len(), cache.inner.lock().expiry.len()), (1, 1));
    }

    #[test]
    fn a_long_reason_is_cut_between_two_characters() {
        assert_eq!(shorten("é".repeat(5000)), "é".repeat(LONGEST_REASON / 2));
        assert_eq!(shorten(format!("a{}", "é".repeat(5000))).len(), LONGEST_REASON - 1);
        assert_eq!(shorten("no".to_owned()), "no");
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_whose_review_panics_can_be_reviewed_again() {
        let cache = ReviewCache::<u32>::default();
        let answer = |answer| Answered { answer, keep: S, good: None };
        let panics = |_| async move { if true { panic!("a mistake") } else { answer(0) } };
        assert_eq!(cache.get(Key::of(b"k"), free, panics).await, Err(NotReviewed::Overloaded));
        assert_eq!(cache.get(Key::of(b"k"), free, |_| async move { answer(7) }).await, Ok(7));
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_review_of_an_unknown_client_costs_a_token_and_only_if_it_is_sent() {
        let cache = ReviewCache::default();
        let poor = || false;
        assert_eq!(
            cache.get(Key::of(b"k"), poor, |_| answered(Some(true))).await,
            Err(NotReviewed::Throttled)
        );
        assert_eq!(cache.get(Key::of(b"k"), free, |_| answered(Some(true))).await, Ok(true));
        assert_eq!(cache.get(Key::of(b"k"), poor, |_| answered(Some(false))).await, Ok(true), "it is known");
        tokio::time::sleep(2 * S).await;
        // An API server that does not answer does not change whether the client is known.
        assert_eq!(cache.get(Key::of(b"k"), poor, |_| answered(None)).await, Ok(false));
        tokio::time::sleep(2 * S).await;
        assert_eq!(cache.get(Key::of(b"k"), poor, |_| answered(Some(false))).await, Ok(false));
        tokio::time::sleep(2 * S).await;
        assert_eq!(
            cache.get(Key::of(b"k"), poor, |_| answered(Some(true))).await,
            Err(NotReviewed::Throttled)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_known_client_is_reviewed_although_too_many_unknown_clients_wait() {
        let (cache, server) = (ReviewCache::default(), Server::default());
        let good = |_| async { Answered { answer: 0, keep: S, good: Some(true) } };
        assert_eq!(cache.get(key(0), free, good).await, Ok(0));
        tokio::time::sleep(2 * S).await;
        let unknown_clients = (1..1000).map(|n| cache.get(key(n), free, |_| server.answer(S)));
        let unknown_clients = futures::future::join_all(unknown_clients);
        let known = async {
            tokio::time::sleep(S / 2).await;
            (cache.get(key(0), free, good).await, cache.get(key(1000), free, good).await)
        };
        assert_eq!(tokio::join!(unknown_clients, known).1, (Ok(0), Err(NotReviewed::Overloaded)));
    }
}
