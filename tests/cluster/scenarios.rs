//! The real app against the sandbox, in virtual time: what the API server's answers matter for. What needs
//! no sandbox to be seen is in `crates/testkit/src/scenarios.rs`, and holds on a real API server as well.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kube::Client;
use serde_json::{Value, json};
use windlass_apiserver::FaultDecision;
use windlass_planner_testkit::objects::deployment;
use windlass_testkit::cluster::{Cluster, Faults, condition, inject_faults};
use windlass_testkit::stage::Stage;
use windlass_testkit::{every_scenario, every_scenario_with_its_own_daemons, scenarios};

const REPLICA_SETS: &str = "/apis/apps/v1/namespaces/shop/replicasets";

/// Plays each scenario on a sandbox of its own.
macro_rules! on_sandbox {
    ($($name:ident)*) => {$(
        #[tokio::test(start_paused = true)]
        async fn $name() {
            let stage = Stage::on_sandbox().await;
            let _daemon = stage.start_controllers(1);
            scenarios::$name(&stage).await;
            stage.converges().await;
        }
    )*};
}

macro_rules! on_sandbox_with_its_own_daemons {
    ($($name:ident)*) => {$(
        #[tokio::test(start_paused = true)]
        async fn $name() {
            scenarios::$name(&Stage::on_sandbox().await).await;
        }
    )*};
}

every_scenario!(on_sandbox);
every_scenario_with_its_own_daemons!(on_sandbox_with_its_own_daemons);

#[tokio::test(start_paused = true)]
async fn nothing_is_written_to_a_settled_cluster() {
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

/// Runs `decision` on the controllers' creations of pods, numbered from 0.
fn on_pod_creation(decision: impl Fn(usize) -> FaultDecision + Send + Sync + 'static) -> Faults {
    let count = AtomicUsize::new(0);
    inject_faults(move |request| {
        if request.kind == "Pod" && request.verb == "create" && request.subresource.is_empty() {
            decision(count.fetch_add(1, Ordering::SeqCst))
        } else {
            FaultDecision::Proceed
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_causes_no_duplicate_pod() {
    let faults =
        on_pod_creation(|n| if n % 3 == 0 { FaultDecision::LoseReply } else { FaultDecision::Proceed });
    let cluster = Cluster::with(faults, |options| options).await;
    let _daemon = cluster.start_controllers(1);
    cluster.create(deployment("web").replicas(20)).await;
    cluster.rolled_out("web").await;
    assert_eq!(cluster.pods_created(), 20);
}

#[tokio::test(start_paused = true)]
async fn a_lost_request_is_sent_again() {
    let faults =
        on_pod_creation(|n| if n % 3 == 0 { FaultDecision::LoseRequest } else { FaultDecision::Proceed });
    let cluster = Cluster::with(faults, |options| options).await;
    let _daemon = cluster.start_controllers(1);
    cluster.create(deployment("web").replicas(20)).await;
    cluster.rolled_out("web").await;
    assert_eq!(cluster.pods_created(), 20);
}

#[tokio::test(start_paused = true)]
async fn a_refused_creation_is_in_both_conditions_until_it_succeeds_and_costs_one_request_per_attempt() {
    let refuse = || FaultDecision::Refuse {
        code: 403,
        message: "exceeded quota: pods".into(),
        reason: "Forbidden".into(),
    };
    let faults = on_pod_creation(move |n| if n < 6 { refuse() } else { FaultDecision::Proceed });
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
async fn a_server_without_streaming_lists_and_with_a_short_history_suffices() {
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
async fn the_deadline_condition_is_written_when_the_deadline_passes() {
    let cluster = Cluster::answering(|request| {
        let status_of_pod = request.kind == "Pod" && request.subresource == "status";
        if status_of_pod { FaultDecision::LoseRequest } else { FaultDecision::Proceed }
    })
    .await;
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
async fn a_webhook_that_mutates_every_new_replica_set_does_not_cause_endless_creations() {
    let cluster = Cluster::new().await;
    let _daemon = cluster.start_controllers(1);
    // As near to a mutating webhook as one gets from outside: each new ReplicaSet is changed at once.
    let webhook = Client::new(cluster.sandbox.router(), "default");
    let sandbox = cluster.sandbox.clone();
    let meddler = tokio::spawn(async move {
        loop {
            for replica_set in sandbox.objects("ReplicaSet") {
                if replica_set["spec"]["template"]["metadata"]["annotations"]["injected"].is_null() {
                    let path =
                        format!("{REPLICA_SETS}/{}", replica_set["metadata"]["name"].as_str().unwrap());
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
    let has_event = cluster.objects("Event").iter().any(|e| e["reason"] == "ReplicaSetCreateError");
    assert!(has_event);
    meddler.abort();
}
