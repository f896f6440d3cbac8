//! The rules of the differential run, which need no cluster: how recordings become comparable, which differences count,
//! and that `docs/differences.md` is what the code declares.

#[path = "../differential/harness/mod.rs"]
mod harness;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use harness::canonical::Canonical;
use harness::compare::{ABSENT, compare};
use harness::coverage::{
    CRON_JOB, DEPLOYMENT, JOB, POD_GC, REPLICA_SET, REPLICATION_CONTROLLER, STATEFUL_SET,
};
use harness::declared::{GENERAL, NOISE, differs, fits};
use harness::facts::{ALL_STEPS, Facts, Key, facts};
use harness::recording::{Change, What};
use harness::rows::{ALL, THROTTLED_STATUS};
use harness::stage::{Script, Step};
use harness::ties::ties;
use harness::unseen::UNSEEN;
use harness::{table, workloads};
use serde_json::{Value, json};

const PAGE: &str = "docs/differences.md";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn change(version: u64, what: What, kind: &'static str, object: Value) -> Change {
    Change { version, what, kind, object }
}

fn replica_set(name: &str, hash: &str, uid: &str) -> Value {
    json!({
        "metadata": {
            "name": name, "uid": uid, "labels": {"pod-template-hash": hash},
            "ownerReferences": [{"kind": "Deployment", "name": "web", "uid": "u-web", "controller": true}],
        },
        "spec": {"replicas": 1},
    })
}

fn pod(name: &str, uid: &str, owner: &str) -> Value {
    json!({
        "metadata": {
            "name": name, "uid": uid,
            "ownerReferences": [{"kind": "ReplicaSet", "name": owner, "uid": "u-replica-set", "controller": true}],
        },
        "spec": {"containers": [{"name": "app", "image": "app:v1"}]},
        "status": {"phase": "Pending"},
    })
}

fn web() -> Value {
    json!({"metadata": {"name": "web", "uid": "u-web"}, "spec": {"replicas": 1}})
}

/// A Deployment by the script, and a ReplicaSet and a pod by a controller, under names of its choice.
fn rollout(hash: &str, suffix: &str) -> Vec<Change> {
    let replica_set_name = format!("web-{hash}");
    let pod_name = format!("{replica_set_name}-{suffix}");
    let event = json!({
        "metadata": {"name": format!("{replica_set_name}.17"), "uid": format!("u-event-{suffix}")},
        "involvedObject": {"kind": "ReplicaSet", "name": replica_set_name},
        "type": "Normal", "reason": "SuccessfulCreate", "message": format!("Created pod: {pod_name}"),
        "source": {"component": "replicaset-controller"}, "reportingComponent": "replicaset-controller",
    });
    vec![
        change(1, What::Added, "Deployment", web()),
        change(2, What::Added, "ReplicaSet", replica_set(&replica_set_name, hash, &format!("u-{hash}"))),
        change(3, What::Added, "Pod", pod(&pod_name, &format!("u-{suffix}"), &replica_set_name)),
        change(4, What::Added, "Event", event),
    ]
}

fn script() -> Script {
    let own_names = BTreeSet::from([("Deployment".to_owned(), "web".to_owned())]);
    let steps = vec![Step { label: "create".into(), end: 10, complaints: Vec::new() }];
    let mut script = Script::default();
    (script.steps, script.own_names) = (steps, own_names);
    script
}

fn key(section: &'static str, path: &str) -> Key {
    Key { step: 0, section, object: "Deployment/web".into(), path: path.into() }
}

#[test]
fn random_names_hashes_and_uids_are_no_difference() {
    let (one, other) = (rollout("5f5879765d", "rcx4l"), rollout("7c9b6bd4f", "zz2kq"));
    assert_eq!(compare(&facts(&one, &script()), &facts(&other, &script())), []);
}

#[test]
fn a_name_without_an_object_is_recognized_by_its_suffix() {
    let own = BTreeSet::from([("Deployment".to_owned(), "web".to_owned())]);
    let canonical = Canonical::new(&rollout("5f5879765d", "rcx4l"), &own);
    for (concrete, expected) in [
        (r#"pods "web-5f5879765d-bcdfg" is forbidden"#, r#"pods "web#1-POD" is forbidden"#),
        (r#"pods "web-5f5879765d-" is forbidden"#, r#"pods "web#1-" is forbidden"#),
        (r#"replicasets.apps "web-6d4b75cb6d" is forbidden"#, r#"replicasets.apps "web#?" is forbidden"#),
        ("my-web-bcdfgh and web-page stay", "my-web-bcdfgh and web-page stay"),
        ("2026-01-01T10:00:00Z", "TIME"),
    ] {
        assert_eq!(canonical.text(concrete), expected);
    }
}

/// Two ready pods of a ReplicaSet that wants one, of which one is deleted a minute later.
fn scale_down(names: [&str; 2], ready_at: [&str; 2], change_first: fn(&mut Value)) -> Vec<Change> {
    let mut owner = replica_set("web-5f5879765d", "5f5879765d", "u-replica-set");
    owner["metadata"]["ownerReferences"] = Value::Null;
    let pods = [0, 1].map(|at| {
        let mut pod = pod(names[at], &format!("u-{at}"), "web-5f5879765d");
        pod["metadata"]["creationTimestamp"] = json!(ready_at[at]);
        pod["metadata"]["annotations"] = json!({"made-for": names[at][..3]});
        let ready = json!([{"type": "Ready", "status": "True", "lastTransitionTime": ready_at[at]}]);
        pod["status"] = json!({"phase": "Running", "conditions": ready});
        if at == 0 {
            change_first(&mut pod);
        }
        pod
    });
    let mut deleted = pods[0].clone();
    deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:01:30Z");
    deleted["metadata"]["deletionGracePeriodSeconds"] = json!(30);
    let [one, two] = pods;
    vec![
        change(1, What::Added, "ReplicaSet", owner),
        change(2, What::Added, "Pod", one),
        change(3, What::Added, "Pod", two),
        change(4, What::Modified, "Pod", deleted),
    ]
}

#[test]
fn a_deletion_that_chance_decides_breaks_its_script() {
    let (early, late) = ("2026-01-01T00:00:01Z", "2026-01-01T00:00:03Z");
    let (names, nothing) = (["one-bcdfg", "two-bcdfg"], |_: &mut Value| {});
    for (what, changes, expected) in [
        ("equal ages", scale_down(names, [early, early], nothing), 1),
        ("close ages", scale_down(names, [early, late], nothing), 1),
        (
            "pods that nobody can tell apart",
            scale_down(["one-bcdfg", "one-bcdfg"], [early, late], nothing),
            0,
        ),
        ("ages far apart", scale_down(names, [early, "2026-01-01T00:00:50Z"], nothing), 0),
        (
            "a deletion cost",
            scale_down(names, [early, late], |pod| {
                pod["metadata"]["annotations"]["controller.kubernetes.io/pod-deletion-cost"] = json!("-1");
            }),
            0,
        ),
        (
            "one that is not ready",
            scale_down(names, [early, late], |pod| pod["status"]["conditions"] = json!([])),
            0,
        ),
        ("a node", scale_down(names, [early, late], |pod| pod["spec"]["nodeName"] = json!("n1")), 0),
    ] {
        assert_eq!(ties(&changes, &script()).len(), expected, "{what}");
    }
    let mut wanted = scale_down(names, [early, early], nothing);
    wanted[0].object["spec"]["replicas"] = json!(2);
    assert_eq!(ties(&wanted, &script()), [""; 0], "a user deletes one of two that are wanted");
}

#[test]
fn absent_and_zero_are_different() {
    let with = Facts::from([(key("rest", "status.terminatingReplicas"), "0".to_owned())]);
    let without = Facts::from([(key("script", "label"), "create".to_owned())]);
    let mut with = with;
    with.extend(without.clone());
    let differences = compare(&with, &without);
    assert_eq!(differences.len(), 1);
    assert_eq!((differences[0].upstream.as_str(), differences[0].windlass.as_str()), ("0", ABSENT));
}

#[test]
fn a_field_an_event_a_condition_and_a_deletion_are_each_a_fact() {
    let condition = |status: &str| {
        let mut web = web();
        web["status"]["conditions"] =
            json!([{"type": "Available", "status": status, "reason": "R", "message": "m"}]);
        web
    };
    let mut leaving = pod("web-5f5879765d-rcx4l", "u-rcx4l", "web-5f5879765d");
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T10:00:00Z".into();
    let mut changes = rollout("5f5879765d", "rcx4l");
    changes.push(change(5, What::Modified, "Deployment", condition("False")));
    changes.push(change(6, What::Modified, "Deployment", condition("True")));
    changes.push(change(7, What::Modified, "Pod", leaving));
    let facts = facts(&changes, &script());
    let value = |section: &'static str, object: &str, path: &str| {
        let key = Key { step: 0, section, object: object.into(), path: path.into() };
        facts.get(&key).map(String::as_str)
    };
    assert_eq!(
        value("rest", "Deployment/web", "status.conditions.Available"),
        Some("True R: m, without a time")
    );
    assert_eq!(
        value("conditions", "Deployment/web", "Available=False R: m, without a time"),
        Some("seen"),
        "in passing"
    );
    let created = "Normal SuccessfulCreate from replicaset-controller: Created pod: web#1-POD";
    let event =
        Key { step: ALL_STEPS, section: "events", object: "ReplicaSet/web#1".into(), path: created.into() };
    assert_eq!(facts.get(&event).map(String::as_str), Some("1"));
    assert_eq!(value("deleted", "pods of ReplicaSet/web#1", ""), Some("Pending not ready without node"));
    assert_eq!(value("counts", "pods of ReplicaSet/web#1", "active"), Some("0 to 1"));
    assert_eq!(value("created", "pods of ReplicaSet/web#1", "spec.containers.0.image"), Some("app:v1"));
}

#[test]
fn a_declaration_covers_its_own_difference_and_no_other() {
    let place = ["rest", "Deployment/*", "status.*"];
    let declared = differs(&THROTTLED_STATUS, place, "0", ABSENT);
    let covers = |path: &str, upstream: &str| {
        let facts = Facts::from([(key("rest", path), upstream.to_owned())]);
        let none = Facts::from([(key("rest", "other"), "same".to_owned())]);
        let facts: Facts = facts.into_iter().chain(none.clone()).collect();
        compare(&facts, &none).iter().all(|difference| declared.covers(difference))
    };
    assert!(covers("status.replicas", "0"));
    assert!(!covers("status.replicas", "1"));
    assert!(!covers("spec.replicas", "0"));
    for (pattern, text, expected) in [
        ("a*c", "abc", true),
        ("a*c", "abd", false),
        ("*", "", true),
        ("a", "ab", false),
        ("*b*", "abc", true),
    ] {
        assert_eq!(fits(pattern, text), expected, "{pattern} {text}");
    }
}

#[test]
fn workloads_have_names_of_their_own_that_are_namespaces() {
    let all = workloads::all();
    assert!(all.len() >= 40, "{}", all.len());
    let mut names = BTreeSet::new();
    for workload in all {
        assert!(workload.name.len() <= 63, "{}", workload.name);
        assert!(names.insert(workload.name), "{} twice", workload.name);
    }
}

#[test]
fn each_row_of_the_table_names_an_existing_workload_or_test() {
    for row in ALL.iter() {
        assert!(!table::shown_by(row).is_empty(), "nothing shows: {}", row.windlass);
    }
    for (_, test) in UNSEEN {
        assert!(exists(test), "{test}");
    }
    assert!(GENERAL.iter().all(|declared| ALL.contains(&declared.row)));
    assert!(NOISE.iter().all(|noise| !noise.reason.is_empty()));
}

#[test]
fn each_integration_test_of_upstream_has_an_existing_counterpart() {
    let names: BTreeSet<&str> = workloads::all().iter().map(|workload| workload.name).collect();
    let all = [DEPLOYMENT, REPLICA_SET, REPLICATION_CONTROLLER, STATEFUL_SET, JOB, CRON_JOB, POD_GC];
    for (upstream, here) in all.into_iter().flatten() {
        assert!(!here.is_empty(), "{upstream}");
        for place in *here {
            assert!(names.contains(place) || exists(place), "{upstream}: {place}");
        }
    }
    assert_eq!(all.map(<[_]>::len), [17, 14, 11, 9, 20, 1, 3], "of Kubernetes 1.36");
}

/// Whether there is such a test, written as `file::function`.
fn exists(test: &str) -> bool {
    let Some((file, function)) = test.split_once("::") else { return false };
    let text = std::fs::read_to_string(root().join(file)).unwrap_or_default();
    text.contains(&format!("fn {function}("))
}

#[test]
fn the_page_of_differences_matches_the_declarations() {
    let path = root().join(PAGE);
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(table::BEGIN).expect("the marker at the beginning");
    let (_, after) = rest.split_once(table::END).expect("the marker at the end");
    let expected = [before, table::BEGIN, &table::table(), table::END, after].concat();
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, expected).unwrap();
        return;
    }
    assert!(page == expected, "{PAGE} is not what the code declares; UPDATE_EXPECT=1 writes it anew");
}

#[test]
fn an_undeclared_difference_and_an_unused_declaration_are_reported() {
    use harness::play::Played;
    use harness::report::{Scope, report};
    static DECLARED: &[harness::declared::Declared] =
        &[differs(&THROTTLED_STATUS, ["rest", "Deployment/web", "status.replicas"], "1", "2")];
    static WORKLOAD: workloads::Workload =
        workloads::Workload { name: "one", play: |_| Box::pin(async {}), declared: DECLARED };
    let play = |value: &str| {
        let facts = Facts::from([(key("rest", "status.replicas"), value.to_owned())]);
        BTreeMap::from([("one", Played { facts, steps: script().steps, ties: Vec::new(), panic: None })])
    };
    let outcome = |ours: &str| {
        let report = report(&[&WORKLOAD], &play("1"), &play(ours), Scope::default());
        (report.undeclared, report.unused, report.declared)
    };
    assert_eq!(outcome("2"), (0, 0, 1), "as declared");
    assert_eq!(outcome("3"), (1, 1, 0), "otherwise than declared");
    assert_eq!(outcome("1"), (0, 1, 0), "no longer there");
}
