//! Tests of the pod simulator against the sandbox's API server, both in one process and in virtual time.

use std::{sync::Arc, time::Duration};

use axum::{
    body::Body,
    extract,
    middleware::{Next, from_fn},
};
use futures::StreamExt as _;
use jiff::Timestamp;
use kube::{
    Client,
    core::{
        Request,
        params::{DeleteParams, GetParams, ListParams, Patch, PatchParams},
    },
};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use windlass_apiserver::{Options, Sandbox};

use super::{
    api_client::{Now, post, send},
    kubelet,
};

mod configuration;
mod endings;
mod nodes;
mod pods;
mod scheduling;
mod volumes;

/// A cluster in virtual time, with some of its controllers running.
struct Rig {
    sandbox: Sandbox,
    client: Client,
    now: Now,
    shutdown: CancellationToken,
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

impl Rig {
    fn new() -> Self {
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let since = Instant::now();
        let now: Now = Arc::new(move || start + since.elapsed());
        let sandbox = Sandbox::new(Options::new(now.clone()));
        let client = Client::new(sandbox.router(), "default");
        Rig { sandbox, client, now, shutdown: CancellationToken::new() }
    }

    /// Each event of a watch comes so much later than the one before.
    fn with_slow_watches(mut self, lag: Duration) -> Self {
        let delayed = move |request: extract::Request, next: Next| async move {
            let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
            let response = next.run(request).await;
            if !is_watch {
                return response;
            }
            response.map(|body| {
                Body::from_stream(body.into_data_stream().then(move |event| async move {
                    tokio::time::sleep(lag).await;
                    event
                }))
            })
        };
        self.client = Client::new(self.sandbox.router().layer(from_fn(delayed)), "default");
        self
    }

    fn with_pods(self) -> Self {
        let options = kubelet::Options::new(self.now.clone());
        self.with_pods_that(options)
    }

    fn with_pods_that(self, options: kubelet::Options) -> Self {
        tokio::spawn(kubelet::run(self.client.clone(), options, self.shutdown.clone()));
        self
    }

    fn with_pods_that_run_on(self, nodes: usize) -> Self {
        let options = kubelet::Options { nodes, ..kubelet::Options::new(self.now.clone()) };
        self.with_pods_that(options)
    }

    async fn create(&self, path: &str, object: Value) -> Value {
        send(&self.client, post(path.to_owned(), &object)).await.unwrap()
    }

    async fn create_pod(&self, name: &str, spec: Value) -> Value {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"containers": [{"name": "main", "image": "nginx"}]},
        });
        json_patch::merge(&mut pod["spec"], &spec);
        self.create(PODS, pod).await
    }

    async fn get(&self, path: &str, name: &str) -> Option<Value> {
        match send(&self.client, Request::new(path).get(name, &GetParams::default())).await {
            Ok(found) => Some(found),
            Err(error) if error.is_not_found() => None,
            Err(error) => panic!("{error}"),
        }
    }

    async fn list(&self, path: &str) -> Vec<Value> {
        let list = send(&self.client, Request::new(path).list(&ListParams::default())).await.unwrap();
        list["items"].as_array().unwrap().clone()
    }

    async fn names(&self, path: &str) -> Vec<String> {
        let list = self.list(path).await;
        list.iter().map(|object| object["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    }

    async fn delete(&self, path: &str, name: &str, parameters: &DeleteParams) {
        send(&self.client, Request::new(path).delete(name, parameters)).await.unwrap();
    }

    async fn patch(&self, path: &str, name: &str, patch: Value) -> Value {
        let request = Request::new(path).patch(name, &PatchParams::default(), &Patch::Merge(patch));
        send(&self.client, request).await.unwrap()
    }

    /// The reasons and messages of the events about a pod.
    async fn events(&self, name: &str) -> Vec<String> {
        let events = self.list("/api/v1/namespaces/default/events").await;
        let about = events.iter().filter(|event| event["involvedObject"]["name"] == name);
        about
            .map(|e| format!("{} {}", e["reason"].as_str().unwrap(), e["message"].as_str().unwrap()))
            .collect()
    }

    async fn phase(&self, name: &str) -> String {
        let pod = self.get(PODS, name).await.unwrap();
        pod["status"]["phase"].as_str().unwrap_or_default().to_owned()
    }
}

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";
const NODES: &str = "/api/v1/nodes";

async fn pass(milliseconds: u64) {
    tokio::time::sleep(Duration::from_millis(milliseconds)).await;
}

fn ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|c| c["type"] == "Ready" && c["status"] == "True")
}
