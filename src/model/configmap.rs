//! A ConfigMap with the certificate of the API server's CA.

use std::sync::Arc;

use serde::Deserialize;

use super::intern::Interner;
use super::meta::Meta;
use super::record::{self, Record, Resource};
use super::texts::Texts;
use super::wire::{MetaWire, Pairs};

/// The key of the certificate.
pub const CA: &str = "ca.crt";

/// The annotation that says what the ConfigMap is for.
pub const DESCRIPTION: &str = "kubernetes.io/description";

/// The fields of a ConfigMap that the controllers use. Only those with the certificate of the CA are cached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigMap {
    /// Metadata.
    pub meta: Meta,
    /// `data["ca.crt"]`. All namespaces have the same one: it is stored once.
    pub ca: Option<Arc<str>>,
    /// The other keys of `data`.
    pub other_keys: Texts,
    /// Whether it has a description.
    pub is_described: bool,
}

#[derive(Deserialize)]
struct ConfigMapWire<'a> {
    #[serde(borrow)]
    metadata: MetaWire<'a>,
    #[serde(borrow, default)]
    data: Option<Pairs<'a>>,
}

impl Record for ConfigMap {
    const RESOURCE: Resource = Resource { group: "", version: "v1", kind: "ConfigMap", plural: "configmaps" };

    fn decode(json: &str, interner: &mut Interner) -> Result<Self, serde_json::Error> {
        let ConfigMapWire { metadata, data } = serde_json::from_str(json)?;
        let data = data.unwrap_or_default();
        let others = data.0.iter().map(|(key, _)| key.as_str()).filter(|key| *key != CA);
        Ok(ConfigMap {
            other_keys: others.collect(),
            ca: data.get(CA).map(|text| interner.string(text)),
            is_described: metadata.annotations.get(DESCRIPTION).is_some_and(|text| !text.is_empty()),
            meta: metadata.into_meta(interner)?,
        })
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn heap_bytes(&self) -> usize {
        record::own_bytes(self) + self.other_keys.heap_bytes() + self.ca.as_ref().map_or(0, |ca| ca.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(annotations: &str, data: &str) -> ConfigMap {
        let json = format!(
            r#"{{"metadata":{{"name":"kube-root-ca.crt","namespace":"shop","uid":"u","resourceVersion":"1",
                "annotations":{annotations}}},"data":{data}}}"#
        );
        ConfigMap::decode(&json, &mut Interner::default()).unwrap()
    }

    #[test]
    fn the_certificate_is_told_from_the_other_keys() {
        let map = map(r#"{"kubernetes.io/description":"what for"}"#, r#"{"a":"1","ca.crt":"pem","b":"2"}"#);
        assert_eq!(map.ca.as_deref(), Some("pem"));
        assert_eq!(map.other_keys.iter().collect::<Vec<_>>(), ["a", "b"]);
        assert!(map.is_described);
    }

    #[test]
    fn absent_data_has_no_certificate_and_an_empty_description_is_none() {
        for (annotations, data) in [("null", "null"), (r#"{"kubernetes.io/description":""}"#, "{}")] {
            let map = map(annotations, data);
            assert!(map.ca.is_none() && map.other_keys.is_empty() && !map.is_described);
        }
    }
}
