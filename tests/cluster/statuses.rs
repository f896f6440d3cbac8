//! The content of a status, and its time: each field is present exactly where upstream's is, `observedGeneration` shows
//! which generation was acted on, and a lost pod is reported at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use windlass_apiserver::{FaultDecision, RequestInfo};
use windlass_planner_testkit::objects::deployment;
use windlass_testkit::cluster::{Cluster, Daemon, USER_AGENT, condition, forbidden};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/shop/deployments";
const REPLICA_SETS: &str = "/apis/apps/v1/namespaces/shop/replicasets";
const CONTROLLERS: &str = "/api/v1/namespaces/shop/replicationcontrollers";
const PODS: &str = "/api/v1/namespaces/shop/pods";
const S: Duration = Duration::from_secs(1);

/// A cluster that refuses what `is_meant` of the controllers' requests while the switch is on.
async fn refusing(is_meant: fn(&RequestInfo) -> bool) -> (Cluster, Arc<AtomicBool>) {
    let switch = Arc::new(AtomicBool::new(false));
    let on = switch.clone();
    let cluster = Cluster::answering(move |request| {
        let meant = request.user_agent == USER_AGENT && is_meant(request);
        if meant && on.load(Ordering::SeqCst) { forbidden("policy says no") } else { FaultDecision::Proceed }
    })
    .await;
    (cluster, switch)
}

fn only_replica_set(cluster: &Cluster) -> Value {
    let all = cluster.objects("ReplicaSet");
    assert_eq!(all.len(), 1);
    all[0].clone()
}

fn is_observed(object: &Value) -> bool {
    object["status"]["observedGeneration"] == object["metadata"]["generation"]
}

async fn running(replicas: i32) -> (Cluster, Daemon) {
    let cluster = Cluster::new().await;
    let daemon = cluster.start_controllers(1);
    cluster.create(deployment("web").replicas(replicas).surge(1).unavailable(0)).await;
    cluster.rolled_out("web").await;
    tokio::time::sleep(3 * S).await;
    (cluster, daemon)
}

/// Only the conditions that Windlass writes are cached; a status is patched by the types of its conditions.
#[tokio::test(start_paused = true)]
async fn conditions_that_others_write_survive_every_write_of_a_status() {
    let (cluster, _daemon) = running(2).await;
    let scanned = json!({"type": "acme.io/Scanned", "status": "True"});
    let set = only_replica_set(&cluster)["metadata"]["name"].as_str().unwrap().to_owned();
    let paths = [format!("{DEPLOYMENTS}/web"), format!("{REPLICA_SETS}/{set}")];
    for path in &paths {
        let mut object = cluster.call(Method::GET, path, &Value::Null).await;
        let conditions = &mut object["status"]["conditions"];
        *conditions =
            json!([conditions.as_array().cloned().unwrap_or_default(), vec![scanned.clone()]].concat());
        let status = json!({"status": {"conditions": conditions}});
        cluster.call(Method::PATCH, &format!("{path}/status"), &status).await;
    }
    cluster.patch("web", json!({"spec": {"replicas": 3}})).await;
    cluster.rolled_out("web").await;
    tokio::time::sleep(3 * S).await;
    for path in &paths {
        let object = cluster.call(Method::GET, path, &Value::Null).await;
        assert_eq!(object["status"]["availableReplicas"], 3, "{object:#}");
        assert!(object["status"]["conditions"].as_array().unwrap().contains(&scanned), "{object:#}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_scale_down_that_is_refused_is_not_reported_as_observed() {
    let resizes = |r: &RequestInfo| (r.verb, r.kind, r.subresource) == ("patch", "ReplicaSet", "");
    let (cluster, refuses) = refusing(resizes).await;
    let _daemon = cluster.start_controllers(1);
    cluster.create(deployment("web").replicas(3)).await;
    cluster.rolled_out("web").await;
    refuses.store(true, Ordering::SeqCst);
    cluster.patch("web", json!({"spec": {"replicas": 1}})).await;
    let says_so = |c: &Cluster| condition(&c.deployment("web"), "ReplicaFailure") == "FailedScale";
    cluster.eventually(5, "the refusal shows", says_so).await;
    for _ in 0..30 {
        tokio::time::sleep(S).await;
        let web = cluster.deployment("web");
        assert!(!is_observed(&web), "{}", web["status"]);
        assert_eq!(web["status"]["replicas"], 3, "the counts go on");
    }
    refuses.store(false, Ordering::SeqCst);
    cluster.eventually(70, "it is observed once it is acted on", |c| c.is_complete("web")).await;
}

#[tokio::test(start_paused = true)]
async fn a_replica_set_that_cannot_be_created_leaves_the_generation_unobserved() {
    let creates = |r: &RequestInfo| (r.verb, r.kind) == ("create", "ReplicaSet");
    let (cluster, refuses) = refusing(creates).await;
    let _daemon = cluster.start_controllers(1);
    cluster.create(deployment("web").replicas(2)).await;
    cluster.rolled_out("web").await;
    refuses.store(true, Ordering::SeqCst);
    cluster.set_image("web", "v2").await;
    let says_so = |c: &Cluster| condition(&c.deployment("web"), "Progressing") == "ReplicaSetCreateError";
    cluster.eventually(5, "the refusal shows", says_so).await;
    tokio::time::sleep(20 * S).await;
    assert!(!is_observed(&cluster.deployment("web")));
    refuses.store(false, Ordering::SeqCst);
    cluster.eventually(70, "it is rolled out", |c| c.is_complete("web")).await;
}

#[tokio::test(start_paused = true)]
async fn a_replica_set_whose_pods_cannot_be_deleted_reports_it_with_the_observed_generation() {
    let deletes = |r: &RequestInfo| (r.verb, r.kind) == ("delete", "Pod");
    let (cluster, refuses) = refusing(deletes).await;
    let _daemon = cluster.start_controllers(1);
    cluster.create(deployment("web").replicas(3)).await;
    cluster.rolled_out("web").await;
    refuses.store(true, Ordering::SeqCst);
    cluster.patch("web", json!({"spec": {"replicas": 1}})).await;
    let mut unobserved = 0;
    for _ in 0..100 {
        tokio::time::sleep(S / 10).await;
        let replica_set = only_replica_set(&cluster);
        let fails = condition(&replica_set, "ReplicaFailure") == "FailedDelete";
        assert!(
            !is_observed(&replica_set) || fails || replica_set["spec"]["replicas"] == 3,
            "{}",
            replica_set["status"]
        );
        unobserved += usize::from(!fails);
    }
    assert!(unobserved < 20, "it is said within seconds");
    refuses.store(false, Ordering::SeqCst);
    cluster.eventually(70, "it has shrunk", |c| c.is_complete("web")).await;
}

/// A quota leaves no room for a surge, and one pod less: the rollout needs the old pods' places.
#[tokio::test(start_paused = true)]
async fn a_rollout_completes_under_a_quota_that_refuses_each_surge() {
    for unavailable in [1, 2] {
        let sandbox: Arc<std::sync::OnceLock<windlass_apiserver::Sandbox>> = Arc::default();
        let inner = sandbox.clone();
        let cluster = Cluster::answering(move |request| {
            let alive =
                |pod: &Value| !matches!(pod["status"]["phase"].as_str(), Some("Failed" | "Succeeded"));
            let pods = || inner.get().map_or(0, |s| s.objects("Pod").iter().filter(|p| alive(p)).count());
            let matches =
                request.user_agent == USER_AGENT && (request.verb, request.kind) == ("create", "Pod");
            if matches && pods() >= 4 { forbidden("policy says no") } else { FaultDecision::Proceed }
        })
        .await;
        let _only_once = sandbox.set(cluster.sandbox.clone());
        let _daemon = cluster.start_controllers(1);
        cluster.create(deployment("web").replicas(4).surge(2).unavailable(unavailable)).await;
        cluster.rolled_out("web").await;
        cluster.set_image("web", "v2").await;
        let refused = |c: &Cluster| {
            c.objects("ReplicaSet")
                .iter()
                .any(|replica_set| !condition(replica_set, "ReplicaFailure").is_empty())
        };
        cluster.eventually(5, "pods are refused", refused).await;
        cluster.eventually(300, "it is rolled out all the same", |c| c.is_complete("web")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_observed_generation_raised_by_another_writer_is_corrected() {
    let (cluster, _daemon) = running(2).await;
    let template = json!({"metadata": {"labels": {"app": "elder"}},
                          "spec": {"containers": [{"name": "app", "image": "app:v1"}]}});
    let elder = json!({"apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": "elder"},
                       "spec": {"replicas": 1, "selector": {"app": "elder"}, "template": template}});
    cluster.call(Method::POST, CONTROLLERS, &elder).await;
    let has_one = |c: &Cluster| c.objects("ReplicationController")[0]["status"]["availableReplicas"] == 1;
    cluster.eventually(60, "the ReplicationController has its pod", has_one).await;
    tokio::time::sleep(3 * S).await;
    let replica_set = only_replica_set(&cluster)["metadata"]["name"].as_str().unwrap().to_owned();
    let raised = json!({"status": {"observedGeneration": 999}});
    for path in [
        format!("{DEPLOYMENTS}/web/status"),
        format!("{REPLICA_SETS}/{replica_set}/status"),
        format!("{CONTROLLERS}/elder/status"),
    ] {
        cluster.call(Method::PATCH, &path, &raised).await;
    }
    let right = |c: &Cluster| {
        let kinds = ["Deployment", "ReplicaSet", "ReplicationController"];
        kinds.iter().flat_map(|kind| c.objects(kind)).all(|object| is_observed(&object))
    };
    cluster.eventually(2, "all three are right again", right).await;
}

#[tokio::test(start_paused = true)]
async fn every_status_field_is_present_where_upstream_writes_it() {
    let fields = |object: &Value| {
        let status = object["status"].as_object().unwrap();
        status.keys().filter(|key| *key != "conditions").cloned().collect::<Vec<_>>().join(" ")
    };
    let (cluster, _daemon) = running(2).await;
    let full_replica_set = "availableReplicas fullyLabeledReplicas observedGeneration readyReplicas replicas terminatingReplicas";
    assert_eq!(fields(&only_replica_set(&cluster)), full_replica_set);
    assert_eq!(only_replica_set(&cluster)["status"]["terminatingReplicas"], 0);
    let full =
        "availableReplicas observedGeneration readyReplicas replicas terminatingReplicas updatedReplicas";
    assert_eq!(fields(&cluster.deployment("web")), full);
    assert_eq!(cluster.deployment("web")["status"]["terminatingReplicas"], 0);

    cluster.patch("web", json!({"spec": {"replicas": 0}})).await;
    cluster.rolled_out("web").await;
    let ended = |c: &Cluster| c.deployment("web")["status"]["terminatingReplicas"] == 0;
    tokio::time::sleep(60 * S).await;
    assert!(ended(&cluster));
    assert_eq!(fields(&only_replica_set(&cluster)), "observedGeneration replicas terminatingReplicas");
    assert_eq!(only_replica_set(&cluster)["status"]["replicas"], 0);
    assert_eq!(fields(&cluster.deployment("web")), "observedGeneration terminatingReplicas");

    let template = json!({"metadata": {"labels": {"app": "elder"}},
                          "spec": {"containers": [{"name": "app", "image": "app:v1"}]}});
    let elder = json!({"apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": "elder"},
                       "spec": {"replicas": 0, "selector": {"app": "elder"}, "template": template}});
    cluster.call(Method::POST, CONTROLLERS, &elder).await;
    tokio::time::sleep(5 * S).await;
    assert_eq!(fields(&cluster.objects("ReplicationController")[0]), "observedGeneration replicas");
}

/// Pods that take their time to end: the sum of the Deployment is that of its ReplicaSets at each moment, and
/// never an absent one in the middle of a rollout.
#[tokio::test(start_paused = true)]
async fn terminating_pods_are_counted_throughout_a_rollout() {
    let (cluster, _daemon) = running(3).await;
    cluster.set_image("web", "v2").await;
    let mut most = 0;
    for _ in 0..600 {
        tokio::time::sleep(S / 10).await;
        let terminating = &cluster.deployment("web")["status"]["terminatingReplicas"];
        most = most.max(terminating.as_i64().expect("it is never absent"));
        for replica_set in cluster.objects("ReplicaSet") {
            let (observed, counted) =
                (&replica_set["status"]["observedGeneration"], &replica_set["status"]["terminatingReplicas"]);
            assert_eq!(observed.is_null(), counted.is_null(), "{}", replica_set["status"]);
        }
    }
    assert!(most > 0 && cluster.is_complete("web"));
    assert_eq!(cluster.deployment("web")["status"]["terminatingReplicas"], 0);
}

/// A ReplicaSet that another controller manager has left without the count, as those before 1.35 do.
#[tokio::test(start_paused = true)]
async fn a_count_of_terminating_pods_that_is_missing_is_added() {
    let (cluster, daemon) = running(2).await;
    daemon.stop().await;
    let replica_set = only_replica_set(&cluster)["metadata"]["name"].as_str().unwrap().to_owned();
    let without = json!({"status": {"terminatingReplicas": null}});
    for path in [format!("{DEPLOYMENTS}/web/status"), format!("{REPLICA_SETS}/{replica_set}/status")] {
        cluster.call(Method::PATCH, &path, &without).await;
    }
    assert!(only_replica_set(&cluster)["status"]["terminatingReplicas"].is_null());
    let _next = cluster.start_controllers(2);
    let counted = |c: &Cluster| {
        [only_replica_set(c), c.deployment("web")].iter().all(|o| o["status"]["terminatingReplicas"] == 0)
    };
    cluster.eventually(30, "both say 0", counted).await;
}

async fn is_not_ready(cluster: &Cluster, pod: &Value) {
    let path = format!("{PODS}/{}/status", pod["metadata"]["name"].as_str().unwrap());
    let body = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    cluster.call(Method::PATCH, &path, &body).await;
}

#[tokio::test(start_paused = true)]
async fn a_complete_deployment_that_loses_pods_reports_it_at_once_each_time() {
    let (cluster, _daemon) = running(5).await;
    let pods = cluster.objects("Pod");
    for (lost, pod) in pods.iter().take(3).enumerate() {
        is_not_ready(&cluster, pod).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        let left = 4 - lost as u64;
        for object in [only_replica_set(&cluster), cluster.deployment("web")] {
            let (ready, available) =
                (&object["status"]["readyReplicas"], &object["status"]["availableReplicas"]);
            assert_eq!((ready, available), (&json!(left), &json!(left)), "{}", object["kind"]);
        }
        assert!(!cluster.is_complete("web"));
    }
}

#[tokio::test(start_paused = true)]
async fn pods_that_become_ready_within_a_second_are_still_reported_together() {
    let (cluster, _daemon) = running(5).await;
    for pod in cluster.objects("Pod") {
        is_not_ready(&cluster, &pod).await;
    }
    tokio::time::sleep(3 * S).await;
    let statuses = |c: &Cluster| c.writes().iter().filter(|w| w.ends_with("/status")).count();
    let before = statuses(&cluster);
    let now = cluster.clock.now().to_string();
    for pod in cluster.objects("Pod") {
        let path = format!("{PODS}/{}/status", pod["metadata"]["name"].as_str().unwrap());
        let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": now});
        cluster.call(Method::PATCH, &path, &json!({"status": {"conditions": [ready]}})).await;
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
    cluster.eventually(5, "it is complete again", |c| c.is_complete("web")).await;
    let written = statuses(&cluster) - before;
    assert!(written <= 5, "{written} statuses for five pods");
}
