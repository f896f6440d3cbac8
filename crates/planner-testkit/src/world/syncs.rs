//! The syncs of both controllers on plain records, with a check of every write.

use std::sync::Arc;

use serde_json::json;
use windlass::model::{
    Interner, ObjectKey, Pod, ReplicaSet, Strategy as Update, StringMap, Template, Uid, condition,
};
use windlass::plan::deployment::rollback::RollBack;
use windlass::plan::deployment::{
    self as planner, Plan, StatusScope, Write, new_replica_set::replica_set_body, progress, revision,
};
use windlass::plan::replicaset::{self as pod_planner};

use super::invariants::{check_conditions, check_inactive_owner, check_victims};
use super::*;
use crate::objects::decode;

impl World {
    /// One sync of the Deployment: how many writes are carried out, and whether the status is.
    pub fn sync_deployment(&mut self, most_writes: usize, write_status: bool) -> Synced {
        let world = self.clone();
        let observed = world.observe();
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
            self.annotate(revision::REVISION, revision);
            synced.wrote = true;
        }
        if settled.status != self.deployment.status {
            let progress = |all: &[Condition]| {
                condition::find(all, "Progressing").map(|c| c.reason.to_string()).unwrap_or_default()
            };
            let before = progress(&self.deployment.status.conditions);
            let after = progress(&settled.status.conditions);
            if before != after && plan.status_scope != StatusScope::CountsOnly {
                self.say("progress", &after);
            }
            synced.wrote = true;
        }
        self.deployment.status = settled.status;
        synced
    }

    /// Carries out one write; `false` when the API server refuses it.
    fn write_replica_set(&mut self, plan: &Plan, write: &Write) -> bool {
        let (_, max_total, min_available) = self.bounds();
        let (sum_before, available_before) = (self.sum(), self.available_in_the_end());
        match write {
            Write::Create(new) => {
                let same = |s: &&ReplicaSet| s.template.asks_for_the_same_as(&self.deployment.template);
                let hash = self.deployment.template.hash(self.deployment.status.collision_count);
                assert_eq!(new.name, format!("web-{hash}"), "S5");
                if let Some(there) = self.replica_sets.get(&*new.name) {
                    let ours = self.deployment.controls(&there.meta) && same(&there);
                    return ours;
                }
                let selected = |s: &&ReplicaSet| self.deployment.selector.matches(&s.meta.labels);
                assert!(
                    !self.owned_replica_sets().filter(selected).any(|s| same(&s)),
                    "S4: a second ReplicaSet for one template"
                );
                self.check_recreate(None);
                let body = replica_set_body(&self.deployment, new).unwrap();
                let mut object: serde_json::Value = serde_json::from_slice(&body).unwrap();
                let serial = self.serial();
                object["metadata"]["uid"] = format!("replica-set-{serial}").into();
                object["metadata"]["resourceVersion"] = serial.to_string().into();
                object["metadata"]["creationTimestamp"] = json!(self.now.to_string());
                object["metadata"]["generation"] = 1.into();
                let replica_set: ReplicaSet = decode(&object);
                self.say("deployment", &format!("create {} at {}", short_name(&replica_set), new.replicas));
                self.replica_sets.insert(new.name.as_str().into(), replica_set);
            }
            Write::Change(replica_set, change) => {
                let is_new = replica_set.template.asks_for_the_same_as(&self.deployment.template);
                if is_new && change.replicas.is_some_and(|size| size > replica_set.replicas) {
                    self.check_recreate(Some(&replica_set.meta.uid));
                }
                let short_name = short_name(replica_set);
                if let Some(size) = change.replicas {
                    self.say("deployment", &format!("scale {short_name} {} -> {size}", replica_set.replicas));
                }
                if let Some(revision) = change.annotations.get(revision::REVISION) {
                    self.say("deployment", &format!("{short_name} becomes revision {revision}"));
                }
                let stored = self.replica_sets.get_mut(&replica_set.meta.key.name).unwrap();
                let old = stored.annotations.iter().filter(|(key, _)| !change.annotations.contains_key(*key));
                let new = change.annotations.iter().map(|(key, value)| (key.as_str(), value.as_str()));
                stored.annotations = Arc::new(old.chain(new).collect::<StringMap>());
                if change.replicas.is_some() || change.min_ready_seconds.is_some() {
                    stored.meta.generation += 1;
                }
                stored.replicas = change.replicas.unwrap_or(stored.replicas);
                if let Some(seconds) = change.min_ready_seconds {
                    stored.min_ready_seconds = seconds;
                    self.lost.insert(replica_set.meta.uid.clone());
                }
                let history = stored.annotations.get(revision::REVISION_HISTORY).unwrap_or("");
                assert!(history.len() <= 2000, "S7: the history is too long");
            }
            Write::Delete(replica_set) => {
                let stored = &self.replica_sets[&replica_set.meta.key.name];
                assert!(
                    stored.replicas == 0
                        && stored.status.replicas == 0
                        && stored.status.observed_generation >= stored.meta.generation
                        && !stored.template.asks_for_the_same_as(&self.deployment.template),
                    "S8: {} is deleted",
                    replica_set.meta.key
                );
                let revision_of = |s: &ReplicaSet| revision::revision_of(s).unwrap_or(0);
                let older =
                    self.owned_replica_sets().filter(|s| revision_of(s) < revision_of(stored)).all(|s| {
                        s.replicas > 0
                            || s.status.replicas > 0
                            || s.status.observed_generation < s.meta.generation
                            || s.template.asks_for_the_same_as(&self.deployment.template)
                    });
                assert!(older, "S8: the oldest revision must be deleted first");
                let is_old = |s: &&ReplicaSet| !s.template.asks_for_the_same_as(&self.deployment.template);
                let kept = self.owned_replica_sets().filter(is_old).count() as i32 - 1;
                assert!(kept >= self.deployment.revision_history_limit.unwrap(), "S8: too few are kept");
                self.replica_sets.remove(&replica_set.meta.key.name);
                self.say("deployment", &format!("delete {}", short_name(replica_set)));
            }
            Write::RollBack(rollback) => {
                self.roll_back(rollback);
                return true;
            }
            Write::Adopt(replica_set) => {
                assert!(replica_set.meta.controller.is_none() && !replica_set.meta.is_deleting(), "S15");
                let controller =
                    reference("Deployment", &self.deployment.meta.key, &self.deployment.meta.uid);
                self.replica_sets.get_mut(&replica_set.meta.key.name).unwrap().meta.controller =
                    Some(controller);
                self.say("deployment", &format!("adopt {}", short_name(replica_set)));
                return true;
            }
            Write::Release(replica_set) => {
                assert!(!self.deployment.selector.matches(&replica_set.meta.labels), "S16");
                self.replica_sets.get_mut(&replica_set.meta.key.name).unwrap().meta.controller = None;
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

    fn roll_back(&mut self, rollback: &RollBack) {
        match &rollback.back {
            None => {
                let kept =
                    self.deployment.annotations.iter().filter(|(key, _)| *key != revision::ROLLBACK_TO);
                self.deployment.annotations = Arc::new(kept.collect());
            }
            Some((template, annotations)) => {
                let annotations = annotations.iter().map(|(key, value)| (key.as_str(), value.as_str()));
                self.deployment.annotations = Arc::new(annotations.collect());
                self.deployment.template = Template::decode(template, &mut Interner::default()).unwrap();
                self.deployment.meta.generation += 1;
            }
        }
        self.say("deployment", &rollback.note.message);
    }

    /// One sync of a ReplicaSet: how many pods are written, and whether the status is.
    pub fn sync_replica_set(&mut self, name: &Arc<str>, most_writes: usize, write_status: bool) -> Synced {
        let replica_set = self.replica_sets[name].clone();
        let short_name = short_name(&replica_set);
        let held_by = |owner: Option<&Uid>| -> Vec<Arc<Pod>> {
            let held = |p: &&Pod| p.meta.controller.as_ref().map(|c| &c.uid) == owner;
            self.pods.values().filter(held).cloned().map(Arc::new).collect()
        };
        let siblings = match &replica_set.meta.controller {
            Some(_) => self
                .owned_replica_sets()
                .filter(|s| s.meta.uid != replica_set.meta.uid)
                .flat_map(|s| self.active_pods(s))
                .collect(),
            None => Vec::new(),
        };
        let observed = pod_planner::Observed {
            replica_set: &replica_set,
            pod_sets: pod_planner::PodSets::of(
                &replica_set,
                held_by(Some(&replica_set.meta.uid)),
                held_by(None),
            ),
            may_adopt: true,
            siblings,
            // The names are this world's own.
            free_names: Vec::new(),
            reserved: 0,
            failed_pod_backoff: true,
            now: self.now,
        };
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
                        self.pods.get_mut(&victim.meta.key.name).unwrap().meta.deletion = Some(self.now);
                    }
                    done += count;
                    self.say("replicaset", &format!("{short_name}: delete {}", pods(count)));
                }
                pod_planner::Write::Adopt(pod) => {
                    assert!(
                        pod.meta.controller.is_none() && replica_set.selector.matches(&pod.meta.labels),
                        "S15"
                    );
                    let controller = reference("ReplicaSet", &replica_set.meta.key, &replica_set.meta.uid);
                    self.pods.get_mut(&pod.meta.key.name).unwrap().meta.controller = Some(controller);
                    self.say("replicaset", &format!("{short_name}: adopt {}", pod.meta.key.name));
                    done += 1;
                }
                pod_planner::Write::Release(pod) => {
                    assert!(!replica_set.selector.matches(&pod.meta.labels), "S16");
                    self.pods.get_mut(&pod.meta.key.name).unwrap().meta.controller = None;
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
            self.replica_sets.get_mut(name).unwrap().status = settled.status;
            self.lost.remove(&replica_set.meta.uid);
        }
        let requeue_after = settled.requeue_after.into_iter().chain(plan.requeue_after).min();
        Synced { wrote: done > 0 || changed && write_status, requeue_after }
    }

    fn create_pod(&mut self, replica_set: &ReplicaSet) {
        let serial = self.serial();
        // Names that do not sort by age, as random ones do not.
        let name: Arc<str> = format!("p{:02}-{serial}", self.rng.u8(0..100)).into();
        let mut meta = replica_set.meta.clone();
        meta.key = ObjectKey::new("shop", name.clone());
        meta.uid = Uid::new(&format!("pod-{name}"));
        (meta.generation, meta.resource_version, meta.created) = (1, serial, self.now);
        meta.labels = replica_set.template.labels.clone();
        meta.controller = Some(reference("ReplicaSet", &replica_set.meta.key, &replica_set.meta.uid));
        let node = self.rng.u8(0..4);
        let mut pod = Pod::pending(meta);
        if node < 3 {
            pod.bind(format!("n{node}"));
        }
        self.tags.insert(name.clone(), tag(&replica_set.template).to_owned());
        self.pods.insert(name, pod);
    }
}
