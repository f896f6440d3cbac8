//! A server in front of a sandbox: it answers some paths by itself, and notes what it is asked.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use http::Request;
use serde_json::Value;

use crate::harness::Sandbox;

/// The server.
pub struct Front {
    /// Its URL.
    pub url: String,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Front {
    /// Starts a server that answers as `answer` says, by path and query, with a code and a body, and else as the sandbox.
    pub fn start(
        sandbox: &Sandbox,
        answer: impl Fn(&str) -> Option<(u16, String)> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let heads: Arc<Mutex<Vec<String>>> = Arc::default();
        let (client, noted) = (sandbox.client(), heads.clone());
        let answer = Arc::new(answer);
        std::thread::spawn(move || {
            // A client may open a connection ahead of its need, and must not keep the others waiting.
            for stream in listener.incoming().map_while(Result::ok) {
                let (client, noted, answer) = (client.clone(), noted.clone(), answer.clone());
                std::thread::spawn(move || serve(&stream, &client, &noted, answer.as_ref()));
            }
        });
        Front { url, heads }
    }

    /// The requests so far: the first line and the headers of each.
    pub fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

fn serve(
    mut stream: &TcpStream,
    client: &kube::Client,
    noted: &Mutex<Vec<String>>,
    answer: &dyn Fn(&str) -> Option<(u16, String)>,
) {
    let Some(head) = read_head(stream) else { return };
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    noted.lock().unwrap().push(head);
    let (code, body) = answer(&path).unwrap_or_else(|| {
        let request = Request::builder().uri(path.as_str()).body(Vec::new()).unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let answered: Result<Value, _> = runtime.block_on(client.request(request));
        answered.map_or((404, "{}".to_owned()), |value| (200, value.to_string()))
    });
    let length = body.len();
    let reply =
        format!("HTTP/1.1 {code} Answer\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
    let _ = stream.write_all(reply.as_bytes());
}

/// Everything up to the body, of which the requests of these tests have none.
fn read_head(mut stream: &TcpStream) -> Option<String> {
    let (mut head, mut buffer) = (Vec::new(), [0; 4096]);
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut buffer) {
            Ok(count) if count > 0 => head.extend_from_slice(&buffer[..count]),
            _ => return None,
        }
    }
    String::from_utf8(head).ok()
}
