//! PATCH: JSON patches (RFC 6902), merge patches (RFC 7396) and strategic merge patches.

use json_patch::{AddOperation, Patch, PatchOperation};
use serde_json::{Map, Value};

use super::body;
use super::reply::Reply;
use super::{apply, update};
use crate::conversion;
use crate::go_text;
use crate::kinds::Kind;
use crate::object::meta;
use crate::request::Request;
use crate::server::Server;
use crate::status::Failure;
use crate::strategic::{self, Refused};
use crate::validate::FieldError;

/// More operations than this in one JSON patch are refused, as upstream does.
const MAX_OPERATIONS: usize = 10_000;
/// The most that the copies and moves of one JSON patch may carry, counted in values: each copy of a list into
/// itself doubles it, so thirty of them would fill any memory.
const MAX_CARRIED: usize = 1_000_000;
/// The depth at which reading JSON stops as well. A deeper object could not even be dropped safely.
const MAX_DEPTH: usize = 128;

/// A patch of one of the served types.
#[derive(Debug)]
pub(super) enum Change {
    Json(Vec<PatchOperation>),
    Merge(Value),
    Strategic(Value),
}

pub(super) fn patch(server: &Server, request: &Request) -> Result<Reply, Failure> {
    if body::is_apply(request) {
        return apply::apply(server, request);
    }
    if request.params.force.is_some() {
        return Err(Failure::invalid_option(
            "PatchOptions",
            "force",
            "Forbidden: may not be specified for non-apply patch",
        ));
    }
    let change = Change::parse(request)?;
    let kind = request.kind();
    if kind.custom.is_some() && matches!(change, Change::Strategic(_)) {
        return Err(Failure::unsupported_media_type(
            "a custom kind has no strategic merge patch; send application/merge-patch+json or \
             application/json-patch+json",
        ));
    }
    let mut warnings = Vec::new();
    let update::Written { stored, warnings: noted } =
        update::write(server, &request.place, request, true, |stored| {
            let current_wire = conversion::to_wire(kind, stored);
            let mut object = Value::clone(&current_wire);
            change.apply(kind.kind, &mut object)?;
            let decoded = body::decode_patched(request, object, &current_wire)?;
            warnings = decoded.warnings;
            let mut object = decoded.object;
            body::place_object(&request.place, &mut object)?;
            check_uid(kind, &request.place.name, stored, &object)?;
            Ok(object)
        })?;
    warnings.extend(noted);
    Ok(Reply::object(server, request, 200, &stored).with_warnings(warnings))
}

/// A UID in a patch is no precondition, as it is in a PUT, but a field that cannot change. A stale
/// resourceVersion is reported first.
pub(super) fn check_uid(kind: &Kind, name: &str, old: &Value, new: &Value) -> Result<(), Failure> {
    let (uid, version) = (meta(new, "uid"), meta(new, "resourceVersion"));
    let is_stale = !matches!(version, "" | "0") && version != meta(old, "resourceVersion");
    if uid.is_empty() || uid == meta(old, "uid") || is_stale {
        return Ok(());
    }
    let error = FieldError {
        field: "metadata.uid".to_owned(),
        reason: "FieldValueInvalid",
        detail: format!("Invalid value: {uid:?}: field is immutable"),
    };
    Err(Failure::invalid(kind, name, &[error]))
}

impl Change {
    pub(super) fn parse(request: &Request) -> Result<Self, Failure> {
        let fields = || go_text::unreadable(&request.body, "map[string]interface {}");
        match body::media_type(request) {
            "application/json-patch+json" => {
                let Patch(operations) = operations(&request.body)?;
                if operations.len() > MAX_OPERATIONS {
                    let message = format!(
                        "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
                        operations.len()
                    );
                    return Err(Failure::new(413, "RequestEntityTooLarge", message));
                }
                Ok(Change::Json(operations))
            }
            "application/merge-patch+json" => {
                let patch: Map<String, Value> = serde_json::from_slice(&request.body)
                    .map_err(|_| Failure::bad_request(format!("error decoding patch: {}", fields())))?;
                Ok(Change::Merge(Value::Object(patch)))
            }
            body::STRATEGIC => {
                let patch: Map<String, Value> =
                    serde_json::from_slice(&request.body).map_err(|_| Failure::bad_request(fields()))?;
                Ok(Change::Strategic(Value::Object(patch)))
            }
            // Of an object itself it is carried out before.
            body::APPLY => Err(Failure::unsupported_media_type(
                "a scale cannot be applied; apply the object, or patch the scale",
            )),
            other => Err(Failure::unsupported_media_type(format!(
                "the body of the request was in an unknown format - accepted media types include: \
                 application/json-patch+json, application/merge-patch+json, \
                 application/strategic-merge-patch+json, application/apply-patch+yaml, not {other:?}"
            ))),
        }
    }

    pub(super) fn apply(&self, kind: &str, object: &mut Value) -> Result<(), Failure> {
        match self {
            Change::Json(operations) => apply_operations(operations, object),
            Change::Merge(patch) => {
                json_patch::merge(object, patch);
                Ok(())
            }
            // A Scale has no lists to merge.
            Change::Strategic(patch) if kind == "Scale" => {
                json_patch::merge(object, patch);
                Ok(())
            }
            Change::Strategic(patch) => {
                let types = ["apiVersion", "kind"].map(|field| (field, object[field].clone()));
                strategic::merge(kind, object, patch).map_err(|refused| match refused {
                    Refused::Format(_) => Failure::bad_request(refused.to_string()),
                    Refused::Content(_) => Failure::unknown(refused.to_string()),
                })?;
                // Another type in the patch is ignored.
                for (field, value) in types {
                    object[field] = value;
                }
                Ok(())
            }
        }
    }
}

/// The operations of a JSON patch.
fn operations(body: &[u8]) -> Result<Patch, Failure> {
    serde_json::from_slice(body).map_err(|_| {
        let all: Option<Vec<Value>> = serde_json::from_slice(body).ok();
        let why = match all.as_deref() {
            None => go_text::unreadable(body, "[]handlers.jsonPatchOp"),
            Some(all) => match all.iter().find(|one| !one.is_object()) {
                Some(one) => go_text::unlike(one, "handlers.jsonPatchOp"),
                // Its first use fails.
                None => return rejected(),
            },
        };
        Failure::bad_request(format!("error decoding patch: {why}"))
    })
}

/// One by one, so that each applies to the result of the ones before it.
fn apply_operations(operations: &[PatchOperation], object: &mut Value) -> Result<(), Failure> {
    let mut carried = 0_usize;
    for operation in operations {
        let (value, carries) = match operation {
            PatchOperation::Add(add) => (Some(&add.value), false),
            PatchOperation::Replace(replace) => (Some(&replace.value), false),
            PatchOperation::Copy(copy) => (object.pointer(copy.from.as_str()), true),
            PatchOperation::Move(relocation) => (object.pointer(relocation.from.as_str()), true),
            PatchOperation::Remove(_) | PatchOperation::Test(_) => (None, false),
        };
        if let Some(value) = value {
            let Extent { values, depth } = Extent::of(value);
            carried = carried.saturating_add(if carries { values } else { 0 });
            if carried > MAX_CARRIED || operation.path().count().saturating_add(depth) > MAX_DEPTH {
                let message = "the object is too large or too deeply nested after the JSON patch";
                return Err(Failure::new(413, "RequestEntityTooLarge", message));
            }
        }
        let operation = match operation {
            // Upstream's library replaces what an object lacks as well.
            PatchOperation::Replace(replace) if is_lacking(object, replace.path.as_str()) => {
                &PatchOperation::Add(AddOperation {
                    path: replace.path.clone(),
                    value: replace.value.clone(),
                })
            }
            other => other,
        };
        json_patch::patch(object, std::slice::from_ref(operation)).map_err(|_| rejected())?;
    }
    Ok(())
}

/// Upstream does not say which operation failed, nor why.
fn rejected() -> Failure {
    Failure::new(422, "Invalid", "the server rejected our request due to an error in our request")
}

/// Whether a path ends at a field that its object does not have.
fn is_lacking(object: &Value, path: &str) -> bool {
    let parent = path.rsplit_once('/').and_then(|(parent, _)| object.pointer(parent));
    parent.is_some_and(Value::is_object) && object.pointer(path).is_none()
}

/// How much there is of a value.
struct Extent {
    values: usize,
    depth: usize,
}

impl Extent {
    fn of(value: &Value) -> Self {
        let children: Vec<&Value> = match value {
            Value::Array(array) => array.iter().collect(),
            Value::Object(map) => map.values().collect(),
            _ => Vec::new(),
        };
        let start = Extent { values: 1, depth: 1 };
        children.into_iter().map(Extent::of).fold(start, |whole, child| Extent {
            values: whole.values + child.values,
            depth: whole.depth.max(child.depth + 1),
        })
    }
}
