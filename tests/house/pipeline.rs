//! The attack surface of the release: actions and images that others can change, and jobs with
//! more rights than they need. zizmor looks deeper, in `.ci/workflows`; this needs nothing but the files.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde::Deserialize;
use windlass_testkit::manifests;

#[derive(Deserialize)]
struct Workflow {
    permissions: Option<BTreeMap<String, String>>,
    jobs: BTreeMap<String, Job>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Job {
    permissions: Option<BTreeMap<String, String>>,
    timeout_minutes: Option<u32>,
    uses: Option<String>,
    #[serde(rename = "if")]
    condition: Option<String>,
    environment: Option<String>,
}

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// The workflows, by the names of their files.
fn workflows() -> BTreeMap<String, String> {
    let folder = ".github/workflows";
    let found: BTreeMap<_, _> = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .map(|name| (name.clone(), read(&format!("{folder}/{name}"))))
        .collect();
    assert!(found.contains_key("tests.yaml") && found.contains_key("release.yaml"));
    found
}

fn jobs() -> Vec<(String, Job)> {
    workflows()
        .into_iter()
        .flat_map(|(file, text)| {
            parsed(&text).jobs.into_iter().map(move |(name, job)| (format!("{file}: {name}"), job))
        })
        .collect()
}

fn parsed(workflow: &str) -> Workflow {
    // GitHub reads `on` as a word, and the reader of manifests refuses it, as kubectl takes it for a boolean.
    let quoted = workflow.replace("\non:", "\n'on':");
    serde_json::from_value(manifests::object(&quoted)).unwrap()
}

fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// An attacker who controls the action's repository can move a tag or a branch to another commit.
#[test]
fn an_action_is_named_by_its_commit_and_its_version_stands_beside_it() {
    let mut count = 0;
    for (file, text) in workflows() {
        for line in text.lines() {
            let Some((_, used)) = line.split_once("uses: ") else { continue };
            if used.starts_with("./") {
                continue;
            }
            count += 1;
            let (action, version) = used.split_once(" # v").unwrap_or_else(|| panic!("{file}: {used}"));
            let commit = action.split_once('@').map_or("", |(_, commit)| commit);
            assert!(is_hex(commit, 40), "{file}: {used}");
            assert_eq!(version.split('.').count(), 3, "{file}: {used}");
        }
    }
    assert!(count > 5, "only {count} were found");
}

/// As for an action, a tag of an image can be moved.
#[test]
fn an_image_is_named_by_its_digest() {
    let mut count = 0;
    let mut check = |image: &str, place: &str| {
        count += 1;
        let digest = image.split_once("@sha256:").map_or("", |(_, digest)| digest);
        assert!(is_hex(digest, 64), "{place}: {image}");
    };
    for line in read("Dockerfile").lines() {
        let Some(from) = line.strip_prefix("FROM ") else { continue };
        let image = from.split(' ').find(|word| !word.starts_with("--")).unwrap();
        if image != "scratch" {
            check(image, "Dockerfile");
        }
    }
    for (file, text) in workflows() {
        for line in text.lines() {
            for name in ["BUILDKIT: ", "SCANNER: ", "NODE: "] {
                if let Some(image) = line.trim_start().strip_prefix(name) {
                    check(image, &file);
                }
            }
        }
    }
    assert_eq!(count, 4);
}

#[test]
fn a_workflow_has_no_rights_and_each_job_declares_its_own() {
    for (file, text) in workflows() {
        let workflow = parsed(&text);
        assert_eq!(workflow.permissions, Some(BTreeMap::new()), "{file}");
        assert!(
            !text.contains("pull_request_target"),
            "{file}: a stranger's change would run with our rights"
        );
    }
    for (place, job) in jobs() {
        assert!(job.permissions.is_some(), "{place}");
        assert!(job.uses.is_some() || job.timeout_minutes.is_some(), "{place} may hang for six hours");
    }
}

/// A job with write permission can replace our program.
#[test]
fn only_what_is_published_is_written() {
    let writes: Vec<String> = jobs()
        .into_iter()
        .flat_map(|(place, job)| {
            let rights = job.permissions.unwrap_or_default().into_iter();
            rights.filter(|(_, right)| right != "read").map(move |(of, _)| format!("{place} {of}"))
        })
        .collect();
    let expected = [
        "release.yaml: chart attestations",
        "release.yaml: chart id-token",
        "release.yaml: chart packages",
        "release.yaml: image attestations",
        "release.yaml: image id-token",
        "release.yaml: image packages",
        "release.yaml: release attestations",
        "release.yaml: release contents",
        "release.yaml: release id-token",
    ];
    assert_eq!(writes, expected);
}

/// Nobody who may push a tag publishes alone: the environment has reviewers, see CONTRIBUTING.md.
#[test]
fn what_publishes_waits_for_a_second_person() {
    for (place, job) in jobs() {
        let writes = job.permissions.iter().flatten().any(|(_, right)| right != "read");
        let expected = writes.then_some("release");
        assert_eq!(job.environment.as_deref(), expected, "{place}");
    }
}

/// Another compiler makes other bytes. Debian's archive changes, and the image's digest does not.
#[test]
fn the_cross_compiler_comes_from_the_archive_that_the_image_names() {
    let dockerfile = read("Dockerfile");
    let order =
        ["^URIs: http://snapshot", "apt-get --option", "apt-get install"].map(|step| dockerfile.find(step));
    assert!(order.iter().all(Option::is_some) && order.is_sorted(), "{order:?}");
}

/// A release is rehearsed on schedule and for changes of how it is built, with the same file.
#[test]
fn builds_without_a_tag_are_not_published() {
    let writes = |job: &Job| job.permissions.iter().flatten().any(|(_, right)| right != "read");
    for (place, job) in jobs().into_iter().filter(|(_, job)| writes(job)) {
        assert_eq!(job.condition.as_deref(), Some("github.ref_type == 'tag'"), "{place}");
    }
    for (place, job) in jobs() {
        if ["linux", "elsewhere"].iter().any(|name| place == format!("release.yaml: {name}")) {
            assert_eq!(job.condition, None, "{place}");
        }
    }
}

/// A client that pulls the version while it is compared may get another image than the version promises.
#[test]
fn an_image_has_its_name_only_when_it_has_been_compared() {
    let release = &workflows()["release.yaml"];
    let order = ["push-by-digest=true", "| cmp - ", "imagetools create --tag"].map(|word| {
        assert_eq!(release.matches(word).count(), 1, "{word}");
        release.find(word)
    });
    assert!(order.is_sorted(), "{order:?}");
}

/// The classic store of Docker, which the runners have, refuses a digest that it has for another platform.
#[test]
fn the_image_of_each_platform_is_tested_by_its_own_digest() {
    let release = &workflows()["release.yaml"];
    let creations: Vec<&str> = release.lines().filter(|line| line.contains("docker create")).collect();
    assert!(!creations.is_empty());
    for creation in creations {
        assert!(!creation.contains("@$DIGEST"), "that of all platforms: {creation}");
    }
}

/// Both platforms are built at once, and no lock that cargo takes is inside of what they would share.
#[test]
fn no_cache_of_a_build_is_shared_by_two_platforms() {
    let dockerfile = read("Dockerfile");
    let mounts: Vec<&str> = dockerfile.split("--mount=").skip(1).collect();
    assert_eq!(mounts.len(), 2);
    for mount in mounts {
        let mount = mount.split_whitespace().next().unwrap();
        assert!(mount.contains("id=") && mount.ends_with("$TARGETARCH"), "{mount}");
    }
}

/// Helm 3 looks for the logs when it has deleted the pod of a test that succeeded, and fails then.
#[test]
fn helm_test_does_not_request_logs_of_deleted_pods() {
    assert!(read("charts/windlass/templates/tests/rollout.yaml").contains("hook-succeeded"));
    for (file, text) in workflows() {
        let requests_logs = text.lines().find(|line| line.contains("helm test") && line.contains("--logs"));
        assert_eq!(requests_logs, None, "{file}");
    }
}

/// The file that the registry or the mirror of a wheel serves may have changed since its version was chosen.
#[test]
fn every_wheel_is_installed_by_its_checksum() {
    let files: Vec<String> = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".ci"))
        .unwrap()
        .map(|entry| format!(".ci/{}", entry.unwrap().file_name().into_string().unwrap()))
        .collect();
    let mut required = 0;
    for path in &files {
        let text = read(path);
        for line in text.lines().filter(|line| line.contains("pip\" install")) {
            assert!(line.contains("--require-hashes"), "{path}: {line}");
            let (_, file) = line.split_once("--requirement \"$").unwrap();
            let variable = file.trim_end_matches('"');
            let (_, named) = text.split_once(&format!("{variable}=")).unwrap();
            assert!(files.iter().any(|file| named.lines().next() == Some(file)), "{path}: {line}");
            required += 1;
        }
    }
    assert_eq!(required, 2);
}

/// Helm pushes the chart with our rights, and a program that the runner brings is another one each week.
#[test]
fn helm_is_fetched_before_it_runs() {
    let mut count = 0;
    for (file, text) in workflows() {
        // Each job by its steps.
        for job in text.split("\n    steps:\n").skip(1) {
            let ours = |line: &str| {
                line.trim_start().trim_start_matches("- ").trim_start_matches("run: ").starts_with("helm ")
            };
            let Some(first) = job.lines().position(ours) else { continue };
            let fetched = job.lines().position(|line| line.contains(".ci/helm \"$RUNNER_TEMP/helm\""));
            let found =
                job.lines().position(|line| line.contains("\"$RUNNER_TEMP/helm\" >>\"$GITHUB_PATH\""));
            assert!(
                fetched.is_some() && fetched < found && found < Some(first),
                "{file}: {fetched:?}, {found:?}, {first}"
            );
            count += 1;
        }
    }
    assert_eq!(count, 2);
}

#[cfg(unix)]
#[test]
fn an_archive_of_helm_with_another_checksum_is_not_unpacked() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    // A helm that somebody else has put there.
    fs::create_dir(path("linux-amd64")).unwrap();
    fs::write(path("linux-amd64/helm"), "#!/bin/sh\necho forged\n").unwrap();
    fs::set_permissions(path("linux-amd64/helm"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(path("bin")).unwrap();
    let curl = format!(
        "#!/bin/bash\nwhile [[ $1 != --output ]]; do shift; done\ntar --create --gzip --file \"$2\" --directory '{}' linux-amd64/helm\n",
        directory.path().display()
    );
    fs::write(path("bin/curl"), curl).unwrap();
    fs::set_permissions(path("bin/curl"), fs::Permissions::from_mode(0o755)).unwrap();
    let output = Command::new(".ci/helm")
        .arg(path("out"))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("PATH", format!("{}:{}", path("bin").display(), std::env::var("PATH").unwrap()))
        .output()
        .unwrap();
    assert!(!output.status.success(), "{output:?}");
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("FAILED") && !text.contains("forged"), "{text}");
    assert!(fs::read_dir(path("out")).unwrap().count() == 1 && !path("out/helm").exists());
}

/// Git on Windows would end their lines otherwise, and the shell takes that for a part of each command.
#[test]
fn every_system_checks_the_scripts_out_as_they_are() {
    assert!(read(".gitattributes").lines().any(|line| line == "* -text"));
}

/// macOS has Bash 3.2, the last with a licence that Apple likes; these came with 4.
#[test]
fn release_scripts_run_in_the_shell_of_macos() {
    let newer =
        ["mapfile", "readarray", "declare -A", "local -A", "local -n", "coproc", "|&", "&>>", ";;&", "@Q}"];
    for path in [".ci/dist", ".ci/pack"] {
        let text = read(path);
        let is_code = |(_, line): &(i32, &str)| !line.trim_start().starts_with('#');
        for (at, line) in (1..).zip(text.lines()).filter(is_code) {
            let found = newer.iter().find(|word| line.contains(**word));
            assert_eq!(found, None, "{path}:{at}: {line}");
            let mut expanded = line.split("${").skip(1).filter_map(|rest| rest.split_once('}'));
            let changes_case = expanded.any(|(name, _)| name.contains([',', '^']));
            assert!(!changes_case, "{path}:{at}: {line}");
        }
    }
}

/// The kubelet compares numbers, and the chart says the same ones.
#[test]
fn the_image_runs_as_a_numeric_user_that_is_not_root() {
    let dockerfile = read("Dockerfile");
    let last = dockerfile.lines().rev().find_map(|line| line.strip_prefix("USER "));
    assert_eq!(last, Some("65532:65532"));
}

/// An older compiler could not build it, and the tests would not say so: they run on the newest.
#[test]
fn the_compiler_of_a_release_has_at_least_the_minimum_version() {
    fn version(text: &str) -> Vec<u32> {
        text.split('.').map(|part| part.parse().unwrap()).collect()
    }
    let released = compiler_of_a_release();
    let minimum = env!("CARGO_PKG_RUST_VERSION");
    assert!(version(&released) >= version(minimum), "{released} is older than {minimum}");
}

fn compiler_of_a_release() -> String {
    let dockerfile = read("Dockerfile");
    let (_, image) = dockerfile.split_once(" rust:").unwrap();
    image.split_once('-').unwrap().0.to_owned()
}

#[test]
fn tests_and_releases_are_compiled_with_the_same_settings() {
    let toolchain = read("rust-toolchain.toml");
    let channel = format!("channel = \"{}\"", compiler_of_a_release());
    assert!(toolchain.lines().any(|line| line == channel), "no {channel} in rust-toolchain.toml");
    for (file, text) in workflows() {
        let another = text.lines().find(|line| line.contains("rustup") || line.contains("cargo +"));
        assert_eq!(another, None, "{file}");
    }
}

/// Cargo compiles a dependency with the union of all requested features: one line in the wrong section, and every build
/// of the daemon has the terminal's view or virtual time in it.
#[test]
fn the_daemon_compiles_nothing_that_only_the_sandbox_and_the_simulation_need() {
    let arguments = "tree --locked --package windlass --edges normal --prefix none --format".split(' ');
    let output = Command::new(env!("CARGO"))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(arguments.chain(["{p}|{f}"]))
        .output()
        .unwrap();
    let tree = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let crates: BTreeMap<&str, &str> = tree
        .lines()
        .filter_map(|line| {
            let (package, features) = line.split_once('|')?;
            Some((package.split(' ').next()?, features))
        })
        .collect();
    assert!(crates.contains_key("kube-client"), "{tree}");
    let unwanted = [
        "crossterm",
        "json-patch",
        "kube-runtime",
        "mimalloc",
        "ratatui",
        "regex-lite",
        "serde_ignored",
        "serde_yaml",
    ];
    for name in unwanted.into_iter().chain(["windlass-apiserver", "windlass-nodes", "windlass-sandbox"]) {
        assert!(!crates.contains_key(name), "the daemon compiles {name}");
    }
    for feature in ["test-util", "process"] {
        assert!(
            !crates["tokio"].split(',').any(|it| it.trim() == feature),
            "tokio has {feature}: {}",
            crates["tokio"]
        );
    }
}

/// `kubectl version | head -1` under `pipefail` fails with 141 whenever kubectl has more to say than `head` waits
/// for: a check that fails now and then and says nothing. `sed -n 1,20p` reads to the end. What `bash -c` runs has no
/// `pipefail`.
#[test]
fn no_script_pipes_into_a_reader_that_stops_early() {
    let scripts: Vec<String> = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".ci"))
        .unwrap()
        .map(|entry| format!(".ci/{}", entry.unwrap().file_name().into_string().unwrap()))
        .chain(["tests/kubectl.sh".to_owned()])
        .filter(|path| read(path).contains("pipefail"))
        .collect();
    assert!(scripts.len() > 5, "{scripts:?}");
    for path in scripts {
        let mut in_another_shell = false;
        for (at, line) in (1..).zip(read(&path).lines()) {
            in_another_shell |= line.contains("bash -c");
            let stops_early = ["| head", "| grep -q", "| grep -m"].iter().any(|reader| line.contains(reader));
            assert!(!stops_early || in_another_shell, "{path}:{at}: {line}");
            in_another_shell &= line.trim_end().ends_with('\\');
        }
    }
}
