//! The changes in the cluster, one plain line each, for logs and `grep`. Pure.
//!
//! A line is the kind, `namespace/name`, and fields as `name=value` in a fixed order. It has no timestamp, so that the
//! lines of two runs can be compared.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher as _};

use serde_json::Value;
use windlass::logging::is_unsafe;

use super::cluster::{Followed, ObjectChange, desired_replicas, key, number, pod_state};
use super::progress::{completions, job_state};

/// Turns changes into lines; a change that gives the same line as before gives none.
#[derive(Debug, Default)]
pub struct EventLines {
    /// The hash of each object to that of its last line: there are many pods.
    last: BTreeMap<u64, u64>,
}

impl EventLines {
    /// The line for one change, if it differs from the object's last line.
    pub fn line(&mut self, change: &ObjectChange) -> Option<String> {
        let ObjectChange { kind, object, deleted } = change;
        let key = key(object);
        let (namespace, name) = &key;
        let word = match kind {
            Followed::Deployment => "deployment",
            Followed::DaemonSet => "daemonset",
            Followed::StatefulSet => "statefulset",
            Followed::ReplicaSet => "replicaset",
            Followed::ReplicationController => "replicationcontroller",
            Followed::Job => "job",
            Followed::Pod => "pod",
            Followed::Event => "event",
        };
        let line = match (deleted, kind) {
            // Told again only when its text changes: a refused pod is tried again and again.
            (false, Followed::Event) => event(object),
            (true, _) => format!("{word} {namespace}/{name} deleted"),
            (false, Followed::Pod) => match object["spec"]["nodeName"].as_str() {
                Some(node) if !node.is_empty() => {
                    format!("{word} {namespace}/{name} {} node={node}", pod_state(object))
                }
                _ => format!("{word} {namespace}/{name} {}", pod_state(object)),
            },
            (false, Followed::Job) => format!("{word} {namespace}/{name} {}", job(object)),
            (false, Followed::DaemonSet) => format!("{word} {namespace}/{name} {}", daemons(object)),
            (false, _) => format!("{word} {namespace}/{name} {}", replicas(*kind, object)),
        };
        let place = hash(&(kind, &key));
        if *deleted {
            self.last.remove(&place);
            if *kind == Followed::Event {
                return None;
            }
        } else if self.last.insert(place, hash(&line)) == Some(hash(&line)) {
            return None;
        }
        Some(line)
    }
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

fn daemons(object: &Value) -> String {
    let status = |field: &str| number(object, &format!("/status/{field}"));
    let mut line = format!(
        "desired={} current={} updated={} ready={} available={}",
        status("desiredNumberScheduled"),
        status("currentNumberScheduled"),
        status("updatedNumberScheduled"),
        status("numberReady"),
        status("numberAvailable"),
    );
    if status("numberMisscheduled") > 0 {
        line += &format!(" misscheduled={}", status("numberMisscheduled"));
    }
    if object["metadata"]["deletionTimestamp"].is_string() {
        line += " terminating";
    }
    line
}

fn job(object: &Value) -> String {
    let status = |field: &str| number(object, &format!("/status/{field}"));
    let mut line = format!(
        "{} active={} ready={} succeeded={}/{}",
        job_state(object),
        status("active"),
        status("ready"),
        status("succeeded"),
        completions(object),
    );
    for field in ["failed", "terminating"] {
        if status(field) > 0 {
            line += &format!(" {field}={}", status(field));
        }
    }
    line
}

fn replicas(kind: Followed, object: &Value) -> String {
    let status = |field: &str| number(object, &format!("/status/{field}"));
    let mut line = format!("desired={} replicas={}", desired_replicas(object), status("replicas"));
    if matches!(kind, Followed::Deployment | Followed::StatefulSet) {
        line += &format!(" updated={}", status("updatedReplicas"));
    }
    line += &format!(" ready={} available={}", status("readyReplicas"), status("availableReplicas"));
    let revision = match kind {
        Followed::StatefulSet => &object["status"]["updateRevision"],
        _ => &object["metadata"]["annotations"]["deployment.kubernetes.io/revision"],
    };
    if let Some(revision) = revision.as_str() {
        line += &format!(" revision={}", plain(revision));
    }
    if object["spec"]["paused"] == true {
        line += " paused";
    }
    if object["metadata"]["deletionTimestamp"].is_string() {
        line += " terminating";
    }
    line
}

/// `event deployment default/web Normal ScalingReplicaSet Scaled up …`: the involved object comes first.
pub fn event(event: &Value) -> String {
    let text = |value: &Value| plain(value.as_str().unwrap_or_default());
    let about = &event["involvedObject"];
    format!(
        "event {} {}/{} {} {} {}",
        text(&about["kind"]).to_lowercase(),
        text(&about["namespace"]),
        text(&about["name"]),
        text(&event["type"]),
        text(&event["reason"]),
        text(&event["message"]),
    )
}

/// Text from the cluster without line breaks, control characters and those that hide or turn text, which could break lines or
/// the terminal.
pub fn plain(text: &str) -> String {
    text.chars().map(|c| if is_unsafe(c) { ' ' } else { c }).collect()
}

/// The same for a text of several lines.
pub fn plain_lines(text: &str) -> String {
    text.split('\n').map(plain).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn change(kind: Followed, object: Value) -> ObjectChange {
        ObjectChange { kind, object, deleted: false }
    }

    #[test]
    fn a_deployment_and_its_replica_set_give_lines_with_their_counts() {
        let metadata = json!({"namespace": "shop", "name": "web",
                              "annotations": {"deployment.kubernetes.io/revision": "2"}});
        let status = json!({"replicas": 4, "updatedReplicas": 2, "readyReplicas": 3, "availableReplicas": 3});
        let object = json!({"metadata": metadata, "spec": {"replicas": 3}, "status": status});
        let mut lines = EventLines::default();
        assert_eq!(
            lines.line(&change(Followed::Deployment, object.clone())).unwrap(),
            "deployment shop/web desired=3 replicas=4 updated=2 ready=3 available=3 revision=2"
        );
        assert_eq!(
            lines.line(&change(Followed::ReplicaSet, object)).unwrap(),
            "replicaset shop/web desired=3 replicas=4 ready=3 available=3 revision=2"
        );
    }

    #[test]
    fn a_job_gives_lines_with_its_state_and_counts() {
        let mut object = json!({"metadata": {"namespace": "shop", "name": "import"}, "spec": {"completions": 4},
                                "status": {"active": 2, "ready": 1, "succeeded": 1, "failed": 3, "terminating": 0}});
        let mut lines = EventLines::default();
        let line = lines.line(&change(Followed::Job, object.clone())).unwrap();
        assert_eq!(line, "job shop/import Running active=2 ready=1 succeeded=1/4 failed=3");
        object["status"] =
            json!({"succeeded": 4, "ready": 0, "conditions": [{"type": "Complete", "status": "True"}]});
        let line = lines.line(&change(Followed::Job, object)).unwrap();
        assert_eq!(line, "job shop/import Complete active=0 ready=0 succeeded=4/4");
    }

    #[test]
    fn a_replication_controller_gives_lines_with_its_counts_and_one_when_it_is_deleted() {
        let object = json!({"metadata": {"namespace": "shop", "name": "old"}, "spec": {"replicas": 2},
                            "status": {"replicas": 2, "readyReplicas": 1}});
        let mut lines = EventLines::default();
        assert_eq!(
            lines.line(&change(Followed::ReplicationController, object.clone())).unwrap(),
            "replicationcontroller shop/old desired=2 replicas=2 ready=1 available=0"
        );
        let deleted = ObjectChange { kind: Followed::ReplicationController, object, deleted: true };
        assert_eq!(lines.line(&deleted).unwrap(), "replicationcontroller shop/old deleted");
    }

    #[test]
    fn a_daemon_set_gives_lines_with_its_counts_of_nodes() {
        let status = json!({"desiredNumberScheduled": 5, "currentNumberScheduled": 4, "numberReady": 3,
                            "updatedNumberScheduled": 2, "numberAvailable": 1, "numberMisscheduled": 0});
        let mut object = json!({"metadata": {"namespace": "shop", "name": "agent"}, "status": status});
        let mut lines = EventLines::default();
        assert_eq!(
            lines.line(&change(Followed::DaemonSet, object.clone())).unwrap(),
            "daemonset shop/agent desired=5 current=4 updated=2 ready=3 available=1"
        );
        object["status"]["numberMisscheduled"] = json!(1);
        object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let line = lines.line(&change(Followed::DaemonSet, object)).unwrap();
        assert!(line.ends_with(" available=1 misscheduled=1 terminating"), "{line}");
    }

    #[test]
    fn a_pod_gives_one_line_per_state_and_one_when_it_is_deleted() {
        let metadata = json!({"namespace": "shop", "name": "web-1"});
        let pod = json!({"metadata": metadata, "spec": {"nodeName": "n1"}, "status": {"phase": "Running"}});
        let mut lines = EventLines::default();
        assert_eq!(
            lines.line(&change(Followed::Pod, pod.clone())).unwrap(),
            "pod shop/web-1 Running node=n1"
        );
        assert_eq!(lines.line(&change(Followed::Pod, pod.clone())), None);
        let deleted = ObjectChange { kind: Followed::Pod, object: pod, deleted: true };
        assert_eq!(lines.line(&deleted).unwrap(), "pod shop/web-1 deleted");
    }

    /// ESC moves the cursor, U+202E turns the text that follows around, and a line break begins a line of its own.
    #[test]
    fn the_reason_of_a_pod_is_harmless_in_a_line_and_in_the_view() {
        let reason = "Crash\u{1b}[31mLoop\u{202e}BackOff\nevent x";
        let waiting = json!([{"name": "app", "state": {"waiting": {"reason": reason, "message": reason}}}]);
        let object = json!({"metadata": {"namespace": "shop", "name": "web-1"}, "spec": {"nodeName": "n1"},
                            "status": {"phase": "Pending", "containerStatuses": waiting}});
        let shown = crate::cluster::Pod::of(&object);
        let line = EventLines::default().line(&change(Followed::Pod, object)).unwrap();
        for text in [&*line, &shown.state, shown.not_ready_reason.as_deref().unwrap()] {
            assert!(text.contains("Crash [31mLoop BackOff event x"), "{text:?}");
            assert!(!text.chars().any(is_unsafe), "{text:?}");
        }
        assert_eq!(plain_lines("a\u{1b}\nb\r"), "a \nb ");
    }

    #[test]
    fn an_event_that_is_counted_again_gives_no_line() {
        let event = |count: i32, message: &str| json!({"metadata": {"namespace": "shop", "name": "web.1"}, "count": count, "message": message});
        let mut lines = EventLines::default();
        let mut told = |object: Value| lines.line(&change(Followed::Event, object)).is_some();
        assert_eq!(
            [told(event(1, "no")), told(event(2, "no")), told(event(3, "still no"))],
            [true, false, true]
        );
    }

    #[test]
    fn an_event_is_one_line_whatever_its_message() {
        let object = json!({
            "involvedObject": {"kind": "Deployment", "namespace": "shop", "name": "web"},
            "type": "Normal", "reason": "ScalingReplicaSet", "message": "Scaled\nup \u{1b}[31m\u{202e}x",
        });
        assert_eq!(
            EventLines::default().line(&change(Followed::Event, object)).unwrap(),
            "event deployment shop/web Normal ScalingReplicaSet Scaled up  [31m x"
        );
    }
}
