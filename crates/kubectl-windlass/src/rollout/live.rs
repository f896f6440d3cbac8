//! Reads the objects of a rollout from the API server: the only file of this module that waits.

use serde_json::Value;
use windlass::model::{Deployment, Interner, ObjectKey, Pod, Record, ReplicaSet, Resource};
use windlass::runtime::request;

use super::pods::SHOWN;
use super::{Assessment, Workload};
use crate::api::{Api, ApiError};
use crate::exit::CommandError;

/// Events, of the core group: each API server serves them, whichever API a client wrote them with.
const EVENTS: Resource = Resource { group: "", version: "v1", kind: "Event", plural: "events" };

/// Reads a Deployment, what it selects, and the events of the pods that are in its way. `None` if it does not exist.
///
/// # Errors
/// When the Deployment cannot be read. What else the user may not read is noted in the workload.
pub async fn read(api: &Api, namespace: &str, name: &str) -> Result<Option<Workload>, CommandError> {
    let path = Deployment::RESOURCE.path_of(&ObjectKey::new(namespace, name));
    let what = format!("deployment {namespace}/{name}");
    let Some(deployment) = api.get(&what, &path).await? else { return Ok(None) };
    let selector =
        label_selector(&deployment).map_err(|error| CommandError::Unreadable { object: what, error })?;
    let mut workload = Workload { deployment, ..Workload::default() };
    if let Some(labels) = selector {
        let query = [("labelSelector", labels.as_str())];
        for resource in [ReplicaSet::RESOURCE, Pod::RESOURCE] {
            let listed = api.list(resource.plural, &resource.path(Some(namespace)), &query).await;
            let items = match listed {
                Ok(listed) => listed.items,
                Err(error) if error.is_forbidden() => {
                    workload.unreadable.push(error.to_string());
                    workload.is_partial = true;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            if resource == Pod::RESOURCE { workload.pods = items } else { workload.replica_sets = items }
        }
    }
    Ok(Some(workload))
}

/// Reads a Deployment and the ReplicaSets that it selects. `None` if it does not exist.
///
/// # Errors
/// When one of them cannot be read.
pub async fn read_history(
    api: &Api,
    namespace: &str,
    name: &str,
) -> Result<Option<(Value, Vec<Value>)>, CommandError> {
    let path = Deployment::RESOURCE.path_of(&ObjectKey::new(namespace, name));
    let what = format!("deployment {namespace}/{name}");
    let Some(deployment) = api.get(&what, &path).await? else { return Ok(None) };
    let selector =
        label_selector(&deployment).map_err(|error| CommandError::Unreadable { object: what, error })?;
    let Some(labels) = selector else { return Ok(Some((deployment, Vec::new()))) };
    let query = [("labelSelector", labels.as_str())];
    let listed = api.list("replicasets", &ReplicaSet::RESOURCE.path(Some(namespace)), &query).await?;
    Ok(Some((deployment, listed.items)))
}

/// The label selector of a Deployment as a query parameter; `None` where it selects nothing or everything.
///
/// # Errors
/// When the object is not a Deployment.
pub fn label_selector(deployment: &Value) -> Result<Option<String>, serde_json::Error> {
    let deployment: Deployment = super::decode(deployment, &mut Interner::default())?;
    let selector = &deployment.selector;
    let selects = selector.defect().is_none() && !selector.selects_everything();
    Ok(selects.then(|| selector.to_string()))
}

/// Reads the events of a pod.
///
/// # Errors
/// When they cannot be read.
pub async fn events_of(api: &Api, namespace: &str, uid: &str) -> Result<Vec<Value>, ApiError> {
    let selector = format!("involvedObject.uid={uid}");
    let query = [("fieldSelector", selector.as_str()), ("limit", "50")];
    let answer = api.send("cannot list events", request::get(&EVENTS.path(Some(namespace)), &query)).await?;
    Ok(answer["items"].as_array().cloned().unwrap_or_default())
}

/// The pods whose events say more than the objects: the first of those that are in the way.
pub fn worth_events(assessment: &Assessment) -> Vec<String> {
    assessment.pods.iter().take(SHOWN).map(|pod| pod.uid.clone()).collect()
}
