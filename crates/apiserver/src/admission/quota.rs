//! ResourceQuotas: what objects use, and the refusal of what would exceed one (upstream `plugin/resourcequota` and
//! `pkg/quota/v1`).
//!
//! In a cluster a controller counts what is used, later. Here the store does it with each write, so that the status of a
//! quota is never behind; whatever a client writes into it, a quota is counted anew. So a controller beside this server, which
//! finds the same numbers, has nothing to write. With [`crate::Options::counts_quotas`] switched off, the server charges what it
//! admits as kube-apiserver does, and leaves the rest to a controller.

mod scopes;
mod usage;

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Map, Value, json};

use super::pod_resources::{Amounts, add, amounts, of_container};
use crate::kinds::{self, Kind};
use crate::options::Options;
use crate::quantity::Quantity;
use crate::status::Failure;
use crate::store::{Charge, Charged, Store};
use scopes::matches;
use usage::{compute, counts_what, is_counted, is_overdue, usage};

/// How the store charges quotas, with these options.
pub(crate) fn charge(options: &Options) -> Charge {
    Charge { resource_of, status, charged, is_exact: options.counts_quotas, now: options.now.clone() }
}

/// The resources that a quota can demand of each container.
const DEMANDED: [&str; 6] =
    ["cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"];

/// The resource of the objects that the store keeps under this name, such as `deployments.apps`.
fn resource_of(storage: &str) -> String {
    let built_in = kinds::all().find(|row| row.kind == storage);
    built_in.map_or_else(|| storage.to_owned(), Kind::resource)
}

/// The status of a quota in whose namespace there are these objects.
fn status(
    quota: &Value,
    objects: &dyn Fn(&str) -> Vec<Arc<Value>>,
    is_served: &dyn Fn(&str) -> bool,
    now: Timestamp,
) -> Value {
    let hard = quota["spec"]["hard"].as_object().cloned().unwrap_or_default();
    let keys: Vec<&String> = hard.keys().filter(|key| is_counted(key, is_served)).collect();
    let resources: BTreeSet<&str> = keys.iter().map(|key| counts_what(key)).collect();
    let mut sum = Amounts::new();
    for resource in resources {
        for object in objects(resource).iter().filter(|object| matches(quota, resource, object)) {
            add(&mut sum, &usage(resource, object, now));
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

/// The status after one object has become another. With `is_exact` it follows from the objects. Else what more an object uses is added,
/// and nothing is ever taken off.
fn charged(
    quota: &Value,
    resource: &str,
    before: Option<&Value>,
    after: Option<&Value>,
    (is_exact, now): (bool, Timestamp),
) -> Charged {
    // Whether it was counted depends on when the quota was counted last.
    if is_exact && [before, after].into_iter().flatten().any(|object| is_overdue(resource, object, now)) {
        return Charged::Anew;
    }
    let of = |object: Option<&Value>| -> Amounts {
        object
            .filter(|object| matches(quota, resource, object))
            .map(|object| usage(resource, object, now))
            .unwrap_or_default()
    };
    let (before, after) = (of(before), of(after));
    let mut status = quota["status"].clone();
    let mut is_other = false;
    for (key, used) in status["used"].as_object_mut().into_iter().flatten() {
        let was = before.get(key).copied().unwrap_or(Quantity::ZERO);
        let is = after.get(key).copied().unwrap_or(Quantity::ZERO);
        if is > was || is_exact && is < was {
            let sum = Quantity::of(used).unwrap_or(Quantity::ZERO);
            *used = sum.minus(was).plus(is).canonical().into();
            is_other = true;
        }
    }
    if is_other { Charged::To(status) } else { Charged::Nothing }
}

/// A write that a quota may refuse.
pub(crate) struct Request<'a> {
    pub(crate) kind: &'a Kind,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    /// The object before; `None` if it is new.
    pub(crate) before: Option<&'a Value>,
    pub(crate) after: &'a Value,
}

/// Refuses what would exceed a quota. The guard is held until the object is stored, so that no other uses what is left; there is none
/// where no quota is.
pub(crate) fn admit<'a>(
    store: &Store,
    quotas: &'a Mutex<()>,
    request: &Request<'_>,
    options: &Options,
) -> Result<Option<MutexGuard<'a, ()>>, Failure> {
    let Request { kind, namespace, name, before, after: object } = *request;
    let list = || store.list("ResourceQuota", namespace, None, None);
    if !kind.namespaced || list().map_or(true, |listed| listed.objects.is_empty()) {
        return Ok(None);
    }
    let guard = quotas.lock();
    let resource = resource_of(kind.storage());
    let now = (options.now)();
    let mut used = usage(&resource, object, now);
    for (key, amount) in before.map(|before| usage(&resource, before, now)).unwrap_or_default() {
        used.entry(key).and_modify(|more| *more = more.minus(amount));
    }
    let Ok(quotas) = list() else { return Ok(Some(guard)) };
    let quotas: Vec<(String, Arc<Value>)> =
        quotas.objects.iter().map(|(key, quota)| (key.name.clone(), quota.value())).collect();
    let mut interesting = Vec::new();
    for (quota_name, quota) in &quotas {
        let hard = amounts(&quota["status"]["hard"]);
        let is_of_this = |key: &String| counts_what(key) == resource && is_counted(key, &|_| true);
        let hard: Amounts = hard.into_iter().filter(|(key, _)| is_of_this(key)).collect();
        let (hard, unknown): (Amounts, Amounts) =
            hard.into_iter().partition(|(key, _)| !quota["status"]["used"][key].is_null());
        if hard.is_empty() && unknown.is_empty() || !matches(quota, &resource, object) {
            continue;
        }
        if !options.counts_quotas && !unknown.is_empty() {
            let names = unknown.keys().cloned().collect::<Vec<_>>().join(",");
            let why = format!("status unknown for quota: {quota_name}, resources: {names}");
            return Err(Failure::forbidden(kind, name, &why));
        }
        if resource == "pods"
            && before.is_none()
            && let Some(missing) = missing(object, &hard)
        {
            return Err(Failure::forbidden(kind, name, &format!("failed quota: {quota_name}: {missing}")));
        }
        interesting.push((quota_name, quota, hard));
    }
    for (quota_name, quota, hard) in interesting {
        let sum = amounts(&quota["status"]["used"]);
        let exceeded = |(key, most): (&String, &Quantity)| {
            let more = used.get(key).copied().filter(|more| *more > Quantity::ZERO)?;
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
