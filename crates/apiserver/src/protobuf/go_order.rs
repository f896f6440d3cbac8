//! Objects as the JSON of a real server, whose fields stand in the order of the Go types: that of the tables.

use std::fmt::Write as _;

use serde_json::Value;

use super::message_of;
use super::table::{Field, message};

/// An entry of managedFields, which no protobuf body has here.
const OWNER: [&str; 7] =
    ["manager", "operation", "apiVersion", "time", "fieldsType", "fieldsV1", "subresource"];

/// The type of a value, as far as the tables know it.
#[derive(Clone, Copy)]
enum Type<'a> {
    Message(&'a str),
    Map(&'a str),
    Owner,
    Unknown,
}

/// An object after a patch. A real server sorts the fields of each object that the patch passed through: `patch` has the
/// same objects, and something else in the place of a value that it set.
pub(crate) fn text(api_version: &str, kind: &str, object: &Value, patch: &Value) -> String {
    let mut text = String::new();
    append(&mut text, object, Some(patch), Type::Message(message_of(api_version, kind)));
    escaped(&text)
}

/// An object of a custom kind, or anything else that has no order of its own.
pub(crate) fn sorted(object: &Value) -> String {
    escaped(&object.to_string())
}

/// Go writes these so that the text may stand in HTML.
fn escaped(text: &str) -> String {
    let text = text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
    text.replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}

fn append(text: &mut String, value: &Value, patch: Option<&Value>, of: Type<'_>) {
    let within = |key: &str| match patch {
        Some(Value::Object(patch)) => patch.get(key),
        other => other,
    };
    match value {
        Value::Object(map) => {
            let mut entries: Vec<(&String, &Value)> = map.iter().collect();
            if patch.is_none() {
                let order = order_of(of);
                entries.sort_by_key(|(key, _)| {
                    order.iter().position(|name| *name == key.as_str()).unwrap_or(usize::MAX)
                });
            }
            for (position, (key, value)) in entries.into_iter().enumerate() {
                text.push(if position == 0 { '{' } else { ',' });
                let _ = write!(text, "{}:", Value::from(key.as_str()));
                append(text, value, within(key), type_in(of, key));
            }
            text.push_str(if map.is_empty() { "{}" } else { "}" });
        }
        Value::Array(items) => {
            text.push('[');
            for (position, item) in items.iter().enumerate() {
                if position > 0 {
                    text.push(',');
                }
                append(text, item, within(&position.to_string()), of);
            }
            text.push(']');
        }
        scalar => {
            let _ = write!(text, "{scalar}");
        }
    }
}

fn fields_of(name: &str) -> Vec<Field> {
    let fields = message(name).map(|message| message.fields()).unwrap_or_default();
    let flat = |field: &Field| if field.name == "." { fields_of(field.kind) } else { vec![*field] };
    fields.iter().flat_map(flat).collect()
}

fn order_of(of: Type<'_>) -> Vec<&'static str> {
    match of {
        Type::Message(name) => fields_of(name).into_iter().map(|field| field.name).collect(),
        Type::Owner => OWNER.to_vec(),
        Type::Map(_) | Type::Unknown => Vec::new(),
    }
}

fn type_in<'a>(of: Type<'a>, key: &str) -> Type<'a> {
    match of {
        Type::Map(name) => Type::Message(name),
        Type::Message("ObjectMeta") if key == "managedFields" => Type::Owner,
        Type::Message(name) => match fields_of(name).into_iter().find(|field| field.name == key) {
            Some(field) if field.map => Type::Map(field.kind),
            Some(field) => Type::Message(field.kind),
            // Every object has them, of a kind in the tables or not.
            None if key == "metadata" => Type::Message("ObjectMeta"),
            None => Type::Unknown,
        },
        Type::Owner | Type::Unknown => Type::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Parts of what a kube-apiserver 1.36 shows.
    #[test]
    fn what_a_patch_passes_through_is_sorted_and_the_rest_is_in_the_order_of_go() {
        let object = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {
                "annotations": {"z": "<&>", "a": ""}, "creationTimestamp": "T", "name": "s", "uid": "U",
                "managedFields": [{"apiVersion": "v1", "manager": "m", "operation": "Update"}],
            },
            "spec": {
                "clusterIP": "10.0.0.1", "type": "ClusterIP",
                "ports": [{"port": 80, "name": "a"}, {"port": "x", "name": "b"}],
            },
        });
        let metadata = r#""metadata":{"name":"s","uid":"U","creationTimestamp":"T","annotations":{"a":"","z":"\u003c\u0026\u003e"},"managedFields":[{"manager":"m","operation":"Update","apiVersion":"v1"}]}"#;
        let passed = json!({"spec": {"ports": {"1": {"port": null}}}});
        assert_eq!(
            text("v1", "Service", &object, &passed),
            format!(
                r#"{{"apiVersion":"v1","kind":"Service",{metadata},"spec":{{"clusterIP":"10.0.0.1","ports":[{{"name":"a","port":80}},{{"name":"b","port":"x"}}],"type":"ClusterIP"}}}}"#
            )
        );
        assert_eq!(
            text("v1", "Service", &object, &json!({})),
            format!(
                r#"{{"apiVersion":"v1","kind":"Service",{metadata},"spec":{{"ports":[{{"name":"a","port":80}},{{"name":"b","port":"x"}}],"clusterIP":"10.0.0.1","type":"ClusterIP"}}}}"#
            )
        );
        assert!(sorted(&object).contains(r#""metadata":{"annotations":{"a":"","z":"\u003c"#));
    }
}
