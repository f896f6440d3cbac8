//! Reads manifests of Kubernetes objects: decodes bytes ([`text`]), splits and parses documents ([`documents`]), and
//! expands lists ([`expand`]). It opens no file and sends no request.
//!
//! kubectl reads YAML 1.1. The parser refuses `yes`, `on` and the like without quotes, which YAML 1.1 and YAML 1.2 read
//! as different types.

pub mod document;
mod list;
mod source;

pub use list::{Defect, ManifestObject, Origin, expand};
pub use source::{LARGEST_SOURCE, SourceError, text};

use serde_json::Value;

/// Parses the documents of a text. An empty document is `None`, so that the numbers of the others are right; parsing
/// stops at the first error.
///
/// A text that begins with a brace or bracket is parsed as JSON, and as YAML if that fails and `name` does not end in
/// `.json`.
pub fn documents(name: &str, text: &str) -> Vec<Result<Option<Value>, String>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if !text.trim_start().starts_with(['{', '[']) {
        return document::yaml(text);
    }
    let json = document::json(text);
    if name.ends_with(".json") || json.iter().all(Result::is_ok) {
        return json;
    }
    let yaml = document::yaml(text);
    let is_readable = |documents: &[Result<_, _>]| documents.first().is_some_and(Result::is_ok);
    // Both parsers fail: the one that parsed the first document reports its error.
    if is_readable(&json) && !is_readable(&yaml) { json } else { yaml }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(name: &str, text: &str) -> Vec<Result<Option<Value>, String>> {
        documents(name, text)
    }

    #[test]
    fn json_is_recognized_by_its_first_character_or_its_file_name() {
        let (a, b) = (Ok(Some(json!({"a": 1}))), Ok(Some(json!({"b": 2}))));
        assert_eq!(read("-", "\u{feff} {\"a\": 1}\n{\"b\": 2}"), [a.clone(), b.clone()]);
        assert_eq!(read("x.yaml", "{a: 1}\n"), std::slice::from_ref(&a));
        assert_eq!(read("x.yaml", "{\"a\": 1}\n---\nb: 2\n"), [a.clone(), b]);
        let error = read("x.json", "{\"a\": 1,\n}").remove(0).unwrap_err();
        assert!(error.contains("line 2"), "{error}");
        assert_eq!(read("x.json", "a: 1"), [a]);
    }

    #[test]
    fn what_stands_in_front_of_an_error_is_read() {
        let documents = read("x.yaml", "{\"a\": 1}\ngarbage");
        assert_eq!(documents[0], Ok(Some(json!({"a": 1}))));
        assert!(documents[1].is_err() && documents.len() == 2, "{documents:?}");
        assert_eq!(
            read("x.yaml", "a: 1\n---\nb: [\n---\nc: 3\n").iter().map(Result::is_ok).collect::<Vec<_>>(),
            [true, false]
        );
    }
}
