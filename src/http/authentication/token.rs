//! A bearer token: the API server says whose it is, by a TokenReview.

use std::time::Duration;

use axum::http::{HeaderMap, header};
use ring::digest::{SHA256, digest};
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;

use super::User;
use crate::http::counters::ServingMetrics;
use crate::http::review_cache::{Overloaded, ReviewCache};
use crate::runtime::api::{Api, ApiError};
use crate::runtime::request;

const PATH: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

/// How long a refusal is kept at most: a token may be known to the API server a moment later.
const REFUSED: Duration = Duration::from_secs(5);

/// How long is remembered that there was no answer, so that an API server in trouble is not asked for
/// each request. Upstream asks each time.
const FAILED: Duration = Duration::from_secs(1);

/// The token of an `Authorization: Bearer` header. Other schemes are not ours and count as nothing.
pub(in crate::http) fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let mut words = headers.get(header::AUTHORIZATION)?.to_str().ok()?.trim().split(' ');
    let scheme = words.next()?;
    let token = words.next()?;
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// What the API server says of a token.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::http) enum Bearer {
    /// It is this user's.
    User(Box<User>),
    /// It is nobody's.
    Refused(String),
    /// There was no answer.
    Failed(String),
}

/// The hash of a token: the cache holds no secrets.
type Hash = [u8; 32];

/// Asks for TokenReviews, and keeps the answers for a while.
pub(in crate::http) struct TokenReviewer {
    api: Api,
    ttl: Duration,
    cache: ReviewCache<Hash, Bearer>,
    metrics: ServingMetrics,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Review {
    status: ReviewStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ReviewStatus {
    authenticated: bool,
    user: User,
    error: String,
}

impl TokenReviewer {
    /// `ttl` is how long an answer is kept.
    pub(in crate::http) fn new(api: Api, ttl: Duration, metrics: ServingMetrics) -> Self {
        TokenReviewer { api, ttl, cache: ReviewCache::default(), metrics }
    }

    /// What is known of the token without asking.
    pub(in crate::http) fn known(&self, token: &str) -> Option<Bearer> {
        let known = self.cache.known(&hash(token), Instant::now());
        if known.is_some() {
            self.metrics.token_cache.with_label_values(&["hit"]).inc();
        }
        known
    }

    /// Whose the token is.
    pub(in crate::http) async fn review(&self, token: &str) -> Result<Bearer, Overloaded> {
        self.metrics.token_cache.with_label_values(&["miss"]).inc();
        let (api, metrics, ttl) = (self.api.clone(), self.metrics.clone(), self.ttl);
        let token = token.to_owned();
        self.cache
            .get(hash(&token), || async move {
                let bearer = ask(&api, &token, &metrics).await;
                let keep = match &bearer {
                    Bearer::User(_) => ttl,
                    Bearer::Refused(_) => ttl.min(REFUSED),
                    Bearer::Failed(_) => FAILED,
                };
                (bearer, keep)
            })
            .await
    }
}

fn hash(token: &str) -> Hash {
    let mut hash = Hash::default();
    hash.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
    hash
}

async fn ask(api: &Api, token: &str, metrics: &ServingMetrics) -> Bearer {
    let body = json!({
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": token},
    });
    let request = match request::post(PATH, &[], &body) {
        Ok(request) => request,
        Err(error) => return Bearer::Failed(error.to_string()),
    };
    let answer = api.call::<Review>(request).await;
    metrics.token_reviews.with_label_values(&[&code(&answer)]).inc();
    match answer {
        Ok(Review { status: ReviewStatus { authenticated: true, user, .. } }) => {
            Bearer::User(Box::new(user.authenticated()))
        }
        Ok(Review { status }) if status.error.is_empty() => Bearer::Refused("invalid bearer token".into()),
        Ok(Review { status }) => Bearer::Refused(status.error),
        Err(error) => Bearer::Failed(error.to_string()),
    }
}

/// The status code of an answer, for metrics.
pub(in crate::http) fn code<T>(answer: &Result<T, ApiError>) -> String {
    match answer {
        Ok(_) => "200".to_owned(),
        Err(error) => error.status().map_or_else(|| "<error>".to_owned(), |status| status.code.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_bearer_scheme_is_ours() {
        let token = |value: &'static str| {
            let headers =
                HeaderMap::from_iter([(header::AUTHORIZATION, header::HeaderValue::from_static(value))]);
            bearer_token(&headers).map(str::to_owned)
        };
        assert_eq!(token("Bearer abc").as_deref(), Some("abc"));
        assert_eq!(token("  bearer abc  ").as_deref(), Some("abc"));
        for nothing in ["Basic abc", "Bearer", "Bearer ", "abc", "Bearer  abc"] {
            assert_eq!(token(nothing), None, "{nothing}");
        }
    }
}
