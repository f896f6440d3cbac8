//! The settings of the HTTP servers.

use std::path::PathBuf;

use super::value::{ConfigError, contradiction, duration, error};
use crate::args::{AuthenticationArgs, AuthorizationArgs, SecureArgs};
use crate::http::authorization::AllowedPaths;
use crate::http::serving::RequestHeaderOptions;
use crate::http::tls::{CipherSuite, TlsOptions, TlsVersion};
use crate::http::{AuthenticationOptions, AuthorizationOptions, Limits, SecureOptions, ServingOptions};

/// HTTPS with authorization.
#[derive(Clone, Debug, PartialEq)]
pub struct ServingConfig {
    /// Addresses, TLS and access.
    pub options: SecureOptions,
    /// The kubeconfig for authentication; `None` = the daemon's own access.
    pub authentication_kubeconfig: Option<PathBuf>,
    /// The kubeconfig for authorization; `None` = the daemon's own access.
    pub authorization_kubeconfig: Option<PathBuf>,
}

pub(super) fn serving(
    secure: SecureArgs,
    authentication: AuthenticationArgs,
    authorization: AuthorizationArgs,
) -> Result<Option<ServingConfig>, ConfigError> {
    let secure_port = secure.secure_port;
    let (authentication_kubeconfig, authentication) = authentication_options(authentication)?;
    let (authorization_kubeconfig, authorization) = authorization_options(authorization)?;
    let serving = serving_options(secure)?;
    let options = SecureOptions { serving, authentication, authorization };
    let config = ServingConfig { options, authentication_kubeconfig, authorization_kubeconfig };
    Ok((secure_port != 0).then_some(config))
}

fn serving_options(secure: SecureArgs) -> Result<ServingOptions, ConfigError> {
    let SecureArgs {
        profiling,
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
    let min_version = tls_min_version.parse().map_err(|wrong| unknown("tls-min-version", &wrong))?;
    let (passed_over, offered): (Vec<String>, Vec<String>) =
        tls_cipher_suites.into_iter().partition(|suite| CipherSuite::is_passed_over(suite));
    let cipher_suites: Vec<CipherSuite> = offered
        .iter()
        .map(|suite| suite.parse().map_err(|wrong| unknown("tls-cipher-suites", &wrong)))
        .collect::<Result<_, _>>()?;
    if cipher_suites.is_empty() && !passed_over.is_empty() && min_version != TlsVersion::Tls13 {
        let text = format!(
            "--tls-cipher-suites: none of {} can be offered, and so no TLS 1.2: add one such as \
             TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, or set --tls-min-version=VersionTLS13",
            passed_over.join(", ")
        );
        return Err(contradiction(text));
    }
    let tls_files = match (tls_cert_file, tls_private_key_file) {
        // Disabled options are not checked.
        _ if secure_port == 0 => None,
        (Some(cert), Some(key)) => Some((cert, key)),
        (None, None) => None,
        (Some(_), None) => {
            return Err(contradiction("--tls-cert-file needs --tls-private-key-file beside it"));
        }
        (None, Some(_)) => {
            return Err(contradiction("--tls-private-key-file needs --tls-cert-file beside it"));
        }
    };
    if tls_files.is_some() && cert_dir.is_some() {
        let text = "--cert-dir says where a certificate is to be found, and --tls-cert-file says it too: \
                    give one of them";
        return Err(contradiction(text));
    }
    let mut limits = Limits::default();
    if http2_max_streams_per_connection != 0 {
        limits.streams = http2_max_streams_per_connection;
    }
    Ok(ServingOptions {
        bind_address,
        secure_port,
        tls_files,
        cert_dir,
        tls: TlsOptions {
            min_version,
            cipher_suites,
            passed_over,
            disable_http2: disable_http2_serving,
            ..TlsOptions::default()
        },
        profiling,
        limits,
        ..ServingOptions::default()
    })
}

/// A name that our TLS library does not support, with the supported ones.
fn unknown(flag: &'static str, wrong: &crate::http::serving::UnknownName) -> ConfigError {
    ConfigError::Contradiction(format!("--{flag}: {wrong}"))
}

fn authentication_options(
    args: AuthenticationArgs,
) -> Result<(Option<PathBuf>, AuthenticationOptions), ConfigError> {
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
    let ttl = "authentication-token-webhook-cache-ttl";
    let options = AuthenticationOptions {
        skip_lookup: authentication_skip_lookup,
        tolerate_lookup_failure: authentication_tolerate_lookup_failure,
        token_cache_ttl: duration(ttl, &authentication_token_webhook_cache_ttl)?,
        client_ca_file,
        request_header: RequestHeaderOptions {
            client_ca_file: requestheader_client_ca_file,
            allowed_names: requestheader_allowed_names,
            username_headers: headers("requestheader-username-headers", requestheader_username_headers)?,
            uid_headers: headers("requestheader-uid-headers", requestheader_uid_headers)?,
            group_headers: headers("requestheader-group-headers", requestheader_group_headers)?,
            extra_headers_prefixes: headers(
                "requestheader-extra-headers-prefix",
                requestheader_extra_headers_prefix,
            )?,
        },
        ..AuthenticationOptions::default()
    };
    Ok((authentication_kubeconfig, options))
}

fn authorization_options(
    args: AuthorizationArgs,
) -> Result<(Option<PathBuf>, AuthorizationOptions), ConfigError> {
    let AuthorizationArgs {
        authorization_kubeconfig,
        authorization_always_allow_paths: paths,
        authorization_webhook_cache_authorized_ttl,
        authorization_webhook_cache_unauthorized_ttl,
    } = args;
    let flag = "authorization-always-allow-paths";
    let allowed = "a list of paths that begin with '/' and have no '*' but at the end";
    if let Some(wrong) = paths.iter().find(|path| !path.starts_with('/')) {
        return Err(error(flag, allowed, format!("{wrong:?}")));
    }
    let options = AuthorizationOptions {
        authorized_ttl: duration(
            "authorization-webhook-cache-authorized-ttl",
            &authorization_webhook_cache_authorized_ttl,
        )?,
        unauthorized_ttl: duration(
            "authorization-webhook-cache-unauthorized-ttl",
            &authorization_webhook_cache_unauthorized_ttl,
        )?,
        always_allow_paths: AllowedPaths::new(&paths)
            .map_err(|_| error(flag, allowed, format!("{:?}", paths.join(","))))?,
        ..AuthorizationOptions::default()
    };
    Ok((authorization_kubeconfig, options))
}

/// Names or prefixes of HTTP headers.
fn headers(flag: &'static str, names: Vec<String>) -> Result<Vec<String>, ConfigError> {
    let names: Vec<String> = names.into_iter().map(|name| name.to_ascii_lowercase()).collect();
    let is_token = |name: &str| name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    match names.iter().find(|name| !is_token(name)) {
        Some(wrong) => Err(error(flag, "a list of names of HTTP headers", format!("{wrong:?}"))),
        None => Ok(names),
    }
}
