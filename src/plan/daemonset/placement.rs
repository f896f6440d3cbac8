//! On which nodes a DaemonSet runs: its template, compiled once per generation into a predicate over nodes (upstream:
//! `NodeShouldRunDaemonPod`).
//!
//! Allocatable resources, ports, other pods and pod affinity are left to the scheduler: the pod is created and may
//! stay Pending.

use std::fmt;
use std::sync::Arc;

use serde::Deserialize;

use super::tolerations::{Toleration, automatic};
use crate::model::{DaemonSet, Effect, Node, StringMap, Taint};

/// The verdict of a DaemonSet on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// The node should run no pod: existing ones are deleted.
    Leave,
    /// An existing pod may stay, and none is created.
    Continue,
    /// The node should run a pod.
    Run,
}

/// Why a node does not run a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exclusion {
    /// The template names another node.
    NodeName(String),
    /// The node lacks a label of `nodeSelector`.
    NodeSelector {
        /// The label.
        key: String,
        /// The value that it should have.
        value: String,
    },
    /// No term of the required node affinity matches the node.
    NodeAffinity,
    /// The template does not tolerate a taint.
    Taint(Taint),
}

impl fmt::Display for Exclusion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exclusion::NodeName(node) => write!(f, "the template names node {node}"),
            Exclusion::NodeSelector { key, value } => {
                write!(f, "the node does not have the label {key}={value} of nodeSelector")
            }
            Exclusion::NodeAffinity => f.write_str("no term of the required node affinity matches the node"),
            Exclusion::Taint(Taint { key, value, effect, time_added: _ }) => {
                let sign = if value.is_empty() { "" } else { "=" };
                write!(f, "the template does not tolerate the taint {key}{sign}{value}:{}", effect.as_str())
            }
        }
    }
}

/// The compiled template.
#[derive(Clone, Debug, Default)]
pub struct Placement {
    node_name: Option<String>,
    node_selector: Vec<(String, String)>,
    /// `None` without a required node affinity. A node must match one of the terms, so that none at all match nothing.
    terms: Option<Vec<Term>>,
    tolerations: Vec<Toleration>,
}

/// All requirements of a term must hold.
#[derive(Clone, Debug)]
struct Term {
    labels: Vec<Requirement>,
    fields: Vec<FieldRequirement>,
}

#[derive(Clone, Debug)]
struct Requirement {
    key: String,
    operator: Operator,
}

#[derive(Clone, Debug)]
enum Operator {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    DoesNotExist,
    Gt(i64),
    Lt(i64),
}

#[derive(Clone, Debug)]
struct FieldRequirement {
    key: String,
    value: String,
    is_equal: bool,
}

#[derive(Default, Deserialize)]
struct TemplateWire {
    #[serde(default)]
    spec: Option<SpecWire>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SpecWire {
    #[serde(default)]
    node_name: Option<String>,
    #[serde(default)]
    node_selector: Option<std::collections::BTreeMap<String, Option<String>>>,
    #[serde(default)]
    tolerations: Option<Vec<Toleration>>,
    #[serde(default)]
    host_network: Option<bool>,
    #[serde(default)]
    affinity: Option<AffinityWire>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AffinityWire {
    #[serde(default)]
    node_affinity: Option<NodeAffinityWire>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodeAffinityWire {
    #[serde(default)]
    required_during_scheduling_ignored_during_execution: Option<NodeSelectorWire>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodeSelectorWire {
    #[serde(default)]
    node_selector_terms: Option<Vec<TermWire>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TermWire {
    #[serde(default)]
    match_expressions: Option<Vec<RequirementWire>>,
    #[serde(default)]
    match_fields: Option<Vec<RequirementWire>>,
}

#[derive(Deserialize)]
struct RequirementWire {
    #[serde(default)]
    key: Option<String>,
    #[serde(default)]
    operator: Option<String>,
    #[serde(default)]
    values: Option<Vec<String>>,
}

impl Placement {
    /// Compiles the template of a DaemonSet.
    ///
    /// # Errors
    /// When a field has a type that the API does not define, which no API server stores.
    pub fn of(daemon_set: &DaemonSet) -> Result<Self, serde_json::Error> {
        let json = daemon_set.template.json();
        let template: TemplateWire = serde_json::from_str(&json)?;
        let spec = template.spec.unwrap_or_default();
        let required = spec
            .affinity
            .and_then(|affinity| affinity.node_affinity)
            .and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution);
        let terms = required.map(|required| {
            let terms = required.node_selector_terms.unwrap_or_default();
            terms.into_iter().filter_map(TermWire::compile).collect()
        });
        let mut tolerations = spec.tolerations.unwrap_or_default();
        tolerations.extend(automatic(spec.host_network.unwrap_or(false)));
        let node_selector = spec.node_selector.unwrap_or_default().into_iter();
        Ok(Placement {
            node_name: spec.node_name.filter(|node| !node.is_empty()),
            node_selector: node_selector.map(|(key, value)| (key, value.unwrap_or_default())).collect(),
            terms,
            tolerations,
        })
    }

    /// The verdict on this node.
    pub fn verdict(&self, node: &Node) -> Verdict {
        match self.exclusion(node) {
            None => Verdict::Run,
            // The first relevant taint may be one of effect NoSchedule before one of effect NoExecute.
            Some(Exclusion::Taint(_))
                if self.untolerated(node, |effect| effect == Effect::NoExecute).is_none() =>
            {
                Verdict::Continue
            }
            Some(_) => Verdict::Leave,
        }
    }

    /// Why no pod should run on this node; `None` if one should.
    pub fn exclusion(&self, node: &Node) -> Option<Exclusion> {
        let (name, labels) = (&*node.meta.key.name, &*node.meta.labels);
        if let Some(wanted) = self.node_name.as_deref().filter(|wanted| *wanted != name) {
            return Some(Exclusion::NodeName(wanted.to_owned()));
        }
        let lacking = self.node_selector.iter().find(|(key, value)| labels.get(key) != Some(value));
        if let Some((key, value)) = lacking {
            return Some(Exclusion::NodeSelector { key: key.clone(), value: value.clone() });
        }
        if self.terms.as_ref().is_some_and(|terms| !terms.iter().any(|term| term.matches(name, labels))) {
            return Some(Exclusion::NodeAffinity);
        }
        let keeps_away = |effect| matches!(effect, Effect::NoSchedule | Effect::NoExecute);
        self.untolerated(node, keeps_away).map(|taint| Exclusion::Taint(taint.clone()))
    }

    fn untolerated<'n>(&self, node: &'n Node, counts: impl Fn(Effect) -> bool) -> Option<&'n Taint> {
        let counted = node.taints.iter().filter(|taint| counts(taint.effect));
        counted
            .into_iter()
            .find(|taint| !self.tolerations.iter().any(|toleration| toleration.tolerates(taint)))
    }
}

impl TermWire {
    /// `None` for a term that matches nothing: an empty one, or one that does not parse. The others still count.
    fn compile(self) -> Option<Term> {
        let (labels, fields) =
            (self.match_expressions.unwrap_or_default(), self.match_fields.unwrap_or_default());
        if labels.is_empty() && fields.is_empty() {
            return None;
        }
        Some(Term {
            labels: labels.into_iter().map(RequirementWire::compile).collect::<Option<_>>()?,
            fields: fields.into_iter().map(RequirementWire::compile_field).collect::<Option<_>>()?,
        })
    }
}

impl RequirementWire {
    fn compile(self) -> Option<Requirement> {
        let values = self.values.unwrap_or_default();
        let operator = match (self.operator.as_deref(), &values[..]) {
            (Some("In" | "NotIn"), []) => return None,
            (Some("In" | "NotIn"), values) if !values.iter().all(|value| is_label_value(value)) => {
                return None;
            }
            (Some("In"), _) => Operator::In(values),
            (Some("NotIn"), _) => Operator::NotIn(values),
            (Some("Exists"), []) => Operator::Exists,
            (Some("DoesNotExist"), []) => Operator::DoesNotExist,
            (Some("Gt"), [value]) => Operator::Gt(value.parse().ok()?),
            (Some("Lt"), [value]) => Operator::Lt(value.parse().ok()?),
            _ => return None,
        };
        Some(Requirement { key: self.key.unwrap_or_default(), operator })
    }

    fn compile_field(self) -> Option<FieldRequirement> {
        let is_equal = match self.operator.as_deref() {
            Some("In") => true,
            Some("NotIn") => false,
            _ => return None,
        };
        let mut values = self.values.unwrap_or_default();
        let value = values.pop().filter(|_| values.is_empty())?;
        Some(FieldRequirement { key: self.key.unwrap_or_default(), value, is_equal })
    }
}

impl Term {
    fn matches(&self, name: &str, labels: &StringMap) -> bool {
        let field = |field: &FieldRequirement| {
            // The only field that exists; others are empty.
            let actual = if field.key == "metadata.name" { name } else { "" };
            (actual == field.value) == field.is_equal
        };
        self.labels.iter().all(|requirement| requirement.holds(labels)) && self.fields.iter().all(field)
    }
}

impl Requirement {
    fn holds(&self, labels: &StringMap) -> bool {
        let value = labels.get(&self.key);
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        let is_one_of = |values: &[String], value: &str| values.iter().any(|v| v == value);
        match &self.operator {
            Operator::In(values) => value.is_some_and(|value| is_one_of(values, value)),
            Operator::NotIn(values) => value.is_none_or(|value| !is_one_of(values, value)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::Gt(bound) => number().is_some_and(|number| number > *bound),
            Operator::Lt(bound) => number().is_some_and(|number| number < *bound),
        }
    }
}

/// Whether a label may have this value. A requirement with another one does not parse.
fn is_label_value(value: &str) -> bool {
    let bytes = value.as_bytes();
    let is_end = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_alphanumeric);
    bytes.len() <= 63
        && is_end(bytes.first())
        && is_end(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

/// A DaemonSet's verdicts on all nodes: kept between syncs, and updated by node events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdicts(Vec<(Arc<str>, Verdict)>);

impl Verdicts {
    /// Judges all nodes, as after an edit of the template.
    pub fn of<'n>(placement: &Placement, nodes: impl IntoIterator<Item = &'n Node>) -> Self {
        let judge = |node: &Node| (node.meta.key.name.clone(), placement.verdict(node));
        let mut all: Vec<(Arc<str>, Verdict)> = nodes.into_iter().map(judge).collect();
        all.sort_unstable();
        all.dedup_by(|later, first| later.0 == first.0);
        Verdicts(all)
    }

    /// Judges one node that was added or has changed. Returns whether the DaemonSet must be synced.
    pub fn update(&mut self, placement: &Placement, node: &Node) -> bool {
        let (name, verdict) = (&node.meta.key.name, placement.verdict(node));
        match self.at(name) {
            Ok(at) => {
                let known = self.0.get_mut(at).map(|(_, known)| std::mem::replace(known, verdict));
                known != Some(verdict)
            }
            Err(at) => {
                self.0.insert(at, (name.clone(), verdict));
                verdict == Verdict::Run
            }
        }
    }

    /// Removes a deleted node. Returns the verdict on it.
    pub fn remove(&mut self, node: &str) -> Option<Verdict> {
        self.at(node).ok().map(|at| self.0.remove(at).1)
    }

    /// The verdict on a node; `None` for one that does not exist.
    pub fn get(&self, node: &str) -> Option<Verdict> {
        self.at(node).ok().and_then(|at| self.0.get(at)).map(|(_, verdict)| *verdict)
    }

    /// All nodes, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &(Arc<str>, Verdict)> {
        self.0.iter()
    }

    fn at(&self, node: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(name, _)| (**name).cmp(node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Interner, Record};
    use serde_json::{Value, json};

    fn placement(spec: Value) -> Placement {
        let json = json!({
            "metadata": {"name": "agent", "namespace": "ops", "uid": "u", "resourceVersion": "1"},
            "spec": {"template": {"spec": spec}}
        });
        Placement::of(&DaemonSet::decode(&json.to_string(), &mut Interner::default()).unwrap()).unwrap()
    }

    fn node(labels: Value, taints: &[&str]) -> Node {
        let taint = |text: &&str| {
            let (pair, effect) = text.rsplit_once(':').unwrap();
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            json!({"key": key, "value": value, "effect": effect})
        };
        let taints: Vec<Value> = taints.iter().map(taint).collect();
        let json = json!({
            "metadata": {"name": "n1", "uid": "u", "resourceVersion": "1", "labels": labels},
            "spec": {"taints": taints}
        });
        Node::decode(&json.to_string(), &mut Interner::default()).unwrap()
    }

    #[track_caller]
    fn check(spec: Value, labels: Value, taints: &[&str], expected: Verdict) {
        let (placement, node) = (placement(spec.clone()), node(labels, taints));
        assert_eq!(placement.verdict(&node), expected, "{spec} on {node:?}");
        assert_eq!(placement.exclusion(&node).is_none(), expected == Verdict::Run);
    }

    fn affinity(terms: Value) -> Value {
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": terms}}}})
    }

    use Verdict::{Continue, Leave, Run};

    #[test]
    fn a_template_without_rules_runs_on_every_node_that_is_not_tainted() {
        check(json!({}), json!({}), &[], Run);
        check(
            json!({"nodeName": "", "nodeSelector": null, "affinity": null, "tolerations": null}),
            json!({}),
            &[],
            Run,
        );
    }

    #[test]
    fn a_node_name_keeps_the_pod_away_from_all_other_nodes() {
        check(json!({"nodeName": "n1"}), json!({}), &[], Run);
        check(json!({"nodeName": "n2"}), json!({}), &[], Leave);
        check(json!({"nodeName": "n2"}), json!({}), &["a:NoSchedule"], Leave);
    }

    #[test]
    fn node_selector_and_affinity_must_both_match() {
        let both = |zone: &str| {
            let mut spec =
                affinity(json!([{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]));
            spec["nodeSelector"] = json!({"disk": "ssd"});
            (spec, json!({"disk": "ssd", "zone": zone}))
        };
        let (spec, labels) = both("a");
        check(spec, labels, &[], Run);
        let (spec, labels) = both("b");
        check(spec.clone(), labels, &[], Leave);
        check(spec, json!({"zone": "a"}), &[], Leave);
        check(json!({"nodeSelector": {"disk": ""}}), json!({}), &[], Leave);
        check(json!({"nodeSelector": {"disk": ""}}), json!({"disk": ""}), &[], Run);
    }

    #[test]
    fn a_node_that_stops_matching_loses_its_pod_and_one_that_is_tainted_no_schedule_keeps_it() {
        check(json!({}), json!({}), &["a=b:NoSchedule"], Continue);
        check(json!({}), json!({}), &["a=b:NoExecute"], Leave);
        check(json!({}), json!({}), &["a:NoSchedule", "b:NoExecute"], Leave);
        check(json!({}), json!({}), &["a:PreferNoSchedule", "b:Later"], Run);
    }

    #[test]
    fn the_automatic_tolerations_cover_what_the_node_lifecycle_controller_sets_but_for_no_schedule_of_a_dead_node()
     {
        for taint in [
            "node.kubernetes.io/not-ready:NoExecute",
            "node.kubernetes.io/unreachable:NoExecute",
            "node.kubernetes.io/disk-pressure:NoSchedule",
            "node.kubernetes.io/memory-pressure:NoSchedule",
            "node.kubernetes.io/pid-pressure:NoSchedule",
            "node.kubernetes.io/unschedulable:NoSchedule",
        ] {
            check(json!({}), json!({}), &[taint], Run);
        }
        check(json!({}), json!({}), &["node.kubernetes.io/not-ready:NoSchedule"], Continue);
        check(json!({}), json!({}), &["node.kubernetes.io/unreachable:NoSchedule"], Continue);
        check(json!({}), json!({}), &["node.kubernetes.io/network-unavailable:NoSchedule"], Continue);
        check(
            json!({"hostNetwork": true}),
            json!({}),
            &["node.kubernetes.io/network-unavailable:NoSchedule"],
            Run,
        );
    }

    #[test]
    fn terms_are_alternatives_and_all_requirements_of_a_term_must_hold() {
        let spec = affinity(json!([
            {"matchExpressions": [{"key": "a", "operator": "Exists"}, {"key": "b", "operator": "DoesNotExist"}]},
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}],
             "matchExpressions": [{"key": "c", "operator": "NotIn", "values": ["x"]}]},
        ]));
        check(spec.clone(), json!({"a": "1"}), &[], Run);
        check(spec.clone(), json!({"a": "1", "b": "", "c": "x"}), &[], Leave);
        check(spec, json!({"c": "y"}), &[], Run);
    }

    #[track_caller]
    fn check_expression(operator: &str, values: Value, label: Option<&str>, runs: bool) {
        let terms = json!([{"matchExpressions": [{"key": "k", "operator": operator, "values": values}]}]);
        let labels = label.map_or(json!({}), |label| json!({"k": label}));
        check(affinity(terms), labels, &[], if runs { Run } else { Leave });
    }

    #[test]
    fn operators_follow_the_scheduler() {
        check_expression("In", json!(["a", "b"]), Some("b"), true);
        check_expression("In", json!(["a"]), None, false);
        check_expression("NotIn", json!(["a"]), Some("a"), false);
        check_expression("NotIn", json!(["a"]), None, true);
        check_expression("Exists", json!([]), Some(""), true);
        check_expression("DoesNotExist", json!(null), None, true);
        check_expression("Gt", json!(["5"]), Some("6"), true);
        check_expression("Gt", json!(["5"]), Some("5"), false);
        check_expression("Lt", json!(["-1"]), Some("-2"), true);
        check_expression("Lt", json!(["5"]), None, false);
        check_expression("Gt", json!(["5"]), Some("many"), false);
        check_expression("Gt", json!(["9223372036854775807"]), Some("9223372036854775807"), false);
    }

    #[test]
    fn a_term_that_is_empty_or_does_not_parse_matches_nothing_and_the_others_still_count() {
        check_expression("Gt", json!(["many"]), Some("6"), false);
        check_expression("Gt", json!(["1", "2"]), Some("6"), false);
        check_expression("Lt", json!(["9223372036854775808"]), Some("6"), false);
        check_expression("Near", json!(["1"]), Some("1"), false);
        check_expression("NotIn", json!([]), None, false);
        check_expression("NotIn", json!(["no label value"]), None, false);
        check_expression("Exists", json!(["a"]), Some("a"), false);
        check(affinity(json!([])), json!({}), &[], Leave);
        check(affinity(json!(null)), json!({}), &[], Leave);
        check(affinity(json!([{}])), json!({}), &[], Leave);
        let good = json!({"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n2"]}]});
        check(affinity(json!([{}, good])), json!({}), &[], Run);
        for values in [json!([]), json!(["n1", "n2"]), json!(null)] {
            let field =
                json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": values}]}]);
            check(affinity(field), json!({}), &[], Leave);
        }
    }

    #[test]
    fn preferred_terms_are_ignored() {
        let preferred = json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution":
            [{"weight": 1, "preference": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}]}}});
        check(preferred, json!({}), &[], Run);
    }

    #[test]
    fn an_exclusion_names_the_label_or_the_taint() {
        let said = |spec: Value, taints: &[&str]| {
            placement(spec).exclusion(&node(json!({}), taints)).unwrap().to_string()
        };
        assert_eq!(
            said(json!({"nodeSelector": {"disk": "ssd"}}), &[]),
            "the node does not have the label disk=ssd of nodeSelector"
        );
        assert_eq!(
            said(json!({}), &["a=b:NoSchedule"]),
            "the template does not tolerate the taint a=b:NoSchedule"
        );
        assert_eq!(said(json!({}), &["a:NoExecute"]), "the template does not tolerate the taint a:NoExecute");
        assert_eq!(said(json!({"nodeName": "n7"}), &[]), "the template names node n7");
    }

    #[test]
    fn a_node_event_changes_one_verdict_and_returns_whether_the_daemon_set_is_affected() {
        let placement = placement(json!({}));
        let named = |name: &str, taints: &[&str]| {
            let mut node = node(json!({}), taints);
            node.meta.key.name = name.into();
            node
        };
        let all = [named("n2", &["a:NoSchedule"]), named("n1", &[])];
        let mut verdicts = Verdicts::of(&placement, &all);
        assert_eq!(
            (verdicts.get("n1"), verdicts.get("n2"), verdicts.get("n3")),
            (Some(Run), Some(Continue), None)
        );
        assert!(!verdicts.update(&placement, &named("n1", &["a:PreferNoSchedule"])));
        assert!(verdicts.update(&placement, &named("n1", &["a:NoSchedule"])), "the status changes");
        assert!(verdicts.update(&placement, &named("n3", &[])));
        assert!(!verdicts.update(&placement, &named("n0", &["a:NoExecute"])), "a new node without a pod");
        assert_eq!(
            verdicts,
            Verdicts::of(
                &placement,
                &[
                    named("n0", &["a:NoExecute"]),
                    named("n1", &["a:NoSchedule"]),
                    all[0].clone(),
                    named("n3", &[]),
                ]
            )
        );
        assert_eq!((verdicts.remove("n3"), verdicts.remove("n3")), (Some(Run), None));
    }
}
