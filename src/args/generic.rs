//! Flags for the controllers: those that kube-controller-manager calls generic, and those of Windlass.

use std::path::PathBuf;

use clap::builder::BoolishValueParser;
use clap::{ArgAction, Args as Group};
use serde::Serialize;

use super::path;
use crate::controllers::registry::CONTROLLERS;

/// The flags that all controllers share.
#[derive(Clone, Debug, Group, Serialize)]
#[serde(rename_all = "kebab-case")]
#[command(next_help_heading = "Generic flags")]
pub struct GenericArgs {
    /// The controllers to run.
    #[arg(
        long,
        help = controllers_help(),
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "*",
        allow_hyphen_values = true,
        env = "WINDLASS_CONTROLLERS"
    )]
    pub controllers: Vec<String>,
    /// Time between the starts of two controllers, such as 1s.
    #[arg(long, value_name = "DURATION", default_value = "0s", env = "WINDLASS_CONTROLLER_START_INTERVAL")]
    pub controller_start_interval: String,
    /// Time that running syncs have to finish after SIGTERM, such as 10s.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "10s",
        env = "WINDLASS_CONTROLLER_SHUTDOWN_TIMEOUT"
    )]
    pub controller_shutdown_timeout: String,
    /// Every object is synced again after this time, or up to twice this time, even if nothing has changed.
    /// 0s or less disables it; the least is 1s, as in client-go.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "12h",
        allow_hyphen_values = true,
        env = "WINDLASS_MIN_RESYNC_PERIOD"
    )]
    pub min_resync_period: String,
    /// Average requests per second of each controller to the API server. Raise it and the burst if many
    /// workloads roll out at once and `rest_client_rate_limiter_duration_seconds` shows waiting. Less than 0
    /// means no limit, 0 means 5, as in client-go.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 20.0,
        allow_negative_numbers = true,
        env = "WINDLASS_KUBE_API_QPS"
    )]
    pub kube_api_qps: f64,
    /// Requests that each controller may send at once after a quiet time. 0 means 10, as in client-go.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 30,
        allow_negative_numbers = true,
        env = "WINDLASS_KUBE_API_BURST"
    )]
    pub kube_api_burst: i32,
}

fn controllers_help() -> String {
    let names = CONTROLLERS.map(|controller| controller.name).join(", ");
    let off = CONTROLLERS.iter().filter(|controller| !controller.is_on_by_default);
    let off: Vec<&str> = off.map(|controller| controller.name).collect();
    format!(
        "Controllers to run: '*' runs all that are on by default, 'foo' runs foo, '-foo' does not run it. Names: {names}, \
         with or without '-controller'. Off by default: {}",
        off.join(", ")
    )
}

/// Which of several daemons acts.
#[derive(Clone, Debug, Group, Serialize)]
#[serde(rename_all = "kebab-case")]
#[command(next_help_heading = "Leader election flags")]
pub struct ElectionArgs {
    /// Act only while holding a Lease. Disable it only if there is never more than one Windlass.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set, num_args = 0..=1,
          require_equals = true, default_missing_value = "true", value_parser = BoolishValueParser::new(),
          env = "WINDLASS_LEADER_ELECT")]
    pub leader_elect: bool,
    /// Time after the last observed renewal of the Lease after which another candidate may take it.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "15s",
        env = "WINDLASS_LEADER_ELECT_LEASE_DURATION"
    )]
    pub leader_elect_lease_duration: String,
    /// Time that the leader tries to renew the Lease before it stops acting and ends. Must be less than the
    /// lease duration.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "10s",
        env = "WINDLASS_LEADER_ELECT_RENEW_DEADLINE"
    )]
    pub leader_elect_renew_deadline: String,
    /// Time between two attempts to acquire or renew the Lease.
    #[arg(long, value_name = "DURATION", default_value = "2s", env = "WINDLASS_LEADER_ELECT_RETRY_PERIOD")]
    pub leader_elect_retry_period: String,
    /// Kind of object that holds the lock.
    #[arg(long, value_name = "KIND", value_parser = ["leases"], default_value = "leases",
          env = "WINDLASS_LEADER_ELECT_RESOURCE_LOCK")]
    pub leader_elect_resource_lock: String,
    /// Name of the Lease. Daemons that share it take turns; daemons with different scopes need different
    /// names. Do not use the name of kube-controller-manager's Lease.
    #[arg(
        long,
        value_name = "NAME",
        default_value = "windlass",
        env = "WINDLASS_LEADER_ELECT_RESOURCE_NAME"
    )]
    pub leader_elect_resource_name: String,
    /// Namespace of the Lease. Default: --namespace, else the namespace of the pod, else kube-system, which
    /// is the default of kube-controller-manager.
    #[arg(long, value_name = "NAMESPACE", env = "WINDLASS_LEADER_ELECT_RESOURCE_NAMESPACE")]
    pub leader_elect_resource_namespace: Option<String>,
}

/// Which objects Windlass acts on, and how. kube-controller-manager has none of these flags.
#[derive(Clone, Debug, Group, Serialize)]
#[serde(rename_all = "kebab-case")]
#[command(next_help_heading = "Windlass flags")]
pub struct ScopeArgs {
    /// Watch and act in this namespace only; DaemonSets still look at all nodes. Default: all namespaces.
    #[arg(long, value_name = "NAMESPACE", env = "WINDLASS_NAMESPACE")]
    pub namespace: Option<String>,
    /// Act only on objects whose own labels match, such as Deployments and CronJobs, on the ReplicaSets and pods of such
    /// workloads, and on matching ReplicaSets without a Deployment. Such as 'team=shop,tier!=db'.
    #[arg(long, value_name = "SELECTOR", env = "WINDLASS_SELECTOR")]
    pub selector: Option<String>,
    /// Reaction to another controller that acts on the same objects: warn, exit with an error, or ignore it.
    #[arg(long, value_name = "ACTION", value_parser = ["warn", "exit", "ignore"], default_value = "warn",
          env = "WINDLASS_ON_CONFLICT")]
    pub on_conflict: String,
    /// Run beside an API server that has no controller manager, such as envtest's: all controllers that
    /// --controllers does not name with a '-', and unless set otherwise --leader-elect=false, --kube-api-qps=-1,
    /// --on-conflict=ignore, --secure-port=0, --node-monitor-grace-period=0s and --delete-leftover-endpoint-slices.
    #[arg(long, value_name = "BOOL", default_value_t = false, action = ArgAction::Set, num_args = 0..=1,
          require_equals = true, default_missing_value = "true", value_parser = BoolishValueParser::new(),
          env = "WINDLASS_TEST_BED")]
    pub test_bed: bool,
    /// Replace the pods of a ReplicaSet with growing delays while they fail at startup. false replaces each
    /// at once, as kube-controller-manager does.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set, num_args = 0..=1,
          require_equals = true, default_missing_value = "true", value_parser = BoolishValueParser::new(),
          env = "WINDLASS_FAILED_POD_BACKOFF")]
    pub failed_pod_backoff: bool,
    /// Act on the annotations windlass.dev/steps, fail-after and the others of a rollout policy. false ignores them,
    /// as kube-controller-manager does.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set, num_args = 0..=1,
          require_equals = true, default_missing_value = "true", value_parser = BoolishValueParser::new(),
          env = "WINDLASS_ROLLOUT_POLICY")]
    pub rollout_policy: bool,
    /// Time that a namespace stays at least after its deletion, so that all API servers know of the deletion
    /// before the last look at its content. 0s is enough for a single API server.
    #[arg(long, value_name = "DURATION", default_value = "5s", env = "WINDLASS_NAMESPACE_DELETION_DELAY")]
    pub namespace_deletion_delay: String,
    /// Ended pods that the pod garbage collector leaves in the cluster; 0 or less leaves all.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 12_500,
        allow_negative_numbers = true,
        help_heading = "Pod controller flags",
        env = "WINDLASS_TERMINATED_POD_GC_THRESHOLD"
    )]
    pub terminated_pod_gc_threshold: i32,
    /// The most endpoints that are added to an EndpointSlice, from 1 to 1000.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 100,
        allow_negative_numbers = true,
        help_heading = "Service controller flags",
        env = "WINDLASS_MAX_ENDPOINTS_PER_SLICE"
    )]
    pub max_endpoints_per_slice: i32,
    /// Time by which changes of pods are gathered before the EndpointSlices of their Services are written, such as 500ms. Without
    /// it, Windlass writes at once, and while pods keep changing at most ten times a second.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "0s",
        help_heading = "Service controller flags",
        env = "WINDLASS_ENDPOINTSLICE_UPDATES_BATCH_PERIOD"
    )]
    pub endpointslice_updates_batch_period: String,
    /// Time after which each ResourceQuota is counted again even if nothing has changed. 0s is never.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "5m",
        help_heading = "ResourceQuota controller flags",
        env = "WINDLASS_RESOURCE_QUOTA_SYNC_PERIOD"
    )]
    pub resource_quota_sync_period: String,
    /// Time by which changes of pods are gathered before the Endpoints of their Services are written, such as 500ms. Without it,
    /// Windlass writes at once, and while pods keep changing at most ten times a second.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "0s",
        help_heading = "Service controller flags",
        env = "WINDLASS_ENDPOINT_UPDATES_BATCH_PERIOD"
    )]
    pub endpoint_updates_batch_period: String,
    /// The most addresses of a subset of Endpoints that an EndpointSlice mirrors, from 1 to 1000.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1000,
        allow_negative_numbers = true,
        help_heading = "Service controller flags",
        env = "WINDLASS_MIRRORING_MAX_ENDPOINTS_PER_SUBSET"
    )]
    pub mirroring_max_endpoints_per_subset: i32,
    /// Time by which changes that others make to EndpointSlices which mirror Endpoints are gathered before they are undone, such as
    /// 5s. At least a second.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "0s",
        help_heading = "Service controller flags",
        env = "WINDLASS_MIRRORING_ENDPOINTSLICE_UPDATES_BATCH_PERIOD"
    )]
    pub mirroring_endpointslice_updates_batch_period: String,
    /// Delete the EndpointSlices of a Service that has lost its selector or became an ExternalName.
    /// kube-controller-manager leaves them.
    #[arg(long, value_name = "BOOL", default_value_t = false, action = ArgAction::Set, num_args = 0..=1,
          require_equals = true, default_missing_value = "true", value_parser = BoolishValueParser::new(),
          help_heading = "Service controller flags", env = "WINDLASS_DELETE_LEFTOVER_ENDPOINT_SLICES")]
    pub delete_leftover_endpoint_slices: bool,
    /// Resources that the garbage collector looks after, as 'kubectl api-resources -o name' prints them, such as
    /// 'pods,deployments.apps'. Objects of others are never collected, and their deletion with --cascade=foreground or
    /// --cascade=orphan does not end. Default: all.
    #[arg(long, value_name = "LIST", value_delimiter = ',', env = "WINDLASS_GC_RESOURCES")]
    pub gc_resources: Vec<String>,
    /// Resources that the garbage collector leaves alone, besides events.
    #[arg(long, value_name = "LIST", value_delimiter = ',', env = "WINDLASS_GC_IGNORED_RESOURCES")]
    pub gc_ignored_resources: Vec<String>,
    /// Field manager under which Windlass writes (managedFields). With kube-controller-manager, rules for
    /// that manager apply to Windlass too, such as Argo CD's managedFieldsManagers, and Windlass does not
    /// detect a real kube-controller-manager that acts on the same objects.
    #[arg(long, value_name = "NAME", default_value = "windlass", env = "WINDLASS_FIELD_MANAGER")]
    pub field_manager: String,
}

/// The objects that the controllers put into each namespace.
#[derive(Clone, Debug, Group, Serialize)]
#[serde(rename_all = "kebab-case")]
#[command(next_help_heading = "Serviceaccount controller flags")]
pub struct AccountArgs {
    /// File with the certificates of the CA (PEM) that root-ca-certificate-publisher-controller publishes in each
    /// namespace. Default: those of the kubeconfig, or of the pod's service account.
    #[arg(long, value_name = "FILE", value_parser = path(), env = "WINDLASS_ROOT_CA_FILE")]
    pub root_ca_file: Option<PathBuf>,
}

/// How to reach the API server.
#[derive(Clone, Debug, Group, Serialize)]
#[serde(rename_all = "kebab-case")]
#[command(next_help_heading = "Misc flags")]
pub struct ClientArgs {
    /// Path of a kubeconfig. Default: $KUBECONFIG, else ~/.kube/config, else the service account of the pod;
    /// kube-controller-manager looks for the service account only.
    #[arg(long, value_name = "PATH", value_parser = path(), env = "WINDLASS_KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,
    /// URL of the API server; overrides the one in the kubeconfig.
    #[arg(long, value_name = "URL", env = "WINDLASS_MASTER")]
    pub master: Option<String>,
}
