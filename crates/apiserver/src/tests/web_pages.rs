//! Requests from web pages to a sandbox on a socket.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use super::*;

#[tokio::test]
async fn a_web_page_reads_and_writes_nothing_on_the_socket() {
    let sandbox = sandbox();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = CancellationToken::new();
    let serving = tokio::spawn(sandbox.serve(listener, shutdown.clone()));
    let send = async |method: &str, headers: String, body: &str| {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let length = body.len();
        let head = format!(
            "{method} {CONFIG_MAPS} HTTP/1.1\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n"
        );
        stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status: Value = serde_json::from_str(body).unwrap();
        (head.split(' ').nth(1).unwrap().parse::<u16>().unwrap(), status)
    };
    let own = format!("host: {address}\r\n");
    let map = r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "page"}}"#;
    // DNS rebinding: the page's name leads here.
    let (code, status) = send("GET", "host: evil.example\r\n".to_owned(), "").await;
    assert_eq!(
        (code, &status["kind"], &status["reason"]),
        (421, &json!("Status"), &json!("MisdirectedRequest"))
    );
    // A page writes without a preflight: `fetch` with an untyped Blob has no Content-Type.
    let (code, status) = send("POST", format!("{own}origin: https://evil.example\r\n"), map).await;
    assert_eq!((code, &status["kind"], &status["reason"]), (403, &json!("Status"), &json!("Forbidden")));
    assert!(sandbox.objects("ConfigMap").iter().all(|map| map["metadata"]["name"] != "page"));
    // kubectl does the same without an origin.
    assert_eq!(send("POST", own.clone(), map).await.0, 201);
    assert_eq!(send("GET", own, "").await.0, 200);
    shutdown.cancel();
    serving.await.unwrap().unwrap();
}
