//! The promise of the controller: whatever a watch delays and whatever resource cannot be read, a number is not below what exists while
//! the API server charges what it admits, and it is what exists once everything is seen. Judged by a plain recount of the objects.

use std::collections::{BTreeMap, VecDeque};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{decode, seconds, start};
use crate::model::quantity::Quantity;
use crate::model::{PersistentVolumeClaim, Pod, ResourceQuota, Service};
use crate::plan::resourcequota::charges::Charges;
use crate::plan::resourcequota::usage::{self, PodSum};
use crate::plan::resourcequota::wakes::{self, Meaning};
use crate::plan::resourcequota::{Amounts, Count, Observed, Plan, Source, names, patch, plan, sources};

/// The longest that a watch lags, in milliseconds: one that is dead is replaced after 45 seconds. And the longest that one step takes.
const LAG: i64 = 60_000;
const STEP: i64 = 4000;

/// An object as the recount knows it.
#[derive(Clone, Debug, PartialEq)]
enum Toy {
    Pod {
        millis: u64,
        mebibytes: u64,
        has_ended: bool,
        has_deadline: bool,
        is_high: bool,
        overdue: Option<i64>,
    },
    Service {
        ports: u64,
        kind: &'static str,
    },
    Claim {
        gibibytes: u64,
        is_fast: bool,
    },
    Map,
    Widget,
}

const KINDS: usize = 5;

impl Toy {
    fn kind(&self) -> usize {
        match self {
            Toy::Pod { .. } => 0,
            Toy::Service { .. } => 1,
            Toy::Claim { .. } => 2,
            Toy::Map => 3,
            Toy::Widget => 4,
        }
    }

    /// Its use, in thousandths, as the documentation of quotas has it.
    fn uses(&self, quota: &str, key: &str, now_millis: i64) -> u64 {
        let thousand = |is: bool| if is { 1000 } else { 0 };
        match self {
            Toy::Pod { millis, mebibytes, has_ended, has_deadline, is_high, overdue } => {
                let is_in = match quota {
                    "ends" => *has_deadline,
                    "high" => *is_high,
                    _ => true,
                };
                let is_alive = !has_ended && overdue.is_none_or(|due| now_millis <= due);
                match key {
                    "count/pods" => thousand(is_in),
                    "pods" => thousand(is_in && is_alive),
                    "requests.cpu" if is_in && is_alive => *millis,
                    "limits.memory" if is_in && is_alive => mebibytes * 1024 * 1024 * 1000,
                    _ => 0,
                }
            }
            Toy::Service { ports, kind } if quota == "all" => match key {
                "services" => 1000,
                "services.loadbalancers" => thousand(*kind == "LoadBalancer"),
                "services.nodeports" if *kind != "ClusterIP" => ports * 1000,
                _ => 0,
            },
            Toy::Claim { gibibytes, is_fast } if quota == "all" => match key {
                "persistentvolumeclaims" => 1000,
                "requests.storage" => gibibytes * 1024 * 1024 * 1024 * 1000,
                "fast.storageclass.storage.k8s.io/requests.storage" if *is_fast => {
                    gibibytes * 1024 * 1024 * 1024 * 1000
                }
                _ => 0,
            },
            Toy::Map if quota == "all" => thousand(matches!(key, "configmaps" | "count/configmaps")),
            Toy::Widget if quota == "all" => thousand(key == "count/widgets.example.com"),
            _ => 0,
        }
    }

    fn json(&self) -> Value {
        match self {
            Toy::Pod { millis, mebibytes, has_ended, has_deadline, is_high, overdue } => {
                let resources = json!({"requests": {"cpu": format!("{millis}m")}, "limits": {"memory": format!("{mebibytes}Mi")}});
                let mut pod = json!({"spec": {"containers": [{"name": "c", "resources": resources}]},
                                     "status": {"phase": if *has_ended { "Succeeded" } else { "Running" }}});
                if *has_deadline {
                    pod["spec"]["activeDeadlineSeconds"] = 60.into();
                }
                if *is_high {
                    pod["spec"]["priorityClassName"] = "high".into();
                }
                if let Some(due) = overdue {
                    // The grace period counts twice.
                    let deletion = Timestamp::from_millisecond(due - 2000).unwrap();
                    pod["metadata"] =
                        json!({"deletionTimestamp": deletion.to_string(), "deletionGracePeriodSeconds": 2});
                }
                pod
            }
            Toy::Service { ports, kind } => {
                let ports: Vec<Value> = (0..*ports).map(|at| json!({"port": 80 + at})).collect();
                json!({"spec": {"type": kind, "ports": ports}})
            }
            Toy::Claim { gibibytes, is_fast } => {
                let class = if *is_fast { "fast" } else { "" };
                json!({"spec": {"storageClassName": class, "resources": {"requests": {"storage": format!("{gibibytes}Gi")}}}})
            }
            Toy::Map | Toy::Widget => json!({}),
        }
    }
}

/// A change on its way to the caches.
#[derive(Clone, Debug)]
struct Event {
    sent: i64,
    version: u64,
    name: u32,
    object: Option<Toy>,
}

/// A quota at the API server, what is on its way of it, and what the controller has of it.
struct Quota {
    name: &'static str,
    stored: Value,
    /// Its version at the API server.
    version: u64,
    pending: VecDeque<(i64, Value)>,
    cached: Option<ResourceQuota>,
    charges: Charges,
}

struct World {
    rng: fastrand::Rng,
    millis: i64,
    objects: BTreeMap<u32, Toy>,
    next: u32,
    quotas: Vec<Quota>,
    /// The last version of anything.
    revision: u64,
    pending: [VecDeque<Event>; KINDS],
    /// The version that the cache of each kind shows.
    positions: [u64; KINDS],
    /// For how long the watch of each kind shows nothing.
    stalled: [i64; KINDS],
    cached: BTreeMap<u32, Toy>,
    is_broken: [bool; KINDS],
    writes: usize,
}

fn source(kind: usize) -> Source {
    match kind {
        0 => Source::Pods,
        1 => Source::Services,
        2 => Source::Claims,
        3 => Source::Objects("configmaps".to_owned()),
        _ => Source::Objects("widgets.example.com".to_owned()),
    }
}

impl World {
    fn new(seed: u64) -> Self {
        let spec = |keys: &[&str]| {
            let hard: serde_json::Map<String, Value> =
                keys.iter().map(|key| ((*key).to_owned(), "1000Ti".into())).collect();
            json!({"hard": hard})
        };
        let all = spec(&[
            "pods",
            "count/pods",
            "requests.cpu",
            "limits.memory",
            "services",
            "services.loadbalancers",
            "services.nodeports",
            "persistentvolumeclaims",
            "requests.storage",
            "fast.storageclass.storage.k8s.io/requests.storage",
            "configmaps",
            "count/configmaps",
            "count/widgets.example.com",
        ]);
        let mut ends = spec(&["pods", "requests.cpu"]);
        ends["scopes"] = json!(["Terminating"]);
        let mut high = spec(&["pods", "count/pods"]);
        high["scopeSelector"] = json!({"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]});
        let quota = |(name, spec): (&'static str, Value)| Quota {
            name,
            stored: json!({"metadata": {"name": name}, "spec": spec, "status": {"hard": {}, "used": {}}}),
            version: 1,
            pending: VecDeque::new(),
            cached: None,
            charges: Charges::default(),
        };
        let mut world = World {
            rng: fastrand::Rng::with_seed(seed),
            millis: start().as_millisecond(),
            objects: BTreeMap::new(),
            next: 0,
            quotas: [("all", all), ("ends", ends), ("high", high)].map(quota).into(),
            revision: 1,
            pending: Default::default(),
            positions: [1; KINDS],
            stalled: [0; KINDS],
            cached: BTreeMap::new(),
            is_broken: [false; KINDS],
            writes: 0,
        };
        for _ in 0..world.rng.u32(0..6) {
            let toy = world.toy();
            world.put(toy);
        }
        world.deliver_all();
        (0..3).for_each(|at| world.store(at));
        world.deliver_all();
        // Before its first status nothing is admitted.
        (0..3).for_each(|at| assert!(world.sync(at)));
        world
    }

    fn time(&self) -> Timestamp {
        Timestamp::from_millisecond(self.millis).unwrap()
    }

    fn toy(&mut self) -> Toy {
        let rng = &mut self.rng;
        match rng.u8(0..6) {
            0 | 1 => Toy::Pod {
                millis: [100, 250, 1000][rng.usize(0..3)],
                mebibytes: rng.u64(1..4),
                has_ended: false,
                has_deadline: rng.bool(),
                is_high: rng.bool(),
                overdue: None,
            },
            2 => Toy::Service {
                ports: rng.u64(1..4),
                kind: ["ClusterIP", "NodePort", "LoadBalancer"][rng.usize(0..3)],
            },
            3 => Toy::Claim { gibibytes: rng.u64(1..9), is_fast: rng.bool() },
            4 => Toy::Map,
            _ => Toy::Widget,
        }
    }

    /// The recount, in thousandths.
    fn recount(&self, quota: &str, key: &str) -> u64 {
        self.objects.values().map(|toy| toy.uses(quota, key, self.millis)).sum()
    }

    /// The API server charges what it admits.
    fn charge(&mut self, before: Option<&Toy>, after: &Toy) {
        let now = self.millis;
        for at in 0..self.quotas.len() {
            let name = self.quotas[at].name;
            let mut has_changed = false;
            let used = self.quotas[at].stored["status"]["used"].as_object_mut().unwrap();
            for (key, number) in used {
                let was = before.map_or(0, |toy| toy.uses(name, key, now));
                let more = after.uses(name, key, now).saturating_sub(was);
                if more > 0 {
                    let sum = Quantity::parse(number.as_str().unwrap()).unwrap().plus(thousandths(more));
                    *number = sum.to_string().into();
                    has_changed = true;
                }
            }
            if has_changed {
                self.store(at);
            }
        }
    }

    fn store(&mut self, at: usize) {
        self.revision += 1;
        let quota = &mut self.quotas[at];
        quota.version = self.revision;
        quota.stored["metadata"]["resourceVersion"] = quota.version.to_string().into();
        quota.pending.push_back((self.millis, quota.stored.clone()));
    }

    fn put(&mut self, toy: Toy) {
        let name = self.next;
        self.next += 1;
        self.change(name, Some(toy));
    }

    fn change(&mut self, name: u32, object: Option<Toy>) {
        let kind = object.as_ref().or(self.objects.get(&name)).unwrap().kind();
        match object.clone() {
            Some(toy) => drop(self.objects.insert(name, toy)),
            None => drop(self.objects.remove(&name)),
        }
        self.revision += 1;
        self.pending[kind].push_back(Event { sent: self.millis, version: self.revision, name, object });
    }

    fn act(&mut self) {
        let any = self.objects.keys().copied().nth(self.rng.usize(0..self.objects.len().max(1)));
        match (self.rng.u8(0..10), any) {
            (0..=3, _) => {
                let toy = self.toy();
                self.charge(None, &toy);
                // A creation may fail after it was charged.
                if self.rng.u8(0..8) > 0 {
                    self.put(toy);
                }
            }
            (4 | 5, Some(name)) => self.change(name, None),
            (_, Some(name)) => {
                let old = self.objects[&name].clone();
                let mut new = old.clone();
                match &mut new {
                    Toy::Pod { has_ended, overdue, millis, .. } => match self.rng.u8(0..3) {
                        0 => *has_ended = true,
                        1 if overdue.is_none() => {
                            *overdue = Some(self.millis / 1000 * 1000 + self.rng.i64(2..5) * 1000)
                        }
                        _ => *millis += 50,
                    },
                    Toy::Service { kind, ports } => {
                        *kind = ["ClusterIP", "NodePort", "LoadBalancer"][self.rng.usize(0..3)];
                        *ports = self.rng.u64(1..4);
                    }
                    Toy::Claim { gibibytes, .. } => *gibibytes += 1,
                    Toy::Map | Toy::Widget => {}
                }
                self.charge(Some(&old), &new);
                self.change(name, Some(new));
            }
            _ => {}
        }
    }

    /// One change reaches a cache. What a list brings after a break stands for no charge.
    fn deliver(&mut self, kind: usize, is_listing: bool) {
        let Some(Event { name, object, version, .. }) = self.pending[kind].pop_front() else { return };
        self.positions[kind] = version;
        let old = match object.clone() {
            Some(toy) => self.cached.insert(name, toy),
            None => self.cached.remove(&name),
        };
        let now = self.time();
        for quota in self.quotas.iter_mut().filter(|_| !is_listing) {
            let Some(cached) = &quota.cached else { continue };
            let meaning = meaning(cached, kind, old.as_ref(), object.as_ref(), now);
            quota.charges.appeared(&meaning.more, now);
        }
    }

    fn deliver_quota(&mut self, at: usize) {
        let now = self.time();
        let quota = &mut self.quotas[at];
        let Some((_, stored)) = quota.pending.pop_front() else { return };
        let new: ResourceQuota = decode(&stored);
        if let Some(old) = &quota.cached {
            quota.charges.changed(old, &new, now);
        }
        quota.cached = Some(new);
    }

    /// A list, after a break.
    fn heal(&mut self, kind: usize) {
        self.is_broken[kind] = false;
        while !self.pending[kind].is_empty() {
            self.deliver(kind, true);
        }
        self.bookmark(kind);
    }

    /// A watch that has shown everything tells how far it is.
    fn bookmark(&mut self, kind: usize) {
        if self.pending[kind].is_empty() && !self.is_broken[kind] {
            self.positions[kind] = self.revision;
        }
    }

    fn deliver_all(&mut self) {
        (0..KINDS).for_each(|kind| self.heal(kind));
        for at in 0..self.quotas.len() {
            while !self.quotas[at].pending.is_empty() {
                self.deliver_quota(at);
            }
        }
    }

    fn pass(&mut self, millis: i64) {
        self.millis += millis;
        let oldest = self.millis - LAG;
        for kind in 0..KINDS {
            self.stalled[kind] -= millis;
            if self.stalled[kind] <= 0 {
                if self.rng.u8(0..12) == 0 {
                    self.stalled[kind] = self.rng.i64(0..LAG);
                } else if self.rng.bool() {
                    self.bookmark(kind);
                }
            }
            while !self.is_broken[kind]
                && self.pending[kind].front().is_some_and(|event| event.sent <= oldest)
            {
                self.deliver(kind, false);
            }
        }
        for at in 0..self.quotas.len() {
            while self.quotas[at].pending.front().is_some_and(|(sent, _)| *sent <= oldest) {
                self.deliver_quota(at);
            }
        }
    }

    fn plan(&mut self, at: usize) -> Option<Plan> {
        let now = self.time();
        let quota = self.quotas[at].cached.clone()?;
        let counts = sources(&quota).into_iter().map(|named| {
            let kind = (0..KINDS).find(|kind| source(*kind) == named).unwrap();
            let objects = || self.cached.values().filter(move |toy| toy.kind() == kind);
            let broken = Count::Unknown { reason: "broken".to_owned(), has_failed: true };
            (
                named,
                if self.is_broken[kind] { broken } else { Count::Used(count(&quota, kind, objects(), now)) },
            )
        });
        let counts = counts.collect();
        let positions = self.positions;
        let position = |key: &str| {
            let named = names::source(key).unwrap();
            positions[(0..KINDS).find(|kind| source(*kind) == named).unwrap()]
        };
        let charged = self.quotas[at].charges.open(position, now);
        let has_just_changed = self.rng.bool();
        Some(plan(&Observed { quota: &quota, counts, charged, has_just_changed }))
    }

    /// One sync of a quota, on what the caches show. Whether it has written.
    fn sync(&mut self, at: usize) -> bool {
        let Some(status) = self.plan(at).and_then(|plan| plan.status) else { return false };
        let patch = patch(self.quotas[at].cached.as_ref().unwrap(), &status);
        let quota = &mut self.quotas[at];
        if patch["metadata"]["resourceVersion"] != quota.version.to_string().as_str() {
            return false;
        }
        for part in ["hard", "used"] {
            for (key, value) in patch["status"][part].as_object().unwrap() {
                match value {
                    Value::Null => drop(quota.stored["status"][part].as_object_mut().unwrap().remove(key)),
                    value => quota.stored["status"][part][key] = value.clone(),
                }
            }
        }
        self.writes += 1;
        self.store(at);
        // It waits until the cache shows its write.
        while !self.quotas[at].pending.is_empty() {
            self.deliver_quota(at);
        }
        true
    }

    #[track_caller]
    fn check(&self, is_settled: bool, seed: u64) {
        for quota in &self.quotas {
            for (key, _) in quota.stored["spec"]["hard"].as_object().unwrap() {
                let recount = thousandths(self.recount(quota.name, key));
                let used = &quota.stored["status"]["used"][key];
                let used = Quantity::parse(used.as_str().unwrap()).unwrap();
                let holds = if is_settled { used == recount } else { used >= recount };
                let name = quota.name;
                assert!(
                    holds,
                    "seed {seed}: {name} says {used} of {key}, and there is {recount}; settled: {is_settled}"
                );
            }
        }
    }
}

fn thousandths(number: u64) -> Quantity {
    Quantity::parse(&format!("{number}m")).unwrap()
}

fn meaning(
    quota: &ResourceQuota,
    kind: usize,
    old: Option<&Toy>,
    new: Option<&Toy>,
    now: Timestamp,
) -> Meaning {
    fn read<T: crate::model::Record>(toy: Option<&Toy>) -> Option<T> {
        toy.map(|toy| decode(&toy.json()))
    }
    match kind {
        0 => wakes::of_pod(quota, read::<Pod>(old).as_ref(), read::<Pod>(new).as_ref(), now),
        1 => wakes::of_service(quota, read::<Service>(old).as_ref(), read::<Service>(new).as_ref()),
        2 => {
            let (old, new) = (read::<PersistentVolumeClaim>(old), read::<PersistentVolumeClaim>(new));
            wakes::of_claim(quota, old.as_ref(), new.as_ref())
        }
        _ if old.is_some() == new.is_some() => Meaning::default(),
        _ => wakes::of_object(quota, &source(kind).to_string(), new.is_some()),
    }
}

fn count<'a>(
    quota: &ResourceQuota,
    kind: usize,
    objects: impl Iterator<Item = &'a Toy>,
    now: Timestamp,
) -> Amounts {
    let mut sum = Amounts::new();
    match kind {
        0 => {
            let mut pods = PodSum::new(now);
            objects.for_each(|toy| pods.add(&decode::<Pod>(&toy.json())));
            return pods.of(quota);
        }
        1 => objects.for_each(|toy| usage::add(&mut sum, &usage::of_service(quota, &decode(&toy.json())))),
        2 => objects.for_each(|toy| usage::add(&mut sum, &usage::of_claim(quota, &decode(&toy.json())))),
        _ => return usage::of_objects(quota, &source(kind).to_string(), objects.count()),
    }
    sum
}

#[test]
fn a_number_is_never_below_what_exists_and_is_what_exists_once_everything_is_seen() {
    for seed in 0..60 {
        let mut world = World::new(seed);
        world.check(true, seed);
        for _ in 0..300 {
            match world.rng.u8(0..12) {
                0..=3 => world.act(),
                4..=6 => {
                    let kind = world.rng.usize(0..KINDS);
                    if !world.is_broken[kind] && world.stalled[kind] <= 0 {
                        world.deliver(kind, false);
                    }
                }
                7 => {
                    let at = world.rng.usize(0..3);
                    world.deliver_quota(at);
                }
                8 | 9 => {
                    let at = world.rng.usize(0..3);
                    world.sync(at);
                }
                10 => {
                    let kind = world.rng.usize(0..KINDS);
                    match world.is_broken[kind] {
                        true => world.heal(kind),
                        false => world.is_broken[kind] = world.rng.u8(0..4) == 0,
                    }
                }
                _ => {
                    let millis = world.rng.i64(1..STEP);
                    world.pass(millis);
                }
            }
            world.check(false, seed);
        }
        for _ in 0..2 {
            world.deliver_all();
            world.millis += seconds(20).as_millis() as i64;
            for at in 0..3 {
                world.sync(at);
            }
        }
        world.check(true, seed);
        let writes = world.writes;
        (0..3).for_each(|at| assert!(!world.sync(at), "seed {seed}: it is settled"));
        assert!(world.writes == writes && writes > 3, "seed {seed}: {writes} writes");
    }
}
