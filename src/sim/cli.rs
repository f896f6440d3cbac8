//! The flags of `windlass-sim`, and what it prints.

use std::io::Write;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::run::{Outcome, run};
use super::scenario::Scenario;
use super::shrink::shrink;
use crate::planted::BUGS;

/// Runs the controllers in a hostile cluster, one history per seed, and reports what breaks.
#[derive(Clone, Debug, clap::Parser)]
#[command(name = "windlass-sim", version)]
pub struct Args {
    /// The seeds, such as 1..1000; the last one is not run.
    #[arg(long, value_name = "FROM..TO", default_value = "1..1000", value_parser = seeds)]
    pub seeds: Range<u64>,
    /// Ends after this many minutes, even if there are seeds left.
    #[arg(long, value_name = "MINUTES", default_value_t = 5.0)]
    pub minutes: f64,
    /// Goes on with the next seed after a failure.
    #[arg(long)]
    pub keep_going: bool,
    /// Threads, each with a history of its own at a time.
    #[arg(long, default_value_t = 2)]
    pub threads: usize,
    /// Prints the whole history of one seed instead.
    #[arg(long, value_name = "SEED")]
    pub replay: Option<u64>,
    /// Plants one bug after the other and tells how long each takes to find. Needs the feature
    /// `planted-bugs`.
    #[arg(long)]
    pub planted: bool,
    /// Leaves out of a failing history what it does not need. With --replay, or after each failure.
    #[arg(long)]
    pub shrink: bool,
}

fn seeds(text: &str) -> Result<Range<u64>, String> {
    let (from, to) = text.split_once("..").ok_or("expected FROM..TO, such as 1..1000")?;
    let number = |text: &str| text.parse().map_err(|_| format!("{text:?} is not a number"));
    Ok(number(from)?..number(to)?)
}

/// Sums over many histories.
#[derive(Debug, Default)]
struct Sums {
    runs: AtomicU64,
    seconds: AtomicU64,
    requests: AtomicU64,
    failures: AtomicU64,
}

/// Does what the flags say; whether every history was as it should be. `elapsed` is the real time since
/// the start, since nothing here may read the machine's clock.
///
/// # Errors
/// When nothing can be printed, or there is no runtime to be had.
pub fn execute(
    args: &Args,
    elapsed: impl Fn() -> Duration + Sync,
    out: &mut (impl Write + Send),
) -> std::io::Result<bool> {
    if let Some(seed) = args.replay {
        return replay(seed, args.shrink, out);
    }
    if args.planted {
        return planted(args, elapsed, out);
    }
    let limit = Duration::try_from_secs_f64(args.minutes * 60.0).unwrap_or(Duration::MAX);
    let sums = Sums::default();
    let next = AtomicU64::new(args.seeds.start);
    let stop = AtomicBool::new(false);
    let output = Mutex::new(out);
    std::thread::scope(|scope| {
        let worker = || -> std::io::Result<()> {
            while !stop.load(Ordering::Relaxed) && elapsed() < limit {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= args.seeds.end {
                    break;
                }
                let scenario = Scenario::new(seed);
                let outcome = run(&scenario, false)?;
                sums.runs.fetch_add(1, Ordering::Relaxed);
                sums.seconds.fetch_add(outcome.lasted.as_secs(), Ordering::Relaxed);
                sums.requests.fetch_add(outcome.requests, Ordering::Relaxed);
                if outcome.failure.is_some() {
                    sums.failures.fetch_add(1, Ordering::Relaxed);
                    if !args.keep_going {
                        stop.store(true, Ordering::Relaxed);
                    }
                    let least = if args.shrink { shrink(&scenario)? } else { None };
                    let (scenario, outcome) = least.unwrap_or((scenario, outcome));
                    tell(&scenario, &outcome, args.keep_going && !args.shrink, &mut **output.lock())?;
                }
            }
            Ok(())
        };
        let threads: Vec<_> = (0..args.threads.max(1)).map(|_| scope.spawn(worker)).collect();
        let ended = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err(std::io::Error::other("a history panicked"))));
        ended.collect::<Vec<_>>().into_iter().collect::<std::io::Result<()>>()
    })?;
    let out = output.into_inner();
    let sum = |number: &AtomicU64| number.load(Ordering::Relaxed);
    let real = elapsed().as_secs_f64().max(0.001);
    writeln!(
        out,
        "{} histories from seed {} in {real:.1} s: {:.0} seeds a minute, {:.1} simulated hours a second, \
         {:.0} requests a second, {} failures",
        sum(&sums.runs),
        args.seeds.start,
        sum(&sums.runs) as f64 * 60.0 / real,
        sum(&sums.seconds) as f64 / 3600.0 / real,
        sum(&sums.requests) as f64 / real,
        sum(&sums.failures),
    )?;
    Ok(sum(&sums.failures) == 0)
}

/// A history that breaks with a bug and not without it.
#[derive(Debug)]
struct Find {
    seed: u64,
    invariant: &'static str,
    time: f64,
}

/// How long each planted bug takes to find. The threads share the seeds of one bug. What breaks without
/// the bug as well is no find.
fn planted(
    args: &Args,
    elapsed: impl Fn() -> Duration + Sync,
    out: &mut (impl Write + Send),
) -> std::io::Result<bool> {
    if cfg!(not(feature = "planted-bugs")) {
        writeln!(out, "built without the feature planted-bugs")?;
        return Ok(false);
    }
    let mut times = Vec::new();
    for (nth, bug) in BUGS.iter().enumerate() {
        let begin = elapsed().as_secs_f64();
        // What the bugs before have not used up is for those that are left.
        let share = (args.minutes * 60.0 - begin) / (BUGS.len() - nth) as f64;
        let time = || elapsed().as_secs_f64() - begin;
        let (next, found) = (AtomicU64::new(args.seeds.start), Mutex::new(None));
        std::thread::scope(|scope| {
            let worker = || -> std::io::Result<()> {
                while found.lock().is_none() && time() < share {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= args.seeds.end {
                        break;
                    }
                    let scenario = Scenario { bug, ..Scenario::new(seed) };
                    let Some(failure) = run(&scenario, false)?.failure else { continue };
                    if run(&Scenario::new(seed), false)?.failure.is_none() {
                        let find = Find { seed, invariant: failure.invariant, time: time() };
                        found.lock().get_or_insert(find);
                    }
                }
                Ok(())
            };
            let threads: Vec<_> = (0..args.threads.max(1)).map(|_| scope.spawn(worker)).collect();
            threads.into_iter().try_for_each(|thread| {
                thread.join().unwrap_or_else(|_| Err(std::io::Error::other("a history panicked")))
            })
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

fn replay(seed: u64, least: bool, out: &mut impl Write) -> std::io::Result<bool> {
    let mut scenario = Scenario::new(seed);
    if least && let Some((less, _)) = shrink(&scenario)? {
        scenario = less;
    }
    let outcome = run(&scenario, true)?;
    tell(&scenario, &outcome, false, out)?;
    Ok(outcome.failure.is_none())
}

fn tell(scenario: &Scenario, outcome: &Outcome, short: bool, out: &mut impl Write) -> std::io::Result<()> {
    if short {
        let failure = outcome.failure.as_ref().map(ToString::to_string).unwrap_or_default();
        return writeln!(out, "seed {}: {failure}", scenario.seed);
    }
    writeln!(out, "{scenario}\n{outcome}")?;
    writeln!(out, "again: windlass-sim --replay {} --shrink", scenario.seed)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[test]
    fn seeds_are_a_range() {
        let args = Args::try_parse_from(["windlass-sim", "--seeds", "3..9"]).unwrap();
        assert_eq!(args.seeds, 3..9);
        assert!(Args::try_parse_from(["windlass-sim", "--seeds", "3"]).is_err());
    }
}
