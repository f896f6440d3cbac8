//! The reasons for a plan, as sentences and as data.

use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;

use super::due::Defect;
use crate::model::{CronJob, Job};
use crate::plan::shorten;

/// A reason for a plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum PlanReason {
    /// It is being deleted.
    BeingDeleted,
    /// It is suspended.
    Suspended,
    /// Schedule or zone cannot be used.
    Defective {
        /// Why.
        defect: String,
    },
    /// Jobs that cannot be decoded.
    Unreadable {
        /// How many.
        jobs: usize,
    },
    /// A Job is created.
    Starting {
        /// Its name.
        job: Arc<str>,
        /// The time of the schedule.
        #[serde(serialize_with = "as_text")]
        time: Timestamp,
    },
    /// Jobs are deleted before another is created.
    Replacing {
        /// How many.
        jobs: usize,
        /// The time of the schedule.
        #[serde(serialize_with = "as_text")]
        time: Timestamp,
    },
    /// A run waits for another one.
    Forbidden {
        /// The Job of the other.
        job: Arc<str>,
        /// Since when that runs.
        #[serde(serialize_with = "as_text")]
        started: Timestamp,
        /// The time of the schedule.
        #[serde(serialize_with = "as_text")]
        time: Timestamp,
    },
    /// A run did not begin in time.
    TooLate {
        /// The time of the schedule.
        #[serde(serialize_with = "as_text")]
        time: Timestamp,
        /// Within how many seconds it had to begin.
        deadline_seconds: i64,
    },
    /// A Job of another owner has the name.
    NameTaken {
        /// The name.
        job: Arc<str>,
        /// The time of the schedule.
        #[serde(serialize_with = "as_text")]
        time: Timestamp,
    },
    /// Another run of the same minute has the name.
    SameMinute {
        /// The time of the schedule.
        #[serde(serialize_with = "as_text")]
        time: Timestamp,
    },
    /// Jobs are not finished.
    Running {
        /// How many.
        jobs: usize,
        /// The one that has been running for longest.
        oldest: Arc<str>,
        /// Since when.
        #[serde(serialize_with = "as_text")]
        started: Timestamp,
    },
    /// The next run.
    Next {
        /// Its time in the zone of the schedule.
        time: Arc<str>,
        /// When it begins.
        #[serde(serialize_with = "as_text")]
        begins: Timestamp,
    },
}

fn as_text<S: serde::Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(time)
}

/// Since when a Job runs.
pub fn started(job: &Job) -> Timestamp {
    job.status.start_time.unwrap_or(job.meta.created)
}

impl PlanReason {
    pub(super) fn defective(cron_job: &CronJob, defect: Defect) -> Self {
        let schedule = &cron_job.schedule;
        let defect = match defect {
            Defect::UnknownZone { error } => format!("its time zone cannot be used: {error}"),
            Defect::Unparseable { error } => format!("its schedule {schedule:?} cannot be read: {error}"),
            Defect::Never => format!("no time matches its schedule {schedule:?}"),
        };
        PlanReason::Defective { defect }
    }

    pub(super) fn running(active: &[&Arc<Job>]) -> Self {
        let oldest = active.iter().min_by_key(|job| started(job));
        let (name, since) = oldest.map(|job| (job.meta.key.name.clone(), started(job))).unwrap_or_default();
        PlanReason::Running { jobs: active.len(), oldest: name, started: since }
    }

    /// Cuts texts of unbounded length to this many bytes.
    pub fn shorten(&mut self, longest: usize) {
        if let PlanReason::Defective { defect } = self {
            shorten(defect, longest);
        }
    }

    /// The bytes on the heap. Names that it shares with a cache count in full.
    pub fn heap(&self) -> usize {
        match self {
            PlanReason::Defective { defect } => defect.capacity(),
            PlanReason::Starting { job: text, .. }
            | PlanReason::Forbidden { job: text, .. }
            | PlanReason::NameTaken { job: text, .. }
            | PlanReason::Running { oldest: text, .. }
            | PlanReason::Next { time: text, .. } => text.len(),
            _ => 0,
        }
    }

    /// Whether this reason leaves nothing to do.
    pub fn is_at_rest(&self) -> bool {
        matches!(self, PlanReason::Suspended | PlanReason::Next { .. })
    }
}

impl Display for PlanReason {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            PlanReason::BeingDeleted => f.write_str("The CronJob is being deleted."),
            PlanReason::Suspended => f.write_str("The CronJob is suspended; no run begins."),
            PlanReason::Defective { defect } => write!(f, "The CronJob cannot run: {defect}."),
            PlanReason::Unreadable { jobs } => {
                write!(f, "{jobs} of its Jobs cannot be decoded; nothing is decided until they can be.")
            }
            PlanReason::Starting { job, time } => write!(f, "Job {job} is created for the run of {time}."),
            PlanReason::Replacing { jobs, time } => {
                let s = if *jobs == 1 { "" } else { "s" };
                write!(f, "The run of {time} replaces {jobs} Job{s}, and begins when their pods are gone.")
            }
            PlanReason::Forbidden { job, started, time } => write!(
                f,
                "The run of {time} waits for Job {job}, which has been running since {started}: runs must not overlap (concurrencyPolicy: Forbid)."
            ),
            PlanReason::TooLate { time, deadline_seconds } => {
                write!(f, "The run of {time} did not begin within {deadline_seconds} s, and is left out.")
            }
            PlanReason::NameTaken { job, time } => {
                write!(f, "The run of {time} cannot begin: Job {job} exists and belongs to another owner.")
            }
            PlanReason::SameMinute { time } => {
                write!(
                    f,
                    "The run of {time} is left out: another run of that minute has the name of its Job."
                )
            }
            PlanReason::Running { jobs: 1, oldest, started } => {
                write!(f, "Job {oldest} has been running since {started}.")
            }
            PlanReason::Running { jobs, oldest, started } => {
                write!(f, "{jobs} Jobs are not finished; {oldest} has been running since {started}.")
            }
            PlanReason::Next { time, begins } => write!(f, "The next run is due at {time} ({begins})."),
        }
    }
}
