//! A toy cluster for the planner of CronJobs: one CronJob and its Jobs as JSON, a clock, and users who end Jobs. Every step is added
//! to a transcript that a person can read, and each creation is checked against the runs before.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use windlass::model::{ActiveJob, CronJob, CronJobStatus, Interner, Job, Record, Uid};
use windlass::plan::EventNote;
use windlass::plan::cronjob::new_job::written;
use windlass::plan::cronjob::{Cause, Observed, Outcome, Rescheduled, plan, settled};

pub struct World {
    pub now: Timestamp,
    pub cron_job: Value,
    pub jobs: Vec<Value>,
    pub transcript: String,
    /// Whether the status can be written.
    pub loses_status: bool,
    last_run: Option<Timestamp>,
    due: Option<Timestamp>,
    rescheduled: Option<Rescheduled>,
    noted: BTreeSet<String>,
    wakes: Option<Timestamp>,
    runs: BTreeSet<String>,
    serial: u64,
}

/// A CronJob called `backup`.
pub fn cron_job(schedule: &str, spec: Value) -> Value {
    let mut cron_job = json!({
        "apiVersion": "batch/v1", "kind": "CronJob",
        "metadata": {"name": "backup", "namespace": "shop", "uid": "uid-cron", "resourceVersion": "1", "generation": 1},
        "spec": {"schedule": schedule, "successfulJobsHistoryLimit": 1, "failedJobsHistoryLimit": 1,
            "jobTemplate": {"spec": {"template": {}}}},
        "status": {},
    });
    for (field, value) in spec.as_object().into_iter().flatten() {
        cron_job["spec"][field] = value.clone();
    }
    cron_job
}

impl World {
    pub fn new(title: &str, begins: &str, mut cron_job: Value) -> Self {
        cron_job["metadata"]["creationTimestamp"] = begins.into();
        let mut world = World {
            now: begins.parse().unwrap(),
            cron_job,
            jobs: Vec::new(),
            transcript: format!("# {title}\n"),
            loses_status: false,
            last_run: None,
            due: None,
            rescheduled: None,
            noted: BTreeSet::new(),
            wakes: None,
            runs: BTreeSet::new(),
            serial: 0,
        };
        world.sync();
        world
    }

    fn zone(&self) -> TimeZone {
        let name = self.cron_job["spec"]["timeZone"].as_str().unwrap_or("UTC");
        TimeZoneDatabase::bundled().get(name).unwrap()
    }

    fn say(&mut self, who: &str, what: &str) {
        let at = written(self.now, &self.zone());
        let _ = writeln!(self.transcript, "{at:<25}  {who:<10}  {what}");
    }

    /// Time passes; the controller syncs when its timer is due.
    pub fn pass(&mut self, minutes: i64) {
        let end = self.now + SignedDuration::from_mins(minutes);
        while let Some(wakes) = self.wakes.filter(|wakes| *wakes <= end) {
            self.now = wakes.max(self.now);
            self.sync();
        }
        self.now = end;
    }

    /// Nobody runs the controller for so long; the one that starts then knows only the objects.
    pub fn down(&mut self, minutes: i64) {
        self.say("daemon", "stops");
        self.now += SignedDuration::from_mins(minutes);
        self.restart();
    }

    pub fn restart(&mut self) {
        (self.last_run, self.rescheduled, self.noted) = (None, None, BTreeSet::new());
        self.say("daemon", "starts");
        self.sync();
    }

    pub fn edit(&mut self, spec: Value) {
        self.say("user", &format!("sets {spec}"));
        for (field, value) in spec.as_object().into_iter().flatten() {
            self.cron_job["spec"][field] = value.clone();
        }
        if ["schedule", "timeZone"].iter().any(|field| !spec[field].is_null()) {
            self.rescheduled = Some(Rescheduled { since: self.now, due: self.due });
        }
        let generation = self.cron_job["metadata"]["generation"].as_i64().unwrap_or(0);
        self.cron_job["metadata"]["generation"] = (generation + 1).into();
        self.sync();
    }

    /// All Jobs end.
    pub fn end_jobs(&mut self, succeeds: bool) {
        let now = self.now.to_string();
        let kind = if succeeds { "Complete" } else { "Failed" };
        let mut ended = Vec::new();
        for job in self.jobs.iter_mut().filter(|job| job["status"]["conditions"].is_null()) {
            job["status"]["conditions"] =
                json!([{"type": kind, "status": "True", "lastTransitionTime": now}]);
            if succeeds {
                job["status"]["completionTime"] = now.clone().into();
            }
            ended.push(job["metadata"]["name"].as_str().unwrap_or_default().to_owned());
        }
        self.say("jobs", &format!("{kind}: {}", ended.join(", ")));
        self.sync();
    }

    /// A user creates a Job for the CronJob, or without an owner.
    pub fn create_job(&mut self, name: &str, is_owned: bool) {
        self.say("user", &format!("creates Job {name}"));
        self.add_job(name, is_owned, Value::Null);
        self.sync();
    }

    pub fn delete_jobs(&mut self) {
        self.jobs.clear();
        self.say("user", "deletes all Jobs");
        self.sync();
    }

    fn add_job(&mut self, name: &str, is_owned: bool, annotations: Value) -> String {
        self.serial += 1;
        let uid = format!("uid-{}", self.serial);
        let owners = json!([{"apiVersion": "batch/v1", "kind": "CronJob", "name": "backup", "uid": "uid-cron",
            "controller": true}]);
        self.jobs.push(json!({
            "metadata": {"name": name, "namespace": "shop", "uid": uid, "resourceVersion": self.serial.to_string(),
                "annotations": annotations, "creationTimestamp": self.now.to_string(),
                "ownerReferences": if is_owned { owners } else { Value::Null }},
            "spec": {}, "status": {"startTime": self.now.to_string()},
        }));
        uid
    }

    /// One sync, until nothing is left to do.
    pub fn sync(&mut self) {
        for _ in 0..10 {
            if !self.step() {
                return;
            }
        }
        panic!("no end:\n{}", self.transcript);
    }

    fn step(&mut self) -> bool {
        let decode = |job: &Value| Arc::new(Job::decode(&job.to_string(), &mut Interner::default()).unwrap());
        let cron_job = CronJob::decode(&self.cron_job.to_string(), &mut Interner::default()).unwrap();
        let (own, others): (Vec<_>, Vec<_>) =
            self.jobs.iter().map(decode).partition(|job| cron_job.controls(&job.meta));
        let planned = plan(&Observed {
            cron_job: &cron_job,
            jobs: own,
            taken: others.iter().map(|job| job.meta.key.name.clone()).collect(),
            unreadable_jobs: 0,
            last_run: self.last_run,
            rescheduled: self.rescheduled,
            zones: &TimeZoneDatabase::bundled(),
            local_zone: &TimeZone::UTC,
            now: self.now,
        });
        self.due = planned.due.filter(|_| planned.start.is_none());
        for note in &planned.notes {
            if !self.noted.contains(&note.about) {
                self.event(&note.event);
            }
        }
        self.noted = planned.notes.iter().map(|note| note.about.clone()).collect();
        let mut outcome = Outcome::default();
        for deletion in &planned.deletions {
            let why = if deletion.cause == Cause::History { "history" } else { "replaced" };
            self.say("controller", &format!("{deletion}: {why}"));
            self.jobs.retain(|job| job["metadata"]["uid"] != deletion.job.meta.uid.to_string());
            outcome.deleted.insert(deletion.job.meta.uid.clone());
        }
        if let Some(start) = &planned.start {
            let due = written(start.time, &start.zone);
            assert!(self.runs.insert(start.name.clone()), "{due} runs twice:\n{}", self.transcript);
            self.say("controller", &format!("create {} for {due}", start.name));
            let annotations = json!({"batch.kubernetes.io/cronjob-scheduled-timestamp": due});
            let uid = Uid::new(&self.add_job(&start.name, true, annotations));
            self.noted.insert(format!("UnexpectedJob {uid}"));
            let job = ActiveJob { name: start.name.as_str().into(), uid, resource_version: self.serial };
            (self.last_run, outcome.started) = (Some(start.time), Some((start.time, Some(job))));
        }
        let status = settled(&planned, &outcome);
        let is_changed = status != cron_job.status && !self.loses_status;
        if is_changed {
            planned.changes.iter().for_each(|event| self.event(event));
            self.write(&status);
        }
        self.wakes = planned.requeue_after.map(|after| self.now + after);
        is_changed || !planned.deletions.is_empty() || planned.start.is_some() && !self.loses_status
    }

    fn event(&mut self, event: &EventNote) {
        let kind = if event.warning { "Warning" } else { "Normal" };
        self.say("event", &format!("{kind} {}: {}", event.reason, event.message));
    }

    fn write(&mut self, status: &CronJobStatus) {
        let active: Vec<&str> = status.active.iter().map(|job| &*job.name).collect();
        let mut shown = format!("active [{}]", active.join(", "));
        for (what, time) in [("last", status.last_schedule), ("successful", status.last_successful)] {
            if let Some(time) = time {
                let _ = write!(shown, ", {what} {}", written(time, &self.zone()));
            }
        }
        self.say("status", &shown);
        let text = |time: Option<Timestamp>| time.map_or(Value::Null, |time| time.to_string().into());
        let active: Vec<Value> =
            status.active.iter().map(|job| json!({"name": job.name, "uid": job.uid})).collect();
        self.cron_job["status"] = json!({"active": active, "lastScheduleTime": text(status.last_schedule),
            "lastSuccessfulTime": text(status.last_successful)});
    }
}
