//! The sources, and the paths that they use, as text.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A source file: its path below `src/` for the daemon's, below the root for all others, and its code without comments.
pub(crate) struct Source {
    pub(crate) path: String,
    pub(crate) code: String,
}

pub(crate) fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The programs and libraries.
pub(crate) fn sources() -> Vec<Source> {
    let mut all = files(&root().join("src"));
    for krate in fs::read_dir(root().join("crates")).unwrap() {
        all.extend(files(&krate.unwrap().path().join("src")));
    }
    all.iter().map(|file| Source::read(file)).collect()
}

/// The tests and benchmarks of all packages.
pub(crate) fn tests() -> Vec<Source> {
    let crates = fs::read_dir(root().join("crates")).unwrap().map(|krate| krate.unwrap().path());
    let folders = crates
        .chain([root().to_owned()])
        .flat_map(|package| [package.join("tests"), package.join("benches")]);
    let all: Vec<PathBuf> =
        folders.filter(|folder| folder.is_dir()).flat_map(|folder| files(&folder)).collect();
    all.iter().map(|file| Source::read(file)).collect()
}

impl Source {
    pub(crate) fn read(file: &Path) -> Self {
        let text = fs::read_to_string(file).unwrap();
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>();
        let path = file.strip_prefix(root().join("src")).or_else(|_| file.strip_prefix(root())).unwrap();
        Source { path: path.to_string_lossy().replace('\\', "/"), code: code.join("\n") }
    }

    pub(crate) fn lines(&self) -> usize {
        self.shipped().lines().filter(|line| !line.trim().is_empty()).count()
    }

    /// A module that its parent declares for tests only is a test, whatever its file is called. `declared` are the names of
    /// those modules.
    pub(crate) fn is_test(&self, declared: &BTreeSet<String>) -> bool {
        let name = self.path.rsplit('/').next().unwrap().trim_end_matches(".rs");
        self.path.contains("/tests/") || declared.contains(name)
    }

    /// The code in front of the unit tests, which stand last in a file.
    pub(crate) fn shipped(&self) -> &str {
        let attributes = self.code.match_indices("#[cfg(test)]\n");
        let ends = attributes.filter(|(at, attribute)| {
            let item = self.code[at + attribute.len()..].lines().next().unwrap_or_default();
            item.contains("mod ") && item.ends_with('{')
        });
        &self.code[..ends.map(|(at, _)| at).next().unwrap_or(self.code.len())]
    }
}

/// The names of the modules that are declared for tests only.
pub(crate) fn declared_for_tests(all: &[Source]) -> BTreeSet<String> {
    let declared = all.iter().flat_map(|s| s.code.split("#[cfg(test)]\n").skip(1)).filter_map(|code| {
        let code = code.strip_prefix("pub(crate) ").unwrap_or(code);
        code.strip_prefix("mod ")?.split_once(';').map(|(name, _)| name)
    });
    declared.filter(|name| name.chars().all(|c| c.is_alphanumeric() || c == '_')).map(str::to_owned).collect()
}

/// Whether `word` stands in `code` by itself, not as part of a longer name.
pub(crate) fn has_word(code: &str, word: &str) -> bool {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word).any(|(at, _)| {
        !code[..at].chars().next_back().is_some_and(is_name)
            && !code[at + word.len()..].chars().next().is_some_and(is_name)
    })
}

/// The code without what stands in quotes.
pub(crate) fn without_texts(code: &str) -> String {
    code.lines().map(|line| line.split('"').step_by(2).collect::<Vec<_>>().join("\"\"") + "\n").collect()
}

/// The rooms of our own that a file uses, by `crate::`.
pub(crate) fn rooms_used(code: &str) -> Vec<String> {
    let used = Module::read(code, |first| first == "crate").used;
    used.into_iter().filter_map(|(path, _)| path.into_iter().nth(1)).collect()
}

/// The leaves of the tree of a `use`: each path with the name that it gets.
fn leaves(tree: &str) -> Vec<(String, String)> {
    let tree = tree.trim();
    if let Some((prefix, group)) = tree.split_once('{') {
        let mut depth = 0;
        let parts = group.trim_end().trim_end_matches('}').split(|c: char| {
            depth += i32::from(c == '{') - i32::from(c == '}');
            c == ',' && depth == 0
        });
        let inner = parts.filter(|part| !part.trim().is_empty()).flat_map(leaves);
        return inner.map(|(path, name)| (format!("{prefix}{path}"), name)).collect();
    }
    let (path, alias) = tree.split_once(" as ").map_or((tree, None), |(path, alias)| (path, Some(alias)));
    let path = path.strip_suffix("::self").unwrap_or(path);
    let name = alias.unwrap_or_else(|| path.rsplit("::").next().unwrap());
    vec![(path.to_owned(), name.to_owned())]
}

/// The paths of two or more names in code.
fn paths(code: &str) -> impl Iterator<Item = &str> {
    code.match_indices("::").filter_map(|(at, _)| {
        let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
        let start = code[..at].rfind(|c| !is_part(c)).map_or(0, |before| before + 1);
        let end = code[at..].find(|c| !is_part(c)).map_or(code.len(), |length| at + length);
        // Each path once, at its first separator; `pub(in crate::a)` uses nothing.
        let is_first = !code[start..at].contains("::") && start < at;
        (is_first && !code[..start].ends_with("(in ")).then(|| code[start..end].trim_end_matches(':'))
    })
}

/// A file as a module: what it imports under which name, and the paths that it uses.
pub(crate) struct Module {
    pub(crate) imports: BTreeMap<String, Vec<String>>,
    /// Each with whether it is that of an import.
    pub(crate) used: Vec<(Vec<String>, bool)>,
}

fn names(path: &str) -> Vec<String> {
    path.split("::").map(|name| name.trim().to_owned()).collect()
}

impl Module {
    /// `is_own` says whether a path that begins so stays in the crate.
    pub(crate) fn read(code: &str, is_own: impl Fn(&String) -> bool) -> Self {
        let code = without_texts(code);
        let (mut uses, mut rest) = (Vec::new(), String::new());
        let mut open: Option<String> = None;
        for line in code.lines() {
            let (visibility, tree) = line.split_once("use ").unwrap_or(("-", ""));
            let begins = ["", "pub", "pub(crate)", "pub(super)"].contains(&visibility.trim())
                || visibility.trim().starts_with("pub(in");
            match &mut open {
                Some(tree) => tree.push_str(line),
                None if begins => open = Some(format!("{visibility}|{tree}")),
                None => rest.extend([line, "\n"]),
            }
            if let Some(whole) = open.take_if(|tree| tree.trim_end().ends_with(';')) {
                uses.push(whole.trim_end().trim_end_matches(';').to_owned());
            }
        }
        let mut module = Module { imports: BTreeMap::new(), used: Vec::new() };
        for statement in &uses {
            let (visibility, tree) = statement.split_once('|').unwrap();
            for (path, name) in leaves(tree) {
                let path = names(&path);
                if is_own(&path[0]) {
                    // One that is passed on and not used here is no arrow.
                    if visibility.trim().is_empty() || has_word(&rest, &name) {
                        module.used.push((path.clone(), true));
                    }
                    module.imports.insert(name, path);
                }
            }
        }
        for path in paths(&rest) {
            let path = names(path);
            let import = module.imports.get(&path[0]);
            match import {
                Some(import) => module.used.push(([&import[..], &path[1..]].concat(), false)),
                None if is_own(&path[0]) => module.used.push((path, false)),
                None => {}
            }
        }
        module
    }
}
