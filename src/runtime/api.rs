//! Calls to the API server: rate-limited, bounded in time and size, counted, and retried only where the server
//! asks for it ([`super::retry_after`]).
//!
//! The one guarantee: an error answers two independent questions. Whether the API
//! server refused ([`ApiError::is_refusal`]), so that it must be reported; and whether the write may have
//! happened all the same ([`ApiError::outcome_unknown`]), so that a lost reply does not become a second pod.

mod answer;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use hyper_util::client::legacy;
use kube::client::AuthError;
use kube::core::Status;
use kube::core::response::reason;
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::client::{Answer, Client, SharedConnection, without_secrets};
use super::encoding::DecodeError;
use super::leader_election::fence::Fence;
use super::outage::Outage;
use super::rate_limiter::RateLimiter;
use crate::metrics::Metrics;
use crate::model::Uid;
pub(super) use answer::collect;
use answer::refusal;

/// The default timeout of a call.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a list may take: the API server itself gives up after a minute.
pub const LIST_TIMEOUT: Duration = Duration::from_secs(60);

/// The largest answer that is read. A page of 500 pods has about 7 MB; a server that ignores `limit`
/// may send a whole cluster.
pub const LARGEST_BODY: usize = 256 << 20;

/// The largest body of an error that is read. A `Status` has some hundred bytes.
const LARGEST_ERROR: usize = 1 << 20;

/// The longest wait that a server may ask for with `Retry-After`.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(60);

/// The reason for a 5xx without a `Status`. The API server sends one, and a proxy does not.
const NO_STATUS: &str = "NoStatus";

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The server answered with an error.
    #[error("{}", describe(.0))]
    Status(Box<Status>),
    /// The server answered a retry with an error. An earlier attempt, after which it had asked to wait,
    /// may have been carried out.
    #[error("{}", describe(.0))]
    Repeated(Box<Status>),
    /// No complete answer within this time.
    #[error("no answer from the API server within {} s", .0.as_secs())]
    Timeout(Duration),
    /// The connection failed.
    #[error("could not reach the API server: {}", innermost(error))]
    Transport {
        /// The error.
        #[source]
        error: Box<kube::Error>,
        /// Whether the request may have reached the server.
        sent: bool,
    },
    /// The answer has an unexpected shape. The text names the place, and never contains the answer.
    #[error("could not read the API server's answer: {0}")]
    Decode(#[source] serde_json::Error),
    /// The answer is larger than this many bytes.
    #[error("the API server's answer is larger than {0} bytes")]
    TooLarge(usize),
    /// Nothing was carried out, and no further attempt was made: our own fence refused the request
    /// ([`Api::fenced`]), or the wait for a retry ended early ([`Api::retrying`]).
    #[error("the request was not sent: {0}")]
    NotSent(&'static str),
    /// The same while the request was under way, or behind an attempt that may have been carried out.
    #[error("the request was cut off: {0}")]
    CutOff(&'static str),
}

/// The cause behind all wrappers: `Connection refused` says more than `client error (Connect)`.
fn innermost(error: &kube::Error) -> String {
    let mut cause: &(dyn std::error::Error + 'static) = error;
    loop {
        if let Some(error) = cause.downcast_ref::<AuthError>() {
            return without_secrets("the credential plugin", error);
        }
        match cause.source() {
            Some(deeper) => cause = deeper,
            None => return cause.to_string(),
        }
    }
}

fn describe(status: &Status) -> String {
    match (status.message.as_str(), status.reason.as_str()) {
        ("", "") => format!("the API server answered {}", status.code),
        ("", reason) => reason.to_owned(),
        (message, _) => message.to_owned(),
    }
}

impl From<DecodeError> for ApiError {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::TooLong(bytes) => ApiError::TooLarge(bytes),
            DecodeError::Malformed(error) => ApiError::Decode(error),
        }
    }
}

impl ApiError {
    /// The server's status, if it sent one.
    pub fn status(&self) -> Option<&Status> {
        match self {
            ApiError::Status(status) | ApiError::Repeated(status) => Some(status),
            _ => None,
        }
    }

    /// Whether the server refused, in whatever words: a 4xx, a webhook that cannot be called, a panic. Not so
    /// where a proxy answered for it, or its own timeout did. An answer that still asks to wait
    /// after all retries counts as well.
    pub fn is_refusal(&self) -> bool {
        let Some(status) = self.status() else { return false };
        if planted!("a failing webhook is treated as a lost reply") && status.code >= 500 {
            return false;
        }
        let says_no = match status.code {
            502..=504 => !matches!(&*status.reason, NO_STATUS | reason::TIMEOUT | reason::SERVER_TIMEOUT),
            _ => true,
        };
        says_no || self.asks_to_wait().is_some()
    }

    /// The object has changed since the version that the write was computed from.
    pub fn is_conflict(&self) -> bool {
        self.status().is_some_and(Status::is_conflict)
    }

    /// The object does not exist.
    pub fn is_not_found(&self) -> bool {
        self.status().is_some_and(Status::is_not_found)
    }

    /// The name is taken.
    pub fn is_already_exists(&self) -> bool {
        self.status().is_some_and(Status::is_already_exists)
    }

    /// The request is forbidden: by RBAC, a quota, or an admission plugin.
    pub fn is_forbidden(&self) -> bool {
        self.status().is_some_and(Status::is_forbidden)
    }

    /// The object is not valid.
    pub fn is_invalid(&self) -> bool {
        self.status().is_some_and(Status::is_invalid)
    }

    /// The server does not read a body of this media type (415).
    pub fn is_unsupported_media_type(&self) -> bool {
        self.status().is_some_and(|status| status.code == 415)
    }

    /// The resourceVersion or continue token is too old (410).
    pub fn is_gone(&self) -> bool {
        self.status().is_some_and(|status| {
            status.reason == reason::GONE || status.reason == reason::EXPIRED || status.code == 410
        })
    }

    /// Nothing more can be created here, since the namespace is being deleted.
    pub fn is_namespace_terminating(&self) -> bool {
        self.has_cause("NamespaceTerminating")
    }

    /// Nothing can be created here, since the namespace is gone. An API server says so with the resource of the
    /// namespace; of an object that is missing itself, it names that object's resource.
    pub fn is_namespace_missing(&self) -> bool {
        let details = self.status().and_then(|status| status.details.as_ref());
        self.is_not_found() && details.is_some_and(|details| details.kind == "namespaces")
    }

    /// Whether the status names this cause.
    pub fn has_cause(&self, cause: &str) -> bool {
        self.status()
            .and_then(|status| status.details.as_ref())
            .is_some_and(|details| details.causes.iter().any(|known| known.reason == cause))
    }

    /// How long the server asked us to wait; at most a minute.
    pub fn retry_after(&self) -> Option<Duration> {
        let seconds = self.status()?.details.as_ref()?.retry_after_seconds;
        (seconds > 0).then(|| Duration::from_secs(seconds.into()).min(LONGEST_RETRY_AFTER))
    }

    /// Whether a write may have happened although the call failed: the answer was lost or unreadable, came
    /// from something between us and the store, or is a 500, behind which etcd may have carried the write out.
    pub fn outcome_unknown(&self) -> bool {
        match self {
            ApiError::Timeout(_)
            | ApiError::Decode(_)
            | ApiError::TooLarge(_)
            | ApiError::CutOff(_)
            | ApiError::Repeated(_) => true,
            ApiError::Transport { sent, .. } => *sent,
            ApiError::Status(status) => status.code >= 500,
            ApiError::NotSent(_) => false,
        }
    }

    /// Whether a write may even happen from now on. Unlike a write whose outcome is merely unknown to us,
    /// one that got an answer is over: only an answer from a component in front of the API server,
    /// or from its own timeout, says nothing about the request behind it. The handler itself answers `InternalError`,
    /// for an admission webhook that failed for example.
    pub fn may_still_happen(&self) -> bool {
        match self {
            ApiError::Timeout(_) | ApiError::CutOff(_) | ApiError::Repeated(_) => true,
            ApiError::Transport { sent, .. } => *sent,
            ApiError::Status(status) => status.code >= 500 && status.reason != reason::INTERNAL_ERROR,
            ApiError::Decode(_) | ApiError::TooLarge(_) | ApiError::NotSent(_) => false,
        }
    }

    /// The kind of error in one word, for metrics and logs.
    pub fn label(&self) -> &'static str {
        match self {
            ApiError::Timeout(_) => "timeout",
            ApiError::Transport { .. } => "transport",
            ApiError::Decode(_) => "decode",
            ApiError::TooLarge(_) => "too_large",
            ApiError::NotSent(_) => "not_sent",
            ApiError::CutOff(_) => "cut_off",
            ApiError::Status(status) | ApiError::Repeated(status) => match status.code {
                _ if self.is_conflict() => "conflict",
                _ if self.is_already_exists() => "already_exists",
                _ if self.is_not_found() => "not_found",
                _ if self.is_namespace_terminating() => "namespace_terminating",
                _ if self.is_forbidden() => "forbidden",
                _ if self.is_invalid() => "invalid",
                _ if self.is_gone() => "gone",
                429 => "too_many_requests",
                500.. => "server_error",
                _ => "refused",
            },
        }
    }
}

/// The API server, as every part of this program calls it. Cheap to clone; clones share the rate limiter.
#[derive(Clone)]
pub struct Api {
    client: Client,
    host: Arc<str>,
    rate_limiter: RateLimiter,
    timeout: Duration,
    fence: Option<Fence>,
    shared_connection: Option<SharedConnection>,
    /// Ends the wait for retries when cancelled; without it nothing is retried.
    pub(super) retry_until: Option<CancellationToken>,
    outage: Outage,
    metrics: Arc<Metrics>,
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api")
            .field("host", &self.host)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

impl Api {
    /// Calls through `client`, delayed by `rate_limiter`. `host` labels the metrics.
    pub fn new(
        client: impl Into<Client>,
        host: &str,
        rate_limiter: RateLimiter,
        metrics: Arc<Metrics>,
    ) -> Self {
        Api {
            client: client.into(),
            host: host.into(),
            rate_limiter,
            timeout: CALL_TIMEOUT,
            fence: None,
            shared_connection: None,
            retry_until: None,
            outage: Outage::default(),
            metrics,
        }
    }

    /// Whether the log tells that the API server cannot be reached.
    pub(crate) fn is_out(&self) -> bool {
        self.outage.is_told()
    }

    /// The same API server, whose outages are logged together with those that others notice.
    pub fn sharing(&self, outage: Outage) -> Self {
        Api { outage, ..self.clone() }
    }

    /// The same API server with another timeout for one call.
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        Api { timeout, ..self.clone() }
    }

    /// The same API server behind a fence. Each write is checked after the wait for the rate
    /// limiter, right before it is sent; a refusal is [`ApiError::NotSent`]. A write that is in flight when
    /// the fence shuts is dropped at that instant, which breaks its connection: [`ApiError::CutOff`].
    /// Reads and watches pass at all times, since a standby keeps its caches current.
    pub fn fenced(&self, fence: Fence) -> Self {
        Api { fence: Some(fence), ..self.clone() }
    }

    /// The same API server, over a connection that all calls with this number share, if the server speaks HTTP/2. At most
    /// 100 may be under way.
    pub(crate) fn over_shared_connection(&self, number: u64) -> Self {
        Api { shared_connection: Some(SharedConnection(number)), ..self.clone() }
    }

    /// The same API server and rate limiter, for calls on behalf of this owner: the rate limiter serves
    /// the owners in turn.
    pub fn on_behalf_of(&self, owner: &Uid) -> Self {
        Api { rate_limiter: self.rate_limiter.on_behalf_of(owner), ..self.clone() }
    }

    /// The metrics that calls are counted in.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Calls and decodes the answer. Use `serde::de::IgnoredAny` where the answer does not matter.
    ///
    /// # Errors
    /// See [`ApiError`]. Only requests that the server asks to repeat are retried: see [`Api::retrying`].
    pub async fn call<T: DeserializeOwned>(&self, request: Request<Vec<u8>>) -> Result<T, ApiError> {
        self.call_while(request, || true).await
    }

    /// The same, for a call that may become useless during a wait for a retry: it is retried only
    /// if `still_wanted` returns true then.
    ///
    /// # Errors
    /// See [`ApiError`]; a call that is no longer needed is [`ApiError::NotSent`] or [`ApiError::CutOff`].
    pub async fn call_while<T: DeserializeOwned>(
        &self,
        request: Request<Vec<u8>>,
        still_wanted: impl Fn() -> bool,
    ) -> Result<T, ApiError> {
        let body = self.bytes_while(request, still_wanted).await?;
        serde_json::from_slice(&body).map_err(ApiError::Decode)
    }

    /// Calls and returns the answer's bytes.
    ///
    /// # Errors
    /// See [`ApiError`].
    pub async fn call_bytes(&self, request: Request<Vec<u8>>) -> Result<Bytes, ApiError> {
        self.bytes_while(request, || true).await
    }

    async fn bytes_while(
        &self,
        request: Request<Vec<u8>>,
        still_wanted: impl Fn() -> bool,
    ) -> Result<Bytes, ApiError> {
        let method = request.method().clone();
        let body = self.send(request, still_wanted).await?;
        self.received(method.as_str(), body.len());
        Ok(body)
    }

    /// Counts an answer that was read to its end.
    pub(crate) fn received(&self, method: &str, bytes: usize) {
        self.metrics.rest_response_size.with_label_values(&[method, &*self.host]).observe(bytes as f64);
    }

    /// Calls and streams the answer, for a watch: the timeout holds only until the
    /// answer begins.
    ///
    /// # Errors
    /// See [`ApiError`].
    pub async fn stream(&self, request: Request<Vec<u8>>) -> Result<Response<Answer>, ApiError> {
        self.measured(request, false, async |response| Ok(response)).await
    }

    /// Why no request of this kind may continue; pending until then, for ever without a fence.
    pub(super) async fn wait_closed(&self, method: &Method) -> &'static str {
        match self.fence.as_ref().filter(|_| *method != Method::GET) {
            Some(fence) => fence.wait_closed().await,
            None => std::future::pending().await,
        }
    }

    /// One request and its answer. `repeated` counts it as a retry as well.
    pub(super) async fn measured<T>(
        &self,
        request: Request<Vec<u8>>,
        repeated: bool,
        read: impl AsyncFnOnce(Response<Answer>) -> Result<T, ApiError>,
    ) -> Result<T, ApiError> {
        let method = request.method().clone();
        let labels = [method.as_str(), &self.host];
        let waited = self.rate_limiter.acquire().await;
        self.metrics.rest_limiter_duration.with_label_values(&labels).observe(waited.as_secs_f64());
        let fence = self.fence.as_ref().filter(|_| method != Method::GET);
        let permit = fence.map(Fence::permit).transpose().map_err(ApiError::NotSent)?;
        self.metrics.rest_request_size.with_label_values(&labels).observe(request.body().len() as f64);
        let start = Instant::now();
        let mut code = None;
        let exchange = async {
            let mut request = request.map(kube::client::Body::from);
            if let Some(number) = self.shared_connection {
                request.extensions_mut().insert(number);
            }
            let response = self.client.send(request).await.map_err(transport)?;
            code = Some(response.status());
            if response.status().is_success() { read(response).await } else { Err(refusal(response).await) }
        };
        let result = tokio::select! {
            // The fence first, so that no part of the call continues once it has shut.
            biased;
            reason = self.wait_closed(&method) => Err(ApiError::CutOff(reason)),
            result = tokio::time::timeout(self.timeout, exchange) => {
                result.unwrap_or(Err(ApiError::Timeout(self.timeout)))
            }
        };
        if let Some(permit) = permit
            && (code.is_some_and(|code| code.is_success())
                || !result.as_ref().is_err_and(ApiError::may_still_happen))
        {
            permit.completed();
        }
        match &result {
            _ if code.is_some() => self.outage.answered(&self.host),
            Err(error @ (ApiError::Transport { .. } | ApiError::Timeout(_))) => {
                self.outage.failed(&self.host, error);
            }
            _ => {}
        }
        self.metrics.rest_duration.with_label_values(&labels).observe(start.elapsed().as_secs_f64());
        let code = code.as_ref().map_or("<error>", StatusCode::as_str);
        let labels = [code, method.as_str(), &self.host];
        self.metrics.rest_requests.with_label_values(&labels).inc();
        if repeated {
            self.metrics.rest_retries.with_label_values(&labels).inc();
        }
        result
    }
}

pub(super) fn transport(error: kube::Error) -> ApiError {
    ApiError::Transport { sent: !never_sent(&error), error: Box::new(error) }
}

/// Whether the request certainly was not sent, because there were no credentials for it, or because the connection
/// was refused. Every other failure may have come after the request was sent.
fn never_sent(error: &kube::Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if error.is::<AuthError>() {
            return true;
        }
        if error.downcast_ref::<legacy::Error>().is_some_and(legacy::Error::is_connect) {
            return true;
        }
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return error.kind() == io::ErrorKind::ConnectionRefused;
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::header::RETRY_AFTER;
    use kube::client::Body;
    use serde::de::IgnoredAny;
    use serde_json::{Value, json};

    use super::*;
    use crate::runtime::leader_election::fence::fence;
    use crate::runtime::request;

    fn answer(code: u16, body: impl Into<Bytes>) -> Response<Body> {
        Response::builder().status(code).body(Body::from(body.into())).unwrap()
    }

    /// An API whose server answers each request with the result of `answer`.
    fn api<F>(answer: F) -> Api
    where
        F: Fn(Request<Body>) -> Response<Body> + Clone + Send + 'static,
    {
        let service = tower::service_fn(move |request| {
            let response = answer(request);
            async move { Ok::<_, Infallible>(response) }
        });
        let client = kube::Client::new(service, "default");
        Api::new(client, "test:443", RateLimiter::unlimited(), Metrics::new())
    }

    async fn error(code: u16, body: Value) -> ApiError {
        let api = api(move |_| answer(code, body.to_string()));
        api.call::<IgnoredAny>(request::get("/x", &[])).await.unwrap_err()
    }

    fn status(reason: &str) -> Value {
        json!({"kind": "Status", "status": "Failure", "reason": reason, "message": "m"})
    }

    #[tokio::test]
    async fn an_answer_is_decoded_and_counted() {
        let api = api(|_| answer(200, r#"{"a":1}"#));
        assert_eq!(api.call::<Value>(request::get("/x", &[])).await.unwrap(), json!({"a": 1}));
        let text = api.metrics().render();
        assert!(
            text.contains(r#"rest_client_requests_total{code="200",host="test:443",method="GET"} 1"#),
            "{text}"
        );
        assert!(
            text.contains(r#"rest_client_request_duration_seconds_count{host="test:443",verb="GET"} 1"#),
            "{text}"
        );
    }

    #[tokio::test]
    async fn a_refused_write_is_known_not_to_have_happened() {
        let conflict = error(409, status("Conflict")).await;
        assert!(conflict.is_conflict() && !conflict.is_already_exists() && !conflict.outcome_unknown());
        let exists = error(409, status("AlreadyExists")).await;
        assert!(exists.is_already_exists() && !exists.is_conflict());
        assert!(error(404, json!({})).await.is_not_found());
        assert!(error(422, status("Invalid")).await.is_invalid());
        assert!(error(410, status("Expired")).await.is_gone());
        let terminating = error(
            403,
            json!({"status": "Failure", "reason": "Forbidden", "details": {"causes": [{"reason": "NamespaceTerminating"}]}}),
        )
        .await;
        assert!(terminating.is_forbidden() && terminating.is_namespace_terminating());
        assert_eq!(terminating.label(), "namespace_terminating");
        let missing = |kind: &str| json!({"reason": "NotFound", "details": {"name": "zoo", "kind": kind}});
        assert!(error(404, missing("namespaces")).await.is_namespace_missing());
        assert!(!error(404, missing("pods")).await.is_namespace_missing());
    }

    #[tokio::test]
    async fn an_error_between_us_and_the_store_leaves_the_outcome_open() {
        for code in [500, 502, 503, 504] {
            assert!(error(code, status("InternalError")).await.outcome_unknown());
        }
        let page = api(|_| answer(502, "<html>secret</html>"));
        let error = page.call::<Value>(request::get("/x", &[])).await.unwrap_err();
        assert_eq!(error.to_string(), "the server answered 502 Bad Gateway without saying why");
        let garbled = api(|_| answer(200, "{\"metadata\":"));
        assert!(garbled.call::<Value>(request::get("/x", &[])).await.unwrap_err().outcome_unknown());
    }

    #[tokio::test]
    async fn an_error_of_the_api_server_is_a_refusal_and_a_proxys_page_is_not() {
        for code in [400, 401, 403, 405, 409, 413, 422, 500, 502, 503] {
            assert!(error(code, status("Whatever")).await.is_refusal(), "{code}");
        }
        assert!(!error(504, status("Timeout")).await.is_refusal(), "its own limit on time");
        for (code, says_no) in [(404, true), (500, true), (502, false), (503, false), (504, false)] {
            let page = api(move |_| answer(code, "<html>"));
            let error = page.call::<Value>(request::get("/x", &[])).await.unwrap_err();
            assert_eq!(error.is_refusal(), says_no, "{code}");
        }
        assert!(!ApiError::Timeout(CALL_TIMEOUT).is_refusal());
    }

    #[tokio::test]
    async fn a_refused_connection_is_known_to_have_done_nothing_and_a_broken_one_is_not() {
        for (kind, unknown) in [(io::ErrorKind::ConnectionRefused, false), (io::ErrorKind::BrokenPipe, true)]
        {
            let service = tower::service_fn(move |_: Request<Body>| async move {
                Err::<Response<Body>, _>(io::Error::from(kind))
            });
            let client = kube::Client::new(service, "default");
            let api = Api::new(client, "h", RateLimiter::unlimited(), Metrics::new());
            let error = api.call::<Value>(request::get("/x", &[])).await.unwrap_err();
            assert_eq!(error.outcome_unknown(), unknown, "{error}");
            assert!(api.metrics().render().contains(r#"code="<error>""#));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_server_times_out_and_waiting_in_the_limiter_does_not_count() {
        let service = tower::service_fn(|_: Request<Body>| async move {
            tokio::time::sleep(Duration::from_secs(20)).await;
            Ok::<_, Infallible>(answer(200, "1"))
        });
        let client = kube::Client::new(service, "default");
        let api = Api::new(client, "h", RateLimiter::new(1.0 / 25.0, 1), Metrics::new());
        let call = || api.call::<u32>(request::get("/x", &[]));
        let both = tokio::join!(call(), call());
        assert!(both.0.is_ok() && both.1.is_ok(), "the second waited 25 s and took 20 s: {both:?}");
        let hasty = api.with_timeout(Duration::from_secs(19));
        let error = hasty.call::<u32>(request::get("/x", &[])).await.unwrap_err();
        assert!(matches!(error, ApiError::Timeout(_)) && error.outcome_unknown());
    }

    #[tokio::test]
    async fn no_answer_of_the_server_causes_a_retry() {
        let calls = Arc::new(AtomicUsize::new(0));
        let seen = calls.clone();
        let api = api(move |_| {
            seen.fetch_add(1, Ordering::Relaxed);
            answer(503, "")
        });
        let post = request::post("/x", &[], &json!({})).unwrap();
        assert!(api.call::<Value>(post).await.is_err());
        assert_eq!(calls.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn retry_after_is_read_from_the_header_or_the_body_and_capped() {
        for (header, seconds) in [("7", 7), ("1000000000", 60), ("-1", 0), ("soon", 0)] {
            let api = api(move |_| {
                let mut response = answer(429, status("TooManyRequests").to_string());
                response.headers_mut().insert(RETRY_AFTER, header.parse().unwrap());
                response
            });
            let error = api.call::<Value>(request::get("/x", &[])).await.unwrap_err();
            assert_eq!(error.retry_after().unwrap_or_default(), Duration::from_secs(seconds), "{header}");
        }
        let mut body = status("ServerTimeout");
        body["details"] = json!({"retryAfterSeconds": 3});
        assert_eq!(error(500, body).await.retry_after(), Some(Duration::from_secs(3)));
    }

    #[tokio::test]
    async fn an_answer_above_the_limit_is_not_read_to_its_end() {
        let service = tower::service_fn(|_: Request<Body>| async {
            let frame = || Ok::<_, Infallible>(http_body::Frame::data(Bytes::from(vec![b' '; 100])));
            let frames = futures::stream::iter((0..10).map(move |_| frame()));
            Ok::<_, Infallible>(Response::new(http_body_util::StreamBody::new(frames)))
        });
        let client = Client::from(kube::Client::new(service, "default"));
        let send = || client.send(Request::new(Body::empty()));
        assert_eq!(collect(send().await.unwrap(), 1000).await.unwrap().len(), 1000);
        assert!(matches!(collect(send().await.unwrap(), 999).await, Err(ApiError::TooLarge(999))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_fence_stops_writes_before_they_are_sent_and_lets_reads_pass() {
        let sent = Arc::new(AtomicUsize::new(0));
        let seen = sent.clone();
        let (control, fence) = fence();
        let api = api(move |_| {
            seen.fetch_add(1, Ordering::Relaxed);
            answer(200, "{}")
        })
        .fenced(fence);
        let post = || request::post("/x", &[], &json!({})).unwrap();
        assert!(matches!(api.call::<Value>(post()).await.unwrap_err(), ApiError::NotSent(_)));
        control.extend(Instant::now() + Duration::from_secs(10));
        assert!(api.call::<Value>(post()).await.is_ok());
        tokio::time::sleep(Duration::from_secs(10)).await;
        let error = api.call::<Value>(post()).await.unwrap_err();
        assert!(matches!(error, ApiError::NotSent(_)) && !error.outcome_unknown(), "{error}");
        assert!(api.call::<Value>(request::get("/x", &[])).await.is_ok());
        assert_eq!(sent.load(Ordering::Relaxed), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_waits_for_the_rate_limit_past_the_deadline_is_not_sent() {
        let (control, fence) = fence();
        let client = kube::Client::new(
            tower::service_fn(|_: Request<Body>| async { Ok::<_, Infallible>(answer(200, "{}")) }),
            "default",
        );
        let api = Api::new(client, "h", RateLimiter::new(1.0 / 15.0, 1), Metrics::new()).fenced(fence);
        control.extend(Instant::now() + Duration::from_secs(10));
        let post = || request::post("/x", &[], &json!({})).unwrap();
        assert!(api.call::<Value>(post()).await.is_ok());
        assert!(matches!(api.call::<Value>(post()).await.unwrap_err(), ApiError::NotSent(_)));
    }

    #[tokio::test(start_paused = true)]
    async fn writes_under_way_are_cut_off_at_the_deadline_as_it_stands_then() {
        let service = tower::service_fn(|_: Request<Body>| async {
            tokio::time::sleep(Duration::from_secs(25)).await;
            Ok::<_, Infallible>(answer(200, "{}"))
        });
        let client = kube::Client::new(service, "default");
        let (control, fence) = fence();
        let api = Api::new(client, "h", RateLimiter::unlimited(), Metrics::new()).fenced(fence);
        let start = Instant::now();
        control.extend(start + Duration::from_secs(10));
        let slow = api.clone();
        let write =
            tokio::spawn(
                async move { slow.call::<Value>(request::post("/x", &[], &json!({})).unwrap()).await },
            );
        let slow = api.clone();
        let read = tokio::spawn(async move { slow.call::<Value>(request::get("/x", &[])).await });
        tokio::time::sleep(Duration::from_secs(8)).await;
        control.extend(start + Duration::from_secs(18));
        let error = write.await.unwrap().unwrap_err();
        assert!(matches!(error, ApiError::CutOff(_)) && error.outcome_unknown(), "{error}");
        assert_eq!(start.elapsed(), Duration::from_secs(18));
        assert!(read.await.unwrap().is_ok());
    }
}
