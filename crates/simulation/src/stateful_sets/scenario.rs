//! The scenario that a seed stands for.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::engine::game;
use crate::engine::network::Faults;
use crate::engine::replay::{StaticName, Word, bug, milliseconds, steps};

/// The fields of a StatefulSet that cannot be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Form {
    /// Whether its policy is Parallel.
    pub parallel: bool,
    /// How many claims each pod has.
    pub claims: u8,
}

/// Something that an actor does. `nth` counts the existing objects in the order of their names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Act {
    /// A user changes the number of replicas.
    Scale(u32),
    /// A user removes this many replicas, and adds them again after so many milliseconds.
    DownAndUp(u32, u32),
    /// A user changes the start ordinal.
    Start(u32),
    /// A user changes the image.
    Image(u32),
    /// A user changes the image to one that never starts.
    BrokenImage,
    /// A user asks for a node that does not exist, or no longer does.
    NowhereToRun(bool),
    /// A user sets a rolling update with this partition and maxUnavailable, in percent, or 0 for none.
    Rolling(u32, u32),
    /// A user sets a rolling update with this partition, and maxUnavailable as a number.
    Wave(u32, u32),
    /// A user leaves the parameters of the rolling update out.
    Bare,
    /// A user sets the strategy OnDelete.
    OnDelete,
    /// A user changes minReadySeconds.
    MinReady(u32),
    /// A user changes revisionHistoryLimit.
    HistoryLimit(i32),
    /// A user sets whether claims are deleted with the StatefulSet, and whether when it is scaled down.
    Retention(bool, bool),
    /// A user rolls back to the oldest revision.
    Undo,
    /// A user sets a condition of the StatefulSet.
    Condition,
    /// A user deletes the StatefulSet with this policy, and creates it again as soon as it is gone.
    Recreate {
        /// `Background`, `Foreground` or `Orphan`.
        policy: Word,
        /// The tag of the image.
        tag: u32,
        /// Its properties then.
        form: Form,
    },
    /// A pod and its replacements fail, until three have.
    Fail(u32),
    /// A pod succeeds.
    Succeed(u32),
    /// A pod is deleted.
    DeletePod(u32),
    /// A pod is deleted without a grace period, while its kubelet still runs it.
    ForceDelete(u32),
    /// A pod becomes unready.
    Unready(u32),
    /// A pod loses its owner reference.
    Orphan(u32),
    /// A pod loses the label that the selector requires.
    Relabel(u32),
    /// A pod loses the labels of its identity.
    Blank(u32),
    /// A pod of another owner takes the name of this ordinal.
    Squat(u32),
    /// A user creates a pod without an owner that the selector matches, and whose name is none of an ordinal.
    Stray(Word),
    /// A user deletes a claim.
    DeleteClaim(u32),
    /// A user gives a claim another controller, or takes it away.
    ForeignController(u32, bool),
    /// A user gives a claim another owner.
    ForeignOwner(u32),
    /// A user deletes a revision.
    DeleteRevision(u32),
    /// A user copies the current revision, with a higher number.
    Duplicate,
    /// A user gives a revision a higher number.
    Renumber(u32),
    /// A backup restores the current revision as Kubernetes 1.33 wrote it, with a null in its template: other bytes, the same
    /// meaning. Its number is higher.
    Restore,
    /// A node's kubelet stops reporting, or reports again.
    Dead(u32, bool),
    /// An administrator creates a quota for this resource that the existing objects use up.
    Quota(Word),
    /// An administrator deletes the quota.
    NoQuota,
    /// All watches break.
    BreakWatches,
    /// The API server compacts its history.
    Compact,
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
    /// The StatefulSet at first.
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
        let mut rng = fastrand::Rng::with_seed(seed ^ 0x57a7_ef01_5e75_0001);
        let faults = Faults::of_a_scenario(&mut rng, 12);
        let mut scenario = Scenario {
            seed,
            bug: "",
            form: form(&mut rng),
            faults,
            readiness: Duration::from_millis(rng.u64(100..3000)),
            shutdown: Duration::from_millis(rng.u64(50..4000)),
            garbage: Duration::from_millis(rng.choice([0, 0, 700, 8000]).unwrap_or(0)),
            acts: Vec::new(),
        };
        // Some seeds act fast, and interrupt rollouts; others act slowly, and let them finish.
        let pause = rng.choice([600, 5_000, 30_000, 90_000]).unwrap_or(5_000);
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
    Form { parallel: rng.bool(), claims: rng.choice([0, 1, 1, 2]).unwrap_or(1) }
}

fn any(rng: &mut fastrand::Rng) -> Act {
    let nth = rng.u32(..8);
    match rng.u8(..100) {
        0..10 => Act::Scale(rng.u32(..7)),
        10..14 => Act::DownAndUp(rng.u32(1..4), rng.u32(10..4000)),
        14..18 => Act::Start(rng.choice([0, 0, 1, 2, 9]).unwrap_or(0)),
        18..27 => Act::Image(rng.u32(1..5)),
        27..30 => Act::BrokenImage,
        30..32 => Act::NowhereToRun(rng.bool()),
        32..37 => Act::Rolling(rng.u32(..4), rng.choice([0, 0, 25, 50, 70, 100]).unwrap_or(0)),
        37..40 => Act::Wave(rng.u32(..3), rng.u32(1..4)),
        40 => Act::Bare,
        41..43 => Act::OnDelete,
        43..46 => Act::MinReady(rng.choice([0, 2, 10]).unwrap_or(0)),
        46 => Act::HistoryLimit(rng.i32(-1..3)),
        47..53 => Act::Retention(rng.bool(), rng.bool()),
        53..56 => Act::Undo,
        56 => Act::Condition,
        57..61 => {
            let policy = rng.choice(["Orphan", "Background", "Foreground"]).unwrap_or("Orphan");
            Act::Recreate { policy: policy.into(), tag: rng.u32(1..3), form: form(rng) }
        }
        61..64 => Act::Fail(nth),
        64 => Act::Succeed(nth),
        65..69 => Act::DeletePod(nth),
        69 => Act::ForceDelete(nth),
        70..74 => Act::Unready(nth),
        74 => Act::Orphan(nth),
        75 => Act::Relabel(nth),
        76 => Act::Blank(nth),
        77 => Act::Squat(nth),
        78..82 => Act::DeleteClaim(nth),
        82..84 => Act::ForeignController(nth, rng.bool()),
        84 => Act::ForeignOwner(nth),
        85 => Act::DeleteRevision(nth),
        86 => Act::Duplicate,
        87 => Act::Renumber(nth),
        88 => Act::Stray(rng.choice(["db-01", "web-0", "db"]).unwrap_or("db").into()),
        89 => Act::Dead(nth, rng.bool()),
        90 => Act::Quota(rng.choice(["pods", "persistentvolumeclaims"]).unwrap_or("pods").into()),
        91 => Act::NoQuota,
        92..94 => Act::BreakWatches,
        94 => Act::Compact,
        95..98 => Act::Crash,
        98 => Act::Second(rng.u32(1..30)),
        _ => Act::Restore,
    }
}
