//! Additions of `explain` on request: logs of crashed containers, and the daemon's own explanation.

use std::path::Path;

use jiff::Timestamp;
use serde_json::{Value, json};
use windlass::engine::explanations::{Explanation, Explanations};
use windlass::model::{Deployment, Interner, Record as _};
use windlass::plan::deployment::PlanReason;

use crate::answering_front::Front;
use crate::harness::{Ended, PLUGIN, Sandbox};

/// The state of a container that crashed and waits for its next start.
fn crash(sandbox: &Sandbox) -> String {
    let pods = sandbox.eventually("/api/v1/namespaces/default/pods", |pods| {
        pods["items"].as_array().is_some_and(|pods| !pods.is_empty())
    });
    let name = pods["items"][0]["metadata"]["name"].as_str().unwrap().to_owned();
    let status = json!({"name": "app", "image": "app:1", "imageID": "", "ready": false, "restartCount": 4,
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
        "lastState": {"terminated": {"exitCode": 2, "reason": "Error"}}});
    let status = json!({"status": {"phase": "Running", "containerStatuses": [status],
        "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    sandbox.call("PATCH", &format!("/api/v1/namespaces/default/pods/{name}/status"), &status);
    name
}

/// Without nodes that run pods: the statuses are the test's.
fn start() -> Sandbox {
    let sandbox = Sandbox::start(&["--no-pod-simulator"]);
    sandbox.create_web("app:1", &json!({"replicas": 1}));
    sandbox
}

#[test]
fn logs_are_those_of_the_run_that_crashed_and_harmless() {
    let sandbox = start();
    let pod = crash(&sandbox);
    let front = Front::start(&sandbox, |path| {
        path.contains("/log?").then(|| (200, "first\nsecond \u{1b}[31mred\n::error::third\n".to_owned()))
    });
    let server = format!("--server={}", front.url);
    let ended = sandbox.plugin(&["explain", "web", "--logs=2", &server]);
    let shown = format!(
        "LOGS    {pod}, container app, before its last restart\n        | second [31mred\n        | ::error::third\n"
    );
    assert!(ended.out.contains(&shown), "{ended:?}");
    let asked = front.heads().into_iter().find(|head| head.contains("/log?")).unwrap();
    for part in [&format!("/pods/{pod}/log?"), "container=app", "tailLines=2", "previous=true"] {
        assert!(asked.contains(part), "{part}: {asked}");
    }
    let value: Value =
        serde_json::from_str(&sandbox.plugin(&["explain", "web", "--logs=2", "-o=json", &server]).out)
            .unwrap();
    assert_eq!(value["logs"][0]["lines"][0], "second \u{1b}[31mred");
    // Nothing is read unless it is asked for.
    let count = front.heads().iter().filter(|head| head.contains("/log?")).count();
    assert!(!sandbox.plugin(&["explain", "web", &server]).out.contains("LOGS"));
    assert_eq!(front.heads().iter().filter(|head| head.contains("/log?")).count(), count);
}

#[test]
fn a_log_that_may_not_be_read_is_named_and_the_rest_is_told() {
    let sandbox = start();
    crash(&sandbox);
    let front = Front::start(&sandbox, |path| {
        let refused = json!({"kind": "Status", "message": "pods/log is forbidden", "reason": "Forbidden"});
        path.contains("/log?").then(|| (403, refused.to_string()))
    });
    let ended = sandbox.plugin(&["explain", "web", "--logs=2", &format!("--server={}", front.url)]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(
        ended.out.contains("CrashLoopBackOff") && ended.out.contains("pods/log is forbidden"),
        "{ended:?}"
    );
}

#[test]
fn yaml_has_what_json_has() {
    let sandbox = start();
    let json: Value = serde_json::from_str(&sandbox.plugin(&["explain", "web", "-o=json"]).out).unwrap();
    let yaml = sandbox.plugin(&["explain", "web", "-o=yaml"]);
    let yaml = windlass_testkit::manifests::object(&yaml.out);
    assert_eq!(yaml["uid"], json["uid"]);
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&yaml), keys(&json));
}

/// The answer that a daemon would serve: made by its own code.
fn served() -> String {
    let web = r#"{"metadata": {"name": "web", "namespace": "default", "uid": "u", "resourceVersion": "1"},
                  "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {}}}"#;
    let web = Deployment::decode(web, &mut Interner::default()).unwrap();
    let kept = Explanations::default();
    let at = |second: i64| Timestamp::from_second(1_767_225_600 + second).unwrap();
    kept.keep(&web.meta.uid, Explanation::new(at(0), vec![PlanReason::Paused], &["scale web-1 from 3 to 2"]));
    let mut current = Explanation::new(at(60), vec![PlanReason::BeingDeleted], &["create web-2"]);
    current.fail(&"web-2: quota exceeded");
    current.requeue_after = Some(std::time::Duration::from_secs(30));
    kept.keep(&web.meta.uid, current);
    serde_json::to_string(&kept.of(Deployment::RESOURCE, &web.meta).unwrap()).unwrap()
}

#[test]
fn the_daemon_tells_earlier_plans_and_the_write_that_failed() {
    let sandbox = start();
    let front =
        Front::start(&sandbox, |path| (path == "/debug/deployments/default/web").then(|| (200, served())));
    let ended = sandbox.plugin(&["explain", "web", "--endpoint", &front.url]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for part in ["DAEMON  looks again", "a write failed: web-2: quota exceeded", "scale web-1 from 3 to 2"] {
        assert!(ended.out.contains(part), "{part}: {ended:?}");
    }
    let mut by_variable = sandbox.command(PLUGIN, &["explain", "web", "-o=json"]);
    let ended = Ended::of(&by_variable.env("WINDLASS_ENDPOINT", &front.url).output().unwrap());
    let value: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(value["daemon"]["current"]["error"], "web-2: quota exceeded");
    assert_eq!(front.heads().len(), 2);
    sandbox.plugin(&["explain", "web"]);
    assert_eq!(front.heads().len(), 2, "it is asked only where it is named");
}

#[test]
fn a_daemon_never_gets_the_credentials_of_the_kubeconfig() {
    let sandbox = start();
    let front = Front::start(&sandbox, |_| Some((200, "{}".to_owned())));
    let token = sandbox.file("token");
    std::fs::write(&token, "of-the-endpoint\n").unwrap();
    let of_the_cluster = ["--token=of-the-cluster", "--as=root", "--endpoint", &front.url];
    let ask = |more: &[&str]| {
        let ended = sandbox.plugin(&[&["explain", "web"], of_the_cluster.as_slice(), more].concat());
        assert_eq!(ended.code, Some(0), "{ended:?}");
        front.heads().pop().unwrap().to_lowercase()
    };
    let head = ask(&[]);
    assert!(head.starts_with("get /debug/deployments/default/web "), "{head}");
    assert!(!head.contains("authorization") && !head.contains("impersonate"), "{head}");
    let head = ask(&["--endpoint-token-file", token.to_str().unwrap()]);
    assert!(head.contains("authorization: bearer of-the-endpoint\r\n"), "{head}");
    assert!(!head.contains("of-the-cluster") && !head.contains("impersonate"), "{head}");
}

#[test]
fn a_standby_and_a_daemon_that_is_away_are_named_and_the_rest_is_told() {
    let sandbox = start();
    let front =
        Front::start(&sandbox, |_| Some((404, "no Deployment default/web is in the cache\n".to_owned())));
    let ended = sandbox.plugin(&["explain", "web", "--endpoint", &front.url]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.out.starts_with("Deployment default/web"), "{ended:?}");
    assert!(
        ended.out.contains("no Deployment default/web is in the cache; a standby explains nothing"),
        "{ended:?}"
    );
    let ended = sandbox.plugin(&["explain", "web", "--endpoint=http://127.0.0.1:1", "-o=json"]);
    let value: Value = serde_json::from_str(&ended.out).unwrap();
    assert!(value["daemon"]["error"].as_str().unwrap().starts_with("http://127.0.0.1:1/debug"), "{value}");
}

#[test]
fn flags_of_the_endpoint_are_checked_before_anything_is_sent() {
    let sandbox = Sandbox::start(&["--no-controllers"]);
    let refused = |args: &[&str], code: i32, part: &str| {
        let ended = sandbox.plugin(&[&["explain", "web"], args].concat());
        assert_eq!(ended.code, Some(code), "{ended:?}");
        assert!(ended.err.contains(part), "{ended:?}");
    };
    refused(&["--endpoint=windlass:10257"], 2, "is not a URL");
    refused(&["--endpoint-ca=/missing"], 2, "name its URL");
    refused(&["--endpoint=https://127.0.0.1:1", "--endpoint-ca=/missing"], 1, "--endpoint-ca /missing");
    refused(&["--endpoint=http://a", "--endpoint-token-file=/dev/null"], 2, "use https");
    refused(&["--logs=0"], 2, "--logs");
}

/// kubectl calls the plugin by its name; a program of another name does not know how it is called.
#[cfg(unix)]
#[test]
fn the_way_back_is_named_as_the_user_calls_the_plugin() {
    let sandbox = Sandbox::start(&[]);
    sandbox.create_web("app:1", &Value::Null);
    sandbox.web_reports("NewReplicaSetAvailable");
    sandbox.set_image("app:broken");
    sandbox.eventually("/api/v1/namespaces/default/pods", |pods| {
        let waits = |pod: &Value| {
            pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "ImagePullBackOff"
        };
        pods["items"].as_array().into_iter().flatten().any(waits)
    });
    let advice_by = |program: &Path, kubectl: &str| {
        let mut command = sandbox.command(program, &["explain", "web"]);
        let ended = Ended::of(&command.env("KUBECTL_PATH", kubectl).output().unwrap());
        ended.out.lines().find_map(|line| line.strip_prefix("TRY     ").map(str::to_owned)).unwrap()
    };
    let advice = |program: &Path| advice_by(program, "");
    assert!(
        advice(Path::new(PLUGIN)).starts_with("kubectl windlass undo -n default deploy/web    (revision 1")
    );
    let renamed = sandbox.file("windlass-cli");
    std::os::unix::fs::symlink(PLUGIN, &renamed).unwrap();
    assert!(advice(&renamed).starts_with("kubectl rollout undo -n default deploy/web"));
    // kubectl 1.37 and later say where they are.
    let other = "/opt/kubernetes/kubectl-1.37";
    let undo = advice_by(Path::new(PLUGIN), other);
    assert!(undo.starts_with(&format!("{other} windlass undo -n default deploy/web")), "{undo}");
    assert!(advice_by(&renamed, other).starts_with(&format!("{other} rollout undo -n default")));
    let mut command = sandbox.command(PLUGIN, &["explain", "--help"]);
    let help = Ended::of(&command.env("KUBECTL_PATH", other).output().unwrap()).out;
    assert!(help.contains(&format!("Usage: {other} windlass explain")), "{help}");
}
