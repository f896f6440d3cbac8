//! The simulation: first that it is reproducible, then that a few seeds and the saved failures pass.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use windlass_simulation::exhaustive::{Bounds, visit, workloads};
use windlass_simulation::replay::Replay;
use windlass_simulation::report::Report;
use windlass_simulation::run::run;
use windlass_simulation::scenario::Scenario;

/// The first difference between two histories of the same seed. Every test checks it first, since a simulation that
/// depends on chance shows nothing.
static DIFFERENCE: LazyLock<Option<String>> = LazyLock::new(|| {
    let mut writes = 0;
    let difference = (1..4).find_map(|seed| {
        let scenario = Scenario::new(seed);
        let (first, second) = (run(&scenario, true).unwrap(), run(&scenario, true).unwrap());
        writes += first.writes;
        let lines =
            |log: &[windlass_simulation::log::Entry]| log.iter().map(ToString::to_string).collect::<Vec<_>>();
        let (one, other) = (lines(&first.log), lines(&second.log));
        let differs = one.iter().zip(&other).find(|(one, other)| one != other);
        let same = one.len() == other.len() && first.digest == second.digest;
        (differs.is_some() || !same).then(|| format!("seed {seed}: {differs:?}"))
    });
    // One of them may have a Deployment that is deleted before anything is done for it.
    assert!(writes > 30, "{writes} writes");
    difference
});

#[track_caller]
fn first_seed_is_reproducible() {
    assert_eq!(*DIFFERENCE, None, "the same seed has two histories");
}

/// The report of a failure.
fn report(scenario: &Scenario) -> String {
    let report = Report {
        version: env!("CARGO_PKG_VERSION").into(),
        directory: PathBuf::new(),
        verbose: false,
        patience: std::time::Duration::ZERO,
    };
    let mut out = Vec::new();
    report.history(scenario, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn the_same_seed_twice_is_the_same_history() {
    first_seed_is_reproducible();
}

#[test]
fn a_history_has_the_same_fingerprint_with_and_without_its_log() {
    first_seed_is_reproducible();
    let scenario = Scenario::new(3);
    assert_eq!(run(&scenario, true).unwrap().digest, run(&scenario, false).unwrap().digest);
}

#[test]
fn no_seed_breaks_an_invariant() {
    first_seed_is_reproducible();
    for seed in 1..=12 {
        let scenario = Scenario::new(seed);
        assert!(run(&scenario, false).unwrap().failure.is_none(), "{}", report(&scenario));
    }
}

fn files() -> Vec<(PathBuf, Replay)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sim");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    let read = |file: PathBuf| (file.clone(), Replay::read(&file).unwrap());
    files.into_iter().map(read).collect()
}

/// Each file in `tests/sim/` was a failure once and is named after what holds since.
#[test]
fn saved_failures_pass() {
    first_seed_is_reproducible();
    let mut broken = Vec::new();
    for (file, replay) in files() {
        if run(&replay.scenario, false).unwrap().failure.is_some() {
            broken.push(format!("{}\n{}", file.display(), report(&replay.scenario)));
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// A file that passes with any controllers is no test. Not every fixed mistake can be planted; `.ci/mistakes` plays those
/// whose mistake is a patch.
#[test]
#[cfg(feature = "planted-bugs")]
fn saved_failures_fail_again_with_their_mistake() {
    first_seed_is_reproducible();
    let mut planted = 0;
    for (file, replay) in files() {
        let Some(&bug) = windlass::mutations::BUGS.iter().find(|bug| **bug == replay.mistake) else {
            continue;
        };
        let outcome = run(&Scenario { bug, ..replay.scenario }, false).unwrap();
        let invariant = outcome.failure.map(|failure| failure.invariant.to_owned());
        assert_eq!(invariant, Some(replay.invariant), "{}", file.display());
        planted += 1;
    }
    assert!(planted > 0);
}

/// `windlass-sim --exhaustive` visits more replicas and strategies, and both in one history.
#[test]
fn one_pod_is_replaced_whichever_write_a_crash_or_a_stale_window_begins_at() {
    first_seed_is_reproducible();
    let workload = workloads(1).swap_remove(0);
    let visited = visit(&workload, Bounds { both: false, threads: 2, keep_going: false }).unwrap();
    assert!(visited.writes > 10 && visited.histories > 80, "{visited:?}");
    let failed: Vec<String> = visited.failures.iter().map(|(scenario, _)| report(scenario)).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
