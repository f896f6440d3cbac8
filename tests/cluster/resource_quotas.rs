//! The ResourceQuota controller against the embedded API server, in virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use windlass::config::{ControllerConfig, Enabled};
use windlass_apiserver::{FaultDecision, RequestInfo};
use windlass_planner_testkit::objects::deployment;
use windlass_testkit::cluster::{Cluster, Daemon, Faults, USER_AGENT, ask, inject_faults, unlimited};

const QUOTAS: &str = "/api/v1/namespaces/shop/resourcequotas";
const PODS: &str = "/api/v1/namespaces/shop/pods";
const SERVICES: &str = "/api/v1/namespaces/shop/services";
const CLAIMS: &str = "/api/v1/namespaces/shop/persistentvolumeclaims";
const MAPS: &str = "/api/v1/namespaces/shop/configmaps";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/shop/widgets";

fn config() -> ControllerConfig {
    let enabled = Enabled::default().with("resourcequota-controller");
    ControllerConfig { enabled, ..unlimited() }
}

fn start(cluster: &Cluster, seed: u64) -> Daemon {
    cluster.start_with(seed, config(), |router| router)
}

#[tokio::test(start_paused = true)]
async fn beside_a_server_that_counts_by_itself_nothing_is_written() {
    let cluster = Cluster::new().await;
    let daemon = start(&cluster, 7);
    let hard = json!({"pods": "9", "count/pods": "9", "requests.ephemeral-storage": "9Gi", "services.nodeports": "9", "requests.storage": "9Gi",
                      "configmaps": "9", "count/replicasets.apps": "9", "count/gadgets.example.com": "9"});
    create_quota(&cluster, "q", json!({"hard": hard})).await;
    cluster.create(deployment("web").replicas(3)).await;
    cluster.rolled_out("web").await;
    cluster.call(Method::POST, SERVICES, &service("web", "LoadBalancer")).await;
    cluster.call(Method::POST, CLAIMS, &claim("data", "1.5Gi")).await;
    cluster.call(Method::POST, MAPS, &map("a")).await;
    cluster.set_image("web", "v2").await;
    cluster.rolled_out("web").await;
    delete(&cluster, &format!("{MAPS}/a")).await;
    seconds(1000).await;
    assert_eq!(status(&cluster, "q")["used"]["pods"], "3");
    assert_eq!(status_writes(&cluster), 0, "{:?}", cluster.writes());
    // A pod whose node is lost is the one thing that the server does not notice by itself.
    let mut lost = pod("lost", json!({"nodeName": "nowhere"}));
    lost["metadata"]["finalizers"] = json!(["example.com/keep"]);
    cluster.call(Method::POST, PODS, &lost).await;
    let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 30});
    cluster.call(Method::DELETE, &format!("{PODS}/lost"), &options).await;
    seconds(120).await;
    assert_eq!(
        (&status(&cluster, "q")["used"]["pods"], &status(&cluster, "q")["used"]["count/pods"]),
        (&json!("3"), &json!("4"))
    );
    let writes = status_writes(&cluster);
    assert!(writes <= 2, "{writes}");
    seconds(3600).await;
    assert_eq!(status_writes(&cluster), writes);
    daemon.stop().await;
}
