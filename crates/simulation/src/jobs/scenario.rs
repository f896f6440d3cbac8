//! The scenario that a seed stands for.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::engine::game;
use crate::engine::network::Faults;
use crate::engine::replay::{StaticName, Word, bug, milliseconds, steps};

/// The fields of a Job that cannot be changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Form {
    /// `Indexed`, `NonIndexed`, or `Queue`: without completions.
    pub mode: Word,
    /// `completions`.
    pub completions: u32,
    /// `backoffLimit`.
    pub limit: u32,
    /// `backoffLimitPerIndex`, of an Indexed Job.
    pub per_index: Option<u32>,
    /// Whether it has a failure policy: 42 is ignored, as is a disruption; 43 fails the Job, and 44 the index where there
    /// is a limit per index.
    pub failure_policy: bool,
    /// Whether so many indexes are enough, of an Indexed Job.
    pub enough: Option<u32>,
    /// Whether only pods that have ended are replaced.
    pub replaces_failed_only: bool,
    /// How its pods end, as their annotation says.
    pub outcome: Word,
    /// Whether another controller manages it.
    pub is_foreign: bool,
}

/// Something that an actor does. `nth` counts the existing objects in the order of their names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Act {
    /// A user changes the parallelism.
    Parallelism(u32),
    /// A user changes completions and parallelism together.
    Elastic(u32),
    /// A user suspends or resumes the Job.
    Suspend(bool),
    /// A user sets the deadline, in seconds, or takes it away with 0.
    Deadline(u32),
    /// A user deletes the Job with this policy, and creates it again as soon as it is gone.
    Recreate {
        /// `Background`, `Foreground` or `Orphan`.
        policy: Word,
        /// Its properties then.
        form: Form,
    },
    /// The controller that manages the Job finishes it.
    ForeignEnd,
    /// A pod fails with this exit code.
    Fail(u32, u8),
    /// All pods fail with this exit code.
    FailAll(u8),
    /// A pod fails by a disruption.
    Disrupt(u32),
    /// A pod succeeds.
    Succeed(u32),
    /// A pod is deleted.
    DeletePod(u32),
    /// A pod is deleted without a grace period.
    ForceDelete(u32),
    /// A pod loses its owner reference.
    Orphan(u32),
    /// A pod loses the label that the selector requires.
    Relabel(u32),
    /// A pod loses the finalizer.
    Strip(u32),
    /// A pod gets the finalizer.
    Track(u32),
    /// A pod gets this index.
    Index(u32, u32),
    /// A user creates a pod without an owner that the selector matches.
    Stray,
    /// A node's kubelet stops reporting, or reports again.
    Dead(u32, bool),
    /// An administrator creates a quota for pods that the existing ones use up.
    Quota,
    /// An administrator deletes the quota.
    NoQuota,
    /// All watches break.
    BreakWatches,
    /// The API server compacts its history.
    Compact,
    /// The daemon is killed and started again.
    Crash,
    /// The daemon is killed with this write from now, once that is carried out, or before.
    CrashAt(u32, bool),
    /// Another daemon is started. The first ends after so many seconds.
    Second(u32),
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
    /// The Job at first.
    pub form: Form,
    /// The faults of the network.
    pub faults: Faults,
    /// From a pod's binding until it is ready.
    #[serde(with = "milliseconds")]
    pub readiness: Duration,
    /// From a pod's deletion until it has ended.
    #[serde(with = "milliseconds")]
    pub shutdown: Duration,
    /// From a change until the API server collects garbage.
    #[serde(with = "milliseconds")]
    pub garbage: Duration,
    /// The acts with their times, in order.
    #[serde(with = "steps")]
    pub acts: Vec<(Duration, Act)>,
}

impl game::Scenario for Scenario {
    fn draw(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed ^ 0x10b5_0000_5eed_0001);
        let faults = Faults::of_a_scenario(&mut rng, 12);
        let mut scenario = Scenario {
            seed,
            bug: "",
            form: form(&mut rng),
            faults,
            readiness: Duration::from_millis(rng.u64(100..2000)),
            shutdown: Duration::from_millis(rng.u64(50..4000)),
            garbage: Duration::from_millis(rng.choice([0, 0, 700, 8000]).unwrap_or(0)),
            acts: Vec::new(),
        };
        // Some seeds act fast, and others let a Job wait for its backoffs.
        let pause = rng.choice([600, 3_000, 15_000, 60_000]).unwrap_or(3_000);
        let mut at = Duration::from_secs(1);
        for _ in 0..rng.u32(4..24) {
            at += Duration::from_millis(rng.u64(20..pause));
            scenario.acts.push((at, any(&mut rng)));
        }
        scenario
    }

    crate::engine::game::seed_and_bug!();

    fn check(&self) -> Result<(), String> {
        match self.garbage <= Duration::from_secs(60) {
            true => Ok(()),
            false => Err("garbage: must be at most 60000".into()),
        }
    }
}

fn form(rng: &mut fastrand::Rng) -> Form {
    let mode =
        rng.choice(["NonIndexed", "NonIndexed", "Queue", "Indexed", "Indexed"]).unwrap_or("NonIndexed");
    let outcomes = [
        "after:never",
        "after:never",
        "exit:0,after:2s",
        "exit:0,after:30s",
        "exit:1,after:2s",
        // With the failure policy, a Job whose pods all exit with 42 never ends.
        "exit:42/0,after:2s",
        "fail-indexes:1/3,after:2s",
    ];
    let is_indexed = mode == "Indexed";
    let per_index = rng.choice([None, Some(0), Some(1), Some(2)]).flatten().filter(|_| is_indexed);
    Form {
        mode: mode.into(),
        completions: rng.u32(1..7),
        limit: rng.choice([0, 1, 2, 6, 6]).unwrap_or(6),
        per_index,
        failure_policy: rng.u8(..3) == 0,
        enough: rng.choice([None, None, Some(1), Some(2)]).flatten().filter(|_| is_indexed),
        replaces_failed_only: rng.u8(..3) == 0,
        outcome: rng.choice(outcomes).unwrap_or("after:never").into(),
        is_foreign: rng.u8(..12) == 0,
    }
}

fn any(rng: &mut fastrand::Rng) -> Act {
    let nth = rng.u32(..8);
    let code = rng.choice([1, 1, 42, 43, 44]).unwrap_or(1);
    match rng.u8(..100) {
        0..8 => Act::Parallelism(rng.u32(..5)),
        8..14 => Act::Elastic(rng.u32(1..7)),
        14..23 => Act::Suspend(rng.bool()),
        23..26 => Act::Deadline(rng.choice([0, 5, 20, 60]).unwrap_or(0)),
        26..31 => {
            let policy = rng.choice(["Orphan", "Background", "Foreground"]).unwrap_or("Orphan");
            Act::Recreate { policy: policy.into(), form: form(rng) }
        }
        31..33 => Act::ForeignEnd,
        33..44 => Act::Fail(nth, code),
        44..46 => Act::FailAll(code),
        46..49 => Act::Disrupt(nth),
        49..62 => Act::Succeed(nth),
        62..65 => Act::DeletePod(nth),
        65..67 => Act::ForceDelete(nth),
        67 => Act::Orphan(nth),
        68 => Act::Relabel(nth),
        69 => Act::Strip(nth),
        70 => Act::Track(nth),
        71 => Act::Index(nth, rng.u32(..8)),
        72 => Act::Stray,
        73..75 => Act::Dead(nth, rng.bool()),
        75 => Act::Quota,
        76..78 => Act::NoQuota,
        78..82 => Act::BreakWatches,
        82 => Act::Compact,
        83..87 => Act::Crash,
        87..96 => Act::CrashAt(rng.u32(1..8), rng.bool()),
        _ => Act::Second(rng.u32(1..30)),
    }
}
