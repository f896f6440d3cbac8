//! A client over real sockets: credentials that change on disk, proxies of the environment, connections that freeze.

mod shared_connections;

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use http_body_util::BodyExt;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::runtime::client::{Client, ClientOptions, connect_within};

/// How often the files are checked in these tests.
const OFTEN: Duration = Duration::from_millis(20);

/// A server that answers each request with its head, and counts connections.
struct Server {
    port: u16,
    connections: Arc<AtomicUsize>,
    /// Connections up to this number relay nothing any more.
    frozen: Arc<AtomicUsize>,
    /// How often the answer is 401.
    refusals: Arc<AtomicUsize>,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Server {
    async fn start(tls: Option<Arc<rustls::ServerConfig>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server =
            Server { port, connections: Arc::default(), frozen: Arc::default(), refusals: Arc::default() };
        let (connections, frozen, refusals) =
            (server.connections.clone(), server.frozen.clone(), server.refusals.clone());
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let number = connections.fetch_add(1, Ordering::SeqCst) + 1;
                tokio::spawn(serve(stream, tls.clone(), number, frozen.clone(), refusals.clone()));
            }
        });
        server
    }
}

async fn serve(
    stream: TcpStream,
    tls: Option<Arc<rustls::ServerConfig>>,
    number: usize,
    frozen: Arc<AtomicUsize>,
    refusals: Arc<AtomicUsize>,
) -> Option<()> {
    let mut client = String::new();
    let mut stream: Box<dyn Stream> = match tls {
        Some(tls) => {
            let stream = tokio_rustls::TlsAcceptor::from(tls).accept(stream).await.ok()?;
            if let Some([certificate, ..]) = stream.get_ref().1.peer_certificates() {
                let (_, certificate) = x509_parser::parse_x509_certificate(certificate).ok()?;
                client = certificate.subject().to_string();
            }
            Box::new(stream)
        }
        None => Box::new(stream),
    };
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.ok()?);
        }
        if number <= frozen.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        let refused =
            refusals.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
        let status = if refused { "401 Unauthorized" } else { "200 OK" };
        let body = format!("{client}\r\n{}", String::from_utf8(head).ok()?);
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        stream.write_all(answer.as_bytes()).await.ok()?;
        stream.flush().await.ok()?;
    }
}

async fn get(client: &Client) -> Result<String, kube::Error> {
    let answer = client.send(Request::get("/x").body(Body::empty()).unwrap()).await?;
    Ok(String::from_utf8(answer.into_body().collect().await?.to_bytes().to_vec()).unwrap())
}

/// Sends requests until the answer contains the text.
async fn until(client: &Client, words: &str) {
    let mut last = String::new();
    for _ in 0..500 {
        last = get(client).await.unwrap_or_else(|error| error.to_string());
        if last.contains(words) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("no answer with {words:?}: {last}");
}

async fn connected(
    directory: &Path,
    server: &str,
    cluster: &str,
    user: &str,
    period: Duration,
    env: &[(&'static str, String)],
) -> Client {
    let file = directory.join("config");
    let text = format!(
        "{{apiVersion: v1, kind: Config, current-context: c,
          clusters: [{{name: k, cluster: {{server: '{server}', {cluster}}}}}],
          contexts: [{{name: c, context: {{cluster: k, user: u}}}}], users: [{{name: u, user: {{{user}}}}}]}}"
    );
    std::fs::write(&file, text).unwrap();
    let options = ClientOptions { kubeconfig: Some(file), master: None };
    let env = |name: &str| env.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone());
    let connection = connect_within(Duration::from_secs(10), period, &options, &env).await;
    connection.unwrap_or_else(|error| panic!("{error}")).client
}

#[tokio::test]
async fn a_token_file_may_end_in_a_newline_and_is_read_again_when_it_changes() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(None).await;
    let url = format!("http://127.0.0.1:{}", server.port);
    std::fs::write(directory.path().join("token"), "one\n").unwrap();
    // As in kubectl the file wins, and it lies beside the kubeconfig.
    let user = "tokenFile: token, token: other";
    let client = connected(directory.path(), &url, "", user, OFTEN, &[]).await;
    assert!(get(&client).await.unwrap().contains("authorization: Bearer one\r\n"));
    std::fs::write(directory.path().join("token"), "two \r\n").unwrap();
    until(&client, "authorization: Bearer two\r\n").await;
    // A file that is being written, or is missing, does not remove the token.
    std::fs::write(directory.path().join("token"), "").unwrap();
    tokio::time::sleep(5 * OFTEN).await;
    assert!(get(&client).await.unwrap().contains("Bearer two\r\n"));
    std::fs::remove_file(directory.path().join("token")).unwrap();
    tokio::time::sleep(5 * OFTEN).await;
    assert!(get(&client).await.unwrap().contains("Bearer two\r\n"));
    assert_eq!(server.connections.load(Ordering::SeqCst), 1, "a new token needs no new connection");
}

#[tokio::test]
async fn a_token_that_is_not_accepted_any_more_is_read_again_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(None).await;
    let url = format!("http://127.0.0.1:{}", server.port);
    std::fs::write(directory.path().join("token"), "one").unwrap();
    let hour = Duration::from_secs(3600);
    let client = connected(directory.path(), &url, "", "tokenFile: token", hour, &[]).await;
    std::fs::write(directory.path().join("token"), "two").unwrap();
    server.refusals.store(1, Ordering::SeqCst);
    assert!(get(&client).await.unwrap().contains("Bearer one\r\n"));
    until(&client, "Bearer two\r\n").await;
}

#[tokio::test]
async fn a_token_file_without_a_token_is_named_and_its_content_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    for (content, words) in
        [(None, "No such file"), (Some(" \n"), "it is empty"), (Some("sec\nret"), "more than")]
    {
        if let Some(content) = content {
            std::fs::write(&file, content).unwrap();
        }
        let said = super::token(&file).unwrap_err();
        assert!(said.contains(words) && said.contains(file.to_str().unwrap()), "{said}");
        assert!(!said.contains("sec"), "{said}");
    }
}

/// An authority that signs certificates.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    der: rustls::pki_types::CertificateDer<'static>,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let (pem, der) = (certificate.pem(), certificate.der().clone());
        Authority { issuer: Issuer::new(params, key), pem, der }
    }

    /// A certificate for this name, and its key.
    fn sign(&self, name: &str) -> (rcgen::Certificate, KeyPair) {
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap(), key)
    }

    /// The TLS of a server that this authority vouches for, and that asks for clients of this authority.
    fn server(&self) -> Arc<rustls::ServerConfig> {
        let (certificate, key) = self.sign("server");
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.der.clone()).unwrap();
        let verifier =
            WebPkiClientVerifier::builder(Arc::new(roots)).allow_unauthenticated().build().unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let config = rustls::ServerConfig::builder()
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![certificate.der().clone()], key);
        Arc::new(config.unwrap())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_certificate_is_read_again_when_it_changes() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::new("authority");
    let server = Server::start(Some(authority.server())).await;
    let write = |name: &str| {
        let (certificate, key) = authority.sign(name);
        std::fs::write(directory.path().join("key"), key.serialize_pem()).unwrap();
        // Between the two, the key does not belong to the certificate.
        std::thread::sleep(3 * OFTEN);
        std::fs::write(directory.path().join("crt"), certificate.pem()).unwrap();
    };
    write("one");
    std::fs::write(directory.path().join("ca"), &authority.pem).unwrap();
    let url = format!("https://127.0.0.1:{}", server.port);
    let user = "client-certificate: crt, client-key: key";
    let client = connected(directory.path(), &url, "certificate-authority: ca", user, OFTEN, &[]).await;
    for _ in 0..5 {
        assert!(get(&client).await.unwrap().contains("CN=one"));
    }
    // A connection may not be idle again yet when the next request begins.
    assert!(server.connections.load(Ordering::SeqCst) < 5, "connections are kept");
    write("two");
    until(&client, "CN=two").await;
    std::fs::remove_file(directory.path().join("crt")).unwrap();
    tokio::time::sleep(5 * OFTEN).await;
    assert!(get(&client).await.unwrap().contains("CN=two"), "what has gone leaves things as they are");
}

#[tokio::test]
async fn a_chain_of_270_certificates_of_a_server_is_refused_before_it_is_judged() {
    let authority = Authority::new("authority");
    let named = |name: &str| {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
    };
    let new_key = || KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let own = new_key();
    let leaf = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let leaf = leaf.signed_by(&own, &Issuer::new(named("X"), new_key())).unwrap();
    let alike = (0..8).map(|_| named("X").self_signed(&new_key()).unwrap().der().clone());
    let filler = named("Y").self_signed(&new_key()).unwrap().der().clone();
    let chain = std::iter::once(leaf.der().clone()).chain(alike).chain(std::iter::repeat_n(filler, 255));
    let key = PrivateKeyDer::try_from(own.serialize_der()).unwrap();
    let tls = rustls::ServerConfig::builder().with_no_client_auth().with_single_cert(chain.collect(), key);
    let server = Server::start(Some(Arc::new(tls.unwrap()))).await;

    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("ca"), &authority.pem).unwrap();
    let url = format!("https://127.0.0.1:{}", server.port);
    for cluster in ["certificate-authority: ca", ""] {
        let client = connected(directory.path(), &url, cluster, "", OFTEN, &[]).await;
        let begin = Instant::now();
        let error = get(&client).await.unwrap_err();
        assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
        let text = format!("{error:?}");
        assert!(text.contains("TooLarge"), "{text}");
    }
}

#[tokio::test]
async fn the_authority_of_the_server_is_read_again_when_it_changes() {
    let directory = tempfile::tempdir().unwrap();
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let server = Server::start(Some(new.server())).await;
    std::fs::write(directory.path().join("ca"), &old.pem).unwrap();
    let url = format!("https://127.0.0.1:{}", server.port);
    let client = connected(directory.path(), &url, "certificate-authority: ca", "", OFTEN, &[]).await;
    assert!(get(&client).await.is_err());
    std::fs::write(directory.path().join("ca"), &new.pem).unwrap();
    until(&client, "GET /x").await;
}

#[tokio::test]
async fn the_proxy_of_the_environment_is_used_with_credentials() {
    let directory = tempfile::tempdir().unwrap();
    let proxy = Server::start(None).await;
    let env = [("HTTP_PROXY", format!("http://me:secret@127.0.0.1:{}", proxy.port))];
    let client = connected(directory.path(), "http://api.invalid:8080", "", "", OFTEN, &env).await;
    let seen = get(&client).await.unwrap();
    assert!(seen.contains("GET http://api.invalid:8080/x HTTP/1.1\r\n"), "{seen}");
    assert!(seen.contains("proxy-authorization: Basic bWU6c2VjcmV0\r\n"), "{seen}");
    // The kubeconfig's own proxy wins, and a server on this machine is never proxied by the environment.
    let direct = Server::start(None).await;
    let url = format!("http://127.0.0.1:{}", direct.port);
    let client = connected(directory.path(), &url, "", "", OFTEN, &env).await;
    assert!(get(&client).await.unwrap().contains("GET /x HTTP/1.1\r\n"));
    let cluster = format!("proxy-url: 'http://127.0.0.1:{}'", proxy.port);
    let client = connected(directory.path(), &url, &cluster, "", OFTEN, &[]).await;
    assert!(get(&client).await.unwrap().contains(&format!("GET {url}/x HTTP/1.1\r\n")));
}

#[tokio::test]
async fn after_a_call_without_an_answer_the_next_uses_a_new_connection() {
    let server = Server::start(None).await;
    let mut config = Config::new(format!("http://127.0.0.1:{}", server.port).parse().unwrap());
    config.default_retry = false;
    let mut transport = Transport::new(config, Route::Direct).unwrap();
    Arc::get_mut(&mut transport.shared).unwrap().suspect_after = Duration::from_millis(100);
    let client = Client::from(transport);
    // Three connections, which are idle when all freeze.
    let (one, two, three) = tokio::join!(get(&client), get(&client), get(&client));
    assert!(one.is_ok() && two.is_ok() && three.is_ok());
    let before = server.connections.load(Ordering::SeqCst);
    server.frozen.store(before, Ordering::SeqCst);
    // A caller that gives up at once proves nothing, and a call that still waits is left alone.
    assert!(tokio::time::timeout(Duration::from_millis(20), get(&client)).await.is_err());
    assert_eq!(server.connections.load(Ordering::SeqCst), before);
    assert!(tokio::time::timeout(Duration::from_millis(300), get(&client)).await.is_err());
    tokio::time::timeout(Duration::from_secs(5), get(&client)).await.expect("a new connection").unwrap();
    assert_eq!(server.connections.load(Ordering::SeqCst), before + 1);
}
