//! The toy namespace.

use std::sync::Arc;

use jiff::SignedDuration;
use serde_json::{Value, json};
use windlass::model::pod::Waiting;
use windlass::model::{
    Condition, DaemonSet, Interner, Phase, Pod, Record as _, ReplicaSet, ReplicationController, Uid,
    condition,
};
use windlass::plan::outcome_of::rolling_update::Names;
use windlass::plan::outcome_of::{self, Objects, replica_set};
use windlass::plan::rolling_update::bookkeeping::{DESIRED_REPLICAS, SOURCE};
use windlass::plan::rolling_update::job::{Adopter, Observed, Plan, Write, carry_out, concerns, plan};
use windlass::plan::rolling_update::request::{REQUEST, Request};

#[derive(Clone, Debug)]
pub struct World {
    /// The ReplicationControllers and the pods.
    pub objects: Objects,
    pub controls_pods: bool,
    /// Controllers of other kinds.
    pub replica_sets: Vec<Arc<ReplicaSet>>,
    pub daemon_sets: Vec<Arc<DaemonSet>>,
    pub created: usize,
    pub deleted: usize,
    /// Every write, in its order.
    pub log: Vec<String>,
}

impl World {
    /// OLD and NEW of these sizes, with all of their pods, and the bookkeeping that the plugin writes.
    pub fn new(old: i32, new: i32, desired: i32) -> Self {
        let mut world = World {
            objects: Objects::new("2026-01-01T00:00:00Z".parse().unwrap()),
            replica_sets: Vec::new(),
            daemon_sets: Vec::new(),
            controls_pods: true,
            created: 0,
            deleted: 0,
            log: Vec::new(),
        };
        world.add(rc("old", "1", old));
        world.add(ReplicaSet { replicas: new, ..target("new", "2", "old", desired) });
        world.controllers_act();
        world.make_ready(usize::MAX);
        (world.created, world.deleted) = (0, 0);
        world
    }

    /// Asks for an update from OLD to NEW.
    pub fn request(&mut self, options: &[(&str, &str)]) {
        self.annotate("old", REQUEST, "new");
        for (key, value) in options {
            self.annotate("old", &format!("windlass.dev/rolling-update-{key}"), value);
        }
    }

    pub fn add(&mut self, rc: ReplicaSet) {
        self.objects.replica_sets.insert(rc.meta.key.name.clone(), Arc::new(rc));
    }

    /// Someone deletes a controller; its pods stay.
    pub fn delete(&mut self, name: &str) {
        self.objects.replica_sets.remove(name).unwrap();
    }

    /// Someone deletes a controller with its pods.
    pub fn delete_with_pods(&mut self, name: &str) {
        let gone = self.objects.replica_sets.remove(name).unwrap();
        self.objects.pods.retain(|_, pod| !gone.controls(&pod.meta));
    }

    pub fn annotate(&mut self, name: &str, key: &str, value: &str) {
        outcome_of::annotate(&mut self.rc_mut(name).annotations, key, value);
    }

    pub fn remove_annotation(&mut self, name: &str, key: &str) {
        outcome_of::remove_annotations(&mut self.rc_mut(name).annotations, &[key]);
    }

    pub fn rc(&self, name: &str) -> Option<&Arc<ReplicaSet>> {
        self.objects.replica_sets.get(name)
    }

    pub fn rc_mut(&mut self, name: &str) -> &mut ReplicaSet {
        Arc::make_mut(self.objects.replica_sets.get_mut(name).unwrap())
    }

    pub fn sizes(&self) -> Vec<(&str, i32)> {
        self.objects.replica_sets.iter().map(|(name, rc)| (&**name, rc.replicas)).collect()
    }

    fn condition(&self, name: &str) -> Option<&Condition> {
        condition::find(&self.rc(name).unwrap().status.conditions, "RollingUpdate")
    }

    /// Status and reason of the condition.
    pub fn reason(&self, name: &str) -> String {
        self.condition(name).map_or(" ".to_owned(), |own| format!("{} {}", own.status, own.reason))
    }

    pub fn message(&self, name: &str) -> &str {
        self.condition(name).map_or("", |own| &*own.message)
    }

    pub fn owned(&self, name: &str) -> usize {
        self.rc(name).map_or(0, |rc| self.objects.pods_of(&**rc).len())
    }

    pub fn available(&self) -> usize {
        self.objects.pods.values().filter(|pod| pod.ready_since.is_some()).count()
    }

    pub fn advance(&mut self, seconds: i64) {
        self.objects.now += SignedDuration::from_secs(seconds);
    }

    /// As many pods of NEW are ready; those of OLD are.
    pub fn make_ready(&mut self, of_new: usize) {
        let (mut left, now) = (of_new, self.objects.now);
        for pod in self.objects.pods.values_mut().map(Arc::make_mut) {
            let is_old = pod.meta.controller.as_ref().is_some_and(|owner| owner.uid == Uid::new("uid-old"));
            let is_ready = is_old || left > 0;
            left = left.saturating_sub(usize::from(!is_old));
            pod.ready_since = is_ready.then(|| pod.ready_since.unwrap_or(now));
            pod.phase = if is_ready { Phase::Running } else { Phase::Pending };
            pod.waiting = (!is_ready).then(no_image);
        }
    }

    /// The controller of ReplicationControllers acts for one until nothing is left to do. Its pods end at once.
    pub fn controller_acts(&mut self, name: &str) {
        loop {
            let created = &mut self.created;
            let create = |rc: &ReplicaSet, objects: &mut Objects| {
                let prefix = format!("{}-", rc.meta.key.name);
                replica_set::create_pod(rc, &prefix, objects).unwrap().waiting = Some(no_image());
                *created += 1;
                true
            };
            let synced = replica_set::sync(name, &mut self.objects, create);
            let before = self.objects.pods.len();
            self.objects.pods.retain(|_, pod| !pod.meta.is_deleting());
            self.deleted += before - self.objects.pods.len();
            if !synced.wrote {
                return;
            }
        }
    }

    fn names(&self) -> Vec<Arc<str>> {
        self.objects.replica_sets.keys().cloned().collect()
    }

    pub fn controllers_act(&mut self) {
        for name in self.names() {
            self.controller_acts(&name);
        }
    }

    /// The daemon syncs the controllers, each once. Whether there was a write.
    pub fn sync_all(&mut self) -> bool {
        self.names().iter().fold(false, |wrote, name| self.sync(name) | wrote)
    }

    /// The plan for one controller; `None` where nothing concerns it.
    pub fn plan(&self, name: &str) -> Option<Plan> {
        let own = self.rc(name)?;
        concerns(own).then(|| self.decide(own, plan))
    }

    fn decide(&self, own: &ReplicaSet, decide: impl FnOnce(&Observed<'_>) -> Plan) -> Plan {
        let of_kind = |rc: &Arc<ReplicaSet>| Arc::new(ReplicationController((**rc).clone()));
        let all: Vec<Arc<ReplicationController>> = self.objects.replica_sets.values().map(of_kind).collect();
        let pods: Vec<Arc<Pod>> = self.objects.pods.values().cloned().collect();
        let sets = self.replica_sets.iter().map(|set| Adopter::of(&**set, &set.selector));
        let sets = sets.chain(self.daemon_sets.iter().map(|set| Adopter::of(&**set, &set.selector)));
        let (all, adopters, pods) = (&all, &sets.collect::<Vec<_>>(), &pods);
        let (controls_pods, now) = (self.controls_pods, self.objects.now);
        decide(&Observed { own, all, adopters, pods, controls_pods, now })
    }

    /// A client carries the same update out: at most one write to OLD or NEW. Its report stays with it.
    pub fn client_acts(&mut self, request: &Request, kept: &mut Option<Condition>) {
        let Some(mut own) = self.rc("old").map(|old| (**old).clone()) else { return };
        loop {
            own.status.conditions = kept.iter().cloned().collect();
            let plan = self.decide(&own, |observed| carry_out(observed, request));
            match (&plan.write, &plan.report) {
                (Some(Write::Report), Some(report)) => {
                    *kept = report.conditions(&own, self.objects.now).pop();
                }
                (Some(write), _) => return self.apply("old", write, &plan),
                (None, _) => return,
            }
        }
    }

    /// The daemon syncs one controller: at most one write. Whether there was one.
    pub fn sync(&mut self, name: &str) -> bool {
        let Some(plan) = self.plan(name) else { return false };
        let Some(write) = plan.write.clone() else { return false };
        self.apply(name, &write, &plan);
        true
    }

    fn apply(&mut self, name: &str, write: &Write, plan: &Plan) {
        let target = self.rc(name).unwrap().annotations.get(REQUEST).unwrap_or("new").to_owned();
        let names = Names { own: name, target: &target };
        let line = match write {
            Write::Report => format!("{name}: {}", plan.report.as_ref().unwrap().reason),
            Write::Annotate(on, _) => format!("{}: annotate", names.of(*on)),
            Write::Resize(on, to) => {
                let up = if *to > self.rc(names.of(*on)).unwrap().replicas { "U" } else { "D" };
                format!("{up}{to}")
            }
            Write::StepAside { .. } => "step aside".to_owned(),
            Write::TakeOver { .. } => "take over".to_owned(),
            Write::Delete(on) => {
                let gone = names.of(*on);
                assert_eq!((self.owned(gone), self.rc(gone).unwrap().replicas), (0, 0), "{gone}");
                format!("delete {gone}")
            }
        };
        self.log.push(line);
        outcome_of::rolling_update::apply(write, plan.report.as_ref(), names, &mut self.objects).unwrap();
    }

    /// Syncs until a resize, as `U3` or `D2`; `None` where nothing is left to write before one.
    pub fn next_resize(&mut self) -> Option<String> {
        for _ in 0..20 {
            let before = self.log.len();
            if !self.sync("old") {
                return None;
            }
            let last = self.log.last().filter(|_| self.log.len() > before)?;
            if last.starts_with(['U', 'D']) {
                return Some(last.clone());
            }
        }
        panic!("no end: {:?}", self.log)
    }

    /// Everyone acts until nothing changes.
    pub fn run(&mut self) {
        for _ in 0..500 {
            let wrote = self.sync_all();
            let before = (self.objects.replica_sets.clone(), self.objects.pods.clone());
            self.controllers_act();
            self.make_ready(usize::MAX);
            self.advance(1);
            if !wrote && before == (self.objects.replica_sets.clone(), self.objects.pods.clone()) {
                return;
            }
        }
        panic!("no end: {:?}", self.log)
    }
}

/// A controller whose pods have the labels of its selector.
pub fn rc(name: &str, version: &str, replicas: i32) -> ReplicaSet {
    let labels = json!({"app": "web", "deployment": version});
    selecting(name, replicas, &labels)
}

/// A controller that selects these labels.
pub fn selecting(name: &str, replicas: i32, labels: &Value) -> ReplicaSet {
    let object = json!({
        "metadata": {"namespace": "n", "name": name, "uid": format!("uid-{name}"), "resourceVersion": "1",
                     "generation": 1},
        "spec": {"replicas": replicas, "selector": labels, "template": {"metadata": {"labels": labels}}},
    });
    ReplicationController::decode(&object.to_string(), &mut Interner::default()).unwrap().0
}

/// The target of an update from `old`, with the bookkeeping that the plugin writes.
pub fn target(name: &str, version: &str, old: &str, desired: i32) -> ReplicaSet {
    let mut target = rc(name, version, 0);
    for (key, value) in [(SOURCE, format!("{old}:uid-{old}")), (DESIRED_REPLICAS, desired.to_string())] {
        outcome_of::annotate(&mut target.annotations, key, &value);
    }
    target
}

fn no_image() -> Box<Waiting> {
    let message = Some("no such image".into());
    Box::new(Waiting {
        reason: "ImagePullBackOff".into(),
        message,
        lacks_room: false,
        termination_message: None,
        since: None,
    })
}
