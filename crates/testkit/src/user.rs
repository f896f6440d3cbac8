//! The acts of users, on whichever API server.

use http::{Method, Request};
use kube::Client;
use serde_json::{Value, json};
use windlass_planner_testkit::objects::DeploymentBuilder;

/// Sends a request; a patch is a merge patch.
pub async fn send(client: &Client, method: Method, path: &str, body: &Value) -> kube::Result<Value> {
    let content_type =
        if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = Request::builder().method(method).uri(path).header("content-type", content_type);
    client.request::<Value>(request.body(bytes).unwrap()).await
}

/// A Deployment without what the API server fills in.
pub fn new_deployment(deployment: DeploymentBuilder) -> Value {
    let mut object = deployment.json();
    for field in ["uid", "resourceVersion", "generation", "namespace"] {
        object["metadata"].as_object_mut().unwrap().remove(field);
    }
    object
}

/// The patch of a Deployment that changes its image.
pub fn another_image(tag: &str) -> Value {
    let containers = json!([{"name": "app", "image": format!("app:{tag}")}]);
    json!({"spec": {"template": {"spec": {"containers": containers}}}})
}
