//! Deletions in the background, and those that orphan.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::bed::{A_WHILE, Bed, controller, pod, policy, to, to_nobody};

pub(super) async fn a_controller_takes_the_pods_that_only_it_owns(bed: &Bed) -> usize {
    let (controllers, pods) = (bed.core("replicationcontrollers"), bed.core("pods"));
    let leaving = bed.create(&controllers, controller("leaving", 0, &[])).await;
    let staying = bed.create(&controllers, controller("staying", 0, &[])).await;
    bed.create(&pods, pod("of-one", &[to(&leaving)], &[])).await;
    bed.create(&pods, pod("of-both", &[to(&leaving), to(&staying)], &[])).await;
    bed.create(&pods, pod("of-none", &[], &[])).await;
    bed.delete(&format!("{controllers}/leaving"), policy("Background")).await;
    bed.gone(&format!("{pods}/of-one")).await;
    tokio::time::sleep(A_WHILE).await;
    let left = BTreeMap::from([("of-both".into(), vec!["staying".into()]), ("of-none".into(), vec![])]);
    assert_eq!(bed.owners(&pods).await, left);
    1
}

pub(super) async fn a_pod_whose_owner_never_existed_goes(bed: &Bed) -> usize {
    let pods = bed.core("pods");
    bed.create(&pods, pod("of-nobody", &[to_nobody("v1", "ReplicationController", 1)], &[])).await;
    bed.gone(&format!("{pods}/of-nobody")).await;
    1
}

/// The five ways in which upstream's stress test deletes its controllers: how one is called, the finalizers that it is
/// created with, and the options of its deletion.
fn ways() -> [(&'static str, &'static [&'static str], Value); 5] {
    [
        ("nil", &[], Value::Null),
        ("finalizer", &["orphan"], json!({})),
        ("overruled", &["orphan"], json!({"orphanDependents": false})),
        ("orphans", &[], json!({"orphanDependents": true})),
        ("policy", &[], json!({"propagationPolicy": "Orphan"})),
    ]
}

const GROUPS: usize = 10;
const PODS: usize = 3;

pub(super) async fn five_ways_to_delete_fifty_controllers(bed: &Bed) -> usize {
    let (controllers, pods) = (&bed.core("replicationcontrollers"), &bed.core("pods"));
    let created = (0..GROUPS).map(async |group| {
        for (name, finalizers, _) in ways() {
            let name = format!("{name}-{group}");
            let owner = bed.create(controllers, controller(&name, 0, finalizers)).await;
            for number in 0..PODS {
                bed.create(pods, pod(&format!("{name}-{number}"), &[to(&owner)], &[])).await;
            }
        }
    });
    futures::future::join_all(created).await;
    bed.until_upstream_knows().await;
    let deleted = (0..GROUPS).map(async |group| {
        for (name, _, options) in ways() {
            bed.delete(&format!("{controllers}/{name}-{group}"), options).await;
        }
    });
    futures::future::join_all(deleted).await;
    for group in 0..GROUPS {
        for (name, ..) in ways() {
            bed.gone(&format!("{controllers}/{name}-{group}")).await;
        }
        for number in 0..PODS {
            bed.gone(&format!("{pods}/overruled-{group}-{number}")).await;
        }
    }
    let left = bed.owners(pods).await;
    assert_eq!(left.len(), (ways().len() - 1) * GROUPS * PODS);
    assert!(left.values().all(Vec::is_empty), "{left:?}");
    GROUPS * PODS
}

pub(super) async fn an_orphaning_deletion_leaves_the_pods(bed: &Bed) -> usize {
    let (controllers, pods) = (bed.core("replicationcontrollers"), bed.core("pods"));
    let owner = bed.create(&controllers, controller("owner", 0, &[])).await;
    for number in 0..PODS {
        bed.create(&pods, pod(&format!("pod-{number}"), &[to(&owner)], &[])).await;
    }
    bed.until_upstream_knows().await;
    bed.delete(&format!("{controllers}/owner"), policy("Orphan")).await;
    bed.gone(&format!("{controllers}/owner")).await;
    tokio::time::sleep(A_WHILE).await;
    let left = bed.owners(&pods).await;
    assert!(left.len() == PODS && left.values().all(Vec::is_empty), "{left:?}");
    0
}

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";

/// Nobody can change the pod `stubborn`, as with a webhook that refuses it.
async fn refuse_changes_of_a_pod(bed: &Bed) {
    let constraints = json!({"resourceRules": [
        {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods"]}]});
    let condition = json!({"name": "here", "expression":
        format!("request.namespace == '{}' && request.name == 'stubborn'", bed.namespace)});
    let refusal = json!({"metadata": {"name": bed.namespace}, "spec": {
        "matchConstraints": constraints, "matchConditions": [condition],
        "validations": [{"expression": "false", "message": "it is not to change"}]}});
    bed.create(POLICIES, refusal).await;
    let binding = json!({"metadata": {"name": bed.namespace},
                         "spec": {"policyName": bed.namespace, "validationActions": ["Deny"]}});
    bed.create(BINDINGS, binding).await;
    let path = format!("{}/stubborn", bed.core("pods"));
    let label = json!({"metadata": {"labels": {"tried": "yes"}}});
    let is_refused = || async {
        windlass_testkit::user::send(&bed.client, http::Method::PATCH, &path, &label).await.is_err()
    };
    let end = tokio::time::Instant::now() + std::time::Duration::from_secs(60);
    while !is_refused().await {
        assert!(tokio::time::Instant::now() < end, "the policy has no effect");
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
}

pub(super) async fn a_dependent_that_cannot_change_keeps_the_orphaning_owner(bed: &Bed) -> usize {
    let (controllers, pods) = (bed.core("replicationcontrollers"), bed.core("pods"));
    let owner = bed.create(&controllers, controller("owner", 0, &[])).await;
    for name in ["one", "stubborn", "two"] {
        bed.create(&pods, pod(name, &[to(&owner)], &[])).await;
    }
    refuse_changes_of_a_pod(bed).await;
    bed.until_upstream_knows().await;
    bed.delete(&format!("{controllers}/owner"), policy("Orphan")).await;
    for name in ["one", "two"] {
        let is_orphan = |pod: &Option<Value>| {
            pod.as_ref().is_some_and(|pod| pod["metadata"]["ownerReferences"].is_null())
        };
        bed.eventually(&format!("{pods}/{name}"), "it is an orphan", is_orphan).await;
    }
    tokio::time::sleep(A_WHILE).await;
    let kept = bed.get(&format!("{controllers}/owner")).await.expect("the owner waits");
    assert_eq!(kept["metadata"]["finalizers"], json!(["orphan"]));
    bed.delete(&format!("{BINDINGS}/{}", bed.namespace), Value::Null).await;
    bed.gone(&format!("{controllers}/owner")).await;
    let left = bed.owners(&pods).await;
    assert!(left.len() == 3 && left.values().all(Vec::is_empty), "{left:?}");
    0
}
