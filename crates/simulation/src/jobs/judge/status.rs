//! The invariants over writes to the status: JB3, JB5 to JB9, JB12, JB13 and JB15.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::facts::{
    account, action, canonical, condition, failures_before, has_ended, has_failed, has_succeeded, index,
    indexes, is_finished, is_indexed, is_terminating, is_tracked, may_be, status_indexes, time, uncounted,
};
use super::{Commit, Judge, is_same_fate, lost_conditions, without};
use crate::engine::breach::Breach;
use crate::engine::objects::{is_deleting, is_live, name, number, text, uid};

impl Judge {
    pub(super) fn judge_status(
        &self,
        commit: &Commit<'_>,
        before: &Value,
        after: &Value,
    ) -> Result<(), Breach> {
        if is_foreign(before) {
            return commit.breach("JB15", "another controller manages it");
        }
        if commit.call.body["metadata"]["resourceVersion"].as_str().is_none() {
            return commit.breach("JB3", "the status carries no resourceVersion");
        }
        if is_finished(before) {
            return commit.breach("JB6", "the Job is finished already");
        }
        self.judge_lists(commit, before, after)?;
        self.judge_indexes(commit, before, after)?;
        self.judge_fate(commit, before, after)?;
        judge_start(commit, before, after)
    }

    /// JB3, JB5: the lists and the counters.
    fn judge_lists(&self, commit: &Commit<'_>, before: &Value, after: &Value) -> Result<(), Breach> {
        let ledger = self.ledgers.get(uid(after));
        let touched = |uid: &str| ledger.is_some_and(|ledger| ledger.touched.contains(uid));
        let pod = |wanted: &str| commit.pods.iter().find(|pod| uid(pod) == wanted);
        let (old, new) = (uncounted(before), uncounted(after));
        let all: Vec<&str> = new.iter().flatten().copied().collect();
        if all.len() > 500 || all.iter().collect::<BTreeSet<_>>().len() != all.len() {
            return commit.breach("JB5", format!("the lists are {all:?}"));
        }
        let number = |object: &Value, field: &str| number(&object["status"], &format!("/{field}"));
        for (nth, field) in ["succeeded", "failed"].into_iter().enumerate() {
            let left = without(&old[nth], &new[nth]);
            if let Some(left) = left.iter().find(|uid| pod(uid).is_some_and(is_tracked) && !touched(uid)) {
                return commit.breach("JB3", format!("{left} is counted, and has the finalizer"));
            }
            let more = number(after, field) - number(before, field);
            let is_count = field == "failed" || !is_indexed(after);
            if is_count && more != left.len() as i64 {
                return commit.breach("JB3", format!("{field} rose by {more} with {} UIDs", left.len()));
            }
            for entered in without(&new[nth], &old[nth]) {
                if ledger.is_some_and(|ledger| ledger.counted.contains(entered)) {
                    return commit.breach("JB3", format!("{entered} is counted a second time"));
                }
                if touched(entered) {
                    continue;
                }
                let Some(pod) = pod(entered) else {
                    return commit.breach("JB3", format!("{entered} is no pod"));
                };
                self.judge_entry(commit, after, pod, field)?;
            }
        }
        if is_indexed(after) && !new[0].is_empty() {
            return commit.breach("JB5", "the indexes remember which pods succeeded");
        }
        if is_finished(after) && !all.is_empty() {
            return commit.breach("JB5", "pods are uncounted in a finished Job");
        }
        match number(after, "ready") > number(after, "active") {
            true => commit.breach("JB13", "more pods are ready than active"),
            false => Ok(()),
        }
    }

    /// A pod comes into a list.
    fn judge_entry(&self, commit: &Commit<'_>, job: &Value, pod: &Value, list: &str) -> Result<(), Breach> {
        let name = name(pod);
        let is_released = self.ledgers.get(uid(job)).is_some_and(|ledger| ledger.released.contains(uid(pod)));
        if is_released {
            return commit.breach("JB9", format!("{name} was deleted without failing, and counts"));
        }
        if !is_tracked(pod) {
            return commit.breach("JB3", format!("{name} has no finalizer"));
        }
        if list == "succeeded" {
            return match has_succeeded(pod) {
                true => Ok(()),
                false => commit.breach("JB3", format!("{name} has not succeeded")),
            };
        }
        let is_doomed = condition(job, "FailureTarget").is_some() && is_deleting(pod);
        // It may have succeeded since the decision.
        if is_live(pod) || !(has_failed(job, pod) || is_doomed || self.is_recent(self.ended, commit.at)) {
            return commit.breach("JB3", format!("{name} has not failed"));
        }
        let has_ended_since = has_ended(pod) && self.is_recent(self.ended, commit.at);
        if action(job, pod) == "Ignore" && !has_ended_since {
            return commit.breach("JB3", format!("the failure of {name} is to be ignored"));
        }
        if condition(job, "SuccessCriteriaMet").is_some() && is_deleting(pod) && !self.is_disturbed(commit) {
            return commit.breach("JB3", format!("{name} was needed no more, and has not failed"));
        }
        match is_indexed(job) && index(job, pod).is_none() && !self.is_edited(commit) {
            true => commit.breach("JB3", format!("{name} has no index of the Job")),
            false => Ok(()),
        }
    }

    /// JB3, JB5, JB11: the sets of indexes.
    fn judge_indexes(&self, commit: &Commit<'_>, before: &Value, after: &Value) -> Result<(), Breach> {
        let completions = number(after, "/spec/completions");
        for field in ["completedIndexes", "failedIndexes"] {
            let list = text(&after["status"], &format!("/{field}"));
            let (old, new) = (status_indexes(before, field), indexes(list));
            if canonical(&new) != list || new.iter().any(|index| *index >= completions) {
                return commit.breach("JB5", format!("{field} is {list:?} of {completions}"));
            }
            let is_lost = |index: &&i64| **index < completions && !new.contains(index);
            // An index that succeeded after all is in the other set.
            let completed = status_indexes(after, "completedIndexes");
            if let Some(lost) = old.iter().filter(is_lost).find(|index| !completed.contains(index)) {
                return commit.breach("JB3", format!("{lost} is lost from {field}"));
            }
        }
        if !is_indexed(after) {
            return Ok(());
        }
        let (completed, failed) =
            (status_indexes(after, "completedIndexes"), status_indexes(after, "failedIndexes"));
        if completed.intersection(&failed).next().is_some() {
            return commit.breach("JB5", "an index has both succeeded and failed");
        }
        if number(after, "/status/succeeded") != completed.len() as i64 {
            return commit.breach("JB3", "succeeded is not the number of indexes");
        }
        if self.is_disturbed(commit) {
            return Ok(());
        }
        let now = account(before, commit.pods_of(before));
        let (had_completed, had_failed) =
            (status_indexes(before, "completedIndexes"), status_indexes(before, "failedIndexes"));
        if let Some(index) = completed.difference(&had_completed).find(|i| !now.completed_indexes.contains(i))
        {
            return commit.breach("JB3", format!("no pod of {index} has succeeded"));
        }
        if let Some(index) = failed.difference(&had_failed).find(|i| !now.failed_indexes.contains(i)) {
            let pods =
                commit.pods_of(before).filter(|pod| super::super::facts::index(before, pod) == Some(*index));
            let before: Vec<_> = pods.map(failures_before).collect();
            return commit.breach("JB11", format!("{index} has not failed, with {before:?} failures"));
        }
        Ok(())
    }

    /// JB6 to JB8, and JB12.
    fn judge_fate(&self, commit: &Commit<'_>, before: &Value, after: &Value) -> Result<(), Breach> {
        if let Some(kind) = lost_conditions(before, after) {
            return commit.breach("JB6", format!("{kind} was taken back"));
        }
        let is_true = |object, kind| condition(object, kind).is_some();
        let success = is_true(after, "Complete") || is_true(after, "SuccessCriteriaMet");
        let failure = is_true(after, "Failed") || is_true(after, "FailureTarget");
        if success && failure {
            return commit.breach("JB6", "it has both succeeded and failed");
        }
        for (interim, terminal) in [("SuccessCriteriaMet", "Complete"), ("FailureTarget", "Failed")] {
            if let Some(last) = condition(after, terminal)
                && !condition(before, interim).is_some_and(|interim| is_same_fate(interim, last))
            {
                return commit.breach("JB6", format!("{terminal} without {interim} before"));
            }
            let Some(fate) = condition(after, interim).filter(|_| !is_true(before, interim)) else {
                continue;
            };
            let reason = text(fate, "/reason");
            let may = may_be(before, &commit.pods, commit.now, reason);
            if !may && !self.is_disturbed(commit) && !self.is_recent(self.ended, commit.at) {
                return commit.breach("JB8", format!("the reason {reason} does not hold"));
            }
            let is_late = || {
                let start = time(before, "/status/startTime")?;
                let deadline = before["spec"]["activeDeadlineSeconds"].as_i64()?;
                Some(commit.now.as_second() - start.as_second() > deadline + 2)
            };
            let is_calm = !self.has_faults && !self.blind.lags(commit.at) && !self.is_disturbed(commit);
            if reason == "DeadlineExceeded"
                && is_calm
                && is_late() == Some(true)
                && self.is_stable_for(commit, 10)
            {
                return commit.breach("JB12", "the deadline has passed more than two seconds ago");
            }
        }
        if !is_finished(after) || self.is_disturbed(commit) {
            return Ok(());
        }
        let rest = |pod: &&Value| is_tracked(pod) || is_live(pod) || is_terminating(pod);
        match commit.pods_of(after).find(rest) {
            Some(pod) => commit.breach("JB7", format!("{} is left", name(pod))),
            None => Ok(()),
        }
    }

    /// Whether the specification has stayed as it is for so many seconds.
    fn is_stable_for(&self, commit: &Commit<'_>, seconds: u64) -> bool {
        let is_old = |then| commit.at.saturating_sub(then) > std::time::Duration::from_secs(seconds);
        self.edited.is_none_or(is_old)
    }
}

/// Whether another controller manages the Job.
pub(super) fn is_foreign(job: &Value) -> bool {
    job["spec"]["managedBy"].as_str().is_some_and(|by| by != "kubernetes.io/job-controller")
}

/// JB12: when the start time changes.
fn judge_start(commit: &Commit<'_>, before: &Value, after: &Value) -> Result<(), Breach> {
    let start = |object: &Value| object["status"]["startTime"].as_str().map(str::to_owned);
    let is_suspended = |object: &Value| condition(object, "Suspended").is_some();
    let (old, new) = (start(before), start(after));
    let resumes = is_suspended(before) && !is_suspended(after);
    if resumes && !is_finished(after) && old.is_some() && old == new {
        return commit.breach("JB12", "the time does not start anew");
    }
    if old.is_some() && old != new && !resumes && !is_suspended(after) {
        return commit.breach("JB12", format!("startTime changes from {old:?} to {new:?}"));
    }
    match is_suspended(after)
        && new.is_some()
        && condition(after, "SuccessCriteriaMet").is_none()
        && !is_finished(after)
        && condition(after, "FailureTarget").is_none()
    {
        true => commit.breach("JB12", "a suspended Job has a start time"),
        false => Ok(()),
    }
}
