//! JSON as Go's encoder writes what its decoder has read without a type: revisions are compared by their bytes.

use std::fmt::Write as _;

use serde_json::{Number, Value};

/// The value without spaces, keys sorted by their bytes.
pub fn canonical(value: &Value) -> String {
    let mut text = String::new();
    write(value, &mut text);
    text
}

/// A string, with all that could end a script element escaped.
pub fn string(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\u{0}'..='\u{1f}' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                // Writing to a string cannot fail.
                let _ = write!(quoted, "\\u{:04x}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

fn write(value: &Value, text: &mut String) {
    match value {
        Value::Null => text.push_str("null"),
        Value::Bool(true) => text.push_str("true"),
        Value::Bool(false) => text.push_str("false"),
        Value::Number(number) => text.push_str(&self::number(number)),
        Value::String(value) => text.push_str(&string(value)),
        Value::Array(items) => {
            text.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    text.push(',');
                }
                write(item, text);
            }
            text.push(']');
        }
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_unstable_by(|a, b| a.0.cmp(b.0));
            text.push('{');
            for (at, (key, value)) in fields.into_iter().enumerate() {
                if at > 0 {
                    text.push(',');
                }
                text.push_str(&string(key));
                text.push(':');
                write(value, text);
            }
            text.push('}');
        }
    }
}

/// An integer of 64 bits as it is; every other number has been a 64-bit float on its way (upstream:
/// `apimachinery/pkg/util/json`, which kubectl uses, too).
fn number(number: &Number) -> String {
    if let Some(integer) = number.as_i64() {
        return integer.to_string();
    }
    let float = number.as_f64().unwrap_or(0.0);
    let size = float.abs();
    if size != 0.0 && !(1e-6..1e21).contains(&size) {
        let text = format!("{float:e}");
        // Go has a sign in front of every exponent.
        return text.replacen("e", if text.contains("e-") { "e" } else { "e+" }, 1);
    }
    format!("{float}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(json: &str, expected: &str) {
        assert_eq!(canonical(&serde_json::from_str(json).unwrap()), expected);
    }

    #[test]
    fn keys_are_sorted_by_their_bytes_at_every_level_and_lists_keep_their_order() {
        check(
            r#"{ "b": [3, 1, {"z": 1, "Z": 2}], "a": null, "é": true, "$p": false }"#,
            r#"{"$p":false,"a":null,"b":[3,1,{"Z":2,"z":1}],"é":true}"#,
        );
    }

    #[test]
    fn html_characters_are_escaped_and_the_rest_is_utf_8() {
        check(
            "\"<a href='x'>&amp;\\u2028\\u2029</a>\"",
            "\"\\u003ca href='x'\\u003e\\u0026amp;\\u2028\\u2029\\u003c/a\\u003e\"",
        );
        check(r#""\u0001\u0008\u000c\n\r\t\"\\\/\u007f😀""#, "\"\\u0001\\b\\f\\n\\r\\t\\\"\\\\/\u{7f}😀\"");
        check(r#"{"<": 1}"#, r#"{"\u003c":1}"#);
    }

    #[test]
    fn integers_of_64_bits_stay_and_other_numbers_have_been_floats() {
        check("[0, -1, 1.0, 1.50, 1e3, 9007199254740992]", "[0,-1,1,1.5,1000,9007199254740992]");
        check("[9007199254740993, -9007199254740993]", "[9007199254740993,-9007199254740993]");
        let borders = "[9223372036854775807,-9223372036854775808]";
        check(borders, borders);
        check("[9223372036854775808, 18446744073709551615]", "[9223372036854776000,18446744073709552000]");
        check("[-9223372036854775809, 9223372036854775807.0]", "[-9223372036854776000,9223372036854776000]");
        check("[1e21, 1e-7, 2.5e+30, -1e-9]", "[1e+21,1e-7,2.5e+30,-1e-9]");
    }
}
