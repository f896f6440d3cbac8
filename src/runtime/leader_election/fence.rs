//! The fence: until when this process may write.
//!
//! The one guarantee: no write is sent at or after the deadline, those under way are cut off at it, and
//! a fence that has shut never opens again. [`super::lease`] moves the deadline with every renewal of the
//! lease; [`crate::runtime::api::Api::fenced`] checks it. Each reads the clock itself, so that writes
//! end on time even if the task that renews the lease hangs.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Why a process that has not been elected must not write.
const STANDBY: &str = "this process does not lead";

/// Why no write is sent after the deadline.
const OVERDUE: &str = "the lease was not renewed in time";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Not open yet.
    NotOpen,
    /// Open before this instant.
    OpenUntil(Instant),
    /// Shut for good, and why.
    Closed(&'static str),
}

/// How long a write may still be carried out after we stopped waiting for its outcome: the minute after
/// which kube-apiserver gives a request up (`--request-timeout`). It is not counted from when the write
/// was sent, since a component in between may have delayed it until we closed the connection.
pub const IN_DOUBT: Duration = Duration::from_secs(60);

/// The state that a fence and its control share.
#[derive(Debug)]
struct Gate {
    state: Mutex<State>,
    /// Wakes waiting tasks in the order of their arrival. A `watch` channel wakes them in any order, and a simulation
    /// in which a lease is renewed during two calls would not be reproducible.
    moved: Notify,
}

/// Tells whether a write may be sent now. Clones share the fence.
#[derive(Clone, Debug)]
pub struct Fence {
    gate: Arc<Gate>,
    /// When we last stopped waiting for a write without knowing its outcome.
    last_in_doubt: Arc<Mutex<Option<Instant>>>,
}

/// A write that the fence let through. Dropped before [`WritePermit::completed`], its outcome is unknown:
/// whatever ended it, a timeout or a task that was aborted, the request may still be in flight.
#[derive(Debug)]
#[must_use = "a write that is not said to have ended counts as one that may still be carried out"]
pub struct WritePermit {
    last_in_doubt: Arc<Mutex<Option<Instant>>>,
    is_completed: bool,
}

impl WritePermit {
    /// The write was carried out, or never will be.
    pub fn completed(mut self) {
        self.is_completed = true;
    }
}

impl Drop for WritePermit {
    fn drop(&mut self) {
        if !self.is_completed {
            *self.last_in_doubt.lock() = Some(Instant::now());
        }
    }
}

/// Opens, extends and shuts a [`Fence`]. There is one for each fence, and the election owns it.
#[derive(Debug)]
pub struct FenceControl {
    gate: Arc<Gate>,
}

/// A fence that is not open yet, and its control.
pub fn fence() -> (FenceControl, Fence) {
    let gate = Arc::new(Gate { state: Mutex::new(State::NotOpen), moved: Notify::new() });
    (FenceControl { gate: gate.clone() }, Fence { gate, last_in_doubt: Arc::default() })
}

impl FenceControl {
    /// Lets writes through before `until`. Returns `false`, and changes nothing, if the fence has shut
    /// by now: no write may pass after another was refused at the old deadline.
    pub fn extend(&self, until: Instant) -> bool {
        let mut state = self.gate.state.lock();
        // Read under the lock: read before it, a write might be refused in between.
        let now = Instant::now();
        let open = match *state {
            State::NotOpen => true,
            State::OpenUntil(deadline) => now < deadline,
            State::Closed(_) => false,
        };
        if open {
            *state = State::OpenUntil(until);
            self.gate.moved.notify_waiters();
        }
        open
    }

    /// Shuts the fence for good. Refused writes report the first `reason`.
    pub fn close(&self, reason: &'static str) {
        let mut state = self.gate.state.lock();
        if !matches!(*state, State::Closed(_)) {
            *state = State::Closed(reason);
            self.gate.moved.notify_waiters();
        }
    }
}

impl Fence {
    /// Whether a write may be sent at this instant.
    ///
    /// # Errors
    /// Why not, in a few words.
    pub fn check(&self) -> Result<(), &'static str> {
        match *self.gate.state.lock() {
            State::NotOpen => Err(STANDBY),
            State::OpenUntil(deadline) if Instant::now() < deadline => Ok(()),
            State::OpenUntil(_) => Err(OVERDUE),
            State::Closed(reason) => Err(reason),
        }
    }

    /// Lets a write through that is sent at this instant.
    ///
    /// # Errors
    /// Why it must not be sent, as [`Fence::check`].
    pub fn permit(&self) -> Result<WritePermit, &'static str> {
        self.check()?;
        Ok(WritePermit { last_in_doubt: self.last_in_doubt.clone(), is_completed: false })
    }

    /// For how long a write that passed, and whose outcome is unknown, may still be carried out; `None`
    /// without such a write.
    pub fn in_doubt_for(&self) -> Option<Duration> {
        let until = (*self.last_in_doubt.lock())? + IN_DOUBT;
        Some(until.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero())
    }

    /// Waits for the fence to open, and returns at once if it ever has.
    pub async fn wait_open(&self) {
        loop {
            // Created before the state is read: it is notified of changes from now on, polled or not.
            let moved = self.gate.moved.notified();
            if *self.gate.state.lock() != State::NotOpen {
                return;
            }
            moved.await;
        }
    }

    /// Waits until no write may be sent, and returns the reason.
    ///
    /// Each poll reads the clock itself. A process that was stopped and continues finds
    /// many tasks ready at once, and its timer need not be the first of them.
    pub async fn wait_closed(&self) -> &'static str {
        let waiting = self.wait();
        tokio::pin!(waiting);
        poll_fn(|cx| match self.check() {
            Err(reason) => std::task::Poll::Ready(reason),
            Ok(()) => waiting.as_mut().poll(cx),
        })
        .await
    }

    async fn wait(&self) -> &'static str {
        loop {
            let moved = self.gate.moved.notified();
            let deadline = match *self.gate.state.lock() {
                State::NotOpen => return STANDBY,
                State::Closed(reason) => return reason,
                State::OpenUntil(deadline) => deadline,
            };
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(deadline) => return OVERDUE,
                () = moved => {}
            }
        }
    }

    /// How long the fence has been overdue: open once, past its deadline, and not shut by its control, whose
    /// task must be hanging.
    pub fn overdue(&self) -> Duration {
        match *self.gate.state.lock() {
            State::OpenUntil(deadline) => Instant::now().saturating_duration_since(deadline),
            State::NotOpen | State::Closed(_) => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn no_write_passes_before_the_election_or_from_the_deadline_on() {
        let (control, fence) = fence();
        assert_eq!(fence.check(), Err(STANDBY));
        assert!(control.extend(Instant::now() + 10 * S));
        tokio::time::sleep(10 * S - Duration::from_millis(1)).await;
        assert_eq!(fence.check(), Ok(()));
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(fence.check(), Err(OVERDUE));
    }

    #[tokio::test(start_paused = true)]
    async fn each_renewal_moves_the_deadline_of_waiting_tasks_too() {
        let (control, fence) = fence();
        let start = Instant::now();
        control.extend(start + 10 * S);
        let waiting = fence.clone();
        let shut = tokio::spawn(async move { (waiting.wait_closed().await, start.elapsed()) });
        for second in 1..=5 {
            tokio::time::sleep(2 * S).await;
            assert!(control.extend(start + (2 * second + 10) * S), "renewed at {second}");
        }
        assert_eq!(shut.await.unwrap(), (OVERDUE, 20 * S));
        assert_eq!(fence.overdue(), Duration::ZERO);
        tokio::time::sleep(3 * S).await;
        assert_eq!(fence.overdue(), 3 * S);
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_tasks_are_woken_in_the_order_of_their_arrival() {
        let (control, fence) = fence();
        control.extend(Instant::now() + 10 * S);
        let (woken, mut order) = tokio::sync::mpsc::unbounded_channel();
        for number in 0..20 {
            let (fence, woken) = (fence.clone(), woken.clone());
            tokio::spawn(async move {
                fence.wait_closed().await;
                woken.send(number).unwrap();
            });
        }
        tokio::task::yield_now().await;
        control.close("released");
        for number in 0..20 {
            assert_eq!(order.recv().await, Some(number));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_fence_that_has_shut_never_opens_again() {
        let (control, overdue) = fence();
        control.extend(Instant::now() + S);
        tokio::time::sleep(S).await;
        assert!(!control.extend(Instant::now() + 10 * S), "the answer to a renewal came too late");
        assert_eq!(overdue.check(), Err(OVERDUE));

        let (control, shut) = fence();
        control.extend(Instant::now() + 10 * S);
        control.close("another leads");
        control.close("released");
        assert!(!control.extend(Instant::now() + 10 * S));
        assert_eq!((shut.check(), shut.wait_closed().await), (Err("another leads"), "another leads"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_of_unknown_outcome_stays_in_doubt_for_a_minute() {
        let (control, fence) = fence();
        assert_eq!(fence.permit().err(), Some(STANDBY));
        control.extend(Instant::now() + 600 * S);
        let writes = [fence.permit().unwrap(), fence.permit().unwrap(), fence.clone().permit().unwrap()];
        tokio::time::sleep(30 * S).await;
        assert_eq!(fence.in_doubt_for(), None, "they are waited for");
        let [known, first, second] = writes;
        known.completed();
        assert_eq!(fence.in_doubt_for(), None);
        drop(first);
        tokio::time::sleep(20 * S).await;
        assert_eq!(fence.in_doubt_for(), Some(40 * S));
        drop(second);
        tokio::time::sleep(59 * S).await;
        assert_eq!(fence.in_doubt_for(), Some(S));
        tokio::time::sleep(S).await;
        assert_eq!(fence.in_doubt_for(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_control_leaves_the_deadline_where_it_is() {
        let (control, fence) = fence();
        let start = Instant::now();
        control.extend(start + 4 * S);
        drop(control);
        fence.wait_open().await;
        assert_eq!((fence.wait_closed().await, start.elapsed()), (OVERDUE, 4 * S));
    }
}
