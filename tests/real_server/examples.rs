//! The programs that docs/testing.md names, as their readers run them: each starts a control plane of its own.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;
use windlass_testkit::apiserver::on_a_real_server;
use windlass_testkit::process::windlass;

/// The environment variable that names a source tree of Kubernetes, where client-go and what it needs are.
pub(crate) const GO_TREE: &str = "WINDLASS_KUBERNETES_SOURCE";

const SAID: [&str; 3] = ["Deployment web is Available", "Deployment web is gone", "Namespace shop is gone"];
const SAID_OF_THE_OPERATOR: [&str; 5] = [
    "Database orders runs v1, and its schema is migrated",
    "Service orders has all three pods",
    "the evicted pod is back",
    "Database orders runs v2, and its schema is migrated",
    "Database orders is gone, with all that it owned",
];

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/testing")
}

/// The folder with both programs.
fn programs() -> PathBuf {
    let folder = windlass().parent().unwrap().to_owned();
    let sandbox = folder.join("windlass-sandbox");
    assert!(sandbox.is_file(), "{} is missing: cargo build --bin windlass-sandbox", sandbox.display());
    folder
}

/// Runs it to its end; what it printed.
fn run(command: &mut Command) -> String {
    let ended = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let printed = String::from_utf8_lossy(&ended.stdout).into_owned();
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{command:?}: {}\n{printed}\n{errors}", ended.status);
    printed
}

fn has_said_all(printed: &str, sentences: &[&str]) {
    let mut lines = printed.lines();
    for expected in sentences {
        assert!(lines.any(|line| line.ends_with(expected)), "{expected} is missing in:\n{printed}");
    }
}

pub(crate) fn the_python_programs_of_the_documentation_pass() {
    on_a_real_server(async |_| {
        let python = |name: &str| run(Command::new(examples().join("python").join(name)).arg(programs()));
        has_said_all(&python("test_web.py"), &SAID);
        has_said_all(&python("test_operator.py"), &SAID_OF_THE_OPERATOR);
    });
}

pub(crate) fn the_go_program_of_the_documentation_passes() {
    on_a_real_server(async |folder| {
        let tree = PathBuf::from(std::env::var_os(GO_TREE).unwrap());
        let scratch = tempfile::tempdir().unwrap();
        // As if the files were a package of that tree, where no network is needed for client-go.
        let package = tree.join("test/windlass");
        let files = ["bed.go", "web_test.go"];
        let replaced: serde_json::Map<_, _> = files
            .map(|file| {
                let there = package.join(file).to_string_lossy().into_owned();
                (there, json!(examples().join("go").join(file)))
            })
            .into_iter()
            .collect();
        let overlay = scratch.path().join("overlay.json");
        std::fs::write(&overlay, json!({ "Replace": replaced }).to_string()).unwrap();
        let test = scratch.path().join("test");
        let mut build = Command::new("go");
        build.args(["test", "-c", "-vet=off", "-mod=vendor", "-o"]).arg(&test);
        build.arg("-overlay").arg(&overlay).arg("./test/windlass").current_dir(&tree);
        run(&mut build);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths(std::iter::once(programs()).chain(std::env::split_paths(&path)));
        let mut started = Command::new(test);
        started.arg("-test.v").env("PATH", path.unwrap()).env("KUBEBUILDER_ASSETS", folder);
        has_said_all(&run(started.current_dir(scratch.path())), &SAID);
    });
}
