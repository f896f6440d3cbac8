//! PATCH: JSON patches (RFC 6902), merge patches (RFC 7396) and strategic merge patches.

use json_patch::{Patch, PatchOperation};
use serde_json::{Map, Value};

use super::body;
use super::{Reply, Server, update};
use crate::sandbox::conversion;
use crate::sandbox::request::Request;
use crate::sandbox::status::Failure;
use crate::sandbox::strategic;

/// More operations than this in one JSON patch are refused, as upstream does.
const MAX_OPERATIONS: usize = 10_000;

/// A patch of one of the served types.
#[derive(Debug)]
pub(super) enum Change {
    Json(Vec<PatchOperation>),
    Merge(Value),
    Strategic(Value),
}

pub(super) fn patch(server: &Server, request: &Request) -> Result<Reply, Failure> {
    let change = Change::parse(request)?;
    let kind = request.kind();
    let mut warnings = Vec::new();
    let stored = update::write(server, &request.place, request.params.dry_run, true, |current| {
        let mut object = conversion::to_wire(kind, &current.value).into_owned();
        change.apply(kind.kind, &mut object)?;
        let decoded = body::decode_patched(request, object)?;
        warnings = decoded.warnings;
        let mut object = decoded.object;
        body::place_object(&request.place, &mut object)?;
        Ok(object)
    })?;
    Ok(Reply::object(server, request, 200, &stored).with_warnings(warnings))
}

impl Change {
    pub(super) fn parse(request: &Request) -> Result<Self, Failure> {
        let unreadable =
            |error: serde_json::Error| Failure::bad_request(format!("error decoding patch: {error}"));
        match body::media_type(request) {
            "application/json-patch+json" => {
                let Patch(operations) = serde_json::from_slice(&request.body).map_err(unreadable)?;
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
                let patch: Map<String, Value> = serde_json::from_slice(&request.body).map_err(unreadable)?;
                Ok(Change::Merge(Value::Object(patch)))
            }
            "application/strategic-merge-patch+json" => {
                let patch: Map<String, Value> = serde_json::from_slice(&request.body).map_err(unreadable)?;
                Ok(Change::Strategic(Value::Object(patch)))
            }
            "application/apply-patch+yaml" | "application/apply-patch+cbor" => {
                Err(Failure::unsupported_media_type(
                    "server-side apply is not served by the sandbox; use a JSON, merge or strategic merge patch",
                ))
            }
            other => Err(Failure::unsupported_media_type(format!(
                "the body of the request was in an unknown format - accepted media types include: \
                 application/json-patch+json, application/merge-patch+json, \
                 application/strategic-merge-patch+json, not {other:?}"
            ))),
        }
    }

    pub(super) fn apply(&self, kind: &str, object: &mut Value) -> Result<(), Failure> {
        match self {
            Change::Json(operations) => json_patch::patch(object, operations).map_err(|error| {
                let message = "the server rejected our request due to an error in our request";
                Failure::new(422, "Invalid", format!("{message}: {error}"))
            }),
            Change::Merge(patch) => {
                json_patch::merge(object, patch);
                Ok(())
            }
            // A Scale has no lists to merge.
            Change::Strategic(patch) if kind == "Scale" => {
                json_patch::merge(object, patch);
                Ok(())
            }
            Change::Strategic(patch) => strategic::merge(kind, object, patch).map_err(Failure::bad_request),
        }
    }
}
