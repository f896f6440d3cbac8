//! `/binding` and `/eviction` of a pod.

use serde_json::{Value, json};

use super::delete::{self, Options};
use super::reply::Reply;
use super::strategy::seconds;
use super::{body, update};
use crate::object::{is_deleting, map_mut, meta, text, to_bytes};
use crate::request::Request;
use crate::server::Server;
use crate::status::Failure;
use crate::strict;

/// Gives a pod its node, once.
pub(super) fn bind(server: &Server, request: &Request) -> Result<Reply, Failure> {
    let binding = decode(request, "v1", "Binding")?;
    let node = text(&binding, "/target/name").to_owned();
    if node.is_empty() {
        return Err(Failure::bad_request("target.name: Required value"));
    }
    let (name, uid) = (request.place.name.as_str(), meta(&binding, "uid"));
    let now = seconds((server.options.now)());
    update::write(server, &request.place, request, true, |current| {
        let stored = current.value();
        let bound = text(&stored, "/spec/nodeName");
        let refuse = |why: &str| Err(Failure::conflict_on("pods/binding", "", name, why));
        if !uid.is_empty() && uid != meta(&stored, "uid") {
            return refuse(&format!(
                "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                meta(&stored, "uid")
            ));
        }
        if is_deleting(&stored) {
            return refuse(&format!("pod {name} is being deleted, cannot be assigned to a host"));
        }
        if !bound.is_empty() {
            return refuse(&format!("pod {name} is already assigned to node \"{bound}\""));
        }
        let mut pod = Value::clone(&stored);
        map_mut(&mut pod, "spec").insert("nodeName".to_owned(), json!(node));
        set_condition(&mut pod, "PodScheduled", &now);
        Ok(pod)
    })?;
    Ok(Reply::value(201, &done()))
}

/// Deletes a pod gracefully.
pub(super) fn evict(server: &Server, request: &Request) -> Result<Reply, Failure> {
    let eviction = decode(request, "policy/v1", "Eviction")?;
    let said = meta(&eviction, "name");
    if !said.is_empty() && said != request.place.name {
        return Err(Failure::bad_request(format!(
            "name in URL does not match name in Eviction object: {} and {said}",
            request.place.name
        )));
    }
    let mut options = match eviction.get("deleteOptions") {
        Some(options) => Options::parse(&to_bytes(options))?,
        None => Options::default(),
    };
    options.dry_run |= request.params.dry_run;
    delete::delete_one(server, request.kind(), &request.key(), &options)?;
    Ok(Reply::value(201, &done()))
}

fn decode(request: &Request, api_version: &str, kind: &str) -> Result<Value, Failure> {
    body::require_json(request)?;
    let checked = strict::check(api_version, kind, &request.body)
        .map_err(|error| Failure::bad_request(format!("the body cannot be handled as a {kind}: {error}")))?;
    Ok(checked.object)
}

fn set_condition(pod: &mut Value, name: &str, now: &str) {
    let status = map_mut(pod, "status");
    let mut conditions = status.get("conditions").and_then(Value::as_array).cloned().unwrap_or_default();
    conditions.retain(|condition| text(condition, "/type") != name);
    conditions.push(json!({"type": name, "status": "True", "lastTransitionTime": now}));
    status.insert("conditions".to_owned(), Value::Array(conditions));
}

fn done() -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})
}
