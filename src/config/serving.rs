//! What is served, and to whom.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::{ConfigError, contradiction, duration, error};
use crate::args::{AuthenticationArgs, AuthorizationArgs, SecureArgs};

/// Serving with TLS, for those who may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServingConfig {
    /// Where to listen.
    pub address: SocketAddr,
    /// `--cert-dir`.
    pub cert_dir: Option<PathBuf>,
    /// The certificate and its key; a self-signed one without them and without a directory.
    pub cert: Option<(PathBuf, PathBuf)>,
    /// Cipher suites by their names in Go; empty = all that are known.
    pub cipher_suites: Vec<String>,
    /// The oldest version that is spoken.
    pub min_tls_version: TlsVersion,
    /// Whether HTTP/2 is offered.
    pub http2: bool,
    /// Requests that one HTTP/2 connection may have under way; `None` = the server's own limit.
    pub http2_max_streams: Option<u32>,
    /// Who asks.
    pub authentication: AuthenticationConfig,
    /// Who may ask.
    pub authorization: AuthorizationConfig,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsVersion {
    /// 1.2.
    V12,
    /// 1.3.
    V13,
}

/// How it is found out who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthenticationConfig {
    /// The kubeconfig for it; `None` = the daemon's own access.
    pub kubeconfig: Option<PathBuf>,
    /// Do not read `kube-system/extension-apiserver-authentication`.
    pub skip_lookup: bool,
    /// Go on if that cannot be read.
    pub tolerate_lookup_failure: bool,
    /// How long the answer about a token is remembered.
    pub token_cache_ttl: Duration,
    /// The authorities of client certificates.
    pub client_ca_file: Option<PathBuf>,
    /// The authorities of proxies.
    pub requestheader_client_ca_file: Option<PathBuf>,
    /// Common names that a proxy may have; empty = any.
    pub requestheader_allowed_names: Vec<String>,
    /// Headers with the user's name, in lower case.
    pub requestheader_username_headers: Vec<String>,
    /// Headers with the user's UID, in lower case.
    pub requestheader_uid_headers: Vec<String>,
    /// Headers with the user's groups, in lower case.
    pub requestheader_group_headers: Vec<String>,
    /// Prefixes of headers with anything else, in lower case.
    pub requestheader_extra_headers_prefix: Vec<String>,
}

/// How it is found out who may ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorizationConfig {
    /// The kubeconfig for it; `None` = the daemon's own access.
    pub kubeconfig: Option<PathBuf>,
    /// Paths that everybody may ask for; a `*` at the end stands for anything.
    pub always_allow_paths: Vec<String>,
    /// How long a yes is remembered.
    pub authorized_ttl: Duration,
    /// How long a no is remembered.
    pub unauthorized_ttl: Duration,
}

/// What our TLS library can do, by the names that Go gives it.
const CIPHER_SUITES: [&str; 11] = [
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
];

pub(super) fn serving(
    secure: SecureArgs,
    authentication: AuthenticationArgs,
    authorization: AuthorizationArgs,
) -> Result<Option<ServingConfig>, ConfigError> {
    let SecureArgs {
        profiling: _, // Of both ports.
        bind_address,
        secure_port,
        cert_dir,
        tls_cert_file,
        tls_private_key_file,
        tls_cipher_suites,
        tls_min_version,
        disable_http2_serving,
        http2_max_streams_per_connection,
    } = secure;
    let cipher_suites = tls_cipher_suites;
    if let Some(unknown) = cipher_suites.iter().find(|suite| !CIPHER_SUITES.contains(&suite.as_str())) {
        let allowed = format!("a list of {}", CIPHER_SUITES.join(", "));
        return Err(error("tls-cipher-suites", allowed, format!("{unknown:?}")));
    }
    let min_tls_version = match tls_min_version.as_str() {
        "VersionTLS12" => TlsVersion::V12,
        "VersionTLS13" => TlsVersion::V13,
        _ => return Err(error("tls-min-version", "VersionTLS12 or VersionTLS13", tls_min_version)),
    };
    let authentication = authentication_config(authentication)?;
    let authorization = authorization_config(authorization)?;
    if secure_port == 0 {
        return Ok(None);
    }
    let cert = match (tls_cert_file, tls_private_key_file) {
        (Some(cert), Some(key)) => Some((cert, key)),
        (None, None) => None,
        (Some(_), None) => {
            return Err(contradiction("--tls-cert-file needs --tls-private-key-file beside it"));
        }
        (None, Some(_)) => {
            return Err(contradiction("--tls-private-key-file needs --tls-cert-file beside it"));
        }
    };
    if cert.is_some() && cert_dir.is_some() {
        let text = "--cert-dir says where a certificate is to be found, and --tls-cert-file says it too: \
                    give one of them";
        return Err(contradiction(text));
    }
    Ok(Some(ServingConfig {
        address: SocketAddr::new(bind_address, secure_port),
        cert_dir,
        cert,
        cipher_suites,
        min_tls_version,
        http2: !disable_http2_serving,
        http2_max_streams: (http2_max_streams_per_connection != 0)
            .then_some(http2_max_streams_per_connection),
        authentication,
        authorization,
    }))
}

fn authentication_config(args: AuthenticationArgs) -> Result<AuthenticationConfig, ConfigError> {
    let AuthenticationArgs {
        authentication_kubeconfig,
        authentication_skip_lookup,
        authentication_tolerate_lookup_failure,
        authentication_token_webhook_cache_ttl,
        client_ca_file,
        requestheader_client_ca_file,
        requestheader_allowed_names,
        requestheader_username_headers,
        requestheader_uid_headers,
        requestheader_group_headers,
        requestheader_extra_headers_prefix,
    } = args;
    Ok(AuthenticationConfig {
        kubeconfig: authentication_kubeconfig,
        skip_lookup: authentication_skip_lookup,
        tolerate_lookup_failure: authentication_tolerate_lookup_failure,
        token_cache_ttl: duration(
            "authentication-token-webhook-cache-ttl",
            &authentication_token_webhook_cache_ttl,
        )?,
        client_ca_file,
        requestheader_client_ca_file,
        requestheader_allowed_names,
        requestheader_username_headers: headers(
            "requestheader-username-headers",
            requestheader_username_headers,
        )?,
        requestheader_uid_headers: headers("requestheader-uid-headers", requestheader_uid_headers)?,
        requestheader_group_headers: headers("requestheader-group-headers", requestheader_group_headers)?,
        requestheader_extra_headers_prefix: headers(
            "requestheader-extra-headers-prefix",
            requestheader_extra_headers_prefix,
        )?,
    })
}

fn authorization_config(args: AuthorizationArgs) -> Result<AuthorizationConfig, ConfigError> {
    let AuthorizationArgs {
        authorization_kubeconfig,
        authorization_always_allow_paths,
        authorization_webhook_cache_authorized_ttl,
        authorization_webhook_cache_unauthorized_ttl,
    } = args;
    let always_allow_paths = authorization_always_allow_paths;
    // A star in the middle would be taken for a letter, and the path never allowed.
    let is_path = |path: &str| path.starts_with('/') && path.find('*').is_none_or(|at| at + 1 == path.len());
    if let Some(wrong) = always_allow_paths.iter().find(|path| !is_path(path)) {
        let allowed = "a list of paths that begin with '/' and have no '*' but at the end";
        return Err(error("authorization-always-allow-paths", allowed, format!("{wrong:?}")));
    }
    Ok(AuthorizationConfig {
        kubeconfig: authorization_kubeconfig,
        always_allow_paths,
        authorized_ttl: duration(
            "authorization-webhook-cache-authorized-ttl",
            &authorization_webhook_cache_authorized_ttl,
        )?,
        unauthorized_ttl: duration(
            "authorization-webhook-cache-unauthorized-ttl",
            &authorization_webhook_cache_unauthorized_ttl,
        )?,
    })
}

/// Names of headers, or the beginnings of such.
fn headers(flag: &'static str, names: Vec<String>) -> Result<Vec<String>, ConfigError> {
    let names: Vec<String> = names.into_iter().map(|name| name.to_ascii_lowercase()).collect();
    let is_token = |name: &str| name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    match names.iter().find(|name| !is_token(name)) {
        Some(wrong) => Err(error(flag, "a list of names of HTTP headers", format!("{wrong:?}"))),
        None => Ok(names),
    }
}
