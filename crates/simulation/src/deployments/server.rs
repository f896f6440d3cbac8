//! The judge of this game in the network: it knows what each author of a write could know, and chooses the fault of each
//! request.

mod calls;
mod chance;
mod controls;
mod member;
mod shown;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::{Method, Response, StatusCode};
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::crash_points::CrashPoints;
use super::invariants::{Commit, Invariants};
use super::knowledge::{Knowledge, Owner, on_behalf_of};
use super::oracle::{Ending, Tally};
use super::scenario::{Fault, Scenario};
use crate::engine::breach::Breach;
use crate::engine::call::{Call, daemon_of};
use crate::engine::network::replies::Lost;
use crate::engine::network::{self, Dead, Moment};
use crate::engine::objects::{NAMESPACE, Picture, text};
use crate::engine::request_fault::{Answer, OrderedFault, RequestFault};
pub use calls::Cost;
use controls::HistoryState;
use member::Versions;
use shown::{Listed, Selected, Shown, Version, show};
use windlass::metrics::Metrics;
use windlass_apiserver::Sandbox;

/// The API server of this game.
pub type Server = network::Cluster<Judge>;

/// The namespace of a tenant that forges owner references. It is judged by S24 alone, and is in no [`Picture`].
pub const TENANT: &str = "tenant";

/// How the first attempt of a write fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstAttempt {
    /// It is refused.
    Refused,
    /// It never arrives, and its author cannot know that.
    Lost,
}

/// See the module documentation.
#[derive(Default)]
pub struct Judge {
    seed: u64,
    /// Those that are drawn for each request.
    random: Vec<Fault>,
    /// Whether daemons may overwrite each other without end: two without election, or histories that need not converge.
    may_storm: bool,
    picture: Picture,
    knowledge: Knowledge,
    invariants: Invariants,
    /// Requests so far, by their kind: random faults are drawn per request and not from one stream, so that leaving
    /// out one act changes as little as possible.
    counts: BTreeMap<String, u64>,
    quota: bool,
    /// Until when a daemon's watch of a resource shows nothing, by daemon and resource.
    lags: BTreeMap<(usize, String), Instant>,
    /// The frozen connections, by daemon and the resource that it watches over them.
    frozen: BTreeMap<(usize, String), Frozen>,
    /// After how many more writes a daemon is killed.
    writes_until_killed: BTreeMap<usize, u32>,
    /// Notified when a daemon is killed after its last write.
    killed: Vec<Arc<Notify>>,
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
    /// How many calls have got an id.
    calls: u64,
    /// Those that have not ended, by their ids.
    open: BTreeMap<u64, OpenCall>,
    acts: u64,
    tally: Tally,
    ending: Ending,
    metrics: Vec<Arc<Metrics>>,
}

/// Connections that relay nothing any more, without either end knowing that.
#[derive(Clone, Copy, Debug, Default)]
struct Frozen {
    /// How many there were so far.
    connections: u32,
    /// Whether the last one is still in use: then the next request is sent over it.
    in_use: bool,
}

/// A call that is judged and has not ended.
#[derive(Debug)]
struct OpenCall {
    /// The owner that it was made for, and whether it was a status, the last call of a sync.
    owner: Option<(Owner, bool)>,
    /// Its author waits until then to retry it; the retry belongs to the same sync.
    retry_at: Option<Duration>,
}

impl Judge {
    /// A judge that has seen nothing yet.
    pub fn new(scenario: &Scenario) -> Self {
        let is_led = scenario.election || scenario.daemons == 1;
        Judge {
            seed: scenario.seed,
            random: scenario.faults.clone(),
            may_storm: !(is_led && scenario.must_converge()),
            invariants: Invariants::new(scenario),
            killed: (0..scenario.daemons).map(|_| Arc::default()).collect(),
            points: CrashPoints::new(scenario.points.clone()),
            ..Judge::default()
        }
    }

    fn stored(&self, call: &Call) -> Option<&Arc<Value>> {
        self.picture.get(&call.resource)?.get(&call.name)
    }

    /// Judges what a request has done to the object that it names.
    fn commits(&mut self, moment: Moment<'_>) -> Result<(), Breach> {
        let Moment { sandbox, at, now, call } = moment;
        let after = sandbox.object(kind(&call.resource), NAMESPACE, &call.name);
        let before = self.stored(call).cloned();
        if before == after {
            return Ok(());
        }
        let commit = Commit {
            at,
            now,
            call,
            before: before.as_deref(),
            after: after.as_deref(),
            picture: &self.picture,
        };
        let judged = self.invariants.committed(&commit);
        self.tally.count(call, before.as_deref(), after.as_deref());
        let all = self.picture.entry(call.resource.clone()).or_default();
        match after {
            Some(after) => all.insert(call.name.clone(), after),
            None => all.remove(&call.name),
        };
        judged
    }
}

/// Whether it may change an object that is judged.
fn is_watched(call: &Call) -> bool {
    call.namespace == NAMESPACE && matches!(&*call.resource, "deployments" | "replicasets" | "pods")
}

/// A deletecollection changes each object by itself.
fn deletes_all(call: &Call) -> bool {
    call.name.is_empty() && call.method == Method::DELETE
}

impl network::Judge for Judge {
    type Before = ();

    fn before(&self, _: &Sandbox, call: &Call) -> Option<()> {
        is_watched(call).then_some(())
    }

    fn committed(&mut self, moment: Moment<'_>, (): ()) -> Result<(), Breach> {
        if !deletes_all(moment.call) {
            return self.commits(moment);
        }
        let there = self.picture.get(&moment.call.resource).into_iter().flat_map(|all| all.keys());
        let mut judged = Ok(());
        for name in there.cloned().collect::<Vec<_>>() {
            let call = Call { name, ..moment.call.clone() };
            judged = judged.and(self.commits(Moment { call: &call, ..moment }));
        }
        judged
    }

    fn begins(&mut self, at: Duration, call: &mut Call) -> Result<(), Breach> {
        // Requests that fill a cache are no decisions.
        let is_judged = call.of_daemon()
            && call.namespace != TENANT
            && !call.lists()
            && !matches!(&*call.resource, "leases" | "events");
        if !is_judged {
            return Ok(());
        }
        self.calls += 1;
        call.id = self.calls;
        let counts = |owner: &Owner| call.is_write() || self.knowledge.is_at_work(&call.agent, owner, at);
        let owner = on_behalf_of(call, &self.picture).filter(counts);
        call.known = self.knowledge.begins(&call.agent, owner.as_ref(), at);
        // A sync may wait for the rate limiter between its decision and its calls.
        call.known = call.known.saturating_sub(self.history_state.longest_queue());
        let last = call.is_write() && call.subresource == "status";
        self.open.insert(call.id, OpenCall { owner: owner.map(|owner| (owner, last)), retry_at: None });
        self.invariants.begins(at, call)
    }

    fn fault(&mut self, moment: Moment<'_>, may_fail: bool, dead: &mut Dead) -> Option<RequestFault> {
        Some(self.request_fault(moment.call, may_fail, dead))
    }

    fn sent(&mut self, moment: Moment<'_>, fault: &RequestFault) -> Result<(), Breach> {
        let Moment { sandbox, at, now, call } = moment;
        self.history_state.cost.sent(call);
        let is_act = call.of_daemon() && call.is_workload_write() && *fault != RequestFault::LoseRequest;
        self.acts += u64::from(is_act);
        if !call.of_daemon() || !call.is_write() {
            return Ok(());
        }
        if call.namespace == TENANT {
            let there = sandbox.object(kind(&call.resource), TENANT, &call.name);
            let replica_sets = sandbox.objects("ReplicaSet");
            return self.invariants.sent_elsewhere(at, call, there.as_deref(), &replica_sets);
        }
        self.invariants.sent(at, now, call, &self.picture)
    }

    fn carried_out(&mut self, moment: Moment<'_>, reply: &mut Response<Body>) {
        let Moment { sandbox, at, call, .. } = moment;
        let (code, tells) = (reply.status(), reply.extensions_mut());
        let is_done = code.is_success();
        // Not the version in a reply: after a deletion no object has the version.
        self.versions.made(at, sandbox.revision());
        let is_judged = is_watched(call) && is_done && call.is_write();
        if !is_judged || !deletes_all(call) {
            let object = sandbox.object(kind(&call.resource), NAMESPACE, &call.name).filter(|_| is_judged);
            let version = object.as_ref().map_or("", |object| text(object, "/metadata/resourceVersion"));
            tells.insert(Version(version.parse().unwrap_or(0)));
        }
        if !call.of_daemon() {
            return;
        }
        if !call.watch && call.fills_a_cache() {
            // A list shows the present or an earlier state, and its watch has yet to begin.
            let shown = at.saturating_sub(call.behind);
            self.knowledge.falls_behind(&call.agent, &call.resource, shown);
            if is_done {
                tells.insert(Listed(shown));
            }
        }
        if call.resource == "pods" && call.behind.is_zero() && is_done {
            let pods = self.picture.get("pods").into_iter().flat_map(|all| all.values());
            tells.insert(Selected(pods.filter(|pod| call.selects(pod)).cloned().collect()));
        }
        if call.namespace != TENANT && code == StatusCode::CONFLICT {
            self.invariants.name_was_taken(call, &self.picture);
            self.history_state.cost.refused(call);
        }
        if call.namespace != TENANT
            && !call.is_write()
            && is_done
            && let Some(there) = self.stored(call)
        {
            tells.insert(Shown(there.clone()));
        }
        if is_done && call.is_write() && call.resource == "leases" {
            self.invariants.renewed(at, call);
        }
    }

    fn answered(&mut self, at: Duration, call: &Call, fault: &RequestFault, reply: &Response<Body>) {
        if let Some(open) = self.open.get_mut(&call.id) {
            let is_refused = matches!(*fault, RequestFault::Refuse(code, ..) if code != 409);
            let answer = answer(reply, is_refused);
            self.invariants.answered(at, call, answer, &self.picture);
            if let Answer::Wait(time) = answer {
                // The clock that its author waits by may be slow.
                open.retry_at = Some(at + 2 * time);
            }
        }
        if call.of_daemon() && call.namespace != TENANT && reply.status().is_success() {
            show(&mut self.invariants, at, call, reply);
        }
    }

    fn ended(&mut self, at: Duration, agent: &Arc<str>, id: u64) -> Result<(), Breach> {
        let Some(OpenCall { owner, retry_at }) = self.open.remove(&id) else { return Ok(()) };
        if let Some((owner, last)) = &owner {
            self.knowledge.ends(agent, owner, *last, at, retry_at);
        }
        self.invariants.ended(at, agent, id, retry_at)
    }

    fn was_abandoned(&mut self, call: &Call, _: bool) -> bool {
        self.invariants.was_abandoned(call.id)
    }

    fn lagging_member(
        &mut self,
        at: Duration,
        call: &Call,
        parts: &mut http::request::Parts,
    ) -> Option<Response<Body>> {
        self.behind(at, call, parts)
    }

    fn may_storm(&self) -> bool {
        self.may_storm
    }

    fn lags_for(&self, _: Duration, call: &Call) -> Duration {
        let Some(daemon) = daemon_of(&call.agent) else { return Duration::ZERO };
        let lag = self.lags.get(&(daemon, call.resource.clone())).copied();
        let until = lag.max(self.points.held_until(daemon, &call.resource));
        until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()))
    }

    fn connection(&self, call: &Call) -> u32 {
        let frozen =
            daemon_of(&call.agent).and_then(|daemon| self.frozen.get(&(daemon, call.resource.clone())));
        frozen.map_or(0, |frozen| frozen.connections)
    }

    fn falls_behind(&mut self, at: Duration, call: &Call) {
        self.knowledge.falls_behind(&call.agent, &call.resource, at);
    }

    fn catches_up(&mut self, at: Duration, call: &Call, opened: Duration) {
        self.knowledge.catches_up(&call.agent, &call.resource, at);
        self.invariants.listed(opened, &call.agent, &call.resource);
    }

    fn faults_end(&mut self) {
        self.lags.clear();
        self.failing_renewals.clear();
        self.writes_until_killed.clear();
        self.ordered = None;
        self.history_state.webhook_fails_until = None;
    }

    fn daemon_started(&mut self, agent: &str, at: Duration) {
        self.invariants.starts(at, agent);
    }

    fn daemon_died(&mut self, agent: &str) {
        if let Some(killed) = daemon_of(agent).and_then(|daemon| self.killed.get(daemon)) {
            killed.notify_one();
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
