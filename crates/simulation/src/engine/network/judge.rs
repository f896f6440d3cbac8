//! The parts that a simulation adds to its cluster: its invariants, and the faults that belong to it.

use std::time::Duration;

use axum::body::Body;
use http::{Request, StatusCode};
use jiff::Timestamp;
use serde_json::Value;

use crate::engine::breach::Breach;
use crate::engine::call::Call;
use crate::engine::request_fault::RequestFault;
use windlass_apiserver::Sandbox;

/// When a write is committed, and by whom.
#[derive(Clone, Copy, Debug)]
pub struct Commit<'a> {
    /// The stored objects.
    pub sandbox: &'a Sandbox,
    /// When, since the beginning of the history.
    pub at: Duration,
    /// When, by the clock of the cluster.
    pub now: Timestamp,
    /// The request.
    pub call: &'a Call,
}

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
    fn committed(&mut self, commit: Commit<'_>, before: Self::Before) -> Result<(), Breach>;

    /// A daemon has sent a request.
    fn sent(&mut self, at: Duration, call: &Call) {
        let _ = (at, call);
    }

    /// A request of a daemon was carried out, with this result.
    fn carried_out(&mut self, sandbox: &Sandbox, call: &Call, status: StatusCode) {
        let _ = (sandbox, call, status);
    }

    /// A request of a user that is carried out right after this one, before its answer arrives.
    fn follow_up(&mut self, sandbox: &Sandbox, call: &Call) -> Option<Request<Body>> {
        let _ = (sandbox, call);
        None
    }

    /// The fault of this request beside those of the network.
    fn fault(&self, call: &Call) -> Option<RequestFault> {
        let _ = call;
        None
    }

    /// The JSON that is answered in place of the API server's.
    fn rewrites(&self, call: &Call) -> Option<Rewrite> {
        let _ = call;
        None
    }

    /// Until when this watch shows nothing.
    fn lags_until(&self, call: &Call) -> Duration {
        let _ = call;
        Duration::ZERO
    }

    /// A daemon starts.
    fn daemon_started(&mut self, agent: &str, at: Duration) {
        let _ = (agent, at);
    }

    /// A daemon is dead, and has lost its memory.
    fn daemon_died(&mut self) {}

    /// A daemon's caches may lag until then.
    fn is_blind(&mut self, until: Duration) {
        let _ = until;
    }
}
