//! Quantities that are summed, compared by their value and written in the canonical form.

use std::cmp::Ordering;
use std::fmt;

use super::{NANOS, scale};

/// The largest value that is parsed, in billionths: larger ones are cut to it, as an API server does.
const MOST: i128 = i64::MAX as i128 * NANOS;

/// The notation in which a quantity was given. A sum has the last of those of its parts, so that their order does not show; upstream
/// takes that of the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Format {
    Decimal,
    Exponent,
    Binary,
}

/// A quantity. Equal to and less than others by its value: `1` equals `1000m`. No sum of quantities overflows.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl Quantity {
    /// Nothing.
    pub const ZERO: Quantity = Quantity { nanos: 0, format: Format::Decimal };

    /// A number of objects.
    pub fn count(number: usize) -> Quantity {
        let number = i64::try_from(number).unwrap_or(i64::MAX);
        Quantity { nanos: i128::from(number) * NANOS, format: Format::Decimal }
    }

    /// Reads a quantity. What is finer than a billionth is rounded away from zero, and what is larger than 2^63-1 is cut to that.
    /// `None` for what is no quantity.
    pub fn parse(text: &str) -> Option<Quantity> {
        let (sign, rest) = match text.as_bytes().first()? {
            b'-' => (-1, text.get(1..)?),
            b'+' => (1, text.get(1..)?),
            _ => (1, text),
        };
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, suffix) = rest.split_at_checked(end)?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
            return None;
        }
        let format = match suffix.as_bytes() {
            [_, b'i'] => Format::Binary,
            [b'e' | b'E', _, ..] => Format::Exponent,
            _ => Format::Decimal,
        };
        let (factor, exponent) = match scale(suffix) {
            Some(known) => known,
            // An exponent beyond those that make a difference.
            None if format == Format::Exponent => {
                let digits = suffix.get(1..)?.strip_prefix(['+', '-']).unwrap_or(suffix.get(1..)?);
                let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
                let power = if suffix.contains('-') { -100 } else { 100 };
                (1, is_number.then_some(power)?)
            }
            None => return None,
        };
        Some(Quantity { nanos: sign * magnitude(whole, fraction, factor, exponent), format })
    }

    /// The sum, in the notation of the parts that are not zero.
    #[must_use]
    pub fn plus(self, other: Quantity) -> Quantity {
        let format = match (self.is_zero(), other.is_zero()) {
            (true, _) => other.format,
            (false, true) => self.format,
            (false, false) => self.format.max(other.format),
        };
        Quantity { nanos: self.nanos.saturating_add(other.nanos), format }
    }

    /// The difference.
    #[must_use]
    pub fn minus(self, other: Quantity) -> Quantity {
        self.plus(Quantity { nanos: other.nanos.saturating_neg(), ..other })
    }

    /// The sum of so many of it.
    #[must_use]
    pub fn times(self, number: usize) -> Quantity {
        let number = i128::try_from(number).unwrap_or(i128::MAX);
        Quantity { nanos: self.nanos.saturating_mul(number), ..self }
    }

    /// The same, rounded away from zero to a whole number.
    #[must_use]
    pub fn rounded_up(self) -> Quantity {
        let rest = self.nanos % NANOS;
        let up = if rest == 0 { 0 } else { self.nanos.signum() * NANOS - rest };
        Quantity { nanos: self.nanos.saturating_add(up), ..self }
    }

    /// Whether it is 0.
    pub fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// Whether it is more than 0.
    pub fn is_positive(self) -> bool {
        self.nanos > 0
    }

    /// The mantissa and the exponent of 1024, of a whole number.
    fn binary(self) -> (i128, usize) {
        let (mut mantissa, mut power) = (self.nanos / NANOS, 0);
        while mantissa % 1024 == 0 && power < BINARY.len() - 1 {
            mantissa /= 1024;
            power += 1;
        }
        (mantissa, power)
    }

    /// The mantissa and the exponent of 10, a multiple of three, that lose nothing.
    fn decimal(self) -> (i128, i32) {
        let (mut mantissa, mut exponent) = (self.nanos, -9);
        while mantissa % 1000 == 0 && exponent < 18 {
            mantissa /= 1000;
            exponent += 3;
        }
        (mantissa, exponent)
    }
}

/// The suffixes of powers of 1024 and of 1000, the latter from the billionths on.
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];

/// The canonical form (upstream: `CanonicalizeBytes`): no digit is lost, and the suffix is as large as that allows.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_zero() {
            return f.write_str("0");
        }
        let is_small = self.nanos.unsigned_abs() < 1024 * NANOS.unsigned_abs();
        if self.format == Format::Binary && !is_small && self.nanos % NANOS == 0 {
            let (mantissa, power) = self.binary();
            return write!(f, "{mantissa}{}", BINARY[power]);
        }
        match (self.format, self.decimal()) {
            (Format::Exponent, (mantissa, 0)) => write!(f, "{mantissa}"),
            (Format::Exponent, (mantissa, exponent)) => write!(f, "{mantissa}e{exponent}"),
            (_, (mantissa, exponent)) => {
                let at = usize::try_from(exponent / 3 + 3).unwrap_or_default();
                write!(f, "{mantissa}{}", DECIMAL.get(at).copied().unwrap_or_default())
            }
        }
    }
}

/// The value without its sign in billionths, rounded up and cut.
fn magnitude(whole: &str, fraction: &str, factor: i128, exponent: i32) -> i128 {
    let whole = whole.trim_start_matches('0');
    // More decimals than these only round up, which a last digit of 1 does as well.
    let (kept, cut) = fraction.split_at_checked(20).unwrap_or((fraction, ""));
    let digits = format!("{whole}{kept}");
    let is_cut = cut.bytes().any(|digit| digit != b'0');
    if digits.bytes().all(|digit| digit == b'0') && !is_cut {
        return 0;
    }
    let mantissa = match digits.as_str() {
        "" => Some(0),
        digits => digits.parse::<i128>().ok(),
    };
    let scaled = mantissa.and_then(|mantissa| mantissa.checked_mul(factor));
    let decimals = i32::try_from(kept.len()).unwrap_or(i32::MAX);
    let power = exponent.saturating_add(9).saturating_sub(decimals);
    let size = 10_i128.checked_pow(power.unsigned_abs());
    let value = match (power >= 0, scaled, size) {
        (true, Some(0), _) => Some(0),
        (true, Some(scaled), Some(size)) => scaled.checked_mul(size),
        (false, Some(scaled), Some(size)) => Some(scaled / size + i128::from(scaled % size != 0)),
        // So small that it is less than a billionth.
        (false, Some(_), None) => Some(1),
        // Too many digits for the arithmetic; that many decimals are cut above.
        (_, None, _) | (true, Some(_), None) => None,
    };
    let value = value.map_or(MOST, |value| value.min(MOST));
    if is_cut { value.max(1) } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quantity(text: &str) -> Quantity {
        Quantity::parse(text).unwrap_or_else(|| panic!("{text}"))
    }

    #[track_caller]
    fn check(text: &str, canonical: &str) {
        assert_eq!(quantity(text).to_string(), canonical, "{text}");
    }

    #[test]
    fn a_quantity_is_written_in_its_canonical_form() {
        check("0", "0");
        check("0.5", "500m");
        check("1000m", "1");
        check("1500m", "1500m");
        check("1000", "1k");
        check("12e6", "12e6");
        check("100e-3", "100e-3");
        check("1024Mi", "1Gi");
        check("1.5Gi", "1536Mi");
        check("0.5Ki", "512");
        check("1025", "1025");
        check("-1", "-1");
        check("+.5", "500m");
        // A binary notation that would lose something gives way to a decimal one.
        check("1.1Ki", "1126400m");
    }

    #[test]
    fn what_is_too_fine_is_rounded_up_and_what_is_too_large_is_cut() {
        check("0.0000000001", "1n");
        check("1e-999999999", "1e-9");
        check(&format!("0.{}1", "0".repeat(400)), "1n");
        check("-0.1n", "-1n");
        check("1e999999999", "9223372036854775807");
        check(&"9".repeat(100), "9223372036854775807");
        check("16Ei", "9223372036854775807");
    }

    #[test]
    fn what_is_no_quantity_is_none() {
        for text in ["", "-", "x", "1.2.3", "1KiB", "1e", "m", "1 ", "0x1", "1e1.5", ".", "1e+", "--1", "é"]
        {
            assert!(Quantity::parse(text).is_none(), "{text:?}");
        }
    }

    #[test]
    fn quantities_are_compared_and_summed_by_value() {
        assert_eq!(quantity("1"), quantity("1000m"));
        assert!(quantity("1Gi") > quantity("1G") && quantity("-1") < Quantity::ZERO);
        let sum = Quantity::ZERO.plus(quantity("512Mi")).plus(quantity("0.5Gi"));
        assert_eq!(sum.to_string(), "1Gi");
        assert_eq!(sum.minus(quantity("1")).to_string(), "1073741823");
        assert_eq!(quantity("300m").times(4).to_string(), "1200m");
        assert_eq!(Quantity::count(3).to_string(), "3");
        let most = quantity("9223372036854775807");
        assert_eq!((most.plus(most)), most.times(2));
        assert!(most.times(usize::MAX).times(usize::MAX) > most, "no overflow");
        let fractions = ["1500m", "0.1Ki", "2", "-1500m"].map(|text| quantity(text).rounded_up().to_string());
        assert_eq!(fractions, ["2", "103", "2", "-2"]);
    }
}
