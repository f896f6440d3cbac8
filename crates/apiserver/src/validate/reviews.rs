//! Questions about rights (upstream `pkg/apis/authorization/validation`).

use serde_json::Value;

use super::errors::{Errors, text};
use super::internal_types;

/// The rights of the client itself.
pub(crate) fn of_self(review: &Value, errors: &mut Errors) {
    let spec = &review["spec"];
    let (resource, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    if resource.is_object() && path.is_object() {
        let shown = internal_types::shown("NonResourceAttributes", path);
        let why = "cannot be specified in combination with resourceAttributes";
        errors.invalid_shown("spec.nonResourceAttributes", &shown, why);
    }
    if resource.is_null() && path.is_null() {
        let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        errors.invalid("spec.resourceAttributes", Value::Null, why);
    }
}

/// The rights of somebody.
pub(crate) fn of_subject(review: &Value, errors: &mut Errors) {
    of_self(review, errors);
    let spec = &review["spec"];
    if text(spec, "user").is_empty() && spec["groups"].as_array().is_none_or(Vec::is_empty) {
        errors.invalid("spec.user", "", "at least one of user or group must be specified");
    }
}

/// The same in one namespace.
pub(crate) fn of_subject_in_namespace(review: &Value, errors: &mut Errors) {
    of_subject(review, errors);
    let (resource, path) = (&review["spec"]["resourceAttributes"], &review["spec"]["nonResourceAttributes"]);
    let namespace = text(resource, "namespace");
    if resource.is_object() && namespace != text(&review["metadata"], "namespace") {
        errors.invalid("spec.resourceAttributes.namespace", namespace, "must match metadata.namespace");
    }
    if path.is_object() {
        let shown = internal_types::shown("NonResourceAttributes", path);
        errors.invalid_shown("spec.nonResourceAttributes", &shown, "disallowed on this kind of request");
    }
}
