//! Fills in single fields.

use serde_json::{Map, Value, json};

use crate::strict::kept;

pub(super) type Object = Map<String, Value>;

/// Sets a field that is absent, or an empty string that Go does not tell from that.
pub(super) fn fill(object: &mut Object, field: &str, value: impl Into<Value>) {
    if object.get(field).is_none_or(|value| value.is_null() || (value == "" && !kept::is_kept(field))) {
        object.insert(field.to_owned(), value.into());
    }
}

/// Sets a map that is absent or empty.
pub(super) fn fill_map(object: &mut Object, field: &str, value: &Value) {
    if object.get(field).is_none_or(|value| value.is_null() || value.as_object().is_some_and(Map::is_empty)) {
        object.insert(field.to_owned(), value.clone());
    }
}

/// Sets a number that is absent or zero.
pub(super) fn fill_number(object: &mut Object, field: &str, value: impl Into<Value>) {
    if object.get(field).is_none_or(|value| value.is_null() || *value == 0) {
        object.insert(field.to_owned(), value.into());
    }
}

/// A list that came after a field for its first element, which old clients still write: the field decides.
pub(super) fn keep_in_step(object: &mut Object, first: &str, list: &str, wrap: fn(Value) -> Value) {
    let one = object.get(first).filter(|one| one.is_string() && *one != "").cloned();
    let head = object.get(list).and_then(|list| list.get(0)).cloned();
    match one.map(wrap) {
        Some(element) if head.as_ref() != Some(&element) => {
            object.insert(list.to_owned(), json!([element]));
        }
        Some(_) => {}
        None => {
            let one = head.map(|head| if head.is_object() { head["ip"].clone() } else { head });
            if let Some(one) = one.filter(Value::is_string) {
                object.insert(first.to_owned(), one);
            }
        }
    }
}

/// Removes a list that is empty: protobuf, in which a server stores it, does not tell it from none.
pub(super) fn remove_empty_list(object: &mut Object, field: &str) {
    if object.get(field).and_then(Value::as_array).is_some_and(Vec::is_empty) {
        object.remove(field);
    }
}

/// The object in a field, created if the field is absent; `None` if something else is there.
pub(super) fn ensure<'a>(object: &'a mut Object, field: &str) -> Option<&'a mut Object> {
    fill(object, field, json!({}));
    child(object, field)
}

pub(super) fn child<'a>(object: &'a mut Object, field: &str) -> Option<&'a mut Object> {
    object.get_mut(field)?.as_object_mut()
}

pub(super) fn objects<'a>(object: &'a mut Object, field: &str) -> impl Iterator<Item = &'a mut Object> {
    object.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}
