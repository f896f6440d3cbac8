//! Reads the workloads of a namespace or of the cluster in as few requests as tell what matters: one list of each kind, and
//! what tells the rollouts of those alone that their status does not show complete.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use windlass::model::{Pod, Record as _, ReplicaSet, Resource};

use crate::api::{Api, ApiError};
use crate::exit::CommandError;
use crate::owners::is_workload;
use crate::rollout::shared::{SharedLists, controller, text, trimmed};
use crate::rollout::verdict::Severity;
use crate::rollout::{self, Assessment, Workload, live};
use crate::target::{Kind, WorkloadKey};

/// The most namespaces that are listed one by one where workloads of all are asked for.
const NAMESPACES: usize = 4;

/// The workloads, and what could not be read.
#[derive(Debug, Default)]
pub struct Census {
    /// The workloads, in no order.
    pub workloads: Vec<Assessment>,
    /// The lists that could not be read, with the server's answers, each once.
    pub unreadable: Vec<String>,
}

/// The choice of workloads.
#[derive(Clone, Copy, Debug)]
pub struct Chosen<'a> {
    /// The namespace; `None` for all.
    pub namespace: Option<&'a str>,
    /// The label selector.
    pub labels: Option<&'a str>,
    /// The kinds.
    pub kinds: &'a [Kind],
}

/// Reads and assesses the chosen workloads.
///
/// # Errors
/// When the server does not answer, or an answer is no list. What the user may not read is noted.
pub async fn take(api: &Api, chosen: Chosen<'_>) -> Result<Census, CommandError> {
    let mut census = Census::default();
    let mut lists = SharedLists::default();
    let mut open: Vec<Workload> = Vec::new();
    for &kind in chosen.kinds {
        let resource = kind.resource();
        let unfinished = controlling(&open);
        // A ReplicaSet of a Deployment is of use only while that is unfinished.
        let is_useful = |object: &Value| {
            is_workload(kind, object)
                || kind == Kind::Job && is_shared(kind, &chosen)
                || kind == Kind::ReplicaSet && controller(object).is_some_and(|uid| unfinished.contains(uid))
        };
        let keep = |object: Value| is_useful(&object).then_some(object);
        let objects = match list(api, resource, chosen.namespace, chosen.labels, &keep).await {
            Ok(objects) => objects,
            Err(error) if error.is_forbidden() => {
                census.unreadable.push(error.to_string());
                if is_shared(kind, &chosen) {
                    lists.lacks(resource, chosen.namespace, error.to_string());
                }
                continue;
            }
            // A server of its own making may not serve all kinds: then there are none.
            Err(error) if error.code() == Some(404) => continue,
            Err(error) => return Err(error.into()),
        };
        if is_shared(kind, &chosen) {
            lists.add(resource, objects.iter().cloned().map(trimmed).collect());
        }
        for object in objects.into_iter().filter(|object| is_workload(kind, object)) {
            let workload = Workload { kind, object, is_partial: true, ..Workload::default() };
            let by_status = assess(api, &workload)?;
            match by_status.verdict.severity() {
                Severity::AtRest => census.workloads.push(Assessment { is_partial: false, ..by_status }),
                _ => open.push(workload),
            }
        }
    }
    read_parts(api, &chosen, &open, &mut lists).await?;
    // The pods of others may have names that a StatefulSet needs.
    open.sort_by_key(|workload| workload.kind != Kind::StatefulSet);
    for Workload { kind, object, .. } in open {
        let key = WorkloadKey::of(kind, &object);
        let workload = lists.workload(kind, object).map_err(|error| unreadable(&key, error))?;
        census.workloads.push(assess(api, &workload)?);
    }
    for why in
        lists.missing().filter(|why| !census.unreadable.contains(why)).cloned().collect::<BTreeSet<_>>()
    {
        census.unreadable.push(why);
    }
    Ok(census)
}

/// Whether the list of a kind also serves as that of the parts of other workloads: a selector is about workloads alone.
fn is_shared(kind: Kind, chosen: &Chosen<'_>) -> bool {
    matches!(kind, Kind::ReplicaSet | Kind::Job) && chosen.labels.is_none() && chosen.kinds.contains(&kind)
}

fn assess(api: &Api, workload: &Workload) -> Result<Assessment, CommandError> {
    let key = WorkloadKey::of(workload.kind, &workload.object);
    rollout::assess(workload, api.now()).map_err(|error| unreadable(&key, error))
}

fn unreadable(key: &WorkloadKey, error: serde_json::Error) -> CommandError {
    CommandError::Unreadable { object: key.described(), error }
}

/// The UIDs of workloads.
fn controlling(workloads: &[Workload]) -> BTreeSet<String> {
    workloads.iter().map(|workload| text(&workload.object, "uid").to_owned()).collect()
}

async fn list(
    api: &Api,
    resource: Resource,
    namespace: Option<&str>,
    labels: Option<&str>,
    keep: &(dyn Fn(Value) -> Option<Value> + Sync),
) -> Result<Vec<Value>, ApiError> {
    let query = labels.map(|labels| ("labelSelector", labels));
    let path = resource.path(live::scope_of(resource, namespace));
    Ok(api.list_kept(resource.plural, &path, query.as_slice(), keep).await?.items)
}

/// Reads what tells the rollouts of these workloads, each resource once for each namespace, or once for all.
async fn read_parts(
    api: &Api,
    chosen: &Chosen<'_>,
    open: &[Workload],
    lists: &mut SharedLists,
) -> Result<(), CommandError> {
    let mut needed: BTreeMap<usize, (Resource, BTreeSet<&str>)> = BTreeMap::new();
    for workload in open {
        for (resource, _) in live::parts(workload.kind, "") {
            // The pods of a Deployment are found by its ReplicaSets, which therefore come first.
            let turn = match resource {
                ReplicaSet::RESOURCE => 0,
                Pod::RESOURCE => usize::MAX,
                other => 1 + usize::from(other.plural.as_bytes()[0]),
            };
            let entry = needed.entry(turn).or_insert((resource, BTreeSet::new()));
            entry.1.insert(text(&workload.object, "namespace"));
        }
    }
    let mut owners = controlling(open);
    let prefixes: Vec<(&str, String)> = open
        .iter()
        .filter(|workload| workload.kind == Kind::StatefulSet)
        .map(|workload| (text(&workload.object, "namespace"), format!("{}-", text(&workload.object, "name"))))
        .collect();
    for (resource, namespaces) in needed.into_values() {
        let is_listed = |kind: Kind| kind.resource() == resource && is_shared(kind, chosen);
        if is_listed(Kind::ReplicaSet) || is_listed(Kind::Job) {
            continue;
        }
        if resource == Pod::RESOURCE {
            owners.extend(lists.controlled(ReplicaSet::RESOURCE, &owners));
        }
        let scopes: Vec<Option<&str>> = match chosen.namespace {
            Some(namespace) => vec![Some(namespace)],
            None if namespaces.len() <= NAMESPACES => namespaces.iter().copied().map(Some).collect(),
            None => vec![None],
        };
        // Nodes are in no namespace.
        let scopes = if live::scope_of(resource, Some("any")).is_none() { vec![None] } else { scopes };
        let is_useful = |object: &Value| {
            let (namespace, name) = (text(object, "namespace"), text(object, "name"));
            resource != Pod::RESOURCE
                || controller(object).map_or(namespaces.contains(namespace), |uid| owners.contains(uid))
                || prefixes.iter().any(|(of, prefix)| *of == namespace && name.starts_with(prefix))
        };
        let keep = |object: Value| is_useful(&object).then(|| trimmed(object));
        for namespace in scopes {
            match list(api, resource, namespace, None, &keep).await {
                Ok(objects) => lists.add(resource, objects),
                Err(error) if error.is_forbidden() => lists.lacks(resource, namespace, error.to_string()),
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}
