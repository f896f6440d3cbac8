//! The circles of files that use each other: whoever changes one of them must have all in mind.
//!
//! An arrow leads to the file that defines what a path names; a name that a module passes on (`pub use`) belongs to the
//! file that it comes from, and the import of a module is none by itself. Calls of methods leave no path, so that an `impl`
//! in another file than its type is not seen.

use std::collections::{BTreeMap, BTreeSet};

use crate::sources::{Module, Source, declared_for_tests, sources};

/// The files of a crate, by the names of their modules.
struct Graph {
    modules: BTreeMap<Vec<String>, Module>,
}

impl Graph {
    /// Of files by their paths below the root of the crate.
    fn new(files: &[(&str, &str)]) -> Self {
        let module_of = |path: &str| -> Vec<String> {
            let mut parts: Vec<String> = path.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
            if parts.last().is_some_and(|last| ["mod", "lib"].contains(&last.as_str())) {
                parts.pop();
            }
            parts
        };
        let all: BTreeSet<Vec<String>> = files.iter().map(|(path, _)| module_of(path)).collect();
        let modules = files.iter().map(|(path, code)| {
            let name = module_of(path);
            let is_own = |first: &String| {
                ["crate", "super", "self"].contains(&first.as_str())
                    || all.contains(&[&name[..], std::slice::from_ref(first)].concat())
            };
            (name.clone(), Module::read(code, is_own))
        });
        Graph { modules: modules.collect() }
    }

    /// The file that defines what a path in a file names, and whether the path ends there: it names the module itself.
    fn file_of(&self, from: &[String], path: &[String], depth: usize) -> Option<(Vec<String>, bool)> {
        let mut at = from.to_vec();
        let mut rest = path;
        while let Some((first, after)) = rest.split_first() {
            let child = [&at[..], std::slice::from_ref(first)].concat();
            match first.as_str() {
                "crate" => at.clear(),
                "super" => drop(at.pop()),
                "self" => {}
                _ if self.modules.contains_key(&child) => at = child,
                _ => break,
            }
            rest = after;
        }
        let passed_on = rest.first().and_then(|name| self.modules.get(&at)?.imports.get(name));
        match passed_on.filter(|_| depth < 9) {
            Some(path) => self.file_of(&at, &[&path[..], &rest[1..]].concat(), depth + 1),
            None => self.modules.contains_key(&at).then_some((at, rest.is_empty())),
        }
    }

    fn arrows(&self, from: &[String]) -> BTreeSet<Vec<String>> {
        let targets = self.modules[from].used.iter().filter_map(|(path, is_import)| {
            let (file, is_whole) = self.file_of(from, path, 0)?;
            (file != from && !(is_whole && *is_import)).then_some(file)
        });
        targets.collect()
    }

    /// The files that reach each other, in groups of two or more.
    fn circles(&self) -> Vec<Vec<String>> {
        let arrows: BTreeMap<&Vec<String>, BTreeSet<Vec<String>>> =
            self.modules.keys().map(|name| (name, self.arrows(name))).collect();
        let reach = |start: &Vec<String>| {
            let (mut seen, mut next) = (BTreeSet::new(), vec![start.clone()]);
            while let Some(name) = next.pop() {
                next.extend(arrows[&name].iter().filter(|to| seen.insert((*to).clone())).cloned());
            }
            seen
        };
        let reached: BTreeMap<_, _> = arrows.keys().map(|name| (*name, reach(name))).collect();
        let circle = |name: &Vec<String>| -> Vec<String> {
            let mutual = reached[name].iter().filter(|other| reached[*other].contains(name));
            mutual.map(|module| module.join("::")).collect()
        };
        let circles: BTreeSet<Vec<String>> = arrows.keys().map(|name| circle(name)).collect();
        circles.into_iter().filter(|circle| !circle.is_empty()).collect()
    }
}

/// The folders, and how many files a circle in them may span.
const LARGEST: &[(&str, usize)] = &[
    ("crates/apiserver/src/", 3),
    ("crates/simulation/src/", 3),
    // The daemon.
    ("", 4),
];

/// These circles are larger, by their first file: the room of a planner, whose parts share the types of its plan, and one
/// `impl` over the files of the garbage collector.
const LARGER: &[(&str, usize)] = &[
    ("plan::daemonset", 10),
    ("plan::deployment", 17),
    ("plan::job", 6),
    ("plan::statefulset", 7),
    ("controllers::garbage", 13),
];

#[test]
fn no_circle_of_files_is_too_large() {
    let all = sources();
    let declared = declared_for_tests(&all);
    for (folder, most) in LARGEST {
        let is_of = |s: &&Source| {
            let is_below =
                s.path.starts_with(folder) && (!folder.is_empty() || !s.path.starts_with("crates/"));
            is_below && !s.is_test(&declared) && !s.path.ends_with("main.rs")
        };
        let files: Vec<(&str, &str)> =
            all.iter().filter(is_of).map(|s| (&s.path[folder.len()..], s.shipped())).collect();
        assert!(files.len() > 50, "{folder}: only {} files", files.len());
        let too_large = Graph::new(&files).circles().into_iter().filter(|circle| {
            let larger = LARGER.iter().find(|(first, _)| folder.is_empty() && circle[0] == *first);
            circle.len() > larger.map_or(*most, |(_, most)| *most)
        });
        let too_large: Vec<String> = too_large.map(|circle| circle.join(" ")).collect();
        assert!(
            too_large.is_empty(),
            "{folder}: move what holds the circle into a file of its own\n{too_large:#?}"
        );
    }
}

#[test]
fn an_arrow_leads_to_the_file_that_defines_a_name() {
    let a = "pub use b::{self, B as Other};\nmod b;\nmod c;";
    let circles =
        |b, c| Graph::new(&[("lib.rs", "mod a;"), ("a.rs", a), ("a/b.rs", b), ("a/c.rs", c)]).circles();
    let uses_b = "use super::Other;\nfn f(_: Other) {}";
    assert_eq!(circles("use super::c::{\n    C,\n};", uses_b), [["a::b", "a::c"]]);
    assert_eq!(circles("for c in crate::a::c::all() {}", uses_b), [["a::b", "a::c"]]);
    assert_eq!(circles("", uses_b), [[""; 0]; 0]);
    assert_eq!(circles("use super::c;", uses_b), [[""; 0]; 0], "the import of a module alone");
    assert_eq!(circles("pub(in crate::a::c) fn f() {}", uses_b), [[""; 0]; 0], "a visibility");
    assert_eq!(circles("fn f() -> &'static str { \"super::c::C\" }", uses_b), [[""; 0]; 0], "a text");
}
