//! Failures, worded and shaped as the Kubernetes API does: `metav1.Status` objects.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use super::kinds::{Kind, Wire};
use super::managed_fields::Conflict;
use super::store::Unreadable;
use super::validate::FieldError;

/// A refused request. Its JSON form is what clients decode as `Status`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Failure {
    pub(crate) code: u16,
    pub(crate) reason: Cow<'static, str>,
    pub(crate) message: String,
    details: Option<Box<Value>>,
    /// The token a client may go on with after an expired one, at the price of consistency.
    continue_token: Option<String>,
    /// Whether what is missing is about to be made, so that a request waits for it.
    pub(crate) is_premature: bool,
    /// Warnings about the body of a request that was refused later.
    pub(crate) warnings: Vec<String>,
}

impl Failure {
    pub(crate) fn new(code: u16, reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Failure {
            code,
            reason: reason.into(),
            message: message.into(),
            details: None,
            continue_token: None,
            is_premature: false,
            warnings: Vec::new(),
        }
    }

    /// With the warnings about the body of the request.
    pub(crate) fn with_warnings(mut self, warnings: &[String]) -> Self {
        self.warnings = warnings.to_vec();
        self
    }

    fn about(mut self, kind: &Kind, name: &str) -> Self {
        self.details = Some(Box::new(details(kind.plural, kind.group, name)));
        self
    }

    /// With one more field of the details.
    pub(crate) fn detail(mut self, field: &str, value: Value) -> Self {
        let mut details = self.details.take().unwrap_or_else(|| Box::new(json!({})));
        if let Value::Object(map) = details.as_mut() {
            map.insert(field.to_owned(), value);
        }
        self.details = Some(details);
        self
    }

    pub(crate) fn asks_to_wait(code: u16, seconds: u32) -> Self {
        let (reason, message) = match code {
            429 => ("TooManyRequests", "Too many requests, please try again later."),
            _ => ("ServiceUnavailable", "the server is currently unable to handle the request"),
        };
        Self::new(code, reason, message).detail("retryAfterSeconds", seconds.into())
    }

    pub(crate) fn not_found(kind: &Kind, name: &str) -> Self {
        let message = format!("{} \"{name}\" not found", kind.resource());
        Self::new(404, "NotFound", message).about(kind, name)
    }

    pub(crate) fn already_exists(kind: &Kind, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", kind.resource());
        Self::new(409, "AlreadyExists", message).about(kind, name)
    }

    pub(crate) fn conflict(kind: &Kind, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", kind.resource());
        Self::new(409, "Conflict", message).about(kind, name)
    }

    /// The same, where upstream puts something else in the place of the resource: the kind, when a
    /// deletion's preconditions fail, and `pods/binding`.
    pub(crate) fn conflict_on(what: &str, group: &str, name: &str, why: &str) -> Self {
        let qualified = if group.is_empty() { what.to_owned() } else { format!("{what}.{group}") };
        let message = format!("Operation cannot be fulfilled on {qualified} \"{name}\": {why}");
        let mut failure = Self::new(409, "Conflict", message);
        failure.details = Some(Box::new(details(what, group, name)));
        failure
    }

    /// The conflict of a stale resourceVersion.
    pub(crate) fn modified(kind: &Kind, name: &str) -> Self {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(kind, name, why)
    }

    /// An apply that would change what others own (`NewConflictError` of apimachinery's `managedfields`).
    pub(crate) fn apply_conflict(conflicts: &[Conflict]) -> Self {
        let message = match conflicts {
            [only] => format!("Apply failed with 1 conflict: conflict with {}: {}", only.owner, only.path),
            several => {
                let mut owners: Vec<&str> = several.iter().map(|conflict| conflict.owner.as_str()).collect();
                owners.sort_unstable();
                owners.dedup();
                let of = |owner: &str| {
                    let paths = several.iter().filter(|conflict| conflict.owner == owner);
                    let lines: Vec<String> = paths.map(|conflict| format!("\n- {}", conflict.path)).collect();
                    format!("conflicts with {owner}:{}", lines.concat())
                };
                let all: Vec<String> = owners.into_iter().map(of).collect();
                format!("Apply failed with {} conflicts: {}", several.len(), all.join("\n"))
            }
        };
        let cause = |conflict: &Conflict| {
            json!({
                "reason": "FieldManagerConflict",
                "message": format!("conflict with {}", conflict.owner),
                "field": conflict.path,
            })
        };
        Self::new(409, "Conflict", message).detail("causes", conflicts.iter().map(cause).collect())
    }

    pub(crate) fn forbidden(kind: &Kind, name: &str, why: &str) -> Self {
        let message = format!("{} \"{name}\" is forbidden: {why}", kind.resource());
        Self::new(403, "Forbidden", message).about(kind, name)
    }

    pub(crate) fn namespace_terminating(kind: &Kind, name: &str, namespace: &str) -> Self {
        let why =
            format!("unable to create new content in namespace {namespace} because it is being terminated");
        let cause = json!([{
            "reason": "NamespaceTerminating",
            "message": format!("namespace {namespace} is being terminated"),
            "field": "metadata.namespace",
        }]);
        Self::forbidden(kind, name, &why).detail("causes", cause)
    }

    pub(crate) fn invalid(kind: &Kind, name: &str, errors: &[FieldError]) -> Self {
        // Events are validated in the group in which they are stored.
        let group = if kind.wire == Wire::EventsV1 { "" } else { kind.group };
        Self::invalid_as(kind.kind, group, name, errors)
    }

    /// [`Failure::invalid`] for what is not a kind of the table, such as a Scale.
    pub(crate) fn invalid_as(kind: &str, group: &str, name: &str, errors: &[FieldError]) -> Self {
        let mut lines: Vec<String> = Vec::new();
        for error in errors {
            let line = format!("{}: {}", error.field, error.detail);
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        let what = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let list = match lines.as_slice() {
            [only] => only.clone(),
            several => format!("[{}]", several.join(", ")),
        };
        let causes: Vec<Value> = errors
            .iter()
            .map(|error| json!({"reason": error.reason, "message": error.detail, "field": error.field}))
            .collect();
        let mut failure = Self::new(422, "Invalid", format!("{what} \"{name}\" is invalid: {list}"));
        failure.details = Some(Box::new(details(kind, group, name)));
        failure.detail("causes", Value::Array(causes))
    }

    /// One field of the request's own options is wrong.
    pub(crate) fn invalid_option(what: &str, field: &str, detail: impl Into<String>) -> Self {
        let error =
            FieldError { field: field.to_owned(), reason: "FieldValueInvalid", detail: detail.into() };
        Self::invalid_as(what, "meta.k8s.io", "", &[error])
    }

    /// An error of the storage that upstream passes on as it is, without a reason.
    pub(crate) fn of_storage(message: impl Into<String>) -> Self {
        Self::new(500, "", message)
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub(crate) fn unknown_path() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource")
            .detail("causes", json!([]))
    }

    /// For requests that only a process could answer.
    pub(crate) fn simulated(what: &str) -> Self {
        Self::not_implemented(&format!("the containers of this API server are simulated: {what}"))
    }

    /// A request that a real server serves, and this one does not.
    pub(crate) fn not_implemented(why: &str) -> Self {
        Self::new(501, "NotImplemented", why.to_owned())
    }

    pub(crate) fn method_not_allowed() -> Self {
        Self::new(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
    }

    pub(crate) fn not_acceptable(accepted: &[&str]) -> Self {
        let accepted = accepted.join(", ");
        Self::new(406, "NotAcceptable", format!("only the following media types are accepted: {accepted}"))
    }

    pub(crate) fn unsupported_media_type(message: impl Into<String>) -> Self {
        Self::new(415, "UnsupportedMediaType", message)
    }

    pub(crate) fn too_large(limit: usize) -> Self {
        Self::new(413, "RequestEntityTooLarge", format!("Request entity too large: limit is {limit}"))
    }

    /// An error that the API machinery knows no reason for.
    pub(crate) fn unknown(message: impl Into<String>) -> Self {
        Self::new(500, "", message)
    }

    pub(crate) fn internal(message: impl std::fmt::Display) -> Self {
        Self::new(500, "InternalError", format!("Internal error occurred: {message}"))
    }

    /// A revision that a watch or an exact list cannot start from.
    pub(crate) fn unreadable(wanted: u64, why: Unreadable) -> Self {
        match why {
            Unreadable::Compacted { oldest } => {
                Self::new(410, "Expired", format!("too old resource version: {wanted} ({oldest})"))
            }
            Unreadable::Future { current } => {
                let message = format!("Timeout: Too large resource version: {wanted}, current: {current}");
                let cause =
                    json!([{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]);
                Self::new(504, "Timeout", message)
                    .detail("causes", cause)
                    .detail("retryAfterSeconds", json!(1))
            }
        }
    }

    /// A continue token whose revision is compacted. `fresh` continues at the current revision.
    pub(crate) fn continue_expired(fresh: String) -> Self {
        let message = "The provided continue parameter is too old to display a consistent list result. \
                       Start a new list without it, or use the continue token of this answer for the \
                       rest of the objects as they are now.";
        Failure { continue_token: Some(fresh), ..Self::new(410, "Expired", message) }
    }

    /// Of what is about to be made.
    pub(crate) fn premature(self) -> Self {
        Failure { is_premature: true, ..self }
    }

    /// An eviction that a disruption budget does not allow.
    pub(crate) fn disrupts(why: &str, retry_after: u32) -> Self {
        let message = "Cannot evict pod as it would violate the pod's disruption budget.";
        let cause = json!([{"reason": "DisruptionBudget", "message": why}]);
        let failure = Self::new(429, "TooManyRequests", message).detail("causes", cause);
        match retry_after {
            0 => failure,
            seconds => failure.detail("retryAfterSeconds", seconds.into()),
        }
    }

    /// The Status object.
    pub(crate) fn to_value(&self) -> Value {
        let mut metadata = Map::new();
        if let Some(token) = &self.continue_token {
            metadata.insert("continue".to_owned(), json!(token));
        }
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": metadata,
            "status": "Failure",
            "message": self.message,
            "code": self.code,
        });
        if let (false, Value::Object(map)) = (self.reason.is_empty(), &mut status) {
            map.insert("reason".to_owned(), json!(self.reason));
        }
        if let (Some(details), Value::Object(map)) = (&self.details, &mut status) {
            map.insert("details".to_owned(), details.as_ref().clone());
        }
        status
    }
}

fn details(kind: &str, group: &str, name: &str) -> Value {
    let mut map = Map::new();
    for (field, value) in [("name", name), ("group", group), ("kind", kind)] {
        if !value.is_empty() {
            map.insert(field.to_owned(), json!(value));
        }
    }
    Value::Object(map)
}

/// The Status that says a request was carried out, about an object that is no more.
pub(crate) fn success(kind: &Kind, name: &str, uid: &str) -> Value {
    let mut details = details(kind.plural, kind.group, name);
    if let (Value::Object(map), false) = (&mut details, uid.is_empty()) {
        map.insert("uid".to_owned(), json!(uid));
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds;

    fn error(field: &str, detail: &str) -> FieldError {
        FieldError { field: field.to_owned(), reason: "FieldValueInvalid", detail: detail.to_owned() }
    }

    #[test]
    fn one_error_is_worded_plainly_and_several_in_brackets() {
        let kind = kinds::named("Deployment");
        let one = Failure::invalid(kind, "web", &[error("spec.a", "is bad")]);
        assert_eq!(one.message, "Deployment.apps \"web\" is invalid: spec.a: is bad");
        let two = Failure::invalid(kind, "web", &[error("spec.a", "is bad"), error("spec.b", "too")]);
        assert_eq!(two.message, "Deployment.apps \"web\" is invalid: [spec.a: is bad, spec.b: too]");
        assert_eq!(two.to_value()["details"]["causes"][1]["field"], "spec.b");
    }
}
