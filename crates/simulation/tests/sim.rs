//! Saved failures of Deployments, and all histories of one pod. `--test games` has the seeds.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use windlass_simulation::deployments::Deployments;
use windlass_simulation::deployments::exhaustive::{Bounds, visit, workloads};
use windlass_simulation::deployments::run::run;
use windlass_simulation::deployments::scenario::Scenario;
use windlass_simulation::engine::replay::Replay;
use windlass_simulation::engine::report::Report;
use windlass_simulation::engine::search::on_threads;

/// The report of a failure.
fn report(scenario: &Scenario) -> String {
    let report = Report {
        version: env!("CARGO_PKG_VERSION").into(),
        directory: PathBuf::new(),
        verbose: false,
        patience: std::time::Duration::ZERO,
    };
    let mut out = Vec::new();
    report.history::<Deployments>(scenario, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn files() -> Vec<(PathBuf, Replay<Scenario>)> {
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
    let (files, broken) = (Mutex::new(files().into_iter()), Mutex::new(Vec::new()));
    let next = || files.lock().unwrap().next();
    let play = || -> std::io::Result<()> {
        while let Some((file, replay)) = next() {
            if run(&replay.scenario, false)?.failure.is_some() {
                broken.lock().unwrap().push(format!("{}\n{}", file.display(), report(&replay.scenario)));
            }
        }
        Ok(())
    };
    on_threads(2, play).unwrap();
    let broken = broken.into_inner().unwrap();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// A file that passes with any controllers is no test. Not every fixed mistake can be planted; `.ci/mistakes` plays those
/// whose mistake is a patch.
#[test]
#[cfg(feature = "planted-bugs")]
fn saved_failures_fail_again_with_their_mistake() {
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
    let workload = workloads(1).swap_remove(0);
    let visited = visit(&workload, Bounds { both: false, threads: 2, keep_going: false }).unwrap();
    assert!(visited.writes > 10 && visited.histories > 80, "{visited:?}");
    let failed: Vec<String> = visited.failures.iter().map(|(scenario, _)| report(scenario)).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
