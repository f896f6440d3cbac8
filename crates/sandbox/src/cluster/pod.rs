//! The facts about a pod that are shown.

use serde_json::Value;

use super::{controller, uid};
use crate::event_lines::plain;

/// The summary of a pod: its state and its relations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    pub(super) uid: Box<str>,
    pub(super) controller: Option<Box<str>>,
    /// The ControllerRevision of a pod of a StatefulSet.
    pub revision: Option<Box<str>>,
    /// Whether its restart policy is `Always`.
    pub runs_for_ever: bool,
    /// See [`pod_state`].
    pub state: Box<str>,
    /// See [`not_ready_reason`].
    pub not_ready_reason: Option<Box<str>>,
}

impl Pod {
    /// The summary of a pod as the API shows it.
    pub fn of(pod: &Value) -> Self {
        Pod {
            uid: uid(pod).into(),
            controller: controller(pod).map(Box::from),
            revision: pod["metadata"]["labels"]["controller-revision-hash"].as_str().map(Box::from),
            runs_for_ever: matches!(pod["spec"]["restartPolicy"].as_str(), None | Some("Always")),
            state: pod_state(pod).into(),
            not_ready_reason: not_ready_reason(pod).map(|reason| plain(&reason).into()),
        }
    }
}

/// The state of a pod in the one word that `kubectl get pods` would show, but `Ready` where it shows `Running` with
/// every container ready.
pub fn pod_state(pod: &Value) -> String {
    if pod["metadata"]["deletionTimestamp"].is_string() {
        return "Terminating".to_owned();
    }
    if let Some(reason) =
        waiting(pod).map(|(_, reason, _)| reason).filter(|reason| *reason != "PodInitializing")
    {
        return plain(reason);
    }
    let ready =
        conditions(pod).any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
    match pod["status"]["phase"].as_str() {
        Some("Running") if ready => "Ready".to_owned(),
        Some(phase) if !phase.is_empty() => plain(phase),
        _ => "Pending".to_owned(),
    }
}

/// Why a pod is not ready, if known: container, reason and message, or the scheduler's message.
pub fn not_ready_reason(pod: &Value) -> Option<String> {
    let unplaced = conditions(pod)
        .find(|condition| condition["type"] == "PodScheduled" && condition["status"] == "False");
    if let Some(condition) = unplaced {
        return Some(condition["message"].as_str().unwrap_or("not scheduled yet").to_owned());
    }
    if let Some((container, reason, message)) = waiting(pod) {
        return Some(match message {
            "" => format!("container {container}: {reason}"),
            message => format!("container {container}: {reason} ({message})"),
        });
    }
    if pod["spec"]["nodeName"].as_str().is_none_or(str::is_empty) {
        return Some("not scheduled: no scheduler has assigned a node".to_owned());
    }
    let unready =
        conditions(pod).find(|condition| condition["type"] == "Ready" && condition["status"] != "True");
    unready?["message"].as_str().map(str::to_owned)
}

fn conditions(object: &Value) -> impl Iterator<Item = &Value> {
    object["status"]["conditions"].as_array().into_iter().flatten()
}

/// The first waiting container: its name, the reason, and a message if there is one. `PodInitializing` only means that
/// a container waits for an init container, so another reason wins.
fn waiting(pod: &Value) -> Option<(&str, &str, &str)> {
    let of = |list: &str| pod["status"][list].as_array().into_iter().flatten();
    let waits = of("initContainerStatuses")
        .chain(of("containerStatuses"))
        .filter(|status| status["state"]["waiting"].is_object())
        .map(|status| {
            let waiting = &status["state"]["waiting"];
            (
                status["name"].as_str().unwrap_or_default(),
                waiting["reason"].as_str().unwrap_or("Waiting"),
                waiting["message"].as_str().unwrap_or_default(),
            )
        });
    let waits: Vec<_> = waits.collect();
    waits.iter().find(|(_, reason, _)| *reason != "PodInitializing").or(waits.first()).copied()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_that_is_not_ready_has_a_reason() {
        let with = |status: Value| json!({"metadata": {}, "spec": {"nodeName": "n1"}, "status": status});
        let bare = json!({"metadata": {}});
        assert_eq!(not_ready_reason(&bare).unwrap(), "not scheduled: no scheduler has assigned a node");
        let unplaced =
            json!({"conditions": [{"type": "PodScheduled", "status": "False", "message": "no room"}]});
        assert_eq!(not_ready_reason(&with(unplaced)).unwrap(), "no room");
        let unready = json!({"conditions": [{"type": "Ready", "status": "False", "message": "gate closed"}]});
        assert_eq!(not_ready_reason(&with(unready)).unwrap(), "gate closed");
        let ready = json!({"conditions": [{"type": "Ready", "status": "True"}]});
        assert_eq!(not_ready_reason(&with(ready)), None);
    }

    #[test]
    fn the_state_of_a_pod_is_one_word() {
        let with = |status: Value| json!({"metadata": {}, "status": status});
        assert_eq!(pod_state(&with(json!({}))), "Pending");
        let ready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
        assert_eq!(pod_state(&with(ready)), "Ready");
        assert_eq!(pod_state(&with(json!({"phase": "Running"}))), "Running");
        let waiting = json!({"phase": "Pending", "containerStatuses": [
            {"name": "a", "state": {"running": {}}},
            {"name": "b", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off"}}}]});
        assert_eq!(pod_state(&with(waiting.clone())), "ImagePullBackOff");
        assert_eq!(not_ready_reason(&with(waiting)).unwrap(), "container b: ImagePullBackOff (Back-off)");
        let dying = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
        assert_eq!(pod_state(&dying), "Terminating");
    }
}
