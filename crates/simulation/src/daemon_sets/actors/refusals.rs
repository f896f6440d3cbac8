//! Quotas without room, and a policy that refuses pods.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::{Actors, NODES};
use crate::daemon_sets::cluster::daemon_set;
use crate::daemon_sets::placement::{Requirement, requirement, target};
use crate::engine::breach::Breach;
use crate::engine::objects::{is_deleting, number, text};
use crate::engine::user::JSON;

const QUOTAS: &str = "/api/v1/namespaces/shop/resourcequotas";

impl Actors {
    /// Lets so many objects be, or as many as will.
    pub async fn set_quota(&self, hard: Option<(&str, usize)>) {
        self.user.send(Method::DELETE, &format!("{QUOTAS}/pods"), JSON, &json!({})).await;
        if let Some((resource, most)) = hard {
            let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "pods"},
                "spec": {"hard": {resource: most.to_string()}}});
            self.user.send(Method::POST, QUOTAS, JSON, &quota).await;
        }
    }

    /// Leaves a quota in force that has no more room than a rollout needs: a pod for each node that should run one, the
    /// pods of others, and what the DaemonSet may surge by.
    pub(super) async fn widen_quota(&self, daemon_set: &Value) {
        let Some(quota) = self.cluster.sandbox.objects("ResourceQuota").pop() else { return };
        let hard = quota["spec"]["hard"].as_object().and_then(|hard| hard.iter().next());
        let Some((resource, hard)) = hard else { return };
        let hard = hard.as_str().and_then(|hard| hard.parse().ok()).unwrap_or(0);
        let (nodes, pods) = (self.cluster.sandbox.objects("Node"), self.cluster.sandbox.objects("Pod"));
        let runs = nodes.iter().filter(|node| requirement(daemon_set, node) == Requirement::Run).count();
        let stays = nodes.iter().filter(|node| requirement(daemon_set, node) == Requirement::Stay).count();
        let uid = text(daemon_set, "/metadata/uid");
        let foreign = pods.iter().filter(|pod| text(pod, "/metadata/ownerReferences/0/uid") != uid).count();
        let surge = number(daemon_set, "/spec/updateStrategy/rollingUpdate/maxSurge").min(1) as usize;
        let least = runs + stays + foreign + surge;
        if hard < least {
            self.set_quota(Some((resource, least))).await;
        }
    }

    /// DS10: refused creations hold up no deletion. A policy refuses all pods, while the DaemonSet is moved to a new node:
    /// its pods leave all others, and a failed one its own.
    pub(super) async fn refuse_pods(&self) {
        self.cluster.with_judge(|judge| judge.policy = true);
        let zoned = json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": "policed", "labels": {"zone": "policed"}}});
        self.user.send(Method::POST, NODES, JSON, &zoned).await;
        self.edit_template(json!({"nodeSelector": {"zone": "policed"}})).await;
        tokio::time::sleep(Duration::from_secs(600)).await;
        self.cluster.with_judge(|judge| judge.policy = false);
        let Some(daemon_set) = daemon_set(&self.cluster.sandbox).filter(|found| !is_deleting(found)) else {
            return;
        };
        let uid = text(&daemon_set, "/metadata/uid");
        let nodes = self.cluster.sandbox.objects("Node");
        let pods = self.cluster.sandbox.objects("Pod");
        let left =
            pods.iter().filter(|pod| text(pod, "/metadata/ownerReferences/0/uid") == uid).find(|pod| {
                let node = nodes.iter().find(|node| text(node, "/metadata/name") == target(pod));
                !is_deleting(pod)
                    && node.is_some_and(|node| requirement(&daemon_set, node) == Requirement::None)
            });
        if let Some(pod) = left {
            let what =
                format!("{} is left on {} while pods are refused", text(pod, "/metadata/name"), target(pod));
            self.cluster.fail(Breach::new("DS10", what));
        }
        self.edit_template(json!({"nodeSelector": null})).await;
    }
}
