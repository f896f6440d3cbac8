//! Keeps the served kinds in step with the CustomResourceDefinitions: their status, and the end of what they define. A real
//! server has controllers for that; here it happens before the request that caused it is answered.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};

use super::delete::{self, Options};
use super::strategy::seconds;
use crate::custom::{self, definition, names};
use crate::kinds::Kind;
use crate::object::{Object, as_map, finalizers, is_deleting, metadata_mut, set_meta};
use crate::registry::Registry;
use crate::request::{Request, Verb};
use crate::server::Server;
use crate::store::Key;

pub(super) const KIND: &str = "CustomResourceDefinition";

/// Whether the request may have changed what is served.
pub(super) fn concerns(server: &Server, request: &Request) -> bool {
    let reads = matches!(request.verb, Verb::Get | Verb::List | Verb::Watch);
    let kind = request.kind();
    !reads && (kind.storage() == KIND || (kind.custom.is_some() && server.registry.read().is_terminating()))
}

/// Brings statuses and served kinds up to date with the definitions.
pub(crate) fn follow(server: &Server) {
    let _one_at_a_time = server.definitions.lock();
    loop {
        let all = objects(server, KIND);
        if update_statuses(server, &all) {
            continue;
        }
        serve(server, &all);
        // The others have to be looked at again: a name may be free.
        if !all.iter().any(|(key, object)| end(server, key, object)) {
            return;
        }
    }
}

fn objects(server: &Server, kind: &str) -> Vec<(Arc<Key>, Arc<Object>)> {
    server.store.list(kind, "", None, None).map(|snapshot| snapshot.objects).unwrap_or_default()
}

/// Writes the first status that is not what it should be. False if there is none.
fn update_statuses(server: &Server, all: &[(Arc<Key>, Arc<Object>)]) -> bool {
    let now = seconds((server.options.now)());
    let values: Vec<Arc<Value>> = all.iter().map(|(_, object)| object.peek()).collect();
    for ((key, object), value) in all.iter().zip(&values) {
        let group = &value["spec"]["group"];
        let others =
            values.iter().filter(|other| !Arc::ptr_eq(other, value) && other["spec"]["group"] == *group);
        let others: Vec<&Value> = others.map(|other| &other["status"]["acceptedNames"]).collect();
        let status = names::status(value, &others, &now);
        if is_deleting(value) || status == value["status"] {
            continue;
        }
        let mut new = Value::clone(value);
        as_map(&mut new).insert("status".to_owned(), status);
        // If somebody else was faster, the next round sees it.
        let _raced = server.store.put(KIND, key, Some(object), new);
        return true;
    }
    false
}

/// Has the registry serve the established definitions, and ends the watches of kinds that are gone.
fn serve(server: &Server, all: &[(Arc<Key>, Arc<Object>)]) {
    let (mut rows, mut terminating): (Vec<&'static Kind>, BTreeSet<String>) = Default::default();
    for (key, object) in all {
        let value = object.peek();
        if is_deleting(&value) {
            terminating.insert(key.name.clone());
        }
        if definition::is_true(&value["status"], "Established") {
            rows.extend(custom::row::rows(&value));
        }
    }
    for row in &rows {
        server.store.open(row.storage());
    }
    let mut registry = server.registry.write();
    let before = registry.definitions();
    *registry = Registry::new(rows, terminating);
    before.difference(&registry.definitions()).for_each(|definition| server.store.close(definition));
}

/// Deletes the objects of a definition that is being deleted, and then the definition. True if it was.
fn end(server: &Server, key: &Key, object: &Arc<Object>) -> bool {
    let value = object.value();
    if !is_deleting(&value) || !finalizers(&value).contains(&definition::CLEANUP) {
        return false;
    }
    let row = server.registry.read().rows().find(|row| row.storage() == key.name);
    if let Some(row) = row {
        for (key, _) in objects(server, &key.name) {
            // Finalizers hold an object until its controller has acted; then this is called again.
            let _held = delete::delete_one(server, row, &key, &Options::default());
        }
    }
    // Nothing is created meanwhile.
    let _registry = server.registry.write();
    if !objects(server, &key.name).is_empty() {
        return false;
    }
    let kept: Vec<Value> =
        finalizers(&value).into_iter().filter(|name| *name != definition::CLEANUP).map(Value::from).collect();
    let done = if kept.is_empty() {
        server.store.remove(KIND, key, object)
    } else {
        let mut new = Value::clone(&value);
        metadata_mut(&mut new).insert("finalizers".to_owned(), Value::Array(kept));
        server.store.put(KIND, key, Some(object), new)
    };
    done.is_ok()
}

/// A definition whose deletion begins: it stays until its objects are gone.
pub(super) fn terminating(old: &Value, now: &str) -> Value {
    let mut new = old.clone();
    set_meta(&mut new, "deletionTimestamp", now);
    let mut held: Vec<&str> = finalizers(old);
    if !held.contains(&definition::CLEANUP) {
        held.push(definition::CLEANUP);
    }
    metadata_mut(&mut new).insert("finalizers".to_owned(), json!(held));
    let message = "the objects of this kind are being deleted";
    let condition = ("True", "InstanceDeletionInProgress", message);
    if !new["status"].is_object() {
        as_map(&mut new).insert("status".to_owned(), json!({}));
    }
    definition::set_condition(&mut new["status"], "Terminating", condition, now);
    new
}
