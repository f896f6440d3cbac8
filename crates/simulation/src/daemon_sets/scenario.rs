//! The scenario that a seed stands for.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::engine::game;
use crate::engine::network::Faults;
use crate::engine::replay::{StaticName, Word, bug, milliseconds, steps};

/// The keys of a policy, with some values: the first removes it, the last cannot be read.
pub const KEYS: [(&str, &[Option<&str>]); 3] = [
    (
        "windlass.dev/steps",
        &[
            None,
            Some("1"),
            Some("1 for 20s, 50% for 40s"),
            Some("50%, 75%"),
            Some("2 for 1m, 3"),
            Some("1,25%%"),
        ],
    ),
    ("windlass.dev/not-ready-nodes", &[None, Some("ignore"), Some("true")]),
    ("windlass.dev/progress-deadline", &[None, Some("20s"), Some("2m"), Some("soon")]),
];

/// Something that an actor does. `nth` counts the existing objects in the order of their names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Act {
    /// A user changes the image.
    Image(u32),
    /// A user changes the image to one that never starts.
    BrokenImage,
    /// A user sets maxUnavailable to this number of nodes.
    Unavailable(u32),
    /// A user sets maxSurge to this number of nodes.
    Surge(u32),
    /// A user sets the strategy OnDelete, and deletes old pods by hand.
    OnDelete,
    /// A user changes minReadySeconds.
    MinReady(u32),
    /// A user restricts it to one zone, or lifts the restriction.
    OneZone(bool),
    /// A user makes it tolerate all taints, or only the automatic ones.
    TolerateAll(bool),
    /// A user changes revisionHistoryLimit.
    HistoryLimit(u32),
    /// A user rolls back to the oldest revision.
    Undo,
    /// A user deletes the DaemonSet with this policy and creates it again, with another image or the same.
    Recreate {
        /// `Background`, `Foreground` or `Orphan`.
        policy: Word,
        /// The tag of the image.
        tag: u32,
    },
    /// A node is added, under a new or an earlier name.
    AddNode(u32),
    /// A node is removed.
    RemoveNode(u32),
    /// A node is tainted with this effect.
    Taint(u32, Word),
    /// A node loses its taints.
    Untaint(u32),
    /// A node is moved to this zone.
    Zone(u32, Word),
    /// A node is cordoned or uncordoned.
    Cordon(u32, bool),
    /// A node's kubelet stops reporting, or reports again.
    Dead(u32, bool),
    /// A node reports what no DaemonSet depends on.
    Heartbeat(u32),
    /// A pod and its replacements fail, until three have.
    Fail(u32),
    /// A pod succeeds.
    Succeed(u32),
    /// A pod is deleted.
    DeletePod(u32),
    /// A pod becomes unready.
    Unready(u32),
    /// A pod loses its owner reference.
    Orphan(u32),
    /// A pod loses the label that the selector requires.
    Relabel(u32),
    /// A user copies the current revision, with a higher number and another hash.
    Duplicate,
    /// A user creates a revision of other contents under the name that the next image gives.
    Occupy(u32),
    /// An administrator creates a quota for this resource that the existing pods use up.
    Quota(Word),
    /// An administrator deletes the quota.
    NoQuota,
    /// A policy refuses new pods for ten minutes, in which the DaemonSet must leave all nodes for a new one.
    Policy,
    /// A user changes a key of the policy: by its place in [`KEYS`], and the place of the value.
    Key(usize, usize),
    /// A user approves the current revision minus so many, through a step; 0 for all.
    Approve(u32, u32),
    /// A bypass of so many seconds; 0 ends it.
    Bypass(u32),
    /// All watches break.
    BreakWatches,
    /// The API server compacts its history.
    Compact,
    /// The daemon is killed and started again.
    Crash,
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
    /// How many nodes there are at the beginning.
    pub nodes: usize,
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

impl Scenario {
    /// Whether the DaemonSet gets a policy.
    pub fn has_policy(&self) -> bool {
        self.acts.iter().any(|(_, act)| matches!(act, Act::Key(..)))
    }
}

impl game::Scenario for Scenario {
    fn draw(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed ^ 0x0da3_0105_e75e_ed00);
        let faults = Faults::of_a_scenario(&mut rng, 12);
        let mut scenario = Scenario {
            seed,
            bug: "",
            nodes: rng.usize(1..6),
            faults,
            readiness: Duration::from_millis(rng.u64(100..3000)),
            shutdown: Duration::from_millis(rng.u64(50..2000)),
            acts: Vec::new(),
        };
        // Some seeds act fast, and interrupt rollouts; others act slowly, and let them finish.
        let pause = rng.choice([600, 5_000, 60_000, 120_000]).unwrap_or(5_000);
        let mut at = Duration::from_secs(1);
        for _ in 0..rng.u32(4..24) {
            at += Duration::from_millis(rng.u64(20..pause));
            scenario.acts.push((at, any(&mut rng)));
        }
        let mut rng = fastrand::Rng::with_seed(seed ^ 0x0da3_0105_e75e_ed01);
        let more = if rng.u8(..3) == 0 { under_a_policy(&mut rng) } else { Vec::new() };
        for (seconds, act) in more {
            at += Duration::from_secs(seconds);
            scenario.acts.push((at, act));
        }
        scenario
    }

    crate::engine::game::seed_and_bug!();

    fn check(&self) -> Result<(), String> {
        let is_unknown = |(_, act): &(Duration, Act)| match act {
            Act::Key(key, at) => KEYS.get(*key).is_none_or(|(_, values)| *at >= values.len()),
            _ => false,
        };
        if let Some((_, act)) = self.acts.iter().find(|step| is_unknown(step)) {
            return Err(format!("acts: {act:?} names a value that does not exist"));
        }
        if (1..=20).contains(&self.nodes) { Ok(()) } else { Err("nodes: must be between 1 and 20".into()) }
    }
}

/// Updates of a DaemonSet that has a policy.
fn under_a_policy(rng: &mut fastrand::Rng) -> Vec<(u64, Act)> {
    let mut acts = vec![
        (5, Act::NoQuota),
        (0, Act::OneZone(false)),
        (0, if rng.u8(..3) == 0 { Act::Surge(1) } else { Act::Unavailable(rng.u32(1..3)) }),
        (0, Act::MinReady(rng.choice([0, 2]).unwrap_or(0))),
        (0, Act::Image(9)),
    ];
    acts.extend((1..=rng.u32(2..6)).map(|number| (0, Act::AddNode(number))));
    let has_steps = rng.bool();
    acts.push((60, Act::Key(0, if has_steps { rng.usize(1..5) } else { 0 })));
    acts.push((0, Act::Key(1, rng.usize(..2))));
    for _ in 0..rng.u32(3..14) {
        let nth = rng.u32(..8);
        let act = match rng.u8(..32) {
            0..8 => Act::Image(rng.u32(1..5)),
            8 => Act::BrokenImage,
            9..13 => {
                let key = rng.usize(..KEYS.len());
                Act::Key(key, rng.usize(..KEYS[key].1.len()))
            }
            13..15 => Act::Key(1, 1),
            15 => Act::Key(2, 1),
            16..20 => Act::Approve(rng.choice([0, 0, 0, 1]).unwrap_or(0), rng.u32(..3)),
            20 => Act::Bypass(rng.choice([0, 20]).unwrap_or(0)),
            21..25 => Act::Dead(nth, rng.u8(..3) > 0),
            25 => Act::Undo,
            26 => Act::DeletePod(nth),
            27 => Act::AddNode(rng.u32(1..8)),
            28 => Act::RemoveNode(nth),
            29 => Act::BreakWatches,
            30 => Act::Unavailable(rng.u32(1..3)),
            _ => Act::Crash,
        };
        // The first node that gets a new pod may stop for it.
        let stops = matches!(act, Act::Image(_)) && rng.u8(..3) == 0;
        acts.push((rng.u64(1..60), act));
        if stops {
            acts.push((rng.u64(1..6), Act::Dead(rng.u32(..8), true)));
            acts.push((rng.u64(1..6), Act::Dead(rng.u32(..8), true)));
        }
    }
    acts
}

fn any(rng: &mut fastrand::Rng) -> Act {
    let nth = rng.u32(..8);
    let zone = if rng.bool() { "a" } else { "b" };
    match rng.u8(..70) {
        0..9 => Act::Image(rng.u32(1..5)),
        9 => Act::BrokenImage,
        10..13 => Act::Unavailable(rng.u32(1..3)),
        13..17 => Act::Surge(rng.u32(1..3)),
        17..19 => Act::OnDelete,
        19..21 => Act::MinReady(rng.choice([0, 2, 10]).unwrap_or(0)),
        21..23 => Act::OneZone(rng.bool()),
        23..25 => Act::TolerateAll(rng.bool()),
        25 => Act::HistoryLimit(rng.u32(..3)),
        26..29 => Act::Undo,
        29..31 => {
            let policy = rng.choice(["Orphan", "Background", "Foreground"]).unwrap_or("Orphan");
            Act::Recreate { policy: policy.into(), tag: rng.u32(1..3) }
        }
        31..34 => Act::AddNode(rng.u32(1..8)),
        34..37 => Act::RemoveNode(nth),
        37..40 => Act::Taint(nth, if rng.bool() { "NoSchedule" } else { "NoExecute" }.into()),
        40..42 => Act::Untaint(nth),
        42..44 => Act::Zone(nth, zone.into()),
        44..46 => Act::Cordon(nth, rng.bool()),
        46 => Act::Dead(nth, rng.bool()),
        47 => Act::Heartbeat(nth),
        48..51 => Act::Fail(nth),
        51 => Act::Succeed(nth),
        52..54 => Act::DeletePod(nth),
        54 => Act::Unready(nth),
        55 => Act::Orphan(nth),
        56 => Act::Relabel(nth),
        57 => Act::Duplicate,
        58..60 => Act::Occupy(rng.u32(1..5)),
        60 => Act::BreakWatches,
        61 => Act::Compact,
        62..65 => Act::Quota(if rng.bool() { "pods" } else { "count/pods" }.into()),
        65 => Act::NoQuota,
        66 => Act::Policy,
        _ => Act::Crash,
    }
}
