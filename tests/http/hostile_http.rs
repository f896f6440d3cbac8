//! Hostile clients: slow, many, with huge requests, and disconnected before the answer. A health probe succeeds all
//! the same.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use windlass::http::{Checks, Limits, ServingMetrics, router, serve};
use windlass::metrics::Metrics;

use windlass_testkit::serving::{ApiServer, Options, Serving, ask, connect_from};

/// Nothing here takes a tenth of this on an idle machine.
pub(super) const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// Two clients.
pub(super) const LOUD: [u8; 4] = [127, 0, 0, 1];
pub(super) const QUIET: [u8; 4] = [127, 0, 0, 2];

async fn secure(limits: Limits) -> Serving {
    let mut options = Options::default();
    options.serving.limits = limits;
    Serving::start(ApiServer::new(Err(404)), options).await
}

#[tokio::test]
async fn a_request_header_that_never_ends_is_cut_off_however_often_bytes_arrive() {
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
    let _ = timeout(WAIT_TIMEOUT, read.read_to_end(&mut answer)).await.unwrap();
    assert!(!answer.starts_with(b"HTTP/1.1 200"));
    assert!(begin.elapsed() >= Duration::from_millis(400));
    dribbling.abort();
    assert!(serving.metrics.render().contains("reason=\"header_timeout\"} 1"));
}

#[tokio::test]
async fn a_client_that_never_starts_the_tls_handshake_is_cut_off() {
    let serving = secure(Limits { handshake_timeout: Duration::from_millis(300), ..Limits::default() }).await;
    let mut stream = TcpStream::connect(serving.address).await.unwrap();
    let ended = timeout(WAIT_TIMEOUT, stream.read_to_end(&mut Vec::new())).await.unwrap();
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
    match timeout(WAIT_TIMEOUT, response).await.unwrap() {
        Ok(response) => assert_eq!(response.status(), 431),
        Err(error) => assert!(error.is_reset() || error.is_go_away() || error.is_io(), "{error}"),
    }
    assert_eq!(serving.get("/healthz", &[], None).await.0, 200);
}

#[tokio::test]
async fn http2_is_served_unless_it_is_disabled() {
    let serving = secure(Limits::default()).await;
    let (mut client, connection) = h2::client::handshake(serving.connect(None, b"h2").await).await.unwrap();
    tokio::spawn(connection);
    let request = http::Request::get("https://localhost/healthz").body(()).unwrap();
    let response = client.send_request(request, true).unwrap().0;
    assert_eq!(timeout(WAIT_TIMEOUT, response).await.unwrap().unwrap().status(), 200);

    let mut options = Options::default();
    options.serving.tls.disable_http2 = true;
    let serving = Serving::start(ApiServer::new(Err(404)), options).await;
    let stream = TcpStream::connect(serving.address).await.unwrap();
    assert!(serving.shake(stream, None, b"h2").await.is_err());
}

#[tokio::test]
async fn rapid_stream_resets_end_only_their_own_connection() {
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
    timeout(WAIT_TIMEOUT, attack).await.expect("the server ends the connection");
    let error = timeout(WAIT_TIMEOUT, ended).await.unwrap().unwrap().unwrap_err();
    assert!(error.is_go_away() || error.is_io(), "{error}");
    let reviews = serving.api.asked().accesses.lock().len();
    assert!(sent < 10_000 && reviews <= 64, "{sent} sent, {reviews} reviews");
    assert_eq!(serving.get("/healthz", &[], None).await.0, 200);
}

/// Asks once from this address.
pub(super) async fn get_from(serving: &Serving, from: [u8; 4], path: &str, token: Option<&str>) -> u16 {
    let stream = connect_from(from, serving.address).await.unwrap();
    let mut stream = serving.shake(stream, None, b"http/1.1").await.unwrap();
    let token = token.map(|token| format!("Bearer {token}"));
    let headers: Vec<(&str, &str)> = token.iter().map(|token| ("Authorization", &**token)).collect();
    ask(&mut stream, path, &headers).await.0
}

/// Opens a connection of HTTP/2 from this address, sends a request whose response it never reads, and pings
/// for as long as the server lets it. The task ends with the connection.
async fn hold_busy(serving: &Serving, from: [u8; 4]) -> JoinHandle<()> {
    let stream = connect_from(from, serving.address).await.unwrap();
    let stream = serving.shake(stream, None, b"h2").await.unwrap();
    let (mut client, mut connection) =
        h2::client::Builder::new().initial_window_size(0).handshake::<_, Bytes>(stream).await.unwrap();
    let mut pings = connection.ping_pong().unwrap();
    let driven = tokio::spawn(connection);
    let request = http::Request::get("https://localhost/healthz").body(()).unwrap();
    let response = client.send_request(request, true).unwrap().0;
    let response = timeout(WAIT_TIMEOUT, response).await.unwrap().unwrap();
    tokio::spawn(async move {
        let _unread = response;
        while pings.ping(h2::Ping::opaque()).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let _ = driven.await;
    })
}

#[tokio::test]
async fn an_address_that_uses_up_its_connections_does_not_starve_others() {
    let serving = secure(Limits { connections: 16, ..Limits::default() }).await;
    for _ in 0..16 {
        hold_busy(&serving, LOUD).await;
    }
    let probe = async || timeout(Duration::from_secs(5), get_from(&serving, QUIET, "/healthz", None)).await;
    assert_eq!(probe().await, Ok(200));
    // More of them stand in the queue, before the probe.
    let mut queue = Vec::new();
    for _ in 0..200 {
        queue.push(connect_from(LOUD, serving.address).await.unwrap());
    }
    assert_eq!(probe().await, Ok(200));
    assert!(serving.metrics.render().contains("reason=\"turned_away\""));
}

#[tokio::test]
async fn a_response_that_is_never_read_ends_its_connection_despite_pings() {
    let serving = secure(Limits { request_timeout: Duration::from_millis(500), ..Limits::default() }).await;
    let begin = Instant::now();
    let held = hold_busy(&serving, LOUD).await;
    timeout(Duration::from_secs(10), held).await.expect("the server ends the connection").unwrap();
    assert!(begin.elapsed() >= Duration::from_millis(500));
    assert!(serving.metrics.render().contains("reason=\"stalled\"} 1"));
}

/// Asks all of this at once, on as few connections of HTTP/2 as it takes, and waits for the answers.
async fn ask_at_once(serving: &Serving, from: [u8; 4], requests: &[http::Request<()>]) {
    let streams = usize::try_from(Limits::default().streams).unwrap();
    let asking = requests.chunks(streams).map(async |requests| {
        let stream = connect_from(from, serving.address).await.unwrap();
        let stream = serving.shake(stream, None, b"h2").await.unwrap();
        let (client, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        let answers = requests.iter().map(async |request| {
            let mut ready = client.clone().ready().await.unwrap();
            let response = ready.send_request(request.clone(), true).unwrap().0;
            timeout(WAIT_TIMEOUT, response).await.unwrap().unwrap()
        });
        join_all(answers).await;
    });
    join_all(asking).await;
}

/// Sends requests with so many different invalid tokens at once.
async fn guess(serving: &Serving, from: [u8; 4], tokens: usize) {
    let request = |n| {
        let request = http::Request::get("https://localhost/metrics");
        request.header("authorization", format!("Bearer {}-{n}", from[3])).body(()).unwrap()
    };
    ask_at_once(serving, from, &(0..tokens).map(request).collect::<Vec<_>>()).await;
}

/// Another client scrapes while `asking` runs; the number of reviews that `asking` may cause until then:
/// ten at once, then two in a second.
async fn scraped_meanwhile(serving: &Serving, asking: impl Future<Output = ()>) -> usize {
    let begin = Instant::now();
    let scraping = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        get_from(serving, QUIET, "/metrics", Some("good")).await
    };
    let ((), code) = tokio::join!(asking, timeout(WAIT_TIMEOUT, scraping));
    assert_eq!(code, Ok(200));
    12 + 2 * usize::try_from(begin.elapsed().as_secs()).unwrap()
}

#[tokio::test]
async fn one_address_that_guesses_tokens_does_not_use_up_the_reviews_of_others() {
    let serving = secure(Limits::default()).await;
    let most = scraped_meanwhile(&serving, guess(&serving, LOUD, 200)).await;
    let asked = serving.api.asked().tokens.load(Ordering::Relaxed);
    assert!(asked <= most, "{asked} reviews, {most} at most");
}

#[tokio::test]
async fn one_address_that_tries_paths_does_not_use_up_the_reviews_of_others() {
    let serving = secure(Limits::default()).await;
    let request = |n| http::Request::get(format!("https://localhost/{n}")).body(()).unwrap();
    let requests: Vec<_> = (0..200).map(request).collect();
    let most = scraped_meanwhile(&serving, ask_at_once(&serving, LOUD, &requests)).await;
    let asked = serving.api.asked().accesses.lock().len();
    assert!(asked <= most, "{asked} reviews, {most} at most");
}

#[tokio::test]
async fn a_formerly_valid_token_is_reviewed_again_even_if_its_address_is_throttled() {
    let ttl = Duration::from_millis(10);
    let mut options = Options::default();
    options.authentication.token_cache_ttl = ttl;
    (options.authorization.authorized_ttl, options.authorization.unauthorized_ttl) = (ttl, ttl);
    let serving = Serving::start(ApiServer::new(Err(404)), options).await;
    assert_eq!(get_from(&serving, LOUD, "/metrics", Some("good")).await, 200);
    let guessing = guess(&serving, LOUD, 200);
    let scraping = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        get_from(&serving, LOUD, "/metrics", Some("good")).await
    };
    let (_, code) = tokio::join!(guessing, scraping);
    assert_eq!(code, 200);
}

#[tokio::test]
async fn the_configmap_is_read_while_the_reviews_are_used_up() {
    let mut options = Options::default();
    options.authentication.lookup_interval = Duration::from_millis(20);
    let serving = Serving::start(ApiServer::new(Err(404)), options).await;
    // More than all have at once; the rest waits.
    let asking = join_all((1..=20).map(|n| guess(&serving, [127, 0, 1, n], 5)));
    let reading = async {
        let asked = serving.api.asked();
        let end = Instant::now() + WAIT_TIMEOUT;
        while asked.tokens.load(Ordering::Relaxed) < 40 {
            assert!(Instant::now() < end);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let before = asked.map_reads.load(Ordering::Relaxed);
        tokio::time::sleep(Duration::from_secs(1)).await;
        asked.map_reads.load(Ordering::Relaxed) - before
    };
    let (_, reads) = tokio::join!(asking, reading);
    assert!(reads >= 5, "{reads}");
}

/// The answer of plain HTTP at this address to a request with this head.
async fn answer_to(address: std::net::SocketAddr, head: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(format!("{head}Connection: close\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    timeout(WAIT_TIMEOUT, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    (answer.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_default(), answer)
}

/// Plain HTTP that listens there, and where it can be reached from here.
async fn plain(bind: &str) -> (std::net::SocketAddr, tokio_util::sync::DropGuard) {
    let listener = TcpListener::bind(bind).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let metrics = Metrics::new();
    let app = router(metrics.clone(), Checks::default());
    let stop = CancellationToken::new();
    let limits = Limits { unauthenticated_burst: 1000, ..Limits::default() };
    tokio::spawn(serve(listener, app, limits, ServingMetrics::new(&metrics), stop.clone()));
    (([127, 0, 0, 1], port).into(), stop.drop_guard())
}

#[tokio::test]
async fn a_dns_rebinding_page_reads_nothing() {
    let (address, _server) = plain("127.0.0.1:0").await;
    let port = address.port();
    let get = async |path: &str, host: &str| {
        answer_to(address, &format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n")).await
    };
    for host in [format!("localhost:{port}"), format!("127.0.0.1:{port}"), format!("[::1]:{port}")] {
        assert_eq!(get("/metrics", &host).await.0, 200, "{host}");
    }
    for host in ["attacker.example", "attacker.example:10252", "10.0.0.1", "localhost.attacker.example"] {
        for path in ["/metrics", "/healthz", "/configz", "/debug/deployments/shop/web", "/nothing"] {
            let (code, text) = get(path, host).await;
            assert_eq!(code, 421, "{host} {path}: {text}");
            assert!(text.contains("127.0.0.1") && !text.contains("attacker"), "{text}");
        }
    }
    let twice = format!("GET /metrics HTTP/1.1\r\nHost: localhost:{port}\r\nHost: attacker.example\r\n");
    assert_eq!(answer_to(address, &twice).await.0, 400);
    let proxied = format!("GET http://attacker.example/metrics HTTP/1.1\r\nHost: localhost:{port}\r\n");
    assert_eq!(answer_to(address, &proxied).await.0, 421);
}

#[tokio::test]
async fn beyond_loopback_a_probe_to_the_pod_address_is_served_and_a_page_is_not() {
    let (address, _server) = plain("0.0.0.0:0").await;
    for (host, code) in [("10.244.1.7:10252", 200), ("[fd00::7]:10252", 200), ("attacker.example:10252", 421)]
    {
        let head = format!("GET /healthz HTTP/1.1\r\nHost: {host}\r\n");
        assert_eq!(answer_to(address, &head).await.0, code, "{host}");
    }
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

/// Says that the test has this process to itself.
const ALONE: &str = "WINDLASS_TEST_ALONE";

/// In a process of its own: the memory of other tests that run beside it must not count.
#[test]
fn ten_thousand_idle_connections_cost_no_memory_and_a_probe_gets_through() {
    if std::env::var_os(ALONE).is_some() {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        return runtime.block_on(ten_thousand_idle_connections());
    }
    let name = "hostile_http::ten_thousand_idle_connections_cost_no_memory_and_a_probe_gets_through";
    let ended = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name])
        .env(ALONE, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success() && said.contains("1 passed"), "{said}");
}

async fn ten_thousand_idle_connections() {
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
        let mut stream = timeout(WAIT_TIMEOUT, connect_from([127, 0, 0, 2], address)).await.unwrap().unwrap();
        ask(&mut stream, "/healthz", &[]).await.0
    };
    assert_eq!(probe().await, 200);
    let before = resident();
    let mut held = Vec::new();
    let wanted = flood();
    let end = Instant::now() + WAIT_TIMEOUT;
    while held.len() < wanted && Instant::now() < end {
        let batch = (0..20).map(|_| timeout(WAIT_TIMEOUT, TcpStream::connect(address)));
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
