//! The type of a YAML scalar, as kubectl reads it: YAML 1.1 by the rules of Go's yaml.v2 (`resolve.go`).

use serde_json::{Number, Value};

/// A scalar without its quotes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    Null,
    Bool(bool),
    Int(i64),
    /// Beyond [`i64::MAX`].
    Large(u64),
    Float(f64),
    Text,
}

/// Whole numbers up to here are exact as floating point numbers.
const LARGEST_EXACT: f64 = 9_007_199_254_740_992.0;

/// The words that are no numbers and no text.
fn word(text: &str) -> Option<Scalar> {
    Some(match text {
        "" | "~" | "null" | "Null" | "NULL" => Scalar::Null,
        "true" | "True" | "TRUE" => Scalar::Bool(true),
        "false" | "False" | "FALSE" => Scalar::Bool(false),
        ".nan" | ".NaN" | ".NAN" => Scalar::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => Scalar::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => Scalar::Float(f64::NEG_INFINITY),
        _ => return boolean_of_yaml_1_1(text).map(Scalar::Bool),
    })
}

/// The booleans that are text since YAML 1.2, and for kubectl still booleans.
pub fn boolean_of_yaml_1_1(text: &str) -> Option<bool> {
    match text {
        "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => Some(true),
        "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => Some(false),
        _ => None,
    }
}

/// Resolves a scalar without quotes and without a tag. The empty one is null.
pub fn resolve(text: &str) -> Scalar {
    if let Some(word) = word(text) {
        return word;
    }
    match text.as_bytes()[0] {
        b'0'..=b'9' | b'+' | b'-' => number(&text.replace('_', "")),
        b'.' => float(text),
        _ => Scalar::Text,
    }
}

fn number(text: &str) -> Scalar {
    let (sign, digits) = match text.strip_prefix(['+', '-']) {
        Some(rest) => (&text[..1], rest),
        None => ("", text),
    };
    let lower = digits.get(..2).unwrap_or_default().to_ascii_lowercase();
    let (base, digits) = match lower.as_str() {
        "0x" => (16, &digits[2..]),
        "0o" => (8, &digits[2..]),
        "0b" => (2, &digits[2..]),
        _ if digits.len() > 1 && digits.starts_with('0') => (8, &digits[1..]),
        _ => (10, digits),
    };
    // Rust would take a second sign. Go does so behind `0b`, and only if there is no first one.
    let may_have_sign = lower == "0b" && sign.is_empty();
    if may_have_sign || digits.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        if let Ok(number) = i64::from_str_radix(&format!("{sign}{digits}"), base) {
            return Scalar::Int(number);
        }
        if let (Ok(number), "") = (u64::from_str_radix(digits, base), sign) {
            return Scalar::Large(number);
        }
    }
    float(text)
}

fn float(text: &str) -> Scalar {
    let is_of_numbers = text.bytes().all(|c| c.is_ascii_digit() || b"+-.eE".contains(&c));
    match text.parse::<f64>() {
        Ok(number) if is_of_numbers && number.is_finite() => Scalar::Float(number),
        _ => Scalar::Text,
    }
}

/// The number in JSON.
///
/// # Errors
/// When JSON has no such number.
pub fn json_number(number: f64) -> Result<Value, String> {
    // As kubectl sends it: the API takes 3 for a count, but not 3.0.
    if number.fract() == 0.0 && number.abs() < LARGEST_EXACT {
        return Ok((number as i64).into());
    }
    let error = || format!("{} is not a number in JSON; quote it if it is a string", float_key(number));
    Number::from_f64(number).map(Value::Number).ok_or_else(error)
}

/// The key that kubectl makes of a number with a fraction: rounded to 32 bits, and in the form of Go's `%g`.
pub fn float_key(number: f64) -> String {
    if number.is_nan() {
        return ".nan".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { ".inf" } else { "-.inf" }.to_owned();
    }
    let shortest = format!("{:e}", number as f32);
    let exponent =
        shortest.split_once('e').and_then(|(_, exponent)| exponent.parse::<i32>().ok()).unwrap_or_default();
    if (-4..6).contains(&exponent) {
        return (number as f32).to_string();
    }
    let (digits, _) = shortest.split_once('e').unwrap_or((&shortest, ""));
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_yaml_1_1() {
        for (text, number) in [
            ("0", 0),
            ("-7", -7),
            ("+12", 12),
            ("0644", 420),
            ("0o17", 15),
            ("0b101", 5),
            ("-0b1", -1),
            ("0b-1", -1),
            ("0b+1", 1),
            ("0x1F", 31),
            ("-0x1F", -31),
            ("1_000", 1000),
            ("9223372036854775807", i64::MAX),
        ] {
            assert_eq!(resolve(text), Scalar::Int(number), "{text}");
        }
        assert_eq!(resolve("18446744073709551615"), Scalar::Large(u64::MAX));
        for (text, number) in [
            ("08", 8.0),
            ("1e3", 1000.0),
            ("1.", 1.0),
            (".5", 0.5),
            ("-.5", -0.5),
            ("99999999999999999999", 1e20),
        ] {
            assert_eq!(resolve(text), Scalar::Float(number), "{text}");
        }
        for text in [
            "1.2.3",
            "0x",
            "0xg",
            "1e400",
            "+",
            "-",
            "--1",
            "0x+1",
            "0o-7",
            "-0b-1",
            "0b--1",
            "1m",
            "2001-01-01",
            "infinity",
            "1e",
            ".",
        ] {
            assert_eq!(resolve(text), Scalar::Text, "{text}");
        }
    }

    #[test]
    fn a_key_with_a_fraction_has_the_digits_that_kubectl_writes() {
        for (number, key) in
            [(1.1, "1.1"), (1000.0, "1000"), (1e21, "1e+21"), (0.00001, "1e-05"), (f64::NAN, ".nan")]
        {
            assert_eq!(float_key(number), key);
        }
    }
}
