//! Brings a custom object into the shape of its schema before it is validated: unknown fields go, and defaults come.

use serde_json::{Map, Value};

use super::schema::{Additional, Schema};

/// As many unknown fields are named to the client.
const MAX_REPORTS: usize = 100;

/// Fields of every object of the API, known to the server without a schema.
const OBJECT_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Removes unknown fields; returns one `unknown field "spec.a"` each.
pub(crate) fn prune(schema: &Schema, object: &mut Value) -> Vec<String> {
    let mut unknown = Vec::new();
    if let Some(map) = object.as_object_mut() {
        prune_fields(schema, map, true, "", &mut unknown);
    }
    unknown
}

fn prune_value(schema: &Schema, value: &mut Value, path: &str, unknown: &mut Vec<String>) {
    match (value, &schema.items) {
        (Value::Object(map), _) => prune_fields(schema, map, schema.embedded, path, unknown),
        (Value::Array(items), Some(item)) => {
            for (index, element) in items.iter_mut().enumerate() {
                prune_value(item, element, &format!("{path}[{index}]"), unknown);
            }
        }
        _ => {}
    }
}

fn prune_fields(
    schema: &Schema,
    map: &mut Map<String, Value>,
    is_object_of_the_api: bool,
    path: &str,
    unknown: &mut Vec<String>,
) {
    map.retain(|name, value| {
        if is_object_of_the_api && OBJECT_FIELDS.contains(&name.as_str()) {
            return true;
        }
        let below = || if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        match (schema.properties.get(name), &schema.additional) {
            (Some(property), _) => prune_value(property, value, &below(), unknown),
            (None, Some(Additional::Of(additional))) => prune_value(additional, value, &below(), unknown),
            (None, Some(Additional::Any | Additional::Nothing)) => {}
            (None, None) if schema.preserves => {}
            (None, None) => {
                if unknown.len() < MAX_REPORTS {
                    unknown.push(format!("unknown field {:?}", below()));
                }
                return false;
            }
        }
        true
    });
}

/// Fills in defaults. A null in a field that is not nullable counts as absent.
pub(crate) fn fill(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|name, value| {
                let property = match (schema.properties.get(name), &schema.additional) {
                    (Some(property), _) => Some(property),
                    (None, Some(Additional::Of(additional))) => Some(&**additional),
                    (None, _) => None,
                };
                !value.is_null() || property.is_none_or(|property| property.nullable)
            });
            for (name, property) in &schema.properties {
                if let (Some(default), false) = (&property.default, map.contains_key(name)) {
                    map.insert(name.clone(), default.clone());
                }
                if let Some(value) = map.get_mut(name) {
                    fill(property, value);
                }
            }
            if let Some(Additional::Of(additional)) = &schema.additional {
                let others = map.iter_mut().filter(|(name, _)| !schema.properties.contains_key(*name));
                others.for_each(|(_, value)| fill(additional, value));
            }
        }
        Value::Array(items) => {
            if let Some(item) = &schema.items {
                items.iter_mut().for_each(|element| fill(item, element));
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validate::Errors;

    fn schema(spec: Value) -> Schema {
        let mut errors = Errors::default();
        let schema = json!({"type": "object", "properties": {"spec": spec}});
        let schema = Schema::parse(&schema, "s", &mut errors);
        assert_eq!(errors.len(), 0);
        schema
    }

    #[test]
    fn unknown_fields_go_unless_they_are_preserved() {
        let schema = schema(json!({"type": "object", "properties": {
            "size": {"type": "integer"},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        }}));
        let mut object = json!({
            "metadata": {"name": "a"},
            "spec": {"size": 1, "sise": 2, "free": {"x": {"y": 1}}, "labels": {"a": "b"}},
            "other": {},
        });
        let mut unknown = prune(&schema, &mut object);
        unknown.sort();
        assert_eq!(unknown, ["unknown field \"other\"", "unknown field \"spec.sise\""]);
        let spec = json!({"size": 1, "free": {"x": {"y": 1}}, "labels": {"a": "b"}});
        assert_eq!(object, json!({"metadata": {"name": "a"}, "spec": spec}));
    }

    #[test]
    fn defaults_are_filled_in_from_the_outside_in() {
        let schema = schema(json!({"type": "object", "default": {}, "properties": {
            "size": {"type": "integer", "default": 1},
            "note": {"type": "string", "nullable": true, "default": "x"},
            "plain": {"type": "string"},
        }}));
        let mut object = json!({});
        fill(&schema, &mut object);
        assert_eq!(object, json!({"spec": {"size": 1, "note": "x"}}));
        let mut object = json!({"spec": {"size": null, "note": null, "plain": null}});
        fill(&schema, &mut object);
        assert_eq!(object, json!({"spec": {"size": 1, "note": null}}));
    }
}
