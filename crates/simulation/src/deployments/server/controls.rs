//! Access for the rest of the simulation to the server: the values that it reads there, and those that it sets.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{FirstAttempt, STORM, Server, State};
use crate::deployments::cost::Cost;
use crate::deployments::oracle::{self, Ending};
use crate::engine::breach::Breach;
use crate::engine::call::Call;
use crate::engine::log::Entry;
use crate::engine::objects::{Picture, number, text};
use crate::engine::request_fault::OrderedFault;
use windlass::metrics::Metrics;

/// State of the history that the rest of the simulation sets or reads.
#[derive(Debug, Default)]
pub(super) struct HistoryState {
    pub(super) cost: Cost,
    /// Until when the longest lag of a watch may last.
    lags_until: Option<Instant>,
    /// Whether two leaders overwrote each other without end.
    pub(super) stormed: bool,
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

impl State {
    /// A daemon's watch of a resource shows nothing until then, or for longer if it already lags longer.
    pub(super) fn lags_at_least(&mut self, daemon: usize, resource: &str, until: Instant) {
        let lag = self.lags.entry((daemon, resource.to_owned())).or_insert(until);
        *lag = until.max(*lag);
    }
}

impl Server {
    /// Counts requests, and records a storm: too many requests for the history ever to end. Two leaders without
    /// election that see different states overwrite each other's statuses as fast as the API server replies, which
    /// takes no virtual time.
    pub(super) fn detect_storm(&self, state: &mut State, call: &Call) {
        let is_led = self.scenario.election || self.scenario.daemons == 1;
        if is_led && self.scenario.must_converge() {
            let what = format!("{STORM} requests within a second: {call}");
            self.note(state, Err(Breach::new("C1", what)));
        }
        state.history_state.stormed = true;
    }

    /// Whether the rest of the history has no more value.
    pub fn is_over(&self) -> bool {
        let state = self.state.lock();
        state.failure.is_some() || state.history_state.stormed
    }

    /// The cost of the daemons' calls so far.
    pub fn cost(&self) -> Cost {
        self.state.lock().history_state.cost
    }

    /// How long a watch may still lag: the end of the faults does not release what is withheld.
    pub fn lagging_for(&self) -> Duration {
        let until = self.state.lock().history_state.lags_until;
        until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()))
    }

    /// Records that no write is open any more.
    pub fn settle(&self) {
        self.state.lock().history_state.settled = Some(self.start.elapsed());
    }

    /// When that was, if it was.
    pub fn settled(&self) -> Option<Duration> {
        self.state.lock().history_state.settled
    }

    /// The holder of the Lease, or "".
    pub fn leader(&self) -> String {
        let lease = self.sandbox.object("Lease", "kube-system", "windlass").unwrap_or_default();
        text(&lease, "/spec/holderIdentity").to_owned()
    }

    /// Kills a daemon now.
    pub fn kill_now(&self, agent: &str) {
        self.kill(&mut self.state.lock(), &agent.into());
    }

    /// The largest `spec.replicas` of a Deployment.
    pub fn largest_deployment(&self) -> u64 {
        let state = self.state.lock();
        let sizes = state.picture.get("deployments").into_iter().flat_map(|all| all.values());
        let largest = sizes.map(|deployment| number(deployment, "/spec/replicas")).max();
        largest.and_then(|size| size.try_into().ok()).unwrap_or(0)
    }

    /// Adds a line to the log.
    pub fn say(&self, text: &str) {
        self.state.lock().log.note(self.start.elapsed(), text);
    }

    /// Records that a daemon has got the signal to stop.
    pub fn stop_signalled(&self, agent: &str) {
        self.say(&format!("{agent} gets the signal to stop"));
        self.state.lock().invariants.stop_signalled(self.start.elapsed(), agent);
    }

    /// Records that a daemon starts.
    pub fn starts(&self, agent: &str) {
        self.state.lock().invariants.starts(self.start.elapsed(), agent);
        self.say(&format!("{agent} starts"));
    }

    /// Records a failure that no request shows.
    pub fn fail(&self, breach: Breach) {
        self.note(&mut self.state.lock(), Err(breach));
    }

    /// The first failure so far.
    pub fn failure(&self) -> Option<Breach> {
        self.state.lock().failure.clone()
    }

    /// The log, if it is kept.
    pub fn log(&self) -> Vec<Entry> {
        self.state.lock().log.entries()
    }

    /// A fingerprint of the whole log.
    pub fn digest(&self) -> u64 {
        self.state.lock().log.digest()
    }

    /// Requests of all clients so far.
    pub fn requests(&self) -> u64 {
        self.state.lock().requests
    }

    /// The daemons' writes about workloads so far.
    pub fn acts(&self) -> u64 {
        self.state.lock().acts
    }

    /// The objects as stored.
    pub fn picture(&self) -> Picture {
        self.state.lock().picture.clone()
    }

    /// Records that users did not wait until the cluster was settled.
    pub fn users_gave_up(&self) {
        self.state.lock().ending.is_hurried = true;
    }

    /// Takes the present state as the result of the scenario's changes.
    pub fn record_ending(&self) {
        let mut state = self.state.lock();
        let (tally, objects) = (state.tally.clone(), oracle::objects(&state.picture));
        state.ending = Ending { tally, objects, is_hurried: state.ending.is_hurried };
    }

    /// The result that was recorded.
    pub fn ending(&self) -> Ending {
        self.state.lock().ending.clone()
    }

    /// The objects at the first failure, or as stored.
    pub fn last_picture(&self) -> Picture {
        let state = self.state.lock();
        if state.failure.is_some() { state.broken.clone() } else { state.picture.clone() }
    }

    /// New metrics for a daemon, which are checked at the end.
    pub fn metrics(&self) -> Arc<Metrics> {
        let metrics = Metrics::new();
        self.metrics.lock().push(metrics.clone());
        metrics
    }

    /// A worker survives a sync that panics, and only counts it; here that is a failure (R1).
    pub fn check_panics(&self) {
        if self.metrics.lock().iter().any(|metrics| metrics.render().contains("reason=\"panic\"")) {
            self.fail(Breach::new("R1", "a sync panicked"));
        }
    }

    /// Refuses all writes of the daemons for a Deployment, or with `None` none any more.
    pub fn forbid(&self, deployment: Option<&'static str>) {
        self.state.lock().history_state.forbidden = deployment;
    }

    /// Sets the rate limit of daemons that start from now on; `None` sets a limit too high to matter.
    pub fn limit(&self, rate: Option<(f64, u32)>) {
        self.state.lock().history_state.limited = rate;
    }

    /// The rate limit of daemons that start now.
    pub fn rate(&self) -> (f64, u32) {
        self.state.lock().history_state.limited.unwrap_or((1e6, 1_000_000))
    }

    /// Refuses all changes of ReplicaSets by the daemons but those of their status, or allows them again.
    pub fn fix_sizes(&self, fixed: bool) {
        self.state.lock().history_state.sizes_fixed = fixed;
    }

    /// Sets whether a quota refuses new pods.
    pub fn set_quota(&self, full: bool) {
        self.state.lock().quota = full;
    }

    /// Makes admission webhooks fail for this time.
    pub fn fail_webhook(&self, time: Duration) {
        self.state.lock().history_state.webhook_fails_until = Some(Instant::now() + time);
    }

    /// Switches the faults on or off.
    pub fn set_faulty(&self, faulty: bool) {
        let mut state = self.state.lock();
        state.faulty = faulty;
        if !faulty {
            state.lags.clear();
            state.failing_renewals.clear();
            state.writes_until_killed.clear();
            state.ordered = None;
            state.history_state.webhook_fails_until = None;
        }
    }

    /// Makes the first attempt of each write of the daemons fail.
    pub fn fail_first_attempts(&self, how: Option<FirstAttempt>) {
        self.state.lock().first_attempts = how.map(|how| (how, BTreeSet::new()));
    }

    /// Orders a fault for the creation of a pod that follows this many others.
    pub fn order(&self, others: u32, order: OrderedFault) {
        self.state.lock().ordered = Some((others, order));
    }

    /// Makes a daemon's watch of a resource show nothing for a while.
    pub fn lag(&self, daemon: usize, resource: &str, time: Duration) {
        let until = Instant::now() + time;
        let mut state = self.state.lock();
        state.lags_at_least(daemon, resource, until);
        state.history_state.lags_until = state.history_state.lags_until.max(Some(until));
    }

    /// Freezes the connection over which a daemon watches a resource: open requests on it get no reply, and the next
    /// request is lost with it. A daemon that abandons those opens another connection.
    pub fn freeze(&self, daemon: usize, resource: &str) {
        let (mut state, now) = (self.state.lock(), self.start.elapsed());
        let frozen = state.frozen.entry((daemon, resource.to_owned())).or_default();
        frozen.connections += 1;
        frozen.in_use = true;
        state.log.note(now, &format!("daemon {daemon}: the connection of its watch of {resource} freezes"));
        state.knowledge.daemon_falls_behind(daemon, resource, now);
    }

    /// Makes a daemon's renewals of its Lease fail for a while, except the first, which gets a late reply.
    pub fn fail_renewals(&self, daemon: usize, time: Duration) {
        self.state.lock().failing_renewals.insert(daemon, (Instant::now() + time, false));
    }

    /// Kills a daemon after this many more writes.
    pub fn kill_after_writes(&self, daemon: usize, writes: u32) {
        self.state.lock().writes_until_killed.insert(daemon, writes);
    }
}
