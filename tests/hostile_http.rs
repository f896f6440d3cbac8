//! Clients that mean harm: slow, many, huge, and gone before the answer. A health probe gets through.

use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use windlass::http::{Checks, Limits, ServingMetrics, router, serve};
use windlass::metrics::Metrics;

#[path = "support/serving.rs"]
mod support;

use support::{ApiServer, Options, Serving, ask, connect_from};

/// Nothing here takes a tenth of this on an idle machine.
const PATIENCE: Duration = Duration::from_secs(60);

async fn secure(limits: Limits) -> Serving {
    let mut options = Options::default();
    options.serving.limits = limits;
    Serving::start(ApiServer::new(Err(404)), options).await
}

#[tokio::test]
async fn a_header_that_never_ends_is_cut_off_however_busily_it_dribbles() {
    let serving = secure(Limits { header_timeout: Duration::from_millis(500), ..Limits::default() }).await;
    let mut stream = serving.connect(None, b"http/1.1").await;
    let begin = Instant::now();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n").await.unwrap();
    let (mut read, mut write) = tokio::io::split(stream);
    let dribbling = tokio::spawn(async move {
        while write.write_all(b"X: y\r\n").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let mut answer = Vec::new();
    let _ = timeout(PATIENCE, read.read_to_end(&mut answer)).await.unwrap();
    assert!(!answer.starts_with(b"HTTP/1.1 200"));
    assert!(begin.elapsed() >= Duration::from_millis(400));
    dribbling.abort();
    assert!(serving.metrics.render().contains("reason=\"header_timeout\"} 1"));
}

#[tokio::test]
async fn a_client_that_never_begins_tls_is_cut_off() {
    let serving = secure(Limits { handshake_timeout: Duration::from_millis(300), ..Limits::default() }).await;
    let mut stream = TcpStream::connect(serving.address).await.unwrap();
    let ended = timeout(PATIENCE, stream.read_to_end(&mut Vec::new())).await.unwrap();
    assert!(matches!(ended, Ok(0) | Err(_)));
    assert!(serving.metrics.render().contains("reason=\"handshake_timeout\"} 1"));
}

#[tokio::test]
async fn a_connection_between_two_requests_outlives_the_time_for_a_header() {
    let serving = secure(Limits { header_timeout: Duration::from_millis(300), ..Limits::default() }).await;
    let mut stream = serving.connect(None, b"http/1.1").await;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut answer = [0; 1024];
    assert!(stream.read(&mut answer).await.unwrap() > 0);
    tokio::time::sleep(Duration::from_millis(900)).await;
    assert_eq!(ask(&mut stream, "/healthz", &[]).await.0, 200);
}

#[tokio::test]
async fn a_huge_header_is_a_431_on_both_protocols() {
    let serving = secure(Limits::default()).await;
    let huge = "x".repeat(70_000);
    assert_eq!(serving.get("/healthz", &[("X-Huge", &huge)], None).await.0, 431);
    let many: Vec<(String, String)> = (0..200).map(|n| (format!("X-{n}"), "y".into())).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(name, value)| (&**name, &**value)).collect();
    assert_eq!(serving.get("/healthz", &many, None).await.0, 431);

    let (mut client, connection) = h2::client::handshake(serving.connect(None, b"h2").await).await.unwrap();
    tokio::spawn(connection);
    let request = http::Request::get("https://localhost/healthz").header("x-huge", huge).body(()).unwrap();
    let (response, _) = client.send_request(request, true).unwrap();
    // The server may answer, or refuse the stream.
    match timeout(PATIENCE, response).await.unwrap() {
        Ok(response) => assert_eq!(response.status(), 431),
        Err(error) => assert!(error.is_reset() || error.is_go_away() || error.is_io(), "{error}"),
    }
    assert_eq!(serving.get("/healthz", &[], None).await.0, 200);
}

#[tokio::test]
async fn http2_is_spoken_unless_it_is_disabled() {
    let serving = secure(Limits::default()).await;
    let (mut client, connection) = h2::client::handshake(serving.connect(None, b"h2").await).await.unwrap();
    tokio::spawn(connection);
    let request = http::Request::get("https://localhost/healthz").body(()).unwrap();
    let response = client.send_request(request, true).unwrap().0;
    assert_eq!(timeout(PATIENCE, response).await.unwrap().unwrap().status(), 200);

    let mut options = Options::default();
    options.serving.tls.disable_http2 = true;
    let serving = Serving::start(ApiServer::new(Err(404)), options).await;
    let stream = TcpStream::connect(serving.address).await.unwrap();
    assert!(serving.shake(stream, None, b"h2").await.is_err());
}

#[tokio::test]
async fn streams_reset_as_soon_as_they_are_opened_end_their_own_connection_only() {
    let serving = secure(Limits::default()).await;
    let stream = serving.connect(None, b"h2").await;
    let (mut client, connection) = h2::client::Builder::new()
        .initial_max_send_streams(100_000)
        .handshake::<_, Bytes>(stream)
        .await
        .unwrap();
    let ended = tokio::spawn(connection);
    let mut sent = 0_u32;
    let attack = async {
        loop {
            let Ok(mut ready) = client.clone().ready().await else { return };
            let request = http::Request::get("https://localhost/metrics").body(()).unwrap();
            let Ok((response, mut stream)) = ready.send_request(request, false) else { return };
            stream.send_reset(h2::Reason::CANCEL);
            drop(response);
            client = ready;
            sent += 1;
            if sent.is_multiple_of(64) {
                tokio::task::yield_now().await;
            }
        }
    };
    timeout(PATIENCE, attack).await.expect("the server ends the connection");
    let error = timeout(PATIENCE, ended).await.unwrap().unwrap().unwrap_err();
    assert!(error.is_go_away() || error.is_io(), "{error}");
    let reviews = serving.api.asked().accesses.lock().len();
    assert!(sent < 10_000 && reviews <= 64, "{sent} sent, {reviews} reviews");
    assert_eq!(serving.get("/healthz", &[], None).await.0, 200);
}

/// The memory of this process, in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or("0");
    line.split_whitespace().next().and_then(|kb| kb.parse::<usize>().ok()).unwrap_or_default() << 10
}

/// So many connections as this process may have, at most ten thousand.
fn flood() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap_or("1024");
    let files = line.split_whitespace().next().and_then(|files| files.parse().ok()).unwrap_or(1024);
    10_000_usize.min(usize::saturating_sub(files, 600))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_idle_connections_cost_no_memory_and_a_probe_gets_through() {
    let limits = Limits::default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let metrics = Metrics::new();
    let app = router(metrics.clone(), Checks::default());
    let counters = ServingMetrics::new(&metrics);
    let stop = CancellationToken::new();
    let _stop_on_return = stop.clone().drop_guard();
    tokio::spawn(serve(listener, app, limits.clone(), counters, stop));

    let probe = async || {
        let mut stream = timeout(PATIENCE, connect_from([127, 0, 0, 2], address)).await.unwrap().unwrap();
        ask(&mut stream, "/healthz", &[]).await.0
    };
    assert_eq!(probe().await, 200);
    let before = resident();
    let mut held = Vec::new();
    let wanted = flood();
    let end = Instant::now() + PATIENCE;
    while held.len() < wanted && Instant::now() < end {
        let batch = (0..20).map(|_| timeout(PATIENCE, TcpStream::connect(address)));
        held.extend(futures::future::join_all(batch).await.into_iter().flatten().flatten());
        // Faster, and the kernel drops connections before the server sees them.
        tokio::time::sleep(Duration::from_millis(10)).await;
        if held.len().is_multiple_of(1000) {
            assert_eq!(probe().await, 200);
        }
    }
    assert_eq!(probe().await, 200);
    let text = metrics.render();
    let open =
        text.lines().find_map(|line| line.strip_prefix("windlass_http_connections{listener=\"insecure\"} "));
    let open: usize = open.unwrap().parse().unwrap();
    assert!(open <= limits.connections, "{open}");
    assert!(
        text.contains("windlass_http_connections_closed_total{listener=\"insecure\",reason=\"evicted\"}")
    );
    // The clients' own side is in this number as well.
    let grown = resident().saturating_sub(before);
    assert!(grown < 64 << 20, "{} connections cost {grown} bytes", held.len());
}
