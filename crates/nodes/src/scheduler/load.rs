//! The pods that are on each node or on their way to it: how many, the sum of their requests, the ports of the node that
//! they take, and how many of them a selector matches. All of it is kept up to date with each pod that comes or goes, so
//! that the scheduler looks at no pod but the one that it places.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{api::core::v1::PodAffinityTerm, apimachinery::pkg::apis::meta::v1::LabelSelector};

use super::selectors;
use crate::kubelet::{record::Pod, resources::HostPort};

/// How many selectors are counted at most. Beyond that all are forgotten, and counted anew when a pod has them.
const MOST_TALLIES: usize = 256;

/// The resources and ports that the pods of one node take.
#[derive(Clone, Debug, Default)]
pub struct NodeLoad {
    /// The number of pods.
    pub pods: usize,
    /// The sum of their requests by the name of the resource, in billionths.
    pub requested: BTreeMap<Box<str>, i128>,
    /// The ports of the node that they take, and how many do.
    pub ports: BTreeMap<HostPort, usize>,
}

/// The pods that a term of a pod's affinity or a topology spread constraint is about.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Term {
    namespaces: BTreeSet<String>,
    /// A namespace is known by its name alone: its only label is `kubernetes.io/metadata.name`, as every namespace has it.
    namespace_selector: Option<LabelSelector>,
    selector: LabelSelector,
}

impl Term {
    /// The pods of one namespace that the selector matches.
    pub(super) fn within(namespace: &str, selector: LabelSelector) -> Self {
        let namespaces = BTreeSet::from([namespace.to_owned()]);
        Term { namespaces, namespace_selector: None, selector }
    }

    /// The pods of a term of the affinity of a pod in that namespace. `None` if it has no selector: it matches no pod.
    pub(super) fn of(term: &PodAffinityTerm, namespace: &str) -> Option<Self> {
        let mut namespaces: BTreeSet<String> = term.namespaces.iter().flatten().cloned().collect();
        if namespaces.is_empty() && term.namespace_selector.is_none() {
            namespaces.insert(namespace.to_owned());
        }
        let namespace_selector = term.namespace_selector.clone();
        Some(Term { namespaces, namespace_selector, selector: term.label_selector.clone()? })
    }

    pub(super) fn matches(&self, pod: &Pod) -> bool {
        let namespace = pod.namespace();
        let name = |key: &str| (key == "kubernetes.io/metadata.name").then_some(namespace);
        let selected =
            self.namespace_selector.as_ref().is_some_and(|selector| selectors::matches(selector, name));
        (self.namespaces.contains(namespace) || selected)
            && selectors::matches(&self.selector, |key| pod.metadata.label(key))
    }
}

/// The pods that match all of some terms.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Matching {
    pub(super) terms: Vec<Term>,
    /// Pods that are being deleted do not count.
    pub(super) only_live: bool,
}

impl Matching {
    fn includes(&self, pod: &Pod) -> bool {
        !(self.only_live && pod.metadata.deletion_timestamp.is_some())
            && self.terms.iter().all(|term| term.matches(pod))
    }

    /// Equal for equal ones. Selectors have no order.
    fn key(&self) -> String {
        format!("{self:?}")
    }
}

/// The number of pods by the name of their node.
pub(super) type PodsOn = BTreeMap<String, usize>;

/// Pods with the same term of required anti-affinity: where they are, no pod may come that it matches.
#[derive(Clone, Debug)]
pub(super) struct Guard {
    pub(super) term: Term,
    pub(super) topology_key: String,
    pub(super) pods_on: PodsOn,
}

/// Calls a function for each pod that is on a node or on its way to it, with the name of the node.
pub type EachPlaced<'a> = dyn Fn(&mut dyn FnMut(&Pod, &str)) + 'a;

/// The nodes with what their pods take, those with the fewest pods first.
#[derive(Clone, Debug, Default)]
pub struct Load {
    nodes: BTreeMap<String, NodeLoad>,
    /// Those that exist.
    order: BTreeSet<(usize, String)>,
    tallies: BTreeMap<String, (Matching, PodsOn)>,
    guards: BTreeMap<String, Guard>,
}

impl Load {
    /// A node exists from now on. Its pods may have been counted before.
    pub fn node_added(&mut self, name: &str) {
        self.order.insert((self.of(name), name.to_owned()));
    }

    /// A node does not exist any more. Its pods are still counted.
    pub fn node_removed(&mut self, name: &str) {
        self.order.remove(&(self.of(name), name.to_owned()));
    }

    /// The number of pods of a node.
    pub fn of(&self, node: &str) -> usize {
        self.nodes.get(node).map_or(0, |load| load.pods)
    }

    /// The load of one node; `None` if it has none.
    pub fn node(&self, name: &str) -> Option<&NodeLoad> {
        self.nodes.get(name)
    }

    /// The nodes that exist, those with the fewest pods first and of equals the first by name.
    pub fn in_order(&self) -> impl Iterator<Item = &str> {
        self.order.iter().map(|(_, name)| name.as_str())
    }

    /// A pod is on the node, or on its way to it.
    pub fn pod_added(&mut self, pod: &Pod, node: &str) {
        let load = self.nodes.entry(node.to_owned()).or_default();
        for (resource, amount) in pod.requests() {
            let sum = load.requested.entry(resource).or_default();
            *sum = sum.saturating_add(amount);
        }
        for port in pod.host_ports() {
            *load.ports.entry(port).or_default() += 1;
        }
        let before = load.pods;
        load.pods += 1;
        self.reorder(node, before, before + 1);
        for (matching, pods_on) in self.tallies.values_mut() {
            if matching.includes(pod) {
                *pods_on.entry(node.to_owned()).or_default() += 1;
            }
        }
        for term in pod.required_anti_affinity() {
            let key = format!("{}/{term:?}", pod.namespace());
            if !self.guards.contains_key(&key) {
                let Some(about) = Term::of(term, pod.namespace()) else { continue };
                let topology_key = term.topology_key.clone();
                let guard = Guard { term: about, topology_key, pods_on: PodsOn::new() };
                self.guards.insert(key.clone(), guard);
            }
            if let Some(guard) = self.guards.get_mut(&key) {
                *guard.pods_on.entry(node.to_owned()).or_default() += 1;
            }
        }
    }

    /// A pod has left the node. It is as it was when it was added.
    pub fn pod_removed(&mut self, pod: &Pod, node: &str) {
        let Some(load) = self.nodes.get_mut(node) else { return };
        for (resource, amount) in pod.requests() {
            if let Some(sum) = load.requested.get_mut(&resource) {
                *sum = sum.saturating_sub(amount);
            }
        }
        for port in pod.host_ports() {
            subtract(&mut load.ports, &port);
        }
        let before = load.pods;
        load.pods = before.saturating_sub(1);
        if load.pods == 0 {
            self.nodes.remove(node);
        }
        self.reorder(node, before, before.saturating_sub(1));
        for (matching, pods_on) in self.tallies.values_mut() {
            if matching.includes(pod) {
                subtract(pods_on, node);
            }
        }
        for term in pod.required_anti_affinity() {
            let key = format!("{}/{term:?}", pod.namespace());
            if let Some(guard) = self.guards.get_mut(&key) {
                subtract(&mut guard.pods_on, node);
                if guard.pods_on.is_empty() {
                    self.guards.remove(&key);
                }
            }
        }
    }

    fn reorder(&mut self, node: &str, before: usize, after: usize) {
        if self.order.remove(&(before, node.to_owned())) {
            self.order.insert((after, node.to_owned()));
        }
    }

    /// Where the pods are that match. The first question counts them, and from then on the answer is kept.
    pub(super) fn tally(&mut self, matching: Matching, each_placed: &EachPlaced<'_>) -> PodsOn {
        let key = matching.key();
        if let Some((_, pods_on)) = self.tallies.get(&key) {
            return pods_on.clone();
        }
        let mut pods_on = PodsOn::new();
        each_placed(&mut |pod, node| {
            if matching.includes(pod) {
                *pods_on.entry(node.to_owned()).or_default() += 1;
            }
        });
        if self.tallies.len() >= MOST_TALLIES {
            self.tallies.clear();
        }
        self.tallies.insert(key, (matching, pods_on.clone()));
        pods_on
    }

    /// The terms of required anti-affinity that pods on nodes have.
    pub(super) fn guards(&self) -> impl Iterator<Item = &Guard> {
        self.guards.values()
    }
}

fn subtract<K: Ord + std::borrow::Borrow<Q>, Q: Ord + ?Sized>(counts: &mut BTreeMap<K, usize>, key: &Q) {
    if let Some(count) = counts.get_mut(key) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            counts.remove(key);
        }
    }
}
