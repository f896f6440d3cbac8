//! Warnings of CustomResourceDefinitions.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Warnings;
use crate::custom::formats;

/// Keys of a schema with one schema, with several, and with one for each name.
const ONE: [&str; 4] = ["items", "not", "additionalProperties", "additionalItems"];
const SEVERAL: [&str; 4] = ["allOf", "anyOf", "oneOf", "items"];
const NAMED: [&str; 4] = ["properties", "patternProperties", "definitions", "dependencies"];

/// Formats that are not known, unless the definition had them before.
pub(crate) fn unknown_formats(new: &Value, old: Option<&Value>, warnings: &mut Warnings) {
    let before = old.map(unknown).unwrap_or_default();
    for format in unknown(new).difference(&before) {
        warnings.add(format!("unrecognized format {format:?}"));
    }
}

fn unknown(definition: &Value) -> BTreeSet<&str> {
    let mut found = BTreeSet::new();
    for version in definition["spec"]["versions"].as_array().into_iter().flatten() {
        search(&version["schema"]["openAPIV3Schema"], &mut found);
    }
    found
}

fn search<'a>(schema: &'a Value, found: &mut BTreeSet<&'a str>) {
    let format = schema["format"].as_str().filter(|format| !format.is_empty());
    let of = schema["type"].as_str().unwrap_or("");
    found.extend(format.filter(|format| !formats::is_known(of, format)));
    ONE.iter().for_each(|key| search_in(&schema[key], found));
    for key in SEVERAL {
        schema[key].as_array().into_iter().flatten().for_each(|schema| search(schema, found));
    }
    for key in NAMED {
        schema[key].as_object().into_iter().flatten().for_each(|(_, schema)| search_in(schema, found));
    }
}

/// A schema, and not a list or a truth value in its place.
fn search_in<'a>(schema: &'a Value, found: &mut BTreeSet<&'a str>) {
    if schema.is_object() {
        search(schema, found);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn formats_that_nothing_checks_are_named_once_wherever_they_are() {
        let definition = |more: &str| {
            json!({"spec": {"versions": [{"schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "a": {"type": "string", "format": "int64"}, "b": {"type": "integer", "format": "int64"},
                "c": {"type": "array", "items": {"type": "number", "format": "decimal"}},
                "d": {"type": "object", "format": "date", "additionalProperties": {"format": "date-time"}},
                "e": {"anyOf": [{"type": "string", "format": more}]}}}}}]}})
        };
        let mut warnings = Warnings::default();
        unknown_formats(&definition("k8s-short-name"), None, &mut warnings);
        let expected = ["date", "decimal", "int64"].map(|format| format!("unrecognized format {format:?}"));
        assert_eq!(warnings.into_vec(), expected);
        let mut warnings = Warnings::default();
        unknown_formats(&definition("cid"), Some(&definition("cidr")), &mut warnings);
        assert_eq!(warnings.into_vec(), ["unrecognized format \"cid\""]);
    }
}
