//! A PersistentVolumeClaim: its finalizers, by which it is protected from deletion, and its owners, by which a
//! StatefulSet decides when it is deleted.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::intern::Interner;
use super::meta::{Meta, Uid};
use super::record::{self, Record, Resource};
use super::texts::Texts;
use super::wire::{MetaWire, texts};

/// The fields of a PersistentVolumeClaim that the controllers use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PersistentVolumeClaim {
    /// Metadata.
    pub meta: Meta,
    /// `metadata.finalizers`, in their order.
    pub finalizers: Arc<Texts>,
    /// `metadata.ownerReferences`, all of them in their order.
    pub owners: Box<[ClaimOwner]>,
}

/// An owner reference of a claim, whole: what belongs to others is written back as it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimOwner {
    /// `apiVersion`.
    pub api_version: Arc<str>,
    /// `kind`.
    pub kind: Arc<str>,
    /// `name`.
    pub name: Arc<str>,
    /// `uid`.
    pub uid: Uid,
    /// `controller`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<bool>,
    /// `blockOwnerDeletion`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_owner_deletion: Option<bool>,
}

#[derive(Deserialize)]
struct ClaimWire<'a> {
    #[serde(borrow)]
    metadata: MetaWire<'a>,
}

impl Record for PersistentVolumeClaim {
    const RESOURCE: Resource = Resource {
        group: "",
        version: "v1",
        kind: "PersistentVolumeClaim",
        plural: "persistentvolumeclaims",
    };

    fn decode(json: &str, interner: &mut Interner) -> Result<Self, serde_json::Error> {
        let ClaimWire { metadata } = serde_json::from_str(json)?;
        let finalizers = interner.list(texts(metadata.finalizers.as_deref()));
        let owners = metadata.owner_references.iter().flatten().map(|owner| ClaimOwner {
            api_version: interner.string(owner.api_version.as_str()),
            kind: interner.string(owner.kind.as_str()),
            name: interner.string(owner.name.as_str()),
            uid: Uid::new(owner.uid.as_str()),
            controller: owner.controller,
            block_owner_deletion: owner.block_owner_deletion,
        });
        Ok(PersistentVolumeClaim {
            finalizers,
            owners: owners.collect(),
            meta: metadata.into_meta(interner)?,
        })
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn heap_bytes(&self) -> usize {
        record::own_bytes(self) + self.finalizers.heap_bytes() + size_of_val(&*self.owners)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(metadata: &str) -> PersistentVolumeClaim {
        let json = format!(
            r#"{{"metadata":{{"name":"data","namespace":"shop","uid":"u","resourceVersion":"1",{metadata}}}}}"#
        );
        PersistentVolumeClaim::decode(&json, &mut Interner::default()).unwrap()
    }

    #[test]
    fn a_claim_is_its_finalizers_in_their_order() {
        let finalizers = |json: &str| {
            let claim = claim(&format!(r#""finalizers":{json}"#));
            claim.finalizers.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(finalizers(r#"["b/c","a/b"]"#), ["b/c", "a/b"]);
        assert_eq!(finalizers("null"), [""; 0]);
    }

    #[test]
    fn owner_references_are_written_back_as_they_were() {
        let json = r#"[{"apiVersion":"v1","kind":"Pod","name":"db-0","uid":"u-1","controller":true,"blockOwnerDeletion":false},
            {"apiVersion":"example.com/v1","kind":"Backup","name":"b","uid":"u-2"}]"#;
        let claim = claim(&format!(r#""ownerReferences":{json}"#));
        let written = serde_json::to_value(&claim.owners).unwrap();
        assert_eq!(written, serde_json::from_str::<serde_json::Value>(json).unwrap());
    }
}
