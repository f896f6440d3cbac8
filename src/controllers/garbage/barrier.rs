//! The barrier before a finalizer of ours comes off: who refers to an owner, whatever the watches have shown until now.
//!
//! An orphaning deletion that ends before a dependent was seen has it deleted afterwards, as one whose owner is gone. So
//! each resource is asked, after the deletion was seen: one without objects where dependents may be needs one small list.
//! For another it is enough that its watch reaches the version of that list; one that is quiet is listed.
//!
//! One round serves all owners that wait when it begins.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::Instant;

use super::Collector;
use crate::controllers::error::SyncError;
use crate::model::Uid;
use crate::model::discovered::DiscoveredResource;
use crate::model::metadata::{Metadata, OwnerReference};
use crate::plan::garbage::graph::Address;
use crate::runtime::api::LIST_TIMEOUT;
use crate::runtime::request;

/// How many resources are asked at a time.
const AT_A_TIME: usize = 16;

/// How long a watch may take to show what a list has shown, before the list is read.
const SILENCE: Duration = Duration::from_millis(250);

/// How many objects a page of a list has.
const PAGE: &str = "500";

/// What the errors of a round say.
const WHAT: &str = "looking for dependents";

/// An object that refers to an owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Referent {
    pub(super) uid: Uid,
    pub(super) address: Address,
    pub(super) blocks: bool,
}

/// The owner that is asked about.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    /// Its UID.
    pub(super) uid: Uid,
    /// Its group, kind and name, which a reference that blocks its deletion has to name.
    pub(super) group: String,
    pub(super) kind: String,
    pub(super) name: String,
}

impl Asked {
    fn is_meant_by(&self, reference: &OwnerReference<'_>) -> bool {
        let claim = (reference.group(), reference.kind.as_str(), reference.name.as_str());
        claim == (self.group.as_str(), self.kind.as_str(), self.name.as_str())
    }
}

/// A question, and where its answer goes.
struct Question {
    owner: Asked,
    /// Where its dependents are; `None`: everywhere.
    namespace: Option<String>,
    must_see_all: bool,
    answer: oneshot::Sender<Result<Vec<Referent>, SyncError>>,
}

/// The owners that wait for the next round.
#[derive(Default)]
pub(super) struct Barrier {
    waiting: Mutex<Vec<Question>>,
    asked: Notify,
}

/// What was found of the owners in one namespace.
type Found = BTreeMap<Uid, Vec<Referent>>;

impl Barrier {
    /// Who refers to this owner, by what the API server has after this call.
    ///
    /// # Errors
    /// When a resource cannot be read and `must_see_all`.
    pub(super) async fn referents_of(
        &self,
        owner: Asked,
        namespace: Option<String>,
        must_see_all: bool,
    ) -> Result<Vec<Referent>, SyncError> {
        let (answer, answered) = oneshot::channel();
        self.waiting.lock().push(Question { owner, namespace, must_see_all, answer });
        self.asked.notify_one();
        answered.await.unwrap_or_else(|_| {
            let reason = "the garbage collector is shutting down".to_owned();
            Err(SyncError::Unread { what: WHAT.to_owned(), reason })
        })
    }
}

impl Collector {
    /// Answers the questions, round by round, for ever.
    pub(super) async fn raise_barriers(&self) {
        loop {
            self.barrier.asked.notified().await;
            let questions = std::mem::take(&mut *self.barrier.waiting.lock());
            let mut by_namespace: BTreeMap<Option<String>, Vec<Question>> = BTreeMap::new();
            for question in questions {
                by_namespace.entry(question.namespace.clone()).or_default().push(question);
            }
            for (namespace, questions) in by_namespace {
                let began = Instant::now();
                self.answer(namespace, questions).await;
                let metrics = &self.context.metrics().garbage;
                metrics.barrier_duration.observe(began.elapsed().as_secs_f64());
            }
        }
    }

    async fn answer(&self, namespace: Option<String>, questions: Vec<Question>) {
        let owner = |question: &Question| (question.owner.uid.clone(), question.owner.clone());
        let owners: Arc<BTreeMap<Uid, Asked>> = Arc::new(questions.iter().map(owner).collect());
        let mut all = Found::new();
        let mut failure: Option<String> = None;
        let resources = self.kinds.all();
        let looks = resources
            .into_iter()
            .filter(|(resource, _)| namespace.is_none() || resource.namespaced)
            .map(|(resource, moved)| {
                let (owners, namespace) = (owners.clone(), namespace.clone());
                async move { self.look_for(&owners, namespace.as_deref(), &resource, moved).await }
            });
        let looks: Vec<_> = looks.collect();
        let mut looks = futures::stream::iter(looks).buffer_unordered(AT_A_TIME);
        while let Some(found) = looks.next().await {
            match found {
                Ok(found) => {
                    found.into_iter().for_each(|(owner, more)| all.entry(owner).or_default().extend(more))
                }
                Err(reason) => failure = failure.or(Some(reason)),
            }
        }
        for Question { owner, must_see_all, answer, .. } in questions {
            let referents = all.remove(&owner.uid).unwrap_or_default();
            let result = match &failure {
                Some(reason) if must_see_all && referents.is_empty() => {
                    Err(SyncError::Unread { what: WHAT.to_owned(), reason: reason.clone() })
                }
                _ => Ok(referents),
            };
            // Who has asked may have been cancelled.
            let _ = answer.send(result);
        }
    }

    /// The objects of one resource that refer to one of the owners.
    async fn look_for(
        &self,
        owners: &BTreeMap<Uid, Asked>,
        namespace: Option<&str>,
        resource: &DiscoveredResource,
        mut moved: watch::Receiver<u64>,
    ) -> Result<Found, String> {
        // In the only namespace that is watched, if there is one.
        let namespace = namespace.or(self.kinds.namespace.as_deref()).filter(|_| resource.namespaced);
        let path = resource.path(namespace);
        let first = self.page(&path, &[("limit", "1")]).await?;
        if first.items().is_empty() {
            return Ok(Found::new());
        }
        let version = first.metadata.resource_version.parse().unwrap_or(u64::MAX);
        let reached = moved.wait_for(|position| *position >= version);
        if matches!(tokio::time::timeout(SILENCE, reached).await, Ok(Ok(_))) {
            return Ok(self.referents_in_the_graph(owners, resource));
        }
        let mut found = Found::new();
        let mut next: Option<String> = None;
        loop {
            let mut query = vec![("limit", PAGE)];
            query.extend(next.as_deref().map(|token| ("continue", token)));
            let page = self.page(&path, &query).await?;
            self.collect(owners, resource, page.items(), &mut found)?;
            match page.metadata.next.filter(|token| !token.is_empty()) {
                Some(token) if next.as_ref() != Some(&token) => next = Some(token),
                _ => return Ok(found),
            }
        }
    }

    fn referents_in_the_graph(&self, owners: &BTreeMap<Uid, Asked>, resource: &DiscoveredResource) -> Found {
        let mut found = Found::new();
        for owner in owners.keys() {
            let dependents = self.graph.lock().referents(owner);
            let of_this = dependents.into_iter().filter(|(_, address, _)| {
                self.kinds.watched_as(address.resource).is_some_and(|known| known.plural == resource.plural)
            });
            let referents = of_this.map(|(uid, address, blocks)| Referent { uid, address, blocks });
            found.insert(owner.clone(), referents.collect());
        }
        found
    }

    fn collect(
        &self,
        owners: &BTreeMap<Uid, Asked>,
        resource: &DiscoveredResource,
        items: &[Box<RawValue>],
        found: &mut Found,
    ) -> Result<(), String> {
        let Some(id) = self.kinds.id_of(resource) else { return Ok(()) };
        for item in items {
            let object = Metadata::decode(item.get())
                .map_err(|error| format!("listing {}: {error}", resource.plural))?;
            for reference in &object.owners {
                let Some(owner) = owners.get(&reference.uid) else { continue };
                let (namespace, name) =
                    (object.namespace.as_str().to_owned(), object.name.as_str().to_owned());
                let address = Address { resource: id, namespace, name };
                let blocks = reference.blocks && owner.is_meant_by(reference);
                let referent = Referent { uid: object.uid.clone(), address, blocks };
                found.entry(reference.uid.clone()).or_default().push(referent);
            }
        }
        Ok(())
    }

    async fn page(&self, path: &str, query: &[(&str, &str)]) -> Result<Page, String> {
        let request = request::get_as(request::METADATA_LIST, path, query);
        let listing = self.api.with_timeout(LIST_TIMEOUT);
        listing.call(request).await.map_err(|error| format!("listing {path}: {error}"))
    }
}

#[derive(Deserialize)]
struct Page {
    metadata: PageMetadata,
    /// Absent, or null as Go writes it, where there are none.
    #[serde(default)]
    items: Option<Vec<Box<RawValue>>>,
}

impl Page {
    fn items(&self) -> &[Box<RawValue>] {
        self.items.as_deref().unwrap_or_default()
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageMetadata {
    #[serde(default)]
    resource_version: String,
    #[serde(default, rename = "continue")]
    next: Option<String>,
}
