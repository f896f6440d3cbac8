//! An API server that comes back with an older history, as after a restore of etcd, or as another one at the same address:
//! its watches are resumed at versions that are still to come, and show nothing.

use std::time::Duration;

use windlass::config::ControllerConfig;
use windlass::runtime::leader_election::rules::ElectionOptions;
use windlass_planner_testkit::objects::deployment;
use windlass_testkit::cluster::{Cluster, Faults, USER_AGENT, unlimited};

/// The pods of a Deployment of this name.
fn pods(cluster: &Cluster, name: &str) -> usize {
    cluster.objects("Pod").iter().filter(|pod| pod["metadata"]["labels"]["app"] == name).count()
}

/// Goes back to a state of many writes ago, and creates a Deployment there. Its pod appears soon, and a Deployment that was
/// scaled since has the size of the backup. What the controllers create for owners that are gone, before they know it, is
/// left to the garbage collector.
async fn goes_on_after_a_restore(cluster: &Cluster) {
    cluster.create(deployment("kept").replicas(2)).await;
    cluster.eventually(30, "the first pods exist", |c| pods(c, "kept") == 2).await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    let backup = cluster.sandbox.back_up();
    for number in 0..10 {
        cluster.create(deployment(&format!("lost-{number}")).replicas(3)).await;
    }
    cluster.patch("kept", serde_json::json!({"spec": {"replicas": 4}})).await;
    cluster.eventually(30, "more pods exist", |c| pods(c, "kept") == 4 && pods(c, "lost-9") == 3).await;
    tokio::time::sleep(Duration::from_secs(60)).await;

    cluster.sandbox.restore(&backup, false);
    assert_eq!(pods(cluster, "kept"), 2);
    cluster.create(deployment("late").replicas(1)).await;
    cluster.eventually(20, "the pod of a later Deployment exists", |c| pods(c, "late") == 1).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(["kept", "late"].map(|name| pods(cluster, name)), [2, 1]);
    cluster.patch("kept", serde_json::json!({"spec": {"replicas": 3}})).await;
    cluster.eventually(10, "the restored Deployment is scaled", |c| pods(c, "kept") == 3).await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_notices_an_older_history_by_its_lease() {
    let cluster = Cluster::without_collectors(Faults::default()).await;
    let options = ElectionOptions { namespace: Some("kube-system".into()), ..ElectionOptions::default() };
    let daemon = cluster.start(1, USER_AGENT, Some(options));
    goes_on_after_a_restore(&cluster).await;
    assert!(!daemon.task.is_finished());
    assert_eq!(cluster.sandbox.objects("Lease").len(), 1, "it still holds a Lease");
}

#[tokio::test(start_paused = true)]
async fn a_daemon_without_a_lease_lists_after_its_watches_broke() {
    let cluster = Cluster::without_collectors(Faults::default()).await;
    let config = ControllerConfig { relists_after_breaks: true, ..unlimited() };
    let _daemon = cluster.start_with(1, config, |router| router);
    goes_on_after_a_restore(&cluster).await;
}
