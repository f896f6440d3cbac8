//! The rows of custom kinds.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::schema::texts;
use super::{Custom, storage_version, text as text_of};
use crate::kinds::{BASE, Generation, Kind, Subresource};

/// The rows of all versions that were ever served in this process, by what they were made of. Rows live for ever, so that
/// custom kinds are `&'static` like the built-in ones; the table has equal rows made once, however often a definition is
/// created or a server started. The price is the memory of each distinct definition, some kilobytes.
static ROWS: Mutex<BTreeMap<String, &'static Kind>> = Mutex::new(BTreeMap::new());

/// The rows of the served versions of an established definition.
pub(crate) fn rows(definition: &Value) -> Vec<&'static Kind> {
    let versions = definition["spec"]["versions"].as_array().into_iter().flatten();
    versions.filter(|version| version["served"] == true).map(|version| row(definition, version)).collect()
}

fn row(definition: &Value, version: &Value) -> &'static Kind {
    let (spec, names) = (&definition["spec"], &definition["status"]["acceptedNames"]);
    let conversion = &spec["conversion"]["strategy"];
    let source =
        json!([spec["group"], spec["scope"], names, version, storage_version(spec), conversion]).to_string();
    ROWS.lock().entry(source).or_insert_with(|| new_row(definition, version))
}

fn new_row(definition: &Value, version: &Value) -> &'static Kind {
    let (spec, names) = (&definition["spec"], &definition["status"]["acceptedNames"]);
    let custom = Custom::read(definition, version);
    let subresources = &version["subresources"];
    let mut served = Vec::new();
    if custom.scale.is_some() {
        served.push(Subresource::Scale);
    }
    if subresources["status"].is_object() {
        served.push(Subresource::Status);
    }
    let text = |value: &Value, field: &str| -> &'static str { text_of(value, field).to_owned().leak() };
    let list = |field: &str| -> &'static [&'static str] {
        let all: Vec<&'static str> = texts(&names[field]).into_iter().map(|one| &*one.leak()).collect();
        all.leak()
    };
    Box::leak(Box::new(Kind {
        group: text(spec, "group"),
        version: text(version, "name"),
        kind: text(names, "kind"),
        plural: text(names, "plural"),
        singular: text(names, "singular"),
        short_names: list("shortNames"),
        categories: list("categories"),
        namespaced: spec["scope"] != "Cluster",
        subresources: served.leak(),
        generation: Generation::Content,
        unconditional_update: false,
        custom: Some(Box::leak(Box::new(custom))),
        ..BASE
    }))
}
