//! One document of YAML or JSON as a JSON value, with the surprises of YAML taken out.
//!
//! Read by a visitor of our own, because the ready-made ones forgive too much: duplicate keys, where the
//! last one silently wins, and aliases, of which ten nested lines can stand for gigabytes. Differences
//! from kubectl's reader: `yes` and `on` are strings, as in YAML 1.2.

use std::{cell::Cell, fmt};

use serde::de::{DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// What an API server would take at most.
pub const LARGEST_DOCUMENT: usize = 3 * 1024 * 1024;

/// Reads every document of a YAML stream. Empty ones are `None`, so that counting stays right.
pub fn yaml(text: &str) -> Vec<Result<Option<Value>, String>> {
    let mut documents = Vec::new();
    for document in serde_yaml::Deserializer::from_str(text) {
        let budget = Budget::new();
        let read = Node(&budget).deserialize(document).map_err(|error| error.to_string());
        // After a syntax error the reader has lost its place: what follows would be noise.
        let lost = read.is_err();
        documents.push(read.map(|value| Some(value).filter(|value| !value.is_null())));
        if lost {
            break;
        }
    }
    documents
}

/// Reads the JSON values of a text, one after the other.
pub fn json(text: &str) -> Vec<Result<Option<Value>, String>> {
    let mut documents = Vec::new();
    let mut reader = serde_json::Deserializer::from_str(text);
    while reader.end().is_err() {
        let budget = Budget::new();
        let read = Node(&budget).deserialize(&mut reader).map_err(|error| error.to_string());
        let lost = read.is_err();
        documents.push(read.map(|value| Some(value).filter(|value| !value.is_null())));
        if lost {
            break;
        }
    }
    documents
}

/// How much a document may still grow, counted about as its JSON would be.
struct Budget(Cell<usize>);

impl Budget {
    fn new() -> Self {
        Budget(Cell::new(LARGEST_DOCUMENT))
    }

    fn spend<E: Error>(&self, bytes: usize) -> Result<(), E> {
        match self.0.get().checked_sub(bytes) {
            Some(rest) => {
                self.0.set(rest);
                Ok(())
            }
            None => Err(E::custom(format_args!(
                "the document is larger than {} MiB (aliases count as often as they are used)",
                LARGEST_DOCUMENT / 1024 / 1024
            ))),
        }
    }
}

/// Any value.
#[derive(Clone, Copy)]
struct Node<'a>(&'a Budget);

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value that JSON can express")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        self.0.spend(5)?;
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        self.0.spend(8)?;
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        self.0.spend(8)?;
        Ok(value.into())
    }

    fn visit_i128<E: Error>(self, value: i128) -> Result<Value, E> {
        Err(E::custom(format_args!("{value} is too large a number")))
    }

    fn visit_u128<E: Error>(self, value: u128) -> Result<Value, E> {
        Err(E::custom(format_args!("{value} is too large a number")))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        self.0.spend(8)?;
        Number::from_f64(value).map(Value::Number).ok_or_else(|| {
            E::custom(format_args!("{value} is no number that JSON can express; quote it if it is a string"))
        })
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        self.0.spend(value.len() + 3)?;
        Ok(Value::String(value.to_owned()))
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        self.0.spend(5)?;
        Ok(Value::Null)
    }

    fn visit_none<E: Error>(self) -> Result<Value, E> {
        self.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        self.0.spend(2)?;
        let mut list = Vec::new();
        while let Some(value) = access.next_element_seed(self)? {
            list.push(value);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        self.0.spend(2)?;
        let mut map = Map::new();
        let mut merged = Map::new();
        while let Some(key) = access.next_key_seed(Key)? {
            self.0.spend(key.len() + 4)?;
            if map.contains_key(&key) {
                return Err(A::Error::custom(format_args!("the key {key:?} occurs twice in one mapping")));
            }
            let value = access.next_value_seed(self)?;
            if key == "<<" {
                merge(&mut merged, value).map_err(A::Error::custom)?;
            } else {
                map.insert(key, value);
            }
        }
        for (key, value) in merged {
            map.entry(key).or_insert(value);
        }
        Ok(Value::Object(map))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, access: A) -> Result<Value, A::Error> {
        let (tag, _) = access.variant_seed(Key)?;
        Err(A::Error::custom(format_args!("the tag !{tag} means nothing here; tags are not supported")))
    }
}

/// A merge key `<<`: what the mapping itself says wins, then the first of several sources.
fn merge(merged: &mut Map<String, Value>, source: Value) -> Result<(), &'static str> {
    match source {
        Value::Object(source) => {
            for (key, value) in source {
                merged.entry(key).or_insert(value);
            }
            Ok(())
        }
        Value::Array(sources) => sources.into_iter().try_for_each(|source| match source {
            Value::Object(_) => merge(merged, source),
            _ => Err("a merge key (<<) takes a mapping or a list of mappings"),
        }),
        _ => Err("a merge key (<<) takes a mapping or a list of mappings"),
    }
}

/// A mapping's key. `1: x` and `true: x` have string keys in kubectl's eyes, so they do here.
struct Key;

impl<'de> DeserializeSeed<'de> for Key {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Key {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string as key")
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<String, E> {
        Ok(value.to_owned())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<String, E> {
        Ok(value.to_string())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<String, E> {
        Ok(value.to_string())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<String, E> {
        Ok(value.to_string())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn one(text: &str) -> Result<Value, String> {
        let mut documents = yaml(text);
        assert_eq!(documents.len(), 1, "{documents:?}");
        documents.remove(0).map(Option::unwrap_or_default)
    }

    fn refused(text: &str) -> String {
        one(text).expect_err("must be refused")
    }

    #[test]
    fn documents_are_told_apart_and_empty_ones_counted() {
        let documents: Vec<_> =
            yaml("a: 1\n---\n# only a comment\n---\nb: 2\n").into_iter().map(Result::unwrap).collect();
        assert_eq!(documents, [Some(json!({"a": 1})), None, Some(json!({"b": 2}))]);
        assert_eq!(yaml("# nothing\n").into_iter().flatten().flatten().count(), 0);
        assert_eq!(yaml("").into_iter().flatten().flatten().count(), 0);
    }

    #[test]
    fn a_syntax_error_is_told_with_line_and_column() {
        let error = refused("a: 1\nb: [1, 2\nc: 3\n");
        assert!(error.contains("line 3"), "{error}");
    }

    #[test]
    fn a_duplicate_key_is_an_error_in_yaml_and_in_json() {
        assert!(refused("a: 1\nb: 2\na: 3\n").contains("the key \"a\" occurs twice"));
        let error = json(r#"{"a": 1, "a": 2}"#).remove(0).unwrap_err();
        assert!(error.contains("the key \"a\" occurs twice"), "{error}");
    }

    #[test]
    fn keys_that_are_numbers_or_booleans_are_strings() {
        assert_eq!(one("1: x\ntrue: y\n").unwrap(), json!({"1": "x", "true": "y"}));
        assert!(refused("1.5: x\n").contains("a string as key"));
        assert!(refused("[a]: x\n").contains("a string as key"));
    }

    #[test]
    fn anchors_and_merge_keys_work_and_the_mapping_itself_wins() {
        let text = "base: &base {image: nginx, port: 80}\nweb: {<<: *base, port: 81}\nsame: *base\n";
        assert_eq!(
            one(text).unwrap(),
            json!({"base": {"image": "nginx", "port": 80}, "web": {"image": "nginx", "port": 81},
                   "same": {"image": "nginx", "port": 80}})
        );
        assert!(refused("web: {<<: 3}\n").contains("merge key"));
    }

    #[test]
    fn an_alias_bomb_is_refused() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..12 {
            let previous = format!("*a{}", level - 1);
            let list = vec![previous; 10].join(", ");
            text.push_str(&format!("a{level}: &a{level} [{list}]\n"));
        }
        let error = refused(&text);
        assert!(error.contains("larger than 3 MiB") || error.contains("repetition limit"), "{error}");
    }

    #[test]
    fn a_document_over_the_limit_is_refused() {
        let text = format!("a: {}\n", "x".repeat(LARGEST_DOCUMENT));
        assert!(refused(&text).contains("larger than 3 MiB"));
    }

    #[test]
    fn tags_and_numbers_that_json_does_not_know_are_refused() {
        assert!(refused("a: !secret x\n").contains("tag"));
        assert!(refused("a: .nan\n").contains("quote it"));
        assert!(refused("a: 99999999999999999999999\n").contains("too large"));
    }

    #[test]
    fn deep_nesting_is_an_error_and_no_crash() {
        assert!(yaml(&"[".repeat(100_000)).remove(0).is_err());
        assert!(json(&"[".repeat(100_000)).remove(0).is_err());
    }

    #[test]
    fn json_values_may_follow_each_other() {
        let documents: Vec<_> = json("{\"a\": 1}\n{\"b\": 2}").into_iter().map(Result::unwrap).collect();
        assert_eq!(documents, [Some(json!({"a": 1})), Some(json!({"b": 2}))]);
        assert!(json("{\"a\": 1,}").remove(0).unwrap_err().contains("line 1 column"));
    }
}
