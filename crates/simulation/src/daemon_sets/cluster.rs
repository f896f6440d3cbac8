//! The API server as each client sees it: requests of the daemons may be lost or late; each is carried out at one
//! instant and judged by the state at that instant.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures::FutureExt as _;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;
use tower::ServiceExt as _;

use super::judge::{Commit, Judge};
use super::scenario::{Faults, Scenario};
use crate::call::Call;
use crate::invariants::Breach;
use crate::server::NAMESPACE;
use crate::server::replies::{lost, refused};
use windlass::clock::Clock;
use windlass_apiserver::{Options, Sandbox};

/// A daemon with more requests than this in a second of virtual time retries without a wait.
const STORM: u64 = 3000;

/// How long a daemon's caches may lag after its watches break.
const BLIND: Duration = Duration::from_secs(15);

struct State {
    rng: fastrand::Rng,
    faults: Option<Faults>,
    judge: Judge,
    failure: Option<Breach>,
    dead: BTreeSet<Arc<str>>,
    log: Vec<String>,
    /// Writes and events of the daemons so far.
    writes: u64,
    second: (u64, u64),
}

/// See the module documentation.
pub struct Cluster {
    /// Stores the objects.
    pub sandbox: Sandbox,
    /// The time.
    pub clock: Clock,
    router: axum::Router,
    start: Instant,
    state: Mutex<State>,
}

fn kind(resource: &str) -> &'static str {
    match resource {
        "daemonsets" => "DaemonSet",
        "controllerrevisions" => "ControllerRevision",
        "nodes" => "Node",
        _ => "Pod",
    }
}

enum Fault {
    Proceed,
    LoseRequest,
    LoseReply,
    Late(Duration),
    LateReply(Duration),
    Refuse,
    Hang,
}

impl Cluster {
    /// An API server with nothing in it.
    pub fn new(scenario: &Scenario) -> Self {
        let clock = Clock::virtual_from(Timestamp::from_second(1_767_225_600).unwrap_or_default());
        let time = clock.clone();
        let mut options = Options::new(Arc::new(move || time.now()));
        options.protobuf = false;
        options.seed = scenario.seed;
        let sandbox = Sandbox::new(options);
        let state = State {
            rng: fastrand::Rng::with_seed(scenario.seed),
            faults: Some(scenario.faults),
            judge: Judge::new(scenario.faults.staleness()),
            failure: None,
            dead: BTreeSet::new(),
            log: Vec::new(),
            writes: 0,
            second: (0, 0),
        };
        Cluster { router: sandbox.router(), sandbox, clock, start: Instant::now(), state: Mutex::new(state) }
    }

    /// The client of an actor or daemon. Daemons are called `d` and a number.
    pub fn client(self: &Arc<Self>, agent: &str) -> kube::Client {
        let (cluster, agent) = (self.clone(), Arc::<str>::from(agent));
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let (cluster, agent) = (cluster.clone(), agent.clone());
            async move { Ok::<_, Infallible>(cluster.answer(agent, request).await) }
        });
        kube::Client::new(service, "default")
    }

    async fn answer(
        self: Arc<Self>,
        agent: Arc<str>,
        request: Request<kube::client::Body>,
    ) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let Ok(body) = body.collect().await else { return lost() };
        let body = body.to_bytes();
        let call = Call::new(agent, &parts, &body);
        match self.fault(&call) {
            Fault::Proceed => self.perform(&call, parts, body),
            Fault::LoseRequest => lost(),
            Fault::LoseReply => {
                self.perform(&call, parts, body);
                lost()
            }
            Fault::Late(time) => {
                // A late request is carried out even if its sender has abandoned it.
                let task = tokio::spawn(async move {
                    tokio::time::sleep(time).await;
                    let abandoned = self.state.lock().dead.contains(&call.agent);
                    self.perform(&Call { abandoned, ..call }, parts, body)
                });
                task.await.unwrap_or_else(|_| lost())
            }
            Fault::LateReply(time) => {
                let reply = self.perform(&call, parts, body);
                tokio::time::sleep(time).await;
                reply
            }
            Fault::Refuse => refused(500, "InternalError", "an admission webhook cannot be called", &[]),
            Fault::Hang => std::future::pending().await,
        }
    }

    fn fault(&self, call: &Call) -> Fault {
        let mut state = self.state.lock();
        if state.dead.contains(&call.agent) {
            return Fault::Hang;
        }
        if !call.of_daemon() {
            return Fault::Proceed;
        }
        let second = self.start.elapsed().as_secs();
        state.second = if state.second.0 == second { (second, state.second.1 + 1) } else { (second, 1) };
        if state.second.1 > STORM {
            let breach =
                Breach::new("C1", format!("more than {STORM} requests in a second, the last {call}"));
            note(&mut state, breach);
            return Fault::Hang;
        }
        let Some(faults) = state.faults.filter(|_| !call.watch) else { return Fault::Proceed };
        let late = Duration::from_millis(state.rng.u64(10..5000));
        // Sometimes a request arrives after its author has abandoned it.
        let given_up = Duration::from_secs(if state.rng.u8(..3) == 0 { 33 } else { 0 });
        let chance = state.rng.u8(..100);
        let fates = [
            (faults.lost_requests, Fault::LoseRequest),
            (faults.lost_replies, Fault::LoseReply),
            (faults.late_requests, Fault::Late(late + given_up)),
            (faults.late_replies, Fault::LateReply(late)),
            (if call.is_workload_write() { faults.refusals } else { 0 }, Fault::Refuse),
        ];
        let mut below = 0;
        for (part, fault) in fates {
            below += part;
            if chance < below {
                return fault;
            }
        }
        Fault::Proceed
    }

    fn object(&self, call: &Call) -> Option<Arc<Value>> {
        let namespace = if call.resource == "nodes" { "" } else { NAMESPACE };
        self.sandbox.object(kind(&call.resource), namespace, &call.name)
    }

    /// Carries a request out at one instant, and judges what it did.
    fn perform(&self, call: &Call, parts: http::request::Parts, body: Bytes) -> Response<Body> {
        let mut state = self.state.lock();
        let is_judged = call.is_write()
            && matches!(&*call.resource, "daemonsets" | "controllerrevisions" | "nodes" | "pods");
        let before = if is_judged { self.object(call) } else { None };
        let pods = if is_judged { self.sandbox.objects("Pod") } else { Vec::new() };
        let revisions = if is_judged { self.sandbox.objects("ControllerRevision") } else { Vec::new() };
        let request = Request::from_parts(parts, Body::from(body));
        let response = self.router.clone().oneshot(request).now_or_never();
        let Some(Ok(response)) = response else {
            note(
                &mut state,
                Breach::new("the simulation", format!("the API server did not answer at once: {call}")),
            );
            return lost();
        };
        if call.of_daemon() && call.is_write() && call.resource != "leases" {
            state.writes += 1;
        }
        if !is_judged || !response.status().is_success() {
            return response;
        }
        let after = self.object(call);
        if before == after {
            return response;
        }
        let at = self.start.elapsed();
        if call.of_daemon() {
            state.log.push(format!("{:>9.3} {call}", at.as_secs_f64()));
        }
        let commit = Commit {
            at,
            now: self.clock.now(),
            call,
            before: before.as_deref(),
            after: after.as_deref(),
            daemon_set: self.daemon_set(),
            nodes: self.sandbox.objects("Node"),
            pods,
            revisions,
        };
        if let Err(breach) = state.judge.committed(&commit) {
            note(&mut state, breach);
        }
        response
    }

    /// The DaemonSet, if there is one.
    pub fn daemon_set(&self) -> Option<Arc<Value>> {
        self.sandbox.object("DaemonSet", NAMESPACE, "agent")
    }

    /// The virtual time since the start.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Adds a line to the log.
    pub fn say(&self, what: &str) {
        let at = self.start.elapsed().as_secs_f64();
        self.state.lock().log.push(format!("{at:>9.3} {what}"));
    }

    /// A daemon is dead: its requests get no reply any more.
    pub fn dies(&self, agent: &str) {
        let mut state = self.state.lock();
        state.dead.insert(agent.into());
        state.judge.daemon_died();
        state.judge.is_blind(self.start.elapsed() + BLIND);
    }

    /// Breaks all watches; with `compact` they cannot be resumed.
    pub fn break_watches(&self, compact: bool) {
        if compact {
            self.sandbox.compact();
        }
        self.sandbox.break_watches();
        self.state.lock().judge.is_blind(self.start.elapsed() + BLIND);
    }

    /// Ends the faults.
    pub fn calm(&self) {
        self.state.lock().faults = None;
    }

    /// How many writes the daemons have sent, events included.
    pub fn writes(&self) -> u64 {
        self.state.lock().writes
    }

    /// Records a failure.
    pub fn fail(&self, breach: Breach) {
        note(&mut self.state.lock(), breach);
    }

    /// The first failure.
    pub fn failure(&self) -> Option<Breach> {
        self.state.lock().failure.clone()
    }

    /// The log.
    pub fn log(&self) -> Vec<String> {
        self.state.lock().log.clone()
    }
}

fn note(state: &mut State, breach: Breach) {
    if state.failure.is_none() {
        state.log.push(format!("          {breach}"));
        state.failure = Some(breach);
    }
}
