//! Random histories of one Deployment: a world of plain records in which every write is judged by the
//! safety invariants (S1 to S21) at the moment it is made.
//!
//! Quicker than `world.rs`, because nothing is JSON, and crueller: tasks run in any order, a plan may
//! be cut off after any write, and a set's status may be older than its pods.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use windlass::model::{
    Condition, ControllerRef, Deployment, Interner, ObjectKey, Phase, Pod, Record, ReplicaSet,
    Strategy as Update, Template, Uid, count::IntOrPercent,
};
use windlass::plan::deployment::{self as planner, revision};
use windlass::plan::replicaset::rank;

use super::objects::deployment;

mod judges;
pub mod steps;
mod syncs;

use steps::{Fate, Number, Step};

/// How many image tags there are; the last one's pods never become ready by themselves.
pub const TAGS: u8 = 4;
const BROKEN: u8 = TAGS - 1;

/// Who runs when.
#[derive(Clone, Copy, Debug)]
pub enum Order {
    /// Deployment, sets, pods.
    Fixed,
    /// Shuffled anew in each round.
    Seeded(u64),
}

/// One Deployment and what it has, as records. Its public parts are what tests look at.
#[derive(Clone)]
pub struct World {
    /// The time of the next sync.
    pub now: Timestamp,
    /// The only Deployment.
    pub deployment: Deployment,
    /// The ReplicaSets, by name.
    pub sets: BTreeMap<Arc<str>, ReplicaSet>,
    /// The pods, by name.
    pub pods: BTreeMap<Arc<str>, Pod>,
    /// What has happened, for a failure to print.
    pub log: Vec<String>,
    templates: Vec<Template>,
    rng: fastrand::Rng,
    order: Order,
    serial: u64,
    /// Sets of which a pod lost its availability since their status was written (the F of S2).
    lost: BTreeSet<Uid>,
    /// Whether somebody interfered with owners and labels.
    strangers: bool,
}

fn template(tag: u8) -> Template {
    let object = deployment("web").image(&format!("v{tag}")).json();
    let raw = serde_json::value::to_raw_value(&object["spec"]["template"]).unwrap();
    Template::decode(&raw, &mut Interner::default()).unwrap()
}

impl World {
    /// A Deployment of so many replicas that nobody has synced yet.
    pub fn new(order: Order, replicas: i32) -> Self {
        let object = deployment("web").replicas(replicas).image("v0").json();
        let seed = if let Order::Seeded(seed) = order { seed } else { 0 };
        World {
            now: "2026-01-01T00:00:00Z".parse().unwrap(),
            deployment: Deployment::decode(&object.to_string(), &mut Interner::default()).unwrap(),
            sets: BTreeMap::new(),
            pods: BTreeMap::new(),
            log: Vec::new(),
            templates: (0..TAGS).map(template).collect(),
            rng: fastrand::Rng::with_seed(seed),
            order,
            serial: 0,
            lost: BTreeSet::new(),
            strangers: false,
        }
    }

    fn serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    fn tag(&self, template: &Template) -> usize {
        self.templates.iter().position(|t| t.asks_for_the_same_as(template)).unwrap()
    }

    fn edit(&mut self, change: impl FnOnce(&mut Deployment)) {
        let before = self.deployment.clone();
        change(&mut self.deployment);
        if self.deployment != before {
            self.deployment.meta.generation += 1;
        }
    }

    /// Lets one thing happen.
    pub fn act(&mut self, step: &Step) {
        self.log.push(format!("{step:?}"));
        let nth = |which: usize, len: usize| if len == 0 { None } else { Some(which % len) };
        match step.clone() {
            Step::Image(tag) => {
                let template = self.templates[usize::from(tag)].clone();
                self.edit(|d| d.template = template);
            }
            Step::Replicas(replicas) => self.edit(|d| d.replicas = replicas),
            Step::Budget(surge, unavailable) => {
                let of = |number| match number {
                    Number::Pods(pods) => IntOrPercent::Int(pods.into()),
                    Number::Percent(percent) => IntOrPercent::Percent(percent.into()),
                };
                let strategy =
                    Update::RollingUpdate { max_surge: of(surge), max_unavailable: of(unavailable) };
                self.edit(|d| d.strategy = strategy);
            }
            Step::Recreate => self.edit(|d| d.strategy = Update::Recreate),
            Step::Pause(paused) => self.edit(|d| d.paused = paused),
            Step::MinReady(seconds) => self.edit(|d| d.min_ready_seconds = seconds),
            Step::History(limit) => self.edit(|d| d.revision_history_limit = Some(limit)),
            Step::Annotate(value) => {
                let value = value.to_string();
                let kept = self.deployment.annotations.iter().filter(|(key, _)| *key != "note");
                let all = kept.chain([("note", value.as_str())]).collect();
                self.deployment.annotations = Arc::new(all);
            }
            Step::Deployment { writes, status } => {
                self.sync_deployment(writes, status);
            }
            Step::Set { which, writes, status } => {
                let names: Vec<Arc<str>> = self.sets.keys().cloned().collect();
                if let Some(at) = nth(which, names.len()) {
                    self.sync_set(&names[at], writes, status);
                }
            }
            Step::Pod(which, fate) => {
                let names: Vec<Arc<str>> = self.pods.keys().cloned().collect();
                if let Some(at) = nth(which, names.len()) {
                    self.befall(&names[at], fate);
                }
            }
            Step::Cost(which, cost) => {
                let pods = self.pods.len();
                if let Some(pod) = self.pods.values_mut().nth(which % pods.max(1)) {
                    pod.deletion_cost = cost;
                }
            }
            Step::Orphan { set, which } => self.interfere(set, which, |meta| meta.controller = None),
            Step::Relabel { set, which } => self.interfere(set, which, |meta| {
                meta.labels = Arc::new([("app", "other")].into_iter().collect());
            }),
            Step::Rounds(rounds) => (0..rounds).for_each(|_| {
                self.round();
            }),
            Step::Sleep(seconds) => self.sleep(seconds.into()),
        }
    }

    fn interfere(&mut self, set: bool, which: usize, change: impl FnOnce(&mut windlass::model::Meta)) {
        self.strangers = true;
        let metas: Vec<&mut windlass::model::Meta> = if set {
            self.sets.values_mut().map(|set| &mut set.meta).collect()
        } else {
            self.pods.values_mut().map(|pod| &mut pod.meta).collect()
        };
        let len = metas.len();
        if len > 0 {
            let meta = metas.into_iter().nth(which % len).unwrap();
            let owner = meta.controller.as_ref().map(|c| c.uid.clone());
            change(meta);
            self.lost.extend(owner);
        }
    }

    fn sleep(&mut self, seconds: i64) {
        self.now = self.now.saturating_add(SignedDuration::from_secs(seconds)).unwrap();
    }

    fn befall(&mut self, name: &Arc<str>, fate: Fate) {
        let now = self.now;
        let pod = self.pods.get_mut(name).unwrap();
        let owner = pod.meta.controller.as_ref().map(|c| c.uid.clone());
        let ended = pod.is_terminal() || pod.meta.is_deleting();
        match fate {
            Fate::Gone if ended => {
                self.pods.remove(name);
                return;
            }
            Fate::Ready if !ended && pod.ready_since.is_none() => {
                pod.phase = Phase::Running;
                pod.node.get_or_insert_with(|| "n0".into());
                pod.ready_since = Some(now);
                return;
            }
            Fate::Unready if !ended => pod.ready_since = None,
            Fate::Fail if !pod.is_terminal() => {
                pod.phase = Phase::Failed;
                pod.ready_since = None;
                pod.failed_early = now.duration_since(pod.meta.created).as_secs() <= 60;
            }
            Fate::Delete => pod.meta.deletion = Some(now),
            _ => return,
        }
        self.lost.extend(owner);
    }

    // --- the Deployment ---------------------------------------------------------------------------

    fn observe(&self) -> planner::Observed<'_> {
        let owned: Vec<Arc<ReplicaSet>> = self.owned_sets().cloned().map(Arc::new).collect();
        let orphans =
            self.sets.values().filter(|s| s.meta.controller.is_none()).cloned().map(Arc::new).collect();
        let running_pods = owned.iter().map(|set| (set.meta.uid.clone(), self.running(set))).collect();
        planner::Observed {
            owned,
            orphans,
            may_adopt: true,
            running_pods,
            ..planner::Observed::new(&self.deployment, self.now)
        }
    }

    fn running(&self, set: &ReplicaSet) -> usize {
        self.pods.values().filter(|p| set.controls(&p.meta) && !p.is_terminal()).count()
    }

    fn owned_sets(&self) -> impl Iterator<Item = &ReplicaSet> {
        self.sets.values().filter(|s| self.deployment.controls(&s.meta))
    }

    fn sum(&self) -> i64 {
        self.owned_sets().map(|set| i64::from(set.replicas)).sum()
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

    /// The available pods that every set still has once it has been brought to its size.
    fn available_in_the_end(&self) -> i64 {
        self.owned_sets()
            .map(|set| {
                let pods = self.active_pods(set);
                let surplus = pods.len().saturating_sub(set.replicas as usize);
                let siblings: Vec<Arc<Pod>> = self
                    .owned_sets()
                    .filter(|s| s.meta.uid != set.meta.uid)
                    .flat_map(|s| self.active_pods(s))
                    .collect();
                let members: Vec<&Arc<Pod>> = pods.iter().collect();
                let siblings = set.meta.controller.is_some().then_some(&siblings[..]);
                let gone = rank::least_worthy(&members, siblings, surplus, self.now);
                let stays = |pod: &Arc<Pod>| !gone.iter().any(|g| g.meta.uid == pod.meta.uid);
                let available = |pod: &Arc<Pod>| pod.is_available(set.min_ready_seconds, self.now);
                pods.iter().filter(|pod| stays(pod) && available(pod)).count() as i64
            })
            .sum()
    }

    /// Whether the status has noticed all ready and all available pods.
    fn shows_its_pods(&self, set: &ReplicaSet) -> bool {
        let pods = self.active_pods(set);
        let ready = pods.iter().filter(|pod| pod.ready_since.is_some()).count();
        let available = pods.iter().filter(|pod| pod.is_available(set.min_ready_seconds, self.now)).count();
        ready <= set.status.ready as usize && available <= set.status.available as usize
    }

    fn active_pods(&self, set: &ReplicaSet) -> Vec<Arc<Pod>> {
        self.pods
            .values()
            .filter(|p| p.is_active() && set.controls(&p.meta) && set.selector.matches(&p.meta.labels))
            .cloned()
            .map(Arc::new)
            .collect()
    }

    // --- the sets ---------------------------------------------------------------------------------

    // --- everybody --------------------------------------------------------------------------------

    /// Lets everybody run once; returns whether anything happened.
    pub fn round(&mut self) -> bool {
        let mut tasks: Vec<Option<Arc<str>>> =
            [None].into_iter().chain(self.sets.keys().cloned().map(Some)).collect();
        let mut pods: Vec<Arc<str>> = self.pods.keys().cloned().collect();
        if let Order::Seeded(_) = self.order {
            self.rng.shuffle(&mut tasks);
            self.rng.shuffle(&mut pods);
        }
        let mut busy = false;
        for task in tasks {
            busy |= match task {
                None => self.sync_deployment(usize::MAX, true),
                Some(name) => self.sets.contains_key(&name) && self.sync_set(&name, usize::MAX, true),
            };
        }
        for name in pods {
            let pod = &self.pods[&name];
            let broken = pod
                .meta
                .controller
                .as_ref()
                .and_then(|c| self.sets.get(&c.name))
                .is_some_and(|set| self.tag(&set.template) == usize::from(BROKEN));
            let fate = match pod {
                pod if pod.is_terminal() && !pod.meta.is_deleting() => continue,
                pod if pod.meta.is_deleting() => Fate::Gone,
                pod if pod.ready_since.is_none() && !broken => Fate::Ready,
                _ => continue,
            };
            let later = matches!(self.order, Order::Seeded(_)) && self.rng.u8(0..3) == 0;
            busy = true;
            if !later {
                self.befall(&name, fate);
            }
        }
        self.sleep(1);
        busy
    }

    /// Runs until nothing happens for longer than any readiness takes.
    pub fn settle(&mut self) {
        let mut quiet = 0;
        for _ in 0..3000 {
            quiet = if self.round() { 0 } else { quiet + 1 };
            if quiet > 40 {
                return;
            }
        }
        panic!("L4: no rest: {:?}", self.deployment.status);
    }

    /// The state that counts, without names and times.
    pub fn picture(&self) -> Vec<String> {
        let mut lines: Vec<String> = self
            .owned_sets()
            .map(|set| {
                let revision = set.annotations.get(revision::REVISION).unwrap_or("?");
                let history = set.annotations.get(revision::REVISION_HISTORY).unwrap_or("");
                let (live, available) = (set.status.replicas, set.status.available);
                let tag = self.tag(&set.template);
                format!("v{tag} {available}/{live}/{} revision {revision} ({history})", set.replicas)
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
        planner::plan(&self.observe()).writes.len()
    }
}

fn reference(kind: &str, key: &ObjectKey, uid: &Uid) -> Arc<ControllerRef> {
    Arc::new(ControllerRef {
        api_version: "apps/v1".into(),
        kind: kind.into(),
        name: key.name.clone(),
        uid: uid.clone(),
    })
}
