//! Nodes, each for the DaemonSets of one workload: those select them by a label.

use http::Method;
use serde_json::{Value, json};

use super::stage::{Pod, Stage};

impl Stage {
    /// The name of a node of this workload.
    pub fn node(&self, name: &str) -> String {
        format!("{}-{name}", self.namespace)
    }

    /// Adds a node that runs pods.
    pub async fn add_node(&self, name: &str) {
        self.act(format!("add node {name}"));
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": self.node(name), "labels": {"workload": self.namespace}},
        });
        self.call(Method::POST, "/api/v1/nodes", &node).await;
        // The API server adds the taint of a node that has not reported.
        self.write_taints(name, &[]).await;
    }

    /// Gives a node exactly these taints, each as `key:effect`.
    pub async fn taint(&self, name: &str, taints: &[&str]) {
        self.act(format!("taint node {name}: {}", taints.join(" ")));
        self.write_taints(name, taints).await;
    }

    async fn write_taints(&self, name: &str, taints: &[&str]) {
        let taint = |text: &&str| {
            let (key, effect) = text.split_once(':').unwrap();
            json!({"key": key, "effect": effect})
        };
        let taints: Vec<Value> = taints.iter().map(taint).collect();
        self.patch_node(name, json!({"spec": {"taints": taints}})).await;
    }

    /// Sets or removes a label of a node.
    pub async fn label_node(&self, name: &str, key: &str, value: Option<&str>) {
        self.act(format!("label node {name}: {key}={}", value.unwrap_or("-")));
        self.patch_node(name, json!({"metadata": {"labels": {key: value}}})).await;
    }

    async fn patch_node(&self, name: &str, patch: Value) {
        self.call(Method::PATCH, &format!("/api/v1/nodes/{}", self.node(name)), &patch).await;
    }

    /// Removes a node. Its pods stay until a collector of pods takes them.
    pub async fn remove_node(&self, name: &str) {
        self.act(format!("remove node {name}"));
        self.call(Method::DELETE, &format!("/api/v1/nodes/{}", self.node(name)), &Value::Null).await;
    }

    /// The active pod on a node.
    pub fn pod_on(&self, name: &str) -> Pod {
        let node = self.node(name);
        let on = |pod: &Pod| pod.object["spec"]["nodeName"] == *node;
        self.active().into_iter().find(on).unwrap_or_else(|| panic!("no pod on {node}"))
    }

    /// Changes the image of a DaemonSet's template.
    pub async fn daemon_image(&self, daemon_set: &str, tag: &str) {
        let containers = json!([{"name": "app", "image": format!("app:{tag}")}]);
        let template = json!({"spec": {"containers": containers}});
        self.patch("DaemonSet", daemon_set, json!({"spec": {"template": template}})).await;
    }
}
