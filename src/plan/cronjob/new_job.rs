//! The Job that a CronJob creates.

use std::collections::BTreeMap;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::model::{CronJob, Record, Resource};
use crate::plan::OwnerReference;
use crate::plan::pod_body::{Fields, field};

/// The annotation for the time of the schedule.
const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

/// The name of the Job for a time: its minute since 1970. Whoever runs the time asks for the same name.
pub fn name(cron_job: &CronJob, time: Timestamp) -> String {
    format!("{}-{}", cron_job.meta.key.name, time.as_second().div_euclid(60))
}

/// A time of the schedule as the annotation has it.
pub fn written(time: Timestamp, zone: &TimeZone) -> String {
    let text = time.to_zoned(zone.clone()).strftime("%Y-%m-%dT%H:%M:%S%:z").to_string();
    match text.strip_suffix("+00:00") {
        Some(utc) => format!("{utc}Z"),
        None => text,
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct JobBody<'a> {
    api_version: String,
    kind: &'static str,
    metadata: JobMeta<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    spec: Option<&'a RawValue>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct JobMeta<'a> {
    name: &'a str,
    namespace: &'a str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<&'a str, &'a str>,
    annotations: Fields,
    owner_references: [OwnerReference<'a>; 1],
}

/// The body of the Job for a time (upstream: `getJobFromTemplate2`). The spec is copied byte for byte.
///
/// # Errors
/// When the template is not the object that it was decoded as; cannot happen to a decoded one.
pub fn body(cron_job: &CronJob, time: Timestamp, zone: &TimeZone) -> Result<Vec<u8>, serde_json::Error> {
    let (meta, template) = (&cron_job.meta, &cron_job.template);
    let Resource { kind, .. } = CronJob::RESOURCE;
    let api_version = CronJob::RESOURCE.api_version();
    let fields: Fields = serde_json::from_str(&template.json())?;
    let mut annotations = field(&field(&fields, "metadata")?, "annotations")?;
    annotations.insert(SCHEDULED.to_owned(), serde_json::value::to_raw_value(&written(time, zone))?);
    serde_json::to_vec(&JobBody {
        api_version: api_version.clone(),
        kind: "Job",
        metadata: JobMeta {
            name: &name(cron_job, time),
            namespace: &meta.key.namespace,
            labels: template.labels.iter().collect(),
            annotations,
            owner_references: [OwnerReference::controller(&api_version, kind, &meta.key.name, &meta.uid)],
        },
        spec: fields.get("spec").map(|spec| &**spec),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::model::{Interner, Job};

    #[test]
    fn the_job_is_named_by_the_minute_and_says_when_it_was_due() {
        let json = json!({
            "metadata": {"name": "backup", "namespace": "shop", "uid": "u", "resourceVersion": "1"},
            "spec": {"schedule": "@daily", "jobTemplate": {
                "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}, "finalizers": ["x/y"], "name": "z"},
                "spec": {"parallelism": 2, "newer": {"than": "us"}}}},
        });
        let cron_job = CronJob::decode(&json.to_string(), &mut Interner::default()).unwrap();
        let time: Timestamp = "2026-07-01T22:00:30Z".parse().unwrap();
        let berlin = TimeZone::get("Europe/Berlin").unwrap();
        let body: Value = serde_json::from_slice(&body(&cron_job, time, &berlin).unwrap()).unwrap();
        let expected = json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": "backup-29715720", "namespace": "shop", "labels": {"a": "b"},
                "annotations": {"c": "d", "batch.kubernetes.io/cronjob-scheduled-timestamp": "2026-07-02T00:00:30+02:00"},
                "ownerReferences": [{"apiVersion": "batch/v1", "kind": "CronJob", "name": "backup", "uid": "u",
                    "controller": true, "blockOwnerDeletion": true}]},
            "spec": {"parallelism": 2, "newer": {"than": "us"}},
        });
        assert_eq!(body, expected);
        let mut stored = body;
        stored["metadata"]["uid"] = "u-1".into();
        stored["metadata"]["resourceVersion"] = "2".into();
        let job = Job::decode(&stored.to_string(), &mut Interner::default()).unwrap();
        assert_eq!(job.scheduled, Some(time));
        assert_eq!(written(time, &TimeZone::UTC), "2026-07-01T22:00:30Z");
    }
}
