//! Objects in sentences: `deployment("web").replicas(3).surge(1).image("v2")`.

use serde_json::{Value, json};

/// A Deployment being described.
#[derive(Clone, Debug)]
pub struct DeploymentBuilder(Value);

/// A Deployment of one replica with the API's defaults.
pub fn deployment(name: &str) -> DeploymentBuilder {
    DeploymentBuilder(json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "shop", "uid": format!("uid-deploy-{name}"),
                     "resourceVersion": "1", "generation": 1},
        "spec": {
            "replicas": 1,
            "revisionHistoryLimit": 10,
            "progressDeadlineSeconds": 600,
            "selector": {"matchLabels": {"app": name}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "app", "image": "app:v1"}]}
            }
        }
    }))
}

impl DeploymentBuilder {
    fn spec(mut self, field: &str, value: Value) -> Self {
        self.0["spec"][field] = value;
        self
    }

    pub fn replicas(self, replicas: i32) -> Self {
        self.spec("replicas", replicas.into())
    }

    pub fn surge(mut self, surge: impl Into<Value>) -> Self {
        self.0["spec"]["strategy"]["rollingUpdate"]["maxSurge"] = surge.into();
        self
    }

    pub fn unavailable(mut self, unavailable: impl Into<Value>) -> Self {
        self.0["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] = unavailable.into();
        self
    }

    pub fn recreate(self) -> Self {
        self.spec("strategy", json!({"type": "Recreate"}))
    }

    pub fn image(mut self, tag: &str) -> Self {
        self.0["spec"]["template"]["spec"]["containers"][0]["image"] = format!("app:{tag}").into();
        self
    }

    pub fn min_ready(self, seconds: i32) -> Self {
        self.spec("minReadySeconds", seconds.into())
    }

    pub fn history(self, limit: i32) -> Self {
        self.spec("revisionHistoryLimit", limit.into())
    }

    pub fn deadline(self, seconds: i32) -> Self {
        self.spec("progressDeadlineSeconds", seconds.into())
    }

    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        self.0["metadata"]["annotations"][key] = value.into();
        self
    }

    pub fn json(self) -> Value {
        self.0
    }
}
