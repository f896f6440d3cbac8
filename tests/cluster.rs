//! The real app against the sandbox, in virtual time: what the API server's answers matter for.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::Method;
use kube::Client;
use serde_json::{Value, json};
use support::build::deployment;
use support::cluster::{Cluster, Faults, condition};
use windlass::sandbox::{Hook, RequestInfo, Verdict};

const SETS: &str = "/apis/apps/v1/namespaces/shop/replicasets";
const PODS: &str = "/api/v1/namespaces/shop/pods";

#[tokio::test(start_paused = true)]
async fn a_deployment_comes_up_rolls_and_goes_back() {
    let cluster = Cluster::new().await;
    let _daemon = cluster.start_controllers(1);
    cluster.create(deployment("web").replicas(3)).await;
    cluster.rolled_out("web").await;
    assert_eq!(cluster.objects("Pod").len(), 3);

    cluster.set_image("web", "v2").await;
    cluster.rolled_out("web").await;
    cluster.set_image("web", "v1").await;
    cluster.rolled_out("web").await;

    let sets = cluster.objects("ReplicaSet");
    assert_eq!(sets.len(), 2, "the old set is used again");
    let web = cluster.deployment("web");
    assert_eq!(web["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "3");
    assert_eq!(condition(&web, "Available"), "MinimumReplicasAvailable");
}

#[tokio::test(start_paused = true)]
async fn a_settled_cluster_is_left_alone() {
    let cluster = Cluster::new().await;
    let daemon = cluster.start_controllers(1);
    cluster.create(deployment("web").replicas(3)).await;
    cluster.rolled_out("web").await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let settled = cluster.writes().len();

    cluster.sandbox.compact();
    cluster.sandbox.break_watches();
    tokio::time::sleep(Duration::from_secs(600)).await;
    daemon.stop().await;
    let _again = cluster.start_controllers(2);
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(cluster.writes()[settled..], [] as [String; 0], "L4: nothing to do, nothing written");
}

#[tokio::test(start_paused = true)]
async fn a_plain_rollout_meets_no_conflict_and_wastes_no_call() {
    let cluster = Cluster::new().await;
    let daemon = cluster.start_controllers(1);
    cluster.create(deployment("web").replicas(3)).await;
    cluster.rolled_out("web").await;
    let conflicts = daemon.metrics.render();
    let conflicts: Vec<&str> = conflicts
        .lines()
        .filter(|l| l.starts_with("rest_client_requests_total") && l.contains("\"409\""))
        .collect();
    assert_eq!(conflicts, [] as [&str; 0]);
    let of = |verb: &str| cluster.writes().iter().filter(|w| w.starts_with(verb)).count();
    assert_eq!(
        (of("create ReplicaSet"), of("create Pod"), of("delete")),
        (1, 3, 0),
        "{:?}",
        cluster.writes()
    );
}

#[tokio::test(start_paused = true)]
async fn a_daemon_killed_in_the_middle_is_taken_over_without_a_pod_too_many() {
    let cluster = Cluster::new().await;
    let first = cluster.start_controllers(1);
    cluster.create(deployment("web").replicas(6).surge(1).unavailable(0)).await;
    cluster.rolled_out("web").await;
    cluster.set_image("web", "v2").await;
    cluster
        .eventually(60, "two new pods are ready", |c| c.deployment("web")["status"]["updatedReplicas"] == 2)
        .await;
    first.kill();
    let _second = cluster.start_controllers(2);
    cluster.rolled_out("web").await;
    assert_eq!(cluster.pods_created(), 12, "six of each version, and not one twice");
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_taken_is_counted_as_a_collision_and_another_is_used() {
    let cluster = Cluster::new().await;
    // What the first name will be is seen by letting a Deployment take it, and go.
    let daemon = cluster.start_controllers(1);
    cluster.create(deployment("web").replicas(1)).await;
    cluster.rolled_out("web").await;
    let name = cluster.objects("ReplicaSet")[0]["metadata"]["name"].as_str().unwrap().to_string();
    cluster.call(Method::DELETE, "/apis/apps/v1/namespaces/shop/deployments/web", &Value::Null).await;
    cluster
        .eventually(60, "everything is gone", |c| {
            c.objects("Pod").is_empty() && c.objects("ReplicaSet").is_empty()
        })
        .await;
    daemon.stop().await;

    let other = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "other"}}, "template": {
            "metadata": {"labels": {"app": "other"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}}
    });
    cluster.call(Method::POST, SETS, &other).await;
    let _daemon = cluster.start_controllers(2);
    cluster.create(deployment("web").replicas(1)).await;
    cluster.rolled_out("web").await;
    assert_eq!(cluster.deployment("web")["status"]["collisionCount"], 1);
    assert_eq!(cluster.objects("ReplicaSet").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn orphans_that_match_are_adopted_and_what_stops_matching_is_released() {
    let cluster = Cluster::new().await;
    let _daemon = cluster.start_controllers(1);
    cluster.create(deployment("web").replicas(2)).await;
    cluster.rolled_out("web").await;

    let pod = cluster.objects("Pod")[0]["metadata"]["name"].as_str().unwrap().to_string();
    let path = format!("{PODS}/{pod}");
    cluster.call(Method::PATCH, &path, &json!({"metadata": {"labels": {"app": "debug"}}})).await;
    let released = |c: &Cluster| {
        c.objects("Pod")
            .iter()
            .any(|p| p["metadata"]["name"] == *pod && p["metadata"]["ownerReferences"].is_null())
    };
    cluster.eventually(10, "the pod is released", released).await;
    cluster.eventually(10, "and replaced", |c| c.objects("Pod").len() == 3).await;

    cluster.call(Method::PATCH, &path, &json!({"metadata": {"labels": {"app": "web"}}})).await;
    cluster.eventually(20, "one of three goes again", |c| c.objects("Pod").len() == 2).await;
    assert!(
        cluster.objects("Pod").iter().all(|p| p["metadata"]["ownerReferences"][0]["kind"] == "ReplicaSet")
    );
}

/// Runs `verdict` on the controllers' creations of pods, numbered from 0.
fn on_pod_creation(verdict: impl Fn(usize) -> Verdict + Send + Sync + 'static) -> Faults {
    let count = AtomicUsize::new(0);
    let hook: Hook = Arc::new(move |request: &RequestInfo| {
        if request.kind == "Pod" && request.verb == "create" && request.subresource.is_empty() {
            verdict(count.fetch_add(1, Ordering::SeqCst))
        } else {
            Verdict::Proceed
        }
    });
    Faults(Some(hook))
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_is_not_a_lost_pod() {
    let faults = on_pod_creation(|n| if n % 3 == 0 { Verdict::LoseReply } else { Verdict::Proceed });
    let cluster = Cluster::with(faults, |options| options).await;
    let _daemon = cluster.start_controllers(1);
    cluster.create(deployment("web").replicas(20)).await;
    cluster.rolled_out("web").await;
    assert_eq!(cluster.pods_created(), 20);
}

#[tokio::test(start_paused = true)]
async fn a_lost_request_is_sent_again() {
    let faults = on_pod_creation(|n| if n % 3 == 0 { Verdict::LoseRequest } else { Verdict::Proceed });
    let cluster = Cluster::with(faults, |options| options).await;
    let _daemon = cluster.start_controllers(1);
    cluster.create(deployment("web").replicas(20)).await;
    cluster.rolled_out("web").await;
    assert_eq!(cluster.pods_created(), 20);
}

#[tokio::test(start_paused = true)]
async fn a_refused_creation_shows_in_both_conditions_costs_one_call_a_try_and_goes_away() {
    let refuse =
        || Verdict::Refuse { code: 403, message: "exceeded quota: pods".into(), reason: "Forbidden".into() };
    let faults = on_pod_creation(move |n| if n < 6 { refuse() } else { Verdict::Proceed });
    let cluster = Cluster::with(faults, |options| options).await;
    let _daemon = cluster.start_controllers(1);
    cluster.create(deployment("web").replicas(10)).await;
    let failed = |c: &Cluster| condition(&c.deployment("web"), "ReplicaFailure") == "FailedCreate";
    cluster.eventually(5, "the Deployment shows the refusal", failed).await;
    cluster.rolled_out("web").await;
    assert_eq!(condition(&cluster.deployment("web"), "ReplicaFailure"), "");
    assert_eq!(condition(&cluster.objects("ReplicaSet")[0], "ReplicaFailure"), "");
    let creations = cluster.writes().iter().filter(|w| w.starts_with("create Pod")).count();
    assert_eq!(creations, 16, "six doomed calls, one a try, and ten pods");
}

#[tokio::test(start_paused = true)]
async fn a_server_without_streaming_lists_and_with_a_short_memory_will_do() {
    let cluster = Cluster::with(Faults::default(), |mut options| {
        options.streaming_lists = false;
        options.history = 3;
        options
    })
    .await;
    let _daemon = cluster.start_controllers(1);
    cluster.create(deployment("web").replicas(8)).await;
    cluster.rolled_out("web").await;
    cluster.set_image("web", "v2").await;
    cluster.rolled_out("web").await;
    cluster.eventually(60, "the old pods are gone", |c| c.objects("Pod").len() == 8).await;
}

#[tokio::test(start_paused = true)]
async fn the_deadline_is_noticed_when_it_is_due() {
    let broken: Hook = Arc::new(|request: &RequestInfo| {
        let status_of_pod = request.kind == "Pod" && request.subresource == "status";
        if status_of_pod { Verdict::LoseRequest } else { Verdict::Proceed }
    });
    let cluster = Cluster::with(Faults(Some(broken)), |options| options).await;
    let _daemon = cluster.start_controllers(1);
    cluster.create(deployment("web").replicas(1).deadline(30)).await;
    tokio::time::sleep(Duration::from_secs(29)).await;
    assert_ne!(condition(&cluster.deployment("web"), "Progressing"), "ProgressDeadlineExceeded");
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(condition(&cluster.deployment("web"), "Progressing"), "ProgressDeadlineExceeded");
}

#[tokio::test(start_paused = true)]
async fn one_seed_gives_one_history() {
    let mut histories = Vec::new();
    for _ in 0..2 {
        let cluster = Cluster::new().await;
        let _daemon = cluster.start_controllers(7);
        cluster.create(deployment("web").replicas(5)).await;
        cluster.rolled_out("web").await;
        cluster.set_image("web", "v2").await;
        cluster.rolled_out("web").await;
        let names: Vec<String> =
            cluster.objects("Pod").iter().map(|p| p["metadata"]["name"].to_string()).collect();
        histories.push((cluster.writes(), names));
    }
    assert_eq!(histories[0], histories[1]);
}

#[tokio::test(start_paused = true)]
async fn a_rollback_by_annotation_changes_the_template_once_and_keeps_new_fields() {
    let cluster = Cluster::new().await;
    let _daemon = cluster.start_controllers(1);
    cluster.create(deployment("web").replicas(2).annotation("note", "first")).await;
    cluster.rolled_out("web").await;
    cluster.patch("web", json!({"metadata": {"annotations": {"note": "second"}}})).await;
    cluster.set_image("web", "v2").await;
    cluster.rolled_out("web").await;

    let annotation =
        |value: &str| json!({"metadata": {"annotations": {"deprecated.deployment.rollback.to": value}}});
    cluster.patch("web", annotation("1")).await;
    let back = |c: &Cluster| {
        let web = c.deployment("web");
        web["spec"]["template"]["spec"]["containers"][0]["image"] == "app:v1"
            && web["metadata"]["annotations"]["deprecated.deployment.rollback.to"].is_null()
    };
    cluster.eventually(10, "the template is the old one and the request is cleared", back).await;
    cluster.rolled_out("web").await;
    let web = cluster.deployment("web");
    assert_eq!(web["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "3");
    assert!(web["spec"]["template"]["metadata"]["labels"]["pod-template-hash"].is_null());
    assert_eq!(cluster.objects("ReplicaSet").len(), 2);

    cluster.patch("web", annotation("99")).await;
    let cleared = |c: &Cluster| {
        c.deployment("web")["metadata"]["annotations"]["deprecated.deployment.rollback.to"].is_null()
    };
    cluster.eventually(10, "a revision that is not there is cleared too", cleared).await;
    let told =
        |c: &Cluster| c.objects("Event").iter().any(|e| e["reason"] == "DeploymentRollbackRevisionNotFound");
    cluster.eventually(10, "and an event says so", told).await;
}

#[tokio::test(start_paused = true)]
async fn a_step_that_is_refused_shows_in_the_condition_and_is_tried_again() {
    let refusals = Arc::new(AtomicUsize::new(0));
    let count = refusals.clone();
    let hook: Hook = Arc::new(move |request: &RequestInfo| {
        let scales =
            request.kind == "ReplicaSet" && request.verb == "patch" && request.subresource.is_empty();
        if scales && count.fetch_add(1, Ordering::SeqCst) < 8 {
            Verdict::Refuse { code: 403, message: "policy says no".into(), reason: "Forbidden".into() }
        } else {
            Verdict::Proceed
        }
    });
    let cluster = Cluster::with(Faults(Some(hook)), |options| options).await;
    let _daemon = cluster.start_controllers(1);
    cluster.create(deployment("web").replicas(2)).await;
    cluster.rolled_out("web").await;
    cluster.patch("web", json!({"spec": {"replicas": 4}})).await;
    let shown = |c: &Cluster| condition(&c.deployment("web"), "ReplicaFailure") == "FailedScale";
    cluster.eventually(5, "the Deployment shows the refusal", shown).await;
    cluster.rolled_out("web").await;
    assert_eq!(condition(&cluster.deployment("web"), "ReplicaFailure"), "");
}

#[tokio::test(start_paused = true)]
async fn a_webhook_that_changes_every_new_set_does_not_make_sets_for_ever() {
    let cluster = Cluster::new().await;
    let _daemon = cluster.start_controllers(1);
    // As near to a mutating webhook as one gets from outside: each new set is changed at once.
    let webhook = Client::new(cluster.sandbox.router(), "default");
    let sandbox = cluster.sandbox.clone();
    let meddler = tokio::spawn(async move {
        loop {
            for set in sandbox.objects("ReplicaSet") {
                if set["spec"]["template"]["metadata"]["annotations"]["injected"].is_null() {
                    let path = format!("{SETS}/{}", set["metadata"]["name"].as_str().unwrap());
                    let patch =
                        json!({"spec": {"template": {"metadata": {"annotations": {"injected": "yes"}}}}});
                    let request =
                        http::Request::patch(path).header("content-type", "application/merge-patch+json");
                    let _ =
                        webhook.request::<Value>(request.body(patch.to_string().into_bytes()).unwrap()).await;
                }
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    cluster.create(deployment("web").replicas(2)).await;
    let blocked = |c: &Cluster| {
        condition(&c.deployment("web"), "Progressing") == "ReplicaSetCreateError"
            && c.deployment("web")["status"]["conditions"].to_string().contains("mutating webhook")
    };
    cluster.eventually(60, "the Deployment says what is wrong", blocked).await;
    assert_eq!(cluster.objects("ReplicaSet").len(), 3);
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(cluster.objects("ReplicaSet").len(), 5, "one more after 10 minutes and after 20");
    let told = cluster.objects("Event").iter().any(|e| e["reason"] == "ReplicaSetCreateError");
    assert!(told);
    meddler.abort();
}
