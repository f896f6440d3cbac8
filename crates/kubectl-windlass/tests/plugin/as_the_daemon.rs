//! One situation, both: the reasons of `explain -o json` are those that the daemon serves at `/debug/deployments`.

use std::time::Duration;

use http::Method;
use kubectl_windlass::api::Api;
use kubectl_windlass::connection::Connection;
use kubectl_windlass::rollout::{self, live};
use serde_json::{Value, json};
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
    let connection = Connection { client, namespace: "shop".to_owned(), namespace_is_enforced: false };
    let api = Api::new(connection, Duration::ZERO);
    let workload = live::read(&api, "shop", "web").await.unwrap().unwrap();
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
