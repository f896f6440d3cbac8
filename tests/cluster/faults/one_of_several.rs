//! Where one of several objects cannot be changed, the others are.

use http::Method;
use serde_json::json;
use windlass_apiserver::FaultDecision;
use windlass_planner_testkit::objects::deployment;
use windlass_testkit::cluster::{Cluster, USER_AGENT, forbidden};

use super::{PODS, REPLICA_SETS, S, settles};

/// A cluster whose policy refuses writes of the controllers to the objects of this kind that `is_protected` names.
async fn protecting(
    verb: &'static str,
    kind: &'static str,
    is_protected: impl Fn(&str) -> bool + Send + Sync + 'static,
) -> Cluster {
    Cluster::answering(move |request| {
        let is_write = request.user_agent == USER_AGENT && request.verb == verb && request.kind == kind;
        match is_write && request.subresource.is_empty() && is_protected(&request.name) {
            true => forbidden("a policy protects it"),
            false => FaultDecision::Proceed,
        }
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_cannot_be_adopted_does_not_keep_a_replica_set_from_adopting_others() {
    for protected in ["a", "b", "c"] {
        let cluster = protecting("patch", "Pod", move |name| name == protected).await;
        for name in ["a", "b", "c"] {
            let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "web"}},
                "spec": {"containers": [{"name": "c", "image": "web:v1"}]}});
            cluster.call(Method::POST, PODS, &pod).await;
        }
        let template = json!({"metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "web:v1"}]}});
        let replica_set = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web"},
            "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template}});
        cluster.call(Method::POST, REPLICA_SETS, &replica_set).await;
        let _daemon = cluster.start_controllers(1);
        let owned = |c: &Cluster| {
            c.objects("Pod").iter().filter(|pod| pod["metadata"]["ownerReferences"].is_array()).count()
        };
        cluster.eventually(30, "two are adopted", |c| owned(c) == 2).await;
        tokio::time::sleep(5 * S).await;
        assert_eq!((owned(&cluster), cluster.objects("Pod").len()), (2, 3), "and none is created instead");
    }
}

#[tokio::test(start_paused = true)]
async fn a_replica_set_that_cannot_be_deleted_does_not_let_the_history_grow() {
    let cluster = protecting("delete", "ReplicaSet", {
        let first = std::sync::OnceLock::new();
        move |name| first.get_or_init(|| name.to_owned()) == name
    })
    .await;
    let _daemon = cluster.start_controllers(1);
    cluster.create(deployment("web").replicas(1)).await;
    cluster.patch("web", json!({"spec": {"revisionHistoryLimit": 1}})).await;
    settles(&cluster, "web", 1).await;
    for tag in ["v2", "v3", "v4", "v5", "v6"] {
        cluster.set_image("web", tag).await;
        settles(&cluster, "web", 1).await;
    }
    cluster
        .eventually(70, "the new one, one old one, and the protected one are left", |c| {
            c.objects("ReplicaSet").len() == 3
        })
        .await;
}
