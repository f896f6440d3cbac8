//! What one pod event costs the daemon, for sets of 10 to 5000 pods, alone in their namespace and among
//! 10,000 pods of other sets. `cargo bench --bench sync`.
//!
//! The real controllers run over a transport that answers as an API server does and costs next to
//! nothing. Pods turn ready and not ready one after the other, a thousand a second of virtual time, and
//! all that follows is paid for: the event is decoded, stored and told, the set is synced and its status
//! written. One thread does it all, so that the time it takes is CPU. Beside it stands what the same
//! events cost an informer alone: the difference is what the syncs add.
//!
//! The run fails when the cost of an event follows the size of the set or that of the namespace.

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
use tokio_util::sync::CancellationToken;
use windlass::app::{Controllers, Parts};
use windlass::clock::Clock;
use windlass::config::ControllerConfig;
use windlass::metrics::Metrics;
use windlass::model::Pod;
use windlass::runtime::api::Api;
use windlass::runtime::informer::{Informer, InformerOptions};
use windlass::runtime::limit::Limiter;

const SIZES: [usize; 4] = [10, 100, 1000, 5000];
/// The pods of the other sets in the large namespace, and their sets.
const OTHER_PODS: usize = 10_000;
const OTHER_SETS: usize = 99;

/// One event a millisecond, for five seconds.
const EVENTS: usize = 5_000;
const SPACING: Duration = Duration::from_millis(1);
/// How long after the last event everything has been done that follows from it.
const QUIET: Duration = Duration::from_secs(3);
/// Each figure is the least of so many measurements: other work on the machine only adds.
const ROUNDS: usize = 4;

/// The most that an event may cost in a set of 5000, by what it costs in one of 10. In proportion to the
/// pods it would be 500.
const MOST_BY_SIZE: f64 = 5.0;
/// The most that an event may cost among 10,000 other pods, by what it costs without them.
const MOST_BY_NAMESPACE: f64 = 1.5;

/// A pod as [`support::pod`] makes it, cut where one pod differs from another: what stands before each
/// place, and the name of the place.
struct Template(Vec<(String, String)>);

/// The number of the set that is measured. The others follow it, in the same namespace.
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

    fn event(&self, kind: &str, set: usize, pod: usize, version: u64, ready: bool) -> Bytes {
        let mut line = String::with_capacity(16 << 10);
        line.push_str(&format!(r#"{{"type":"{kind}","object":"#));
        for (before, place) in &self.0 {
            line.push_str(before);
            line.push_str(&match place.as_str() {
                "set" => set.to_string(),
                "hash" => format!("{set:09x}"),
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

/// A complete set of this size that no Deployment owns.
fn replica_set(number: usize, size: usize) -> Value {
    let mut set: Value = serde_json::from_str(&support::replica_set(number)).unwrap();
    set["metadata"].as_object_mut().unwrap().remove("ownerReferences");
    set["spec"]["replicas"] = size.into();
    for count in ["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas"] {
        set["status"][count] = size.into();
    }
    set
}

fn event(kind: &str, object: &Value) -> Bytes {
    (json!({"type": kind, "object": object}).to_string() + "\n").into()
}

/// All objects are older than this, and every change is newer.
const LISTED: u64 = 1_000_000;

/// What one watch sends: first the list, then what is fed.
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

/// The API server, as far as it is needed here. Whatever else is asked, such as the creation of a pod, is
/// noted as unexpected.
struct Server {
    state: Mutex<State>,
    pods: UnboundedSender<Bytes>,
    sets: UnboundedSender<Bytes>,
    /// Keep their watches open.
    _silent: Vec<UnboundedSender<Bytes>>,
}

struct State {
    feeds: BTreeMap<&'static str, Feed>,
    measured: Value,
    version: u64,
    status_writes: usize,
    unexpected: Vec<String>,
}

type Answer = UnsyncBoxBody<Bytes, Infallible>;

fn answer(code: u16, object: &Value) -> Response<Answer> {
    let body = Full::new(Bytes::from(object.to_string())).boxed_unsync();
    Response::builder().status(code).body(body).unwrap()
}

impl Server {
    fn new(template: &Arc<Template>, size: usize, others: bool) -> Arc<Self> {
        let other_pods = if others { OTHER_PODS } else { 0 };
        let other_sets = if others { OTHER_SETS } else { 0 };
        let owner_of = move |pod| if pod < size { MEASURED } else { 1 + (pod - size) % OTHER_SETS };
        let template = template.clone();
        let pods = (0..size + other_pods)
            .map(move |pod| template.event("ADDED", owner_of(pod), pod, 1 + pod as u64, true));
        let measured = replica_set(MEASURED, size);
        let of_others = (1..=other_sets).map(move |number| {
            replica_set(number, (size..size + other_pods).filter(|pod| owner_of(*pod) == number).count())
        });
        let sets = std::iter::once(measured.clone()).chain(of_others).map(|set| event("ADDED", &set));
        let (pod_feed, pods) = Feed::new(pods);
        let (set_feed, sets) = Feed::new(sets);
        let mut feeds = BTreeMap::from([("/api/v1/pods", pod_feed), ("/apis/apps/v1/replicasets", set_feed)]);
        let mut silent = Vec::new();
        for path in ["/apis/apps/v1/deployments", "/api/v1/replicationcontrollers"] {
            let (feed, feeder) = Feed::new(std::iter::empty());
            feeds.insert(path, feed);
            silent.push(feeder);
        }
        let state = State { feeds, measured, version: LISTED, status_writes: 0, unexpected: Vec::new() };
        Arc::new(Server { state: Mutex::new(state), pods, sets, _silent: silent })
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
        let name = state.measured["metadata"]["name"].as_str().unwrap_or_default();
        if method == Method::PATCH && path.ends_with(&format!("/replicasets/{name}/status")) {
            let patch: Value = serde_json::from_slice(&body).unwrap();
            state.status_writes += 1;
            state.version += 1;
            let version = state.version.to_string();
            json_patch::merge(&mut state.measured["status"], &patch["status"]);
            state.measured["metadata"]["resourceVersion"] = version.into();
            self.sets.unbounded_send(event("MODIFIED", &state.measured)).unwrap();
            return answer(200, &state.measured);
        }
        if method == Method::POST && path.ends_with("/events") {
            return answer(201, &json!({"metadata": {"resourceVersion": state.version.to_string()}}));
        }
        state.unexpected.push(format!("{method} {path}"));
        answer(500, &json!({"kind": "Status", "code": 500, "reason": "InternalError"}))
    }

    /// The next `EVENTS` events: each pod in turn, all to not ready, then all to ready again.
    fn turn(&self, template: &Template, size: usize, round: usize) -> Vec<Bytes> {
        let mut state = self.state.lock();
        (round * EVENTS..(round + 1) * EVENTS)
            .map(|nth| {
                state.version += 1;
                template.event(
                    "MODIFIED",
                    MEASURED,
                    nth % size,
                    state.version,
                    !(nth / size).is_multiple_of(2),
                )
            })
            .collect()
    }

    /// Sends the events and returns what each of them cost, in microseconds.
    #[allow(clippy::disallowed_methods)] // Virtual time costs nothing; here the machine's time is wanted.
    async fn play(&self, events: Vec<Bytes>) -> f64 {
        let start = std::time::Instant::now();
        let mut due = tokio::time::interval(SPACING);
        for event in events {
            due.tick().await;
            self.pods.unbounded_send(event).unwrap();
        }
        tokio::time::sleep(QUIET).await;
        start.elapsed().as_secs_f64() * 1e6 / EVENTS as f64
    }

    /// The least cost of an event, over all rounds.
    async fn measure(&self, template: &Template, size: usize) -> f64 {
        let mut least = f64::INFINITY;
        for round in 0..ROUNDS {
            least = self.play(self.turn(template, size, round)).await.min(least);
        }
        least
    }
}

/// What the events cost an informer that nobody listens to.
async fn decode_and_store(template: &Arc<Template>, size: usize, others: bool) -> f64 {
    let server = Server::new(template, size, others);
    let api = Api::new(server.client(), "bench", Limiter::unlimited(), Metrics::new());
    let informer = Informer::<Pod>::new(api, InformerOptions::default());
    let (store, ready, stop) = (informer.store(), informer.ready(), CancellationToken::new());
    let task = tokio::spawn(informer.run(stop.clone()));
    ready.wait().await;
    let cost = server.measure(template, size).await;
    assert_eq!(store.position(), server.state.lock().version, "all events were read");
    stop.cancel();
    task.await.unwrap();
    cost
}

struct Cost {
    /// Microseconds of CPU per event.
    event: f64,
    /// Syncs per second of virtual time.
    syncs: f64,
    /// Status writes per second of virtual time.
    status_writes: f64,
}

/// What the events cost the daemon.
async fn with_controllers(template: &Arc<Template>, size: usize, others: bool) -> Cost {
    let server = Server::new(template, size, others);
    let metrics = Metrics::new();
    let parts = Parts {
        client: server.client(),
        host: "bench".into(),
        clock: Clock::virtual_from("2026-01-01T01:00:00Z".parse().unwrap()),
        seed: 1,
        metrics: metrics.clone(),
        election: None,
    };
    let controllers = Controllers::new(ControllerConfig::default(), parts);
    let (caches, stop) = (controllers.caches(), CancellationToken::new());
    let task = tokio::spawn(controllers.run(stop.clone(), QUIET));
    for (_, ready) in caches {
        ready.wait().await;
    }
    tokio::time::sleep(QUIET).await;
    assert_eq!(server.state.lock().status_writes, 0, "all sets were settled");
    let before = syncs(&metrics);
    let event = server.measure(template, size).await;
    let seconds = ROUNDS as f64 * EVENTS as f64 * SPACING.as_secs_f64();
    let syncs = (syncs(&metrics) - before) / seconds;
    stop.cancel();
    task.await.unwrap().unwrap();
    let state = server.state.lock();
    let last = ROUNDS * EVENTS - 1;
    let ready = (0..size).filter(|pod| {
        // The last event of each pod says whether it is ready.
        let nth = last - (last % size + size - pod) % size;
        !(nth / size).is_multiple_of(2)
    });
    assert_eq!(state.measured["status"]["readyReplicas"], ready.count(), "the status is right in the end");
    assert!(state.unexpected.is_empty(), "unexpected: {:?}", state.unexpected);
    Cost { event, syncs, status_writes: state.status_writes as f64 / seconds }
}

/// How many syncs of sets there have been.
fn syncs(metrics: &Metrics) -> f64 {
    let count = "workqueue_work_duration_seconds_count{name=\"replicaset\"} ";
    let text = metrics.render();
    text.lines().find_map(|line| line.strip_prefix(count)).unwrap().parse().unwrap()
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.unwrap().block_on(future)
}

#[allow(clippy::print_stdout)] // The table is what it is for.
fn main() -> ExitCode {
    let template = Arc::new(Template::new());
    println!(
        "| pods of the set | other pods | µs per event | by 10 pods | decode and store alone | syncs/s | status writes/s |"
    );
    println!("|---|---|---|---|---|---|---|");
    let mut failures = Vec::new();
    let mut alone = Vec::new();
    for others in [false, true] {
        let mut smallest = None;
        for (nth, size) in SIZES.into_iter().enumerate() {
            let store = run(decode_and_store(&template, size, others));
            let Cost { event, syncs, status_writes } = run(with_controllers(&template, size, others));
            let ratio = event / *smallest.get_or_insert(event);
            let among = if others { OTHER_PODS } else { 0 };
            println!(
                "| {size} | {among} | {event:.1} | {ratio:.2} | {store:.1} | {syncs:.0} | {status_writes:.1} |"
            );
            if ratio > MOST_BY_SIZE {
                failures.push(format!("{size} pods: {ratio:.2} times what an event costs with 10"));
            }
            match alone.get(nth).map(|alone| event / alone) {
                None => alone.push(event),
                Some(ratio) if ratio > MOST_BY_NAMESPACE => {
                    failures.push(format!("{size} pods: {ratio:.2} times what an event costs alone"));
                }
                Some(_) => {}
            }
        }
    }
    for failure in &failures {
        println!("FAILED {failure}");
    }
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
