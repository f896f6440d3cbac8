//! Authentication and authorization over HTTPS: tokens, client certificates, front proxies, and anonymous clients.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::future::join_all;
use rustls::pki_types::CertificateDer;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use windlass::http::serving::SniPair;
use windlass::http::{AuthenticationOptions, Limits, ServingMetrics, ServingOptions, serve};
use windlass::metrics::Metrics;

use windlass_testkit::serving::{ApiServer, Authority, Identity, Options, Serving};

/// The ConfigMap that the API server publishes, with these authorities.
fn published(clients: &Authority, proxies: &Authority) -> serde_json::Value {
    json!({
        "client-ca-file": clients.pem,
        "requestheader-client-ca-file": proxies.pem,
        "requestheader-allowed-names": "[\"aggregator\"]",
        "requestheader-username-headers": "[\"X-Remote-User\"]",
        "requestheader-group-headers": "[\"X-Remote-Group\"]",
        "requestheader-extra-headers-prefix": "[\"X-Remote-Extra-\"]",
    })
}

async fn start(map: Result<serde_json::Value, u16>) -> Serving {
    Serving::start(ApiServer::new(map), Options::default()).await
}

#[tokio::test]
async fn an_anonymous_client_gets_health_and_nothing_else() {
    let serving = start(Err(404)).await;
    for path in ["/healthz", "/livez", "/readyz?verbose"] {
        assert_eq!(serving.get(path, &[], None).await.0, 200, "{path}");
    }
    assert_eq!(serving.api.users_asked_about(), Vec::<String>::new());
    for path in ["/metrics", "/healthz/ping", "/nothing", "/%6detrics"] {
        assert_eq!(serving.get(path, &[], None).await.0, 403, "{path}");
    }
    let (_, text) = serving.get("/metrics", &[], None).await;
    let status = r#""message":"forbidden: User \"system:anonymous\" cannot get path \"/metrics\"""#;
    assert!(text.contains(status) && text.contains(r#""reason":"Forbidden""#), "{text}");
    assert!(text.contains("cache-control: no-cache, private"), "{text}");
}

#[tokio::test]
async fn a_valid_token_may_scrape_and_an_invalid_one_is_refused() {
    let serving = start(Err(404)).await;
    let scrape = async |token: &str| serving.get("/metrics", &[("Authorization", token)], None).await;
    let (code, text) = serving.get("/metrics", &[("Authorization", "Bearer good")], None).await;
    assert_eq!(code, 200, "{text}");
    assert!(text.contains("authentication_attempts{result=\"success\"} 1"), "{text}");
    let spec = serving.api.asked().accesses.lock()[0].clone();
    assert_eq!(spec["nonResourceAttributes"], json!({"path": "/metrics", "verb": "get"}));
    assert_eq!(spec["groups"], json!(["system:authenticated"]));
    let (code, text) = scrape("Bearer bad").await;
    assert_eq!(code, 401);
    assert!(text.contains(r#""message":"Unauthorized""#) && text.contains(r#""code":401"#), "{text}");
    // A credential that is not good is refused even where none is needed, as upstream has it.
    assert_eq!(serving.get("/healthz", &[("Authorization", "Bearer bad")], None).await.0, 401);
    // A header without a bearer token counts as absent.
    assert_eq!(scrape("Basic bad").await.0, 403);
    assert_eq!(serving.get("/nothing", &[("Authorization", "Bearer good")], None).await.0, 404);
}

#[tokio::test]
async fn a_thousand_requests_with_one_invalid_token_cause_a_handful_of_reviews() {
    let serving = start(Err(404)).await;
    let headers = [("Authorization", "Bearer bad")];
    for _ in 0..20 {
        let codes = join_all((0..50).map(|_| serving.get("/metrics", &headers, None))).await;
        assert!(codes.iter().all(|(code, _)| [401, 429].contains(code)));
    }
    let reviews = serving.api.asked().tokens.load(Ordering::Relaxed);
    assert!(reviews <= 10, "{reviews}");
}

#[tokio::test]
async fn a_thousand_invalid_tokens_from_one_address_are_throttled_and_a_valid_token_is_not() {
    let mut options = Options::default();
    options.serving.limits.unauthenticated_qps = 0.1;
    options.serving.limits.unauthenticated_burst = 20;
    let serving = Serving::start(ApiServer::new(Err(404)), options).await;
    let good = [("Authorization", "Bearer good")];
    assert_eq!(serving.get("/metrics", &good, None).await.0, 200);
    let mut limited = 0;
    for n in 0..100 {
        let bad = format!("Bearer bad{n}");
        let (code, text) = serving.get("/metrics", &[("Authorization", &bad)], None).await;
        limited += usize::from(code == 429 && text.contains("retry-after: 1"));
    }
    assert!(limited >= 79, "{limited}");
    assert!(serving.api.asked().tokens.load(Ordering::Relaxed) <= 21);
    assert_eq!(serving.get("/metrics", &good, None).await.0, 200);
    assert!(serving.metrics.render().contains("windlass_http_requests_limited_total{reason=\"address\"}"));
}

#[tokio::test]
async fn a_cached_review_is_renewed_when_it_has_expired() {
    let authentication =
        AuthenticationOptions { token_cache_ttl: Duration::from_millis(300), ..Default::default() };
    let options = Options { authentication, ..Options::default() };
    let serving = Serving::start(ApiServer::new(Err(404)), options).await;
    let good = [("Authorization", "Bearer good")];
    let tokens = || serving.api.asked().tokens.load(Ordering::Relaxed);
    let begin = tokio::time::Instant::now();
    serving.get("/metrics", &good, None).await;
    serving.get("/metrics", &good, None).await;
    if begin.elapsed() < Duration::from_millis(300) {
        assert_eq!(tokens(), 1);
    }
    let before = tokens();
    tokio::time::sleep(Duration::from_millis(400)).await;
    serving.get("/metrics", &good, None).await;
    assert_eq!(tokens(), before + 1);
}

#[tokio::test]
async fn a_client_certificate_authenticates_its_common_name_and_masters_need_no_review() {
    let (clients, strangers) = (Authority::new("clients"), Authority::new("strangers"));
    let serving = start(Ok(json!({"client-ca-file": clients.pem}))).await;
    assert_eq!(serving.get("/metrics", &[], Some(&clients.client("ada", Some("team")))).await.0, 200);
    let spec = serving.api.asked().accesses.lock()[0].clone();
    assert_eq!((&spec["user"], &spec["groups"]), (&json!("ada"), &json!(["team", "system:authenticated"])));
    assert_eq!(serving.get("/metrics", &[], Some(&clients.client("eve", None))).await.0, 403);
    let master = clients.client("root", Some("system:masters"));
    assert_eq!(serving.get("/metrics", &[], Some(&master)).await.0, 200);
    assert_eq!(serving.api.users_asked_about(), ["ada", "eve"]);
    let (code, _) =
        serving.get("/metrics", &[], Some(&strangers.client("ada", Some("system:masters")))).await;
    assert_eq!(code, 401);
    // A certificate for servers is none for clients.
    assert_eq!(serving.get("/metrics", &[], Some(&clients.server("ada"))).await.0, 401);
}

#[tokio::test]
async fn forged_user_headers_are_ignored_and_those_of_a_front_proxy_are_trusted() {
    let (clients, proxies) = (Authority::new("clients"), Authority::new("proxies"));
    let serving = start(Ok(published(&clients, &proxies))).await;
    let forged = [("X-Remote-User", "ada"), ("X-Remote-Group", "system:masters")];
    let asked = async |identity: Option<&Identity>| serving.get("/metrics", &forged, identity).await.0;
    assert_eq!(asked(None).await, 403);
    assert_eq!(asked(Some(&clients.client("eve", None))).await, 403);
    assert_eq!(serving.api.users_asked_about(), ["system:anonymous", "eve"]);
    assert_eq!(asked(Some(&proxies.client("impostor", None))).await, 401);
    assert_eq!(asked(Some(&clients.client("aggregator", None))).await, 403);
    assert_eq!(asked(Some(&proxies.client("aggregator", None))).await, 200);
    let headers = [("X-Remote-User", "ada"), ("X-Remote-Group", "g"), ("X-Remote-Extra-Scopes%2fX", "y")];
    let proxy = proxies.client("aggregator", None);
    assert_eq!(serving.get("/metrics", &headers, Some(&proxy)).await.0, 200);
    let spec = serving.api.asked().accesses.lock().last().unwrap().clone();
    assert_eq!(spec["groups"], json!(["g", "system:authenticated"]));
    assert_eq!(spec["extra"], json!({"scopes/x": ["y"]}));
}

#[tokio::test]
async fn the_configmap_may_be_missing_but_not_forbidden_unless_tolerated() {
    let with = |code, tolerate_lookup_failure, skip_lookup| {
        let authentication =
            AuthenticationOptions { tolerate_lookup_failure, skip_lookup, ..Default::default() };
        Serving::try_start(ApiServer::new(Err(code)), Options { authentication, ..Options::default() })
    };
    assert!(with(404, false, false).await.is_ok());
    let error = with(403, false, false).await.err().unwrap().to_string();
    for word in ["extension-apiserver-authentication", "--authentication-tolerate-lookup-failure"] {
        assert!(error.contains(word), "{error}");
    }
    assert!(with(403, true, false).await.is_ok());
    let skipping = with(403, false, true).await.unwrap();
    assert_eq!(skipping.api.asked().map_reads.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_failing_api_server_delays_client_certificates_but_not_health() {
    let clients = Authority::new("clients");
    let authentication =
        AuthenticationOptions { lookup_interval: Duration::from_millis(50), ..Default::default() };
    let options = Options { authentication, ..Options::default() };
    let serving = Serving::start(ApiServer::new(Err(503)), options).await;
    assert_eq!(serving.get("/healthz", &[], None).await.0, 200);
    let ada = clients.client("ada", None);
    assert_eq!(serving.get("/metrics", &[], Some(&ada)).await.0, 403);
    *serving.api.asked().map.lock() = Ok(json!({"client-ca-file": clients.pem}));
    let end = tokio::time::Instant::now() + Duration::from_secs(20);
    while serving.get("/metrics", &[], Some(&ada)).await.0 != 200 {
        assert!(tokio::time::Instant::now() < end);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // Invalid data that is published later changes nothing.
    *serving.api.asked().map.lock() = Ok(json!({"client-ca-file": "rubbish"}));
    while !serving.metrics.render().contains("windlass_tls_client_ca_reloads_total{result=\"failed\"}") {
        assert!(tokio::time::Instant::now() < end);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(serving.get("/metrics", &[], Some(&ada)).await.0, 200);
}

#[tokio::test]
async fn an_api_server_without_reviews_allows_health_only_and_the_response_has_the_reason() {
    let clients = Authority::new("clients");
    let serving = start(Ok(json!({"client-ca-file": clients.pem}))).await;
    *serving.api.asked().trouble.lock() = Some(404);
    assert_eq!(serving.get("/healthz", &[], None).await.0, 200);
    let (code, text) = serving.get("/metrics", &[], None).await;
    assert_eq!(code, 403);
    assert!(text.contains("has no SubjectAccessReviews"), "{text}");
    *serving.api.asked().trouble.lock() = Some(500);
    let (code, text) = serving.get("/metrics", &[], Some(&clients.client("ada", None))).await;
    assert_eq!(code, 500);
    assert!(text.contains("Internal Server Error: \"/metrics\": "), "{text}");
    assert_eq!(serving.get("/metrics", &[("Authorization", "Bearer good")], None).await.0, 401);
}

#[tokio::test]
async fn with_the_sandbox_where_everybody_may_do_everything_the_daemon_serves_all_but_tokens() {
    let now: jiff::Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let sandbox = windlass_apiserver::Sandbox::new(windlass_apiserver::Options::new(Arc::new(move || now)));
    let client = kube::Client::new(sandbox.router(), "default");
    let unused = ApiServer::new(Err(500));
    let serving = Serving::over(client, unused, Options::default()).await.unwrap();
    assert_eq!(serving.get("/healthz", &[], None).await.0, 200);
    assert_eq!(serving.get("/metrics", &[], None).await.0, 200);
    assert_eq!(serving.get("/metrics", &[("Authorization", "Bearer any")], None).await.0, 401);
}

/// The certificate that the server shows at present.
async fn shown(serving: &Serving) -> CertificateDer<'static> {
    let stream = serving.connect(None, b"http/1.1").await;
    stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned()
}

#[tokio::test]
async fn a_new_certificate_is_served_without_a_restart_and_an_invalid_one_never() {
    let mut options = Options::default();
    options.serving.reload_interval = Duration::from_millis(50);
    let serving = Serving::start(ApiServer::new(Err(404)), options).await;
    let first = shown(&serving).await;
    let counted = |result: &str| {
        let line = format!("windlass_tls_certificate_reloads_total{{result=\"{result}\"}}");
        serving.metrics.render().contains(&line)
    };
    let end = tokio::time::Instant::now() + Duration::from_secs(20);
    std::fs::write(serving.dir.path().join("crt"), "-----BEGIN CERTIFICATE-----\n!").unwrap();
    while !counted("failed") {
        assert!(tokio::time::Instant::now() < end);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(shown(&serving).await, first);
    serving.replace_certificate("second");
    while shown(&serving).await == first {
        assert!(tokio::time::Instant::now() < end);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(counted("reloaded"));
}

#[tokio::test]
async fn a_client_gets_the_certificate_for_its_server_name_indication() {
    let dir = tempfile::tempdir().unwrap();
    let (cert_file, key_file) = (dir.path().join("other.crt"), dir.path().join("other.key"));
    let mut options = Options::default();
    options.serving.sni = vec![SniPair { cert_file, key_file, names: vec!["other.test".into()] }];
    let serving = Serving::start(ApiServer::new(Err(404)), options).await;
    let shake = async |name| {
        let stream = TcpStream::connect(serving.address).await.unwrap();
        serving.shake_as(stream, None, b"http/1.1", name, rustls::ALL_VERSIONS).await
    };
    assert!(shake("other.test").await.is_ok());
    assert!(shake("localhost").await.is_ok());
    assert!(shake("third.test").await.is_err());
}

#[tokio::test]
async fn a_tls_version_below_the_minimum_is_refused() {
    let mut options = Options::default();
    options.serving.tls.min_version = "VersionTLS13".parse().unwrap();
    let strict = Serving::start(ApiServer::new(Err(404)), options).await;
    let lax = start(Err(404)).await;
    let old = async |serving: &Serving| {
        let stream = TcpStream::connect(serving.address).await.unwrap();
        serving.shake_as(stream, None, b"http/1.1", "localhost", &[&rustls::version::TLS12]).await
    };
    assert!(old(&strict).await.is_err());
    assert!(old(&lax).await.is_ok());
}

/// Plain HTTP over one route; the other side of the socket and the end of the server.
async fn plain(route: axum::Router) -> (SocketAddr, CancellationToken, JoinHandle<std::io::Result<()>>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let counters = ServingMetrics::new(&Metrics::new());
    let serving = tokio::spawn(serve(listener, route, Limits::default(), counters, stop.clone()));
    (address, stop, serving)
}

#[tokio::test]
async fn a_shutdown_lets_a_request_finish_and_does_not_wait_for_idle_connections() {
    let begun = Arc::new(tokio::sync::Notify::new());
    let notify = begun.clone();
    let slow = move || async move {
        notify.notify_one();
        tokio::time::sleep(Duration::from_millis(300)).await;
        "done"
    };
    let (address, stop, serving) = plain(axum::Router::new().route("/", axum::routing::get(slow))).await;
    let _idle = TcpStream::connect(address).await.unwrap();
    let asking = tokio::spawn(async move {
        let mut stream = TcpStream::connect(address).await.unwrap();
        windlass_testkit::serving::ask(&mut stream, "/", &[]).await
    });
    begun.notified().await;
    stop.cancel();
    let (code, text) = asking.await.unwrap();
    assert!(code == 200 && text.ends_with("done"), "{text}");
    tokio::time::timeout(Duration::from_secs(30), serving).await.unwrap().unwrap().unwrap();
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn a_panicking_handler_gives_a_500_and_the_connection_stays_open() {
    let panics = || async { if true { panic!("a mistake") } else { "unreachable" } };
    let route = axum::Router::new().route("/panic", axum::routing::get(panics));
    let (address, _stop, _serving) = plain(route.route("/", axum::routing::get(|| async { "fine" }))).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /panic HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut answer = [0; 1024];
    let read = stream.read(&mut answer).await.unwrap();
    assert!(answer[..read].starts_with(b"HTTP/1.1 500"));
    let (code, text) = windlass_testkit::serving::ask(&mut stream, "/", &[]).await;
    assert!(code == 200 || text.contains("HTTP/1.1 200"), "{text}");
}

#[tokio::test]
async fn invalid_settings_are_reported_at_startup_with_flag_and_file() {
    let missing = PathBuf::from("/does/not/exist");
    let error = async |options: Options| {
        let started = Serving::try_start(ApiServer::new(Err(404)), options).await;
        started.err().unwrap().to_string()
    };
    let serving =
        ServingOptions { tls_files: Some((missing.clone(), missing.clone())), ..Default::default() };
    let text = error(Options { serving, ..Options::default() }).await;
    assert!(text.starts_with("--tls-cert-file /does/not/exist: "), "{text}");
    let dir = tempfile::tempdir().unwrap();
    let rubbish = dir.path().join("ca");
    std::fs::write(&rubbish, "rubbish").unwrap();
    let authentication = AuthenticationOptions {
        client_ca_file: Some(rubbish.clone()),
        tolerate_lookup_failure: true,
        ..Default::default()
    };
    let text = error(Options { authentication, ..Options::default() }).await;
    assert_eq!(text, format!("--client-ca-file {}: it holds no certificate in PEM", rubbish.display()));
}

#[tokio::test]
async fn a_port_in_use_is_reported_with_its_flag() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let metrics = windlass::metrics::Metrics::new();
    let serving = ServingOptions {
        bind_address: [127, 0, 0, 1].into(),
        secure_port: taken.local_addr().unwrap().port(),
        ..ServingOptions::default()
    };
    let result = windlass::http::SecureServer::bind(
        &Options { serving, ..Options::default() },
        windlass::http::router(metrics.clone(), Default::default()),
        windlass::http::Reviewers::new(ApiServer::new(Err(404)).client(), "api", metrics.clone()),
        windlass::http::ServingMetrics::new(&metrics),
        windlass::clock::Clock::System,
    )
    .await;
    let text = result.err().unwrap().to_string();
    assert!(text.starts_with("--secure-port: cannot listen on 127.0.0.1:"), "{text}");
}

#[tokio::test]
async fn an_unspecified_bind_address_covers_ipv4_or_ipv6() {
    let has_ipv6 = std::net::TcpListener::bind("[::1]:0").is_ok();
    for bind_address in ["0.0.0.0", "::"] {
        if bind_address == "::" && !has_ipv6 {
            continue;
        }
        let metrics = windlass::metrics::Metrics::new();
        let serving = ServingOptions {
            bind_address: bind_address.parse().unwrap(),
            secure_port: 0,
            ..ServingOptions::default()
        };
        let server = windlass::http::SecureServer::bind(
            &Options { serving, ..Options::default() },
            windlass::http::router(metrics.clone(), Default::default()),
            windlass::http::Reviewers::new(ApiServer::new(Err(404)).client(), "api", metrics.clone()),
            windlass::http::ServingMetrics::new(&metrics),
            windlass::clock::Clock::System,
        )
        .await
        .unwrap_or_else(|error| panic!("{bind_address}: {error}"));
        let port = server.local_addr().unwrap().port();
        for loopback in ["127.0.0.1", "::1"] {
            if loopback == "127.0.0.1" || has_ipv6 {
                let address = SocketAddr::new(loopback.parse().unwrap(), port);
                let reached = TcpStream::connect(address).await;
                assert!(reached.is_ok(), "{bind_address} at {loopback}: {reached:?}");
            }
        }
    }
}
