//! Deletions in the foreground.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::bed::{Bed, blocking, controller, pod, policy, to};

/// Keeps what has it.
const KEEP: [&str; 1] = ["example.com/keep"];

fn without_finalizers() -> Value {
    json!({"metadata": {"finalizers": null}})
}

pub(super) async fn a_solid_owner_keeps_its_pod_and_no_waiting_owner(bed: &Bed) -> usize {
    let (controllers, pods) = (bed.core("replicationcontrollers"), bed.core("pods"));
    let solid = bed.create(&controllers, controller("solid", 0, &[])).await;
    let waiting = bed.create(&controllers, controller("waiting", 0, &[])).await;
    bed.create(&pods, pod("shared", &[blocking(&waiting), to(&solid)], &[])).await;
    bed.until_upstream_knows().await;
    bed.delete(&format!("{controllers}/waiting"), policy("Foreground")).await;
    bed.gone(&format!("{controllers}/waiting")).await;
    assert_eq!(bed.owners(&pods).await, BTreeMap::from([("shared".into(), vec!["solid".into()])]));
    0
}

pub(super) async fn references_that_do_not_block_are_not_waited_for(bed: &Bed) -> usize {
    let (controllers, pods) = (bed.core("replicationcontrollers"), bed.core("pods"));
    let owner = bed.create(&controllers, controller("lenient", 0, &[])).await;
    bed.create(&pods, pod("unset", &[to(&owner)], &KEEP)).await;
    let mut free = blocking(&owner);
    free["blockOwnerDeletion"] = false.into();
    bed.create(&pods, pod("false", &[free], &KEEP)).await;
    bed.until_upstream_knows().await;
    bed.delete(&format!("{controllers}/lenient"), policy("Foreground")).await;
    bed.gone(&format!("{controllers}/lenient")).await;
    for name in ["unset", "false"] {
        let is_terminating = |pod: &Option<Value>| {
            pod.as_ref().is_some_and(|pod| pod["metadata"]["deletionTimestamp"].is_string())
        };
        bed.eventually(&format!("{pods}/{name}"), "it is terminating", is_terminating).await;
    }
    2
}

pub(super) async fn a_reference_that_blocks_is_waited_for(bed: &Bed) -> usize {
    let (controllers, pods) = (bed.core("replicationcontrollers"), bed.core("pods"));
    let owner = bed.create(&controllers, controller("strict", 0, &[])).await;
    bed.create(&pods, pod("held", &[blocking(&owner)], &KEEP)).await;
    bed.until_upstream_knows().await;
    bed.delete(&format!("{controllers}/strict"), policy("Foreground")).await;
    // Upstream's test looks after 15 s.
    for _ in 0..3 {
        bed.stays(&[format!("{controllers}/strict"), format!("{pods}/held")]).await;
    }
    bed.patch(&format!("{pods}/held"), without_finalizers()).await;
    bed.gone(&format!("{controllers}/strict")).await;
    assert!(bed.get(&format!("{pods}/held")).await.is_none(), "it goes before its owner");
    1
}

pub(super) async fn a_pod_can_be_deleted_twice_in_the_foreground(bed: &Bed) -> usize {
    let pods = bed.core("pods");
    let path = format!("{pods}/twice");
    bed.create(&pods, pod("twice", &[], &KEEP)).await;
    for _ in 0..2 {
        bed.delete(&path, policy("Foreground")).await;
        let is_left = |pod: &Option<Value>| {
            pod.as_ref().is_some_and(|pod| pod["metadata"]["finalizers"] == json!(KEEP))
        };
        bed.eventually(&path, "only the foreign finalizer is left", is_left).await;
    }
    bed.patch(&path, without_finalizers()).await;
    bed.gone(&path).await;
    0
}

pub(super) async fn three_pods_in_a_circle_go(bed: &Bed) -> usize {
    let (pods, names) = (bed.core("pods"), ["a", "b", "c"]);
    let mut ring = Vec::new();
    for name in names {
        ring.push(bed.create(&pods, pod(name, &[], &[])).await);
    }
    for (at, name) in names.iter().enumerate() {
        let owner = json!({"metadata": {"ownerReferences": [blocking(&ring[(at + 2) % 3])]}});
        bed.patch(&format!("{pods}/{name}"), owner).await;
    }
    bed.until_upstream_knows().await;
    bed.delete(&format!("{pods}/a"), policy("Foreground")).await;
    for name in names {
        bed.gone(&format!("{pods}/{name}")).await;
    }
    2
}
