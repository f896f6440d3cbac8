//! The numbers of Jobs and CronJobs, which roll nothing out.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::text::{age, counted};

/// The numbers of a Job or CronJob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Of a Job.
    Job(JobCounts),
    /// Of a CronJob.
    Runs(Runs),
}

/// The numbers that a Job reports, in pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobCounts {
    /// `status.active`.
    pub active: i64,
    /// `status.ready`.
    pub ready: Option<i64>,
    /// `status.succeeded`; of an Indexed Job, how many indexes have.
    pub succeeded: i64,
    /// `status.failed`.
    pub failed: i64,
    /// `spec.completions`; `None` for a work queue.
    pub completions: Option<i64>,
    /// `spec.parallelism`.
    pub parallelism: i64,
}

/// The runs of a CronJob.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Runs {
    /// `spec.schedule`.
    pub schedule: String,
    /// `spec.timeZone`.
    pub time_zone: Option<String>,
    /// How many Jobs are not finished.
    pub active: i64,
    /// When the last run was due.
    pub last: Option<Timestamp>,
    /// When a run succeeded last.
    pub last_successful: Option<Timestamp>,
    /// When the next run begins; `None` if that is unknown or there is none.
    pub next: Option<Timestamp>,
}

impl Work {
    /// The numbers in words.
    pub fn words(&self, now: Timestamp) -> String {
        match self {
            Work::Job(JobCounts { active, ready, succeeded, failed, completions, parallelism: _ }) => {
                let ready = ready.map_or(String::new(), |ready| format!(" ({ready} ready)"));
                let done = match completions {
                    Some(completions) => format!("{succeeded} of {completions} completions succeeded"),
                    None => format!("{succeeded} succeeded"),
                };
                let failed = if *failed == 0 { String::new() } else { format!(", {failed} failed") };
                format!("{}{ready}, {done}{failed}", counted(*active, "active pod"))
            }
            Work::Runs(Runs { schedule, time_zone, active, last, next, .. }) => {
                let zone = time_zone.as_ref().map_or(String::new(), |zone| format!(" ({zone})"));
                let mut words = format!("schedule {schedule:?}{zone}, {}", counted(*active, "active Job"));
                words.push_str(&match last {
                    Some(last) => format!(", last run {} ago", age(*last, now)),
                    None => ", no run so far".to_owned(),
                });
                if let Some(next) = next {
                    words.push_str(&format!(", next in {}", age(now, *next)));
                }
                words
            }
        }
    }

    /// The numbers as data.
    pub fn data(&self) -> Value {
        let text = |at: &Option<Timestamp>| at.map(|at| at.to_string());
        match self {
            Work::Job(JobCounts { active, ready, succeeded, failed, completions, parallelism }) => json!({
                "active": active, "ready": ready, "succeeded": succeeded, "failed": failed,
                "completions": completions, "parallelism": parallelism,
            }),
            Work::Runs(Runs { schedule, time_zone, active, last, last_successful, next }) => json!({
                "schedule": schedule, "timeZone": time_zone, "active": active, "lastScheduled": text(last),
                "lastSuccessful": text(last_successful), "next": text(next),
            }),
        }
    }
}
