//! The only file that writes to the API. An interrupted command ends after the write under way. No request is repeated here: a lost reply must not become a second object, and
//! each caller looks at what is there before it writes again.

use serde::Serialize;
use serde_json::{Value, json};
use windlass::runtime::request::{self, PatchType};

use crate::api::{Answer, Api, ApiError};
use crate::interruption::write as uninterrupted;

/// The field manager of our writes.
const MANAGER: (&str, &str) = ("fieldManager", "kubectl-windlass");

/// A body that is JSON already.
fn built(
    what: &str,
    request: Result<http::Request<Vec<u8>>, serde_json::Error>,
) -> Result<http::Request<Vec<u8>>, ApiError> {
    request.map_err(|error| ApiError::Unanswered { what: what.to_owned(), message: error.to_string() })
}

/// Creates an object in the collection at `path`.
///
/// # Errors
/// As [`Api::send`].
pub async fn create(api: &Api, what: &str, path: &str, body: &impl Serialize) -> Result<Value, ApiError> {
    let what = format!("cannot create {what}");
    uninterrupted(api.send(&what, built(&what, request::post(path, &[MANAGER], body))?)).await
}

/// Lets the server judge what [`create`] would do, without keeping it.
///
/// # Errors
/// As [`create`].
pub async fn try_create(api: &Api, what: &str, path: &str, body: &impl Serialize) -> Result<Value, ApiError> {
    let what = format!("cannot create {what}");
    api.send(&what, built(&what, request::post(path, &[MANAGER, ("dryRun", "All")], body))?).await
}

/// How an object of a manifest is created.
#[derive(Clone, Copy, Debug)]
pub struct Creation<'a> {
    /// The field manager.
    pub manager: &'a str,
    /// The treatment of unknown and duplicate fields: `Strict`, `Warn` or `Ignore`.
    pub field_validation: &'a str,
    /// Whether the server only judges the object.
    pub dry_run: bool,
}

/// Creates an object of a manifest in the collection at `path`.
///
/// # Errors
/// As [`Api::send`].
pub async fn create_as(
    api: &Api,
    what: &str,
    path: &str,
    body: &Value,
    creation: Creation<'_>,
) -> Result<Answer, ApiError> {
    let what = format!("cannot create {what}");
    let Creation { manager, field_validation, dry_run } = creation;
    let mut query = vec![("fieldManager", manager), ("fieldValidation", field_validation)];
    if dry_run {
        query.push(("dryRun", "All"));
    }
    uninterrupted(api.exchange(&what, built(&what, request::post(path, &query, body))?)).await
}

/// Merges `body` into the object at `path`, provided that it is still `seen`: the same UID and resourceVersion.
///
/// # Errors
/// As [`Api::send`]; 409 if the object has changed.
pub async fn merge(
    api: &Api,
    what: &str,
    path: &str,
    seen: &Value,
    mut body: Value,
) -> Result<Value, ApiError> {
    let what = format!("cannot change {what}");
    let metadata = &seen["metadata"];
    if let Some(body) = body.as_object_mut() {
        let own = body.entry("metadata").or_insert_with(|| json!({}));
        own["uid"] = metadata["uid"].clone();
        own["resourceVersion"] = metadata["resourceVersion"].clone();
    }
    uninterrupted(api.send(&what, built(&what, request::patch(path, &[MANAGER], PatchType::Merge, &body))?))
        .await
}

/// Applies the operations of a JSON patch to the object at `path`, provided that it is still `seen`.
///
/// # Errors
/// As [`Api::send`]; 409 if the object has changed.
pub async fn replace(
    api: &Api,
    what: &str,
    path: &str,
    seen: &Value,
    operations: Vec<Value>,
) -> Result<Value, ApiError> {
    send_operations(api, what, path, &[MANAGER], seen, operations).await
}

async fn send_operations(
    api: &Api,
    what: &str,
    path: &str,
    query: &[(&str, &str)],
    seen: &Value,
    operations: Vec<Value>,
) -> Result<Value, ApiError> {
    let what = format!("cannot change {what}");
    let metadata = &seen["metadata"];
    // A failed `test` is answered with 422 and no reason. Replacing these two makes the server compare them with what is
    // stored: an object that has changed, or was created again, is a conflict.
    let mut all = vec![
        json!({"op": "replace", "path": "/metadata/uid", "value": metadata["uid"]}),
        json!({"op": "replace", "path": "/metadata/resourceVersion", "value": metadata["resourceVersion"]}),
    ];
    all.extend(operations);
    uninterrupted(api.send(&what, built(&what, request::patch(path, query, PatchType::Json, &all))?)).await
}

/// Lets the server judge what [`replace`] would do, without keeping it.
///
/// # Errors
/// As [`replace`].
pub async fn try_replace(
    api: &Api,
    what: &str,
    path: &str,
    seen: &Value,
    operations: Vec<Value>,
) -> Result<Value, ApiError> {
    send_operations(api, what, path, &[MANAGER, ("dryRun", "All")], seen, operations).await
}

/// Deletes the object at `path`, provided that it is still `seen`.
///
/// # Errors
/// As [`Api::send`]; 409 if it is another object, or has changed.
pub async fn delete(api: &Api, what: &str, path: &str, seen: &Value) -> Result<Value, ApiError> {
    let what = format!("cannot delete {what}");
    let metadata = &seen["metadata"];
    let options = json!({
        "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background",
        "preconditions": {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]},
    });
    uninterrupted(api.send(&what, built(&what, request::delete(path, &[], &options))?)).await
}
