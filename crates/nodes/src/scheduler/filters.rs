//! The filters of a default scheduler, in its order and in its words: a pod and a node in, a refusal or none out. Pure.
//!
//! Upstream: pkg/scheduler/framework/plugins/{nodeunschedulable,tainttoleration,nodeaffinity,nodeports,noderesources,
//! podtopologyspread,interpodaffinity}.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Node, PodAffinityTerm, Taint, TopologySpreadConstraint};

use super::{
    load::{EachPlaced, Load, Matching, NodeLoad, PodsOn, Term},
    selectors::{self, bears_taints, selects_node, tolerates},
};
use crate::kubelet::{
    quantity::{NANOS, nanos},
    record::Pod,
    resources::HostPort,
};

/// Why a node cannot take a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) reasons: Vec<String>,
    /// No pod that left the node would change it.
    pub(super) is_final: bool,
}

fn refuse(reason: &str, is_final: bool) -> Option<Refusal> {
    Some(Refusal { reasons: vec![reason.to_owned()], is_final })
}

/// The number of matching pods for each value of a topology key.
type Domains = BTreeMap<String, usize>;

/// A topology spread constraint with `whenUnsatisfiable: DoNotSchedule`.
struct Spread {
    topology_key: String,
    max_skew: usize,
    /// Whether the pod counts itself.
    itself: usize,
    domains: Domains,
    /// The fewest pods of a domain.
    fewest: usize,
}

/// The demands of a pod on its node, computed once for all nodes.
pub(super) struct Demand<'a> {
    pod: &'a Pod,
    requests: BTreeMap<Box<str>, i128>,
    ports: Vec<HostPort>,
    spread: Vec<Spread>,
    affinity: Vec<(String, Domains)>,
    /// No pod matches its affinity but itself: it may be the first.
    may_be_first: bool,
    anti_affinity: Vec<(String, Domains)>,
    /// The labels of nodes where pods are whose anti-affinity matches the pod.
    guarded: BTreeSet<(String, String)>,
}

impl<'a> Demand<'a> {
    pub(super) fn new(
        pod: &'a Pod,
        nodes: &BTreeMap<String, Node>,
        load: &mut Load,
        each_placed: &EachPlaced<'_>,
    ) -> Self {
        let namespace = pod.namespace();
        let affinity: Vec<&PodAffinityTerm> = pod.required_affinity().collect();
        let about: Option<Vec<Term>> = affinity.iter().map(|term| Term::of(term, namespace)).collect();
        let pods_on = match &about {
            Some(terms) if !terms.is_empty() => {
                load.tally(Matching { terms: terms.clone(), only_live: false }, each_placed)
            }
            _ => PodsOn::new(),
        };
        let affinity: Vec<(String, Domains)> = affinity
            .into_iter()
            .map(|term| (term.topology_key.clone(), domains(&term.topology_key, &pods_on, nodes)))
            .collect();
        let anti_affinity = pod.required_anti_affinity().filter_map(|term| {
            let matching = Matching { terms: vec![Term::of(term, namespace)?], only_live: false };
            let pods_on = load.tally(matching, each_placed);
            Some((term.topology_key.clone(), domains(&term.topology_key, &pods_on, nodes)))
        });
        let anti_affinity = anti_affinity.collect();
        let constraints = pod.spec.topology_spread_constraints.as_deref().unwrap_or_default();
        let constraints: Vec<&TopologySpreadConstraint> = constraints
            .iter()
            .filter(|constraint| constraint.when_unsatisfiable == "DoNotSchedule")
            .collect();
        let spread = constraints
            .iter()
            .map(|constraint| spread(pod, constraint, &constraints, nodes, load, each_placed));
        let spread = spread.collect();
        let mut guarded = BTreeSet::new();
        for guard in load.guards().filter(|guard| guard.term.matches(pod)) {
            let values = domains(&guard.topology_key, &guard.pods_on, nodes).into_keys();
            guarded.extend(values.map(|value| (guard.topology_key.clone(), value)));
        }
        Demand {
            pod,
            requests: pod.requests(),
            ports: pod.host_ports().collect(),
            spread,
            may_be_first: affinity.iter().all(|(_, domains)| domains.is_empty())
                && about.is_some_and(|terms| terms.iter().all(|term| term.matches(pod))),
            affinity,
            anti_affinity,
            guarded,
        }
    }

    /// Why the node cannot take the pod, of the first filter that refuses, as kube-scheduler's filters stop there too.
    pub(super) fn refusal(&self, node: &Node, load: Option<&NodeLoad>) -> Option<Refusal> {
        self.node_itself(node)
            .or_else(|| self.host_ports(load))
            .or_else(|| self.resources(node, load))
            .or_else(|| self.topology_spread(node))
            .or_else(|| self.other_pods(node))
    }

    fn node_itself(&self, node: &Node) -> Option<Refusal> {
        let tolerations = self.pod.spec.tolerations.as_deref().unwrap_or_default();
        let cordoned = node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true));
        if cordoned && !tolerations.iter().any(|toleration| tolerates(toleration, &cordon())) {
            return refuse("node(s) were unschedulable", true);
        }
        if !bears_taints(self.pod, node) {
            return refuse("node(s) had untolerated taint(s)", true);
        }
        if !selects_node(self.pod, node) {
            return refuse("node(s) didn't match Pod's node affinity/selector", true);
        }
        None
    }

    fn host_ports(&self, load: Option<&NodeLoad>) -> Option<Refusal> {
        let taken =
            |port: &HostPort| load.is_some_and(|load| load.ports.keys().any(|other| port.conflicts(other)));
        if self.ports.iter().any(taken) {
            return refuse("node(s) didn't have free ports for the requested pod ports", false);
        }
        None
    }

    /// A node that reports no resources yet has enough of all.
    fn resources(&self, node: &Node, load: Option<&NodeLoad>) -> Option<Refusal> {
        let status = node.status.as_ref()?;
        let allocatable = status.allocatable.as_ref().or(status.capacity.as_ref())?;
        let all = |resource: &str| allocatable.get(resource).and_then(|quantity| nanos(&quantity.0));
        let (mut reasons, mut is_final) = (Vec::new(), false);
        let pods = load.map_or(0, |load| load.pods) as i128 + 1;
        if all("pods").is_some_and(|room| pods.saturating_mul(NANOS) > room) {
            reasons.push("Too many pods".to_owned());
        }
        for (resource, wanted) in &self.requests {
            let all = all(resource).unwrap_or(0);
            let used = load.and_then(|load| load.requested.get(resource)).copied().unwrap_or(0);
            if *wanted > 0 && *wanted > all.saturating_sub(used) {
                reasons.push(format!("Insufficient {resource}"));
                is_final |= *wanted > all;
            }
        }
        (!reasons.is_empty()).then_some(Refusal { reasons, is_final })
    }

    fn topology_spread(&self, node: &Node) -> Option<Refusal> {
        for spread in &self.spread {
            let Some(value) = label(node, &spread.topology_key) else {
                let reason = "node(s) didn't match pod topology spread constraints (missing required label)";
                return refuse(reason, true);
            };
            let there = spread.domains.get(value).copied().unwrap_or(0);
            if (there + spread.itself).saturating_sub(spread.fewest) > spread.max_skew {
                return refuse("node(s) didn't match pod topology spread constraints", false);
            }
        }
        None
    }

    fn other_pods(&self, node: &Node) -> Option<Refusal> {
        let has_match = |(key, domains): &(String, Domains)| {
            label(node, key).is_some_and(|value| domains.get(value).is_some_and(|pods| *pods > 0))
        };
        let has_labels = || self.affinity.iter().all(|(key, _)| label(node, key).is_some());
        if !(self.affinity.iter().all(has_match) || (self.may_be_first && has_labels())) {
            return refuse("node(s) didn't match pod affinity rules", true);
        }
        if self.anti_affinity.iter().any(has_match) {
            return refuse("node(s) didn't match pod anti-affinity rules", false);
        }
        if self.guarded.iter().any(|(key, value)| label(node, key) == Some(value)) {
            return refuse("node(s) didn't satisfy existing pods anti-affinity rules", false);
        }
        None
    }
}

/// The taint that a cordoned node carries in a real cluster.
fn cordon() -> Taint {
    Taint {
        key: "node.kubernetes.io/unschedulable".to_owned(),
        effect: "NoSchedule".to_owned(),
        ..Taint::default()
    }
}

fn label<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    node.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

fn domains(topology_key: &str, pods_on: &PodsOn, nodes: &BTreeMap<String, Node>) -> Domains {
    let mut domains = Domains::new();
    for (node, pods) in pods_on {
        if let Some(value) = nodes.get(node).and_then(|node| label(node, topology_key)) {
            *domains.entry(value.to_owned()).or_default() += pods;
        }
    }
    domains
}

fn spread(
    pod: &Pod,
    constraint: &TopologySpreadConstraint,
    all: &[&TopologySpreadConstraint],
    nodes: &BTreeMap<String, Node>,
    load: &mut Load,
    each_placed: &EachPlaced<'_>,
) -> Spread {
    // Without a selector no pod matches, and with an empty one upstream counts none but the pod itself.
    let mut selector = constraint.label_selector.clone();
    if let Some(selector) = &mut selector {
        for key in constraint.match_label_keys.iter().flatten() {
            if let Some(value) = pod.metadata.label(key) {
                selector.match_labels.get_or_insert_default().insert(key.clone(), value.to_owned());
            }
        }
    }
    let itself =
        selector.as_ref().is_some_and(|selector| selectors::matches(selector, |key| pod.metadata.label(key)));
    let pods_on = match selector.filter(|selector| !selectors::is_empty(selector)) {
        Some(selector) => {
            let terms = vec![Term::within(pod.namespace(), selector)];
            load.tally(Matching { terms, only_live: true }, each_placed)
        }
        None => PodsOn::new(),
    };
    let honours = |policy: &Option<String>, default: bool| {
        policy.as_deref().map_or(default, |policy| policy == "Honor")
    };
    let mut domains = Domains::new();
    for (name, node) in nodes {
        let counts = all.iter().all(|constraint| label(node, &constraint.topology_key).is_some())
            && (!honours(&constraint.node_affinity_policy, true) || selects_node(pod, node))
            && (!honours(&constraint.node_taints_policy, false) || bears_taints(pod, node));
        if let Some(value) = label(node, &constraint.topology_key).filter(|_| counts) {
            *domains.entry(value.to_owned()).or_default() += pods_on.get(name).copied().unwrap_or(0);
        }
    }
    let at_least = usize::try_from(constraint.min_domains.unwrap_or(1)).unwrap_or(0);
    let fewest = if domains.len() < at_least { 0 } else { domains.values().min().copied().unwrap_or(0) };
    let max_skew = usize::try_from(constraint.max_skew).unwrap_or(0);
    let topology_key = constraint.topology_key.clone();
    Spread { topology_key, max_skew, itself: usize::from(itself), domains, fewest }
}
