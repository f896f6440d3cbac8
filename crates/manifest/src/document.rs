//! Parses a document of YAML or JSON into a JSON value, more strictly than usual.
//!
//! It has its own visitor, because the usual ones accept too much: duplicate keys, where the last one silently wins,
//! and aliases, of which ten nested lines can expand to gigabytes. It refuses what YAML 1.1, which kubectl reads, takes
//! for a boolean and YAML 1.2 for a string: `yes`, `on`, `n`. kubectl would create a different object.

use std::{
    borrow::Cow,
    cell::{Cell, RefCell},
    fmt::{self, Write as _},
};

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::options::MergeKeyPolicy;
use serde_saphyr::{MessageFormatter, Options, SnippetMode, UserMessageFormatter};

/// The maximum size that an API server accepts.
pub const LARGEST_DOCUMENT: usize = 3 * 1024 * 1024;

/// The maximum nesting of mappings and lists in YAML. Each level takes about 10 KB of stack in a debug build.
const DEEPEST: usize = 64;

/// Parses every document of a YAML stream. Empty ones are `None`, so that the numbers of the others are right.
pub fn yaml(text: &str) -> Vec<Result<Option<Value>, String>> {
    let mut documents = Vec::new();
    for (lines_before, document) in split(text) {
        let read = yaml_document(document, lines_before);
        // After a syntax error the position is unknown, and further errors would be misleading.
        let lost = read.is_err();
        documents.push(read.map(|value| Some(value).filter(|value| !value.is_null())));
        if lost {
            break;
        }
    }
    documents
}

fn is_mark(line: &str, mark: &str) -> bool {
    line.strip_prefix(mark).is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace))
}

/// The documents of a stream, each with the number of lines before it.
///
/// A line that begins with `---` or `...` is a mark wherever it stands, even within a quoted string: YAML forbids it
/// everywhere else. Before the first mark, and between `...` and `---`, comments and directives are no document.
fn split(text: &str) -> Vec<(u64, &str)> {
    let says_nothing = |line: &str| matches!(line.trim_start().chars().next(), None | Some('#' | '%'));
    let mut documents = Vec::new();
    let (mut start, mut first, mut at, mut explicit, mut empty) = (0, 0, 0, false, true);
    let lines = text.split_inclusive('\n').map(Some).chain([None]);
    for (number, line) in (0..).zip(lines) {
        let begins = line.is_none_or(|line| is_mark(line, "---"));
        let ended = line.is_some_and(|line| is_mark(line, "..."));
        if begins || ended {
            if explicit || !empty {
                documents.push((first, &text[start..at]));
            }
            (first, explicit, empty) = (number + u64::from(ended), begins, true);
            start = at + line.filter(|_| ended).map_or(0, str::len);
        }
        let Some(line) = line else { break };
        empty &= begins || ended || says_nothing(line);
        at += line.len();
    }
    documents
}

fn yaml_document(text: &str, lines_before: u64) -> Result<Value, String> {
    let first = text.lines().next().unwrap_or_default();
    let beside = first.get(3..).filter(|_| is_mark(first, "---")).unwrap_or_default().trim();
    if !beside.is_empty() && !beside.starts_with('#') {
        return Err(format!(
            "begin the document on a line of its own after --- at line {}",
            lines_before + 1
        ));
    }
    let budget = Budget::new();
    let value = read(text, &budget, true, lines_before)?;
    let words = budget.words.take();
    if !words.is_empty() {
        // In quotes, the words are strings for YAML 1.1 as well.
        let other = Budget::new();
        let _ = read(text, &other, false, lines_before);
        let other = other.words.take();
        if let Some((at, _)) = words
            .iter()
            .zip(other.iter().map(Some).chain(std::iter::repeat(None)))
            .find(|(word, other)| Some(*word) != *other)
        {
            return Err(at.to_string());
        }
    }
    Ok(value)
}

/// Reads a document. With `strict_booleans`, only `true` and `false` are booleans.
fn read(text: &str, budget: &Budget, strict_booleans: bool, lines_before: u64) -> Result<Value, String> {
    let options = options(strict_booleans);
    let read = serde_saphyr::with_deserializer_from_str_with_options(text, options, |document| {
        Node(budget).deserialize(document)
    });
    read.map_err(|error| {
        let rendering = serde_saphyr::render_options! {
            formatter: &Words,
            snippets: SnippetMode::Off,
            line_offset: lines_before,
        };
        let (path, what) = (budget.path.take(), error.render_with_options(rendering));
        if path.is_empty() { what } else { format!("{}: {what}", dotted(&path)) }
    })
}

/// The options under which everything that kubectl accepts can be read, within bounds. Aliases are counted where they
/// are used, by [`Budget`]; a chain of them that comes to nothing, such as of empty lists, is counted by the reader.
fn options(strict_booleans: bool) -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: DEEPEST,
            flow_nesting_limit: DEEPEST,
            // One anchor for the labels of a hundred objects is no attack.
            enforce_alias_anchor_ratio: false,
        },
        merge_keys: MergeKeyPolicy::AsOrdinary,
        // `defaultMode: 0644` is 420, as for kubectl.
        legacy_octal_numbers: true,
        strict_booleans: strict_booleans,
        reject_unsupported_tags: true,
        with_snippet: false,
    }
}

/// The parser's messages, in words for authors of manifests.
struct Words;

impl MessageFormatter for Words {
    fn format_message<'a>(&self, error: &'a serde_saphyr::Error) -> Cow<'a, str> {
        use serde_saphyr::Error;
        match error {
            Error::DuplicateMappingKey { key: Some(key), .. } => {
                format!("the key {key:?} occurs twice in one mapping").into()
            }
            Error::UnsupportedTag { tag, .. } => format!("the tag {tag} is not supported").into(),
            Error::NonFiniteFloat { value, .. } => {
                format!("{value} is not a number in JSON; quote it if it is a string").into()
            }
            _ => UserMessageFormatter.format_message(error),
        }
    }
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

/// Whole numbers up to here are exact as floating point numbers.
const LARGEST_EXACT: f64 = 9_007_199_254_740_992.0;

/// How much a document may still grow, counted about as its JSON would be, and where its reader is.
struct Budget {
    left: Cell<usize>,
    /// After an error nothing is taken off it: it ends at the value that was wrong.
    path: RefCell<Vec<Step>>,
    /// The booleans of YAML 1.1 that were read as strings.
    words: RefCell<Vec<Word>>,
}

/// A string that is a boolean in YAML 1.1 unless it is quoted.
#[derive(PartialEq, Eq)]
struct Word {
    path: String,
    word: String,
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Word { path, word } = self;
        if !path.is_empty() {
            write!(f, "{path}: ")?;
        }
        write!(f, "{word} is a boolean for kubectl; write true or false, or quote it if it is a string")
    }
}

/// Whether kubectl reads the word as a boolean, besides `true` and `false`.
fn is_boolean_of_yaml_1_1(word: &str) -> bool {
    let lower =
        ["y", "yes", "on", "n", "no", "off"].into_iter().find(|known| known.eq_ignore_ascii_case(word));
    let is_capital = |c: char| c.is_ascii_uppercase();
    // All small, all large, or large at the beginning.
    lower.is_some_and(|lower| {
        let rest = word.get(1..).unwrap_or_default();
        word == lower
            || word.chars().all(is_capital)
            || (word.starts_with(is_capital) && !rest.contains(is_capital))
    })
}

enum Step {
    Key(String),
    Index(usize),
}

/// A path as users of kubectl know it: `spec.containers[0].image`.
fn dotted(path: &[Step]) -> String {
    path.iter().fold(String::new(), |mut text, step| {
        // Writing to a string does not fail.
        let _ = match step {
            Step::Key(key) if text.is_empty() => text.write_str(key),
            Step::Key(key) => write!(text, ".{key}"),
            Step::Index(index) => write!(text, "[{index}]"),
        };
        text
    })
}

impl Budget {
    fn new() -> Self {
        Budget { left: Cell::new(LARGEST_DOCUMENT), path: RefCell::default(), words: RefCell::default() }
    }

    fn remember(&self, text: &str) {
        if is_boolean_of_yaml_1_1(text) {
            let word = Word { path: dotted(&self.path.borrow()), word: text.to_owned() };
            self.words.borrow_mut().push(word);
        }
    }

    fn enter(&self, step: Step) {
        self.path.borrow_mut().push(step);
    }

    fn leave(&self) {
        self.path.borrow_mut().pop();
    }

    fn spend<E: Error>(&self, bytes: usize) -> Result<(), E> {
        match self.left.get().checked_sub(bytes) {
            Some(rest) => {
                self.left.set(rest);
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

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        self.0.spend(8)?;
        // A whole number beyond 64 bits comes as one with a fraction, and its last digits are lost.
        if !(i64::MIN as f64..=u64::MAX as f64).contains(&value) {
            return Err(E::custom(format_args!("{value} is too large a number; quote it if it is a string")));
        }
        // As kubectl sends it: the API takes 3 for a count, but not 3.0.
        if value.fract() == 0.0 && value.abs() < LARGEST_EXACT {
            return Ok((value as i64).into());
        }
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("not a number"))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        self.0.spend(value.len() + 3)?;
        self.0.remember(value);
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
        loop {
            self.0.enter(Step::Index(list.len()));
            let Some(value) = access.next_element_seed(self)? else { break };
            self.0.leave();
            list.push(value);
        }
        self.0.leave();
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        self.0.spend(2)?;
        let mut map = Map::new();
        let mut merged = Map::new();
        while let Some(key) = access.next_key_seed(Key(self.0))? {
            self.0.spend(key.len() + 4)?;
            if map.contains_key(&key) {
                return Err(A::Error::custom(format_args!("the key {key:?} occurs twice in one mapping")));
            }
            self.0.enter(Step::Key(key.clone()));
            let value = access.next_value_seed(self)?;
            self.0.leave();
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
struct Key<'a>(&'a Budget);

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Key<'_> {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string as key")
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<String, E> {
        self.0.remember(value);
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

    /// Which digits the author wrote is lost: `1.10` has become 1.1.
    fn visit_f64<E: Error>(self, value: f64) -> Result<String, E> {
        Err(E::custom(format_args!(
            "the key {value} is a number with a fraction; quote it if it is a string"
        )))
    }

    fn visit_unit<E: Error>(self) -> Result<String, E> {
        Err(E::custom("a key is null; quote it if it is a string"))
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
    fn documents_are_separated_and_empty_ones_counted() {
        let documents: Vec<_> =
            yaml("a: 1\n---\n# only a comment\n---\nb: 2\n").into_iter().map(Result::unwrap).collect();
        assert_eq!(documents, [Some(json!({"a": 1})), None, Some(json!({"b": 2}))]);
        assert_eq!(yaml("# nothing\n").into_iter().flatten().flatten().count(), 0);
        assert_eq!(yaml("").into_iter().flatten().flatten().count(), 0);
    }

    #[test]
    fn a_syntax_error_has_a_line_and_a_column() {
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
        assert_eq!(one("1: x\ntrue: z\n").unwrap(), json!({"1": "x", "true": "z"}));
        let error = refused("data:\n  1.10: x\n");
        assert!(error.starts_with("data: the key 1.1 is a number with a fraction; quote it"), "{error}");
        assert!(refused("~: x\n").starts_with("a key is null; quote it"));
        assert!(refused("[a]: x\n").contains("a string as key"));
    }

    #[test]
    fn anchors_and_merge_keys_work_and_the_mappings_own_keys_win() {
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
        assert!(error.contains("too large or too complex"), "{error}");
        // Within the reader's own bounds.
        let mut text = format!("a: &a {}\nb: [", "x".repeat(100_000));
        text.push_str(&"*a, ".repeat(40));
        text.push_str("*a]\n");
        let error = refused(&text);
        assert!(error.contains("larger than 3 MiB"), "{error}");
        // An alias for nothing may be repeated as often as one likes.
        let mut text = "a0: &a0 []\n".to_owned();
        for level in 1..30 {
            let previous = format!("*a{}", level - 1);
            text.push_str(&format!("a{level}: &a{level} [{previous}, {previous}, {previous}]\n"));
        }
        let error = refused(&text);
        assert!(error.contains("too large or too complex"), "{error}");
        assert!(refused("a: &a [*a]\n").contains("line 1"));
    }

    #[test]
    fn a_document_over_the_limit_is_refused() {
        let text = format!("a: {}\n", "x".repeat(LARGEST_DOCUMENT));
        assert!(refused(&text).contains("larger than 3 MiB"));
    }

    #[test]
    fn tags_and_numbers_outside_of_json_are_refused() {
        assert!(refused("a: !secret x\n").contains("tag"));
        assert!(refused("a: .nan\n").contains("quote it"));
        assert!(refused("a: 99999999999999999999999\n").contains("too large"));
    }

    #[test]
    fn deep_nesting_is_an_error_and_not_a_crash() {
        assert!(yaml(&"[".repeat(100_000)).remove(0).is_err());
        assert!(json(&"[".repeat(100_000)).remove(0).is_err());
        for (depth, fine) in [(60, true), (70, false), (200, false)] {
            let flow = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
            let block: String = (0..depth).map(|level| format!("{}a:\n", " ".repeat(level))).collect();
            assert_eq!((one(&flow).is_ok(), one(&block).is_ok()), (fine, fine), "{depth}");
        }
    }

    #[test]
    fn markers_directives_and_comments_alone_are_no_document() {
        let all = |text: &str| yaml(text).into_iter().map(Result::unwrap).collect::<Vec<_>>();
        let (a, b) = (Some(json!({"a": 1})), Some(json!({"b": "x\n"})));
        assert_eq!(all("# why\n%YAML 1.2\n--- # this\na: 1\n...\n# and\n---\nb: |\n  x\n"), [a.clone(), b]);
        assert_eq!(all("a: 1\r\n---\r\na: 1\r\n"), [a.clone(), a.clone()]);
        assert_eq!(all("---\n{a: 1}\n---\n"), [a.clone(), None]);
        assert_eq!(all("a: 1\n...\na: 1\n...\n"), [a.clone(), a]);
        assert_eq!(all("a: |\n  --- x\nb: ---x\n"), [Some(json!({"a": "--- x\n", "b": "---x"}))]);
    }

    #[test]
    fn an_error_has_its_field_and_its_line_in_the_file() {
        for (value, expected) in [
            (".nan", "b[0].d: .nan is not a number in JSON; quote it if it is a string at line 5, column 6"),
            // The reader looks at a value before it hands over its key.
            ("!x 2", "b[0].d: the tag !x is not supported at line 5, column 9"),
        ] {
            let mut documents = yaml(&format!("a: 1\n---\nb:\n- c: 1\n  d: {value}\n"));
            assert_eq!(documents.remove(1).unwrap_err(), expected);
        }
    }

    #[test]
    fn scalars_have_the_types_that_kubectl_gives_them() {
        assert_eq!(
            one("{a: 'yes', b: \"on\", c: 0644, d: 1.50, e: -7, f: 1e3, g: ~, h: '5', i: 1.2.3, j: 0x1f}")
                .unwrap(),
            json!({"a": "yes", "b": "on", "c": 420, "d": 1.5, "e": -7, "f": 1000, "g": null, "h": "5",
                   "i": "1.2.3", "j": 31})
        );
        assert_eq!(one(&format!("[{}, {}]", u64::MAX, i64::MIN)).unwrap(), json!([u64::MAX, i64::MIN]));
        assert!(refused("-99999999999999999999999").contains("too large"));
    }

    #[test]
    fn what_kubectl_takes_for_a_boolean_is_refused_unless_it_is_quoted() {
        for (text, word) in [
            ("data: {a: 'yes', b: yes}", "data.b: yes is"),
            ("data: [x, OFF]", "data[1]: OFF is"),
            ("data: {y: 1}", "data: y is"),
            ("data: {No: 1, 'n': 2}", "data: No is"),
            ("data: {\"on\": {on: 1}}", "data.on: on is"),
            ("on", "on is"),
        ] {
            let error = refused(text);
            assert!(error.starts_with(word) && error.ends_with("quote it if it is a string"), "{error}");
        }
        let quoted = one("'y': &a \"no\"\nb: [*a, yEs, yess, 'On']\nc: |-\n  off\n").unwrap();
        assert_eq!(quoted, json!({"y": "no", "b": ["no", "yEs", "yess", "On"], "c": "off"}));
    }

    #[test]
    fn text_beside_the_mark_of_a_document_is_refused() {
        let mut documents = yaml("a: 1\n--- b: 2\n");
        assert_eq!(
            documents.remove(1).unwrap_err(),
            "begin the document on a line of its own after --- at line 2"
        );
        assert_eq!(one("--- # why\na: 1\n").unwrap(), json!({"a": 1}));
    }

    #[test]
    fn a_whole_number_is_sent_as_an_integer() {
        assert_eq!(one("[3.0, 1e3, -2.0, 0.5]").unwrap(), json!([3, 1000, -2, 0.5]));
        assert_eq!(json("[3.0, 2.5]").remove(0).unwrap(), Some(json!([3, 2.5])));
    }

    #[test]
    fn a_stream_of_json_values_is_accepted() {
        let documents: Vec<_> = json("{\"a\": 1}\n{\"b\": 2}").into_iter().map(Result::unwrap).collect();
        assert_eq!(documents, [Some(json!({"a": 1})), Some(json!({"b": 2}))]);
        assert!(json("{\"a\": 1,}").remove(0).unwrap_err().contains("line 1 column"));
    }
}
