//! Whether the planted bugs are found, and how long that takes.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::cli::Args;
use super::run::run;
use super::scenario::Scenario;
use super::search::on_threads;
use crate::planted::BUGS;

/// How long a settled cluster is watched.
const QUIET: Duration = Duration::from_secs(180);

/// A history that breaks with a bug and not without it.
#[derive(Debug)]
struct Find {
    seed: u64,
    invariant: &'static str,
    time: f64,
}

/// How long each planted bug takes to find. The threads share the seeds of one bug. What breaks without
/// the bug as well is no find.
///
/// # Errors
/// When nothing can be printed, or there is no runtime to be had.
pub fn finds(
    args: &Args,
    elapsed: impl Fn() -> Duration + Sync,
    out: &mut (impl Write + Send),
) -> std::io::Result<bool> {
    if cfg!(not(feature = "planted-bugs")) {
        writeln!(out, "built without the feature planted-bugs")?;
        return Ok(false);
    }
    let seeds = args.seeds.range(1);
    let mut times = Vec::new();
    for (nth, bug) in BUGS.iter().enumerate() {
        let begin = elapsed().as_secs_f64();
        // What the bugs before have not used up is for those that are left.
        let share = (args.minutes * 60.0 - begin) / (BUGS.len() - nth) as f64;
        let time = || elapsed().as_secs_f64() - begin;
        let (next, found) = (AtomicU64::new(seeds.start), Mutex::new(None));
        on_threads(args.threads, || {
            while found.lock().is_none() && time() < share {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= seeds.end {
                    break;
                }
                // Two days of rest find no more than three minutes with a restart, and take seconds.
                let clean = Scenario { quiet: QUIET, ..Scenario::new(seed) };
                let Some(failure) = run(&Scenario { bug, ..clean.clone() }, false)?.failure else { continue };
                if run(&clean, false)?.failure.is_none() {
                    let find = Find { seed, invariant: failure.invariant, time: time() };
                    found.lock().get_or_insert(find);
                }
            }
            Ok(())
        })?;
        match found.into_inner() {
            Some(Find { seed, invariant, time }) => {
                times.push(time);
                writeln!(out, "{time:>7.2} s  seed {seed:<5} {invariant:<9} {bug}")?;
            }
            None => writeln!(out, "not found within {:.0} s: {bug}", time())?,
        }
    }
    times.sort_by(f64::total_cmp);
    let median = times.get(times.len() / 2).copied().unwrap_or_default();
    let worst = times.last().copied().unwrap_or_default();
    writeln!(out, "{} of {} found, median {median:.2} s, worst {worst:.2} s", times.len(), BUGS.len())?;
    Ok(times.len() == BUGS.len())
}
