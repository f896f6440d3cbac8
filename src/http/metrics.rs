//! The metrics of serving: under upstream's names where it has them.

use prometheus::core::Collector;
use prometheus::{IntCounter, IntCounterVec, IntGaugeVec, Opts};

use crate::metrics::Metrics;

/// The metrics of the listeners, the certificates and the reviews. Cheap to clone; clones share the counts.
#[derive(Clone, Debug)]
pub struct ServingMetrics {
    /// Open connections, `{listener}`.
    pub connections: IntGaugeVec,
    /// Connections that we closed, `{listener, reason}`.
    pub connections_closed: IntCounterVec,
    /// TLS handshakes that failed.
    pub handshake_errors: IntCounter,
    /// Requests answered with 429 by the limit of their address or the total one, `{reason}`.
    pub requests_limited: IntCounterVec,
    /// Checks of the certificate files that found a change, `{result}`: `reloaded` or `failed`.
    pub certificate_reloads: IntCounterVec,
    /// Checks of the certificate authorities of clients, `{result}`: `reloaded` or `failed`.
    pub trust_reloads: IntCounterVec,
    /// Authentication attempts, `{result}`: `success`, `failure` or `error`.
    pub authentications: IntCounterVec,
    /// Authorization attempts, `{result}`: `allowed`, `denied` or `error`.
    pub authorizations: IntCounterVec,
    /// TokenReviews sent, `{code}`; `<error>` without an answer.
    pub token_reviews: IntCounterVec,
    /// SubjectAccessReviews sent, `{code}`.
    pub access_reviews: IntCounterVec,
    /// Uses of the cache of TokenReviews, `{status}`: `hit` or `miss`.
    pub token_cache: IntCounterVec,
}

impl ServingMetrics {
    /// Registers the counters with `metrics`. To be called once for each `Metrics`: the counts of a second
    /// call are not rendered, and the log says so.
    pub fn new(metrics: &Metrics) -> Self {
        let counter = |name, help, labels: &[&str]| {
            register(metrics, IntCounterVec::new(Opts::new(name, help), labels))
        };
        ServingMetrics {
            connections: register(
                metrics,
                IntGaugeVec::new(Opts::new("windlass_http_connections", "Open connections."), &["listener"]),
            ),
            connections_closed: counter(
                "windlass_http_connections_closed_total",
                "Connections closed by the server before the client did.",
                &["listener", "reason"],
            ),
            handshake_errors: register(
                metrics,
                IntCounter::new("apiserver_tls_handshake_errors_total", "TLS handshakes that failed."),
            ),
            requests_limited: counter(
                "windlass_http_requests_limited_total",
                "Requests answered with 429, by the limit that was exceeded.",
                &["reason"],
            ),
            certificate_reloads: counter(
                "windlass_tls_certificate_reloads_total",
                "Reloads of the serving certificate files, by result.",
                &["result"],
            ),
            trust_reloads: counter(
                "windlass_tls_client_ca_reloads_total",
                "Reloads of the client certificate authorities, by result.",
                &["result"],
            ),
            authentications: counter(
                "authentication_attempts",
                "Authentications of requests, by result.",
                &["result"],
            ),
            authorizations: counter(
                "authorization_attempts_total",
                "Authorizations of requests, by result.",
                &["result"],
            ),
            token_reviews: counter(
                "apiserver_delegated_authn_request_total",
                "TokenReviews by status code.",
                &["code"],
            ),
            access_reviews: counter(
                "apiserver_delegated_authz_request_total",
                "SubjectAccessReviews by status code.",
                &["code"],
            ),
            token_cache: counter(
                "authentication_token_cache_request_total",
                "Lookups in the cache of TokenReviews, by hit or miss.",
                &["status"],
            ),
        }
    }
}

fn register<C: Collector + Clone + 'static>(metrics: &Metrics, built: prometheus::Result<C>) -> C {
    let collector = built.expect("the name and the labels are literals of this file");
    if let Err(error) = metrics.registry().register(Box::new(collector.clone())) {
        tracing::error!(%error, "could not register a metric of the HTTP server; it is not served");
    }
    collector
}
