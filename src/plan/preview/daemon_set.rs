//! The rollout of a DaemonSet before it begins, by its nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::cluster::Round;
use super::nodes::{Kubelet, Nodes, Room};
use super::{Change, End, MOST_ROUNDS, MOST_VISITS, Part, Preview, Step, by_name, count, note_hold};
use crate::model::int_or_percent::clamp;
use crate::model::{
    CONTROLLER_REVISION_HASH, ControllerRevision, DaemonSet, Pod, Record as _, UpdateStrategy,
};
use crate::plan::daemonset::refused::RefusedCreations;
use crate::plan::daemonset::revisions::History;
use crate::plan::daemonset::status::is_rolled_out;
use crate::plan::daemonset::{JudgedNodes, NewPod, PlanReason, Verdict};
use crate::plan::outcome_of::daemon_set::{DaemonSetSynced, create_pod, sync};
use crate::plan::outcome_of::{Objects, annotate};
use crate::plan::policy::{ROLLOUT, StepHold};
use crate::plan::reason::Reason;

/// The objects at the beginning.
#[derive(Clone, Debug)]
pub struct DaemonStart {
    /// The DaemonSet with its change, and a generation that its status has not observed.
    pub daemon_set: DaemonSet,
    /// The revisions that it selects.
    pub revisions: Vec<Arc<ControllerRevision>>,
    /// The pods that it selects.
    pub pods: Vec<Arc<Pod>>,
    /// The nodes of the cluster. On those that are unreachable no pod becomes ready, and none is gone.
    pub nodes: JudgedNodes,
    /// The time of the change.
    pub now: Timestamp,
    /// The rules of the kubelet.
    pub kubelet: Kubelet,
    /// The quotas of the namespace.
    pub rooms: Vec<Room>,
}

/// How many nodes may have a new pod beside the old one, and how many may have no available pod, of so many nodes that should
/// run one. `None` under `OnDelete`, which replaces none.
pub fn bounds(daemon_set: &DaemonSet, desired: i32) -> Option<(i64, i64)> {
    let (surge, unavailable) = daemon_set.budget(desired);
    (daemon_set.strategy != UpdateStrategy::OnDelete).then(|| (surge.into(), unavailable.into()))
}

impl DaemonStart {
    /// How many nodes should run a pod.
    pub fn desired(&self) -> i32 {
        let verdicts = self.nodes.verdicts.iter();
        clamp(count(verdicts.filter(|(_, verdict)| *verdict == Verdict::Run).count()))
    }
}

fn most_rounds(pods: usize) -> usize {
    MOST_ROUNDS.min(MOST_VISITS / pods.max(1))
}

/// Plays the rollout to its end.
pub fn preview_daemon_set(start: DaemonStart) -> Preview {
    let (began, desired) = (start.now, start.desired());
    let (surge, unavailable) = bounds(&start.daemon_set, desired).unwrap_or_default();
    let mut world = World::new(start);
    let first = world.step(began, Vec::new());
    let most_allowed = (i64::from(desired) + surge).max(first.pods);
    let mut steps = vec![first];
    let most_rounds = most_rounds(world.objects.pods.len());
    let (end, waits_for) = world.play(began, &mut steps, most_rounds);
    Preview {
        parts: world.parts(&steps),
        steps,
        end,
        took: world.objects.now.duration_since(began),
        most_allowed,
        least_allowed: (i64::from(desired) - unavailable).max(0),
        is_replica_set_refused: false,
        waits_for: waits_for.into_iter().map(Reason::from).collect(),
        stopped_by: None,
    }
}

struct World {
    daemon_set: DaemonSet,
    objects: Objects,
    kubelets: Nodes,
    nodes: JudgedNodes,
    refused: RefusedCreations,
    /// Revisions that were there at any time: their names and numbers, by hash.
    known: BTreeMap<Arc<str>, (Arc<str>, i64)>,
}

impl World {
    fn new(start: DaemonStart) -> Self {
        let DaemonStart { daemon_set, revisions, pods, nodes, now, kubelet, rooms } = start;
        let own: Vec<_> = revisions.iter().filter(|it| daemon_set.controls(&it.meta)).cloned().collect();
        let mut objects = Objects::new(now);
        objects.pods = by_name(pods);
        objects.revisions = by_name(revisions);
        let history = History::of(&daemon_set, &own);
        let is_new = |pod: &Pod| daemon_set.controls(&pod.meta) && history.is_new(pod);
        let mut kubelets = Nodes::new(&objects, is_new, kubelet, rooms);
        kubelets.unreachable.clone_from(&nodes.unreachable);
        drop(history);
        let mut world = World {
            daemon_set,
            objects,
            kubelets,
            nodes,
            refused: RefusedCreations::default(),
            known: BTreeMap::new(),
        };
        world.learn();
        world
    }

    fn learn(&mut self) {
        let named =
            self.objects.revisions.iter().filter_map(|(name, revision)| {
                Some((revision.hash()?.into(), (name.clone(), revision.number)))
            });
        self.known.extend(named);
    }

    fn play(
        &mut self,
        began: Timestamp,
        steps: &mut Vec<Step>,
        most_rounds: usize,
    ) -> (End, Vec<PlanReason>) {
        let mut changes = Vec::new();
        let mut reasons = Vec::new();
        for _ in 0..most_rounds {
            self.kubelets.refused = 0;
            let mut round = Round::default();
            let Ok(DaemonSetSynced { synced, created, deleted, reasons: why }) = self.sync() else {
                return (End::Waits, reasons);
            };
            reasons = why;
            round.add(synced, self.objects.now);
            changes.extend(deleted.into_iter().map(|(node, why)| Change::DeletedOn(node, why)));
            changes.extend(created.into_iter().map(Change::CreatedOn));
            round.is_busy |= self.kubelets.run(&mut self.objects, &mut round.looks);
            if round.is_busy {
                continue;
            }
            let now = self.step(began, std::mem::take(&mut changes));
            let is_same = |last: &Step| Step { after: last.after, held: last.held, ..now.clone() } == *last;
            if !steps.last().is_some_and(is_same) {
                steps.push(now);
            }
            if is_rolled_out(&self.daemon_set, &self.daemon_set.status) {
                return (End::Complete, Vec::new());
            }
            let hold = reasons.iter().find_map(|reason| match reason {
                PlanReason::HeldAtStep { step: step @ StepHold { since: Some(_), .. } } => Some(step),
                _ => None,
            });
            if let Some(approval) = hold.and_then(|hold| note_hold(hold, self.objects.now, steps)) {
                annotate(&mut self.daemon_set.policies, ROLLOUT, &approval);
                continue;
            }
            let next = round.looks.into_iter().filter(|at| *at > self.objects.now).min();
            let Some(next) = next else { return (End::Waits, reasons) };
            self.objects.now = next;
        }
        (End::GoesOn, reasons)
    }

    fn sync(&mut self) -> Result<DaemonSetSynced, serde_json::Error> {
        let World { daemon_set, objects, kubelets, nodes, refused, .. } = self;
        let create = |owner: &DaemonSet, new: &NewPod, hash: &str, objects: &mut Objects| {
            kubelets.create_pod(true, objects, |objects| create_pod(owner, new, hash, objects))
        };
        let synced = sync(daemon_set, objects, nodes, refused, create);
        self.learn();
        synced
    }

    fn name_of(&self, pod: &Pod) -> Arc<str> {
        let hash = pod.meta.labels.get(CONTROLLER_REVISION_HASH).unwrap_or_default();
        self.known.get(hash).map_or_else(|| hash.into(), |(name, _)| name.clone())
    }

    fn step(&self, began: Timestamp, changes: Vec<Change>) -> Step {
        let objects = &self.objects;
        let own = objects.pods_of(&self.daemon_set);
        let active: Vec<&Arc<Pod>> = own.iter().filter(|pod| pod.is_active()).collect();
        let mut sizes: BTreeMap<Arc<str>, i32> = BTreeMap::new();
        for pod in &active {
            *sizes.entry(self.name_of(pod)).or_default() += 1;
        }
        let is_available =
            |pod: &&&Arc<Pod>| pod.is_available(self.daemon_set.min_ready_seconds, objects.now);
        let should_run = |node: &&Arc<str>| self.nodes.verdicts.get(node) == Some(Verdict::Run);
        let serving = active.iter().filter(is_available).filter_map(|pod| pod.target());
        let serving: BTreeSet<_> = serving.filter(should_run).collect();
        Step {
            after: objects.now.duration_since(began),
            sizes,
            pods: count(active.len()),
            available: count(serving.len()),
            refused: self.kubelets.refused,
            changes,
            held: None,
        }
    }

    /// The revisions that have pods at any step, the new one last.
    fn parts(&self, steps: &[Step]) -> Vec<Part> {
        let own: Vec<_> = self
            .objects
            .revisions
            .values()
            .filter(|it| self.daemon_set.controls(&it.meta))
            .cloned()
            .collect();
        let history = History::of(&self.daemon_set, &own);
        let current = history.current.map(|revision| revision.meta.key.name.clone());
        let numbers: BTreeMap<&Arc<str>, i64> =
            self.known.values().map(|(name, number)| (name, *number)).collect();
        let names: BTreeSet<&Arc<str>> = steps.iter().flat_map(|step| step.sizes.keys()).collect();
        let parts = names.into_iter().map(|name| Part {
            name: name.clone(),
            revision: numbers.get(name).copied(),
            is_new: current.as_ref() == Some(name),
        });
        let mut parts: Vec<Part> = parts.collect();
        parts.sort_by_key(|part| (part.is_new, part.revision, part.name.clone()));
        parts
    }
}

#[cfg(test)]
mod tests;
