//! The meaning of the objects of the StatefulSet: ordinals, revisions, and the owner references of claims.

use std::ops::Range;
use std::sync::Arc;

use serde_json::Value;

use crate::engine::objects::{NAMESPACE, name, number, owner, references, text, uid};
use windlass_apiserver::Sandbox;

/// The name of the StatefulSet.
pub const NAME: &str = "db";

/// The label of a pod that names its revision.
pub const HASH: &str = "/metadata/labels/controller-revision-hash";

/// The StatefulSet, if there is one.
pub fn stateful_set(sandbox: &Sandbox) -> Option<Arc<Value>> {
    sandbox.object("StatefulSet", NAMESPACE, NAME)
}

/// The ordinal that the name of a pod of the StatefulSet has.
pub fn ordinal(pod: &str) -> Option<i64> {
    let digits = pod.strip_prefix(NAME)?.strip_prefix('-')?;
    let ordinal: i32 = digits.parse().ok()?;
    (ordinal >= 0 && ordinal.to_string() == digits).then(|| ordinal.into())
}

/// The name of the pod of an ordinal.
pub fn pod_name(ordinal: i64) -> String {
    format!("{NAME}-{ordinal}")
}

/// The ordinals that should have a pod.
pub fn range(stateful_set: &Value) -> Range<i64> {
    let start = number(stateful_set, "/spec/ordinals/start");
    start..start + number(stateful_set, "/spec/replicas")
}

/// Whether all pods are created and deleted at once.
pub fn is_parallel(stateful_set: &Value) -> bool {
    text(stateful_set, "/spec/podManagementPolicy") == "Parallel"
}

/// Whether pods are replaced only when users delete them.
pub fn is_on_delete(stateful_set: &Value) -> bool {
    text(stateful_set, "/spec/updateStrategy/type") == "OnDelete"
}

/// The first ordinal that gets a new template. The partition is counted from the start ordinal.
pub fn first_updated(stateful_set: &Value) -> i64 {
    range(stateful_set).start + number(stateful_set, "/spec/updateStrategy/rollingUpdate/partition")
}

/// How many pods a rollout may have unavailable: rounded down, and at least one.
pub fn most_unavailable(stateful_set: &Value) -> i64 {
    let most = &stateful_set["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"];
    let percent = most.as_str().and_then(|text| text.strip_suffix('%')?.parse::<i64>().ok());
    let most =
        percent.map(|percent| number(stateful_set, "/spec/replicas") * percent / 100).or(most.as_i64());
    most.unwrap_or(1).max(1)
}

/// Whether an object has all labels that the selector requires.
pub fn is_selected(stateful_set: &Value, object: &Value) -> bool {
    let required = stateful_set["spec"]["selector"]["matchLabels"].as_object();
    required.is_some_and(|required| {
        required.iter().all(|(key, value)| object["metadata"]["labels"].get(key) == Some(value))
    })
}

/// Whether a pod counts for the StatefulSet.
pub fn is_member(stateful_set: &Value, pod: &Value) -> bool {
    owner(pod) == uid(stateful_set) && ordinal(name(pod)).is_some() && is_selected(stateful_set, pod)
}

/// Whether a pod has ended by itself.
pub fn has_ended(pod: &Value) -> bool {
    matches!(text(pod, "/status/phase"), "Failed" | "Succeeded")
}

/// Whether a container of the pod, or one that prepares it, has ever started.
pub fn has_started(pod: &Value) -> bool {
    let statuses =
        ["containerStatuses", "initContainerStatuses"].map(|field| pod["status"][field].as_array());
    let has_run = |status: &Value| {
        let is_set = |field: &str, state: &str| !status[field][state].is_null();
        is_set("state", "running") || is_set("state", "terminated") || is_set("lastState", "terminated")
    };
    text(pod, "/status/phase") != "Pending" || statuses.into_iter().flatten().flatten().any(has_run)
}

/// The template that a revision holds.
pub fn template(revision: &Value) -> Value {
    let mut template = revision["data"]["spec"]["template"].clone();
    if let Some(fields) = template.as_object_mut() {
        fields.remove("$patch");
    }
    if let Some(metadata) = template["metadata"].as_object_mut() {
        metadata.retain(|_, value| !value.is_null());
    }
    template
}

/// Whether a revision is one of the StatefulSet's template.
pub fn is_update(stateful_set: &Value, revision: &Value) -> bool {
    owner(revision) == uid(stateful_set) && template(revision) == stateful_set["spec"]["template"]
}

/// Whether a pod has another template than the StatefulSet.
pub fn is_outdated(stateful_set: &Value, revisions: &[Value], pod: &Value) -> bool {
    let is_its = |revision: &&Value| name(revision) == text(pod, HASH) && is_update(stateful_set, revision);
    !revisions.iter().any(|revision| is_its(&revision))
}

/// The names of the claim templates.
fn claim_templates(stateful_set: &Value) -> impl Iterator<Item = &Value> {
    stateful_set["spec"]["volumeClaimTemplates"].as_array().into_iter().flatten()
}

/// The volumes of the claims of an ordinal, and the names of the claims.
pub fn claims(stateful_set: &Value, ordinal: i64) -> Vec<(&str, String)> {
    let of = |template| (name(template), format!("{}-{NAME}-{ordinal}", name(template)));
    claim_templates(stateful_set).map(of).collect()
}

/// The template and the ordinal of a claim, if it has the name of a claim of the StatefulSet.
pub fn template_of_claim<'a>(stateful_set: &'a Value, claim: &str) -> Option<(&'a Value, i64)> {
    claim_templates(stateful_set).find_map(|template| {
        let pod = claim.strip_prefix(name(template))?.strip_prefix('-')?;
        Some((template, ordinal(pod)?))
    })
}

/// Whether an owner reference is one to a StatefulSet or a pod of these names, whatever its UID.
pub fn is_ours(reference: &Value, pod: &str) -> bool {
    let is = |version, kind, name| {
        reference["apiVersion"] == version && reference["kind"] == kind && reference["name"] == name
    };
    is("apps/v1", "StatefulSet", NAME) || is("v1", "Pod", pod)
}

/// Whether claims are deleted then: `whenDeleted` or `whenScaled`.
pub fn deletes_claims(stateful_set: &Value, when: &str) -> bool {
    stateful_set["spec"]["persistentVolumeClaimRetentionPolicy"][when] == "Delete"
}

/// Whether a claim refers to a StatefulSet or a pod of these names that is not this one.
pub fn is_stale(stateful_set: &Value, ordinal: i64, pod: Option<&Value>, claim: &Value) -> bool {
    let is_current = |reference: &Value| match text(reference, "/kind") {
        "Pod" => pod.is_some_and(|pod| reference["uid"] == uid(pod)),
        _ => reference["uid"] == uid(stateful_set),
    };
    let ours = |reference: &&Value| is_ours(reference, &pod_name(ordinal));
    references(claim).iter().filter(ours).any(|reference| !is_current(reference))
}

/// Checks the owner references of a claim whose pod exists.
///
/// # Errors
/// The defect of them.
pub fn check_references(
    stateful_set: &Value,
    ordinal: i64,
    pod: &Value,
    claim: &Value,
) -> Result<(), String> {
    if is_stale(stateful_set, ordinal, Some(pod), claim) {
        return Ok(());
    }
    let (ours, foreign): (Vec<&Value>, Vec<&Value>) =
        references(claim).iter().partition(|reference| is_ours(reference, &pod_name(ordinal)));
    let is_condemned = !range(stateful_set).contains(&ordinal);
    let wanted = if foreign.iter().any(|reference| reference["controller"] == true) {
        None
    } else if is_condemned && deletes_claims(stateful_set, "whenScaled") {
        Some(uid(pod))
    } else {
        Some(uid(stateful_set)).filter(|_| deletes_claims(stateful_set, "whenDeleted"))
    };
    let managing =
        |reference: &&Value| reference["controller"] == true && reference["blockOwnerDeletion"] == true;
    let found: Vec<&str> = ours.iter().map(|reference| text(reference, "/uid")).collect();
    match found == Vec::from_iter(wanted) && ours.iter().all(managing) {
        true => Ok(()),
        false => Err(format!("{} has {:?}", name(claim), references(claim))),
    }
}

/// Checks the name, the labels, the host name and the volumes that a pod has by its ordinal.
///
/// # Errors
/// The missing part.
pub fn check_identity(stateful_set: &Value, pod: &Value) -> Result<(), String> {
    let pod_name = name(pod);
    let ordinal = ordinal(pod_name).ok_or("its name is not one of an ordinal")?;
    let labels = &pod["metadata"]["labels"];
    for (label, value) in [
        ("statefulset.kubernetes.io/pod-name", pod_name),
        ("apps.kubernetes.io/pod-index", &ordinal.to_string()),
    ] {
        if labels[label] != value {
            return Err(format!("the label {label} is {}", labels[label]));
        }
    }
    if !is_selected(stateful_set, pod) {
        return Err("the selector does not match".into());
    }
    let network = [("hostname", pod_name), ("subdomain", text(stateful_set, "/spec/serviceName"))];
    if let Some((field, _)) = network.into_iter().find(|(field, value)| pod["spec"][*field] != *value) {
        return Err(format!("{field} is {}", pod["spec"][field]));
    }
    let volumes: Vec<(&str, &str)> = pod["spec"]["volumes"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|volume| (text(volume, "/name"), text(volume, "/persistentVolumeClaim/claimName")))
        .collect();
    let claims = claims(stateful_set, ordinal);
    match claims.iter().find(|(volume, claim)| !volumes.contains(&(*volume, &**claim))) {
        Some((volume, _)) => Err(format!("the volume {volume} is not that of its claim")),
        None => Ok(()),
    }
}
