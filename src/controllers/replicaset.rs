//! One sync of one set: a ReplicaSet, or another kind that keeps a number of pods.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::cluster::Cluster;
use super::error::SyncError;
use super::patch;
use super::pod_owner::PodOwner;
use super::unresolved::LATEST;
use crate::model::{ObjectKey, Pod, ReplicaSet, Resource};
use crate::plan::replicaset::{self as planner, Members, Observed, Plan, Write, status};
use crate::runtime::worker::Next;

/// Observe, plan, execute, settle.
///
/// # Errors
/// When a write or a read fails; the key is then retried with backoff.
pub async fn sync_replica_set<O: PodOwner>(cluster: &Cluster, key: &ObjectKey) -> Result<Next, SyncError> {
    let Some(owner) = O::store(cluster).get(key) else {
        needs_no_room::<O>(cluster, key);
        return Ok(Next::Settled);
    };
    let result = sync(cluster, &*owner).await;
    cluster.forget_if_gone(O::store(cluster), owner.meta());
    result
}

async fn sync<O: PodOwner>(cluster: &Cluster, owner: &O) -> Result<Next, SyncError> {
    cluster.resolve(owner).await?;
    if let Some(wait) = cluster.behind(owner, O::waiters(cluster)) {
        let Resource { group, plural, .. } = O::RESOURCE;
        cluster.metrics.replicaset_stale_skips.with_label_values(&[group, plural]).inc();
        return Ok(wait);
    }
    let observed = observe(cluster, owner).await?;
    let plan = planner::plan(&observed);
    let executed = cluster.execute_set(owner, &plan).await;
    make_room(cluster, owner, &plan, executed.error.as_ref());
    let mut settled = status::settle(&observed, executed.outcome.as_ref());
    settled.status = O::reportable(settled.status);

    let (before, meta) = (&owner.as_set().status, owner.meta());
    cluster.words.keep(&meta.uid, &before.conditions, &mut settled.status.conditions, Instant::now());

    let stale = matches!(executed.error, Some(SyncError::Conflict { .. } | SyncError::Gone { .. }));
    let change = if stale { None } else { patch::set_status(meta, before, &settled.status) };
    let mut written = Ok(());
    let mut later = None;
    if let Some(change) = change {
        let urgent = status::is_urgent(before, &settled.status, observed.set.replicas);
        later = cluster.pace.wait(&meta.uid, Instant::now()).filter(|_| !urgent);
        if later.is_none() {
            written = cluster.write_set_status(owner, &change).await;
        }
    }
    let reserved = (observed.reserved > 0).then_some(LATEST);
    let look_again: Option<Duration> =
        [settled.look_again, plan.look_again, later, reserved].into_iter().flatten().min();
    let Some(error) = executed.error.or(written.err()) else {
        return Ok(look_again.map_or(Next::Settled, Next::After));
    };
    // What is due is due while a quota refuses pods, too: the backoff of that may be a minute. The price
    // is one more doomed call.
    if let Some(wait) = look_again {
        O::queue(cluster).add_after(meta.key.clone(), wait);
    }
    Err(error)
}

async fn observe<'a, O: PodOwner>(cluster: &Cluster, owner: &'a O) -> Result<Observed<'a>, SyncError> {
    let set = owner.as_set();
    let owned = cluster.pods.owned_by(&set.meta.uid);
    let orphans = cluster.pods.orphans_selected_by(&set.meta.key.namespace, &set.selector);
    let members = Members::of(set, owned, orphans);
    let is_ours = |pod: &Pod| pod.meta.is_controlled_by(&set.meta.uid);
    let under = |name: &str| cluster.pods.get(&ObjectKey::new(set.meta.key.namespace.clone(), name));
    let late = cluster.unresolved.late(&set.meta.uid, Instant::now());
    let reserved =
        late.iter().filter_map(|name| under(name)).filter(|pod| !(pod.is_active() && is_ours(pod)));
    let reserved = reserved.count();
    let is_foreign = |name: &str| under(name).is_some_and(|pod| !is_ours(&pod));
    let free_names = planner::free_names(set, &members, &late, is_foreign);
    let may_adopt = !members.orphans.is_empty() && cluster.may_adopt(owner).await?;
    let siblings = if planner::is_too_large(set, &members) { siblings(cluster, set) } else { Vec::new() };
    Ok(Observed {
        set,
        members,
        may_adopt,
        siblings,
        free_names,
        reserved,
        failed_pod_backoff: cluster.failed_pod_backoff,
        now: cluster.clock.now(),
    })
}

/// A set whose pods are refused waits its turn; one that is no longer refused, or wants no more pods,
/// lets the next one try.
fn make_room<O: PodOwner>(cluster: &Cluster, owner: &O, plan: &Plan, error: Option<&SyncError>) {
    let creates = plan.writes.iter().any(|write| matches!(write, Write::Create { .. }));
    let key = &owner.meta().key;
    match error {
        Some(error) if creates && error.is_refusal() => cluster.refused.add(O::RESOURCE, key),
        // It will be tried again.
        Some(_) if creates => {}
        _ => needs_no_room::<O>(cluster, key),
    }
}

fn needs_no_room<O: PodOwner>(cluster: &Cluster, key: &ObjectKey) {
    if cluster.refused.remove(O::RESOURCE, key) {
        cluster.wake_refused(&key.namespace);
    }
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
    use crate::model::{Interner, Meta, Record};
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
        let queue = |name| WorkQueue::new(name, &metrics);
        let (deployment_queue, set_queue, other_queue) = (queue("d"), queue("r"), queue("c"));
        Cluster {
            api,
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
            pace: Default::default(),
            refused: Default::default(),
            words: Default::default(),
            explanations: Default::default(),
            scope: Default::default(),
            rollouts: Default::default(),
            coexistence: Default::default(),
            recorder,
            metrics,
            failed_pod_backoff: true,
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
            let _ends = sync_replica_set::<ReplicaSet>(&cluster, &set().meta.key).await;
            assert!(cluster.expectations.is_empty() && cluster.unresolved.is_empty(), "{code}");
        }
    }
}
