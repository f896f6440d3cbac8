//! Controllers for this module's tests, on an API server that answers with a code.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use http::{Request, Response};
use kube::client::Body;
use serde_json::json;

use super::registry::{self, CONTROLLERS};
use super::replicas::{self, ReplicaController};
use crate::clock::Clock;
use crate::engine::context::{Context, Settings};
use crate::engine::driver::Driver;
use crate::engine::entry::{ControllerEntry, Worker};
use crate::engine::setup::{self, Assembly, Plumbing};
use crate::metrics::Metrics;
use crate::model::{ObjectKey, Record, ReplicaSet, Resource};
use crate::runtime::api::Api;
use crate::runtime::events::EventRecorder;
use crate::runtime::informer::{Informer, InformerOptions};
use crate::runtime::informers::AnyInformer;
use crate::runtime::rate_limiter::RateLimiter;
use crate::runtime::store::Change;

/// The controllers of the registry, whose informers do not run: a test fills their stores.
pub(crate) struct Rig {
    pub context: Arc<Context>,
    pub replica_sets: Arc<Driver<ReplicaController<ReplicaSet>>>,
    /// The others live as long as the handlers do.
    _workers: Vec<Box<dyn Worker>>,
    informers: BTreeMap<Resource, Box<dyn AnyInformer>>,
}

impl Rig {
    /// Passes a change to the handlers.
    pub fn dispatch<T: Record>(&mut self, change: Change<T>) {
        let informer = self.informers.get_mut(&T::RESOURCE).unwrap();
        informer.as_any().downcast_mut::<Informer<T>>().unwrap().dispatch(change);
    }

    /// Empties the queues: the short name of a controller with each of its keys.
    pub fn woken(&self) -> Vec<String> {
        let mut woken = Vec::new();
        for entry in CONTROLLERS {
            self.context.control_of(entry).queue.retain(|key: &ObjectKey| {
                woken.push(format!("{} {key}", entry.short_name()));
                false
            });
        }
        woken
    }
}

/// Controllers whose API server calls `before_answer` and then answers with this code.
pub(crate) fn rig(code: u16, before_answer: impl Fn(&Request<Body>) + Clone + Send + 'static) -> Rig {
    answering(move |request| {
        before_answer(request);
        code
    })
}

/// Controllers whose API server answers each request with the code that `code` chooses.
pub(crate) fn answering(code: impl Fn(&Request<Body>) -> u16 + Clone + Send + 'static) -> Rig {
    let service = tower::service_fn(move |request: Request<Body>| {
        let code = code(&request);
        let body = json!({"metadata": {"resourceVersion": "50"}}).to_string().into_bytes();
        let answer = Response::builder().status(code).body(Body::from(body)).unwrap();
        async move { Ok::<_, Infallible>(answer) }
    });
    let metrics = Metrics::new();
    let client = kube::Client::new(service, "default");
    let api = Api::new(client, "h", RateLimiter::unlimited(), metrics.clone());
    let clock = Clock::virtual_from("2026-01-01T00:00:00Z".parse().unwrap());
    let (recorder, _) = EventRecorder::new(api.clone(), clock.clone(), 1);
    let plumbing = Plumbing {
        clock,
        metrics,
        recorder,
        draining: Default::default(),
        api: &|_| api.clone(),
        watch_api: api.clone(),
        informers: InformerOptions::default(),
        switched_off: Default::default(),
    };
    let settings = Settings {
        scope: Default::default(),
        field_manager: "windlass".to_owned(),
        failed_pod_backoff: true,
        rollout_policy: true,
        namespace_deletion_delay: std::time::Duration::ZERO,
        max_endpoints_per_slice: 100,
        endpoint_slice_updates_batch_period: std::time::Duration::ZERO,
        endpoint_updates_batch_period: std::time::Duration::ZERO,
        mirroring_max_endpoints_per_subset: 1000,
        mirroring_updates_batch_period: std::time::Duration::ZERO,
        deletes_leftover_endpoint_slices: false,
        resource_quota_sync_period: None,
        terminated_pod_threshold: 0,
        node_limits: Default::default(),
        time_zones: jiff::tz::TimeZoneDatabase::bundled(),
        local_time_zone: jiff::tz::TimeZone::UTC,
        resources: Default::default(),
        garbage_record: None,
        seed: 1,
        relists_after_breaks: false,
        root_ca: "".into(),
    };
    let Assembly { context, mut setup, mut informers, .. } =
        setup::assemble(&registry::standard(), settings, plumbing);
    let is_typed = |entry: &&ControllerEntry| entry.kind == ReplicaSet::RESOURCE;
    let (mut workers, mut replica_sets) = (Vec::new(), None);
    for entry in CONTROLLERS {
        match is_typed(&entry) {
            true => replica_sets = Some(replicas::driver::<ReplicaSet>(&mut setup)),
            false => workers.push((entry.install)(&mut setup)),
        }
    }
    setup.attach(&mut informers);
    Rig { context, replica_sets: replica_sets.unwrap(), _workers: workers, informers }
}
