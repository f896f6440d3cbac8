//! Creating the simulated nodes, and writing their status, labels and taints.

use kube::{
    Client,
    api::{ListParams, Patch, PatchParams},
    core::Request,
};
use serde_json::{Value, json};

use super::{
    Options,
    nodes::{self, Tainting, Write},
};
use crate::api_client::{CallError, backoff, post, send};

/// Creates the nodes, unless the cluster has any.
pub(super) async fn create_nodes(client: &Client, options: &Options) {
    let mut failures = 0;
    while let Err(error) = try_create_nodes(client, options).await {
        failures += 1;
        tracing::warn!(%error, "cannot create the simulated nodes; retrying");
        tokio::time::sleep(backoff(failures)).await;
    }
}

async fn try_create_nodes(client: &Client, options: &Options) -> Result<(), CallError> {
    let found = send(client, Request::new("/api/v1/nodes").list(&ListParams::default())).await?;
    let found = found["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    let foreign = found.iter().any(|node| {
        let name = node["metadata"]["name"].as_str().unwrap_or_default();
        nodes::number(name).is_none_or(|number| number > options.nodes)
    });
    if foreign {
        return Ok(());
    }
    for number in 1..=options.nodes {
        let name = nodes::name(number);
        if found.iter().any(|node| node["metadata"]["name"] == name.as_str()) {
            continue;
        }
        let node = new_node(number, options);
        let node = send(client, post("/api/v1/nodes".to_owned(), &node)).await?;
        // At once, so that the first pods are not reported as unschedulable. If it fails, the watch of the nodes
        // triggers a retry.
        if let Err(error) = report_now(client, node, number, Tainting::All, options).await {
            tracing::debug!(%error, node = name, "the new node is still tainted");
        }
    }
    Ok(())
}

/// A node with what the options say of it.
fn new_node(number: usize, options: &Options) -> Value {
    let name = nodes::name(number);
    let mut node = nodes::node(number, &options.version, (options.now)());
    let is_meant = |meant: &Option<String>| meant.as_ref().is_none_or(|meant| *meant == name);
    for label in options.node_labels.iter().filter(|label| is_meant(&label.node)) {
        node["metadata"]["labels"][&label.key] = json!(label.value);
    }
    let taints: Vec<Value> = options
        .node_taints
        .iter()
        .filter(|taint| is_meant(&taint.node))
        .map(|taint| match taint.value.as_str() {
            "" => json!({"key": taint.key, "effect": taint.effect}),
            value => json!({"key": taint.key, "value": value, "effect": taint.effect}),
        })
        .collect();
    if !taints.is_empty() {
        node["spec"]["taints"] = Value::Array(taints);
    }
    node
}

/// Writes what is due about a node, one write after the other.
async fn report_now(
    client: &Client,
    mut node: Value,
    number: usize,
    tainting: Tainting,
    options: &Options,
) -> Result<(), CallError> {
    let name = node["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    while let Some(write) = nodes::due(&node, number, &options.version, tainting, (options.now)()) {
        let (requests, parameters) = (Request::new("/api/v1/nodes"), PatchParams::default());
        let request = match write {
            Write::Node(patch) => requests.patch(&name, &parameters, &Patch::Merge(patch)),
            Write::Status(patch) => {
                requests.patch_subresource("status", &name, &parameters, &Patch::Merge(patch))
            }
        };
        let before = node["metadata"]["resourceVersion"].take();
        node = send(client, request).await?;
        if node["metadata"]["resourceVersion"] == before {
            return Ok(());
        }
    }
    Ok(())
}

/// The same, until it has succeeded or another version of the node is the one to look at.
pub(super) async fn report(client: Client, node: Value, number: usize, tainting: Tainting, options: Options) {
    let mut failures = 0;
    while let Err(error) = report_now(&client, node.clone(), number, tainting, &options).await {
        if error.is_conflict() || error.is_final() {
            return;
        }
        failures += 1;
        tracing::warn!(%error, "cannot write the status, labels or taints of a simulated node; retrying");
        tokio::time::sleep(backoff(failures)).await;
    }
}
