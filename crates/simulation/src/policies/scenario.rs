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
    /// A user lets an old pod go first where the new one fits no node, or does not.
    TerminateFirst(bool),
    /// A user changes the image, and to pods that are larger than every node.
    TooLarge(u32),
    /// A user scales to none, and after so many seconds back.
    Dip(u32),
    /// For so many seconds an agent applies again what users have last applied, where somebody else has changed it.
    GitOps(u32),
    /// The daemon that stores the next verdict is killed with that.
    CrashAtVerdict,
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
    /// Whether each node has room for one pod, and there are as many nodes as pods: one more fits nowhere.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_cramped: bool,
    /// The acts with their times, in order.
    #[serde(with = "steps")]
    pub acts: Vec<(Duration, Act)>,
}

impl Scenario {
    /// Whether an agent applies again what users have applied.
    pub fn has_agent(&self) -> bool {
        self.acts.iter().any(|(_, act)| matches!(act, Act::GitOps(_)))
    }
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
            is_cramped: false,
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
        // Failures and full nodes are drawn for themselves: each takes a sequence of acts that chance would hardly find.
        let mut rng = fastrand::Rng::with_seed(seed ^ 0x0901_1c1e_5000_0002);
        let more = match rng.u8(..4) {
            0 => failures(&mut rng),
            1 => {
                scenario.is_cramped = true;
                full_nodes(&mut rng)
            }
            _ => Vec::new(),
        };
        for (seconds, act) in more {
            at += Duration::from_secs(seconds);
            scenario.acts.push((at, act));
        }
        scenario
    }

    crate::engine::game::seed_and_bug!();

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

/// A Deployment that serves, of so many pods, without steps or commands.
fn serving(replicas: u32) -> Vec<(u64, Act)> {
    let keys = (0..VALUES.len()).map(|key| (0, Act::Value(key, 0)));
    let begin = [Act::Pause(false), Act::Steps(0), Act::NoCommand, Act::Bypass(0), Act::Budget(1, 0)];
    let rest = [Act::Scale(replicas), Act::Image(9)];
    begin.into_iter().chain(rest).map(|act| (0, act)).chain(keys).collect()
}

/// Rollouts that fail, halt or roll back, while daemons are killed and an agent applies the template again.
fn failures(rng: &mut fastrand::Rng) -> Vec<(u64, Act)> {
    let mut acts = serving(rng.u32(2..6));
    let rolls_back = rng.u8(..3) > 0;
    acts.extend([(60, Act::Value(1, if rolls_back { 2 } else { 1 })), (0, Act::Value(0, 1))]);
    for _ in 0..rng.u32(1..3) {
        if rng.bool() {
            acts.push((0, Act::CrashAtVerdict));
        }
        if rng.u8(..3) > 0 {
            acts.push((0, Act::GitOps(rng.u32(60..200))));
        }
        if rng.bool() {
            acts.push((0, Act::Steps(rng.usize(..6))));
        }
        acts.push((rng.u64(1..20), Act::BrokenImage));
        if rng.u8(..4) == 0 {
            acts.push((rng.u64(1..20), Act::Second(rng.u32(5..40))));
        }
        match rng.u8(..6) {
            0 => acts.push((rng.u64(10..60), Act::Retry(1))),
            1 => acts.push((rng.u64(10..60), Act::Dip(rng.u32(1..20)))),
            2 => acts.push((rng.u64(10..60), Act::Crash)),
            3 => acts.push((rng.u64(10..60), Act::Scale(rng.u32(1..7)))),
            _ => {}
        }
        acts.push((rng.u64(20..120), Act::Image(rng.u32(1..5))));
        acts.push((rng.u64(1..60), Act::Dip(rng.u32(1..20))));
    }
    acts
}

/// Rollouts to pods that fit no node, or only in the place of an old one.
fn full_nodes(rng: &mut fastrand::Rng) -> Vec<(u64, Act)> {
    let mut acts = serving(rng.u32(1..6));
    acts.push((60, Act::TerminateFirst(true)));
    for _ in 0..rng.u32(1..4) {
        let image = rng.u32(1..5);
        let at = rng.u64(1..20);
        let is_too_large = rng.u8(..3) == 0;
        acts.push((at, if is_too_large { Act::TooLarge(image) } else { Act::Image(image) }));
        let wait = rng.u64(20..150);
        match rng.u8(..8) {
            0 => acts.push((wait, Act::Crash)),
            1 => acts.push((wait, Act::Second(rng.u32(5..40)))),
            2 => acts.push((wait, Act::BreakWatches)),
            3 => acts.push((wait, Act::Scale(rng.u32(1..7)))),
            4 => acts.push((wait, Act::TerminateFirst(false))),
            5 => acts.push((wait, Act::Steps(rng.usize(..6)))),
            _ => {}
        }
        // Long enough for an old pod that went first in vain to be due back.
        let rest = rng.u64(60..240) + if is_too_large { 200 } else { 0 };
        acts.push((rest, Act::TerminateFirst(true)));
    }
    acts
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
