//! The changes of a step of a rollout, in words and as data. Pure.

use serde_json::Value;
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
    let deleted_on = of(&|change| match change {
        Step::DeletedOn(node) => Some(node.to_string()),
        _ => None,
    });
    add("delete on", deleted_on, "");
    let created_on = of(&|change| match change {
        Step::CreatedOn(node) => Some(node.to_string()),
        _ => None,
    });
    add("create on", created_on, "");
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
        Step::DeletedOn(node) => serde_json::json!({"deletePodOn": &**node}),
        Step::CreatedOn(node) => serde_json::json!({"createPodOn": &**node}),
    };
    changes.iter().map(of).collect()
}
