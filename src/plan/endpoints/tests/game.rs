//! The three controllers of the endpoints of a Service in one toy cluster: users and nodes change everything in random orders, each
//! controller sees caches that lag, and its writes are lost, refused, or carried out without an answer.
//!
//! The rules that a controller is run by are those of the engine, in short: it decides on caches that show its own writes, and reads
//! what it has written without an answer. At the end everything must be as a recount from the objects says it is.

mod recount;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};

use crate::model::endpoints::FullEndpoints;
use crate::model::endpointslice::{
    ENDPOINT_SLICE_CONTROLLER, ENDPOINT_SLICE_MIRRORING_CONTROLLER, SERVICE_NAME,
};
use crate::model::{EndpointSlice, Endpoints, Node, Pod, Service};
use crate::plan::endpointslice::tests::world::{decode, merge};
use crate::plan::endpointslice::{self, Limits, Memory, TriggerTimes};
use crate::plan::{endpoints, endpointslice_mirroring};

/// The most endpoints of a slice of a Service with a selector.
const MOST: usize = 3;

/// The objects of a kind, by name.
type Objects = BTreeMap<String, Value>;

/// The kinds, as indexes of their histories.
const SERVICE: usize = 0;
const POD: usize = 1;
const NODE: usize = 2;
const SLICE: usize = 3;
const ENDPOINTS: usize = 4;

/// The API server: of each kind every state that it had, with its version.
struct Api {
    histories: [Vec<(u64, Objects)>; 5],
    version: u64,
}

/// The answer to a write.
enum Answer {
    Done(u64),
    /// Nothing is known, or the object is another than was thought. The version to wait for is that of a read.
    Unsure(u64),
    Refused,
}

impl Api {
    fn now(&self, kind: usize) -> &Objects {
        &self.histories[kind].last().unwrap().1
    }

    /// The version of the last change of a kind.
    fn latest(&self, kind: usize) -> u64 {
        self.histories[kind].last().unwrap().0
    }

    fn change(&mut self, kind: usize, name: &str, object: Option<Value>) {
        self.version += 1;
        let mut objects = self.now(kind).clone();
        match object {
            None => drop(objects.remove(name)),
            Some(mut object) => {
                object["metadata"]["name"] = json!(name);
                object["metadata"]["namespace"] = json!(if kind == NODE { "" } else { "shop" });
                object["metadata"]["resourceVersion"] = json!(self.version.to_string());
                if object["metadata"].get("uid").is_none() {
                    object["metadata"]["uid"] = json!(format!("u-{name}-{}", self.version));
                }
                objects.insert(name.into(), object);
            }
        }
        self.histories[kind].push((self.version, objects));
    }

    fn merge(&mut self, kind: usize, name: &str, patch: &Value) {
        if let Some(mut object) = self.now(kind).get(name).cloned() {
            merge(&mut object, patch);
            self.change(kind, name, Some(object));
        }
    }
}

/// One of the controllers.
#[derive(Default)]
struct Actor {
    /// Which state of each kind its caches show.
    caches: [usize; 5],
    /// The version of the written kind that its cache must show before it decides again.
    awaited: u64,
    slices: Memory,
    times: Option<Arc<TriggerTimes>>,
}

#[derive(Clone, Copy, PartialEq)]
enum Role {
    Slices,
    Endpoints,
    Mirrors,
}

const ROLES: [Role; 3] = [Role::Slices, Role::Endpoints, Role::Mirrors];

impl Role {
    fn written(self) -> usize {
        if self == Role::Endpoints { ENDPOINTS } else { SLICE }
    }

    /// The label by which its objects are known.
    fn label(self) -> (&'static str, &'static str) {
        match self {
            Role::Slices => ("endpointslice.kubernetes.io/managed-by", ENDPOINT_SLICE_CONTROLLER),
            Role::Mirrors => ("endpointslice.kubernetes.io/managed-by", ENDPOINT_SLICE_MIRRORING_CONTROLLER),
            Role::Endpoints => ("endpoints.kubernetes.io/managed-by", "endpoint-controller"),
        }
    }
}

/// A write of a controller.
enum Write {
    Create(String, Value),
    Update(String, Value),
    Delete(String, Value),
}

struct Game {
    api: Api,
    actors: [Actor; 3],
    rng: fastrand::Rng,
    has_faults: bool,
    /// The slices of another writer, which stay as they are.
    foreign: Objects,
    log: Vec<String>,
}

impl Game {
    fn new(seed: u64) -> Self {
        let api = Api { histories: std::array::from_fn(|_| vec![(0, Objects::new())]), version: 0 };
        let mut game = Game {
            api,
            actors: Default::default(),
            rng: fastrand::Rng::with_seed(seed),
            has_faults: true,
            foreign: Objects::new(),
            log: Vec::new(),
        };
        for (name, zone) in [("n1", "z1"), ("n2", "z2")] {
            let labels = json!({"topology.kubernetes.io/zone": zone});
            game.api.change(NODE, name, Some(json!({"metadata": {"labels": labels}})));
        }
        let foreign = json!({"metadata": {"labels": {SERVICE_NAME: "web",
            "endpointslice.kubernetes.io/managed-by": "example.com"}}, "addressType": "IPv4", "endpoints": []});
        game.api.change(SLICE, "web-foreign", Some(foreign));
        game.foreign.insert("web-foreign".into(), game.api.now(SLICE)["web-foreign"].clone());
        game.service();
        game
    }

    fn service(&mut self) {
        let target = if self.rng.bool() { json!(8080) } else { json!("http") };
        let more = json!({"name": "admin", "protocol": "TCP", "port": 81, "targetPort": 9000});
        let mut ports = vec![json!({"name": "http", "protocol": "TCP", "port": 80, "targetPort": target})];
        ports.extend(self.rng.bool().then_some(more));
        let families = if self.rng.bool() { json!(["IPv4"]) } else { json!(["IPv4", "IPv6"]) };
        let selector = if self.rng.u8(0..3) == 0 { Value::Null } else { json!({"app": "web"}) };
        let service = json!({
            "metadata": {"creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"team": "a"}},
            "spec": {"selector": selector, "clusterIP": "10.96.0.1", "ipFamilies": families, "ports": ports},
        });
        self.api.change(SERVICE, "web", Some(service));
    }

    fn pod(&mut self, name: &str) {
        let number = name.rsplit('-').next().unwrap();
        let mut ips = vec![json!({"ip": format!("10.0.0.{number}")})];
        if self.rng.bool() {
            ips.push(json!({"ip": format!("fd00::{number}")}));
        }
        let port = [8080, 8081][self.rng.usize(0..2)];
        let ports = json!([{"name": "http", "containerPort": port, "protocol": "TCP"}]);
        let container =
            if self.rng.u8(0..4) == 0 { json!({"name": "c"}) } else { json!({"name": "c", "ports": ports}) };
        let node = ["n1", "n2", "n3"][self.rng.usize(0..3)];
        let pod = json!({
            "metadata": {"labels": {"app": "web"}},
            "spec": {"nodeName": node, "containers": [container]},
            "status": {"phase": "Running", "podIP": ips[0]["ip"], "podIPs": ips},
        });
        self.api.change(POD, name, Some(pod));
        self.set_ready(name);
    }

    fn set_ready(&mut self, name: &str) {
        let status = if self.rng.u8(0..3) == 0 { "False" } else { "True" };
        let at = format!("2026-01-01T00:{:02}:00Z", self.rng.u8(0..60));
        let ready = json!([{"type": "Ready", "status": status, "lastTransitionTime": at}]);
        self.api.merge(POD, name, &json!({"status": {"conditions": ready}}));
    }

    /// Something happens that no controller has done.
    fn user(&mut self) {
        if !self.api.now(SERVICE).contains_key("web") && self.rng.bool() {
            return self.service();
        }
        let name = format!("web-{}", self.rng.u8(1..9));
        let any = |rng: &mut fastrand::Rng, all: &Objects| {
            let names: Vec<&String> = all.keys().filter(|name| *name != "web-foreign").collect();
            (!names.is_empty()).then(|| names[rng.usize(0..names.len())].clone())
        };
        match self.rng.u8(0..32) {
            0..8 => self.pod(&name),
            8..14 => self.set_ready(&name),
            14..16 => self.api.change(POD, &name, None),
            16 => {
                let gone = json!({"metadata": {"deletionTimestamp": "2026-01-01T01:00:00Z"}});
                self.api.merge(POD, &name, &gone);
            }
            17 => self.api.merge(POD, &name, &json!({"status": {"phase": "Failed"}})),
            18 => {
                let app = ["web", "other"][self.rng.usize(0..2)];
                self.api.merge(POD, &name, &json!({"metadata": {"labels": {"app": app}}}));
            }
            19 => self.service(),
            20 => {
                let publishes = self.rng.bool();
                self.api.merge(SERVICE, "web", &json!({"spec": {"publishNotReadyAddresses": publishes}}));
            }
            21 => self.api.merge(SERVICE, "web", &json!({"spec": {"selector": null}})),
            22 => self.api.merge(SERVICE, "web", &json!({"spec": {"selector": {"app": "web"}}})),
            23 => self.api.change(SERVICE, "web", None),
            24 => {
                let labels = json!({"labels": {"topology.kubernetes.io/zone": "z3"}});
                let is_there = self.rng.bool();
                self.api.change(NODE, "n3", is_there.then(|| json!({"metadata": labels})));
            }
            25 => {
                let team = ["b", "c"][self.rng.usize(0..2)];
                self.api.merge(SERVICE, "web", &json!({"metadata": {"labels": {"team": team}}}));
            }
            26..28 => {
                if let Some(slice) = any(&mut self.rng, self.api.now(SLICE)) {
                    let edit = [
                        json!({"endpoints": []}),
                        json!({"metadata": {"labels": {"team": null}}}),
                        json!({"metadata": {"annotations": {"note": "x"}}}),
                    ];
                    let edit = edit[self.rng.usize(0..3)].clone();
                    self.api.merge(SLICE, &slice, &edit);
                }
            }
            28 => {
                if let Some(slice) = any(&mut self.rng, self.api.now(SLICE)) {
                    self.api.change(SLICE, &slice, None);
                }
            }
            29 => self.api.change(ENDPOINTS, "web", None),
            _ => {
                // By hand; of the address that is no pod's the port has no name.
                let ip = format!("10.9.0.{}", self.rng.u8(1..4));
                let subsets = json!([
                    {"addresses": [{"ip": ip}], "notReadyAddresses": [{"ip": "fd00::9"}], "ports": [{"port": 5432, "protocol": "TCP"}]},
                ]);
                if self.api.now(ENDPOINTS).contains_key("web") {
                    self.api.merge(ENDPOINTS, "web", &json!({"subsets": subsets}));
                } else {
                    self.api.change(ENDPOINTS, "web", Some(json!({"metadata": {}, "subsets": subsets})));
                }
            }
        }
    }

    fn view(&self, actor: usize, kind: usize) -> &Objects {
        &self.api.histories[kind][self.actors[actor].caches[kind]].1
    }

    /// The caches of a controller show some of the changes that they have missed.
    fn deliver(&mut self) {
        let actor = self.rng.usize(0..3);
        for kind in 0..5 {
            if self.rng.bool() {
                let (last, steps) = (self.api.histories[kind].len() - 1, self.rng.usize(1..6));
                let shown = &mut self.actors[actor].caches[kind];
                *shown = (*shown + steps).min(last);
            }
        }
    }

    fn deliver_all(&mut self) {
        for actor in &mut self.actors {
            actor.caches = std::array::from_fn(|kind| self.api.histories[kind].len() - 1);
        }
    }

    /// One sync of a controller. How many writes it has tried.
    fn sync(&mut self, actor: usize) -> usize {
        let (role, written) = (ROLES[actor], ROLES[actor].written());
        let shown = self.api.histories[written][self.actors[actor].caches[written]].0;
        if shown < self.actors[actor].awaited {
            return 0;
        }
        let (writes, slices, times) = self.plan(actor);
        let count = writes.len();
        let mut is_done = true;
        for write in writes {
            self.check(actor, &write);
            match self.carry_out(role, write) {
                Answer::Done(version) => self.actors[actor].awaited = version,
                Answer::Unsure(version) => {
                    self.actors[actor].awaited = version;
                    is_done = false;
                    break;
                }
                Answer::Refused => {
                    is_done = false;
                    break;
                }
            }
        }
        if is_done {
            (self.actors[actor].slices, self.actors[actor].times) = (slices, times);
        }
        count
    }

    fn plan(&self, actor: usize) -> (Vec<Write>, Memory, Option<Arc<TriggerTimes>>) {
        let service = self.view(actor, SERVICE).get("web").map(decode::<Service>);
        let selector = service.as_ref().and_then(|service| service.pods());
        let all = self.view(actor, POD).values().map(decode::<Pod>);
        let pods: Vec<Arc<Pod>> =
            all.filter(|pod| selector.is_some_and(|selector| selector.matches(&pod.meta.labels))).collect();
        let (label, value) = ROLES[actor].label();
        let slices: Vec<Arc<EndpointSlice>> = self
            .view(actor, SLICE)
            .values()
            .map(decode::<EndpointSlice>)
            .filter(|it| it.meta.labels.get(label) == Some(value) && it.service() == Some("web"))
            .collect();
        let taken: BTreeSet<Arc<str>> =
            self.view(actor, SLICE).keys().map(|name| name.as_str().into()).collect();
        let memory = self.actors[actor].slices.clone();
        let delete = |slice: &Arc<EndpointSlice>| {
            let (uid, version) = (slice.meta.uid.to_string(), slice.meta.resource_version.to_string());
            let preconditions = json!({"metadata": {"uid": uid, "resourceVersion": version}});
            Write::Delete(slice.meta.key.name.to_string(), preconditions)
        };
        let of_slices = |plan: endpointslice::Plan| {
            let mut writes = Vec::new();
            for of_type in &plan.by_type {
                writes
                    .extend(of_type.creates.iter().map(|it| Write::Create(it.name.clone(), it.body.clone())));
                let updates = of_type.updates.iter();
                writes.extend(
                    updates.map(|it| Write::Update(it.slice.meta.key.name.to_string(), it.body.clone())),
                );
                writes.extend(of_type.deletes.iter().map(delete));
            }
            writes.extend(plan.left_over.iter().map(delete));
            (writes, plan.memory, None)
        };
        let cached = self.view(actor, ENDPOINTS).get("web");
        match (ROLES[actor], service) {
            (Role::Slices, None) => (slices.iter().map(delete).collect(), Memory::default(), None),
            (Role::Slices, Some(service)) => {
                let nodes = self.view(actor, NODE).iter();
                of_slices(endpointslice::plan(&endpointslice::Observed {
                    service: &service,
                    pods,
                    nodes: nodes.map(|(name, node)| (name.as_str().into(), decode::<Node>(node))).collect(),
                    slices,
                    taken,
                    shares: None,
                    memory,
                    limits: Limits { endpoints_per_slice: MOST, deletes_left_over: true },
                }))
            }
            (Role::Endpoints, None) => {
                let there = cached.map(decode::<Endpoints>).filter(|there| endpoints::is_left_over(there));
                let delete = there.map(|there| {
                    let (uid, version) =
                        (there.meta.uid.to_string(), there.meta.resource_version.to_string());
                    Write::Delete("web".into(), json!({"metadata": {"uid": uid, "resourceVersion": version}}))
                });
                (delete.into_iter().collect(), Memory::default(), None)
            }
            (Role::Endpoints, Some(service)) => {
                let plan = endpoints::plan(&endpoints::Observed {
                    service: &service,
                    pods,
                    endpoints: cached.map(decode::<Endpoints>),
                    trigger_times: self.actors[actor].times.clone(),
                });
                let write = plan.write.map(|write| match write {
                    endpoints::Write::Create(body) => Write::Create("web".into(), body),
                    endpoints::Write::Update(_, body) => Write::Update("web".into(), body),
                });
                (write.into_iter().collect(), Memory::default(), plan.trigger_times)
            }
            (Role::Mirrors, service) => match cached {
                None => (slices.iter().map(delete).collect(), Memory::default(), None),
                Some(there) => of_slices(endpointslice_mirroring::plan(&endpointslice_mirroring::Observed {
                    endpoints: Arc::new(decode::<FullEndpoints>(there).0.clone()),
                    service,
                    slices,
                    taken,
                    memory,
                    most: 1000,
                })),
            },
        }
    }

    /// Whether a write may be made by what its controller has seen.
    #[track_caller]
    fn check(&self, actor: usize, write: &Write) {
        let body = match write {
            Write::Create(_, body) | Write::Update(_, body) => body,
            Write::Delete(..) => return,
        };
        if ROLES[actor] == Role::Mirrors {
            return;
        }
        let publishes = self.view(actor, SERVICE)["web"]["spec"]["publishNotReadyAddresses"] == true;
        for pod in recount::ready_pods(body) {
            let pod = &self.view(actor, POD)[&pod];
            assert!(publishes || recount::is_ready(pod), "{pod} is listed as ready\n{}", self.log.join("\n"));
        }
        assert!(recount::sizes(body).iter().all(|size| *size <= 1000), "{body}");
    }

    /// The API server gets a write, or does not, and answers, or does not.
    fn carry_out(&mut self, role: Role, write: Write) -> Answer {
        let kind = role.written();
        let fate = if self.has_faults { self.rng.u8(0..10) } else { 9 };
        let (name, given) = match &write {
            Write::Create(name, body) | Write::Update(name, body) | Write::Delete(name, body) => (name, body),
        };
        self.log.push(format!("{fate} {} {name} {given}", ["slices", "endpoints", "mirrors"][role as usize]));
        // A refusal, or a request that is lost.
        match fate {
            0 => return Answer::Refused,
            1 => return Answer::Unsure(self.api.latest(kind)),
            _ => {}
        }
        let there = self.api.now(kind).get(name).cloned();
        let is_same = |there: &Value| {
            ["uid", "resourceVersion"]
                .iter()
                .all(|field| there["metadata"][field] == given["metadata"][field])
        };
        match (&write, there) {
            (Write::Create(..), None) => self.api.change(kind, name, Some(given.clone())),
            (Write::Create(..), Some(_)) => return Answer::Unsure(self.api.latest(kind)),
            (_, Some(there)) if is_same(&there) => {
                let (label, value) = role.label();
                // Endpoints of a user are taken over; of slices only those with the label are written.
                assert!(role == Role::Endpoints || there["metadata"]["labels"][label] == value, "{there}");
                if let Write::Delete(..) = write {
                    assert_eq!(there["metadata"]["labels"][label], value);
                    self.api.change(kind, name, None);
                } else {
                    self.api.merge(kind, name, given);
                    let now = &self.api.now(kind)[name];
                    assert!(
                        recount::differ(&there, now),
                        "a write without a change: {given}\n{}",
                        self.log.join("\n")
                    );
                }
            }
            _ => return Answer::Unsure(self.api.latest(kind)),
        }
        if fate < 4 { Answer::Unsure(self.api.latest(kind)) } else { Answer::Done(self.api.latest(kind)) }
    }

    /// Deletes the slices whose owners are gone, as the garbage collector does.
    fn collect(&mut self) {
        let owners = [SERVICE, ENDPOINTS]
            .map(|kind| self.api.now(kind).get("web").map(|it| it["metadata"]["uid"].clone()));
        let is_gone = |slice: &Value| {
            let owner = slice.pointer("/metadata/ownerReferences/0/uid");
            owner.is_some_and(|owner| !owners.iter().flatten().any(|uid| uid == owner))
        };
        let slices = self.api.now(SLICE).iter().filter(|(_, slice)| is_gone(slice));
        let gone: Vec<String> = slices.map(|(name, _)| name.clone()).collect();
        for name in gone {
            self.api.change(SLICE, &name, None);
        }
    }

    /// All caches show everything, and each write succeeds: until nobody writes any more.
    fn settle(&mut self) {
        self.has_faults = false;
        for _ in 0..20 {
            self.collect();
            self.deliver_all();
            let mut writes = 0;
            for actor in 0..3 {
                writes += self.sync(actor);
                self.deliver_all();
            }
            if writes == 0 {
                return;
            }
        }
        panic!("they write for ever\n{}", self.log.join("\n"));
    }

    /// Whether everything is as a recount says, and the slices of another writer are as they were.
    fn judge(&self) -> Result<(), String> {
        let now = |kind| self.api.now(kind);
        let found = recount::Cluster {
            service: now(SERVICE).get("web"),
            pods: now(POD),
            nodes: now(NODE),
            slices: now(SLICE),
            endpoints: now(ENDPOINTS).get("web"),
        };
        found.is_as_it_should_be(MOST)?;
        let changed = self.foreign.iter().find(|(name, before)| now(SLICE).get(*name) != Some(before));
        changed.map_or(Ok(()), |(name, _)| Err(format!("{name} was changed")))
    }
}

fn play(seed: u64) -> Game {
    let mut game = Game::new(seed);
    for _ in 0..300 {
        match game.rng.u8(0..12) {
            0..3 => game.user(),
            3..7 => game.deliver(),
            7 => {
                // A restart: the caches are listed, and nothing is remembered.
                let actor = game.rng.usize(0..3);
                if game.rng.u8(0..4) == 0 {
                    let caches = std::array::from_fn(|kind| game.api.histories[kind].len() - 1);
                    game.actors[actor] = Actor { caches, ..Actor::default() };
                }
            }
            _ => {
                let actor = game.rng.usize(0..3);
                game.sync(actor);
            }
        }
    }
    game
}

#[test]
fn everything_settles_as_a_recount_says() {
    for seed in 0..120 {
        let mut game = play(seed);
        game.settle();
        if let Err(why) = game.judge() {
            panic!("seed {seed}: {why}\n{}", game.log.join("\n"));
        }
        // A change of no interest to them makes no write.
        game.api.merge(SERVICE, "web", &json!({"metadata": {"annotations": {"note": "x"}}}));
        game.api.merge(POD, "web-1", &json!({"metadata": {"annotations": {"note": "x"}}}));
        game.deliver_all();
        let writes: usize = (0..3).map(|actor| game.sync(actor)).sum();
        assert_eq!(writes, 0, "seed {seed}");
    }
}

#[test]
fn the_same_seed_plays_the_same_game() {
    assert_eq!(play(7).log, play(7).log);
}

/// The end of a game with endpoints in slices of both kinds is judged, and then again with one thing wrong.
#[test]
fn the_judge_finds_what_is_wrong() {
    let mut found = BTreeSet::new();
    for seed in 0..40 {
        let mut game = play(seed);
        game.settle();
        let slices = game.api.now(SLICE).clone();
        for (name, slice) in slices {
            let writer = slice["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"]
                .as_str()
                .unwrap()
                .to_owned();
            let Some(first) = slice["endpoints"].get(0).cloned() else { continue };
            let mut again = slice.clone();
            again["endpoints"].as_array_mut().unwrap().push(first.clone());
            let mut turned = slice.clone();
            turned["endpoints"][0]["conditions"]["ready"] = json!(first["conditions"]["ready"] == false);
            for wrong in [None, Some(again), Some(turned)] {
                game.api.change(SLICE, &name, wrong);
                assert!(game.judge().is_err(), "seed {seed}: {name}");
                game.api.change(SLICE, &name, Some(slice.clone()));
                assert_eq!(game.judge(), Ok(()));
                found.insert(writer.clone());
            }
        }
        let selects = game.api.now(SERVICE).get("web").is_some_and(|it| it["spec"]["selector"].is_object());
        if let Some(endpoints) =
            game.api.now(ENDPOINTS).get("web").cloned().filter(|it| selects && it["subsets"].is_array())
        {
            game.api.merge(ENDPOINTS, "web", &json!({"subsets": null}));
            assert!(game.judge().is_err(), "seed {seed}: {endpoints}");
            found.insert("endpoints".to_owned());
        }
        game.api.change(SLICE, "web-foreign", None);
        assert!(game.judge().is_err());
    }
    assert_eq!(found.len(), 3, "{found:?}");
}

#[test]
fn games_are_full_of_writes_and_faults() {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for seed in 0..60 {
        for line in play(seed).log {
            let mut words = line.split(' ');
            let fate = ["refused", "lost request", "lost reply", "lost reply"]
                .get(words.next().unwrap().parse::<usize>().unwrap());
            let role = words.next().unwrap();
            *seen.entry(format!("{role} {}", fate.unwrap_or(&"done"))).or_default() += 1;
        }
    }
    assert!(seen.len() == 12 && seen.values().all(|count| *count >= 5), "{seen:?}");
}
