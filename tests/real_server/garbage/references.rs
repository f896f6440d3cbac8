//! References to what does not exist where they look for it.

use std::time::Duration;

use serde_json::{Value, json};

use super::bed::{A_WHILE, Bed, core, map, to, to_nobody};

const GOOD: usize = 10;
const UNKNOWN: usize = 10;
const BAD: usize = 5;
const UNKNOWN_KINDS: usize = 25;

/// A reference with the UID of the owner, and a kind that it is not of.
fn of_a_wrong_kind(owner: &Value) -> Value {
    let mut wrong = to(owner);
    wrong["kind"] = "Secret".into();
    wrong
}

/// The namespace of those that refer across.
fn strangers(bed: &Bed) -> String {
    core(&format!("{}-strangers", bed.namespace), "secrets")
}

fn secrets(bed: &Bed) -> String {
    bed.core("secrets")
}

/// Objects that exist before the collector starts.
pub(super) async fn refer_across_namespaces(bed: &Bed) {
    bed.create_namespace(&format!("{}-strangers", bed.namespace)).await;
    let parent = bed.create(&bed.core("configmaps"), map("parent", &[])).await;
    for number in 0..GOOD {
        bed.create(&secrets(bed), map(&format!("good-{number}"), &[to(&parent)])).await;
    }
    let mut many: Vec<Value> =
        (0..UNKNOWN_KINDS).map(|number| to_nobody("v1", &format!("Unknown{number}"), number)).collect();
    many.push(of_a_wrong_kind(&parent));
    for number in 0..UNKNOWN {
        bed.create(&strangers(bed), map(&format!("unknown-{number}"), &many)).await;
    }
    for number in 0..BAD {
        bed.create(&strangers(bed), map(&format!("bad-{number}"), &[of_a_wrong_kind(&parent)])).await;
    }
}

pub(super) async fn references_across_namespaces_harm_no_rightful_dependent(bed: &Bed) -> usize {
    for number in 0..BAD {
        bed.gone(&format!("{}/bad-{number}", strangers(bed))).await;
    }
    let parent = bed.get(&format!("{}/parent", bed.core("configmaps"))).await.unwrap();
    bed.create(&strangers(bed), map("later", &[of_a_wrong_kind(&parent)])).await;
    bed.gone_within(Duration::from_secs(10), &format!("{}/later", strangers(bed))).await;
    tokio::time::sleep(A_WHILE).await;
    assert_eq!(bed.list(&secrets(bed)).await.len(), GOOD);
    assert_eq!(bed.list(&strangers(bed)).await.len(), UNKNOWN);
    BAD + 1
}

pub(super) async fn only_a_missing_cluster_scoped_owner_is_absent(bed: &Bed) -> usize {
    let spec =
        json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}});
    let volume = json!({"metadata": {"name": bed.namespace}, "spec": spec});
    let volume = bed.create("/api/v1/persistentvolumes", volume).await;
    let maps = bed.core("configmaps");
    let missing = to_nobody("v1", "PersistentVolume", 3);
    let unknown = to_nobody("v1", "UnknownKind", 3);
    for (name, owner) in [("known", to(&volume)), ("missing", missing), ("unknown", unknown)] {
        bed.create(&maps, map(name, &[owner])).await;
    }
    bed.gone(&format!("{maps}/missing")).await;
    bed.stays(&[format!("{maps}/known"), format!("{maps}/unknown")]).await;
    1
}

/// How many owners the object has that are gone. Nobody gives an object so many; nothing keeps anybody from it either.
const OWNERS: usize = 1000;

pub(super) async fn an_object_with_a_thousand_owners_loses_those_that_are_gone(bed: &Bed) -> usize {
    let (maps, secrets) = (bed.core("configmaps"), secrets(bed));
    let keeper = bed.create(&maps, map("keeper", &[])).await;
    let mut owners: Vec<Value> = (0..OWNERS).map(|number| to_nobody("v1", "ConfigMap", number)).collect();
    owners.insert(OWNERS / 2, to(&keeper));
    bed.create(&secrets, map("of-many", &owners)).await;
    let is_free = |secret: &Option<Value>| {
        secret.as_ref().is_some_and(|secret| secret["metadata"]["ownerReferences"] == json!([to(&keeper)]))
    };
    bed.eventually(&format!("{secrets}/of-many"), "it has one owner", is_free).await;
    0
}
