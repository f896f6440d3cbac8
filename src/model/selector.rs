//! Label selectors, compiled once when an object is decoded.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::meta::StringMap;
use super::wire::{Pairs, Text};

/// A `metav1.LabelSelector`: all requirements must hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Selector {
    #[serde(skip_serializing_if = "StringMap::is_empty")]
    match_labels: StringMap,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    match_expressions: Vec<Requirement>,
    /// Why the selector can match nothing. Validation keeps such a selector out of a real API server.
    #[serde(skip)]
    defect: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Requirement {
    key: Arc<str>,
    operator: Operator,
    /// In the order of the wire, in which they are written again.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    values: Vec<Arc<str>>,
    /// The same to look one up: a selector may have thousands.
    #[serde(skip)]
    index: BTreeSet<Arc<str>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

/// `spec.selector` as it stands on the wire.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SelectorWire<'a> {
    #[serde(borrow, default)]
    match_labels: Pairs<'a>,
    #[serde(borrow, default)]
    match_expressions: Option<Vec<RequirementWire<'a>>>,
}

#[derive(Debug, Deserialize)]
struct RequirementWire<'a> {
    #[serde(borrow, default)]
    key: Text<'a>,
    #[serde(borrow, default)]
    operator: Text<'a>,
    #[serde(borrow, default)]
    values: Option<Vec<Text<'a>>>,
}

impl Selector {
    /// Compiles a selector. An absent one matches nothing, as the API defines it; so does one with an
    /// unknown operator, which [`Selector::defect`] then names.
    pub fn compile(wire: Option<SelectorWire<'_>>) -> Self {
        let Some(wire) = wire else {
            return Selector {
                match_labels: StringMap::default(),
                match_expressions: Vec::new(),
                defect: Some("spec.selector is missing".into()),
            };
        };
        let mut defect = None;
        let mut match_expressions = Vec::new();
        for requirement in wire.match_expressions.unwrap_or_default() {
            let values: Vec<Arc<str>> =
                requirement.values.unwrap_or_default().iter().map(|v| Arc::from(v.as_str())).collect();
            let operator = match requirement.operator.as_str() {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => {
                    defect = Some(format!("spec.selector.matchExpressions: {other:?} is not an operator"));
                    continue;
                }
            };
            if values.is_empty() == matches!(operator, Operator::In | Operator::NotIn) {
                defect = Some(format!(
                    "spec.selector.matchExpressions: {operator:?} of {:?} has the wrong number of values",
                    requirement.key.as_str()
                ));
            }
            match_expressions.push(Requirement {
                key: Arc::from(requirement.key.as_str()),
                operator,
                index: values.iter().cloned().collect(),
                values,
            });
        }
        let match_labels = wire.match_labels.0.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        Selector { match_labels, match_expressions, defect }
    }

    /// Compiles the selector of a ReplicationController, a plain map of labels. An absent one matches
    /// nothing and an empty one everything, as where a ReplicaSet's is converted from it (upstream:
    /// `Convert_v1_ReplicationControllerSpec_To_apps_ReplicaSetSpec`).
    pub fn of_labels(labels: Option<Pairs<'_>>) -> Self {
        Selector::compile(labels.map(|match_labels| SelectorWire { match_labels, match_expressions: None }))
    }

    /// Whether an object with these labels is selected.
    pub fn matches(&self, labels: &StringMap) -> bool {
        self.defect.is_none()
            && self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|requirement| requirement.holds(labels))
    }

    /// The labels that an object must have with these very values, in the order of their keys.
    pub fn match_labels(&self) -> impl Iterator<Item = &(Arc<str>, Arc<str>)> {
        self.match_labels.pairs()
    }

    /// Whether the selector would select every object of its namespace.
    pub fn selects_everything(&self) -> bool {
        self.defect.is_none() && self.match_labels.is_empty() && self.match_expressions.is_empty()
    }

    /// Why the selector can match nothing, as text for a user.
    pub fn defect(&self) -> Option<&str> {
        self.defect.as_deref()
    }

    /// The same selector with one more label to match.
    pub fn with_label(&self, key: &str, value: &str) -> Self {
        let labels = self.match_labels.iter().chain([(key, value)]).collect();
        Selector { match_labels: labels, ..self.clone() }
    }
}

/// As the query parameter `labelSelector` has it.
impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (key, value) in self.match_labels.iter() {
            write!(f, "{separator}{key}={value}")?;
            separator = ",";
        }
        for Requirement { key, operator, values, .. } in &self.match_expressions {
            f.write_str(separator)?;
            match operator {
                Operator::In => write!(f, "{key} in ({})", values.join(","))?,
                Operator::NotIn => write!(f, "{key} notin ({})", values.join(","))?,
                Operator::Exists => f.write_str(key)?,
                Operator::DoesNotExist => write!(f, "!{key}")?,
            }
            separator = ",";
        }
        Ok(())
    }
}

impl Requirement {
    fn holds(&self, labels: &StringMap) -> bool {
        let value = labels.get(&self.key);
        match self.operator {
            Operator::In => value.is_some_and(|v| self.index.contains(v)),
            // An object without the label is not "in", so it is selected: upstream's rule.
            Operator::NotIn => value.is_none_or(|v| !self.index.contains(v)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selector(json: &str) -> Selector {
        Selector::compile(serde_json::from_str(json).unwrap())
    }

    #[track_caller]
    fn check(json: &str, labels: &[(&str, &str)], selected: bool) {
        let labels = labels.iter().copied().collect();
        assert_eq!(selector(json).matches(&labels), selected, "{json} on {labels:?}");
    }

    #[test]
    fn every_requirement_must_hold() {
        let app = r#"{"matchLabels":{"app":"web"}}"#;
        check(app, &[("app", "web"), ("x", "y")], true);
        check(app, &[("app", "api")], false);
        let both = r#"{"matchLabels":{"app":"web"},"matchExpressions":[{"key":"tier","operator":"Exists"}]}"#;
        check(both, &[("app", "web")], false);
        check(both, &[("app", "web"), ("tier", "")], true);
    }

    #[test]
    fn a_selector_is_written_as_a_query_has_it() {
        let all = r#"{"matchLabels":{"app":"web","tier":""},"matchExpressions":[
            {"key":"env","operator":"In","values":["b","a"]},{"key":"zone","operator":"NotIn","values":["x"]},
            {"key":"old","operator":"DoesNotExist"},{"key":"new","operator":"Exists"}]}"#;
        assert_eq!(selector(all).to_string(), "app=web,tier=,env in (b,a),zone notin (x),!old,new");
        assert_eq!(selector(r#"{"matchExpressions":[{"key":"a","operator":"Exists"}]}"#).to_string(), "a");
    }

    #[test]
    fn expressions_follow_the_four_operators() {
        let within = r#"{"matchExpressions":[{"key":"env","operator":"In","values":["a","b"]}]}"#;
        check(within, &[("env", "b")], true);
        check(within, &[], false);
        let without = r#"{"matchExpressions":[{"key":"env","operator":"NotIn","values":["a"]}]}"#;
        check(without, &[("env", "a")], false);
        check(without, &[], true);
        let absent = r#"{"matchExpressions":[{"key":"env","operator":"DoesNotExist"}]}"#;
        check(absent, &[("env", "a")], false);
        check(absent, &[], true);
    }

    #[test]
    fn an_empty_selector_selects_everything_and_an_absent_one_nothing() {
        check("{}", &[("a", "b")], true);
        assert!(selector("{}").selects_everything());
        check("null", &[("a", "b")], false);
        assert!(!selector("null").selects_everything());
    }

    #[test]
    fn a_defective_selector_matches_nothing_and_reports_why() {
        let odd = r#"{"matchExpressions":[{"key":"env","operator":"Near","values":["a"]}]}"#;
        check(odd, &[("env", "a")], false);
        assert!(selector(odd).defect().unwrap().contains("\"Near\""));
        let hollow = r#"{"matchExpressions":[{"key":"env","operator":"In","values":[]}]}"#;
        check(hollow, &[], false);
    }

    #[test]
    fn a_selector_is_written_as_it_was_read_with_the_hash_added() {
        let read = selector(
            r#"{"matchLabels":{"app":"web"},"matchExpressions":[{"key":"e","operator":"In","values":["b","a"]}]}"#,
        );
        assert_eq!(
            serde_json::to_value(read.with_label("pod-template-hash", "abc")).unwrap(),
            serde_json::json!({
                "matchLabels": {"app": "web", "pod-template-hash": "abc"},
                "matchExpressions": [{"key": "e", "operator": "In", "values": ["b", "a"]}],
            })
        );
    }
}
