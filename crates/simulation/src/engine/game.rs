//! A game: the simulation of some controllers. Each has a scenario that a seed draws, actors that carry it out, and a
//! judge. [`games!`](crate::games) lists all games.

use std::fmt;
use std::future::Future;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::breach::Breach;
use super::network::{Cluster, Faults, Judge};
use super::outcome::Outcome;

/// When histories begin: 2026-01-01T00:00:00Z.
pub const BEGINNING: i64 = 1_767_225_600;

/// The events of a history, as a value: parts can be left out, and the rest run again.
pub trait Scenario: Clone + PartialEq + fmt::Debug + Serialize + DeserializeOwned + Send + Sync {
    /// The scenario of a seed.
    fn draw(seed: u64) -> Self;

    /// The seed of every random choice.
    fn seed(&self) -> u64;

    /// The planted mistake, or "".
    fn bug(&self) -> &'static str;

    /// The same with this mistake.
    #[must_use]
    fn with_bug(self, bug: &'static str) -> Self;

    /// Checks that it comes to an end. A history that panics is an error by itself.
    ///
    /// # Errors
    /// The field that is out of bounds.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    /// The scenario of a seed in the form that is searched for planted mistakes.
    fn to_search(seed: u64) -> Self {
        Self::draw(seed)
    }

    /// Simpler scenarios, beside those with fewer events and smaller numbers.
    fn simpler(&self) -> Vec<Self> {
        Vec::new()
    }
}

/// The methods of a [`Scenario`] that return its fields `seed` and `bug`.
#[macro_export]
macro_rules! seed_and_bug {
    () => {
        fn seed(&self) -> u64 {
            self.seed
        }

        fn bug(&self) -> &'static str {
            self.bug
        }

        fn with_bug(self, bug: &'static str) -> Self {
            Self { bug, ..self }
        }
    };
}

pub use seed_and_bug;

/// The seeds of the tests of a game.
#[derive(Clone, Debug)]
pub struct Trial {
    /// Those that may break no invariant.
    pub seeds: Range<u64>,
    /// More of those, which have failed once.
    pub once_failed: &'static [u64],
    /// Those that must find every planted mistake. None where that takes long: `windlass-sim --planted` looks for them.
    pub planted: Range<u64>,
}

/// The simulation of some controllers, as the tools see it.
pub trait Game: 'static {
    /// Its name, as in `--game`.
    const NAME: &'static str;
    /// The mistakes that can be planted in its controllers.
    const BUGS: &'static [&'static str];
    /// The resources that a transcript shows.
    const RESOURCES: &'static [&'static str];
    /// The seeds of the tests.
    const TRIAL: Trial;
    /// The events of a history.
    type Scenario: Scenario;

    /// Runs a scenario. `record` keeps the log.
    ///
    /// # Errors
    /// When the simulation itself panics, or no runtime can be started.
    fn run(scenario: &Self::Scenario, record: bool) -> io::Result<Outcome>;
}

/// A game in the engine's own cluster.
pub trait Staged: Game {
    /// Something that an actor does.
    type Act;
    /// The invariants over every write.
    type Judge: Judge;
    /// Users and nodes, and the supervisor of the daemons.
    type Actors: Actors<Self::Act>;

    /// The parts of a scenario that the engine carries out.
    fn stage(scenario: &Self::Scenario) -> Stage<'_, Self::Act>;

    /// When the history begins, by the clock of the cluster.
    fn begins(scenario: &Self::Scenario) -> Timestamp {
        let _ = scenario;
        Timestamp::from_second(BEGINNING).unwrap_or_default()
    }

    /// Invariants that have seen nothing yet.
    fn judge(scenario: &Self::Scenario) -> Self::Judge;

    /// Actors that have not acted yet.
    fn actors(cluster: &Arc<Cluster<Self::Judge>>, scenario: &Self::Scenario) -> Self::Actors;

    /// Waits until everything has converged, and checks what must hold then.
    ///
    /// # Errors
    /// The condition that does not hold.
    fn converge(
        cluster: &Arc<Cluster<Self::Judge>>,
        actors: &mut Self::Actors,
        scenario: &Self::Scenario,
    ) -> impl Future<Output = Result<(), Breach>>;
}

/// Carries out the acts of a scenario with requests.
pub trait Actors<A> {
    /// Creates what is there from the beginning, and starts the daemons.
    fn begin(&mut self) -> impl Future<Output = ()>;

    /// Carries out one act.
    fn act(&mut self, act: &A) -> impl Future<Output = ()>;

    /// Lets time pass.
    fn wait(&mut self, time: Duration) -> impl Future<Output = ()> {
        tokio::time::sleep(time)
    }

    /// Kills the daemons.
    fn end(&mut self);
}

/// The parts of a scenario that the engine carries out.
#[derive(Debug)]
pub struct Stage<'a, A> {
    /// The faults of the network.
    pub faults: Faults,
    /// The acts with their times, in order.
    pub acts: &'a [(Duration, A)],
    /// The nodes, if pods run.
    pub nodes: Option<Nodes>,
}

/// Simulated nodes. Where they are, the API server collects garbage.
#[derive(Debug, Default)]
pub struct Nodes {
    /// How many there are at the beginning.
    pub count: usize,
    /// From a pod's binding until it is ready.
    pub readiness: Duration,
    /// From a pod's deletion until it has ended.
    pub shutdown: Duration,
    /// Whether claims are bound, and pods wait for them.
    pub volumes: bool,
    /// From a change until the API server collects garbage.
    pub garbage: Duration,
}
