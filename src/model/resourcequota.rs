//! A ResourceQuota: the amounts that the objects of its namespace may use, and what they use.

use serde::Deserialize;

use super::intern::Interner;
use super::meta::{Meta, StringMap};
use super::record::{self, Record, Resource};
use super::wire::{MetaWire, Pairs, Text};

/// The fields of a ResourceQuota that the controllers use. Quantities are kept as they are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceQuota {
    /// Metadata.
    pub meta: Meta,
    /// `spec.hard`.
    pub hard: StringMap,
    /// `spec.scopes` and `spec.scopeSelector`: an object counts if it is in all of them.
    pub scopes: Box<[ScopeRequirement]>,
    /// `status.hard`.
    pub status_hard: StringMap,
    /// `status.used`.
    pub status_used: StringMap,
}

/// A scope that objects are in or not.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ScopeRequirement {
    /// The scope.
    pub scope: Scope,
    /// How the values of an object are compared.
    pub operator: Operator,
    /// With these; `None` for none.
    pub values: Option<Box<[Box<str>]>>,
}

/// A scope of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Pods with a deadline.
    Terminating,
    /// Pods without one.
    NotTerminating,
    /// Pods whose quality of service is that.
    BestEffort,
    /// The other pods.
    NotBestEffort,
    /// Pods by their class.
    PriorityClass,
    /// Pods with affinity to pods of other namespaces.
    CrossNamespacePodAffinity,
    /// Claims by their classes of attributes.
    VolumeAttributesClass,
    /// One that this version does not know: no object is in it.
    Unknown,
}

/// How a scope compares values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operator {
    /// The object has one of the values.
    In,
    /// It has none of them.
    NotIn,
    /// It has a value.
    Exists,
    /// It has no value.
    DoesNotExist,
    /// One that this version does not know: no object fulfils it.
    Unknown,
}

impl Scope {
    fn read(text: &str) -> Self {
        match text {
            "Terminating" => Scope::Terminating,
            "NotTerminating" => Scope::NotTerminating,
            "BestEffort" => Scope::BestEffort,
            "NotBestEffort" => Scope::NotBestEffort,
            "PriorityClass" => Scope::PriorityClass,
            "CrossNamespacePodAffinity" => Scope::CrossNamespacePodAffinity,
            "VolumeAttributesClass" => Scope::VolumeAttributesClass,
            _ => Scope::Unknown,
        }
    }
}

impl Operator {
    fn read(text: &str) -> Self {
        match text {
            "In" => Operator::In,
            "NotIn" => Operator::NotIn,
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            _ => Operator::Unknown,
        }
    }
}

#[derive(Deserialize)]
struct QuotaWire<'a> {
    #[serde(borrow)]
    metadata: MetaWire<'a>,
    #[serde(borrow, default)]
    spec: Option<SpecWire<'a>>,
    #[serde(borrow, default)]
    status: Option<StatusWire<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SpecWire<'a> {
    #[serde(borrow, default)]
    hard: Pairs<'a>,
    #[serde(borrow, default)]
    scopes: Option<Vec<Text<'a>>>,
    #[serde(borrow, default)]
    scope_selector: Option<SelectorWire<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SelectorWire<'a> {
    #[serde(borrow, default)]
    match_expressions: Option<Vec<RequirementWire<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RequirementWire<'a> {
    #[serde(borrow, default)]
    scope_name: Text<'a>,
    #[serde(borrow, default)]
    operator: Text<'a>,
    #[serde(borrow, default)]
    values: Option<Vec<Text<'a>>>,
}

#[derive(Default, Deserialize)]
struct StatusWire<'a> {
    #[serde(borrow, default)]
    hard: Pairs<'a>,
    #[serde(borrow, default)]
    used: Pairs<'a>,
}

fn map(pairs: &Pairs<'_>) -> StringMap {
    pairs.0.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect()
}

impl SpecWire<'_> {
    fn scopes(&self) -> Box<[ScopeRequirement]> {
        let named = self.scopes.iter().flatten().map(|scope| ScopeRequirement {
            scope: Scope::read(scope.as_str()),
            operator: Operator::Exists,
            values: None,
        });
        let selector = self.scope_selector.iter().flat_map(|selector| selector.match_expressions.iter());
        let selected = selector.flatten().map(|requirement| {
            let values: Vec<Box<str>> =
                requirement.values.iter().flatten().map(|value| value.as_str().into()).collect();
            ScopeRequirement {
                scope: Scope::read(requirement.scope_name.as_str()),
                operator: Operator::read(requirement.operator.as_str()),
                values: (!values.is_empty()).then(|| values.into()),
            }
        });
        let mut all: Vec<ScopeRequirement> = named.chain(selected).collect();
        // An object is in all of them, in whichever order.
        all.sort_unstable();
        all.dedup();
        all.into()
    }
}

impl Record for ResourceQuota {
    const RESOURCE: Resource =
        Resource { group: "", version: "v1", kind: "ResourceQuota", plural: "resourcequotas" };

    fn decode(json: &str, interner: &mut Interner) -> Result<Self, serde_json::Error> {
        let QuotaWire { metadata, spec, status } = serde_json::from_str(json)?;
        let (spec, status) = (spec.unwrap_or_default(), status.unwrap_or_default());
        Ok(ResourceQuota {
            hard: map(&spec.hard),
            scopes: spec.scopes(),
            status_hard: map(&status.hard),
            status_used: map(&status.used),
            meta: metadata.into_meta(interner)?,
        })
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn heap_bytes(&self) -> usize {
        let values = |requirement: &ScopeRequirement| {
            let values = requirement.values.iter().flatten();
            values.map(|value| size_of_val(value) + value.len()).sum::<usize>()
        };
        record::own_bytes(self)
            + self.hard.heap_bytes()
            + self.status_hard.heap_bytes()
            + self.status_used.heap_bytes()
            + self.scopes.iter().map(|scope| size_of_val(scope) + values(scope)).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(rest: &str) -> ResourceQuota {
        let json = format!(
            r#"{{"metadata":{{"name":"q","namespace":"shop","uid":"u","resourceVersion":"7"}},{rest}}}"#
        );
        ResourceQuota::decode(&json, &mut Interner::default()).unwrap()
    }

    #[test]
    fn a_quota_is_read_with_its_scopes_and_its_status() {
        let quota = decode(
            r#""spec":{"hard":{"pods":"4","cpu":"1"},"scopes":["NotBestEffort","NotBestEffort"],"scopeSelector":
                {"matchExpressions":[{"scopeName":"PriorityClass","operator":"In","values":["high","low"]}]}},
                "status":{"hard":{"pods":"4"},"used":{"pods":"2"}}"#,
        );
        assert_eq!(quota.hard.iter().collect::<Vec<_>>(), [("cpu", "1"), ("pods", "4")]);
        assert_eq!((quota.status_hard.get("pods"), quota.status_used.get("pods")), (Some("4"), Some("2")));
        let values: Box<[Box<str>]> = ["high".into(), "low".into()].into();
        let expected = [
            ScopeRequirement { scope: Scope::NotBestEffort, operator: Operator::Exists, values: None },
            ScopeRequirement { scope: Scope::PriorityClass, operator: Operator::In, values: Some(values) },
        ];
        assert_eq!(*quota.scopes, expected);
    }

    #[test]
    fn a_quota_without_anything_is_read_and_unknown_scopes_are_kept() {
        for rest in [r#""spec":null,"status":null"#, r#""spec":{"hard":null,"scopes":null}"#, r#""kind":"x""#]
        {
            let quota = decode(rest);
            assert!(quota.hard.is_empty() && quota.scopes.is_empty() && quota.status_used.is_empty());
        }
        let odd =
            decode(r#""spec":{"scopes":["Odd"],"scopeSelector":{"matchExpressions":[{"operator":"Odd"}]}}"#);
        let scopes: Vec<_> = odd.scopes.iter().map(|it| (it.scope, it.operator)).collect();
        assert_eq!(scopes, [(Scope::Unknown, Operator::Exists), (Scope::Unknown, Operator::Unknown)]);
    }
}
