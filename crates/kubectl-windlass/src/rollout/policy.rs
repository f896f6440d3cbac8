//! The rollout policy of a Deployment or DaemonSet, and how it holds the rollout, in words.

use jiff::Timestamp;
use windlass::model::StringMap;
use windlass::plan::Reason;
use windlass::plan::daemonset;
use windlass::plan::deployment::PlanReason;
use windlass::plan::policy::{
    BATCH_DELAY, BYPASS_UNTIL, FAIL_AFTER, KEEP_FAILED_PODS, NOT_READY_NODES, ON_FAILURE, POD_REPLACEMENT,
    PREFIX, PROGRESS_DEADLINE, STEPS, StepHold, WHEN_UNSCHEDULABLE,
};

use super::{Assessment, Verdict};
use crate::invocation::Commands;
use crate::target::Kind;
use crate::text::{age, harmless, span};

/// The keys of a policy, in the order in which a rollout meets them.
const KEYS: [&str; 10] = [
    STEPS,
    BATCH_DELAY,
    BYPASS_UNTIL,
    FAIL_AFTER,
    ON_FAILURE,
    WHEN_UNSCHEDULABLE,
    POD_REPLACEMENT,
    KEEP_FAILED_PODS,
    NOT_READY_NODES,
    PROGRESS_DEADLINE,
];

/// The policy in force in one line, such as `steps 1, 50%; fail-after 2m`; `None` without one. A bypass that is over is
/// left out.
pub(super) fn in_force(annotations: &StringMap, now: Timestamp) -> Option<String> {
    let is_over = |key: &str, value: &str| {
        key == BYPASS_UNTIL && value.parse().is_ok_and(|until: Timestamp| until <= now)
    };
    let said = KEYS.iter().filter_map(|key| {
        let value = annotations.get(key).filter(|value| !is_over(key, value))?;
        Some(format!("{} {}", key.trim_start_matches(PREFIX), harmless(value)))
    });
    let said: Vec<String> = said.collect();
    (!said.is_empty()).then(|| said.join("; "))
}

/// The first reason that its policy gives. The two that DaemonSets have, too, are the same.
fn by_policy(assessment: &Assessment) -> Option<PlanReason> {
    assessment.reasons.iter().find_map(|reason| match reason {
        Reason::Sizes(
            reason @ (PlanReason::HeldAtStep { .. }
            | PlanReason::HeldByDelay { .. }
            | PlanReason::InvalidPolicy { .. }
            | PlanReason::Failed { .. }
            | PlanReason::Halted { .. }),
        ) => Some(reason.clone()),
        Reason::Nodes(daemonset::PlanReason::HeldAtStep { step }) => {
            Some(PlanReason::HeldAtStep { step: step.clone() })
        }
        Reason::Nodes(daemonset::PlanReason::InvalidPolicy { defect }) => {
            Some(PlanReason::InvalidPolicy { defect: defect.clone() })
        }
        _ => None,
    })
}

/// Why its policy holds the rollout, or that it has halted, in a few words.
pub fn headline(assessment: &Assessment) -> Option<String> {
    match &by_policy(assessment)? {
        PlanReason::HeldAtStep { step } if assessment.verdict == Verdict::Held => {
            Some(at_step(step, assessment.now))
        }
        PlanReason::HeldByDelay { until } if assessment.verdict == Verdict::Held => {
            Some(format!("held between two batches: the next follows at {until}"))
        }
        reason @ (PlanReason::InvalidPolicy { .. }
        | PlanReason::Failed { .. }
        | PlanReason::Halted { .. }) => Some(reason.to_string()),
        _ => None,
    }
}

/// Such as `held at step 1 of 2 (1 of 8 new, available for 3m), until approved`.
fn at_step(step: &StepHold, now: Timestamp) -> String {
    let StepHold { step: number, of, bound, replicas, since, passes_at, .. } = step;
    let since = since.map_or(String::new(), |since| format!(", available for {}", age(since, now)));
    let until = match passes_at {
        Some(at) => format!("for another {}", span(at.duration_since(now))),
        None => "until approved".to_owned(),
    };
    format!("held at step {number} of {of} ({bound} of {replicas} new{since}), {until}")
}

/// The end of the hold or the halt.
pub fn next(assessment: &Assessment) -> Option<String> {
    match (assessment.verdict, &by_policy(assessment)?) {
        (Verdict::Held, PlanReason::HeldAtStep { step }) => Some(match step.passes_at {
            Some(at) => {
                format!("step {} passes at {at} (in {})", step.step, span(at.duration_since(assessment.now)))
            }
            None => format!("nothing until step {} is approved", step.step),
        }),
        (Verdict::Held, PlanReason::HeldByDelay { until }) => {
            Some(format!("the next batch at {until} (in {})", span(until.duration_since(assessment.now))))
        }
        (Verdict::Held, PlanReason::InvalidPolicy { .. }) => {
            let meanwhile = match assessment.kind {
                Kind::DaemonSet => "nodes without a pod get one",
                _ => "sizes are followed",
            };
            Some(format!("nothing until the annotation is corrected or removed; {meanwhile}"))
        }
        (Verdict::Halted, PlanReason::Halted { replica_set, .. }) => {
            let text = format!("{replica_set} serves until the template changes or the rollout is retried");
            Some(match assessment.writes.is_empty() {
                true => text,
                false => format!("{}; then {text}", assessment.writes.join(", then ")),
            })
        }
        _ => None,
    }
}

/// The step that its policy takes later if nothing changes until then, and when.
pub fn later(assessment: &Assessment) -> Option<(String, Timestamp)> {
    let (reason, at) = assessment.reasons.iter().find_map(|reason| Some((reason, due(reason)?)))?;
    Some((format!("{reason} (in {})", span(at.duration_since(assessment.now))), at))
}

/// When a reason says that its policy acts, if nothing changes until then.
pub fn due(reason: &Reason) -> Option<Timestamp> {
    match reason {
        Reason::Sizes(
            PlanReason::TerminatesFirst { at }
            | PlanReason::GivesBack { at }
            | PlanReason::FailsLater { at, .. },
        ) => Some(*at),
        _ => None,
    }
}

/// Whether its policy takes the Deployment back by itself.
pub fn goes_back(assessment: &Assessment) -> bool {
    let goes_back =
        |reason: &Reason| matches!(reason, Reason::Sizes(PlanReason::FailsLater { rolls_back: true, .. }));
    assessment.reasons.iter().any(goes_back)
}

/// The command that ends the hold or the halt: the plugin's as the user calls it, else kubectl's, which writes the same.
pub fn advice(assessment: &Assessment, commands: &Commands) -> Option<String> {
    let (namespace, object) = (&assessment.namespace, assessment.argument());
    let (command, value, why) = match (assessment.verdict, &by_policy(assessment)?) {
        (Verdict::Held, PlanReason::HeldAtStep { step }) => {
            let StepHold { step: number, of, revision, .. } = step;
            let flags = format!("approve -n {namespace} {object} --revision {revision} --step {number}");
            (flags, format!("approve {revision}/{number}"), format!("step {number} of {of}"))
        }
        (Verdict::Halted, PlanReason::Halted { attempt, .. }) => {
            let revision = assessment.revision?;
            let flags = format!("retry -n {namespace} {object} --revision {revision}");
            (flags, format!("retry {revision}/{attempt}"), "once its cause is gone; or undo".to_owned())
        }
        _ => return None,
    };
    Some(match &commands.plugin {
        Some(plugin) => format!("{plugin} {command}    ({why})"),
        None => {
            format!(
                "{} annotate --overwrite -n {namespace} {object} windlass.dev/rollout='{value}'    ({why})",
                commands.kubectl
            )
        }
    })
}
