//! Validated values. Flags and strings end here; an error names the flag and what is allowed.

use std::net::SocketAddr;
use std::time::Duration;

use crate::args::{Args, ClientArgs, ControllerArgs, LoggingArgs, ServingArgs};
use crate::http::{SecureOptions, ServingOptions};
use crate::logging::{FILTER_VARIABLE, Format, LogOptions};
use crate::runtime::client::ClientOptions;

/// Everything the daemon was told, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Where the API server is.
    pub client: ClientOptions,
    /// The controllers.
    pub controllers: ControllerConfig,
    /// Where metrics and health are served without TLS; `None` = nowhere.
    pub insecure_address: Option<SocketAddr>,
    /// HTTPS, and who may read what.
    pub secure: SecureOptions,
    /// How long running syncs may take to finish.
    pub shutdown_timeout: Duration,
    /// What is logged, and how.
    pub logging: LogOptions,
}

/// What the controllers were told.
#[derive(Clone, Debug, PartialEq)]
pub struct ControllerConfig {
    /// Deployments synced at the same time.
    pub deployment_workers: usize,
    /// ReplicaSets synced at the same time.
    pub set_workers: usize,
    /// Requests per second, on average.
    pub qps: f64,
    /// Requests at once.
    pub burst: u32,
}

impl Default for ControllerConfig {
    /// The defaults of the flags.
    fn default() -> Self {
        ControllerConfig { deployment_workers: 5, set_workers: 5, qps: 20.0, burst: 30 }
    }
}

/// A flag that cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("--{flag} must be {allowed}; it is {given}")]
pub struct ConfigError {
    flag: &'static str,
    allowed: &'static str,
    given: String,
}

/// More tasks than this only wait for each other.
const MOST_WORKERS: usize = 1000;

impl TryFrom<Args> for Config {
    type Error = ConfigError;

    fn try_from(args: Args) -> Result<Self, ConfigError> {
        // Without `..`, so that a new flag cannot be forgotten here.
        let Args { client, controllers, serving, logging } = args;
        let ClientArgs { kubeconfig, master, kube_api_qps, kube_api_burst } = client;
        let ControllerArgs {
            concurrent_deployment_syncs,
            concurrent_replicaset_syncs,
            controller_shutdown_timeout,
        } = controllers;
        let ServingArgs { insecure_port, insecure_bind_address } = serving;
        let LoggingArgs { verbosity, logging_format } = logging;

        if !(kube_api_qps.is_finite() && kube_api_qps > 0.0) {
            return Err(error("kube-api-qps", "a number above 0", kube_api_qps));
        }
        if kube_api_burst == 0 {
            return Err(error("kube-api-burst", "at least 1", kube_api_burst));
        }
        if verbosity > 10 {
            return Err(error("v", "a number from 0 to 10", verbosity));
        }
        Ok(Config {
            client: ClientOptions { kubeconfig, master },
            controllers: ControllerConfig {
                deployment_workers: workers("concurrent-deployment-syncs", concurrent_deployment_syncs)?,
                set_workers: workers("concurrent-replicaset-syncs", concurrent_replicaset_syncs)?,
                qps: kube_api_qps,
                burst: kube_api_burst,
            },
            insecure_address: (insecure_port != 0)
                .then(|| SocketAddr::new(insecure_bind_address, insecure_port)),
            secure: SecureOptions {
                serving: ServingOptions { secure_port: 0, ..ServingOptions::default() },
                ..SecureOptions::default()
            },
            shutdown_timeout: duration("controller-shutdown-timeout", &controller_shutdown_timeout)?,
            logging: LogOptions {
                verbosity,
                format: if logging_format == "json" { Format::Json } else { Format::Text },
                filter: std::env::var(FILTER_VARIABLE).ok(),
            },
        })
    }
}

fn error(flag: &'static str, allowed: &'static str, given: impl ToString) -> ConfigError {
    ConfigError { flag, allowed, given: given.to_string() }
}

fn workers(flag: &'static str, given: usize) -> Result<usize, ConfigError> {
    match given {
        1..=MOST_WORKERS => Ok(given),
        _ => Err(error(flag, "a number from 1 to 1000", given)),
    }
}

/// Reads a duration as Go writes it: `10s`, `1m30s`, `500ms`.
fn duration(flag: &'static str, given: &str) -> Result<Duration, ConfigError> {
    given
        .parse::<jiff::SignedDuration>()
        .ok()
        .and_then(|duration| Duration::try_from(duration).ok())
        .ok_or_else(|| error(flag, "a duration such as 10s or 1m30s", format!("{given:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn config(flags: &[&str]) -> Result<Config, String> {
        let args = Args::try_parse_from([&["windlass"], flags].concat()).map_err(|e| e.to_string())?;
        Config::try_from(args).map_err(|e| e.to_string())
    }

    #[test]
    fn the_defaults_are_upstreams() {
        let config = config(&[]).unwrap();
        assert_eq!(config.controllers, ControllerConfig::default());
        assert_eq!(config.shutdown_timeout, Duration::from_secs(10));
        assert_eq!(config.insecure_address, None);
    }

    #[test]
    fn a_bad_value_is_refused_by_the_name_of_its_flag() {
        for (flag, value) in [
            ("--concurrent-deployment-syncs", "0"),
            ("--concurrent-replicaset-syncs", "1001"),
            ("--kube-api-qps", "0"),
            ("--kube-api-qps", "NaN"),
            ("--kube-api-burst", "0"),
            ("--controller-shutdown-timeout", "soon"),
            ("--controller-shutdown-timeout", "-5s"),
            ("--logging-format", "xml"),
            ("--insecure-port", "70000"),
        ] {
            let error = config(&[&format!("{flag}={value}")]).unwrap_err();
            assert!(error.contains(flag), "{error}");
        }
    }

    #[test]
    fn a_port_turns_plain_http_on_for_loopback() {
        let config = config(&["--insecure-port=10252"]).unwrap();
        assert_eq!(config.insecure_address, Some("127.0.0.1:10252".parse().unwrap()));
    }
}
