//! What may be written at all, and which fields: S19 to S21 and the monitors on every outgoing request.

use std::collections::BTreeMap;

use http::Method;
use serde_json::{Map, Value, json};

use super::{Breach, Commit, Monitors, number, text};
use crate::sim::call::Call;

/// Whether a daemon may send this at all.
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
        return breach("nothing of the kind is ever sent");
    }
    if *method == Method::DELETE && !body["preconditions"]["uid"].is_string() {
        return breach("a deletion without the UID of what is meant");
    }
    if *method == Method::PATCH && matches!(&**resource, "deployments" | "replicasets" | "pods") {
        let steps = body.as_array();
        let versioned = match steps {
            Some(steps) => steps.iter().any(|step| step["path"] == "/metadata/resourceVersion"),
            None => body["metadata"]["resourceVersion"].is_string(),
        };
        if !versioned {
            return breach("a change without the version it was computed from");
        }
    }
    if *method == Method::POST && matches!(&**resource, "replicasets" | "pods") {
        let owners = body["metadata"]["ownerReferences"].as_array();
        if owners.is_none_or(|owners| owners.len() != 1 || owners.iter().any(|o| o["controller"] != true)) {
            return breach("created without its one owner");
        }
    }
    Ok(())
}

/// The parts of an object that its controllers own, taken out.
fn without(object: &Value, spec_fields: &[&str]) -> Value {
    let mut rest = object.clone();
    if let Some(metadata) = rest["metadata"].as_object_mut() {
        for field in ["resourceVersion", "generation", "ownerReferences", "managedFields"] {
            metadata.remove(field);
        }
        let mut annotations = match metadata.remove("annotations") {
            Some(Value::Object(annotations)) => annotations,
            _ => Map::new(),
        };
        annotations.retain(|key, _| !key.starts_with("deployment.kubernetes.io/"));
        metadata.insert("annotations".into(), Value::Object(annotations));
    }
    if let Some(spec) = rest["spec"].as_object_mut() {
        spec_fields.iter().for_each(|field| drop(spec.remove(*field)));
    }
    if let Some(object) = rest.as_object_mut() {
        object.remove("status");
    }
    rest
}

/// An object without the fields that a change of hands may change.
pub(super) fn unclaimed(object: &Value) -> Value {
    let mut rest = object.clone();
    if let Some(metadata) = rest["metadata"].as_object_mut() {
        ["resourceVersion", "ownerReferences", "managedFields"]
            .iter()
            .for_each(|field| drop(metadata.remove(*field)));
    }
    rest
}

/// S19 for a Deployment: only its status and our annotations change, but for a rollback.
pub(super) fn deployment(commit: &Commit<'_>) -> Result<(), Breach> {
    let (Some(before), Some(after)) = (commit.before, commit.after) else { return Ok(()) };
    let asked = before["metadata"]["annotations"]["deprecated.deployment.rollback.to"].is_string();
    if !asked && without(before, &[]) != without(after, &[]) {
        return commit.breach("S19", "a field of the Deployment that is not ours changed");
    }
    Ok(())
}

/// S19 for a set: its size, minReadySeconds and annotations come from the Deployment; the rest stays.
pub(super) fn set(commit: &Commit<'_>) -> Result<(), Breach> {
    let (Some(before), Some(after)) = (commit.before, commit.after) else { return Ok(()) };
    if super::is_deleting(after) {
        return Ok(());
    }
    let ours = ["replicas", "minReadySeconds"];
    let (mut rest_before, mut rest_after) = (without(before, &ours), without(after, &ours));
    // The Deployment's annotations are copied to its sets.
    for rest in [&mut rest_before, &mut rest_after] {
        rest["metadata"]["annotations"] = json!({});
    }
    if rest_before != rest_after {
        return commit.breach("S19", "a field of the ReplicaSet that is not ours changed");
    }
    Ok(())
}

impl Monitors {
    /// S20 and S21.
    pub(super) fn judge_status(&mut self, commit: &Commit<'_>) -> Result<(), Breach> {
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
        let highest = self.observed.entry(text(after, "/metadata/uid").to_owned()).or_default();
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
}

/// Status and time of the last transition, by type.
fn conditions(object: &Value) -> BTreeMap<&str, (&str, &str)> {
    let all = object["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter().map(|c| (text(c, "/type"), (text(c, "/status"), text(c, "/lastTransitionTime")))).collect()
}
