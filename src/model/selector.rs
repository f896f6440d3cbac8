//! Label selectors, compiled once when an object is decoded.

use std::fmt;

use serde::{Deserialize, Serialize, Serializer};

use super::meta::StringMap;
use super::texts::Texts;
use super::wire::{Pairs, Text};

/// A `metav1.LabelSelector`: all requirements must hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Selector {
    #[serde(skip_serializing_if = "StringMap::is_empty")]
    match_labels: StringMap,
    #[serde(skip_serializing_if = "Expressions::is_empty")]
    match_expressions: Expressions,
    /// Why the selector can match nothing. Validation keeps such a selector out of a real API server.
    #[serde(skip)]
    defect: Option<String>,
}

/// Up to so many requirements, and values of one, keep the order in which they were written: a new ReplicaSet shows that of its
/// Deployment. More of them are sorted, so that a selector of a megabyte is judged by a search.
const KEPT_IN_ORDER: usize = 16;

/// `matchExpressions`. Above [`KEPT_IN_ORDER`] they are sorted, those of one key and operator as one, in which form they are
/// also written again. First come then those that an object without the label does not fulfil: most objects are refused by one
/// of them. So no match takes more than some steps for each label of the object, whatever the selector is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Expressions {
    /// The key of each requirement, and behind it its values: above [`KEPT_IN_ORDER`] sorted, each once.
    texts: Texts,
    requirements: Box<[Requirement]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Requirement {
    operator: Operator,
    /// The index of the key.
    key: u32,
    /// How many values there are.
    values: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
enum Operator {
    In,
    Exists,
    NotIn,
    DoesNotExist,
}

impl Operator {
    /// Whether an object without the label fulfils it.
    fn is_negative(self) -> bool {
        matches!(self, Operator::NotIn | Operator::DoesNotExist)
    }
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
                match_expressions: Expressions::default(),
                defect: Some("spec.selector is missing".into()),
            };
        };
        let mut defect = None;
        let mut requirements = Vec::new();
        for requirement in wire.match_expressions.iter().flatten() {
            let mut values: Vec<&str> = requirement.values.iter().flatten().map(Text::as_str).collect();
            if values.len() > KEPT_IN_ORDER {
                values.sort_unstable();
                values.dedup();
            }
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
            requirements.push((operator.is_negative(), requirement.key.as_str(), operator, values));
        }
        if requirements.len() > KEPT_IN_ORDER {
            requirements.sort_unstable();
            requirements = merged(&requirements);
        }
        let match_labels = wire.match_labels.0.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        Selector { match_labels, match_expressions: Expressions::of(&requirements), defect }
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
            && self.match_expressions.hold(labels)
    }

    /// The labels that an object must have with these very values, in the order of their keys.
    pub fn match_labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.match_labels.iter()
    }

    /// Whether the selector would select every object of its namespace.
    pub fn selects_everything(&self) -> bool {
        self.defect.is_none() && self.match_labels.is_empty() && self.match_expressions.is_empty()
    }

    /// Why the selector can match nothing, as text for a user.
    pub fn defect(&self) -> Option<&str> {
        self.defect.as_deref()
    }

    /// About how many bytes of heap it takes.
    pub(super) fn heap_bytes(&self) -> usize {
        let Expressions { texts, requirements } = &self.match_expressions;
        self.match_labels.heap_bytes()
            + texts.heap_bytes()
            + size_of_val(&**requirements)
            + self.defect.as_ref().map_or(0, String::len)
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
        for Expression { key, operator, values } in self.match_expressions.iter() {
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

/// A requirement as it is written.
#[derive(Serialize)]
struct Expression<'a> {
    key: &'a str,
    operator: Operator,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    values: Vec<&'a str>,
}

/// A requirement that is being compiled: whether it is negative, its key, its operator and its values.
type Compiled<'a> = (bool, &'a str, Operator, Vec<&'a str>);

/// Requirements in their order, those of one key and operator as one that means the same. An object may have any value but
/// those of all `NotIn`, and needs one of each `In`; where these exclude each other, two of them stay.
fn merged<'a>(sorted: &[Compiled<'a>]) -> Vec<Compiled<'a>> {
    let sorted_values = |mut values: Vec<&'a str>| {
        values.sort_unstable();
        values.dedup();
        values
    };
    let mut merged = Vec::new();
    for same in sorted.chunk_by(|one, other| (one.1, one.2) == (other.1, other.2)) {
        let [(is_negative, key, operator, first), rest @ ..] = same else { continue };
        if rest.is_empty() {
            merged.push((*is_negative, *key, *operator, first.clone()));
            continue;
        }
        let all = same.iter().map(|(_, _, _, values)| values);
        let values = match operator {
            Operator::In => {
                let mut lists: Vec<Vec<&str>> = all.map(|values| sorted_values(values.clone())).collect();
                // The shortest first, so that each step takes no longer than the list that it reads.
                lists.sort_by_key(Vec::len);
                let mut common = lists.first().cloned().unwrap_or_default();
                for list in &lists {
                    let both = |value: &&&str| list.binary_search(value).is_ok();
                    let left: Vec<&str> = common.iter().filter(both).copied().collect();
                    if left.is_empty() {
                        merged.push((*is_negative, *key, *operator, list.clone()));
                        break;
                    }
                    common = left;
                }
                common
            }
            Operator::NotIn => sorted_values(all.flatten().copied().collect()),
            Operator::Exists | Operator::DoesNotExist => Vec::new(),
        };
        merged.push((*is_negative, *key, *operator, values));
    }
    merged
}

impl Expressions {
    /// Packs requirements.
    fn of(all: &[Compiled<'_>]) -> Self {
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let mut next = 0;
        let requirements = all.iter().map(|(_, _, operator, values)| {
            let key = next;
            next += 1 + values.len();
            Requirement { operator: *operator, key: number(key), values: number(values.len()) }
        });
        let requirements = requirements.collect();
        let texts = all.iter().flat_map(|(_, key, _, values)| std::iter::once(key).chain(values)).collect();
        Expressions { texts, requirements }
    }

    fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    fn iter(&self) -> impl Iterator<Item = Expression<'_>> {
        self.requirements.iter().map(|requirement| {
            let first = requirement.key as usize + 1;
            let values = (first..first + requirement.values as usize).map(|at| self.texts.get(at)).collect();
            Expression { key: self.key(requirement), operator: requirement.operator, values }
        })
    }

    fn key(&self, requirement: &Requirement) -> &str {
        self.texts.get(requirement.key as usize)
    }

    /// Whether all requirements hold.
    fn hold(&self, labels: &StringMap) -> bool {
        let hold = |requirements: &[Requirement]| requirements.iter().all(|one| self.holds(one, labels));
        // Sorting may have left fewer of them, in their order.
        if self.requirements.len() <= KEPT_IN_ORDER {
            return hold(&self.requirements);
        }
        let negative = self.requirements.partition_point(|requirement| !requirement.operator.is_negative());
        let (positive, negative) = self.requirements.split_at(negative);
        if !hold(positive) {
            return false;
        }
        if negative.len() <= labels.len() {
            return hold(negative);
        }
        // Only those hold not that are about a label of the object: a selector of 1.5 MB has 40,000, an object few labels.
        labels.iter().all(|(key, _)| {
            let first = negative.partition_point(|requirement| self.key(requirement) < key);
            let same = |requirement: &&Requirement| self.key(requirement) == key;
            negative.iter().skip(first).take_while(same).all(|one| self.holds(one, labels))
        })
    }

    fn holds(&self, requirement: &Requirement, labels: &StringMap) -> bool {
        #[cfg(test)]
        tests::COMPARISONS.set(tests::COMPARISONS.get() + 1);
        let value = labels.get(self.key(requirement));
        let is_listed = |value: &str| {
            let (first, count) = (requirement.key as usize + 1, requirement.values as usize);
            if count <= KEPT_IN_ORDER {
                return (first..first + count).any(|at| self.texts.get(at) == value);
            }
            self.texts.find(value, first, 1, count).is_some()
        };
        match requirement.operator {
            Operator::In => value.is_some_and(is_listed),
            // An object without the label is not "in", so it is selected: upstream's rule.
            Operator::NotIn => !value.is_some_and(is_listed),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
        }
    }
}

impl Serialize for Expressions {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    thread_local! {
        /// How many requirements were judged.
        pub(super) static COMPARISONS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    }

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

    /// The rule of each operator in the words of the API, over the selector's JSON.
    fn plainly(expressions: &serde_json::Value, labels: &std::collections::BTreeMap<String, String>) -> bool {
        expressions.as_array().unwrap().iter().all(|one| {
            let value = labels.get(one["key"].as_str().unwrap());
            let values = one["values"].as_array().unwrap();
            let is_listed = value.is_some_and(|value| values.iter().any(|one| one == value));
            match one["operator"].as_str().unwrap() {
                "In" => is_listed,
                "NotIn" => !is_listed,
                "Exists" => value.is_some(),
                _ => value.is_none(),
            }
        })
    }

    #[test]
    fn requirements_in_any_number_and_order_are_judged_one_by_one() {
        let mut rng = fastrand::Rng::with_seed(7);
        let mut outcomes = [0, 0];
        for round in 0..3_000 {
            // Every third has more than are kept in order, of requirements and of values.
            let is_large = round % 3 == 0;
            let word = move |rng: &mut fastrand::Rng| match is_large {
                true => format!("w{}", rng.u8(..60)),
                false => rng.choice(["a", "b", "c", "d"]).unwrap().to_owned(),
            };
            let (requirements, most) = if is_large { (rng.usize(..30), 30) } else { (rng.usize(..7), 4) };
            let expressions: Vec<_> = (0..requirements)
                .map(|_| {
                    // Few objects fulfil many positive requirements.
                    let operators = ["NotIn", "NotIn", "DoesNotExist", "Exists", "In"];
                    let operator = if is_large && rng.u8(..50) > 0 {
                        *rng.choice(&operators[..3]).unwrap()
                    } else {
                        *rng.choice(&operators).unwrap()
                    };
                    let count = if operator.ends_with("In") { rng.usize(1..most) } else { 0 };
                    let values: Vec<_> = (0..count).map(|_| word(&mut rng)).collect();
                    serde_json::json!({"key": word(&mut rng), "operator": operator, "values": values})
                })
                .collect();
            let expressions = serde_json::Value::from(expressions);
            let labels = (0..rng.usize(..4)).map(|_| (word(&mut rng), word(&mut rng))).collect();
            let json = serde_json::json!({"matchExpressions": expressions}).to_string();
            let expected = plainly(&expressions, &labels);
            assert_eq!(selector(&json).matches(&labels.iter().collect()), expected, "{json} on {labels:?}");
            outcomes[usize::from(expected)] += 1;
        }
        assert!(outcomes.iter().all(|count| *count > 300), "both must come up: {outcomes:?}");
    }

    /// As many as fit into an object.
    const MANY: usize = 28_000;

    #[test]
    fn no_selector_takes_more_steps_than_an_object_has_labels() {
        let key = |at: usize| format!("k{:03}", at % 200);
        let one = |key: String, operator: &str, values: &[String]| serde_json::json!({"key": key, "operator": operator, "values": values});
        let owned = |at: usize| key(at).replace('k', "v");
        let shapes: [(&str, Vec<serde_json::Value>); 6] = [
            ("absent keys", (0..MANY).map(|at| one(format!("x{at}"), "DoesNotExist", &[])).collect()),
            ("one key", (0..MANY).map(|at| one(key(0), "NotIn", &[format!("w{at}")])).collect()),
            ("one value", (0..MANY).map(|at| one(key(0), "In", &[owned(0), format!("w{at}")])).collect()),
            ("all keys", (0..MANY).map(|at| one(key(at), "NotIn", &[format!("w{at}")])).collect()),
            ("all values", (0..MANY).map(|at| one(key(at), "In", &[owned(at), format!("w{at}")])).collect()),
            ("all of them", (0..MANY).map(|at| one(key(at), "Exists", &[])).collect()),
        ];
        for (what, mut expressions) in shapes {
            for (last, is_selected) in [("Exists", true), ("DoesNotExist", false)] {
                expressions.push(one(key(199), last, &[]));
                let json = serde_json::json!({"matchExpressions": expressions}).to_string();
                let (selector, labels) = (selector(&json), (0..200).map(|at| (key(at), owned(at))));
                let labels: Vec<(String, String)> = labels.collect();
                COMPARISONS.set(0);
                assert_eq!(
                    selector.matches(&labels.iter().map(|(k, v)| (k, v)).collect()),
                    is_selected,
                    "{what}"
                );
                let steps = COMPARISONS.get();
                assert!(steps <= 3 * labels.len(), "{what}: {steps} steps");
            }
        }
    }

    #[test]
    fn requirements_of_one_key_that_exclude_each_other_select_nothing() {
        let one = |values: &[&str]| serde_json::json!({"key": "a", "operator": "In", "values": values});
        let mut expressions = vec![one(&["x", "y"]); 20];
        expressions.extend([one(&["y", "z"]), one(&["z", "x"])]);
        let json = serde_json::json!({"matchExpressions": expressions}).to_string();
        for value in ["x", "y", "z"] {
            check(&json, &[("a", value)], false);
        }
        let written = serde_json::to_value(selector(&json)).unwrap();
        assert_eq!(written["matchExpressions"].as_array().unwrap().len(), 2, "{written}");
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
    fn a_selector_keeps_its_order_up_to_sixteen_and_is_sorted_above() {
        for count in [KEPT_IN_ORDER, KEPT_IN_ORDER + 1] {
            let written: Vec<String> = (10..10 + count).rev().map(|n| format!("v{n}")).collect();
            let mut sorted = written.clone();
            sorted.sort();
            let expected = if count <= KEPT_IN_ORDER { written.clone() } else { sorted };
            let values = serde_json::json!({"matchExpressions":
                [{"key": "k", "operator": "In", "values": written}]});
            let again = serde_json::to_value(selector(&values.to_string())).unwrap();
            assert_eq!(again["matchExpressions"][0]["values"], serde_json::json!(expected));
            let requirement = |key: &String| serde_json::json!({"key": key, "operator": "Exists"});
            let requirements: Vec<_> = written.iter().map(requirement).collect();
            let all = serde_json::json!({"matchExpressions": requirements});
            let again = serde_json::to_value(selector(&all.to_string())).unwrap();
            let expected: Vec<_> = expected.iter().map(requirement).collect();
            assert_eq!(again["matchExpressions"], serde_json::json!(expected));
        }
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
