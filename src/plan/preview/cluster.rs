//! Copies of the objects of a rollout, on which the planners act instead of on the API server's.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{Kubelet, Room, Start};
use crate::model::{
    ControllerRef, Deployment, Interner, Meta, ObjectKey, Phase, Pod, Record as _, ReplicaSet, StringMap,
    Template, Uid, condition,
};
use crate::plan::deployment::new_replica_set::replica_set_body;
use crate::plan::deployment::rollback::RollBack;
use crate::plan::deployment::{self, Write, progress, revision};
use crate::plan::replicaset::{self, PodSets};

/// A pod, and what becomes of it.
struct Member {
    pod: Arc<Pod>,
    /// When it becomes ready, if it does.
    ready_at: Option<Timestamp>,
    /// When it is gone, if it is being deleted.
    gone_at: Option<Timestamp>,
    /// Whether it has the old template; its requests may differ.
    is_new: bool,
}

/// The objects.
pub(super) struct Cluster {
    /// The Deployment that owns the ReplicaSets; `None` where these are ReplicationControllers, which nobody owns.
    deployment: Option<Deployment>,
    /// The template that new pods get.
    template: Template,
    replica_sets: BTreeMap<Arc<str>, ReplicaSet>,
    pods: BTreeMap<Arc<str>, Member>,
    rooms: Vec<Room>,
    kubelet: Kubelet,
    /// How many more pods of the new template never become ready.
    broken: usize,
    /// How many ReplicaSets a quota still allows.
    free_replica_sets: Option<i64>,
    /// Whether it has refused one.
    pub(super) is_replica_set_refused: bool,
    /// Creations that a quota refused in this moment.
    pub(super) refused: i64,
    pub(super) now: Timestamp,
    serial: u64,
}

/// The activity of a round, and the times at which there is something to do again.
#[derive(Default)]
pub(super) struct Round {
    pub(super) is_busy: bool,
    pub(super) looks: Vec<Timestamp>,
}

impl Round {
    fn look_after(&mut self, now: Timestamp, wait: Option<std::time::Duration>) {
        self.looks.extend(wait.and_then(|wait| now.saturating_add(wait).ok()));
    }
}

impl Cluster {
    /// A Deployment's.
    pub(super) fn new(start: Start) -> Self {
        let Start { deployment, replica_sets, pods, now, kubelet, rooms, free_replica_sets } = start;
        let template = deployment.template.clone();
        let sets = Self::of_sets(replica_sets, template, pods, now, kubelet, rooms);
        Cluster { deployment: Some(deployment), free_replica_sets, ..sets }
    }

    /// Those of ReplicationControllers.
    pub(super) fn of_sets(
        replica_sets: Vec<ReplicaSet>,
        template: Template,
        pods: Vec<Arc<Pod>>,
        now: Timestamp,
        kubelet: Kubelet,
        rooms: Vec<Room>,
    ) -> Self {
        let replica_sets: BTreeMap<Arc<str>, ReplicaSet> =
            replica_sets.into_iter().map(|set| (set.meta.key.name.clone(), set)).collect();
        let owners: BTreeMap<&Uid, bool> = replica_sets
            .values()
            .map(|set| (&set.meta.uid, set.template.asks_for_the_same_as(&template)))
            .collect();
        let member = |pod: Arc<Pod>| {
            let is_new = pod.meta.controller.as_ref().and_then(|owner| owners.get(&owner.uid)).copied();
            // A pod that should have been ready by now is in trouble, and stays as it is.
            let starts = pod.is_active() && pod.ready_since.is_none() && pod.waiting.is_none();
            let ready_at = pod.meta.created.saturating_add(kubelet.ready_after).ok();
            let ready_at = ready_at.filter(|at| starts && *at > now);
            let gone_at = pod.meta.deletion.map(|deletion| deletion.max(now));
            (pod.meta.key.name.clone(), Member { pod, ready_at, gone_at, is_new: is_new.unwrap_or(false) })
        };
        let pods = pods.into_iter().map(member).collect();
        let broken = kubelet.broken;
        Cluster {
            deployment: None,
            template,
            replica_sets,
            pods,
            rooms,
            kubelet,
            broken,
            free_replica_sets: None,
            is_replica_set_refused: false,
            refused: 0,
            now,
            serial: 0,
        }
    }

    /// A ReplicaSet by its name.
    pub(super) fn replica_set(&self, name: &str) -> Option<&ReplicaSet> {
        self.replica_sets.get(name)
    }

    /// All pods.
    pub(super) fn pods(&self) -> Vec<Arc<Pod>> {
        self.pods.values().map(|member| member.pod.clone()).collect()
    }

    /// Gives a ReplicaSet another size.
    pub(super) fn resize(&mut self, name: &str, size: i32) {
        if let Some(set) = self.replica_sets.get_mut(name) {
            set.replicas = size;
            set.meta.generation = set.meta.generation.saturating_add(1);
        }
    }

    fn owned(&self) -> impl Iterator<Item = &ReplicaSet> {
        let owns = |set: &&ReplicaSet| self.deployment.as_ref().is_none_or(|owner| owner.controls(&set.meta));
        self.replica_sets.values().filter(owns)
    }

    /// The name and the size of each ReplicaSet of the Deployment.
    pub(super) fn sizes(&self) -> BTreeMap<Arc<str>, i32> {
        self.owned().map(|set| (set.meta.key.name.clone(), set.replicas)).collect()
    }

    /// The revision of a ReplicaSet, and whether it has the Deployment's template.
    pub(super) fn describe(&self, name: &str) -> Option<(Option<i64>, bool)> {
        let set = self.replica_sets.get(name)?;
        Some((revision::revision_of(set), set.template.asks_for_the_same_as(&self.template)))
    }

    /// How many pods exist that are not being deleted, and how many of them are available.
    pub(super) fn counts(&self) -> (i64, i64) {
        let (mut pods, mut available) = (0, 0);
        for set in self.owned() {
            for member in self.pods.values() {
                if set.controls(&member.pod.meta) && member.pod.is_active() {
                    pods += 1;
                    available += i64::from(member.pod.is_available(set.min_ready_seconds, self.now));
                }
            }
        }
        (pods, available)
    }

    /// Whether the rollout is done, as `kubectl rollout status` has it: deleted pods may still be ending.
    pub(super) fn is_complete(&self) -> bool {
        let Some(Deployment { meta, replicas, status, .. }) = &self.deployment else { return false };
        let counts = [status.replicas, status.updated, status.available];
        status.observed_generation >= meta.generation && counts.iter().all(|count| count == replicas)
    }

    /// Whether the progress deadline has passed.
    pub(super) fn is_past_deadline(&self) -> bool {
        let conditions = self.deployment.as_ref().map(|deployment| &deployment.status.conditions);
        conditions
            .and_then(|conditions| condition::find(conditions, progress::PROGRESSING))
            .is_some_and(|condition| &*condition.reason == progress::TIMED_OUT)
    }

    /// One sync of the Deployment.
    pub(super) fn sync_deployment(&mut self) -> Round {
        let Some(deployment) = self.deployment.clone() else { return Round::default() };
        let owned = self.owned().cloned().map(Arc::new).collect();
        let observed = deployment::Observed::gather(
            &deployment,
            owned,
            Vec::new(),
            false,
            |set| self.pods_of(Some(&set.meta.uid)),
            self.now,
        );
        let plan = deployment::plan(&observed);
        let mut outcome = progress::Outcome::default();
        let mut round = Round::default();
        for write in &plan.writes {
            if matches!(write, Write::Create(_)) && self.free_replica_sets.is_some_and(|free| free < 1) {
                self.is_replica_set_refused = true;
                outcome.could_not_create("exceeded quota".to_owned());
                break;
            }
            if !self.write(write) {
                outcome.name_taken();
                break;
            }
            round.is_busy = true;
            outcome.succeeded();
        }
        let settled = progress::settle(&observed, &plan, &outcome);
        round.look_after(self.now, settled.requeue_after);
        let Some(stored) = &mut self.deployment else { return round };
        if let Some(number) = &settled.revision
            && stored.annotations.get(revision::REVISION) != Some(number)
        {
            let kept = stored.annotations.iter().filter(|(key, _)| *key != revision::REVISION);
            let all = kept.chain([(revision::REVISION, number.as_str())]).collect();
            stored.annotations = Arc::new(all);
            round.is_busy = true;
        }
        round.is_busy |= settled.status != stored.status;
        stored.status = settled.status;
        round
    }

    /// Carries a write out; `false` where the name of a new ReplicaSet is taken, or it cannot be made.
    fn write(&mut self, write: &Write) -> bool {
        match write {
            Write::Create(new) => {
                let made = !self.replica_sets.contains_key(&*new.name);
                let Some(set) = made.then(|| self.made(new)).flatten() else { return false };
                self.replica_sets.insert(set.meta.key.name.clone(), set);
                self.free_replica_sets = self.free_replica_sets.map(|free| free.saturating_sub(1));
            }
            Write::Change(set, change) => {
                let Some(stored) = self.replica_sets.get_mut(&set.meta.key.name) else { return true };
                let old = stored.annotations.iter().filter(|(key, _)| !change.annotations.contains_key(*key));
                let new = change.annotations.iter().map(|(key, value)| (key.as_str(), value.as_str()));
                stored.annotations = Arc::new(old.chain(new).collect::<StringMap>());
                if change.replicas.is_some() || change.min_ready_seconds.is_some() {
                    stored.meta.generation = stored.meta.generation.saturating_add(1);
                }
                stored.replicas = change.replicas.unwrap_or(stored.replicas);
                stored.min_ready_seconds = change.min_ready_seconds.unwrap_or(stored.min_ready_seconds);
            }
            Write::Delete(set) => {
                self.replica_sets.remove(&set.meta.key.name);
                self.free_replica_sets = self.free_replica_sets.map(|free| free.saturating_add(1));
            }
            Write::Adopt(set) | Write::Release(set) => {
                if let Some(stored) = self.replica_sets.get_mut(&set.meta.key.name) {
                    stored.meta.controller = None;
                }
            }
            Write::RollBack(RollBack { back, .. }) => self.roll_back(back.as_ref()),
        }
        true
    }

    fn roll_back(&mut self, back: Option<&(Box<serde_json::value::RawValue>, BTreeMap<String, String>)>) {
        let template =
            back.and_then(|(template, _)| Template::decode(template, &mut Interner::default()).ok());
        let Some(stored) = &mut self.deployment else { return };
        if let (Some(template), Some((_, annotations))) = (template, back) {
            let annotations = annotations.iter().map(|(key, value)| (key.as_str(), value.as_str()));
            stored.annotations = Arc::new(annotations.collect());
            self.template = template.clone();
            stored.template = template;
            stored.meta.generation = stored.meta.generation.saturating_add(1);
            return;
        }
        let kept = stored.annotations.iter().filter(|(key, _)| *key != revision::ROLLBACK_TO);
        stored.annotations = Arc::new(kept.collect());
    }

    /// The new ReplicaSet as the API server would store it.
    fn made(&mut self, new: &deployment::NewReplicaSet) -> Option<ReplicaSet> {
        let body = replica_set_body(self.deployment.as_ref()?, new).ok()?;
        let mut object: Value = serde_json::from_slice(&body).ok()?;
        self.serial += 1;
        let metadata = object.get_mut("metadata")?.as_object_mut()?;
        metadata.insert("uid".into(), json!(format!("preview-{}", self.serial)));
        metadata.insert("resourceVersion".into(), json!(self.serial.to_string()));
        metadata.insert("creationTimestamp".into(), json!(self.now.to_string()));
        metadata.insert("generation".into(), json!(1));
        ReplicaSet::decode(&object.to_string(), &mut Interner::default()).ok()
    }

    fn pods_of(&self, owner: Option<&Uid>) -> Vec<Arc<Pod>> {
        let held = |member: &&Member| member.pod.meta.controller.as_ref().map(|owner| &owner.uid) == owner;
        self.pods.values().filter(held).map(|member| member.pod.clone()).collect()
    }

    /// One sync of each ReplicaSet.
    pub(super) fn sync_replica_sets(&mut self) -> Round {
        let names: Vec<Arc<str>> = self.owned().map(|set| set.meta.key.name.clone()).collect();
        let mut round = Round::default();
        for name in names {
            self.sync_replica_set(&name, &mut round);
        }
        round
    }

    fn sync_replica_set(&mut self, name: &Arc<str>, round: &mut Round) {
        let Some(set) = self.replica_sets.get(name).cloned() else { return };
        let siblings = self
            .owned()
            .filter(|other| other.meta.uid != set.meta.uid)
            .flat_map(|other| self.pods_of(Some(&other.meta.uid)))
            .filter(|pod| pod.is_active())
            .collect();
        let observed = replicaset::Observed {
            pod_sets: PodSets::of(&set, self.pods_of(Some(&set.meta.uid)), Vec::new()),
            replica_set: &set,
            may_adopt: false,
            siblings,
            // The names are this cluster's own.
            free_names: Vec::new(),
            reserved: 0,
            failed_pod_backoff: true,
            now: self.now,
        };
        let plan = replicaset::plan(&observed);
        for write in &plan.writes {
            match write {
                replicaset::Write::Create { count, .. } => {
                    for _ in 0..*count {
                        round.is_busy |= self.create_pod(&set);
                    }
                }
                replicaset::Write::Delete(victims) => {
                    round.is_busy |= !victims.is_empty();
                    victims.iter().for_each(|victim| self.delete_pod(&victim.meta.key.name));
                }
                replicaset::Write::Adopt(pod) | replicaset::Write::Release(pod) => {
                    round.is_busy |= self.pods.remove(&pod.meta.key.name).is_some();
                }
            }
        }
        let settled = replicaset::status::settle(&observed, None);
        round.look_after(self.now, settled.requeue_after);
        round.look_after(self.now, plan.requeue_after);
        if let Some(stored) = self.replica_sets.get_mut(name) {
            round.is_busy |= stored.status != settled.status;
            stored.status = settled.status;
        }
    }

    /// Creates a pod, unless a quota has no room for it.
    fn create_pod(&mut self, set: &ReplicaSet) -> bool {
        let is_new = set.template.asks_for_the_same_as(&self.template);
        if self.rooms.iter().any(|room| room.free < room.of(is_new)) {
            self.refused += 1;
            return false;
        }
        for room in &mut self.rooms {
            room.free -= room.of(is_new);
        }
        self.serial += 1;
        let name: Arc<str> = format!("preview-{}", self.serial).into();
        let resource = set.resource();
        let api_version = match resource.group {
            "" => resource.version.to_owned(),
            group => format!("{group}/{}", resource.version),
        };
        let meta = Meta {
            key: ObjectKey { namespace: set.meta.key.namespace.clone(), name: name.clone() },
            uid: Uid::new(&name),
            generation: 1,
            created: self.now,
            labels: set.template.labels.clone(),
            controller: Some(Arc::new(ControllerRef {
                api_version: api_version.into(),
                kind: resource.kind.into(),
                name: set.meta.key.name.clone(),
                uid: set.meta.uid.clone(),
            })),
            ..set.meta.clone()
        };
        let mut pod = Pod::pending(meta);
        // All on one node: where they run makes no difference here.
        pod.bind("preview");
        let is_broken = is_new && self.broken > 0;
        self.broken -= usize::from(is_broken);
        let ready_at = self.now.saturating_add(self.kubelet.ready_after).ok().filter(|_| !is_broken);
        self.pods.insert(name, Member { pod: Arc::new(pod), ready_at, gone_at: None, is_new });
        true
    }

    fn delete_pod(&mut self, name: &str) {
        let Some(member) = self.pods.get_mut(name) else { return };
        Arc::make_mut(&mut member.pod).meta.deletion = Some(self.now);
        member.gone_at = self.now.saturating_add(self.kubelet.stop_after).ok();
        member.ready_at = None;
    }

    /// Makes the pods ready that are due, and drops those whose time is over.
    pub(super) fn run_kubelet(&mut self) -> Round {
        let mut round = Round::default();
        let now = self.now;
        for member in self.pods.values_mut() {
            if member.ready_at.is_some_and(|at| at <= now) {
                let pod = Arc::make_mut(&mut member.pod);
                (pod.phase, pod.ready_since) = (Phase::Running, Some(now));
                member.ready_at = None;
                round.is_busy = true;
            }
            round.looks.extend(member.ready_at.into_iter().chain(member.gone_at).filter(|at| *at > now));
        }
        let rooms = &mut self.rooms;
        self.pods.retain(|_, member| {
            let is_gone = member.gone_at.is_some_and(|at| at <= now);
            if is_gone {
                round.is_busy = true;
                rooms.iter_mut().for_each(|room| room.free += room.of(member.is_new));
            }
            !is_gone
        });
        round
    }

    /// How long after `start` it is.
    pub(super) fn since(&self, start: Timestamp) -> SignedDuration {
        self.now.duration_since(start)
    }
}
