//! How long a failed key waits before its next retry.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

/// The first delay, as in client-go.
pub const BASE: Duration = Duration::from_millis(5);

/// The longest delay. client-go's 1000 s leave a workload unsynced for a quarter of an hour after its
/// problem is solved; a minute costs one useless call per minute and key.
pub const CAP: Duration = Duration::from_secs(60);

/// Exponential backoff per key: 5 ms, 10 ms, 20 ms, … up to the cap, until the key succeeds.
///
/// A failure before the current delay has passed does not raise it. Events can make a key run much
/// more often than its delay says; if each such run counted, a noisy object would reach the longest
/// delay within moments without ever having waited (kubernetes#132805).
#[derive(Debug)]
pub struct Backoff<K> {
    base: Duration,
    cap: Duration,
    failed: BTreeMap<K, Failed>,
}

#[derive(Clone, Copy, Debug)]
struct Failed {
    /// How many delays the key has been given.
    count: u32,
    /// When the current delay is over.
    until: Instant,
}

impl<K: Ord + Clone> Default for Backoff<K> {
    fn default() -> Self {
        Backoff::new(BASE, CAP)
    }
}

impl<K: Ord + Clone> Backoff<K> {
    /// Backoff from `base`, doubled with each failure up to `cap`.
    pub fn new(base: Duration, cap: Duration) -> Self {
        Backoff { base, cap, failed: BTreeMap::new() }
    }

    /// Records a failure and returns how long from `now` the key has to wait.
    pub fn failed(&mut self, key: &K, now: Instant) -> Duration {
        if let Some(failed) = self.failed.get_mut(key) {
            if now < failed.until {
                return failed.until - now;
            }
            let delay = delay(self.base, self.cap, failed.count);
            *failed = Failed { count: failed.count.saturating_add(1), until: now + delay };
            return delay;
        }
        let delay = delay(self.base, self.cap, 0);
        self.failed.insert(key.clone(), Failed { count: 1, until: now + delay });
        delay
    }

    /// Forgets the key's failures, after a success. The next failure starts from the base again.
    pub fn forget(&mut self, key: &K) {
        self.failed.remove(key);
    }

    /// How many delays the key has been given since it last succeeded.
    pub fn failures(&self, key: &K) -> u32 {
        self.failed.get(key).map_or(0, |failed| failed.count)
    }

    /// How many keys have failed and not succeeded since.
    pub fn len(&self) -> usize {
        self.failed.len()
    }

    /// Whether no key is failing.
    pub fn is_empty(&self) -> bool {
        self.failed.is_empty()
    }
}

/// `base * 2^exponent`, at most `cap`.
pub(crate) fn delay(base: Duration, cap: Duration, exponent: u32) -> Duration {
    2u32.checked_pow(exponent).and_then(|factor| base.checked_mul(factor)).map_or(cap, |delay| delay.min(cap))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Fails `key` each time its delay is just over, and returns the delays.
    fn delays(backoff: &mut Backoff<&'static str>, key: &'static str, times: usize) -> Vec<Duration> {
        let mut now = Instant::now();
        (0..times)
            .map(|_| {
                let delay = backoff.failed(&key, now);
                now += delay;
                delay
            })
            .collect()
    }

    #[test]
    fn each_failure_doubles_the_delay() {
        assert_eq!(delays(&mut Backoff::default(), "a", 4), [5 * MS, 10 * MS, 20 * MS, 40 * MS]);
    }

    #[test]
    fn the_delay_stays_at_the_cap_however_often_the_key_fails() {
        let all = delays(&mut Backoff::default(), "a", 100);
        assert_eq!(all.last(), Some(&CAP));
        assert!(all.is_sorted());
    }

    #[test]
    fn a_failure_before_the_delay_has_passed_does_not_raise_it() {
        let mut backoff = Backoff::default();
        let start = Instant::now();
        for _ in 0..1000 {
            backoff.failed(&"noisy", start);
        }
        assert_eq!(backoff.failed(&"noisy", start + 2 * MS), 3 * MS, "what is left of the first delay");
        assert_eq!(backoff.failures(&"noisy"), 1);
        assert_eq!(backoff.failed(&"noisy", start + 5 * MS), 10 * MS);
    }

    #[test]
    fn success_resets_the_backoff_and_keys_are_independent() {
        let mut backoff = Backoff::default();
        delays(&mut backoff, "a", 5);
        assert_eq!(delays(&mut backoff, "b", 1), [5 * MS]);
        backoff.forget(&"a");
        assert_eq!(delays(&mut backoff, "a", 1), [5 * MS]);
        assert_eq!(backoff.len(), 2);
    }
}
