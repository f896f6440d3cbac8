//! Numbers that users choose: absolute or as a percentage, with the API's rounding.

use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};
use std::fmt;

/// `maxSurge` and `maxUnavailable`: a number of pods, or a percentage of the desired ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntOrPercent {
    /// A number of pods.
    Int(i64),
    /// A percentage of `spec.replicas`.
    Percent(i64),
}

impl IntOrPercent {
    /// The number of pods out of `total`, a percentage rounded up.
    pub fn round_up(self, total: i32) -> i32 {
        self.resolve(total, |hundredths| hundredths.saturating_add(99) / 100)
    }

    /// The number of pods out of `total`, a percentage rounded down.
    pub fn round_down(self, total: i32) -> i32 {
        self.resolve(total, |hundredths| hundredths / 100)
    }

    /// Saturates instead of wrapping: `"99999999999%"` is storable, and upstream's int32 wraps on it
    /// to a budget of nothing.
    fn resolve(self, total: i32, round: impl Fn(i64) -> i64) -> i32 {
        let pods = match self {
            IntOrPercent::Int(pods) => pods,
            IntOrPercent::Percent(percent) => round(percent.max(0).saturating_mul(i64::from(total.max(0)))),
        };
        clamp(pods.max(0))
    }
}

impl fmt::Display for IntOrPercent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IntOrPercent::Int(pods) => write!(f, "{pods}"),
            IntOrPercent::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

/// The nearest number that an `int32` of the API can hold.
pub fn clamp(number: i64) -> i32 {
    number.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32
}

struct IntOrPercentVisitor;

impl Visitor<'_> for IntOrPercentVisitor {
    type Value = IntOrPercent;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number or a percentage such as \"25%\"")
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
        Ok(IntOrPercent::Int(number))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
        Ok(IntOrPercent::Int(i64::try_from(number).unwrap_or(i64::MAX)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        let digits =
            text.strip_suffix('%').filter(|d| !d.is_empty() && d.bytes().all(|b| b.is_ascii_digit()));
        match digits {
            // Only the size can be wrong with a run of digits, and more than that is all there is.
            Some(digits) => Ok(IntOrPercent::Percent(digits.parse().unwrap_or(i64::MAX))),
            None => Err(E::invalid_value(serde::de::Unexpected::Str(text), &self)),
        }
    }
}

impl<'de> Deserialize<'de> for IntOrPercent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(IntOrPercentVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(json: &str, total: i32, up: i32, down: i32) {
        let value: IntOrPercent = serde_json::from_str(json).unwrap();
        assert_eq!((value.round_up(total), value.round_down(total)), (up, down), "{json} of {total}");
    }

    #[test]
    fn percentages_round_as_requested_and_numbers_are_kept() {
        check("3", 10, 3, 3);
        check("\"25%\"", 10, 3, 2);
        check("\"25%\"", 1, 1, 0);
        check("\"0%\"", 10, 0, 0);
        check("\"100%\"", 7, 7, 7);
        check("\"33%\"", 3, 1, 0);
    }

    #[test]
    fn numbers_beyond_int32_are_clamped_and_negative_ones_are_zero() {
        check("\"99999999999%\"", 100, i32::MAX, i32::MAX);
        check("\"99999999999999999999999999%\"", i32::MAX, i32::MAX, i32::MAX);
        check("4294967296", 1, i32::MAX, i32::MAX);
        check("-5", 10, 0, 0);
    }

    #[test]
    fn neither_number_nor_percentage_is_refused() {
        for json in ["\"\"", "\"%\"", "\"5\"", "\"-5%\"", "\"5.5%\"", "true", "1.5"] {
            assert!(serde_json::from_str::<IntOrPercent>(json).is_err(), "{json}");
        }
    }
}
