//! `/binding` of a pod.

use serde_json::{Value, json};

use super::reply::Reply;
use super::strategy::seconds;
use super::{body, update};
use crate::object::{is_deleting, map_mut, meta, text};
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
    update::write(server, &request.place, request, true, |stored| {
        let bound = text(stored, "/spec/nodeName");
        let refuse = |why: &str| Err(Failure::conflict_on("pods/binding", "", name, why));
        if !uid.is_empty() && uid != meta(stored, "uid") {
            return refuse(&format!(
                "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                meta(stored, "uid")
            ));
        }
        if is_deleting(stored) {
            return refuse(&format!("pod {name} is being deleted, cannot be assigned to a host"));
        }
        if !bound.is_empty() {
            return refuse(&format!("pod {name} is already assigned to node \"{bound}\""));
        }
        let mut pod = Value::clone(stored);
        map_mut(&mut pod, "spec").insert("nodeName".to_owned(), json!(node));
        set_condition(&mut pod, json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": now}));
        Ok(pod)
    })?;
    Ok(Reply::value(201, &done()))
}

/// The body of a request to a subresource.
pub(super) fn decode(request: &Request, api_version: &str, kind: &str) -> Result<Value, Failure> {
    body::require_json(request)?;
    let checked = strict::check(api_version, kind, &request.body)
        .map_err(|error| Failure::bad_request(format!("the body cannot be handled as a {kind}: {error}")))?;
    Ok(checked.object)
}

/// Sets the condition of its type.
pub(super) fn set_condition(object: &mut Value, condition: Value) {
    let status = map_mut(object, "status");
    let mut conditions = status.get("conditions").and_then(Value::as_array).cloned().unwrap_or_default();
    conditions.retain(|other| other["type"] != condition["type"]);
    conditions.push(condition);
    status.insert("conditions".to_owned(), Value::Array(conditions));
}

/// The answer that it was carried out.
pub(super) fn done() -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})
}
