//! Random histories: nodes and pods change while templates roll out, and every write is checked at once. In the
//! end the cluster must settle with one new pod on each node that runs one.

use proptest::prelude::*;
use serde_json::{Value, json};
use windlass::plan::daemonset::Verdict;

use super::world::{World, daemon_set, surge, unavailable};

#[derive(Clone, Debug)]
enum Step {
    Rounds(usize),
    Pass(i64),
    Image(u8),
    Strategy(u8),
    AddNode(usize),
    RemoveNode(usize),
    Taint(usize, u8),
    Label(usize, bool),
    Selector(bool),
    Unready(usize),
    End(usize, bool),
    DeletePod(usize),
    FailingImage(u8, bool),
}

const NODES: usize = 7;

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1..6usize).prop_map(Step::Rounds),
        2 => (1..40i64).prop_map(Step::Pass),
        3 => (1..4u8).prop_map(Step::Image),
        1 => (0..6u8).prop_map(Step::Strategy),
        2 => (0..NODES).prop_map(Step::AddNode),
        1 => (0..NODES).prop_map(Step::RemoveNode),
        2 => (0..NODES, 0..4u8).prop_map(|(node, taint)| Step::Taint(node, taint)),
        1 => (0..NODES, any::<bool>()).prop_map(|(node, has)| Step::Label(node, has)),
        1 => any::<bool>().prop_map(Step::Selector),
        2 => (0..20usize).prop_map(Step::Unready),
        2 => (0..20usize, any::<bool>()).prop_map(|(pod, well)| Step::End(pod, well)),
        1 => (0..20usize).prop_map(Step::DeletePod),
        1 => (1..4u8, any::<bool>()).prop_map(|(image, fails)| Step::FailingImage(image, fails)),
    ]
}

fn strategy(number: u8) -> Value {
    match number {
        0 => unavailable(1),
        1 => unavailable(2),
        2 => unavailable("30%"),
        3 => surge(1),
        4 => surge("40%"),
        _ => json!({"type": "OnDelete"}),
    }
}

fn nth_pod(world: &mut World, nth: usize) -> Option<&mut Value> {
    let count = world.pods.len().max(1);
    world.pods.values_mut().nth(nth % count)
}

fn take(world: &mut World, step: Step) {
    let now = world.now.to_string();
    let name = |node: usize| format!("n{node}");
    match step {
        Step::Rounds(rounds) => world.rounds(rounds),
        Step::Pass(seconds) => world.pass(seconds),
        Step::Image(image) => world.set_image(&format!("v{image}")),
        Step::Strategy(number) => world.edit("strategy", |spec| spec["updateStrategy"] = strategy(number)),
        Step::AddNode(node) if !world.nodes.contains_key(&name(node)) => world.add_node(&name(node)),
        Step::AddNode(_) => {}
        Step::RemoveNode(node) => world.remove_node(&name(node)),
        Step::Taint(node, taint) if world.nodes.contains_key(&name(node)) => {
            let taints: &[&str] = match taint {
                0 => &["a:NoSchedule"],
                1 => &["a:NoExecute"],
                _ => &[],
            };
            world.taint(&name(node), taints);
        }
        Step::Label(node, has) if world.nodes.contains_key(&name(node)) => {
            world.label(&name(node), "disk", if has { "ssd" } else { "hdd" });
        }
        Step::Taint(..) | Step::Label(..) => {}
        Step::Selector(on) => world.edit("nodeSelector", |spec| {
            spec["template"]["spec"]["nodeSelector"] = if on { json!({"disk": "ssd"}) } else { json!({}) };
        }),
        Step::Unready(nth) => {
            if let Some(pod) = nth_pod(world, nth).filter(|pod| pod["status"]["phase"] == "Running") {
                pod["status"]["conditions"] =
                    json!([{"type": "Ready", "status": "False", "lastTransitionTime": now}]);
            }
        }
        Step::End(nth, well) => {
            if let Some(pod) = nth_pod(world, nth).filter(|pod| !pod["spec"]["nodeName"].is_null()) {
                pod["status"] = json!({"phase": if well { "Succeeded" } else { "Failed" }});
            }
        }
        Step::DeletePod(nth) => {
            if let Some(pod) = nth_pod(world, nth) {
                pod["metadata"]["deletionTimestamp"] = now.into();
            }
        }
        Step::FailingImage(image, true) => {
            world.failing.insert(format!("v{image}"));
        }
        Step::FailingImage(image, false) => {
            world.failing.remove(&format!("v{image}"));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// DS1 to DS7, DS10 to DS15 are checked by the world at each write; DS20 and DS21 at the end.
    #[test]
    fn every_write_is_allowed_and_in_the_end_every_node_has_its_pod(
        first in 0..6u8, min_ready in 0..3i32, steps in prop::collection::vec(step(), 0..40),
    ) {
        let mut start = daemon_set(strategy(first));
        start["spec"]["minReadySeconds"] = min_ready.into();
        let mut world = World::new("", start, 4);
        for step in steps {
            take(&mut world, step);
        }
        world.failing.clear();
        world.collect_pods();
        // Pods that were made unready by hand do not become ready by themselves; those of the last template are.
        world.set_image("last");
        world.edit("RollingUpdate", |spec| {
            if spec["updateStrategy"]["type"] == "OnDelete" {
                spec["updateStrategy"] = unavailable(1);
            }
        });
        world.pass(7200);
        world.settle();
        world.check_backoff();
        let plan = world.plan();
        prop_assert!(plan.writes.is_empty(), "{:?}\n{}", plan, world.transcript);
        for (node, verdict) in world.verdicts().iter() {
            let expected = match verdict {
                Verdict::Run => vec!["last"],
                Verdict::Continue => vec!["last", "-"],
                Verdict::Leave => vec!["-"],
            };
            let on = world.on(node);
            let is_kept = *verdict == Verdict::Continue && !on.contains('+');
            prop_assert!(is_kept || expected.contains(&&*on), "{}: {}\n{}", node, on, world.transcript);
        }
    }
}
