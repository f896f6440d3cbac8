//! The owners of fields that a request leaves behind (KEP-555).

use serde_json::Value;

use super::{body, strategy};
use crate::kinds::Subresource;
use crate::managed_fields::{self, Writer};
use crate::object::metadata_mut;
use crate::request::{Request, Verb};
use crate::server::Server;
use crate::status::Failure;
use crate::validate::Errors;

/// Makes the author of a POST, or of a PUT that creates, the owner of the fields of the new object.
pub(super) fn track_new(server: &Server, request: &Request, new: &mut Value) {
    let kind = request.kind();
    let (api_version, now) = (kind.api_version(), strategy::seconds((server.options.now)()));
    managed_fields::created(managed_fields::schema_of(kind), new, writer(request, &api_version, &now));
}

/// Brings the managedFields of `new` up to date before it is stored. Those of an apply are already.
pub(super) fn track(
    server: &Server,
    request: &Request,
    old: &Value,
    new: &mut Value,
    supplied: Option<Value>,
) {
    if body::is_apply(request) {
        if let Some(list) = supplied {
            metadata_mut(new).insert("managedFields".to_owned(), list);
        }
        return;
    }
    // Only a write of the object itself may say who owns what.
    let supplied = supplied.filter(|_| request.place.subresource.is_none());
    // Most objects are pods of controllers, which are not tracked and cost nothing here.
    if old.pointer("/metadata/managedFields").is_none() && supplied.is_none() {
        return;
    }
    let now = strategy::seconds((server.options.now)());
    let kind = request.kind();
    let api_version = kind.api_version();
    let writer = writer(request, &api_version, &now);
    managed_fields::update(managed_fields::schema_of(kind), old, new, supplied.as_ref(), writer);
}

/// A name that would not fit into a field, or that a terminal could not show, is refused.
pub(super) fn check_manager(request: &Request) -> Result<(), Failure> {
    const LIMIT: usize = 128;
    let options = match request.verb {
        Verb::Create => "CreateOptions",
        Verb::Update => "UpdateOptions",
        Verb::Patch => "PatchOptions",
        _ => return Ok(()),
    };
    let (manager, mut errors) = (request.params.field_manager.as_str(), Errors::default());
    if manager.len() > LIMIT {
        errors.too_long("fieldManager", LIMIT);
    }
    let is_printable = |c: char| c == ' ' || !(c.is_control() || c.is_whitespace());
    for (position, c) in manager.char_indices().filter(|(_, c)| !is_printable(*c)) {
        let why = format!("invalid character U+{:04X} (at position {position})", u32::from(c));
        errors.invalid("fieldManager", manager, why);
    }
    match errors.into_vec() {
        none if none.is_empty() => Ok(()),
        errors => Err(Failure::invalid_as(options, "meta.k8s.io", "", &errors)),
    }
}

/// The author of a request.
pub(super) fn writer<'a>(request: &'a Request, api_version: &'a str, now: &'a str) -> Writer<'a> {
    Writer {
        manager: request.field_manager(),
        api_version,
        subresource: request.place.subresource.map_or("", Subresource::name),
        has_status: request.kind().has(Subresource::Status),
        force: request.params.force.unwrap_or_default(),
        now,
    }
}
