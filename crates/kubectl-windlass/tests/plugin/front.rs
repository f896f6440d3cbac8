//! A server in front of a sandbox: it forwards requests, or does with them what a busy server or a bad network does. It also
//! is a proxy for HTTP.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;

/// The treatment of a request.
#[derive(Clone, Debug)]
pub enum Fate {
    /// The server answers.
    Forward,
    /// The server answers, after this time.
    Late(Duration),
    /// This code, without a word from the server.
    Answer(u16),
    /// This code, with these words.
    Refuse(u16, String),
    /// The connection ends before the server sees the request.
    Reset,
    /// The connection ends after the server has answered.
    LoseAnswer,
    /// The server gets an empty object, as if a webhook took the change out.
    WithoutChange,
}

/// A running front.
pub struct Front {
    /// Where it listens.
    pub address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Front {
    /// Starts one in front of this server. `fate` is asked for each request, with its method and its target.
    pub fn start(server: SocketAddr, fate: impl Fn(&str, &str) -> Fate + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::<Mutex<Vec<String>>>::default();
        let (seen, fate) = (requests.clone(), Arc::new(fate));
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (seen, fate) = (seen.clone(), fate.clone());
                std::thread::spawn(move || {
                    let _ = serve(client, server, &seen, &*fate);
                });
            }
        });
        Front { address, requests }
    }

    /// The requests so far: method and target.
    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

/// One request of a connection; the answer ends it.
fn serve(
    mut client: TcpStream,
    server: SocketAddr,
    seen: &Mutex<Vec<String>>,
    fate: &dyn Fn(&str, &str) -> Fate,
) -> std::io::Result<()> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if client.read(&mut byte)? == 0 {
            return Ok(());
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let mut lines = head.trim_end().split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    seen.lock().unwrap().push(format!("{method} {target}"));
    // As a proxy it gets whole URLs.
    let path = match target.strip_prefix("http://") {
        Some(rest) => rest.find('/').map_or("/", |at| &rest[at..]),
        None => target,
    };
    let is_about_connection = |line: &&str| line.to_ascii_lowercase().contains("connection:");
    let mut headers: Vec<&str> = lines.filter(|line| !is_about_connection(line)).collect();
    // The far server has the name that the client asks the proxy for; the sandbox answers for no such name.
    let own = format!("host: {server}");
    if path != target {
        headers.retain(|line| !line.to_ascii_lowercase().starts_with("host:"));
        headers.push(&own);
    }
    let length = headers.iter().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    let mut body = vec![0; length.unwrap_or(0)];
    client.read_exact(&mut body)?;
    let fate = fate(method, path);
    if matches!(fate, Fate::WithoutChange) {
        body = format!("{:<1$}", "{}", body.len()).into_bytes();
    }
    let fate = match fate {
        Fate::Answer(code) => Fate::Refuse(code, "the front says so".to_owned()),
        fate => fate,
    };
    match &fate {
        Fate::Reset => return Ok(()),
        Fate::Refuse(code, message) => {
            let status =
                json!({"kind": "Status", "code": code, "message": message, "reason": "No"}).to_string();
            let length = status.len();
            let head = format!("HTTP/1.1 {code} No\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
            return client.write_all(format!("{head}{status}").as_bytes());
        }
        Fate::Answer(_) | Fate::Forward | Fate::Late(_) | Fate::LoseAnswer | Fate::WithoutChange => {}
    }
    let mut onwards = TcpStream::connect(server)?;
    let head = format!("{method} {path} HTTP/1.1\r\n{}\r\nconnection: close\r\n\r\n", headers.join("\r\n"));
    onwards.write_all(head.as_bytes())?;
    onwards.write_all(&body)?;
    match fate {
        Fate::LoseAnswer => {
            std::io::copy(&mut onwards, &mut std::io::sink())?;
            return Ok(());
        }
        Fate::Late(time) => {
            let mut answer = Vec::new();
            onwards.read_to_end(&mut answer)?;
            std::thread::sleep(time);
            client.write_all(&answer)?;
        }
        _ => drop(std::io::copy(&mut onwards, &mut client)?),
    }
    client.shutdown(Shutdown::Both)
}
