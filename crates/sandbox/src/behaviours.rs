//! Manifests and the API server: validated, applied, and refused without side effects.

use std::sync::Arc;

use jiff::Timestamp;
use kube::Client;
use kube::core::{Request, params::PostParams};
use tokio::time::Instant;
use windlass_apiserver::{Options, Sandbox};
use windlass_nodes::api_client::{CallError, send};

use super::manifest;

/// An API server in virtual time, and nothing else.
struct Rig {
    sandbox: Sandbox,
    client: Client,
}

impl Rig {
    fn new() -> Self {
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let since = Instant::now();
        let sandbox = Sandbox::new(Options::new(Arc::new(move || start + since.elapsed())));
        let client = Client::new(sandbox.router(), "default");
        Rig { sandbox, client }
    }

    /// The names of all objects of a kind.
    fn names(&self, kind: &str) -> Vec<String> {
        let objects = self.sandbox.objects(kind);
        objects.iter().map(|object| object["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    }
}

fn objects(text: &str) -> Vec<manifest::Object> {
    manifest::read(&["-".into()], &mut text.as_bytes()).unwrap().objects
}

const SHOP: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: nginx}]}
---
apiVersion: v1
kind: Namespace
metadata: {name: shop}
";

#[tokio::test(start_paused = true)]
async fn manifests_are_validated_without_side_effects_and_applied_with_namespaces_first() {
    let rig = Rig::new();
    let shop = objects(SHOP);
    let before = rig.sandbox.revision();
    manifest::apply::check(&rig.client, &shop).await.unwrap();
    assert_eq!(rig.sandbox.revision(), before);
    let apply = async || {
        let mut reports = Vec::new();
        manifest::apply::apply(&rig.client, &mut shop.clone(), |object, how| {
            reports.push(format!("{object} {how}"))
        })
        .await
        .unwrap();
        reports
    };
    assert_eq!(apply().await, ["Namespace shop created", "Deployment shop/web created"]);
    assert_eq!(apply().await, ["Namespace shop unchanged", "Deployment shop/web unchanged"]);
}

#[tokio::test(start_paused = true)]
async fn an_object_gets_the_name_that_the_server_makes() {
    let rig = Rig::new();
    let job = "apiVersion: batch/v1\nkind: Job\nmetadata: {generateName: load-}\nspec: {template: {spec: {restartPolicy: \
               Never, containers: [{name: a, image: a}]}}}\n";
    let mut jobs = objects(&format!("{job}---\n{job}"));
    manifest::apply::check(&rig.client, &jobs).await.unwrap();
    manifest::apply::apply(&rig.client, &mut jobs, |_, _| {}).await.unwrap();
    let names: Vec<String> = jobs.iter().map(|job| job.name().to_owned()).collect();
    assert!(names[0] != names[1] && names.iter().all(|name| name.len() == "load-".len() + 5), "{names:?}");
    assert_eq!(rig.names("Job").len(), 2);
}

async fn check_refused(manifest: &str, expected: &str) {
    let rig = Rig::new();
    let error = manifest::apply::check(&rig.client, &objects(manifest)).await.unwrap_err().to_string();
    assert!(error.contains(expected), "{error}");
    assert!(error.starts_with("standard input: document 1: Deployment shop/web: "), "{error}");
    assert!(!rig.names("Namespace").contains(&"shop".to_owned()), "nothing of it was applied");
}

#[tokio::test(start_paused = true)]
async fn an_invalid_object_is_reported_before_anything_is_applied() {
    check_refused(&SHOP.replace("replicas: 2", "replicas: -1"), "spec.replicas").await;
    check_refused(&SHOP.replace("replicas: 2", "replicas: two"), "replicas").await;
    check_refused(&SHOP.replace("replicas: 2", "replcas: 2"), "unknown field \"spec.replcas\"").await;
    check_refused(&SHOP.replace("  selector: {matchLabels: {app: web}}\n", ""), "selector").await;
    check_refused(&SHOP.replace("{labels: {app: web}}", "{labels: {app: other}}"), "selector").await;
}

#[tokio::test(start_paused = true)]
async fn a_failure_midway_lists_the_applied_and_the_remaining_objects() {
    let rig = Rig::new();
    let text = "
{apiVersion: v1, kind: ConfigMap, metadata: {name: first}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: second, namespace: nowhere}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: third}}
";
    let error =
        manifest::apply::apply(&rig.client, &mut objects(text), |_, _| {}).await.unwrap_err().to_string();
    assert!(error.contains("standard input: document 2: ConfigMap nowhere/second: "), "{error}");
    assert!(error.contains("applied: ConfigMap default/first\n"), "{error}");
    assert!(error.ends_with("not applied: ConfigMap nowhere/second, ConfigMap default/third"), "{error}");
}

const WIDGETS: &str = "
{apiVersion: shop.example.com/v1, kind: Widget, metadata: {name: a}, spec: {size: 1}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.shop.example.com}
spec:
  group: shop.example.com
  scope: Namespaced
  names: {plural: widgets, kind: Widget}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties: {spec: {type: object, properties: {size: {type: integer}}}}
";

#[tokio::test(start_paused = true)]
async fn objects_of_a_custom_kind_may_stand_before_its_definition() {
    let rig = Rig::new();
    let widgets = objects(WIDGETS);
    manifest::apply::check(&rig.client, &widgets).await.unwrap();
    let mut reports = Vec::new();
    let report = |object: &manifest::Object, how| reports.push(format!("{object} {how}"));
    manifest::apply::apply(&rig.client, &mut widgets.clone(), report).await.unwrap();
    let definition = "CustomResourceDefinition widgets.shop.example.com created";
    assert_eq!(reports, [definition, "Widget default/a created"]);
    // The server knows the kind now.
    let wrong = objects(&WIDGETS.replace("size: 1", "size: one"));
    let error = manifest::apply::check(&rig.client, &wrong).await.unwrap_err().to_string();
    assert!(
        error.starts_with("standard input: document 1: Widget default/a: ") && error.contains("spec.size")
    );
}

#[tokio::test(start_paused = true)]
async fn the_examples_are_accepted() {
    let rig = Rig::new();
    for text in [
        include_str!("../../../examples/nginx.yaml"),
        include_str!("../../../examples/shop.yaml"),
        include_str!("../../../examples/node-agent.yaml"),
        include_str!("../../../examples/cassandra.yaml"),
        include_str!("../../../examples/postgres.yaml"),
    ] {
        let objects = objects(text);
        manifest::apply::check(&rig.client, &objects).await.unwrap();
        manifest::apply::apply(&rig.client, &mut objects.clone(), |_, _| {}).await.unwrap();
    }
    assert_eq!((rig.names("Deployment").len() - 1, rig.names("DaemonSet").len()), (12, 2));
    assert_eq!(rig.names("StatefulSet"), ["postgres", "ring"]);
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_invalid_in_a_url_is_an_error_and_not_a_panic() {
    let rig = Rig::new();
    let text = "{apiVersion: v1, kind: ConfigMap, metadata: {name: \"../a b\\n\", namespace: \"x/y z\"}}";
    assert!(manifest::apply::check(&rig.client, &objects(text)).await.is_err());
    let request = Request::new("/api/v1/nodes").create(&PostParams::default(), b"{".to_vec());
    assert!(matches!(send(&rig.client, request).await, Err(CallError::Refused(_))));
}
