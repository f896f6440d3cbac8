//! Chains of client certificates that cost much to judge.

use std::time::Duration;

use futures::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout};
use windlass::http::Limits;
use windlass_testkit::serving::{
    ApiServer, Authority, Identity, Options, Serving, connect_from, costly_chain,
};

use super::hostile_http::{LOUD, QUIET, WAIT_TIMEOUT, get_from};

/// A server that trusts these client CAs.
async fn trusting(clients: &Authority, limits: Limits) -> Serving {
    let mut options = Options::default();
    options.serving.limits = limits;
    let map = serde_json::json!({"client-ca-file": clients.pem, "requestheader-client-ca-file": clients.pem});
    Serving::start(ApiServer::new(Ok(map)), options).await
}

/// The status of the answer to a request on a connection of its own; `None` if the server ends the connection.
async fn answer_for(serving: &Serving, from: [u8; 4], identity: &Identity) -> Option<u16> {
    let stream = connect_from(from, serving.address).await.unwrap();
    let mut stream = serving.shake(stream, Some(identity), b"http/1.1").await.ok()?;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.ok()?;
    let mut answer = Vec::new();
    timeout(WAIT_TIMEOUT, stream.read_to_end(&mut answer)).await.unwrap().ok()?;
    String::from_utf8_lossy(&answer).split(' ').nth(1)?.parse().ok()
}

#[tokio::test]
async fn a_chain_of_270_client_certificates_is_refused_in_the_handshake_and_delays_no_probe() {
    let serving = trusting(&Authority::new("clients"), Limits::default()).await;
    let costly = costly_chain(8, 262);
    let attack = join_all((0..8).map(|_| answer_for(&serving, LOUD, &costly)));
    let probe = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let begin = Instant::now();
        (get_from(&serving, QUIET, "/healthz", None).await, begin.elapsed())
    };
    let (answers, (code, took)) = tokio::join!(attack, probe);
    assert_eq!(code, 200);
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert_eq!(answers, [None; 8]);
    let metrics = serving.metrics.render();
    assert!(metrics.contains("apiserver_tls_handshake_errors_total 8\n"), "{metrics}");
}

#[tokio::test]
async fn the_largest_chain_that_is_judged_gets_a_401_and_delays_no_probe() {
    let serving = trusting(&Authority::new("clients"), Limits::default()).await;
    let costly = costly_chain(3, 0);
    let attack = join_all((0..50).map(|_| answer_for(&serving, LOUD, &costly)));
    let probe = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let begin = Instant::now();
        (get_from(&serving, QUIET, "/healthz", None).await, begin.elapsed())
    };
    let (answers, (code, took)) = tokio::join!(attack, probe);
    assert_eq!(code, 200);
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert_eq!(answers, [Some(401); 50]);
}

#[tokio::test]
async fn a_chain_is_charged_before_it_is_judged_and_a_good_one_costs_nothing() {
    let clients = Authority::new("clients");
    let limits = Limits { unauthenticated_qps: 0.02, unauthenticated_burst: 1, ..Limits::default() };
    let serving = trusting(&clients, limits).await;
    let master = clients.client("root", Some("system:masters"));
    for _ in 0..5 {
        assert_eq!(answer_for(&serving, LOUD, &master).await, Some(200));
    }
    let stranger = Authority::new("strangers").client("root", Some("system:masters"));
    assert_eq!(answer_for(&serving, LOUD, &stranger).await, Some(401));
    // Neither is judged now: the address has no token left. Another one has.
    assert_eq!(answer_for(&serving, LOUD, &stranger).await, Some(429));
    assert_eq!(answer_for(&serving, LOUD, &master).await, Some(429));
    assert_eq!(answer_for(&serving, QUIET, &master).await, Some(200));
}
