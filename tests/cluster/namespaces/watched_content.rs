//! With the garbage collector in the same daemon, the end of what is in a namespace starts the next round.

use windlass::engine::context::ResourceFilter;

use super::*;

const SECRETS: &str = "/api/v1/namespaces/shop/secrets";

/// Both controllers in one daemon.
async fn cluster_with(garbage_resources: ResourceFilter) -> (Cluster, Daemon) {
    let cluster = Cluster::without_collectors(Faults::default()).await;
    let base = config(0);
    let enabled = base.enabled.clone().with("garbage-collector-controller");
    let daemon =
        cluster.start_with(1, ControllerConfig { enabled, garbage_resources, ..base }, |router| router);
    (cluster, daemon)
}

fn is_look(request: &RequestInfo) -> bool {
    request.verb == "list" && request.namespace == "shop" && !request.query.contains("watch=")
}

/// How many lists the namespace costs in a minute.
async fn looks_in_a_minute(cluster: &Cluster) -> usize {
    let before = requests(cluster, is_look).len();
    tokio::time::sleep(Duration::from_secs(60)).await;
    requests(cluster, is_look).len() - before
}

async fn release(cluster: &Cluster, path: &str) {
    cluster.call(Method::PATCH, path, &json!({"metadata": {"finalizers": null}})).await;
}

#[tokio::test(start_paused = true)]
async fn a_namespace_goes_within_a_second_of_what_is_in_it_and_is_not_polled_until_then() {
    let (cluster, _daemon) = cluster_with(ResourceFilter::default()).await;
    create_map(&cluster, "held", &["example.com/keep"]).await;
    create_map(&cluster, "free", &[]).await;
    create(&cluster, SECRETS, "held", &["example.com/keep"]).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    delete_shop(&cluster).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(condition(&cluster, "NamespaceContentRemaining").0, "True");
    let looks = looks_in_a_minute(&cluster).await;
    // Pods and two kinds, each 15 s.
    assert!(looks <= 15, "{looks} lists in a minute");
    release(&cluster, &format!("{SECRETS}/held")).await;
    let says_so = |cluster: &Cluster| {
        let (_, message) = condition(cluster, "NamespaceContentRemaining");
        message.contains("configmaps") && !message.contains("secrets")
    };
    cluster.eventually(2, "the condition follows", says_so).await;
    release(&cluster, &format!("{SHOP}/configmaps/held")).await;
    cluster.eventually(1, "the namespace is gone", is_gone).await;
}

#[tokio::test(start_paused = true)]
async fn what_the_collector_does_not_watch_is_polled() {
    let ignored = ResourceFilter { ignored: vec!["secrets".into()], ..Default::default() };
    let (cluster, _daemon) = cluster_with(ignored).await;
    create(&cluster, SECRETS, "held", &["example.com/keep"]).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    delete_shop(&cluster).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let looks = looks_in_a_minute(&cluster).await;
    assert!(looks > 40, "{looks} lists in a minute");
    release(&cluster, &format!("{SECRETS}/held")).await;
    cluster.eventually(4, "the namespace is gone", is_gone).await;
}
