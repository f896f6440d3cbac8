//! The scenario that a seed stands for.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::engine::game;
use crate::engine::network::Faults;
use crate::engine::replay::{StaticName, Word, bug, milliseconds, steps};

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
        if (1..=20).contains(&self.nodes) { Ok(()) } else { Err("nodes: must be between 1 and 20".into()) }
    }
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
