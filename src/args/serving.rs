//! Flags for what the daemon serves, and to whom.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::builder::BoolishValueParser;
use clap::{ArgAction, Args as Group};
use serde::Serialize;

use super::path;

/// Metrics, health and explanations over TLS.
#[derive(Clone, Debug, Group, Serialize)]
#[serde(rename_all = "kebab-case")]
#[command(next_help_heading = "Secure serving flags")]
pub struct SecureArgs {
    /// Serve debugging endpoints on --secure-port, such as /debug/flags/v, which changes the verbosity.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set, num_args = 0..=1,
          require_equals = true, default_missing_value = "true", value_parser = BoolishValueParser::new(),
          env = "WINDLASS_PROFILING", help_heading = "Debugging flags")]
    pub profiling: bool,
    /// Address that --secure-port listens on. 0.0.0.0 and :: mean all addresses, IPv4 and IPv6.
    #[arg(long, value_name = "IP", default_value = "0.0.0.0", env = "WINDLASS_BIND_ADDRESS")]
    pub bind_address: IpAddr,
    /// Port for HTTPS with authentication and authorization; 0 disables it.
    #[arg(long, value_name = "PORT", default_value_t = 10257, env = "WINDLASS_SECURE_PORT")]
    pub secure_port: u16,
    /// Directory with windlass.crt and windlass.key. Without it and without --tls-cert-file, Windlass creates
    /// a self-signed certificate in memory, as kube-controller-manager does.
    #[arg(long, value_name = "DIR", value_parser = path(), env = "WINDLASS_CERT_DIR")]
    pub cert_dir: Option<PathBuf>,
    /// PEM file with the serving certificate and its chain. It is read again when it changes.
    #[arg(long, value_name = "FILE", value_parser = path(), env = "WINDLASS_TLS_CERT_FILE")]
    pub tls_cert_file: Option<PathBuf>,
    /// PEM file with the private key for --tls-cert-file.
    #[arg(long, value_name = "FILE", value_parser = path(), env = "WINDLASS_TLS_PRIVATE_KEY_FILE")]
    pub tls_private_key_file: Option<PathBuf>,
    /// Cipher suites to offer for TLS 1.2. Default: all supported ones. All Go names are accepted;
    /// unsupported suites, such as TLS_RSA_* and CBC suites, are ignored.
    #[arg(long, value_name = "LIST", value_delimiter = ',', env = "WINDLASS_TLS_CIPHER_SUITES")]
    pub tls_cipher_suites: Vec<String>,
    /// Minimum TLS version: VersionTLS12 or VersionTLS13. VersionTLS10 and VersionTLS11 mean VersionTLS12,
    /// the oldest supported version.
    #[arg(long, value_name = "VERSION", default_value = "VersionTLS12", env = "WINDLASS_TLS_MIN_VERSION")]
    pub tls_min_version: String,
    /// Serve HTTP/1.1 only.
    #[arg(long, value_name = "BOOL", default_value_t = false, action = ArgAction::Set, num_args = 0..=1,
          require_equals = true, default_missing_value = "true", value_parser = BoolishValueParser::new(),
          env = "WINDLASS_DISABLE_HTTP2_SERVING")]
    pub disable_http2_serving: bool,
    /// Concurrent requests per HTTP/2 connection; 0 means the default of the server.
    #[arg(long, value_name = "N", default_value_t = 0, env = "WINDLASS_HTTP2_MAX_STREAMS_PER_CONNECTION")]
    pub http2_max_streams_per_connection: u32,
}

/// The same over plain HTTP, for local use.
#[derive(Clone, Debug, Group, Serialize)]
#[serde(rename_all = "kebab-case")]
#[command(next_help_heading = "Insecure serving flags")]
pub struct InsecureArgs {
    /// Port for metrics, health and explanations over plain HTTP; 0 disables it.
    #[arg(long, value_name = "PORT", default_value_t = 0, env = "WINDLASS_INSECURE_PORT")]
    pub insecure_port: u16,
    /// Address that --insecure-port listens on. The Host header of a request must name a loopback host; on an
    /// address beyond loopback it may name any IP address or the host name of the machine.
    #[arg(long, value_name = "IP", default_value = "127.0.0.1", env = "WINDLASS_INSECURE_BIND_ADDRESS")]
    pub insecure_bind_address: IpAddr,
}

/// Authentication of clients.
#[derive(Clone, Debug, Group, Serialize)]
#[serde(rename_all = "kebab-case")]
#[command(next_help_heading = "Authentication flags")]
pub struct AuthenticationArgs {
    /// Kubeconfig for TokenReviews and for the authentication configuration in kube-system. Default: that of
    /// --kubeconfig, or the service account; kube-controller-manager treats every client as anonymous without
    /// it.
    #[arg(long, value_name = "PATH", value_parser = path(), env = "WINDLASS_AUTHENTICATION_KUBECONFIG")]
    pub authentication_kubeconfig: Option<PathBuf>,
    /// Do not read the authentication configuration in kube-system; use the flags only.
    #[arg(long, value_name = "BOOL", default_value_t = false, action = ArgAction::Set, num_args = 0..=1,
          require_equals = true, default_missing_value = "true", value_parser = BoolishValueParser::new(),
          env = "WINDLASS_AUTHENTICATION_SKIP_LOOKUP")]
    pub authentication_skip_lookup: bool,
    /// Continue without the authentication configuration in kube-system if it cannot be read.
    #[arg(long, value_name = "BOOL", default_value_t = false, action = ArgAction::Set, num_args = 0..=1,
          require_equals = true, default_missing_value = "true", value_parser = BoolishValueParser::new(),
          env = "WINDLASS_AUTHENTICATION_TOLERATE_LOOKUP_FAILURE")]
    pub authentication_tolerate_lookup_failure: bool,
    /// How long the result of a TokenReview is cached.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "10s",
        env = "WINDLASS_AUTHENTICATION_TOKEN_WEBHOOK_CACHE_TTL"
    )]
    pub authentication_token_webhook_cache_ttl: String,
    /// PEM file with the certificate authorities that sign trusted client certificates.
    #[arg(long, value_name = "FILE", value_parser = path(), env = "WINDLASS_CLIENT_CA_FILE")]
    pub client_ca_file: Option<PathBuf>,
    /// PEM file with the certificate authorities of front proxies whose request headers are trusted.
    #[arg(long, value_name = "FILE", value_parser = path(), env = "WINDLASS_REQUESTHEADER_CLIENT_CA_FILE")]
    pub requestheader_client_ca_file: Option<PathBuf>,
    /// Common names that the certificate of a front proxy may have. Default: any.
    #[arg(long, value_name = "LIST", value_delimiter = ',', env = "WINDLASS_REQUESTHEADER_ALLOWED_NAMES")]
    pub requestheader_allowed_names: Vec<String>,
    /// Headers that carry the user name.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "x-remote-user",
        env = "WINDLASS_REQUESTHEADER_USERNAME_HEADERS"
    )]
    pub requestheader_username_headers: Vec<String>,
    /// Headers that carry the UID of the user, such as x-remote-uid. Default: none, as upstream; name one
    /// only if the front proxy removes it from the requests of clients.
    #[arg(long, value_name = "LIST", value_delimiter = ',', env = "WINDLASS_REQUESTHEADER_UID_HEADERS")]
    pub requestheader_uid_headers: Vec<String>,
    /// Headers that carry the groups of the user.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "x-remote-group",
        env = "WINDLASS_REQUESTHEADER_GROUP_HEADERS"
    )]
    pub requestheader_group_headers: Vec<String>,
    /// Prefixes of headers that carry extra attributes of the user.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "x-remote-extra-",
        env = "WINDLASS_REQUESTHEADER_EXTRA_HEADERS_PREFIX"
    )]
    pub requestheader_extra_headers_prefix: Vec<String>,
}

/// Authorization of clients.
#[derive(Clone, Debug, Group, Serialize)]
#[serde(rename_all = "kebab-case")]
#[command(next_help_heading = "Authorization flags")]
pub struct AuthorizationArgs {
    /// Kubeconfig for SubjectAccessReviews. Default: that of --kubeconfig, or the service account;
    /// kube-controller-manager forbids everything but --authorization-always-allow-paths without it.
    #[arg(long, value_name = "PATH", value_parser = path(), env = "WINDLASS_AUTHORIZATION_KUBECONFIG")]
    pub authorization_kubeconfig: Option<PathBuf>,
    /// Paths that are open to every client. A path that ends with '*' is a prefix.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "/healthz,/readyz,/livez",
        env = "WINDLASS_AUTHORIZATION_ALWAYS_ALLOW_PATHS"
    )]
    pub authorization_always_allow_paths: Vec<String>,
    /// How long an 'allowed' answer of a SubjectAccessReview is cached.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "10s",
        env = "WINDLASS_AUTHORIZATION_WEBHOOK_CACHE_AUTHORIZED_TTL"
    )]
    pub authorization_webhook_cache_authorized_ttl: String,
    /// How long a 'denied' answer of a SubjectAccessReview is cached.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "10s",
        env = "WINDLASS_AUTHORIZATION_WEBHOOK_CACHE_UNAUTHORIZED_TTL"
    )]
    pub authorization_webhook_cache_unauthorized_ttl: String,
}
