//! Resource quantities as numbers that can be added (upstream: apimachinery/pkg/api/resource).

use serde::Deserialize;
use serde_json::Value;

/// A quantity of 1 in the finest unit there is.
pub const NANOS: i128 = 1_000_000_000;

/// Larger quantities are capped, as upstream does. Ten billion of them can be added.
const MOST: i128 = i64::MAX as i128 * NANOS;

/// A quantity in billionths. One that cannot be read is as large as any: it fits nowhere, rather than everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "Value")]
pub struct Amount(pub i128);

impl From<Value> for Amount {
    fn from(value: Value) -> Self {
        let read = match &value {
            Value::String(text) => nanos(text),
            Value::Number(number) => nanos(&number.to_string()),
            _ => None,
        };
        Amount(read.unwrap_or(MOST))
    }
}

/// The value in billionths, rounded up: `1`, `1000m` and `1e0` are the same. `None` for what is no quantity.
pub fn nanos(text: &str) -> Option<i128> {
    let (negative, text) = match text.strip_prefix('-') {
        Some(text) => (true, text),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at_checked(end)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let (factor, power) = scale(suffix)?;
    let mut value: i128 = 0;
    for digit in whole.bytes().chain(fraction.bytes()) {
        value = value.saturating_mul(10).saturating_add(i128::from(digit - b'0'));
    }
    value = value.saturating_mul(factor);
    // By how many powers of ten the value is still to be multiplied.
    let power = i64::from(power) + 9 - i64::try_from(fraction.len()).ok()?;
    let size = 10_i128.saturating_pow(u32::try_from(power.unsigned_abs()).ok()?);
    let value =
        if power >= 0 { value.saturating_mul(size) } else { value / size + i128::from(value % size > 0) };
    let value = value.min(MOST);
    Some(if negative { -value } else { value })
}

/// The factor of a suffix, and a power of ten.
fn scale(suffix: &str) -> Option<(i128, i32)> {
    const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
    const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    if let Some(index) = DECIMAL.iter().position(|known| *known == suffix) {
        return Some((1, i32::try_from(index).ok()? * 3 - 9));
    }
    if let Some(index) = BINARY.iter().position(|known| *known == suffix) {
        return Some((1 << (10 * (index + 1)), 0));
    }
    let power: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    Some((1, power))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_notation_of_a_value_gives_that_value() {
        for one in ["1", "1000m", "1.0", "1e0", "+1", "01", "1000000u", "0.001k", "1.", "10e-1"] {
            assert_eq!(nanos(one), Some(NANOS), "{one}");
        }
        assert_eq!(nanos("0.5Gi"), Some((1 << 29) * NANOS));
        assert_eq!(nanos("-2"), Some(-2 * NANOS));
        assert_eq!(nanos("0.0000000001"), Some(1), "rounded up");
    }

    #[test]
    fn nonsense_is_no_quantity_and_a_huge_one_is_capped() {
        for text in ["", "m", "1.2.3", "1 Gi", "one", "1é", "-", ".", "1e", "1e99999999999"] {
            assert_eq!(nanos(text), None, "{text:?}");
        }
        for text in ["9999999999999999999999999999999999999999999999E", "1e2000000000", "16Ei"] {
            assert_eq!(nanos(text), Some(MOST), "{text}");
        }
        assert_eq!(nanos("1e-2000000000"), Some(1));
        assert_eq!(nanos("0e2000000000"), Some(0));
        assert_eq!(Amount::from(Value::Bool(true)), Amount(MOST));
        assert_eq!(Amount::from(serde_json::json!(2)), Amount(2 * NANOS));
    }
}
