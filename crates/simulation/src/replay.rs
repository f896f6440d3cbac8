//! A history as a file: what to run again, and what was found there.
//!
//! The file holds the scenario as JSON, with times in milliseconds, and a line that says what it shows. It does not
//! hold what happened: that follows from the scenario, and a fixed Windlass makes another history of it. So a file
//! stays useful as a test of the behaviour that it is named after.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::scenario::{Act, Fault, LONG_NAME, NAMES, Scenario, Skew};
use windlass::mutations::BUGS;

/// A static string. The type alias keeps serde from borrowing it from the file.
pub type StaticName = &'static str;

/// The longest time that a file may give: one hour. A history ends only after all of its times.
const LONGEST: Duration = Duration::from_secs(3600);

/// The longest time for which a settled cluster is watched: with an election, one week takes a minute.
const LONGEST_QUIET: Duration = Duration::from_secs(7 * 24 * 3600);

/// Larger numbers of daemons, acts or pods are taken for a mistake.
const MOST_DAEMONS: usize = 8;
const MOST_ACTS: usize = 1000;
const MOST_REPLICAS: u32 = 500;

/// A history as a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replay {
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
    pub scenario: Scenario,
}

impl Replay {
    /// Parses the text of a file.
    ///
    /// # Errors
    /// The position in the text, and what is wrong there.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut json = serde_json::Deserializer::from_str(text);
        let replay: Replay = serde_path_to_error::deserialize(&mut json).map_err(|error| {
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
        let mut name = self.scenario.seed.to_string();
        if !invariant.is_empty() {
            name = format!("{name}-{invariant}");
        }
        let text = serde_json::to_string_pretty(self).map_err(std::io::Error::other)? + "\n";
        let mut path = directory.join(format!("{name}.json"));
        let mut count = 1;
        // An unreadable file is not overwritten either.
        while path.exists() && Replay::read(&path).map(|other| other.scenario).as_ref() != Ok(&self.scenario)
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
pub fn check(scenario: &Scenario) -> Result<(), String> {
    let field = |path: String, fine: bool, bound: &str| {
        if fine { Ok(()) } else { Err(format!("scenario.{path}: {bound}")) }
    };
    let daemons = (1..=MOST_DAEMONS).contains(&scenario.daemons);
    field("daemons".into(), daemons, &format!("must be between 1 and {MOST_DAEMONS}"))?;
    field("acts".into(), scenario.acts.len() <= MOST_ACTS, &format!("must be at most {MOST_ACTS}"))?;
    field("points".into(), scenario.points.len() <= MOST_ACTS, &format!("must be at most {MOST_ACTS}"))?;
    field("quiet".into(), scenario.quiet <= LONGEST_QUIET, "must be at most a week")?;
    for (name, time) in [("readiness", scenario.readiness), ("shutdown", scenario.shutdown)] {
        field(name.into(), time <= LONGEST, "must be at most an hour")?;
    }
    for (n, fault) in scenario.faults.iter().enumerate() {
        let (Fault::LostRequests(part)
        | Fault::LostReplies(part)
        | Fault::LateRequests(part)
        | Fault::LateReplies(part)
        | Fault::Refusals(part)
        | Fault::Webhook(part)
        | Fault::Throttled(part)
        | Fault::Unavailable(part)
        | Fault::Conflicts(part)
        | Fault::Behind(part)) = fault;
        field(format!("faults[{n}]"), *part <= 100, "must be at most 100 percent")?;
    }
    for (n, Skew { ahead, speed }) in scenario.clocks.iter().enumerate() {
        let bound = "must be at most a day, positive or negative";
        field(format!("clocks[{n}].ahead"), ahead.unsigned_abs() <= 86_400_000, bound)?;
        // A leader that measures its 10 s with a slower clock than this outlives its Lease of 15 s.
        field(format!("clocks[{n}].speed"), (67..=100).contains(speed), "must be between 67 and 100")?;
    }
    let mut latest = Duration::ZERO;
    for (n, (at, act)) in scenario.acts.iter().enumerate() {
        field(format!("acts[{n}].at"), *at <= LONGEST, "must be at most an hour")?;
        field(format!("acts[{n}].at"), *at >= latest, "must not be before the previous act")?;
        latest = *at;
        let fine = |seconds: u32| u64::from(seconds) <= LONGEST.as_secs();
        let hour = "must be at most an hour";
        match *act {
            Act::Lag { seconds, .. } => field(format!("acts[{n}].act.lag.seconds"), fine(seconds), hour)?,
            Act::SlowLease { seconds, .. } => {
                field(format!("acts[{n}].act.slow_lease.seconds"), fine(seconds), hour)?;
            }
            Act::Webhook { seconds } => field(format!("acts[{n}].act.webhook.seconds"), fine(seconds), hour)?,
            Act::MinReady { seconds, .. } => {
                field(format!("acts[{n}].act.min_ready.seconds"), fine(seconds), hour)?;
            }
            Act::Create { replicas, .. } | Act::Scale { replicas, .. } => {
                let kind = if matches!(act, Act::Create { .. }) { "create" } else { "scale" };
                let path = format!("acts[{n}].act.{kind}.replicas");
                field(path, replicas <= MOST_REPLICAS, &format!("must be at most {MOST_REPLICAS}"))?;
            }
            Act::OwnerlessReplicaSet { replicas } => {
                let path = format!("acts[{n}].act.bare.replicas");
                field(path, replicas <= MOST_REPLICAS, &format!("must be at most {MOST_REPLICAS}"))?;
            }
            _ => {}
        }
    }
    for (n, point) in scenario.points.iter().enumerate() {
        if let super::crash_points::CrashPoint::Lag { milliseconds, .. } = point {
            let fine = u128::from(*milliseconds) <= LONGEST.as_millis();
            field(format!("points[{n}].lag.milliseconds"), fine, "must be at most an hour")?;
        }
    }
    if !scenario.bug.is_empty() && cfg!(not(feature = "planted-bugs")) {
        return Err("scenario.bug: needs a build with the feature planted-bugs".into());
    }
    Ok(())
}

fn word<'de, D: serde::Deserializer<'de>>(
    from: D,
    known: &'static [StaticName],
) -> Result<StaticName, D::Error> {
    let text = String::deserialize(from)?;
    let found = known.iter().find(|word| **word == text);
    found.copied().ok_or_else(|| serde::de::Error::unknown_variant(&text, known))
}

/// Reads the name of a Deployment.
///
/// # Errors
/// When no user creates a Deployment of that name.
pub fn name<'de, D: serde::Deserializer<'de>>(from: D) -> Result<StaticName, D::Error> {
    word(from, &[NAMES[0], NAMES[1], LONG_NAME])
}

/// Reads a propagation policy.
///
/// # Errors
/// When there is no such policy.
pub fn policy<'de, D: serde::Deserializer<'de>>(from: D) -> Result<StaticName, D::Error> {
    word(from, &["Background", "Foreground", "Orphan"])
}

/// Reads the name of a resource.
///
/// # Errors
/// When no daemon watches it.
pub fn resource<'de, D: serde::Deserializer<'de>>(from: D) -> Result<StaticName, D::Error> {
    word(from, &["pods", "replicasets", "deployments"])
}

/// Reads the name of a planted mistake.
///
/// # Errors
/// When there is no bug of that name.
pub fn bug<'de, D: serde::Deserializer<'de>>(from: D) -> Result<StaticName, D::Error> {
    word(from, BUGS)
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

    use super::Act;

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
    pub fn serialize<S: serde::Serializer>(acts: &[(Duration, Act)], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(acts.iter().map(|(at, act)| Step { at: *at, act }))
    }

    /// Deserializes them.
    ///
    /// # Errors
    /// When one of them is not an act.
    pub fn deserialize<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<(Duration, Act)>, D::Error> {
        let steps = Vec::<Step<Act>>::deserialize(from)?;
        Ok(steps.into_iter().map(|step| (step.at, step.act)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replay(scenario: Scenario) -> Replay {
        Replay {
            shows: "what happens".into(),
            invariant: "S1".into(),
            mistake: String::new(),
            found_in: "0".into(),
            scenario,
        }
    }

    #[test]
    fn a_written_file_is_read_back() {
        for seed in 0..200 {
            let written = replay(Scenario::new(seed));
            let text = serde_json::to_string_pretty(&written).unwrap();
            assert_eq!(Replay::parse(&text), Ok(written), "{text}");
        }
    }

    #[test]
    fn a_file_is_named_after_its_seed_and_invariant() {
        let directory = tempfile::tempdir().unwrap();
        let written = Replay { invariant: "the simulation".into(), ..replay(Scenario::new(7)) };
        let path = written.write(&directory.path().join("new")).unwrap();
        assert!(path.ends_with("7-the-simulation.json"), "{path:?}");
        assert_eq!(Replay::read(&path), Ok(written));
    }

    #[test]
    fn a_file_about_another_scenario_of_the_seed_is_not_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let one = replay(Scenario::new(7));
        let other = replay(Scenario { daemons: 5, ..Scenario::new(7) });
        let names = [&one, &other, &one].map(|replay| replay.write(directory.path()).unwrap());
        assert!(names[1].ends_with("7-S1-2.json"), "{names:?}");
        assert_eq!(names[0], names[2]);
        assert_eq!((Replay::read(&names[0]), Replay::read(&names[1])), (Ok(one), Ok(other)));
    }

    #[test]
    fn an_error_in_a_file_names_its_position() {
        let good = serde_json::to_string_pretty(&replay(Scenario::new(7))).unwrap();
        let wrong = |from: &str, to: &str| {
            let text = good.replacen(from, to, 1);
            assert_ne!(text, good, "there is no {from}");
            Replay::parse(&text).unwrap_err()
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
        let end = Replay::parse(&(good.clone() + "x")).unwrap_err();
        assert!(end.starts_with("trailing characters at line"), "{end}");
    }
}
