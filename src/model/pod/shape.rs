//! The part of a pod that follows from its template, and that a quota reads: once for all pods of the template.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;

use super::affinity::PodAffinityWire;
use super::{ContainerStatusWire, ContainerWire, SpecWire, StatusWire};
use crate::model::intern::Interner;
use crate::model::meta::StringMap;
use crate::model::quantity::Quantity;
use crate::model::wire::{MetaWire, Pairs, Text};

/// The resources that a pod asks for and the scopes that it is in. Pods of a template share it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PodShape {
    /// The requests of the whole pod, by the name of the resource, as canonical quantities: all containers and sidecars together, or
    /// an init container with the sidecars before it, whichever is more; the pod's own requests come first, and its overhead is
    /// added (upstream: `PodRequests` of `component-helpers/resource`).
    pub requests: StringMap,
    /// The same of its limits.
    pub limits: StringMap,
    /// `spec.priorityClassName`; empty for none.
    pub priority_class: Box<str>,
    /// Whether its quality of service is `BestEffort`.
    pub is_best_effort: bool,
    /// Whether it has `activeDeadlineSeconds`.
    pub has_deadline: bool,
    /// Whether a term of its affinity to pods names other namespaces.
    pub crosses_namespaces: bool,
    /// `metadata.deletionGracePeriodSeconds`, of a pod that is being deleted.
    pub grace_seconds: Option<i64>,
}

impl PodShape {
    /// The part of a shared shape's bytes that falls to one of its users.
    pub(super) fn shared_bytes(self: &Arc<Self>) -> usize {
        let users = Arc::strong_count(self).saturating_sub(1).max(1);
        (size_of::<Self>() + 2 * size_of::<usize>() + self.heap_bytes()) / users
    }

    /// The bytes of heap that it takes besides itself.
    fn heap_bytes(&self) -> usize {
        self.requests.heap_bytes() + self.limits.heap_bytes() + self.priority_class.len()
    }
}

/// `requests` and `limits`.
#[derive(Default, Deserialize)]
pub(super) struct ResourcesWire<'a> {
    #[serde(borrow, default)]
    pub(super) requests: Pairs<'a>,
    #[serde(borrow, default)]
    pub(super) limits: Pairs<'a>,
}

/// Amounts by the name of the resource.
type Amounts = BTreeMap<String, Quantity>;

/// Which of the two lists of resources is summed.
#[derive(Clone, Copy, PartialEq)]
enum List {
    Requests,
    Limits,
}

impl List {
    fn of<'r, 'a>(self, resources: &'r ResourcesWire<'a>) -> &'r Pairs<'a> {
        match self {
            List::Requests => &resources.requests,
            List::Limits => &resources.limits,
        }
    }
}

fn amounts(pairs: &Pairs<'_>) -> Amounts {
    let parse = |(name, amount): &(Text<'_>, Text<'_>)| {
        Some((name.as_str().to_owned(), Quantity::parse(amount.as_str())?))
    };
    pairs.0.iter().filter_map(parse).collect()
}

fn add(sum: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let entry = sum.entry(name.clone()).or_insert(Quantity::ZERO);
        *entry = entry.plus(*amount);
    }
}

fn raise(most: &mut Amounts, other: Amounts) {
    for (name, amount) in other {
        let entry = most.entry(name).or_insert(amount);
        *entry = amount.max(*entry);
    }
}

/// The resources that a pod as a whole may ask for.
fn is_of_whole_pods(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with("hugepages-")
}

fn is_sidecar(container: &ContainerWire<'_>) -> bool {
    container.restart_policy.as_str() == "Always"
}

impl SpecWire<'_> {
    /// Sums a list of the whole pod.
    fn sum(&self, list: List, status: &StatusWire<'_>) -> Amounts {
        let is_infeasible = status.conditions.iter().flatten().any(|condition| {
            condition.kind.as_str() == "PodResizePending" && condition.reason.as_str() == "Infeasible"
        });
        let of = |container: &ContainerWire<'_>, is_resized: bool| {
            let named = |status: &&ContainerStatusWire<'_>| status.name == container.name;
            let status = status.containers().find(named).filter(|_| is_resized);
            effective(list, container, status, is_infeasible)
        };
        let (mut sidecars, mut most) = (Amounts::new(), Amounts::new());
        for container in self.init_containers.iter().flatten() {
            let own = of(container, is_sidecar(container));
            if is_sidecar(container) {
                add(&mut sidecars, &own);
                continue;
            }
            let mut during = sidecars.clone();
            add(&mut during, &own);
            raise(&mut most, during);
        }
        let mut sum = sidecars;
        self.containers.iter().flatten().for_each(|container| add(&mut sum, &of(container, true)));
        raise(&mut sum, most);
        if let Some(whole) = &self.resources {
            let own = amounts(list.of(whole)).into_iter().filter(|(name, _)| is_of_whole_pods(name));
            sum.extend(own);
        }
        let mut overhead = amounts(&self.overhead);
        if list == List::Limits {
            overhead.retain(|name, _| sum.get(name).is_some_and(|limit| !limit.is_zero()));
        }
        add(&mut sum, &overhead);
        sum
    }

    /// Whether no container asks for CPU or memory, nor the pod as a whole.
    fn asks_for_nothing(&self) -> bool {
        let is_asked = |pairs: &Pairs<'_>| {
            let computing = |name: &str| matches!(name, "cpu" | "memory");
            pairs.0.iter().any(|(name, amount)| {
                computing(name.as_str())
                    && Quantity::parse(amount.as_str()).is_some_and(Quantity::is_positive)
            })
        };
        let asks =
            |resources: &ResourcesWire<'_>| is_asked(&resources.requests) || is_asked(&resources.limits);
        match &self.resources {
            Some(whole) => !asks(whole),
            None => {
                let mut all = self.containers.iter().chain(&self.init_containers).flatten();
                !all.any(|container| container.resources.as_ref().is_some_and(asks))
            }
        }
    }

    fn crosses_namespaces(&self) -> bool {
        let affinity = self.affinity.iter();
        let mut both = affinity.flat_map(|affinity| [&affinity.pod_affinity, &affinity.pod_anti_affinity]);
        both.any(|affinity| affinity.as_ref().is_some_and(PodAffinityWire::crosses_namespaces))
    }
}

/// The resources of a container: of one that is resized in place the most of what it asks for, what it has and what it is promised
/// (upstream: `determineEffectiveRequests`).
fn effective(
    list: List,
    container: &ContainerWire<'_>,
    status: Option<&ContainerStatusWire<'_>>,
    is_infeasible: bool,
) -> Amounts {
    let asked = || container.resources.as_ref().map(|own| amounts(list.of(own))).unwrap_or_default();
    let Some((status, actual)) = status.and_then(|status| Some((status, status.resources.as_ref()?))) else {
        return asked();
    };
    let mut most = amounts(list.of(actual));
    if list == List::Requests {
        raise(&mut most, amounts(&status.allocated_resources));
    }
    if !is_infeasible {
        raise(&mut most, asked());
    }
    most
}

impl PodShape {
    pub(super) fn of(
        metadata: &MetaWire<'_>,
        spec: &SpecWire<'_>,
        status: &StatusWire<'_>,
        interner: &mut Interner,
    ) -> Arc<PodShape> {
        let texts = |list| -> StringMap {
            spec.sum(list, status).into_iter().map(|(name, amount)| (name, amount.to_string())).collect()
        };
        let shape = PodShape {
            requests: texts(List::Requests),
            limits: texts(List::Limits),
            priority_class: spec.priority_class_name.as_str().into(),
            is_best_effort: match status.qos_class.as_str() {
                "" => spec.asks_for_nothing(),
                class => class == "BestEffort",
            },
            has_deadline: spec.active_deadline_seconds.is_some_and(|seconds| seconds >= 0),
            crosses_namespaces: spec.crosses_namespaces(),
            grace_seconds: metadata.grace_seconds(),
        };
        let heap_bytes = shape.heap_bytes();
        interner.part(shape, heap_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Pod, Record as _};

    fn shape(metadata: &str, spec: &str, status: &str) -> Arc<PodShape> {
        let json = format!(
            r#"{{"metadata":{{"name":"web-1","namespace":"shop","uid":"u","resourceVersion":"7"{metadata}}},"spec":{spec},
                "status":{status}}}"#
        );
        Pod::decode(&json, &mut Interner::default()).unwrap().shape
    }

    fn requests(spec: &str, status: &str) -> Vec<(String, String)> {
        let shape = shape("", spec, status);
        shape.requests.iter().map(|(name, amount)| (name.to_owned(), amount.to_owned())).collect()
    }

    #[track_caller]
    fn check(spec: &str, status: &str, expected: &[(&str, &str)]) {
        let expected: Vec<_> =
            expected.iter().map(|(name, amount)| ((*name).to_owned(), (*amount).to_owned())).collect();
        assert_eq!(requests(spec, status), expected, "{spec} {status}");
    }

    #[test]
    fn a_pod_asks_for_the_most_that_its_containers_need_at_a_time() {
        let container =
            |cpu: &str| format!(r#"{{"name":"c{cpu}","resources":{{"requests":{{"cpu":"{cpu}"}}}}}}"#);
        let sidecar = r#"{"name":"s","restartPolicy":"Always","resources":{"requests":{"cpu":"1"}}}"#;
        let (a, b, init) = (container("100m"), container("200m"), container("2"));
        check(&format!(r#"{{"containers":[{a},{b}]}}"#), "{}", &[("cpu", "300m")]);
        check(&format!(r#"{{"containers":[{a}],"initContainers":[{init}]}}"#), "{}", &[("cpu", "2")]);
        let both = format!(r#"{{"containers":[{a}],"initContainers":[{sidecar},{init}]}}"#);
        check(&both, "{}", &[("cpu", "3")]);
        let after = format!(r#"{{"containers":[{a}],"initContainers":[{init},{sidecar}]}}"#);
        check(&after, "{}", &[("cpu", "2")]);
        let whole = r#""resources":{"requests":{"cpu":"5","example.com/gpu":"9"}},"overhead":{"cpu":"250m","memory":"1Mi"}"#;
        let spec = format!(r#"{{"containers":[{a}],{whole}}}"#);
        check(&spec, "{}", &[("cpu", "5250m"), ("memory", "1Mi")]);
        check(r#"{"containers":[{"name":"a","resources":null}]}"#, "{}", &[]);
    }

    #[test]
    fn limits_have_the_overhead_only_where_there_is_a_limit() {
        let spec = r#"{"containers":[{"name":"a","resources":{"limits":{"cpu":"1"}}}],"overhead":{"cpu":"1","memory":"1Mi"}}"#;
        let limits = shape("", spec, "{}").limits.clone();
        assert_eq!(limits.iter().collect::<Vec<_>>(), [("cpu", "2")]);
    }

    #[test]
    fn a_container_that_is_resized_counts_with_the_most_of_its_sizes() {
        let spec = r#"{"containers":[{"name":"a","resources":{"requests":{"cpu":"2"}}}]}"#;
        let actual = |cpu: &str, allocated: &str| {
            format!(
                r#"{{"name":"a","resources":{{"requests":{{"cpu":"{cpu}"}}}},"allocatedResources":{{"cpu":"{allocated}"}}}}"#
            )
        };
        let status = |one: &str, more: &str| format!(r#"{{"containerStatuses":[{one}]{more}}}"#);
        check(spec, &status(&actual("1", "1"), ""), &[("cpu", "2")]);
        check(spec, &status(&actual("3", "1"), ""), &[("cpu", "3")]);
        check(spec, &status(&actual("1", "4"), ""), &[("cpu", "4")]);
        let infeasible =
            r#","conditions":[{"type":"PodResizePending","status":"True","reason":"Infeasible"}]"#;
        check(spec, &status(&actual("1", "1"), infeasible), &[("cpu", "1")]);
    }

    #[test]
    fn scopes_are_read_from_the_spec_and_the_quality_of_service_from_the_status_if_it_is_there() {
        let bare = shape("", r#"{"containers":[{"name":"a"}]}"#, "{}");
        assert!(bare.is_best_effort && !bare.has_deadline && !bare.crosses_namespaces);
        assert!(bare.priority_class.is_empty() && bare.grace_seconds.is_none());
        let zero = r#"{"containers":[{"name":"a","resources":{"requests":{"cpu":"0"}}}]}"#;
        assert!(shape("", zero, "{}").is_best_effort);
        let one = r#"{"containers":[{"name":"a","resources":{"limits":{"memory":"1"}}}]}"#;
        assert!(!shape("", one, "{}").is_best_effort);
        assert!(shape("", one, r#"{"qosClass":"BestEffort"}"#).is_best_effort);
        let spec = r#"{"activeDeadlineSeconds":0,"priorityClassName":"high","nodeName":"n","affinity":{"podAntiAffinity":
            {"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":1,"podAffinityTerm":{"namespaceSelector":{}}}]}}}"#;
        let metadata = r#","deletionTimestamp":"2026-01-01T00:00:00Z","deletionGracePeriodSeconds":30"#;
        let all = shape(metadata, spec, "{}");
        assert!(all.has_deadline && all.crosses_namespaces);
        assert_eq!((&*all.priority_class, all.grace_seconds), ("high", Some(30)));
        let own = r#"{"affinity":{"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"namespaces":[]}]}}}"#;
        assert!(!shape("", own, "{}").crosses_namespaces);
    }

    #[test]
    fn pods_of_a_template_share_their_shape() {
        let mut interner = Interner::default();
        let mut decode = |name: &str| {
            let json = format!(
                r#"{{"metadata":{{"name":"{name}","uid":"u","resourceVersion":"7"}},"spec":{{"containers":[{{"name":"a",
                    "resources":{{"requests":{{"cpu":"1"}}}}}}]}}}}"#
            );
            Pod::decode(&json, &mut interner).unwrap().shape
        };
        assert!(Arc::ptr_eq(&decode("a"), &decode("b")));
    }
}
