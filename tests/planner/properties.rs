//! Properties of every history: safety after each write, and the end state once edits stop.
//!
//! The histories are the same in every run. `HISTORY_SEED=7 cargo test --test planner properties` plays others;
//! a failure names its seed, and the shortest history that still fails.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use windlass_planner_testkit::history::steps::{Step, step};
use windlass_planner_testkit::history::{History, Order};

thread_local! {
    /// Whether this thread's panics are kept quiet: those of the cases on the way to the shortest one
    /// would bury it.
    static SILENT: Cell<bool> = const { Cell::new(false) };
}

fn silence_cases() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !SILENT.get() {
                usual(panic);
            }
        }));
    });
}

fn order() -> impl Strategy<Value = Order> {
    prop_oneof![Just(Order::Fixed), any::<u64>().prop_map(Order::Seeded)]
}

fn seed() -> u64 {
    std::env::var("HISTORY_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0)
}

/// Plays histories until one fails, and then shorter ones until none of those does.
fn check(cases: u32, foreign_changes: bool, play: impl Fn(&mut History)) {
    silence_cases();
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed().to_le_bytes());
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 20_000, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let histories = (order(), 0..12i32, proptest::collection::vec(step(foreign_changes), 0..40));
    let result = runner.run(&histories, |(order, replicas, steps)| {
        let mut history = History::new(order, replicas);
        SILENT.set(true);
        let played = catch_unwind(AssertUnwindSafe(|| {
            steps.iter().for_each(|step| history.act(step));
            play(&mut history);
        }));
        SILENT.set(false);
        played.map_err(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string()));
            let lines = history.world.lines.join("\n");
            TestCaseError::fail(format!("{}\n{lines}\n", text.unwrap_or_default()))
        })
    });
    if let Err(error) = result {
        panic!("HISTORY_SEED={}: {error}", seed());
    }
}

/// The last edits: nothing stands in the way of the end state any more.
fn make_peace(history: &mut History) {
    history.act(&Step::Pause(false));
    history.act(&Step::Image(1));
}

#[test]
fn every_history_ends_with_one_complete_replica_set_and_an_empty_plan() {
    check(400, false, |history| {
        make_peace(history);
        history.settle();
        history.world.check_end();
        let before = history.world.picture();
        for _ in 0..3 {
            assert!(
                !history.world.sync_deployment(usize::MAX, true).wrote,
                "L4: a settled world is written to"
            );
        }
        assert_eq!(history.world.picture(), before);
    });
}

#[test]
fn replica_sets_and_pods_that_lose_their_owner_or_label_do_not_block_the_others() {
    check(300, true, |history| {
        make_peace(history);
        history.settle();
        history.world.check_end();
    });
}

#[test]
fn a_plan_interrupted_after_any_write_leads_to_the_same_end() {
    check(150, false, |history| {
        make_peace(history);
        let mut whole = history.clone();
        whole.settle();
        for writes in 0..history.world.planned() {
            let mut cut = history.clone();
            cut.world.sync_deployment(writes, false);
            cut.settle();
            assert_eq!(cut.world.picture(), whole.world.picture(), "after {writes} writes");
        }
    });
}
