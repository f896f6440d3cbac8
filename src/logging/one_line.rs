//! Log records in the text format: one line each, whatever the values hold.
//!
//! Messages and fields hold texts from outside: names, annotations, answers of the API server and of webhooks.
//! A newline in one of them would begin a line that looks like a record of ours, and an escape sequence would
//! reach the terminal. The values are escaped where they are formatted, so that no call site can forget it.
//! Targets and the names of spans and fields are literals of programs.

use std::error::Error;
use std::fmt::{self, Debug, Write};

use tracing::field::{Field, Visit};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::Writer;

/// Formats the message and the fields of an event, and the fields of a span.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OneLine;

impl<'w> FormatFields<'w> for OneLine {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'w>, fields: R) -> fmt::Result {
        let mut visitor = Fields { writer, is_first: true, result: Ok(()) };
        fields.record(&mut visitor);
        visitor.result
    }
}

struct Fields<'w> {
    writer: Writer<'w>,
    is_first: bool,
    result: fmt::Result,
}

impl Fields<'_> {
    fn write(&mut self, field: &str, value: fmt::Arguments<'_>) {
        if self.result.is_ok() {
            self.result = self.try_write(field, value);
        }
    }

    fn try_write(&mut self, field: &str, value: fmt::Arguments<'_>) -> fmt::Result {
        // The fields that the bridge from the `log` crate adds repeat the target.
        if field.starts_with("log.") {
            return Ok(());
        }
        if !std::mem::take(&mut self.is_first) {
            self.writer.write_char(' ')?;
        }
        if field != "message" {
            let name = field.strip_prefix("r#").unwrap_or(field);
            match self.writer.has_ansi_escapes() {
                // Italic and dimmed.
                true => write!(self.writer, "\x1b[3m{name}\x1b[0m\x1b[2m=\x1b[0m")?,
                false => write!(self.writer, "{name}=")?,
            }
        }
        Escaping(&mut self.writer).write_fmt(value)
    }
}

impl Visit for Fields<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.write("message", format_args!("{value}")),
            name => self.write(name, format_args!("{value:?}")),
        }
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.write(field.name(), format_args!("{value}"));
        let mut cause = value.source();
        while let Some(error) = cause {
            self.write("cause", format_args!("{error}"));
            cause = error.source();
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.write(field.name(), format_args!("{value:?}"));
    }
}

/// Passes text on with each character escaped that could end a line or change how the line is shown.
struct Escaping<'w, W>(&'w mut W);

impl<W: Write> Write for Escaping<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some((at, character)) = rest.char_indices().find(|(_, character)| is_unsafe(*character)) {
            self.0.write_str(&rest[..at])?;
            match character {
                '\n' => self.0.write_str("\\n")?,
                '\r' => self.0.write_str("\\r")?,
                '\t' => self.0.write_str("\\t")?,
                other => write!(self.0, "{}", other.escape_unicode())?,
            }
            rest = &rest[at + character.len_utf8()..];
        }
        self.0.write_str(rest)
    }
}

/// Whether a character must not be in a line as it is: control characters of both kinds (ESC begins the
/// sequences that terminals obey, U+0085 is a newline), the separators of lines and paragraphs, and what is
/// not seen itself or turns the direction of the text around it.
pub fn is_unsafe(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn escaped(text: &str) -> String {
        let mut out = String::new();
        Escaping(&mut out).write_str(text).unwrap();
        out
    }

    #[test]
    fn line_breaks_and_control_characters_are_escaped() {
        assert_eq!(escaped("a\nb\r\nc\td"), r"a\nb\r\nc\td");
        assert_eq!(escaped("\u{1b}[2J\u{9b}31m\u{7f}\0"), r"\u{1b}[2J\u{9b}31m\u{7f}\u{0}");
        assert_eq!(escaped("a\u{85}b\u{2028}c\u{2029}d"), r"a\u{85}b\u{2028}c\u{2029}d");
        assert_eq!(escaped("\u{202e}txt.exe\u{2066}"), r"\u{202e}txt.exe\u{2066}");
    }

    #[test]
    fn all_other_text_stays_as_it_is() {
        for text in ["", "web-6d6f5bd8b9", "größer als 10 %", "日本語 🚀", "back\\slash \"quoted\""] {
            assert_eq!(escaped(text), text);
        }
    }
}
