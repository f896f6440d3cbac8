//! Validation of values by a structural schema, in the words that users know (upstream
//! `k8s.io/kube-openapi/pkg/validation`).

use std::collections::BTreeSet;

use serde_json::Value;

use super::formats;
use super::schema::{Additional, ListType, Range, Rules, Schema, Type};
use crate::validate::Errors;

/// The path of errors about a value as a whole.
const NO_PATH: &str = "<nil>";
/// Nobody reads more errors than that.
const MAX_ERRORS: usize = 100;

/// Adds what is wrong with a custom object, metadata apart.
pub(crate) fn object(schema: &Schema, object: &Value, errors: &mut Errors) {
    // Its type is known, and the metadata have been checked.
    fields(schema, object, "", errors);
    rules(&schema.rules, object, "", errors);
}

/// Adds what is wrong with one value.
pub(super) fn value(schema: &Schema, value: &Value, path: &str, errors: &mut Errors) {
    if errors.len() >= MAX_ERRORS || (value.is_null() && schema.nullable) {
        return;
    }
    let has_type = has_type(schema, value);
    if !has_type {
        wrong_type(schema, value, path, errors);
    }
    if value.is_number() && matches!(schema.kind, Some(Type::Integer | Type::Number)) {
        range_of_format(schema, value, path, errors);
    } else if !has_type {
        return;
    }
    match value {
        Value::Object(_) => fields(schema, value, path, errors),
        Value::Array(items) => elements(schema, items, path, errors),
        _ => {}
    }
    rules(&schema.rules, value, path, errors);
}

fn has_type(schema: &Schema, value: &Value) -> bool {
    if schema.int_or_string {
        return value.is_string() || is_integer(value);
    }
    match schema.kind {
        None => true,
        Some(Type::Array) => value.is_array(),
        Some(Type::Boolean) => value.is_boolean(),
        Some(Type::Integer) => is_integer(value),
        Some(Type::Number) => value.is_number(),
        Some(Type::Object) => value.is_object(),
        Some(Type::String) => value.is_string(),
    }
}

/// A number without a fraction, however it is written.
fn is_integer(value: &Value) -> bool {
    value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0)
}

fn wrong_type(schema: &Schema, value: &Value, path: &str, errors: &mut Errors) {
    let format = schema.rules.format.as_str();
    let wanted = match schema.kind {
        Some(kind) if !schema.int_or_string => kind.name(),
        _ => "integer,string",
    };
    let has_format = formats::is_known(wanted, format) && !value.is_string() && !value.is_array();
    let wanted = if has_format { format } else { wanted };
    let found = match value {
        // Upstream compares formats then, and most types have none.
        Value::Number(_) if has_format => {
            if is_integer(value) {
                "int64"
            } else {
                "float64"
            }
        }
        _ if has_format => "",
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) if is_integer(value) => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let why = format!("{path} in body must be of type {wanted}: {found:?}");
    errors.push(path, "FieldValueTypeInvalid", format!("Invalid value: {found:?}: {why}"));
}

/// Upstream reports this at no path.
fn range_of_format(schema: &Schema, value: &Value, path: &str, errors: &mut Errors) {
    let (format, is_whole) = (schema.rules.format.as_str(), schema.kind == Some(Type::Integer));
    if formats::fits_number(format, value) && (!is_whole || is_integer(value)) {
        return;
    }
    let kind = if is_whole { "integer" } else { "number" };
    let format = match format {
        format if formats::is_known(kind, format) => format!("with format {format}"),
        _ => "(default format)".to_owned(),
    };
    errors.invalid(NO_PATH, "", format!("Checked value must be of type {kind} {format} in {path}"));
}

fn fields(schema: &Schema, object: &Value, path: &str, errors: &mut Errors) {
    if schema.embedded {
        for field in ["apiVersion", "kind"] {
            if object[field].as_str().unwrap_or_default().is_empty() {
                errors.required(&join(path, field), "must not be empty");
            }
        }
    }
    for (name, part) in object.as_object().into_iter().flatten() {
        let of_part = match (schema.properties.get(name), &schema.additional) {
            (Some(property), _) => property,
            (None, Some(Additional::Of(additional))) => additional,
            (None, Some(Additional::Nothing)) => {
                let why = format!("{} in body is a forbidden property", join(path, name));
                errors.invalid(path, name.as_str(), why);
                continue;
            }
            (None, _) => continue,
        };
        value(of_part, part, &join(path, name), errors);
    }
}

fn elements(schema: &Schema, items: &[Value], path: &str, errors: &mut Errors) {
    if let Some(item) = &schema.items {
        for (index, element) in items.iter().enumerate() {
            value(item, element, &format!("{path}[{index}]"), errors);
        }
    }
    let identity = |item: &Value| -> Option<Value> {
        match &schema.list {
            ListType::Atomic => None,
            ListType::Set => Some(item.clone()),
            ListType::Map(keys) => {
                let value = |key: &String| Some((key.clone(), item.get(key)?.clone()));
                Some(Value::Object(keys.iter().filter_map(value).collect()))
            }
        }
    };
    let mut seen = BTreeSet::new();
    for (index, item) in items.iter().enumerate() {
        if let Some(identity) = identity(item)
            && !seen.insert(identity.to_string())
        {
            errors.duplicate(&format!("{path}[{index}]"), identity);
        }
    }
}

fn rules(rules: &Rules, value: &Value, path: &str, errors: &mut Errors) {
    if !rules.allowed.is_empty() && !rules.allowed.contains(value) {
        // Upstream lists texts, and whatever else there is as a text in JSON.
        let shown = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let supported: Vec<String> = rules.allowed.iter().map(shown).collect();
        let supported: Vec<&str> = supported.iter().map(String::as_str).collect();
        errors.not_supported(path, value.clone(), &supported);
    }
    logic(rules, value, path, errors);
    match value {
        Value::Number(number) => {
            if let Some(number) = number.as_f64() {
                limits(rules, number, value, path, errors);
            }
        }
        Value::String(text) => strings(rules, text, path, errors),
        Value::Array(items) => count(rules.items, items.len(), path, "items", errors),
        Value::Object(map) => {
            count(rules.properties, map.len(), path, "properties", errors);
            for name in rules.required.iter().filter(|name| !map.contains_key(*name)) {
                errors.required(&join(path, name), "");
            }
        }
        Value::Null | Value::Bool(_) => {}
    }
}

fn limits(rules: &Rules, number: f64, value: &Value, path: &str, errors: &mut Errors) {
    let mut refuse =
        |why: String| errors.invalid(path, value.clone(), format!("{path} in body should be {why}"));
    match rules.minimum {
        Some(least) if rules.above_minimum && number <= least => refuse(format!("greater than {least}")),
        Some(least) if number < least => refuse(format!("greater than or equal to {least}")),
        _ => {}
    }
    match rules.maximum {
        Some(most) if rules.below_maximum && number >= most => refuse(format!("less than {most}")),
        Some(most) if number > most => refuse(format!("less than or equal to {most}")),
        _ => {}
    }
    if let Some(step) = rules.multiple_of {
        let quotient = number / step;
        if (quotient - quotient.round()).abs() > 1e-9 {
            refuse(format!("a multiple of {step}"));
        }
    }
}

fn strings(rules: &Rules, text: &str, path: &str, errors: &mut Errors) {
    let length = text.chars().count() as u64;
    if let Some(most) = rules.lengths.most.filter(|most| length > *most) {
        errors.too_long(path, usize::try_from(most).unwrap_or(usize::MAX));
    }
    let mut refuse = |why: String| errors.invalid(path, text, format!("{path} in body {why}"));
    if let Some(least) = rules.lengths.least.filter(|least| length < *least) {
        refuse(format!("should be at least {least} chars long"));
    }
    if let Some(pattern) = rules.pattern.as_ref().filter(|pattern| !pattern.is_match(text)) {
        refuse(format!("should match '{}'", pattern.as_str()));
    }
    if !formats::fits_text(&rules.format, text) {
        refuse(format!("must be of type {}: {text:?}", rules.format));
    }
}

fn count(range: Range, number: usize, path: &str, what: &str, errors: &mut Errors) {
    if let Some(least) = range.least.filter(|least| (number as u64) < *least) {
        errors.invalid(path, number, format!("{path} in body should have at least {least} {what}"));
    }
    if let Some(most) = range.most.filter(|most| number as u64 > *most) {
        errors.too_many(path, number, usize::try_from(most).unwrap_or(usize::MAX));
    }
}

/// Each alternative is judged once: what is judged twice at every level of nested alternatives takes for ever.
fn logic(rules: &Rules, value: &Value, path: &str, errors: &mut Errors) {
    let failures = |schema: &Schema| {
        let mut found = Errors::default();
        self::value(schema, value, path, &mut found);
        found
    };
    let all = |schemas: &[Schema]| schemas.iter().map(failures).collect::<Vec<Errors>>();
    let fitting = |found: &[Errors]| found.iter().filter(|errors| errors.len() == 0).count();
    // Upstream reports these at no path, and then why the best alternative does not fit: of several, mostly the first.
    let mut refuse = |why: &str, best: Option<Errors>| {
        errors.invalid(NO_PATH, "", format!("{path:?} must {why}"));
        best.into_iter().for_each(|found| errors.append(found));
    };
    let any = all(&rules.any_of);
    if !any.is_empty() && fitting(&any) == 0 {
        refuse("validate at least one schema (anyOf)", any.into_iter().next());
    }
    let one = all(&rules.one_of);
    let words = "validate one and only one schema (oneOf). Found";
    match fitting(&one) {
        _ if one.is_empty() => {}
        1 => {}
        0 => refuse(&format!("{words} none valid"), one.into_iter().next()),
        several => refuse(&format!("{words} {several} valid alternatives"), None),
    }
    let every = all(&rules.all_of);
    let (number, needed) = (fitting(&every), every.len());
    every.into_iter().for_each(|found| errors.append(found));
    if number < needed {
        let none = if number == 0 { ". None validated" } else { "" };
        errors.invalid(NO_PATH, "", format!("{path:?} must validate all the schemas (allOf){none}"));
    }
    if rules.not.as_deref().is_some_and(|schema| failures(schema).len() == 0) {
        errors.invalid(NO_PATH, "", format!("{path:?} must not validate the schema (not)"));
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The errors for `a` of a custom object whose schema says `schema` about it.
    #[track_caller]
    fn said(schema: Value, a: Value) -> Vec<String> {
        let mut errors = Errors::default();
        let schema = json!({"type": "object", "properties": {"a": schema}});
        let schema = Schema::parse(&schema, "s", &mut errors);
        assert_eq!(errors.len(), 0);
        object(&schema, &json!({"a": a}), &mut errors);
        errors.into_vec().iter().map(ToString::to_string).collect()
    }

    #[track_caller]
    fn check(schema: Value, a: Value, expected: &[&str]) {
        assert_eq!(said(schema, a), expected);
    }

    #[test]
    fn types_are_checked() {
        check(json!({"type": "integer"}), json!(1), &[]);
        let wrong = "a: Invalid value: \"string\": a in body must be of type integer: \"string\"";
        check(json!({"type": "integer"}), json!("x"), &[wrong]);
        check(json!({"type": "string", "nullable": true}), json!(null), &[]);
        check(json!({"x-kubernetes-int-or-string": true}), json!("50%"), &[]);
        let wrong = "a: Invalid value: \"boolean\": a in body must be of type integer,string: \"boolean\"";
        check(json!({"x-kubernetes-int-or-string": true}), json!(true), &[wrong]);
    }

    #[test]
    fn numbers_fit_into_their_format() {
        let at =
            |format: &str| format!("<nil>: Invalid value: \"\": Checked value must be of type {format} in a");
        check(
            json!({"type": "integer"}),
            json!(3.5),
            &[
                "a: Invalid value: \"number\": a in body must be of type integer: \"number\"",
                &at("integer (default format)"),
            ],
        );
        let small = json!({"type": "integer", "format": "int32", "maximum": 5});
        check(
            small.clone(),
            json!(7.5),
            &[
                "a: Invalid value: \"float64\": a in body must be of type int32: \"float64\"",
                &at("integer with format int32"),
                "a: Invalid value: 7.5: a in body should be less than or equal to 5",
            ],
        );
        check(
            small.clone(),
            json!(3_000_000_000_u32),
            &[
                &at("integer with format int32"),
                "a: Invalid value: 3000000000: a in body should be less than or equal to 5",
            ],
        );
        check(small, json!(true), &["a: Invalid value: \"\": a in body must be of type int32: \"\""]);
        let float = json!({"type": "number", "format": "float"});
        check(float, json!(1e300), &[&at("number with format float")]);
    }

    #[test]
    fn fields_are_refused_where_none_is_allowed() {
        let none = json!({"type": "object", "additionalProperties": false});
        check(none.clone(), json!({}), &[]);
        check(none, json!({"b": 1}), &["a: Invalid value: \"b\": a.b in body is a forbidden property"]);
    }

    #[test]
    fn numbers_have_limits() {
        let range = json!({"type": "integer", "minimum": 1, "maximum": 5, "exclusiveMaximum": true});
        check(range.clone(), json!(4), &[]);
        check(
            range.clone(),
            json!(0),
            &["a: Invalid value: 0: a in body should be greater than or equal to 1"],
        );
        check(range, json!(5), &["a: Invalid value: 5: a in body should be less than 5"]);
        let even = json!({"type": "integer", "multipleOf": 2});
        check(even, json!(3), &["a: Invalid value: 3: a in body should be a multiple of 2"]);
    }

    #[test]
    fn texts_have_lengths_patterns_and_formats() {
        let schema = json!({"type": "string", "minLength": 2, "pattern": "^[a-z]+$"});
        check(
            schema,
            json!("A"),
            &[
                "a: Invalid value: \"A\": a in body should be at least 2 chars long",
                "a: Invalid value: \"A\": a in body should match '^[a-z]+$'",
            ],
        );
        let time = json!({"type": "string", "format": "date-time"});
        check(time.clone(), json!("2026-01-01T00:00:00Z"), &[]);
        check(
            time,
            json!("now"),
            &["a: Invalid value: \"now\": a in body must be of type date-time: \"now\""],
        );
        let mode = json!({"type": "string", "enum": ["x", "y"]});
        check(mode, json!("z"), &["a: Unsupported value: \"z\": supported values: \"x\", \"y\""]);
        let short = json!({"type": "string", "maxLength": 1});
        check(short, json!("ab"), &["a: Too long: may not be more than 1 bytes"]);
    }

    #[test]
    fn lists_can_be_sets_and_maps() {
        let set = json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"});
        check(set, json!(["x", "x"]), &["a[1]: Duplicate value: \"x\""]);
        let map = json!({
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}},
        });
        check(
            map.clone(),
            json!([{"name": "x"}, {"name": "x"}]),
            &["a[1]: Duplicate value: {\"name\":\"x\"}"],
        );
        check(map, json!([{}]), &["a[0].name: Required value"]);
    }

    #[test]
    fn schemas_can_be_combined() {
        let any = json!({"type": "object", "properties": {"b": {"type": "string"}, "c": {"type": "string"}},
            "oneOf": [{"required": ["b"]}, {"required": ["c"]}]});
        check(any.clone(), json!({"b": "x"}), &[]);
        check(
            any,
            json!({"b": "x", "c": "x"}),
            &[
                "<nil>: Invalid value: \"\": \"a\" must validate one and only one schema (oneOf). Found 2 valid \
                 alternatives",
            ],
        );
        let not = json!({"type": "string", "not": {"enum": ["x"]}});
        check(not, json!("x"), &["<nil>: Invalid value: \"\": \"a\" must not validate the schema (not)"]);
        let all = json!({"type": "string", "allOf": [{"minLength": 3}]});
        check(
            all,
            json!("x"),
            &[
                "a: Invalid value: \"x\": a in body should be at least 3 chars long",
                "<nil>: Invalid value: \"\": \"a\" must validate all the schemas (allOf). None validated",
            ],
        );
        let some = json!({"type": "object", "properties": {"b": {"type": "string"}}, "minProperties": 1,
            "anyOf": [{"required": ["b"]}, {"required": ["c"]}]});
        check(
            some,
            json!({}),
            &[
                "<nil>: Invalid value: \"\": \"a\" must validate at least one schema (anyOf)",
                "a.b: Required value",
                "a: Invalid value: 0: a in body should have at least 1 properties",
            ],
        );
    }

    #[test]
    fn alternatives_within_alternatives_are_judged_once() {
        for keyword in ["allOf", "anyOf", "oneOf"] {
            let mut deep = (0..38).fold(json!({"minLength": 3}), |inner, _| json!({keyword: [inner]}));
            deep["type"] = json!("string");
            assert_eq!(said(deep, json!("x")).len(), 39, "{keyword}");
        }
    }
}
