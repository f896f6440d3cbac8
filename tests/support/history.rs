//! Random histories of one Deployment: a world of plain records in which every write is judged by the
//! safety invariants (S1 to S21) at the moment it is made.
//!
//! Quicker than `world.rs`, because nothing is JSON, and crueller: tasks run in any order, a plan may
//! be cut off after any write, and a set's status may be older than its pods.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use serde_json::json;
use windlass::model::{
    Condition, ControllerRef, Deployment, DeploymentStatus, Interner, ObjectKey, Phase, Pod, Record,
    ReplicaSet, Strategy as Update, StringMap, Template, Uid, condition, count::IntOrPercent,
};
use windlass::plan::deployment::{self as planner, Course, Plan, Write, body::set_body, progress, revision};
use windlass::plan::replicaset::{self as pod_planner, rank};

use super::build::deployment;

/// How many image tags there are; the last one's pods never become ready by themselves.
pub const TAGS: u8 = 4;
const BROKEN: u8 = TAGS - 1;

/// One thing that happens.
#[derive(Clone, Debug)]
pub enum Step {
    Image(u8),
    Replicas(i32),
    Budget(Number, Number),
    Recreate,
    Pause(bool),
    MinReady(i32),
    History(i32),
    Annotate(u8),
    /// One sync of the Deployment: how many writes are carried out, and whether the status is.
    Deployment {
        writes: usize,
        status: bool,
    },
    /// One sync of a set: how many pods are written, and whether the status is.
    Set {
        which: usize,
        writes: usize,
        status: bool,
    },
    /// Something happens to a pod.
    Pod(usize, Fate),
    /// A set or a pod loses its owner, or a label that makes it selected.
    Orphan {
        set: bool,
        which: usize,
    },
    Relabel {
        set: bool,
        which: usize,
    },
    /// Everybody runs in turn, so many times.
    Rounds(u8),
    Sleep(u8),
}

#[derive(Clone, Copy, Debug)]
pub enum Number {
    Pods(u8),
    Percent(u8),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fate {
    Ready,
    Unready,
    Fail,
    Delete,
    Gone,
}

fn number() -> impl Strategy<Value = Number> {
    prop_oneof![(0..5u8).prop_map(Number::Pods), (0..=100u8).prop_map(Number::Percent)]
}

fn cut() -> impl Strategy<Value = usize> {
    prop_oneof![4 => Just(usize::MAX), 1 => 0..4usize]
}

/// Any step. Those of strangers (orphans and labels) are in only if `strangers`.
pub fn step(strangers: bool) -> impl Strategy<Value = Step> {
    let mostly = prop_oneof![5 => Just(true), 1 => Just(false)];
    let fate = prop_oneof![
        6 => Just(Fate::Ready),
        2 => Just(Fate::Unready),
        1 => Just(Fate::Fail),
        1 => Just(Fate::Delete),
        4 => Just(Fate::Gone),
    ];
    let usual = prop_oneof![
        4 => (0..TAGS).prop_map(Step::Image),
        2 => (0..14i32).prop_map(Step::Replicas),
        1 => (number(), number()).prop_map(|(s, u)| Step::Budget(s, u)),
        1 => Just(Step::Recreate),
        2 => any::<bool>().prop_map(Step::Pause),
        1 => prop_oneof![Just(0), Just(5), Just(30)].prop_map(Step::MinReady),
        1 => (0..3i32).prop_map(Step::History),
        1 => (0..3u8).prop_map(Step::Annotate),
        8 => (cut(), mostly.clone()).prop_map(|(writes, status)| Step::Deployment { writes, status }),
        10 => (0..8usize, cut(), mostly).prop_map(|(which, writes, status)| Step::Set { which, writes, status }),
        14 => (0..40usize, fate).prop_map(|(which, fate)| Step::Pod(which, fate)),
        6 => (1..6u8).prop_map(Step::Rounds),
        3 => (0..20u8).prop_map(Step::Sleep),
    ];
    let odd = prop_oneof![
        (any::<bool>(), 0..20usize).prop_map(|(set, which)| Step::Orphan { set, which }),
        (any::<bool>(), 0..20usize).prop_map(|(set, which)| Step::Relabel { set, which }),
    ];
    prop_oneof![60 => usual, if strangers { 4 } else { 0 } => odd]
}

/// Who runs when.
#[derive(Clone, Copy, Debug)]
pub enum Order {
    /// Deployment, sets, pods.
    Fixed,
    /// Shuffled anew in each round.
    Seeded(u64),
}

#[derive(Clone)]
pub struct World {
    pub now: Timestamp,
    pub deployment: Deployment,
    pub sets: BTreeMap<Arc<str>, ReplicaSet>,
    pub pods: BTreeMap<Arc<str>, Pod>,
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
            }
            Fate::Delete => pod.meta.deletion = Some(now),
            _ => return,
        }
        self.lost.extend(owner);
    }

    // --- the Deployment ---------------------------------------------------------------------------

    fn observe(&self) -> planner::Observed<'_> {
        let uid = &self.deployment.meta.uid;
        let owned: Vec<Arc<ReplicaSet>> =
            self.sets.values().filter(|s| s.meta.is_controlled_by(uid)).cloned().map(Arc::new).collect();
        let orphans =
            self.sets.values().filter(|s| s.meta.controller.is_none()).cloned().map(Arc::new).collect();
        let running_pods = owned.iter().map(|set| (set.meta.uid.clone(), self.running(set))).collect();
        planner::Observed {
            deployment: &self.deployment,
            owned,
            orphans,
            may_adopt: true,
            running_pods,
            awaited_pods: Default::default(),
            now: self.now,
        }
    }

    fn running(&self, set: &ReplicaSet) -> usize {
        self.pods.values().filter(|p| p.meta.is_controlled_by(&set.meta.uid) && !p.is_terminal()).count()
    }

    fn owned_sets(&self) -> impl Iterator<Item = &ReplicaSet> {
        self.sets.values().filter(|s| s.meta.is_controlled_by(&self.deployment.meta.uid))
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
                let gone = rank::least_worthy(&members, &siblings, surplus, self.now);
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
            .filter(|p| {
                p.is_active()
                    && p.meta.is_controlled_by(&set.meta.uid)
                    && set.selector.matches(&p.meta.labels)
            })
            .cloned()
            .map(Arc::new)
            .collect()
    }

    /// One sync; returns whether anything was written.
    pub fn sync_deployment(&mut self, most_writes: usize, write_status: bool) -> bool {
        let world = self.clone();
        let observed = world.observe();
        let plan = planner::plan(&observed);
        assert!(!plan.why.is_empty(), "a plan without a reason: {plan:?}\n{observed:?}");
        self.judge_plan(&observed, &plan);
        let mut outcome = progress::Outcome::default();
        for write in plan.writes.iter().take(most_writes) {
            if !self.write_set(&plan, write) {
                outcome.collided = true;
                break;
            }
            outcome.done += 1;
        }
        if plan.writes.len() > most_writes && !write_status {
            return outcome.done > 0; // a crash
        }
        let settled = progress::settle(&observed, &plan, &outcome);
        self.judge_status(&settled.status);
        if !write_status {
            return outcome.done > 0;
        }
        let mut changed = outcome.done > 0 || settled.status != self.deployment.status;
        if let Some(revision) = &settled.revision
            && self.deployment.annotations.get(revision::REVISION) != Some(revision)
        {
            let before =
                self.deployment.annotations.get(revision::REVISION).and_then(|r| r.parse::<i64>().ok());
            let after: i64 = revision.parse().unwrap();
            // Somebody who takes sets away takes their revisions away too.
            assert!(self.strangers || before.is_none_or(|b| b < after), "S7: revision {before:?} -> {after}");
            let kept = self.deployment.annotations.iter().filter(|(key, _)| *key != revision::REVISION);
            let all = kept.chain([(revision::REVISION, revision.as_str())]).collect();
            self.deployment.annotations = Arc::new(all);
            changed = true;
        }
        self.deployment.status = settled.status;
        changed
    }

    fn judge_plan(&self, observed: &planner::Observed<'_>, plan: &Plan) {
        let sets = observed.sets();
        let change_of = |set: &ReplicaSet| {
            plan.writes.iter().find_map(|write| match write {
                Write::Change(s, change) if s.meta.uid == set.meta.uid => change.replicas,
                _ => None,
            })
        };
        // S9: a change of size is spread exactly, in one direction, over sets that want pods.
        if plan.course == Course::Held && matches!(self.deployment.strategy, Update::RollingUpdate { .. }) {
            let (replicas, most, _) = self.bounds();
            let active: Vec<_> = sets.active().collect();
            let (before, after) = active.iter().fold((0, 0), |(before, after), set| {
                let old = i64::from(set.replicas);
                (before + old, after + i64::from(change_of(set).unwrap_or(set.replicas)))
            });
            if active.len() > 1 {
                let saturated = sets.new.as_ref().is_some_and(|new| {
                    i64::from(new.replicas) == replicas
                        && sets.old.iter().all(|s| s.replicas == 0 || change_of(s) == Some(0))
                });
                let target = if replicas == 0 { 0 } else { most };
                assert!(saturated || after == target, "S9: {before} -> {after}, not {target}");
                for set in sets.all() {
                    let size = change_of(set).unwrap_or(set.replicas);
                    assert!(size >= 0 && (set.replicas > 0 || size == 0), "S9: {} -> {size}", set.meta.key);
                    let (change, total) = (i64::from(size) - i64::from(set.replicas), target - before);
                    assert!(saturated || change * total >= 0, "S9: signs differ");
                }
            }
        }
        // S6: nothing is created while paused.
        let creates = plan.writes.iter().any(|w| matches!(w, Write::Create(_)));
        assert!(!(creates && self.deployment.paused), "S6: a paused Deployment creates a set");
    }

    /// Carries out one write; `false` when the API server refuses it.
    fn write_set(&mut self, plan: &Plan, write: &Write) -> bool {
        let (_, most, least) = self.bounds();
        let (sum_before, available_before) = (self.sum(), self.available_in_the_end());
        self.log.push(format!("    {}", brief(write)));
        match write {
            Write::Create(new) => {
                let same = |s: &&ReplicaSet| s.template.asks_for_the_same_as(&self.deployment.template);
                let hash = self.deployment.template.hash(self.deployment.status.collision_count);
                assert_eq!(new.name, format!("web-{hash}"), "S5");
                if let Some(there) = self.sets.get(&*new.name) {
                    let ours = there.meta.is_controlled_by(&self.deployment.meta.uid) && same(&there);
                    return ours;
                }
                let selected = |s: &&ReplicaSet| self.deployment.selector.matches(&s.meta.labels);
                assert!(
                    !self.owned_sets().filter(selected).any(|s| same(&s)),
                    "S4: a second set for one template"
                );
                self.judge_recreate(None);
                let body = set_body(&self.deployment, new).unwrap();
                let mut object: serde_json::Value = serde_json::from_slice(&body).unwrap();
                let serial = self.serial();
                object["metadata"]["uid"] = format!("set-{serial}").into();
                object["metadata"]["resourceVersion"] = serial.to_string().into();
                object["metadata"]["creationTimestamp"] = json!(self.now.to_string());
                object["metadata"]["generation"] = 1.into();
                let set = ReplicaSet::decode(&object.to_string(), &mut Interner::default()).unwrap();
                self.sets.insert(new.name.as_str().into(), set);
            }
            Write::Change(set, change) => {
                let is_new = set.template.asks_for_the_same_as(&self.deployment.template);
                if is_new && change.replicas.is_some_and(|size| size > set.replicas) {
                    self.judge_recreate(Some(&set.meta.uid));
                }
                let stored = self.sets.get_mut(&set.meta.key.name).unwrap();
                let old = stored.annotations.iter().filter(|(key, _)| !change.annotations.contains_key(*key));
                let new = change.annotations.iter().map(|(key, value)| (key.as_str(), value.as_str()));
                stored.annotations = Arc::new(old.chain(new).collect::<StringMap>());
                if change.replicas.is_some() || change.min_ready_seconds.is_some() {
                    stored.meta.generation += 1;
                }
                stored.replicas = change.replicas.unwrap_or(stored.replicas);
                if let Some(seconds) = change.min_ready_seconds {
                    stored.min_ready_seconds = seconds;
                    self.lost.insert(set.meta.uid.clone());
                }
                let history = stored.annotations.get(revision::REVISION_HISTORY).unwrap_or("");
                assert!(history.len() <= 2000, "S7: the history is too long");
            }
            Write::Delete(set) => {
                let stored = &self.sets[&set.meta.key.name];
                assert!(
                    stored.replicas == 0
                        && stored.status.replicas == 0
                        && stored.status.observed_generation >= stored.meta.generation
                        && !stored.template.asks_for_the_same_as(&self.deployment.template),
                    "S8: {} is deleted",
                    set.meta.key
                );
                let revision_of = |s: &ReplicaSet| revision::revision_of(s).unwrap_or(0);
                let older = self.owned_sets().filter(|s| revision_of(s) < revision_of(stored)).all(|s| {
                    s.replicas > 0
                        || s.status.replicas > 0
                        || s.status.observed_generation < s.meta.generation
                        || s.template.asks_for_the_same_as(&self.deployment.template)
                });
                assert!(older, "S8: not the oldest revision goes first");
                let is_old = |s: &&ReplicaSet| !s.template.asks_for_the_same_as(&self.deployment.template);
                let kept = self.owned_sets().filter(is_old).count() as i32 - 1;
                assert!(kept >= self.deployment.revision_history_limit.unwrap(), "S8: too few are kept");
                self.sets.remove(&set.meta.key.name);
            }
            Write::RollBack(_) => unreachable!("nobody asks for a rollback by annotation here"),
            Write::Adopt(set) => {
                assert!(set.meta.controller.is_none() && !set.meta.is_deleting(), "S15");
                let controller =
                    reference("Deployment", &self.deployment.meta.key, &self.deployment.meta.uid);
                self.sets.get_mut(&set.meta.key.name).unwrap().meta.controller = Some(controller);
                return true;
            }
            Write::Release(set) => {
                assert!(!self.deployment.selector.matches(&set.meta.labels), "S16");
                self.sets.get_mut(&set.meta.key.name).unwrap().meta.controller = None;
                return true;
            }
        }
        // S1: within the surge, or at least closer to it.
        let sum = self.sum();
        assert!(sum <= most || sum <= sum_before, "S1: {sum_before} -> {sum} pods wanted, {most} allowed");
        // S2: a rollout never takes an available pod that the budget needs. Not owed when pods were
        // lost, or have become available, that the status did not show yet.
        let after = self.available_in_the_end();
        let owed = plan.course == Course::Rollout
            && matches!(self.deployment.strategy, Update::RollingUpdate { .. })
            && self.owned_sets().all(|set| !self.lost.contains(&set.meta.uid) && self.shows_its_pods(set));
        let shrinks = matches!(write, Write::Change(set, c) if c.replicas.is_some_and(|size| size < set.replicas)
            && !set.template.asks_for_the_same_as(&self.deployment.template));
        assert!(
            !owed || !shrinks || after >= least.min(available_before),
            "S2: {available_before} -> {after} pods available, {least} must be"
        );
        // S7: the new set's revision is above all others once anything is written to it.
        if let Write::Create(_) = write {
            self.judge_revision();
        }
        true
    }

    fn judge_revision(&self) {
        let (new, old): (Vec<_>, Vec<_>) =
            self.owned_sets().partition(|s| s.template.asks_for_the_same_as(&self.deployment.template));
        let Some(new) = new.iter().filter_map(|s| revision::revision_of(s)).max() else { return };
        let old = old.iter().filter_map(|s| revision::revision_of(s)).max().unwrap_or(0);
        assert!(new > old, "S7: revision {new} is not above {old}");
    }

    /// S3: under Recreate the new set does not grow while pods of another run.
    fn judge_recreate(&self, new: Option<&Uid>) {
        if self.deployment.strategy != Update::Recreate {
            return;
        }
        let selected = |s: &&ReplicaSet| self.deployment.selector.matches(&s.meta.labels);
        for set in self.owned_sets().filter(selected).filter(|s| Some(&s.meta.uid) != new) {
            if set.template.asks_for_the_same_as(&self.deployment.template) {
                continue;
            }
            assert!(self.running(set) == 0, "S3: pods of {} still run", set.meta.key);
        }
    }

    fn judge_status(&self, after: &DeploymentStatus) {
        let before = &self.deployment.status;
        let sane = 0 <= after.available && after.available <= after.ready && after.ready <= after.replicas;
        assert!(sane && after.updated <= after.replicas && after.unavailable >= 0, "S20: {after:?}");
        assert!(
            after.observed_generation >= before.observed_generation
                && after.observed_generation <= self.deployment.meta.generation,
            "S20: observedGeneration"
        );
        judge_conditions(&before.conditions, &after.conditions);
    }

    // --- the sets ---------------------------------------------------------------------------------

    fn sync_set(&mut self, name: &Arc<str>, most_writes: usize, write_status: bool) -> bool {
        let set = self.sets[name].clone();
        let pods = |owner: Option<&Uid>| -> Vec<Arc<Pod>> {
            let held = |p: &&Pod| p.meta.controller.as_ref().map(|c| &c.uid) == owner;
            self.pods.values().filter(held).cloned().map(Arc::new).collect()
        };
        let siblings = match &set.meta.controller {
            Some(_) => self
                .owned_sets()
                .filter(|s| s.meta.uid != set.meta.uid)
                .flat_map(|s| self.active_pods(s))
                .collect(),
            None => Vec::new(),
        };
        let observed = pod_planner::Observed {
            set: &set,
            owned: pods(Some(&set.meta.uid)),
            orphans: pods(None),
            may_adopt: true,
            siblings,
            now: self.now,
        };
        let plan = pod_planner::plan(&observed);
        let mut done = 0;
        for write in &plan.writes {
            match write {
                pod_planner::Write::Create(count) => {
                    assert!(*count <= pod_planner::BURST, "S14");
                    for _ in 0..(*count).min(most_writes) {
                        let live = self.active_pods(&set).len();
                        assert!(live < set.replicas as usize, "S11: {name} has {live} pods and gets more");
                        self.create_pod(&set);
                        done += 1;
                    }
                }
                pod_planner::Write::Delete(victims) => {
                    assert!(victims.len() <= pod_planner::BURST, "S14");
                    for victim in victims.iter().take(most_writes) {
                        let live = self.active_pods(&set).len();
                        assert!(live > set.replicas as usize, "S12: {name} has {live} pods and loses one");
                        self.pods.get_mut(&victim.meta.key.name).unwrap().meta.deletion = Some(self.now);
                        done += 1;
                    }
                }
                pod_planner::Write::Adopt(pod) => {
                    assert!(pod.meta.controller.is_none() && set.selector.matches(&pod.meta.labels), "S15");
                    let controller = reference("ReplicaSet", &set.meta.key, &set.meta.uid);
                    self.pods.get_mut(&pod.meta.key.name).unwrap().meta.controller = Some(controller);
                    done += 1;
                }
                pod_planner::Write::Release(pod) => {
                    assert!(!set.selector.matches(&pod.meta.labels), "S16");
                    self.pods.get_mut(&pod.meta.key.name).unwrap().meta.controller = None;
                    done += 1;
                }
            }
        }
        let settled = pod_planner::status::settle(&observed, None);
        let (before, after) = (&set.status, &settled.status);
        let sane = 0 <= after.available && after.available <= after.ready && after.ready <= after.replicas;
        assert!(sane, "S20: {after:?}");
        assert!(after.observed_generation >= before.observed_generation, "S20");
        judge_conditions(&before.conditions, &after.conditions);
        let changed = before != after;
        if write_status {
            self.sets.get_mut(name).unwrap().status = settled.status;
            self.lost.remove(&set.meta.uid);
        }
        done > 0 || changed && write_status
    }

    fn create_pod(&mut self, set: &ReplicaSet) {
        let serial = self.serial();
        // Names that do not sort by age, as random ones do not.
        let name: Arc<str> = format!("p{:02}-{serial}", self.rng.u8(0..100)).into();
        let mut meta = set.meta.clone();
        meta.key = ObjectKey::new("shop", name.clone());
        meta.uid = Uid::new(&format!("pod-{name}"));
        (meta.generation, meta.resource_version, meta.created) = (1, serial, self.now);
        meta.labels = set.template.labels.clone();
        meta.controller = Some(reference("ReplicaSet", &set.meta.key, &set.meta.uid));
        let node = self.rng.u8(0..4);
        let pod = Pod {
            meta,
            phase: Phase::Pending,
            ready_since: None,
            node: (node < 3).then(|| format!("n{node}").into()),
            restarts: 0,
            deletion_cost: 0,
            waiting: None,
        };
        self.pods.insert(name, pod);
    }

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

    /// L1 and S10: what must be once nobody has edited anything for long.
    pub fn judge_end(&self) {
        let d = &self.deployment;
        let selected = |s: &&ReplicaSet| d.selector.matches(&s.meta.labels);
        let (new, old): (Vec<_>, Vec<_>) =
            self.owned_sets().filter(selected).partition(|s| s.template.asks_for_the_same_as(&d.template));
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
        let (replicas, most, _) = self.bounds();
        for set in self.owned_sets().filter(|s| s.replicas > 0) {
            let value = |key| set.annotations.get(key).and_then(|v| v.parse::<i64>().ok());
            assert_eq!(value(revision::DESIRED_REPLICAS), Some(replicas), "S10");
            assert_eq!(value(revision::MAX_REPLICAS), Some(most), "S10");
        }
        self.judge_revision();
        let limit = d.revision_history_limit.unwrap_or(i32::MAX) as usize;
        assert!(old.len() <= limit, "S8: {} old sets, {limit} allowed", old.len());
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

fn brief(write: &Write) -> String {
    match write {
        Write::Create(new) => format!("create {} at {}", new.name, new.replicas),
        Write::Change(set, change) => format!(
            "change {} {} (available {}, observed {} of {}) -> {:?}",
            set.meta.key.name,
            set.replicas,
            set.status.available,
            set.status.observed_generation,
            set.meta.generation,
            change
        ),
        Write::Delete(set) => format!("delete {}", set.meta.key.name),
        Write::Adopt(set) => format!("adopt {}", set.meta.key.name),
        Write::Release(set) => format!("release {}", set.meta.key.name),
        Write::RollBack(rollback) => format!("roll back: {}", rollback.note.message),
    }
}

/// S21: the transition time moves with the status and only with it.
fn judge_conditions(before: &[Condition], after: &[Condition]) {
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
