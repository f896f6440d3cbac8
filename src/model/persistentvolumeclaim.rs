//! A PersistentVolumeClaim: its finalizers, by which it is protected from deletion, its owners, by which a
//! StatefulSet decides when it is deleted, and what a quota counts of it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::intern::Interner;
use super::meta::{Meta, Uid};
use super::quantity::Quantity;
use super::record::{self, Record, Resource};
use super::texts::Texts;
use super::wire::{MetaWire, Pairs, Text, texts};

/// The fields of a PersistentVolumeClaim that the controllers use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PersistentVolumeClaim {
    /// Metadata.
    pub meta: Meta,
    /// `metadata.finalizers`, in their order.
    pub finalizers: Arc<Texts>,
    /// `metadata.ownerReferences`, all of them in their order.
    pub owners: Box<[ClaimOwner]>,
    /// The part that quotas read. Claims of one size and class share it.
    pub usage: Arc<ClaimUse>,
}

/// The storage that a claim uses, and of which classes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClaimUse {
    /// The storage that it requests, or has allocated if that is more, as a canonical quantity of whole bytes; empty if it requests
    /// none.
    pub storage: Box<str>,
    /// Its StorageClass: the annotation that is older than `spec.storageClassName`, or that; empty for none.
    pub class: Box<str>,
    /// The VolumeAttributesClasses that it has, wants, or is changed to, each once.
    pub attributes_classes: Texts,
}

/// The annotation that names the StorageClass, and wins over the field (upstream: `GetPersistentVolumeClaimClass`).
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

impl ClaimUse {
    fn of(annotations: &Pairs<'_>, spec: &SpecWire<'_>, status: &StatusWire<'_>) -> Self {
        let storage = |pairs: &Pairs<'_>| Some(Quantity::parse(pairs.get("storage")?)?.rounded_up());
        let requested = spec.resources.as_ref().and_then(|resources| storage(&resources.requests));
        let most = requested.map(|requested| match storage(&status.allocated_resources) {
            Some(allocated) if allocated > requested => allocated,
            _ => requested,
        });
        let target = status.modify_volume_status.as_ref();
        let mut classes = vec![
            spec.volume_attributes_class_name.as_str(),
            status.current_volume_attributes_class_name.as_str(),
            target.map_or("", |target| target.target_volume_attributes_class_name.as_str()),
        ];
        classes.retain(|class| !class.is_empty());
        classes.sort_unstable();
        classes.dedup();
        ClaimUse {
            storage: most.map(|most| most.to_string().into()).unwrap_or_default(),
            class: annotations.get(CLASS_ANNOTATION).unwrap_or(spec.storage_class_name.as_str()).into(),
            attributes_classes: classes.into_iter().collect(),
        }
    }

    fn heap_bytes(&self) -> usize {
        self.storage.len() + self.class.len() + self.attributes_classes.heap_bytes()
    }

    /// The part of its bytes that falls to one of the claims that share it.
    fn shared_bytes(self: &Arc<Self>) -> usize {
        let users = Arc::strong_count(self).saturating_sub(1).max(1);
        (size_of::<Self>() + 2 * size_of::<usize>() + self.heap_bytes()) / users
    }
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
    #[serde(borrow, default)]
    spec: Option<SpecWire<'a>>,
    #[serde(borrow, default)]
    status: Option<StatusWire<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SpecWire<'a> {
    #[serde(borrow, default)]
    storage_class_name: Text<'a>,
    #[serde(borrow, default)]
    volume_attributes_class_name: Text<'a>,
    #[serde(borrow, default)]
    resources: Option<ResourcesWire<'a>>,
}

#[derive(Default, Deserialize)]
struct ResourcesWire<'a> {
    #[serde(borrow, default)]
    requests: Pairs<'a>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StatusWire<'a> {
    #[serde(borrow, default)]
    allocated_resources: Pairs<'a>,
    #[serde(borrow, default)]
    current_volume_attributes_class_name: Text<'a>,
    #[serde(borrow, default)]
    modify_volume_status: Option<ModifyWire<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ModifyWire<'a> {
    #[serde(borrow, default)]
    target_volume_attributes_class_name: Text<'a>,
}

impl Record for PersistentVolumeClaim {
    const RESOURCE: Resource = Resource {
        group: "",
        version: "v1",
        kind: "PersistentVolumeClaim",
        plural: "persistentvolumeclaims",
    };

    fn decode(json: &str, interner: &mut Interner) -> Result<Self, serde_json::Error> {
        let ClaimWire { metadata, spec, status } = serde_json::from_str(json)?;
        let usage =
            ClaimUse::of(&metadata.annotations, &spec.unwrap_or_default(), &status.unwrap_or_default());
        let usage_bytes = usage.heap_bytes();
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
            usage: interner.part(usage, usage_bytes),
            meta: metadata.into_meta(interner)?,
        })
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn heap_bytes(&self) -> usize {
        record::own_bytes(self)
            + self.finalizers.heap_bytes()
            + size_of_val(&*self.owners)
            + self.usage.shared_bytes()
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
    fn a_claim_uses_the_larger_of_what_it_requests_and_what_is_allocated_in_whole_bytes() {
        let usage = |annotations: &str, spec: &str, status: &str| {
            let json = format!(
                r#"{{"metadata":{{"name":"a","uid":"u","resourceVersion":"1","annotations":{annotations}}},
                    "spec":{spec},"status":{status}}}"#
            );
            PersistentVolumeClaim::decode(&json, &mut Interner::default()).unwrap().usage
        };
        let requests = |storage: &str| format!(r#"{{"resources":{{"requests":{{"storage":"{storage}"}}}}}}"#);
        let storage = |spec: &str, status: &str| usage("{}", spec, status).storage.to_string();
        assert_eq!(storage(&requests("1.5Gi"), "{}"), "1536Mi");
        assert_eq!(storage(&requests("1500m"), "{}"), "2");
        let allocated = r#"{"allocatedResources":{"storage":"2Gi"}}"#;
        assert_eq!(storage(&requests("1Gi"), allocated), "2Gi");
        assert_eq!(storage(&requests("3Gi"), allocated), "3Gi");
        assert_eq!((storage("{}", allocated), storage("null", "null")), (String::new(), String::new()));
        let named = r#"{"storageClassName":"fast","volumeAttributesClassName":"gold"}"#;
        assert_eq!(&*usage("{}", named, "{}").class, "fast");
        let annotated = r#"{"volume.beta.kubernetes.io/storage-class":"old"}"#;
        assert_eq!(&*usage(annotated, named, "{}").class, "old");
        let status = r#"{"currentVolumeAttributesClassName":"silver",
            "modifyVolumeStatus":{"targetVolumeAttributesClassName":"gold"}}"#;
        let classes: Vec<String> =
            usage("{}", named, status).attributes_classes.iter().map(str::to_owned).collect();
        assert_eq!(classes, ["gold", "silver"]);
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
