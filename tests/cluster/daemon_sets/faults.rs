//! Lost replies, restarts, two that act at once, quotas and failing pods.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use windlass_apiserver::FaultDecision;
use windlass_testkit::cluster::{Faults, inject_faults, is_request};

use super::*;

fn lossy(verb: &'static str, kind: &'static str, every: usize, decision: FaultDecision) -> Faults {
    let count = AtomicUsize::new(0);
    inject_faults(move |request| {
        let hit =
            is_request(request, verb, kind) && count.fetch_add(1, Ordering::SeqCst).is_multiple_of(every);
        if hit { decision.clone() } else { FaultDecision::Proceed }
    })
}

#[tokio::test(start_paused = true)]
async fn lost_replies_cause_no_surplus_pod_and_no_surplus_revision() {
    let lost = FaultDecision::LoseReply;
    let cases =
        [("create", "Pod"), ("delete", "Pod"), ("create", "ControllerRevision"), ("patch", "DaemonSet")];
    for (verb, kind) in cases {
        for strategy in [unavailable(1), surge(1)] {
            let cluster = Cluster::with(lossy(verb, kind, 2, lost.clone()), |options| options).await;
            let _daemon = cluster.start_controllers(1);
            let monitor = InvariantMonitor::of(&cluster);
            create(&cluster, strategy.clone()).await;
            cluster.eventually(600, "all are there", |c| is_complete(c, 3)).await;
            set_image(&cluster, "v2").await;
            cluster.eventually(600, "all are new", |c| is_complete(c, 3)).await;
            assert_eq!(revisions(&cluster), [(1, "v1".to_owned()), (2, "v2".to_owned())]);
            assert_eq!(cluster.pods_created(), 6, "{verb} {kind} {strategy}");
            monitor.assert_no_breach();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_creation_that_arrives_long_after_its_timeout_causes_no_second_pod() {
    for late in [5 * S, 20 * S] {
        let count = AtomicUsize::new(0);
        let faults = inject_faults(move |request| {
            let early = is_request(request, "create", "Pod") && count.fetch_add(1, Ordering::SeqCst) < 2;
            if early { FaultDecision::Delay(late) } else { FaultDecision::Proceed }
        });
        let cluster = Cluster::with(faults, |options| options).await;
        let monitor = InvariantMonitor::of(&cluster);
        let first = cluster.start_controllers(1);
        create(&cluster, unavailable(1)).await;
        tokio::time::sleep(S).await;
        first.kill();
        let _second = cluster.start_controllers(2);
        rolled_out(&cluster, 3).await;
        tokio::time::sleep(60 * S).await;
        assert_eq!(cluster.pods_created(), 3, "{late:?}");
        monitor.assert_no_breach();
    }
}

#[tokio::test(start_paused = true)]
async fn two_active_daemons_keep_to_one_pod_per_node_and_to_the_budget() {
    for strategy in [unavailable(1), surge(1)] {
        let cluster = Cluster::new().await;
        let monitor = InvariantMonitor::of(&cluster);
        let _first = cluster.start_controllers(1);
        let _second = cluster.start_controllers(2);
        create(&cluster, strategy).await;
        rolled_out(&cluster, 3).await;
        for tag in ["v2", "v3"] {
            set_image(&cluster, tag).await;
            rolled_out(&cluster, 3).await;
        }
        let numbers: Vec<i64> = revisions(&cluster).into_iter().map(|(number, _)| number).collect();
        assert_eq!(numbers, [1, 2, 3]);
        monitor.assert_no_breach();
    }
}

#[tokio::test(start_paused = true)]
async fn a_restart_in_mid_rollout_continues_it_and_a_restart_after_it_writes_nothing() {
    let cluster = Cluster::new().await;
    let monitor = InvariantMonitor::of(&cluster);
    let mut daemon = cluster.start_controllers(1);
    create(&cluster, unavailable(1)).await;
    rolled_out(&cluster, 3).await;
    set_image(&cluster, "v2").await;
    for seed in 2..10 {
        tokio::time::sleep(Duration::from_millis(300)).await;
        daemon.kill();
        daemon = cluster.start_controllers(seed);
    }
    rolled_out(&cluster, 3).await;
    assert_eq!((requested(&cluster, "create", "ControllerRevision"), cluster.pods_created()), (2, 6));
    tokio::time::sleep(5 * S).await;
    let before = writes(&cluster);
    daemon.stop().await;
    let _daemon = cluster.start_controllers(99);
    tokio::time::sleep(60 * S).await;
    assert_eq!(writes(&cluster), before);
    monitor.assert_no_breach();
}

#[tokio::test(start_paused = true)]
async fn a_quota_refusal_costs_few_requests_and_is_reported_in_upstreams_words() {
    let refuses = Arc::new(AtomicBool::new(true));
    let asked_quota = refuses.clone();
    let cluster = Cluster::answering(move |request| {
        let refused = asked_quota.load(Ordering::SeqCst) && is_request(request, "create", "Pod");
        if refused {
            windlass_testkit::cluster::forbidden("exceeded quota: pods")
        } else {
            FaultDecision::Proceed
        }
    })
    .await;
    let _daemon = cluster.start_controllers(1);
    create(&cluster, unavailable(1)).await;
    tokio::time::sleep(30 * S).await;
    assert!(
        (2..20).contains(&requested(&cluster, "create", "Pod")),
        "{}",
        requested(&cluster, "create", "Pod")
    );
    assert_eq!(counts(&cluster), "3/0/0/0/0/0");
    assert_eq!(agent(&cluster)["status"]["observedGeneration"], 1);
    let events = events(&cluster);
    let failed = events.iter().find(|event| event.starts_with("Warning FailedCreate: Error creating: "));
    assert!(failed.is_some_and(|event| event.contains("exceeded quota: pods")), "{events:?}");
    refuses.store(false, Ordering::SeqCst);
    rolled_out(&cluster, 3).await;
}

#[tokio::test(start_paused = true)]
async fn failed_pods_are_replaced_after_one_two_four_seconds_with_new_names() {
    for strategy in [unavailable(1), surge(1)] {
        let cluster = Cluster::new().await;
        let monitor = InvariantMonitor::of(&cluster);
        let _daemon = cluster.start_controllers(1);
        create(&cluster, strategy).await;
        rolled_out(&cluster, 3).await;
        let (mut gone_at, mut names) = (Vec::new(), Vec::new());
        for _ in 0..5 {
            let name = name_of(&pod_on(&cluster, &node(2)));
            set_pod_status(
                &cluster,
                &name,
                json!({"phase": "Failed", "reason": "Evicted", "conditions": null}),
            )
            .await;
            cluster.eventually(60, "it is deleted", |c| named(c, "Pod", &name).is_null()).await;
            gone_at.push(cluster.clock.now());
            cluster.eventually(5, "there is another", |c| images(c).contains_key(&node(2))).await;
            names.push(name);
            rolled_out(&cluster, 3).await;
        }
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 5, "no name is reused");
        let waits: Vec<f64> =
            gone_at.windows(2).map(|pair| pair[1].duration_since(pair[0]).as_secs_f64()).collect();
        for (wait, expected) in waits.iter().zip([1.0, 2.0, 4.0, 8.0]) {
            assert!((expected - 0.2..expected + 1.0).contains(wait), "{waits:?}");
        }
        let events = events(&cluster);
        let text = format!("on node {}, will try to kill it", node(2));
        assert!(
            events
                .iter()
                .any(|e| e.starts_with("Warning FailedDaemonPod: Found failed daemon pod shop/agent-")
                    && e.ends_with(&text)),
            "{events:?}"
        );
        monitor.assert_no_breach();
    }
}

#[tokio::test(start_paused = true)]
async fn a_succeeded_pod_is_replaced_without_backoff() {
    let cluster = Cluster::new().await;
    let _daemon = cluster.start_controllers(1);
    create(&cluster, unavailable(1)).await;
    rolled_out(&cluster, 3).await;
    for _ in 0..3 {
        let name = name_of(&pod_on(&cluster, &node(1)));
        set_pod_status(&cluster, &name, json!({"phase": "Succeeded", "conditions": null})).await;
        cluster
            .eventually(2, "it is replaced", |c| named(c, "Pod", &name).is_null() && images(c).len() == 3)
            .await;
        rolled_out(&cluster, 3).await;
    }
    let events = events(&cluster);
    assert!(
        events
            .iter()
            .any(|e| e.starts_with("Normal SucceededDaemonPod: ") && e.ends_with("will try to delete it"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_terminating_namespace_gets_few_creations_and_no_events() {
    let cluster = Cluster::new().await;
    let _daemon = cluster.start_controllers(1);
    create(&cluster, unavailable(1)).await;
    rolled_out(&cluster, 3).await;
    cluster.call(Method::DELETE, "/api/v1/namespaces/shop", &Value::Null).await;
    cluster.eventually(60, "all is gone", |c| agent(c).is_null() && pods(c).is_empty()).await;
    assert!(requested(&cluster, "create", "Pod") < 20, "{}", requested(&cluster, "create", "Pod"));
    assert!(!events(&cluster).iter().any(|event| event.contains("FailedCreate")));
}
