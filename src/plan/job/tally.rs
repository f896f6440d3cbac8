//! The counts of the metrics: the difference that a written status makes, and the failures that a policy has handled.

use std::collections::{BTreeMap, BTreeSet};

use super::pods::Owned;
use super::{Observed, Plan, Report, Write, failure_policy};
use crate::model::condition::find;
use crate::model::{Job, JobStatus, Uid};

/// The additions of a written status to the metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Pods that succeeded and are counted; of an Indexed Job indexes.
    pub succeeded: u64,
    /// Pods that failed and are counted.
    pub failed: u64,
    /// Indexes that succeeded.
    pub indexes_succeeded: u64,
    /// Indexes that failed.
    pub indexes_failed: u64,
    /// Whether the Job has succeeded or failed by this status, and why.
    pub finished: Option<(bool, &'static str)>,
}

/// The difference between a status and the one before.
pub fn of_status(job: &Job, settled: &JobStatus) -> Tally {
    let before = &job.status;
    let more = |now: i32, before: i32| u64::try_from(i64::from(now) - i64::from(before)).unwrap_or(0);
    let failed_indexes =
        |status: &JobStatus| status.failed_indexes.as_ref().map_or(0, |indexes| indexes.len());
    let ends = |kind: &str| {
        let condition = find(&settled.conditions, kind).filter(|condition| condition.is_true())?;
        (!before.is_true(kind)).then(|| super::explain::known_reason(&condition.reason))
    };
    let success = ends("Complete").map(|reason| (true, reason));
    Tally {
        succeeded: more(settled.succeeded, before.succeeded),
        failed: more(settled.failed, before.failed),
        indexes_succeeded: more(settled.completed_indexes.len(), before.completed_indexes.len()),
        indexes_failed: more(failed_indexes(settled), failed_indexes(before)),
        finished: success.or_else(|| ends("Failed").map(|reason| (false, reason))),
    }
}

/// The main action of a sync.
pub fn action(plan: &Plan) -> &'static str {
    let has = |is: fn(&Write) -> bool| plan.writes.iter().any(is);
    match () {
        () if has(|write| matches!(write, Write::Create(_))) => "pods_created",
        () if has(|write| matches!(write, Write::Delete(_))) => "pods_deleted",
        () if has(|write| matches!(write, Write::Untrack(_))) => "tracking",
        () => "reconciling",
    }
}

/// Whether the pods of a plan are new, or replace others.
pub fn cause_of_creation(observed: &Observed<'_>, plan: &Plan) -> &'static str {
    let Report::All(account) = &plan.report else { return "new" };
    let has_failed = account.counting.failed > 0;
    match observed.job.replaces_failed_only {
        true if has_failed => "recreate_failed",
        false if has_failed || observed.pods.terminating().next().is_some() => {
            "recreate_terminating_or_failed"
        }
        _ => "new",
    }
}

/// How many of the failures that a written status records were handled by a rule of the failure policy, by its action.
pub fn handled(observed: &Observed<'_>, settled: &JobStatus) -> BTreeMap<&'static str, u64> {
    let (before, after) = (listed(&observed.job.status), listed(settled));
    by_action(observed, |owned| after.contains(owned.uid()) && !before.contains(owned.uid()))
}

/// The same of those that are ignored: they come into no list, and their finalizer goes at once.
pub fn ignored(observed: &Observed<'_>, untracked: &BTreeSet<Uid>) -> BTreeMap<&'static str, u64> {
    let before = listed(&observed.job.status);
    by_action(observed, |owned| untracked.contains(owned.uid()) && !before.contains(owned.uid()))
}

fn by_action(observed: &Observed<'_>, is_due: impl Fn(&Owned) -> bool) -> BTreeMap<&'static str, u64> {
    let mut all = BTreeMap::new();
    if observed.job.failure_policy.is_none() {
        return all;
    }
    for owned in observed.pods.failed().filter(|owned| owned.is_tracked && is_due(owned)) {
        if let Some(matched) = failure_policy::matched(observed.job, &owned.pod) {
            *all.entry(matched.action.name()).or_default() += 1;
        }
    }
    all
}

/// The failed pods that are recorded and not yet counted.
fn listed(status: &JobStatus) -> BTreeSet<&Uid> {
    status.uncounted.iter().flat_map(|lists| &lists.failed).collect()
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{job, observed, pod};
    use super::super::status::{Outcome, settled};
    use super::*;

    #[test]
    fn a_status_adds_what_it_has_more_than_the_one_before() {
        let indexed = r#""completionMode":"Indexed","completions":5,"backoffLimitPerIndex":1"#;
        let before = job(indexed, r#""succeeded":1,"failed":2,"completedIndexes":"0","failedIndexes":"""#);
        let after = r#""succeeded":3,"failed":4,"completedIndexes":"0-2","failedIndexes":"3","conditions":[
            {"type":"Failed","status":"True","reason":"FailedIndexes"}]"#;
        let tally = of_status(&before, &job(indexed, after).status);
        let finished = Some((false, "FailedIndexes"));
        assert_eq!(
            tally,
            Tally { succeeded: 2, failed: 2, indexes_succeeded: 2, indexes_failed: 1, finished }
        );
        assert_eq!(of_status(&before, &before.status), Tally::default());
    }

    #[test]
    fn each_failure_is_handled_once() {
        let policy = r#""podFailurePolicy":{"rules":[{"action":"Ignore","onPodConditions":[{"type":"X"}]},
            {"action":"Count","onPodConditions":[{"type":"Y"}]}]}"#;
        let with = |name: &str, kind: &str| {
            let condition = format!(r#""conditions":[{{"type":"{kind}","status":"True"}}]"#);
            pod(name).failed().status(&condition)
        };
        let check = |status: &str, recorded: &[(&'static str, u64)]| {
            let job = job(policy, status);
            let observed = observed(&job, [with("a", "X"), with("b", "Y"), with("c", "Z")], 5);
            let plan = super::super::plan(&observed);
            let settled = settled(&observed, &plan, &Outcome::default());
            assert_eq!(handled(&observed, &settled), recorded.iter().copied().collect(), "{status}");
            assert_eq!(ignored(&observed, &BTreeSet::new()), BTreeMap::new(), "it was refused");
            let gone = plan.writes.iter().flat_map(|write| match write {
                Write::Untrack(pods) => pods.as_slice(),
                _ => &[],
            });
            let gone: BTreeSet<Uid> = gone.map(|pod| pod.meta.uid.clone()).collect();
            assert_eq!(ignored(&observed, &gone), BTreeMap::from([("Ignore", 1)]), "{status}");
        };
        check("", &[("Count", 1)]);
        check(r#""uncountedTerminatedPods":{"failed":["u-b","u-c"]}"#, &[]);
    }

    #[test]
    fn more_failures_than_one_status_records_are_handled_once_each() {
        let policy = r#""completions":2000,"parallelism":2000,"backoffLimit":2000,
            "podFailurePolicy":{"rules":[{"action":"Count","onPodConditions":[{"type":"Y"}]}]}"#;
        let with = |name: &str, kind: &str| {
            pod(name).failed().status(&format!(r#""conditions":[{{"type":"{kind}","status":"True"}}]"#))
        };
        let job = job(policy, "");
        let pods = (0..600).map(|n| with(&format!("a-{n}"), "Y"));
        let observed = observed(&job, pods, 5);
        let status = settled(&observed, &super::super::plan(&observed), &Outcome::default());
        let recorded = u64::try_from(listed(&status).len()).unwrap();
        assert!(recorded < 600);
        assert_eq!(handled(&observed, &status), BTreeMap::from([("Count", recorded)]));
    }
}
