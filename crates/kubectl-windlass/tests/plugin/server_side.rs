//! Rolling updates that the cluster carries out at the plugin's request.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::front::{Fate, Front};
use crate::harness::{Ended, PLUGIN, Sandbox};
use crate::rolling_update::{
    CONTROLLERS, all_available, check_survivor, controller, images, names, path, with_web,
};

const REQUEST: &str = "windlass.dev/rolling-update-to";

/// Runs `rolling-update --server-side` with short times.
fn submit(sandbox: &Sandbox, args: &[&str]) -> Ended {
    let own = ["--server-side", "--update-period=100ms", "--timeout=30s"];
    sandbox.plugin(&[&["rolling-update"], args, &own].concat())
}

fn annotations(sandbox: &Sandbox, name: &str) -> Value {
    sandbox.get(&path(name))["metadata"]["annotations"].clone()
}

fn reason(controller: &Value) -> String {
    let all = controller["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let own = all.iter().find(|one| one["type"] == "RollingUpdate");
    own.map_or(String::new(), |one| one["reason"].as_str().unwrap().to_owned())
}

#[test]
fn by_image_the_cluster_replaces_the_pods_and_the_survivor_keeps_its_name() {
    let sandbox = with_web();
    let uid = sandbox.get(&path("web"))["metadata"]["uid"].clone();
    for image in ["app:2", "app:3"] {
        let ended = submit(&sandbox, &["web", &format!("--image={image}")]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        for line in
            ["Requested the update of web to web-", "Scaling web from 3 to 2", "Scaling web from 1 to 0"]
        {
            assert!(ended.out.contains(line), "{line:?}: {ended:?}");
        }
        assert!(ended.out.ends_with("replicationcontroller/web rolling updated\n"), "{ended:?}");
        assert_eq!(
            (names(&sandbox), &sandbox.get(&path("web"))["metadata"]["uid"]),
            (vec!["web".to_owned()], &uid)
        );
        check_survivor(&sandbox, "web", image);
        assert_eq!(reason(&sandbox.get(&path("web"))), "Complete");
    }
}

#[test]
fn with_a_name_or_a_file_the_new_one_stays_and_the_old_one_goes_or_stays_at_0() {
    let sandbox = with_web();
    let ended = submit(&sandbox, &["web", "next", "--image=app:2", "-o", "name"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(
        ended.out.contains("Update succeeded. Deleting web\n")
            && ended.out.ends_with("replicationcontroller/next\n"),
        "{ended:?}"
    );
    assert_eq!(names(&sandbox), ["next"]);
    check_survivor(&sandbox, "next", "app:2");
    let file = sandbox.file("third.json");
    let third = controller("third", "app:3", &json!({"app": "web", "deployment": "third"}));
    std::fs::write(&file, third.to_string()).unwrap();
    let ended = submit(&sandbox, &["next", "-f", file.to_str().unwrap(), "--preserve"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(names(&sandbox), ["next", "third"]);
    check_survivor(&sandbox, "third", "app:3");
    assert_eq!(sandbox.get(&path("next"))["spec"]["replicas"], 0);
}

#[test]
fn a_broken_image_ends_the_wait_and_the_update_is_paused_resumed_and_taken_back() {
    let sandbox = with_web();
    let args = [
        "rolling-update",
        "web",
        "next",
        "--image=app:broken",
        "--server-side",
        "--timeout=2s",
        "--fail-fast",
    ];
    let ended = sandbox.plugin(&args);
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert!(ended.err.contains("No progress for 2s") && ended.err.contains("ImagePullBackOff"), "{ended:?}");
    assert!(ended.err.contains("the update goes on in the cluster"), "{ended:?}");
    // A client does not drive what the cluster drives.
    let driven = sandbox.plugin(&["rolling-update", "web", "next", "--image=app:broken"]);
    assert_eq!(driven.code, Some(1), "{driven:?}");
    assert!(driven.err.contains("--server-side") && driven.err.contains(REQUEST), "{driven:?}");
    let explained = sandbox.plugin(&["explain", "rc/web"]);
    let part = "0 available. A controller of the cluster carries it out, TimedOut: No progress for 2s";
    assert!(explained.out.contains(part), "{explained:?}");
    for (flag, said, wanted) in [("--pause", "paused", "Paused"), ("--resume", "resumed", "TimedOut")] {
        let ended = sandbox.plugin(&["rolling-update", "web", flag]);
        assert_eq!((ended.code, ended.out), (Some(0), format!("replicationcontroller/web {said}\n")));
        sandbox.eventually(&path("web"), |web| reason(web) == wanted);
    }
    assert_eq!(images(&sandbox).iter().filter(|image| *image == "app:1").count(), 3, "nothing is lost");
    let ended = submit(&sandbox, &["web", "--rollback"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.out.ends_with("replicationcontroller/web rolled back\n"), "{ended:?}");
    assert_eq!(names(&sandbox), ["web"]);
    check_survivor(&sandbox, "web", "app:1");
    for args in [&["web", "--pause"][..], &["web", "--server-side"]] {
        let ended = sandbox.plugin(&[&["rolling-update"], args].concat());
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.err.contains("no controller of the cluster updates web"), "{ended:?}");
    }
}

#[test]
fn without_a_controller_the_request_is_taken_back() {
    let sandbox = Sandbox::start(&["--no-controllers"]);
    sandbox.call("POST", CONTROLLERS, &controller("web", "app:1", &json!({"app": "web", "deployment": "1"})));
    let ended = submit(&sandbox, &["web", "next", "--image=app:2"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    for part in
        ["no controller of the cluster has answered within 10s", "without --server-side", "rollingupdate"]
    {
        assert!(ended.err.contains(part), "{part:?}: {ended:?}");
    }
    let left = annotations(&sandbox, "web");
    let ours = left.as_object().into_iter().flatten().filter(|(key, _)| key.contains("rolling-update"));
    assert_eq!(ours.count(), 0, "{left:#}");
    assert_eq!(sandbox.get(&path("next"))["spec"]["replicas"], 0);
}

/// Between the client's look and its write the update ends: OLD is at 0, and NEW has all pods.
#[test]
fn a_rollback_is_not_requested_of_an_update_that_has_ended_meanwhile() {
    let sandbox = Sandbox::start(&["--no-controllers"]);
    let mut web = controller("web", "app:1", &json!({"app": "web", "deployment": "1"}));
    web["spec"]["replicas"] = json!(1);
    web["metadata"]["annotations"] = json!({"kubectl.kubernetes.io/original-replicas": "3"});
    let web = sandbox.call("POST", CONTROLLERS, &web);
    let mut next = controller("next", "app:2", &json!({"app": "web", "deployment": "2"}));
    next["metadata"]["annotations"] = json!({
        "kubectl.kubernetes.io/update-source-id": format!("web:{}", web["metadata"]["uid"].as_str().unwrap()),
        "kubectl.kubernetes.io/desired-replicas": "3",
    });
    sandbox.call("POST", CONTROLLERS, &next);
    let (client, looks) = (sandbox.client(), AtomicUsize::new(0));
    let front = Front::start(sandbox.address(), move |method, target| {
        if method == "GET" && target.ends_with("/web") && looks.fetch_add(1, Ordering::SeqCst) == 1 {
            for name in ["web", "next"] {
                let mut end = json!({"metadata": {"annotations": null}});
                if name == "web" {
                    end["spec"]["replicas"] = json!(0);
                }
                let request =
                    http::Request::patch(path(name)).header("content-type", "application/merge-patch+json");
                let request = request.body(end.to_string().into_bytes()).unwrap();
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(client.request::<Value>(request)).unwrap();
            }
        }
        Fate::Forward
    });
    let ended = sandbox.plugin_through(&front, &["rolling-update", "web", "--rollback", "--server-side"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.err.contains("the size that web had before the update is unknown"), "{ended:?}");
    let writes: Vec<String> = front.requests().into_iter().filter(|it| !it.starts_with("GET")).collect();
    assert_eq!(writes, Vec::<String>::new());
}

/// The controller writes no second condition for the same refusal.
#[test]
fn a_request_that_is_refused_again_is_reported_as_refused() {
    let sandbox = with_web();
    let mut greedy = controller("greedy", "app:1", &json!({"app": "web"}));
    greedy["spec"]["replicas"] = json!(0);
    sandbox.call("POST", CONTROLLERS, &greedy);
    let refused = |args: &[&str]| {
        let ended = submit(&sandbox, args);
        assert_eq!(ended.code, Some(3), "{ended:?}");
        assert!(ended.err.contains("refused: greedy selects the pods of next"), "{ended:?}");
        assert!(!ended.err.contains("has answered"), "{ended:?}");
    };
    refused(&["web", "next", "--image=app:2"]);
    // The same request once more, another one, and one after the first was removed.
    refused(&["web", "next", "--image=app:2"]);
    refused(&["web", "next", "--image=app:2", "--max-surge=2"]);
    let removed = json!({"metadata": {"annotations": {REQUEST: null}}});
    sandbox.call("PATCH", &path("web"), &removed);
    sandbox.eventually(&path("web"), |web| reason(web) == "Stopped");
    refused(&["web", "next", "--image=app:2"]);
}

#[test]
fn an_update_goes_on_without_a_client_and_is_watched_again() {
    let sandbox = with_web();
    let ended = submit(&sandbox, &["web", "next", "--image=app:2", "--watch=false"]);
    assert_eq!(ended.code, Some(4), "{ended:?}");
    let watched = sandbox.plugin(&["rolling-update", "web", "--server-side"]);
    // It may have ended before the client looked.
    let is_over = watched.code == Some(1) && watched.err.contains("web does not exist");
    assert!(watched.code == Some(0) || is_over, "{watched:?}");
    sandbox.eventually(&path("next"), |next| {
        reason(next) == "Complete" && next["metadata"]["annotations"].is_null()
    });
    all_available(&sandbox, "next");
    check_survivor(&sandbox, "next", "app:2");
}

#[cfg(unix)]
#[test]
fn an_interrupted_client_leaves_the_update_to_the_cluster_and_says_how_to_go_on() {
    let sandbox = with_web();
    let args = ["rolling-update", "web", "--image=app:3", "--server-side", "--update-period=1s"];
    let mut child =
        sandbox.command(PLUGIN, &args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.starts_with("Scaling")));
    assert!(sandbox.command("kill", &["-INT", &child.id().to_string()]).status().unwrap().success());
    let mut note = String::new();
    child.stderr.take().unwrap().read_to_string(&mut note).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{note}");
    for part in ["goes on in the cluster", "rolling-update web --server-side", "--pause", "--rollback"] {
        assert!(note.contains(part), "{part:?}: {note}");
    }
    sandbox.eventually(&path("web"), |web| reason(web) == "Complete" && web["spec"]["replicas"] == 3);
    sandbox.eventually(CONTROLLERS, |all| all["items"].as_array().unwrap().len() == 1);
}

#[test]
fn a_client_that_drives_an_update_stops_when_the_cluster_is_asked_for_it() {
    let sandbox = with_web();
    let args =
        ["rolling-update", "web", "next", "--image=app:2", "--update-period=1s", "--poll-interval=200ms"];
    let mut child =
        sandbox.command(PLUGIN, &args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line == "Scaling next from 0 to 1"));
    let request = json!({"metadata": {"annotations": {REQUEST: "next"}}});
    sandbox.call("PATCH", &path("web"), &request);
    let mut error = String::new();
    child.stderr.take().unwrap().read_to_string(&mut error).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1), "{error}");
    assert!(error.contains("a controller of the cluster updates web to next"), "{error}");
    sandbox.eventually(&path("next"), |next| {
        reason(next) == "Complete" && next["metadata"]["annotations"].is_null()
    });
    assert_eq!(names(&sandbox), ["next"]);
    check_survivor(&sandbox, "next", "app:2");
}

#[test]
fn what_the_cluster_refuses_is_said_and_flags_that_do_not_go_together_are_usage_errors() {
    let sandbox = with_web();
    // A third controller that would take the pods.
    let mut greedy = controller("greedy", "app:1", &json!({"app": "web"}));
    greedy["spec"]["replicas"] = json!(0);
    sandbox.call("POST", CONTROLLERS, &greedy);
    let ended = submit(&sandbox, &["web", "next", "--image=app:2"]);
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert!(ended.err.contains("greedy selects the pods of next"), "{ended:?}");
    for (args, part) in [
        (&["web", "--image=a", "--watch=false"][..], "--server-side"),
        (&["web", "--rollback", "--fail-fast"], "--fail-fast needs --image or -f"),
        (&["web", "--rollback", "--replace"], "--replace"),
        (&["web", "--image=a", "--poll-interval=0"], "at least 100ms"),
        (&["web", "--image=a", "--server-side", "--min-ready-seconds=5"], "--min-ready-seconds"),
        (&["web", "--pause", "--resume"], "--resume"),
        (&["web", "next", "--pause"], "leave next out"),
    ] {
        let ended = sandbox.plugin(&[&["rolling-update"], args].concat());
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.err.contains(part), "{part:?}: {ended:?}");
    }
}
