//! A toy cluster for the planners: one Deployment and what it has, as the records that the daemon keeps. No tokio, no
//! HTTP, no JSON but at the edges. Every write is checked against the safety invariants (S1 to S21) at once, and goes
//! into lines that a person can read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use windlass::model::pod::Waiting;
use windlass::model::{
    Condition, Deployment, Meta, Phase, Pod, Record as _, ReplicaSet, Strategy as Update, Template, Uid,
    int_or_percent::IntOrPercent,
};
use windlass::plan::deployment::{self as planner, revision};
use windlass::plan::outcome_of::{self, Objects};
use windlass::plan::replicaset::deletion_order;

use super::objects::{DeploymentBuilder, decode, now};

mod invariants;
mod syncs;

/// One Deployment and what it has. Its public parts are what tests look at.
#[derive(Clone)]
pub struct World {
    /// The only Deployment.
    pub deployment: Deployment,
    /// Its ReplicaSets and pods, and the time of the next sync.
    pub objects: Objects,
    /// The history, one line for each step.
    pub lines: Vec<String>,
    /// The image tags of all pods that there have been, by name.
    pub(crate) tags: BTreeMap<Arc<str>, String>,
    rng: fastrand::Rng,
    /// ReplicaSets of which a pod lost its availability since their status was written (the F of S2).
    lost: BTreeSet<Uid>,
    /// How many pods fewer than the budget says may be available: an old pod is terminated first.
    pub below: i64,
    /// Whether new pods are bound later, if a node has room.
    pub binds_later: bool,
    /// Whether foreign changes of owners and labels occurred.
    foreign_changes: bool,
}

/// A change of a pod.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)] // The names are the documentation.
pub enum PodChange {
    Ready,
    Unready,
    Fail,
    Delete,
    Removed,
    /// Its image cannot be pulled.
    Break,
    /// It fits no node.
    Unschedulable,
}

impl World {
    /// A Deployment that no controller has synced yet. Random choices of the cluster, such as nodes, come from the
    /// seed.
    pub fn new(deployment: DeploymentBuilder, seed: u64) -> Self {
        World {
            deployment: decode(&deployment.json()),
            objects: Objects::new(now()),
            lines: Vec::new(),
            tags: BTreeMap::new(),
            rng: fastrand::Rng::with_seed(seed),
            lost: BTreeSet::new(),
            below: 0,
            binds_later: false,
            foreign_changes: false,
        }
    }

    /// Adds a line. In the margin: how many pods there are of at most how many, and how many are available of at least
    /// how many.
    pub fn say(&mut self, who: &str, what: &str) {
        let active = self.owned_replica_sets().flat_map(|replica_set| {
            let seconds = replica_set.min_ready_seconds;
            self.active_pods(replica_set).into_iter().map(move |pod| (seconds, pod))
        });
        let active: Vec<(i32, Arc<Pod>)> = active.collect();
        let available =
            active.iter().filter(|(seconds, pod)| pod.is_available(*seconds, self.objects.now)).count();
        let (most, least) = self.budget();
        let margin = format!("{:>3}/{most:<3}{available:>3}/{least:<3}", active.len());
        self.lines.push(format!("{margin} {who:<12}{what}"));
    }

    /// The most pods that may exist, and the fewest that must be available. Recreate promises no available pods.
    pub fn budget(&self) -> (i64, i64) {
        let (_, most, least) = self.bounds();
        (most, if self.deployment.strategy == Update::Recreate { 0 } else { least })
    }

    /// A user changes the Deployment.
    pub fn edit(&mut self, change: impl FnOnce(&mut Deployment)) {
        let before = self.deployment.clone();
        change(&mut self.deployment);
        if self.deployment != before {
            self.deployment.meta.generation += 1;
        }
    }

    /// A user changes an annotation of the Deployment, which does not raise the generation.
    pub fn annotate(&mut self, key: &str, value: &str) {
        outcome_of::annotate(&mut self.deployment.annotations, key, value);
    }

    /// Another client changes the owner or the labels of a pod or a ReplicaSet.
    pub fn interfere(&mut self, replica_set: bool, which: usize, change: impl FnOnce(&mut Meta)) {
        self.foreign_changes = true;
        let metas: Vec<&mut Meta> = if replica_set {
            self.objects.replica_sets.values_mut().map(|stored| &mut Arc::make_mut(stored).meta).collect()
        } else {
            self.objects.pods.values_mut().map(|pod| &mut Arc::make_mut(pod).meta).collect()
        };
        let len = metas.len();
        if len > 0 {
            let meta = metas.into_iter().nth(which % len).unwrap();
            let owner = meta.controller.as_ref().map(|c| c.uid.clone());
            change(meta);
            self.lost.extend(owner);
        }
    }

    /// Time passes.
    pub fn sleep(&mut self, seconds: i64) {
        self.objects.now = self.objects.now.saturating_add(SignedDuration::from_secs(seconds)).unwrap();
    }

    /// Something becomes of a pod.
    pub fn change_pod(&mut self, name: &Arc<str>, pod_change: PodChange) {
        let now = self.objects.now;
        let pod = Arc::make_mut(self.objects.pods.get_mut(name).unwrap());
        let owner = pod.meta.controller.as_ref().map(|c| c.uid.clone());
        let ended = pod.is_terminal() || pod.meta.is_deleting();
        match pod_change {
            PodChange::Removed if ended => {
                self.objects.pods.remove(name);
                return;
            }
            PodChange::Ready if !ended && pod.ready_since.is_none() => {
                pod.phase = Phase::Running;
                if pod.node().is_none() {
                    pod.bind("n0");
                }
                pod.ready_since = Some(now);
                pod.waiting = None;
                return;
            }
            PodChange::Break if !ended => {
                pod.bind("n0");
                pod.waiting = waiting("ImagePullBackOff", "no such image", now);
                return;
            }
            PodChange::Unschedulable if !ended => {
                pod.waiting = waiting("Unschedulable", "0/1 nodes are available: 1 Insufficient cpu.", now);
                return;
            }
            PodChange::Unready if !ended => pod.ready_since = None,
            PodChange::Fail if !pod.is_terminal() => {
                pod.phase = Phase::Failed;
                pod.ready_since = None;
                pod.failed_early = now.duration_since(pod.meta.created).as_secs() <= 60;
            }
            PodChange::Delete => pod.meta.deletion = Some(now),
            _ => return,
        }
        self.lost.extend(owner);
    }

    fn running(&self, replica_set: &ReplicaSet) -> usize {
        self.objects.pods.values().filter(|p| replica_set.controls(&p.meta) && !p.is_terminal()).count()
    }

    pub(crate) fn owned_replica_sets(&self) -> impl Iterator<Item = &Arc<ReplicaSet>> {
        self.objects.replica_sets_of(&self.deployment)
    }

    fn sum(&self) -> i64 {
        self.owned_replica_sets().map(|replica_set| i64::from(replica_set.replicas)).sum()
    }

    /// `(R, R+S, R-U)`, computed apart from the planner's own budget.
    fn bounds(&self) -> (i64, i64, i64) {
        let replicas = i64::from(self.deployment.replicas);
        let resolve = |number, up: i64| match number {
            IntOrPercent::Int(pods) => pods,
            IntOrPercent::Percent(percent) => (percent * replicas + up) / 100,
        };
        let (surge, unavailable) = match self.deployment.strategy {
            Update::Recreate => (0, 0),
            Update::RollingUpdate { max_surge, max_unavailable } => {
                match (resolve(max_surge, 99), resolve(max_unavailable, 0)) {
                    (0, 0) => (0, 1),
                    other => other,
                }
            }
        };
        (replicas, replicas + surge, (replicas - unavailable).max(0))
    }

    /// The available pods that every ReplicaSet still has after it was scaled to its size.
    fn available_in_the_end(&self) -> i64 {
        self.owned_replica_sets()
            .map(|replica_set| {
                let pods = self.active_pods(replica_set);
                let surplus = pods.len().saturating_sub(replica_set.replicas as usize);
                let siblings: Vec<Arc<Pod>> = self
                    .owned_replica_sets()
                    .filter(|s| s.meta.uid != replica_set.meta.uid)
                    .flat_map(|s| self.active_pods(s))
                    .collect();
                let pod_sets: Vec<&Arc<Pod>> = pods.iter().collect();
                let siblings = replica_set.meta.controller.is_some().then_some(&siblings[..]);
                let gone = deletion_order::first_to_delete(&pod_sets, siblings, surplus, self.objects.now);
                let stays = |pod: &Arc<Pod>| !gone.iter().any(|g| g.meta.uid == pod.meta.uid);
                let available =
                    |pod: &Arc<Pod>| pod.is_available(replica_set.min_ready_seconds, self.objects.now);
                pods.iter().filter(|pod| stays(pod) && available(pod)).count() as i64
            })
            .sum()
    }

    /// Whether the status has noticed all ready and all available pods.
    fn shows_its_pods(&self, replica_set: &ReplicaSet) -> bool {
        let pods = self.active_pods(replica_set);
        let ready = pods.iter().filter(|pod| pod.ready_since.is_some()).count();
        let available = pods
            .iter()
            .filter(|pod| pod.is_available(replica_set.min_ready_seconds, self.objects.now))
            .count();
        ready <= replica_set.status.ready as usize && available <= replica_set.status.available as usize
    }

    fn active_pods(&self, replica_set: &ReplicaSet) -> Vec<Arc<Pod>> {
        self.objects
            .pods
            .values()
            .filter(|p| {
                p.is_active() && replica_set.controls(&p.meta) && replica_set.selector.matches(&p.meta.labels)
            })
            .cloned()
            .collect()
    }

    /// The state that counts, without names and times.
    pub fn picture(&self) -> Vec<String> {
        let mut lines: Vec<String> = self
            .owned_replica_sets()
            .map(|replica_set| {
                let revision = replica_set.annotations.get(revision::REVISION).unwrap_or("?");
                let history = replica_set.annotations.get(revision::REVISION_HISTORY).unwrap_or("");
                let (live, available) = (replica_set.status.replicas, replica_set.status.available);
                let tag = tag(&replica_set.template);
                format!("{tag} {available}/{live}/{} revision {revision} ({history})", replica_set.replicas)
            })
            .collect();
        lines.sort();
        let status = &self.deployment.status;
        let of = |c: &Condition| format!("{}={} {}", c.kind, c.status, c.reason);
        let mut conditions: Vec<String> = status.conditions.iter().map(of).collect();
        conditions.sort();
        lines.extend(conditions);
        lines.push(format!("{:?}", self.deployment.annotations.get(revision::REVISION)));
        lines
    }

    /// How many writes the next sync of the Deployment would make.
    pub fn planned(&self) -> usize {
        planner::plan(&outcome_of::deployment::observe(&self.deployment, &self.objects)).writes.len()
    }
}

fn waiting(reason: &str, message: &str, since: Timestamp) -> Option<Box<Waiting>> {
    let lacks_room = message.contains("Insufficient ");
    let (reason, message) = (reason.into(), Some(message.into()));
    Some(Box::new(Waiting { reason, message, lacks_room, termination_message: None, since: Some(since) }))
}

/// The tag of the image in a template.
pub(crate) fn tag(template: &Template) -> String {
    let json = template.json();
    let (_, rest) = json.split_once("\"app:").expect("the image of a builder");
    rest.split('"').next().unwrap().to_owned()
}

/// The short name of a ReplicaSet: its Deployment's name and its image tag.
pub(crate) fn short_name(replica_set: &ReplicaSet) -> String {
    format!("web-{}", tag(&replica_set.template))
}

pub(crate) fn pods(count: usize) -> String {
    if count == 1 { "1 pod".into() } else { format!("{count} pods") }
}
