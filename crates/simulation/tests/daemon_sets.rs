//! DaemonSets in a hostile cluster: no seed breaks an invariant, and planted mistakes are found.
//!
//! `WINDLASS_SEEDS=1000..2000 cargo test --test daemon_sets` tries others.

mod histories;

use windlass_simulation::daemon_sets::run;

#[cfg(feature = "planted-bugs")]
use histories::check_planted;
use histories::{check_repetition, check_seeds, seeds};

#[test]
fn every_seed_gives_each_node_its_pods() {
    check_seeds(seeds(0..40), run);
}

#[test]
fn the_same_seed_twice_is_the_same_history() {
    check_repetition(run);
}

#[test]
#[cfg(feature = "planted-bugs")]
fn planted_mistakes_are_found() {
    check_planted(windlass::mutations::DAEMON_SET_BUGS, 0..100, &[], run);
}
