//! The garbage collector: cascading deletion in the background, in the foreground, and orphaning.
//!
//! A client of the API server like the real one. An owner is a UID. Its absence from the cache proves nothing, so a
//! live read by name precedes each deletion. A delete has the UID and the resourceVersion of the decision as
//! preconditions: if the object changed meanwhile (for example, it was adopted), the server refuses, and the object is
//! processed again.

pub mod graph;
mod requests;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use futures::{
    FutureExt as _, StreamExt as _,
    future::BoxFuture,
    stream::{BoxStream, FuturesUnordered, SelectAll},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{
    Api, Client,
    core::{DynamicObject, PartialObjectMeta},
};
use tokio::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

use self::graph::{Action, Graph, Item, Owner};
use self::requests::{orphan, remove_finalizer, settle, unblock};
use super::{
    api_client::{CallError, Kind, backoff, discover},
    reflector::{Change, Identity, follow, for_a_day},
};

/// As many as upstream's `--concurrent-gc-syncs`.
const CONCURRENT: usize = 20;
/// The capacity of the cache of absent owners, as upstream's.
const ABSENT_OWNERS: usize = 500;
/// Between two looks for kinds that have come or gone, as upstream's.
const DISCOVERY: Duration = Duration::from_secs(30);

type Object = PartialObjectMeta<DynamicObject>;

/// Collects garbage until `shutdown`, of the kinds that come later, too.
pub fn run(client: Client, shutdown: CancellationToken) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let collecting = async {
            let kinds = discover_patiently(&client).await;
            Collector::new(client.clone(), kinds).run(Some(DISCOVERY)).await;
        };
        shutdown.run_until_cancelled(collecting).await;
    })
}

/// The same only for the resources, in the plural, that `are_collected`, and only those that the server serves at the
/// start: each is a watch, which has a cost even when idle.
pub fn run_for(
    client: Client,
    are_collected: fn(&str) -> bool,
    shutdown: CancellationToken,
) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let collecting = async {
            let mut kinds = discover_patiently(&client).await;
            kinds.retain(|kind| are_collected(&kind.resource.plural));
            Collector::new(client.clone(), kinds).run(None).await;
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

/// The kinds that the server serves, again and again; none where it does not say.
fn looks(client: Client, every: Duration) -> BoxStream<'static, Vec<Kind>> {
    let look = move |client: Client| async move {
        tokio::time::sleep(every).await;
        let found = discover(&client).await.unwrap_or_default();
        Some((found, client))
    };
    futures::stream::unfold(client, look).boxed()
}

/// An owner reference with its namespace: the key of the cache of absent owners. The UID alone does not suffice, since
/// a reference with a wrong name must not make others with that UID look absent.
type Coordinates = (String, String, Option<String>, String, String);

struct Collector {
    client: Client,
    /// Only ever longer: an object names its kind by the place here. What is no longer served is looked up in vain.
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

    async fn run(mut self, discovery: Option<Duration>) {
        let mut changes = SelectAll::new();
        for index in 0..self.kinds.len() {
            changes.push(self.watch(index));
        }
        let mut running: FuturesUnordered<BoxFuture<'static, Processed>> = FuturesUnordered::new();
        let mut looks = match discovery {
            Some(every) => looks(self.client.clone(), every),
            None => futures::stream::pending().boxed(),
        };
        loop {
            // Before all kinds are synced, nearly every owner would seem to be absent.
            let may_start = self.unsynced.is_empty() && running.len() < CONCURRENT;
            let due = self.due.first().map(|(at, _)| *at).filter(|_| may_start);
            tokio::select! {
                biased;
                Some(processed) = running.next(), if !running.is_empty() => self.finish(processed),
                Some((index, change)) = changes.next() => self.observe(index, change),
                Some(found) = looks.next() => {
                    for index in self.add(found) {
                        changes.push(self.watch(index));
                    }
                }
                () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    if let Some(future) = self.start() {
                        running.push(future);
                    }
                }
            }
        }
    }

    /// The changes of the objects of one kind. Those of a kind that goes end with errors that are retried: it may come
    /// back.
    fn watch(&self, index: usize) -> BoxStream<'static, (usize, Change<Object>)> {
        let Some(kind) = self.kinds.get(index) else { return futures::stream::empty().boxed() };
        let api: Api<Object> = Api::all_with(self.client.clone(), &kind.resource);
        follow(api, for_a_day()).map(move |change| (index, change)).boxed()
    }

    /// Adds the kinds that are not known yet. Returns their places.
    fn add(&mut self, found: Vec<Kind>) -> std::ops::Range<usize> {
        let before = self.kinds.len();
        let mut kinds = (*self.kinds).clone();
        for kind in found {
            let type_name = type_name(&kind);
            if !self.type_names.contains(&type_name) {
                // Until it is listed, its objects would seem to be absent; an owner is read live, so nobody waits.
                self.type_names.push(type_name);
                kinds.push(kind);
            }
        }
        self.kinds = Arc::new(kinds);
        before..self.kinds.len()
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
            Action::Unblock(owners) => {
                async move { (unblock(&client, &kinds, &item, &owners).await, Vec::new()) }.boxed()
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
                if !error.is_conflict() && !error.is_undecided() {
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
