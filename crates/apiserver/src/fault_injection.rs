//! The seam for observing requests and injecting faults: one function that sees every request before
//! it is carried out and decides its fate. Tests need no mock: the client, its retries and its error
//! handling all meet the real thing.

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
    /// The body as sent, except that one in protobuf is shown as the JSON it stands for.
    pub body: Bytes,
}

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum FaultDecision {
    /// It is carried out.
    Proceed,
    /// It is not carried out; the client gets a Status with these.
    Refuse {
        /// The HTTP status code, such as 503.
        code: u16,
        /// The message for people.
        message: String,
        /// The machine-readable reason, such as "ServiceUnavailable".
        reason: String,
    },
    /// The client gets a Status with this code, 429 or 503, and is asked to send the request again after so many
    /// seconds.
    RetryAfter {
        /// The HTTP status code.
        code: u16,
        /// The value of `Retry-After`.
        seconds: u32,
        /// Whether the request is carried out all the same, as where a proxy in between gave it up too early.
        carried_out: bool,
    },
    /// It is not carried out, and the connection breaks: the client cannot tell it from
    /// [`FaultDecision::LoseReply`].
    LoseRequest,
    /// It is carried out, but the connection breaks before the answer.
    LoseReply,
    /// It is carried out after this time of tokio's clock, even if the client has given up by then.
    Delay(Duration),
    /// It is carried out at once, and the answer arrives after this time of tokio's clock.
    DelayReply(Duration),
}

/// See the module. Called once per request, in the order of arrival; it must not block.
pub type FaultInjector = Arc<dyn Fn(&RequestInfo) -> FaultDecision + Send + Sync>;

/// What a client sees of a lost reply: an answer whose body breaks off before its first byte.
#[derive(Debug)]
pub(crate) struct ConnectionLost;

impl fmt::Display for ConnectionLost {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the connection was lost")
    }
}

impl std::error::Error for ConnectionLost {}
