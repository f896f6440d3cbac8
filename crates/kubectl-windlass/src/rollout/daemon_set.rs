//! The assessment of a DaemonSet.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;
use windlass::model::{
    CONTROLLER_REVISION_HASH, ControllerRevision, DaemonSet, DaemonSetStatus, Interner, Node, Pod,
    Record as _, UpdateStrategy, condition,
};
use windlass::plan::Reason;
use windlass::plan::daemonset::revisions::History;
use windlass::plan::daemonset::status::is_rolled_out;
use windlass::plan::daemonset::{self as planner, JudgedNodes, Observed, Placement, Plan, PlanReason};
use windlass::plan::deployment::progress::{INVALID_POLICY, PROGRESSING, ROLLOUT_STEP, TIMED_OUT};

use super::last_writes::LastWrites;
use super::pods::PodView;
use super::verdict::UNOBSERVED_AFTER;
use super::{
    Assessment, Counts, Decoded, PartView, Records, Verdict, Workload, decode, decoded, estimate, images,
    partial, policy, refusal,
};
use crate::target::Kind;
use crate::text::harmless;

/// Assesses the rollout of a DaemonSet. Without its nodes nothing is planned, and its pods are told all the same: many users
/// may not list nodes.
///
/// # Errors
/// When the DaemonSet is not what its kind says.
pub(super) fn assess(records: Records<'_>, now: Timestamp) -> Result<Assessment, serde_json::Error> {
    let Records { object, revisions, pods, nodes, events, is_partial, unreadable, knows_pods, .. } = records;
    let daemon_set: DaemonSet = decode(object, &mut Interner::default())?;
    let last = LastWrites::of(object);
    let by_status = by_status(&daemon_set, object, &last, unreadable, now);
    if !knows_pods {
        return Ok(by_status);
    }
    let owned: Vec<Decoded<'_, Pod>> =
        pods.iter().filter(|(pod, _)| daemon_set.controls(&pod.meta)).cloned().collect();
    let own: Vec<Arc<ControllerRevision>> = revisions
        .iter()
        .filter(|(revision, _)| daemon_set.controls(&revision.meta))
        .map(|(revision, _)| revision.clone())
        .collect();
    let history = History::of(&daemon_set, &own);
    let name_of = |pod: &Pod| {
        let hash = pod.meta.labels.get(CONTROLLER_REVISION_HASH).unwrap_or_default();
        let found = own.iter().find(|revision| revision.hash() == Some(hash));
        found.map_or_else(|| hash.to_owned(), |revision| revision.meta.key.name.to_string())
    };
    let views: Vec<(Arc<Pod>, PodView)> = owned
        .iter()
        .map(|(pod, object)| {
            (pod.clone(), PodView::new(pod, object, &name_of(pod), history.is_new(pod), events, now))
        })
        .collect();
    let current = history.current.map(|revision| revision.meta.key.name.to_string());
    let parts = parts(&daemon_set, current.as_deref(), &views, now);
    let revision = history.current.map(|revision| revision.number);
    let previous = history.old.last().map(|old| {
        let object = revisions.iter().find(|(it, _)| it.meta.uid == old.meta.uid).map(|(_, object)| *object);
        (old.number, images(&object.unwrap_or(&Value::Null)["data"]["spec"]["template"]))
    });
    let updated: Vec<Arc<Pod>> =
        views.iter().filter(|(_, view)| view.is_new).map(|(pod, _)| pod.clone()).collect();
    let by_hand = match daemon_set.strategy {
        UpdateStrategy::OnDelete => views
            .iter()
            .filter(|(_, view)| !view.is_new && !view.is_deleting)
            .map(|(_, view)| view.name.clone())
            .collect(),
        UpdateStrategy::RollingUpdate { .. } => Vec::new(),
    };
    let mut in_the_way: Vec<PodView> =
        views.into_iter().map(|(_, view)| view).filter(|pod| !pod.is_ready || pod.is_deleting).collect();
    in_the_way
        .sort_by_key(|pod| (pod.is_deleting, !pod.is_failing, !pod.is_new, pod.created, pod.name.clone()));
    let known = Assessment {
        revision: revision.or(by_status.revision),
        parts,
        pods: in_the_way,
        by_hand,
        previous,
        knows_pods: true,
        ..by_status
    };
    if is_partial {
        return Ok(known);
    }
    let nodes: Vec<Arc<Node>> = nodes.into_iter().map(|(node, _)| node).collect();
    let revisions: Vec<Arc<ControllerRevision>> = revisions.into_iter().map(|(it, _)| it).collect();
    let observed = observe(&daemon_set, &pods, &revisions, &nodes, now);
    let plan = planner::plan(&observed);
    let creates = plan.reasons.iter().any(|reason| matches!(reason, PlanReason::Creating { .. }));
    let refusal = refusal::current(&daemon_set.meta.uid, creates, events, &last, now);
    let verdict = verdict(&daemon_set, &plan, &last, refusal.is_some(), now);
    let estimate = verdict
        .proceeds()
        .then(|| {
            let started = last.template.unwrap_or(daemon_set.meta.created);
            let desired = daemon_set.status.desired;
            estimate::estimate(&updated, daemon_set.min_ready_seconds, desired, started, now)
        })
        .flatten();
    Ok(Assessment {
        since: match verdict {
            Verdict::Waiting | Verdict::Blocked => known.pods.iter().map(|pod| pod.since).min(),
            Verdict::Held => plan.reasons.iter().find_map(held_since),
            _ => known.since,
        },
        verdict,
        writes: plan.writes.iter().map(ToString::to_string).collect(),
        reasons: plan.reasons.into_iter().map(Reason::from).collect(),
        summary: excluded(&daemon_set, &nodes),
        refusal,
        estimate,
        is_partial: false,
        ..known
    })
}

/// The most reasons that are told for nodes without a pod.
const TOLD_REASONS: usize = 3;

/// How many nodes should run no pod, and why. A DaemonSet that nobody's node suits is complete as well.
fn excluded(daemon_set: &DaemonSet, nodes: &[Arc<Node>]) -> Option<String> {
    let placement = Placement::of(daemon_set).ok()?;
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    for exclusion in nodes.iter().filter_map(|node| placement.exclusion(node)) {
        *reasons.entry(exclusion.to_string()).or_default() += 1;
    }
    let excluded: usize = reasons.values().sum();
    let mut reasons: Vec<(String, usize)> = reasons.into_iter().collect();
    reasons.sort_by_key(|(_, count)| Reverse(*count));
    let more = if reasons.len() > TOLD_REASONS { "; and others" } else { "" };
    let told: Vec<String> =
        reasons.iter().take(TOLD_REASONS).map(|(reason, count)| format!("{count}: {reason}")).collect();
    let told = harmless(&told.join("; "));
    (excluded > 0).then(|| format!("{excluded} of {} nodes run no pod of it ({told}{more})", nodes.len()))
}

/// A DaemonSet, the next plan for it, and its current revision, if it has one.
///
/// # Errors
/// When the DaemonSet is not what its kind says.
pub(crate) fn planned(
    workload: &Workload,
    now: Timestamp,
) -> Result<(DaemonSet, Plan, Option<Arc<ControllerRevision>>), serde_json::Error> {
    let interner = &mut Interner::default();
    let daemon_set: DaemonSet = decode(&workload.object, interner)?;
    let pods = decoded::<Pod>(&workload.pods, interner);
    let revisions: Vec<Arc<ControllerRevision>> =
        decoded(&workload.revisions, interner).into_iter().map(|(revision, _)| revision).collect();
    let nodes: Vec<Arc<Node>> =
        decoded(&workload.nodes, interner).into_iter().map(|(node, _)| node).collect();
    let observed = observe(&daemon_set, &pods, &revisions, &nodes, now);
    let plan = planner::plan(&observed);
    let current = History::of(&daemon_set, &observed.revisions).current.cloned();
    drop(observed);
    Ok((daemon_set, plan, current))
}

fn observe<'a>(
    daemon_set: &'a DaemonSet,
    pods: &[Decoded<'_, Pod>],
    revisions: &[Arc<ControllerRevision>],
    nodes: &[Arc<Node>],
    now: Timestamp,
) -> Observed<'a> {
    let pods: Vec<Arc<Pod>> = pods.iter().map(|(pod, _)| pod.clone()).collect();
    Observed::of_lists(daemon_set, &pods, revisions, &JudgedNodes::of(daemon_set, nodes), now)
}

fn by_status(
    daemon_set: &DaemonSet,
    object: &Value,
    last: &LastWrites,
    unreadable: &[String],
    now: Timestamp,
) -> Assessment {
    let status = &daemon_set.status;
    let verdict = match early_verdict(daemon_set, last, now) {
        Some(verdict) => verdict,
        None if is_rolled_out(daemon_set, status) => Verdict::Complete,
        None => match progress(daemon_set, status) {
            TIMED_OUT => Verdict::Stuck,
            ROLLOUT_STEP | INVALID_POLICY => Verdict::Held,
            _ => Verdict::Unfinished,
        },
    };
    Assessment {
        observed_generation: status.observed_generation,
        verdict,
        since: if verdict == Verdict::Unobserved { last.spec } else { None },
        counts: Counts {
            desired: status.desired.into(),
            replicas: status.current.into(),
            updated: status.updated.into(),
            ready: status.ready.into(),
            available: status.available.into(),
        },
        desired_new: status.desired.into(),
        policy: policy::in_force(&daemon_set.policies, now),
        ..partial::of_object(Kind::DaemonSet, &daemon_set.meta, object, last, unreadable, now)
    }
}

/// The verdicts that need nothing but the DaemonSet.
fn early_verdict(daemon_set: &DaemonSet, last: &LastWrites, now: Timestamp) -> Option<Verdict> {
    let changed = last.spec.unwrap_or(daemon_set.meta.created);
    let is_unobserved = daemon_set.status.observed_generation < daemon_set.meta.generation
        && now.duration_since(changed) >= UNOBSERVED_AFTER;
    if daemon_set.meta.is_deleting() {
        Some(Verdict::Deleting)
    } else {
        is_unobserved.then_some(Verdict::Unobserved)
    }
}

fn verdict(
    daemon_set: &DaemonSet,
    plan: &Plan,
    last: &LastWrites,
    is_refused: bool,
    now: Timestamp,
) -> Verdict {
    let gives = |test: fn(&PlanReason) -> bool| plan.reasons.iter().any(test);
    if !daemon_set.meta.is_deleting() && gives(|reason| matches!(reason, PlanReason::Refused { .. })) {
        return Verdict::Refused;
    }
    // The pods may be a second newer than the status.
    let status = plan.status.as_ref().unwrap_or(&daemon_set.status);
    match early_verdict(daemon_set, last, now) {
        Some(verdict) => verdict,
        None if is_rolled_out(daemon_set, &daemon_set.status) && is_rolled_out(daemon_set, status) => {
            Verdict::Complete
        }
        None if gives(|reason| matches!(reason, PlanReason::InvalidPolicy { .. })) => Verdict::Held,
        None if is_refused => Verdict::Blocked,
        None if progress(daemon_set, status) == TIMED_OUT => Verdict::Stuck,
        None if plan.writes.is_empty() && gives(holds) => Verdict::Held,
        None if plan.writes.is_empty() => Verdict::Waiting,
        None => Verdict::Rolling,
    }
}

/// The reason of the condition about progress. Before the latest template was observed it is that of another one.
fn progress<'a>(daemon_set: &DaemonSet, status: &'a DaemonSetStatus) -> &'a str {
    let is_observed = status.observed_generation >= daemon_set.meta.generation;
    let shown = condition::find(&status.conditions, PROGRESSING).filter(|_| is_observed);
    shown.map_or("", |shown| &shown.reason)
}

/// Whether a step holds the update although its pods are available.
fn holds(reason: &PlanReason) -> bool {
    held_since(reason).is_some()
}

/// Since when a step holds the update although its pods are available.
fn held_since(reason: &PlanReason) -> Option<Timestamp> {
    if let PlanReason::HeldAtStep { step } = reason { step.since } else { None }
}

/// The pods of each revision, those of the current template first.
fn parts(
    daemon_set: &DaemonSet,
    current: Option<&str>,
    views: &[(Arc<Pod>, PodView)],
    now: Timestamp,
) -> Vec<PartView> {
    let mut names: BTreeMap<&str, bool> =
        views.iter().map(|(_, view)| (view.owner.as_str(), view.is_new)).collect();
    names.extend(current.map(|name| (name, true)));
    let part = |(name, is_new): (&str, bool)| {
        let pods = || views.iter().filter(|(_, view)| view.owner == name);
        let count = |holds: &dyn Fn(&Pod) -> bool| {
            i64::try_from(pods().filter(|(pod, _)| holds(pod)).count()).unwrap_or(i64::MAX)
        };
        let mut states: BTreeMap<String, usize> = BTreeMap::new();
        pods().for_each(|(_, view)| *states.entry(view.summary()).or_default() += 1);
        let mut states: Vec<(String, usize)> = states.into_iter().collect();
        states.sort_by_key(|(state, count)| (Reverse(*count), state.clone()));
        let stays = |pod: &Pod| !pod.meta.is_deleting();
        PartView {
            name: name.to_owned(),
            is_new,
            desired: count(&stays),
            replicas: count(&|_| true),
            ready: count(&|pod| stays(pod) && pod.ready_since.is_some()),
            available: count(&|pod| stays(pod) && pod.is_available(daemon_set.min_ready_seconds, now)),
            states,
        }
    };
    let mut parts: Vec<PartView> = names.into_iter().map(part).collect();
    parts.sort_by_key(|part| !part.is_new);
    parts
}
