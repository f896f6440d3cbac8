//! Reads the objects of a rollout from the API server: the only file of this module that waits.

use serde_json::Value;
use windlass::model::{
    ControllerRevision, Deployment, Interner, PersistentVolumeClaim, Pod, Record, ReplicaSet, Resource,
    StatefulSet,
};
use windlass::plan::Reason;
use windlass::plan::statefulset::PlanReason;
use windlass::runtime::request;

use super::pods::SHOWN;
use super::{Assessment, Workload};
use crate::api::{Api, ApiError};
use crate::exit::CommandError;
use crate::target::{Kind, WorkloadKey};

/// Events, of the core group: each API server serves them, whichever API a client wrote them with.
const EVENTS: Resource = Resource { group: "", version: "v1", kind: "Event", plural: "events" };

/// Reads a Deployment or StatefulSet, and the objects that tell its rollout. `None` if it does not exist.
///
/// # Errors
/// When the object itself cannot be read. What else the user may not read is noted in the workload.
pub async fn read(api: &Api, key: &WorkloadKey) -> Result<Option<Workload>, CommandError> {
    let what = key.described();
    let Some(object) = api.get(&what, &key.path()).await? else { return Ok(None) };
    let selector = label_selector(key.kind, &object)
        .map_err(|error| CommandError::Unreadable { object: what, error })?;
    let mut workload = Workload { kind: key.kind, object, ..Workload::default() };
    for (resource, labels) in selector.iter().flat_map(|labels| parts(key.kind, labels)) {
        let query = labels.map(|labels| ("labelSelector", labels));
        let listed = api.list(resource.plural, &resource.path(Some(&key.namespace)), query.as_slice()).await;
        let items = match listed {
            Ok(listed) => listed.items,
            Err(error) if error.is_forbidden() => {
                workload.unreadable.push(error.to_string());
                workload.is_partial = true;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        match resource {
            ReplicaSet::RESOURCE => workload.replica_sets = items,
            ControllerRevision::RESOURCE => workload.revisions = items,
            PersistentVolumeClaim::RESOURCE => workload.claims = items,
            _ => workload.pods = items,
        }
    }
    Ok(Some(workload))
}

/// The lists that tell the rollout of an object with this selector, each with the labels that it is restricted to. The
/// pods and claims of a StatefulSet are found by their names, which those of others may have.
pub fn parts(kind: Kind, labels: &str) -> Vec<(Resource, Option<&str>)> {
    match kind {
        Kind::StatefulSet => vec![
            (ControllerRevision::RESOURCE, Some(labels)),
            (Pod::RESOURCE, None),
            (PersistentVolumeClaim::RESOURCE, None),
        ],
        _ => vec![(ReplicaSet::RESOURCE, Some(labels)), (Pod::RESOURCE, Some(labels))],
    }
}

/// The label selector of a Deployment or StatefulSet as a query parameter; `None` where it selects nothing or everything.
///
/// # Errors
/// When the object is not what its kind says.
pub fn label_selector(kind: Kind, object: &Value) -> Result<Option<String>, serde_json::Error> {
    let interner = &mut Interner::default();
    let selector = match kind {
        Kind::StatefulSet => super::decode::<StatefulSet>(object, interner)?.selector,
        _ => super::decode::<Deployment>(object, interner)?.selector,
    };
    let selects = selector.defect().is_none() && !selector.selects_everything();
    Ok(selects.then(|| selector.to_string()))
}

/// Reads the events of an object.
///
/// # Errors
/// When they cannot be read.
pub async fn events_of(api: &Api, namespace: &str, uid: &str) -> Result<Vec<Value>, ApiError> {
    let selector = format!("involvedObject.uid={uid}");
    let query = [("fieldSelector", selector.as_str()), ("limit", "50")];
    let answer = api.send("cannot list events", request::get(&EVENTS.path(Some(namespace)), &query)).await?;
    Ok(answer["items"].as_array().cloned().unwrap_or_default())
}

/// The objects whose events say more than they do themselves: the first pods and claims that are in the way, and a
/// StatefulSet whose pods are refused, which tells so in an event alone.
pub fn worth_events(assessment: &Assessment) -> Vec<String> {
    let pods = assessment.pods.iter().take(SHOWN).map(|pod| pod.uid.clone());
    let claims = assessment.claims.iter().filter(|claim| !claim.uid.is_empty()).take(SHOWN);
    let creates = |reason: &Reason| matches!(reason, Reason::Ordinals(PlanReason::Creating { .. }));
    let own = assessment.reasons.iter().any(creates).then(|| assessment.uid.clone());
    pods.chain(claims.map(|claim| claim.uid.clone())).chain(own).collect()
}
