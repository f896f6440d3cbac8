//! Whether the planted mistakes are found, and how long that takes.

use std::io::Write;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::any_game::AnyGame;
use super::search::{on_threads, same_again};

/// A history that breaks an invariant with a bug and none without it.
#[derive(Clone, Copy, Debug)]
struct Detection {
    seed: u64,
    invariant: &'static str,
    /// How long it took, in seconds.
    time: f64,
}

/// The search for one bug.
struct BugSearch {
    game: &'static dyn AnyGame,
    bug: &'static str,
    /// The next seed to try.
    next: u64,
    /// How long the search has taken so far, in seconds.
    spent: f64,
}

/// Measures how long each planted mistake takes to find. The threads share the seeds of one bug. A seed that fails
/// without the bug too does not count. Half of the time is shared equally among the bugs; the rest is for those that
/// were not found.
///
/// # Errors
/// When this build has no planted mistakes, the first seed has two histories, the output cannot be written, or no runtime
/// can be started.
pub fn mutation_score(
    games: &[&'static dyn AnyGame],
    name: &str,
    seeds: Range<u64>,
    time: Duration,
    threads: usize,
    elapsed: impl Fn() -> Duration + Sync,
    out: &mut (impl Write + Send),
) -> std::io::Result<bool> {
    if cfg!(not(feature = "planted-bugs")) {
        return Err(std::io::Error::other("--planted needs a build with the feature planted-bugs"));
    }
    for game in games {
        same_again(seeds.start, || Ok(game.play(seeds.start, "", false)?.digest))?;
    }
    let bugs = games.iter().flat_map(|game| game.bugs().iter().map(|bug| (*game, *bug)));
    let search = |(game, bug)| BugSearch { game, bug, next: seeds.start, spent: 0.0 };
    let mut searches: Vec<BugSearch> = bugs.filter(|(_, bug)| bug.contains(name)).map(search).collect();
    let planted = searches.len();
    let mut times = Vec::new();
    for part in [0.5, 1.0] {
        let mut missed = Vec::new();
        let waiting = searches.len();
        for (nth, mut hunt) in searches.into_iter().enumerate() {
            let left = time.as_secs_f64() * part - elapsed().as_secs_f64();
            let share = left / (waiting - nth) as f64;
            match hunt.go_on(seeds.end, threads, share, &elapsed)? {
                Some(Detection { seed, invariant, time }) => {
                    times.push(time);
                    writeln!(out, "{time:>7.2} s  seed {seed:<5} {invariant:<9} {}", hunt.bug)?;
                }
                None => missed.push(hunt),
            }
            out.flush()?;
        }
        searches = missed;
    }
    for BugSearch { bug, next, spent, .. } in searches {
        writeln!(out, "not found within {spent:.0} s and the seeds before {next}: {bug}")?;
    }
    times.sort_by(f64::total_cmp);
    let median = times.get(times.len() / 2).copied().unwrap_or_default();
    let worst = times.last().copied().unwrap_or_default();
    writeln!(out, "{} of {planted} found, median {median:.2} s, worst {worst:.2} s", times.len())?;
    Ok(times.len() == planted)
}

impl BugSearch {
    /// Searches for the bug for `share` more seconds.
    fn go_on(
        &mut self,
        end: u64,
        threads: usize,
        share: f64,
        elapsed: &(impl Fn() -> Duration + Sync),
    ) -> std::io::Result<Option<Detection>> {
        let begin = elapsed().as_secs_f64();
        let time = || elapsed().as_secs_f64() - begin;
        let (game, bug, spent) = (self.game, self.bug, self.spent);
        let (next, found) = (AtomicU64::new(self.next), Mutex::new(None));
        on_threads(threads, || {
            while found.lock().is_none() && time() < share {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= end {
                    break;
                }
                if let Some(invariant) = game.finds(seed, bug)? {
                    let find = Detection { seed, invariant, time: spent + time() };
                    found.lock().get_or_insert(find);
                }
            }
            Ok(())
        })?;
        self.next = next.into_inner();
        self.spent += time();
        Ok(found.into_inner())
    }
}
