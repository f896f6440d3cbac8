//! ResourceQuotas: what objects use, and the refusal of what would exceed one (upstream `plugin/resourcequota` and
//! `pkg/quota/v1`).
//!
//! In a cluster a controller counts what is used, later. Here the store does it with each write, so that the status of a
//! quota is never behind. Not counted, and so never refused: storage of claims, and ports and load balancers of services. A
//! pod that is being deleted counts until it is gone; kube-controller-manager stops counting one that outstays twice its
//! grace period.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use serde_json::{Map, Value, json};

use super::pod_resources::{Amounts, add, amounts, of_container, of_pod};
use crate::kinds::{self, Kind};
use crate::object::{strings, text};
use crate::quantity::Quantity;
use crate::status::Failure;
use crate::store::{Charge, Store};

/// How the store charges quotas.
pub(crate) const CHARGE: Charge = Charge { resource_of, status, charged };

/// Names of core resources that count objects without the prefix `count/`.
const COUNTED_BY_NAME: [&str; 6] = [
    "configmaps",
    "persistentvolumeclaims",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "services",
];

/// The resources that a quota can demand of each container.
const DEMANDED: [&str; 6] =
    ["cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"];

/// The resource of the objects that the store keeps under this name, such as `deployments.apps`.
fn resource_of(storage: &str) -> String {
    let built_in = kinds::all().find(|row| row.kind == storage);
    built_in.map_or_else(|| storage.to_owned(), Kind::resource)
}

/// The amounts that an object uses, by the keys of `spec.hard`.
fn usage(resource: &str, object: &Value) -> Amounts {
    let mut used = Amounts::from([(format!("count/{resource}"), Quantity::count(1))]);
    if COUNTED_BY_NAME.contains(&resource) {
        used.insert(resource.to_owned(), Quantity::count(1));
    }
    // Computing resources are free once a pod has ended.
    if resource == "pods" && !matches!(text(object, "/status/phase"), "Succeeded" | "Failed") {
        used.insert("pods".to_owned(), Quantity::count(1));
        let spec = &object["spec"];
        compute(&of_pod(spec, "requests"), &of_pod(spec, "limits"), &mut used);
    }
    used
}

fn compute(requests: &Amounts, limits: &Amounts, used: &mut Amounts) {
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

/// Whether a key of `spec.hard` is one that is counted here.
fn is_counted(key: &str, is_served: &dyn Fn(&str) -> bool) -> bool {
    if let Some(resource) = key.strip_prefix("count/") {
        return is_served(resource);
    }
    let basic = |name: &str| matches!(name, "cpu" | "memory" | "ephemeral-storage");
    match key.split_once('.') {
        Some(("limits", name)) => basic(name),
        Some(("requests", name)) => {
            // An extended resource has a domain that is not Kubernetes' own.
            let is_extended = name.contains('/') && !name.contains("kubernetes.io/");
            basic(name) || name.starts_with("hugepages-") || is_extended
        }
        _ => key == "pods" || basic(key) || key.starts_with("hugepages-") || COUNTED_BY_NAME.contains(&key),
    }
}

/// The status of a quota in whose namespace there are these objects.
fn status(
    quota: &Value,
    objects: &dyn Fn(&str) -> Vec<Arc<Value>>,
    is_served: &dyn Fn(&str) -> bool,
) -> Value {
    let hard = quota["spec"]["hard"].as_object().cloned().unwrap_or_default();
    let keys: Vec<&String> = hard.keys().filter(|key| is_counted(key, is_served)).collect();
    let resources: BTreeSet<&str> = keys.iter().map(|key| counts_what(key)).collect();
    let mut sum = Amounts::new();
    for resource in resources {
        for object in objects(resource).iter().filter(|object| matches(quota, resource, object)) {
            add(&mut sum, &usage(resource, object));
        }
    }
    let used: Map<String, Value> = keys
        .iter()
        .map(|key| ((*key).clone(), sum.get(*key).copied().unwrap_or(Quantity::ZERO).canonical().into()))
        .collect();
    let mut status = json!({});
    if !hard.is_empty() {
        status = json!({"hard": hard, "used": used});
    }
    status
}

/// The resource whose objects use what a key stands for.
fn counts_what(key: &str) -> &str {
    match key.strip_prefix("count/") {
        Some(resource) => resource,
        None if COUNTED_BY_NAME.contains(&key) => key,
        None => "pods",
    }
}

/// The status after one object has become another; `None` if it stays as it is.
fn charged(quota: &Value, resource: &str, before: Option<&Value>, after: Option<&Value>) -> Option<Value> {
    let of = |object: Option<&Value>| -> Amounts {
        object
            .filter(|object| matches(quota, resource, object))
            .map(|object| usage(resource, object))
            .unwrap_or_default()
    };
    let (before, after) = (of(before), of(after));
    let mut status = quota["status"].clone();
    let mut is_other = false;
    for (key, used) in status["used"].as_object_mut().into_iter().flatten() {
        let was = before.get(key).copied().unwrap_or(Quantity::ZERO);
        let is = after.get(key).copied().unwrap_or(Quantity::ZERO);
        if was != is {
            let sum = Quantity::of(used).unwrap_or(Quantity::ZERO);
            *used = sum.minus(was).plus(is).canonical().into();
            is_other = true;
        }
    }
    is_other.then_some(status)
}

/// Whether the scopes of a quota include an object.
fn matches(quota: &Value, resource: &str, object: &Value) -> bool {
    let spec = &quota["spec"];
    let scopes = strings(spec.get("scopes"));
    let selectors: Vec<&Value> =
        spec["scopeSelector"]["matchExpressions"].as_array().into_iter().flatten().collect();
    if resource != "pods" {
        return scopes.is_empty() && selectors.is_empty();
    }
    let pod = &object["spec"];
    scopes.iter().all(|scope| in_scope(scope, "Exists", &Value::Null, pod, object))
        && selectors.iter().all(|selector| {
            let operator = selector["operator"].as_str().unwrap_or_default();
            in_scope(
                selector["scopeName"].as_str().unwrap_or_default(),
                operator,
                &selector["values"],
                pod,
                object,
            )
        })
}

fn in_scope(scope: &str, operator: &str, values: &Value, spec: &Value, pod: &Value) -> bool {
    let is_terminating = spec["activeDeadlineSeconds"].as_i64().is_some_and(|seconds| seconds >= 0);
    let is_best_effort = text(pod, "/status/qosClass") == "BestEffort";
    match scope {
        "Terminating" => is_terminating,
        "NotTerminating" => !is_terminating,
        "BestEffort" => is_best_effort,
        "NotBestEffort" => !is_best_effort,
        "PriorityClass" => {
            let is_listed = |class| strings(Some(values)).contains(&class);
            let class = spec["priorityClassName"].as_str().unwrap_or_default();
            match operator {
                "In" => !class.is_empty() && is_listed(class),
                "NotIn" => !is_listed(class),
                "Exists" => !class.is_empty(),
                "DoesNotExist" => class.is_empty(),
                _ => false,
            }
        }
        "CrossNamespacePodAffinity" => crosses_namespaces(&spec["affinity"]),
        _ => false,
    }
}

/// Whether a pod has a term of affinity that looks at other namespaces.
fn crosses_namespaces(affinity: &Value) -> bool {
    let crosses = |term: &Value| {
        term["namespaces"].as_array().is_some_and(|namespaces| !namespaces.is_empty())
            || term["namespaceSelector"].is_object()
    };
    ["podAffinity", "podAntiAffinity"].iter().any(|kind| {
        let terms = |field: &str| affinity[*kind][field].as_array().into_iter().flatten();
        terms("requiredDuringSchedulingIgnoredDuringExecution").any(crosses)
            || terms("preferredDuringSchedulingIgnoredDuringExecution")
                .any(|term| crosses(&term["podAffinityTerm"]))
    })
}

/// Refuses a new object that would exceed a quota. The guard is held until the object is stored, so that no other uses
/// what is left; there is none where no quota is.
pub(crate) fn admit<'a>(
    store: &Store,
    quotas: &'a Mutex<()>,
    kind: &Kind,
    namespace: &str,
    name: &str,
    object: &Value,
) -> Result<Option<MutexGuard<'a, ()>>, Failure> {
    let list = || store.list("ResourceQuota", namespace, None, None);
    if !kind.namespaced || list().map_or(true, |listed| listed.objects.is_empty()) {
        return Ok(None);
    }
    let guard = quotas.lock();
    let resource = resource_of(kind.storage());
    let used = usage(&resource, object);
    let Ok(quotas) = list() else { return Ok(Some(guard)) };
    let quotas: Vec<(String, Arc<Value>)> =
        quotas.objects.iter().map(|(key, quota)| (key.name.clone(), quota.value())).collect();
    let mut interesting = Vec::new();
    for (quota_name, quota) in &quotas {
        let hard = amounts(&quota["status"]["hard"]);
        let is_of_this =
            |key: &String| counts_what(key) == resource && !quota["status"]["used"][key].is_null();
        let hard: Amounts = hard.into_iter().filter(|(key, _)| is_of_this(key)).collect();
        if hard.is_empty() || !matches(quota, &resource, object) {
            continue;
        }
        if resource == "pods"
            && let Some(missing) = missing(object, &hard)
        {
            return Err(Failure::forbidden(kind, name, &format!("failed quota: {quota_name}: {missing}")));
        }
        interesting.push((quota_name, quota, hard));
    }
    for (quota_name, quota, hard) in interesting {
        let sum = amounts(&quota["status"]["used"]);
        let exceeded = |(key, most): (&String, &Quantity)| {
            let more = used.get(key).copied().filter(|more| !more.is_zero())?;
            let sum = sum.get(key).copied().unwrap_or(Quantity::ZERO);
            (sum.plus(more) > *most).then(|| (key.clone(), more, sum, *most))
        };
        let exceeded: Vec<_> = hard.iter().filter_map(exceeded).collect();
        if exceeded.is_empty() {
            continue;
        }
        let shown = |of: fn(&(String, Quantity, Quantity, Quantity)) -> Quantity| -> String {
            let each = exceeded.iter().map(|all| format!("{}={}", all.0, of(all).canonical()));
            each.collect::<Vec<_>>().join(",")
        };
        let (requested, used, limited) = (shown(|all| all.1), shown(|all| all.2), shown(|all| all.3));
        let why =
            format!("exceeded quota: {quota_name}, requested: {requested}, used: {used}, limited: {limited}");
        return Err(Failure::forbidden(kind, name, &why));
    }
    Ok(Some(guard))
}

/// The requests and limits that a quota demands of each container and that some lack.
fn missing(pod: &Value, hard: &Amounts) -> Option<String> {
    let spec = &pod["spec"];
    let of_the_pod = |field| amounts(&spec["resources"][field]);
    let mut given = Amounts::new();
    compute(&of_the_pod("requests"), &of_the_pod("limits"), &mut given);
    let mut lines = Vec::new();
    for key in hard.keys().filter(|key| DEMANDED.contains(&key.as_str()) && !given.contains_key(*key)) {
        let lacks = |container: &&Value| {
            let mut own = Amounts::new();
            compute(&of_container(container, "requests"), &of_container(container, "limits"), &mut own);
            !own.contains_key(key)
        };
        let containers =
            ["containers", "initContainers"].iter().flat_map(|list| spec[*list].as_array()).flatten();
        let names: BTreeSet<&str> =
            containers.filter(lacks).filter_map(|container| container["name"].as_str()).collect();
        if !names.is_empty() {
            lines.push(format!("{key} for: {}", names.into_iter().collect::<Vec<_>>().join(",")));
        }
    }
    (!lines.is_empty()).then(|| format!("must specify {}", lines.join("; ")))
}
