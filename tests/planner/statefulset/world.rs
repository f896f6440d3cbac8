//! A toy cluster for the planner of StatefulSets: pods, claims and revisions as JSON in maps, and a kubelet and a
//! garbage collector of a few rules.
//!
//! Every write is checked against the invariants at once, and every step is added to a transcript that a person
//! can read.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use windlass::controllers::statefulset::memory::{Remembered, StatefulSetMemory};
use windlass::model::{Interner, Meta, Pod, Record, StatefulSet, StatefulSetStatus};
use windlass::plan::statefulset::{Members, Observed, Plan, ordinals, plan, status};

pub type Objects = BTreeMap<String, Value>;

pub struct World {
    pub now: Timestamp,
    pub set: Value,
    /// Whether the StatefulSet exists.
    pub exists: bool,
    pub pods: Objects,
    pub claims: Objects,
    pub revisions: Objects,
    pub transcript: String,
    /// Image tags that cannot be pulled: their pods never start.
    pub missing_images: BTreeSet<String>,
    /// Image tags whose pods start and never become ready.
    pub crashing: BTreeSet<String>,
    /// Image tags whose pods fail as soon as they have started.
    pub failing: BTreeSet<String>,
    /// While set, a creation beyond this number of pods is refused.
    pub quota: Option<usize>,
    /// Pods whose creation is refused.
    pub refused: BTreeSet<String>,
    /// After how many effects each of the next syncs ends with a crash.
    pub crashes: Vec<usize>,
    pub stop_seconds: i64,
    pub(super) memory: StatefulSetMemory,
    pub(super) outcome: status::Outcome,
    serial: u64,
    /// When ended pods were deleted, by generation and name.
    pub(super) replaced: BTreeMap<(i64, String), Vec<Timestamp>>,
    /// The UIDs of claims that vanished, with their names.
    pub vanished: Vec<String>,
}

/// A StatefulSet called `db` without claims.
pub fn stateful_set(replicas: i64) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": "db", "namespace": "shop", "uid": "uid-set", "resourceVersion": "1", "generation": 1},
        "spec": {
            "replicas": replicas, "serviceName": "peers",
            "selector": {"matchLabels": {"app": "store"}},
            "podManagementPolicy": "OrderedReady",
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
            "revisionHistoryLimit": 10,
            "template": {
                "metadata": {"labels": {"app": "store"}},
                "spec": {"containers": [{"name": "c", "image": "store:v1"}]}
            }
        }
    })
}

pub fn parallel(mut set: Value) -> Value {
    set["spec"]["podManagementPolicy"] = "Parallel".into();
    set
}

/// With a claim for each pod, and the two halves of the retention policy.
pub fn with_claims(mut set: Value, when_deleted: &str, when_scaled: &str) -> Value {
    set["spec"]["volumeClaimTemplates"] =
        json!([{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}]);
    set["spec"]["persistentVolumeClaimRetentionPolicy"] =
        json!({"whenDeleted": when_deleted, "whenScaled": when_scaled});
    set
}

pub fn max_unavailable(mut set: Value, max: impl Into<Value>) -> Value {
    set["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"] = max.into();
    set
}

impl World {
    pub fn new(title: &str, set: Value) -> Self {
        let mut world = World {
            now: "2026-01-01T00:00:00Z".parse().unwrap(),
            set,
            exists: true,
            pods: BTreeMap::new(),
            claims: BTreeMap::new(),
            revisions: BTreeMap::new(),
            transcript: String::new(),
            missing_images: BTreeSet::new(),
            crashing: BTreeSet::new(),
            failing: BTreeSet::new(),
            quota: None,
            refused: BTreeSet::new(),
            crashes: Vec::new(),
            stop_seconds: 1,
            memory: StatefulSetMemory::default(),
            outcome: status::Outcome::default(),
            serial: 100,
            replaced: BTreeMap::new(),
            vanished: Vec::new(),
        };
        writeln!(world.transcript, "# {title}").unwrap();
        world
    }

    pub fn say(&mut self, actor: &str, what: &str) {
        writeln!(self.transcript, "{actor:<12}{what}").unwrap();
    }

    pub fn decode<T: Record>(value: &Value) -> T {
        T::decode(&value.to_string(), &mut Interner::default()).unwrap()
    }

    pub(super) fn stamp(&mut self, object: &mut Value, uid: &str) {
        self.serial += 1;
        let metadata = &mut object["metadata"];
        metadata["uid"] = format!("{uid}-{}", self.serial).into();
        metadata["resourceVersion"] = self.serial.to_string().into();
        metadata["creationTimestamp"] = self.now.to_string().into();
    }

    /// A user's edit of the spec.
    pub fn edit(&mut self, what: &str, change: impl FnOnce(&mut Value)) {
        self.say("user", what);
        let before = self.set["spec"].clone();
        change(&mut self.set["spec"]);
        if self.set["spec"] != before {
            let metadata = &mut self.set["metadata"];
            metadata["generation"] = (metadata["generation"].as_i64().unwrap() + 1).into();
        }
    }

    pub fn set_image(&mut self, tag: &str) {
        self.edit(&format!("image {tag}"), |spec| {
            spec["template"]["spec"]["containers"][0]["image"] = format!("store:{tag}").into();
        });
    }

    pub fn scale(&mut self, replicas: i64) {
        self.edit(&format!("replicas {replicas}"), |spec| spec["replicas"] = replicas.into());
    }

    pub fn partition(&mut self, partition: i64) {
        self.edit(&format!("partition {partition}"), |spec| {
            spec["updateStrategy"]["rollingUpdate"]["partition"] = partition.into();
        });
    }

    pub fn start(&mut self, start: i64) {
        self.edit(&format!("start {start}"), |spec| spec["ordinals"] = json!({"start": start}));
    }

    /// Does what `kubectl rollout undo` does: applies the data of a revision to the StatefulSet.
    pub fn undo(&mut self, number: i64) {
        let revision = self.revisions.values().find(|revision| revision["revision"] == number).unwrap();
        let mut template = revision["data"]["spec"]["template"].clone();
        assert_eq!(template.as_object_mut().unwrap().remove("$patch"), Some("replace".into()));
        self.edit(&format!("undo to revision {number}"), |spec| spec["template"] = template);
    }

    /// A user deletes a pod.
    pub fn delete_pod(&mut self, name: &str) {
        self.say("user", &format!("deletes {name}"));
        self.end_pod(name);
    }

    pub(super) fn end_pod(&mut self, name: &str) {
        let now = self.now.to_string();
        let pod = self.pods.get_mut(name).unwrap();
        if pod["metadata"]["deletionTimestamp"].is_null() {
            pod["metadata"]["deletionTimestamp"] = now.into();
        }
    }

    /// The claim is on its way out; while a pod uses it, it stays.
    pub fn delete_claim(&mut self, name: &str) {
        let now = self.now.to_string();
        let claim = self.claims.get_mut(name).unwrap();
        if claim["metadata"]["deletionTimestamp"].is_null() {
            claim["metadata"]["deletionTimestamp"] = now.into();
        }
    }

    /// Deletes the StatefulSet, in the background or in the foreground.
    pub fn delete_set(&mut self, in_foreground: bool) {
        self.say("user", if in_foreground { "deletes db in the foreground" } else { "deletes db" });
        self.exists = in_foreground;
        if in_foreground {
            self.set["metadata"]["deletionTimestamp"] = self.now.to_string().into();
        }
    }

    /// The collector strips the references to the StatefulSet, which is gone then.
    pub fn orphan(&mut self) {
        self.say("user", "deletes db and orphans what it owns");
        self.exists = false;
        let uid = self.set["metadata"]["uid"].clone();
        for object in
            self.pods.values_mut().chain(self.revisions.values_mut()).chain(self.claims.values_mut())
        {
            if let Some(owners) = object["metadata"]["ownerReferences"].as_array_mut() {
                owners.retain(|owner| owner["uid"] != uid);
            }
        }
    }

    /// A new StatefulSet of the name.
    pub fn create_again(&mut self) {
        self.say("user", "creates db again");
        self.exists = true;
        let metadata = self.set["metadata"].as_object_mut().unwrap();
        metadata.remove("deletionTimestamp");
        metadata.insert("uid".into(), "uid-again".into());
        metadata.insert("generation".into(), 1.into());
        self.set.as_object_mut().unwrap().remove("status");
        self.memory = StatefulSetMemory::default();
    }

    /// Runs until nothing happens any more and nothing is due.
    pub fn settle(&mut self) {
        self.run(2000, None);
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
            let mut is_busy = self.exists && self.sync(&mut looks);
            is_busy |= self.kubelet(&mut looks);
            is_busy |= self.collector();
            if is_busy {
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
        assert!(rounds < 2000, "the cluster does not settle:\n{}", self.transcript);
    }

    fn split<T: Record>(set: &StatefulSet, objects: &Objects) -> (Vec<Arc<T>>, Vec<Arc<T>>) {
        let all = objects.values().map(|value| Arc::new(Self::decode::<T>(value)));
        let known = all.filter(|object| set.controls(object.meta()) || object.meta().controller.is_none());
        known.partition(|object| set.controls(object.meta()))
    }

    pub(super) fn observed<'a>(&self, set: &'a StatefulSet) -> Observed<'a> {
        let (owned, orphans) = Self::split::<Pod>(set, &self.pods);
        let (revisions, orphan_revisions) = Self::split(set, &self.revisions);
        let members = Members::of(set, owned, orphans);
        let Remembered { backoff, recent, unready } = self.memory.of(set, &members, self.now);
        let others = self.pods.values().map(|pod| Arc::new(Self::decode::<Pod>(pod)));
        let others = others.filter(|pod| !set.controls(&pod.meta)).filter_map(|pod| {
            let (parent, digits) = ordinals::split(&pod.meta.key.name)?;
            let ordinal = (*parent == *set.meta.key.name).then(|| ordinals::ordinal(digits))??;
            Some((ordinal, pod.clone()))
        });
        let claims =
            self.claims.iter().map(|(name, claim)| (name.as_str().into(), Arc::new(Self::decode(claim))));
        Observed {
            set,
            foreign: others.collect(),
            members,
            unreadable_pods: 0,
            claims: claims.collect(),
            revisions,
            orphan_revisions,
            may_adopt: true,
            maybe_deleted: BTreeSet::new(),
            backoff,
            recent,
            unready,
            now: self.now,
        }
    }

    /// Plans without doing anything.
    pub fn plan(&self) -> Plan {
        let set = Self::decode::<StatefulSet>(&self.set);
        plan(&self.observed(&set))
    }

    fn sync(&mut self, looks: &mut Vec<Timestamp>) -> bool {
        let set = Self::decode::<StatefulSet>(&self.set);
        let plan = plan(&self.observed(&set));
        super::writes::check_plan(&plan);
        for note in self.memory.news(&set.meta.uid, &plan.notes) {
            let kind = if note.event.warning { "Warning" } else { "Normal" };
            self.say("event", &format!("{kind} {}: {}", note.event.reason, note.event.message));
        }
        self.outcome = status::Outcome::default();
        let Some(mut is_busy) = self.carry_out(&set, &plan) else {
            self.say("controller", "crashes");
            self.memory = StatefulSetMemory::default();
            // The backoff of ended pods is in the memory of the process: SS24 holds between its deletions only.
            self.replaced.clear();
            return true;
        };
        looks.extend(plan.requeue_after.map(|wait| self.now.saturating_add(wait).unwrap()));
        let status = status::settled(&set, &plan, self.outcome);
        super::writes::check_status(&set, &plan, &status);
        is_busy |= status != set.status;
        self.set["status"] = json!({
            "observedGeneration": status.observed_generation, "replicas": status.replicas, "readyReplicas": status.ready,
            "availableReplicas": status.available, "currentReplicas": status.current, "updatedReplicas": status.updated,
            "currentRevision": &*status.current_revision, "updateRevision": &*status.update_revision,
            "collisionCount": status.collision_count,
        });
        is_busy
    }

    /// Starts and stops pods.
    fn kubelet(&mut self, looks: &mut Vec<Timestamp>) -> bool {
        let mut said: BTreeMap<(&'static str, String), Vec<String>> = BTreeMap::new();
        let now = self.now.to_string();
        for name in self.pods.keys().cloned().collect::<Vec<_>>() {
            let pod = &self.pods[&name];
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
                    said.entry(("gone", tag)).or_default().push(name);
                }
                continue;
            }
            let has_claims = claims_of(pod).iter().all(|claim| {
                self.claims.get(claim).is_some_and(|claim| claim["metadata"]["deletionTimestamp"].is_null())
            });
            if pod["status"]["phase"] != "Pending" || self.missing_images.contains(&tag) || !has_claims {
                continue;
            }
            let at = due("creationTimestamp", 1).unwrap();
            if at > self.now {
                looks.push(at);
                continue;
            }
            let (what, status) = if self.failing.contains(&tag) {
                ("failed", json!({"phase": "Failed", "reason": "OutOfcpu"}))
            } else if self.crashing.contains(&tag) {
                ("crashing", running("False", 1, &now))
            } else {
                ("ready", running("True", 0, &now))
            };
            self.pods.get_mut(&name).unwrap()["status"] = status;
            said.entry((what, tag)).or_default().push(name);
        }
        let is_busy = !said.is_empty();
        for ((what, tag), pods) in said {
            self.say("kubelet", &format!("{what}: {} ({tag})", pods.join(", ")));
        }
        is_busy
    }

    /// Deletes what has no owner any more, and a claim once no pod uses it.
    fn collector(&mut self) -> bool {
        let mut said = Vec::new();
        let set_uid = self.set["metadata"]["uid"].as_str().unwrap().to_owned();
        let is_foreground = self.exists && !self.set["metadata"]["deletionTimestamp"].is_null();
        let mut live: BTreeSet<String> =
            self.pods.values().map(|pod| pod["metadata"]["uid"].as_str().unwrap().to_owned()).collect();
        if self.exists && !is_foreground {
            live.insert(set_uid.clone());
        }
        let is_gone = |object: &Value| {
            let owners = object["metadata"]["ownerReferences"].as_array().map_or(&[][..], |owners| owners);
            let is_live = |owner: &Value| {
                live.contains(owner["uid"].as_str().unwrap())
                    || !["Pod", "StatefulSet"].contains(&owner["kind"].as_str().unwrap())
            };
            !owners.is_empty() && !owners.iter().any(is_live)
        };
        let leaving = |objects: &Objects| {
            let objects = objects
                .iter()
                .filter(|(_, object)| is_gone(object) && object["metadata"]["deletionTimestamp"].is_null());
            objects.map(|(name, _)| name.clone()).collect::<Vec<_>>()
        };
        let (pods, claims) = (leaving(&self.pods), leaving(&self.claims));
        self.revisions.retain(|_, revision| !is_gone(revision));
        for pod in pods {
            self.end_pod(&pod);
            said.push(format!("deletes {pod}"));
        }
        for claim in claims {
            self.delete_claim(&claim);
            said.push(format!("deletes the claim {claim}"));
        }
        let used: BTreeSet<String> = self.pods.values().flat_map(claims_of).collect();
        let ended = self.claims.iter().filter(|(name, claim)| {
            !claim["metadata"]["deletionTimestamp"].is_null() && !used.contains(*name)
        });
        for name in ended.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            self.claims.remove(&name);
            said.push(format!("the claim {name} is gone"));
            self.vanished.push(name);
        }
        let owns = |object: &Value| {
            object["metadata"]["ownerReferences"]
                .as_array()
                .is_some_and(|owners| owners.iter().any(|owner| owner["uid"] == *set_uid))
        };
        if is_foreground && !self.pods.values().chain(self.claims.values()).any(owns) {
            self.exists = false;
            said.push("db is gone".into());
        }
        let is_busy = !said.is_empty();
        said.iter().for_each(|what| self.say("collector", what));
        is_busy
    }

    /// A pod that runs turns ready or not ready.
    pub fn set_ready(&mut self, name: &str, is_ready: bool) {
        self.say("kubelet", &format!("{name} is {}ready", if is_ready { "" } else { "not " }));
        let now = self.now.to_string();
        self.pods.get_mut(name).unwrap()["status"] =
            running(if is_ready { "True" } else { "False" }, 0, &now);
    }

    /// Another object of the name of a pod, with a controller of its own.
    pub fn take_name(&mut self, name: &str) {
        let mut pod = json!({"metadata": {"name": name, "namespace": "shop", "labels": {"app": "other"}, "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "uid-web", "controller": true}]},
            "spec": {"containers": [{"name": "c", "image": "web:w1"}]}, "status": {"phase": "Running"}});
        self.stamp(&mut pod, "uid-other");
        pod["metadata"]["ownerReferences"][0]["kind"] = "ReplicaSet".into();
        self.pods.insert(name.into(), pod);
    }

    /// The names of the pods, the tags of their images, and the state of each that is not available.
    pub fn state(&self) -> String {
        let mut pods: Vec<(usize, String)> =
            self.pods.iter().map(|(name, pod)| (name.len(), format!("{name} {}", pod_state(pod)))).collect();
        pods.sort();
        let pods: Vec<String> = pods.into_iter().map(|(_, pod)| pod).collect();
        let claims: Vec<String> =
            self.claims.iter().map(|(name, claim)| format!("{name} of {}", owners_of(claim))).collect();
        let pods = if pods.is_empty() { "no pods".into() } else { pods.join(", ") };
        let claims =
            if claims.is_empty() { String::new() } else { format!("; claims {}", claims.join(", ")) };
        format!("{pods}{claims}")
    }

    fn end(&self) -> String {
        if !self.exists {
            return self.state();
        }
        let StatefulSetStatus {
            replicas,
            ready,
            available,
            current,
            updated,
            current_revision,
            update_revision,
            ..
        } = Self::decode::<StatefulSet>(&self.set).status;
        let mut revisions: Vec<(i64, String)> =
            self.revisions.values().map(|r| (r["revision"].as_i64().unwrap(), revision_tag(r))).collect();
        revisions.sort();
        let revisions: Vec<String> =
            revisions.iter().map(|(number, tag)| format!("{number}={tag}")).collect();
        let of = |name: &str| self.revisions.get(name).map_or("none".into(), revision_tag);
        format!(
            "{}; replicas {replicas} ready {ready} available {available} current {current} ({}) updated {updated} ({}); \
             revisions {}",
            self.state(),
            of(&current_revision),
            of(&update_revision),
            revisions.join(" ")
        )
    }
}

fn running(ready: &str, restarts: i64, now: &str) -> Value {
    json!({"phase": "Running", "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": now}],
        "containerStatuses": [{"name": "c", "restartCount": restarts, "state": {"running": {"startedAt": now}}}]})
}

fn image_tag(spec: &Value) -> String {
    spec["containers"][0]["image"].as_str().unwrap().rsplit(':').next().unwrap().to_owned()
}

pub(super) fn tag(pod: &Value) -> String {
    image_tag(&pod["spec"])
}

pub(super) fn revision_tag(revision: &Value) -> String {
    image_tag(&revision["data"]["spec"]["template"]["spec"])
}

pub(super) fn claims_of(pod: &Value) -> Vec<String> {
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    volumes
        .filter_map(|volume| volume["persistentVolumeClaim"]["claimName"].as_str())
        .map(String::from)
        .collect()
}

pub(super) fn owners_of(claim: &Value) -> String {
    let owners = claim["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    let owners: Vec<String> = owners
        .map(|owner| format!("{} {}", owner["kind"].as_str().unwrap(), owner["name"].as_str().unwrap()))
        .collect();
    if owners.is_empty() { "nobody".into() } else { owners.join(" and ") }
}

fn pod_state(pod: &Value) -> String {
    let record = World::decode::<Pod>(pod);
    let Meta { .. } = record.meta;
    let state = match record.phase {
        _ if record.meta.is_deleting() => " stopping",
        windlass::model::Phase::Failed => " failed",
        windlass::model::Phase::Pending => " pending",
        _ if record.ready_since.is_none() => " not ready",
        _ => "",
    };
    format!("{}{state}", tag(pod))
}
