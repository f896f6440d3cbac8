//! A Job, with its template as raw JSON.

mod policies;
mod status;

use std::sync::Arc;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::intern::Interner;
use super::meta::Meta;
use super::record::{self, Record, Resource};
use super::selector::{Selector, SelectorWire};
use super::template::Template;
use super::wire::{MetaWire, Text};
pub use policies::{FailureAction, FailureMatch, FailureRule, SuccessRule};
use policies::{FailurePolicyWire, SuccessPolicyWire};
use status::StatusWire;
pub use status::{Counted, JobStatus, Uncounted};

/// `spec.managedBy` of a Job that this controller reconciles; any other value but an absent one means another controller.
pub const OURSELVES: &str = "kubernetes.io/job-controller";

/// The annotation for the wait after the first failed pod, in seconds.
pub const BACKOFF_BASE: &str = "windlass.dev/backoff-base-seconds";

/// The annotation for the longest wait after failed pods, in seconds.
pub const BACKOFF_MAX: &str = "windlass.dev/backoff-max-seconds";

/// On a Job that a CronJob has created: the time of its schedule.
const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

/// The fields of a Job that the controllers use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Metadata.
    pub meta: Meta,
    /// `spec.parallelism`, at least 0; 1 when absent.
    pub parallelism: i32,
    /// `spec.completions`; `None` makes it a work queue.
    pub completions: Option<i32>,
    /// `spec.completionMode`.
    pub completion_mode: CompletionMode,
    /// `spec.backoffLimit`; 6 when absent.
    pub backoff_limit: i32,
    /// `spec.backoffLimitPerIndex`.
    pub backoff_limit_per_index: Option<i32>,
    /// `spec.maxFailedIndexes`.
    pub max_failed_indexes: Option<i32>,
    /// `spec.activeDeadlineSeconds`.
    pub active_deadline_seconds: Option<i64>,
    /// `spec.suspend`.
    pub is_suspended: bool,
    /// Whether only a pod that has ended is replaced, and not one that is being deleted: `podReplacementPolicy: Failed`, or
    /// any `podFailurePolicy`.
    pub replaces_failed_only: bool,
    /// `spec.podFailurePolicy.rules`; `None` without a policy.
    pub failure_policy: Option<Box<[FailureRule]>>,
    /// `spec.successPolicy.rules`; `None` without a policy.
    pub success_policy: Option<Box<[SuccessRule]>>,
    /// `spec.ttlSecondsAfterFinished`.
    pub ttl_seconds_after_finished: Option<i32>,
    /// `spec.managedBy`, unless it names this controller.
    pub managed_by: Option<Arc<str>>,
    /// `spec.selector`.
    pub selector: Selector,
    /// `spec.template`.
    pub template: Template,
    /// Whether the template's `restartPolicy` is `OnFailure`: then the kubelet restarts containers in place.
    pub restarts_in_place: bool,
    /// The annotations [`BACKOFF_BASE`] and [`BACKOFF_MAX`], in seconds.
    pub backoff_seconds: (Option<i32>, Option<i32>),
    /// Of these two one whose value is no number of seconds above 0.
    pub bad_annotation: Option<&'static str>,
    /// When the schedule of a CronJob was due, on a Job that it has created.
    pub scheduled: Option<Timestamp>,
    /// `status`.
    pub status: JobStatus,
}

/// `spec.completionMode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletionMode {
    /// Pods are alike.
    NonIndexed,
    /// Each pod has an index below `completions`.
    Indexed,
    /// Of a newer API server: no decision is made.
    Unknown,
}

impl CompletionMode {
    /// As it is written in a Job.
    pub fn name(self) -> &'static str {
        match self {
            CompletionMode::NonIndexed => "NonIndexed",
            CompletionMode::Indexed => "Indexed",
            CompletionMode::Unknown => "unknown",
        }
    }
}

impl Job {
    /// Whether its pods have indexes.
    pub fn is_indexed(&self) -> bool {
        self.completion_mode == CompletionMode::Indexed
    }

    /// Whether it is finished: Complete or Failed.
    pub fn is_finished(&self) -> bool {
        self.status.is_finished()
    }

    /// When it finished: the transition of Complete or Failed.
    pub fn finished_at(&self) -> Option<Timestamp> {
        let ended = |condition: &&super::Condition| matches!(&*condition.kind, "Complete" | "Failed");
        self.status.conditions.iter().filter(ended).find(|condition| condition.is_true())?.last_transition
    }
}

#[derive(Deserialize)]
struct JobWire<'a> {
    #[serde(borrow)]
    metadata: MetaWire<'a>,
    #[serde(borrow)]
    spec: SpecWire<'a>,
    #[serde(borrow, default)]
    status: Option<StatusWire<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SpecWire<'a> {
    #[serde(default)]
    parallelism: Option<i32>,
    #[serde(default)]
    completions: Option<i32>,
    #[serde(borrow, default)]
    completion_mode: Text<'a>,
    #[serde(default)]
    backoff_limit: Option<i32>,
    #[serde(default)]
    backoff_limit_per_index: Option<i32>,
    #[serde(default)]
    max_failed_indexes: Option<i32>,
    #[serde(default)]
    active_deadline_seconds: Option<i64>,
    #[serde(default)]
    suspend: Option<bool>,
    #[serde(borrow, default)]
    pod_replacement_policy: Text<'a>,
    #[serde(borrow, default)]
    pod_failure_policy: Option<FailurePolicyWire<'a>>,
    #[serde(borrow, default)]
    success_policy: Option<SuccessPolicyWire<'a>>,
    #[serde(default)]
    ttl_seconds_after_finished: Option<i32>,
    #[serde(borrow, default)]
    managed_by: Text<'a>,
    #[serde(borrow, default)]
    selector: Option<SelectorWire<'a>>,
    #[serde(borrow, default)]
    template: Option<&'a RawValue>,
}

/// The part of a template that a Job reads.
#[derive(Default, Deserialize)]
struct PodTemplateWire<'a> {
    #[serde(borrow, default)]
    spec: Option<PodSpecWire<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodSpecWire<'a> {
    #[serde(borrow, default)]
    restart_policy: Text<'a>,
}

impl Record for Job {
    const RESOURCE: Resource = Resource { group: "batch", version: "v1", kind: "Job", plural: "jobs" };
    const IS_OWNER: bool = true;

    fn decode(json: &str, interner: &mut Interner) -> Result<Self, serde_json::Error> {
        let JobWire { metadata, spec, status } = serde_json::from_str(json)?;
        let pods: PodTemplateWire<'_> = match spec.template {
            Some(template) => serde_json::from_str(template.get())?,
            None => PodTemplateWire::default(),
        };
        let managed_by = Some(spec.managed_by.as_str()).filter(|by| !matches!(*by, "" | OURSELVES));
        let mut bad_annotation = None;
        let mut seconds = |annotation| {
            let value: Option<i32> = metadata.annotations.get(annotation)?.parse().ok();
            let seconds = value.filter(|seconds| *seconds > 0);
            if seconds.is_none() {
                bad_annotation = Some(annotation);
            }
            seconds
        };
        let backoff_seconds = (seconds(BACKOFF_BASE), seconds(BACKOFF_MAX));
        Ok(Job {
            parallelism: spec.parallelism.unwrap_or(1).max(0),
            completions: spec.completions.map(|completions| completions.max(0)),
            completion_mode: match spec.completion_mode.as_str() {
                "" | "NonIndexed" => CompletionMode::NonIndexed,
                "Indexed" => CompletionMode::Indexed,
                _ => CompletionMode::Unknown,
            },
            backoff_limit: spec.backoff_limit.unwrap_or(6),
            backoff_limit_per_index: spec.backoff_limit_per_index,
            max_failed_indexes: spec.max_failed_indexes,
            active_deadline_seconds: spec.active_deadline_seconds,
            is_suspended: spec.suspend.unwrap_or(false),
            replaces_failed_only: spec.pod_replacement_policy.as_str() == "Failed"
                || spec.pod_failure_policy.is_some(),
            failure_policy: spec.pod_failure_policy.map(|policy| policy.into_rules(interner)),
            success_policy: spec.success_policy.map(SuccessPolicyWire::into_rules),
            ttl_seconds_after_finished: spec.ttl_seconds_after_finished,
            managed_by: managed_by.map(|by| interner.string(by)),
            selector: Selector::compile(spec.selector),
            template: Template::decode_or_empty(spec.template, interner)?,
            restarts_in_place: pods.spec.is_some_and(|spec| spec.restart_policy.as_str() == "OnFailure"),
            backoff_seconds,
            bad_annotation,
            scheduled: metadata.annotations.get(SCHEDULED).and_then(|time| time.parse().ok()),
            status: status.unwrap_or_default().into_status(interner),
            meta: metadata.into_meta(interner)?,
        })
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn heap_bytes(&self) -> usize {
        let failures = self.failure_policy.iter().flatten().map(FailureRule::bytes).sum::<usize>();
        let successes = self.success_policy.iter().flatten().map(SuccessRule::bytes).sum::<usize>();
        record::own_bytes(self)
            + self.selector.heap_bytes()
            + self.template.heap_bytes()
            + self.status.heap_bytes()
            + failures
            + successes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(spec: &str, status: &str) -> Job {
        let json = format!(
            r#"{{"metadata":{{"name":"backup","namespace":"shop","uid":"u","resourceVersion":"7","annotations":{{
                "{BACKOFF_BASE}":"2","{BACKOFF_MAX}":"0"}}}},"spec":{spec},"status":{status}}}"#
        );
        Job::decode(&json, &mut Interner::default()).unwrap()
    }

    #[test]
    fn absent_fields_take_the_apis_defaults_and_odd_ones_are_harmless() {
        let plain = job("{}", "null");
        assert_eq!((plain.parallelism, plain.completions, plain.backoff_limit), (1, None, 6));
        assert_eq!((plain.completion_mode, plain.managed_by.as_deref()), (CompletionMode::NonIndexed, None));
        assert!(!plain.is_suspended && !plain.replaces_failed_only && !plain.restarts_in_place);
        assert_eq!(plain.backoff_seconds, (Some(2), None), "0 is no wait");
        assert!(size_of::<Job>() <= 600, "{}", size_of::<Job>());
        let odd = job(
            r#"{"parallelism":-3,"completions":-1,"completionMode":"Later","managedBy":"kubernetes.io/job-controller",
                "template":{"spec":{"restartPolicy":"OnFailure"}},"podFailurePolicy":{"rules":[]}}"#,
            "{}",
        );
        assert_eq!((odd.parallelism, odd.completions, odd.managed_by.as_deref()), (0, Some(0), None));
        assert_eq!(odd.completion_mode, CompletionMode::Unknown);
        assert!(odd.restarts_in_place && odd.replaces_failed_only);
        assert_eq!(
            job(r#"{"managedBy":"example.com/queue"}"#, "{}").managed_by.as_deref(),
            Some("example.com/queue")
        );
    }

    #[test]
    fn policies_are_read_with_their_places() {
        let job = job(
            r#"{"podFailurePolicy":{"rules":[{"action":"Later"},{"action":"FailJob","onExitCodes":{"containerName":"main",
                "operator":"NotIn","values":[1,2]}},{"action":"Ignore","onPodConditions":[{"type":"DisruptionTarget"}]}]},
                "successPolicy":{"rules":[{"succeededIndexes":"0,2","succeededCount":1},{"succeededCount":3}]}}"#,
            "{}",
        );
        let rules = job.failure_policy.unwrap();
        assert_eq!(
            rules.iter().map(|rule| rule.action).collect::<Vec<_>>(),
            [None, Some(FailureAction::FailJob), Some(FailureAction::Ignore)]
        );
        let main =
            FailureMatch::ExitCodes { container: Some("main".into()), is_in: false, values: [1, 2].into() };
        assert_eq!(rules[1].matches, main);
        assert_eq!(
            rules[2].matches,
            FailureMatch::Conditions([("DisruptionTarget".into(), "True".into())].into())
        );
        let rules = job.success_policy.unwrap();
        assert_eq!(rules[0].indexes.as_ref().map(ToString::to_string).as_deref(), Some("0,2"));
        assert_eq!((rules[0].count, rules[1].count, rules[1].indexes.is_some()), (Some(1), Some(3), false));
    }

    #[test]
    fn a_status_keeps_absent_and_empty_apart() {
        let absent = job("{}", "{}").status;
        assert_eq!((absent.ready, absent.terminating, absent.uncounted.is_some()), (None, None, false));
        assert!(absent.failed_indexes.is_none() && absent.completed_indexes.is_empty());
        let status = job(
            "{}",
            r#"{"active":1,"ready":0,"terminating":0,"failedIndexes":"","completedIndexes":"0-3",
                "uncountedTerminatedPods":{"failed":["a","b"]},"startTime":"2026-01-01T00:00:00Z",
                "conditions":[{"type":"Other","status":"True"},{"type":"Failed","status":"True",
                "lastTransitionTime":"2026-01-01T00:00:05Z"}]}"#,
        );
        assert!(status.is_finished());
        assert_eq!(status.finished_at().unwrap().to_string(), "2026-01-01T00:00:05Z");
        let status = status.status;
        assert_eq!((status.ready, status.terminating, status.completed_indexes.len()), (Some(0), Some(0), 4));
        assert_eq!(status.failed_indexes, Some(super::super::Indexes::default()));
        assert_eq!(status.uncounted.unwrap().failed.len(), 2);
        assert_eq!(status.conditions.len(), 1, "others belong to other writers");
    }
}
