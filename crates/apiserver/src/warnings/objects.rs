//! Warnings of workloads, volumes and the smaller kinds.

use serde_json::Value;

use super::pod::{REMOVED_VOLUMES, claim_size, node_terms, template};
use super::{Warnings, deprecated_label, each, text, tls};
use crate::quantity::Quantity;

const STORAGE_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
const INGRESS_CLASS: &str = "kubernetes.io/ingress.class";
/// Pods have the name of their owner in theirs.
const POD_NAMES: &str = "Pod names and hostnames";

/// Whether the template of a workload is worth a look: it is new, or the spec has changed.
fn is_due(new: &Value, old: Option<&Value>) -> bool {
    old.is_none_or(|old| old["metadata"]["generation"] != new["metadata"]["generation"])
}

fn at(path: &str, new: &Value, old: Option<&Value>, warnings: &mut Warnings) {
    if is_due(new, old) {
        let pointer = format!("/{}", path.replace('.', "/"));
        template(new.pointer(&pointer).unwrap_or(&Value::Null), path, warnings);
    }
}

pub(crate) fn daemon_set(new: &Value, old: Option<&Value>, warnings: &mut Warnings) {
    at("spec.template", new, old, warnings);
}

/// Deployments, ReplicaSets and ReplicationControllers.
pub(crate) fn workload(new: &Value, old: Option<&Value>, warnings: &mut Warnings) {
    if old.is_none() {
        warnings.pod_name(new, POD_NAMES);
    }
    at("spec.template", new, old, warnings);
}

pub(crate) fn job(new: &Value, old: Option<&Value>, warnings: &mut Warnings) {
    if old.is_none() {
        warnings.pod_name(new, POD_NAMES);
    }
    job_spec("spec", new, old, warnings);
}

pub(crate) fn cron_job(new: &Value, old: Option<&Value>, warnings: &mut Warnings) {
    if old.is_none() {
        warnings.pod_name(new, POD_NAMES);
    }
    job_spec("spec.jobTemplate.spec", new, old, warnings);
    if old.is_some() && text(&new["spec"], "schedule").contains("TZ") {
        // The path is upstream's.
        warnings.add(
            "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see \
             https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
                .to_owned(),
        );
    }
}

/// The spec of a Job at a path: its indexes may be more than a status can hold.
fn job_spec(path: &str, new: &Value, old: Option<&Value>, warnings: &mut Warnings) {
    let spec = new.pointer(&format!("/{}", path.replace('.', "/"))).unwrap_or(&Value::Null);
    let number = |field: &str| spec[field].as_i64().unwrap_or(0);
    let has_many = number("completions") > 100_000 && number("parallelism") > 10_000;
    if is_due(new, old) && spec["completionMode"] == "Indexed" && has_many {
        let why = "In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, \
                   Kubernetes might not be able to track completedIndexes when a big number of indexes fail";
        warnings.of(path, why);
    }
    at(&format!("{path}.template"), new, old, warnings);
}

pub(crate) fn pod_template(new: &Value, old: Option<&Value>, warnings: &mut Warnings) {
    at("template", new, old, warnings);
}

pub(crate) fn stateful_set(new: &Value, old: Option<&Value>, warnings: &mut Warnings) {
    at("spec.template", new, old, warnings);
    for (path, claim) in each(&new["spec"], "volumeClaimTemplates", "spec") {
        // Upstream names an update so.
        let path = if old.is_some() { format!("{path}.Spec") } else { path };
        claim_size(&claim["spec"], &path, warnings);
    }
    if new["spec"]["revisionHistoryLimit"].as_i64().is_some_and(|limit| limit < 0) {
        let why = "a negative value retains all historical revisions; a value >= 0 is recommended";
        warnings.of("spec.revisionHistoryLimit", why);
    }
}

pub(crate) fn volume(new: &Value, _old: Option<&Value>, warnings: &mut Warnings) {
    old_annotation(new, STORAGE_CLASS, "v1.8; use \"storageClassName\"", warnings);
    let options = "volume.beta.kubernetes.io/mount-options";
    old_annotation(new, options, "v1.31; use \"mountOptions\"", warnings);
    let spec = &new["spec"];
    if spec["persistentVolumeReclaimPolicy"] == "Recycle" {
        let why = "The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.";
        warnings.of("spec.persistentVolumeReclaimPolicy", why);
    }
    node_terms(&spec["nodeAffinity"]["required"], "spec.nodeAffinity.required", warnings);
    for (_, name, why) in REMOVED_VOLUMES.iter().filter(|(field, _, _)| spec[*field].is_object()) {
        // The others never warned here.
        if !matches!(*name, "gitRepo" | "flocker" | "quobyte") {
            warnings.of(&format!("spec.{name}"), why);
        }
    }
}

pub(crate) fn claim(new: &Value, _old: Option<&Value>, warnings: &mut Warnings) {
    old_annotation(new, STORAGE_CLASS, "v1.8; use \"storageClassName\"", warnings);
    claim_size(&new["spec"], "spec", warnings);
}

fn old_annotation(object: &Value, key: &str, since: &str, warnings: &mut Warnings) {
    if object["metadata"]["annotations"][key].is_string() {
        let path = format!("metadata.annotations[{key}]");
        warnings.of(&path, format!("deprecated since {since} attribute instead"));
    }
}

pub(crate) fn ingress(new: &Value, old: Option<&Value>, warnings: &mut Warnings) {
    let is_annotated = new["metadata"]["annotations"][INGRESS_CLASS].is_string();
    if old.is_none() && is_annotated && new["spec"]["ingressClassName"].is_null() {
        let why =
            format!("annotation {INGRESS_CLASS:?} is deprecated, please use 'spec.ingressClassName' instead");
        warnings.add(why);
    }
}

pub(crate) fn secret(new: &Value, _old: Option<&Value>, warnings: &mut Warnings) {
    if new["type"] == "kubernetes.io/tls"
        && let Some(why) = tls::problem(new)
    {
        warnings.add(why);
    }
}

pub(crate) fn node(new: &Value, _old: Option<&Value>, warnings: &mut Warnings) {
    if !text(&new["spec"], "externalID").is_empty() {
        let why = "this field is deprecated, and is unused by Kubernetes";
        warnings.of("spec.externalID", why);
    }
}

pub(crate) fn quota(new: &Value, old: Option<&Value>, warnings: &mut Warnings) {
    let hard = &new["spec"]["hard"];
    for resource in ["cpu", "memory", "storage", "ephemeral-storage"].into_iter().filter(|_| old.is_none()) {
        let mut requests = format!("requests.{resource}");
        if hard[&requests].is_null() && matches!(resource, "cpu" | "memory") {
            resource.clone_into(&mut requests);
        }
        let limits = format!("limits.{resource}");
        if let (Some(request), Some(limit)) = (Quantity::of(&hard[&requests]), Quantity::of(&hard[&limits]))
            && request > limit
        {
            let (request, limit) = (request.canonical(), limit.canonical());
            warnings
                .add(format!("ResourceQuota {requests} ({request}) should be less than {limits} ({limit})"));
        }
    }
}

pub(crate) fn storage_class(new: &Value, _old: Option<&Value>, warnings: &mut Warnings) {
    for (path, topology) in each(new, "allowedTopologies", "") {
        for (path, expression) in each(topology, "matchLabelExpressions", &path) {
            if let Some(why) = deprecated_label(text(expression, "key")) {
                warnings.of(&format!("{path}.key"), why);
            }
        }
    }
}

pub(crate) fn runtime_class(new: &Value, _old: Option<&Value>, warnings: &mut Warnings) {
    let selector = new["scheduling"]["nodeSelector"].as_object();
    for why in selector.into_iter().flatten().filter_map(|(label, _)| deprecated_label(label)) {
        warnings.of("scheduling.nodeSelector", why);
    }
}

pub(crate) fn csi_driver(new: &Value, old: Option<&Value>, warnings: &mut Warnings) {
    let spec = &new["spec"];
    let has_tokens = spec["tokenRequests"].as_array().is_some_and(|tokens| !tokens.is_empty());
    if old.is_none() && has_tokens && spec["serviceAccountTokenInSecrets"].is_null() {
        let why = "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent \
                   possible logging of tokens in volume attributes";
        warnings.add(why.to_owned());
    }
}

pub(crate) fn endpoint_slice(new: &Value, old: Option<&Value>, warnings: &mut Warnings) {
    if old.is_none() && new["addressType"] == "FQDN" {
        warnings.of("spec.addressType", "FQDN endpoints are deprecated");
    }
}
