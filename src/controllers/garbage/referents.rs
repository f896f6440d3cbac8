//! The requests of the barrier: the objects of one resource that refer to an owner.
//!
//! One of few objects needs one page. Of one of many the version is asked for, with one object: it is enough that its watch
//! reaches that version. One that is quiet is listed, in all namespaces or in those of the owners.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::watch;

use super::Collector;
use crate::model::Uid;
use crate::model::discovered::DiscoveredResource;
use crate::model::metadata::{Metadata, OwnerReference};
use crate::plan::garbage::graph::{Address, ResourceId};
use crate::runtime::request;

/// How long a watch may take to show what a list has shown, before the list is read.
const SILENCE: Duration = Duration::from_millis(250);

/// After what time a list does not count as one of those that are under way.
const SLOW: Duration = Duration::from_secs(2);

/// How many objects a page of a list has.
const PAGE: usize = 500;

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
    /// Its namespace, in which its dependents are; `None`: everywhere.
    pub(super) namespace: Option<String>,
}

impl Asked {
    /// Whether it can be the owner of an object in this namespace.
    fn can_own_in(&self, namespace: &str) -> bool {
        self.namespace.as_deref().is_none_or(|own| own == namespace)
    }

    fn is_meant_by(&self, reference: &OwnerReference<'_>) -> bool {
        let claim = (reference.group(), reference.kind.as_str(), reference.name.as_str());
        claim == (self.group.as_str(), self.kind.as_str(), self.name.as_str())
    }
}

/// The owners of a round.
#[derive(Debug, Default)]
pub(super) struct Owners {
    by_uid: BTreeMap<Uid, Asked>,
    /// The namespaces of those that have one.
    namespaces: BTreeSet<String>,
    /// Whether one is cluster-scoped, so that its dependents may be anywhere.
    are_anywhere: bool,
}

impl Owners {
    pub(super) fn of<'a>(all: impl Iterator<Item = &'a Asked>) -> Self {
        let mut owners = Owners::default();
        for owner in all {
            match &owner.namespace {
                Some(namespace) => {
                    owners.namespaces.insert(namespace.clone());
                }
                None => owners.are_anywhere = true,
            }
            owners.by_uid.insert(owner.uid.clone(), owner.clone());
        }
        owners
    }

    /// Whether one of them can own objects of this resource.
    pub(super) fn can_own(&self, resource: &DiscoveredResource) -> bool {
        resource.namespaced || self.are_anywhere
    }

    /// The only namespace in which they have dependents.
    fn only_namespace(&self) -> Option<&str> {
        self.namespaces
            .first()
            .filter(|_| self.namespaces.len() == 1 && !self.are_anywhere)
            .map(String::as_str)
    }

    /// The lists of a resource with so many objects that show all dependents: of all namespaces, or of those of the owners
    /// if that takes fewer pages.
    fn scopes(&self, objects: usize) -> Vec<Option<&str>> {
        if self.are_anywhere || self.namespaces.len() > objects / PAGE {
            return vec![None];
        }
        self.namespaces.iter().map(|namespace| Some(namespace.as_str())).collect()
    }
}

/// The referents found for the owners.
pub(super) type Referents = BTreeMap<Uid, Vec<Referent>>;

impl Collector {
    /// The objects of one resource that refer to one of the owners.
    pub(super) async fn look_for(
        &self,
        owners: &Owners,
        (id, resource): (ResourceId, &DiscoveredResource),
        mut moved: watch::Receiver<u64>,
        is_sound: bool,
    ) -> Result<Referents, String> {
        // In the only namespace that is watched, if there is one.
        let only =
            self.kinds.namespace.as_deref().or(owners.only_namespace()).filter(|_| resource.namespaced);
        let path = resource.path(only);
        // That is no proof of anything, and decides only what the answer costs.
        let objects = {
            let graph = self.graph.lock();
            only.map_or_else(|| graph.count_everywhere(id), |namespace| graph.count(namespace, id))
        };
        let limit = if objects <= PAGE { PAGE } else { 1 };
        let mut found = Referents::new();
        let first = self.page(&path, limit, None, is_sound).await?;
        if first.next().is_none() {
            collect(owners, id, resource, first.items(), &mut found)?;
            return Ok(found);
        }
        let version = first.metadata.resource_version.parse().unwrap_or(u64::MAX);
        let reached = moved.wait_for(|position| *position >= version);
        if matches!(tokio::time::timeout(SILENCE, reached).await, Ok(Ok(_))) {
            return Ok(self.referents_in_the_graph(owners, id));
        }
        let scopes = if only.is_some() { vec![only] } else { owners.scopes(objects) };
        for scope in scopes {
            let path = resource.path(scope.filter(|_| resource.namespaced));
            let mut next: Option<String> = None;
            loop {
                let page = self.page(&path, PAGE, next.as_deref(), is_sound).await?;
                collect(owners, id, resource, page.items(), &mut found)?;
                match page.next() {
                    Some(token) if next.as_deref() != Some(token) => next = Some(token.to_owned()),
                    _ => break,
                }
            }
        }
        Ok(found)
    }

    fn referents_in_the_graph(&self, owners: &Owners, id: ResourceId) -> Referents {
        let of = |owner: &Uid| {
            let dependents = self.graph.lock().referents(owner);
            let of_this = dependents.into_iter().filter(|(_, address, _)| address.resource == id);
            of_this.map(|(uid, address, blocks)| Referent { uid, address, blocks }).collect()
        };
        owners.by_uid.keys().map(|owner| (owner.clone(), of(owner))).collect()
    }

    async fn page(
        &self,
        path: &str,
        limit: usize,
        next: Option<&str>,
        is_sound: bool,
    ) -> Result<Page, String> {
        let limit = limit.to_string();
        let mut query = vec![("limit", limit.as_str())];
        query.extend(next.map(|token| ("continue", token)));
        // It is never closed, so that there is always a permit in the end.
        let permit = self.barrier.lists(is_sound).acquire().await;
        let request = request::get_as(request::METADATA_LIST, path, &query);
        // With the timeout of other calls: a page is small, and what waits for it waits for all resources.
        let mut answer = std::pin::pin!(self.api.call(request));
        let answer = match tokio::time::timeout(SLOW, answer.as_mut()).await {
            Ok(answer) => answer,
            Err(_) => {
                // A resource that does not answer in many namespaces leaves the others their places.
                drop(permit);
                answer.await
            }
        };
        answer.map_err(|error| format!("listing {path}: {error}"))
    }
}

/// Adds those of these objects that refer to one of the owners.
fn collect(
    owners: &Owners,
    id: ResourceId,
    resource: &DiscoveredResource,
    items: &[Box<RawValue>],
    found: &mut Referents,
) -> Result<(), String> {
    for item in items {
        let object =
            Metadata::decode(item.get()).map_err(|error| format!("listing {}: {error}", resource.plural))?;
        for reference in &object.owners {
            let Some(owner) = owners.by_uid.get(&reference.uid) else { continue };
            if !owner.can_own_in(object.namespace.as_str()) {
                continue;
            }
            let (namespace, name) = (object.namespace.as_str().to_owned(), object.name.as_str().to_owned());
            let address = Address { resource: id, namespace, name };
            // One without a UID is nobody's to delete, and would block for ever.
            let blocks = reference.blocks && object.has_uid() && owner.is_meant_by(reference);
            let referent = Referent { uid: object.uid.clone(), address, blocks };
            found.entry(reference.uid.clone()).or_default().push(referent);
        }
    }
    Ok(())
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

    /// The token of the page behind it; `None` if it is the last.
    fn next(&self) -> Option<&str> {
        self.metadata.next.as_deref().filter(|token| !token.is_empty())
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
