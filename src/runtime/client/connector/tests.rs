//! Connections over real sockets: their keepalive probes, and proxies.

use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::*;

/// The TLS of a server, and of a client that believes it.
fn tls(name: &str) -> (Arc<rustls::ServerConfig>, Arc<rustls::ClientConfig>) {
    let issued = rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(issued.signing_key.serialize_der()).unwrap();
    let certificate = issued.cert.der().clone();
    let server = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate).unwrap();
    let client = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    (Arc::new(server), Arc::new(client))
}

/// Reads up to the end of a head of HTTP.
async fn head(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n\r\n") {
        text.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(text).unwrap()
}

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// An API server for one request, with TLS if that is given. Returns its port and the head it has seen.
async fn server(tls: Option<Arc<rustls::ServerConfig>>) -> (u16, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let seen = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream: Boxed = match tls {
            Some(tls) => Box::new(tokio_rustls::TlsAcceptor::from(tls).accept(stream).await.unwrap()),
            None => Box::new(stream),
        };
        let seen = head(&mut stream).await;
        stream.write_all(OK).await.unwrap();
        stream.flush().await.unwrap();
        seen
    });
    (port, seen)
}

fn proxy(url: &str) -> Route {
    super::super::proxy::route(&Uri::from_static("https://any"), Some(url), &|_| None).unwrap()
}

async fn get(connector: Connector, url: &str) -> Result<String, String> {
    let client = Client::builder(TokioExecutor::new()).build::<_, Empty<bytes::Bytes>>(connector);
    let answer = client.request(Request::get(url).body(Empty::new()).unwrap()).await;
    let answer = answer.map_err(|error| {
        let mut cause: &dyn std::error::Error = &error;
        while let Some(deeper) = cause.source() {
            cause = deeper;
        }
        cause.to_string()
    })?;
    Ok(String::from_utf8(answer.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap())
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_kernel_gives_up_a_connection_that_is_not_acknowledged_for_30_seconds() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let (_, client) = tls("api");
    let stream = Connector::new(client, None, Route::Direct).tcp(&url).await.unwrap();
    let socket = socket2::SockRef::from(&stream);
    assert!(socket.keepalive().unwrap());
    assert_eq!(socket.tcp_keepalive_time().unwrap(), PROBE_AFTER);
    assert_eq!(socket.tcp_keepalive_interval().unwrap(), PROBE_EVERY);
    assert_eq!(socket.tcp_keepalive_retries().unwrap(), PROBES);
    assert_eq!(socket.tcp_user_timeout().unwrap(), Some(DEAD_AFTER));
    assert!(PROBE_AFTER + PROBE_EVERY * PROBES <= DEAD_AFTER);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_accepts_and_sends_nothing_is_abandoned_soon() {
    // The kernel accepts for it.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap()).parse().unwrap();
    let (_, client) = tls("api");
    let mut connector = Connector::new(client, None, Route::Direct);
    let error = connector.call(url).await.err().unwrap();
    assert_eq!(
        (error.kind(), error.to_string().as_str()),
        (io::ErrorKind::TimedOut, "no connection within 15 s")
    );
}

#[tokio::test]
async fn an_http_proxy_gets_connect_with_credentials() {
    let (server_tls, client_tls) = tls("api.example.com");
    let (port, seen) = server(Some(server_tls)).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let asked = tokio::spawn(async move {
        let (mut from, _) = listener.accept().await.unwrap();
        let asked = head(&mut from).await;
        let mut to = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        from.write_all(b"HTTP/1.1 200 Connection established\r\nx: y\r\n\r\n").await.unwrap();
        let _ = tokio::io::copy_bidirectional(&mut from, &mut to).await;
        asked
    });
    let connector = Connector::new(client_tls, None, proxy(&format!("http://me:p%40ss@{address}")));
    assert_eq!(get(connector, "https://api.example.com:6443/x").await.unwrap(), "ok");
    assert!(seen.await.unwrap().starts_with("GET /x HTTP/1.1\r\n"));
    let asked = asked.await.unwrap();
    assert!(
        asked.starts_with("CONNECT api.example.com:6443 HTTP/1.1\r\nHost: api.example.com:6443\r\n"),
        "{asked}"
    );
    assert!(asked.contains("\r\nProxy-Authorization: Basic bWU6cEBzcw==\r\n"), "{asked}");
}

#[tokio::test]
async fn a_server_without_tls_is_requested_by_its_whole_url() {
    let (port, seen) = server(None).await;
    let (_, client_tls) = tls("api");
    let connector = Connector::new(client_tls, None, proxy(&format!("http://127.0.0.1:{port}")));
    assert_eq!(get(connector, "http://api.example.com/x").await.unwrap(), "ok");
    assert!(seen.await.unwrap().starts_with("GET http://api.example.com/x HTTP/1.1\r\n"));
}

#[tokio::test]
async fn a_proxy_may_itself_be_reached_by_tls() {
    let (server_tls, client_tls) = tls("127.0.0.1");
    let (port, seen) = server(Some(server_tls)).await;
    let connector = Connector::new(client_tls, None, proxy(&format!("https://127.0.0.1:{port}")));
    assert_eq!(get(connector, "http://api.example.com/x").await.unwrap(), "ok");
    assert!(seen.await.unwrap().starts_with("GET http://api.example.com/x "));
}

#[tokio::test]
async fn a_proxy_that_refuses_is_named_without_our_password() {
    let (_, client_tls) = tls("api");
    for (answer, words) in [
        (&b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n"[..], "refused to connect to api:443: 407"),
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", "refused to connect to api:443: 403"),
        (b"SSH-2.0-x\r\n\r\n", "refused to connect to api:443: "),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            head(&mut stream).await;
            stream.write_all(answer).await.unwrap();
        });
        let connector =
            Connector::new(client_tls.clone(), None, proxy(&format!("http://me:secret@{address}")));
        let error = get(connector, "https://api/x").await.unwrap_err();
        assert!(error.contains(words) && error.contains(&address.to_string()), "{error}");
        assert!(!error.contains("secret"), "{error}");
    }
}

#[tokio::test]
async fn a_socks_proxy_gets_credentials_and_resolves_the_name() {
    let (server_tls, client_tls) = tls("api.example.com");
    let (port, seen) = server(Some(server_tls)).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let asked = tokio::spawn(async move {
        let (mut from, _) = listener.accept().await.unwrap();
        let mut asked = Vec::new();
        for (length, answer) in [(4, &[5, 2][..]), (11, &[1, 0]), (22, &[5, 0, 0, 3, 2, b'o', b'k', 0, 1])] {
            let mut bytes = vec![0; length];
            from.read_exact(&mut bytes).await.unwrap();
            asked.push(bytes);
            from.write_all(answer).await.unwrap();
        }
        let mut to = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let _ = tokio::io::copy_bidirectional(&mut from, &mut to).await;
        asked
    });
    let connector = Connector::new(client_tls, None, proxy(&format!("socks5://me:secret@{address}")));
    assert_eq!(get(connector, "https://api.example.com:6443/x").await.unwrap(), "ok");
    seen.await.unwrap();
    let wanted = [
        vec![5, 2, 0, 2],
        b"\x01\x02me\x06secret"[..].to_vec(),
        [&b"\x05\x01\x00\x03\x0fapi.example.com"[..], &6443u16.to_be_bytes()].concat(),
    ];
    let asked = asked.await.unwrap();
    assert_eq!(asked, wanted);
}
