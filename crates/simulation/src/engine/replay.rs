//! A history as a file: what to run again, and what was found there.
//!
//! The file holds the scenario as JSON, with times in milliseconds, and a line that says what it shows. It does not
//! hold what happened: that follows from the scenario, and a fixed Windlass makes another history of it. So a file
//! stays useful as a test of the behaviour that it is named after.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::game::Scenario;

/// A static string. The type alias keeps serde from borrowing it from the file.
pub type StaticName = &'static str;

/// A word of the API, such as the name of a policy.
pub type Word = std::borrow::Cow<'static, str>;

/// A history as a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, bound = "S: Scenario")]
pub struct Replay<S> {
    /// The game, as in `--game`; the first one if it is missing.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub game: String,
    /// The behaviour that it shows or showed, in one or two sentences.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub shows: String,
    /// The invariant that it breaks or broke, such as "S11".
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub invariant: String,
    /// The mistake with which it breaks again, or "": a planted one, or one of `crates/simulation/mistakes`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub mistake: String,
    /// The version of Windlass in which the failure was found.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub found_in: String,
    /// The events in it.
    pub scenario: S,
}

/// The history that `--replay` runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The history of this seed.
    Seed(u64),
    /// The history in this file.
    File(PathBuf),
}

impl FromStr for Source {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(text.parse().map_or_else(|_| Source::File(text.into()), Source::Seed))
    }
}

/// The part of a file that says of which game it is.
#[derive(Deserialize)]
struct Header {
    #[serde(default)]
    game: String,
}

/// The game that a file is of, or "".
///
/// # Errors
/// When it cannot be read, or is no JSON.
pub fn game_of(path: &Path) -> Result<String, String> {
    let said = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let text = std::fs::read_to_string(path).map_err(|error| said(&error))?;
    let header: Header = serde_json::from_str(&text).map_err(|error| said(&error))?;
    Ok(header.game)
}

impl<S: Scenario> Replay<S> {
    /// Parses the text of a file.
    ///
    /// # Errors
    /// The position in the text, and what is wrong there.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut json = serde_json::Deserializer::from_str(text);
        let replay: Replay<S> = serde_path_to_error::deserialize(&mut json).map_err(|error| {
            let path = error.path().to_string();
            let inner = error.into_inner();
            if path == "." { inner.to_string() } else { format!("{path}: {inner}") }
        })?;
        json.end().map_err(|error| error.to_string())?;
        check(&replay.scenario)?;
        Ok(replay)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read, or is not a valid scenario.
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Replay::parse(&text).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Writes it into a directory, which is created if necessary, and returns its path. The name is the seed and the
    /// invariant, with a number if a file of that name holds another scenario.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, directory: &Path) -> std::io::Result<PathBuf> {
        std::fs::create_dir_all(directory)?;
        let invariant = self.invariant.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        let mut name = self.scenario.seed().to_string();
        if !invariant.is_empty() {
            name = format!("{name}-{invariant}");
        }
        let text = serde_json::to_string_pretty(self).map_err(std::io::Error::other)? + "\n";
        let mut path = directory.join(format!("{name}.json"));
        let mut count = 1;
        // An unreadable file is not overwritten either.
        while path.exists()
            && Replay::<S>::read(&path).map(|other| other.scenario).as_ref() != Ok(&self.scenario)
        {
            count += 1;
            path = directory.join(format!("{name}-{count}.json"));
        }
        std::fs::write(&path, text)?;
        Ok(path)
    }
}

/// Checks that a scenario can be run, and comes to an end.
///
/// # Errors
/// The field that is out of bounds.
pub fn check<S: Scenario>(scenario: &S) -> Result<(), String> {
    if !scenario.bug().is_empty() && cfg!(not(feature = "planted-bugs")) {
        return Err("scenario.bug: needs a build with the feature planted-bugs".into());
    }
    scenario.check().map_err(|what| format!("scenario.{what}"))
}

/// Reads a word.
///
/// # Errors
/// When it is not one of those that are known.
pub fn word<'de, D: serde::Deserializer<'de>>(
    from: D,
    known: &'static [StaticName],
) -> Result<StaticName, D::Error> {
    let text = String::deserialize(from)?;
    let found = known.iter().find(|word| **word == text);
    found.copied().ok_or_else(|| serde::de::Error::unknown_variant(&text, known))
}

/// Reads the name of a planted mistake.
///
/// # Errors
/// When there is no bug of that name.
pub fn bug<'de, D: serde::Deserializer<'de>>(from: D) -> Result<StaticName, D::Error> {
    let text = String::deserialize(from)?;
    let found = windlass::mutations::ALL.into_iter().flatten().find(|bug| **bug == text);
    found.copied().ok_or_else(|| serde::de::Error::custom(format!("no planted mistake is called {text:?}")))
}

/// A length of time as a number of milliseconds.
pub mod milliseconds {
    use std::time::Duration;

    use serde::{Deserialize as _, Serialize as _};

    /// Serializes it.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: serde::Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        u64::try_from(time.as_millis()).unwrap_or(u64::MAX).serialize(to)
    }

    /// Deserializes it.
    ///
    /// # Errors
    /// When it is not a whole number.
    pub fn deserialize<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_millis)
    }
}

/// Acts with their times: `{"at": 400, "act": ...}`.
pub mod steps {
    use std::time::Duration;

    use serde::{Deserialize, Serialize};

    #[derive(Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Step<A> {
        #[serde(with = "super::milliseconds")]
        at: Duration,
        act: A,
    }

    /// Serializes them.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<A: Serialize, S: serde::Serializer>(
        acts: &[(Duration, A)],
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_seq(acts.iter().map(|(at, act)| Step { at: *at, act }))
    }

    /// Deserializes them.
    ///
    /// # Errors
    /// When one of them is not an act.
    pub fn deserialize<'de, A: Deserialize<'de>, D: serde::Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<(Duration, A)>, D::Error> {
        let steps = Vec::<Step<A>>::deserialize(from)?;
        Ok(steps.into_iter().map(|step| (step.at, step.act)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::game::Game;

    type Drawn = crate::deployments::scenario::Scenario;

    fn replay<S>(scenario: S) -> Replay<S> {
        Replay {
            game: String::new(),
            shows: "what happens".into(),
            invariant: "S1".into(),
            mistake: String::new(),
            found_in: "0".into(),
            scenario,
        }
    }

    #[test]
    fn a_written_file_is_read_back() {
        fn check<G: Game>() {
            for seed in 0..200 {
                let written = replay(G::Scenario::draw(seed));
                let text = serde_json::to_string_pretty(&written).unwrap();
                assert_eq!(Replay::parse(&text), Ok(written), "{text}");
            }
        }
        macro_rules! check_all {
            ($($game:ident::$name:ident)*) => { $(check::<crate::$game::$name>();)* };
        }
        crate::games!(check_all);
    }

    #[test]
    fn a_file_says_of_which_game_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let older = replay(Drawn::draw(7)).write(directory.path()).unwrap();
        let newer = Replay { game: "garbage".into(), ..replay(Drawn::draw(8)) };
        let newer = newer.write(directory.path()).unwrap();
        assert_eq!([older, newer].map(|path| game_of(&path).unwrap()), ["", "garbage"]);
    }

    #[test]
    fn a_file_is_named_after_its_seed_and_invariant() {
        let directory = tempfile::tempdir().unwrap();
        let written = Replay { invariant: "the simulation".into(), ..replay(Drawn::draw(7)) };
        let path = written.write(&directory.path().join("new")).unwrap();
        assert!(path.ends_with("7-the-simulation.json"), "{path:?}");
        assert_eq!(Replay::read(&path), Ok(written));
    }

    #[test]
    fn a_file_about_another_scenario_of_the_seed_is_not_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let one = replay(Drawn::draw(7));
        let other = replay(Drawn { daemons: 5, ..Drawn::draw(7) });
        let names = [&one, &other, &one].map(|replay| replay.write(directory.path()).unwrap());
        assert!(names[1].ends_with("7-S1-2.json"), "{names:?}");
        assert_eq!(names[0], names[2]);
        assert_eq!((Replay::read(&names[0]), Replay::read(&names[1])), (Ok(one), Ok(other)));
    }

    #[test]
    fn an_error_in_a_file_names_its_position() {
        let good = serde_json::to_string_pretty(&replay(Drawn::draw(7))).unwrap();
        let wrong = |from: &str, to: &str| {
            let text = good.replacen(from, to, 1);
            assert_ne!(text, good, "there is no {from}");
            Replay::<Drawn>::parse(&text).unwrap_err()
        };
        let unknown = wrong("\"create\": {", "\"create\": {\"colour\": 1,");
        assert!(
            unknown.starts_with("scenario.acts[0].act.create.colour: unknown field `colour`"),
            "{unknown}"
        );
        assert!(unknown.contains(" at line "), "{unknown}");
        let name = wrong("\"name\": \"", "\"name\": \"nginx-");
        assert!(name.contains("acts[0].act.create.name: unknown variant `nginx-"), "{name}");
        let act = wrong("\"create\": {", "\"destroy\": {");
        assert!(act.contains("unknown variant `destroy`"), "{act}");
        let daemons = wrong("\"daemons\": ", "\"daemons\": 10");
        assert_eq!(daemons, "scenario.daemons: must be between 1 and 8");
        let time = wrong("\"at\": 0", "\"at\": 5000000000000");
        assert_eq!(time, "scenario.acts[0].at: must be at most an hour");
        let quiet = wrong("\"quiet\": ", "\"quiet\": 90000");
        assert_eq!(quiet, "scenario.quiet: must be at most a week");
        let replicas = wrong("\"replicas\": ", "\"replicas\": 4000");
        assert_eq!(replicas, "scenario.acts[0].act.create.replicas: must be at most 500");
        let end = Replay::<Drawn>::parse(&(good.clone() + "x")).unwrap_err();
        assert!(end.starts_with("trailing characters at line"), "{end}");
    }
}
