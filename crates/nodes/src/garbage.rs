//! The garbage collector: cascading deletion in the background, in the foreground, and orphaning.
//!
//! A client of the API server like the real one. An owner is a UID. Its absence from the cache proves nothing, so a
//! live read by name precedes each deletion. A delete has the UID and the resourceVersion of the decision as
//! preconditions: if the object changed meanwhile (for example, it was adopted), the server refuses, and the object is
//! processed again.

pub mod graph;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use futures::{
    FutureExt as _, StreamExt as _,
    future::BoxFuture,
    stream::{FuturesUnordered, SelectAll},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams},
    core::{
        DynamicObject, PartialObjectMeta,
        params::{GetParams, Preconditions, PropagationPolicy},
    },
};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::graph::{Action, FOREGROUND, Graph, Item, ORPHAN, Owner, Resolution, resolve};
use super::{
    api_client::{CallError, Kind, backoff, discover, send, send_only},
    reflector::{Change, Identity, follow, for_a_day},
};

/// As many as upstream's `--concurrent-gc-syncs`.
const CONCURRENT: usize = 20;
/// The capacity of the cache of absent owners, as upstream's.
const ABSENT_OWNERS: usize = 500;

type Object = PartialObjectMeta<DynamicObject>;

/// Collects garbage until `shutdown`. Discovery runs once, at the start.
pub fn run(client: Client, shutdown: CancellationToken) -> BoxFuture<'static, ()> {
    run_for(client, |_| true, shutdown)
}

/// The same only for the resources, in the plural, that `are_collected`: each is a watch, which has a cost even when
/// idle.
pub fn run_for(
    client: Client,
    are_collected: fn(&str) -> bool,
    shutdown: CancellationToken,
) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let collecting = async {
            let mut kinds = discover_patiently(&client).await;
            kinds.retain(|kind| are_collected(&kind.resource.plural));
            Collector::new(client.clone(), kinds).run().await;
        };
        shutdown.run_until_cancelled(collecting).await;
    })
}

async fn discover_patiently(client: &Client) -> Vec<Kind> {
    let mut failures = 0;
    loop {
        match discover(client).await {
            Ok(kinds) => return kinds,
            Err(error) => {
                failures += 1;
                tracing::warn!(%error, "the garbage collector cannot discover the kinds of the API server; retrying");
                tokio::time::sleep(backoff(failures)).await;
            }
        }
    }
}

/// An owner reference with its namespace: the key of the cache of absent owners. The UID alone does not suffice, since
/// a reference with a wrong name must not make others with that UID look absent.
type Coordinates = (String, String, Option<String>, String, String);

struct Collector {
    client: Client,
    kinds: Arc<Vec<Kind>>,
    /// Group and kind of each of them.
    type_names: Vec<Arc<(String, String)>>,
    graph: Graph,
    /// The queue: UIDs and when they are due.
    due: BTreeSet<(Instant, String)>,
    due_at: BTreeMap<String, Instant>,
    /// UIDs in processing; the flag means that they must be processed once more.
    busy: BTreeMap<String, bool>,
    failures: BTreeMap<String, u32>,
    absent: BTreeSet<Coordinates>,
    unsynced: BTreeSet<usize>,
}

struct Processed {
    uid: String,
    result: Result<(), CallError>,
    absent: Vec<Coordinates>,
}

impl Collector {
    fn new(client: Client, kinds: Vec<Kind>) -> Self {
        Collector {
            client,
            unsynced: (0..kinds.len()).collect(),
            type_names: kinds.iter().map(type_name).collect(),
            kinds: Arc::new(kinds),
            graph: Graph::default(),
            due: BTreeSet::new(),
            due_at: BTreeMap::new(),
            busy: BTreeMap::new(),
            failures: BTreeMap::new(),
            absent: BTreeSet::new(),
        }
    }

    async fn run(mut self) {
        let mut changes = SelectAll::new();
        for (index, kind) in self.kinds.iter().enumerate() {
            let api: Api<Object> = Api::all_with(self.client.clone(), &kind.resource);
            let stream = follow(api, for_a_day());
            changes.push(stream.map(move |change| (index, change)).boxed());
        }
        let mut running: FuturesUnordered<BoxFuture<'static, Processed>> = FuturesUnordered::new();
        loop {
            // Before all kinds are synced, nearly every owner would seem to be absent.
            let may_start = self.unsynced.is_empty() && running.len() < CONCURRENT;
            let due = self.due.first().map(|(at, _)| *at).filter(|_| may_start);
            tokio::select! {
                biased;
                Some(processed) = running.next(), if !running.is_empty() => self.finish(processed),
                Some((index, change)) = changes.next() => self.observe(index, change),
                () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    if let Some(future) = self.start() {
                        running.push(future);
                    }
                }
            }
        }
    }

    fn observe(&mut self, index: usize, change: Change<Object>) {
        let look = match change {
            Change::Put(object) => {
                let Some(type_name) = self.type_names.get(index).cloned() else { return };
                self.graph.put(Item { kind: index, type_name, metadata: object.metadata.into() })
            }
            Change::Deleted(Identity { uid, .. }) => {
                self.failures.remove(&uid);
                self.graph.remove(&uid)
            }
            Change::Synced => {
                self.unsynced.remove(&index);
                BTreeSet::new()
            }
        };
        let now = Instant::now();
        for uid in look {
            self.enqueue(uid, now);
        }
    }

    fn enqueue(&mut self, uid: String, at: Instant) {
        if let Some(again) = self.busy.get_mut(&uid) {
            *again = true;
            return;
        }
        match self.due_at.get(&uid) {
            Some(planned) if *planned <= at => return,
            Some(planned) => {
                self.due.remove(&(*planned, uid.clone()));
            }
            None => {}
        }
        self.due_at.insert(uid.clone(), at);
        self.due.insert((at, uid));
    }

    /// Takes the next due object from the queue and starts processing it.
    fn start(&mut self) -> Option<BoxFuture<'static, Processed>> {
        let (_, uid) = self.due.pop_first()?;
        self.due_at.remove(&uid);
        let item = self.graph.get(&uid)?.clone();
        let client = self.client.clone();
        let kinds = self.kinds.clone();
        let future = match self.graph.action(&uid) {
            Action::Keep => return None,
            Action::Await(dependents) => {
                let now = Instant::now();
                for dependent in dependents {
                    self.enqueue(dependent, now);
                }
                return None;
            }
            Action::RemoveFinalizer(finalizer) => {
                async move { (remove_finalizer(&client, &kinds, &item, finalizer).await, Vec::new()) }.boxed()
            }
            Action::Orphan(dependents) => {
                let dependents: Vec<Item> =
                    dependents.iter().filter_map(|uid| self.graph.get(uid).cloned()).collect();
                async move { (orphan(&client, &kinds, &item, &dependents).await, Vec::new()) }.boxed()
            }
            Action::CheckOwners => {
                let has_dependents = self.graph.has_dependents(&uid);
                let owners: Vec<Owner> =
                    item.owners().iter().map(|owner| self.owner_state(owner, &item)).collect();
                async move {
                    let mut absent = Vec::new();
                    let result = settle(&client, &kinds, &item, owners, has_dependents, &mut absent).await;
                    (result, absent)
                }
                .boxed()
            }
        };
        self.busy.insert(uid.clone(), false);
        Some(async move { future.map(|(result, absent)| Processed { uid, result, absent }).await }.boxed())
    }

    fn owner_state(&self, owner: &OwnerReference, item: &Item) -> Owner {
        match self.graph.known(owner, item) {
            Owner::Unknown if self.absent.contains(&coordinates(owner, item)) => Owner::Absent,
            known => known,
        }
    }

    fn finish(&mut self, processed: Processed) {
        let Processed { uid, result, absent } = processed;
        let again = self.busy.remove(&uid).unwrap_or(false);
        self.absent.extend(absent);
        while self.absent.len() > ABSENT_OWNERS {
            self.absent.pop_first();
        }
        match result {
            Ok(()) => {
                self.failures.remove(&uid);
                if again {
                    self.enqueue(uid, Instant::now());
                }
            }
            // The object is deleted; the watch reports that or has done so.
            Err(error) if error.is_not_found() => {
                self.failures.remove(&uid);
            }
            Err(error) => {
                let failures = self.failures.entry(uid.clone()).or_default();
                *failures = failures.saturating_add(1);
                let wait = backoff(*failures);
                if !error.is_conflict() {
                    tracing::warn!(uid, %error, "the garbage collector cannot process an object; retrying with backoff");
                }
                self.enqueue(uid, Instant::now() + wait);
            }
        }
    }
}

fn type_name(kind: &Kind) -> Arc<(String, String)> {
    Arc::new((kind.resource.group.clone(), kind.resource.kind.clone()))
}

fn coordinates(owner: &OwnerReference, item: &Item) -> Coordinates {
    let OwnerReference { api_version, kind, name, uid, .. } = owner;
    (api_version.clone(), kind.clone(), item.metadata.namespace.clone(), name.clone(), uid.clone())
}

/// Reads the unknown owners from the server, then carries out the resolution.
async fn settle(
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
        None | Some(Resolution::Keep) => Ok(()),
        Some(Resolution::DropOwners(uids)) => drop_owners(client, kinds, item, &uids).await,
        Some(Resolution::Delete(propagation)) => delete(client, kinds, item, propagation).await,
    }
}

/// Whether an owner exists on the server: a read by name, then a comparison of the UID.
async fn owner_on_server(
    client: &Client,
    kinds: &[Kind],
    owner: &OwnerReference,
    item: &Item,
) -> Result<Owner, CallError> {
    let group = owner.api_version.rsplit_once('/').map_or("", |(group, _)| group);
    let kind = kinds.iter().find(|kind| kind.resource.group == group && kind.resource.kind == owner.kind);
    let namespace = item.metadata.namespace.as_deref();
    // An unknown kind, or a namespaced owner of a cluster-scoped object: its absence cannot be proved, so the object is
    // kept.
    let Some(kind) = kind.filter(|kind| !kind.namespaced || namespace.is_some()) else {
        return Ok(Owner::Solid);
    };
    let found = match send(client, kind.requests(namespace).get(&owner.name, &GetParams::default())).await {
        Ok(found) => found,
        Err(error) if error.is_not_found() => return Ok(Owner::Absent),
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
/// all of it is retried.
async fn orphan(client: &Client, kinds: &[Kind], item: &Item, dependents: &[Item]) -> Result<(), CallError> {
    for dependent in dependents {
        match drop_owners(client, kinds, dependent, &[item.uid().to_owned()]).await {
            Err(error) if !error.is_not_found() => return Err(error),
            _ => {}
        }
    }
    remove_finalizer(client, kinds, item, ORPHAN).await
}

async fn drop_owners(client: &Client, kinds: &[Kind], item: &Item, uids: &[String]) -> Result<(), CallError> {
    let rest: Vec<&OwnerReference> =
        item.owners().iter().filter(|owner| !uids.contains(&owner.uid)).collect();
    patch_metadata(client, kinds, item, "ownerReferences", json!(rest)).await
}

async fn remove_finalizer(
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
