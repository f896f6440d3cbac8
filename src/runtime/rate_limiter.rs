//! The client's own rate limiter: a token bucket that serves the owners of waiting requests in turn.

mod round_robin;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use self::round_robin::RoundRobin;
use crate::model::Uid;

/// The slowest rate: smaller ones are raised to this, which keeps all sums within a `Duration`.
const LONGEST_INTERVAL: Duration = Duration::from_secs(3600);

/// A token bucket as arithmetic on instants: one token each `interval`, at most `burst` stored.
///
/// It keeps one instant, the time at which the bucket will be full again, instead of a fractional
/// number of tokens, so that nothing is lost to rounding over a long life.
#[derive(Debug)]
struct Bucket {
    interval: Duration,
    /// The time that it takes to fill an empty bucket.
    capacity: Duration,
    full_at: Instant,
}

impl Bucket {
    /// Takes a token, or returns how long to wait for one.
    fn take(&mut self, now: Instant) -> Result<(), Duration> {
        let missing = self.full_at.saturating_duration_since(now) + self.interval;
        match missing.checked_sub(self.capacity) {
            None | Some(Duration::ZERO) => {
                self.full_at = now + missing;
                Ok(())
            }
            Some(wait) => Err(wait),
        }
    }
}

/// Delays requests so that no more than `burst` at once and `qps` per second in the long run pass.
/// Clones share the bucket.
///
/// Waiting requests pass in turns: one of each owner, then the next of each. A batch of 500 pods of one
/// ReplicaSet delays a request for another one by a single token, not by 500. Requests without an
/// owner count as one owner.
#[derive(Clone, Debug)]
pub struct RateLimiter {
    shared: Option<Arc<Mutex<Shared>>>,
    owner: Option<Uid>,
}

#[derive(Debug)]
struct Shared {
    bucket: Bucket,
    /// Each with the wake-up for its turn.
    queue: RoundRobin<Option<Uid>, Arc<Notify>>,
}

impl RateLimiter {
    /// A limit of `qps` requests per second after the first `burst`. As with `--kube-api-qps`, a rate
    /// that is not positive means no limit.
    pub fn new(qps: f64, burst: u32) -> Self {
        if !(qps > 0.0 && qps.is_finite()) {
            return RateLimiter::unlimited();
        }
        let interval =
            Duration::try_from_secs_f64(1.0 / qps).unwrap_or(LONGEST_INTERVAL).min(LONGEST_INTERVAL);
        let capacity = interval.saturating_mul(burst.max(1));
        let bucket = Bucket { interval, capacity, full_at: Instant::now() };
        let shared = Shared { bucket, queue: RoundRobin::default() };
        RateLimiter { shared: Some(Arc::new(Mutex::new(shared))), owner: None }
    }

    /// No limit.
    pub fn unlimited() -> Self {
        RateLimiter { shared: None, owner: None }
    }

    /// The same bucket, for requests on behalf of this owner.
    pub fn on_behalf_of(&self, owner: &Uid) -> Self {
        RateLimiter { owner: Some(owner.clone()), ..self.clone() }
    }

    /// Waits for a token, in turn with other waiting requests, and returns how long that took. A cancelled
    /// wait takes nothing.
    pub async fn acquire(&self) -> Duration {
        let Some(shared) = &self.shared else { return Duration::ZERO };
        let start = Instant::now();
        let queued = {
            let mut locked = shared.lock();
            if locked.queue.is_empty() && locked.bucket.take(start).is_ok() {
                return Duration::ZERO;
            }
            let wake = Arc::new(Notify::new());
            let ticket = locked.queue.join(&self.owner, wake.clone());
            QueuedRequest { shared, owner: &self.owner, ticket, wake }
        };
        loop {
            match queued.try_admit(Instant::now()) {
                Admission::Done => return start.elapsed(),
                Admission::NoToken(wait) => tokio::time::sleep(wait).await,
                Admission::NotNext => queued.wake.notified().await,
            }
        }
    }
}

/// A request in the queue, which leaves it when it is dropped.
struct QueuedRequest<'l> {
    shared: &'l Mutex<Shared>,
    owner: &'l Option<Uid>,
    ticket: u64,
    wake: Arc<Notify>,
}

enum Admission {
    /// It has its token and is out of the queue.
    Done,
    /// It is its turn, and the next token comes after this time.
    NoToken(Duration),
    /// It is another's turn.
    NotNext,
}

impl QueuedRequest<'_> {
    fn try_admit(&self, now: Instant) -> Admission {
        let mut shared = self.shared.lock();
        if !shared.queue.is_next(self.ticket) {
            return Admission::NotNext;
        }
        if let Err(wait) = shared.bucket.take(now) {
            return Admission::NoToken(wait);
        }
        shared.queue.pop();
        shared.wake_next();
        Admission::Done
    }
}

impl Drop for QueuedRequest<'_> {
    fn drop(&mut self) {
        let mut shared = self.shared.lock();
        shared.queue.leave(self.owner, self.ticket);
        // Once too often where the next request has been woken already: it checks, and waits on.
        shared.wake_next();
    }
}

impl Shared {
    fn wake_next(&self) {
        if let Some((_, wake)) = self.queue.next() {
            wake.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_burst_passes_at_once_and_then_the_rate_holds() {
        let rate_limiter = RateLimiter::new(10.0, 5);
        let start = Instant::now();
        for _ in 0..5 {
            assert_eq!(rate_limiter.acquire().await, Duration::ZERO);
        }
        for _ in 0..20 {
            rate_limiter.acquire().await;
        }
        assert_eq!(start.elapsed(), 2 * S);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_fills_the_bucket_but_never_above_the_burst() {
        let rate_limiter = RateLimiter::new(10.0, 3);
        tokio::time::sleep(3600 * S).await;
        let start = Instant::now();
        for _ in 0..4 {
            rate_limiter.acquire().await;
        }
        assert_eq!(start.elapsed(), S / 10);
    }

    #[tokio::test(start_paused = true)]
    async fn waiters_pass_in_the_order_they_came() {
        let rate_limiter = RateLimiter::new(1.0, 1);
        rate_limiter.acquire().await;
        let (order, mut passed) = tokio::sync::mpsc::unbounded_channel();
        for n in 0..5 {
            let (rate_limiter, order) = (rate_limiter.clone(), order.clone());
            tokio::spawn(async move {
                rate_limiter.acquire().await;
                order.send(n).unwrap();
            });
            tokio::task::yield_now().await;
        }
        for n in 0..5 {
            assert_eq!(passed.recv().await, Some(n));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_request_takes_no_token_and_blocks_no_other() {
        let rate_limiter = RateLimiter::new(1.0, 1);
        rate_limiter.acquire().await;
        let start = Instant::now();
        assert!(tokio::time::timeout(S / 2, rate_limiter.acquire()).await.is_err());
        rate_limiter.acquire().await;
        assert_eq!(start.elapsed(), S);
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_of_one_owner_delays_a_request_of_another_by_one_token() {
        let rate_limiter = RateLimiter::new(20.0, 30);
        let big = rate_limiter.on_behalf_of(&Uid::new("big"));
        let passed = Arc::new(Mutex::new(0));
        for _ in 0..500 {
            let (big, passed) = (big.clone(), passed.clone());
            tokio::spawn(async move {
                big.acquire().await;
                *passed.lock() += 1;
            });
        }
        tokio::time::sleep(3 * S).await;
        let small = rate_limiter.on_behalf_of(&Uid::new("small"));
        for _ in 0..20 {
            let waited = small.acquire().await;
            assert!(waited <= S / 10, "waited for {waited:?} behind another owner's batch");
        }
        // The rate is the same for all of them together: 30 at once, and 20 in each of five seconds.
        let total = *passed.lock() + 20;
        assert!((128..=131).contains(&total), "{total} passed within five seconds");
    }

    #[tokio::test(start_paused = true)]
    async fn owners_with_batches_share_the_rate_evenly() {
        let rate_limiter = RateLimiter::new(10.0, 1);
        let counts = Arc::new(Mutex::new([0; 5]));
        for owner in 0..5 {
            let rate_limiter = rate_limiter.on_behalf_of(&Uid::new(&owner.to_string()));
            for _ in 0..100 * (owner + 1) {
                let (rate_limiter, counts) = (rate_limiter.clone(), counts.clone());
                tokio::spawn(async move {
                    rate_limiter.acquire().await;
                    counts.lock()[owner] += 1;
                });
            }
        }
        tokio::time::sleep(30 * S).await;
        let counts = *counts.lock();
        assert!(counts.iter().all(|count| (59..=61).contains(count)), "{counts:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_request_passes_its_turn_on() {
        let rate_limiter = RateLimiter::new(1.0, 1);
        rate_limiter.acquire().await;
        let start = Instant::now();
        let impatient = rate_limiter.on_behalf_of(&Uid::new("impatient"));
        let waits: Vec<_> = (0..3)
            .map(|_| {
                let rate_limiter = impatient.clone();
                tokio::spawn(async move { rate_limiter.acquire().await })
            })
            .collect();
        tokio::task::yield_now().await;
        let patient = rate_limiter.on_behalf_of(&Uid::new("patient"));
        let patient = tokio::spawn(async move { patient.acquire().await });
        tokio::time::sleep(S / 2).await;
        // The one whose turn it is, and one that only waits.
        waits[0].abort();
        waits[2].abort();
        patient.await.unwrap();
        assert!(start.elapsed() <= 2 * S, "{:?}", start.elapsed());
        rate_limiter.acquire().await;
        assert_eq!(start.elapsed(), 3 * S, "those that gave up took no token");
        let queue = &rate_limiter.shared.as_ref().unwrap().lock().queue;
        assert!(queue.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn odd_numbers_neither_panic_nor_block_for_ever() {
        for (qps, burst) in [(0.0, 0), (-1.0, 5), (f64::NAN, 1), (f64::INFINITY, 1), (1e300, u32::MAX)] {
            assert_eq!(RateLimiter::new(qps, burst).acquire().await, Duration::ZERO);
        }
        let slow = RateLimiter::new(1e-300, u32::MAX);
        for _ in 0..3 {
            slow.acquire().await;
        }
        let slowest = RateLimiter::new(1e-300, 0);
        slowest.acquire().await;
        assert_eq!(slowest.acquire().await, LONGEST_INTERVAL);
    }
}
