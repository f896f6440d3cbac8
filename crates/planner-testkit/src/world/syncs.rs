//! The syncs of both controllers on plain records, with a check of every write.

use std::sync::Arc;

use windlass::model::{Phase, ReplicaSet, Strategy as Update, condition};
use windlass::plan::deployment::{self as planner, Plan, StatusScope, Write, progress, revision};
use windlass::plan::outcome_of::{self, Synced};
use windlass::plan::replicaset as pod_planner;

use super::invariants::{check_conditions, check_inactive_owner, check_victims};
use super::*;

impl World {
    /// One sync of the Deployment: how many writes are carried out, and whether the status is.
    pub fn sync_deployment(&mut self, most_writes: usize, write_status: bool) -> Synced {
        let world = self.clone();
        let observed = outcome_of::deployment::observe(&world.deployment, &world.objects);
        let plan = planner::plan(&observed);
        assert!(!plan.reasons.is_empty(), "a plan without a reason: {plan:?}\n{observed:?}");
        self.check_plan(&observed, &plan);
        let mut outcome = progress::Outcome::default();
        for write in plan.writes.iter().take(most_writes) {
            if !self.write_replica_set(&plan, write) {
                outcome.name_taken();
                break;
            }
            outcome.succeeded();
        }
        let mut synced = Synced { wrote: outcome.done() > 0, requeue_after: None };
        if plan.writes.len() > most_writes && !write_status {
            return synced; // a crash
        }
        let settled = progress::settle(&observed, &plan, &outcome);
        self.check_status(&settled.status);
        synced.requeue_after = settled.requeue_after;
        if !write_status {
            return synced;
        }
        if let Some(revision) = &settled.revision
            && self.deployment.annotations.get(revision::REVISION) != Some(revision)
        {
            let before =
                self.deployment.annotations.get(revision::REVISION).and_then(|r| r.parse::<i64>().ok());
            let after: i64 = revision.parse().unwrap();
            // A user who deletes ReplicaSets deletes their revisions too.
            assert!(
                self.foreign_changes || before.is_none_or(|b| b < after),
                "S7: revision {before:?} -> {after}"
            );
        }
        if settled.status != self.deployment.status {
            let progress = |all: &[Condition]| {
                condition::find(all, "Progressing").map(|c| c.reason.to_string()).unwrap_or_default()
            };
            let before = progress(&self.deployment.status.conditions);
            let after = progress(&settled.status.conditions);
            if before != after && plan.status_scope != StatusScope::CountsOnly {
                let said = condition::find(&settled.status.conditions, "Progressing");
                let said = said.map(|said| self.short_names(&said.message)).unwrap_or_default();
                let by_policy =
                    ["RolloutStep", "InvalidPolicy"].contains(&&*after) || said.starts_with("Revision ");
                let text = if by_policy { format!("{after} ({said})") } else { after };
                self.say("progress", &text);
            }
        }
        synced.wrote |= outcome_of::deployment::settle(&settled, &mut self.deployment);
        synced
    }

    /// A text with the short names of ReplicaSets and pods.
    fn short_names(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (name, pod_tag) in &self.tags {
            text = text.replace(&**name, &format!("web-{pod_tag}-*"));
        }
        for (name, replica_set) in &self.objects.replica_sets {
            text = text.replace(&**name, &short_name(replica_set));
        }
        text
    }

    /// Carries out one write; `false` when the API server refuses it.
    fn write_replica_set(&mut self, plan: &Plan, write: &Write) -> bool {
        let (_, max_total, min_available) = self.bounds();
        let min_available = min_available - self.below;
        let (sum_before, available_before) = (self.sum(), self.available_in_the_end());
        let known = self.objects.replica_sets.len();
        self.check_write(write);
        // The margin of these lines is that of the moment before.
        if let Write::Change(replica_set, change) = write {
            let short_name = short_name(replica_set);
            if let Some(size) = change.replicas {
                self.say("deployment", &format!("scale {short_name} {} -> {size}", replica_set.replicas));
            }
            if let Some(revision) = change.annotations.get(revision::REVISION) {
                self.say("deployment", &format!("{short_name} becomes revision {revision}"));
            }
            for note in &change.notes {
                self.say("event", note.reason);
            }
        }
        if !outcome_of::deployment::apply(write, &mut self.deployment, &mut self.objects).unwrap() {
            return false;
        }
        match write {
            Write::Create(new) if self.objects.replica_sets.len() > known => {
                let created = short_name(&self.objects.replica_sets[&*new.name]);
                self.say("deployment", &format!("create {created} at {}", new.replicas));
            }
            // It was there before.
            Write::Create(_) => return true,
            Write::Change(replica_set, change) => {
                if change.min_ready_seconds.is_some() {
                    self.lost.insert(replica_set.meta.uid.clone());
                }
                let stored = &self.objects.replica_sets[&replica_set.meta.key.name];
                let history = stored.annotations.get(revision::REVISION_HISTORY).unwrap_or("");
                assert!(history.len() <= 2000, "S7: the history is too long");
            }
            Write::Delete(replica_set) => {
                self.say("deployment", &format!("delete {}", short_name(replica_set)));
            }
            Write::RollBack(rollback) => {
                self.say("deployment", &rollback.note.message);
                return true;
            }
            Write::Adopt(replica_set) => {
                self.say("deployment", &format!("adopt {}", short_name(replica_set)));
                return true;
            }
            Write::Release(replica_set) => {
                self.say("deployment", &format!("release {}", short_name(replica_set)));
                return true;
            }
        }
        // S1: within the surge, or at least closer to it.
        let sum = self.sum();
        assert!(
            sum <= max_total || sum <= sum_before,
            "S1: {sum_before} -> {sum} desired pods, {max_total} allowed"
        );
        // S2: a rollout never takes an available pod that the budget needs. Not owed when pods were
        // lost, or have become available, that the status did not show yet.
        let after = self.available_in_the_end();
        let owed = plan.status_scope == StatusScope::Rollout
            && matches!(self.deployment.strategy, Update::RollingUpdate { .. })
            && self.owned_replica_sets().all(|replica_set| {
                !self.lost.contains(&replica_set.meta.uid) && self.shows_its_pods(replica_set)
            });
        let shrinks = matches!(write, Write::Change(replica_set, c) if c.replicas.is_some_and(|size| size < replica_set.replicas)
            && !replica_set.template.asks_for_the_same_as(&self.deployment.template));
        assert!(
            !owed || !shrinks || after >= min_available.min(available_before),
            "S2: {available_before} -> {after} pods available, {min_available} must be"
        );
        // S7: the new ReplicaSet's revision is above all others once anything is written to it.
        if let Write::Create(_) = write {
            self.check_revision();
        }
        true
    }

    /// The invariants of a write before it is carried out.
    fn check_write(&self, write: &Write) {
        let has_template = |s: &ReplicaSet| s.template.asks_for_the_same_as(&self.deployment.template);
        match write {
            Write::Create(new) => {
                let hash = self.deployment.template.hash(self.deployment.status.collision_count);
                assert_eq!(new.name, format!("web-{hash}"), "S5");
                if self.objects.replica_sets.contains_key(&*new.name) {
                    return;
                }
                let selected = |s: &&Arc<ReplicaSet>| self.deployment.selector.matches(&s.meta.labels);
                assert!(
                    !self.owned_replica_sets().filter(selected).any(|s| has_template(s)),
                    "S4: a second ReplicaSet for one template"
                );
                self.check_recreate(None);
            }
            Write::Change(replica_set, change) => {
                if has_template(replica_set)
                    && change.replicas.is_some_and(|size| size > replica_set.replicas)
                {
                    self.check_recreate(Some(&replica_set.meta.uid));
                }
            }
            Write::Delete(replica_set) => {
                let stored = &self.objects.replica_sets[&replica_set.meta.key.name];
                let is_spare = |s: &ReplicaSet| {
                    s.replicas == 0
                        && s.status.replicas == 0
                        && s.status.observed_generation >= s.meta.generation
                        && !has_template(s)
                };
                assert!(is_spare(stored), "S8: {} is deleted", replica_set.meta.key);
                let revision_of = |s: &ReplicaSet| revision::revision_of(s).unwrap_or(0);
                let is_older = |s: &&Arc<ReplicaSet>| revision_of(s) < revision_of(stored);
                assert!(
                    !self.owned_replica_sets().filter(is_older).any(|s| is_spare(s)),
                    "S8: the oldest revision must be deleted first"
                );
                let kept = self.owned_replica_sets().filter(|s| !has_template(s)).count() as i32 - 1;
                assert!(kept >= self.deployment.revision_history_limit.unwrap(), "S8: too few are kept");
            }
            Write::RollBack(_) => {}
            Write::Adopt(replica_set) => {
                assert!(replica_set.meta.controller.is_none() && !replica_set.meta.is_deleting(), "S15");
            }
            Write::Release(replica_set) => {
                assert!(!self.deployment.selector.matches(&replica_set.meta.labels), "S16");
            }
        }
    }

    /// One sync of a ReplicaSet: how many pods are written, and whether the status is.
    pub fn sync_replica_set(&mut self, name: &Arc<str>, most_writes: usize, write_status: bool) -> Synced {
        let replica_set = self.objects.replica_sets[name].clone();
        let short_name = short_name(&replica_set);
        let observed = outcome_of::replica_set::observe(&replica_set, &self.objects);
        let plan = pod_planner::plan(&observed);
        check_inactive_owner(&observed);
        let mut done = 0;
        for write in &plan.writes {
            match write {
                pod_planner::Write::Create { count, .. } => {
                    assert!(*count <= pod_planner::BURST, "S14");
                    let count = (*count).min(most_writes);
                    for _ in 0..count {
                        let live = self.active_pods(&replica_set).len();
                        assert!(
                            live < replica_set.replicas as usize,
                            "S11: {name} has {live} pods and gets more"
                        );
                        self.create_pod(&replica_set);
                    }
                    done += count;
                    self.say("replicaset", &format!("{short_name}: create {}", pods(count)));
                }
                pod_planner::Write::Delete(victims) => {
                    assert!(victims.len() <= pod_planner::BURST, "S14");
                    check_victims(&observed, victims);
                    let count = victims.len().min(most_writes);
                    for victim in &victims[..count] {
                        let live = self.active_pods(&replica_set).len();
                        assert!(
                            live > replica_set.replicas as usize,
                            "S12: {name} has {live} pods and loses one"
                        );
                        outcome_of::replica_set::delete_pod(victim, &mut self.objects);
                    }
                    done += count;
                    self.say("replicaset", &format!("{short_name}: delete {}", pods(count)));
                }
                pod_planner::Write::DeleteFailed(failed) => {
                    let count = failed.len().min(most_writes);
                    for pod in &failed[..count] {
                        assert_eq!(pod.phase, Phase::Failed, "{name} deletes a pod that has not failed");
                        outcome_of::replica_set::delete_pod(pod, &mut self.objects);
                    }
                    done += count;
                    self.say("replicaset", &format!("{short_name}: delete {} that failed", pods(count)));
                }
                pod_planner::Write::Adopt(pod) => {
                    assert!(
                        pod.meta.controller.is_none() && replica_set.selector.matches(&pod.meta.labels),
                        "S15"
                    );
                    outcome_of::replica_set::adopt_pod(pod, &replica_set, &mut self.objects);
                    self.say("replicaset", &format!("{short_name}: adopt {}", pod.meta.key.name));
                    done += 1;
                }
                pod_planner::Write::Release(pod) => {
                    assert!(!replica_set.selector.matches(&pod.meta.labels), "S16");
                    outcome_of::replica_set::release_pod(pod, &mut self.objects);
                    self.say("replicaset", &format!("{short_name}: release {}", pod.meta.key.name));
                    done += 1;
                }
            }
        }
        let settled = pod_planner::status::settle(&observed, None);
        let (before, after) = (&replica_set.status, &settled.status);
        let sane = 0 <= after.available && after.available <= after.ready && after.ready <= after.replicas;
        assert!(sane, "S20: {after:?}");
        assert!(after.observed_generation >= before.observed_generation, "S20");
        check_conditions(&before.conditions, &after.conditions);
        let changed = before != after;
        if write_status {
            outcome_of::replica_set::settle(&settled, name, &mut self.objects);
            self.lost.remove(&replica_set.meta.uid);
        }
        let requeue_after = settled.requeue_after.into_iter().chain(plan.requeue_after).min();
        Synced { wrote: done > 0 || changed && write_status, requeue_after }
    }

    fn create_pod(&mut self, replica_set: &ReplicaSet) {
        // Names that do not sort by age, as random ones do not.
        let prefix = format!("p{:02}-", self.rng.u8(0..100));
        let node = self.rng.u8(0..4);
        let pod = outcome_of::replica_set::create_pod(replica_set, &prefix, &mut self.objects).unwrap();
        if node < 3 && !self.binds_later {
            pod.bind(format!("n{node}"));
        }
        self.tags.insert(pod.meta.key.name.clone(), tag(&replica_set.template));
    }
}
