//! The text of a schedule.

use jiff::tz::{TimeZone, TimeZoneDatabase};

use crate::duration;
use crate::field::{self, Field};
use crate::zone::zone;

/// A schedule is not understood: the reason, in the words of robfig/cron.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseError(String);

/// A schedule.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    pub(crate) rule: Rule,
    /// The zone that its text names.
    pub(crate) zone: Option<TimeZone>,
    /// See [`Schedule::once_at_clock_changes`].
    pub(crate) is_once: bool,
}

/// When a schedule is due.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Rule {
    /// After each so many seconds, at least 1.
    Every(i64),
    /// At certain times of the day, on certain days.
    At(Fields),
}

/// The fields of a schedule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Fields {
    pub minute: Field,
    pub hour: Field,
    pub day: Field,
    pub month: Field,
    pub weekday: Field,
}

impl Schedule {
    /// Reads a schedule.
    ///
    /// # Errors
    /// When robfig/cron refuses it, too.
    pub fn parse(text: &str, zones: &TimeZoneDatabase) -> Result<Self, ParseError> {
        parse(text, zones).map_err(ParseError)
    }

    /// Whether the text of a schedule names a zone of its own, whether there is such a zone or not.
    pub fn names_zone(text: &str) -> bool {
        text.starts_with("TZ=") || text.starts_with("CRON_TZ=")
    }

    /// The same schedule with another rule where clocks change, as cron daemons of Linux have it: a time that the clocks skip
    /// runs right after the gap, and one that they repeat runs once. A schedule of every hour runs as without.
    #[must_use]
    pub fn once_at_clock_changes(self) -> Self {
        Schedule { is_once: true, ..self }
    }

    /// The seconds of an `@every`, which counts from the time before and not by the clock.
    pub fn every(&self) -> Option<i64> {
        match self.rule {
            Rule::Every(seconds) => Some(seconds),
            Rule::At(_) => None,
        }
    }
}

fn parse(text: &str, zones: &TimeZoneDatabase) -> Result<Schedule, String> {
    if text.is_empty() {
        return Err("empty spec string".to_owned());
    }
    let (mut rest, mut own_zone) = (text, None);
    if Schedule::names_zone(text) {
        // Upstream's parser panics without a space, and its caller reports the panic.
        let Some(space) = text.find(' ') else {
            return Err("invalid schedule format: runtime error: slice bounds out of range [:-1]".to_owned());
        };
        let name = text[..space].split_once('=').map_or("", |(_, name)| name);
        own_zone = Some(zone(name, zones).map_err(|error| format!("provided bad location {name}: {error}"))?);
        rest = text[space..].trim();
    }
    let rule = if rest.starts_with('@') { descriptor(rest)? } else { fields(rest).map(Rule::At)? };
    Ok(Schedule { rule, zone: own_zone, is_once: false })
}

fn fields(text: &str) -> Result<Fields, String> {
    let parts: Vec<&str> = text.split_whitespace().collect();
    let [minute, hour, day, month, weekday] = parts[..] else {
        return Err(format!("expected exactly 5 fields, found {}: [{}]", parts.len(), parts.join(" ")));
    };
    Ok(Fields {
        minute: Field::parse(minute, &field::MINUTE)?,
        hour: Field::parse(hour, &field::HOUR)?,
        day: Field::parse(day, &field::DAY)?,
        month: Field::parse(month, &field::MONTH)?,
        weekday: Field::parse(weekday, &field::WEEKDAY)?,
    })
}

fn descriptor(text: &str) -> Result<Rule, String> {
    let hourly = Fields {
        minute: Field::only(0),
        hour: Field::star(&field::HOUR),
        day: Field::star(&field::DAY),
        month: Field::star(&field::MONTH),
        weekday: Field::star(&field::WEEKDAY),
    };
    let daily = Fields { hour: Field::only(0), ..hourly };
    let monthly = Fields { day: Field::only(1), ..daily };
    Ok(Rule::At(match text {
        "@yearly" | "@annually" => Fields { month: Field::only(1), ..monthly },
        "@monthly" => monthly,
        "@weekly" => Fields { weekday: Field::only(0), ..daily },
        "@daily" | "@midnight" => daily,
        "@hourly" => hourly,
        _ => match text.strip_prefix("@every ").map(duration::parse) {
            Some(Ok(nanoseconds)) => return Ok(Rule::Every((nanoseconds / 1_000_000_000).max(1))),
            Some(Err(error)) => return Err(format!("failed to parse duration {text}: {error}")),
            None => return Err(format!("unrecognized descriptor: {text}")),
        },
    }))
}
