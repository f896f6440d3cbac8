//! The garbage collector in a hostile cluster: no seed breaks an invariant, and planted mistakes are found.
//!
//! `WINDLASS_SEEDS=1000..2000 cargo test --test garbage` tries others, and `WINDLASS_PLANTED` the mistakes with these words alone.

mod histories;

use windlass_simulation::garbage::run;
use windlass_simulation::garbage::second_opinion::disagree;

#[cfg(feature = "planted-bugs")]
use histories::check_planted;
use histories::{check_repetition, check_seeds, seeds};

#[test]
fn every_seed_collects_what_has_lost_its_owners_and_nothing_else() {
    check_seeds(seeds(0..60), run);
}

/// Seeds that have failed once. 10: a cluster-scoped object lost its reference to an owner that was kept after an orphaning
/// deletion. 283: a reference was corrected while its owner was asked for, and the answer counted for the new one. 278 and 296: a kind that is
/// not watched, and one that a disputed UID is of, was served again, and nothing that refers to it was looked at. 285 and 355
/// are cases that the judges took for breaches, as is 1055. 172 and 1076: a restored etcd undid a deletion, and nobody looked at
/// the object again. 201: a reference was corrected after its owner had been asked for, and was removed.
#[test]
fn seeds_that_have_failed_pass() {
    check_seeds([10, 172, 201, 278, 283, 285, 296, 355, 1055, 1076], run);
}

#[test]
fn the_same_seed_twice_is_the_same_history() {
    check_repetition(run);
}

#[test]
fn a_sweep_of_the_store_ends_with_the_same_objects() {
    let differ = |seed| Some(format!("seed {seed}: {}", disagree(seed).unwrap()?));
    let differences: Vec<String> = seeds(0..12).filter_map(differ).collect();
    assert!(differences.is_empty(), "{}", differences.join("\n\n"));
}

#[test]
#[cfg(feature = "planted-bugs")]
fn planted_mistakes_are_found() {
    check_planted(windlass::mutations::GARBAGE_BUGS, 0..100, &[], run);
}
