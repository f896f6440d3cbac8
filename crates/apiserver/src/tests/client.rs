//! The router as the transport of a real client.

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, PostParams};
use kube::runtime::watcher;
use kube::{Api, Client};
use serde_json::from_value;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_client_works_on_the_router_as_it_does_on_a_cluster() {
    let sandbox = sandbox();
    let api: Api<Deployment> = Api::default_namespaced(Client::new(sandbox.router(), "default"));
    let created = api.create(&PostParams::default(), &from_value(deployment("web")).unwrap()).await.unwrap();
    assert_eq!(created.metadata.generation, Some(1));
    let error = api.create(&PostParams::default(), &created).await.unwrap_err();
    assert!(matches!(error, kube::Error::Api(status) if status.code == 500));
    let deleted = api.delete("web", &DeleteParams::default()).await.unwrap();
    assert!(deleted.right().is_some_and(|status| status.is_success()));
}

#[tokio::test(start_paused = true)]
async fn a_watcher_idles_for_an_hour_without_a_relist() {
    let sandbox = sandbox();
    let lists = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let counted = lists.clone();
    sandbox.on_request(Some(Arc::new(move |request| {
        if request.verb == "list" {
            counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
        super::super::FaultDecision::Proceed
    })));
    let api: Api<Pod> = Api::all(Client::new(sandbox.router(), "default"));
    let mut events = watcher(api, watcher::Config::default()).boxed();
    let first: Vec<_> = (&mut events).take(2).try_collect().await.unwrap();
    assert!(matches!(first.last(), Some(watcher::Event::InitDone)));
    let idle = tokio::time::timeout(Duration::from_secs(3600), events.next()).await;
    assert!(idle.is_err(), "an event nobody caused: {idle:?}");
    assert_eq!(lists.load(std::sync::atomic::Ordering::Relaxed), 1);
    sandbox.post(PODS, pod("late")).await.ok();
    assert!(matches!(events.next().await, Some(Ok(watcher::Event::Apply(_)))));
}

#[tokio::test(start_paused = true)]
async fn a_watcher_relists_after_compaction() {
    let sandbox = sandbox();
    let api: Api<Pod> = Api::all(Client::new(sandbox.router(), "default"));
    let mut events = watcher(api, watcher::Config::default()).boxed();
    let _: Vec<_> = (&mut events).take(2).try_collect().await.unwrap();
    sandbox.break_watches();
    sandbox.post(PODS, pod("missed")).await.ok();
    sandbox.compact();
    let mut seen = false;
    for _ in 0..10 {
        if let Some(Ok(watcher::Event::InitApply(_))) = events.next().await {
            seen = true;
            break;
        }
    }
    assert!(seen);
}

#[tokio::test(start_paused = true)]
async fn a_watcher_can_start_with_a_streaming_list() {
    let sandbox = sandbox();
    sandbox.post(PODS, pod("early")).await.ok();
    let api: Api<Pod> = Api::all(Client::new(sandbox.router(), "default"));
    let mut events = watcher(api, watcher::Config::default().streaming_lists()).boxed();
    let first: Vec<_> = (&mut events).take(3).try_collect().await.unwrap();
    assert!(matches!(
        first.as_slice(),
        [watcher::Event::Init, watcher::Event::InitApply(_), watcher::Event::InitDone]
    ));
}
