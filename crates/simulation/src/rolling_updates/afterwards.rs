//! The acts of users once the faults have ended: they repair, decide, and ask for a last update.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::actors::{Actors, CONTROLLERS, PODS, QUOTAS, REPLICA_SETS};
use super::judge::Judge;
use super::scenario::NAMES;
use super::truth::{self, PAUSED, REQUEST, annotation};
use crate::engine::game::Actors as _;
use crate::engine::objects::{is_live, name, text};
use crate::engine::user::{JSON, STRATEGIC};

impl Actors {
    /// Users and administrators repair what is broken beside the updates: quotas, images, pods.
    pub async fn repair(&self) {
        self.cluster.with_judge(Judge::disturb);
        self.user.send(Method::DELETE, &format!("{QUOTAS}/q"), JSON, &json!({})).await;
        for one in truth::controllers(&self.cluster.sandbox) {
            if text(&one, "/spec/template/spec/containers/0/image").ends_with("broken") {
                self.set_image(name(&one), Some(9)).await;
            }
        }
    }

    /// Makes pods ready again that chaos monkeys have made unready.
    pub async fn heal(&self) {
        let is_unready = |pod: &&Value| {
            let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let unready = |c: &Value| c["type"] == "Ready" && c["status"] == "False" && c["reason"].is_null();
            is_live(pod) && text(pod, "/status/phase") == "Running" && conditions.iter().any(unready)
        };
        for pod in self.cluster.sandbox.objects("Pod").iter().filter(is_unready) {
            let path = format!("{PODS}/{}/status", name(pod));
            let status = json!({"status": {"conditions": self.readiness("True")}});
            self.user.send(Method::PATCH, &path, STRATEGIC, &status).await;
        }
    }

    /// Users decide about what is left: they resume what is paused, remove the requests that are refused, and scale NEW
    /// where the message says so.
    pub async fn decide(&self) {
        for one in truth::controllers(&self.cluster.sandbox) {
            if annotation(&one, REQUEST).is_none() {
                let message = truth::condition(&one).map_or("", |condition| text(condition, "/message"));
                let size: Option<u32> =
                    message.rsplit_once("scale it to ").and_then(|(_, size)| size.parse().ok());
                if let Some(size) = size {
                    self.edit(name(&one), json!({"spec": {"replicas": size}})).await;
                }
            } else if truth::reason(&one) == "Refused" {
                self.annotate(name(&one), json!({REQUEST: Value::Null})).await;
            } else {
                self.annotate(name(&one), json!({PAUSED: Value::Null})).await;
            }
        }
    }

    /// Deletes everything, and asks for an update of three fresh pods.
    pub async fn again(&mut self) -> (Value, u32) {
        for one in truth::controllers(&self.cluster.sandbox) {
            let options = json!({"propagationPolicy": "Background"});
            self.user.send(Method::DELETE, &format!("{CONTROLLERS}/{}", name(&one)), JSON, &options).await;
        }
        self.user.send(Method::DELETE, &format!("{REPLICA_SETS}/rival"), JSON, &json!({})).await;
        for pod in self.cluster.sandbox.objects("Pod") {
            self.user.send(Method::DELETE, &format!("{PODS}/{}", name(&pod)), JSON, &json!({})).await;
        }
        self.wait(Duration::from_secs(60)).await;
        self.create(NAMES[self.last.pair.0], 3, Some(98), json!({"example.com/team": "a"})).await;
        self.wait(Duration::from_secs(20)).await;
        let before = self.get(NAMES[self.last.pair.0]).unwrap_or_default();
        let request = self.last.clone();
        self.update(&request).await;
        (before, request.desired.unwrap_or(3))
    }
}
