//! The walk through the steps of a rollout: the first that is not passed, and the bound that it sets.
//!
//! Deployments count pods, DaemonSets nodes. Both call them replicas here.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use super::state::time;
use super::{Command, Policy, State};
use crate::plan::EventNote;

/// A step that holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StepHold {
    /// Its number, from 1.
    pub step: usize,
    /// How many steps hold at this size.
    pub of: usize,
    /// Whether it passes by itself.
    pub is_timed: bool,
    /// Its pods.
    pub bound: i64,
    /// `spec.replicas`; of a DaemonSet, the nodes that should run a pod.
    pub replicas: i32,
    /// The revision that rolls out.
    pub revision: i64,
    /// Since when so many pods are available; `None` before.
    #[serde(serialize_with = "time::serialize", skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// When it passes by itself; `None` where it is to be approved, and before it is reached.
    #[serde(serialize_with = "time::serialize", skip_serializing_if = "Option::is_none")]
    pub passes_at: Option<Timestamp>,
}

impl StepHold {
    /// The message of the condition about a step that is reached, with the command that approves it.
    pub fn message(&self, approve: &str) -> String {
        let StepHold { step, of, bound, replicas, revision, passes_at, .. } = self;
        let have = if *bound == 1 { "has" } else { "have" };
        let until = match passes_at {
            Some(at) => format!("until {at}"),
            None => format!("until approved: {approve}"),
        };
        format!("Step {step} of {of}: {bound} of {replicas} pods {have} revision {revision}. Held {until}")
    }
}

impl std::fmt::Display for StepHold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let StepHold { step, of, is_timed: _, bound, replicas, revision, since, passes_at } = self;
        write!(f, "Step {step} of {of} lets {bound} of {replicas} pods have revision {revision}")?;
        match (since, passes_at) {
            (None, _) => f.write_str(", and waits until they are available"),
            (Some(_), Some(at)) => write!(f, ": held until {at}"),
            (Some(_), None) => f.write_str(": held until it is approved"),
        }
    }
}

/// A rollout as its steps see it.
#[derive(Clone, Copy, Debug)]
pub struct Rollout {
    /// The revision that rolls out.
    pub revision: i64,
    /// How many pods it leads to.
    pub replicas: i32,
    /// How many it has.
    pub size: i64,
    /// How many of them are available.
    pub available: i64,
    /// The time of the decision.
    pub now: Timestamp,
}

/// How many of the latest revisions are close enough to return to without steps.
pub const NEAR: usize = 3;

/// A time as the API writes times: in whole seconds.
pub fn whole(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// The result of a walk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Walk {
    /// The step that holds.
    pub hold: Option<StepHold>,
    /// The events of the steps that were reached or passed.
    pub notes: Vec<EventNote>,
    /// When the next decision is due.
    pub wakes_at: Option<Timestamp>,
}

/// Steps with the same bound: they pass together.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Group {
    /// The number of the last.
    last: usize,
    bound: i64,
    /// The longest of their waits; `None`: until approved.
    wait: Option<Duration>,
}

/// The steps at this size, each bound above the one before and below the size.
fn groups(policy: &Policy, replicas: i32) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (at, step) in policy.steps.iter().enumerate() {
        let bound = i64::from(step.bound(replicas)).max(groups.last().map_or(0, |group| group.bound));
        if bound >= i64::from(replicas) {
            break;
        }
        match groups.last_mut().filter(|group| group.bound == bound) {
            Some(group) => {
                group.last = at + 1;
                group.wait = group.wait.zip(step.wait).map(|(a, b)| a.max(b));
            }
            None => groups.push(Group { last: at + 1, bound, wait: step.wait }),
        }
    }
    groups
}

/// How many steps have a bound below a size: so many are certainly passed.
pub fn passed_by_size(policy: &Policy, replicas: i32, size: i64) -> usize {
    let mut bound = 0;
    let bounds = policy.steps.iter().map(|step| {
        bound = bound.max(i64::from(step.bound(replicas)));
        bound
    });
    bounds.take_while(|bound| *bound < size).count()
}

/// Passes the steps that may be passed and records them in the state.
pub fn walk(policy: &Policy, rollout: Rollout, state: &mut State) -> Walk {
    let Rollout { revision, replicas, size, available, now } = rollout;
    let mut walk = Walk::default();
    let groups = groups(policy, replicas);
    let Some(of) = groups.last().map(|group| group.last) else { return walk };
    if let Some(until) = policy.bypassed_until {
        let passed = passed_by_size(policy, replicas, size);
        if passed > state.passed {
            let message = format!("Revision {revision} passes its steps: a bypass lasts until {until}");
            walk.notes.push(EventNote::warning("RolloutBypassed", message));
            (state.passed, state.since) = (passed, None);
        }
        walk.wakes_at = Some(until);
        return walk;
    }
    for group in groups {
        let Group { last, bound, wait } = group;
        if last <= state.passed {
            continue;
        }
        let is_reached = available >= bound;
        if is_reached && state.since.is_none() {
            state.since = Some(whole(now));
            let message = format!(
                "Step {last} of {of} of revision {revision}: {bound} of {replicas} pods are available"
            );
            walk.notes.push(EventNote::normal("RolloutStepReached", message));
        }
        let approved = match policy.command {
            Some(Command::Approve { revision: named, step }) => {
                named == revision && step.is_none_or(|step| step >= last)
            }
            _ => false,
        };
        let passes_at = state.since.zip(wait).map(|(since, wait)| after(since, wait));
        let has_waited = is_reached && passes_at.is_some_and(|at| at <= now);
        if approved || has_waited {
            let by = if approved { "approved" } else { "its time is over" };
            let message = format!("Step {last} of {of} of revision {revision} is passed: {by}");
            walk.notes.push(EventNote::normal("RolloutStepPassed", message));
            (state.passed, state.since) = (last, None);
            if approved {
                state.approved = last;
            }
            continue;
        }
        let passes_at = passes_at.filter(|_| is_reached);
        walk.wakes_at = passes_at;
        walk.hold = Some(StepHold {
            step: last,
            of,
            is_timed: wait.is_some(),
            bound,
            replicas,
            revision,
            since: state.since.filter(|_| is_reached),
            passes_at,
        });
        break;
    }
    walk
}

/// A time and a wait after it.
pub fn after(since: Timestamp, wait: Duration) -> Timestamp {
    since.saturating_add(wait).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::meta::StringMap;
    use crate::plan::policy::{Kind, ROLLOUT, STEPS};

    fn policy(steps: &str, command: &str) -> Policy {
        let pairs = [(STEPS, steps), (ROLLOUT, command)];
        let annotations: StringMap = pairs.into_iter().filter(|(_, value)| !value.is_empty()).collect();
        Policy::of(Kind::DaemonSet, &annotations, true, Timestamp::UNIX_EPOCH)
    }

    fn rollout(available: i64, second: i64) -> Rollout {
        let now = Timestamp::from_second(second).unwrap();
        Rollout { revision: 2, replicas: 8, size: available, available, now }
    }

    #[test]
    fn steps_of_one_bound_are_one_and_the_longer_wait_wins() {
        let bounds = |steps: &str, replicas| {
            let groups = groups(&policy(steps, ""), replicas);
            let seconds = |wait: Option<Duration>| wait.map(|wait| wait.as_secs());
            groups.into_iter().map(|g| (g.last, g.bound, seconds(g.wait))).collect::<Vec<_>>()
        };
        assert_eq!(bounds("1, 10% for 5s, 50% for 9s", 8), [(2, 1, None), (3, 4, Some(9))]);
        assert_eq!(bounds("1 for 2s, 1 for 7s, 100%", 8), [(2, 1, Some(7))]);
        assert_eq!(bounds("3, 1 for 2s, 4", 8), [(2, 3, None), (3, 4, None)], "a bound never falls");
        assert_eq!(bounds("1", 1), []);
        assert_eq!(bounds("50%", 0), []);
    }

    #[test]
    fn an_approval_passes_steps_of_its_own_revision_only() {
        for (command, passed) in
            [("", 0), ("approve 1", 0), ("approve 2/1", 1), ("approve 2/2", 2), ("approve 2", 3)]
        {
            let mut state = State::default();
            let walk = walk(&policy("1, 2, 4", command), rollout(0, 5), &mut state);
            assert_eq!((state.passed, state.approved), (passed, passed), "{command}");
            assert_eq!(walk.hold.map(|hold| hold.step), (passed < 3).then_some(passed + 1), "{command}");
        }
    }

    #[test]
    fn a_timed_step_passes_after_its_time_with_its_pods_available() {
        let (policy, mut state) = (policy("2 for 10s", ""), State::default());
        let mut at = |available, second| {
            let walk = walk(&policy, rollout(available, second), &mut state);
            (walk.hold.is_some(), walk.wakes_at.map(|at| at.as_second()))
        };
        assert_eq!(at(1, 0), (true, None), "it is not reached");
        assert_eq!(at(2, 1), (true, Some(11)));
        assert_eq!(at(2, 10), (true, Some(11)));
        assert_eq!(at(1, 12), (true, None), "a pod is not available now");
        assert_eq!(at(2, 13), (false, None));
    }
}
