//! The Host headers that plain HTTP accepts.
//!
//! Plain HTTP authenticates no user, and binds to loopback by default. A web page in a browser on this
//! machine can still send requests here: its name resolves to its own server first, and to 127.0.0.1
//! a moment later (DNS rebinding). The browser then takes the answers for the page's own and lets it read
//! them, but the Host header contains the page's name.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{StatusCode, Version, header};
use axum::middleware::Next;
use axum::response::Response;

use super::router::plain;

/// The hosts that requests may name.
#[derive(Clone, Debug)]
pub(super) struct Hosts {
    /// Where the server listens, if the socket says.
    bound: Option<IpAddr>,
    /// The name of this machine or pod.
    name: Option<String>,
}

impl Hosts {
    /// The hosts for a server that listens at this address.
    pub(super) fn of(bound: Option<IpAddr>) -> Self {
        Hosts { bound, name: hostname::get().ok().and_then(|name| name.into_string().ok()) }
    }

    /// Whether a request may name this host: without a port, an IPv6 address in brackets.
    ///
    /// On a loopback address: loopback names and addresses. On any other: any address, since a page needs a
    /// name for the attack and the kubelet uses the pod's address, and the name of this machine.
    fn allow(&self, host: &str) -> bool {
        if let Some(address) = address(host) {
            return address.is_loopback() || self.bound == Some(address) || !self.is_loopback();
        }
        let host = host.strip_suffix('.').unwrap_or(host);
        let is_own = || self.name.as_deref().is_some_and(|name| name.eq_ignore_ascii_case(host));
        host.eq_ignore_ascii_case("localhost") || !self.is_loopback() && is_own()
    }

    fn is_loopback(&self) -> bool {
        self.bound.is_none_or(|bound| bound.to_canonical().is_loopback())
    }

    /// Refuses requests without a host, with two, or with another one.
    fn judge(&self, request: &Parts) -> Result<(), (StatusCode, String)> {
        let bad = |text: &str| Err((StatusCode::BAD_REQUEST, format!("{text}\n")));
        let mut named = Vec::new();
        for value in request.headers.get_all(header::HOST) {
            let Ok(authority) = Authority::try_from(value.as_bytes()) else {
                return bad("the Host header is not a host with or without a port");
            };
            named.push(authority);
        }
        if named.len() > 1 {
            return bad("there is more than one Host header");
        }
        if named.is_empty() && request.version > Version::HTTP_10 {
            return bad("there is no Host header");
        }
        // `GET http://host/path`, as to a proxy.
        named.extend(request.uri.authority().cloned());
        let is_allowed = |host: &Authority| !host.as_str().contains('@') && self.allow(host.host());
        if named.iter().all(is_allowed) {
            return Ok(());
        }
        // The name is not repeated: the page chose it.
        let text = "this server does not answer for the host that the Host header names; ask by an address \
                    that it listens on (127.0.0.1, [::1], or with --insecure-bind-address any other) or as \
                    localhost\n";
        Err((StatusCode::MISDIRECTED_REQUEST, text.to_owned()))
    }
}

/// Reads an address from a Host header.
fn address(host: &str) -> Option<IpAddr> {
    match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        // An address may name its interface: `[fe80::1%25eth0]`.
        Some(ipv6) => ipv6.split('%').next()?.parse().ok().map(IpAddr::V6),
        None => host.parse().ok().map(IpAddr::V4),
    }
    .map(|address| address.to_canonical())
}

/// Passes a request on that names one of our hosts.
pub(super) async fn known_host(State(hosts): State<Arc<Hosts>>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    match hosts.judge(&parts) {
        Ok(()) => next.run(Request::from_parts(parts, body)).await,
        Err((code, text)) => plain(code, text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(bound: &str) -> Hosts {
        Hosts { bound: Some(bound.parse().unwrap()), name: Some("windlass-0".into()) }
    }

    #[track_caller]
    fn check(bound: &str, host: &str, allowed: bool) {
        let request = axum::http::Request::get("/metrics").header("host", host).body(()).unwrap();
        let judged = hosts(bound).judge(&request.into_parts().0);
        assert_eq!(judged.is_ok(), allowed, "{host:?} at {bound}: {judged:?}");
    }

    #[test]
    fn loopback_accepts_loopback_names_and_addresses() {
        for host in
            ["localhost", "LocalHost:10252", "localhost.", "127.0.0.1:10252", "127.1.2.3", "[::1]:10252"]
        {
            for bound in ["127.0.0.1", "::1", "127.0.0.9", "0.0.0.0"] {
                check(bound, host, true);
            }
        }
        check("127.0.0.1", "[::ffff:127.0.0.1]:80", true);
    }

    #[test]
    fn foreign_host_names_are_refused() {
        let names =
            ["evil.example", "evil.example:10252", "localhost.evil.example", "127.0.0.1.nip.io", "127.1", ""];
        for host in
            names.into_iter().chain(["user@localhost", "evil.example@127.0.0.1", "2130706433", "0x7f.1"])
        {
            for bound in ["127.0.0.1", "0.0.0.0", "10.0.0.5"] {
                check(bound, host, false);
            }
        }
        for host in ["10.0.0.5", "0.0.0.0:10252", "[::]", "windlass-0", "169.254.169.254"] {
            check("127.0.0.1", host, false);
        }
    }

    #[test]
    fn beyond_loopback_any_address_and_the_name_of_the_machine_are_accepted() {
        for host in
            ["10.1.2.3:10252", "[fd00::7]:10252", "[fe80::1%25eth0]", "windlass-0:10252", "WINDLASS-0"]
        {
            for bound in ["0.0.0.0", "::", "10.1.2.3"] {
                check(bound, host, true);
            }
        }
    }

    #[test]
    fn a_request_must_name_one_host() {
        let judge = |request: axum::http::request::Builder| {
            let judged = hosts("127.0.0.1").judge(&request.body(()).unwrap().into_parts().0);
            judged.err().map_or(200, |(code, _)| code.as_u16())
        };
        let get = |uri: &str| axum::http::Request::get(uri);
        assert_eq!(judge(get("/")), 400);
        assert_eq!(judge(get("/").header("host", "localhost").header("host", "localhost")), 400);
        assert_eq!(judge(get("/").header("host", "local host")), 400);
        // No browser speaks it, and health checks of load balancers do.
        assert_eq!(judge(get("/").version(Version::HTTP_10)), 200);
        assert_eq!(judge(get("http://evil.example/").header("host", "localhost")), 421);
        assert_eq!(judge(get("http://localhost/").header("host", "localhost")), 200);
    }
}
