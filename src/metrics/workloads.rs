//! The metrics of rollouts and pods. kube-controller-manager has none of either.

use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

use super::catalogue::Catalogue;

/// Half a second to six hours. Most rollouts take minutes; one that waits for a person takes longer.
const ROLLOUT_BUCKETS: &[f64] = &[
    0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0, 21600.0,
];

/// A minute to a week: a hold waits for a time or for a person.
const HOLD_BUCKETS: &[f64] =
    &[60.0, 300.0, 600.0, 1800.0, 3600.0, 14400.0, 43200.0, 86400.0, 259_200.0, 604_800.0];

/// Upstream's buckets of `replicaset_controller_sorting_deletion_age_ratio`.
const AGE_RATIO_BUCKETS: &[f64] = &[0.25, 0.5, 1.0, 2.0, 4.0, 8.0];

/// Upstream's buckets of `cronjob_controller_job_creation_skew_duration_seconds`.
const SKEW_BUCKETS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];

/// Upstream's buckets of `ttl_after_finished_controller_job_deletion_duration_seconds`.
const TTL_BUCKETS: &[f64] =
    &[0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 102.4, 204.8, 409.6, 819.2];

/// Rollouts, pods, and writes by other controllers.
pub struct WorkloadMetrics {
    /// Rollouts begun.
    pub rollouts_started: IntCounter,
    /// Rollouts that have succeeded.
    pub rollouts_finished: IntCounter,
    /// How often a rollout became stuck, `{reason}`: that of the condition.
    pub rollouts_failed: IntCounterVec,
    /// Rollouts that are stuck now, `{reason}`.
    pub rollouts_stuck: IntGaugeVec,
    /// Seconds from the beginning of a rollout to its end.
    pub rollout_duration: Histogram,
    /// Seconds from the creation of a ReplicaSet to its first available pod.
    pub first_available: Histogram,
    /// Rollouts that their policy holds now, `{reason}`.
    pub rollouts_held: IntGaugeVec,
    /// Seconds that a step held a rollout, `{kind}`: manual or timed.
    pub rollout_hold: HistogramVec,
    /// Failures of rollouts under a policy, `{action, cause}`.
    pub rollout_verdicts: IntCounterVec,
    /// Deployments whose policy is bypassed now.
    pub rollout_bypasses: IntGauge,
    /// Old pods that made room for a new one that fitted no node.
    pub terminated_first: IntCounter,

    /// Rolling updates of ReplicationControllers begun.
    pub rolling_updates_started: IntCounter,
    /// Those that were completed.
    pub rolling_updates_finished: IntCounter,
    /// How often one was refused, taken back, stopped, or late, `{reason}`: that of the condition.
    pub rolling_updates_failed: IntCounterVec,

    /// Pods created.
    pub pods_created: IntCounter,
    /// Pods deleted by us.
    pub pods_deleted: IntCounter,
    /// Pods that have failed.
    pub pods_failed: IntCounter,
    /// Failed pods that were deleted because `windlass.dev/keep-failed-pods` keeps no more.
    pub failed_pods_deleted: IntCounter,
    /// The age of each pod chosen for deletion over that of the youngest pod of its ReplicaSet, in floats;
    /// upstream's (`reportSortingDeletionAgeRatioMetric`). Logarithmic scale-down keeps it below 2.
    pub deletion_age_ratio: Histogram,

    /// Nodes on which pods of a DaemonSet failed recently, of all DaemonSets together.
    pub daemonset_nodes_backing_off: IntGauge,
    /// How many verdicts of DaemonSets on nodes were computed.
    pub daemonset_verdicts: IntCounter,

    /// Seconds from the time of a schedule to the creation of its Job; upstream's.
    pub cronjob_creation_skew: Histogram,
    /// Seconds from the expiry of a finished Job to its deletion; upstream's.
    pub ttl_deletion_duration: Histogram,
    /// Seconds since the start of the oldest Job of a schedule that is not finished.
    pub cronjob_oldest_run: IntGauge,

    /// Namespaces that are being deleted, `{reason}`: what they wait for.
    pub namespaces_terminating: IntGaugeVec,
    /// Namespaces that were empty and lost their token.
    pub namespaces_finalized: IntCounter,

    /// Bytes that the explanations of plans take.
    pub explanations_bytes: IntGauge,

    /// Status writes by another controller, `{resource}`.
    pub foreign_writes: IntCounterVec,
}

impl WorkloadMetrics {
    pub(super) fn new(catalogue: &Catalogue<'_>) -> Self {
        WorkloadMetrics {
            rollouts_started: catalogue.counter(
                "windlass_rollouts_started_total",
                "Rollouts started: a ReplicaSet was created for a new template, or found for an earlier one.",
            ),
            rollouts_finished: catalogue.counter(
                "windlass_rollouts_finished_total",
                "Rollouts that completed: all pods are updated and available.",
            ),
            rollouts_failed: catalogue.counters(
                "windlass_rollouts_failed_total",
                "Times that a rollout became stuck, by the reason of its condition.",
                &["reason"],
            ),
            rollouts_stuck: catalogue.gauges(
                "windlass_rollouts_stuck",
                "Rollouts that are stuck now, by the reason of their condition.",
                &["reason"],
            ),
            rollout_duration: catalogue.histogram(
                "windlass_rollout_duration_seconds",
                "Time from the start of a rollout to its completion.",
                ROLLOUT_BUCKETS,
            ),
            first_available: catalogue.histogram(
                "windlass_rollout_first_available_seconds",
                "Time from the start of a rollout to its first available updated pod.",
                ROLLOUT_BUCKETS,
            ),
            rollouts_held: catalogue.gauges(
                "windlass_rollouts_held",
                "Rollouts that their policy holds now, by what they wait for.",
                &["reason"],
            ),
            rollout_hold: catalogue.histograms(
                "windlass_rollout_hold_seconds",
                "Time that a step of a policy held a rollout, by whether it waited for an approval or for a time.",
                &["kind"],
                HOLD_BUCKETS,
            ),
            rollout_verdicts: catalogue.counters(
                "windlass_rollout_verdicts_total",
                "Failures of rollouts under a policy, by what followed and by cause. A rollback counts besides its halt.",
                &["action", "cause"],
            ),
            rollout_bypasses: catalogue.gauge(
                "windlass_rollout_bypasses",
                "Deployments whose steps and batch delays are bypassed now.",
            ),
            terminated_first: catalogue.counter(
                "windlass_terminated_first_total",
                "Old pods deleted before a new one was available, because it fitted no node.",
            ),
            rolling_updates_started: catalogue.counter(
                "windlass_rolling_updates_started_total",
                "Rolling updates of ReplicationControllers started at the request of an annotation.",
            ),
            rolling_updates_finished: catalogue.counter(
                "windlass_rolling_updates_finished_total",
                "Rolling updates of ReplicationControllers that completed.",
            ),
            rolling_updates_failed: catalogue.counters(
                "windlass_rolling_updates_failed_total",
                "Rolling updates of ReplicationControllers that were refused, rolled back, stopped, or made no progress in time, by the reason of their condition.",
                &["reason"],
            ),
            pods_created: catalogue.counter("windlass_pods_created_total", "Pods created."),
            pods_deleted: catalogue.counter("windlass_pods_deleted_total", "Pods deleted by Windlass."),
            failed_pods_deleted: catalogue.counter(
                "windlass_failed_pods_deleted_total",
                "Failed pods deleted because the annotation windlass.dev/keep-failed-pods keeps no more.",
            ),
            pods_failed: catalogue.counter("windlass_pods_failed_total", "Pods whose phase became Failed."),
            deletion_age_ratio: catalogue.histogram(
                "replicaset_controller_sorting_deletion_age_ratio",
                "Ratio of the age of each pod chosen for deletion to that of the youngest pod.",
                AGE_RATIO_BUCKETS,
            ),
            daemonset_nodes_backing_off: catalogue.gauge(
                "windlass_daemonset_nodes_backing_off",
                "Nodes on which a failed DaemonSet pod was replaced in the last half an hour, summed over all DaemonSets.",
            ),
            daemonset_verdicts: catalogue.counter(
                "windlass_daemonset_verdicts_total",
                "Evaluations of whether a DaemonSet runs on a node. A node heartbeat causes none.",
            ),
            cronjob_creation_skew: catalogue.histogram(
                "cronjob_controller_job_creation_skew_duration_seconds",
                "Time from the scheduled time of a Job to its creation.",
                SKEW_BUCKETS,
            ),
            ttl_deletion_duration: catalogue.histogram(
                "ttl_after_finished_controller_job_deletion_duration_seconds",
                "Time from the expiry of a finished Job to its deletion.",
                TTL_BUCKETS,
            ),
            cronjob_oldest_run: catalogue.gauge(
                "windlass_cronjob_oldest_run_seconds",
                "Age of the oldest unfinished Job that a CronJob created, 0 without one.",
            ),
            namespaces_terminating: catalogue.gauges(
                "windlass_namespaces_terminating",
                "Namespaces that are being deleted, by what they wait for: content, errors, discovery or delay.",
                &["reason"],
            ),
            namespaces_finalized: catalogue.counter(
                "windlass_namespaces_finalized_total",
                "Namespaces that were emptied and finalized.",
            ),
            explanations_bytes: catalogue.gauge(
                "windlass_explanations_bytes",
                "Approximate memory of the explanations at /debug/deployments, /debug/daemonsets, /debug/statefulsets, /debug/jobs, /debug/cronjobs and /debug/resourcequotas, at most 16 MiB.",
            ),
            foreign_writes: catalogue.counters(
                "windlass_foreign_writes_total",
                "Status writes by another controller that acts on the same objects.",
                &["resource"],
            ),
        }
    }
}
