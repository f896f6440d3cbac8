//! The patch of a CronJob.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::Fields;
use crate::model::{ActiveJob, CronJobStatus, Job, Meta, Record as _};

/// The status of a CronJob. `None` when it would change nothing. The list of Jobs is written as a whole.
pub fn cron_job_status(cron_job: &Meta, before: &CronJobStatus, after: &CronJobStatus) -> Option<Value> {
    let CronJobStatus { active, last_schedule, last_successful } = after;
    let mut fields = Fields::default();
    if before.active != *active {
        let job = Job::RESOURCE;
        let reference = |active: &ActiveJob| {
            let mut reference = json!({
                "apiVersion": job.api_version(), "kind": job.kind, "namespace": cron_job.key.namespace,
                "name": active.name, "uid": active.uid,
            });
            if active.resource_version > 0 {
                reference["resourceVersion"] = active.resource_version.to_string().into();
            }
            reference
        };
        let list: Vec<Value> = active.iter().map(reference).collect();
        // An empty list is absent.
        fields.0.insert("active".into(), json!(Some(list).filter(|list| !list.is_empty())));
    }
    let mut time = |name: &str, before: Option<Timestamp>, after: Option<Timestamp>| {
        if before != after {
            fields.0.insert(name.into(), json!(after.map(|time| time.to_string())));
        }
    };
    time("lastScheduleTime", before.last_schedule, *last_schedule);
    time("lastSuccessfulTime", before.last_successful, *last_successful);
    fields.into_patch(cron_job, &Default::default())
}
