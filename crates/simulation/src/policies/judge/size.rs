//! RP2 to RP4 and RP10 to RP13: how far ReplicaSets grow and shrink.

use std::time::Duration;

use serde_json::Value;

use super::verdict::unfit_since;
use super::{Commit, Judge, desired, is_unfit, size};
use crate::engine::breach::Breach;
use crate::engine::objects::{is_live, text};
use crate::policies::terms::{Terms, approves, revision, template, written};

/// How long a new pod has fitted no node when an old one goes first.
const UNFIT: Duration = Duration::from_secs(30);

/// By when an old pod that went first in vain is back: a minute after it has ended, and the time of lost and late requests.
const RETURNS: Duration = Duration::from_secs(200);

impl Judge {
    /// Judges the size of a ReplicaSet that is created, grows or shrinks.
    pub(super) fn judge_size(&mut self, commit: &Commit<'_>) -> Result<(), Breach> {
        let Some(after) = commit.after else { return Ok(()) };
        let (from, to) = (commit.before.map_or(0, size), size(after));
        let known: Vec<Terms> = self.known(commit.at).iter().map(|(_, terms)| terms.clone()).collect();
        let known: Vec<&Terms> = known.iter().collect();
        match to < from {
            true => {
                self.judge_retreat(commit, &known, after, from)?;
                self.judge_shrinking(commit, &known, after, to)
            }
            false if to > from || commit.before.is_none() => {
                self.judge_growth(commit, known, after, from, to)
            }
            false => Ok(()),
        }
    }

    /// RP2 to RP4, RP7 and RP10 to RP13, where a ReplicaSet grows or is created.
    fn judge_growth(
        &self,
        commit: &Commit<'_>,
        known: Vec<&Terms>,
        after: &Value,
        from: i64,
        to: i64,
    ) -> Result<(), Breach> {
        let uid = text(after, "/metadata/uid");
        let others = || commit.replica_sets.iter().filter(|all| text(all, "/metadata/uid") != uid);
        let sum = to + others().map(size).sum::<i64>();
        // The author of a creation that arrives late knows of no other ReplicaSet.
        let is_alone = self.blind.knows_others(&commit.call.agent, commit.at);
        if commit.before.is_some() && is_alone && known.iter().all(|terms| sum > terms.most) {
            return commit.breach("RP10", format!("{sum} pods are wanted"));
        }
        let is_new = |terms: &&&Terms| terms.template == template(after);
        let has_old_pods = others().any(|other| size(other) > 0);
        let known: Vec<&Terms> = known.into_iter().filter(|terms| is_new(&terms)).collect();
        let is_old = self.terms.last().is_some_and(|(_, terms)| terms.template != template(after));
        if known.is_empty() || !has_old_pods || is_old {
            // One that is old by now may take the place of a canary that was replaced.
            return Ok(());
        }
        self.judge_halt(commit, after)?;
        self.judge_room(commit, after, &known, to)?;
        if self.complete.contains_key(uid) {
            return Ok(());
        }
        let allowed = |terms: &&&Terms| self.allows(commit, terms, after, from, to);
        match known.iter().any(|terms| allowed(&terms)) {
            true => Ok(()),
            false => commit.breach("RP2", format!("it grows from {from} to {to}")),
        }
    }

    /// RP10: a rollout takes no pod that must be available, but for one where an old pod goes first.
    fn judge_shrinking(
        &mut self,
        commit: &Commit<'_>,
        known: &[&Terms],
        after: &Value,
        to: i64,
    ) -> Result<(), Breach> {
        let Some((first, rest)) = known.split_first() else { return Ok(()) };
        let same = |terms: &&&Terms| terms.replicas == first.replicas && terms.template == first.template;
        let is_scaled = commit.replica_sets.iter().any(|all| size(all) > 0 && desired(all) != first.replicas);
        if !rest.iter().all(|terms| same(&terms))
            || is_scaled
            || known.iter().any(|terms| terms.paused)
            || self.is_disturbed(commit.at)
            || !self.blind.knows_others(&commit.call.agent, commit.at)
        {
            return Ok(());
        }
        let uid = text(after, "/metadata/uid");
        // Pods that are not available are deleted first.
        let left: i64 = commit
            .replica_sets
            .iter()
            .map(|all| {
                let size = if text(all, "/metadata/uid") == uid { to } else { size(all) };
                commit.available(all).min(size)
            })
            .sum();
        let Some(least) = known.iter().map(|terms| terms.least).min() else { return Ok(()) };
        if left >= least || commit.available(after) <= to {
            return Ok(());
        }
        if left + 1 < least || !known.iter().any(|terms| terms.terminates_first) {
            return commit.breach("RP10", format!("{left} available pods are left, {least} must be"));
        }
        self.judge_first(commit, first)
    }

    /// RP10: one old pod goes before a new one that has fitted no node for long enough, and none again until another new one is
    /// available.
    fn judge_first(&mut self, commit: &Commit<'_>, terms: &Terms) -> Result<(), Breach> {
        let new = commit.replica_sets.iter().find(|all| template(all) == terms.template);
        let Some(new) = new else {
            return commit.breach("RP10", "an old pod goes first, and there is no new one");
        };
        let uid = text(new, "/metadata/uid").to_owned();
        let unfit = commit.pods_of(new).filter(|pod| is_unfit(pod));
        let since = unfit.filter_map(unfit_since).min();
        let is_known = |then: &Duration| *then == commit.at || self.blind.hides(*then, commit.at);
        let waits = match since {
            Some(since) => {
                let least = UNFIT.saturating_sub(self.age(commit.at));
                commit.now.duration_since(since).unsigned_abs() >= least
            }
            None => self.unfit.get(&uid).is_some_and(is_known),
        };
        if !waits {
            return commit.breach("RP10", "an old pod goes first, and no new one waits for its room");
        }
        let key = (uid.clone(), revision(new));
        let available = commit.available(new);
        let before = self.went_first.insert(key, (commit.at, available)).map(|(_, available)| available);
        let has_helped = |before: i64| self.reached.contains_key(&(uid, revision(new), before + 1));
        match before.is_some_and(|before| !has_helped(before)) {
            true => commit.breach("RP10", "a second old pod goes first, and no new one has become available"),
            false => Ok(()),
        }
    }

    /// RP10: where the new pod fits no node even then, the old one comes back.
    pub(super) fn judge_return(&self, commit: &Commit<'_>) -> Result<(), Breach> {
        let Some((since, terms)) = self.terms.last() else { return Ok(()) };
        if !terms.terminates_first || terms.paused || terms.is_invalid() || self.is_disturbed(commit.at) {
            return Ok(());
        }
        for new in commit.replica_sets.iter().filter(|all| template(all) == terms.template) {
            let uid = text(new, "/metadata/uid");
            let Some((then, _)) = self.went_first.get(&(uid.to_owned(), revision(new))) else { continue };
            let is_due = since < then && commit.at - *then > RETURNS && !self.blind.lags(commit.at);
            let old = commit.replica_sets.iter().filter(|all| text(all, "/metadata/uid") != uid);
            let left = old.map(size).sum::<i64>() + commit.available(new);
            if is_due && commit.pods_of(new).any(is_unfit) && left < terms.replicas {
                return commit
                    .breach("RP10", format!("{left} pods of {}: no old one comes back", terms.replicas));
            }
        }
        Ok(())
    }

    /// RP11: terminating pods take room where the policy counts them.
    fn judge_room(
        &self,
        commit: &Commit<'_>,
        after: &Value,
        known: &[&Terms],
        to: i64,
    ) -> Result<(), Breach> {
        let grows = to > commit.before.map_or(0, size);
        let counts = known.iter().all(|terms| terms.counts_ending) && known.len() == 1;
        if !grows || self.is_disturbed(commit.at) || !counts {
            return Ok(());
        }
        // An autoscaler's change is spread in proportion before anything else.
        let recorded = desired(after);
        let before = commit.before.map_or(recorded, desired);
        let uid = text(after, "/metadata/uid");
        let runs = |pod: &&Value| !matches!(text(pod, "/status/phase"), "Failed" | "Succeeded");
        let mut total = 0;
        for replica_set in commit.replica_sets {
            let size = if text(replica_set, "/metadata/uid") == uid { to } else { size(replica_set) };
            let pods: Vec<&Value> = commit.pods_of(replica_set).filter(runs).collect();
            let live = pods.iter().filter(|pod| is_live(pod)).count() as i64;
            total += size.max(live) + (pods.len() as i64 - live);
        }
        let Some(most) = known.iter().map(|terms| terms.most).max() else { return Ok(()) };
        match total > most && before == recorded {
            true => commit.breach("RP11", format!("{total} pods run or are wanted, {most} may")),
            false => Ok(()),
        }
    }

    /// RP2 to RP4, RP12, RP13: whether these terms allow the ReplicaSet of the template this size.
    fn allows(&self, commit: &Commit<'_>, terms: &Terms, after: &Value, from: i64, to: i64) -> bool {
        // Where spec.replicas has changed, those that exist are scaled, whatever holds the rollout.
        let is_scaled = commit.before.is_some_and(|before| desired(before) != terms.replicas)
            || commit.replica_sets.iter().any(|all| size(all) > 0 && desired(all) != terms.replicas);
        if terms.is_invalid() {
            return commit.before.is_some() && is_scaled;
        }
        if terms.paused && commit.before.is_none() {
            return false;
        }
        let Some(steps) = &terms.steps else { return false };
        if terms.is_bypassed(&written(commit.now, self.age(commit.at))) {
            return true;
        }
        let (uid, current) = (text(after, "/metadata/uid").to_owned(), revision(after));
        let (mut begun, mut passed_at, mut before) = (Duration::ZERO, Duration::ZERO, None);
        for (at, (bound, wait)) in steps.iter().enumerate() {
            // A last one of all pods holds nothing; one that is exceeded is certainly passed.
            if *bound >= terms.replicas || to <= *bound {
                return true;
            }
            if from > *bound || self.commands.iter().any(|command| approves(command, current, at + 1)) {
                continue;
            }
            let reached = self.reached.get(&(uid.clone(), current, *bound)).copied();
            let Some((reached, wait)) = reached.zip(*wait) else { return false };
            // Steps of the same bound are one: the longer wait counts, and not both.
            if before.replace(*bound) != Some(*bound) {
                begun = reached.max(passed_at);
            }
            passed_at = passed_at.max(begun + Duration::from_secs(wait));
            let has_enough = commit.available(after) >= *bound || self.is_disturbed(commit.at);
            // Times are written in whole seconds.
            if commit.at + Duration::from_secs(1) < passed_at || !has_enough {
                return false;
            }
        }
        true
    }
}
