//! Decoding the object in a request's body, as strictly as the request's fieldValidation.

use serde_json::Value;

use crate::conversion;
use crate::go_text;
use crate::kinds::Kind;
use crate::object::{meta, metadata_mut, normalise, set_meta, text, tidy_metadata};
use crate::params::FieldValidation;
use crate::request::{Place, Request, Verb};
use crate::status::Failure;
use crate::strict::{self, Checked};

/// As much of a patch is shown in the message that refuses it; an upstream server shows all of it.
const SHOWN_PATCH: usize = 4096;

/// An object in the form it is stored in, and what the client is to be warned of.
#[derive(Debug)]
pub(super) struct Decoded {
    pub(super) object: Value,
    pub(super) warnings: Vec<String>,
}

/// Refuses bodies that are not JSON by their Content-Type. An absent one counts as JSON.
pub(super) fn require_json(request: &Request) -> Result<(), Failure> {
    match media_type(request) {
        "" | "application/json" => Ok(()),
        other => Err(Failure::unsupported_media_type(format!(
            "the body of the request was in an unknown format - accepted media types include: \
             application/json, application/vnd.kubernetes.protobuf, not {other}"
        ))),
    }
}

/// A body in YAML, of which JSON is a part.
pub(super) fn read_yaml(body: &[u8]) -> Result<Value, String> {
    if let Ok(value) = serde_json::from_slice(body) {
        return Ok(value);
    }
    let text = std::str::from_utf8(body).map_err(|error| error.to_string())?;
    let options = serde_saphyr::options! { strict_booleans: true, legacy_octal_numbers: true };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| error.to_string())
}

/// The media type of server-side apply.
pub(super) const APPLY: &str = "application/apply-patch+yaml";

/// The media type of a strategic merge patch.
pub(super) const STRATEGIC: &str = "application/strategic-merge-patch+json";

/// Whether a request is a server-side apply.
pub(super) fn is_apply(request: &Request) -> bool {
    request.verb == Verb::Patch && media_type(request) == APPLY
}

/// The Content-Type without its parameters.
pub(super) fn media_type(request: &Request) -> &str {
    request.content_type.split(';').next().unwrap_or_default().trim()
}

/// The object in the body of a POST or PUT.
pub(super) fn decode(request: &Request) -> Result<Decoded, Failure> {
    require_json(request)?;
    let kind = request.kind();
    check_type(kind, &request.body)?;
    let cannot = |error: String| {
        let (name, version) = (kind.kind, kind.version);
        Failure::bad_request(format!(
            "{name} in version \"{version}\" cannot be handled as a {name}: {error}"
        ))
    };
    let checked = match kind.custom {
        None => strict::check(&kind.api_version(), kind.kind, &request.body),
        Some(custom) => strict::read(&request.body).and_then(|(object, duplicates)| {
            let checked = strict::check_custom(custom, &kind.api_version(), kind.kind, object)?;
            Ok(Checked { duplicates, ..checked })
        }),
    };
    let checked = checked.map_err(&cannot)?;
    let (object, reports) = split(checked);
    let warnings = apply_validation(request.params.field_validation, reports).map_err(cannot)?;
    Ok(Decoded { object: stored(kind, object), warnings })
}

/// The object that a patch has made of `current`. Its failures are about the patch, as the API words them.
pub(super) fn decode_patched(request: &Request, patched: Value, current: &Value) -> Result<Decoded, Failure> {
    let kind = request.kind();
    require_type(kind, &patched)?;
    let checked = match kind.custom {
        None => strict::check_patched(&kind.api_version(), kind.kind, patched, current),
        Some(custom) => strict::check_custom(custom, &kind.api_version(), kind.kind, patched),
    };
    let checked = checked.map_err(|error| refused_patch(request, error))?;
    let (object, reports) = split(checked);
    let warnings = apply_validation(request.params.field_validation, reports)
        .map_err(|error| refused_patch(request, error))?;
    Ok(Decoded { object: stored(kind, object), warnings })
}

/// Refuses an object of another kind, or in another version.
pub(super) fn require_type(kind: &Kind, object: &Value) -> Result<(), Failure> {
    let (api_version, name) = (text(object, "/apiVersion"), text(object, "/kind"));
    match (api_version, name) == (kind.api_version().as_str(), kind.kind) {
        true => Ok(()),
        false => Err(mismatch(kind, api_version, name)),
    }
}

/// The failure of a patch whose result cannot be decoded.
pub(super) fn refused_patch(request: &Request, mut error: String) -> Failure {
    let shown = request.body.get(..SHOWN_PATCH).unwrap_or(&request.body);
    let mut patch = String::from_utf8_lossy(shown).into_owned();
    // Such a patch is no text any more when it is refused.
    if media_type(request) == STRATEGIC {
        error = go_text::of_converter(&error);
        if let Ok(value) = serde_json::from_slice(&request.body) {
            patch = go_text::plain(&value).chars().take(SHOWN_PATCH).collect();
        }
    }
    let error = crate::validate::FieldError {
        field: "patch".to_owned(),
        reason: "FieldValueInvalid",
        detail: format!("Invalid value: {patch:?}: {error}"),
    };
    Failure::invalid_as("", "", "", &[error])
}

/// Gives the object the name and namespace of the path, or refuses it if it says otherwise.
pub(super) fn place_object(place: &Place, object: &mut Value) -> Result<(), Failure> {
    let (name, namespace) = (meta(object, "name"), meta(object, "namespace"));
    if !place.name.is_empty() && !name.is_empty() && name != place.name {
        return Err(Failure::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            place.name
        )));
    }
    if place.kind.namespaced && !namespace.is_empty() && namespace != place.namespace {
        return Err(Failure::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    if !place.name.is_empty() {
        set_meta(object, "name", place.name.clone());
    }
    if place.kind.namespaced {
        set_meta(object, "namespace", place.namespace.clone());
    } else {
        // Many a manifest of a ClusterRoleBinding has one.
        metadata_mut(object).remove("namespace");
    }
    Ok(())
}

/// Whether the body is an object of this kind, as far as it says.
fn check_type(kind: &Kind, body: &[u8]) -> Result<(), Failure> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct TypeMeta {
        api_version: Option<String>,
        kind: Option<String>,
    }
    let found: TypeMeta = serde_json::from_slice(body).map_err(|error| {
        Failure::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): couldn't get version/kind; \
             json parse error: {error}",
            kind.kind
        ))
    })?;
    let (api_version, name) = (found.api_version.unwrap_or_default(), found.kind.unwrap_or_default());
    let agrees = |said: &str, expected: &str| said.is_empty() || said == expected;
    if agrees(&api_version, &kind.api_version()) && agrees(&name, kind.kind) {
        Ok(())
    } else {
        Err(mismatch(kind, &api_version, &name))
    }
}

fn mismatch(kind: &Kind, api_version: &str, name: &str) -> Failure {
    let expected = kind.api_version();
    if api_version != expected && !api_version.is_empty() {
        return Failure::bad_request(format!(
            "the API version in the data ({api_version}) does not match the expected API version ({expected})"
        ));
    }
    let version = kind.version;
    Failure::bad_request(format!(
        "{name} in version \"{version}\" cannot be handled as a {}: the kind in the data ({name}) does not \
         match the expected kind ({})",
        kind.kind, kind.kind
    ))
}

fn split(checked: Checked) -> (Value, Vec<String>) {
    let Checked { object, unknown, duplicates } = checked;
    (object, duplicates.into_iter().chain(unknown).collect())
}

/// Handles reports of unknown and repeated fields as `fieldValidation` asks.
fn apply_validation(validation: FieldValidation, reports: Vec<String>) -> Result<Vec<String>, String> {
    match validation {
        FieldValidation::Strict if !reports.is_empty() => {
            Err(format!("strict decoding error: {}", reports.join(", ")))
        }
        FieldValidation::Strict | FieldValidation::Ignore => Ok(Vec::new()),
        FieldValidation::Warn => Ok(reports),
    }
}

/// The object in the form it is stored in.
pub(super) fn stored(kind: &Kind, object: Value) -> Value {
    let mut object = conversion::to_storage(kind, object);
    tidy(kind, &mut object);
    object
}

/// Removes what means the same as absence.
pub(super) fn tidy(kind: &Kind, object: &mut Value) {
    match kind.custom {
        Some(_) => tidy_metadata(object),
        None => normalise(object),
    }
}
