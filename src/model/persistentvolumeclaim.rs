//! A PersistentVolumeClaim, as far as it is protected from deletion.

use serde::Deserialize;

use super::intern::Interner;
use super::meta::Meta;
use super::record::{self, Record, Resource};
use super::texts::Texts;
use super::wire::{MetaWire, texts};

/// The fields of a PersistentVolumeClaim that the controllers use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PersistentVolumeClaim {
    /// Metadata.
    pub meta: Meta,
    /// `metadata.finalizers`, in their order.
    pub finalizers: Texts,
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
        Ok(PersistentVolumeClaim {
            finalizers: texts(metadata.finalizers.as_deref()),
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
    fn a_claim_is_its_finalizers_in_their_order() {
        let finalizers = |json: &str| {
            let json = format!(
                r#"{{"metadata":{{"name":"data","namespace":"shop","uid":"u","resourceVersion":"1","finalizers":{json}}}}}"#
            );
            let claim = PersistentVolumeClaim::decode(&json, &mut Interner::default()).unwrap();
            claim.finalizers.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(finalizers(r#"["b/c","a/b"]"#), ["b/c", "a/b"]);
        assert_eq!(finalizers("null"), [""; 0]);
    }
}
