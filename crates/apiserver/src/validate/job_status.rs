//! The status of a Job, which another controller may write (KEP-4368). Most rules apply only if their field changes, so that
//! an old fault, or a spec that has just changed, does not block the controller that would correct it.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::Value;

use super::errors::{Errors, elements};
use super::{index_list, job};

const COUNTERS: [&str; 5] = ["active", "succeeded", "failed", "ready", "terminating"];

/// Whether a condition of the status is true.
pub(super) fn is_true(status: &Value, kind: &str) -> bool {
    has(status, kind, "True")
}

fn has(status: &Value, kind: &str, state: &str) -> bool {
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == kind && condition["status"] == state)
}

/// The new status and the old one.
struct Change<'a> {
    spec: &'a Value,
    new: &'a Value,
    old: &'a Value,
}

impl Change<'_> {
    /// Whether a condition becomes true, or ceases to be.
    fn turns(&self, kind: &str) -> bool {
        is_true(self.new, kind) != is_true(self.old, kind)
    }

    fn is_finished(&self) -> bool {
        is_finished(self.new)
    }

    fn finishes(&self) -> bool {
        is_finished(self.new) != is_finished(self.old)
    }

    fn changes(&self, field: &str) -> bool {
        self.new[field] != self.old[field]
    }

    /// The same for a number, of which 0 is the same as none.
    fn counts(&self, field: &str) -> bool {
        number(self.new, field) != number(self.old, field)
    }
}

fn is_finished(status: &Value) -> bool {
    is_true(status, "Complete") || is_true(status, "Failed")
}

fn number(status: &Value, field: &str) -> i64 {
    status[field].as_i64().unwrap_or(0)
}

fn time(status: &Value, field: &str) -> Option<Timestamp> {
    status[field].as_str()?.parse().ok()
}

pub(crate) fn update(new: &Value, old: &Value, errors: &mut Errors) {
    let change = Change { spec: &new["spec"], new: &new["status"], old: &old["status"] };
    for field in COUNTERS {
        errors.non_negative(&format!("status.{field}"), &change.new[field]);
    }
    uncounted_pods(change.new, errors);
    ends(&change, errors);
    times(&change, errors);
    finished(&change, errors);
    index_lists(&change, errors);
    counters(&change, errors);
    exclusive(change.new, "SuccessCriteriaMet", "Failed", errors);
    exclusive(change.new, "SuccessCriteriaMet", "FailureTarget", errors);
    if !change.spec["successPolicy"].is_null()
        && is_true(change.new, "Complete")
        && !is_true(change.new, "SuccessCriteriaMet")
    {
        let why = "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True";
        errors.invalid_hidden(CONDITIONS, why);
    }
    kept(&change, errors);
}

const CONDITIONS: &str = "status.conditions";

/// A UID stands in one of the two lists, and once.
fn uncounted_pods(status: &Value, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    let uncounted = &status["uncountedTerminatedPods"];
    for list in ["succeeded", "failed"] {
        for (path, uid) in elements(uncounted, list, "status.uncountedTerminatedPods") {
            let uid = uid.as_str().unwrap_or_default();
            if uid.is_empty() {
                errors.invalid(&path, uid, "must not be empty");
            } else if !seen.insert(uid) {
                errors.duplicate(&path, uid);
            }
        }
    }
}

fn exclusive(status: &Value, one: &str, other: &str, errors: &mut Errors) {
    if is_true(status, one) && is_true(status, other) {
        errors.invalid_hidden(CONDITIONS, &format!("cannot set {one}=True and {other}=true conditions"));
    }
}

/// The conditions that say how the Job ends.
fn ends(change: &Change<'_>, errors: &mut Errors) {
    if change.turns("Complete") || change.turns("Failed") {
        exclusive(change.new, "Complete", "Failed", errors);
    }
    if change.turns("Complete") || change.turns("FailureTarget") {
        exclusive(change.new, "Complete", "FailureTarget", errors);
    }
}

fn times(change: &Change<'_>, errors: &mut Errors) {
    let (new, field) = (change.new, "status.completionTime");
    let (is_complete, completion) = (is_true(new, "Complete"), &new["completionTime"]);
    let ends = change.turns("Complete") || change.changes("completionTime");
    if ends && !completion.is_null() && !is_complete {
        let why = "cannot set completionTime when there is no Complete=True condition";
        errors.invalid(field, completion.clone(), why);
    }
    if ends && completion.is_null() && is_complete {
        errors.required(field, "completionTime is required for Complete jobs");
    }
    if (change.changes("startTime") || change.changes("completionTime"))
        && let (Some(start), Some(end)) = (time(new, "startTime"), time(new, "completionTime"))
        && end < start
    {
        errors.invalid(field, completion.clone(), "must be equal to or after `startTime`");
    }
}

/// A finished Job has told its end before, and has no pods left.
fn finished(change: &Change<'_>, errors: &mut Errors) {
    let new = change.new;
    if (change.turns("Failed") || change.changes("failedIndexes"))
        && is_true(new, "Failed")
        && !is_true(new, "FailureTarget")
    {
        let why = "cannot set Failed=True condition without the FailureTarget=true condition";
        errors.invalid_hidden(CONDITIONS, why);
    }
    if (change.turns("Complete") || change.turns("SuccessCriteriaMet"))
        && is_true(new, "Complete")
        && !is_true(new, "SuccessCriteriaMet")
    {
        let why = "cannot set Complete=True condition without the SuccessCriteriaMet=true condition";
        errors.invalid_hidden(CONDITIONS, why);
    }
    if !change.is_finished() {
        return;
    }
    if (change.finishes() || change.counts("active")) && number(new, "active") > 0 {
        let why = "active>0 is invalid for finished job";
        errors.invalid("status.active", number(new, "active"), why);
    }
    // A suspended Job without completions ends before it has begun.
    let is_empty = change.spec["suspend"] == true && change.spec["completions"] == 0;
    if (change.finishes() || change.changes("startTime")) && !is_empty && new["startTime"].is_null() {
        errors.required("status.startTime", "startTime is required for finished job");
    }
    let uncounted = &new["uncountedTerminatedPods"];
    let size = |list: &str| uncounted[list].as_array().map_or(0, Vec::len);
    if (change.finishes() || change.changes("uncountedTerminatedPods"))
        && size("failed") + size("succeeded") > 0
    {
        // Messages show upstream's internal type, whose fields have Go's names.
        let shown =
            format!("{{\"Succeeded\":{},\"Failed\":{}}}", uncounted["succeeded"], uncounted["failed"]);
        errors.invalid_shown("status.uncountedTerminatedPods", &shown, "must be empty for finished job");
    }
}

fn index_lists(change: &Change<'_>, errors: &mut Errors) {
    let (spec, new) = (change.spec, change.new);
    let completed = new["completedIndexes"].as_str().unwrap_or_default();
    let failed = new["failedIndexes"].as_str();
    let (completed_path, failed_path) = ("status.completedIndexes", "status.failedIndexes");
    let before = change.old["completedIndexes"].as_str().unwrap_or_default();
    let (new_completed, new_failed) = (completed != before, change.changes("failedIndexes"));
    let completions = spec["completions"].as_i64();
    let has_limit = !spec["backoffLimitPerIndex"].is_null();
    if let Some(completions) = completions.filter(|_| new_completed)
        && let Err(why) = index_list::count(completed, completions)
    {
        errors.invalid(completed_path, completed, format!("error parsing completedIndexes: {why}"));
    }
    if let (Some(completions), Some(failed)) = (completions.filter(|_| new_failed && has_limit), failed)
        && let Err(why) = index_list::count(failed, completions)
    {
        errors.invalid(failed_path, failed, format!("error parsing failedIndexes: {why}"));
    }
    if new_completed && !completed.is_empty() && !job::is_indexed(spec) {
        let why = "cannot set non-empty completedIndexes when non-indexed completion mode";
        errors.invalid(completed_path, completed, why);
    }
    if let Some(failed) = failed.filter(|_| new_failed && !has_limit) {
        let why = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
        errors.invalid(failed_path, failed, why);
    }
    if let (Some(completions), Some(failed)) = (completions.filter(|_| new_failed || new_completed), failed)
        && let Some(index) = index_list::overlap(completed, failed, completions)
    {
        let why = format!("failedIndexes and completedIndexes overlap at index: {index}");
        errors.invalid(failed_path, failed, why);
    }
}

fn counters(change: &Change<'_>, errors: &mut Errors) {
    let new = change.new;
    let terminating = number(new, "terminating");
    if (change.finishes() || change.changes("terminating")) && terminating > 0 && change.is_finished() {
        errors.invalid("status.terminating", terminating, "terminating>0 is invalid for finished job");
    }
    let ready = number(new, "ready");
    if (change.changes("ready") || change.counts("active"))
        && !new["ready"].is_null()
        && ready > number(new, "active")
    {
        errors.invalid("status.ready", ready, "cannot set more ready pods than active");
    }
}

/// Conditions of a Job that stay once they are true.
fn kept(change: &Change<'_>, errors: &mut Errors) {
    let (new, old) = (change.new, change.old);
    for kind in ["Failed", "Complete", "FailureTarget"] {
        if is_true(old, kind) && !is_true(new, kind) {
            let why = format!("cannot disable the terminal {kind}=True condition");
            errors.invalid_hidden(CONDITIONS, &why);
        }
    }
    // An Indexed Job that shrinks has less to do, and so has done less.
    let is_elastic = job::is_indexed(change.spec) && change.spec["completions"] == change.spec["parallelism"];
    for field in ["failed", "succeeded"].into_iter().filter(|field| *field == "failed" || !is_elastic) {
        if number(new, field) < number(old, field) {
            let why = format!("cannot decrease the {field} counter");
            errors.invalid(&format!("status.{field}"), number(new, field), why);
        }
    }
    let both = !new["completionTime"].is_null() && !old["completionTime"].is_null();
    if both && change.changes("completionTime") {
        errors.invalid("status.completionTime", new["completionTime"].clone(), "field is immutable");
    }
    let resumes = is_true(old, "Suspended") && has(new, "Suspended", "False");
    if !old["startTime"].is_null()
        && change.changes("startTime")
        && !resumes
        && change.spec["suspend"] != true
    {
        let why = "field is immutable for unsuspended job once set";
        errors.invalid("status.startTime", new["startTime"].clone(), why);
    }
    if is_true(old, "SuccessCriteriaMet") && !is_true(new, "SuccessCriteriaMet") {
        errors.invalid_hidden(CONDITIONS, "cannot disable the SuccessCriteriaMet=True condition");
    }
    if is_true(old, "Complete") && change.turns("SuccessCriteriaMet") && is_true(new, "SuccessCriteriaMet") {
        let why = "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions";
        errors.invalid_hidden(CONDITIONS, why);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::validate::tests::check_status;

    fn job(spec: Value, status: Value) -> Value {
        json!({"metadata": {"name": "j", "namespace": "shop", "uid": "u"}, "spec": spec, "status": status})
    }

    #[test]
    fn an_old_fault_does_not_block_the_controller_that_does_not_touch_it() {
        // Written before these rules existed.
        let faulty = json!({"conditions": [{"type": "Failed", "status": "True"}], "active": 2, "ready": 3,
                            "completedIndexes": "x", "failedIndexes": "9", "uncountedTerminatedPods": {"failed": ["a"]}});
        let mut mended = faulty.clone();
        mended["failed"] = json!(1);
        check_status(
            "Job",
            job(json!({"completions": 3}), mended),
            job(json!({"completions": 3}), faulty),
            &[],
        );
    }

    #[test]
    fn a_start_moves_only_as_the_job_is_resumed() {
        let suspended = |state: &str, start: &str| json!({"startTime": start, "conditions": [{"type": "Suspended", "status": state}]});
        let old = job(json!({"suspend": false}), suspended("True", "2026-01-01T00:00:00Z"));
        let later = "2026-01-01T00:00:09Z";
        check_status("Job", job(json!({"suspend": false}), suspended("False", later)), old.clone(), &[]);
        let why = format!(
            "status.startTime: Invalid value: \"{later}\": field is immutable for unsuspended job once set"
        );
        check_status("Job", job(json!({"suspend": false}), suspended("True", later)), old.clone(), &[&why]);
        check_status("Job", job(json!({"suspend": true}), json!({})), old, &[]);
    }
}
