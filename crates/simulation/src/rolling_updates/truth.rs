//! The state of an update by the stored objects: computed here again, and without the planner.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

use super::scenario::Cleanup;
use crate::engine::objects::{
    self, NAMESPACE, is_available, is_deleting, is_live, name, number, owner, text, uid,
};
use windlass_apiserver::Sandbox;

/// The request.
pub const REQUEST: &str = "windlass.dev/rolling-update-to";
/// Options of the request.
pub const MAX_SURGE: &str = "windlass.dev/rolling-update-max-surge";
/// See [`MAX_SURGE`].
pub const MAX_UNAVAILABLE: &str = "windlass.dev/rolling-update-max-unavailable";
/// See [`MAX_SURGE`].
pub const PERIOD: &str = "windlass.dev/rolling-update-period";
/// See [`MAX_SURGE`].
pub const TIMEOUT: &str = "windlass.dev/rolling-update-timeout";
/// See [`MAX_SURGE`].
pub const CLEANUP: &str = "windlass.dev/rolling-update-cleanup";
/// See [`MAX_SURGE`].
pub const PAUSED: &str = "windlass.dev/rolling-update-paused";
/// See [`MAX_SURGE`].
pub const ROLLBACK: &str = "windlass.dev/rolling-update-rollback";
/// The time of the last resize.
pub const STEP_AT: &str = "windlass.dev/rolling-update-step-at";
/// On NEW, in a hand-over: the label value of the pods.
pub const HANDING_OVER: &str = "windlass.dev/handing-over";
/// On OLD: its size before the update.
pub const ORIGINAL: &str = "kubectl.kubernetes.io/original-replicas";
/// On NEW: its size at the end.
pub const DESIRED: &str = "kubectl.kubernetes.io/desired-replicas";
/// On NEW: name and UID of OLD.
pub const SOURCE: &str = "kubectl.kubernetes.io/update-source-id";

/// The annotations that an update leaves behind on neither controller.
pub const BOOKKEEPING: [&str; 13] = [
    REQUEST,
    MAX_SURGE,
    MAX_UNAVAILABLE,
    PERIOD,
    TIMEOUT,
    CLEANUP,
    PAUSED,
    ROLLBACK,
    STEP_AT,
    HANDING_OVER,
    ORIGINAL,
    DESIRED,
    SOURCE,
];

/// The ReplicationControllers.
pub fn controllers(sandbox: &Sandbox) -> Vec<Value> {
    sandbox.objects("ReplicationController")
}

/// One of them.
pub fn controller(sandbox: &Sandbox, name: &str) -> Option<Value> {
    sandbox.object("ReplicationController", NAMESPACE, name).map(|found| (*found).clone())
}

/// An annotation.
pub fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object["metadata"]["annotations"][key].as_str()
}

/// Name and UID, as in [`SOURCE`].
pub fn source_of(object: &Value) -> String {
    format!("{}:{}", name(object), uid(object))
}

/// Whether a ReplicationController controls a pod. ReplicaSets adopt pods, too.
pub fn is_of_a_controller(pod: &Value) -> bool {
    objects::controller(pod).is_some_and(|owner| owner["kind"] == "ReplicationController")
}

/// Whether a selector, as a map of labels, matches labels. An empty one selects nothing here.
pub fn selects(selector: &Value, labels: &Value) -> bool {
    let pairs = selector.as_object();
    pairs.is_some_and(|pairs| !pairs.is_empty() && pairs.iter().all(|(key, value)| labels[key] == *value))
}

/// The condition `RollingUpdate`.
pub fn condition(controller: &Value) -> Option<&Value> {
    objects::condition(controller, "RollingUpdate")
}

/// Its reason, or "".
pub fn reason(controller: &Value) -> &str {
    condition(controller).map_or("", |condition| text(condition, "/reason"))
}

/// The live pods of a controller, and how many of them are available.
pub fn count(controller: &Value, pods: &[Value], now: Timestamp) -> (i64, i64) {
    let owned = || pods.iter().filter(|pod| owner(pod) == uid(controller) && is_live(pod));
    let seconds = number(controller, "/spec/minReadySeconds");
    let available = owned().filter(|pod| is_available(pod, seconds, now)).count();
    (owned().count() as i64, available as i64)
}

/// The facts about a controller that count for the judgement of a write.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The object.
    pub object: Value,
    /// `spec.replicas`.
    pub size: i64,
    /// Its live pods, those included that have no controller and that it selects in a hand-over.
    pub live: i64,
    /// Its available pods.
    pub available: i64,
    /// Its controller has observed its size, and has created the pods for it.
    pub has_grown: bool,
    /// Its controller has observed its size, and has deleted the pods above it.
    pub has_shrunk: bool,
}

impl Facts {
    /// Those of a controller.
    pub fn new(object: &Value, pods: &[Value], now: Timestamp) -> Self {
        let (live, available) = count(object, pods, now);
        let size = number(object, "/spec/replicas");
        let is_observed =
            number(object, "/status/observedGeneration") >= number(object, "/metadata/generation");
        let reported = number(object, "/status/replicas");
        Facts {
            size,
            live,
            available,
            has_grown: is_observed && reported >= size,
            has_shrunk: is_observed && reported <= size,
            object: object.clone(),
        }
    }

    /// An annotation.
    pub fn get(&self, key: &str) -> Option<&str> {
        annotation(&self.object, key)
    }

    /// Whether it is being deleted.
    pub fn is_going(&self) -> bool {
        is_deleting(&self.object)
    }

    /// A size in an annotation.
    pub fn sized(&self, key: &str) -> Option<i64> {
        self.get(key)?.parse().ok()
    }
}

/// The promises of an update.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// The size at the end.
    pub desired: i64,
    /// How many pods may exist.
    pub max_total: i64,
    /// How many pods must be available.
    pub min_available: i64,
    /// The pause between new pods and the end of old ones, in seconds.
    pub period: i64,
    /// The longest time without progress, in seconds.
    pub timeout: i64,
    /// The treatment of OLD at the end.
    pub cleanup: Cleanup,
    /// Whether it is paused.
    pub is_paused: bool,
    /// Whether it is taken back.
    pub is_rollback: bool,
}

/// A number or percentage, and whether it is a percentage.
fn share(text: &str) -> Option<(i64, bool)> {
    let number = text.strip_suffix('%').unwrap_or(text).parse().ok()?;
    Some((number, text.ends_with('%')))
}

fn seconds(text: Option<&str>, default: i64) -> Option<i64> {
    text.map_or(Some(default), |text| text.strip_suffix('s')?.parse().ok())
}

fn flag(text: Option<&str>) -> Option<bool> {
    text.map_or(Some(false), |text| text.parse().ok())
}

impl Terms {
    /// Those of an update; `None` without a request that can be read, and for a pair that is in no update.
    ///
    /// The rule is that of the commands that the annotations come from. `kubectl rolling-update` up to 1.17 writes
    /// `update-source-id` and `desired-replicas` on the controller that it creates, goes on with an existing one only if
    /// both are there and the source is OLD by name and UID, and does not abort an update where OLD lacks
    /// `original-replicas`: without it no size is known to be good. Here an update that has given NEW no replicas yet can
    /// be aborted, too: OLD has its size.
    pub fn read(old: &Facts, new: Option<&Facts>) -> Option<Terms> {
        old.get(REQUEST)?;
        let new = new.filter(|new| !new.is_going());
        let is_handing_over = new.is_some_and(|new| new.get(HANDING_OVER).is_some());
        let is_rollback = flag(old.get(ROLLBACK))? && !is_handing_over;
        if new.is_some_and(|new| new.get(SOURCE) != Some(&source_of(&old.object))) {
            return None;
        }
        let is_untouched = new.is_some_and(|new| new.size == 0) && old.size > 0;
        let desired = match new {
            _ if is_rollback => old.sized(ORIGINAL).or(is_untouched.then_some(old.size))?,
            Some(new) => new.sized(DESIRED)?,
            None => old.sized(ORIGINAL).unwrap_or(old.size),
        };
        let (surge, is_share) = share(old.get(MAX_SURGE).unwrap_or("1"))?;
        let surge = if is_share { (desired * surge + 99) / 100 } else { surge };
        let (unavailable, is_share) = share(old.get(MAX_UNAVAILABLE).unwrap_or("0"))?;
        let unavailable = if is_share { desired * unavailable / 100 } else { unavailable.min(desired) };
        let unavailable = if surge == 0 && unavailable == 0 { 1 } else { unavailable };
        Some(Terms {
            desired,
            max_total: desired + surge,
            min_available: (desired - unavailable).max(0),
            period: seconds(old.get(PERIOD), 0)?,
            timeout: seconds(old.get(TIMEOUT), 300)?,
            cleanup: match old.get(CLEANUP) {
                None | Some("Delete") => Cleanup::Delete,
                Some("KeepName") => Cleanup::KeepName,
                Some("Preserve") => Cleanup::Preserve,
                Some(_) => return None,
            },
            is_paused: flag(old.get(PAUSED))? && !is_handing_over,
            is_rollback,
        })
    }
}

/// The obstacle that makes an update impossible, if there is one.
pub fn obstacle(old: &Value, all: &[Value], replica_sets: &[Value], now: Timestamp) -> Option<&'static str> {
    let request = annotation(old, REQUEST)?;
    let facts = |one: &Value| Facts::new(one, &[], now);
    let new = all.iter().find(|one| name(one) == request && !is_deleting(one));
    let Some(terms) = Terms::read(&facts(old), new.map(facts).as_ref()) else {
        return Some("an option cannot be read, or the two are in no update");
    };
    let is_bad = |text: Option<&str>| text.is_some_and(|text| text.parse::<u32>().is_err());
    let is_no_time = |text: Option<&str>| text.is_some_and(|text| text.parse::<Timestamp>().is_err());
    if is_bad(annotation(old, ORIGINAL)) || is_no_time(annotation(old, STEP_AT)) {
        return Some("the bookkeeping of OLD cannot be read");
    }
    let source = source_of;
    let has = |key| annotation(old, key).is_some();
    let is_left = has(SOURCE) && has(STEP_AT) && !has(ORIGINAL);
    if is_left && !all.iter().any(|one| annotation(old, SOURCE) == Some(&source(one))) {
        return Some("its own OLD was deleted midway");
    }
    let takes_from = |one: &&Value| {
        annotation(one, REQUEST) == Some(name(old))
            && annotation(old, SOURCE) == Some(&source(one))
            && !is_deleting(one)
    };
    if all.iter().any(|one| takes_from(&one)) {
        return Some("OLD is the target of another update");
    }
    let Some(new) = new else { return (!terms.is_rollback).then_some("there is no NEW") };
    if annotation(new, REQUEST).is_some() && annotation(new, SOURCE) != Some(&source(old)) {
        return Some("NEW is updated itself");
    }
    if (!terms.is_rollback && is_bad(annotation(new, DESIRED))) || is_no_time(annotation(new, STEP_AT)) {
        return Some("the bookkeeping of NEW cannot be read");
    }
    let pairs = new["spec"]["selector"].as_object();
    let differs = |(key, value): (&String, &Value)| {
        let of_old = &old["spec"]["selector"][key];
        of_old.is_string() && of_old != value
    };
    if annotation(new, HANDING_OVER).is_some() {
        return None;
    }
    if !pairs.is_some_and(|pairs| pairs.iter().any(differs)) {
        return Some("nothing tells the pods apart");
    }
    let labels = &new["spec"]["template"]["metadata"]["labels"];
    let is_rival = |one: &&Value| {
        ![name(old), name(new)].contains(&name(one)) && selects(&one["spec"]["selector"], labels)
    };
    if all.iter().any(|one| is_rival(&one)) {
        return Some("a third controller selects the pods");
    }
    let adopts = |set: &Value| selects(&set["spec"]["selector"]["matchLabels"], labels);
    if terms.cleanup == Cleanup::KeepName && replica_sets.iter().any(adopts) {
        return Some("a ReplicaSet would adopt the pods");
    }
    None
}

/// The states of the controllers, one for each change.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Since when.
    pub at: std::time::Duration,
    /// The controllers by name.
    pub facts: BTreeMap<String, Facts>,
    /// The selectors of the ReplicaSets.
    pub of_replica_sets: Vec<Value>,
}

impl Snapshot {
    /// The stored objects.
    pub fn new(
        (at, now): (std::time::Duration, Timestamp),
        all: &[Value],
        pods: &[Value],
        replica_sets: &[Value],
    ) -> Self {
        let facts = all.iter().map(|one| (name(one).to_owned(), Facts::new(one, pods, now)));
        let of_replica_sets = replica_sets.iter().map(|set| set["spec"]["selector"]["matchLabels"].clone());
        Snapshot { at, facts: facts.collect(), of_replica_sets: of_replica_sets.collect() }
    }

    /// Whether a controller exists, by name and UID as in [`SOURCE`].
    pub fn has(&self, source: &str) -> bool {
        self.facts.values().any(|facts| source_of(&facts.object) == source)
    }

    /// OLD and NEW of the updates in which a controller takes part.
    pub fn pairs(&self, controller: &str) -> impl Iterator<Item = (&Facts, Option<&Facts>)> {
        self.facts.values().filter_map(move |old| {
            let target = old.get(REQUEST)?;
            let takes_part = name(&old.object) == controller || target == controller;
            takes_part.then(|| (old, self.facts.get(target)))
        })
    }
}
