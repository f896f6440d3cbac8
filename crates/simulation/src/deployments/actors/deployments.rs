//! Acts of users on Deployments.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::{Actors, DEPLOYMENTS, MERGE, NOTE, REPLICA_SETS, STRATEGIC, at_once_options, is_running};
use crate::deployments::objects::controller;
use crate::engine::objects::{NAMESPACE, Picture, number, text};
use crate::engine::request_fault::OrderedFault;

impl Actors {
    pub(super) async fn create(&self, name: &str, replicas: u32, strategy: Value) {
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": name},
            "spec": {
                "replicas": replicas,
                "revisionHistoryLimit": replicas % 3,
                "selector": {"matchLabels": {"app": name}},
                "strategy": strategy,
                "template": {
                    "metadata": {"labels": {"app": name}},
                    "spec": {"terminationGracePeriodSeconds": 5,
                             "containers": [{"name": "app", "image": "app:0"}]},
                },
            },
        });
        Self::send(&self.user, Method::POST, DEPLOYMENTS, "application/json", &deployment).await;
    }

    pub(super) async fn roll_back(&self, name: &str) {
        let annotations = json!({"deprecated.deployment.rollback.to": "0"});
        self.change(name, json!({"metadata": {"annotations": annotations}})).await;
    }

    pub(super) async fn label_template(&self, name: &str, tier: &str) {
        let metadata = json!({"labels": {"tier": tier}});
        self.change_spec(name, json!({"template": {"metadata": metadata}})).await;
    }

    pub(super) async fn delete_deployment(&self, name: &str, policy: &str) {
        let options = json!({"propagationPolicy": policy});
        let path = format!("{DEPLOYMENTS}/{name}");
        Self::send(&self.user, Method::DELETE, &path, "application/json", &options).await;
    }

    /// Annotates a Deployment and all ReplicaSets, and adds foreign conditions to their statuses.
    pub(super) async fn annotate(&self, name: &str, value: &str) {
        let body = json!({"metadata": {"annotations": {"gitops": value}}});
        self.change(name, body.clone()).await;
        let picture = self.server.picture();
        let note = json!({"metadata": {"annotations": {NOTE: value}}});
        let audited = json!({"type": "Audited", "status": "True"});
        let audited = json!({"status": {"conditions": [audited]}});
        let deployment = format!("{DEPLOYMENTS}/{name}/status");
        Self::send(&self.user, Method::PATCH, &deployment, STRATEGIC, &audited).await;
        for replica_set in picture.get("replicasets").into_iter().flat_map(|all| all.keys()) {
            let replica_set = format!("{REPLICA_SETS}/{replica_set}");
            Self::send(&self.user, Method::PATCH, &replica_set, MERGE, &body).await;
            Self::send(&self.user, Method::PATCH, &replica_set, MERGE, &note).await;
            let status = format!("{replica_set}/status");
            Self::send(&self.user, Method::PATCH, &status, STRATEGIC, &audited).await;
        }
    }

    /// Scales up while a reply is late, and meanwhile rolls out a broken image and then a working one.
    pub(super) async fn delay_status(&self, name: &str) {
        self.grow(name, 2, (1, OrderedFault::LateReply)).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        self.image(name, "broken").await;
        // A bit longer than most pods take to become ready.
        tokio::time::sleep(Duration::from_secs(4)).await;
        self.image(name, "mended").await;
    }

    /// Scales up by `more` pods, and orders a fault for one of them, after this many others.
    pub(super) async fn grow(&self, name: &str, more: i64, (others, order): (u32, OrderedFault)) {
        let Some(deployment) = self.server.sandbox.object("Deployment", NAMESPACE, name) else { return };
        self.server.order(others, order);
        let replicas = number(&deployment, "/spec/replicas") + more;
        self.change(name, json!({"spec": {"replicas": replicas}})).await;
    }

    pub(super) async fn image(&self, name: &str, tag: &str) {
        let containers = json!([{"name": "app", "image": format!("app:{tag}")}]);
        self.change(name, json!({"spec": {"template": {"spec": {"containers": containers}}}})).await;
    }

    pub(super) async fn percent(&self, name: &str, surge: &str, unavailable: &str) {
        let rolling = json!({"maxSurge": format!("{surge}%"), "maxUnavailable": format!("{unavailable}%")});
        let strategy = json!({"type": "RollingUpdate", "rollingUpdate": rolling});
        self.change(name, json!({"spec": {"strategy": strategy}})).await;
    }

    /// Deletes a Deployment and creates it again. No daemon sees for a moment that its ReplicaSets are deleted, or,
    /// where they stay, that there is another Deployment, even when they are seen without an owner.
    pub(super) async fn replace(&self, name: &str, policy: &str) {
        let Some(old) = self.server.sandbox.object("Deployment", NAMESPACE, name) else { return };
        for daemon in 0..self.stops.len() {
            if policy == "Orphan" {
                self.server.lag(daemon, "deployments", Duration::from_secs(6));
            }
            self.server.lag(daemon, "replicasets", Duration::from_secs(3));
        }
        let options = json!({"propagationPolicy": policy});
        let path = format!("{DEPLOYMENTS}/{name}");
        Self::send(&self.user, Method::DELETE, &path, "application/json", &options).await;
        // Until the garbage collector has orphaned the ReplicaSets.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let new = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
                         "spec": old["spec"]});
        Self::send(&self.user, Method::POST, DEPLOYMENTS, "application/json", &new).await;
    }

    pub(super) async fn end_new_pods(&self, name: &str) {
        if self.server.sandbox.object("Deployment", NAMESPACE, name).is_none() {
            return;
        }
        let tag = format!("s{}", self.server.start.elapsed().as_secs());
        self.image(name, &tag).await;
        let image = format!("app:{tag}");
        // A ReplicaSet publishes intermediate counts once per second, and what happened at this very instant need not
        // be known yet.
        let step = Duration::from_millis(100);
        let mut picture = Picture::default();
        let mut uid = None;
        for _ in 0..60 {
            tokio::time::sleep(step).await;
            picture = self.server.picture();
            let mut replica_sets =
                picture.get("replicasets").into_iter().flat_map(|replica_sets| replica_sets.values());
            let tells = |replica_set: &&Arc<Value>| {
                text(replica_set, "/spec/template/spec/containers/0/image") == image
                    && number(replica_set, "/status/availableReplicas") > 0
            };
            uid = replica_sets.find(tells).map(|replica_set| text(replica_set, "/metadata/uid").to_owned());
            if uid.is_some() {
                break;
            }
        }
        let Some(uid) = uid else { return };
        let pods = picture.get("pods").into_iter().flat_map(|pods| pods.values());
        for pod in pods.filter(|pod| is_running(pod) && controller(pod) == uid) {
            self.delete_pod(pod, at_once_options()).await;
        }
        tokio::time::sleep(step).await;
        self.percent(name, "0", "60").await;
    }
}
