//! Reads manifests of Kubernetes objects: decodes bytes ([`text`]), splits and parses documents ([`documents`]), and
//! expands lists ([`expand`]). It opens no file and sends no request.
//!
//! YAML has the meaning that it has for kubectl, tested against kubectl's own reader (`yaml.rs`).

use serde::de::IgnoredAny;
use serde_json::Deserializer;

pub mod document;
mod list;
mod nesting;
mod scalar;
mod source;
mod yaml;

pub use document::Document;
pub use list::{Defect, ManifestObject, Origin, expand};
pub use source::{LARGEST_SOURCE, SourceError, text};

/// Parses the documents of a text, empty ones too, so that the numbers of the others are right. Parsing stops at the first
/// error.
///
/// As for kubectl, a text that begins with a brace is parsed as JSON, and as YAML from the first or second value on that is
/// no JSON. If `name` ends in `.json`, it is not.
pub fn documents(name: &str, text: &str) -> Vec<Result<Document, String>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if !text.trim_start().starts_with('{') {
        return document::yaml(text);
    }
    let mut json = document::json(text);
    let read = json.iter().filter(|document| document.is_ok()).count();
    if name.ends_with(".json") || read == json.len() || read > 1 {
        return json;
    }
    let mut values = Deserializer::from_str(text).into_iter::<IgnoredAny>();
    values.by_ref().take(read).for_each(drop);
    let (before, rest) = text.split_at(values.byte_offset());
    json.truncate(read);
    json.extend(document::yaml_behind(before.matches('\n').count() as u64, rest));
    json
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(name: &str, text: &str) -> Vec<Result<Value, String>> {
        documents(name, text).into_iter().map(|document| document.map(|document| document.value)).collect()
    }

    #[test]
    fn json_is_recognized_by_its_first_character_or_its_file_name() {
        let (a, b) = (Ok(json!({"a": 1})), Ok(json!({"b": 2})));
        assert_eq!(read("-", "\u{feff} {\"a\": 1}\n{\"b\": 2}"), [a.clone(), b.clone()]);
        assert_eq!(read("x.yaml", "{a: 1}\n"), std::slice::from_ref(&a));
        assert_eq!(read("x.yaml", "{\"a\": 1}\n---\nb: 2\n"), [a.clone(), b]);
        let error = read("x.json", "{\"a\": 1,\n}").remove(0).unwrap_err();
        assert!(error.contains("line 2"), "{error}");
        assert_eq!(read("x.json", "a: 1"), [a]);
    }

    #[test]
    fn the_yaml_of_kubectl_with_braces_and_quotes_is_read() {
        // KYAML, as `kubectl get -o kyaml` prints it: comments, commas at the end, keys without quotes.
        let text = "---\n# why\n{\n  kind: \"Pod\", # what\n  metadata: {\n    labels: {\n      \"no\": \"off\",\n    },\n  },\n}\n";
        assert_eq!(
            read("x.kyaml", text),
            [Ok(json!({"kind": "Pod", "metadata": {"labels": {"no": "off"}}}))]
        );
        assert_eq!(read("-", &text[4..]), read("x.kyaml", text));
    }

    #[test]
    fn what_stands_in_front_of_an_error_is_read() {
        let rest = |rest: &str| read("x.yaml", &format!("{{\"a\": 1}}\n{rest}"));
        assert_eq!(rest("words\n"), [Ok(json!({"a": 1})), Ok(json!("words"))]);
        let error = "did not find expected ',' or ']' at line 4, column 1";
        assert_eq!(rest("\n [a"), [Ok(json!({"a": 1})), Err(error.to_owned())]);
        let error = "key must be a string at line 2 column 11";
        assert_eq!(rest("{\"a\": 1} {a: 1}")[2], Err(error.to_owned()));
        assert_eq!(
            read("x.yaml", "a: 1\n---\nb: [\n---\nc: 3\n").iter().map(Result::is_ok).collect::<Vec<_>>(),
            [true, false]
        );
    }
}
