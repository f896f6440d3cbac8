//! A rolling update while the server is busy, the connection breaks, the client dies, or others interfere.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kubectl_windlass::api::Api;
use kubectl_windlass::cli::GlobalArgs;
use kubectl_windlass::connection::connect;
use kubectl_windlass::write;
use serde_json::{Value, json};

use crate::front::{Fate, Front};
use crate::harness::{DEPLOYMENTS, PLUGIN};
use crate::rolling_update::{CONTROLLERS, all_available, check_survivor, controller, names, path, with_web};

const ORIGINAL: &str = "kubectl.kubernetes.io/original-replicas";
const SOURCE: &str = "kubectl.kubernetes.io/update-source-id";

const NEXT: [&str; 6] =
    ["rolling-update", "web", "next", "--image=app:2", "--update-period=100ms", "--poll-interval=200ms"];

#[test]
fn a_patch_of_an_object_that_has_changed_or_was_created_again_is_a_conflict() {
    let sandbox = with_web();
    sandbox.create_web("app:1", &json!({"replicas": 0}));
    let web = format!("{DEPLOYMENTS}/web");
    let seen = sandbox.get(&web);
    sandbox.call("PATCH", &web, &json!({"metadata": {"labels": {"a": "b"}}}));
    let args = GlobalArgs { kubeconfig: Some(sandbox.file("kubeconfig")), ..GlobalArgs::default() };
    let replace = |seen: &Value| {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let api = Api::new(connect(&args, &|_| None).await.unwrap(), args.request_timeout);
            let operations = vec![json!({"op": "add", "path": "/spec/replicas", "value": 1})];
            write::replace(&api, "web", &web, seen, operations).await
        })
    };
    assert_eq!(replace(&seen).unwrap_err().code(), Some(409), "changed");
    let mut namesake = seen.clone();
    namesake["metadata"]["uid"] = json!("11111111-2222-3333-4444-555555555555");
    assert_eq!(replace(&namesake).unwrap_err().code(), Some(409), "created again");
    assert_eq!(replace(&sandbox.get(&web)).unwrap()["spec"]["replicas"], 1);
}

#[test]
fn a_busy_server_and_a_connection_that_breaks_do_not_end_an_update() {
    let sandbox = with_web();
    let requests = Arc::new(AtomicUsize::new(0));
    // The start is left in peace: what fails there is an error, and the command is run again.
    let fate = move |method: &str, _: &str| {
        let begun = method == "POST" || requests.load(Ordering::SeqCst) > 0;
        match if begun { requests.fetch_add(1, Ordering::SeqCst) % 11 } else { 0 } {
            1 => Fate::Answer(429),
            2 => Fate::Answer(503),
            3 => Fate::Reset,
            7 if method != "GET" => Fate::LoseAnswer,
            _ => Fate::Forward,
        }
    };
    let front = Front::start(sandbox.address(), fate);
    let ended = sandbox.plugin_through(&front, &NEXT);
    assert_eq!(ended.code, Some(0), "{ended:?}\n{:#?}", front.requests());
    assert_eq!(names(&sandbox), ["next"]);
    check_survivor(&sandbox, "next", "app:2");
}

#[test]
fn a_server_that_stays_away_ends_the_update_with_the_timeout() {
    let sandbox = with_web();
    let requests = Arc::new(AtomicUsize::new(0));
    let fate = move |_: &str, _: &str| match requests.fetch_add(1, Ordering::SeqCst) {
        number if number > 20 => Fate::Answer(503),
        _ => Fate::Forward,
    };
    let front = Front::start(sandbox.address(), fate);
    let started = tokio::time::Instant::now();
    let ended = sandbox.plugin_through(&front, &[&NEXT[..], &["--timeout=3s"]].concat());
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.err.contains("the front says so"), "{ended:?}");
    assert!(started.elapsed().as_secs() >= 3, "{ended:?}");
}

/// Lets so many writes of the client through, and then none: what a client leaves that is killed after that write.
#[test]
fn a_client_that_dies_after_any_write_of_a_preserving_update_leaves_no_stale_size() {
    let sandbox = with_web();
    for writes in 0.. {
        assert!(writes < 40, "no end");
        let left = AtomicUsize::new(writes);
        let fate = move |method: &str, _: &str| {
            let take = |left: usize| left.checked_sub(1);
            let may = method == "GET" || left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_ok();
            if may { Fate::Forward } else { Fate::Answer(403) }
        };
        let front = Front::start(sandbox.address(), fate);
        // Each run begins from what the one before has left.
        let ended = sandbox.plugin_through(&front, &[&NEXT[..], &["--preserve"]].concat());
        let (web, next) = (sandbox.get(&path("web")), sandbox.get(&path("next")));
        let of_next = &next["metadata"]["annotations"];
        if next.is_object() && of_next[SOURCE].is_null() {
            assert!(web["metadata"]["annotations"][ORIGINAL].is_null(), "after {writes} writes: {web:#}");
        }
        // The last write may be that of the sandbox's controller.
        let is_over = of_next[SOURCE].is_null() && web["spec"]["replicas"] == 0;
        if ended.code == Some(0) || is_over {
            assert!(writes > 0);
            break;
        }
        assert!(ended.err.contains("the front says so"), "{ended:?}");
    }
    check_survivor(&sandbox, "next", "app:2");
    assert_eq!(sandbox.get(&path("web"))["spec"]["replicas"], 0);
}

#[test]
fn between_the_last_writes_of_a_preserving_update_there_is_nothing_to_roll_back_to() {
    let sandbox = with_web();
    let ended = sandbox.plugin(&[&NEXT[..], &["--preserve"]].concat());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    // As the client leaves it that dies before its last write.
    let uid = sandbox.get(&path("web"))["metadata"]["uid"].as_str().unwrap().to_owned();
    let source = format!("web:{uid}");
    let desired = "kubectl.kubernetes.io/desired-replicas";
    let annotations = json!({"metadata": {"annotations": {SOURCE: source, desired: "3"}}});
    sandbox.call("PATCH", &path("next"), &annotations);
    let back = sandbox.plugin(&["rolling-update", "web", "next", "--rollback"]);
    assert_eq!(back.code, Some(1), "{back:?}");
    assert!(back.err.contains("complete but for its last writes"), "{back:?}");
    assert_eq!(sandbox.get(&path("next"))["spec"]["replicas"], 3);
    let ended = sandbox.plugin(&[&NEXT[..], &["--preserve"]].concat());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    check_survivor(&sandbox, "next", "app:2");
}

#[test]
fn an_old_one_that_is_deleted_and_created_again_midway_is_left_alone() {
    let sandbox = with_web();
    let args = [&NEXT[..4], &["--update-period=2s", "--poll-interval=200ms"]].concat();
    let mut child =
        sandbox.command(PLUGIN, &args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line == "Scaling next from 0 to 1"));
    sandbox.call("DELETE", &path("web"), &json!({"propagationPolicy": "Background"}));
    sandbox.eventually(&path("web"), Value::is_null);
    let again = controller("web", "app:9", &json!({"app": "web", "deployment": "again"}));
    sandbox.call("POST", CONTROLLERS, &again);
    let mut error = String::new();
    child.stderr.take().unwrap().read_to_string(&mut error).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1), "{error}");
    // The client may look before it is created again.
    assert!(error.contains("web was deleted") && error.contains("in the middle of the update"), "{error}");
    all_available(&sandbox, "web");
    assert_eq!(sandbox.get(&path("web"))["spec"]["replicas"], 3);
}

#[test]
fn a_new_one_that_becomes_the_target_of_another_update_is_left_alone() {
    let sandbox = with_web();
    let args = [&NEXT[..4], &["--update-period=2s", "--poll-interval=200ms"]].concat();
    let mut child =
        sandbox.command(PLUGIN, &args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line == "Scaling next from 0 to 1"));
    sandbox.call("PATCH", &path("next"), &json!({"metadata": {"annotations": {SOURCE: "other:1"}}}));
    let mut error = String::new();
    child.stderr.take().unwrap().read_to_string(&mut error).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1), "{error}");
    assert!(error.contains("next is the target of another update, that of other:1"), "{error}");
    assert_eq!(sandbox.get(&path("web"))["spec"]["replicas"], 3);
}

/// A webhook that removes the label: the front answers as the server would then.
#[test]
fn a_label_that_does_not_stay_on_a_pod_ends_the_relabelling() {
    let sandbox = with_web();
    // The front drops the body: the pod comes back as it is.
    let front = Front::start(sandbox.address(), move |method, target| {
        if method == "PATCH" && target.contains("/pods/") { Fate::WithoutChange } else { Fate::Forward }
    });
    let ended = sandbox.plugin_through(&front, &["rolling-update", "web", "--image=app:2"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.err.contains("an admission webhook seems to remove it"), "{ended:?}");
}
