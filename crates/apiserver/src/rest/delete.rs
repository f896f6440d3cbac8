//! DELETE: immediate deletion, graceful deletion, and finalizers.
//!
//! The rules are upstream's `BeforeDelete` (registry/rest/delete.go) and the generic store's `Delete`:
//! with a grace period (pods) or finalizers a deletion only sets the deletionTimestamp, and the object is deleted when the
//! last of them ends.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};

use super::definitions;
use super::reply::Reply;
use super::strategy::seconds;
use crate::collect::{FOREGROUND, ORPHAN};
use crate::kinds::{Generation, Kind};
use crate::object::{Object, finalizers, is_deleting, map_mut, meta, metadata_mut, set_meta, strings, text};
use crate::render::{ListMeta, Renderer};
use crate::request::Request;
use crate::selection::Selection;
use crate::server::Server;
use crate::status::{self, Failure};
use crate::store::{Key, Unreadable};
use crate::validate::classes;

/// Namespaces that a cluster cannot be without (the NamespaceLifecycle admission plugin).
const IMMORTAL: &[&str] = &["default", "kube-system", "kube-public"];

/// The treatment of the objects that the deleted one owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Propagation {
    Background,
    Foreground,
    Orphan,
}

/// The options of a deletion, from body and query.
#[derive(Clone, Debug, Default)]
pub(super) struct Options {
    grace: Option<i64>,
    uid: Option<String>,
    revision: Option<String>,
    propagation: Option<Propagation>,
    pub(super) dry_run: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DeleteOptions {
    grace_period_seconds: Option<i64>,
    preconditions: Option<Preconditions>,
    orphan_dependents: Option<bool>,
    propagation_policy: Option<String>,
    dry_run: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Preconditions {
    uid: Option<String>,
    resource_version: Option<String>,
}

impl Options {
    /// The warnings of a deletion with these options.
    fn warnings(&self, kind: &Kind) -> Vec<String> {
        let is_due = self.propagation.is_none() && !kind.delete_warning.is_empty();
        is_due.then(|| kind.delete_warning.to_owned()).into_iter().collect()
    }

    fn of(request: &Request) -> Result<Self, Failure> {
        let params = &request.params;
        if request.body.iter().any(|byte| !byte.is_ascii_whitespace()) {
            super::body::require_json(request)?;
            let mut options = Self::parse(&request.body)?;
            options.dry_run |= params.dry_run;
            return Ok(options);
        }
        Self::new(DeleteOptions {
            grace_period_seconds: params.grace_period_seconds,
            preconditions: None,
            orphan_dependents: params.orphan_dependents,
            propagation_policy: params.propagation_policy.clone(),
            dry_run: params.dry_run.then(|| vec!["All".to_owned()]),
        })
    }

    /// Whether only a certain version of the object is to be deleted.
    pub(super) fn names_a_revision(&self) -> bool {
        self.revision.is_some()
    }

    /// The same for this version of an object alone, unless they name one already.
    pub(super) fn only_of(&self, object: &Value) -> Self {
        if self.names_a_revision() {
            self.clone()
        } else {
            self.only_version(meta(object, "resourceVersion"))
        }
    }

    /// The same for this version alone.
    pub(super) fn only_version(&self, revision: &str) -> Self {
        Options { revision: Some(revision.to_owned()), ..self.clone() }
    }

    pub(super) fn parse(body: &[u8]) -> Result<Self, Failure> {
        let options: Option<DeleteOptions> = serde_json::from_slice(body).map_err(|error| {
            Failure::bad_request(format!("the delete options cannot be decoded: {error}"))
        })?;
        Self::new(options.unwrap_or_default())
    }

    fn new(options: DeleteOptions) -> Result<Self, Failure> {
        let invalid = |field, detail: &str| Err(Failure::invalid_option("DeleteOptions", field, detail));
        let propagation = match (options.orphan_dependents, options.propagation_policy.as_deref()) {
            (Some(_), Some(_)) => {
                return invalid(
                    "propagationPolicy",
                    "Invalid value: orphanDependents and propagationPolicy cannot be both set",
                );
            }
            (Some(true), None) | (None, Some("Orphan")) => Some(Propagation::Orphan),
            (Some(false), None) | (None, Some("Background")) => Some(Propagation::Background),
            (None, Some("Foreground")) => Some(Propagation::Foreground),
            (None, None | Some("")) => None,
            (None, Some(other)) => {
                let detail = format!(
                    "Unsupported value: \"{other}\": supported values: \"Foreground\", \"Background\", \"Orphan\", nil"
                );
                return invalid("propagationPolicy", &detail);
            }
        };
        let dry_run = options.dry_run.unwrap_or_default();
        if let Some(other) = dry_run.iter().find(|value| *value != "All") {
            let detail = format!("Unsupported value: \"{other}\": supported values: \"All\"");
            return invalid("dryRun", &detail);
        }
        let preconditions = options.preconditions.unwrap_or_default();
        Ok(Options {
            // A negative period means the shortest there is.
            grace: options.grace_period_seconds.map(|grace| if grace < 0 { 1 } else { grace }),
            uid: preconditions.uid,
            revision: preconditions.resource_version,
            propagation,
            dry_run: !dry_run.is_empty(),
        })
    }
}

/// How far a deletion has come.
#[derive(Debug)]
pub(super) enum Deleted {
    Gone(Arc<Object>),
    Staying(Arc<Object>),
}

pub(super) fn delete(server: &Server, request: &Request) -> Result<Reply, Failure> {
    let options = Options::of(request)?;
    let kind = request.kind();
    let reply = match delete_one(server, kind, &request.key(), &options)? {
        Deleted::Gone(object) if !kind.returns_deleted => {
            let value = object.value();
            Reply::value(200, &status::success(kind, &request.place.name, meta(&value, "uid")))
        }
        Deleted::Gone(object) | Deleted::Staying(object) => Reply::object(server, request, 200, &object),
    };
    Ok(reply.with_warnings(options.warnings(kind)))
}

pub(super) fn delete_collection(server: &Server, request: &Request) -> Result<Reply, Failure> {
    let options = Options::of(request)?;
    let selection = Selection::of(request)?;
    let kind = request.kind();
    let snapshot = server
        .store
        .list(kind.storage(), &request.place.namespace, None, None)
        .map_err(|why: Unreadable| Failure::unreadable(0, why))?;
    let mut deleted = Vec::new();
    for (key, object) in &snapshot.objects {
        if !selection.matches(key, object) {
            continue;
        }
        match delete_one(server, kind, key, &options) {
            Ok(Deleted::Gone(object) | Deleted::Staying(object)) => deleted.push(object),
            // Somebody else was faster, which is as good.
            Err(failure) if failure.code == 404 => {}
            Err(failure) => return Err(failure),
        }
    }
    let meta = ListMeta { revision: server.store.revision(), ..ListMeta::default() };
    let renderer = Renderer { kind, form: request.form, include: request.params.include };
    let reply = Reply::json(200, renderer.list(&deleted, &meta, (server.options.now)()));
    Ok(reply.with_warnings(options.warnings(kind)))
}

/// Carries out one deletion as far as possible now.
pub(super) fn delete_one(
    server: &Server,
    kind: &'static Kind,
    key: &Key,
    options: &Options,
) -> Result<Deleted, Failure> {
    let (store, now) = (&server.store, (server.options.now)());
    loop {
        let current = store.get(kind.storage(), key).ok_or_else(|| Failure::not_found(kind, &key.name))?;
        let value = current.value();
        check_preconditions(kind, &value, options)?;
        match step(kind, &value, options, now)? {
            Step::Nothing => return Ok(Deleted::Staying(current)),
            Step::Mark(marked) if options.dry_run => {
                return Ok(Deleted::Staying(Arc::new(Object::new(marked))));
            }
            Step::Mark(marked) => {
                if let Ok(stored) = store.put(kind.storage(), key, Some(&current), marked) {
                    return Ok(Deleted::Staying(stored));
                }
            }
            Step::Remove(_) if options.dry_run => return Ok(Deleted::Gone(current)),
            Step::Remove(last) => {
                // A pod gets its deletionTimestamp first, so that its last state has it.
                let removed = match last {
                    Some(last) => store.put_and_remove(kind.storage(), key, &current, last),
                    None => store.remove(kind.storage(), key, &current),
                };
                if let Ok(gone) = removed {
                    return Ok(Deleted::Gone(gone));
                }
            }
        }
    }
}

/// Whether the object is the one that the deletion is about.
pub(super) fn check_preconditions(kind: &Kind, object: &Value, options: &Options) -> Result<(), Failure> {
    let name = meta(object, "name");
    if let Some(wanted) = &options.uid
        && wanted != meta(object, "uid")
    {
        let why = format!(
            "the UID in the precondition ({wanted}) does not match the UID in record ({}). The object might \
             have been deleted and then recreated",
            meta(object, "uid")
        );
        return Err(Failure::conflict_on(kind.kind, kind.group, name, &why));
    }
    if let Some(wanted) = &options.revision
        && wanted != meta(object, "resourceVersion")
    {
        let why = format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record \
             ({}). The object might have been modified",
            meta(object, "resourceVersion")
        );
        return Err(Failure::conflict_on(kind.kind, kind.group, name, &why));
    }
    Ok(())
}

/// The effect of a deletion on an object.
#[derive(Debug)]
enum Step {
    /// It is under way already, and this request does not hasten it.
    Nothing,
    /// It gets a deletionTimestamp and exists until its finalizers are removed.
    Mark(Value),
    /// It is deleted, after this last write if there is one.
    Remove(Option<Value>),
}

fn step(kind: &Kind, old: &Value, options: &Options, now: Timestamp) -> Result<Step, Failure> {
    match kind.storage() {
        definitions::KIND if !is_deleting(old) => {
            Ok(Step::Mark(definitions::terminating(old, &seconds(now))))
        }
        "PriorityClass" if classes::is_of_system(meta(old, "name")) => {
            let why = "this is a system priority class and cannot be deleted";
            Err(Failure::forbidden(kind, meta(old, "name"), why))
        }
        "Pod" => Ok(pod_step(old, options, now)),
        "Namespace" => namespace_step(kind, old, options, now),
        _ => Ok(plain_step(kind, old, options, now)),
    }
}

fn plain_step(kind: &Kind, old: &Value, options: &Options, now: Timestamp) -> Step {
    let mut new = old.clone();
    let decided = finalizers(old).iter().any(|name| [ORPHAN, FOREGROUND].contains(name));
    let default = (kind.orphans_dependents && !decided).then_some(Propagation::Orphan);
    set_finalizers(&mut new, options.propagation.or(default));
    if finalizers(&new).is_empty() {
        return Step::Remove(None);
    }
    if !is_deleting(old) {
        mark(kind, &mut new, now, 0);
    }
    if new == *old { Step::Nothing } else { Step::Mark(new) }
}

/// A pod has time to end, unless no kubelet will ever say that it has (`podStrategy.CheckGracefulDelete`).
fn pod_step(old: &Value, options: &Options, now: Timestamp) -> Step {
    let integer = |pointer| old.pointer(pointer).and_then(Value::as_i64);
    let mut new = old.clone();
    let pending = integer("/metadata/deletionGracePeriodSeconds").unwrap_or_default();
    let grace = if is_deleting(old) {
        match options.grace {
            _ if pending == 0 => 0,
            Some(grace) if grace < pending => {
                let marked = text(old, "/metadata/deletionTimestamp").parse().unwrap_or(now);
                set_deadline(&mut new, later(marked, grace.saturating_sub(pending)), grace);
                grace
            }
            _ => return Step::Nothing,
        }
    } else {
        let ended = matches!(text(old, "/status/phase"), "Succeeded" | "Failed");
        let unscheduled = text(old, "/spec/nodeName").is_empty();
        let wanted = options.grace.or_else(|| integer("/spec/terminationGracePeriodSeconds")).unwrap_or(30);
        let grace = match wanted {
            _ if ended || unscheduled => 0,
            negative if negative < 0 => 1,
            wanted => wanted,
        };
        set_deadline(&mut new, later(now, grace), grace);
        bump(&mut new);
        grace
    };
    set_finalizers(&mut new, options.propagation);
    match (grace, finalizers(&new).is_empty()) {
        _ if new == *old && grace > 0 => Step::Nothing,
        (0, true) => Step::Remove((new != *old).then_some(new)),
        _ if new == *old => Step::Nothing,
        _ => Step::Mark(new),
    }
}

/// A namespace is marked first and removed when its controller has emptied it.
fn namespace_step(kind: &Kind, old: &Value, options: &Options, now: Timestamp) -> Result<Step, Failure> {
    let name = meta(old, "name");
    if IMMORTAL.contains(&name) {
        return Err(Failure::forbidden(kind, name, "this namespace may not be deleted"));
    }
    if is_deleting(old) {
        let held = !strings(old.pointer("/spec/finalizers")).is_empty();
        return Ok(if held { Step::Nothing } else { plain_step(kind, old, options, now) });
    }
    let mut new = old.clone();
    set_meta(&mut new, "deletionTimestamp", seconds(now));
    map_mut(&mut new, "status").insert("phase".to_owned(), json!("Terminating"));
    set_finalizers(&mut new, options.propagation);
    Ok(Step::Mark(new))
}

/// The garbage collector reads from these finalizers what to do with the dependents. Without a policy
/// in the request, what is there stays.
fn set_finalizers(object: &mut Value, propagation: Option<Propagation>) {
    let Some(propagation) = propagation else { return };
    let wanted = match propagation {
        Propagation::Background => None,
        Propagation::Foreground => Some(FOREGROUND),
        Propagation::Orphan => Some(ORPHAN),
    };
    let present = finalizers(object);
    let kept = present.iter().filter(|name| ![ORPHAN, FOREGROUND].contains(name) || Some(**name) == wanted);
    let missing = wanted.filter(|wanted| !present.contains(wanted));
    let all: Vec<Value> = kept.copied().chain(missing).map(Value::from).collect();
    if all.is_empty() {
        metadata_mut(object).remove("finalizers");
    } else {
        set_meta(object, "finalizers", all);
    }
}

fn mark(kind: &Kind, object: &mut Value, now: Timestamp, grace: i64) {
    set_deadline(object, now, grace);
    if kind.generation != Generation::None {
        bump(object);
    }
}

fn set_deadline(object: &mut Value, deadline: Timestamp, grace: i64) {
    set_meta(object, "deletionTimestamp", seconds(deadline));
    set_meta(object, "deletionGracePeriodSeconds", grace);
}

/// A deletion changes what controllers should do, so it counts as a change of the spec.
fn bump(object: &mut Value) {
    if let Some(generation) = object.pointer("/metadata/generation").and_then(Value::as_i64) {
        set_meta(object, "generation", generation.saturating_add(1));
    }
}

fn later(from: Timestamp, seconds: i64) -> Timestamp {
    from.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(from)
}
