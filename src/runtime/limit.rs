//! The client's own rate limit: a token bucket, first come, first served.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

/// The slowest rate: a smaller one is taken for this, which keeps all sums within a `Duration`.
const LONGEST_INTERVAL: Duration = Duration::from_secs(3600);

/// A token bucket as arithmetic on instants: one token each `interval`, at most `burst` in store.
///
/// It keeps one instant, the time at which the bucket will be full again, instead of a fractional
/// number of tokens, so that nothing is lost to rounding over a long life.
#[derive(Debug)]
struct Bucket {
    interval: Duration,
    /// What it takes to fill an empty bucket.
    capacity: Duration,
    full_at: Instant,
}

impl Bucket {
    /// Takes a token, or says how long to wait for one.
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

/// Holds requests back so that no more than `burst` at once and `qps` per second in the long run pass.
/// Clones share the bucket.
#[derive(Clone, Debug)]
pub struct Limiter {
    bucket: Option<Arc<Mutex<Bucket>>>,
}

impl Limiter {
    /// A limit of `qps` requests per second after the first `burst`. As with `--kube-api-qps`, a rate
    /// that is not positive means no limit.
    pub fn new(qps: f64, burst: u32) -> Self {
        if !(qps > 0.0 && qps.is_finite()) {
            return Limiter::unlimited();
        }
        let interval =
            Duration::try_from_secs_f64(1.0 / qps).unwrap_or(LONGEST_INTERVAL).min(LONGEST_INTERVAL);
        let capacity = interval.saturating_mul(burst.max(1));
        let bucket = Bucket { interval, capacity, full_at: Instant::now() };
        Limiter { bucket: Some(Arc::new(Mutex::new(bucket))) }
    }

    /// No limit.
    pub fn unlimited() -> Self {
        Limiter { bucket: None }
    }

    /// Waits for a token, behind those who asked before, and returns how long that took.
    ///
    /// Who waits holds the lock, and tokio hands the lock on in the order of the requests: that is the
    /// fairness. A caller that gives up drops the lock and has taken nothing.
    pub async fn acquire(&self) -> Duration {
        let Some(bucket) = &self.bucket else { return Duration::ZERO };
        let start = Instant::now();
        let mut bucket = bucket.lock().await;
        while let Err(wait) = bucket.take(Instant::now()) {
            tokio::time::sleep(wait).await;
        }
        start.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_burst_passes_at_once_and_then_the_rate_holds() {
        let limiter = Limiter::new(10.0, 5);
        let start = Instant::now();
        for _ in 0..5 {
            assert_eq!(limiter.acquire().await, Duration::ZERO);
        }
        for _ in 0..20 {
            limiter.acquire().await;
        }
        assert_eq!(start.elapsed(), 2 * S);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_fills_the_bucket_but_never_above_the_burst() {
        let limiter = Limiter::new(10.0, 3);
        tokio::time::sleep(3600 * S).await;
        let start = Instant::now();
        for _ in 0..4 {
            limiter.acquire().await;
        }
        assert_eq!(start.elapsed(), S / 10);
    }

    #[tokio::test(start_paused = true)]
    async fn waiters_pass_in_the_order_they_came() {
        let limiter = Limiter::new(1.0, 1);
        limiter.acquire().await;
        let (order, mut passed) = tokio::sync::mpsc::unbounded_channel();
        for n in 0..5 {
            let (limiter, order) = (limiter.clone(), order.clone());
            tokio::spawn(async move {
                limiter.acquire().await;
                order.send(n).unwrap();
            });
            tokio::task::yield_now().await;
        }
        for n in 0..5 {
            assert_eq!(passed.recv().await, Some(n));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_gives_up_takes_no_token_and_blocks_nobody() {
        let limiter = Limiter::new(1.0, 1);
        limiter.acquire().await;
        let start = Instant::now();
        assert!(tokio::time::timeout(S / 2, limiter.acquire()).await.is_err());
        limiter.acquire().await;
        assert_eq!(start.elapsed(), S);
    }

    #[tokio::test(start_paused = true)]
    async fn odd_numbers_neither_panic_nor_block_for_ever() {
        for (qps, burst) in [(0.0, 0), (-1.0, 5), (f64::NAN, 1), (f64::INFINITY, 1), (1e300, u32::MAX)] {
            assert_eq!(Limiter::new(qps, burst).acquire().await, Duration::ZERO);
        }
        let slow = Limiter::new(1e-300, u32::MAX);
        for _ in 0..3 {
            slow.acquire().await;
        }
        let slowest = Limiter::new(1e-300, 0);
        slowest.acquire().await;
        assert_eq!(slowest.acquire().await, LONGEST_INTERVAL);
    }
}
