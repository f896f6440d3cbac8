//! The assessment of a ReplicationController, or of a ReplicaSet that no Deployment controls.

use jiff::Timestamp;
use serde_json::Value;
use windlass::model::{Interner, Pod, Record as _, ReplicaSet, ReplicationController, condition};
use windlass::plan::REPLICA_FAILURE;

use super::last_writes::LastWrites;
use super::pods::PodView;
use super::verdict::UNOBSERVED_AFTER;
use super::{Assessment, Counts, Decoded, Records, Verdict, decode, partial};
use crate::target::Kind;
use crate::text::{counted, harmless};

/// Assesses a ReplicationController or ReplicaSet. It rolls nothing out: it is complete once all its pods are available.
///
/// # Errors
/// When the object is not what its kind says.
pub(super) fn assess(records: Records<'_>, now: Timestamp) -> Result<Assessment, serde_json::Error> {
    let Records { kind, object, pods, events, unreadable, knows_pods, .. } = records;
    let controller = controller(kind, object)?;
    let last = LastWrites::of(object);
    let by_status = by_status(kind, &controller, object, &last, unreadable, now);
    if !knows_pods {
        return Ok(by_status);
    }
    let name = &controller.meta.key.name;
    let view = |(pod, object): &Decoded<'_, Pod>| PodView::new(pod, object, name, true, events, now);
    let own = pods.iter().filter(|(pod, _)| controller.controls(&pod.meta));
    let mut unready: Vec<PodView> = own.map(view).filter(|pod| !pod.is_ready && !pod.is_deleting).collect();
    unready.sort_by_key(|pod| (!pod.is_failing, pod.created, pod.name.clone()));
    Ok(Assessment {
        since: match by_status.verdict {
            Verdict::Unfinished => unready.iter().map(|pod| pod.since).min(),
            _ => by_status.since,
        },
        verdict: match by_status.verdict {
            Verdict::Unfinished => Verdict::Waiting,
            known => known,
        },
        pods: unready,
        is_partial: false,
        knows_pods: true,
        ..by_status
    })
}

/// Decodes either kind as the record that they share.
pub fn controller(kind: Kind, object: &Value) -> Result<ReplicaSet, serde_json::Error> {
    let interner = &mut Interner::default();
    match kind {
        Kind::ReplicationController => Ok(decode::<ReplicationController>(object, interner)?.0),
        _ => decode(object, interner),
    }
}

fn by_status(
    kind: Kind,
    controller: &ReplicaSet,
    object: &Value,
    last: &LastWrites,
    unreadable: &[String],
    now: Timestamp,
) -> Assessment {
    let (status, wanted) = (&controller.status, controller.replicas);
    let is_observed = status.observed_generation >= controller.meta.generation;
    let changed = last.spec.unwrap_or(controller.meta.created);
    let failure = condition::find(&status.conditions, REPLICA_FAILURE).filter(|failure| failure.is_true());
    let verdict = if controller.meta.is_deleting() {
        Verdict::Deleting
    } else if !is_observed && now.duration_since(changed) >= UNOBSERVED_AFTER {
        Verdict::Unobserved
    } else if failure.is_some() {
        Verdict::Blocked
    } else if is_observed && status.replicas == wanted && status.available == wanted {
        Verdict::Complete
    } else {
        Verdict::Unfinished
    };
    let refused = failure.map(|failure| harmless(&format!("{}: {}", failure.reason, failure.message)));
    let summary = refused.or_else(|| {
        (verdict == Verdict::Unfinished).then(|| {
            let (pods, available) = (counted(wanted.into(), "pod"), status.available);
            match status.replicas == wanted {
                true => format!("{available} of {pods} are available"),
                false => format!("{} exist and {wanted} are wanted", counted(status.replicas.into(), "pod")),
            }
        })
    });
    Assessment {
        observed_generation: status.observed_generation,
        verdict,
        since: if verdict == Verdict::Unobserved { Some(changed) } else { None },
        counts: Counts {
            desired: wanted.into(),
            replicas: status.replicas.into(),
            updated: status.replicas.into(),
            ready: status.ready.into(),
            available: status.available.into(),
        },
        desired_new: wanted.into(),
        summary,
        ..partial::of_object(kind, &controller.meta, object, last, unreadable, now)
    }
}
