//! The namespace controller in a hostile cluster: no seed breaks an invariant, and planted mistakes are found.
//!
//! `WINDLASS_SEEDS=1000..2000 cargo test --test namespaces` tries others.

mod histories;

use windlass_simulation::namespaces::run;

#[cfg(feature = "planted-bugs")]
use histories::check_planted;
use histories::{check_repetition, check_seeds, seeds};

#[test]
fn every_seed_ends_namespaces_that_are_empty_and_no_others() {
    check_seeds(seeds(0..60), run);
}

#[test]
fn the_same_seed_twice_is_the_same_history() {
    check_repetition(run);
}

#[test]
#[cfg(feature = "planted-bugs")]
fn planted_mistakes_are_found() {
    check_planted(windlass::mutations::NAMESPACE_BUGS, 0..60, &[], run);
}
