//! The pod simulator: plays the scheduler and the kubelets of a cluster that has none.
//!
//! It creates nodes if there are none, takes the not-ready taint from new nodes, binds pods to them, reports
//! them running and ready after a delay, and takes them away when they are deleted. It needs nothing but a
//! [`kube::Client`], so it works beside the sandbox's own API server and beside somebody else's, such as
//! envtest's. **Not beside real kubelets:** it acts on every pod, on whichever node.
//!
//! What it decides is in [`lifecycle`] and [`status`](mod@status), both pure; this file only carries it out.

mod calls;
pub mod lifecycle;
pub mod nodes;
pub mod record;
pub mod status;

use std::{collections::BTreeSet, time::Duration};

use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams},
    core::Request,
};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::{
    calls::{Call, Calls, pods_path},
    lifecycle::{Delays, Lifecycle, Outcome, Step},
    record::Pod,
    status::{Place, Stage},
};
use super::{
    mirror::{Change, follow, for_a_day},
    resources::{CallError, Now, backoff, post, rfc3339, send},
};

/// How many requests may be under way at once.
const CONCURRENT_STEPS: usize = 32;

/// How the simulated cluster behaves.
#[derive(Clone)]
pub struct Options {
    /// The time that is written into statuses.
    pub now: Now,
    /// How many nodes to create if the cluster has none. Zero creates none.
    pub nodes: usize,
    /// From a pod's binding to its readiness.
    pub ready_delay: Duration,
    /// From a pod's deletion to its end, if its grace period is not shorter.
    pub shutdown_delay: Duration,
    /// Containers whose image matches never start: ImagePullBackOff for ever.
    pub never_ready: Option<regex_lite::Regex>,
    /// Whether to write the events that `kubectl describe pod` shows. They double the number of writes.
    pub events: bool,
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Options { now: _, nodes, ready_delay, shutdown_delay, never_ready, events } = self;
        f.debug_struct("Options")
            .field("nodes", nodes)
            .field("ready_delay", ready_delay)
            .field("shutdown_delay", shutdown_delay)
            .field("never_ready", never_ready)
            .field("events", events)
            .finish_non_exhaustive()
    }
}

impl Options {
    /// Three nodes, half a second until ready and to end, every image good, events written.
    pub fn new(now: Now) -> Self {
        Options {
            now,
            nodes: 3,
            ready_delay: Duration::from_millis(500),
            shutdown_delay: Duration::from_millis(500),
            never_ready: None,
            events: true,
        }
    }
}

/// Simulates pods until `shutdown`. Failures are retried for ever and logged.
pub fn run(client: Client, options: Options, shutdown: CancellationToken) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let simulating = async {
            create_nodes(&client, &options).await;
            Simulator::new(client.clone(), options.clone()).run().await;
        };
        shutdown.run_until_cancelled(simulating).await;
    })
}

/// Creates the nodes, unless the cluster has some.
async fn create_nodes(client: &Client, options: &Options) {
    let mut failures = 0;
    while let Err(error) = try_create_nodes(client, options).await {
        failures += 1;
        tracing::warn!(%error, "cannot create the simulated nodes, trying again");
        tokio::time::sleep(backoff(failures)).await;
    }
}

async fn try_create_nodes(client: &Client, options: &Options) -> Result<(), CallError> {
    let requests = || Request::new("/api/v1/nodes");
    let found = send(client, requests().list(&ListParams::default())).await?;
    let found = found["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    let foreign = found.iter().any(|node| {
        let name = node["metadata"]["name"].as_str().unwrap_or_default();
        !(1..=options.nodes).any(|number| nodes::name(number) == name)
    });
    if foreign {
        return Ok(());
    }
    for number in 1..=options.nodes {
        let name = nodes::name(number);
        if found.iter().any(|node| node["metadata"]["name"] == name.as_str()) {
            continue;
        }
        let now = (options.now)();
        let mut node = send(client, post("/api/v1/nodes".to_owned(), &nodes::node(number, now))).await?;
        if node["status"]["conditions"].as_array().is_none_or(Vec::is_empty) {
            // A server that takes no status on creation, as for most kinds.
            let patch = Patch::Merge(json!({"status": nodes::status(number, now)}));
            let patched = requests().patch_subresource("status", &name, &PatchParams::default(), &patch);
            node = send(client, patched).await?;
        }
        // At once, so that the first pods are not told that no node takes them. If it fails, the watch of
        // the nodes sees to it.
        if let Err(error) = open(client, &node).await {
            tracing::debug!(%error, node = name, "the new node is still tainted");
        }
    }
    Ok(())
}

/// Takes the taint of a new node away, if it is there.
async fn open(client: &Client, node: &Value) -> Result<(), CallError> {
    let name = node["metadata"]["name"].as_str().unwrap_or_default();
    if let Some(patch) = nodes::opening(node) {
        let requests = Request::new("/api/v1/nodes");
        send(client, requests.patch(name, &PatchParams::default(), &Patch::Merge(patch))).await?;
    }
    Ok(())
}

/// The same, until it has succeeded or another version of the node is the one to look at.
async fn open_in_the_end(client: Client, node: Node) {
    // A node that came out of JSON goes back into it.
    let Ok(node) = serde_json::to_value(node) else { return };
    let mut failures = 0;
    while let Err(error) = open(&client, &node).await {
        if error.is_conflict() || error.is_final() {
            return;
        }
        failures += 1;
        tracing::warn!(%error, "cannot take the not-ready taint from a node, trying again");
        tokio::time::sleep(backoff(failures)).await;
    }
}

struct Simulator {
    client: Client,
    options: Options,
    life: Lifecycle,
    /// The last part of the next pod's address.
    next_address: u32,
    addresses: BTreeSet<String>,
    event_names: u64,
    /// Both kinds have been listed: before that a pod without a node is no sign of anything.
    synced: (bool, bool),
}

type Running = FuturesUnordered<BoxFuture<'static, (String, Step, Outcome)>>;

impl Simulator {
    fn new(client: Client, options: Options) -> Self {
        let delays = Delays { ready: options.ready_delay, shutdown: options.shutdown_delay };
        Simulator {
            client,
            options,
            life: Lifecycle::new(delays),
            next_address: 0,
            addresses: BTreeSet::new(),
            event_names: 0,
            synced: (false, false),
        }
    }

    async fn run(mut self) {
        let mut nodes = follow(Api::<Node>::all(self.client.clone()), for_a_day());
        let mut pods = follow(Api::<Pod>::all(self.client.clone()), for_a_day());
        let mut running = Running::new();
        let mut opening = FuturesUnordered::new();
        loop {
            let ready = self.synced == (true, true) && running.len() < CONCURRENT_STEPS;
            let due = self.life.next_due().filter(|_| ready);
            // In a fixed order, so that one seed gives one sequence of requests.
            tokio::select! {
                biased;
                Some((uid, step, outcome)) = running.next(), if !running.is_empty() => {
                    self.life.settle(&uid, step, outcome, Instant::now());
                }
                Some(()) = opening.next(), if !opening.is_empty() => {}
                Some(change) = nodes.next() => match change {
                    Change::Put(node) => {
                        if node.spec.as_ref().is_some_and(|spec| spec.taints.is_some()) {
                            opening.push(open_in_the_end(self.client.clone(), node.clone()));
                        }
                        self.life.node_changed(node, Instant::now());
                    }
                    Change::Gone(node) => {
                        self.life.node_gone(node.metadata.name.as_deref().unwrap_or_default());
                    }
                    Change::Synced => self.synced.0 = true,
                },
                Some(change) = pods.next() => match change {
                    Change::Put(pod) => {
                        self.addresses.extend(pod.status.pod_ip.clone());
                        self.life.pod_changed(pod, Instant::now());
                    }
                    Change::Gone(pod) => {
                        if let Some(address) = &pod.status.pod_ip {
                            self.addresses.remove(address);
                        }
                        self.life.pod_gone(pod.uid(), Instant::now());
                    }
                    Change::Synced => self.synced.1 = true,
                },
                () = sleep_until(due), if due.is_some() => {
                    if let Some((uid, step)) = self.life.take(Instant::now()) {
                        running.push(self.step(uid, step));
                    }
                }
            }
        }
    }

    /// Builds the requests of a step now, from what is known now, and leaves sending them to the future.
    fn step(&mut self, uid: String, step: Step) -> BoxFuture<'static, (String, Step, Outcome)> {
        let Some(pod) = self.life.pod(&uid).cloned() else {
            return std::future::ready((uid, step, Outcome::Moot)).boxed();
        };
        let calls = match step {
            Step::Place => self.place(&uid, &pod),
            Step::Start => self.report(&pod, Stage::Starting),
            Step::Run => {
                let mut calls = self.report(&pod, Stage::Running);
                self.narrate_run(&pod, &mut calls);
                calls
            }
            Step::Regate => self.report(&pod, Stage::Running),
            Step::Finish => self.finish(&pod),
        };
        let client = self.client.clone();
        async move {
            let outcome = calls.carry_out(&client, &pod).await;
            (uid, step, outcome)
        }
        .boxed()
    }

    fn place(&mut self, uid: &str, pod: &Pod) -> Calls {
        match self.life.assume(uid) {
            Ok(node) => {
                let (namespace, name) = (pod.namespace(), pod.name());
                let binding = json!({
                    "apiVersion": "v1", "kind": "Binding",
                    "metadata": {"name": name, "namespace": namespace, "uid": uid},
                    "target": {"apiVersion": "v1", "kind": "Node", "name": node},
                });
                let mut calls = Calls::new(Outcome::Done);
                calls.needed.push(Call::Post(format!("{}/{name}/binding", pods_path(namespace)), binding));
                let message = format!("Successfully assigned {namespace}/{name} to {node}");
                self.narrate(pod, &mut calls, SCHEDULER, "Normal", "Scheduled", &message);
                calls
            }
            Err(why) => {
                let mut calls = Calls::new(Outcome::Unplaced);
                if self.life.complain(uid, &why) {
                    let patch = status::unschedulable(pod, &why, (self.options.now)());
                    calls.needed.push(Call::PatchStatus(patch));
                    self.narrate(pod, &mut calls, SCHEDULER, "Warning", "FailedScheduling", &why);
                }
                calls
            }
        }
    }

    fn report(&mut self, pod: &Pod, stage: Stage) -> Calls {
        let host_ip = self.host_ip(pod);
        let pod_ip = match (&pod.status.pod_ip, pod.spec.host_network) {
            (Some(known), _) => known.clone(),
            (None, Some(true)) => host_ip.clone(),
            (None, _) if stage == Stage::Running => self.address(),
            (None, _) => String::new(),
        };
        let broken = |image: &str| self.is_broken(image);
        let place = Place { host_ip: &host_ip, pod_ip: &pod_ip };
        let patch = status::patch(pod, stage, place, &broken, (self.options.now)());
        let mut calls = Calls::new(Outcome::Done);
        calls.needed.push(Call::PatchStatus(patch));
        calls
    }

    /// A pod that a finalizer will keep is reported as ended first, as a kubelet does; for all others
    /// that write would be for nobody, since the object is gone with the next one.
    fn finish(&mut self, pod: &Pod) -> Calls {
        let held = pod.metadata.finalizers.as_ref().is_some_and(|finalizers| !finalizers.is_empty());
        let mut calls = if held && !pod.is_terminal() {
            self.report(pod, Stage::Ended)
        } else {
            Calls::new(Outcome::Done)
        };
        for container in &pod.spec.containers {
            let message = format!("Stopping container {}", container.name);
            self.narrate(pod, &mut calls, KUBELET, "Normal", "Killing", &message);
        }
        calls.needed.push(Call::Delete);
        calls
    }

    fn narrate_run(&mut self, pod: &Pod, calls: &mut Calls) {
        let broken = status::broken_images(pod, &|image| self.is_broken(image));
        if broken.is_empty() {
            for container in &pod.spec.containers {
                let message = format!("Started container {}", container.name);
                self.narrate(pod, calls, KUBELET, "Normal", "Started", &message);
            }
        }
        for image in broken {
            let message =
                format!("Failed to pull image \"{image}\": the sandbox was told that it never comes up");
            self.narrate(pod, calls, KUBELET, "Warning", "Failed", &message);
            let message = format!("Back-off pulling image \"{image}\"");
            self.narrate(pod, calls, KUBELET, "Normal", "BackOff", &message);
        }
    }

    /// Adds an event. The time and a counter make its name: unique, and the same for the same history.
    fn narrate(&mut self, pod: &Pod, calls: &mut Calls, from: &str, kind: &str, reason: &str, message: &str) {
        if !self.options.events {
            return;
        }
        self.event_names += 1;
        let now = (self.options.now)();
        let at = rfc3339(now);
        let number = now.as_nanosecond().wrapping_add(i128::from(self.event_names)) as u64;
        let mut source = json!({"component": from});
        if let Some(node) = pod.node().filter(|_| from == KUBELET) {
            source["host"] = json!(node);
        }
        let event = json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"name": format!("{}.{number:016x}", pod.name()), "namespace": pod.namespace()},
            "involvedObject": {
                "apiVersion": "v1", "kind": "Pod", "name": pod.name(), "namespace": pod.namespace(),
                "uid": pod.uid(), "resourceVersion": pod.metadata.resource_version,
            },
            "type": kind, "reason": reason, "message": message,
            "source": source, "reportingComponent": from, "reportingInstance": "",
            "firstTimestamp": at, "lastTimestamp": at, "count": 1,
        });
        calls.told.push(Call::Post(format!("/api/v1/namespaces/{}/events", pod.namespace()), event));
    }

    fn is_broken(&self, image: &str) -> bool {
        self.options.never_ready.as_ref().is_some_and(|pattern| pattern.is_match(image))
    }

    fn host_ip(&self, pod: &Pod) -> String {
        let node = pod.node().and_then(|name| self.life.nodes().get(name));
        node.and_then(|node| node.status.as_ref()?.addresses.as_ref())
            .and_then(|addresses| addresses.iter().find(|address| address.type_ == "InternalIP"))
            .map_or_else(|| "127.0.0.1".to_owned(), |address| address.address.clone())
    }

    /// The next free address of 10.244.0.0/16; after 65534 pods at once they repeat.
    fn address(&mut self) -> String {
        const ALL: u32 = 65_534;
        for _ in 0..ALL {
            self.next_address = self.next_address % ALL + 1;
            let address = format!("10.244.{}.{}", self.next_address >> 8, self.next_address & 0xff);
            if self.addresses.insert(address.clone()) {
                return address;
            }
        }
        "10.244.0.1".to_owned()
    }
}

const SCHEDULER: &str = "default-scheduler";
const KUBELET: &str = "kubelet";

async fn sleep_until(due: Option<Instant>) {
    if let Some(due) = due {
        tokio::time::sleep_until(due).await;
    }
}
