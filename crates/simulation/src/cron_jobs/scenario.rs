//! The scenario that a seed stands for.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::engine::game;
use crate::engine::network::Faults;
use crate::engine::replay::{StaticName, Word, bug, steps};

/// The history begins some minutes before one of these: clock changes in Berlin and New York, and a day without one.
const CHANGES: [i64; 5] = [
    1_767_268_800, // 2026-01-01T12:00Z
    1_772_953_200, // 2026-03-08T07:00Z, New York skips an hour
    1_774_746_000, // 2026-03-29T01:00Z, Berlin skips an hour
    1_792_890_000, // 2026-10-25T01:00Z, Berlin repeats an hour
    1_793_512_800, // 2026-11-01T06:00Z, New York repeats an hour
];

const SCHEDULES: [&str; 12] = [
    "* * * * *",
    "* * * * *",
    "*/2 * * * *",
    "*/5 * * * *",
    "1-59/3 * * * *",
    "*/10 2 * * *",
    "*/4 1,2,3 * * *",
    "*/3 * 29 * 1",
    "*/3 * 1,8,25 * 6",
    "*/6 * * 3-11 0",
    "@every 90s",
    "0 0 31 2 *",
];

const ZONES: [&str; 6] = ["", "", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Etc/GMT+5"];

/// Something that an actor does. `nth` counts the existing objects in the order of their names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Act {
    /// A user changes the schedule.
    Schedule(Word),
    /// A user changes the time zone; "" is none.
    Zone(Word),
    /// A user suspends the CronJob, or resumes it.
    Suspend(bool),
    /// A user changes the concurrency policy.
    Policy(Word),
    /// A user sets the starting deadline in seconds; -1 is none.
    Deadline(i64),
    /// A user sets how many Jobs that succeeded are kept, and how many that failed.
    History(u32, u32),
    /// A user sets the TTL of Jobs to come; -1 is none.
    Ttl(i64),
    /// A user changes a label of Jobs to come.
    Label(u32),
    /// A user sets the TTL of a Job that exists.
    JobTtl(u32, i64),
    /// A user raises the TTL of a finished Job as it expires, while watches lag.
    RaiseTtl(u32),
    /// A Job ends: it succeeds, or fails.
    Finish(u32, bool),
    /// All Jobs end.
    FinishAll(bool),
    /// A user deletes a Job.
    DeleteJob(u32),
    /// A user creates a Job with the name of the run in so many minutes.
    Squat(u32),
    /// A user creates a Job from the template, as `kubectl create job --from` does.
    Manual(u32),
    /// Another controller of the same name owns a Job, which ends.
    Namesake(u32),
    /// A user deletes the CronJob with this policy, and creates it again as soon as it is gone.
    Recreate(Word),
    /// A node is created.
    Node(u32),
    /// A node is deleted.
    NodeGone(u32),
    /// A node is taken out of service, and is not ready; or it is back.
    OutOfService(u32, bool),
    /// A pod is created on a node, or on none with 0. Some have a finalizer.
    Pod(u32, bool),
    /// A pod ends.
    EndPod(u32, bool),
    /// A user deletes a pod.
    DeletePod(u32),
    /// A user deletes a pod at once, and creates another under its name.
    RecreatePod(u32),
    /// All watches break.
    BreakWatches,
    /// The API server compacts its history.
    Compact,
    /// The daemon is killed and started again.
    Crash,
    /// The daemon is killed with the nth write from now: once it is carried out, or before.
    Kill(u32, bool),
    /// No daemon runs for so many seconds.
    Down(u32),
    /// The daemon is killed with its next write, and none runs for so many seconds. Jobs may end meanwhile.
    Outage(u32, bool),
    /// Another daemon is started. The first ends after so many seconds.
    Second(u32),
    /// The clocks of daemons that start from now on are ahead by so many seconds.
    Skew(i32),
}

/// See the module documentation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Seeds every random choice.
    pub seed: u64,
    /// The planted mistake, or "".
    #[serde(default, deserialize_with = "bug", skip_serializing_if = "str::is_empty")]
    pub bug: StaticName,
    /// When the history begins, in seconds since 1970.
    pub begins: i64,
    /// The schedule at first.
    pub schedule: Word,
    /// The time zone at first; "" is none.
    pub zone: Word,
    /// The faults of the network.
    pub faults: Faults,
    /// The acts with their times, in order.
    #[serde(with = "steps")]
    pub acts: Vec<(Duration, Act)>,
}

impl game::Scenario for Scenario {
    fn draw(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed ^ 0xc105_0b5c_ed01_e000);
        let faults = Faults::of_a_scenario(&mut rng, 12);
        let change = rng.choice(CHANGES).unwrap_or(CHANGES[0]);
        let (schedule, zone) = (any_schedule(&mut rng), any_zone(&mut rng));
        let begins = change - rng.i64(1..60 * 60);
        let mut scenario = Scenario { seed, bug: "", begins, schedule, zone, faults, acts: Vec::new() };
        // Some seeds act fast, and interrupt runs; others act slowly, and let many pass.
        let pause = rng.choice([3_000, 40_000, 300_000, 1_200_000]).unwrap_or(40_000);
        let mut at = Duration::from_secs(1);
        for _ in 0..rng.u32(4..28) {
            at += Duration::from_millis(rng.u64(20..pause));
            scenario.acts.push((at, any(&mut rng)));
        }
        scenario
    }

    crate::engine::game::seed_and_bug!();

    fn check(&self) -> Result<(), String> {
        match self.begins {
            0..=4_000_000_000 => Ok(()),
            _ => Err("begins: must be before 2096".into()),
        }
    }
}

fn any_schedule(rng: &mut fastrand::Rng) -> Word {
    rng.choice(SCHEDULES).unwrap_or(SCHEDULES[0]).into()
}

fn any_zone(rng: &mut fastrand::Rng) -> Word {
    rng.choice(ZONES).unwrap_or_default().into()
}

fn any(rng: &mut fastrand::Rng) -> Act {
    let nth = rng.u32(..8);
    match rng.u8(..104) {
        0..7 => Act::Schedule(any_schedule(rng)),
        7..12 => Act::Zone(any_zone(rng)),
        12..18 => Act::Suspend(rng.u8(..3) == 0),
        18..24 => Act::Policy(rng.choice(["Allow", "Forbid", "Replace"]).unwrap_or("Allow").into()),
        24..28 => Act::Deadline(rng.choice([-1, 0, 5, 20, 100, 1000]).unwrap_or(-1)),
        28..32 => Act::History(rng.u32(..3), rng.u32(..3)),
        32..35 => Act::Ttl(rng.choice([-1, 0, 3, 60]).unwrap_or(-1)),
        35 => Act::Label(nth),
        36..39 => Act::JobTtl(nth, rng.choice([-1, 0, 10, 100]).unwrap_or(0)),
        39..41 => Act::RaiseTtl(nth),
        41..48 => Act::Finish(nth, rng.bool()),
        48..55 => Act::FinishAll(rng.u8(..3) > 0),
        55..58 => Act::DeleteJob(nth),
        58..60 => Act::Squat(rng.u32(..3)),
        60..62 => Act::Manual(nth),
        62..64 => Act::Namesake(nth),
        64..66 => {
            Act::Recreate(rng.choice(["Orphan", "Background", "Foreground"]).unwrap_or("Background").into())
        }
        66..68 => Act::Node(nth % 3),
        68..70 => Act::NodeGone(nth % 3),
        70..72 => Act::OutOfService(nth % 3, rng.bool()),
        72..77 => Act::Pod(nth % 4, rng.u8(..5) == 0),
        77..82 => Act::EndPod(nth, rng.bool()),
        82..85 => Act::DeletePod(nth),
        85..87 => Act::RecreatePod(nth),
        87..89 => Act::BreakWatches,
        89 => Act::Compact,
        90..93 => Act::Crash,
        93..97 => Act::Kill(rng.u32(1..6), rng.bool()),
        97..99 => match rng.u32(1..900) {
            seconds if seconds % 2 == 0 => Act::Outage(seconds, seconds % 4 == 0),
            seconds => Act::Down(seconds),
        },
        99..102 => Act::Second(rng.u32(1..200)),
        _ => Act::Skew(rng.choice([-20, -3, 0, 3, 20]).unwrap_or(0)),
    }
}
