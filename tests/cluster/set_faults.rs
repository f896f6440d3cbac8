//! Random histories of ReplicaSets: the real app against the sandbox through a bad network, in virtual
//! time, with people and nodes that do what they like to the pods. Every write is judged at the moment
//! at which it is carried out, by what the server has then.
//!
//! `SEED=7 cargo test --test cluster set_faults` plays one history again; a failure names its seed. `SEEDS=500`
//! plays more of them.
//!
//! Known breaches, declared where they are tolerated ([`Plot::owes_s11`], [`Plot::owes_s12`], and
//! [`Judge::sizes`]):
//! - A daemon that was started again, or a second one, does not know which creations of the first are
//!   still on their way. It asks for the same names, unless a pod with an earlier name went in between;
//!   then there is a pod too many for a moment. Nothing that an API server keeps could tell it.
//! - A creation or deletion is on its way, or the cache lags, while the size is changed the other way.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;
use windlass_apiserver::{RequestInfo, Sandbox, Verdict};
use windlass_testkit::cluster::{Cluster, Daemon, Faults, USER_AGENT, unlimited};
use windlass_testkit::network::{Network, Weather};

const SETS: &str = "/apis/apps/v1/namespaces/shop/replicasets";
const PODS: &str = "/api/v1/namespaces/shop/pods";
const S: Duration = Duration::from_secs(1);

/// So long a size may still be acted on: the longest lag of the cache that shows it, and the longest
/// flight of what was sent for it then.
const FLIGHT: Duration = Duration::from_secs(180 + 70);

/// What happens in a history.
#[derive(Clone, Copy, Debug)]
struct Plot {
    losses: bool,
    lateness: bool,
    lag: bool,
    relists: bool,
    restarts: bool,
    twins: bool,
    monkey: bool,
    resizing: bool,
}

/// What a family of histories is about.
#[derive(Clone, Copy, PartialEq)]
enum Cast {
    /// One daemon, which lives through it all, and everything that can befall its pods.
    OneDaemon,
    /// Daemons that die and overlap, and pods that stay.
    ManyDaemons,
    /// All at once.
    Everybody,
}

impl Plot {
    fn random(cast: Cast, rng: &mut fastrand::Rng) -> Self {
        let mut maybe = || rng.u8(0..3) > 0;
        Plot {
            losses: maybe(),
            lateness: maybe(),
            lag: maybe(),
            relists: maybe(),
            restarts: cast != Cast::OneDaemon && maybe(),
            twins: cast != Cast::OneDaemon && maybe() && maybe(),
            monkey: cast != Cast::ManyDaemons && maybe(),
            resizing: cast != Cast::ManyDaemons && maybe(),
        }
    }

    /// S11: a create commits only if there are fewer pods than wanted.
    fn owes_s11(self) -> bool {
        let forgetful = self.restarts || self.twins;
        let names_fall_free = self.monkey || self.resizing;
        !(forgetful && names_fall_free && (self.lateness || self.twins))
    }

    /// S12: no delete takes a set below its size. Not owed where somebody else deletes pods that the
    /// cache still shows, or another daemon does, or the last one's deletions are still on their way.
    fn owes_s12(self) -> bool {
        !(self.monkey || self.twins || (self.restarts && self.lateness))
    }
}

/// Judges the daemons' requests when they are carried out.
struct Judge {
    sandbox: Mutex<Option<Sandbox>>,
    plot: Plot,
    /// The sizes that each set has had lately, by UID.
    sizes: Mutex<BTreeMap<String, Vec<(Instant, u64)>>>,
    breaches: Mutex<Vec<String>>,
}

fn is_live(pod: &Value) -> bool {
    let ended = matches!(pod["status"]["phase"].as_str(), Some("Failed" | "Succeeded"));
    !ended && pod["metadata"]["deletionTimestamp"].is_null()
}

/// The reference to the controller.
fn controller(object: &Value) -> Option<&Value> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    owners.iter().find(|owner| owner["controller"] == true)
}

/// Whether the ReplicaSet owns a pod of this namespace: by API group, kind and UID.
fn owns(set: &Value, pod: &Value, namespace: &Value) -> bool {
    set["metadata"]["namespace"] == *namespace
        && controller(pod).is_some_and(|owner| {
            owner["kind"] == "ReplicaSet"
                && owner["apiVersion"].as_str().is_some_and(|version| version.starts_with("apps/"))
                && owner["uid"] == set["metadata"]["uid"]
        })
}

fn live_of<'a>(pods: &'a [Value], set: &Value) -> Vec<&'a Value> {
    let app = &set["spec"]["selector"]["matchLabels"]["app"];
    let ours = |pod: &&Value| {
        owns(set, pod, &pod["metadata"]["namespace"]) && pod["metadata"]["labels"]["app"] == *app
    };
    pods.iter().filter(|pod| is_live(pod)).filter(ours).collect()
}

impl Judge {
    fn breach(&self, what: String) {
        self.breaches.lock().push(what);
    }

    /// The largest and the smallest size within the last [`FLIGHT`].
    fn sizes(&self, set: &Value) -> (u64, u64) {
        let now = set["spec"]["replicas"].as_u64().unwrap();
        let sizes = self.sizes.lock();
        let lately = sizes.get(set["metadata"]["uid"].as_str().unwrap()).into_iter().flatten();
        let lately = lately.filter(|(until, _)| until.elapsed() < FLIGHT).map(|(_, size)| *size);
        lately.fold((now, now), |(most, least), size| (most.max(size), least.min(size)))
    }

    fn judge(&self, request: &RequestInfo) {
        let guard = self.sandbox.lock();
        let Some(sandbox) = &*guard else { return };
        if request.user_agent != USER_AGENT || request.kind != "Pod" {
            return;
        }
        let pods = sandbox.objects("Pod");
        let namespace = Value::from(&*request.namespace);
        let is_it = |pod: &&Value| {
            pod["metadata"]["name"] == *request.name && pod["metadata"]["namespace"] == namespace
        };
        let there = pods.iter().find(is_it);
        let sets = sandbox.objects("ReplicaSet");
        let set_of = |pod: &Value| sets.iter().find(|set| owns(set, pod, &namespace));
        let body: Value = serde_json::from_slice(&request.body).unwrap_or(Value::Null);
        match request.verb {
            "create" => {
                let taken = pods.iter().any(|pod| pod["metadata"]["name"] == body["metadata"]["name"]);
                let (Some(set), false) = (set_of(&body), taken) else { return };
                let (live, (most, _)) = (live_of(&pods, set).len() as u64, self.sizes(set));
                let name = &body["metadata"]["name"];
                if self.plot.owes_s11() && live >= most {
                    self.breach(format!("S11: {name} is the pod after {live} of {most}"));
                }
                if body["metadata"]["ownerReferences"].as_array().map_or(0, Vec::len) != 1 {
                    self.breach(format!("a pod with odd owners: {body}"));
                }
            }
            "delete" => {
                let uid = &body["preconditions"]["uid"];
                let Some(pod) = there.filter(|pod| pod["metadata"]["uid"] == *uid) else {
                    if uid.is_null() {
                        self.breach(format!("S12: {} is deleted whoever it is", request.name));
                    }
                    return;
                };
                let Some(set) = set_of(pod) else {
                    // Its label or its owner was edited a moment ago.
                    if !self.plot.monkey {
                        self.breach(format!("S12: {} is nobody's and is deleted", request.name));
                    }
                    return;
                };
                let (live, (_, least)) = (live_of(&pods, set), self.sizes(set));
                let counts = live.iter().any(|other| other["metadata"]["uid"] == *uid);
                if self.plot.owes_s12() && counts && live.len() as u64 <= least {
                    self.breach(format!("S12: {} goes of {}, {least} are wanted", request.name, live.len()));
                }
            }
            "patch" if request.subresource.is_empty() => {
                let fields: Vec<&String> =
                    body["metadata"].as_object().into_iter().flat_map(|map| map.keys()).collect();
                let alone = body.as_object().is_some_and(|map| map.len() == 1);
                if !alone || fields != ["ownerReferences", "resourceVersion", "uid"] {
                    self.breach(format!("S16: a patch of a pod: {body}"));
                }
                let current = there.is_some_and(|pod| {
                    pod["metadata"]["resourceVersion"] == body["metadata"]["resourceVersion"]
                });
                let adopts = body["metadata"]["ownerReferences"][0]["$patch"].is_null();
                if current && adopts && there.is_some_and(|pod| controller(pod).is_some() || !is_live(pod)) {
                    self.breach(format!("S15: {} is taken: {there:?}", request.name));
                }
            }
            "get" => {}
            verb => {
                if !matches!(verb, "list" | "watch") {
                    self.breach(format!("{verb} {}", request.path));
                }
            }
        }
    }
}

/// Everything that takes part.
struct Stage {
    seed: u64,
    rng: fastrand::Rng,
    plot: Plot,
    cluster: Cluster,
    network: Network,
    judge: Arc<Judge>,
    daemons: Vec<Daemon>,
    log: Vec<String>,
}

impl Stage {
    async fn new(cast: Cast, seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let plot = Plot::random(cast, &mut rng);
        let judge = Arc::new(Judge {
            sandbox: Mutex::default(),
            plot,
            sizes: Mutex::default(),
            breaches: Mutex::default(),
        });
        let sees = judge.clone();
        let faults = Faults(Some(Arc::new(move |request: &RequestInfo| {
            sees.judge(request);
            Verdict::Proceed
        })));
        let streaming = rng.bool();
        let cluster = Cluster::with(faults, |mut options| {
            options.streaming_lists = streaming;
            options
        })
        .await;
        *judge.sandbox.lock() = Some(cluster.sandbox.clone());
        let network = Network::new(seed);
        Stage { seed, rng, plot, cluster, network, judge, daemons: Vec::new(), log: Vec::new() }
    }

    fn say(&mut self, what: String) {
        self.log.push(what);
    }

    fn start(&mut self) {
        let seed = self.rng.u64(..);
        let network = self.network.clone();
        self.daemons.push(self.cluster.start_with(seed, unlimited(), |server| network.around(server)));
    }

    async fn create_set(&mut self, name: &str) {
        let set = json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name},
            "spec": {
                "replicas": self.rng.u32(1..7),
                "selector": {"matchLabels": {"app": name}},
                "template": {"metadata": {"labels": {"app": name}},
                             "spec": {"containers": [{"name": "app", "image": "app:v1"}]}},
            },
        });
        let set = self.cluster.call(Method::POST, SETS, &set).await;
        self.forge_pods(&set).await;
    }

    /// Somebody in another namespace makes pods that name the ReplicaSet as their owner: as what it is, of
    /// which the garbage collector knows that it is not there, and as a kind of which it knows nothing.
    async fn forge_pods(&self, set: &Value) {
        let name = set["metadata"]["name"].as_str().unwrap();
        for (n, api_version) in ["apps/v1", "example.com/v1", "example.com/v1"].into_iter().enumerate() {
            let owner = json!({"apiVersion": api_version, "kind": "ReplicaSet", "name": name,
                               "uid": set["metadata"]["uid"], "controller": true});
            let pod = json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": format!("forged-{name}-{n}"), "finalizers": ["example.com/stays"],
                             "labels": {"app": name}, "ownerReferences": [owner]},
                "spec": {"containers": [{"name": "app", "image": "app:v1"}]},
            });
            self.cluster.call(Method::POST, "/api/v1/namespaces/tenant/pods", &pod).await;
        }
    }

    fn sets(&self) -> Vec<Value> {
        self.cluster.objects("ReplicaSet")
    }

    async fn resize(&mut self) {
        let sets = self.sets();
        let set = &sets[self.rng.usize(..sets.len())];
        let (name, size) = (set["metadata"]["name"].as_str().unwrap(), self.rng.u32(0..8));
        self.say(format!("{name} to {size}"));
        let uid = set["metadata"]["uid"].as_str().unwrap().to_string();
        let before = set["spec"]["replicas"].as_u64().unwrap();
        self.judge.sizes.lock().entry(uid).or_default().push((Instant::now(), before));
        let patch = json!({"spec": {"replicas": size}});
        self.cluster.call(Method::PATCH, &format!("{SETS}/{name}"), &patch).await;
    }

    /// Takes a pod away: it only ever makes fewer of them, so that S11 stays owed.
    async fn molest(&mut self) {
        let pods = self.cluster.objects("Pod");
        if pods.is_empty() {
            return;
        }
        let name = pods[self.rng.usize(..pods.len())]["metadata"]["name"].as_str().unwrap().to_string();
        let path = format!("{PODS}/{name}");
        let (method, path, body) = match self.rng.u8(0..6) {
            0 | 1 => (Method::DELETE, path, Value::Null),
            2 => (Method::DELETE, path, json!({"gracePeriodSeconds": 0})),
            3 => {
                let failed = json!({"status": {"phase": "Failed", "reason": "Evicted"}});
                (Method::PATCH, path + "/status", failed)
            }
            4 => (Method::PATCH, path, json!({"metadata": {"labels": {"app": "debug"}}})),
            _ => {
                let cost = json!({"controller.kubernetes.io/pod-deletion-cost": self.rng.i8(..).to_string()});
                (Method::PATCH, path, json!({"metadata": {"annotations": cost}}))
            }
        };
        self.say(format!("{method} {path} {body}"));
        let _gone_already = self.cluster.try_call(method, &path, &body).await;
    }

    async fn step(&mut self) {
        let Plot { losses, lateness, lag, relists, restarts, twins, monkey, resizing } = self.plot;
        let chance = |on: bool, percent: u8, rng: &mut fastrand::Rng| on && rng.u8(0..100) < percent;
        let rng = &mut self.rng;
        let weather = Weather {
            lost_requests: if losses { rng.u8(0..25) } else { 0 },
            lost_replies: if losses { rng.u8(0..35) } else { 0 },
            late_requests: if lateness { rng.u8(0..25) } else { 0 },
            late_replies: if lateness { rng.u8(0..10) } else { 0 },
            lag: if lag { S * *rng.choice(&[0, 0, 3, 20, 180]).unwrap() } else { Duration::ZERO },
        };
        let restart = chance(restarts, 25, rng);
        let twin = chance(twins, 20, rng) && self.daemons.len() == 1;
        let (breaks, compacts) = (chance(relists, 30, rng), rng.bool());
        let (resizes, molestations) = (chance(resizing, 50, rng), if monkey { rng.u8(0..3) } else { 0 });
        self.network.set(weather);
        self.say(format!("{:?} {weather:?}", self.cluster.clock.now()));
        if restart || (self.daemons.len() == 2 && self.rng.bool()) {
            self.say("a daemon dies".into());
            self.daemons.remove(0).kill();
            if self.daemons.is_empty() {
                self.start();
            }
        }
        if twin {
            self.say("a second daemon".into());
            self.start();
        }
        if breaks {
            if compacts {
                self.cluster.sandbox.compact();
            }
            self.cluster.sandbox.break_watches();
        }
        if resizes {
            self.resize().await;
        }
        for _ in 0..molestations {
            self.molest().await;
        }
        let wait = Duration::from_millis(*self.rng.choice(&[40, 300, 2000, 15_000, 45_000]).unwrap());
        tokio::time::sleep(wait).await;
    }

    /// Each set has its pods, and says so.
    fn is_settled(&self) -> bool {
        let pods = self.cluster.objects("Pod");
        self.sets().iter().all(|set| {
            let wanted = set["spec"]["replicas"].as_u64();
            let number = |field: &str| Some(set["status"][field].as_u64().unwrap_or(0));
            let status =
                ["replicas", "readyReplicas", "availableReplicas"].iter().all(|f| number(f) == wanted);
            status
                && number("observedGeneration") == set["metadata"]["generation"].as_u64()
                && Some(live_of(&pods, set).len() as u64) == wanted
        })
    }

    fn fail(&self, what: &str) -> ! {
        let sets: Vec<String> = self
            .sets()
            .iter()
            .map(|s| format!("{} {} {}", s["metadata"]["name"], s["spec"]["replicas"], s["status"]))
            .collect();
        let tail = self.cluster.writes();
        let tail = &tail[tail.len().saturating_sub(30)..];
        let log = self.log.join("\n");
        panic!("SEED={} {:?}\n{log}\n{sets:#?}\n{tail:?}\n{what}", self.seed, self.plot);
    }

    fn check(&self) {
        if let Some(breach) = self.judge.breaches.lock().first() {
            self.fail(breach);
        }
    }
}

async fn play(cast: Cast, seed: u64) {
    let mut stage = Stage::new(cast, seed).await;
    stage.start();
    let tenant = json!({"metadata": {"name": "tenant"}});
    stage.cluster.call(Method::POST, "/api/v1/namespaces", &tenant).await;
    for n in 0..stage.rng.u32(1..4) {
        stage.create_set(&format!("web-{n}")).await;
    }
    for _ in 0..12 {
        stage.step().await;
        stage.check();
    }
    stage.say("peace".into());
    stage.network.set(Weather::default());
    for daemon in stage.daemons.drain(1..) {
        daemon.kill();
    }
    // What is on its way arrives, a safety net may be reached, and pods that failed are waited for.
    let mut quiet = 0;
    for _ in 0..900 {
        tokio::time::sleep(S).await;
        stage.check();
        quiet = if stage.is_settled() { quiet + 1 } else { 0 };
        if quiet > 70 {
            break;
        }
    }
    if quiet <= 70 {
        stage.fail("L1: not every set has its pods, a quarter of an hour after the last fault");
    }
    let before = stage.cluster.writes().len();
    tokio::time::sleep(600 * S).await;
    if stage.cluster.writes().len() > before {
        stage.fail("L4: a settled set is written to");
    }
    stage.check();
}

/// Each history in a runtime of its own, which takes along whatever still runs at its end.
fn play_all(cast: Cast, count: u64) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let count = number("SEEDS").unwrap_or(count);
    let seeds = number("SEED").map_or(0..count, |seed| seed..seed + 1);
    for seed in seeds {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        runtime.unwrap().block_on(play(cast, seed));
    }
}

#[test]
fn one_daemon_makes_no_pod_too_many_and_deletes_none_too_many() {
    play_all(Cast::OneDaemon, 40);
}

#[test]
fn daemons_that_die_and_overlap_make_no_pod_too_many() {
    play_all(Cast::ManyDaemons, 20);
}

#[test]
fn whatever_happens_every_set_has_its_pods_in_the_end_and_rests() {
    play_all(Cast::Everybody, 20);
}
