//! Acts that test whether statuses are true and rollbacks restore the previous template.

use http::Method;
use serde_json::{Value, json};

use super::hostile::ROLLBACK_TO;
use super::owners::ONCE;
use super::{Actors, DEPLOYMENTS, MERGE, REPLICA_SETS};
use crate::engine::objects::number;

impl Actors {
    /// Another client, or a restored backup, raises `observedGeneration` of every Deployment and ReplicaSet above the
    /// generation.
    pub async fn raise_generations(&self) {
        let picture = self.server.picture();
        for (resource, path) in [("deployments", DEPLOYMENTS), ("replicasets", REPLICA_SETS)] {
            for name in picture.get(resource).into_iter().flat_map(|all| all.keys()) {
                let status = json!({"status": {"observedGeneration": 1_000_000}});
                Self::send(&self.user, Method::PATCH, &format!("{path}/{name}/status"), MERGE, &status).await;
            }
        }
    }

    /// Scales every Deployment down by one pod, or up by one where it has only one.
    pub async fn resize_all(&self) {
        for (name, deployment) in self.server.picture().get("deployments").into_iter().flatten() {
            let replicas = number(deployment, "/spec/replicas");
            let replicas = if replicas > 1 { replicas - 1 } else { replicas + 1 };
            self.change(name, json!({"spec": {"replicas": replicas}})).await;
        }
    }

    /// Requests a rollback of every Deployment to its previous revision, with the annotation.
    pub async fn roll_back_all(&self) {
        let asked = json!({"metadata": {"annotations": {ROLLBACK_TO: "0"}}});
        for name in self.server.picture().get("deployments").into_iter().flat_map(|all| all.keys()) {
            self.change(name, asked.clone()).await;
        }
    }

    /// Scales every Deployment to this size.
    pub async fn size_all(&self, replicas: u32) {
        for name in self.server.picture().get("deployments").into_iter().flat_map(|all| all.keys()) {
            self.change(name, json!({"spec": {"replicas": replicas}})).await;
        }
    }

    /// Adds an init container and a sidecar to every Deployment, and scales it to this size.
    pub async fn add_sidecars(&self, replicas: u32) {
        for name in self.server.picture().get("deployments").into_iter().flat_map(|all| all.keys()) {
            self.add_sidecar(name).await;
        }
        self.size_all(replicas).await;
    }

    /// Restarts the init containers of all pods, in each pod once more than in the one before.
    pub async fn restart_what_runs_once(&self) {
        for (pod, restarts) in self.live_pods().iter().zip(0..) {
            self.restart_in(pod, ONCE, restarts).await;
        }
    }

    /// Makes a pod unready.
    pub async fn make_unready(&self, pod: &Value) {
        self.set_ready(pod, false).await;
    }
}
