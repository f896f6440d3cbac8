//! The scenario that a seed draws.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::engine::game;
use crate::engine::network::Faults;
use crate::engine::replay::{StaticName, bug, milliseconds, steps};

/// Steps, good and bad; `None` removes them.
pub const STEPS: [Option<&str>; 8] = [
    None,
    Some("1"),
    Some("1, 50%"),
    Some("1 for 20s, 50% for 40s, 3"),
    Some("25%, 1, 75% for 30s"),
    Some("2 for 1m, 2, 100%"),
    Some("1,25%%"),
    Some("0"),
];

/// The keys that an act may write, with some values.
pub const VALUES: [(&str, &[Option<&str>]); 5] = [
    ("windlass.dev/fail-after", &[None, Some("10s"), Some("30s"), Some("soon")]),
    ("windlass.dev/on-failure", &[None, Some("halt"), Some("rollback"), Some("explode")]),
    ("windlass.dev/batch-delay", &[None, Some("5s"), Some("30s")]),
    ("windlass.dev/pod-replacement", &[None, Some("TerminationComplete"), Some("TerminationStarted")]),
    ("windlass.dev/unheard-of", &[None, Some("x")]),
];

/// Something that an actor does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Act {
    /// A user changes the image.
    Image(u32),
    /// A user changes the image to one that never starts.
    BrokenImage,
    /// A user or an autoscaler scales.
    Scale(u32),
    /// A user changes surge and unavailability.
    Budget(u32, u32),
    /// A user pauses or resumes.
    Pause(bool),
    /// A user changes the steps: by their place in [`STEPS`].
    Steps(usize),
    /// A user changes another key: by its place in [`VALUES`], and the place of the value.
    Value(usize, usize),
    /// An approval of the current revision minus so many, through a step; 0 for all.
    Approve(u32, u32),
    /// An abort of the current revision minus so many.
    Abort(u32),
    /// A retry of the current revision after this failure.
    Retry(u32),
    /// A user removes the command.
    NoCommand,
    /// A bypass of so many seconds; 0 ends it.
    Bypass(u32),
    /// Somebody copies the state of a ReplicaSet to all others and to the Deployment.
    CopyState(u32),
    /// Somebody removes the state of a ReplicaSet, or writes nonsense.
    LoseState(u32, bool),
    /// The chaos monkey deletes a pod.
    DeletePod(u32),
    /// The chaos monkey makes a pod unready.
    Unready(u32),
    /// All watches break.
    BreakWatches,
    /// The daemon is killed and started again.
    Crash,
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
    /// The faults of the network.
    pub faults: Faults,
    /// From a pod's binding until it is ready.
    #[serde(with = "milliseconds")]
    pub readiness: Duration,
    /// From a pod's deletion until it has ended.
    #[serde(with = "milliseconds")]
    pub shutdown: Duration,
    /// The acts with their times, in order.
    #[serde(with = "steps")]
    pub acts: Vec<(Duration, Act)>,
}

impl game::Scenario for Scenario {
    fn draw(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed ^ 0x0901_1c1e_5000_0001);
        let faults = Faults::of_a_scenario(&mut rng, 12);
        let mut scenario = Scenario {
            seed,
            bug: "",
            faults,
            readiness: Duration::from_millis(rng.u64(100..3000)),
            shutdown: Duration::from_millis(rng.u64(50..6000)),
            acts: Vec::new(),
        };
        // Some seeds interrupt rollouts; others let them reach their steps and fail.
        let pause = rng.choice([3_000, 20_000, 60_000]).unwrap_or(20_000);
        let mut at = Duration::from_secs(8);
        scenario.acts.push((at, Act::Steps(rng.usize(..6))));
        for _ in 0..rng.u32(6..28) {
            at += Duration::from_millis(rng.u64(50..pause));
            scenario.acts.push((at, any(&mut rng)));
        }
        scenario
    }

    fn seed(&self) -> u64 {
        self.seed
    }

    fn bug(&self) -> &'static str {
        self.bug
    }

    fn with_bug(self, bug: &'static str) -> Self {
        Scenario { bug, ..self }
    }

    fn check(&self) -> Result<(), String> {
        for (_, act) in &self.acts {
            let known = match act {
                Act::Steps(at) => *at < STEPS.len(),
                Act::Value(key, at) => VALUES.get(*key).is_some_and(|(_, values)| *at < values.len()),
                _ => true,
            };
            if !known {
                return Err(format!("acts: {act:?} names a value that does not exist"));
            }
        }
        Ok(())
    }
}

fn any(rng: &mut fastrand::Rng) -> Act {
    let nth = rng.u32(..8);
    match rng.u8(..100) {
        0..16 => Act::Image(rng.u32(1..5)),
        16..24 => Act::BrokenImage,
        24..32 => Act::Scale(rng.u32(..9)),
        32..36 => {
            let surge = rng.u32(..3);
            Act::Budget(surge, if surge == 0 { rng.u32(1..3) } else { rng.u32(..3) })
        }
        36..38 => Act::Pause(rng.bool()),
        38..46 => Act::Steps(rng.usize(..STEPS.len())),
        46..60 => {
            let key = rng.usize(..VALUES.len());
            Act::Value(key, rng.usize(..VALUES[key].1.len()))
        }
        60..74 => Act::Approve(rng.choice([0, 0, 0, 1]).unwrap_or(0), rng.u32(..4)),
        74..77 => Act::Abort(rng.choice([0, 0, 1]).unwrap_or(0)),
        77..81 => Act::Retry(rng.u32(1..4)),
        81 => Act::NoCommand,
        82..84 => Act::Bypass(rng.choice([0, 5, 60]).unwrap_or(5)),
        84..87 => Act::CopyState(nth),
        87..90 => Act::LoseState(nth, rng.bool()),
        90..93 => Act::DeletePod(nth),
        93..95 => Act::Unready(nth),
        95 => Act::BreakWatches,
        96..98 => Act::Crash,
        _ => Act::Second(rng.u32(1..30)),
    }
}
