//! The changes of a step of a rollout, in words and as data. Pure.

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

fn pods(nodes: &[String]) -> &'static str {
    if nodes.len() == 1 { "the pod" } else { "the pods" }
}

/// The changes of a step in words: `delete db-2`, `create db-3 with claim data-db-3`.
pub(super) fn text(changes: &[Step]) -> String {
    let of = |wanted: &dyn Fn(&Step) -> Option<String>| changes.iter().filter_map(wanted).collect::<Vec<_>>();
    let mut parts = Vec::new();
    let mut add = |verb: &str, names: Vec<String>, suffix: &str| {
        if !names.is_empty() {
            parts.push(format!("{verb} {}{suffix}", named(&names)));
        }
    };
    for (reason, suffix) in [
        (DeletionReason::Condemned, " (out of range)"),
        (DeletionReason::Ended, " (it has ended)"),
        (DeletionReason::NeverStarted, " (it never started)"),
        (DeletionReason::Broken, " (it is broken)"),
        (DeletionReason::Outdated, ""),
    ] {
        let deleted = of(&|change| match change {
            Step::Deleted(pod, why) if *why == reason => Some(pod.to_string()),
            _ => None,
        });
        add("delete", deleted, suffix);
    }
    let created = of(&|change| match change {
        Step::Created(pod, claims) if claims.is_empty() => Some(pod.to_string()),
        _ => None,
    });
    add("create", created, "");
    let with_claims = of(&|change| match change {
        Step::Created(pod, claims) if !claims.is_empty() => Some(format!("{pod} with {}", claims.join(", "))),
        _ => None,
    });
    add("create", with_claims, "");
    let gone = of(&|change| match change {
        Step::ClaimDeleted(claim) => Some(claim.to_string()),
        _ => None,
    });
    add("delete claim", gone, "");
    for (reason, suffix) in [
        (OnNode::NotWanted, " (the DaemonSet does not run there)"),
        (OnNode::NoNode, " (the node does not exist)"),
        (OnNode::Excess, " (the node has another)"),
        (OnNode::Failed, " (it has failed)"),
        (OnNode::Succeeded, " (it has ended)"),
        (OnNode::Outdated, ""),
        (OnNode::Replaced, " (the new one is available)"),
    ] {
        let deleted = of(&|change| match change {
            Step::DeletedOn(node, why) if *why == reason => Some(node.to_string()),
            _ => None,
        });
        add(&format!("delete {} on", pods(&deleted)), deleted, suffix);
    }
    let created = of(&|change| match change {
        Step::CreatedOn(node) => Some(node.to_string()),
        _ => None,
    });
    add(&format!("create {} on", pods(&created)), created, "");
    parts.join("; ")
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
