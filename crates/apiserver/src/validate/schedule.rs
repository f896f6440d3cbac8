//! The schedule of a CronJob: five fields, or a name such as `@daily` (the syntax of robfig/cron, which upstream uses).

/// The lowest and the highest value of a field, and the names of values.
struct Bounds {
    low: u64,
    high: u64,
    names: &'static [(&'static str, u64)],
}

const MONTHS: &[(&str, u64)] = &[
    ("jan", 1),
    ("feb", 2),
    ("mar", 3),
    ("apr", 4),
    ("may", 5),
    ("jun", 6),
    ("jul", 7),
    ("aug", 8),
    ("sep", 9),
    ("oct", 10),
    ("nov", 11),
    ("dec", 12),
];
const DAYS: &[(&str, u64)] =
    &[("sun", 0), ("mon", 1), ("tue", 2), ("wed", 3), ("thu", 4), ("fri", 5), ("sat", 6)];

/// Minute, hour, day of the month, month, day of the week.
const FIELDS: [Bounds; 5] = [
    Bounds { low: 0, high: 59, names: &[] },
    Bounds { low: 0, high: 23, names: &[] },
    Bounds { low: 1, high: 31, names: &[] },
    Bounds { low: 1, high: 12, names: MONTHS },
    Bounds { low: 0, high: 6, names: DAYS },
];

/// Checks a schedule.
///
/// # Errors
/// The reason, in the words of upstream's parser.
pub(super) fn check(text: &str) -> Result<(), String> {
    let mut text = text;
    if text.starts_with("TZ=") || text.starts_with("CRON_TZ=") {
        let (zone, rest) = text.split_once(' ').unwrap_or((text, ""));
        let zone = zone.split_once('=').map_or("", |(_, zone)| zone);
        if !is_zone(zone) {
            return Err(format!("provided bad location {zone}: unknown time zone {zone}"));
        }
        text = rest.trim();
    }
    if text.starts_with('@') {
        return descriptor(text);
    }
    let fields: Vec<&str> = text.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        let (count, shown) = (fields.len(), fields.join(" "));
        return Err(format!("expected exactly {} fields, found {count}: [{shown}]", FIELDS.len()));
    }
    for (field, bounds) in fields.iter().zip(&FIELDS) {
        for part in field.split(',').filter(|part| !part.is_empty()) {
            range(part, bounds)?;
        }
    }
    Ok(())
}

/// Whether there is such a time zone, as far as this machine knows time zones.
pub(super) fn is_zone(name: &str) -> bool {
    jiff::tz::db().is_definitively_empty() || jiff::tz::TimeZone::get(name).is_ok()
}

fn descriptor(text: &str) -> Result<(), String> {
    match text {
        "@yearly" | "@annually" | "@monthly" | "@weekly" | "@daily" | "@midnight" | "@hourly" => Ok(()),
        _ => match text.strip_prefix("@every ") {
            Some(duration) if is_duration(duration) => Ok(()),
            Some(duration) => {
                Err(format!("failed to parse duration {text}: time: invalid duration {duration:?}"))
            }
            None => Err(format!("unrecognized descriptor: {text}")),
        },
    }
}

/// A duration of Go: numbers with units, such as `1h30m`.
fn is_duration(text: &str) -> bool {
    let mut rest = text.trim_start_matches(['+', '-']);
    if rest == "0" {
        return true;
    }
    while !rest.is_empty() {
        let number = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        if number.len() == rest.len() || rest.starts_with(|c: char| !c.is_ascii_digit() && c != '.') {
            return false;
        }
        let unit = ["ns", "us", "µs", "ms", "h", "m", "s"].iter().find_map(|unit| number.strip_prefix(unit));
        let Some(after) = unit else { return false };
        rest = after;
    }
    !text.is_empty()
}

fn range(text: &str, bounds: &Bounds) -> Result<(), String> {
    let parts: Vec<&str> = text.split('/').collect();
    let ends: Vec<&str> = parts[0].split('-').collect();
    let (start, mut end) = match ends.as_slice() {
        ["*" | "?", ..] => (bounds.low, bounds.high),
        [one] => {
            let number = value(one, bounds)?;
            (number, number)
        }
        [first, last] => (value(first, bounds)?, value(last, bounds)?),
        _ => return Err(format!("too many hyphens: {text}")),
    };
    let step = match parts.as_slice() {
        [_] => 1,
        [_, step] => {
            if ends.len() == 1 {
                end = bounds.high;
            }
            number(step)?
        }
        _ => return Err(format!("too many slashes: {text}")),
    };
    if start < bounds.low {
        return Err(format!("beginning of range ({start}) below minimum ({}): {text}", bounds.low));
    }
    if end > bounds.high {
        return Err(format!("end of range ({end}) above maximum ({}): {text}", bounds.high));
    }
    if start > end {
        return Err(format!("beginning of range ({start}) beyond end of range ({end}): {text}"));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {text}"));
    }
    Ok(())
}

fn value(text: &str, bounds: &Bounds) -> Result<u64, String> {
    let lower = text.to_lowercase();
    match bounds.names.iter().find(|(name, _)| *name == lower) {
        Some((_, value)) => Ok(*value),
        None => number(text),
    }
}

fn number(text: &str) -> Result<u64, String> {
    match text.parse::<i64>() {
        Ok(number) if number < 0 => Err(format!("negative number ({number}) not allowed: {text}")),
        Ok(number) => Ok(number.unsigned_abs()),
        Err(_) => {
            Err(format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: invalid syntax"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn usual_schedules_are_right() {
        for text in [
            "*/5 * * * *",
            "0 0 1,15 * 1-5",
            "30 4 * jan-mar SUN",
            "@daily",
            "@every 1h30m",
            "0 22 * * 1-5/2",
            "? ? ? ? ?",
        ] {
            assert_eq!(check(text), Ok(()), "{text}");
        }
    }

    #[test]
    fn a_wrong_schedule_is_named_with_its_reason() {
        for (text, why) in [
            ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("5-3 * * * *", "beginning of range (5) beyond end of range (3): 5-3"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("1/2/3 * * * *", "too many slashes: 1/2/3"),
            ("x * * * *", "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax"),
            ("@often", "unrecognized descriptor: @often"),
            ("@every day", "failed to parse duration @every day: time: invalid duration \"day\""),
        ] {
            assert_eq!(check(text), Err(why.to_owned()), "{text}");
        }
    }
}
