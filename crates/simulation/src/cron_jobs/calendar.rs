//! When a schedule is due: by looking at one minute after the other on the clock of the zone. The controller steps through
//! months, days and hours.
//!
//! It reads the schedules of the game: numbers, lists, ranges, stars and steps, and `@every` of whole seconds. They avoid what
//! only the stepping explains, such as a midnight that the clocks skip.

use jiff::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use serde_json::Value;

use crate::engine::objects::text;

const MINUTE: i64 = 60;

/// When a CronJob is due, by its specification.
#[derive(Clone, Debug, PartialEq)]
pub struct Calendar {
    rule: Rule,
    zone: TimeZone,
    /// The same as the object says it.
    pub written: (String, String),
}

#[derive(Clone, Debug, PartialEq)]
enum Rule {
    /// After each so many seconds.
    Every(i64),
    /// At these minutes, hours, days, months and days of the week.
    At(Box<[Field; 5]>),
}

#[derive(Clone, Debug, PartialEq)]
struct Field {
    values: Vec<i64>,
    is_star: bool,
}

impl Field {
    fn read(text: &str, low: i64, high: i64) -> Option<Self> {
        let mut values = Vec::new();
        for part in text.split(',') {
            let (range, step) = match part.split_once('/') {
                Some((range, step)) => (range, step.parse().ok()?),
                None => (part, 1),
            };
            let (first, last) = match range.split_once('-') {
                Some((first, last)) => (first.parse().ok()?, last.parse().ok()?),
                None if range == "*" => (low, high),
                None => (range.parse().ok()?, range.parse().ok()?),
            };
            values.extend((first..=last).filter(|value| (value - first) % step == 0));
        }
        Some(Field { values, is_star: text == "*" })
    }

    fn has(&self, value: i8) -> bool {
        self.values.contains(&i64::from(value))
    }
}

impl Calendar {
    /// That of a CronJob, unless its schedule or zone is one that it does not read.
    pub fn of(cron_job: &Value) -> Option<Self> {
        let (schedule, zone) = (text(cron_job, "/spec/schedule"), text(cron_job, "/spec/timeZone"));
        let rule = match schedule.strip_prefix("@every ") {
            Some(seconds) => Rule::Every(seconds.strip_suffix('s')?.parse().ok()?),
            None => {
                let fields: Vec<&str> = schedule.split(' ').collect();
                let [minute, hour, day, month, weekday] = fields[..] else { return None };
                Rule::At(Box::new([
                    Field::read(minute, 0, 59)?,
                    Field::read(hour, 0, 23)?,
                    Field::read(day, 1, 31)?,
                    Field::read(month, 1, 12)?,
                    Field::read(weekday, 0, 6)?,
                ]))
            }
        };
        let written = (schedule.to_owned(), zone.to_owned());
        let zone =
            if zone.is_empty() { TimeZone::UTC } else { TimeZoneDatabase::bundled().get(zone).ok()? };
        Some(Calendar { rule, zone, written })
    }

    /// Whether a run may be due then. `bases` are the times from which an `@every` may count.
    pub fn has(&self, time: Timestamp, bases: impl IntoIterator<Item = Timestamp>) -> bool {
        let second = time.as_second();
        match &self.rule {
            Rule::Every(seconds) => bases
                .into_iter()
                .any(|base| second > base.as_second() && (second - base.as_second()) % seconds == 0),
            Rule::At(_) => second % MINUTE == 0 && self.matches(time),
        }
    }

    fn matches(&self, time: Timestamp) -> bool {
        let Rule::At(fields) = &self.rule else { return false };
        let [minute, hour, day, month, weekday] = &**fields;
        let local = self.zone.to_datetime(time);
        let days = (day.has(local.day()), weekday.has(local.weekday().to_sunday_zero_offset()));
        let fits = if day.is_star || weekday.is_star { days.0 && days.1 } else { days.0 || days.1 };
        fits && month.has(local.month()) && hour.has(local.hour()) && minute.has(local.minute())
    }

    /// The times after one moment up to another, earliest first; none of an `@every`, which depends on the run before. At most
    /// the last two days are looked at.
    pub fn between(&self, after: Timestamp, until: Timestamp) -> Vec<Timestamp> {
        let first = after.as_second().max(until.as_second() - 48 * 3600).div_euclid(MINUTE) + 1;
        let minutes = first..=until.as_second().div_euclid(MINUTE);
        let times = minutes.filter_map(|minute| Timestamp::from_second(minute * MINUTE).ok());
        times.filter(|time| self.matches(*time)).collect()
    }

    /// Whether runs follow each other by a fixed distance.
    pub fn is_every(&self) -> bool {
        matches!(self.rule, Rule::Every(_))
    }

    /// A time as the annotation of a Job has it.
    pub fn written_time(&self, time: Timestamp) -> String {
        let offset = self.zone.to_offset(time);
        let local = offset.to_datetime(time);
        let seconds = offset.seconds();
        let sign = if seconds < 0 { '-' } else { '+' };
        let suffix = match seconds {
            0 => "Z".to_owned(),
            _ => format!("{sign}{:02}:{:02}", seconds.abs() / 3600, seconds.abs() % 3600 / 60),
        };
        format!("{local}{suffix}")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn calendar(schedule: &str, zone: &str) -> Calendar {
        Calendar::of(&json!({"spec": {"schedule": schedule, "timeZone": zone}})).unwrap()
    }

    fn times(schedule: &str, zone: &str, after: &str, until: &str) -> Vec<String> {
        let calendar = calendar(schedule, zone);
        let times = calendar.between(after.parse().unwrap(), until.parse().unwrap());
        times.into_iter().map(|time| calendar.written_time(time)).collect()
    }

    #[test]
    fn a_skipped_time_is_not_due_and_a_repeated_one_is_due_twice() {
        let march = ["2026-03-29T00:00:00Z", "2026-03-29T03:00:00Z"];
        let berlin =
            |schedule: &str, [after, until]: [&str; 2]| times(schedule, "Europe/Berlin", after, until);
        assert_eq!(berlin("30 2 * * *", march), [""; 0]);
        assert_eq!(berlin("0 3 * * *", march), ["2026-03-29T03:00:00+02:00"]);
        let october = ["2026-10-24T23:00:00Z", "2026-10-25T03:00:00Z"];
        assert_eq!(berlin("30 2 * * *", october), ["2026-10-25T02:30:00+02:00", "2026-10-25T02:30:00+01:00"]);
    }

    #[test]
    fn one_of_both_kinds_of_days_is_enough_where_both_are_restricted() {
        let day = ["2026-03-29T00:00:00Z", "2026-03-29T00:09:00Z"];
        for (schedule, count) in [
            ("*/3 * 29 * 1", 3),
            ("*/3 * 28 * 0", 3),
            ("*/3 * 28 * 1", 0),
            ("*/3 * 29 * *", 3),
            ("1-5/2,7 * * * 0", 4),
        ] {
            assert_eq!(times(schedule, "", day[0], day[1]).len(), count, "{schedule}");
        }
    }

    #[test]
    fn an_interval_counts_from_a_run() {
        let every = calendar("@every 90s", "");
        let at = |second| Timestamp::from_second(second).unwrap();
        assert!(
            every.has(at(280), [at(100)]) && !every.has(at(281), [at(100)]) && !every.has(at(100), [at(100)])
        );
    }
}
