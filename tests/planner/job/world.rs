//! A toy cluster for the planner of Jobs: one Job, and pods as JSON in a map. Every step is added to a transcript that a
//! person can read.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use windlass::model::{Interner, Job, JobStatus, Pod, Record as _};
use windlass::plan::job::backoff::Record;
use windlass::plan::job::new_pod::pod_body;
use windlass::plan::job::status::{Outcome, events, settled};
use windlass::plan::job::{JobPods, Names, Observed, Write, plan};

pub struct World {
    now: Timestamp,
    job: Value,
    status: JobStatus,
    pub pods: BTreeMap<String, Value>,
    pub transcript: String,
    record: Option<Record>,
    /// Names of pods that were used, in the order of their creation.
    created: usize,
    /// After how many writes to pods a sync ends with a crash: the first one that comes so far.
    pub crash_after: Option<usize>,
}

/// A Job called `j` with this spec.
pub fn job(spec: Value) -> Value {
    let mut job = json!({
        "metadata": {"name": "j", "namespace": "shop", "uid": "uid-job", "resourceVersion": "1", "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {
            "parallelism": 1, "backoffLimit": 6, "selector": {"matchLabels": {"job": "j"}},
            "template": {
                "metadata": {"labels": {"job": "j"}},
                "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "work:v1"}]}
            }
        }
    });
    for (field, value) in spec.as_object().unwrap() {
        job["spec"][field] = value.clone();
    }
    job
}

impl World {
    pub fn new(title: &str, job: Value) -> Self {
        let mut world = World {
            now: "2026-01-01T00:00:00Z".parse().unwrap(),
            job,
            status: JobStatus::default(),
            pods: BTreeMap::new(),
            transcript: String::new(),
            record: None,
            created: 0,
            crash_after: None,
        };
        writeln!(world.transcript, "# {title}").unwrap();
        world
    }

    pub fn say(&mut self, actor: &str, what: &str) {
        writeln!(self.transcript, "{actor:<12}{what}").unwrap();
    }

    /// A user's edit of the spec.
    pub fn edit(&mut self, spec: Value) {
        self.say("user", &format!("sets {spec}"));
        for (field, value) in spec.as_object().unwrap() {
            self.job["spec"][field] = value.clone();
        }
    }

    pub fn pass(&mut self, seconds: i64) {
        self.say("time", &format!("{seconds} s"));
        self.now += SignedDuration::from_secs(seconds);
        self.settle();
    }

    /// Pending pods become ready.
    pub fn run(&mut self) {
        let now = self.now.to_string();
        let mut ready = Vec::new();
        for (name, pod) in &mut self.pods {
            if pod["status"]["phase"] == "Pending" && pod["metadata"]["deletionTimestamp"].is_null() {
                let condition = json!({"type": "Ready", "status": "True", "lastTransitionTime": now});
                pod["status"] = json!({"phase": "Running", "conditions": [condition]});
                ready.push(name.clone());
            }
        }
        self.say("kubelet", &format!("ready: {}", ready.join(", ")));
        self.settle();
    }

    /// The name of the pod that runs with this index, or of the `nth` that runs.
    pub fn running(&self, nth: usize) -> String {
        let is_running = |pod: &Value| {
            pod["status"]["phase"] == "Running" && pod["metadata"]["deletionTimestamp"].is_null()
        };
        let index =
            |pod: &Value| pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"].clone();
        let mut running = self.pods.iter().filter(|(_, pod)| is_running(pod));
        let wanted = Value::from(nth.to_string());
        let is_indexed = self.job["spec"]["completionMode"] == "Indexed";
        let found = match is_indexed {
            true => running.find(|(_, pod)| index(pod) == wanted),
            false => running.nth(nth),
        };
        found.unwrap_or_else(|| panic!("no pod {nth} runs:\n{}", self.transcript)).0.clone()
    }

    fn end(&mut self, name: &str, code: i64) {
        let now = self.now.to_string();
        let phase = if code == 0 { "Succeeded" } else { "Failed" };
        let terminated = json!({"exitCode": code, "finishedAt": now});
        self.pods.get_mut(name).unwrap()["status"] = json!({
            "phase": phase, "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": now}],
            "containerStatuses": [{"name": "c", "restartCount": 0, "state": {"terminated": terminated}}]
        });
        self.say("kubelet", &format!("{name} exits with {code}"));
    }

    /// A pod ends.
    pub fn exit(&mut self, nth: usize, code: i64) {
        let name = self.running(nth);
        self.end(&name, code);
        self.settle();
    }

    /// A user deletes a pod.
    pub fn delete(&mut self, nth: usize) {
        let name = self.running(nth);
        self.say("user", &format!("deletes {name}"));
        self.mark(&name);
        self.settle();
    }

    fn mark(&mut self, name: &str) {
        let now = self.now.to_string();
        self.pods.get_mut(name).unwrap()["metadata"]["deletionTimestamp"] = now.into();
    }

    /// Pods that are being deleted end. Those without the finalizer are gone then.
    pub fn stop(&mut self) {
        let is_terminating = |pod: &Value| {
            !pod["metadata"]["deletionTimestamp"].is_null()
                && matches!(pod["status"]["phase"].as_str(), Some("Pending" | "Running"))
        };
        let names: Vec<String> =
            self.pods.iter().filter(|(_, pod)| is_terminating(pod)).map(|(name, _)| name.clone()).collect();
        for name in names {
            self.end(&name, 143);
        }
        self.collect();
        self.settle();
    }

    fn collect(&mut self) {
        let is_ended = |pod: &Value| matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        self.pods.retain(|_, pod| {
            pod["metadata"]["deletionTimestamp"].is_null()
                || !is_ended(pod)
                || !pod["metadata"]["finalizers"].is_null()
        });
    }

    fn decoded(&self) -> Job {
        let mut job = Job::decode(&self.job.to_string(), &mut Interner::default()).unwrap();
        job.status = self.status.clone();
        job
    }

    /// Syncs until nothing changes.
    pub fn settle(&mut self) {
        for _ in 0..20 {
            if !self.sync() {
                return;
            }
        }
        panic!("the Job does not settle:\n{}", self.transcript);
    }

    /// One sync. Whether it changed anything.
    fn sync(&mut self) -> bool {
        let job = self.decoded();
        let pods = self
            .pods
            .values()
            .map(|pod| Arc::new(Pod::decode(&pod.to_string(), &mut Interner::default()).unwrap()));
        let names = match job.is_indexed() {
            true => Names::Indexed(Arc::default()),
            false => Names::Free((1..10).map(|n| format!("j-{}", self.created + n)).collect()),
        };
        let observed = Observed {
            job: &job,
            pods: JobPods::of(&job, pods.collect(), Vec::new()),
            unreadable_pods: 0,
            may_adopt: true,
            names,
            reserved: 0,
            record: self.record,
            now: self.now,
        };
        let plan = plan(&observed);
        let (mut outcome, mut effects) = (Outcome::default(), 0);
        let limit = self.crash_after;
        for write in &plan.writes {
            for pod in self.targets(write) {
                if limit == Some(effects) {
                    return self.crash();
                }
                effects += 1;
                self.execute(&job, write, &pod, &mut outcome);
            }
        }
        if limit == Some(effects) {
            return self.crash();
        }
        self.collect();
        self.record = plan.record;
        let after = settled(&observed, &plan, &outcome);
        if after != job.status {
            self.say("status", &described(&after));
            for event in events(&job, &after) {
                self.say("event", &format!("{} {}", event.reason, event.message));
            }
        }
        let is_changed = effects > 0 || after != job.status;
        if let Some(wait) = plan.requeue_after.filter(|_| !is_changed) {
            self.say("controller", &format!("looks again after {} s", wait.as_secs()));
        }
        self.status = after;
        is_changed
    }

    fn crash(&mut self) -> bool {
        self.say("controller", "crashes before its next write");
        (self.record, self.crash_after) = (None, None);
        true
    }

    /// The names of the pods of a write.
    fn targets(&self, write: &Write) -> Vec<String> {
        match write {
            Write::Untrack(pods) | Write::Track(pods) => {
                pods.iter().map(|pod| pod.meta.key.name.to_string()).collect()
            }
            Write::Delete(deletions) => deletions.iter().map(|it| it.pod.meta.key.name.to_string()).collect(),
            Write::Create(pods) => pods.iter().map(|new| new.name.clone()).collect(),
            Write::Adopt(pod) | Write::Release(pod) => vec![pod.meta.key.name.to_string()],
        }
    }

    fn execute(&mut self, job: &Job, write: &Write, name: &str, outcome: &mut Outcome) {
        let set_finalizers = |world: &mut Self, value: Value| {
            world.pods.get_mut(name).unwrap()["metadata"]["finalizers"] = value;
        };
        match write {
            Write::Untrack(pods) => {
                self.say("controller", &format!("takes the finalizer off {name}"));
                set_finalizers(self, Value::Null);
                let pod = pods.iter().find(|pod| &*pod.meta.key.name == name).unwrap();
                outcome.untracked.insert(pod.meta.uid.clone());
            }
            Write::Track(_) => {
                self.say("controller", &format!("gives the finalizer back to {name}"));
                set_finalizers(self, json!(["batch.kubernetes.io/job-tracking"]));
            }
            Write::Delete(deletions) => {
                let deletion = deletions.iter().find(|it| &*it.pod.meta.key.name == name).unwrap();
                let untracks = deletion.untracks();
                let how = if untracks { " without its finalizer" } else { "" };
                self.say("controller", &format!("deletes {name}{how} ({:?})", deletion.cause));
                if untracks {
                    set_finalizers(self, Value::Null);
                }
                self.mark(name);
                outcome.deleted.insert(deletion.pod.meta.uid.clone());
            }
            Write::Create(pods) => {
                let new = pods.iter().find(|new| new.name == name).unwrap();
                let body = pod_body(job, new).unwrap();
                let mut pod: Value = serde_json::from_slice(&body).unwrap();
                self.created += 1;
                pod["metadata"]["uid"] = format!("uid-{name}").into();
                pod["metadata"]["resourceVersion"] = self.created.to_string().into();
                pod["metadata"]["creationTimestamp"] = self.now.to_string().into();
                pod["status"] = json!({"phase": "Pending"});
                let failures = new.failures_before.filter(|failures| *failures != (0, 0));
                let after = failures
                    .map(|(counted, ignored)| format!(" after {counted} failures, {ignored} ignored"));
                self.say("controller", &format!("creates {name}{}", after.unwrap_or_default()));
                assert!(self.pods.insert(name.into(), pod).is_none(), "{name} exists");
                outcome.created += 1;
            }
            Write::Adopt(_) | Write::Release(_) => unreachable!(),
        }
    }

    /// Ends the transcript.
    pub fn finish(&mut self) {
        let tracked: BTreeSet<&str> = self
            .pods
            .iter()
            .filter(|(_, pod)| !pod["metadata"]["finalizers"].is_null())
            .map(|(name, _)| name.as_str())
            .collect();
        let tracked = Vec::from_iter(tracked).join(", ");
        let line = format!("{} pods; with the finalizer: {tracked}", self.pods.len());
        self.say("end", line.trim_end_matches(": "));
    }
}

fn described(status: &JobStatus) -> String {
    let mut text = format!(
        "active {} ready {} terminating {} succeeded {} failed {}",
        status.active,
        status.ready.unwrap_or(0),
        status.terminating.unwrap_or(0),
        status.succeeded,
        status.failed
    );
    if !status.completed_indexes.is_empty() {
        write!(text, "; completed {}", status.completed_indexes).unwrap();
    }
    if let Some(failed) = status.failed_indexes.as_ref().filter(|failed| !failed.is_empty()) {
        write!(text, "; failed indexes {failed}").unwrap();
    }
    for lists in status.uncounted.iter() {
        for (what, list) in [("succeeded", &lists.succeeded), ("failed", &lists.failed)] {
            let names: Vec<String> = list.iter().map(|uid| uid.to_string().replace("uid-", "")).collect();
            if !names.is_empty() {
                write!(text, "; uncounted {what} {}", names.join(", ")).unwrap();
            }
        }
    }
    let conditions = status.conditions.iter().map(|c| format!("{}={} {}", c.kind, c.status, c.reason));
    let conditions: Vec<String> = conditions.collect();
    if !conditions.is_empty() {
        write!(text, "; {}", conditions.join(", ")).unwrap();
    }
    text
}
