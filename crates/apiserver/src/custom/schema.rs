//! The structural schema of a custom kind, read from `openAPIV3Schema` (KEP-1178, and upstream
//! `apiextensions-apiserver/pkg/apiserver/schema`).

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::str::Chars;

use regex_lite::Regex;
use serde_json::Value;

use super::{check, structural};
use crate::validate::Errors;

/// Deeper schemas are refused: walks over them are recursive.
const MAX_DEPTH: usize = 40;

/// Keywords of JSON schema that a CustomResourceDefinition may not use.
const FORBIDDEN: [&str; 6] =
    ["$ref", "id", "definitions", "dependencies", "patternProperties", "additionalItems"];

/// A value's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Array,
    Boolean,
    Integer,
    Number,
    Object,
    String,
}

impl Type {
    const ALL: [Type; 6] =
        [Type::Array, Type::Boolean, Type::Integer, Type::Number, Type::Object, Type::String];

    pub(super) fn name(self) -> &'static str {
        match self {
            Type::Array => "array",
            Type::Boolean => "boolean",
            Type::Integer => "integer",
            Type::Number => "number",
            Type::Object => "object",
            Type::String => "string",
        }
    }
}

/// How the elements of a list belong together (`x-kubernetes-list-type`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum ListType {
    #[default]
    Atomic,
    Set,
    Map(Vec<String>),
}

/// Fields beyond those of `properties`.
#[derive(Debug)]
pub(super) enum Additional {
    Any,
    /// None is allowed. They are refused and not pruned.
    Nothing,
    Of(Box<Schema>),
}

/// The limits of a value that say nothing about its structure.
#[derive(Debug, Default)]
pub(super) struct Rules {
    pub(super) required: Vec<String>,
    pub(super) allowed: Vec<Value>,
    pub(super) minimum: Option<f64>,
    pub(super) maximum: Option<f64>,
    pub(super) above_minimum: bool,
    pub(super) below_maximum: bool,
    pub(super) multiple_of: Option<f64>,
    pub(super) lengths: Range,
    pub(super) items: Range,
    pub(super) properties: Range,
    pub(super) pattern: Option<Regex>,
    pub(super) format: String,
    pub(super) all_of: Vec<Schema>,
    pub(super) any_of: Vec<Schema>,
    pub(super) one_of: Vec<Schema>,
    pub(super) not: Option<Box<Schema>>,
}

/// A smallest and a largest count.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Range {
    pub(super) least: Option<u64>,
    pub(super) most: Option<u64>,
}

/// The schema of a value.
#[derive(Debug, Default)]
pub(crate) struct Schema {
    pub(super) kind: Option<Type>,
    pub(super) int_or_string: bool,
    pub(super) nullable: bool,
    /// Unknown fields are kept (`x-kubernetes-preserve-unknown-fields`).
    pub(super) preserves: bool,
    /// The value is an object of the API (`x-kubernetes-embedded-resource`).
    pub(super) embedded: bool,
    pub(super) properties: BTreeMap<String, Schema>,
    pub(super) additional: Option<Additional>,
    pub(super) items: Option<Box<Schema>>,
    pub(super) default: Option<Value>,
    pub(super) list: ListType,
    pub(super) rules: Rules,
}

/// Where in a schema a schema is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position {
    Root,
    /// Describes a field of an object, so it needs a type.
    Field,
    /// Describes the items of a list, which need one as well.
    Item,
    /// Below `allOf`, `anyOf`, `oneOf` or `not`: only limits.
    Logic,
}

impl Schema {
    /// Reads the schema of a version. What is wrong with it is reported at `path`.
    pub(crate) fn parse(value: &Value, path: &str, errors: &mut Errors) -> Schema {
        let mut schema = read(value, path, Position::Root, 0, errors);
        if schema.kind.is_some_and(|kind| kind != Type::Object) {
            errors.invalid(&format!("{path}.type"), value["type"].clone(), "must be object at the root");
        }
        // The server checks the metadata itself.
        for field in ["apiVersion", "kind", "metadata"] {
            schema.properties.remove(field);
        }
        schema
    }
}

fn read(value: &Value, path: &str, position: Position, depth: usize, errors: &mut Errors) -> Schema {
    if depth > MAX_DEPTH {
        errors.forbidden(path, &format!("a schema may not be nested deeper than {MAX_DEPTH} levels"));
        return Schema { preserves: true, ..Schema::default() };
    }
    let flag = |name: &str| value[name] == true;
    let mut schema = Schema {
        kind: kind_of(value, path, errors),
        int_or_string: flag("x-kubernetes-int-or-string") || value["format"] == "int-or-string",
        nullable: flag("nullable"),
        preserves: flag("x-kubernetes-preserve-unknown-fields"),
        embedded: flag("x-kubernetes-embedded-resource"),
        ..Schema::default()
    };
    forbidden_keywords(value, path, errors);
    if position != Position::Logic && schema.kind == Some(Type::Array) && value["items"].is_null() {
        errors.required(&format!("{path}.items"), "must be specified for an array");
    }
    // Go reads anything else than an object or a list as items without a schema.
    if matches!(value["items"], Value::Bool(_) | Value::Number(_) | Value::String(_)) {
        errors.required(&format!("{path}.items"), "must be specified");
    }
    let within = |part| if position == Position::Logic { Position::Logic } else { part };
    for (name, property) in value["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.properties[{name}]");
        schema
            .properties
            .insert(name.clone(), read(property, &path, within(Position::Field), depth + 1, errors));
    }
    if value["items"].is_object() {
        let path = format!("{path}.items");
        schema.items =
            Some(Box::new(read(&value["items"], &path, within(Position::Item), depth + 1, errors)));
    }
    schema.additional = match &value["additionalProperties"] {
        Value::Bool(true) => Some(Additional::Any),
        Value::Bool(false) => Some(Additional::Nothing),
        one @ Value::Object(_) => {
            let path = format!("{path}.additionalProperties");
            Some(Additional::Of(Box::new(read(one, &path, within(Position::Field), depth + 1, errors))))
        }
        _ => None,
    };
    if position != Position::Logic {
        structural::check(value, path, position == Position::Root, errors);
    }
    // A type that nobody knows has been refused.
    let is_untyped =
        value["type"].as_str().unwrap_or_default().is_empty() && !schema.int_or_string && !schema.preserves;
    let needs_a_type = match position {
        Position::Root => Some("must not be empty at the root"),
        Position::Field => Some("must not be empty for specified object fields"),
        Position::Item => Some("must not be empty for specified array items"),
        Position::Logic => None,
    };
    if let Some(why) = needs_a_type.filter(|_| is_untyped) {
        errors.required(&format!("{path}.type"), why);
    }
    schema.list = list_type(value, path, &schema, errors);
    schema.rules = rules(value, path, depth, errors);
    if position == Position::Logic {
        only_limits(value, path, errors);
    } else if !value["default"].is_null() {
        let default = value["default"].clone();
        let mut wrong = Errors::default();
        check::value(&schema, &default, "", &mut wrong);
        errors.append_within(&format!("{path}.default"), wrong);
        schema.default = Some(default);
    }
    schema
}

fn kind_of(value: &Value, path: &str, errors: &mut Errors) -> Option<Type> {
    let name = value["type"].as_str().filter(|name| !name.is_empty())?;
    let found = Type::ALL.into_iter().find(|kind| kind.name() == name);
    if found.is_none() {
        errors.not_supported(&format!("{path}.type"), name, &Type::ALL.map(Type::name));
    }
    found
}

fn forbidden_keywords(value: &Value, path: &str, errors: &mut Errors) {
    for keyword in FORBIDDEN {
        if value.get(keyword).is_some_and(|value| !value.is_null()) {
            errors.forbidden(&format!("{path}.{keyword}"), &format!("{keyword} is not supported"));
        }
    }
    if value["uniqueItems"] == true {
        let why = "uniqueItems cannot be true; use x-kubernetes-list-type: set";
        errors.forbidden(&format!("{path}.uniqueItems"), why);
    }
    if value["items"].is_array() {
        errors.forbidden(&format!("{path}.items"), "items must be a schema object and not an array");
    }
}

fn list_type(value: &Value, path: &str, schema: &Schema, errors: &mut Errors) -> ListType {
    let field = format!("{path}.x-kubernetes-list-type");
    let keys: Vec<String> = texts(&value["x-kubernetes-list-map-keys"]);
    let kind = value["x-kubernetes-list-type"].as_str();
    const KINDS: [&str; 3] = ["atomic", "set", "map"];
    if let Some(other) = kind.filter(|kind| !KINDS.contains(kind)) {
        errors.not_supported(&field, other, &KINDS);
    }
    if !keys.is_empty() && kind != Some("map") {
        let why = "must be map if x-kubernetes-list-map-keys is non-empty";
        match kind {
            None => errors.required(&field, why),
            Some(other) => errors.invalid(&field, other, why),
        }
    }
    match kind.unwrap_or_default() {
        "set" => ListType::Set,
        "map" if keys.is_empty() => {
            let field = format!("{path}.x-kubernetes-list-map-keys");
            errors.required(&field, "must not be empty if x-kubernetes-list-type is map");
            ListType::Atomic
        }
        "map" => {
            match schema.items.as_deref() {
                None => {
                    let why = "must have a schema if x-kubernetes-list-type is map";
                    errors.required(&format!("{path}.items"), why);
                }
                Some(item) => structural::keys_of_items(value, item, path, errors),
            }
            ListType::Map(keys)
        }
        _ => ListType::Atomic,
    }
}

/// Refuses keywords about structure in an `allOf`: they would have to be merged with those of the schema around it.
fn only_limits(value: &Value, path: &str, errors: &mut Errors) {
    for keyword in ["default", "additionalProperties", "x-kubernetes-preserve-unknown-fields"] {
        if !value[keyword].is_null() {
            errors.forbidden(&format!("{path}.{keyword}"), "must be undefined to be structural");
        }
    }
    if value["nullable"] == true {
        errors.forbidden(&format!("{path}.nullable"), "must be false to be structural");
    }
}

fn rules(value: &Value, path: &str, depth: usize, errors: &mut Errors) -> Rules {
    let logic = |name: &str, errors: &mut Errors| -> Vec<Schema> {
        let each = value[name].as_array().into_iter().flatten().enumerate();
        each.map(|(index, one)| {
            read(one, &format!("{path}.{name}[{index}]"), Position::Logic, depth + 1, errors)
        })
        .collect()
    };
    let (all_of, any_of, one_of) = (logic("allOf", errors), logic("anyOf", errors), logic("oneOf", errors));
    let not = value["not"]
        .is_object()
        .then(|| Box::new(read(&value["not"], &format!("{path}.not"), Position::Logic, depth + 1, errors)));
    let range = |least: &str, most: &str| Range { least: value[least].as_u64(), most: value[most].as_u64() };
    Rules {
        required: texts(&value["required"]),
        allowed: value["enum"].as_array().cloned().unwrap_or_default(),
        minimum: value["minimum"].as_f64(),
        maximum: value["maximum"].as_f64(),
        above_minimum: value["exclusiveMinimum"] == true,
        below_maximum: value["exclusiveMaximum"] == true,
        multiple_of: value["multipleOf"].as_f64().filter(|step| *step > 0.0),
        lengths: range("minLength", "maxLength"),
        items: range("minItems", "maxItems"),
        properties: range("minProperties", "maxProperties"),
        pattern: pattern(value, path, errors),
        format: value["format"].as_str().unwrap_or_default().to_owned(),
        all_of,
        any_of,
        one_of,
        not,
    }
}

/// The time to match is linear in the text, and the size of the compiled pattern is limited.
fn pattern(value: &Value, path: &str, errors: &mut Errors) -> Option<Regex> {
    let text = value["pattern"].as_str().filter(|text| !text.is_empty())?;
    match Regex::new(&with_brackets_escaped(text)) {
        Ok(regex) => Some(regex),
        Err(error) => {
            let why = format!("must be a valid regular expression, but isn't: {error}");
            errors.invalid(&format!("{path}.pattern"), text, why);
            None
        }
    }
}

/// In a class of RE2, as Go has it, a bracket is a character like others, and so is a first closing one. `regex-lite` takes
/// the first for a class within the class. `[^[\]?= ]` becomes `[^\[\]?= ]`.
fn with_brackets_escaped(pattern: &str) -> String {
    let mut escaped = String::with_capacity(pattern.len());
    let mut rest = pattern.chars().peekable();
    let mut is_in_class = false;
    while let Some(next) = rest.next() {
        match next {
            '\\' => {
                escaped.push(next);
                let named = rest.next();
                escaped.extend(named);
                if is_in_class && named.is_some_and(|named| "dDsSwW".contains(named)) {
                    escape_hyphen(&mut rest, &mut escaped);
                }
            }
            '[' if !is_in_class => {
                is_in_class = true;
                escaped.push(next);
                escaped.extend(rest.next_if_eq(&'^'));
                if rest.next_if_eq(&']').is_some() {
                    escaped.push_str("\\]");
                }
            }
            // A named class: `[:alpha:]`.
            '[' if rest.peek() == Some(&':') => {
                escaped.push(next);
                for part in rest.by_ref() {
                    escaped.push(part);
                    if part == ']' {
                        break;
                    }
                }
                escape_hyphen(&mut rest, &mut escaped);
            }
            '[' | '&' | '~' if is_in_class => escaped.extend(['\\', next]),
            ']' => {
                is_in_class = false;
                escaped.push(next);
            }
            _ => escaped.push(next),
        }
    }
    escaped
}

/// A named class begins no range: a hyphen after it is a character.
fn escape_hyphen(rest: &mut Peekable<Chars<'_>>, escaped: &mut String) {
    if rest.next_if_eq(&'-').is_some() {
        escaped.push_str("\\-");
    }
}

pub(super) fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check_schema(schema: Value, expected: &[&str]) {
        let mut errors = Errors::default();
        Schema::parse(&schema, "s", &mut errors);
        let said: Vec<String> = errors.into_vec().iter().map(ToString::to_string).collect();
        assert_eq!(said, expected);
    }

    #[test]
    fn every_part_of_a_schema_needs_a_type() {
        check_schema(json!({}), &["s.type: Required value: must not be empty at the root"]);
        check_schema(
            json!({"type": "object", "properties": {"spec": {"properties": {"a": {"type": "array"}}}}}),
            &[
                "s.properties[spec].properties[a].items: Required value: must be specified for an array",
                "s.properties[spec].type: Required value: must not be empty for specified object fields",
            ],
        );
        let free = json!({"type": "object", "properties": {"a": {"x-kubernetes-int-or-string": true}}});
        check_schema(free, &[]);
    }

    #[test]
    fn a_bracket_in_a_class_is_a_character() {
        for (pattern, takes, refuses) in [
            (r"^[^[\]?= ]+$", "a", "["),
            ("^[[a-z]+$", "[a", "]"),
            ("^[]a]+$", "]a", "b"),
            ("^[[:alpha:]_]+$", "a_", ":"),
            ("^[a&&b]+$", "&b", "c"),
            (r"^\[a\]$", "[a]", "a"),
            (r"^[\w-_./]+$", "a-_./", ":"),
            (r"^[[:alpha:]-_]+$", "a-_", "."),
            (r"^[\d-]+$", "1-", "a"),
        ] {
            let regex =
                Regex::new(&with_brackets_escaped(pattern)).unwrap_or_else(|why| panic!("{pattern}: {why}"));
            assert!(regex.is_match(takes) && !regex.is_match(refuses), "{pattern}");
        }
    }

    #[test]
    fn a_pattern_that_does_not_compile_is_refused() {
        let mut errors = Errors::default();
        let schema = json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}});
        Schema::parse(&schema, "s", &mut errors);
        let errors = errors.into_vec();
        assert_eq!(errors.len(), 1);
        assert_eq!(errors[0].field, "s.properties[a].pattern");
    }

    #[test]
    fn a_default_must_be_valid_itself() {
        check_schema(
            json!({"type": "object", "properties": {"a": {"type": "integer", "default": "x"}}}),
            &[
                "s.properties[a].default: Invalid value: \"string\":  in body must be of type integer: \"string\"",
            ],
        );
        let within = json!({"type": "object", "default": {"b": 1}, "properties": {"b": {"type": "integer", "minimum": 2}}});
        check_schema(
            json!({"type": "object", "properties": {"a": within}}),
            &["s.properties[a].default.b: Invalid value: 1: b in body should be greater than or equal to 2"],
        );
    }

    #[test]
    fn an_item_of_a_default_is_named_below_it() {
        let list = json!({"type": "array", "items": {"type": "string", "maxLength": 1}, "default": ["ab"]});
        check_schema(
            json!({"type": "object", "properties": {"a": list}}),
            &["s.properties[a].default.[0]: Too long: may not be more than 1 bytes"],
        );
    }

    #[test]
    fn a_schema_that_is_too_deep_is_refused() {
        let mut schema = json!({"type": "object"});
        for _ in 0..60 {
            schema = json!({"type": "array", "items": schema});
        }
        let mut errors = Errors::default();
        Schema::parse(&json!({"type": "object", "properties": {"a": schema}}), "s", &mut errors);
        assert!(errors.into_vec().iter().any(|error| error.detail.contains("nested deeper than 40 levels")));
    }
}
