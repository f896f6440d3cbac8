//! The collector's requests to the API server.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{
    Client,
    api::{DeleteParams, ListParams, Patch, PatchParams},
    core::params::{GetParams, Preconditions, PropagationPolicy},
};
use serde_json::{Value, json};

use super::graph::{FOREGROUND, Item, ORPHAN, Owner, Resolution, resolve};
use super::{Coordinates, coordinates};
use crate::api_client::{CallError, Kind, send, send_only};

/// Reads the unknown owners from the server, then carries out the resolution.
pub(super) async fn settle(
    client: &Client,
    kinds: &[Kind],
    item: &Item,
    mut owners: Vec<Owner>,
    has_dependents: bool,
    absent: &mut Vec<Coordinates>,
) -> Result<(), CallError> {
    for (state, owner) in owners.iter_mut().zip(item.owners()) {
        if *state == Owner::Unknown {
            *state = owner_on_server(client, kinds, owner, item).await?;
            if *state == Owner::Absent {
                absent.push(coordinates(owner, item));
            }
        }
    }
    match resolve(item, &owners, has_dependents) {
        None => Err(CallError::Undecided),
        Some(Resolution::Keep) => Ok(()),
        Some(Resolution::DropOwners(uids)) => drop_owners(client, kinds, item, &uids).await,
        Some(Resolution::Delete(propagation)) => delete(client, kinds, item, propagation).await,
    }
}

/// Whether an owner exists on the server: a read by name, then a comparison of the UID. Only an answer about the object
/// itself proves its absence, not a 404 of the path.
async fn owner_on_server(
    client: &Client,
    kinds: &[Kind],
    owner: &OwnerReference,
    item: &Item,
) -> Result<Owner, CallError> {
    let group = owner.api_version.rsplit_once('/').map_or("", |(group, _)| group);
    let kind = kinds.iter().find(|kind| kind.resource.group == group && kind.resource.kind == owner.kind);
    let namespace = item.metadata.namespace.as_deref();
    // A kind that the server does not serve may be served again: nothing is known of its objects.
    let Some(kind) = kind else { return Ok(Owner::Unknown) };
    // A namespaced owner of a cluster-scoped object has no path: its absence cannot be proved, so the object is kept.
    if kind.namespaced && namespace.is_none() {
        return Ok(Owner::Solid);
    }
    let found = match send(client, kind.requests(namespace).get(&owner.name, &GetParams::default())).await {
        Ok(found) => found,
        Err(error) if error.names_absent(&owner.name) => return Ok(Owner::Absent),
        Err(error) => return Err(error),
    };
    let metadata = &found["metadata"];
    if metadata["uid"] != owner.uid.as_str() {
        return Ok(Owner::Absent);
    }
    let waits = metadata["deletionTimestamp"].is_string()
        && metadata["finalizers"].as_array().into_iter().flatten().any(|finalizer| finalizer == FOREGROUND);
    Ok(if waits { Owner::WaitsForDependents } else { Owner::Solid })
}

async fn delete(client: &Client, kinds: &[Kind], item: &Item, propagation: &str) -> Result<(), CallError> {
    let Some(kind) = kinds.get(item.kind) else { return Ok(()) };
    let parameters = DeleteParams {
        propagation_policy: Some(match propagation {
            "Foreground" => PropagationPolicy::Foreground,
            "Orphan" => PropagationPolicy::Orphan,
            _ => PropagationPolicy::Background,
        }),
        preconditions: Some(Preconditions {
            uid: item.metadata.uid.clone(),
            resource_version: item.metadata.resource_version.clone(),
        }),
        ..DeleteParams::default()
    };
    let requests = kind.requests(item.metadata.namespace.as_deref());
    send_only(client, requests.delete(item.metadata.name.as_deref().unwrap_or_default(), &parameters))
        .await?;
    Ok(())
}

/// Releases every dependent, then removes the owner's finalizer. A dependent that changed meanwhile is a conflict, and
/// all of it is retried. The finalizer goes only after live lists show no other dependent: one that a watch has not
/// delivered yet would be deleted later, since its owner is gone (kubernetes#26120).
pub(super) async fn orphan(
    client: &Client,
    kinds: &[Kind],
    item: &Item,
    dependents: &[Item],
) -> Result<(), CallError> {
    for dependent in dependents {
        match drop_owners(client, kinds, dependent, &[item.uid().to_owned()]).await {
            Err(error) if !error.is_not_found() => return Err(error),
            _ => {}
        }
    }
    let owner = item.uid();
    let namespace = item.metadata.namespace.as_deref();
    for kind in kinds.iter().filter(|kind| kind.namespaced || namespace.is_none()) {
        let list = match send(client, kind.requests(namespace).list(&ListParams::default())).await {
            Ok(list) => list,
            // The kind is no longer served, and its objects are out of reach.
            Err(error) if error.is_not_found() => continue,
            Err(error) => return Err(error),
        };
        let owners =
            |object: &Value| object["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
        let objects = list["items"].as_array().into_iter().flatten();
        if objects.flat_map(owners).any(|reference| reference["uid"] == owner) {
            return Err(CallError::Undecided);
        }
    }
    remove_finalizer(client, kinds, item, ORPHAN).await
}

/// Ends a circle of foreground deletions: the object no longer blocks the owners in it.
pub(super) async fn unblock(
    client: &Client,
    kinds: &[Kind],
    item: &Item,
    owners: &[String],
) -> Result<(), CallError> {
    let mut references = item.owners().to_vec();
    for reference in references.iter_mut().filter(|reference| owners.contains(&reference.uid)) {
        reference.block_owner_deletion = Some(false);
    }
    patch_metadata(client, kinds, item, "ownerReferences", json!(references)).await
}

async fn drop_owners(client: &Client, kinds: &[Kind], item: &Item, uids: &[String]) -> Result<(), CallError> {
    let rest: Vec<&OwnerReference> =
        item.owners().iter().filter(|owner| !uids.contains(&owner.uid)).collect();
    patch_metadata(client, kinds, item, "ownerReferences", json!(rest)).await
}

pub(super) async fn remove_finalizer(
    client: &Client,
    kinds: &[Kind],
    item: &Item,
    finalizer: &str,
) -> Result<(), CallError> {
    let rest: Vec<&String> =
        item.metadata.finalizers.iter().flatten().filter(|have| *have != finalizer).collect();
    patch_metadata(client, kinds, item, "finalizers", json!(rest)).await
}

/// Replaces one list in the metadata if the object has not changed since the decision.
async fn patch_metadata(
    client: &Client,
    kinds: &[Kind],
    item: &Item,
    field: &str,
    list: Value,
) -> Result<(), CallError> {
    let Some(kind) = kinds.get(item.kind) else { return Ok(()) };
    let list = if list.as_array().is_some_and(Vec::is_empty) { Value::Null } else { list };
    let metadata = &item.metadata;
    let patch = json!({"metadata": {
        "uid": metadata.uid, "resourceVersion": metadata.resource_version, field: list,
    }});
    let requests = kind.requests(metadata.namespace.as_deref());
    let name = metadata.name.as_deref().unwrap_or_default();
    send_only(client, requests.patch(name, &PatchParams::default(), &Patch::Merge(patch))).await?;
    Ok(())
}
