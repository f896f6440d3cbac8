//! Rollouts, step by step, as a readable transcript, with a kubelet of three rules.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use windlass::model::{Deployment, Phase, Pod, Strategy};

use super::objects::{DeploymentBuilder, decode};
use super::world::{PodChange, World, pods, short_name};

mod foreign_changes;

/// A rollout so far.
pub struct Rollout {
    world: World,
    /// The Deployment as its user last wrote it.
    object: Value,
    /// Image tags whose pods never become ready.
    pub broken: Vec<String>,
    /// Image tags whose image cannot be pulled.
    pub failing: Vec<String>,
    /// How many pods of these at most; the others start.
    pub failing_at_most: usize,
    /// How many pods the nodes have room for.
    room: Option<usize>,
    /// Image tags whose deleted pods do not terminate.
    pub stuck: Vec<String>,
    /// Seconds from the deletion of a pod to its disappearance.
    pub stop_seconds: i64,
    /// When to stop.
    until: Option<Timestamp>,
    /// How many pods were ready when the kubelet last ran.
    reached: i64,
}

/// Seconds from the creation of a pod to its readiness.
const START_SECONDS: i64 = 1;

impl Rollout {
    /// A Deployment that no controller has synced yet.
    pub fn new(title: &str, deployment: DeploymentBuilder) -> Self {
        let object = deployment.clone().json();
        let mut world = World::new(deployment, 0);
        let (most, least) = world.budget();
        world.lines.push(format!("# {title}: at most {most} pods, at least {least} available"));
        world.lines.push("# pods/most, available/least, who, what".to_owned());
        Rollout {
            world,
            object,
            broken: Vec::new(),
            failing: Vec::new(),
            failing_at_most: usize::MAX,
            room: None,
            stuck: Vec::new(),
            stop_seconds: 1,
            until: None,
            reached: 0,
        }
    }

    /// The transcript so far.
    pub fn transcript(&self) -> String {
        self.world.lines.iter().map(|line| format!("{line}\n")).collect()
    }

    /// Adds a line to the transcript.
    pub fn say(&mut self, who: &str, what: &str) {
        self.world.say(who, what);
    }

    /// A user's edit of the spec.
    pub fn edit(&mut self, what: &str, change: impl FnOnce(&mut Value)) {
        // A rollback may have changed it since.
        let template = self.world.deployment.template.json();
        self.object["spec"]["template"] = serde_json::from_str(&template).unwrap();
        change(&mut self.object["spec"]);
        let edited: Deployment = decode(&self.object);
        self.world.edit(|now| {
            let (meta, annotations, status) = (now.meta.clone(), now.annotations.clone(), now.status.clone());
            *now = Deployment { meta, annotations, status, ..edited };
        });
        self.say("user", what);
    }

    /// A user writes an annotation.
    pub fn annotate(&mut self, key: &str, value: &str) {
        self.world.annotate(key, value);
    }

    /// A user gives a command about the rollout, or changes the policy.
    pub fn policy(&mut self, key: &str, value: &str) {
        self.world.annotate(&format!("windlass.dev/{key}"), value);
        self.say("user", &format!("{key}: {value}"));
    }

    /// Time passes, with nobody at work.
    pub fn sleep(&mut self, seconds: i64) {
        self.world.sleep(seconds);
        self.say("time", &format!("{seconds} s pass"));
    }

    /// From now on the nodes have room for so many pods.
    pub fn room_for(&mut self, pods: usize) {
        (self.room, self.world.binds_later) = (Some(pods), true);
        self.say("node", &format!("room for {}", super::world::pods(pods)));
    }

    /// One pod fewer may be available than the budget says.
    pub fn one_below(&mut self) {
        self.world.below = 1;
    }

    /// Runs for so many seconds at most, and until nothing changes.
    pub fn run_for(&mut self, seconds: i64) {
        let end = self.world.objects.now.saturating_add(SignedDuration::from_secs(seconds)).unwrap();
        self.until = Some(end);
        self.run(2000);
        self.until = None;
    }

    /// A user changes the image.
    pub fn set_image(&mut self, tag: &str) {
        self.edit(&format!("image {tag}"), |spec| {
            spec["template"]["spec"]["containers"][0]["image"] = format!("app:{tag}").into();
        });
    }

    /// A user changes the size.
    pub fn scale(&mut self, replicas: i32) {
        self.edit(&format!("replicas {replicas}"), |spec| spec["replicas"] = replicas.into());
    }

    /// Runs until nothing changes any more and no deadline is left.
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
            let synced = self.world.sync_deployment(usize::MAX, true);
            let (mut busy, mut waits) = (synced.wrote, Vec::from_iter(synced.requeue_after));
            // In the order of the versions: the names depend on a hash.
            let replica_sets = self
                .world
                .objects
                .replica_sets
                .iter()
                .map(|(name, replica_set)| (short_name(replica_set), name.clone()));
            let mut replica_sets: Vec<(String, Arc<str>)> = replica_sets.collect();
            replica_sets.sort();
            for (_, name) in replica_sets {
                let synced = self.world.sync_replica_set(&name, usize::MAX, true);
                busy |= synced.wrote;
                waits.extend(synced.requeue_after);
            }
            let now = self.world.objects.now;
            let mut looks: Vec<Timestamp> =
                waits.into_iter().map(|wait| now.saturating_add(wait).unwrap()).collect();
            busy |= self.kubelet(&mut looks);
            if busy {
                continue;
            }
            let Some(next) = looks.into_iter().min() else { return };
            if self.until.is_some_and(|until| next > until) {
                return;
            }
            let wait = next.duration_since(now).as_secs();
            if wait > 1 {
                self.say("time", &format!("{wait} s pass"));
            }
            self.world.objects.now = next;
        }
        assert!(rounds < 1000, "the world does not settle:\n{}", self.transcript());
    }

    /// Makes the pods ready that are due and drops those whose grace is over.
    fn kubelet(&mut self, looks: &mut Vec<Timestamp>) -> bool {
        let mut ready: BTreeMap<String, usize> = BTreeMap::new();
        let mut gone: BTreeMap<String, usize> = BTreeMap::new();
        let mut stuck: BTreeMap<(String, &str), usize> = BTreeMap::new();
        for name in self.world.objects.pods.keys().cloned().collect::<Vec<_>>() {
            let (pod, tag) = (&self.world.objects.pods[&name], self.world.tags[&name].clone());
            let after =
                |since: Timestamp, seconds| since.saturating_add(SignedDuration::from_secs(seconds)).unwrap();
            let (due, pod_change) = match pod.meta.deletion {
                Some(_) if self.stuck.contains(&tag) => continue,
                Some(since) => (after(since, self.stop_seconds), PodChange::Removed),
                None if pod.phase != Phase::Pending || self.broken.contains(&tag) => continue,
                None if self.failing.contains(&tag)
                    && (pod.waiting.is_some() || self.broken_pods() < self.failing_at_most) =>
                {
                    if pod.waiting.is_none() {
                        self.world.change_pod(&name, PodChange::Break);
                        *stuck.entry((tag, "ImagePullBackOff")).or_default() += 1;
                    }
                    continue;
                }
                None if pod.node().is_none() && !self.has_room() => {
                    if pod.waiting.is_none() {
                        self.world.change_pod(&name, PodChange::Unschedulable);
                        *stuck.entry((tag, "Unschedulable")).or_default() += 1;
                    }
                    continue;
                }
                None => (after(pod.meta.created, START_SECONDS), PodChange::Ready),
            };
            if due > self.world.objects.now {
                looks.push(due);
                continue;
            }
            self.world.change_pod(&name, pod_change);
            let count = if pod_change == PodChange::Removed { &mut gone } else { &mut ready };
            *count.entry(tag).or_default() += 1;
        }
        for (tag, count) in &ready {
            self.say("kubelet", &format!("web-{tag}: {} ready", pods(*count)));
        }
        for (tag, count) in &gone {
            self.say("kubelet", &format!("web-{tag}: {} gone", pods(*count)));
        }
        for ((tag, reason), count) in &stuck {
            self.say("kubelet", &format!("web-{tag}: {} {reason}", pods(*count)));
        }
        self.check_availability();
        !stuck.is_empty() || !ready.is_empty() || !gone.is_empty()
    }

    fn broken_pods(&self) -> usize {
        let is_broken = |pod: &&Arc<Pod>| {
            pod.is_active()
                && pod.waiting.as_ref().is_some_and(|waiting| &*waiting.reason == "ImagePullBackOff")
        };
        self.world.objects.pods.values().filter(is_broken).count()
    }

    fn has_room(&self) -> bool {
        let bound = self.world.objects.pods.values().filter(|pod| pod.node().is_some()).count();
        self.room.is_none_or(|room| bound < room)
    }

    fn ready_pods(&self) -> i64 {
        self.world.objects.pods.values().filter(|pod| is_ready(pod)).count() as i64
    }

    /// S2, checked on the pods themselves: a rollout in a world without faults never leaves fewer ready
    /// pods than the budget allows, once there were that many.
    fn check_availability(&mut self) {
        let deployment = &self.world.deployment;
        let (reached, ready) = (self.reached, self.ready_pods());
        self.reached = ready;
        if !matches!(deployment.strategy, Strategy::RollingUpdate { .. }) {
            return;
        }
        let (_, unavailable) = deployment.budget();
        let minimum = i64::from(deployment.replicas) - i64::from(unavailable) - self.world.below;
        assert!(
            ready >= minimum.min(reached),
            "S2: {ready} pods ready, {minimum} must be\n{}",
            self.transcript()
        );
    }

    fn end(&self) -> String {
        let replica_sets = self.world.objects.replica_sets.values().map(|replica_set| {
            let revision = replica_set.annotations.get("deployment.kubernetes.io/revision").unwrap_or("?");
            let (short_name, available) = (short_name(replica_set), replica_set.status.available);
            let text = format!("{short_name} {available}/{} (revision {revision})", replica_set.replicas);
            (replica_set.meta.created, short_name, text)
        });
        let mut replica_sets: Vec<(Timestamp, String, String)> = replica_sets.collect();
        replica_sets.sort();
        let replica_sets: Vec<String> = replica_sets.into_iter().map(|(.., text)| text).collect();
        let conditions = &self.world.deployment.status.conditions;
        let conditions: Vec<String> =
            conditions.iter().map(|c| format!("{}={} ({})", c.kind, c.status, c.reason)).collect();
        format!("{}; {}", replica_sets.join(", "), conditions.join(", "))
    }
}

fn is_ready(pod: &Pod) -> bool {
    !pod.meta.is_deleting() && pod.phase == Phase::Running && pod.ready_since.is_some()
}
