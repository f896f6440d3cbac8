//! The real kubectl finds the plugin in PATH.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::harness::{Ended, PLUGIN, Sandbox, kubectl};

/// A directory with the plugin and nothing else: cargo's own files beside the program have names that begin like that of
/// a plugin.
pub fn plugin_directory(sandbox: &Sandbox) -> PathBuf {
    let directory = sandbox.file("bin");
    std::fs::create_dir_all(&directory).unwrap();
    let plugin = directory.join(Path::new(PLUGIN).file_name().unwrap());
    if !plugin.exists() {
        std::fs::hard_link(PLUGIN, &plugin).or_else(|_| std::fs::copy(PLUGIN, &plugin).map(drop)).unwrap();
    }
    directory
}

/// Runs kubectl with the plugin in PATH.
pub fn run(sandbox: &Sandbox, args: &[&str]) -> Ended {
    let directory = plugin_directory(sandbox);
    Ended::of(&sandbox.command(kubectl(), args).env("PATH", directory).output().unwrap())
}

#[test]
#[ignore = "needs kubectl"]
fn kubectl_runs_the_plugin_and_passes_its_exit_code_on() {
    let sandbox = Sandbox::start(&[]);
    sandbox.create_web("app:1", &Value::Null);
    let ended = run(&sandbox, &["windlass", "status", "deploy/web", "--timeout=60s"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let explained = run(&sandbox, &["windlass", "explain", "deploy", "web", "-n", "default"]);
    assert!(explained.out.starts_with("Deployment default/web, revision 1: complete"), "{explained:?}");
    sandbox.set_image("app:broken");
    let ended = run(&sandbox, &["windlass", "status", "web", "--timeout=2s"]);
    assert_eq!(ended.code, Some(4), "{ended:?}");
}

#[test]
#[ignore = "needs kubectl"]
fn kubectl_lists_the_plugin_without_a_warning() {
    let sandbox = Sandbox::start(&["--no-controllers"]);
    let ended = run(&sandbox, &["plugin", "list"]);
    assert!(ended.out.contains("kubectl-windlass"), "{ended:?}");
    assert!(!ended.err.contains("warning"), "{ended:?}");
}
