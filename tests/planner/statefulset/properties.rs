//! Random histories. Every write is checked at once, and in the end the cluster settles with the pods that are wanted.
//! A crash after any effect of a plan changes nothing about the end.

use proptest::prelude::*;
use serde_json::{Value, json};
use windlass::plan::statefulset::Write;

use super::world::{World, max_unavailable, parallel, stateful_set, with_claims};

#[derive(Clone, Debug)]
enum Step {
    Rounds(usize),
    Pass(i64),
    Image(u8),
    Scale(i64),
    Start(i64),
    Strategy(u8),
    Retention(bool, bool),
    Unready(usize),
    Fail(usize),
    DeletePod(usize),
    DeleteClaim(usize),
    Bad(u8, u8),
    Crash(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1..6usize).prop_map(Step::Rounds),
        2 => (1..40i64).prop_map(Step::Pass),
        3 => (1..4u8).prop_map(Step::Image),
        2 => (0..6i64).prop_map(Step::Scale),
        1 => (0..4i64).prop_map(Step::Start),
        1 => (0..6u8).prop_map(Step::Strategy),
        1 => (any::<bool>(), any::<bool>()).prop_map(|(deleted, scaled)| Step::Retention(deleted, scaled)),
        2 => (0..20usize).prop_map(Step::Unready),
        1 => (0..20usize).prop_map(Step::Fail),
        1 => (0..20usize).prop_map(Step::DeletePod),
        1 => (0..20usize).prop_map(Step::DeleteClaim),
        1 => (1..4u8, 0..4u8).prop_map(|(image, how)| Step::Bad(image, how)),
        2 => (0..5usize).prop_map(Step::Crash),
    ]
}

fn strategy(number: u8) -> Value {
    let rolling = |fields: Value| json!({"type": "RollingUpdate", "rollingUpdate": fields});
    match number {
        0 => rolling(json!({"partition": 0})),
        1 => rolling(json!({"partition": 2})),
        2 => rolling(json!({"partition": 1, "maxUnavailable": 2})),
        3 => rolling(json!({"partition": 0, "maxUnavailable": "50%"})),
        4 => json!({"type": "RollingUpdate"}),
        _ => json!({"type": "OnDelete"}),
    }
}

fn nth(world: &World, nth: usize, of: fn(&World) -> &super::world::Objects) -> Option<String> {
    let all = of(world);
    all.keys().nth(nth % all.len().max(1)).cloned()
}

fn take(world: &mut World, step: Step) {
    let policy = |deletes: bool| if deletes { "Delete" } else { "Retain" };
    match step {
        Step::Rounds(rounds) => world.rounds(rounds),
        Step::Pass(seconds) => world.pass(seconds),
        Step::Image(image) => world.set_image(&format!("v{image}")),
        Step::Scale(replicas) => world.scale(replicas),
        Step::Start(start) => world.start(start),
        Step::Strategy(number) => {
            world.edit(&format!("strategy {number}"), |spec| spec["updateStrategy"] = strategy(number));
        }
        Step::Retention(deleted, scaled) => world.edit(&format!("retention {deleted} {scaled}"), |spec| {
            spec["persistentVolumeClaimRetentionPolicy"] =
                json!({"whenDeleted": policy(deleted), "whenScaled": policy(scaled)});
        }),
        Step::Unready(n) => {
            if let Some(name) =
                nth(world, n, |w| &w.pods).filter(|name| world.pods[name]["status"]["phase"] == "Running")
            {
                world.set_ready(&name, false);
            }
        }
        Step::Fail(n) => {
            if let Some(name) = nth(world, n, |w| &w.pods) {
                world.say("kubelet", &format!("{name} fails"));
                world.pods.get_mut(&name).unwrap()["status"] = json!({"phase": "Failed"});
            }
        }
        Step::DeletePod(n) => {
            if let Some(name) = nth(world, n, |w| &w.pods) {
                world.delete_pod(&name);
            }
        }
        Step::DeleteClaim(n) => {
            if let Some(name) = nth(world, n, |w| &w.claims) {
                world.say("user", &format!("deletes the claim {name}"));
                world.delete_claim(&name);
            }
        }
        Step::Bad(image, how) => {
            let tag = format!("v{image}");
            for tags in [&mut world.missing_images, &mut world.crashing, &mut world.failing] {
                tags.remove(&tag);
            }
            match how {
                0 => _ = world.missing_images.insert(tag),
                1 => _ = world.crashing.insert(tag),
                2 => _ = world.failing.insert(tag),
                _ => {}
            }
        }
        Step::Crash(effects) => world.crashes.push(effects),
    }
}

fn start_of(number: u8, is_parallel: bool, min_ready: i32) -> Value {
    let mut start = with_claims(stateful_set(3), "Retain", "Retain");
    start["spec"]["updateStrategy"] = strategy(number);
    start["spec"]["minReadySeconds"] = min_ready.into();
    if is_parallel { parallel(start) } else { start }
}

/// The pods that a person sees in the end, without UIDs and times.
fn end(world: &World) -> String {
    format!("{}; revisions {}", world.state(), world.revisions.len())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    /// The world checks SS1 to SS8, SS10, SS12, SS14 to SS17, SS19 to SS21, SS24 and SS25 at each write.
    #[test]
    fn every_write_is_allowed_and_in_the_end_all_pods_are_new(
        first in 0..6u8, is_parallel: bool, min_ready in 0..3i32, steps in prop::collection::vec(step(), 0..40),
    ) {
        let mut world = World::new("", start_of(first, is_parallel, min_ready));
        for step in steps {
            take(&mut world, step);
        }
        world.missing_images.clear();
        world.crashing.clear();
        world.failing.clear();
        world.set_image("last");
        world.edit("RollingUpdate", |spec| spec["updateStrategy"] = strategy(0));
        let broken: Vec<String> = world.pods.iter().filter(|(_, pod)| pod["status"]["phase"] == "Running").map(|(name, _)| name.clone()).collect();
        broken.iter().for_each(|name| world.set_ready(name, true));
        // Two broken pods out of range halt a scale-down until somebody deletes the higher one (SS3).
        let ended: Vec<String> = world.pods.iter().filter(|(_, pod)| pod["status"]["phase"] == "Failed").map(|(name, _)| name.clone()).collect();
        ended.iter().for_each(|name| world.delete_pod(name));
        world.pass(7200);
        world.settle();
        world.check_backoff();
        let plan = world.plan();
        prop_assert!(plan.writes.is_empty(), "{:?}\n{}", plan, world.transcript);
        let spec = &world.set["spec"];
        let (first, count) = (spec["ordinals"]["start"].as_i64().unwrap_or(0), spec["replicas"].as_i64().unwrap());
        let mut wanted: Vec<String> = (first..first + count).map(|ordinal| format!("db-{ordinal}")).collect();
        wanted.sort();
        prop_assert_eq!(world.pods.keys().cloned().collect::<Vec<_>>(), wanted, "{}", world.transcript);
        for (name, pod) in &world.pods {
            let image = pod["spec"]["containers"][0]["image"].as_str();
            prop_assert_eq!(image, Some("store:last"), "{}\n{}", name, world.transcript);
        }
        let status = &world.set["status"];
        prop_assert_eq!(&status["availableReplicas"], &json!(count));
        prop_assert_eq!(&status["currentRevision"], &status["updateRevision"]);
    }

    #[test]
    fn a_crash_after_any_part_of_a_plan_changes_nothing_about_the_end(
        number in 0..5u8, is_parallel: bool, deletes: bool, from in 0..5i64, to in 0..5i64,
        crashes in prop::collection::vec(0..6usize, 1..12),
    ) {
        let play = |crashes: Vec<usize>| {
            let mut start = start_of(number, is_parallel, 0);
            start["spec"]["replicas"] = from.into();
            if deletes {
                start = with_claims(start, "Delete", "Delete");
            }
            let mut world = World::new("", start);
            world.settle();
            world.crashes = crashes;
            world.set_image("v2");
            world.scale(to);
            world.settle();
            world
        };
        let (straight, crashed) = (play(Vec::new()), play(crashes));
        prop_assert_eq!(end(&straight), end(&crashed), "{}", crashed.transcript);
    }
}

#[test]
fn a_plan_for_the_largest_numbers_takes_no_time_and_no_memory() {
    let most = i64::from(i32::MAX);
    for (start, partition) in [(0, 0), (most, most), (most - 1, 0), (0, most), (5, most)] {
        for set in [stateful_set(most), parallel(stateful_set(most))] {
            let mut set = max_unavailable(with_claims(set, "Delete", "Delete"), "100%");
            set["spec"]["ordinals"] = json!({"start": start});
            set["spec"]["updateStrategy"]["rollingUpdate"]["partition"] = partition.into();
            let is_parallel = set["spec"]["podManagementPolicy"] == "Parallel";
            let mut world = World::new("", set);
            // All at once, one round has as many pods as a sync may create; that is enough to look at.
            for image in if is_parallel { &["v1"][..] } else { &["v1", "v2"] } {
                world.set_image(image);
                world.rounds(usize::from(!is_parallel) * 3);
                let plan = world.plan();
                super::writes::check_plan(&plan);
                let created = plan.writes.iter().map(|write| match write {
                    Write::CreatePods(pods) => pods.len(),
                    _ => 0,
                });
                assert!(created.sum::<usize>() <= 500);
            }
        }
    }
}
