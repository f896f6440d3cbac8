//! Reads a document of YAML as kubectl does: kubectl's parser and ours are ports of libyaml, and words without quotes have the
//! types of YAML 1.1 ([`scalar`](super::scalar)), whatever the parser takes them for.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer as _, Visitor};
use serde_norway::Deserializer;

use super::document::{Document, LARGEST_DOCUMENT, Node, Reading};
use super::nesting::check_depth;

/// Indentation and comments count here. The parser takes up to 70 bytes of memory for each byte.
const LARGEST_TEXT: usize = 4 * LARGEST_DOCUMENT;

/// Reads the first document of a text that begins after so many lines of its file. What stands behind the end of the
/// document is not read, and a note says so: kubectl drops it without a word.
///
/// # Errors
/// When it is not YAML, has no value in JSON, or is too large or too deep.
pub fn read(text: &str, lines_before: u64) -> Result<Document, String> {
    if text.len() > LARGEST_TEXT {
        return Err(format!("the document has more than {} MiB", LARGEST_TEXT / 1024 / 1024));
    }
    check_depth(text)?;
    let reading = Reading::of_yaml(text);
    let mut documents = Deserializer::from_str(text);
    let Some(document) = documents.next() else { return Ok(Document::default()) };
    let value = Node(&reading).deserialize(document).map_err(|error| message(&error, lines_before))?;
    let mut notes = reading.notes();
    if let Some(Err(error)) = documents.next().map(|rest| rest.deserialize_any(Nothing)) {
        let line = error.location().map_or(0, |location| location.line() as u64) + lines_before;
        notes.push(format!("the document ends before line {line}; the rest up to the next --- is left out"));
    }
    Ok(Document { value, notes })
}

fn message(error: &serde_norway::Error, lines_before: u64) -> String {
    let mut message = error.to_string();
    // Where the list or mapping begins, in which the parser was.
    if let Some(at) = message.find(", while parsing ").or(message.find(", while scanning ")) {
        message.truncate(at);
    }
    let Some(location) = error.location() else { return message };
    let (line, column) = (location.line(), location.column());
    // The parser counts from the beginning of the document.
    let message = message.replace(&format!(" at line {line} column {column}"), "");
    format!("{message} at line {}, column {column}", line as u64 + lines_before)
}

/// Takes no value, and so shows where one stands.
struct Nothing;

impl Visitor<'_> for Nothing {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nothing")
    }
}

/// Whether a text that the parser has borrowed from its source stands there without quotes and without a tag.
pub fn is_plain(source: &str, borrowed: &str) -> bool {
    let Some(before) =
        (borrowed.as_ptr() as usize).checked_sub(source.as_ptr() as usize).and_then(|at| source.get(..at))
    else {
        return false;
    };
    let mut words =
        before.rsplit([' ', '\t', '\n', '\r', ',', '[', '{']).filter(|word| !word.starts_with('&'));
    let is_tagged = before.ends_with([' ', '\t'])
        && words.find(|word| !word.is_empty()).is_some_and(|word| word.starts_with('!'));
    !before.ends_with(['\'', '"']) && !is_tagged
}
