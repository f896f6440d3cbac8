//! The fault injector: the requests that it sees, and each of its decisions.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use kube::{Api, Client};
use parking_lot::Mutex;

use super::super::{FaultDecision, RequestInfo};
use super::*;

/// A sandbox with this decision for all requests.
fn deciding(decision: FaultDecision) -> (Sandbox, Api<ConfigMap>) {
    let sandbox = sandbox();
    sandbox.on_request(Some(Arc::new(move |_| decision.clone())));
    let api = Api::default_namespaced(Client::new(sandbox.router(), "default"));
    (sandbox, api)
}

fn map() -> ConfigMap {
    serde_json::from_value(config_map("a")).unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_fault_injector_sees_every_request_as_it_was_sent() {
    let seen: Arc<Mutex<Vec<RequestInfo>>> = Arc::default();
    let sink = seen.clone();
    let sandbox = Sandbox::new(Options {
        on_request: Some(Arc::new(move |request| {
            sink.lock().push(request.clone());
            FaultDecision::Proceed
        })),
        ..options()
    });
    sandbox.post(DEPLOYMENTS, deployment("web")).await.ok();
    sandbox.patch(&format!("{DEPLOYMENTS}/web/scale?dryRun=All"), MERGE, json!({"spec": {}})).await.ok();
    sandbox.get("/version").await.ok();
    let seen = seen.lock();
    let brief: Vec<_> =
        seen.iter().map(|info| (info.verb, info.kind, info.name.as_str(), info.subresource)).collect();
    let expected =
        [("create", "Deployment", "", ""), ("patch", "Deployment", "web", "scale"), ("get", "", "", "")];
    assert_eq!(brief, expected);
    assert_eq!(seen[1].query, "dryRun=All");
    assert_eq!(seen[1].content_type, MERGE);
    assert_eq!(serde_json::from_slice::<Value>(&seen[0].body).unwrap(), deployment("web"));
}

#[tokio::test(start_paused = true)]
async fn a_refused_request_is_not_carried_out() {
    let decision =
        FaultDecision::Refuse { code: 403, message: "exceeded quota".into(), reason: "Forbidden".into() };
    let (sandbox, api) = deciding(decision);
    let error = api.create(&PostParams::default(), &map()).await.unwrap_err();
    assert!(
        matches!(error, kube::Error::Api(status) if status.message == "exceeded quota" && status.is_forbidden())
    );
    assert!(sandbox.objects("ConfigMap").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_and_a_lost_request_look_the_same_to_the_client() {
    for (decision, stored) in [(FaultDecision::LoseReply, 1), (FaultDecision::LoseRequest, 0)] {
        let (sandbox, api) = deciding(decision);
        let error = api.create(&PostParams::default(), &map()).await.unwrap_err();
        assert!(!matches!(error, kube::Error::Api(_)), "{error:?}");
        assert_eq!(sandbox.objects("ConfigMap").len(), stored);
    }
}

#[tokio::test(start_paused = true)]
async fn a_delayed_write_is_carried_out_even_after_the_client_has_given_up() {
    let (sandbox, api) = deciding(FaultDecision::Delay(Duration::from_secs(60)));
    let result =
        tokio::time::timeout(Duration::from_secs(5), api.create(&PostParams::default(), &map())).await;
    assert!(result.is_err());
    assert!(sandbox.objects("ConfigMap").is_empty());
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(sandbox.objects("ConfigMap").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_delayed_reply_arrives_after_the_write() {
    let (sandbox, api) = deciding(FaultDecision::DelayReply(Duration::from_secs(60)));
    let params = PostParams::default();
    let object = map();
    let mut create = std::pin::pin!(api.create(&params, &object));
    assert!(tokio::time::timeout(Duration::from_secs(5), &mut create).await.is_err());
    assert_eq!(sandbox.objects("ConfigMap").len(), 1);
    create.await.unwrap();
}
