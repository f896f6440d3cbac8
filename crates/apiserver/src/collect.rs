//! Deletes what has no owner left, and empties the namespaces that are being deleted: see
//! [`Options::collect_after`](crate::Options::collect_after).
//!
//! A sweep reads all objects at one revision and decides about each of them alone: at most one write for an object. The
//! writes are ordinary requests, with the UID and the version that were read. Another sweep follows at once, until one
//! changes nothing. Nothing is watched and nothing is remembered, so nothing can be missed or out of date.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use http::{Method, Request};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde::Deserialize;
use serde_json::{Value, json};

use super::kinds::{Kind, Subresource};
use super::object::{Object, set_meta, strings};
use super::request::{self, Verb};
use super::server::Server;
use super::store::Key;

/// Keeps an object until nothing blocks its deletion.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";
/// Keeps an object until nothing refers to it.
pub(crate) const ORPHAN: &str = "orphan";
/// The token in the spec of a namespace that stays until the namespace is empty.
const CONTENT: &str = "kubernetes";
/// Events are nobody's dependents, and are written too often to be read here.
const EVENT: &str = "Event";

/// Carries out a request of the server itself.
type CarryOut = fn(&Arc<Server>, Request<Vec<u8>>);

/// Whether an object may have to be collected or a namespace to be finalized after this request, unlike before. A sweep
/// reads all objects, so the pods that a controller creates must not cause one each.
pub(crate) fn concerns(server: &Server, request: &request::Request) -> bool {
    let place = &request.place;
    let is_a_definition = place.kind.storage() == "CustomResourceDefinition";
    match request.verb {
        Verb::Get | Verb::List | Verb::Watch => false,
        _ if [EVENT, "Lease"].contains(&place.kind.storage()) => false,
        Verb::Create if place.subresource.is_none() => is_a_definition || !has_solid_owners(server, request),
        Verb::Create => place.subresource == Some(Subresource::Eviction),
        Verb::Delete | Verb::DeleteCollection => true,
        Verb::Update | Verb::Patch => place.subresource.is_none_or(|sub| sub == Subresource::Finalize),
    }
}

/// Whether all owners of a new object exist, and none of them is being deleted.
fn has_solid_owners(server: &Server, request: &request::Request) -> bool {
    #[derive(Deserialize)]
    struct Created {
        metadata: ObjectMeta,
    }
    let names_owners = request.body.windows(15).any(|part| part == b"ownerReferences");
    let owners = || serde_json::from_slice::<Created>(&request.body).ok()?.metadata.owner_references;
    let is_solid = |reference: &OwnerReference| {
        let kind = server.registry.read().rows().find(|kind| is_kind_of(kind, reference));
        let owner = kind.and_then(|kind| {
            let namespace = if kind.namespaced { request.place.namespace.as_str() } else { "" };
            server.store.get(kind.storage(), &Key::new(namespace, &reference.name))
        });
        let meta = owner.and_then(|owner| serde_json::from_slice::<ObjectMeta>(&owner.metadata()).ok());
        meta.is_some_and(|meta| {
            meta.uid.as_ref() == Some(&reference.uid) && meta.deletion_timestamp.is_none()
        })
    };
    !names_owners || owners().is_some_and(|owners| owners.iter().all(is_solid))
}

/// Sweeps after the time of the options, if they have one.
pub(crate) fn soon(server: &Arc<Server>, carry_out: CarryOut) {
    let Some(delay) = server.options.collect_after else { return };
    let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
    server.sweeps.is_due.store(true, SeqCst);
    if server.sweeps.is_planned.swap(true, SeqCst) {
        return;
    }
    let server = Arc::downgrade(server);
    runtime.spawn(async move {
        tokio::time::sleep(delay).await;
        let Some(server) = server.upgrade() else { return };
        sweep(&server, carry_out);
        server.sweeps.is_planned.store(false, SeqCst);
        if server.sweeps.is_due.load(SeqCst) {
            soon(&server, carry_out);
        }
    });
}

fn sweep(server: &Arc<Server>, carry_out: CarryOut) {
    let mut swept = 0;
    while server.store.revision() != swept {
        server.sweeps.is_due.store(false, SeqCst);
        swept = server.store.revision();
        let carrier = server.sweeps.carrier.read().clone();
        for request in Objects::of(server).writes() {
            match &carrier {
                Some(carrier) => carrier(request),
                None => carry_out(server, request),
            }
        }
    }
}

/// An object, as far as ownership needs.
struct Item {
    kind: &'static Kind,
    meta: ObjectMeta,
    object: Arc<Object>,
}

/// The state of an owner, for a dependent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// It exists.
    Solid,
    /// It is deleted in the foreground: it waits for its dependents.
    Waiting,
    /// It is deleted, and its dependents are to stay.
    Orphaning,
    /// It does not exist.
    Absent,
    /// Nobody can tell: its kind is not served, or a namespaced owner is named by an object without a namespace.
    Unresolvable,
}

/// The one write that an object needs.
enum Write {
    Delete(&'static str),
    SetOwners(Vec<OwnerReference>),
    RemoveFinalizer(&'static str),
    /// Nothing is left in this namespace but events.
    Finalize,
}

impl Item {
    fn uid(&self) -> &str {
        self.meta.uid.as_deref().unwrap_or_default()
    }

    fn name(&self) -> &str {
        self.meta.name.as_deref().unwrap_or_default()
    }

    fn namespace(&self) -> Option<&str> {
        self.meta.namespace.as_deref()
    }

    fn owners(&self) -> &[OwnerReference] {
        self.meta.owner_references.as_deref().unwrap_or_default()
    }

    fn has(&self, finalizer: &str) -> bool {
        self.meta.finalizers.iter().flatten().any(|have| have == finalizer)
    }

    fn is_deleting(&self) -> bool {
        self.meta.deletion_timestamp.is_some()
    }

    fn is_waiting(&self) -> bool {
        self.is_deleting() && self.has(FOREGROUND)
    }

    /// Whether an object of `namespace` can have this one as its owner.
    fn is_in_reach_of(&self, namespace: Option<&str>) -> bool {
        self.namespace().is_none() || self.namespace() == namespace
    }

    /// Whether `reference`, found in `namespace`, means this object: all of it must agree, not only the UID.
    fn is_meant_by(&self, reference: &OwnerReference, namespace: Option<&str>) -> bool {
        reference.uid == self.uid()
            && reference.name == self.name()
            && is_kind_of(self.kind, reference)
            && self.is_in_reach_of(namespace)
    }

    /// The references of this object that mean `owner`.
    fn references_to<'a>(&'a self, owner: &'a Item) -> impl Iterator<Item = &'a OwnerReference> {
        self.owners().iter().filter(|reference| owner.is_meant_by(reference, self.namespace()))
    }

    /// Whether `owner` waits for the end of this object.
    fn blocks(&self, owner: &Item) -> bool {
        self.references_to(owner).any(|reference| reference.block_owner_deletion == Some(true))
    }
}

/// Of any version: all versions of a kind are the same objects.
fn is_kind_of(kind: &Kind, reference: &OwnerReference) -> bool {
    let group = reference.api_version.rsplit_once('/').map_or("", |(group, _)| group);
    kind.group == group && kind.kind == reference.kind
}

/// All objects at one revision.
struct Objects {
    kinds: Vec<&'static Kind>,
    items: Vec<Item>,
    /// Places in `items`.
    by_uid: BTreeMap<String, usize>,
    /// The same, by the UID of an owner that need not exist.
    dependents: BTreeMap<String, Vec<usize>>,
    /// The namespaces that are to be emptied, and whether there are pods in them: pods go first.
    emptied: BTreeMap<String, bool>,
}

impl Objects {
    fn of(server: &Server) -> Self {
        let kinds: Vec<&'static Kind> = server.registry.read().rows().collect();
        let stored = server.store.back_up();
        let mut items = Vec::new();
        let mut seen = std::collections::BTreeSet::new();
        for kind in kinds.iter().filter(|kind| kind.storage() != EVENT && kind.verbs.contains(&"delete")) {
            if seen.insert(kind.storage()) {
                items.extend(stored.objects(kind.storage()).filter_map(|object| {
                    let meta = serde_json::from_slice(&object.metadata()).ok()?;
                    Some(Item { kind, meta, object: object.clone() })
                }));
            }
        }
        let by_uid = (0..).zip(&items).map(|(at, item)| (item.uid().to_owned(), at)).collect();
        let mut dependents: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (at, item) in (0..).zip(&items) {
            for owner in item.owners() {
                dependents.entry(owner.uid.clone()).or_default().push(at);
            }
        }
        let has_pods = |namespace: &str| {
            items.iter().any(|item| item.kind.storage() == "Pod" && item.namespace() == Some(namespace))
        };
        let ends = |item: &&Item| item.kind.storage() == "Namespace" && item.is_deleting();
        let to_empty = items
            .iter()
            .filter(ends)
            .filter(|item| strings(item.object.peek().pointer("/spec/finalizers")).contains(&CONTENT));
        let emptied = to_empty.map(|item| (item.name().to_owned(), has_pods(item.name()))).collect();
        Objects { kinds, by_uid, dependents, emptied, items }
    }

    /// The requests of this sweep.
    fn writes(&self) -> Vec<Request<Vec<u8>>> {
        let written = self.items.iter().filter_map(|item| Some((item, self.write(item)?)));
        written.flat_map(|(item, write)| requests(item, &write)).collect()
    }

    fn write(&self, item: &Item) -> Option<Write> {
        if let Some(write) = self.end_of_namespace(item) {
            return Some(write);
        }
        if item.is_deleting() { self.progress(item) } else { self.fate(item) }
    }

    fn end_of_namespace(&self, item: &Item) -> Option<Write> {
        if item.kind.storage() == "Namespace" {
            let is_empty = |name| self.items.iter().all(|item| item.namespace() != Some(name));
            return (self.emptied.contains_key(item.name()) && is_empty(item.name()))
                .then_some(Write::Finalize);
        }
        let pods_first = self.emptied.get(item.namespace()?)?;
        let is_its_turn = !pods_first || item.kind.storage() == "Pod";
        // A deletion in the background also takes off what would keep the object for the sake of its dependents.
        let is_kept = !item.is_deleting() || item.has(FOREGROUND) || item.has(ORPHAN);
        (is_its_turn && is_kept).then_some(Write::Delete("Background"))
    }

    /// An object that nobody has deleted is deleted if all its owners are gone or wait for it.
    fn fate(&self, item: &Item) -> Option<Write> {
        let states = self.states(item);
        let has = |wanted| states.iter().any(|(_, state)| *state == wanted);
        let is_ended = |state| matches!(state, Owner::Absent | Owner::Waiting | Owner::Orphaning);
        let kept: Vec<_> = states.iter().filter(|(_, state)| !is_ended(*state)).collect();
        if kept.len() == states.len() {
            return None;
        }
        if has(Owner::Orphaning) || !kept.is_empty() {
            return Some(Write::SetOwners(kept.into_iter().map(|(owner, _)| (*owner).clone()).collect()));
        }
        // An owner that waits for an object also waits for the dependents of that object.
        let is_awaited = has(Owner::Waiting) && self.dependents.contains_key(item.uid());
        Some(Write::Delete(match () {
            () if is_awaited => "Foreground",
            () if item.has(ORPHAN) => "Orphan",
            () if item.has(FOREGROUND) => "Foreground",
            () => "Background",
        }))
    }

    /// The next step of an object that is being deleted.
    fn progress(&self, item: &Item) -> Option<Write> {
        let is_released = |(_, state): &(_, Owner)| *state == Owner::Orphaning;
        let states = self.states(item);
        if states.iter().any(is_released) {
            let kept = states.into_iter().filter(|state| !is_released(state));
            return Some(Write::SetOwners(kept.map(|(owner, _)| owner.clone()).collect()));
        }
        if item.has(ORPHAN) {
            let is_free =
                !self.dependents_of(item).any(|dependent| item.is_in_reach_of(dependent.namespace()));
            return is_free.then_some(Write::RemoveFinalizer(ORPHAN));
        }
        if !item.has(FOREGROUND) {
            return None;
        }
        let is_awaited = |dependent: &Item| {
            dependent.blocks(item)
                || (!dependent.is_deleting() && dependent.references_to(item).next().is_some())
        };
        if !self.dependents_of(item).any(is_awaited) {
            return Some(Write::RemoveFinalizer(FOREGROUND));
        }
        self.unblock_circle(item)
    }

    /// Among objects that are deleted in the foreground each waits for those that block it. One that waits for itself
    /// stops to block.
    fn unblock_circle(&self, item: &Item) -> Option<Write> {
        let mut awaited: Vec<&str> = Vec::new();
        let mut ahead = vec![item];
        while let Some(owner) = ahead.pop() {
            for dependent in self.dependents_of(owner) {
                if dependent.blocks(owner) && dependent.is_waiting() && !awaited.contains(&dependent.uid()) {
                    awaited.push(dependent.uid());
                    ahead.push(dependent);
                }
            }
        }
        let mut owners = item.owners().to_vec();
        let in_circle = |owner: &OwnerReference| {
            owner.block_owner_deletion == Some(true)
                && (owner.uid == item.uid() || awaited.contains(&owner.uid.as_str()))
        };
        if !awaited.contains(&item.uid()) || !owners.iter().any(in_circle) {
            return None;
        }
        owners
            .iter_mut()
            .filter(|owner| in_circle(owner))
            .for_each(|owner| owner.block_owner_deletion = Some(false));
        Some(Write::SetOwners(owners))
    }

    fn dependents_of<'a>(&'a self, owner: &Item) -> impl Iterator<Item = &'a Item> + use<'a> {
        self.dependents.get(owner.uid()).into_iter().flatten().filter_map(|at| self.items.get(*at))
    }

    fn states<'a>(&self, item: &'a Item) -> Vec<(&'a OwnerReference, Owner)> {
        item.owners().iter().map(|owner| (owner, self.state(item, owner))).collect()
    }

    fn state(&self, item: &Item, reference: &OwnerReference) -> Owner {
        let found = self.by_uid.get(&reference.uid).and_then(|at| self.items.get(*at));
        if found.is_some_and(|owner| {
            owner.is_deleting() && owner.has(ORPHAN) && owner.is_in_reach_of(item.namespace())
        }) {
            return Owner::Orphaning;
        }
        let Some(kind) = self.kinds.iter().find(|kind| is_kind_of(kind, reference)) else {
            return Owner::Unresolvable;
        };
        match found {
            _ if kind.namespaced && item.namespace().is_none() => Owner::Unresolvable,
            Some(owner) if !owner.is_meant_by(reference, item.namespace()) => Owner::Absent,
            Some(owner) if owner.is_waiting() => Owner::Waiting,
            Some(_) => Owner::Solid,
            None => Owner::Absent,
        }
    }
}

/// The requests of one write.
fn requests(item: &Item, write: &Write) -> Vec<Request<Vec<u8>>> {
    let (uid, version) = (&item.meta.uid, &item.meta.resource_version);
    let all = path(item.kind, item.namespace());
    let own = format!("{all}/{}", item.name());
    let patched = |field: &str, list: Value| {
        let body = json!({"metadata": {"uid": uid, "resourceVersion": version, field: list}});
        request(Method::PATCH, &own, "application/merge-patch+json", &body)
    };
    let made = match write {
        Write::Delete(policy) => {
            let preconditions = json!({"uid": uid, "resourceVersion": version});
            let body = json!({"propagationPolicy": policy, "preconditions": preconditions});
            vec![request(Method::DELETE, &own, "application/json", &body)]
        }
        Write::SetOwners(owners) => vec![patched("ownerReferences", json!(owners))],
        Write::RemoveFinalizer(finalizer) => {
            let kept = item.meta.finalizers.iter().flatten().filter(|have| have != finalizer);
            vec![patched("finalizers", kept.map(String::as_str).collect())]
        }
        Write::Finalize => {
            let mut namespace = Value::clone(&item.object.peek());
            let finalizers = strings(namespace.pointer("/spec/finalizers"));
            let kept: Value = finalizers.into_iter().filter(|have| *have != CONTENT).collect();
            namespace["spec"] = json!({"finalizers": kept});
            set_meta(&mut namespace, "resourceVersion", version.clone());
            let events = path(super::kinds::named(EVENT), Some(item.name()));
            vec![
                request(Method::DELETE, &events, "application/json", &json!({})),
                request(Method::PUT, &format!("{own}/finalize"), "application/json", &namespace),
            ]
        }
    };
    made.into_iter().flatten().collect()
}

fn path(kind: &Kind, namespace: Option<&str>) -> String {
    let root = if kind.group.is_empty() { "api" } else { "apis" };
    let within = namespace.map(|namespace| format!("/namespaces/{namespace}")).unwrap_or_default();
    format!("/{root}/{}{within}/{}", kind.api_version(), kind.plural)
}

fn request(method: Method, path: &str, content_type: &str, body: &Value) -> Option<Request<Vec<u8>>> {
    let request =
        Request::builder().method(method).uri(path).header(http::header::CONTENT_TYPE, content_type);
    request.body(body.to_string().into_bytes()).ok()
}
