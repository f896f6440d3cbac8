//! The changes of a step of a rollout, in words and as data. Pure.

use std::collections::BTreeMap;

use serde_json::Value;
use windlass::plan::daemonset::Reason as OnNode;
use windlass::plan::preview::{Change as Step, DeletionReason};

/// The most pods, claims or nodes that a line names.
const NAMED: usize = 5;

/// The first names, and how many more there are.
pub(super) fn named(names: &[String]) -> String {
    let shown = names.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// How changes of one sort are said: their place in the line, the words before one name and before several, and those after.
type Phrase = (u8, &'static str, &'static str, &'static str);

/// The phrase of a change, and the name in it.
fn said(change: &Step) -> (Phrase, String) {
    match change {
        Step::Deleted(pod, reason) => {
            let (place, suffix) = match reason {
                DeletionReason::Condemned => (0, " (out of range)"),
                DeletionReason::Ended => (1, " (it has ended)"),
                DeletionReason::NeverStarted => (2, " (it never started)"),
                DeletionReason::Broken => (3, " (it is broken)"),
                DeletionReason::Outdated => (4, ""),
            };
            ((place, "delete", "delete", suffix), pod.to_string())
        }
        Step::Created(pod, claims) if claims.is_empty() => ((5, "create", "create", ""), pod.to_string()),
        Step::Created(pod, claims) => {
            ((6, "create", "create", ""), format!("{pod} with {}", claims.join(", ")))
        }
        Step::ClaimDeleted(claim) => ((7, "delete claim", "delete claim", ""), claim.to_string()),
        Step::DeletedOn(node, reason) => {
            let (place, suffix) = match reason {
                OnNode::NotWanted => (8, " (the DaemonSet does not run there)"),
                OnNode::NoNode => (9, " (the node does not exist)"),
                OnNode::Excess => (10, " (the node has another)"),
                OnNode::Failed => (11, " (it has failed)"),
                OnNode::Succeeded => (12, " (it has ended)"),
                OnNode::Outdated => (13, ""),
                OnNode::Replaced => (14, " (the new one is available)"),
            };
            ((place, "delete the pod on", "delete the pods on", suffix), node.to_string())
        }
        Step::CreatedOn(node) => ((15, "create the pod on", "create the pods on", ""), node.to_string()),
    }
}

/// The changes of a step in words: `delete db-2`, `create db-3 with claim data-db-3`.
pub(super) fn text(changes: &[Step]) -> String {
    let mut phrases: BTreeMap<Phrase, Vec<String>> = BTreeMap::new();
    for (phrase, name) in changes.iter().map(said) {
        phrases.entry(phrase).or_default().push(name);
    }
    let line = |((_, one, several, suffix), names): (Phrase, Vec<String>)| {
        let verb = if names.len() == 1 { one } else { several };
        format!("{verb} {}{suffix}", named(&names))
    };
    phrases.into_iter().map(line).collect::<Vec<_>>().join("; ")
}

/// The same as data.
pub(super) fn data(changes: &[Step]) -> Value {
    let of = |change: &Step| match change {
        Step::Deleted(pod, reason) => serde_json::json!({"deletePod": &**pod, "why": reason}),
        Step::Created(pod, claims) => {
            let claims: Vec<&str> = claims.iter().map(|claim| &**claim).collect();
            serde_json::json!({"createPod": &**pod, "createClaims": claims})
        }
        Step::ClaimDeleted(claim) => serde_json::json!({"deleteClaim": &**claim}),
        Step::DeletedOn(node, reason) => serde_json::json!({"deletePodOn": &**node, "why": reason}),
        Step::CreatedOn(node) => serde_json::json!({"createPodOn": &**node}),
    };
    changes.iter().map(of).collect()
}
