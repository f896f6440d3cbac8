//! The flags of `windlass-sim`, and what it prints.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use crate::GAMES;
use crate::deployments::exhaustive::{self, Bounds};
use crate::engine::any_game::AnyGame;
use crate::engine::mutation_score::mutation_score;
use crate::engine::replay::{Source, game_of};
use crate::engine::report::Report;
use crate::engine::search::{Search, Seeds};

/// Runs the controllers in a hostile cluster, one history per seed, and reports what breaks. A failure is shrunk,
/// printed step by step, and written to a file that can be run again.
#[derive(Clone, Debug, clap::Parser)]
#[command(name = "windlass-sim", version)]
pub struct Args {
    /// The game. Without it, seeds are played in all games in turn, planted mistakes are those of all games, and a seed to
    /// replay is one of the first.
    #[arg(long, value_name = "NAME", value_parser = clap::builder::PossibleValuesParser::new(names()))]
    pub game: Option<String>,
    /// The seeds: 1..1000 excludes 1000, 1..=1000 includes it; 'fresh' takes seeds that no run has used before.
    #[arg(long, value_name = "FROM..TO|fresh", default_value = "1..1000000")]
    pub seeds: Seeds,
    /// Stops after this many minutes, even if seeds are left.
    #[arg(long, value_name = "MINUTES", default_value = "5", value_parser = minutes, allow_negative_numbers = true)]
    pub minutes: Duration,
    /// Continues after a failure, and reports each failure in one line.
    #[arg(long)]
    pub keep_going: bool,
    /// Threads; each runs one history at a time.
    #[arg(long, default_value_t = 2, value_parser = threads)]
    pub threads: usize,
    /// Prints the history of a file or a seed instead.
    #[arg(long, value_name = "FILE|SEED", visible_alias = "seed")]
    pub replay: Option<Source>,
    /// Visits every history of a Deployment of up to this many replicas with one crash and one stale window, however
    /// long it takes.
    #[arg(long, value_name = "REPLICAS", num_args = 0..=1, default_missing_value = "3",
          value_parser = clap::value_parser!(u32).range(1..=MOST_REPLICAS))]
    pub exhaustive: Option<u32>,
    /// Plants one bug after the other, or those whose names contain this text, and reports how long each takes to
    /// find; with --replay, plants the first of them in that history. Needs the feature `planted-bugs`.
    #[arg(long, value_name = "BUG", num_args = 0..=1, default_missing_value = "", value_parser = part_of_a_bug)]
    pub planted: Option<String>,
    /// Shrinks failures with --replay and --keep-going too.
    #[arg(long)]
    pub shrink: bool,
    /// How long one failure is shrunk at most.
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(..=86_400))]
    pub shrink_seconds: u64,
    /// Directory for the files of failures.
    #[arg(long, value_name = "DIR", default_value = "target/sim")]
    pub out: PathBuf,
    /// Prints every request with its body instead of a transcript.
    #[arg(long)]
    pub verbose: bool,
}

fn names() -> Vec<&'static str> {
    GAMES.iter().map(|game| game.name()).collect()
}

/// The names of all planted mistakes.
fn bugs() -> Vec<&'static str> {
    GAMES.iter().flat_map(|game| game.bugs()).copied().collect()
}

/// The largest `--exhaustive`: three replicas take hours.
const MOST_REPLICAS: i64 = 10;

fn minutes(text: &str) -> Result<Duration, String> {
    let minutes: f64 = text.parse().map_err(|_| "it is not a number".to_owned())?;
    // A year, so that no sum of times is too large.
    if !(minutes > 0.0 && minutes <= 525_600.0) {
        return Err("it must be more than 0 and at most 525600, a year".into());
    }
    Duration::try_from_secs_f64(minutes * 60.0).map_err(|error| error.to_string())
}

fn threads(text: &str) -> Result<usize, String> {
    let threads = text.parse().map_err(|_| "it is not a whole number".to_owned())?;
    if (1..=1024).contains(&threads) { Ok(threads) } else { Err("it must be between 1 and 1024".into()) }
}

/// A text that the name of a planted mistake contains. If no name does, the error lists the names that share most words
/// with it.
fn part_of_a_bug(text: &str) -> Result<String, String> {
    let bugs = bugs();
    if bugs.iter().any(|bug| bug.contains(text)) {
        return Ok(text.to_owned());
    }
    let starts: Vec<String> = text
        .to_lowercase()
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| word.len() > 2)
        .map(|word| word.chars().take(4).collect())
        .collect();
    let shared = |bug: &str| starts.iter().filter(|start| bug.contains(&***start)).count();
    let mut near: Vec<&str> = bugs.iter().copied().filter(|bug| shared(bug) > 0).collect();
    near.sort_by_key(|bug| std::cmp::Reverse(shared(bug)));
    near.truncate(3);
    let near = if near.is_empty() { &bugs[..3] } else { &near };
    Err(format!("no planted mistake has this name; similar names: {near:?}"))
}

/// The facts that only the process can provide.
pub struct Host<'a> {
    /// The real time since the start: the library must not read the machine's clock.
    pub elapsed: &'a (dyn Fn() -> Duration + Sync),
    /// The time of day at the start, in milliseconds since 1970.
    pub started: u64,
    /// The version of Windlass, such as "0.1.0 (ca22bf4)".
    pub version: String,
}

/// Executes the flags, and returns whether every history passed.
///
/// # Errors
/// When the output cannot be written, a file cannot be read or written, or no runtime can be started.
pub fn execute(args: &Args, host: &Host<'_>, mut out: &mut (dyn Write + Send)) -> std::io::Result<bool> {
    let out = &mut out;
    let report = Report {
        version: host.version.clone(),
        directory: args.out.clone(),
        verbose: args.verbose,
        patience: Duration::from_secs(args.shrink_seconds),
    };
    let chosen: Vec<&'static dyn AnyGame> = match &args.game {
        Some(name) => GAMES.iter().copied().filter(|game| game.name() == name).collect(),
        None => GAMES.to_vec(),
    };
    if let Some(source) = &args.replay {
        return replay(source, chosen[0], args, &report, host, out);
    }
    if let Some(bug) = &args.planted {
        let seeds = args.seeds.range(1);
        return mutation_score(&chosen, bug, seeds, args.minutes, args.threads, host.elapsed, out);
    }
    if let Some(replicas) = args.exhaustive {
        let bounds = Bounds { both: true, threads: args.threads, keep_going: args.keep_going };
        return exhaustive::print(replicas, bounds, args.shrink, &report, host.elapsed, out);
    }
    let search = Search {
        games: &chosen,
        seeds: args.seeds.range(host.started),
        time: args.minutes,
        threads: args.threads,
        keep_going: args.keep_going,
        at_length: args.shrink,
        report: &report,
    };
    search.search(host.elapsed, out)
}

fn replay(
    source: &Source,
    chosen: &'static dyn AnyGame,
    args: &Args,
    report: &Report,
    host: &Host<'_>,
    out: &mut dyn Write,
) -> std::io::Result<bool> {
    let mut game = chosen;
    if let Source::File(path) = source {
        let name = game_of(path).map_err(std::io::Error::other)?;
        let named = GAMES.iter().copied().find(|game| game.name() == name || name.is_empty());
        game = named.ok_or_else(|| std::io::Error::other(format!("there is no game {name:?}")))?;
    }
    let bug = match &args.planted {
        None => None,
        Some(name) => {
            let none = || std::io::Error::other(format!("{} has no planted mistake {name:?}", game.name()));
            Some(*game.bugs().iter().find(|bug| bug.contains(name.as_str())).ok_or_else(none)?)
        }
    };
    let elapsed = || (host.elapsed)();
    game.replay(source, bug, report, args.shrink.then_some(&elapsed), out)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    fn args(flags: &[&str]) -> Args {
        Args::try_parse_from([&["windlass-sim"], flags].concat()).unwrap()
    }

    fn executed(flags: &[&str]) -> (bool, String) {
        let mut out = Vec::new();
        let host = Host { elapsed: &|| Duration::ZERO, started: 7, version: "0".into() };
        let fine = execute(&args(flags), &host, &mut out).unwrap();
        (fine, String::from_utf8(out).unwrap())
    }

    #[test]
    fn a_number_to_replay_is_a_seed_and_anything_else_a_file() {
        assert_eq!(args(&["--replay", "329"]).replay, Some(Source::Seed(329)));
        assert_eq!(args(&["--replay", "a.json"]).replay, Some(Source::File("a.json".into())));
    }

    #[test]
    fn the_exhaustive_mode_visits_three_replicas_by_default() {
        assert_eq!(args(&[]).exhaustive, None);
        assert_eq!(args(&["--exhaustive"]).exhaustive, Some(3));
        assert_eq!(args(&["--exhaustive", "1"]).exhaustive, Some(1));
    }

    #[track_caller]
    fn refused(flags: &[&str]) -> String {
        Args::try_parse_from([&["windlass-sim"], flags].concat()).unwrap_err().to_string()
    }

    #[test]
    fn flags_that_run_nothing_or_for_ever_are_refused_by_name() {
        for (flag, values) in [
            ("--seeds", &["9..3", "5..5"][..]),
            ("--minutes", &["-1", "0", "nan", "inf", "1e300"]),
            ("--threads", &["0", "1000000"]),
            ("--exhaustive", &["0", "4000000000"]),
            ("--shrink-seconds", &["18446744073709551615"]),
        ] {
            for value in values {
                let said = refused(&[flag, value]);
                assert!(said.contains(flag) && said.contains(value), "{said}");
            }
        }
        assert_eq!(args(&["--minutes", "0.5"]).minutes, Duration::from_secs(30));
    }

    #[test]
    fn an_unknown_bug_is_refused_with_similar_names() {
        let said = refused(&["--planted", "shared rate limiter"]);
        assert!(
            said.contains("--planted") && said.contains("all controllers share one rate limiter"),
            "{said}"
        );
        assert!(refused(&["--planted", "typo"]).contains("--planted"));
        assert_eq!(args(&["--planted"]).planted.as_deref(), Some(""));
        assert_eq!(args(&["--planted", "limiter"]).planted.as_deref(), Some("limiter"));
    }

    #[test]
    fn a_search_prints_its_seeds_and_sums() {
        let (fine, said) = executed(&["--game", "deployments", "--seeds", "1..=1", "--threads", "1"]);
        assert!(fine, "{said}");
        assert!(said.starts_with("windlass 0, seeds from 1 on\n1 histories, seeds 1 to 1, in "), "{said}");
        assert!(said.ends_with("0 failures\n"), "{said}");
    }

    #[test]
    fn without_a_game_each_seed_is_played_in_every_game() {
        let (fine, said) = executed(&["--seeds", "2..=2", "--threads", "1"]);
        assert!(fine, "{said}");
        assert!(said.contains(&format!("\n{} histories, seeds 2 to 2, in ", GAMES.len())), "{said}");
    }

    #[test]
    fn the_history_of_a_game_is_printed_by_its_name_and_seed() {
        let (fine, said) = executed(&["--game", "namespaces", "--seed", "1"]);
        assert!(fine, "{said}");
        assert!(said.contains("user      creates namespace "), "{said}");
        assert!(refused(&["--game", "chess"]).contains("rolling_updates"));
    }

    #[test]
    fn a_replay_prints_the_history_and_its_result() {
        let (fine, said) = executed(&["--replay", "1"]);
        assert!(fine, "{said}");
        assert!(said.contains("user      creates deployment web: size "), "{said}");
        assert!(said.ends_with("\npassed\n"), "{said}");
    }
}
