//! The settings of the controllers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::tz::TimeZone;

use super::selector::parse_selector;
use super::value::{ConfigError, contradiction, duration, error, is_dns_name};
use crate::args::{ControllerArgs, GenericArgs, NodeArgs, ScopeArgs};
use crate::controllers::registry::{CONTROLLERS, KINDS};
use crate::engine::context::ResourceFilter;
use crate::engine::entry::ControllerEntry;
use crate::engine::execute::FIELD_MANAGER;
use crate::engine::foreign_writers::OnConflict;
use crate::engine::scope::Scope;
use crate::model::ObjectKey;
use crate::plan::node_lifecycle::Limits;

/// The settings of the controllers.
#[derive(Clone, Debug, PartialEq)]
pub struct ControllerConfig {
    /// How many keys each controller syncs at the same time.
    pub workers: Workers,
    /// Requests per second, on average; less than 0 = no limit.
    pub qps: f64,
    /// Requests at once.
    pub burst: u32,
    /// Which controllers run.
    pub enabled: Enabled,
    /// Time between the starts of two controllers.
    pub start_interval: Duration,
    /// After this time, or up to twice as long, every object is synced again; `None` = never.
    pub resync_period: Option<Duration>,
    /// The objects to act on.
    pub scope: Scope,
    /// The reaction to another controller that acts on the same objects.
    pub on_conflict: OnConflict,
    /// Whether a broken watch is followed by a list; see [`crate::runtime::informer::InformerOptions`]. The program sets it
    /// where it runs without an election.
    pub relists_after_breaks: bool,
    /// Whether pods that fail one after the other are replaced with growing delays.
    pub failed_pod_backoff: bool,
    /// Whether the annotations of a rollout policy have an effect.
    pub rollout_policy: bool,
    /// How long after its deletion a namespace stays at least.
    pub namespace_deletion_delay: Duration,
    /// The most endpoints of an EndpointSlice.
    pub max_endpoints_per_slice: usize,
    /// How long changes of pods are gathered before the EndpointSlices of their Services are written.
    pub endpoint_slice_updates_batch_period: Duration,
    /// How long changes of pods are gathered before the Endpoints of their Services are written.
    pub endpoint_updates_batch_period: Duration,
    /// The most addresses of a subset of Endpoints that EndpointSlices mirror.
    pub mirroring_max_endpoints_per_subset: usize,
    /// How long changes of EndpointSlices by others are gathered before those that mirror Endpoints are written.
    pub mirroring_updates_batch_period: Duration,
    /// Whether the EndpointSlices of a Service that has lost its selector, or became a name, are deleted.
    pub deletes_leftover_endpoint_slices: bool,
    /// How often each quota is counted again; `None`: when something changes only.
    pub resource_quota_sync_period: Option<Duration>,
    /// How many ended pods the pod garbage collector leaves; 0 or less: any number.
    pub terminated_pod_threshold: i64,
    /// When nodes are lost, and how fast they lose their pods.
    pub node_limits: Limits,
    /// The zone of a schedule that names none. The program sets it by `TZ`.
    pub local_time_zone: TimeZone,
    /// The resources that the garbage collector looks after.
    pub garbage_resources: ResourceFilter,
    /// Namespace and name of the Lease on which the garbage collector keeps what a restart must not make it forget. `None`: the
    /// Lease of the election; without an election a restart makes it forget that.
    pub garbage_record: Option<ObjectKey>,
    /// The field manager of our writes.
    pub field_manager: String,
    /// The certificates of the API server's CA, in PEM; empty if they are not known.
    pub root_ca: Arc<str>,
}

impl Default for ControllerConfig {
    /// The defaults of the flags.
    fn default() -> Self {
        ControllerConfig {
            workers: Workers::default(),
            qps: 20.0,
            burst: 30,
            enabled: Enabled::default(),
            start_interval: Duration::ZERO,
            resync_period: Some(Duration::from_secs(12 * 3600)),
            scope: Scope::default(),
            on_conflict: OnConflict::default(),
            relists_after_breaks: false,
            failed_pod_backoff: true,
            rollout_policy: true,
            namespace_deletion_delay: Duration::from_secs(5),
            max_endpoints_per_slice: 100,
            endpoint_slice_updates_batch_period: Duration::ZERO,
            endpoint_updates_batch_period: Duration::ZERO,
            mirroring_max_endpoints_per_subset: 1000,
            mirroring_updates_batch_period: Duration::ZERO,
            deletes_leftover_endpoint_slices: false,
            resource_quota_sync_period: Some(Duration::from_secs(300)),
            terminated_pod_threshold: 12_500,
            node_limits: Limits::default(),
            local_time_zone: TimeZone::UTC,
            garbage_resources: ResourceFilter::default(),
            garbage_record: None,
            field_manager: FIELD_MANAGER.to_owned(),
            root_ca: "".into(),
        }
    }
}

/// How many keys each controller syncs at the same time: the registry's number by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Workers(BTreeMap<&'static str, usize>);

impl Workers {
    /// Those of one controller.
    pub fn of(&self, controller: &ControllerEntry) -> usize {
        self.0.get(controller.name).copied().unwrap_or(controller.workers)
    }
}

/// Which controllers run: all but those that are switched off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enabled {
    off: BTreeSet<&'static str>,
}

impl Default for Enabled {
    /// Those that `--controllers=*` runs.
    fn default() -> Self {
        let off = CONTROLLERS.iter().filter(|controller| !controller.is_on_by_default);
        Enabled { off: off.map(|controller| controller.name).collect() }
    }
}

impl Enabled {
    /// Every controller of the registry.
    pub fn all() -> Self {
        Enabled { off: BTreeSet::new() }
    }

    /// No controller of the registry.
    pub fn none() -> Self {
        Enabled { off: CONTROLLERS.iter().map(|controller| controller.name).collect() }
    }

    /// With the controller of this name, which is off by default.
    #[must_use]
    pub fn with(mut self, name: &'static str) -> Self {
        self.off.remove(name);
        self
    }

    /// Without the controller of this name.
    #[must_use]
    pub fn without(mut self, name: &'static str) -> Self {
        self.off.insert(name);
        self
    }

    /// Whether a controller runs.
    pub fn runs(&self, controller: &ControllerEntry) -> bool {
        !self.off.contains(controller.name)
    }

    /// The names of those that do not.
    pub fn switched_off(&self) -> BTreeSet<&'static str> {
        self.off.clone()
    }
}

/// More tasks than this only wait for each other.
const MOST_WORKERS: usize = 1000;

/// client-go's: a shorter time is raised to this.
const SHORTEST_RESYNC: Duration = Duration::from_secs(1);

/// A shorter time only costs processor time.
const SHORTEST_MONITOR_PERIOD: Duration = Duration::from_millis(100);

/// client-go's values for a rate of 0 and a burst of 0.
const CLIENT_GO_RATE: (f64, u32) = (5.0, 10);

/// The longest name of a field manager that the API server accepts.
const LONGEST_FIELD_MANAGER: usize = 128;

pub(super) fn controllers(
    generic: GenericArgs,
    controllers: ControllerArgs,
    scope: ScopeArgs,
    nodes: NodeArgs,
) -> Result<ControllerConfig, ConfigError> {
    let GenericArgs {
        controllers: names,
        controller_start_interval,
        controller_shutdown_timeout: _, // Of the whole daemon.
        min_resync_period,
        kube_api_qps,
        kube_api_burst,
    } = generic;
    let ScopeArgs {
        namespace,
        selector,
        on_conflict,
        test_bed,
        failed_pod_backoff,
        rollout_policy,
        namespace_deletion_delay,
        terminated_pod_gc_threshold,
        max_endpoints_per_slice,
        endpointslice_updates_batch_period,
        resource_quota_sync_period,
        endpoint_updates_batch_period,
        mirroring_max_endpoints_per_subset,
        mirroring_endpointslice_updates_batch_period,
        delete_leftover_endpoint_slices,
        gc_resources,
        gc_ignored_resources,
        field_manager,
    } = scope;

    let (qps, burst) = rate(kube_api_qps, kube_api_burst)?;
    let is_printable = |name: &str| !name.chars().any(char::is_control);
    if field_manager.is_empty()
        || field_manager.len() > LONGEST_FIELD_MANAGER
        || !is_printable(&field_manager)
    {
        let allowed = "a name of at most 128 printable characters";
        return Err(error("field-manager", allowed, format!("{field_manager:?}")));
    }
    let namespace = namespace.filter(|namespace| !namespace.is_empty());
    if let Some(namespace) = &namespace
        && !is_dns_name(namespace, 63, false)
    {
        return Err(error("namespace", "the name of one namespace", format!("{namespace:?}")));
    }
    let selector = match selector.filter(|selector| !selector.trim().is_empty()) {
        None => None,
        Some(text) => Some(parse_selector(&text).map_err(|reason| {
            let allowed = "a label selector such as team=shop,tier!=db";
            error("selector", allowed, format!("{text:?}: {reason}"))
        })?),
    };
    let enabled = enabled(&names, test_bed)?;
    if let Some(namespace) = &namespace {
        stay_in_one_namespace(&enabled, namespace)?;
    }
    Ok(ControllerConfig {
        workers: workers(&controllers)?,
        qps,
        burst,
        enabled,
        start_interval: duration("controller-start-interval", &controller_start_interval)?,
        resync_period: resync_period(&min_resync_period)?,
        scope: Scope { namespace, selector },
        on_conflict: match on_conflict.as_str() {
            "exit" => OnConflict::Exit,
            "ignore" => OnConflict::Ignore,
            _ => OnConflict::Warn,
        },
        relists_after_breaks: false,
        failed_pod_backoff,
        rollout_policy,
        namespace_deletion_delay: duration("namespace-deletion-delay", &namespace_deletion_delay)?,
        max_endpoints_per_slice: max_endpoints("max-endpoints-per-slice", max_endpoints_per_slice)?,
        endpoint_slice_updates_batch_period: duration(
            "endpointslice-updates-batch-period",
            &endpointslice_updates_batch_period,
        )?,
        endpoint_updates_batch_period: duration(
            "endpoint-updates-batch-period",
            &endpoint_updates_batch_period,
        )?,
        mirroring_max_endpoints_per_subset: max_endpoints(
            "mirroring-max-endpoints-per-subset",
            mirroring_max_endpoints_per_subset,
        )?,
        mirroring_updates_batch_period: duration(
            "mirroring-endpointslice-updates-batch-period",
            &mirroring_endpointslice_updates_batch_period,
        )?,
        deletes_leftover_endpoint_slices: delete_leftover_endpoint_slices,
        resource_quota_sync_period: Some(duration(
            "resource-quota-sync-period",
            &resource_quota_sync_period,
        )?)
        .filter(|period| !period.is_zero()),
        terminated_pod_threshold: i64::from(terminated_pod_gc_threshold),
        node_limits: node_limits(nodes)?,
        local_time_zone: TimeZone::UTC,
        garbage_resources: ResourceFilter {
            only: resources("gc-resources", gc_resources)?,
            ignored: resources("gc-ignored-resources", gc_ignored_resources)?,
        },
        garbage_record: None,
        field_manager,
        root_ca: "".into(),
    })
}

/// Refuses controllers whose objects are in no namespace, where only one namespace is in scope.
fn stay_in_one_namespace(enabled: &Enabled, namespace: &str) -> Result<(), ConfigError> {
    let running = CONTROLLERS.iter().filter(|known| enabled.runs(known));
    match running.filter(|known| !known.runs_in_one_namespace(&KINDS)).map(|known| known.name).next() {
        None => Ok(()),
        Some(name) => Err(contradiction(format!(
            "{name} acts on cluster-scoped objects, and --namespace={namespace} allows one namespace only: remove \
             --namespace, or add -{name} to --controllers"
        ))),
    }
}

/// Names of resources, as `kubectl api-resources -o name` prints them.
fn resources(flag: &'static str, names: Vec<String>) -> Result<Vec<String>, ConfigError> {
    let names: Vec<String> = names.into_iter().filter(|name| !name.is_empty()).collect();
    match names.iter().find(|name| !is_dns_name(name, 253, true)) {
        None => Ok(names),
        Some(name) => Err(error(
            flag,
            "names as 'kubectl api-resources -o name' prints them, such as deployments.apps",
            format!("{name:?}"),
        )),
    }
}

/// kube-controller-manager's bounds; an API server refuses a larger slice.
fn max_endpoints(flag: &'static str, given: i32) -> Result<usize, ConfigError> {
    let allowed = usize::try_from(given).ok().filter(|count| (1..=1000).contains(count));
    allowed.ok_or_else(|| error(flag, "a number from 1 to 1000", given))
}

/// kube-controller-manager has no bounds for these: a rate of 0 or less taints no node.
fn node_limits(given: NodeArgs) -> Result<Limits, ConfigError> {
    let NodeArgs {
        node_monitor_period,
        node_monitor_grace_period,
        node_startup_grace_period,
        node_eviction_rate,
        secondary_node_eviction_rate,
        large_cluster_size_threshold,
        unhealthy_zone_threshold,
    } = given;
    let number = |flag, number: f64| {
        if number.is_finite() { Ok(number) } else { Err(error(flag, "a number", number)) }
    };
    Ok(Limits {
        monitor_period: duration("node-monitor-period", &node_monitor_period)?.max(SHORTEST_MONITOR_PERIOD),
        monitor_grace_period: duration("node-monitor-grace-period", &node_monitor_grace_period)?,
        startup_grace_period: duration("node-startup-grace-period", &node_startup_grace_period)?,
        eviction_rate: number("node-eviction-rate", node_eviction_rate)?,
        secondary_eviction_rate: number("secondary-node-eviction-rate", secondary_node_eviction_rate)?,
        large_zone: usize::try_from(large_cluster_size_threshold.max(0)).unwrap_or(0),
        unhealthy_zone_threshold: number("unhealthy-zone-threshold", unhealthy_zone_threshold)?,
    })
}

/// How many keys a controller may sync at the same time.
fn most_workers(controller: &ControllerEntry) -> usize {
    // kube-controller-manager has a bound for these alone.
    let bounded = ["concurrent-service-endpoint-syncs", "mirroring-concurrent-service-endpoint-syncs"];
    if bounded.contains(&controller.flag) { 50 } else { MOST_WORKERS }
}

fn workers(given: &ControllerArgs) -> Result<Workers, ConfigError> {
    let mut workers = Workers::default();
    for controller in CONTROLLERS {
        let count = given.workers_of(controller);
        let most = most_workers(controller);
        if !(1..=most).contains(&count) {
            return Err(error(controller.flag, format!("a number from 1 to {most}"), count));
        }
        if count != controller.workers {
            workers.0.insert(controller.name, count);
        }
    }
    Ok(workers)
}

/// Reads `--controllers` by upstream's rules: a controller runs if its name is there; it does not if
/// `-name` is; else it runs if `*` is there and it is on by default. The first mention of a name counts, and the
/// order of `*` does not matter. On a test bed all are on by default.
fn enabled(given: &[String], test_bed: bool) -> Result<Enabled, ConfigError> {
    let without_sign = |item: &str| item.strip_prefix('-').unwrap_or(item).to_owned();
    for item in given {
        if item != "*" && !CONTROLLERS.iter().any(|known| known.is_called(&without_sign(item))) {
            let names = CONTROLLERS.map(|known| known.name).join(", ");
            let allowed = format!("a list of *, {names}, and of these with a - in front");
            return Err(error("controllers", allowed, format!("{item:?}")));
        }
    }
    let all = given.iter().any(|item| item == "*");
    let runs = |known: &&&ControllerEntry| {
        let mention = given.iter().find(|item| known.is_called(&without_sign(item)));
        mention.map_or(all && (known.is_on_by_default || test_bed), |item| !item.starts_with('-'))
    };
    let off: BTreeSet<&'static str> =
        CONTROLLERS.iter().filter(|known| !runs(known)).map(|known| known.name).collect();
    if off.len() == CONTROLLERS.len() {
        let given = given.join(",");
        return Err(contradiction(format!("--controllers={given} leaves no controller to run")));
    }
    Ok(Enabled { off })
}

/// The rate limit as client-go reads the two flags.
fn rate(qps: f64, burst: i32) -> Result<(f64, u32), ConfigError> {
    if !qps.is_finite() {
        return Err(error("kube-api-qps", "a number", qps));
    }
    let (default_qps, default_burst) = CLIENT_GO_RATE;
    let qps = if qps == 0.0 { default_qps } else { qps };
    match u32::try_from(burst) {
        Ok(0) => Ok((qps, default_burst)),
        Ok(burst) => Ok((qps, burst)),
        Err(_) if qps < 0.0 => Ok((qps, default_burst)),
        // No request would ever pass.
        Err(_) => Err(error("kube-api-burst", "at least 1, or 0 for 10", burst)),
    }
}

/// `--min-resync-period` as client-go reads it; `None` = never.
fn resync_period(given: &str) -> Result<Option<Duration>, ConfigError> {
    if let Some(positive) = given.strip_prefix('-') {
        return duration("min-resync-period", positive).map(|_| None);
    }
    let period = duration("min-resync-period", given)?;
    Ok((!period.is_zero()).then_some(period.max(SHORTEST_RESYNC)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(list: &str) -> BTreeSet<&'static str> {
        let given: Vec<String> = list.split(',').map(str::to_owned).collect();
        let enabled = enabled(&given, false).unwrap();
        CONTROLLERS.iter().filter(|known| enabled.runs(known)).map(|known| known.short_name()).collect()
    }

    /// The controllers that are on by default, without and with these.
    fn defaults(without: &[&str], with: &[&'static str]) -> BTreeSet<&'static str> {
        let all = CONTROLLERS.iter().filter(|known| known.is_on_by_default).map(|known| known.short_name());
        all.filter(|name| !without.contains(name)).chain(with.iter().copied()).collect()
    }

    #[test]
    fn controllers_are_chosen_as_upstream_does() {
        assert_eq!(chosen("*"), defaults(&[], &[]));
        assert_eq!(chosen("*,-deployment-controller"), defaults(&["deployment"], &[]));
        assert_eq!(chosen("-deployment,*"), defaults(&["deployment"], &[]));
        assert_eq!(chosen("deployment"), ["deployment"].into());
        let two = ["replicaset", "replicationcontroller"].into();
        assert_eq!(chosen("replicaset,replicationcontroller-controller"), two);
        assert_eq!(chosen("replicaset,-replicaset"), ["replicaset"].into());
        let without = defaults(&["replicationcontroller"], &[]);
        assert_eq!(chosen("*,-replicationcontroller,replicationcontroller"), without);
        assert_eq!(chosen("daemonset"), ["daemonset"].into());
        assert_eq!(chosen("*,-daemonset-controller"), defaults(&["daemonset"], &[]));
    }

    #[test]
    fn what_is_off_by_default_runs_by_its_name_only() {
        let off = CONTROLLERS.iter().filter(|known| !known.is_on_by_default);
        for name in off.clone().map(|known| known.short_name()) {
            assert!(!chosen("*").contains(name), "{name}");
            assert_eq!(chosen(&format!("*,{name}")), defaults(&[], &[name]));
            assert_eq!(chosen(name), [name].into());
        }
        assert!(off.clone().all(|known| !Enabled::default().runs(known) && Enabled::all().runs(known)));
        assert!(off.clone().all(|known| Enabled::default().with(known.name).runs(known)));
    }

    #[test]
    fn an_unknown_controller_is_refused_with_the_known_ones() {
        let error = enabled(&["-node-ipam".into()], false).unwrap_err().to_string();
        for controller in CONTROLLERS {
            assert!(error.contains(controller.name), "{error}");
        }
    }
}
