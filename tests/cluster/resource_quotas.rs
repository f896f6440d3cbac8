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

/// A cluster whose API server charges what it admits, and leaves the rest to a controller.
async fn charging(faults: Faults) -> Cluster {
    Cluster::with(faults, |mut options| {
        options.counts_quotas = false;
        options
    })
    .await
}

async fn create_quota(cluster: &Cluster, name: &str, spec: Value) {
    cluster.call(Method::POST, QUOTAS, &json!({"metadata": {"name": name}, "spec": spec})).await;
}

fn status(cluster: &Cluster, name: &str) -> Value {
    let named = |quota: &Value| quota["metadata"]["name"] == name;
    cluster
        .objects("ResourceQuota")
        .into_iter()
        .find(named)
        .map(|quota| quota["status"].clone())
        .unwrap_or_default()
}

async fn becomes(cluster: &Cluster, name: &str, used: Value) {
    let text = format!("{name} uses {used}");
    cluster.eventually(8, &text, |cluster| status(cluster, name)["used"] == used).await;
}

fn pod(name: &str, more: Value) -> Value {
    let mut spec =
        json!({"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "100m"}}}]});
    for (key, value) in more.as_object().unwrap() {
        spec[key] = value.clone();
    }
    json!({"metadata": {"name": name}, "spec": spec})
}

fn service(name: &str, kind: &str) -> Value {
    let ports = json!([{"name": "a", "port": 80}, {"name": "b", "port": 81}]);
    json!({"metadata": {"name": name}, "spec": {"type": kind, "ports": ports}})
}

fn claim(name: &str, size: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"storageClassName": "fast", "accessModes": ["ReadWriteOnce"],
           "resources": {"requests": {"storage": size}}}})
}

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

async fn delete(cluster: &Cluster, path: &str) {
    let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0});
    cluster.call(Method::DELETE, path, &options).await;
}

async fn seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

/// The status writes of the controller so far.
fn status_writes(cluster: &Cluster) -> usize {
    cluster.writes().iter().filter(|write| write.contains("ResourceQuota")).count()
}

#[tokio::test(start_paused = true)]
async fn a_quota_gets_its_status_and_pods_services_claims_and_other_objects_are_counted_and_released() {
    const FAST: &str = "fast.storageclass.storage.k8s.io/requests.storage";
    let cluster = charging(Faults::default()).await;
    let daemon = start(&cluster, 1);
    cluster.call(Method::POST, PODS, &pod("first", json!({}))).await;
    cluster.call(Method::POST, MAPS, &map("first")).await;
    let hard = json!({"pods": "9", "requests.cpu": "2", "services": "9", "services.nodeports": "9", FAST: "9Gi",
                      "persistentvolumeclaims": "9", "configmaps": "9", "count/deployments.apps": "9",
                      "resourcequotas": "9"});
    create_quota(&cluster, "all", json!({"hard": hard})).await;
    let counts = |pods: &str,
                  cpu: &str,
                  services: &str,
                  ports: &str,
                  claims: &str,
                  storage: &str,
                  maps: &str| {
        json!({"pods": pods, "requests.cpu": cpu, "services": services, "services.nodeports": ports,
               "persistentvolumeclaims": claims, FAST: storage, "configmaps": maps, "count/deployments.apps": "0",
               "resourcequotas": "1"})
    };
    becomes(&cluster, "all", counts("1", "100m", "0", "0", "0", "0", "1")).await;
    assert_eq!(status(&cluster, "all")["hard"]["requests.cpu"], "2");
    cluster.call(Method::POST, PODS, &pod("second", json!({}))).await;
    cluster.call(Method::POST, SERVICES, &service("web", "NodePort")).await;
    cluster.call(Method::POST, CLAIMS, &claim("data", "1Gi")).await;
    cluster.call(Method::POST, MAPS, &map("second")).await;
    // The API server has charged them, at once.
    assert_eq!(status(&cluster, "all")["used"], counts("2", "200m", "1", "2", "1", "1Gi", "2"));
    let writes = status_writes(&cluster);
    seconds(20).await;
    assert_eq!(status(&cluster, "all")["used"], counts("2", "200m", "1", "2", "1", "1Gi", "2"));
    assert_eq!(status_writes(&cluster), writes, "the numbers of the API server are right");
    cluster.call(Method::PATCH, &format!("{SERVICES}/web"), &json!({"spec": {"type": "ClusterIP"}})).await;
    becomes(&cluster, "all", counts("2", "200m", "1", "0", "1", "1Gi", "2")).await;
    for path in [
        format!("{PODS}/second"),
        format!("{SERVICES}/web"),
        format!("{CLAIMS}/data"),
        format!("{MAPS}/second"),
    ] {
        delete(&cluster, &path).await;
    }
    // The protection of claims is another controller's.
    let finalizers = json!({"metadata": {"finalizers": null}});
    cluster.call(Method::PATCH, &format!("{CLAIMS}/data"), &finalizers).await;
    becomes(&cluster, "all", counts("1", "100m", "0", "0", "0", "0", "1")).await;
    cluster
        .call(Method::PATCH, &format!("{PODS}/first/status"), &json!({"status": {"phase": "Succeeded"}}))
        .await;
    becomes(&cluster, "all", counts("0", "0", "0", "0", "0", "0", "1")).await;
    let writes = status_writes(&cluster);
    seconds(3600).await;
    assert_eq!(status_writes(&cluster), writes, "nothing is written without a change");
    let metrics = daemon.metrics.render();
    for line in [
        "workqueue_adds_total{name=\"resourcequota_primary\"}",
        "windlass_quota_resources{state=\"synced\"} 2",
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn scopes_and_changes_of_hard_are_followed() {
    let cluster = charging(Faults::default()).await;
    let daemon = start(&cluster, 2);
    create_quota(&cluster, "ends", json!({"hard": {"pods": "5"}, "scopes": ["Terminating"]})).await;
    let selector =
        json!({"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]});
    create_quota(&cluster, "high", json!({"hard": {"pods": "5"}, "scopeSelector": selector})).await;
    create_quota(&cluster, "best", json!({"hard": {"pods": "5"}, "scopes": ["BestEffort"]})).await;
    for name in ["ends", "high", "best"] {
        becomes(&cluster, name, json!({"pods": "0"})).await;
    }
    cluster.call(Method::POST, PODS, &pod("a", json!({"activeDeadlineSeconds": 3600}))).await;
    cluster.call(Method::POST, PODS, &pod("b", json!({"priorityClassName": "high"}))).await;
    let mut bare = pod("c", json!({}));
    bare["spec"]["containers"][0]["resources"] = json!({});
    cluster.call(Method::POST, PODS, &bare).await;
    seconds(10).await;
    for name in ["ends", "high", "best"] {
        becomes(&cluster, name, json!({"pods": "1"})).await;
    }
    let hard = json!({"spec": {"hard": {"pods": null, "requests.cpu": "1"}}});
    cluster.call(Method::PATCH, &format!("{QUOTAS}/ends"), &hard).await;
    becomes(&cluster, "ends", json!({"requests.cpu": "100m"})).await;
    assert_eq!(status(&cluster, "ends")["hard"], json!({"requests.cpu": "1"}));
    daemon.stop().await;
}

async fn define_widgets(cluster: &Cluster) {
    let definition = json!({"metadata": {"name": "widgets.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [{"name": "v1", "served": true, "storage": true,
                      "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
    cluster.call(Method::POST, DEFINITIONS, &definition).await;
}

fn widget(name: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}})
}

/// An API server that refuses to list and watch widgets while the switch is on.
fn without_widgets() -> (Arc<AtomicBool>, Faults) {
    let is_down = Arc::new(AtomicBool::new(false));
    let down = is_down.clone();
    let faults = inject_faults(move |request: &RequestInfo| {
        let is_read = request.kind == "Widget" && matches!(request.verb, "list" | "watch");
        match down.load(Ordering::SeqCst) && is_read && request.user_agent == USER_AGENT {
            true => FaultDecision::Refuse {
                code: 500,
                message: "conversion failed".into(),
                reason: "InternalError".into(),
            },
            false => FaultDecision::Proceed,
        }
    });
    (is_down, faults)
}

async fn a_broken_resource_holds_up_no_other(config: ControllerConfig) {
    let (is_down, faults) = without_widgets();
    let cluster = charging(faults).await;
    define_widgets(&cluster).await;
    is_down.store(true, Ordering::SeqCst);
    let daemon = cluster.start_with(3, config, |router| router);
    let hard = json!({"pods": "9", "configmaps": "9", "count/widgets.example.com": "9", "count/gadgets.example.com": "9"});
    create_quota(&cluster, "q", json!({"hard": hard})).await;
    becomes(&cluster, "q", json!({"pods": "0", "configmaps": "0"})).await;
    cluster.call(Method::POST, MAPS, &map("a")).await;
    becomes(&cluster, "q", json!({"pods": "0", "configmaps": "1"})).await;
    delete(&cluster, &format!("{MAPS}/a")).await;
    becomes(&cluster, "q", json!({"pods": "0", "configmaps": "0"})).await;
    let told = |cluster: &Cluster| {
        let about =
            |event: &Value| event["involvedObject"]["name"] == "q" && event["reason"] == "UsageUnknown";
        cluster.objects("Event").into_iter().find(about)
    };
    cluster.eventually(30, "an event names the resource", |cluster| told(cluster).is_some()).await;
    let message = told(&cluster).unwrap()["message"].as_str().unwrap().to_owned();
    assert!(message.contains("widgets.example.com") && message.contains("conversion failed"), "{message}");
    let (_, explained) = ask(&daemon.http, "/debug/resourcequotas/shop/q").await;
    assert!(explained.contains("widgets.example.com cannot be counted"), "{explained}");
    is_down.store(false, Ordering::SeqCst);
    let all = |widgets: &str| json!({"pods": "0", "configmaps": "0", "count/widgets.example.com": widgets});
    cluster.eventually(60, "it is counted", |cluster| status(cluster, "q")["used"] == all("0")).await;
    cluster.call(Method::POST, WIDGETS, &widget("a")).await;
    seconds(10).await;
    assert_eq!(status(&cluster, "q")["used"], all("1"));
    delete(&cluster, &format!("{WIDGETS}/a")).await;
    becomes(&cluster, "q", all("0")).await;
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_custom_resource_that_cannot_be_listed_holds_up_no_other() {
    a_broken_resource_holds_up_no_other(config()).await;
}

#[tokio::test(start_paused = true)]
async fn neither_does_it_where_the_garbage_collector_counts() {
    let enabled = config().enabled.with("garbage-collector-controller");
    a_broken_resource_holds_up_no_other(ControllerConfig { enabled, ..config() }).await;
}

#[tokio::test(start_paused = true)]
async fn a_resource_is_watched_once_and_only_while_a_quota_names_it() {
    let cluster = charging(Faults::default()).await;
    let enabled = config().enabled.with("garbage-collector-controller");
    let with_collector = cluster.start_with(4, ControllerConfig { enabled, ..config() }, |router| router);
    seconds(5).await;
    let watches = |cluster: &Cluster| {
        let log = cluster.log.lock().unwrap();
        let is_own = |request: &&RequestInfo| {
            request.user_agent == USER_AGENT && request.kind == "Secret" && request.verb == "watch"
        };
        log.iter().filter(is_own).count()
    };
    let before = watches(&cluster);
    assert!(before > 0, "the garbage collector watches Secrets");
    create_quota(&cluster, "q", json!({"hard": {"secrets": "9"}})).await;
    becomes(&cluster, "q", json!({"secrets": "0"})).await;
    assert_eq!(watches(&cluster), before);
    with_collector.stop().await;
    let alone = start(&cluster, 5);
    seconds(5).await;
    assert!(watches(&cluster) > before, "alone it watches them itself");
    assert!(alone.metrics.render().contains("windlass_quota_resources{state=\"synced\"} 1"));
    delete(&cluster, &format!("{QUOTAS}/q")).await;
    seconds(5).await;
    assert!(alone.metrics.render().contains("windlass_quota_resources{state=\"synced\"} 0"));
    alone.stop().await;
}

/// A cluster that charges, and whose watches of pods open so late while the flag is set.
async fn with_slow_pods(seconds: u64) -> (Cluster, Arc<AtomicBool>) {
    let is_slow = Arc::new(AtomicBool::new(false));
    let slow = is_slow.clone();
    let faults = inject_faults(move |request: &RequestInfo| {
        let is_read = request.kind == "Pod" && request.verb == "watch" && request.user_agent == USER_AGENT;
        match is_read && slow.load(Ordering::SeqCst) {
            true => FaultDecision::Delay(Duration::from_secs(seconds)),
            false => FaultDecision::Proceed,
        }
    });
    (charging(faults).await, is_slow)
}

#[tokio::test(start_paused = true)]
async fn a_charge_whose_object_never_comes_is_taken_back_and_none_before_its_object_is_seen() {
    // The slower one is as good as dead: nobody notices for 45 seconds.
    for delay in [3, 40_u64] {
        let (cluster, is_slow) = with_slow_pods(delay).await;
        let daemon = start(&cluster, 6);
        create_quota(&cluster, "q", json!({"hard": {"pods": "2"}})).await;
        becomes(&cluster, "q", json!({"pods": "0"})).await;
        is_slow.store(true, Ordering::SeqCst);
        cluster.sandbox.break_watches();
        seconds(1).await;
        cluster.call(Method::POST, PODS, &pod("a", json!({}))).await;
        for _ in 0..(delay + 3) * 10 {
            let used = &status(&cluster, "q")["used"];
            assert_eq!(*used, json!({"pods": "1"}), "the charge of a pod was taken back, {delay}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        is_slow.store(false, Ordering::SeqCst);
        // As a creation does that fails after it was charged.
        let charged = json!({"status": {"used": {"pods": "2"}}});
        cluster.call(Method::PATCH, &format!("{QUOTAS}/q/status"), &charged).await;
        seconds(4).await;
        assert_eq!(status(&cluster, "q")["used"], json!({"pods": "2"}));
        // The watch tells every ten seconds how far it is, once it is open.
        cluster
            .eventually(delay + 30, "taken back", |c| status(c, "q")["used"] == json!({"pods": "1"}))
            .await;
        daemon.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn many_charges_are_counted_together() {
    let cluster = charging(Faults::default()).await;
    let daemon = start(&cluster, 8);
    create_quota(&cluster, "q", json!({"hard": {"configmaps": "100"}})).await;
    seconds(10).await;
    let used = |c: &Cluster| status(c, "q")["used"]["configmaps"].as_str().unwrap().parse::<u64>().unwrap();
    let others = used(&cluster);
    let syncs = || {
        let metrics = daemon.metrics.render();
        let count = "workqueue_work_duration_seconds_count{name=\"resourcequota_primary\"} ";
        let line = metrics.lines().find_map(|line| line.strip_prefix(count)).unwrap();
        line.parse::<u64>().unwrap()
    };
    let before = syncs();
    for n in 0..50 {
        cluster.call(Method::POST, MAPS, &map(&format!("m{n}"))).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    seconds(5).await;
    assert_eq!(used(&cluster), others + 50);
    let syncs = syncs() - before;
    assert!(syncs <= 8, "{syncs} counts of 50 objects");
    daemon.stop().await;
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
