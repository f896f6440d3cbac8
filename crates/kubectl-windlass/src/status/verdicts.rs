//! When the wait for a rollout ends, and how.

use windlass::plan::Reason;
use windlass::plan::deployment::PlanReason;
use windlass::plan::statefulset::PlanReason as SetReason;

use crate::exit::Exit;
use crate::rollout::{Assessment, Verdict, waiting};
use crate::text::{counted, span};

/// The end of a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The rollout is complete.
    Complete,
    /// The rollout has failed: why.
    Failed(String),
    /// The rollout goes on, and the wait ends: why.
    TimedOut(String),
}

/// The rules that end a wait, besides the state of the rollout.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// Only this revision counts.
    pub revision: Option<i64>,
    /// A deadline that has passed is no end.
    pub past_deadline: bool,
    /// The reason to give up at once.
    pub hopeless_because: Option<String>,
    /// `--timeout` has passed.
    pub timed_out: bool,
    /// Whether the command waits at all.
    pub waits: bool,
}

impl End {
    /// The exit code.
    pub fn exit(&self) -> Exit {
        match self {
            End::Complete => Exit::Success,
            End::Failed(_) => Exit::RolloutFailed,
            End::TimedOut(_) => Exit::NotFinished,
        }
    }
}

/// Whether the wait ends in this state.
pub fn judge(assessment: &Assessment, rules: &Rules) -> Option<End> {
    // Before the generation is observed, the revision is that of the earlier template.
    let is_observed = assessment.is_observed();
    if let (Some(wanted), Some(current)) = (rules.revision, assessment.revision.filter(|_| is_observed))
        && wanted != current
    {
        return Some(End::Failed(format!("revision {current} runs, and not revision {wanted}")));
    }
    match assessment.verdict {
        Verdict::Complete => return Some(End::Complete),
        Verdict::Deleting => {
            return Some(End::Failed(format!("the {} is being deleted", assessment.kind.title())));
        }
        Verdict::Stuck if !rules.past_deadline => {
            let because = headline(assessment).map_or(String::new(), |text| format!(": {text}"));
            return Some(End::Failed(format!("the rollout exceeded its progress deadline{because}")));
        }
        Verdict::Refused if rules.hopeless_because.is_none() => {
            return Some(End::Failed(headline(assessment).unwrap_or_default()));
        }
        _ => {}
    }
    if let Some(hopeless_because) = &rules.hopeless_because {
        return Some(End::Failed(format!("the rollout cannot complete by itself: {hopeless_because}")));
    }
    let because = || headline(assessment).map_or(String::new(), |text| format!(": {text}"));
    if rules.timed_out {
        return Some(End::TimedOut(format!("not finished when --timeout passed{}", because())));
    }
    (!rules.waits).then(|| End::TimedOut(format!("not finished{}", because())))
}

/// The reason that matters most, in one sentence.
pub fn headline(assessment: &Assessment) -> Option<String> {
    match assessment.verdict {
        Verdict::Complete => return None,
        Verdict::Paused => {
            return Some("paused: nothing is rolled out until the Deployment is resumed".to_owned());
        }
        Verdict::Unobserved => {
            let since = assessment.since.map(|since| assessment.now.duration_since(since));
            let since = since.map_or(String::new(), |time| format!(" for {}", span(time)));
            return Some(format!(
                "no controller has observed generation {}{since}: is a controller manager running?",
                assessment.generation
            ));
        }
        _ if assessment.is_partial => {
            return Some(format!("the reason cannot be told: {}", assessment.unreadable.join("; ")));
        }
        _ => {}
    }
    let sentence = |test: fn(&Reason) -> bool| {
        assessment.reasons.iter().find(|reason| test(reason)).map(ToString::to_string)
    };
    let refused = sentence(is_refusal).or_else(|| assessment.refusal.clone());
    let text = match refused {
        Some(reason) => reason,
        None => match assessment.pods.iter().find(|pod| pod.is_failing) {
            Some(pod) => {
                let more = assessment.pods.iter().filter(|pod| pod.is_failing).count() - 1;
                let more = if more > 0 {
                    format!(" (and {} more)", counted(to_i64(more), "pod"))
                } else {
                    String::new()
                };
                let colon = if pod.reason.is_empty() { "" } else { ": " };
                let remedy = waiting(assessment).find(|it| *it.pod == *pod.name).and_then(|it| it.remedy);
                let remedy = remedy.map_or(String::new(), |remedy| format!(" ({remedy})"));
                format!("waits for {}: {}{colon}{}{remedy}{more}", pod.name, pod.state, pod.reason)
            }
            None => {
                assessment.reasons.iter().find(|reason| is_main(reason)).map(|it| short(it, assessment))?
            }
        },
    };
    Some(crate::text::harmless(&text))
}

fn is_refusal(reason: &Reason) -> bool {
    match reason {
        Reason::Sizes(reason) => matches!(
            reason,
            PlanReason::Refused { .. } | PlanReason::CreateLimit { .. } | PlanReason::ReplicaFailure { .. }
        ),
        Reason::Ordinals(reason) => matches!(reason, SetReason::Refused { .. }),
        Reason::Nodes(_) | Reason::Completions(_) | Reason::Runs(_) | Reason::Usage(_) => false,
    }
}

/// Whether a reason says what is under way or waited for, and no more than bounds.
fn is_main(reason: &Reason) -> bool {
    match reason {
        Reason::Sizes(reason) => !matches!(
            reason,
            PlanReason::Budget { .. } | PlanReason::Deadline { .. } | PlanReason::OldPodsStay { .. }
        ),
        Reason::Ordinals(reason) => !matches!(
            reason,
            SetReason::Budget { .. }
                | SetReason::Partition { .. }
                | SetReason::Odd { .. }
                | SetReason::LeftOver { .. }
                | SetReason::ClaimsGo { .. }
        ),
        Reason::Nodes(_) | Reason::Completions(_) | Reason::Runs(_) | Reason::Usage(_) => true,
    }
}

/// A reason without advice about pods that are being deleted: mostly they are gone in a moment.
fn short(reason: &Reason, assessment: &Assessment) -> String {
    let Reason::Ordinals(SetReason::Waiting { pods, more }) = reason else { return reason.to_string() };
    let is_leaving = |name: &str| assessment.pods.iter().any(|pod| pod.is_deleting && pod.name == name);
    let without = pods.iter().cloned().map(|mut pod| {
        pod.remedy = pod.remedy.filter(|_| !is_leaving(&pod.pod));
        pod
    });
    SetReason::Waiting { pods: without.collect(), more: *more }.to_string()
}

fn to_i64(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
