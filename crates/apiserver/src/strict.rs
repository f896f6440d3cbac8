//! Decoding as strictly as an API server: wrong types are refused with the path of the field,
//! unknown and repeated fields are reported, and `null` means "absent".
//!
//! The types come from `k8s-openapi`, but the checked object stays JSON: a typed round trip would
//! write fields that the user never set.

mod bytes;
mod canonical;
pub(crate) mod decode;
mod empty;
mod go_words;
pub(crate) mod kept;

use std::fmt;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions;
use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::custom::{Custom, shape};
use super::go_text;
use super::kinds::{self, Nulls};
use canonical::is_string_map;
use decode::{Dotted, Segment, Surplus, decode_as};

/// Upstream stops collecting after as many; a body of a megabyte must not be echoed whole.
const MAX_REPORTS: usize = 100;
/// Deeper schemas of custom kinds are refused: their type is recursive, and each level of its decoder takes much stack.
const MAX_SCHEMA_DEPTH: usize = 64;

/// An object whose types are right, with what `fieldValidation` decides about.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Checked {
    /// The object as JSON: without `null`s, unknown fields and what Go leaves out where it is empty; quantities and times are
    /// canonical.
    pub object: Value,
    /// One `unknown field "spec.foo"` each, in alphabetical order at each level.
    pub unknown: Vec<String>,
    /// One `duplicate field "spec.replicas"` each. The last value is the one that counts.
    pub duplicates: Vec<String>,
}

/// Decodes a request body as `kind` of `api_version`.
///
/// # Errors
/// A sentence with the path of the field, behind Go's: `… (spec.replicas: invalid type: string "three", expected i32)`.
/// Bodies that are not JSON, or nested deeper than 128 levels, are refused as well.
pub fn check(api_version: &str, kind: &str, body: &[u8]) -> Result<Checked, String> {
    let (value, duplicates) = read(body)?;
    let mut checked = check_value(api_version, kind, value)?;
    checked.duplicates = duplicates;
    Ok(checked)
}

/// A body as JSON, and its repeated fields.
///
/// # Errors
/// Bodies that are not JSON, or nested deeper than 128 levels.
pub(crate) fn read(body: &[u8]) -> Result<(Value, Vec<String>), String> {
    let mut duplicates = Vec::new();
    let mut path = Vec::new();
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let value = Walk { path: &mut path, duplicates: &mut duplicates }
        .deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value))
        .map_err(|error| error.to_string())?;
    Ok((value, duplicates))
}

/// The same for an object of a custom kind: the metadata as strictly as those of any object, the rest by its schema.
///
/// # Errors
/// As [`check`]. What the schema says of values is validated later, as that is on a real server.
pub(crate) fn check_custom(
    custom: &Custom,
    api_version: &str,
    kind: &str,
    mut object: Value,
) -> Result<Checked, String> {
    let Some(map) = object.as_object_mut() else {
        return Err(format!("couldn't decode a {kind}: the body is not a JSON object"));
    };
    for (field, value) in [("apiVersion", api_version), ("kind", kind)] {
        if matches!(map.get(field), None | Some(Value::Null)) {
            map.insert(field.to_owned(), value.into());
        }
    }
    let metadata = map.remove("metadata").unwrap_or(Value::Null);
    let mut metadata = Value::Object(Map::from_iter([("metadata".to_owned(), metadata)]));
    prune_nulls(&mut metadata, false);
    canonical::rewrite(&mut metadata, &mut Vec::new())?;
    // Any kind that needs nothing but metadata does. On a real server they are decoded on their own.
    let surplus = decode_as::<ConfigMap>(&metadata).map_err(|error| match &metadata["metadata"] {
        Value::Object(_) => {
            error.replacen("struct field ObjectMeta.metadata.", "struct field ObjectMeta.", 1)
        }
        other => go_text::unlike(other, "v1.ObjectMeta"),
    })?;
    let mut unknown = remove_surplus(&mut metadata, surplus);
    map.extend(metadata.as_object_mut().map(std::mem::take).unwrap_or_default());
    unknown.extend(shape::prune(&custom.schema, &mut object));
    Ok(Checked { object, unknown, duplicates: Vec::new() })
}

/// The same for an object that is already JSON, such as the result of a patch. Repeated fields
/// cannot be seen any more, so `duplicates` is empty.
///
/// # Errors
/// As [`check`].
pub fn check_value(api_version: &str, kind: &str, object: Value) -> Result<Checked, String> {
    let (mut object, surplus) = decoded(api_version, kind, object)?;
    let unknown = remove_surplus(&mut object, surplus);
    Ok(Checked { object, unknown, duplicates: Vec::new() })
}

/// The same for a configuration that is applied, which keeps what Go leaves out where it is empty: `rules: []` takes the
/// rules of other owners away.
///
/// # Errors
/// As [`check`].
pub(crate) fn check_applied(api_version: &str, kind: &str, object: Value) -> Result<Checked, String> {
    let (mut object, surplus) = decoded(api_version, kind, object)?;
    let unknown = remove_surplus(&mut object, Surplus { empty: Vec::new(), ..surplus });
    Ok(Checked { object, unknown, duplicates: Vec::new() })
}

fn decoded(api_version: &str, kind: &str, mut object: Value) -> Result<(Value, Surplus), String> {
    let Some(map) = object.as_object_mut() else {
        return Err(format!("couldn't decode a {kind}: the body is not a JSON object"));
    };
    if matches!(map.get("apiVersion"), None | Some(Value::Null)) {
        map.insert("apiVersion".into(), api_version.into());
    }
    if matches!(map.get("kind"), None | Some(Value::Null)) {
        map.insert("kind".into(), kind.into());
    }
    let (decode, nulls): (Decode, Nulls) = match kinds::of_body(api_version, kind) {
        Some(row) => (row.decode, row.nulls),
        None if kind == "DeleteOptions" => (decode_as::<DeleteOptions>, Nulls::Absent),
        None => return Err(format!("no kind {kind:?} is registered for version {api_version:?}")),
    };
    if nulls == Nulls::PlainSelector
        && let Some(selector) = object.pointer_mut("/spec/selector")
    {
        prune_nulls(selector, true);
    }
    let aside = match nulls {
        Nulls::Opaque(field) => take(&mut object, field).map(|value| (field, value)),
        Nulls::Schemas => take(&mut object, "spec").map(|spec| ("spec", spec)),
        Nulls::Absent | Nulls::PlainSelector => None,
    };
    // Those of a class are texts; an IngressClass has others in its spec.
    object.get_mut("parameters").into_iter().for_each(|parameters| prune_nulls(parameters, true));
    prune_nulls(&mut object, false);
    bytes::rewrite(kind, &mut object)?;
    canonical::rewrite(&mut object, &mut Vec::new())?;
    if let (Some((field, mut value)), Some(map)) =
        (aside.filter(|aside| !aside.1.is_null()), object.as_object_mut())
    {
        if nulls == Nulls::Schemas {
            if is_deeper(&value, MAX_SCHEMA_DEPTH) {
                return Err(format!("spec: the schemas are nested deeper than {MAX_SCHEMA_DEPTH} levels"));
            }
            if let Some(fields) = value.as_object_mut() {
                fields.retain(|_, value| !value.is_null());
            }
        }
        map.insert(field.to_owned(), value);
    }
    let surplus = decode(&object)?;
    Ok((object, surplus))
}

/// Returns the sentences about the unknown fields among them.
fn remove_surplus(object: &mut Value, surplus: Surplus) -> Vec<String> {
    let mut unknown = Vec::new();
    for (path, empty) in surplus.nulls {
        if let Some(item) = at(object, &path) {
            *item = empty;
        }
    }
    for (of, path) in surplus.empty {
        if let Some(Segment::Key(field)) = path.last()
            && empty::is_dropped(of, field)
        {
            remove(object, &path);
        }
    }
    surplus.silent.iter().for_each(|path| remove(object, path));
    for path in surplus.unknown {
        remove(object, &path);
        if unknown.len() < MAX_REPORTS {
            unknown.push(format!("unknown field \"{}\"", Dotted(&path)));
        }
    }
    unknown
}

/// Whether there are more levels of values below this one.
fn is_deeper(value: &Value, levels: usize) -> bool {
    let below = |value: &Value| levels == 0 || is_deeper(value, levels - 1);
    match value {
        Value::Array(items) => items.iter().any(below),
        Value::Object(map) => map.values().any(below),
        _ => false,
    }
}

/// The same for what a patch has made of `stored`. What it left alone was checked when it was stored: a patch of the
/// status costs what the status costs, and not the template as well.
///
/// # Errors
/// As [`check`].
pub fn check_patched(
    api_version: &str,
    kind: &str,
    mut object: Value,
    stored: &Value,
) -> Result<Checked, String> {
    let mut untouched = Map::new();
    if let Some(map) = object.as_object_mut() {
        for field in ["metadata", "spec", "status"] {
            if map.get(field) == stored.get(field) {
                untouched.extend(map.remove_entry(field));
            }
        }
    }
    let mut checked = check_value(api_version, kind, object)?;
    if let Some(map) = checked.object.as_object_mut() {
        map.extend(untouched);
    }
    Ok(checked)
}

fn take(object: &mut Value, field: &str) -> Option<Value> {
    object.as_object_mut()?.remove(field)
}

/// Decodes an object for the sake of the errors and of the surplus.
type Decode = fn(&Value) -> Result<Surplus, String>;

fn remove(object: &mut Value, path: &[Segment]) {
    let Some((Segment::Key(last), parents)) = path.split_last() else { return };
    if let Some(map) = at(object, parents).and_then(Value::as_object_mut) {
        map.remove(last);
    }
}

fn at<'a>(object: &'a mut Value, path: &[Segment]) -> Option<&'a mut Value> {
    path.iter().try_fold(object, |at, segment| match segment {
        Segment::Key(key) => at.get_mut(key),
        Segment::Index(index) => at.get_mut(*index),
    })
}

/// Go decodes `null` into the zero value: a field that is absent, a string that is empty, an amount of 0. Items of lists
/// stay: their type decides.
fn prune_nulls(value: &mut Value, string_map: bool) {
    match value {
        Value::Object(map) if string_map => {
            for value in map.values_mut().filter(|value| value.is_null()) {
                *value = Value::String(String::new());
            }
        }
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            for (key, value) in map {
                if let Value::Object(amounts) = value
                    && matches!(
                        key.as_str(),
                        "limits"
                            | "requests"
                            | "hard"
                            | "capacity"
                            | "allocatable"
                            | "podFixed"
                            | "default"
                            | "defaultRequest"
                            | "max"
                            | "min"
                            | "maxLimitRequestRatio"
                    )
                {
                    let nulls = amounts.values_mut().filter(|amount| amount.is_null());
                    nulls.for_each(|amount| *amount = Value::String("0".to_owned()));
                }
                prune_nulls(value, is_string_map(key));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| prune_nulls(item, false)),
        _ => {}
    }
}

/// Builds a [`Value`] and notes every key that occurs twice in one object. `serde_json` alone keeps
/// the last and says nothing.
struct Walk<'a> {
    path: &'a mut Vec<Segment>,
    duplicates: &'a mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        serde_json::Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("number out of range"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        loop {
            self.path.push(Segment::Index(array.len()));
            let item = items.next_element_seed(Walk { path: self.path, duplicates: self.duplicates })?;
            self.path.pop();
            match item {
                Some(item) => array.push(item),
                None => return Ok(Value::Array(array)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let is_known = map.contains_key(&key);
            self.path.push(Segment::Key(key));
            if is_known && self.duplicates.len() < MAX_REPORTS {
                let message = format!("duplicate field \"{}\"", Dotted(self.path));
                if !self.duplicates.contains(&message) {
                    self.duplicates.push(message);
                }
            }
            let value = entries.next_value_seed(Walk { path: self.path, duplicates: self.duplicates })?;
            if let Some(Segment::Key(key)) = self.path.pop() {
                map.insert(key, value);
            }
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployment(body: &str) -> Result<Checked, String> {
        check("apps/v1", "Deployment", body.as_bytes())
    }

    #[test]
    fn a_wrong_type_is_refused_with_the_path_of_the_field() {
        let error = deployment(r#"{"spec":{"replicas":"three"}}"#).unwrap_err();
        assert!(error.ends_with("(spec.replicas: invalid type: string \"three\", expected i32)"), "{error}");
        let error = deployment(r#"{"spec":{"template":{"spec":{"containers":[{"name":"a"},{"name":7}]}}}}"#);
        assert!(error.unwrap_err().contains("(spec.template.spec.containers[1].name: invalid type: "));
    }

    #[test]
    fn unknown_fields_are_named_by_path_and_dropped() {
        let checked = deployment(
            r#"{"metadata":{"name":"web"},"spec":{"replica":3,
               "template":{"spec":{"containers":[{"name":"a","imagee":"x"}]}}},"sepc":{}}"#,
        )
        .unwrap();
        assert_eq!(
            checked.unknown.iter().collect::<std::collections::BTreeSet<_>>(),
            [
                "unknown field \"sepc\"",
                "unknown field \"spec.replica\"",
                "unknown field \"spec.template.spec.containers[0].imagee\"",
            ]
            .map(String::from)
            .iter()
            .collect()
        );
        assert_eq!(
            checked.object,
            json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
                "spec": {"template": {"spec": {"containers": [{"name": "a"}]}}},
            })
        );
    }

    #[test]
    fn a_repeated_field_is_reported_once_and_the_last_value_counts() {
        let checked = deployment(r#"{"spec":{"replicas":1,"replicas":2,"replicas":3}}"#).unwrap();
        assert_eq!(checked.duplicates, ["duplicate field \"spec.replicas\""]);
        assert_eq!(checked.object["spec"]["replicas"], 3);
        let body = r#"{"spec":{"template":{"spec":{"containers":[{"name":"a","name":"b"}]}}}}"#;
        let expected = ["duplicate field \"spec.template.spec.containers[0].name\""];
        assert_eq!(deployment(body).unwrap().duplicates, expected);
    }

    #[test]
    fn only_the_changes_of_a_patch_are_validated_and_the_rest_is_unchanged() {
        let stored = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
            "spec": {"replicas": 3}, "status": {"replicas": 1},
        });
        let patched = |part: &str, value: Value| {
            let mut object = stored.clone();
            object[part] = value;
            check_patched("apps/v1", "Deployment", object, &stored)
        };
        let checked = patched("status", json!({"replicas": 2, "surely": 1})).unwrap();
        assert_eq!(checked.unknown, ["unknown field \"status.surely\""]);
        let expected = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
            "spec": {"replicas": 3}, "status": {"replicas": 2},
        });
        assert_eq!(checked.object, expected);
        for part in ["metadata", "spec", "status"] {
            let error = patched(part, json!("a word")).unwrap_err();
            assert!(error.contains(&format!("({part}: invalid type: ")), "{error}");
            assert_eq!(patched(part, Value::Null).unwrap().object.get(part), None);
        }
    }

    #[test]
    fn null_is_the_same_as_absent() {
        let checked = deployment(
            r#"{"metadata":{"creationTimestamp":null,"labels":{"a":null}},"spec":{"replicas":null}}"#,
        )
        .unwrap();
        assert_eq!(checked.unknown, Vec::<String>::new());
        assert_eq!(checked.object["metadata"], json!({"labels": {"a": ""}}));
        assert_eq!(checked.object["spec"], json!({}));
    }

    #[test]
    fn in_a_map_of_labels_null_is_an_empty_value() {
        let body =
            br#"{"spec":{"selector":{"app":"web","tier":null},"template":{"spec":{"containers":null}}}}"#;
        let checked = check("v1", "ReplicationController", body).unwrap();
        let expected = json!({"selector": {"app": "web", "tier": ""}, "template": {"spec": {}}});
        assert_eq!((checked.object["spec"].clone(), checked.unknown.len()), (expected, 0));
        let absent = br#"{"spec":{"selector":null,"template":null}}"#;
        assert_eq!(check("v1", "ReplicationController", absent).unwrap().object["spec"], json!({}));
    }

    #[test]
    fn a_replication_controller_has_no_expressions_and_counts_no_terminating_pods() {
        let expressions = br#"{"spec":{"selector":{"matchExpressions":[]}}}"#;
        let error = check("v1", "ReplicationController", expressions).unwrap_err();
        assert!(error.contains("(spec.selector.matchExpressions: invalid type: "), "{error}");
        let counted = br#"{"status":{"replicas":1,"terminatingReplicas":1}}"#;
        let checked = check("v1", "ReplicationController", counted).unwrap();
        assert_eq!(checked.unknown, ["unknown field \"status.terminatingReplicas\""]);
    }

    #[test]
    fn a_body_that_is_not_one_json_object_is_refused() {
        for body in ["", "[]", "null", "{", "{} {}", "{\"a\":\"\u{1}\"}", &"[".repeat(100_000)] {
            assert!(deployment(body).is_err(), "{body:.20}");
        }
        assert!(check("apps/v1", "Deployment", b"{\"a\":\"\xff\"}").is_err());
    }

    #[test]
    fn every_served_kind_is_known() {
        for (api_version, kinds) in [
            ("v1", "Namespace Node Pod Event ConfigMap ReplicationController Secret Service ServiceAccount"),
            ("v1", "Binding DeleteOptions PersistentVolume PersistentVolumeClaim LimitRange ResourceQuota"),
            ("apps/v1", "ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet"),
            ("flowcontrol.apiserver.k8s.io/v1", "FlowSchema"),
            ("networking.k8s.io/v1", "NetworkPolicy"),
            ("rbac.authorization.k8s.io/v1", "ClusterRole ClusterRoleBinding Role RoleBinding"),
            ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding"),
            ("autoscaling/v1", "Scale"),
            ("autoscaling/v2", "HorizontalPodAutoscaler"),
            ("coordination.k8s.io/v1", "Lease"),
            ("events.k8s.io/v1", "Event"),
            ("policy/v1", "Eviction PodDisruptionBudget"),
        ] {
            for kind in kinds.split(' ') {
                let checked = check(api_version, kind, br#"{"surely":1}"#).unwrap();
                assert_eq!(checked.unknown, ["unknown field \"surely\""], "{api_version} {kind}");
            }
        }
        assert!(check("v1", "Deployment", b"{}").is_err());
    }
}
