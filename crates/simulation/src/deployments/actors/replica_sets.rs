//! Acts of users on ReplicaSets, on pods beside them, and on their namespace.

use std::time::Duration;

use http::Method;
use serde_json::json;

use super::{Actors, GUARD, PODS, REPLICA_SETS};
use crate::engine::objects::{NAMESPACE, is_deleting, text};

impl Actors {
    /// Deletes a ReplicaSet but not its pods, while no daemon sees the deletion.
    pub(super) async fn orphan_pods(&self, nth: u32) {
        let Some(replica_set) = self.replica_set(nth) else { return };
        for daemon in 0..self.stops.len() {
            self.server.lag(daemon, "replicasets", Duration::from_secs(3));
        }
        let options = json!({"propagationPolicy": "Orphan"});
        let path = format!("{REPLICA_SETS}/{}", text(&replica_set, "/metadata/name"));
        Self::send(&self.user, Method::DELETE, &path, "application/json", &options).await;
    }

    /// Creates a pod without an owner that a ReplicaSet's selector matches.
    pub(super) async fn create_orphan_pod(&self, nth: u32) {
        let Some(replica_set) = self.replica_set(nth) else { return };
        let metadata = json!({"name": format!("loner-{nth}"),
                              "labels": replica_set["spec"]["template"]["metadata"]["labels"]});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata,
                         "spec": replica_set["spec"]["template"]["spec"]});
        Self::send(&self.user, Method::POST, PODS, "application/json", &pod).await;
    }

    /// Changes a label of a ReplicaSet, so that its Deployment's selector does not match it.
    pub(super) async fn unselect(&self, nth: u32) {
        if let Some(replica_set) = self.replica_set(nth) {
            self.edit_replica_set(&replica_set, json!({"labels": {"app": "stray"}})).await;
        }
    }

    pub(super) async fn guard(&self, nth: u32) {
        if let Some(replica_set) = self.replica_set(nth).filter(|replica_set| !is_deleting(replica_set)) {
            self.edit_replica_set(&replica_set, json!({"finalizers": [GUARD]})).await;
        }
    }

    pub(super) async fn delete_namespace(&self) {
        let path = format!("/api/v1/namespaces/{NAMESPACE}");
        Self::send(&self.user, Method::DELETE, &path, "application/json", &json!({})).await;
    }
}
