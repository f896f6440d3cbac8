//! Authenticates a bearer token by a TokenReview of the API server.

use std::time::Duration;

use axum::http::{HeaderMap, header};
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;

use super::user::User;
use crate::http::metrics::ServingMetrics;
use crate::http::review_cache::{Answered, ClientClass, Key, NotReviewed, ReviewCache, shorten};
use crate::http::reviews::{Kind, Reviews};

const REVIEW: Kind = Kind {
    path: "/apis/authentication.k8s.io/v1/tokenreviews",
    api_version: "authentication.k8s.io/v1",
    kind: "TokenReview",
};

/// How long a refusal is cached at most: the API server may accept the token a moment later.
const REFUSED: Duration = Duration::from_secs(5);

/// How long a missing answer is cached, so that an API server with problems is not called for
/// each request. Upstream calls it each time.
const FAILED: Duration = Duration::from_secs(1);

/// The token of an `Authorization: Bearer` header. Other schemes are ignored.
pub(in crate::http) fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let mut words = headers.get(header::AUTHORIZATION)?.to_str().ok()?.trim().split(' ');
    let scheme = words.next()?;
    let token = words.next()?;
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// The answer to a TokenReview.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::http) enum Bearer {
    /// The token of this user.
    User(Box<User>),
    /// The token is not valid.
    Refused(String),
    /// There was no answer.
    Failed(String),
}

/// Sends TokenReviews, and caches the answers.
pub(in crate::http) struct TokenReviewer {
    reviews: Reviews,
    ttl: Duration,
    cache: ReviewCache<Bearer>,
    metrics: ServingMetrics,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    authenticated: bool,
    user: User,
    error: String,
}

impl TokenReviewer {
    /// `ttl` is how long an answer is cached.
    pub(in crate::http) fn new(reviews: Reviews, ttl: Duration, metrics: ServingMetrics) -> Self {
        TokenReviewer { reviews, ttl, cache: ReviewCache::default(), metrics }
    }

    /// The cached answer.
    pub(in crate::http) fn known(&self, token: &str) -> Option<Bearer> {
        let known = self.cache.known(Key::of(token.as_bytes()), Instant::now());
        if known.is_some() {
            self.metrics.token_cache.with_label_values(&["hit"]).inc();
        }
        known
    }

    /// Whether the last review accepted it.
    pub(in crate::http) fn was_good(&self, token: &str) -> bool {
        self.cache.class(Key::of(token.as_bytes()), Instant::now()) == ClientClass::Known
    }

    /// The user of the token. `pay` is called before a review is sent, for a token that was not
    /// accepted before.
    pub(in crate::http) async fn review(
        &self,
        token: &str,
        pay: impl FnOnce() -> bool,
    ) -> Result<Bearer, NotReviewed> {
        self.metrics.token_cache.with_label_values(&["miss"]).inc();
        let (reviews, metrics, ttl) = (self.reviews.clone(), self.metrics.clone(), self.ttl);
        let (question, token) = (Key::of(token.as_bytes()), token.to_owned());
        let ask = |class| async move {
            let answer = ask(&reviews, class, &token, &metrics).await;
            let (keep, good) = match &answer {
                Bearer::User(_) => (ttl, Some(true)),
                Bearer::Refused(_) => (ttl.min(REFUSED), Some(false)),
                Bearer::Failed(_) => (FAILED, None),
            };
            Answered { answer, keep, good }
        };
        self.cache.get(question, pay, ask).await
    }
}

async fn ask(reviews: &Reviews, class: ClientClass, token: &str, metrics: &ServingMetrics) -> Bearer {
    let spec = json!({"token": token});
    match reviews.ask(class, &REVIEW, &spec, &metrics.token_reviews).await {
        Ok(Status { authenticated: true, user, .. }) => Bearer::User(Box::new(user.authenticated())),
        Ok(Status { error, .. }) if error.is_empty() => Bearer::Refused("invalid bearer token".into()),
        Ok(Status { error, .. }) => Bearer::Refused(shorten(error)),
        Err(error) => Bearer::Failed(shorten(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_bearer_scheme_is_accepted() {
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
