//! A toy world for the planners: objects in maps, a kubelet of three rules, no tokio and no HTTP.
//!
//! Every write is checked against the safety invariants at the moment it is made, and every step goes
//! into a transcript that a person can read.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};
use windlass::model::{Deployment, Interner, Pod, Record, ReplicaSet, condition};
use windlass::plan::deployment::{self as planner, Course};
use windlass::plan::replicaset as pod_planner;
use windlass::plan::replicaset::body::OwnerReference;

use super::build::DeploymentBuilder;
use super::statuses::{deployment_status, set_status};

pub struct World {
    pub now: Timestamp,
    pub deployment: Value,
    pub sets: BTreeMap<String, Value>,
    pub pods: BTreeMap<String, Value>,
    pub transcript: String,
    /// Image tags whose pods never become ready.
    pub broken: Vec<String>,
    /// Image tags whose pods are asked to stop and do not.
    pub stuck: Vec<String>,
    /// Seconds from creation to readiness, and from deletion to disappearance.
    pub start_seconds: i64,
    pub stop_seconds: i64,
    serial: u64,
}

impl World {
    pub fn new(title: &str, deployment: DeploymentBuilder) -> Self {
        let mut world = World {
            now: "2026-01-01T00:00:00Z".parse().unwrap(),
            deployment: deployment.json(),
            sets: BTreeMap::new(),
            pods: BTreeMap::new(),
            transcript: String::new(),
            broken: Vec::new(),
            stuck: Vec::new(),
            start_seconds: 1,
            stop_seconds: 1,
            serial: 100,
        };
        writeln!(world.transcript, "# {title}").unwrap();
        world
    }

    pub fn say(&mut self, who: &str, what: &str) {
        writeln!(self.transcript, "{who:<12}{what}").unwrap();
    }

    /// A user's edit of the spec.
    pub fn edit(&mut self, what: &str, change: impl FnOnce(&mut Value)) {
        self.say("user", what);
        let before = self.deployment["spec"].clone();
        change(&mut self.deployment["spec"]);
        if self.deployment["spec"] != before {
            let generation = self.deployment["metadata"]["generation"].as_i64().unwrap() + 1;
            self.deployment["metadata"]["generation"] = generation.into();
        }
    }

    pub fn set_image(&mut self, tag: &str) {
        self.edit(&format!("image {tag}"), |spec| {
            spec["template"]["spec"]["containers"][0]["image"] = format!("app:{tag}").into();
        });
    }

    pub fn scale(&mut self, replicas: i32) {
        self.edit(&format!("replicas {replicas}"), |spec| spec["replicas"] = replicas.into());
    }

    /// Runs until nothing happens any more and no deadline is left.
    pub fn settle(&mut self) {
        self.run(2000);
        let end = self.end();
        self.say("end", &end);
    }

    /// Runs a number of rounds, to stop a rollout midway.
    pub fn rounds(&mut self, rounds: usize) {
        self.run(rounds);
    }

    fn run(&mut self, rounds: usize) {
        for _ in 0..rounds {
            let mut looks = Vec::new();
            let mut busy = self.sync_deployment(&mut looks);
            // In the order of the versions: the names depend on a hash.
            let mut sets: Vec<(String, String)> =
                self.sets.iter().map(|(name, set)| (Self::nick(&Self::decode(set)), name.clone())).collect();
            sets.sort();
            for (_, name) in sets {
                busy |= self.sync_set(&name, &mut looks);
            }
            busy |= self.kubelet(&mut looks);
            if busy {
                continue;
            }
            let Some(next) = looks.into_iter().min() else { return };
            let wait = next.duration_since(self.now).as_secs();
            if wait > 1 {
                self.say("time", &format!("{wait} s pass"));
            }
            self.now = next;
        }
        assert!(rounds < 1000, "the world did not come to rest:\n{}", self.transcript);
    }

    pub fn decode<T: Record>(value: &Value) -> Arc<T> {
        Arc::new(T::decode(&value.to_string(), &mut Interner::default()).unwrap())
    }

    fn serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    fn stamp(&mut self, object: &mut Value, uid: &str) {
        let serial = self.serial();
        object["metadata"]["uid"] = uid.into();
        object["metadata"]["resourceVersion"] = serial.to_string().into();
        object["metadata"]["creationTimestamp"] = self.now.to_string().into();
        object["metadata"]["generation"] = 1.into();
    }

    fn owned<T: Record>(objects: &BTreeMap<String, Value>, owner: &impl Record) -> Vec<Arc<T>> {
        objects.values().map(Self::decode::<T>).filter(|o| owner.controls(o.meta())).collect()
    }

    /// What people call a set: its Deployment's name and its image tag.
    fn nick(set: &ReplicaSet) -> String {
        let template: Value = serde_json::from_str(set.template.raw().get()).unwrap();
        format!("web-{}", tag(&template["spec"]))
    }

    fn sync_deployment(&mut self, looks: &mut Vec<Timestamp>) -> bool {
        let deployment = Self::decode::<Deployment>(&self.deployment);
        let owned: Vec<Arc<ReplicaSet>> = Self::owned(&self.sets, &*deployment);
        let running_pods = owned
            .iter()
            .map(|set| {
                let pods: Vec<Arc<Pod>> = Self::owned(&self.pods, &**set);
                (set.meta.uid.clone(), pods.iter().filter(|pod| !pod.is_terminal()).count())
            })
            .collect();
        let observed =
            planner::Observed { owned, running_pods, ..planner::Observed::new(&deployment, self.now) };
        let plan = planner::plan(&observed);
        assert!(!plan.why.is_empty(), "a plan without a reason: {plan:?}\n{observed:?}");
        for write in &plan.writes {
            self.apply_set_write(&deployment, write);
        }
        let outcome = planner::progress::Outcome::after(plan.writes.len());
        let settled = planner::progress::settle(&observed, &plan, &outcome);
        looks.extend(settled.look_again.map(|wait| self.now.saturating_add(wait).unwrap()));
        let mut busy = !plan.writes.is_empty();
        if let Some(revision) = settled.revision {
            self.deployment["metadata"]["annotations"]["deployment.kubernetes.io/revision"] = revision.into();
        }
        if settled.status != deployment.status {
            let say = |status: &[windlass::model::Condition]| {
                condition::find(status, "Progressing").map(|c| c.reason.to_string()).unwrap_or_default()
            };
            let (before, after) = (say(&deployment.status.conditions), say(&settled.status.conditions));
            if before != after && plan.course != Course::CountsOnly {
                self.say("progress", &after);
            }
            self.deployment["status"] = deployment_status(&settled.status);
            busy = true;
        }
        busy
    }

    fn apply_set_write(&mut self, deployment: &Deployment, write: &planner::Write) {
        let sum_before = self.sum_of_sizes();
        match write {
            planner::Write::Create(new) => {
                let body = planner::body::set_body(deployment, new).unwrap();
                let mut set: Value = serde_json::from_slice(&body).unwrap();
                self.stamp(&mut set, &format!("uid-set-{}", new.name));
                let nick = Self::nick(&Self::decode(&set));
                assert!(!self.sets.contains_key(&new.name), "{} is created twice", new.name);
                if deployment.strategy == windlass::model::Strategy::Recreate {
                    assert!(self.pods.values().all(is_over), "S3: a set is created while old pods run");
                }
                self.sets.insert(new.name.clone(), set);
                self.say("deployment", &format!("create {nick} at {}", new.replicas));
            }
            planner::Write::Change(set, change) => {
                let nick = Self::nick(set);
                if let Some(size) = change.replicas {
                    self.say("deployment", &format!("scale {nick} {} -> {size}", set.replicas));
                }
                if let Some(revision) = change.annotations.get("deployment.kubernetes.io/revision") {
                    self.say("deployment", &format!("{nick} becomes revision {revision}"));
                }
                let stored = self.sets.get_mut(&*set.meta.key.name).unwrap();
                for (key, value) in &change.annotations {
                    stored["metadata"]["annotations"][key] = value.as_str().into();
                }
                let before = stored["spec"].clone();
                if let Some(size) = change.replicas {
                    stored["spec"]["replicas"] = size.into();
                }
                if let Some(seconds) = change.min_ready_seconds {
                    stored["spec"]["minReadySeconds"] = seconds.into();
                }
                if stored["spec"] != before {
                    let generation = stored["metadata"]["generation"].as_i64().unwrap() + 1;
                    stored["metadata"]["generation"] = generation.into();
                }
            }
            planner::Write::Delete(set) => {
                let nick = Self::nick(set);
                let status = &self.sets[&*set.meta.key.name]["status"]["replicas"];
                assert!(status.as_i64().unwrap_or(0) == 0 && set.replicas == 0, "S8: {nick} still has pods");
                self.sets.remove(&*set.meta.key.name);
                self.say("deployment", &format!("delete {nick}"));
            }
            planner::Write::RollBack(rollback) => {
                let annotations = &mut self.deployment["metadata"]["annotations"];
                match &rollback.back {
                    None => {
                        drop(annotations.as_object_mut().unwrap().remove("deprecated.deployment.rollback.to"))
                    }
                    Some((template, new)) => {
                        *annotations = json!(new);
                        self.deployment["spec"]["template"] = json!(template);
                        let generation = self.deployment["metadata"]["generation"].as_i64().unwrap() + 1;
                        self.deployment["metadata"]["generation"] = generation.into();
                    }
                }
                self.say("deployment", &rollback.note.message);
            }
            planner::Write::Adopt(_) | planner::Write::Release(_) => unreachable!("nobody edits labels here"),
        }
        let sum = self.sum_of_sizes();
        let (surge, _) = deployment.budget();
        let most = i64::from(deployment.replicas) + i64::from(surge);
        assert!(sum <= most.max(sum_before), "S1: {sum} pods wanted, {most} allowed\n{}", self.transcript);
    }

    fn sum_of_sizes(&self) -> i64 {
        self.sets.values().map(|set| set["spec"]["replicas"].as_i64().unwrap()).sum()
    }

    fn sync_set(&mut self, name: &str, looks: &mut Vec<Timestamp>) -> bool {
        let set = Self::decode::<ReplicaSet>(&self.sets[name]);
        let nick = Self::nick(&set);
        let owned = Self::owned(&self.pods, &*set);
        let members = pod_planner::Members::of(&set, owned, Vec::new());
        let observed = pod_planner::Observed {
            set: &set,
            free_names: pod_planner::free_names(
                &set,
                &members,
                &BTreeSet::new(),
                &Default::default(),
                |_| false,
            ),
            reserved: 0,
            members,
            may_adopt: false,
            siblings: Vec::new(),
            failed_pod_backoff: true,
            now: self.now,
        };
        let plan = pod_planner::plan(&observed);
        for write in &plan.writes {
            match write {
                pod_planner::Write::Create { count, names } => {
                    for pod_name in &names[..*count] {
                        let owner = OwnerReference::controller("apps/v1", "ReplicaSet", name, &set.meta.uid);
                        let body = pod_planner::body::pod_body(&set, owner, pod_name).unwrap();
                        let mut pod: Value = serde_json::from_slice(&body).unwrap();
                        let serial = self.serial();
                        self.stamp(&mut pod, &format!("uid-{serial}"));
                        pod["status"] = json!({"phase": "Pending"});
                        assert!(self.pods.insert(pod_name.clone(), pod).is_none(), "a pod's name is taken");
                    }
                    self.say("replicaset", &format!("{nick}: create {}", pods(*count)));
                }
                pod_planner::Write::Delete(victims) => {
                    for victim in victims {
                        let pod = self.pods.get_mut(&*victim.meta.key.name).unwrap();
                        pod["metadata"]["deletionTimestamp"] = self.now.to_string().into();
                    }
                    self.say("replicaset", &format!("{nick}: delete {}", pods(victims.len())));
                }
                pod_planner::Write::Adopt(_) | pod_planner::Write::Release(_) => unreachable!(),
            }
        }
        let live = Self::owned::<Pod>(&self.pods, &*set).iter().filter(|p| p.is_active()).count();
        assert!(
            live <= set.replicas.max(0) as usize || plan.writes.is_empty(),
            "S11: {nick} has {live} pods"
        );
        let settled = pod_planner::status::settle(&observed, None);
        looks.extend(
            [settled.look_again, plan.look_again]
                .into_iter()
                .flatten()
                .map(|wait| self.now.saturating_add(wait).unwrap()),
        );
        let changed = settled.status != set.status;
        if changed {
            self.sets.get_mut(name).unwrap()["status"] = set_status(&settled.status);
        }
        changed || !plan.writes.is_empty()
    }

    /// Makes the pods ready that are due and drops those whose grace is over.
    fn kubelet(&mut self, looks: &mut Vec<Timestamp>) -> bool {
        let mut ready: BTreeMap<String, usize> = BTreeMap::new();
        let mut gone: BTreeMap<String, usize> = BTreeMap::new();
        for name in self.pods.keys().cloned().collect::<Vec<_>>() {
            let pod = &self.pods[&name];
            let image = tag(&pod["spec"]);
            let due = |field: &str, seconds: i64| {
                let since: Timestamp = pod["metadata"][field].as_str()?.parse().ok()?;
                Some(since.saturating_add(jiff::SignedDuration::from_secs(seconds)).unwrap())
            };
            if let Some(at) = due("deletionTimestamp", self.stop_seconds) {
                if self.stuck.contains(&image) {
                    continue;
                }
                if at <= self.now {
                    self.pods.remove(&name);
                    *gone.entry(image).or_default() += 1;
                } else {
                    looks.push(at);
                }
            } else if pod["status"]["phase"] == "Pending" && !self.broken.contains(&image) {
                let at = due("creationTimestamp", self.start_seconds).unwrap();
                if at <= self.now {
                    let now = self.now.to_string();
                    self.pods.get_mut(&name).unwrap()["status"] = json!({"phase": "Running",
                        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": now}]});
                    *ready.entry(image).or_default() += 1;
                } else {
                    looks.push(at);
                }
            }
        }
        for (image, count) in &ready {
            self.say("kubelet", &format!("web-{image}: {} ready", pods(*count)));
        }
        for (image, count) in &gone {
            self.say("kubelet", &format!("web-{image}: {} gone", pods(*count)));
        }
        self.check_availability();
        !ready.is_empty() || !gone.is_empty()
    }

    /// S2, judged on the pods themselves: a rollout in a world without faults never leaves fewer ready
    /// pods than the budget allows, once there were that many.
    fn check_availability(&mut self) {
        let deployment = Self::decode::<Deployment>(&self.deployment);
        let reached = self.deployment["reached"].as_i64().unwrap_or(0);
        let ready = self.pods.values().filter(|pod| is_ready(pod)).count() as i64;
        self.deployment["reached"] = ready.into();
        if !matches!(deployment.strategy, windlass::model::Strategy::RollingUpdate { .. }) {
            return;
        }
        let (_, unavailable) = deployment.budget();
        let minimum = i64::from(deployment.replicas) - i64::from(unavailable);
        assert!(
            ready >= minimum.min(reached),
            "S2: {ready} pods ready, {minimum} must be\n{}",
            self.transcript
        );
    }

    fn end(&self) -> String {
        let mut sets: Vec<(String, String)> = self
            .sets
            .values()
            .map(|value| {
                let set = Self::decode::<ReplicaSet>(value);
                let revision = set.annotations.get("deployment.kubernetes.io/revision").unwrap_or("?");
                let text = format!(
                    "{} {}/{} (revision {revision})",
                    Self::nick(&set),
                    set.status.available,
                    set.replicas
                );
                (set.meta.created.to_string() + &Self::nick(&set), text)
            })
            .collect();
        sets.sort();
        let deployment = Self::decode::<Deployment>(&self.deployment);
        let conditions: Vec<String> = deployment
            .status
            .conditions
            .iter()
            .map(|c| format!("{}={} ({})", c.kind, c.status, c.reason))
            .collect();
        let sets: Vec<String> = sets.into_iter().map(|(_, text)| text).collect();
        format!("{}; {}", sets.join(", "), conditions.join(", "))
    }
}

pub(super) fn pods(count: usize) -> String {
    if count == 1 { "1 pod".into() } else { format!("{count} pods") }
}

pub(super) fn tag(pod_spec: &Value) -> String {
    let image = pod_spec["containers"][0]["image"].as_str().unwrap();
    image.rsplit(':').next().unwrap().to_string()
}

fn is_over(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Failed" | "Succeeded"))
}

pub(super) fn is_ready(pod: &Value) -> bool {
    pod["metadata"]["deletionTimestamp"].is_null()
        && pod["status"]["phase"] == "Running"
        && pod["status"]["conditions"][0]["status"] == "True"
}
