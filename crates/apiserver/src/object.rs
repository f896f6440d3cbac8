//! A stored object and the few fields of every object that the server itself reads and writes.
//!
//! An object is stored once, as its JSON text, [`packed`] when it is cold: a tree of a pod takes ten times as much memory.
//! [`recent`] keeps the trees of the objects that were used last, because a write is followed by its watches and by the next
//! write.

mod packed;
pub(crate) mod recent;

use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use self::packed::Text;
use self::recent::{Decoded, Recent};
use crate::protobuf::write;

/// A deeper tree is kept beside its text: reading JSON stops at 128 levels.
const MAX_READ_DEPTH: usize = 100;

/// Most objects have less text.
const USUAL_SIZE: usize = 8 << 10;

/// An object as of one revision. Immutable: a write stores another one.
#[derive(Debug)]
pub(crate) struct Object {
    text: Arc<Text>,
    /// The tree, while it is recent.
    decoded: Mutex<Weak<Decoded>>,
    /// The tree of an object whose text does not read back as the same tree.
    pinned: Option<Arc<Decoded>>,
    recent: Arc<Recent>,
}

impl Object {
    /// An object that is not stored, such as the outcome of a dry run.
    pub(crate) fn new(value: Value) -> Self {
        let text = Text::plain(escaped(&value));
        Self::of(value, text, Arc::default())
    }

    pub(crate) fn stored(value: Value, recent: Arc<Recent>) -> Self {
        let text = recent.packer.keep(text(&value, "/kind"), escaped(&value));
        Self::of(value, text, recent)
    }

    fn of(value: Value, text: Arc<Text>, recent: Arc<Recent>) -> Self {
        let pins = !reads_back(&value, 0);
        // An event is seldom read again, and there are more of them than of what is.
        let is_event = value.get("kind").is_some_and(|kind| kind == "Event");
        let decoded = Arc::new(Decoded::new(value));
        if !is_event {
            recent.add(text.size(), decoded.clone());
        }
        let (weak, pinned) = (Arc::downgrade(&decoded), pins.then_some(decoded));
        Object { text, decoded: Mutex::new(weak), pinned, recent }
    }

    /// The cache that has the tree.
    pub(crate) fn recent(&self) -> &Arc<Recent> {
        &self.recent
    }

    /// The tree, which is remembered: for an object that is about to be written.
    pub(crate) fn value(&self) -> Arc<Value> {
        self.decoded().value.clone()
    }

    /// The tree without remembering it: for one of many objects that are looked at once.
    pub(crate) fn peek(&self) -> Arc<Value> {
        match self.known() {
            Some(decoded) => decoded.value.clone(),
            None => Arc::new(self.parse()),
        }
    }

    /// The object as JSON.
    pub(crate) fn text(&self) -> Bytes {
        self.text.bytes()
    }

    /// The text of `metadata`.
    pub(crate) fn metadata(&self) -> Bytes {
        #[derive(Deserialize)]
        struct Part<'a> {
            #[serde(borrow)]
            metadata: &'a RawValue,
        }
        let text = self.text();
        match serde_json::from_slice::<Part<'_>>(&text) {
            Ok(part) => text.slice_ref(part.metadata.get().as_bytes()),
            Err(_) => Bytes::from_static(b"{}"),
        }
    }

    /// The metadata alone as a protobuf message.
    pub(crate) fn metadata_message(&self) -> Bytes {
        match self.known() {
            Some(decoded) => write::metadata(&decoded.value["metadata"]),
            None => write::metadata(&serde_json::from_slice(&self.metadata()).unwrap_or_default()),
        }
    }

    /// `metadata.labels`, without reading the rest.
    pub(crate) fn labels(&self) -> Value {
        #[derive(Deserialize)]
        struct Labels {
            #[serde(default)]
            labels: Value,
        }
        if let Some(decoded) = self.known() {
            return decoded.value.pointer("/metadata/labels").cloned().unwrap_or_default();
        }
        serde_json::from_slice(&self.metadata()).map_or(Value::Null, |Labels { labels }| labels)
    }

    /// The object as a protobuf message, encoded once for all watches that deliver it soon after the write.
    pub(crate) fn message(&self) -> Bytes {
        match self.known() {
            Some(decoded) => decoded.message(),
            None => Decoded::new(self.parse()).message(),
        }
    }

    /// How many bytes the text has.
    pub(crate) fn size(&self) -> usize {
        self.text.size()
    }

    /// The tree, if it is recent. Nothing is locked while it is used.
    fn known(&self) -> Option<Arc<Decoded>> {
        self.decoded.lock().upgrade()
    }

    fn decoded(&self) -> Arc<Decoded> {
        if let Some(pinned) = &self.pinned {
            return pinned.clone();
        }
        let mut known = self.decoded.lock();
        known.upgrade().unwrap_or_else(|| {
            let decoded = Arc::new(Decoded::new(self.parse()));
            *known = Arc::downgrade(&decoded);
            self.recent.add(self.size(), decoded.clone());
            decoded
        })
    }

    fn parse(&self) -> Value {
        match &self.pinned {
            Some(pinned) => Value::clone(&pinned.value),
            None => serde_json::from_slice(&self.text()).unwrap_or_default(),
        }
    }
}

/// Whether the text of a value is read as the same value: numbers with a fraction can change in the last digit, and a
/// deep tree is not read at all.
fn reads_back(value: &Value, depth: usize) -> bool {
    match value {
        Value::Number(number) => !number.is_f64(),
        Value::Array(items) => depth < MAX_READ_DEPTH && items.iter().all(|item| reads_back(item, depth + 1)),
        Value::Object(map) => {
            depth < MAX_READ_DEPTH && map.values().all(|value| reads_back(value, depth + 1))
        }
        Value::Null | Value::Bool(_) | Value::String(_) => true,
    }
}

/// Any value as compact JSON. Values built here have string keys only, so this cannot fail; were it
/// ever to, the client would see an empty body rather than the server a panic.
pub(crate) fn to_bytes(value: &Value) -> Bytes {
    serde_json::to_vec(value).map(Bytes::from).unwrap_or_default()
}

/// The JSON of a stored object, with `<`, `>`, `&` and the two line separators of Unicode written as Go writes them.
/// kubectl compares the data of revisions by their bytes. The allocation has the size of the text: it may live long.
fn escaped(value: &Value) -> Bytes {
    let mut text = Vec::with_capacity(USUAL_SIZE);
    if serde_json::to_writer(&mut text, value).is_err() {
        text.clear();
    }
    let special = |byte: &u8| matches!(byte, b'<' | b'>' | b'&' | 0xe2);
    if !text.iter().any(special) {
        return Bytes::copy_from_slice(&text);
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
    Bytes::copy_from_slice(&written)
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
        // To compare is cheaper than to copy.
        same if same == target.get(field) => {}
        Some(value) => drop(target.insert(field.to_owned(), value.clone())),
        None => drop(target.remove(field)),
    }
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
    // The content of a revision is not the server's to tidy up.
    let opaque =
        if object.get("kind").is_some_and(|kind| kind == "ControllerRevision") { "data" } else { "" };
    if let Some(map) = object.as_object_mut() {
        map.retain(|_, value| !value.is_null());
        map.iter_mut().filter(|(field, _)| *field != opaque).for_each(|(_, value)| drop_nulls(value));
    }
    tidy_metadata(object);
}

/// The same for the metadata only: a null in a custom object can be a value.
pub(crate) fn tidy_metadata(object: &mut Value) {
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.remove("selfLink");
        metadata.values_mut().for_each(drop_nulls);
        metadata.retain(|_, value| match value {
            Value::Object(map) => !map.is_empty(),
            Value::Array(array) => !array.is_empty(),
            Value::String(string) => !string.is_empty(),
            Value::Null => false,
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
    fn an_object_reads_back_as_it_was_written_after_its_tree_is_forgotten() {
        let deep = (0..126).fold(json!("<&>\u{2028}"), |inner, _| json!([inner]));
        for value in
            [json!({"data": {"a": "<b>", "n": -1}}), json!({"n": 5e-324, "m": 0.1}), json!({"deep": deep})]
        {
            let object = Object::new(value.clone());
            assert_eq!(*object.value(), value);
            // Larger than everything that is remembered.
            object.recent.add(usize::MAX, Arc::new(Decoded::new(json!(1))));
            object.recent.add(usize::MAX, Arc::new(Decoded::new(json!(2))));
            object.text.pack();
            assert_eq!((&*object.peek(), &*object.value()), (&value, &value));
        }
    }

    #[test]
    fn labels_and_metadata_are_read_without_the_rest() {
        let object = Object::new(json!({"metadata": {"labels": {"a": "<"}, "name": "x"}, "spec": {}}));
        for _ in 0..2 {
            assert_eq!(object.labels(), json!({"a": "<"}));
            assert_eq!(object.metadata(), "{\"labels\":{\"a\":\"\\u003c\"},\"name\":\"x\"}");
            // Larger than everything that is remembered.
            object.recent.add(usize::MAX, Arc::new(Decoded::new(json!(1))));
            object.recent.add(usize::MAX, Arc::new(Decoded::new(json!(2))));
            object.text.pack();
        }
        assert_eq!(Object::new(json!({"metadata": {"name": "x"}})).labels(), Value::Null);
    }

    #[test]
    fn an_empty_map_outside_the_metadata_keeps_its_meaning() {
        let mut object = json!({"spec": {"volumes": [{"name": "a", "emptyDir": {}}]}});
        normalise(&mut object);
        assert_eq!(object, json!({"spec": {"volumes": [{"name": "a", "emptyDir": {}}]}}));
    }
}
