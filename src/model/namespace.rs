//! A namespace: whether it is being deleted, and what its deletion waits for.

use serde::Deserialize;

use super::condition::{self, Condition, ConditionWire};
use super::intern::Interner;
use super::meta::Meta;
use super::record::{self, Record, Resource};
use super::texts::Texts;
use super::wire::{MetaWire, Text, texts};

/// The token in `spec.finalizers` that the namespace controller removes when the namespace is empty.
pub const KUBERNETES: &str = "kubernetes";

/// The types of the conditions that the namespace controller writes, in the order in which it writes them.
pub const CONDITIONS: [&str; 5] = [
    "NamespaceDeletionDiscoveryFailure",
    "NamespaceDeletionGroupVersionParsingFailure",
    "NamespaceDeletionContentFailure",
    "NamespaceContentRemaining",
    "NamespaceFinalizersRemaining",
];

/// The fields of a namespace that the controllers use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// Metadata.
    pub meta: Meta,
    /// Whether `status.phase` is `Active`: objects can be created in it.
    pub is_active: bool,
    /// Whether `status.phase` is `Terminating`: from then on the API server creates nothing in it.
    pub is_terminating: bool,
    /// `spec.finalizers`. The namespace, and with it the name, is in use until they are gone.
    pub finalizers: Texts,
    /// `metadata.finalizers`, which belong to others.
    pub meta_finalizers: Texts,
    /// The part of the status that the namespace controller writes.
    pub status: NamespaceStatus,
}

/// The status of a namespace, as far as one controller writes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceStatus {
    /// Those of [`CONDITIONS`] that are there. Conditions of other types have other writers.
    pub conditions: Vec<Condition>,
}

impl Namespace {
    /// Whether it holds the token that the namespace controller removes.
    pub fn has_token(&self) -> bool {
        self.finalizers.iter().any(|token| token == KUBERNETES)
    }
}

#[derive(Deserialize)]
struct NamespaceWire<'a> {
    #[serde(borrow)]
    metadata: MetaWire<'a>,
    #[serde(borrow, default)]
    spec: Option<SpecWire<'a>>,
    #[serde(borrow, default)]
    status: Option<StatusWire<'a>>,
}

#[derive(Deserialize, Default)]
struct SpecWire<'a> {
    #[serde(borrow, default)]
    finalizers: Option<Vec<Text<'a>>>,
}

#[derive(Deserialize, Default)]
struct StatusWire<'a> {
    #[serde(borrow, default)]
    phase: Text<'a>,
    #[serde(borrow, default)]
    conditions: Option<Vec<ConditionWire<'a>>>,
}

impl Record for Namespace {
    const RESOURCE: Resource = Resource { group: "", version: "v1", kind: "Namespace", plural: "namespaces" };

    fn decode(json: &str, interner: &mut Interner) -> Result<Self, serde_json::Error> {
        let NamespaceWire { metadata, spec, status } = serde_json::from_str(json)?;
        let StatusWire { phase, conditions } = status.unwrap_or_default();
        let finalizers = texts(spec.unwrap_or_default().finalizers.as_deref());
        let meta_finalizers = texts(metadata.finalizers.as_deref());
        let conditions = ConditionWire::of_types(conditions, &CONDITIONS, interner);
        Ok(Namespace {
            is_active: phase.as_str() == "Active",
            is_terminating: phase.as_str() == "Terminating",
            finalizers,
            meta_finalizers,
            status: NamespaceStatus { conditions },
            meta: metadata.into_meta(interner)?,
        })
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn heap_bytes(&self) -> usize {
        record::own_bytes(self)
            + self.finalizers.heap_bytes()
            + self.meta_finalizers.heap_bytes()
            + condition::heap_bytes(&self.status.conditions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(json: &str) -> Namespace {
        Namespace::decode(json, &mut Interner::default()).unwrap()
    }

    #[test]
    fn a_namespace_that_is_being_deleted_says_what_it_waits_for() {
        let namespace = decode(
            r#"{"metadata":{"name":"shop","uid":"u","resourceVersion":"9","finalizers":["example.com/keep"],
                "deletionTimestamp":"2026-01-01T00:00:00Z"},
                "spec":{"finalizers":["example.com/other","kubernetes"]},
                "status":{"phase":"Terminating","conditions":[{"type":"Theirs","status":"True"},
                {"type":"NamespaceContentRemaining","status":"True","reason":"SomeResourcesRemain",
                "message":"m","lastTransitionTime":"2026-01-01T00:00:01Z"}]}}"#,
        );
        assert!(namespace.is_terminating && namespace.meta.is_deleting() && namespace.has_token());
        assert_eq!(namespace.finalizers.len(), 2);
        assert_eq!(namespace.meta_finalizers.iter().collect::<Vec<_>>(), ["example.com/keep"]);
        assert_eq!(namespace.status.conditions.len(), 1, "those of others are not ours to judge");
        assert_eq!(&*namespace.status.conditions[0].reason, "SomeResourcesRemain");
        assert_eq!(namespace.meta.key.to_string(), "shop");
    }

    #[test]
    fn a_namespace_without_a_phase_is_neither_active_nor_terminating() {
        let phase = |status: &str| {
            let json = format!(
                r#"{{"metadata":{{"name":"shop","uid":"u","resourceVersion":"1"}},"status":{status}}}"#
            );
            let Namespace { is_active, is_terminating, .. } = decode(&json);
            (is_active, is_terminating)
        };
        assert_eq!(phase(r#"{"phase":"Active"}"#), (true, false));
        assert_eq!(phase(r#"{"phase":"Terminating"}"#), (false, true));
        for status in [r#"{"phase":null}"#, "{}", "null"] {
            assert_eq!(phase(status), (false, false), "{status}");
        }
    }

    #[test]
    fn what_is_absent_or_null_is_empty() {
        for rest in ["", r#","spec":{},"status":{}"#, r#","spec":{"finalizers":null},"status":null"#] {
            let namespace =
                decode(&format!(r#"{{"metadata":{{"name":"a","uid":"u","resourceVersion":"1"}}{rest}}}"#));
            assert!(!namespace.is_terminating && !namespace.has_token() && !namespace.meta.is_deleting());
            assert_eq!(namespace.status, NamespaceStatus::default());
        }
    }
}
