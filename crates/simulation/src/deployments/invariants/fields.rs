//! Which requests a daemon may send, and which fields it may change: S19 to S21 and the check of every outgoing
//! request.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Method;
use serde_json::Value;

use super::Commit;
use super::window::Window;
use crate::engine::breach::Breach;
use crate::engine::call::Call;
use crate::engine::objects::{number, text};

/// Whether a daemon may send this request at all.
pub(super) fn allowed(call: &Call) -> Result<(), Breach> {
    let Call { method, resource, subresource, body, .. } = call;
    let breach = |what: &str| Err(Breach::new("outgoing", format!("{what}: {call} {body}")));
    let fine = match (&**resource, &**subresource) {
        ("events" | "leases", "") => true,
        ("deployments" | "replicasets", "status") => *method == Method::PATCH,
        ("deployments", "") => *method == Method::PATCH,
        ("replicasets" | "pods", "") => {
            matches!(*method, Method::POST | Method::PATCH | Method::DELETE)
        }
        _ => false,
    };
    if !fine {
        return breach("the daemon must not send such requests");
    }
    if *method == Method::DELETE && !body["preconditions"]["uid"].is_string() {
        return breach("a deletion without a UID precondition");
    }
    if *method == Method::PATCH && matches!(&**resource, "deployments" | "replicasets" | "pods") {
        let steps = body.as_array();
        let versioned = match steps {
            Some(steps) => steps.iter().any(|step| step["path"] == "/metadata/resourceVersion"),
            None => body["metadata"]["resourceVersion"].is_string(),
        };
        if !versioned {
            return breach("a patch without the resourceVersion it was computed from");
        }
    }
    if *method == Method::POST && matches!(&**resource, "replicasets" | "pods") {
        let owners = body["metadata"]["ownerReferences"].as_array();
        if owners.is_none_or(|owners| owners.len() != 1 || owners.iter().any(|o| o["controller"] != true)) {
            return breach("created without exactly one owner reference");
        }
    }
    Ok(())
}

const REVISION: &str = "deployment.kubernetes.io/revision";

/// The annotations of a ReplicaSet that Windlass owns.
const ON_REPLICA_SETS: [&str; 4] = [
    REVISION,
    "deployment.kubernetes.io/revision-history",
    "deployment.kubernetes.io/desired-replicas",
    "deployment.kubernetes.io/max-replicas",
];

/// The condition types that Windlass owns, on a ReplicaSet or a Deployment.
const CONDITIONS: [&str; 3] = ["Available", "Progressing", "ReplicaFailure"];

fn annotations(object: &Value) -> &Value {
    &object["metadata"]["annotations"]
}

/// The other fields of an object.
fn beside<'a>(object: &'a Value, fields: &[&str]) -> impl Iterator<Item = (&'a String, &'a Value)> {
    object.as_object().into_iter().flatten().filter(|(field, _)| !fields.contains(&field.as_str()))
}

/// Whether two objects are the same except for what their controllers own: the status, these fields of the
/// specification, annotations, and what [`foreign`] compares.
fn same_but(one: &Value, other: &Value, spec_fields: &[&str]) -> bool {
    let ours = ["resourceVersion", "generation", "ownerReferences", "managedFields", "annotations"];
    let same = |part: &str, ours: &[&str]| beside(&one[part], ours).eq(beside(&other[part], ours));
    let parts = ["metadata", "spec", "status"];
    beside(one, &parts).eq(beside(other, &parts)) && same("metadata", &ours) && same("spec", spec_fields)
}

fn items<'a>(object: &'a Value, part: &str, list: &str) -> impl Iterator<Item = &'a Value> {
    object[part][list].as_array().into_iter().flatten()
}

/// S19 for what belongs to others in every object: owner references that name no controller, conditions, and the
/// status where the write is not a status.
pub(super) fn foreign(commit: &Commit<'_>) -> Result<(), Breach> {
    let (Some(before), Some(after)) = (commit.before, commit.after) else { return Ok(()) };
    let others = |owner: &&Value| owner["controller"] != true;
    let owners = |object| items(object, "metadata", "ownerReferences").filter(others);
    if !owners(before).eq(owners(after)) {
        return commit
            .breach("S19", "an owner reference that is not the controller's is added, changed or removed");
    }
    let others = |condition: &&Value| !CONDITIONS.contains(&text(condition, "/type"));
    let is_status = commit.call.subresource == "status";
    let conditions = |object| items(object, "status", "conditions").filter(others);
    if commit.call.resource != "pods" && is_status && !conditions(before).eq(conditions(after)) {
        return commit.breach("S19", "a foreign condition changed");
    }
    if !is_status && commit.call.method == Method::PATCH && before["status"] != after["status"] {
        return commit.breach("S19", "the status changed with something else");
    }
    Ok(())
}

/// Whether two objects differ only in what an adoption or a release may change.
pub(super) fn same_but_the_owner(one: &Value, other: &Value) -> bool {
    let theirs = ["resourceVersion", "ownerReferences", "managedFields"];
    beside(one, &["metadata"]).eq(beside(other, &["metadata"]))
        && beside(&one["metadata"], &theirs).eq(beside(&other["metadata"], &theirs))
}

/// S19 for a Deployment: only its status and revision change, and its template with other annotations where a
/// rollback was requested.
pub(super) fn deployment(commit: &Commit<'_>) -> Result<(), Breach> {
    let (Some(before), Some(after)) = (commit.before, commit.after) else { return Ok(()) };
    let asked = before["metadata"]["annotations"]["deprecated.deployment.rollback.to"].is_string();
    let may = if asked && commit.call.subresource.is_empty() { &["template"][..] } else { &[] };
    let theirs = |object| beside(annotations(object), &[REVISION]);
    let kept = !may.is_empty() || theirs(before).eq(theirs(after));
    if !same_but(before, after, may) || !kept {
        return commit.breach("S19", "a foreign field of the Deployment changed");
    }
    Ok(())
}

/// S19 for a ReplicaSet: its size, minReadySeconds and annotations come from the Deployment; the rest stays.
/// `lately` are the annotations of Deployments, by UID.
pub(super) fn replica_set(
    commit: &Commit<'_>,
    since: Duration,
    lately: &BTreeMap<String, Window<Value>>,
) -> Result<(), Breach> {
    let (Some(before), Some(after)) = (commit.before, commit.after) else { return Ok(()) };
    if crate::engine::objects::is_deleting(after) {
        return Ok(());
    }
    let ours = ["replicas", "minReadySeconds"];
    if !same_but(before, after, &ours) {
        return commit.breach("S19", "a foreign field of the ReplicaSet changed");
    }
    let (earlier, later) = (annotations(before), annotations(after));
    if let Some((key, _)) = beside(earlier, &[]).find(|(key, _)| later.get(key).is_none()) {
        return commit.breach("S19", format!("the annotation {key} is removed"));
    }
    let of_the_deployment = |key: &str, value: &Value| {
        let lately = lately.get(crate::deployments::objects::controller(after)).into_iter();
        lately.flat_map(|lately| lately.since(since)).any(|there| there[key] == *value)
    };
    let changed = beside(later, &ON_REPLICA_SETS).filter(|(key, value)| earlier.get(key) != Some(value));
    for (key, value) in changed {
        if !of_the_deployment(key, value) {
            return commit
                .breach("S19", format!("the annotation {key} becomes {value}, unlike the Deployment's"));
        }
    }
    Ok(())
}

/// S20 and S21.
/// `highest` are the highest observedGenerations so far, by UID.
pub(super) fn status(commit: &Commit<'_>, highest: &mut BTreeMap<String, i64>) -> Result<(), Breach> {
    let (Some(before), Some(after)) = (commit.before, commit.after) else { return Ok(()) };
    if commit.call.subresource != "status" {
        return Ok(());
    }
    let status = |field: &str| number(after, &format!("/status/{field}"));
    let (replicas, ready) = (status("replicas"), status("readyReplicas"));
    let (available, updated) = (status("availableReplicas"), status("updatedReplicas"));
    if available < 0 || available > ready || ready > replicas || updated > replicas {
        return commit.breach("S20", format!("{available} <= {ready} <= {replicas}, {updated}"));
    }
    let observed = status("observedGeneration");
    let highest = highest.entry(text(after, "/metadata/uid").to_owned()).or_default();
    if observed > number(after, "/metadata/generation") || observed < *highest {
        return commit.breach("S20", format!("observedGeneration {observed} after {highest}"));
    }
    *highest = observed;
    let (earlier, later) = (conditions(before), conditions(after));
    for (kind, (status, since)) in &later {
        let Some((status_before, since_before)) = earlier.get(kind) else { continue };
        if status == status_before && since != since_before {
            return commit.breach("S21", format!("{kind} is {status} as before, since {since}"));
        }
    }
    Ok(())
}

/// Status and time of the last transition, by type.
fn conditions(object: &Value) -> BTreeMap<&str, (&str, &str)> {
    let all = object["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter().map(|c| (text(c, "/type"), (text(c, "/status"), text(c, "/lastTransitionTime")))).collect()
}
