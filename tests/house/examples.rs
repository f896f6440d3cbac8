//! The programs and names of tests that the documentation shows.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn documented_programs_are_those_in_the_repository() {
    let page = read(&root().join("docs/testing.md"));
    let marks: Vec<&str> = page.split("<!-- the same as ").skip(1).collect();
    assert_eq!(marks.len(), 2, "one in Python and one in Go");
    for mark in marks {
        let (file, rest) = mark.split_once(" -->\n```").unwrap();
        let (_, code) = rest.split_once('\n').unwrap();
        let (shown, _) = code.split_once("\n```\n").unwrap();
        assert_eq!(format!("{shown}\n"), read(&root().join(file)), "docs/testing.md does not show {file}");
    }
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let is_source = |path: &PathBuf| path.extension().is_some_and(|it| it == "rs");
    files.into_iter().filter(is_source).chain(folders.iter().flat_map(|folder| sources(folder))).collect()
}

#[test]
fn each_situation_of_upstreams_tests_is_played_by_a_test() {
    let page = read(&root().join("tests/real_server/garbage/upstream.md"));
    let (_, table) = page.split_once("| Upstream's test | Played by |").unwrap();
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let cells = rows.map(|row| row.trim_end_matches('|').rsplit_once('|').unwrap().1);
    let named: Vec<&str> = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    assert!(named.len() > 30, "{named:?}");
    let folders = ["tests", "src"].map(|folder| root().join(folder));
    let code: String = folders.iter().flat_map(|folder| sources(folder)).map(|file| read(&file)).collect();
    for name in named {
        assert!(code.contains(&format!("fn {name}(")), "upstream.md names {name}, which is no test");
    }
}
