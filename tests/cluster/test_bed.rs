//! The small controllers of a test bed: accounts and certificates of namespaces, the protection of claims and volumes,
//! aggregated roles.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use windlass::config::{ControllerConfig, Enabled};
use windlass_apiserver::{FaultDecision, RequestInfo};
use windlass_planner_testkit::objects::deployment;
use windlass_testkit::cluster::{Cluster, Daemon, USER_AGENT, is_request, unlimited};

fn test_bed(cluster: &Cluster) -> Daemon {
    let config = ControllerConfig { enabled: Enabled::all(), root_ca: "pem".into(), ..unlimited() };
    cluster.start_with(1, config, |router| router)
}

const DELETE: Value = Value::Null;

fn names(objects: &[Value]) -> Vec<&str> {
    objects.iter().filter_map(|object| object["metadata"]["name"].as_str()).collect()
}

fn named<'a>(objects: &'a [Value], name: &str) -> Option<&'a Value> {
    objects.iter().find(|object| object["metadata"]["name"] == name)
}

fn verbs(role: &str, cluster: &Cluster) -> Vec<String> {
    let roles = cluster.sandbox.objects("ClusterRole");
    let rules = named(&roles, role).and_then(|role| role["rules"].as_array()).cloned().unwrap_or_default();
    rules.iter().filter_map(|rule| rule["verbs"][0].as_str().map(str::to_owned)).collect()
}

#[tokio::test(start_paused = true)]
async fn each_namespace_has_its_account_and_gets_it_again() {
    let cluster = Cluster::new().await;
    let daemon = test_bed(&cluster);
    let accounts = |c: &Cluster| {
        let all = c.sandbox.objects("ServiceAccount");
        all.iter().filter(|account| account["metadata"]["name"] == "default").count()
    };
    cluster.eventually(5, "one in each", |c| accounts(c) == c.sandbox.objects("Namespace").len()).await;
    cluster.call(Method::POST, "/api/v1/namespaces", &json!({"metadata": {"name": "later"}})).await;
    cluster.eventually(1, "one in a new one", |c| accounts(c) == c.sandbox.objects("Namespace").len()).await;
    let path = "/api/v1/namespaces/shop/serviceaccounts/default";
    cluster.call(Method::DELETE, path, &DELETE).await;
    cluster.eventually(1, "created again", |c| !c.objects("ServiceAccount").is_empty()).await;
    let other = json!({"metadata": {"name": "builder"}});
    cluster.call(Method::POST, "/api/v1/namespaces/shop/serviceaccounts", &other).await;
    cluster.call(Method::DELETE, "/api/v1/namespaces/shop/serviceaccounts/builder", &DELETE).await;
    let writes = cluster.writes();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(cluster.writes(), writes, "other accounts are not ours");
    assert!(daemon.metrics.render().contains("workqueue_adds_total{name=\"serviceaccount\"}"));
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_daemon_that_has_ended_has_freed_all_that_it_held() {
    for is_killed in [false, true] {
        let cluster = Cluster::new().await;
        let daemon = test_bed(&cluster);
        cluster.create(deployment("web").replicas(2)).await;
        cluster.rolled_out("web").await;
        // Every part of a daemon counts something.
        let metrics = Arc::downgrade(&daemon.metrics);
        if is_killed {
            daemon.kill();
        } else {
            daemon.stop().await;
        }
        cluster.eventually(30, "it is freed", |_| metrics.strong_count() == 0).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_namespace_ends_with_its_account_and_its_certificate() {
    let cluster = Cluster::new().await;
    let daemon = test_bed(&cluster);
    cluster.eventually(5, "the account", |c| c.objects("ServiceAccount").len() == 1).await;
    cluster.call(Method::DELETE, "/api/v1/namespaces/shop", &DELETE).await;
    cluster.eventually(60, "it is gone", |c| !names(&c.sandbox.objects("Namespace")).contains(&"shop")).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(cluster.objects("ServiceAccount").len() + cluster.objects("ConfigMap").len(), 0);
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_certificate_of_the_ca_is_published_repaired_and_published_again() {
    let cluster = Cluster::new().await;
    // It exists already, with something else in it.
    let maps = "/api/v1/namespaces/shop/configmaps";
    let path = format!("{maps}/kube-root-ca.crt");
    let wrong = json!({"metadata": {"name": "kube-root-ca.crt"}, "data": {"ca.crt": "old", "more": "1"}});
    cluster.call(Method::POST, maps, &wrong).await;
    let daemon = test_bed(&cluster);
    let is_right = |c: &Cluster| {
        let maps = c.objects("ConfigMap");
        named(&maps, "kube-root-ca.crt").is_some_and(|map| {
            map["data"] == json!({"ca.crt": "pem"})
                && map["metadata"]["annotations"]["kubernetes.io/description"].is_string()
        })
    };
    cluster.eventually(5, "repaired", is_right).await;
    let described = json!({"metadata": {"annotations": {"kubernetes.io/description": null}}});
    for change in [json!({"data": {"ca.crt": "forged"}}), json!({"data": {"x": "y"}}), described] {
        cluster.call(Method::PATCH, &path, &change).await;
        cluster.eventually(1, "repaired again", is_right).await;
    }
    cluster.call(Method::DELETE, &path, &DELETE).await;
    cluster.eventually(1, "published again", is_right).await;
    let everywhere =
        |c: &Cluster| c.sandbox.objects("ConfigMap").len() == c.sandbox.objects("Namespace").len();
    cluster.eventually(1, "in each namespace", everywhere).await;
    let metrics = daemon.metrics.render();
    for name in ["root_ca_cert_publisher_sync_total", "root_ca_cert_publisher_sync_duration_seconds_count"] {
        assert!(metrics.contains(&format!("{name}{{code=\"200\"}}")), "{name} is not in\n{metrics}");
    }
    daemon.stop().await;
}

fn claim(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"],
           "resources": {"requests": {"storage": "1Gi"}}}})
}

#[tokio::test(start_paused = true)]
async fn a_claim_outlives_the_pods_that_use_it() {
    let cluster = Cluster::new().await;
    let daemon = test_bed(&cluster);
    let (claims, pods) = ("/api/v1/namespaces/shop/persistentvolumeclaims", "/api/v1/namespaces/shop/pods");
    let pod = |name: &str, claim: &str| {
        json!({"metadata": {"name": name}, "spec": {
            "containers": [{"name": "c", "image": "app:v1"}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]}})
    };
    for name in ["used", "unused"] {
        cluster.call(Method::POST, claims, &claim(name)).await;
    }
    cluster.call(Method::POST, pods, &pod("db-0", "used")).await;
    let runs = |c: &Cluster| c.objects("Pod").iter().any(|pod| pod["status"]["phase"] == "Running");
    cluster.eventually(10, "the pod runs", runs).await;
    for name in ["used", "unused"] {
        cluster.call(Method::DELETE, &format!("{claims}/{name}"), &DELETE).await;
    }
    cluster.eventually(1, "the unused one goes", |c| c.objects("PersistentVolumeClaim").len() == 1).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(names(&cluster.objects("PersistentVolumeClaim")), ["used"]);
    cluster.call(Method::DELETE, &format!("{pods}/db-0"), &DELETE).await;
    cluster
        .eventually(10, "the other one follows its pod", |c| c.objects("PersistentVolumeClaim").is_empty())
        .await;

    // The last look is past the cache.
    daemon.stop().await;
    let log = cluster.log.lock().unwrap();
    let ours: Vec<_> = log.iter().filter(|request| request.user_agent == USER_AGENT).collect();
    let at = |verb: &str, kind: &str| {
        ours.iter().rposition(|request| request.verb == verb && request.kind == kind).unwrap()
    };
    let (list, patch) = (at("list", "Pod"), at("patch", "PersistentVolumeClaim"));
    assert!(list < patch, "{} before {}", list, patch);
    assert_eq!(ours[list].namespace, "shop");
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_was_created_without_protection_gets_it_and_keeps_other_finalizers() {
    let cluster = Cluster::new().await;
    let claims = "/api/v1/namespaces/shop/persistentvolumeclaims";
    cluster.call(Method::POST, claims, &claim("data")).await;
    let path = format!("{claims}/data");
    let finalizers = |list: Value| json!({"metadata": {"finalizers": list}});
    cluster.call(Method::PATCH, &path, &finalizers(json!(["example.com/backup"]))).await;
    let daemon = test_bed(&cluster);
    let are = |c: &Cluster, expected: Value| {
        let claims = c.objects("PersistentVolumeClaim");
        claims.first().is_some_and(|claim| claim["metadata"]["finalizers"] == expected)
    };
    let both = json!(["example.com/backup", "kubernetes.io/pvc-protection"]);
    cluster.eventually(5, "it is protected", |c| are(c, both.clone())).await;
    cluster.call(Method::DELETE, &path, &DELETE).await;
    cluster.eventually(5, "the other one stays", |c| are(c, json!(["example.com/backup"]))).await;
    cluster.call(Method::PATCH, &path, &finalizers(json!([]))).await;
    assert_eq!(cluster.objects("PersistentVolumeClaim").len(), 0);
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_volume_is_deleted_once_it_is_not_bound() {
    let cluster = Cluster::new().await;
    let daemon = test_bed(&cluster);
    let volumes = "/api/v1/persistentvolumes";
    let volume = json!({"metadata": {"name": "disk"}, "spec": {"capacity": {"storage": "1Gi"},
                        "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/data"}}});
    cluster.call(Method::POST, volumes, &volume).await;
    let status = async |phase: &str| {
        let patch = json!({"status": {"phase": phase}});
        cluster.call(Method::PATCH, &format!("{volumes}/disk/status"), &patch).await;
    };
    status("Bound").await;
    cluster.call(Method::DELETE, &format!("{volumes}/disk"), &DELETE).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(cluster.sandbox.objects("PersistentVolume").len(), 1);
    status("Released").await;
    cluster.eventually(1, "it goes", |c| c.sandbox.objects("PersistentVolume").is_empty()).await;
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_role_follows_the_roles_that_it_aggregates() {
    let cluster = Cluster::new().await;
    let daemon = test_bed(&cluster);
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let part = |name: &str, verb: &str| {
        json!({"metadata": {"name": name, "labels": {"to-view": "true"}},
               "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": [verb]}]})
    };
    let view = json!({"metadata": {"name": "view"}, "rules": null,
                      "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"to-view": "true"}}]}});
    cluster.call(Method::POST, roles, &part("b", "list")).await;
    cluster.call(Method::POST, roles, &view).await;
    cluster.eventually(5, "one part", |c| verbs("view", c) == ["list"]).await;
    cluster.call(Method::POST, roles, &part("a", "get")).await;
    cluster.call(Method::POST, roles, &part("c", "list")).await;
    cluster.eventually(1, "each rule once, by name", |c| verbs("view", c) == ["get", "list"]).await;
    let another = json!({"metadata": {"labels": {"to-view": "false"}}});
    cluster.call(Method::PATCH, &format!("{roles}/a"), &another).await;
    cluster.eventually(1, "one is left out", |c| verbs("view", c) == ["list"]).await;
    for name in ["b", "c"] {
        cluster.call(Method::DELETE, &format!("{roles}/{name}"), &DELETE).await;
    }
    cluster.eventually(1, "none is left", |c| verbs("view", c).is_empty()).await;
    // Rules that somebody else writes into it do not stay.
    let forged = json!({"rules": part("x", "delete")["rules"]});
    cluster.call(Method::PATCH, &format!("{roles}/view"), &forged).await;
    cluster.eventually(1, "it is undone", |c| verbs("view", c).is_empty()).await;
    assert!(daemon.metrics.render().contains("workqueue_adds_total{name=\"ClusterRoleAggregator\"}"));
    daemon.stop().await;
}

/// How often the controllers have tried to create the account of a namespace.
fn attempts(cluster: &Cluster, namespace: &str) -> usize {
    let log = cluster.log.lock().unwrap();
    let is_one = |request: &&RequestInfo| {
        is_request(request, "create", "ServiceAccount") && request.namespace == namespace
    };
    log.iter().filter(is_one).count()
}

#[tokio::test(start_paused = true)]
async fn an_account_that_another_client_created_first_is_as_good() {
    let cluster = Cluster::answering(|request| match is_request(request, "create", "ServiceAccount") {
        true => FaultDecision::Refuse {
            code: 409,
            message: "serviceaccounts \"default\" already exists".into(),
            reason: "AlreadyExists".into(),
        },
        false => FaultDecision::Proceed,
    })
    .await;
    let daemon = test_bed(&cluster);
    let accounts = "/api/v1/namespaces/shop/serviceaccounts";
    cluster.call(Method::POST, accounts, &json!({"metadata": {"name": "default"}})).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let before = attempts(&cluster, "shop");
    cluster.call(Method::DELETE, &format!("{accounts}/default"), &DELETE).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(attempts(&cluster, "shop"), before + 1, "it is not tried again");
    let metrics = daemon.metrics.render();
    assert!(!metrics.contains("windlass_sync_errors_total{name=\"serviceaccount\""), "{metrics}");
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_ends_while_its_account_is_created_is_no_error() {
    let late = |request: &RequestInfo| request.namespace == "late";
    let cluster = Cluster::answering(move |request| {
        match is_request(request, "create", "ServiceAccount") && late(request) {
            true => FaultDecision::Delay(Duration::from_secs(5)),
            false => FaultDecision::Proceed,
        }
    })
    .await;
    let daemon = test_bed(&cluster);
    cluster.eventually(5, "the others", |c| !c.objects("ServiceAccount").is_empty()).await;
    cluster.call(Method::POST, "/api/v1/namespaces", &json!({"metadata": {"name": "late"}})).await;
    let held = json!({"metadata": {"name": "held", "finalizers": ["example.com/hold"]}});
    cluster.call(Method::POST, "/api/v1/namespaces/late/configmaps", &held).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let before = attempts(&cluster, "late");
    cluster.call(Method::DELETE, "/api/v1/namespaces/late/serviceaccounts/default", &DELETE).await;
    cluster.eventually(1, "it is on its way", |c| attempts(c, "late") == before + 1).await;
    cluster.call(Method::DELETE, "/api/v1/namespaces/late", &DELETE).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    let namespaces = cluster.sandbox.objects("Namespace");
    assert_eq!(named(&namespaces, "late").unwrap()["status"]["phase"], "Terminating");
    assert_eq!(attempts(&cluster, "late"), before + 1);
    let metrics = daemon.metrics.render();
    assert!(!metrics.contains("windlass_sync_errors_total{name=\"serviceaccount\""), "{metrics}");
    daemon.stop().await;
}

/// The daemon must get by without rights to what only these controllers need.
#[tokio::test(start_paused = true)]
async fn kinds_of_controllers_that_are_off_by_default_are_not_even_listed() {
    let cluster = Cluster::new().await;
    let daemon = cluster.start_controllers(1);
    cluster.create(deployment("web").replicas(2)).await;
    cluster.rolled_out("web").await;
    let metrics = daemon.metrics.render();
    assert!(!metrics.contains("name=\"serviceaccount-controller\""), "{metrics}");
    daemon.stop().await;
    let log = cluster.log.lock().unwrap();
    let ours = log.iter().filter(|request| request.user_agent == USER_AGENT);
    let mut kinds: Vec<&str> = ours.map(|request| request.kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let expected = [
        "ControllerRevision",
        "CronJob",
        "DaemonSet",
        "Deployment",
        "Event",
        "Job",
        // That of kube-controller-manager is read.
        "Lease",
        "Node",
        "PersistentVolumeClaim",
        "Pod",
        "ReplicaSet",
        "ReplicationController",
        "StatefulSet",
    ];
    assert_eq!(kinds, expected);
}
