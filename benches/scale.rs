//! What a large cluster costs the daemon: memory, the CPU time until it has settled, and that of an event.
//! `cargo bench --bench scale`.
//!
//! Two clusters, served by a server in this process that keeps nothing: 150,000 pods of 3,000 Deployments on 5,000 nodes,
//! and one namespace in which 100 Deployments have 20,000 ReplicaSets of history. All is settled: whatever the daemon
//! wrote would be a fault, and ends the run.

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
use rustix::time::ClockId;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use windlass::app::{Controllers, Parts};
use windlass::clock::Clock;
use windlass::config::ControllerConfig;
use windlass::metrics::Metrics;
use windlass_apiserver::to_protobuf;
use windlass_testkit::usage;

const PODS: &str = "/api/v1/pods";
const REPLICA_SETS: &str = "/apis/apps/v1/replicasets";
const DEPLOYMENTS: &str = "/apis/apps/v1/deployments";

/// A cluster of one shape.
#[derive(Clone, Copy)]
struct Shape {
    name: &'static str,
    deployments: usize,
    /// Pods of each Deployment.
    pods: usize,
    /// ReplicaSets of each Deployment that have no pods any more.
    history: usize,
    namespaces: usize,
    /// What changes in an event.
    changes: &'static str,
    /// The most resident memory that it may cost, in megabytes.
    most: f64,
}

const SHAPES: [Shape; 2] = [
    Shape {
        name: "150,000 pods in 3,000 Deployments",
        deployments: 3_000,
        pods: 50,
        history: 0,
        namespaces: 30,
        changes: PODS,
        most: 90.0,
    },
    Shape {
        name: "20,000 ReplicaSets of history in one namespace",
        deployments: 100,
        pods: 1,
        history: 200,
        namespaces: 1,
        changes: REPLICA_SETS,
        most: 200.0,
    },
];

const NODES: usize = 5_000;

/// How many events are measured.
const EVENTS: usize = 20_000;
const SPACING: Duration = Duration::from_millis(1);

/// After this time without activity everything is done.
const QUIET: Duration = Duration::from_secs(5);

/// All objects are older than this, and every change is newer.
const LISTED: u64 = 1_000_000;

/// Digits that differ between the objects made from one, and how many.
const MARKS: [&str; 7] = ["XDEPLX", "XSPACEX", "XREPSETX", "XPODNAMEX", "XNODEX", "XVERSIONX", "XREVISIONX"];

/// Numbers in the places of [`MARKS`].
type Numbers = [usize; MARKS.len()];

/// A message with the places of numbers in it. Each is overwritten by as many digits, so that lengths stay as they are.
struct Form {
    message: Vec<u8>,
    places: Vec<(usize, usize)>,
}

impl Form {
    fn new(message: Vec<u8>) -> Self {
        let mut places = Vec::new();
        for (which, mark) in MARKS.iter().enumerate() {
            let found = message.windows(mark.len()).enumerate().filter(|(_, at)| *at == mark.as_bytes());
            places.extend(found.map(|(at, _)| (at, which)));
        }
        Form { message, places }
    }

    fn filled(&self, numbers: &Numbers) -> Bytes {
        let mut message = self.message.clone();
        for &(at, which) in &self.places {
            let width = MARKS[which].len();
            let digits = format!("{:0width$}", numbers[which]);
            message[at..at + width].copy_from_slice(digits.as_bytes());
        }
        message.into()
    }
}

/// An event of a watch in JSON.
fn line(kind: &str, object: &Value) -> Vec<u8> {
    (json!({"type": kind, "object": object}).to_string() + "\n").into_bytes()
}

fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let (mut message, mut length) = (vec![number << 3 | 2], bytes.len());
    while length >= 0x80 {
        message.push(length as u8 | 0x80);
        length >>= 7;
    }
    message.push(length as u8);
    message.extend_from_slice(bytes);
    message
}

/// The same in protobuf, behind its length.
fn frame(kind: &str, object: &Value) -> Vec<u8> {
    let event = [field(1, kind.as_bytes()), field(2, &field(1, &to_protobuf(object)))].concat();
    [&u32::try_from(event.len()).unwrap().to_be_bytes()[..], &event].concat()
}

/// The forms of all objects of a cluster.
struct Forms {
    deployment: Form,
    replica_set: Form,
    history: Form,
    pod: Form,
    changed_pod: Form,
    changed_replica_set: Form,
}

fn forms(shape: Shape) -> Forms {
    let name = "service-XDEPLX";
    let [labels, hashed] = [json!({"app": name}), json!({"app": name, "pod-template-hash": "XREPSETX"})];
    let mut replica_set: Value = serde_json::from_str(&support::replica_set(0)).unwrap();
    let max = shape.pods + shape.pods.div_ceil(4);
    replica_set["metadata"]["name"] = format!("{name}-XREPSETX").into();
    replica_set["metadata"]["namespace"] = "team-XSPACEX".into();
    replica_set["metadata"]["uid"] = "00000002-0000-4000-8000-0000XREPSETX".into();
    replica_set["metadata"]["resourceVersion"] = "XVERSIONX".into();
    replica_set["metadata"]["labels"] = hashed.clone();
    replica_set["metadata"]["ownerReferences"][0]["name"] = name.into();
    replica_set["metadata"]["ownerReferences"][0]["uid"] = "00000003-0000-4000-8000-000000XDEPLX".into();
    replica_set["metadata"]["annotations"] = json!({
        "deployment.kubernetes.io/revision": "XREVISIONX",
        "deployment.kubernetes.io/desired-replicas": shape.pods.to_string(),
        "deployment.kubernetes.io/max-replicas": max.to_string(),
    });
    replica_set["spec"]["selector"]["matchLabels"] = hashed.clone();
    replica_set["spec"]["template"]["metadata"]["labels"] = hashed.clone();
    let mut template = replica_set["spec"]["template"].clone();
    template["metadata"]["labels"] = labels.clone();
    let with_pods = |mut replica_set: Value, pods: usize| {
        replica_set["spec"]["replicas"] = pods.into();
        for count in ["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas"] {
            replica_set["status"][count] = pods.into();
        }
        replica_set
    };
    let mut history = with_pods(replica_set.clone(), 0);
    history["spec"]["template"]["spec"]["containers"][0]["image"] =
        "registry.example/shop/app:XREVISIONX".into();
    let condition = |kind: &str, reason: &str, message: &str| {
        json!({"type": kind, "status": "True", "reason": reason, "message": message,
               "lastUpdateTime": "2026-01-01T00:00:09Z", "lastTransitionTime": "2026-01-01T00:00:09Z"})
    };
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {
            "name": name, "namespace": "team-XSPACEX", "uid": "00000003-0000-4000-8000-000000XDEPLX",
            "resourceVersion": "XVERSIONX", "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": labels, "annotations": {"deployment.kubernetes.io/revision": "XREVISIONX"},
        },
        "spec": {"replicas": shape.pods, "selector": {"matchLabels": labels}, "template": template,
                 "revisionHistoryLimit": 1000, "progressDeadlineSeconds": 600,
                 "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}}},
        "status": {"observedGeneration": 1, "replicas": shape.pods, "updatedReplicas": shape.pods,
                   "readyReplicas": shape.pods, "availableReplicas": shape.pods, "terminatingReplicas": 0,
                   "conditions": [
                       condition("Available", "MinimumReplicasAvailable", "Deployment has minimum availability."),
                       condition("Progressing", "NewReplicaSetAvailable",
                                 &format!("ReplicaSet \"{name}-XREPSETX\" has successfully progressed."))]},
    });
    let mut pod: Value = serde_json::from_str(&support::pod(0)).unwrap();
    pod["metadata"]["name"] = format!("{name}-XREPSETX-XPODNAMEX").into();
    pod["metadata"]["namespace"] = "team-XSPACEX".into();
    pod["metadata"]["uid"] = "00000001-0000-4000-8000-000XPODNAMEX".into();
    pod["metadata"]["resourceVersion"] = "XVERSIONX".into();
    pod["metadata"]["labels"] = hashed;
    pod["metadata"]["ownerReferences"][0]["name"] = format!("{name}-XREPSETX").into();
    pod["metadata"]["ownerReferences"][0]["uid"] = "00000002-0000-4000-8000-0000XREPSETX".into();
    pod["spec"]["nodeName"] = "node-XNODEX".into();
    // A restart changes nothing that a status reports.
    let mut changed_pod = pod.clone();
    changed_pod["status"]["containerStatuses"][0]["restartCount"] = 2.into();
    let mut changed_replica_set = history.clone();
    changed_replica_set["metadata"]["annotations"]["example.com/note"] = "changed".into();
    Forms {
        deployment: Form::new(line("ADDED", &deployment)),
        replica_set: Form::new(line("ADDED", &with_pods(replica_set, shape.pods))),
        history: Form::new(line("ADDED", &history)),
        pod: Form::new(frame("ADDED", &pod)),
        changed_pod: Form::new(frame("MODIFIED", &changed_pod)),
        changed_replica_set: Form::new(line("MODIFIED", &changed_replica_set)),
    }
}

/// The numbers of a pod, or of a ReplicaSet without one. The newest ReplicaSet of a Deployment has the highest revision.
fn numbers(shape: Shape, deployment: usize, age: usize, pod: usize, version: u64) -> Numbers {
    let replica_set = deployment * (shape.history + 1) + age;
    // Without leading zeros, which a revision does not have.
    let revision = 100_000_001 + shape.history - age;
    let pod = deployment * shape.pods + pod;
    [deployment, deployment % shape.namespaces, replica_set, pod, pod % NODES, version as usize, revision]
}

/// The output of one watch: first the list, then the fed events.
type Feed = (Box<dyn Iterator<Item = Bytes> + Send>, UnboundedReceiver<Bytes>);

/// The API server, as far as it is needed here.
struct Server {
    feeds: Mutex<BTreeMap<&'static str, Feed>>,
    feeders: BTreeMap<&'static str, UnboundedSender<Bytes>>,
    writes: Mutex<Vec<String>>,
}

fn bookmark(path: &str) -> Bytes {
    let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"resourceVersion": LISTED.to_string(),
                        "annotations": {"k8s.io/initial-events-end": "true"}}});
    if path == PODS { frame("BOOKMARK", &object) } else { line("BOOKMARK", &object) }.into()
}

impl Server {
    fn new(shape: Shape, forms: &Arc<Forms>) -> Arc<Self> {
        let all = 0..shape.deployments;
        let (of_deployments, of_replica_sets, of_pods) = (forms.clone(), forms.clone(), forms.clone());
        let deployments =
            all.clone().map(move |n| of_deployments.deployment.filled(&numbers(shape, n, 0, 0, 1)));
        let replica_sets = all.clone().flat_map(move |n| {
            let forms = of_replica_sets.clone();
            (0..=shape.history).map(move |age| {
                let form = if age == 0 { &forms.replica_set } else { &forms.history };
                form.filled(&numbers(shape, n, age, 0, 2))
            })
        });
        let pods = all.flat_map(move |n| {
            let forms = of_pods.clone();
            (0..shape.pods).map(move |pod| forms.pod.filled(&numbers(shape, n, 0, pod, 3)))
        });
        let lists: [(&'static str, Box<dyn Iterator<Item = Bytes> + Send>); 3] = [
            (DEPLOYMENTS, Box::new(deployments)),
            (REPLICA_SETS, Box::new(replica_sets)),
            (PODS, Box::new(pods)),
        ];
        let (mut feeds, mut feeders) = (BTreeMap::new(), BTreeMap::new());
        for (path, list) in lists {
            let (feeder, changes) = unbounded();
            feeders.insert(path, feeder);
            let list: Box<dyn Iterator<Item = Bytes> + Send> = Box::new(list.chain([bookmark(path)]));
            feeds.insert(path, (list, changes));
        }
        Arc::new(Server { feeds: Mutex::new(feeds), feeders, writes: Mutex::default() })
    }

    fn serve(&self, request: &Request<Body>) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
        let path = request.uri().path();
        if request.method() != Method::GET {
            self.writes.lock().push(format!("{} {path}", request.method()));
            let body = json!({"metadata": {"resourceVersion": "1"}}).to_string();
            return Response::new(Full::new(Bytes::from(body)).boxed_unsync());
        }
        let lists = request.uri().query().is_some_and(|query| query.contains("sendInitialEvents"));
        let media_type = if path == PODS {
            "application/vnd.kubernetes.protobuf;stream=watch"
        } else {
            "application/json"
        };
        let body = match self.feeds.lock().remove(path) {
            Some((list, changes)) => {
                let events = stream::iter(list).chain(changes).map(|event| Ok(Frame::data(event)));
                StreamBody::new(events).boxed_unsync()
            }
            // Of every other kind there is nothing, and a watch that was silent is opened again.
            None => {
                let end = stream::iter(lists.then(|| Ok(Frame::data(bookmark(path)))));
                StreamBody::new(end.chain(stream::pending())).boxed_unsync()
            }
        };
        Response::builder().header("content-type", media_type).body(body).unwrap()
    }
}

/// The CPU that this thread has used. The time on the wall would count other programs' as well.
fn cpu_time() -> Duration {
    rustix::time::clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap()
}

/// The row of one cluster, and whether it is as it should be.
fn measure(shape: Shape) -> (String, Result<(), String>) {
    let forms = Arc::new(forms(shape));
    let server = Server::new(shape, &forms);
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    // The runtime of the client and of the controllers.
    let inside = runtime.enter();
    let served = server.clone();
    let client = kube::Client::new(
        tower::service_fn(move |request| {
            let response = served.serve(&request);
            async move { Ok::<_, Infallible>(response) }
        }),
        "default",
    );
    let before = usage::resident(std::process::id());
    let (metrics, stop) = (Metrics::new(), CancellationToken::new());
    let clock = Clock::virtual_from("2026-01-01T01:00:00Z".parse().unwrap());
    let parts = Parts { client, host: "bench".into(), clock, seed: 1, metrics, election: None };
    let controllers = Controllers::new(ControllerConfig::default(), parts);
    drop(inside);
    let begin = cpu_time();
    // Virtual time goes on only when there is nothing to do.
    let running = runtime.spawn(controllers.run(stop.clone(), QUIET));
    runtime.block_on(tokio::time::sleep(QUIET));
    let settled = cpu_time() - begin;
    let megabytes = (usage::resident(std::process::id()) - before) as f64 / 1e6;
    let begin = cpu_time();
    runtime.block_on(async {
        let mut due = tokio::time::interval(SPACING);
        for nth in 0..EVENTS {
            due.tick().await;
            // Far apart, so that no two are of the same owner at the same time.
            let (deployment, version) = (nth * 7 % shape.deployments, LISTED + 1 + nth as u64);
            let event = match shape.changes {
                PODS => forms.changed_pod.filled(&numbers(shape, deployment, 0, nth % shape.pods, version)),
                _ => forms.changed_replica_set.filled(&numbers(
                    shape,
                    deployment,
                    1 + nth % shape.history,
                    0,
                    version,
                )),
            };
            server.feeders[shape.changes].unbounded_send(event).unwrap();
        }
        tokio::time::sleep(QUIET).await;
    });
    let per_event = (cpu_time() - begin).as_secs_f64() * 1e6 / EVENTS as f64;
    stop.cancel();
    runtime.block_on(running).unwrap().unwrap();
    let row = format!(
        "| {} | {megabytes:.0} MB | {:.2} s | {per_event:.1} µs |",
        shape.name,
        settled.as_secs_f64()
    );
    let writes = server.writes.lock();
    let fault = match writes.first() {
        Some(write) => Err(format!("{}: {} writes, the first: {write}", shape.name, writes.len())),
        None if megabytes > shape.most => Err(format!("{}: more than {} MB", shape.name, shape.most)),
        None => Ok(()),
    };
    (row, fault)
}

#[allow(clippy::print_stdout, clippy::print_stderr)] // The table is what it is for.
fn main() -> ExitCode {
    println!("| Cluster | Memory | CPU time until settled | CPU time of an event |\n|---|---|---|---|");
    let mut is_well = true;
    for shape in SHAPES {
        let (row, fault) = measure(shape);
        println!("{row}");
        if let Err(fault) = fault {
            eprintln!("{fault}");
            is_well = false;
        }
    }
    if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
