//! Objects with forged or misnamed owner references, ReplicaSets without an owner, and pods with restarts. A tenant
//! creates the forged objects so that the garbage collector keeps them for a while: the owner is of an unknown API
//! group, about which the collector can prove nothing, or the object has a finalizer.

use http::Method;
use serde_json::{Value, json};

use super::{Actors, GUARD, MERGE, REPLICA_SETS};
use crate::deployments::server::TENANT;
use crate::engine::objects::{NAMESPACE, number, text};

/// How many ways to forge an owner reference there are.
pub const FORGERIES: u32 = 7;

/// How many kinds of containers can restart: a regular one, a sidecar, an init container.
pub const CONTAINERS: u32 = 3;

/// The index of the init container.
pub const ONCE: u32 = 2;

/// How many forged pods are created at once.
const PODS_AT_ONCE: u32 = 3;

/// An API group whose kinds the server does not know.
const UNKNOWN: &str = "example.com/v1";

impl Actors {
    /// Forges references to the n-th ReplicaSet, or to its Deployment, or writes a wrong owner name into the n-th
    /// pod.
    pub(super) async fn forge(&self, nth: u32, form: u32) {
        if form % FORGERIES == 6 {
            return self.misname(nth).await;
        }
        let Some(replica_set) = self.replica_set(nth) else { return };
        let set_reference = |api_version, kind| {
            let owner = &replica_set["metadata"];
            reference(api_version, kind, text(owner, "/name"), text(owner, "/uid"))
        };
        // A ReplicaSet that has an owner here is controlled by its Deployment.
        let of_replica_set = &replica_set["metadata"]["ownerReferences"][0];
        let deployment = (text(of_replica_set, "/name"), text(of_replica_set, "/uid"));
        let by_deployment = |api_version, kind| reference(api_version, kind, deployment.0, deployment.1);
        match form % FORGERIES {
            0 => self.forge_pods(TENANT, &replica_set, &set_reference("apps/v1", "ReplicaSet")).await,
            1 => self.forge_pods(TENANT, &replica_set, &set_reference(UNKNOWN, "ReplicaSet")).await,
            2 => self.forge_replica_set(TENANT, &replica_set, &by_deployment("apps/v1", "Deployment")).await,
            3 => self.forge_replica_set(TENANT, &replica_set, &by_deployment(UNKNOWN, "Deployment")).await,
            4 => {
                self.forge_pods(NAMESPACE, &replica_set, &set_reference("apps/v1", "Deployment")).await;
                self.forge_pods(NAMESPACE, &replica_set, &set_reference(UNKNOWN, "ReplicaSet")).await;
            }
            _ => self.forge_replica_set(NAMESPACE, &replica_set, &by_deployment(UNKNOWN, "Deployment")).await,
        }
    }

    /// Creates pods as the ReplicaSet would, but with this owner reference.
    async fn forge_pods(&self, namespace: &str, replica_set: &Value, owner: &Value) {
        self.make_tenant(namespace).await;
        let template = &replica_set["spec"]["template"];
        for _ in 0..PODS_AT_ONCE {
            let metadata = json!({"name": self.next_name(), "labels": template["metadata"]["labels"],
                                  "finalizers": finalizers(owner), "ownerReferences": [owner]});
            let pod =
                json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]});
            let path = format!("/api/v1/namespaces/{namespace}/pods");
            Self::send(&self.user, Method::POST, &path, "application/json", &pod).await;
        }
    }

    /// A ReplicaSet of two pods that looks like one of the Deployment's own.
    async fn forge_replica_set(&self, namespace: &str, replica_set: &Value, owner: &Value) {
        if text(owner, "/uid").is_empty() {
            return;
        }
        self.make_tenant(namespace).await;
        let name = self.next_name();
        let app = text(replica_set, "/metadata/labels/app");
        let labels = json!({"app": app, "forged": name});
        let forged = json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": {"name": name, "labels": labels, "finalizers": finalizers(owner),
                         "annotations": replica_set["metadata"]["annotations"], "ownerReferences": [owner]},
            "spec": {"replicas": 2, "selector": {"matchLabels": labels},
                     "template": {"metadata": {"labels": labels},
                                  "spec": {"containers": [{"name": "app", "image": "app:forged"}]}}},
        });
        let path = format!("/apis/apps/v1/namespaces/{namespace}/replicasets");
        Self::send(&self.user, Method::POST, &path, "application/json", &forged).await;
    }

    /// Writes another name into the n-th pod's owner reference. The garbage collector finds no owner of that name and
    /// deletes the pod.
    async fn misname(&self, nth: u32) {
        let Some(pod) = self.pod(nth) else { return };
        let mut owners = pod["metadata"]["ownerReferences"].clone();
        if let Some(owner) = owners.get_mut(0) {
            owner["name"] = "created_by_a_successor".into();
            self.edit_pod(&pod, json!({"ownerReferences": owners})).await;
        }
    }

    async fn make_tenant(&self, namespace: &str) {
        if namespace == TENANT {
            let namespace = json!({"metadata": {"name": TENANT}});
            Self::send(&self.user, Method::POST, "/api/v1/namespaces", "application/json", &namespace).await;
        }
    }

    /// A unique name that no controller generates.
    fn next_name(&self) -> String {
        format!("forged.{}", self.server.requests())
    }

    /// Creates the ReplicaSet without an owner, or resizes it.
    pub(super) async fn resize_bare(&self, replicas: u32) {
        let labels = json!({"app": "bare"});
        let replica_set = json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "bare"},
            "spec": {"replicas": replicas, "selector": {"matchLabels": labels},
                     "template": {"metadata": {"labels": labels},
                                  "spec": {"containers": [{"name": "app", "image": "app:bare"}]}}},
        });
        Self::send(&self.user, Method::POST, REPLICA_SETS, "application/json", &replica_set).await;
        let size = json!({"spec": {"replicas": replicas}});
        Self::send(&self.user, Method::PATCH, &format!("{REPLICA_SETS}/bare"), MERGE, &size).await;
    }

    /// Adds an init container and a sidecar to the template.
    pub(super) async fn add_sidecar(&self, name: &str) {
        let containers = json!([{"name": "once", "image": "app:once"},
                                {"name": "proxy", "image": "app:proxy", "restartPolicy": "Always"}]);
        self.change(name, json!({"spec": {"template": {"spec": {"initContainers": containers}}}})).await;
    }

    /// Sets how often a container of the n-th pod has restarted.
    pub(super) async fn restart_container(&self, nth: u32, container: u32, restarts: u32) {
        let Some(pod) = self.pod(nth) else { return };
        self.restart_in(&pod, container, restarts).await;
    }

    /// Sets how often a container of this pod has restarted.
    pub(super) async fn restart_in(&self, pod: &Value, container: u32, restarts: u32) {
        let (list, name) = match container % CONTAINERS {
            0 => ("containerStatuses", "app"),
            1 => ("initContainerStatuses", "proxy"),
            _ => ("initContainerStatuses", "once"),
        };
        let mut statuses = pod["status"][list].clone();
        let mut all = statuses.as_array_mut().into_iter().flatten();
        let Some(status) = all.find(|status| status["name"] == name) else { return };
        status["restartCount"] = (number(status, "/restartCount") + i64::from(restarts)).into();
        self.pod_status(pod, json!({list: statuses})).await;
    }
}

/// The collector keeps objects whose owner's kind it does not know; all others need a finalizer to stay.
fn finalizers(owner: &Value) -> Value {
    if text(owner, "/apiVersion") == UNKNOWN { json!([]) } else { json!([GUARD]) }
}

fn reference(api_version: &str, kind: &str, name: &str, uid: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": true,
           "blockOwnerDeletion": false})
}
