//! A CronJob, with the template of its Jobs as raw JSON.

use std::sync::Arc;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::intern::Interner;
use super::meta::{Meta, Uid};
use super::record::{self, Record, Resource};
use super::template::Template;
use super::wire::{MetaWire, Pairs, Text, Time};

/// The annotation for runs that were missed: `latest` (as absent) runs the latest of them, `none` none.
pub const CATCH_UP: &str = "windlass.dev/catch-up";

/// The annotation for clock changes: `robfig` (as absent) as upstream, `once` runs each time once a day.
pub const CLOCK_CHANGE: &str = "windlass.dev/clock-change";

/// The annotation for `concurrencyPolicy: Replace`: `at-once` (as absent), or `after-pods` when the pods of the old Job are gone.
pub const REPLACE: &str = "windlass.dev/replace";

/// The annotation for a delay of each run, fixed for a CronJob: at most so many seconds.
pub const JITTER: &str = "windlass.dev/jitter-seconds";

/// The longest delay that [`JITTER`] allows, in seconds.
const LONGEST_JITTER: i32 = 3600;

/// The fields of a CronJob that the controllers use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CronJob {
    /// Metadata.
    pub meta: Meta,
    /// `spec.schedule`.
    pub schedule: Arc<str>,
    /// `spec.timeZone`.
    pub time_zone: Option<Arc<str>>,
    /// `spec.concurrencyPolicy`.
    pub concurrency: Concurrency,
    /// `spec.suspend`.
    pub is_suspended: bool,
    /// `spec.startingDeadlineSeconds`: how long after its time a run may begin.
    pub starting_deadline_seconds: Option<i64>,
    /// `spec.successfulJobsHistoryLimit`; `None` keeps all.
    pub successful_history_limit: Option<i32>,
    /// `spec.failedJobsHistoryLimit`; `None` keeps all.
    pub failed_history_limit: Option<i32>,
    /// `spec.jobTemplate`.
    pub template: Template,
    /// The annotations of ours.
    pub options: Options,
    /// `status`.
    pub status: CronJobStatus,
}

/// `spec.concurrencyPolicy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Concurrency {
    /// Runs overlap. Also the interpretation of an unknown policy.
    #[default]
    Allow,
    /// A run waits for the one before.
    Forbid,
    /// A run replaces the one before.
    Replace,
}

/// The wishes of a CronJob beside upstream's fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Whether runs that were missed stay missed.
    pub skips_missed: bool,
    /// Whether a time runs once where clocks skip or repeat it.
    pub is_once_at_clock_changes: bool,
    /// Whether a run that replaces another waits for its pods.
    pub waits_for_pods: bool,
    /// The longest delay of a run, in seconds.
    pub jitter_seconds: Option<i32>,
    /// The first annotation whose value is not understood.
    pub bad: Option<(&'static str, Arc<str>)>,
}

/// `status` of a CronJob.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CronJobStatus {
    /// Jobs that are not finished.
    pub active: Vec<ActiveJob>,
    /// The time of the last run, by the schedule.
    pub last_schedule: Option<Timestamp>,
    /// When a Job last completed.
    pub last_successful: Option<Timestamp>,
}

/// A Job in `status.active`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActiveJob {
    /// Its name.
    pub name: Arc<str>,
    /// Its UID.
    pub uid: Uid,
    /// Its version when the reference was written; 0 if it is not known.
    pub resource_version: u64,
}

#[derive(Deserialize)]
struct CronJobWire<'a> {
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
    #[serde(borrow, default)]
    schedule: Text<'a>,
    #[serde(borrow, default)]
    time_zone: Option<Text<'a>>,
    #[serde(borrow, default)]
    concurrency_policy: Text<'a>,
    #[serde(default)]
    suspend: Option<bool>,
    #[serde(default)]
    starting_deadline_seconds: Option<i64>,
    #[serde(default)]
    successful_jobs_history_limit: Option<i32>,
    #[serde(default)]
    failed_jobs_history_limit: Option<i32>,
    #[serde(borrow, default)]
    job_template: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StatusWire<'a> {
    #[serde(borrow, default)]
    active: Option<Vec<ReferenceWire<'a>>>,
    #[serde(default)]
    last_schedule_time: Option<Time>,
    #[serde(default)]
    last_successful_time: Option<Time>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReferenceWire<'a> {
    #[serde(borrow, default)]
    name: Text<'a>,
    #[serde(borrow, default)]
    uid: Text<'a>,
    #[serde(borrow, default)]
    resource_version: Text<'a>,
}

impl Options {
    /// The values that one of these annotations may have.
    pub fn values(annotation: &str) -> &'static str {
        match annotation {
            CATCH_UP => "latest or none",
            CLOCK_CHANGE => "robfig or once",
            REPLACE => "at-once or after-pods",
            _ => "a whole number of seconds from 0 to 3600",
        }
    }

    fn read(annotations: &Pairs<'_>) -> Self {
        let mut options = Options::default();
        let mut bad = |annotation, value: &str| {
            options.bad.get_or_insert_with(|| (annotation, value.into()));
        };
        // Of two values the second is the one that changes something.
        let mut is_second = |annotation, [first, second]: [&str; 2]| match annotations.get(annotation) {
            Some(value) if value == second => true,
            Some(value) if value != first => {
                bad(annotation, value);
                false
            }
            _ => false,
        };
        let skips_missed = is_second(CATCH_UP, ["latest", "none"]);
        let is_once_at_clock_changes = is_second(CLOCK_CHANGE, ["robfig", "once"]);
        let waits_for_pods = is_second(REPLACE, ["at-once", "after-pods"]);
        let jitter_seconds = annotations.get(JITTER).and_then(|value| {
            let seconds = value.parse().ok().filter(|seconds| (0..=LONGEST_JITTER).contains(seconds));
            if seconds.is_none() {
                bad(JITTER, value);
            }
            seconds
        });
        Options { skips_missed, is_once_at_clock_changes, waits_for_pods, jitter_seconds, ..options }
    }
}

impl Record for CronJob {
    const RESOURCE: Resource =
        Resource { group: "batch", version: "v1", kind: "CronJob", plural: "cronjobs" };
    const IS_OWNER: bool = true;

    fn decode(json: &str, interner: &mut Interner) -> Result<Self, serde_json::Error> {
        let CronJobWire { metadata, spec, status } = serde_json::from_str(json)?;
        let StatusWire { active, last_schedule_time, last_successful_time } = status.unwrap_or_default();
        let active = active.unwrap_or_default().into_iter().map(|job| ActiveJob {
            name: job.name.as_str().into(),
            uid: Uid::new(job.uid.as_str()),
            resource_version: job.resource_version.as_str().parse().unwrap_or(0),
        });
        Ok(CronJob {
            schedule: interner.string(spec.schedule.as_str()),
            time_zone: spec.time_zone.map(|zone| interner.string(zone.as_str())),
            concurrency: match spec.concurrency_policy.as_str() {
                "Forbid" => Concurrency::Forbid,
                "Replace" => Concurrency::Replace,
                _ => Concurrency::Allow,
            },
            is_suspended: spec.suspend.unwrap_or(false),
            starting_deadline_seconds: spec.starting_deadline_seconds,
            successful_history_limit: spec.successful_jobs_history_limit,
            failed_history_limit: spec.failed_jobs_history_limit,
            template: Template::decode_or_empty(spec.job_template, interner)?,
            options: Options::read(&metadata.annotations),
            status: CronJobStatus {
                active: active.collect(),
                last_schedule: last_schedule_time.map(|time| time.0),
                last_successful: last_successful_time.map(|time| time.0),
            },
            meta: metadata.into_meta(interner)?,
        })
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn heap_bytes(&self) -> usize {
        let names: usize = self.status.active.iter().map(|job| job.name.len()).sum();
        record::own_bytes(self)
            + self.schedule.len()
            + self.template.heap_bytes()
            + size_of_val(&*self.status.active)
            + names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cron_job(annotations: &str, spec: &str, status: &str) -> CronJob {
        let json = format!(
            r#"{{"metadata":{{"name":"backup","namespace":"shop","uid":"u","resourceVersion":"7",
                "annotations":{annotations}}},"spec":{spec},"status":{status}}}"#
        );
        CronJob::decode(&json, &mut Interner::default()).unwrap()
    }

    #[test]
    fn a_cron_job_is_read_with_its_status() {
        let full = cron_job(
            "null",
            r#"{"schedule":"@daily","timeZone":"Europe/Berlin","concurrencyPolicy":"Forbid","suspend":true,
                "startingDeadlineSeconds":10,"successfulJobsHistoryLimit":0,"failedJobsHistoryLimit":null,
                "jobTemplate":{"metadata":{"labels":{"a":"b"}},"spec":{}}}"#,
            r#"{"active":[{"kind":"Job","name":"backup-1","uid":"u-1","resourceVersion":"9"},{"name":"backup-2"}],
                "lastScheduleTime":"2026-01-01T00:00:00Z","lastSuccessfulTime":null}"#,
        );
        assert_eq!((&*full.schedule, full.time_zone.as_deref()), ("@daily", Some("Europe/Berlin")));
        assert_eq!((full.concurrency, full.is_suspended), (Concurrency::Forbid, true));
        assert_eq!((full.starting_deadline_seconds, full.successful_history_limit), (Some(10), Some(0)));
        assert_eq!((full.failed_history_limit, full.template.labels.get("a")), (None, Some("b")));
        let versions: Vec<u64> = full.status.active.iter().map(|job| job.resource_version).collect();
        assert_eq!(versions, [9, 0]);
        assert!(full.status.last_schedule.is_some() && full.status.last_successful.is_none());
        let empty = cron_job("{}", "{}", "null");
        assert_eq!((empty.concurrency, empty.is_suspended), (Concurrency::Allow, false));
        assert_eq!((empty.options, empty.status), (Options::default(), CronJobStatus::default()));
    }

    #[test]
    fn annotations_are_options_and_one_that_is_not_understood_changes_nothing() {
        let all = format!(
            r#"{{"{CATCH_UP}":"none","{CLOCK_CHANGE}":"once","{REPLACE}":"after-pods","{JITTER}":"30"}}"#
        );
        let options = cron_job(&all, "{}", "{}").options;
        assert!(options.skips_missed && options.is_once_at_clock_changes && options.waits_for_pods);
        assert_eq!((options.jitter_seconds, options.bad), (Some(30), None));
        let defaults =
            format!(r#"{{"{CATCH_UP}":"latest","{CLOCK_CHANGE}":"robfig","{REPLACE}":"at-once"}}"#);
        assert_eq!(cron_job(&defaults, "{}", "{}").options, Options::default());
        for (annotation, value) in
            [(CATCH_UP, "all"), (CLOCK_CHANGE, ""), (REPLACE, "later"), (JITTER, "3601")]
        {
            let options = cron_job(&format!(r#"{{"{annotation}":"{value}"}}"#), "{}", "{}").options;
            assert_eq!(options, Options { bad: Some((annotation, value.into())), ..Options::default() });
        }
    }
}
