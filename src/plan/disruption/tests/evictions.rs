//! The promise: evictions alone never leave fewer healthy pods than the budget asks for. Random histories of an API server that
//! evicts, of controllers with lagging caches and lost replies, of pods that end and come back under old and new names; judged by
//! counting the pods of the server.
//!
//! The server is a model of its own (`pkg/registry/core/pod/storage/eviction.go`), as small as it can be.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use serde_json::{Value, json};

use super::world::{at, budget, merge, reference};
use crate::model::{DisruptionStatus, Interner, Pod, PodDisruptionBudget, Record, Scale, Uid};
use crate::plan::disruption::{Found, Memory, Observed, plan};

/// The pods that the workload should have.
const REPLICAS: i64 = 5;

/// No cache is older than this: a watch that shows nothing for so long is replaced.
const LAG: i64 = 60;

/// An eviction that was allowed deletes its pod within this time, or never.
const DELETES: i64 = 30;

/// The requests of a budget.
#[derive(Clone, Copy, Debug)]
enum Wanted {
    Least(i64),
    LeastPercent(i64),
    MostMissing(i64),
}

impl Wanted {
    fn any(rng: &mut Rng) -> Self {
        match rng.u8(..3) {
            0 => Wanted::Least(rng.i64(1..=REPLICAS)),
            1 => Wanted::LeastPercent(rng.i64(10..=90)),
            _ => Wanted::MostMissing(rng.i64(0..=3)),
        }
    }

    fn spec(self) -> Value {
        match self {
            Wanted::Least(least) => json!({"minAvailable": least}),
            Wanted::LeastPercent(percent) => json!({"minAvailable": format!("{percent}%")}),
            Wanted::MostMissing(most) => json!({"maxUnavailable": most}),
        }
    }

    /// So many must be healthy.
    fn desired(self) -> i64 {
        match self {
            Wanted::Least(least) => least,
            Wanted::LeastPercent(percent) => (REPLICAS * percent + 99) / 100,
            Wanted::MostMissing(most) => REPLICAS - most,
        }
    }
}

#[derive(Clone, Debug)]
struct State {
    uid: u64,
    created: i64,
    ready: bool,
    deleting: bool,
}

/// The API server, and all that happens in it.
struct Server {
    rng: Rng,
    now: i64,
    revision: u64,
    wanted: Wanted,
    pods: BTreeMap<String, State>,
    /// Each change of a pod: its revision, its time, and the pod if it is still there.
    changes: Vec<(u64, i64, String, Option<Arc<Pod>>)>,
    /// Each version of the budget, and its time.
    budgets: Vec<(i64, PodDisruptionBudget)>,
    /// Deletions that allowed evictions have yet to carry out: pod, UID, and when at the latest.
    deletions: Vec<(String, u64, i64)>,
    broken: Option<String>,
    evictions: usize,
}

impl Server {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let wanted = Wanted::any(&mut rng);
        let mut first = budget(wanted.spec());
        first.meta.resource_version = 1;
        let mut server = Server {
            rng,
            now: 1000,
            revision: 1,
            wanted,
            pods: BTreeMap::new(),
            changes: Vec::new(),
            budgets: vec![(1000, first)],
            deletions: Vec::new(),
            broken: None,
            evictions: 0,
        };
        for _ in 0..REPLICAS {
            server.create();
        }
        server
    }

    fn budget(&self) -> &PodDisruptionBudget {
        &self.budgets.last().unwrap().1
    }

    fn changed(&mut self, name: &str) {
        self.revision += 1;
        let pod = self.pods.get(name).map(|state| {
            let ready = if state.ready { "True" } else { "False" };
            let mut pod = json!({
                "metadata": {"name": name, "namespace": "shop", "uid": format!("u-{}", state.uid),
                             "creationTimestamp": at(state.created).to_string(),
                             "resourceVersion": self.revision.to_string(), "labels": {"app": "web"},
                             "ownerReferences": [reference("example.com/v1", "Shop", "s")]},
                "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]},
            });
            if state.deleting {
                merge(&mut pod, &json!({"metadata": {"deletionTimestamp": at(self.now).to_string()}}));
            }
            Arc::new(Pod::decode(&pod.to_string(), &mut Interner::default()).unwrap())
        });
        self.changes.push((self.revision, self.now, name.to_owned(), pod));
    }

    fn put_budget(&mut self, mut budget: PodDisruptionBudget) {
        self.revision += 1;
        budget.meta.resource_version = self.revision;
        self.budgets.push((self.now, budget));
    }

    /// The workload replaces a pod, under the lowest free name or a new one.
    fn create(&mut self) {
        let live = self.pods.values().filter(|pod| !pod.deleting).count();
        if i64::try_from(live).unwrap() >= REPLICAS {
            return;
        }
        let uid = self.revision + 1;
        let free = (0..).map(|n| format!("web-{n}")).find(|name| !self.pods.contains_key(name));
        let name = if self.rng.bool() { free.unwrap() } else { format!("web-x{uid}") };
        self.pods.insert(name.clone(), State { uid, created: self.now, ready: false, deleting: false });
        self.changed(&name);
    }

    fn any_pod(&mut self) -> Option<String> {
        let names: Vec<String> = self.pods.keys().cloned().collect();
        self.rng.choice(names)
    }

    fn delete(&mut self, name: &str, uid: u64) {
        if let Some(pod) = self.pods.get_mut(name).filter(|pod| pod.uid == uid && !pod.deleting) {
            pod.deleting = true;
            self.changed(name);
        }
    }

    /// Pods that are healthy, and stay so as far as the server knows.
    fn healthy(&self) -> i64 {
        let is_leaving =
            |name: &str, pod: &State| self.deletions.iter().any(|it| (&*it.0, it.1) == (name, pod.uid));
        let healthy =
            self.pods.iter().filter(|(name, pod)| pod.ready && !pod.deleting && !is_leaving(name, pod));
        i64::try_from(healthy.count()).unwrap()
    }

    fn evict(&mut self) {
        let Some(name) = self.any_pod() else { return };
        let State { uid, ready, deleting, .. } = self.pods[&name].clone();
        if deleting {
            return;
        }
        let mut budget = self.budget().clone();
        let status = &mut budget.status;
        if !ready && status.current_healthy >= status.desired_healthy && status.desired_healthy > 0 {
            return self.delete(&name, uid);
        }
        if status.observed_generation < budget.meta.generation || status.disruptions_allowed <= 0 {
            return;
        }
        status.disruptions_allowed -= 1;
        status.disrupted_pods.insert(name.as_str().into(), at(self.now));
        self.put_budget(budget);
        self.evictions += 1;
        // The process that evicts may end here.
        let is_lost = self.rng.u8(..8) == 0;
        if !is_lost {
            self.deletions.push((name.clone(), uid, self.now + DELETES));
        }
        let (healthy, desired) = (self.healthy(), self.wanted.desired());
        if healthy < desired {
            let status = &self.budget().status;
            let why = format!("{healthy} healthy of {desired} at {} after {name}: {status:?}", self.now);
            self.broken.get_or_insert(why);
        }
        if !is_lost && self.rng.bool() {
            self.deletions.pop();
            self.delete(&name, uid);
        }
    }

    fn pass(&mut self, seconds: i64) {
        self.now += seconds;
        let now = self.now;
        let (due, later): (Vec<_>, _) =
            std::mem::take(&mut self.deletions).into_iter().partition(|it| it.2 <= now);
        self.deletions = later;
        due.into_iter().for_each(|(name, uid, _)| self.delete(&name, uid));
    }

    fn step(&mut self) {
        match self.rng.u8(..16) {
            0..=3 => self.evict(),
            4..=6 => self.create(),
            7..=9 => {
                let name = self.any_pod();
                if let Some(name) = name.filter(|name| !self.pods[name].ready) {
                    self.pods.get_mut(&name).unwrap().ready = true;
                    self.changed(&name);
                }
            }
            10 | 11 => {
                let name = self.any_pod();
                if let Some(name) = name.filter(|name| self.pods[name].deleting) {
                    self.pods.remove(&name);
                    self.changed(&name);
                }
            }
            12 => {
                let seconds = self.rng.i64(0..10);
                self.pass(seconds);
            }
            13 if self.rng.u8(..4) == 0 => {
                self.wanted = Wanted::any(&mut self.rng);
                let mut next = budget(self.wanted.spec());
                next.status = self.budget().status.clone();
                next.meta.generation = self.budget().meta.generation + 1;
                self.put_budget(next);
            }
            _ => {
                if let Some((name, uid, _)) = self.deletions.pop() {
                    self.delete(&name, uid);
                }
            }
        }
    }

    /// A write of a status, computed from this version.
    fn write(&mut self, version: u64, status: DisruptionStatus) -> Option<u64> {
        let current = self.budget();
        if current.meta.resource_version != version {
            return None;
        }
        let next = PodDisruptionBudget { status, ..current.clone() };
        self.put_budget(next);
        Some(self.revision)
    }
}

/// A controller with its caches.
struct Planner {
    pods: BTreeMap<String, Arc<Pod>>,
    /// How many changes the cache of pods shows, and the revision that it has reached.
    shown: usize,
    version: u64,
    /// The version of the budget that the cache shows, and that it must show before the next decision.
    budget: usize,
    awaited: u64,
    memory: Memory,
    /// For how many steps the watch of pods shows nothing.
    stalled: usize,
    skew: i64,
    /// Whether an entry leaves as upstream lets it leave.
    is_upstream: bool,
}

impl Planner {
    /// One that has just been elected: its caches show the state at the election.
    fn elected(server: &mut Server, is_upstream: bool) -> Self {
        let mut planner = Planner {
            pods: BTreeMap::new(),
            shown: 0,
            version: 0,
            budget: server.budgets.len() - 1,
            awaited: 0,
            memory: Memory::default(),
            stalled: 0,
            skew: server.rng.i64(-3..=3),
            is_upstream,
        };
        planner.show_pods(server, usize::MAX);
        planner.version = server.revision;
        planner
    }

    fn show_pods(&mut self, server: &Server, count: usize) {
        for (revision, _, name, pod) in server.changes.iter().skip(self.shown).take(count) {
            match pod {
                Some(pod) => drop(self.pods.insert(name.clone(), pod.clone())),
                None => drop(self.pods.remove(name)),
            }
            self.version = self.version.max(*revision);
            self.shown += 1;
        }
    }

    /// The watches bring something, and all that is older than the lag.
    fn catch_up(&mut self, server: &mut Server, everything: bool) {
        let old = server.now - LAG;
        let overdue = server.changes.iter().skip(self.shown).take_while(|change| change.1 <= old).count();
        self.stalled = match self.stalled {
            0 if server.rng.u8(..24) == 0 => server.rng.usize(..100),
            steps => steps.saturating_sub(1),
        };
        let some = if self.stalled == 0 && server.rng.bool() { server.rng.usize(..3) } else { 0 };
        self.show_pods(server, if everything { usize::MAX } else { overdue.max(some) });
        let may_tell = everything || (self.stalled == 0 && server.rng.u8(..4) == 0);
        if self.shown == server.changes.len() && may_tell {
            // A bookmark.
            self.version = server.revision;
        }
        let last = server.budgets.len() - 1;
        let overdue = server.budgets.iter().rposition(|(time, _)| *time <= old).unwrap_or(0);
        let some = server.rng.usize(self.budget..=last);
        self.budget = if everything { last } else { self.budget.max(overdue).max(some) };
    }

    /// A sync: the version and the status to write, if any.
    fn sync(&mut self, server: &Server) -> Option<(u64, DisruptionStatus)> {
        let (_, budget) = &server.budgets[self.budget];
        if budget.meta.resource_version < self.awaited {
            return None;
        }
        let pods: Vec<Arc<Pod>> = self.pods.values().cloned().collect();
        let scale = Scale { uid: Uid::new("u-s"), replicas: i32::try_from(REPLICAS).unwrap() };
        let owners = pods.iter().filter_map(|pod| Some((pod.meta.owner()?, Found::Scaled(scale.clone()))));
        let observed = Observed {
            budget,
            owners: owners.collect(),
            pods,
            pods_version: if self.is_upstream { u64::MAX } else { self.version },
            memory: self.memory.clone(),
            now: at(server.now + self.skew),
            elapsed: Duration::from_secs(u64::try_from(server.now).unwrap()),
        };
        let plan = plan(&observed);
        assert_eq!(plan.failure, None);
        self.memory = plan.memory;
        (plan.status != budget.status).then_some((budget.meta.resource_version, plan.status))
    }
}

/// Plays a history. The number of evictions, or how the promise was broken.
fn play(seed: u64, is_upstream: bool) -> Result<usize, String> {
    let mut server = Server::new(seed);
    let mut planner = Planner::elected(&mut server, is_upstream);
    let mut under_way: Vec<(u64, DisruptionStatus)> = Vec::new();
    for _ in 0..600 {
        server.step();
        planner.catch_up(&mut server, false);
        if server.rng.bool()
            && let Some((version, status)) = planner.sync(&server)
        {
            match server.rng.u8(..8) {
                0 => {}
                1 => under_way.push((version, status)),
                2 => drop(server.write(version, status)),
                _ => planner.awaited = server.write(version, status).unwrap_or(planner.awaited),
            }
        }
        if server.rng.u8(..8) == 0 && !under_way.is_empty() {
            // A write that was under way for long; perhaps that of a leader of the past.
            let (version, status) = under_way.swap_remove(server.rng.usize(..under_way.len()));
            server.write(version, status);
        }
        if server.rng.u8(..64) == 0 {
            planner = Planner::elected(&mut server, is_upstream);
        }
        if let Some(why) = server.broken {
            return Err(format!("seed {seed}: {why}"));
        }
    }
    settle(&mut server, &mut planner);
    Ok(server.evictions)
}

/// Nothing happens any more: the status becomes what a recount gives, and stays.
fn settle(server: &mut Server, planner: &mut Planner) {
    for _ in 0..4 {
        server.pass(100);
        planner.catch_up(server, true);
        if let Some((version, status)) = planner.sync(server) {
            server.write(version, status).unwrap();
        }
    }
    planner.catch_up(server, true);
    assert_eq!(planner.sync(server), None, "nothing is written without a change");
    let (status, desired) = (&server.budget().status, server.wanted.desired());
    let desired =
        if matches!(server.wanted, Wanted::Least(_)) || !server.pods.is_empty() { desired } else { 0 };
    let allowed = if server.pods.is_empty() { 0 } else { (server.healthy() - desired).max(0) };
    let numbers =
        (status.current_healthy.into(), status.desired_healthy.into(), status.disruptions_allowed.into());
    assert_eq!(numbers, (server.healthy(), desired, allowed));
    assert!(status.disrupted_pods.is_empty(), "{status:?}");
}

#[test]
fn evictions_never_leave_fewer_healthy_pods_than_desired() {
    let evictions: usize = (0..200).map(|seed| play(seed, false).unwrap()).sum();
    assert!(evictions > 2000, "{evictions} evictions prove little");
}

#[test]
fn the_histories_find_an_entry_that_leaves_too_early() {
    assert!((0..400).any(|seed| play(seed, true).is_err()));
}
