//! What the others of the simulation ask of the server, and tell it to do.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{Picture, STORM, Server, State, Stumble};
use crate::call::Call;
use crate::cost::Cost;
use crate::invariants::{Breach, number, text};
use crate::log::Entry;
use crate::oracle::{self, Ending};
use crate::request_fault::Order;
use windlass::metrics::Metrics;

/// What the others ask of how the history stands.
#[derive(Debug, Default)]
pub(super) struct Standing {
    pub(super) cost: Cost,
    /// Until when the watch that lags longest may show nothing.
    lags_until: Option<Instant>,
    /// Whether two leaders have fought without end.
    pub(super) stormed: bool,
    /// The Deployment for which no daemon can write.
    pub(super) forbidden: Option<&'static str>,
    /// The rate limit of daemons that start from now on, per second and at once.
    limited: Option<(f64, u32)>,
    /// Whether no daemon can change a ReplicaSet, but for its status.
    pub(super) sizes_fixed: bool,
    /// Until when an admission webhook cannot be called.
    pub(super) webhook_fails_until: Option<Instant>,
    /// Since when all writes are over, and their outcomes known.
    settled: Option<Duration>,
}

/// How long a sync may wait for a rate limit that anybody could notice.
const QUEUE: Duration = Duration::from_secs(30);

impl Standing {
    /// How long ago the author of a call may have decided on it although it works without a pause.
    pub(super) fn longest_queue(&self) -> Duration {
        self.limited.map_or(Duration::ZERO, |_| QUEUE)
    }
}

impl State {
    /// A daemon's watch of a resource shows nothing until then, or for longer if that is so already.
    pub(super) fn lags_at_least(&mut self, daemon: usize, resource: &str, until: Instant) {
        let lag = self.lags.entry((daemon, resource.to_owned())).or_insert(until);
        *lag = until.max(*lag);
    }
}

impl Server {
    /// There are too many requests for the history ever to end. Two leaders without an election who see different things
    /// write over each other's statuses as fast as the API server answers, which takes no time here.
    pub(super) fn storms(&self, state: &mut State, call: &Call) {
        let is_led = self.scenario.election || self.scenario.daemons == 1;
        if is_led && self.scenario.owes_rest() {
            let what = format!("{STORM} requests within a second: {call}");
            self.note(state, Err(Breach::new("C1", what)));
        }
        state.standing.stormed = true;
    }

    /// Whether nothing is to be learned from the rest of the history.
    pub fn is_over(&self) -> bool {
        let state = self.state.lock();
        state.failure.is_some() || state.standing.stormed
    }

    /// What the daemons' calls come to so far.
    pub fn cost(&self) -> Cost {
        self.state.lock().standing.cost
    }

    /// How long a watch may go on showing nothing: the end of the faults does not bring back what is withheld.
    pub fn lagging_for(&self) -> Duration {
        let until = self.state.lock().standing.lags_until;
        until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()))
    }

    /// No write is on its way any more.
    pub fn settle(&self) {
        self.state.lock().standing.settled = Some(self.start.elapsed());
    }

    /// When that was, if it was.
    pub fn settled(&self) -> Option<Duration> {
        self.state.lock().standing.settled
    }

    /// Who holds the Lease, or "".
    pub fn leader(&self) -> String {
        let lease = self.sandbox.object("Lease", "kube-system", "windlass").unwrap_or_default();
        text(&lease, "/spec/holderIdentity").to_owned()
    }

    /// Kills a daemon now.
    pub fn slay(&self, agent: &str) {
        self.kill(&mut self.state.lock(), &agent.into());
    }

    /// The most pods that a Deployment wants.
    pub fn largest_deployment(&self) -> u64 {
        let state = self.state.lock();
        let sizes = state.picture.get("deployments").into_iter().flat_map(|all| all.values());
        let largest = sizes.map(|deployment| number(deployment, "/spec/replicas")).max();
        largest.and_then(|size| size.try_into().ok()).unwrap_or(0)
    }

    /// Writes a line of its own into the log.
    pub fn say(&self, text: &str) {
        self.state.lock().log.note(self.start.elapsed(), text);
    }

    /// A daemon is asked to stop.
    pub fn asked_to_stop(&self, agent: &str) {
        self.say(&format!("{agent} is asked to stop"));
        self.state.lock().invariants.asked_to_stop(self.start.elapsed(), agent);
    }

    /// A daemon starts.
    pub fn starts(&self, agent: &str) {
        self.state.lock().invariants.starts(self.start.elapsed(), agent);
        self.say(&format!("{agent} starts"));
    }

    /// Notes a failure that no request shows.
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

    /// Requests of everybody so far.
    pub fn requests(&self) -> u64 {
        self.state.lock().requests
    }

    /// The daemons' writes so far that were about workloads.
    pub fn acts(&self) -> u64 {
        self.state.lock().acts
    }

    /// The objects as stored.
    pub fn picture(&self) -> Picture {
        self.state.lock().picture.clone()
    }

    /// Users have given up on rest.
    pub fn patience_ended(&self) {
        self.state.lock().ending.is_hurried = true;
    }

    /// Takes what there is now for the end of what the scenario asks for.
    pub fn remember_ending(&self) {
        let mut state = self.state.lock();
        let (tally, objects) = (state.tally.clone(), oracle::objects(&state.picture));
        state.ending = Ending { tally, objects, is_hurried: state.ending.is_hurried };
    }

    /// What was remembered.
    pub fn ending(&self) -> Ending {
        self.state.lock().ending.clone()
    }

    /// The objects when the first failure occurred, or as stored.
    pub fn last_picture(&self) -> Picture {
        let state = self.state.lock();
        if state.failure.is_some() { state.broken.clone() } else { state.picture.clone() }
    }

    /// New metrics for a daemon, to be looked at in the end.
    pub fn metrics(&self) -> Arc<Metrics> {
        let metrics = Metrics::new();
        self.metrics.lock().push(metrics.clone());
        metrics
    }

    /// A worker survives a sync that panics, and only counts it; here that is a failure (R1).
    pub fn look_for_panics(&self) {
        if self.metrics.lock().iter().any(|metrics| metrics.render().contains("reason=\"panic\"")) {
            self.fail(Breach::new("R1", "a sync panicked"));
        }
    }

    /// Refuses whatever the daemons write for a Deployment, or nothing any more.
    pub fn forbid(&self, deployment: Option<&'static str>) {
        self.state.lock().standing.forbidden = deployment;
    }

    /// Gives daemons that start from now on this rate limit, or none that anybody could notice.
    pub fn limit(&self, rate: Option<(f64, u32)>) {
        self.state.lock().standing.limited = rate;
    }

    /// The rate limit of daemons that start now.
    pub fn rate(&self) -> (f64, u32) {
        self.state.lock().standing.limited.unwrap_or((1e6, 1_000_000))
    }

    /// Refuses whatever the daemons change about a ReplicaSet but its status, or nothing of it any more.
    pub fn fix_sizes(&self, fixed: bool) {
        self.state.lock().standing.sizes_fixed = fixed;
    }

    /// Whether a quota refuses new pods.
    pub fn set_quota(&self, full: bool) {
        self.state.lock().quota = full;
    }

    /// An admission webhook cannot be called for so long.
    pub fn fail_webhook(&self, time: Duration) {
        self.state.lock().standing.webhook_fails_until = Some(Instant::now() + time);
    }

    /// Whether there are faults.
    pub fn set_faulty(&self, faulty: bool) {
        let mut state = self.state.lock();
        state.faulty = faulty;
        if !faulty {
            state.lags.clear();
            state.stalls.clear();
            state.fuses.clear();
            state.ordered = None;
            state.standing.webhook_fails_until = None;
        }
    }

    /// Has each of the daemons' writes fail when it is first tried.
    pub fn stumble(&self, how: Option<Stumble>) {
        self.state.lock().stumbled = how.map(|how| (how, BTreeSet::new()));
    }

    /// Orders what becomes of a creation of a pod that is asked for after so many others.
    pub fn order(&self, others: u32, order: Order) {
        self.state.lock().ordered = Some((others, order));
    }

    /// Lets a daemon's watch of a resource show nothing for a while.
    pub fn lag(&self, daemon: usize, resource: &str, time: Duration) {
        let until = Instant::now() + time;
        let mut state = self.state.lock();
        state.lags_at_least(daemon, resource, until);
        state.standing.lags_until = state.standing.lags_until.max(Some(until));
    }

    /// Has the connection freeze over which a daemon watches a resource: what was asked for over it is never answered,
    /// and the next request is lost with it. Whoever gives that up opens another one.
    pub fn freeze(&self, daemon: usize, resource: &str) {
        let (mut state, now) = (self.state.lock(), self.start.elapsed());
        let frozen = state.frozen.entry((daemon, resource.to_owned())).or_default();
        frozen.connections += 1;
        frozen.in_use = true;
        state.log.note(now, &format!("daemon {daemon}: the connection of its watch of {resource} freezes"));
        state.knowledge.daemon_falls_behind(daemon, resource, now);
    }

    /// Lets a daemon's writes of its Lease fail for a while, but for the first, which is answered late.
    pub fn stall(&self, daemon: usize, time: Duration) {
        self.state.lock().stalls.insert(daemon, (Instant::now() + time, false));
    }

    /// Kills a daemon after so many more writes.
    pub fn light_fuse(&self, daemon: usize, writes: u32) {
        self.state.lock().fuses.insert(daemon, writes);
    }
}
