//! Rollout policies: what the annotations `windlass.dev/…` of a Deployment or DaemonSet ask for, parsed once into a value.
//!
//! The one guarantee: an object without such an annotation has [`Policy::default`], and under that every plan is what it
//! is without policies. The planners read the value; nobody else reads the annotations. See `docs/rollout-policy.md`.

mod grammar;
mod keys;
pub mod state;
pub mod steps;

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

pub use grammar::{Command, Kept, Step};
pub use keys::{Kind, PREFIX};
pub use state::{State, Verdict};
pub use steps::StepHold;

use super::EventNote;
pub use crate::model::controllerrevision::ROLLOUT_STATE;
use crate::model::meta::StringMap;
use crate::model::statefulset::{REPLACE_BROKEN_AFTER, seconds};

/// Sizes at which a rollout waits.
pub const STEPS: &str = "windlass.dev/steps";
/// How long every missing new pod has to have failed until the rollout has.
pub const FAIL_AFTER: &str = "windlass.dev/fail-after";
/// The consequence of a failure.
pub const ON_FAILURE: &str = "windlass.dev/on-failure";
/// The way out where the surge pod fits no node.
pub const WHEN_UNSCHEDULABLE: &str = "windlass.dev/when-unschedulable";
/// When an old pod counts as replaced (KEP-5882).
pub const POD_REPLACEMENT: &str = "windlass.dev/pod-replacement";
/// The pause between two batches of new pods.
pub const BATCH_DELAY: &str = "windlass.dev/batch-delay";
/// Until when steps and delays hold nothing.
pub const BYPASS_UNTIL: &str = "windlass.dev/bypass-until";
/// A command about one revision.
pub const ROLLOUT: &str = "windlass.dev/rollout";
/// How many failed pods are kept.
pub const KEEP_FAILED_PODS: &str = "windlass.dev/keep-failed-pods";
/// DaemonSets: nodes that are not ready do not stop an update.
pub const NOT_READY_NODES: &str = "windlass.dev/not-ready-nodes";
/// DaemonSets: how long an update may go on without progress.
pub const PROGRESS_DEADLINE: &str = "windlass.dev/progress-deadline";

/// The longest bypass: an emergency that lasts a week is a change of the policy.
pub const LONGEST_BYPASS: SignedDuration = SignedDuration::from_hours(7 * 24);

/// The consequence of a failed rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// The pods that serve get the place of the failed ones.
    Halt,
    /// And the template that serves becomes the Deployment's again, once.
    Rollback,
}

/// When an old pod counts as replaced (KEP-5882).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodReplacement {
    /// Once it is being deleted.
    TerminationStarted,
    /// Once it is gone.
    TerminationComplete,
}

/// The policy of one object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Sizes at which the rollout waits, as they are written; the annotation's text identifies them in the state.
    pub steps: Vec<Step>,
    /// The text of [`STEPS`].
    pub steps_text: String,
    /// See [`FAIL_AFTER`].
    pub fail_after: Option<Duration>,
    /// See [`ON_FAILURE`].
    pub on_failure: Option<OnFailure>,
    /// See [`WHEN_UNSCHEDULABLE`]: an old pod goes first.
    pub terminates_first: bool,
    /// See [`POD_REPLACEMENT`].
    pub pod_replacement: Option<PodReplacement>,
    /// See [`BATCH_DELAY`].
    pub batch_delay: Option<Duration>,
    /// Until when it is bypassed, where that is in the future.
    pub bypassed_until: Option<Timestamp>,
    /// See [`ROLLOUT`].
    pub command: Option<Command>,
    /// See [`KEEP_FAILED_PODS`].
    pub kept: Option<Kept>,
    /// See [`NOT_READY_NODES`].
    pub ignores_not_ready_nodes: bool,
    /// See [`PROGRESS_DEADLINE`].
    pub progress_deadline: Option<Duration>,
    /// Values that cannot be read, of keys that govern rollouts: they hold the next change, like a pause.
    pub defects: Vec<String>,
    /// Whether policies are switched off, and stored state with them.
    pub is_off: bool,
    /// Unknown keys, and bad values of keys that protect nothing that a rollout endangers: an event says so.
    pub remarks: Vec<String>,
}

impl Policy {
    /// The policy of every object where policies are switched off.
    pub fn off() -> Self {
        Policy { is_off: true, ..Policy::default() }
    }

    /// Reads the annotations of a Deployment or DaemonSet. `can_roll` tells whether its strategy moves pods step by step: under
    /// Recreate and OnDelete steps and delays could mean nothing, and are bad values.
    pub fn of(kind: Kind, annotations: &StringMap, can_roll: bool, now: Timestamp) -> Self {
        let mut policy = Policy::default();
        for (key, value) in annotations.iter().filter(|(key, _)| key.starts_with(PREFIX)) {
            let read = policy.read(kind, key, value, now).and_then(|()| {
                let needs_rolling = matches!(key, STEPS | BATCH_DELAY | WHEN_UNSCHEDULABLE);
                if needs_rolling && !can_roll {
                    return Err(format!(
                        "nothing with strategy {}: remove it",
                        kind.strategy_without_steps()
                    ));
                }
                Ok(())
            });
            let Err(accepted) = read else { continue };
            match keys::governs_rollouts(kind, key) {
                Some(true) => policy.defects.push(defect(key, value, &accepted)),
                Some(false) => policy.remarks.push(defect(key, value, &accepted)),
                None => policy.remarks.push(accepted),
            }
        }
        policy
    }

    /// Reads the one key that a ReplicaSet has. The others on it are copies of its Deployment's.
    pub fn of_replica_set(annotations: &StringMap) -> Self {
        let mut policy = Policy::default();
        if let Some(value) = annotations.get(KEEP_FAILED_PODS) {
            match grammar::kept(value) {
                Ok(kept) => policy.kept = Some(kept),
                Err(accepted) => policy.remarks.push(defect(KEEP_FAILED_PODS, value, &accepted)),
            }
        }
        policy
    }

    /// Reads one value, or says what is accepted instead; for an unknown key, the whole sentence.
    fn read(&mut self, kind: Kind, key: &str, value: &str, now: Timestamp) -> Result<(), String> {
        if keys::governs_rollouts(kind, key).is_none() {
            return if keys::is_of_others(key) { Ok(()) } else { Err(keys::unknown(kind, key)) };
        }
        match key {
            STEPS => (self.steps, self.steps_text) = (grammar::steps(value)?, value.to_owned()),
            FAIL_AFTER => self.fail_after = Some(grammar::duration(value)?),
            ON_FAILURE => {
                self.on_failure = Some(match value {
                    "halt" => OnFailure::Halt,
                    "rollback" => OnFailure::Rollback,
                    _ => return Err("halt or rollback".to_owned()),
                });
            }
            WHEN_UNSCHEDULABLE => {
                self.terminates_first = grammar::word(value, "terminate-first")?;
            }
            POD_REPLACEMENT => {
                self.pod_replacement = Some(match value {
                    "TerminationStarted" => PodReplacement::TerminationStarted,
                    "TerminationComplete" => PodReplacement::TerminationComplete,
                    _ => return Err("TerminationStarted or TerminationComplete".to_owned()),
                });
            }
            BATCH_DELAY => self.batch_delay = Some(grammar::duration(value)?),
            BYPASS_UNTIL => self.bypassed_until = bypass(value, now)?,
            ROLLOUT => {
                let command = grammar::command(value)?;
                if kind == Kind::DaemonSet && !matches!(command, Command::Approve { .. }) {
                    return Err("approve REVISION or approve REVISION/STEP on a DaemonSet".to_owned());
                }
                self.command = Some(command);
            }
            KEEP_FAILED_PODS => self.kept = Some(grammar::kept(value)?),
            NOT_READY_NODES => self.ignores_not_ready_nodes = grammar::word(value, "ignore")?,
            PROGRESS_DEADLINE => self.progress_deadline = Some(grammar::duration(value)?),
            _ => {}
        }
        Ok(())
    }

    /// Whether it asks for nothing: the object's plans are those without policies.
    pub fn is_absent(&self) -> bool {
        *self == Policy::default()
    }

    /// Whether the state of a rollout is recorded: something in it outlives a sync.
    pub fn keeps_state(&self) -> bool {
        !self.steps.is_empty()
            || self.on_failure.is_some()
            || self.terminates_first
            || self.progress_deadline.is_some()
    }

    /// The events about values that cannot be read, and keys that nobody knows.
    pub fn notes(&self) -> Vec<EventNote> {
        let warning = |reason| move |text: &String| EventNote::warning(reason, text.clone());
        let defects = self.defects.iter().map(warning("InvalidPolicy"));
        defects.chain(self.remarks.iter().map(warning("UnknownPolicy"))).collect()
    }

    /// Why nothing is rolled out.
    pub fn defect(&self) -> Option<String> {
        (!self.defects.is_empty()).then(|| self.defects.join("; "))
    }
}

/// The events about annotations of a StatefulSet that mean nothing, or cannot be read: it has one of its own, and no policy.
pub fn notes_of_stateful_set(annotations: &StringMap) -> Vec<EventNote> {
    let defects = annotations.iter().filter_map(|(key, value)| match key {
        REPLACE_BROKEN_AFTER => {
            seconds(value).is_none().then(|| defect(key, value, "a number of seconds such as 300"))
        }
        key if keys::is_of_others(key) => None,
        key => key.starts_with(PREFIX).then(|| keys::unknown(Kind::StatefulSet, key)),
    });
    defects.map(|text| EventNote::warning("UnknownPolicy", text)).collect()
}

/// Whether the plans for an object with these annotations may depend on when its pods end.
pub fn waits_for_ends(annotations: &StringMap) -> bool {
    [POD_REPLACEMENT, WHEN_UNSCHEDULABLE].iter().any(|key| annotations.get(key).is_some())
}

/// Until when the steps of an object with these annotations hold nothing; `None` where they hold.
pub fn bypassed_until(annotations: &StringMap, now: Timestamp) -> Option<Timestamp> {
    bypass(annotations.get(BYPASS_UNTIL)?, now).ok()?
}

/// The sentence about a rollout that waits until its policy can be read.
pub fn unreadable(defect: &str) -> String {
    format!("The rollout waits until its policy can be read: {defect}")
}

/// The sentence about a value that cannot be read.
fn defect(key: &str, value: &str, accepted: &str) -> String {
    let shown: String = value.chars().take(60).collect();
    let cut = if shown.len() < value.len() { "…" } else { "" };
    format!("the annotation {key} is {:?}; accepted is {accepted}", format!("{shown}{cut}"))
}

fn bypass(value: &str, now: Timestamp) -> Result<Option<Timestamp>, String> {
    let until: Timestamp = value.parse().map_err(|_| "a time such as 2026-01-02T03:04:05Z".to_owned())?;
    if until.duration_since(now) > LONGEST_BYPASS {
        return Err("a time at most 7 days ahead".to_owned());
    }
    Ok((until > now).then_some(until))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-01-01T00:00:00Z";

    fn read(pairs: &[(&str, &str)]) -> Policy {
        let annotations: StringMap = pairs.iter().copied().collect();
        Policy::of(Kind::Deployment, &annotations, true, NOW.parse().unwrap())
    }

    #[test]
    fn an_object_without_a_key_has_no_policy() {
        assert!(read(&[]).is_absent());
        assert!(read(&[("example.com/steps", "1"), ("windlass.developer/steps", "1")]).is_absent());
        assert!(read(&[("windlass.dev/released-owners", "x")]).is_absent(), "a key of another controller");
    }

    #[test]
    fn a_stateful_set_has_one_key_and_no_policy() {
        let notes = |pairs: &[(&str, &str)]| notes_of_stateful_set(&pairs.iter().copied().collect());
        assert_eq!(
            notes(&[(REPLACE_BROKEN_AFTER, "300"), ("windlass.dev/released-owners", "x"), ("a", "b")]),
            []
        );
        let said = |key, value| notes(&[(key, value)]).pop().unwrap().message;
        assert_eq!(
            said(STEPS, "1"),
            "the annotation windlass.dev/steps means nothing on a StatefulSet: remove it"
        );
        assert!(said(REPLACE_BROKEN_AFTER, "5m").ends_with("accepted is a number of seconds such as 300"));
        assert!(said("windlass.dev/replace-broken-pods", "5").ends_with(REPLACE_BROKEN_AFTER));
    }

    #[test]
    fn a_daemon_set_has_no_abort_and_no_retry() {
        for (command, is_known) in [("approve 3/1", true), ("abort 3", false), ("retry 3/1", false)] {
            let annotations: StringMap = [(ROLLOUT, command)].into_iter().collect();
            let policy = Policy::of(Kind::DaemonSet, &annotations, true, NOW.parse().unwrap());
            assert_eq!(
                (policy.command.is_some(), policy.remarks.is_empty()),
                (is_known, is_known),
                "{command}"
            );
            assert!(policy.defects.is_empty(), "it holds nothing");
        }
    }

    #[test]
    fn every_key_is_read() {
        let policy = read(&[
            (STEPS, "1, 25% for 10m"),
            (FAIL_AFTER, "2m"),
            (ON_FAILURE, "rollback"),
            (WHEN_UNSCHEDULABLE, "terminate-first"),
            (POD_REPLACEMENT, "TerminationComplete"),
            (BATCH_DELAY, "30s"),
            (BYPASS_UNTIL, "2026-01-01T01:00:00Z"),
            (ROLLOUT, "approve 7/2"),
            (KEEP_FAILED_PODS, "3 for 1h"),
        ]);
        assert_eq!((&policy.defects, &policy.remarks), (&vec![], &vec![]));
        assert_eq!((policy.steps.len(), policy.fail_after), (2, Some(Duration::from_secs(120))));
        assert_eq!(policy.on_failure, Some(OnFailure::Rollback));
        assert!(policy.terminates_first && policy.keeps_state());
        assert_eq!(policy.pod_replacement, Some(PodReplacement::TerminationComplete));
        assert_eq!(policy.batch_delay, Some(Duration::from_secs(30)));
        assert_eq!(policy.bypassed_until, "2026-01-01T01:00:00Z".parse().ok());
        assert_eq!(policy.command, Some(Command::Approve { revision: 7, step: Some(2) }));
    }

    #[test]
    fn a_bad_value_names_the_key_the_value_and_what_is_accepted() {
        for (key, value, accepted) in [
            (STEPS, "1,25%%", "\"25%%\" is none"),
            (FAIL_AFTER, "2", "2m"),
            (ON_FAILURE, "stop", "halt or rollback"),
            (WHEN_UNSCHEDULABLE, "true", "terminate-first"),
            (POD_REPLACEMENT, "terminationComplete", "TerminationComplete"),
            (BATCH_DELAY, "-1s", "30s"),
            (BYPASS_UNTIL, "tomorrow", "2026-01-02T03:04:05Z"),
            (BYPASS_UNTIL, "2026-01-08T00:00:01Z", "7 days"),
        ] {
            let policy = read(&[(key, value)]);
            let said = policy.defect().unwrap_or_default();
            assert!(said.contains(key) && said.contains(value) && said.contains(accepted), "{said}");
        }
        assert!(read(&[(BYPASS_UNTIL, "2026-01-08T00:00:00Z")]).defect().is_none(), "7 days are accepted");
        assert_eq!(read(&[(BYPASS_UNTIL, "2025-12-31T00:00:00Z")]).bypassed_until, None, "it has passed");
        let long = read(&[(STEPS, &"9".repeat(300_000))]);
        assert!(long.defect().unwrap().len() < 400, "a value of any length is cut");
    }

    #[test]
    fn a_bad_value_that_endangers_no_rollout_and_an_unknown_key_hold_nothing() {
        let policy = read(&[(KEEP_FAILED_PODS, "0"), ("windlass.dev/step", "1"), (ROLLOUT, "go")]);
        assert_eq!(policy.defect(), None);
        let said = policy.remarks.join("\n");
        assert!(said.contains(KEEP_FAILED_PODS) && said.contains(STEPS) && said.contains(ROLLOUT), "{said}");
    }

    #[test]
    fn steps_mean_nothing_under_recreate() {
        let annotations: StringMap = [(STEPS, "1"), (ON_FAILURE, "rollback")].into_iter().collect();
        let policy = Policy::of(Kind::Deployment, &annotations, false, NOW.parse().unwrap());
        assert!(policy.defect().unwrap().contains("Recreate"));
        assert_eq!(policy.on_failure, Some(OnFailure::Rollback));
    }

    #[test]
    fn a_daemon_set_has_keys_of_its_own() {
        let annotations: StringMap =
            [(NOT_READY_NODES, "ignore"), (PROGRESS_DEADLINE, "30m"), (ON_FAILURE, "halt")]
                .into_iter()
                .collect();
        let policy = Policy::of(Kind::DaemonSet, &annotations, true, NOW.parse().unwrap());
        assert!(policy.ignores_not_ready_nodes && policy.progress_deadline.is_some());
        assert!(policy.remarks[0].contains(ON_FAILURE), "{:?}", policy.remarks);
        assert!(read(&[(NOT_READY_NODES, "ignore")]).remarks[0].contains(NOT_READY_NODES));
    }
}
