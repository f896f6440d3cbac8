//! Metrics, under the names that kube-controller-manager's dashboards and alerts already use.
//!
//! The one guarantee: a [`Metrics`] is a value with a registry of its own, so two daemons (or two tests)
//! in one process never share a counter. What has no name upstream begins with `windlass_`. No label has
//! values that a user can choose without bound: no namespaces, no names, no messages.

pub mod bounded;
mod catalogue;
mod endpoint_slice_mirroring;
mod endpoint_slices;
mod garbage;
mod jobs;
mod nodes;
#[cfg(target_os = "linux")]
mod process;
mod quotas;
mod workloads;

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus::{Encoder, Gauge, GaugeVec, HistogramVec, IntCounterVec, IntGaugeVec, Registry, TextEncoder};

use catalogue::Catalogue;
pub use catalogue::{Described, Kind};
pub use endpoint_slice_mirroring::EndpointSliceMirroringMetrics;
pub use endpoint_slices::EndpointSliceMetrics;
pub use garbage::GarbageMetrics;
pub use jobs::JobMetrics;
pub use nodes::NodeMetrics;
pub use quotas::QuotaMetrics;
pub use workloads::WorkloadMetrics;

/// Upstream's buckets of the work queue's histograms, in seconds: ten, each ten times the last.
///
/// Literals, because computing them prints `0.000009999999999999999`, which is another series to a
/// dashboard than `0.00001`.
const QUEUE_BUCKETS: &[f64] = &[1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0];

/// Upstream's buckets of the REST client's histograms, in seconds.
const REST_BUCKETS: &[f64] = &[0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];

/// Upstream's buckets of the syncs of the publisher of the CA's certificate, in seconds.
const ROOT_CA_BUCKETS: &[f64] = &[
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384,
];

/// Upstream's buckets of the sizes of requests and answers, in bytes.
const SIZE_BUCKETS: &[f64] =
    &[64.0, 256.0, 512.0, 1024.0, 4096.0, 16384.0, 65536.0, 262144.0, 1048576.0, 4194304.0, 16777216.0];

/// Generates the struct and its constructor from one table: each row is a field, its name, its help, its labels and,
/// for a histogram, its buckets.
macro_rules! metrics {
    ($($(#[$doc:meta])* $field:ident: $type:ty =
        $make:ident($name:literal, $help:literal, $labels:expr $(, $buckets:ident)?);)*) => {
        /// All metrics of the daemon.
        ///
        /// The fields are public so that a component takes the child that it needs once and keeps it: a cached child
        /// costs two nanoseconds per use, a look-up by labels twelve.
        pub struct Metrics {
            registry: Registry,
            described: Vec<Described>,
            before_render: Mutex<Vec<Refresh>>,
            /// Rollouts, pods, and writes by other controllers.
            pub workloads: WorkloadMetrics,
            /// The garbage collector.
            pub garbage: GarbageMetrics,
            /// Jobs.
            pub jobs: JobMetrics,
            /// EndpointSlices.
            pub endpoint_slices: EndpointSliceMetrics,
            /// Quotas.
            pub quotas: QuotaMetrics,
            /// EndpointSlices that mirror Endpoints.
            pub mirroring: EndpointSliceMirroringMetrics,
            /// Nodes, and evictions by their taints.
            pub nodes: NodeMetrics,
            $($(#[$doc])* pub $field: $type,)*
        }

        impl Metrics {
            /// All metrics at zero, in a registry of their own, with the process metrics where there are any.
            pub fn new() -> Arc<Metrics> {
                let registry = Registry::new();
                measure_the_process(&registry);
                let catalogue = Catalogue::new(&registry);
                $(let $field = catalogue.$make($name, $help, &$labels $(, $buckets)?);)*
                let workloads = WorkloadMetrics::new(&catalogue);
                let garbage = GarbageMetrics::new(&catalogue);
                let jobs = JobMetrics::new(&catalogue);
                let endpoint_slices = EndpointSliceMetrics::new(&catalogue);
                let quotas = QuotaMetrics::new(&catalogue);
                let mirroring = EndpointSliceMirroringMetrics::new(&catalogue);
                let nodes = NodeMetrics::new(&catalogue);
                catalogue.build_info();
                let described = catalogue.described();
                Arc::new(Metrics {
                    described, before_render: Mutex::default(), registry, workloads, garbage, jobs, endpoint_slices,
                    quotas,
                    mirroring,
                    nodes,
                    $($field),*
                })
            }
        }
    };
}

metrics! {
    /// Keys that wait in a queue for a worker, `{name}`.
    workqueue_depth: IntGaugeVec = gauges(
        "workqueue_depth",
        "Keys waiting for a worker.",
        ["name"]
    );
    /// Keys added to a queue, `{name}`; an addition of a key that already waits does not count.
    workqueue_adds: IntCounterVec = counters(
        "workqueue_adds_total",
        "Keys added to the queue.",
        ["name"]
    );
    /// Seconds from a key's addition to its start, `{name}`.
    workqueue_queue_duration: HistogramVec = histograms(
        "workqueue_queue_duration_seconds",
        "Time from the addition of a key to the start of its sync.",
        ["name"], QUEUE_BUCKETS
    );
    /// Seconds that one sync took, `{name}`.
    workqueue_work_duration: HistogramVec = histograms(
        "workqueue_work_duration_seconds",
        "Duration of a sync.",
        ["name"], QUEUE_BUCKETS
    );
    /// Seconds that the running syncs have taken until now, in total, `{name}`.
    workqueue_unfinished_work: GaugeVec = float_gauges(
        "workqueue_unfinished_work_seconds",
        "Total time that the running syncs have taken so far.",
        ["name"]
    );
    /// Seconds that the longest running sync has taken until now, `{name}`.
    workqueue_longest_running: GaugeVec = float_gauges(
        "workqueue_longest_running_processor_seconds",
        "Time that the longest running sync has taken so far.",
        ["name"]
    );
    /// Keys put back because their sync failed, `{name}`.
    workqueue_retries: IntCounterVec = counters(
        "workqueue_retries_total",
        "Keys added again after a failed sync.",
        ["name"]
    );
    /// Keys whose last sync failed, `{name}`.
    workqueue_in_backoff: IntGaugeVec = gauges(
        "windlass_workqueue_keys_in_backoff",
        "Keys whose last sync failed.",
        ["name"]
    );
    /// Failed syncs, `{name, reason}`; the reason is the error's label, or `panic`.
    sync_errors: IntCounterVec = counters(
        "windlass_sync_errors_total",
        "Failed syncs by queue and reason.",
        ["name", "reason"]
    );

    /// Namespaces into which the certificate of the CA was published, `{code}`: that of the API server's answer, 200
    /// if nothing was to be done, 500 without an answer. Upstream's.
    root_ca_syncs: IntCounterVec = counters(
        "root_ca_cert_publisher_sync_total",
        "Namespaces into which the certificate of the CA was published, by the code of the answer.",
        ["code"]
    );
    /// Seconds that it took, `{code}` as above. Upstream's.
    root_ca_sync_duration: HistogramVec = histograms(
        "root_ca_cert_publisher_sync_duration_seconds",
        "Time to publish the certificate of the CA into a namespace, by the code of the answer.",
        ["code"], ROOT_CA_BUCKETS
    );
    /// Answers of the API server, `{code, method, host}`; `<error>` where there was none.
    rest_requests: IntCounterVec = counters(
        "rest_client_requests_total",
        "Requests to the API server by status code, method and host.",
        ["code", "method", "host"]
    );
    /// Those of them that were answers to repetitions, `{code, verb, host}`.
    rest_retries: IntCounterVec = counters(
        "rest_client_request_retries_total",
        "Requests that were sent again because the API server asked to wait, by status code, verb and host.",
        ["code", "verb", "host"]
    );
    /// Seconds that requests took, `{verb, host}`, without the wait in the rate limiter.
    rest_duration: HistogramVec = histograms(
        "rest_client_request_duration_seconds",
        "Duration of requests to the API server.",
        ["verb", "host"], REST_BUCKETS
    );
    /// Seconds that requests waited in the rate limiter, `{verb, host}`.
    rest_limiter_duration: HistogramVec = histograms(
        "rest_client_rate_limiter_duration_seconds",
        "Time that requests waited in the client-side rate limiter.",
        ["verb", "host"], REST_BUCKETS
    );
    /// Bytes of requests' bodies, `{verb, host}`.
    rest_request_size: HistogramVec = histograms(
        "rest_client_request_size_bytes",
        "Size of request bodies sent to the API server.",
        ["verb", "host"], SIZE_BUCKETS
    );
    /// Bytes of answers' bodies, `{verb, host}`; a watch has none, since it has no end.
    rest_response_size: HistogramVec = histograms(
        "rest_client_response_size_bytes",
        "Size of response bodies of the API server, without watches.",
        ["verb", "host"], SIZE_BUCKETS
    );

    /// The resourceVersion that a cache has reached, `{name, group, version, resource}`: its 15 least
    /// significant digits, which a double holds exactly.
    informer_resource_version: IntGaugeVec = gauges(
        "informer_store_resource_version",
        "The 15 least significant digits of the resourceVersion that the cache has reached.",
        ["name", "group", "version", "resource"]
    );
    /// Objects in a cache, `{group, resource}`.
    informer_objects: IntGaugeVec = gauges(
        "windlass_informer_objects",
        "Objects in the cache.",
        ["group", "resource"]
    );
    /// Bytes of heap that the objects in a cache take, about, `{group, resource}`.
    informer_bytes: IntGaugeVec = gauges(
        "windlass_informer_bytes",
        "Approximate heap of the objects in the cache, in bytes.",
        ["group", "resource"]
    );
    /// Complete lists, `{group, resource}`; the first one included.
    informer_lists: IntCounterVec = counters(
        "windlass_informer_lists_total",
        "Completed lists, the first one included.",
        ["group", "resource"]
    );
    /// Breaks of a list or watch, `{group, resource, reason}`.
    informer_breaks: IntCounterVec = counters(
        "windlass_informer_breaks_total",
        "Lists and watches that ended early, by reason.",
        ["group", "resource", "reason"]
    );
    /// Objects that could not be decoded and were skipped, `{group, resource}`.
    informer_undecodable: IntCounterVec = counters(
        "windlass_informer_undecodable_objects_total",
        "Objects that could not be decoded; the cache keeps their last readable state.",
        ["group", "resource"]
    );

    /// Syncs skipped because a cache had not caught up with our own writes, `{group, resource}`; the
    /// ReplicaSet controller's.
    replicaset_stale_skips: IntCounterVec = counters(
        "replicaset_controller_stale_sync_skips_total",
        "Syncs of ReplicaSets and ReplicationControllers skipped because a cache was older than Windlass' own writes.",
        ["group", "resource"]
    );
    /// The same for the Deployment controller, which upstream does not protect.
    deployment_stale_skips: IntCounterVec = counters(
        "deployment_controller_stale_sync_skips_total",
        "Syncs of Deployments skipped because a cache was older than Windlass' own writes.",
        ["group", "resource"]
    );
    /// The same for the DaemonSet controller.
    daemonset_stale_skips: IntCounterVec = counters(
        "daemonset_controller_stale_sync_skips_total",
        "Syncs of DaemonSets skipped because a cache was older than Windlass' own writes.",
        ["group", "resource"]
    );
    /// The same for the StatefulSet controller, by upstream's name of 1.37.
    statefulset_stale_skips: IntCounterVec = counters(
        "statefulset_controller_stale_sync_skips_total",
        "Syncs of StatefulSets skipped because a cache was older than Windlass' own writes.",
        ["group", "resource"]
    );
    /// The same for the Job controller, by upstream's name.
    job_stale_skips: IntCounterVec = counters(
        "job_controller_stale_sync_skips_total",
        "Syncs of Jobs skipped because a cache was older than Windlass' own writes.",
        ["group", "resource"]
    );
    /// The same for the CronJob controller.
    cronjob_stale_skips: IntCounterVec = counters(
        "cronjob_controller_stale_sync_skips_total",
        "Syncs of CronJobs skipped because a cache was older than Windlass' own writes.",
        ["group", "resource"]
    );
    /// Pods that the pod garbage collector has deleted, `{namespace, reason}`; upstream's.
    pod_gc_deletions: IntCounterVec = counters(
        "pod_gc_collector_force_delete_pods_total",
        "Pods deleted by the pod garbage collector. The first 100 namespaces have labels of their own.",
        ["namespace", "reason"]
    );
    /// Failures of that, `{namespace, reason}`; upstream's.
    pod_gc_errors: IntCounterVec = counters(
        "pod_gc_collector_force_delete_pod_errors_total",
        "Deletions by the pod garbage collector that failed.",
        ["namespace", "reason"]
    );
    /// Waits for a cache that took longer than the safety net allows, `{group, resource}`.
    expectations_expired: IntCounterVec = counters(
        "windlass_expectations_expired_total",
        "Cache waits that exceeded 5 minutes and forced a relist.",
        ["group", "resource"]
    );

    /// 1 while this process leads, 0 while it stands by, `{name}`: that of the Lease.
    leader_election_master_status: IntGaugeVec = gauges(
        "leader_election_master_status",
        "1 while this process leads, 0 while it stands by.",
        ["name"]
    );
    /// Renewals that had to read the Lease first, `{name}`.
    leader_election_slowpath: IntCounterVec = counters(
        "leader_election_slowpath_total",
        "Renewals that had to read the Lease first.",
        ["name"]
    );

    /// Events written, `{type, verb}`.
    events_written: IntCounterVec = counters(
        "windlass_events_written_total",
        "Events written.",
        ["type", "verb"]
    );
    /// Events that were not written, `{reason}`.
    events_dropped: IntCounterVec = counters(
        "windlass_events_dropped_total",
        "Events that were not written, by reason.",
        ["reason"]
    );

    /// 1 for each controller that runs, `{name, manager}`.
    running_controllers: IntGaugeVec = gauges(
        "running_managed_controllers",
        "1 for each running controller.",
        ["name", "manager"]
    );
}

/// Adds the metrics of the process, where the platform has any.
fn measure_the_process(registry: &Registry) {
    #[cfg(target_os = "linux")]
    if let Err(error) = process::Process::new().and_then(|process| registry.register(Box::new(process))) {
        tracing::warn!(%error, "process metrics are not available");
    }
    #[cfg(not(target_os = "linux"))]
    let _none = registry;
}

/// Updates gauges; `false` means that the measured object is gone.
type Refresh = Box<dyn Fn() -> bool + Send + Sync>;

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    /// The registry, for a component with a collector of its own.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Every metric of ours, by name: also unused ones, which a scrape does not show.
    pub fn described(&self) -> &[Described] {
        &self.described
    }

    /// Registers `refresh`, called before each rendering to update gauges: a value that is measured on demand
    /// costs nothing between scrapes. It is dropped once it returns `false`.
    pub fn before_render(&self, refresh: impl Fn() -> bool + Send + Sync + 'static) {
        self.before_render.lock().push(Box::new(refresh));
    }

    /// All metrics in Prometheus' text format, version 0.0.4.
    pub fn render(&self) -> String {
        self.before_render.lock().retain(|refresh| refresh());
        let mut text = Vec::new();
        if let Err(error) = TextEncoder::new().encode(&self.registry.gather(), &mut text) {
            tracing::error!(%error, "could not render the metrics");
        }
        String::from_utf8_lossy(&text).into_owned()
    }
}

/// Sets a gauge from an unsigned number, clamped.
pub fn set_gauge(gauge: &prometheus::IntGauge, value: usize) {
    gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
}

/// A number for a histogram, clamped.
pub(crate) fn count(value: usize) -> f64 {
    f64::from(u32::try_from(value).unwrap_or(u32::MAX))
}

/// Sets a gauge of seconds.
pub fn set_seconds(gauge: &Gauge, value: std::time::Duration) {
    gauge.set(value.as_secs_f64());
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn two_metrics_values_share_nothing() {
        let (one, other) = (Metrics::new(), Metrics::new());
        one.workqueue_adds.with_label_values(&["deployment"]).inc();
        assert!(one.render().contains("workqueue_adds_total{name=\"deployment\"} 1"));
        assert!(!other.render().contains("workqueue_adds_total"));
    }

    #[test]
    fn bucket_bounds_are_printed_as_dashboards_know_them() {
        let metrics = Metrics::new();
        metrics.workqueue_work_duration.with_label_values(&["x"]).observe(0.5);
        metrics.rest_duration.with_label_values(&["GET", "host"]).observe(0.5);
        let text = metrics.render();
        for bound in ["0.00000001", "0.00001", "0.001", "10"] {
            let line = format!("workqueue_work_duration_seconds_bucket{{name=\"x\",le=\"{bound}\"}}");
            assert!(text.contains(&line), "{line} is missing in\n{text}");
        }
        assert!(text.contains("verb=\"GET\",le=\"0.005\"") || text.contains("le=\"0.005\""), "{text}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_process_is_measured_as_well() {
        assert!(Metrics::new().render().contains("process_resident_memory_bytes"));
    }

    #[test]
    fn a_refresh_runs_at_each_rendering_until_its_subject_is_dropped() {
        let metrics = Metrics::new();
        let runs = Arc::new(AtomicUsize::new(0));
        let counted = runs.clone();
        metrics.before_render(move || counted.fetch_add(1, Ordering::Relaxed) == 0);
        for _ in 0..3 {
            metrics.render();
        }
        assert_eq!(runs.load(Ordering::Relaxed), 2);
    }
}
