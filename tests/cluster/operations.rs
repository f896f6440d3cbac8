//! Facts that operators rely on while the controllers run: metrics, priorities, resyncs, rights.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};
use windlass::config::ControllerConfig;
use windlass::metrics::Metrics;
use windlass::runtime::leader_election::rules::ElectionOptions;
use windlass_planner_testkit::objects::deployment;
use windlass_testkit::cluster::{Cluster, condition, unlimited};
use windlass_testkit::rights::{self, Rights};

/// The metrics of a text in Prometheus' format: type and labels by name.
fn scraped(text: &str) -> BTreeMap<String, (String, BTreeSet<String>)> {
    let mut all = BTreeMap::new();
    let mut current = (String::new(), String::new());
    let label = regex_lite::Regex::new(r#"[{,]([a-z_]+)=""#).unwrap();
    for line in text.lines() {
        if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            current = (name.to_owned(), kind.to_owned());
        } else if !line.starts_with('#') {
            let labels = label.captures_iter(line).map(|c| c[1].to_owned()).filter(|label| label != "le");
            let entry: &mut (String, BTreeSet<String>) =
                all.entry(current.0.clone()).or_insert((current.1.clone(), BTreeSet::new()));
            entry.1.extend(labels);
        }
    }
    all
}

#[tokio::test(start_paused = true)]
async fn hundreds_of_pods_for_one_deployment_delay_no_rollout_of_another() {
    let cluster = Cluster::new().await;
    // With the rate limit of an installation: 20 requests per second, 30 at once.
    let _daemon = cluster.start_with(1, ControllerConfig::default(), |router| router);
    for name in ["large", "small"] {
        cluster.create(deployment(name).replicas(1)).await;
        cluster.rolled_out(name).await;
    }
    tokio::time::sleep(Duration::from_secs(10)).await;
    cluster.patch("large", json!({"spec": {"replicas": 300}})).await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    cluster.set_image("small", "v2").await;
    let with_image = |cluster: &Cluster, kind: &str, spec: &str| {
        let image = format!("{spec}/containers/0/image");
        cluster.objects(kind).iter().filter(|object| object.pointer(&image) == Some(&json!("app:v2"))).count()
    };
    let has_replica_set = |cluster: &Cluster| with_image(cluster, "ReplicaSet", "/spec/template/spec") > 0;
    cluster.eventually(1, "the other Deployment has its new ReplicaSet", has_replica_set).await;
    let has_pod = |cluster: &Cluster| with_image(cluster, "Pod", "/spec") > 0;
    cluster.eventually(1, "the new ReplicaSet has its pod", has_pod).await;
    let pods = cluster.objects("Pod").len();
    assert!(pods < 200, "the batch must be under way all the time: there are {pods} pods");
    cluster.eventually(10, "the other Deployment is complete", |cluster| cluster.is_complete("small")).await;
    cluster.eventually(30, "the first Deployment is complete", |cluster| cluster.is_complete("large")).await;
}

#[tokio::test(start_paused = true)]
async fn as_many_large_scale_ups_as_there_are_workers_delay_no_other_workload() {
    let cluster = Cluster::new().await;
    let _daemon = cluster.start_with(1, ControllerConfig::default(), |router| router);
    let large: Vec<String> = (1..=5).map(|nth| format!("large-{nth}")).collect();
    for name in large.iter().map(String::as_str).chain(["small"]) {
        cluster.create(deployment(name).replicas(1)).await;
        cluster.rolled_out(name).await;
    }
    tokio::time::sleep(Duration::from_secs(10)).await;
    // With the small one they fit on three nodes of 1,000 pods.
    for name in &large {
        cluster.patch(name, json!({"spec": {"replicas": 599}})).await;
    }
    tokio::time::sleep(Duration::from_secs(4)).await;
    cluster.set_image("small", "v2").await;
    let has_pod = |cluster: &Cluster| {
        cluster.objects("Pod").iter().any(|pod| pod["spec"]["containers"][0]["image"] == "app:v2")
    };
    cluster.eventually(2, "the small Deployment has its new pod", has_pod).await;
    assert!(cluster.objects("Pod").len() < 500, "the batches must be under way all the time");
    cluster.eventually(10, "the small Deployment is complete", |cluster| cluster.is_complete("small")).await;
    for name in &large {
        cluster.eventually(200, "each gets all its pods", |cluster| cluster.is_complete(name)).await;
    }
    assert_eq!(cluster.pods_created(), 5 * 599 + 2);
}

#[tokio::test(start_paused = true)]
async fn a_scrape_has_the_documented_metrics_with_the_right_counts() {
    let cluster = Cluster::new().await;
    let daemon = cluster.start_controllers(1);
    cluster.create(deployment("web").replicas(3)).await;
    cluster.rolled_out("web").await;
    cluster.set_image("web", "v2").await;
    cluster.rolled_out("web").await;
    tokio::time::sleep(Duration::from_secs(5)).await;

    let text = daemon.metrics.render();
    let listed = Metrics::new();
    let known: BTreeMap<&str, _> = listed.described().iter().map(|metric| (metric.name, metric)).collect();
    let scraped = scraped(&text);
    for (name, (kind, labels)) in &scraped {
        if name.starts_with("process_") {
            continue;
        }
        let metric = known.get(name.as_str()).unwrap_or_else(|| panic!("{name} is not listed"));
        assert_eq!(kind, metric.kind.name(), "{name}");
        assert_eq!(*labels, metric.labels.iter().cloned().collect(), "{name}");
    }
    for line in [
        "windlass_rollouts_started_total 2",
        "windlass_rollouts_finished_total 2",
        "windlass_rollouts_stuck{reason=\"ProgressDeadlineExceeded\"} 0",
        "windlass_rollout_duration_seconds_count 2",
        "windlass_rollout_first_available_seconds_count 2",
        "windlass_pods_created_total 6",
        "windlass_pods_deleted_total 3",
        "running_managed_controllers{manager=\"windlass\",name=\"deployment-controller\"} 1",
    ] {
        assert!(text.contains(line), "{line} is missing in\n{text}");
    }
    for part in ["windlass_informer_bytes", "rest_client_response_size_bytes", "kubernetes_build_info"] {
        assert!(scraped.contains_key(part), "{part} is missing");
    }
    assert!(!text.contains("windlass_foreign_writes_total{"), "there was no other writer");
}

#[tokio::test(start_paused = true)]
async fn a_stuck_rollout_is_counted_until_it_progresses() {
    let cluster = Cluster::new().await;
    let daemon = cluster.start_controllers(1);
    cluster.create(deployment("web").replicas(2)).await;
    cluster.rolled_out("web").await;
    cluster.patch("web", json!({"spec": {"progressDeadlineSeconds": 30}})).await;
    cluster.set_image("web", "broken").await;
    let stuck = |c: &Cluster| condition(&c.deployment("web"), "Progressing") == "ProgressDeadlineExceeded";
    cluster.eventually(120, "the rollout is stuck", stuck).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let text = daemon.metrics.render();
    assert!(text.contains("windlass_rollouts_failed_total{reason=\"ProgressDeadlineExceeded\"} 1"), "{text}");
    assert!(text.contains("windlass_rollouts_stuck{reason=\"ProgressDeadlineExceeded\"} 1"), "{text}");
    cluster.set_image("web", "v3").await;
    cluster.rolled_out("web").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(
        daemon.metrics.render().contains("windlass_rollouts_stuck{reason=\"ProgressDeadlineExceeded\"} 0")
    );
}

#[tokio::test(start_paused = true)]
async fn every_key_is_synced_again_at_the_resync_period() {
    let cluster = Cluster::new().await;
    let resync_period = Some(Duration::from_secs(3600));
    let daemon = cluster.start_with(1, ControllerConfig { resync_period, ..unlimited() }, |router| router);
    cluster.create(deployment("web").replicas(1)).await;
    cluster.rolled_out("web").await;
    // The progress deadline, which wakes the key once more, is over by then.
    tokio::time::sleep(Duration::from_secs(1500)).await;
    let adds = || {
        let text = daemon.metrics.render();
        let line = text.lines().find(|line| line.starts_with("workqueue_adds_total{name=\"deployment\"}"));
        line.unwrap().rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()
    };
    let before = adds();
    tokio::time::sleep(Duration::from_secs(2000)).await;
    assert_eq!(adds(), before, "not yet");
    tokio::time::sleep(Duration::from_secs(3 * 7200)).await;
    assert!((before + 3..=before + 6).contains(&adds()), "{} more", adds() - before);
}

/// The real API server of `tests/real_server/apiserver.rs` says more, where there is one.
#[tokio::test(start_paused = true)]
async fn every_request_is_covered_by_the_shipped_permissions() {
    const AGENT: &str = "with-rights";
    let election = ElectionOptions { namespace: Some("shop".into()), ..ElectionOptions::default() };
    let (manifest, lease) = (rights::manifest(), json!([election.name]));
    let names: Vec<&Value> = manifest
        .iter()
        .filter_map(|object| object["rules"].as_array())
        .flatten()
        .map(|rule| &rule["resourceNames"])
        .filter(|names| !names.is_null())
        .collect();
    let rival = json!(["kube-controller-manager"]);
    assert_eq!(
        names,
        [&lease, &rival],
        "the Leases have their default names, and nothing else is limited to a name"
    );

    let cluster = Cluster::new().await;
    let _daemon = cluster.start(1, AGENT, Some(election));
    cluster.create(deployment("web").replicas(3).history(0)).await;
    cluster.rolled_out("web").await;
    cluster.set_image("web", "v2").await;
    cluster.rolled_out("web").await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let used: Rights = cluster
        .log
        .lock()
        .unwrap()
        .iter()
        .filter(|request| request.user_agent == AGENT)
        .map(|it| rights::right(it.verb, it.group, &(it.kind.to_lowercase() + "s"), it.subresource))
        .collect();
    assert!(used.contains("delete replicasets.apps") && used.len() > 12, "{used:?}");
    let granted = rights::granted(&manifest);
    assert_eq!(used.difference(&granted).collect::<Vec<_>>(), [""; 0]);
}
