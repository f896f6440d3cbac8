//! Quantities: two spellings of one must be distinguished from two different ones, and quotas sum them (upstream:
//! `apimachinery/pkg/api/resource`).

mod amount;

pub use amount::Quantity;

/// A quantity of 1 in the finest unit there is.
pub const NANOS: i128 = 1_000_000_000;

/// The value in billionths, exactly: `1`, `1000m` and `1e0` are the same. `None` for what is no
/// quantity, finer than a billionth, or too large to be stored by an API server.
pub fn nanos(text: &str) -> Option<i128> {
    let digits_end = text.find(|c: char| !matches!(c, '0'..='9' | '.' | '+' | '-')).unwrap_or(text.len());
    let (number, suffix) = text.split_at_checked(digits_end)?;
    let (negative, number) = match number.as_bytes().first()? {
        b'-' => (true, number.get(1..)?),
        b'+' => (false, number.get(1..)?),
        _ => (false, number),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty())
        || !(whole.bytes().chain(fraction.bytes())).all(|b| b.is_ascii_digit())
    {
        return None;
    }
    let mantissa: i128 = format!("{whole}{fraction}").parse().ok()?;
    let (factor, exponent) = scale(suffix)?;
    // mantissa * factor * 10^(exponent + 9 - digits behind the point)
    let power = exponent + 9 - i32::try_from(fraction.len()).ok()?;
    let scaled = mantissa.checked_mul(factor)?;
    let size = 10_i128.checked_pow(power.unsigned_abs());
    let value = match (power >= 0, size) {
        _ if scaled == 0 => 0,
        (true, size) => scaled.checked_mul(size?)?,
        (false, Some(size)) if scaled % size == 0 => scaled / size,
        (false, _) => return None,
    };
    Some(if negative { -value } else { value })
}

/// The factor of a suffix: a number, and a power of ten.
fn scale(suffix: &str) -> Option<(i128, i32)> {
    Some(match suffix {
        "n" => (1, -9),
        "u" => (1, -6),
        "m" => (1, -3),
        "" => (1, 0),
        "k" => (1, 3),
        "M" => (1, 6),
        "G" => (1, 9),
        "T" => (1, 12),
        "P" => (1, 15),
        "E" => (1, 18),
        "Ki" => (1 << 10, 0),
        "Mi" => (1 << 20, 0),
        "Gi" => (1 << 30, 0),
        "Ti" => (1 << 40, 0),
        "Pi" => (1 << 50, 0),
        "Ei" => (1 << 60, 0),
        _ => {
            let power: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            (1, (-100..=100).contains(&power).then_some(power)?)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<i128>) {
        assert_eq!(nanos(text), expected, "{text:?}");
    }

    #[test]
    fn every_notation_of_a_value_gives_that_value() {
        for one in ["1", "1000m", "1.0", "1e0", "+1", "01", "1000000u", "1000000000n", "0.001k", "1."] {
            check(one, Some(NANOS));
        }
        check("1Ki", Some(1024 * NANOS));
        check("0.5Gi", Some((1 << 29) * NANOS));
        check("-2", Some(-2 * NANOS));
        check("1E", Some(NANOS * NANOS * NANOS));
        check("0e-50", Some(0));
        check("12e6", Some(12_000_000 * NANOS));
    }

    #[test]
    fn an_invalid_or_inexact_quantity_is_none() {
        for text in [
            "",
            "m",
            ".",
            "-",
            "1x",
            "1.2.3",
            "1e",
            "1e999999999999",
            "1 ",
            "0.1n",
            "1Kii",
            "--1",
            "1-2",
            "é",
        ] {
            check(text, None);
        }
        check(&"9".repeat(60), None);
    }
}
