//! A Service and its pods, for the tests of the controllers of endpoints.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use windlass_testkit::cluster::Cluster;

pub const SERVICES: &str = "/api/v1/namespaces/shop/services";
pub const ENDPOINTS: &str = "/api/v1/namespaces/shop/endpoints";
pub const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices";

/// The body of a DELETE.
pub const DELETE: Value = Value::Null;

pub async fn create_service(cluster: &Cluster, more: Value) {
    let mut spec = json!({"selector": {"app": "web"},
                          "ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080}]});
    for (key, value) in more.as_object().unwrap() {
        spec[key] = value.clone();
    }
    let service = json!({"metadata": {"name": "web", "labels": {"team": "a"}}, "spec": spec});
    cluster.call(Method::POST, SERVICES, &service).await;
}

pub async fn change_service(cluster: &Cluster, patch: Value) {
    cluster.call(Method::PATCH, &format!("{SERVICES}/web"), &patch).await;
}

/// The names of the pods that are ready, sorted.
pub fn ready_pods(cluster: &Cluster) -> Vec<String> {
    let is_ready = |pod: &Value| {
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True")
            && pod["metadata"]["deletionTimestamp"].is_null()
    };
    let pods = cluster.objects("Pod");
    let ready = pods.iter().filter(|pod| is_ready(pod));
    let mut names: Vec<String> =
        ready.map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

pub async fn seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}
