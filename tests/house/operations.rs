//! The names that operators rely on exist in the code: metrics, flags, dashboards and alerts.
//!
//! `UPDATE_EXPECT=1 cargo test --test house operations` writes the list of metrics and the tables of `docs/flags.md`
//! and `docs/metrics.md` anew.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use clap::CommandFactory;
use serde_json::Value;
use windlass::args::Args;
use windlass::metrics::Metrics;
use windlass_testkit::manifests;

fn file(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn read(path: &str) -> String {
    fs::read_to_string(file(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Compares with a file, or rewrites it.
#[track_caller]
fn expect(path: &str, is: &str) {
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(file(path), is).unwrap();
    }
    assert!(read(path) == is, "{path} is out of date; UPDATE_EXPECT=1 writes it anew:\n{is}");
}

/// The type and labels of each metric of ours; those of the process are a collector of their own.
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
    expect("tests/house/operations/metrics.txt", &lines.concat());
}

#[test]
fn no_label_has_values_that_a_user_can_choose() {
    let bounded = [
        "action",
        "backoffLimit",
        "cause",
        "code",
        "completion_mode",
        "event",
        "group",
        "host",
        "kind",
        "manager",
        "method",
        "name",
        "operation",
        "reason",
        "resource",
        "result",
        "state",
        "status",
        "topology",
        "traffic_distribution",
        "type",
        "verb",
        "version",
    ];
    for (name, (_, labels)) in metrics() {
        if name == "kubernetes_build_info" {
            continue; // All of it is known when the program is built.
        }
        // Upstream has these labels; a hundred values get one each.
        let of_upstream = match name {
            "job_controller_jobs_by_external_controller_total" => "controller_name",
            _ if name.starts_with("pod_gc_collector_") => "namespace",
            _ if name.starts_with("node_collector_") => "zone",
            _ => "",
        };
        for label in labels {
            let may = bounded.contains(&&*label) || *label == *of_upstream;
            assert!(may, "{name} has the label {label}");
        }
    }
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
    // A name with a parenthesis behind it is a function.
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
