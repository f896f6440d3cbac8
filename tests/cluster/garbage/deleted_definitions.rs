//! A definition that is deleted while the deletions of its objects, and of what these own, are under way.

use super::*;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const THINGS: &str = "/apis/x.io/v1/namespaces/shop/things";

async fn define(cluster: &Cluster) {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let definition = json!({"metadata": {"name": "things.x.io"},
        "spec": {"group": "x.io", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
                 "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]}});
    cluster.call(Method::POST, DEFINITIONS, &definition).await;
}

fn to_thing(owner: &Value) -> Value {
    let mut reference = blocking(owner);
    (reference["apiVersion"], reference["kind"]) = ("x.io/v1".into(), "Thing".into());
    reference
}

fn is_defined(cluster: &Cluster) -> bool {
    !cluster.sandbox.objects("CustomResourceDefinition").is_empty()
}

/// An API server that loses the deletions of ConfigMaps while the switch is on.
fn losing_deletions() -> (Arc<AtomicBool>, Faults) {
    let is_losing = Arc::new(AtomicBool::new(false));
    let loses = is_losing.clone();
    let faults = inject_faults(move |request: &RequestInfo| {
        let is_meant =
            request.verb == "delete" && request.kind == "ConfigMap" && request.user_agent == USER_AGENT;
        match loses.load(Ordering::SeqCst) && is_meant {
            true => FaultDecision::LoseRequest,
            false => FaultDecision::Proceed,
        }
    });
    (is_losing, faults)
}

#[tokio::test(start_paused = true)]
async fn what_the_objects_of_a_deleted_definition_own_goes_however_late_it_is_deleted() {
    let (is_losing, faults) = losing_deletions();
    let (cluster, _daemon) = cluster_with(faults).await;
    define(&cluster).await;
    let names: Vec<String> = (0..50).map(|number| format!("a-{number}")).collect();
    for name in &names {
        let thing = cluster.call(Method::POST, THINGS, &map(name, &[], &[])).await;
        create(&cluster, name, &[to_thing(&thing)]).await;
    }
    seconds(5).await;
    is_losing.store(true, Ordering::SeqCst);
    cluster.call(Method::DELETE, &format!("{DEFINITIONS}/things.x.io"), &Value::Null).await;
    seconds(120).await;
    assert!(!is_defined(&cluster) && names.iter().all(|name| stored(&cluster, name).is_some()));
    let before = requests(&cluster).len();
    is_losing.store(false, Ordering::SeqCst);
    cluster
        .eventually(90, "they are gone", |cluster| names.iter().all(|name| stored(cluster, name).is_none()))
        .await;
    let reads = requests(&cluster)[before..].iter().filter(|request| request.verb == "get").count();
    assert!(reads <= names.len(), "{reads} reads: that the kind is gone is asked once for all its objects");
    // Another kind under the same name begins anew.
    define(&cluster).await;
    let thing = cluster.call(Method::POST, THINGS, &map("a-0", &[], &[])).await;
    create(&cluster, "kept", &[to_thing(&thing)]).await;
    seconds(60).await;
    assert!(stored(&cluster, "kept").is_some());
}

#[tokio::test(start_paused = true)]
async fn foreground_deletions_end_when_the_definition_of_their_objects_is_deleted_in_their_middle() {
    let (cluster, _daemon) = cluster().await;
    define(&cluster).await;
    let owner = create(&cluster, "owner", &[]).await;
    let of_map = map("of-map", &[blocking(&owner)], &["example.com/keep"]);
    let of_map = cluster.call(Method::POST, THINGS, &of_map).await;
    create(&cluster, "of-thing", &[to_thing(&of_map)]).await;
    let waiting = cluster.call(Method::POST, THINGS, &map("waiting", &[], &[])).await;
    let held = map("held", &[to_thing(&waiting)], &["example.com/keep"]);
    cluster.call(Method::POST, MAPS, &held).await;
    create(&cluster, "free", &[to_thing(&waiting)]).await;
    seconds(5).await;
    delete_map(&cluster, "owner", "Foreground").await;
    delete(&cluster, &format!("{THINGS}/waiting"), "Foreground").await;
    seconds(1).await;
    cluster.call(Method::DELETE, &format!("{DEFINITIONS}/things.x.io"), &Value::Null).await;
    seconds(60).await;
    assert!(are_gone(&cluster, &["free", "of-thing"]));
    assert!(is_defined(&cluster) && stored(&cluster, "owner").is_some(), "finalizers of others keep them");
    let release = json!({"metadata": {"finalizers": null}});
    cluster.call(Method::PATCH, &format!("{MAPS}/held"), &release).await;
    cluster.call(Method::PATCH, &format!("{THINGS}/of-map"), &release).await;
    cluster
        .eventually(10, "all are gone", |cluster| {
            are_gone(cluster, &["held", "owner"]) && !is_defined(cluster)
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_defined_while_the_first_list_of_definitions_waits_is_known_after_it() {
    let faults = inject_faults(|request: &RequestInfo| {
        let is_meant = request.kind == "CustomResourceDefinition" && request.user_agent == USER_AGENT;
        let is_first = is_meant && matches!(request.verb, "list" | "watch");
        if is_first { FaultDecision::Delay(Duration::from_secs(2)) } else { FaultDecision::Proceed }
    });
    let (cluster, _daemon) = cluster_with(faults).await;
    seconds(1).await;
    define(&cluster).await;
    let thing = cluster.call(Method::POST, THINGS, &map("owner", &[], &[])).await;
    create(&cluster, "owned", &[to_thing(&thing)]).await;
    seconds(4).await;
    cluster.call(Method::DELETE, &format!("{DEFINITIONS}/things.x.io"), &Value::Null).await;
    cluster.eventually(5, "it is gone", |cluster| stored(cluster, "owned").is_none()).await;
}
