//! What users and monkeys do to see whether statuses are true and rollbacks lead back.

use http::Method;
use serde_json::{Value, json};

use super::hostile::ROLLBACK_TO;
use super::owners::ONCE;
use super::{Actors, DEPLOYMENTS, MERGE, REPLICA_SETS};
use crate::invariants::number;

impl Actors {
    /// Somebody else, or a backup that is restored, says of every Deployment and ReplicaSet that a generation was
    /// observed which there is not.
    pub async fn raise_generations(&self) {
        let picture = self.server.picture();
        for (resource, path) in [("deployments", DEPLOYMENTS), ("replicasets", REPLICA_SETS)] {
            for name in picture.get(resource).into_iter().flat_map(|all| all.keys()) {
                let status = json!({"status": {"observedGeneration": 1_000_000}});
                Self::send(&self.user, Method::PATCH, &format!("{path}/{name}/status"), MERGE, &status).await;
            }
        }
    }

    /// Has every Deployment want one pod less, or one more where it has only one.
    pub async fn resize_all(&self) {
        for (name, deployment) in self.server.picture().get("deployments").into_iter().flatten() {
            let replicas = number(deployment, "/spec/replicas");
            let replicas = if replicas > 1 { replicas - 1 } else { replicas + 1 };
            self.change(name, json!({"spec": {"replicas": replicas}})).await;
        }
    }

    /// Asks for the last revision of every Deployment, by the annotation.
    pub async fn roll_back_all(&self) {
        let asked = json!({"metadata": {"annotations": {ROLLBACK_TO: "0"}}});
        for name in self.server.picture().get("deployments").into_iter().flat_map(|all| all.keys()) {
            self.change(name, asked.clone()).await;
        }
    }

    /// Gives every Deployment this size.
    pub async fn size_all(&self, replicas: u32) {
        for name in self.server.picture().get("deployments").into_iter().flat_map(|all| all.keys()) {
            self.change(name, json!({"spec": {"replicas": replicas}})).await;
        }
    }

    /// Gives every Deployment a container that runs once, a sidecar, and this size.
    pub async fn add_sidecars(&self, replicas: u32) {
        for name in self.server.picture().get("deployments").into_iter().flat_map(|all| all.keys()) {
            self.add_sidecar(name).await;
        }
        self.size_all(replicas).await;
    }

    /// The container that runs once restarts in all pods, in each once more than in the one before.
    pub async fn restart_what_runs_once(&self) {
        for (pod, restarts) in self.live_pods().iter().zip(0..) {
            self.restart_in(pod, ONCE, restarts).await;
        }
    }

    /// Takes a pod's readiness away.
    pub async fn make_unready(&self, pod: &Value) {
        self.set_ready(pod, false).await;
    }
}
