//! The work queue's waiting: workers that sleep until a key is due, run its sync and handle the result.
//!
//! The rules are in [`super::queue`] and [`super::backoff`]. Two guarantees here. A sync that fails,
//! or panics, is retried; it never takes a worker with it. And a sync that takes long, because the rate limiter or the
//! API server delays its requests, does not hold its worker: the worker continues it beside the next keys. Otherwise
//! five ReplicaSets that lack 500 pods each would hold all workers for two minutes.

use std::fmt::{self, Debug, Display};
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use parking_lot::Mutex;
use prometheus::{Gauge, Histogram, IntCounter, IntCounterVec, IntGauge};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::api::ApiError;
use super::backoff::Backoff;
use super::queue::{LONGEST_DELAY, Queue, Taken};
use super::tasks::panic_text;
use crate::metrics::{Metrics, set_gauge, set_seconds};

/// How long a sync holds its worker. A request that is not delayed takes a few milliseconds.
const HOLDS_A_WORKER: Duration = Duration::from_millis(500);

/// The most syncs that a worker runs at once: the one that it waits for, and those that take long. They share the
/// rate of their controller, so that more of them make each take longer.
pub const SYNCS_PER_WORKER: usize = 5;

/// The result of a successful sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing: an event will wake the key.
    Settled,
    /// Sync again after this time, because something is due then.
    After(Duration),
    /// Nothing: the sync has begun something that adds the key when it ends. That is no success yet, so that the next
    /// failure is one more in a row.
    Unfinished,
}

/// The interface of the workers to an error.
pub trait SyncFailure: Display {
    /// The kind of error in one word of a closed set, for metrics and logs.
    fn label(&self) -> &'static str;

    /// The shortest wait the server asked for. The key waits for this or its backoff, whichever is longer.
    fn retry_after(&self) -> Option<Duration> {
        None
    }

    /// The longest useful wait, however often the key has failed: its cause is over by then.
    fn retry_within(&self) -> Duration {
        Duration::MAX
    }

    /// Whether the error is expected, such as a conflict with another writer. It is
    /// then logged at level debug only.
    fn is_ordinary(&self) -> bool {
        false
    }
}

impl SyncFailure for ApiError {
    fn label(&self) -> &'static str {
        ApiError::label(self)
    }

    fn retry_after(&self) -> Option<Duration> {
        ApiError::retry_after(self)
    }

    fn is_ordinary(&self) -> bool {
        self.is_conflict()
    }
}

/// A queue of keys with delays and backoff. Clones share it.
pub struct WorkQueue<K> {
    shared: Arc<Shared<K>>,
}

struct Shared<K> {
    name: String,
    state: Mutex<State<K>>,
    wake: Notify,
    metrics: QueueMetrics,
}

struct State<K> {
    queue: Queue<K>,
    backoff: Backoff<K>,
    /// The additions that the counter already shows.
    counted: u64,
}

struct QueueMetrics {
    depth: IntGauge,
    adds: IntCounter,
    queue_duration: Histogram,
    work_duration: Histogram,
    unfinished: Gauge,
    longest: Gauge,
    retries: IntCounter,
    in_backoff: IntGauge,
    errors: IntCounterVec,
}

impl<K> Clone for WorkQueue<K> {
    fn clone(&self) -> Self {
        WorkQueue { shared: self.shared.clone() }
    }
}

impl<K> Debug for WorkQueue<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkQueue").field("name", &self.shared.name).finish_non_exhaustive()
    }
}

/// The next step of a worker.
enum NextAction<K> {
    Run(K),
    Wait(Option<Instant>),
    Stop,
}

impl<K: Ord + Clone + Send + 'static> WorkQueue<K> {
    /// An empty queue. `name` labels its metrics and logs: `deployment`, `replicaset`.
    pub fn new(name: &str, metrics: &Metrics) -> Self {
        let label = &[name];
        let shared = Arc::new(Shared {
            name: name.to_owned(),
            state: Mutex::new(State { queue: Queue::default(), backoff: Backoff::default(), counted: 0 }),
            wake: Notify::new(),
            metrics: QueueMetrics {
                depth: metrics.workqueue_depth.with_label_values(label),
                adds: metrics.workqueue_adds.with_label_values(label),
                queue_duration: metrics.workqueue_queue_duration.with_label_values(label),
                work_duration: metrics.workqueue_work_duration.with_label_values(label),
                unfinished: metrics.workqueue_unfinished_work.with_label_values(label),
                longest: metrics.workqueue_longest_running.with_label_values(label),
                retries: metrics.workqueue_retries.with_label_values(label),
                in_backoff: metrics.workqueue_in_backoff.with_label_values(label),
                errors: metrics.sync_errors.clone(),
            },
        });
        let weak = Arc::downgrade(&shared);
        metrics.before_render(move || refresh(&weak));
        WorkQueue { shared }
    }

    /// Adds a key: it runs as soon as a worker is free, and not twice if it waits already.
    pub fn add(&self, key: K) {
        self.change(|state, now| state.queue.add(key, now));
        self.shared.wake.notify_one();
    }

    /// Adds a key after a delay. The earliest of several delays counts.
    pub fn add_after(&self, key: K, delay: Duration) {
        self.change(|state, now| state.queue.add_after(key, delay, now));
        self.shared.wake.notify_one();
    }

    /// Adds a key after its backoff, and returns that delay.
    pub fn retry(&self, key: K) -> Duration {
        self.retry_between(key, Duration::ZERO, Duration::MAX)
    }

    /// How long the longest running sync has been running; zero if none runs.
    pub fn longest_running(&self) -> Duration {
        self.shared.state.lock().queue.unfinished(Instant::now()).1
    }

    /// Ends a key's backoff, after a success.
    pub fn forget(&self, key: &K) {
        self.change(|state, _| state.backoff.forget(key));
    }

    /// Drops the waiting keys that `keep` refuses: a standby's queue must not accumulate the keys of deleted
    /// objects. Running keys are not affected.
    pub fn retain(&self, keep: impl FnMut(&K) -> bool) {
        self.change(|state, _| state.queue.retain(keep));
    }

    /// How many keys wait for a worker.
    pub fn len(&self) -> usize {
        self.shared.state.lock().queue.len()
    }

    /// Whether no key waits for a worker.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many keys have failed and not succeeded since.
    pub fn in_backoff(&self) -> usize {
        self.shared.state.lock().backoff.len()
    }

    /// Starts no more syncs; [`run_workers`] returns when the running ones have finished.
    pub fn shut_down(&self) {
        self.change(|state, _| state.queue.shut_down());
        // Each worker registers before it reads the queue, so none can miss this.
        self.shared.wake.notify_waiters();
    }

    fn retry_between(&self, key: K, least: Duration, most: Duration) -> Duration {
        self.shared.metrics.retries.inc();
        let delay = self.change(|state, now| {
            let delay = state.backoff.failed(&key, now).min(most).max(least.min(LONGEST_DELAY));
            state.queue.add_after(key, delay, now);
            delay
        });
        self.shared.wake.notify_one();
        delay
    }

    fn change<R>(&self, change: impl FnOnce(&mut State<K>, Instant) -> R) -> R {
        let mut state = self.shared.state.lock();
        let result = change(&mut state, Instant::now());
        let additions = state.queue.additions();
        self.shared.metrics.adds.inc_by(additions - state.counted);
        state.counted = additions;
        set_gauge(&self.shared.metrics.depth, state.queue.len());
        result
    }

    fn next_action(&self) -> NextAction<K> {
        self.change(|state, now| match state.queue.take(now) {
            Some(Taken { key, waited }) => {
                self.shared.metrics.queue_duration.observe(waited.as_secs_f64());
                NextAction::Run(key)
            }
            None if state.queue.is_shutting_down() => NextAction::Stop,
            None => NextAction::Wait(state.queue.next_deadline()),
        })
    }

    /// The next key to run; `None` when the queue is shut down.
    async fn next(&self) -> Option<K> {
        loop {
            // Registered before the queue is read, so that no addition in between is missed. A worker that
            // finds a key drops the registration, and tokio passes a received wake-up on to another.
            let woken = self.shared.wake.notified();
            tokio::pin!(woken);
            woken.as_mut().enable();
            match self.next_action() {
                NextAction::Run(key) => return Some(key),
                NextAction::Stop => return None,
                NextAction::Wait(None) => woken.await,
                NextAction::Wait(Some(deadline)) => {
                    tokio::select! {
                        biased;
                        () = woken => {}
                        () = tokio::time::sleep_until(deadline) => {}
                    }
                }
            }
        }
    }

    fn done(&self, key: &K) {
        let took = self.change(|state, now| state.queue.done(key, now));
        self.shared.metrics.work_duration.observe(took.as_secs_f64());
    }
}

/// Updates the gauges that depend on the time.
fn refresh<K: Ord + Clone>(shared: &Weak<Shared<K>>) -> bool {
    let Some(shared) = shared.upgrade() else { return false };
    let state = shared.state.lock();
    let (total, longest) = state.queue.unfinished(Instant::now());
    set_seconds(&shared.metrics.unfinished, total);
    set_seconds(&shared.metrics.longest, longest);
    set_gauge(&shared.metrics.in_backoff, state.backoff.len());
    true
}

/// Runs `workers` tasks that take keys from the queue and sync them, until the queue is shut down and
/// the running syncs have finished.
///
/// A sync that takes longer than half a second runs on while its worker takes the next key.
///
/// A sync that returns an error is retried with backoff for as long as it fails; so is one that panics.
/// Dropping this future aborts the workers at their next await.
pub async fn run_workers<K, F, Fut, E>(queue: WorkQueue<K>, workers: usize, sync: F)
where
    K: Ord + Clone + Debug + Send + Sync + 'static,
    F: Fn(K) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = Result<Next, E>> + Send + 'static,
    E: SyncFailure + Send + 'static,
{
    let mut tasks = JoinSet::new();
    for _ in 0..workers.max(1) {
        tasks.spawn(work(queue.clone(), sync.clone()));
    }
    while let Some(ended) = tasks.join_next().await {
        if let Err(error) = ended {
            tracing::error!(queue = queue.shared.name, %error, "worker ended unexpectedly; starting another");
            tasks.spawn(work(queue.clone(), sync.clone()));
        }
    }
}

async fn work<K, F, Fut, E>(queue: WorkQueue<K>, sync: F)
where
    K: Ord + Clone + Debug + Send + Sync + 'static,
    F: Fn(K) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = Result<Next, E>> + Send,
    E: SyncFailure + Send,
{
    let queue = &queue;
    let mut beside = FuturesUnordered::new();
    loop {
        let key = tokio::select! {
            biased;
            key = queue.next() => key,
            Some(()) = beside.next() => continue,
        };
        let Some(key) = key else { break };
        let sync = sync.clone();
        let mut running = Box::pin(async move {
            process(queue, &key, sync).await;
            queue.done(&key);
        });
        let holds = tokio::time::sleep(HOLDS_A_WORKER);
        tokio::pin!(holds);
        loop {
            tokio::select! {
                biased;
                () = &mut running => break,
                Some(()) = beside.next() => {}
                () = &mut holds, if beside.len() + 1 < SYNCS_PER_WORKER => {
                    beside.push(running);
                    break;
                }
            }
        }
    }
    while beside.next().await.is_some() {}
}

async fn process<K, F, Fut, E>(queue: &WorkQueue<K>, key: &K, sync: F)
where
    K: Ord + Clone + Debug + Send + Sync + 'static,
    F: Fn(K) -> Fut + Send,
    Fut: Future<Output = Result<Next, E>> + Send,
    E: SyncFailure + Send,
{
    let name = queue.shared.name.as_str();
    // Nothing that the closure captures is used after a panic except through locks that do not poison,
    // and a sync keeps its state in the cluster, so that continuing is safe.
    match AssertUnwindSafe(async move { sync(key.clone()).await }).catch_unwind().await {
        Ok(Ok(Next::Unfinished)) => {}
        Ok(Ok(next)) => {
            queue.forget(key);
            if let Next::After(delay) = next {
                queue.add_after(key.clone(), delay);
            }
        }
        Ok(Err(error)) => {
            let reason = error.label();
            let least = error.retry_after().unwrap_or_default();
            let delay = queue.retry_between(key.clone(), least, error.retry_within()).as_secs_f64();
            queue.shared.metrics.errors.with_label_values(&[name, reason]).inc();
            if error.is_ordinary() {
                tracing::debug!(queue = name, ?key, reason, %error, retry_seconds = delay, "sync failed; retrying");
            } else {
                tracing::warn!(queue = name, ?key, reason, %error, retry_seconds = delay, "sync failed; retrying");
            }
        }
        Err(panic) => {
            let delay = queue.retry(key.clone()).as_secs_f64();
            queue.shared.metrics.errors.with_label_values(&[name, "panic"]).inc();
            let panic = panic_text(panic.as_ref());
            tracing::error!(
                queue = name,
                ?key,
                panic,
                retry_seconds = delay,
                "sync panicked, which is a bug; retrying"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("refused")]
    struct Refused(Option<Duration>);

    impl SyncFailure for Refused {
        fn label(&self) -> &'static str {
            "refused"
        }

        fn retry_after(&self) -> Option<Duration> {
            self.0
        }
    }

    const S: Duration = Duration::from_secs(1);

    /// The runs, and their times, in seconds and milliseconds from the start.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<(u32, Duration)>>>);

    impl Log {
        fn note(&self, key: u32, start: Instant) -> usize {
            let mut log = self.0.lock();
            log.push((key, start.elapsed()));
            log.iter().filter(|(other, _)| *other == key).count()
        }

        fn keys(&self) -> Vec<u32> {
            self.0.lock().iter().map(|(key, _)| *key).collect()
        }

        fn times(&self) -> Vec<u128> {
            self.0.lock().iter().map(|(_, at)| at.as_millis()).collect()
        }
    }

    /// Runs the workers for `time`, with `sync` told how often its key has run, and drains them.
    async fn run<F>(queue: &WorkQueue<u32>, workers: usize, time: Duration, log: &Log, sync: F)
    where
        F: Fn(u32, usize) -> Result<Next, Refused> + Clone + Send + 'static,
    {
        let (start, log) = (Instant::now(), log.clone());
        let running = tokio::spawn(run_workers(queue.clone(), workers, move |key| {
            let nth = log.note(key, start);
            let end = sync(key, nth);
            async move { end }
        }));
        tokio::time::sleep(time).await;
        queue.shut_down();
        running.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn keys_are_synced_and_requeued_on_request() {
        let (metrics, log) = (Metrics::new(), Log::default());
        let queue = WorkQueue::new("test", &metrics);
        queue.add(1);
        run(&queue, 2, 10 * S, &log, |_, nth| Ok(if nth < 3 { Next::After(2 * S) } else { Next::Settled }))
            .await;
        assert_eq!(log.times(), [0, 2000, 4000]);
    }

    #[tokio::test(start_paused = true)]
    async fn idle_workers_start_at_once_on_the_first_key() {
        let (metrics, log) = (Metrics::new(), Log::default());
        let queue = WorkQueue::new("test", &metrics);
        let adding = queue.clone();
        tokio::spawn(async move {
            adding.add_after(1, 8 * S);
            tokio::time::sleep(S).await;
            adding.add(2);
            tokio::time::sleep(S).await;
            // Sooner than what the workers sleep for.
            adding.add_after(3, S);
        });
        run(&queue, 2, 10 * S, &log, |_, _| Ok(Next::Settled)).await;
        assert_eq!((log.keys(), log.times()), (vec![2, 3, 1], vec![1000, 3000, 8000]));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn no_key_is_lost_between_threads() {
        const KEYS: u32 = 500;
        let metrics = Metrics::new();
        let queue = WorkQueue::new("test", &metrics);
        // Each key counts how often it was wanted and, per run, what it had been wanted by then.
        let wanted: Arc<Vec<AtomicU32>> = Arc::new((0..KEYS).map(|_| AtomicU32::new(0)).collect());
        let seen: Arc<Vec<AtomicU32>> = Arc::new((0..KEYS).map(|_| AtomicU32::new(0)).collect());
        let (want, see) = (wanted.clone(), seen.clone());
        let workers = tokio::spawn(run_workers(queue.clone(), 4, move |key: u32| {
            let (want, see) = (want.clone(), see.clone());
            async move {
                let by_now = want[key as usize].load(Ordering::SeqCst);
                tokio::task::yield_now().await;
                see[key as usize].fetch_max(by_now, Ordering::SeqCst);
                Ok::<_, Refused>(Next::Settled)
            }
        }));
        let mut producers = JoinSet::new();
        for _ in 0..4 {
            let (queue, wanted) = (queue.clone(), wanted.clone());
            producers.spawn(async move {
                for n in 0..20 * KEYS {
                    let key = n * 7 % KEYS;
                    wanted[key as usize].fetch_add(1, Ordering::SeqCst);
                    queue.add(key);
                    if n % 50 == 0 {
                        tokio::task::yield_now().await;
                    }
                }
            });
        }
        producers.join_all().await;
        let all_seen = || (0..KEYS as usize).all(|key| seen[key].load(Ordering::SeqCst) == 80);
        let waiting = async {
            while !all_seen() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(20 * S, waiting).await.expect("the last addition of each key leads to a run");
        queue.shut_down();
        workers.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_sync_is_retried_with_growing_delays_until_it_succeeds() {
        let (metrics, log) = (Metrics::new(), Log::default());
        let queue = WorkQueue::new("test", &metrics);
        queue.add(1);
        run(&queue, 1, S, &log, |_, nth| if nth < 5 { Err(Refused(None)) } else { Ok(Next::Settled) }).await;
        let gaps: Vec<u128> = log.times().windows(2).map(|pair| pair[1] - pair[0]).collect();
        // tokio's timers have a resolution of a millisecond and never fire early.
        for (gap, delay) in gaps.iter().zip([5, 10, 20, 40]) {
            assert!((delay..=delay + 1).contains(gap), "{gaps:?}");
        }
        assert_eq!(gaps.len(), 4);
        assert_eq!(queue.in_backoff(), 0);
        let text = metrics.render();
        assert!(text.contains("workqueue_retries_total{name=\"test\"} 4"), "{text}");
        assert!(text.contains("windlass_sync_errors_total{name=\"test\",reason=\"refused\"} 4"), "{text}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_sync_that_is_unfinished_does_not_end_the_backoff() {
        let (metrics, log) = (Metrics::new(), Log::default());
        let queue = WorkQueue::new("test", &metrics);
        queue.add(1);
        // Each attempt asks first, and fails with the answer.
        let answering = queue.clone();
        run(&queue, 1, S, &log, move |key, nth| {
            if nth % 2 == 1 {
                answering.add(key);
                return Ok(Next::Unfinished);
            }
            if nth < 8 { Err(Refused(None)) } else { Ok(Next::Settled) }
        })
        .await;
        let gaps: Vec<u128> =
            log.times().windows(2).map(|pair| pair[1] - pair[0]).filter(|gap| *gap > 1).collect();
        for (gap, delay) in gaps.iter().zip([5, 10, 20]) {
            assert!((delay..=delay + 1).contains(gap), "{gaps:?}");
        }
        assert_eq!((gaps.len(), queue.in_backoff()), (3, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn the_server_s_retry_after_is_respected() {
        let (metrics, log) = (Metrics::new(), Log::default());
        let queue = WorkQueue::new("test", &metrics);
        queue.add(1);
        run(
            &queue,
            1,
            10 * S,
            &log,
            |_, nth| {
                if nth == 1 { Err(Refused(Some(7 * S))) } else { Ok(Next::Settled) }
            },
        )
        .await;
        assert_eq!(log.times(), [0, 7000]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_is_a_failed_sync_and_the_worker_continues() {
        let (metrics, log) = (Metrics::new(), Log::default());
        let queue = WorkQueue::new("test", &metrics);
        queue.add(1);
        queue.add(2);
        run(&queue, 1, S, &log, |key, nth| {
            assert!(key == 2 || nth > 1, "a bug in the sync of key 1");
            Ok(Next::Settled)
        })
        .await;
        assert_eq!(log.keys(), [1, 2, 1]);
        assert!(metrics.render().contains("windlass_sync_errors_total{name=\"test\",reason=\"panic\"} 1"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_always_fails_takes_nothing_from_the_others() {
        let (metrics, log) = (Metrics::new(), Log::default());
        let queue = WorkQueue::new("test", &metrics);
        for key in 0..100 {
            queue.add(key);
        }
        run(&queue, 2, 300 * S, &log, |key, _| if key == 0 { Err(Refused(None)) } else { Ok(Next::Settled) })
            .await;
        let mut runs: BTreeMap<u32, usize> = BTreeMap::new();
        for key in log.keys() {
            *runs.entry(key).or_default() += 1;
        }
        assert!((1..100).all(|key| runs[&key] == 1));
        assert!((15..30).contains(&runs[&0]), "backoff goes on at the cap: {} runs", runs[&0]);
        assert_eq!(queue.in_backoff(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn syncs_run_side_by_side_but_never_two_of_one_key() {
        let metrics = Metrics::new();
        let queue = WorkQueue::new("test", &metrics);
        let running = Arc::new(Mutex::new((Vec::<u32>::new(), 0usize)));
        let seen = running.clone();
        let workers = tokio::spawn(run_workers(queue.clone(), 3, move |key: u32| {
            let seen = seen.clone();
            async move {
                {
                    let mut running = seen.lock();
                    assert!(!running.0.contains(&key));
                    running.0.push(key);
                    running.1 = running.1.max(running.0.len());
                }
                tokio::time::sleep(S * 2 / 5).await;
                seen.lock().0.retain(|other| *other != key);
                Ok::<_, Refused>(Next::Settled)
            }
        }));
        for _ in 0..20 {
            for key in 0..5 {
                queue.add(key);
            }
            tokio::time::sleep(S / 3).await;
        }
        tokio::time::sleep(10 * S).await;
        queue.shut_down();
        workers.await.unwrap();
        assert_eq!(running.lock().1, 3, "all workers were busy at some time");
        assert!(!metrics.render().contains("reason=\"panic\""));
    }

    #[tokio::test(start_paused = true)]
    async fn shutting_down_waits_for_the_running_sync_and_starts_no_other() {
        let metrics = Metrics::new();
        let queue = WorkQueue::new("test", &metrics);
        let finished = Log::default();
        let (log, start) = (finished.clone(), Instant::now());
        queue.add(1);
        queue.add(2);
        let workers = tokio::spawn(run_workers(queue.clone(), 1, move |key| {
            let log = log.clone();
            async move {
                tokio::time::sleep(5 * S).await;
                log.note(key, start);
                Ok::<_, Refused>(Next::Settled)
            }
        }));
        tokio::time::sleep(S / 4).await;
        let text = metrics.render();
        assert!(text.contains("workqueue_unfinished_work_seconds{name=\"test\"} 0.25"), "{text}");
        assert!(text.contains("workqueue_depth{name=\"test\"} 1"), "{text}");
        queue.shut_down();
        workers.await.unwrap();
        assert_eq!(finished.keys(), [1]);
        assert_eq!(start.elapsed(), 5 * S);
    }

    /// Runs syncs that take this long on one worker, and returns when each key began and how long all of them took.
    async fn long_syncs(keys: u32, time: Duration, stop_after: Duration) -> (Vec<u128>, Duration) {
        let (metrics, log) = (Metrics::new(), Log::default());
        let queue = WorkQueue::new("test", &metrics);
        (0..keys).for_each(|key| queue.add(key));
        let (began, start) = (log.clone(), Instant::now());
        let workers = tokio::spawn(run_workers(queue.clone(), 1, move |key| {
            began.note(key, start);
            async move {
                tokio::time::sleep(time).await;
                Ok::<_, Refused>(Next::Settled)
            }
        }));
        tokio::time::sleep(stop_after).await;
        queue.shut_down();
        workers.await.unwrap();
        (log.times(), start.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn a_sync_that_takes_long_holds_its_worker_for_half_a_second() {
        assert_eq!(long_syncs(4, 100 * S, 2 * S).await, (vec![0, 500, 1000, 1500], 101_500 * S / 1000));
        assert_eq!(long_syncs(4, S / 4, 2 * S).await.0, [0, 250, 500, 750]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_continues_no_more_than_a_few_syncs_beside_the_next() {
        let (began, _) = long_syncs(30, 100 * S, 50 * S).await;
        assert_eq!(began.len(), SYNCS_PER_WORKER);
        let (began, _) = long_syncs(30, 100 * S, 101 * S).await;
        assert_eq!(began[SYNCS_PER_WORKER], 100_000, "as soon as the first has ended");
    }
}
