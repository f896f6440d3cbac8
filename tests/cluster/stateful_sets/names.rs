//! Pods of others with the names of ours, orphans, and names that are too long.

use windlass_apiserver::FaultDecision;
use windlass_testkit::cluster::{inject_faults, is_request};

use super::*;

fn pod(name: &str, labels: Value) -> Value {
    json!({"metadata": {"name": name, "labels": labels}, "spec": {"containers": [{"name": "c", "image": "db:v1"}]}})
}

#[tokio::test(start_paused = true)]
async fn a_foreign_pod_of_the_name_is_told_once_and_replaced_when_it_goes() {
    let cluster = cluster().await;
    cluster.call(Method::POST, PODS, &pod("db-1", json!({"app": "other"}))).await;
    let _daemon = start(&cluster, 1);
    create(&cluster, json!({})).await;
    tokio::time::sleep(600 * S).await;
    assert_eq!(pod_names(&cluster), ["db-0", "db-1"]);
    let failed = "Warning FailedCreate: Create Pod db-1 in StatefulSet db failed error: a pod of this name exists and \
                  belongs to no controller";
    assert_eq!(told(&cluster, failed), 1, "{:?}", events(&cluster));
    assert_eq!(pod_writes(&cluster), ["create db-0"]);
    kill(&cluster, &format!("{PODS}/db-1")).await;
    cluster.eventually(1, "its own is there", |c| pods(c).contains_key("db-1")).await;
    rolled_out(&cluster).await;
    // Another one is told again.
    scale(&cluster, 1).await;
    cluster.eventually(30, "scaled down", |c| pods(c).len() == 1).await;
    cluster.call(Method::POST, PODS, &pod("db-1", json!({"app": "other"}))).await;
    scale(&cluster, 2).await;
    cluster.eventually(5, "told again", |c| told(c, failed) == 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_matching_orphan_of_the_name_is_adopted_and_one_of_another_name_is_not() {
    let cluster = cluster().await;
    for name in ["db-1", "db-01", "db-x", "cache-0"] {
        cluster.call(Method::POST, PODS, &pod(name, json!({"app": "db"}))).await;
    }
    let _daemon = start(&cluster, 1);
    create(&cluster, json!({})).await;
    let owner = |c: &Cluster, name: &str| pods(c)[name]["metadata"]["ownerReferences"][0]["name"].clone();
    cluster.eventually(5, "it is adopted", |c| owner(c, "db-1") == "db").await;
    for name in ["db-01", "db-x", "cache-0"] {
        assert_eq!(owner(&cluster, name), Value::Null, "{name}");
    }
    let label = json!({"metadata": {"labels": {"app": "debug"}}});
    cluster.call(Method::PATCH, &format!("{PODS}/db-1"), &label).await;
    cluster.eventually(5, "it is released", |c| owner(c, "db-1") == Value::Null).await;
    let back = json!({"metadata": {"labels": {"app": "db"}}});
    cluster.call(Method::PATCH, &format!("{PODS}/db-1"), &back).await;
    cluster.eventually(5, "it is adopted again", |c| owner(c, "db-1") == "db").await;
    let labels = |c: &Cluster| pods(c)["db-1"]["metadata"]["labels"].clone();
    cluster.eventually(5, "it is labelled", |c| labels(c)["apps.kubernetes.io/pod-index"] == "1").await;
}

#[tokio::test(start_paused = true)]
async fn a_set_that_is_deleted_during_an_adoption_adopts_no_more() {
    let faults = inject_faults(|request| match is_request(request, "patch", "Pod") {
        true => FaultDecision::Delay(3 * S),
        false => FaultDecision::Proceed,
    });
    let cluster = Cluster::with_volumes(faults, |options| options).await;
    for name in ["db-1", "db-2"] {
        cluster.call(Method::POST, PODS, &pod(name, json!({"app": "db"}))).await;
    }
    let _daemon = start(&cluster, 1);
    create(&cluster, json!({})).await;
    tokio::time::sleep(S).await;
    delete(&cluster, &format!("{SETS}/db"), "Orphan").await;
    tokio::time::sleep(20 * S).await;
    assert_eq!(cluster.count("patch Pod"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_too_long_gets_one_event_and_a_condition() {
    let cluster = cluster().await;
    let _daemon = start(&cluster, 1);
    let mut set = stateful_set(json!({}));
    let name = "d".repeat(60);
    set["metadata"]["name"] = json!(name);
    cluster.call(Method::POST, SETS, &set).await;
    tokio::time::sleep(600 * S).await;
    assert_eq!((pods(&cluster).len(), cluster.count("create Pod")), (0, 0));
    let beginning =
        "Warning FailedCreate: Pods cannot be created: the name of the StatefulSet has 60 characters";
    assert_eq!((told(&cluster, beginning), told(&cluster, "")), (1, 1), "{:?}", events(&cluster));
    let set = by_name(&cluster, "StatefulSet").remove(&name).unwrap();
    let condition = &set["status"]["conditions"][0];
    assert_eq!((&condition["type"], &condition["reason"]), (&json!("ReplicaFailure"), &json!("NameTooLong")));
    assert_eq!(set["status"]["observedGeneration"], 1);
    let before = cluster.writes();
    tokio::time::sleep(600 * S).await;
    assert_eq!(cluster.writes(), before);
}

#[tokio::test(start_paused = true)]
async fn revisions_that_a_user_deletes_come_back_at_once() {
    let cluster = cluster().await;
    let _daemon = rolled_out_with(&cluster, json!({})).await;
    tokio::time::sleep(10 * S).await;
    let revisions = "/apis/apps/v1/namespaces/shop/controllerrevisions";
    cluster.call(Method::DELETE, revisions, &Value::Null).await;
    cluster
        .eventually(5, "the revision of the template is back", |c| c.objects("ControllerRevision").len() == 1)
        .await;
}
