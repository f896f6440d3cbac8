//! Any game, for the tools that play all of them.

use std::io::{self, Write};
use std::time::Duration;

use super::game::{Game, Scenario as _, Trial};
use super::outcome::Outcome;
use super::replay::{Replay, Source, check};
use super::report::Report;

/// A game whose scenarios are known by their seeds or files alone.
pub trait AnyGame: Sync {
    /// See [`Game::NAME`].
    fn name(&self) -> &'static str;

    /// See [`Game::BUGS`].
    fn bugs(&self) -> &'static [&'static str];

    /// See [`Game::TRIAL`].
    fn trial(&self) -> Trial;

    /// Runs the history of a seed, with this bug planted, or none with "".
    ///
    /// # Errors
    /// Those of [`Game::run`].
    fn play(&self, seed: u64, bug: &'static str, record: bool) -> io::Result<Outcome>;

    /// The invariant that the history of a seed breaks with a bug, if it breaks none without.
    ///
    /// # Errors
    /// Those of [`Game::run`].
    fn finds(&self, seed: u64, bug: &'static str) -> io::Result<Option<&'static str>>;

    /// Shrinks the history of a seed that fails, and reports it.
    ///
    /// # Errors
    /// Those of [`Report::failure`].
    fn report(
        &self,
        seed: u64,
        report: &Report,
        elapsed: &dyn Fn() -> Duration,
        out: &mut dyn Write,
    ) -> io::Result<()>;

    /// Prints a history, or, where it fails and `elapsed` is given, shrinks it before. Returns whether it passed.
    ///
    /// # Errors
    /// When the file is no scenario, or the history cannot be run or printed.
    fn replay(
        &self,
        source: &Source,
        bug: Option<&'static str>,
        report: &Report,
        elapsed: Option<&dyn Fn() -> Duration>,
        out: &mut dyn Write,
    ) -> io::Result<bool>;
}

impl<G: Game + Sync> AnyGame for G {
    fn name(&self) -> &'static str {
        G::NAME
    }

    fn bugs(&self) -> &'static [&'static str] {
        G::BUGS
    }

    fn trial(&self) -> Trial {
        G::TRIAL
    }

    fn play(&self, seed: u64, bug: &'static str, record: bool) -> io::Result<Outcome> {
        G::run(&G::Scenario::draw(seed).with_bug(bug), record)
    }

    fn finds(&self, seed: u64, bug: &'static str) -> io::Result<Option<&'static str>> {
        let clean = G::Scenario::to_search(seed);
        let Some(failure) = G::run(&clean.clone().with_bug(bug), false)?.failure else { return Ok(None) };
        Ok(G::run(&clean, false)?.failure.is_none().then_some(failure.invariant))
    }

    fn report(
        &self,
        seed: u64,
        report: &Report,
        elapsed: &dyn Fn() -> Duration,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        report.failure::<G>(&G::Scenario::draw(seed), elapsed, out)
    }

    fn replay(
        &self,
        source: &Source,
        bug: Option<&'static str>,
        report: &Report,
        elapsed: Option<&dyn Fn() -> Duration>,
        out: &mut dyn Write,
    ) -> io::Result<bool> {
        let mut scenario = match source {
            Source::Seed(seed) => G::Scenario::draw(*seed),
            Source::File(path) => Replay::<G::Scenario>::read(path).map_err(io::Error::other)?.scenario,
        };
        if let Some(bug) = bug {
            scenario = scenario.with_bug(bug);
            check(&scenario).map_err(io::Error::other)?;
        }
        if let Some(elapsed) = elapsed
            && G::run(&scenario, false)?.failure.is_some()
        {
            report.failure::<G>(&scenario, elapsed, out)?;
            return Ok(false);
        }
        Ok(report.history::<G>(&scenario, out)?.failure.is_none())
    }
}
