//! The daemon's own HTTP: metrics, health, explanations, and access to them.
//!
//! The one guarantee: whatever a client sends or withholds, the memory and the connections that it costs
//! are bounded, and a health probe still gets its answer. Health is about the process: a standby
//! is healthy and ready. Only `/readyz` waits for the caches.
//!
//! Rules and waiting are apart here as well. In reading order:
//!
//! * [`health`], [`mod@router`], `zpages`: what is served.
//! * [`connection_limits`], `connections`, [`listener`]: the limits on requests, connections and time.
//! * `host`: the Host headers that plain HTTP accepts.
//! * [`tls`], [`certificates`]: HTTPS.
//! * [`authentication`], [`authorization`], [`reviews`], `review_cache`, `auth_layer`: access. The API
//!   server decides both, by TokenReview and SubjectAccessReview.
//! * [`serving`]: the options, and the server that combines these.
//! * [`metrics`], `log_limit`: the metrics of all of this, and a bound on its log lines.

mod auth_layer;
pub mod authentication;
pub mod authorization;
pub mod certificates;
pub mod connection_limits;
mod connections;
pub mod health;
mod host;
pub mod listener;
mod log_limit;
pub mod metrics;
mod review_cache;
pub mod reviews;
pub mod router;
pub mod serving;
pub mod tls;
mod zpages;

pub use connection_limits::Limits;
pub use health::Checks;
pub use listener::serve;
pub use metrics::ServingMetrics;
pub use reviews::Reviewers;
pub use router::{configz, explanations, overview, profiling, router, verbosity};
pub use serving::{AuthenticationOptions, AuthorizationOptions, SecureOptions, SecureServer, ServingOptions};
pub use zpages::zpages;
