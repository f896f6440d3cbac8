//! Owners of kinds that `--gc-resources` leaves out, and cluster-scoped owners of what is in the only namespace.

use http::Method;
use serde_json::json;
use windlass::config::ControllerConfig;
use windlass::engine::context::ResourceFilter;
use windlass::engine::scope::Scope;
use windlass_apiserver::{FaultDecision, RequestInfo};
use windlass_testkit::cluster::{Cluster, Faults, USER_AGENT, inject_faults};

use super::{are_gone, config, create, delete, requests, seconds, stored};

const SECRETS: &str = "/api/v1/namespaces/shop/secrets";

/// How often the collector has read objects of this kind.
fn reads(cluster: &Cluster, kind: &str) -> usize {
    let log = cluster.log.lock().unwrap();
    let is_read = |request: &&RequestInfo| {
        request.user_agent == USER_AGENT && request.kind == kind && request.verb == "get"
    };
    log.iter().filter(is_read).count()
}

#[tokio::test(start_paused = true)]
async fn an_owner_of_a_kind_that_is_not_listed_is_read_every_five_minutes_for_all_its_dependents() {
    let cluster = Cluster::without_collectors(Faults::default()).await;
    let garbage_resources = ResourceFilter { only: vec!["configmaps".into()], ..Default::default() };
    let _daemon = cluster.start_with(1, ControllerConfig { garbage_resources, ..config() }, |router| router);
    let owner = cluster.call(Method::POST, SECRETS, &json!({"metadata": {"name": "owner"}})).await;
    let reference =
        json!({"apiVersion": "v1", "kind": "Secret", "name": "owner", "uid": owner["metadata"]["uid"]});
    let names: Vec<String> = (0..20).map(|n| format!("a{n}")).collect();
    for name in &names {
        create(&cluster, name, std::slice::from_ref(&reference)).await;
    }
    seconds(60).await;
    let before = (reads(&cluster, "Secret"), requests(&cluster).len());
    seconds(3600).await;
    let after = (reads(&cluster, "Secret"), requests(&cluster).len());
    assert!((11..=13).contains(&(after.0 - before.0)), "{before:?} {after:?}");
    assert_eq!(after.1, before.1, "the dependents themselves are not read");
    delete(&cluster, &format!("{SECRETS}/owner"), "Background").await;
    let are_all_gone = |cluster: &Cluster| names.iter().all(|name| stored(cluster, name).is_none());
    cluster.eventually(310, "they follow it", are_all_gone).await;
    seconds(10).await;
    let end = reads(&cluster, "Secret");
    seconds(3600).await;
    assert_eq!(reads(&cluster, "Secret"), end, "nobody asks for it any more");
}

#[tokio::test(start_paused = true)]
async fn a_cluster_scoped_owner_that_may_not_be_read_keeps_what_is_in_the_only_namespace() {
    let faults = inject_faults(move |request: &RequestInfo| {
        let is_read = request.kind == "Node" && request.verb == "get" && request.user_agent == USER_AGENT;
        match is_read {
            true => FaultDecision::Refuse { code: 403, message: "no".into(), reason: "Forbidden".into() },
            false => FaultDecision::Proceed,
        }
    });
    let cluster = Cluster::without_collectors(faults).await;
    let scope = Scope { namespace: Some("shop".into()), ..Scope::default() };
    let _daemon = cluster.start_with(1, ControllerConfig { scope, ..config() }, |router| router);
    let gone = create(&cluster, "gone", &[]).await;
    let node = json!({"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "n"});
    create(&cluster, "a", &[node, super::to(&gone)]).await;
    seconds(5).await;
    super::delete_map(&cluster, "gone", "Background").await;
    cluster.eventually(5, "other owners are judged", |cluster| super::owners_of(cluster, "a") == ["n"]).await;
    seconds(5).await;
    let before = reads(&cluster, "Node");
    seconds(3600).await;
    assert!(!are_gone(&cluster, &["a"]));
    assert_eq!(reads(&cluster, "Node"), before, "it counts as there, and is not asked for again");
}
