//! Jobs and CronJobs (upstream `pkg/apis/batch/validation/validation.go`).

use serde_json::Value;

use super::errors::{Errors, text};
use super::{metadata, names, schedule, workload};
use crate::selector::LabelSelector;

/// The label of the pods of a Job, and its older name.
pub(crate) const CONTROLLER_UID: [&str; 2] = ["batch.kubernetes.io/controller-uid", "controller-uid"];
/// The same with the name of the Job.
pub(crate) const JOB_NAME: [&str; 2] = ["batch.kubernetes.io/job-name", "job-name"];

/// The controller appends eleven characters for the name of a Job.
const CRON_JOB_NAME_LIMIT: usize = 52;

pub(crate) fn job(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    if spec["manualSelector"] != true && !spec["selector"].is_null() {
        generated_selector(object, errors);
    }
    job_spec(spec, "spec", errors);
    if spec["selector"].is_null() {
        errors.required("spec.selector", "");
    } else {
        workload::label_selector(&spec["selector"], "spec.selector", errors);
    }
    let labels = &spec["template"]["metadata"]["labels"];
    let matches = match LabelSelector::from_spec(&spec["selector"]) {
        Ok(selector) => selector.matches(labels),
        Err(_) => !spec["selector"].is_null(),
    };
    if !matches {
        workload::mismatch(labels, errors);
    }
    let completions = spec["completions"].as_i64().unwrap_or(0);
    if spec["completionMode"] == "Indexed" && completions > 0 {
        let name = text(&object["metadata"], "name");
        let hostname = format!("{name}-{}", completions - 1);
        if !names::dns1123_label(&hostname).is_empty() {
            let why = format!("will not able to create pod with invalid DNS label: {hostname}");
            errors.invalid("metadata.name", name, why);
        }
    }
}

/// The server has given the pods these labels, unless the client had set others.
fn generated_selector(object: &Value, errors: &mut Errors) {
    let (uid, name) = (text(&object["metadata"], "uid"), text(&object["metadata"], "name"));
    let template = &object["spec"]["template"]["metadata"]["labels"];
    let wanted =
        [(CONTROLLER_UID[1], uid), (JOB_NAME[1], name), (CONTROLLER_UID[0], uid), (JOB_NAME[0], name)];
    for (key, value) in wanted {
        let path = "spec.template.metadata.labels";
        match template[key].as_str() {
            None => errors.required(&format!("{path}[{key}]"), &format!("must be '{value}'")),
            Some(found) if found != value => {
                let found: Value = template.clone();
                errors.invalid(&format!("{path}[{key}]"), found, format!("must be '{value}'"));
            }
            Some(_) => {}
        }
    }
    let labels: serde_json::Map<String, Value> =
        wanted.iter().map(|(key, value)| ((*key).to_owned(), (*value).into())).collect();
    let selector = &object["spec"]["selector"];
    if LabelSelector::from_spec(selector).is_ok_and(|selector| !selector.matches(&Value::Object(labels))) {
        errors.invalid("spec.selector", selector.clone(), "`selector` not auto-generated");
    }
}

fn job_spec(spec: &Value, path: &str, errors: &mut Errors) {
    for field in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        errors.non_negative(&format!("{path}.{field}"), &spec[field]);
    }
    if !spec["maxFailedIndexes"].is_null() && spec["backoffLimitPerIndex"].is_null() {
        errors.required(&format!("{path}.backoffLimitPerIndex"), "when maxFailedIndexes is specified");
    }
    errors.one_of(&format!("{path}.completionMode"), &spec["completionMode"], &["NonIndexed", "Indexed"]);
    if spec["completionMode"] == "Indexed" {
        if spec["completions"].is_null() {
            errors.required(&format!("{path}.completions"), "when completion mode is Indexed");
        }
        if let Some(parallelism) = spec["parallelism"].as_i64().filter(|number| *number > 100_000) {
            let why = "must be less than or equal to 100000 when completion mode is Indexed";
            errors.invalid(&format!("{path}.parallelism"), parallelism, why);
        }
    } else {
        for field in ["backoffLimitPerIndex", "maxFailedIndexes", "successPolicy"] {
            if !spec[field].is_null() {
                let value = spec[field].clone();
                errors.invalid(&format!("{path}.{field}"), value, "requires indexed completion mode");
            }
        }
    }
    let policies: &[&str] =
        if spec["podFailurePolicy"].is_null() { &["Failed", "TerminatingOrFailed"] } else { &["Failed"] };
    errors.one_of(&format!("{path}.podReplacementPolicy"), &spec["podReplacementPolicy"], policies);
    let template = &spec["template"];
    workload::template(template, &format!("{path}.template"), errors);
    let policy = text(&template["spec"], "restartPolicy");
    let field = format!("{path}.template.spec.restartPolicy");
    match policy {
        "" | "Always" => errors.required(&field, "valid values: \"OnFailure\", \"Never\""),
        "OnFailure" if !spec["podFailurePolicy"].is_null() => {
            errors.invalid(&field, policy, "only \"Never\" is supported when podFailurePolicy is specified");
        }
        "OnFailure" | "Never" => {}
        other => errors.not_supported(&field, other, &["OnFailure", "Never"]),
    }
}

pub(crate) fn job_update(new: &Value, old: &Value, errors: &mut Errors) {
    job(new, errors);
    let (new, old) = (&new["spec"], &old["spec"]);
    // An indexed Job grows and shrinks by both numbers together.
    let elastic = new["completionMode"] == "Indexed" && new["completions"] == new["parallelism"];
    let mut fixed = vec![
        "selector",
        "completionMode",
        "podFailurePolicy",
        "backoffLimitPerIndex",
        "managedBy",
        "successPolicy",
    ];
    if !elastic {
        fixed.insert(0, "completions");
    }
    // A suspended Job can be given other nodes before it begins.
    if old["suspend"] != true {
        fixed.push("template");
    }
    for field in fixed {
        errors.immutable(&format!("spec.{field}"), &new[field], &old[field]);
    }
}

pub(crate) fn job_status(new: &Value, old: &Value, errors: &mut Errors) {
    let (new, old) = (&new["status"], &old["status"]);
    for field in ["active", "succeeded", "failed", "ready", "terminating"] {
        errors.non_negative(&format!("status.{field}"), &new[field]);
    }
    for field in ["failed", "succeeded"] {
        let count = |status: &Value| status[field].as_i64().unwrap_or(0);
        if count(new) < count(old) {
            let why = format!("cannot decrease the {field} counter");
            errors.invalid(&format!("status.{field}"), count(new), why);
        }
    }
}

pub(crate) fn cron_job(object: &Value, errors: &mut Errors) {
    cron_job_spec(object, false, errors);
    let name = text(&object["metadata"], "name");
    if name.len() > CRON_JOB_NAME_LIMIT {
        let why = format!("must be no more than {CRON_JOB_NAME_LIMIT} characters");
        errors.invalid("metadata.name", name, why);
    }
}

pub(crate) fn cron_job_update(new: &Value, old: &Value, errors: &mut Errors) {
    cron_job_spec(new, text(&old["spec"], "schedule").contains("TZ"), errors);
}

fn cron_job_spec(object: &Value, allows_zone: bool, errors: &mut Errors) {
    let spec = &object["spec"];
    match text(spec, "schedule") {
        "" => errors.required("spec.schedule", ""),
        written => {
            if let Err(why) = schedule::check(written) {
                errors.invalid("spec.schedule", written, why);
            }
            if written.contains("TZ") && !allows_zone {
                let why = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
                errors.invalid("spec.schedule", written, why);
            }
        }
    }
    errors.non_negative("spec.startingDeadlineSeconds", &spec["startingDeadlineSeconds"]);
    if let Some(zone) = spec["timeZone"].as_str() {
        time_zone(zone, errors);
    }
    errors.one_of("spec.concurrencyPolicy", &spec["concurrencyPolicy"], &["Allow", "Forbid", "Replace"]);
    let job = &spec["jobTemplate"];
    metadata::labels(&job["metadata"]["labels"], "spec.jobTemplate.labels", errors);
    job_spec(&job["spec"], "spec.jobTemplate.spec", errors);
    if !job["spec"]["selector"].is_null() {
        let selector = job["spec"]["selector"].clone();
        errors.invalid("spec.jobTemplate.spec.selector", selector, "`selector` will be auto-generated");
    }
    if job["spec"]["manualSelector"] == true {
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
            && !part.starts_with('-')
            && part.chars().all(|c| c.is_ascii_alphanumeric() || "._+-".contains(c))
    };
    if zone.is_empty() {
        errors.invalid(field, zone, "timeZone must be nil or non-empty string");
    } else if zone.eq_ignore_ascii_case("local") {
        let why = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        errors.invalid(field, zone, why);
    } else if !zone.split('/').all(is_part) || !schedule::is_zone(zone) {
        errors.invalid(field, zone, format!("unknown time zone {zone}"));
    }
}

/// The template of a PodTemplate.
pub(crate) fn pod_template(object: &Value, errors: &mut Errors) {
    workload::template(&object["template"], "template", errors);
    let policy = &object["template"]["spec"]["restartPolicy"];
    errors.one_of("template.spec.restartPolicy", policy, &["Always", "OnFailure", "Never"]);
}
