//! The measurements.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;
use windlass_testkit::controllers::Side;
use windlass_testkit::figures::{Figures, Goal, Row, Unit};
use windlass_testkit::process::Process;
use windlass_testkit::usage;

use crate::cluster::{Calls, Cluster, STEP_TIMEOUT, deployments, idle};
use crate::kubelet::{Pods, Seen};
use crate::{Options, say};

/// Pods of each Deployment in the rows about CPU time, and among the quiet ones.
const FEW: usize = 10;
const MANY: usize = 100;

const EMPTY: Row = row("resident memory, empty cluster", Unit::Megabytes, Goal::AtMost(12.0));
const CREATED: Row = row("CPU per pod, created and made ready", Unit::Milliseconds, Goal::Part(1.0 / 6.0));
const ROLLED: Row = row("CPU per pod, rolled to a new image", Unit::Milliseconds, Goal::Part(1.0 / 6.0));
const WIDE: Row = row("calls, rollout, surge and unavailable 25 %", Unit::Calls, Goal::AtMost(290.0));
const WIDE_CONFLICTS: Row = row("conflicts among them", Unit::Calls, Goal::AtMost(0.0));
const NARROW: Row =
    row("calls, rollout of half as many, surge 1, unavailable 0", Unit::Calls, Goal::AtMost(400.0));
const NARROW_CONFLICTS: Row = row("conflicts among those", Unit::Calls, Goal::AtMost(0.0));
const RESTART: Row = row("restart to first correct write", Unit::Seconds, Goal::Part(0.5));
const RESTART_CPU: Row = row("CPU of a restart", Unit::Seconds, Goal::AtMost(0.6));
const FULL: Row = row("resident memory after a restart", Unit::Megabytes, Goal::AtMost(24.0));
const ENDED: Row = row("leader ends by SIGTERM, standby's first write", Unit::Seconds, Goal::AtMost(2.5));
const KILLED: Row = row("leader killed, standby's first write", Unit::Seconds, Goal::AtMost(17.5));

const fn row(name: &'static str, unit: Unit, goal: Goal) -> Row {
    Row { name, unit, goal }
}

/// The namespace of the quiet pods, and the Deployment that is scaled as a probe.
const QUIET: &str = "quiet";
const PROBE: &str = "probe";

/// The rows on a server without other pods: memory, CPU per pod, and calls.
pub async fn small(options: &Options, cluster: &Cluster, side: Side, figures: &mut Figures) {
    let process = cluster.controllers(side, false);
    works(cluster).await;
    idle(&process).await;
    figures.add(EMPTY, side, megabytes(&process));
    if options.wants("cpu") {
        let pods = options.deployments * FEW;
        let per_pod = |used: Duration| used.as_secs_f64() * 1000.0 / pods as f64;
        cluster.namespace("cpu", 0..=0).await;
        let before = usage::cpu(process.0.id());
        let rolling = json!({"maxSurge": "25%", "maxUnavailable": "25%"});
        for number in 0..options.deployments {
            cluster.create("cpu", &format!("web-{number}"), FEW, &rolling).await;
        }
        finished(cluster, "cpu", pods, "app:v1", &process).await;
        let created = usage::cpu(process.0.id());
        figures.add(CREATED, side, per_pod(created - before));
        for number in 0..options.deployments {
            cluster.set_image(&deployments("cpu"), &format!("web-{number}"), "app:v2").await;
        }
        finished(cluster, "cpu", pods, "app:v2", &process).await;
        figures.add(ROLLED, side, per_pod(usage::cpu(process.0.id()) - created));
    }
    if options.wants("calls") {
        let wide = json!({"maxSurge": "25%", "maxUnavailable": "25%"});
        let calls = rollout(cluster, side, &process, "wide", options.rollout, &wide, 1000..=5000).await;
        figures.add(WIDE, side, calls.all() as f64);
        figures.add(WIDE_CONFLICTS, side, calls.conflicts as f64);
        let narrow = json!({"maxSurge": 1, "maxUnavailable": 0});
        let calls =
            rollout(cluster, side, &process, "narrow", options.rollout / 2, &narrow, 1000..=3000).await;
        figures.add(NARROW, side, calls.all() as f64);
        figures.add(NARROW_CONFLICTS, side, calls.conflicts as f64);
    }
}

/// The calls of one rollout to a new image.
async fn rollout(
    cluster: &Cluster,
    side: Side,
    process: &Process,
    namespace: &str,
    pods: usize,
    rolling: &serde_json::Value,
    ready_after: std::ops::RangeInclusive<u64>,
) -> Calls {
    cluster.namespace(namespace, 0..=0).await;
    cluster.create(namespace, "web", pods, rolling).await;
    finished(cluster, namespace, pods, "app:v1", process).await;
    cluster.pods.become_ready_after(namespace, ready_after);
    let before = cluster.calls(side);
    cluster.set_image(&deployments(namespace), "web", "app:v2").await;
    finished(cluster, namespace, pods, "app:v2", process).await;
    // The last events are written with a delay.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let calls = cluster.calls(side).since(&before);
    say_calls(side, namespace, &calls);
    calls
}

/// Prints the calls of a side by their kinds.
pub fn say_calls(side: Side, what: &str, calls: &Calls) {
    let parts: Vec<String> = calls.by_kind.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    say(&format!("{}, {what}: {}", side.name(), parts.join(", ")));
}

/// The controllers work when a Deployment gets its pod.
async fn works(cluster: &Cluster) {
    cluster.namespace(PROBE, 0..=0).await;
    cluster.create(PROBE, PROBE, 1, &json!({"maxSurge": 1, "maxUnavailable": 0})).await;
    cluster.pods.wait_until("the first pod", STEP_TIMEOUT, |pods| probes(pods) == 1).await;
    cluster.complete(&deployments(PROBE)).await;
}

async fn finished(cluster: &Cluster, namespace: &str, pods: usize, image: &str, process: &Process) {
    all_ready(cluster, namespace, pods, image).await;
    cluster.complete(&deployments(namespace)).await;
    idle(process).await;
}

/// Waits until a namespace has so many pods, all of them ready and with this image.
pub async fn all_ready(cluster: &Cluster, namespace: &str, pods: usize, image: &str) {
    let is_done = |all: &Pods| {
        all.count(|pod| pod.namespace == namespace) == pods
            && all.count(|pod| pod.namespace == namespace && pod.is_ready && pod.image == image) == pods
    };
    cluster.pods.wait_until("all pods are ready", STEP_TIMEOUT, is_done).await;
}

/// Creates the quiet pods, and the Deployment that is scaled.
pub async fn fill(options: &Options, cluster: &Cluster) {
    say(&format!("creating {} pods", options.pods));
    let process = cluster.controllers(Side::Windlass, false);
    works(cluster).await;
    cluster.namespace(QUIET, 0..=0).await;
    let sizes = std::iter::repeat_n(MANY, options.pods / MANY)
        .chain((!options.pods.is_multiple_of(MANY)).then_some(options.pods % MANY));
    for (number, size) in sizes.enumerate() {
        let rolling = json!({"maxSurge": "25%", "maxUnavailable": "25%"});
        cluster.create(QUIET, &format!("quiet-{number}"), size, &rolling).await;
    }
    finished(cluster, QUIET, options.pods, "app:v1", &process).await;
}

/// The rows among the quiet pods.
pub async fn large(options: &Options, cluster: &Cluster, side: Side, figures: &mut Figures) {
    if options.wants("restart") {
        // So that this side has corrected the leftovers of the other.
        let process = cluster.controllers(side, false);
        first_write(cluster).await;
        idle(&process).await;
        end(process).await;
        let begun = Instant::now();
        let scaled = scale_probe(cluster).await;
        let process = cluster.controllers(side, false);
        figures.add(RESTART, side, (written(cluster, scaled).await - begun).as_secs_f64());
        idle(&process).await;
        figures.add(RESTART_CPU, side, usage::cpu(process.0.id()).as_secs_f64());
        figures.add(FULL, side, megabytes(&process));
        end(process).await;
    }
    if options.wants("takeover") {
        let leader = elected(cluster, side).await;
        let standby = waiting(cluster, side).await;
        figures.add(ENDED, side, takeover(cluster, leader, true).await);
        let leader = standby;
        idle(&leader).await;
        let standby = waiting(cluster, side).await;
        figures.add(KILLED, side, takeover(cluster, leader, false).await);
        end(standby).await;
    }
}

/// A process that has been elected and works.
async fn elected(cluster: &Cluster, side: Side) -> Process {
    let process = cluster.controllers(side, true);
    first_write(cluster).await;
    assert!(cluster.leader(side).await.is_some(), "nobody holds the Lease");
    idle(&process).await;
    process
}

/// A process that waits for its election.
async fn waiting(cluster: &Cluster, side: Side) -> Process {
    let process = cluster.controllers(side, true);
    tokio::time::sleep(Duration::from_secs(5)).await;
    idle(&process).await;
    process
}

/// From the end of the leader to the first write of the standby, in seconds.
async fn takeover(cluster: &Cluster, mut leader: Process, in_order: bool) -> f64 {
    let begun = Instant::now();
    if in_order {
        leader.terminate();
        let _code = leader.exit_code();
    } else {
        drop(leader);
    }
    let scaled = scale_probe(cluster).await;
    (written(cluster, scaled).await - begun).as_secs_f64()
}

/// Ends a process in order.
pub async fn end(mut process: Process) {
    process.terminate();
    let _code = process.exit_code();
}

/// Scales the probe by one pod, and says how many there must be then.
async fn scale_probe(cluster: &Cluster) -> usize {
    let wanted = probes(&cluster.pods) + 1;
    cluster.scale(PROBE, PROBE, wanted).await;
    wanted
}

/// When the pod was created.
async fn written(cluster: &Cluster, wanted: usize) -> Instant {
    cluster.pods.wait_until("the probe's pod", STEP_TIMEOUT, |pods| probes(pods) == wanted).await
}

async fn first_write(cluster: &Cluster) {
    let scaled = scale_probe(cluster).await;
    written(cluster, scaled).await;
}

fn probes(pods: &Pods) -> usize {
    pods.count(|pod: &Seen| pod.namespace == PROBE)
}

/// The resident memory of a process.
pub fn megabytes(process: &Process) -> f64 {
    usage::resident(process.0.id()) as f64 / 1e6
}
