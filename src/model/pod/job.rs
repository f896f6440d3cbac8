//! The part of a pod that only its Job reads.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::{StatusWire, TerminatedWire};
use crate::model::intern::Interner;
use crate::model::job::Job;
use crate::model::record::Record;
use crate::model::wire::MetaWire;

/// The finalizer that keeps a pod until its Job has counted it.
pub const TRACKING: &str = "batch.kubernetes.io/job-tracking";

/// The annotation, and label, for the completion index.
pub const COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// The annotation for how often the pods of an index have failed before this one.
pub const FAILURE_COUNT: &str = "batch.kubernetes.io/job-index-failure-count";

/// The annotation for how many of them the failure policy has ignored.
pub const IGNORED_FAILURE_COUNT: &str = "batch.kubernetes.io/job-index-ignored-failure-count";

/// The fields of a pod with the finalizer of Jobs, or of a Job, that Jobs read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobPod {
    /// Whether it has the finalizer [`TRACKING`].
    pub has_finalizer: bool,
    /// The annotation [`COMPLETION_INDEX`]; `None` where it is not a number of 0 and more.
    pub index: Option<i32>,
    /// The annotation [`FAILURE_COUNT`]; 0 where it does not parse.
    pub failure_count: i32,
    /// The annotation [`IGNORED_FAILURE_COUNT`]; 0 where it does not parse.
    pub ignored_failure_count: i32,
    /// Restarts of all containers, init containers included.
    pub restarts: i32,
    /// When it ended, if it has ended or is being deleted: the last container's end, else when it ceased to be ready, else
    /// when its deletion began, else its creation (upstream: `getFinishedTime` of `backoff_utils.go`).
    pub finished: Timestamp,
    /// Name and exit code of each terminated container, the regular ones first. Of a pod that failed or is being deleted.
    pub exits: Box<[(Arc<str>, i32)]>,
    /// Types and statuses of its conditions. Of such a pod, too.
    pub conditions: Box<[(Arc<str>, Arc<str>)]>,
}

impl JobPod {
    /// The part, of a pod that has one.
    pub(super) fn of(
        metadata: &MetaWire<'_>,
        status: &StatusWire<'_>,
        interner: &mut Interner,
    ) -> Option<Box<JobPod>> {
        let has_finalizer =
            metadata.finalizers.iter().flatten().any(|finalizer| finalizer.as_str() == TRACKING);
        if !has_finalizer && !metadata.is_controlled_by(&Job::RESOURCE) {
            return None;
        }
        let number =
            |annotation| metadata.annotations.get(annotation)?.parse().ok().filter(|count| *count >= 0);
        let is_ending = status.phase.as_str() == "Failed" || metadata.deletion().is_some();
        let mut exits = Vec::new();
        let mut conditions = Vec::new();
        if is_ending {
            let containers = [&status.container_statuses, &status.init_container_statuses];
            for container in containers.into_iter().flatten().flatten() {
                let code = container.state.as_ref().and_then(|state| state.terminated.as_ref()?.exit_code);
                exits.extend(code.map(|code| (interner.string(container.name.as_str()), code)));
            }
            let all = status.conditions.iter().flatten();
            conditions.extend(all.map(|condition| {
                (interner.string(condition.kind.as_str()), interner.string(condition.status.as_str()))
            }));
        }
        let restarts = status.containers().filter_map(|container| container.restart_count);
        Some(Box::new(JobPod {
            has_finalizer,
            index: number(COMPLETION_INDEX),
            failure_count: number(FAILURE_COUNT).unwrap_or(0),
            ignored_failure_count: number(IGNORED_FAILURE_COUNT).unwrap_or(0),
            restarts: restarts.fold(0, |sum: i32, count| sum.saturating_add(count.max(0))),
            finished: finished(metadata, status),
            exits: exits.into(),
            conditions: conditions.into(),
        }))
    }

    /// The bytes of heap that it takes.
    pub(super) fn heap_bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.exits) + size_of_val(&*self.conditions)
    }
}

fn finished(metadata: &MetaWire<'_>, status: &StatusWire<'_>) -> Timestamp {
    let end = |container: &super::ContainerStatusWire<'_>| {
        let terminated: &TerminatedWire<'_> = container.state.as_ref()?.terminated.as_ref()?;
        terminated.finished_at.time().filter(|time| *time != Timestamp::UNIX_EPOCH)
    };
    let ends: Option<Vec<Timestamp>> = status.containers().map(end).collect();
    let unready = || {
        let ready =
            status.conditions.iter().flatten().find(|condition| condition.kind.as_str() == "Ready")?;
        ready.last_transition_time.filter(|_| ready.status.as_str() == "False").map(|time| time.0)
    };
    let deleted = || {
        let (due, grace) = metadata.deletion()?;
        due.checked_sub(SignedDuration::from_secs(grace)).ok()
    };
    let last = ends.and_then(|ends| ends.into_iter().max());
    last.or_else(unready).or_else(deleted).unwrap_or_else(|| metadata.created())
}

#[cfg(test)]
mod tests {
    use crate::model::{Interner, Pod, Record};

    fn pod(metadata: &str, status: &str) -> Pod {
        let json = format!(
            r#"{{"metadata":{{"name":"p","namespace":"shop","uid":"u","resourceVersion":"7",
                "creationTimestamp":"2026-01-01T00:00:00Z"{metadata}}},"status":{status}}}"#
        );
        Pod::decode(&json, &mut Interner::default()).unwrap()
    }

    const TRACKED: &str = r#","finalizers":["a/b","batch.kubernetes.io/job-tracking"]"#;

    #[test]
    fn only_pods_of_jobs_and_those_with_the_finalizer_have_the_part() {
        let owned = |api_version: &str, kind: &str| {
            let owner = format!(
                r#","ownerReferences":[{{"apiVersion":"{api_version}","kind":"{kind}","name":"j","uid":"o",
                    "controller":true}}]"#
            );
            pod(&owner, "{}").job.map(|job| job.has_finalizer)
        };
        assert_eq!(
            [owned("batch/v1", "Job"), owned("apps/v1", "ReplicaSet"), owned("example.com/v1", "Job")],
            [Some(false), None, None]
        );
        assert!(pod(TRACKED, "{}").job.unwrap().has_finalizer);
        assert!(pod(r#","finalizers":["a/b"]"#, "{}").job.is_none());
    }

    #[test]
    fn annotations_that_do_not_parse_count_as_none() {
        let of = |index: &str, count: &str| {
            let annotations = format!(
                r#"{TRACKED},"annotations":{{"batch.kubernetes.io/job-completion-index":"{index}",
                    "batch.kubernetes.io/job-index-failure-count":"{count}"}}"#
            );
            let job = pod(&annotations, "{}").job.unwrap();
            (job.index, job.failure_count)
        };
        assert_eq!(
            [of("3", "2"), of("-1", "-2"), of("x", "99999999999")],
            [(Some(3), 2), (None, 0), (None, 0)]
        );
    }

    #[track_caller]
    fn check_finished(metadata: &str, status: &str, seconds: i64) {
        let pod = pod(&format!("{TRACKED}{metadata}"), status);
        assert_eq!(pod.job.unwrap().finished.as_second() - pod.meta.created.as_second(), seconds, "{status}");
    }

    #[test]
    fn a_pod_finished_when_its_last_container_did_or_else_when_it_was_not_ready_or_deleted() {
        let ended = |at: &str| {
            format!(r#"{{"name":"c","state":{{"terminated":{{"exitCode":1,"finishedAt":{at}}}}}}}"#)
        };
        let (first, last) = (ended(r#""2026-01-01T00:00:05Z""#), ended(r#""2026-01-01T00:00:07Z""#));
        let ready =
            r#""conditions":[{"type":"Ready","status":"False","lastTransitionTime":"2026-01-01T00:00:09Z"}]"#;
        check_finished("", &format!(r#"{{"containerStatuses":[{first},{last}],{ready}}}"#), 7);
        check_finished(
            "",
            &format!(r#"{{"containerStatuses":[{first}],"initContainerStatuses":[{last}]}}"#),
            7,
        );
        check_finished("", &format!(r#"{{"containerStatuses":[{first},{}],{ready}}}"#, ended("null")), 9);
        let deleted = r#","deletionTimestamp":"2026-01-01T00:00:30Z","deletionGracePeriodSeconds":10"#;
        check_finished(deleted, r#"{"containerStatuses":[{"name":"c"}]}"#, 20);
        check_finished("", "{}", 0);
    }

    #[test]
    fn exits_and_conditions_are_kept_of_pods_that_failed_or_are_being_deleted() {
        let status = |phase: &str| {
            format!(
                r#"{{"phase":"{phase}","conditions":[{{"type":"DisruptionTarget","status":"True"}}],
                    "initContainerStatuses":[{{"name":"i","restartCount":2,"state":{{"terminated":{{"exitCode":0}}}}}}],
                    "containerStatuses":[{{"name":"c","restartCount":3,"state":{{"terminated":{{"exitCode":42}}}}}},
                        {{"name":"d","state":{{"running":{{}}}}}}]}}"#
            )
        };
        let failed = pod(TRACKED, &status("Failed")).job.unwrap();
        assert_eq!(*failed.exits, [("c".into(), 42), ("i".into(), 0)]);
        assert_eq!(*failed.conditions, [("DisruptionTarget".into(), "True".into())]);
        assert_eq!(failed.restarts, 5);
        let running = pod(TRACKED, &status("Running")).job.unwrap();
        assert!(running.exits.is_empty() && running.conditions.is_empty());
        let deleting = format!(r#"{TRACKED},"deletionTimestamp":"2026-01-01T00:00:30Z""#);
        assert_eq!(pod(&deleting, &status("Running")).job.unwrap().exits.len(), 2);
    }
}
