//! The transport of requests to the API server: credentials, a pool of connections, and what replaces either.
//!
//! HTTP/1.1 on purpose: a connection that hangs delays one request and not all of them, the renewal of the lease
//! included. Watches of many kinds, which would cost a connection each, share one where the server speaks HTTP/2
//! ([`SharedConnection`]). Two events replace the whole pool, without breaking requests in flight:
//! - A caller gave up after [`SUSPECT_AFTER`] without the beginning of an answer. The cause, a proxy
//!   or a firewall that forgot the connection, has likely affected the idle ones as well, so that the retry uses a new
//!   one.
//! - A file with a certificate or key has changed.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::{AUTHORIZATION, PROXY_AUTHORIZATION};
use http::{HeaderValue, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::Config;
use kube::client::middleware::{AuthLayer, BaseUriLayer, ExtraHeadersLayer};
use kube::client::{Body, ConfigExt};
use parking_lot::{Mutex, RwLock};
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::sync::Notify;
use tokio::time::Instant;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Service, ServiceBuilder, ServiceExt};

use super::connector::{Connector, proxy_authorization};
use super::credentials::{Digests, Files, token};
use super::proxy::{Protocol, Route};
use crate::runtime::certificate_chain::Bounded;

/// A caller that has waited this long in vain makes the idle connections suspect. Shorter than the 5 s after which a
/// renewal of the lease is given up, so that the retry has a new connection and the leader keeps the lease.
const SUSPECT_AFTER: Duration = Duration::from_secs(3);

/// How long a connection may be idle before it is closed.
const IDLE: Duration = Duration::from_secs(90);

/// How much of one answer, and of all on a connection, may be on the way over HTTP/2 before it is read.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;

/// After which silence an HTTP/2 connection is probed, and how long the answer may take.
const PING_AFTER: Duration = Duration::from_secs(15);
const PING_TIMEOUT: Duration = Duration::from_secs(15);

/// The shortest time between two checks of the credentials' files.
const SHORTEST_REFRESH: Duration = Duration::from_secs(1);

/// The connection that a request shares with all of the same number, if the server speaks HTTP/2: an extension of the
/// request. API servers allow 100 requests at a time on a connection; the next one waits, so no more may have a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SharedConnection(pub(crate) u64);

type Pool = BoxCloneSyncService<Request<Body>, Response<Incoming>, BoxError>;

/// Why there is no transport.
#[derive(Debug, thiserror::Error)]
pub(super) enum TransportError {
    #[error(transparent)]
    Kube(#[from] kube::Error),
    #[error("tls-server-name is not a name: {0}")]
    ServerName(String),
    #[error("{0}")]
    Token(String),
    #[error("the certificate authority cannot be used: {0}")]
    Authority(String),
}

/// Sends requests to the API server. Clones share everything.
#[derive(Clone)]
pub(super) struct Transport {
    shared: Arc<Shared>,
}

struct Shared {
    /// The configuration that TLS is built from.
    config: Config,
    base: BaseUriLayer,
    /// Credentials that are no file: a password, a token, a plugin.
    auth: Option<AuthLayer>,
    headers: ExtraHeadersLayer,
    /// For a proxy that gets whole URLs.
    proxy_authorization: Option<HeaderValue>,
    files: Files,
    current: RwLock<Current>,
    /// From the token file.
    token: RwLock<Option<HeaderValue>>,
    /// Digests of the files from which the current TLS configuration was built.
    digests: Mutex<Digests>,
    /// The last error about the files, so that it is logged once.
    complaint: Mutex<String>,
    suspect_after: Duration,
    /// The server no longer accepts our credentials.
    unauthorized: Arc<Notify>,
}

/// The pool in use; its number distinguishes it from earlier ones.
struct Current {
    number: u64,
    connector: Connector,
    pool: Pool,
    shared: Mutex<BTreeMap<SharedConnection, Pool>>,
}

impl Transport {
    /// Builds the transport. May block: files are read and a credential plugin may run.
    pub(super) fn new(mut config: Config, route: Route) -> Result<Self, TransportError> {
        let files = Files::of(&mut config);
        let token = files.token.as_deref().map(token).transpose().map_err(TransportError::Token)?;
        let digests = files.digests().unwrap_or_default();
        let tls = Arc::new(tls(&config)?);
        let server_name = config.tls_server_name.clone().map(|name| {
            let parsed = rustls::pki_types::ServerName::try_from(name);
            parsed.map_err(|error| TransportError::ServerName(error.to_string()))
        });
        let whole_urls = config.cluster_url.scheme_str() != Some("https");
        let proxy_authorization = match &route {
            Route::Proxied(proxy) if whole_urls && proxy.protocol != Protocol::Socks5 => {
                proxy_authorization(proxy)
            }
            _ => None,
        };
        let connector = Connector::new(tls, server_name.transpose()?, route);
        let (base, auth, headers) =
            (config.base_uri_layer(), config.auth_layer()?, config.extra_headers_layer()?);
        let pool = pool(&base, auth.as_ref(), &headers, connector.clone());
        let shared = Shared {
            config,
            base,
            auth,
            headers,
            proxy_authorization,
            files,
            current: RwLock::new(Current { number: 0, connector, pool, shared: Mutex::default() }),
            token: RwLock::new(token),
            digests: Mutex::new(digests),
            complaint: Mutex::default(),
            suspect_after: SUSPECT_AFTER,
            unauthorized: Arc::default(),
        };
        Ok(Transport { shared: Arc::new(shared) })
    }

    /// Checks the files each `period`, and at once when the server answers 401, for as long as
    /// the transport is used.
    pub(super) fn keep_fresh(&self, period: Duration) {
        if self.shared.files.is_empty() {
            return;
        }
        let unauthorized = self.shared.unauthorized.clone();
        tokio::spawn(keep_fresh(Arc::downgrade(&self.shared), unauthorized, period));
    }
}

/// The client side of TLS. kube's own verifier judges a chain of any length.
fn tls(config: &Config) -> Result<rustls::ClientConfig, TransportError> {
    if config.accept_invalid_certs {
        return Ok(config.rustls_client_config()?);
    }
    // With no authority, so that nothing is trusted but by the verifier below.
    let mut none = config.clone();
    (none.root_cert, none.root_cert_file) = (Some(Vec::new()), None);
    let mut tls = none.rustls_client_config()?;
    let verifier = verifier(config, tls.crypto_provider().clone()).map_err(TransportError::Authority)?;
    tls.dangerous().set_certificate_verifier(Arc::new(Bounded(verifier)));
    Ok(tls)
}

/// Verifies servers by the authority's file, by its certificates, or else by the authorities of the machine.
fn verifier(config: &Config, provider: Arc<CryptoProvider>) -> Result<Arc<dyn ServerCertVerifier>, String> {
    let trusted: Vec<CertificateDer<'static>> = match (&config.root_cert_file, &config.root_cert) {
        (Some(file), _) => {
            let wrong = |error| format!("{}: {error}", file.display());
            let read = CertificateDer::pem_file_iter(file).map_err(wrong)?;
            read.collect::<Result<_, _>>().map_err(wrong)?
        }
        (None, Some(given)) => given.iter().cloned().map(CertificateDer::from).collect(),
        (None, None) => {
            let machine = rustls_platform_verifier::Verifier::new(provider);
            return Ok(Arc::new(machine.map_err(|error| error.to_string())?));
        }
    };
    let mut roots = RootCertStore::empty();
    for certificate in trusted {
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
    Ok(verifier.map_err(|error| error.to_string())?)
}

async fn keep_fresh(shared: Weak<Shared>, unauthorized: Arc<Notify>, period: Duration) {
    loop {
        tokio::time::sleep(SHORTEST_REFRESH.min(period)).await;
        let _ = tokio::time::timeout(period, unauthorized.notified()).await;
        let Some(shared) = shared.upgrade() else { return };
        // Files may be on a network. A panic there changes nothing.
        let _ = tokio::task::spawn_blocking(move || shared.refresh()).await;
    }
}

fn pool(
    base: &BaseUriLayer,
    auth: Option<&AuthLayer>,
    headers: &ExtraHeadersLayer,
    connector: Connector,
) -> Pool {
    let client = legacy::Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .http2_initial_stream_window_size(STREAM_WINDOW)
        .http2_initial_connection_window_size(CONNECTION_WINDOW)
        .http2_keep_alive_interval(PING_AFTER)
        .http2_keep_alive_timeout(PING_TIMEOUT)
        .build::<_, Body>(connector);
    let service = ServiceBuilder::new()
        .layer(base)
        .option_layer(auth)
        .layer(headers)
        .map_err(BoxError::from)
        .service(client);
    BoxCloneSyncService::new(service)
}

impl Shared {
    /// Replaces the pool, unless another caller has done so since pool `number`.
    fn suspect(&self, number: u64) {
        let mut current = self.current.write();
        if current.number == number {
            tracing::info!("request got no answer; new requests open new connections");
            let connector = current.connector.clone();
            self.replace(&mut current, connector);
        }
    }

    fn replace(&self, current: &mut Current, connector: Connector) {
        let pool = pool(&self.base, self.auth.as_ref(), &self.headers, connector.clone());
        *current = Current { number: current.number + 1, connector, pool, shared: Mutex::default() };
    }

    /// The pool of a connection that many share.
    fn shared_pool(&self, current: &Current, number: SharedConnection) -> Pool {
        let new = || pool(&self.base, self.auth.as_ref(), &self.headers, current.connector.shared());
        current.shared.lock().entry(number).or_insert_with(new).clone()
    }

    /// Applies changes of the files. A file that cannot be read or used changes nothing.
    fn refresh(&self) {
        match self.try_refresh() {
            Ok(()) => self.complaint.lock().clear(),
            Err(complaint) => {
                let mut last = self.complaint.lock();
                if *last != complaint {
                    tracing::warn!(
                        "credentials for the API server could not be reloaded; the old ones stay in use: {complaint}"
                    );
                    *last = complaint;
                }
            }
        }
    }

    fn try_refresh(&self) -> Result<(), String> {
        if let Some(file) = &self.files.token {
            let fresh = Some(token(file)?);
            if *self.token.read() != fresh {
                *self.token.write() = fresh;
                tracing::debug!(file = %file.display(), "token for the API server has changed; new requests use it");
            }
        }
        let digests = self.files.digests()?;
        if *self.digests.lock() == digests {
            return Ok(());
        }
        let tls = tls(&self.config).map_err(|error| super::first_line(&error))?;
        let mut current = self.current.write();
        let connector = current.connector.with_tls(Arc::new(tls));
        self.replace(&mut current, connector);
        *self.digests.lock() = digests;
        tracing::info!("certificates for the API server have changed; new connections use them");
        Ok(())
    }
}

/// A caller that waits for the beginning of an answer.
struct Waiting {
    shared: Arc<Shared>,
    number: u64,
    since: Instant,
    answered: bool,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if !self.answered && self.since.elapsed() >= self.shared.suspect_after {
            self.shared.suspect(self.number);
        }
    }
}

impl Service<Request<Body>> for Transport {
    type Response = Response<Incoming>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Incoming>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let shared = self.shared.clone();
        if let Some(token) = &*shared.token.read() {
            request.headers_mut().insert(AUTHORIZATION, token.clone());
        }
        if let Some(authorization) = &shared.proxy_authorization {
            request.headers_mut().insert(PROXY_AUTHORIZATION, authorization.clone());
        }
        let (number, pool) = {
            let current = shared.current.read();
            let pool = match request.extensions().get::<SharedConnection>() {
                Some(number) => shared.shared_pool(&current, *number),
                None => current.pool.clone(),
            };
            (current.number, pool)
        };
        Box::pin(async move {
            let since = Instant::now();
            let mut waiting = Waiting { shared, number, since, answered: false };
            let answer = pool.oneshot(request).await;
            waiting.answered = true;
            if answer.as_ref().is_ok_and(|answer| answer.status() == StatusCode::UNAUTHORIZED) {
                waiting.shared.unauthorized.notify_one();
            }
            answer
        })
    }
}

#[cfg(test)]
mod tests;
