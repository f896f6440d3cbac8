//! When a finished Job is deleted: `ttlSecondsAfterFinished` seconds after its end.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::cronjob::history::is_only_proof;
use super::replicaset::status::until;
use crate::model::{CronJob, Job, Record as _};

/// How soon a Job that is due is looked at again, if it is not deleted by then.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// When a Job expires. `None` if it does not, or is being deleted already.
pub fn expires(job: &Job) -> Option<Timestamp> {
    let seconds = job.ttl_seconds_after_finished.filter(|_| !job.meta.is_deleting())?;
    job.finished_at()?.saturating_add(SignedDuration::from_secs(i64::from(seconds))).ok()
}

/// Whether a Job is to be deleted now.
pub fn is_due(job: &Job, now: Timestamp) -> bool {
    expires(job).is_some_and(|expires| expires <= now)
}

/// When to look at a Job again.
pub fn look_again(job: &Job, now: Timestamp) -> Option<Duration> {
    let wait = until(expires(job)?, now);
    Some(if wait.is_zero() { LOOK_AGAIN } else { wait })
}

/// Whether a Job that is due must stay until the status of its CronJob, as just read, shows its run: it would run again.
pub fn is_spared(job: &Job, cron_job: Option<&CronJob>, now: Timestamp) -> bool {
    cron_job.is_some_and(|cron_job| {
        cron_job.controls(&job.meta) && !cron_job.meta.is_deleting() && is_only_proof(cron_job, job, now)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Interner;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn job(ttl: &str, status: &str, deletion: &str) -> Job {
        let json = format!(
            r#"{{"metadata":{{"name":"c-1","namespace":"shop","uid":"u-1","resourceVersion":"1","deletionTimestamp":{deletion},
                "annotations":{{"batch.kubernetes.io/cronjob-scheduled-timestamp":"1970-01-01T00:01:00Z"}},
                "ownerReferences":[{{"apiVersion":"batch/v1","kind":"CronJob","name":"c","uid":"u-c","controller":true}}]}},
                "spec":{{"ttlSecondsAfterFinished":{ttl}}},"status":{{"conditions":{status}}}}}"#
        );
        Job::decode(&json, &mut Interner::default()).unwrap()
    }

    fn ended(kind: &str, is_true: &str) -> String {
        format!(r#"[{{"type":"{kind}","status":"{is_true}","lastTransitionTime":"1970-01-01T00:02:00Z"}}]"#)
    }

    #[test]
    fn a_job_expires_after_its_end_and_none_that_runs_or_goes() {
        for kind in ["Complete", "Failed"] {
            let job = job("10", &ended(kind, "True"), "null");
            assert_eq!((is_due(&job, at(129)), is_due(&job, at(130))), (false, true));
            assert_eq!(look_again(&job, at(100)), Some(Duration::from_secs(30)));
            assert_eq!(look_again(&job, at(130)), Some(LOOK_AGAIN));
        }
        assert!(is_due(&job("0", &ended("Failed", "True"), "null"), at(120)));
        let complete = ended("Complete", "True");
        for never in [
            job("null", &complete, "null"),
            job("10", &ended("Complete", "False"), "null"),
            job("10", &ended("FailureTarget", "True"), "null"),
            job("10", "null", "null"),
            job("10", &complete, "\"1970-01-01T00:02:05Z\""),
            // A time that is not known is no reason to delete.
            job("10", r#"[{"type":"Complete","status":"True"}]"#, "null"),
        ] {
            assert_eq!((is_due(&never, at(999_999)), look_again(&never, at(999_999))), (false, None));
        }
    }

    #[test]
    fn a_job_stays_until_the_status_of_its_cron_job_shows_the_run() {
        let job = job("0", &ended("Complete", "True"), "null");
        let cron_job = |uid: &str, last: &str, deletion: &str| {
            let json = format!(
                r#"{{"metadata":{{"name":"c","namespace":"shop","uid":"{uid}","resourceVersion":"1","deletionTimestamp":{deletion}}},
                    "spec":{{}},"status":{{"lastScheduleTime":{last}}}}}"#
            );
            CronJob::decode(&json, &mut Interner::default()).unwrap()
        };
        assert!(is_spared(&job, Some(&cron_job("u-c", "null", "null")), at(130)));
        assert!(is_spared(&job, Some(&cron_job("u-c", "\"1970-01-01T00:00:59Z\"", "null")), at(130)));
        assert!(!is_spared(&job, Some(&cron_job("u-c", "\"1970-01-01T00:01:00Z\"", "null")), at(130)));
        assert!(!is_spared(&job, Some(&cron_job("another", "null", "null")), at(130)));
        assert!(!is_spared(&job, Some(&cron_job("u-c", "null", "\"1970-01-01T00:02:05Z\"")), at(130)));
        assert!(!is_spared(&job, None, at(130)));
        // A clock that is ahead, and one that is wrong.
        assert!(is_spared(&job, Some(&cron_job("u-c", "null", "null")), at(59)));
        assert!(!is_spared(&job, Some(&cron_job("u-c", "null", "null")), at(60 - 3601)));
    }
}
