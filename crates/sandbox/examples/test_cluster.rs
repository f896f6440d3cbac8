//! Tests a controller of one's own in a whole cluster, in virtual time: it restarts a Deployment when its ConfigMap
//! changes, and Windlass rolls that out. `cargo run -p windlass-sandbox --example test_cluster`.
#![allow(clippy::print_stdout)] // It is a program that tells what it found.

use futures::TryStreamExt as _;
use kube::core::{DynamicObject, GroupVersionKind};
use kube::discovery::ApiResource;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use windlass_sandbox::TestCluster;

const MANIFEST: &str = "
{apiVersion: v1, kind: ConfigMap, metadata: {name: web, namespace: default}, data: {colour: blue}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: nginx}]}
";

fn api(client: &Client, group: &str, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
    Api::namespaced_with(client.clone(), "default", &resource)
}

/// The controller under test: writes the data of each ConfigMap into the template of the Deployment of the same name.
async fn run(client: Client) -> Result<(), watcher::Error> {
    let deployments = &api(&client, "apps", "Deployment");
    let maps = watcher(api(&client, "", "ConfigMap"), watcher::Config::default());
    maps.applied_objects()
        .try_for_each(|map| async move {
            let annotations = json!({"example.com/data": map.data["data"].to_string()});
            let patch = json!({"spec": {"template": {"metadata": {"annotations": annotations}}}});
            let name = map.metadata.name.unwrap_or_default();
            // A ConfigMap without a Deployment.
            let _ = deployments.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await;
            Ok(())
        })
        .await
}

async fn test() -> Result<(), Box<dyn std::error::Error>> {
    let cluster = TestCluster::start();
    tokio::spawn(run(cluster.client()));
    cluster.apply(MANIFEST).await?;
    cluster.rolled_out("Deployment", "default", "web").await?;

    let begun = cluster.now();
    cluster.apply(&MANIFEST.replace("blue", "green")).await?;
    let is_green = |pod: &Value| {
        let data = pod["metadata"]["annotations"]["example.com/data"].as_str();
        data.is_some_and(|data| data.contains("green"))
    };
    let minute = std::time::Duration::from_secs(60);
    assert!(cluster.until(minute, |cluster| cluster.api_server().objects("Pod").iter().any(is_green)).await);
    cluster.rolled_out("Deployment", "default", "web").await?;
    let pods = cluster.api_server().objects("Pod");
    assert!(pods.iter().filter(|pod| is_green(pod)).count() == 3);
    let taken = (cluster.now() - begun).total(jiff::Unit::Second)?;
    println!(
        "the configuration changed, and the Deployment rolled out again within {taken:.1} s in the cluster"
    );
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    runtime.block_on(test())
}
