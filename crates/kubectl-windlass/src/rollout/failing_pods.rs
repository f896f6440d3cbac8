//! Whether a rollout can still complete by itself, for `--fail-fast`.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use windlass::plan::Reason;
use windlass::plan::daemonset;
use windlass::plan::deployment::PlanReason;

use super::pods::PodView;
use super::{Assessment, Verdict};

/// Since when pods have been failing. A container that crashes runs for a moment in between, so that a pod keeps its
/// entry until it is ready or gone.
#[derive(Clone, Debug, Default)]
pub struct FailingPods(BTreeMap<String, Timestamp>);

impl FailingPods {
    /// Takes note of the pods of an assessment.
    pub fn observe(&mut self, assessment: &Assessment) {
        let unready: Vec<&PodView> = assessment.pods.iter().filter(|pod| pod.is_new).collect();
        self.note(&unready, assessment.now);
    }

    /// Takes note of all new pods that are not ready.
    pub fn note(&mut self, unready: &[&PodView], now: Timestamp) {
        self.0.retain(|uid, _| unready.iter().any(|pod| &pod.uid == uid));
        for pod in unready.iter().filter(|pod| is_lasting(pod)) {
            self.0.entry(pod.uid.clone()).or_insert(now);
        }
    }

    /// Why the rollout cannot complete by itself, once that has been so for `patience`.
    pub fn hopeless_because(&self, assessment: &Assessment, patience: Duration) -> Option<String> {
        if assessment.verdict == Verdict::Paused {
            return Some("the Deployment is paused".to_owned());
        }
        if let Some(failure) =
            assessment.reasons.iter().find(|reason| is_invalid(reason) || is_refusal(reason))
        {
            return Some(failure.to_string());
        }
        if let Some(refusal) = &assessment.refusal {
            return Some(refusal.clone());
        }
        if !assessment.by_hand.is_empty() && assessment.pods.is_empty() && assessment.then.is_none() {
            return Some("with the strategy OnDelete a user deletes the older pods".to_owned());
        }
        let unready: Vec<&PodView> = assessment.pods.iter().filter(|pod| pod.is_new).collect();
        self.lasting(&unready, assessment.now, patience)
    }

    /// The defect of the first of all new pods that are not ready, once each has been failing for `patience`.
    pub fn lasting(&self, unready: &[&PodView], now: Timestamp, patience: Duration) -> Option<String> {
        let has_failed = |pod: &&PodView| {
            let since = self.0.get(&pod.uid);
            since.is_some_and(|since| {
                Duration::try_from(now.duration_since(*since)).is_ok_and(|time| time >= patience)
            })
        };
        let first = unready.first()?;
        unready.iter().all(has_failed).then(|| {
            let text = format!("{}: {}", first.name, first.state);
            if first.reason.is_empty() { text } else { format!("{text}: {}", first.reason) }
        })
    }
}

/// Whether the rollout waits until somebody corrects its policy.
fn is_invalid(reason: &Reason) -> bool {
    matches!(
        reason,
        Reason::Sizes(PlanReason::InvalidPolicy { .. })
            | Reason::Nodes(daemonset::PlanReason::InvalidPolicy { .. })
    )
}

/// Whether the API server refuses pods or ReplicaSets, or would refuse the pods of a StatefulSet.
fn is_refusal(reason: &Reason) -> bool {
    match reason {
        Reason::Sizes(reason) => {
            matches!(reason, PlanReason::ReplicaFailure { .. } | PlanReason::CreateLimit { .. })
        }
        Reason::Nodes(_)
        | Reason::Ordinals(_)
        | Reason::Completions(_)
        | Reason::Runs(_)
        | Reason::Usage(_) => false,
    }
}

/// Whether the kubelet will hardly get over the state by itself.
fn is_lasting(pod: &PodView) -> bool {
    let says = |words: &[&str]| words.iter().any(|word| pod.said.to_ascii_lowercase().contains(word));
    match pod.state.as_str() {
        "CrashLoopBackOff" | "InvalidImageName" | "CreateContainerError" => true,
        // A registry that is slow or down answers otherwise.
        "ErrImagePull" | "ImagePullBackOff" => {
            says(&["not found", "denied", "unauthorized", "does not exist"])
        }
        "CreateContainerConfigError" => !says(&["sync"]),
        "RunContainerError" => !says(&["exit code 128"]),
        _ => false,
    }
}
