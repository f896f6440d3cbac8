//! A cache of the API server's answers to TokenReviews and SubjectAccessReviews, for a short time.
//!
//! The one guarantee: however many requests need the same review at once, and whether or not they wait for the
//! answer, one review is sent; and the cache is bounded.
//!
//! A client whose last review had a good answer is known: its reviews are not throttled, and have a share of their own.
//! Otherwise a client with many useless requests would lock out a scraper, which needs a review every half minute and
//! whose answer is cached for ten seconds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
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

struct Slots<K, V> {
    slots: BTreeMap<K, Slot<V>>,
    in_flight: usize,
    /// Until when each is remembered.
    known_clients: BTreeMap<K, Instant>,
}

/// A cache from questions to answers. Clones share it.
pub(super) struct ReviewCache<K, V> {
    inner: Arc<Mutex<Slots<K, V>>>,
}

impl<K, V> Clone for ReviewCache<K, V> {
    fn clone(&self) -> Self {
        ReviewCache { inner: self.inner.clone() }
    }
}

impl<K, V> Default for ReviewCache<K, V> {
    fn default() -> Self {
        let slots = Slots { slots: BTreeMap::new(), in_flight: 0, known_clients: BTreeMap::new() };
        ReviewCache { inner: Arc::new(Mutex::new(slots)) }
    }
}

/// How a caller gets its answer.
enum Lookup<V> {
    Known(V),
    Wait(watch::Receiver<Option<V>>),
    Ask(ClientClass, watch::Sender<Option<V>>, watch::Receiver<Option<V>>),
}

impl<K, V> ReviewCache<K, V>
where
    K: Ord + Clone + Send + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// The answer, if it is cached.
    pub(super) fn known(&self, question: &K, now: Instant) -> Option<V> {
        match self.inner.lock().slots.get(question) {
            Some(Slot::Known { answer, until }) if *until > now => Some(answer.clone()),
            _ => None,
        }
    }

    /// Whether the last answer to it was good.
    pub(super) fn class(&self, question: &K, now: Instant) -> ClientClass {
        self.inner.lock().class(question, now)
    }

    /// The answer, from the cache or through `ask`. `pay` decides whether a review for an unknown client is sent.
    ///
    /// The review runs in a task of its own: otherwise a client that disconnects and asks again would cause one
    /// review each time.
    pub(super) async fn get<F>(
        &self,
        question: K,
        pay: impl FnOnce() -> bool,
        ask: impl FnOnce(ClientClass) -> F,
    ) -> Result<V, NotReviewed>
    where
        F: Future<Output = Answered<V>> + Send + 'static,
    {
        let mut waiting = match self.look_up(&question, pay)? {
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

    fn look_up(&self, question: &K, pay: impl FnOnce() -> bool) -> Result<Lookup<V>, NotReviewed> {
        let now = Instant::now();
        let mut inner = self.inner.lock();
        match inner.slots.get(question) {
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
        inner.slots.insert(question.clone(), Slot::InFlight(waiting.clone()));
        inner.in_flight += 1;
        Ok(Lookup::Ask(class, sender, waiting))
    }

    /// How many answers and reviews in flight there are.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.inner.lock().slots.len()
    }
}

impl<K: Ord + Clone, V> Slots<K, V> {
    fn class(&self, question: &K, now: Instant) -> ClientClass {
        let known = self.known_clients.get(question).is_some_and(|until| *until > now);
        if known { ClientClass::Known } else { ClientClass::Unknown }
    }

    fn remember(&mut self, question: &K, good: bool, now: Instant) {
        self.known_clients.remove(question);
        if !good {
            return;
        }
        if self.known_clients.len() >= KNOWN_CLIENTS {
            let soonest =
                self.known_clients.iter().min_by_key(|(_, until)| **until).map(|(key, _)| key.clone());
            soonest.and_then(|soonest| self.known_clients.remove(&soonest));
        }
        self.known_clients.insert(question.clone(), now + KNOWN_FOR);
    }
}

/// A review in flight. When it ends, even by a panic, the next caller may send it again.
struct InFlight<K: Ord + Clone, V> {
    cache: ReviewCache<K, V>,
    question: K,
    answered: Option<Answered<V>>,
}

impl<K: Ord + Clone, V> Drop for InFlight<K, V> {
    fn drop(&mut self) {
        let now = Instant::now();
        let mut inner = self.cache.inner.lock();
        inner.in_flight -= 1;
        inner.slots.remove(&self.question);
        let Some(Answered { answer, keep, good }) = self.answered.take() else { return };
        if let Some(good) = good {
            inner.remember(&self.question, good, now);
        }
        if keep.is_zero() {
            return;
        }
        if inner.slots.len() >= ANSWERS {
            inner.slots.retain(|_, slot| !matches!(slot, Slot::Known { until, .. } if *until <= now));
        }
        if inner.slots.len() >= ANSWERS {
            let until_of = |slot: &Slot<V>| match slot {
                Slot::Known { until, .. } => Some(*until),
                Slot::InFlight(_) => None,
            };
            let known = inner.slots.iter().filter_map(|(key, slot)| Some((until_of(slot)?, key)));
            if let Some(soonest) = known.min().map(|(_, key)| key.clone()) {
                inner.slots.remove(&soonest);
            }
        }
        inner.slots.insert(self.question.clone(), Slot::Known { answer, until: now + keep });
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

    fn free() -> bool {
        true
    }

    fn answered(good: Option<bool>) -> impl Future<Output = Answered<bool>> + Send + 'static {
        std::future::ready(Answered { answer: good == Some(true), keep: S, good })
    }

    #[tokio::test(start_paused = true)]
    async fn a_thousand_equal_questions_cause_one_review() {
        let (cache, server) = (ReviewCache::default(), Server::default());
        let asking = (0..1000).map(|_| cache.get("k", free, |_| server.answer(10 * S)));
        let answers = futures::future::join_all(asking).await;
        assert!(answers.iter().all(|answer| *answer == Ok(1)));
        tokio::time::sleep(9 * S).await;
        assert_eq!(cache.get("k", free, |_| server.answer(S)).await, Ok(1));
        tokio::time::sleep(2 * S).await;
        assert_eq!(cache.get("k", free, |_| server.answer(S)).await, Ok(2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_disconnects_and_retries_causes_no_second_review() {
        let (cache, server) = (ReviewCache::default(), Server::default());
        for _ in 0..1000 {
            let impatient = cache.get("k", free, |_| server.answer(10 * S));
            let _ = tokio::time::timeout(Duration::from_micros(1), impatient).await;
        }
        assert_eq!(cache.get("k", free, |_| server.answer(10 * S)).await, Ok(1));
    }

    #[tokio::test(start_paused = true)]
    async fn many_different_questions_are_refused_instead_of_queued() {
        let (cache, server) = (ReviewCache::default(), Server::default());
        let asking = (0..1000).map(|n| cache.get(n, free, |_| server.answer(10 * S)));
        let answers = futures::future::join_all(asking).await;
        assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), QUESTIONS);
        assert_eq!(cache.len(), QUESTIONS);
    }

    #[tokio::test(start_paused = true)]
    async fn the_cache_is_bounded() {
        let cache = ReviewCache::default();
        for n in 0..2 * ANSWERS {
            let _ = cache
                .get(n, free, |_| async move { Answered { answer: n, keep: 3600 * S, good: Some(true) } })
                .await;
        }
        assert_eq!(cache.len(), ANSWERS);
        assert_eq!(cache.inner.lock().known_clients.len(), KNOWN_CLIENTS);
        assert!(cache.known(&(2 * ANSWERS - 1), Instant::now()).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_whose_review_panics_can_be_reviewed_again() {
        let cache = ReviewCache::<&str, u32>::default();
        let answer = |answer| Answered { answer, keep: S, good: None };
        let panics = |_| async move { if true { panic!("a mistake") } else { answer(0) } };
        assert_eq!(cache.get("k", free, panics).await, Err(NotReviewed::Overloaded));
        assert_eq!(cache.get("k", free, |_| async move { answer(7) }).await, Ok(7));
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_review_of_an_unknown_client_costs_a_token_and_only_if_it_is_sent() {
        let cache = ReviewCache::default();
        let poor = || false;
        assert_eq!(cache.get("k", poor, |_| answered(Some(true))).await, Err(NotReviewed::Throttled));
        assert_eq!(cache.get("k", free, |_| answered(Some(true))).await, Ok(true));
        assert_eq!(cache.get("k", poor, |_| answered(Some(false))).await, Ok(true), "it is known");
        tokio::time::sleep(2 * S).await;
        // An API server that does not answer does not change whether the client is known.
        assert_eq!(cache.get("k", poor, |_| answered(None)).await, Ok(false));
        tokio::time::sleep(2 * S).await;
        assert_eq!(cache.get("k", poor, |_| answered(Some(false))).await, Ok(false));
        tokio::time::sleep(2 * S).await;
        assert_eq!(cache.get("k", poor, |_| answered(Some(true))).await, Err(NotReviewed::Throttled));
    }

    #[tokio::test(start_paused = true)]
    async fn a_known_client_is_reviewed_although_too_many_unknown_clients_wait() {
        let (cache, server) = (ReviewCache::default(), Server::default());
        let good = |_| async { Answered { answer: 0, keep: S, good: Some(true) } };
        assert_eq!(cache.get(0, free, good).await, Ok(0));
        tokio::time::sleep(2 * S).await;
        let unknown_clients = (1..1000).map(|n| cache.get(n, free, |_| server.answer(S)));
        let unknown_clients = futures::future::join_all(unknown_clients);
        let known = async {
            tokio::time::sleep(S / 2).await;
            (cache.get(0, free, good).await, cache.get(1000, free, good).await)
        };
        assert_eq!(tokio::join!(unknown_clients, known).1, (Ok(0), Err(NotReviewed::Overloaded)));
    }
}
