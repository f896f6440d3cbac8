//! The counts of the metrics of Jobs.

use std::collections::BTreeMap;
use std::time::Duration;

use super::JobController;
use crate::engine::controller::Executed;
use crate::model::{JobStatus, Phase, Pod};
use crate::plan::job::status::Outcome;
use crate::plan::job::{Observed, Plan, tally};
use crate::runtime::store::Change;

impl JobController {
    /// A sync has executed its plan.
    pub(super) fn measure_sync(&self, observed: &Observed<'_>, plan: &Plan, executed: &Executed<Outcome>) {
        if observed.job.is_finished() {
            return;
        }
        let metrics = &self.context.metrics.jobs;
        let result = if executed.error().is_some() { "error" } else { "success" };
        let labels = [observed.job.completion_mode.name(), result, tally::action(plan)];
        let took = self.context.now().duration_since(observed.now);
        let took = Duration::try_from(took).unwrap_or_default();
        metrics.syncs.with_label_values(&labels).inc();
        metrics.sync_duration.with_label_values(&labels).observe(took.as_secs_f64());
        let Outcome { created, not_created, untracked, .. } = executed.outcome();
        self.measure_handled(tally::ignored(observed, untracked));
        let cause = tally::cause_of_creation(observed, plan);
        for (status, count) in [("succeeded", *created), ("failed", *not_created)] {
            if count > 0 {
                let count = u64::try_from(count).unwrap_or(u64::MAX);
                metrics.pods_created.with_label_values(&[cause, status]).inc_by(count);
            }
        }
    }

    fn measure_handled(&self, by_action: BTreeMap<&'static str, u64>) {
        for (action, count) in by_action {
            self.context.metrics.jobs.failures_handled.with_label_values(&[action]).inc_by(count);
        }
    }

    /// A status is written.
    pub(super) fn measure_status(&self, observed: &Observed<'_>, settled: &JobStatus) {
        let metrics = &self.context.metrics.jobs;
        let job = observed.job;
        let mode = job.completion_mode.name();
        let tally = tally::of_status(job, settled);
        let limit = if job.backoff_limit_per_index.is_some() { "perIndex" } else { "global" };
        for (result, pods, indexes) in [
            ("succeeded", tally.succeeded, tally.indexes_succeeded),
            ("failed", tally.failed, tally.indexes_failed),
        ] {
            metrics.pods_finished.with_label_values(&[mode, result]).inc_by(pods);
            if job.is_indexed() {
                metrics.indexes_finished.with_label_values(&[result, limit]).inc_by(indexes);
            }
        }
        if let Some((is_success, reason)) = tally.finished {
            let result = if is_success { "succeeded" } else { "failed" };
            metrics.finished.with_label_values(&[mode, result, reason]).inc();
        }
        self.measure_handled(tally::handled(observed, settled));
    }

    /// A pod has changed: whether it ended with the finalizer, or lost it.
    pub(super) fn measure_pod(&self, change: &Change<Pod>) {
        let is_tracked = |pod: &Pod| {
            matches!(pod.phase, Phase::Succeeded | Phase::Failed)
                && pod.job.as_ref().is_some_and(|part| part.has_finalizer)
        };
        let (before, after) = match change {
            Change::Added(pod) => (false, is_tracked(pod)),
            Change::Updated { old, new } => (is_tracked(old), is_tracked(new)),
            Change::Deleted(pod) => (is_tracked(pod), false),
        };
        if before != after {
            let event = if after { "add" } else { "delete" };
            self.context.metrics.jobs.tracked_pods.with_label_values(&[event]).inc();
        }
    }
}
