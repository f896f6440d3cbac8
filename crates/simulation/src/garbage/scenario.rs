//! What a seed stands for.

use std::time::Duration;

use crate::cluster::Faults;

/// How wrong a reference is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
#[derive(Clone, Debug, PartialEq, Eq)]
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
        finalizer: Option<&'static str>,
        /// Its owners.
        owners: Vec<Owner>,
    },
    /// A user deletes an object with this policy, or with none. It may be one that is being deleted.
    Delete(u32, Option<&'static str>),
    /// A user gives an object other owners.
    Reown(u32, Vec<Owner>),
    /// A user lets an object no longer block its owners, or block them.
    Block(u32, bool),
    /// A user changes an object.
    Touch(u32),
    /// A user takes the finalizers off an object.
    Unfinalize(u32),
    /// Objects that own each other in a circle are created, and one of them is deleted with this policy.
    Circle(u32, &'static str),
    /// An owner and a dependent are created at once, and the owner is deleted with this policy.
    CreateAndDelete(u32, &'static str),
    /// Reads of one object get "404 page not found" for some seconds.
    LosePaths(u64),
    /// Lists of a kind fail for some seconds.
    BreakKind(usize, u64),
    /// All watches break.
    BreakWatches,
    /// The API server compacts its history.
    Compact,
    /// The collector is killed and started again.
    Crash,
}

/// See the module documentation.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Seeds every random choice.
    pub seed: u64,
    /// The faults of the network.
    pub faults: Faults,
    /// The acts with their times, in order.
    pub acts: Vec<(Duration, Act)>,
}

impl Scenario {
    /// The scenario of a seed.
    pub fn new(seed: u64) -> Self {
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
        let mut rng = fastrand::Rng::with_seed(seed);
        let count = rng.u64(20..70);
        let mut at = Duration::from_millis(200);
        let mut acts = Vec::new();
        for _ in 0..count {
            // Often at the same instant as the one before.
            at += Duration::from_millis(if rng.bool() { 0 } else { rng.u64(..1500) });
            acts.push((at, act(&mut rng)));
        }
        Scenario { seed, faults, acts }
    }
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

fn policy(rng: &mut fastrand::Rng) -> &'static str {
    ["Background", "Foreground", "Foreground", "Orphan"][rng.usize(..4)]
}

fn act(rng: &mut fastrand::Rng) -> Act {
    match rng.u8(..40) {
        0..12 => Act::Create {
            kind: [0, 0, 0, 1, 1, 2][rng.usize(..6)],
            number: rng.u32(..12),
            is_elsewhere: rng.u8(..6) == 0,
            finalizer: [None, None, None, None, Some("example.com/keep"), Some("orphan")][rng.usize(..6)],
            owners: owners(rng),
        },
        12..20 => {
            let policy = policy(rng);
            Act::Delete(rng.u32(..), (rng.u8(..5) > 0).then_some(policy))
        }
        20..24 => Act::Reown(rng.u32(..), owners(rng)),
        24 => Act::Block(rng.u32(..), rng.bool()),
        25..27 => Act::Touch(rng.u32(..)),
        27 => Act::Unfinalize(rng.u32(..)),
        28..30 => Act::Circle(rng.u32(..100), policy(rng)),
        30..33 => Act::CreateAndDelete(rng.u32(..100), policy(rng)),
        33 => Act::LosePaths(rng.u64(1..20)),
        34..36 => Act::BreakKind(rng.usize(..2), rng.u64(1..60)),
        36 => Act::BreakWatches,
        37 => Act::Compact,
        _ => Act::Crash,
    }
}
