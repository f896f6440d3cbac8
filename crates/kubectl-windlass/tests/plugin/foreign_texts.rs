//! Texts of the cluster that a terminal would interpret reach no terminal, in no format.

use serde_json::{Value, json};

use crate::harness::{DEPLOYMENTS, Ended, Sandbox};

/// Characters that a terminal would interpret: an escape sequence in both forms, overrides and isolates of direction,
/// and a character without width.
const HOSTILE: &str = "a\u{1b}[2J\u{9b}31m\u{7f}\u{202a}\u{202e}b\u{2066}\u{2069}\u{200b}c";

fn is_interpreted(c: char) -> bool {
    (c.is_control() && c != '\n')
        || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200b}')
}

/// Nothing is interpreted, and it is JSON.
#[track_caller]
fn check_json(ended: &Ended) -> Value {
    assert!(!ended.out.chars().chain(ended.err.chars()).any(is_interpreted), "{ended:?}");
    serde_json::from_str(&ended.out).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
}

/// Moreover, a program that reads it has the text whole.
#[track_caller]
fn check_whole(ended: &Ended) {
    let value = check_json(ended);
    assert!(holds(&value, HOSTILE), "{value:#}");
}

/// Whether a text is in one of the strings.
fn holds(value: &Value, text: &str) -> bool {
    match value {
        Value::String(found) => found.contains(text),
        Value::Array(all) => all.iter().any(|one| holds(one, text)),
        Value::Object(all) => all.values().any(|one| holds(one, text)),
        _ => false,
    }
}

#[test]
fn json_of_every_command_escapes_what_a_terminal_interprets() {
    let sandbox = Sandbox::start(&["--no-pod-simulator"]);
    sandbox.create_web("app:1", &json!({"replicas": 1}));
    let pods = sandbox.eventually("/api/v1/namespaces/default/pods", |pods| {
        pods["items"].as_array().is_some_and(|pods| !pods.is_empty())
    });
    let pod = pods["items"][0]["metadata"]["name"].as_str().unwrap().to_owned();
    let status = json!({"status": {"phase": "Pending", "containerStatuses": [{"name": "app", "image": "app:1",
        "imageID": "", "ready": false, "restartCount": 0,
        "state": {"waiting": {"reason": "ImagePullBackOff", "message": HOSTILE}}}]}});
    sandbox.call("PATCH", &format!("/api/v1/namespaces/default/pods/{pod}/status"), &status);
    check_whole(&sandbox.plugin(&["explain", "web", "-o", "json"]));
    let text = sandbox.plugin(&["explain", "web"]);
    assert!(text.out.contains("ImagePullBackOff") && !text.out.chars().any(is_interpreted), "{text:?}");

    let template = json!({"metadata": {"annotations": {"note": HOSTILE}}});
    sandbox.call("PATCH", &format!("{DEPLOYMENTS}/web"), &json!({"spec": {"template": template}}));
    sandbox.web_reports("ReplicaSetUpdated");
    check_whole(&sandbox.plugin(&["history", "web", "--revision=2", "-o", "json"]));

    // A preview shows only what matters of a text.
    check_json(&sandbox.plugin(&["plan", "web", "--image=app:2", "-o", "json"]));

    let map =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": HOSTILE}});
    let file = sandbox.file("map.json");
    std::fs::write(&file, map.to_string()).unwrap();
    check_whole(&sandbox.plugin(&["create", "-f", file.to_str().unwrap(), "-o", "json"]));
}
