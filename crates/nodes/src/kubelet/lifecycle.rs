//! The schedule of the simulator: which step for which pod is due when. Pure: observations and the time in, due steps
//! out.
//!
//! A pod goes through its stages once per UID. Only the first observation of something new (a node, a
//! deletion, an opened readiness gate) makes a step due; the simulator's own writes, and what others
//! write into a pod's status, do not. So a test may set a pod to not ready and it stays so.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use tokio::time::Instant;

use super::{
    attempts::Attempts,
    nodes::Condition,
    record::Pod,
    runs::{Change, ContainerRuns},
    tracked::{Nodes, Tracked},
};
use crate::scheduler;

/// The next thing to do with a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Find a node and bind the pod to it.
    Place,
    /// Report that the pod is being started.
    Start,
    /// Report that it runs.
    Run,
    /// Report once more, because a readiness gate opened or closed.
    Regate,
    /// Report that a container ended, or was started again.
    Exit,
    /// Its node has a taint that it does not tolerate: delete it.
    Evict,
    /// The containers have terminated: delete the pod.
    Finish,
    /// Its node is deleted: delete the pod.
    Collect,
}

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It took effect.
    Done,
    /// No node is suitable at present.
    Unplaced,
    /// A ConfigMap, a Secret or a claim that the pod needs does not exist or is not bound.
    Blocked,
    /// The pod has changed: deleted, replaced, or bound by another scheduler. Nothing more to do here.
    Moot,
    /// Retry later.
    Failed,
}

/// The simulator's delays.
#[derive(Clone, Copy, Debug)]
pub struct Delays {
    /// From being bound to being ready.
    pub ready: Duration,
    /// From the deletion to the termination, unless the grace period is shorter.
    pub shutdown: Duration,
}

/// Every pod and node the simulator knows of.
#[derive(Debug)]
pub struct Lifecycle {
    delays: Delays,
    /// Boxed: the nodes of such a map have room for eleven.
    pods: BTreeMap<String, Box<Tracked>>,
    nodes: Nodes,
    load: scheduler::Load,
    /// The UIDs of the pods that are bound to each node.
    on_node: BTreeMap<String, BTreeSet<String>>,
    /// The due steps, soonest first and then in the order of insertion.
    due: BTreeSet<(Instant, u64, String)>,
    /// Where in `due` each pod stands.
    queued: BTreeMap<String, (Instant, u64)>,
    sequence: u64,
    /// The unschedulable pods; only they are retried when capacity is freed.
    stuck: BTreeSet<String>,
    /// Those of them that may fit when another pod is placed.
    stuck_on_others: BTreeSet<String>,
    /// The pods that wait for a ConfigMap, a Secret or a claim; they are retried when it changes.
    blocked: BTreeSet<String>,
    /// The number of changes of these objects.
    need_changes: u64,
    /// The number of times that capacity may have been freed.
    offers: u64,
    /// The number of times that the company of other pods has changed.
    companies: u64,
    attempts: Attempts,
}

impl Lifecycle {
    /// Knows nothing yet.
    pub fn new(delays: Delays) -> Self {
        Lifecycle {
            delays,
            pods: BTreeMap::new(),
            nodes: Nodes::default(),
            load: scheduler::Load::default(),
            on_node: BTreeMap::new(),
            due: BTreeSet::new(),
            queued: BTreeMap::new(),
            sequence: 0,
            stuck: BTreeSet::new(),
            stuck_on_others: BTreeSet::new(),
            blocked: BTreeSet::new(),
            need_changes: 0,
            offers: 0,
            companies: 0,
            attempts: Attempts::default(),
        }
    }

    /// The same beside controllers that evict pods, and report that those of a node that is not ready are not ready.
    #[must_use]
    pub fn beside_controllers(mut self, have_controllers: bool) -> Self {
        self.nodes.have_controllers = have_controllers;
        self
    }

    /// The nodes by name.
    pub fn nodes(&self) -> &BTreeMap<String, Node> {
        &self.nodes.present
    }

    /// The pod with that UID.
    pub fn pod(&self, uid: &str) -> Option<&Pod> {
        self.pods.get(uid).map(|tracked| &tracked.pod)
    }

    /// A node appeared or changed: unschedulable pods may fit now; pods bound to it may start, or must be evicted.
    pub fn node_changed(&mut self, node: Node, now: Instant) {
        if let Some(name) = node.metadata.name.clone() {
            self.nodes.gone.remove(&name);
            self.load.node_added(&name);
            let state =
                |node: &Node| (Condition::of(node), node.spec.as_ref().and_then(|spec| spec.taints.clone()));
            let after = state(&node);
            let before = self.nodes.present.insert(name.clone(), node);
            if before.as_ref().map(state) != Some(after) {
                self.decide_on(&name, now);
            }
            self.offer_room(now);
        }
    }

    /// A node was deleted, and its kubelet with it. Its pods stay until they are collected, or until the node is
    /// recreated.
    pub fn node_deleted(&mut self, name: &str, now: Instant) {
        if self.nodes.present.remove(name).is_some() {
            self.nodes.gone.insert(name.to_owned(), now);
            self.load.node_removed(name);
            self.decide_on(name, now);
        }
    }

    /// Updates the pods that are bound to a node.
    fn decide_on(&mut self, node: &str, now: Instant) {
        for uid in self.on_node.get(node).cloned().unwrap_or_default() {
            self.decide(&uid, now);
        }
    }

    /// A pod appeared or changed.
    pub fn pod_changed(&mut self, pod: Pod, now: Instant) {
        let uid = pod.uid().to_owned();
        let tracked = self.pods.entry(uid.clone()).or_insert_with(|| Box::new(Tracked::new(&pod)));
        let was_terminal = tracked.pod.is_terminal();
        // A pod is bound once.
        if let Some(node) = pod.node() {
            self.on_node.entry(node.to_owned()).or_default().insert(uid.clone());
        }
        let was_ending = tracked.pod.metadata.deletion_timestamp.is_some();
        let freed = !was_terminal && pod.is_terminal();
        let is_ending = pod.metadata.deletion_timestamp.is_some();
        self.count(&uid, Some(pod));
        self.decide(&uid, now);
        if freed {
            self.offer_room(now);
        } else if was_ending != is_ending {
            // It does not count for topology spread constraints any more.
            self.offer_company(now);
        }
    }

    /// A pod does not exist any more.
    pub fn pod_deleted(&mut self, uid: &str, now: Instant) {
        if let Some(tracked) = self.pods.remove(uid) {
            self.attempts.forget(&tracked.pod);
            if let Some(node) = tracked.pod.node()
                && let Some(bound) = self.on_node.get_mut(node)
            {
                bound.remove(uid);
                if bound.is_empty() {
                    self.on_node.remove(node);
                }
            }
            self.unqueue(uid);
            self.stuck.remove(uid);
            self.stuck_on_others.remove(uid);
            self.blocked.remove(uid);
            if let Some(node) = tracked.place {
                self.load.pod_removed(&tracked.pod, &node);
                self.offer_room(now);
            }
        }
    }

    /// When the next step is due.
    pub fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(at, _, _)| *at)
    }

    /// Takes the next step that is due. Until [`Lifecycle::settle`] nothing else is due for that pod.
    pub fn take(&mut self, now: Instant) -> Option<(String, Step)> {
        if self.due.first().is_none_or(|(at, _, _)| *at > now) {
            return None;
        }
        let (_, _, uid) = self.due.pop_first()?;
        self.queued.remove(&uid);
        let tracked = self.pods.get_mut(&uid)?;
        let (_, step) = tracked.due.take()?;
        tracked.busy = true;
        Some((uid, step))
    }

    /// Chooses a node and counts the pod on it from now on, before the server has confirmed it.
    pub fn assume(&mut self, uid: &str) -> Result<String, String> {
        let offers = self.offers_for(uid);
        if let Some(tracked) = self.pods.get_mut(uid) {
            tracked.tried = offers;
        }
        let Some(tracked) = self.pods.get(uid) else { return Err("the pod is gone".to_owned()) };
        let each_placed = |count: &mut dyn FnMut(&Pod, &str)| {
            for other in self.pods.values() {
                if let Some(node) = &other.place {
                    count(&other.pod, node);
                }
            }
        };
        let node = scheduler::choose(&tracked.pod, &self.nodes.present, &mut self.load, &each_placed)?;
        self.load.pod_added(&tracked.pod, &node);
        if let Some(tracked) = self.pods.get_mut(uid) {
            tracked.place = Some(node.clone());
        }
        Ok(node)
    }

    /// The resources that the pods of a node take, also those that it has not started.
    pub fn load_of(&self, node: &str) -> Option<&scheduler::NodeLoad> {
        self.load.node(node)
    }

    /// The pods that run on the node of a pod that has not been started, or are being started there.
    pub fn started_before(&self, uid: &str) -> impl Iterator<Item = &Pod> {
        let tracked = self.pods.get(uid).filter(|tracked| tracked.reached < Some(Step::Start));
        let bound = tracked.and_then(|tracked| self.on_node.get(tracked.pod.node()?)).into_iter().flatten();
        let others = bound
            .filter(move |other| *other != uid)
            .filter_map(|other| self.pods.get(other).map(Box::as_ref));
        let has_started =
            |other: &&Tracked| !other.pod.is_terminal() && (other.busy || other.reached >= Some(Step::Start));
        others.filter(has_started).map(|other| &other.pod)
    }

    /// Records why the pod has no node or does not run. False if the same is recorded already.
    pub fn record_complaint(&mut self, uid: &str, why: &str) -> bool {
        let Some(tracked) = self.pods.get_mut(uid) else { return false };
        let is_new = tracked.complaint.as_deref() != Some(why);
        tracked.complaint = Some(why.into());
        is_new
    }

    /// The main containers of a pod, if one of them ends.
    pub fn runs(&self, uid: &str) -> &[ContainerRuns] {
        self.pods.get(uid).and_then(|tracked| tracked.runs.as_deref()).unwrap_or_default()
    }

    /// The main containers of a pod are started; one of them ends.
    pub fn start_runs(&mut self, uid: &str, runs: Vec<ContainerRuns>) {
        if let Some(tracked) = self.pods.get_mut(uid) {
            tracked.runs = Some(runs.into());
        }
    }

    /// The changes that have happened to the main containers of a pod, by their index. They are to be reported.
    pub fn advance_runs(&mut self, uid: &str, now: Instant, at: Timestamp) -> Vec<(usize, Change)> {
        let Some(tracked) = self.pods.get_mut(uid) else { return Vec::new() };
        tracked.unreported = true;
        let (pod, attempts) = (&tracked.pod, &mut self.attempts);
        let containers = tracked.runs.iter_mut().flatten().zip(&pod.spec.containers).enumerate();
        let changes = containers.filter_map(|(index, (runs, container))| {
            let restarts = runs.restarts + 1;
            let mut attempt = || attempts.next(pod, &container.name, restarts);
            Some((index, runs.advance(now, at, &mut attempt)?))
        });
        changes.collect()
    }

    /// The number of the attempt that a container begins now, from 0.
    pub fn next_attempt(&mut self, pod: &Pod, container: &str) -> u32 {
        self.attempts.next(pod, container, pod.restarts(container))
    }

    /// The pod is judged by the objects that it needs as they are now.
    pub fn judge_by_needs(&mut self, uid: &str) {
        if let Some(tracked) = self.pods.get_mut(uid) {
            tracked.judged = self.need_changes;
        }
    }

    /// Objects that pods need changed; the pods that are meant may run now.
    pub fn needs_changed(&mut self, is_meant: impl Fn(&Pod) -> bool, now: Instant) {
        self.need_changes += 1;
        let is_meant = |uid: &String| self.pods.get(uid).is_some_and(|tracked| is_meant(&tracked.pod));
        let (freed, blocked) = std::mem::take(&mut self.blocked).into_iter().partition(is_meant);
        self.blocked = blocked;
        let freed: BTreeSet<String> = freed;
        for uid in freed {
            self.decide(&uid, now);
        }
    }

    /// Takes in how a step ended.
    pub fn settle(&mut self, uid: &str, step: Step, outcome: Outcome, now: Instant) {
        let offers = self.offers_for(uid);
        let Some(tracked) = self.pods.get_mut(uid) else { return };
        tracked.busy = false;
        tracked.unreported &= step != Step::Exit || outcome == Outcome::Failed;
        match outcome {
            Outcome::Done => {
                tracked.failures = 0;
                tracked.reached = tracked.reached.max(Some(step));
            }
            Outcome::Moot => tracked.reached = tracked.reached.max(Some(step)),
            // A node may have become suitable while the pod was being marked as unschedulable.
            Outcome::Unplaced if tracked.tried == offers => {
                self.stuck.insert(uid.to_owned());
                if tracked.pod.depends_on_others() {
                    self.stuck_on_others.insert(uid.to_owned());
                }
            }
            // The object may have been created while that was reported.
            Outcome::Blocked if tracked.judged == self.need_changes => {
                self.blocked.insert(uid.to_owned());
            }
            Outcome::Unplaced | Outcome::Blocked => {}
            Outcome::Failed => {
                tracked.failures = tracked.failures.saturating_add(1);
                if step == Step::Regate {
                    // Forget that the gate's change was seen, so that it is seen again.
                    tracked.gates_open = !tracked.gates_open;
                }
            }
        }
        if step == Step::Place && matches!(outcome, Outcome::Failed | Outcome::Moot | Outcome::Blocked) {
            self.count(uid, None);
        }
        self.decide(uid, now);
        if step == Step::Place && outcome == Outcome::Done {
            self.offer_company(now);
        }
    }

    /// How often something has changed that may make room for this pod.
    fn offers_for(&self, uid: &str) -> u64 {
        let depends = self.pods.get(uid).is_some_and(|tracked| tracked.pod.depends_on_others());
        if depends { self.offers + self.companies } else { self.offers }
    }

    /// Unschedulable pods may fit now.
    fn offer_room(&mut self, now: Instant) {
        self.offers += 1;
        self.stuck_on_others.clear();
        for uid in std::mem::take(&mut self.stuck) {
            self.decide(&uid, now);
        }
    }

    /// Unschedulable pods that depend on where others are may fit now.
    fn offer_company(&mut self, now: Instant) {
        self.companies += 1;
        for uid in std::mem::take(&mut self.stuck_on_others) {
            self.stuck.remove(&uid);
            self.decide(&uid, now);
        }
    }

    /// Makes `place` agree with the pod, which may have changed: its node while it may still run there.
    fn count(&mut self, uid: &str, changed: Option<Pod>) {
        let Some(tracked) = self.pods.get_mut(uid) else { return };
        if let Some(node) = &tracked.place {
            self.load.pod_removed(&tracked.pod, node);
        }
        if let Some(pod) = changed {
            tracked.pod = pod;
        }
        let placed = tracked.busy || tracked.reached >= Some(Step::Place);
        let assumed = tracked.place.clone().filter(|_| placed);
        let actual = tracked.pod.node().map(str::to_owned).or(assumed);
        tracked.place = actual.filter(|_| !tracked.pod.is_terminal());
        if let Some(node) = &tracked.place {
            self.load.pod_added(&tracked.pod, node);
        }
    }

    fn decide(&mut self, uid: &str, now: Instant) {
        let Some(tracked) = self.pods.get_mut(uid) else { return };
        if tracked.busy {
            return;
        }
        let held = self.stuck.contains(uid) || self.blocked.contains(uid);
        let next = tracked.next(&self.nodes, held, self.delays, now);
        // A step that is planned already keeps its time: changes of the pod must not delay it.
        let planned = tracked.due;
        let due = match (planned, next) {
            (Some((at, step)), Some((sooner, same))) if step == same => Some((at.min(sooner), step)),
            (_, next) => next,
        };
        if due != planned {
            tracked.due = due;
            self.unqueue(uid);
            if let Some((at, _)) = due {
                self.sequence += 1;
                self.due.insert((at, self.sequence, uid.to_owned()));
                self.queued.insert(uid.to_owned(), (at, self.sequence));
            }
        }
    }

    fn unqueue(&mut self, uid: &str) {
        if let Some((at, sequence)) = self.queued.remove(uid) {
            self.due.remove(&(at, sequence, uid.to_owned()));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const DELAYS: Delays = Delays { ready: Duration::from_secs(2), shutdown: Duration::from_secs(1) };

    fn node(name: &str) -> Node {
        serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
    }

    fn pod(uid: &str, node: &str, more: Value) -> Pod {
        let mut pod = json!({
            "metadata": {"name": uid, "namespace": "shop", "uid": uid},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        });
        if !node.is_empty() {
            pod["spec"]["nodeName"] = json!(node);
        }
        json_patch::merge(&mut pod, &more);
        serde_json::from_value(pod).unwrap()
    }

    fn after(seconds: u64, start: Instant) -> Instant {
        start + Duration::from_secs(seconds)
    }

    fn deleting(grace: i64) -> Value {
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": grace}})
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_is_placed_then_started_then_runs_and_then_nothing_more_is_due() {
        let start = Instant::now();
        let mut life = Lifecycle::new(DELAYS);
        life.node_changed(node("n1"), start);
        life.pod_changed(pod("p", "", json!({})), start);
        assert_eq!(life.take(start), Some(("p".to_owned(), Step::Place)));
        assert_eq!(life.assume("p"), Ok("n1".to_owned()));
        life.settle("p", Step::Place, Outcome::Done, start);
        assert_eq!(life.next_due(), None, "the bound pod has not come back yet");
        life.pod_changed(pod("p", "n1", json!({})), start);
        assert_eq!(life.take(start), Some(("p".to_owned(), Step::Start)));
        life.settle("p", Step::Start, Outcome::Done, start);
        assert_eq!(life.take(after(1, start)), None);
        life.pod_changed(pod("p", "n1", json!({"status": {"phase": "Pending"}})), after(1, start));
        assert_eq!(life.take(after(2, start)), Some(("p".to_owned(), Step::Run)), "changes do not delay it");
        life.settle("p", Step::Run, Outcome::Done, after(2, start));
        life.pod_changed(pod("p", "n1", json!({"status": {"phase": "Running"}})), after(2, start));
        assert_eq!(life.next_due(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_set_to_not_ready_by_another_writer_stays_not_ready() {
        let start = Instant::now();
        let mut life = Lifecycle::new(DELAYS);
        life.node_changed(node("n1"), start);
        let ready = |status: &str| {
            json!({"status": {"phase": "Running", "podIP": "10.0.0.1",
                              "conditions": [{"type": "Ready", "status": status}]}})
        };
        life.pod_changed(pod("p", "n1", ready("True")), start);
        life.pod_changed(pod("p", "n1", ready("False")), start);
        assert_eq!(life.next_due(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_deleted_pod_is_finished_once_after_the_shorter_of_delay_and_grace() {
        let start = Instant::now();
        let mut life = Lifecycle::new(DELAYS);
        life.node_changed(node("n1"), start);
        life.pod_changed(pod("slow", "n1", deleting(30)), start);
        life.pod_changed(pod("fast", "n1", deleting(0)), start);
        assert_eq!(life.take(start), Some(("fast".to_owned(), Step::Finish)));
        life.settle("fast", Step::Finish, Outcome::Done, start);
        life.pod_changed(pod("fast", "n1", deleting(0)), start);
        assert_eq!(life.take(start), None, "a finalizer holds it; it is not deleted twice");
        assert_eq!(life.next_due(), Some(after(1, start)));
        life.pod_changed(pod("slow", "n1", deleting(0)), start);
        assert_eq!(life.take(start), Some(("slow".to_owned(), Step::Finish)), "the grace was cut short");
    }

    #[tokio::test(start_paused = true)]
    async fn an_unschedulable_pod_is_retried_when_a_node_is_added_or_a_pod_is_deleted() {
        let start = Instant::now();
        let mut life = Lifecycle::new(DELAYS);
        life.pod_changed(pod("p", "", json!({})), start);
        assert_eq!(life.take(start), Some(("p".to_owned(), Step::Place)));
        assert!(life.assume("p").is_err());
        assert!(life.record_complaint("p", "no nodes"));
        life.settle("p", Step::Place, Outcome::Unplaced, start);
        assert_eq!(life.next_due(), None);
        life.node_changed(node("n1"), start);
        assert_eq!(life.take(start), Some(("p".to_owned(), Step::Place)));
        assert!(!life.record_complaint("p", "no nodes"), "the same reason is reported once");
    }

    #[tokio::test(start_paused = true)]
    async fn capacity_freed_during_a_failed_scheduling_attempt_is_used() {
        let start = Instant::now();
        let mut life = Lifecycle::new(DELAYS);
        life.pod_changed(pod("p", "", json!({})), start);
        assert!(life.take(start).is_some() && life.assume("p").is_err());
        life.node_changed(node("n1"), start);
        life.settle("p", Step::Place, Outcome::Unplaced, start);
        assert_eq!(life.take(start), Some(("p".to_owned(), Step::Place)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_step_is_retried_with_backoff() {
        let start = Instant::now();
        let mut life = Lifecycle::new(DELAYS);
        life.node_changed(node("n1"), start);
        life.pod_changed(pod("p", "n1", json!({})), start);
        for wait in [100, 200, 400] {
            let at = life.next_due().unwrap();
            assert!(life.take(at).is_some());
            life.settle("p", Step::Start, Outcome::Failed, at);
            assert_eq!(life.next_due(), Some(at + Duration::from_millis(wait)));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn pods_of_other_schedulers_and_gated_pods_are_left_alone() {
        let start = Instant::now();
        let mut life = Lifecycle::new(DELAYS);
        life.node_changed(node("n1"), start);
        life.pod_changed(pod("other", "", json!({"spec": {"schedulerName": "mine"}})), start);
        let gated = json!({"spec": {"schedulingGates": [{"name": "wait"}]}});
        life.pod_changed(pod("gated", "", gated), start);
        life.pod_changed(pod("lost", "unknown-node", json!({})), start);
        assert_eq!(life.next_due(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn pods_spread_even_before_their_bindings_are_seen() {
        let start = Instant::now();
        let mut life = Lifecycle::new(DELAYS);
        life.node_changed(node("n1"), start);
        life.node_changed(node("n2"), start);
        let mut places = Vec::new();
        for uid in ["a", "b", "c", "d"] {
            life.pod_changed(pod(uid, "", json!({})), start);
            life.take(start).unwrap();
            places.push(life.assume(uid).unwrap());
        }
        assert_eq!(places, ["n1", "n2", "n1", "n2"]);
        life.pod_changed(pod("a", "n1", json!({})), start);
        life.pod_deleted("b", start);
        life.pod_changed(pod("e", "", json!({})), start);
        assert_eq!(life.assume("e").unwrap(), "n2");
    }

    #[tokio::test(start_paused = true)]
    async fn beside_controllers_a_kubelet_that_is_back_reports_its_pods_and_nothing_more() {
        let start = Instant::now();
        let state = |ready: &str| -> Node {
            let taint = json!({"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"});
            let taints = if ready == "True" { json!([]) } else { json!([taint]) };
            let node = json!({"metadata": {"name": "n1"}, "spec": {"taints": taints},
                              "status": {"conditions": [{"type": "Ready", "status": ready}]}});
            serde_json::from_value(node).unwrap()
        };
        let ready = json!({"status": {"phase": "Running", "podIP": "10.0.0.1",
                                      "conditions": [{"type": "Ready", "status": "True"}]}});
        for (have_controllers, steps) in [(false, 2), (true, 1)] {
            let mut life = Lifecycle::new(DELAYS).beside_controllers(have_controllers);
            life.node_changed(state("True"), start);
            life.pod_changed(pod("p", "n1", ready.clone()), start);
            let mut regates = 0;
            for node in ["Unknown", "True"] {
                life.node_changed(state(node), start);
                while let Some((uid, step)) = life.take(start) {
                    assert_eq!(step, Step::Regate);
                    regates += 1;
                    life.settle(&uid, step, Outcome::Done, start);
                }
            }
            assert_eq!(regates, steps);
            life.node_changed(state("Unknown"), start);
            let evicts = std::iter::from_fn(|| {
                let (uid, step) = life.take(after(600, start))?;
                life.settle(&uid, step, Outcome::Done, start);
                Some(step)
            });
            assert_eq!(evicts.into_iter().any(|step| step == Step::Evict), !have_controllers);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_opened_readiness_gate_is_reported_once() {
        let start = Instant::now();
        let mut life = Lifecycle::new(DELAYS);
        life.node_changed(node("n1"), start);
        let gated = |open: &str| {
            json!({"spec": {"readinessGates": [{"conditionType": "lb"}]},
                   "status": {"podIP": "10.0.0.1", "conditions": [{"type": "lb", "status": open}]}})
        };
        life.pod_changed(pod("p", "n1", gated("False")), start);
        assert_eq!(life.next_due(), None);
        life.pod_changed(pod("p", "n1", gated("True")), start);
        assert_eq!(life.take(start), Some(("p".to_owned(), Step::Regate)));
        life.settle("p", Step::Regate, Outcome::Done, start);
        life.pod_changed(pod("p", "n1", gated("True")), start);
        assert_eq!(life.next_due(), None);
    }
}
