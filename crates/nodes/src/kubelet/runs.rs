//! A container that ends: its present run, the one before, and when it is started again. Pure.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::{
    outcomes::{PodOutcome, Run},
    record::RestartPolicy,
};

/// The first restart is made at once; the next one waits so long, and each after it twice as long as the one before
/// (`backOffPeriod` and `MaxContainerBackOff` of upstream's kubelet).
const FIRST_BACKOFF: Duration = Duration::from_secs(10);
const LONGEST_BACKOFF: Duration = Duration::from_secs(300);

/// A container that ran longer than this begins anew with its restarts.
const RECOVERED: Duration = Duration::from_secs(600);

/// The end of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    pub(super) exit_code: u8,
    pub(super) started: Timestamp,
    pub(super) finished: Timestamp,
}

/// The state of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    /// It runs.
    Running {
        /// Since this time.
        since: Timestamp,
        /// It ends then, if ever.
        until: Option<Instant>,
    },
    /// It has ended, and is started again later.
    BackOff {
        /// Then.
        until: Instant,
        /// After this time in all.
        wait: Duration,
    },
    /// It has ended for good.
    Ended(Ended),
}

/// Something that happened to a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It ended for good.
    Ended,
    /// It was started again.
    Restarted,
    /// It ended, and is started again later.
    BackedOff,
}

/// The start of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// The time of the simulator.
    pub now: Instant,
    /// The same as it is written into statuses.
    pub at: Timestamp,
    /// The number of the attempt, from 0.
    pub attempt: u32,
}

/// The runs of one container.
#[derive(Clone, Debug)]
pub struct ContainerRuns {
    outcome: Option<PodOutcome>,
    /// The completion index of its pod.
    index: Option<u32>,
    /// The end of the present run, if nothing stops it.
    run: Option<Run>,
    policy: RestartPolicy,
    pub(super) restarts: i64,
    pub(super) state: RunState,
    /// The end before the present state.
    pub(super) last: Option<Ended>,
    backoff: Duration,
}

impl ContainerRuns {
    /// A container that is started now, and has been restarted so often before.
    pub fn new(
        outcome: Option<PodOutcome>,
        policy: RestartPolicy,
        restarts: i64,
        index: Option<u32>,
        start: Start,
    ) -> Self {
        let run = outcome.as_ref().map(|outcome| outcome.run(index, start.attempt));
        let state = RunState::Running { since: start.at, until: until(run, start.now) };
        ContainerRuns { outcome, index, run, policy, restarts, state, last: None, backoff: Duration::ZERO }
    }

    /// When something happens to it.
    pub fn next(&self) -> Option<Instant> {
        match self.state {
            RunState::Running { until, .. } => until,
            RunState::BackOff { until, .. } => Some(until),
            RunState::Ended(_) => None,
        }
    }

    /// The change that has happened to it by `now`. `attempt` gives the number of an attempt that begins.
    pub fn advance(
        &mut self,
        now: Instant,
        at: Timestamp,
        attempt: &mut dyn FnMut() -> u32,
    ) -> Option<Change> {
        let run = self.run?;
        match self.state {
            RunState::Running { since, until: Some(until) } if until <= now => {
                let ended = Ended { exit_code: run.exit_code, started: since, finished: at };
                let restarts = match self.policy {
                    RestartPolicy::Never => false,
                    RestartPolicy::OnFailure => run.exit_code != 0,
                    RestartPolicy::Always => true,
                };
                if !restarts {
                    self.state = RunState::Ended(ended);
                    return Some(Change::Ended);
                }
                self.last = Some(ended);
                if run.after.is_some_and(|after| after > RECOVERED) || self.backoff.is_zero() {
                    self.backoff = FIRST_BACKOFF;
                    return self.restart(Start { now, at, attempt: attempt() });
                }
                let wait = self.backoff;
                self.backoff = (wait * 2).min(LONGEST_BACKOFF);
                self.state = RunState::BackOff { until: now + wait, wait };
                Some(Change::BackedOff)
            }
            RunState::BackOff { until, .. } if until <= now => {
                self.restart(Start { now, at, attempt: attempt() })
            }
            _ => None,
        }
    }

    fn restart(&mut self, start: Start) -> Option<Change> {
        self.restarts = self.restarts.saturating_add(1);
        self.run = self.outcome.as_ref().map(|outcome| outcome.run(self.index, start.attempt));
        self.state = RunState::Running { since: start.at, until: until(self.run, start.now) };
        Some(Change::Restarted)
    }
}

fn until(run: Option<Run>, now: Instant) -> Option<Instant> {
    run?.after.map(|after| now + after)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(now: Instant) -> Start {
        Start { now, at: Timestamp::UNIX_EPOCH, attempt: 0 }
    }

    fn runs(policy: RestartPolicy, exit_code: u8, after: u64, now: Instant) -> ContainerRuns {
        let outcome = PodOutcome::exits(exit_code, Duration::from_secs(after));
        ContainerRuns::new(Some(outcome), policy, 0, None, start(now))
    }

    #[tokio::test(start_paused = true)]
    async fn restarts_wait_ten_seconds_and_then_twice_as_long_up_to_five_minutes() {
        let mut now = Instant::now();
        let mut runs = runs(RestartPolicy::OnFailure, 1, 2, now);
        let mut waits = Vec::new();
        while waits.len() < 8 {
            now = runs.next().unwrap();
            if runs.advance(now, Timestamp::UNIX_EPOCH, &mut || 1) == Some(Change::BackedOff) {
                waits.push((runs.next().unwrap() - now).as_secs());
            }
        }
        assert_eq!(waits, [10, 20, 40, 80, 160, 300, 300, 300]);
        assert_eq!(runs.restarts, 8, "the first one did not wait, and the last one has not been made");
    }

    #[tokio::test(start_paused = true)]
    async fn a_container_that_ran_for_long_is_restarted_at_once() {
        let mut runs = runs(RestartPolicy::Always, 0, 601, Instant::now());
        for _ in 0..5 {
            let now = runs.next().unwrap();
            assert_eq!(runs.advance(now, Timestamp::UNIX_EPOCH, &mut || 1), Some(Change::Restarted));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_restart_policy_says_which_end_is_the_last() {
        let now = Instant::now();
        for (policy, exit_code, change) in [
            (RestartPolicy::Never, 0, Change::Ended),
            (RestartPolicy::Never, 1, Change::Ended),
            (RestartPolicy::OnFailure, 0, Change::Ended),
            (RestartPolicy::OnFailure, 1, Change::Restarted),
            (RestartPolicy::Always, 0, Change::Restarted),
        ] {
            let mut runs = runs(policy, exit_code, 0, now);
            assert_eq!(
                runs.advance(now, Timestamp::UNIX_EPOCH, &mut || 1),
                Some(change),
                "{policy:?} {exit_code}"
            );
            assert_eq!(runs.next().is_none(), change == Change::Ended);
        }
        let mut for_ever = ContainerRuns::new(None, RestartPolicy::Never, 0, None, start(now));
        assert_eq!((for_ever.next(), for_ever.advance(now, Timestamp::UNIX_EPOCH, &mut || 1)), (None, None));
    }

    #[tokio::test(start_paused = true)]
    async fn each_start_is_an_attempt_with_an_end_of_its_own() {
        let now = Instant::now();
        let outcome = "exit:5/0,after:1s/3s".parse().unwrap();
        let mut runs = ContainerRuns::new(Some(outcome), RestartPolicy::OnFailure, 0, None, start(now));
        let now = runs.next().unwrap();
        assert_eq!(runs.advance(now, Timestamp::UNIX_EPOCH, &mut || 1), Some(Change::Restarted));
        assert_eq!(runs.last.map(|ended| ended.exit_code), Some(5));
        assert_eq!(runs.next(), Some(now + Duration::from_secs(3)));
        let now = runs.next().unwrap();
        assert_eq!(runs.advance(now, Timestamp::UNIX_EPOCH, &mut || 2), Some(Change::Ended));
        assert!(matches!(runs.state, RunState::Ended(Ended { exit_code: 0, .. })));
    }
}
