//! Observing requests and injecting faults: one function sees every request before it is carried out and decides what
//! happens to it. Tests need no mock: the client, its retries and its error handling are the real ones.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

/// A request as a [`FaultInjector`] sees it, after routing and before anything is done.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestInfo {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` or `deletecollection`. For paths
    /// that are not of a kind (discovery, health), the HTTP method in lower case.
    pub verb: &'static str,
    /// The group of the kind, "" for the core group.
    pub group: &'static str,
    /// The kind, such as "Deployment", or "" for a path that is not of a kind.
    pub kind: &'static str,
    /// The namespace, or "" for cluster-scoped kinds and requests to all namespaces.
    pub namespace: String,
    /// The name in the path, or "".
    pub name: String,
    /// "status", "scale", "finalize", "binding", "eviction" or "".
    pub subresource: &'static str,
    /// The path as sent.
    pub path: String,
    /// The query as sent, without the question mark.
    pub query: String,
    /// The type of the body, or "". Tells the kinds of patches apart.
    pub content_type: String,
    /// The User-Agent header, or "".
    pub user_agent: String,
    /// The body as sent; a protobuf body is converted to JSON.
    pub body: Bytes,
}

/// The treatment of one request.
#[derive(Clone, Debug, PartialEq)]
pub enum FaultDecision {
    /// The request is carried out.
    Proceed,
    /// The request is not carried out; the client gets a Status with these fields.
    Refuse {
        /// The HTTP status code, such as 503.
        code: u16,
        /// The message for people.
        message: String,
        /// The machine-readable reason, such as "ServiceUnavailable".
        reason: String,
    },
    /// The client gets a Status with this code, 429 or 503, and the header `Retry-After`.
    RetryAfter {
        /// The HTTP status code.
        code: u16,
        /// The value of `Retry-After`.
        seconds: u32,
        /// Whether the request is carried out all the same, as when a proxy gives up too early.
        carried_out: bool,
    },
    /// The request is not carried out, and the connection breaks: the client cannot distinguish this from
    /// [`FaultDecision::LoseReply`].
    LoseRequest,
    /// The request is carried out, but the connection breaks before the response.
    LoseReply,
    /// The request is carried out after this time of tokio's clock, even if the client has given up by then.
    Delay(Duration),
    /// The request is carried out at once, and the response arrives after this time of tokio's clock.
    DelayReply(Duration),
}

/// See the module. Called once per request, in the order of arrival; it must not block.
pub type FaultInjector = Arc<dyn Fn(&RequestInfo) -> FaultDecision + Send + Sync>;

/// A lost reply as the client sees it: a response whose body ends before its first byte.
#[derive(Debug)]
pub(crate) struct ConnectionLost;

impl fmt::Display for ConnectionLost {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the connection was lost")
    }
}

impl std::error::Error for ConnectionLost {}
