//! The namespace controller: what is in a namespace goes in the right order, the conditions say why it waits, and it ends as
//! soon as it is empty.

mod refused_requests;
mod watched_content;

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use windlass::config::{ControllerConfig, Enabled};
use windlass_apiserver::{FaultDecision, RequestInfo};
use windlass_planner_testkit::objects::deployment;
use windlass_testkit::cluster::{Cluster, Daemon, Faults, USER_AGENT, inject_faults, is_request, unlimited};

const SHOP: &str = "/api/v1/namespaces/shop";

fn config(delay: u64) -> ControllerConfig {
    let enabled = Enabled::default().with("namespace-controller");
    let namespace_deletion_delay = Duration::from_secs(delay);
    ControllerConfig { enabled, namespace_deletion_delay, ..unlimited() }
}

/// A cluster whose namespaces only the daemon ends, with this delay.
async fn cluster(delay: u64, faults: Faults) -> (Cluster, Daemon) {
    let cluster = Cluster::without_collectors(faults).await;
    let daemon = cluster.start_with(1, config(delay), |router| router);
    (cluster, daemon)
}

/// Creates an object without a spec in `shop`.
async fn create(cluster: &Cluster, collection: &str, name: &str, finalizers: &[&str]) {
    let body = json!({"metadata": {"name": name, "finalizers": finalizers}});
    cluster.call(Method::POST, collection, &body).await;
}

async fn create_map(cluster: &Cluster, name: &str, finalizers: &[&str]) {
    create(cluster, &format!("{SHOP}/configmaps"), name, finalizers).await;
}

async fn delete_shop(cluster: &Cluster) {
    cluster.call(Method::DELETE, SHOP, &Value::Null).await;
}

fn shop(cluster: &Cluster) -> Option<Value> {
    cluster.sandbox.objects("Namespace").into_iter().find(|namespace| namespace["metadata"]["name"] == "shop")
}

fn is_gone(cluster: &Cluster) -> bool {
    shop(cluster).is_none()
}

/// A condition of `shop`: its status, and its message.
fn condition(cluster: &Cluster, kind: &str) -> (String, String) {
    let shop = shop(cluster).unwrap();
    let all = shop["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = all.into_iter().find(|condition| condition["type"] == kind).unwrap_or_default();
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    (text("status"), text("message"))
}

/// The one reason for which the metric says that a namespace waits.
fn waits_for(daemon: &Daemon) -> String {
    let text = daemon.metrics.render();
    let name = "windlass_namespaces_terminating{reason=\"";
    let waits = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_suffix("\"} 1"));
    waits.collect::<Vec<_>>().join(" and ")
}

/// The daemon's requests so far that meet this.
fn requests(cluster: &Cluster, is_one: impl Fn(&RequestInfo) -> bool) -> Vec<RequestInfo> {
    let log = cluster.log.lock().unwrap();
    log.iter().filter(|request| request.user_agent == USER_AGENT && is_one(request)).cloned().collect()
}

/// Ten ConfigMaps and Secrets, and some of six other kinds.
async fn fill(cluster: &Cluster) {
    for number in 0..5 {
        create_map(cluster, &format!("map-{number}"), &[]).await;
        create(cluster, &format!("{SHOP}/secrets"), &format!("secret-{number}"), &[]).await;
    }
    let ports = json!([{"port": 80}]);
    let service = json!({"metadata": {"name": "web"}, "spec": {"ports": ports, "selector": {"app": "web"}}});
    cluster.call(Method::POST, &format!("{SHOP}/services"), &service).await;
    create(cluster, &format!("{SHOP}/serviceaccounts"), "robot", &[]).await;
    create(cluster, "/apis/coordination.k8s.io/v1/namespaces/shop/leases", "lock", &[]).await;
    cluster.create(deployment("web").replicas(3)).await;
    cluster.rolled_out("web").await;
}

#[tokio::test(start_paused = true)]
async fn a_namespace_goes_with_everything_in_it_as_soon_as_its_pods_have_ended() {
    let (cluster, daemon) = cluster(0, Faults::default()).await;
    fill(&cluster).await;
    delete_shop(&cluster).await;
    cluster.eventually(3, "the namespace is gone", is_gone).await;
    for kind in
        ["ConfigMap", "Secret", "Service", "ServiceAccount", "Lease", "Deployment", "ReplicaSet", "Pod"]
    {
        assert_eq!(cluster.objects(kind), Vec::<Value>::new(), "{kind}");
    }
    let text = daemon.metrics.render();
    assert!(text.contains("windlass_namespaces_finalized_total 1"), "{text}");
    assert!(text.contains("windlass_namespaces_terminating{reason=\"content\"} 0"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_namespace_without_pods_goes_within_a_second() {
    let (cluster, _daemon) = cluster(0, Faults::default()).await;
    create_map(&cluster, "one", &[]).await;
    delete_shop(&cluster).await;
    cluster.eventually(1, "the namespace is gone", is_gone).await;
    let writes = requests(&cluster, |request| !matches!(request.verb, "get" | "list" | "watch"));
    let told: Vec<String> =
        writes.iter().map(|it| format!("{} {}{}", it.verb, it.kind, it.subresource)).collect();
    let expected = ["deletecollection ConfigMap", "update Namespacefinalize"];
    assert_eq!(told, expected, "one deletion for each kind that has something, and no status on the way");
}

#[tokio::test(start_paused = true)]
async fn nothing_else_is_touched_while_a_pod_exists() {
    let (cluster, _daemon) = cluster(0, Faults::default()).await;
    fill(&cluster).await;
    let pods = cluster.objects("Pod");
    let pod = format!("{SHOP}/pods/{}", pods[0]["metadata"]["name"].as_str().unwrap());
    cluster.call(Method::PATCH, &pod, &json!({"metadata": {"finalizers": ["example.com/keep"]}})).await;
    delete_shop(&cluster).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let deletions = requests(&cluster, |request| request.verb == "deletecollection");
    assert!(!deletions.is_empty() && deletions.iter().all(|request| request.kind == "Pod"), "{deletions:?}");
    assert_eq!(cluster.objects("ConfigMap").len(), 5);
    let remaining = "Some resources are remaining: pods. has 1 resource instances";
    assert_eq!(condition(&cluster, "NamespaceContentRemaining"), ("True".into(), remaining.into()));
    cluster.call(Method::PATCH, &pod, &json!({"metadata": {"finalizers": null}})).await;
    cluster.eventually(2, "the namespace is gone", is_gone).await;
}

#[tokio::test(start_paused = true)]
async fn it_stays_for_the_delay_although_it_is_empty_at_once() {
    let (cluster, daemon) = cluster(5, Faults::default()).await;
    create_map(&cluster, "one", &[]).await;
    delete_shop(&cluster).await;
    tokio::time::sleep(Duration::from_millis(4900)).await;
    assert_eq!((is_gone(&cluster), cluster.objects("ConfigMap").len()), (false, 0));
    assert_eq!(condition(&cluster, "NamespaceContentRemaining").0, "False");
    assert_eq!(waits_for(&daemon), "delay");
    cluster.eventually(1, "the namespace is gone", is_gone).await;
}

#[tokio::test(start_paused = true)]
async fn what_was_empty_is_looked_at_again_after_the_delay() {
    let (cluster, _daemon) = cluster(5, Faults::default()).await;
    delete_shop(&cluster).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let before = requests(&cluster, |request| request.verb == "list" && request.kind == "Secret").len();
    cluster.eventually(3, "the namespace is gone", is_gone).await;
    let after = requests(&cluster, |request| request.verb == "list" && request.kind == "Secret").len();
    assert_eq!((before, after), (1, 2), "another API server may have created something meanwhile");
}

#[tokio::test(start_paused = true)]
async fn a_foreign_finalizer_is_named_and_the_namespace_goes_a_second_after_it() {
    let (cluster, daemon) = cluster(0, Faults::default()).await;
    create_map(&cluster, "kept", &["example.com/keep"]).await;
    create_map(&cluster, "free", &[]).await;
    delete_shop(&cluster).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let named =
        "Some content in the namespace has finalizers remaining: example.com/keep in 1 resource instances";
    assert_eq!(condition(&cluster, "NamespaceFinalizersRemaining"), ("True".into(), named.into()));
    let remaining = "Some resources are remaining: configmaps. has 1 resource instances";
    assert_eq!(condition(&cluster, "NamespaceContentRemaining"), ("True".into(), remaining.into()));
    assert_eq!(condition(&cluster, "NamespaceDeletionContentFailure").0, "False");
    assert_eq!(cluster.objects("ConfigMap").len(), 1);
    assert_eq!(waits_for(&daemon), "content");

    let (statuses, before) = (cluster.count("patch Namespace"), requests(&cluster, |_| true).len());
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(cluster.count("patch Namespace"), statuses, "what has not changed is not written");
    let asked = requests(&cluster, |_| true).len() - before;
    assert!(asked <= 60 * 5 + 10, "a namespace that waits costs at most five requests a second: {asked}");
    let deletions = requests(&cluster, |it| it.verb == "deletecollection" && it.kind == "ConfigMap");
    assert_eq!(deletions.len(), 1, "what is on its way is not deleted again");

    let kept = format!("{SHOP}/configmaps/kept");
    cluster.call(Method::PATCH, &kept, &json!({"metadata": {"finalizers": null}})).await;
    cluster.eventually(2, "the namespace is gone", is_gone).await;
}

#[tokio::test(start_paused = true)]
async fn the_finalizers_of_the_garbage_collector_keep_nothing_in_a_dying_namespace() {
    let (cluster, _daemon) = cluster(0, Faults::default()).await;
    create_map(&cluster, "waits", &["foregroundDeletion", "example.com/keep"]).await;
    cluster.call(Method::DELETE, &format!("{SHOP}/configmaps/waits"), &Value::Null).await;
    create_map(&cluster, "orphans", &["orphan"]).await;
    delete_shop(&cluster).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let maps = cluster.objects("ConfigMap");
    assert_eq!(maps.len(), 1);
    assert_eq!(maps[0]["metadata"]["finalizers"], json!(["example.com/keep"]));
}

#[tokio::test(start_paused = true)]
async fn a_token_of_somebody_else_survives_and_the_conditions_are_true() {
    let (cluster, _daemon) = cluster(0, Faults::default()).await;
    let mut namespace = shop(&cluster).unwrap();
    namespace["spec"]["finalizers"] = json!(["kubernetes", "example.com/theirs"]);
    cluster.call(Method::PUT, &format!("{SHOP}/finalize"), &namespace).await;
    create_map(&cluster, "one", &[]).await;
    delete_shop(&cluster).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let left = shop(&cluster).unwrap();
    assert_eq!(left["spec"]["finalizers"], json!(["example.com/theirs"]));
    assert_eq!(left["metadata"]["labels"], namespace["metadata"]["labels"], "nothing else is changed");
    assert_eq!(condition(&cluster, "NamespaceContentRemaining").0, "False");
    assert_eq!(cluster.objects("ConfigMap").len(), 0);
    let before = requests(&cluster, |it| it.verb != "watch").len();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(requests(&cluster, |it| it.verb != "watch").len(), before, "nothing is left to do");
}

/// Adds a group whose resources are unknown to what the server says of itself, as long as `flag` is set.
fn with_a_broken_group(
    router: axum::Router,
    group: &'static str,
    flag: std::sync::Arc<std::sync::atomic::AtomicBool>,
) -> axum::Router {
    let answer = move |mut request: axum::extract::Request, next: axum::middleware::Next| {
        let is_broken = flag.load(std::sync::atomic::Ordering::Relaxed);
        async move {
            let is_discovery = request.uri().path() == "/apis";
            if is_discovery {
                request.headers_mut().remove("if-none-match");
            }
            let response = next.run(request).await;
            if !is_discovery || !is_broken {
                return response;
            }
            let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
            let mut all: Value = serde_json::from_slice(&bytes).unwrap();
            let version = json!({"version": "v1", "freshness": "Stale"});
            let broken = json!({"metadata": {"name": group}, "versions": [version]});
            all["items"].as_array_mut().unwrap().push(broken);
            axum::response::IntoResponse::into_response(axum::Json(all))
        }
    };
    router.layer(axum::middleware::from_fn(answer))
}

#[tokio::test(start_paused = true)]
async fn a_group_that_cannot_be_discovered_keeps_the_namespace_and_is_named() {
    let cluster = Cluster::without_collectors(Faults::default()).await;
    let flag = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    let broken = flag.clone();
    let daemon =
        cluster.start_with(1, config(0), |router| with_a_broken_group(router, "broken.example.com", broken));
    create_map(&cluster, "one", &[]).await;
    delete_shop(&cluster).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let (status, message) = condition(&cluster, "NamespaceDeletionDiscoveryFailure");
    assert_eq!(status, "True");
    assert!(message.starts_with("Discovery failed for some groups, 1 failing: "), "{message}");
    assert!(message.ends_with("stale GroupVersion discovery: broken.example.com/v1"), "{message}");
    assert_eq!(cluster.objects("ConfigMap").len(), 0, "what is known goes");
    assert_eq!(waits_for(&daemon), "discovery");
    let lists = requests(&cluster, |it| it.verb == "list").len();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(requests(&cluster, |it| it.verb == "list").len(), lists, "it is empty, and stays so");
    flag.store(false, std::sync::atomic::Ordering::Relaxed);
    cluster.eventually(2, "the namespace is gone", is_gone).await;
}

#[tokio::test(start_paused = true)]
async fn a_failing_metrics_server_keeps_no_namespace() {
    let cluster = Cluster::without_collectors(Faults::default()).await;
    let flag = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    let _daemon =
        cluster.start_with(1, config(0), |router| with_a_broken_group(router, "metrics.k8s.io", flag));
    delete_shop(&cluster).await;
    cluster.eventually(2, "the namespace is gone", is_gone).await;
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_nothing_changes_is_looked_at_every_15_seconds() {
    let (cluster, _daemon) = cluster(0, Faults::default()).await;
    create_map(&cluster, "held", &["example.com/keep"]).await;
    delete_shop(&cluster).await;
    let lists = || requests(&cluster, |it| it.verb == "list" && it.path.ends_with("/shop/configmaps")).len();
    let between = async |seconds: u64| {
        let before = lists();
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        lists() - before
    };
    let first = between(20).await;
    assert!(first >= 18, "{first} looks in the first 20 seconds");
    between(580).await;
    let later = between(600).await;
    assert!((38..=42).contains(&later), "{later} looks in ten minutes");
}

#[tokio::test(start_paused = true)]
async fn a_refused_deletion_is_told_and_tried_again() {
    let refuse = inject_faults(|request| match is_request(request, "deletecollection", "Secret") {
        true => FaultDecision::Refuse {
            code: 403,
            message: "a webhook says no".into(),
            reason: "Forbidden".into(),
        },
        false => FaultDecision::Proceed,
    });
    let (cluster, daemon) = cluster(0, refuse).await;
    create(&cluster, &format!("{SHOP}/secrets"), "kept", &[]).await;
    delete_shop(&cluster).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    let (status, message) = condition(&cluster, "NamespaceDeletionContentFailure");
    assert_eq!(status, "True");
    let expected = "Failed to delete all resource types, 1 remaining: a webhook \
                    says no";
    assert_eq!(message, expected);
    assert_eq!(waits_for(&daemon), "errors");
    assert!(!is_gone(&cluster));
}

#[tokio::test(start_paused = true)]
async fn a_daemon_whose_list_names_all_leaves_namespaces_alone() {
    let cluster = Cluster::without_collectors(Faults::default()).await;
    let daemon = cluster.start_controllers(1);
    delete_shop(&cluster).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(!is_gone(&cluster));
    assert_eq!(requests(&cluster, |it| it.kind == "Namespace"), [], "not even a watch");
    assert!(!daemon.metrics.render().contains("name=\"namespace-controller\""));
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_is_deleted_and_created_over_and_over_never_loses_what_is_in_the_living_one() {
    let (cluster, _daemon) = cluster(0, Faults::default()).await;
    for round in 0..20 {
        create_map(&cluster, "precious", &[]).await;
        tokio::time::sleep(Duration::from_millis(37 * round)).await;
        assert_eq!(cluster.objects("ConfigMap").len(), 1, "round {round}");
        delete_shop(&cluster).await;
        cluster.eventually(3, "the namespace is gone", is_gone).await;
        cluster.call(Method::POST, "/api/v1/namespaces", &json!({"metadata": {"name": "shop"}})).await;
    }
}

#[tokio::test(start_paused = true)]
async fn deleted_namespaces_beside_living_ones_are_the_only_ones_that_are_touched() {
    let (cluster, _daemon) = cluster(0, Faults::default()).await;
    for name in ["kept", "gone-1", "gone-2"] {
        cluster.call(Method::POST, "/api/v1/namespaces", &json!({"metadata": {"name": name}})).await;
        let map = json!({"metadata": {"name": "settings"}});
        cluster.call(Method::POST, &format!("/api/v1/namespaces/{name}/configmaps"), &map).await;
    }
    for name in ["gone-1", "gone-2"] {
        cluster.call(Method::DELETE, &format!("/api/v1/namespaces/{name}"), &Value::Null).await;
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    let left = cluster.sandbox.objects("ConfigMap");
    let places: Vec<&Value> = left.iter().map(|map| &map["metadata"]["namespace"]).collect();
    assert_eq!(places, ["kept"]);
    let strays = requests(&cluster, |it| {
        !it.namespace.starts_with("gone-")
            && !matches!(it.verb, "get" | "watch")
            && it.kind != "Namespace"
            && it.verb.starts_with("delete")
    });
    assert_eq!(strays, []);
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_was_deleted_while_no_daemon_ran_goes_when_one_starts() {
    let cluster = Cluster::without_collectors(Faults::default()).await;
    create_map(&cluster, "one", &[]).await;
    delete_shop(&cluster).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let daemon = cluster.start_with(1, config(0), |router| router);
    cluster.eventually(3, "the namespace is gone", is_gone).await;
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn lost_answers_and_lost_requests_delay_the_end_and_change_nothing_else() {
    for lost in [FaultDecision::LoseReply, FaultDecision::LoseRequest] {
        let count = std::sync::atomic::AtomicUsize::new(0);
        let faults = inject_faults(move |request| {
            let is_ours = request.user_agent == USER_AGENT && request.verb != "watch";
            // One in eleven requests of the daemon; rounds do not have that length.
            let number = count.fetch_add(usize::from(is_ours), std::sync::atomic::Ordering::Relaxed);
            if is_ours && number % 11 == 4 { lost.clone() } else { FaultDecision::Proceed }
        });
        let (cluster, _daemon) = cluster(0, faults).await;
        create_map(&cluster, "one", &[]).await;
        create(&cluster, &format!("{SHOP}/secrets"), "two", &[]).await;
        cluster.call(Method::POST, "/api/v1/namespaces", &json!({"metadata": {"name": "kept"}})).await;
        let map = json!({"metadata": {"name": "settings"}});
        cluster.call(Method::POST, "/api/v1/namespaces/kept/configmaps", &map).await;
        delete_shop(&cluster).await;
        // With a third of some 30 requests lost hardly a round is without an error: what has failed is tried again.
        cluster
            .eventually(600, "the namespace is gone, or empty", |c| {
                is_gone(c) || (c.objects("ConfigMap").is_empty() && c.objects("Secret").is_empty())
            })
            .await;
        assert_eq!(cluster.sandbox.objects("ConfigMap").len(), 1, "the living namespace keeps what it has");
    }
}

#[tokio::test(start_paused = true)]
async fn of_two_daemons_the_second_goes_on_where_the_first_was_killed() {
    for after in [50, 300, 600, 1100] {
        let cluster = Cluster::without_collectors(Faults::default()).await;
        let first = cluster.start_with(1, config(0), |router| router);
        fill(&cluster).await;
        delete_shop(&cluster).await;
        tokio::time::sleep(Duration::from_millis(after)).await;
        first.kill();
        let _second = cluster.start_with(2, config(0), |router| router);
        cluster.eventually(5, "the namespace is gone", is_gone).await;
        assert_eq!(cluster.objects("Secret"), Vec::<Value>::new());
    }
}
