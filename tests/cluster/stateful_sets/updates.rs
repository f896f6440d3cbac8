//! New templates, broken ones, and restarts on the way.

use super::*;

fn unavailable(cluster: &Cluster, wanted: usize) -> usize {
    wanted - pods(cluster).values().filter(|pod| is_ready(pod)).count()
}

fn rolling(spec: Value) -> Value {
    json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": spec}})
}

fn all_have(cluster: &Cluster, tag: &str) -> bool {
    tags(cluster).iter().all(|(_, other)| other == tag)
}

#[tokio::test(start_paused = true)]
async fn an_update_goes_from_the_highest_ordinal_down_one_pod_at_a_time() {
    for policy in [json!({}), parallel()] {
        let cluster = cluster().await;
        let _daemon = rolled_out_with(&cluster, policy).await;
        let before = db(&cluster)["status"]["currentRevision"].clone();
        set_image(&cluster, "v2").await;
        let one_is_away = |c: &Cluster| assert!(unavailable(c, 3) <= 1, "{:?}", tags(c));
        watch(&cluster, |c| is_complete(c) && all_have(c, "v2"), one_is_away).await;
        let expected =
            ["delete db-2", "create db-2", "delete db-1", "create db-1", "delete db-0", "create db-0"];
        assert_eq!(pod_writes(&cluster)[3..], expected);
        assert_ne!(db(&cluster)["status"]["currentRevision"], before);
        // A rollback uses the old revision again.
        set_image(&cluster, "v1").await;
        cluster.eventually(60, "rolled back", |c| is_complete(c) && all_have(c, "v1")).await;
        assert_eq!(db(&cluster)["status"]["currentRevision"], before);
        let numbers: Vec<Value> = cluster
            .objects("ControllerRevision")
            .iter()
            .map(|revision| revision["revision"].clone())
            .collect();
        assert!(numbers.len() == 2 && numbers.contains(&json!(3)), "{numbers:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_corrected_image_replaces_the_pod_that_never_started() {
    let cluster = cluster().await;
    let _daemon = rolled_out_with(&cluster, json!({})).await;
    set_image(&cluster, "broken").await;
    tokio::time::sleep(60 * S).await;
    let of = |tags: [&str; 3]| -> Vec<(String, String)> {
        tags.iter().enumerate().map(|(index, tag)| (format!("db-{index}"), (*tag).to_owned())).collect()
    };
    assert_eq!(tags(&cluster), of(["v1", "v1", "broken"]));
    set_image(&cluster, "v3").await;
    let others_stay = |c: &Cluster| assert!(unavailable(c, 3) <= 1, "{:?}", tags(c));
    watch(&cluster, |c| is_complete(c) && all_have(c, "v3"), others_stay).await;
}

#[tokio::test(start_paused = true)]
async fn an_image_that_is_broken_from_the_start_can_be_corrected() {
    let cluster = cluster().await;
    let broken = json!({"template": {"spec": {"containers": [{"name": "c", "image": "db:broken"}]}}});
    let _daemon = start(&cluster, 1);
    create(&cluster, broken).await;
    tokio::time::sleep(30 * S).await;
    assert_eq!(pod_names(&cluster), ["db-0"]);
    set_image(&cluster, "v1").await;
    rolled_out(&cluster).await;
    assert!(all_have(&cluster, "v1"));
}

#[tokio::test(start_paused = true)]
async fn pods_below_the_partition_keep_the_old_template_even_if_they_are_lost() {
    let cluster = cluster().await;
    let _daemon = rolled_out_with(&cluster, rolling(json!({"partition": 2}))).await;
    set_image(&cluster, "v2").await;
    let of = |tags: [&str; 3]| -> Vec<(String, String)> {
        tags.iter().enumerate().map(|(index, tag)| (format!("db-{index}"), (*tag).to_owned())).collect()
    };
    let has = |c: &Cluster, expected: [&str; 3]| tags(c) == of(expected) && pods(c).values().all(is_ready);
    cluster.eventually(30, "one is new", |c| has(c, ["v1", "v1", "v2"])).await;
    for name in ["db-0", "db-2"] {
        kill(&cluster, &format!("{PODS}/{name}")).await;
    }
    cluster.eventually(30, "each is back as it was", |c| has(c, ["v1", "v1", "v2"])).await;
    let status = db(&cluster)["status"].clone();
    assert_eq!((&status["currentReplicas"], &status["updatedReplicas"]), (&json!(2), &json!(1)));
    patch(&cluster, rolling(json!({"partition": 0}))).await;
    cluster.eventually(60, "all are new", |c| is_complete(c) && all_have(c, "v2")).await;
}

#[tokio::test(start_paused = true)]
async fn under_on_delete_a_pod_is_new_once_a_user_has_deleted_the_old_one() {
    let cluster = cluster().await;
    let on_delete = json!({"updateStrategy": {"type": "OnDelete", "rollingUpdate": null}});
    let _daemon = rolled_out_with(&cluster, on_delete).await;
    set_image(&cluster, "v2").await;
    tokio::time::sleep(60 * S).await;
    assert!(all_have(&cluster, "v1"));
    for name in pod_names(&cluster) {
        delete(&cluster, &format!("{PODS}/{name}"), "Background").await;
    }
    cluster.eventually(60, "all are new", |c| is_complete(c) && all_have(c, "v2")).await;
}

#[tokio::test(start_paused = true)]
async fn max_unavailable_bounds_an_update_where_the_server_keeps_it() {
    for (policy, max, most) in
        [(json!({}), json!(2), 2), (parallel(), json!("50%"), 2), (parallel(), json!(1), 1)]
    {
        let cluster = Cluster::with_volumes(Faults::default(), |mut options| {
            options.stateful_set_max_unavailable = true;
            options
        })
        .await;
        let mut spec = rolling(json!({"maxUnavailable": max}));
        json_patch::merge(&mut spec, &policy);
        spec["replicas"] = json!(5);
        let _daemon = rolled_out_with(&cluster, spec).await;
        set_image(&cluster, "v2").await;
        let mut seen = 0;
        let bounded = |c: &Cluster| seen = seen.max(unavailable(c, 5));
        watch(&cluster, |c| is_complete(c) && all_have(c, "v2"), bounded).await;
        assert_eq!(seen, most, "{policy} {max}");
        let deleted: Vec<String> =
            pod_writes(&cluster).into_iter().filter(|write| write.starts_with("delete")).collect();
        let expected: Vec<String> = (0..5).rev().map(|index| format!("delete db-{index}")).collect();
        assert_eq!(deleted, expected, "the highest first, and each once");
    }
}

#[tokio::test(start_paused = true)]
async fn restarts_in_mid_rollout_change_nothing_about_its_order() {
    let cluster = cluster().await;
    let mut daemon = rolled_out_with(&cluster, json!({})).await;
    set_image(&cluster, "v2").await;
    for seed in 2..12 {
        tokio::time::sleep(Duration::from_millis(270)).await;
        assert!(unavailable(&cluster, 3) <= 1, "{:?}", tags(&cluster));
        daemon.kill();
        daemon = start(&cluster, seed);
    }
    let one_is_away = |c: &Cluster| assert!(unavailable(c, 3) <= 1, "{:?}", tags(c));
    watch(&cluster, |c| is_complete(c) && all_have(c, "v2"), one_is_away).await;
    let mut writes = pod_writes(&cluster);
    writes.dedup();
    let expected = ["delete db-2", "create db-2", "delete db-1", "create db-1", "delete db-0", "create db-0"];
    assert_eq!(writes[3..], expected);
    let before = cluster.writes();
    daemon.stop().await;
    let _daemon = start(&cluster, 99);
    tokio::time::sleep(60 * S).await;
    assert_eq!(cluster.writes(), before, "a start finds nothing to do");
}

#[tokio::test(start_paused = true)]
async fn a_failed_pod_is_replaced_after_one_two_four_seconds_on_its_own_claim() {
    let cluster = cluster().await;
    let _daemon = rolled_out_with(&cluster, json!({})).await;
    let claim = uid_of(&cluster, "PersistentVolumeClaim", "data-db-1");
    let mut gone_at = Vec::new();
    for _ in 0..4 {
        let uid = uid_of(&cluster, "Pod", "db-1");
        let failed = json!({"status": {"phase": "Failed", "reason": "Evicted", "conditions": null}});
        cluster.call(Method::PATCH, &format!("{PODS}/db-1/status"), &failed).await;
        cluster.eventually(30, "it is deleted", |c| uid_of(c, "Pod", "db-1") != uid).await;
        gone_at.push(cluster.clock.now());
        rolled_out(&cluster).await;
    }
    let waits: Vec<f64> =
        gone_at.windows(2).map(|pair| pair[1].duration_since(pair[0]).as_secs_f64()).collect();
    for (wait, expected) in waits.iter().zip([1.0, 2.0, 4.0]) {
        assert!((expected - 0.2..expected + 1.5).contains(wait), "{waits:?}");
    }
    assert_eq!(uid_of(&cluster, "PersistentVolumeClaim", "data-db-1"), claim);
}
