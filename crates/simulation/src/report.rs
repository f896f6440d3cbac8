//! What is told of a failure: what was run and by which Windlass, the least history that fails so, step by
//! step, the breach, the state of things, and a file to run it again.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use super::replay::Replay;
use super::run::{Outcome, run};
use super::scenario::Scenario;
use super::shrink::{Budget, shrink};
use super::transcript;

/// How many histories may be spent on making one smaller.
const RUNS: usize = 2000;

/// How it is told.
#[derive(Clone, Debug)]
pub struct Report {
    /// The Windlass that this is, such as "0.1.0 (ca22bf4)".
    pub version: String,
    /// Where files go.
    pub directory: PathBuf,
    /// Every request with its body, in place of what matters.
    pub verbose: bool,
    /// How long a history is made smaller.
    pub patience: Duration,
}

impl Report {
    /// Makes the history smaller, tells of it and writes its file. `elapsed` is the real time.
    ///
    /// # Errors
    /// When it does not fail again, or something cannot be run or written.
    pub fn failure(
        &self,
        scenario: &Scenario,
        elapsed: &dyn Fn() -> Duration,
        out: &mut dyn Write,
    ) -> std::io::Result<()> {
        let budget = Budget { runs: RUNS, time: self.patience, elapsed };
        let least = shrink(scenario, &budget)?.unwrap_or_else(|| scenario.clone());
        let outcome = self.history(&least, out)?;
        self.keep(least, &outcome, out)?;
        // What is of a file, planted, or of the exhaustive mode is not what its seed draws.
        if *scenario == Scenario::new(scenario.seed) {
            writeln!(out, "all of it: windlass-sim --replay {}", scenario.seed)?;
        }
        Ok(())
    }

    /// Runs a history once more, and tells of it.
    ///
    /// # Errors
    /// When it cannot be run or told.
    pub fn history(&self, scenario: &Scenario, out: &mut dyn Write) -> std::io::Result<Outcome> {
        let outcome = run(scenario, true)?;
        writeln!(out, "windlass {}, {scenario}", self.version)?;
        if self.verbose {
            outcome.log.iter().try_for_each(|entry| writeln!(out, "{entry}"))?;
        } else {
            transcript::lines(&outcome.log).iter().try_for_each(|line| writeln!(out, "{line}"))?;
        }
        writeln!(out, "\nthen there is:")?;
        transcript::objects(&outcome.picture).iter().try_for_each(|line| writeln!(out, "  {line}"))?;
        writeln!(out, "\n{outcome}")?;
        Ok(outcome)
    }

    /// Writes the file of a failure, and how to use it.
    fn keep(&self, scenario: Scenario, outcome: &Outcome, out: &mut dyn Write) -> std::io::Result<()> {
        let Some(failure) = &outcome.failure else {
            let what = format!(
                "seed {}: it was not as it should be the first time: a history depends on more than its seed, \
                 and nothing here can be believed",
                scenario.seed
            );
            return Err(std::io::Error::other(what));
        };
        let replay = Replay {
            shows: failure.to_string(),
            invariant: failure.invariant.to_owned(),
            mistake: scenario.bug,
            found_in: self.version.clone(),
            scenario,
        };
        let path = replay.write(&self.directory)?;
        writeln!(out, "again: windlass-sim --replay {}", path.display())
    }
}
