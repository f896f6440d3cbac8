//! What operators rely on is what the code has: metrics, flags, dashboards and alerts.
//!
//! `UPDATE_EXPECT=1 cargo test --test operations` writes the list of metrics and the tables of `docs/flags.md` and
//! `docs/metrics.md` anew.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use clap::CommandFactory;
use serde_json::{Value, json};
use windlass::args::Args;
use windlass::config::ControllerConfig;
use windlass::metrics::Metrics;
use windlass::runtime::election::ElectionOptions;
use windlass_testkit::build::deployment;
use windlass_testkit::cluster::{Cluster, condition, unlimited};
use windlass_testkit::manifests;
use windlass_testkit::rights::{self, Rights};

fn file(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn read(path: &str) -> String {
    fs::read_to_string(file(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Compares with a file, or writes it anew.
#[track_caller]
fn expect(path: &str, is: &str) {
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(file(path), is).unwrap();
    }
    assert!(read(path) == is, "{path} is out of date; UPDATE_EXPECT=1 writes it anew:\n{is}");
}

/// The type and labels of each metric of ours; those of the process come from another crate.
fn metrics() -> BTreeMap<&'static str, (&'static str, Vec<String>)> {
    let metrics = Metrics::new();
    metrics.described().iter().map(|it| (it.name, (it.kind.name(), it.labels.clone()))).collect()
}

#[test]
fn metrics_have_the_names_types_and_labels_that_dashboards_know() {
    let lines: Vec<String> = metrics()
        .iter()
        .map(|(name, (kind, labels))| format!("{name} {kind} {{{}}}\n", labels.join(",")))
        .collect();
    expect("tests/operations/metrics.txt", &lines.concat());
}

#[test]
fn no_label_has_values_that_a_user_can_choose() {
    let bounded = [
        "code", "group", "host", "manager", "method", "name", "reason", "resource", "type", "verb", "version",
    ];
    for (name, (_, labels)) in metrics() {
        if name == "kubernetes_build_info" {
            continue; // All of it is known when the program is built.
        }
        for label in labels {
            assert!(bounded.contains(&&*label), "{name} has the label {label}");
        }
    }
}

/// The metrics of a text in Prometheus' format: type and labels by name.
fn scraped(text: &str) -> BTreeMap<String, (String, BTreeSet<String>)> {
    let mut all = BTreeMap::new();
    let mut current = (String::new(), String::new());
    let label = regex_lite::Regex::new(r#"[{,]([a-z_]+)=""#).unwrap();
    for line in text.lines() {
        if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            current = (name.to_owned(), kind.to_owned());
        } else if !line.starts_with('#') {
            let labels = label.captures_iter(line).map(|c| c[1].to_owned()).filter(|label| label != "le");
            let entry: &mut (String, BTreeSet<String>) =
                all.entry(current.0.clone()).or_insert((current.1.clone(), BTreeSet::new()));
            entry.1.extend(labels);
        }
    }
    all
}

#[tokio::test(start_paused = true)]
async fn hundreds_of_pods_for_one_deployment_delay_no_rollout_of_another() {
    let cluster = Cluster::new().await;
    // With the rate limit of an installation: 20 requests per second, 30 at once.
    let _daemon = cluster.start_with(1, ControllerConfig::default(), |router| router);
    for name in ["large", "small"] {
        cluster.create(deployment(name).replicas(1)).await;
        cluster.rolled_out(name).await;
    }
    tokio::time::sleep(Duration::from_secs(10)).await;
    cluster.patch("large", json!({"spec": {"replicas": 300}})).await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    cluster.set_image("small", "v2").await;
    let with_image = |cluster: &Cluster, kind: &str, spec: &str| {
        let image = format!("{spec}/containers/0/image");
        cluster.objects(kind).iter().filter(|object| object.pointer(&image) == Some(&json!("app:v2"))).count()
    };
    let has_set = |cluster: &Cluster| with_image(cluster, "ReplicaSet", "/spec/template/spec") > 0;
    cluster.eventually(1, "the other Deployment has its new ReplicaSet", has_set).await;
    let has_pod = |cluster: &Cluster| with_image(cluster, "Pod", "/spec") > 0;
    cluster.eventually(1, "the new ReplicaSet has its pod", has_pod).await;
    let pods = cluster.objects("Pod").len();
    assert!(pods < 200, "the batch must be under way all the time: there are {pods} pods");
    cluster.eventually(10, "the other Deployment is complete", |cluster| cluster.is_complete("small")).await;
    cluster.eventually(30, "the first Deployment is complete", |cluster| cluster.is_complete("large")).await;
}

#[tokio::test(start_paused = true)]
async fn a_scrape_shows_what_the_list_promises_and_counts_what_happened() {
    let cluster = Cluster::new().await;
    let daemon = cluster.start_controllers(1);
    cluster.create(deployment("web").replicas(3)).await;
    cluster.rolled_out("web").await;
    cluster.set_image("web", "v2").await;
    cluster.rolled_out("web").await;
    tokio::time::sleep(Duration::from_secs(5)).await;

    let text = daemon.metrics.render();
    let known = metrics();
    let scraped = scraped(&text);
    for (name, (kind, labels)) in &scraped {
        if name.starts_with("process_") {
            continue;
        }
        let (known_kind, known_labels) =
            known.get(name.as_str()).unwrap_or_else(|| panic!("{name} is not listed"));
        assert_eq!(kind, known_kind, "{name}");
        assert_eq!(*labels, known_labels.iter().cloned().collect(), "{name}");
    }
    for line in [
        "windlass_rollouts_started_total 2",
        "windlass_rollouts_finished_total 2",
        "windlass_rollouts_stuck{reason=\"ProgressDeadlineExceeded\"} 0",
        "windlass_rollout_duration_seconds_count 2",
        "windlass_rollout_first_available_seconds_count 2",
        "windlass_pods_created_total 6",
        "windlass_pods_deleted_total 3",
        "running_managed_controllers{manager=\"windlass\",name=\"deployment-controller\"} 1",
    ] {
        assert!(text.contains(line), "{line} is missing in\n{text}");
    }
    for part in ["windlass_informer_bytes", "rest_client_response_size_bytes", "kubernetes_build_info"] {
        assert!(scraped.contains_key(part), "{part} is missing");
    }
    assert!(!text.contains("windlass_foreign_writes_total{"), "nobody else was there");
}

#[tokio::test(start_paused = true)]
async fn a_rollout_that_gets_stuck_is_counted_and_shown_until_it_moves() {
    let cluster = Cluster::new().await;
    let daemon = cluster.start_controllers(1);
    cluster.create(deployment("web").replicas(2)).await;
    cluster.rolled_out("web").await;
    cluster.patch("web", json!({"spec": {"progressDeadlineSeconds": 30}})).await;
    cluster.set_image("web", "broken").await;
    let stuck = |c: &Cluster| condition(&c.deployment("web"), "Progressing") == "ProgressDeadlineExceeded";
    cluster.eventually(120, "the rollout is stuck", stuck).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let text = daemon.metrics.render();
    assert!(text.contains("windlass_rollouts_failed_total{reason=\"ProgressDeadlineExceeded\"} 1"), "{text}");
    assert!(text.contains("windlass_rollouts_stuck{reason=\"ProgressDeadlineExceeded\"} 1"), "{text}");
    cluster.set_image("web", "v3").await;
    cluster.rolled_out("web").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(
        daemon.metrics.render().contains("windlass_rollouts_stuck{reason=\"ProgressDeadlineExceeded\"} 0")
    );
}

/// The names of metrics in an expression.
fn names(expression: &str) -> BTreeSet<String> {
    let without = |text: &str, pattern: &str| {
        regex_lite::Regex::new(pattern).unwrap().replace_all(text, " ").into_owned()
    };
    let mut text = without(expression, r#""[^"]*""#);
    for pattern in
        [r"\{[^}]*\}", r"\[[^\]]*\]", r"\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)"]
    {
        text = without(&text, pattern);
    }
    // What a parenthesis follows is a function.
    let name = regex_lite::Regex::new(r"[a-zA-Z_:][a-zA-Z0-9_:]*\s*\(?").unwrap();
    name.find_iter(&text)
        .map(|found| found.as_str().trim().to_owned())
        .filter(|word| !word.ends_with('(') && !["and", "or", "unless", "job"].contains(&word.as_str()))
        .collect()
}

#[track_caller]
fn check_expressions(what: &str, expressions: &[String]) {
    assert!(expressions.len() > 10, "{what} has only {} expressions", expressions.len());
    let known = metrics();
    let of_the_process = Metrics::new().render();
    for expression in expressions {
        let names = names(expression);
        assert!(!names.is_empty(), "{what}: {expression} names no metric");
        for name in names {
            let base = ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|suffix| name.strip_suffix(suffix))
                .filter(|base| known.get(base).is_some_and(|(kind, _)| *kind == "histogram"));
            let is_plain = known.get(name.as_str()).is_some_and(|(kind, _)| *kind != "histogram");
            let is_process =
                name.starts_with("process_") && of_the_process.contains(&format!("# TYPE {name} "));
            assert!(base.is_some() || is_plain || is_process, "{what}: there is no {name} in: {expression}");
        }
    }
}

#[test]
fn every_metric_in_an_alert_exists() {
    let rules: Value = manifests::object(&read("charts/windlass/files/prometheus-rules.yaml"));
    let rules =
        rules["groups"].as_array().unwrap().iter().flat_map(|group| group["rules"].as_array().unwrap());
    let expressions: Vec<String> = rules
        .map(|rule| {
            assert!(rule["annotations"]["description"].is_string(), "{rule} says not what to do");
            rule["expr"].as_str().unwrap().to_owned()
        })
        .collect();
    check_expressions("the alert rules", &expressions);
}

#[test]
fn every_metric_in_the_dashboard_exists_and_every_metric_of_ours_is_in_it() {
    let dashboard: Value =
        serde_json::from_str(&read("charts/windlass/files/grafana-dashboard.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let expressions: Vec<String> = targets.map(|it| it["expr"].as_str().unwrap().to_owned()).collect();
    check_expressions("the dashboard", &expressions);
    let all = expressions.concat();
    // A list is no rate of anything, and an unreadable object is an alert.
    let elsewhere = ["windlass_informer_lists_total", "windlass_informer_undecodable_objects_total"];
    for name in metrics().keys().filter(|name| name.starts_with("windlass_") && !elsewhere.contains(name)) {
        assert!(all.contains(name), "the dashboard does not show {name}");
    }
    let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len(), "each panel has an id of its own");
}

/// A page with the text between these two marks replaced.
fn with_table(page: &str, mark: &str, table: &str) -> String {
    let (begin, end) = (format!("<!-- {mark} -->\n"), format!("<!-- /{mark} -->\n"));
    let (head, rest) = page.split_once(&begin).unwrap_or_else(|| panic!("the page has no {begin}"));
    let (_, tail) = rest.split_once(&end).unwrap_or_else(|| panic!("the page has no {end}"));
    format!("{head}{begin}{table}{end}{tail}")
}

fn cell(text: &str) -> String {
    text.replace('\n', " ").replace('|', "\\|")
}

/// One row per flag, in the order of the names.
fn table_of_flags() -> String {
    let mut rows = BTreeMap::new();
    for argument in Args::command().get_arguments() {
        let Some(long) = argument.get_long().filter(|long| !["help", "version"].contains(long)) else {
            continue;
        };
        let group = argument.get_help_heading().unwrap_or_default().trim_end_matches(" flags");
        let default = argument.get_default_values();
        let default: Vec<_> = default.iter().map(|value| value.to_string_lossy()).collect();
        let short = argument.get_short().map_or(String::new(), |short| format!("`-{short}`, "));
        let default = default.join(",").replace('*', "\\*");
        let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
        rows.insert(
            long.to_owned(),
            format!("| {short}`--{long}` | {default} | {group} | {} |\n", cell(&help)),
        );
    }
    let rows: Vec<String> = rows.into_values().collect();
    format!("| Flag | Default | Group | Meaning |\n|---|---|---|---|\n{}", rows.concat())
}

fn table_of_metrics() -> String {
    let mut text = String::from("| Metric | Type | Labels | Meaning |\n|---|---|---|---|\n");
    for it in Metrics::new().described() {
        let labels = it.labels.join(", ");
        text += &format!("| `{}` | {} | {labels} | {} |\n", it.name, it.kind.name(), cell(it.help));
    }
    text
}

#[test]
fn the_documentation_has_the_flags_and_metrics_of_the_code() {
    for (page, mark, table) in
        [("docs/flags.md", "flags", table_of_flags()), ("docs/metrics.md", "metrics", table_of_metrics())]
    {
        expect(page, &with_table(&read(page), mark, &table));
    }
}

#[tokio::test(start_paused = true)]
async fn everything_is_synced_again_from_time_to_time() {
    let cluster = Cluster::new().await;
    let resync_period = Some(Duration::from_secs(3600));
    let daemon = cluster.start_with(1, ControllerConfig { resync_period, ..unlimited() }, |router| router);
    cluster.create(deployment("web").replicas(1)).await;
    cluster.rolled_out("web").await;
    // The progress deadline, which wakes the key once more, is over by then.
    tokio::time::sleep(Duration::from_secs(1500)).await;
    let adds = || {
        let text = daemon.metrics.render();
        let line = text.lines().find(|line| line.starts_with("workqueue_adds_total{name=\"deployment\"}"));
        line.unwrap().rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()
    };
    let before = adds();
    tokio::time::sleep(Duration::from_secs(2000)).await;
    assert_eq!(adds(), before, "not yet");
    tokio::time::sleep(Duration::from_secs(3 * 7200)).await;
    assert!((before + 3..=before + 6).contains(&adds()), "{} more", adds() - before);
}

/// Runs the daemon's program until it ends: exit code, standard output, standard error.
fn windlass(flags: &[&str], env: &[(&str, &str)]) -> (Option<i32>, String, String) {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_windlass"));
    let output = command.args(flags).envs(env.iter().copied()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn a_flag_wins_over_the_environment_and_the_environment_over_the_file() {
    let mut config = tempfile::NamedTempFile::new().unwrap();
    std::io::Write::write_all(&mut config, b"kube-api-qps: 1\nkube-api-burst: 2\nv: 3\n").unwrap();
    let path = config.path().to_str().unwrap();
    let env = [("WINDLASS_KUBE_API_BURST", "20"), ("WINDLASS_V", "5"), ("WINDLASS_CONFIG", path)];
    let (code, printed, _) = windlass(&["--print-config", "-v=7"], &env);
    assert_eq!(code, Some(0));
    let config: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(
        [&config["kube-api-qps"], &config["kube-api-burst"], &config["v"], &config["secure-port"]],
        [&json!(1.0), &json!(20), &json!(7), &json!(10257)]
    );
}

#[test]
fn what_cannot_be_used_ends_the_program_with_code_two_before_anything_is_started() {
    for (flags, words) in [
        (&["--controllers=job"][..], "--controllers must be a list of *, deployment-controller"),
        (&["--tls-cert-file=a"], "--tls-private-key-file"),
        (&["--cluster-cidr=10.0.0.0/8"], "keep it on its command line"),
        (&["--config=/does/not/exist"], "--config /does/not/exist"),
        (&["--kube-api-qps=many"], "--kube-api-qps"),
    ] {
        let (code, _, said) = windlass(flags, &[]);
        assert!(code == Some(2) && said.contains(words), "{flags:?}: {code:?} {said}");
        assert!(!said.contains("environment variable"), "{said}");
    }
    // As a Service called `windlass-secure` sets it in each pod of its namespace.
    let (code, _, said) = windlass(&[], &[("WINDLASS_SECURE_PORT", "tcp://10.0.0.1:443")]);
    assert_eq!(code, Some(2));
    assert!(said.contains("the value comes from the environment variable WINDLASS_SECURE_PORT"), "{said}");
}

#[test]
fn the_help_is_grouped_as_upstreams() {
    let (_, help, _) = windlass(&["--help"], &[]);
    for group in
        ["Generic", "Leader election", "Secure serving", "Authentication", "Authorization", "Logs", "Misc"]
    {
        assert!(help.contains(&format!("{group} flags:")), "{group} is missing in\n{help}");
    }
}

/// The real API server of `tests/apiserver.rs` says more, where there is one.
#[tokio::test(start_paused = true)]
async fn nothing_is_asked_of_the_api_server_without_a_right_that_ships() {
    const AGENT: &str = "with-rights";
    let election = ElectionOptions { namespace: Some("shop".into()), ..ElectionOptions::default() };
    let (manifest, lease) = (rights::manifest(), json!([election.name]));
    let names: Vec<&Value> = manifest
        .iter()
        .filter_map(|object| object["rules"].as_array())
        .flatten()
        .map(|rule| &rule["resourceNames"])
        .filter(|names| !names.is_null())
        .collect();
    assert_eq!(names, [&lease], "the Lease has the default name, and nothing else is limited to a name");

    let cluster = Cluster::new().await;
    let _daemon = cluster.start(1, AGENT, Some(election));
    cluster.create(deployment("web").replicas(3).history(0)).await;
    cluster.rolled_out("web").await;
    cluster.set_image("web", "v2").await;
    cluster.rolled_out("web").await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let used: Rights = cluster
        .log
        .lock()
        .unwrap()
        .iter()
        .filter(|request| request.user_agent == AGENT)
        .map(|it| rights::right(it.verb, it.group, &(it.kind.to_lowercase() + "s"), it.subresource))
        .collect();
    assert!(used.contains("delete replicasets.apps") && used.len() > 12, "{used:?}");
    let granted = rights::granted(&manifest);
    assert_eq!(used.difference(&granted).collect::<Vec<_>>(), [""; 0]);
}
