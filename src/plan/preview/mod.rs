//! A preview of a rollout, step by step, before it begins: the planners that the daemon runs, on copies of the objects,
//! with a kubelet that follows three rules: a pod is ready some time after its creation, or never, and gone some time after
//! its deletion. Scheduling, images and probes are not judged.

mod cluster;
pub mod daemon_set;
mod nodes;
pub mod rolling_update;
pub mod stateful_set;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::daemonset;
use super::deployment::course::Hold;
use super::outcome_of::ByName;
use super::policy::{ROLLOUT, StepHold};
use super::reason::Reason;
use crate::model::{Record, Strategy};
pub use crate::plan::statefulset::Reason as DeletionReason;
use cluster::Cluster;
pub use cluster::Start;
pub use nodes::{Kubelet, Room};

/// The state at one moment, after all controllers and kubelets have acted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The time since the change.
    pub after: SignedDuration,
    /// The sizes of the ReplicaSets, by name; of a StatefulSet or DaemonSet, how many pods are of each revision.
    pub sizes: BTreeMap<Arc<str>, i32>,
    /// How many pods there are that are not being deleted.
    pub pods: i64,
    /// How many of them are available; of a DaemonSet, how many nodes have an available one.
    pub available: i64,
    /// How many creations a quota refused.
    pub refused: i64,
    /// The pods and claims of a StatefulSet, or the nodes of a DaemonSet, that changed since the step before. ReplicaSets have
    /// none: the names of their pods say nothing.
    pub changes: Vec<Change>,
    /// The step of the rollout policy that holds here.
    pub held: Option<Held>,
}

/// A hold at a step of a rollout policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The number of the step, from 1.
    pub step: usize,
    /// How many steps there are.
    pub of: usize,
    /// For how long; `None` until approved. The preview goes on as if it were approved at once.
    pub time: Option<SignedDuration>,
}

/// A change of the pods and claims of a StatefulSet, or of the pods of a DaemonSet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A pod is deleted.
    Deleted(Arc<str>, DeletionReason),
    /// A pod is created, and these claims before it.
    Created(Arc<str>, Vec<Arc<str>>),
    /// A claim is deleted by the garbage collector, as the retention policy says, or after a user deleted it.
    ClaimDeleted(Arc<str>),
    /// The pod of a node is deleted.
    DeletedOn(Arc<str>, daemonset::Reason),
    /// A node gets a pod.
    CreatedOn(Arc<str>),
}

/// A ReplicaSet that has a part in the rollout, or a revision of a StatefulSet or DaemonSet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its name.
    pub name: Arc<str>,
    /// Its revision, once it has one.
    pub revision: Option<i64>,
    /// Whether it has the new template.
    pub is_new: bool,
}

/// How a preview ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The rollout is complete.
    Complete,
    /// The progress deadline passes.
    Stuck,
    /// Nothing happens any more: the Deployment is paused, or has no deadline.
    Waits,
    /// The rollout fails, and the ReplicaSet that serves gets its pods back.
    Halted,
    /// The rollout goes on, and the preview does not: it has played as many rounds as it may.
    GoesOn,
}

/// A rollout that has not begun.
#[derive(Clone, Debug, PartialEq)]
pub struct Preview {
    /// The ReplicaSets with pods at any time, the old ones first.
    pub parts: Vec<Part>,
    /// The steps; the first is what is there now.
    pub steps: Vec<Step>,
    /// How it ends.
    pub end: End,
    /// When it ends.
    pub took: SignedDuration,
    /// The most pods that may exist.
    pub most_allowed: i64,
    /// The fewest pods that must be available; 0 under Recreate.
    pub least_allowed: i64,
    /// Whether a quota refuses the new ReplicaSet.
    pub is_replica_set_refused: bool,
    /// Of a StatefulSet or DaemonSet: the reasons of the last plan, where the rollout does not complete.
    pub waits_for: Vec<Reason>,
    /// Of a Deployment: why its policy lets the rollout go no further, where it does not complete.
    pub stopped_by: Option<String>,
}

impl Preview {
    /// The step with the fewest available pods: the first of them.
    pub fn lowest(&self) -> Option<(usize, &Step)> {
        self.steps.iter().enumerate().min_by_key(|(_, step)| step.available)
    }

    /// The most pods of all steps.
    pub fn most(&self) -> i64 {
        self.steps.iter().map(|step| step.pods).max().unwrap_or(0)
    }

    /// Gives a ReplicaSet another name: where another controller manager acts, which hashes templates in its own way,
    /// nobody can foretell the name of a new one.
    pub fn rename(&mut self, from: &str, to: &Arc<str>) {
        for part in self.parts.iter_mut().filter(|part| &*part.name == from) {
            part.name = to.clone();
        }
        for step in &mut self.steps {
            if let Some(size) = step.sizes.remove(from) {
                step.sizes.insert(to.clone(), size);
            }
        }
    }
}

/// No rollout takes longer than this to preview: as many rounds, each of which changes something.
const MOST_ROUNDS: usize = 50_000;

/// How many pods a preview visits, each of them in each round: at most some seconds, also of an object with 2147483647
/// replicas. Of 500 nodes every one is played with a bound of 1, of 5,000 the first hundred.
const MOST_VISITS: usize = 4_000_000;

/// Of more pods not even the first round is played.
const MOST_PODS: i32 = 100_000;

/// Counts the pods that a preview visits.
#[derive(Debug)]
struct Visits(usize);

impl Visits {
    fn of(replicas: i32) -> Self {
        Visits(if replicas > MOST_PODS { MOST_VISITS } else { 0 })
    }

    /// Whether a round with so many pods may be played.
    fn allow(&mut self, pods: usize) -> bool {
        self.0 = self.0.saturating_add(pods.max(1));
        self.0 <= MOST_VISITS
    }
}

/// Plays the rollout to its end.
pub fn preview(start: Start) -> Preview {
    let began = start.now;
    let (surge, unavailable) = start.deployment.budget();
    let (replicas, is_rolling) = (
        i64::from(start.deployment.replicas),
        matches!(start.deployment.strategy, Strategy::RollingUpdate { .. }),
    );
    let mut cluster = Cluster::new(start);
    let mut steps = vec![step(&cluster, began)];
    let mut names = cluster.sizes();
    let end = loop_until_the_end(&mut cluster, began, &mut steps, &mut names);
    let stopped_by = cluster.stopped_by().filter(|_| end != End::Complete);
    let parts = parts(&cluster, names, &steps);
    Preview {
        parts,
        steps,
        end,
        took: cluster.since(began),
        most_allowed: replicas + if is_rolling { i64::from(surge) } else { 0 },
        least_allowed: if is_rolling { (replicas - i64::from(unavailable)).max(0) } else { 0 },
        is_replica_set_refused: cluster.is_replica_set_refused,
        waits_for: Vec::new(),
        stopped_by,
    }
}

/// The ReplicaSets that have pods at any step.
fn parts(cluster: &Cluster, names: BTreeMap<Arc<str>, i32>, steps: &[Step]) -> Vec<Part> {
    let mut parts: Vec<Part> = names
        .into_keys()
        .filter(|name| steps.iter().any(|step| step.sizes.get(name).is_some_and(|size| *size > 0)))
        .map(|name| {
            let (revision, is_new) = cluster.describe(&name).unwrap_or((None, false));
            Part { name, revision, is_new }
        })
        .collect();
    parts.sort_by_key(|part| (part.is_new, part.revision, part.name.clone()));
    parts
}

fn loop_until_the_end(
    cluster: &mut Cluster,
    began: Timestamp,
    steps: &mut Vec<Step>,
    names: &mut BTreeMap<Arc<str>, i32>,
) -> End {
    let mut visits = Visits::of(cluster.replicas());
    for _ in 0..MOST_ROUNDS {
        if !visits.allow(cluster.objects.pods.len()) {
            break;
        }
        cluster.nodes.refused = 0;
        let rounds = [cluster.sync_deployment(), cluster.sync_replica_sets(), cluster.run_kubelet()];
        names.extend(cluster.sizes());
        if rounds.iter().any(|round| round.is_busy) {
            continue;
        }
        let now = step(cluster, began);
        let is_same = |last: &Step| Step { after: last.after, held: last.held, ..now.clone() } == *last;
        if !steps.last().is_some_and(is_same) {
            steps.push(now);
        }
        if cluster.is_complete() {
            return if cluster.has_failed() { End::Halted } else { End::Complete };
        }
        if cluster.is_past_deadline() && !cluster.has_failed() {
            return End::Stuck;
        }
        if let Some(Hold::Step(hold @ StepHold { since: Some(_), .. })) = cluster.hold() {
            let approval = note_hold(hold, cluster.objects.now, steps);
            if let Some(command) = approval {
                cluster.annotate(ROLLOUT, &command);
                continue;
            }
        }
        let looks = rounds.into_iter().flat_map(|round| round.looks).filter(|at| *at > cluster.objects.now);
        let Some(next) = looks.min() else {
            return if cluster.has_failed() { End::Halted } else { End::Waits };
        };
        cluster.objects.now = next;
    }
    End::GoesOn
}

/// Notes a hold where it begins. Returns the approval, if it needs one.
fn note_hold(hold: &StepHold, now: Timestamp, steps: &mut [Step]) -> Option<String> {
    let time = hold.passes_at.map(|at| at.duration_since(now));
    let held = Held { step: hold.step, of: hold.of, time };
    let is_noted = |step: &Step| step.held.is_some_and(|noted| noted.step == held.step);
    if !steps.iter().any(is_noted)
        && let Some(last) = steps.last_mut()
    {
        last.held = Some(held);
    }
    (!hold.is_timed).then(|| format!("approve {}/{}", hold.revision, hold.step))
}

fn by_name<T: Record>(objects: Vec<Arc<T>>) -> ByName<T> {
    objects.into_iter().map(|object| (object.meta().key.name.clone(), object)).collect()
}

fn count(pods: usize) -> i64 {
    i64::try_from(pods).unwrap_or(i64::MAX)
}

fn step(cluster: &Cluster, began: Timestamp) -> Step {
    let (pods, available) = cluster.counts();
    Step {
        after: cluster.since(began),
        sizes: cluster.sizes(),
        pods,
        available,
        refused: cluster.nodes.refused,
        changes: Vec::new(),
        held: None,
    }
}

#[cfg(test)]
mod tests;
