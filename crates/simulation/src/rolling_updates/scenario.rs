//! The scenario that a seed draws.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::truth::{DESIRED, MAX_SURGE, ORIGINAL, PAUSED, SOURCE, STEP_AT};
use crate::engine::game;
use crate::engine::network::Faults;
use crate::engine::replay::{StaticName, Word, bug, milliseconds, steps};

/// The names of the ReplicationControllers.
pub const NAMES: [&str; 3] = ["web", "next", "third"];

/// The treatment of OLD at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Cleanup {
    /// It is deleted.
    Delete,
    /// It takes the pods over.
    KeepName,
    /// It stays with 0 replicas.
    Preserve,
}

/// The options of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// OLD and NEW, by their place in [`NAMES`].
    pub pair: (usize, usize),
    /// The image of NEW; `None` never starts.
    pub image: Option<u32>,
    /// The size of NEW where the user creates it without bookkeeping, so that it is no target; else the client creates it.
    pub foreign: Option<u32>,
    /// The size at the end, where it is not that of OLD.
    pub desired: Option<u32>,
    /// The surge.
    pub surge: Word,
    /// The pods that may be unavailable.
    pub unavailable: Word,
    /// The pause, in seconds.
    pub period: u32,
    /// The time without progress, in seconds.
    pub timeout: u32,
    /// The treatment of OLD at the end.
    pub cleanup: Cleanup,
    /// After how many writes the client is killed.
    pub killed_after: u8,
}

/// Annotations that somebody breaks, with the value; `None` removes it.
pub const BREAKABLE: [(&str, Option<&str>); 10] = [
    (ORIGINAL, Some("abc")),
    (ORIGINAL, None),
    (DESIRED, Some("-1")),
    (DESIRED, None),
    (SOURCE, None),
    (SOURCE, Some("web:00000000-0000-0000-0000-000000000000")),
    (STEP_AT, Some("noon")),
    (STEP_AT, None),
    (MAX_SURGE, Some("many")),
    (PAUSED, Some("perhaps")),
];

/// Something that an actor does. Controllers are places in [`NAMES`]; `nth` counts the live pods.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Act {
    /// A user asks for an update with the client, which creates NEW where it is missing.
    Update(Request),
    /// The client drives so many steps of an update itself, and is killed.
    Drive((usize, usize), u8),
    /// A user pauses an update, or resumes it.
    Pause(usize, bool),
    /// A user takes an update back, or changes his mind.
    TakeBack(usize, bool),
    /// A user writes a request by hand, with whatever name, to update or to take back, and looks at nothing before.
    Demand(usize, usize, bool),
    /// A user removes the request.
    Abort(usize),
    /// A user changes the bounds.
    Bounds(usize, Word, Word),
    /// A user scales a controller.
    Scale(usize, u32),
    /// A user changes the image; `None` never starts.
    Image(usize, Option<u32>),
    /// A user changes minReadySeconds.
    MinReady(usize, u32),
    /// A user deletes a controller with this policy.
    Delete(usize, Word),
    /// A user creates a controller that is missing.
    Create(usize),
    /// Somebody changes what no update depends on.
    Touch(usize),
    /// Somebody breaks an annotation of the bookkeeping or of the options: by its place in [`BREAKABLE`].
    Corrupt(usize, usize),
    /// A user creates a ReplicaSet that selects the pods of a controller.
    Rival(usize),
    /// The rivals are deleted.
    NoRival,
    /// A quota of so many pods.
    Quota(u32),
    /// No quota.
    NoQuota,
    /// A pod fails.
    Fail(u32),
    /// A pod is deleted.
    DeletePod(u32),
    /// A pod becomes unready.
    Unready(u32),
    /// A pod loses its owner reference.
    Orphan(u32),
    /// All watches break.
    BreakWatches,
    /// The API server compacts its history.
    Compact,
    /// The daemon is killed and started again.
    Crash,
    /// The daemon is killed with its `nth` write from now: after it is carried out, or before.
    CrashAt(u32, bool),
    /// A second daemon acts for so many seconds, and then alone.
    Two(u64),
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
    /// The update that must succeed at the end.
    pub last: Request,
    /// There is one update and no other interference: its own end is judged, and none other is asked for.
    pub is_single: bool,
}

impl game::Scenario for Scenario {
    fn draw(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed ^ 0x0011_1a9d_a7e5_ed00);
        let faults = Faults::of_a_scenario(&mut rng, 10);
        let readiness = Duration::from_millis(rng.u64(100..3000));
        let shutdown = Duration::from_millis(rng.u64(50..4000));
        // Some seeds interrupt updates, and others let them finish; some disturb nothing but the daemon.
        let pause = rng.choice([800, 5_000, 30_000]).unwrap_or(5_000);
        let disturbs = rng.u8(..3) > 0;
        let mut acts = Vec::new();
        let mut at = Duration::from_secs(12);
        for n in 0..rng.u32(4..24) {
            at += Duration::from_millis(rng.u64(20..pause));
            let first = (n == 0).then(|| Act::Update(Request { pair: (0, 1), ..request(&mut rng) }));
            let act = first.unwrap_or_else(|| any(&mut rng, disturbs));
            acts.push((at, act));
        }
        // A rival in time: later it finds no hand-over to disturb.
        if disturbs
            && rng.u8(..6) == 0
            && let Some((at, Act::Update(first))) = acts.first_mut()
        {
            (first.cleanup, first.image, first.desired) = (Cleanup::KeepName, Some(3), None);
            let soon = *at + Duration::from_millis(100);
            acts.insert(1, (soon, Act::Rival(1)));
        }
        let last = Request { image: Some(99), killed_after: u8::MAX, foreign: None, ..request(&mut rng) };
        // In some seeds, so that the others stay what they have been.
        if seed % 4 == 3 {
            demand(&mut rng, &mut acts);
        }
        Scenario { seed, bug: "", faults, readiness, shutdown, acts, last, is_single: false }
    }

    crate::engine::game::seed_and_bug!();
}

impl Scenario {
    /// One update of three pods, in which the daemon is killed with its `nth` write.
    pub fn with_crash(cleanup: Cleanup, takes_back: bool, nth: u32, is_carried_out: bool) -> Self {
        let calm = Request {
            pair: (0, 1),
            image: Some(2),
            foreign: None,
            desired: None,
            surge: "1".into(),
            unavailable: "0".into(),
            period: 0,
            timeout: 300,
            cleanup,
            killed_after: u8::MAX,
        };
        let at = Duration::from_millis;
        let mut acts =
            vec![(at(12_000), Act::CrashAt(nth, is_carried_out)), (at(12_010), Act::Update(calm.clone()))];
        if takes_back {
            acts.push((at(14_500), Act::TakeBack(0, true)));
        }
        Scenario {
            seed: 1,
            bug: "",
            faults: Faults::default(),
            readiness: at(1000),
            shutdown: at(500),
            acts,
            last: calm,
            is_single: true,
        }
    }
}

/// Requests with any name among the acts: of a stranger, of a NEW whose update is complete, of the controller itself.
fn demand(rng: &mut fastrand::Rng, acts: &mut Vec<(Duration, Act)>) {
    let (first, last) = (acts.first().map_or(Duration::ZERO, |act| act.0), acts.last().map(|act| act.0));
    for _ in 0..rng.u8(1..6) {
        let at =
            first + (last.unwrap_or(first) - first).mul_f64(rng.f64()) + Duration::from_secs(rng.u64(..10));
        // As a file says it.
        let at = Duration::from_secs(at.as_secs()) + Duration::from_millis(at.subsec_millis().into());
        acts.push((at, Act::Demand(rng.usize(..3), rng.usize(..3), rng.bool())));
    }
    acts.sort_by_key(|act| act.0);
}

fn pair(rng: &mut fastrand::Rng) -> (usize, usize) {
    let old = if rng.u8(..3) > 0 { 0 } else { rng.usize(..3) };
    (old, (old + 1 + usize::from(rng.u8(..4) == 0)) % 3)
}

fn bounds(rng: &mut fastrand::Rng) -> (Word, Word) {
    let all = [
        ("1", "0"),
        ("0", "1"),
        ("1", "1"),
        ("2", "0"),
        ("25%", "25%"),
        ("100%", "0"),
        ("1%", "50%"),
        ("0%", "1%"),
    ];
    let (surge, unavailable) = rng.choice(all).unwrap_or(("1", "0"));
    (surge.into(), unavailable.into())
}

fn request(rng: &mut fastrand::Rng) -> Request {
    let (surge, unavailable) = bounds(rng);
    Request {
        pair: pair(rng),
        image: (rng.u8(..6) > 0).then(|| rng.u32(1..9)),
        foreign: (rng.u8(..5) == 0).then(|| rng.u32(..3)),
        desired: (rng.u8(..5) == 0).then(|| rng.u32(1..6)),
        surge,
        unavailable,
        period: if rng.u8(..4) == 0 { rng.u32(1..20) } else { 0 },
        timeout: rng.choice([5, 30, 300]).unwrap_or(300),
        cleanup: rng
            .choice([Cleanup::Delete, Cleanup::KeepName, Cleanup::Preserve])
            .unwrap_or(Cleanup::Delete),
        killed_after: if rng.u8(..4) == 0 { rng.u8(..3) } else { u8::MAX },
    }
}

fn any(rng: &mut fastrand::Rng, disturbs: bool) -> Act {
    let one = if rng.bool() { 0 } else { rng.usize(..3) };
    let nth = rng.u32(..12);
    let most = if disturbs { 64 } else { 30 };
    match rng.u8(..most) {
        0..6 => Act::Update(request(rng)),
        6..9 => Act::Pause(one, rng.bool()),
        9..12 => Act::Pause(one, false),
        12..15 => Act::TakeBack(one, rng.u8(..4) > 0),
        15..17 => Act::Abort(one),
        17..20 => Act::Touch(one),
        20 => Act::BreakWatches,
        21 => Act::Compact,
        22..24 => Act::Crash,
        24..27 => Act::CrashAt(rng.u32(1..8), rng.bool()),
        27..29 => Act::Two(rng.u64(1..20)),
        29 => Act::Create(one),
        30..33 => Act::Drive(pair(rng), rng.u8(1..5)),
        33..35 => {
            let (surge, unavailable) = bounds(rng);
            Act::Bounds(one, surge, unavailable)
        }
        35..38 => Act::Scale(one, rng.u32(..6)),
        38..40 => Act::Image(one, (rng.u8(..4) > 0).then(|| rng.u32(1..9))),
        40 => Act::MinReady(one, rng.choice([0, 2, 6]).unwrap_or(0)),
        41..45 => Act::Delete(
            one,
            rng.choice(["Background", "Background", "Orphan", "Foreground"]).unwrap_or("Orphan").into(),
        ),
        45..47 => Act::Create(one),
        47..50 => Act::Corrupt(one, rng.usize(..BREAKABLE.len())),
        50 => Act::Rival(one),
        51 => Act::NoRival,
        52..54 => Act::Quota(rng.u32(1..8)),
        54..56 => Act::NoQuota,
        56..58 => Act::Fail(nth),
        58..61 => Act::DeletePod(nth),
        61..63 => Act::Unready(nth),
        _ => Act::Orphan(nth),
    }
}
