//! Reads the objects of a rollout from the API server: the only file of this module that waits.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use windlass::model::{
    ControllerRevision, DaemonSet, Deployment, Interner, Job, Node, PersistentVolumeClaim, Pod, Record as _,
    ReplicaSet, Resource, Selector, StatefulSet,
};
use windlass::plan::Reason;
use windlass::plan::{daemonset, job, statefulset};
use windlass::runtime::request;

use super::pods::SHOWN;
use super::{Assessment, Workload};
use crate::api::{Api, ApiError};
use crate::exit::CommandError;
use crate::target::{Kind, WorkloadKey};

/// Events, of the core group: each API server serves them, whichever API a client wrote them with.
const EVENTS: Resource = Resource { group: "", version: "v1", kind: "Event", plural: "events" };

/// Reads a workload, and the objects that tell its rollout. `None` if it does not exist.
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
        let path = resource.path(scope_of(resource, Some(&key.namespace)));
        match api.list(resource.plural, &path, query.as_slice()).await {
            Ok(listed) => *workload.list_mut(resource) = listed.items,
            Err(error) if error.is_forbidden() => workload.lacks(resource, error.to_string()),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Some(workload))
}

/// The namespace in which a resource is listed: nodes are in none.
pub fn scope_of(resource: Resource, namespace: Option<&str>) -> Option<&str> {
    namespace.filter(|_| resource != Node::RESOURCE)
}

/// The lists that tell the rollout of an object with this selector, each with the labels that it is restricted to. The
/// pods and claims of a StatefulSet, and the Jobs of a CronJob, are found by their names, which those of others may have.
pub fn parts(kind: Kind, labels: &str) -> Vec<(Resource, Option<&str>)> {
    match kind {
        Kind::StatefulSet => vec![
            (ControllerRevision::RESOURCE, Some(labels)),
            (Pod::RESOURCE, None),
            (PersistentVolumeClaim::RESOURCE, None),
        ],
        Kind::DaemonSet => vec![
            (ControllerRevision::RESOURCE, Some(labels)),
            (Pod::RESOURCE, Some(labels)),
            (Node::RESOURCE, None),
        ],
        Kind::Deployment => vec![(ReplicaSet::RESOURCE, Some(labels)), (Pod::RESOURCE, Some(labels))],
        Kind::CronJob => vec![(Job::RESOURCE, None)],
        Kind::ReplicationController | Kind::ReplicaSet | Kind::Job | Kind::Pod => {
            vec![(Pod::RESOURCE, Some(labels))]
        }
    }
}

/// The label selector of a workload as a query parameter, empty for a CronJob, which has none; `None` where it selects
/// nothing or everything.
///
/// # Errors
/// When the object is not what its kind says.
pub fn label_selector(kind: Kind, object: &Value) -> Result<Option<String>, serde_json::Error> {
    Ok(selector(kind, object)?.map(|selector| selector.map_or(String::new(), |it| it.to_string())))
}

/// The same, compiled: the outer `None` where it selects nothing or everything, the inner one of a CronJob.
///
/// # Errors
/// When the object is not what its kind says.
pub fn selector(kind: Kind, object: &Value) -> Result<Option<Option<Selector>>, serde_json::Error> {
    let interner = &mut Interner::default();
    let selector = match kind {
        Kind::StatefulSet => super::decode::<StatefulSet>(object, interner)?.selector,
        Kind::DaemonSet => super::decode::<DaemonSet>(object, interner)?.selector,
        Kind::ReplicationController | Kind::ReplicaSet => super::replicas::controller(kind, object)?.selector,
        Kind::Job => super::decode::<Job>(object, interner)?.selector,
        Kind::CronJob => return Ok(Some(None)),
        Kind::Deployment | Kind::Pod => super::decode::<Deployment>(object, interner)?.selector,
    };
    let selects = selector.defect().is_none() && !selector.selects_everything();
    Ok(selects.then_some(Some(selector)))
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

/// Reads the warnings of a namespace, or of all, and returns those about these UIDs.
///
/// # Errors
/// When they cannot be read.
pub async fn warnings(
    api: &Api,
    namespace: Option<&str>,
    uids: &BTreeSet<String>,
) -> Result<BTreeMap<String, Vec<Value>>, ApiError> {
    let uid = |event: &Value| event["involvedObject"]["uid"].as_str().unwrap_or_default().to_owned();
    let keep = |event: Value| uids.contains(&uid(&event)).then_some(event);
    let query = [("fieldSelector", "type=Warning")];
    let listed = api.list_kept("events", &EVENTS.path(namespace), &query, &keep).await?;
    let mut by_uid: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for event in listed.items {
        by_uid.entry(uid(&event)).or_default().push(event);
    }
    Ok(by_uid)
}

/// The objects whose events say more than they do themselves: the first pods and claims that are in the way, and a
/// StatefulSet, DaemonSet or Job whose pods are refused, which tells so in an event alone.
pub fn worth_events(assessment: &Assessment) -> Vec<String> {
    let pods = assessment.pods.iter().take(SHOWN).map(|pod| pod.uid.clone());
    let claims = assessment.claims.iter().filter(|claim| !claim.uid.is_empty()).take(SHOWN);
    let creates = |reason: &Reason| {
        matches!(
            reason,
            Reason::Ordinals(statefulset::PlanReason::Creating { .. })
                | Reason::Nodes(daemonset::PlanReason::Creating { .. })
                | Reason::Completions(job::PlanReason::Creating { .. })
        )
    };
    let own = assessment.reasons.iter().any(creates).then(|| assessment.uid.clone());
    pods.chain(claims.map(|claim| claim.uid.clone())).chain(own).collect()
}
