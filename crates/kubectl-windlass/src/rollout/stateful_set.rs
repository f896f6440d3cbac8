//! The assessment of a StatefulSet.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;
use windlass::model::{
    ControllerRevision, Interner, PersistentVolumeClaim, Pod, StatefulSet, StatefulSetStrategy, Uid,
};
use windlass::plan::statefulset::revisions::{History, revision_of};
use windlass::plan::statefulset::status::{held_back, is_rolled_out};
use windlass::plan::statefulset::{self as planner, Observed, Plan, PlanReason, members, ordinals};
use windlass::plan::{REPLICA_FAILURE, Reason};

use super::claims::ClaimView;
use super::last_writes::LastWrites;
use super::pods::PodView;
use super::verdict::UNOBSERVED_AFTER;
use super::{
    Assessment, Counts, Decoded, PartView, Records, Verdict, decode, estimate, images, partial, refusal,
};
use crate::target::Kind;

/// Assesses the rollout of a StatefulSet.
///
/// # Errors
/// When the StatefulSet is not what its kind says.
pub(super) fn assess(records: Records<'_>, now: Timestamp) -> Result<Assessment, serde_json::Error> {
    let Records { object, revisions, pods, claims, events, is_partial, unreadable, .. } = records;
    let set: StatefulSet = decode(object, &mut Interner::default())?;
    let last = LastWrites::of(object);
    let by_status = by_status(&set, object, &last, unreadable, now);
    if is_partial {
        return Ok(by_status);
    }
    let observed = Observed::of_lists(
        &set,
        &without_objects(&pods),
        &without_objects(&claims),
        &without_objects(&revisions),
        now,
    );
    let plan = planner::plan(&observed);
    let history = History::of(&set, &observed.revisions);
    let objects: BTreeMap<&Uid, &Value> = pods.iter().map(|(pod, object)| (&pod.meta.uid, *object)).collect();
    let view = |pod: &Arc<Pod>| {
        let object = objects.get(&pod.meta.uid).copied().unwrap_or(&Value::Null);
        PodView::new(pod, object, revision_of(pod), history.is_updated(pod), events, now)
    };
    let own: Vec<&Arc<Pod>> = observed.members.pods.values().collect();
    let claims = claims_in_the_way(&set, &observed, &claims, events, now);
    let mut in_the_way: Vec<PodView> =
        own.iter().map(|pod| view(pod)).filter(|pod| !pod.is_ready || pod.is_deleting).collect();
    for pod in &mut in_the_way {
        name_claims(pod, &claims);
    }
    in_the_way
        .sort_by_key(|pod| (pod.is_deleting, !pod.is_failing, !pod.is_new, pod.created, pod.name.clone()));

    let number_of = |name: &str| {
        let named = |(revision, _): &&Decoded<'_, ControllerRevision>| *revision.meta.key.name == *name;
        revisions.iter().find(named).map(|(revision, _)| revision.number)
    };
    let revision = number_of(&history.update_name);
    let is_own = |uid: &Uid| observed.revisions.iter().any(|it| it.meta.uid == *uid);
    let previous = revisions
        .iter()
        .filter(|(it, _)| is_own(&it.meta.uid) && revision.is_none_or(|own| it.number < own))
        .max_by_key(|(it, _)| it.number)
        .map(|(it, object)| (it.number, images(&object["data"]["spec"]["template"])));

    let creates = plan.reasons.iter().any(|reason| matches!(reason, PlanReason::Creating { .. }));
    let refusal = refusal::current(&set.meta.uid, creates, events, &last, now);
    let verdict = verdict(&set, &plan, &last, refusal.is_some(), now);
    let updated: Vec<Arc<Pod>> =
        own.iter().filter(|pod| history.is_updated(pod)).map(|pod| Arc::clone(pod)).collect();
    let desired_new = by_status.desired_new;
    let estimate = verdict
        .proceeds()
        .then(|| {
            let started = last.template.unwrap_or(set.meta.created);
            let wanted = i32::try_from(desired_new).unwrap_or(i32::MAX);
            estimate::estimate(&updated, set.min_ready_seconds, wanted, started, now)
        })
        .flatten();
    let waits_since = in_the_way.iter().map(|pod| pod.since).min();
    let by_hand = match set.strategy {
        StatefulSetStrategy::OnDelete => outdated(&observed, &history),
        StatefulSetStrategy::RollingUpdate { .. } => Vec::new(),
    };
    Ok(Assessment {
        revision: revision.or(by_status.revision),
        since: match verdict {
            Verdict::Unobserved => last.spec,
            Verdict::Waiting | Verdict::Blocked => waits_since,
            _ => None,
        },
        verdict,
        writes: plan.writes.iter().map(ToString::to_string).collect(),
        reasons: plan.reasons.into_iter().map(Reason::from).collect(),
        refusal,
        then: then(&set, &observed, &history),
        by_hand,
        parts: parts(&observed, &history, &own, &view),
        pods: in_the_way,
        claims,
        estimate,
        previous,
        is_partial: false,
        knows_pods: true,
        ..by_status
    })
}

fn without_objects<T>(decoded: &[Decoded<'_, T>]) -> Vec<Arc<T>> {
    decoded.iter().map(|(record, _)| record.clone()).collect()
}

fn by_status(
    set: &StatefulSet,
    object: &Value,
    last: &LastWrites,
    unreadable: &[String],
    now: Timestamp,
) -> Assessment {
    let status = &set.status;
    let fails =
        status.conditions.iter().any(|condition| &*condition.kind == REPLICA_FAILURE && condition.is_true());
    let verdict = match early_verdict(set, last, now) {
        Some(verdict) => verdict,
        None if is_rolled_out(set) => Verdict::Complete,
        None if fails => Verdict::Blocked,
        None => Verdict::Unfinished,
    };
    Assessment {
        observed_generation: status.observed_generation,
        verdict,
        since: if verdict == Verdict::Unobserved { last.spec } else { None },
        counts: Counts {
            desired: set.replicas.into(),
            replicas: status.replicas.into(),
            updated: status.updated.into(),
            ready: status.ready.into(),
            available: status.available.into(),
        },
        desired_new: i64::from(set.replicas) - i64::from(held_back(set)),
        ..partial::of_object(Kind::StatefulSet, &set.meta, object, last, unreadable, now)
    }
}

/// The verdicts that need nothing but the StatefulSet.
fn early_verdict(set: &StatefulSet, last: &LastWrites, now: Timestamp) -> Option<Verdict> {
    let changed = last.spec.unwrap_or(set.meta.created);
    let is_unobserved = set.status.observed_generation < set.meta.generation
        && now.duration_since(changed) >= UNOBSERVED_AFTER;
    if set.meta.is_deleting() {
        Some(Verdict::Deleting)
    } else {
        is_unobserved.then_some(Verdict::Unobserved)
    }
}

fn verdict(set: &StatefulSet, plan: &Plan, last: &LastWrites, is_refused: bool, now: Timestamp) -> Verdict {
    let planned = plan.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let fails = planned.iter().any(|condition| &*condition.kind == REPLICA_FAILURE && condition.is_true());
    if !set.meta.is_deleting() && plan.reasons.iter().any(|it| matches!(it, PlanReason::Refused { .. })) {
        return Verdict::Refused;
    }
    match early_verdict(set, last, now) {
        Some(verdict) => verdict,
        None if is_rolled_out(set) && is_rolled_out_by(plan, set) => Verdict::Complete,
        None if fails || is_refused => Verdict::Blocked,
        None if plan.writes.is_empty() => Verdict::Waiting,
        None => Verdict::Rolling,
    }
}

/// Whether the pods, too, are as the status says: that may be a second older.
fn is_rolled_out_by(plan: &Plan, set: &StatefulSet) -> bool {
    let seen = |status| is_rolled_out(&StatefulSet { status, ..set.clone() });
    plan.status.clone().is_none_or(seen)
}

/// The pods of each revision, those of the current template first.
fn parts(
    observed: &Observed<'_>,
    history: &History<'_>,
    own: &[&Arc<Pod>],
    view: &dyn Fn(&Arc<Pod>) -> PodView,
) -> Vec<PartView> {
    let mut names: BTreeSet<&str> = own.iter().map(|pod| revision_of(pod)).collect();
    names.insert(&history.update_name);
    let part = |name: &str| {
        let pods: Vec<&Arc<Pod>> = own.iter().filter(|pod| revision_of(pod) == name).copied().collect();
        let count = |holds: &dyn Fn(&Pod) -> bool| {
            i64::try_from(pods.iter().filter(|pod| holds(pod)).count()).unwrap_or(i64::MAX)
        };
        let mut states: BTreeMap<String, usize> = BTreeMap::new();
        pods.iter().for_each(|pod| *states.entry(view(pod).summary()).or_default() += 1);
        let mut states: Vec<(String, usize)> = states.into_iter().collect();
        states.sort_by_key(|(state, count)| (Reverse(*count), state.clone()));
        let stays = |pod: &Pod| !pod.meta.is_deleting();
        PartView {
            name: name.to_owned(),
            is_new: name == &*history.update_name,
            desired: count(&stays),
            replicas: count(&|_| true),
            ready: count(&|pod| stays(pod) && members::is_ready(pod)),
            available: count(&|pod| stays(pod) && members::is_available(observed.set, pod, observed.now)),
            states,
        }
    };
    let mut parts: Vec<PartView> = names.into_iter().map(part).collect();
    parts.sort_by_key(|part| !part.is_new);
    parts
}

/// The pods of older templates in range, the highest ordinal first.
fn outdated(observed: &Observed<'_>, history: &History<'_>) -> Vec<String> {
    let range = ordinals::wanted(observed.set);
    let pods = observed.members.pods.iter().rev().filter(|(ordinal, pod)| {
        range.contains(&i64::from(**ordinal)) && !history.is_updated(pod) && !pod.meta.is_deleting()
    });
    pods.map(|(_, pod)| pod.meta.key.name.to_string()).collect()
}

/// The next step of a StatefulSet, once it waits no more: pods are created from the lowest ordinal up, and deleted from the
/// highest down, those out of range before those of an older template.
fn then(set: &StatefulSet, observed: &Observed<'_>, history: &History<'_>) -> Option<String> {
    let (range, pods) = (ordinals::wanted(set), &observed.members.pods);
    let is_there = |ordinal: &i64| i32::try_from(*ordinal).is_ok_and(|ordinal| pods.contains_key(&ordinal));
    if let Some(missing) = range.clone().find(|ordinal| !is_there(ordinal)) {
        return Some(format!("creates {}-{missing}", set.meta.key.name));
    }
    let stays = |pod: &Pod| !pod.meta.is_deleting();
    let beyond = pods.iter().rev().find(|(at, pod)| !range.contains(&i64::from(**at)) && stays(pod));
    if let Some((_, pod)) = beyond {
        return Some(format!("deletes {}, which is out of range", pod.meta.key.name));
    }
    let StatefulSetStrategy::RollingUpdate { .. } = set.strategy else { return None };
    let first = range.start + i64::from(held_back(set));
    let old = pods
        .iter()
        .rev()
        .find(|(at, pod)| i64::from(**at) >= first && stays(pod) && !history.is_updated(pod));
    old.map(|(_, pod)| format!("replaces {}", pod.meta.key.name))
}

/// The claims of pods in range that are not bound, not there, or on their way out.
fn claims_in_the_way(
    set: &StatefulSet,
    observed: &Observed<'_>,
    claims: &[Decoded<'_, PersistentVolumeClaim>],
    events: &BTreeMap<String, Vec<Value>>,
    now: Timestamp,
) -> Vec<ClaimView> {
    let objects: BTreeMap<&str, &Value> =
        claims.iter().map(|(claim, object)| (&*claim.meta.key.name, *object)).collect();
    let mut in_the_way = Vec::new();
    // Of ordinals without a pod only those claims are looked at that exist: there may be many ordinals.
    for (name, claim) in &observed.claims {
        let of = set.claim_templates.names.iter().find_map(|template| {
            let (_, digits) = ordinals::split(name)?;
            let ordinal = ordinals::ordinal(digits)?;
            (ordinals::claim_name(template, set, ordinal) == **name).then_some(ordinal)
        });
        let in_range = of.filter(|ordinal| ordinals::wanted(set).contains(&i64::from(*ordinal)));
        let (Some(ordinal), Some(object)) = (in_range, objects.get(&*claim.meta.key.name)) else { continue };
        in_the_way.extend(ClaimView::of(object, &ordinals::pod_name(set, ordinal), events, now));
    }
    for (ordinal, pod) in &observed.members.pods {
        if pod.ready_since.is_some() || !ordinals::wanted(set).contains(&i64::from(*ordinal)) {
            continue;
        }
        for template in set.claim_templates.names.iter() {
            let name = ordinals::claim_name(template, set, *ordinal);
            if !observed.claims.contains_key(&*name) {
                in_the_way.push(ClaimView::missing(name, &pod.meta.key.name));
            }
        }
    }
    in_the_way
}

/// Adds to the reason of a pod which of its claims is not bound.
fn name_claims(pod: &mut PodView, claims: &[ClaimView]) {
    for claim in claims.iter().filter(|claim| claim.pod == pod.name && !pod.is_deleting) {
        let text = match claim.state.as_str() {
            "terminating" => format!("its claim {} is being deleted", claim.name),
            state => format!("its claim {} is {state}", claim.name),
        };
        for reason in [&mut pod.reason, &mut pod.whole_reason] {
            let separator = if reason.is_empty() { "" } else { "; " };
            reason.push_str(&format!("{separator}{text}"));
        }
    }
}

#[cfg(test)]
mod tests;
