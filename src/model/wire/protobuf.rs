//! Metadata from protobuf (upstream: `k8s.io/apimachinery/pkg/apis/meta/v1/generated.proto`).

use super::{MetaWire, OwnerWire, Pairs, Text, Time};
use crate::model::protobuf::{Fields, Malformed, Value};

impl<'a> Pairs<'a> {
    /// Adds an entry of a map of strings.
    fn add(&mut self, entry: Value<'a>) -> Result<(), Malformed> {
        let (mut key, mut value) = (Text::default(), Text::default());
        for field in Fields(entry.bytes()?) {
            match field? {
                (1, text) => key = text.text()?,
                (2, text) => value = text.text()?,
                _ => {}
            }
        }
        self.0.push((key, value));
        Ok(())
    }
}

impl<'a> OwnerWire<'a> {
    /// Reads an `OwnerReference`.
    pub(in crate::model) fn from_protobuf(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut owner = OwnerWire::default();
        for field in Fields(message) {
            match field? {
                (1, value) => owner.kind = value.text()?,
                (3, value) => owner.name = value.text()?,
                (4, value) => owner.uid = value.text()?,
                (5, value) => owner.api_version = value.text()?,
                (6, value) => owner.controller = Some(value.boolean()?),
                (7, value) => owner.block_owner_deletion = Some(value.boolean()?),
                _ => {}
            }
        }
        Ok(owner)
    }
}

impl<'a> MetaWire<'a> {
    /// Reads an `ObjectMeta`.
    ///
    /// # Errors
    /// When the bytes are no such message.
    pub fn from_protobuf(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut meta = MetaWire::default();
        for field in Fields(message) {
            match field? {
                (1, value) => meta.name = value.text()?,
                (3, value) => meta.namespace = value.text()?,
                (5, value) => meta.uid = value.text()?,
                (6, value) => meta.resource_version = value.text()?,
                (7, value) => meta.generation = Some(value.int64()?),
                (8, value) => meta.creation_timestamp = value.time()?.map(Time),
                (9, value) => meta.deletion_timestamp = value.time()?.map(Time),
                (10, value) => meta.deletion_grace_period_seconds = Some(value.int64()?),
                (11, value) => meta.labels.add(value)?,
                (12, value) => meta.annotations.add(value)?,
                (13, value) => {
                    let owner = OwnerWire::from_protobuf(value.bytes()?)?;
                    meta.owner_references.get_or_insert_default().push(owner);
                }
                (14, value) => meta.finalizers.get_or_insert_default().push(value.text()?),
                _ => {}
            }
        }
        Ok(meta)
    }
}
