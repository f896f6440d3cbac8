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
/// A zone that `zones` does not have is taken from the database in the program, as Go does with its package `time/tzdata`: a
/// container image has none of its own, and some systems leave the older names out.
///
/// # Errors
/// When there is no such zone, in the words of Go's `time.LoadLocation`.
pub fn zone(name: &str, zones: &TimeZoneDatabase) -> Result<TimeZone, UnknownZone> {
    if matches!(name, "" | "UTC" | "Local") {
        return Ok(TimeZone::UTC);
    }
    if name.starts_with(['/', '\\']) || name.contains("..") {
        return Err(UnknownZone::Path);
    }
    let find = |zones: &TimeZoneDatabase| {
        zones.get(name).ok().filter(|zone| zone.iana_name() == Some(name) && !zone.is_unknown())
    };
    find(zones)
        .or_else(|| find(&TimeZoneDatabase::bundled()))
        .ok_or_else(|| UnknownZone::Missing(name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_are_found_on_a_machine_without_any() {
        for name in ["Europe/Berlin", "America/Argentina/Buenos_Aires", "US/Eastern", "Etc/GMT+5"] {
            let found = zone(name, &TimeZoneDatabase::none()).unwrap();
            assert_eq!(found.iana_name(), Some(name));
            assert!(!found.is_unknown());
        }
        let berlin = zone("Europe/Berlin", &TimeZoneDatabase::none()).unwrap();
        let july = "2026-07-01T00:00:00Z".parse().unwrap();
        assert_eq!(berlin.to_offset(july).seconds(), 7200);
    }

    #[test]
    fn names_are_compared_byte_for_byte() {
        for zones in [TimeZoneDatabase::none(), TimeZoneDatabase::bundled(), jiff::tz::db().clone()] {
            for (name, error) in [
                ("europe/berlin", "unknown time zone europe/berlin"),
                ("Mars/Olympus", "unknown time zone Mars/Olympus"),
                ("local", "unknown time zone local"),
                ("../etc/passwd", "time: invalid location name"),
                ("Europe/a..b", "time: invalid location name"),
                ("/etc/localtime", "time: invalid location name"),
            ] {
                assert_eq!(zone(name, &zones).unwrap_err().to_string(), error);
            }
            assert_eq!(["", "UTC", "Local"].map(|name| zone(name, &zones)), [const { Ok(TimeZone::UTC) }; 3]);
        }
    }
}
