//! The API server as each client sees it: requests of the daemons may be lost or late; each is carried out at one
//! instant and judged by the state at that instant. For the simulations beside that of Deployments, which has a server of
//! its own ([`super::server`]).

mod judge;
mod lag;
pub(crate) mod replies;

use std::collections::{BTreeMap, BTreeSet};
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
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::Instant;
use tower::ServiceExt as _;

use super::breach::Breach;
use super::call::Call;
use super::log::Log;
use super::objects::Picture;
use super::request_fault::RequestFault;
use super::runner::Outcome;
pub use judge::{Commit, Judge, Rewrite};
use lag::Lag;
use replies::{lost, refused};
use windlass::clock::Clock;
use windlass_apiserver::{Options, Sandbox};

/// A daemon with more requests than this in a second of virtual time retries without a wait.
const STORM: u64 = 3000;

/// How long a daemon's caches may lag after its watches break.
const BLIND: Duration = Duration::from_secs(15);

/// The faults of requests of the daemons, each in percent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Faults {
    /// These never arrive.
    pub lost_requests: u8,
    /// These are carried out, and the reply is lost.
    pub lost_replies: u8,
    /// These are carried out up to five seconds late, or half a minute late, after their author has abandoned them.
    pub late_requests: u8,
    /// These get a reply up to five seconds late.
    pub late_replies: u8,
    /// These are refused with a 500.
    pub refusals: u8,
}

impl Faults {
    /// How much older the state of a decision may be than the state at which its write is committed. Where no request
    /// is late, a daemon sees each change at the instant at which it happens.
    pub fn staleness(self) -> Duration {
        let is_late = self.late_requests + self.late_replies + self.lost_replies + self.lost_requests > 0;
        if is_late { Duration::from_secs(60) } else { Duration::ZERO }
    }
}

struct State<J> {
    rng: fastrand::Rng,
    faults: Option<Faults>,
    judge: J,
    failure: Option<Breach>,
    dead: BTreeSet<Arc<str>>,
    log: Log,
    /// Whether the log is kept, with the objects before and after each write.
    records: bool,
    /// Requests of all clients so far.
    requests: u64,
    /// Writes and events of the daemons so far.
    writes: u64,
    /// When the faults ended.
    calm_since: Option<Duration>,
    second: (u64, u64),
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
    router: axum::Router,
    start: Instant,
    state: Mutex<State<J>>,
}

impl<J: Judge> Cluster<J> {
    /// An API server with nothing in it. `records` keeps the log entries, not only their fingerprint.
    pub fn new(seed: u64, faults: Faults, judge: J, records: bool) -> Arc<Self> {
        Arc::new(Self::with(seed, faults, judge, records, None))
    }

    /// The same, where what has no owner left is deleted at once, by a client that is called `garbage`.
    pub fn collecting(seed: u64, faults: Faults, judge: J, records: bool) -> Arc<Self> {
        let cluster = Arc::new(Self::with(seed, faults, judge, records, Some(Duration::ZERO)));
        let collector = Arc::downgrade(&cluster);
        cluster.sandbox.collect_by(move |request| {
            if let Some(cluster) = collector.upgrade() {
                cluster.carry_out("garbage", request.map(Body::from));
            }
        });
        cluster
    }

    fn with(seed: u64, faults: Faults, judge: J, records: bool, collect_after: Option<Duration>) -> Self {
        let clock = Clock::virtual_from(Timestamp::from_second(1_767_225_600).unwrap_or_default());
        let time = clock.clone();
        let mut options = Options::new(Arc::new(move || time.now()));
        options.protobuf = false;
        options.seed = seed;
        options.collect_after = collect_after;
        let sandbox = Sandbox::new(options);
        let state = State {
            rng: fastrand::Rng::with_seed(seed),
            faults: Some(faults),
            judge,
            failure: None,
            dead: BTreeSet::new(),
            log: Log::new(records),
            records,
            requests: 0,
            writes: 0,
            calm_since: None,
            second: (0, 0),
            outages: 0,
            is_down: false,
            kill_at: None,
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
        let outages = self.state.lock().outages;
        let reply = self.clone().undergo(call, parts, body).await;
        // An answer that is late does not survive the API server that gave it.
        if self.state.lock().outages == outages { reply } else { lost() }
    }

    async fn undergo(
        self: Arc<Self>,
        call: Call,
        parts: http::request::Parts,
        body: Bytes,
    ) -> Response<Body> {
        let fault = self.arrives(&call, &body);
        match fault {
            RequestFault::Proceed if call.of_daemon() && call.watch => {
                let watch = self.perform(&call, parts, body);
                watch.map(|body| Body::from_stream(Lag::new(body, self, call)))
            }
            RequestFault::LoseRequest => lost(),
            RequestFault::LoseReply => {
                self.perform(&call, parts, body);
                lost()
            }
            RequestFault::Delay(time) => {
                // A late request is carried out even if its sender has abandoned it.
                let outages = self.state.lock().outages;
                let task = tokio::spawn(async move {
                    tokio::time::sleep(time).await;
                    let (abandoned, now) = {
                        let state = self.state.lock();
                        (state.dead.contains(&call.agent), state.outages)
                    };
                    if now != outages {
                        return lost();
                    }
                    self.perform(&Call { abandoned, ..call }, parts, body)
                });
                task.await.unwrap_or_else(|_| lost())
            }
            RequestFault::DelayReply(time) => {
                let reply = self.perform(&call, parts, body);
                tokio::time::sleep(time).await;
                reply
            }
            RequestFault::Refuse(code, reason, message) => refused(code, reason, &message, &[]),
            RequestFault::Kill { carried_out } => {
                if carried_out {
                    self.perform(&call, parts, body);
                }
                self.dies(&call.agent);
                self.say(&format!("{} is killed", call.agent));
                std::future::pending().await
            }
            RequestFault::Freeze | RequestFault::Hang => std::future::pending().await,
            // The others belong to members and proxies of the API server, which this one has none of.
            _ => self.perform(&call, parts, body),
        }
    }

    /// Logs a request and chooses its fault.
    fn arrives(&self, call: &Call, body: &Bytes) -> RequestFault {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let fault = self.fault(state, call);
        state.requests += 1;
        state.log.sent(self.start.elapsed(), call, body, &fault);
        fault
    }

    fn fault(&self, state: &mut State<J>, call: &Call) -> RequestFault {
        if state.dead.contains(&call.agent) {
            return RequestFault::Hang;
        }
        if state.is_down {
            return RequestFault::LoseRequest;
        }
        if !call.of_daemon() {
            return RequestFault::Proceed;
        }
        state.judge.sent(self.start.elapsed(), call);
        let second = self.start.elapsed().as_secs();
        state.second = if state.second.0 == second { (second, state.second.1 + 1) } else { (second, 1) };
        if state.second.1 > STORM {
            let breach =
                Breach::new("C1", format!("more than {STORM} requests in a second, the last {call}"));
            self.note(state, breach);
            return RequestFault::Hang;
        }
        if let Some(fault) = state.faults.and_then(|_| state.judge.fault(call)) {
            return fault;
        }
        if let Some((nth, carried_out)) = state.kill_at.filter(|_| call.is_workload_write()) {
            state.kill_at = Some((nth.saturating_sub(1), carried_out)).filter(|(left, _)| *left > 0);
            if state.kill_at.is_none() {
                return RequestFault::Kill { carried_out };
            }
        }
        let Some(faults) = state.faults.filter(|_| !call.watch) else { return RequestFault::Proceed };
        let late = Duration::from_millis(state.rng.u64(10..5000));
        // Sometimes a request arrives after its author has abandoned it.
        let given_up = Duration::from_secs(if state.rng.u8(..3) == 0 { 33 } else { 0 });
        let chance = state.rng.u8(..100);
        let webhook = "an admission webhook cannot be called";
        let fates = [
            (faults.lost_requests, RequestFault::LoseRequest),
            (faults.lost_replies, RequestFault::LoseReply),
            (faults.late_requests, RequestFault::Delay(late + given_up)),
            (faults.late_replies, RequestFault::DelayReply(late)),
            (
                if call.is_workload_write() { faults.refusals } else { 0 },
                RequestFault::Refuse(500, "InternalError", webhook.into()),
            ),
        ];
        let mut below = 0;
        for (part, fault) in fates {
            below += part;
            if chance < below {
                return fault;
            }
        }
        RequestFault::Proceed
    }

    /// Carries a request out at one instant, and judges what it did.
    fn perform(&self, call: &Call, mut parts: http::request::Parts, body: Bytes) -> Response<Body> {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let shown = if state.records { self.named(call) } else { None };
        let rewrite = match call.of_daemon() && state.faults.is_some() {
            true => state.judge.rewrites(call),
            false => None,
        };
        if rewrite.is_some() {
            // Otherwise the answer may be that nothing has changed.
            parts.headers.remove(IF_NONE_MATCH);
        }
        let before = if call.is_write() { state.judge.before(&self.sandbox, call) } else { None };
        let request = Request::from_parts(parts, Body::from(body));
        let response = self.router.clone().oneshot(request).now_or_never();
        let Some(Ok(response)) = response else {
            let what = format!("the API server did not answer at once: {call}");
            self.note(state, Breach::new("the simulation", what));
            return lost();
        };
        if call.of_daemon() && call.is_write() && call.resource != "leases" {
            state.writes += 1;
        }
        let response = match rewrite {
            Some(rewrite) => rewritten(response, &rewrite),
            None => response,
        };
        if call.of_daemon() {
            state.judge.carried_out(&self.sandbox, call, response.status());
        }
        let at = self.start.elapsed();
        if call.is_write() {
            let after = if state.records { self.named(call) } else { None };
            state.log.done(at, call, response.status().as_u16(), shown.as_ref(), after.as_ref());
        }
        if let Some(before) = before.filter(|_| response.status().is_success()) {
            let commit = Commit { sandbox: &self.sandbox, at, now: self.clock.now(), call };
            if let Err(breach) = state.judge.committed(commit, before) {
                self.note(state, breach);
            }
        }
        let follow_up = match call.of_daemon() && state.faults.is_some() {
            true => state.judge.follow_up(&self.sandbox, call),
            false => None,
        };
        drop(guard);
        if let Some(request) = follow_up {
            self.carry_out("user", request);
        }
        response
    }

    /// Carries out a request to which nothing happens on its way.
    fn carry_out(&self, agent: &str, request: Request<Body>) {
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

    fn note(&self, state: &mut State<J>, breach: Breach) {
        if state.failure.is_none() {
            state.log.breach(self.start.elapsed(), &breach.to_string());
            state.failure = Some(breach);
        }
    }

    fn lags_until(&self, call: &Call) -> Duration {
        let state = self.state.lock();
        if state.faults.is_some() { state.judge.lags_until(call) } else { Duration::ZERO }
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
        state.judge.daemon_died();
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
        state.calm_since = Some(self.start.elapsed());
    }

    /// How many writes the daemons have sent, events included.
    pub fn writes(&self) -> u64 {
        self.state.lock().writes
    }

    /// Records a failure.
    pub fn fail(&self, breach: Breach) {
        self.note(&mut self.state.lock(), breach);
    }

    /// The first failure.
    pub fn failure(&self) -> Option<Breach> {
        self.state.lock().failure.clone()
    }

    /// The end of the history, with the objects of these resources.
    pub fn outcome(&self, resources: &[&str]) -> Outcome {
        let state = self.state.lock();
        let mut picture = Picture::new();
        let kinds = self.sandbox.served_kinds();
        for kind in kinds.iter().filter(|kind| state.records && resources.contains(&kind.plural)) {
            let key = |object: &Value| {
                let of = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
                format!("{}/{}", of("namespace"), of("name")).trim_start_matches('/').to_owned()
            };
            let objects = self.sandbox.objects(kind.kind).into_iter();
            let all: BTreeMap<_, _> = objects.map(|object| (key(&object), Arc::new(object))).collect();
            picture.insert(kind.plural.to_owned(), all);
        }
        let lasted = self.start.elapsed();
        Outcome {
            failure: state.failure.clone(),
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
