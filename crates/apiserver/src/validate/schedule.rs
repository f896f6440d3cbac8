//! The schedule of a CronJob, and its time zone.

use windlass_cron_schedule::{Schedule, zone};

/// Checks a schedule.
///
/// # Errors
/// The reason, in the words of upstream's parser.
pub(super) fn check(text: &str) -> Result<(), String> {
    Schedule::parse(text, jiff::tz::db()).map(drop).map_err(|error| error.to_string())
}

/// Whether there is such a time zone.
pub(super) fn is_zone(name: &str) -> bool {
    zone(name, jiff::tz::db()).is_ok()
}
