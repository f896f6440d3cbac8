//! Time zones by name.

use jiff::tz::{TimeZone, TimeZoneDatabase};

/// No time zone has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownZone {
    /// The database has no such zone.
    #[error("unknown time zone {0}")]
    Missing(String),
    /// The name is a path that leads out of the database.
    #[error("time: invalid location name")]
    Path,
}

/// The zone of this name. Names are compared byte for byte, as Go does on Linux: `europe/berlin` is unknown. The empty name is UTC,
/// and so is `Local`, which would mean another zone on every machine.
///
/// # Errors
/// When there is no such zone, in the words of Go's `time.LoadLocation`.
pub fn zone(name: &str, zones: &TimeZoneDatabase) -> Result<TimeZone, UnknownZone> {
    if matches!(name, "" | "UTC" | "Local") {
        return Ok(TimeZone::UTC);
    }
    if name.starts_with(['/', '\\']) || name.split(['/', '\\']).any(|part| part == "..") {
        return Err(UnknownZone::Path);
    }
    let found = zones.get(name).ok().filter(|zone| zone.iana_name() == Some(name) && !zone.is_unknown());
    found.ok_or_else(|| UnknownZone::Missing(name.to_owned()))
}
