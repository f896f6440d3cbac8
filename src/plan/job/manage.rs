//! How many pods a Job runs, which it deletes, and which it creates (upstream: `manageJob`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::backoff::Backoff;
use super::counting::Counting;
use super::pods::Owned;
use super::refused_pods::RefusedPods;
use super::{BURST, Cause, Deletion, NewPod, Observed, names};
use crate::model::job::FailureAction;
use crate::model::{Pod, Uid};
use crate::plan::job::failure_policy;
use crate::plan::replicaset::deletion_order::first_to_delete;

/// The pods to create and delete.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Managed {
    /// Pods to delete: first their finalizer goes, so that they count neither way.
    pub delete: Vec<Deletion>,
    /// Active pods without the finalizer that stay: they get it back, or their end would not be counted. Upstream loses
    /// them.
    pub track: Vec<Arc<Pod>>,
    /// Pods to create.
    pub create: Vec<NewPod>,
    /// How many pods are missing and wait for a backoff, and until when.
    pub backing_off: Option<(usize, Timestamp)>,
    /// How many pods are missing and wait for another one, since nodes have refused the last ones.
    pub trying: Option<(usize, RefusedPods)>,
    /// How many pods are missing until terminating ones have ended.
    pub behind_terminating: usize,
}

/// Decides about the pods of a Job without a fate.
pub fn manage(observed: &Observed<'_>, counting: &Counting, backoff: &Backoff) -> Managed {
    let Observed { job, pods, now, .. } = observed;
    let active: Vec<&Owned> = pods.active().collect();
    if job.is_suspended {
        let delete = active.iter().map(|owned| Deletion::of(&owned.pod, Cause::Suspended)).collect();
        return Managed { delete, ..Managed::default() };
    }
    let wanted = wanted(observed, counting, active.len());
    let mut delete = strays(observed, counting);
    let strays: BTreeSet<Uid> = delete.iter().map(|stray| stray.pod.meta.uid.clone()).collect();
    let rest: Vec<&Arc<Pod>> =
        active.iter().map(|owned| &owned.pod).filter(|pod| !strays.contains(&pod.meta.uid)).collect();
    let surplus = first_to_delete(&rest, None, rest.len().saturating_sub(wanted), *now);
    delete.extend(surplus.iter().map(|pod| Deletion::of(pod, Cause::Surplus)));
    let goes: BTreeSet<&Uid> = delete.iter().map(|deletion| &deletion.pod.meta.uid).collect();
    let untracked = active.iter().filter(|owned| !owned.is_tracked && !goes.contains(owned.uid()));
    let track = untracked.map(|owned| owned.pod.clone()).collect();
    delete.truncate(BURST);
    let mut managed = Managed { delete, track, ..Managed::default() };
    if !managed.delete.is_empty() {
        return managed;
    }
    let mut missing = wanted.saturating_sub(active.len());
    if job.replaces_failed_only {
        let lacking = missing;
        missing = missing.saturating_sub(pods.terminating().count());
        managed.behind_terminating = lacking - missing;
    }
    if missing == 0 {
        return managed;
    }
    if job.backoff_limit_per_index.is_none()
        && let Some(until) = backoff.until(job, *now)
    {
        managed.backing_off = Some((missing, until));
        return managed;
    }
    let refused = RefusedPods::of(pods, *now);
    let room = refused.map_or(missing, |refused| refused.room(missing));
    let held_up = create(observed, counting, missing, room, &mut managed);
    managed.trying = refused.filter(|_| held_up > 0).map(|refused| (held_up, refused));
    managed
}

/// How many pods should be active.
fn wanted(observed: &Observed<'_>, counting: &Counting, active: usize) -> usize {
    let job = observed.job;
    let parallelism = usize::try_from(job.parallelism).unwrap_or(0);
    match job.completions {
        // A work queue: the pods agree among themselves when it is empty, and none is replaced.
        None if counting.succeeded > 0 => active,
        None => parallelism,
        Some(completions) => {
            let left = i64::from(completions).saturating_sub(counting.succeeded);
            usize::try_from(left).unwrap_or(0).min(parallelism)
        }
    }
}

/// Active pods of an Indexed Job without an index of it, second ones of an index, and those of an index that has ended. Of
/// one index the pod stays that would be deleted last.
fn strays(observed: &Observed<'_>, counting: &Counting) -> Vec<Deletion> {
    let Observed { job, pods, now, .. } = observed;
    if !job.is_indexed() {
        return Vec::new();
    }
    let failed = counting.failed_indexes.as_ref();
    let has_ended = |index: i32| {
        counting.completed_indexes.contains(index) || failed.is_some_and(|failed| failed.contains(index))
    };
    let mut strays = Vec::new();
    let mut of_index: BTreeMap<i32, Vec<&Arc<Pod>>> = BTreeMap::new();
    for owned in pods.active() {
        match owned.index {
            Some(index) if !has_ended(index) => of_index.entry(index).or_default().push(&owned.pod),
            _ => strays.push(Deletion::of(&owned.pod, Cause::Stray)),
        }
    }
    for pods in of_index.values().filter(|pods| pods.len() > 1) {
        let seconds = first_to_delete(pods, None, pods.len() - 1, *now);
        strays.extend(seconds.iter().map(|pod| Deletion::of(pod, Cause::Stray)));
    }
    strays
}

/// Chooses the pods to create: of those that are missing, as many as there is room for. Returns how many others there are.
fn create(
    observed: &Observed<'_>,
    counting: &Counting,
    missing: usize,
    room: usize,
    managed: &mut Managed,
) -> usize {
    let Observed { job, pods, now, names, reserved, .. } = observed;
    let (missing, mut held_up) = (missing.min(BURST), 0);
    if !job.is_indexed() {
        let count = room.saturating_sub(*reserved).min(BURST);
        let free = names.free().iter().take(count);
        managed.create = free.map(|name| NewPod { name: name.clone(), ..NewPod::default() }).collect();
        return missing.saturating_sub(room);
    }
    let blocks =
        |owned: &&Owned| owned.pod.is_active() || job.replaces_failed_only && owned.pod.is_terminating();
    let taken = pods.owned.iter().filter(blocks).filter_map(|owned| owned.index);
    let mut ended = counting.completed_indexes.with(taken);
    if let Some(failed) = &counting.failed_indexes {
        ended = ended.with_all(failed);
    }
    let mut waiting = 0;
    let mut earliest: Option<Timestamp> = None;
    for index in ended.missing_below(job.completions.unwrap_or(0)) {
        if managed.create.len() + held_up >= missing {
            break;
        }
        let held = counting.held.get(&index);
        if let Some(until) = held.and_then(|held| backoff_of(held).until(job, *now)) {
            waiting += 1;
            earliest = Some(earliest.map_or(until, |earliest| earliest.min(until)));
            continue;
        }
        if managed.create.len() >= room {
            held_up += 1;
            continue;
        }
        managed.create.push(NewPod {
            name: names::indexed(observed, index),
            index: Some(index),
            failures_before: job
                .backoff_limit_per_index
                .map(|_| held.map_or((0, 0), |held| after(observed, held))),
        });
    }
    let lacking = missing.saturating_sub(managed.create.len() + held_up).min(waiting);
    managed.backing_off = earliest.filter(|_| lacking > 0).map(|until| (lacking, until));
    held_up
}

/// The failures of an index whose last pod this is.
fn backoff_of(held: &Owned) -> Backoff {
    Backoff { failures: held.all_failures_before() + 1, last: Some(held.finished) }
}

/// The failures before the replacement of a pod: counted and ignored.
fn after(observed: &Observed<'_>, held: &Owned) -> (i32, i32) {
    let (counted, ignored) = held.failures_before;
    match failure_policy::action(observed.job, &held.pod) {
        FailureAction::Ignore => (counted, ignored.saturating_add(1)),
        _ => (counted.saturating_add(1), ignored),
    }
}
