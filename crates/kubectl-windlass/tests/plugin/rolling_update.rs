use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::harness::{Ended, PLUGIN, Sandbox};

pub const CONTROLLERS: &str = "/api/v1/namespaces/default/replicationcontrollers";
const PODS: &str = "/api/v1/namespaces/default/pods";
const QUICK: [&str; 3] = ["--update-period=100ms", "--poll-interval=200ms", "--timeout=30s"];

pub fn controller(name: &str, image: &str, labels: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": name},
        "spec": {"replicas": 3, "selector": labels,
                 "template": {"metadata": {"labels": labels},
                              "spec": {"containers": [{"name": "app", "image": image}]}}}
    })
}

pub fn with_web() -> Sandbox {
    let sandbox = Sandbox::start(&[]);
    sandbox.call("POST", CONTROLLERS, &controller("web", "app:1", &json!({"app": "web"})));
    all_available(&sandbox, "web");
    sandbox
}

pub fn path(name: &str) -> String {
    format!("{CONTROLLERS}/{name}")
}

pub fn all_available(sandbox: &Sandbox, name: &str) {
    sandbox.eventually(&path(name), |controller| controller["status"]["availableReplicas"] == 3);
}

pub fn names(sandbox: &Sandbox) -> Vec<String> {
    let all = sandbox.get(CONTROLLERS);
    all["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["metadata"]["name"].as_str().unwrap().to_owned())
        .collect()
}

/// The images of the pods that are not being deleted.
pub fn images(sandbox: &Sandbox) -> Vec<String> {
    let all = sandbox.get(PODS);
    let stays = |pod: &&Value| !pod["metadata"]["deletionTimestamp"].is_string();
    let image = |pod: &Value| pod["spec"]["containers"][0]["image"].as_str().unwrap().to_owned();
    all["items"].as_array().unwrap().iter().filter(stays).map(image).collect()
}

fn update(sandbox: &Sandbox, args: &[&str]) -> Ended {
    sandbox.plugin(&[&["rolling-update"], args, &QUICK].concat())
}

/// No annotation of an update is left, and the controller owns all of its pods.
pub fn check_survivor(sandbox: &Sandbox, name: &str, image: &str) {
    let survivor = sandbox.get(&path(name));
    assert!(
        survivor["metadata"]["annotations"].as_object().is_none_or(serde_json::Map::is_empty),
        "{survivor:#}"
    );
    assert_eq!(survivor["spec"]["replicas"], 3);
    assert_eq!(survivor["spec"]["template"]["spec"]["containers"][0]["image"], image);
    assert_eq!(images(sandbox), [image; 3]);
    let pods = sandbox.get(PODS);
    for pod in pods["items"].as_array().unwrap() {
        if !pod["metadata"]["deletionTimestamp"].is_string() {
            assert_eq!(pod["metadata"]["ownerReferences"][0]["uid"], survivor["metadata"]["uid"], "{pod:#}");
        }
    }
}

#[test]
fn by_image_the_pods_are_replaced_and_the_survivor_keeps_name_uid_and_pods() {
    let sandbox = with_web();
    let uid = sandbox.get(&path("web"))["metadata"]["uid"].clone();
    let ended = update(&sandbox, &["web", "--image=app:2"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for line in
        ["Labelled web and its pods deployment=", "Scaling web from 3 to 2", "Scaling web from 1 to 0"]
    {
        assert!(ended.out.contains(line), "{line:?}: {ended:?}");
    }
    assert!(ended.out.ends_with("replicationcontroller/web rolling updated\n"), "{ended:?}");
    assert_eq!(
        (names(&sandbox), &sandbox.get(&path("web"))["metadata"]["uid"]),
        (vec!["web".to_owned()], &uid)
    );
    check_survivor(&sandbox, "web", "app:2");
    // Once more, with the labels in place. No pod is made by the hand-over: 3 of each version.
    let ended = update(&sandbox, &["web", "--image=app:3"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(!ended.out.contains("Labelled"), "{ended:?}");
    check_survivor(&sandbox, "web", "app:3");
    // The hand-overs have created no pod: three of each version.
    let events = sandbox.get("/api/v1/namespaces/default/events");
    let created = |event: &&Value| event["reason"] == "SuccessfulCreate";
    assert_eq!(events["items"].as_array().unwrap().iter().filter(created).count(), 9);
}

#[test]
fn with_a_name_or_a_file_the_new_one_stays_and_the_old_one_is_deleted() {
    let sandbox = with_web();
    let ended = update(&sandbox, &["web", "next", "--image=app:2", "-o", "name"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.out.ends_with("replicationcontroller/next\n"), "{ended:?}");
    assert_eq!(names(&sandbox), ["next"]);
    check_survivor(&sandbox, "next", "app:2");

    let key = sandbox.get(&path("next"))["spec"]["selector"]["deployment"].clone();
    assert!(key.is_string());
    let file = sandbox.file("third.json");
    let third = controller("third", "app:3", &json!({"app": "web", "deployment": "third"}));
    let third = third.to_string().replacen("\"kind\":", "\"kind\":\"ReplicaSet\",\"kind\":", 1);
    std::fs::write(&file, third).unwrap();
    let ended = update(&sandbox, &["next", "-f", file.to_str().unwrap()]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let warning =
        "third.json: document 1: the key \"kind\" occurs twice in one mapping; the last one counts\n";
    assert!(ended.err.starts_with("warning: ") && ended.err.contains(warning), "{ended:?}");
    assert_eq!(names(&sandbox), ["third"]);
    check_survivor(&sandbox, "third", "app:3");
}

#[test]
fn a_broken_image_ends_in_time_and_is_rolled_back() {
    let sandbox = with_web();
    let args = ["rolling-update", "web", "--image=app:broken", "--poll-interval=200ms", "--timeout=2s"];
    let ended = sandbox.plugin(&args);
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert!(ended.err.contains("no progress for 2s") && ended.err.contains("ImagePullBackOff"), "{ended:?}");
    assert_eq!(images(&sandbox).iter().filter(|image| *image == "app:1").count(), 3, "nothing is lost");
    let explained = sandbox.plugin(&["explain", "rc/web"]);
    assert_eq!(explained.code, Some(0), "{explained:?}");
    assert!(explained.out.contains("A rolling update to web-"), "{explained:?}");
    assert!(explained.out.contains("3 replicas here, 1 of 3 there, 0 available"), "{explained:?}");
    // Another image is refused while this one is under way.
    let ended = update(&sandbox, &["web", "--image=app:3"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.err.contains("--image=app:broken") && ended.err.contains("--rollback"), "{ended:?}");
    let ended = update(&sandbox, &["web", "--rollback"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.out.ends_with("replicationcontroller/web rolled back\n"), "{ended:?}");
    assert_eq!(names(&sandbox), ["web"]);
    check_survivor(&sandbox, "web", "app:1");
    let ended = update(&sandbox, &["web", "--rollback"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.err.contains("nothing to roll back"), "{ended:?}");
    let explained = sandbox.plugin(&["explain", "rc", "web", "-o", "json"]);
    let value: Value = serde_json::from_str(&explained.out).unwrap();
    assert_eq!((&value["verdict"], &value["why"][0]["kind"]), (&json!("complete"), &json!("complete")));
}

/// Kills the client after each time that it may have been at another write; the last run goes on undisturbed.
#[test]
fn a_client_that_is_killed_again_and_again_reaches_the_same_end() {
    for args in [&["web", "--image=app:2"][..], &["web", "next", "--image=app:2"]] {
        let sandbox = with_web();
        let all = [&["rolling-update"], args, &QUICK].concat();
        let is_over = (1..=16).any(|number| {
            let mut child =
                sandbox.command(PLUGIN, &all).stdout(std::process::Stdio::null()).spawn().unwrap();
            std::thread::sleep(std::time::Duration::from_millis(90 * number));
            let ended = child.try_wait().unwrap();
            if ended.is_none() {
                child.kill().unwrap();
                child.wait().unwrap();
            }
            ended.is_some()
        });
        // A killed run leaves at least the end for the last run.
        let ended = update(&sandbox, args);
        let is_done = ended.code == Some(1) && ended.err.contains("does not exist") && is_over;
        let is_current =
            ended.code == Some(1) && ended.err.contains("has the image app:2 already") && is_over;
        assert!(ended.code == Some(0) || is_done || is_current, "{ended:?}");
        let survivor = if args.len() == 2 { "web" } else { "next" };
        assert_eq!(names(&sandbox), [survivor]);
        all_available(&sandbox, survivor);
        check_survivor(&sandbox, survivor, "app:2");
    }
}

#[test]
fn what_cannot_start_is_refused_and_nothing_is_written() {
    let sandbox = with_web();
    let before = sandbox.get(&path("web"));
    for (args, part) in [
        (&["web", "--image=app:1"][..], "has the image app:1 already"),
        (&["other", "--image=app:2"], "replicationcontroller default/other does not exist"),
        (&["web", "--image=app:2", "--container=side"], "has only app"),
        (&["web", "-f", "/nowhere.yaml"], "-f /nowhere.yaml: No such file"),
    ] {
        let ended = update(&sandbox, args);
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.err.contains(part), "{part:?}: {ended:?}");
    }
    for (args, part) in [
        (&["web", "--image=a", "--rollback"][..], "--rollback"),
        (&["web", "--image=a", "--max-surge=1.5"], "--max-surge"),
        (&["web", "--image=a", "--max-unavailable=101%"], "--max-unavailable"),
        (&["web", "--image=a", "--max-surge=0"], "must not both be 0"),
        (&["web", "web", "--image=app:2"], "OLD and NEW are both web"),
        (&["web"], "one of --image, -f and --rollback is needed"),
        (&["rc/web", "--image=app:2"], "without a kind"),
        (&[], "required"),
    ] {
        let ended = update(&sandbox, args);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.err.contains(part), "{part:?}: {ended:?}");
    }
    let ended = update(&sandbox, &["web", "--image=app:2", "--dry-run"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.out.starts_with("Would roll web to web-"), "{ended:?}");
    assert_eq!(sandbox.get(&path("web")), before);
}

/// Kills the client as soon as it reports a write, again and again: one run for each write of the update.
#[test]
fn a_client_that_is_killed_after_each_write_reaches_the_same_end() {
    let sandbox = with_web();
    let uid = sandbox.get(&path("web"))["metadata"]["uid"].clone();
    let args = [&["rolling-update", "web", "--image=app:2"], &QUICK[..]].concat();
    let mut writes = Vec::new();
    for run in 0.. {
        assert!(run < 30, "no end: {writes:?}");
        let mut child = sandbox.command(PLUGIN, &args).stdout(Stdio::piped()).spawn().unwrap();
        let reports = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let is_write = |line: &String| ["Found", "Rolling"].iter().all(|start| !line.starts_with(start));
        let write = reports.into_iter().find(is_write).unwrap_or_default();
        child.kill().unwrap();
        child.wait().unwrap();
        let is_over = write.contains("rolling updated") || write.is_empty();
        writes.push(write);
        if is_over {
            break;
        }
    }
    assert!(writes.len() > 8, "{writes:?}");
    assert_eq!(
        (names(&sandbox), &sandbox.get(&path("web"))["metadata"]["uid"]),
        (vec!["web".to_owned()], &uid)
    );
    all_available(&sandbox, "web");
    check_survivor(&sandbox, "web", "app:2");
}

#[test]
fn two_clients_at_once_do_no_harm() {
    let sandbox = with_web();
    let args = [&["rolling-update", "web", "next", "--image=app:2"], &QUICK[..]].concat();
    let start =
        || sandbox.command(PLUGIN, &args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut both = [start(), start()];
    let codes = both.each_mut().map(|child| child.wait().unwrap().code());
    assert!(codes.contains(&Some(0)), "{codes:?}");
    assert_eq!(names(&sandbox), ["next"]);
    check_survivor(&sandbox, "next", "app:2");
}

#[test]
fn a_file_may_take_the_old_name_over_and_the_old_one_may_stay() {
    let sandbox = Sandbox::start(&[]);
    let labels = |version: &str| json!({"app": "web", "version": version});
    sandbox.call("POST", CONTROLLERS, &controller("web", "app:1", &labels("1")));
    all_available(&sandbox, "web");
    let file = sandbox.file("next.yaml");
    std::fs::write(&file, controller("next", "app:2", &labels("2")).to_string()).unwrap();
    let file = file.to_str().unwrap();
    let ended = update(&sandbox, &["web", "-f", file, "--keep-name"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(names(&sandbox), ["web"]);
    check_survivor(&sandbox, "web", "app:2");
    std::fs::write(file, controller("third", "app:3", &labels("3")).to_string()).unwrap();
    let ended = update(&sandbox, &["web", "-f", file, "--preserve"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(
        (names(&sandbox), &sandbox.get(&path("web"))["spec"]["replicas"]),
        (vec!["third".to_owned(), "web".to_owned()], &json!(0))
    );
    check_survivor(&sandbox, "third", "app:3");
}
