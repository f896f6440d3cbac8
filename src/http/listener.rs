//! Accepts connections and serves HTTP on them, within [`Limits`].
//!
//! hyper's own timeout of the header treats an idle connection as one with a late header, and
//! `axum::serve` has none. So `connections` keeps the time, and one task checks it.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use axum::middleware::from_fn_with_state;
use futures::FutureExt;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

use super::auth_layer::slow_down;
use super::authentication::ClientChain;
use super::connection_limits::{AddressLimiter, Limits};
use super::connections::{Connections, Slot};
use super::host::{Hosts, known_host};
use super::metrics::ServingMetrics;
use super::router::plain;
use super::tls::HTTP2;

/// The peer of a request's connection; an extension of the request.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Its address.
    pub address: IpAddr,
    /// The certificates that it showed.
    pub certificates: ClientChain,
}

/// An extension of an answer: an authenticated client sent an allowed request.
#[derive(Clone, Copy, Debug)]
pub(super) struct AllowedRequest;

/// HTTP/2's answer to streams that are reset as soon as they are opened (CVE-2023-44487): after this many
/// that were not handled yet, the connection ends.
const UNSEEN_RESETS: usize = 20;

/// After this many streams that we had to reset for an error of the client, the connection ends.
const OWN_RESETS: usize = 256;

/// The smallest cap on the header that hyper can keep.
const SMALLEST_HEADER: usize = 8192;

/// Serves `router` over plain HTTP/1.1 on `listener` until `shutdown`, and then for the limits' `drain`
/// the requests under way. Requests whose Host header names another server get 421.
///
/// # Errors
/// None at present: a listener that fails is retried.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    limits: Limits,
    metrics: ServingMetrics,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let limiter = AddressLimiter::new(limits.unauthenticated_qps, limits.unauthenticated_burst);
    let gate = Arc::new((limiter, metrics.clone()));
    let hosts = Arc::new(Hosts::of(listener.local_addr().ok().map(|address| address.ip())));
    let router =
        router.layer(from_fn_with_state(hosts, known_host)).layer(from_fn_with_state(gate, slow_down));
    Server::new("insecure", None, router, limits, metrics).run(listener, shutdown).await;
    Ok(())
}

/// The orders that end a connection from outside.
#[derive(Clone)]
struct Orders {
    finish: CancellationToken,
    abort: CancellationToken,
}

struct Table {
    connections: Connections,
    orders: BTreeMap<u64, Orders>,
}

/// One listener with its connections.
pub(super) struct Server {
    name: &'static str,
    tls: Option<TlsAcceptor>,
    router: Router,
    limits: Limits,
    metrics: ServingMetrics,
    table: Mutex<Table>,
    all: Orders,
}

impl Server {
    pub(super) fn new(
        name: &'static str,
        tls: Option<TlsAcceptor>,
        router: Router,
        limits: Limits,
        metrics: ServingMetrics,
    ) -> Arc<Self> {
        let connections = Connections::new(limits.clone());
        let table = Mutex::new(Table { connections, orders: BTreeMap::new() });
        let all = Orders { finish: CancellationToken::new(), abort: CancellationToken::new() };
        Arc::new(Server { name, tls, router, limits, metrics, table, all })
    }

    /// Accepts until `shutdown`, then drains.
    pub(super) async fn run(self: Arc<Self>, listener: TcpListener, shutdown: CancellationToken) {
        // However this function ends, by being dropped for example, its connections end too.
        let _abort_on_return = self.all.abort.clone().drop_guard();
        let tasks = TaskTracker::new();
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = self.clone().accept(listener, &tasks) => {}
            () = self.keep_time() => {}
        }
        self.all.finish.cancel();
        tasks.close();
        // The guard closes the connections that are still open then.
        let _ = timeout(self.limits.drain, tasks.wait()).await;
    }

    async fn accept(self: Arc<Self>, listener: TcpListener, tasks: &TaskTracker) {
        loop {
            match listener.accept().await {
                Ok((stream, address)) => {
                    // A socket of both families shows those of IPv4 as ::ffff:10.0.0.1.
                    let address = SocketAddr::new(address.ip().to_canonical(), address.port());
                    // A connection without a place is not awaited: others are queued behind it.
                    if self.find_place(address.ip()) {
                        tasks.spawn(self.clone().connection(stream, address));
                    }
                    // A flood must not starve the connections that are open.
                    tokio::task::yield_now().await;
                }
                Err(error) => {
                    tracing::warn!(%error, listener = self.name, "could not accept a connection; retrying after 1 s");
                    sleep(Duration::from_secs(1)).await;
                }
            }
        }
    }

    /// Whether there is a place for one more connection from this address, by closing another if needed.
    fn find_place(&self, address: IpAddr) -> bool {
        match self.with(|table, now| table.find_slot(address, now)) {
            Slot::Free => true,
            Slot::Replacing(id) => {
                self.close(id, "evicted");
                true
            }
            Slot::Full => {
                self.metrics.connections_closed.with_label_values(&[self.name, "turned_away"]).inc();
                false
            }
        }
    }

    /// Closes a connection; its place is free at once.
    fn close(&self, id: u64, reason: &str) {
        let mut table = self.table.lock();
        table.connections.closed(id);
        if let Some(orders) = table.orders.remove(&id) {
            orders.abort.cancel();
            self.metrics.connections_closed.with_label_values(&[self.name, reason]).inc();
        }
    }

    /// Ends the connections that have timed out.
    async fn keep_time(&self) {
        let Limits { handshake_timeout, header_timeout, idle_timeout, request_timeout, .. } = self.limits;
        let shortest = handshake_timeout.min(header_timeout).min(idle_timeout).min(request_timeout);
        let tick = (shortest / 4).clamp(Duration::from_millis(10), Duration::from_secs(1));
        loop {
            sleep(tick).await;
            let overdue = self.table.lock().connections.overdue(Instant::now());
            for (id, why) in overdue {
                if !why.is_graceful() {
                    self.close(id, why.label());
                } else if let Some(orders) = self.table.lock().orders.get(&id) {
                    orders.finish.cancel();
                    self.metrics.connections_closed.with_label_values(&[self.name, why.label()]).inc();
                }
            }
        }
    }

    fn with<T>(&self, change: impl FnOnce(&mut Connections, Instant) -> T) -> T {
        change(&mut self.table.lock().connections, Instant::now())
    }

    fn connection(self: Arc<Self>, stream: TcpStream, address: SocketAddr) -> impl Future<Output = ()> {
        // Entered before the task begins, so that the count is right for the next connection.
        let orders = Orders { finish: self.all.finish.child_token(), abort: self.all.abort.child_token() };
        let id = {
            let mut table = self.table.lock();
            let id = table.connections.open(address.ip(), self.tls.is_some(), Instant::now());
            table.orders.insert(id, orders.clone());
            id
        };
        let place = Place { server: self, id };
        place.count();
        async move {
            let abort = orders.abort.clone();
            tokio::select! {
                biased;
                () = abort.cancelled() => {}
                () = place.talk(stream, address.ip(), orders.finish) => {}
            }
        }
    }
}

/// An entry in the table, which ends with it.
struct Place {
    server: Arc<Server>,
    id: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        {
            let mut table = self.server.table.lock();
            table.connections.closed(self.id);
            table.orders.remove(&self.id);
        }
        self.count();
    }
}

impl Place {
    fn count(&self) {
        let open = self.server.table.lock().connections.len();
        crate::metrics::set_gauge(
            &self.server.metrics.connections.with_label_values(&[self.server.name]),
            open,
        );
    }

    async fn talk(&self, stream: TcpStream, address: IpAddr, finish: CancellationToken) {
        let Some(acceptor) = &self.server.tls else {
            let peer = Peer { address, certificates: ClientChain::new(&[]) };
            return self.serve_http(stream, false, peer, finish).await;
        };
        let stream = match acceptor.accept(stream).await {
            Ok(stream) => stream,
            Err(error) => {
                self.server.metrics.handshake_errors.inc();
                tracing::debug!(%error, %address, "TLS handshake failed");
                return;
            }
        };
        let (_, session) = stream.get_ref();
        let http2 = session.alpn_protocol() == Some(HTTP2);
        let certificates = ClientChain::new(session.peer_certificates().unwrap_or_default());
        self.server.with(|table, now| table.handshake_done(self.id, http2, now));
        self.serve_http(stream, http2, Peer { address, certificates }, finish).await;
    }

    async fn serve_http<S>(&self, stream: S, http2: bool, peer: Peer, finish: CancellationToken)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (server, id) = (&self.server, self.id);
        let io = TokioIo::new(Watched { stream, server: server.clone(), id });
        let answering = server.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let under_way = UnderWay::begin(answering.clone(), id);
            let (server, peer) = (answering.clone(), peer.clone());
            async move {
                let response = server.answer(request, peer).await;
                if response.extensions().get::<AllowedRequest>().is_some() {
                    server.with(|table, _| table.authorized(id));
                }
                let under_way = under_way.answered();
                Ok::<_, Infallible>(response.map(|body| Answer { body, _under_way: under_way }))
            }
        });
        let limits = &server.limits;
        let header = limits.header_bytes.max(SMALLEST_HEADER);
        let ended = if http2 {
            let mut builder = http2::Builder::new(TokioExecutor::new());
            builder
                .timer(TokioTimer::new())
                .max_concurrent_streams(limits.streams)
                .max_pending_accept_reset_streams(UNSEEN_RESETS)
                .max_local_error_reset_streams(OWN_RESETS)
                .max_header_list_size(u32::try_from(header).unwrap_or(u32::MAX))
                .max_send_buf_size(256 << 10);
            let connection = builder.serve_connection(io, service);
            drive(connection, finish, http2::Connection::graceful_shutdown).await
        } else {
            let mut builder = http1::Builder::new();
            builder.header_read_timeout(None).max_buf_size(header).max_header_size(header);
            let connection = builder.serve_connection(io, service);
            drive(connection, finish, http1::Connection::graceful_shutdown).await
        };
        if let Err(error) = ended {
            tracing::debug!(%error, listener = server.name, "a connection ended with an error");
        }
    }
}

/// Runs a connection, and asks it to end after its requests once `finish` is cancelled.
async fn drive<C>(
    connection: C,
    finish: CancellationToken,
    graceful_shutdown: impl FnOnce(Pin<&mut C>),
) -> hyper::Result<()>
where
    C: Future<Output = hyper::Result<()>>,
{
    let mut connection = pin!(connection);
    tokio::select! {
        ended = connection.as_mut() => return ended,
        () = finish.cancelled() => {}
    }
    graceful_shutdown(connection.as_mut());
    connection.await
}

impl Server {
    async fn answer(&self, request: Request<Incoming>, peer: Peer) -> Response<Body> {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(peer);
        let answer = AssertUnwindSafe(self.router.clone().oneshot(request)).catch_unwind();
        match timeout(self.limits.request_timeout, answer).await {
            Ok(Ok(Ok(response))) => response,
            Ok(Err(_panic)) => {
                tracing::error!(listener = self.name, "request handler panicked; the client gets status 500");
                let text = "the answer to this request panicked; the log says where\n";
                plain(StatusCode::INTERNAL_SERVER_ERROR, text.to_owned())
            }
            Err(_) => {
                let text = format!("no answer within {} s\n", self.limits.request_timeout.as_secs());
                plain(StatusCode::GATEWAY_TIMEOUT, text)
            }
        }
    }
}

/// A request until its answer is computed and read.
struct UnderWay {
    server: Arc<Server>,
    id: u64,
    /// Since when the one or the other.
    since: Instant,
}

impl UnderWay {
    fn begin(server: Arc<Server>, id: u64) -> Self {
        let since = server.with(|table, now| table.began(id, now));
        UnderWay { server, id, since }
    }

    /// The answer is computed, and the client has to read it. `answer` has limited the time for computing it.
    fn answered(mut self) -> Self {
        let made = self.since;
        self.since = self.server.with(|table, now| {
            let since = table.began(self.id, now);
            table.ended(self.id, made, now);
            since
        });
        self
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.server.with(|table, now| table.ended(self.id, self.since, now));
    }
}

/// The body of an answer; its end is the end of the request.
struct Answer {
    body: Body,
    _under_way: UnderWay,
}

impl http_body::Body for Answer {
    type Data = bytes::Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A stream that tells the table what the client sends.
struct Watched<S> {
    stream: S,
    server: Arc<Server>,
    id: u64,
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.server.with(|table, now| table.read(self.id, now));
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
