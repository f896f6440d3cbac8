//! Code that the tests of the small simulations share. `WINDLASS_SEEDS=1000..2000` makes them try other seeds, and
//! `WINDLASS_PLANTED` the mistakes with these words alone.

use std::ops::Range;

use windlass_simulation::daemon_sets::Outcome;

/// Runs the history of a seed, with a bug planted or none.
type Run = fn(u64, &'static str) -> std::io::Result<Outcome>;

/// The seeds that are tried.
pub fn seeds(default: Range<u64>) -> Range<u64> {
    let Ok(given) = std::env::var("WINDLASS_SEEDS") else { return default };
    let (from, to) = given.split_once("..").unwrap();
    from.parse().unwrap()..to.parse().unwrap()
}

/// Fails with the failures of all histories, and with the log of the first that failed.
pub fn check(histories: impl Iterator<Item = (String, Outcome)>) {
    let mut broken = Vec::new();
    let mut first = None;
    for (name, outcome) in histories {
        if let Some(failure) = outcome.failure {
            broken.push(format!("{name}: {failure}"));
            first.get_or_insert(outcome.log);
        }
    }
    let log = first.unwrap_or_default().join("\n");
    assert!(broken.is_empty(), "{log}\n{}", broken.join("\n"));
}

/// The same for the histories of seeds.
pub fn check_seeds(seeds: impl IntoIterator<Item = u64>, run: Run) {
    check(seeds.into_iter().map(|seed| (format!("seed {seed}"), run(seed, "").unwrap())));
}

/// The same seed twice is the same history.
pub fn check_repetition(run: Run) {
    for seed in [1, 7] {
        assert_eq!(run(seed, "").unwrap().log, run(seed, "").unwrap().log, "seed {seed}");
    }
}

/// Each mistake is found within so many seeds, none of which breaks without it. `found_with` names seeds that find what few
/// do: they are tried first, since a history takes long.
#[cfg(feature = "planted-bugs")]
#[allow(clippy::print_stdout)] // It says which seed finds each.
pub fn check_planted(bugs: &[&'static str], default: Range<u64>, found_with: &[(&str, u64)], run: Run) {
    let words = std::env::var("WINDLASS_PLANTED").unwrap_or_default();
    let mut missed = Vec::new();
    for bug in bugs.iter().copied().filter(|bug| bug.contains(&*words)) {
        let first = found_with.iter().filter(|(found, _)| *found == bug).map(|(_, seed)| *seed);
        let find = first
            .chain(seeds(default.clone()))
            .find_map(|seed| Some((seed, run(seed, bug).unwrap().failure?.invariant)));
        match find {
            Some((seed, invariant)) => println!("seed {seed:<4} {invariant:<5} {bug}"),
            None => missed.push(bug),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:#?}");
}
