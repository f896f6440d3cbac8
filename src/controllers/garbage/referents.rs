//! The requests of the barrier: the objects of one resource that refer to an owner.
//!
//! One without objects where dependents may be needs one small list. For another it is enough that its watch reaches the
//! version of that list; one that is quiet is listed.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::watch;

use super::Collector;
use crate::model::Uid;
use crate::model::discovered::DiscoveredResource;
use crate::model::metadata::{Metadata, OwnerReference};
use crate::plan::garbage::graph::Address;
use crate::runtime::request;

/// How long a watch may take to show what a list has shown, before the list is read.
const SILENCE: Duration = Duration::from_millis(250);

/// After what time a list does not count as one of those that are under way.
const SLOW: Duration = Duration::from_secs(2);

/// How many objects a page of a list has.
const PAGE: &str = "500";

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

/// What was found of the owners in one namespace.
pub(super) type Found = BTreeMap<Uid, Vec<Referent>>;

impl Collector {
    /// The objects of one resource that refer to one of the owners.
    pub(super) async fn look_for(
        &self,
        owners: &BTreeMap<Uid, Asked>,
        namespace: Option<&str>,
        resource: &DiscoveredResource,
        mut moved: watch::Receiver<u64>,
        is_sound: bool,
    ) -> Result<Found, String> {
        // In the only namespace that is watched, if there is one.
        let namespace = namespace.or(self.kinds.namespace.as_deref()).filter(|_| resource.namespaced);
        let path = resource.path(namespace);
        let first = self.page(&path, &[("limit", "1")], is_sound).await?;
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
            let page = self.page(&path, &query, is_sound).await?;
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
                // One without a UID is nobody's to delete, and would block for ever.
                let blocks = reference.blocks && object.has_uid() && owner.is_meant_by(reference);
                let referent = Referent { uid: object.uid.clone(), address, blocks };
                found.entry(reference.uid.clone()).or_default().push(referent);
            }
        }
        Ok(())
    }

    async fn page(&self, path: &str, query: &[(&str, &str)], is_sound: bool) -> Result<Page, String> {
        // It is never closed, so that there is always a permit in the end.
        let permit = self.barrier.lists(is_sound).acquire().await;
        let request = request::get_as(request::METADATA_LIST, path, query);
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
