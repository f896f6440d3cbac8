//! Selectors of nodes and of pods, and tolerations of taints. Pure. A selector that no API server would take matches
//! nothing.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{Node, NodeSelectorRequirement, NodeSelectorTerm, Taint, Toleration},
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};

use crate::kubelet::record::Pod;

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

/// Whether the pod bears every taint of the node that keeps pods away.
pub(super) fn bears_taints(pod: &Pod, node: &Node) -> bool {
    let tolerations = pod.spec.tolerations.as_deref().unwrap_or_default();
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    taints
        .iter()
        .filter(|taint| taint.effect != "PreferNoSchedule")
        .all(|taint| tolerations.iter().any(|toleration| tolerates(toleration, taint)))
}

/// Whether the node has what the pod's node selector and required node affinity ask for.
pub(super) fn selects_node(pod: &Pod, node: &Node) -> bool {
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
    let compare = |than: fn(i64, i64) -> bool| {
        let bound = values.first().and_then(|value| value.parse::<i64>().ok());
        let actual = actual.and_then(|actual| actual.parse::<i64>().ok());
        matches!((actual, bound), (Some(actual), Some(bound)) if than(actual, bound))
    };
    match requirement.operator.as_str() {
        "Gt" => compare(|actual, bound| actual > bound),
        "Lt" => compare(|actual, bound| actual < bound),
        operator => operator_matches(operator, values, actual),
    }
}

/// The operators that selectors of nodes and of labels share.
fn operator_matches(operator: &str, values: &[String], actual: Option<&str>) -> bool {
    let listed = |actual: &str| values.iter().any(|value| value == actual);
    match operator {
        "In" => actual.is_some_and(listed),
        "NotIn" => !actual.is_some_and(listed),
        "Exists" => actual.is_some(),
        "DoesNotExist" => actual.is_none(),
        _ => false,
    }
}

/// Whether a selector without any requirement: it matches everything.
pub(super) fn is_empty(selector: &LabelSelector) -> bool {
    selector.match_labels.as_ref().is_none_or(BTreeMap::is_empty)
        && selector.match_expressions.as_ref().is_none_or(Vec::is_empty)
}

/// Whether the label selector matches labels, of which `label` gives the value of a key.
pub(crate) fn matches<'a>(selector: &LabelSelector, label: impl Fn(&str) -> Option<&'a str>) -> bool {
    selector.match_labels.iter().flatten().all(|(key, value)| label(key) == Some(value))
        && selector.match_expressions.iter().flatten().all(|requirement| {
            let values = requirement.values.as_deref().unwrap_or_default();
            operator_matches(&requirement.operator, values, label(&requirement.key))
        })
}
