//! The next time of a schedule, by field and not minute by minute.
//!
//! robfig/cron looks at the month first, then at the day, the hour, the minute and the second. A unit that does not match
//! is stepped until it does; its first step resets the smaller units, and a step into the first value of a unit
//! starts again at the month. Hours and minutes are steps of real time, days and months are steps of the calendar.
//! All that follows at clock changes follows from that:
//!
//! | clocks | run |
//! |---|---|
//! | skip the time | not that day |
//! | repeat the time | twice, since the hour steps through both |
//! | skip midnight (Cairo, Santiago) | no run at midnight that day; the step of the hour does not see the new day, so a run later that day ignores the day's fields |
//! | move by 30 minutes (Lord Howe) | an hour that begins at its half has no run in its first half |

use jiff::civil::{Date, DateTime};
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};
use jiff::{SignedDuration, Span, Timestamp};

use crate::field::HOUR as HOURS;
use crate::parse::{Fields, Rule, Schedule};

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// How many years ahead a time is searched.
const YEARS: i16 = 5;

/// After so many questions about offsets, they are asked for with the time for which they hold, which costs as much as several.
const MANY: u32 = 30;

/// The units, in the order in which they are compared.
#[derive(Clone, Copy, PartialEq)]
enum Unit {
    Month,
    Day,
    Hour,
    Minute,
    Second,
}

const UNITS: [Unit; 5] = [Unit::Month, Unit::Day, Unit::Hour, Unit::Minute, Unit::Second];

impl Schedule {
    /// The next time after `after`, in the zone that its text names, else in `zone`. `None` when there is none within
    /// about five years, such as for 31 February. A time is a whole second, and later than `after`.
    pub fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let after = after.as_second() - i64::from(after.subsec_nanosecond() < 0);
        let zone = self.zone.as_ref().unwrap_or(zone);
        let next = match self.rule {
            Rule::Every(seconds) => after.checked_add(seconds)?,
            Rule::At(fields) if self.is_once && !fields.hour.is_full(&HOURS) => once(fields, zone, after)?,
            Rule::At(fields) => Search::new(fields, zone).after(after)?,
        };
        Timestamp::from_second(next).ok()
    }

    /// The last time later than `after` and not later than `until`; `None` when there is none. Some thirty searches at most,
    /// however long that is.
    pub fn latest(&self, after: Timestamp, until: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let first = self.next(after, zone).filter(|first| *first <= until)?;
        if let Some(seconds) = self.every() {
            let steps = (until.as_second() - first.as_second()).div_euclid(seconds);
            return Timestamp::from_second(first.as_second() + steps * seconds).ok();
        }
        // The last time is `found` or later, and not later than `high`.
        let (mut found, mut high) = (first.as_second(), until.as_second());
        while found < high {
            let middle = found + (high - found) / 2;
            let next = self.next(Timestamp::from_second(middle).ok()?, zone).map(Timestamp::as_second);
            match next.filter(|next| *next <= until.as_second()) {
                Some(next) => (found, high) = (next, high.max(next)),
                None => high = middle,
            }
        }
        Timestamp::from_second(found).ok()
    }
}

/// The next time by the calendar alone, put on the clock: after a gap if it is in one, and before a change that repeats it.
fn once(fields: Fields, zone: &TimeZone, after: i64) -> Option<i64> {
    let mut calendar = Search::new(fields, zone).local(after)?;
    loop {
        let as_utc = Offset::UTC.to_timestamp(calendar).ok()?.as_second();
        let next = Search::new(fields, &TimeZone::UTC).after(as_utc)?;
        calendar = Offset::UTC.to_datetime(Timestamp::from_second(next).ok()?);
        let ambiguous = zone.to_ambiguous_timestamp(calendar);
        let time = match ambiguous.offset() {
            AmbiguousOffset::Gap { before, .. } => {
                // The first second after the gap.
                let skipped = before.to_timestamp(calendar).ok()?;
                zone.preceding(skipped + SignedDuration::from_secs(1)).next()?.timestamp()
            }
            _ => ambiguous.earlier().ok()?,
        };
        if time.as_second() > after {
            return Some(time.as_second());
        }
    }
}

impl Fields {
    fn matches(&self, unit: Unit, time: DateTime) -> bool {
        match unit {
            Unit::Month => self.month.contains(time.month()),
            Unit::Day => {
                let day = self.day.contains(time.day());
                let weekday = self.weekday.contains(time.weekday().to_sunday_zero_offset());
                if self.day.is_star || self.weekday.is_star { day && weekday } else { day || weekday }
            }
            Unit::Hour => self.hour.contains(time.hour()),
            Unit::Minute => self.minute.contains(time.minute()),
            Unit::Second => time.second() == 0,
        }
    }

    /// Whether no time can match.
    fn is_never(&self) -> bool {
        let Fields { minute, hour, day, month, weekday } = self;
        let needs_both = day.is_star || weekday.is_star;
        let has_no_day = if needs_both {
            day.is_empty() || weekday.is_empty()
        } else {
            day.is_empty() && weekday.is_empty()
        };
        minute.is_empty() || hour.is_empty() || month.is_empty() || has_no_day
    }
}

/// A search. Times are seconds since 1970.
struct Search<'z> {
    fields: Fields,
    zone: &'z TimeZone,
    /// How often the zone was asked for an offset.
    looked: u32,
    /// An offset, and the times of its first second and of the first one after it.
    known: Option<(i64, i64, i64)>,
}

impl<'z> Search<'z> {
    fn new(fields: Fields, zone: &'z TimeZone) -> Self {
        Search { fields, zone, looked: 0, known: None }
    }

    fn after(&mut self, after: i64) -> Option<i64> {
        if self.fields.is_never() {
            return None;
        }
        let mut now = after.checked_add(1)?;
        let mut time = self.local(now)?;
        let last_year = time.year().checked_add(YEARS)?;
        let mut is_cut = false;
        'again: loop {
            if time.year() > last_year {
                return None;
            }
            for unit in UNITS {
                while !self.fields.matches(unit, time) {
                    if !is_cut {
                        now = self.cut(unit, now, time)?;
                        time = self.local(now)?;
                        is_cut = true;
                    }
                    now = self.step(unit, now, time)?;
                    time = self.local(now)?;
                    if is_first(unit, time) {
                        continue 'again;
                    }
                }
            }
            if now > after {
                return Some(now);
            }
            // A cut may go back behind a clock change. The next second is searched again, so that time only moves on.
            now = after.max(now) + 1;
            time = self.local(now)?;
        }
    }

    /// The offset of the zone.
    fn offset(&mut self, at: i64) -> Option<i64> {
        if let Some((offset, from, until)) = self.known
            && (from..until).contains(&at)
        {
            return Some(offset);
        }
        let timestamp = Timestamp::from_second(at).ok()?;
        let offset = i64::from(self.zone.to_offset(timestamp).seconds());
        self.looked += 1;
        if self.looked < MANY {
            return Some(offset);
        }
        let just_after = Timestamp::from_second(at + 1).ok()?;
        let from =
            self.zone.preceding(just_after).next().map_or(i64::MIN, |change| change.timestamp().as_second());
        let until =
            self.zone.following(timestamp).next().map_or(i64::MAX, |change| change.timestamp().as_second());
        self.known = Some((offset, from, until));
        Some(offset)
    }

    fn local(&mut self, at: i64) -> Option<DateTime> {
        let offset = self.offset(at)?;
        Some(Offset::UTC.to_datetime(Timestamp::from_second(at.checked_add(offset)?).ok()?))
    }

    /// A local time as Go's `time.Date` resolves it: the offset is that at this time in UTC, corrected once. A time in a gap
    /// is as far from the change as it would be with one of both offsets.
    fn resolve(&mut self, time: DateTime) -> Option<i64> {
        let as_utc = Offset::UTC.to_timestamp(time).ok()?.as_second();
        let guess = self.offset(as_utc)?;
        let offset = if guess == 0 { 0 } else { self.offset(as_utc - guess)? };
        Some(as_utc - offset)
    }

    /// Resets what is smaller than a unit.
    fn cut(&mut self, unit: Unit, now: i64, time: DateTime) -> Option<i64> {
        let date = time.date();
        match unit {
            Unit::Month => self.resolve(date.first_of_month().at(0, 0, 0, 0)),
            Unit::Day => self.resolve(date.at(0, 0, 0, 0)),
            Unit::Hour => self.resolve(date.at(time.hour(), 0, 0, 0)),
            Unit::Minute => Some(now - now.rem_euclid(MINUTE)),
            Unit::Second => Some(now),
        }
    }

    /// The next value of a unit.
    fn step(&mut self, unit: Unit, now: i64, time: DateTime) -> Option<i64> {
        match unit {
            Unit::Month => {
                let first = time.date().first_of_month().checked_add(Span::new().months(1)).ok()?;
                let date = first.checked_add(Span::new().days(time.day() - 1)).ok()?;
                self.calendar(now, date, time)
            }
            Unit::Day => {
                let next = self.calendar(now, time.date().tomorrow().ok()?, time)?;
                // Midnight may be skipped: the day begins at 1, or the result is still 23 of the day before.
                let hour = i64::from(self.local(next)?.hour());
                Some(if hour > 12 { next + (24 - hour) * HOUR } else { next - hour * HOUR })
            }
            Unit::Hour => Some(now + HOUR),
            Unit::Minute => Some(now + MINUTE),
            Unit::Second => Some(now + MINUTE - i64::from(time.second())),
        }
    }

    /// The same time of another day. Where a zone skipped that whole day (Apia, 30 December 2011), the result may be the
    /// time that it was: upstream's search never ends then, and this one goes on with the day after.
    fn calendar(&mut self, now: i64, date: Date, time: DateTime) -> Option<i64> {
        let next = self.resolve(date.to_datetime(time.time()))?;
        Some(if next > now { next } else { now + DAY })
    }
}

/// Whether a step has led to the first value of a unit, and so to the next value of the unit above.
fn is_first(unit: Unit, time: DateTime) -> bool {
    match unit {
        Unit::Month => time.month() == 1,
        Unit::Day => time.day() == 1,
        Unit::Hour => time.hour() == 0,
        Unit::Minute => time.minute() == 0,
        Unit::Second => time.second() == 0,
    }
}
