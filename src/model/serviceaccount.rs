//! A ServiceAccount: that it exists.

use serde::Deserialize;

use super::intern::Interner;
use super::meta::Meta;
use super::record::{Record, Resource};
use super::wire::MetaWire;

/// The fields of a ServiceAccount that the controllers use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceAccount {
    /// Metadata.
    pub meta: Meta,
}

#[derive(Deserialize)]
struct AccountWire<'a> {
    #[serde(borrow)]
    metadata: MetaWire<'a>,
}

impl Record for ServiceAccount {
    const RESOURCE: Resource =
        Resource { group: "", version: "v1", kind: "ServiceAccount", plural: "serviceaccounts" };

    fn decode(json: &str, interner: &mut Interner) -> Result<Self, serde_json::Error> {
        let AccountWire { metadata } = serde_json::from_str(json)?;
        Ok(ServiceAccount { meta: metadata.into_meta(interner)? })
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}
