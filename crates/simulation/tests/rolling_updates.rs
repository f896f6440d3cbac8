//! No crash of the daemon changes the end of a rolling update of ReplicationControllers.

use windlass_simulation::engine::game::Game as _;
use windlass_simulation::engine::outcome::Outcome;
use windlass_simulation::rolling_updates::RollingUpdates;
use windlass_simulation::rolling_updates::scenario::{Cleanup, Scenario};

/// The daemon is killed with each of its writes, before and after it is carried out: by default with each fifth of them,
/// another one in each test, and with `WINDLASS_CRASHES=all` with all of them.
fn check_crashes(first: u32, cleanup: Cleanup, takes_back: bool) {
    let step = if std::env::var("WINDLASS_CRASHES").as_deref() == Ok("all") { 1 } else { 5 };
    let is_killed =
        |outcome: &Outcome| outcome.log.iter().any(|entry| entry.to_string().ends_with("is killed"));
    for nth in (first..).step_by(step) {
        let [before, after] = [false, true].map(|is_carried_out| {
            let scenario = Scenario::with_crash(cleanup, takes_back, nth, is_carried_out);
            RollingUpdates::run(&scenario, true).unwrap()
        });
        if !is_killed(&after) {
            assert!(nth > 20, "there are only {nth} writes");
            return;
        }
        for outcome in [before, after] {
            let log: Vec<String> = outcome.log.iter().map(ToString::to_string).collect();
            assert!(
                outcome.failure.is_none(),
                "{}\n{cleanup:?} {takes_back} {nth}: {outcome}",
                log.join("\n")
            );
        }
    }
}

#[test]
fn a_crash_changes_no_end_where_old_is_deleted() {
    check_crashes(1, Cleanup::Delete, false);
}

#[test]
fn a_crash_changes_no_end_where_old_takes_the_pods_over() {
    check_crashes(2, Cleanup::KeepName, false);
}

#[test]
fn a_crash_changes_no_end_where_old_stays() {
    check_crashes(1, Cleanup::Preserve, false);
}

#[test]
fn a_crash_changes_no_end_of_a_rollback() {
    check_crashes(1, Cleanup::Delete, true);
    check_crashes(2, Cleanup::KeepName, true);
}
