//! The mistakes that are kept as patches: each applies to the sources, and says what it breaks and which histories find it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use windlass::mutations::BUGS;

fn folder(path: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let mut all: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    all.sort();
    all
}

fn patches() -> Vec<PathBuf> {
    let of_games = folder("crates/simulation/mistakes");
    let all: Vec<PathBuf> = of_games.iter().flat_map(|game| folder(&game.to_string_lossy())).collect();
    assert!(all.len() > 10, "{all:?}");
    all
}

fn stem(file: &Path) -> String {
    file.file_stem().unwrap().to_string_lossy().into_owned()
}

/// The text before the first changed file: a sentence, the invariant that the mistake breaks, and what finds it.
struct Header {
    mistake: String,
    breaks: String,
    found_by: Vec<String>,
}

impl Header {
    fn of(patch: &Path) -> Self {
        let text = fs::read_to_string(patch).unwrap();
        let (header, _) = text.split_once("diff --git ").unwrap();
        let mut lines = header.lines().filter(|line| !line.is_empty());
        let mistake = lines.next().unwrap().to_owned();
        let breaks = lines.next().and_then(|line| line.strip_prefix("Breaks: ")).unwrap().to_owned();
        let found_by = lines.map(|line| line.strip_prefix("Found by: ").unwrap().to_owned()).collect();
        Header { mistake, breaks, found_by }
    }
}

#[test]
fn every_patch_of_a_mistake_applies() {
    for patch in patches() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let tried = Command::new("git").args(["apply", "--check"]).arg(&patch).current_dir(root).output();
        let tried = tried.unwrap();
        let said = String::from_utf8_lossy(&tried.stderr);
        assert!(tried.status.success(), "write {} anew, by hand:\n{said}", patch.display());
    }
}

#[test]
fn every_patch_names_a_defined_invariant_and_a_history() {
    let invariants =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/invariants.md")).unwrap();
    for patch in patches() {
        let Header { mistake, breaks, found_by } = Header::of(&patch);
        assert!(!mistake.is_empty() && !found_by.is_empty(), "{}", patch.display());
        assert!(invariants.contains(&format!("| {breaks} | ")), "{}: {breaks}", patch.display());
        let is_seed =
            |history: &String| history.strip_prefix("seed ").is_some_and(|seed| seed.parse::<u64>().is_ok());
        let is_known = |history: &String| is_seed(history) || history.starts_with("replay ");
        assert!(found_by.iter().all(is_known), "{}: {found_by:?}", patch.display());
    }
}

/// A replay that passes with any controllers is no test.
#[test]
fn the_mistake_of_a_replay_is_planted_or_a_patch_that_names_the_replay() {
    let mut patched = BTreeMap::new();
    for patch in patches() {
        let Header { mistake, breaks, found_by } = Header::of(&patch);
        let replays =
            found_by.into_iter().filter_map(|history| history.strip_prefix("replay ").map(str::to_owned));
        patched.extend(replays.map(|replay| (replay, (mistake.clone(), breaks.clone()))));
    }
    let mut named = BTreeMap::new();
    for file in folder("crates/simulation/tests/sim") {
        let replay: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        let Some(mistake) = replay["mistake"].as_str().filter(|mistake| !BUGS.contains(mistake)) else {
            continue;
        };
        named.insert(stem(&file), (mistake.to_owned(), replay["invariant"].as_str().unwrap().to_owned()));
    }
    assert_eq!(patched, named);
}
