//! Validating objects with an API server, and creating them there.

use std::collections::BTreeSet;

use kube::{
    Client,
    core::{
        Request,
        params::{GetParams, Patch, PatchParams, PostParams, ValidationDirective},
    },
};
use serde_json::Value;

use super::{ManifestError, Object};
use windlass_nodes::api_client::{CallError, send};

/// The field manager of these writes.
const MANAGER: &str = "windlass-sandbox";

/// The result of applying an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// It did not exist.
    Created,
    /// It existed and was changed.
    Configured,
    /// It existed and did not differ.
    Unchanged,
}

impl std::fmt::Display for Applied {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Applied::Created => "created",
            Applied::Configured => "configured",
            Applied::Unchanged => "unchanged",
        })
    }
}

/// Sends every object to the server as a dry run, which validates types, unknown fields and values.
///
/// A namespace that the same manifests create does not exist during the dry run, so its objects are validated in
/// `default`: everything but the name of the namespace is validated in the same way.
pub async fn check(client: &Client, objects: &[Object]) -> Result<(), ManifestError> {
    let new_namespaces: BTreeSet<&str> =
        objects.iter().filter(|object| object.kind() == "Namespace").map(Object::name).collect();
    let mut errors = Vec::new();
    for object in objects {
        let elsewhere = object.namespace().is_some_and(|namespace| new_namespaces.contains(namespace))
            && !exists(client, object.namespace().unwrap_or_default()).await;
        let result = if elsewhere {
            let mut stand_in = object.clone();
            stand_in.body["metadata"]["namespace"] = "default".into();
            match create(client, &stand_in, true).await {
                Err(error) if error.is_already_exists() => Ok(()),
                result => result.map(drop),
            }
        } else {
            write(client, object, true).await.map(drop)
        };
        if let Err(error) = result {
            // It is validated when it is applied, after its definition.
            if object.is_of_new_kind && error.is_not_found() {
                continue;
            }
            errors.push(ManifestError::Refused {
                origin: object.origin.clone(),
                object: object.to_string(),
                problem: explain(object, &error),
            });
        }
    }
    ManifestError::all(errors)
}

/// Creates every object, or patches it if it exists: namespaces first, then definitions of custom kinds, then what new objects
/// are judged by (accounts and classes), and the others in their order. Calls `report` for each. A patch does not change fields
/// that the manifest omits. An object with `generateName` gets its name, and is another one each time.
pub async fn apply(
    client: &Client,
    objects: &mut [Object],
    mut report: impl FnMut(&Object, Applied),
) -> Result<(), ManifestError> {
    let mut ordered: Vec<&mut Object> = objects.iter_mut().collect();
    ordered.sort_by_key(|object| match object.kind() {
        "Namespace" => 0,
        "CustomResourceDefinition" => 1,
        "IngressClass" | "PriorityClass" | "ServiceAccount" | "StorageClass" => 2,
        _ => 3,
    });
    for index in 0..ordered.len() {
        let (done, rest) = ordered.split_at_mut(index);
        let Some(object) = rest.first_mut() else { break };
        match write(client, object, false).await {
            Ok((applied, name)) => {
                if object.name().is_empty() {
                    object.body["metadata"]["name"] = name;
                }
                report(object, applied);
            }
            Err(error) => {
                return Err(ManifestError::Interrupted {
                    origin: object.origin.clone(),
                    object: object.to_string(),
                    problem: explain(object, &error),
                    progress: format!("applied: {}\nnot applied: {}", names(done), names(rest)),
                });
            }
        }
    }
    Ok(())
}

fn names(objects: &[&mut Object]) -> String {
    if objects.is_empty() {
        return "nothing".to_owned();
    }
    objects.iter().map(|object| object.to_string()).collect::<Vec<_>>().join(", ")
}

/// The server's message without its prefix, which names the object again.
fn explain(object: &Object, error: &CallError) -> String {
    let message = error.to_string();
    if object.namespace().is_some_and(|name| message == format!("namespaces \"{name}\" not found")) {
        return format!("{message}; add it to the manifests, or create all with --create-namespaces");
    }
    let prefix = format!("\"{}\" is invalid: ", object.name());
    match message.split_once(&prefix) {
        Some((_, rest)) => rest.to_owned(),
        None => message,
    }
}

async fn exists(client: &Client, namespace: &str) -> bool {
    send(client, Request::new("/api/v1/namespaces").get(namespace, &GetParams::default())).await.is_ok()
}

fn requests(object: &Object) -> Request {
    let api_version = object.body["apiVersion"].as_str().unwrap_or_default();
    let prefix = if api_version.contains('/') { "/apis" } else { "/api" };
    Request::new(match object.namespace().filter(|_| object.namespaced) {
        Some(namespace) => format!("{prefix}/{api_version}/namespaces/{namespace}/{}", object.plural),
        None => format!("{prefix}/{api_version}/{}", object.plural),
    })
}

/// Creates or changes an object; its name as well.
async fn write(client: &Client, object: &Object, dry_run: bool) -> Result<(Applied, Value), CallError> {
    match create(client, object, dry_run).await {
        Err(error) if error.is_already_exists() && !object.name().is_empty() => {
            Ok((change(client, object, dry_run).await?, object.name().into()))
        }
        result => Ok((Applied::Created, result?)),
    }
}

/// Creates an object; its name.
async fn create(client: &Client, object: &Object, dry_run: bool) -> Result<Value, CallError> {
    let parameters = PostParams { dry_run, field_manager: Some(MANAGER.to_owned()) };
    let request = requests(object).create(&parameters, object.body.to_string().into_bytes());
    let mut created = send(client, strictly(request)).await?;
    Ok(created["metadata"]["name"].take())
}

/// Sends a merge patch. If the manifest has a resourceVersion, the patch applies only to that version.
async fn change(client: &Client, object: &Object, dry_run: bool) -> Result<Applied, CallError> {
    let before = send(client, requests(object).get(object.name(), &GetParams::default())).await?;
    let parameters = PatchParams {
        dry_run,
        field_manager: Some(MANAGER.to_owned()),
        field_validation: Some(ValidationDirective::Strict),
        ..PatchParams::default()
    };
    let request = requests(object).patch(object.name(), &parameters, &Patch::Merge(&object.body));
    let after = send(client, request).await?;
    let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
    Ok(if version(&before) == version(&after) { Applied::Unchanged } else { Applied::Configured })
}

/// Makes unknown and duplicate fields an error, for which kube's `PostParams` has no field.
fn strictly(
    request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
) -> Result<http::Request<Vec<u8>>, kube::core::request::Error> {
    let mut request = request?;
    let uri = request.uri().to_string();
    let separator = match uri.find('?') {
        None => "?",
        Some(at) if at + 1 == uri.len() => "",
        Some(_) => "&",
    };
    *request.uri_mut() = format!("{uri}{separator}fieldValidation=Strict")
        .parse()
        .map_err(|error: http::uri::InvalidUri| kube::core::request::Error::BuildRequest(error.into()))?;
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strict_validation_is_added_to_any_query() {
        for (before, after) in [
            ("/api/v1/pods", "/api/v1/pods?fieldValidation=Strict"),
            ("/api/v1/pods?", "/api/v1/pods?fieldValidation=Strict"),
            ("/api/v1/pods?dryRun=All", "/api/v1/pods?dryRun=All&fieldValidation=Strict"),
        ] {
            let request = http::Request::builder().uri(before).body(Vec::new()).unwrap();
            assert_eq!(strictly(Ok(request)).unwrap().uri(), after);
        }
    }
}
