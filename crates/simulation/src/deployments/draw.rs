//! Draws a scenario from a seed.

use std::time::Duration;

use super::actors::{hostile, owners};
use super::scenario::{Act, Fault, LONG_NAME, NAMES, Scenario, Skew, a_while};

/// XORed with the seed for what is drawn from a separate source.
const APART: u64 = 0x5348;

impl Scenario {
    /// The scenario of a seed.
    pub fn new(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let daemons = if rng.u8(..3) == 0 { 2 } else { 1 };
        let all = [
            Fault::LostRequests(rng.u8(1..15)),
            Fault::LostReplies(rng.u8(1..15)),
            Fault::LateRequests(rng.u8(1..8)),
            Fault::LateReplies(rng.u8(1..8)),
            Fault::Refusals(rng.u8(1..15)),
            Fault::Conflicts(rng.u8(1..15)),
            Fault::Behind(rng.u8(5..60)),
        ];
        let likely = rng.u8(..3);
        let faults: Vec<Fault> = all.into_iter().filter(|_| rng.u8(..3) < likely).collect();
        // From a separate source, so that a seed keeps its other draws.
        let mut apart = fastrand::Rng::with_seed(seed ^ APART);
        let mut scenario = Scenario {
            seed,
            daemons,
            // Two daemons without election are two leaders.
            election: rng.u8(..4) < if daemons > 1 { 3 } else { 1 },
            streaming_lists: rng.bool(),
            readiness: Duration::from_millis(rng.u64(100..3000)),
            shutdown: Duration::from_millis(rng.u64(50..2000)),
            calm: rng.u8(..4) == 0,
            quiet: a_while(),
            bug: "",
            clocks: Vec::new(),
            faults,
            points: Vec::new(),
            acts: Vec::new(),
            repair: true,
        };
        // Of two candidates for the Lease only one can take over.
        if scenario.election && daemons == 2 && rng.u8(..3) == 0 {
            scenario.daemons = 3;
        }
        scenario.fill(&mut rng);
        scenario.add_foreign_owners();
        scenario.refuse(&mut apart);
        if rng.u8(..4) == 0 {
            scenario.clocks = (0..scenario.daemons).map(|_| skew(&mut rng)).collect();
            // With wrong clocks the daemons disagree on how long a pod has been ready.
            scenario.acts.retain(|(_, act)| !matches!(act, Act::MinReady { .. }));
        }
        if scenario.calm {
            scenario.acts.retain(|(_, act)| act.is_user_change() || act.is_fault());
        }
        if !scenario.election && scenario.daemons > 1 {
            // A daemon that waits for a creation without a reply keeps its name. The other daemon does not know that
            // name, and one that still sees a deleted pod takes the name after it: then the two request different
            // names, which creates a pod too many (S11). The same happens with what a daemon creates after a long
            // wait for a reply: the other may have created that pod, and its replacement, meanwhile.
            scenario.faults.clear();
            let parts = |act: &Act| {
                matches!(
                    act,
                    Act::LateReplacement { .. }
                        | Act::Webhook { .. }
                        | Act::LateCreation { .. }
                        | Act::LateStatus { .. }
                        | Act::Lag { resource: "pods", .. }
                )
            };
            scenario.acts.retain(|(_, act)| !parts(act));
            // Two leaders that see the same state converge; from others only the safety invariants are judged.
            if rng.bool() {
                let hides = |act: &Act| matches!(act, Act::Lag { .. } | Act::BreakWatches | Act::Compact);
                scenario.acts.retain(|(_, act)| !hides(act));
            }
        }
        // Two days contain every resync. Renewals of a Lease would make them take too long.
        if !scenario.election {
            scenario.quiet = Duration::from_secs(48 * 3600);
        }
        scenario.lengthen_names();
        scenario
    }

    /// Adds refusals and responses with `Retry-After`.
    fn refuse(&mut self, rng: &mut fastrand::Rng) {
        let all = [
            Fault::Webhook(rng.u8(1..15)),
            Fault::Throttled(rng.u8(1..15)),
            Fault::Unavailable(rng.u8(1..10)),
        ];
        // Rare, because each of them makes a history slower.
        let likely = rng.u8(..3);
        self.faults.extend(all.into_iter().filter(|_| rng.u8(..6) < likely));
        if rng.u8(..4) == 0 {
            let last = self.acts.last().map_or(1, |(at, _)| at.as_millis().max(2) as u64);
            let at = Duration::from_millis(rng.u64(1..last));
            let seconds = rng.choice([2, 20, 60]).unwrap_or(2);
            self.acts.push((at, Act::Webhook { seconds }));
            if rng.bool() {
                let act = Act::Replace { name: NAMES[0], policy: "Orphan" };
                self.acts.push((at + Duration::from_millis(1), act));
            }
            self.acts.sort_by_key(|(at, _)| *at);
        }
    }

    /// In every eighth seed a Deployment has a name of which the names of its pods keep only a part.
    fn lengthen_names(&mut self) {
        if fastrand::Rng::with_seed(self.seed ^ LONG_NAMES).u8(..8) > 0 {
            return;
        }
        let names = self.acts.iter_mut().filter_map(|(_, act)| act.name_mut());
        names.filter(|name| **name == NAMES[0]).for_each(|name| *name = LONG_NAME);
    }

    fn fill(&mut self, rng: &mut fastrand::Rng) {
        let mut at = Duration::ZERO;
        // Some seeds act fast, and interrupt rollouts; others act slowly, and let them finish.
        let pause = rng.choice([400, 2000, 8000]).unwrap_or(2000);
        let lags = rng.u8(..3) == 0;
        let crashes = rng.bool();
        self.acts.push((at, create(NAMES[0], rng)));
        for _ in 0..rng.u32(5..30) {
            at += Duration::from_millis(rng.u64(10..pause));
            let act = any(rng, self.daemons);
            let allowed = match act {
                Act::Lag { .. } => lags,
                Act::Crash { .. } | Act::Stop { .. } => crashes,
                _ => true,
            };
            if allowed {
                self.acts.push((at, act));
            }
        }
    }
}

/// XORed with the seed for what is drawn about names.
const LONG_NAMES: u64 = 0x6c6f_6e67;

/// XORed with the seed for what is drawn about foreign owners.
const FOREIGN_OWNERS: u64 = 0x6f77_6e65_7273_2124;

impl Scenario {
    /// In every third seed other clients create objects that name owners that are not theirs, and set what ranks pods
    /// for deletion. Drawn from a separate source, so that the other acts of a seed stay the same.
    fn add_foreign_owners(&mut self) {
        let mut rng = fastrand::Rng::with_seed(self.seed ^ FOREIGN_OWNERS);
        if rng.u8(..3) > 0 {
            return;
        }
        let end = self.acts.last().map_or(Duration::ZERO, |(at, _)| *at);
        let latest = u64::try_from(end.as_millis()).unwrap_or(0).max(20);
        for _ in 0..rng.u32(1..12) {
            let (at, act) = (Duration::from_millis(rng.u64(10..latest)), foreign_act(&mut rng));
            self.acts.push((at, act));
        }
        self.acts.sort_by_key(|(at, _)| *at);
    }
}

fn foreign_act(rng: &mut fastrand::Rng) -> Act {
    let nth = rng.u32(..12);
    match rng.u8(..12) {
        0..6 => Act::ForgeOwner { nth, form: rng.u32(..owners::FORGERIES) },
        6..9 => Act::OwnerlessReplicaSet { replicas: rng.u32(1..8) },
        9 => Act::Sidecar { name: NAMES[0] },
        _ => {
            let container = rng.u32(..owners::CONTAINERS);
            Act::Restart { nth, container, restarts: rng.u32(1..4) }
        }
    }
}

fn skew(rng: &mut fastrand::Rng) -> Skew {
    let ahead = rng.choice([0, 400, 5000, 3_600_000]).unwrap_or(0);
    let ahead = if rng.bool() { ahead } else { -ahead };
    Skew { ahead, speed: rng.choice([100, 95, 68]).unwrap_or(100) }
}

fn create(name: &'static str, rng: &mut fastrand::Rng) -> Act {
    let (replicas, surge) = (rng.u32(1..7), rng.u32(..3));
    let unavailable = if surge == 0 { rng.u32(1..3) } else { rng.u32(..3) };
    Act::Create { name, replicas, surge, unavailable, recreate: rng.u8(..6) == 0 }
}

fn any(rng: &mut fastrand::Rng, daemons: usize) -> Act {
    let name = if rng.u8(..4) == 0 { NAMES[1] } else { NAMES[0] };
    let nth = rng.u32(..12);
    match rng.u8(..67) {
        0..3 => create(name, rng),
        3..9 => Act::Image { name, tag: rng.u32(1..5) },
        9 => Act::BrokenImage { name },
        10..15 => Act::Scale { name, replicas: rng.u32(..8) },
        15..17 => {
            let (surge, recreate) = (rng.u32(..3), rng.u8(..3) == 0);
            let unavailable = if surge == 0 { rng.u32(1..3) } else { rng.u32(..3) };
            Act::Strategy { name, surge, unavailable, recreate }
        }
        17..19 => Act::Pause { name, paused: rng.bool() },
        19 => Act::RollBack { name },
        20 => Act::Label { name, value: rng.u32(..3) },
        21 => Act::MinReady { name, seconds: rng.u32(..5) },
        22..24 => {
            let policy = rng.choice(["Background", "Foreground", "Orphan"]).unwrap_or("Background");
            Act::Delete { name, policy }
        }
        24..26 => Act::Annotate { name, value: rng.u32(..) },
        26..28 => Act::DeletePod { nth, at_once: rng.bool() },
        28..30 => Act::Ready { nth, ready: rng.u8(..3) == 0 },
        30 => Act::Fail { nth },
        31 => Act::Relabel { nth },
        32 => Act::Quota { full: rng.bool() },
        33 => Act::BreakWatches,
        34 => Act::Compact,
        35..38 => {
            let resource = rng.choice(["pods", "replicasets", "deployments"]).unwrap_or("pods");
            // Sometimes longer than a daemon keeps a state that it cannot verify: two minutes for a write that may
            // still arrive, five for a cache that should have caught up.
            let long = rng.choice([130, 320, 600]).unwrap_or(130);
            let seconds = if rng.u8(..10) == 0 { long } else { rng.u32(1..20) };
            Act::Lag { daemon: rng.usize(..daemons), resource, seconds }
        }
        38..41 => Act::Crash { daemon: rng.usize(..daemons), writes: rng.u32(..6) },
        41 => Act::Stop { daemon: rng.usize(..daemons) },
        42..44 => {
            let surge = rng.choice([20, 30, 60, 110, 250]).unwrap_or(20);
            Act::Percent { name, surge, unavailable: rng.choice([10, 25, 30]).unwrap_or(10) }
        }
        44 => Act::Cost { nth, cost: rng.u32(..3) },
        45 => Act::Orphan { nth },
        46 => Act::ChangePodOwner { nth },
        47 => Act::OrphanPod { nth },
        48 => Act::UnselectReplicaSet { nth },
        49 => Act::ReplicaSetFinalizer { nth },
        50 => Act::OrphanPods { nth },
        51 => Act::RollBack { name },
        52 => Act::OrphanTerminating { nth },
        53 => {
            let policy = rng.choice(["Background", "Orphan"]).unwrap_or("Orphan");
            Act::Replace { name, policy }
        }
        54..56 => Act::HostileAnnotation { name, nth, value: rng.u32(..hostile::COUNT) },
        56 => Act::PodFinalizer { nth },
        57 if rng.u8(..4) == 0 => Act::EndNamespace,
        58..60 => Act::EndNewPods { name },
        60..62 => Act::Depose {
            resource: rng.choice(["pods", "replicasets", "deployments", "deployments"]).unwrap_or("pods"),
        },
        62 => Act::LateReplacement { nth },
        63 => Act::LateCreation { name },
        64 => Act::LateStatus { name },
        _ => Act::SlowLease { daemon: rng.usize(..daemons), seconds: rng.u32(5..30) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_one_scenario_and_another_seed_another() {
        assert_eq!(Scenario::new(7), Scenario::new(7));
        assert_ne!(Scenario::new(7).acts, Scenario::new(8).acts);
    }

    #[test]
    fn some_seeds_have_a_deployment_with_a_long_name_and_most_have_none() {
        let is_long = |seed: &u64| {
            let acts = Scenario::new(*seed).acts;
            acts.iter().any(|(_, act)| matches!(act, Act::Create { name, .. } if *name == LONG_NAME))
        };
        let long = (0..200).filter(is_long).count();
        assert!((10..50).contains(&long), "{long}");
    }

    #[test]
    fn acts_are_in_order_and_begin_with_a_deployment() {
        for seed in 0..100 {
            let acts = Scenario::new(seed).acts;
            assert!(acts.is_sorted_by_key(|(at, _)| *at), "{seed}");
            assert!(matches!(acts[0].1, Act::Create { .. }), "{seed}");
        }
    }
}
