//! The preconditions in the writes of pods.

use std::collections::BTreeSet;

use http::Method;
use serde_json::{Value, json};
use windlass_apiserver::FaultDecision;
use windlass_testkit::cluster::{Cluster, USER_AGENT, is_request};

use super::{PODS, REPLICA_SETS, S, create_orphan, create_replica_set, delete, has, live, name_of, patch};

/// The bodies of the controllers' requests of this kind for pods, with the pods' names.
fn sent(cluster: &Cluster, verb: &str) -> Vec<(String, Value)> {
    let log = cluster.log.lock().unwrap();
    let sent = log.iter().filter(|request| is_request(request, verb, "Pod"));
    sent.map(|request| (request.name.clone(), serde_json::from_slice(&request.body).unwrap())).collect()
}

#[tokio::test(start_paused = true)]
async fn a_late_deletion_does_not_delete_a_new_pod_with_the_same_name() {
    let cluster = Cluster::answering(|request| match is_request(request, "delete", "Pod") {
        true => FaultDecision::Delay(45 * S),
        false => FaultDecision::Proceed,
    })
    .await;
    let _daemon = cluster.start_controllers(1);
    create_replica_set(&cluster, "web", 2).await;
    has(&cluster, "web", 2).await;
    patch(&cluster, REPLICA_SETS, "web", json!({"spec": {"replicas": 1}})).await;
    tokio::time::sleep(S).await;
    let [(name, options)] = &sent(&cluster, "delete")[..] else { panic!("one deletion is in flight") };
    assert!(options["preconditions"]["uid"].is_string(), "{options}");

    // Another client is faster, and uses the name.
    delete(&cluster, PODS, name, json!({"gracePeriodSeconds": 0})).await;
    let namesake = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "other"}},
        "spec": {"containers": [{"name": "app", "image": "app:v1"}]},
    });
    let namesake = cluster.call(Method::POST, PODS, &namesake).await;
    tokio::time::sleep(120 * S).await;
    let stored = cluster.call(Method::GET, &format!("{PODS}/{name}"), &Value::Null).await;
    assert_eq!(stored["metadata"]["uid"], namesake["metadata"]["uid"]);
    assert!(stored["metadata"]["deletionTimestamp"].is_null(), "{stored:#}");
    has(&cluster, "web", 1).await;
}

#[tokio::test(start_paused = true)]
async fn an_adoption_and_a_release_name_the_owner_the_version_and_the_uid_and_nothing_else() {
    let cluster = Cluster::new().await;
    create_orphan(&cluster, "orphan").await;
    let _daemon = cluster.start_controllers(1);
    create_replica_set(&cluster, "web", 2).await;
    has(&cluster, "web", 2).await;
    let strays: Vec<String> = live(&cluster, "web").iter().map(name_of).collect();
    assert!(strays.contains(&"orphan".to_owned()), "{strays:?}");
    for pod in &strays {
        patch(&cluster, PODS, pod, json!({"metadata": {"labels": {"app": "debug"}}})).await;
    }
    cluster
        .eventually(10, "both are replaced", |c| live(c, "web").iter().all(|p| !strays.contains(&name_of(p))))
        .await;
    has(&cluster, "web", 2).await;

    let patches = sent(&cluster, "patch");
    assert_eq!(patches.len(), 3, "one adoption and two releases: {patches:?}");
    for (name, body) in patches {
        let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>();
        assert_eq!(keys(&body), ["metadata".to_owned()].into(), "{name}");
        let expected = ["ownerReferences", "resourceVersion", "uid"].map(str::to_owned).into();
        assert_eq!(keys(&body["metadata"]), expected, "{name}: {body}");
    }
    let log = cluster.log.lock().unwrap();
    let writes = ["create", "update", "patch", "delete", "deletecollection"];
    let subresources: BTreeSet<&str> = log
        .iter()
        .filter(|request| request.user_agent == USER_AGENT && request.kind == "Pod")
        .filter(|request| writes.contains(&request.verb))
        .map(|request| request.subresource)
        .collect();
    assert_eq!(subresources, [""].into(), "a pod's status, binding and eviction are others' business");
}
