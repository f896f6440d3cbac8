//! Durations as Go writes them, such as `1h30m`, and Go's quotation of texts.

/// Nanoseconds of each unit. Both signs for micro are in use.
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// A duration in nanoseconds.
///
/// # Errors
/// The text of Go's `time.ParseDuration`.
pub(crate) fn parse(text: &str) -> Result<i64, String> {
    let invalid = || format!("time: invalid duration {}", quoted_bytes(text));
    let (is_negative, mut rest) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let most = i64::MAX.unsigned_abs();
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let (whole, after) = rest.split_at(digits(rest));
        let (fraction, after_fraction) = match after.strip_prefix('.') {
            Some(after) => after.split_at(digits(after)),
            None => ("", after),
        };
        let number: u64 = match whole {
            "" if fraction.is_empty() => return Err(invalid()),
            "" => 0,
            whole => whole.parse().ok().filter(|number| *number <= most + 1).ok_or_else(invalid)?,
        };
        let end = after_fraction.find(|c: char| c == '.' || c.is_ascii_digit());
        let (unit, left) = after_fraction.split_at(end.unwrap_or(after_fraction.len()));
        rest = left;
        if unit.is_empty() {
            return Err(format!("time: missing unit in duration {}", quoted_bytes(text)));
        }
        let Some((_, size)) = UNITS.iter().find(|(name, _)| *name == unit) else {
            let (unit, text) = (quoted_bytes(unit), quoted_bytes(text));
            return Err(format!("time: unknown unit {unit} in duration {text}"));
        };
        // 18 digits are exact to the nanosecond, and more do not fit.
        let digits = &fraction[..fraction.len().min(18)];
        let (part, scale) =
            (digits.parse().unwrap_or(0u128), 10u128.pow(u32::try_from(digits.len()).unwrap_or(18)));
        let part = u64::try_from(part * u128::from(*size) / scale).map_err(|_| invalid())?;
        let sum = number.checked_mul(*size).and_then(|value| value.checked_add(part)?.checked_add(total));
        total = sum.filter(|sum| *sum <= most + 1).ok_or_else(invalid)?;
    }
    match i64::try_from(total) {
        Ok(total) => Ok(if is_negative { -total } else { total }),
        Err(_) if is_negative => Ok(i64::MIN),
        Err(_) => Err(invalid()),
    }
}

/// A text in quotes as Go's package `time` writes it: bytes outside of ASCII are numbers.
fn quoted_bytes(text: &str) -> String {
    let mut quoted = String::from("\"");
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => quoted.extend(['\\', char::from(byte)]),
            b' '..0x80 => quoted.push(char::from(byte)),
            _ => quoted += &format!("\\x{byte:02x}"),
        }
    }
    quoted + "\""
}

/// A text in quotes as Go's `strconv.Quote` writes it.
pub(crate) fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\u{7}' => quoted += "\\a",
            '\u{8}' => quoted += "\\b",
            '\u{c}' => quoted += "\\f",
            '\n' => quoted += "\\n",
            '\r' => quoted += "\\r",
            '\t' => quoted += "\\t",
            '\u{b}' => quoted += "\\v",
            '\0'..' ' | '\u{7f}' => quoted += &format!("\\x{:02x}", u32::from(c)),
            // Rust and Go agree on what can be printed, but for some spaces.
            _ if c.escape_debug().count() == 1 || c == '\'' => quoted.push(c),
            _ if u32::from(c) > 0xffff => quoted += &format!("\\U{:08x}", u32::from(c)),
            _ => quoted += &format!("\\u{:04x}", u32::from(c)),
        }
    }
    quoted + "\""
}

#[cfg(test)]
mod tests {
    use super::{parse, quoted};

    #[test]
    fn durations_are_read_as_go_reads_them() {
        for (text, nanoseconds) in [
            ("1h30m", 5_400_000_000_000),
            ("-1.5s", -1_500_000_000),
            (".5s", 500_000_000),
            ("1.s", 1_000_000_000),
            ("2\u{b5}s3\u{3bc}s", 5_000),
            ("+0", 0),
            ("1h0.000000000000000001h", 3_600_000_000_000),
            ("-9223372036854775808ns", i64::MIN),
        ] {
            assert_eq!(parse(text), Ok(nanoseconds), "{text}");
        }
        for (text, error) in [
            ("", "time: invalid duration \"\""),
            ("-", "time: invalid duration \"-\""),
            (".s", "time: invalid duration \".s\""),
            ("day", "time: invalid duration \"day\""),
            ("3", "time: missing unit in duration \"3\""),
            ("1d", "time: unknown unit \"d\" in duration \"1d\""),
            ("1\u{e4}", "time: unknown unit \"\\xc3\\xa4\" in duration \"1\\xc3\\xa4\""),
            ("9223372036854775808ns", "time: invalid duration \"9223372036854775808ns\""),
            ("3000000h", "time: invalid duration \"3000000h\""),
            ("99999999999999999999s", "time: invalid duration \"99999999999999999999s\""),
        ] {
            assert_eq!(parse(text), Err(error.to_owned()), "{text}");
        }
    }

    #[test]
    fn texts_are_quoted_as_go_quotes_them() {
        assert_eq!(
            quoted("a'\"\\\u{1}\u{7f}\u{7}ä\u{200b}\u{e0001}"),
            r#""a'\"\\\x01\x7f\aä\u200b\U000e0001""#
        );
    }
}
