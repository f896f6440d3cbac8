//! The few requests of the simulated parts of a cluster. Everything here goes through a [`kube::Client`], so it works beside
//! any API server.

use std::{fmt, time::Duration};

use kube::{Client, core::Status};
use serde::de::IgnoredAny;
use serde_json::Value;

/// Where the time comes from. Handed in, so that a test can run under a paused clock.
pub type Now = std::sync::Arc<dyn Fn() -> jiff::Timestamp + Send + Sync>;

/// How long any request other than a watch may take. kube itself sets no limit at all.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// A request that got no usable answer.
#[derive(Debug)]
pub enum CallError {
    /// The server refused, with its reason.
    Refused(Box<Status>),
    /// The server could not be reached or did not speak its protocol.
    Broken(Box<kube::Error>),
    /// No answer in time. Whether the request took effect is unknown.
    Timeout,
}

impl CallError {
    /// The object (or the path) does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self, CallError::Refused(status) if status.code == 404)
    }

    /// The object of that name does not exist. A 404 of the path, of a group that is not served (yet), names no object.
    pub fn names_absent(&self, name: &str) -> bool {
        let CallError::Refused(status) = self else { return false };
        status.code == 404 && status.details.as_ref().is_some_and(|details| details.name == name)
    }

    /// A resourceVersion or UID that is no longer current, or an object that exists already.
    pub fn is_conflict(&self) -> bool {
        matches!(self, CallError::Refused(status) if status.code == 409)
    }

    /// A create of something that exists.
    pub fn is_already_exists(&self) -> bool {
        matches!(self, CallError::Refused(status) if status.reason == "AlreadyExists")
    }

    /// A retry cannot succeed: the request itself is invalid.
    pub fn is_final(&self) -> bool {
        matches!(self, CallError::Refused(status) if matches!(status.code, 400 | 404 | 405 | 415 | 422))
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallError::Refused(status) if status.message.is_empty() => {
                write!(f, "the server answered {} {}", status.code, status.reason)
            }
            CallError::Refused(status) => f.write_str(&status.message),
            CallError::Broken(error) => write!(f, "{error}"),
            CallError::Timeout => {
                write!(f, "no answer from the API server within {} s", REQUEST_TIMEOUT.as_secs())
            }
        }
    }
}

impl std::error::Error for CallError {}

impl From<kube::Error> for CallError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => CallError::Refused(status),
            other => CallError::Broken(Box::new(other)),
        }
    }
}

/// Sends `request` and gives back the body. The request is the `Result` that kube's builders return, so
/// that a name they refuse is an error like any other.
pub async fn send(
    client: &Client,
    request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
) -> Result<Value, CallError> {
    answer(request, |request| client.request(request)).await
}

/// The same for a request whose answer does not matter once it succeeded: its body is not decoded.
pub async fn send_only(
    client: &Client,
    request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
) -> Result<(), CallError> {
    let text = answer(request, |request| client.request_text(request)).await?;
    match text.starts_with('{') {
        true => Ok(()),
        // A page of a proxy is no success.
        false => serde_json::from_str::<IgnoredAny>(&text)
            .map(drop)
            .map_err(|error| kube::Error::SerdeError(error).into()),
    }
}

async fn answer<T, A: Future<Output = kube::Result<T>>>(
    request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    send: impl FnOnce(http::Request<Vec<u8>>) -> A,
) -> Result<T, CallError> {
    let request = request.map_err(|error| CallError::from(kube::Error::BuildRequest(error)))?;
    match tokio::time::timeout(REQUEST_TIMEOUT, send(request)).await {
        Ok(answer) => answer.map_err(CallError::from),
        Err(_) => Err(CallError::Timeout),
    }
}

/// A request with a JSON body to a path that kube has no builder for, such as `pods/x/binding`.
pub fn post(path: String, body: &Value) -> Result<http::Request<Vec<u8>>, kube::core::request::Error> {
    with_body(http::Method::POST, path, "application/json", body)
}

/// A merge patch of the object at a path.
pub(crate) fn merge_patch(
    path: String,
    body: &Value,
) -> Result<http::Request<Vec<u8>>, kube::core::request::Error> {
    with_body(http::Method::PATCH, path, "application/merge-patch+json", body)
}

fn with_body(
    method: http::Method,
    path: String,
    content_type: &str,
    body: &Value,
) -> Result<http::Request<Vec<u8>>, kube::core::request::Error> {
    http::Request::builder()
        .method(method)
        .uri(path)
        .header(http::header::CONTENT_TYPE, content_type)
        .body(body.to_string().into_bytes())
        .map_err(kube::core::request::Error::BuildRequest)
}

/// How long to wait before try number `failures + 1`: 0.1 s, doubling, at most 15 s.
pub fn backoff(failures: u32) -> Duration {
    Duration::from_millis(100u64 << failures.saturating_sub(1).min(10)).min(Duration::from_secs(15))
}

/// A time as Kubernetes writes it: UTC, whole seconds.
pub fn rfc3339(time: jiff::Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn retries_wait_longer_up_to_a_cap() {
        assert_eq!(backoff(1), Duration::from_millis(100));
        assert_eq!(backoff(2), Duration::from_millis(200));
        assert_eq!(backoff(u32::MAX), Duration::from_secs(15));
    }

    #[test]
    fn only_a_404_that_names_the_object_says_that_it_is_absent() {
        let refused = |details: Value| {
            let status = json!({"status": "Failure", "code": 404, "reason": "NotFound", "message": "", "details": details});
            CallError::Refused(Box::new(serde_json::from_value(status).unwrap()))
        };
        assert!(refused(json!({"name": "web", "kind": "deployments", "group": "apps"})).names_absent("web"));
        assert!(
            !refused(json!({"name": "other", "kind": "deployments", "group": "apps"})).names_absent("web")
        );
        assert!(!refused(json!({})).names_absent("web"));
        assert!(!CallError::Timeout.names_absent("web"));
    }

    #[test]
    fn times_are_written_in_whole_seconds() {
        let time: jiff::Timestamp = "2026-01-02T03:04:05.999Z".parse().unwrap();
        assert_eq!(rfc3339(time), "2026-01-02T03:04:05Z");
    }
}
