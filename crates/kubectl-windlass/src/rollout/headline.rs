//! The reason that matters most, in one sentence.

use windlass::plan::Reason;
use windlass::plan::deployment::PlanReason;
use windlass::plan::statefulset::PlanReason as SetReason;
use windlass::plan::{cronjob, daemonset, job};

use super::{Assessment, Verdict, waiting};
use crate::target::Kind;
use crate::text::{counted, span};

/// The reason that matters most, in one sentence.
pub fn headline(assessment: &Assessment) -> Option<String> {
    match assessment.verdict {
        Verdict::Complete | Verdict::Scheduled => return None,
        Verdict::Suspended => return Some("suspended: no pod runs until it is resumed".to_owned()),
        Verdict::Paused => {
            return Some("paused: nothing is rolled out until the Deployment is resumed".to_owned());
        }
        Verdict::Unobserved => {
            let since = assessment.since.map(|since| assessment.now.duration_since(since));
            let since = since.map_or(String::new(), |time| format!(" for {}", span(time)));
            let missed = match assessment.kind {
                Kind::Job => "started it".to_owned(),
                Kind::CronJob => "begun the run that is due".to_owned(),
                _ => format!("observed generation {}", assessment.generation),
            };
            return Some(format!("no controller has {missed}{since}: is a controller manager running?"));
        }
        Verdict::Failed => return assessment.summary.clone(),
        _ if assessment.is_partial && !assessment.pods.iter().any(|pod| pod.is_failing) => {
            return Some(format!("the reason cannot be told: {}", assessment.unreadable.join("; ")));
        }
        _ => {}
    }
    if let Some(text) = super::policy::headline(assessment) {
        return Some(crate::text::harmless(&text));
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
                let node = pod.node.as_ref().filter(|_| assessment.kind == Kind::DaemonSet);
                let node = node.map_or(String::new(), |node| format!(" on node {node}"));
                let remedy = waiting(assessment).find(|it| *it.pod == *pod.name).and_then(|it| it.remedy);
                let remedy = remedy.map_or(String::new(), |remedy| format!(" ({remedy})"));
                format!("waits for {}{node}: {}{colon}{}{remedy}{more}", pod.name, pod.state, pod.reason)
            }
            None => {
                let main = assessment.reasons.iter().find(|reason| is_main(reason));
                let main =
                    main.map(|reason| short(reason, assessment)).or_else(|| assessment.summary.clone());
                main.or_else(|| assessment.reasons.last().map(ToString::to_string))?
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
        Reason::Nodes(reason) => matches!(reason, daemonset::PlanReason::Refused { .. }),
        Reason::Completions(reason) => matches!(reason, job::PlanReason::Refused { .. }),
        Reason::Runs(reason) => matches!(reason, cronjob::PlanReason::Defective { .. }),
        Reason::Usage(_) => false,
    }
}

/// Whether a reason says what is under way or waited for, and no more than bounds.
pub fn is_main(reason: &Reason) -> bool {
    match reason {
        reason if super::policy::due(reason).is_some() => false,
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
        Reason::Nodes(reason) => !matches!(
            reason,
            daemonset::PlanReason::Budget { .. }
                | daemonset::PlanReason::Misscheduled { .. }
                | daemonset::PlanReason::NodesGone { .. }
        ),
        Reason::Completions(reason) => {
            !matches!(reason, job::PlanReason::Counting { .. } | job::PlanReason::Running { .. })
        }
        Reason::Runs(reason) => !matches!(reason, cronjob::PlanReason::Next { .. }),
        Reason::Usage(_) => true,
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
