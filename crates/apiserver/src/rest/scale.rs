//! `/scale`: a Deployment, ReplicaSet or ReplicationController seen as an `autoscaling/v1` Scale.

use serde_json::{Map, Value, json};

use super::body;
use super::patch::Change;
use super::reply::Reply;
use super::update;
use crate::kinds::Kind;
use crate::negotiate::Form;
use crate::object::{map_mut, meta, set_meta, strings, text};
use crate::request::{Place, Request};
use crate::server::Server;
use crate::status::Failure;
use crate::validate::FieldError;
use crate::{strict, table};

const API_VERSION: &str = "autoscaling/v1";

pub(super) fn get(server: &Server, request: &Request) -> Result<Reply, Failure> {
    let object = server
        .store
        .get(request.kind().storage(), &request.key())
        .ok_or_else(|| Failure::not_found(request.kind(), &request.place.name))?;
    let scale = scale_of(request.kind(), &object.peek());
    let reply =
        if request.form == Form::Table { table::of_scale(&scale, (server.options.now)()) } else { scale };
    Ok(Reply::value(200, &reply))
}

pub(super) fn update(server: &Server, request: &Request) -> Result<Reply, Failure> {
    body::require_json(request)?;
    let checked = strict::check(API_VERSION, "Scale", &request.body).map_err(|error| {
        Failure::bad_request(format!("Scale in version \"v1\" cannot be handled as a Scale: {error}"))
    })?;
    write(server, request, |_| Ok(checked.object.clone()))
}

pub(super) fn patch(server: &Server, request: &Request) -> Result<Reply, Failure> {
    let change = Change::parse(request)?;
    let mut warnings = Vec::new();
    let reply = write(server, request, |current| {
        let before = scale_of(request.kind(), current);
        let mut scale = before.clone();
        change.apply("Scale", &mut scale)?;
        let text = || change.shown(false, API_VERSION, "Scale", &before);
        body::require_patched_type(request, API_VERSION, "Scale", &scale, &text)?;
        let refused = |error: String| body::refused_patch(request, error, text());
        let checked = strict::check_value(API_VERSION, "Scale", scale).map_err(refused)?;
        let (scale, unknown) = body::split(checked);
        let reports = change.reports().iter().cloned().chain(unknown).collect();
        warnings = body::apply_validation(request.params.field_validation, reports).map_err(refused)?;
        Ok(scale)
    })?;
    Ok(reply.with_warnings(warnings))
}

fn write(
    server: &Server,
    request: &Request,
    mut scale: impl FnMut(&Value) -> Result<Value, Failure>,
) -> Result<Reply, Failure> {
    let place = Place { subresource: None, ..request.place.clone() };
    let update::Written { stored, .. } = update::write(server, &place, request, true, |current| {
        let mut scale = scale(current)?;
        body::place_named(&place, &mut scale)?;
        let name = place.name.as_str();
        let replicas = scale.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or_default();
        if replicas < 0 {
            let error = FieldError {
                field: "spec.replicas".to_owned(),
                reason: "FieldValueInvalid",
                detail: format!("Invalid value: {replicas}: must be greater than or equal to 0"),
            };
            return Err(Failure::invalid_as("Scale", "autoscaling", name, &[error]));
        }
        let mut object = Value::clone(current);
        match request.kind().custom.and_then(|custom| custom.scale.as_ref()) {
            Some(paths) => {
                paths.replicas.set(&mut object, json!(replicas));
            }
            None => {
                map_mut(&mut object, "spec").insert("replicas".to_owned(), json!(replicas));
            }
        }
        for field in ["resourceVersion", "uid"] {
            set_meta(&mut object, field, meta(&scale, field));
        }
        Ok(object)
    })?;
    Ok(Reply::value(200, &scale_of(request.kind(), &stored.value())))
}

fn scale_of(kind: &Kind, object: &Value) -> Value {
    let number = |value: Option<&Value>| value.and_then(Value::as_i64).unwrap_or_default();
    let (replicas, status, selector) = match kind.custom.and_then(|custom| custom.scale.as_ref()) {
        Some(paths) => {
            let selector = paths.selector.as_ref().and_then(|path| path.first(object)?.as_str());
            (
                number(paths.replicas.first(object)),
                number(paths.status.first(object)),
                selector.map(str::to_owned),
            )
        }
        None => (
            number(object.pointer("/spec/replicas")),
            number(object.pointer("/status/replicas")),
            Some(selector_query(text(object, "/kind"), object.pointer("/spec/selector"))),
        ),
    };
    let mut metadata = Map::new();
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        let value = meta(object, field);
        if !value.is_empty() {
            metadata.insert(field.to_owned(), json!(value));
        }
    }
    // Go leaves out a size of zero here, and not in the status.
    let spec = if replicas == 0 { json!({}) } else { json!({ "replicas": replicas }) };
    let mut status = json!({ "replicas": status });
    if let Some(selector) = selector {
        status["selector"] = selector.into();
    }
    json!({"kind": "Scale", "apiVersion": API_VERSION, "metadata": metadata, "spec": spec, "status": status})
}

/// A label selector in the syntax of queries: `app=web,tier in (a,b),!canary`.
fn selector_query(kind: &str, selector: Option<&Value>) -> String {
    if kind == "ReplicationController" {
        // Its selector is a plain map; a label called `matchLabels` is a label.
        return equalities(selector).collect::<Vec<_>>().join(",");
    }
    let mut terms: Vec<String> =
        equalities(selector.and_then(|selector| selector.get("matchLabels"))).collect();
    let expressions =
        selector.and_then(|selector| selector.get("matchExpressions")).and_then(Value::as_array);
    for expression in expressions.into_iter().flatten() {
        let key = text(expression, "/key");
        let values = strings(expression.get("values")).join(",");
        match text(expression, "/operator") {
            "In" => terms.push(format!("{key} in ({values})")),
            "NotIn" => terms.push(format!("{key} notin ({values})")),
            "Exists" => terms.push(key.to_owned()),
            "DoesNotExist" => terms.push(format!("!{key}")),
            _ => {}
        }
    }
    terms.sort();
    terms.join(",")
}

/// `key=value` for each label, ordered by key.
fn equalities(labels: Option<&Value>) -> impl Iterator<Item = String> {
    let labels = labels.and_then(Value::as_object).into_iter().flatten();
    labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_is_written_as_a_query() {
        let selector = json!({
            "matchLabels": {"app": "web"},
            "matchExpressions": [
                {"key": "tier", "operator": "In", "values": ["a", "b"]},
                {"key": "canary", "operator": "DoesNotExist"},
            ],
        });
        assert_eq!(selector_query("ReplicaSet", Some(&selector)), "!canary,app=web,tier in (a,b)");
    }

    #[test]
    fn a_size_of_zero_is_left_out_of_the_spec() {
        let kind = crate::kinds::named("ReplicaSet");
        let scale = |replicas: i64| scale_of(kind, &json!({"spec": {"replicas": replicas}}));
        assert_eq!((&scale(0)["spec"], &scale(0)["status"]["replicas"]), (&json!({}), &json!(0)));
        assert_eq!(scale(2)["spec"], json!({"replicas": 2}));
    }

    #[test]
    fn a_map_of_labels_is_a_query_too() {
        let selector = json!({"tier": "", "app": "web"});
        assert_eq!(selector_query("ReplicationController", Some(&selector)), "app=web,tier=");
        assert_eq!(selector_query("ReplicationController", None), "");
    }
}
