//! The metrics of Jobs, under upstream's names (`pkg/controller/job/metrics`).

use prometheus::{HistogramVec, IntCounterVec};

use super::catalogue::Catalogue;

/// Upstream's buckets of `job_controller_job_sync_duration_seconds`.
const SYNC_BUCKETS: &[f64] = &[
    0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384, 32.768,
    65.536,
];

/// The metrics of Jobs.
pub struct JobMetrics {
    /// Seconds from the decision of a sync to the end of its writes to pods, `{completion_mode, result, action}`.
    pub sync_duration: HistogramVec,
    /// Syncs, `{completion_mode, result, action}`.
    pub syncs: IntCounterVec,
    /// Jobs that finished, `{completion_mode, result, reason}`.
    pub finished: IntCounterVec,
    /// Pods that were counted, `{completion_mode, result}`.
    pub pods_finished: IntCounterVec,
    /// Failed pods that a rule of the failure policy matched, `{action}`.
    pub failures_handled: IntCounterVec,
    /// Ended pods that came to have the finalizer, or lost it, `{event}`.
    pub tracked_pods: IntCounterVec,
    /// Indexes that ended, `{status, backoffLimit}`.
    pub indexes_finished: IntCounterVec,
    /// Pods that were created, or refused, `{reason, status}`.
    pub pods_created: IntCounterVec,
    /// Jobs that another controller manages, `{controller_name}`.
    pub managed_elsewhere: IntCounterVec,
}

impl JobMetrics {
    pub(super) fn new(catalogue: &Catalogue<'_>) -> Self {
        let sync = ["completion_mode", "result", "action"];
        JobMetrics {
            sync_duration: catalogue.histograms(
                "job_controller_job_sync_duration_seconds",
                "Time from the decision of a sync of a Job to the end of its writes to pods.",
                &sync,
                SYNC_BUCKETS,
            ),
            syncs: catalogue.counters("job_controller_job_syncs_total", "Syncs of Jobs.", &sync),
            finished: catalogue.counters(
                "job_controller_jobs_finished_total",
                "Jobs that finished, by the reason of their last condition.",
                &["completion_mode", "result", "reason"],
            ),
            pods_finished: catalogue.counters(
                "job_controller_job_pods_finished_total",
                "Pods of Jobs that ended and were counted; of an Indexed Job indexes that succeeded.",
                &["completion_mode", "result"],
            ),
            failures_handled: catalogue.counters(
                "job_controller_pod_failures_handled_by_failure_policy_total",
                "Failed pods of Jobs that a rule of the failure policy matched, by its action.",
                &["action"],
            ),
            tracked_pods: catalogue.counters(
                "job_controller_terminated_pods_tracking_finalizer_total",
                "Ended pods that came to have the finalizer of Jobs (add), and those that lost it (delete).",
                &["event"],
            ),
            indexes_finished: catalogue.counters(
                "job_controller_job_finished_indexes_total",
                "Indexes of Jobs that ended, by whether the Job has a limit of failures per index.",
                &["status", "backoffLimit"],
            ),
            pods_created: catalogue.counters(
                "job_controller_job_pods_creation_total",
                "Pods of Jobs whose creation succeeded or failed, by what they replace.",
                &["reason", "status"],
            ),
            managed_elsewhere: catalogue.counters(
                "job_controller_jobs_by_external_controller_total",
                "Jobs that another controller manages, by its name.",
                &["controller_name"],
            ),
        }
    }
}
