//! The invariants over writes to pods: JB1, JB2, JB4, JB8 to JB11, JB14, JB15 and JB17.

use serde_json::Value;

use super::super::facts::{
    REASONS, TRACKING, account, action, backoff, condition, failures_before, has_ended, has_failed,
    has_succeeded, index, is_finished, is_indexed, is_tracked, may_be, owner, replaces_failed_only,
    status_indexes, uncounted, wanted,
};
use super::status::is_foreign;
use super::{Commit, Judge};
use crate::engine::breach::Breach;
use crate::engine::objects::{controller, is_deleting, is_live, list, name, number, text, uid};

/// By how many seconds two clocks may differ that round.
const ROUNDING: i64 = 2;

impl Judge {
    pub(super) fn judge_creation(&self, commit: &Commit<'_>, pod: &Value) -> Result<(), Breach> {
        let Some(job) = commit.job(owner(pod)) else {
            return match self.is_edited(commit) {
                true => Ok(()),
                false => commit.breach("JB1", "its Job is gone"),
            };
        };
        if is_foreign(job) {
            return commit.breach("JB15", "another controller manages the Job");
        }
        judge_body(commit, job, pod)?;
        if self.is_edited(commit) {
            return Ok(());
        }
        if job["spec"]["suspend"] == true {
            return commit.breach("JB9", "the Job is suspended");
        }
        let account = account(job, commit.pods_of(job));
        let has_failed = account.failed > number(job, "/spec/backoffLimit") && self.running.len() < 2;
        let has_fate = condition(job, "SuccessCriteriaMet").or(condition(job, "FailureTarget")).is_some();
        if has_fate || is_finished(job) || (has_failed && !self.is_recent(self.ended, commit.at)) {
            return commit.breach("JB8", format!("the Job has ended, with {account:?}"));
        }
        // A deletion changes nothing where terminating pods count as the active ones do.
        let is_disturbed = self.is_disturbed(commit);
        if if replaces_failed_only(job) { self.is_joined(commit) } else { is_disturbed } {
            return Ok(());
        }
        let wanted = match job["spec"]["completions"].as_i64() {
            None if account.succeeded > 0 => 0,
            _ => wanted(job, &account),
        };
        let held = if replaces_failed_only(job) { account.terminating } else { 0 };
        if account.active + held >= wanted {
            return commit.breach("JB1", format!("{wanted} pods are wanted: {account:?}"));
        }
        if let Some(index) = index(job, pod) {
            let twin = commit.pods_of(job).find(|other| {
                let blocks = is_live(other) || replaces_failed_only(job) && !has_ended(other);
                blocks && super::super::facts::index(job, other) == Some(index)
            });
            if account.completed_indexes.contains(&index)
                || account.failed_indexes.contains(&index)
                || twin.is_some()
            {
                return commit.breach("JB2", format!("{index} has ended, or has {:?}", twin.map(name)));
            }
        }
        if is_disturbed { Ok(()) } else { self.judge_backoff(commit, job, pod) }
    }

    /// JB10, JB11.
    fn judge_backoff(&self, commit: &Commit<'_>, job: &Value, pod: &Value) -> Result<(), Breach> {
        let Some(ledger) = self.ledgers.get(uid(job)) else { return Ok(()) };
        // A pod that failed so lately that the decision may not know it.
        if self.is_recent(self.ended, commit.at)
            || commit.pods_of(job).any(|pod| ledger.touched.contains(uid(pod)))
        {
            return Ok(());
        }
        let when = |pod: &Value| ledger.failed_at.get(uid(pod)).copied();
        let failed =
            || commit.pods_of(job).filter(|pod| pod["status"]["phase"] == "Failed" && !is_deleting(pod));
        let (failures, last) = match job["spec"]["backoffLimitPerIndex"].is_null() {
            true => {
                // The API has whole seconds.
                let second = |at: jiff::Timestamp| at.as_second();
                let is_later = |pod: &&Value| when(pod).map(second) > ledger.last_success.map(second);
                (failed().filter(is_later).count() as i64, failed().filter(is_later).filter_map(when).max())
            }
            false => {
                let wanted = index(job, pod);
                if wanted.is_some_and(|index| ledger.touched_indexes.contains(&index)) {
                    return Ok(());
                }
                let held = failed().filter(|other| is_tracked(other) && index(job, other) == wanted);
                let count = |pod: &Value| failures_before(pod).0 + failures_before(pod).1 + 1;
                let last = held.max_by_key(|pod| count(pod));
                let counted =
                    wanted.and_then(|index| ledger.failures.get(&index)).map_or(0, |all| all.len() as i64);
                let is_whole = !replaces_failed_only(job) || last.is_some();
                if failures_before(pod).0 > counted
                    || (last.is_some() && is_whole && failures_before(pod).0 < counted)
                {
                    let told = failures_before(pod).0;
                    return commit.breach("JB11", format!("{wanted:?} failed {counted} times, not {told}"));
                }
                (last.map_or(0, count), last.and_then(when))
            }
        };
        let Some(last) = last else { return Ok(()) };
        let passed = commit.now.as_second() - last.as_second();
        match passed + ROUNDING < backoff(failures) {
            true => commit.breach("JB10", format!("{passed} s after failure {failures}")),
            false => Ok(()),
        }
    }

    /// JB17: a pod is deleted by UID and for a cause.
    pub(super) fn judge_deletion(&self, commit: &Commit<'_>, pod: &Value) -> Result<(), Breach> {
        if commit.call.body["preconditions"]["uid"] != uid(pod) {
            return commit.breach("JB17", "the deletion carries no UID");
        }
        let Some(job) = commit.job(owner(pod)) else { return Ok(()) };
        if is_foreign(job) {
            return commit.breach("JB15", "another controller manages the Job");
        }
        let is_fated = condition(job, "SuccessCriteriaMet").or(condition(job, "FailureTarget")).is_some();
        let touched = self.ledgers.get(uid(job)).is_some_and(|ledger| ledger.touched.contains(uid(pod)));
        // Another leader may have given the pod the finalizer back.
        let is_alone = !commit.call.abandoned && self.running.len() < 2;
        if !is_fated && is_live(pod) && is_tracked(pod) && !touched && is_alone {
            return commit
                .breach("JB9", format!("{} has the finalizer, and will count as failed", name(pod)));
        }
        if self.is_disturbed(commit) || self.is_recent(self.ended, commit.at) || is_deleting(job) {
            return Ok(());
        }
        let account = account(job, commit.pods_of(job));
        let ended =
            |index: &i64| account.completed_indexes.contains(index) || account.failed_indexes.contains(index);
        let is_twin = || {
            let same =
                commit.pods_of(job).filter(|other| is_live(other) && index(job, other) == index(job, pod));
            same.count() > 1
        };
        let is_stray = is_indexed(job) && index(job, pod).is_none_or(|index| ended(&index) || is_twin());
        let has_fate = is_fated || REASONS.iter().any(|reason| may_be(job, &commit.pods, commit.now, reason));
        let is_surplus = account.active > wanted(job, &account);
        match job["spec"]["suspend"] == true || is_stray || has_fate || is_surplus {
            true => Ok(()),
            false => commit.breach("JB17", format!("{} is wanted: {account:?}", name(pod))),
        }
    }

    /// A pod is adopted or released, or its finalizer comes or goes.
    pub(super) fn judge_change(
        &mut self,
        commit: &Commit<'_>,
        before: &Value,
        after: &Value,
    ) -> Result<(), Breach> {
        let is_others = controller(before).is_some() && owner(before).is_empty();
        if is_others {
            return commit.breach("JB15", "a pod of another controller was changed");
        }
        if before["spec"] != after["spec"] || before["status"] != after["status"] {
            return commit.breach("JB14", "more than metadata was changed");
        }
        if owner(before).is_empty() && !owner(after).is_empty() && !is_tracked(after) {
            return commit.breach("JB3", "a pod was adopted without the finalizer");
        }
        let Some(job) = commit.job(owner(before)) else { return Ok(()) };
        if is_foreign(job) {
            return commit.breach("JB15", "another controller manages the Job");
        }
        let is_released = owner(after) != owner(before);
        if is_tracked(after) && !is_tracked(before) && is_live(before) {
            // The deletion that was to follow was refused: the pod counts again.
            self.ledgers.entry(uid(job).to_owned()).or_default().released.remove(uid(before));
        }
        if is_released || !is_tracked(before) || is_finished(job) || is_deleting(job) {
            return Ok(());
        }
        if is_tracked(after) {
            return Ok(());
        }
        if is_live(before) {
            let ledger = self.ledgers.entry(uid(job).to_owned()).or_default();
            ledger.released.insert(uid(before).to_owned());
            return Ok(());
        }
        let touched = self.ledgers.get(uid(job)).is_some_and(|ledger| ledger.touched.contains(uid(before)));
        if touched || commit.call.abandoned {
            return Ok(());
        }
        self.judge_release(commit, job, before)
    }

    /// JB4: the finalizer of a pod that ended goes. JB11: the last pod of an index keeps it.
    fn judge_release(&self, commit: &Commit<'_>, job: &Value, pod: &Value) -> Result<(), Breach> {
        let listed = uncounted(job).iter().flatten().any(|listed| *listed == uid(pod));
        let place = index(job, pod);
        let in_set = place.is_some_and(|index| {
            has_succeeded(pod) && status_indexes(job, "completedIndexes").contains(&index)
        });
        let is_ignored = has_failed(job, pod) && action(job, pod) == "Ignore";
        let is_invalid = is_indexed(job) && place.is_none();
        let is_needless = condition(job, "SuccessCriteriaMet").is_some() && is_deleting(pod);
        if !(listed || in_set || is_ignored || is_invalid || is_needless || self.is_edited(commit)) {
            return commit.breach("JB4", format!("{} is not in the status", name(pod)));
        }
        let has_fate = condition(job, "SuccessCriteriaMet").or(condition(job, "FailureTarget")).is_some();
        let Some(index) = place.filter(|_| !job["spec"]["backoffLimitPerIndex"].is_null() && !has_fate)
        else {
            return Ok(());
        };
        let account = account(job, commit.pods_of(job));
        let has_ended = account.completed_indexes.contains(&index) || account.failed_indexes.contains(&index);
        let count = |pod: &Value| failures_before(pod).0 + failures_before(pod).1;
        let follows = |other: &Value| {
            let is_later = is_live(other) || is_tracked(other) && count(other) >= count(pod);
            uid(other) != uid(pod) && super::super::facts::index(job, other) == Some(index) && is_later
        };
        // A user has given it a pod of another index, or taken one from it.
        let is_edited =
            self.ledgers.get(uid(job)).is_some_and(|ledger| ledger.touched_indexes.contains(&index));
        let is_held = has_failed(job, pod) && !has_ended && !is_edited && !commit.pods_of(job).any(follows);
        let is_fated = REASONS.iter().any(|reason| may_be(job, &commit.pods, commit.now, reason));
        match is_held && !is_fated && !self.is_disturbed(commit) && !self.is_recent(self.ended, commit.at) {
            true => commit.breach("JB11", format!("the failures of {index} are forgotten")),
            false => Ok(()),
        }
    }
}

/// JB14: the body of a new pod.
fn judge_body(commit: &Commit<'_>, job: &Value, pod: &Value) -> Result<(), Breach> {
    let metadata = &pod["metadata"];
    let template = &job["spec"]["template"];
    let labels = template["metadata"]["labels"].as_object().into_iter().flatten();
    let has_labels = labels.into_iter().all(|(key, value)| metadata["labels"][key] == *value);
    let finalizers = list(&metadata["finalizers"]);
    let reference = controller(pod).is_some_and(|reference| {
        reference["blockOwnerDeletion"] == true && text(reference, "/name") == name(job)
    });
    let image = |spec: &Value| spec["containers"][0]["image"].clone();
    let is_alike = image(&pod["spec"]) == image(&template["spec"]);
    if !has_labels || finalizers != [Value::from(TRACKING)] || !reference || !is_alike {
        return commit.breach("JB14", "it is not like its template");
    }
    if !is_indexed(job) {
        return Ok(());
    }
    let key = super::super::facts::INDEX;
    let number = metadata["annotations"][key].as_str().unwrap_or_default();
    let base = format!("{}-{number}", name(job));
    let env = list(&pod["spec"]["containers"][0]["env"]);
    let is_complete = metadata["labels"][key] == number
        && pod["spec"]["hostname"] == *base
        && metadata["generateName"] == *format!("{base}-")
        && env.iter().any(|variable| variable["name"] == "JOB_COMPLETION_INDEX");
    match is_complete {
        true => Ok(()),
        false => commit.breach("JB14", "it lacks a mark of its index"),
    }
}
