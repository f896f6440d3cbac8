//! Kinds, groups and objects that cannot be read: they stop what depends on them, and nothing else.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use http::Method;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use windlass_apiserver::{FaultDecision, RequestInfo};
use windlass_testkit::cluster::{Cluster, Faults, USER_AGENT, inject_faults};

use super::{
    MAPS, are_gone, blocking, cluster_with, config, create, delete, delete_map, map, owners_of, seconds,
    stored, to,
};

const SECRETS: &str = "/api/v1/namespaces/shop/secrets";

/// An API server that refuses lists and watches of Secrets while the switch is on.
fn without_secrets() -> (Arc<AtomicBool>, Faults) {
    let is_down = Arc::new(AtomicBool::new(false));
    let down = is_down.clone();
    let faults = inject_faults(move |request: &RequestInfo| {
        let is_read = request.kind == "Secret" && matches!(request.verb, "list" | "watch");
        match down.load(Ordering::SeqCst) && is_read && request.user_agent == USER_AGENT {
            true => FaultDecision::Refuse {
                code: 500,
                message: "conversion failed".into(),
                reason: "InternalError".into(),
            },
            false => FaultDecision::Proceed,
        }
    });
    (is_down, faults)
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_is_deleted_before_its_kind_was_ever_listed_takes_its_dependents_with_it() {
    let (is_down, faults) = without_secrets();
    is_down.store(true, Ordering::SeqCst);
    let (cluster, _daemon) = cluster_with(faults).await;
    let owner = cluster.call(Method::POST, SECRETS, &json!({"metadata": {"name": "owner"}})).await;
    let mut reference = to(&owner);
    reference["kind"] = "Secret".into();
    create(&cluster, "a", &[reference]).await;
    // Longer than the collector waits for the first list of a kind: it asks for the owner, which exists.
    seconds(90).await;
    assert!(stored(&cluster, "a").is_some());
    delete(&cluster, &format!("{SECRETS}/owner"), "Background").await;
    seconds(5).await;
    is_down.store(false, Ordering::SeqCst);
    cluster.eventually(60, "it follows its owner", |cluster| are_gone(cluster, &["a"])).await;
}

#[tokio::test(start_paused = true)]
async fn an_orphaning_deletion_waits_two_minutes_for_a_kind_that_cannot_be_read() {
    let (is_down, faults) = without_secrets();
    let (cluster, daemon) = cluster_with(faults).await;
    seconds(2).await;
    is_down.store(true, Ordering::SeqCst);
    let (orphaning, waiting) =
        (create(&cluster, "orphaning", &[]).await, create(&cluster, "waiting", &[]).await);
    create(&cluster, "a", &[to(&orphaning)]).await;
    create(&cluster, "b", &[blocking(&waiting)]).await;
    delete_map(&cluster, "orphaning", "Orphan").await;
    delete_map(&cluster, "waiting", "Foreground").await;
    seconds(20).await;
    assert!(stored(&cluster, "orphaning").is_some(), "a Secret may refer to it");
    assert!(owners_of(&cluster, "a").is_empty());
    let about = |event: &Value| event["involvedObject"]["name"] == "orphaning";
    let event = cluster.objects("Event").into_iter().find(about).expect("an event says why it stays");
    assert_eq!((&event["type"], &event["reason"]), (&json!("Warning"), &json!("DependentsUnreadable")));
    let message = event["message"].as_str().unwrap();
    assert!(message.contains("orphan") && message.contains("secrets"), "{message}");
    let stuck = |count: u32| format!("windlass_garbage_stuck_orphanings {count}\n");
    assert!(daemon.metrics.render().contains(&stuck(1)));
    cluster
        .eventually(60, "a foreground deletion ends all the same", |cluster| are_gone(cluster, &["waiting"]))
        .await;
    is_down.store(false, Ordering::SeqCst);
    cluster.eventually(70, "the owner is gone", |cluster| are_gone(cluster, &["orphaning"])).await;
    assert!(stored(&cluster, "a").is_some() && daemon.metrics.render().contains(&stuck(0)));
}

/// An API server that answers no list of Secrets while the switch is on.
fn with_hanging_secrets() -> (Arc<AtomicBool>, Faults) {
    let is_hanging = Arc::new(AtomicBool::new(false));
    let hangs = is_hanging.clone();
    let faults = inject_faults(move |request: &RequestInfo| {
        let is_list = request.kind == "Secret" && request.verb == "list" && request.user_agent == USER_AGENT;
        match hangs.load(Ordering::SeqCst) && is_list {
            true => FaultDecision::Delay(Duration::from_secs(3600)),
            false => FaultDecision::Proceed,
        }
    });
    (is_hanging, faults)
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_does_not_answer_delays_foreground_deletions_by_30_seconds_and_nothing_else() {
    let (is_hanging, faults) = with_hanging_secrets();
    let (cluster, _daemon) = cluster_with(faults).await;
    // More than the collector has workers, and in two namespaces.
    let names: Vec<String> = (0..30).map(|n| format!("waiting-{n}")).collect();
    let elsewhere = "/api/v1/namespaces/default/configmaps";
    for name in &names {
        create(&cluster, name, &[]).await;
        cluster.call(Method::POST, elsewhere, &map(name, &[], &[])).await;
    }
    let owner = create(&cluster, "owner", &[]).await;
    create(&cluster, "a", &[to(&owner)]).await;
    seconds(3).await;
    is_hanging.store(true, Ordering::SeqCst);
    for name in &names {
        delete_map(&cluster, name, "Foreground").await;
        delete(&cluster, &format!("{elsewhere}/{name}"), "Foreground").await;
    }
    seconds(1).await;
    delete_map(&cluster, "owner", "Background").await;
    cluster.eventually(1, "others are collected meanwhile", |cluster| are_gone(cluster, &["a"])).await;
    // This one waits behind a round that has begun.
    create(&cluster, "late", &[]).await;
    delete_map(&cluster, "late", "Foreground").await;
    let are_all_gone = |cluster: &Cluster| {
        let left = cluster.sandbox.objects("ConfigMap");
        !left.iter().any(|map| map["metadata"]["name"].as_str().unwrap().starts_with("waiting"))
    };
    seconds(20).await;
    assert!(!are_all_gone(&cluster), "a Secret may block them");
    cluster.eventually(12, "they do not wait longer", are_all_gone).await;
    cluster.eventually(3, "nor does the late one", |cluster| are_gone(cluster, &["late"])).await;
    // From now on the kind is known not to answer.
    create(&cluster, "last", &[]).await;
    delete_map(&cluster, "last", "Foreground").await;
    cluster.eventually(3, "it is not waited for again", |cluster| are_gone(cluster, &["last"])).await;
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_does_not_answer_in_many_namespaces_leaves_foreground_deletions_their_30_seconds() {
    let (is_hanging, faults) = with_hanging_secrets();
    let (cluster, _daemon) = cluster_with(faults).await;
    let path = |n: usize| format!("/api/v1/namespaces/n{n}/configmaps");
    for n in 0..80 {
        let namespace = json!({"metadata": {"name": format!("n{n}")}});
        cluster.call(Method::POST, "/api/v1/namespaces", &namespace).await;
        cluster.call(Method::POST, &path(n), &map("waiting", &[], &[])).await;
        // Without an object the kind need not be asked twice.
        let secret = json!({"metadata": {"name": "there"}});
        cluster.call(Method::POST, &format!("/api/v1/namespaces/n{n}/secrets"), &secret).await;
    }
    seconds(3).await;
    is_hanging.store(true, Ordering::SeqCst);
    for n in 0..80 {
        delete(&cluster, &format!("{}/waiting", path(n)), "Foreground").await;
    }
    let are_all_gone = |cluster: &Cluster| {
        !cluster.sandbox.objects("ConfigMap").iter().any(|map| map["metadata"]["name"] == "waiting")
    };
    seconds(25).await;
    assert!(!are_all_gone(&cluster), "a Secret may block them");
    cluster.eventually(12, "they have ended", are_all_gone).await;
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_is_blocked_again_waits_for_no_kind_that_has_been_missed_for_half_a_minute() {
    let (is_down, faults) = without_secrets();
    let (cluster, _daemon) = cluster_with(faults).await;
    let owner = create(&cluster, "owner", &[]).await;
    seconds(2).await;
    is_down.store(true, Ordering::SeqCst);
    delete_map(&cluster, "owner", "Foreground").await;
    seconds(5).await;
    let held = map("held", &[blocking(&owner)], &["example.com/keep"]);
    cluster.call(Method::POST, MAPS, &held).await;
    seconds(60).await;
    assert!(stored(&cluster, "owner").is_some(), "a dependent blocks it");
    let release = json!({"metadata": {"finalizers": null}});
    cluster.call(Method::PATCH, &format!("{MAPS}/held"), &release).await;
    cluster.eventually(3, "both are gone", |cluster| are_gone(cluster, &["held", "owner"])).await;
}

/// Answers the requests of the daemon for this path with another text, made of that of the API server.
fn rewrite(
    path: &'static str,
    change: impl Fn(String) -> String + Clone + Send + Sync + 'static,
) -> impl FnOnce(axum::Router) -> axum::Router {
    move |router| {
        router.layer(axum::middleware::from_fn(move |request: Request, next: Next| {
            let (is_meant, change) = (request.uri().path() == path, change.clone());
            async move {
                let (mut parts, body) = next.run(request).await.into_parts();
                if !is_meant || !parts.status.is_success() {
                    return Response::from_parts(parts, body);
                }
                let text = body.collect().await.unwrap().to_bytes();
                parts.headers.remove("content-length");
                parts.headers.remove("etag");
                let text = change(String::from_utf8(text.to_vec()).unwrap());
                Response::from_parts(parts, Body::from(text))
            }
        }))
    }
}

#[tokio::test(start_paused = true)]
async fn an_orphaning_deletion_waits_two_minutes_for_a_group_that_was_never_discovered() {
    let cluster = Cluster::without_collectors(Faults::default()).await;
    let is_down = Arc::new(AtomicBool::new(true));
    let down = is_down.clone();
    let between = rewrite("/apis", move |text| {
        let mut groups: Value = serde_json::from_str(&text).unwrap();
        if down.load(Ordering::SeqCst) {
            for name in ["example.com", "metrics.k8s.io"] {
                let version = json!({"version": "v1", "freshness": "Stale", "resources": []});
                let group = json!({"metadata": {"name": name}, "versions": [version]});
                groups["items"].as_array_mut().unwrap().push(group);
            }
        }
        groups.to_string()
    });
    let _daemon = cluster.start_with(1, config(), between);
    let owner = create(&cluster, "owner", &[]).await;
    create(&cluster, "a", &[to(&owner)]).await;
    seconds(2).await;
    delete_map(&cluster, "owner", "Orphan").await;
    seconds(110).await;
    let is_list = |request: &&RequestInfo| request.verb == "list" && request.kind == "Secret";
    let rounds = cluster.log.lock().unwrap().iter().filter(is_list).count();
    assert!((2..40).contains(&rounds), "{rounds} lists in two minutes");
    assert!(stored(&cluster, "owner").is_some(), "an object of that group may refer to it");
    assert!(owners_of(&cluster, "a").is_empty());
    let says_so = |event: &Value| {
        let message = event["message"].as_str().unwrap_or_default();
        event["reason"] == "DependentsUnreadable"
            && message.contains("example.com/v1")
            && !message.contains("metrics")
    };
    assert!(cluster.objects("Event").iter().any(says_so), "{:#?}", cluster.objects("Event"));
    create(&cluster, "other", &[]).await;
    delete_map(&cluster, "other", "Foreground").await;
    cluster.eventually(3, "a foreground deletion ends", |cluster| are_gone(cluster, &["other"])).await;
    assert!(is_down.load(Ordering::SeqCst) && stored(&cluster, "owner").is_some());
    cluster.eventually(12, "the owner is gone", |cluster| are_gone(cluster, &["owner"])).await;
}

#[tokio::test(start_paused = true)]
async fn objects_whose_managed_fields_are_nested_deeply_are_orphaned_and_collected() {
    let cluster = Cluster::without_collectors(Faults::default()).await;
    let deep = |text: String| {
        let fields = format!(r#"{}{{}}{}"#, r#"{"f:a":"#.repeat(200), "}".repeat(200));
        let managed = format!(r#""metadata":{{"managedFields":[{{"fieldsV1":{fields}}}],"#);
        text.replacen(r#""metadata":{"#, &managed, 1)
    };
    let owner = create(&cluster, "owner", &[]).await;
    let (kept, gone) = (create(&cluster, "kept", &[]).await, create(&cluster, "gone", &[]).await);
    create(&cluster, "deep", &[to(&owner), to(&kept), to(&gone)]).await;
    let between = |router| rewrite("/api/v1/namespaces/shop/configmaps/owner", deep)(router);
    let _daemon = cluster.start_with(1, config(), |router| {
        rewrite("/api/v1/namespaces/shop/configmaps/deep", deep)(between(router))
    });
    seconds(2).await;
    delete_map(&cluster, "gone", "Background").await;
    cluster
        .eventually(10, "one reference is left out", |cluster| owners_of(cluster, "deep").len() == 2)
        .await;
    delete_map(&cluster, "owner", "Orphan").await;
    cluster.eventually(10, "the owner is gone", |cluster| are_gone(cluster, &["owner"])).await;
    assert_eq!(owners_of(&cluster, "deep"), ["kept"]);
}
