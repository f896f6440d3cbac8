//! References that disagree with the object whose UID they carry, or with each other: a table, played once with the
//! owners seen before their dependents and once after them.

use std::sync::atomic::{AtomicBool, Ordering};

use http::Method;
use serde_json::{Value, json};
use windlass_testkit::controllers::Side;
use windlass_testkit::user::send;

use super::bed::{Bed, CRDS, core, map, policy, to, to_nobody};
use super::custom::{definition, thing};

const GROUP: &str = "versions.example.com";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";

#[derive(Clone, Copy, PartialEq)]
enum Where {
    /// A Secret.
    InTheNamespace,
    /// A ClusterRole.
    InTheCluster,
}

#[derive(Clone, Copy, PartialEq)]
enum End {
    Stays,
    Goes,
    /// kube-controller-manager never asks for what is not served. Windlass asks in a version that is.
    GoesButNotUpstream,
}

use End::{Goes, GoesButNotUpstream, Stays};
use Where::{InTheCluster, InTheNamespace};

type Case = (&'static str, Where, Value, End);

/// The dependents in the order of their creation, each with its reference and its end.
fn table(role: &Value, here: &Value, elsewhere: &Value, custom: &Value, recreated: &Value) -> Vec<Case> {
    let with = |owner: Value, field: &str, value: &str| {
        let mut reference = owner;
        reference[field] = value.into();
        reference
    };
    let (served, other) = (&*format!("{GROUP}/v1"), &*format!("{GROUP}/v1beta1"));
    let not_served = &*format!("{GROUP}/v1alpha1");
    let missing = |version: &str, number| to_nobody(version, "Thing", number);
    let missing_map = |number| to_nobody("v1", "ConfigMap", number);
    vec![
        ("its owner is in the cluster", InTheNamespace, to(role), Stays),
        ("its owner is in another namespace", InTheNamespace, to(elsewhere), Goes),
        ("it is in the cluster and its owner is not", InTheCluster, to(here), Stays),
        (
            "its version is not the preferred one",
            InTheNamespace,
            with(to(custom), "apiVersion", other),
            Stays,
        ),
        ("its version is not served", InTheNamespace, with(to(custom), "apiVersion", not_served), Stays),
        ("missing, not served first", InTheNamespace, missing(not_served, 1), GoesButNotUpstream),
        ("missing, served second", InTheNamespace, missing(served, 1), Goes),
        ("missing, served first", InTheNamespace, missing(served, 2), Goes),
        ("missing, not served second", InTheNamespace, missing(not_served, 2), GoesButNotUpstream),
        ("wrong kind, before a rightful one", InTheNamespace, with(to(here), "kind", "Secret"), Goes),
        ("rightful", InTheNamespace, to(here), Stays),
        ("wrong kind, after a rightful one", InTheNamespace, with(to(here), "kind", "Secret"), Goes),
        ("wrong version", InTheNamespace, with(to(here), "apiVersion", "v9"), Stays),
        ("wrong name", InTheNamespace, with(to(here), "name", "nobody"), Goes),
        ("missing, cluster-scoped first", InTheCluster, missing_map(3), Stays),
        ("missing, namespaced second", InTheNamespace, missing_map(3), Goes),
        ("missing, namespaced first", InTheNamespace, missing_map(4), Goes),
        ("missing, cluster-scoped second", InTheCluster, missing_map(4), Stays),
        ("its owner was created again", InTheNamespace, to(recreated), Goes),
    ]
}

pub(super) async fn references_that_disagree_end_by_what_they_claim(bed: &Bed) -> usize {
    let elsewhere = format!("{}-elsewhere", bed.namespace);
    bed.create_namespace(&elsewhere).await;
    bed.create(CRDS, definition(GROUP, &["v1beta1", "v1"], false)).await;
    let things = format!("/apis/{GROUP}/v1/namespaces/{}/things", bed.namespace);
    let custom = bed.create(&things, thing(GROUP, "v1", "owner", &[])).await;
    bed.until_the_kind_is_known().await;
    let role = bed.create(ROLES, map(&format!("{}-owner", bed.namespace), &[])).await;
    let maps = bed.core("configmaps");
    let recreated = bed.create(&maps, map("recreated", &[])).await;
    bed.delete(&format!("{maps}/recreated"), policy("Background")).await;
    bed.create(&maps, map("recreated", &[])).await;
    let here = bed.create(&maps, map("owner", &[])).await;
    let other = bed.create(&core(&elsewhere, "configmaps"), map("other", &[])).await;

    let mut ends = Vec::new();
    for (at, (what, place, reference, end)) in
        table(&role, &here, &other, &custom, &recreated).into_iter().enumerate()
    {
        let (collection, name) = match place {
            InTheNamespace => (bed.core("secrets"), format!("child-{at}")),
            InTheCluster => (ROLES.to_owned(), format!("{}-child-{at}", bed.namespace)),
        };
        bed.create(&collection, map(&name, &[reference])).await;
        let goes = end == Goes || end == GoesButNotUpstream && bed.side == Side::Windlass;
        ends.push((what, format!("{collection}/{name}"), goes));
    }
    for (_, path, _) in ends.iter().filter(|(.., goes)| *goes) {
        bed.gone(path).await;
    }
    tokio::time::sleep(super::bed::A_WHILE).await;
    for (what, path, goes) in &ends {
        assert_eq!(bed.get(path).await.is_none(), *goes, "{what}: {path}");
    }
    assert!(bed.get(&format!("{}/other", core(&elsewhere, "configmaps"))).await.is_some());
    let in_the_cluster = format!("{}-child-2", bed.namespace);
    is_reported(bed, &core("default", "events"), &in_the_cluster).await;
    // Before the owner is seen in another namespace, a dependent that has none in its own is gone.
    if !bed.has_late_owners {
        is_reported(bed, &bed.core("events"), "child-1").await;
    }
    ends.iter().filter(|(.., goes)| *goes).count()
}

/// Waits for the event that the owner of this object is in another namespace.
async fn is_reported(bed: &Bed, events: &str, name: &str) {
    let is_told = |events: &Option<Value>| {
        let events = events.as_ref().and_then(|list| list["items"].as_array());
        events.into_iter().flatten().any(|event| {
            event["reason"] == "OwnerRefInvalidNamespace" && event["involvedObject"]["name"] == name
        })
    };
    bed.eventually(events, &format!("an event about {name}"), is_told).await;
}

/// Between the read and the deletion of such an object it has always changed.
pub(super) async fn a_dependent_that_changes_all_the_time_goes(bed: &Bed) -> usize {
    let maps = bed.core("configmaps");
    let owner = bed.create(&maps, map("owner", &[])).await;
    bed.create(&maps, map("busy", &[to(&owner)])).await;
    let busy = format!("{maps}/busy");
    let is_over = AtomicBool::new(false);
    let change = async {
        for number in 0.. {
            let body = json!({"metadata": {"annotations": {"number": number.to_string()}}});
            if send(&bed.client, Method::PATCH, &busy, &body).await.is_err()
                || is_over.load(Ordering::Relaxed)
            {
                return;
            }
        }
    };
    let delete = async {
        bed.delete(&format!("{maps}/owner"), policy("Background")).await;
        bed.gone(&busy).await;
        is_over.store(true, Ordering::Relaxed);
    };
    tokio::join!(change, delete);
    1
}
