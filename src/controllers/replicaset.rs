//! One sync of one ReplicaSet.

use std::sync::Arc;

use tokio::time::Instant;

use super::cluster::Cluster;
use super::error::SyncError;
use crate::model::{ObjectKey, Pod, Record, ReplicaSet, Resource};
use crate::plan::replicaset::{self as planner, Observed, status};
use crate::runtime::worker::Next;

/// Observe, plan, execute, settle.
///
/// # Errors
/// When a write or a read fails; the key is then retried with backoff.
pub async fn sync_replica_set(cluster: &Cluster, key: &ObjectKey) -> Result<Next, SyncError> {
    let Some(set) = cluster.sets.get(key) else { return Ok(Next::Settled) };
    let result = sync(cluster, &set).await;
    cluster.forget_if_gone(&cluster.sets, &set.meta);
    result
}

async fn sync(cluster: &Cluster, set: &ReplicaSet) -> Result<Next, SyncError> {
    cluster.resolve(set).await?;
    if let Some(wait) = cluster.behind(set, &cluster.set_waiters) {
        let Resource { group, plural, .. } = ReplicaSet::RESOURCE;
        cluster.metrics.replicaset_stale_skips.with_label_values(&[group, plural]).inc();
        return Ok(wait);
    }
    let observed = observe(cluster, set).await?;
    let plan = planner::plan(&observed);
    let executed = cluster.execute_set(set, &plan).await;
    let mut settled = status::settle(&observed, executed.outcome.as_ref());

    let before = &set.status.conditions;
    cluster.words.keep(&set.meta.uid, before, &mut settled.status.conditions, Instant::now());

    let stale = matches!(executed.error, Some(SyncError::Conflict { .. } | SyncError::Gone { .. }));
    let written = if stale { Ok(()) } else { cluster.write_set_status(set, &settled.status).await };
    match executed.error {
        Some(error) => Err(error),
        None => written.map(|()| settled.look_again.map_or(Next::Settled, Next::After)),
    }
}

async fn observe<'a>(cluster: &Cluster, set: &'a ReplicaSet) -> Result<Observed<'a>, SyncError> {
    let owned = cluster.pods.owned_by(&set.meta.uid);
    let orphans = cluster.pods.orphans(&set.meta.key.namespace);
    let may_adopt = planner::wants_to_adopt(set, &orphans) && cluster.may_adopt(set).await?;
    let siblings = if planner::is_too_large(set, &owned) { siblings(cluster, set) } else { Vec::new() };
    Ok(Observed { set, owned, orphans, may_adopt, siblings, now: cluster.clock.now() })
}

/// Active pods of the other sets of the same Deployment.
fn siblings(cluster: &Cluster, set: &ReplicaSet) -> Vec<Arc<Pod>> {
    let Some(controller) = &set.meta.controller else { return Vec::new() };
    let sets = cluster.sets.owned_by(&controller.uid);
    sets.iter()
        .filter(|sibling| sibling.meta.uid != set.meta.uid)
        .flat_map(|sibling| cluster.pods.owned_by(&sibling.meta.uid))
        .filter(|pod| pod.is_active())
        .collect()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::{Request, Response};
    use kube::client::Body;
    use parking_lot::Mutex;
    use serde_json::json;

    use super::*;
    use crate::clock::Clock;
    use crate::metrics::Metrics;
    use crate::model::{Interner, Meta};
    use crate::runtime::api::Api;
    use crate::runtime::events::EventRecorder;
    use crate::runtime::expectations::{Caches, Expectations};
    use crate::runtime::limit::Limiter;
    use crate::runtime::store::{Change, Store};
    use crate::runtime::waiters::Waiters;
    use crate::runtime::worker::WorkQueue;

    /// A cluster whose API server calls `before_answer` and then answers with this code.
    fn cluster(code: u16, before_answer: impl Fn() + Clone + Send + 'static) -> Cluster {
        let service = tower::service_fn(move |_: Request<Body>| {
            before_answer();
            let body = json!({"metadata": {"resourceVersion": "50"}}).to_string().into_bytes();
            let answer = Response::builder().status(code).body(Body::from(body)).unwrap();
            async move { Ok::<_, Infallible>(answer) }
        });
        let metrics = Metrics::new();
        let client = kube::Client::new(service, "default");
        let api = Api::new(client, "h", Limiter::unlimited(), metrics.clone());
        let clock = Clock::virtual_from("2026-01-01T00:00:00Z".parse().unwrap());
        let (recorder, _) = EventRecorder::new(api.clone(), clock.clone(), 1);
        let (deployment_queue, set_queue) = (WorkQueue::new("d", &metrics), WorkQueue::new("r", &metrics));
        Cluster {
            api,
            clock,
            deployments: Arc::default(),
            sets: Arc::default(),
            pods: Arc::default(),
            deployment_waiters: Waiters::new(deployment_queue.clone()),
            set_waiters: Waiters::new(set_queue.clone()),
            deployment_queue,
            set_queue,
            caches: Caches::default(),
            expectations: Expectations::new(metrics.clone()),
            unresolved: Default::default(),
            words: Default::default(),
            explanations: Default::default(),
            scope: Default::default(),
            rollouts: Default::default(),
            coexistence: Default::default(),
            recorder,
            metrics,
            rng: Mutex::new(fastrand::Rng::with_seed(1)),
        }
    }

    fn set() -> ReplicaSet {
        let json = r#"{"metadata":{"name":"web","namespace":"shop","uid":"u","resourceVersion":"7"},
            "spec":{"replicas":1,"selector":{"matchLabels":{"a":"b"}},
                    "template":{"metadata":{"labels":{"a":"b"}}}}}"#;
        ReplicaSet::decode(json, &mut Interner::default()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_noted_for_a_set_that_goes_during_its_sync_is_forgotten() {
        for code in [201, 500] {
            // The cache shows the set gone while a write for it is under way.
            let sets: Arc<Mutex<Option<Arc<Store<ReplicaSet>>>>> = Arc::default();
            let gone = sets.clone();
            let cluster = cluster(code, move || {
                if let Some(sets) = &*gone.lock() {
                    let Meta { key, uid, .. } = set().meta;
                    sets.remove(&key, &uid, 60, None);
                }
            });
            cluster.sets.put(set());
            *sets.lock() = Some(cluster.sets.clone());
            let change = Change::Deleted(Arc::new(set()));
            cluster.set_changed(&change);
            let _ends = sync_replica_set(&cluster, &set().meta.key).await;
            assert!(cluster.expectations.is_empty() && cluster.unresolved.is_empty(), "{code}");
        }
    }
}
