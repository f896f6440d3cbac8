//! The tables of messages, taken apart once.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::{kinds, messages, pod};

/// One field of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    pub(super) number: u64,
    pub(super) name: &'static str,
    pub(super) list: bool,
    pub(super) map: bool,
    /// A zero on the wire is a value.
    pub(super) pointer: bool,
    pub(super) kind: &'static str,
}

impl Field {
    fn parse(text: &'static str) -> Option<Self> {
        let mut words = text.split_whitespace();
        let (number, name, kind) = (words.next()?.parse().ok()?, words.next()?, words.next()?);
        let (list, map, pointer) = (kind.starts_with("[]"), kind.starts_with("{}"), kind.starts_with('*'));
        let kind = kind.trim_start_matches(['[', ']', '{', '}', '*']);
        Some(Field { number, name, list, map, pointer, kind })
    }
}

/// The fields of one message.
#[derive(Debug, Default)]
pub(super) struct Message {
    fields: Vec<Field>,
}

impl Message {
    /// All fields, in the order of the Go type.
    pub(super) fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// The field of this number.
    pub(super) fn numbered(&self, number: u64) -> Option<Field> {
        self.fields.iter().find(|field| field.number == number).copied()
    }

    /// The field of this name.
    pub(super) fn named(&self, name: &str) -> Option<Field> {
        self.fields.iter().find(|field| field.name == name).copied()
    }

    /// The messages whose fields stand in this one.
    pub(super) fn embedded(&self) -> impl Iterator<Item = Field> {
        self.fields.iter().filter(|field| field.name == ".").copied()
    }
}

static TABLE: LazyLock<HashMap<&'static str, Message>> = LazyLock::new(|| {
    let rows = messages::MESSAGES.iter().chain(pod::MESSAGES).chain(kinds::MESSAGES);
    rows.map(|(name, fields)| {
        (*name, Message { fields: fields.split(", ").filter_map(Field::parse).collect() })
    })
    .collect()
});

/// The message of this name, if the tables have it.
pub(super) fn message(name: &str) -> Option<&'static Message> {
    TABLE.get(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_tables_is_read_and_every_message_that_they_name_is_in_them() {
        let simple = [
            "string",
            "bytes",
            "int",
            "bool",
            "Time",
            "MicroTime",
            "Quantity",
            "IntOrString",
            "RawJson",
            "ignored",
        ];
        for (name, fields) in messages::MESSAGES.iter().chain(pod::MESSAGES).chain(kinds::MESSAGES) {
            for text in fields.split(", ").filter(|text| !text.is_empty()) {
                let field = Field::parse(text).unwrap_or_else(|| panic!("{name}: {text:?}"));
                let known = simple.contains(&field.kind) || message(field.kind).is_some();
                assert!(known, "{name}.{}: {}", field.name, field.kind);
            }
        }
        let (rows, names) =
            (messages::MESSAGES.len() + pod::MESSAGES.len() + kinds::MESSAGES.len(), TABLE.len());
        assert_eq!(rows, names, "a message stands in the tables twice");
    }
}
