//! Which proxy leads to the API server: that of the kubeconfig, that of the environment, or none.
//!
//! The rules are those of Go's `httpproxy` package and of client-go, so that a deployment that works with
//! kubectl works here: `proxy-url` of a kubeconfig always applies; `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`
//! apply otherwise, in a pod too; `localhost` and loopback addresses are never proxied by the environment.

use std::net::IpAddr;

use http::Uri;
use percent_encoding::percent_decode_str;

/// The route of a connection to the API server.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Route {
    Direct,
    Proxied(Proxy),
}

/// A proxy, and our credentials for it. It has no `Debug` of its own secrets.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Proxy {
    pub(super) protocol: Protocol,
    pub(super) host: String,
    pub(super) port: u16,
    /// User and password, percent-decoded.
    pub(super) credentials: Option<(String, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    /// HTTP CONNECT, or whole URLs for a server without TLS.
    Http,
    /// The same, over TLS.
    Https,
    /// SOCKS 5; the proxy resolves names.
    Socks5,
}

impl std::fmt::Debug for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Route::Direct => f.write_str("Direct"),
            Route::Proxied(proxy) => write!(f, "{proxy}"),
        }
    }
}

/// Without the credentials.
impl std::fmt::Display for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = match self.protocol {
            Protocol::Http => "http",
            Protocol::Https => "https",
            Protocol::Socks5 => "socks5",
        };
        write!(f, "{scheme}://{}:{}", self.host, self.port)
    }
}

/// Why a proxy cannot be used. The text never holds the value, which may hold a password.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{origin} {reason}")]
pub(super) struct ProxyError {
    origin: &'static str,
    reason: &'static str,
}

/// Chooses the route to `server`. `proxy_url` is the kubeconfig's, `env` reads an environment variable.
pub(super) fn route(
    server: &Uri,
    proxy_url: Option<&str>,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Route, ProxyError> {
    if let Some(url) = proxy_url.filter(|url| !url.is_empty()) {
        return parse(url, "proxy-url").map(Route::Proxied);
    }
    let any = |names: [&'static str; 2]| {
        names.into_iter().find_map(|name| Some((name, env(name).filter(|value| !value.is_empty())?)))
    };
    let names = match server.scheme_str() {
        Some("https") => ["HTTPS_PROXY", "https_proxy"],
        _ => ["HTTP_PROXY", "http_proxy"],
    };
    let Some((origin, url)) = any(names) else { return Ok(Route::Direct) };
    let exceptions = any(["NO_PROXY", "no_proxy"]).map(|(_, list)| list).unwrap_or_default();
    if is_excepted(server, &exceptions) {
        return Ok(Route::Direct);
    }
    // As in Go, an address without a scheme is that of an HTTP proxy.
    let url = if url.contains("://") { url } else { format!("http://{url}") };
    parse(&url, origin).map(Route::Proxied)
}

fn parse(url: &str, origin: &'static str) -> Result<Proxy, ProxyError> {
    let wrong = |reason| ProxyError { origin, reason };
    let uri: Uri = url.trim().parse().map_err(|_| wrong("is not a URL"))?;
    let (protocol, default_port) = match uri.scheme_str() {
        Some("http") => (Protocol::Http, 80),
        Some("https") => (Protocol::Https, 443),
        Some("socks5" | "socks5h") => (Protocol::Socks5, 1080),
        _ => return Err(wrong("has an unsupported scheme; it must be http, https or socks5")),
    };
    let authority = uri.authority().ok_or_else(|| wrong("names no host"))?;
    let host = unbracketed(authority.host());
    if host.is_empty() {
        return Err(wrong("names no host"));
    }
    let credentials = authority.as_str().rsplit_once('@').map(|(user, _)| {
        let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let (user, password) = user.split_once(':').unwrap_or((user, ""));
        (decoded(user), decoded(password))
    });
    let port = authority.port_u16().unwrap_or(default_port);
    Ok(Proxy { protocol, host: host.to_owned(), port, credentials })
}

/// An IPv6 address without its brackets, and anything else as it is.
pub(super) fn unbracketed(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

/// The port of a server, with the default of its scheme.
pub(super) fn port_of(server: &Uri) -> u16 {
    server.port_u16().unwrap_or(if server.scheme_str() == Some("https") { 443 } else { 80 })
}

/// Whether the environment's proxy does not apply to this server.
fn is_excepted(server: &Uri, exceptions: &str) -> bool {
    let host = unbracketed(server.host().unwrap_or_default()).trim_end_matches('.').to_ascii_lowercase();
    let port = port_of(server);
    let ip = host.parse::<IpAddr>().ok().map(|ip| ip.to_canonical());
    if host == "localhost" || ip.is_some_and(|ip| ip.is_loopback()) {
        return true;
    }
    exceptions.split(',').map(|word| word.trim().to_ascii_lowercase()).any(|word| {
        if word == "*" {
            return true;
        }
        if let Some(range) = Range::parse(&word) {
            return ip.is_some_and(|ip| range.contains(ip));
        }
        let (name, wanted_port) = split_port(&word);
        if name.is_empty() || wanted_port.is_some_and(|wanted| wanted != port) {
            return false;
        }
        if let Ok(wanted) = name.parse::<IpAddr>() {
            return ip == Some(wanted.to_canonical());
        }
        // `.example.com` and `*.example.com` stand for the names below it, `example.com` for itself too.
        let (suffix, itself) = match name.strip_prefix("*.").or_else(|| name.strip_prefix('.')) {
            Some(suffix) => (suffix, false),
            None => (name, true),
        };
        let below = host.strip_suffix(suffix).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'));
        !suffix.is_empty() && (below || itself && host == suffix)
    })
}

/// `name:port`, `[address]:port`, or either without a port. The port of an IPv6 address needs brackets.
fn split_port(word: &str) -> (&str, Option<u16>) {
    if word.parse::<IpAddr>().is_ok() {
        return (word, None);
    }
    match word.rsplit_once(':').map(|(name, port)| (name, port.parse())) {
        Some((name, Ok(port))) => (unbracketed(name), Some(port)),
        _ => (unbracketed(word), None),
    }
}

/// A range of addresses in CIDR notation.
struct Range {
    first: IpAddr,
    bits: u32,
}

impl Range {
    fn parse(word: &str) -> Option<Range> {
        let (first, bits) = word.split_once('/')?;
        let (first, bits): (IpAddr, u32) = (first.parse().ok()?, bits.parse().ok()?);
        (bits <= if first.is_ipv4() { 32 } else { 128 }).then_some(Range { first, bits })
    }

    fn contains(&self, ip: IpAddr) -> bool {
        let same = |a: u128, b: u128, width: u32| {
            // A range of no bits holds everything; a shift by the whole width is not defined.
            self.bits == 0 || a >> (width - self.bits) == b >> (width - self.bits)
        };
        match (self.first, ip) {
            (IpAddr::V4(first), IpAddr::V4(ip)) => same(first.to_bits().into(), ip.to_bits().into(), 32),
            (IpAddr::V6(first), IpAddr::V6(ip)) => same(first.to_bits(), ip.to_bits(), 128),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routed(server: &'static str, proxy_url: Option<&str>, env: &[(&str, &str)]) -> String {
        let env =
            |name: &str| env.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        match route(&Uri::from_static(server), proxy_url, &env) {
            Ok(route) => format!("{route:?}"),
            Err(error) => format!("error: {error}"),
        }
    }

    #[test]
    fn the_environment_names_a_proxy_for_each_scheme_and_upper_case_wins() {
        let env =
            [("HTTPS_PROXY", "http://one:3128"), ("https_proxy", "http://two"), ("http_proxy", "three")];
        assert_eq!(routed("https://10.96.0.1", None, &env), "http://one:3128");
        assert_eq!(routed("https://10.96.0.1", None, &env[1..]), "http://two:80");
        assert_eq!(routed("http://api:8080", None, &env), "http://three:80");
        assert_eq!(routed("https://api", None, &[("HTTPS_PROXY", "")]), "Direct");
        assert_eq!(routed("https://api", None, &[("HTTPS_PROXY", "socks5://[::1]")]), "socks5://::1:1080");
        assert_eq!(routed("https://api", None, &[]), "Direct");
    }

    #[test]
    fn the_kubeconfigs_own_proxy_comes_first_and_has_no_exceptions() {
        let env = [("HTTPS_PROXY", "http://one"), ("NO_PROXY", "*")];
        assert_eq!(routed("https://api", Some("socks5://s:1"), &env), "socks5://s:1");
        assert_eq!(routed("https://localhost:6443", Some("https://p"), &env), "https://p:443");
        assert_eq!(routed("https://api", Some(""), &env[..1]), "http://one:80");
    }

    #[test]
    fn hosts_in_no_proxy_are_reached_directly() {
        for (server, list, direct) in [
            ("https://api.example.com", "example.com", true),
            ("https://example.com", "example.com", true),
            ("https://example.com", ".example.com", false),
            ("https://example.com", "*.example.com", false),
            ("https://api.example.com", "*.example.com", true),
            ("https://notexample.com", "example.com", false),
            ("https://API.Example.com.", "foo, EXAMPLE.com ,bar", true),
            ("https://api:6443", "api:6443", true),
            ("https://api:6443", "api:443", false),
            ("https://api", "api:443", true),
            ("https://10.96.0.1:443", "10.96.0.0/12", true),
            ("https://10.112.0.1:443", "10.96.0.0/12", false),
            ("https://10.96.0.1", "10.96.0.1", true),
            ("https://10.96.0.1:6443", "10.96.0.1:443", false),
            ("https://10.96.0.1", "0.0.0.0/0", true),
            ("https://[fd00::1]:6443", "fd00::/8", true),
            ("https://[fd00::1]:6443", "[fd00::1]:6443", true),
            ("https://[fd00::1]:6443", "fd00::1", true),
            ("https://[fd00::1]:6443", "10.0.0.0/8", false),
            ("https://api", "*", true),
            ("https://api", "", false),
            ("https://api", ",:443,/,10.0.0.0/99,.", false),
            ("https://localhost:6443", "", true),
            ("https://127.0.0.2:6443", "", true),
            ("https://[::1]:6443", "", true),
        ] {
            let env = [("HTTPS_PROXY", "http://p"), ("NO_PROXY", list)];
            assert_eq!(routed(server, None, &env) == "Direct", direct, "{server} with NO_PROXY={list}");
        }
    }

    #[test]
    fn credentials_are_decoded_and_never_shown() {
        let env = |_: &str| None;
        let server = Uri::from_static("https://api");
        let Ok(Route::Proxied(proxy)) = route(&server, Some("http://me:pa%40ss%3Aword@p:1"), &env) else {
            panic!("no proxy")
        };
        assert_eq!(proxy.credentials, Some(("me".into(), "pa@ss:word".into())));
        assert_eq!(format!("{proxy} {:?}", Route::Proxied(proxy.clone())), "http://p:1 http://p:1");
        for wrong in ["ftp://me:secret@p", "http://me:secret@", "me:secret", "http://me:sec ret@p"] {
            let error = routed("https://api", Some(wrong), &[]);
            assert!(error.starts_with("error: proxy-url ") && !error.contains("sec"), "{error}");
            let error = routed("https://api", None, &[("HTTPS_PROXY", wrong)]);
            assert!(!error.contains("sec"), "{error}");
        }
    }
}
