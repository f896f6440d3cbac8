//! Requests of web pages, which a server on a socket refuses: it authenticates nobody, and any page in a browser on the same
//! machine can send requests to it.
//!
//! A page that writes names its origin in each request. One that reads lets its own name resolve to 127.0.0.1 (DNS
//! rebinding), so that the browser takes the answers for the page's own; then the Host header has that name.

use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderValue, header};

use crate::rest::Reply;
use crate::status::Failure;

/// Passes a request on that no web page has sent.
pub(crate) async fn refuse(State(is_on_loopback): State<bool>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    match refusal(&parts, is_on_loopback) {
        Some(failure) => Reply::from(failure).into_response(),
        None => next.run(Request::from_parts(parts, body)).await,
    }
}

/// Why a request is refused. Elsewhere than on loopback any name may be this machine's.
fn refusal(request: &Parts, is_on_loopback: bool) -> Option<Failure> {
    if request.headers.contains_key(header::ORIGIN) {
        let text = "this server answers no web page: the request has an Origin header";
        return Some(Failure::new(403, "Forbidden", text));
    }
    let of_header = |host: &HeaderValue| Authority::try_from(host.as_bytes()).ok();
    let mut named = request.headers.get_all(header::HOST).iter().map(of_header);
    let is_named = |host: Option<Authority>| host.is_some_and(|host| is_loopback(host.host()));
    let is_known = named.all(is_named) && request.uri.authority().is_none_or(|host| is_loopback(host.host()));
    // The name is not repeated: a page may have chosen it.
    let text =
        "this server does not answer for the host that the request names: ask for 127.0.0.1 or localhost";
    (is_on_loopback && !is_known).then(|| Failure::new(421, "MisdirectedRequest", text))
}

/// Whether a host is this machine for every browser: an IPv6 address is in brackets.
fn is_loopback(host: &str) -> bool {
    let address = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    match address.parse::<IpAddr>() {
        Ok(address) => address.to_canonical().is_loopback(),
        Err(_) => host.strip_suffix('.').unwrap_or(host).eq_ignore_ascii_case("localhost"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(uri: &str, headers: &[(&str, &str)], is_on_loopback: bool) -> Option<u16> {
        let request = headers
            .iter()
            .fold(http::Request::get(uri), |request, (name, value)| request.header(*name, *value));
        refusal(&request.body(()).unwrap().into_parts().0, is_on_loopback).map(|failure| failure.code)
    }

    #[test]
    fn on_loopback_only_names_of_loopback_are_answered_for() {
        for host in
            ["127.0.0.1:8080", "127.9.9.9", "localhost", "LOCALHOST.:1", "[::1]:8080", "[::ffff:127.0.0.1]"]
        {
            assert_eq!(judged("/api", &[("host", host)], true), None, "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example:8080",
            "10.0.0.1",
            "[fe80::1]",
            "",
            "a b",
            "127.0.0.1.evil.example",
        ] {
            assert_eq!(judged("/api", &[("host", host)], true), Some(421), "{host:?}");
        }
        assert_eq!(judged("/api", &[("host", "127.0.0.1"), ("host", "evil.example")], true), Some(421));
        assert_eq!(judged("http://evil.example/api", &[("host", "127.0.0.1")], true), Some(421));
        assert_eq!(judged("/api", &[], true), None, "HTTP/1.0");
        assert_eq!(judged("/api", &[("host", "sandbox.internal:8080")], false), None);
    }

    #[test]
    fn a_page_that_names_its_origin_is_refused_everywhere() {
        for origin in ["https://evil.example", "http://127.0.0.1:8080", "null", ""] {
            for is_on_loopback in [true, false] {
                let headers = [("host", "127.0.0.1"), ("origin", origin)];
                assert_eq!(judged("/api", &headers, is_on_loopback), Some(403), "{origin}");
            }
        }
    }
}
