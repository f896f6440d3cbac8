//! What the others of the simulation ask of the server, and tell it to do.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{Picture, Server, Stumble};
use crate::metrics::Metrics;
use crate::sim::log::Entry;
use crate::sim::monitors::Breach;
use crate::sim::oracle::{self, Ending};

impl Server {
    /// Writes a line of its own into the log.
    pub fn say(&self, text: &str) {
        self.state.lock().log.note(self.start.elapsed(), text);
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

    /// Takes what there is now for the end of what the scenario asks for.
    pub fn remember_ending(&self) {
        let mut state = self.state.lock();
        state.ending = Ending { tally: state.tally.clone(), objects: oracle::objects(&state.picture) };
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

    /// Whether a quota refuses new pods.
    pub fn set_quota(&self, full: bool) {
        self.state.lock().quota = full;
    }

    /// Whether there are faults.
    pub fn set_faulty(&self, faulty: bool) {
        let mut state = self.state.lock();
        state.faulty = faulty;
        if !faulty {
            state.lags.clear();
            state.stalls.clear();
            state.fuses.clear();
        }
    }

    /// Has each of the daemons' writes fail when it is first tried.
    pub fn stumble(&self, how: Option<Stumble>) {
        self.state.lock().stumbled = how.map(|how| (how, BTreeSet::new()));
    }

    /// Lets a daemon's watch of a resource show nothing for a while.
    pub fn lag(&self, daemon: usize, resource: &str, time: Duration) {
        self.state.lock().lags.insert((daemon, resource.to_owned()), Instant::now() + time);
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
