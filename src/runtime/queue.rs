//! The work queue's rules: a pure value; the caller passes the time.
//!
//! The rules are client-go's (`util/workqueue`): a key waits at most once, never runs twice at once, and
//! runs once more if it was added while it ran. [`super::worker`] does the waiting.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

/// The longest delay of a key, because far instants overflow. A key that is due in more than half a
/// year is synced after half a year, which is harmless: a sync may happen at any time.
pub const LONGEST_DELAY: Duration = Duration::from_secs(180 * 24 * 3600);

/// Keys that wait, keys that run, and keys that will wait from a later time on.
#[derive(Debug)]
pub struct Queue<K> {
    /// The keys that wait for a worker, in the order of arrival. Each of these keys is in `dirty` as well.
    ready: VecDeque<K>,
    /// Keys that have to run, with the time of their addition: those in `ready`, and those that were
    /// added while they ran.
    dirty: BTreeMap<K, Instant>,
    /// Keys that run, with the time of their start.
    processing: BTreeMap<K, Instant>,
    /// The keys that become ready later, in the order of time; of equal times the one delayed first.
    delayed: BTreeSet<(Instant, u64, K)>,
    /// Where a key stands in `delayed`.
    delayed_at: BTreeMap<K, (Instant, u64)>,
    sequence: u64,
    additions: u64,
    shutting_down: bool,
}

/// A key that a worker has to process, until it reports [`Queue::done`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken<K> {
    /// The key.
    pub key: K,
    /// How long it waited since it was due.
    pub waited: Duration,
}

impl<K> Default for Queue<K> {
    fn default() -> Self {
        Queue {
            ready: VecDeque::new(),
            dirty: BTreeMap::new(),
            processing: BTreeMap::new(),
            delayed: BTreeSet::new(),
            delayed_at: BTreeMap::new(),
            sequence: 0,
            additions: 0,
            shutting_down: false,
        }
    }
}

impl<K: Ord + Clone> Queue<K> {
    /// Adds a key. One that waits already stays where it is; one that runs will run once more.
    pub fn add(&mut self, key: K, now: Instant) {
        self.promote(now);
        self.enqueue(key, now);
    }

    /// Adds a key from the instant `at` on, at most [`LONGEST_DELAY`] from `now`. Of several such
    /// instants the earliest counts; an addition without delay does not cancel it, since the sync in
    /// between may have had no reason to run again.
    pub fn add_at(&mut self, key: K, at: Instant, now: Instant) {
        // First the keys that are due by now: an instant that has passed must not replace a later one.
        self.promote(now);
        if at <= now {
            return self.enqueue(key, now);
        }
        if self.shutting_down {
            return;
        }
        let at = at.min(now + LONGEST_DELAY);
        if let Some(&(earlier, sequence)) = self.delayed_at.get(&key) {
            if earlier <= at {
                return;
            }
            self.delayed.remove(&(earlier, sequence, key.clone()));
        }
        let sequence = self.sequence;
        self.sequence += 1;
        self.delayed_at.insert(key.clone(), (at, sequence));
        self.delayed.insert((at, sequence, key));
    }

    /// Adds a key after a delay of at most [`LONGEST_DELAY`].
    pub fn add_after(&mut self, key: K, delay: Duration, now: Instant) {
        self.add_at(key, now + delay.min(LONGEST_DELAY), now);
    }

    /// The key that has waited longest, if there is one and the queue is not shutting down.
    pub fn take(&mut self, now: Instant) -> Option<Taken<K>> {
        if self.shutting_down {
            return None;
        }
        self.promote(now);
        let key = self.ready.pop_front()?;
        let added = self.dirty.remove(&key).unwrap_or(now);
        self.processing.insert(key.clone(), now);
        Some(Taken { key, waited: now.saturating_duration_since(added) })
    }

    /// Drops the waiting keys that `keep` refuses, delayed ones included. A key that
    /// runs stays, and still runs once more if it was added meanwhile.
    pub fn retain(&mut self, mut keep: impl FnMut(&K) -> bool) {
        let Queue { ready, dirty, processing: _, delayed, delayed_at, .. } = self;
        ready.retain(|key| {
            let kept = keep(key);
            if !kept {
                dirty.remove(key);
            }
            kept
        });
        delayed.retain(|(_, _, key)| {
            let kept = keep(key);
            if !kept {
                delayed_at.remove(key);
            }
            kept
        });
    }

    /// Reports that a key has been processed, and returns how long that took. If the key was added in
    /// the meantime, it waits again now, behind the others.
    pub fn done(&mut self, key: &K, now: Instant) -> Duration {
        self.promote(now);
        let Some(started) = self.processing.remove(key) else { return Duration::ZERO };
        if self.dirty.contains_key(key) {
            self.ready.push_back(key.clone());
        }
        now.saturating_duration_since(started)
    }

    /// When the next delayed key becomes ready.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.delayed.first().map(|(at, ..)| *at)
    }

    /// Hands out no more keys. Running ones may finish; see [`Queue::is_drained`].
    pub fn shut_down(&mut self) {
        self.shutting_down = true;
    }

    /// Whether the queue is shutting down.
    pub fn is_shutting_down(&self) -> bool {
        self.shutting_down
    }

    /// Whether the queue is shut down and nothing runs any more.
    pub fn is_drained(&self) -> bool {
        self.shutting_down && self.processing.is_empty()
    }

    /// How many keys wait for a worker, without the delayed and the running ones.
    pub fn len(&self) -> usize {
        self.ready.len()
    }

    /// Whether no key waits for a worker.
    pub fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    /// How many keys run.
    pub fn running(&self) -> usize {
        self.processing.len()
    }

    /// How many additions have made a key wait or run once more, since the start.
    pub fn additions(&self) -> u64 {
        self.additions
    }

    /// How long the running keys have been running: in total, and the longest of them.
    pub fn unfinished(&self, now: Instant) -> (Duration, Duration) {
        let mut total = Duration::ZERO;
        let mut longest = Duration::ZERO;
        for started in self.processing.values() {
            let running = now.saturating_duration_since(*started);
            total += running;
            longest = longest.max(running);
        }
        (total, longest)
    }

    /// Moves the delayed keys that are due to the others. Done before every addition too, so that a
    /// key that was due earlier is also processed earlier.
    fn promote(&mut self, now: Instant) {
        while self.delayed.first().is_some_and(|(at, ..)| *at <= now) {
            if let Some((at, _, key)) = self.delayed.pop_first() {
                self.delayed_at.remove(&key);
                self.enqueue(key, at);
            }
        }
    }

    fn enqueue(&mut self, key: K, added: Instant) {
        if self.shutting_down || self.dirty.contains_key(&key) {
            return;
        }
        self.additions += 1;
        if !self.processing.contains_key(&key) {
            self.ready.push_back(key.clone());
        }
        self.dirty.insert(key, added);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn take(queue: &mut Queue<&'static str>, now: Instant) -> Option<&'static str> {
        queue.take(now).map(|taken| taken.key)
    }

    #[test]
    fn keys_are_taken_in_the_order_of_arrival_and_each_once() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        for key in ["a", "b", "a", "c", "b"] {
            queue.add(key, now);
        }
        assert_eq!([(); 4].map(|()| take(&mut queue, now)), [Some("a"), Some("b"), Some("c"), None]);
        assert_eq!(queue.additions(), 3);
    }

    #[test]
    fn a_key_added_while_processing_runs_once_more_afterwards() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.add("a", now);
        assert_eq!(take(&mut queue, now), Some("a"));
        queue.add("a", now);
        queue.add("a", now);
        assert_eq!(take(&mut queue, now), None, "never twice at once");
        queue.done(&"a", now);
        assert_eq!(take(&mut queue, now), Some("a"));
        queue.done(&"a", now);
        assert_eq!(take(&mut queue, now), None);
    }

    #[test]
    fn a_key_delayed_twice_is_due_at_the_earlier_time() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.add_at("a", now + 5 * S, now);
        queue.add_at("a", now + 2 * S, now);
        queue.add_at("a", now + 9 * S, now);
        assert_eq!(queue.next_deadline(), Some(now + 2 * S));
        assert_eq!(take(&mut queue, now + S), None);
        assert_eq!(take(&mut queue, now + 2 * S), Some("a"));
        queue.done(&"a", now + 2 * S);
        assert_eq!(queue.next_deadline(), None, "the later times are gone");
    }

    #[test]
    fn a_delayed_key_that_was_due_earlier_is_taken_first() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.add_at("due", now + S, now);
        queue.add("later", now + 2 * S);
        let taken = queue.take(now + 3 * S);
        assert_eq!(taken, Some(Taken { key: "due", waited: 2 * S }), "counted from when it was due");
    }

    #[test]
    fn a_time_that_has_passed_does_not_replace_the_next() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.add_at("a", now + S, now);
        queue.add_at("a", now + 5 * S, now + 2 * S);
        assert_eq!(take(&mut queue, now + 2 * S), Some("a"));
        queue.done(&"a", now + 2 * S);
        assert_eq!(queue.next_deadline(), Some(now + 5 * S));
    }

    #[test]
    fn an_addition_now_leaves_the_delayed_one_in_place() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.add_at("a", now + S, now);
        queue.add("a", now);
        assert_eq!(take(&mut queue, now), Some("a"));
        queue.done(&"a", now);
        assert_eq!(take(&mut queue, now + S), Some("a"));
    }

    #[test]
    fn an_absurd_delay_is_clamped_and_no_delay_means_now() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.add_after("far", Duration::MAX, now);
        assert_eq!(queue.next_deadline(), Some(now + LONGEST_DELAY));
        queue.add_after("near", Duration::ZERO, now);
        assert_eq!(take(&mut queue, now), Some("near"));
    }

    #[test]
    fn a_queue_that_shuts_down_lets_running_keys_finish_and_starts_none() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.add("a", now);
        queue.add("b", now);
        take(&mut queue, now);
        queue.shut_down();
        assert!(!queue.is_drained());
        assert_eq!(take(&mut queue, now), None);
        queue.done(&"a", now);
        assert!(queue.is_drained());
    }

    #[test]
    fn keys_that_wait_can_be_dropped_and_those_that_run_cannot() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.add("running", now);
        take(&mut queue, now);
        for key in ["running", "gone", "kept"] {
            queue.add(key, now);
        }
        queue.add_at("gone", now + S, now);
        queue.add_at("later", now + S, now);
        queue.retain(|key| matches!(*key, "kept" | "later"));
        queue.done(&"running", now);
        let later = now + S;
        assert_eq!(
            [(); 4].map(|()| take(&mut queue, later)),
            [Some("kept"), Some("running"), Some("later"), None]
        );
        queue.add("gone", now);
        assert_eq!(take(&mut queue, now), Some("gone"), "and may come back");
    }

    #[test]
    fn the_times_of_waiting_and_of_work_are_measured() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.add("a", now);
        queue.add("b", now);
        assert_eq!(queue.take(now + S).map(|taken| taken.waited), Some(S));
        assert_eq!(queue.take(now + 2 * S).map(|taken| taken.waited), Some(2 * S));
        assert_eq!(queue.unfinished(now + 4 * S), (5 * S, 3 * S));
        assert_eq!(queue.done(&"a", now + 4 * S), 3 * S);
        assert_eq!(queue.done(&"unknown", now + 4 * S), Duration::ZERO);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Add(u8),
        AddAfter(u8, u8),
        Take,
        /// Finishes one of the running keys.
        Done(u8),
        Pass(u8),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => (0..6u8).prop_map(Step::Add),
            2 => (0..6u8, 0..20u8).prop_map(|(key, delay)| Step::AddAfter(key, delay)),
            5 => Just(Step::Take),
            4 => any::<u8>().prop_map(Step::Done),
            2 => (0..10u8).prop_map(Step::Pass),
        ];
        prop::collection::vec(step, 0..200)
    }

    proptest! {
        /// The model: a key needs a run from its addition (or its due time) until a later take. The queue must hand
        /// out every such key, and never one that runs.
        #[test]
        fn no_key_runs_twice_at_once_and_none_is_lost(steps in steps()) {
            let mut queue = Queue::default();
            let mut now = Instant::now();
            let mut running: Vec<u8> = Vec::new();
            let mut owed: BTreeSet<u8> = BTreeSet::new();
            let mut later: BTreeMap<u8, Instant> = BTreeMap::new();
            let check = |queue: &mut Queue<u8>, running: &mut Vec<u8>, owed: &mut BTreeSet<u8>, now| {
                let can_run = owed.iter().any(|key| !running.contains(key));
                match queue.take(now) {
                    Some(Taken { key, .. }) => {
                        prop_assert!(!running.contains(&key), "key {} runs twice at once", key);
                        prop_assert!(owed.remove(&key), "key {} runs without a reason", key);
                        running.push(key);
                    }
                    None => prop_assert!(!can_run, "a key was lost"),
                }
                Ok(())
            };
            for step in steps {
                match step {
                    Step::Add(key) => {
                        queue.add(key, now);
                        owed.insert(key);
                    }
                    Step::AddAfter(key, delay) => {
                        queue.add_after(key, S * u32::from(delay), now);
                        if delay == 0 {
                            owed.insert(key);
                        } else {
                            let at = now + S * u32::from(delay);
                            let earliest = later.get(&key).map_or(at, |known| at.min(*known));
                            later.insert(key, earliest);
                        }
                    }
                    Step::Take => check(&mut queue, &mut running, &mut owed, now)?,
                    Step::Done(which) => {
                        if !running.is_empty() {
                            let key = running.remove(usize::from(which) % running.len());
                            queue.done(&key, now);
                        }
                    }
                    Step::Pass(seconds) => now += S * u32::from(seconds),
                }
                let due: Vec<u8> = later.iter().filter(|(_, at)| **at <= now).map(|(key, _)| *key).collect();
                for key in due {
                    later.remove(&key);
                    owed.insert(key);
                }
            }
            // Everything that is still owed comes out at the end.
            now += S * 100;
            owed.extend(later.into_keys());
            for _ in 0..20 {
                while let Some(key) = running.pop() {
                    queue.done(&key, now);
                }
                check(&mut queue, &mut running, &mut owed, now)?;
            }
            prop_assert!(owed.is_empty() && queue.is_empty());
        }
    }
}
