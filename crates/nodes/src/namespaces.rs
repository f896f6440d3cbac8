//! The namespace controller: deletes the content of a terminating namespace and then removes the namespace's finalizer.
//! It also creates the `default` ServiceAccount of each namespace, as a real cluster does.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams},
    core::{Request, discovery::verbs},
};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    api_client::{CallError, Kind, Now, backoff, discover, post, put, rfc3339, send},
    reflector::{Change, Identity, follow, for_a_day},
};

/// The finalizer in a namespace's spec that this controller removes.
const FINALIZER: &str = "kubernetes";

/// Processes namespaces until `shutdown`.
pub fn run(client: Client, now: Now, shutdown: CancellationToken) -> BoxFuture<'static, ()> {
    run_with(client, now, true, shutdown)
}

/// Creates the ServiceAccounts and deletes nothing, beside another controller that ends namespaces.
pub fn run_accounts(client: Client, now: Now, shutdown: CancellationToken) -> BoxFuture<'static, ()> {
    run_with(client, now, false, shutdown)
}

fn run_with(
    client: Client,
    now: Now,
    ends_namespaces: bool,
    shutdown: CancellationToken,
) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let controller = Controller { ends_namespaces, ..Controller::new(client, now) };
        shutdown.run_until_cancelled(controller.run()).await;
    })
}

struct Controller {
    client: Client,
    now: Now,
    /// Whether namespaces that are being deleted are emptied, or left to another controller.
    ends_namespaces: bool,
    namespaces: BTreeMap<String, Namespace>,
    due: BTreeSet<(Instant, String)>,
    busy: BTreeSet<String>,
    tries: BTreeMap<String, u32>,
    /// By UID: these have been given their ServiceAccount.
    equipped: BTreeSet<String>,
}

/// The result of processing a namespace.
enum Round {
    /// Nothing more to do.
    Done,
    /// Something is left; look again later.
    Remaining,
}

impl Controller {
    fn new(client: Client, now: Now) -> Self {
        Controller {
            client,
            now,
            ends_namespaces: true,
            namespaces: BTreeMap::new(),
            due: BTreeSet::new(),
            busy: BTreeSet::new(),
            tries: BTreeMap::new(),
            equipped: BTreeSet::new(),
        }
    }

    async fn run(mut self) {
        let mut changes = follow(Api::<Namespace>::all(self.client.clone()), for_a_day());
        let mut running: FuturesUnordered<BoxFuture<'static, (String, Result<Round, CallError>)>> =
            FuturesUnordered::new();
        loop {
            let due = self.due.first().map(|(at, _)| *at);
            tokio::select! {
                biased;
                Some((uid, result)) = running.next(), if !running.is_empty() => self.finish(uid, result),
                Some(change) = changes.next() => self.observe(change),
                () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    if let Some((_, uid)) = self.due.pop_first()
                        && let Some(namespace) = self.namespaces.get(&uid).cloned()
                    {
                        self.busy.insert(uid.clone());
                        let (client, now) = (self.client.clone(), self.now.clone());
                        let is_to_end = self.is_to_end(&namespace);
                        let round = async move { (uid, round(&client, &namespace, is_to_end, &now).await) };
                        running.push(round.boxed());
                    }
                }
            }
        }
    }

    fn is_to_end(&self, namespace: &Namespace) -> bool {
        self.ends_namespaces && is_terminating(namespace)
    }

    fn observe(&mut self, change: Change<Namespace>) {
        match change {
            Change::Put(namespace) => {
                let uid = namespace.metadata.uid.clone().unwrap_or_default();
                let wanted = self.is_to_end(&namespace) || !self.equipped.contains(&uid);
                let known = self.namespaces.insert(uid.clone(), namespace);
                let is_new = known.as_ref().is_none_or(|known| !is_terminating(known));
                if wanted && is_new && !self.busy.contains(&uid) {
                    self.due.retain(|(_, other)| *other != uid);
                    self.due.insert((Instant::now(), uid));
                }
            }
            Change::Deleted(Identity { uid, .. }) => {
                self.namespaces.remove(&uid);
                self.tries.remove(&uid);
                self.equipped.remove(&uid);
                self.due.retain(|(_, other)| *other != uid);
            }
            Change::Synced => {}
        }
    }

    fn finish(&mut self, uid: String, result: Result<Round, CallError>) {
        self.busy.remove(&uid);
        let Some(namespace) = self.namespaces.get(&uid) else { return };
        let again = match &result {
            Ok(Round::Done) => {
                self.tries.remove(&uid);
                self.equipped.insert(uid.clone());
                // It may have been deleted while it was being equipped.
                self.ends_namespaces && is_terminating(namespace)
            }
            Ok(Round::Remaining) => true,
            Err(error) => {
                let name = namespace.metadata.name.as_deref().unwrap_or_default();
                tracing::warn!(namespace = name, %error, "the namespace controller cannot process a namespace; retrying with backoff");
                true
            }
        };
        if again {
            let tries = self.tries.entry(uid.clone()).or_default();
            *tries = tries.saturating_add(1);
            self.due.insert((Instant::now() + backoff(*tries).min(Duration::from_secs(5)), uid));
        }
    }
}

fn is_terminating(namespace: &Namespace) -> bool {
    namespace.metadata.deletion_timestamp.is_some()
        && namespace.spec.iter().flat_map(|spec| spec.finalizers.iter().flatten()).any(|f| f == FINALIZER)
}

async fn round(
    client: &Client,
    namespace: &Namespace,
    is_to_end: bool,
    now: &Now,
) -> Result<Round, CallError> {
    if is_to_end {
        empty(client, namespace, now).await
    } else if namespace.metadata.deletion_timestamp.is_none() {
        create_service_account(client, namespace).await
    } else {
        Ok(Round::Done)
    }
}

/// Creates the `default` ServiceAccount.
async fn create_service_account(client: &Client, namespace: &Namespace) -> Result<Round, CallError> {
    let name = namespace.metadata.name.as_deref().unwrap_or_default();
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": "default", "namespace": name},
    });
    match send(client, post(format!("/api/v1/namespaces/{name}/serviceaccounts"), &account)).await {
        Ok(_) => Ok(Round::Done),
        // There already, or the namespace is being deleted.
        Err(CallError::Refused(status)) if matches!(status.code, 403 | 404 | 409) => Ok(Round::Done),
        Err(error) => Err(error),
    }
}

/// Deletes the objects in the namespace. If none is left, removes the finalizer.
async fn empty(client: &Client, namespace: &Namespace, now: &Now) -> Result<Round, CallError> {
    let name = namespace.metadata.name.as_deref().unwrap_or_default();
    let mut left = Remains::default();
    for kind in discover(client).await?.iter().filter(|kind| kind.namespaced) {
        let objects = clear(client, kind, name).await?;
        left.count(kind, &objects);
    }
    // Events are no part of discovery's list, as nothing watches them, but they go with the namespace.
    let events = Request::new(format!("/api/v1/namespaces/{name}/events"));
    send(client, events.delete_collection(&DeleteParams::default(), &ListParams::default())).await?;
    write_conditions(client, namespace, &left, now).await?;
    if !left.kinds.is_empty() {
        return Ok(Round::Remaining);
    }
    let current = send(client, Request::new("/api/v1/namespaces").get(name, &Default::default())).await;
    let mut current = match current {
        Ok(current) => current,
        Err(error) if error.is_not_found() => return Ok(Round::Done),
        Err(error) => return Err(error),
    };
    if current["metadata"]["uid"].as_str() != namespace.metadata.uid.as_deref() {
        return Ok(Round::Done);
    }
    let finalizers: Vec<Value> = current["spec"]["finalizers"].as_array().cloned().unwrap_or_default();
    let rest: Vec<Value> = finalizers.into_iter().filter(|finalizer| finalizer != FINALIZER).collect();
    current["spec"] = json!({"finalizers": rest});
    match send(client, put(format!("/api/v1/namespaces/{name}/finalize"), &current)).await {
        Ok(_) => Ok(Round::Done),
        Err(error) if error.is_not_found() => Ok(Round::Done),
        Err(error) => Err(error),
    }
}

/// Deletes every object of one kind and gives back those that remain: graceful deletions, finalizers.
async fn clear(client: &Client, kind: &Kind, namespace: &str) -> Result<Vec<Value>, CallError> {
    let requests = kind.requests(Some(namespace));
    let listed = || async {
        let list = send(client, requests.list(&ListParams::default())).await?;
        Ok::<_, CallError>(list["items"].as_array().cloned().unwrap_or_default())
    };
    let objects = listed().await?;
    let untouched = objects.iter().filter(|object| !object["metadata"]["deletionTimestamp"].is_string());
    let untouched: Vec<&Value> = untouched.collect();
    if untouched.is_empty() {
        return Ok(objects);
    }
    let background = DeleteParams::background();
    if kind.supports(&[verbs::DELETE_COLLECTION]) {
        send(client, requests.delete_collection(&background, &ListParams::default())).await?;
    } else {
        for object in untouched {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            match send(client, requests.delete(name, &background)).await {
                Err(error) if !error.is_not_found() => return Err(error),
                _ => {}
            }
        }
    }
    listed().await
}

/// The remaining content of a namespace: kinds such as `pods.` with counts, and finalizers with counts.
#[derive(Debug, Default)]
struct Remains {
    kinds: BTreeMap<String, usize>,
    finalizers: BTreeMap<String, usize>,
}

impl Remains {
    fn count(&mut self, kind: &Kind, objects: &[Value]) {
        if objects.is_empty() {
            return;
        }
        let resource = &kind.resource;
        *self.kinds.entry(format!("{}.{}", resource.plural, resource.group)).or_default() += objects.len();
        for object in objects {
            for finalizer in object["metadata"]["finalizers"].as_array().into_iter().flatten() {
                let name = finalizer.as_str().unwrap_or_default().to_owned();
                *self.finalizers.entry(name).or_default() += 1;
            }
        }
    }

    /// The conditions as (type, status, reason, message), worded as `kubectl describe namespace` shows
    /// them in a real cluster.
    fn conditions(&self) -> [(&'static str, &'static str, &'static str, String); 5] {
        let listed = |counts: &BTreeMap<String, usize>, word: &str| {
            let each: Vec<String> = counts
                .iter()
                .map(|(name, count)| match word {
                    "has" => format!("{name} has {count} resource instances"),
                    _ => format!("{name} in {count} resource instances"),
                })
                .collect();
            each.join(", ")
        };
        let content = if self.kinds.is_empty() {
            ("False", "ContentRemoved", "All content successfully removed".to_owned())
        } else {
            let text = format!("Some resources are remaining: {}", listed(&self.kinds, "has"));
            ("True", "SomeResourcesRemain", text)
        };
        let finalizers = if self.finalizers.is_empty() {
            ("False", "ContentHasNoFinalizers", "All content-preserving finalizers finished".to_owned())
        } else {
            let rest = listed(&self.finalizers, "in");
            let text = format!("Some content in the namespace has finalizers remaining: {rest}");
            ("True", "SomeFinalizersRemain", text)
        };
        [
            (
                "NamespaceDeletionDiscoveryFailure",
                "False",
                "ResourcesDiscovered",
                "All resources successfully discovered".to_owned(),
            ),
            (
                "NamespaceDeletionGroupVersionParsingFailure",
                "False",
                "ParsedGroupVersions",
                "All legacy kube types successfully parsed".to_owned(),
            ),
            (
                "NamespaceDeletionContentFailure",
                "False",
                "ContentDeleted",
                "All content successfully deleted, may be waiting on finalization".to_owned(),
            ),
            ("NamespaceContentRemaining", content.0, content.1, content.2),
            ("NamespaceFinalizersRemaining", finalizers.0, finalizers.1, finalizers.2),
        ]
    }
}

/// Writes the conditions if one of them differs from what the server has.
async fn write_conditions(
    client: &Client,
    namespace: &Namespace,
    left: &Remains,
    now: &Now,
) -> Result<(), CallError> {
    let requests = Request::new("/api/v1/namespaces");
    let name = namespace.metadata.name.as_deref().unwrap_or_default();
    let current = match send(client, requests.get(name, &Default::default())).await {
        Ok(current) => current,
        Err(error) if error.is_not_found() => return Ok(()),
        Err(error) => return Err(error),
    };
    let Some(conditions) = merged(&current["status"]["conditions"], left, &rfc3339(now())) else {
        return Ok(());
    };
    let patch = Patch::Merge(json!({
        "metadata": {"uid": namespace.metadata.uid, "resourceVersion": current["metadata"]["resourceVersion"]},
        "status": {"conditions": conditions},
    }));
    match send(client, requests.patch_subresource("status", name, &PatchParams::default(), &patch)).await {
        Err(error) if !error.is_conflict() && !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}

/// The conditions to write, or `None` if nothing changes. Foreign conditions stay.
fn merged(current: &Value, left: &Remains, at: &str) -> Option<Vec<Value>> {
    let mut conditions = current.as_array().cloned().unwrap_or_default();
    let mut changed = false;
    for (type_, status, reason, message) in left.conditions() {
        let old = conditions.iter_mut().find(|condition| condition["type"] == type_);
        let same = old.as_ref().is_some_and(|old| {
            old["status"] == status && old["reason"] == reason && old["message"] == message.as_str()
        });
        if same {
            continue;
        }
        changed = true;
        let since = match &old {
            Some(old) if old["status"] == status => old["lastTransitionTime"].clone(),
            _ => json!(at),
        };
        let new = json!({"type": type_, "status": status, "reason": reason, "message": message,
                         "lastTransitionTime": since});
        match old {
            Some(old) => *old = new,
            None => conditions.push(new),
        }
    }
    changed.then_some(conditions)
}

#[cfg(test)]
mod tests {
    use kube::discovery::ApiResource;

    use super::*;

    fn pods() -> Kind {
        Kind {
            resource: ApiResource {
                group: String::new(),
                version: "v1".to_owned(),
                api_version: "v1".to_owned(),
                kind: "Pod".to_owned(),
                plural: "pods".to_owned(),
            },
            namespaced: true,
            verbs: Vec::new(),
        }
    }

    #[test]
    fn remaining_content_is_reported_with_counts() {
        let mut left = Remains::default();
        let held = json!({"metadata": {"finalizers": ["example.com/slow"]}});
        left.count(&pods(), &[json!({"metadata": {}}), held]);
        let conditions = left.conditions();
        assert_eq!(conditions[3].3, "Some resources are remaining: pods. has 2 resource instances");
        assert_eq!(
            conditions[4].3,
            "Some content in the namespace has finalizers remaining: example.com/slow in 1 resource instances"
        );
    }

    #[test]
    fn conditions_are_written_once_and_keep_their_transition_time() {
        let mut left = Remains::default();
        left.count(&pods(), &[json!({"metadata": {}})]);
        let first = merged(&Value::Null, &left, "2026-01-01T00:00:00Z").unwrap();
        assert_eq!(first.len(), 5);
        let first = Value::Array(first);
        assert_eq!(merged(&first, &left, "2026-01-01T00:00:09Z"), None);
        left.count(&pods(), &[json!({"metadata": {}})]);
        let second = merged(&first, &left, "2026-01-01T00:00:09Z").unwrap();
        assert_eq!(second[3]["lastTransitionTime"], "2026-01-01T00:00:00Z");
        let empty = merged(&first, &Remains::default(), "2026-01-01T00:00:09Z").unwrap();
        assert_eq!(empty[3]["status"], "False");
        assert_eq!(empty[3]["lastTransitionTime"], "2026-01-01T00:00:09Z");
        assert_eq!(empty[0]["lastTransitionTime"], "2026-01-01T00:00:00Z");
    }
}
