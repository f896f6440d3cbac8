//! A Namespace, as far as objects are created in it.

use serde::Deserialize;

use super::intern::Interner;
use super::meta::Meta;
use super::record::{Record, Resource};
use super::wire::{MetaWire, Text};

/// What the controllers know of a Namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// Metadata.
    pub meta: Meta,
    /// Whether `status.phase` is `Active`: objects can be created in it.
    pub is_active: bool,
}

#[derive(Deserialize)]
struct NamespaceWire<'a> {
    #[serde(borrow)]
    metadata: MetaWire<'a>,
    #[serde(borrow, default)]
    status: Option<StatusWire<'a>>,
}

#[derive(Default, Deserialize)]
struct StatusWire<'a> {
    #[serde(borrow, default)]
    phase: Text<'a>,
}

impl Record for Namespace {
    const RESOURCE: Resource = Resource { group: "", version: "v1", kind: "Namespace", plural: "namespaces" };

    fn decode(json: &str, interner: &mut Interner) -> Result<Self, serde_json::Error> {
        let NamespaceWire { metadata, status } = serde_json::from_str(json)?;
        let is_active = status.unwrap_or_default().phase.as_str() == "Active";
        Ok(Namespace { is_active, meta: metadata.into_meta(interner)? })
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_without_a_phase_is_not_active() {
        let active = |status: &str| {
            let json = format!(
                r#"{{"metadata":{{"name":"shop","uid":"u","resourceVersion":"1"}},"status":{status}}}"#
            );
            Namespace::decode(&json, &mut Interner::default()).unwrap().is_active
        };
        assert!(active(r#"{"phase":"Active"}"#));
        for status in [r#"{"phase":"Terminating"}"#, r#"{"phase":null}"#, "{}", "null"] {
            assert!(!active(status), "{status}");
        }
    }
}
