//! The cost of the writes for StatefulSets.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use windlass_apiserver::FaultDecision;
use windlass_testkit::cluster::{inject_faults, is_request};

use super::*;

#[tokio::test(start_paused = true)]
async fn replies_to_writes_hold_no_more_than_the_metadata() {
    let cluster = cluster().await;
    let [all, whole]: [Arc<Mutex<BTreeSet<String>>>; 2] = Default::default();
    let seen = (all.clone(), whole.clone());
    let config = ControllerConfig { enabled: Enabled::all(), root_ca: "pem".into(), ..unlimited() };
    let _daemon = cluster.start_with(1, config, move |router| {
        router.layer(from_fn(move |request: Request, next: Next| {
            let accept = request.headers().get("accept").map(|it| it.to_str().unwrap_or_default().to_owned());
            let kind =
                request.uri().path().split('/').rev().find(|part| part.ends_with('s')).unwrap_or_default();
            let write = format!("{} {kind}", request.method());
            if request.method() != Method::GET {
                if !accept.unwrap_or_default().contains("as=PartialObjectMetadata") {
                    seen.1.lock().unwrap().insert(write.clone());
                }
                seen.0.lock().unwrap().insert(write);
            }
            next.run(request)
        }))
    });
    let daemon_set = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "log"},
        "spec": {"selector": {"matchLabels": {"app": "log"}}, "template": {
            "metadata": {"labels": {"app": "log"}}, "spec": {"containers": [{"name": "c", "image": "log:v1"}]}}},
    });
    cluster.call(Method::POST, "/apis/apps/v1/namespaces/shop/daemonsets", &daemon_set).await;
    create(&cluster, json!({})).await;
    rolled_out(&cluster).await;
    set_image(&cluster, "v2").await;
    rolled_out(&cluster).await;
    let all = all.lock().unwrap();
    for write in ["POST pods", "POST persistentvolumeclaims", "POST controllerrevisions", "POST events"] {
        assert!(all.contains(write), "{write}: {all:?}");
    }
    assert_eq!(*whole.lock().unwrap(), BTreeSet::new());
}

#[tokio::test(start_paused = true)]
async fn an_update_gathers_the_counts_of_its_steps() {
    let cluster = cluster().await;
    let _daemon = rolled_out_with(&cluster, json!({"replicas": 6})).await;
    let statuses = || {
        let log = cluster.log.lock().unwrap();
        let ours = log.iter().filter(|request| request.user_agent == USER_AGENT);
        ours.filter(|request| request.kind == "StatefulSet" && request.verb == "patch").count()
    };
    let before = statuses();
    set_image(&cluster, "v2").await;
    let is_over = |c: &Cluster| is_complete(c) && tags(c).iter().all(|(_, tag)| tag == "v2");
    cluster.eventually(120, "rolled out", is_over).await;
    // The generation with the new revision, the end, and at most one for each pod.
    let written = statuses() - before;
    assert!((2..=6 + 2).contains(&written), "{written}");
}

#[tokio::test(start_paused = true)]
async fn a_creation_whose_reply_is_lost_is_told_as_one_and_not_as_a_failure() {
    let faults = inject_faults(|request| match is_request(request, "create", "Pod") {
        true => FaultDecision::LoseReply,
        false => FaultDecision::Proceed,
    });
    let cluster = Cluster::with_volumes(faults, |options| options).await;
    let _daemon = rolled_out_with(&cluster, json!({"replicas": 2})).await;
    assert_eq!(pod_names(&cluster), ["db-0", "db-1"]);
    let warnings = events(&cluster).into_iter().filter(|(event, _)| event.starts_with("Warning"));
    assert_eq!(warnings.collect::<Vec<_>>(), []);
    for pod in ["db-0", "db-1"] {
        assert_eq!(
            told(
                &cluster,
                &format!("Normal SuccessfulCreate: Create Pod {pod} in StatefulSet db successful")
            ),
            1
        );
    }
}
