//! Which run of a CronJob is due, and when the next one is.

use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Timestamp};
use windlass_cron_schedule::{Schedule, zone};

use crate::model::CronJob;

/// When a CronJob runs.
#[derive(Clone, Debug)]
pub struct Timetable {
    schedule: Schedule,
    /// The zone of its times.
    pub zone: TimeZone,
    /// How long after its time each run begins.
    delay: SignedDuration,
}

/// Why a CronJob cannot run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Defect {
    /// There is no such time zone.
    UnknownZone {
        /// Why.
        error: String,
    },
    /// The schedule cannot be read.
    Unparseable {
        /// Why.
        error: String,
    },
    /// No time matches the schedule, such as for 31 February.
    Never,
}

/// The runs of a CronJob at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// The time that must run now.
    pub time: Option<Timestamp>,
    /// The latest time that has passed, if it is too late to run it.
    pub too_late: Option<Timestamp>,
    /// About how many times have passed without a run, that of `time` included.
    pub missed: i64,
    /// The next time.
    pub next: Option<Timestamp>,
}

impl Timetable {
    /// Reads schedule and zone.
    ///
    /// # Errors
    /// When one of them cannot be read.
    pub fn of(cron_job: &CronJob, zones: &TimeZoneDatabase, local: &TimeZone) -> Result<Self, Defect> {
        let CronJob { schedule, time_zone, options, .. } = cron_job;
        let zone = match time_zone {
            Some(name) => {
                zone(name, zones).map_err(|error| Defect::UnknownZone { error: error.to_string() })?
            }
            None => local.clone(),
        };
        let schedule = Schedule::parse(schedule, zones);
        let schedule = schedule.map_err(|error| Defect::Unparseable { error: error.to_string() })?;
        let schedule =
            if options.is_once_at_clock_changes { schedule.once_at_clock_changes() } else { schedule };
        let spread = i64::from(options.jitter_seconds.unwrap_or(0)) + 1;
        let seed = cron_job.meta.uid.to_string().bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let delay = SignedDuration::from_secs((seed >> 1).cast_signed() % spread);
        Ok(Timetable { schedule, zone, delay })
    }

    /// How many runs may fall into one minute, and so have one name.
    pub fn most_a_minute(&self) -> i64 {
        self.schedule.every().map_or(1, |seconds| 59 / seconds + 1)
    }

    /// When a run of this time begins.
    pub fn begins(&self, time: Timestamp) -> Timestamp {
        time.saturating_add(self.delay).unwrap_or(time)
    }

    /// Times until this one are due: each run is as late as any other.
    pub fn due_before(&self, now: Timestamp) -> Timestamp {
        now.saturating_sub(self.delay).unwrap_or(now)
    }

    /// The runs later than `earliest`, where a run may begin within `deadline` seconds. Of several that were missed only the
    /// latest is due (upstream: `mostRecentScheduleTime`, which searches it from an estimate, and does not find it where the
    /// times of a schedule are uneven).
    ///
    /// # Errors
    /// When no time follows.
    pub fn due(&self, earliest: Timestamp, deadline: Option<i64>, now: Timestamp) -> Result<Due, Defect> {
        let now = self.due_before(now);
        let Timetable { schedule, zone, .. } = self;
        let first = schedule.next(earliest, zone).ok_or(Defect::Never)?;
        let Some(latest) = schedule.latest(earliest, now, zone) else {
            return Ok(Due { time: None, too_late: None, missed: 0, next: Some(first) });
        };
        let second = schedule.next(first, zone).filter(|second| *second <= latest);
        let missed = second.map_or(1, |second| {
            let between = (second.as_second() - first.as_second()).max(1);
            (latest.as_second() - first.as_second()) / between + 1
        });
        let is_late = deadline
            .is_some_and(|deadline| now.duration_since(latest) >= SignedDuration::from_secs(deadline.max(0)));
        let (time, too_late) = if is_late { (None, Some(latest)) } else { (Some(latest), None) };
        Ok(Due { time, too_late, missed, next: schedule.next(latest, zone) })
    }

    /// The next time after a moment, for a CronJob whose last run is in the future.
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        self.schedule.next(after, &self.zone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Interner, Record as _};

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn timetable(schedule: &str, zone: Option<&str>) -> Result<Timetable, Defect> {
        let zone = zone.map(|zone| format!(r#","timeZone":"{zone}""#)).unwrap_or_default();
        let json = format!(
            r#"{{"metadata":{{"name":"c","namespace":"shop","uid":"u","resourceVersion":"1"}},
                "spec":{{"schedule":"{schedule}"{zone}}}}}"#
        );
        let cron_job = CronJob::decode(&json, &mut Interner::default()).unwrap();
        Timetable::of(&cron_job, &TimeZoneDatabase::bundled(), &TimeZone::UTC)
    }

    #[track_caller]
    fn check(
        schedule: &str,
        earliest: &str,
        deadline: Option<i64>,
        now: &str,
        due: Option<&str>,
        missed: i64,
        next: &str,
    ) {
        let found = timetable(schedule, None).unwrap().due(at(earliest), deadline, at(now)).unwrap();
        let next = Some(at(next));
        assert_eq!((found.time, found.missed, found.next), (due.map(at), missed, next), "{schedule}");
    }

    #[test]
    fn a_time_is_due_when_it_has_passed_and_of_several_the_latest() {
        let (ten, eleven) = ("2026-01-01T10:00:00Z", "2026-01-01T11:00:00Z");
        check("0 * * * *", "2026-01-01T09:00:00Z", None, "2026-01-01T09:59:59Z", None, 0, ten);
        check("0 * * * *", "2026-01-01T09:00:00Z", None, ten, Some(ten), 1, eleven);
        check("0 * * * *", "2026-01-01T00:00:00Z", None, "2026-01-01T10:59:00Z", Some(ten), 10, eleven);
        // A whole year: no loop over its hours.
        check("0 * * * *", "2025-01-01T10:00:00Z", None, "2026-01-01T10:59:00Z", Some(ten), 8760, eleven);
        check(
            "@every 7m",
            "2026-01-01T10:01:00Z",
            None,
            "2026-01-01T10:16:00Z",
            Some("2026-01-01T10:15:00Z"),
            2,
            "2026-01-01T10:22:00Z",
        );
    }

    #[test]
    fn the_latest_of_uneven_times_is_found() {
        // Upstream estimates by the first interval of a minute, and finds nothing.
        check(
            "0-1 0 1 1 *",
            "2024-12-31T00:00:00Z",
            None,
            "2025-12-31T00:00:00Z",
            Some("2025-01-01T00:01:00Z"),
            2,
            "2026-01-01T00:00:00Z",
        );
        // Upstream estimates by an interval of months, and steps through a month minute by minute.
        check(
            "* * * 1 *",
            "2025-01-31T23:58:00Z",
            None,
            "2026-01-31T23:59:30Z",
            Some("2026-01-31T23:59:00Z"),
            2,
            "2027-01-01T00:00:00Z",
        );
    }

    #[test]
    fn a_run_begins_within_its_deadline_or_not() {
        let (time, next) = ("2026-01-01T10:00:00Z", "2026-01-01T11:00:00Z");
        for (now, due) in [("2026-01-01T10:00:09Z", Some(time)), ("2026-01-01T10:00:10Z", None)] {
            check("0 * * * *", "2026-01-01T09:30:00Z", Some(10), now, due, 1, next);
        }
        check("0 * * * *", "2026-01-01T09:30:00Z", Some(0), time, None, 1, next);
        check(
            "0 * * * *",
            "2026-01-01T09:30:00Z",
            Some(i64::MAX / 4),
            "2026-01-01T10:59:00Z",
            Some(time),
            1,
            next,
        );
    }

    #[test]
    fn an_interval_above_the_deadline_runs() {
        let (created, time) = ("2026-01-01T10:00:00Z", "2026-01-01T11:00:00Z");
        check("@every 1h", created, Some(60), time, Some(time), 1, "2026-01-01T12:00:00Z");
    }

    #[test]
    fn what_cannot_run_says_why() {
        let unknown = Defect::UnknownZone { error: "unknown time zone europe/berlin".into() };
        assert_eq!(timetable("@daily", Some("europe/berlin")).unwrap_err(), unknown);
        let error = "unrecognized descriptor: @often".into();
        assert_eq!(timetable("@often", None).unwrap_err(), Defect::Unparseable { error });
        let now = at("2026-01-01T00:00:00Z");
        assert_eq!(timetable("0 0 31 2 *", None).unwrap().due(now, None, now), Err(Defect::Never));
    }

    #[test]
    fn a_zone_moves_the_times_and_clock_changes_with_them() {
        let berlin = timetable("30 2 * * *", Some("Europe/Berlin")).unwrap();
        let due = berlin.due(at("2026-03-28T12:00:00Z"), None, at("2026-03-29T12:00:00Z")).unwrap();
        assert_eq!((due.time, due.next), (None, Some(at("2026-03-30T00:30:00Z"))), "02:30 is skipped");
    }
}
