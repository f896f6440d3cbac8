//! The patches of Jobs and of their pods (strategic merges).

use jiff::Timestamp;
use serde_json::{Value, json};

use super::Fields;
use crate::model::pod::job::TRACKING;
use crate::model::{Condition, JobStatus, Meta, Uid};
use crate::plan::OwnerReference;

/// The status of a Job. `None` when it would change nothing. Conditions of other types are not named.
pub fn job_status(job: &Meta, before: &JobStatus, after: &JobStatus) -> Option<Value> {
    let JobStatus {
        active,
        ready,
        terminating,
        succeeded,
        failed,
        start_time,
        completion_time,
        completed_indexes,
        failed_indexes,
        uncounted,
        conditions,
    } = after;
    let mut fields = Fields::default();
    fields.number("active", before.active, *active);
    fields.optional("ready", before.ready, *ready);
    fields.optional("terminating", before.terminating, *terminating);
    fields.number("succeeded", before.succeeded, *succeeded);
    fields.number("failed", before.failed, *failed);
    let mut set = |name: &str, differs: bool, value: Value| {
        if differs {
            fields.0.insert(name.into(), value);
        }
    };
    let time = |time: &Option<Timestamp>| json!(time.map(|time| time.to_string()));
    set("startTime", before.start_time != *start_time, time(start_time));
    set("completionTime", before.completion_time != *completion_time, time(completion_time));
    let is_other = before.completed_indexes != *completed_indexes;
    set("completedIndexes", is_other, completed_indexes.to_string().into());
    let indexes = failed_indexes.as_ref().map(ToString::to_string);
    set("failedIndexes", before.failed_indexes != *failed_indexes, json!(indexes));
    if before.uncounted != *uncounted {
        let (old, new) = (
            before.uncounted.as_deref().cloned().unwrap_or_default(),
            uncounted.as_deref().cloned().unwrap_or_default(),
        );
        let mut lists = json!({});
        for (name, old, new) in
            [("succeeded", old.succeeded, new.succeeded), ("failed", old.failed, new.failed)]
        {
            if old != new {
                // An empty list is absent.
                lists[name] = json!(Some(new).filter(|list| !list.is_empty()));
            }
        }
        set("uncountedTerminatedPods", true, lists);
    }
    let changed: Vec<Value> =
        conditions.iter().filter(|new| !before.conditions.contains(new)).map(condition).collect();
    if !changed.is_empty() {
        // A merge would put new ones first.
        let order: Vec<Value> = conditions.iter().map(|condition| json!({"type": condition.kind})).collect();
        set("$setElementOrder/conditions", true, order.into());
        set("conditions", true, changed.into());
    }
    fields.into_patch(job, &Default::default())
}

fn condition(condition: &Condition) -> Value {
    let Condition { kind, status, reason, message, last_update: _, last_transition } = condition;
    let mut value = json!({"type": kind, "status": status, "reason": reason, "message": message});
    if let Some(at) = last_transition {
        value["lastProbeTime"] = at.to_string().into();
        value["lastTransitionTime"] = at.to_string().into();
    }
    value
}

fn exact(pod: &Meta) -> Value {
    json!({"metadata": {"uid": pod.uid, "resourceVersion": pod.resource_version.to_string()}})
}

/// Takes the finalizer of Jobs off a pod: `exactly` as it was observed, or, where the pod is counted or none will count
/// it, whatever became of it.
pub fn untrack(pod: &Meta, exactly: bool) -> Value {
    let mut patch = if exactly { exact(pod) } else { json!({"metadata": {"uid": pod.uid}}) };
    patch["metadata"]["$deleteFromPrimitiveList/finalizers"] = json!([TRACKING]);
    patch
}

/// Gives a pod the finalizer back.
pub fn track(pod: &Meta) -> Value {
    let mut patch = exact(pod);
    patch["metadata"]["finalizers"] = json!([TRACKING]);
    patch
}

/// Adopts a pod, and gives it the finalizer.
pub fn adopt_tracked(pod: &Meta, owner: &OwnerReference<'_>) -> Value {
    let mut patch = track(pod);
    patch["metadata"]["ownerReferences"] = json!([owner]);
    patch
}

/// Releases a pod, and takes its finalizer. Its other owners stay.
pub fn release_untracked(pod: &Meta, owner: &Uid) -> Value {
    let mut patch = untrack(pod, true);
    patch["metadata"]["ownerReferences"] = json!([{"$patch": "delete", "uid": owner}]);
    patch
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Interner, Job, Record};

    fn job(status: &str) -> Job {
        let json = format!(
            r#"{{"metadata":{{"name":"j","namespace":"shop","uid":"u","resourceVersion":"7"}},"spec":{{}},
                "status":{status}}}"#
        );
        Job::decode(&json, &mut Interner::default()).unwrap()
    }

    #[track_caller]
    fn check(before: &str, after: &str, expected: Value) {
        let (before, after) = (job(before), job(after).status);
        let patch = job_status(&before.meta, &before.status, &after);
        assert_eq!(patch.map(|patch| patch["status"].clone()).unwrap_or_default(), expected);
    }

    #[test]
    fn a_patch_names_what_differs_and_takes_back_what_is_absent() {
        check(r#"{"active":1,"ready":0}"#, r#"{"active":1,"ready":0}"#, Value::Null);
        check(
            "{}",
            r#"{"ready":0,"terminating":0,"failedIndexes":""}"#,
            json!({"ready": 0, "terminating": 0, "failedIndexes": ""}),
        );
        check(r#"{"startTime":"2026-01-01T00:00:00Z"}"#, "{}", json!({"startTime": null}));
        check(
            r#"{"completedIndexes":"0-4"}"#,
            r#"{"completedIndexes":"0-3","completionTime":"2026-01-01T00:00:00Z"}"#,
            json!({"completedIndexes": "0-3", "completionTime": "2026-01-01T00:00:00Z"}),
        );
    }

    #[test]
    fn each_list_of_uncounted_pods_is_written_as_a_whole() {
        check("{}", r#"{"uncountedTerminatedPods":{}}"#, json!({"uncountedTerminatedPods": {}}));
        check(
            r#"{"uncountedTerminatedPods":{"succeeded":["a"],"failed":["b"]}}"#,
            r#"{"uncountedTerminatedPods":{"failed":["b","c"]},"succeeded":1}"#,
            json!({"uncountedTerminatedPods": {"succeeded": null, "failed": ["b", "c"]}, "succeeded": 1}),
        );
    }

    #[test]
    fn a_condition_has_two_equal_times() {
        let after = r#"{"conditions":[{"type":"Failed","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z"}]}"#;
        let time = "2026-01-01T00:00:00Z";
        check(
            "{}",
            after,
            json!({"$setElementOrder/conditions": [{"type": "Failed"}], "conditions": [{"type": "Failed", "status": "True", "reason": "", "message": "",
            "lastProbeTime": time, "lastTransitionTime": time}]}),
        );
    }
}
