//! Answers of the API server about who somebody is and what they may, kept for a short time.
//!
//! The one guarantee: however many requests ask the same at once, and whether or not they wait for the
//! answer, the API server is asked once; and what is kept is bounded.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

/// So many answers are kept.
const ANSWERS: usize = 4096;

/// So many questions may wait for their answer at once.
const QUESTIONS: usize = 64;

/// Too many different questions wait for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Overloaded;

enum Slot<V> {
    Known { answer: V, until: Instant },
    Asked(watch::Receiver<Option<V>>),
}

struct Slots<K, V> {
    slots: BTreeMap<K, Slot<V>>,
    asked: usize,
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
        ReviewCache { inner: Arc::new(Mutex::new(Slots { slots: BTreeMap::new(), asked: 0 })) }
    }
}

/// What a caller does about its question.
enum Turn<V> {
    Known(V),
    Wait(watch::Receiver<Option<V>>),
    Ask(watch::Sender<Option<V>>, watch::Receiver<Option<V>>),
    Overloaded,
}

impl<K, V> ReviewCache<K, V>
where
    K: Ord + Clone + Send + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// The answer, if it is known at present.
    pub(super) fn known(&self, question: &K, now: Instant) -> Option<V> {
        match self.inner.lock().slots.get(question) {
            Some(Slot::Known { answer, until }) if *until > now => Some(answer.clone()),
            _ => None,
        }
    }

    /// The answer, by `ask` if need be, which says how long to keep it as well.
    ///
    /// The question is asked in a task of its own: a client that hangs up as soon as it has asked, and
    /// asks again, would have it asked each time else.
    pub(super) async fn get<F>(&self, question: K, ask: impl FnOnce() -> F) -> Result<V, Overloaded>
    where
        F: Future<Output = (V, Duration)> + Send + 'static,
    {
        let mut waiting = match self.turn(&question) {
            Turn::Known(answer) => return Ok(answer),
            Turn::Overloaded => return Err(Overloaded),
            Turn::Wait(waiting) => waiting,
            Turn::Ask(told, waiting) => {
                let asked = Asked { cache: self.clone(), question, answer: None };
                let asking = ask();
                tokio::spawn(async move {
                    let mut asked = asked;
                    let (answer, keep) = asking.await;
                    asked.answer = Some((answer.clone(), Instant::now() + keep));
                    drop(asked);
                    // Nobody may be waiting any more.
                    let _ = told.send(Some(answer));
                });
                waiting
            }
        };
        let answer = waiting.wait_for(Option::is_some).await.map_err(|_| Overloaded)?;
        answer.clone().ok_or(Overloaded)
    }

    fn turn(&self, question: &K) -> Turn<V> {
        let now = Instant::now();
        let mut inner = self.inner.lock();
        match inner.slots.get(question) {
            Some(Slot::Known { answer, until }) if *until > now => return Turn::Known(answer.clone()),
            Some(Slot::Asked(waiting)) => return Turn::Wait(waiting.clone()),
            _ => {}
        }
        if inner.asked >= QUESTIONS {
            return Turn::Overloaded;
        }
        let (told, waiting) = watch::channel(None);
        inner.slots.insert(question.clone(), Slot::Asked(waiting.clone()));
        inner.asked += 1;
        Turn::Ask(told, waiting)
    }

    /// How many answers and questions are kept.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.inner.lock().slots.len()
    }
}

/// A question that is being asked. When it ends, by a panic for example, the next one may ask again.
struct Asked<K: Ord + Clone, V> {
    cache: ReviewCache<K, V>,
    question: K,
    answer: Option<(V, Instant)>,
}

impl<K: Ord + Clone, V> Drop for Asked<K, V> {
    fn drop(&mut self) {
        let now = Instant::now();
        let mut inner = self.cache.inner.lock();
        inner.asked -= 1;
        inner.slots.remove(&self.question);
        let Some((answer, until)) = self.answer.take().filter(|(_, until)| *until > now) else { return };
        if inner.slots.len() >= ANSWERS {
            inner.slots.retain(|_, slot| !matches!(slot, Slot::Known { until, .. } if *until <= now));
        }
        if inner.slots.len() >= ANSWERS {
            let until_of = |slot: &Slot<V>| match slot {
                Slot::Known { until, .. } => Some(*until),
                Slot::Asked(_) => None,
            };
            let known = inner.slots.iter().filter_map(|(key, slot)| Some((until_of(slot)?, key)));
            if let Some(soonest) = known.min().map(|(_, key)| key.clone()) {
                inner.slots.remove(&soonest);
            }
        }
        inner.slots.insert(self.question.clone(), Slot::Known { answer, until });
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
        fn answer(&self, keep: Duration) -> impl Future<Output = (usize, Duration)> + Send + 'static {
            let asked = self.0.clone();
            async move {
                tokio::time::sleep(S).await;
                (asked.fetch_add(1, Ordering::Relaxed) + 1, keep)
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_thousand_who_ask_the_same_are_one_question() {
        let (cache, server) = (ReviewCache::default(), Server::default());
        let asking = (0..1000).map(|_| cache.get("k", || server.answer(10 * S)));
        let answers = futures::future::join_all(asking).await;
        assert!(answers.iter().all(|answer| *answer == Ok(1)));
        tokio::time::sleep(9 * S).await;
        assert_eq!(cache.get("k", || server.answer(S)).await, Ok(1));
        tokio::time::sleep(2 * S).await;
        assert_eq!(cache.get("k", || server.answer(S)).await, Ok(2));
    }

    #[tokio::test(start_paused = true)]
    async fn who_hangs_up_and_asks_again_does_not_have_it_asked_again() {
        let (cache, server) = (ReviewCache::default(), Server::default());
        for _ in 0..1000 {
            let impatient = cache.get("k", || server.answer(10 * S));
            let _ = tokio::time::timeout(Duration::from_micros(1), impatient).await;
        }
        assert_eq!(cache.get("k", || server.answer(10 * S)).await, Ok(1));
    }

    #[tokio::test(start_paused = true)]
    async fn many_different_questions_are_refused_instead_of_queued() {
        let (cache, server) = (ReviewCache::default(), Server::default());
        let asking = (0..1000).map(|n| cache.get(n, || server.answer(10 * S)));
        let answers = futures::future::join_all(asking).await;
        assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), QUESTIONS);
        assert_eq!(cache.len(), QUESTIONS);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_kept_is_bounded() {
        let cache = ReviewCache::default();
        for n in 0..2 * ANSWERS {
            let _ = cache.get(n, || async move { (n, 3600 * S) }).await;
        }
        assert_eq!(cache.len(), ANSWERS);
        assert!(cache.known(&(2 * ANSWERS - 1), Instant::now()).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_whose_asking_panics_can_be_asked_again() {
        let cache = ReviewCache::<&str, u32>::default();
        let panics = || async { if true { panic!("a mistake") } else { (0, S) } };
        assert_eq!(cache.get("k", panics).await, Err(Overloaded));
        assert_eq!(cache.get("k", || async { (7, S) }).await, Ok(7));
    }
}
