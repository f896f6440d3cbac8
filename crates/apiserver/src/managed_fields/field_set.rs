//! Sets of fields, as `metadata.managedFields` writes them (`FieldsV1`, KEP-555).

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Map, Value};

/// The key of a node that is itself a member, beside members below it.
const ITSELF: &str = ".";

/// A set of paths. A step is written as in `FieldsV1`: `f:name` for a field, `k:{"name":"web"}` for the element of a list
/// by its keys, `v:"text"` for an element of a list without repetition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldSet {
    /// Whether the path itself is in the set, and not only paths below it.
    is_member: bool,
    children: BTreeMap<String, FieldSet>,
}

impl FieldSet {
    /// Whether there is no path in it.
    pub(crate) fn is_empty(&self) -> bool {
        !self.is_member && self.children.values().all(FieldSet::is_empty)
    }

    /// Whether the path of this node is in the set.
    pub(super) fn is_member(&self) -> bool {
        self.is_member
    }

    /// The paths below a step.
    pub(super) fn below(&self, step: &str) -> Option<&FieldSet> {
        self.children.get(step)
    }

    /// Adds a path.
    pub(super) fn insert(&mut self, path: &[String]) {
        self.node(path).is_member = true;
    }

    /// Takes a path out, but none below it.
    pub(super) fn withdraw(&mut self, path: &[&str]) {
        match path.split_first() {
            None => self.is_member = false,
            Some((step, rest)) => {
                if let Some(child) = self.children.get_mut(*step) {
                    child.withdraw(rest);
                    if child.is_empty() {
                        self.children.remove(*step);
                    }
                }
            }
        }
    }

    fn node(&mut self, path: &[String]) -> &mut FieldSet {
        path.iter().fold(self, |node, step| node.children.entry(step.clone()).or_default())
    }

    /// The paths that are in either.
    pub(super) fn union(&self, other: &FieldSet) -> FieldSet {
        let mut union = self.clone();
        union.is_member |= other.is_member;
        for (step, child) in &other.children {
            let merged = union.children.get(step).map_or_else(|| child.clone(), |own| own.union(child));
            union.children.insert(step.clone(), merged);
        }
        union
    }

    /// The paths that are in both.
    pub(super) fn intersection(&self, other: &FieldSet) -> FieldSet {
        let both = |(step, child): (&String, &FieldSet)| {
            let common = child.intersection(other.children.get(step)?);
            (!common.is_empty()).then(|| (step.clone(), common))
        };
        FieldSet {
            is_member: self.is_member && other.is_member,
            children: self.children.iter().filter_map(both).collect(),
        }
    }

    /// The paths of this set that are not in the other.
    pub(super) fn difference(&self, other: &FieldSet) -> FieldSet {
        let left = |(step, child): (&String, &FieldSet)| {
            let left =
                other.children.get(step).map_or_else(|| child.clone(), |taken| child.difference(taken));
            (!left.is_empty()).then(|| (step.clone(), left))
        };
        FieldSet {
            is_member: self.is_member && !other.is_member,
            children: self.children.iter().filter_map(left).collect(),
        }
    }

    /// With the parents of all members: who owns a field of an object or of a list's element also wants the object and
    /// the element to be there.
    pub(super) fn with_parents(&self) -> FieldSet {
        let children: BTreeMap<String, FieldSet> =
            self.children.iter().map(|(step, child)| (step.clone(), child.with_parents())).collect();
        FieldSet { is_member: self.is_member || children.values().any(|child| child.is_member), children }
    }

    /// Every path as users know it, `.spec.template.spec.containers[name="web"].image`, with the fields of an object before
    /// the fields of its fields.
    pub(crate) fn paths(&self) -> Vec<String> {
        let mut found = Vec::new();
        self.collect(&mut String::new(), &mut found);
        found
    }

    fn collect(&self, path: &mut String, found: &mut Vec<String>) {
        let length = path.len();
        for (step, child) in &self.children {
            show(step, path);
            found.extend(child.is_member.then(|| path.clone()));
            path.truncate(length);
        }
        for (step, child) in &self.children {
            show(step, path);
            child.collect(path, found);
            path.truncate(length);
        }
    }

    /// As `FieldsV1`.
    pub(crate) fn to_value(&self) -> Value {
        let mut map = Map::new();
        if self.is_member && !self.children.is_empty() {
            map.insert(ITSELF.to_owned(), Value::Object(Map::new()));
        }
        map.extend(self.children.iter().map(|(step, child)| (step.clone(), child.to_value())));
        Value::Object(map)
    }

    /// From `FieldsV1`; `None` where it is none.
    pub(crate) fn from_value(value: &Value) -> Option<FieldSet> {
        let mut set = Self::node_from(value)?;
        // An empty set, and no member without a path.
        set.is_member = false;
        Some(set)
    }

    fn node_from(value: &Value) -> Option<FieldSet> {
        let map = value.as_object()?;
        let mut node =
            FieldSet { is_member: map.is_empty() || map.contains_key(ITSELF), children: BTreeMap::new() };
        for (step, child) in map.iter().filter(|(step, _)| *step != ITSELF) {
            if !["f:", "k:", "v:", "i:"].iter().any(|prefix| step.starts_with(prefix)) {
                return None;
            }
            node.children.insert(step.clone(), Self::node_from(child)?);
        }
        Some(node)
    }
}

/// Writes a step as it stands in a message.
/// Adds a step to a path as clients are told it.
pub(super) fn show(step: &str, path: &mut String) {
    let (prefix, rest) = step.split_at_checked(2).unwrap_or(("", step));
    // Writing to a string cannot fail.
    let _written = match prefix {
        "f:" => write!(path, ".{rest}"),
        "k:" => match serde_json::from_str(rest) {
            Ok(Value::Object(keys)) => {
                let keys: Vec<String> = keys.iter().map(|(key, value)| format!("{key}={value}")).collect();
                write!(path, "[{}]", keys.join(","))
            }
            _ => write!(path, "[{rest}]"),
        },
        "v:" => write!(path, "[={rest}]"),
        _ => write!(path, "[{rest}]"),
    };
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(value: Value) -> FieldSet {
        FieldSet::from_value(&value).unwrap()
    }

    #[test]
    fn a_set_survives_being_written_and_read() {
        let fields = json!({"f:spec": {"f:replicas": {}, "f:containers": {"k:{\"name\":\"a\"}": {".": {}, "f:image": {}}}}});
        assert_eq!(set(fields.clone()).to_value(), fields);
        assert!(set(json!({})).is_empty());
        assert_eq!(FieldSet::from_value(&json!({"spec": {}})), None);
        assert_eq!(FieldSet::from_value(&json!({"f:spec": 1})), None);
    }

    #[test]
    fn paths_are_shown_as_users_know_them() {
        let fields = set(
            json!({"f:spec": {"f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {"f:name": {}}},
            "f:finalizers": {"v:\"a/b\"": {}}}}),
        );
        let expected = [".spec.finalizers[=\"a/b\"]", ".spec.ports[containerPort=80,protocol=\"TCP\"].name"];
        assert_eq!(fields.paths(), expected);
        let fields = set(json!({"f:containers": {"f:env": {"f:name": {}}, "f:image": {}}, "f:replicas": {}}));
        assert_eq!(fields.paths(), [".replicas", ".containers.image", ".containers.env.name"]);
    }

    #[test]
    fn sets_are_combined_by_their_members() {
        let ours = set(json!({"f:a": {}, "f:b": {".": {}, "f:c": {}}}));
        let theirs = set(json!({"f:b": {"f:c": {}, "f:d": {}}}));
        assert_eq!(ours.difference(&theirs), set(json!({"f:a": {}, "f:b": {}})));
        assert_eq!(ours.intersection(&theirs), set(json!({"f:b": {"f:c": {}}})));
        assert_eq!(ours.union(&theirs), set(json!({"f:a": {}, "f:b": {".": {}, "f:c": {}, "f:d": {}}})));
    }
}
