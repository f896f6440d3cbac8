//! Runs many seeds on several threads for a limited time.

use std::fmt;
use std::io::Write;
use std::ops::Range;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::any_game::AnyGame;
use super::report::Report;

/// Seeds in ascending order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seeds {
    /// From the first to the second, the second excluded.
    Between(u64, u64),
    /// Seeds that no run has used before: they begin at the time of day.
    Fresh,
}

impl Seeds {
    /// The range of seeds at the time `now`, in milliseconds since 1970. Fewer than one seed is run per millisecond,
    /// so two starts use different seeds.
    pub fn range(&self, now: u64) -> Range<u64> {
        match self {
            Seeds::Between(from, to) => *from..*to,
            Seeds::Fresh => now..u64::MAX,
        }
    }
}

/// `1..1000` excludes 1000, as in Rust, and `1..=1000` includes it.
impl FromStr for Seeds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "fresh" {
            return Ok(Seeds::Fresh);
        }
        let number = |text: &str| text.parse::<u64>().map_err(|_| format!("{text:?} is not a number"));
        let (from, to) = text.split_once("..").ok_or("expected FROM..TO, such as 1..1000, or 'fresh'")?;
        let to = match to.strip_prefix('=') {
            Some(last) => number(last)?.checked_add(1).ok_or("the last seed is too large")?,
            None => number(to)?,
        };
        let from = number(from)?;
        if from >= to {
            return Err(format!(
                "{text} contains no seed; write the lower bound first, such as 1..1000 or 5..=5"
            ));
        }
        Ok(Seeds::Between(from, to))
    }
}

/// For a loop over seeds that has no time of day: `fresh` begins at 1.
impl IntoIterator for Seeds {
    type Item = u64;
    type IntoIter = Range<u64>;

    fn into_iter(self) -> Range<u64> {
        self.range(1)
    }
}

impl fmt::Display for Seeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Seeds::Between(from, to) => write!(f, "{from}..{to}"),
            Seeds::Fresh => write!(f, "fresh"),
        }
    }
}

/// How to search.
pub struct Search<'a> {
    /// The games. Each seed is played in each of them.
    pub games: &'a [&'static dyn AnyGame],
    /// The seeds, in order.
    pub seeds: Range<u64>,
    /// The time limit.
    pub time: Duration,
    /// How many histories run at a time.
    pub threads: usize,
    /// Whether to continue after a failure.
    pub keep_going: bool,
    /// Whether failures are shrunk and printed in full even then.
    pub at_length: bool,
    /// How failures are reported.
    pub report: &'a Report,
}

/// Runs the history of a seed twice: a simulation that depends on chance proves nothing, whatever it finds.
///
/// # Errors
/// When the two histories differ, or no runtime can be started.
pub fn same_again(seed: u64, digest: impl Fn() -> std::io::Result<u64>) -> std::io::Result<()> {
    if digest()? == digest()? {
        return Ok(());
    }
    let what = format!("seed {seed}, run twice, has two histories: no result of this simulation is valid");
    Err(std::io::Error::other(what))
}

/// Runs the same work on several threads, each with histories of its own, and waits for all of them.
///
/// # Errors
/// The first error of a thread, or that one panicked.
pub fn on_threads(threads: usize, work: impl Fn() -> std::io::Result<()> + Sync) -> std::io::Result<()> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(&work)).collect();
        let panicked = |_| Err(std::io::Error::other("a history panicked"));
        let ended: Vec<_> =
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(panicked)).collect();
        ended.into_iter().collect()
    })
}

/// Sums over many histories.
#[derive(Debug, Default)]
struct Sums {
    runs: AtomicU64,
    milliseconds: AtomicU64,
    busy: AtomicU64,
    requests: AtomicU64,
    failures: AtomicU64,
}

impl Search<'_> {
    /// Runs the seeds, and returns whether every history passed. Before that, the first seed is run twice.
    ///
    /// # Errors
    /// When the two histories of the first seed differ, a history panics, the output cannot be written, or no runtime
    /// can be started.
    pub fn search(
        &self,
        elapsed: &(dyn Fn() -> Duration + Sync),
        out: &mut (dyn Write + Send),
    ) -> std::io::Result<bool> {
        writeln!(out, "windlass {}, seeds from {} on", self.report.version, self.seeds.start)?;
        out.flush()?;
        let first = self.seeds.start;
        for game in self.games {
            same_again(first, || Ok(game.play(first, "", false)?.digest))?;
        }
        let count = self.games.len().max(1) as u64;
        let begin = elapsed();
        let sums = Sums::default();
        let next = AtomicU64::new(0);
        let stop = AtomicBool::new(false);
        let out = Mutex::new(out);
        let worker = || -> std::io::Result<()> {
            while !stop.load(Ordering::Relaxed) && elapsed().saturating_sub(begin) < self.time {
                let nth = next.fetch_add(1, Ordering::Relaxed);
                let seed = first.saturating_add(nth / count);
                let Some(game) = self.games.get((nth % count) as usize).filter(|_| seed < self.seeds.end)
                else {
                    break;
                };
                // An error that is not a breach stops all threads, so that it is reported at once and not minutes
                // later.
                let outcome =
                    game.play(seed, "", false).inspect_err(|_| stop.store(true, Ordering::Relaxed))?;
                sums.runs.fetch_add(1, Ordering::Relaxed);
                for (sum, time) in [(&sums.milliseconds, outcome.lasted), (&sums.busy, outcome.busy)] {
                    let time = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
                    sum.fetch_add(time, Ordering::Relaxed);
                }
                sums.requests.fetch_add(outcome.requests, Ordering::Relaxed);
                if outcome.failure.is_none() {
                    continue;
                }
                sums.failures.fetch_add(1, Ordering::Relaxed);
                if self.keep_going && !self.at_length {
                    writeln!(out.lock(), "{} seed {seed}: {outcome}", game.name())?;
                    continue;
                }
                if !self.keep_going {
                    stop.store(true, Ordering::Relaxed);
                }
                // Collected first, so that the output of two threads does not mix.
                let mut told = Vec::new();
                game.report(seed, self.report, &|| elapsed(), &mut told)?;
                out.lock().write_all(&told)?;
            }
            Ok(())
        };
        on_threads(self.threads, worker)?;
        let real = elapsed().saturating_sub(begin).as_secs_f64().max(0.001);
        self.sum_up(&sums, real, out.into_inner())
    }

    fn sum_up(&self, sums: &Sums, real: f64, out: &mut dyn Write) -> std::io::Result<bool> {
        let sum = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let (runs, failures) = (sum(&sums.runs), sum(&sums.failures));
        let hours = |number: &AtomicU64| sum(number) as f64 / 3_600_000.0 / real;
        writeln!(
            out,
            "{runs} histories, seeds {} to {}, in {real:.1} s on {} threads: {:.0} seeds/min, {:.1} simulated \
             hours/s, {:.1} of them before all was settled, {:.0} requests/s, {failures} {}",
            self.seeds.start,
            self.seeds.start + runs.saturating_sub(1) / self.games.len().max(1) as u64,
            self.threads.max(1),
            runs as f64 * 60.0 / real,
            hours(&sums.milliseconds),
            hours(&sums.busy),
            sum(&sums.requests) as f64 / real,
            if failures == 1 { "failure" } else { "failures" },
        )?;
        Ok(failures == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_seeds_is_written_as_in_rust() {
        assert_eq!("3..9".parse(), Ok(Seeds::Between(3, 9)));
        assert_eq!("3..=9".parse(), Ok(Seeds::Between(3, 10)));
        assert_eq!("fresh".parse(), Ok(Seeds::Fresh));
        for wrong in ["3", "a..b", "3..=18446744073709551615", "..4", ""] {
            assert!(wrong.parse::<Seeds>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_range_without_a_seed_is_refused() {
        let empty =
            |text| format!("{text} contains no seed; write the lower bound first, such as 1..1000 or 5..=5");
        assert_eq!("9..3".parse::<Seeds>(), Err(empty("9..3")));
        assert_eq!("3..3".parse::<Seeds>(), Err(empty("3..3")));
        assert_eq!("3..=2".parse::<Seeds>(), Err(empty("3..=2")));
    }

    #[test]
    fn two_histories_of_one_seed_are_an_error_and_not_a_failure() {
        let chance = std::cell::Cell::new(0);
        let error = same_again(1, || Ok(chance.replace(chance.get() + 1))).unwrap_err();
        assert!(error.to_string().starts_with("seed 1, run twice, has two histories"), "{error}");
        assert!(same_again(1, || Ok(7)).is_ok());
    }

    #[test]
    fn fresh_seeds_begin_at_the_time_of_day() {
        assert_eq!(Seeds::Fresh.range(1_800_000_000_000).start, 1_800_000_000_000);
        assert_eq!(Seeds::Between(3, 9).range(1_800_000_000_000), 3..9);
    }
}
