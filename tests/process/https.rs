//! The program over HTTPS, as an operator runs it: given certificates that are replaced while it runs,
//! `/configz`, and a standby that is ready.

use std::net::TcpListener;
use std::path::PathBuf;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_rustls::client::TlsStream;
use windlass_testkit::process::{Process, Server, WAIT_TIMEOUT};
use windlass_testkit::serving::{Authority, Identity, ask, costly_chain, handshake, write};

/// A sandbox, the authorities of both sides, and an operator's client certificate.
struct House {
    server: Server,
    servers: Authority,
    clients: Authority,
    operator: Identity,
}

impl House {
    async fn new() -> Self {
        let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
        let house = House {
            server: Server::start().await,
            // Of a group that may do everything, as everywhere. The sandbox reviews no access.
            operator: clients.client("ada", Some("system:masters")),
            servers,
            clients,
        };
        house.give(&house.servers.server("first.test"));
        std::fs::write(house.server.file("clients.pem"), &house.clients.pem).unwrap();
        house
    }

    /// The certificate and the key that the daemons show.
    fn files(&self) -> (PathBuf, PathBuf) {
        (self.server.file("tls.crt"), self.server.file("tls.key"))
    }

    fn give(&self, identity: &Identity) {
        write(&self.files(), identity);
    }

    fn start(&self, log: &str, more: &[&str]) -> Daemon<'_> {
        // A port that was free a moment ago.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let (cert, key) = self.files();
        let own = [
            format!("--secure-port={port}"),
            "--bind-address=127.0.0.1".into(),
            format!("--tls-cert-file={}", cert.display()),
            format!("--tls-private-key-file={}", key.display()),
            format!("--client-ca-file={}", self.server.file("clients.pem").display()),
        ];
        let flags: Vec<&str> = own.iter().map(String::as_str).chain(more.iter().copied()).collect();
        let process = self.server.daemon(log, &flags);
        Daemon { house: self, process, port, log: self.server.file(log) }
    }
}

/// A daemon in a process of its own.
struct Daemon<'h> {
    house: &'h House,
    process: Process,
    port: u16,
    log: PathBuf,
}

impl Daemon<'_> {
    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    async fn says(&self, words: &str) {
        let end = Instant::now() + WAIT_TIMEOUT;
        while !self.log().contains(words) {
            assert!(Instant::now() < end, "it does not say {words:?}\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn connect(&self, identity: Option<&Identity>) -> TlsStream<TcpStream> {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        let authority = &self.house.servers;
        handshake(authority, stream, identity, b"http/1.1", "localhost", rustls::ALL_VERSIONS).await.unwrap()
    }

    /// The certificate that a new connection is shown.
    async fn shown(&self) -> CertificateDer<'static> {
        let stream = self.connect(None).await;
        stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned()
    }

    async fn get(&self, path: &str, identity: Option<&Identity>) -> (u16, String) {
        let (code, answer) = ask(&mut self.connect(identity).await, path, &[]).await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let body = if head.contains("chunked") { unchunked(body) } else { body.to_owned() };
        (code, body)
    }
}

/// The body that a chunked answer (RFC 9112) carries.
fn unchunked(mut rest: &str) -> String {
    let mut body = String::new();
    while let Some((size, more)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        body += &more[..size];
        rest = more[size..].trim_start_matches("\r\n");
    }
    body
}

#[tokio::test]
async fn a_replaced_certificate_is_served_from_the_next_connection_on() {
    let house = House::new().await;
    let daemon = house.start("daemon.log", &[]);
    daemon.says("over HTTPS").await;
    let first = daemon.shown().await;

    house.give(&house.servers.server("second.test"));
    let end = Instant::now() + WAIT_TIMEOUT;
    let mut open = loop {
        let open = daemon.connect(Some(&house.operator)).await;
        if daemon.shown().await != first {
            break open;
        }
        assert!(Instant::now() < end, "the old one is still shown\n{}", daemon.log());
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    daemon.says("the serving certificate is reloaded").await;
    assert_eq!(ask(&mut open, "/metrics", &[]).await.0, 200, "an open connection is not broken off");

    // Half of a pair, as during a copy: the valid certificate is kept.
    let second = daemon.shown().await;
    std::fs::write(house.files().1, &house.servers.server("third.test").key).unwrap();
    daemon.says("the old one stays").await;
    assert_eq!(daemon.shown().await, second);
    assert_eq!(daemon.get("/healthz", None).await, (200, "ok".into()));
}

#[tokio::test]
async fn configz_shows_the_configuration() {
    let house = House::new().await;
    std::fs::write(house.server.file("windlass.yaml"), "kube-api-burst: 77\n").unwrap();
    let file = format!("--config={}", house.server.file("windlass.yaml").display());
    let daemon = house.start("daemon.log", &["--kube-api-qps=55", &file]);
    daemon.says("over HTTPS").await;
    let (code, text) = daemon.get("/configz", Some(&house.operator)).await;
    assert_eq!(code, 200, "{text}");
    let config: Value = serde_json::from_str(&text).unwrap();
    let config = &config["windlass.config"];
    assert_eq!(config["kube-api-qps"], 55.0, "by flag: {text}");
    assert_eq!(config["kube-api-burst"], 77, "by file");
    assert_eq!(config["leader-elect-resource-name"], "windlass", "by default");
    assert_eq!(config["secure-port"], daemon.port);
    assert!(!text.contains("PRIVATE KEY"), "files are named, not shown");
    drop(daemon.process);
}

#[tokio::test]
async fn a_standby_is_ready_and_reports_that_it_is_not_the_leader() {
    let house = House::new().await;
    let leader = house.start("leader.log", &[]);
    leader.says("this process leads").await;
    leader.says("started controller=").await;
    let standby = house.start("standby.log", &[]);
    standby.says("standing by").await;
    for daemon in [&leader, &standby] {
        assert_eq!(daemon.get("/readyz", None).await, (200, "ok".into()));
        let (_, checks) = daemon.get("/readyz?verbose", None).await;
        for check in ["leaderElection", "informer-deployments", "informer-pods"] {
            assert!(checks.contains(&format!("[+]{check} ok")), "{checks}");
        }
    }
    for (daemon, leads) in [(&leader, 1), (&standby, 0)] {
        let (code, metrics) = daemon.get("/metrics", Some(&house.operator)).await;
        assert_eq!(code, 200, "{metrics}");
        let status = format!("leader_election_master_status{{name=\"windlass\"}} {leads}");
        assert!(metrics.contains(&status), "{metrics}");
        let runs = metrics.contains("running_managed_controllers{");
        assert_eq!(runs, leads == 1, "only a leader's controllers run");
    }
}

#[tokio::test]
async fn costly_client_certificates_neither_cost_the_lease_nor_delay_a_probe() {
    let house = House::new().await;
    let lease = [
        "--leader-elect-lease-duration=5s",
        "--leader-elect-renew-deadline=3500ms",
        "--leader-elect-retry-period=500ms",
    ];
    let mut daemon = house.start("daemon.log", &lease);
    daemon.says("this process leads").await;
    let authority = &house.servers;
    let attack = async |identity: &Identity| {
        let stream = TcpStream::connect(("127.0.0.1", daemon.port)).await.unwrap();
        let shaken =
            handshake(authority, stream, Some(identity), b"http/1.1", "localhost", rustls::ALL_VERSIONS);
        let Ok(mut stream) = shaken.await else { return };
        // The server ends the connection, at the latest after its answer.
        let request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        let _ = stream.write_all(request).await;
        let _ = timeout(WAIT_TIMEOUT, stream.read_to_end(&mut Vec::new())).await;
    };
    for identity in [costly_chain(8, 262), costly_chain(8, 12), costly_chain(3, 0)] {
        let probe = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let begin = Instant::now();
            assert_eq!(daemon.get("/healthz", None).await, (200, "ok".into()));
            begin.elapsed()
        };
        let attacks = futures::future::join_all((0..4).map(|_| attack(&identity)));
        let (_, took) = tokio::join!(attacks, probe);
        assert!(took < Duration::from_secs(3), "{took:?}");
    }
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert!(daemon.process.0.try_wait().unwrap().is_none(), "{}", daemon.log());
    assert!(!daemon.log().contains("lease is lost"), "{}", daemon.log());
}
