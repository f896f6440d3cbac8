//! Scripts that leave to chance which pod is deleted.
//!
//! On a scale-down, kube-controller-manager compares pods by node, phase, readiness, deletion cost, neighbours on the
//! node, the logarithms of their ages, and restarts; then their random UIDs decide (`ActivePodsWithRanks` in
//! `controller_utils.go`). If pods that a user can tell apart come to that, or to ages so close that the speed of the
//! machine decides, the next play may end otherwise, with kube-controller-manager alone, too. Judged by the objects of
//! a play: no rule of Windlass is used.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

use super::canonical::Canonical;
use super::recording::{Change, What};
use super::stage::{Script, controller_of, has_ended, is_ready};

/// Ages that differ by this factor are in different logarithmic buckets on any machine.
const FAR_APART: f64 = 4.0;

type Objects = BTreeMap<String, (&'static str, Value)>;

/// A pod that a controller has chosen, and the pods that it could have chosen.
struct Choice {
    victim: Value,
    others: Vec<Value>,
    neighbours: BTreeMap<String, usize>,
    at: Timestamp,
}

/// A sentence for each choice that was left to chance.
pub fn ties(changes: &[Change], script: &Script) -> Vec<String> {
    let canonical = Canonical::new(changes, &script.own_names);
    let identity = |pod: &Value| {
        let tag =
            script.tags.iter().rev().find(|(tagged, _)| *tagged == uid(pod)).map(|(_, tag)| tag.as_str());
        let metadata = &pod["metadata"];
        let shown = [&metadata["name"], &metadata["labels"], &metadata["annotations"]];
        (tag, shown.map(|value| canonical.value(value).to_string()))
    };
    let mut objects = Objects::new();
    let mut found = Vec::new();
    let mut rest = changes;
    for (number, step) in script.steps.iter().enumerate() {
        let until = rest.iter().position(|change| change.version > step.end).unwrap_or(rest.len());
        let (now, later) = rest.split_at(until);
        rest = later;
        let choices: Vec<Choice> = now.iter().filter_map(|change| apply(&mut objects, change)).collect();
        let stays = |pod: &&Value| objects.get(&uid(pod)).is_some_and(|(_, now)| is_active(now));
        for choice in &choices {
            let alike =
                |other: &&Value| identity(other) != identity(&choice.victim) && choice.is_by_chance(other);
            if let Some(other) = choice.others.iter().filter(stays).find(alike) {
                let [(_, [one, ..]), (_, [two, ..])] = [&choice.victim, other].map(identity);
                found.push(format!("step {number}: chance decides which of {one} and {two} is deleted"));
            }
        }
    }
    found
}

fn uid(object: &Value) -> String {
    object["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
}

fn is_active(pod: &Value) -> bool {
    pod["metadata"]["deletionTimestamp"].is_null() && !has_ended(pod)
}

/// Applies a change; the choice, if it is the deletion of one of too many pods.
fn apply(objects: &mut Objects, change: &Change) -> Option<Choice> {
    let key = uid(&change.object);
    let before = match change.what {
        What::Deleted => objects.remove(&key),
        What::Added | What::Modified => objects.insert(key.clone(), (change.kind, change.object.clone())),
    };
    let (_, victim) = before.filter(|(kind, pod)| *kind == "Pod" && is_active(pod))?;
    if change.what != What::Deleted && change.object["metadata"]["deletionTimestamp"].is_null() {
        return None;
    }
    // The pods of a StatefulSet are told apart by their ordinals.
    let (kind, owner) = objects.get(controller_of(&victim)?).filter(|(kind, _)| *kind != "StatefulSet")?;
    let wanted = owner["spec"]["replicas"].as_u64()?;
    let pods_of = |owner: &str| -> Vec<Value> {
        let pods = objects.values().filter(|(kind, pod)| *kind == "Pod" && is_active(pod));
        pods.map(|(_, pod)| pod.clone()).filter(|pod| controller_of(pod) == Some(owner)).collect()
    };
    let others = pods_of(&uid(owner));
    if !owner["metadata"]["deletionTimestamp"].is_null() || (others.len() as u64) < wanted {
        return None;
    }
    let mut neighbours = BTreeMap::new();
    if *kind == "ReplicaSet" && controller_of(owner).is_some() {
        let of_one =
            |it: &&(&str, Value)| it.0 == "ReplicaSet" && controller_of(&it.1) == controller_of(owner);
        let pods = objects.values().filter(of_one).flat_map(|(_, replica_set)| pods_of(&uid(replica_set)));
        for pod in pods.chain([victim.clone()]) {
            *neighbours.entry(node(&pod).to_owned()).or_default() += 1;
        }
    }
    // The deletion was requested this long before.
    let metadata = &change.object["metadata"];
    let grace =
        jiff::SignedDuration::from_secs(metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or_default());
    let at: Timestamp = metadata["deletionTimestamp"].as_str()?.parse().ok()?;
    Some(Choice { victim, others, neighbours, at: at - grace })
}

fn node(pod: &Value) -> &str {
    pod["spec"]["nodeName"].as_str().unwrap_or_default()
}

impl Choice {
    /// Whether nothing but close ages and UIDs tells the victim from this pod.
    fn is_by_chance(&self, other: &Value) -> bool {
        let rank = |pod: &Value| {
            let cost =
                pod["metadata"]["annotations"]["controller.kubernetes.io/pod-deletion-cost"].to_string();
            let neighbours = self.neighbours.get(node(pod)).copied();
            (node(pod).is_empty(), pod["status"]["phase"].to_string(), is_ready(pod), cost, neighbours)
        };
        if rank(&self.victim) != rank(other) {
            return false;
        }
        // Ready times that differ decide before the restarts, be it by the UIDs.
        if is_ready(other) && ready_since(&self.victim) != ready_since(other) {
            return !self.are_far_apart(other, ready_since);
        }
        restarts(&self.victim) == restarts(other) && !self.are_far_apart(other, created)
    }

    fn are_far_apart(&self, other: &Value, since: impl Fn(&Value) -> Option<Timestamp>) -> bool {
        let age = |pod: &Value| since(pod).map(|since| self.at.duration_since(since).as_secs_f64());
        match (age(&self.victim), age(other)) {
            (Some(one), Some(two)) => one.max(two) > FAR_APART * one.min(two).max(1.0),
            (one, two) => one.is_some() != two.is_some(),
        }
    }
}

fn created(pod: &Value) -> Option<Timestamp> {
    pod["metadata"]["creationTimestamp"].as_str()?.parse().ok()
}

fn ready_since(pod: &Value) -> Option<Timestamp> {
    let ready = pod["status"]["conditions"].as_array()?.iter().find(|it| it["type"] == "Ready")?;
    ready["lastTransitionTime"].as_str()?.parse().ok()
}

/// The most restarts of a container, and of a sidecar.
fn restarts(pod: &Value) -> [i64; 2] {
    let items = |at: &'static str| pod.pointer(at).and_then(Value::as_array).into_iter().flatten();
    let is_sidecar = |status: &&Value| {
        let of_name = |it: &&Value| it["name"] == status["name"];
        items("/spec/initContainers").find(of_name).is_some_and(|it| it["restartPolicy"] == "Always")
    };
    let count = |status: &Value| status["restartCount"].as_i64();
    let regular = items("/status/containerStatuses").filter_map(count).max();
    let sidecars = items("/status/initContainerStatuses").filter(is_sidecar).filter_map(count).max();
    [regular, sidecars].map(Option::unwrap_or_default)
}
