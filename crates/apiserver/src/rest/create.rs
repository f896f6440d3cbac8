//! POST: new objects.

use std::sync::Arc;

use serde_json::Value;

use super::body::{self, Decoded};
use super::reply::Reply;
use super::{ownership, strategy};
use crate::admission::{limit_range, quota, services};
use crate::kinds::{self, Kind};
use crate::object::{Object, is_deleting, map_mut, meta, metadata_mut, set_meta};
use crate::request::Request;
use crate::server::Server;
use crate::status::Failure;
use crate::store::{Key, Raced};
use crate::validate;
use crate::warnings::{self, Warnings};

/// Tries at a free name for a generateName, as upstream's since 1.30 (KEP-4420).
const NAME_TRIES: usize = 8;

pub(super) fn create(server: &Server, request: &Request) -> Result<Reply, Failure> {
    let Decoded { mut object, mut warnings } = body::decode(request)?;
    body::place_object(&request.place, &mut object)?;
    metadata_mut(&mut object).remove("managedFields");
    warnings.extend(warnings_before(request.kind(), &object));
    let created =
        insert(server, request.kind(), object, request.params.dry_run, Some(request), &mut warnings)
            .map_err(|failure| failure.with_warnings(&warnings))?;
    Ok(Reply::object(server, request, 201, &created).with_warnings(warnings))
}

/// Warnings about a new object, or one that replaces another.
pub(super) fn warnings_of(kind: &Kind, new: &Value, old: Option<&Value>) -> Vec<String> {
    let mut warnings = Warnings::default();
    (kind.warn)(new, old, &mut warnings);
    warnings.into_vec()
}

/// Warnings about what the server brings up to date before it stores a new object.
pub(super) fn warnings_before(kind: &Kind, new: &Value) -> Vec<String> {
    let mut warnings = Warnings::default();
    if kind.storage() == "Pod" {
        warnings::pod::outdated_profiles(new, "", &mut warnings);
    }
    warnings.into_vec()
}

/// Stores a new object, whose namespace is set already. On a dry run everything happens but that. The author of `request`
/// owns the fields of an object that does not say who does. A valid object has its warnings also where it is refused.
pub(crate) fn insert(
    server: &Server,
    kind: &'static Kind,
    mut object: Value,
    dry_run: bool,
    request: Option<&Request>,
    warnings: &mut Vec<String>,
) -> Result<Arc<Object>, Failure> {
    // Only what would be stored is refused, and only after all else.
    // A text that is no number counts as none.
    let is_old = !dry_run && meta(&object, "resourceVersion").parse::<u64>().is_ok();
    let (given, base) = (meta(&object, "name"), meta(&object, "generateName"));
    let namespace = meta(&object, "namespace").to_owned();
    let (given, base) = (given.to_owned(), base.to_owned());
    let called = if given.is_empty() { &base } else { &given };
    if kind.namespaced {
        admit_to_namespace(server, kind, &namespace, called)?;
    }
    if given.is_empty() && !base.is_empty() {
        set_meta(&mut object, "name", generate_name(server, kind, &namespace, &base));
    }
    let ranges = limit_range::of(&server.store, kind, &namespace);
    let allocated_alone = services::alone(&server.services, kind);
    strategy::prepare_create(&server.strategy_context(), kind, &mut object);
    strategy::fill(kind, &mut object);
    if let Some(request) = request {
        ownership::track_new(server, request, &mut object);
    }
    if !ranges.is_empty() {
        limit_range::set_defaults(&mut object, &ranges);
        // The class follows from what the containers got.
        map_mut(&mut object, "status").remove("qosClass");
        strategy::fill(kind, &mut object);
    }
    server.plugins().create(kind, called, &mut object)?;
    if allocated_alone.is_some() {
        server.allocator(kind).create(&mut object)?;
    }
    let name = meta(&object, "name").to_owned();
    let errors = validate::create_of(kind, &object);
    if !errors.is_empty() {
        return Err(Failure::invalid(kind, &name, &errors));
    }
    warnings.extend(warnings_of(kind, &object, None));
    limit_range::check(kind, &name, &object, &ranges)?;
    if is_old {
        return Err(Failure::of_storage("resourceVersion should not be set on objects to be created"));
    }
    let wanted = quota::Request { kind, namespace: &namespace, name: &name, before: None, after: &object };
    let _charged_alone = quota::admit(&server.store, &server.quotas, &wanted, &server.options)?;
    let key = Key::new(&namespace, &name);
    // Held until the object is stored, so that its definition does not end in between.
    let registry = kind.custom.map(|_| server.registry.read());
    if let Some(registry) = &registry {
        registry.admit(kind)?;
    }
    let stored = if !dry_run {
        server.store.put(kind.storage(), &key, None, object)
    } else if server.store.get(kind.storage(), &key).is_none() {
        Ok(Arc::new(Object::new(object)))
    } else {
        Err(Raced)
    };
    stored.map_err(|Raced| taken(server, kind, &key, &name))
}

/// A name that no object of this kind has now. Somebody else may take it before the object is stored, with one chance in
/// fourteen million, and the client hears that it is taken.
fn generate_name(server: &Server, kind: &Kind, namespace: &str, base: &str) -> String {
    let mut name = server.names.generate(base);
    for _ in 1..NAME_TRIES {
        if server.store.get(kind.storage(), &Key::new(namespace, &name)).is_none() {
            break;
        }
        name = server.names.generate(base);
    }
    name
}

/// The refusal of a name in use. One that is about to be free says so.
fn taken(server: &Server, kind: &Kind, key: &Key, name: &str) -> Failure {
    let mut failure = Failure::already_exists(kind, name);
    if server.store.get(kind.storage(), key).is_some_and(|found| is_deleting(&found.value())) {
        failure.message.insert_str(0, "object is being deleted: ");
    }
    failure
}

/// New objects need a namespace that is there to stay (the NamespaceLifecycle admission plugin).
fn admit_to_namespace(server: &Server, kind: &Kind, namespace: &str, name: &str) -> Result<(), Failure> {
    let row = kinds::named("Namespace");
    match server.store.get(row.kind, &Key::new("", namespace)) {
        None => Err(Failure::not_found(row, namespace)),
        Some(found) if is_deleting(&found.value()) => {
            Err(Failure::namespace_terminating(kind, name, namespace))
        }
        Some(_) => Ok(()),
    }
}
