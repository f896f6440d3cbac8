//! A secure server over an API server that is a closure, certificates for both sides, and plain clients.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http_body_util::BodyExt;
use kube::client::Body;
use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;
use windlass::clock::Clock;
use windlass::http::serving::ServingError;
use windlass::http::{Checks, Reviewers, SecureServer, ServingMetrics, router};
use windlass::metrics::Metrics;

/// An authority with its key.
pub struct Authority {
    params: CertificateParams,
    key: KeyPair,
    /// Its certificate.
    pub pem: String,
}

/// A certificate and its key in PEM.
#[derive(Clone)]
pub struct Identity {
    /// The certificate, perhaps with the chain behind it.
    pub cert: String,
    /// The private key.
    pub key: String,
}

/// A certificate that no authority has signed, with a chain that is expensive to judge: `alike` intermediates of the
/// issuer's name, each with a key of its own, which can stand in any order, and `fillers` of another name, which are
/// parsed at each step. Small enough for a TLS handshake, which takes 64 KB: up to 270 in all.
pub fn costly_chain(alike: usize, fillers: usize) -> Identity {
    let key = || KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let authority = |name: &str| {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
    };
    let (own, issuer) = (key(), key());
    let mut params = authority("evil");
    params.is_ca = IsCa::NoCa;
    let leaf = params.signed_by(&own, &Issuer::from_params(&authority("X"), &issuer)).unwrap();
    let alike = (0..alike).map(|_| authority("X").self_signed(&key()).unwrap().pem());
    let filler = authority("Y").self_signed(&key()).unwrap().pem();
    let chain = alike.chain(std::iter::repeat_n(filler, fillers));
    Identity { cert: std::iter::once(leaf.pem()).chain(chain).collect(), key: own.serialize_pem() }
}

impl Authority {
    /// A new authority with a key of its own.
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Authority { params, key, pem }
    }

    fn sign(&self, mut params: CertificateParams, usage: ExtendedKeyUsagePurpose) -> Identity {
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().unwrap();
        let issuer = Issuer::from_params(&self.params, &self.key);
        Identity { cert: params.signed_by(&key, &issuer).unwrap().pem(), key: key.serialize_pem() }
    }

    /// Signs a client certificate.
    pub fn client(&self, name: &str, group: Option<&str>) -> Identity {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        if let Some(group) = group {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        self.sign(params, ExtendedKeyUsagePurpose::ClientAuth)
    }

    /// Signs a server certificate.
    pub fn server(&self, name: &str) -> Identity {
        let names = vec!["localhost".to_owned(), name.to_owned()];
        self.sign(CertificateParams::new(names).unwrap(), ExtendedKeyUsagePurpose::ServerAuth)
    }
}

/// The API server: its recorded requests and its responses.
#[derive(Clone)]
pub struct ApiServer(Arc<Asked>);

/// The recorded requests of the API server.
pub struct Asked {
    /// The number of token reviews.
    pub tokens: AtomicUsize,
    /// The access reviews.
    pub accesses: Mutex<Vec<Value>>,
    /// How often the ConfigMap with the request header CA was read.
    pub map_reads: AtomicUsize,
    /// The ConfigMap's data, or the status that is answered instead.
    pub map: Mutex<Result<Value, u16>>,
    /// A status that is answered to reviews instead.
    pub trouble: Mutex<Option<u16>>,
}

impl ApiServer {
    /// An API server that serves this ConfigMap, or this status code instead.
    pub fn new(map: Result<Value, u16>) -> Self {
        ApiServer(Arc::new(Asked {
            tokens: AtomicUsize::new(0),
            accesses: Mutex::default(),
            map_reads: AtomicUsize::new(0),
            map: Mutex::new(map),
            trouble: Mutex::new(None),
        }))
    }

    /// Its recorded requests so far.
    pub fn asked(&self) -> &Asked {
        &self.0
    }

    /// The users of the access reviews.
    pub fn users_asked_about(&self) -> Vec<String> {
        let users = self.0.accesses.lock();
        users.iter().map(|spec| spec["user"].as_str().unwrap_or_default().to_owned()).collect()
    }

    fn answer(&self, path: &str, body: &Value) -> (u16, Value) {
        let failure = |code: u16| {
            let reason = if code == 404 {
                "NotFound"
            } else if code == 403 {
                "Forbidden"
            } else {
                ""
            };
            let message = format!("the server said {code}");
            (
                code,
                json!({"kind": "Status", "status": "Failure", "message": message, "reason": reason, "code": code}),
            )
        };
        if path.ends_with("/configmaps/extension-apiserver-authentication") {
            self.0.map_reads.fetch_add(1, Ordering::Relaxed);
            return match &*self.0.map.lock() {
                Ok(data) => (200, json!({"data": data})),
                Err(code) => failure(*code),
            };
        }
        if path.ends_with("/tokenreviews") {
            self.0.tokens.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(code) = *self.0.trouble.lock() {
            return failure(code);
        }
        if path.ends_with("/tokenreviews") {
            return match body["spec"]["token"].as_str() {
                Some("good") => (
                    201,
                    json!({"status": {"authenticated": true, "user":
                    {"username": "system:serviceaccount:monitoring:prometheus", "groups": ["system:authenticated"]}}}),
                ),
                _ => (201, json!({"status": {"authenticated": false}})),
            };
        }
        self.0.accesses.lock().push(body["spec"].clone());
        let allowed = ["system:serviceaccount:monitoring:prometheus", "ada"];
        let user = body["spec"]["user"].as_str().unwrap_or_default();
        (201, json!({"status": {"allowed": allowed.contains(&user), "reason": ""}}))
    }

    /// A client for it, without a socket.
    pub fn client(&self) -> kube::Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let server = server.clone();
            async move {
                let path = request.uri().path().to_owned();
                let body = request.into_body().collect().await.unwrap().to_bytes();
                let body = serde_json::from_slice(&body).unwrap_or_default();
                let (code, answer) = server.answer(&path, &body);
                let response = http::Response::builder().status(code);
                Ok::<_, Infallible>(response.body(Body::from(answer.to_string().into_bytes())).unwrap())
            }
        });
        kube::Client::new(service, "default")
    }
}

/// A server with everything for its clients.
pub struct Serving {
    /// Its address.
    pub address: SocketAddr,
    /// Its API server.
    pub api: ApiServer,
    /// Its metrics.
    pub metrics: Arc<Metrics>,
    /// The CA of its clients.
    pub authority: Authority,
    /// Its certificates.
    pub dir: tempfile::TempDir,
    _stop: tokio_util::sync::DropGuard,
}

/// The options of a test.
pub use windlass::http::SecureOptions as Options;

impl Serving {
    /// Starts serving; panics unless that succeeds.
    pub async fn start(api: ApiServer, options: Options) -> Self {
        Self::try_start(api, options).await.unwrap()
    }

    /// Starts serving.
    pub async fn try_start(api: ApiServer, options: Options) -> Result<Self, ServingError> {
        let client = api.client();
        Self::over(client, api, options).await
    }

    /// The same with a client for some other API server.
    pub async fn over(
        client: kube::Client,
        api: ApiServer,
        mut options: Options,
    ) -> Result<Self, ServingError> {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::new("servers");
        let serving = &mut options.serving;
        for pair in &serving.sni {
            write(&(pair.cert_file.clone(), pair.key_file.clone()), &authority.server("other.test"));
        }
        let files = serving.tls_files.get_or_insert_with(|| (dir.path().join("crt"), dir.path().join("key")));
        let files = files.clone();
        if files.0.starts_with(dir.path()) {
            write(&files, &authority.server("first"));
        }
        let metrics = Metrics::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = SecureServer::on(
            listener,
            &options,
            router(metrics.clone(), Checks::default()),
            Reviewers::new(client, "api", metrics.clone()),
            ServingMetrics::new(&metrics),
            Clock::System,
        )
        .await?;
        let address = server.local_addr().unwrap();
        let stop = CancellationToken::new();
        tokio::spawn(server.run(stop.clone()));
        Ok(Serving { address, api, metrics, authority, dir, _stop: stop.drop_guard() })
    }

    /// Writes another certificate over the one that is served.
    pub fn replace_certificate(&self, name: &str) {
        write(&(self.dir.path().join("crt"), self.dir.path().join("key")), &self.authority.server(name));
    }

    /// Connects, perhaps with a certificate; panics unless the handshake succeeds.
    pub async fn connect(&self, identity: Option<&Identity>, protocol: &[u8]) -> TlsStream<TcpStream> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        self.shake(stream, identity, protocol).await.unwrap()
    }

    /// Tries a handshake.
    pub async fn shake(
        &self,
        stream: TcpStream,
        identity: Option<&Identity>,
        protocol: &[u8],
    ) -> std::io::Result<TlsStream<TcpStream>> {
        self.shake_as(stream, identity, protocol, "localhost", rustls::ALL_VERSIONS).await
    }

    /// Tries a handshake under another server name.
    pub async fn shake_as(
        &self,
        stream: TcpStream,
        identity: Option<&Identity>,
        protocol: &[u8],
        name: &'static str,
        versions: &[&'static rustls::SupportedProtocolVersion],
    ) -> std::io::Result<TlsStream<TcpStream>> {
        handshake(&self.authority, stream, identity, protocol, name, versions).await
    }

    /// Sends one GET over HTTP/1.1: the status and the rest.
    pub async fn get(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        identity: Option<&Identity>,
    ) -> (u16, String) {
        ask(&mut self.connect(identity, b"http/1.1").await, path, headers).await
    }
}

/// A TLS handshake with a server whose certificate this authority has signed.
pub async fn handshake(
    authority: &Authority,
    stream: TcpStream,
    identity: Option<&Identity>,
    protocol: &[u8],
    name: &'static str,
    versions: &[&'static rustls::SupportedProtocolVersion],
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.pem.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(Identity { cert, key }) => {
            let chain = CertificateDer::pem_slice_iter(cert.as_bytes()).collect::<Result<_, _>>().unwrap();
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    };
    config.alpn_protocols = vec![protocol.to_vec()];
    let name = ServerName::try_from(name).unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

/// Writes a certificate and its key to their files.
pub fn write((cert, key): &(PathBuf, PathBuf), identity: &Identity) {
    std::fs::write(cert, &identity.cert).unwrap();
    std::fs::write(key, &identity.key).unwrap();
}

/// Sends one request and reads until the server closes.
pub async fn ask<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    path: &str,
    headers: &[(&str, &str)],
) -> (u16, String) {
    let mut request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
    for (name, value) in headers {
        request += &format!("{name}: {value}\r\n");
    }
    request += "\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // The server may close without close_notify.
    let _ = tokio::time::timeout(Duration::from_secs(30), stream.read_to_end(&mut answer)).await.unwrap();
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let code = answer.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_default();
    (code, answer)
}

/// Connects from an address of the loopback network.
pub async fn connect_from(from: [u8; 4], to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::new(IpAddr::V4(Ipv4Addr::from(from)), 0))?;
    socket.connect(to).await
}
