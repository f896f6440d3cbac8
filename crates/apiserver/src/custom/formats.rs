//! The formats of strings and numbers that schemas name. A format that is not listed here allows everything, as upstream's
//! do (`apiextensions-apiserver/pkg/apiserver/validation/formats.go`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use k8s_openapi::ByteString;
use serde_json::Value;

use crate::validate::names;

/// The formats of strings, without hyphens: upstream compares them so.
const OF_STRINGS: [&str; 26] = [
    "bsonobjectid",
    "byte",
    "cidr",
    "creditcard",
    "date",
    "datetime",
    "duration",
    "email",
    "hexcolor",
    "hostname",
    "ipv4",
    "ipv6",
    "isbn",
    "isbn10",
    "isbn13",
    "k8slongname",
    "k8sshortname",
    "mac",
    "password",
    "rgbcolor",
    "ssn",
    "uri",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
];

/// Whether a format is one of a type; `""` is the type of a schema that names none.
pub(crate) fn is_known(of: &str, format: &str) -> bool {
    match of {
        "" | "string" => OF_STRINGS.contains(&&*format.replace('-', "")),
        "integer" => matches!(format, "int32" | "int64"),
        "number" => matches!(format, "float" | "double"),
        _ => false,
    }
}

/// Whether a string has the format.
pub(super) fn fits_text(format: &str, text: &str) -> bool {
    match format {
        "date-time" | "datetime" => text.parse::<jiff::Timestamp>().is_ok(),
        "date" => text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok(),
        "duration" => is_duration(text),
        "byte" => serde_json::from_value::<ByteString>(text.into()).is_ok(),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => is_network(text),
        "hostname" => names::dns1123_subdomain(&text.to_lowercase()).is_empty(),
        "uuid" | "uuid3" | "uuid4" | "uuid5" => is_uuid(text),
        "email" => text.split_once('@').is_some_and(|(name, host)| !name.is_empty() && !host.is_empty()),
        "uri" => text.parse::<http::Uri>().is_ok(),
        _ => true,
    }
}

/// Whether a number is in the range of the format.
pub(super) fn fits_number(format: &str, value: &Value) -> bool {
    match (format, value.as_i64()) {
        ("int32", Some(number)) => i32::try_from(number).is_ok(),
        ("int32" | "int64", None) => value.as_f64().is_some_and(|number| {
            // Beyond 2^53 every float is an integer, and the largest i64 is no float.
            let limit = if format == "int32" { 2_147_483_647.0 } else { 9.2e18 };
            number.abs() <= limit
        }),
        ("float", _) => value.as_f64().is_some_and(|number| number.abs() <= f64::from(f32::MAX)),
        _ => true,
    }
}

fn is_network(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    match (address.parse::<IpAddr>(), bits.parse::<u8>()) {
        (Ok(IpAddr::V4(_)), Ok(bits)) => bits <= 32,
        (Ok(IpAddr::V6(_)), Ok(bits)) => bits <= 128,
        _ => false,
    }
}

fn is_uuid(text: &str) -> bool {
    let groups: Vec<&str> = text.split('-').collect();
    let is_hex = |group: &&str| group.bytes().all(|byte| byte.is_ascii_hexdigit());
    groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12]) && groups.iter().all(is_hex)
}

/// Numbers with the units of Go: `1h30m`, `250ms`.
fn is_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    let mut parts = 0;
    while !rest.is_empty() {
        let digits = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        let units = ["ns", "us", "µs", "ms", "s", "m", "h", "d", "w"];
        let is_number = rest.len() > digits.len() && rest.starts_with(|c: char| c.is_ascii_digit());
        let mut after = units.iter().filter_map(|unit| digits.strip_prefix(unit));
        // `m` is also the beginning of `ms`.
        let shortest = after.by_ref().min_by_key(|after| after.len());
        let (true, Some(after)) = (is_number, shortest) else { return false };
        rest = after;
        parts += 1;
    }
    parts > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_formats_are_checked() {
        for (format, good, bad) in [
            ("date-time", "2026-01-01T00:00:00Z", "2026-01-01"),
            ("date", "2026-01-01", "2026-13-01"),
            ("duration", "1h30m250ms", "1 hour"),
            ("byte", "aGk=", "?"),
            ("ipv4", "10.0.0.1", "10.0.0"),
            ("ipv6", "::1", "10.0.0.1"),
            ("cidr", "10.0.0.0/8", "10.0.0.0/33"),
            ("hostname", "a.example", "a_b"),
            ("uuid", "123e4567-e89b-12d3-a456-426614174000", "123e4567"),
        ] {
            assert!(fits_text(format, good), "{format} {good}");
            assert!(!fits_text(format, bad), "{format} {bad}");
        }
        assert!(fits_text("no-such-format", "x"));
        assert!(!fits_number("int32", &Value::from(1_i64 << 40)));
        assert!(fits_number("int64", &Value::from(1_i64 << 40)));
    }
}
