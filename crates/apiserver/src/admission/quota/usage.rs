//! The use of objects, by the keys of `spec.hard` (upstream `pkg/quota/v1/evaluator/core`).

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::super::pod_resources::{Amounts, amounts, of_pod};
use crate::object::{meta, text};
use crate::quantity::Quantity;

/// Names of core resources that count objects without the prefix `count/`.
const COUNTED_BY_NAME: [&str; 6] = [
    "configmaps",
    "persistentvolumeclaims",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "services",
];

/// Resources whose objects no quota counts.
const IGNORED: [&str; 2] = ["events", "events.events.k8s.io"];

/// The part that follows the name of a StorageClass.
const OF_STORAGE_CLASS: &str = ".storageclass.storage.k8s.io/";

/// The annotation that names the StorageClass of a claim, and wins over the field.
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

/// Whether a pod that is being deleted has outstayed its deletion by another grace period: its node may be lost (upstream
/// `QuotaV1Pod`).
pub(crate) fn is_overdue(resource: &str, object: &Value, now: Timestamp) -> bool {
    let deletion = meta(object, "deletionTimestamp").parse::<Timestamp>().ok();
    let grace = object.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64);
    match (resource, deletion, grace) {
        ("pods", Some(deletion), Some(grace)) => {
            let due = deletion.saturating_add(SignedDuration::from_secs(grace)).unwrap_or(Timestamp::MAX);
            now > due
        }
        _ => false,
    }
}

/// The amounts that an object uses.
pub(super) fn usage(resource: &str, object: &Value, now: Timestamp) -> Amounts {
    if IGNORED.contains(&resource) {
        return Amounts::new();
    }
    let mut used = Amounts::from([(format!("count/{resource}"), Quantity::count(1))]);
    if COUNTED_BY_NAME.contains(&resource) {
        used.insert(resource.to_owned(), Quantity::count(1));
    }
    match resource {
        // Computing resources are free once a pod has ended.
        "pods" => {
            let has_ended = matches!(text(object, "/status/phase"), "Succeeded" | "Failed");
            if !has_ended && !is_overdue(resource, object, now) {
                used.insert("pods".to_owned(), Quantity::count(1));
                let spec = &object["spec"];
                compute(&of_pod(spec, "requests"), &of_pod(spec, "limits"), &mut used);
            }
        }
        "services" => of_service(&object["spec"], &mut used),
        "persistentvolumeclaims" => of_claim(object, &mut used),
        _ => {}
    }
    used
}

pub(super) fn compute(requests: &Amounts, limits: &Amounts, used: &mut Amounts) {
    for (name, amount) in requests {
        if matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-") {
            used.insert(name.clone(), *amount);
        }
        used.insert(format!("requests.{name}"), *amount);
    }
    for (name, amount) in limits {
        if matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") {
            used.insert(format!("limits.{name}"), *amount);
        }
    }
}

/// Ports of the nodes are counted before they are allocated: one for each port, of the types that have them. A load balancer that
/// needs none has those that it names.
fn of_service(spec: &Value, used: &mut Amounts) {
    let ports = || spec["ports"].as_array().into_iter().flatten();
    let names_all = spec["allocateLoadBalancerNodePorts"] == false;
    let is_named = |port: &&Value| port["nodePort"].as_i64().is_some_and(|number| number != 0);
    let (balancers, node_ports) = match spec["type"].as_str().unwrap_or_default() {
        "NodePort" => (0, ports().count()),
        "LoadBalancer" if names_all => (1, ports().filter(is_named).count()),
        "LoadBalancer" => (1, ports().count()),
        _ => (0, 0),
    };
    let node_ports = i32::try_from(node_ports).unwrap_or(i32::MAX);
    used.insert("services.loadbalancers".to_owned(), Quantity::count(balancers));
    used.insert("services.nodeports".to_owned(), Quantity::count(node_ports));
}

/// Storage is counted in whole bytes: what is requested, or has been allocated if that is more.
fn of_claim(claim: &Value, used: &mut Amounts) {
    let annotation = &claim["metadata"]["annotations"][CLASS_ANNOTATION];
    let class = annotation.as_str().unwrap_or_else(|| text(claim, "/spec/storageClassName"));
    let of_class = |name: &str| format!("{class}{OF_STORAGE_CLASS}{name}");
    if !class.is_empty() {
        used.insert(of_class("persistentvolumeclaims"), Quantity::count(1));
    }
    let storage = |list: &Value| amounts(list).get("storage").map(|amount| amount.in_whole());
    let Some(requested) = storage(&claim["spec"]["resources"]["requests"]) else { return };
    let allocated = storage(&claim["status"]["allocatedResources"]);
    let storage = allocated.filter(|allocated| *allocated > requested).unwrap_or(requested);
    used.insert("requests.storage".to_owned(), storage);
    if !class.is_empty() {
        used.insert(of_class("requests.storage"), storage);
    }
}

/// Whether a key of `spec.hard` is one that is counted here.
pub(super) fn is_counted(key: &str, is_served: &dyn Fn(&str) -> bool) -> bool {
    if let Some(resource) = key.strip_prefix("count/") {
        return !IGNORED.contains(&resource) && is_served(resource);
    }
    let basic = |name: &str| matches!(name, "cpu" | "memory" | "ephemeral-storage");
    if counts_what(key) != "pods" {
        return true;
    }
    match key.split_once('.') {
        Some(("limits", name)) => basic(name),
        Some(("requests", name)) => {
            // An extended resource has a domain that is not Kubernetes' own, or stands for a class of devices.
            let is_extended = name.contains('/') && !name.contains("kubernetes.io/")
                || name.starts_with("deviceclass.resource.kubernetes.io/");
            basic(name) || name.starts_with("hugepages-") || is_extended
        }
        _ => key == "pods" || basic(key) || key.starts_with("hugepages-"),
    }
}

/// The resource whose objects use what a key stands for.
pub(super) fn counts_what(key: &str) -> &str {
    let of_class = key.split_once(OF_STORAGE_CLASS).map(|(_, rest)| rest);
    match key.strip_prefix("count/") {
        Some(resource) => resource,
        None if COUNTED_BY_NAME.contains(&key) => key,
        None if matches!(key, "services.nodeports" | "services.loadbalancers") => "services",
        None if key == "requests.storage" => "persistentvolumeclaims",
        None if matches!(of_class, Some("persistentvolumeclaims" | "requests.storage")) => {
            "persistentvolumeclaims"
        }
        None => "pods",
    }
}
