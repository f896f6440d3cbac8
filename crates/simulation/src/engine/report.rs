//! The report of a failure: what was run and by which version of Windlass, the smallest history that fails in the
//! same way, step by step, the breach, the objects, and a file to run it again.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use super::game::{Game, Scenario as _};
use super::outcome::Outcome;
use super::replay::Replay;
use super::shrink::{Budget, shrink};
use super::transcript;

/// How many histories may be spent on shrinking one failure.
const RUNS: usize = 2000;

/// How failures are reported.
#[derive(Clone, Debug)]
pub struct Report {
    /// The version of Windlass, such as "0.1.0 (ca22bf4)".
    pub version: String,
    /// The directory for the files of failures.
    pub directory: PathBuf,
    /// Prints every request with its body instead of a transcript.
    pub verbose: bool,
    /// How long one failure is shrunk.
    pub patience: Duration,
}

impl Report {
    /// Shrinks the history, reports it and writes its file. `elapsed` is the real time.
    ///
    /// # Errors
    /// When the failure does not occur again, or something cannot be run or written.
    pub fn failure<G: Game>(
        &self,
        scenario: &G::Scenario,
        elapsed: &dyn Fn() -> Duration,
        out: &mut dyn Write,
    ) -> std::io::Result<()> {
        let budget = Budget { runs: RUNS, time: self.patience, elapsed };
        let least = shrink::<G>(scenario, &budget)?.unwrap_or_else(|| scenario.clone());
        let outcome = self.history::<G>(&least, out)?;
        self.keep::<G>(least, &outcome, out)?;
        // A scenario from a file, with a planted mistake, or of the exhaustive mode is not what its seed draws.
        if *scenario == G::Scenario::draw(scenario.seed()) {
            let (name, seed) = (G::NAME, scenario.seed());
            writeln!(out, "the whole history: windlass-sim --game {name} --replay {seed}")?;
        }
        Ok(())
    }

    /// Runs a history once more, and prints it.
    ///
    /// # Errors
    /// When it cannot be run or printed.
    pub fn history<G: Game>(&self, scenario: &G::Scenario, out: &mut dyn Write) -> std::io::Result<Outcome> {
        let outcome = G::run(scenario, true)?;
        write!(out, "windlass {}, {}, ", self.version, G::NAME)?;
        transcript::scenario(scenario).iter().try_for_each(|line| writeln!(out, "{line}"))?;
        writeln!(out)?;
        if self.verbose {
            outcome.log.iter().try_for_each(|entry| writeln!(out, "{entry}"))?;
        } else {
            transcript::lines(&outcome.log, G::RESOURCES)
                .iter()
                .try_for_each(|line| writeln!(out, "{line}"))?;
        }
        writeln!(out, "\nobjects at the end:")?;
        transcript::objects(&outcome.picture).iter().try_for_each(|line| writeln!(out, "  {line}"))?;
        writeln!(out, "\n{outcome}")?;
        Ok(outcome)
    }

    /// Writes the file of a failure, and prints how to use it.
    fn keep<G: Game>(
        &self,
        scenario: G::Scenario,
        outcome: &Outcome,
        out: &mut dyn Write,
    ) -> std::io::Result<()> {
        let Some(failure) = &outcome.failure else {
            let what = format!(
                "seed {}: it failed the first time and not the second: a history depends on more than its seed, \
                 and no result of this simulation is valid",
                scenario.seed()
            );
            return Err(std::io::Error::other(what));
        };
        let replay = Replay {
            game: G::NAME.to_owned(),
            shows: failure.to_string(),
            invariant: failure.invariant.to_owned(),
            mistake: scenario.bug().to_owned(),
            found_in: self.version.clone(),
            scenario,
        };
        let path = replay.write(&self.directory)?;
        writeln!(out, "again: windlass-sim --replay {}", path.display())
    }
}
