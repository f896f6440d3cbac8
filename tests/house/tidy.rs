//! The rules of the architecture, each a test. `docs/architecture.md` lists the chief ones.

use std::fs;
use std::path::{Path, PathBuf};

use crate::sources::{
    Source, declared_for_tests, files, has_word, rooms_used, root, sources, tests, without_texts,
};

#[track_caller]
fn check(rule: &str, in_rooms: &[&str], broken: impl Fn(&Source) -> Option<String>) {
    check_all(rule, &sources(), in_rooms, broken);
}

#[track_caller]
fn check_all(rule: &str, all: &[Source], in_rooms: &[&str], broken: impl Fn(&Source) -> Option<String>) {
    let breaches: Vec<String> = all
        .iter()
        .filter(|source| in_rooms.is_empty() || in_rooms.iter().any(|room| source.path.starts_with(room)))
        .filter_map(|source| broken(source).map(|what| format!("{}: {what}", source.path)))
        .collect();
    assert!(breaches.is_empty(), "{rule}\n{}", breaches.join("\n"));
}

fn uses_only(source: &Source, allowed: &[&str]) -> Option<String> {
    let used = rooms_used(source.shipped());
    let foreign = used.iter().find(|room| !allowed.contains(&room.as_str()))?;
    Some(format!("uses crate::{foreign}"))
}

#[test]
fn plan_is_pure() {
    check(
        "plan/ uses plan, model and value crates only, and knows no time but its argument",
        &["plan/"],
        |s| {
            let words = ["async", "now()", "Instant", "tokio", "kube", "tracing", "parking_lot"];
            // Texts that users see may say them.
            let code = without_texts(s.shipped());
            let is_used =
                |word: &&&str| has_word(&code, word.trim_end_matches("()")) && code.contains(**word);
            let word = words.iter().find(is_used);
            word.map(|word| format!("says {word}")).or_else(|| uses_only(s, &["plan", "model"]))
        },
    );
}

#[test]
fn model_stands_on_nothing() {
    check("model/ uses nothing else of ours", &["model/"], |s| uses_only(s, &["model"]));
}

#[test]
fn runtime_knows_no_controller() {
    check("runtime/ never uses plan, controllers or sandbox", &["runtime/"], |s| {
        uses_only(s, &["runtime", "model", "metrics", "clock"])
    });
}

#[test]
fn the_engine_knows_no_controller() {
    check("engine/ uses no controller, and of plan/ only what all plans share", &["engine/"], |s| {
        let of_one = s.shipped().split("crate::plan::").skip(1).find(|rest| {
            let path = rest.split([';', '{', ' ', ')', ',', ']']).next().unwrap_or_default();
            path.contains("::")
        });
        let own = ["engine", "runtime", "plan", "model", "metrics", "clock"];
        of_one.map(|_| "uses the plan of one controller".to_owned()).or_else(|| uses_only(s, &own))
    });
}

/// The crates of ours that a crate is built from, as its `Cargo.toml` says.
fn own_dependencies(krate: &str) -> Vec<String> {
    let path = root().join("crates").join(krate).join("Cargo.toml");
    let text = fs::read_to_string(path).unwrap();
    let (_, dependencies) = text.split_once("\n[dependencies]\n").unwrap();
    let lines = dependencies.split("\n[").next().unwrap().lines();
    lines.filter_map(|line| line.strip_suffix(".workspace = true")).map(str::to_owned).collect()
}

#[test]
fn the_api_server_the_nodes_and_the_reader_of_manifests_use_nothing_else_of_ours() {
    for krate in ["apiserver", "nodes", "manifest"] {
        let own = own_dependencies(krate);
        assert!(own.contains(&"serde_json".to_owned()), "{krate}: {own:?}");
        // The grammar of schedules stands on nothing of ours itself, and both sides must read it alike.
        let others = own.iter().filter(|name| *name != "windlass-cron-schedule");
        let ours: Vec<_> = others.filter(|name| name.starts_with("windlass")).collect();
        assert!(ours.is_empty(), "{krate}: {ours:?}");
    }
}

#[test]
fn only_the_clock_reads_the_wall_clock() {
    check("only clock.rs reads the wall clock", &[], |s| {
        let reads = ["Timestamp::now", "SystemTime::now", "Zoned::now", "std::time::Instant"];
        let read = reads.iter().find(|read| s.code.contains(**read))?;
        let may = s.path == "clock.rs" || s.path.starts_with("crates/testkit/");
        (!may).then(|| format!("says {read}"))
    });
}

#[test]
fn only_main_functions_end_the_process() {
    check("only `main` functions end the process", &[], |s| {
        let is_main = s.path == "main.rs" || s.path.ends_with("/src/main.rs");
        (!is_main && s.code.contains("process::exit")).then(|| "calls process::exit".into())
    });
}

#[test]
fn only_three_files_write_to_the_api() {
    check(
        "only execute.rs, lease.rs and events.rs write to the API",
        &["controllers/", "engine/", "runtime/", "app.rs"],
        |s| {
            let may = [
                "engine/execute.rs",
                "engine/owned_writes.rs",
                "controllers/cronjob/execute.rs",
                "controllers/daemonset/execute.rs",
                "controllers/deployment/execute.rs",
                "controllers/endpoints/execute.rs",
                "controllers/garbage/execute.rs",
                "controllers/job/execute.rs",
                "controllers/namespace/execute.rs",
                "controllers/replicas/execute.rs",
                "controllers/revisions.rs",
                "controllers/rolling_update/execute.rs",
                "controllers/service_endpoints/execute.rs",
                "controllers/statefulset/execute.rs",
                "runtime/leader_election/lease.rs",
                "runtime/events/write.rs",
                "runtime/request.rs",
            ];
            let writes =
                ["request::post", "request::put", "request::patch", "request::delete", "Method::POST"];
            let write = writes.iter().find(|write| s.shipped().contains(**write))?;
            (!may.contains(&s.path.as_str())).then(|| format!("says {write}"))
        },
    );
}

#[test]
fn termination_messages_are_shown_in_one_place() {
    check("only answers to authorized requests show what a container said", &[], |s| {
        let may = s.path == "engine/explanations.rs";
        (!may && s.shipped().contains(".reveal()")).then(|| "says .reveal()".into())
    });
}

#[test]
fn every_listed_mutation_is_planted_once_and_no_other_is() {
    let mut planted: Vec<String> = Vec::new();
    for source in sources().iter().filter(|source| source.path != "mutations.rs") {
        let points = source.shipped().split("planted!(\"").skip(1);
        planted.extend(points.map(|rest| rest.split('"').next().unwrap().to_owned()));
    }
    planted.sort();
    let mut listed: Vec<&str> = windlass::mutations::ALL.concat();
    listed.sort_unstable();
    assert_eq!(planted, listed);
    assert!(listed.len() <= 40, "{} planted mistakes: a reader passes each; write a patch", listed.len());
}

#[test]
fn a_rule_has_at_most_one_mutation() {
    check("no function of plan/ has more than one planted mistake; see mutations.rs", &["plan/"], |s| {
        let mut functions = s.shipped().split("fn ").skip(1);
        let crowded = functions.find(|function| function.matches("planted!(").count() > 1)?;
        Some(format!("{} has several", crowded.split(['(', '<']).next().unwrap_or_default()))
    });
}

/// Above this, a file is looked at: a cut for length alone splits an idea in two.
const LONG: usize = 400;
/// And no file may have more.
const LONGEST: usize = 600;

#[test]
#[allow(clippy::print_stderr)] // A warning.
fn no_file_is_too_long() {
    let all = sources();
    let declared = declared_for_tests(&all);
    let is_test = |s: &Source| s.is_test(&declared);
    let too_long = |s: &Source| (!is_test(s) && s.lines() > LONGEST).then(|| format!("has {}", s.lines()));
    check("no file over 600 lines of code, its unit tests apart", &[], too_long);
    let tests = tests();
    assert!(tests.iter().any(|test| test.path == "tests/house/tidy.rs"));
    let too_long = |s: &Source| (s.lines() > LONGEST).then(|| format!("has {}", s.lines()));
    check_all("no file of tests or benchmarks over 600 lines of code", &tests, &[], too_long);
    for long in all.iter().filter(|s| !is_test(s)).chain(&tests).filter(|s| s.lines() > LONG) {
        eprintln!("warning: {} has {} lines of code: can its idea be split?", long.path, long.lines());
    }
}

#[test]
fn every_test_file_belongs_to_a_program_that_cargo_runs() {
    let manifests: String = ["Cargo.toml", "crates/planner-testkit/Cargo.toml"]
        .iter()
        .map(|path| fs::read_to_string(root().join(path)).unwrap())
        .collect();
    let mut programs = 0;
    for entry in fs::read_dir(root().join("tests")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(
            path.extension().is_none_or(|it| it != "rs"),
            "{name}: no target; move it into a program's folder"
        );
        if !path.is_dir() {
            continue;
        }
        assert!(
            manifests.contains(&format!("tests/{name}/main.rs\"")),
            "no target has the path tests/{name}/main.rs"
        );
        programs += 1;
        // The modules of a program are declared, or they are not compiled.
        let code: String = files(&path).iter().map(|file| fs::read_to_string(file).unwrap()).collect();
        for file in files(&path) {
            let stem = file.file_stem().unwrap().to_str().unwrap();
            let module = if stem == "mod" {
                file.parent().unwrap().file_name().unwrap().to_str().unwrap()
            } else {
                stem
            };
            let declared = code.contains(&format!("mod {module};\n"));
            assert!(declared || module == "main", "{}: not declared", file.display());
        }
    }
    assert_eq!(programs, 7);
}

#[test]
fn only_their_own_files_name_a_kind() {
    let own = [
        "model/",
        "plan/cronjob/",
        "plan/daemonset/",
        "plan/deployment/",
        "plan/disruption/",
        "plan/endpointslice/",
        "plan/resourcequota/",
        "plan/endpoints/",
        "plan/endpointslice_mirroring/",
        "plan/job/",
        "plan/namespace/",
        "plan/node_lifecycle/",
        "plan/outcome_of/",
        "plan/policy/",
        "plan/preview/",
        "plan/replicaset/",
        "plan/rolling_update/",
        "plan/statefulset/",
        "plan/taint_eviction/",
        "plan/clusterrole_aggregation.rs",
        "plan/pod_gc.rs",
        "plan/protection.rs",
        "plan/root_ca_cert.rs",
        "plan/serviceaccount.rs",
        "plan/ttl.rs",
        "controllers/clusterrole_aggregation.rs",
        "controllers/pod_gc.rs",
        "controllers/pv_protection.rs",
        "controllers/pvc_protection.rs",
        "controllers/root_ca_cert.rs",
        "controllers/serviceaccount.rs",
        "controllers/ttl_after_finished.rs",
        "controllers/cronjob",
        "controllers/daemonset",
        "controllers/deployment",
        "controllers/disruption",
        "controllers/endpoint_slice",
        "controllers/resource_quota",
        "controllers/endpoints",
        "controllers/service_endpoints",
        "controllers/job",
        "controllers/patch/cronjob.rs",
        "controllers/patch/disruption.rs",
        "controllers/patch/job.rs",
        "controllers/namespace",
        "controllers/node_lifecycle",
        "controllers/pods_on_nodes.rs",
        "controllers/replicas",
        "controllers/replicationcontroller.rs",
        "controllers/revisions.rs",
        "controllers/rolling_update",
        "controllers/statefulset",
        "controllers/taint_eviction",
        "controllers/registry.rs",
        // The rig of unit tests.
        "controllers/fixture.rs",
        // The API server keeps its client CAs in one.
        "http/authentication/client_ca.rs",
        // The explanations at /debug/deployments.
        "app/serving.rs",
        "mutations.rs",
    ];
    check("a kind is named in its model, plan and controller files and in the registry", &[], |s| {
        if s.path.starts_with("crates/") || own.iter().any(|own| s.path.starts_with(own)) {
            return None;
        }
        let code = without_texts(s.shipped());
        let kinds = windlass::controllers::registry::KINDS.iter().map(|entry| entry.resource.kind);
        // The election has one, too, and the garbage collector keeps its record on it.
        let is_lock = |kind: &str| {
            let election =
                ["runtime/", "app/", "engine/foreign_writers.rs", "controllers/garbage/", "args/", "config/"];
            kind == "Lease" && election.iter().any(|path| s.path.starts_with(path))
        };
        // `tower` has a trait of that name.
        let is_trait = |kind: &str| kind == "Service" && s.path.starts_with("runtime/client/");
        let mut kinds =
            kinds.chain(["DaemonSet", "StatefulSet"]).filter(|kind| !is_trait(kind) && !is_lock(kind));
        let kind = kinds.find(|kind| has_word(&code, kind))?;
        Some(format!("says {kind}"))
    });
}

#[test]
fn comments_name_what_they_are_about() {
    let all = ["src", "crates", "tests", "benches"].iter().flat_map(|room| files(&root().join(room)));
    let clauses: Vec<String> = all
        .filter_map(|file| {
            let text = fs::read_to_string(&file).unwrap();
            let comments = text.lines().filter_map(|line| line.trim_start().strip_prefix("//"));
            let mut said = comments.map(|text| text.trim_start_matches(['/', '!']).trim_start());
            let clause = said.find(|text| ["What ", "Who "].iter().any(|word| text.starts_with(word)))?;
            Some(format!("{}: {clause}", file.display()))
        })
        .collect();
    assert!(clauses.is_empty(), "a noun or a verb begins a comment\n{}", clauses.join("\n"));
}

#[test]
fn no_module_is_named_util_or_helper() {
    check("no module is called util or helpers", &[], |s| {
        let name = s.path.rsplit('/').next().unwrap();
        ["util", "utils", "helper", "helpers", "misc", "common"]
            .contains(&name.trim_end_matches(".rs"))
            .then(|| "says nothing about what it holds".into())
    });
}

/// The invariant codes in a text, such as S11. `%C3` is a byte of a URL and no code.
fn codes(text: &str) -> impl Iterator<Item = &str> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(['S', 'L', 'H', 'R', 'C']).filter_map(move |(at, _)| {
        let digits = text[at + 1..].bytes().take_while(u8::is_ascii_digit).count();
        let end = at + 1 + digits;
        let before = text[..at].chars().next_back();
        let is_whole = !before.is_some_and(|c| is_name(c) || c == '%')
            && !text[end..].chars().next().is_some_and(is_name);
        ((1..=2).contains(&digits) && is_whole).then(|| &text[at..end])
    })
}

#[test]
fn every_invariant_code_is_defined() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("docs/invariants.md")).unwrap();
    let mut defined: Vec<&str> =
        page.lines().filter_map(|line| line.strip_prefix("| ")?.split(' ').next()).flat_map(codes).collect();
    defined.sort_unstable();
    assert!(defined.windows(2).all(|pair| pair[0] != pair[1]), "a code is defined twice: {defined:?}");

    let mut all: Vec<PathBuf> =
        ["src", "crates", "tests", "benches"].iter().flat_map(|dir| files(&root.join(dir))).collect();
    let replays = fs::read_dir(root.join("crates/simulation/tests/sim")).unwrap();
    all.extend(replays.map(|entry| entry.unwrap().path()));
    let (mut used, mut undefined) = (0, Vec::new());
    for file in all {
        let text = fs::read_to_string(&file).unwrap();
        for code in codes(&text) {
            used += 1;
            if defined.binary_search(&code).is_err() {
                undefined.push(format!("{}: {code}", file.display()));
            }
        }
    }
    assert!(used > 200, "only {used} codes were found");
    assert!(undefined.is_empty(), "docs/invariants.md does not define\n{}", undefined.join("\n"));
}

/// The lines of a page outside of code blocks.
fn prose(page: &str) -> impl Iterator<Item = &str> {
    let mut in_code = false;
    page.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        in_code ^= fence;
        !in_code && !fence
    })
}

/// The anchor that GitHub makes of a heading, for links to it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn every_link_and_path_in_the_documentation_leads_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let docs = fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let mut pages: Vec<PathBuf> = docs.filter(|path| path.extension().is_some_and(|it| it == "md")).collect();
    let others = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "charts/windlass/README.md"];
    pages.extend(others.map(|page| root.join(page)));
    let (mut links, mut broken) = (0, Vec::new());
    for page in &pages {
        let text = fs::read_to_string(page).unwrap();
        for line in prose(&text) {
            let targets = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
            for target in targets.filter(|target| !target.contains("://")) {
                links += 1;
                let (path, section) = target.split_once('#').unwrap_or((target, ""));
                let path = if path.is_empty() { page.clone() } else { page.parent().unwrap().join(path) };
                let there = fs::read_to_string(&path).unwrap_or_default();
                let mut headings = prose(&there).filter(|line| line.starts_with('#')).map(anchor);
                if there.is_empty() || !section.is_empty() && !headings.any(|it| it == section) {
                    broken.push(format!("{}: {target}", page.display()));
                }
            }
            // A changelog names files as they were.
            let folders = ["src/", "crates/", "tests/", "docs/", "examples/", "deploy/", "charts/", ".ci/"];
            let quoted = line.split('`').skip(1).step_by(2).filter(|_| !page.ends_with("CHANGELOG.md"));
            for path in quoted.filter(|quoted| folders.iter().any(|folder| quoted.starts_with(folder))) {
                // `.ci/dist TARGET` is a command, and `tests/a.rs::b` a test in a file.
                let path = path.split([' ', ':']).next().unwrap();
                if !path.contains('{') && !root.join(path).exists() {
                    broken.push(format!("{}: {path}", page.display()));
                }
            }
        }
    }
    assert!(links > 80, "only {links} links were found");
    assert!(broken.is_empty(), "there is no such file or section:\n{}", broken.join("\n"));
}
