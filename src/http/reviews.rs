//! Sends reviews to the API server, with separate rate limits.

use std::sync::Arc;
use std::time::Duration;

use prometheus::IntCounterVec;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::review_cache::ClientClass;
use crate::metrics::Metrics;
use crate::runtime::api::{Api, ApiError};
use crate::runtime::client::Client;
use crate::runtime::rate_limiter::RateLimiter;
use crate::runtime::request;

/// How many reviews of one kind are sent per second, and at once. A scraper needs one in ten
/// seconds; more come from clients that guess.
const REVIEWS: (f64, u32) = (20.0, 40);

/// How often the ConfigMap may be read. Once a minute is the rule.
const LOOK_UPS: (f64, u32) = (5.0, 10);

/// How long a call may take; upstream's.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The clients for authentication and authorization. Each has a rate limit of its own, so that a flood
/// of requests to us delays neither the controllers nor the other clients; see [`Reviewers::new`].
#[derive(Clone, Debug)]
pub struct Reviewers {
    /// For authentication; `--authentication-kubeconfig`.
    pub authentication: Authentication,
    /// For authorization: SubjectAccessReviews; `--authorization-kubeconfig`.
    pub authorization: Reviews,
}

/// The client for authentication.
#[derive(Clone, Debug)]
pub struct Authentication {
    /// For the ConfigMap with the API server's own client CAs.
    pub(super) look_up: Api,
    /// For TokenReviews.
    pub(super) tokens: Reviews,
}

/// The clients for reviews of one kind.
#[derive(Clone, Debug)]
pub struct Reviews {
    /// For those without a good answer so far.
    unknown_clients: Api,
    /// For those whose last answer was good.
    known_clients: Api,
}

impl Reviewers {
    /// All through one client. `host` labels the metrics.
    pub fn new(client: impl Into<Client>, host: &str, metrics: Arc<Metrics>) -> Self {
        let client = client.into();
        let api = |(qps, burst)| {
            let rate_limiter = RateLimiter::new(qps, burst);
            Api::new(client.clone(), host, rate_limiter, metrics.clone()).with_timeout(TIMEOUT)
        };
        let reviews = || Reviews { unknown_clients: api(REVIEWS), known_clients: api(REVIEWS) };
        let authentication = Authentication { look_up: api(LOOK_UPS), tokens: reviews() };
        Reviewers { authentication, authorization: reviews() }
    }
}

/// A kind of review.
pub(super) struct Kind {
    pub(super) path: &'static str,
    pub(super) api_version: &'static str,
    pub(super) kind: &'static str,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Review<S> {
    status: S,
}

impl Reviews {
    /// Sends a review, and returns its status. `counted` counts the answers by their code.
    pub(super) async fn ask<S>(
        &self,
        class: ClientClass,
        kind: &Kind,
        spec: &impl Serialize,
        counted: &IntCounterVec,
    ) -> Result<S, ApiError>
    where
        S: Default + DeserializeOwned,
    {
        let Kind { path, api_version, kind } = kind;
        let body = json!({"apiVersion": api_version, "kind": kind, "spec": spec});
        let unwritable = |_| ApiError::NotSent("it cannot be written as JSON");
        let request = request::post(path, &[], &body).map_err(unwritable)?;
        let api = match class {
            ClientClass::Known => &self.known_clients,
            ClientClass::Unknown => &self.unknown_clients,
        };
        let answer = api.call::<Review<S>>(request).await;
        let code = match &answer {
            Ok(_) => "200".to_owned(),
            Err(error) => {
                error.status().map_or_else(|| "<error>".to_owned(), |status| status.code.to_string())
            }
        };
        counted.with_label_values(&[&code]).inc();
        answer.map(|review| review.status)
    }
}
