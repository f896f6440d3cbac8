//! The rollout of a StatefulSet before it begins, by the names of its pods and claims.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::cluster::Round;
use super::nodes::{Kubelet, Nodes, Room};
use super::{Change, End, MOST_ROUNDS, Part, Preview, Step, Visits, by_name, count};
use crate::model::{
    ControllerRevision, PersistentVolumeClaim, Pod, Record, StatefulSet, StatefulSetStrategy, Uid,
};
use crate::plan::outcome_of::Objects;
use crate::plan::outcome_of::stateful_set::{self, SetSynced};
use crate::plan::reason::Reason;
use crate::plan::statefulset::revisions::{History, revision_of};
use crate::plan::statefulset::status::is_rolled_out;
use crate::plan::statefulset::{Members, NewPod, PlanReason, Write, members, most_unavailable, ordinals};

/// The objects at the beginning.
#[derive(Clone, Debug)]
pub struct StatefulStart {
    /// The StatefulSet with its change, and a generation that its status has not observed.
    pub set: StatefulSet,
    /// The revisions that it selects.
    pub revisions: Vec<Arc<ControllerRevision>>,
    /// The pods of the namespace.
    pub pods: Vec<Arc<Pod>>,
    /// The claims of the namespace.
    pub claims: Vec<Arc<PersistentVolumeClaim>>,
    /// The time of the change.
    pub now: Timestamp,
    /// The rules of the kubelet.
    pub kubelet: Kubelet,
    /// The quotas of the namespace.
    pub rooms: Vec<Room>,
}

/// How many pods may be unavailable for the sake of an update; 0 with `OnDelete`, which deletes none.
pub fn may_be_unavailable(set: &StatefulSet) -> i64 {
    match set.strategy {
        StatefulSetStrategy::RollingUpdate { max_unavailable, .. } => most_unavailable(set, max_unavailable),
        StatefulSetStrategy::OnDelete => 0,
    }
}

/// Plays the rollout to its end.
pub fn preview_stateful_set(start: StatefulStart) -> Preview {
    let began = start.now;
    let (replicas, unavailable) = (i64::from(start.set.replicas), may_be_unavailable(&start.set));
    let mut world = World::new(start);
    let first = world.step(began, Vec::new());
    let most_allowed = first.pods.max(replicas);
    let mut steps = vec![first];
    let (end, waits_for) = world.play(began, &mut steps);
    Preview {
        parts: world.parts(&steps),
        steps,
        end,
        took: world.objects.now.duration_since(began),
        most_allowed,
        least_allowed: (replicas - unavailable).max(0),
        is_replica_set_refused: false,
        waits_for: waits_for.into_iter().map(Reason::from).collect(),
        stopped_by: None,
    }
}

struct World {
    set: StatefulSet,
    objects: Objects,
    nodes: Nodes,
    /// Revisions that were there at any time, with their numbers.
    known: BTreeMap<Arc<str>, i64>,
}

impl World {
    fn new(start: StatefulStart) -> Self {
        let StatefulStart { set, revisions, pods, claims, now, kubelet, rooms } = start;
        let mut objects = Objects::new(now);
        objects.pods = by_name(pods);
        objects.claims = by_name(claims);
        objects.revisions = by_name(revisions);
        let observed = stateful_set::observe(&set, &objects);
        let history = History::of(&set, &observed.revisions);
        let is_new = |pod: &Pod| set.controls(&pod.meta) && history.is_updated(pod);
        let nodes = Nodes::new(&objects, is_new, kubelet, rooms);
        World { set, objects, nodes, known: BTreeMap::new() }
    }

    fn play(&mut self, began: Timestamp, steps: &mut Vec<Step>) -> (End, Vec<PlanReason>) {
        let mut changes = Vec::new();
        let mut reasons = Vec::new();
        let mut visits = Visits::of(self.set.replicas);
        for _ in 0..MOST_ROUNDS {
            if !visits.allow(self.objects.pods.len()) {
                break;
            }
            self.nodes.refused = 0;
            let mut round = Round::default();
            let Ok(SetSynced { synced, writes, reasons: why }) = self.sync() else {
                return (End::Waits, reasons);
            };
            reasons = why;
            round.add(synced, self.objects.now);
            for write in &writes {
                self.note(write, &mut changes);
            }
            round.is_busy |= self.nodes.run(&mut self.objects, &mut round.looks);
            round.is_busy |= self.collect(&mut changes);
            if round.is_busy {
                continue;
            }
            let now = self.step(began, std::mem::take(&mut changes));
            if steps.last().is_none_or(|last| Step { after: last.after, ..now.clone() } != *last) {
                steps.push(now);
            }
            if is_rolled_out(&self.set) {
                return (End::Complete, Vec::new());
            }
            let next = round.looks.into_iter().filter(|at| *at > self.objects.now).min();
            let Some(next) = next else { return (End::Waits, reasons) };
            self.objects.now = next;
        }
        (End::GoesOn, reasons)
    }

    fn sync(&mut self) -> Result<SetSynced, serde_json::Error> {
        let World { set, objects, nodes, known } = self;
        let create = |set: &StatefulSet, new: &NewPod, objects: &mut Objects| {
            nodes.create_pod(new.is_updated, objects, |objects| stateful_set::create_pod(set, new, objects))
        };
        let synced = stateful_set::sync(set, objects, create);
        known.extend(objects.revisions.iter().map(|(name, revision)| (name.clone(), revision.number)));
        synced
    }

    /// The names of the pods and claims that a write concerns.
    fn note(&self, write: &Write, changes: &mut Vec<Change>) {
        let templates = &self.set.claim_templates.names;
        let claims = |new: &NewPod| {
            let missing = templates.iter().enumerate().filter(|(at, _)| new.missing_claims.contains(at));
            let names =
                missing.map(|(_, template)| ordinals::claim_name(template, &self.set, new.ordinal).into());
            names.collect()
        };
        match write {
            Write::CreatePods(pods) => {
                changes.extend(pods.iter().map(|new| Change::Created(new.name.clone(), claims(new))));
            }
            Write::DeletePods(deletions) => changes.extend(
                deletions
                    .iter()
                    .map(|deletion| Change::Deleted(deletion.pod.meta.key.name.clone(), deletion.reason)),
            ),
            _ => {}
        }
    }

    /// The garbage collector: a claim is deleted when all its owners are gone, and is gone once no pod uses it.
    fn collect(&mut self, changes: &mut Vec<Change>) -> bool {
        let Objects { pods, claims, .. } = &mut self.objects;
        let live: BTreeSet<&Uid> = pods.values().map(|pod| &pod.meta.uid).collect();
        let is_live = |kind: &str, uid: &Uid| kind != "Pod" || live.contains(uid);
        let is_used =
            |name: &str| pods.values().any(|pod| pod.claims.iter().any(|claim| claim.is_called(name)));
        let before = claims.len();
        claims.retain(|name, claim| {
            let has_owner =
                claim.owners.is_empty() || claim.owners.iter().any(|it| is_live(&it.kind, &it.uid));
            let stays = (has_owner && !claim.meta.is_deleting()) || is_used(name);
            if !stays {
                changes.push(Change::ClaimDeleted(name.clone()));
            }
            stays
        });
        claims.len() < before
    }

    fn step(&self, began: Timestamp, changes: Vec<Change>) -> Step {
        let objects = &self.objects;
        let members = Members::of(&self.set, objects.pods_of(&self.set), Vec::new());
        let active: Vec<&Arc<Pod>> = members.pods.values().filter(|pod| pod.is_active()).collect();
        let mut sizes: BTreeMap<Arc<str>, i32> = BTreeMap::new();
        for pod in &active {
            *sizes.entry(revision_of(pod).into()).or_default() += 1;
        }
        let is_available = |pod: &&&Arc<Pod>| members::is_available(&self.set, pod, objects.now);
        Step {
            after: objects.now.duration_since(began),
            sizes,
            pods: count(active.len()),
            available: count(active.iter().filter(is_available).count()),
            refused: self.nodes.refused,
            changes,
            held: None,
        }
    }

    /// The revisions that have pods at any step, the new one last.
    fn parts(&self, steps: &[Step]) -> Vec<Part> {
        let names: BTreeSet<&Arc<str>> = steps.iter().flat_map(|step| step.sizes.keys()).collect();
        let parts = names.into_iter().map(|name| Part {
            name: name.clone(),
            revision: self.known.get(name).copied(),
            is_new: *name == self.set.status.update_revision,
        });
        let mut parts: Vec<Part> = parts.collect();
        parts.sort_by_key(|part| (part.is_new, part.revision, part.name.clone()));
        parts
    }
}

#[cfg(test)]
mod tests;
