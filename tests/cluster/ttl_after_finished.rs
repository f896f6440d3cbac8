//! The TTL-after-finished controller against the embedded API server, in virtual time.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use windlass::config::{ControllerConfig, Enabled};
use windlass_testkit::cluster::{Cluster, Daemon, unlimited};

const JOBS: &str = "/apis/batch/v1/namespaces/shop/jobs";

fn start(cluster: &Cluster, seed: u64) -> Daemon {
    let config = ControllerConfig { enabled: Enabled::all(), root_ca: "pem".into(), ..unlimited() };
    cluster.start_with(seed, config, |router| router)
}

async fn create(cluster: &Cluster, outcome: &str, ttl: Value) {
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"},
        "spec": {"ttlSecondsAfterFinished": ttl, "backoffLimit": 0, "template": {
            "metadata": {"annotations": {"windlass.dev/pod-outcome": outcome}},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "job:v1"}]},
        }},
    });
    cluster.call(Method::POST, JOBS, &job).await;
}

fn end_of(cluster: &Cluster) -> Option<Value> {
    let jobs = cluster.objects("Job");
    let conditions = jobs.first()?["status"]["conditions"].as_array()?.clone();
    let ended = conditions.into_iter().find(|c| c["type"] == "Complete" || c["type"] == "Failed")?;
    Some(ended["lastTransitionTime"].clone())
}

async fn seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn a_finished_job_is_deleted_with_its_pods_when_its_time_is_over() {
    for outcome in ["exit:0,after:2s", "exit:1,after:2s"] {
        let cluster = Cluster::new().await;
        let daemon = start(&cluster, 1);
        create(&cluster, outcome, json!(30)).await;
        cluster.eventually(20, "the Job ends", |cluster| end_of(cluster).is_some()).await;
        seconds(28).await;
        assert_eq!(cluster.objects("Job").len(), 1, "{outcome}");
        seconds(4).await;
        assert!(cluster.objects("Job").is_empty(), "{outcome}");
        assert!(cluster.objects("Pod").is_empty(), "a foreground deletion ends with the pods: {outcome}");
        assert_eq!(cluster.count("delete Job/j"), 1);
        daemon.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_raised_or_removed_ttl_wins_and_one_that_is_set_later_counts() {
    let cluster = Cluster::new().await;
    let daemon = start(&cluster, 2);
    create(&cluster, "exit:0,after:2s", json!(30)).await;
    cluster.eventually(20, "the Job ends", |cluster| end_of(cluster).is_some()).await;
    let ttl = |value: Value| json!({"spec": {"ttlSecondsAfterFinished": value}});
    seconds(20).await;
    cluster.call(Method::PATCH, &format!("{JOBS}/j"), &ttl(json!(60))).await;
    seconds(20).await;
    assert_eq!(cluster.objects("Job").len(), 1);
    cluster.call(Method::PATCH, &format!("{JOBS}/j"), &ttl(Value::Null)).await;
    seconds(600).await;
    assert_eq!(cluster.objects("Job").len(), 1);
    cluster.call(Method::PATCH, &format!("{JOBS}/j"), &ttl(json!(0))).await;
    cluster.eventually(3, "the Job is deleted", |cluster| cluster.objects("Job").is_empty()).await;
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_running_job_stays_whatever_its_ttl_is() {
    let cluster = Cluster::new().await;
    let daemon = start(&cluster, 3);
    create(&cluster, "exit:0,after:600s", json!(0)).await;
    seconds(590).await;
    assert_eq!(cluster.objects("Job").len(), 1);
    cluster.eventually(30, "the Job is deleted", |cluster| cluster.objects("Job").is_empty()).await;
    daemon.stop().await;
}
