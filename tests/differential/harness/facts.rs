//! The comparable facts of one play of a workload.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::canonical::Canonical;
use super::recording::{Change, What};
use super::stage::{Script, has_ended, is_ready};

/// The subject of a fact.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The number of the step.
    pub step: usize,
    /// One of `script`, `created`, `rest`, `conditions`, `events`, `event order`, `deleted`, `sizes`, `counts`.
    pub section: &'static str,
    /// Kind and name.
    pub object: String,
    /// Which field, event or number.
    pub path: String,
}

/// The step of facts about all of a play. Events arrive late when many are sent.
pub const ALL_STEPS: usize = usize::MAX;

/// The path of the fact that an object exists at the end.
pub const EXISTS: &str = "exists";

pub type Facts = BTreeMap<Key, String>;

/// The state of a namespace while its history is read, and the facts so far.
struct Reader<'a> {
    canonical: Canonical,
    script: &'a Script,
    current: BTreeMap<(&'static str, String), Value>,
    /// By object, and how often each.
    events: BTreeMap<String, Vec<(String, i64)>>,
    facts: Facts,
}

/// The transient states of one step.
#[derive(Default)]
struct Passing {
    created: BTreeMap<String, Vec<Value>>,
    /// By object, all states that conditions have come to.
    conditions: BTreeMap<String, BTreeSet<String>>,
    sizes: BTreeMap<String, Vec<String>>,
    deleted: BTreeMap<String, Vec<String>>,
    counts: BTreeMap<(String, &'static str), (i64, i64)>,
}

/// The facts of a namespace's history.
pub fn facts(changes: &[Change], script: &Script) -> Facts {
    let canonical = Canonical::new(changes, &script.own_names);
    let mut reader =
        Reader { canonical, script, current: BTreeMap::new(), events: BTreeMap::new(), facts: Facts::new() };
    let mut rest = changes;
    for (number, step) in script.steps.iter().enumerate() {
        let until = rest.iter().position(|change| change.version > step.end).unwrap_or(rest.len());
        let (now, later) = rest.split_at(until);
        rest = later;
        let mut passing = Passing::default();
        reader.count(&mut passing);
        for change in now {
            reader.read(change, &mut passing);
        }
        reader.tell(number, "script", "script", "label", step.label.clone());
        reader.tell(number, "script", "script", "complaints", step.complaints.join("; "));
        reader.passed(number, passing);
        reader.at_rest(number);
    }
    reader.tell_events();
    reader.facts
}

fn title(kind: &str, name: &str) -> String {
    format!("{kind}/{name}")
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

impl Reader<'_> {
    fn tell(&mut self, step: usize, section: &'static str, object: &str, path: &str, value: String) {
        let key = Key { step, section, object: object.into(), path: path.into() };
        self.facts.insert(key, value);
    }

    fn name(&self, object: &Value) -> String {
        self.canonical.text(text(&object["metadata"]["name"]))
    }

    fn read(&mut self, change: &Change, passing: &mut Passing) {
        let object = &change.object;
        let uid = text(&object["metadata"]["uid"]).to_owned();
        let key = (change.kind, uid);
        let before = self.current.get(&key).cloned();
        let name = title(change.kind, &self.name(object));
        match change.kind {
            "Event" => self.read_event(change, before.as_ref()),
            "Pod" => {
                let was_leaving = before.as_ref().is_some_and(is_leaving);
                if (change.what == What::Deleted || is_leaving(object)) && !was_leaving {
                    let of = self.owner(object);
                    let worth = self.worth(before.as_ref().unwrap_or(object));
                    passing.deleted.entry(of).or_default().push(worth);
                }
            }
            _ => {
                let old = before.as_ref().map(conditions).unwrap_or_default();
                for state in conditions(object).into_iter().filter(|state| !old.contains(state)) {
                    passing.conditions.entry(name.clone()).or_default().insert(self.canonical.text(&state));
                }
                let size = |object: &Value| object["spec"]["replicas"].to_string();
                let old = before.as_ref().map(size);
                if old.as_ref() != Some(&size(object)) {
                    let sizes =
                        passing.sizes.entry(name.clone()).or_insert_with(|| old.into_iter().collect());
                    sizes.push(size(object));
                }
            }
        }
        let is_own = self
            .script
            .own_names
            .contains(&(change.kind.to_owned(), text(&object["metadata"]["name"]).to_owned()));
        if change.what == What::Added && !is_own && change.kind != "Event" {
            let of = if change.kind == "Pod" { self.owner(object) } else { name };
            passing.created.entry(of).or_default().push(self.clean(change.kind, object));
        }
        if change.what == What::Deleted {
            self.current.remove(&key);
        } else {
            self.current.insert(key, object.clone());
        }
        if change.kind != "Event" {
            self.count(passing);
        }
    }

    fn read_event(&mut self, change: &Change, before: Option<&Value>) {
        if change.what == What::Deleted {
            return;
        }
        let event = &change.object;
        let count =
            |event: &Value| event["series"]["count"].as_i64().or(event["count"].as_i64()).unwrap_or(1).max(1);
        let more = count(event) - before.map_or(0, count);
        let about = &event["involvedObject"];
        let about = title(text(&about["kind"]), &self.canonical.text(text(&about["name"])));
        let from = match (text(&event["source"]["component"]), text(&event["reportingComponent"])) {
            (source, reporting) if source == reporting => source.to_owned(),
            (source, reporting) => format!("source {source:?}, reporting {reporting:?}"),
        };
        let reason = text(&event["reason"]);
        let (mut from, mut message) = (from, text(&event["message"]));
        // client-go forgets one message by chance for each that it combines. Pods have messages of their own, so there
        // chance makes no difference.
        if reason == "ScalingReplicaSet"
            && let Some(combined) = message.strip_prefix("(combined from similar events): ")
        {
            (from, message) = (text(&event["source"]["component"]).to_owned(), combined);
        }
        let line = format!("{} {reason} from {from}: {message}", text(&event["type"]));
        let line = self.canonical.text(&line);
        self.events.entry(about).or_default().push((line, more));
    }

    /// The owner of the pod.
    fn owner(&self, pod: &Value) -> String {
        let owners = pod["metadata"]["ownerReferences"].as_array();
        let owner = owners.and_then(|owners| owners.iter().find(|owner| owner["controller"] == true));
        let of = owner.map(|owner| title(text(&owner["kind"]), &self.canonical.text(text(&owner["name"]))));
        format!("pods of {}", of.unwrap_or_else(|| "no owner".into()))
    }

    /// The state of a pod when it was chosen.
    fn worth(&self, pod: &Value) -> String {
        let tag = self.script.tags.iter().rev().find(|(uid, _)| *uid == text(&pod["metadata"]["uid"]));
        if let Some((_, tag)) = tag {
            return tag.clone();
        }
        let ready = if is_ready(pod) { "ready" } else { "not ready" };
        let node = if pod["spec"]["nodeName"].is_null() { "without node" } else { "on a node" };
        let state = format!("{} {ready} {node}", text(&pod["status"]["phase"]));
        match self.owner(pod).strip_prefix("pods of StatefulSet/") {
            Some(_) => format!("{}: {state}", self.name(pod)),
            None => state,
        }
    }

    /// The least and the greatest counts of pods in a step. The pods of one ReplicaSet go while those of another
    /// come, so in all only those that are ready are counted, and what the ReplicaSets want.
    fn count(&self, passing: &mut Passing) {
        let mut now: BTreeMap<(String, &'static str), i64> = BTreeMap::new();
        for ((kind, _), object) in &self.current {
            match *kind {
                "Pod" => {
                    let active = !has_ended(object) && !is_leaving(object);
                    let ready = i64::from(active && is_ready(object));
                    let of = self.owner(object);
                    *now.entry(("all pods".into(), "ready")).or_default() += ready;
                    *now.entry((of.clone(), "ready")).or_default() += ready;
                    *now.entry((of, "active")).or_default() += i64::from(active);
                }
                "ReplicaSet" | "ReplicationController" => {
                    let wanted = object["spec"]["replicas"].as_i64().unwrap_or_default();
                    *now.entry(("all pods".into(), "wanted")).or_default() += wanted;
                }
                _ => {}
            }
        }
        for key in passing.counts.keys() {
            now.entry(key.clone()).or_default();
        }
        for (key, count) in now {
            let (least, most) = passing.counts.entry(key).or_insert((count, count));
            (*least, *most) = ((*least).min(count), (*most).max(count));
        }
    }

    fn passed(&mut self, step: usize, passing: Passing) {
        let Passing { created, conditions, sizes, deleted, counts } = passing;
        for (object, mut values) in created {
            values.sort_by_key(Value::to_string);
            if object.starts_with("pods of") {
                self.tell(step, "created", &object, "number", values.len().to_string());
            }
            // Pods that are created together are alike.
            values.dedup();
            for (number, value) in values.iter().enumerate() {
                let at = if number == 0 { String::new() } else { format!("variant {number}.") };
                self.leaves(step, "created", &object, &at, value);
            }
        }
        for (object, states) in conditions {
            for state in states {
                self.tell(step, "conditions", &object, &state, "seen".into());
            }
        }
        for (object, sizes) in sizes {
            self.tell(step, "sizes", &object, "spec.replicas", sizes.join(" -> "));
        }
        for (of, mut pods) in deleted {
            pods.sort();
            self.tell(step, "deleted", &of, "", pods.join(", "));
        }
        for ((of, what), (least, most)) in counts {
            self.tell(step, "counts", &of, what, format!("{least} to {most}"));
        }
    }

    fn tell_events(&mut self) {
        for (object, lines) in std::mem::take(&mut self.events) {
            let mut order: Vec<&str> = Vec::new();
            let mut sums: BTreeMap<&str, i64> = BTreeMap::new();
            for (line, count) in &lines {
                *sums.entry(line).or_default() += count;
                // A controller creates and deletes many pods at a time.
                if object.starts_with("Deployment/") && order.last() != Some(&line.as_str()) {
                    order.push(line);
                }
            }
            for (line, count) in &sums {
                // How often something is tried again is a matter of time.
                let count = if line.starts_with("Warning") { "some".into() } else { count.to_string() };
                self.tell(ALL_STEPS, "events", &object, line, count);
            }
            self.tell(ALL_STEPS, "event order", &object, "", order.join(" | "));
        }
    }

    fn at_rest(&mut self, step: usize) {
        let mut pods: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for ((kind, _), object) in self.current.clone() {
            let clean = self.clean(kind, &object);
            match kind {
                "Event" => {}
                "Pod" => pods.entry(self.owner(&object)).or_default().push(clean),
                _ => {
                    let name = title(kind, &self.name(&object));
                    self.tell(step, "rest", &name, EXISTS, "yes".into());
                    self.leaves(step, "rest", &name, "", &clean);
                }
            }
        }
        for (of, mut pods) in pods {
            for pod in &mut pods {
                // The specification is compared at the creation, and a script writes the statuses.
                pod.as_object_mut().unwrap().remove("spec");
                let status = json!({"phase": pod["status"]["phase"], "ready": is_ready(pod)});
                pod["status"] = status;
            }
            pods.sort_by_key(Value::to_string);
            self.tell(step, "rest", &of, "number", pods.len().to_string());
            // The pods of a StatefulSet have names that are the same in each play.
            let has_names = of.starts_with("pods of StatefulSet/");
            for (number, pod) in pods.iter().enumerate() {
                let name = if has_names { text(&pod["metadata"]["name"]).into() } else { number.to_string() };
                self.leaves(step, "rest", &of, &format!("{name}."), pod);
            }
        }
    }

    /// The object without what differs in each play.
    fn clean(&self, kind: &str, object: &Value) -> Value {
        let mut object = object.clone();
        let generation = object["metadata"]["generation"].as_i64().unwrap_or_default();
        if let Some(metadata) = object["metadata"].as_object_mut() {
            for field in ["uid", "resourceVersion", "creationTimestamp", "managedFields", "namespace"] {
                metadata.remove(field);
            }
            if let Some(owners) = metadata.get("ownerReferences").and_then(Value::as_array) {
                let by_name = owners
                    .iter()
                    .map(|owner| (title(text(&owner["kind"]), text(&owner["name"])), owner.clone()));
                let by_name: serde_json::Map<_, _> = by_name.collect();
                metadata.insert("ownerReferences".into(), by_name.into());
            }
        }
        for field in ["kind", "apiVersion"] {
            object.as_object_mut().unwrap().remove(field);
        }
        if let Some(observed) = object["status"]["observedGeneration"].as_i64() {
            // How often an object was written before is a number of its own.
            let behind = generation - observed;
            object["status"]["observedGeneration"] =
                format!("generation - {behind}").replace(" - 0", "").into();
        }
        if kind == "Service" {
            // Addresses and ports that the API server has chosen.
            object.as_object_mut().unwrap().remove("spec");
        }
        // Sets, in the order of each controller.
        for list in ["endpoints", "ports"] {
            if let Some(items) = object[list].as_array_mut() {
                items.sort_by_key(Value::to_string);
            }
        }
        if let Some(active) = object["status"]["active"].as_array_mut() {
            for job in active.iter_mut().filter_map(Value::as_object_mut) {
                job.remove("resourceVersion");
                job.remove("namespace");
            }
        }
        if kind != "Pod"
            && let Some(conditions) = object["status"]["conditions"].as_array()
        {
            let by_type = conditions.iter().map(|it| (text(&it["type"]).to_owned(), state(it).into()));
            let by_type: serde_json::Map<_, _> = by_type.collect();
            object["status"]["conditions"] = by_type.into();
        }
        self.canonical.value(&object)
    }

    fn leaves(&mut self, step: usize, section: &'static str, object: &str, at: &str, value: &Value) {
        match value {
            Value::Object(fields) if !fields.is_empty() => {
                for (key, value) in fields {
                    self.leaves(step, section, object, &format!("{at}{key}."), value);
                }
            }
            Value::Array(items) if !items.is_empty() => {
                for (number, value) in items.iter().enumerate() {
                    self.leaves(step, section, object, &format!("{at}{number}."), value);
                }
            }
            leaf => {
                let leaf = leaf.as_str().map_or_else(|| leaf.to_string(), shorten);
                self.tell(step, section, object, at.trim_end_matches('.'), leaf);
            }
        }
    }
}

/// Texts of hundreds of kilobytes are compared by their length and beginning.
fn shorten(text: &str) -> String {
    if text.len() < 2500 {
        return text.to_owned();
    }
    let begin: String = text.chars().take(40).collect();
    format!("{begin}... of {} bytes", text.len())
}

fn is_leaving(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

fn conditions(object: &Value) -> Vec<String> {
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.iter().map(|it| format!("{}={}", text(&it["type"]), state(it))).collect()
}

/// The content of a condition. Its times are random; their presence is not.
fn state(condition: &Value) -> String {
    let [status, reason, message] = ["status", "reason", "message"].map(|field| text(&condition[field]));
    let timeless = if condition["lastTransitionTime"].is_null() { ", without a time" } else { "" };
    format!("{status} {reason}: {message}{timeless}")
}
