//! The assessment of a Deployment.

use std::collections::BTreeMap;

use jiff::Timestamp;
use windlass::model::{Deployment, Interner, Record as _, ReplicaSet};
use windlass::plan::Reason;
use windlass::plan::deployment::progress::{PROGRESSING, REPLICA_SET_UPDATED, TIMED_OUT};
use windlass::plan::deployment::{self as planner, Observed, Plan, PlanReason, explain, revision};

use super::last_writes::LastWrites;
use super::pods::PodView;
use super::{Assessment, PartView, Records, Verdict, decode, estimate, images, partial, verdict};

/// Assesses the rollout of a Deployment.
///
/// # Errors
/// When the Deployment is not what its kind says.
pub(super) fn assess(records: Records<'_>, now: Timestamp) -> Result<Assessment, serde_json::Error> {
    let Records { object, replica_sets, pods, events, is_partial, unreadable, .. } = records;
    let mut deployment: Deployment = decode(object, &mut Interner::default())?;
    let last = LastWrites::of(object);
    let deadline_is_stale = forget_stale_deadline(&mut deployment, last.template);
    let by_status = partial::assess(&deployment, object, &last, unreadable, now);
    if is_partial {
        return Ok(by_status);
    }
    let (owned, others): (Vec<_>, Vec<_>) =
        replica_sets.into_iter().partition(|replica_set| deployment.controls(&replica_set.meta));
    let orphans = others.into_iter().filter(|replica_set| replica_set.meta.controller.is_none()).collect();
    let pods_of = |replica_set: &ReplicaSet| {
        let owned = pods.iter().filter(|(pod, _)| replica_set.controls(&pod.meta));
        owned.map(|(pod, _)| pod.clone()).collect::<Vec<_>>()
    };

    let observed = Observed::gather(&deployment, owned, orphans, true, pods_of, now);
    let plan: Plan = planner::plan(&observed);
    let mut reasons: Vec<PlanReason> = plan.reasons.clone();
    reasons.extend(explain::progress(&deployment, &plan, &deployment.status));
    // A controller has yet to notice it: it judged an earlier template.
    if deadline_is_stale {
        for reason in &mut reasons {
            if let PlanReason::Deadline { seconds, at } = *reason
                && at <= now
            {
                *reason = PlanReason::DeadlinePassed { seconds };
            }
        }
    }
    let deadline = reasons.iter().find_map(|reason| match reason {
        PlanReason::Deadline { at, .. } => Some(*at),
        _ => None,
    });

    let roles = observed.replica_sets();
    let mut views = Vec::new();
    let mut unready = Vec::new();
    let mut existing = 0;
    for (replica_set, is_new) in
        roles.new.iter().map(|new| (new, true)).chain(roles.old.iter().rev().map(|old| (old, false)))
    {
        let owned = pods.iter().filter(|(pod, _)| replica_set.controls(&pod.meta));
        let mut states: BTreeMap<String, usize> = BTreeMap::new();
        for (pod, object) in owned {
            let view = PodView::new(pod, object, &replica_set.meta.key.name, is_new, events, now);
            *states.entry(view.summary()).or_default() += 1;
            existing += i32::from(!view.is_deleting);
            if !view.is_ready && !view.is_deleting {
                unready.push(view);
            }
        }
        let mut states: Vec<(String, usize)> = states.into_iter().collect();
        states.sort_by_key(|(state, count)| (std::cmp::Reverse(*count), state.clone()));
        let status = &replica_set.status;
        if is_new || replica_set.replicas > 0 || status.replicas > 0 || !states.is_empty() {
            views.push(PartView {
                name: replica_set.meta.key.name.to_string(),
                is_new,
                desired: replica_set.replicas.into(),
                replicas: status.replicas.into(),
                ready: status.ready.into(),
                available: status.available.into(),
                states,
            });
        }
    }
    unready.sort_by_key(|pod| (!pod.is_new, !pod.is_failing, pod.created, pod.name.clone()));

    let verdict = verdict::verdict(&deployment, &plan, &reasons, &last, now);
    // A status is as old as its controller's last look.
    let available = deployment.status.available;
    let summary = (verdict == Verdict::Complete && existing < available).then(|| {
        format!(
            "the status reports {available} available pods, and {existing} exist: no controller has noticed"
        )
    });
    let estimate = roles.new.as_ref().filter(|_| verdict.proceeds()).and_then(|new| {
        let started = last.template.unwrap_or(new.meta.created);
        estimate::estimate(&pods_of(new), new.min_ready_seconds, deployment.replicas, started, now)
    });
    let current = roles.new.as_ref().and_then(|new| revision::revision_of(new));
    let earlier = roles.old.iter().filter_map(|old| Some((revision::revision_of(old)?, old)));
    let previous = earlier
        .filter(|(number, _)| current.is_none_or(|current| *number < current))
        // The one that serves: the last one may be as broken as this one.
        .max_by_key(|(number, old)| (old.status.available > 0, *number))
        .map(|(number, old)| {
            (number, images(&serde_json::from_str(&old.template.json()).unwrap_or_default()))
        });
    Ok(Assessment {
        revision: current.or(by_status.revision),
        since: partial::since(verdict, &deployment, &last),
        verdict,
        writes: plan.writes.iter().map(ToString::to_string).collect(),
        reasons: reasons.into_iter().map(Reason::from).collect(),
        parts: views,
        pods: unready,
        deadline,
        estimate,
        previous,
        summary,
        is_partial: false,
        knows_pods: true,
        ..by_status
    })
}

/// Whether the condition reports a deadline of an earlier template, and is no failure of this one: after an undo a
/// controller keeps the condition until it sees progress. The deadline of this template counts from its write.
fn forget_stale_deadline(deployment: &mut Deployment, template_written: Option<Timestamp>) -> bool {
    let condition = deployment.status.conditions.iter_mut().find(|condition| &*condition.kind == PROGRESSING);
    let Some((condition, written)) = condition.zip(template_written) else { return false };
    let is_stale =
        &*condition.reason == TIMED_OUT && condition.last_update.is_some_and(|update| update <= written);
    if is_stale {
        condition.reason = REPLICA_SET_UPDATED.into();
        condition.last_update = Some(written);
    }
    is_stale
}
