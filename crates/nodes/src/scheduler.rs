//! Choosing the node for a pod. Pure: nodes and a pod in, a node or a reason out.
//!
//! A node must not be cordoned, must match the pod's node selector and required node affinity, must have
//! no taint that the pod does not tolerate, and must have room by its number of pods. Of those that
//! remain the one with the fewest pods wins, and of equals the first by name, so that the same history
//! gives the same placement. Resource requests, preferences and pod affinity are ignored.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Node, NodeSelectorRequirement, NodeSelectorTerm, Taint, Toleration};

use super::kubelet::record::Pod;

/// The nodes with the number of pods that are on each or on their way to it, those with the fewest pods first.
#[derive(Clone, Debug, Default)]
pub struct Load {
    pods: BTreeMap<String, usize>,
    /// Those that exist.
    order: BTreeSet<(usize, String)>,
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

    /// A pod is on the node, or on its way to it.
    pub fn pod_added(&mut self, node: &str) {
        self.set(node, self.of(node) + 1);
    }

    /// A pod has left the node.
    pub fn pod_removed(&mut self, node: &str) {
        self.set(node, self.of(node).saturating_sub(1));
    }

    /// The number of pods of a node.
    pub fn of(&self, node: &str) -> usize {
        self.pods.get(node).copied().unwrap_or(0)
    }

    fn set(&mut self, node: &str, pods: usize) {
        if self.order.remove(&(self.of(node), node.to_owned())) {
            self.order.insert((pods, node.to_owned()));
        }
        if pods == 0 {
            self.pods.remove(node);
        } else {
            self.pods.insert(node.to_owned(), pods);
        }
    }
}

/// Chooses the node for `pod`, or returns the reason why there is none in the words of kube-scheduler. `load` knows the
/// nodes. The first that suits ends the search: a pod that suits everywhere costs the same with any number of nodes.
pub fn choose(pod: &Pod, nodes: &BTreeMap<String, Node>, load: &Load) -> Result<String, String> {
    if nodes.is_empty() {
        return Err("no nodes available to schedule pods".to_owned());
    }
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    let named = named_nodes(pod);
    if named.is_none() {
        let suits = |(pods, name): &&(usize, String)| {
            nodes.get(name).is_some_and(|node| refusal(pod, node, *pods).is_none())
        };
        if let Some((_, name)) = load.order.iter().find(suits) {
            return Ok(name.clone());
        }
    }
    let mut best: Option<(usize, &String)> = None;
    if named.as_ref().is_some_and(BTreeSet::is_empty) {
        return Err(format!("0/{} nodes are available: pod affinity terms conflict.", nodes.len()));
    }
    // A DaemonSet pod needs one node of thousands: the others are skipped.
    let candidates: Vec<(&String, &Node)> = match &named {
        Some(named) => named.iter().filter_map(|name| nodes.get_key_value(*name)).collect(),
        None => nodes.iter().collect(),
    };
    if candidates.len() < nodes.len() {
        let others = "node(s) didn't satisfy plugin(s) [NodeAffinity]".to_owned();
        reasons.insert(others, nodes.len() - candidates.len());
    }
    for (name, node) in candidates {
        let pods = load.of(name);
        match refusal(pod, node, pods) {
            Some(reason) => *reasons.entry(reason).or_default() += 1,
            None if best.is_none_or(|best| (pods, name) < best) => best = Some((pods, name)),
            None => {}
        }
    }
    match best {
        Some((_, name)) => Ok(name.clone()),
        None => {
            let mut counted: Vec<String> =
                reasons.iter().map(|(why, count)| format!("{count} {why}")).collect();
            counted.sort();
            Err(format!("0/{} nodes are available: {}.", nodes.len(), counted.join(", ")))
        }
    }
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

/// Why `node` cannot take the pod; the first reason only, as kube-scheduler's filters stop there too.
fn refusal(pod: &Pod, node: &Node, pods: usize) -> Option<String> {
    let spec = node.spec.as_ref();
    let tolerations = pod.spec.tolerations.as_deref().unwrap_or_default();
    if spec.is_some_and(|spec| spec.unschedulable == Some(true))
        && !tolerations.iter().any(|t| tolerates(t, &cordoned()))
    {
        return Some("node(s) were unschedulable".to_owned());
    }
    for taint in spec.and_then(|spec| spec.taints.as_deref()).unwrap_or_default() {
        if taint.effect != "PreferNoSchedule" && !tolerations.iter().any(|t| tolerates(t, taint)) {
            let value = taint.value.as_deref().unwrap_or_default();
            return Some(format!("node(s) had untolerated taint {{{}: {value}}}", taint.key));
        }
    }
    if !selects(pod, node) {
        return Some("node(s) didn't match Pod's node affinity/selector".to_owned());
    }
    let room = node
        .status
        .as_ref()
        .and_then(|status| status.allocatable.as_ref().or(status.capacity.as_ref()))
        .and_then(|resources| resources.get("pods")?.0.parse::<usize>().ok());
    room.is_some_and(|room| pods >= room).then(|| "Too many pods".to_owned())
}

/// The taint that a cordoned node carries in a real cluster.
fn cordoned() -> Taint {
    Taint {
        key: "node.kubernetes.io/unschedulable".to_owned(),
        effect: "NoSchedule".to_owned(),
        ..Taint::default()
    }
}

/// Whether a toleration covers a taint (upstream's `Toleration.ToleratesTaint`).
pub(crate) fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = toleration.effect.as_deref().unwrap_or_default();
    let key = toleration.key.as_deref().unwrap_or_default();
    let exists = toleration.operator.as_deref() == Some("Exists");
    (effect.is_empty() || effect == taint.effect)
        && (key == taint.key || (key.is_empty() && exists))
        && (exists
            || toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default())
}

fn selects(pod: &Pod, node: &Node) -> bool {
    let empty = BTreeMap::new();
    let labels = node.metadata.labels.as_ref().unwrap_or(&empty);
    let selector = pod.spec.node_selector.as_ref().unwrap_or(&empty);
    if !selector.iter().all(|(key, value)| labels.get(key) == Some(value)) {
        return false;
    }
    let required = pod
        .spec
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref())
        .and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    let name = node.metadata.name.as_deref().unwrap_or_default();
    required.is_none_or(|required| {
        required.node_selector_terms.iter().any(|term| term_matches(term, labels, name))
    })
}

/// The requirements of a term are all needed; a term without any matches nothing.
fn term_matches(term: &NodeSelectorTerm, labels: &BTreeMap<String, String>, name: &str) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    if expressions.is_empty() && fields.is_empty() {
        return false;
    }
    expressions.iter().all(|r| requirement_matches(r, labels.get(&r.key).map(String::as_str)))
        && fields.iter().all(|r| r.key == "metadata.name" && requirement_matches(r, Some(name)))
}

fn requirement_matches(requirement: &NodeSelectorRequirement, actual: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let listed = |actual: &str| values.iter().any(|value| value == actual);
    let compare = |than: fn(i64, i64) -> bool| {
        let bound = values.first().and_then(|value| value.parse::<i64>().ok());
        let actual = actual.and_then(|actual| actual.parse::<i64>().ok());
        matches!((actual, bound), (Some(actual), Some(bound)) if than(actual, bound))
    };
    match requirement.operator.as_str() {
        "In" => actual.is_some_and(listed),
        "NotIn" => !actual.is_some_and(listed),
        "Exists" => actual.is_some(),
        "DoesNotExist" => actual.is_none(),
        "Gt" => compare(|actual, bound| actual > bound),
        "Lt" => compare(|actual, bound| actual < bound),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn nodes(values: &[Value]) -> BTreeMap<String, Node> {
        values
            .iter()
            .map(|value| {
                let node: Node = serde_json::from_value(value.clone()).unwrap();
                (node.metadata.name.clone().unwrap(), node)
            })
            .collect()
    }

    fn pod(spec: Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap()
    }

    /// The load of these nodes with a pod for each name in `pods`.
    fn load(nodes: &BTreeMap<String, Node>, pods: &[&str]) -> Load {
        let mut load = Load::default();
        nodes.keys().for_each(|name| load.node_added(name));
        pods.iter().for_each(|name| load.pod_added(name));
        load
    }

    fn node(name: &str) -> Value {
        json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
               "status": {"allocatable": {"pods": "2"}}})
    }

    #[test]
    fn the_node_with_the_fewest_pods_wins_and_the_first_by_name_among_equals() {
        let nodes = nodes(&[node("a"), node("b"), node("c")]);
        assert_eq!(choose(&pod(json!({})), &nodes, &load(&nodes, &["a"])).unwrap(), "b");
        assert_eq!(choose(&pod(json!({})), &nodes, &load(&nodes, &[])).unwrap(), "a");
    }

    #[test]
    fn a_node_that_comes_back_still_has_its_pods() {
        let nodes = nodes(&[node("a"), node("b")]);
        let mut load = load(&nodes, &["a", "b"]);
        load.node_removed("a");
        load.pod_added("a");
        assert_eq!(choose(&pod(json!({})), &nodes, &load).unwrap(), "b");
        load.pod_removed("a");
        load.pod_removed("a");
        load.node_added("a");
        assert_eq!(choose(&pod(json!({})), &nodes, &load).unwrap(), "a");
        assert_eq!((load.of("a"), load.of("b"), load.of("c")), (0, 1, 0));
    }

    #[test]
    fn the_reasons_of_all_unsuitable_nodes_are_counted() {
        let mut cordoned = node("a");
        cordoned["spec"] = json!({"unschedulable": true});
        let mut tainted = node("b");
        tainted["spec"] = json!({"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]});
        let nodes = nodes(&[cordoned, tainted, node("c"), node("d")]);
        let load = load(&nodes, &["c", "c", "d", "d"]);
        assert_eq!(
            choose(&pod(json!({})), &nodes, &load).unwrap_err(),
            "0/4 nodes are available: 1 node(s) had untolerated taint {gpu: yes}, \
             1 node(s) were unschedulable, 2 Too many pods."
        );
    }

    #[test]
    fn without_nodes_the_reason_is_that_there_are_none() {
        let none = BTreeMap::new();
        assert_eq!(
            choose(&pod(json!({})), &none, &Load::default()).unwrap_err(),
            "no nodes available to schedule pods"
        );
    }

    #[test]
    fn a_toleration_makes_a_tainted_node_suitable() {
        let mut tainted = node("b");
        tainted["spec"] = json!({"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]});
        let nodes = nodes(&[tainted]);
        let place = |tolerations: Value| {
            choose(&pod(json!({"tolerations": tolerations})), &nodes, &load(&nodes, &[]))
        };
        assert!(place(json!([{"key": "gpu", "operator": "Exists"}])).is_ok());
        assert!(place(json!([{"operator": "Exists"}])).is_ok());
        assert!(place(json!([{"key": "gpu", "value": "yes", "effect": "NoSchedule"}])).is_ok());
        assert!(place(json!([{"key": "gpu", "value": "no"}])).is_err());
        assert!(place(json!([{"key": "gpu", "operator": "Exists", "effect": "NoExecute"}])).is_err());
    }

    #[test]
    fn a_daemon_pod_runs_on_its_node_or_not_at_all() {
        let mut tainted = node("b");
        tainted["spec"] = json!({"unschedulable": true, "taints": [
            {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}, {"key": "gpu", "effect": "NoExecute"}]});
        let nodes = nodes(&[node("a"), tainted, node("c")]);
        let place =
            |fields: Value, tolerations: Value| {
                let terms: Vec<Value> =
                    fields
                        .as_array()
                        .unwrap()
                        .iter()
                        .map(|names| {
                            let fields: Vec<Value> = names.as_array().unwrap().iter().map(|name| {
                    json!({"key": "metadata.name", "operator": "In", "values": [name]})
                }).collect();
                            json!({"matchFields": fields})
                        })
                        .collect();
                let required =
                    json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
                let spec = json!({"affinity": {"nodeAffinity": required}, "tolerations": tolerations});
                choose(&pod(spec), &nodes, &load(&nodes, &["c"]))
            };
        assert_eq!(place(json!([["c"]]), json!([])).unwrap(), "c", "though it has more pods than another");
        assert_eq!(place(json!([["c"], ["a"]]), json!([])).unwrap(), "a");
        let cordoned = json!({"key": "node.kubernetes.io/unschedulable", "operator": "Exists"});
        assert_eq!(
            place(json!([["b"]]), json!([cordoned, {"key": "gpu", "operator": "Exists"}])).unwrap(),
            "b"
        );
        assert_eq!(
            place(json!([["b"]]), json!([cordoned])).unwrap_err(),
            "0/3 nodes are available: 1 node(s) had untolerated taint {gpu: }, 2 node(s) didn't satisfy plugin(s) \
             [NodeAffinity]."
        );
        assert_eq!(
            place(json!([["gone"]]), json!([])).unwrap_err(),
            "0/3 nodes are available: 3 node(s) didn't satisfy plugin(s) [NodeAffinity]."
        );
        assert_eq!(
            place(json!([["a", "c"]]), json!([])).unwrap_err(),
            "0/3 nodes are available: pod affinity terms conflict."
        );
    }

    #[test]
    fn required_node_affinity_is_one_of_its_terms() {
        let nodes = nodes(&[node("a"), node("b")]);
        let place = |terms: Value| {
            let required = json!({"nodeSelectorTerms": terms});
            let affinity =
                json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}});
            choose(&pod(json!({"affinity": affinity})), &nodes, &load(&nodes, &[]))
        };
        let hostname = |operator: &str, values: Value| {
            json!({"matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": operator, "values": values}]})
        };
        assert_eq!(place(json!([hostname("In", json!(["b"]))])).unwrap(), "b");
        assert_eq!(place(json!([hostname("NotIn", json!(["a"]))])).unwrap(), "b");
        assert_eq!(place(json!([hostname("In", json!(["z"])), hostname("Exists", json!([]))])).unwrap(), "a");
        assert!(place(json!([{}])).is_err());
        let field = json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]}]);
        assert_eq!(place(field).unwrap(), "b");
    }
}
