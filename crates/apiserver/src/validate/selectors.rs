//! Selectors of labels, in whatever kind they stand.

use serde_json::Value;

use super::errors::{Errors, elements, text};
use super::{metadata, names};

/// A selector in the order of the fields of its Go type.
pub(super) fn shown(selector: &Value) -> String {
    let in_order = |object: &Value, fields: &[(&str, String)]| {
        let given = fields.iter().filter(|(field, _)| !object[*field].is_null() || *field == "operator");
        let given: Vec<String> = given.map(|(field, value)| format!("{field:?}:{value}")).collect();
        format!("{{{}}}", given.join(","))
    };
    let expressions = selector["matchExpressions"].as_array().into_iter().flatten().map(|expression| {
        let value = |field: &str| expression[field].to_string();
        let operator = format!("{:?}", text(expression, "operator"));
        in_order(expression, &[("key", value("key")), ("operator", operator), ("values", value("values"))])
    });
    let expressions = format!("[{}]", expressions.collect::<Vec<_>>().join(","));
    let labels = selector["matchLabels"].to_string();
    in_order(selector, &[("matchLabels", labels), ("matchExpressions", expressions)])
}

/// A `metav1.LabelSelector` (apimachinery `apis/meta/v1/validation`).
pub(super) fn label_selector(selector: &Value, path: &str, errors: &mut Errors) {
    metadata::labels(&selector["matchLabels"], &format!("{path}.matchLabels"), errors);
    for (path, expression) in elements(selector, "matchExpressions", path) {
        let values = expression["values"].as_array().map(Vec::as_slice).unwrap_or_default();
        match text(expression, "operator") {
            "In" | "NotIn" if values.is_empty() => errors
                .required(&format!("{path}.values"), "must be specified when `operator` is 'In' or 'NotIn'"),
            "Exists" | "DoesNotExist" if !values.is_empty() => errors.forbidden(
                &format!("{path}.values"),
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            ),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => errors.invalid(&format!("{path}.operator"), other, "not a valid selector operator"),
        }
        let key = text(expression, "key");
        errors.each_invalid(&format!("{path}.key"), key, names::label_key(key));
        for (path, value) in elements(expression, "values", &path) {
            let value = value.as_str().unwrap_or_default();
            errors.each_invalid(&path, value, names::label_value(value));
        }
    }
}
