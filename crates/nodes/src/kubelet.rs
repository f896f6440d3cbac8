//! The pod simulator: simulates the scheduler and the kubelets of a cluster that has none.
//!
//! It creates nodes if there are none, reports the status of nodes, updates their taints, binds pods to them, reports
//! pods as running and ready after a delay, and removes them when they or their node are deleted. It needs only a
//! [`kube::Client`], so it works with the sandbox's own API server and with others, such as envtest's. **Not beside
//! real kubelets:** it acts on every pod, on any node.
//!
//! The decisions are in [`lifecycle`] and [`status`](mod@status), both pure; this file carries them out.

mod admission;
mod attempts;
mod calls;
mod claims;
mod commands;
mod faults;
mod heartbeats;
mod image_name;
pub mod lifecycle;
pub mod nodes;
mod options;
pub mod outcomes;
mod placing;
pub mod quantity;
pub mod record;
pub mod references;
mod registration;
pub mod resources;
pub mod runs;
pub mod status;
mod tracked;

use std::collections::{BTreeMap, BTreeSet};

use futures::{
    FutureExt as _, StreamExt as _, future::BoxFuture, stream::BoxStream, stream::FuturesUnordered,
};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use self::options::{NodeLabel, NodeTaint, Options};
use self::{
    calls::{Call, Calls},
    claims::{ClaimChange, Claims},
    lifecycle::{Delays, Lifecycle, Outcome, Step},
    nodes::Tainting,
    outcomes::PodOutcome,
    record::{Container, Pod, RestartPolicy, Watched},
    references::{ConfigChange, Configs},
    runs::{Change as RunChange, ContainerRuns, Start},
    status::{Behaviour, Fault, Place, Stage},
};
use super::{
    events::{self, Text, event},
    reflector::{Change, follow, for_a_day},
    volumes,
};

/// The maximum number of concurrent steps.
const CONCURRENT_STEPS: usize = 32;

/// Simulates pods until `shutdown`. Failures are retried for ever and logged.
pub fn run(client: Client, options: Options, shutdown: CancellationToken) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let simulating = async {
            registration::create_nodes(&client, &options).await;
            Simulator::new(client.clone(), options.clone()).run().await;
        };
        let beating = async {
            match options.heartbeat {
                Some(every) => heartbeats::run(&client, &options, every).await,
                None => std::future::pending().await,
            }
        };
        let binding = async {
            if options.volumes {
                volumes::run(&client, &options.now, options.events).await;
            }
        };
        let simulating = futures::future::join3(simulating, beating, binding);
        shutdown.run_until_cancelled(simulating).await;
    })
}

struct Simulator {
    client: Client,
    options: Options,
    life: Lifecycle,
    /// The last part of the next pod's address.
    next_address: u32,
    addresses: BTreeSet<String>,
    /// The addresses that pods have been given by their UIDs, until the watch shows them. A second report that is made
    /// before would give another one, and a pod with two is refused for ever.
    given: BTreeMap<String, String>,
    event_names: u64,
    /// The nodes that others have created, each with a number for its address.
    others: BTreeMap<String, usize>,
    /// The nodes that had a taint that evicts, and the status of their condition Ready then.
    evicting: BTreeMap<String, String>,
    configs: Configs,
    claims: Claims,
    /// Both kinds have been listed: before that a pod without a node is no sign of anything.
    synced: (bool, bool),
}

type Running = FuturesUnordered<BoxFuture<'static, (String, Step, Outcome)>>;

impl Simulator {
    fn new(client: Client, options: Options) -> Self {
        let delays = Delays { ready: options.ready_delay, shutdown: options.shutdown_delay };
        let life = Lifecycle::new(delays).beside_controllers(!options.node_lifecycle);
        Simulator {
            client,
            options,
            life,
            next_address: 0,
            addresses: BTreeSet::new(),
            given: BTreeMap::new(),
            event_names: 0,
            others: BTreeMap::new(),
            evicting: BTreeMap::new(),
            configs: Configs::default(),
            claims: Claims::default(),
            synced: (false, false),
        }
    }

    async fn run(mut self) {
        let mut nodes = follow(Api::<Node>::all(self.client.clone()), for_a_day());
        let mut pods = follow(Api::<Watched>::all(self.client.clone()), for_a_day());
        // Followed from the first pod that needs them.
        let mut configs: Option<BoxStream<'static, ConfigChange>> = None;
        let mut claims: Option<BoxStream<'static, ClaimChange>> = None;
        let mut running = Running::new();
        let mut reporting = FuturesUnordered::new();
        loop {
            let ready = self.synced == (true, true) && running.len() < CONCURRENT_STEPS;
            let due = self.life.next_due().filter(|_| ready);
            // In a fixed order, so that one seed gives one sequence of requests.
            tokio::select! {
                biased;
                Some((uid, step, outcome)) = running.next(), if !running.is_empty() => {
                    self.life.settle(&uid, step, outcome, Instant::now());
                }
                Some(()) = reporting.next(), if !reporting.is_empty() => {}
                Some(change) = nodes.next() => match change {
                    Change::Put(node) => {
                        reporting.extend(self.report_node(&node));
                        self.life.node_changed(node, Instant::now());
                    }
                    Change::Deleted(node) => {
                        self.evicting.remove(&node.name);
                        self.life.node_deleted(&node.name, Instant::now());
                    }
                    Change::Synced => self.synced.0 = true,
                },
                Some(change) = pods.next() => match change {
                    Change::Put(pod) => {
                        let pod = Pod::from(pod);
                        if let Some(address) = &pod.status.pod_ip {
                            self.addresses.insert(address.clone());
                            self.given.remove(pod.uid());
                        }
                        if configs.is_none() && pod.needs(None) {
                            configs = Some(Configs::follow(&self.client));
                        }
                        if claims.is_none() && self.waits_for_claims(&pod) {
                            claims = Some(Claims::follow(&self.client));
                        }
                        self.life.pod_changed(pod, Instant::now());
                    }
                    Change::Deleted(pod) => {
                        let known = self.life.pod(&pod.uid).and_then(|pod| pod.status.pod_ip.clone());
                        if let Some(address) = known.or(self.given.remove(&pod.uid)) {
                            self.addresses.remove(&address);
                        }
                        self.life.pod_deleted(&pod.uid, Instant::now());
                    }
                    Change::Synced => self.synced.1 = true,
                },
                Some(change) = next(&mut configs), if configs.is_some() => {
                    let is_meant = self.configs.observe(change);
                    self.life.needs_changed(is_meant, Instant::now());
                }
                Some(change) = next(&mut claims), if claims.is_some() => {
                    let is_meant = self.claims.observe(change);
                    self.life.needs_changed(is_meant, Instant::now());
                }
                () = sleep_until(due), if due.is_some() => {
                    if let Some((uid, step)) = self.life.take(Instant::now()) {
                        running.push(self.step(uid, step));
                    }
                }
            }
        }
    }

    /// Writes the status or the taints of a node, if they have to change.
    fn report_node(&mut self, node: &Node) -> Option<BoxFuture<'static, ()>> {
        let name = node.metadata.name.clone().unwrap_or_default();
        // A node that was read from JSON can be written as JSON.
        let node = serde_json::to_value(node).ok()?;
        let tainting = self.tainting(&name, &node);
        let before = self.others.len();
        let number = match nodes::number(&name) {
            Some(number) => number,
            None => self.options.nodes + *self.others.entry(name).or_insert(before + 1),
        };
        nodes::due(&node, number, &self.options.version, tainting, (self.options.now)())?;
        Some(registration::report(self.client.clone(), node, number, tainting, self.options.clone()).boxed())
    }

    /// The taints that a node gets here. One that evicts, and that another removes while the condition stays, is not added again: a
    /// controller does so where no node is ready.
    fn tainting(&mut self, name: &str, node: &serde_json::Value) -> Tainting {
        if !self.options.node_lifecycle {
            return Tainting::Left;
        }
        if let Some(ready) = nodes::evicting(node) {
            self.evicting.insert(name.to_owned(), ready.to_owned());
            return Tainting::All;
        }
        match self.evicting.get(name) {
            Some(ready) if nodes::ready(node) == Some(ready) => Tainting::NoSchedule,
            _ => {
                self.evicting.remove(name);
                Tainting::All
            }
        }
    }

    /// Builds the requests of a step from the present state, and leaves sending them to the future.
    fn step(&mut self, uid: String, step: Step) -> BoxFuture<'static, (String, Step, Outcome)> {
        let Some(pod) = self.life.pod(&uid).cloned() else {
            return std::future::ready((uid, step, Outcome::Moot)).boxed();
        };
        let is_start = matches!(step, Step::Start | Step::Run);
        let (step, calls) = match is_start.then(|| self.rejection(&uid, &pod)).flatten() {
            // No step follows.
            Some(rejection) => (Step::Run, rejection),
            None => (step, self.calls_of(step, &uid, &pod)),
        };
        let client = self.client.clone();
        async move {
            let outcome = calls.carry_out(&client, &pod).await;
            (uid, step, outcome)
        }
        .boxed()
    }

    fn calls_of(&mut self, step: Step, uid: &str, pod: &Pod) -> Calls {
        match step {
            Step::Place => self.place(uid, pod),
            Step::Start => self.report(pod, Stage::Starting),
            Step::Run => self.start(uid, pod),
            Step::Exit => self.report_exits(uid, pod),
            Step::Regate => self.report(pod, Stage::Running),
            Step::Evict => self.evict(pod),
            Step::Finish => self.finish(pod),
            Step::Collect => self.collect(pod),
        }
    }

    /// Starts the containers, as far as they can start.
    fn start(&mut self, uid: &str, pod: &Pod) -> Calls {
        self.life.judge_by_needs(uid);
        let waits_for_claims = self.waits_for_claims(pod);
        if (pod.needs(None) && !self.configs.are_known()) || (waits_for_claims && !self.claims.are_known()) {
            return Calls::new(Outcome::Blocked);
        }
        let unmountable = || self.claims.unmountable(pod).filter(|_| waits_for_claims);
        if let Some(why) = self.configs.missing_volume(pod).or_else(unmountable) {
            let mut calls = Calls::new(Outcome::Blocked);
            if self.life.record_complaint(uid, &why) {
                calls = self.report(pod, Stage::Starting).with(Outcome::Blocked);
                self.record_event(pod, &mut calls, KUBELET, "Warning", "FailedMount", &why);
            }
            return calls;
        }
        let containers = pod.init_containers().iter().chain(&pod.spec.containers);
        let faults: Vec<(&Container, Fault)> =
            containers.filter_map(|container| Some((container, self.fault(pod, container)?))).collect();
        let heals = faults.iter().any(|(_, fault)| faults::heals(fault));
        if heals && !self.life.record_complaint(uid, &format!("{faults:?}")) {
            return Calls::new(Outcome::Blocked);
        }
        let outcome = if heals { Outcome::Blocked } else { Outcome::Done };
        if !heals {
            self.start_runs(uid, pod);
        }
        let mut calls = self.report(pod, Stage::Running).with(outcome);
        if faults.is_empty() {
            for container in &pod.spec.containers {
                let message = format!("Started container {}", container.name);
                self.record_event(pod, &mut calls, KUBELET, "Normal", "Started", &message);
            }
        }
        let outcome = pod.metadata.outcome.as_deref().map(str::parse::<PodOutcome>);
        if let Some(Err(why)) = outcome {
            let message = format!("The annotation {} is ignored: {why}", outcomes::ANNOTATION);
            self.record_event(pod, &mut calls, KUBELET, "Warning", "InvalidPodOutcome", &message);
        }
        for (container, fault) in &faults {
            for (kind, reason, message) in faults::events(container, fault) {
                self.record_event(pod, &mut calls, KUBELET, kind, reason, &message);
            }
        }
        calls
    }

    /// Starts the clocks of the main containers, if one of them ends.
    fn start_runs(&mut self, uid: &str, pod: &Pod) {
        let outcomes = pod.spec.containers.iter().map(|container| {
            let starts = self.fault(pod, container).is_none();
            starts.then(|| outcomes::of(pod, container, &self.options.pod_outcomes)).flatten()
        });
        let outcomes: Vec<_> = outcomes.collect();
        if outcomes.iter().all(Option::is_none) {
            return;
        }
        let (now, at) = (Instant::now(), (self.options.now)());
        let runs = pod.spec.containers.iter().zip(outcomes).map(|(container, outcome)| {
            let counts = outcome.as_ref().is_some_and(PodOutcome::counts_attempts);
            let attempt = if counts { self.life.next_attempt(pod, &container.name) } else { 0 };
            let policy = outcomes::restart_policy(pod, container);
            let (restarts, index) = (pod.restarts(&container.name), pod.metadata.completion_index);
            ContainerRuns::new(outcome, policy, restarts, index, Start { now, at, attempt })
        });
        let runs = runs.collect();
        self.life.start_runs(uid, runs);
    }

    fn report_exits(&mut self, uid: &str, pod: &Pod) -> Calls {
        let changes = self.life.advance_runs(uid, Instant::now(), (self.options.now)());
        let mut calls = self.report(pod, Stage::Running);
        for (index, change) in changes {
            let Some(name) = pod.spec.containers.get(index).map(|container| &container.name) else {
                continue;
            };
            let (kind, reason, message) = match change {
                RunChange::Ended => continue,
                RunChange::Restarted => ("Normal", "Started", format!("Started container {name}")),
                RunChange::BackedOff => {
                    let pod = status::pod_text(pod);
                    let message = format!("Back-off restarting failed container {name} in pod {pod}");
                    ("Warning", "BackOff", message)
                }
            };
            self.record_event(pod, &mut calls, KUBELET, kind, reason, &message);
        }
        calls
    }

    fn fault(&self, pod: &Pod, container: &Container) -> Option<Fault> {
        faults::of(pod, container, &self.configs, self.options.never_ready.as_ref())
    }

    fn report(&mut self, pod: &Pod, stage: Stage) -> Calls {
        let host_ip = self.host_ip(pod);
        let pod_ip = match (&pod.status.pod_ip, pod.spec.host_network) {
            (Some(known), _) => known.clone(),
            (None, Some(true)) => host_ip.clone(),
            (None, _) if stage == Stage::Running => self.address_of(pod.uid()),
            (None, _) => String::new(),
        };
        let fault = |container: &Container| self.fault(pod, container);
        let node = pod.node().and_then(|name| self.life.nodes().get(name));
        let node_ready = node.is_none_or(|node| nodes::Condition::of(node) == nodes::Condition::Ready);
        let place = Place { host_ip: &host_ip, pod_ip: &pod_ip, node_ready };
        let stopped =
            |container: &Container| outcomes::stopped_code(pod, container, &self.options.pod_outcomes);
        let runs = self.life.runs(pod.uid());
        let behaviour = Behaviour { fault: &fault, stopped: &stopped, runs };
        let patch = status::patch(pod, stage, place, &behaviour, (self.options.now)());
        let mut calls = Calls::new(Outcome::Done);
        calls.needed.push(Call::PatchStatus(patch));
        calls
    }

    /// A pod that is held by a finalizer, or counted by its end, is reported as terminated first, as a kubelet does. For all
    /// others that write would be useless, since the next one deletes the object.
    fn finish(&mut self, pod: &Pod) -> Calls {
        let held = pod.metadata.finalizers.as_ref().is_some_and(|finalizers| !finalizers.is_empty());
        let counts = held || pod.spec.restart_policy != RestartPolicy::Always;
        let mut calls = if counts && !pod.is_terminal() {
            self.report(pod, Stage::Ended)
        } else {
            Calls::new(Outcome::Done)
        };
        for container in &pod.spec.containers {
            let message = format!("Stopping container {}", container.name);
            self.record_event(pod, &mut calls, KUBELET, "Normal", "Killing", &message);
        }
        calls.needed.push(Call::Delete);
        calls
    }

    fn evict(&mut self, pod: &Pod) -> Calls {
        let mut calls = Calls::new(Outcome::Done);
        let message = format!("Marking for deletion Pod {}/{}", pod.namespace(), pod.name());
        self.record_event(pod, &mut calls, TAINT_EVICTION, "Normal", "TaintManagerEviction", &message);
        calls.needed.push(Call::PatchStatus(status::tainted(pod, (self.options.now)())));
        calls.needed.push(Call::DeleteGracefully);
        calls
    }

    /// Deletes a pod whose node was deleted, as upstream's pod garbage collector does.
    fn collect(&mut self, pod: &Pod) -> Calls {
        let mut calls = Calls::new(Outcome::Done);
        if !pod.is_terminal() {
            calls.needed.push(Call::PatchStatus(status::orphaned(pod, (self.options.now)())));
        }
        calls.needed.push(Call::Delete);
        calls
    }

    /// Adds an event. Its name consists of the time and a counter: unique and reproducible.
    fn record_event(
        &mut self,
        pod: &Pod,
        calls: &mut Calls,
        from: &str,
        kind: &str,
        reason: &str,
        message: &str,
    ) {
        if !self.options.events {
            return;
        }
        self.event_names += 1;
        let now = (self.options.now)();
        let number = now.as_nanosecond().wrapping_add(i128::from(self.event_names)) as u64;
        let about = json!({
            "apiVersion": "v1", "kind": "Pod", "name": pod.name(), "namespace": pod.namespace(),
            "uid": pod.uid(), "resourceVersion": pod.metadata.resource_version,
        });
        let host = pod.node().filter(|_| from == KUBELET);
        let text = Text { from, kind, reason, message };
        let event = event(format!("{}.{number:016x}", pod.name()), &about, host, &text, now);
        calls.events.push(Call::Post(events::path(pod.namespace()), event));
    }

    fn host_ip(&self, pod: &Pod) -> String {
        let node = pod.node().and_then(|name| self.life.nodes().get(name));
        node.and_then(|node| node.status.as_ref()?.addresses.as_ref())
            .and_then(|addresses| addresses.iter().find(|address| address.type_ == "InternalIP"))
            .map_or_else(|| "127.0.0.1".to_owned(), |address| address.address.clone())
    }

    fn address_of(&mut self, uid: &str) -> String {
        if let Some(known) = self.given.get(uid) {
            return known.clone();
        }
        let address = self.address();
        self.given.insert(uid.to_owned(), address.clone());
        address
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

const KUBELET: &str = "kubelet";
const TAINT_EVICTION: &str = "taint-eviction-controller";

async fn sleep_until(due: Option<Instant>) {
    if let Some(due) = due {
        tokio::time::sleep_until(due).await;
    }
}

/// The next change, of what is followed already.
async fn next<T>(changes: &mut Option<BoxStream<'static, T>>) -> Option<T> {
    changes.as_mut()?.next().await
}
