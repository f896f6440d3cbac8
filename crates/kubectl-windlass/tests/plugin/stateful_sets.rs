//! StatefulSets: explained, followed, previewed and taken back, with the names of their pods and claims.

use serde_json::{Value, json};

use crate::answering_front::Front;
use crate::harness::{Ended, Sandbox};

const SETS: &str = "/apis/apps/v1/namespaces/default/statefulsets";
const PODS: &str = "/api/v1/namespaces/default/pods";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";

/// Creates a StatefulSet of this name, with 2 pods and a claim for each; `spec` is merged over its spec.
fn create(sandbox: &Sandbox, name: &str, spec: Value) {
    let mut set = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name, "labels": {"app": "db"}},
        "spec": {
            "replicas": 2, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}},
            "template": {"metadata": {"labels": {"app": "db"}},
                         "spec": {"terminationGracePeriodSeconds": 1,
                                  "containers": [{"name": "app", "image": "db:1"}]}},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]}
    });
    json_patch::merge(&mut set["spec"], &spec);
    sandbox.call("POST", SETS, &set);
}

fn patch(sandbox: &Sandbox, spec: Value) {
    sandbox.call("PATCH", &format!("{SETS}/db"), &json!({"spec": spec}));
}

fn image(image: &str) -> Value {
    json!({"template": {"spec": {"containers": [{"name": "app", "image": image}]}}})
}

/// Waits until `db` is rolled out.
fn rolled_out(sandbox: &Sandbox) {
    sandbox.eventually(&format!("{SETS}/db"), |set| {
        let status = &set["status"];
        let is_complete =
            |field: &str| status[field].as_i64().unwrap_or(0) == set["spec"]["replicas"].as_i64().unwrap();
        status["observedGeneration"] == set["metadata"]["generation"]
            && ["replicas", "availableReplicas", "updatedReplicas"].into_iter().all(is_complete)
    });
}

fn with_db(spec: Value) -> Sandbox {
    let sandbox = Sandbox::start(&[]);
    create(&sandbox, "db", spec);
    rolled_out(&sandbox);
    sandbox
}

/// Waits until a pod waits for its image.
fn waits_for_its_image(sandbox: &Sandbox, pod: &str) {
    sandbox.eventually(&format!("{PODS}/{pod}"), |pod| {
        pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "ImagePullBackOff"
    });
}

#[track_caller]
fn has(ended: &Ended, code: i32, parts: &[&str]) {
    assert_eq!(ended.code, Some(code), "{ended:?}");
    for part in parts {
        assert!(ended.out.contains(part), "{part:?} is not in\n{}{}", ended.out, ended.err);
    }
}

#[test]
fn a_pod_that_cannot_pull_its_image_is_named_with_what_comes_next_and_how_to_go_back() {
    let sandbox = with_db(json!({}));
    patch(&sandbox, image("db:broken"));
    waits_for_its_image(&sandbox, "db-1");
    let ended = sandbox.plugin(&["explain", "sts/db"]);
    has(
        &ended,
        0,
        &[
            "StatefulSet default/db, revision 2: waiting for ",
            "; 2 pods wanted, 1 with the current template, 1 ready, 1 available",
            "Pod db-1: it is not ready: ImagePullBackOff",
            "db-1 (new)",
            "NEXT    the rollout continues when db-1 is ready; then it replaces db-0",
            "TRY     kubectl windlass undo -n default sts/db    (revision 1, image db:1)",
        ],
    );
    let once = sandbox.plugin(&["status", "sts/db", "--watch=false", "--ascii"]);
    has(&once, 4, &["default/db  revision 2", " 0/2 available", "db-1", "ImagePullBackOff"]);
    let line = sandbox.plugin(&["status", "sts", "db", "--timeout=1s"]);
    has(&line, 4, &["0 of 2 new pods available", "waits for db-1: ImagePullBackOff"]);
    let data: Value = serde_json::from_str(&sandbox.plugin(&["explain", "sts/db", "-o=json"]).out).unwrap();
    assert_eq!((&data["kind"], &data["verdict"]), (&json!("StatefulSet"), &json!("waiting")));
    let waits = data["why"].as_array().unwrap().iter().find(|why| why["kind"] == "waiting").unwrap();
    assert_eq!(waits["pods"][0]["pod"], "db-1");
    assert_eq!(data["revisions"].as_array().unwrap().len(), 2, "{data:#}");
}

#[test]
fn a_claim_that_is_not_bound_is_named_with_its_pod_and_its_storage() {
    let sandbox = Sandbox::start(&[]);
    let claims = json!([{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "storageClassName": "missing", "resources": {"requests": {"storage": "1Gi"}}}}]);
    create(&sandbox, "db", json!({"volumeClaimTemplates": claims}));
    sandbox.eventually(PODS, |pods| {
        let pods = pods["items"].as_array().into_iter().flatten();
        let mut conditions =
            pods.flat_map(|pod| pod["status"]["conditions"].as_array().into_iter().flatten());
        conditions.any(|condition| condition["type"] == "PodScheduled" && condition["status"] == "False")
    });
    let ended = sandbox.plugin(&["explain", "sts/db"]);
    has(
        &ended,
        0,
        &[
            "waiting",
            "Pod db-0: it is not scheduled",
            "CLAIM",
            "data-db-0  db-0",
            "Pending",
            "StorageClass missing",
            "its claim data-db-0 is Pending",
            "NEXT    the rollout continues when db-0 is ready; then it creates db-1",
        ],
    );
    let line = sandbox.plugin(&["status", "sts/db", "--timeout=1s"]);
    has(&line, 4, &["its claim data-db-0 is Pending"]);
}

#[test]
fn a_pod_that_waits_until_its_claim_is_gone_names_the_claim_and_what_holds_it() {
    let sandbox = with_db(json!({}));
    let claim = format!("{CLAIMS}/data-db-1");
    sandbox.call("PATCH", &claim, &json!({"metadata": {"finalizers": ["example.com/backup"]}}));
    sandbox.call("DELETE", &claim, &Value::Null);
    let before = sandbox.plugin(&["explain", "sts/db"]);
    has(&before, 0, &["complete; 2 pods wanted, 2 with", "data-db-1  db-1", "terminating"]);
    sandbox.call("DELETE", &format!("{PODS}/db-1"), &Value::Null);
    sandbox.eventually(&format!("{PODS}/db-1"), Value::is_null);
    let ended = sandbox.plugin(&["explain", "sts/db"]);
    has(
        &ended,
        0,
        &[
            "waiting; 2 pods wanted and 1 exist",
            "Pod db-1: its claim data-db-1 is about to be deleted",
            "terminating",
            "held by the finalizers example.com/backup",
            "NEXT    the rollout continues when the claim data-db-1 is gone; then it creates db-1",
        ],
    );
    sandbox.call("PATCH", &claim, &json!({"metadata": {"finalizers": null}}));
    has(&sandbox.plugin(&["status", "sts/db", "--timeout=60s"]), 0, &["complete: 2 of 2 new pods available"]);
}

#[test]
fn a_partition_completes_without_the_pods_below_it() {
    let sandbox = with_db(json!({"replicas": 3}));
    let rolling = json!({"rollingUpdate": {"partition": 2}});
    let mut spec = image("db:2");
    spec["updateStrategy"] = rolling;
    patch(&sandbox, spec);
    let ended = sandbox.plugin(&["status", "sts/db", "--timeout=60s"]);
    has(&ended, 0, &["complete: 1 of 1 new pod available; the partition keeps 2 pods of the older template"]);
    let told = sandbox.plugin(&["explain", "sts/db"]);
    has(
        &told,
        0,
        &["complete; 3 pods wanted, 1 with the current template", "The partition is 2: 2 pods below it keep"],
    );
    let lower = sandbox.plugin(&["plan", "sts/db", "--partition=0"]);
    has(&lower, 0, &["partition 2 -> 0", "delete db-1", "create db-1", "delete db-0"]);
    assert!(!lower.out.contains("delete db-2"), "{}", lower.out);
}

#[test]
fn with_on_delete_the_pods_that_a_user_has_to_delete_are_named() {
    let sandbox = with_db(json!({"updateStrategy": {"type": "OnDelete"}}));
    let planned = sandbox.plugin(&["plan", "sts/db", "--image", "db:2"]);
    has(
        &planned,
        0,
        &["OnDelete: a pod is replaced only when a user deletes it", "until a user deletes them: db-1, db-0"],
    );
    patch(&sandbox, image("db:2"));
    sandbox.eventually(&format!("{SETS}/db"), |set| {
        set["status"]["observedGeneration"] == set["metadata"]["generation"]
    });
    let told = sandbox.plugin(&["explain", "sts/db"]);
    has(
        &told,
        0,
        &[
            "waiting",
            "The strategy is OnDelete: 2 pods with an older template stay",
            "`kubectl delete pod -n default db-1 db-0`",
        ],
    );
    has(&sandbox.plugin(&["status", "sts/db", "--watch=false"]), 4, &["The strategy is OnDelete"]);
    has(&sandbox.plugin(&["status", "sts/db", "--fail-fast"]), 3, &["OnDelete"]);
    for pod in ["db-1", "db-0"] {
        sandbox.call("DELETE", &format!("{PODS}/{pod}"), &Value::Null);
    }
    has(&sandbox.plugin(&["status", "sts/db", "--timeout=60s"]), 0, &["complete: 2 of 2 new pods available"]);
}

#[test]
fn the_history_is_that_of_controller_revisions_and_an_undo_takes_the_template_back() {
    let sandbox = with_db(json!({}));
    patch(&sandbox, image("db:2"));
    rolled_out(&sandbox);
    let table = sandbox.plugin(&["history", "sts/db"]);
    has(&table, 0, &["CONTROLLERREVISION", "db:1", "2 (current)", "db:2"]);
    let rows: Vec<&str> = table.out.lines().collect();
    assert!(rows[1].starts_with("1 ") && rows[1].contains(" 0 ") && rows[2].contains(" 2 "), "{rows:?}");
    has(&sandbox.plugin(&["history", "sts/db", "--revision=1"]), 0, &["image: db:1"]);
    has(&sandbox.plugin(&["history", "sts/db", ".."]), 0, &["-  - image: db:1", "+  - image: db:2"]);
    has(&sandbox.plugin(&["history", "sts/db", "-o=name"]), 0, &["controllerrevision.apps/db-"]);

    let unknown = sandbox.plugin(&["undo", "sts/db", "--to-revision=7", "--yes"]);
    assert_eq!(unknown.code, Some(1), "{unknown:?}");
    assert_eq!(unknown.err, "error: statefulset default/db: revision 7 is not in the history; it has 1, 2\n");
    let tried = sandbox.plugin(&["undo", "sts/db", "--dry-run=server"]);
    has(&tried, 0, &["-  - image: db:2", "+  - image: db:1", "delete db-1", "(server dry run)"]);
    let undone = sandbox.plugin(&["undo", "sts", "db", "--yes"]);
    has(&undone, 0, &["statefulset default/db rolled back to revision 1"]);
    rolled_out(&sandbox);
    assert_eq!(sandbox.get(&format!("{PODS}/db-0"))["spec"]["containers"][0]["image"], "db:1");
    // The revision that was gone back to has the highest number now.
    let again = sandbox.plugin(&["undo", "sts/db", "--to-revision=3", "--yes"]);
    assert_eq!(again.code, Some(0), "{again:?}");
    assert!(
        again.err.contains("skipped: statefulset default/db has the template of revision 3 already"),
        "{again:?}"
    );
}

#[test]
fn a_preview_names_the_pods_and_claims_of_each_step() {
    let sandbox = with_db(json!({}));
    let image = sandbox.plugin(&["plan", "sts/db", "--image=db:2", "--ready-after=5s", "--stop-after=1s"]);
    has(
        &image,
        0,
        &[
            "StatefulSet default/db: image db:1 -> db:2. 2 replicas",
            "OrderedReady: pods are created and deleted one by one",
            "at most 1 is replaced at a time",
            "delete db-1",
            "create db-1",
            "complete after about 12s",
            "by the server (dry run): the StatefulSet, one pod",
        ],
    );
    let at = |text: &str| image.out.find(text).unwrap();
    assert!(at("delete db-1") < at("create db-1") && at("create db-1") < at("delete db-0"), "{}", image.out);

    let up = sandbox.plugin(&["plan", "sts/db", "--replicas=4", "--ready-after=5s"]);
    has(
        &up,
        0,
        &[
            "replicas 2 -> 4",
            "create db-2 with data-db-2",
            "create db-3 with data-db-3",
            "claims   created: data-db-2, data-db-3",
        ],
    );
    let down = sandbox.plugin(&["plan", "sts/db", "--replicas=1"]);
    has(&down, 0, &["delete db-1 (out of range)", "data     kept in the claims data-db-1"]);
    let policy = json!({"whenScaled": "Delete", "whenDeleted": "Retain"});
    patch(&sandbox, json!({"persistentVolumeClaimRetentionPolicy": policy}));
    rolled_out(&sandbox);
    let lost = sandbox.plugin(&["plan", "sts/db", "--replicas=1"]);
    has(&lost, 0, &["delete claim data-db-1", "data     DELETED with the claims data-db-1"]);
    let data: Value =
        serde_json::from_str(&sandbox.plugin(&["plan", "sts/db", "--replicas=1", "-o=json"]).out).unwrap();
    assert_eq!(data["steps"][1]["changes"][0], json!({"deletePod": "db-1", "why": "condemned"}), "{data:#}");

    for (flag, name) in [
        ("--max-surge=1", "--max-surge"),
        ("--max-unavailable=2", "--max-unavailable"),
        ("--strategy=Recreate", "--strategy"),
    ] {
        let refused = sandbox.plugin(&["plan", "sts/db", flag]);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.err.starts_with(&format!("error: statefulset default/db: {name}: ")), "{refused:?}");
    }
    let broken = sandbox.plugin(&["plan", "sts/db", "--image=db:2", "--assume=broken"]);
    has(&broken, 5, &["not complete after", "Pod db-1: it is not ready"]);
}

#[test]
fn a_statefulset_of_a_file_is_previewed_before_it_exists() {
    let sandbox = Sandbox::start(&[]);
    create(&sandbox, "db", json!({"replicas": 0}));
    let mut new = sandbox.get(&format!("{SETS}/db"));
    new["metadata"] = json!({"name": "cache"});
    new["spec"]["replicas"] = json!(1);
    new.as_object_mut().unwrap().remove("status");
    let file = sandbox.file("cache.json");
    std::fs::write(&file, new.to_string()).unwrap();
    let planned = sandbox.plugin(&["plan", "-f", file.to_str().unwrap()]);
    has(&planned, 0, &["StatefulSet default/cache: it is created", "create cache-0 with data-cache-0"]);
}

#[test]
fn one_without_replicas_is_complete() {
    let sandbox = Sandbox::start(&[]);
    create(&sandbox, "db", json!({"replicas": 0}));
    rolled_out(&sandbox);
    has(
        &sandbox.plugin(&["explain", "sts/db"]),
        0,
        &["complete; 0 pods wanted, 0 with the current template"],
    );
    has(
        &sandbox.plugin(&["status", "sts", "-l", "app=db", "--timeout=10s"]),
        0,
        &["complete: 0 of 0 new pods available"],
    );
    has(&sandbox.plugin(&["plan", "sts/db", "--replicas=0"]), 0, &["nothing to roll out"]);
    let none = sandbox.plugin(&["explain", "sts/dbb"]);
    assert_eq!(none.err, "error: statefulset default/dbb does not exist; there is db\n");
    let owner = format!("pod/{}", "db-0");
    assert!(sandbox.plugin(&["explain", &owner]).err.contains("pod default/db-0 does not exist"));
}

#[test]
fn a_name_above_52_characters_is_blocked_with_what_to_do() {
    let sandbox = Sandbox::start(&[]);
    let name = "d".repeat(56);
    create(&sandbox, &name, json!({}));
    sandbox.eventually(&format!("{SETS}/{name}"), |set| set["status"]["observedGeneration"] == 1);
    let object = format!("sts/{name}");
    has(&sandbox.plugin(&["explain", &object]), 0, &["blocked", "use a name of at most 52 characters"]);
    has(&sandbox.plugin(&["status", &object, "--watch=false"]), 4, &["use a name of at most 52 characters"]);
}

#[test]
fn a_pod_that_a_quota_refuses_is_told_by_the_words_of_the_server() {
    let sandbox = with_db(json!({}));
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}, "spec": {"hard": {"pods": "2"}}});
    sandbox.call("POST", "/api/v1/namespaces/default/resourcequotas", &quota);
    let planned = sandbox.plugin(&["plan", "sts/db", "--replicas=3"]);
    has(&planned, 5, &["quota", "few"]);
    patch(&sandbox, json!({"replicas": 3}));
    sandbox.eventually("/api/v1/namespaces/default/events", |events| {
        events["items"].as_array().into_iter().flatten().any(|event| event["reason"] == "FailedCreate")
    });
    has(&sandbox.plugin(&["explain", "sts/db"]), 0, &["blocked", "exceeded quota: few"]);
    has(&sandbox.plugin(&["status", "sts/db", "--fail-fast", "--timeout=30s"]), 3, &["exceeded quota: few"]);
}

#[test]
fn the_daemon_is_asked_for_a_statefulset_and_claims_may_be_unreadable() {
    let sandbox = with_db(json!({}));
    let forbidden = r#"{"kind":"Status","reason":"Forbidden","code":403,"message":"persistentvolumeclaims is forbidden"}"#;
    let front = Front::start(&sandbox, move |path| {
        if path.starts_with("/debug/") {
            return Some((200, json!({"current": {"why": [], "times": 1}, "earlier": []}).to_string()));
        }
        path.contains("persistentvolumeclaims").then(|| (403, forbidden.to_owned()))
    });
    let told = sandbox.plugin(&["explain", "sts/db", "--endpoint", &front.url]);
    has(&told, 0, &["DAEMON  looks again at the next change"]);
    let asked = front.heads().iter().any(|head| head.starts_with("GET /debug/statefulsets/default/db "));
    assert!(asked, "{:?}", front.heads());
    let server = format!("--server={}", front.url);
    let partial = sandbox.plugin(&["explain", "sts/db", &server]);
    has(&partial, 1, &["NOTE    cannot list persistentvolumeclaims", "complete; its status counts 2 pods"]);
}
