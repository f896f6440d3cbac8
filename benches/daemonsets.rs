//! The cost of DaemonSets on many nodes for the daemon: memory, and the CPU time of a heartbeat, of a changed label and
//! of a new node. `cargo bench --bench daemonsets`.
//!
//! 50 DaemonSets have a pod on each node, served by a server in this process that keeps nothing. All is settled: only a new
//! node may lead to writes, its pods. The run fails above 200 MB, at a heartbeat of more than 20 µs, at a new node that waits
//! more than 100 ms, and if a label costs in a large cluster three times what it costs in one of a tenth of the size.

mod support;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use windlass::app::{Controllers, Parts};
use windlass::clock::Clock;
use windlass::config::ControllerConfig;
use windlass::metrics::Metrics;
use windlass_testkit::usage;

use support::watched::{Form, LISTED, List, PODS, Server, Write, cpu_time, frame, line};

const NODES: &str = "/api/v1/nodes";
const DAEMON_SETS: &str = "/apis/apps/v1/daemonsets";
const REVISIONS: &str = "/apis/apps/v1/controllerrevisions";

const COUNT: usize = 50;
const SMALL: usize = 500;
const LARGE: usize = 5_000;

const MARKS: [&str; 4] = ["XDAEMONX", "XNODEX", "XVERSIONX", "XPODNAMEX"];

/// How many events of each sort are measured.
const EVENTS: usize = 20_000;
const NEW_NODES: usize = 100;
const SPACING: Duration = Duration::from_millis(1);

/// After this time without activity everything is done.
const QUIET: Duration = Duration::from_secs(5);

const MOST_MEGABYTES: f64 = 200.0;
const MOST_OF_A_HEARTBEAT: f64 = 20.0;
const MOST_WAITING: Duration = Duration::from_millis(100);
/// A label of one node in a large cluster, relative to one in a small.
const MOST_GROWTH: f64 = 3.0;

struct Forms {
    node: Form,
    heartbeat: Form,
    labelled: Form,
    daemon_set: Form,
    /// The same outside of a watch.
    object: Form,
    revision: Form,
    pod: Form,
}

/// A node as a kubelet keeps it: conditions with the times of its heartbeat, images, addresses, capacity.
fn node(heartbeat: &str, label: &str) -> Value {
    let condition = |kind: &str, status: &str| {
        json!({"type": kind, "status": status, "reason": "KubeletReports", "message": "kubelet reports its state",
               "lastHeartbeatTime": heartbeat, "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    let images: Vec<Value> = (0..30)
        .map(|n| {
            json!({"names": [format!("registry.example/shop/service-{n}@sha256:{n:064x}"),
                             format!("registry.example/shop/service-{n}:1.27.3")],
                   "sizeBytes": 123_456_789})
        })
        .collect();
    let resources =
        json!({"cpu": "16", "memory": "65842180Ki", "pods": "110", "ephemeral-storage": "203056560Ki"});
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": "node-XNODEX", "uid": "00000004-0000-4000-8000-000000XNODEX", "resourceVersion": "XVERSIONX",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"kubernetes.io/hostname": "node-XNODEX", "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
                       "node.kubernetes.io/instance-type": "m5.4xlarge", "topology.kubernetes.io/zone": "eu-1a",
                       "example.com/note": label},
        },
        "spec": {"podCIDR": "10.1.0.0/24", "providerID": "example:///eu-1a/i-XNODEX"},
        "status": {
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": "node-XNODEX"}],
            "capacity": resources, "allocatable": resources, "images": images,
            "conditions": [condition("MemoryPressure", "False"), condition("DiskPressure", "False"),
                           condition("PIDPressure", "False"), condition("Ready", "True")],
            "nodeInfo": {"kubeletVersion": "v1.36.0", "osImage": "Debian", "architecture": "amd64"},
        },
    })
}

fn forms(nodes: usize) -> Forms {
    let (name, hash) = ("agent-XDAEMONX", "5d4c8b7f6d");
    let labels = json!({"app": name});
    let pod_object: Value = serde_json::from_str(&support::pod(0)).unwrap();
    let mut template = json!({"metadata": {"labels": labels}, "spec": pod_object["spec"]});
    template["spec"].as_object_mut().unwrap().remove("nodeName");
    let mut data = json!({"spec": {"template": template}});
    data["spec"]["template"]["$patch"] = "replace".into();
    let mut revision_labels = labels.clone();
    revision_labels["controller-revision-hash"] = hash.into();
    let owner = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": name,
                        "uid": "00000005-0000-4000-8000-0000XDAEMONX", "controller": true, "blockOwnerDeletion": true}]);
    let revision = json!({
        "apiVersion": "apps/v1", "kind": "ControllerRevision",
        "metadata": {"name": format!("{name}-{hash}"), "namespace": "kube-system", "labels": revision_labels,
                     "uid": "00000006-0000-4000-8000-0000XDAEMONX", "resourceVersion": "XVERSIONX",
                     "creationTimestamp": "2026-01-01T00:00:00Z", "ownerReferences": owner,
                     "annotations": {"deprecated.daemonset.template.generation": "1"}},
        "data": data, "revision": 1,
    });
    let daemon_set = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": "kube-system", "uid": "00000005-0000-4000-8000-0000XDAEMONX",
                     "resourceVersion": "XVERSIONX", "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z",
                     "annotations": {"deprecated.daemonset.template.generation": "1"}},
        "spec": {"selector": {"matchLabels": labels}, "template": template, "revisionHistoryLimit": 10,
                 "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}},
        "status": {"observedGeneration": 1, "desiredNumberScheduled": nodes, "currentNumberScheduled": nodes,
                   "updatedNumberScheduled": nodes, "numberReady": nodes, "numberAvailable": nodes,
                   "numberMisscheduled": 0},
    });
    let mut pod = pod_object;
    let mut pod_labels = revision_labels.clone();
    pod_labels["pod-template-generation"] = "1".into();
    pod["metadata"]["name"] = format!("{name}-XPODNAMEX").into();
    pod["metadata"]["generateName"] = format!("{name}-").into();
    pod["metadata"]["namespace"] = "kube-system".into();
    pod["metadata"]["uid"] = "00000001-0000-4000-8000-000XPODNAMEX".into();
    pod["metadata"]["resourceVersion"] = "XVERSIONX".into();
    pod["metadata"]["labels"] = pod_labels;
    pod["metadata"]["ownerReferences"] = owner;
    pod["spec"]["nodeName"] = "node-XNODEX".into();
    let [json, as_protobuf] = [
        |kind: &str, object: &Value| Form::new(line(kind, object), &MARKS),
        |kind: &str, object: &Value| Form::new(frame(kind, object), &MARKS),
    ];
    let (seen, later) = ("2026-01-01T00:59:55Z", "2026-01-01T01:00:05Z");
    Forms {
        node: json("ADDED", &node(seen, "a")),
        heartbeat: json("MODIFIED", &node(later, "a")),
        labelled: json("MODIFIED", &node(later, "b")),
        daemon_set: json("ADDED", &daemon_set),
        object: Form::new(daemon_set.to_string().into_bytes(), &MARKS),
        revision: json("ADDED", &revision),
        pod: as_protobuf("ADDED", &pod),
    }
}

fn lists(nodes: usize, forms: &Arc<Forms>) -> [List; 4] {
    let [of_nodes, of_sets, of_revisions, of_pods] = std::array::from_fn(|_| forms.clone());
    let all_pods = (0..COUNT).flat_map(move |set| (0..nodes).map(move |node| (set, node)));
    [
        (NODES, Box::new((0..nodes).map(move |node| of_nodes.node.filled(&[0, node, 1, 0])))),
        (DAEMON_SETS, Box::new((0..COUNT).map(move |set| of_sets.daemon_set.filled(&[set, 0, 2, 0])))),
        (REVISIONS, Box::new((0..COUNT).map(move |set| of_revisions.revision.filled(&[set, 0, 3, 0])))),
        (
            PODS,
            Box::new(
                all_pods.map(move |(set, node)| of_pods.pod.filled(&[set, node, 4, set * nodes + node])),
            ),
        ),
    ]
}

/// The figures of one cluster. Times are CPU time: the wait of a new node is that until the request for its last pod, which
/// would be the time on the wall with one thread.
struct Figures {
    megabytes: f64,
    settled: Duration,
    heartbeat: f64,
    label: f64,
    new_node: f64,
    waited: Duration,
}

/// A daemon in a cluster that has settled.
struct Cluster {
    server: Arc<Server>,
    runtime: tokio::runtime::Runtime,
    version: u64,
}

impl Cluster {
    /// The CPU time of one event, in microseconds. `event` makes the nth of a version.
    fn events(&mut self, count: usize, event: impl Fn(usize, usize) -> bytes::Bytes) -> f64 {
        let (begin, first) = (cpu_time(), self.version);
        self.version += count as u64;
        self.runtime.block_on(async {
            let mut due = tokio::time::interval(SPACING);
            for nth in 0..count {
                due.tick().await;
                self.server.send(NODES, event(nth, first as usize + nth));
            }
            tokio::time::sleep(QUIET).await;
        });
        (cpu_time() - begin).as_secs_f64() * 1e6 / count as f64
    }

    /// Lets virtual time pass.
    fn pass(&self, time: Duration) {
        self.runtime.block_on(async { tokio::time::sleep(time).await });
    }

    fn no_writes(&self, what: &str) -> Result<(), String> {
        match self.server.take_writes().first() {
            Some(Write { method, path, body, .. }) => Err(format!("{what}: {method} {path} {body}")),
            None => Ok(()),
        }
    }
}

fn measure(nodes: usize) -> Result<Figures, String> {
    let forms = Arc::new(forms(nodes));
    let of_objects = forms.clone();
    // The answers to reads past the cache, which precede the re-creation of pods.
    let object = move |path: &str| {
        let (_, number) = path.split_once("/daemonsets/agent-")?;
        Some(of_objects.object.filled(&[number.parse().ok()?, 0, 2, 0]))
    };
    let server = Server::new(lists(nodes, &forms), object);
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    // The runtime of the client and of the controllers.
    let inside = runtime.enter();
    let before = usage::resident(std::process::id());
    let (metrics, stop) = (Metrics::new(), CancellationToken::new());
    let clock = Clock::virtual_from("2026-01-01T01:00:00Z".parse().unwrap());
    let parts = Parts {
        client: server.client().into(),
        host: "bench".into(),
        clock,
        seed: 1,
        metrics,
        election: None,
    };
    // A client-side limit would decide how long a new node waits.
    let config = ControllerConfig { qps: -1.0, ..ControllerConfig::default() };
    let controllers = Controllers::new(config, parts);
    drop(inside);
    let begin = cpu_time();
    // Virtual time goes on only when there is nothing to do.
    let running = runtime.spawn(controllers.run(stop.clone(), QUIET));
    runtime.block_on(async { tokio::time::sleep(QUIET).await });
    let settled = cpu_time() - begin;
    let megabytes = (usage::resident(std::process::id()) - before) as f64 / 1e6;
    let mut cluster = Cluster { server, runtime, version: LISTED + 1 };
    cluster.no_writes("after the list")?;
    let heartbeat =
        cluster.events(EVENTS, |nth, version| forms.heartbeat.filled(&[0, nth % nodes, version, 0]));
    cluster.no_writes("a heartbeat")?;
    // In turn with and without the label, so that each changes it.
    let label = cluster.events(EVENTS, |nth, version| {
        let form = if (nth / nodes).is_multiple_of(2) { &forms.labelled } else { &forms.heartbeat };
        form.filled(&[0, nth % nodes, version, 0])
    });
    cluster.no_writes("a label")?;
    let (mut waited, mut spent) = (Duration::ZERO, Duration::ZERO);
    for nth in 0..NEW_NODES {
        let (started, version) = (cpu_time(), cluster.version as usize);
        cluster.version += 1;
        cluster.server.send(NODES, forms.node.filled(&[0, nodes + nth, version, 0]));
        cluster.pass(SPACING);
        spent += cpu_time() - started;
        let writes = cluster.server.take_writes();
        let is_pod = |write: &&Write| write.method == Method::POST && write.path.ends_with("/pods");
        let pods: Vec<Duration> = writes.iter().filter(is_pod).map(|write| write.at).collect();
        if pods.len() != COUNT {
            return Err(format!("a new node got {} pods", pods.len()));
        }
        waited = waited.max(pods.into_iter().max().unwrap_or_default() - started);
        cluster.pass(QUIET);
        cluster.server.take_writes();
    }
    let new_node = spent.as_secs_f64() * 1e6 / NEW_NODES as f64;
    stop.cancel();
    cluster.runtime.block_on(running).unwrap().unwrap();
    Ok(Figures { megabytes, settled, heartbeat, label, new_node, waited })
}

#[allow(clippy::print_stdout, clippy::print_stderr)] // The table is what it is for.
fn main() -> ExitCode {
    println!(
        "| Nodes | Memory | CPU time until settled | Heartbeat | Label | New node, its last of {COUNT} pods | All that follows |\n\
         |---|---|---|---|---|---|---|"
    );
    let mut faults = Vec::new();
    let mut labels = Vec::new();
    for nodes in [SMALL, LARGE] {
        match measure(nodes) {
            Ok(Figures { megabytes, settled, heartbeat, label, new_node, waited }) => {
                println!(
                    "| {nodes} | {megabytes:.0} MB | {:.2} s | {heartbeat:.1} µs | {label:.1} µs | {:.1} ms | {:.1} ms |",
                    settled.as_secs_f64(),
                    waited.as_secs_f64() * 1e3,
                    new_node / 1e3
                );
                labels.push(label);
                let too_much = [
                    (megabytes > MOST_MEGABYTES, "memory"),
                    (heartbeat > MOST_OF_A_HEARTBEAT, "CPU time of a heartbeat"),
                    (waited > MOST_WAITING, "wait of a new node"),
                ];
                let named = too_much.into_iter().filter(|(is_too_much, _)| *is_too_much);
                faults.extend(named.map(|(_, what)| format!("{nodes} nodes: too much {what}")));
            }
            Err(fault) => faults.push(format!("{nodes} nodes: {fault}")),
        }
    }
    if let [small, large] = labels[..]
        && large > small * MOST_GROWTH
    {
        faults.push(format!("a label costs {:.1} times as much among {LARGE} nodes", large / small));
    }
    faults.iter().for_each(|fault| eprintln!("{fault}"));
    if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
