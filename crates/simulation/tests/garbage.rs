//! The collector of the daemon beside a sweep of the store. `WINDLASS_SEEDS` is for `--test games`.

use windlass_simulation::garbage::second_opinion::disagree;

#[test]
fn a_sweep_of_the_store_ends_with_the_same_objects() {
    let differ = |seed| Some(format!("seed {seed}: {}", disagree(seed).unwrap()?));
    let differences: Vec<String> = (0..12).filter_map(differ).collect();
    assert!(differences.is_empty(), "{}", differences.join("\n\n"));
}
