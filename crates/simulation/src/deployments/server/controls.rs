//! Access for the rest of the simulation to the server: the values that it reads there, and those that it sets.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::{Cost, FirstAttempt, Judge, Server};
use crate::deployments::oracle::{self, Ending};
use crate::engine::breach::Breach;
use crate::engine::network;
use crate::engine::objects::{Picture, number, text};
use crate::engine::request_fault::OrderedFault;
use windlass::metrics::Metrics;

/// State of the history that the rest of the simulation sets or reads.
#[derive(Debug, Default)]
pub(super) struct HistoryState {
    pub(super) cost: Cost,
    /// Until when the longest lag of a watch may last.
    lags_until: Option<Instant>,
    /// The Deployment for which no daemon can write.
    pub(super) forbidden: Option<&'static str>,
    /// The rate limit of daemons that start from now on, as requests per second and burst.
    limited: Option<(f64, u32)>,
    /// Whether daemons can change nothing of a ReplicaSet but its status.
    pub(super) sizes_fixed: bool,
    /// Until when an admission webhook cannot be called.
    pub(super) webhook_fails_until: Option<Instant>,
    /// Since when all writes have ended, with known results.
    settled: Option<Duration>,
}

/// How long a sync may wait for the rate limiter where a rate limit is set.
const QUEUE: Duration = Duration::from_secs(30);

impl HistoryState {
    /// How long ago the author of a call may have decided on it, although it works without a pause.
    pub(super) fn longest_queue(&self) -> Duration {
        self.limited.map_or(Duration::ZERO, |_| QUEUE)
    }
}

impl Judge {
    /// A daemon's watch of a resource shows nothing until then, or for longer if it already lags longer.
    pub(super) fn lags_at_least(&mut self, daemon: usize, resource: &str, until: Instant) {
        let lag = self.lags.entry((daemon, resource.to_owned())).or_insert(until);
        *lag = until.max(*lag);
    }
}

impl Server {
    /// The cost of the daemons' calls so far.
    pub fn cost(&self) -> Cost {
        self.with_judge(|judge| judge.history_state.cost)
    }

    /// How long a watch may still lag: the end of the faults does not release what is withheld.
    pub fn lagging_for(&self) -> Duration {
        let until = self.with_judge(|judge| judge.history_state.lags_until);
        until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()))
    }

    /// Records that no write is open any more.
    pub fn settle(&self) {
        let now = self.elapsed();
        self.with_judge(|judge| judge.history_state.settled = Some(now));
    }

    /// When that was, if it was.
    pub fn settled(&self) -> Option<Duration> {
        self.with_judge(|judge| judge.history_state.settled)
    }

    /// The holder of the Lease, or "".
    pub fn leader(&self) -> String {
        let lease = self.sandbox.object("Lease", "kube-system", "windlass").unwrap_or_default();
        text(&lease, "/spec/holderIdentity").to_owned()
    }

    /// Notified when this daemon is killed after its last write.
    pub fn killed(&self, daemon: usize) -> Option<Arc<Notify>> {
        self.with_judge(|judge| judge.killed.get(daemon).cloned())
    }

    /// The largest `spec.replicas` of a Deployment.
    pub fn largest_deployment(&self) -> u64 {
        let picture = self.picture();
        let sizes = picture.get("deployments").into_iter().flat_map(|all| all.values());
        let largest = sizes.map(|deployment| number(deployment, "/spec/replicas")).max();
        largest.and_then(|size| size.try_into().ok()).unwrap_or(0)
    }

    /// Records that a daemon has got the signal to stop.
    pub fn stop_signalled(&self, agent: &str) {
        self.say(&format!("{agent} gets the signal to stop"));
        let now = self.elapsed();
        self.with_judge(|judge| judge.invariants.stop_signalled(now, agent));
    }

    /// Records that a daemon starts.
    pub fn starts(&self, agent: &str) {
        let now = self.elapsed();
        self.with_judge(|judge| network::Judge::daemon_started(judge, agent, now));
        self.say(&format!("{agent} starts"));
    }

    /// The daemons' writes about workloads so far.
    pub fn acts(&self) -> u64 {
        self.with_judge(|judge| judge.acts)
    }

    /// The objects as stored.
    pub fn picture(&self) -> Picture {
        self.with_judge(|judge| judge.picture.clone())
    }

    /// Records that users did not wait until the cluster was settled.
    pub fn users_gave_up(&self) {
        self.with_judge(|judge| judge.ending.is_hurried = true);
    }

    /// Takes the present state as the result of the scenario's changes.
    pub fn record_ending(&self) {
        self.with_judge(|judge| {
            let (tally, objects) = (judge.tally.clone(), oracle::objects(&judge.picture));
            judge.ending = Ending { tally, objects, is_hurried: judge.ending.is_hurried };
        });
    }

    /// The result that was recorded.
    pub fn ending(&self) -> Ending {
        self.with_judge(|judge| judge.ending.clone())
    }

    /// New metrics for a daemon, which are checked at the end.
    pub fn metrics(&self) -> Arc<Metrics> {
        let metrics = Metrics::new();
        self.with_judge(|judge| judge.metrics.push(metrics.clone()));
        metrics
    }

    /// A worker survives a sync that panics, and only counts it; here that is a failure (R1).
    pub fn check_panics(&self) {
        let panicked = |metrics: &Arc<Metrics>| metrics.render().contains("reason=\"panic\"");
        if self.with_judge(|judge| judge.metrics.iter().any(panicked)) {
            self.fail(Breach::new("R1", "a sync panicked"));
        }
    }

    /// Refuses all writes of the daemons for a Deployment, or with `None` none any more.
    pub fn forbid(&self, deployment: Option<&'static str>) {
        self.with_judge(|judge| judge.history_state.forbidden = deployment);
    }

    /// Sets the rate limit of daemons that start from now on; `None` sets a limit too high to matter.
    pub fn limit(&self, rate: Option<(f64, u32)>) {
        self.with_judge(|judge| judge.history_state.limited = rate);
    }

    /// The rate limit of daemons that start now.
    pub fn rate(&self) -> (f64, u32) {
        self.with_judge(|judge| judge.history_state.limited).unwrap_or((1e6, 1_000_000))
    }

    /// Refuses all changes of ReplicaSets by the daemons but those of their status, or allows them again.
    pub fn fix_sizes(&self, fixed: bool) {
        self.with_judge(|judge| judge.history_state.sizes_fixed = fixed);
    }

    /// Sets whether a quota refuses new pods.
    pub fn set_quota(&self, full: bool) {
        self.with_judge(|judge| judge.quota = full);
    }

    /// Makes admission webhooks fail for this time.
    pub fn fail_webhook(&self, time: Duration) {
        let until = Some(Instant::now() + time);
        self.with_judge(|judge| judge.history_state.webhook_fails_until = until);
    }

    /// Makes the first attempt of each write of the daemons fail.
    pub fn fail_first_attempts(&self, how: Option<FirstAttempt>) {
        self.with_judge(|judge| judge.first_attempts = how.map(|how| (how, BTreeSet::new())));
    }

    /// Orders a fault for the creation of a pod that follows this many others.
    pub fn order(&self, others: u32, order: OrderedFault) {
        self.with_judge(|judge| judge.ordered = Some((others, order)));
    }

    /// Makes a daemon's watch of a resource show nothing for a while.
    pub fn lag(&self, daemon: usize, resource: &str, time: Duration) {
        let until = Instant::now() + time;
        self.with_judge(|judge| {
            judge.lags_at_least(daemon, resource, until);
            judge.history_state.lags_until = judge.history_state.lags_until.max(Some(until));
        });
    }

    /// Freezes the connection over which a daemon watches a resource: open requests on it get no reply, and the next
    /// request is lost with it. A daemon that abandons those opens another connection.
    pub fn freeze(&self, daemon: usize, resource: &str) {
        let now = self.elapsed();
        self.say(&format!("daemon {daemon}: the connection of its watch of {resource} freezes"));
        self.with_judge(|judge| {
            let frozen = judge.frozen.entry((daemon, resource.to_owned())).or_default();
            frozen.connections += 1;
            frozen.in_use = true;
            judge.knowledge.daemon_falls_behind(daemon, resource, now);
        });
    }

    /// Makes a daemon's renewals of its Lease fail for a while, except the first, which gets a late reply.
    pub fn fail_renewals(&self, daemon: usize, time: Duration) {
        let until = Instant::now() + time;
        self.with_judge(|judge| judge.failing_renewals.insert(daemon, (until, false)));
    }

    /// Kills a daemon after this many more writes.
    pub fn kill_after_writes(&self, daemon: usize, writes: u32) {
        self.with_judge(|judge| judge.writes_until_killed.insert(daemon, writes));
    }
}
