//! The progress of a Job. Pure.

use serde_json::Value;

use super::{Rollout, condition};
use crate::cluster::{key, number};
use crate::event_lines::plain;

/// The state of a Job in the word that `kubectl get jobs` shows.
pub fn job_state(job: &Value) -> &'static str {
    let is = |kind: &str| condition(job, kind).is_some_and(|condition| condition["status"] == "True");
    match () {
        () if is("Complete") => "Complete",
        () if is("Failed") => "Failed",
        () if job["metadata"]["deletionTimestamp"].is_string() => "Terminating",
        () if is("Suspended") => "Suspended",
        () if is("FailureTarget") => "FailureTarget",
        () if is("SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    }
}

/// The completions that the Job needs: of a work queue, one.
pub fn completions(job: &Value) -> i64 {
    job["spec"]["completions"].as_i64().unwrap_or(1)
}

/// `2 of 5 completions, 1 active, 1 failed`.
pub fn counts(job: &Value) -> String {
    let mut text = format!("{} of {} completions", number(job, "/status/succeeded"), completions(job));
    for state in ["active", "terminating", "failed"] {
        let count = number(job, &format!("/status/{state}"));
        if count > 0 {
            text += &format!(", {count} {state}");
        }
    }
    text
}

/// The progress of a Job: it is complete, has failed for a reason, or is at work. A suspended one counts as complete, since
/// nothing happens until somebody resumes it.
pub fn job_rollout(job: &Value) -> Rollout {
    let (_, name) = key(job);
    match job_state(job) {
        "Complete" => Rollout::Complete(format!("job \"{name}\" is complete: {}", counts(job))),
        "Failed" => {
            let text = |field: &str| {
                let failed = condition(job, "Failed").map(|condition| &condition[field]);
                plain(failed.and_then(Value::as_str).unwrap_or_default())
            };
            Rollout::Failed(format!("job \"{name}\" has failed: {}: {}", text("reason"), text("message")))
        }
        "Suspended" => Rollout::Complete(format!("job \"{name}\" is suspended")),
        _ => Rollout::Waiting(format!("Waiting for job \"{name}\" to finish: {}...", counts(job))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn job(status: Value) -> Value {
        json!({"metadata": {"namespace": "shop", "name": "setup"}, "spec": {"completions": 3}, "status": status})
    }

    fn is_true(kind: &str) -> Value {
        json!({"type": kind, "status": "True", "reason": "BackoffLimitExceeded", "message": "too often"})
    }

    #[test]
    fn a_job_is_complete_failed_suspended_or_at_work() {
        let done =
            json!({"succeeded": 3, "conditions": [is_true("SuccessCriteriaMet"), is_true("Complete")]});
        let complete = "job \"setup\" is complete: 3 of 3 completions".to_owned();
        assert_eq!(job_rollout(&job(done)), Rollout::Complete(complete));
        let failed = json!({"failed": 7, "conditions": [is_true("FailureTarget"), is_true("Failed")]});
        let why = "job \"setup\" has failed: BackoffLimitExceeded: too often".to_owned();
        assert_eq!(job_rollout(&job(failed)), Rollout::Failed(why));
        let suspended = json!({"conditions": [is_true("Suspended")]});
        assert_eq!(job_rollout(&job(suspended)), Rollout::Complete("job \"setup\" is suspended".to_owned()));
        let at_work = json!({"active": 2, "succeeded": 1, "failed": 1, "terminating": 0,
                             "conditions": [{"type": "Suspended", "status": "False"}]});
        let waiting =
            "Waiting for job \"setup\" to finish: 1 of 3 completions, 2 active, 1 failed...".to_owned();
        assert_eq!(job_rollout(&job(at_work)), Rollout::Waiting(waiting));
    }

    #[test]
    fn the_end_of_a_job_precedes_its_suspension_and_its_deletion() {
        let mut job = job(json!({"conditions": [is_true("Suspended"), is_true("Complete")]}));
        job["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert_eq!(job_state(&job), "Complete");
        job["status"]["conditions"] = json!([is_true("Suspended")]);
        assert_eq!(job_state(&job), "Terminating");
        assert_eq!(completions(&json!({"spec": {"parallelism": 3}})), 1);
    }
}
