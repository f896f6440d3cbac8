//! One situation, both: the reasons of `explain -o json` are those that the daemon serves at `/debug/deployments` and
//! `/debug/statefulsets`.

use std::time::Duration;

use http::Method;
use kubectl_windlass::api::Api;
use kubectl_windlass::connection::Connection;
use kubectl_windlass::rollout::{self, live};
use kubectl_windlass::target::{Kind, WorkloadKey};
use serde_json::{Value, json};
use windlass::config::{ControllerConfig, Enabled};
use windlass_planner_testkit::objects::{DeploymentBuilder, deployment};
use windlass_testkit::cluster::{self, Cluster, Daemon};

/// The daemon's explanation of `web`.
async fn daemons(daemon: &Daemon) -> Value {
    let (code, text) = cluster::ask(&daemon.http, "/debug/deployments/shop/web").await;
    assert_eq!(code, 200, "{text}");
    let explained: Value = serde_json::from_str(&text).unwrap();
    explained["current"]["why"].clone()
}

/// The plugin's explanation of `web`, as `explain -o json` prints it.
async fn plugins(cluster: &Cluster) -> Value {
    let client = kube::Client::new(cluster.sandbox.router(), "shop");
    let connection = Connection {
        client,
        namespace: "shop".to_owned(),
        namespace_is_enforced: false,
        server: String::new(),
    };
    let api = Api::new(connection, Duration::ZERO);
    let key = WorkloadKey { kind: Kind::Deployment, namespace: "shop".to_owned(), name: "web".to_owned() };
    let workload = live::read(&api, &key).await.unwrap().unwrap();
    // The clock of the cluster is virtual.
    let assessment = rollout::assess(&workload, cluster.clock.now()).unwrap();
    rollout::json::assessment(&assessment, &[])["why"].clone()
}

/// A Deployment that is rolled out, then changed, and looked at after some seconds.
async fn both_say(name: &str, builder: DeploymentBuilder, change: Value, seconds: u64) -> Value {
    let cluster = Cluster::new().await;
    let daemon = cluster.start_controllers(1);
    cluster.create(builder).await;
    cluster.rolled_out("web").await;
    if change["hard"].is_object() {
        let quota = json!({"metadata": {"name": "few"}, "spec": change});
        cluster.call(Method::POST, "/api/v1/namespaces/shop/resourcequotas", &quota).await;
        cluster.set_image("web", "v2").await;
    } else {
        cluster.patch("web", change).await;
    }
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let (ours, theirs) = (plugins(&cluster).await, daemons(&daemon).await);
    assert_eq!(ours, theirs, "{name}");
    daemon.stop().await;
    ours
}

fn web() -> DeploymentBuilder {
    deployment("web").replicas(3).surge(1).unavailable(0)
}

fn image(tag: &str) -> Value {
    let containers = json!([{"name": "app", "image": format!("app:{tag}")}]);
    json!({"spec": {"template": {"spec": {"containers": containers}}}})
}

#[tokio::test(start_paused = true)]
async fn the_plugin_gives_the_reasons_that_the_daemon_gives() {
    let paused = json!({"spec": {"paused": true, "template": image("v2")["spec"]["template"]}});
    let mut said: Vec<Value> = Vec::new();
    for (name, builder, change, seconds) in [
        ("complete", web(), image("v2"), 60),
        ("a broken image", web(), image("broken"), 30),
        ("a passed deadline", web(), image("broken"), 700),
        ("paused with a new template", web(), paused, 30),
        ("recreated with a broken image", deployment("web").replicas(3).recreate(), image("broken"), 30),
        ("a quota", web(), json!({"hard": {"pods": "3"}}), 30),
    ] {
        let why = both_say(name, builder, change, seconds).await;
        assert!(!why.as_array().unwrap().is_empty() && !said.contains(&why), "{name}: {why:#}");
        said.push(why);
    }
}

const SETS: &str = "/apis/apps/v1/namespaces/shop/statefulsets";

/// The reasons for a StatefulSet `db` of three pods with claims, from the plugin and from the daemon.
async fn both_say_of_db(name: &str, created: Value, change: Value, claim_to_delete: Option<&str>) -> Value {
    let cluster = Cluster::with_volumes(cluster::Faults::default(), |options| options).await;
    let config = ControllerConfig { enabled: Enabled::all(), root_ca: "pem".into(), ..cluster::unlimited() };
    let daemon = cluster.start_with(1, config, |router| router);
    let mut set = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"},
        "spec": {"replicas": 3, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}},
                 "template": {"metadata": {"labels": {"app": "db"}},
                              "spec": {"containers": [{"name": "app", "image": "app:v1"}]}},
                 "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {
                    "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]}});
    json_patch::merge(&mut set["spec"], &created);
    cluster.call(Method::POST, SETS, &set).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    if let Some(claim) = claim_to_delete {
        let path = format!("/api/v1/namespaces/shop/persistentvolumeclaims/{claim}");
        let finalizers = json!({"metadata": {"finalizers": ["example.com/backup"]}});
        cluster.call(Method::PATCH, &path, &finalizers).await;
        cluster.call(Method::DELETE, &path, &Value::Null).await;
        cluster.call(Method::DELETE, "/api/v1/namespaces/shop/pods/db-2", &Value::Null).await;
    }
    cluster.call(Method::PATCH, &format!("{SETS}/db"), &change).await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    let client = kube::Client::new(cluster.sandbox.router(), "shop");
    let connection = Connection {
        client,
        namespace: "shop".to_owned(),
        namespace_is_enforced: false,
        server: String::new(),
    };
    let api = Api::new(connection, Duration::ZERO);
    let key = WorkloadKey { kind: Kind::StatefulSet, namespace: "shop".to_owned(), name: "db".to_owned() };
    let workload = live::read(&api, &key).await.unwrap().unwrap();
    let assessment = rollout::assess(&workload, cluster.clock.now()).unwrap();
    let ours = rollout::json::assessment(&assessment, &[])["why"].clone();
    let (code, text) = cluster::ask(&daemon.http, "/debug/statefulsets/shop/db").await;
    assert_eq!(code, 200, "{text}");
    let theirs: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(ours, theirs["current"]["why"], "{name}");
    daemon.stop().await;
    ours
}

#[tokio::test(start_paused = true)]
async fn the_plugin_gives_the_reasons_that_the_daemon_gives_for_statefulsets() {
    let partition = |partition: i64| json!({"updateStrategy": {"rollingUpdate": {"partition": partition}}});
    let mut said: Vec<Value> = Vec::new();
    for (name, created, change, claim) in [
        ("complete", json!({}), image("v2"), None),
        ("a broken image", json!({}), image("broken"), None),
        ("a partition", partition(2), image("v2"), None),
        ("on delete", json!({"updateStrategy": {"type": "OnDelete"}}), image("v2"), None),
        ("scaled down with claims that stay", json!({}), json!({"spec": {"replicas": 1}}), None),
        ("parallel and broken", json!({"podManagementPolicy": "Parallel"}), image("broken"), None),
        ("a claim that is being deleted", json!({}), json!({}), Some("data-db-2")),
        ("none", json!({}), json!({"spec": {"replicas": 0}}), None),
    ] {
        let why = both_say_of_db(name, created, change, claim).await;
        assert!(!why.as_array().unwrap().is_empty(), "{name}: {why:#}");
        if name != "parallel and broken" {
            assert!(!said.contains(&why), "{name}: {why:#}");
        }
        said.push(why);
    }
}
