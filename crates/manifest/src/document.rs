//! Parses a text into documents: YAML as kubectl reads it, or JSON. What kubectl takes without a word and nobody means, such
//! as a key that occurs twice, has a note.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::scalar::{Scalar, boolean_of_yaml_1_1, float_key, json_number, resolve};
use super::yaml::{self, is_plain};

/// The maximum size that an API server accepts.
pub const LARGEST_DOCUMENT: usize = 3 * 1024 * 1024;

/// Of a document. A path may be as long as the document, and an alias leads to the same note again.
const MOST_NOTES: usize = 20;

/// A document.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Document {
    /// Null for an empty document.
    pub value: Value,
    /// Each begins with the path of a field.
    pub notes: Vec<String>,
}

/// Parses every document of a YAML stream, empty ones too, so that the numbers of the others are right.
pub fn yaml(text: &str) -> Vec<Result<Document, String>> {
    yaml_behind(0, text)
}

/// Parses the rest of a stream, behind so many lines.
pub fn yaml_behind(lines: u64, text: &str) -> Vec<Result<Document, String>> {
    // As kubectl, which reads line by line: a block text at the end of its file has a final line break.
    let text = if text.ends_with('\n') { Cow::Borrowed(text) } else { Cow::Owned(format!("{text}\n")) };
    let mut documents = Vec::new();
    for (number, part) in split(&text).enumerate() {
        let read = part.and_then(|(lines_before, part)| yaml::read(part, lines + lines_before));
        // Comments before the first mark are no document.
        if number == 0 && read.as_ref().is_ok_and(|document| document.value.is_null()) {
            continue;
        }
        // After a syntax error the position is unknown, and further errors would be misleading.
        let lost = read.is_err();
        documents.push(read);
        if lost {
            break;
        }
    }
    documents
}

/// Splits a stream as kubectl does, at each line that begins with `---`, even within a quoted string. Each part has the
/// number of lines before it.
fn split(text: &str) -> impl Iterator<Item = Result<(u64, &str), String>> {
    let (mut rest, mut lines_before) = (text, 0);
    std::iter::from_fn(move || {
        let (mut end, start) = (0, lines_before);
        for line in rest.split_inclusive('\n') {
            lines_before += 1;
            if let Some(beside) = line.strip_prefix("---").map(str::trim) {
                if !beside.is_empty() && !beside.starts_with('#') {
                    let problem = "begin the document on a line of its own after ---";
                    return Some(Err(format!("{problem} at line {lines_before}")));
                }
                let part = &rest[..end];
                // Where files were joined, each can begin with a byte order mark.
                let part = part.strip_prefix('\u{feff}').unwrap_or(part);
                rest = &rest[end + line.len()..];
                return Some(Ok((start, part)));
            }
            end += line.len();
        }
        let last = std::mem::take(&mut rest);
        (!last.is_empty()).then(|| Ok((start, last.strip_prefix('\u{feff}').unwrap_or(last))))
    })
}

/// Reads the JSON values of a text, one after the other.
pub fn json(text: &str) -> Vec<Result<Document, String>> {
    let mut documents = Vec::new();
    let mut reader = serde_json::Deserializer::from_str(text);
    while reader.end().is_err() {
        let reading = Reading::of_json();
        let read = Node(&reading).deserialize(&mut reader).map_err(|error| error.to_string());
        let lost = read.is_err();
        documents.push(read.map(|value| Document { value, notes: reading.notes() }));
        if lost {
            break;
        }
    }
    documents
}

/// A path as users of kubectl know it: `spec.containers[0].image`. It ends at the value that is being read.
#[derive(Default)]
pub struct Path(Vec<Step>);

enum Step {
    Key(String),
    Index(usize),
}

impl Path {
    /// Goes to the value of a key.
    pub fn enter_key(&mut self, key: &str) {
        self.0.push(Step::Key(key.to_owned()));
    }

    /// Goes to an item of a list.
    pub fn enter_item(&mut self, index: usize) {
        self.0.push(Step::Index(index));
    }

    /// Goes back to what holds the value.
    pub fn leave(&mut self) {
        self.0.pop();
    }

    /// A sentence about the value.
    pub fn prefixed(&self, sentence: &str) -> String {
        let mut text = String::new();
        for step in &self.0 {
            match step {
                Step::Key(key) if text.is_empty() => text.push_str(key),
                Step::Key(key) => text.extend([".", key]),
                Step::Index(index) => text.push_str(&format!("[{index}]")),
            }
        }
        if text.is_empty() { sentence.to_owned() } else { format!("{text}: {sentence}") }
    }
}

/// The state of reading a document.
pub struct Reading<'a> {
    /// The text of a document of YAML.
    yaml: Option<&'a str>,
    left: Cell<usize>,
    path: RefCell<Path>,
    notes: RefCell<Vec<String>>,
    /// How many more there are.
    unsaid: Cell<usize>,
}

impl<'a> Reading<'a> {
    fn of_json() -> Self {
        Reading {
            yaml: None,
            left: Cell::new(LARGEST_DOCUMENT),
            path: RefCell::default(),
            notes: RefCell::default(),
            unsaid: Cell::default(),
        }
    }

    /// Of a document of YAML.
    pub fn of_yaml(text: &'a str) -> Self {
        Reading { yaml: Some(text), ..Reading::of_json() }
    }

    /// The notes on the document.
    pub fn notes(self) -> Vec<String> {
        let (mut notes, more) = (self.notes.into_inner(), self.unsaid.get());
        if more > 0 {
            notes.push(format!("{more} more notes of this sort"));
        }
        notes
    }

    /// Takes bytes off what the document may still grow by, counted about as its JSON would be.
    fn spend<E: Error>(&self, bytes: usize) -> Result<(), E> {
        let rest = self.left.get().checked_sub(bytes).ok_or_else(|| {
            E::custom(format_args!(
                "the document is larger than {} MiB (aliases count as often as they are used)",
                LARGEST_DOCUMENT / 1024 / 1024
            ))
        })?;
        self.left.set(rest);
        Ok(())
    }

    fn note(&self, sentence: &str) {
        let mut notes = self.notes.borrow_mut();
        if notes.len() < MOST_NOTES {
            notes.push(self.path.borrow().prefixed(sentence));
        } else {
            self.unsaid.set(self.unsaid.get() + 1);
        }
    }

    fn note_word(&self, text: &str) {
        if let Some(value) = boolean_of_yaml_1_1(text) {
            self.note(&format!("{text} without quotes is the boolean {value}"));
        }
    }

    /// The type of a text that was borrowed from the document.
    fn resolve(&self, text: &str) -> Scalar {
        match self.yaml {
            Some(source) if is_plain(source, text) => resolve(text),
            _ => Scalar::Text,
        }
    }
}

/// Any value.
#[derive(Clone, Copy)]
pub struct Node<'a>(pub &'a Reading<'a>);

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
        self.visit_f64(value as f64)
    }

    fn visit_u128<E: Error>(self, value: u128) -> Result<Value, E> {
        self.visit_f64(value as f64)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        self.0.spend(8)?;
        json_number(value).map_err(E::custom)
    }

    fn visit_borrowed_str<E: Error>(self, value: &'de str) -> Result<Value, E> {
        match self.0.resolve(value) {
            Scalar::Null => self.visit_unit(),
            Scalar::Int(number) => self.visit_i64(number),
            Scalar::Large(number) => self.visit_u64(number),
            Scalar::Float(number) => self.visit_f64(number),
            Scalar::Text => self.visit_str(value),
            Scalar::Bool(boolean) => {
                self.0.note_word(value);
                self.visit_bool(boolean)
            }
        }
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

    /// A tag that YAML does not define. kubectl ignores it.
    fn visit_enum<A: EnumAccess<'de>>(self, access: A) -> Result<Value, A::Error> {
        let (tag, _) = access.variant::<String>()?;
        let tag = tag.trim_start_matches('!');
        Err(A::Error::custom(format_args!("the tag !{tag} is not supported")))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        self.0.spend(2)?;
        let mut list = Vec::new();
        loop {
            self.0.path.borrow_mut().enter_item(list.len());
            let next = access.next_element_seed(self)?;
            self.0.path.borrow_mut().leave();
            match next {
                Some(value) => list.push(value),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    /// As for kubectl, the last of several equal keys counts, and a merge key (`<<`) replaces what stands before it.
    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        self.0.spend(2)?;
        let (mut map, mut own) = (Map::new(), BTreeSet::new());
        while let Some(key) = access.next_key_seed(Key(self.0))? {
            let Some(key) = key else {
                for (key, value) in merged(access.next_value_seed(self)?).map_err(A::Error::custom)? {
                    if own.contains(&key) && map.get(&key) != Some(&value) {
                        self.0.note(&format!("<< replaces the key {key:?} that stands before it"));
                    }
                    map.insert(key, value);
                }
                continue;
            };
            self.0.spend(key.len() + 4)?;
            if !own.insert(key.clone()) {
                self.0.note(&format!("the key {key:?} occurs twice in one mapping; the last one counts"));
            }
            self.0.path.borrow_mut().enter_key(&key);
            let value = access.next_value_seed(self)?;
            self.0.path.borrow_mut().leave();
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

/// The value of a merge key: a mapping, or several, of which the first wins.
fn merged(source: Value) -> Result<Map<String, Value>, &'static str> {
    const WRONG: &str = "a merge key (<<) takes a mapping or a list of mappings";
    match source {
        Value::Object(map) => Ok(map),
        Value::Array(sources) => {
            let maps: Option<Vec<_>> = sources
                .into_iter()
                .map(|source| if let Value::Object(map) = source { Some(map) } else { None })
                .collect();
            Ok(maps.ok_or(WRONG)?.into_iter().rev().flatten().collect())
        }
        _ => Err(WRONG),
    }
}

/// A mapping's key, or `None` for a merge key. `1: x` and `true: x` have string keys for kubectl.
struct Key<'a>(&'a Reading<'a>);

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = Option<String>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<String>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Key<'_> {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string as key")
    }

    fn visit_borrowed_str<E: Error>(self, value: &'de str) -> Result<Option<String>, E> {
        match self.0.resolve(value) {
            Scalar::Null => self.visit_unit(),
            Scalar::Int(number) => self.visit_i64(number),
            Scalar::Large(number) => self.visit_u64(number),
            Scalar::Float(number) => self.visit_f64(number),
            Scalar::Bool(boolean) => {
                self.0.note_word(value);
                self.visit_bool(boolean)
            }
            Scalar::Text if value == "<<" && self.0.yaml.is_some_and(|source| is_plain(source, value)) => {
                Ok(None)
            }
            Scalar::Text => self.visit_str(value),
        }
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Option<String>, E> {
        Ok(Some(value.to_owned()))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Option<String>, E> {
        Ok(Some(value.to_string()))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Option<String>, E> {
        Ok(Some(value.to_string()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Option<String>, E> {
        Ok(Some(value.to_string()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Option<String>, E> {
        let key = float_key(value);
        self.0.note(&format!("a key without quotes is read as the number {key}"));
        Ok(Some(key))
    }

    fn visit_u128<E: Error>(self, value: u128) -> Result<Option<String>, E> {
        self.visit_f64(value as f64)
    }

    fn visit_unit<E: Error>(self) -> Result<Option<String>, E> {
        Err(E::custom("a key is null; quote it if it is a string"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<Option<String>, A::Error> {
        Err(A::Error::custom("a key is a list or a mapping"))
    }

    fn visit_map<A: MapAccess<'de>>(self, _: A) -> Result<Option<String>, A::Error> {
        Err(A::Error::custom("a key is a list or a mapping"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn one(text: &str) -> Result<Document, String> {
        let mut documents = yaml(text);
        assert_eq!(documents.len(), 1, "{documents:?}");
        documents.remove(0)
    }

    /// A document without notes.
    #[track_caller]
    fn value(text: &str) -> Value {
        let Document { value, notes } = one(text).unwrap();
        assert!(notes.is_empty(), "{notes:?}");
        value
    }

    fn refused(text: &str) -> String {
        one(text).expect_err("must be refused")
    }

    fn values(documents: Vec<Result<Document, String>>) -> Vec<Value> {
        documents.into_iter().map(|document| document.unwrap().value).collect()
    }

    #[test]
    fn documents_are_separated_and_empty_ones_counted() {
        let documents = values(yaml("a: 1\n---\n# only a comment\n---\nb: 2\n"));
        assert_eq!(documents, [json!({"a": 1}), Value::Null, json!({"b": 2})]);
        assert!(values(yaml("# nothing\n")).iter().all(Value::is_null));
        assert!(values(yaml("")).iter().all(Value::is_null));
    }

    #[test]
    fn each_document_may_begin_with_a_byte_order_mark() {
        assert_eq!(
            values(yaml("a: 1\n---\n\u{feff}b: 2\n---\n\u{feff}c: 3\n")),
            [json!({"a": 1}), json!({"b": 2}), json!({"c": 3})]
        );
    }

    #[test]
    fn a_syntax_error_has_a_line_and_a_column() {
        let error = refused("a: 1\nb: [1, 2\nc: 3\n");
        assert_eq!(error, "did not find expected ',' or ']' at line 3, column 2");
        let second = yaml("a: 1\n---\nb: {\n").remove(1).unwrap_err();
        assert!(second.ends_with("at line 4, column 1"), "{second}");
    }

    #[test]
    fn the_last_of_equal_keys_counts_and_a_note_says_so() {
        let note = "spec: the key \"a\" occurs twice in one mapping; the last one counts";
        let expected = Document { value: json!({"spec": {"a": 3, "b": 2}}), notes: vec![note.to_owned()] };
        assert_eq!(one("spec:\n  a: 1\n  b: 2\n  a: 3\n"), Ok(expected.clone()));
        assert_eq!(json(r#"{"spec": {"a": 1, "b": 2, "a": 3}}"#), [Ok(expected)]);
    }

    #[test]
    fn the_number_of_notes_is_bounded() {
        let Document { notes, .. } =
            one(&format!("{}: {{{}}}", "k".repeat(1000), "a: 1, ".repeat(100_000))).unwrap();
        assert_eq!((notes.len(), notes.last().unwrap().as_str()), (21, "99979 more notes of this sort"));
    }

    #[test]
    fn keys_that_are_numbers_or_booleans_are_strings() {
        assert_eq!(value("1: x\ntrue: z\n"), json!({"1": "x", "true": "z"}));
        let Document { value, notes } = one("data:\n  1.10: x\n").unwrap();
        assert_eq!(value, json!({"data": {"1.1": "x"}}));
        assert_eq!(notes, ["data: a key without quotes is read as the number 1.1"]);
        assert_eq!(
            refused("a: {~: x}\n"),
            "a: a key is null; quote it if it is a string at line 1, column 5"
        );
        assert!(refused("[a]: x\n").starts_with("a key is a list or a mapping"));
    }

    #[test]
    fn anchors_and_merge_keys_work_in_the_order_of_the_text() {
        let text = "base: &base {image: nginx, port: 80}\nweb: {<<: *base, port: 81}\nsame: *base\n";
        assert_eq!(
            value(text),
            json!({"base": {"image": "nginx", "port": 80}, "web": {"image": "nginx", "port": 81},
                   "same": {"image": "nginx", "port": 80}})
        );
        let late = one("base: &base {port: 80}\nweb: {port: 81, <<: *base}\n").unwrap();
        assert_eq!(late.value["web"], json!({"port": 80}));
        assert_eq!(late.notes, ["web: << replaces the key \"port\" that stands before it"]);
        let both = value("a: &a {x: 1}\nb: &b {x: 2, w: 2}\nc: {<<: [*a, *b], z: 3}\n");
        assert_eq!(both["c"], json!({"x": 1, "w": 2, "z": 3}));
        for wrong in ["web: {<<: 3}\n", "a: &a 3\nb: {<<: *a}\n", "b: {<<: [[{}]]}\n"] {
            assert!(refused(wrong).contains("merge key"), "{wrong}");
        }
        assert_eq!(value("{'<<': 3}\n"), json!({"<<": 3}));
    }

    #[test]
    fn an_alias_bomb_is_refused() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..12 {
            let previous = format!("*a{}", level - 1);
            let list = vec![previous; 10].join(", ");
            text.push_str(&format!("a{level}: &a{level} [{list}]\n"));
        }
        assert_eq!(refused(&text), "repetition limit exceeded");
        let mut text = format!("a: &a {}\nb: [", "x".repeat(100_000));
        text.push_str(&"*a, ".repeat(40));
        text.push_str("*a]\n");
        assert!(refused(&text).contains("larger than 3 MiB"));
        // Of lists without items.
        let mut text = "a0: &a0 []\n".to_owned();
        for level in 1..30 {
            let previous = format!("*a{}", level - 1);
            text.push_str(&format!("a{level}: &a{level} [{previous}, {previous}, {previous}]\n"));
        }
        assert!(refused(&text).contains("repetition limit"));
        for endless in ["a: &a [*a]\n", "a: &a {<<: *a}\n"] {
            assert!(refused(endless).contains("recursion limit"), "{}", refused(endless));
        }
        assert!(refused("a: *b\n").contains("unknown anchor"));
    }

    #[test]
    fn a_document_over_the_limit_is_refused() {
        let text = format!("a: {}\n", "x".repeat(LARGEST_DOCUMENT));
        assert!(refused(&text).contains("larger than 3 MiB"));
    }

    #[test]
    fn tags_and_numbers_have_the_values_that_kubectl_sends() {
        assert_eq!(value("[!!str 3, !!str yes, !!int '3', !!float 3]"), json!(["3", "yes", 3, 3]));
        let error = "a: invalid value: string \"x\", expected an integer at line 1, column 4";
        assert_eq!(refused("a: !!int x\n"), error);
        assert!(refused("a: !secret x\n").contains("the tag !secret is not supported"));
        assert!(refused("a: ! x\n").contains("the tag ! is not supported"));
        assert!(refused("a: .nan\n").contains("quote it"));
        assert_eq!(value("a: 99999999999999999999999\n"), json!({"a": 1e23}));
    }

    #[test]
    fn deep_nesting_is_an_error_and_not_a_crash() {
        for hostile in ["[", "{a: ", "- ", "? ", "a: {b: [", "[\"]\", "] {
            assert!(yaml(&format!("a: {}", hostile.repeat(100_000))).remove(0).is_err(), "{hostile}");
            assert!(yaml(&hostile.repeat(100_000)).remove(0).is_err(), "{hostile}");
        }
        assert!(json(&"[".repeat(100_000)).remove(0).is_err());
        for (depth, fine) in [(110, true), (130, false), (200, false)] {
            let flow = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
            let block: String = (0..depth).map(|level| format!("{}a:\n", " ".repeat(level))).collect();
            assert_eq!((one(&flow).is_ok(), one(&block).is_ok()), (fine, fine), "{depth}");
        }
    }

    #[test]
    fn marks_and_comments_alone_are_no_document() {
        let all = |text: &str| values(yaml(text));
        let (a, b) = (json!({"a": 1}), json!({"b": "x\n"}));
        assert_eq!(all("# why\n--- # this\na: 1\n...\n# and\n---\nb: |\n  x\n"), [a.clone(), b]);
        assert_eq!(all("a: 1\r\n---\r\na: 1\r\n"), [a.clone(), a.clone()]);
        assert_eq!(all("---\n{a: 1}\n---\n\n---\n---\na: 1"), [a.clone(), Value::Null, Value::Null, a]);
        assert_eq!(all("a: |\n  --- x\nb: ---x\n"), [json!({"a": "--- x\n", "b": "---x"})]);
        // kubectl refuses a directive, too, for it splits at the mark behind it.
        assert!(refused("%YAML 1.2\n---\na: 1\n").contains("document start"));
    }

    #[test]
    fn text_behind_the_end_of_a_document_is_left_out_and_a_note_says_so() {
        for (text, line) in
            [("a: 1\n...\nb: [\n", 5), (" a: 1\nb: 2\n", 4), ("{a: 1}\n*a\n", 4), ("a: 1\n...\n...\nb: 2", 6)]
        {
            let Document { value, notes } = yaml(&format!("c: 1\n---\n{text}")).remove(1).unwrap();
            assert_eq!(value, json!({"a": 1}), "{text}");
            let note =
                format!("the document ends before line {line}; the rest up to the next --- is left out");
            assert_eq!(notes, [note], "{text}");
        }
        assert_eq!(value("a: 1\n...\n# only a comment\n"), json!({"a": 1}));
    }

    #[test]
    fn a_block_text_at_the_end_of_a_file_has_a_line_break() {
        for (text, read) in
            [("a: |\n  x", "x\n"), ("a: |-\n  x", "x"), ("a: >\n  x\n  y", "x y\n"), ("a: x", "x")]
        {
            assert_eq!(value(text), json!({"a": read}), "{text}");
        }
    }

    #[test]
    fn an_error_has_its_field_and_its_line_in_the_file() {
        let mut documents = yaml("a: 1\n---\nb:\n- c: 1\n  d: .nan\n");
        assert_eq!(
            documents.remove(1).unwrap_err(),
            "b[0].d: .nan is not a number in JSON; quote it if it is a string at line 5, column 6"
        );
    }

    #[test]
    fn scalars_have_the_types_that_kubectl_gives_them() {
        assert_eq!(
            value("{a: 'yes', b: \"on\", c: 0644, d: 1.50, e: -7, f: 1e3, g: ~, h: '5', i: 1.2.3, j: 0x1f}"),
            json!({"a": "yes", "b": "on", "c": 420, "d": 1.5, "e": -7, "f": 1000, "g": null, "h": "5",
                   "i": "1.2.3", "j": 31})
        );
        assert_eq!(value(&format!("[{}, {}]", u64::MAX, i64::MIN)), json!([u64::MAX, i64::MIN]));
    }

    #[test]
    fn words_that_are_booleans_for_kubectl_are_booleans_and_said() {
        let Document { value: read, notes } = one("data: {a: 'yes', b: yes, c: [OFF], y: true}\n").unwrap();
        assert_eq!(read, json!({"data": {"a": "yes", "b": true, "c": [false], "true": true}}));
        assert_eq!(
            notes,
            [
                "data.b: yes without quotes is the boolean true",
                "data.c[0]: OFF without quotes is the boolean false",
                "data: y without quotes is the boolean true"
            ]
        );
        let quoted = value("'y': &a \"no\"\nb: [*a, yEs, yess, 'On']\nc: |-\n  off\n");
        assert_eq!(quoted, json!({"y": "no", "b": ["no", "yEs", "yess", "On"], "c": "off"}));
    }

    #[test]
    fn what_older_generators_wrote_is_read() {
        // A quoted text goes on in the column of its key, and a tab stands before a key in braces.
        assert_eq!(
            value("data:\n  text: 'first\n  second'\n  more: {\n\ta: 1}\n"),
            json!({"data": {"text": "first second", "more": {"a": 1}}})
        );
        assert_eq!(value("a:\n- 1\n-\n  b: 2\n"), json!({"a": [1, {"b": 2}]}));
    }

    #[test]
    fn text_beside_the_mark_of_a_document_is_refused() {
        // kubectl does not take what stands before it, either.
        for text in ["a: 1\n--- b: 2\n", "a: 1\n---b\n", "a: 'x\n---y'\n"] {
            assert_eq!(refused(text), "begin the document on a line of its own after --- at line 2");
        }
        assert_eq!(value("--- # why\na: 1\n"), json!({"a": 1}));
    }

    #[test]
    fn a_whole_number_is_sent_as_an_integer() {
        assert_eq!(value("[3.0, 1e3, -2.0, 0.5]"), json!([3, 1000, -2, 0.5]));
        assert_eq!(values(json("[3.0, 2.5]")), [json!([3, 2.5])]);
    }

    #[test]
    fn a_stream_of_json_values_is_accepted() {
        assert_eq!(values(json("{\"a\": 1}\n{\"b\": 2}")), [json!({"a": 1}), json!({"b": 2})]);
        assert!(json("{\"a\": 1,}").remove(0).unwrap_err().contains("line 1 column"));
    }
}
