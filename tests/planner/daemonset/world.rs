//! A toy cluster for the planner: nodes, pods and revisions as JSON in maps, a kubelet of a few rules, no tokio and no
//! HTTP.
//!
//! Every write is checked against the invariants at once, and every step is added to a transcript that a person
//! can read.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use windlass::model::{DaemonSet, DaemonSetStatus, Interner, Node, Pod, Record};
use windlass::plan::daemonset::course::is_not_ready;
use windlass::plan::daemonset::names::Marks;
use windlass::plan::daemonset::refused::{Refusals, RefusedCreations};
use windlass::plan::daemonset::{IsTaken, Members, Observed, Placement, Plan, Verdicts, plan, policy_of};
use windlass::plan::fixed_place_backoff::FailedPodBackoff;

pub struct World {
    pub now: Timestamp,
    pub daemon_set: Value,
    pub nodes: BTreeMap<String, Value>,
    pub pods: BTreeMap<String, Value>,
    pub revisions: BTreeMap<String, Value>,
    pub transcript: String,
    /// Image tags whose pods never become ready.
    pub broken: BTreeSet<String>,
    /// Image tags whose pods fail as soon as they have started.
    pub failing: BTreeSet<String>,
    /// Nodes whose kubelet does nothing any more.
    pub dead: BTreeSet<String>,
    pub start_seconds: i64,
    pub stop_seconds: i64,
    pub last: Plan,
    pub(super) backoff: FailedPodBackoff,
    pub(super) marks: Marks,
    /// While set, each creation of a pod is refused; with true by a quota.
    pub refuses: Option<bool>,
    pub(super) refused: RefusedCreations,
    serial: u64,
    /// The texts about the policy that were said, by generation.
    policy_said: BTreeSet<(i64, String)>,
    /// The steps that a user has approved, by revision: all up to this one.
    pub approved: BTreeMap<i64, usize>,
    /// When failed pods were deleted, by generation and node.
    pub(super) replaced: BTreeMap<(i64, String), Vec<Timestamp>>,
    /// Names that pods have had.
    pub(super) used: BTreeSet<String>,
}

/// A DaemonSet called `agent`, with an update strategy.
pub fn daemon_set(strategy: Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": "agent", "namespace": "ops", "uid": "uid-agent", "resourceVersion": "1", "generation": 1,
                     "annotations": {"deprecated.daemonset.template.generation": "1"}},
        "spec": {
            "selector": {"matchLabels": {"app": "agent"}},
            "updateStrategy": strategy,
            "revisionHistoryLimit": 10,
            "template": {
                "metadata": {"labels": {"app": "agent"}},
                "spec": {"containers": [{"name": "agent", "image": "agent:v1"}]}
            }
        }
    })
}

pub fn unavailable(max: impl Into<Value>) -> Value {
    json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": max.into(), "maxSurge": 0}})
}

pub fn surge(max: impl Into<Value>) -> Value {
    json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": max.into()}})
}

impl World {
    pub fn new(title: &str, daemon_set: Value, nodes: usize) -> Self {
        let mut world = World {
            now: "2026-01-01T00:00:00Z".parse().unwrap(),
            daemon_set,
            nodes: BTreeMap::new(),
            pods: BTreeMap::new(),
            revisions: BTreeMap::new(),
            transcript: String::new(),
            broken: BTreeSet::new(),
            failing: BTreeSet::new(),
            dead: BTreeSet::new(),
            start_seconds: 1,
            stop_seconds: 1,
            last: Plan::default(),
            backoff: FailedPodBackoff::default(),
            marks: Marks::default(),
            refuses: None,
            refused: RefusedCreations::default(),
            serial: 100,
            policy_said: BTreeSet::new(),
            approved: BTreeMap::new(),
            replaced: BTreeMap::new(),
            used: BTreeSet::new(),
        };
        writeln!(world.transcript, "# {title}").unwrap();
        for n in 1..=nodes {
            world.put_node(&format!("n{n}"));
        }
        world
    }

    pub fn say(&mut self, who: &str, what: &str) {
        writeln!(self.transcript, "{who:<12}{what}").unwrap();
    }

    fn serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    pub(super) fn stamp(&mut self, object: &mut Value, uid: &str) {
        let serial = self.serial();
        object["metadata"]["uid"] = format!("{uid}-{serial}").into();
        object["metadata"]["resourceVersion"] = serial.to_string().into();
        object["metadata"]["creationTimestamp"] = self.now.to_string().into();
    }

    fn put_node(&mut self, name: &str) {
        let mut node = json!({"metadata": {"name": name, "labels": {}}, "spec": {"taints": []}});
        self.stamp(&mut node, "uid-node");
        self.nodes.insert(name.into(), node);
    }

    pub fn add_node(&mut self, name: &str) {
        self.say("cluster", &format!("node {name} is added"));
        self.put_node(name);
    }

    /// The node is deleted, and its pods stay until the pod garbage collector runs.
    pub fn remove_node(&mut self, name: &str) {
        self.say("cluster", &format!("node {name} is removed"));
        self.nodes.remove(name);
    }

    pub fn collect_pods(&mut self) {
        let nodes = &self.nodes;
        let gone =
            |pod: &Value| pod["spec"]["nodeName"].as_str().is_some_and(|node| !nodes.contains_key(node));
        let before = self.pods.len();
        self.pods.retain(|_, pod| !gone(pod));
        let gone = before - self.pods.len();
        self.say("collector", &format!("deletes {}", pods(gone)));
    }

    pub fn taint(&mut self, name: &str, taints: &[&str]) {
        self.say("cluster", &format!("node {name} has the taints [{}]", taints.join(", ")));
        let taint = |text: &&str| {
            let (key, effect) = text.rsplit_once(':').unwrap();
            json!({"key": key, "effect": effect})
        };
        self.nodes.get_mut(name).unwrap()["spec"]["taints"] = taints.iter().map(taint).collect();
    }

    pub fn label(&mut self, name: &str, key: &str, value: &str) {
        self.say("cluster", &format!("node {name} has the label {key}={value}"));
        self.nodes.get_mut(name).unwrap()["metadata"]["labels"][key] = value.into();
    }

    /// A user's edit of the spec.
    pub fn edit(&mut self, what: &str, change: impl FnOnce(&mut Value)) {
        self.say("user", what);
        let before = self.daemon_set["spec"].clone();
        change(&mut self.daemon_set["spec"]);
        if self.daemon_set["spec"] != before {
            let metadata = &mut self.daemon_set["metadata"];
            metadata["generation"] = (metadata["generation"].as_i64().unwrap() + 1).into();
        }
        if self.daemon_set["spec"]["template"] != before["template"] {
            let generation =
                &mut self.daemon_set["metadata"]["annotations"]["deprecated.daemonset.template.generation"];
            *generation = (generation.as_str().unwrap().parse::<i64>().unwrap() + 1).to_string().into();
        }
    }

    pub fn set_image(&mut self, tag: &str) {
        self.edit(&format!("image {tag}"), |spec| {
            spec["template"]["spec"]["containers"][0]["image"] = format!("agent:{tag}").into();
        });
    }

    /// Sets an annotation of ours; an empty value removes it.
    pub fn policy(&mut self, key: &str, value: &str) {
        self.say("user", &if value.is_empty() { format!("no {key}") } else { format!("{key}: {value}") });
        let annotations = &mut self.daemon_set["metadata"]["annotations"];
        match value {
            "" => drop(annotations.as_object_mut().unwrap().remove(&format!("windlass.dev/{key}"))),
            value => annotations[format!("windlass.dev/{key}")] = value.into(),
        }
    }

    /// Changes the state on the revision of this image; an empty one removes it.
    pub fn forge_state(&mut self, tag: &str, state: &str) {
        self.say("user", &format!("sets the state of {tag} to {state:?}"));
        let stored = self.revisions.values_mut().find(|revision| revision_tag(revision) == tag).unwrap();
        match state {
            "" => drop(stored["metadata"].as_object_mut().unwrap().remove("annotations")),
            state => stored["metadata"]["annotations"] = json!({"windlass.dev/rollout-state": state}),
        }
    }

    /// The nodes with a taint that says so.
    pub fn not_ready(&self) -> BTreeSet<Arc<str>> {
        let nodes = self.nodes.values().map(Self::decode::<Node>);
        nodes.filter(is_not_ready).map(|node| node.meta.key.name).collect()
    }

    /// Whether a node has a pod that is not being deleted.
    pub fn has_live_pod(&self, node: &str) -> bool {
        let on = |pod: &Pod| pod.target().is_some_and(|target| **target == *node) && !pod.meta.is_deleting();
        self.pods.values().map(Self::decode::<Pod>).any(|pod| on(&pod))
    }

    /// The node dies, and the taints say so.
    pub fn die(&mut self, node: &str) {
        self.dead.insert(node.into());
        if self.has_live_pod(node) {
            self.set_ready(node, false);
        }
        self.taint(
            node,
            &["node.kubernetes.io/unreachable:NoSchedule", "node.kubernetes.io/unreachable:NoExecute"],
        );
    }

    /// The node and its pod are back.
    pub fn recover(&mut self, node: &str) {
        self.dead.remove(node);
        self.taint(node, &[]);
        if self.has_live_pod(node) {
            self.set_ready(node, true);
        }
    }

    /// Does what `kubectl rollout undo` does: applies the data of a revision to the DaemonSet.
    pub fn undo(&mut self, number: i64) {
        let all: Vec<&Value> = self.revisions.values().filter(|r| r["revision"] == number).collect();
        let mut template = all[0]["data"]["spec"]["template"].clone();
        assert_eq!(template.as_object_mut().unwrap().remove("$patch"), Some("replace".into()));
        self.edit(&format!("undo to revision {number}"), |spec| spec["template"] = template);
    }

    /// The pods of a node as `v1`, `v2 starting`.
    pub fn on(&self, node: &str) -> String {
        let on = |pod: &&Value| Self::decode::<Pod>(pod).target().is_some_and(|target| **target == *node);
        let all: Vec<String> = self.pods.values().filter(on).map(state).collect();
        if all.is_empty() { "-".into() } else { all.join(" + ") }
    }

    pub fn pod_on(&mut self, node: &str) -> &mut Value {
        let name = self.name_on(node);
        self.pods.get_mut(&name).unwrap()
    }

    pub fn name_on(&self, node: &str) -> String {
        let on = |pod: &Value| {
            Self::decode::<Pod>(pod).target().is_some_and(|t| **t == *node)
                && pod["metadata"]["deletionTimestamp"].is_null()
        };
        self.pods.iter().find(|(_, pod)| on(pod)).unwrap().0.clone()
    }

    /// Runs until nothing happens any more and nothing is due.
    pub fn settle(&mut self) {
        self.run(1000, None);
        let end = self.end();
        self.say("end", &end);
    }

    /// Runs a number of rounds, to stop midway.
    pub fn rounds(&mut self, rounds: usize) {
        self.run(rounds, None);
    }

    /// Runs for so long, through whatever is due.
    pub fn pass(&mut self, seconds: i64) {
        let until = self.now + SignedDuration::from_secs(seconds);
        self.run(5000, Some(until));
        self.now = until;
    }

    fn run(&mut self, rounds: usize, until: Option<Timestamp>) {
        for _ in 0..rounds {
            let mut looks = Vec::new();
            let mut busy = self.sync(&mut looks);
            busy |= self.kubelet(&mut looks);
            if busy {
                continue;
            }
            let Some(next) = looks.into_iter().filter(|at| *at > self.now).min() else { return };
            if until.is_some_and(|until| next > until) {
                return;
            }
            let wait = next.duration_since(self.now).as_secs();
            if wait > 1 {
                self.say("time", &format!("{wait} s pass"));
            }
            self.now = next;
        }
        assert!(rounds < 1000, "the cluster does not settle:\n{}", self.transcript);
    }

    pub fn decode<T: Record>(value: &Value) -> T {
        T::decode(&value.to_string(), &mut Interner::default()).unwrap()
    }

    fn split<T: Record>(&self, objects: &BTreeMap<String, Value>) -> (Vec<Arc<T>>, Vec<Arc<T>>) {
        let daemon_set = Self::decode::<DaemonSet>(&self.daemon_set);
        let all = objects.values().map(|value| Arc::new(Self::decode::<T>(value)));
        let known = all.filter(|o| daemon_set.controls(o.meta()) || o.meta().controller.is_none());
        known.partition(|object| daemon_set.controls(object.meta()))
    }

    pub fn verdicts(&self) -> Verdicts {
        let daemon_set = Self::decode::<DaemonSet>(&self.daemon_set);
        let nodes: Vec<Node> = self.nodes.values().map(Self::decode).collect();
        Verdicts::of(&Placement::of(&daemon_set).unwrap(), &nodes)
    }

    /// Plans without doing anything.
    pub fn plan(&self) -> Plan {
        let daemon_set = Self::decode::<DaemonSet>(&self.daemon_set);
        let (owned, orphans) = self.split(&self.pods);
        let (revisions, orphan_revisions) = self.split(&self.revisions);
        let names: BTreeSet<String> = self.pods.keys().cloned().collect();
        let observed = Observed {
            daemon_set: &daemon_set,
            verdicts: Arc::new(self.verdicts()),
            unreadable: None,
            unreadable_pods: 0,
            members: Members::of(&daemon_set, owned, orphans),
            revisions,
            orphan_revisions,
            may_adopt: true,
            maybe_deleted: BTreeSet::new(),
            backoff: Arc::new(self.backoff.clone()),
            marks: Arc::new(self.marks.clone()),
            recent: Arc::default(),
            refused: Arc::new(self.refused.clone()),
            policy: policy_of(&daemon_set, self.now),
            not_ready: self.not_ready(),
            is_taken: IsTaken::new(move |name| names.contains(name)),
            now: self.now,
        };
        plan(&observed)
    }

    fn sync(&mut self, looks: &mut Vec<Timestamp>) -> bool {
        let daemon_set = Self::decode::<DaemonSet>(&self.daemon_set);
        let plan = self.plan();
        assert!(!plan.reasons.is_empty(), "a plan without a reason: {plan:?}");
        for note in &plan.notes {
            let kind = if note.warning { "Warning" } else { "Normal" };
            self.say("event", &format!("{kind} {}: {}", note.reason, note.message));
        }
        for note in &plan.policy_notes {
            if self.policy_said.insert((daemon_set.meta.generation, note.message.clone())) {
                self.say("event", &format!("Warning {}: {}", note.reason, note.message));
            }
        }
        let mut is_done = true;
        let (generation, mut refusals) = (daemon_set.meta.generation, Refusals::default());
        for write in &plan.writes {
            let Some(write) = refusals.allow(write, generation, &self.refused) else { continue };
            if let (windlass::plan::daemonset::Write::CreatePods { pods, .. }, Some(by_quota)) =
                (&*write, self.refuses)
            {
                // Slow start: the first is refused, and no other is sent.
                self.say("controller", &format!("is refused a pod on {}", pods[0].node));
                self.refused.refused(generation, &pods[0].node, by_quota);
                refusals.without_pods(pods.iter().map(|new| new.node.clone()));
                continue;
            }
            is_done = self.apply(&daemon_set, &write);
            if !is_done {
                break;
            }
        }
        self.last = plan.clone();
        looks.extend(plan.requeue_after.map(|wait| self.now.saturating_add(wait).unwrap()));
        let Some(status) = plan.status.filter(|_| is_done) else { return !plan.writes.is_empty() };
        super::writes::check_status(&status, &daemon_set);
        let is_changed = status != daemon_set.status;
        if status.conditions != daemon_set.status.conditions {
            let shown = status.conditions.first().map_or("none".to_owned(), |condition| {
                assert_eq!(condition.last_update, None, "conditions of DaemonSets have no such field");
                format!("{} {}: {}", condition.status, condition.reason, condition.message)
            });
            self.say("progress", &shown);
        }
        let conditions: Vec<Value> = status
            .conditions
            .iter()
            .map(|c| {
                let since = c.last_transition.map(|at| at.to_string());
                json!({"type": c.kind, "status": c.status, "reason": c.reason, "message": c.message,
                       "lastTransitionTime": since})
            })
            .collect();
        self.daemon_set["status"] = json!({
            "observedGeneration": status.observed_generation, "desiredNumberScheduled": status.desired,
            "currentNumberScheduled": status.current, "numberMisscheduled": status.misscheduled,
            "updatedNumberScheduled": status.updated, "numberReady": status.ready, "numberAvailable": status.available,
            "numberUnavailable": status.unavailable, "collisionCount": status.collision_count,
            "conditions": conditions,
        });
        is_changed || !plan.writes.is_empty()
    }

    /// Binds pods to their targets, starts and stops them.
    fn kubelet(&mut self, looks: &mut Vec<Timestamp>) -> bool {
        let mut said: BTreeMap<(&'static str, String), Vec<String>> = BTreeMap::new();
        for name in self.pods.keys().cloned().collect::<Vec<_>>() {
            let pod = &self.pods[&name];
            let record = Self::decode::<Pod>(pod);
            let Some(node) = record.target().map(|node| node.to_string()) else { continue };
            if !self.nodes.contains_key(&node) || self.dead.contains(&node) {
                continue;
            }
            let due = |field: &str, seconds: i64| {
                let since: Timestamp = pod["metadata"][field].as_str()?.parse().ok()?;
                Some(since + SignedDuration::from_secs(seconds))
            };
            let tag = tag(pod);
            if let Some(at) = due("deletionTimestamp", self.stop_seconds) {
                if at > self.now {
                    looks.push(at);
                } else {
                    self.pods.remove(&name);
                    said.entry(("is gone from", tag)).or_default().push(node);
                }
                continue;
            }
            if pod["status"]["phase"] != "Pending" {
                continue;
            }
            let at = due("creationTimestamp", self.start_seconds).unwrap();
            let stays = self.broken.contains(&tag);
            let now = self.now.to_string();
            let stored = self.pods.get_mut(&name).unwrap();
            if record.node().is_none() {
                stored["spec"]["nodeName"] = node.as_str().into();
            }
            if stays {
                continue;
            }
            if at > self.now {
                looks.push(at);
            } else if self.failing.contains(&tag) {
                stored["status"] = json!({"phase": "Failed", "reason": "OutOfcpu"});
                said.entry(("fails on", tag)).or_default().push(node);
            } else {
                stored["status"] = json!({"phase": "Running",
                    "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": now}]});
                said.entry(("is ready on", tag)).or_default().push(node);
            }
        }
        let busy = !said.is_empty();
        for ((what, tag), mut nodes) in said {
            nodes.sort();
            self.say("kubelet", &format!("{tag} {what} {}", nodes.join(", ")));
        }
        busy
    }

    pub fn set_ready(&mut self, node: &str, ready: bool) {
        self.say("kubelet", &format!("the pod on {node} is {}ready", if ready { "" } else { "not " }));
        let now = self.now.to_string();
        let status = if ready { "True" } else { "False" };
        self.pod_on(node)["status"]["conditions"] =
            json!([{"type": "Ready", "status": status, "lastTransitionTime": now}]);
    }

    fn end(&self) -> String {
        let nodes: Vec<String> = self.nodes.keys().map(|node| format!("{node} {}", self.on(node))).collect();
        let DaemonSetStatus {
            desired, current, misscheduled, updated, ready, available, unavailable, ..
        } = Self::decode::<DaemonSet>(&self.daemon_set).status;
        let mut revisions: Vec<(i64, String)> =
            self.revisions.values().map(|r| (r["revision"].as_i64().unwrap(), revision_tag(r))).collect();
        revisions.sort();
        let revisions: Vec<String> =
            revisions.iter().map(|(number, tag)| format!("{number}={tag}")).collect();
        let nodes = if nodes.len() > 12 { format!("{} nodes", nodes.len()) } else { nodes.join(", ") };
        format!(
            "{nodes}; desired {desired} current {current} updated {updated} ready {ready} available {available} \
             unavailable {unavailable} misscheduled {misscheduled}; revisions {}",
            revisions.join(" ")
        )
    }
}

pub fn pods(count: usize) -> String {
    if count == 1 { "1 pod".into() } else { format!("{count} pods") }
}

fn image_tag(spec: &Value) -> String {
    spec["containers"][0]["image"].as_str().unwrap_or("x:?").rsplit(':').next().unwrap().to_owned()
}

pub(super) fn tag(pod: &Value) -> String {
    image_tag(&pod["spec"])
}

pub(super) fn revision_tag(revision: &Value) -> String {
    image_tag(&revision["data"]["spec"]["template"]["spec"])
}

fn state(pod: &Value) -> String {
    let record = World::decode::<Pod>(pod);
    let state = match record.phase {
        _ if record.meta.is_deleting() => " stopping",
        windlass::model::Phase::Failed => " failed",
        windlass::model::Phase::Succeeded => " succeeded",
        _ if record.ready_since.is_none() => " not ready",
        _ => "",
    };
    format!("{}{state}", tag(pod))
}
