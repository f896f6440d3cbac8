//! Jobs whose pods succeed at once, one large and many small, and CronJobs of which few are due: CPU time, calls and
//! conflicts.

use std::time::Duration;

use http::Method;
use jiff::SignedDuration;
use jiff::tz::TimeZone;
use serde_json::{Value, json};
use tokio::time::Instant;
use windlass::clock::Clock;
use windlass_testkit::controllers::Side;
use windlass_testkit::figures::{Figures, Goal, Row, Unit};
use windlass_testkit::process::Process;
use windlass_testkit::usage;

use crate::Options;
use crate::cluster::{Calls, Cluster, STEP_TIMEOUT, idle, template};
use crate::rows::{end, say_calls};

/// Pods of each small Job.
const FEW: usize = 10;

/// How many pods of the large Job run at once.
const AT_ONCE: usize = 100;

/// From the beginning of the measurement to the time that is due.
const SHORTLY: SignedDuration = SignedDuration::from_secs(3);

/// One CronJob of so many is due.
const ONE_OF: usize = 10;

/// The rows of one measurement.
struct Rows {
    cpu: Row,
    calls: Row,
    conflicts: Row,
}

const LARGE: Rows = rows("a large Job: CPU per pod", "a large Job: calls", "a large Job: conflicts");
const SMALL: Rows = rows("Jobs of 10: CPU per pod", "Jobs of 10: calls", "Jobs of 10: conflicts");
const CRON: Rows = rows("CronJobs: CPU per Job created", "CronJobs: calls", "CronJobs: conflicts");

const fn rows(cpu: &'static str, calls: &'static str, conflicts: &'static str) -> Rows {
    Rows {
        cpu: Row { name: cpu, unit: Unit::Milliseconds, goal: Goal::Part(0.25) },
        calls: Row { name: calls, unit: Unit::Calls, goal: Goal::Part(0.7) },
        conflicts: Row { name: conflicts, unit: Unit::Calls, goal: Goal::AtMost(0.0) },
    }
}

fn collection(namespace: &str, kind: &str) -> String {
    format!("/apis/batch/v1/namespaces/{namespace}/{kind}")
}

/// The spec of a Job.
fn spec(name: &str, completions: usize, parallelism: usize) -> Value {
    let mut template = template(name);
    template["spec"]["restartPolicy"] = "Never".into();
    json!({"completions": completions, "parallelism": parallelism, "template": template})
}

async fn create(cluster: &Cluster, namespace: &str, name: &str, completions: usize) {
    let spec = spec(name, completions, completions.min(AT_ONCE));
    let object = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec});
    cluster.call(Method::POST, &collection(namespace, "jobs"), &object).await;
}

/// Waits until this holds of all objects of a collection.
async fn until(cluster: &Cluster, collection: &str, holds: impl Fn(&[Value]) -> bool) {
    let end = Instant::now() + STEP_TIMEOUT;
    loop {
        let list = cluster.call(Method::GET, collection, &Value::Null).await;
        if holds(list["items"].as_array().unwrap()) {
            return;
        }
        assert!(Instant::now() < end, "{collection} never comes to what it should be");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// A process and what it had used and sent before a measurement.
struct Before<'a> {
    cluster: &'a Cluster,
    side: Side,
    process: &'a Process,
    cpu: Duration,
    calls: Calls,
}

impl<'a> Before<'a> {
    fn of(cluster: &'a Cluster, side: Side, process: &'a Process) -> Self {
        Before { cluster, side, process, cpu: usage::cpu(process.0.id()), calls: cluster.calls(side) }
    }

    /// Adds the rows, where so many pods or Jobs were created.
    async fn add(self, rows: Rows, created: usize, figures: &mut Figures) {
        idle(self.process).await;
        let used = usage::cpu(self.process.0.id()) - self.cpu;
        let calls = self.cluster.calls(self.side).since(&self.calls);
        say_calls(self.side, rows.calls.name, &calls);
        figures.add(rows.cpu, self.side, used.as_secs_f64() * 1000.0 / created as f64);
        figures.add(rows.calls, self.side, calls.all() as f64);
        figures.add(rows.conflicts, self.side, calls.conflicts as f64);
    }
}

/// The rows of one side, on a server of its own.
pub async fn measure(options: &Options, cluster: &Cluster, side: Side, figures: &mut Figures) {
    let is_finished = |jobs: &[Value]| jobs.iter().all(|job| job["status"]["completionTime"].is_string());
    let process = cluster.start_controllers(side, "job-controller", false);
    for namespace in ["first", "large", "small"] {
        cluster.pods.succeed(namespace);
        cluster.namespace(namespace, 0..=0).await;
    }
    create(cluster, "first", "first", 1).await;
    until(cluster, &collection("first", "jobs"), is_finished).await;
    idle(&process).await;

    let before = Before::of(cluster, side, &process);
    create(cluster, "large", "large", options.completions).await;
    until(cluster, &collection("large", "jobs"), is_finished).await;
    before.add(LARGE, options.completions, figures).await;

    let before = Before::of(cluster, side, &process);
    for number in 0..options.jobs {
        create(cluster, "small", &format!("job-{number}"), FEW).await;
    }
    until(cluster, &collection("small", "jobs"), is_finished).await;
    before.add(SMALL, options.jobs * FEW, figures).await;
    end(process).await;

    let process = cluster.start_controllers(side, "cronjob-controller", false);
    cluster.namespace("cron", 0..=0).await;
    // Time enough for the creation of all.
    let due = Clock::System.now() + Duration::from_secs(120 + options.cron_jobs as u64 / 50);
    let due = due.to_zoned(TimeZone::UTC).with().second(0).subsec_nanosecond(0).build().unwrap();
    let (now, later) = (format!("{} {} * * *", due.minute(), due.hour()), "0 0 29 2 *".to_owned());
    for number in 0..options.cron_jobs {
        let schedule = if number % ONE_OF == 0 { &now } else { &later };
        let name = format!("cron-{number}");
        let object = json!({
            "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": name},
            "spec": {"schedule": schedule, "timeZone": "Etc/UTC", "jobTemplate": {"spec": spec(&name, 1, 1)}},
        });
        cluster.call(Method::POST, &collection("cron", "cronjobs"), &object).await;
    }
    idle(&process).await;
    // The use of an idle process until then is not counted.
    let wait = due.timestamp().duration_since(Clock::System.now()) - SHORTLY;
    tokio::time::sleep(Duration::try_from(wait).expect("the CronJobs took too long to create")).await;
    let before = Before::of(cluster, side, &process);
    let runs = options.cron_jobs.div_ceil(ONE_OF);
    assert!(
        cluster.call(Method::GET, &collection("cron", "jobs"), &Value::Null).await["items"] == json!([]),
        "the first run came before all CronJobs were there"
    );
    until(cluster, &collection("cron", "jobs"), |jobs| jobs.len() == runs).await;
    before.add(CRON, runs, figures).await;
    end(process).await;
}
