//! The demands of upstream's tests on the namespace controller beside the collector. Both delete there, so nobody
//! counts.

use serde_json::{Value, json};
use tokio::time::{Duration, Instant};

use super::bed::{A_WHILE, Bed, core, map, pod};

const KEEP: &str = "example.com/keep";

/// A namespace beside that of the situation, for the situation to delete.
async fn another(bed: &Bed) -> (String, String) {
    let name = format!("{}-ends", bed.namespace);
    bed.create_namespace(&name).await;
    (format!("/api/v1/namespaces/{name}"), name)
}

/// The conditions as status and message, by type.
async fn conditions(bed: &Bed, path: &str) -> Vec<(String, String, String)> {
    let found = bed.get(path).await.expect("the namespace is there");
    let all = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    all.iter().map(|it| (text(&it["type"]), text(&it["status"]), text(&it["message"]))).collect()
}

fn is_running(object: &Option<Value>) -> bool {
    object.as_ref().is_some_and(|object| object["status"]["phase"] == "Running")
}

pub(super) async fn the_conditions_are_the_five_of_upstream(bed: &Bed) -> Option<usize> {
    let (path, name) = another(bed).await;
    bed.create(&core(&name, "pods"), pod("pod", &[], &[])).await;
    let deployment = json!({"metadata": {"name": "kept", "finalizers": [KEEP]}, "spec": {
        "replicas": 0, "selector": {"matchLabels": {"app": "a"}},
        "template": {"metadata": {"labels": {"app": "a"}},
                     "spec": {"containers": [{"name": "c", "image": "app"}]}}}});
    bed.create(&format!("/apis/apps/v1/namespaces/{name}/deployments"), deployment).await;
    bed.delete(&path, Value::Null).await;
    let expected = [
        ("NamespaceDeletionDiscoveryFailure", "False", "All resources successfully discovered".to_owned()),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            "False",
            "All legacy kube types successfully parsed".to_owned(),
        ),
        (
            "NamespaceDeletionContentFailure",
            "False",
            "All content successfully deleted, may be waiting on finalization".to_owned(),
        ),
        (
            "NamespaceContentRemaining",
            "True",
            "Some resources are remaining: deployments.apps has 1 resource instances".to_owned(),
        ),
        (
            "NamespaceFinalizersRemaining",
            "True",
            format!("Some content in the namespace has finalizers remaining: {KEEP} in 1 resource instances"),
        ),
    ]
    .map(|(kind, status, message)| (kind.to_owned(), status.to_owned(), message));
    // Upstream's limit.
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let said = conditions(bed, &path).await;
        if said == expected {
            return None;
        }
        assert!(Instant::now() < end, "{said:#?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

pub(super) async fn a_namespace_ends_its_running_pods(bed: &Bed) -> Option<usize> {
    let (path, name) = another(bed).await;
    let pods = core(&name, "pods");
    bed.create(&pods, pod("pod", &[], &[])).await;
    bed.eventually(&format!("{pods}/pod"), "it runs", is_running).await;
    bed.delete(&path, Value::Null).await;
    bed.gone(&path).await;
    bed.create_namespace(&name).await;
    assert!(bed.get(&format!("{pods}/pod")).await.is_none(), "the pod has outlived its namespace");
    None
}

pub(super) async fn a_namespace_ends_its_services(bed: &Bed) -> Option<usize> {
    let (path, name) = another(bed).await;
    let services = core(&name, "services");
    let spec = json!({"selector": {"a": "b"}, "ports": [{"port": 80}]});
    bed.create(&services, json!({"metadata": {"name": "service"}, "spec": spec})).await;
    bed.delete(&path, Value::Null).await;
    bed.gone(&path).await;
    bed.create_namespace(&name).await;
    assert!(bed.get(&format!("{services}/service")).await.is_none(), "it has outlived its namespace");
    None
}

pub(super) async fn a_hundred_namespaces_end(bed: &Bed) -> Option<usize> {
    let names: Vec<String> = (0..100).map(|number| format!("{}-{number}", bed.namespace)).collect();
    for name in &names {
        bed.create_namespace(name).await;
        bed.create(&core(name, "configmaps"), map("map", &[])).await;
    }
    let paths: Vec<String> = names.iter().map(|name| format!("/api/v1/namespaces/{name}")).collect();
    futures::future::join_all(paths.iter().map(|path| bed.delete(path, Value::Null))).await;
    // Upstream lets ten be left after this time.
    let end = Instant::now() + Duration::from_secs(150);
    for path in &paths {
        bed.gone_within(end.saturating_duration_since(Instant::now()), path).await;
    }
    None
}

pub(super) async fn pods_end_before_anything_else(bed: &Bed) -> Option<usize> {
    let (path, name) = another(bed).await;
    let (pods, maps) = (core(&name, "pods"), core(&name, "configmaps"));
    bed.create(&pods, pod("held", &[], &[KEEP])).await;
    bed.create(&maps, map("map", &[])).await;
    bed.eventually(&format!("{pods}/held"), "it runs", is_running).await;
    bed.delete(&path, Value::Null).await;
    let is_said = |found: &Option<Value>| {
        let all = found.as_ref().and_then(|found| found["status"]["conditions"].as_array());
        all.into_iter().flatten().any(|it| it["type"] == "NamespaceDeletionContentFailure")
    };
    bed.eventually(&path, "ContentFailure is present", is_said).await;
    for _ in 0..3 {
        tokio::time::sleep(A_WHILE).await;
        assert!(bed.get(&format!("{maps}/map")).await.is_some(), "the ConfigMap went before the pod");
    }
    bed.patch(&format!("{pods}/held"), json!({"metadata": {"finalizers": null}})).await;
    bed.gone(&path).await;
    bed.create_namespace(&name).await;
    for path in [format!("{pods}/held"), format!("{maps}/map")] {
        assert!(bed.get(&path).await.is_none(), "{path} has outlived its namespace");
    }
    None
}
