//! Flags exactly as typed, named as kube-controller-manager names them.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args as Group, Parser};

/// The Deployment and ReplicaSet controllers for Kubernetes, in one small daemon.
#[derive(Clone, Debug, Parser)]
#[command(name = "windlass", version, about, max_term_width = 100)]
pub struct Args {
    /// Flags for the API server.
    #[command(flatten)]
    pub client: ClientArgs,
    /// Flags for the controllers.
    #[command(flatten)]
    pub controllers: ControllerArgs,
    /// Flags for leader election.
    #[command(flatten)]
    pub election: ElectionArgs,
    /// Flags for what is served.
    #[command(flatten)]
    pub serving: ServingArgs,
    /// Flags for logging.
    #[command(flatten)]
    pub logging: LoggingArgs,
}

/// How to reach the API server.
#[derive(Clone, Debug, Group)]
#[command(next_help_heading = "API server flags")]
pub struct ClientArgs {
    /// Path of a kubeconfig. Without it: $KUBECONFIG, ~/.kube/config, or in a pod its service account.
    #[arg(long, value_name = "PATH", env = "WINDLASS_KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,
    /// URL of the API server; replaces the one in the kubeconfig.
    #[arg(long, value_name = "URL", env = "WINDLASS_MASTER")]
    pub master: Option<String>,
    /// Requests per second to the API server, on average. Raise it, and the burst, where many workloads
    /// roll out at once and `rest_client_rate_limiter_duration_seconds` shows waiting.
    #[arg(long, value_name = "N", default_value_t = 20.0, env = "WINDLASS_KUBE_API_QPS")]
    pub kube_api_qps: f64,
    /// Requests that may be sent at once after a quiet time.
    #[arg(long, value_name = "N", default_value_t = 30, env = "WINDLASS_KUBE_API_BURST")]
    pub kube_api_burst: u32,
}

/// How much runs at once.
#[derive(Clone, Debug, Group)]
#[command(next_help_heading = "Controller flags")]
pub struct ControllerArgs {
    /// Deployments that are synced at the same time.
    #[arg(long, value_name = "N", default_value_t = 5, env = "WINDLASS_CONCURRENT_DEPLOYMENT_SYNCS")]
    pub concurrent_deployment_syncs: usize,
    /// ReplicaSets that are synced at the same time.
    #[arg(long, value_name = "N", default_value_t = 5, env = "WINDLASS_CONCURRENT_REPLICASET_SYNCS")]
    pub concurrent_replicaset_syncs: usize,
    /// How long running syncs may take to finish after SIGTERM, such as 10s.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "10s",
        env = "WINDLASS_CONTROLLER_SHUTDOWN_TIMEOUT"
    )]
    pub controller_shutdown_timeout: String,
}

/// Who acts, if several processes run.
#[derive(Clone, Debug, Group)]
#[command(next_help_heading = "Leader election flags")]
pub struct ElectionArgs {
    /// Stand for election before acting, so that several processes can run and one of them acts.
    #[arg(long, value_name = "BOOL", default_value_t = true, default_missing_value = "true",
          num_args = 0..=1, require_equals = true, action = clap::ArgAction::Set,
          env = "WINDLASS_LEADER_ELECT")]
    pub leader_elect: bool,
    /// How long the others wait after the leader's last renewal before one of them takes over.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "15s",
        env = "WINDLASS_LEADER_ELECT_LEASE_DURATION"
    )]
    pub leader_elect_lease_duration: String,
    /// How long the leader goes on without a successful renewal.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "10s",
        env = "WINDLASS_LEADER_ELECT_RENEW_DEADLINE"
    )]
    pub leader_elect_renew_deadline: String,
    /// The time between renewals, and between the looks of those who stand by.
    #[arg(long, value_name = "DURATION", default_value = "2s", env = "WINDLASS_LEADER_ELECT_RETRY_PERIOD")]
    pub leader_elect_retry_period: String,
    /// The name of the Lease.
    #[arg(
        long,
        value_name = "NAME",
        default_value = "windlass",
        env = "WINDLASS_LEADER_ELECT_RESOURCE_NAME"
    )]
    pub leader_elect_resource_name: String,
    /// The namespace of the Lease. Without it: that of the pod, or kube-system outside of a pod.
    #[arg(long, value_name = "NAMESPACE", env = "WINDLASS_LEADER_ELECT_RESOURCE_NAMESPACE")]
    pub leader_elect_resource_namespace: Option<String>,
}

/// Metrics and health.
#[derive(Clone, Debug, Group)]
#[command(next_help_heading = "Serving flags")]
pub struct ServingArgs {
    /// Port for plain-HTTP metrics, health and explanations; 0 = off.
    #[arg(long, value_name = "PORT", default_value_t = 0, env = "WINDLASS_INSECURE_PORT")]
    pub insecure_port: u16,
    /// Address that --insecure-port listens on.
    #[arg(long, value_name = "IP", default_value = "127.0.0.1", env = "WINDLASS_INSECURE_BIND_ADDRESS")]
    pub insecure_bind_address: IpAddr,
}

/// What is written to stderr.
#[derive(Clone, Debug, Group)]
#[command(next_help_heading = "Logging flags")]
pub struct LoggingArgs {
    /// Verbosity: up to 3 what happens, 4 and 5 why, 6 and above every step.
    #[arg(short = 'v', long = "v", value_name = "LEVEL", default_value_t = 2, env = "WINDLASS_V")]
    pub verbosity: u8,
    /// How a line is written.
    #[arg(long, value_name = "FORMAT", value_parser = ["text", "json"], default_value = "text",
          env = "WINDLASS_LOGGING_FORMAT")]
    pub logging_format: String,
}
