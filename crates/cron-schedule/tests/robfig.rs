//! The answers of robfig/cron 3.0.1 to 2,000 texts, and to 200 schedules in 13 time zones around clock changes.

use jiff::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use windlass_cron_schedule::Schedule;

#[test]
fn texts_are_taken_and_refused_in_the_same_words() {
    let zones = TimeZoneDatabase::bundled();
    let vectors = include_str!("vectors/parse.txt");
    let mut differences = Vec::new();
    for line in vectors.lines() {
        let (text, expected) = line.split_once('\t').unwrap();
        let found = Schedule::parse(text, &zones).err().map(|error| error.to_string()).unwrap_or_default();
        if found != expected {
            differences.push(format!("{text:?}: {found:?} and not {expected:?}"));
        }
    }
    assert_eq!(vectors.lines().count(), 2000);
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// The zones as they were when the vectors were made, with their rules for years to come: governments change those, and then every
/// database has others.
fn zone(name: &str) -> TimeZone {
    let mut lines = include_str!("vectors/zones.txt").lines();
    let data = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix('\t')).unwrap();
    let bytes: Vec<u8> =
        (0..data.len()).step_by(2).map(|at| u8::from_str_radix(&data[at..at + 2], 16).unwrap()).collect();
    TimeZone::tzif(name, &bytes).unwrap()
}

/// The first lines of `next.txt` name the zones, and when their offsets changed from 2014 to 2025. The others have a checksum
/// (FNV-1a, 32 bits) for each schedule and zone: of eight times in a row from each of several starts, which are one in 2014, and two
/// at every fourth change, a day before it and just before it.
#[test]
fn times_around_clock_changes_are_the_same() {
    let zones = TimeZoneDatabase::bundled();
    let mut lines = include_str!("vectors/next.txt").lines().map(|line| line.split_once('\t').unwrap());
    let of_zones: Vec<(TimeZone, Vec<i64>)> = lines
        .by_ref()
        .take(13)
        .map(|(name, changes)| {
            let changes = changes.split_whitespace().map(|change| change.parse().unwrap());
            (zone(name), changes.collect())
        })
        .collect();
    let (mut differences, mut compared) = (Vec::new(), 0);
    for (number, (text, sums)) in (0i64..).zip(lines) {
        let schedule = Schedule::parse(text, &zones).unwrap();
        for ((zone, changes), expected) in of_zones.iter().zip(sums.split_whitespace()) {
            let mut sum = Fnv::default();
            for start in starts(changes, number) {
                let mut time = Timestamp::from_second(start).unwrap();
                for _ in 0..8 {
                    let next = schedule.next(time, zone);
                    // Go's zero time stands for none.
                    sum.add(next.map_or(0, Timestamp::as_second));
                    let Some(next) = next else { break };
                    assert!(next > time, "{text} after {time}");
                    time = next;
                }
            }
            compared += 1;
            if format!("{:x}", sum.0) != expected {
                differences.push(format!("{text:?} in {}", zone.iana_name().unwrap_or_default()));
            }
        }
    }
    assert!(differences.is_empty(), "{} differ:\n{}", differences.len(), differences.join("\n"));
    assert_eq!(compared, 200 * 13);
}

fn starts(changes: &[i64], number: i64) -> Vec<i64> {
    // The first second of 2014.
    let mut starts = vec![1_388_534_400 + number * 86_461];
    for (place, change) in (0i64..).zip(changes) {
        if place % 4 == number % 4 {
            starts.extend([change - 100_000 + number * 37, change - 1 - number * 60]);
        }
    }
    starts
}

struct Fnv(u32);

impl Default for Fnv {
    fn default() -> Self {
        Fnv(2_166_136_261)
    }
}

impl Fnv {
    fn add(&mut self, number: i64) {
        for byte in number.to_le_bytes() {
            self.0 = (self.0 ^ u32::from(byte)).wrapping_mul(16_777_619);
        }
    }
}
