//! Resource quantities: `500m`, `1.5Gi`, `2e3`. Parsed exactly, compared exactly, and written in the
//! canonical form in which a real API server stores them (apimachinery `resource/quantity.go`).
//!
//! The value is kept in billionths as one `i128`: upstream rounds up to nanos and caps at 2^63-1, so
//! every quantity it can represent fits, and no floating point is involved.

use std::cmp::Ordering;

/// The pattern that upstream quotes when a quantity cannot be parsed.
pub const PATTERN: &str = "quantities must match the regular expression \
                           '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

const NANOS: i128 = 1_000_000_000;
/// Larger values are capped, not refused. Sums are not.
const MAX: i128 = i64::MAX as i128 * NANOS;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    DecimalSi,
    BinarySi,
    DecimalExponent,
}

/// A parsed quantity. Equality and order are by value: `1` equals `1000m`.
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
    /// Nothing. A sum that begins with it is written as its first part is.
    pub const ZERO: Quantity = Quantity { nanos: 0, format: Format::DecimalSi };

    /// A number of objects.
    pub fn count(number: i32) -> Quantity {
        Quantity { nanos: i128::from(number) * NANOS, format: Format::DecimalSi }
    }

    /// A quantity in JSON: a text or a number.
    pub fn of(value: &serde_json::Value) -> Option<Quantity> {
        match value {
            serde_json::Value::String(text) => Quantity::parse(text),
            serde_json::Value::Number(number) => Quantity::parse(&number.to_string()),
            _ => None,
        }
    }

    /// The sum, in the format of the first part that is not zero.
    #[must_use]
    pub fn plus(self, other: Quantity) -> Quantity {
        let format = if self.is_zero() { other.format } else { self.format };
        Quantity { nanos: self.nanos.saturating_add(other.nanos), format }
    }

    /// The difference, in the format of this quantity.
    #[must_use]
    pub fn minus(self, other: Quantity) -> Quantity {
        self.plus(Quantity { nanos: -other.nanos, ..other })
    }

    /// How many times the other one is in this.
    pub fn ratio(self, other: Quantity) -> f64 {
        self.nanos as f64 / other.nanos as f64
    }

    /// Parses a number with an optional suffix: `n u m k M G T P E`, `Ki` to `Ei`, or `e3`.
    pub fn parse(text: &str) -> Option<Quantity> {
        let (negative, text) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, suffix) = text.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
            return None;
        }
        let (format, power_of_ten, multiplier) = scale(suffix)?;
        let magnitude = magnitude(whole, fraction, power_of_ten, multiplier);
        Some(Quantity { nanos: if negative { -magnitude } else { magnitude }, format })
    }

    /// Whether the value is below zero.
    pub fn is_negative(&self) -> bool {
        self.nanos < 0
    }

    /// Whether the value is zero.
    pub fn is_zero(&self) -> bool {
        self.nanos == 0
    }

    /// The same, rounded up to thousandths.
    pub fn in_thousandths(mut self) -> Quantity {
        const MILLI: i128 = NANOS / 1000;
        if self.nanos % MILLI != 0 {
            self.nanos = (self.nanos.div_euclid(MILLI) + 1) * MILLI;
        }
        self
    }

    /// The same, rounded up to whole units.
    pub fn in_whole(mut self) -> Quantity {
        if self.nanos % NANOS != 0 {
            self.nanos = (self.nanos.div_euclid(NANOS) + 1) * NANOS;
        }
        self
    }

    /// Whether it is some whole number, but not zero or less, of pages of a size.
    pub fn is_multiple_of(&self, page: Quantity) -> bool {
        self.nanos > 0 && page.nanos > 0 && self.nanos % page.nanos == 0
    }

    /// Whether the value is a whole number, as extended resources must be.
    pub fn is_integer(&self) -> bool {
        self.nanos % NANOS == 0
    }

    /// The text a real API server stores: no fraction and the largest suffix that loses nothing, so
    /// `0.5` becomes `500m`, `1024Mi` becomes `1Gi` and `1000m` becomes `1`.
    pub fn canonical(&self) -> String {
        match self.format {
            // Below one Ki there is no binary suffix to use.
            Format::BinarySi if self.nanos.abs() >= 1024 * NANOS => binary(self.nanos),
            Format::DecimalExponent => {
                let (mantissa, exponent) = decimal(self.nanos);
                if exponent == 0 { mantissa.to_string() } else { format!("{mantissa}e{exponent}") }
            }
            _ => decimal_si(self.nanos),
        }
    }
}

/// The format, the power of ten and the binary multiplier of a suffix.
fn scale(suffix: &str) -> Option<(Format, i32, i128)> {
    let decimal = |power| Some((Format::DecimalSi, power, 1));
    let binary = |shift: u32| Some((Format::BinarySi, 0, 1_i128 << shift));
    match suffix {
        "" => decimal(0),
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(10),
        "Mi" => binary(20),
        "Gi" => binary(30),
        "Ti" => binary(40),
        "Pi" => binary(50),
        "Ei" => binary(60),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            let power: i32 = exponent.parse().ok()?;
            Some((Format::DecimalExponent, power, 1))
        }
    }
}

/// The magnitude in nanos, rounded up to the next nano and capped.
fn magnitude(whole: &str, fraction: &str, power_of_ten: i32, multiplier: i128) -> i128 {
    let whole = whole.trim_start_matches('0');
    // More than 20 decimals make no difference; keeping fewer keeps the arithmetic in 128 bits.
    let fraction = fraction.get(..20).unwrap_or(fraction).trim_end_matches('0');
    let digits = whole.len() + fraction.len();
    if digits == 0 {
        return 0;
    }
    let Ok(mantissa) = format!("{whole}{fraction}").parse::<i128>() else { return MAX };
    let Some(mantissa) = mantissa.checked_mul(multiplier) else { return MAX };
    let power = power_of_ten.saturating_add(9).saturating_sub(fraction.len() as i32);
    if power >= 0 {
        let scaled =
            10_i128.checked_pow(power.unsigned_abs()).and_then(|factor| mantissa.checked_mul(factor));
        return scaled.map_or(MAX, |value| value.min(MAX));
    }
    match 10_i128.checked_pow(power.unsigned_abs()) {
        Some(divisor) => {
            let rounded = mantissa / divisor + i128::from(mantissa % divisor != 0);
            rounded.min(MAX)
        }
        // Smaller than a nano by more than we can express: still "some", hence one nano.
        None => 1,
    }
}

fn decimal_si(nanos: i128) -> String {
    let (mantissa, exponent) = decimal(nanos);
    let suffix = match exponent {
        -9 => "n",
        -6 => "u",
        -3 => "m",
        3 => "k",
        6 => "M",
        9 => "G",
        12 => "T",
        15 => "P",
        18 => "E",
        _ => "",
    };
    format!("{mantissa}{suffix}")
}

/// The mantissa and the largest exponent, a multiple of three, that loses nothing.
fn decimal(nanos: i128) -> (i128, i32) {
    if nanos == 0 {
        return (0, 0);
    }
    let (mut mantissa, mut exponent) = (nanos, -9);
    while mantissa % 1000 == 0 && exponent < 18 {
        mantissa /= 1000;
        exponent += 3;
    }
    (mantissa, exponent)
}

/// The binary form. A number that no binary suffix divides is written as a decimal, because that is
/// how it would be understood when it is read back.
fn binary(nanos: i128) -> String {
    let rounding = if nanos % NANOS == 0 { 0 } else { nanos.signum() };
    let whole = nanos / NANOS + rounding;
    if whole % 1024 != 0 {
        return decimal_si(whole.saturating_mul(NANOS));
    }
    let mut mantissa = whole;
    let mut suffix = "";
    for next in ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"] {
        if mantissa % 1024 != 0 {
            break;
        }
        suffix = next;
        mantissa /= 1024;
    }
    format!("{mantissa}{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_canonical(text: &str, expected: &str) {
        assert_eq!(Quantity::parse(text).unwrap().canonical(), expected, "{text}");
    }

    #[test]
    fn quantities_are_written_in_their_canonical_form() {
        check_canonical("0.5", "500m");
        check_canonical("1000m", "1");
        check_canonical("1500m", "1500m");
        check_canonical("1000", "1k");
        check_canonical("1024Mi", "1Gi");
        check_canonical("1.5Gi", "1536Mi");
        check_canonical("512", "512");
        check_canonical("0.5Ki", "512");
        check_canonical("1.1Ki", "1127");
        check_canonical("2e3", "2e3");
        check_canonical("0", "0");
        check_canonical("-1", "-1");
        check_canonical("+.5", "500m");
        check_canonical("0.0000000001", "1n");
        check_canonical("99999999999999999999999", "9223372036854775807");
        check_canonical("1e999999999", "9223372036854775807");
    }

    #[test]
    fn an_invalid_quantity_is_refused() {
        for junk in ["", "-", "x", "1.2.3", "1KiB", "1e", "m", "1 ", "0x1", "1e1.5", "."] {
            assert!(Quantity::parse(junk).is_none(), "{junk:?}");
        }
    }

    #[test]
    fn quantities_compare_by_value_and_not_by_text() {
        let quantity = |text| Quantity::parse(text).unwrap();
        assert_eq!(quantity("1"), quantity("1000m"));
        assert!(quantity("1Gi") > quantity("1G"));
        assert!(quantity("-1") < quantity("0"));
    }
}
