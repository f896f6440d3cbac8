//! New templates: with maxUnavailable, with maxSurge, and with OnDelete.

use super::*;

/// The fewest available pods that a rollout showed, looked at every 20 ms until it is over.
async fn fewest_available(cluster: &Cluster, nodes: i64) -> usize {
    let mut fewest = usize::MAX;
    for _ in 0..120 * 50 {
        let is_ready = |pod: &&Value| {
            let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
            !is_deleting(pod) && conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True")
        };
        let mut nodes_with: Vec<String> = pods(cluster).iter().filter(is_ready).map(target).collect();
        nodes_with.sort();
        nodes_with.dedup();
        fewest = fewest.min(nodes_with.len());
        if is_complete(cluster, nodes) {
            return fewest;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("not complete: {} {:?}", counts(cluster), images(cluster));
}

fn all_have(cluster: &Cluster, tag: &str) -> bool {
    images(cluster).values().all(|images| *images == [tag])
}

#[tokio::test(start_paused = true)]
async fn max_unavailable_bounds_the_nodes_without_an_available_pod() {
    for (max, left) in [(json!(1), 2), (json!(2), 1), (json!("34%"), 1)] {
        let cluster = Cluster::new().await;
        let _daemon = cluster.start_controllers(1);
        let monitor = InvariantMonitor::of(&cluster);
        create(&cluster, unavailable(max.clone())).await;
        rolled_out(&cluster, 3).await;
        set_image(&cluster, "v2").await;
        assert_eq!(fewest_available(&cluster, 3).await, left, "{max}");
        assert!(all_have(&cluster, "v2"), "{:?}", images(&cluster));
        assert_eq!((requested(&cluster, "create", "Pod"), requested(&cluster, "delete", "Pod")), (6, 3));
        monitor.assert_no_breach();
    }
}

#[tokio::test(start_paused = true)]
async fn with_surge_no_node_is_ever_without_an_available_pod() {
    for max in [json!(1), json!("100%")] {
        let cluster = Cluster::new().await;
        let _daemon = cluster.start_controllers(1);
        let monitor = InvariantMonitor::of(&cluster);
        create(&cluster, surge(max.clone())).await;
        rolled_out(&cluster, 3).await;
        set_image(&cluster, "v2").await;
        assert_eq!(fewest_available(&cluster, 3).await, 3, "{max}");
        assert!(all_have(&cluster, "v2"), "{:?}", images(&cluster));
        monitor.assert_no_breach();
    }
}

#[tokio::test(start_paused = true)]
async fn max_surge_bounds_the_nodes_with_two_pods() {
    let cluster = Cluster::new().await;
    let _daemon = cluster.start_controllers(1);
    create(&cluster, surge(2)).await;
    rolled_out(&cluster, 3).await;
    set_image(&cluster, "broken").await;
    tokio::time::sleep(60 * S).await;
    let with_two = images(&cluster).values().filter(|images| images.len() == 2).count();
    assert_eq!(with_two, 2, "{:?}", images(&cluster));
    assert_eq!(number(&cluster, "numberAvailable"), 3);
    set_image(&cluster, "v3").await;
    rolled_out(&cluster, 3).await;
    assert!(all_have(&cluster, "v3"), "{:?}", images(&cluster));
}

#[tokio::test(start_paused = true)]
async fn under_on_delete_an_old_pod_is_kept_until_a_user_deletes_it() {
    let cluster = Cluster::new().await;
    let _daemon = cluster.start_controllers(1);
    create(&cluster, on_delete()).await;
    rolled_out(&cluster, 3).await;
    set_image(&cluster, "v2").await;
    cluster.eventually(5, "the old pods are counted", |c| counts(c) == "3/3/0/3/3/0").await;
    tokio::time::sleep(60 * S).await;
    assert!(all_have(&cluster, "v1"), "{:?}", images(&cluster));
    let old = name_of(&pod_on(&cluster, &node(2)));
    cluster.call(Method::DELETE, &format!("{PODS}/{old}"), &Value::Null).await;
    cluster.eventually(10, "one pod is new", |c| counts(c) == "3/3/1/3/3/0").await;
    assert_eq!(images(&cluster)[&node(2)], ["v2"]);
    assert_eq!(requested(&cluster, "delete", "Pod"), 0);
    // A switch of the strategy updates the rest.
    patch(&cluster, json!({"spec": unavailable(1)})).await;
    rolled_out(&cluster, 3).await;
    assert!(all_have(&cluster, "v2"));
}

#[tokio::test(start_paused = true)]
async fn a_new_pod_is_available_after_min_ready_seconds() {
    let cluster = Cluster::new().await;
    let _daemon = cluster.start_controllers(1);
    let mut spec = unavailable(1);
    spec["minReadySeconds"] = 10.into();
    create(&cluster, spec).await;
    cluster.eventually(5, "all are ready", |c| number(c, "numberReady") == 3).await;
    assert_eq!(number(&cluster, "numberAvailable"), 0);
    rolled_out(&cluster, 3).await;
    let start = cluster.clock.now();
    set_image(&cluster, "v2").await;
    rolled_out(&cluster, 3).await;
    let took = cluster.clock.now().duration_since(start).as_secs();
    assert!((30..45).contains(&took), "{took} s for three times ten");
}

#[tokio::test(start_paused = true)]
async fn a_broken_image_stops_at_max_unavailable_and_the_next_image_rolls_out() {
    let cluster = Cluster::new().await;
    let _daemon = cluster.start_controllers(1);
    create(&cluster, unavailable(1)).await;
    rolled_out(&cluster, 3).await;
    set_image(&cluster, "broken").await;
    tokio::time::sleep(120 * S).await;
    assert_eq!((number(&cluster, "updatedNumberScheduled"), number(&cluster, "numberAvailable")), (1, 2));
    set_image(&cluster, "v3").await;
    rolled_out(&cluster, 3).await;
    assert!(all_have(&cluster, "v3"));
    assert_eq!(requested(&cluster, "create", "Pod"), 3 + 1 + 3);
}

#[tokio::test(start_paused = true)]
async fn a_template_that_changes_in_mid_rollout_leaves_no_pod_behind() {
    let cluster = Cluster::new().await;
    let _daemon = cluster.start_controllers(1);
    let monitor = InvariantMonitor::of(&cluster);
    create(&cluster, unavailable(1)).await;
    rolled_out(&cluster, 3).await;
    for round in 2..8 {
        set_image(&cluster, &format!("v{round}")).await;
        tokio::time::sleep(Duration::from_millis(700)).await;
    }
    rolled_out(&cluster, 3).await;
    assert!(all_have(&cluster, "v7"), "{:?}", images(&cluster));
    monitor.assert_no_breach();
}

#[tokio::test(start_paused = true)]
async fn a_waiting_rollout_is_explained_with_the_node_and_the_message_of_the_kubelet() {
    let cluster = Cluster::new().await;
    let daemon = cluster.start_controllers(1);
    create(&cluster, unavailable(1)).await;
    rolled_out(&cluster, 3).await;
    set_image(&cluster, "broken").await;
    tokio::time::sleep(30 * S).await;
    let (code, text) = windlass_testkit::cluster::ask(&daemon.http, "/debug/daemonsets/shop/agent").await;
    assert_eq!(code, 200, "{text}");
    let explanation: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(explanation["daemonSet"], "shop/agent");
    let texts: Vec<String> = explanation["current"]["why"]
        .as_array()
        .unwrap()
        .iter()
        .map(|why| super::text(&why["text"]))
        .collect();
    let images = images(&cluster);
    let (broken, _) = images.iter().find(|(_, images)| *images == &["broken"]).unwrap();
    let waits = format!("Node {broken}: the pod is not ready: ImagePullBackOff");
    assert!(texts.iter().any(|text| text.starts_with(&waits)), "{texts:#?}");
    let budget = "maxUnavailable is 1 and 1 node has no available pod: 2 available old pods must stay";
    assert!(texts.iter().any(|text| text == budget), "{texts:#?}");
    let earlier =
        explanation["earlier"].as_array().unwrap().iter().flat_map(|e| e["writes"].as_array().unwrap());
    let writes: Vec<String> = earlier.map(super::text).collect();
    assert!(writes.iter().any(|write| write.starts_with("create revision agent-")), "{writes:?}");
}
