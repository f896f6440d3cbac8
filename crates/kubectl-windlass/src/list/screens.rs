//! The screens of a cluster with a stuck rollout, as `docs/screens.md` has them, and that no line is too long.
//!
//! `UPDATE_EXPECT=1 cargo test --lib screens` writes the page anew.

use std::path::Path;

use serde_json::{Value, json};

use super::table::{self, Look};
use crate::output::Style;
use crate::rollout::tests::{at, stuck};
use crate::rollout::{self, Assessment, Workload};
use crate::status::tree;
use crate::target::Kind;
use windlass_terminal::layout::columns_of;

pub(super) const STYLE: Style = Style { colour: false, unicode: true };

fn metadata(namespace: &str, name: &str) -> Value {
    json!({"namespace": namespace, "name": name, "uid": format!("uid-{name}"), "resourceVersion": "5", "generation": 1,
           "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"app": name}})
}

fn template(name: &str) -> Value {
    json!({"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "app", "image": "app:1"}]}})
}

fn pod(namespace: &str, owner: (&str, &str), name: &str, node: &str, waiting: (&str, &str)) -> Value {
    let mut metadata = metadata(namespace, name);
    metadata["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": owner.0, "name": owner.1,
                                          "uid": format!("uid-{}", owner.1), "controller": true}]);
    metadata["labels"] = json!({"app": owner.1, "controller-revision-hash": "5d8f"});
    let state = json!({"waiting": {"reason": waiting.0, "message": waiting.1}});
    json!({"metadata": metadata, "spec": {"nodeName": node}, "status": {"phase": "Pending",
        "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:01:10Z"}],
        "containerStatuses": [{"name": "app", "restartCount": 2, "state": state}]}})
}

/// A DaemonSet whose pod on one of two nodes crashes.
fn agent() -> Workload {
    let spec =
        json!({"selector": {"matchLabels": {"app": "node-agent"}}, "template": template("node-agent")});
    let counts = json!({"observedGeneration": 1, "desiredNumberScheduled": 2, "currentNumberScheduled": 2,
                        "updatedNumberScheduled": 2, "numberReady": 1, "numberAvailable": 1});
    let mut revision = metadata("ops", "node-agent-5d8f");
    revision["labels"] = json!({"app": "node-agent", "controller-revision-hash": "5d8f"});
    revision["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "node-agent",
                                          "uid": "uid-node-agent", "controller": true}]);
    let template = json!({"spec": {"template": {"$patch": "replace", "metadata": template("node-agent")["metadata"],
                                                "spec": template("node-agent")["spec"]}}});
    let owner = ("DaemonSet", "node-agent");
    let crash = ("CrashLoopBackOff", "back-off 40s restarting failed container=app pod=node-agent-x7k2p");
    let mut ready = pod("ops", owner, "node-agent-b4m9c", "node-1", ("", ""));
    ready["status"] = json!({"phase": "Running", "conditions": [
        {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:10Z"}]});
    let node = |name: &str| json!({"metadata": {"name": name, "uid": name, "resourceVersion": "1"}});
    Workload {
        kind: Kind::DaemonSet,
        object: json!({"metadata": metadata("ops", "node-agent"), "spec": spec, "status": counts}),
        revisions: vec![json!({"metadata": revision, "revision": 1, "data": template})],
        pods: vec![ready, pod("ops", owner, "node-agent-x7k2p", "node-2", crash)],
        nodes: vec![node("node-1"), node("node-2")].into(),
        ..Workload::default()
    }
}

/// A Job that has failed.
fn job() -> Workload {
    let failed = json!({"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded",
                        "message": "Job has reached the specified backoff limit",
                        "lastTransitionTime": "2026-01-01T00:01:30Z"});
    let spec = json!({"selector": {"matchLabels": {"app": "migrate"}}, "template": template("migrate"), "completions": 1});
    let status = json!({"startTime": "2026-01-01T00:00:30Z", "failed": 7, "conditions": [failed]});
    let object = json!({"metadata": metadata("shop", "migrate"), "spec": spec, "status": status});
    Workload { kind: Kind::Job, object, ..Workload::default() }
}

/// A CronJob that is due in the night.
fn cron_job() -> Workload {
    let object =
        json!({"metadata": metadata("shop", "report"), "spec": {"schedule": "0 3 * * *", "jobTemplate": {}}});
    Workload { kind: Kind::CronJob, object, ..Workload::default() }
}

/// A Deployment of which nothing is left to do.
fn complete(name: &str) -> Workload {
    let spec = json!({"replicas": 2, "selector": {"matchLabels": {"app": name}}, "template": template(name)});
    let status = json!({"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2, "availableReplicas": 2});
    let object = json!({"metadata": metadata("shop", name), "spec": spec, "status": status});
    Workload { is_partial: true, object, ..Workload::default() }
}

/// A Deployment whose ReplicaSets the user may not read.
fn unreadable() -> Workload {
    let mut workload = complete("billing");
    workload.object["status"]["availableReplicas"] = json!(1);
    workload.unreadable = vec!["cannot list replicasets: replicasets.apps is forbidden".to_owned()];
    workload
}

pub(super) fn cluster() -> Vec<Assessment> {
    let mut web = stuck();
    web.object["status"]["conditions"][0]["reason"] = json!("ProgressDeadlineExceeded");
    web.object["status"]["conditions"][0]["lastUpdateTime"] = json!("2026-01-01T00:00:25Z");
    let workloads = [complete("cart"), agent(), job(), web, unreadable(), complete("search"), cron_job()];
    let mut all: Vec<Assessment> =
        workloads.iter().map(|it| rollout::assess(it, at("00:02:00")).unwrap()).collect();
    table::worst_first(&mut all);
    all
}

fn list(width: usize) -> String {
    let look = Look { style: STYLE, width: Some(width), shows_namespace: true, ..Look::default() };
    table::text(&cluster(), &look)
}

fn status(width: usize) -> String {
    tree::text(&rollout::assess(&stuck(), at("00:02:00")).unwrap(), STYLE, Some(width))
}

#[test]
fn no_line_is_longer_than_the_terminal_and_what_is_cut_says_so() {
    for width in [20, 40, 80, 120, 200] {
        let daemon_set = tree::text(&rollout::assess(&agent(), at("00:02:00")).unwrap(), STYLE, Some(width));
        for text in [list(width), status(width), daemon_set] {
            for line in text.lines() {
                assert!(columns_of(line) <= width, "{width}: {line}");
            }
        }
    }
    // The whole reason is there at each width that has room for it.
    for width in [40, 80, 120, 200] {
        let words: String =
            status(width).split_whitespace().filter(|word| !["│", "├─", "└─"].contains(word)).collect();
        assert!(
            words.contains("Failedtopullimage:notfound(9times,last14sago)"),
            "{width}: {}",
            status(width)
        );
        let listed: String = list(width).split_whitespace().collect();
        assert!(
            listed.contains("ImagePullBackOff:Back-offpullingimage\"app:2\""),
            "{width}: {}",
            list(width)
        );
        assert!(listed.contains("BackoffLimitExceeded"), "{width}: {}", list(width));
    }
}

#[test]
fn the_numbers_of_a_rollout_say_what_they_count() {
    let head = status(120).lines().next().unwrap().to_owned();
    assert!(head.contains("3/3 available · 1/3 updated"), "{head}");
    assert!(
        head.contains("▒▒▒▒▒▒▒▒▒▒▒▒"),
        "available pods of the old template have a sign of their own: {head}"
    );
    let rows = list(200);
    let web = rows.lines().find(|line| line.contains("deploy/web")).unwrap();
    let cells: Vec<&str> = web.split_whitespace().take(7).collect();
    assert_eq!(cells, ["shop", "deploy/web", "2", "stuck", "1/3", "3/3", "1m35s"]);
}

#[test]
fn the_worst_comes_first_and_what_is_at_rest_is_a_count() {
    let text = list(200);
    let names: Vec<&str> = text.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1)).collect();
    assert_eq!(&names[..4], ["deploy/web", "job/migrate", "ds/node-agent", "deploy/billing"], "{text}");
    assert!(text.ends_with("2 complete, 1 scheduled: list --all names them\n"), "{text}");
    let agent = text.lines().find(|line| line.contains("node-agent")).unwrap();
    assert!(agent.contains("waiting") && agent.contains("1/2"), "{agent}");
    let billing = text.lines().find(|line| line.contains("billing")).unwrap();
    assert!(billing.contains("unfinished") && billing.contains("the reason cannot be told"), "{billing}");
}

#[test]
fn the_documented_screens_are_those_of_the_program() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/screens.md");
    let before = std::fs::read_to_string(&path).unwrap();
    let mut after = before.clone();
    for (name, text) in [
        ("list, 80 columns", list(80)),
        ("list, 200 columns", list(200)),
        ("status, 80 columns", status(80)),
        ("status, 200 columns", status(200)),
    ] {
        let (start, end) = (format!("<!-- {name} -->\n"), "<!-- end -->");
        let (head, rest) = after.split_once(&start).unwrap_or_else(|| panic!("the page has no {start:?}"));
        let (_, tail) = rest.split_once(end).unwrap();
        after = format!("{head}{start}```text\n{text}```\n{end}{tail}");
    }
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, &after).unwrap();
    } else {
        assert!(before == after, "docs/screens.md is out of date; UPDATE_EXPECT=1 writes it anew:\n{after}");
    }
}
