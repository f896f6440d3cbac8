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

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::http::HeaderMap;
use serde::{Deserialize, Serialize};

use crate::clock::Clock;

pub(super) use client_ca::TrustSource;
pub use client_ca::{RequestHeaderOptions, TrustError};
pub use client_chain::ClientChain;
use client_chain::Judge;
pub(super) use client_chain::Throttled;
pub(super) use token::{Bearer, TokenReviewer, bearer_token};

/// The group of all authenticated users.
pub const AUTHENTICATED: &str = "system:authenticated";

/// The group of all others.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";

/// The name of an unauthenticated user.
pub const ANONYMOUS: &str = "system:anonymous";

/// A user, in the form of a review.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct User {
    /// The name.
    #[serde(rename(serialize = "user", deserialize = "username"))]
    pub name: String,
    /// Distinguishes two users of one name; often empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The groups.
    pub groups: Vec<String>,
    /// Extra attributes, by key.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// The user of a request without credentials.
    pub fn anonymous() -> Self {
        User { name: ANONYMOUS.to_owned(), groups: vec![UNAUTHENTICATED.to_owned()], ..User::default() }
    }

    /// Adds the group of all authenticated users. A user called anonymous is not authenticated, whatever the source
    /// (upstream: `AuthenticatedGroupAdder`).
    fn authenticated(mut self) -> Self {
        if self.name == ANONYMOUS {
            return self;
        }
        let marks = [AUTHENTICATED, UNAUTHENTICATED];
        if !self.groups.iter().any(|group| marks.contains(&group.as_str())) {
            self.groups.push(AUTHENTICATED.to_owned());
        }
        self
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_called_anonymous_is_not_authenticated_whatever_the_source() {
        let groups = |name: &str| User { name: name.to_owned(), ..User::default() }.authenticated().groups;
        assert_eq!(groups("alice"), [AUTHENTICATED]);
        assert_eq!(groups(ANONYMOUS), [""; 0]);
    }
}
