//! Authenticates a request: by client certificate, by the headers of a front proxy, by bearer token; else anonymous.
//!
//! The order and the rules are those of a delegating server (`k8s.io/apiserver` `authenticatorfactory`):
//! the first of the three that authenticates decides; an invalid credential is refused
//! with 401, and a request without any is `system:anonymous`.

mod certificate;
mod client_ca;
mod client_chain;
mod front_proxy;
mod token;
mod user;

use std::sync::Arc;

use axum::http::HeaderMap;

use crate::clock::Clock;

pub(super) use client_ca::TrustSource;
pub use client_ca::{RequestHeaderOptions, TrustError};
pub use client_chain::ClientChain;
use client_chain::Judge;
pub(super) use client_chain::Throttled;
pub(super) use token::{Bearer, TokenReviewer, bearer_token};
pub use user::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, User};

/// The result without a call to the API server.
#[derive(Debug, PartialEq)]
pub(super) enum ClientIdentity {
    /// The user is known.
    User(User),
    /// The certificate is not valid, with the reason. A token may still be.
    Refused(String),
    /// There are no credentials.
    None,
}

/// Authenticates by certificates and headers.
pub(super) struct Certified {
    trust: Arc<TrustSource>,
    clock: Clock,
    judge: Judge,
}

impl Certified {
    /// By these authorities.
    pub(super) fn new(trust: Arc<TrustSource>, clock: Clock) -> Self {
        Certified { trust, clock, judge: Judge::default() }
    }

    /// `pay` decides whether a chain that is not judged yet is judged.
    ///
    /// # Errors
    /// When `pay` refuses.
    pub(super) async fn authenticate(
        &self,
        headers: &HeaderMap,
        chain: &ClientChain,
        pay: impl FnOnce() -> bool,
    ) -> Result<ClientIdentity, Throttled> {
        // Headers of a front proxy count only with the proxy's own certificate.
        if chain.is_empty() {
            return Ok(ClientIdentity::None);
        }
        let trust = self.trust.current();
        let now = u64::try_from(self.clock.now().as_second()).unwrap_or_default();
        let verdict = self.judge.verdict(chain, trust.clone(), now, pay).await?;
        let proxied = match (&trust.front_proxy, &verdict.proxy) {
            (Some(proxy), Some(Ok(()))) => proxy.user(headers),
            _ => None,
        };
        if let Some(user) = proxied {
            return Ok(ClientIdentity::User(user.authenticated()));
        }
        Ok(match (&verdict.user, &verdict.proxy) {
            (Ok(Some(user)), _) => ClientIdentity::User(user.clone().authenticated()),
            (Err(reason), _) | (Ok(None), Some(Err(reason))) => ClientIdentity::Refused(reason.clone()),
            (Ok(None), _) => ClientIdentity::None,
        })
    }

    /// The names of headers that a handler must not see.
    pub(super) fn strip(&self, headers: &mut HeaderMap) {
        headers.remove(axum::http::header::AUTHORIZATION);
        if let Some(proxy) = &self.trust.current().front_proxy {
            proxy.strip(headers);
        }
    }
}
