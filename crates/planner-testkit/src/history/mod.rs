//! Random histories of one Deployment: tasks run in any order, a plan may be cut off after any write, and the status of
//! a ReplicaSet may be older than its pods.

use std::sync::Arc;

use windlass::model::{Strategy as Update, Template, int_or_percent::IntOrPercent};

use super::objects::{decode, deployment};
use super::world::{PodChange, World};

pub mod steps;

use steps::{Number, Step};

/// How many image tags there are; the last one's pods never become ready by themselves.
pub const TAGS: u8 = 4;
const BROKEN: &str = "v3";

/// The order of the controllers.
#[derive(Clone, Copy, Debug)]
pub enum Order {
    /// Deployment, ReplicaSets, pods.
    Fixed,
    /// Shuffled again in each round.
    Seeded(u64),
}

/// A history so far.
#[derive(Clone)]
pub struct History {
    /// The current state.
    pub world: World,
    templates: Vec<Template>,
    rng: fastrand::Rng,
    order: Order,
}

fn template(tag: u8) -> Template {
    let object = deployment("web").image(&format!("v{tag}")).json();
    decode::<windlass::model::Deployment>(&object).template
}

impl History {
    /// A Deployment of so many replicas that no controller has synced yet.
    pub fn new(order: Order, replicas: i32) -> Self {
        let seed = if let Order::Seeded(seed) = order { seed } else { 0 };
        History {
            world: World::new(deployment("web").replicas(replicas).image("v0"), seed),
            templates: (0..TAGS).map(template).collect(),
            rng: fastrand::Rng::with_seed(seed),
            order,
        }
    }

    /// Applies one step.
    pub fn act(&mut self, step: &Step) {
        self.world.lines.push(format!("{step:?}"));
        let world = &mut self.world;
        let nth = |which: usize, len: usize| if len == 0 { None } else { Some(which % len) };
        match step.clone() {
            Step::Image(tag) => {
                let template = self.templates[usize::from(tag)].clone();
                world.edit(|d| d.template = template);
            }
            Step::Replicas(replicas) => world.edit(|d| d.replicas = replicas),
            Step::Budget(surge, unavailable) => {
                let of = |number| match number {
                    Number::Pods(pods) => IntOrPercent::Int(pods.into()),
                    Number::Percent(percent) => IntOrPercent::Percent(percent.into()),
                };
                let strategy =
                    Update::RollingUpdate { max_surge: of(surge), max_unavailable: of(unavailable) };
                world.edit(|d| d.strategy = strategy);
            }
            Step::Recreate => world.edit(|d| d.strategy = Update::Recreate),
            Step::Pause(paused) => world.edit(|d| d.paused = paused),
            Step::MinReady(seconds) => world.edit(|d| d.min_ready_seconds = seconds),
            Step::History(limit) => world.edit(|d| d.revision_history_limit = Some(limit)),
            Step::Annotate(value) => world.annotate("note", &value.to_string()),
            Step::Deployment { writes, status } => {
                world.sync_deployment(writes, status);
            }
            Step::ReplicaSet { which, writes, status } => {
                let names: Vec<Arc<str>> = world.objects.replica_sets.keys().cloned().collect();
                if let Some(at) = nth(which, names.len()) {
                    world.sync_replica_set(&names[at], writes, status);
                }
            }
            Step::Pod(which, pod_change) => {
                let names: Vec<Arc<str>> = world.objects.pods.keys().cloned().collect();
                if let Some(at) = nth(which, names.len()) {
                    world.change_pod(&names[at], pod_change);
                }
            }
            Step::Cost(which, cost) => {
                let pods = world.objects.pods.len();
                if let Some(pod) = world.objects.pods.values_mut().nth(which % pods.max(1)) {
                    Arc::make_mut(pod).deletion_cost = cost;
                }
            }
            Step::Orphan { replica_set, which } => {
                world.interfere(replica_set, which, |meta| meta.controller = None)
            }
            Step::Relabel { replica_set, which } => world.interfere(replica_set, which, |meta| {
                meta.labels = Arc::new([("app", "other")].into_iter().collect());
            }),
            Step::Rounds(rounds) => (0..rounds).for_each(|_| {
                self.round();
            }),
            Step::Sleep(seconds) => world.sleep(seconds.into()),
        }
    }

    /// Runs every controller once; returns whether anything changed.
    pub fn round(&mut self) -> bool {
        let mut tasks: Vec<Option<Arc<str>>> =
            [None].into_iter().chain(self.world.objects.replica_sets.keys().cloned().map(Some)).collect();
        let mut pods: Vec<Arc<str>> = self.world.objects.pods.keys().cloned().collect();
        if let Order::Seeded(_) = self.order {
            self.rng.shuffle(&mut tasks);
            self.rng.shuffle(&mut pods);
        }
        let mut busy = false;
        for task in tasks {
            busy |= match task {
                None => self.world.sync_deployment(usize::MAX, true).wrote,
                Some(name) if self.world.objects.replica_sets.contains_key(&name) => {
                    let synced = self.world.sync_replica_set(&name, usize::MAX, true);
                    synced.wrote || synced.requeue_after.is_some()
                }
                Some(_) => false,
            };
        }
        for name in pods {
            let pod = &self.world.objects.pods[&name];
            let broken = self.world.tags[&name] == BROKEN;
            let pod_change = match pod {
                pod if pod.is_terminal() && !pod.meta.is_deleting() => continue,
                pod if pod.meta.is_deleting() => PodChange::Removed,
                pod if pod.ready_since.is_none() && !broken => PodChange::Ready,
                _ => continue,
            };
            let later = matches!(self.order, Order::Seeded(_)) && self.rng.u8(0..3) == 0;
            busy = true;
            if !later {
                self.world.change_pod(&name, pod_change);
            }
        }
        self.world.sleep(1);
        busy
    }

    /// Runs until nothing changes for longer than any pod needs to become ready.
    pub fn settle(&mut self) {
        let mut quiet = 0;
        for _ in 0..3000 {
            quiet = if self.round() { 0 } else { quiet + 1 };
            if quiet > 40 {
                return;
            }
        }
        panic!("L4: no rest: {:?}", self.world.deployment.status);
    }
}
