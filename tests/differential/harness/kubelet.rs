//! Events in the life of a pod, as its scheduler and its kubelet would write them. A script says when.

use std::time::Duration;

use http::Method;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use windlass::clock::Clock;

use super::stage::{Pod, Stage};

/// The node of all pods that a script does not place.
pub const NODE: &str = "node-0";

/// A condition of a pod that has held for so many seconds.
fn condition(kind: &str, holds: bool, seconds: i64) -> Value {
    json!({
        "type": kind, "status": if holds { "True" } else { "False" },
        "lastTransitionTime": ago(seconds), "lastProbeTime": null,
    })
}

/// The time so many seconds ago. Longer times count from the full hour, so that pods which are to be of one age are:
/// upstream leaves those that differ by a second to chance.
fn ago(seconds: i64) -> String {
    let now = Clock::System.now().as_second();
    let since = if seconds >= 1000 { now - now % 3600 } else { now };
    // The API has whole seconds.
    (Timestamp::from_second(since).unwrap() - SignedDuration::from_secs(seconds)).to_string()
}

fn running(ready: bool, seconds: i64, restarts: i64) -> Value {
    json!({"status": {
        "phase": "Running",
        "conditions": [
            condition("PodScheduled", true, seconds), condition("Initialized", true, seconds),
            condition("ContainersReady", ready, seconds), condition("Ready", ready, seconds),
        ],
        "containerStatuses": [{
            "name": "app", "image": "app", "imageID": "", "ready": ready, "restartCount": restarts, "started": true,
            "state": {"running": {"startedAt": ago(seconds)}},
        }],
        "startTime": ago(seconds),
    }})
}

fn ended(phase: &str, reason: Option<&str>) -> Value {
    let mut status = json!({
        "phase": phase,
        "conditions": [condition("Ready", false, 0), condition("ContainersReady", false, 0)],
        "containerStatuses": [],
    });
    if let Some(reason) = reason {
        status["reason"] = reason.into();
        status["message"] = format!("Pod was rejected: {reason}").into();
    }
    json!({"status": status})
}

/// The node that a DaemonSet pod is for.
pub fn target(pod: &Value) -> Option<&str> {
    let required = &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    required["nodeSelectorTerms"][0]["matchFields"][0]["values"][0].as_str()
}

impl Stage {
    fn pod_path(&self, pod: &Pod) -> String {
        format!("{}/{}", self.path("Pod"), pod.name())
    }

    /// Waits until the watch has shown this version of the pod, so that the script does not decide on an older one.
    async fn shown(&self, pod: &Value) {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        let version = |pod: &Value| {
            pod["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse::<u64>().ok())
        };
        loop {
            let seen = self.one("Pod", name);
            // A pod without a node disappears as soon as it is deleted.
            if seen.is_null() || version(&seen) >= version(pod) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn pod_status(&self, pod: &Pod, patch: &Value) {
        let written = self.call(Method::PATCH, &format!("{}/status", self.pod_path(pod)), patch).await;
        self.shown(&written).await;
    }

    /// Binds the pod to a node.
    pub async fn bind(&self, pod: &Pod, node: &str) {
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod.name()},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        });
        self.call(Method::POST, &format!("{}/binding", self.pod_path(pod)), &binding).await;
        let bound = |stage: &Stage| !stage.one("Pod", pod.name())["spec"]["nodeName"].is_null();
        while !bound(self) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn bind_if_needed(&self, pod: &Pod) {
        if self.one("Pod", pod.name())["spec"]["nodeName"].is_null() {
            self.bind(pod, target(&pod.object).unwrap_or(NODE)).await;
        }
    }

    /// The pod runs and is ready from now on.
    pub async fn ready(&self, pod: &Pod) {
        self.ready_since(pod, 0).await;
    }

    /// The pod runs and has been ready for so many seconds.
    pub async fn ready_since(&self, pod: &Pod, seconds: i64) {
        self.bind_if_needed(pod).await;
        self.pod_status(pod, &running(true, seconds, 0)).await;
    }

    /// The same with a container that was restarted.
    pub async fn ready_after_restarts(&self, pod: &Pod, restarts: i64, seconds: i64) {
        self.bind_if_needed(pod).await;
        self.pod_status(pod, &running(true, seconds, restarts)).await;
    }

    /// The pod runs and is not ready.
    pub async fn unready(&self, pod: &Pod) {
        self.bind_if_needed(pod).await;
        self.pod_status(pod, &running(false, 0, 0)).await;
    }

    /// Restarts of an ordinary init container `once` and of a sidecar `side`.
    pub async fn init_restarts(&self, pod: &Pod, once: i64, side: i64) {
        let status = |name: &str, restarts: i64, started: bool, state: Value| {
            json!({
                "name": name, "image": "app", "imageID": "", "ready": true, "restartCount": restarts,
                "started": started, "state": state,
            })
        };
        let ended = json!({"terminated": {"exitCode": 0, "reason": "Completed"}});
        let running = json!({"running": {"startedAt": ago(10)}});
        let all = json!([status("once", once, false, ended), status("side", side, true, running)]);
        self.pod_status(pod, &json!({"status": {"initContainerStatuses": all}})).await;
    }

    /// The pod has failed, for this reason if one is given.
    pub async fn fail(&self, pod: &Pod, reason: Option<&str>) {
        self.bind_if_needed(pod).await;
        self.pod_status(pod, &ended("Failed", reason)).await;
    }

    /// The pod's containers have ended well.
    pub async fn succeed(&self, pod: &Pod) {
        self.bind_if_needed(pod).await;
        self.pod_status(pod, &ended("Succeeded", None)).await;
    }

    /// The pod's container ends with this code.
    pub async fn exit(&self, pod: &Pod, code: i64) {
        self.bind_if_needed(pod).await;
        let mut status = ended(if code == 0 { "Succeeded" } else { "Failed" }, None);
        let terminated =
            json!({"exitCode": code, "reason": "Ended", "startedAt": ago(1), "finishedAt": ago(0)});
        status["status"]["containerStatuses"] = json!([{"name": "app", "image": "app", "imageID": "", "ready": false,
            "restartCount": 0, "started": false, "state": {"terminated": terminated}}]);
        self.pod_status(pod, &status).await;
    }

    /// The pod fails by a disruption.
    pub async fn disrupt(&self, pod: &Pod) {
        self.bind_if_needed(pod).await;
        let mut status = ended("Failed", None);
        let conditions = status["status"]["conditions"].as_array_mut().unwrap();
        conditions.push(condition("DisruptionTarget", true, 0));
        self.pod_status(pod, &status).await;
    }

    /// Ends a pod that is being deleted, or deletes another one by force.
    pub async fn end(&self, pod: &Pod) {
        let options = json!({
            "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0,
            "preconditions": {"uid": pod.object["metadata"]["uid"]},
        });
        self.call(Method::DELETE, &self.pod_path(pod), &options).await;
    }

    /// A user deletes the pod; it terminates until [`Stage::end`].
    pub async fn evict(&self, pod: &Pod) {
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
        let written = self.call(Method::DELETE, &self.pod_path(pod), &options).await;
        self.shown(&written).await;
    }

    /// A user's patch of the pod.
    pub async fn patch_pod(&self, pod: &Pod, patch: Value) {
        let written = self.call(Method::PATCH, &self.pod_path(pod), &patch).await;
        self.shown(&written).await;
    }
}
