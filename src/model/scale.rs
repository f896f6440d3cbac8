//! The subresource `scale` of an owner of pods, and where the API server serves it.

use serde::Deserialize;

use super::discovered::is_path_segment;
use super::meta::Uid;
use super::wire::Text;

/// A `Scale`, in whatever version: the object that it belongs to, and how many pods it should have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scale {
    /// The UID of the object.
    pub uid: Uid,
    /// `spec.replicas`; 0 when absent, as in the API's types.
    pub replicas: i32,
}

#[derive(Deserialize)]
struct ScaleWire<'a> {
    #[serde(borrow)]
    metadata: UidWire<'a>,
    #[serde(default)]
    spec: Option<SpecWire>,
}

#[derive(Deserialize)]
struct UidWire<'a> {
    #[serde(borrow, default)]
    uid: Text<'a>,
}

#[derive(Deserialize)]
struct SpecWire {
    #[serde(default)]
    replicas: Option<i32>,
}

impl Scale {
    /// Reads one.
    ///
    /// # Errors
    /// When the JSON is no `Scale`.
    pub fn decode(json: &[u8]) -> Result<Self, serde_json::Error> {
        let ScaleWire { metadata, spec } = serde_json::from_slice(json)?;
        let replicas = spec.and_then(|spec| spec.replicas).unwrap_or(0);
        Ok(Scale { uid: Uid::new(metadata.uid.as_str()), replicas })
    }
}

/// The resource of a kind, as a version of its group lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScaledResource {
    /// The name in URLs. It has no character that would leave its place in a path.
    pub plural: String,
    /// Whether it has the subresource `scale`.
    pub has_scale: bool,
}

#[derive(Deserialize)]
struct ResourcesWire {
    #[serde(default)]
    resources: Vec<ResourceWire>,
}

#[derive(Deserialize)]
struct ResourceWire {
    name: String,
    #[serde(default)]
    kind: String,
}

impl ScaledResource {
    /// Finds the resource of a kind in `/apis/<group>/<version>`; `None` if it is not served there.
    ///
    /// # Errors
    /// When the JSON is no list of resources.
    pub fn find(json: &[u8], kind: &str) -> Result<Option<Self>, serde_json::Error> {
        let ResourcesWire { resources } = serde_json::from_slice(json)?;
        let is_of_kind = |it: &&ResourceWire| it.kind == kind && is_path_segment(&it.name);
        let Some(found) = resources.iter().find(is_of_kind) else { return Ok(None) };
        let scale = format!("{}/scale", found.name);
        let has_scale = resources.iter().any(|it| it.name == scale && it.kind == "Scale");
        Ok(Some(ScaledResource { plural: found.name.clone(), has_scale }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_is_found_by_its_kind_and_not_by_its_subresources() {
        let list = br#"{"kind":"APIResourceList","resources":[
            {"name":"shops/status","kind":"Shop"},{"name":"shops","kind":"Shop","namespaced":true},
            {"name":"shops/scale","kind":"Scale","group":"autoscaling","version":"v1"},
            {"name":"stalls","kind":"Stall"},{"name":"../x","kind":"Odd"}]}"#;
        let find = |kind| ScaledResource::find(list, kind).unwrap().map(|it| (it.plural, it.has_scale));
        assert_eq!(find("Shop"), Some(("shops".to_owned(), true)));
        assert_eq!(find("Stall"), Some(("stalls".to_owned(), false)));
        assert_eq!((find("Odd"), find("Scale"), find("None")), (None, None, None));
        assert!(ScaledResource::find(b"7", "Shop").is_err());
    }

    #[test]
    fn a_scale_without_replicas_is_one_of_none() {
        let decode = |json: &[u8]| Scale::decode(json).map(|scale| scale.replicas);
        assert_eq!(decode(br#"{"metadata":{"uid":"u"},"spec":{"replicas":3}}"#).unwrap(), 3);
        assert_eq!(decode(br#"{"metadata":{},"spec":{}}"#).unwrap(), 0);
        assert!(decode(br#"{"spec":{}}"#).is_err());
    }
}
