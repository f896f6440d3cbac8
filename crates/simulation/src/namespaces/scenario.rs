//! The scenario that a seed draws.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::truth::{KEEP, KINDS, NAMES};
use crate::engine::game;
use crate::engine::network::Faults;
use crate::engine::replay::{StaticName, Word, bug, milliseconds, steps};

/// Something that an actor does. Namespaces and kinds are places in [`NAMES`] and [`KINDS`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Act {
    /// A user creates a namespace, with a token or a finalizer of his own or without.
    CreateNamespace {
        /// The namespace.
        namespace: usize,
        /// Whether it has a token of the user in `spec.finalizers`.
        has_token: bool,
        /// Whether it has a finalizer of the user in its metadata.
        has_finalizer: bool,
    },
    /// A user deletes a namespace.
    DeleteNamespace(usize),
    /// A user creates an object.
    Create {
        /// The kind.
        kind: usize,
        /// The namespace.
        namespace: usize,
        /// Its number, which is its name.
        number: u32,
        /// The finalizer that it has from the beginning.
        finalizer: Option<Word>,
    },
    /// A user deletes an object with this policy: one of all objects in the namespace.
    Delete(usize, u32, Word),
    /// The kubelet ends the pods that are being deleted.
    EndPods,
    /// Users take their finalizers off the objects of a namespace that are being deleted.
    Release(usize),
    /// A user takes his token and his finalizer off a namespace.
    ReleaseNamespace(usize),
    /// Discovery fails for some seconds.
    LoseDiscovery(u64),
    /// Lists and deletions of a kind fail for some seconds.
    BreakKind(usize, u64),
    /// The objects of a kind cannot be deleted by one request, for some seconds.
    SplitCollections(usize, u64),
    /// All watches break.
    BreakWatches,
    /// The API server compacts its history.
    Compact,
    /// The controller is killed and started again.
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
    /// The faults of the network.
    pub faults: Faults,
    /// How long after its deletion a namespace may go.
    #[serde(with = "milliseconds")]
    pub delay: Duration,
    /// Whether the garbage collector runs, too.
    pub has_collector: bool,
    /// The acts with their times, in order.
    #[serde(with = "steps")]
    pub acts: Vec<(Duration, Act)>,
}

impl game::Scenario for Scenario {
    fn draw(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed ^ 0x0a3e_57ac_e55e_ed00);
        let likely = rng.u8(..3);
        let mut percent = |most: u8| if likely == 0 { 0 } else { rng.u8(..=most) * likely / 2 };
        let faults = Faults {
            lost_requests: percent(6),
            lost_replies: percent(6),
            late_requests: percent(5),
            late_replies: percent(5),
            refusals: percent(4),
        };
        let delay = Duration::from_secs(if rng.bool() { 5 } else { 0 });
        let has_collector = rng.bool();
        let mut rng = fastrand::Rng::with_seed(seed);
        let count = rng.u64(30..90);
        let mut at = Duration::from_millis(200);
        let mut acts = Vec::new();
        for _ in 0..count {
            // Often at the same instant as the one before.
            at += Duration::from_millis(if rng.bool() { 0 } else { rng.u64(..2500) });
            acts.push((at, act(&mut rng)));
        }
        Scenario { seed, bug: "", faults, delay, has_collector, acts }
    }

    crate::engine::game::seed_and_bug!();
}

fn act(rng: &mut fastrand::Rng) -> Act {
    let namespace = rng.usize(..NAMES.len() - 1);
    match rng.u8(..40) {
        0..7 => {
            Act::CreateNamespace { namespace, has_token: rng.u8(..5) == 0, has_finalizer: rng.u8(..8) == 0 }
        }
        7..12 => Act::DeleteNamespace(namespace),
        12..24 => Act::Create {
            kind: rng.usize(..KINDS.len()),
            namespace,
            number: rng.u32(..6),
            finalizer: [None, None, None, Some(KEEP), Some("orphan"), Some("foregroundDeletion")]
                [rng.usize(..6)]
            .map(Word::from),
        },
        24..26 => {
            Act::Delete(namespace, rng.u32(..), ["Background", "Foreground", "Orphan"][rng.usize(..3)].into())
        }
        26..29 => Act::EndPods,
        29..31 => Act::Release(namespace),
        31 => Act::ReleaseNamespace(namespace),
        32 => Act::LoseDiscovery(rng.u64(1..20)),
        33..35 => Act::BreakKind(rng.usize(..KINDS.len()), rng.u64(1..20)),
        35 => Act::SplitCollections(rng.usize(..KINDS.len()), rng.u64(1..30)),
        36 => Act::BreakWatches,
        37 => Act::Compact,
        _ => Act::Crash,
    }
}
