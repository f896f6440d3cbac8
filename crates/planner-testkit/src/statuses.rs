//! Statuses as the API has them.

use serde_json::{Value, json};
use windlass::model::{Condition, DeploymentStatus, ReplicaSetStatus};

fn conditions(all: &[Condition]) -> Value {
    all.iter()
        .map(|c| {
            let mut value =
                json!({"type": *c.kind, "status": *c.status, "reason": *c.reason, "message": *c.message});
            if let Some(at) = c.last_update {
                value["lastUpdateTime"] = at.to_string().into();
            }
            if let Some(at) = c.last_transition {
                value["lastTransitionTime"] = at.to_string().into();
            }
            value
        })
        .collect()
}

/// The status of a Deployment.
pub fn deployment_status(status: &DeploymentStatus) -> Value {
    json!({"observedGeneration": status.observed_generation, "replicas": status.replicas,
        "updatedReplicas": status.updated, "readyReplicas": status.ready,
        "availableReplicas": status.available, "unavailableReplicas": status.unavailable,
        "terminatingReplicas": status.terminating, "collisionCount": status.collision_count,
        "conditions": conditions(&status.conditions)})
}

/// The status of a ReplicaSet.
pub fn set_status(status: &ReplicaSetStatus) -> Value {
    json!({"observedGeneration": status.observed_generation, "replicas": status.replicas,
        "fullyLabeledReplicas": status.fully_labeled, "readyReplicas": status.ready,
        "availableReplicas": status.available, "terminatingReplicas": status.terminating,
        "conditions": conditions(&status.conditions)})
}
