//! Writes of Jobs: CJ1, CJ3, CJ5, CJ6, CJ8 and TT1.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    Commit, Judge, NAME, SCHEDULED, condition, expires, is_active, is_finished, job_name, last_schedule,
    limit, run_time,
};
use crate::cron_jobs::calendar::Calendar;
use crate::engine::breach::Breach;
use crate::engine::objects::{is_deleting, name, number, owner, text, uid};

impl Judge {
    pub(super) fn judge_creation(&mut self, commit: &Commit<'_>, job: &Value) -> Result<(), Breach> {
        let of = owner(job).to_owned();
        let versions: Vec<Value> = self.versions(commit, &of).into_iter().cloned().collect();
        let may_run = |version: &&Value| !is_deleting(version) && version["spec"]["suspend"] != true;
        let versions: Vec<&Value> = versions.iter().filter(may_run).collect();
        if versions.is_empty() && !commit.call.abandoned {
            return commit.breach("CJ8", "its CronJob is suspended, being deleted, or gone");
        }
        let Some(time) = run_time(job) else {
            return commit.breach("CJ6", "it does not say when it was due");
        };
        if name(job) != job_name(time) {
            return commit.breach("CJ6", format!("the Job of {time} has another name"));
        }
        let is_first = self.runs.insert((of.clone(), name(job).to_owned()));
        self.times.insert((of, time));
        if commit.call.abandoned {
            // Nobody can take it back: its author has sent the request again, or is gone.
            return Ok(());
        }
        if !is_first {
            return commit.breach("CJ1", "the run had a Job before");
        }
        if !versions.iter().any(|version| is_body(version, commit, job)) {
            return commit.breach("CJ6", "it is not the Job of the template");
        }
        self.judge_time(commit, &versions, job, time)?;
        self.judge_policy(commit, &versions)
    }

    /// CJ1: the time is one of the schedule, the latest that has passed, and not too late.
    fn judge_time(
        &self,
        commit: &Commit<'_>,
        versions: &[&Value],
        job: &Value,
        time: Timestamp,
    ) -> Result<(), Breach> {
        let now = commit.now.saturating_add(self.skew.1).unwrap_or(commit.now);
        if time > now {
            return commit.breach("CJ1", format!("{time} is in the future"));
        }
        let of = owner(job);
        let stored = commit.cron_job.as_deref().filter(|cron_job| uid(cron_job) == of);
        if let Some(last) = stored.and_then(last_schedule).filter(|last| time <= *last && *last <= now) {
            return commit.breach("CJ1", format!("{time} is not later than the last run, {last}"));
        }
        let calendars: Vec<Calendar> = versions.iter().filter_map(|version| Calendar::of(version)).collect();
        let created = versions
            .iter()
            .filter_map(|version| text(version, "/metadata/creationTimestamp").parse::<Timestamp>().ok());
        let mut bases: Vec<Timestamp> = created.collect();
        bases.extend(self.times.iter().filter(|(owner, _)| owner == of).map(|(_, time)| *time));
        let is_due = |calendar: &&Calendar| {
            calendar.has(time, bases.iter().copied()) && calendar.written_time(time) == text(job, SCHEDULED)
        };
        let Some(calendar) = calendars.iter().find(is_due) else {
            return commit.breach("CJ1", format!("no run is due at {}", text(job, SCHEDULED)));
        };
        let decided = self.decided(commit);
        if calendars.iter().all(|other| other == calendar)
            && let Some(later) = calendar.between(time, decided).last()
        {
            return commit.breach("CJ1", format!("{time} runs although {later} has passed"));
        }
        let deadlines = versions.iter().map(|version| version["spec"]["startingDeadlineSeconds"].as_i64());
        let longest = deadlines.map(|deadline| deadline.unwrap_or(i64::MAX)).max().unwrap_or(i64::MAX);
        if decided.duration_since(time).as_secs() >= longest {
            return commit.breach("CJ1", format!("{time} runs later than {longest} s after it"));
        }
        Ok(())
    }

    /// CJ3: runs overlap only where they may.
    fn judge_policy(&self, commit: &Commit<'_>, versions: &[&Value]) -> Result<(), Breach> {
        let policy = text(versions[0], "/spec/concurrencyPolicy");
        if versions.iter().any(|version| version["spec"]["concurrencyPolicy"] != policy) || policy == "Allow"
        {
            return Ok(());
        }
        let since = self.blind.since(commit.at);
        // One that another daemon has just created.
        let is_new = |job: &Value| self.created.get(uid(job)).is_some_and(|created| *created >= since);
        let is_other = |job: &&Value| is_active(job, versions[0]) && !is_new(job);
        match commit.jobs.iter().find(|job| is_other(job) && (policy == "Forbid" || !is_deleting(job))) {
            Some(other) => commit.breach("CJ3", format!("{} has not ended, and {policy} holds", name(other))),
            None => Ok(()),
        }
    }

    pub(super) fn judge_deletion(&self, commit: &Commit<'_>, job: &Value) -> Result<(), Breach> {
        let options = &commit.call.body;
        if options["preconditions"]["uid"] != uid(job) {
            return commit.breach("CJ5", "the deletion has not the UID of the Job");
        }
        if let Some(cron_job) = commit.cron_job.as_deref()
            && owner(job) == uid(cron_job)
            && !is_deleting(cron_job)
            && is_finished(job)
            && run_time(job).is_some_and(|time| last_schedule(cron_job).is_none_or(|last| time > last))
        {
            return commit.breach("CJ5", "it alone proves its run");
        }
        match options["propagationPolicy"] == "Foreground" {
            true => self.judge_expiry(commit, job),
            false if commit.call.abandoned => Ok(()),
            false => self.judge_end_of_run(commit, job),
        }
    }

    /// TT1: it has expired by what it says now.
    fn judge_expiry(&self, commit: &Commit<'_>, job: &Value) -> Result<(), Breach> {
        let now = commit.now.saturating_add(self.skew.1).unwrap_or(commit.now);
        match expires(job) {
            Some(expires) if expires <= now => Ok(()),
            expires => commit.breach("TT1", format!("it expires at {expires:?}, and it is {now}")),
        }
    }

    /// CJ5 for a Job that has ended: beyond the limits, the oldest. CJ3 for one that has not: replaced.
    fn judge_end_of_run(&self, commit: &Commit<'_>, job: &Value) -> Result<(), Breach> {
        let versions = self.versions(commit, owner(job));
        if versions.is_empty() {
            return commit.breach("CJ5", "it is not a Job of the CronJob");
        }
        if !is_finished(job) {
            let replaces = |version: &&Value| version["spec"]["concurrencyPolicy"] == "Replace";
            return match run_time(job).is_some() && versions.iter().any(replaces) {
                true => Ok(()),
                false => commit.breach("CJ5", "it has not ended, and nothing replaces it"),
            };
        }
        let (kind, field) = match condition(job, "Complete") {
            Some(_) => ("Complete", "successfulJobsHistoryLimit"),
            None => ("Failed", "failedJobsHistoryLimit"),
        };
        let key = |job: &Value| {
            let start = text(job, "/status/startTime");
            (start.is_empty(), start.to_owned(), name(job).to_owned())
        };
        let same = |other: &&Value| owner(other) == owner(job) && condition(other, kind).is_some();
        // The newer ones may have expired while the deletion was under way.
        let since = self.blind.since(commit.at);
        let gone = self.gone.iter().filter(|(then, _)| *then >= since).map(|(_, other)| other);
        let newer = commit.jobs.iter().chain(gone).filter(same).filter(|other| key(other) > key(job)).count();
        let least = versions.iter().map(|version| limit(version, field)).min().unwrap_or(0);
        match newer < least {
            true => commit.breach("CJ5", format!("only {newer} newer ones are left, and {least} stay")),
            false => Ok(()),
        }
    }
}

/// CJ6: the Job as the template has it.
fn is_body(cron_job: &Value, commit: &Commit<'_>, job: &Value) -> bool {
    let template = &cron_job["spec"]["jobTemplate"];
    let sent = &commit.call.body;
    let mut annotations = template["metadata"]["annotations"].clone();
    annotations["batch.kubernetes.io/cronjob-scheduled-timestamp"] = text(job, SCHEDULED).into();
    let reference = json!([{"apiVersion": "batch/v1", "kind": "CronJob", "name": NAME, "uid": uid(cron_job),
        "controller": true, "blockOwnerDeletion": true}]);
    let meta = &sent["metadata"];
    sent["spec"] == template["spec"]
        && meta["labels"] == template["metadata"]["labels"]
        && meta["annotations"] == annotations
        && meta["ownerReferences"] == reference
        && number(job, "/status/active") == 0
}

/// How long a node must be gone.
pub(super) const QUARANTINE: Duration = Duration::from_secs(40);
