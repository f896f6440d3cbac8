//! Metadata on the wire, borrowed from the response's own bytes.
//!
//! Decoding goes through these short-lived forms into the records, so that nothing is allocated that
//! a record does not keep: `managedFields`, two thirds of a pod's JSON, is skipped over in place.

mod protobuf;

use std::borrow::Cow;
use std::fmt;

use jiff::Timestamp;
use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, Visitor};

use super::intern::Interner;
use super::meta::{ControllerRef, Meta, ObjectKey, StringMap, Uid};
use super::record::Resource;
use super::texts::Texts;

/// A string borrowed from the input, or owned where the input has escapes.
///
/// A type of our own because serde borrows a bare `Cow<str>`, but not one inside an `Option` or a `Vec`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Text<'a>(pub Cow<'a, str>);

impl Text<'_> {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Text<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Text(Cow::Borrowed(text)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Text(Cow::Owned(text.to_owned())))
    }

    /// A null stands for the empty string, as Go's decoder has it.
    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(Text::default())
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextVisitor)
    }
}

/// An object of strings, in the order of the wire.
#[derive(Clone, Debug, Default)]
pub struct Pairs<'a>(pub Vec<(Text<'a>, Text<'a>)>);

struct PairsVisitor;

impl<'de> Visitor<'de> for PairsVisitor {
    type Value = Pairs<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with string values")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut pairs = Vec::new();
        while let Some(pair) = map.next_entry()? {
            pairs.push(pair);
        }
        Ok(Pairs(pairs))
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(Pairs::default())
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Pairs<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PairsVisitor)
    }
}

impl Pairs<'_> {
    /// The value of `key`; of several the last, as in JSON.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().rev().find(|(k, _)| k.as_str() == key).map(|(_, v)| v.as_str())
    }

    /// The pairs whose keys have a prefix, as a shared map.
    pub fn intern_with_prefix(&self, prefix: &str, interner: &mut Interner) -> std::sync::Arc<StringMap> {
        let pairs = self.0.iter().map(|(k, v)| (k.as_str(), v.as_str()));
        interner.map(pairs.filter(|(key, _)| key.starts_with(prefix)).collect())
    }

    /// The pairs as a shared map.
    pub fn intern(&self, interner: &mut Interner) -> std::sync::Arc<StringMap> {
        interner.map(self.0.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect())
    }
}

/// A time as the API writes it, RFC 3339.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time(pub Timestamp);

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Text::deserialize(deserializer)?;
        time(text.as_str()).map(Time).map_err(D::Error::custom)
    }
}

/// A time as the API writes it. The last day of the year 9999, which the API can store and a timestamp cannot, is the last
/// timestamp.
fn time(text: &str) -> Result<Timestamp, jiff::Error> {
    text.parse().or_else(|error| {
        let civil = text.get(..19).and_then(|text| text.parse::<jiff::civil::DateTime>().ok());
        let is_last_day = civil.is_some_and(|civil| civil >= jiff::civil::date(9999, 12, 30).at(0, 0, 0, 0));
        if is_last_day { Ok(Timestamp::MAX) } else { Err(error) }
    })
}

/// `metadata` of any object.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MetaWire<'a> {
    #[serde(borrow, default)]
    name: Text<'a>,
    #[serde(borrow, default)]
    namespace: Text<'a>,
    #[serde(borrow, default)]
    uid: Text<'a>,
    #[serde(borrow, default)]
    resource_version: Text<'a>,
    #[serde(default)]
    generation: Option<i64>,
    #[serde(default)]
    creation_timestamp: Option<Time>,
    #[serde(default)]
    deletion_timestamp: Option<Time>,
    #[serde(borrow, default)]
    labels: Pairs<'a>,
    /// Annotations, for the record to take what it needs.
    #[serde(borrow, default)]
    pub annotations: Pairs<'a>,
    /// Finalizers, for the record to take what it needs.
    #[serde(borrow, default)]
    pub finalizers: Option<Vec<Text<'a>>>,
    #[serde(borrow, default)]
    pub(in crate::model) owner_references: Option<Vec<OwnerWire<'a>>>,
    #[serde(default)]
    deletion_grace_period_seconds: Option<i64>,
}

/// An owner reference.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::model) struct OwnerWire<'a> {
    #[serde(borrow, default)]
    pub(in crate::model) api_version: Text<'a>,
    #[serde(borrow, default)]
    pub(in crate::model) kind: Text<'a>,
    #[serde(borrow, default)]
    pub(in crate::model) name: Text<'a>,
    #[serde(borrow, default)]
    pub(in crate::model) uid: Text<'a>,
    #[serde(default)]
    pub(in crate::model) controller: Option<bool>,
    #[serde(default)]
    pub(in crate::model) block_owner_deletion: Option<bool>,
}

/// A list of texts as a record keeps it.
pub(super) fn texts(wire: Option<&[Text<'_>]>) -> Texts {
    wire.unwrap_or_default().iter().map(Text::as_str).collect()
}

impl MetaWire<'_> {
    /// Whether the object is being deleted, and no time is left to it.
    pub fn is_shut_down(&self) -> bool {
        self.deletion_timestamp.is_some() && self.deletion_grace_period_seconds == Some(0)
    }

    /// The grace period of a deletion that has begun, in seconds.
    pub(in crate::model) fn grace_seconds(&self) -> Option<i64> {
        self.deletion_grace_period_seconds.filter(|_| self.deletion_timestamp.is_some())
    }

    /// When a deletion is due, and its grace period in seconds.
    pub(in crate::model) fn deletion(&self) -> Option<(Timestamp, i64)> {
        let due = self.deletion_timestamp?.0;
        Some((due, self.deletion_grace_period_seconds.unwrap_or(0)))
    }

    /// When the API server stored the object first.
    pub(in crate::model) fn created(&self) -> Timestamp {
        self.creation_timestamp.map_or(Timestamp::UNIX_EPOCH, |time| time.0)
    }

    /// The value of a label.
    pub(in crate::model) fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key)
    }

    /// Whether an owner of this kind controls it, in whatever version.
    pub(in crate::model) fn is_controlled_by(&self, resource: &Resource) -> bool {
        self.owner_references.iter().flatten().any(|owner| {
            let group = owner.api_version.as_str().split_once('/').map_or("", |(group, _)| group);
            owner.controller == Some(true) && (group, owner.kind.as_str()) == (resource.group, resource.kind)
        })
    }

    /// The record's metadata.
    ///
    /// # Errors
    /// When the name or UID is missing, or the resourceVersion is no decimal number (KEP-5504 makes
    /// that a promise of every conformant API server).
    pub fn into_meta(self, interner: &mut Interner) -> Result<Meta, serde_json::Error> {
        let missing = |field: &str| serde_json::Error::custom(format_args!("metadata.{field} is missing"));
        if self.name.as_str().is_empty() {
            return Err(missing("name"));
        }
        if self.uid.as_str().is_empty() {
            return Err(missing("uid"));
        }
        let resource_version = parse_resource_version(self.resource_version.as_str())?;
        let controller = self
            .owner_references
            .unwrap_or_default()
            .into_iter()
            .find(|owner| owner.controller == Some(true))
            .map(|owner| {
                let reference = ControllerRef {
                    api_version: interner.string(owner.api_version.as_str()),
                    kind: interner.string(owner.kind.as_str()),
                    name: interner.string(owner.name.as_str()),
                    uid: Uid::new(owner.uid.as_str()),
                };
                interner.owner(reference)
            });
        Ok(Meta {
            key: ObjectKey::new(interner.string(self.namespace.as_str()), self.name.as_str()),
            uid: Uid::new(self.uid.as_str()),
            resource_version,
            generation: self.generation.unwrap_or(0),
            created: self.creation_timestamp.map_or(Timestamp::UNIX_EPOCH, |t| t.0),
            deletion: self.deletion_timestamp.map(|t| t.0),
            labels: self.labels.intern(interner),
            controller,
        })
    }
}

/// Reads a resourceVersion as the number that it is.
///
/// # Errors
/// When it is not a decimal number below 2^64.
pub fn parse_resource_version(text: &str) -> Result<u64, serde_json::Error> {
    text.parse().map_err(|_| {
        serde_json::Error::custom(format_args!("metadata.resourceVersion {text:?} is not a decimal number"))
    })
}

/// A resourceVersion. API servers of Kubernetes send numbers, which compare within a resource; others may send any text,
/// which can only be sent back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Version {
    /// A number.
    Number(u64),
    /// Anything else.
    Other(Box<str>),
}

impl Version {
    /// Reads a version.
    ///
    /// # Errors
    /// When there is none.
    pub fn read(text: &str) -> Result<Self, serde_json::Error> {
        match parse_resource_version(text) {
            Err(_) if !text.is_empty() => Ok(Version::Other(text.into())),
            number => number.map(Version::Number),
        }
    }

    /// The number.
    ///
    /// # Errors
    /// When it is none.
    pub fn number(&self) -> Result<u64, serde_json::Error> {
        match self {
            Version::Number(number) => Ok(*number),
            Version::Other(text) => parse_resource_version(text),
        }
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Version::Number(number) => number.fmt(f),
            Version::Other(text) => text.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(json: &str) -> Result<Meta, serde_json::Error> {
        serde_json::from_str::<MetaWire<'_>>(json)?.into_meta(&mut Interner::default())
    }

    #[test]
    fn the_last_times_that_an_api_server_stores_are_read() {
        for text in ["9999-12-30T23:00:00Z", "9999-12-31T23:59:59Z", "9999-12-31T23:59:59.999999Z"] {
            assert_eq!(time(text).unwrap(), Timestamp::MAX, "{text}");
        }
        assert_eq!(time("9999-12-30T21:59:59Z").unwrap().as_second(), 253_402_207_199);
        assert!(time("9999-13-31T23:59:59Z").is_err() && time("tomorrow").is_err());
        let json = r#"{"name":"x","namespace":"y","uid":"u","resourceVersion":"1",
            "creationTimestamp":"9999-12-31T23:59:59Z"}"#;
        assert_eq!(meta(json).unwrap().created, Timestamp::MAX);
    }

    #[test]
    fn metadata_is_decoded_and_managed_fields_are_skipped() {
        let meta = meta(
            r#"{"name":"web-1","namespace":"shop","uid":"u-1","resourceVersion":"42","generation":3,
                "creationTimestamp":"2026-01-02T03:04:05Z","labels":{"b":"2","a":"1\u0041"},
                "managedFields":[{"manager":"x","fieldsV1":{"f:spec":{}}}],
                "ownerReferences":[
                  {"apiVersion":"v1","kind":"ConfigMap","name":"c","uid":"u-c"},
                  {"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":"u-rs","controller":true}]}"#,
        )
        .unwrap();
        assert_eq!(meta.key.to_string(), "shop/web-1");
        assert_eq!((meta.resource_version, meta.generation), (42, 3));
        assert_eq!(meta.created.to_string(), "2026-01-02T03:04:05Z");
        assert_eq!(meta.labels.get("a"), Some("1A"));
        let controller = meta.controller.as_deref().unwrap();
        assert_eq!((controller.group(), &*controller.kind, &*controller.name), ("apps", "ReplicaSet", "web"));
        assert_eq!(controller.uid, Uid::new("u-rs"));
        assert!(!meta.is_deleting());
    }

    #[test]
    fn nulls_stand_for_absent_values() {
        let meta = meta(
            r#"{"name":"a","uid":"u","resourceVersion":"1","creationTimestamp":null,"labels":null,
                "annotations":{"x":null},"ownerReferences":null,"generation":null}"#,
        )
        .unwrap();
        assert_eq!(meta.created, Timestamp::UNIX_EPOCH);
        assert!(meta.labels.is_empty() && meta.controller.is_none());
    }

    #[test]
    fn an_object_without_identity_is_refused_by_the_name_of_the_field() {
        let error = meta(r#"{"uid":"u","resourceVersion":"1"}"#).unwrap_err().to_string();
        assert!(error.contains("metadata.name"), "{error}");
        let error = meta(r#"{"name":"a","uid":"u","resourceVersion":"x1"}"#).unwrap_err().to_string();
        assert!(error.contains("metadata.resourceVersion \"x1\""), "{error}");
    }
}
