//! One field of a schedule: a set of numbers.

use crate::duration::quoted;

/// The lowest and the highest value of a field, and names of its values.
pub(crate) struct Bounds {
    low: u64,
    high: u64,
    names: &'static [&'static str],
}

const MONTHS: &[&str] = &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: &[&str] = &["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

pub(crate) const MINUTE: Bounds = Bounds { low: 0, high: 59, names: &[] };
pub(crate) const HOUR: Bounds = Bounds { low: 0, high: 23, names: &[] };
pub(crate) const DAY: Bounds = Bounds { low: 1, high: 31, names: &[] };
pub(crate) const MONTH: Bounds = Bounds { low: 1, high: 12, names: MONTHS };
pub(crate) const WEEKDAY: Bounds = Bounds { low: 0, high: 6, names: WEEKDAYS };

/// The values of a field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Field {
    bits: u64,
    /// Whether a star without a step above 1 is among its parts.
    pub is_star: bool,
}

impl Field {
    /// All values.
    pub(crate) fn star(bounds: &Bounds) -> Self {
        Field { bits: bits(bounds.low, bounds.high, 1), is_star: true }
    }

    /// One value.
    pub(crate) const fn only(value: u64) -> Self {
        Field { bits: 1 << value, is_star: false }
    }

    pub(crate) fn contains(self, value: i8) -> bool {
        u32::try_from(value).is_ok_and(|value| self.bits.checked_shr(value).unwrap_or(0) & 1 == 1)
    }

    /// Whether it has all values.
    pub(crate) fn is_full(self, bounds: &Bounds) -> bool {
        self.bits == bits(bounds.low, bounds.high, 1)
    }

    pub(crate) fn is_empty(self) -> bool {
        self.bits == 0
    }

    /// A list of ranges. Empty parts are skipped, so that `,` has no values.
    pub(crate) fn parse(text: &str, bounds: &Bounds) -> Result<Self, String> {
        let mut field = Field::default();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let Field { bits, is_star } = range(part, bounds)?;
            field.bits |= bits;
            field.is_star |= is_star;
        }
        Ok(field)
    }
}

fn bits(first: u64, last: u64, step: u64) -> u64 {
    let step = usize::try_from(step).unwrap_or(usize::MAX);
    (first..=last).step_by(step).fold(0, |bits, value| bits | 1 << value)
}

/// A value, a range or a star, with a step or without. Texts are checked from left to right, and then values.
fn range(text: &str, bounds: &Bounds) -> Result<Field, String> {
    let mut halves = text.split('/');
    let (values, step) = (halves.next().unwrap_or_default(), halves.next());
    let mut ends = values.split('-');
    let (first, last) = (ends.next().unwrap_or_default(), ends.next());
    let is_star = matches!(first, "*" | "?");
    let (start, mut end) = if is_star {
        // Whatever follows is not read.
        (bounds.low, bounds.high)
    } else {
        let start = value(first, bounds)?;
        match last {
            _ if ends.next().is_some() => return Err(format!("too many hyphens: {text}")),
            Some(last) => (start, value(last, bounds)?),
            None => (start, start),
        }
    };
    let mut size = 1;
    if let Some(step) = step {
        if halves.next().is_some() {
            return Err(format!("too many slashes: {text}"));
        }
        size = number(step)?;
        if last.is_none() {
            end = bounds.high;
        }
    }
    let Bounds { low, high, .. } = bounds;
    if start < *low {
        Err(format!("beginning of range ({start}) below minimum ({low}): {text}"))
    } else if end > *high {
        Err(format!("end of range ({end}) above maximum ({high}): {text}"))
    } else if start > end {
        Err(format!("beginning of range ({start}) beyond end of range ({end}): {text}"))
    } else if size == 0 {
        Err(format!("step of range should be a positive number: {text}"))
    } else {
        Ok(Field { bits: bits(start, end, size), is_star: is_star && size == 1 })
    }
}

fn value(text: &str, bounds: &Bounds) -> Result<u64, String> {
    let lower = text.to_lowercase();
    match (bounds.low..).zip(bounds.names).find(|(_, name)| **name == lower) {
        Some((value, _)) => Ok(value),
        None => number(text),
    }
}

/// A decimal number, with a sign or without.
fn number(text: &str) -> Result<u64, String> {
    let failed =
        |why| format!("failed to parse int from {text}: strconv.Atoi: parsing {}: {why}", quoted(text));
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(failed("invalid syntax"));
    }
    let number: i64 = text.parse().map_err(|_| failed("value out of range"))?;
    u64::try_from(number).map_err(|_| format!("negative number ({number}) not allowed: {text}"))
}
