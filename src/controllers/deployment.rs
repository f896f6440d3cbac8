//! One sync of one Deployment.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::cluster::{Cluster, Speaker};
use super::error::SyncError;
use super::explanations::Explanation;
use super::patch;
use super::rollouts::NewSet;
use crate::model::{Deployment, ObjectKey, Pod, Record, ReplicaSet, Resource, Strategy};
use crate::plan::deployment::observed::{healthy, lacks_pods};
use crate::plan::deployment::{
    self as planner, Course, Observed, Plan, Write, progress, revision, status, why,
};
use crate::plan::replicaset::status::status_of_pods;
use crate::runtime::worker::Next;

/// Observe, plan, execute, settle.
///
/// # Errors
/// When a write or a read fails; the key is then retried with backoff.
pub async fn sync_deployment(cluster: &Cluster, key: &ObjectKey) -> Result<Next, SyncError> {
    let Some(deployment) = cluster.deployments.get(key) else { return Ok(Next::Settled) };
    let result = sync(cluster, &deployment).await;
    cluster.forget_if_gone(&cluster.deployments, &deployment.meta);
    result
}

async fn sync(cluster: &Cluster, deployment: &Deployment) -> Result<Next, SyncError> {
    cluster.resolve_sets(deployment).await?;
    let orphans = cluster.sets.orphans(&deployment.meta.key.namespace);
    let adopts = planner::wants_to_adopt(deployment, &orphans);
    let may_adopt = adopts && cluster.may_adopt(deployment).await?;
    let mut has_asked = adopts;
    loop {
        // The answers took their time: what is decided on is what the cache shows now.
        let now = cluster.deployments.get(&deployment.meta.key);
        let Some(deployment) = now.filter(|now| now.meta.uid == deployment.meta.uid) else {
            return Ok(Next::Settled);
        };
        let deployment = &*deployment;
        if let Some(wait) = cluster.behind(deployment, &cluster.deployment_waiters) {
            let Resource { group, plural, .. } = Deployment::RESOURCE;
            cluster.metrics.deployment_stale_skips.with_label_values(&[group, plural]).inc();
            return Ok(wait);
        }
        let (observed, overstated) = observe(cluster, deployment, may_adopt);
        let plan = planner::plan(&observed);
        let creates = plan.writes.iter().any(|write| matches!(write, planner::Write::Create(_)));
        if has_asked || !creates || !cluster.creations.just_created(&deployment.meta, Instant::now()) {
            return carry_out(cluster, &observed, overstated, plan).await;
        }
        cluster.is_there(deployment).await?;
        has_asked = true;
    }
}

async fn carry_out(
    cluster: &Cluster,
    observed: &Observed<'_>,
    overstated: bool,
    mut plan: Plan,
) -> Result<Next, SyncError> {
    let deployment = observed.deployment;
    report_lost_creations(cluster, observed);
    let mut executed = cluster.execute_deployment(deployment, &plan).await;
    executed.outcome.created_before = cluster.lost_creations.unreported(&deployment.meta.uid);
    let mut settled = progress::settle(observed, &plan, &executed.outcome);

    let before = &deployment.status.conditions;
    cluster.words.keep(&deployment.meta.uid, before, &mut settled.status.conditions, Instant::now());

    let mut annotations = BTreeMap::new();
    if let Some(revision) = &settled.revision
        && deployment.annotations.get(revision::REVISION) != Some(revision)
    {
        annotations.insert(revision::REVISION, revision.as_str());
    }
    let stale = executed.error.as_ref().is_some_and(SyncError::is_stale);
    cluster.terminating_field.observed(deployment.status.terminating);
    let is_kept = cluster.terminating_field.is_kept();
    let change = patch::deployment_status(
        &deployment.meta,
        &deployment.status,
        &settled.status,
        &annotations,
        is_kept,
    );
    let mut written = Ok(());
    let mut later = None;
    if let Some(change) = change.filter(|_| !stale) {
        let urgent = !annotations.is_empty() || status::is_urgent(deployment, &settled.status);
        later = cluster.pace.wait(&deployment.meta.uid, Instant::now()).filter(|_| !urgent);
        if later.is_none() {
            written = cluster.write_deployment_status(deployment, &change).await;
        }
    }
    // Nothing wakes the key when the status was right, and it is the cache of pods that catches up.
    let recount = overstated.then_some(RECOUNT);
    settled.look_again = [settled.look_again, later, recount].into_iter().flatten().min();
    if written.is_ok() && later.is_none() && !stale && plan.course == Course::Rollout {
        cluster.lost_creations.condition_written(&deployment.meta.uid);
    }
    if written.is_ok() && later.is_none() && !stale {
        let new = || observed.sets().new.as_deref().map(NewSet::from);
        let metrics = &cluster.metrics.workloads;
        cluster.rollouts.note(deployment, &settled.status, new, observed.now, metrics);
    }
    plan.why.extend(why::progress(deployment, &plan, &settled.status));
    let result = match executed.error {
        Some(error) => Err(error),
        None => written.map(|()| settled.look_again),
    };
    keep_explanation(cluster, observed, plan, &result);
    // A deadline is due while steps are refused, too: the backoff of that may be a minute.
    if result.is_err()
        && let Some(wait) = settled.look_again
    {
        cluster.deployment_queue.add_after(deployment.meta.key.clone(), wait);
    }
    result.map(|look_again| look_again.map_or(Next::Settled, Next::After))
}

/// Makes up for the events of ReplicaSets that were created although the answers were lost.
fn report_lost_creations(cluster: &Cluster, observed: &Observed<'_>) {
    let deployment = observed.deployment;
    let exists = |name: &str| observed.owned.iter().any(|owned| &*owned.meta.key.name == name);
    for new in cluster.lost_creations.seen(&deployment.meta.uid, exists) {
        if let Some(note) = Write::Create(new).note() {
            tracing::info!(deployment = %deployment.meta.key, "{}, as it turns out", note.message);
            cluster.tell(Speaker::Deployment, deployment, note);
        }
    }
}

fn keep_explanation(
    cluster: &Cluster,
    observed: &Observed<'_>,
    plan: Plan,
    result: &Result<Option<Duration>, SyncError>,
) {
    let Plan { writes, why, .. } = plan;
    let mut explanation = Explanation::new(observed.now, why, &writes);
    match result {
        Ok(look_again) => explanation.look_again = *look_again,
        Err(error) => explanation.fail(error),
    }
    let meta = &observed.deployment.meta;
    // Formatted only where somebody listens.
    tracing::debug!(
        deployment = %meta.key,
        writes = ?explanation.writes,
        error = explanation.error,
        look_again = ?explanation.look_again,
        "{explanation}"
    );
    cluster.explanations.keep(&meta.uid, explanation);
}

/// How soon to look again at pods that are fewer than a status says.
const RECOUNT: Duration = Duration::from_secs(1);

/// What is decided on, and whether the status of a set says more than its pods do.
fn observe<'a>(cluster: &Cluster, deployment: &'a Deployment, may_adopt: bool) -> (Observed<'a>, bool) {
    let mut owned = cluster.sets.owned_by(&deployment.as_owner());
    if planted!("the owner's UID is ignored") {
        owned = cluster.sets.in_namespace(&deployment.meta.key.namespace);
        let name = &deployment.meta.key.name;
        owned.retain(|set| set.meta.controller.as_ref().is_some_and(|owner| owner.name == *name));
        let owners = owned.iter_mut().filter_map(|set| Arc::make_mut(set).meta.controller.as_mut());
        owners.for_each(|owner| Arc::make_mut(owner).uid = deployment.meta.uid.clone());
    }
    let orphans = cluster.sets.orphans(&deployment.meta.key.namespace);
    let recreate = deployment.strategy == Strategy::Recreate;
    let now = cluster.clock.now();
    let overstated = !recreate && are_overstated(cluster, &mut owned, now);
    let (mut running_pods, mut awaited_pods) = (BTreeMap::new(), BTreeMap::new());
    let mut healthy_pods = BTreeMap::new();
    for set in &owned {
        if !recreate && !lacks_pods(set) {
            continue;
        }
        let mut pods = cluster.pods.owned_by(&set.as_owner());
        if recreate {
            let ended = |pod: &Pod| {
                pod.is_terminal() && !planted!("failed pods hold Recreate up")
                    || pod.is_terminating() && planted!("Recreate does not count pods on their way out")
            };
            let running = pods.iter().filter(|pod| !ended(pod)).count();
            running_pods.insert(set.meta.uid.clone(), running);
        }
        let ready = pods.iter().filter(|pod| pod.is_active() && pod.ready_since.is_some());
        let available = ready.clone().filter(|pod| pod.is_available(set.min_ready_seconds, now));
        if !recreate && !planted!("a status that is behind is believed") {
            let healthy = healthy(count(ready), count(available));
            healthy_pods.insert(set.meta.uid.clone(), healthy);
        }
        pods.retain(|pod| set.replicas == 0 || !pod.is_available(set.min_ready_seconds, now));
        if !pods.is_empty() {
            awaited_pods.insert(set.meta.uid.clone(), pods);
        }
    }
    let observed =
        Observed { deployment, owned, orphans, may_adopt, running_pods, awaited_pods, healthy_pods, now };
    (observed, overstated)
}

fn count<'a>(pods: impl Iterator<Item = &'a Arc<Pod>>) -> i64 {
    i64::try_from(pods.count()).unwrap_or(i64::MAX)
}

/// While pods move from one set to another, a set has no more of them than the cache of pods shows, whatever
/// its status says: a pod that went or became unready a moment ago has yet to be counted there, and an old
/// pod that is let go now would be one too many (S2). Whether a status said too much.
fn are_overstated(cluster: &Cluster, sets: &mut [Arc<ReplicaSet>], now: Timestamp) -> bool {
    let at_rest = sets.iter().filter(|set| set.replicas > 0).count() < 2;
    if at_rest || planted!("a status is believed over the pods") {
        return false;
    }
    let mut overstated = false;
    for set in sets.iter_mut().filter(|set| set.status.available > 0) {
        let pods = cluster.pods.owned_by(&set.as_owner());
        if let Some(status) = status_of_pods(set, &pods, now) {
            *set = Arc::new(ReplicaSet { status, ..ReplicaSet::clone(set) });
            overstated = true;
        }
    }
    overstated
}
