//! The rules of the kubectl plugin: what it uses, and where it writes.

use std::fs;
use std::path::{Path, PathBuf};

fn sources(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(sources(&path)) } else { found.push(path) }
    }
    found
}

fn plugin() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/kubectl-windlass/src");
    let read = |path: PathBuf| {
        let name = path.strip_prefix(&root).unwrap().to_string_lossy().replace('\\', "/");
        let text = fs::read_to_string(&path).unwrap();
        let code: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        (name, code.join("\n"))
    };
    sources(&root).into_iter().map(read).collect()
}

#[test]
fn the_plugin_uses_the_planner_and_no_controller() {
    for (name, code) in plugin() {
        for part in ["windlass::controllers", "windlass::app", "windlass_sandbox", "windlass_apiserver"] {
            assert!(!code.contains(part), "{name} uses {part}");
        }
    }
}

#[test]
fn one_file_of_the_plugin_writes_to_the_api() {
    let writes = ["request::post", "request::put", "request::patch", "request::delete", "Method::"];
    for (name, code) in plugin().into_iter().filter(|(name, _)| name != "write.rs") {
        let write = writes.iter().find(|write| code.contains(**write));
        assert!(write.is_none(), "{name} says {write:?}");
    }
}

#[test]
fn what_the_plugin_computes_about_a_rollout_is_pure() {
    for (name, code) in plugin().into_iter().filter(|(name, _)| name.starts_with("rollout/")) {
        let is_pure = !["async", "await", "Clock", "tokio"].iter().any(|word| code.contains(word));
        assert!(is_pure || name == "rollout/live.rs", "{name} waits or reads a clock");
    }
}
