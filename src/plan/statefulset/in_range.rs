//! Pods in range, ascending: missing ones are created, ended ones deleted, and the others put right.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::claims::{ClaimPod, is_stale};
use super::explain::Wait;
use super::ordinals::{self, Ordinal};
use super::status::too_long;
use super::{BURST, Deletion, NewPod, Pass, Reason};
use crate::model::{CONTROLLER_REVISION_HASH, Phase, Pod, StatefulSetStrategy};
use crate::plan::EventNote;

/// The label with a pod's name, for Services that select one pod.
pub const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
/// The label with a pod's ordinal.
pub const POD_INDEX: &str = "apps.kubernetes.io/pod-index";

/// Decides about all of them, up to the first that stops the step.
pub(super) fn decide(pass: &mut Pass<'_>) {
    let set = pass.observed.set;
    if ordinals::beyond(set) > 0 {
        let event = EventNote::warning(
            "FailedCreate",
            format!("No ordinal is above 2147483647: {} pods are not created", ordinals::beyond(set)),
        );
        pass.note("ordinals", event);
    }
    claims_first(pass);
    if let Some(reason) = too_long(set, pass.history) {
        let event = EventNote::warning("FailedCreate", format!("Pods cannot be created: {reason}"));
        pass.note("name", event);
    }
    let pods = &pass.observed.members.pods;
    let mut visited = pods.range(set.start..).peekable();
    let mut next = ordinals::wanted(set);
    // One step for each pod that exists, and for as many that are missing as can be created.
    while let Some(ordinal) = next.next().and_then(|ordinal| Ordinal::try_from(ordinal).ok()) {
        let is_next = visited.peek().is_some_and(|(there, _)| **there == ordinal);
        let pod = if is_next { visited.next().map(|(_, pod)| pod) } else { None };
        let is_missing = pod.is_none();
        match pod {
            Some(pod) => decide_present(pass, ordinal, pod),
            None => decide_missing(pass, ordinal),
        }
        if pass.is_stopped {
            return;
        }
        // An object that exists blocks a missing pod, but for a name that is too long, which blocks all.
        if pass.create.len() == BURST || (is_missing && too_long(set, pass.history).is_some()) {
            let rest = visited.take_while(|(there, _)| next.contains(&i64::from(**there)));
            return rest.for_each(|(there, pod)| decide_present(pass, *there, pod));
        }
    }
}

/// A pod's reference on a claim goes first, whatever else blocks: an ordinal that is in range again keeps its data although
/// its pod is on its way out.
fn claims_first(pass: &mut Pass<'_>) {
    let observed = pass.observed;
    for (&ordinal, pod) in &observed.members.pods {
        if pass.is_in_range(ordinal) {
            let of = ClaimPod { name: &pod.meta.key.name, pod: Some(pod), is_condemned: false };
            pass.set_owners(ordinal, of);
        }
    }
}

/// A pod that is not there, or not available, stops the step where pods are created one by one.
fn blocks(pass: &mut Pass<'_>, ordinal: Ordinal, wait: Wait) {
    pass.wait(ordinal, wait);
    pass.is_stopped = !pass.observed.set.is_parallel;
}

fn decide_present(pass: &mut Pass<'_>, ordinal: Ordinal, pod: &Arc<Pod>) {
    let observed = pass.observed;
    if pass.is_deleting(pod) {
        return blocks(pass, ordinal, Wait::Terminating);
    }
    if pod.is_terminal() {
        match observed.backoff.until(observed.set.meta.generation, &pod.meta.key.name, observed.now) {
            Some(at) => {
                pass.look_again(at);
                return blocks(pass, ordinal, Wait::BackingOff { until: at.to_string() });
            }
            None => {
                pass.delete.push(Deletion { pod: pod.clone(), ordinal, reason: Reason::Ended });
                return blocks(pass, ordinal, Wait::Replaced);
            }
        }
    }
    if pod.phase == Phase::Pending {
        let new = new_pod(pass, ordinal);
        if !new.missing_claims.is_empty() {
            pass.claims.push(new);
        }
    }
    put_right(pass, ordinal, pod);
    if !pass.is_available(pod) {
        replace_broken(pass, ordinal, pod);
        let wait = Wait::of(pass, pod, is_in_its_own_way(pass, ordinal, pod));
        blocks(pass, ordinal, wait);
    }
}

/// Whether a pod that fails keeps the corrected template from being rolled out to it, until a user deletes it.
fn is_in_its_own_way(pass: &Pass<'_>, ordinal: Ordinal, pod: &Arc<Pod>) -> bool {
    let is_deleted = pass.delete.iter().any(|deletion| deletion.ordinal == ordinal);
    !is_deleted
        && is_outdated_and_ordered(pass, ordinal, pod)
        && pass.observed.set.replace_broken_after.is_none()
        && pod.startup_failure().is_some()
}

/// Whether a pod has an older template, and waits for itself to be replaced.
fn is_outdated_and_ordered(pass: &Pass<'_>, ordinal: Ordinal, pod: &Arc<Pod>) -> bool {
    let set = pass.observed.set;
    let StatefulSetStrategy::RollingUpdate { partition, .. } = set.strategy else { return false };
    let index = i64::from(ordinal) - i64::from(set.start);
    let is_outdated = !pass.history.is_updated(pod) && index >= i64::from(partition.unwrap_or(0));
    // A pod that would come back with its old template stays.
    !set.is_parallel && is_outdated && new_pod(pass, ordinal).is_updated
}

/// The labels by which a pod is found, and that of its revision, where it names another one with the same template.
fn put_right(pass: &mut Pass<'_>, ordinal: Ordinal, pod: &Arc<Pod>) {
    let (set, history) = (pass.observed.set, pass.history);
    let mut wrong = BTreeMap::new();
    let name = &pod.meta.key.name;
    let mut check = |label: &'static str, value: &str| {
        if pod.meta.labels.get(label) != Some(value) {
            wrong.insert(label, value.to_owned());
        }
    };
    check(POD_NAME, name);
    check(POD_INDEX, &ordinal.to_string());
    if history.is_updated(pod) {
        check(CONTROLLER_REVISION_HASH, &history.update_name);
    }
    if !wrong.is_empty() {
        pass.labels.push((pod.clone(), wrong));
    }
    let has = |claim: &str| pod.claims.iter().any(|there| there.is_called(claim));
    let lacks = |template: &&str| !has(&ordinals::claim_name(template, set, ordinal));
    if let Some(template) = set.claim_templates.names.iter().find(lacks) {
        let message = format!(
            "Pod {name} has no volume of the claim {}, and volumes of a pod cannot be changed: delete the pod",
            ordinals::claim_name(template, set, ordinal)
        );
        pass.note(&pod.meta.uid, EventNote::warning("FailedUpdate", message));
    }
}

/// Where pods are created one by one, nothing after a broken pod is decided, so that the template that was corrected
/// would never reach it (kubernetes#67250).
fn replace_broken(pass: &mut Pass<'_>, ordinal: Ordinal, pod: &Arc<Pod>) {
    let observed = pass.observed;
    let set = observed.set;
    if !is_outdated_and_ordered(pass, ordinal, pod) {
        return;
    }
    if pod.phase == Phase::Pending && !pod.has_started {
        pass.delete.push(Deletion { pod: pod.clone(), ordinal, reason: Reason::NeverStarted });
    } else if let Some(seconds) = set.replace_broken_after
        && pod.ready_since.is_none()
    {
        let since = observed.unready.get(&pod.meta.uid).copied().unwrap_or(observed.now);
        let wait = jiff::SignedDuration::from_secs(seconds.into());
        let at = since.saturating_add(wait).unwrap_or(jiff::Timestamp::MAX);
        if at <= observed.now {
            pass.delete.push(Deletion { pod: pod.clone(), ordinal, reason: Reason::Broken });
        } else {
            pass.look_again(at);
        }
    }
}

/// The pod of an ordinal, and which of its claims are missing.
fn new_pod(pass: &Pass<'_>, ordinal: Ordinal) -> NewPod {
    let (observed, history) = (pass.observed, pass.history);
    let set = observed.set;
    let index = i64::from(ordinal) - i64::from(set.start);
    let keeps_current = match set.strategy {
        StatefulSetStrategy::OnDelete => false,
        StatefulSetStrategy::RollingUpdate { partition: Some(partition), .. } => index < i64::from(partition),
        StatefulSetStrategy::RollingUpdate { partition: None, .. } => index < i64::from(set.status.current),
    };
    let is_updated = !keeps_current || history.current_name == history.update_name;
    let revision = if is_updated { &history.update_name } else { &history.current_name };
    let names = set.claim_templates.names.iter().enumerate();
    let claims = names.map(|(at, template)| (at, ordinals::claim_name(template, set, ordinal)));
    let (missing, there): (Vec<_>, Vec<_>) =
        claims.partition(|(_, claim)| !observed.claims.contains_key(&**claim));
    let may_go = set.deletes_claims_when_deleted || set.deletes_claims_when_scaled;
    NewPod {
        ordinal,
        name: ordinals::pod_name(set, ordinal).into(),
        revision: revision.clone(),
        is_updated,
        missing_claims: missing.into_iter().map(|(at, _)| at).collect(),
        claims_to_read: there.into_iter().filter(|_| may_go).map(|(_, claim)| claim.into()).collect(),
    }
}

fn decide_missing(pass: &mut Pass<'_>, ordinal: Ordinal) {
    let observed = pass.observed;
    let set = observed.set;
    let name = ordinals::pod_name(set, ordinal);
    let failed = |reason: &str| {
        let message =
            format!("Create Pod {name} in StatefulSet {} failed error: {reason}", set.meta.key.name);
        EventNote::warning("FailedCreate", message)
    };
    if too_long(set, pass.history).is_some() {
        return blocks(pass, ordinal, Wait::NameTooLong);
    }
    if let Some(foreign) = observed.foreign.get(&ordinal) {
        let holder = foreign.meta.controller.as_ref();
        let holder = holder.map_or("no controller".into(), |owner| format!("{} {}", owner.kind, owner.name));
        // One that is on its way out, as that of a former StatefulSet of the name, needs nobody's attention.
        if !foreign.meta.is_deleting() {
            let reason = format!("a pod of this name exists and belongs to {holder}");
            pass.note(&foreign.meta.uid, failed(&reason));
        }
        return blocks(pass, ordinal, Wait::NameTaken { holder });
    }
    let of = ClaimPod { name: &name, pod: None, is_condemned: false };
    for template in set.claim_templates.names.iter() {
        let claim = ordinals::claim_name(template, set, ordinal);
        let Some(there) = observed.claims.get(&*claim) else { continue };
        let is_deleting = there.meta.is_deleting();
        if is_deleting || is_stale(set, there, of) {
            let reason = if is_deleting {
                format!("pvc {claim} is being deleted")
            } else {
                format!(
                    "pvc {claim} belongs to a pod or StatefulSet that is gone, and is about to be deleted"
                )
            };
            pass.note(&there.meta.uid, failed(&reason));
            return blocks(pass, ordinal, Wait::ClaimEnding { claim });
        }
    }
    pass.set_owners(ordinal, of);
    let new = new_pod(pass, ordinal);
    pass.create.push(new);
    blocks(pass, ordinal, Wait::Created);
}
