//! The two programs as a user runs them: separate processes, a socket, signals, exit codes.

use std::fs;
use std::time::Duration;

use serde_json::Value;
use windlass_testkit::process::{Server, run, windlass};

#[tokio::test]
async fn a_daemon_killed_in_mid_rollout_completes_it_after_a_restart_without_duplicate_pods() {
    let server = Server::start().await;
    // Alone, so that the second need not wait for the end of the first one's lease; see failover.rs.
    let alone = ["--leader-elect=false"];
    let mut first = server.daemon("daemon.log", &alone);
    server.create_web(4).await;
    server.rolled_out().await;
    server.set_image("2").await;
    let half_way = |web: &Value| (2..4).contains(&web["status"]["updatedReplicas"].as_i64().unwrap_or(0));
    server.eventually("the rollout is half way", half_way).await;
    first.0.kill().unwrap();
    first.0.wait().unwrap();

    let second = server.daemon("daemon.log", &alone);
    server.rolled_out().await;
    // The sandbox reports a pod a moment after it was created.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(server.pods_seen().len(), 8, "four of each version");
    drop(second);
}

#[tokio::test]
async fn sigterm_ends_the_daemon_in_order_and_with_code_0() {
    let server = Server::start().await;
    let mut daemon = server.daemon("daemon.log", &[]);
    server.create_web(2).await;
    server.rolled_out().await;
    daemon.terminate();
    assert_eq!(daemon.exit_code(), Some(0), "{}", fs::read_to_string(server.file("daemon.log")).unwrap());
}

/// A plugin that never answers; it ends with the directory of its test.
const HANGS: &str = "touch $DIR/begun; while [ -e $DIR/begun ]; do sleep 0.1; done";

/// Returns a token that expires with each request; hangs once the file `hang` exists.
const HANGS_LATER: &str = r#"
    if [ -e $DIR/hang ]; then touch $DIR/begun; while [ -e $DIR/begun ]; do sleep 0.1; done; fi
    echo '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
           "status": {"token": "t", "expirationTimestamp": "2020-01-01T00:00:00Z"}}'
"#;

async fn appears(file: &std::path::Path) {
    let end = tokio::time::Instant::now() + windlass_testkit::process::WAIT_TIMEOUT;
    while !file.exists() {
        assert!(tokio::time::Instant::now() < end, "{}", file.display());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_credential_plugin_that_hangs_at_startup_does_not_delay_a_signal() {
    let server = Server::start().await;
    let kubeconfig = format!("--kubeconfig={}", server.kubeconfig_with_plugin(HANGS).display());
    let mut daemon = server.daemon("daemon.log", &[&kubeconfig]);
    appears(&server.file("begun")).await;
    daemon.terminate();
    assert_eq!(daemon.exit_code_within(Duration::from_secs(5)), Some(0));
    let log = fs::read_to_string(server.file("daemon.log")).unwrap();
    for words in ["/bin/sh", "credential plugin", "windlass-sandbox", "before the start was complete"] {
        assert!(log.contains(words), "{words:?} is missing in: {log}");
    }
}

#[tokio::test]
async fn a_credential_plugin_that_hangs_later_delays_neither_a_signal_nor_the_loss_of_leadership() {
    for is_signalled in [true, false] {
        let server = Server::start().await;
        let kubeconfig = format!("--kubeconfig={}", server.kubeconfig_with_plugin(HANGS_LATER).display());
        let short = [
            &*kubeconfig,
            "--leader-elect-lease-duration=5s",
            "--leader-elect-renew-deadline=3s",
            "--leader-elect-retry-period=500ms",
        ];
        let mut daemon = server.daemon("daemon.log", &short);
        server.create_web(1).await;
        server.rolled_out().await;
        fs::write(server.file("hang"), "").unwrap();
        appears(&server.file("begun")).await;
        if is_signalled {
            daemon.terminate();
        }
        let code = daemon.exit_code_within(Duration::from_secs(15));
        let log = fs::read_to_string(server.file("daemon.log")).unwrap();
        if is_signalled {
            assert!(log.contains("shutting down"), "{log}");
        } else {
            assert_eq!(code, Some(1), "{log}");
            assert!(log.contains("leader election lost"), "{log}");
        }
    }
}

/// Gives such a token until there is the file `fail`.
const FAILS_LATER: &str = r#"
    if [ -e $DIR/fail ]; then echo hidden; echo log in first >&2; exit 3; fi
    echo '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
           "status": {"token": "hidden", "expirationTimestamp": "2020-01-01T00:00:00Z"}}'
"#;

#[tokio::test]
async fn a_failure_of_a_credential_plugin_is_logged_without_its_secrets() {
    let server = Server::start().await;
    let kubeconfig = format!("--kubeconfig={}", server.kubeconfig_with_plugin(FAILS_LATER).display());
    let mut daemon = server.daemon("daemon.log", &[&kubeconfig]);
    server.create_web(1).await;
    server.rolled_out().await;
    fs::write(server.file("fail"), "").unwrap();
    assert_eq!(daemon.exit_code_within(Duration::from_secs(30)), Some(1), "the lease is lost");
    let log = fs::read_to_string(server.file("daemon.log")).unwrap();
    assert!(log.contains("the credential plugin ended with exit status: 3: log in first"), "{log}");
    assert!(!log.contains("hidden"), "{log}");
}

#[tokio::test]
async fn a_daemon_keeps_running_when_its_log_pipe_is_closed() {
    let server = Server::start().await;
    let mut child = std::process::Command::new(windlass())
        .arg(format!("--kubeconfig={}", server.file("kubeconfig").display()))
        .args(["--secure-port=0", "--leader-elect=false"])
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stderr.take());
    let mut daemon = windlass_testkit::process::Process(child);
    server.create_web(2).await;
    server.rolled_out().await;
    daemon.terminate();
    assert_eq!(daemon.exit_code(), Some(0));
}

#[tokio::test]
async fn metrics_and_health_are_served_on_loopback() {
    let server = Server::start().await;
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let _daemon = server.daemon("daemon.log", &[&format!("--insecure-port={port}")]);
    server.create_web(1).await;
    server.rolled_out().await;
    let get = async |path: &str| {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    };
    assert!(get("/healthz").await.contains("200 OK"));
    assert!(get("/readyz?verbose").await.contains("[+]informer-pods ok"));
    let metrics = get("/metrics").await;
    assert!(metrics.contains("workqueue_adds_total{name=\"deployment\"}"), "{metrics}");
}

#[test]
fn a_daemon_that_cannot_start_names_the_flag_to_change() {
    for (args, code, text) in [
        (&["--concurrent-deployment-syncs=0"][..], 2, "--concurrent-deployment-syncs must be"),
        (&["--no-such-flag"][..], 2, "--no-such-flag"),
        (&["--kubeconfig=/no/such/file"][..], 2, "--kubeconfig /no/such/file: No such file or directory"),
        (&[][..], 2, "set --kubeconfig"),
    ] {
        let output = run(&windlass(), args);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {errors}");
        assert!(errors.contains(text), "{args:?}: {errors}");
    }
}
