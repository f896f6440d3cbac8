//! The cost of one pod event for the daemon, for ReplicaSets of 10 to 5000 pods, alone in their namespace and among
//! 10,000 pods of other ReplicaSets. `cargo bench --bench sync`.
//!
//! The real controllers run over a transport that answers as an API server does and costs next to
//! nothing. Pods turn ready and not ready one after the other, a thousand a second of virtual time, and
//! all consequences are included: the event is decoded, stored and handled, the ReplicaSet is synced and its status
//! written. One thread does it all, and its CPU time is the figure. The cost of the same events for an
//! informer alone is shown beside it: the difference is the cost of the syncs.
//!
//! The run fails when the cost of an event follows the size of the ReplicaSet or that of the namespace.

mod support;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures::{StreamExt, stream};
use http::{Method, Request, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use support::watched::cpu_time;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use windlass::app::{Controllers, Parts};
use windlass::clock::Clock;
use windlass::config::ControllerConfig;
use windlass::metrics::Metrics;
use windlass::model::Pod;
use windlass::runtime::api::Api;
use windlass::runtime::informer::{Informer, InformerOptions};
use windlass::runtime::rate_limiter::RateLimiter;

const SIZES: [usize; 4] = [10, 100, 1000, 5000];
/// The pods of the other ReplicaSets in the large namespace, and those ReplicaSets.
const OTHER_PODS: usize = 10_000;
const OTHER_SETS: usize = 99;

/// One event a millisecond, for a second at a time.
const EVENTS: usize = 1_000;
const SPACING: Duration = Duration::from_millis(1);
/// How long after the last event everything has been done that follows from it.
const QUIET: Duration = Duration::from_secs(3);
/// How often each subject is measured; they take turns. Other work on the machine can double the time that
/// a core takes for the same, so that figures are compared within a round only, and of the ratios of all
/// rounds the median counts.
const ROUNDS: usize = 25;

/// The most that an event may cost in a ReplicaSet of 5000, by what it costs in one of 10. In proportion to the
/// pods it would be 500.
const MOST_BY_SIZE: f64 = 3.0;
/// The most that an event may cost among 10,000 other pods, by what it costs without them.
const MOST_BY_NAMESPACE: f64 = 1.5;

/// A pod as [`support::pod`] makes it, cut where one pod differs from another: what stands before each
/// place, and the name of the place.
struct Template(Vec<(String, String)>);

/// The number of the ReplicaSet that is measured. The others follow it, in the same namespace.
const MEASURED: usize = 0;

impl Template {
    fn new() -> Self {
        let mut pod: Value = serde_json::from_str(&support::pod(0)).unwrap();
        pod["status"]["conditions"]
            .as_array_mut()
            .unwrap()
            .iter_mut()
            .filter(|condition| condition["type"] == "Ready")
            .for_each(|ready| ready["status"] = "<ready>".into());
        let meta = &mut pod["metadata"];
        meta["name"] = "service-<set>-<hash>-<pod>".into();
        meta["uid"] = "00000001-0000-4000-8000-0000000<pod>".into();
        meta["resourceVersion"] = "<version>".into();
        meta["labels"]["app"] = "service-<set>".into();
        meta["labels"]["pod-template-hash"] = "<hash>".into();
        meta["ownerReferences"][0]["name"] = "service-<set>-<hash>".into();
        meta["ownerReferences"][0]["uid"] = "00000002-0000-4000-8000-000<hash>".into();
        let text = pod.to_string() + "<end>";
        let mut pieces = text.split('<');
        let mut before = pieces.next().unwrap().to_owned();
        let cut = |piece: &str| {
            let (place, after) = piece.split_once('>').unwrap();
            (std::mem::replace(&mut before, after.to_owned()), place.to_owned())
        };
        Template(pieces.map(cut).collect())
    }

    fn event(&self, kind: &str, replica_set: usize, pod: usize, version: u64, ready: bool) -> Bytes {
        let mut line = String::with_capacity(16 << 10);
        line.push_str(&format!(r#"{{"type":"{kind}","object":"#));
        for (before, place) in &self.0 {
            line.push_str(before);
            line.push_str(&match place.as_str() {
                "set" => replica_set.to_string(),
                "hash" => format!("{replica_set:09x}"),
                "pod" => format!("{pod:05x}"),
                "version" => version.to_string(),
                "ready" => if ready { "True" } else { "False" }.to_owned(),
                _ => String::new(),
            });
        }
        line.push_str("}\n");
        line.into()
    }
}

/// A complete ReplicaSet of this size that no Deployment owns.
fn replica_set(number: usize, size: usize) -> Value {
    let mut replica_set: Value = serde_json::from_str(&support::replica_set(number)).unwrap();
    replica_set["metadata"].as_object_mut().unwrap().remove("ownerReferences");
    replica_set["spec"]["replicas"] = size.into();
    for count in ["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas"] {
        replica_set["status"][count] = size.into();
    }
    replica_set
}

fn event(kind: &str, object: &Value) -> Bytes {
    (json!({"type": kind, "object": object}).to_string() + "\n").into()
}

/// The kinds of which there are no objects.
const SILENT: [&str; 9] = [
    "/apis/apps/v1/deployments",
    "/api/v1/replicationcontrollers",
    "/apis/apps/v1/daemonsets",
    "/apis/apps/v1/statefulsets",
    "/apis/apps/v1/controllerrevisions",
    "/api/v1/persistentvolumeclaims",
    "/api/v1/nodes",
    "/apis/batch/v1/jobs",
    "/apis/batch/v1/cronjobs",
];

/// All objects are older than this, and every change is newer.
const LISTED: u64 = 1_000_000;

/// Whether the pod of the event number `nth` is ready: each pod in turn, all to not ready, then all to
/// ready again.
fn is_ready(nth: usize, size: usize) -> bool {
    !(nth / size).is_multiple_of(2)
}

/// The output of one watch: first the list, then the fed events.
struct Feed {
    list: Box<dyn Iterator<Item = Bytes> + Send>,
    changes: UnboundedReceiver<Bytes>,
}

impl Feed {
    fn new(list: impl Iterator<Item = Bytes> + Send + 'static) -> (Self, UnboundedSender<Bytes>) {
        let (feeder, changes) = unbounded();
        let end = json!({"metadata": {"resourceVersion": LISTED.to_string(),
                                      "annotations": {"k8s.io/initial-events-end": "true"}}});
        (Feed { list: Box::new(list.chain([event("BOOKMARK", &end)])), changes }, feeder)
    }
}

/// The API server, as far as it is needed here. Any other request, such as the creation of a pod, is
/// noted as unexpected.
struct Server {
    state: Mutex<State>,
    pods: UnboundedSender<Bytes>,
    replica_sets: UnboundedSender<Bytes>,
    /// Keep their watches open.
    _silent: Vec<UnboundedSender<Bytes>>,
}

struct State {
    feeds: BTreeMap<&'static str, Feed>,
    measured: Value,
    version: u64,
    /// The version of the last event of a pod.
    last_event: u64,
    status_writes: usize,
    unexpected: Vec<String>,
}

type Answer = UnsyncBoxBody<Bytes, Infallible>;

fn answer(code: u16, object: &Value) -> Response<Answer> {
    let body = Full::new(Bytes::from(object.to_string())).boxed_unsync();
    Response::builder().status(code).body(body).unwrap()
}

impl Server {
    fn new(template: &Arc<Template>, size: usize, other_pods: usize) -> Arc<Self> {
        let other_replica_sets = if other_pods > 0 { OTHER_SETS } else { 0 };
        let owner_of = move |pod| if pod < size { MEASURED } else { 1 + (pod - size) % OTHER_SETS };
        let template = template.clone();
        let pods = (0..size + other_pods)
            .map(move |pod| template.event("ADDED", owner_of(pod), pod, 1 + pod as u64, true));
        let measured = replica_set(MEASURED, size);
        let of_others = (1..=other_replica_sets).map(move |number| {
            replica_set(number, (size..size + other_pods).filter(|pod| owner_of(*pod) == number).count())
        });
        let replica_sets = std::iter::once(measured.clone())
            .chain(of_others)
            .map(|replica_set| event("ADDED", &replica_set));
        let (pod_feed, pods) = Feed::new(pods);
        let (replica_set_feed, replica_sets) = Feed::new(replica_sets);
        let mut feeds =
            BTreeMap::from([("/api/v1/pods", pod_feed), ("/apis/apps/v1/replicasets", replica_set_feed)]);
        let mut silent = Vec::new();
        for path in SILENT {
            let (feed, feeder) = Feed::new(std::iter::empty());
            feeds.insert(path, feed);
            silent.push(feeder);
        }
        let state = State {
            feeds,
            measured,
            version: LISTED,
            last_event: LISTED,
            status_writes: 0,
            unexpected: Vec::new(),
        };
        Arc::new(Server { state: Mutex::new(state), pods, replica_sets, _silent: silent })
    }

    fn client(self: &Arc<Self>) -> kube::Client {
        let server = self.clone();
        let service = tower::service_fn(move |request| {
            let server = server.clone();
            async move { Ok::<_, Infallible>(server.serve(request).await) }
        });
        kube::Client::new(service, "default")
    }

    async fn serve(&self, request: Request<Body>) -> Response<Answer> {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let body = request.into_body().collect_bytes().await.unwrap();
        let mut state = self.state.lock();
        if method == Method::GET
            && let Some(Feed { list, changes }) = state.feeds.remove(path.as_str())
        {
            let lines = stream::iter(list).chain(changes).map(|line| Ok(Frame::data(line)));
            return Response::new(StreamBody::new(lines).boxed_unsync());
        }
        // A watch that has been silent for half a minute is opened again.
        if method == Method::GET && SILENT.contains(&path.as_str()) {
            return Response::new(StreamBody::new(stream::pending()).boxed_unsync());
        }
        let name = state.measured["metadata"]["name"].as_str().unwrap_or_default();
        if method == Method::PATCH && path.ends_with(&format!("/replicasets/{name}/status")) {
            let patch: Value = serde_json::from_slice(&body).unwrap();
            state.status_writes += 1;
            state.version += 1;
            let version = state.version.to_string();
            json_patch::merge(&mut state.measured["status"], &patch["status"]);
            state.measured["metadata"]["resourceVersion"] = version.into();
            self.replica_sets.unbounded_send(event("MODIFIED", &state.measured)).unwrap();
            return answer(200, &state.measured);
        }
        if method == Method::POST && path.ends_with("/events") {
            return answer(201, &json!({"metadata": {"resourceVersion": state.version.to_string()}}));
        }
        // The daemon looks at its start for the Lease of a living kube-controller-manager.
        if method == Method::GET && path.ends_with("/leases/kube-controller-manager") {
            return answer(404, &json!({"kind": "Status", "code": 404, "reason": "NotFound"}));
        }
        state.unexpected.push(format!("{method} {path}"));
        answer(500, &json!({"kind": "Status", "code": 500, "reason": "InternalError"}))
    }

    /// The events of one round.
    fn turn(&self, template: &Template, size: usize, round: usize) -> Vec<Bytes> {
        let mut state = self.state.lock();
        let numbers = round * EVENTS..(round + 1) * EVENTS;
        let events = numbers.map(|nth| {
            state.version += 1;
            template.event("MODIFIED", MEASURED, nth % size, state.version, is_ready(nth, size))
        });
        let events = events.collect();
        state.last_event = state.version;
        events
    }

    /// Sends the events and returns what each of them cost, in microseconds.
    async fn play(&self, events: Vec<Bytes>) -> f64 {
        let start = cpu_time();
        let mut due = tokio::time::interval(SPACING);
        for event in events {
            due.tick().await;
            self.pods.unbounded_send(event).unwrap();
        }
        tokio::time::sleep(QUIET).await;
        (cpu_time() - start).as_secs_f64() * 1e6 / EVENTS as f64
    }
}

/// Something that is fed with events, in a runtime and a time of its own.
struct Subject {
    size: usize,
    others: usize,
    server: Arc<Server>,
    metrics: Arc<Metrics>,
    runtime: Runtime,
    stop: CancellationToken,
    task: JoinHandle<()>,
    syncs_before: f64,
    /// The cost of an event in each round, in microseconds.
    costs: Vec<f64>,
}

impl Subject {
    fn new(
        template: &Arc<Template>,
        size: usize,
        others: usize,
        start: impl FnOnce(kube::Client, Arc<Metrics>, CancellationToken) -> JoinHandle<()>,
    ) -> Self {
        let server = Server::new(template, size, others);
        let (metrics, stop) = (Metrics::new(), CancellationToken::new());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let runtime = runtime.unwrap();
        let task = {
            let _inside = runtime.enter();
            start(server.client(), metrics.clone(), stop.clone())
        };
        // Virtual time goes on only when there is nothing to do: by then the lists are read.
        runtime.block_on(async { tokio::time::sleep(QUIET).await });
        assert_eq!(server.state.lock().status_writes, 0, "all ReplicaSets were settled");
        let syncs_before = syncs(&metrics);
        Subject { size, others, server, metrics, runtime, stop, task, syncs_before, costs: Vec::new() }
    }

    /// An informer without a handler.
    fn informer(template: &Arc<Template>, size: usize, others: usize) -> Self {
        Self::new(template, size, others, |client, metrics, stop| {
            let api = Api::new(client, "bench", RateLimiter::unlimited(), metrics);
            tokio::spawn(Informer::<Pod>::new(api, InformerOptions::default()).run(stop))
        })
    }

    /// All that the daemon runs.
    fn controllers(template: &Arc<Template>, size: usize, others: usize) -> Self {
        Self::new(template, size, others, |client, metrics, stop| {
            let clock = Clock::virtual_from("2026-01-01T01:00:00Z".parse().unwrap());
            let parts = Parts {
                client: client.into(),
                host: "bench".into(),
                clock,
                seed: 1,
                metrics,
                election: None,
            };
            let controllers = Controllers::new(ControllerConfig::default(), parts);
            tokio::spawn(async move { controllers.run(stop, QUIET).await.unwrap() })
        })
    }

    fn play(&mut self, template: &Template, round: usize) {
        let events = self.server.turn(template, self.size, round);
        self.costs.push(self.runtime.block_on(self.server.play(events)));
    }

    /// How often something happened in a second of virtual time in which there were events.
    fn per_second(&self, count: f64) -> f64 {
        count / (ROUNDS as f64 * EVENTS as f64 * SPACING.as_secs_f64())
    }

    fn syncs(&self) -> f64 {
        self.per_second(syncs(&self.metrics) - self.syncs_before)
    }

    fn status_writes(&self) -> f64 {
        self.per_second(self.server.state.lock().status_writes as f64)
    }

    /// The final status of the ReplicaSet must be right.
    fn check_status(&self) {
        let state = self.server.state.lock();
        let last = ROUNDS * EVENTS - 1;
        let is_ready = |pod: &usize| is_ready(last - (last - pod) % self.size, self.size);
        assert_eq!(state.measured["status"]["readyReplicas"], (0..self.size).filter(is_ready).count());
    }

    fn end(self) {
        let position = metric(&self.metrics, "informer_store_resource_version", "resource=\"pods\"");
        assert_eq!(position, self.server.state.lock().last_event as f64, "all events were read");
        self.stop.cancel();
        self.runtime.block_on(self.task).unwrap();
        let state = self.server.state.lock();
        assert!(state.unexpected.is_empty(), "unexpected: {:?}", state.unexpected);
    }
}

/// The number of ReplicaSet syncs.
fn syncs(metrics: &Metrics) -> f64 {
    metric(metrics, "workqueue_work_duration_seconds_count", "name=\"replicaset\"")
}

/// The value of a metric with this label; nothing when there is none.
fn metric(metrics: &Metrics, name: &str, label: &str) -> f64 {
    let text = metrics.render();
    let line = text.lines().find(|line| line.starts_with(name) && line.contains(label));
    line.and_then(|line| line.rsplit(' ').next()).map_or(0.0, |value| value.parse().unwrap())
}

/// Round by round.
fn ratios(costs: &[f64], by: &[f64]) -> Vec<f64> {
    costs.iter().zip(by).map(|(cost, by)| cost / by).collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[allow(clippy::print_stdout)] // The table is what it is for.
fn main() -> ExitCode {
    let template = Arc::new(Template::new());
    let rows = [0, OTHER_PODS].into_iter().flat_map(|others| SIZES.map(|size| (size, others)));
    let mut subjects: Vec<(Subject, Subject)> = rows
        .map(|(size, others)| {
            let informer = Subject::informer(&template, size, others);
            (informer, Subject::controllers(&template, size, others))
        })
        .collect();
    for round in 0..ROUNDS {
        for (informer, controllers) in &mut subjects {
            informer.play(&template, round);
            controllers.play(&template, round);
        }
    }

    println!(
        "| pods of the ReplicaSet | other pods | µs per event | by 10 pods | by no other pods | decode and store alone \
         | syncs/s | status writes/s |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let mut failures = Vec::new();
    let all: Vec<Vec<f64>> = subjects.iter().map(|(_, controllers)| controllers.costs.clone()).collect();
    for (row, (informer, controllers)) in subjects.into_iter().enumerate() {
        let Subject { size, others, costs, .. } = &controllers;
        let by_size = median(ratios(costs, &all[row / SIZES.len() * SIZES.len()]));
        let by_namespace = median(ratios(costs, &all[row % SIZES.len()]));
        println!(
            "| {size} | {others} | {:.1} | {by_size:.2} | {by_namespace:.2} | {:.1} | {:.0} | {:.1} |",
            median(costs.clone()),
            median(informer.costs.clone()),
            controllers.syncs(),
            controllers.status_writes(),
        );
        if by_size > MOST_BY_SIZE {
            failures.push(format!("{size} pods: {by_size:.2} times what an event costs with 10"));
        }
        if by_namespace > MOST_BY_NAMESPACE {
            failures.push(format!("{size} pods: {by_namespace:.2} times what an event costs alone"));
        }
        controllers.check_status();
        controllers.end();
        informer.end();
    }
    for failure in &failures {
        println!("FAILED {failure}");
    }
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
