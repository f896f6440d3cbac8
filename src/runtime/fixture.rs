//! A small kind of object for this module's tests.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::model::wire::MetaWire;
use crate::model::{Interner, Meta, ObjectKey, Record, Resource, Uid};

/// An object with one number in its spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Thing {
    pub(crate) meta: Meta,
    pub(crate) size: i64,
}

#[derive(Deserialize)]
struct ThingWire<'a> {
    #[serde(borrow)]
    metadata: MetaWire<'a>,
    spec: SpecWire,
}

#[derive(Deserialize)]
struct SpecWire {
    size: i64,
}

pub(crate) const THINGS: Resource =
    Resource { group: "test.io", version: "v1", kind: "Thing", plural: "things" };

impl Record for Thing {
    const RESOURCE: Resource = THINGS;
    const IS_OWNER: bool = true;

    fn decode(json: &str, interner: &mut Interner) -> Result<Self, serde_json::Error> {
        let wire: ThingWire<'_> = serde_json::from_str(json)?;
        Ok(Thing { meta: wire.metadata.into_meta(interner)?, size: wire.spec.size })
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

/// A thing's JSON.
pub(crate) fn json_of(name: &str, uid: &str, version: u64) -> Value {
    json!({
        "apiVersion": "test.io/v1",
        "kind": "Thing",
        "metadata": {"namespace": "shop", "name": name, "uid": uid, "resourceVersion": version.to_string()},
        "spec": {"size": 1},
    })
}

/// A thing without an owner, in the namespace `shop`.
pub(crate) fn thing(name: &str, uid: &str, version: u64) -> Thing {
    Thing::decode(&json_of(name, uid, version).to_string(), &mut Interner::default()).unwrap()
}

/// A thing controlled by the owner with this UID.
pub(crate) fn owned(name: &str, uid: &str, version: u64, owner: &str) -> Thing {
    let mut json = json_of(name, uid, version);
    json["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "test.io/v1", "kind": "Owner", "name": "o", "uid": owner, "controller": true}]);
    Thing::decode(&json.to_string(), &mut Interner::default()).unwrap()
}

/// The key of a thing.
pub(crate) fn key(name: &str) -> ObjectKey {
    ObjectKey::new("shop", name)
}

/// A UID.
pub(crate) fn uid(text: &str) -> Uid {
    Uid::new(text)
}
