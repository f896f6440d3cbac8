//! One sync of one set: a ReplicaSet, or another kind that keeps a number of pods.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::cluster::Cluster;
use super::error::SyncError;
use super::pace::SPACING;
use super::patch;
use super::pod_owner::PodOwner;
use crate::model::{ObjectKey, Pod, Record, ReplicaSet, Resource};
use crate::plan::replicaset::names::Sequence;
use crate::plan::replicaset::{self as planner, Members, Observed, Plan, Write, rank, status};
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
    let adopts = has_orphans(cluster, owner.as_set());
    let may_adopt = adopts && cluster.may_adopt(owner).await?;
    let mut has_asked = adopts;
    loop {
        // The answers took their time. What is decided on is what the cache shows now, the set included.
        let now = O::store(cluster).get(&owner.meta().key);
        let Some(owner) = now.filter(|now| now.meta().uid == owner.meta().uid) else {
            return Ok(Next::Settled);
        };
        let owner = &*owner;
        if let Some(wait) = cluster.behind(owner, O::waiters(cluster)) {
            let Resource { group, plural, .. } = O::RESOURCE;
            cluster.metrics.replicaset_stale_skips.with_label_values(&[group, plural]).inc();
            return Ok(wait);
        }
        let observed = observe(cluster, owner.as_set(), may_adopt);
        let plan = planner::plan(&observed);
        let creates = plan.writes.iter().any(|write| matches!(write, Write::Create { .. }));
        if has_asked || !creates || !cluster.creations.just_created(owner.meta(), Instant::now()) {
            return carry_out(cluster, owner, &observed, &plan).await;
        }
        cluster.is_there(owner).await?;
        has_asked = true;
    }
}

async fn carry_out<O: PodOwner>(
    cluster: &Cluster,
    owner: &O,
    observed: &Observed<'_>,
    plan: &Plan,
) -> Result<Next, SyncError> {
    for write in &plan.writes {
        if let Write::Delete(victims) = write {
            let histogram = &cluster.metrics.workloads.deletion_age_ratio;
            let ratios = rank::age_ratios(&observed.members.active, victims, observed.now);
            ratios.for_each(|ratio| histogram.observe(ratio));
        }
    }
    let executed = cluster.execute_set(owner, plan).await;
    make_room(cluster, owner, plan, executed.error.as_ref());
    let mut settled = status::settle(observed, executed.outcome.as_ref());
    settled.status = O::reportable(settled.status);
    if executed.error.is_some() && executed.outcome.is_none() {
        status::keep_failure(&owner.as_set().status.conditions, &mut settled.status.conditions);
        status::hold_generation(owner.as_set(), &mut settled.status);
    }

    let (before, meta) = (&owner.as_set().status, owner.meta());
    cluster.words.keep(&meta.uid, &before.conditions, &mut settled.status.conditions, Instant::now());

    let stale = executed.error.as_ref().is_some_and(SyncError::is_stale);
    cluster.terminating_field.observed(before.terminating);
    let is_kept = cluster.terminating_field.is_kept();
    let change = if stale { None } else { patch::set_status(meta, before, &settled.status, is_kept) };
    let mut written = Ok(());
    let mut later = None;
    if let Some(change) = change {
        // What was made or deleted just now for a new generation is not counted yet. The sync that sees it reports
        // it, and the generation with it: two calls less in each step of a rollout. Until then nothing is counted on
        // (`plan::deployment::observed::available`). A watch that lags has the generation wait as well. Pods that
        // were lost otherwise are not among those just deleted, which still count here: of them it is told at once.
        let counts_soon = executed.error.is_none()
            && !status::has_fallen(before, &settled.status)
            && plan.changes_fewer_than_a_burst()
            && before.observed_generation != settled.status.observed_generation
            && before.conditions == settled.status.conditions;
        let urgent = status::is_urgent(before, &settled.status, observed.set.replicas);
        let now = Instant::now();
        later = match counts_soon {
            true => cluster.pace.put_off(&meta.uid, now),
            false => cluster.pace.wait(&meta.uid, now).filter(|_| !urgent),
        };
        if later.is_none() {
            written = cluster.write_set_status(owner, &change).await;
        }
    }
    let reserved = (observed.reserved > 0).then(|| cluster.reserved_for(owner));
    // The other error may be tried again as late as in a minute.
    let overtaken = matches!(written, Err(SyncError::Overtaken { .. })) && executed.error.is_some();
    let overtaken = overtaken.then_some(SPACING);
    let later = later.filter(|_| !planted!("a status that was put off is forgotten"));
    let look_again: Option<Duration> =
        [settled.look_again, plan.look_again, later, reserved, overtaken].into_iter().flatten().min();
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

/// Whether there are pods that the set might adopt.
fn has_orphans(cluster: &Cluster, set: &ReplicaSet) -> bool {
    let orphans = cluster.pods.orphans_selected_by(&set.meta.key.namespace, &set.selector);
    !Members::of(set, Vec::new(), orphans).orphans.is_empty()
}

fn observe<'a>(cluster: &Cluster, set: &'a ReplicaSet, may_adopt: bool) -> Observed<'a> {
    let owned = cluster.pods.owned_by(&set.as_owner());
    let orphans = cluster.pods.orphans_selected_by(&set.meta.key.namespace, &set.selector);
    let members = Members::of(set, owned, orphans);
    let is_ours = |pod: &Pod| set.controls(&pod.meta);
    let under = |name: &str| cluster.pods.get(&ObjectKey::new(set.meta.key.namespace.clone(), name));
    let late = cluster.unresolved.late(&set.meta.uid, Instant::now());
    let used = cluster.used_names(set);
    let sequence = Sequence::of(&set.meta.key.name, &set.meta.uid);
    let was_had = |name: &str| sequence.position(name).is_some_and(|position| used.is_used(position));
    // A late request may still make a pod under a name that must not be asked for again, or cannot be now.
    let is_kept = |name: &&String| match under(name) {
        Some(pod) => !(pod.is_active() && is_ours(&pod)),
        None => was_had(name),
    };
    let reserved = late.iter().filter(is_kept).count() + used.in_doubt();
    let late = late.into_iter().filter(|name| !was_had(name)).collect();
    let is_foreign = |name: &str| under(name).is_some_and(|pod| !is_ours(&pod));
    let free_names = planner::free_names(set, &members, &late, &used, is_foreign);
    let siblings = if planner::is_too_large(set, &members) { siblings(cluster, set) } else { Vec::new() };
    Observed {
        set,
        members,
        may_adopt,
        siblings,
        free_names,
        reserved,
        failed_pod_backoff: cluster.failed_pod_backoff,
        now: cluster.clock.now(),
    }
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

/// Active pods of the other ReplicaSets with the same owner.
fn siblings(cluster: &Cluster, set: &ReplicaSet) -> Vec<Arc<Pod>> {
    let Some(owner) = set.meta.owner() else { return Vec::new() };
    let sets = cluster.sets.owned_by(&owner);
    sets.iter()
        .filter(|sibling| sibling.meta.uid != set.meta.uid)
        .flat_map(|sibling| cluster.pods.owned_by(&sibling.as_owner()))
        .filter(|pod| pod.is_active())
        .collect()
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use serde_json::json;

    use super::*;
    use crate::controllers::fixture::{answering, cluster};
    use crate::model::{Interner, Meta};
    use crate::runtime::expectations::Caches;
    use crate::runtime::store::{Change, Store};
    use crate::runtime::worker::run_workers;

    fn set() -> ReplicaSet {
        set_at(1, 1)
    }

    fn set_at(generation: i64, replicas: i32) -> ReplicaSet {
        let json = json!({
            "metadata": {"name": "web", "namespace": "shop", "uid": "u", "generation": generation,
                         "resourceVersion": (6 + generation).to_string()},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"a": "b"}},
                     "template": {"metadata": {"labels": {"a": "b"}}}},
        });
        ReplicaSet::decode(&json.to_string(), &mut Interner::default()).unwrap()
    }

    /// How many pods are asked for in one sync of a set of three that the cache shows with another size
    /// when the first request is answered with `code`.
    async fn created_when_resized_meanwhile(code: u16, unresolved: bool, replicas: i32) -> usize {
        let (sets, creations) = (Arc::new(Store::<ReplicaSet>::default()), Arc::new(Mutex::new(0)));
        let (cache, count) = (sets.clone(), creations.clone());
        let mut cluster = cluster(code, move |request| {
            cache.put(set_at(2, replicas));
            *count.lock() += usize::from(request.method() == http::Method::POST);
        });
        cluster.sets = sets;
        cluster.sets.put(set_at(1, 3));
        if unresolved {
            cluster.unresolved.created(&set().meta.uid, "web-x".into());
        }
        let _ends = sync_replica_set::<ReplicaSet>(&cluster, &set().meta.key).await;
        *creations.lock()
    }

    #[tokio::test(start_paused = true)]
    async fn a_set_that_is_resized_while_a_lost_write_is_looked_up_is_decided_about_as_it_is_then() {
        assert_eq!(created_when_resized_meanwhile(404, true, 0).await, 0);
        assert_ne!(created_when_resized_meanwhile(404, true, 1).await, 0);
    }

    /// The methods of the requests of a second sync, a moment after three pods were made that the cache does
    /// not show. `lags` has the cache of pods be behind.
    async fn asked_in_a_second_sync(lags: bool) -> Vec<http::Method> {
        let requests = Arc::new(Mutex::new(Vec::new()));
        let log = requests.clone();
        let mut cluster = cluster(201, move |request| log.lock().push(request.method().clone()));
        if lags {
            cluster.caches = Caches::default().with(cluster.pods.clone());
        }
        cluster.sets.put(set_at(1, 3));
        let _first = sync_replica_set::<ReplicaSet>(&cluster, &set().meta.key).await;
        requests.lock().clear();
        let _second = sync_replica_set::<ReplicaSet>(&cluster, &set().meta.key).await;
        requests.lock().clone()
    }

    /// How many creations one sync asks for, of a set of 500 of which so many are answered with a success and the
    /// others with this code.
    async fn creations_before_giving_up(successes: usize, code: u16) -> usize {
        let creations = Arc::new(Mutex::new(0));
        let count = creations.clone();
        let cluster = answering(move |request| {
            let mut count = count.lock();
            *count += usize::from(request.method() == http::Method::POST);
            if *count > successes { code } else { 201 }
        });
        cluster.sets.put(set_at(1, 500));
        let _fails = sync_replica_set::<ReplicaSet>(&cluster, &set().meta.key).await;
        *creations.lock()
    }

    #[tokio::test(start_paused = true)]
    async fn the_batch_in_which_a_pod_is_refused_is_sent_to_its_end_and_no_other() {
        for code in [403, 422, 500] {
            assert_eq!(creations_before_giving_up(3, code).await, 1 + 2 + 4, "{code}");
            assert_eq!(creations_before_giving_up(64, code).await, 127, "{code}");
        }
    }

    /// So many requests of a batch are under way at the same time.
    const AT_ONCE: usize = 32;

    #[tokio::test(start_paused = true)]
    async fn nothing_more_of_a_batch_is_sent_where_there_is_no_answer() {
        // Those that are sent at the same time are on their way already, and each success makes room for another.
        assert!(creations_before_giving_up(64, 502).await <= 64 + AT_ONCE);
    }

    #[tokio::test(start_paused = true)]
    async fn pods_that_went_as_fast_as_they_were_made_are_made_again_only_after_a_look_at_the_set() {
        assert_eq!(asked_in_a_second_sync(false).await.first(), Some(&http::Method::GET));
    }

    #[tokio::test(start_paused = true)]
    async fn pods_that_the_cache_has_yet_to_show_are_no_reason_to_ask() {
        assert_eq!(asked_in_a_second_sync(true).await, Vec::<http::Method>::new());
    }

    #[tokio::test(start_paused = true)]
    async fn a_status_does_not_meet_a_resize_that_is_under_way() {
        let requests = Arc::new(Mutex::new(0));
        let count = requests.clone();
        let cluster = cluster(200, move |_| *count.lock() += 1);
        cluster.sets.put(set_at(1, 0));
        let meta = set().meta;
        let resize = cluster.turns.take(&meta, Instant::now());
        let ended = sync_replica_set::<ReplicaSet>(&cluster, &meta.key).await;
        assert!(matches!(ended, Err(SyncError::Overtaken { .. })), "{ended:?}");
        assert_eq!(*requests.lock(), 0);
        drop(resize);
        assert!(sync_replica_set::<ReplicaSet>(&cluster, &meta.key).await.is_ok());
        assert_eq!(*requests.lock(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_status_that_a_resize_overtakes_does_not_wait_as_long_as_a_refusal() {
        let requests = Arc::new(Mutex::new(0));
        let count = requests.clone();
        let cluster = Arc::new(cluster(200, move |_| *count.lock() += 1));
        cluster.sets.put(set_at(1, 0));
        let meta = set().meta;
        for _ in 0..12 {
            tokio::time::sleep(cluster.set_queue.retry(meta.key.clone())).await;
        }
        cluster.set_queue.retain(|_| false);
        let resize = cluster.turns.take(&meta, Instant::now());
        cluster.set_queue.add(meta.key.clone());
        let syncs = cluster.clone();
        let sync = move |key| {
            let cluster = syncs.clone();
            async move { sync_replica_set::<ReplicaSet>(&cluster, &key).await }
        };
        let _workers = tokio::spawn(run_workers(cluster.set_queue.clone(), 1, sync));
        tokio::time::sleep(Duration::from_millis(100)).await;
        drop(resize);
        assert_eq!(*requests.lock(), 0);
        tokio::time::sleep(SPACING).await;
        assert_eq!(*requests.lock(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_set_that_is_resized_while_its_pods_are_made_gets_no_more_by_the_old_size() {
        assert_eq!(created_when_resized_meanwhile(201, false, 1).await, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn the_version_of_a_pod_that_went_at_once_does_not_end_the_wait_for_its_end() {
        let mut cluster = cluster(200, |_| {});
        let pods = Arc::new(Store::<Pod>::default());
        pods.begin_list(false);
        let pod = r#"{"metadata":{"name":"web-x","namespace":"shop","uid":"p","resourceVersion":"50","labels":
            {"a":"b"},"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":"u",
            "controller":true}]}}"#;
        pods.put(Pod::decode(pod, &mut Interner::default()).unwrap());
        pods.end_list(60);
        (cluster.caches, cluster.pods) = (Caches::default().with(pods.clone()), pods);
        cluster.sets.put(set_at(1, 0));
        let _ends = sync_replica_set::<ReplicaSet>(&cluster, &set().meta.key).await;
        assert!(cluster.behind(&set_at(1, 0), &cluster.set_waiters).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_noted_for_a_set_that_goes_during_its_sync_is_forgotten() {
        for code in [201, 500] {
            // The cache shows the set gone while a write for it is under way.
            let sets: Arc<Mutex<Option<Arc<Store<ReplicaSet>>>>> = Arc::default();
            let gone = sets.clone();
            let cluster = cluster(code, move |_| {
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
            assert!(cluster.pod_names.is_empty(), "{code}");
        }
    }
}
