//! The use of objects, by the names of `spec.hard` (upstream: the evaluators of `pkg/quota/v1/evaluator/core`).

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::names::{self, OF_STORAGE_CLASS, REQUESTS, is_computing, is_extended, is_huge_page};
use super::scopes;
use crate::model::pod::shape::PodShape;
use crate::model::quantity::Quantity;
use crate::model::{ClaimUse, PersistentVolumeClaim, Pod, ResourceQuota, Service};

/// Amounts by the names of `spec.hard`.
pub type Amounts = BTreeMap<String, Quantity>;

/// Adds amounts.
pub fn add(sum: &mut Amounts, more: &Amounts) {
    add_many(sum, more, 1);
}

fn add_many(sum: &mut Amounts, more: &Amounts, number: usize) {
    for (name, amount) in more {
        let entry = sum.entry(name.clone()).or_insert(Quantity::ZERO);
        *entry = entry.plus(amount.times(number));
    }
}

/// The time after which a pod that is being deleted is not counted any more: its node may be lost, and what it used must not be kept
/// from its replacement (upstream: `QuotaV1Pod`). The deletion timestamp lies a grace period after the request already.
pub fn overdue_after(pod: &Pod) -> Option<Timestamp> {
    let grace = SignedDuration::from_secs(pod.shape.grace_seconds?);
    Some(pod.meta.deletion?.saturating_add(grace).unwrap_or(Timestamp::MAX))
}

/// Whether a pod uses what its containers ask for: it has not ended, and is not overdue.
pub fn is_alive(pod: &Pod, now: Timestamp) -> bool {
    !pod.is_terminal() && overdue_after(pod).is_none_or(|due| now <= due)
}

/// The use of a pod of this shape, if its containers run or will.
pub fn of_shape(shape: &PodShape, is_alive: bool) -> Amounts {
    let mut used = Amounts::from([("count/pods".to_owned(), Quantity::count(1))]);
    if !is_alive {
        return used;
    }
    used.insert("pods".to_owned(), Quantity::count(1));
    for (name, amount) in shape.requests.iter() {
        let Some(amount) = Quantity::parse(amount) else { continue };
        if is_computing(name) || is_huge_page(name) {
            used.insert(name.to_owned(), amount);
        }
        if is_computing(name) || is_huge_page(name) || is_extended(name) {
            used.insert(format!("{REQUESTS}{name}"), amount);
        }
    }
    for (name, amount) in shape.limits.iter().filter(|(name, _)| is_computing(name)) {
        used.extend(Quantity::parse(amount).map(|amount| (format!("limits.{name}"), amount)));
    }
    used
}

/// Sums the pods of a namespace, those of a shape at once.
#[derive(Debug)]
pub struct PodSum {
    now: Timestamp,
    shapes: BTreeMap<usize, (Arc<PodShape>, [usize; 2])>,
    overdue: Option<Timestamp>,
}

impl PodSum {
    /// No pod yet.
    pub fn new(now: Timestamp) -> Self {
        PodSum { now, shapes: BTreeMap::new(), overdue: None }
    }

    /// One pod more.
    pub fn add(&mut self, pod: &Pod) {
        let is_alive = is_alive(pod, self.now);
        let address = Arc::as_ptr(&pod.shape).addr();
        let (_, counts) = self.shapes.entry(address).or_insert_with(|| (pod.shape.clone(), [0; 2]));
        counts[usize::from(is_alive)] += 1;
        let due = overdue_after(pod).filter(|_| is_alive);
        self.overdue = [self.overdue, due].into_iter().flatten().min();
    }

    /// The use of the pods that a quota includes.
    pub fn of(&self, quota: &ResourceQuota) -> Amounts {
        let mut sum = Amounts::new();
        for (shape, [ended, alive]) in self.shapes.values() {
            if scopes::includes_pod(quota, shape) {
                add_many(&mut sum, &of_shape(shape, false), *ended);
                add_many(&mut sum, &of_shape(shape, true), *alive);
            }
        }
        sum
    }

    /// The time after which the next of them is not counted any more.
    pub fn overdue_after(&self) -> Option<Timestamp> {
        self.overdue
    }
}

/// The use that a pod makes of a quota.
pub fn of_pod(quota: &ResourceQuota, pod: &Pod, now: Timestamp) -> Amounts {
    let is_included = scopes::includes_pod(quota, &pod.shape);
    if is_included { of_shape(&pod.shape, is_alive(pod, now)) } else { Amounts::new() }
}

/// The use that a Service makes of a quota.
pub fn of_service(quota: &ResourceQuota, service: &Service) -> Amounts {
    if !scopes::includes_others(quota) {
        return Amounts::new();
    }
    let ports = usize::try_from(service.node_ports).unwrap_or(usize::MAX);
    let used = [
        ("services", 1),
        ("count/services", 1),
        ("services.loadbalancers", usize::from(service.is_load_balancer)),
        ("services.nodeports", ports),
    ];
    used.into_iter().map(|(name, count)| (name.to_owned(), Quantity::count(count))).collect()
}

/// The use that a claim makes of a quota.
pub fn of_claim(quota: &ResourceQuota, claim: &PersistentVolumeClaim) -> Amounts {
    let usage = &*claim.usage;
    if !scopes::includes_claim(quota, usage) {
        return Amounts::new();
    }
    let ClaimUse { storage, class, attributes_classes: _ } = usage;
    let one = Quantity::count(1);
    let mut used = Amounts::from([
        ("persistentvolumeclaims".to_owned(), one),
        ("count/persistentvolumeclaims".to_owned(), one),
    ]);
    let of_class = |name: &str| format!("{class}{OF_STORAGE_CLASS}{name}");
    if !class.is_empty() {
        used.insert(of_class("persistentvolumeclaims"), one);
    }
    if let Some(storage) = Quantity::parse(storage) {
        used.insert("requests.storage".to_owned(), storage);
        if !class.is_empty() {
            used.insert(of_class("requests.storage"), storage);
        }
    }
    used
}

/// The use that so many objects of a resource make of a quota.
pub fn of_objects(quota: &ResourceQuota, resource: &str, count: usize) -> Amounts {
    let included = if scopes::includes_others(quota) { count } else { 0 };
    names::of_objects(resource).into_iter().map(|name| (name, Quantity::count(included))).collect()
}
