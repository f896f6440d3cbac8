//! PATCH: JSON patches (RFC 6902), merge patches (RFC 7396) and strategic merge patches.

use serde_json::{Map, Value};

use super::body::{self, Shown};
use super::reply::Reply;
use super::{apply, operations, update};
use crate::conversion;
use crate::go_text;
use crate::kinds::Kind;
use crate::object::meta;
use crate::protobuf::go_order;
use crate::request::Request;
use crate::server::Server;
use crate::status::Failure;
use crate::strategic::{self, Refused};
use crate::strict;
use crate::validate::FieldError;

/// A patch of one of the served types.
#[derive(Debug)]
pub(super) struct Change {
    form: Form,
    /// The sentences about repeated fields of the patch itself, and about those that no operation has.
    reports: Vec<String>,
}

#[derive(Debug)]
enum Form {
    /// The operations of a JSON patch.
    Json(Vec<Value>),
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
    let mut warnings = Vec::new();
    let update::Written { stored, warnings: noted } =
        update::write(server, &request.place, request, true, |stored| {
            let current_wire = conversion::to_wire(kind, stored);
            let mut object = Value::clone(&current_wire);
            change.apply(kind.kind, &mut object)?;
            let text = || change.shown(kind.custom.is_some(), &kind.api_version(), kind.kind, &current_wire);
            let shown = Shown { reports: &change.reports, text: &text };
            let decoded = body::decode_patched(request, object, &current_wire, &shown)?;
            warnings = decoded.warnings;
            let mut object = decoded.object;
            body::place_named(&request.place, &mut object)?;
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
        let is_custom = request.kind().custom.is_some();
        let media = body::media_type(request);
        let wanted = match media {
            "application/json-patch+json" => "[]handlers.jsonPatchOp",
            "application/merge-patch+json" => "map[string]interface {}",
            body::STRATEGIC if !is_custom => "map[string]interface {}",
            // Of an object itself it is carried out before.
            body::APPLY => {
                return Err(Failure::unsupported_media_type(
                    "a scale cannot be applied; apply the object, or patch the scale",
                ));
            }
            _ if is_custom => {
                return Err(Failure::unsupported_media_type(
                    "the body of the request was in an unknown format - accepted media types include: \
                     application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
                ));
            }
            _ => return Err(Failure::unsupported_media_type("415: Unsupported Media Type")),
        };
        let is_strategic = media == body::STRATEGIC;
        let unreadable = || {
            let before = if is_strategic { "" } else { "error decoding patch: " };
            Failure::bad_request(format!("{before}{}", go_text::unreadable(&request.body, wanted)))
        };
        let (patch, mut reports) = strict::read(&request.body).map_err(|_| unreadable())?;
        let form = match patch {
            patch if wanted.starts_with("[]") => {
                let operations = operations::parse(patch)?;
                reports.iter_mut().for_each(|report| report.insert_str(0, "json patch "));
                reports.splice(0..0, operations::unknown_fields(&operations));
                Form::Json(operations)
            }
            Value::Null if is_strategic => Form::Strategic(Value::Object(Map::new())),
            Value::Null => return Err(Failure::bad_request("Invalid JSON Patch")),
            Value::Object(_) if is_strategic => Form::Strategic(patch),
            Value::Object(_) => Form::Merge(patch),
            _ => return Err(unreadable()),
        };
        Ok(Change { form, reports })
    }

    pub(super) fn reports(&self) -> &[String] {
        &self.reports
    }

    pub(super) fn apply(&self, kind: &str, object: &mut Value) -> Result<(), Failure> {
        match &self.form {
            Form::Json(operations) => operations::apply(operations, object),
            Form::Merge(patch) => {
                json_patch::merge(object, patch);
                Ok(())
            }
            // A Scale has no lists to merge.
            Form::Strategic(patch) if kind == "Scale" => {
                json_patch::merge(object, patch);
                Ok(())
            }
            Form::Strategic(patch) => {
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

    /// The text in a message that refuses the outcome: all of it as JSON, but the patch where it was strategic.
    pub(super) fn shown(&self, is_custom: bool, api_version: &str, kind: &str, before: &Value) -> String {
        let passed = match &self.form {
            Form::Strategic(patch) => return go_text::plain(patch),
            Form::Json(operations) => operations::passed(operations),
            Form::Merge(patch) => patch.clone(),
        };
        let mut object = before.clone();
        match self.apply(kind, &mut object) {
            Ok(()) if !is_custom => go_order::text(api_version, kind, &object, &passed),
            _ => go_order::sorted(&object),
        }
    }
}
