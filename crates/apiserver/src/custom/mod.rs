//! Custom kinds: what a CustomResourceDefinition says, read once into the row of a kind.
//!
//! The definitions themselves are objects like others; `rest/definitions.rs` keeps the rows in step with them.

pub(crate) mod check;
pub(crate) mod definition;
pub(crate) mod formats;
mod json_path;
pub(crate) mod names;
pub(crate) mod row;
mod schema;
pub(crate) mod shape;
mod structural;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::kinds::lists;
use crate::table::row::since;
use crate::validate::Errors;

pub(crate) use json_path::Path;
pub(crate) use schema::Schema;

/// The facts about one version of a custom kind that are not in its row.
#[derive(Debug)]
pub(crate) struct Custom {
    /// The name of its definition, which is also where the store keeps its objects: `widgets.example.com`. No built-in kind
    /// has a dot in its name.
    pub(crate) definition: String,
    pub(crate) list_kind: String,
    /// The apiVersion in which objects are stored.
    pub(crate) storage_version: String,
    /// Whether a webhook would have to convert between that and this version. This server calls none.
    pub(crate) needs_webhook: bool,
    pub(crate) schema: Schema,
    pub(crate) ownership: &'static lists::Schema,
    pub(crate) scale: Option<Scale>,
    /// `openAPIV3Schema` as it was written.
    pub(crate) document: Value,
    columns: Vec<Column>,
}

/// Where `/scale` finds its numbers.
#[derive(Debug)]
pub(crate) struct Scale {
    pub(crate) replicas: Path,
    pub(crate) status: Path,
    pub(crate) selector: Option<Path>,
}

#[derive(Debug)]
struct Column {
    name: String,
    kind: String,
    format: String,
    description: String,
    priority: i64,
    path: Path,
}

/// A text field; absent is empty.
fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object[field].as_str().unwrap_or_default()
}

/// The name of the version that objects are stored in.
pub(crate) fn storage_version(spec: &Value) -> &str {
    let mut versions = spec["versions"].as_array().into_iter().flatten();
    versions
        .find(|version| version["storage"] == true)
        .and_then(|version| version["name"].as_str())
        .unwrap_or("")
}

fn scale(spec: &Value) -> Option<Scale> {
    let path = |field: &str| Path::parse(text(spec, field));
    Some(Scale {
        replicas: path("specReplicasPath")?,
        status: path("statusReplicasPath")?,
        selector: path("labelSelectorPath"),
    })
}

/// The columns up to the first whose path cannot be read, as a real server prints them (`tableconvertor.go`): the
/// definition itself is taken with any path that begins with a dot.
fn columns(version: &Value) -> Vec<Column> {
    let age = json!([{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}]);
    let listed = version["additionalPrinterColumns"].as_array().filter(|list| !list.is_empty());
    let listed = listed.or(age.as_array()).into_iter().flatten();
    let column = |column: &Value| {
        let text = |field: &str| text(column, field).to_owned();
        Some(Column {
            name: text("name"),
            kind: text("type"),
            format: text("format"),
            description: text("description"),
            priority: column["priority"].as_i64().unwrap_or_default(),
            path: Path::parse(&text("jsonPath"))?,
        })
    };
    listed.map_while(column).collect()
}

impl Custom {
    /// The facts about a version of a definition.
    fn read(definition: &Value, version: &Value) -> Self {
        let (spec, names) = (&definition["spec"], &definition["status"]["acceptedNames"]);
        let group = text(spec, "group");
        let document = version["schema"]["openAPIV3Schema"].clone();
        Custom {
            definition: format!("{}.{group}", text(names, "plural")),
            list_kind: text(names, "listKind").to_owned(),
            storage_version: format!("{group}/{}", storage_version(spec)),
            needs_webhook: spec["conversion"]["strategy"] == "Webhook"
                && storage_version(spec) != text(version, "name"),
            schema: Schema::parse(&document, "", &mut Errors::default()),
            ownership: lists::of_document(&document),
            scale: scale(&version["subresources"]["scale"]),
            columns: columns(version),
            document,
        }
    }

    /// The column definitions of a table.
    pub(crate) fn columns(&self) -> Value {
        let name =
            json!({"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0});
        let others = self.columns.iter().map(|column| {
            json!({
                "name": column.name,
                "type": column.kind,
                "format": column.format,
                "description": column.description,
                "priority": column.priority,
            })
        });
        std::iter::once(name).chain(others).collect()
    }

    /// The cells of an object in a table.
    pub(crate) fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let name = object["metadata"]["name"].clone();
        std::iter::once(name).chain(self.columns.iter().map(|column| column.cell(object, now))).collect()
    }
}

impl Column {
    fn cell(&self, object: &Value, now: Timestamp) -> Value {
        let Some(value) = self.path.first(object).filter(|value| !value.is_null()) else {
            return Value::Null;
        };
        match self.kind.as_str() {
            "integer" if value.is_number() => value.as_i64().map_or(Value::Null, Value::from),
            "number" if value.is_number() => value.clone(),
            "boolean" if value.is_boolean() => value.clone(),
            "date" => since(value, now).into(),
            "string" => json_path::text_of(value).into(),
            _ => Value::Null,
        }
    }
}
