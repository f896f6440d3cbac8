//! The scenario that a seed stands for.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::truth::{GROUP, KINDS};
use crate::engine::game;
use crate::engine::network::Faults;
use crate::engine::objects::NAMESPACE;
use crate::engine::replay::{StaticName, Word, bug, steps, word};

/// How wrong a reference is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Reference {
    /// It names the object.
    Right,
    /// It names the object, and blocks its deletion.
    Blocking,
    /// It has the UID of the object, and another name.
    OtherName,
    /// It has the UID of the object, and another kind.
    OtherKind,
    /// It names a kind that nobody serves.
    UnknownKind,
    /// It names the object by a UID that nobody has.
    Invented,
    /// The same, and the UID is no UUID.
    NoUuid,
}

/// An owner of an object: the `nth` of all objects, and how it is named.
pub type Owner = (u32, Reference);

/// Something that an actor does. `nth` counts the existing objects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Act {
    /// A user creates an object of a kind under a number, in the other namespace or not, with a finalizer or without.
    Create {
        /// The place of its kind.
        kind: usize,
        /// Its number, which is its name.
        number: u32,
        /// Whether it is in the other namespace.
        is_elsewhere: bool,
        /// The finalizer that it has from the beginning.
        finalizer: Option<Word>,
        /// Its owners.
        owners: Vec<Owner>,
    },
    /// A user deletes an object with this policy, or with none. It may be one that is being deleted.
    Delete(u32, Option<Word>),
    /// A user gives an object other owners.
    Reown(u32, Vec<Owner>),
    /// A user lets an object no longer block its owners, or block them.
    Block(u32, bool),
    /// A user changes an object.
    Touch(u32),
    /// A user takes the finalizers off an object.
    Unfinalize(u32),
    /// Objects that own each other in a circle are created, and one of them is deleted with this policy.
    Circle(u32, Word),
    /// An owner and a dependent are created at once, and the owner is deleted with this policy.
    CreateAndDelete(u32, Word),
    /// An object becomes its own owner, and blocks itself or not.
    OwnItself(u32, bool),
    /// An owner of one kind and a dependent of another are created in the same instant.
    CreatePair(u32, [usize; 2]),
    /// While the watch of one kind lags, an object of it comes to block an owner of another kind, which is deleted after its
    /// dependents a good minute later.
    BlockUnseen(u32, [usize; 2]),
    /// A user deletes an object, and after some milliseconds again with another policy.
    DeleteTwice(u32, [Word; 2], u64),
    /// The next object with owners that the collector reads gets a living owner before the answer arrives.
    MoveAfterRead,
    /// A user deletes the other namespace.
    DeleteNamespace,
    /// A user creates the other namespace.
    CreateNamespace,
    /// A user deletes the definition of the kind that comes and goes, or creates it again.
    ToggleDefinition,
    /// Reads of one object get "404 page not found" for some seconds.
    LosePaths(u64),
    /// A fault of one kind, for some seconds.
    OfKind(KindFault, usize, u64),
    /// A fault of discovery, for some seconds.
    OfDiscovery(DiscoveryFault, u64),
    /// All watches break.
    BreakWatches,
    /// The API server compacts its history.
    Compact,
    /// The collector is killed and started again.
    Crash,
    /// Another collector starts while this one acts for some more seconds, with caches that are cut off or not.
    SecondLeader {
        /// How long the old one goes on.
        seconds: u64,
        /// Whether its watches and lists show nothing any more.
        is_cut_off: bool,
    },
    /// etcd is restored to its state before so many acts.
    Restore {
        /// How many.
        acts: usize,
        /// Whether new revisions are higher than all before. Otherwise the collector is restarted, as its documentation says.
        bumps_revision: bool,
    },
}

/// The fault of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum KindFault {
    /// Its lists fail.
    Broken,
    /// Its lists and new watches get no answer.
    Hanging,
    /// Its open watches show nothing.
    Lagging,
    /// Every request gets "404 page not found".
    Lost,
}

/// The groups that discovery may lack.
const GROUPS: &[StaticName] = &["", "rbac.authorization.k8s.io", GROUP];

fn group<'de, D: serde::Deserializer<'de>>(from: D) -> Result<StaticName, D::Error> {
    word(from, GROUPS)
}

/// The fault of discovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum DiscoveryFault {
    /// This group is missing.
    Missing(#[serde(deserialize_with = "group")] StaticName),
    /// This group is stale: the API server cannot reach what serves it.
    Stale(#[serde(deserialize_with = "group")] StaticName),
    /// The groups are none.
    Empty,
    /// It fails.
    Failing,
}

impl DiscoveryFault {
    /// Whether the collector may not know the resources of this group.
    pub fn hides(self, group: &str) -> bool {
        match self {
            DiscoveryFault::Missing(missing) => missing == group,
            DiscoveryFault::Empty => !group.is_empty(),
            DiscoveryFault::Stale(_) | DiscoveryFault::Failing => group == super::truth::GROUP,
        }
    }
}

/// The objects that the collector looks after.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Scope {
    /// Everything.
    All,
    /// The kinds at these places alone, by `--gc-resources`.
    Only(Vec<usize>),
    /// All kinds but the one at this place, by `--gc-ignored-resources`.
    AllBut(usize),
    /// One namespace, by `--namespace`.
    Namespace,
}

impl Scope {
    /// Whether an object is looked after, by the place of its kind and its namespace.
    pub fn includes(&self, kind: usize, namespace: &str) -> bool {
        match self {
            Scope::All => true,
            Scope::Only(kinds) => kinds.contains(&kind),
            Scope::AllBut(ignored) => kind != *ignored,
            Scope::Namespace => namespace == NAMESPACE,
        }
    }
}

impl Act {
    /// Whether it is no act of a user.
    fn is_fault(&self) -> bool {
        matches!(
            self,
            Act::MoveAfterRead
                | Act::LosePaths(_)
                | Act::OfKind(..)
                | Act::OfDiscovery(..)
                | Act::BreakWatches
                | Act::Compact
                | Act::Crash
                | Act::SecondLeader { .. }
                | Act::Restore { .. }
        )
    }
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
    /// Whether there are no faults at all.
    pub is_calm: bool,
    /// Whether users give objects owners that are being deleted.
    pub has_late_references: bool,
    /// The objects that the collector looks after.
    pub scope: Scope,
    /// `--kube-api-qps`.
    pub qps: f64,
    /// The acts with their times, in order.
    #[serde(with = "steps")]
    pub acts: Vec<(Duration, Act)>,
}

impl game::Scenario for Scenario {
    fn draw(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed ^ 0x06a4_ba6e_c011_ec70);
        let likely = rng.u8(..3);
        let mut percent = |most: u8| if likely == 0 { 0 } else { rng.u8(..=most) * likely / 2 };
        let faults = Faults {
            lost_requests: percent(6),
            lost_replies: percent(6),
            late_requests: percent(5),
            late_replies: percent(5),
            refusals: percent(4),
        };
        let is_calm = likely == 0 && rng.bool();
        let scope = match rng.u8(..12) {
            0 => Scope::Only([&[0][..], &[0, 2], &[1, 3]][rng.usize(..3)].to_vec()),
            1 => Scope::AllBut(rng.usize(..KINDS.len())),
            2 => Scope::Namespace,
            _ => Scope::All,
        };
        let qps = if rng.u8(..4) == 0 { 4.0 } else { 1e6 };
        let acts = acts(seed, is_calm);
        Scenario { seed, bug: "", faults, is_calm, has_late_references: true, scope, qps, acts }
    }

    crate::engine::game::seed_and_bug!();

    fn check(&self) -> Result<(), String> {
        if self.qps >= 1.0 { Ok(()) } else { Err("qps: must be at least 1".into()) }
    }
}

impl Scenario {
    /// The acts of users in the scenario of a seed, without a fault, without two deletions in a race, and with a kind
    /// that stays: when it goes, the collector of the sandbox cannot ask for its objects any more, and the other has
    /// seen their deletion.
    pub fn without_faults(seed: u64) -> Self {
        let mut acts = acts(seed, true);
        acts.retain(|(_, act)| !matches!(act, Act::ToggleDefinition | Act::DeleteTwice(..)));
        let faults = Faults::default();
        Scenario {
            seed,
            bug: "",
            faults,
            is_calm: true,
            has_late_references: false,
            scope: Scope::All,
            qps: 1e6,
            acts,
        }
    }
}

fn acts(seed: u64, is_calm: bool) -> Vec<(Duration, Act)> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let count = rng.u64(20..70);
    let mut at = Duration::from_millis(200);
    let mut acts = Vec::new();
    for _ in 0..count {
        // Often at the same instant as the one before.
        at += Duration::from_millis(if rng.bool() { 0 } else { rng.u64(..1500) });
        acts.push((at, act(&mut rng)));
    }
    acts.retain(|(_, act)| !is_calm || !act.is_fault());
    acts
}

fn owners(rng: &mut fastrand::Rng) -> Vec<Owner> {
    let count = [0, 1, 1, 1, 2, 2, 5][rng.usize(..7)];
    let reference = |rng: &mut fastrand::Rng| match rng.u8(..24) {
        0..10 => Reference::Right,
        10..19 => Reference::Blocking,
        19 => Reference::OtherName,
        20 => Reference::OtherKind,
        21 => Reference::UnknownKind,
        22 => Reference::Invented,
        _ => Reference::NoUuid,
    };
    (0..count).map(|_| (rng.u32(..), reference(rng))).collect()
}

fn policy(rng: &mut fastrand::Rng) -> Word {
    ["Background", "Foreground", "Foreground", "Orphan"][rng.usize(..4)].into()
}

fn act(rng: &mut fastrand::Rng) -> Act {
    match rng.u8(..60) {
        0..14 => Act::Create {
            kind: [0, 0, 0, 1, 1, 2, 3][rng.usize(..7)],
            number: rng.u32(..12),
            is_elsewhere: rng.u8(..6) == 0,
            finalizer: [None, None, None, None, Some("example.com/keep"), Some("orphan")][rng.usize(..6)]
                .map(Word::from),
            owners: owners(rng),
        },
        14..22 => {
            let policy = policy(rng);
            Act::Delete(rng.u32(..), (rng.u8(..5) > 0).then_some(policy))
        }
        22..25 => Act::Reown(rng.u32(..), owners(rng)),
        25 => Act::Block(rng.u32(..), rng.bool()),
        26..28 => Act::Touch(rng.u32(..)),
        28 => Act::Unfinalize(rng.u32(..)),
        29..31 => Act::Circle(rng.u32(..100), policy(rng)),
        31..34 => Act::CreateAndDelete(rng.u32(..100), policy(rng)),
        34 => Act::OwnItself(rng.u32(..), rng.bool()),
        35..37 => Act::CreatePair(rng.u32(..100), [rng.usize(..KINDS.len()), rng.usize(..KINDS.len())]),
        37 => Act::DeleteTwice(rng.u32(..), [policy(rng), policy(rng)], rng.u64(..2000)),
        38 => Act::DeleteNamespace,
        39 => Act::CreateNamespace,
        40..42 => Act::ToggleDefinition,
        42 => Act::MoveAfterRead,
        43 => Act::LosePaths(rng.u64(1..20)),
        44..50 => {
            use KindFault::{Broken, Hanging, Lagging, Lost};
            let fault = [Broken, Hanging, Lagging, Lagging, Lost][rng.usize(..5)];
            let longest = if fault == Lagging { 120 } else { 60 };
            Act::OfKind(fault, rng.usize(..KINDS.len()), rng.u64(1..longest))
        }
        50..53 => Act::OfDiscovery(discovery_fault(rng), rng.u64(1..60)),
        53 => Act::BreakWatches,
        54 => Act::Compact,
        55..57 => Act::Crash,
        57 => Act::SecondLeader { seconds: rng.u64(1..60), is_cut_off: rng.bool() },
        _ => Act::Restore { acts: rng.usize(1..12), bumps_revision: rng.u8(..3) > 0 },
    }
}

fn discovery_fault(rng: &mut fastrand::Rng) -> DiscoveryFault {
    let group = GROUPS[rng.usize(..3)];
    match rng.u8(..5) {
        0 | 1 => DiscoveryFault::Missing(group),
        2 => DiscoveryFault::Stale(group),
        3 => DiscoveryFault::Empty,
        _ => DiscoveryFault::Failing,
    }
}
