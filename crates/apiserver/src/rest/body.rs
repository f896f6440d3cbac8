//! Decoding the object in a request's body, as strictly as the request's fieldValidation.

use serde_json::{Value, json};

use crate::conversion;
use crate::go_text;
use crate::kinds::{self, Kind};
use crate::object::{meta, metadata_mut, normalise, set_meta, text, tidy_metadata};
use crate::params::FieldValidation;
use crate::request::{Place, Request, Verb};
use crate::status::Failure;
use crate::strict::{self, Checked};
use crate::validate::FieldError;

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

/// A patch in the messages about its outcome.
pub(super) struct Shown<'a> {
    /// The sentences about its own fields.
    pub(super) reports: &'a [String],
    pub(super) text: &'a dyn Fn() -> String,
}

/// The object that a patch has made of `current`. Its failures are about the patch, as the API words them.
pub(super) fn decode_patched(
    request: &Request,
    patched: Value,
    current: &Value,
    shown: &Shown<'_>,
) -> Result<Decoded, Failure> {
    let kind = request.kind();
    let refused = |error: String| refused_patch(request, error, (shown.text)());
    let checked = match kind.custom {
        None => {
            require_patched_type(request, &kind.api_version(), kind.kind, &patched, shown.text)?;
            strict::check_patched(&kind.api_version(), kind.kind, patched, current)
        }
        Some(custom) => {
            require_custom_type(request, &patched, shown.text)?;
            strict::check_custom(custom, &kind.api_version(), kind.kind, patched)
        }
    };
    let (object, reports) = split(checked.map_err(refused)?);
    let reports = shown.reports.iter().cloned().chain(reports).collect();
    let warnings = apply_validation(request.params.field_validation, reports).map_err(refused)?;
    Ok(Decoded { object: stored(kind, object), warnings })
}

/// Refuses an outcome that says to be of another type. Without a kind it is of the type of the path.
pub(super) fn require_patched_type(
    request: &Request,
    api_version: &str,
    kind: &str,
    patched: &Value,
    text: &dyn Fn() -> String,
) -> Result<(), Failure> {
    for field in ["apiVersion", "kind"] {
        let value = &patched[field];
        if !value.is_string() && !value.is_null() {
            let found = go_text::json_name(value);
            let why = format!(
                "couldn't get version/kind; json parse error: json: cannot unmarshal {found} into Go struct field \
                 .{field} of type string"
            );
            return Err(refused_patch(request, why, text()));
        }
    }
    let (said, name) = (self::text(patched, "/apiVersion"), self::text(patched, "/kind"));
    let name = if name.is_empty() { kind } else { name };
    match said {
        // Upstream takes it for an object of its own memory, whose fields have no names in JSON.
        "" => Err(unnamed(&request.place)),
        _ if (said, name) == (api_version, kind) => Ok(()),
        _ => Err(refused_patch(request, not_of_type(api_version, kind, said, name), text())),
    }
}

/// The sentence of the decoder about an object of another type.
fn not_of_type(api_version: &str, kind: &str, said: &str, name: &str) -> String {
    if kinds::of_body(said, name).is_none() {
        return format!(
            "no kind {name:?} is registered for version {said:?} in scheme \"pkg/api/legacyscheme/scheme.go:30\""
        );
    }
    let group = api_version.split_once('/').map_or("core", |(group, _)| group);
    let package = group.split('.').next().unwrap_or_default();
    format!("converting ({}.{name}) to ({package}.{kind}): unknown conversion", version_of(said))
}

/// `v1` of `apps/v1`.
fn version_of(api_version: &str) -> &str {
    api_version.rsplit('/').next().unwrap_or_default()
}

fn require_custom_type(request: &Request, patched: &Value, text: &dyn Fn() -> String) -> Result<(), Failure> {
    let kind = request.kind();
    let (api_version, name) = (self::text(patched, "/apiVersion"), self::text(patched, "/kind"));
    if name.is_empty() {
        let text = text();
        return Err(refused_patch(request, format!("Object 'Kind' is missing in '{text}'"), text));
    }
    if api_version.is_empty() {
        let why = "Object 'apiVersion' is missing in 'object has no apiVersion field'";
        return Err(Failure::internal(why));
    }
    let fields = [("kind", name, kind.kind.to_owned()), ("apiVersion", api_version, kind.api_version())];
    let differs = |(field, said, expected): (&str, &str, String)| {
        (said != expected).then(|| FieldError {
            field: field.to_owned(),
            reason: "FieldValueInvalid",
            detail: format!("Invalid value: {said:?}: must be {expected}"),
        })
    };
    let errors: Vec<FieldError> = fields.into_iter().filter_map(differs).collect();
    if errors.is_empty() {
        return Ok(());
    }
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    Err(Failure::invalid_as(name, group, &request.place.name, &errors))
}

/// Refuses a configuration of another kind, or in another version.
pub(super) fn require_type(kind: &Kind, object: &Value) -> Result<(), Failure> {
    let (api_version, name) = (text(object, "/apiVersion"), text(object, "/kind"));
    if (api_version, name) == (kind.api_version().as_str(), kind.kind) {
        return Ok(());
    }
    Err(Failure::bad_request(format!("invalid object type: {}, Kind={name}", with_group(api_version))))
}

/// `/v1` of `v1`: the group and the version, whether or not there is a group.
pub(super) fn with_group(api_version: &str) -> String {
    if api_version.contains('/') { api_version.to_owned() } else { format!("/{api_version}") }
}

/// The failure of a patch whose outcome cannot be decoded.
pub(super) fn refused_patch(request: &Request, mut error: String, text: String) -> Failure {
    if media_type(request) == STRATEGIC {
        error = go_text::of_converter(&error);
    }
    let error = FieldError {
        field: "patch".to_owned(),
        reason: "FieldValueInvalid",
        detail: format!("Invalid value: {text:?}: {error}"),
    };
    Failure::invalid_as("", "", "", &[error])
}

/// Gives the object the name and namespace of the path, or refuses it if it says otherwise.
pub(super) fn place_object(place: &Place, object: &mut Value) -> Result<(), Failure> {
    let (name, namespace) = (meta(object, "name"), meta(object, "namespace"));
    if place.kind.namespaced && !namespace.is_empty() && namespace != place.namespace {
        return Err(Failure::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    if !place.name.is_empty() && !name.is_empty() && name != place.name {
        return Err(Failure::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            place.name
        )));
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

/// The same for an object that has to say its name: one without metadata would lose its labels and finalizers.
pub(super) fn place_named(place: &Place, object: &mut Value) -> Result<(), Failure> {
    let is_named = !meta(object, "name").is_empty();
    place_object(place, object)?;
    if is_named { Ok(()) } else { Err(unnamed(place)) }
}

pub(super) fn unnamed(place: &Place) -> Failure {
    Failure::bad_request(format!(
        "the name of the object ({} based on URL) was undeterminable: name must be provided",
        place.name
    ))
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
    if kind.custom.is_some() && api_version != expected && !api_version.is_empty() {
        return Failure::bad_request(format!(
            "the API version in the data ({api_version}) does not match the expected API version ({expected})"
        ));
    }
    let said = if api_version.is_empty() { &expected } else { api_version };
    let why = match kind.custom {
        None => not_of_type(&expected, kind.kind, said, if name.is_empty() { kind.kind } else { name }),
        Some(_) => {
            format!("the kind in the data ({name}) does not match the expected kind ({})", kind.kind)
        }
    };
    let name = if name.is_empty() { kind.kind } else { name };
    Failure::bad_request(format!(
        "{name} in version \"{}\" cannot be handled as a {}: {why}",
        version_of(said),
        kind.kind
    ))
}

pub(super) fn split(checked: Checked) -> (Value, Vec<String>) {
    let Checked { object, unknown, duplicates } = checked;
    (object, duplicates.into_iter().chain(unknown).collect())
}

/// Handles reports of unknown and repeated fields as `fieldValidation` asks.
pub(super) fn apply_validation(
    validation: FieldValidation,
    reports: Vec<String>,
) -> Result<Vec<String>, String> {
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
    // Go tells an empty list of managedFields from none, in an object that has a type: the first ends the tracking, as a
    // list of one empty entry does everywhere.
    if kind.custom.is_none()
        && let Some(Value::Array(entries)) = object.pointer_mut("/metadata/managedFields")
        && entries.is_empty()
    {
        entries.push(json!({}));
    }
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
