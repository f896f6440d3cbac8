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
    /// ReplicationControllers that are synced at the same time.
    #[arg(
        long = "concurrent_rc_syncs",
        value_name = "N",
        default_value_t = 5,
        env = "WINDLASS_CONCURRENT_RC_SYNCS"
    )]
    pub concurrent_rc_syncs: usize,
    /// How long running syncs may take to finish after SIGTERM, such as 10s.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "10s",
        env = "WINDLASS_CONTROLLER_SHUTDOWN_TIMEOUT"
    )]
    pub controller_shutdown_timeout: String,
    /// Replace pods that fail as fast as they are made one by one, after 5, 10, 20, … seconds. With
    /// false, all at once and without end, as kube-controller-manager does.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set,
          env = "WINDLASS_FAILED_POD_BACKOFF")]
    pub failed_pod_backoff: bool,
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
