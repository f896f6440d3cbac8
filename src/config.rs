//! Validated values. Flags and strings end here; an error names the flag and what is allowed.
//!
//! All of it is plain data: it can be compared, printed and built in a test. Contradictions are
//! refused here, before anything is started.

mod controllers;
mod election;
mod selector;
mod serving;
mod value;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

pub use controllers::{ControllerConfig, Enabled, Workers};
pub use selector::parse_selector;
pub use serving::ServingConfig;
pub use value::ConfigError;

use value::{contradiction, duration, error};

use crate::args::{AccountArgs, Args, ClientArgs, InsecureArgs, LoggingArgs};
pub use crate::engine::foreign_writers::OnConflict;
pub use crate::engine::scope::Scope;
use crate::logging::{FILTER_VARIABLE, Format, LogOptions};
use crate::runtime::client::ClientOptions;
use crate::runtime::leader_election::rules::ElectionOptions;

/// All settings of the daemon, validated.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The API server.
    pub client: ClientOptions,
    /// The controllers.
    pub controllers: ControllerConfig,
    /// The file with the certificates of the CA; `None` for those of the client.
    pub root_ca_file: Option<PathBuf>,
    /// The leader election; `None` = this daemon acts without one.
    pub election: Option<ElectionOptions>,
    /// HTTPS; `None` = not served.
    pub serving: Option<ServingConfig>,
    /// The address of plain HTTP for metrics and health; `None` = not served.
    pub insecure_address: Option<SocketAddr>,
    /// The settings in force, by the names of their flags: for `/configz`. No secret is among them.
    pub settings: serde_json::Value,
    /// How long running syncs may take to finish.
    pub shutdown_timeout: Duration,
    /// The logging options.
    pub logging: LogOptions,
}

impl TryFrom<Args> for Config {
    type Error = ConfigError;

    fn try_from(args: Args) -> Result<Self, ConfigError> {
        let settings = serde_json::to_value(&args).unwrap_or_default();
        // Without `..`, so that a new flag cannot be forgotten here.
        let Args {
            generic,
            election,
            controllers,
            scope,
            accounts,
            nodes,
            source: _,
            secure,
            insecure,
            authentication,
            authorization,
            logging,
            client,
        } = args;
        let ClientArgs { kubeconfig, master } = client;
        let AccountArgs { root_ca_file } = accounts;
        let InsecureArgs { insecure_port, insecure_bind_address } = insecure;
        let LoggingArgs { verbosity, logging_format } = logging;

        if verbosity > 10 {
            return Err(error("v", "a number from 0 to 10", verbosity));
        }
        if insecure_port != 0
            && insecure_port == secure.secure_port
            && same_address(insecure_bind_address, secure.bind_address)
        {
            return Err(contradiction(format!(
                "--insecure-port and --secure-port are both {insecure_port} on the same address: give one \
                 of them another port, or 0 to switch it off"
            )));
        }
        let shutdown_timeout = duration("controller-shutdown-timeout", &generic.controller_shutdown_timeout)?;
        let controllers = controllers::controllers(generic, controllers, scope, nodes)?;
        let election = election::election(election, controllers.scope.namespace.as_deref())?;
        let serving = serving::serving(secure, authentication, authorization)?;
        Ok(Config {
            client: ClientOptions { kubeconfig, master },
            controllers,
            root_ca_file,
            election,
            serving,
            insecure_address: (insecure_port != 0)
                .then(|| SocketAddr::new(insecure_bind_address, insecure_port)),
            settings,
            shutdown_timeout,
            logging: LogOptions {
                verbosity,
                format: if logging_format == "json" { Format::Json } else { Format::Text },
                filter: std::env::var(FILTER_VARIABLE).ok(),
            },
        })
    }
}

/// Whether two listeners at these addresses would conflict.
fn same_address(one: IpAddr, other: IpAddr) -> bool {
    one == other || one.is_unspecified() || other.is_unspecified()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn config(flags: &[&str]) -> Result<Config, String> {
        let argv = std::iter::once("windlass").chain(flags.iter().copied()).map(Into::into);
        let args = crate::args::load(argv).map_err(|e| e.to_string())?;
        Config::try_from(args).map_err(|e| e.to_string())
    }

    #[test]
    fn the_defaults_are_upstreams() {
        let config = config(&[]).unwrap();
        assert_eq!(config.controllers, ControllerConfig::default());
        assert_eq!(config.shutdown_timeout, Duration::from_secs(10));
        assert_eq!(config.insecure_address, None);
        assert_eq!(config.serving.unwrap().options, crate::http::SecureOptions::default());
        let election = config.election.unwrap();
        let seconds = [election.lease_duration, election.renew_deadline, election.retry_period];
        assert_eq!(seconds.map(|duration| duration.as_secs()), [15, 10, 2]);
        assert_eq!(election.name, "windlass");
    }

    #[test]
    fn a_bad_value_is_refused_by_the_name_of_its_flag() {
        for (flag, value) in [
            ("--concurrent-deployment-syncs", "0"),
            ("--concurrent-replicaset-syncs", "1001"),
            ("--concurrent_rc_syncs", "0"),
            ("--concurrent-resource-quota-syncs", "0"),
            ("--resource-quota-sync-period", "-1s"),
            ("--kube-api-qps", "NaN"),
            ("--kube-api-burst", "-1"),
            ("--field-manager", ""),
            ("--controller-shutdown-timeout", "soon"),
            ("--controller-shutdown-timeout", "-5s"),
            ("--controller-start-interval", "1"),
            ("--min-resync-period", "5"),
            ("--min-resync-period", "-5"),
            ("--logging-format", "xml"),
            ("--insecure-port", "70000"),
            ("--secure-port", "-1"),
            ("--bind-address", "localhost"),
            ("--v", "11"),
            ("--controllers", "node-ipam"),
            ("--concurrent-namespace-syncs", "0"),
            ("--namespace-deletion-delay", "-1s"),
            ("--namespace-deletion-delay", "5"),
            ("--concurrent-service-endpoint-syncs", "51"),
            ("--concurrent-disruption-syncs", "0"),
            ("--max-endpoints-per-slice", "0"),
            ("--max-endpoints-per-slice", "1001"),
            ("--endpointslice-updates-batch-period", "-1s"),
            ("--endpoint-updates-batch-period", "-1s"),
            ("--mirroring-concurrent-service-endpoint-syncs", "51"),
            ("--mirroring-max-endpoints-per-subset", "0"),
            ("--mirroring-max-endpoints-per-subset", "1001"),
            ("--mirroring-endpointslice-updates-batch-period", "-1s"),
            ("--node-monitor-grace-period", "-1s"),
            ("--node-eviction-rate", "nan"),
            ("--unhealthy-zone-threshold", "inf"),
            ("--large-cluster-size-threshold", "0.5"),
            ("--namespace", "Shop"),
            ("--namespace", "a,b"),
            ("--selector", "a in"),
            ("--on-conflict", "panic"),
            ("--leader-elect", "perhaps"),
            ("--leader-elect-lease-duration", "0s"),
            ("--leader-elect-resource-lock", "endpoints"),
            ("--leader-elect-resource-name", "A"),
            ("--leader-elect-resource-namespace", "x.y"),
            ("--tls-min-version", "VersionSSL30"),
            ("--tls-cipher-suites", "TLS_RSA_WITH_RC4_128_MD5"),
            ("--tls-cipher-suites", "TLS_RSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA"),
            ("--requestheader-username-headers", "a b"),
            ("--authorization-always-allow-paths", "healthz"),
            ("--authorization-webhook-cache-authorized-ttl", "long"),
        ] {
            let error = config(&[&format!("{flag}={value}")]).unwrap_err();
            assert!(error.contains(flag), "{flag}={value}: {error}");
        }
    }

    #[test]
    fn rates_and_resyncs_are_read_as_kube_controller_manager_reads_them() {
        let rate = |flags: &[&str]| {
            let controllers = config(flags).unwrap().controllers;
            (controllers.qps, controllers.burst)
        };
        assert_eq!(rate(&["--kube-api-qps=-1"]), (-1.0, 30));
        assert_eq!(rate(&["--kube-api-qps", "-1", "--kube-api-burst", "-1"]), (-1.0, 10));
        assert_eq!(rate(&["--kube-api-qps=0", "--kube-api-burst=0"]), (5.0, 10));
        assert_eq!(rate(&["--kube-api-qps=2.5", "--kube-api-burst=100"]), (2.5, 100));
        for (given, seconds) in
            [("1s", Some(1)), ("30s", Some(30)), ("10ms", Some(1)), ("0", None), ("0s", None), ("-1m", None)]
        {
            let period =
                config(&[&format!("--min-resync-period={given}")]).unwrap().controllers.resync_period;
            assert_eq!(period, seconds.map(Duration::from_secs), "{given}");
        }
    }

    #[test]
    fn the_suites_of_hardening_guides_are_accepted_and_unsupported_ones_are_skipped() {
        let tls = |flags: &[&str]| config(flags).unwrap().serving.unwrap().options.serving.tls;
        // The list of the CIS benchmark, with a TLS 1.3 name, and with names that only Go has.
        let options = tls(&[
            "--tls-cipher-suites=TLS_AES_128_GCM_SHA256,TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,\
            TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,TLS_RSA_WITH_AES_256_GCM_SHA384,TLS_RSA_WITH_AES_128_GCM_SHA256,\
            TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA,TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
        ]);
        assert_eq!(options.cipher_suites.len(), 3);
        assert_eq!(options.passed_over.len(), 4);
        // With TLS 1.3 only the list has no effect, as in Go.
        let flags = ["--tls-cipher-suites=TLS_RSA_WITH_AES_128_GCM_SHA256", "--tls-min-version=VersionTLS13"];
        assert_eq!(tls(&flags).passed_over.len(), 1);
        assert_eq!(tls(&["--tls-min-version=VersionTLS10"]).min_version, tls(&[]).min_version);
    }

    #[test]
    fn contradictions_are_refused_by_the_names_of_both_flags() {
        for (flags, one, other) in [
            (
                &["--leader-elect-renew-deadline=15s"][..],
                "--leader-elect-renew-deadline",
                "--leader-elect-lease-duration",
            ),
            (
                &["--leader-elect-retry-period=9s"],
                "--leader-elect-retry-period",
                "--leader-elect-renew-deadline",
            ),
            (&["--tls-cert-file=a"], "--tls-cert-file", "--tls-private-key-file"),
            (&["--tls-private-key-file=a"], "--tls-private-key-file", "--tls-cert-file"),
            (
                &["--tls-cert-file=a", "--tls-private-key-file=b", "--cert-dir=c"],
                "--cert-dir",
                "--tls-cert-file",
            ),
            (&["--insecure-port=10257"], "--insecure-port", "--secure-port"),
            (&["--controllers=namespace", "--namespace=shop"], "--namespace=shop", "namespace-controller"),
            (
                &[
                    "--controllers=-deployment,-replicaset,-replicationcontroller,-daemonset,-statefulset,-job,-cronjob,-ttl-after-finished,*",
                ],
                "--controllers",
                "no controller",
            ),
        ] {
            let error = config(flags).unwrap_err();
            assert!(error.contains(one) && error.contains(other), "{flags:?}: {error}");
        }
    }

    #[test]
    fn a_test_bed_runs_every_controller_that_is_not_named_with_a_minus() {
        let running = |flags: &[&str]| {
            let config = config(flags).unwrap();
            (config.controllers.enabled, config.election.is_some(), config.serving.is_some())
        };
        assert_eq!(running(&["--test-bed"]), (Enabled::all(), false, false));
        let without = Enabled::all().without("daemonset-controller");
        assert_eq!(running(&["--test-bed", "--controllers=*,-daemonset"]), (without, false, false));
        let asked_for = running(&["--test-bed", "--leader-elect", "--secure-port=10257"]);
        assert_eq!(asked_for, (Enabled::all(), true, true));
        assert_eq!(running(&[]).0, Enabled::default());
        let deletes = |flags: &[&str]| config(flags).unwrap().controllers.deletes_leftover_endpoint_slices;
        assert!(deletes(&["--test-bed"]) && !deletes(&[]));
        assert!(!deletes(&["--test-bed", "--delete-leftover-endpoint-slices=false"]));
        let judges = |flags: &[&str]| config(flags).unwrap().controllers.node_limits.judges_heartbeats();
        assert!(judges(&[]) && !judges(&["--test-bed"]));
        assert!(judges(&["--test-bed", "--node-monitor-grace-period=50s"]));
    }

    #[test]
    fn controllers_of_the_whole_cluster_do_not_run_in_one_namespace() {
        for flags in
            [&["--test-bed"][..], &["--controllers=*,pv-protection"], &["--controllers=serviceaccount"]]
        {
            let error = config(&[flags, &["--namespace=shop"]].concat()).unwrap_err();
            assert!(error.contains("--namespace") && error.contains("cluster-scoped"), "{error}");
        }
        assert!(config(&["--controllers=*,pvc-protection", "--namespace=shop"]).is_ok());
    }

    #[test]
    fn disabled_options_are_not_checked() {
        assert_eq!(
            config(&["--leader-elect=false", "--leader-elect-renew-deadline=20s"]).unwrap().election,
            None
        );
        assert_eq!(config(&["--secure-port=0", "--tls-cert-file=a"]).unwrap().serving, None);
        assert!(config(&["--insecure-port=10257", "--bind-address=127.0.0.2"]).is_ok());
    }

    #[test]
    fn a_port_turns_plain_http_on_for_loopback() {
        let config = config(&["--insecure-port=10252"]).unwrap();
        assert_eq!(config.insecure_address, Some("127.0.0.1:10252".parse().unwrap()));
    }

    #[test]
    fn a_duration_is_written_as_in_go() {
        for (text, millis) in [("0", 0), ("0s", 0), ("1m30s", 90_000), ("500ms", 500), ("1h0m0s", 3_600_000)]
        {
            assert_eq!(duration("x", text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }
}
