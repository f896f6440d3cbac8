//! Immediate deletion, graceful deletion, and finalizers.

use super::*;

async fn bound_pod(sandbox: &Sandbox, name: &str) -> String {
    let mut object = pod(name);
    object["spec"]["nodeName"] = json!("n1");
    sandbox.post(PODS, object).await.ok();
    format!("{PODS}/{name}")
}

#[tokio::test(start_paused = true)]
async fn a_deployment_goes_at_once_and_its_status_says_which() {
    let sandbox = sandbox();
    let created = sandbox.post(DEPLOYMENTS, deployment("web")).await.ok();
    let deleted = sandbox.delete(&format!("{DEPLOYMENTS}/web")).await.ok();
    assert_eq!(deleted["status"], "Success");
    let details =
        json!({"name": "web", "group": "apps", "kind": "deployments", "uid": created["metadata"]["uid"]});
    assert_eq!(deleted["details"], details);
    sandbox.delete(&format!("{DEPLOYMENTS}/web")).await.refused(404);
}

#[tokio::test(start_paused = true)]
async fn a_running_pod_has_its_grace_period() {
    let sandbox = sandbox();
    let path = bound_pod(&sandbox, "a").await;
    let marked = sandbox.delete(&path).await.ok();
    assert_eq!(marked["metadata"]["deletionTimestamp"], "2026-01-01T00:00:30Z");
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 30);
    assert_eq!(marked["metadata"]["generation"], 2);
    tokio::time::sleep(Duration::from_secs(5)).await;
    let again = sandbox.delete(&path).await.ok();
    assert_eq!(again, marked, "a second deletion does not prolong or hasten it");
    let longer = sandbox.delete_with(&path, json!({"gracePeriodSeconds": 60})).await.ok();
    assert_eq!(longer, marked);
    let shorter = sandbox.delete_with(&path, json!({"gracePeriodSeconds": 10})).await.ok();
    assert_eq!(shorter["metadata"]["deletionTimestamp"], "2026-01-01T00:00:10Z");
    sandbox.delete(&format!("{path}?gracePeriodSeconds=0")).await.ok();
    sandbox.get(&path).await.refused(404);
}

/// A kubelet removes a pod as soon as it sees that its time is up. A client that gives no grace period has removed it
/// itself: it is never told that there is no such pod.
#[tokio::test]
async fn a_kubelet_cannot_overtake_a_deletion_without_grace() {
    let sandbox = sandbox();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let codes: Vec<u16> = std::thread::scope(|scope| {
        scope.spawn(|| {
            let kubelet = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                for pod in sandbox
                    .objects("Pod")
                    .iter()
                    .filter(|pod| pod["metadata"].get("deletionTimestamp").is_some())
                {
                    let path = format!("{PODS}/{}", pod["metadata"]["name"].as_str().unwrap());
                    kubelet.block_on(sandbox.delete_with(&path, json!({"gracePeriodSeconds": 0})));
                }
            }
        });
        let user = scope.spawn(|| {
            let user = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let codes = (0..2000).map(|number| {
                user.block_on(async {
                    let path = bound_pod(&sandbox, &format!("p{number}")).await;
                    sandbox.delete_with(&path, json!({"gracePeriodSeconds": 0})).await.code
                })
            });
            let codes = codes.collect();
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
            codes
        });
        user.join().unwrap()
    });
    assert_eq!(codes.iter().filter(|code| **code != 200).count(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_unbound_pod_is_deleted_at_once() {
    let sandbox = sandbox();
    sandbox.post(PODS, pod("unscheduled")).await.ok();
    sandbox.delete(&format!("{PODS}/unscheduled")).await.ok();
    sandbox.get(&format!("{PODS}/unscheduled")).await.refused(404);
    let path = bound_pod(&sandbox, "ended").await;
    sandbox.patch(&format!("{path}/status"), MERGE, json!({"status": {"phase": "Succeeded"}})).await.ok();
    sandbox.delete(&path).await.ok();
    sandbox.get(&path).await.refused(404);
}

#[tokio::test(start_paused = true)]
async fn an_eviction_is_a_graceful_deletion() {
    let sandbox = sandbox();
    let path = bound_pod(&sandbox, "a").await;
    let eviction = json!({
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a", "namespace": "default"},
        "deleteOptions": {"gracePeriodSeconds": 7},
    });
    assert_eq!(sandbox.post(&format!("{path}/eviction"), eviction).await.code, 201);
    assert_eq!(sandbox.get(&path).await.ok()["metadata"]["deletionGracePeriodSeconds"], 7);
}

#[tokio::test(start_paused = true)]
async fn finalizers_hold_an_object_until_the_last_is_gone() {
    let sandbox = sandbox();
    let path = format!("{DEPLOYMENTS}/web");
    let mut object = deployment("web");
    object["metadata"]["finalizers"] = json!(["example.com/a", "example.com/b"]);
    sandbox.post(DEPLOYMENTS, object).await.ok();
    let marked = sandbox.delete(&path).await.ok();
    assert_eq!(marked["metadata"]["deletionTimestamp"], "2026-01-01T00:00:00Z");
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 0);
    assert_eq!(marked["metadata"]["generation"], 2);
    let mut watch = sandbox.watch(&format!("{DEPLOYMENTS}?resourceVersion={}", revision(&marked))).await;
    let one = json!({"metadata": {"finalizers": ["example.com/b"]}});
    sandbox.patch(&path, MERGE, one).await.ok();
    assert_eq!(watch.next_name().await, event("MODIFIED", "web"));
    let more = json!({"metadata": {"finalizers": ["example.com/b", "example.com/c"]}});
    sandbox.patch(&path, MERGE, more).await.refused(422);
    sandbox.patch(&path, MERGE, json!({"metadata": {"finalizers": null}})).await.ok();
    let gone = watch.next().await.unwrap();
    assert_eq!(gone["type"], "DELETED");
    assert_eq!(revision(&gone["object"]), sandbox.revision());
    sandbox.get(&path).await.refused(404);
}

#[tokio::test(start_paused = true)]
async fn foreground_and_orphan_deletions_wait_for_the_garbage_collector() {
    let sandbox = sandbox();
    for (options, finalizer) in [
        (json!({"propagationPolicy": "Foreground"}), "foregroundDeletion"),
        (json!({"propagationPolicy": "Orphan"}), "orphan"),
        (json!({"orphanDependents": true}), "orphan"),
    ] {
        let path = format!("{DEPLOYMENTS}/web");
        sandbox.post(DEPLOYMENTS, deployment("web")).await.ok();
        let marked = sandbox.delete_with(&path, options).await.ok();
        assert_eq!(marked["metadata"]["finalizers"], json!([finalizer]));
        let again = sandbox.delete(&path).await.ok();
        assert_eq!(again, marked);
        let background = sandbox.delete(&format!("{path}?propagationPolicy=Background")).await.ok();
        assert_eq!(background["status"], "Success", "the last word counts");
    }
    let both = json!({"propagationPolicy": "Orphan", "orphanDependents": true});
    sandbox.post(DEPLOYMENTS, deployment("web")).await.ok();
    sandbox.delete_with(&format!("{DEPLOYMENTS}/web"), both).await.refused(422);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_with_a_precondition_deletes_only_the_matching_object() {
    let sandbox = sandbox();
    let path = format!("{CONFIG_MAPS}/a");
    let created = sandbox.post(CONFIG_MAPS, config_map("a")).await.ok();
    let wrong = sandbox.delete_with(&path, json!({"preconditions": {"uid": "other"}})).await;
    let refusal = wrong.refused(409);
    assert!(refusal.contains("the UID in the precondition (other) does not match"), "{refusal}");
    assert!(refusal.starts_with("Operation cannot be fulfilled on ConfigMap \"a\": "), "the kind: {refusal}");
    sandbox.delete_with(&path, json!({"preconditions": {"resourceVersion": "1"}})).await.refused(409);
    let right = json!({"preconditions": {"uid": created["metadata"]["uid"]}});
    sandbox.delete_with(&path, right).await.ok();
}

#[tokio::test(start_paused = true)]
async fn a_terminating_namespace_exists_until_it_is_finalized_and_accepts_nothing_new() {
    let sandbox = sandbox();
    let path = "/api/v1/namespaces/x";
    let created = sandbox.post("/api/v1/namespaces", namespace("x")).await.ok();
    assert_eq!(created["spec"]["finalizers"], json!(["kubernetes"]));
    assert_eq!(created["status"]["phase"], "Active");
    assert_eq!(created["metadata"]["labels"]["kubernetes.io/metadata.name"], "x");
    sandbox.post("/api/v1/namespaces/x/configmaps", config_map("a")).await.ok();
    let mut marked = sandbox.delete(path).await.ok();
    assert_eq!(marked["status"]["phase"], "Terminating");
    let refused = sandbox.post("/api/v1/namespaces/x/pods", pod("p")).await;
    assert_eq!(refused.body["details"]["causes"][0]["reason"], "NamespaceTerminating");
    assert_eq!(
        refused.refused(403),
        "pods \"p\" is forbidden: unable to create new content in namespace x because it is being terminated"
    );
    assert_eq!(sandbox.delete(path).await.ok(), marked);
    marked["spec"]["finalizers"] = json!([]);
    sandbox.put(&format!("{path}/finalize"), marked).await.ok();
    sandbox.get(path).await.refused(404);
    sandbox.delete("/api/v1/namespaces/default").await.refused(403);
}

#[tokio::test(start_paused = true)]
async fn a_collection_is_deleted_by_selector() {
    let sandbox = sandbox();
    sandbox.post(CONFIG_MAPS, labelled(config_map("a"), json!({"x": "1"}))).await.ok();
    sandbox.post(CONFIG_MAPS, config_map("b")).await.ok();
    let deleted = sandbox.delete(&format!("{CONFIG_MAPS}?labelSelector=x%3D1")).await.ok();
    assert_eq!(deleted["items"].as_array().map(Vec::len), Some(1));
    let left: Vec<_> =
        sandbox.objects("ConfigMap").iter().map(|map| map["metadata"]["name"].clone()).collect();
    assert_eq!(left, ["b"]);
}

#[tokio::test(start_paused = true)]
async fn the_priority_classes_of_the_system_stay() {
    let mut options = options();
    options.admission = crate::Admission::CLUSTER;
    let sandbox = Sandbox::new(options);
    let path = "/apis/scheduling.k8s.io/v1/priorityclasses";
    for (name, value) in [("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)]
    {
        // The server may have created it.
        sandbox.post(path, json!({"metadata": {"name": name}, "value": value})).await;
        let expected = format!(
            "priorityclasses.scheduling.k8s.io \"{name}\" is forbidden: this is a system priority class and cannot be deleted"
        );
        assert_eq!(sandbox.delete(&format!("{path}/{name}")).await.refused(403), expected);
    }
    sandbox.post(path, json!({"metadata": {"name": "mine"}, "value": 1})).await.ok();
    sandbox.delete(&format!("{path}/mine")).await.ok();
}
