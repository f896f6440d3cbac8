//! The API server as each client sees it: every request passes through here, is logged, may be lost or late, is
//! carried out at one instant, and is judged by the state at that instant.

mod faults;
mod judge;
pub(crate) mod replies;
mod watch;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures::FutureExt as _;
use http::header::{CONTENT_LENGTH, ETAG, IF_NONE_MATCH};
use http::{Request, Response};
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;
use tower::ServiceExt as _;

use super::breach::Breach;
use super::call::Call;
use super::game::BEGINNING;
use super::log::Log;
use super::objects::{NAMESPACE, Picture};
use super::outcome::Outcome;
use super::request_fault::RequestFault;
pub use faults::Faults;
pub use judge::{Dead, Judge, Moment, Rewrite};
use replies::{lost, refused, retry_after};
use watch::Watch;
use windlass::clock::Clock;
use windlass_apiserver::{Options, Sandbox};

/// With more requests than this in a second of virtual time, a client retries without a wait: such a history would never
/// end.
const STORM: u64 = 5000;

/// How long a daemon's caches may lag after its watches break.
pub const BLIND: Duration = Duration::from_secs(15);

struct State<J> {
    rng: fastrand::Rng,
    faults: Option<Faults>,
    judge: J,
    failure: Option<Breach>,
    /// The objects at the first breach.
    broken: Picture,
    dead: Dead,
    log: Log,
    /// The resources whose objects are shown, if the log is kept, with the objects before and after each write.
    record: Option<&'static [&'static str]>,
    /// Requests of all clients so far.
    requests: u64,
    /// Writes and events of the daemons so far.
    writes: u64,
    /// When the faults ended.
    calm_since: Option<Duration>,
    /// The second that was counted last, and its requests.
    second: (u64, u64),
    /// Whether daemons overwrote each other without end.
    stormed: bool,
    /// How often the API server went down: what was under way then never arrives.
    outages: u64,
    is_down: bool,
    /// A daemon is killed with this write from now, and whether the write is carried out.
    kill_at: Option<(u32, bool)>,
}

/// See the module documentation.
pub struct Cluster<J: Judge> {
    /// Stores the objects.
    pub sandbox: Sandbox,
    /// The time.
    pub clock: Clock,
    /// The beginning of the history.
    pub start: Instant,
    router: axum::Router,
    state: Mutex<State<J>>,
}

/// On drop, records that a call has ended, with a reply or abandoned.
struct CallEnd<J: Judge> {
    cluster: Arc<Cluster<J>>,
    agent: Arc<str>,
    id: u64,
}

impl<J: Judge> Drop for CallEnd<J> {
    fn drop(&mut self) {
        let mut state = self.cluster.state.lock();
        let ended = state.judge.ended(self.cluster.elapsed(), &self.agent, self.id);
        self.cluster.note(&mut state, ended);
    }
}

impl<J: Judge> Cluster<J> {
    /// An API server with nothing in it, and with these options. `record` keeps the log entries, not only their fingerprint,
    /// and the objects of these resources.
    ///
    /// With [`Options::collect_after`], objects without owners are deleted by a client that is called `garbage`.
    pub fn new(
        seed: u64,
        faults: Faults,
        judge: J,
        record: Option<&'static [&'static str]>,
        set: impl FnOnce(&mut Options),
    ) -> Arc<Self> {
        let begins = Timestamp::from_second(BEGINNING).unwrap_or_default();
        Self::beginning(begins, seed, faults, judge, record, set)
    }

    /// The same at another time.
    pub fn beginning(
        begins: Timestamp,
        seed: u64,
        faults: Faults,
        judge: J,
        record: Option<&'static [&'static str]>,
        set: impl FnOnce(&mut Options),
    ) -> Arc<Self> {
        let clock = Clock::virtual_from(begins);
        let time = clock.clone();
        let mut options = Options::new(Arc::new(move || time.now()));
        // The faults of watches work on lines of JSON.
        options.protobuf = false;
        options.seed = seed;
        set(&mut options);
        let collects = options.collect_after.is_some();
        let sandbox = Sandbox::new(options);
        let state = State {
            rng: fastrand::Rng::with_seed(seed),
            faults: Some(faults),
            judge,
            failure: None,
            broken: Picture::new(),
            dead: Dead::new(),
            log: Log::new(record.is_some()),
            record,
            requests: 0,
            writes: 0,
            calm_since: None,
            second: (0, 0),
            stormed: false,
            outages: 0,
            is_down: false,
            kill_at: None,
        };
        let (router, state) = (sandbox.router(), Mutex::new(state));
        let cluster = Arc::new(Cluster { router, sandbox, clock, start: Instant::now(), state });
        if collects {
            let collector = Arc::downgrade(&cluster);
            cluster.sandbox.collect_by(move |request| {
                if let Some(cluster) = collector.upgrade() {
                    cluster.carry_out("garbage", request.map(Body::from));
                }
            });
        }
        cluster
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
        let mut call = Call::new(agent, &parts, &body);
        let outages = self.begins(&mut call);
        let _end =
            (call.id > 0).then(|| CallEnd { cluster: self.clone(), agent: call.agent.clone(), id: call.id });
        let fault = self.arrives(&call, &body);
        let reply = self.clone().undergo(&fault, &call, parts, body).await;
        let mut state = self.state.lock();
        if state.outages != outages {
            // An answer that is late does not survive the API server that gave it.
            return lost();
        }
        state.judge.answered(self.elapsed(), &call, &fault, &reply);
        reply
    }

    /// Has the judge look at a new call, and returns how often the API server went down so far.
    fn begins(&self, call: &mut Call) -> u64 {
        let mut state = self.state.lock();
        let begun = state.judge.begins(self.elapsed(), call);
        self.note(&mut state, begun);
        state.outages
    }

    async fn undergo(
        self: Arc<Self>,
        fault: &RequestFault,
        call: &Call,
        mut parts: http::request::Parts,
        body: Bytes,
    ) -> Response<Body> {
        match *fault {
            RequestFault::Proceed => self.perform(call, parts, body),
            RequestFault::LoseRequest => lost(),
            RequestFault::LoseReply => {
                self.perform(call, parts, body);
                lost()
            }
            RequestFault::Delay(time) => {
                // A task of its own: a late request is carried out even if its sender has abandoned it.
                let (call, outages) = (call.clone(), self.state.lock().outages);
                let task = tokio::spawn(async move {
                    tokio::time::sleep(time).await;
                    let (abandoned, now) = {
                        let mut state = self.state.lock();
                        let is_dead = state.dead.contains(&call.agent);
                        (state.judge.was_abandoned(&call, is_dead), state.outages)
                    };
                    if now != outages {
                        return lost();
                    }
                    self.perform(&Call { abandoned, ..call }, parts, body)
                });
                task.await.unwrap_or_else(|_| lost())
            }
            RequestFault::DelayReply(time) => {
                let reply = self.perform(call, parts, body);
                tokio::time::sleep(time).await;
                reply
            }
            RequestFault::Refuse(code, reason, ref message) => refused(code, reason, message, &[]),
            RequestFault::RetryAfter { code, seconds, carried_out } => {
                if carried_out {
                    self.perform(call, parts, body);
                }
                retry_after(code, seconds)
            }
            RequestFault::Behind(time) => {
                let (call, now) = (Call { behind: time, ..call.clone() }, self.elapsed());
                match self.with_judge(|judge| judge.lagging_member(now, &call, &mut parts)) {
                    Some(refused) => refused,
                    None => self.perform(&call, parts, body),
                }
            }
            RequestFault::Kill { carried_out } => {
                if carried_out {
                    self.perform(call, parts, body);
                }
                self.dies(&call.agent);
                self.say(&format!("{} is killed", call.agent));
                std::future::pending().await
            }
            RequestFault::Freeze | RequestFault::Hang => std::future::pending().await,
        }
    }

    /// Logs a request and chooses its fault.
    fn arrives(&self, call: &Call, body: &Bytes) -> RequestFault {
        let mut guard = self.state.lock();
        let (state, at) = (&mut *guard, self.elapsed());
        if state.dead.contains(&call.agent) || state.stormed && call.of_daemon() {
            return RequestFault::Hang;
        }
        let second = at.as_secs();
        state.second = if state.second.0 == second { (second, state.second.1 + 1) } else { (second, 1) };
        if state.second.1 > STORM {
            if !state.judge.may_storm() {
                let what = format!("{STORM} requests within a second: {call}");
                self.note(state, Err(Breach::new("C1", what)));
            }
            state.stormed = true;
            // The actors must come to their end.
            if call.of_daemon() || &*call.agent == "kubelet" {
                return RequestFault::Hang;
            }
        }
        let fault = self.fault(state, call);
        state.requests += 1;
        state.log.sent(at, call, body, &fault);
        if !state.is_down {
            let sent = state.judge.sent(self.moment(call), &fault);
            self.note(state, sent);
        }
        fault
    }

    fn fault(&self, state: &mut State<J>, call: &Call) -> RequestFault {
        if state.is_down {
            return RequestFault::LoseRequest;
        }
        let may_fail = call.of_daemon() && state.faults.is_some();
        if let Some(fault) = state.judge.fault(self.moment(call), may_fail, &mut state.dead) {
            return fault;
        }
        if let Some((nth, carried_out)) =
            state.kill_at.filter(|_| call.of_daemon() && call.is_workload_write())
        {
            state.kill_at = Some((nth.saturating_sub(1), carried_out)).filter(|(left, _)| *left > 0);
            if state.kill_at.is_none() {
                return RequestFault::Kill { carried_out };
            }
        }
        let Some(faults) = state.faults.filter(|_| may_fail && !call.watch) else {
            return RequestFault::Proceed;
        };
        faults.draw(&mut state.rng, call)
    }

    fn moment<'a>(&'a self, call: &'a Call) -> Moment<'a> {
        Moment { sandbox: &self.sandbox, at: self.elapsed(), now: self.clock.now(), call }
    }

    /// Carries a request out at one instant, and judges what it did.
    fn perform(
        self: &Arc<Self>,
        call: &Call,
        mut parts: http::request::Parts,
        body: Bytes,
    ) -> Response<Body> {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let shown = state.record.and_then(|_| self.named(call));
        let may_fail = call.of_daemon() && state.faults.is_some();
        let rewrite = if may_fail { state.judge.rewrites(call) } else { None };
        if rewrite.is_some() {
            // Otherwise the answer may be that nothing has changed.
            parts.headers.remove(IF_NONE_MATCH);
        }
        let before = if call.is_write() { state.judge.before(&self.sandbox, call) } else { None };
        let request = Request::from_parts(parts, Body::from(body));
        let response = self.router.clone().oneshot(request).now_or_never();
        let Some(Ok(response)) = response else {
            let what = format!("the API server did not answer at once: {call}");
            self.note(state, Err(Breach::new("the simulation", what)));
            return lost();
        };
        if call.of_daemon() && call.is_write() && call.resource != "leases" {
            state.writes += 1;
        }
        let mut response = match rewrite {
            Some(rewrite) => rewritten(response, &rewrite),
            None => response,
        };
        let (moment, code) = (self.moment(call), response.status());
        state.judge.carried_out(moment, &mut response);
        if call.is_write() {
            let after = state.record.and_then(|_| self.named(call));
            state.log.done(moment.at, call, code.as_u16(), shown.as_ref(), after.as_ref());
        }
        if let Some(before) = before.filter(|_| code.is_success()) {
            let judged = state.judge.committed(moment, before);
            self.note(state, judged);
        }
        let follow_up = if may_fail { state.judge.follow_up(&self.sandbox, call) } else { None };
        drop(guard);
        if let Some(request) = follow_up {
            self.carry_out("user", request);
        }
        if !call.watch || !call.of_daemon() {
            return response;
        }
        let (parts, body) = response.into_parts();
        Response::from_parts(parts, Body::from_stream(Watch::new(body, self.clone(), call.clone())))
    }

    /// Carries out a request to which nothing happens on its way.
    fn carry_out(self: &Arc<Self>, agent: &str, request: Request<Body>) {
        let (parts, body) = request.into_parts();
        if let Some(Ok(body)) = body.collect().now_or_never() {
            let body = body.to_bytes();
            let call = Call::new(agent.into(), &parts, &body);
            self.perform(&call, parts, body);
        }
    }

    /// The object that a write names.
    fn named(&self, call: &Call) -> Option<Arc<Value>> {
        let kinds = self.sandbox.served_kinds();
        let kind = kinds.iter().find(|kind| call.is_write() && kind.plural == call.resource)?;
        self.sandbox.object(kind.kind, &call.namespace, &call.name)
    }

    fn note(&self, state: &mut State<J>, breach: Result<(), Breach>) {
        if let Err(breach) = breach
            && state.failure.is_none()
        {
            state.log.breach(self.elapsed(), &breach.to_string());
            state.failure = Some(breach);
            state.broken = self.picture_of(state.record);
        }
    }

    /// The stored objects of these resources.
    fn picture_of(&self, resources: Option<&[&str]>) -> Picture {
        let resources = resources.unwrap_or_default();
        let key = |object: &Value| {
            let of = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
            match of("namespace") {
                "" | NAMESPACE => of("name").to_owned(),
                namespace => format!("{namespace}/{}", of("name")),
            }
        };
        let kinds = self.sandbox.served_kinds();
        let shown = kinds.iter().filter(|kind| resources.contains(&kind.plural)).map(|kind| {
            let objects = self.sandbox.objects(kind.kind).into_iter();
            let all: BTreeMap<_, _> = objects.map(|object| (key(&object), Arc::new(object))).collect();
            (kind.plural.to_owned(), all)
        });
        shown.collect()
    }

    /// The API server goes down: all watches end, and what is under way is lost.
    pub fn go_down(&self) {
        {
            let mut state = self.state.lock();
            (state.is_down, state.outages) = (true, state.outages + 1);
        }
        self.break_watches(false);
    }

    /// The API server is up again.
    pub fn come_up(&self) {
        self.state.lock().is_down = false;
    }

    /// Looks at, or changes, what the judge knows.
    pub fn with_judge<T>(&self, act: impl FnOnce(&mut J) -> T) -> T {
        act(&mut self.state.lock().judge)
    }

    /// The virtual time since the start.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Adds a line to the log.
    pub fn say(&self, what: &str) {
        self.state.lock().log.note(self.start.elapsed(), what);
    }

    /// A daemon is dead: its requests get no reply any more.
    pub fn dies(&self, agent: &str) {
        let mut state = self.state.lock();
        state.dead.insert(agent.into());
        state.judge.daemon_died(agent);
        state.judge.is_blind(self.start.elapsed() + BLIND);
    }

    /// Kills a daemon with the `nth` write from now, once that is carried out, or before.
    pub fn kill_at(&self, nth: u32, is_carried_out: bool) {
        self.state.lock().kill_at = Some((nth, is_carried_out));
    }

    /// Whether a daemon is dead.
    pub fn is_dead(&self, agent: &str) -> bool {
        self.state.lock().dead.contains(agent)
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
        let mut state = self.state.lock();
        (state.faults, state.kill_at) = (None, None);
        state.calm_since = Some(self.elapsed());
        state.judge.faults_end();
    }

    /// Requests of all clients so far.
    pub fn requests(&self) -> u64 {
        self.state.lock().requests
    }

    /// How many writes the daemons have sent, events included.
    pub fn writes(&self) -> u64 {
        self.state.lock().writes
    }

    /// Records a failure.
    pub fn fail(&self, breach: Breach) {
        self.note(&mut self.state.lock(), Err(breach));
    }

    /// Whether the rest of the history has no more value.
    pub fn is_over(&self) -> bool {
        let state = self.state.lock();
        state.failure.is_some() || state.stormed
    }

    /// The first failure.
    pub fn failure(&self) -> Option<Breach> {
        self.state.lock().failure.clone()
    }

    /// The end of the history.
    pub fn outcome(&self) -> Outcome {
        let state = self.state.lock();
        let (failure, lasted) = (state.failure.clone(), self.elapsed());
        let picture = if failure.is_some() { state.broken.clone() } else { self.picture_of(state.record) };
        Outcome {
            failure,
            digest: state.log.digest(),
            log: state.log.entries(),
            picture,
            requests: state.requests,
            writes: state.writes,
            lasted,
            busy: state.calm_since.unwrap_or(lasted),
        }
    }
}

fn rewritten(response: Response<Body>, rewrite: &Rewrite) -> Response<Body> {
    let (mut parts, body) = response.into_parts();
    let Some(Ok(body)) = body.collect().now_or_never() else { return lost() };
    let Ok(value) = serde_json::from_slice(&body.to_bytes()) else { return lost() };
    parts.headers.remove(ETAG);
    parts.headers.remove(CONTENT_LENGTH);
    Response::from_parts(parts, Body::from(rewrite(value).to_string()))
}
