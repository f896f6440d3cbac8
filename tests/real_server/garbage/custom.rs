//! Custom resources, as owners and as dependents.

use serde_json::{Value, json};

use super::bed::{A_WHILE, Bed, CRDS, blocking, controller, core, map, pod, policy, to};

/// A kind with this scope and these served versions, of which the last is stored. With `conversion`, one that nobody
/// serves.
pub(super) fn definition(group: &str, versions: &[&str], has_conversion: bool) -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let stored = versions.len() - 1;
    let version = |(at, name): (usize, &&str)| json!({"name": name, "served": true, "storage": at == stored, "schema": schema});
    let mut spec = json!({
        "group": group, "scope": "Namespaced",
        "versions": versions.iter().enumerate().map(version).collect::<Vec<_>>(),
        "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
    });
    if has_conversion {
        spec["conversion"] = json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"],
            "clientConfig": {"service": {"name": "nobody", "namespace": "default"}}}});
    }
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
           "metadata": {"name": format!("things.{group}")}, "spec": spec})
}

pub(super) fn thing(group: &str, version: &str, name: &str, owners: &[Value]) -> Value {
    json!({"apiVersion": format!("{group}/{version}"), "kind": "Thing",
           "metadata": {"name": name, "ownerReferences": owners}})
}

fn things(bed: &Bed, group: &str) -> String {
    format!("/apis/{group}/v1/namespaces/{}/things", bed.namespace)
}

pub(super) async fn custom_resources_own_and_are_owned(bed: &Bed) -> usize {
    let (group, maps) = ("mixed.example.com", bed.core("configmaps"));
    let things = things(bed, group);
    bed.create(CRDS, definition(group, &["v1"], false)).await;
    let owner = bed.create(&things, thing(group, "v1", "owner", &[])).await;
    bed.create(&things, thing(group, "v1", "dependent", &[blocking(&owner)])).await;
    bed.create(&maps, map("dependent", &[blocking(&owner)])).await;
    bed.until_the_kind_is_known().await;
    bed.delete(&format!("{things}/owner"), policy("Foreground")).await;
    bed.gone(&format!("{things}/owner")).await;
    for path in [format!("{things}/dependent"), format!("{maps}/dependent")] {
        assert!(bed.get(&path).await.is_none(), "{path}");
    }
    let owner = bed.create(&maps, map("owner", &[])).await;
    bed.create(&things, thing(group, "v1", "of-map", &[blocking(&owner)])).await;
    bed.until_upstream_knows().await;
    bed.delete(&format!("{maps}/owner"), policy("Foreground")).await;
    bed.gone(&format!("{maps}/owner")).await;
    assert!(bed.get(&format!("{things}/of-map")).await.is_none(), "it goes before its owner");
    3
}

pub(super) async fn custom_resources_cascade_and_are_orphaned(bed: &Bed) -> usize {
    let group = "policies.example.com";
    let things = things(bed, group);
    bed.create(CRDS, definition(group, &["v1"], false)).await;
    for name in ["leaving", "orphaning"] {
        let owner = bed.create(&things, thing(group, "v1", name, &[])).await;
        bed.create(&things, thing(group, "v1", &format!("of-{name}"), &[to(&owner)])).await;
    }
    bed.until_the_kind_is_known().await;
    bed.delete(&format!("{things}/leaving"), policy("Background")).await;
    bed.delete(&format!("{things}/orphaning"), policy("Orphan")).await;
    bed.gone(&format!("{things}/of-leaving")).await;
    bed.gone(&format!("{things}/orphaning")).await;
    tokio::time::sleep(A_WHILE).await;
    assert_eq!(bed.owners(&things).await, [("of-orphaning".to_owned(), vec![])].into());
    1
}

/// Twice under one name: the second kind is another.
pub(super) async fn a_deleted_definition_takes_what_its_objects_own(bed: &Bed) -> usize {
    let (group, maps) = ("twice.example.com", bed.core("configmaps"));
    let things = things(bed, group);
    for round in ["first", "second"] {
        bed.create(CRDS, definition(group, &["v1"], false)).await;
        let owner = bed.create(&things, thing(group, "v1", "owner", &[])).await;
        bed.create(&maps, map(round, &[to(&owner)])).await;
        bed.until_the_kind_is_known().await;
        bed.delete(&format!("{CRDS}/things.{group}"), Value::Null).await;
        bed.gone(&format!("{CRDS}/things.{group}")).await;
        bed.gone(&format!("{maps}/{round}")).await;
    }
    2
}

const BROKEN: &str = "broken.example.com";

/// Before the collector starts: a kind that no list can show, since its stored objects cannot be converted.
pub(super) async fn break_a_kind(bed: &Bed) {
    bed.create(CRDS, definition(BROKEN, &["v1", "v1beta1"], true)).await;
    let things = format!("/apis/{BROKEN}/v1beta1/namespaces/default/things");
    bed.create(&things, thing(BROKEN, "v1beta1", "t", &[])).await;
}

pub(super) async fn a_kind_that_cannot_be_converted_keeps_no_other_from_going(bed: &Bed) -> usize {
    let list =
        format!("{}?limit=1", core("default", "things").replace("/api/v1", "/apis/broken.example.com/v1"));
    let answer =
        windlass_testkit::user::send(&bed.client, http::Method::GET, &list, &Value::Null).await.unwrap_err();
    assert!(answer.to_string().contains("conversion webhook"), "the kind can be listed: {answer}");
    let (controllers, pods) = (bed.core("replicationcontrollers"), bed.core("pods"));
    let owner = bed.create(&controllers, controller("owner", 0, &[])).await;
    bed.create(&pods, pod("pod", &[to(&owner)], &[])).await;
    bed.delete(&format!("{controllers}/owner"), policy("Background")).await;
    bed.gone(&format!("{pods}/pod")).await;
    1
}
