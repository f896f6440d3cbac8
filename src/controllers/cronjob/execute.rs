//! The writes for one CronJob: its Jobs.

use serde_json::json;

use super::{CronJobController, ENTRY};
use crate::engine::controller::Executed;
use crate::engine::error::SyncError;
use crate::engine::execute::{Written, raw};
use crate::model::{ActiveJob, CronJob, Job, Record, Uid};
use crate::plan::EventNote;
use crate::plan::cronjob::{Cause, Deletion, Outcome, Plan, Start, new_job, reference};
use crate::runtime::request;

impl CronJobController {
    /// Executes the plan for a CronJob: a refused deletion of the history does not hold up the run, and one of a Job to be replaced
    /// does.
    pub(super) async fn carry_out(&self, cron_job: &CronJob, plan: &Plan) -> Executed<Outcome> {
        for event in self.memory.news(&cron_job.meta.uid, &plan.notes) {
            self.context.record_event(ENTRY.component, cron_job, event.clone());
        }
        let mut outcome = Outcome::default();
        let mut first = None;
        for deletion in &plan.deletions {
            match self.delete(cron_job, deletion).await {
                Ok(()) => drop(outcome.deleted.insert(deletion.job.meta.uid.clone())),
                Err(error) if deletion.cause == Cause::History && error.is_refusal() => {
                    first.get_or_insert(error);
                }
                Err(error) => return Executed::new(outcome, Some(error)),
            }
        }
        if let Some(start) = &plan.start {
            match self.create(cron_job, start).await {
                Ok(started) => outcome.started = started,
                Err(error) => return Executed::new(outcome, Some(error)),
            }
        }
        Executed::new(outcome, first)
    }

    async fn delete(&self, cron_job: &CronJob, deletion: &Deletion) -> Result<(), SyncError> {
        let Deletion { job, cause } = deletion;
        let meta = &job.meta;
        let policy = match cause {
            Cause::Replaced { pods_first: true } => "Foreground",
            Cause::History | Cause::Replaced { pods_first: false } => "Background",
        };
        let options = json!({"propagationPolicy": policy, "preconditions": {"uid": meta.uid}});
        let deleted = self.context.delete_as(&ENTRY, cron_job, &**job, options).await;
        let name = &meta.key.name;
        let (note, result) = match deleted {
            Ok(version) => {
                let owner = &cron_job.meta.uid;
                self.context.expectations.expect_deletion(
                    owner,
                    Job::RESOURCE,
                    &meta.key,
                    &meta.uid,
                    version,
                );
                (Some(EventNote::normal("SuccessfulDelete", format!("Deleted job {name}"))), Ok(()))
            }
            Err(error) => {
                let error = SyncError::api(format!("deleting job {}", meta.key), error);
                let is_told = matches!(error, SyncError::Refused { .. });
                let note = || EventNote::warning("FailedDelete", format!("Deleted job: {}", error.reason()));
                (is_told.then(note), Err(error))
            }
        };
        if let Some(note) = note {
            self.context.record_event(ENTRY.component, cron_job, note);
        }
        result
    }

    /// Creates the Job of a run. `None` if another owner has the name.
    async fn create(
        &self,
        cron_job: &CronJob,
        start: &Start,
    ) -> Result<Option<(jiff::Timestamp, Option<ActiveJob>)>, SyncError> {
        let Start { name, time, zone } = start;
        let (context, meta) = (&self.context, &cron_job.meta);
        let what = || format!("creating job {}/{name}", meta.key.namespace);
        let json = |error| SyncError::Json { what: what(), error };
        let collection = Job::RESOURCE.path(Some(&meta.key.namespace));
        let body = new_job::body(cron_job, *time, zone).and_then(raw).map_err(json)?;
        let request = request::post(&collection, &[context.field_manager()], &body)
            .map(request::metadata_only)
            .map_err(json)?;
        let still_wanted = || context.is_unchanged(&self.cron_jobs, meta);
        let error = match context.api_for(cron_job).call_while::<Written>(request, still_wanted).await {
            Ok(written) => {
                let resource_version = written.resource_version().unwrap_or(0);
                let uid = written.uid().unwrap_or_else(|| Uid::new(""));
                let skew = context.now().duration_since(*time).as_secs_f64();
                context.metrics.workloads.cronjob_creation_skew.observe(skew);
                let message = format!("Created job {name}");
                context.record_event(
                    ENTRY.component,
                    cron_job,
                    EventNote::normal("SuccessfulCreate", message),
                );
                let job = ActiveJob { name: name.as_str().into(), uid, resource_version };
                return Ok(self.started(cron_job, *time, Some(job), resource_version));
            }
            // A change has put the key into the queue; a daemon that shuts down starts nothing new.
            Err(crate::runtime::api::ApiError::NotSent(_)) if !still_wanted() => {
                return Err(SyncError::Overtaken { what: what() });
            }
            Err(error) => error,
        };
        let is_name_taken = error.is_already_exists();
        if is_name_taken {
            let there = match context.read::<Job>(cron_job, &format!("{collection}/{name}")).await {
                Ok(there) => there,
                Err(unread) => {
                    // An earlier request of ours may have created it.
                    context.in_doubt_writes.created(&meta.uid, name.clone());
                    return Err(unread);
                }
            };
            context.expect_write(cron_job, Job::RESOURCE, there.meta.resource_version);
            if cron_job.controls(&there.meta) {
                let job = (!there.is_finished()).then(|| reference(&there));
                return Ok(self.started(cron_job, *time, job, there.meta.resource_version));
            }
        }
        let error = SyncError::creation(what(), error);
        if error.may_have_happened() {
            context.in_doubt_writes.created(&meta.uid, name.clone());
        }
        match &error {
            SyncError::Refused { .. } | SyncError::Conflict { .. } => {
                let message = format!("Error creating job: {}", error.reason());
                context.record_event(ENTRY.component, cron_job, EventNote::warning("FailedCreate", message));
            }
            _ => {}
        }
        // The next plan knows that the name is taken. A quota that was changed meanwhile answers 409, too.
        if is_name_taken { Ok(None) } else { Err(error) }
    }

    fn started(
        &self,
        cron_job: &CronJob,
        time: jiff::Timestamp,
        job: Option<ActiveJob>,
        version: u64,
    ) -> Option<(jiff::Timestamp, Option<ActiveJob>)> {
        let owner = &cron_job.meta.uid;
        self.context.expect_write(cron_job, Job::RESOURCE, version);
        let uid = job.as_ref().map(|job| job.uid.to_string()).unwrap_or_default();
        self.memory.started(owner, time, format!("UnexpectedJob {uid}"));
        Some((time, job))
    }
}
