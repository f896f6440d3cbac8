//! The cost of the garbage collector's graph: resident memory and CPU time with a million objects, 70 % of them owned.
//! `cargo bench --bench garbage`.
//!
//! A server in this process, which keeps nothing, lists the metadata of the objects in protobuf, managed fields included.
//! A collector that has filled its graph has nothing to do: whatever it wrote would be a fault, and ends the run. So does
//! more memory than [`MOST`].

mod support;

use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use windlass::app::{Controllers, Parts};
use windlass::clock::Clock;
use windlass::config::{ControllerConfig, Enabled};
use windlass::metrics::Metrics;
use windlass_testkit::usage;

use support::watched::{Form, List, PODS, Server, Write, cpu_time, metadata_frame};

/// The most resident memory that the objects may cost, above a daemon that watches the same kinds without any object.
const MOST: f64 = 100e6;

/// How many objects there are of each kind: a million, 700,000 of them with an owner.
const PLENTY: Counts =
    Counts { pods: 640_000, replica_sets: 60_000, deployments: 6_000, configs: 194_000, secrets: 100_000 };
const NOTHING: Counts = Counts { pods: 0, replica_sets: 0, deployments: 0, configs: 0, secrets: 0 };

const NAMESPACES: usize = 1_000;

/// After this time without activity everything is done.
const QUIET: Duration = Duration::from_secs(60);

/// Digits that differ between the objects of a kind: namespace, object, owner, and the owner of the owner.
const MARKS: [&str; 4] = ["SP##", "OBJECT##", "OWNER#####", "GRAND##"];

#[derive(Clone, Copy)]
struct Counts {
    pods: usize,
    replica_sets: usize,
    deployments: usize,
    configs: usize,
    secrets: usize,
}

impl Counts {
    fn all(self) -> usize {
        self.owned() + self.deployments + self.configs + self.secrets
    }

    fn owned(self) -> usize {
        self.pods + self.replica_sets
    }
}

/// The metadata of an object, with what a server adds to them.
fn form(kind: u8, name: &str, owner: Option<(&str, &str, Value)>) -> Form {
    let mut metadata = json!({
        "name": name, "namespace": "team-SP##", "uid": format!("{kind:08x}-0000-4000-8000-0000OBJECT##"),
        "resourceVersion": "OBJECT##", "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {"app.kubernetes.io/name": "service", "app.kubernetes.io/part-of": "shop", "tier": "backend"},
        "annotations": {"example.com/checksum": "c".repeat(64)},
    });
    if let Some((kind, name, uid)) = owner {
        metadata["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": uid,
                                              "controller": true, "blockOwnerDeletion": true}]);
    }
    Form::new(metadata_frame("ADDED", &metadata, &support::managed_fields(4)), &MARKS)
}

/// The objects of a kind, the first of which has the number `first`.
fn list(
    count: usize,
    form: Form,
    numbers: impl Fn(usize) -> [usize; MARKS.len()] + Send + 'static,
) -> Box<dyn Iterator<Item = Bytes> + Send> {
    Box::new((0..count).map(move |n| form.filled(&numbers(n))))
}

fn lists(counts: Counts) -> [List; 5] {
    let alone = |n: usize| [n % NAMESPACES, n, 0, 0];
    let of_replica_set = move |n: usize| {
        let deployment = n % counts.deployments;
        [deployment % NAMESPACES, n, deployment, deployment]
    };
    let of_pod = move |n: usize| {
        let replica_set = n % counts.replica_sets;
        let deployment = replica_set % counts.deployments;
        [deployment % NAMESPACES, n, replica_set, deployment]
    };
    let replica_set = "service-GRAND##-OWNER#####";
    let replica_set_uid = json!("00000002-0000-4000-8000-00OWNER#####");
    let deployment_uid = json!("00000003-0000-4000-8000-00OWNER#####");
    let pods =
        form(1, "service-GRAND##-OWNER#####-OBJECT##", Some(("ReplicaSet", replica_set, replica_set_uid)));
    // The digits of each name are as wide as in the references to it.
    let replica_sets =
        form(2, "service-GRAND##-00OBJECT##", Some(("Deployment", "service-GRAND##", deployment_uid)));
    let deployments = form(3, "service-GRAND##", None);
    [
        (PODS, list(counts.pods, pods, of_pod)),
        ("/apis/apps/v1/replicasets", list(counts.replica_sets, replica_sets, of_replica_set)),
        ("/apis/apps/v1/deployments", list(counts.deployments, deployments, |n| [n % NAMESPACES, n, 0, n])),
        ("/api/v1/configmaps", list(counts.configs, form(4, "config-of-service-OBJECT##", None), alone)),
        ("/api/v1/secrets", list(counts.secrets, form(5, "token-of-service-OBJECT##", None), alone)),
    ]
}

/// Which resources there are, in the documents of a server without aggregated discovery.
fn discovery(path: &str) -> Option<Bytes> {
    let resource = |kind: &str| {
        json!({"name": kind.to_lowercase() + "s", "kind": kind, "singularName": "", "namespaced": true,
               "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"]})
    };
    let resources = |kinds: &[&str]| kinds.iter().map(|kind| resource(kind)).collect::<Vec<_>>();
    let version = json!({"groupVersion": "apps/v1", "version": "v1"});
    let document = match path {
        "/api" => json!({"kind": "APIVersions", "versions": ["v1"]}),
        "/apis" => json!({"kind": "APIGroupList", "groups": [
            {"name": "apps", "versions": [version], "preferredVersion": version}]}),
        "/api/v1" => json!({"kind": "APIResourceList", "groupVersion": "v1",
                            "resources": resources(&["Pod", "ConfigMap", "Secret"])}),
        "/apis/apps/v1" => json!({"kind": "APIResourceList", "groupVersion": "apps/v1",
                                  "resources": resources(&["ReplicaSet", "Deployment"])}),
        _ => return None,
    };
    Some(document.to_string().into())
}

/// The measurements of one collector after it has settled.
struct Figures {
    resident: f64,
    cpu: Duration,
    objects: usize,
    graph: f64,
}

/// The value of a metric without labels.
fn metric(metrics: &Metrics, name: &str) -> f64 {
    let text = metrics.render();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name} in:\n{text}"))
}

/// Runs a collector until it has settled.
///
/// # Errors
/// If it has written, or lacks an object.
fn measure(counts: Counts) -> Result<Figures, String> {
    let server = Server::new(lists(counts), discovery);
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let inside = runtime.enter();
    let client = server.client();
    let (metrics, stop) = (Metrics::new(), CancellationToken::new());
    let clock = Clock::virtual_from("2026-01-01T01:00:00Z".parse().unwrap());
    let parts = Parts {
        client: client.into(),
        host: "bench".into(),
        clock,
        seed: 1,
        metrics: metrics.clone(),
        election: None,
    };
    let enabled = Enabled::none().with("garbage-collector-controller");
    let controllers = Controllers::new(ControllerConfig { enabled, ..ControllerConfig::default() }, parts);
    drop(inside);
    let begin = cpu_time();
    // Virtual time goes on only when there is nothing to do.
    let running = runtime.spawn(controllers.run(stop.clone(), QUIET));
    runtime.block_on(async { tokio::time::sleep(QUIET).await });
    let cpu = cpu_time() - begin;
    let resident = usage::resident(std::process::id()) as f64;
    let objects = metric(&metrics, "windlass_garbage_objects") as usize;
    let graph = metric(&metrics, "windlass_garbage_graph_bytes");
    stop.cancel();
    runtime.block_on(running).unwrap().unwrap();
    if let Some(Write { method, path, .. }) = server.take_writes().first() {
        return Err(format!("a settled collector has written: {method} {path}"));
    }
    match objects == counts.all() {
        true => Ok(Figures { resident, cpu, objects, graph }),
        false => Err(format!("the graph has {objects} of {} objects", counts.all())),
    }
}

#[allow(clippy::print_stdout, clippy::print_stderr)] // The table is what it is for.
fn main() -> ExitCode {
    let (empty, full) = match measure(NOTHING).and_then(|empty| Ok((empty, measure(PLENTY)?))) {
        Ok(both) => both,
        Err(fault) => {
            eprintln!("{fault}");
            return ExitCode::FAILURE;
        }
    };
    let cost = full.resident - empty.resident;
    let per_object = |bytes: f64| bytes / full.objects as f64;
    println!(
        "| Objects | With an owner | Empty | Above that | Bytes per object | Of them in the graph | CPU time of the lists |"
    );
    println!("|---|---|---|---|---|---|---|");
    println!(
        "| {} | {} | {:.1} MB | {:.1} MB | {:.1} | {:.1} | {:.2} s |",
        full.objects,
        PLENTY.owned(),
        empty.resident / 1e6,
        cost / 1e6,
        per_object(cost),
        per_object(full.graph),
        full.cpu.as_secs_f64(),
    );
    if cost > MOST {
        eprintln!("more than {:.0} MB", MOST / 1e6);
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
