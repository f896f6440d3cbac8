//! Requests that share a connection: over HTTP/2 where the server speaks it, over one connection each elsewhere.

use http_body_util::Full;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;

use super::*;

/// A server that answers with the version of each request, and to some paths never. Counts connections.
async fn start(authority: &Authority, protocols: &[&[u8]]) -> (u16, Arc<AtomicUsize>) {
    let mut tls = rustls::ServerConfig::clone(&authority.server());
    tls.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(tls));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let connections = Arc::<AtomicUsize>::default();
    let counted = connections.clone();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(serve(acceptor.clone(), stream, counted.clone()));
        }
    });
    (port, connections)
}

async fn serve(acceptor: tokio_rustls::TlsAcceptor, stream: TcpStream, counted: Arc<AtomicUsize>) {
    let Ok(stream) = acceptor.accept(stream).await else { return };
    counted.fetch_add(1, Ordering::SeqCst);
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let answer = service_fn(|request: Request<Incoming>| async move {
        if request.uri().path() == "/hang" {
            std::future::pending::<()>().await;
        }
        let text = format!("{:?} {:?}", request.version(), request.headers().get("x-token"));
        Ok::<_, std::convert::Infallible>(Response::new(Full::new(bytes::Bytes::from(text))))
    });
    let stream = TokioIo::new(stream);
    let _ = match is_http2 {
        true => http2::Builder::new(TokioExecutor::new()).serve_connection(stream, answer).await,
        false => http1::Builder::new().serve_connection(stream, answer).await,
    };
}

fn transport(authority: &Authority, port: u16) -> Transport {
    let mut config = Config::new(format!("https://127.0.0.1:{port}").parse().unwrap());
    config.root_cert = Some(vec![authority.der.to_vec()]);
    config.headers.push(("x-token".parse().unwrap(), "mine".parse().unwrap()));
    Transport::new(config, Route::Direct).unwrap()
}

async fn send(client: &Client, path: &str, shared: Option<u64>) -> Result<String, kube::Error> {
    let mut request = Request::get(path).body(Body::empty()).unwrap();
    if let Some(number) = shared {
        request.extensions_mut().insert(SharedConnection(number));
    }
    let answer = client.send(request).await?;
    Ok(String::from_utf8(answer.into_body().collect().await?.to_bytes().to_vec()).unwrap())
}

/// Sends requests that stay open.
fn hang(client: &Client, count: usize) -> Vec<tokio::task::JoinHandle<()>> {
    let one = |_| {
        let client = client.clone();
        tokio::spawn(async move {
            let _ = send(&client, "/hang", Some(0)).await;
        })
    };
    (0..count).map(one).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_with_one_number_share_a_connection_and_others_have_their_own() {
    let authority = Authority::new("authority");
    let (port, connections) = start(&authority, &[b"h2", b"http/1.1"]).await;
    let client = Client::from(transport(&authority, port));
    let said = send(&client, "/x", Some(0)).await.unwrap();
    assert!(said.starts_with("HTTP/2.0") && said.contains("mine"), "{said}");
    let open = hang(&client, 40);
    for _ in 0..5 {
        assert!(send(&client, "/x", Some(0)).await.unwrap().starts_with("HTTP/2.0"));
    }
    assert_eq!(connections.load(Ordering::SeqCst), 1);
    assert!(send(&client, "/x", Some(1)).await.unwrap().starts_with("HTTP/2.0"));
    assert_eq!(connections.load(Ordering::SeqCst), 2);
    // The others stay with HTTP/1.1: none waits behind a connection that hangs.
    assert!(send(&client, "/x", None).await.unwrap().starts_with("HTTP/1.1"));
    assert_eq!(connections.load(Ordering::SeqCst), 3);
    open.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_http_2_gets_a_connection_for_each_request() {
    let authority = Authority::new("authority");
    for protocols in [&[&b"http/1.1"[..]][..], &[]] {
        let (port, connections) = start(&authority, protocols).await;
        let client = Client::from(transport(&authority, port));
        let open = hang(&client, 5);
        while connections.load(Ordering::SeqCst) < 5 {
            tokio::time::sleep(OFTEN).await;
        }
        assert!(send(&client, "/x", Some(0)).await.unwrap().starts_with("HTTP/1.1"));
        assert_eq!(connections.load(Ordering::SeqCst), 6);
        open.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_call_without_an_answer_the_next_opens_another_shared_connection() {
    let authority = Authority::new("authority");
    let (port, connections) = start(&authority, &[b"h2"]).await;
    let mut transport = transport(&authority, port);
    Arc::get_mut(&mut transport.shared).unwrap().suspect_after = Duration::from_millis(100);
    let client = Client::from(transport);
    send(&client, "/x", Some(0)).await.unwrap();
    let given_up = tokio::time::timeout(Duration::from_millis(300), send(&client, "/hang", Some(0)));
    assert!(given_up.await.is_err());
    assert_eq!(connections.load(Ordering::SeqCst), 1);
    send(&client, "/x", Some(0)).await.unwrap();
    assert_eq!(connections.load(Ordering::SeqCst), 2);
}
