//! The parts that a game adds to its cluster: its invariants, and the faults that belong to it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::{Request, Response};
use jiff::Timestamp;
use serde_json::Value;

use crate::engine::breach::Breach;
use crate::engine::call::{Call, OpenCalls};
use crate::engine::request_fault::RequestFault;
use windlass_apiserver::Sandbox;

/// A request at one instant: when it is sent, or carried out.
#[derive(Clone, Copy, Debug)]
pub struct Moment<'a> {
    /// The stored objects.
    pub sandbox: &'a Sandbox,
    /// When, since the beginning of the history.
    pub at: Duration,
    /// When, by the clock of the cluster.
    pub now: Timestamp,
    /// The request.
    pub call: &'a Call,
}

/// The daemons that have been killed.
pub type Dead = BTreeSet<Arc<str>>;

/// A rewrite of the body of an answer.
pub type Rewrite = Box<dyn Fn(Value) -> Value + Send>;

/// The invariants of a simulation.
pub trait Judge: Send + 'static {
    /// The facts that it needs about the state before a write.
    type Before: Send;

    /// The state before a write; `None` if it does not judge such a write.
    fn before(&self, sandbox: &Sandbox, call: &Call) -> Option<Self::Before>;

    /// Judges a write that was carried out.
    ///
    /// # Errors
    /// The breach.
    fn committed(&mut self, moment: Moment<'_>, before: Self::Before) -> Result<(), Breach>;

    /// The calls whose authors wait for an answer, where that makes a difference.
    fn open_calls(&mut self) -> Option<&mut OpenCalls> {
        None
    }

    /// A client begins a call. One that gets an id is reported as answered and ended.
    ///
    /// # Errors
    /// The breach.
    fn begins(&mut self, at: Duration, call: &mut Call) -> Result<(), Breach> {
        let _ = at;
        self.open_calls().into_iter().for_each(|calls| calls.begin(call));
        Ok(())
    }

    /// The fault of this request beside those of the network. `may_fail` says whether it is one of a daemon, before the
    /// faults end.
    fn fault(&mut self, moment: Moment<'_>, may_fail: bool, dead: &mut Dead) -> Option<RequestFault> {
        let _ = (moment, may_fail, dead);
        None
    }

    /// A client has sent a request, which has this fault.
    ///
    /// # Errors
    /// The breach.
    fn sent(&mut self, moment: Moment<'_>, fault: &RequestFault) -> Result<(), Breach> {
        let _ = (moment, fault);
        Ok(())
    }

    /// A request was carried out with this result, and is about to be judged.
    fn carried_out(&mut self, moment: Moment<'_>, reply: &mut Response<Body>) {
        let _ = (moment, reply);
    }

    /// A request of a user that is carried out right after this one, before its answer arrives.
    fn follow_up(&mut self, sandbox: &Sandbox, call: &Call) -> Option<Request<Body>> {
        let _ = (sandbox, call);
        None
    }

    /// A call is answered.
    fn answered(&mut self, at: Duration, call: &Call, fault: &RequestFault, reply: &Response<Body>) {
        let _ = (at, call, fault, reply);
    }

    /// The call with this id has ended, with a reply or abandoned.
    ///
    /// # Errors
    /// The breach.
    fn ended(&mut self, at: Duration, agent: &Arc<str>, id: u64) -> Result<(), Breach> {
        let _ = (at, agent);
        self.open_calls().into_iter().for_each(|calls| calls.end(id));
        Ok(())
    }

    /// Whether a late request arrives after its author has abandoned it. `is_dead`: it has been killed.
    fn was_abandoned(&mut self, call: &Call, is_dead: bool) -> bool {
        is_dead || self.open_calls().is_some_and(|calls| calls.is_abandoned(call))
    }

    /// The reply of a member of the API server that lags behind the others, or `None` if the request is carried out, for
    /// which it may be changed.
    fn lagging_member(
        &mut self,
        at: Duration,
        call: &Call,
        parts: &mut http::request::Parts,
    ) -> Option<Response<Body>> {
        let _ = (at, call, parts);
        None
    }

    /// Whether two daemons may overwrite each other without end.
    fn may_storm(&self) -> bool {
        false
    }

    /// The JSON that is answered in place of the API server's.
    fn rewrites(&self, call: &Call) -> Option<Rewrite> {
        let _ = call;
        None
    }

    /// How long this watch shows nothing from now on.
    fn lags_for(&self, at: Duration, call: &Call) -> Duration {
        let _ = (at, call);
        Duration::ZERO
    }

    /// The number of the connection of this watch: one over an earlier connection shows nothing any more.
    fn connection(&self, call: &Call) -> u32 {
        let _ = call;
        0
    }

    /// A watch no longer shows the present.
    fn falls_behind(&mut self, at: Duration, call: &Call) {
        let _ = (at, call);
    }

    /// A watch that was opened then has shown everything until now.
    fn catches_up(&mut self, at: Duration, call: &Call, opened: Duration) {
        let _ = (at, call, opened);
    }

    /// The faults end.
    fn faults_end(&mut self) {}

    /// A daemon starts.
    fn daemon_started(&mut self, agent: &str, at: Duration) {
        let _ = (agent, at);
    }

    /// A daemon is dead, and has lost its memory.
    fn daemon_died(&mut self, agent: &str) {
        let _ = agent;
    }

    /// A daemon's caches may lag until then.
    fn is_blind(&mut self, until: Duration) {
        let _ = until;
    }
}
