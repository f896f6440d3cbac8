//! Every history within small bounds, instead of random ones: a Deployment is created and given a new image, and a
//! daemon is killed at most once and has at most one stale watch.
//!
//! The daemon's writes are numbered, and the crash happens at each of them, before it is carried out or after; the
//! stale window of each resource begins before each of them, and ends soon, or only when a killed daemon is back. A
//! crash or a window changes the writes that follow. So a second fault is placed among the writes of the history with
//! the first one, and both orders are visited:
//!
//! ```text
//! writes without faults   1 2 3 4 5
//! crash at the 2nd        1 X 2' 3' 4' 5' 6'    the window before each of 2' to 6', and before the 2nd itself
//! window before the 2nd   1 [ 2 3" 4" 5" 6"     the crash at each of 3" to 6"
//! ```
//!
//! The new image is applied either in the middle of the first rollout or after it; it is the only act that is placed
//! by time.

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::Deployments;
use super::crash_points::CrashPoint;
use super::run::run;
use super::scenario::{Act, Scenario};
use crate::engine::outcome::Outcome;
use crate::engine::replay::StaticName;
use crate::engine::report::Report;
use crate::engine::search::{on_threads, same_again};

/// The resources whose watch can be stale.
const RESOURCES: [StaticName; 3] = ["pods", "replicasets", "deployments"];

/// The lengths of a window in milliseconds: within a rollout, and beyond the restart of a killed daemon, which takes
/// up to 5 s.
const WINDOWS: [u32; 2] = [300, 8000];

/// When the new image is applied: while the first pods start, and when all of them are ready.
const CHANGES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(10)];

/// The limits of a visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Whether a crash and a window occur in the same history.
    pub both: bool,
    /// How many histories run at a time.
    pub threads: usize,
    /// Whether to continue after a failure.
    pub keep_going: bool,
}

/// The result of a visit.
#[derive(Debug, Default)]
pub struct Visited {
    /// Histories.
    pub histories: usize,
    /// The daemon's writes in the history without crash and window.
    pub writes: u64,
    /// Virtual time.
    pub lasted: Duration,
    /// The failures.
    pub failures: Vec<(Scenario, Outcome)>,
}

/// The histories without crash and window.
pub fn workloads(replicas: u32) -> Vec<Scenario> {
    let strategies = [(1, 0, false), (0, 1, false), (1, 1, false), (1, 0, true)];
    let mut all = Vec::new();
    for replicas in 1..=replicas {
        for (surge, unavailable, recreate) in strategies {
            for change in CHANGES {
                let create = Act::Create { name: "web", replicas, surge, unavailable, recreate };
                all.push(Scenario {
                    seed: 0,
                    daemons: 1,
                    election: false,
                    streaming_lists: true,
                    readiness: Duration::from_millis(200),
                    shutdown: Duration::from_millis(100),
                    calm: false,
                    quiet: Duration::from_secs(180),
                    bug: "",
                    clocks: Vec::new(),
                    faults: Vec::new(),
                    points: Vec::new(),
                    acts: vec![(Duration::ZERO, create), (change, Act::Image { name: "web", tag: 1 })],
                    repair: false,
                });
            }
        }
    }
    all
}

fn with(scenario: &Scenario, point: CrashPoint) -> Scenario {
    let mut scenario = scenario.clone();
    scenario.points.push(point);
    scenario
}

/// A crash at each of these writes.
fn crashes(writes: impl Iterator<Item = u32>) -> impl Iterator<Item = CrashPoint> {
    writes.flat_map(|write| {
        [false, true].map(|carried_out| CrashPoint::Crash { daemon: 0, write, carried_out })
    })
}

/// A window of each resource and length before each of these writes.
fn windows(writes: impl Iterator<Item = u32>) -> impl Iterator<Item = CrashPoint> {
    writes.flat_map(|write| {
        RESOURCES.into_iter().flat_map(move |resource| {
            WINDOWS.map(|milliseconds| CrashPoint::Lag { daemon: 0, resource, write, milliseconds })
        })
    })
}

/// The crash points that may follow `first` in a history in which the daemon sends this many writes.
fn later(first: CrashPoint, writes: u32) -> Vec<CrashPoint> {
    match first {
        // A window before the very write that kills the daemon is a window before the crash, and belongs here.
        CrashPoint::Crash { write, .. } => windows(write..=writes).collect(),
        CrashPoint::Lag { write, .. } => crashes(write + 1..=writes).collect(),
    }
}

/// Visits every history of a workload.
///
/// # Errors
/// When no runtime can be started.
pub fn visit(workload: &Scenario, bounds: Bounds) -> std::io::Result<Visited> {
    let visited = Mutex::new(Visited::default());
    let stop = AtomicBool::new(false);
    // The writes of the daemon in a history. A write that never arrives is numbered, too.
    let one = |scenario: &Scenario| -> std::io::Result<u32> {
        let outcome = run(scenario, false)?;
        let mut visited = visited.lock();
        visited.histories += 1;
        visited.lasted += outcome.lasted;
        if scenario.points.is_empty() {
            visited.writes = outcome.writes;
        }
        let lost = matches!(scenario.points.first(), Some(CrashPoint::Crash { carried_out: false, .. }));
        let writes = outcome.writes + u64::from(lost);
        if outcome.failure.is_some() {
            visited.failures.push((scenario.clone(), outcome));
            stop.store(!bounds.keep_going, Ordering::Relaxed);
        }
        Ok(u32::try_from(writes).unwrap_or(u32::MAX))
    };
    let writes = one(workload)?;
    let firsts: Vec<CrashPoint> = crashes(1..=writes).chain(windows(1..=writes)).collect();
    let next = AtomicUsize::new(0);
    let worker = || -> std::io::Result<()> {
        while let Some(first) = firsts.get(next.fetch_add(1, Ordering::Relaxed)) {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let single = with(workload, *first);
            let writes = one(&single)?;
            for second in if bounds.both { later(*first, writes) } else { Vec::new() } {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                one(&with(&single, second))?;
            }
        }
        Ok(())
    };
    on_threads(bounds.threads, worker)?;
    Ok(visited.into_inner())
}

/// Visits the histories of all workloads of up to so many replicas, prints what they are, and returns whether all passed.
/// `at_length` shrinks and prints each failure, not only the first.
///
/// # Errors
/// When no runtime can be started, or the output cannot be written.
pub fn print(
    replicas: u32,
    bounds: Bounds,
    at_length: bool,
    report: &Report,
    elapsed: &dyn Fn() -> Duration,
    out: &mut dyn Write,
) -> std::io::Result<bool> {
    let begin = elapsed();
    let (mut histories, mut failures) = (0, 0);
    writeln!(out, "windlass {}", report.version)?;
    let workloads = workloads(replicas);
    workloads
        .iter()
        .take(1)
        .try_for_each(|first| same_again(first.seed, || Ok(run(first, false)?.digest)))?;
    for workload in workloads {
        let since = elapsed();
        let visited = visit(&workload, bounds)?;
        let (count, failed) = (visited.histories, visited.failures.len());
        let real = elapsed().saturating_sub(since).as_secs_f64().max(0.001);
        let what: Vec<String> = workload.acts.iter().map(|(at, act)| format!("{at:?} {act:?}")).collect();
        let hours = visited.lasted.as_secs_f64() / 3600.0;
        writeln!(out, "{}", what.join(", "))?;
        writeln!(
            out,
            "  {} writes, {count} histories, {hours:.0} simulated hours in {real:.1} s, {failed} failures",
            visited.writes
        )?;
        out.flush()?;
        for (n, (scenario, outcome)) in visited.failures.iter().enumerate() {
            if at_length || n == 0 && failures == 0 {
                report.failure::<Deployments>(scenario, elapsed, out)?;
            } else {
                writeln!(out, "  {:?}: {outcome}", scenario.points)?;
            }
        }
        (histories, failures) = (histories + count, failures + failed);
        if failures > 0 && !bounds.keep_going {
            break;
        }
    }
    let real = elapsed().saturating_sub(begin).as_secs_f64().max(0.001);
    let rest = if failures == 0 || bounds.keep_going { "" } else { "; stopped at the failure" };
    let rate = histories as f64 * 60.0 / real;
    writeln!(out, "{histories} histories in {real:.1} s, {rate:.0} a minute, {failures} failures{rest}")?;
    Ok(failures == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_size_strategy_and_time_of_the_change_is_a_workload() {
        let all = workloads(3);
        assert_eq!(all.len(), 3 * 4 * 2);
        assert!(all.iter().enumerate().all(|(n, one)| !all[..n].contains(one)));
        assert!(all.iter().all(|scenario| crate::engine::replay::check(scenario).is_ok()));
    }

    #[test]
    fn every_order_of_a_crash_and_a_window_is_visited_once() {
        // If the writes were the same in all histories, the pairs would be all pairs.
        let writes = 4;
        let mut pairs = Vec::new();
        for first in crashes(1..=writes).chain(windows(1..=writes)) {
            for second in later(first, writes) {
                let mut pair = [first, second];
                pair.sort_by_key(|point| matches!(point, CrashPoint::Lag { .. }));
                assert!(!pairs.contains(&pair), "{pair:?}");
                pairs.push(pair);
            }
        }
        assert_eq!(pairs.len(), (2 * 4) * (3 * 2 * 4));
    }
}
