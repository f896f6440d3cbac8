//! A cluster for this module's tests.

use std::convert::Infallible;
use std::sync::Arc;

use http::{Request, Response};
use kube::client::Body;
use serde_json::json;

use super::apis::Apis;
use super::cluster::Cluster;
use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::runtime::api::Api;
use crate::runtime::events::EventRecorder;
use crate::runtime::expectations::{Caches, Expectations};
use crate::runtime::limit::Limiter;
use crate::runtime::waiters::Waiters;
use crate::runtime::worker::WorkQueue;

/// A cluster whose API server calls `before_answer` and then answers with this code.
pub(super) fn cluster(code: u16, before_answer: impl Fn(&Request<Body>) + Clone + Send + 'static) -> Cluster {
    answering(move |request| {
        before_answer(request);
        code
    })
}

/// A cluster whose API server answers each request with the code that `code` chooses.
pub(super) fn answering(code: impl Fn(&Request<Body>) -> u16 + Clone + Send + 'static) -> Cluster {
    let service = tower::service_fn(move |request: Request<Body>| {
        let code = code(&request);
        let body = json!({"metadata": {"resourceVersion": "50"}}).to_string().into_bytes();
        let answer = Response::builder().status(code).body(Body::from(body)).unwrap();
        async move { Ok::<_, Infallible>(answer) }
    });
    let metrics = Metrics::new();
    let client = kube::Client::new(service, "default");
    let api = Api::new(client, "h", Limiter::unlimited(), metrics.clone());
    let clock = Clock::virtual_from("2026-01-01T00:00:00Z".parse().unwrap());
    let (recorder, _) = EventRecorder::new(api.clone(), clock.clone(), 1);
    let queue = |name| WorkQueue::new(name, &metrics);
    let (deployment_queue, set_queue, other_queue) = (queue("d"), queue("r"), queue("c"));
    Cluster {
        apis: Apis::new(|| api.clone()),
        clock,
        deployments: Arc::default(),
        sets: Arc::default(),
        replication_controllers: Arc::default(),
        pods: Arc::default(),
        deployment_waiters: Waiters::new(deployment_queue.clone()),
        set_waiters: Waiters::new(set_queue.clone()),
        replication_controller_waiters: Waiters::new(other_queue.clone()),
        deployment_queue,
        set_queue,
        replication_controller_queue: other_queue,
        caches: Caches::default(),
        expectations: Expectations::new(metrics.clone()),
        unresolved: Default::default(),
        lost_creations: Default::default(),
        pod_names: Default::default(),
        creations: Default::default(),
        pace: Default::default(),
        terminating_field: Default::default(),
        refused: Default::default(),
        words: Default::default(),
        turns: Default::default(),
        explanations: Default::default(),
        scope: Default::default(),
        rollouts: Default::default(),
        coexistence: Default::default(),
        field_manager: "windlass".to_owned(),
        recorder,
        metrics,
        failed_pod_backoff: true,
        draining: Default::default(),
    }
}
