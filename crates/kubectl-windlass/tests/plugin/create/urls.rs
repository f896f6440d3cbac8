//! Manifests from URLs, on servers of one answer a connection.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{map, maps, server};
use crate::harness::{Ended, PLUGIN};

/// A web server. Counts the requests, and those with credentials.
pub struct Web {
    /// Where it listens.
    pub address: SocketAddr,
    requests: Arc<AtomicUsize>,
    credentials: Arc<AtomicUsize>,
}

impl Web {
    /// Gives these answers, one after the other, and the last to everybody else.
    fn start(answers: Vec<String>) -> Self {
        Self::serve(move |number, _| answers.get(number).or(answers.last()).cloned())
    }

    /// Answers by the number of the request, from 0, and its first line; without an answer, the connection is closed.
    pub fn serve(answer: impl Fn(usize, &str) -> Option<String> + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (requests, credentials) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (count, secret) = (requests.clone(), credentials.clone());
        // Ends with the test program.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
                let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
                let has_secret = head.iter().any(|line| line.to_lowercase().starts_with("authorization"));
                secret.fetch_add(usize::from(has_secret), Ordering::SeqCst);
                let number = count.fetch_add(1, Ordering::SeqCst);
                if let Some(answer) = answer(number, head.first().map_or("", String::as_str)) {
                    // A client that has seen enough may be gone.
                    let _ = stream.write_all(answer.as_bytes());
                }
            }
        });
        Web { address, requests, credentials }
    }

    fn url(&self) -> String {
        format!("http://{}/a.yaml", self.address)
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

/// An answer over HTTP.
pub fn answer(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n{headers}\r\n{body}", body.len())
}

#[test]
fn a_server_in_trouble_is_asked_three_times() {
    let sandbox = server();
    let trouble = answer("503 Service Unavailable", "", "");
    let web = Web::start(vec![trouble.clone(), trouble.clone(), answer("200 OK", "", &map("a"))]);
    let ended = sandbox.plugin(&["create", "-f", &web.url(), "--token=secret"]);
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), "configmap/a created\n"), "{ended:?}");
    assert_eq!((web.requests(), web.credentials.load(Ordering::SeqCst)), (3, 0));

    let web = Web::start(vec![trouble]);
    let ended = sandbox.plugin(&["create", "-f", &web.url()]);
    assert_eq!((ended.code, web.requests()), (Some(1), 3), "{ended:?}");
    let wanted = format!("error: {}: the server answered 503 Service Unavailable (3 tries)\n", web.url());
    assert_eq!(ended.err, wanted);
}

#[test]
fn another_answer_is_final() {
    let sandbox = server();
    let web = Web::start(vec![answer("404 Not Found", "", "nothing here")]);
    let ended = sandbox.plugin(&["create", "-f", &web.url()]);
    assert_eq!((ended.code, web.requests()), (Some(1), 1), "{ended:?}");
    assert!(ended.err.contains(&web.url()) && ended.err.contains("404 Not Found"), "{ended:?}");
    let web = Web::start(vec![answer("200 OK", "", "<!DOCTYPE html>\n<html><body>Log in: <b>x</b></html>")]);
    let ended = sandbox.plugin(&["create", "-f", &web.url()]);
    assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""), "{ended:?}");
    assert!(ended.err.starts_with(&format!("error: {}: document 1: ", web.url())), "{ended:?}");
}

#[test]
fn a_page_that_does_not_end_is_not_read_to_its_end() {
    let sandbox = server();
    let web = Web::start(vec![answer("200 OK", "", &"# x\n".repeat((64 << 20) / 4 + 1))]);
    let ended = sandbox.plugin(&["create", "-f", &web.url()]);
    assert_eq!((ended.code, web.requests()), (Some(1), 1), "{ended:?}");
    assert_eq!(ended.err, format!("error: {}: larger than 64 MiB\n", web.url()));
}

#[test]
fn redirects_are_followed_but_not_to_files_and_not_for_ever() {
    let sandbox = server();
    let end = Web::start(vec![answer("200 OK", "", &map("a"))]);
    let web = Web::start(vec![answer("302 Found", &format!("Location: {}\r\n", end.url()), "")]);
    let ended = sandbox.plugin(&["create", "-f", &web.url()]);
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), "configmap/a created\n"), "{ended:?}");
    for (location, part) in
        [("file:///etc/hosts", "only http and https"), ("/a.yaml", "more than 10 redirects")]
    {
        let web = Web::start(vec![answer("302 Found", &format!("Location: {location}\r\n"), "")]);
        let ended = sandbox.plugin(&["create", "-f", &web.url()]);
        assert!(ended.code == Some(1) && ended.err.contains(part), "{ended:?}");
    }
    assert_eq!(maps(&sandbox), ["a"]);
}

/// Names below `.invalid` exist nowhere: only a proxy finds them.
#[test]
fn a_proxy_of_the_environment_fetches_and_no_proxy_is_honoured() {
    let sandbox = server();
    let proxy = Web::serve(|_, line| {
        let is_asked = line.starts_with("GET http://files.invalid/a.yaml ");
        Some(if is_asked { answer("200 OK", "", &map("a")) } else { answer("404 Not Found", "", "") })
    });
    let address = format!("http://{}", proxy.address);
    let fetch = |variables: &[(&str, &str)]| {
        let mut command =
            sandbox.command(PLUGIN, &["create", "-f", "http://files.invalid/a.yaml", "--token=secret"]);
        Ended::of(&command.env_remove("NO_PROXY").envs(variables.iter().copied()).output().unwrap())
    };
    let ended = fetch(&[("HTTP_PROXY", &address)]);
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), "configmap/a created\n"), "{ended:?}");
    assert_eq!((proxy.requests(), proxy.credentials.load(Ordering::SeqCst)), (1, 0));
    // The proxy of the other scheme, an exception, and an address that is none.
    for variables in [
        &[("HTTPS_PROXY", address.as_str())][..],
        &[("HTTP_PROXY", &address), ("NO_PROXY", "files.invalid")],
        &[("HTTP_PROXY", "ftp://127.0.0.1:1")],
    ] {
        let ended = fetch(variables);
        assert_eq!(ended.code, Some(1), "{variables:?} {ended:?}");
        assert!(ended.err.contains("http://files.invalid/a.yaml"), "{ended:?}");
        assert_eq!(proxy.requests(), 1, "{variables:?}");
    }
    assert!(fetch(&[("HTTP_PROXY", "ftp://127.0.0.1:1")]).err.contains("HTTP_PROXY"));
}
