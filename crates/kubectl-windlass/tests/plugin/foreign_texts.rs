//! Texts of the cluster that a terminal would interpret reach no terminal, in no format.

use serde_json::{Value, json};

use crate::harness::{DEPLOYMENTS, Ended, Sandbox};

/// What a terminal would interpret: an escape sequence in both forms, overrides and isolates of direction, and a character
/// without width.
const HOSTILE: &str = "a\u{1b}[2J\u{9b}31m\u{7f}\u{202a}\u{202e}b\u{2066}\u{2069}\u{200b}c";

fn is_interpreted(c: char) -> bool {
    (c.is_control() && c != '\n')
        || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200b}')
}

/// Nothing is interpreted, and a program that reads the JSON has the text whole.
#[track_caller]
fn check_json(ended: &Ended) {
    assert!(!ended.out.chars().chain(ended.err.chars()).any(is_interpreted), "{ended:?}");
    let value: Value = serde_json::from_str(&ended.out).unwrap();
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
    check_json(&sandbox.plugin(&["explain", "web", "-o", "json"]));
    let text = sandbox.plugin(&["explain", "web"]);
    assert!(text.out.contains("ImagePullBackOff") && !text.out.chars().any(is_interpreted), "{text:?}");

    let template = json!({"metadata": {"annotations": {"note": HOSTILE}}});
    sandbox.call("PATCH", &format!("{DEPLOYMENTS}/web"), &json!({"spec": {"template": template}}));
    sandbox.web_reports("ReplicaSetUpdated");
    check_json(&sandbox.plugin(&["history", "web", "--revision=2", "-o", "json"]));

    let web = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": {"metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "app", "image": HOSTILE}]}}}});
    let file = sandbox.file("web.json");
    std::fs::write(&file, web.to_string()).unwrap();
    let file = file.to_str().unwrap().to_owned();
    check_json(&sandbox.plugin(&["plan", "-f", &file, "-o", "json"]));
    check_json(&sandbox.plugin(&["create", "-f", &file, "-o", "json", "--dry-run=client"]));
}
