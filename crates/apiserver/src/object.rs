//! A stored object and the few fields of every object that the server itself reads and writes.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::protobuf::write;

/// An object as of one revision. Immutable: a write stores another one.
#[derive(Debug)]
pub(crate) struct Object {
    /// Shared with readers that send no request, so that objects of the history are not copied.
    pub(crate) value: Arc<Value>,
    text: OnceLock<Bytes>,
    message: OnceLock<Bytes>,
}

impl Object {
    pub(crate) fn new(value: Value) -> Self {
        Object { value: Arc::new(value), text: OnceLock::new(), message: OnceLock::new() }
    }

    /// The object as JSON, serialised at most once however many lists and watches carry it. The price
    /// is that a listed object is held twice, as a tree and as text.
    pub(crate) fn text(&self) -> Bytes {
        self.text.get_or_init(|| escaped(to_bytes(&self.value))).clone()
    }

    /// The object as a protobuf message, likewise.
    pub(crate) fn message(&self) -> Bytes {
        self.message.get_or_init(|| write::bare(&self.value)).clone()
    }
}

/// Any value as compact JSON. Values built here have string keys only, so this cannot fail; were it
/// ever to, the client would see an empty body rather than the server a panic.
pub(crate) fn to_bytes(value: &Value) -> Bytes {
    serde_json::to_vec(value).map(Bytes::from).unwrap_or_default()
}

/// The same JSON with `<`, `>`, `&` and the two line separators of Unicode written as Go writes them. kubectl compares the
/// data of revisions by their bytes.
fn escaped(text: Bytes) -> Bytes {
    let special = |byte: &u8| matches!(byte, b'<' | b'>' | b'&' | 0xe2);
    if !text.iter().any(special) {
        return text;
    }
    let mut written = Vec::with_capacity(text.len() + 64);
    let mut rest = &text[..];
    while let Some((first, others)) = rest.split_first() {
        let (code, after) = match (first, others) {
            (b'<', _) => ("\\u003c", others),
            (b'>', _) => ("\\u003e", others),
            (b'&', _) => ("\\u0026", others),
            (0xe2, [0x80, 0xa8, after @ ..]) => ("\\u2028", after),
            (0xe2, [0x80, 0xa9, after @ ..]) => ("\\u2029", after),
            _ => {
                written.push(*first);
                rest = others;
                continue;
            }
        };
        written.extend_from_slice(code.as_bytes());
        rest = after;
    }
    written.into()
}

/// The string at `pointer`, or "".
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// `metadata.<field>` as a string, or "".
pub(crate) fn meta<'a>(object: &'a Value, field: &str) -> &'a str {
    object
        .get("metadata")
        .and_then(|metadata| metadata.get(field))
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// `parent.<field>` as a map that can be written to; whatever else was there is replaced.
pub(crate) fn map_mut<'a>(parent: &'a mut Value, field: &str) -> &'a mut Map<String, Value> {
    let parent = as_map(parent);
    as_map(parent.entry(field).or_insert_with(|| json!({})))
}

/// `value` itself as a map; whatever else it was is replaced.
pub(crate) fn as_map(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = json!({});
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("made an object just above"),
    }
}

/// `object.metadata` as a map that can be written to.
pub(crate) fn metadata_mut(object: &mut Value) -> &mut Map<String, Value> {
    map_mut(object, "metadata")
}

/// Sets `metadata.<field>`.
pub(crate) fn set_meta(object: &mut Value, field: &str, value: impl Into<Value>) {
    metadata_mut(object).insert(field.to_owned(), value.into());
}

/// Gives `target.<field>` the value it has in `source`, absence included.
pub(crate) fn copy_field(target: &mut Map<String, Value>, source: Option<&Value>, field: &str) {
    match source.and_then(|source| source.get(field)) {
        Some(value) => target.insert(field.to_owned(), value.clone()),
        None => target.remove(field),
    };
}

/// `metadata.finalizers`.
pub(crate) fn finalizers(object: &Value) -> Vec<&str> {
    strings(object.pointer("/metadata/finalizers"))
}

/// The strings of an array; anything else counts as empty.
pub(crate) fn strings(array: Option<&Value>) -> Vec<&str> {
    array
        .and_then(Value::as_array)
        .map(|array| array.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default()
}

/// Whether `metadata.deletionTimestamp` is set.
pub(crate) fn is_deleting(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some_and(|stamp| !stamp.is_null())
}

/// Removes what means the same as absence: nulls anywhere, and empty lists and maps of the metadata.
/// Without this, `kubectl apply` of an unchanged manifest with `annotations: {}` would count as a write.
pub(crate) fn normalise(object: &mut Value) {
    // What is in a revision is not the server's to tidy up.
    let opaque =
        if object.get("kind").is_some_and(|kind| kind == "ControllerRevision") { "data" } else { "" };
    if let Some(map) = object.as_object_mut() {
        map.retain(|_, value| !value.is_null());
        map.iter_mut().filter(|(field, _)| *field != opaque).for_each(|(_, value)| drop_nulls(value));
    }
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.remove("selfLink");
        metadata.retain(|_, value| match value {
            Value::Object(map) => !map.is_empty(),
            Value::Array(array) => !array.is_empty(),
            Value::String(string) => !string.is_empty(),
            _ => true,
        });
    }
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(drop_nulls);
        }
        Value::Array(array) => array.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_annotation_map_is_the_same_as_none() {
        let mut object = json!({"metadata": {"name": "a", "annotations": {}, "creationTimestamp": null}});
        normalise(&mut object);
        assert_eq!(object, json!({"metadata": {"name": "a"}}));
    }

    #[test]
    fn an_empty_map_outside_the_metadata_keeps_its_meaning() {
        let mut object = json!({"spec": {"volumes": [{"name": "a", "emptyDir": {}}]}});
        normalise(&mut object);
        assert_eq!(object, json!({"spec": {"volumes": [{"name": "a", "emptyDir": {}}]}}));
    }
}
