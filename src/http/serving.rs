//! The secure server, put together from its options.
//!
//! Order: certificates, then client CAs, then the socket, so that errors are reported before
//! anything is served. An API server that is temporarily away is no such error: the server starts,
//! answers health probes, and retries; upstream ends instead, and is restarted again and again.

use std::fmt::Display;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use prometheus::IntCounterVec;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpSocket};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::auth_layer::{Access, ReviewFailures, admit};
use super::authentication::{Certified, TokenReviewer, TrustSource};
pub use super::authentication::{RequestHeaderOptions, TrustError};
use super::authorization::Authorizer;
pub use super::authorization::{AllowedPaths, PathError};
pub use super::certificates::{CertificateError, SniPair};
use super::certificates::{CertificateOptions, Certificates};
use super::connection_limits::{AddressLimiter, Limits};
use super::listener::Server;
use super::metrics::ServingMetrics;
use super::reviews::{Authentication, Reviewers};
use super::tls::server_config;
pub use super::tls::{CipherSuite, Curve, TlsOptions, TlsVersion, UnknownName};
use crate::clock::Clock;

/// Where and how HTTPS is served. The defaults are upstream's.
#[derive(Clone, Debug, PartialEq)]
pub struct ServingOptions {
    /// `--bind-address`.
    pub bind_address: IpAddr,
    /// `--secure-port`; 0 turns HTTPS off.
    pub secure_port: u16,
    /// `--permit-port-sharing`: other processes may listen on the same port (`SO_REUSEPORT`).
    pub permit_port_sharing: bool,
    /// `--tls-cert-file` and `--tls-private-key-file`; upstream refuses one without the other.
    pub tls_files: Option<(PathBuf, PathBuf)>,
    /// `--cert-dir`, for a self-signed certificate; `None` keeps it in memory.
    pub cert_dir: Option<PathBuf>,
    /// `--tls-sni-cert-key`.
    pub sni: Vec<SniPair>,
    /// `--tls-min-version`, `--tls-cipher-suites`, `--tls-curve-preferences`, `--disable-http2-serving`.
    pub tls: TlsOptions,
    /// `--profiling`: the switches for debugging are served, such as `/debug/flags/v`.
    pub profiling: bool,
    /// Bounds; `--http2-max-streams-per-connection` is in here.
    pub limits: Limits,
    /// How often files are checked for a change.
    pub reload_interval: Duration,
}

impl Default for ServingOptions {
    fn default() -> Self {
        ServingOptions {
            bind_address: Ipv4Addr::UNSPECIFIED.into(),
            secure_port: 10257,
            permit_port_sharing: false,
            tls_files: None,
            cert_dir: None,
            sni: Vec::new(),
            tls: TlsOptions::default(),
            profiling: true,
            limits: Limits::default(),
            reload_interval: Duration::from_secs(10),
        }
    }
}

/// Options of authentication. The defaults are upstream's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthenticationOptions {
    /// `--authentication-skip-lookup`: the ConfigMap `kube-system/extension-apiserver-authentication` is
    /// not read.
    pub skip_lookup: bool,
    /// `--authentication-tolerate-lookup-failure`: the server starts although it may not be read.
    pub tolerate_lookup_failure: bool,
    /// `--authentication-token-webhook-cache-ttl`.
    pub token_cache_ttl: Duration,
    /// `--client-ca-file`.
    pub client_ca_file: Option<PathBuf>,
    /// `--requestheader-…`.
    pub request_header: RequestHeaderOptions,
    /// How often the ConfigMap is read again.
    pub lookup_interval: Duration,
}

impl Default for AuthenticationOptions {
    fn default() -> Self {
        AuthenticationOptions {
            skip_lookup: false,
            tolerate_lookup_failure: false,
            token_cache_ttl: Duration::from_secs(10),
            client_ca_file: None,
            request_header: RequestHeaderOptions::default(),
            lookup_interval: Duration::from_secs(60),
        }
    }
}

/// Options of authorization. The defaults are upstream's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorizationOptions {
    /// `--authorization-webhook-cache-authorized-ttl`.
    pub authorized_ttl: Duration,
    /// `--authorization-webhook-cache-unauthorized-ttl`.
    pub unauthorized_ttl: Duration,
    /// `--authorization-always-allow-paths`.
    pub always_allow_paths: AllowedPaths,
    /// Groups with access to everything; upstream has no flag for them.
    pub always_allow_groups: Vec<String>,
}

impl Default for AuthorizationOptions {
    fn default() -> Self {
        AuthorizationOptions {
            authorized_ttl: Duration::from_secs(10),
            unauthorized_ttl: Duration::from_secs(10),
            always_allow_paths: AllowedPaths::new(&["/healthz", "/readyz", "/livez"]).unwrap_or_default(),
            always_allow_groups: vec!["system:masters".to_owned()],
        }
    }
}

/// All options of the secure server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SecureOptions {
    /// Where and how it is served.
    pub serving: ServingOptions,
    /// Authentication.
    pub authentication: AuthenticationOptions,
    /// Authorization.
    pub authorization: AuthorizationOptions,
}

/// Why there is no secure server.
#[derive(Debug, thiserror::Error)]
pub enum ServingError {
    /// The port cannot be bound.
    #[error("--secure-port: cannot listen on {address}: {error}")]
    Listen {
        /// The address and the port.
        address: SocketAddr,
        /// Why not. It is in the text, and so no source: the chain would tell it twice.
        error: io::Error,
    },
    /// A certificate cannot be used.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// The client CAs are not known.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// The TLS options leave nothing to negotiate.
    #[error("--tls-min-version, --tls-cipher-suites or --tls-curve-preferences: {0}")]
    Tls(rustls::Error),
}

/// A server that is bound already and serves from [`SecureServer::run`] on.
pub struct SecureServer {
    listener: TcpListener,
    server: Arc<Server>,
    certificates: Arc<Certificates>,
    trust: Arc<TrustSource>,
    intervals: (Duration, Duration),
    metrics: ServingMetrics,
}

impl SecureServer {
    /// Prepares everything and listens on `--secure-port` of `--bind-address`.
    ///
    /// # Errors
    /// See [`ServingError`]; each names its flag.
    pub async fn bind(
        options: &SecureOptions,
        router: Router,
        reviewers: Reviewers,
        metrics: ServingMetrics,
        clock: Clock,
    ) -> Result<Self, ServingError> {
        let serving = &options.serving;
        let address = SocketAddr::new(serving.bind_address, serving.secure_port);
        let listener = listen(address, serving.permit_port_sharing)
            .map_err(|error| ServingError::Listen { address, error })?;
        Self::on(listener, options, router, reviewers, metrics, clock).await
    }

    /// The same on a listener of the caller.
    ///
    /// # Errors
    /// See [`ServingError`].
    pub async fn on(
        listener: TcpListener,
        options: &SecureOptions,
        router: Router,
        reviewers: Reviewers,
        metrics: ServingMetrics,
        clock: Clock,
    ) -> Result<Self, ServingError> {
        // Without `..`, so that a new group of options cannot be forgotten here.
        let SecureOptions { serving, authentication, authorization } = options;
        let Reviewers { authentication: Authentication { look_up: map, tokens }, authorization: accesses } =
            reviewers;
        let certificates = CertificateOptions {
            files: serving.tls_files.clone(),
            dir: serving.cert_dir.clone(),
            sni: serving.sni.clone(),
            address: Some(serving.bind_address),
        };
        let certificates = Arc::new(Certificates::load(&certificates, clock.clone()).await?);
        let trust = Arc::new(TrustSource::new(
            authentication.client_ca_file.clone(),
            authentication.request_header.clone(),
            (!authentication.skip_lookup).then_some(map),
        ));
        look_up(&trust, authentication.tolerate_lookup_failure).await?;
        let asking = trust.clone();
        let tls = server_config(&serving.tls, certificates.clone(), move || asking.any())
            .map_err(ServingError::Tls)?;
        let ttls = (authorization.authorized_ttl, authorization.unauthorized_ttl);
        let (paths, groups) =
            (authorization.always_allow_paths.clone(), authorization.always_allow_groups.clone());
        let limits = &serving.limits;
        let access = Access {
            limiter: AddressLimiter::new(limits.unauthenticated_qps, limits.unauthenticated_burst),
            reviews: AddressLimiter::new(limits.refused_reviews_qps, limits.refused_reviews_burst),
            certified: Certified::new(trust.clone(), clock),
            tokens: TokenReviewer::new(tokens, authentication.token_cache_ttl, metrics.clone()),
            authorizer: Authorizer::new(accesses, paths, groups, ttls, metrics.clone()),
            metrics: metrics.clone(),
            failures: ReviewFailures::default(),
        };
        // Around everything, unknown paths included: an unauthorized client learns no paths.
        let router = router.layer(axum::middleware::from_fn_with_state(Arc::new(access), admit));
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        let server = Server::new("secure", Some(acceptor), router, limits.clone(), metrics.clone());
        let intervals = (serving.reload_interval, authentication.lookup_interval);
        Ok(SecureServer { listener, server, certificates, trust, intervals, metrics })
    }

    /// The bound address.
    ///
    /// # Errors
    /// When the socket does not report it.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `shutdown`, and then for two seconds the requests in flight.
    pub async fn run(self, shutdown: CancellationToken) {
        let SecureServer { listener, server, certificates, trust, intervals, metrics } = self;
        let (files, lookup) = intervals;
        let ended = shutdown.clone();
        let (certificate, authority) = ("the serving certificate", "the authority of client certificates");
        let certificates = keep(certificate, files, &metrics.certificate_reloads, || certificates.reload());
        let trust = keep(authority, lookup, &metrics.trust_reloads, || trust.reload());
        tokio::join!(server.run(listener, shutdown), async {
            tokio::select! {
                () = ended.cancelled() => {}
                () = certificates => {}
                () = trust => {}
            }
        });
    }
}

/// Any address means those of both families, as in Go: with `0.0.0.0` alone a pod of an
/// IPv6-only cluster would be unreachable. A host without IPv6 gets IPv4 only.
fn listen(address: SocketAddr, share: bool) -> io::Result<TcpListener> {
    if address.ip().is_unspecified() {
        let both = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), address.port());
        match listen_on(both, share) {
            Err(error) if address.is_ipv4() && error.kind() != io::ErrorKind::AddrInUse => {
                tracing::debug!(%error, "IPv6 is not available; listening on IPv4");
            }
            result => return result,
        }
    }
    listen_on(address, share)
}

fn listen_on(address: SocketAddr, share: bool) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    if address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) {
        // Whatever the host's default is.
        SockRef::from(&socket).set_only_v6(false)?;
    }
    // A restart must not wait for connections of the last process to be forgotten. On Windows it never does,
    // and the option would let any other process take the port over.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    #[cfg(unix)]
    socket.set_reuseport(share)?;
    #[cfg(not(unix))]
    let _ = share;
    socket.bind(address)?;
    socket.listen(1024)
}

/// The first read of the client CAs.
async fn look_up(trust: &TrustSource, tolerate: bool) -> Result<(), TrustError> {
    let error = match trust.reload().await {
        Ok(_) => {
            if !trust.any() {
                tracing::info!("no client CA is configured; only bearer tokens are accepted");
            }
            return Ok(());
        }
        Err(error) => error,
    };
    if !matches!(error, TrustError::File { .. }) && (tolerate || error.is_transient()) {
        tracing::warn!(%error, "client certificates are refused until the ConfigMap kube-system/extension-apiserver-authentication \
             can be read; retrying, and --client-ca-file does without it");
        trust.reload_files().await?;
        return Ok(());
    }
    Err(error)
}

/// Reloads periodically. A new version that cannot be used changes nothing.
async fn keep<F, E>(what: &str, interval: Duration, reloads: &IntCounterVec, reload: impl Fn() -> F)
where
    F: Future<Output = Result<bool, E>>,
    E: Display,
{
    loop {
        tokio::time::sleep(interval).await;
        match reload().await {
            Ok(false) => {}
            Ok(true) => {
                reloads.with_label_values(&["reloaded"]).inc();
                tracing::info!("{what} is reloaded");
            }
            Err(error) => {
                reloads.with_label_values(&["failed"]).inc();
                tracing::error!(%error, "{what} cannot be reloaded; the old one stays in use");
            }
        }
    }
}
