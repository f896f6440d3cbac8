//! The row of a pod: its status in one word, worked out of the states of its containers.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::row::{Row, items, number, since};

pub(crate) const COLUMNS: &[&str] =
    &["Name", "Ready", "Status", "Restarts", "Age", "*IP", "*Node", "*Nominated Node", "*Readiness Gates"];

pub(crate) fn cells(row: &Row<'_>) -> Vec<Value> {
    let Row { object: pod, now } = *row;
    let (metadata, spec, status) = (&pod["metadata"], &pod["spec"], &pod["status"]);
    let summary = summarize(pod);
    let sidecars = items(&spec["initContainers"]).filter(|container| is_sidecar(container)).count();
    let total = items(&spec["containers"]).count() + sidecars;
    let restarts = match &summary.last_restart {
        Some(at) if summary.restarts > 0 => {
            format!("{} ({} ago)", summary.restarts, since(&json!(at.to_string()), now))
        }
        _ => summary.restarts.to_string(),
    };
    let or_none = |value: &Value| match value.as_str() {
        Some(text) if !text.is_empty() => json!(text),
        _ => json!("<none>"),
    };
    let address = status["podIPs"][0]["ip"].as_str().or(status["podIP"].as_str());
    vec![
        json!(metadata["name"].as_str().unwrap_or_default()),
        json!(format!("{}/{total}", summary.ready)),
        json!(summary.reason),
        json!(restarts),
        json!(since(&metadata["creationTimestamp"], now)),
        or_none(&json!(address)),
        or_none(&spec["nodeName"]),
        or_none(&status["nominatedNodeName"]),
        readiness_gates(pod),
    ]
}

struct Summary {
    reason: String,
    ready: usize,
    restarts: i64,
    last_restart: Option<Timestamp>,
}

fn summarize(pod: &Value) -> Summary {
    let status = &pod["status"];
    let phase = text(&status["phase"]);
    let mut summary = Summary { reason: phase.to_owned(), ready: 0, restarts: 0, last_restart: None };
    if !text(&status["reason"]).is_empty() {
        summary.reason = text(&status["reason"]).to_owned();
    }
    if condition(pod, "PodScheduled").is_some_and(|scheduled| scheduled["reason"] == "SchedulingGated") {
        summary.reason = "SchedulingGated".to_owned();
    }
    let initializing = init_containers(pod, &mut summary);
    let initialized = condition(pod, "Initialized").is_some_and(|condition| condition["status"] == "True");
    if !initializing || initialized {
        containers(pod, &mut summary);
    }
    let deleting = pod["metadata"]["deletionTimestamp"].is_string();
    if deleting && status["reason"] == "NodeLost" {
        summary.reason = "Unknown".to_owned();
    } else if deleting && !matches!(phase, "Succeeded" | "Failed") {
        summary.reason = "Terminating".to_owned();
    }
    summary
}

/// Counts the init containers and tells whether the pod is still at them.
fn init_containers(pod: &Value, summary: &mut Summary) -> bool {
    let specs = &pod["spec"]["initContainers"];
    let total = items(specs).count();
    let (mut sidecar_restarts, mut sidecar_last) = (0, None);
    let mut initializing = false;
    for (index, container) in items(&pod["status"]["initContainerStatuses"]).enumerate() {
        let sidecar =
            items(specs).any(|candidate| candidate["name"] == container["name"] && is_sidecar(candidate));
        summary.restarts += number(&container["restartCount"]);
        summary.last_restart = summary.last_restart.max(last_termination(container));
        if sidecar {
            sidecar_restarts += number(&container["restartCount"]);
            sidecar_last = sidecar_last.max(last_termination(container));
        }
        let (terminated, waiting) = (&container["state"]["terminated"], &container["state"]["waiting"]);
        if terminated.is_object() && number(&terminated["exitCode"]) == 0 {
            continue;
        }
        if sidecar && container["started"] == true {
            summary.ready += usize::from(container["ready"] == true);
            continue;
        }
        summary.reason = if terminated.is_object() {
            format!("Init:{}", termination(terminated))
        } else {
            match text(&waiting["reason"]) {
                "" | "PodInitializing" => format!("Init:{index}/{total}"),
                reason => format!("Init:{reason}"),
            }
        };
        initializing = true;
        break;
    }
    if !initializing || condition(pod, "Initialized").is_some_and(|c| c["status"] == "True") {
        // Past initialization the restarts of what ran once no longer interest.
        summary.restarts = sidecar_restarts;
        summary.last_restart = sidecar_last;
    }
    initializing
}

fn containers(pod: &Value, summary: &mut Summary) {
    let mut running = false;
    let statuses: Vec<&Value> = items(&pod["status"]["containerStatuses"]).collect();
    // The first container has the last word.
    for container in statuses.into_iter().rev() {
        summary.restarts += number(&container["restartCount"]);
        summary.last_restart = summary.last_restart.max(last_termination(container));
        let state = &container["state"];
        let waiting = text(&state["waiting"]["reason"]);
        if !waiting.is_empty() {
            summary.reason = waiting.to_owned();
        } else if state["terminated"].is_object() {
            summary.reason = termination(&state["terminated"]);
        } else if container["ready"] == true && state["running"].is_object() {
            running = true;
            summary.ready += 1;
        }
    }
    // One container that is done does not make a pod with a running one "Completed".
    if summary.reason == "Completed" && running {
        let ready = condition(pod, "Ready").is_some_and(|condition| condition["status"] == "True");
        summary.reason = if ready { "Running" } else { "NotReady" }.to_owned();
    }
}

fn termination(terminated: &Value) -> String {
    match (text(&terminated["reason"]), number(&terminated["signal"])) {
        ("", 0) => format!("ExitCode:{}", number(&terminated["exitCode"])),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

fn last_termination(container: &Value) -> Option<Timestamp> {
    container["lastState"]["terminated"]["finishedAt"].as_str()?.parse().ok()
}

fn readiness_gates(pod: &Value) -> Value {
    let gates: Vec<&Value> = items(&pod["spec"]["readinessGates"]).collect();
    if gates.is_empty() {
        return json!("<none>");
    }
    let open = gates
        .iter()
        .filter(|gate| condition(pod, text(&gate["conditionType"])).is_some_and(|c| c["status"] == "True"))
        .count();
    json!(format!("{open}/{}", gates.len()))
}

fn is_sidecar(container: &Value) -> bool {
    container["restartPolicy"] == "Always"
}

fn condition<'a>(pod: &'a Value, kind: &str) -> Option<&'a Value> {
    items(&pod["status"]["conditions"]).find(|condition| condition["type"] == kind)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::tests::{check, now};
    use super::{Row, cells};

    /// READY, STATUS and RESTARTS.
    #[track_caller]
    fn check_status(pod: Value, ready: &str, status: &str, restarts: &str) {
        assert_eq!(
            cells(&Row { object: &pod, now: now() })[1..4],
            [json!(ready), json!(status), json!(restarts)]
        );
    }

    fn pod(phase: &str, containers: Value) -> Value {
        json!({
            "spec": {"containers": [{"name": "a"}, {"name": "b"}]},
            "status": {"phase": phase, "containerStatuses": containers},
        })
    }

    #[test]
    fn a_running_pod_has_a_whole_row() {
        check(
            "Pod",
            json!({
                "metadata": {"name": "web-1", "creationTimestamp": "2026-01-01T10:00:00Z"},
                "spec": {
                    "nodeName": "n1", "containers": [{"name": "a"}],
                    "readinessGates": [{"conditionType": "x.io/ok"}],
                },
                "status": {
                    "phase": "Running", "podIP": "10.0.0.7",
                    "conditions": [{"type": "x.io/ok", "status": "True"}],
                    "containerStatuses": [{
                        "name": "a", "ready": true, "restartCount": 2, "state": {"running": {}},
                        "lastState": {"terminated": {"exitCode": 1, "finishedAt": "2026-01-01T11:55:00Z"}},
                    }],
                },
            }),
            json!(["web-1", "1/1", "Running", "2 (5m ago)", "120m", "10.0.0.7", "n1", "<none>", "1/1"]),
        );
    }

    #[test]
    fn the_first_waiting_container_gives_the_status() {
        let waiting = |reason: &str| json!({"name": "a", "state": {"waiting": {"reason": reason}}});
        check_status(pod("Pending", Value::Null), "0/2", "Pending", "0");
        let both = json!([waiting("ImagePullBackOff"), waiting("ContainerCreating")]);
        check_status(pod("Pending", both), "0/2", "ImagePullBackOff", "0");
        let one = json!([{"ready": true, "state": {"running": {}}}, waiting("CrashLoopBackOff")]);
        check_status(pod("Running", one), "1/2", "CrashLoopBackOff", "0");
    }

    #[test]
    fn terminated_containers_report_their_exit() {
        let ended = |terminated: Value| pod("Failed", json!([{"state": {"terminated": terminated}}]));
        check_status(ended(json!({"reason": "Error", "exitCode": 1})), "0/2", "Error", "0");
        check_status(ended(json!({"exitCode": 3})), "0/2", "ExitCode:3", "0");
        check_status(ended(json!({"signal": 9})), "0/2", "Signal:9", "0");
        let mixed = json!([
            {"state": {"terminated": {"reason": "Completed"}}},
            {"ready": true, "state": {"running": {}}},
        ]);
        check_status(pod("Running", mixed), "1/2", "NotReady", "0");
    }

    #[test]
    fn a_pod_being_deleted_is_terminating_unless_it_has_ended() {
        let deleted = |phase: &str| {
            let mut pod = pod(phase, Value::Null);
            pod["metadata"] = json!({"deletionTimestamp": "2026-01-01T12:00:30Z"});
            pod
        };
        check_status(deleted("Running"), "0/2", "Terminating", "0");
        check_status(deleted("Succeeded"), "0/2", "Succeeded", "0");
    }

    #[test]
    fn an_evicted_pod_shows_the_reason() {
        let mut evicted = pod("Failed", Value::Null);
        evicted["status"]["reason"] = json!("Evicted");
        check_status(evicted, "0/2", "Evicted", "0");
    }

    #[test]
    fn initialization_is_shown_step_by_step() {
        let initializing = |statuses: Value| {
            json!({
                "spec": {"containers": [{"name": "a"}], "initContainers": [{"name": "i"}, {"name": "j"}]},
                "status": {"phase": "Pending", "initContainerStatuses": statuses},
            })
        };
        let done = json!({"name": "i", "state": {"terminated": {"exitCode": 0}}});
        let waits = json!({"name": "j", "state": {"waiting": {"reason": "PodInitializing"}}});
        check_status(initializing(json!([done, waits])), "0/1", "Init:1/2", "0");
        let broken =
            json!({"name": "i", "restartCount": 4, "state": {"waiting": {"reason": "CrashLoopBackOff"}}});
        check_status(initializing(json!([broken])), "0/1", "Init:CrashLoopBackOff", "4");
        let failed = json!({"name": "i", "state": {"terminated": {"exitCode": 2}}});
        check_status(initializing(json!([failed])), "0/1", "Init:ExitCode:2", "0");
    }

    #[test]
    fn a_sidecar_counts_as_a_container() {
        let pod = json!({
            "spec": {
                "containers": [{"name": "a"}],
                "initContainers": [{"name": "s", "restartPolicy": "Always"}],
            },
            "status": {
                "phase": "Running",
                "initContainerStatuses": [{
                    "name": "s", "started": true, "ready": true, "restartCount": 1, "state": {"running": {}},
                }],
                "containerStatuses": [{"name": "a", "ready": true, "state": {"running": {}}}],
            },
        });
        check_status(pod, "2/2", "Running", "1");
    }
}
