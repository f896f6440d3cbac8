//! The invariants, checked on the current state of the world.

use std::collections::BTreeSet;

use windlass::model::{Condition, DeploymentStatus, ReplicaSet, Strategy as Update, Uid, condition};
use windlass::plan::deployment::{self as planner, Plan, StatusScope, Write, revision};
use windlass::plan::replicaset as pods;

use super::*;

impl World {
    pub(super) fn check_plan(&self, observed: &planner::Observed<'_>, plan: &Plan) {
        let replica_sets = observed.replica_sets();
        let change_of = |replica_set: &ReplicaSet| {
            plan.writes.iter().find_map(|write| match write {
                Write::Change(s, change) if s.meta.uid == replica_set.meta.uid => change.replicas,
                _ => None,
            })
        };
        // S9: a change of size is spread exactly, in one direction, over ReplicaSets with replicas.
        let in_parts =
            self.deployment.annotations.get("windlass.dev/pod-replacement") == Some("TerminationComplete");
        if plan.status_scope == StatusScope::Held
            && !in_parts
            && matches!(self.deployment.strategy, Update::RollingUpdate { .. })
        {
            let (replicas, max_total, _) = self.bounds();
            let active: Vec<_> = replica_sets.active().collect();
            let (before, after) = active.iter().fold((0, 0), |(before, after), replica_set| {
                let old = i64::from(replica_set.replicas);
                (before + old, after + i64::from(change_of(replica_set).unwrap_or(replica_set.replicas)))
            });
            if active.len() > 1 {
                let saturated = replica_sets.new.as_ref().is_some_and(|new| {
                    i64::from(new.replicas) == replicas
                        && replica_sets.old.iter().all(|s| s.replicas == 0 || change_of(s) == Some(0))
                });
                let target = if replicas == 0 { 0 } else { max_total };
                assert!(saturated || after == target, "S9: {before} -> {after}, not {target}");
                for replica_set in replica_sets.all() {
                    let size = change_of(replica_set).unwrap_or(replica_set.replicas);
                    assert!(
                        size >= 0 && (replica_set.replicas > 0 || size == 0),
                        "S9: {} -> {size}",
                        replica_set.meta.key
                    );
                    let (change, total) =
                        (i64::from(size) - i64::from(replica_set.replicas), target - before);
                    assert!(saturated || change * total >= 0, "S9: signs differ");
                }
            }
        }
        // S6: nothing is created while paused.
        let creates = plan.writes.iter().any(|w| matches!(w, Write::Create(_)));
        assert!(!(creates && self.deployment.paused), "S6: a paused Deployment creates a ReplicaSet");
    }

    pub(super) fn check_revision(&self) {
        let (new, old): (Vec<_>, Vec<_>) = self
            .owned_replica_sets()
            .partition(|s| s.template.asks_for_the_same_as(&self.deployment.template));
        let Some(new) = new.iter().filter_map(|s| revision::revision_of(s)).max() else { return };
        let old = old.iter().filter_map(|s| revision::revision_of(s)).max().unwrap_or(0);
        assert!(new > old, "S7: revision {new} is not above {old}");
    }

    /// S3: under Recreate the new ReplicaSet is not scaled up while pods of another run.
    pub(super) fn check_recreate(&self, new: Option<&Uid>) {
        if self.deployment.strategy != Update::Recreate {
            return;
        }
        // A policy may ask to begin as soon as every old pod is being deleted.
        if self.deployment.annotations.get("windlass.dev/pod-replacement") == Some("TerminationStarted") {
            return;
        }
        let selected = |s: &&Arc<ReplicaSet>| self.deployment.selector.matches(&s.meta.labels);
        for replica_set in self.owned_replica_sets().filter(selected).filter(|s| Some(&s.meta.uid) != new) {
            if replica_set.template.asks_for_the_same_as(&self.deployment.template) {
                continue;
            }
            assert!(self.running(replica_set) == 0, "S3: pods of {} still run", replica_set.meta.key);
        }
    }

    pub(super) fn check_status(&self, after: &DeploymentStatus) {
        let before = &self.deployment.status;
        let sane = 0 <= after.available && after.available <= after.ready && after.ready <= after.replicas;
        assert!(sane && after.updated <= after.replicas && after.unavailable >= 0, "S20: {after:?}");
        assert!(
            after.observed_generation >= before.observed_generation
                && after.observed_generation <= self.deployment.meta.generation,
            "S20: observedGeneration"
        );
        check_conditions(&before.conditions, &after.conditions);
    }

    /// L1 and S10: the state after a long time without edits.
    pub fn check_end(&self) {
        let d = &self.deployment;
        let selected = |s: &&Arc<ReplicaSet>| d.selector.matches(&s.meta.labels);
        let (new, old): (Vec<_>, Vec<_>) = self
            .owned_replica_sets()
            .filter(selected)
            .partition(|s| s.template.asks_for_the_same_as(&d.template));
        let sizes: i64 = new.iter().chain(&old).map(|s| i64::from(s.replicas)).sum();
        let live: usize = new.iter().chain(&old).map(|s| self.active_pods(s).len()).sum();
        let reason = condition::find(&d.status.conditions, "Progressing").map(|c| &*c.reason);
        assert_eq!(
            (sizes, live as i64, new.iter().map(|s| s.replicas).max(), reason),
            (d.replicas.into(), d.replicas.into(), Some(d.replicas), Some("NewReplicaSetAvailable")),
            "L1: {:?}",
            self.picture()
        );
        let s = &d.status;
        assert_eq!(
            (s.replicas, s.updated, s.ready, s.available, s.unavailable, s.observed_generation),
            (d.replicas, d.replicas, d.replicas, d.replicas, 0, d.meta.generation),
            "L1: the status"
        );
        let (replicas, max_total, _) = self.bounds();
        for replica_set in self.owned_replica_sets().filter(|s| s.replicas > 0) {
            let value = |key| replica_set.annotations.get(key).and_then(|v| v.parse::<i64>().ok());
            assert_eq!(value(revision::DESIRED_REPLICAS), Some(replicas), "S10");
            assert_eq!(value(revision::MAX_REPLICAS), Some(max_total), "S10");
        }
        self.check_revision();
        let limit = d.revision_history_limit.unwrap_or(i32::MAX) as usize;
        assert!(old.len() <= limit, "S8: {} old ReplicaSets, {limit} allowed", old.len());
    }
}

/// S21: the transition time moves with the status and only with it.
pub(super) fn check_conditions(before: &[Condition], after: &[Condition]) {
    for new in after {
        let Some(old) = condition::find(before, &new.kind) else { continue };
        if old.status == new.status {
            assert_eq!(old.last_transition, new.last_transition, "S21: {} did not change", new.kind);
        } else {
            assert!(old.last_transition <= new.last_transition, "S21: {} changed", new.kind);
        }
        if old.status == new.status && old.reason == new.reason && old.last_update != new.last_update {
            let progress = matches!(&*new.reason, "ReplicaSetUpdated" | "NewReplicaSetCreated");
            assert!(progress, "S21: {} moved under {}", new.kind, new.reason);
        }
    }
    let kinds: BTreeSet<&str> = after.iter().map(|c| &*c.kind).collect();
    assert_eq!(kinds.len(), after.len(), "S21: a condition twice");
}

/// S17 and S18: the same ReplicaSet being deleted, known to be so by the cache or by the server alone, or with
/// a selector that selects everything or makes no sense, writes nothing about these very pods.
pub(super) fn check_inactive_owner(observed: &pods::Observed<'_>) {
    let nothing = |what: &str, observed: &pods::Observed<'_>| {
        let plan = pods::plan(observed);
        assert!(plan.writes.is_empty(), "{what}: {:?}", plan.writes);
    };
    let with = |replica_set: &ReplicaSet, may_adopt: bool, what: &str| {
        let pod_sets = &observed.pod_sets;
        let owned: Vec<_> = [&pod_sets.active, &pod_sets.terminal, &pod_sets.to_release]
            .into_iter()
            .flatten()
            .cloned()
            .collect();
        let pod_sets = pods::PodSets::of(replica_set, owned, pod_sets.orphans.clone());
        nothing(what, &pods::Observed { replica_set, pod_sets, may_adopt, ..observed.clone() });
    };
    let mut deleting = observed.replica_set.clone();
    deleting.meta.deletion = Some(observed.now);
    with(&deleting, true, "S17");
    if !observed.pod_sets.orphans.is_empty() {
        with(observed.replica_set, false, "S17: only the server knows");
    }
    let mut odd = observed.replica_set.clone();
    odd.selector = windlass::model::Selector::compile(None);
    with(&odd, true, "S18");
}

/// S13: no deleted pod ranks above a kept pod in upstream's comparison; where
/// that stops at a bucket of the logarithm, the next criterion decides.
pub(super) fn check_victims(observed: &pods::Observed<'_>, victims: &[Arc<Pod>]) {
    let pods::Observed { replica_set, pod_sets, siblings, now, .. } = observed;
    let all = || pod_sets.active.iter().chain(&pod_sets.orphans);
    let goes = |pod: &&Arc<Pod>| victims.iter().any(|victim| victim.meta.uid == pod.meta.uid);
    // Only for a ReplicaSet that has an owner: upstream ranks no other by its neighbours.
    let is_owned = replica_set.meta.controller.is_some();
    let beside =
        |pod: &Pod| all().chain(siblings).filter(|p| p.node().is_some() && p.node() == pod.node()).count();
    let neighbours = |pod: &Pod| if is_owned { beside(pod) } else { 0 };
    let bucket = |since: Timestamp| {
        let age = now.duration_since(since).as_nanos();
        (age > 0).then(|| 127 - age.leading_zeros())
    };
    for (victim, stays) in all().filter(goes).flat_map(|v| all().filter(|p| !goes(p)).map(move |s| (v, s))) {
        let phase = |pod: &Pod| match pod.phase {
            Phase::Pending => 0,
            Phase::Unknown => 1,
            _ => 2,
        };
        // The first criterion that differs decides; the lesser pod is deleted first.
        let order = [
            victim.node().is_some().cmp(&stays.node().is_some()),
            phase(victim).cmp(&phase(stays)),
            victim.ready_since.is_some().cmp(&stays.ready_since.is_some()),
            victim.deletion_cost.cmp(&stays.deletion_cost),
            neighbours(stays).cmp(&neighbours(victim)),
            victim.ready_since.map(bucket).cmp(&stays.ready_since.map(bucket)),
            stays.restarts.cmp(&victim.restarts),
            bucket(victim.meta.created).cmp(&bucket(stays.meta.created)),
            victim.meta.uid.cmp(&stays.meta.uid),
        ];
        let decided = order.into_iter().find(|order| order.is_ne());
        assert_eq!(
            decided,
            Some(std::cmp::Ordering::Less),
            "S13: {victim:?} is deleted and {stays:?} is kept"
        );
    }
}
