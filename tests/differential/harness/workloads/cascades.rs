//! The garbage collector: cascades in the background and in the foreground, orphans, circles, references that lead nowhere.
//! `owner`, `dependent` and the like are ConfigMaps, which no other controller touches.

use http::Method;
use serde_json::{Value, json};

use super::super::declared::differs;
use super::super::objects::{Object, config_map, deployment, replication_controller};
use super::super::rows::UNKNOWN_KIND;
use super::super::stage::Stage;

super::workloads! {
    dependents_go_with_their_owner,
    dependents_of_an_orphaning_owner_stay,
    an_owner_in_the_foreground_waits_for_its_dependents,
    a_dependent_that_does_not_block_is_not_waited_for,
    a_dependent_with_two_owners_keeps_the_other,
    a_waiting_owner_leaves_a_dependent_to_a_solid_one,
    a_chain_of_owners_goes_in_the_background,
    a_chain_of_owners_goes_in_the_foreground,
    a_circle_goes_in_the_foreground,
    a_circle_without_an_end_stays,
    an_owner_that_never_existed,
    an_owner_of_a_kind_that_is_not_served: &[differs(
        &UNKNOWN_KIND,
        ["rest", "ConfigMap/of-both", "metadata.ownerReferences.ConfigMap/owner.*"],
        "*",
        "absent",
    )],
    an_owner_under_another_name,
    an_owner_that_lives_in_another_namespace,
    an_owner_created_again_under_its_name,
    a_foreground_deletion_becomes_an_orphaning_one,
    an_orphaning_deletion_becomes_a_background_one,
    a_dependent_created_while_its_owner_waits,
    a_reference_that_is_added_later,
    finalizers_of_the_collector_without_dependents,
    a_replication_controller_deleted_without_a_policy,
    a_rollout_goes_in_the_background,
    a_rollout_goes_in_the_foreground,
    the_replica_sets_of_an_orphaning_deployment_stay,
    cluster_scoped_owners,
}

const KIND: &str = "ConfigMap";

/// A finalizer that only the script removes.
const HELD: &str = "example.com/held";

/// kube-controller-manager may take its time.
const WAIT_SECONDS: u64 = 60;

/// A reference to an object that the server has shown.
fn to(owner: &Value) -> Value {
    json!({"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
           "uid": owner["metadata"]["uid"]})
}

fn blocking(owner: &Value) -> Value {
    let mut reference = to(owner);
    reference["blockOwnerDeletion"] = true.into();
    reference
}

fn owned(name: &str, owners: &[Value]) -> Object {
    config_map(name).metadata("ownerReferences", owners.into())
}

fn held(name: &str, owners: &[Value]) -> Object {
    owned(name, owners).metadata("finalizers", json!([HELD]))
}

fn is_gone(s: &Stage, names: &[&str]) -> bool {
    names.iter().all(|name| s.has_seen(KIND, name) && s.one(KIND, name).is_null())
}

async fn gone(s: &Stage, names: &[&str]) {
    s.until(&format!("{} are gone", names.join(", ")), WAIT_SECONDS, |s| is_gone(s, names)).await;
}

fn is_leaving(s: &Stage, name: &str) -> bool {
    s.one(KIND, name)["metadata"]["deletionTimestamp"].is_string()
}

/// The names of the owners of an object.
fn owners(s: &Stage, name: &str) -> Vec<String> {
    let object = s.one(KIND, name);
    let owners = object["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
    owners.iter().map(|owner| owner["name"].as_str().unwrap_or_default().to_owned()).collect()
}

async fn release(s: &Stage, name: &str) {
    s.patch(KIND, name, json!({"metadata": {"finalizers": null}})).await;
}

/// Both collectors know the objects after a while: what upstream's orphans before, it deletes.
async fn known(s: &Stage) {
    s.wait(2).await;
}

async fn dependents_go_with_their_owner(s: &Stage) {
    let owner = s.create(config_map("owner")).await;
    for name in ["one", "two", "three"] {
        s.create(owned(name, &[to(&owner)])).await;
    }
    s.create(config_map("other")).await;
    s.rest().await;
    s.delete(KIND, "owner", "Background").await;
    gone(s, &["owner", "one", "two", "three"]).await;
}

async fn dependents_of_an_orphaning_owner_stay(s: &Stage) {
    let owner = s.create(config_map("owner")).await;
    for name in ["one", "two"] {
        s.create(owned(name, &[blocking(&owner)])).await;
    }
    known(s).await;
    s.delete(KIND, "owner", "Orphan").await;
    gone(s, &["owner"]).await;
    s.wait(3).await;
}

async fn an_owner_in_the_foreground_waits_for_its_dependents(s: &Stage) {
    let owner = s.create(config_map("owner")).await;
    s.create(owned("free", &[blocking(&owner)])).await;
    s.create(held("held", &[blocking(&owner)])).await;
    known(s).await;
    s.delete(KIND, "owner", "Foreground").await;
    s.until("the dependents are deleted", WAIT_SECONDS, |s| is_gone(s, &["free"]) && is_leaving(s, "held"))
        .await;
    s.wait(3).await;
    release(s, "held").await;
    gone(s, &["owner", "held"]).await;
}

async fn a_dependent_that_does_not_block_is_not_waited_for(s: &Stage) {
    let owner = s.create(config_map("owner")).await;
    s.create(held("unset", &[to(&owner)])).await;
    let mut free = blocking(&owner);
    free["blockOwnerDeletion"] = false.into();
    s.create(held("free", &[free])).await;
    known(s).await;
    s.delete(KIND, "owner", "Foreground").await;
    gone(s, &["owner"]).await;
    for name in ["unset", "free"] {
        release(s, name).await;
    }
    gone(s, &["unset", "free"]).await;
}

async fn a_dependent_with_two_owners_keeps_the_other(s: &Stage) {
    let first = s.create(config_map("first")).await;
    let second = s.create(config_map("second")).await;
    s.create(owned("both", &[to(&first), to(&second)])).await;
    s.rest().await;
    s.delete(KIND, "first", "Background").await;
    s.until("one owner is left", WAIT_SECONDS, |s| owners(s, "both") == ["second"]).await;
    s.delete(KIND, "second", "Background").await;
    gone(s, &["both"]).await;
}

async fn a_waiting_owner_leaves_a_dependent_to_a_solid_one(s: &Stage) {
    let waiting = s.create(config_map("waiting")).await;
    let solid = s.create(config_map("solid")).await;
    s.create(owned("both", &[blocking(&waiting), to(&solid)])).await;
    known(s).await;
    s.delete(KIND, "waiting", "Foreground").await;
    gone(s, &["waiting"]).await;
}

async fn chain(s: &Stage) {
    let mut owner = s.create(config_map("a")).await;
    for name in ["b", "c", "d"] {
        owner = s.create(owned(name, &[blocking(&owner)])).await;
    }
    known(s).await;
}

async fn a_chain_of_owners_goes_in_the_background(s: &Stage) {
    chain(s).await;
    s.delete(KIND, "a", "Background").await;
    gone(s, &["a", "b", "c", "d"]).await;
}

async fn a_chain_of_owners_goes_in_the_foreground(s: &Stage) {
    chain(s).await;
    s.delete(KIND, "a", "Foreground").await;
    gone(s, &["a", "b", "c", "d"]).await;
}

async fn circle(s: &Stage) {
    let mut ring = Vec::new();
    for name in ["a", "b", "c"] {
        ring.push(s.create(config_map(name)).await);
    }
    for (at, name) in ["a", "b", "c"].iter().enumerate() {
        let owner = blocking(&ring[(at + 2) % 3]);
        s.patch(KIND, name, json!({"metadata": {"ownerReferences": [owner]}})).await;
    }
    known(s).await;
}

async fn a_circle_goes_in_the_foreground(s: &Stage) {
    circle(s).await;
    s.delete(KIND, "a", "Foreground").await;
    gone(s, &["a", "b", "c"]).await;
}

async fn a_circle_without_an_end_stays(s: &Stage) {
    circle(s).await;
    s.wait(3).await;
    s.delete(KIND, "b", "Background").await;
    gone(s, &["a", "b", "c"]).await;
}

async fn an_owner_that_never_existed(s: &Stage) {
    let owner = s.create(config_map("owner")).await;
    let mut invented = to(&owner);
    (invented["name"], invented["uid"]) = ("nobody".into(), "22222222-2222-4222-8222-222222222222".into());
    s.create(owned("of-nobody", std::slice::from_ref(&invented))).await;
    s.create(owned("of-both", &[to(&owner), invented])).await;
    gone(s, &["of-nobody"]).await;
    s.until("the reference is removed or stays", 5, |s| owners(s, "of-both") == ["owner"]).await;
}

async fn an_owner_of_a_kind_that_is_not_served(s: &Stage) {
    let unknown = json!({"apiVersion": "example.com/v1", "kind": "Unknown", "name": "u",
                         "uid": "33333333-3333-4333-8333-333333333333"});
    let owner = s.create(config_map("owner")).await;
    s.create(owned("of-unknown", std::slice::from_ref(&unknown))).await;
    s.create(owned("of-both", &[to(&owner), unknown])).await;
    s.wait(3).await;
    s.delete(KIND, "owner", "Background").await;
    s.wait(5).await;
}

async fn an_owner_under_another_name(s: &Stage) {
    let owner = s.create(config_map("owner")).await;
    let mut wrong = to(&owner);
    wrong["name"] = "elsewhere".into();
    s.create(owned("rightful", &[to(&owner)])).await;
    s.create(owned("wrong", &[wrong])).await;
    gone(s, &["wrong"]).await;
    s.wait(3).await;
}

async fn an_owner_that_lives_in_another_namespace(s: &Stage) {
    let beside = format!("{}-beside", s.namespace);
    s.call(Method::POST, "/api/v1/namespaces", &json!({"metadata": {"name": beside}})).await;
    let theirs = format!("/api/v1/namespaces/{beside}/configmaps");
    let owner = s.call(Method::POST, &theirs, &config_map("owner").0).await;
    s.act("ConfigMaps whose owner is in another namespace");
    s.wait(2).await;
    let local = s.create(config_map("local")).await;
    s.create(owned("astray", &[to(&owner)])).await;
    s.create(owned("kept", &[to(&owner), to(&local)])).await;
    gone(s, &["astray"]).await;
    s.wait(3).await;
}

async fn an_owner_created_again_under_its_name(s: &Stage) {
    let owner = s.create(config_map("owner")).await;
    s.create(owned("old", &[to(&owner)])).await;
    s.rest().await;
    s.delete(KIND, "owner", "Background").await;
    let owner = s.create(config_map("owner")).await;
    s.create(owned("new", &[to(&owner)])).await;
    gone(s, &["old"]).await;
    s.wait(3).await;
}

async fn a_foreground_deletion_becomes_an_orphaning_one(s: &Stage) {
    let owner = s.create(config_map("owner")).await;
    s.create(held("held", &[blocking(&owner)])).await;
    known(s).await;
    s.delete(KIND, "owner", "Foreground").await;
    s.until("its dependent is deleted", WAIT_SECONDS, |s| is_leaving(s, "held")).await;
    s.delete(KIND, "owner", "Orphan").await;
    gone(s, &["owner"]).await;
    release(s, "held").await;
    gone(s, &["held"]).await;
}

async fn an_orphaning_deletion_becomes_a_background_one(s: &Stage) {
    let owner = s.create(held("owner", &[])).await;
    s.create(owned("dependent", &[to(&owner)])).await;
    known(s).await;
    s.delete(KIND, "owner", "Orphan").await;
    s.until("it has no owner", WAIT_SECONDS, |s| owners(s, "dependent").is_empty()).await;
    s.delete(KIND, "owner", "Background").await;
    s.rest().await;
    release(s, "owner").await;
    gone(s, &["owner"]).await;
    s.wait(2).await;
}

async fn a_dependent_created_while_its_owner_waits(s: &Stage) {
    let owner = s.create(config_map("owner")).await;
    s.create(held("held", &[blocking(&owner)])).await;
    known(s).await;
    s.delete(KIND, "owner", "Foreground").await;
    s.until("its dependent is deleted", WAIT_SECONDS, |s| is_leaving(s, "held")).await;
    // Upstream finds it when the owner is looked at again, ours at once.
    s.create(owned("late", &[blocking(&owner)])).await;
    release(s, "held").await;
    gone(s, &["owner", "held", "late"]).await;
}

async fn a_reference_that_is_added_later(s: &Stage) {
    let owner = s.create(config_map("owner")).await;
    s.create(config_map("free")).await;
    s.rest().await;
    s.patch(KIND, "free", json!({"metadata": {"ownerReferences": [to(&owner)]}})).await;
    s.rest().await;
    s.delete(KIND, "owner", "Background").await;
    gone(s, &["owner", "free"]).await;
}

async fn finalizers_of_the_collector_without_dependents(s: &Stage) {
    for (name, finalizer) in [("orphan", "orphan"), ("foreground", "foregroundDeletion")] {
        s.create(config_map(name).metadata("finalizers", json!([finalizer]))).await;
    }
    s.rest().await;
    for name in ["orphan", "foreground"] {
        s.act(format!("delete {name} without options"));
        s.call(Method::DELETE, &format!("{}/{name}", s.path(KIND)), &Value::Null).await;
    }
    gone(s, &["orphan", "foreground"]).await;
}

async fn a_replication_controller_deleted_without_a_policy(s: &Stage) {
    s.create(replication_controller("rc").replicas(2)).await;
    s.come_up().await;
    s.act("delete it without options: its kind is orphaned by default");
    let path = format!("{}/rc", s.path("ReplicationController"));
    s.call(Method::DELETE, &path, &Value::Null).await;
    s.until("it is gone", WAIT_SECONDS, |s| s.one("ReplicationController", "rc").is_null()).await;
    s.wait(3).await;
}

/// Two ReplicaSets, one of them with pods.
async fn rolled_out(s: &Stage) {
    s.create(deployment("web").replicas(2)).await;
    s.come_up().await;
    s.image("web", "v2").await;
    s.come_up().await;
    known(s).await;
}

fn is_empty(s: &Stage) -> bool {
    ["Deployment", "ReplicaSet", "Pod"].iter().all(|kind| s.all(kind).is_empty())
}

async fn a_rollout_goes_in_the_background(s: &Stage) {
    rolled_out(s).await;
    s.delete("Deployment", "web", "Background").await;
    s.until("the pods end", WAIT_SECONDS, |s| s.active().is_empty()).await;
    s.end_terminating().await;
    s.until("all is gone", WAIT_SECONDS, is_empty).await;
}

async fn a_rollout_goes_in_the_foreground(s: &Stage) {
    rolled_out(s).await;
    s.delete("Deployment", "web", "Foreground").await;
    s.until("the pods end", WAIT_SECONDS, |s| s.active().is_empty()).await;
    s.end_terminating().await;
    s.until("all is gone", WAIT_SECONDS, is_empty).await;
}

async fn the_replica_sets_of_an_orphaning_deployment_stay(s: &Stage) {
    rolled_out(s).await;
    s.delete("Deployment", "web", "Orphan").await;
    s.until("it is gone", WAIT_SECONDS, |s| s.all("Deployment").is_empty()).await;
    s.wait(3).await;
}

async fn cluster_scoped_owners(s: &Stage) {
    // The namespace is the one cluster-scoped object that a script has for itself.
    let namespace = s.call(Method::GET, &format!("/api/v1/namespaces/{}", s.namespace), &Value::Null).await;
    let mut missing = to(&namespace);
    (missing["name"], missing["uid"]) = ("nobody".into(), "44444444-4444-4444-8444-444444444444".into());
    s.create(owned("of-the-namespace", &[to(&namespace)])).await;
    s.create(owned("of-nobody", &[missing])).await;
    gone(s, &["of-nobody"]).await;
    s.wait(3).await;
}
