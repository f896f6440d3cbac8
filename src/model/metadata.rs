//! The metadata of any object, as far as ownership needs it.
//!
//! Borrowed from the answer: a collector over all kinds keeps almost nothing of what it reads.

mod protobuf;

use serde::Deserialize;

use super::meta::Uid;
use super::record::Encoded;
use super::wire::{OwnerWire, Text, Time};

/// The finalizer of a foreground deletion: the object stays until no dependent blocks its deletion.
pub const FOREGROUND: &str = "foregroundDeletion";

/// The finalizer of an orphaning deletion: the object stays until no dependent refers to it.
pub const ORPHAN: &str = "orphan";

/// The metadata of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata<'a> {
    /// The namespace; empty for a cluster-scoped object.
    pub namespace: Text<'a>,
    /// The name.
    pub name: Text<'a>,
    /// The UID; empty at an API server that gives none.
    pub uid: Uid,
    /// The version: see [`Metadata::version`].
    pub resource_version: Text<'a>,
    /// Whether it is being deleted.
    pub is_deleting: bool,
    /// The finalizers.
    pub finalizers: Vec<Text<'a>>,
    /// The owner references. Nobody checks them: the owner need not exist.
    pub owners: Vec<OwnerReference<'a>>,
}

/// A reference to an owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerReference<'a> {
    /// The group and version of the owner: `apps/v1`, `v1`.
    pub api_version: Text<'a>,
    /// The kind of the owner.
    pub kind: Text<'a>,
    /// The name of the owner.
    pub name: Text<'a>,
    /// The UID of the owner: any string.
    pub uid: Uid,
    /// Whether a foreground deletion of the owner waits for this object.
    pub blocks: bool,
}

impl OwnerReference<'_> {
    /// The API group of the owner; empty for the core group.
    pub fn group(&self) -> &str {
        self.api_version.as_str().rsplit_once('/').map_or("", |(group, _)| group)
    }

    /// Whether another reference means the same owner, whether it blocks or not.
    pub fn means_the_same(&self, other: &OwnerReference<'_>) -> bool {
        let claim = |reference: &OwnerReference<'_>| {
            [&reference.api_version, &reference.kind, &reference.name].map(|text| text.as_str().to_owned())
        };
        self.uid == other.uid && claim(self) == claim(other)
    }

    /// The API version of the owner without its group.
    pub fn version(&self) -> &str {
        let text = self.api_version.as_str();
        text.rsplit_once('/').map_or(text, |(_, version)| version)
    }
}

impl<'a> Metadata<'a> {
    /// Reads the metadata of an object in either encoding; the rest is skipped.
    ///
    /// # Errors
    /// When the name is missing, or a field has another type.
    pub fn read(object: Encoded<'a>) -> Result<Self, serde_json::Error> {
        match object {
            Encoded::Json(json) => Metadata::decode(json),
            Encoded::Protobuf(message) => Metadata::decode_protobuf(message),
        }
    }

    /// Reads the metadata of an object in JSON; the rest is skipped.
    ///
    /// # Errors
    /// See [`Metadata::read`].
    pub fn decode(json: &'a str) -> Result<Self, serde_json::Error> {
        let ObjectWire { metadata } = serde_json::from_str(json)?;
        metadata.checked()
    }

    /// Reads the metadata of an object from its protobuf message, without the envelope. All other fields, nested to
    /// whatever depth, are stepped over by their length.
    ///
    /// # Errors
    /// See [`Metadata::read`].
    pub fn decode_protobuf(message: &'a [u8]) -> Result<Self, serde_json::Error> {
        FieldsWire::from_object(message)?.checked()
    }

    /// The version as a number; `None` if it is none, as at API servers that are not made of Kubernetes' libraries.
    pub fn version(&self) -> Option<u64> {
        self.resource_version.as_str().parse().ok()
    }

    /// Whether it has a UID, so that a write can name it.
    pub fn has_uid(&self) -> bool {
        !matches!(&self.uid, Uid::Other(text) if text.is_empty())
    }

    /// Whether it has this finalizer.
    pub fn has_finalizer(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|known| known.as_str() == finalizer)
    }

    /// Whether it is kept until no dependent blocks its deletion.
    pub fn waits_for_dependents(&self) -> bool {
        self.is_deleting && self.has_finalizer(FOREGROUND)
    }
}

impl<'a> FieldsWire<'a> {
    fn checked(self) -> Result<Metadata<'a>, serde_json::Error> {
        if self.name.as_str().is_empty() {
            return Err(serde::de::Error::custom("metadata.name is missing"));
        }
        Ok(Metadata {
            resource_version: self.resource_version,
            uid: Uid::new(self.uid.as_str()),
            is_deleting: self.deletion_timestamp.is_some(),
            finalizers: self.finalizers.unwrap_or_default(),
            owners: self.owner_references.into_iter().flatten().map(Into::into).collect(),
            namespace: self.namespace,
            name: self.name,
        })
    }
}

#[derive(Deserialize)]
struct ObjectWire<'a> {
    #[serde(borrow)]
    metadata: FieldsWire<'a>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct FieldsWire<'a> {
    #[serde(borrow, default)]
    name: Text<'a>,
    #[serde(borrow, default)]
    namespace: Text<'a>,
    #[serde(borrow, default)]
    uid: Text<'a>,
    #[serde(borrow, default)]
    resource_version: Text<'a>,
    #[serde(default)]
    deletion_timestamp: Option<Time>,
    #[serde(borrow, default)]
    finalizers: Option<Vec<Text<'a>>>,
    #[serde(borrow, default)]
    owner_references: Option<Vec<OwnerWire<'a>>>,
}

impl<'a> From<OwnerWire<'a>> for OwnerReference<'a> {
    fn from(wire: OwnerWire<'a>) -> Self {
        OwnerReference {
            uid: Uid::new(wire.uid.as_str()),
            api_version: wire.api_version,
            kind: wire.kind,
            name: wire.name,
            blocks: wire.block_owner_deletion == Some(true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_ownership_needs_is_read() {
        let json = r#"{"kind":"ConfigMap","data":{"a":[1,{"b":null}]},"metadata":{"name":"web","namespace":"shop",
            "uid":"u","resourceVersion":"7","deletionTimestamp":"2026-01-01T00:00:00Z",
            "finalizers":["foregroundDeletion","example.com/keep"],"managedFields":[{"fieldsV1":{"f:data":{}}}],
            "ownerReferences":[{"apiVersion":"apps/v1","kind":"Deployment","name":"d","uid":"o","controller":true,
            "blockOwnerDeletion":true},{"apiVersion":"v1","kind":"Pod","name":"p","uid":"q"}]}}"#;
        let object = Metadata::decode(json).unwrap();
        assert_eq!((object.namespace.as_str(), object.name.as_str()), ("shop", "web"));
        assert!(object.waits_for_dependents() && !object.has_finalizer(ORPHAN));
        assert_eq!((object.version(), object.has_uid()), (Some(7), true));
        let owners: Vec<_> =
            object.owners.iter().map(|owner| (owner.group(), owner.version(), owner.blocks)).collect();
        assert_eq!(owners, [("apps", "v1", true), ("", "v1", false)]);
    }

    #[test]
    fn an_object_without_a_name_is_refused_and_one_without_a_uid_or_a_number_as_its_version_is_read() {
        for json in ["{}", "null", r#"{"metadata":{"uid":"u"}}"#] {
            assert!(Metadata::decode(json).is_err(), "{json}");
        }
        let odd = Metadata::decode(r#"{"metadata":{"name":"a","resourceVersion":"12/"}}"#).unwrap();
        assert_eq!((odd.version(), odd.has_uid(), odd.resource_version.as_str()), (None, false, "12/"));
    }
}
