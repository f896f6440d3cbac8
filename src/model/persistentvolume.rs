//! A PersistentVolume, as far as it is protected from deletion.

use std::sync::Arc;

use serde::Deserialize;

use super::intern::Interner;
use super::meta::Meta;
use super::record::{self, Record, Resource};
use super::texts::Texts;
use super::wire::{MetaWire, Text, texts};

/// The fields of a PersistentVolume that the controllers use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PersistentVolume {
    /// Metadata.
    pub meta: Meta,
    /// `metadata.finalizers`, in their order.
    pub finalizers: Arc<Texts>,
    /// Whether `status.phase` is `Bound`: a claim uses it.
    pub is_bound: bool,
}

#[derive(Deserialize)]
struct VolumeWire<'a> {
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

impl Record for PersistentVolume {
    const RESOURCE: Resource =
        Resource { group: "", version: "v1", kind: "PersistentVolume", plural: "persistentvolumes" };

    fn decode(json: &str, interner: &mut Interner) -> Result<Self, serde_json::Error> {
        let VolumeWire { metadata, status } = serde_json::from_str(json)?;
        Ok(PersistentVolume {
            finalizers: interner.list(texts(metadata.finalizers.as_deref())),
            is_bound: status.unwrap_or_default().phase.as_str() == "Bound",
            meta: metadata.into_meta(interner)?,
        })
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn heap_bytes(&self) -> usize {
        record::own_bytes(self) + self.finalizers.heap_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_bound_by_its_phase_alone() {
        let bound = |status: &str| {
            let json = format!(
                r#"{{"metadata":{{"name":"disk","uid":"u","resourceVersion":"1"}},"spec":{{"claimRef":{{}}}},"status":{status}}}"#
            );
            PersistentVolume::decode(&json, &mut Interner::default()).unwrap().is_bound
        };
        assert!(bound(r#"{"phase":"Bound"}"#));
        assert!(!bound(r#"{"phase":"Released"}"#) && !bound("null"));
    }
}
