//! The sandbox as its clients see it: every test goes through the router.

mod admission;
mod apply;
mod client;
mod collection;
mod custom_definitions;
mod custom_objects;
mod daemonsets;
mod deletion;
mod documents;
mod faults;
mod jobs;
mod lists;
mod logs;
mod patches;
mod quotas;
mod replicationcontrollers;
mod services;
mod statefulsets;
mod watches;
mod web_pages;
mod writes;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use futures::StreamExt;
use http::{Method, Request};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::ServiceExt;

use super::{Options, Sandbox};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const CONTROLLERS: &str = "/api/v1/namespaces/default/replicationcontrollers";
const PODS: &str = "/api/v1/namespaces/default/pods";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

const MERGE: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";

/// Options whose clock is tokio's, counted from the start of 2026.
fn options() -> Options {
    let start: jiff::Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let since = Instant::now();
    Options::new(Arc::new(move || start.saturating_add(since.elapsed()).unwrap()))
}

fn sandbox() -> Sandbox {
    Sandbox::new(options())
}

/// An answer: the code, and the body if it is JSON.
#[derive(Debug)]
struct Answer {
    code: u16,
    warnings: Vec<String>,
    body: Value,
}

impl Answer {
    #[track_caller]
    fn ok(self) -> Value {
        assert!(self.code < 300, "refused: {}", self.body);
        self.body
    }

    /// Asserts the code, and returns the message.
    #[track_caller]
    fn refused(self, code: u16) -> String {
        assert_eq!(self.code, code, "{}", self.body);
        assert_eq!(self.body["kind"], "Status");
        assert_eq!(self.body["code"], code);
        self.body["message"].as_str().unwrap_or_default().to_owned()
    }
}

impl Sandbox {
    async fn send(&self, request: Request<Body>) -> Answer {
        let response = self.router().oneshot(request).await.unwrap();
        let code = response.status().as_u16();
        let warnings = response.headers().get_all("warning").iter();
        let warnings = warnings.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        Answer { code, warnings, body: serde_json::from_slice(&bytes).unwrap_or_default() }
    }

    async fn get(&self, path: &str) -> Answer {
        self.send(Request::get(path).body(Body::empty()).unwrap()).await
    }

    async fn get_as(&self, path: &str, accept: &str) -> Answer {
        self.send(Request::get(path).header("accept", accept).body(Body::empty()).unwrap()).await
    }

    async fn write(&self, method: Method, path: &str, content_type: &str, body: Value) -> Answer {
        let request = Request::builder().method(method).uri(path).header("content-type", content_type);
        self.send(request.body(Body::from(body.to_string())).unwrap()).await
    }

    async fn post(&self, path: &str, body: Value) -> Answer {
        self.write(Method::POST, path, "application/json", body).await
    }

    async fn put(&self, path: &str, body: Value) -> Answer {
        self.write(Method::PUT, path, "application/json", body).await
    }

    async fn patch(&self, path: &str, content_type: &str, body: Value) -> Answer {
        self.write(Method::PATCH, path, content_type, body).await
    }

    async fn delete(&self, path: &str) -> Answer {
        self.send(Request::delete(path).body(Body::empty()).unwrap()).await
    }

    async fn delete_with(&self, path: &str, options: Value) -> Answer {
        self.write(Method::DELETE, path, "application/json", options).await
    }

    /// Opens a watch. The path's query needs no `watch=true`.
    async fn watch(&self, path: &str) -> Watch {
        self.watch_as(path, "application/json").await
    }

    async fn watch_as(&self, path: &str, accept: &str) -> Watch {
        let separator = if path.contains('?') { '&' } else { '?' };
        let uri = format!("{path}{separator}watch=true");
        let request = Request::get(uri).header("accept", accept).body(Body::empty()).unwrap();
        let response = self.router().oneshot(request).await.unwrap();
        assert_eq!(response.status(), 200);
        Watch { body: response.into_body().into_data_stream() }
    }
}

struct Watch {
    body: axum::body::BodyDataStream,
}

impl Watch {
    /// The next event, or None when the watch has ended.
    async fn next(&mut self) -> Option<Value> {
        let line = tokio::time::timeout(Duration::from_secs(7200), self.body.next()).await.unwrap()?;
        Some(serde_json::from_slice(&line.unwrap()).unwrap())
    }

    /// The next event as its type and the object's name.
    async fn next_name(&mut self) -> (String, String) {
        let event = self.next().await.expect("the watch goes on");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        (text(&event["type"]), text(&event["object"]["metadata"]["name"]))
    }

    #[track_caller]
    fn assert_idle(&mut self) {
        let next = futures::FutureExt::now_or_never(self.body.next());
        assert!(next.is_none(), "an event nobody expected: {next:?}");
    }
}

fn event(kind: &str, name: &str) -> (String, String) {
    (kind.to_owned(), name.to_owned())
}

fn deployment(name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "main", "image": "registry.example/app:v1"}]},
            },
        },
    })
}

/// As short as it may be: selector, labels and number are the server's to fill in.
fn controller(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ReplicationController",
        "metadata": {"name": name},
        "spec": {"template": {
            "metadata": {"labels": {"app": name}},
            "spec": {"containers": [{"name": "main", "image": "registry.example/app:v1"}]},
        }},
    })
}

fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "main", "image": "registry.example/app:v1"}]},
    })
}

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "1"}})
}

fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

/// `object` with labels.
fn labelled(mut object: Value, labels: Value) -> Value {
    object["metadata"]["labels"] = labels;
    object
}

fn revision(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

/// The definition of `widgets.example.com`, whose `spec` has this schema.
fn definition(spec: &Value) -> Value {
    let status = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let columns = json!([
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
        {"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"},
    ]);
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]},
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "description": "A widget.",
                    "properties": {"spec": spec, "status": status},
                }},
                "subresources": {
                    "status": {},
                    "scale": {
                        "specReplicasPath": ".spec.size",
                        "statusReplicasPath": ".status.size",
                        "labelSelectorPath": ".status.selector",
                    },
                },
                "additionalPrinterColumns": columns,
            }],
        },
    })
}

/// The schema of a widget's spec.
fn widget_spec() -> Value {
    json!({
        "type": "object",
        "required": ["size"],
        "properties": {
            "size": {"type": "integer", "minimum": 0, "maximum": 9, "description": "How large."},
            "mode": {"type": "string", "default": "plain", "enum": ["plain", "fancy"]},
            "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        },
    })
}

fn widget(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}

/// A server with the widgets' definition.
async fn with_widgets() -> Sandbox {
    let sandbox = sandbox();
    sandbox.post(DEFINITIONS, definition(&widget_spec())).await.ok();
    sandbox
}
