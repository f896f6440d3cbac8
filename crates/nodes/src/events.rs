//! Events as the parts of a cluster record them.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::api_client::rfc3339;

/// The text of an event.
pub(crate) struct Text<'a> {
    /// The component that says it.
    pub(crate) from: &'a str,
    /// `Normal` or `Warning`.
    pub(crate) kind: &'a str,
    pub(crate) reason: &'a str,
    pub(crate) message: &'a str,
}

/// The event of this name about an object, of which a reference is given.
pub(crate) fn event(
    name: String,
    about: &Value,
    host: Option<&str>,
    text: &Text<'_>,
    now: Timestamp,
) -> Value {
    let at = rfc3339(now);
    let mut source = json!({"component": text.from});
    if let Some(host) = host {
        source["host"] = json!(host);
    }
    json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {"name": name, "namespace": about["namespace"]},
        "involvedObject": about,
        "type": text.kind, "reason": text.reason, "message": text.message,
        "source": source, "reportingComponent": text.from, "reportingInstance": "",
        "firstTimestamp": at, "lastTimestamp": at, "count": 1,
    })
}

/// The path of the events of a namespace.
pub(crate) fn path(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/events")
}
