//! Carries out the acts of the scenario with requests, as users, nodes and a Job controller do. Starts and kills the daemon.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::judge::{Cluster, Judge, NAME, SCHEDULED, condition, expires, finished, is_finished};
use super::scenario::{Act, Scenario};
use crate::engine::daemons::{Daemons, unlimited};
use crate::engine::game;
use crate::engine::objects::{self, NAMESPACE, is_deleting, name, owner, text, uid};
use crate::engine::user::{JSON, MERGE, STRATEGIC, User};
use windlass::config::{ControllerConfig, Enabled};

const CRON_JOBS: &str = "/apis/batch/v1/namespaces/shop/cronjobs";
const JOBS: &str = "/apis/batch/v1/namespaces/shop/jobs";
const PODS: &str = "/api/v1/namespaces/shop/pods";
const NODES: &str = "/api/v1/nodes";

/// How many ended pods stay.
pub const THRESHOLD: usize = 2;

/// How long an act waits for a Job to expire.
const PATIENCE: SignedDuration = SignedDuration::from_secs(120);

/// In how many seconds a Job expires whose TTL is then raised.
const SOON: i64 = 8;

/// How long the watches of Jobs lag as a TTL is raised.
const LAG: Duration = Duration::from_secs(3);

/// Users, nodes, and the supervisor of the daemon.
pub struct Actors {
    cluster: Arc<Cluster>,
    user: User,
    schedule: String,
    zone: String,
    /// How many pods, and Jobs of others, were created.
    count: u32,
    /// The supervisor of the daemon.
    pub daemons: Daemons<Judge>,
}

impl game::Actors<Act> for Actors {
    async fn begin(&mut self) {
        let namespace = json!({"metadata": {"name": NAMESPACE}});
        self.user.send(Method::POST, "/api/v1/namespaces", JSON, &namespace).await;
        for nth in 0..3 {
            self.create_node(nth).await;
        }
        self.daemons.start();
        tokio::time::sleep(Duration::from_millis(500)).await;
        self.create().await;
    }

    async fn act(&mut self, act: &Act) {
        self.cluster.say(&format!("{act:?}"));
        self.disturb();
        match act {
            Act::Schedule(schedule) => {
                self.schedule = schedule.to_string();
                self.edit(json!({"schedule": schedule})).await;
            }
            Act::Zone(zone) => {
                self.zone = zone.to_string();
                self.edit(json!({"timeZone": zone_of(zone)})).await;
            }
            Act::Suspend(is_suspended) => self.edit(json!({"suspend": is_suspended})).await,
            Act::Policy(policy) => self.edit(json!({"concurrencyPolicy": policy})).await,
            Act::Deadline(seconds) => self.edit(json!({"startingDeadlineSeconds": optional(*seconds)})).await,
            Act::History(succeeded, failed) => self.limit(*succeeded, *failed).await,
            Act::Ttl(seconds) => {
                let spec = json!({"ttlSecondsAfterFinished": optional(*seconds)});
                self.edit(json!({"jobTemplate": {"spec": spec}})).await;
            }
            Act::Label(nth) => {
                let labels = json!({"tier": nth.to_string()});
                self.edit(json!({"jobTemplate": {"metadata": {"labels": labels}}})).await;
            }
            Act::JobTtl(nth, seconds) => {
                if let Some(job) = self.nth("Job", *nth) {
                    self.set_ttl(&job, *seconds).await;
                }
            }
            Act::RaiseTtl(nth) => self.raise_ttl(*nth).await,
            Act::Finish(nth, succeeds) => {
                let mut jobs = self.unfinished();
                if !jobs.is_empty() {
                    let job = jobs.swap_remove(*nth as usize % jobs.len());
                    self.finish(&job, *succeeds).await;
                }
            }
            Act::FinishAll(succeeds) => self.finish_all(*succeeds).await,
            Act::DeleteJob(nth) => {
                if let Some(job) = self.nth("Job", *nth) {
                    self.delete(JOBS, name(&job), json!({"propagationPolicy": "Background"})).await;
                }
            }
            Act::Squat(minutes) => {
                let minute = self.cluster.clock.now().as_second().div_euclid(60) + i64::from(*minutes);
                self.create_job(&format!("{NAME}-{minute}"), json!([])).await;
            }
            Act::Manual(nth) => {
                if let Some(cron_job) = self.cron_job() {
                    let owner = json!([{"apiVersion": "batch/v1", "kind": "CronJob", "name": NAME,
                        "uid": uid(&cron_job), "controller": true}]);
                    self.create_job(&format!("manual-{nth}"), owner).await;
                }
            }
            Act::Namesake(nth) => {
                let owner = json!([{"apiVersion": "example.com/v1", "kind": "Workflow", "name": NAME,
                    "uid": "another", "controller": true}]);
                let job = format!("namesake-{nth}");
                self.create_job(&job, owner).await;
                if let Some(job) = self.cluster.sandbox.object("Job", NAMESPACE, &job) {
                    self.finish(&job, true).await;
                }
            }
            Act::Recreate(policy) => {
                self.delete(CRON_JOBS, NAME, json!({"propagationPolicy": policy})).await;
                for _ in 0..100 {
                    if self.cron_job().is_none() {
                        break;
                    }
                    self.daemons.wait(Duration::from_millis(300)).await;
                }
                self.create().await;
            }
            Act::Node(nth) => self.create_node(*nth).await,
            Act::NodeGone(nth) => self.delete(NODES, &node(*nth), json!({})).await,
            Act::OutOfService(nth, is_out) => self.set_out_of_service(*nth, *is_out).await,
            Act::Pod(on, has_finalizer) => {
                self.count += 1;
                let pod = format!("pod-{:02}", self.count);
                self.create_pod(&pod, *on, *has_finalizer).await;
            }
            Act::EndPod(nth, succeeds) => {
                if let Some(pod) = self.nth("Pod", *nth) {
                    let status = if *succeeds {
                        json!({"phase": "Succeeded"})
                    } else {
                        json!({"phase": "Failed", "reason": "Evicted"})
                    };
                    let path = format!("{PODS}/{}/status", name(&pod));
                    self.user.send(Method::PATCH, &path, MERGE, &json!({"status": status})).await;
                }
            }
            Act::DeletePod(nth) => {
                if let Some(pod) = self.nth("Pod", *nth) {
                    self.delete(PODS, name(&pod), json!({})).await;
                }
            }
            Act::RecreatePod(nth) => {
                if let Some(pod) = self.nth("Pod", *nth) {
                    self.free_pods().await;
                    self.delete(PODS, name(&pod), json!({"gracePeriodSeconds": 0})).await;
                    self.create_pod(name(&pod), nth % 4, false).await;
                }
            }
            Act::BreakWatches => self.cluster.break_watches(false),
            Act::Compact => self.cluster.break_watches(true),
            Act::Crash => self.daemons.crash().await,
            Act::Kill(nth, is_carried_out) => self.cluster.kill_at(*nth, *is_carried_out),
            Act::Down(seconds) => {
                self.daemons.end();
                tokio::time::sleep(Duration::from_secs((*seconds).into())).await;
                self.daemons.start();
            }
            Act::Outage(seconds, ends_jobs) => {
                self.cluster.kill_at(1, true);
                for _ in 0..260 {
                    if !self.cluster.with_judge(|judge| judge.has_daemon()) {
                        break;
                    }
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
                self.daemons.end();
                if *ends_jobs {
                    self.finish_all(true).await;
                }
                tokio::time::sleep(Duration::from_secs((*seconds).into())).await;
                self.daemons.start();
            }
            Act::Second(seconds) => self.daemons.second(Duration::from_secs((*seconds).into())),
            Act::Skew(seconds) => self.skew(*seconds),
        }
        self.disturb();
    }

    async fn wait(&mut self, time: Duration) {
        let end = self.cluster.elapsed() + time;
        loop {
            let left = end.saturating_sub(self.cluster.elapsed());
            if left.is_zero() {
                return;
            }
            self.daemons.wait(left.min(Duration::from_secs(20))).await;
            self.check_runs();
        }
    }

    fn end(&mut self) {
        self.daemons.end();
    }
}

/// The controllers of this game.
fn config() -> ControllerConfig {
    let enabled = Enabled::none()
        .with("cronjob-controller")
        .with("ttl-after-finished-controller")
        .with("pod-garbage-collector-controller");
    ControllerConfig { terminated_pod_threshold: THRESHOLD as i64, ..unlimited(enabled) }
}

impl Actors {
    /// Actors that have not acted yet.
    pub fn new(cluster: Arc<Cluster>, scenario: &Scenario) -> Self {
        let user = User(cluster.client("user"));
        let daemons = Daemons::new(cluster.clone(), config(), scenario.seed, |seed, life| {
            seed.wrapping_add(life.into())
        });
        let (schedule, zone) = (scenario.schedule.to_string(), scenario.zone.to_string());
        Actors { cluster, user, schedule, zone, count: 0, daemons }
    }

    fn disturb(&self) {
        let at = self.cluster.elapsed();
        self.cluster.with_judge(|judge| judge.disturbed = at);
    }

    /// CJ2, where nobody interferes.
    fn check_runs(&self) {
        let (at, now) = (self.cluster.elapsed(), self.cluster.clock.now());
        let (cron_job, jobs) = (self.cron_job(), self.cluster.sandbox.objects("Job"));
        if let Err(breach) =
            self.cluster.with_judge(|judge| judge.check_runs(at, now, cron_job.as_deref(), &jobs))
        {
            self.cluster.fail(breach);
        }
    }

    /// The CronJob.
    pub fn cron_job(&self) -> Option<Arc<Value>> {
        self.cluster.sandbox.object("CronJob", NAMESPACE, NAME)
    }

    fn nth(&self, kind: &str, nth: u32) -> Option<Value> {
        objects::nth(self.cluster.sandbox.objects(kind), nth)
    }

    /// The Jobs that have not ended.
    pub fn unfinished(&self) -> Vec<Value> {
        let mut jobs = self.cluster.sandbox.objects("Job");
        jobs.retain(|job| !is_finished(job));
        jobs
    }

    /// Changes the specification of the CronJob.
    pub async fn edit(&self, spec: Value) {
        self.user.send(Method::PATCH, &format!("{CRON_JOBS}/{NAME}"), MERGE, &json!({"spec": spec})).await;
    }

    /// Sets how many finished Jobs are kept.
    pub async fn limit(&self, succeeded: u32, failed: u32) {
        self.edit(json!({"successfulJobsHistoryLimit": succeeded, "failedJobsHistoryLimit": failed})).await;
    }

    async fn delete(&self, of: &str, name: &str, options: Value) {
        self.user.send(Method::DELETE, &format!("{of}/{name}"), JSON, &options).await;
    }

    /// Creates the CronJob.
    pub async fn create(&self) {
        let created = json!({
            "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": NAME},
            "spec": {"schedule": self.schedule, "timeZone": zone_of(&self.zone), "successfulJobsHistoryLimit": 1,
                "jobTemplate": {"metadata": {"labels": {"app": NAME}, "annotations": {"team": "a"}},
                    "spec": {"backoffLimit": 2, "template": template()}}}
        });
        self.user.send(Method::POST, CRON_JOBS, JSON, &created).await;
    }

    async fn create_job(&self, name: &str, owners: Value) {
        let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "ownerReferences": owners},
            "spec": {"template": template()}});
        self.user.send(Method::POST, JOBS, JSON, &job).await;
    }

    /// Sets the TTL of a Job; -1 is none.
    pub async fn set_ttl(&self, job: &Value, seconds: i64) {
        let body = json!({"spec": {"ttlSecondsAfterFinished": optional(seconds)}});
        self.user.send(Method::PATCH, &format!("{JOBS}/{}", name(job)), MERGE, &body).await;
    }

    async fn raise_ttl(&mut self, nth: u32) {
        let now = self.cluster.clock.now();
        let mut jobs = self.cluster.sandbox.objects("Job");
        jobs.retain(|job| is_finished(job) && expires(job).is_none_or(|expires| expires > now));
        if jobs.is_empty() {
            return;
        }
        let mut job = jobs.swap_remove(nth as usize % jobs.len());
        if expires(&job).is_none() {
            let age = finished(&job).map_or(0, |finished| now.duration_since(finished).as_secs());
            self.set_ttl(&job, age + SOON).await;
            let Some(changed) = self.cluster.sandbox.object("Job", NAMESPACE, name(&job)) else { return };
            job = Value::clone(&changed);
        }
        let wait = expires(&job).map(|expires| expires.duration_since(self.cluster.clock.now()));
        let Some(wait) = wait.filter(|wait| *wait < PATIENCE) else { return };
        let wait = wait.saturating_sub(SignedDuration::from_millis(1));
        self.daemons.wait(Duration::try_from(wait).unwrap_or_default()).await;
        let at = self.cluster.elapsed();
        self.cluster.with_judge(|judge| judge.job_watches_lag(at, LAG));
        self.set_ttl(&job, 5000).await;
    }

    /// Ends a Job, as the Job controller does.
    async fn finish(&self, job: &Value, succeeds: bool) {
        let now =
            Timestamp::from_second(self.cluster.clock.now().as_second()).unwrap_or_default().to_string();
        let [first, second] =
            if succeeds { ["SuccessCriteriaMet", "Complete"] } else { ["FailureTarget", "Failed"] };
        let of = |kind| json!({"type": kind, "status": "True", "lastTransitionTime": now, "reason": "Ended"});
        let mut status = json!({"startTime": now, "conditions": [of(first), of(second)]});
        if succeeds {
            (status["completionTime"], status["succeeded"]) = (now.into(), 1.into());
        }
        let path = format!("{JOBS}/{}/status", name(job));
        self.user.send(Method::PATCH, &path, MERGE, &json!({"status": status})).await;
    }

    /// Ends all Jobs.
    pub async fn finish_all(&self, succeeds: bool) {
        for job in self.unfinished() {
            self.finish(&job, succeeds).await;
        }
    }

    async fn create_node(&self, nth: u32) {
        self.user.send(Method::POST, NODES, JSON, &json!({"metadata": {"name": node(nth)}})).await;
        self.set_out_of_service(nth, false).await;
    }

    async fn set_out_of_service(&self, nth: u32, is_out: bool) {
        let path = format!("{NODES}/{}", node(nth));
        let taint = json!({"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"});
        let taints = if is_out { json!([taint]) } else { json!([]) };
        let ready = if is_out { "Unknown" } else { "True" };
        let status = json!({"status": {"conditions": [{"type": "Ready", "status": ready}]}});
        self.user.send(Method::PATCH, &format!("{path}/status"), STRATEGIC, &status).await;
        self.user.send(Method::PATCH, &path, MERGE, &json!({"spec": {"taints": taints}})).await;
    }

    async fn create_pod(&self, name: &str, on: u32, has_finalizer: bool) {
        let finalizers = if has_finalizer { json!(["example.com/keep"]) } else { json!([]) };
        let mut pod = json!({"metadata": {"name": name, "finalizers": finalizers},
            "spec": {"containers": [{"name": "c", "image": "img"}]}});
        if on > 0 {
            pod["spec"]["nodeName"] = node(on - 1).into();
        }
        self.user.send(Method::POST, PODS, JSON, &pod).await;
    }

    /// Takes the finalizers off the pods.
    async fn free_pods(&self) {
        for pod in self.cluster.sandbox.objects("Pod") {
            let body = json!({"metadata": {"finalizers": null}});
            self.user.send(Method::PATCH, &format!("{PODS}/{}", name(&pod)), MERGE, &body).await;
        }
    }

    fn skew(&mut self, seconds: i32) {
        let ahead = SignedDuration::from_secs(seconds.into());
        self.daemons.set_clock(self.cluster.clock.ahead_by(ahead));
        self.cluster.with_judge(|judge| judge.skewed(ahead));
    }

    /// Users repair what they have broken, and the CronJob runs each minute.
    pub async fn repair(&mut self) {
        self.skew(0);
        self.daemons.crash().await;
        self.cluster.with_judge(Judge::clocks_are_right);
        self.free_pods().await;
        (self.schedule, self.zone) = ("* * * * *".into(), "Europe/Berlin".into());
        for _ in 0..100 {
            match self.cron_job() {
                None => self.create().await,
                Some(cron_job) if is_deleting(&cron_job) => {}
                Some(_) => break,
            }
            self.daemons.wait(Duration::from_millis(300)).await;
        }
        let spec = json!({"schedule": self.schedule, "timeZone": self.zone, "suspend": false,
            "concurrencyPolicy": "Forbid", "startingDeadlineSeconds": null});
        self.edit(spec).await;
        self.limit(1, 1).await;
        // The names of runs to come.
        for job in self.cluster.sandbox.objects("Job") {
            let is_run = !text(&job, SCHEDULED).is_empty();
            if owner(&job).is_empty() && name(&job).starts_with(NAME) || !is_run {
                self.delete(JOBS, name(&job), json!({"propagationPolicy": "Background"})).await;
            }
        }
        self.finish_all(true).await;
    }

    /// Whether a Job of this kind of end is there.
    pub fn ended(&self, kind: &str) -> usize {
        let jobs = self.cluster.sandbox.objects("Job");
        jobs.iter().filter(|job| condition(job, kind).is_some() && finished(job).is_some()).count()
    }
}

fn node(nth: u32) -> String {
    format!("node-{nth}")
}

fn zone_of(zone: &str) -> Value {
    if zone.is_empty() { Value::Null } else { zone.into() }
}

fn optional(number: i64) -> Value {
    if number < 0 { Value::Null } else { number.into() }
}

fn template() -> Value {
    json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "job"}]}})
}
