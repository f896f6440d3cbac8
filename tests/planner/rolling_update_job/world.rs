//! The toy namespace.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use windlass::model::int_or_percent::IntOrPercent;
use windlass::model::{DaemonSet, Interner, Pod, Record as _, ReplicaSet, ReplicationController};
use windlass::plan::rolling_update::bookkeeping::{
    DESIRED_REPLICAS, HANDING_OVER, NEXT_CONTROLLER, ORIGINAL_REPLICAS, SOURCE, moved,
};
use windlass::plan::rolling_update::job::{Observed, Plan, Side, Write, concerns, plan};
use windlass::plan::rolling_update::request::{REQUEST, STEP_AT};
use windlass::plan::rolling_update::{self as steps, Bounds, Cleanup, Step};

/// A ReplicationController.
#[derive(Clone, Debug, PartialEq)]
pub struct Rc {
    pub name: String,
    pub uid: String,
    pub replicas: i32,
    pub annotations: BTreeMap<String, String>,
    pub selector: BTreeMap<String, String>,
    pub owners: Value,
    pub condition: Value,
    pub failure: Value,
    /// The report of its controller.
    reported: (i32, i64),
    generation: i64,
}

/// A pod.
#[derive(Clone, Debug, PartialEq)]
pub struct ToyPod {
    number: usize,
    pub labels: BTreeMap<String, String>,
    pub owner: Option<String>,
    pub ready_since: Option<Timestamp>,
}

#[derive(Clone, Debug)]
pub struct World {
    pub rcs: Vec<Rc>,
    pub pods: Vec<ToyPod>,
    pub now: Timestamp,
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
            rcs: vec![rc("old", "1", old), Rc { replicas: new, ..target("new", "2", "old", desired) }],
            pods: Vec::new(),
            replica_sets: Vec::new(),
            daemon_sets: Vec::new(),
            now: "2026-01-01T00:00:00Z".parse().unwrap(),
            controls_pods: true,
            created: 0,
            deleted: 0,
            log: Vec::new(),
        };
        world.controllers_act();
        world.make_ready(usize::MAX);
        (world.created, world.deleted) = (0, 0);
        world
    }

    /// Asks for an update from OLD to NEW.
    pub fn request(&mut self, options: &[(&str, &str)]) {
        let options =
            options.iter().map(|(key, value)| (format!("windlass.dev/rolling-update-{key}"), *value));
        let all = options.chain([(REQUEST.to_owned(), "new")]);
        self.rc_mut("old").annotations.extend(all.map(|(key, value)| (key, value.to_owned())));
    }

    pub fn rc(&self, name: &str) -> Option<&Rc> {
        self.rcs.iter().find(|rc| rc.name == name)
    }

    pub fn rc_mut(&mut self, name: &str) -> &mut Rc {
        self.rcs.iter_mut().find(|rc| rc.name == name).unwrap()
    }

    /// Status and reason of the condition.
    pub fn reason(&self, name: &str) -> String {
        let condition = &self.rc(name).unwrap().condition;
        let text = |key: &str| condition[key].as_str().unwrap_or_default();
        format!("{} {}", text("status"), text("reason"))
    }

    pub fn message(&self, name: &str) -> &str {
        self.rc(name).unwrap().condition["message"].as_str().unwrap_or_default()
    }

    pub fn owned(&self, name: &str) -> usize {
        let uid = self.rc(name).map(|rc| rc.uid.clone());
        self.pods.iter().filter(|pod| pod.owner.is_some() && pod.owner == uid).count()
    }

    pub fn available(&self) -> usize {
        self.pods.iter().filter(|pod| pod.ready_since.is_some()).count()
    }

    pub fn advance(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
    }

    /// As many pods of NEW are ready; those of OLD are.
    pub fn make_ready(&mut self, of_new: usize) {
        let mut left = of_new;
        for pod in &mut self.pods {
            let is_old = pod.owner.as_deref() == Some("uid-old");
            let is_ready = is_old || left > 0;
            left = left.saturating_sub(usize::from(!is_old));
            pod.ready_since = is_ready.then(|| pod.ready_since.unwrap_or(self.now));
        }
    }

    /// The controller of ReplicationControllers acts for one: adopts, releases, creates, deletes, reports.
    pub fn controller_acts(&mut self, name: &str) {
        let Some(rc) = self.rcs.iter_mut().find(|rc| rc.name == name) else { return };
        for pod in &mut self.pods {
            let matches = rc.selector.iter().all(|(key, value)| pod.labels.get(key) == Some(value));
            match &pod.owner {
                Some(owner) if *owner == rc.uid && !matches => pod.owner = None,
                None if matches => pod.owner = Some(rc.uid.clone()),
                _ => {}
            }
        }
        let size = usize::try_from(rc.replicas).unwrap();
        let own = |pod: &ToyPod| pod.owner.as_ref() == Some(&rc.uid);
        while self.pods.iter().filter(|pod| own(pod)).count() > size {
            let last = self.pods.iter().rposition(own).unwrap();
            self.pods.remove(last);
            self.deleted += 1;
        }
        while self.pods.iter().filter(|pod| own(pod)).count() < size {
            self.created += 1;
            self.pods.push(ToyPod {
                number: self.created,
                labels: rc.selector.clone(),
                owner: Some(rc.uid.clone()),
                ready_since: None,
            });
        }
        rc.reported = (rc.replicas, rc.generation);
    }

    pub fn controllers_act(&mut self) {
        for name in self.rcs.iter().map(|rc| rc.name.clone()).collect::<Vec<_>>() {
            self.controller_acts(&name);
        }
    }

    /// The plan for one controller; `None` where nothing concerns it.
    pub fn plan(&self, name: &str) -> Option<Plan> {
        let all: Vec<Arc<ReplicationController>> = self.rcs.iter().map(|rc| rc.decoded()).collect();
        let own = all.iter().find(|rc| *rc.0.meta.key.name == *name)?.0.clone();
        let pods: Vec<Arc<Pod>> = self.pods.iter().map(ToyPod::decoded).collect();
        let Self { controls_pods, now, ref replica_sets, ref daemon_sets, .. } = *self;
        let (own, all, pods) = (&own, &all, &pods);
        concerns(own)
            .then(|| plan(&Observed { own, all, replica_sets, daemon_sets, pods, controls_pods, now }))
    }

    /// The daemon syncs one controller: at most one write. Whether there was one.
    pub fn sync(&mut self, name: &str) -> bool {
        let Some(plan) = self.plan(name) else { return false };
        let Some(write) = plan.write.clone() else { return false };
        self.apply(name, &write, &plan);
        true
    }

    fn apply(&mut self, name: &str, write: &Write, plan: &Plan) {
        let target = self.rc(name).unwrap().annotations.get(REQUEST).cloned().unwrap_or_default();
        let side = |side: &Side| if *side == Side::Own { name.to_owned() } else { target.clone() };
        let now = self.now.to_string();
        match write {
            Write::Report => {
                let report = plan.report.as_ref().unwrap();
                let own = self.rc(name).unwrap().decoded();
                let conditions = report.conditions(&own.0, self.now);
                let after = conditions.iter().find(|one| &*one.kind == "RollingUpdate").unwrap();
                self.rc_mut(name).condition = json!({
                    "type": "RollingUpdate", "status": after.status, "reason": after.reason,
                    "message": after.message, "lastTransitionTime": after.last_transition.unwrap().to_string()});
                self.log.push(format!("{name}: {}", after.reason));
            }
            Write::Annotate(on, annotations) => {
                let rc = self.rc_mut(&side(on));
                for (key, value) in annotations {
                    match value {
                        Some(value) => rc.annotations.insert((*key).to_owned(), value.clone()),
                        None => rc.annotations.remove(*key),
                    };
                }
                self.log.push(format!("{}: annotate", side(on)));
            }
            Write::Resize(on, to) => {
                let rc = self.rc_mut(&side(on));
                let up = if *to > rc.replicas { "U" } else { "D" };
                (rc.replicas, rc.generation) = (*to, rc.generation + 1);
                rc.annotations.insert(STEP_AT.to_owned(), now);
                self.log.push(format!("{up}{to}"));
            }
            Write::StepAside { key, value } => {
                let rc = self.rc_mut(&target);
                (rc.replicas, rc.generation) = (0, rc.generation + 1);
                rc.selector.insert(key.clone(), moved(value));
                rc.annotations.insert(HANDING_OVER.to_owned(), value.clone());
                self.log.push("step aside".to_owned());
            }
            Write::TakeOver { key, value, replicas } => {
                let mut selector = self.rc(&target).unwrap().selector.clone();
                selector.insert(key.clone(), value.clone());
                let rc = self.rc_mut(name);
                (rc.selector, rc.replicas, rc.generation) = (selector, *replicas, rc.generation + 1);
                rc.annotations.retain(|key, _| key != ORIGINAL_REPLICAS && key != NEXT_CONTROLLER);
                rc.annotations.insert(STEP_AT.to_owned(), now);
                self.log.push("take over".to_owned());
            }
            Write::Delete(on) => {
                let gone = side(on);
                assert_eq!((self.owned(&gone), self.rc(&gone).unwrap().replicas), (0, 0), "{gone}");
                self.rcs.retain(|rc| rc.name != gone);
                self.log.push(format!("delete {gone}"));
            }
        }
    }

    /// A client drives the same update: one step.
    pub fn client_acts(&mut self, cleanup: Cleanup) {
        let (Some(old), Some(new)) = (self.rc("old"), self.rc("new")) else { return };
        let (old, new) = (old.decoded(), new.decoded());
        let pods: Vec<Arc<Pod>> = self.pods.iter().map(ToyPod::decoded).collect();
        let step = steps::plan(&steps::Observed {
            shrinking: Some(&old.0),
            growing: &new.0,
            pods: &pods,
            bounds: Bounds::resolve(3, IntOrPercent::Int(1), IntOrPercent::Int(0)),
            cleanup,
            label_key: "deployment",
            now: self.now,
        });
        let key = || "deployment".to_owned();
        let write = match step {
            Step::Grow { to } => Write::Resize(Side::Target, to),
            Step::Shrink { to } => Write::Resize(Side::Own, to),
            Step::StepAside { value } => Write::StepAside { key: key(), value },
            Step::TakeOver { value } => Write::TakeOver { key: key(), value, replicas: 3 },
            Step::DeleteGrowing => Write::Delete(Side::Target),
            Step::DeleteShrinking => Write::Delete(Side::Own),
            Step::Wait(_) | Step::Finished => return,
        };
        self.apply("old", &write, &Plan { write: None, report: None, look_again: None });
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
            let names: Vec<String> = self.rcs.iter().map(|rc| rc.name.clone()).collect();
            let wrote = names.iter().fold(false, |wrote, name| self.sync(name) | wrote);
            let before = (self.rcs.clone(), self.pods.clone());
            self.controllers_act();
            self.make_ready(usize::MAX);
            self.advance(1);
            if !wrote && before == (self.rcs.clone(), self.pods.clone()) {
                return;
            }
        }
        panic!("no end: {:?}", self.log)
    }
}

/// A controller whose pods have the labels of its selector.
pub fn rc(name: &str, version: &str, replicas: i32) -> Rc {
    let labels = [("app", "web"), ("deployment", version)];
    Rc {
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        replicas,
        annotations: BTreeMap::new(),
        selector: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        owners: json!([]),
        condition: Value::Null,
        failure: Value::Null,
        reported: (0, 0),
        generation: 1,
    }
}

/// The target of an update from `old`, with the bookkeeping that the plugin writes.
pub fn target(name: &str, version: &str, old: &str, desired: i32) -> Rc {
    let mut target = rc(name, version, 0);
    let bookkeeping = [(SOURCE, format!("{old}:uid-{old}")), (DESIRED_REPLICAS, desired.to_string())];
    target.annotations.extend(bookkeeping.map(|(key, value)| (key.to_owned(), value)));
    target
}

impl Rc {
    pub fn decoded(&self) -> Arc<ReplicationController> {
        let conditions: Vec<&Value> =
            [&self.condition, &self.failure].into_iter().filter(|one| !one.is_null()).collect();
        let object = json!({
            "metadata": {"namespace": "n", "name": self.name, "uid": self.uid, "resourceVersion": "1",
                         "generation": self.generation, "annotations": self.annotations,
                         "ownerReferences": self.owners},
            "spec": {"replicas": self.replicas, "selector": self.selector,
                     "template": {"metadata": {"labels": self.selector}}},
            "status": {"replicas": self.reported.0, "observedGeneration": self.reported.1,
                       "conditions": conditions},
        });
        let decoded = ReplicationController::decode(&object.to_string(), &mut Interner::default());
        Arc::new(decoded.unwrap())
    }
}

impl ToyPod {
    fn decoded(&self) -> Arc<Pod> {
        let owner = |uid: &String| {
            json!([{"apiVersion": "v1", "kind": "ReplicationController", "name": "x", "uid": uid,
                    "controller": true}])
        };
        let ready = |since: Timestamp| json!([{"type": "Ready", "status": "True", "lastTransitionTime": since.to_string()}]);
        let waiting = json!([{"name": "app", "state": {"waiting":
            {"reason": "ImagePullBackOff", "message": "no such image"}}}]);
        let object = json!({
            "metadata": {"namespace": "n", "name": format!("pod-{}", self.number),
                         "uid": format!("pod-{}", self.number), "resourceVersion": "1", "labels": self.labels,
                         "ownerReferences": self.owner.as_ref().map(owner)},
            "status": {"phase": if self.ready_since.is_some() { "Running" } else { "Pending" },
                       "conditions": self.ready_since.map(ready),
                       "containerStatuses": if self.ready_since.is_some() { json!([]) } else { waiting }},
        });
        Arc::new(Pod::decode(&object.to_string(), &mut Interner::default()).unwrap())
    }
}
