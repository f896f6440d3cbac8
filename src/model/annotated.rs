//! An object with all of its annotations, which records leave out: they may take 256 KiB.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::intern::Interner;
use super::meta::Meta;
use super::record::{Record, Resource};
use super::wire::MetaWire;

/// An object with all of its annotations, as it is read for a new revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Annotated<T> {
    /// The object.
    pub object: T,
    /// `metadata.annotations`.
    pub annotations: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct AnnotatedWire<'a> {
    #[serde(borrow)]
    metadata: MetaWire<'a>,
}

impl<T: Record> Record for Annotated<T> {
    const RESOURCE: Resource = T::RESOURCE;

    fn decode(json: &str, interner: &mut Interner) -> Result<Self, serde_json::Error> {
        let AnnotatedWire { metadata } = serde_json::from_str(json)?;
        let pairs = metadata.annotations.0.iter();
        let annotations =
            pairs.map(|(key, value)| (key.as_str().to_owned(), value.as_str().to_owned())).collect();
        Ok(Annotated { object: T::decode(json, interner)?, annotations })
    }

    fn meta(&self) -> &Meta {
        self.object.meta()
    }
}
