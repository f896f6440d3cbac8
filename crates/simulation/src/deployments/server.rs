//! The API server as each client sees it: every request passes through here, is logged, may be lost or late, is
//! carried out at one instant, and is judged by the state at that instant.

mod chance;
mod controls;
mod member;
mod shown;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures::FutureExt as _;
use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::Instant;
use tower::ServiceExt as _;

use super::crash_points::CrashPoints;
use super::invariants::{Commit, Invariants};
use super::knowledge::{Knowledge, Owner, on_behalf_of};
use super::oracle::{Ending, Tally};
use super::scenario::Scenario;
use super::watch::Watch;
use crate::engine::breach::Breach;
use crate::engine::call::{Call, daemon_of};
use crate::engine::log::Log;
use crate::engine::network::replies::{Lost, lost, refused, retry_after};
use crate::engine::objects::{NAMESPACE, Picture, text};
use crate::engine::request_fault::{Answer, OrderedFault, RequestFault};
use controls::HistoryState;
use member::Versions;
use shown::{Listed, Selected, Shown, Version, show};
use windlass::clock::Clock;
use windlass::metrics::Metrics;
use windlass_apiserver::Sandbox;

/// The namespace of a tenant that forges owner references. It is judged by S24 alone, and is in no [`Picture`].
pub const TENANT: &str = "tenant";

/// With more requests than this within a second of virtual time, a client retries without a wait: such a history
/// would never end.
const STORM: u64 = 5000;

/// How the first attempt of a write fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstAttempt {
    /// It is refused.
    Refused,
    /// It never arrives, and its author cannot know that.
    Lost,
}

#[derive(Debug, Default)]
struct State {
    picture: Picture,
    knowledge: Knowledge,
    invariants: Invariants,
    failure: Option<Breach>,
    /// The objects at the first breach.
    broken: Picture,
    log: Log,
    /// Requests so far, by their kind: random faults are drawn per request and not from one stream, so that leaving
    /// out one act changes as little as possible.
    counts: BTreeMap<String, u64>,
    faulty: bool,
    quota: bool,
    /// Until when a daemon's watch of a resource shows nothing, by daemon and resource.
    lags: BTreeMap<(usize, String), Instant>,
    /// The frozen connections, by daemon and the resource that it watches over them.
    frozen: BTreeMap<(usize, String), Frozen>,
    /// After how many more writes a daemon is killed.
    writes_until_killed: BTreeMap<usize, u32>,
    points: CrashPoints,
    history_state: HistoryState,
    /// Until when most renewals of a daemon's Lease fail.
    failing_renewals: BTreeMap<usize, (Instant, bool)>,
    /// The fault that is ordered for a creation of a pod, and after how many others.
    ordered: Option<(u32, OrderedFault)>,
    /// The writes that have failed once already, where the first attempt of each fails.
    first_attempts: Option<(FirstAttempt, BTreeSet<String>)>,
    /// The resourceVersions, and when they were created.
    versions: Versions,
    dead: BTreeSet<Arc<str>>,
    requests: u64,
    /// How many calls have got an id.
    calls: u64,
    acts: u64,
    tally: Tally,
    ending: Ending,
    /// The second that was counted last, and its requests.
    second: (u64, u64),
}

/// Connections that relay nothing any more, without either end knowing that.
#[derive(Clone, Copy, Debug, Default)]
struct Frozen {
    /// How many there were so far.
    connections: u32,
    /// Whether the last one is still in use: then the next request is sent over it.
    in_use: bool,
}

/// On drop, records that a call has ended, with a reply or abandoned.
struct CallEnd {
    server: Arc<Server>,
    agent: Arc<str>,
    /// The owner that it was made for, and whether it was a status, the last call of a sync.
    owner: Option<(Owner, bool)>,
    id: u64,
    /// Its author waits until then to retry it; the retry belongs to the same sync.
    retry_at: Option<Duration>,
}

impl Drop for CallEnd {
    fn drop(&mut self) {
        let now = self.server.start.elapsed();
        let mut state = self.server.state.lock();
        if let Some((owner, last)) = &self.owner {
            state.knowledge.ends(&self.agent, owner, *last, now, self.retry_at);
        }
        let breach = state.invariants.ended(now, &self.agent, self.id, self.retry_at);
        self.server.note(&mut state, breach);
    }
}

/// See the module documentation.
pub struct Server {
    /// Stores the objects.
    pub sandbox: Sandbox,
    /// The time.
    pub clock: Clock,
    /// The beginning of the history.
    pub start: Instant,
    /// Notified when a daemon is killed after its last write.
    pub killed: Vec<Notify>,
    router: axum::Router,
    scenario: Scenario,
    state: Mutex<State>,
    metrics: Mutex<Vec<Arc<Metrics>>>,
}

impl Server {
    /// An API server in front of `sandbox`. `record` keeps the log entries, not only their fingerprint.
    pub fn new(sandbox: Sandbox, clock: Clock, scenario: Scenario, record: bool) -> Self {
        let invariants = Invariants::new(&scenario);
        let points = CrashPoints::new(scenario.points.clone());
        let state = State { invariants, points, log: Log::new(record), faulty: true, ..State::default() };
        Server {
            router: sandbox.router(),
            sandbox,
            clock,
            start: Instant::now(),
            killed: (0..scenario.daemons).map(|_| Notify::new()).collect(),
            scenario,
            state: Mutex::new(state),
            metrics: Mutex::default(),
        }
    }

    /// The client of an actor or daemon.
    pub fn client(self: &Arc<Self>, agent: &str) -> kube::Client {
        let (server, agent) = (self.clone(), Arc::<str>::from(agent));
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let (server, agent) = (server.clone(), agent.clone());
            async move { Ok::<_, Infallible>(server.answer(agent, request).await) }
        });
        kube::Client::new(service, "default")
    }

    /// Has a client that is called `garbage` carry out the sweeps of the API server.
    pub fn collect_garbage(self: &Arc<Self>) {
        let collector = Arc::downgrade(self);
        self.sandbox.collect_by(move |request| {
            let Some(server) = collector.upgrade() else { return };
            let (parts, body) = request.into_parts();
            let call = Call::new("garbage".into(), &parts, &body);
            server.perform(&call, parts, body.into());
        });
    }

    async fn answer(
        self: Arc<Self>,
        agent: Arc<str>,
        request: Request<kube::client::Body>,
    ) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let Ok(body) = body.collect().await else { return lost() };
        let body = body.to_bytes();
        let mut call = Call::new(agent, &parts, &body);
        // Requests that fill a cache are no decisions.
        let elsewhere = call.namespace == TENANT;
        let judged = call.of_daemon()
            && !elsewhere
            && !call.lists()
            && !matches!(&*call.resource, "leases" | "events");
        let mut over = judged.then(|| {
            let (server, agent) = (self.clone(), call.agent.clone());
            let (mut state, now) = (server.state.lock(), server.start.elapsed());
            state.calls += 1;
            call.id = state.calls;
            let counts = |owner: &Owner| call.is_write() || state.knowledge.is_at_work(&agent, owner, now);
            let owner = on_behalf_of(&call, &state.picture).filter(counts);
            call.known = state.knowledge.begins(&agent, owner.as_ref(), now);
            // A sync may wait for the rate limiter between its decision and its calls.
            call.known = call.known.saturating_sub(state.history_state.longest_queue());
            let breach = state.invariants.begins(now, &call);
            self.note(&mut state, breach);
            drop(state);
            let last = call.is_write() && call.subresource == "status";
            CallEnd { server, agent, owner: owner.map(|owner| (owner, last)), id: call.id, retry_at: None }
        });
        let request_fault = self.arrives(&call, &body);
        let is_refused = matches!(request_fault, RequestFault::Refuse(code, ..) if code != 409);
        let reply = self.clone().undergo(request_fault, &call, parts, body).await;
        if let Some(over) = &mut over {
            let (mut guard, now) = (self.state.lock(), self.start.elapsed());
            let (answer, state) = (answer(&reply, is_refused), &mut *guard);
            state.invariants.answered(now, &call, answer, &state.picture);
            if let Answer::Wait(time) = answer {
                // The clock that its author waits by may be slow.
                over.retry_at = Some(now + 2 * time);
            }
        }
        if call.of_daemon() && !elsewhere && reply.status().is_success() {
            let (invariants, now) = (&mut self.state.lock().invariants, self.start.elapsed());
            show(invariants, now, &call, &reply);
        }
        reply
    }

    async fn undergo(
        self: Arc<Self>,
        request_fault: RequestFault,
        call: &Call,
        mut parts: http::request::Parts,
        body: Bytes,
    ) -> Response<Body> {
        match request_fault {
            RequestFault::Proceed => self.perform(call, parts, body),
            RequestFault::LoseRequest => lost(),
            RequestFault::LoseReply => {
                self.perform(call, parts, body);
                lost()
            }
            RequestFault::Delay(time) => {
                // A task of its own: a late request is carried out even if its sender has abandoned it.
                let call = call.clone();
                let task = tokio::spawn(async move {
                    tokio::time::sleep(time).await;
                    let abandoned = self.state.lock().invariants.was_abandoned(call.id);
                    self.perform(&Call { abandoned, ..call }, parts, body)
                });
                task.await.unwrap_or_else(|_| lost())
            }
            RequestFault::DelayReply(time) => {
                let reply = self.perform(call, parts, body);
                tokio::time::sleep(time).await;
                reply
            }
            RequestFault::Refuse(code, reason, message) => refused(code, reason, &message, &[]),
            RequestFault::RetryAfter { code, seconds, carried_out } => {
                if carried_out {
                    self.perform(call, parts, body);
                }
                retry_after(code, seconds)
            }
            RequestFault::Behind(time) => {
                let call = Call { behind: time, ..call.clone() };
                match self.lagging_member(&call, &mut parts) {
                    Some(refused) => refused,
                    None => self.perform(&call, parts, body),
                }
            }
            RequestFault::Freeze | RequestFault::Kill { .. } | RequestFault::Hang => {
                std::future::pending().await
            }
        }
    }

    /// Logs a request and chooses its fault.
    fn arrives(&self, call: &Call, body: &Bytes) -> RequestFault {
        let mut state = self.state.lock();
        let state = &mut *state;
        if state.dead.contains(&call.agent) || state.history_state.stormed && call.of_daemon() {
            return RequestFault::Hang;
        }
        let second = self.start.elapsed().as_secs();
        state.second = if state.second.0 == second { (second, state.second.1 + 1) } else { (second, 1) };
        if state.second.1 > STORM {
            self.detect_storm(state, call);
            // The actors must come to their end.
            if !matches!(&*call.agent, "user" | "monkey") {
                return RequestFault::Hang;
            }
        }
        let request_fault = self.request_fault(state, call);
        state.requests += 1;
        state.history_state.cost.sent(call);
        state.log.sent(self.start.elapsed(), call, body, &request_fault);
        if call.of_daemon() && call.is_workload_write() && request_fault != RequestFault::LoseRequest {
            state.acts += 1;
        }
        if call.of_daemon() && call.is_write() {
            let at = self.start.elapsed();
            let breach = if call.namespace == TENANT {
                let there = self.sandbox.object(kind(&call.resource), TENANT, &call.name);
                let replica_sets = self.sandbox.objects("ReplicaSet");
                state.invariants.sent_elsewhere(at, call, there.as_deref(), &replica_sets)
            } else {
                state.invariants.sent(at, self.clock.now(), call, &state.picture)
            };
            self.note(state, breach);
        }
        request_fault
    }

    /// Carries a request out at one instant, and judges what it did.
    fn perform(self: &Arc<Self>, call: &Call, parts: http::request::Parts, body: Bytes) -> Response<Body> {
        let watched =
            call.namespace == NAMESPACE && matches!(&*call.resource, "deployments" | "replicasets" | "pods");
        let lease = call.resource == "leases";
        let request = Request::from_parts(parts, Body::from(body));
        let response = self.router.clone().oneshot(request).now_or_never();
        let Some(Ok(mut response)) = response else {
            let mut state = self.state.lock();
            let what = format!("the API server did not answer at once: {call}");
            self.note(&mut state, Err(Breach::new("the simulation", what)));
            return lost();
        };
        let code = response.status();
        let mut guard = self.state.lock();
        let state = &mut *guard;
        // Not the version in a reply: after a deletion no object has the version.
        state.versions.made(self.start.elapsed(), self.sandbox.revision());
        if call.of_daemon() && !call.watch && call.fills_a_cache() {
            // A list shows the present or an earlier state, and its watch has yet to begin.
            let shown = self.start.elapsed().saturating_sub(call.behind);
            state.knowledge.falls_behind(&call.agent, &call.resource, shown);
            if code.is_success() {
                response.extensions_mut().insert(Listed(shown));
            }
        }
        if call.of_daemon() && call.resource == "pods" && call.behind.is_zero() && code.is_success() {
            let pods = state.picture.get("pods").into_iter().flat_map(|all| all.values());
            response
                .extensions_mut()
                .insert(Selected(pods.filter(|pod| call.selects(pod)).cloned().collect()));
        }
        if call.of_daemon() && call.namespace != TENANT && code == http::StatusCode::CONFLICT {
            state.invariants.name_was_taken(call, &state.picture);
            state.history_state.cost.refused(call);
        }
        if call.of_daemon() && call.namespace != TENANT && !call.is_write() && code.is_success() {
            let there = state.picture.get(&call.resource).and_then(|all| all.get(&call.name));
            if let Some(there) = there {
                response.extensions_mut().insert(Shown(there.clone()));
            }
        }
        if code.is_success() && call.is_write() && lease && call.of_daemon() {
            state.invariants.renewed(self.start.elapsed(), call);
        }
        // A deletecollection changes each object by itself.
        if watched && code.is_success() && call.name.is_empty() && call.method == Method::DELETE {
            let there = state.picture.get(&call.resource).into_iter().flat_map(|all| all.keys());
            for name in there.cloned().collect::<Vec<_>>() {
                self.commits(state, &Call { name, ..call.clone() }, code, watched);
            }
        } else {
            let version = self.commits(state, call, code, watched);
            response.extensions_mut().insert(Version(version));
        }
        drop(guard);
        if !call.watch || !call.of_daemon() {
            return response;
        }
        let (parts, body) = response.into_parts();
        let watch = Watch::new(body, self.clone(), call.agent.clone(), call.resource.clone());
        Response::from_parts(parts, Body::from_stream(watch))
    }

    /// Logs and judges what a request has done to the object that it names. Returns the version that it created, or
    /// 0.
    fn commits(&self, state: &mut State, call: &Call, code: http::StatusCode, watched: bool) -> u64 {
        let (mut before, mut after) = (None, None);
        if code.is_success() && call.is_write() && watched {
            after = self.sandbox.object(kind(&call.resource), NAMESPACE, &call.name);
            before = state.picture.get(&call.resource).and_then(|all| all.get(&call.name)).cloned();
        }
        let version =
            after.as_ref().map_or("", |after: &Arc<Value>| text(after, "/metadata/resourceVersion"));
        let version = version.parse().unwrap_or(0);
        if call.is_write() {
            state.log.done(self.start.elapsed(), call, code.as_u16(), before.as_ref(), after.as_ref());
        }
        if before == after {
            return version;
        }
        let commit = Commit {
            at: self.start.elapsed(),
            now: self.clock.now(),
            call,
            before: before.as_deref(),
            after: after.as_deref(),
            picture: &state.picture,
        };
        let breach = state.invariants.committed(&commit);
        state.tally.count(call, before.as_deref(), after.as_deref());
        let all = state.picture.entry(call.resource.clone()).or_default();
        match after {
            Some(after) => all.insert(call.name.clone(), after),
            None => all.remove(&call.name),
        };
        self.note(state, breach);
        version
    }

    /// The connection over which a daemon watches a resource, as the number of frozen ones before it.
    pub fn connection(&self, agent: &str, resource: &str) -> u32 {
        let state = self.state.lock();
        let frozen = daemon_of(agent).and_then(|daemon| state.frozen.get(&(daemon, resource.to_owned())));
        frozen.map_or(0, |frozen| frozen.connections)
    }

    /// Until when a daemon's watch of a resource shows nothing.
    pub fn held_until(&self, agent: &str, resource: &str) -> Option<Instant> {
        let daemon = daemon_of(agent)?;
        let state = self.state.lock();
        let lag = state.lags.get(&(daemon, resource.to_owned())).copied();
        lag.max(state.points.held_until(daemon, resource)).filter(|until| *until > Instant::now())
    }

    /// See [`Knowledge`].
    pub fn falls_behind(&self, agent: &Arc<str>, resource: &str) {
        self.state.lock().knowledge.falls_behind(agent, resource, self.start.elapsed());
    }

    /// See [`Knowledge`]. The watch has `begun` with the state of that time, or after a list that has shown it.
    pub fn catches_up(&self, agent: &Arc<str>, resource: &str, begun: Duration) {
        let mut state = self.state.lock();
        state.knowledge.catches_up(agent, resource, self.start.elapsed());
        state.invariants.listed(begun, agent, resource);
    }

    fn note(&self, state: &mut State, breach: Result<(), Breach>) {
        if let Err(breach) = breach
            && state.failure.is_none()
        {
            state.log.breach(self.start.elapsed(), &breach.to_string());
            state.failure = Some(breach);
            state.broken.clone_from(&state.picture);
        }
    }
}

/// The reply that a daemon gets.
fn answer(reply: &Response<Body>, is_refused: bool) -> Answer {
    let waits = reply.headers().get(http::header::RETRY_AFTER);
    let waits = waits.and_then(|seconds| seconds.to_str().ok()?.parse().ok());
    match waits {
        _ if reply.extensions().get::<Lost>().is_some() => Answer::None,
        Some(seconds) => Answer::Wait(Duration::from_secs(seconds)),
        None if reply.status().is_success() => Answer::Success,
        None if is_refused => Answer::Refused,
        None => Answer::Other,
    }
}

fn kind(resource: &str) -> &'static str {
    match resource {
        "deployments" => "Deployment",
        "replicasets" => "ReplicaSet",
        _ => "Pod",
    }
}
