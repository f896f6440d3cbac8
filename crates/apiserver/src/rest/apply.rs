//! Server-side apply: a configuration and its owner (KEP-555).

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::body::{self, Decoded, Shown};
use super::ownership::writer;
use super::reply::Reply;
use super::update::check_revision;
use super::{create, patch, update};
use crate::conversion;
use crate::go_text::{self, Mismatch};
use crate::managed_fields::{self, Refused, shown};
use crate::object::{meta, metadata_mut, set_meta};
use crate::request::Request;
use crate::server::Server;
use crate::status::Failure;
use crate::strict;

/// Creates or changes the object as the configuration in the body says.
pub(super) fn apply(server: &Server, request: &Request) -> Result<Reply, Failure> {
    if request.params.field_manager.is_empty() {
        let detail = "Required value: is required for apply patch";
        return Err(Failure::invalid_option("PatchOptions", "fieldManager", detail));
    }
    let kind = request.kind();
    let config = configuration(request)?;
    if config.pointer("/metadata/managedFields").is_some_and(|list| !list.is_null()) {
        return Err(Failure::bad_request("metadata.managedFields must be nil"));
    }
    if server.store.get(kind.storage(), &request.key()).is_none() && request.place.subresource.is_none() {
        return create_applied(server, request, config);
    }
    let mut warnings = Vec::new();
    let update::Written { stored, warnings: noted } =
        update::write(server, &request.place, request, true, |stored| {
            let live = conversion::to_wire(kind, stored);
            let Decoded { mut object, warnings: found } = decode(request, config.clone())?;
            warnings = found;
            patch::check_uid(kind, &request.place.name, stored, &object)?;
            let version = meta(&object, "resourceVersion").to_owned();
            metadata_mut(&mut object).remove("uid");
            let mut new = applied(server, request, &live, &object)?;
            if request.field_manager() == managed_fields::KUBECTL {
                renew_last_applied(&mut new, &config);
            }
            if !version.is_empty() {
                set_meta(&mut new, "resourceVersion", version);
            }
            Ok(new)
        })?;
    warnings.extend(noted);
    Ok(Reply::object(server, request, 200, &stored).with_warnings(warnings))
}

fn create_applied(server: &Server, request: &Request, config: Value) -> Result<Reply, Failure> {
    let kind = request.kind();
    let is_named = !meta(&config, "name").is_empty();
    let Decoded { object, mut warnings } = decode(request, config)?;
    if !is_named {
        return Err(body::unnamed(&request.place));
    }
    check_revision(meta(&object, "resourceVersion"))?;
    let (uid, name) = (meta(&object, "uid"), request.place.name.as_str());
    if !uid.is_empty() {
        let why = format!(
            "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        );
        return Err(Failure::conflict(kind, name, &why));
    }
    // Nothing is there to merge into but what names the object.
    let empty = json!({"apiVersion": kind.api_version(), "kind": kind.kind, "metadata": {}});
    let mut new = applied(server, request, &empty, &object)?;
    body::place_object(&request.place, &mut new)?;
    warnings.extend(create::warnings_before(kind, &new));
    let created = create::insert(server, kind, new, request.params.dry_run, None, &mut warnings)
        .map_err(|failure| failure.with_warnings(&warnings))?;
    Ok(Reply::object(server, request, 201, &created).with_warnings(warnings))
}

/// The configuration in the body, which is YAML or JSON.
fn configuration(request: &Request) -> Result<Value, Failure> {
    body::read_yaml(&request.body)
        .map_err(|error| Failure::bad_request(format!("error decoding YAML: {error}")))
}

/// Checks the configuration, with the name and namespace of the path: as strictly as the request wants where the kind is a
/// custom one. Of a built-in kind every field has to be known.
fn decode(request: &Request, config: Value) -> Result<Decoded, Failure> {
    let kind = request.kind();
    body::require_type(kind, &config)?;
    let mut decoded = match kind.custom {
        Some(_) => body::decode_patched(
            request,
            config,
            &Value::Null,
            &Shown { reports: &[], text: &|| text_of(request) },
        )?,
        None => match strict::check_applied(&kind.api_version(), kind.kind, config.clone()) {
            Ok(checked) if checked.unknown.is_empty() => {
                Decoded { object: body::stored(kind, checked.object), warnings: Vec::new() }
            }
            Ok(checked) => return Err(undeclared(request, &config, &checked.unknown)),
            Err(sentence) => return Err(misfit(request, &config, sentence)),
        },
    };
    body::place_object(&request.place, &mut decoded.object)?;
    Ok(decoded)
}

fn applied(server: &Server, request: &Request, live: &Value, config: &Value) -> Result<Value, Failure> {
    let kind = request.kind();
    let now = super::strategy::seconds((server.options.now)());
    let api_version = kind.api_version();
    let writer = writer(request, &api_version, &now);
    let new = managed_fields::applied(managed_fields::schema_of(kind), live, config, writer).map_err(
        |refused| match refused {
            Refused::Malformed(why) => malformed(request, &why),
            Refused::Conflicts(conflicts) => Failure::apply_conflict(&conflicts),
        },
    )?;
    // Whatever is empty has done its work.
    Ok(body::decode_patched(request, new, live, &Shown { reports: &[], text: &|| text_of(request) })?.object)
}

/// The beginning of the body, which messages show.
fn text_of(request: &Request) -> String {
    const MOST: usize = 4096;
    String::from_utf8_lossy(request.body.get(..MOST).unwrap_or(&request.body)).into_owned()
}

/// The API machinery takes it for a fault of its own.
fn malformed(request: &Request, why: &str) -> Failure {
    let (kind, place) = (request.kind(), &request.place);
    // It need not stand in the body.
    let namespace = configuration(request).map(|config| meta(&config, "namespace").to_owned());
    Failure::unknown(format!(
        "failed to create typed patch object ({}/{}; {}, Kind={}): {why}",
        namespace.unwrap_or_default(),
        place.name,
        body::with_group(&kind.api_version()),
        kind.kind
    ))
}

/// About the fields of a configuration that the schema of its kind lacks, which these sentences name. All words are those
/// of structured-merge-diff.
fn undeclared(request: &Request, config: &Value, sentences: &[String]) -> Failure {
    let schema = managed_fields::schema_of(request.kind());
    let paths = sentences
        .iter()
        .map(|sentence| sentence.trim_start_matches("unknown field \"").trim_end_matches('"'));
    let all: Vec<String> = paths
        .map(|path| format!("{}: field not declared in schema", shown(config, schema, path).0))
        .collect();
    malformed(request, &several(&all))
}

/// About the values of a configuration that have the wrong type, by the sentence of the decoder about the first of them.
fn misfit(request: &Request, config: &Value, sentence: String) -> Failure {
    // Each takes a reading of the whole body.
    const MOST: usize = 20;
    let (kind, mut rest, mut next) = (request.kind(), config.clone(), Some(sentence.clone()));
    let mut words = BTreeSet::new();
    while let Some(mismatch) = next.as_deref().and_then(Mismatch::of).filter(|_| words.len() < MOST) {
        let (path, value) = shown(&rest, managed_fields::schema_of(kind), mismatch.path());
        let Some(expected) = expected(&mismatch, value) else { break };
        words.insert(format!("{path}: {expected}"));
        // The others show when this one is gone.
        rest = without(&rest, value);
        next = strict::check_applied(&kind.api_version(), kind.kind, rest.clone()).err();
    }
    match words.len() {
        0 => body::refused_patch(request, sentence, text_of(request)),
        _ => malformed(request, &several(&Vec::from_iter(words))),
    }
}

/// One sentence, or a list of them.
fn several(words: &[String]) -> String {
    match words {
        [one] => one.clone(),
        several => format!("errors:\n  {}", several.join("\n  ")),
    }
}

/// A copy of a value in which one part, which is known by its place in memory, is null.
fn without(value: &Value, part: &Value) -> Value {
    match value {
        _ if std::ptr::eq(value, part) => Value::Null,
        Value::Object(map) => map.iter().map(|(key, value)| (key.clone(), without(value, part))).collect(),
        Value::Array(items) => items.iter().map(|item| without(item, part)).collect(),
        plain => plain.clone(),
    }
}

fn expected(mismatch: &Mismatch<'_>, value: &Value) -> Option<String> {
    let (what, found) = match mismatch.expected {
        // A fraction is a number to it.
        "int32" | "int64" | "float64" if value.is_number() => return None,
        "int32" | "int64" | "float64" => ("numeric (int or float)", go_text::type_of(value).to_owned()),
        "bool" => ("boolean", format!("&{{{}}}", go_text::plain(value))),
        list if list.starts_with("[]") => ("list", format!("&{{{}}}", go_text::plain(value))),
        _ if mismatch.ours.ends_with("expected a string") => {
            ("string", format!("&value.valueUnstructured{{Value:{}}}", go_text::literal(value)))
        }
        _ => ("map", format!("&{{{}}}", go_text::plain(value))),
    };
    Some(format!("expected {what}, got {found}"))
}

/// kubectl without server-side apply compares with the annotation, where there is one (apimachinery,
/// managedfields/internal/lastappliedupdater.go).
fn renew_last_applied(new: &mut Value, config: &Value) {
    let annotations = new.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
    if let Some(last) = annotations.and_then(|all| all.get_mut(managed_fields::LAST_APPLIED)) {
        let mut config = config.clone();
        let own = config.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
        own.map(|annotations| annotations.remove(managed_fields::LAST_APPLIED));
        *last = format!("{config}\n").into();
    }
}
