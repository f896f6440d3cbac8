//! Opens connections to the API server: TCP with keepalive probes, through a proxy or not, with TLS or not.
//!
//! The kernel probes each connection and gives it up when the other end does not acknowledge for
//! [`DEAD_AFTER`]. A peer that still acknowledges and relays nothing, such as a proxy that hangs, is detected by
//! requests that time out; see [`super::transport`].

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{HeaderValue, Uri};
use hyper::rt::ReadBufCursor;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tower::{Service, ServiceExt};

use super::proxy::{Protocol, Proxy, Route, port_of, unbracketed};

/// How long a connection may take, with the proxy and the TLS handshake. A server that accepts and then sends
/// nothing is given up after it.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// When a silent connection is probed for the first time, and how often after that.
const PROBE_AFTER: Duration = Duration::from_secs(15);
const PROBE_EVERY: Duration = Duration::from_secs(5);
const PROBES: u32 = 3;

/// For how long the other end may leave what was sent, probes included, without an acknowledgement.
pub(super) const DEAD_AFTER: Duration = Duration::from_secs(30);

/// The ALPN name of HTTP/2.
const HTTP2: &[u8] = b"h2";

/// The longest answer of a proxy to CONNECT that is read.
const LONGEST_ANSWER: usize = 16 << 10;

/// The traits that TCP, TLS, and TLS within TLS have in common.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}
type Boxed = Box<dyn Stream>;

type Future<T> = Pin<Box<dyn std::future::Future<Output = T> + Send>>;

/// Opens connections; for hyper's pool.
#[derive(Clone)]
pub(super) struct Connector {
    tcp: HttpConnector,
    tls: Arc<rustls::ClientConfig>,
    /// The name that the server's certificate must have, if not its host's.
    server_name: Option<ServerName<'static>>,
    route: Route,
    /// Whether the server may choose HTTP/2.
    offers_http2: bool,
}

impl Connector {
    pub(super) fn new(
        tls: Arc<rustls::ClientConfig>,
        server_name: Option<ServerName<'static>>,
        route: Route,
    ) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(PROBE_AFTER));
        tcp.set_keepalive_interval(Some(PROBE_EVERY));
        tcp.set_keepalive_retries(Some(PROBES));
        #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
        tcp.set_tcp_user_timeout(Some(DEAD_AFTER));
        Connector { tcp, tls, server_name, route, offers_http2: false }
    }

    /// The same with other certificates.
    pub(super) fn with_tls(&self, tls: Arc<rustls::ClientConfig>) -> Self {
        Connector { tls, ..self.clone() }
    }

    /// The same for connections on which many requests may be under way, if the server speaks HTTP/2.
    pub(super) fn shared(&self) -> Self {
        let mut tls = rustls::ClientConfig::clone(&self.tls);
        tls.alpn_protocols = vec![HTTP2.to_vec(), b"http/1.1".to_vec()];
        Connector { tls: Arc::new(tls), offers_http2: true, ..self.clone() }
    }

    async fn connect(self, server: Uri) -> io::Result<ApiStream> {
        let (host, port) = (unbracketed(server.host().unwrap_or_default()), port_of(&server));
        let is_tls = server.scheme_str() == Some("https");
        let (mut whole_urls, mut is_http2) = (false, false);
        let stream: Boxed = match &self.route {
            Route::Direct => Box::new(self.tcp(&server).await?),
            Route::Proxied(proxy) => {
                let mut stream = self.reach(proxy).await?;
                match proxy.protocol {
                    Protocol::Socks5 => socks5(&mut stream, proxy, host, port).await?,
                    // As Go has it: a server without TLS is asked for by its whole URL.
                    Protocol::Http | Protocol::Https if !is_tls => whole_urls = true,
                    Protocol::Http | Protocol::Https => tunnel(&mut stream, proxy, host, port).await?,
                }
                stream
            }
        };
        let stream = if is_tls {
            let name = match &self.server_name {
                Some(name) => name.clone(),
                None => name_of(host)?,
            };
            let stream = TlsConnector::from(self.tls.clone()).connect(name, stream).await?;
            is_http2 = self.offers_http2 && stream.get_ref().1.alpn_protocol() == Some(HTTP2);
            Box::new(stream)
        } else {
            stream
        };
        Ok(ApiStream { stream: TokioIo::new(stream), whole_urls, is_http2 })
    }

    async fn tcp(&self, uri: &Uri) -> io::Result<TcpStream> {
        let connected = self.tcp.clone().oneshot(uri.clone()).await;
        // The kind and the text of the cause: `Connection refused` tells that nothing was sent.
        let connected = connected.map_err(|error| {
            let mut cause: &(dyn std::error::Error + 'static) = &error;
            loop {
                if let Some(error) = cause.downcast_ref::<io::Error>() {
                    return io::Error::new(error.kind(), error.to_string());
                }
                match cause.source() {
                    Some(deeper) => cause = deeper,
                    None => return io::Error::other(error.to_string()),
                }
            }
        })?;
        Ok(connected.into_inner())
    }

    async fn reach(&self, proxy: &Proxy) -> io::Result<Boxed> {
        let host = if proxy.host.contains(':') { format!("[{}]", proxy.host) } else { proxy.host.clone() };
        let uri = format!("http://{host}:{}/", proxy.port).parse::<Uri>().map_err(io::Error::other)?;
        let failed = |error: io::Error| io::Error::new(error.kind(), format!("the proxy {proxy}: {error}"));
        let stream = self.tcp(&uri).await.map_err(failed)?;
        if proxy.protocol != Protocol::Https {
            return Ok(Box::new(stream));
        }
        let tls = TlsConnector::from(self.tls.clone());
        Ok(Box::new(tls.connect(name_of(&proxy.host)?, stream).await.map_err(failed)?))
    }
}

fn name_of(host: &str) -> io::Result<ServerName<'static>> {
    ServerName::try_from(host.to_owned()).map_err(io::Error::other)
}

/// Asks an HTTP proxy to relay the connection.
async fn tunnel(stream: &mut Boxed, proxy: &Proxy, host: &str, port: u16) -> io::Result<()> {
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    let mut request = format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n").into_bytes();
    if let Some(authorization) = proxy_authorization(proxy) {
        request.extend_from_slice(b"Proxy-Authorization: ");
        request.extend_from_slice(authorization.as_bytes());
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"\r\n");
    stream.write_all(&request).await?;
    stream.flush().await?;
    // Byte by byte, since what follows the empty line is no longer the proxy's.
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        if answer.len() >= LONGEST_ANSWER {
            return Err(io::Error::other(format!("the proxy {proxy} answered CONNECT without end")));
        }
        answer.push(stream.read_u8().await?);
    }
    let line = String::from_utf8_lossy(&answer);
    let code = line.split(' ').nth(1).unwrap_or_default();
    if line.starts_with("HTTP/1.") && code.len() == 3 && code.starts_with('2') {
        return Ok(());
    }
    let code: String = code.chars().filter(char::is_ascii_digit).take(3).collect();
    Err(io::Error::other(format!("the proxy {proxy} refused to connect to {host}:{port}: {code}")))
}

/// `Proxy-Authorization` for an HTTP proxy that requires authentication.
pub(super) fn proxy_authorization(proxy: &Proxy) -> Option<HeaderValue> {
    let (user, password) = proxy.credentials.as_ref()?;
    let encoded = serde_json::to_value(k8s_openapi::ByteString(format!("{user}:{password}").into_bytes()));
    let mut value = HeaderValue::from_str(&format!("Basic {}", encoded.ok()?.as_str()?)).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Asks a SOCKS 5 proxy (RFC 1928, RFC 1929) to relay the connection. It resolves the name.
async fn socks5(stream: &mut Boxed, proxy: &Proxy, host: &str, port: u16) -> io::Result<()> {
    let refused = |what: &str| io::Error::other(format!("the proxy {proxy} {what}"));
    let short = |text: &str| u8::try_from(text.len()).map_err(|_| refused("cannot take so long a name"));
    // Version 5; no authentication, and with a user name and password.
    let methods: &[u8] = if proxy.credentials.is_some() { &[5, 2, 0, 2] } else { &[5, 1, 0] };
    stream.write_all(methods).await?;
    let mut chosen = [0; 2];
    stream.read_exact(&mut chosen).await?;
    match (chosen, &proxy.credentials) {
        ([5, 0], _) => {}
        ([5, 2], Some((user, password))) => {
            let mut login = vec![1, short(user)?];
            login.extend_from_slice(user.as_bytes());
            login.push(short(password)?);
            login.extend_from_slice(password.as_bytes());
            stream.write_all(&login).await?;
            let mut answer = [0; 2];
            stream.read_exact(&mut answer).await?;
            if answer[1] != 0 {
                return Err(refused("refused the user name and password"));
            }
        }
        ([5, _], _) => return Err(refused("wants an authentication that is not offered")),
        _ => return Err(refused("does not speak SOCKS 5")),
    }
    let mut request = vec![5, 1, 0];
    match host.parse() {
        Ok(std::net::IpAddr::V4(ip)) => {
            request.push(1);
            request.extend_from_slice(&ip.octets());
        }
        Ok(std::net::IpAddr::V6(ip)) => {
            request.push(4);
            request.extend_from_slice(&ip.octets());
        }
        Err(_) => {
            request.extend_from_slice(&[3, short(host)?]);
            request.extend_from_slice(host.as_bytes());
        }
    }
    request.extend_from_slice(&port.to_be_bytes());
    stream.write_all(&request).await?;
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).await?;
    if answer[0] != 5 || answer[1] != 0 {
        return Err(refused(&format!("refused to connect to {host}:{port}: code {}", answer[1])));
    }
    // The address that the proxy uses, which does not matter, and its port.
    let length = match answer[3] {
        1 => 4,
        4 => 16,
        3 => usize::from(stream.read_u8().await?),
        _ => return Err(refused("answered with an unknown type of address")),
    };
    let mut address = vec![0; length + 2];
    stream.read_exact(&mut address).await?;
    Ok(())
}

impl Service<Uri> for Connector {
    type Response = ApiStream;
    type Error = io::Error;
    type Future = Future<io::Result<ApiStream>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move {
            let connecting = tokio::time::timeout(CONNECT_TIMEOUT, connector.connect(server));
            connecting.await.unwrap_or_else(|_| {
                let seconds = CONNECT_TIMEOUT.as_secs();
                Err(io::Error::new(io::ErrorKind::TimedOut, format!("no connection within {seconds} s")))
            })
        })
    }
}

/// A connection to the API server.
pub(super) struct ApiStream {
    stream: TokioIo<Boxed>,
    whole_urls: bool,
    is_http2: bool,
}

impl Connection for ApiStream {
    fn connected(&self) -> Connected {
        let connected = Connected::new().proxy(self.whole_urls);
        if self.is_http2 { connected.negotiated_h2() } else { connected }
    }
}

impl hyper::rt::Read for ApiStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl hyper::rt::Write for ApiStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests;
