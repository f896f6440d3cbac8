//! The cases of upstream's integration tests of DaemonSets: both strategies where upstream runs both.

use super::*;
use windlass_apiserver::FaultDecision;
use windlass_testkit::cluster::{Daemon, forbidden, is_request};

const STRATEGIES: [fn() -> Value; 2] = [on_delete, || unavailable(1)];

/// A cluster without nodes, and a daemon.
async fn bare() -> (Cluster, Daemon) {
    let cluster = Cluster::new().await;
    for number in 1..=3 {
        remove_node(&cluster, &node(number)).await;
    }
    let daemon = cluster.start_controllers(1);
    (cluster, daemon)
}

/// The strategy with a pod spec.
fn with_pod(mut spec: Value, pod: Value) -> Value {
    spec["template"] = json!({"spec": pod});
    spec
}

fn is_ready(cluster: &Cluster, ready: i64) -> bool {
    number(cluster, "numberReady") == ready
}

#[tokio::test(start_paused = true)]
async fn one_node_added_after_the_daemon_set_gets_one_pod_with_one_owner() {
    for strategy in STRATEGIES {
        let (cluster, _daemon) = bare().await;
        create(&cluster, strategy()).await;
        tokio::time::sleep(S).await;
        add_node(&cluster, "node-0", json!({})).await;
        cluster.eventually(10, "it is ready", |c| is_ready(c, 1)).await;
        let pod = pod_on(&cluster, "node-0");
        let owners = pod["metadata"]["ownerReferences"].as_array().unwrap();
        assert_eq!((owners.len(), &owners[0]["controller"]), (1, &json!(true)));
    }
}

#[tokio::test(start_paused = true)]
async fn five_nodes_get_five_pods() {
    for strategy in STRATEGIES {
        let (cluster, _daemon) = bare().await;
        for n in 0..5 {
            add_node(&cluster, &format!("node-{n}"), json!({})).await;
        }
        create(&cluster, strategy()).await;
        rolled_out(&cluster, 5).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_terminal_pod_is_replaced_even_while_a_finalizer_blocks_its_deletion() {
    for strategy in STRATEGIES {
        for (phase, held) in [("Succeeded", false), ("Failed", false), ("Succeeded", true)] {
            let cluster = Cluster::new().await;
            let _daemon = cluster.start_controllers(1);
            create(&cluster, strategy()).await;
            rolled_out(&cluster, 3).await;
            let name = name_of(&pod_on(&cluster, &node(1)));
            if held {
                let patch = json!({"metadata": {"finalizers": ["example.com/keep"]}});
                cluster.call(Method::PATCH, &format!("{PODS}/{name}"), &patch).await;
            }
            set_pod_status(&cluster, &name, json!({"phase": phase, "conditions": null})).await;
            cluster
                .eventually(10, "three are active again", |c| {
                    let active = images(c).len() == 3;
                    active && is_ready(c, 3) && (held || named(c, "Pod", &name).is_null())
                })
                .await;
            assert_eq!(!named(&cluster, "Pod", &name).is_null(), held, "{phase}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn terms_of_labels_and_of_names_are_alternatives() {
    for strategy in STRATEGIES {
        let (cluster, _daemon) = bare().await;
        let labels = json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": ["test"]}]});
        let name = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]});
        let required = json!({"nodeSelectorTerms": [labels, name]});
        let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}});
        create(&cluster, with_pod(strategy(), json!({"affinity": affinity}))).await;
        for n in 0..6 {
            let labels = if n >= 4 { json!({"zone": "test"}) } else { json!({}) };
            add_node(&cluster, &format!("node-{n}"), labels).await;
        }
        rolled_out(&cluster, 3).await;
        assert_eq!(images(&cluster).into_keys().collect::<Vec<_>>(), ["node-1", "node-4", "node-5"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_not_ready_and_not_tainted_gets_a_pod() {
    for strategy in STRATEGIES {
        let (cluster, _daemon) = bare().await;
        create(&cluster, strategy()).await;
        // Of a condition that the node lifecycle controller does not know yet.
        let mut node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-0"}});
        node["status"] = json!({"conditions": [{"type": "NetworkUnavailable", "status": "False"}]});
        cluster.call(Method::POST, NODES, &node).await;
        cluster.eventually(5, "it has a pod", |c| images(c).contains_key("node-0")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_without_capacity_gets_a_pod_that_stays_pending_and_is_counted() {
    for strategy in STRATEGIES {
        let (cluster, _daemon) = bare().await;
        let full = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "full"}, "status": {"allocatable":
            {"pods": "0", "cpu": "1", "memory": "100M"}, "capacity": {"pods": "0", "cpu": "1", "memory": "100M"}}});
        cluster.call(Method::POST, NODES, &full).await;
        create(&cluster, strategy()).await;
        cluster
            .eventually(10, "the scheduler has no room", |c| {
                pods(c).first().is_some_and(|pod| pod["status"]["conditions"][0]["reason"] == "Unschedulable")
            })
            .await;
        add_node(&cluster, "roomy", json!({})).await;
        cluster.eventually(10, "one of two is ready", |c| counts(c) == "2/2/2/1/1/0").await;
    }
}

/// The conformance test "should manage the lifecycle of a ControllerRevision" lists both, and deletes the older one itself.
#[tokio::test(start_paused = true)]
async fn a_duplicate_of_the_current_revision_stays_until_something_else_of_the_daemon_set_changes() {
    let cluster = Cluster::new().await;
    let _daemon = cluster.start_controllers(1);
    create(&cluster, unavailable(1)).await;
    rolled_out(&cluster, 3).await;
    tokio::time::sleep(10 * S).await;
    cluster.call(Method::POST, REVISIONS, &twin_of_the_revision(&cluster)).await;
    tokio::time::sleep(10 * S).await;
    assert_eq!(revisions(&cluster), [(1, "v1".to_owned()), (2, "v1".to_owned())]);
    add_node(&cluster, "another", json!({})).await;
    cluster.eventually(10, "the older one is gone", |c| revisions(c) == [(2, "v1".to_owned())]).await;
}

fn twin_of_the_revision(cluster: &Cluster) -> Value {
    let mut twin = cluster.objects("ControllerRevision").remove(0);
    for field in ["uid", "resourceVersion", "creationTimestamp", "managedFields"] {
        twin["metadata"].as_object_mut().unwrap().remove(field);
    }
    twin["metadata"]["name"] = "agent-twin".into();
    twin["metadata"]["labels"][HASH] = "twin".into();
    twin["revision"] = 2.into();
    twin
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_of_the_current_revision_is_deleted_and_pods_get_the_hash_of_the_kept_one() {
    let cluster = Cluster::new().await;
    let daemon = cluster.start_controllers(1);
    create(&cluster, unavailable(1)).await;
    rolled_out(&cluster, 3).await;
    daemon.stop().await;
    let old = name_of(&cluster.objects("ControllerRevision")[0]);
    cluster.call(Method::POST, REVISIONS, &twin_of_the_revision(&cluster)).await;
    let names = pods(&cluster).iter().map(name_of).collect::<Vec<_>>();
    let _daemon = cluster.start_controllers(2);
    cluster
        .eventually(10, "all pods have its hash", |c| {
            pods(c).iter().all(|pod| pod["metadata"]["labels"][HASH] == "twin")
        })
        .await;
    cluster.eventually(10, "the older one is gone", |c| named(c, "ControllerRevision", &old).is_null()).await;
    rolled_out(&cluster, 3).await;
    assert_eq!(pods(&cluster).iter().map(name_of).collect::<Vec<_>>(), names, "no pod was restarted");
    assert_eq!(revisions(&cluster), [(2, "v1".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn a_tainted_node_gets_its_pod_when_the_taint_is_removed() {
    for strategy in STRATEGIES {
        let (cluster, _daemon) = bare().await;
        create(&cluster, strategy()).await;
        let tainted = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "tainted"},
            "spec": {"taints": [{"key": "key1", "value": "value1", "effect": "NoSchedule"}]}});
        cluster.call(Method::POST, NODES, &tainted).await;
        add_node(&cluster, "plain", json!({})).await;
        rolled_out(&cluster, 1).await;
        taint(&cluster, "tainted", &[]).await;
        rolled_out(&cluster, 2).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_network_pod_runs_on_a_node_without_a_network() {
    for strategy in STRATEGIES {
        let (cluster, _daemon) = bare().await;
        create(&cluster, with_pod(strategy(), json!({"hostNetwork": true}))).await;
        add_node(&cluster, "a", json!({})).await;
        add_node(&cluster, "b", json!({})).await;
        rolled_out(&cluster, 2).await;
        let cordon = json!({"spec": {"unschedulable": true}});
        cluster.call(Method::PATCH, &format!("{NODES}/a"), &cordon).await;
        taint(&cluster, "b", &["node.kubernetes.io/network-unavailable:NoSchedule"]).await;
        for name in pods(&cluster).iter().map(name_of) {
            cluster.call(Method::DELETE, &format!("{PODS}/{name}"), &Value::Null).await;
        }
        tokio::time::sleep(S).await;
        rolled_out(&cluster, 2).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_status_is_reported_although_creations_fail() {
    for strategy in STRATEGIES {
        let created = std::sync::atomic::AtomicUsize::new(0);
        let cluster = Cluster::answering(move |request| {
            let pod = is_request(request, "create", "Pod");
            let refused = pod && created.fetch_add(1, std::sync::atomic::Ordering::SeqCst) >= 2;
            if refused { forbidden("no more than two") } else { FaultDecision::Proceed }
        })
        .await;
        add_node(&cluster, "four", json!({})).await;
        add_node(&cluster, "five", json!({})).await;
        let _daemon = cluster.start_controllers(1);
        create(&cluster, strategy()).await;
        cluster.eventually(20, "two are ready", |c| counts(c) == "5/2/2/2/2/0").await;
    }
}

/// The counts of live pods by zone and image.
fn by_zone(cluster: &Cluster) -> Vec<String> {
    images(cluster).iter().map(|(node, images)| format!("{node}:{}", images.join("+"))).collect()
}

#[tokio::test(start_paused = true)]
async fn a_surge_progresses_when_the_tolerations_change() {
    let (cluster, _daemon) = bare().await;
    for zone in ["common", "y", "z"] {
        for n in 1..=2 {
            let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("{zone}{n}")},
                "spec": {"taints": [{"key": format!("zone-{zone}"), "effect": "NoSchedule"}]}});
            cluster.call(Method::POST, NODES, &node).await;
        }
    }
    let tolerate = |zones: &[&str], tag: &str| {
        let tolerations: Vec<Value> =
            zones.iter().map(|zone| json!({"key": format!("zone-{zone}"), "operator": "Exists"})).collect();
        json!({"tolerations": tolerations, "containers": [{"name": "c", "image": format!("agent:{tag}")}]})
    };
    let edit = async |zones: &[&str], tag: &str| {
        patch(&cluster, json!({"spec": {"template": {"spec": tolerate(zones, tag)}}})).await;
    };
    create(&cluster, with_pod(surge(1), tolerate(&["y", "common"], "v1"))).await;
    rolled_out(&cluster, 4).await;
    // The new pods never become ready: old ones serve on, also where none would be created now.
    edit(&["z", "common"], "broken").await;
    cluster
        .eventually(10, "three new ones", |c| {
            images(c).values().flatten().filter(|i| *i == "broken").count() == 3
        })
        .await;
    tokio::time::sleep(30 * S).await;
    let now = by_zone(&cluster).join(" ");
    assert!(now.ends_with("y1:v1 y2:v1 z1:broken z2:broken"), "{now}");
    assert_eq!(images(&cluster).values().flatten().count(), 7, "{now}");
    edit(&["z", "common"], "v3").await;
    rolled_out(&cluster, 4).await;
    edit(&["y", "z", "common"], "v4").await;
    rolled_out(&cluster, 6).await;
    edit(&[], "v4").await;
    cluster.eventually(60, "no node is tolerated", |c| images(c).is_empty() && is_complete(c, 0)).await;
}
