//! The errors of a validation, and how it reads the fields that it judges.

use std::fmt;

use serde_json::Value;

/// One reason why an object is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// The path of the field: `spec.template.spec.containers[0].image`.
    pub field: String,
    /// The machine-readable cause, such as `FieldValueInvalid`.
    pub reason: &'static str,
    /// The explanation: `Invalid value: -1: must be greater than or equal to 0`.
    pub detail: String,
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.detail)
    }
}

/// Collects errors; one method per cause, as in apimachinery's `field` package.
#[derive(Default)]
pub(crate) struct Errors(Vec<FieldError>);

impl Errors {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn into_vec(self) -> Vec<FieldError> {
        self.0
    }

    pub(crate) fn append(&mut self, others: Errors) {
        self.0.extend(others.0);
    }

    pub(crate) fn push(&mut self, field: &str, reason: &'static str, detail: String) {
        self.0.push(FieldError { field: field.to_owned(), reason, detail });
    }

    pub(crate) fn required(&mut self, field: &str, why: &str) {
        let detail =
            if why.is_empty() { "Required value".to_owned() } else { format!("Required value: {why}") };
        self.push(field, "FieldValueRequired", detail);
    }

    /// `value` is written as JSON, so strings are quoted.
    pub(crate) fn invalid(&mut self, field: &str, value: impl Into<Value>, why: impl fmt::Display) {
        let value: Value = value.into();
        self.push(field, "FieldValueInvalid", format!("Invalid value: {value}: {why}"));
    }

    /// The same for a value that is no JSON of the API: the fields have the names and the order of a Go type.
    pub(crate) fn invalid_shown(&mut self, field: &str, shown: &str, why: &str) {
        self.push(field, "FieldValueInvalid", format!("Invalid value: {shown}: {why}"));
    }

    /// The same for a value that is not shown.
    pub(crate) fn invalid_hidden(&mut self, field: &str, why: &str) {
        self.push(field, "FieldValueInvalid", format!("Invalid value: {why}"));
    }

    /// Appends what is wrong with the value of `field`: the paths of these errors begin within the value.
    pub(crate) fn append_within(&mut self, field: &str, others: Errors) {
        self.0.extend(others.0.into_iter().map(|error| {
            let whole = matches!(error.field.as_str(), "" | "<nil>");
            let field = if whole { field.to_owned() } else { format!("{field}.{}", error.field) };
            FieldError { field, ..error }
        }));
    }

    pub(crate) fn each_invalid(&mut self, field: &str, value: &str, errors: Vec<String>) {
        for why in errors {
            self.invalid(field, value, why);
        }
    }

    pub(crate) fn forbidden(&mut self, field: &str, why: &str) {
        self.push(field, "FieldValueForbidden", format!("Forbidden: {why}"));
    }

    pub(crate) fn duplicate(&mut self, field: &str, value: impl Into<Value>) {
        let value: Value = value.into();
        self.push(field, "FieldValueDuplicate", format!("Duplicate value: {value}"));
    }

    /// The same with a reason, for a value whose fields have the names and the order of a Go type.
    pub(crate) fn duplicate_shown(&mut self, field: &str, shown: &str, why: &str) {
        self.push(field, "FieldValueDuplicate", format!("Duplicate value: {shown}: {why}"));
    }

    pub(crate) fn not_found(&mut self, field: &str, value: &str) {
        self.push(field, "FieldValueNotFound", format!("Not found: {value:?}"));
    }

    pub(crate) fn not_supported(&mut self, field: &str, value: impl Into<Value>, supported: &[&str]) {
        let value: Value = value.into();
        let supported: Vec<String> = supported.iter().map(|value| format!("{value:?}")).collect();
        let detail = format!("Unsupported value: {value}: supported values: {}", supported.join(", "));
        self.push(field, "FieldValueNotSupported", detail);
    }

    /// The same for a value that is no JSON of the API: the fields have the names and the order of a Go type.
    pub(crate) fn not_supported_shown(&mut self, field: &str, shown: &str, supported: &[&str]) {
        let supported: Vec<String> = supported.iter().map(|value| format!("{value:?}")).collect();
        let detail = format!("Unsupported value: {shown}: supported values: {}", supported.join(", "));
        self.push(field, "FieldValueNotSupported", detail);
    }

    pub(crate) fn too_long(&mut self, field: &str, limit: usize) {
        self.push(field, "FieldValueTooLong", format!("Too long: may not be more than {limit} bytes"));
    }

    pub(crate) fn too_many(&mut self, field: &str, number: usize, limit: usize) {
        let items = if limit == 1 { "item" } else { "items" };
        let detail = format!("Too many: {number}: must have at most {limit} {items}");
        self.push(field, "FieldValueTooMany", detail);
    }

    /// Absent counts as zero.
    pub(crate) fn non_negative(&mut self, field: &str, value: &Value) {
        if let Some(number) = value.as_i64().filter(|number| *number < 0) {
            self.invalid(field, number, "must be greater than or equal to 0");
        }
    }

    /// A text out of a fixed set; absent is the caller's business.
    pub(crate) fn one_of(&mut self, field: &str, value: &Value, supported: &[&str]) {
        if let Some(text) = value.as_str()
            && !supported.contains(&text)
        {
            self.not_supported(field, text, supported);
        }
    }

    pub(crate) fn immutable(&mut self, field: &str, new: &Value, old: &Value) {
        if essence(new) != essence(old) {
            self.invalid(field, new.clone(), "field is immutable");
        }
    }
}

/// A text field; absent is empty, as in Go.
pub(super) fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object[field].as_str().unwrap_or_default()
}

/// The elements of a list with their paths.
pub(super) fn elements<'a>(
    object: &'a Value,
    field: &str,
    path: &str,
) -> impl Iterator<Item = (String, &'a Value)> + use<'a> {
    let path = if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") };
    let items = object[field].as_array().map(Vec::as_slice).unwrap_or_default();
    items.iter().enumerate().map(move |(index, item)| (format!("{path}[{index}]"), item))
}

/// The value without what Go does not tell from "absent": nulls, empty lists and empty maps.
pub(super) fn essence(value: &Value) -> Value {
    let nothing = |value: &Value| match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    };
    match value {
        Value::Object(map) => {
            let kept = map.iter().map(|(key, value)| (key.clone(), essence(value)));
            Value::Object(kept.filter(|(_, value)| !nothing(value)).collect())
        }
        Value::Array(items) => items.iter().map(essence).collect(),
        other => other.clone(),
    }
}
