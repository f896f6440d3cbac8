//! PUT, and what PUT, PATCH and the subresources share: the way from one state of an object to the next.

use std::sync::Arc;

use serde_json::Value;

use super::body::{self, Decoded};
use super::reply::Reply;
use super::{create, ownership, strategy};
use crate::admission::{quota, services};
use crate::kinds::{Kind, Subresource};
use crate::object::{Object, finalizers, is_deleting, meta, metadata_mut, strings};
use crate::request::{Place, Request, Verb};
use crate::server::Server;
use crate::status::Failure;
use crate::store::Key;
use crate::validate::{self, FieldError};

pub(super) fn update(server: &Server, request: &Request) -> Result<Reply, Failure> {
    let Decoded { mut object, mut warnings } = body::decode(request)?;
    body::place_named(&request.place, &mut object)?;
    let kind = request.kind();
    let absent = server.store.get(kind.storage(), &request.key()).is_none();
    let (code, stored) = if absent && kind.create_on_update && request.place.subresource.is_none() {
        if !meta(&object, "uid").is_empty() {
            let why = format!(
                "Precondition failed: UID in precondition: {}, UID in object meta: ",
                meta(&object, "uid")
            );
            return Err(Failure::conflict(kind, &request.place.name, &why));
        }
        check_revision(meta(&object, "resourceVersion"))?;
        metadata_mut(&mut object).remove("managedFields");
        let dry_run = request.params.dry_run;
        let stored = create::insert(server, kind, object, dry_run, Some(request), &mut warnings)
            .map_err(|failure| failure.with_warnings(&warnings))?;
        (201, stored)
    } else {
        let unconditional = kind.unconditional_update;
        let written = write(server, &request.place, request, unconditional, |_| Ok(object.clone()))
            .map_err(|failure| failure.with_warnings(&warnings))?;
        warnings.extend(written.warnings);
        (200, written.stored)
    };
    Ok(Reply::object(server, request, code, &stored).with_warnings(warnings))
}

/// The outcome of a write.
pub(super) struct Written {
    pub(super) stored: Arc<Object>,
    pub(super) warnings: Vec<String>,
}

/// Computes the next state of an object from the current one and commits it, again and again until
/// nobody else has written in between. `unconditional` says whether the new state may come without a
/// resourceVersion.
pub(super) fn write(
    server: &Server,
    place: &Place,
    request: &Request,
    unconditional: bool,
    mut change: impl FnMut(&Arc<Value>) -> Result<Value, Failure>,
) -> Result<Written, Failure> {
    let key = Key::new(&place.namespace, &place.name);
    let _allocated_alone = services::alone(&server.services, place.kind);
    loop {
        let current = server
            .store
            .get(place.kind.storage(), &key)
            .ok_or_else(|| Failure::not_found(place.kind, &place.name))?;
        // Not remembered: what is written has a tree of its own, which the watches are about to use.
        let old = current.peek();
        let new = change(&old)?;
        let step = next(server, place, request, &old, new, unconditional)?;
        let new = match &step {
            Next::Same => &old,
            Next::Put(new) | Next::Remove(new) => new,
        };
        let warnings = match place.subresource {
            None => create::warnings_of(place.kind, new, Some(&old)),
            Some(_) => Vec::new(),
        };
        let grows = matches!(step, Next::Put(_)) && may_use_more(place);
        let wanted = quota::Request {
            kind: place.kind,
            namespace: &place.namespace,
            name: &place.name,
            before: Some(&old),
            after: new,
        };
        let _charged_alone =
            if grows { quota::admit(&server.store, &server.quotas, &wanted, &server.options)? } else { None };
        let committed = match step {
            Next::Same => return Ok(Written { stored: current, warnings }),
            Next::Put(new) | Next::Remove(new) if request.params.dry_run => {
                return Ok(Written { stored: Arc::new(Object::new(new)), warnings });
            }
            Next::Put(new) => server.store.put(place.kind.storage(), &key, Some(&current), new),
            Next::Remove(new) => {
                server.store.remove(place.kind.storage(), &key, &current).map(|_| Arc::new(Object::new(new)))
            }
        };
        if let Ok(stored) = committed {
            return Ok(Written { stored, warnings });
        }
    }
}

/// Whether a write may make an object use more of a quota: the type and the ports of a Service may change, and claims may grow.
fn may_use_more(place: &Place) -> bool {
    place.subresource.is_none() && matches!(place.kind.storage(), "Service" | "PersistentVolumeClaim")
}

/// The step that follows from a write.
#[derive(Debug)]
enum Next {
    /// Nothing would change: no new revision, no event.
    Same,
    Put(Value),
    /// The write takes the last finalizer off an object that is being deleted.
    Remove(Value),
}

/// Refuses a resourceVersion that is no number, in the words of Go.
pub(super) fn check_revision(version: &str) -> Result<(), Failure> {
    let is_number = !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit());
    let why = match version {
        "" => return Ok(()),
        _ if !is_number => "invalid syntax",
        _ if version.parse::<u64>().is_err() => "value out of range",
        _ => return Ok(()),
    };
    Err(Failure::unknown(format!("strconv.ParseUint: parsing {version:?}: {why}")))
}

fn next(
    server: &Server,
    place: &Place,
    request: &Request,
    old: &Value,
    mut new: Value,
    unconditional: bool,
) -> Result<Next, Failure> {
    let kind = place.kind;
    check_preconditions(kind, request, &place.name, old, &new, unconditional)?;
    let is_own = matches!(place.subresource, Some(Subresource::Binding));
    let moved = if is_own { Vec::new() } else { strategy::deletion_errors(&new, old) };
    match place.subresource {
        Some(Subresource::Approval | Subresource::Status) => {
            strategy::prepare_status(&server.strategy_context(), kind, &mut new, old)
        }
        Some(Subresource::Finalize) => strategy::prepare_finalize(&mut new, old),
        // The server's own write, computed from the stored object.
        Some(Subresource::Binding) => {}
        _ => strategy::prepare_update(&server.strategy_context(), kind, &mut new, old),
    }
    let supplied = metadata_mut(&mut new).remove("managedFields");
    body::tidy(kind, &mut new);
    strategy::fill(kind, &mut new);
    if place.subresource.is_none() {
        server.plugins().update(kind, &mut new, old)?;
        if kind.storage() == "Service" {
            server.allocator(kind).update(&mut new, old)?;
        }
    }
    let mut errors = match place.subresource {
        Some(Subresource::Approval | Subresource::Status) => validate::update_status_of(kind, &new, old),
        Some(Subresource::Finalize) => validate::finalize(&new, old),
        Some(Subresource::Binding) => Vec::new(),
        _ => validate::update_of(kind, &new, old),
    };
    // Upstream finds them after the other errors about metadata.
    let metadata = errors.iter().take_while(|error| error.field.starts_with("metadata.")).count();
    errors.splice(metadata..metadata, moved);
    if !errors.is_empty() {
        return Err(Failure::invalid(kind, &place.name, &errors));
    }
    ownership::track(server, request, old, &mut new, supplied);
    if new == *old {
        return Ok(Next::Same);
    }
    if place.subresource.is_none() {
        strategy::bump_generation(kind, &mut new, old);
    }
    Ok(if is_finished(kind, &new) { Next::Remove(new) } else { Next::Put(new) })
}

fn check_preconditions(
    kind: &Kind,
    request: &Request,
    name: &str,
    old: &Value,
    new: &Value,
    unconditional: bool,
) -> Result<(), Failure> {
    let (wanted, found) = (meta(new, "uid"), meta(old, "uid"));
    let uid = || {
        let why = format!("Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}");
        Failure::conflict(kind, name, &why)
    };
    let is_other = !wanted.is_empty() && wanted != found;
    // Storage compares the UID of a PUT before it reads the revision.
    if is_other && request.verb == Verb::Update {
        return Err(uid());
    }
    let version = meta(new, "resourceVersion");
    check_revision(version)?;
    if version.is_empty() || version == "0" {
        if !unconditional {
            let error = FieldError {
                field: "metadata.resourceVersion".to_owned(),
                reason: "FieldValueInvalid",
                detail: "Invalid value: 0: must be specified for an update".to_owned(),
            };
            // The message names the resource where others name the kind.
            return Err(Failure::invalid_as(kind.plural, kind.group, name, &[error]));
        }
    } else if version != meta(old, "resourceVersion") {
        return Err(Failure::modified(kind, name));
    }
    if is_other { Err(uid()) } else { Ok(()) }
}

/// Whether nothing holds a deleted object any longer. A pod in its grace period is held by its kubelet.
fn is_finished(kind: &Kind, object: &Value) -> bool {
    let grace = object.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64);
    is_deleting(object)
        && finalizers(object).is_empty()
        && grace.unwrap_or_default() == 0
        && (kind.storage() != "Namespace" || strings(object.pointer("/spec/finalizers")).is_empty())
}
