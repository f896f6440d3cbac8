//! `--replace`, `--fail-fast`, `--keep-name` with OLD's own file, and `-o json`.

use std::process::Stdio;

use serde_json::{Value, json};

use crate::harness::{Ended, PLUGIN, Sandbox};
use crate::rolling_update::{CONTROLLERS, check_survivor, controller, images, names, path, with_web};

const QUICK: [&str; 3] = ["--update-period=100ms", "--poll-interval=200ms", "--timeout=30s"];

fn update(sandbox: &Sandbox, args: &[&str]) -> Ended {
    sandbox.plugin(&[&["rolling-update"], args, &QUICK].concat())
}

/// An update to an image that never starts, given up.
fn stuck(sandbox: &Sandbox, args: &[&str]) {
    let args = [&["rolling-update"], args, &["--poll-interval=200ms", "--timeout=1s"]].concat();
    assert_eq!(sandbox.plugin(&args).code, Some(3));
}

#[test]
fn replace_takes_a_left_over_update_away_and_begins_the_next_one() {
    let sandbox = with_web();
    let uid = sandbox.get(&path("web"))["metadata"]["uid"].clone();
    stuck(&sandbox, &["web", "--image=app:broken"]);
    let refused = update(&sandbox, &["web", "--image=app:2"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.err.contains("--replace"), "{refused:?}");
    let ended = update(&sandbox, &["web", "--image=app:2", "--replace"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.out.contains("Rolling web back to 3, web-"), "{ended:?}");
    assert_eq!(names(&sandbox), ["web"]);
    check_survivor(&sandbox, "web", "app:2");
    assert_eq!(sandbox.get(&path("web"))["metadata"]["uid"], uid);
}

#[test]
fn beside_an_update_that_is_under_way_no_other_begins() {
    let sandbox = with_web();
    stuck(&sandbox, &["web", "next", "--image=app:broken"]);
    let ended = update(&sandbox, &["web", "third", "--image=app:3"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.err.contains("to the image app:broken is under way"), "{ended:?}");
    assert_eq!(names(&sandbox), ["next", "web"]);
    // One that is left over from a namesake of OLD may only be replaced, too.
    sandbox.call("DELETE", &path("web"), &json!({"propagationPolicy": "Background"}));
    sandbox.eventually(&path("web"), Value::is_null);
    let old = controller("web", "app:1", &json!({"app": "web", "deployment": "1"}));
    sandbox.call("POST", CONTROLLERS, &old);
    let ended = update(&sandbox, &["web", "next", "--image=app:3"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.err.contains("--replace"), "{ended:?}");
    let ended = update(&sandbox, &["web", "next", "--image=app:3", "--replace"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(names(&sandbox), ["next"]);
    check_survivor(&sandbox, "next", "app:3");
}

#[test]
fn what_belongs_to_no_update_is_never_replaced() {
    let sandbox = with_web();
    sandbox.call("POST", CONTROLLERS, &controller("next", "app:1", &json!({"app": "next"})));
    let ended = update(&sandbox, &["web", "next", "--image=app:3", "--replace"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.err.contains("next exists, and is not the target"), "{ended:?}");
    assert_eq!(sandbox.get(&path("next"))["spec"]["replicas"], 3);
}

#[test]
fn with_fail_fast_pods_that_cannot_start_end_the_update_long_before_the_timeout() {
    let sandbox = with_web();
    let started = tokio::time::Instant::now();
    let args = ["rolling-update", "web", "--image=app:broken", "--poll-interval=200ms", "--fail-fast"];
    let mut command = sandbox.command(PLUGIN, &args);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The registry's error, as a kubelet reports it.
    let is_new = |pod: &Value| pod["spec"]["containers"][0]["image"] == "app:broken";
    let pods = "/api/v1/namespaces/default/pods";
    let all = sandbox.eventually(pods, |pods| pods["items"].as_array().unwrap().iter().any(is_new));
    let pod = all["items"].as_array().unwrap().iter().find(|pod| is_new(pod)).unwrap();
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "pull", "namespace": "default"},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": pod["metadata"]["name"],
                           "uid": pod["metadata"]["uid"]},
        "type": "Warning", "reason": "Failed", "message": "manifest for app:broken not found",
    });
    sandbox.call("POST", "/api/v1/namespaces/default/events", &event);
    let ended = Ended::of(&child.wait_with_output().unwrap());
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert!(ended.err.contains("no new pod can become ready: web-"), "{ended:?}");
    let seconds = started.elapsed().as_secs();
    assert!((30..120).contains(&seconds), "{seconds}");
    assert_eq!(images(&sandbox).iter().filter(|image| *image == "app:1").count(), 3, "nothing is lost");
}

#[test]
fn with_keep_name_a_file_may_hold_the_next_state_of_the_old_one() {
    let sandbox = with_web();
    let uid = sandbox.get(&path("web"))["metadata"]["uid"].clone();
    let file = sandbox.file("web.json");
    std::fs::write(&file, controller("web", "app:2", &json!({"app": "web"})).to_string()).unwrap();
    let file = file.to_str().unwrap();
    let refused = update(&sandbox, &["web", "-f", file]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.err.contains("--keep-name"), "{refused:?}");
    let ended = update(&sandbox, &["web", "-f", file, "--keep-name"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(
        (names(&sandbox), &sandbox.get(&path("web"))["metadata"]["uid"]),
        (vec!["web".to_owned()], &uid)
    );
    check_survivor(&sandbox, "web", "app:2");
}

#[test]
fn as_json_an_update_is_a_stream_of_objects_and_a_dry_run_both_objects() {
    let sandbox = with_web();
    let dry = update(&sandbox, &["web", "next", "--image=app:2", "--dry-run", "-o", "json"]);
    assert_eq!(dry.code, Some(0), "{dry:?}");
    let both: Value = serde_json::from_str(&dry.out).unwrap();
    assert_eq!(
        (&both["old"]["metadata"]["name"], &both["new"]["metadata"]["name"]),
        (&json!("web"), &json!("next"))
    );

    let ended = update(&sandbox, &["web", "next", "--image=app:2", "-o", "json"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let lines = ended.json_lines();
    let kinds: Vec<&str> = lines.iter().map(|line| line["type"].as_str().unwrap()).collect();
    assert_eq!(kinds[..3], ["Labelled", "Created", "Started"], "{kinds:?}");
    assert_eq!(kinds.last(), Some(&"Complete"));
    for line in &lines {
        for field in ["time", "namespace", "name", "message"] {
            assert!(line[field].is_string(), "{field}: {line}");
        }
    }
    let scaled: Vec<_> = lines.iter().filter(|line| line["type"] == "Scaled").collect();
    assert_eq!(
        (&scaled[0]["controller"], &scaled[0]["from"], &scaled[0]["to"]),
        (&json!("next"), &json!(0), &json!(1))
    );
    assert_eq!(lines.last().unwrap()["survivor"], "next");

    let args = [
        "rolling-update",
        "next",
        "--image=app:broken",
        "--poll-interval=200ms",
        "--timeout=1s",
        "-o",
        "json",
    ];
    let ended = sandbox.plugin(&args);
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert_eq!(ended.json_lines().last().unwrap()["type"], "Failed");
    let dry = update(&sandbox, &["next", "--rollback", "--dry-run", "-o", "json"]);
    let both: Value = serde_json::from_str(&dry.out).unwrap();
    assert_eq!(both["new"]["spec"]["template"]["spec"]["containers"][0]["image"], "app:broken");
    let back = update(&sandbox, &["next", "--rollback", "-o", "json"]);
    assert_eq!((back.code, &back.json_lines().last().unwrap()["type"]), (Some(0), &json!("RolledBack")));
}

#[test]
fn a_rollback_without_a_new_one_names_none() {
    let sandbox = with_web();
    stuck(&sandbox, &["web", "next", "--image=app:broken"]);
    sandbox.call("DELETE", &path("next"), &json!({"propagationPolicy": "Background"}));
    sandbox.eventually(&path("next"), Value::is_null);
    let ended = update(&sandbox, &["web", "--rollback"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.out.contains("Rolling web back to 3\n"), "{ended:?}");
}

#[test]
fn a_replica_set_or_a_job_that_would_adopt_the_pods_is_in_the_way_of_keeping_the_name() {
    let template = json!({"metadata": {"labels": {"app": "web"}},
                          "spec": {"restartPolicy": "Always", "containers": [{"name": "app", "image": "app:1"}]}});
    let selector = json!({"matchLabels": {"app": "web"}});
    let set = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "greedy"},
                     "spec": {"replicas": 0, "selector": selector, "template": template}});
    let mut job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "greedy"},
                         "spec": {"suspend": true, "manualSelector": true, "selector": selector,
                                  "template": template}});
    job["spec"]["template"]["spec"]["restartPolicy"] = json!("Never");
    for (path, greedy) in
        [("apps/v1/namespaces/default/replicasets", set), ("batch/v1/namespaces/default/jobs", job)]
    {
        let sandbox = with_web();
        sandbox.call("POST", &format!("/apis/{path}"), &greedy);
        let expected = format!("{} greedy selects the pods of web-", greedy["kind"].as_str().unwrap());
        for more in [&[][..], &["--server-side"]] {
            let ended = update(&sandbox, &[&["web", "--image=app:2"], more].concat());
            assert_eq!(ended.code, Some(1), "{ended:?}");
            assert!(ended.err.contains(&expected), "{ended:?}");
        }
    }
}
