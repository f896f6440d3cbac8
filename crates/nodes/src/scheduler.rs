//! Choosing the node for a pod. Pure: nodes and a pod in, a node or a reason out.
//!
//! A node must pass the filters of a default scheduler (`scheduler/filters.rs`). Of those that do the one with the fewest
//! pods wins, and of equals the first by name, so that the same history gives the same placement. Preferences are ignored,
//! and no pod is preempted.

mod filters;
mod load;
mod selectors;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Node;

use self::filters::Demand;
pub use self::load::{EachPlaced, Load, NodeLoad};
pub(crate) use self::selectors::{matches as labels_match, tolerates};
use super::kubelet::record::Pod;

/// Chooses the node for `pod`, or returns the reason why there is none in the words of kube-scheduler. `load` knows the
/// nodes, and `each_placed` the pods that are on them. The first that suits ends the search: a pod that suits everywhere
/// costs the same with any number of nodes.
pub fn choose(
    pod: &Pod,
    nodes: &BTreeMap<String, Node>,
    load: &mut Load,
    each_placed: &EachPlaced<'_>,
) -> Result<String, String> {
    if nodes.is_empty() {
        return Err("no nodes available to schedule pods".to_owned());
    }
    let named = named_nodes(pod);
    if named.as_ref().is_some_and(BTreeSet::is_empty) {
        return Err(no_node(pod, nodes.len(), "pod affinity terms conflict"));
    }
    let demand = Demand::new(pod, nodes, load, each_placed);
    if named.is_none() {
        let suits = |name: &&str| {
            nodes.get(*name).is_some_and(|node| demand.refusal(node, load.node(name)).is_none())
        };
        if let Some(name) = load.in_order().find(suits) {
            return Ok(name.to_owned());
        }
    }
    let mut best: Option<(usize, &String)> = None;
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    let mut hopeless = 0;
    // A DaemonSet pod needs one node of thousands: the others are skipped.
    let candidates: Vec<(&String, &Node)> = match &named {
        Some(named) => named.iter().filter_map(|name| nodes.get_key_value(*name)).collect(),
        None => nodes.iter().collect(),
    };
    if candidates.len() < nodes.len() {
        let others = "node(s) didn't satisfy plugin(s) [NodeAffinity]".to_owned();
        hopeless = nodes.len() - candidates.len();
        reasons.insert(others, hopeless);
    }
    for (name, node) in candidates {
        let pods = load.of(name);
        match demand.refusal(node, load.node(name)) {
            Some(refusal) => {
                hopeless += usize::from(refusal.is_final);
                for reason in refusal.reasons {
                    *reasons.entry(reason).or_default() += 1;
                }
            }
            None if best.is_none_or(|best| (pods, name) < best) => best = Some((pods, name)),
            None => {}
        }
    }
    match best {
        Some((_, name)) => Ok(name.clone()),
        None => Err(sentence(pod, nodes.len(), &counted(&reasons), hopeless)),
    }
}

/// The sentence about a pod that no node can take for a reason that lies in none of the `nodes`.
pub fn no_node(pod: &Pod, nodes: usize, reason: &str) -> String {
    sentence(pod, nodes, reason, nodes)
}

/// On `hopeless` of the nodes the pod would not fit either if others left them. Upstream's `FitError`, for the filters
/// and once more for the preemption that follows.
fn sentence(pod: &Pod, nodes: usize, reason: &str, hopeless: usize) -> String {
    let preemption = if pod.spec.preemption_policy.as_deref() == Some("Never") {
        "not eligible due to preemptionPolicy=Never.".to_owned()
    } else {
        let reasons = BTreeMap::from([
            ("Preemption is not helpful for scheduling".to_owned(), hopeless),
            ("No preemption victims found for incoming pod".to_owned(), nodes - hopeless),
        ]);
        format!("0/{nodes} nodes are available: {}.", counted(&reasons))
    };
    format!("0/{nodes} nodes are available: {reason}. preemption: {preemption}")
}

/// The reasons with their numbers, in the order of their texts.
fn counted(reasons: &BTreeMap<String, usize>) -> String {
    let reasons = reasons.iter().filter(|(_, count)| **count > 0);
    let mut texts: Vec<String> = reasons.map(|(reason, count)| format!("{count} {reason}")).collect();
    texts.sort();
    texts.join(", ")
}

/// The nodes that the pod's required node affinity names; `None` if one of its terms names none. A term that names two
/// different ones names nothing, and upstream counts neither (framework/plugins/nodeaffinity).
fn named_nodes(pod: &Pod) -> Option<BTreeSet<&str>> {
    let affinity = pod.spec.affinity.as_ref()?.node_affinity.as_ref()?;
    let terms = &affinity.required_during_scheduling_ignored_during_execution.as_ref()?.node_selector_terms;
    let mut all = BTreeSet::new();
    for term in terms {
        let fields = term.match_fields.as_deref().unwrap_or_default();
        let names = fields.iter().filter(|field| field.key == "metadata.name" && field.operator == "In");
        let sets =
            names.map(|field| field.values.iter().flatten().map(String::as_str).collect::<BTreeSet<_>>());
        all.extend(sets.reduce(|one, other| &one & &other)?);
    }
    (!terms.is_empty()).then_some(all)
}

#[cfg(test)]
mod tests;
