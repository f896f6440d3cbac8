//! The requests of one round: what is in a namespace, its deletion, and the end of the namespace.

use std::sync::Arc;

use futures::{FutureExt, StreamExt};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::NamespaceController;
use crate::controllers::object_counts;
use crate::engine::error::SyncError;
use crate::engine::execute::{AT_ONCE, path};
use crate::model::discovered::{Discovered, DiscoveredResource, Verb, is_path_segment};
use crate::model::namespace::KUBERNETES;
use crate::model::{Namespace, Record};
use crate::plan::namespace::content::{Failure, ONE_BY_ONE};
use crate::plan::namespace::{
    self as planner, Content, Findings, Item, Left, Listed, Observed, Outcome, Verdict, Wave,
};
use crate::runtime::api::{Api, ApiError, LIST_TIMEOUT};
use crate::runtime::discovery::{Discovery, DiscoveryError};
use crate::runtime::request::{self, PatchType};

/// How many resources are looked at at a time, for one namespace.
const RESOURCES_AT_ONCE: usize = 8;

/// How many objects a page of a list has.
const PAGE: &str = "500";

/// How often a write of the namespace itself is computed again after a conflict, in one round.
const ATTEMPTS: usize = 4;

/// One discovery for all namespaces.
pub(super) struct SharedDiscovery(tokio::sync::Mutex<(Discovery, Option<Instant>)>);

impl SharedDiscovery {
    pub(super) fn new(api: Api) -> Self {
        SharedDiscovery(tokio::sync::Mutex::new((Discovery::new(api), None)))
    }

    /// The resources that the API server serves, read not before `start`: a caller that waits for another's answer
    /// shares the next one.
    async fn since(&self, start: Instant) -> Result<Arc<Discovered>, DiscoveryError> {
        let mut state = self.0.lock().await;
        let (discovery, asked) = &mut *state;
        if let Some(current) = discovery.current().filter(|_| asked.is_some_and(|asked| asked >= start)) {
            return Ok(current.clone());
        }
        let now = Instant::now();
        let found = discovery.refresh().await?;
        *asked = Some(now);
        Ok(found)
    }
}

/// A namespace as the API server has it.
struct Live {
    namespace: Namespace,
    /// With everything that a write must not lose.
    object: Value,
}

impl NamespaceController {
    /// Gives a namespace the phase in which nothing can be created in it.
    pub(super) async fn mark_terminating(&self, namespace: &Namespace) -> Result<(), SyncError> {
        let meta = &namespace.meta;
        let what = || format!("setting the phase of namespace {}", meta.key);
        let body = json!({
            "metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version.to_string()},
            "status": {"phase": "Terminating"},
        });
        let target = path(Namespace::RESOURCE, meta) + "/status";
        let version = self.context.patch(namespace, what, &target, PatchType::Merge, &body).await?;
        self.context.wrote_status(meta, Namespace::RESOURCE, version);
        Ok(())
    }

    /// Empties a namespace as far as possible, and lets it go if it is empty.
    pub(super) async fn round(
        &self,
        namespace: &Namespace,
        observed: &Observed<'_>,
    ) -> (Outcome, Option<SyncError>) {
        match self.live(namespace).await {
            Ok(Some(_)) => {}
            Ok(None) => return (Outcome::Nothing, None),
            Err(error) => return (Outcome::Nothing, Some(error)),
        }
        let found = self.discovery.since(Instant::now()).await;
        let discovery = planner::discovery_state(found.as_deref().map_err(ToString::to_string));
        let (mut error, last) = (None, &observed.last);
        let findings = match &found {
            Ok(_) if planner::may_skip_content(observed, &discovery) => {
                Findings::without_a_look(discovery, last)
            }
            Ok(found) => match self.empty(namespace, planner::waves(found, last)).await {
                Some((content, first_error)) => {
                    error = first_error;
                    let is_awaited = self.await_end(namespace, &content);
                    Findings { is_awaited, ..Findings::fresh(discovery, content) }
                }
                None => return (Outcome::Nothing, None),
            },
            Err(failed) => {
                tracing::warn!(namespace = %namespace.meta.key, error = %failed,
                    "the resources of the API server are unknown; the namespace waits");
                Findings::without_a_look(discovery, last)
            }
        };
        let (verdict, end_error) = self.end(namespace, observed, &findings).await;
        let outcome = match verdict {
            Some(verdict) => Outcome::Looked(findings, verdict),
            None if end_error.is_none() => Outcome::Finalized,
            None => Outcome::Nothing,
        };
        (outcome, error.or(end_error))
    }

    /// Whether the end of each kind that is left wakes the namespace.
    fn await_end(&self, namespace: &Namespace, content: &Content) -> bool {
        let meta = &namespace.meta;
        match content.ends_by_itself() {
            Some(resources) => self.content.await_end(&meta.key.name, &meta.uid, resources),
            None => {
                self.content.stop_waiting(&meta.key.name);
                false
            }
        }
    }

    /// Finalizes the namespace if it may go. What follows otherwise; `None` if it is over.
    async fn end(
        &self,
        namespace: &Namespace,
        observed: &Observed<'_>,
        findings: &Findings,
    ) -> (Option<Verdict>, Option<SyncError>) {
        let verdict = planner::verdict(observed, findings, namespace);
        if !matches!(verdict, Verdict::Finalize | Verdict::Report) {
            return (Some(verdict), None);
        }
        let mut attempts = 0;
        loop {
            attempts += 1;
            let Live { namespace: live, object } = match self.live(namespace).await {
                Ok(Some(live)) => live,
                Ok(None) => return (None, None),
                Err(error) => return (Some(verdict), Some(error)),
            };
            let verdict = planner::verdict(observed, findings, &live);
            if verdict != Verdict::Finalize {
                return (Some(verdict), None);
            }
            match self.finalize(namespace, object).await {
                Ok(()) => return (None, None),
                Err(SyncError::Conflict { .. }) if attempts < ATTEMPTS => {}
                Err(error) => return (Some(verdict), Some(error)),
            }
        }
    }

    /// The namespace in the API server; `None` if it is not the one that may be emptied.
    async fn live(&self, namespace: &Namespace) -> Result<Option<Live>, SyncError> {
        let target = path(Namespace::RESOURCE, &namespace.meta);
        let what = || format!("reading namespace {}", namespace.meta.key);
        let read = self.context.api_for(namespace).call::<Value>(request::get(&target, &[])).await;
        let object = match read {
            Ok(object) => object,
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => return Err(SyncError::api(what(), error)),
        };
        let live = Namespace::decode(&object.to_string(), &mut Default::default())
            .map_err(|error| SyncError::Json { what: what(), error })?;
        let may_be_emptied = planner::may_be_emptied(namespace, &live);
        Ok(may_be_emptied.then_some(Live { namespace: live, object }))
    }

    /// Removes our token; all others stay.
    async fn finalize(&self, namespace: &Namespace, mut object: Value) -> Result<(), SyncError> {
        let what = || format!("finalizing namespace {}", namespace.meta.key);
        if let Some(tokens) = object.pointer_mut("/spec/finalizers").and_then(Value::as_array_mut) {
            tokens.retain(|token| {
                token != KUBERNETES && !planted!("the tokens of others come off a namespace")
            });
        }
        let target = path(Namespace::RESOURCE, &namespace.meta) + "/finalize";
        let request = request::put(&target, &[self.context.field_manager()], &object)
            .map_err(|error| SyncError::Json { what: what(), error })?;
        match self.context.api_for(namespace).call::<IgnoredAny>(request::metadata_only(request)).await {
            Ok(_) => {}
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(SyncError::api(what(), error)),
        }
        tracing::info!(namespace = %namespace.meta.key, uid = %namespace.meta.uid, "the namespace is empty and finalized");
        self.context.metrics().workloads.namespaces_finalized.inc();
        Ok(())
    }

    /// Deletes wave by wave, until one leaves something. The first error is returned for the log and the backoff. `None`
    /// if the daemon is shutting down.
    async fn empty(
        &self,
        namespace: &Namespace,
        waves: Vec<Wave<'_>>,
    ) -> Option<(Content, Option<SyncError>)> {
        let (mut content, mut first_error) = (Content::default(), None);
        for Wave { resources, is_full } in waves {
            if self.context.draining().is_cancelled() {
                return None;
            }
            let clear = |resource| self.clear(namespace, resource, is_full).boxed();
            let looks: Vec<_> = resources.into_iter().map(clear).collect();
            let mut looks = futures::stream::iter(looks).buffered(RESOURCES_AT_ONCE);
            while let Some((resource, found)) = looks.next().await {
                content.add(found.map_err(|error| {
                    let failure = Failure {
                        resource: (resource.group.clone(), resource.plural.clone()),
                        message: error.reason(),
                    };
                    first_error.get_or_insert(error);
                    failure
                }));
            }
            if !content.is_empty() {
                break;
            }
        }
        Some((content, first_error))
    }

    /// Deletes the objects of one resource, and counts what is left.
    async fn clear<'a>(
        &self,
        namespace: &Namespace,
        resource: &'a DiscoveredResource,
        is_full: bool,
    ) -> (&'a DiscoveredResource, Result<Option<Left>, SyncError>) {
        let name = &*namespace.meta.key.name;
        let requests = Requests {
            api: self.context.api_for(namespace),
            collection: resource.path(Some(name)),
            resource,
            namespace: name,
        };
        (resource, requests.clear(is_full).await)
    }
}

/// The requests for one resource in one namespace.
struct Requests<'a> {
    api: Api,
    /// The path of the collection.
    collection: String,
    resource: &'a DiscoveredResource,
    namespace: &'a str,
}

impl Requests<'_> {
    async fn clear(&self, is_full: bool) -> Result<Option<Left>, SyncError> {
        let has = |verb| self.resource.verbs.has(verb);
        let first = if has(Verb::List) { self.list(is_full).await? } else { None };
        let Some(first) = first else {
            self.delete_collection().await?;
            return Ok(None);
        };
        if !first.needs_deletion() {
            return Ok(Left::of(self.resource, &first.items, true));
        }
        let supports_collections = has(Verb::DeleteCollection) && self.delete_collection().await?;
        let were_all_deleted = match supports_collections {
            true => true,
            false if first.is_whole => self.delete_one_by_one(&first).await?,
            false => self.delete_one_by_one(self.list(true).await?.as_ref().unwrap_or(&first)).await?,
        };
        let left = self.list(true).await?.unwrap_or(first);
        Ok(Left::of(self.resource, &left.items, were_all_deleted))
    }

    /// Lists the metadata of all objects, or of the first alone. Without a version, so that the answer is not older than
    /// the request. `None` if the server has no such request, whatever discovery has promised.
    async fn list(&self, is_full: bool) -> Result<Option<Listed>, SyncError> {
        let api = self.api.with_timeout(LIST_TIMEOUT);
        let (mut items, mut next) = (Vec::new(), String::new());
        loop {
            let limit = ("limit", if is_full { PAGE } else { "1" });
            let query = [limit, ("continue", &next)];
            let query = if next.is_empty() { &query[..1] } else { &query[..] };
            let request = request::get_as(request::METADATA_LIST, &self.collection, query);
            let page: Page = match api.call(request).await {
                // The rest of the list is of an age that the server does not keep: it begins anew.
                Err(error) if error.is_gone() && !next.is_empty() => {
                    (items, next) = (Vec::new(), String::new());
                    continue;
                }
                Err(error) if error.status().is_some_and(|status| status.code == 405) => return Ok(None),
                page => page.map_err(|error| self.failed("listing", error))?,
            };
            items.extend(page.items.unwrap_or_default().into_iter().map(|item| item.metadata.into_item()));
            next = page.metadata.next.unwrap_or_default();
            if next.is_empty() || !is_full {
                return Ok(Some(Listed { items, is_whole: next.is_empty() }));
            }
        }
    }

    /// Deletes all objects by one request. Whether the server can do that: discovery may promise what is not there.
    async fn delete_collection(&self) -> Result<bool, SyncError> {
        let api = self.api.with_timeout(LIST_TIMEOUT);
        let request = request::delete(&self.collection, &[], &in_the_background(None));
        let mut request = request.map_err(|error| self.failed("deleting", ApiError::Decode(error)))?;
        let metadata = http::HeaderValue::from_static(request::METADATA_LIST);
        request.headers_mut().insert(http::header::ACCEPT, metadata);
        match api.call::<IgnoredAny>(request).await {
            Ok(_) => Ok(true),
            Err(error) if is_unsupported(&error) => Ok(false),
            Err(error) => Err(self.failed("deleting", error)),
        }
    }

    /// Deletes objects by their UIDs. Whether these were all.
    async fn delete_one_by_one(&self, listed: &Listed) -> Result<bool, SyncError> {
        let mut items = listed.items.iter().filter(|item| item.needs_deletion());
        let mut deletions = Vec::new();
        for item in items.by_ref().take(ONE_BY_ONE) {
            deletions.push(self.delete(item).boxed());
        }
        let are_all = items.next().is_none();
        let mut deletions = futures::stream::iter(deletions).buffered(AT_ONCE);
        let mut result = Ok(());
        while let Some(deleted) = deletions.next().await {
            result = result.and(deleted);
        }
        result.map(|()| are_all)
    }

    async fn delete(&self, item: &Item) -> Result<(), SyncError> {
        let what = || format!("deleting {}", item.name);
        if !is_path_segment(&item.name) {
            let error = serde::de::Error::custom("the name of the object cannot be part of a path");
            return Err(SyncError::Json { what: what(), error });
        }
        let path = format!("{}/{}", self.collection, item.name);
        let uid = (!planted!("deletions in a namespace carry no UID")).then_some(&*item.uid);
        let request = request::delete(&path, &[], &in_the_background(uid))
            .map_err(|error| SyncError::Json { what: what(), error })?;
        match self.api.call::<IgnoredAny>(request::metadata_only(request)).await {
            Ok(_) => Ok(()),
            // It went by itself, or another has its name, which the next list shows.
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
            Err(error) => Err(self.failed("deleting", error)),
        }
    }

    /// A failed request. That a collection does not exist, which discovery has just listed, proves nothing: the server
    /// may be starting. The next round asks discovery again.
    fn failed(&self, doing: &str, error: ApiError) -> SyncError {
        let what = format!("{doing} {} in namespace {}", object_counts::name(self.resource), self.namespace);
        SyncError::creation(what, error)
    }
}

/// Whether the server has no such request: by its path, or for this collection.
fn is_unsupported(error: &ApiError) -> bool {
    error.status().is_some_and(|status| matches!(status.code, 404 | 405))
}

/// Background deletion adds no finalizer, and takes those of the garbage collector off.
fn in_the_background(uid: Option<&str>) -> Value {
    let mut options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"});
    if let Some(uid) = uid {
        options["preconditions"] = json!({"uid": uid});
    }
    options
}

/// A page of a list, as far as it is read.
#[derive(Deserialize)]
struct Page {
    #[serde(default)]
    metadata: PageMeta,
    #[serde(default)]
    items: Option<Vec<Object>>,
}

#[derive(Deserialize, Default)]
struct PageMeta {
    #[serde(default, rename = "continue")]
    next: Option<String>,
}

#[derive(Deserialize)]
struct Object {
    #[serde(default)]
    metadata: ObjectMeta,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct ObjectMeta {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    uid: Option<String>,
    #[serde(default)]
    deletion_timestamp: Option<Value>,
    #[serde(default)]
    finalizers: Option<Vec<String>>,
}

impl ObjectMeta {
    fn into_item(self) -> Item {
        let ObjectMeta { name, uid, deletion_timestamp, finalizers } = self;
        Item {
            name: name.unwrap_or_default(),
            uid: uid.unwrap_or_default(),
            is_deleting: deletion_timestamp.is_some(),
            due: deletion_timestamp.and_then(|time| time.as_str()?.parse().ok()),
            finalizers: finalizers.unwrap_or_default(),
        }
    }
}
