//! Stored objects in the form that the client requested.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::conversion;
use super::kinds::{Kind, Wire};
use super::negotiate::Form;
use super::object::{Object, meta, to_bytes};
use super::params::Include;
use super::protobuf::write;
use super::table;

/// The kind of an object of which only the metadata are served.
const METADATA_KIND: &str = "PartialObjectMetadata";
const METADATA_VERSION: &str = "meta.k8s.io/v1";

/// One form of one kind.
#[derive(Clone, Debug)]
pub(crate) struct Renderer {
    pub(crate) kind: &'static Kind,
    pub(crate) form: Form,
    pub(crate) include: Include,
}

/// The metadata of a list.
#[derive(Clone, Debug, Default)]
pub(crate) struct ListMeta {
    pub(crate) revision: u64,
    pub(crate) continue_token: Option<String>,
    pub(crate) remaining: Option<usize>,
}

impl ListMeta {
    fn to_value(&self) -> Value {
        let mut map = Map::new();
        map.insert("resourceVersion".to_owned(), json!(self.revision.to_string()));
        if let Some(token) = &self.continue_token {
            map.insert("continue".to_owned(), json!(token));
        }
        if let Some(remaining) = self.remaining {
            map.insert("remainingItemCount".to_owned(), json!(remaining));
        }
        Value::Object(map)
    }
}

impl Renderer {
    /// One object. `headers` says whether a table names its columns, which a watch does only once.
    pub(crate) fn object(&self, object: &Object, now: Timestamp, headers: bool) -> Bytes {
        match self.form {
            Form::Table => {
                let metadata = json!({"resourceVersion": meta(&object.peek(), "resourceVersion")});
                to_bytes(&self.table(metadata, [self.row(object, now)].into(), headers))
            }
            Form::PartialMetadata => self.partial(object),
            Form::Protobuf => write::envelope(&self.kind.api_version(), self.kind.kind, &object.message()),
            Form::ProtobufMetadata => {
                write::envelope(METADATA_VERSION, METADATA_KIND, &object.metadata_message())
            }
            Form::Plain | Form::Yaml | Form::AggregatedDiscovery => self.plain(object),
        }
    }

    /// A list. The items' texts are joined, not serialised again; they keep their apiVersion and kind,
    /// which a real server leaves out and no client minds.
    pub(crate) fn list(&self, objects: &[Arc<Object>], list: &ListMeta, now: Timestamp) -> Bytes {
        match self.form {
            Form::Table => {
                let rows = objects.iter().map(|object| self.row(object, now)).collect();
                to_bytes(&self.table(list.to_value(), rows, true))
            }
            Form::PartialMetadata => {
                let items = objects.iter().map(|object| self.partial(object));
                joined("PartialObjectMetadataList", METADATA_VERSION, list, items)
            }
            Form::Protobuf => {
                let items: Vec<Bytes> = objects.iter().map(|object| object.message()).collect();
                write::list(&self.kind.api_version(), self.kind.kind, &list.to_value(), &items)
            }
            Form::ProtobufMetadata => {
                let items: Vec<Bytes> = objects.iter().map(|object| object.metadata_message()).collect();
                write::list(METADATA_VERSION, METADATA_KIND, &list.to_value(), &items)
            }
            Form::Plain | Form::Yaml | Form::AggregatedDiscovery => {
                let items = objects.iter().map(|object| self.plain(object));
                let list_kind = match self.kind.custom {
                    Some(custom) => custom.list_kind.clone(),
                    None => format!("{}List", self.kind.kind),
                };
                joined(&list_kind, &self.kind.api_version(), list, items)
            }
        }
    }

    /// The object of a bookmark: nothing but its kind and how far the watch has come.
    pub(crate) fn bookmark(&self, revision: u64, annotations: Option<Value>) -> Bytes {
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if let Some(annotations) = annotations {
            metadata["annotations"] = annotations;
        }
        let (kind, api_version) = match self.form {
            Form::Table => return to_bytes(&self.table(metadata, Vec::new(), false)),
            Form::PartialMetadata | Form::ProtobufMetadata => (METADATA_KIND, METADATA_VERSION.to_owned()),
            Form::Plain | Form::Yaml | Form::Protobuf | Form::AggregatedDiscovery => {
                (self.kind.kind, self.kind.api_version())
            }
        };
        self.value(&json!({"kind": kind, "apiVersion": api_version, "metadata": metadata}))
    }

    /// Something else than an object of this kind: a Status, or next to nothing of an object.
    pub(crate) fn value(&self, value: &Value) -> Bytes {
        match self.form {
            Form::Protobuf | Form::ProtobufMetadata => write::value(value),
            _ => to_bytes(value),
        }
    }

    /// One event of a watch.
    pub(crate) fn event(&self, event: &str, object: &[u8]) -> Bytes {
        match self.form {
            Form::Protobuf | Form::ProtobufMetadata => write::event(event, object),
            _ => line(event, object),
        }
    }

    fn plain(&self, object: &Object) -> Bytes {
        match self.kind.wire {
            Wire::AsStored if self.kind.custom.is_some() => {
                match conversion::to_wire(self.kind, &object.peek()) {
                    Cow::Borrowed(_) => object.text(),
                    Cow::Owned(converted) => to_bytes(&converted),
                }
            }
            Wire::AsStored => object.text(),
            Wire::EventsV1 | Wire::AutoscalerV1 => to_bytes(&conversion::to_wire(self.kind, &object.peek())),
        }
    }

    /// The metadata are copied from the stored text, without reading it as a tree.
    fn partial(&self, object: &Object) -> Bytes {
        let metadata = object.metadata();
        let mut text = BytesMut::with_capacity(metadata.len() + 80);
        text.put_slice(br#"{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","metadata":"#);
        text.put_slice(&metadata);
        text.put_u8(b'}');
        text.freeze()
    }

    fn table(&self, metadata: Value, rows: Vec<Value>, headers: bool) -> Value {
        let columns = || match self.kind.custom {
            Some(custom) => custom.columns(),
            None => table::columns_of(self.kind),
        };
        json!({
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": metadata,
            "columnDefinitions": if headers { columns() } else { Value::Null },
            "rows": rows,
        })
    }

    fn row(&self, object: &Object, now: Timestamp) -> Value {
        let value = object.peek();
        let cells = match self.kind.custom {
            Some(custom) => custom.cells(&value, now),
            None => table::cells_of(self.kind, &value, now),
        };
        let mut row = json!({ "cells": cells });
        match self.include {
            Include::None => {}
            Include::Metadata => {
                row["object"] = json!({
                    "kind": METADATA_KIND,
                    "apiVersion": METADATA_VERSION,
                    "metadata": value.get("metadata").unwrap_or(&Value::Null),
                });
            }
            Include::Object => row["object"] = conversion::to_wire(self.kind, &value).into_owned(),
        }
        row
    }
}

/// A list of items that are texts already.
fn joined(kind: &str, api_version: &str, list: &ListMeta, items: impl Iterator<Item = Bytes>) -> Bytes {
    let mut text = BytesMut::new();
    let head = format!(
        "{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":{},\"items\":[",
        list.to_value(),
    );
    text.put_slice(head.as_bytes());
    for (index, item) in items.enumerate() {
        if index > 0 {
            text.put_u8(b',');
        }
        text.put_slice(&item);
    }
    text.put_slice(b"]}");
    text.freeze()
}

/// One line of a watch.
fn line(event: &str, object: &[u8]) -> Bytes {
    let mut line = BytesMut::with_capacity(object.len() + 40);
    line.put_slice(b"{\"type\":\"");
    line.put_slice(event.as_bytes());
    line.put_slice(b"\",\"object\":");
    line.put_slice(object);
    line.put_slice(b"}\n");
    line.freeze()
}
