//! Texts of other people, and times, as they are shown.

use jiff::{SignedDuration, Timestamp};
use windlass::logging::is_unsafe;

/// The most characters of a foreign text on one line.
const LONGEST: usize = 300;

/// Makes a text of a kubelet, an event or an annotation harmless for one line of a terminal: without control and format
/// characters such as escapes and bidirectional overrides, runs of white space as one space, and cut.
pub fn harmless(text: &str) -> String {
    let mut line = String::new();
    let mut length = 0;
    for word in text.split_whitespace() {
        let mut visible = word.chars().filter(|c| !is_unsafe(*c)).peekable();
        if visible.peek().is_none() {
            continue;
        }
        if !line.is_empty() {
            line.push(' ');
            length += 1;
        }
        for c in visible {
            if length >= LONGEST {
                line.push('…');
                return line;
            }
            line.push(c);
            length += 1;
        }
    }
    line
}

/// A value as JSON on one line. Characters that reorder or hide text are escaped, so that none reaches a terminal.
pub fn json(value: &serde_json::Value) -> String {
    escape_invisible(&value.to_string())
}

/// The same on lines with indentation.
pub fn pretty_json(value: &serde_json::Value) -> String {
    escape_invisible(&format!("{value:#}"))
}

/// Escapes in a JSON text what a terminal would interpret. Only strings hold such characters, but for the ends of lines.
pub fn escape_invisible(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        if is_unsafe(c) && c != '\n' {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                text.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            text.push(c);
        }
    }
    text
}

/// A time span in at most two units: `7s`, `3m12s`, `2h5m`, `4d3h`. A negative one is `0s`.
pub fn span(duration: SignedDuration) -> String {
    let seconds = duration.as_secs().max(0);
    let two = |large: i64, unit: &str, small: i64, below: &str| match small {
        0 => format!("{large}{unit}"),
        _ => format!("{large}{unit}{small}{below}"),
    };
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => two(seconds / 60, "m", seconds % 60, "s"),
        3600..86400 => two(seconds / 3600, "h", seconds % 3600 / 60, "m"),
        _ => two(seconds / 86400, "d", seconds % 86400 / 3600, "h"),
    }
}

/// How long ago a time was.
pub fn age(since: Timestamp, now: Timestamp) -> String {
    span(now.duration_since(since))
}

/// `1 pod`, `2 pods`.
pub fn counted(count: i64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Rows as columns that are two spaces apart, without spaces at the ends of lines.
pub fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..count).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let line: String = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}  ")).collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_foreign_text_cannot_move_the_cursor_or_start_a_line() {
        assert_eq!(harmless("a\u{1b}[2Jb\n::add-mask::x\r\n\tc"), "a[2Jb ::add-mask::x c");
        assert_eq!(harmless("abc\u{202e}def\u{200b}"), "abcdef");
        assert_eq!(harmless(" \u{200b} x \n"), "x");
        let long = harmless(&"ä".repeat(1_000_000));
        assert_eq!((long.chars().count(), long.ends_with('…')), (301, true));
    }

    #[test]
    fn json_keeps_a_foreign_text_whole_and_escaped() {
        let text = format!("a\u{1b}[2J\u{202e}b\u{e0041}{}", "x".repeat(1000));
        let value = serde_json::json!({ "text": text });
        let line = json(&value);
        assert!(!line.chars().any(is_unsafe), "{line}");
        assert!(line.contains(r"a\u001b[2J\u202eb\udb40\udc41x"), "{line}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&line).unwrap(), value);
        let lines = pretty_json(&value);
        assert!(!lines.chars().any(|c| is_unsafe(c) && c != '\n'), "{lines}");
        assert!(lines.starts_with("{\n  \"text\": \"a"), "{lines}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&lines).unwrap(), value);
    }

    #[test]
    fn a_span_has_at_most_two_units() {
        let shown = |seconds: i64| span(SignedDuration::from_secs(seconds));
        assert_eq!([0, 59, 60, 192].map(shown), ["0s", "59s", "1m", "3m12s"]);
        assert_eq!([3600, 7500, 86400, 97200, -5].map(shown), ["1h", "2h5m", "1d", "1d3h", "0s"]);
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        assert_eq!(
            columns(&[row(["POD", "AGE", ""]), row(["web-1", "3s", "x"])]),
            "POD    AGE\nweb-1  3s   x\n"
        );
    }
}
