//! Every game: no seed breaks an invariant, the same seed twice is the same history, and planted mistakes are found.
//!
//! `WINDLASS_SEEDS=1000..2000 cargo test --test games garbage` tries others, and `WINDLASS_PLANTED` the mistakes with these
//! words alone.

use std::ops::Range;

use windlass_simulation::engine::any_game::AnyGame;

/// One module for each game, so that games are tried side by side, and one by its name.
macro_rules! tests_of {
    ($($game:ident::$name:ident)*) => {$(
        mod $game {
            use windlass_simulation::$game::$name;

            #[test]
            fn no_seed_breaks_an_invariant() {
                super::check_seeds(&$name);
            }

            #[test]
            fn the_same_seed_twice_is_the_same_history() {
                super::check_repetition(&$name);
            }
        }
    )*};
}

windlass_simulation::games!(tests_of);

/// The seeds that are tried.
fn seeds(default: Range<u64>) -> Range<u64> {
    let Ok(given) = std::env::var("WINDLASS_SEEDS") else { return default };
    let (from, to) = given.split_once("..").unwrap();
    from.parse().unwrap()..to.parse().unwrap()
}

/// Fails with the failures of all seeds, and with the log of the first that failed.
fn check_seeds(game: &dyn AnyGame) {
    let trial = game.trial();
    let mut broken = Vec::new();
    let mut first = None;
    let once_failed: &[u64] = if std::env::var("WINDLASS_SEEDS").is_ok() { &[] } else { trial.once_failed };
    for seed in once_failed.iter().copied().chain(seeds(trial.seeds)) {
        if let Some(failure) = game.play(seed, "", false).unwrap().failure {
            broken.push(format!("seed {seed}: {failure}"));
            first.get_or_insert(seed);
        }
    }
    let log = first.map(|seed| game.play(seed, "", true).unwrap().log).unwrap_or_default();
    let log: Vec<String> = log.iter().map(ToString::to_string).collect();
    assert!(broken.is_empty(), "{}\n{}", log.join("\n"), broken.join("\n"));
}

/// A simulation that depends on chance shows nothing.
fn check_repetition(game: &dyn AnyGame) {
    const SEED: u64 = 2;
    let [first, second] = [true, true].map(|record| game.play(SEED, "", record).unwrap());
    let lines = first.log.iter().map(ToString::to_string).zip(second.log.iter().map(ToString::to_string));
    assert_eq!(lines.clone().find(|(one, other)| one != other), None);
    assert!(first.requests > 50, "{} requests", first.requests);
    assert_eq!((first.log.len(), first.digest), (second.log.len(), second.digest));
    let unrecorded = game.play(SEED, "", false).unwrap();
    assert_eq!((unrecorded.log.len(), unrecorded.digest), (0, first.digest));
}

/// Games side by side; those of Deployments, which take minutes, are looked for by `windlass-sim --planted`.
#[test]
#[cfg(feature = "planted-bugs")]
fn planted_mistakes_are_found() {
    let games = windlass_simulation::GAMES.iter().filter(|game| !game.trial().planted.is_empty());
    std::thread::scope(|scope| {
        let searches: Vec<_> = games.map(|game| scope.spawn(|| check_planted(*game))).collect();
        assert!(searches.len() >= 4);
        searches.into_iter().for_each(|search| search.join().unwrap());
    });
}

/// Each mistake is found within so many seeds, none of which breaks without it.
#[cfg(feature = "planted-bugs")]
#[allow(clippy::print_stdout)] // It says which seed finds each.
fn check_planted(game: &dyn AnyGame) {
    let trial = game.trial();
    let words = std::env::var("WINDLASS_PLANTED").unwrap_or_default();
    let planted = seeds(trial.planted);
    let mut missed = Vec::new();
    for bug in game.bugs().iter().copied().filter(|bug| bug.contains(&*words)) {
        let find = planted
            .clone()
            .find_map(|seed| Some((seed, game.play(seed, bug, false).unwrap().failure?.invariant)));
        match find {
            Some((seed, invariant)) => println!("seed {seed:<4} {invariant:<5} {bug}"),
            None => missed.push(bug),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:#?}");
}
