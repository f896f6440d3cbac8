//! Progress deadlines, and pods that are available only after some seconds.

use serde_json::{Value, json};

use super::super::objects::{deployment, replica_set, replication_controller};
use super::super::stage::Stage;

super::workloads! {
    a_deadline_is_exceeded_and_the_rollout_recovers,
    a_deadline_is_exceeded_and_another_image_comes,
    a_first_rollout_exceeds_its_deadline,
    no_deadline_runs_while_paused,
    without_a_deadline,
    a_ready_pod_is_lost_after_the_rollout,
    available_after_some_seconds,
    rolling_update_with_min_ready_seconds,
    min_ready_seconds_are_changed,
    min_ready_seconds_of_a_replica_set_and_a_replication_controller,
}

fn reason(s: &Stage, kind: &str) -> Value {
    let web = s.one("Deployment", "web");
    let all = web["status"]["conditions"].as_array().cloned().unwrap_or_default();
    all.iter().find(|it| it["type"] == kind).map_or(Value::Null, |it| it["reason"].clone())
}

async fn exceeded(s: &Stage) {
    s.until("the deadline is exceeded", 20, |s| reason(s, "Progressing") == "ProgressDeadlineExceeded").await;
}

async fn a_deadline_is_exceeded_and_the_rollout_recovers(s: &Stage) {
    s.create(deployment("web").replicas(2).rolling(1, 0).spec("progressDeadlineSeconds", 4)).await;
    s.come_up().await;
    s.image("web", "v2").await;
    s.rest().await;
    exceeded(s).await;
    s.roll().await;
}

async fn a_deadline_is_exceeded_and_another_image_comes(s: &Stage) {
    s.create(deployment("web").replicas(2).spec("progressDeadlineSeconds", 4)).await;
    s.come_up().await;
    s.image("web", "broken").await;
    s.come_up().await;
    exceeded(s).await;
    s.image("web", "v3").await;
    s.roll().await;
}

async fn a_first_rollout_exceeds_its_deadline(s: &Stage) {
    s.create(deployment("web").replicas(2).image("broken").spec("progressDeadlineSeconds", 4)).await;
    s.come_up().await;
    exceeded(s).await;
    s.scale("Deployment", "web", 3).await;
    s.rest().await;
}

async fn no_deadline_runs_while_paused(s: &Stage) {
    s.create(deployment("web").replicas(1).spec("progressDeadlineSeconds", 3)).await;
    s.rest().await;
    s.pause("web", true).await;
    s.rest().await;
    s.wait(5).await;
    s.pause("web", false).await;
    s.rest().await;
    exceeded(s).await;
    s.pause("web", true).await;
    s.rest().await;
    s.pause("web", false).await;
    s.come_up().await;
}

async fn without_a_deadline(s: &Stage) {
    s.create(deployment("web").replicas(1).spec("progressDeadlineSeconds", i32::MAX)).await;
    s.come_up().await;
    s.patch("Deployment", "web", json!({"spec": {"progressDeadlineSeconds": 100}})).await;
    s.rest().await;
    s.patch("Deployment", "web", json!({"spec": {"progressDeadlineSeconds": i32::MAX}})).await;
    s.rest().await;
}

async fn a_ready_pod_is_lost_after_the_rollout(s: &Stage) {
    s.create(deployment("web").replicas(3).spec("progressDeadlineSeconds", 4)).await;
    s.come_up().await;
    s.act("a pod is no longer ready");
    s.unready(&s.active()[0]).await;
    s.rest().await;
    s.wait(6).await;
    s.act("a second one, too");
    let ready = s.active().into_iter().find(|pod| pod.is_ready()).unwrap();
    s.unready(&ready).await;
    s.rest().await;
    s.act("all are ready");
    for pod in s.active() {
        s.ready(&pod).await;
    }
    s.rest().await;
}

async fn available_after_some_seconds(s: &Stage) {
    s.create(deployment("web").replicas(2).spec("minReadySeconds", 4)).await;
    s.come_up().await;
    s.until("all are available", 20, |s| s.one("Deployment", "web")["status"]["availableReplicas"] == 2)
        .await;
}

async fn rolling_update_with_min_ready_seconds(s: &Stage) {
    s.create(deployment("web").replicas(2).rolling(1, 0).spec("minReadySeconds", 3)).await;
    s.come_up().await;
    s.until("all are available", 20, |s| s.one("Deployment", "web")["status"]["availableReplicas"] == 2)
        .await;
    s.image("web", "v2").await;
    for available in 1..=2 {
        s.rest().await;
        s.act("a new pod is ready");
        let new = s.active().into_iter().find(|pod| !pod.is_ready()).unwrap();
        s.ready(&new).await;
        s.rest().await;
        s.until("it is available", 20, |s| {
            s.replica_sets_of("web")
                .last()
                .is_some_and(|replica_set| replica_set["status"]["availableReplicas"] == available)
        })
        .await;
    }
    s.end_terminating().await;
}

async fn min_ready_seconds_are_changed(s: &Stage) {
    s.create(deployment("web").replicas(2)).await;
    s.come_up().await;
    s.patch("Deployment", "web", json!({"spec": {"minReadySeconds": 500, "progressDeadlineSeconds": 600}}))
        .await;
    s.rest().await;
    s.patch("Deployment", "web", json!({"spec": {"minReadySeconds": 0}})).await;
    s.rest().await;
}

async fn min_ready_seconds_of_a_replica_set_and_a_replication_controller(s: &Stage) {
    s.create(replica_set("bare").replicas(3).spec("minReadySeconds", 3600)).await;
    s.create(replication_controller("old").replicas(3).spec("minReadySeconds", 3600)).await;
    s.rest().await;
    for app in ["bare", "old"] {
        let of = |s: &Stage| {
            let mut pods = s.active();
            pods.retain(|pod| pod.object["metadata"]["labels"]["app"] == app);
            pods
        };
        s.act(format!("of {app} one is ready, and one has been for two hours"));
        s.ready(&of(s)[0]).await;
        s.ready_since(&of(s)[1], 7200).await;
        s.rest().await;
    }
}
