//! CronJobs (upstream `pkg/apis/batch/validation/validation.go`). Their status is not judged.

use serde_json::Value;

use super::errors::{Errors, text};
use super::{job, schedule};

/// The controller appends eleven characters for the name of a Job.
const NAME_LIMIT: usize = 52;
/// The longest part of the name of a time zone, in bytes.
const ZONE_PART_LIMIT: usize = 14;

pub(crate) fn cron_job(object: &Value, errors: &mut Errors) {
    spec(&object["spec"], None, errors);
    let name = text(&object["metadata"], "name");
    if name.len() > NAME_LIMIT {
        errors.invalid("metadata.name", name, format!("must be no more than {NAME_LIMIT} characters"));
    }
}

/// Older servers have accepted longer names, and time zones in schedules; those stay.
pub(crate) fn update(new: &Value, old: &Value, errors: &mut Errors) {
    spec(&new["spec"], Some(&old["spec"]), errors);
}

fn spec(spec: &Value, old: Option<&Value>, errors: &mut Errors) {
    match text(spec, "schedule") {
        "" => errors.required("spec.schedule", ""),
        written => {
            if let Err(why) = schedule::check(written) {
                errors.invalid("spec.schedule", written, why);
            }
            let had_zone = old.is_some_and(|old| text(old, "schedule").contains("TZ"));
            if written.contains("TZ") && !had_zone {
                let why = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
                errors.invalid("spec.schedule", written, why);
            } else if written.contains("TZ") && !spec["timeZone"].is_null() {
                let why = "cannot use both timeZone field and TZ or CRON_TZ in schedule";
                errors.invalid("spec.schedule", written, why);
            }
        }
    }
    errors.non_negative("spec.startingDeadlineSeconds", &spec["startingDeadlineSeconds"]);
    if let Some(zone) = spec["timeZone"].as_str()
        && old.is_none_or(|old| old["timeZone"] != spec["timeZone"])
    {
        time_zone(zone, errors);
    }
    errors.one_of("spec.concurrencyPolicy", &spec["concurrencyPolicy"], &["Allow", "Forbid", "Replace"]);
    let job = &spec["jobTemplate"]["spec"];
    job::spec(job, "spec.jobTemplate.spec", errors);
    if !job["selector"].is_null() {
        let selector = job["selector"].clone();
        errors.invalid("spec.jobTemplate.spec.selector", selector, "`selector` will be auto-generated");
    }
    if job["manualSelector"] == true {
        errors.not_supported("spec.jobTemplate.spec.manualSelector", true, &["nil", "false"]);
    }
    for field in ["successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        errors.non_negative(&format!("spec.{field}"), &spec[field]);
    }
}

fn time_zone(zone: &str, errors: &mut Errors) {
    let field = "spec.timeZone";
    let is_part = |part: &str| {
        !matches!(part, "" | "." | "..")
            && part.len() <= ZONE_PART_LIMIT
            && !part.starts_with('-')
            && part.chars().all(|c| c.is_ascii_alphanumeric() || "._+-".contains(c))
    };
    let unknown = format!("unknown time zone {zone}");
    if zone.is_empty() {
        errors.invalid(field, zone, "timeZone must be nil or non-empty string");
        return;
    }
    if !zone.split('/').all(is_part) {
        errors.invalid(field, zone, unknown);
        return;
    }
    let is_local = zone.eq_ignore_ascii_case("local");
    if is_local {
        let why = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        errors.invalid(field, zone, why);
    }
    // Go knows "Local", in this spelling alone.
    if zone != "Local" && (is_local || !schedule::is_zone(zone)) {
        errors.invalid(field, zone, unknown);
    }
}
