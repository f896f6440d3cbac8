//! Authentication and authorization in front of the secure routes, with a rate limit per source address.
//!
//! A request without good credentials costs its address a token, before any review is sent. So does the judging of a
//! connection's client certificates, whose token is returned if they are good.
//! A review costs a token of a smaller bucket, which is returned after a good answer. So
//! a client that guesses tokens or paths gets a tenth of the reviews, and known clients with
//! permission get the rest.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use percent_encoding::percent_decode_str;
use serde_json::json;
use tokio::time::Instant;

use super::authentication::{
    Bearer, Certified, ClientChain, ClientIdentity, Throttled, TokenReviewer, User, bearer_token,
};
use super::authorization::{Action, Authorizer, Decision, Question};
use super::connection_limits::AddressLimiter;
use super::listener::{AllowedRequest, Peer};
use super::log_limit::LogLimit;
use super::metrics::ServingMetrics;
use super::review_cache::NotReviewed;
use super::router::plain;

/// The middleware.
pub(super) struct Access {
    pub(super) limiter: AddressLimiter,
    /// The rate limit of reviews without a good answer.
    pub(super) reviews: AddressLimiter,
    pub(super) certified: Certified,
    pub(super) tokens: TokenReviewer,
    pub(super) authorizer: Authorizer,
    pub(super) metrics: ServingMetrics,
    /// Of reviews that got no answer: for each request of a client that is not throttled, as long as the API server is away.
    pub(super) failures: ReviewFailures,
}

/// Bounds the log lines about each kind of review.
#[derive(Default)]
pub(super) struct ReviewFailures {
    tokens: LogLimit,
    accesses: LogLimit,
}

/// Why a request is refused.
enum Refusal {
    /// The client is throttled; with the reason in one word.
    TooMany(&'static str),
    /// The credentials are not valid.
    Unauthorized,
    /// The user may not read the path.
    Forbidden { user: String, path: String, reason: String },
    /// The permission could not be checked.
    Unknown { path: String, reason: String },
}

/// Passes a request on, or answers with the refusal.
pub(super) async fn admit(State(access): State<Arc<Access>>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let mut response = match access.judge(&parts).await {
        Ok(user) => {
            // A handler cannot log or serve what it does not see.
            access.certified.strip(&mut parts.headers);
            let mut response = next.run(Request::from_parts(parts, body)).await;
            if user != User::anonymous() {
                response.extensions_mut().insert(AllowedRequest);
            }
            response
        }
        Err(refusal) => access.refuse(refusal),
    };
    let private = HeaderValue::from_static("no-cache, private");
    response.headers_mut().entry(header::CACHE_CONTROL).or_insert(private);
    response
}

/// The middleware of plain HTTP: it authenticates no user, so it only limits the rate.
pub(super) async fn slow_down(
    State(gate): State<Arc<(AddressLimiter, ServingMetrics)>>,
    request: Request,
    next: Next,
) -> Response {
    let (limiter, metrics) = &*gate;
    if !limiter.take(address(request.extensions().get()), Instant::now()) {
        return too_many("address", metrics);
    }
    next.run(request).await
}

/// Without a peer, as in a test without a socket, all share one address.
fn address(peer: Option<&Peer>) -> IpAddr {
    peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.address)
}

impl From<NotReviewed> for Refusal {
    fn from(not_reviewed: NotReviewed) -> Self {
        Refusal::TooMany(match not_reviewed {
            NotReviewed::Overloaded => "reviews",
            NotReviewed::Throttled => "address",
        })
    }
}

impl From<Throttled> for Refusal {
    fn from(_: Throttled) -> Self {
        Refusal::TooMany("address")
    }
}

fn too_many(reason: &str, metrics: &ServingMetrics) -> Response {
    metrics.requests_limited.with_label_values(&[reason]).inc();
    let text = "Too many requests, please try again later.\n".to_owned();
    let mut response = plain(StatusCode::TOO_MANY_REQUESTS, text);
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

impl Access {
    /// The user who may do this.
    async fn judge(&self, request: &Parts) -> Result<User, Refusal> {
        let peer = request.extensions.get::<Peer>();
        let address = address(peer);
        let chain = peer.map(|peer| &peer.certificates);
        let mut charged = false;
        let user = self.authenticate(request, chain, address, &mut charged).await?;
        // As RBAC rules are written, without percent signs. The router takes the path as received, so
        // that no second spelling of a path leads to its handler.
        let path = percent_decode_str(request.uri.path()).decode_utf8_lossy().into_owned();
        let verb = request.method.as_str().to_ascii_lowercase();
        let question = Question { user: user.clone(), action: Action { path, verb } };
        self.authorize(question, address, charged).await?;
        Ok(user)
    }

    /// Takes a token from the address, if this request has not taken one before.
    fn charge(&self, address: IpAddr, charged: &mut bool) -> Result<(), Refusal> {
        if !*charged && !self.limiter.take(address, Instant::now()) {
            return Err(Refusal::TooMany("address"));
        }
        *charged = true;
        Ok(())
    }

    async fn authenticate(
        &self,
        request: &Parts,
        chain: Option<&ClientChain>,
        address: IpAddr,
        charged: &mut bool,
    ) -> Result<User, Refusal> {
        let headers = &request.headers;
        let mut refused = None;
        if let Some(chain) = chain {
            let mut token = self.limiter.reserve(address);
            let pay = || token.take(Instant::now());
            match self.certified.authenticate(headers, chain, pay).await? {
                ClientIdentity::User(user) => {
                    token.return_token();
                    return Ok(self.authenticated(user));
                }
                ClientIdentity::Refused(reason) => refused = Some(reason),
                ClientIdentity::None => {}
            }
            *charged = token.is_taken();
        }
        let Some(token) = bearer_token(headers) else {
            self.charge(address, charged)?;
            return match refused {
                Some(reason) => Err(self.unauthenticated("failure", address, &reason)),
                None => Ok(User::anonymous()),
            };
        };
        if let Some(Bearer::User(user)) = self.tokens.known(token) {
            return Ok(self.authenticated(*user));
        }
        if !self.tokens.was_good(token) {
            self.charge(address, charged)?;
        }
        let mut reservation = self.reviews.reserve(address);
        match self.tokens.review(token, || reservation.take(Instant::now())).await? {
            Bearer::User(user) => {
                reservation.return_token();
                Ok(self.authenticated(*user))
            }
            Bearer::Refused(reason) => Err(self.unauthenticated("failure", address, &reason)),
            Bearer::Failed(reason) => Err(self.unauthenticated("error", address, &reason)),
        }
    }

    fn authenticated(&self, user: User) -> User {
        self.metrics.authentications.with_label_values(&["success"]).inc();
        user
    }

    fn unauthenticated(&self, result: &str, address: IpAddr, reason: &str) -> Refusal {
        self.metrics.authentications.with_label_values(&[result]).inc();
        if result == "error" {
            if self.failures.tokens.admits(Instant::now()) {
                tracing::warn!(%address, reason, "token could not be reviewed; the request is refused");
            }
        } else {
            tracing::debug!(%address, reason, "request credentials are invalid");
        }
        Refusal::Unauthorized
    }

    async fn authorize(&self, question: Question, address: IpAddr, mut charged: bool) -> Result<(), Refusal> {
        let decision = match self.authorizer.at_once(&question) {
            Some(decision) => decision,
            None => {
                if question.user == User::anonymous() {
                    self.charge(address, &mut charged)?;
                }
                let mut reservation = self.reviews.reserve(address);
                let pay = || reservation.take(Instant::now());
                let decision = self.authorizer.review(question.clone(), pay).await?;
                if decision == Decision::Allowed {
                    reservation.return_token();
                }
                decision
            }
        };
        let (result, refusal) = match decision {
            Decision::Allowed => ("allowed", None),
            Decision::Denied(reason) => {
                let (user, path) = (question.user.name, question.action.path);
                tracing::debug!(user, path, reason, "request is forbidden");
                ("denied", Some((question.action.verb, user, path, reason)))
            }
            Decision::Failed(reason) => {
                self.metrics.authorizations.with_label_values(&["error"]).inc();
                if self.failures.accesses.admits(Instant::now()) {
                    tracing::warn!(reason, "access could not be reviewed; the request is refused");
                }
                return Err(Refusal::Unknown { path: question.action.path, reason });
            }
        };
        self.metrics.authorizations.with_label_values(&[result]).inc();
        match refusal {
            None => Ok(()),
            Some((verb, user, path, reason)) => {
                let path = format!("{verb} path \"{path}\"");
                Err(Refusal::Forbidden { user, path, reason })
            }
        }
    }

    fn refuse(&self, refusal: Refusal) -> Response {
        match refusal {
            Refusal::TooMany(reason) => too_many(reason, &self.metrics),
            Refusal::Unauthorized => status(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized"),
            Refusal::Forbidden { user, path, reason } => {
                let because = if reason.is_empty() { String::new() } else { format!(": {reason}") };
                let message = format!("forbidden: User \"{user}\" cannot {path}{because}");
                status(StatusCode::FORBIDDEN, "Forbidden", &message)
            }
            Refusal::Unknown { path, reason } => {
                let text = format!("Internal Server Error: {path:?}: {reason}\n");
                plain(StatusCode::INTERNAL_SERVER_ERROR, text)
            }
        }
    }
}

/// A `Status`, as components of Kubernetes answer.
fn status(code: StatusCode, reason: &str, message: &str) -> Response {
    let mut body = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code.as_u16(),
    });
    if code == StatusCode::FORBIDDEN {
        body["details"] = json!({});
    }
    let headers = [(header::CONTENT_TYPE, "application/json"), (header::X_CONTENT_TYPE_OPTIONS, "nosniff")];
    (code, headers, format!("{body}\n")).into_response()
}
