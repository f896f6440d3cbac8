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
    /// Serve the switches for debugging on --secure-port, such as /debug/flags/v, which changes what is
    /// logged.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set, num_args = 0..=1,
          require_equals = true, default_missing_value = "true", value_parser = BoolishValueParser::new(),
          env = "WINDLASS_PROFILING", help_heading = "Debugging flags")]
    pub profiling: bool,
    /// Address that --secure-port listens on; 0.0.0.0 and :: are all addresses, of IPv4 and of IPv6.
    #[arg(long, value_name = "IP", default_value = "0.0.0.0", env = "WINDLASS_BIND_ADDRESS")]
    pub bind_address: IpAddr,
    /// Port for HTTPS with authentication and authorization; 0 = off.
    #[arg(long, value_name = "PORT", default_value_t = 10257, env = "WINDLASS_SECURE_PORT")]
    pub secure_port: u16,
    /// Directory with windlass.crt and windlass.key. Without it, and without --tls-cert-file, a
    /// self-signed certificate is made in memory, as in kube-controller-manager.
    #[arg(long, value_name = "DIR", value_parser = path(), env = "WINDLASS_CERT_DIR")]
    pub cert_dir: Option<PathBuf>,
    /// PEM file with the certificate and its chain. Read again when it changes.
    #[arg(long, value_name = "FILE", value_parser = path(), env = "WINDLASS_TLS_CERT_FILE")]
    pub tls_cert_file: Option<PathBuf>,
    /// PEM file with the key of --tls-cert-file.
    #[arg(long, value_name = "FILE", value_parser = path(), env = "WINDLASS_TLS_PRIVATE_KEY_FILE")]
    pub tls_private_key_file: Option<PathBuf>,
    /// Cipher suites of TLS 1.2 that are offered. All that are known without it. All of Go's names are accepted;
    /// those that are not offered, such as TLS_RSA_* and CBC suites, are passed over.
    #[arg(long, value_name = "LIST", value_delimiter = ',', env = "WINDLASS_TLS_CIPHER_SUITES")]
    pub tls_cipher_suites: Vec<String>,
    /// Oldest version of TLS that is spoken: VersionTLS12 or VersionTLS13. VersionTLS10 and VersionTLS11 are taken
    /// for VersionTLS12, below which nothing is spoken.
    #[arg(long, value_name = "VERSION", default_value = "VersionTLS12", env = "WINDLASS_TLS_MIN_VERSION")]
    pub tls_min_version: String,
    /// Serve HTTP/1.1 only.
    #[arg(long, value_name = "BOOL", default_value_t = false, action = ArgAction::Set, num_args = 0..=1,
          require_equals = true, default_missing_value = "true", value_parser = BoolishValueParser::new(),
          env = "WINDLASS_DISABLE_HTTP2_SERVING")]
    pub disable_http2_serving: bool,
    /// Requests that one HTTP/2 connection may have under way; 0 = the server's own limit.
    #[arg(long, value_name = "N", default_value_t = 0, env = "WINDLASS_HTTP2_MAX_STREAMS_PER_CONNECTION")]
    pub http2_max_streams_per_connection: u32,
}

/// The same over plain HTTP, for local use.
#[derive(Clone, Debug, Group, Serialize)]
#[serde(rename_all = "kebab-case")]
#[command(next_help_heading = "Insecure serving flags")]
pub struct InsecureArgs {
    /// Port for plain-HTTP metrics, health and explanations; 0 = off.
    #[arg(long, value_name = "PORT", default_value_t = 0, env = "WINDLASS_INSECURE_PORT")]
    pub insecure_port: u16,
    /// Address that --insecure-port listens on. There, a request must name a loopback host in its Host header;
    /// on an address beyond loopback it may name any IP address, and the host name of the machine.
    #[arg(long, value_name = "IP", default_value = "127.0.0.1", env = "WINDLASS_INSECURE_BIND_ADDRESS")]
    pub insecure_bind_address: IpAddr,
}

/// Who asks.
#[derive(Clone, Debug, Group, Serialize)]
#[serde(rename_all = "kebab-case")]
#[command(next_help_heading = "Authentication flags")]
pub struct AuthenticationArgs {
    /// Kubeconfig for TokenReviews and for the configuration in kube-system. That of --kubeconfig, or
    /// the service account, without it; kube-controller-manager then takes everybody for anonymous.
    #[arg(long, value_name = "PATH", value_parser = path(), env = "WINDLASS_AUTHENTICATION_KUBECONFIG")]
    pub authentication_kubeconfig: Option<PathBuf>,
    /// Do not look up the configuration in kube-system; what the flags say is all there is.
    #[arg(long, value_name = "BOOL", default_value_t = false, action = ArgAction::Set, num_args = 0..=1,
          require_equals = true, default_missing_value = "true", value_parser = BoolishValueParser::new(),
          env = "WINDLASS_AUTHENTICATION_SKIP_LOOKUP")]
    pub authentication_skip_lookup: bool,
    /// Go on without the configuration in kube-system if it cannot be read.
    #[arg(long, value_name = "BOOL", default_value_t = false, action = ArgAction::Set, num_args = 0..=1,
          require_equals = true, default_missing_value = "true", value_parser = BoolishValueParser::new(),
          env = "WINDLASS_AUTHENTICATION_TOLERATE_LOOKUP_FAILURE")]
    pub authentication_tolerate_lookup_failure: bool,
    /// How long the answer about a token is remembered.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "10s",
        env = "WINDLASS_AUTHENTICATION_TOKEN_WEBHOOK_CACHE_TTL"
    )]
    pub authentication_token_webhook_cache_ttl: String,
    /// PEM file with the authorities whose client certificates are believed.
    #[arg(long, value_name = "FILE", value_parser = path(), env = "WINDLASS_CLIENT_CA_FILE")]
    pub client_ca_file: Option<PathBuf>,
    /// PEM file with the authorities of proxies whose request headers are believed.
    #[arg(long, value_name = "FILE", value_parser = path(), env = "WINDLASS_REQUESTHEADER_CLIENT_CA_FILE")]
    pub requestheader_client_ca_file: Option<PathBuf>,
    /// Common names that such a proxy's certificate may have; any without it.
    #[arg(long, value_name = "LIST", value_delimiter = ',', env = "WINDLASS_REQUESTHEADER_ALLOWED_NAMES")]
    pub requestheader_allowed_names: Vec<String>,
    /// Headers with the user's name.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "x-remote-user",
        env = "WINDLASS_REQUESTHEADER_USERNAME_HEADERS"
    )]
    pub requestheader_username_headers: Vec<String>,
    /// Headers with the user's UID, such as x-remote-uid. None unless said, as upstream: who trusts a
    /// header must know that the front proxy takes it from nobody else.
    #[arg(long, value_name = "LIST", value_delimiter = ',', env = "WINDLASS_REQUESTHEADER_UID_HEADERS")]
    pub requestheader_uid_headers: Vec<String>,
    /// Headers with the user's groups.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "x-remote-group",
        env = "WINDLASS_REQUESTHEADER_GROUP_HEADERS"
    )]
    pub requestheader_group_headers: Vec<String>,
    /// Beginnings of the names of headers with anything else about the user.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "x-remote-extra-",
        env = "WINDLASS_REQUESTHEADER_EXTRA_HEADERS_PREFIX"
    )]
    pub requestheader_extra_headers_prefix: Vec<String>,
}

/// Who may ask.
#[derive(Clone, Debug, Group, Serialize)]
#[serde(rename_all = "kebab-case")]
#[command(next_help_heading = "Authorization flags")]
pub struct AuthorizationArgs {
    /// Kubeconfig for SubjectAccessReviews. That of --kubeconfig, or the service account, without it;
    /// kube-controller-manager then forbids all but --authorization-always-allow-paths.
    #[arg(long, value_name = "PATH", value_parser = path(), env = "WINDLASS_AUTHORIZATION_KUBECONFIG")]
    pub authorization_kubeconfig: Option<PathBuf>,
    /// Paths that everybody may ask for; one that ends with '*' stands for all that begin so.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "/healthz,/readyz,/livez",
        env = "WINDLASS_AUTHORIZATION_ALWAYS_ALLOW_PATHS"
    )]
    pub authorization_always_allow_paths: Vec<String>,
    /// How long a yes is remembered.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "10s",
        env = "WINDLASS_AUTHORIZATION_WEBHOOK_CACHE_AUTHORIZED_TTL"
    )]
    pub authorization_webhook_cache_authorized_ttl: String,
    /// How long a no is remembered.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "10s",
        env = "WINDLASS_AUTHORIZATION_WEBHOOK_CACHE_UNAUTHORIZED_TTL"
    )]
    pub authorization_webhook_cache_unauthorized_ttl: String,
}
