//! Claims that stay, go with their pods, go with the StatefulSet, or are deleted by others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use windlass_apiserver::{FaultDecision, RequestInfo};
use windlass_testkit::cluster::{forbidden, inject_faults, is_request};

use super::*;

fn policy(when_deleted: &str, when_scaled: &str) -> Value {
    json!({"persistentVolumeClaimRetentionPolicy": {"whenDeleted": when_deleted, "whenScaled": when_scaled}})
}

#[tokio::test(start_paused = true)]
async fn the_retention_policy_says_which_claims_go() {
    let (all, lowest) = (vec!["data-db-0", "data-db-1", "data-db-2"], vec!["data-db-0"]);
    for (when_deleted, when_scaled, scaled, deleted) in [
        ("Retain", "Retain", &all, &all),
        ("Delete", "Retain", &all, &vec![]),
        ("Retain", "Delete", &lowest, &lowest),
        ("Delete", "Delete", &lowest, &vec![]),
    ] {
        for management in [json!({}), parallel()] {
            let cluster = cluster().await;
            let mut spec = policy(when_deleted, when_scaled);
            json_patch::merge(&mut spec, &management);
            let _daemon = rolled_out_with(&cluster, spec).await;
            scale(&cluster, 1).await;
            cluster.eventually(60, "scaled down", |c| is_complete(c) && pods(c).len() == 1).await;
            tokio::time::sleep(10 * S).await;
            assert_eq!(claim_names(&cluster), **scaled, "{when_deleted} {when_scaled}, scaled");
            delete(&cluster, &format!("{SETS}/db"), "Background").await;
            cluster.eventually(60, "all pods are gone", |c| pods(c).is_empty()).await;
            tokio::time::sleep(10 * S).await;
            assert_eq!(claim_names(&cluster), **deleted, "{when_deleted} {when_scaled}, deleted");
            let with_pod = told(&cluster, "Normal ClaimGoesWithPod: PersistentVolumeClaim data-db-");
            assert_eq!(with_pod, if when_scaled == "Delete" { 2 } else { 0 }, "said before data goes");
            assert_eq!(cluster.count("delete PersistentVolumeClaim"), 3 - deleted.len());
        }
    }
}

fn names(request: &RequestInfo) -> String {
    serde_json::from_slice::<Value>(&request.body).unwrap_or_default()["metadata"]["name"].to_string()
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_refused_does_not_hold_up_the_pods_of_its_batch() {
    let is_refused = Arc::new(AtomicBool::new(false));
    let refuses = is_refused.clone();
    let faults = inject_faults(move |request| {
        let is_second = is_request(request, "create", "Pod") && names(request).contains("db-1");
        if is_second && refuses.load(Ordering::SeqCst) {
            forbidden("not now")
        } else {
            FaultDecision::Proceed
        }
    });
    let cluster = Cluster::with_volumes(faults, |options| options).await;
    let mut spec = parallel();
    spec["replicas"] = 4.into();
    let _daemon = rolled_out_with(&cluster, spec).await;
    is_refused.store(true, Ordering::SeqCst);
    for name in ["db-1", "db-2", "db-3"] {
        kill(&cluster, &format!("{PODS}/{name}")).await;
    }
    tokio::time::sleep(30 * S).await;
    assert_eq!(pod_names(&cluster), ["db-0", "db-2"], "the batches are 0, 1 to 2, and 3 to 6");
    is_refused.store(false, Ordering::SeqCst);
    cluster.eventually(120, "all are back", |c| is_complete(c) && pods(c).len() == 4).await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_refused_does_not_hold_up_the_other_claims_of_its_pod() {
    let refused = |request: &RequestInfo| {
        let name = names(request);
        let is_one = name.contains("a-db-0") || name.contains("b-db-0");
        is_request(request, "create", "PersistentVolumeClaim") && is_one
    };
    let faults = inject_faults(
        move |request| {
            if refused(request) { forbidden("no room") } else { FaultDecision::Proceed }
        },
    );
    let cluster = Cluster::with_volumes(faults, |options| options).await;
    let _daemon = start(&cluster, 1);
    let claim = |name: &str| {
        json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"],
                                                    "resources": {"requests": {"storage": "1Gi"}}}})
    };
    create(&cluster, json!({"volumeClaimTemplates": [claim("a"), claim("b"), claim("c")]})).await;
    cluster.eventually(10, "the third claim is created", |c| claim_names(c) == ["c-db-0"]).await;
    cluster.eventually(10, "each refusal is told, and both for the pod", |c| {
        let of_claim = |name: &str| told(c, &format!("Warning FailedCreate: Create Claim {name} for Pod db-0"));
        let of_pod = "Warning FailedCreate: Create Pod db-0 in StatefulSet db failed error: [failed to create PVC a-db-0: ";
        of_claim("a-db-0") > 0 && of_claim("b-db-0") > 0 && told(c, of_pod) > 0
    }).await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_below_the_first_ordinal_is_saved_by_a_lower_start_and_the_event_says_so() {
    let cluster = cluster().await;
    let _daemon = rolled_out_with(&cluster, policy("Retain", "Delete")).await;
    cluster.call(Method::PATCH, &format!("{SETS}/db"), &json!({"spec": {"ordinals": {"start": 1}}})).await;
    cluster.eventually(60, "it is told", |c| {
        told(c, "Normal ClaimGoesWithPod: PersistentVolumeClaim data-db-0 will be deleted with Pod db-0, unless \
                 spec.ordinals.start falls to 0 before the pod is gone") == 1
    }).await;
}

#[tokio::test(start_paused = true)]
async fn replicas_that_rise_before_the_pod_is_gone_save_its_claim() {
    for management in [json!({}), parallel()] {
        let cluster = cluster().await;
        let mut spec = policy("Retain", "Delete");
        json_patch::merge(&mut spec, &management);
        let _daemon = rolled_out_with(&cluster, spec).await;
        let claim = uid_of(&cluster, "PersistentVolumeClaim", "data-db-2");
        scale(&cluster, 2).await;
        cluster.eventually(5, "it ends", |c| pods(c).get("db-2").is_some_and(is_deleting)).await;
        scale(&cluster, 3).await;
        rolled_out(&cluster).await;
        tokio::time::sleep(10 * S).await;
        let claims = by_name(&cluster, "PersistentVolumeClaim");
        assert_eq!(claims["data-db-2"]["metadata"]["uid"], claim, "{management}");
        assert!(!is_deleting(&claims["data-db-2"]));
        assert_eq!(claims["data-db-2"]["metadata"]["ownerReferences"].as_array().map_or(0, Vec::len), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_changes_reaches_the_claims_that_exist() {
    let cluster = cluster().await;
    let _daemon = rolled_out_with(&cluster, json!({})).await;
    let owned = |c: &Cluster| {
        let claims = by_name(c, "PersistentVolumeClaim");
        claims
            .values()
            .filter(|claim| claim["metadata"]["ownerReferences"][0]["kind"] == "StatefulSet")
            .count()
    };
    assert_eq!(owned(&cluster), 0);
    patch(&cluster, policy("Delete", "Retain")).await;
    cluster.eventually(2, "they go with it", |c| owned(c) == 3).await;
    patch(&cluster, policy("Retain", "Retain")).await;
    cluster.eventually(2, "they stay", |c| owned(c) == 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_deleted_under_a_pending_pod_comes_back_within_a_second() {
    let cluster = cluster().await;
    let _daemon = start(&cluster, 1);
    // No node has the label, so the pod stays Pending and its claim has no consumer.
    create(&cluster, json!({"template": {"spec": {"nodeSelector": {"disk": "fast"}}}})).await;
    cluster.eventually(5, "the pod is there", |c| pods(c).len() == 1).await;
    let first = uid_of(&cluster, "PersistentVolumeClaim", "data-db-0");
    delete(&cluster, &format!("{CLAIMS}/data-db-0"), "Background").await;
    let is_another = |c: &Cluster| {
        let now = uid_of(c, "PersistentVolumeClaim", "data-db-0");
        !now.is_null() && now != first
    };
    cluster.eventually(1, "there is another", is_another).await;
    let label = json!({"metadata": {"labels": {"disk": "fast"}}});
    cluster.call(Method::PATCH, "/api/v1/nodes/sandbox-node-2", &label).await;
    rolled_out(&cluster).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_created_only_once_its_claim_is_not_on_its_way_out() {
    let cluster = cluster().await;
    let _daemon = rolled_out_with(&cluster, json!({"replicas": 1})).await;
    // The claim ends with the pod that uses it, so that the next pod finds one that is being deleted.
    let finalizers = json!({"metadata": {"finalizers": ["example.com/backup"]}});
    cluster.call(Method::PATCH, &format!("{CLAIMS}/data-db-0"), &finalizers).await;
    delete(&cluster, &format!("{CLAIMS}/data-db-0"), "Background").await;
    kill(&cluster, &format!("{PODS}/db-0")).await;
    tokio::time::sleep(60 * S).await;
    assert_eq!(pod_names(&cluster), [""; 0]);
    let failed = "Warning FailedCreate: Create Pod db-0 in StatefulSet db failed error: pvc data-db-0 is being deleted";
    assert_eq!(told(&cluster, failed), 1);
    let none = json!({"metadata": {"finalizers": null}});
    cluster.call(Method::PATCH, &format!("{CLAIMS}/data-db-0"), &none).await;
    cluster.eventually(1, "the pod is created", |c| pods(c).len() == 1).await;
    rolled_out(&cluster).await;
}

/// The cache of claims may be behind that of pods, as it may upstream. No read precedes the creation where no policy deletes
/// claims: it would be a call for each pod of every rollout, and a claim may go in the moment after it.
#[tokio::test(start_paused = true)]
async fn a_pod_on_a_claim_whose_deletion_the_cache_does_not_show_yet_gets_another_claim() {
    let is_late = Arc::new(AtomicBool::new(false));
    let late = is_late.clone();
    let faults = inject_faults(move |request| match is_request(request, "watch", "PersistentVolumeClaim") {
        true if late.load(Ordering::SeqCst) => FaultDecision::Delay(10 * S),
        _ => FaultDecision::Proceed,
    });
    let cluster = Cluster::with_volumes(faults, |options| options).await;
    let _daemon = rolled_out_with(&cluster, json!({"replicas": 1})).await;
    let claim = |c: &Cluster| uid_of(c, "PersistentVolumeClaim", "data-db-0");
    let first = claim(&cluster);
    is_late.store(true, Ordering::SeqCst);
    cluster.sandbox.break_watches();
    delete(&cluster, &format!("{CLAIMS}/data-db-0"), "Background").await;
    kill(&cluster, &format!("{PODS}/db-0")).await;
    cluster
        .eventually(5, "a pod is created on the old claim", |c| pods(c).len() == 1 && claim(c) == first)
        .await;
    assert!(!pods(&cluster).values().any(is_ready));
    is_late.store(false, Ordering::SeqCst);
    cluster.eventually(30, "the pod has another claim", |c| !claim(c).is_null() && claim(c) != first).await;
    rolled_out(&cluster).await;
}

#[tokio::test(start_paused = true)]
async fn a_successor_of_the_name_does_not_start_on_claims_that_are_about_to_be_collected() {
    let cluster = cluster().await;
    let _daemon = rolled_out_with(&cluster, policy("Delete", "Retain")).await;
    let old: Vec<Value> = cluster
        .objects("PersistentVolumeClaim")
        .iter()
        .map(|claim| claim["metadata"]["uid"].clone())
        .collect();
    delete(&cluster, &format!("{SETS}/db"), "Background").await;
    create(&cluster, policy("Delete", "Retain")).await;
    let none_on_an_old_one = |c: &Cluster| {
        let claims = by_name(c, "PersistentVolumeClaim");
        for (name, pod) in pods(c) {
            let is_new = pod["metadata"]["ownerReferences"][0]["uid"] == db(c)["metadata"]["uid"];
            let claim = claims.get(&format!("data-{name}"));
            let is_old = claim.is_none_or(|claim| old.contains(&claim["metadata"]["uid"]));
            assert!(!(is_new && is_old), "{name} is on an old claim");
        }
    };
    watch(&cluster, is_complete, none_on_an_old_one).await;
    tokio::time::sleep(30 * S).await;
    assert!(is_complete(&cluster) && cluster.objects("PersistentVolumeClaim").len() == 3);
}

#[tokio::test(start_paused = true)]
async fn a_refused_claim_is_told_with_its_pod_and_tried_again() {
    let cluster = cluster().await;
    let quota = json!({"metadata": {"name": "few"}, "spec": {"hard": {"persistentvolumeclaims": "1"}}});
    cluster.call(Method::POST, "/api/v1/namespaces/shop/resourcequotas", &quota).await;
    let status =
        json!({"status": {"hard": {"persistentvolumeclaims": "1"}, "used": {"persistentvolumeclaims": "0"}}});
    cluster.call(Method::PATCH, "/api/v1/namespaces/shop/resourcequotas/few/status", &status).await;
    let _daemon = start(&cluster, 1);
    create(&cluster, json!({"replicas": 2})).await;
    tokio::time::sleep(30 * S).await;
    assert_eq!(
        (pod_names(&cluster), claim_names(&cluster)),
        (vec!["db-0".to_owned()], vec!["data-db-0".to_owned()])
    );
    assert!(
        told(
            &cluster,
            "Warning FailedCreate: Create Claim data-db-1 for Pod db-1 in StatefulSet db failed error:"
        ) > 0
    );
    assert!(told(&cluster, "Warning FailedCreate: Create Pod db-1 in StatefulSet db failed error:") > 0);
    kill(&cluster, "/api/v1/namespaces/shop/resourcequotas/few").await;
    rolled_out(&cluster).await;
}
