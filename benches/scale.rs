//! The cost of a large cluster for the daemon: memory, the CPU time until it has settled, and that of an event.
//! `cargo bench --bench scale`.
//!
//! Two clusters, served by a server in this process that keeps nothing: 150,000 pods of 3,000 Deployments on 5,000 nodes,
//! and one namespace in which 100 Deployments have 20,000 ReplicaSets of history. All is settled: whatever the daemon
//! wrote would be a fault, and ends the run.

mod support;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use windlass::app::{Controllers, Parts};
use windlass::clock::Clock;
use windlass::config::ControllerConfig;
use windlass::metrics::Metrics;
use windlass_testkit::usage;

use support::watched::{Form, LISTED, List, PODS, Server, Write, cpu_time, frame, line};

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
    /// The change that an event brings.
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

/// Digits that differ between the objects made from one, and how many.
const MARKS: [&str; 7] = ["XDEPLX", "XSPACEX", "XREPSETX", "XPODNAMEX", "XNODEX", "XVERSIONX", "XREVISIONX"];

/// Numbers in the places of [`MARKS`].
type Numbers = [usize; MARKS.len()];

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
        deployment: Form::new(line("ADDED", &deployment), &MARKS),
        replica_set: Form::new(line("ADDED", &with_pods(replica_set, shape.pods)), &MARKS),
        history: Form::new(line("ADDED", &history), &MARKS),
        pod: Form::new(frame("ADDED", &pod), &MARKS),
        changed_pod: Form::new(frame("MODIFIED", &changed_pod), &MARKS),
        changed_replica_set: Form::new(line("MODIFIED", &changed_replica_set), &MARKS),
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

/// The lists of a cluster's kinds.
fn lists(shape: Shape, forms: &Arc<Forms>) -> [List; 3] {
    let all = 0..shape.deployments;
    let (of_deployments, of_replica_sets, of_pods) = (forms.clone(), forms.clone(), forms.clone());
    let deployments = all.clone().map(move |n| of_deployments.deployment.filled(&numbers(shape, n, 0, 0, 1)));
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
    [(DEPLOYMENTS, Box::new(deployments)), (REPLICA_SETS, Box::new(replica_sets)), (PODS, Box::new(pods))]
}

/// The row of one cluster, and whether it is as it should be.
fn measure(shape: Shape) -> (String, Result<(), String>) {
    let forms = Arc::new(forms(shape));
    let server = Server::new(lists(shape, &forms), |_| None);
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    // The runtime of the client and of the controllers.
    let inside = runtime.enter();
    let client = server.client();
    let before = usage::resident(std::process::id());
    let (metrics, stop) = (Metrics::new(), CancellationToken::new());
    let clock = Clock::virtual_from("2026-01-01T01:00:00Z".parse().unwrap());
    let parts =
        Parts { client: client.into(), host: "bench".into(), clock, seed: 1, metrics, election: None };
    let controllers = Controllers::new(ControllerConfig::default(), parts);
    drop(inside);
    let begin = cpu_time();
    // Virtual time goes on only when there is nothing to do.
    let running = runtime.spawn(controllers.run(stop.clone(), QUIET));
    runtime.block_on(async { tokio::time::sleep(QUIET).await });
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
            server.send(shape.changes, event);
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
    let writes = server.take_writes();
    let fault = match writes.first() {
        Some(Write { method, path, .. }) => {
            Err(format!("{}: {} writes, the first: {method} {path}", shape.name, writes.len()))
        }
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
