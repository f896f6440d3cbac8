//! The demands of upstream's end-to-end tests, on a control plane with the controllers of workloads and with simulated
//! nodes. Those are the same whichever collector is judged.

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use windlass_testkit::apiserver::{ApiServer, TOKEN, on_a_real_server, run_nodes};
use windlass_testkit::controllers::Side;
use windlass_testkit::process::{Process, windlass};

use super::bed::{A_WHILE, Bed, controller, policy, to};
use super::{
    COLLECTOR, CONTROLLER, Situation, Watches, beds, cascades, end_to_end, foreground, judge, namespaces,
    situations,
};

fn all() -> Vec<Situation> {
    situations![
        end_to_end::a_deployment_takes_its_replica_set_and_pods
        end_to_end::an_orphaned_replica_set_stays_with_its_pods
        end_to_end::a_controller_takes_its_running_pods
        end_to_end::a_controller_deleted_without_options_leaves_its_pods
        end_to_end::an_orphaning_deletion_leaves_running_pods
        end_to_end::the_pods_of_a_controller_go_before_it
        end_to_end::half_of_the_pods_have_another_controller
        foreground::three_pods_in_a_circle_go
        cascades::a_pod_whose_owner_never_existed_goes
        namespaces::the_conditions_are_the_five_of_upstream
        namespaces::a_namespace_ends_its_running_pods
        namespaces::a_namespace_ends_its_services
        namespaces::a_hundred_namespaces_end
        namespaces::pods_end_before_anything_else
    ]
}

pub(super) fn play(side: Side) {
    on_a_real_server(async |folder| {
        let server = ApiServer::start_with(folder, &[COLLECTOR]).await;
        let client = server.client().await;
        let workloads = format!("--kubeconfig={}", server.kubeconfig(TOKEN).display());
        // It and the collector, which has the same program on one side, share no Lease.
        let flags = [&workloads, "--leader-elect=false", "--secure-port=0", "--kube-api-qps=-1"];
        let _workloads = Process::start(&windlass(), &flags, &server.file("workloads.log"));
        let end = CancellationToken::new();
        run_nodes(&server, &end).await;
        let situations = all();
        let beds = beds(side, Watches::Cached, &client, &situations).await;
        let (config, log) = (server.kubeconfig(COLLECTOR.token), server.file("controllers.log"));
        let _controllers =
            side.start(folder, &config, &format!("{CONTROLLER},namespace-controller"), &[], &log);
        judge(side, &server, COLLECTOR, beds, &situations, &log).await;
        end.cancel();
    });
}

fn deployments(bed: &Bed) -> String {
    format!("/apis/apps/v1/namespaces/{}/deployments", bed.namespace)
}

fn replica_sets(bed: &Bed) -> String {
    format!("/apis/apps/v1/namespaces/{}/replicasets", bed.namespace)
}

async fn deploy(bed: &Bed) {
    let body = json!({"metadata": {"name": "web"}, "spec": {
        "replicas": 2, "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}},
                     "spec": {"containers": [{"name": "c", "image": "app"}]}}}});
    bed.create(&deployments(bed), body).await;
    are_available(bed, &format!("{}/web", deployments(bed)), 2).await;
    bed.until_upstream_knows().await;
}

async fn are_available(bed: &Bed, path: &str, count: i32) {
    let are = |object: &Option<Value>| {
        object.as_ref().is_some_and(|object| object["status"]["availableReplicas"] == count)
    };
    bed.eventually(path, "its pods are available", are).await;
}

/// Creates a ReplicationController and waits for its pods; its path.
async fn control(bed: &Bed, name: &str, replicas: i32) -> String {
    let path = format!("{}/{name}", bed.core("replicationcontrollers"));
    bed.create(&bed.core("replicationcontrollers"), controller(name, replicas, &[])).await;
    are_available(bed, &path, replicas).await;
    bed.until_upstream_knows().await;
    path
}

async fn are_gone(bed: &Bed, collection: &str) {
    let are = |list: &Option<Value>| {
        list.as_ref().is_some_and(|list| list["items"].as_array().is_some_and(Vec::is_empty))
    };
    bed.eventually(collection, "it is empty", are).await;
}

async fn are_orphans(bed: &Bed, collection: &str, count: usize) {
    tokio::time::sleep(A_WHILE).await;
    let left = bed.owners(collection).await;
    assert!(left.len() == count && left.values().all(Vec::is_empty), "{left:?}");
}

pub(super) async fn a_deployment_takes_its_replica_set_and_pods(bed: &Bed) -> usize {
    deploy(bed).await;
    bed.delete(&format!("{}/web", deployments(bed)), policy("Background")).await;
    are_gone(bed, &replica_sets(bed)).await;
    are_gone(bed, &bed.core("pods")).await;
    3
}

pub(super) async fn an_orphaned_replica_set_stays_with_its_pods(bed: &Bed) -> usize {
    deploy(bed).await;
    bed.delete(&format!("{}/web", deployments(bed)), policy("Orphan")).await;
    bed.gone(&format!("{}/web", deployments(bed))).await;
    are_orphans(bed, &replica_sets(bed), 1).await;
    let set = bed.owners(&replica_sets(bed)).await.into_keys().next().unwrap();
    let pods = bed.owners(&bed.core("pods")).await;
    assert!(pods.len() == 2 && pods.values().all(|owners| *owners == [set.clone()]), "{pods:?}");
    0
}

pub(super) async fn a_controller_takes_its_running_pods(bed: &Bed) -> usize {
    let path = control(bed, "rc", 3).await;
    bed.delete(&path, policy("Background")).await;
    are_gone(bed, &bed.core("pods")).await;
    3
}

pub(super) async fn a_controller_deleted_without_options_leaves_its_pods(bed: &Bed) -> usize {
    let path = control(bed, "rc", 2).await;
    bed.delete(&path, Value::Null).await;
    bed.gone(&path).await;
    are_orphans(bed, &bed.core("pods"), 2).await;
    0
}

pub(super) async fn an_orphaning_deletion_leaves_running_pods(bed: &Bed) -> usize {
    let path = control(bed, "rc", 2).await;
    bed.delete(&path, policy("Orphan")).await;
    bed.gone(&path).await;
    are_orphans(bed, &bed.core("pods"), 2).await;
    0
}

pub(super) async fn the_pods_of_a_controller_go_before_it(bed: &Bed) -> usize {
    let path = control(bed, "rc", 3).await;
    bed.delete(&path, policy("Foreground")).await;
    bed.gone(&path).await;
    let left = bed.owners(&bed.core("pods")).await;
    assert!(left.is_empty(), "they go before their owner: {left:?}");
    3
}

pub(super) async fn half_of_the_pods_have_another_controller(bed: &Bed) -> usize {
    let (pods, leaving) = (bed.core("pods"), control(bed, "leaving", 4).await);
    let staying = bed.create(&bed.core("replicationcontrollers"), controller("staying", 0, &[])).await;
    let names: Vec<String> = bed.owners(&pods).await.into_keys().collect();
    for name in &names[..2] {
        let path = format!("{pods}/{name}");
        let mut owners = bed.get(&path).await.unwrap()["metadata"]["ownerReferences"].take();
        owners.as_array_mut().unwrap().push(to(&staying));
        bed.patch(&path, json!({"metadata": {"ownerReferences": owners}})).await;
    }
    bed.until_upstream_knows().await;
    bed.delete(&leaving, policy("Foreground")).await;
    bed.gone(&leaving).await;
    tokio::time::sleep(A_WHILE).await;
    let left = bed.owners(&pods).await;
    let expected = names[..2].iter().map(|name| (name.clone(), vec!["staying".to_owned()])).collect();
    assert_eq!(left, expected);
    2
}
