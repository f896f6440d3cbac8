//! The invariants over every committed write of the collector: GC1 to GC5, GC9 and GC15.
//!
//! They know no graph. A write is judged by the objects that are stored at that instant; what was true of an owner shortly
//! before counts only where requests are late, since no request can depend on another object than its own.

mod faults;
mod patches;
mod reads;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::{Method, Request, Response};
use serde_json::{Value, json};

use super::requests::{path, reference};
use super::scenario::{Reference, Scenario, Scope};
use super::truth::{self, KINDS, Stored, Truth};
use crate::engine::breach::Breach;
use crate::engine::call::Call;
use crate::engine::network::{self, Dead, Rewrite};
use crate::engine::objects::text;
use crate::engine::request_fault::RequestFault;
use faults::Faults;
use reads::Reads;
use windlass_apiserver::Sandbox;

/// How old an answer about an owner may be when its dependents are decided about: the collector keeps one for a second.
const ANSWER: Duration = Duration::from_secs(2);

/// How old the last answer about dependents may be when a finalizer comes off, besides the time that the rate limiter takes: a
/// watch has a quarter of a second to catch up.
const BARRIER: Duration = Duration::from_millis(500);

/// The same of an answer that a kind cannot be read: such kinds have a second after the others have answered.
const CHANCE: Duration = Duration::from_secs(1);

/// How long an orphaning deletion waits for a kind that cannot be read.
const ORPHANING_PATIENCE: Duration = Duration::from_secs(120);

/// How long a request that gets no answer may have been under way when something is decided.
const TIMEOUT: Duration = Duration::from_secs(35);

/// How long after a definition has changed its kind may be unknown.
const UNKNOWN: Duration = Duration::from_secs(75);

/// The API server of this game.
pub type Cluster = network::Cluster<Judge>;

/// The requests per second of the collector, in terms of `--kube-api-qps`.
pub(super) const SHARE: f64 = 5.0;

/// All invariants and their state.
#[derive(Debug)]
pub struct Judge {
    staleness: Duration,
    /// How many requests the collector may send in a second.
    rate: f64,
    scope: Scope,
    /// The faults of the API server.
    pub faults: Faults,
    /// When each owner last waited for its dependents, by UID.
    waited: BTreeMap<String, Duration>,
    /// When each owner was last being deleted without its dependents.
    orphaned: BTreeMap<String, Duration>,
    /// Since when each of them has been.
    orphaning: BTreeMap<String, Duration>,
    /// When each of them was let go.
    released: BTreeMap<String, Duration>,
    /// Those that were let go while a kind could not be read, and by which collector. Another one that was running by then does
    /// not know of them.
    beside: BTreeMap<String, Arc<str>>,
    /// When each collector has started.
    started: BTreeMap<String, Duration>,
    /// All UIDs that objects have had.
    known: BTreeSet<String>,
    reads: Reads,
    /// How many writes of the collector have changed something.
    pub writes: u64,
    /// The requests of the collector, besides watches and discovery.
    pub calls: Vec<String>,
    /// How often it has sent something about its record.
    pub record_calls: usize,
    /// When it has sent anything at all, in order.
    sent_at: Vec<Duration>,
    /// Since when an object has a reference, by the UIDs of both.
    referred: BTreeMap<(String, String), Duration>,
}

/// The objects before a write, and the one that it is about.
pub struct Before {
    all: Stored,
    object: Option<Value>,
}

fn uid(object: &Value) -> String {
    text(object, "/metadata/uid").to_owned()
}

fn object(all: &Stored, call: &Call) -> Option<Value> {
    let kind = KINDS.iter().find(|(_, plural, _)| *plural == call.resource)?.0;
    let is_it = |object: &&Value| {
        object["kind"] == kind
            && object["metadata"]["name"] == *call.name
            && text(object, "/metadata/namespace") == call.namespace
    };
    all.objects.iter().find(is_it).cloned()
}

impl Judge {
    /// Invariants that have seen nothing yet.
    pub fn new(scenario: &Scenario) -> Self {
        Judge {
            staleness: scenario.faults.staleness(),
            rate: scenario.qps * SHARE,
            scope: scenario.scope.clone(),
            faults: Faults::default(),
            waited: BTreeMap::new(),
            orphaned: BTreeMap::new(),
            orphaning: BTreeMap::new(),
            released: BTreeMap::new(),
            beside: BTreeMap::new(),
            started: BTreeMap::new(),
            known: BTreeSet::new(),
            reads: Reads::default(),
            writes: 0,
            calls: Vec::new(),
            record_calls: 0,
            sent_at: Vec::new(),
            referred: BTreeMap::new(),
        }
    }

    /// A definition was created or deleted.
    pub fn definition_changed(&mut self) {
        self.faults.hide(KINDS[3].1, self.faults.now + UNKNOWN);
    }

    /// The store has gone back to an earlier state: nothing that was seen since then is true, and no request is under way.
    pub fn restored(&mut self, sandbox: &Sandbox) {
        self.waited.clear();
        self.orphaned.clear();
        self.orphaning.clear();
        self.released.clear();
        self.beside.clear();
        self.reads.clear();
        self.definition_changed();
        self.remember(self.faults.now, &Stored::now(sandbox));
    }

    /// How many owners may have been let go beside a kind that could not be read: an owner is recorded before it is let go,
    /// and that kind may be readable by then.
    pub fn remembered(&self) -> usize {
        self.released.len()
    }

    /// Whether the collector looks after an object.
    pub fn is_in_scope(&self, object: &Value) -> bool {
        let kind = KINDS.iter().position(|(kind, ..)| object["kind"] == *kind).unwrap_or_default();
        self.scope.includes(kind, text(object, "/metadata/namespace"))
    }

    fn remember(&mut self, at: Duration, all: &Stored) {
        self.faults.now = at;
        let mut referred = BTreeMap::new();
        for object in &all.objects {
            self.known.insert(uid(object));
            if truth::is_deleting(object) && truth::has_finalizer(object, "foregroundDeletion") {
                self.waited.insert(uid(object), at);
            }
            if truth::is_deleting(object) && truth::has_finalizer(object, "orphan") {
                self.orphaned.insert(uid(object), at);
                self.orphaning.entry(uid(object)).or_insert(at);
            }
            for reference in truth::references(object) {
                let key = (uid(object), text(reference, "/uid").to_owned());
                let since = self.referred.get(&key).copied().unwrap_or(at);
                referred.insert(key, since);
            }
        }
        self.referred = referred;
    }

    /// Whether this was so until shortly before: as long as a request may have been under way.
    fn was_so(&self, then: Option<&Duration>, at: Duration) -> bool {
        then.is_some_and(|then| at.saturating_sub(*then) <= self.staleness + ANSWER)
    }

    /// Whether the UID belonged to an object that is gone.
    fn is_gone(&self, uid: &str, all: &Stored) -> bool {
        self.known.contains(uid) && all.by_uid(uid).is_none()
    }

    /// GC1: all owners are absent, or wait for their dependents.
    fn deletion(
        &self,
        at: Duration,
        object: &Value,
        references: &[Value],
        all: &Stored,
    ) -> Result<(), String> {
        if references.is_empty() {
            return Err("it has no owner".to_owned());
        }
        for reference in references {
            let owner = truth::of(reference, text(object, "/metadata/namespace"), all);
            let uid = text(reference, "/uid");
            let is_gone = match owner {
                Truth::Absent | Truth::Waits => true,
                Truth::Exists => self.was_so(self.waited.get(uid), at),
                // Its deletion was seen, before its kind went or in whichever form it is referred to.
                Truth::Unresolvable => self.is_gone(uid, all),
            };
            if !is_gone {
                return Err(format!("its owner is {owner:?}: {reference}"));
            }
        }
        Ok(())
    }

    /// GC3: what depended on an owner when its orphaning deletion ended lives on.
    fn survives(&self, agent: &str, object: &Value, references: &[Value]) -> Result<(), String> {
        let may_be_late = self.staleness + ANSWER;
        let may_know = |owner: &str, end: &Duration| {
            let is_own = |by: &Arc<str>| **by == *agent;
            let is_later = self.started.get(agent).is_some_and(|started| *started > *end);
            is_later || self.beside.get(owner).is_none_or(is_own)
        };
        for owner in references.iter().map(|reference| text(reference, "/uid")) {
            let since = self.referred.get(&(uid(object), owner.to_owned()));
            let was_before = |end: &&Duration| {
                may_know(owner, end) && since.is_some_and(|since| *since + may_be_late < **end)
            };
            if self.released.get(owner).as_ref().is_some_and(was_before) {
                return Err(format!("its owner {owner} was deleted without its dependents"));
            }
        }
        Ok(())
    }

    /// GC3 and GC4: an owner that is let go has no dependent that its deletion should have released, or waited for. A
    /// reference that came while the last request was under way cannot be known.
    fn letting_go(&self, at: Duration, owner: &Value, finalizer: &str, all: &Stored) -> Result<(), String> {
        let is_orphaning = finalizer == "orphan";
        let is_overdue = |since: &Duration| at.saturating_sub(*since) >= ORPHANING_PATIENCE;
        let is_overdue = !is_orphaning || self.orphaning.get(&uid(owner)).is_some_and(is_overdue);
        let is_given_up = |object: &Value| is_overdue && self.is_unread(text(object, "/kind"), at);
        let seen = all.objects.iter().filter(|object| self.is_seen(object, at) && !is_given_up(object));
        for object in seen {
            let namespace = text(object, "/metadata/namespace");
            for reference in truth::references(object) {
                let counts = is_orphaning || reference["blockOwnerDeletion"] == true;
                let since = self.referred.get(&(uid(object), text(reference, "/uid").to_owned()));
                let is_new = since.is_none_or(|since| {
                    at.saturating_sub(*since) <= self.staleness + BARRIER + self.limited(*since)
                });
                if counts && !is_new && truth::means(reference, namespace, owner) {
                    let name = text(object, "/metadata/name");
                    return Err(format!("{} {name} still refers to it", object["kind"]));
                }
            }
        }
        Ok(())
    }

    /// How long the requests since then have waited for the rate limiter, at most.
    fn limited(&self, since: Duration) -> Duration {
        let sent = self.sent_at.len() - self.sent_at.partition_point(|at| *at < since);
        Duration::from_secs_f64(sent as f64 / self.rate)
    }

    /// Whether the collector may have decided without the objects of a kind, since they cannot be read. It asks them as late as
    /// it can; where it gets no answer from some kind, as late as a request takes that gets none.
    fn is_unread(&self, kind: &str, at: Duration) -> bool {
        let late = if self.faults.is_any_silent(at, TIMEOUT) { TIMEOUT } else { CHANCE };
        let before = at.saturating_sub(late + BARRIER);
        self.faults.is_down(kind, at, self.staleness + late + BARRIER + self.limited(before))
    }

    /// Whether the collector can know of an object.
    fn is_seen(&self, object: &Value, at: Duration) -> bool {
        self.is_in_scope(object) && !self.faults.is_hidden(text(object, "/kind"), at)
    }

    fn judge(&self, at: Duration, call: &Call, before: &Before, after: Option<&Value>) -> Result<(), Breach> {
        let breach = |invariant, what: String| Breach::new(invariant, format!("{what}: {call}"));
        let Some(object) = &before.object else { return Ok(()) };
        if !self.is_in_scope(object) {
            return Err(breach("GC15", "the collector does not look after this object".to_owned()));
        }
        let same = after.filter(|after| after["metadata"]["uid"] == object["metadata"]["uid"]);
        if call.method == Method::DELETE {
            return self.deleted(at, call, object, &before.all);
        }
        if call.method != Method::PATCH {
            return Err(breach("GC5", "the collector creates or replaces something".to_owned()));
        }
        let identity = &call.body["metadata"];
        if !identity["uid"].is_string() && !identity["resourceVersion"].is_string() {
            return Err(breach("GC2", "a patch names neither UID nor version".to_owned()));
        }
        for (finalizer, invariant) in [("orphan", "GC3"), ("foregroundDeletion", "GC4")] {
            let is_taken = truth::has_finalizer(object, finalizer)
                && same.is_none_or(|after| !truth::has_finalizer(after, finalizer));
            if is_taken {
                self.letting_go(at, object, finalizer, &before.all)
                    .map_err(|what| breach(invariant, what))?;
            }
        }
        match same {
            Some(after) => self.patch(at, object, after, &before.all).map_err(|what| breach("GC5", what)),
            None if truth::has_finalizer(object, "example.com/keep") => {
                Err(breach("GC5", "it removes an object that the finalizer of another keeps".to_owned()))
            }
            // It has lost its last finalizer by the patch.
            None => Ok(()),
        }
    }

    fn deleted(&self, at: Duration, call: &Call, object: &Value, all: &Stored) -> Result<(), Breach> {
        let breach = |invariant, what: String| Breach::new(invariant, format!("{what}: {call}"));
        let preconditions = &call.body["preconditions"];
        if !preconditions["uid"].is_string() {
            return Err(breach("GC2", "a deletion names no UID".to_owned()));
        }
        let stored: Vec<Value> = truth::references(object).cloned().collect();
        // Without a version, what was read is all that its author can know of the references.
        let references = match preconditions["resourceVersion"].is_string() {
            true => stored.as_slice(),
            false => self.reads.agreed(call).ok_or_else(|| {
                breach(
                    "GC2",
                    "a deletion names no version, and its references were not read again".to_owned(),
                )
            })?,
        };
        if truth::is_deleting(object) {
            return Ok(());
        }
        self.deletion(at, object, references, all).map_err(|what| {
            let last = &self.calls[self.calls.len().saturating_sub(12)..];
            breach("GC1", format!("{what}; the last requests were {last:#?}\n{object:#?}"))
        })?;
        self.survives(&call.agent, object, references).map_err(|what| breach("GC3", what))
    }
}

impl network::Judge for Judge {
    type Before = Before;

    fn before(&self, sandbox: &Sandbox, call: &Call) -> Option<Before> {
        let is_ours = KINDS.iter().any(|(_, plural, _)| *plural == call.resource);
        (is_ours || call.resource == "customresourcedefinitions").then(|| {
            let all = Stored::now(sandbox);
            Before { object: object(&all, call), all }
        })
    }

    fn committed(&mut self, moment: network::Moment<'_>, before: Before) -> Result<(), Breach> {
        let network::Moment { sandbox, at, call, .. } = moment;
        self.remember(at, &before.all);
        let all = Stored::now(sandbox);
        let after = object(&all, call);
        let changes = before.object != after;
        let judged = match changes && call.of_daemon() {
            true => self.judge(at, call, &before, after.as_ref()),
            false => Ok(()),
        };
        let ends_orphaning = |object: &Value| {
            truth::is_deleting(object) && truth::has_finalizer(object, "orphan") && call.of_daemon()
        };
        let is_released = after.as_ref().is_none_or(|after| !truth::has_finalizer(after, "orphan"));
        if let Some(owner) = before.object.as_ref().filter(|object| is_released && ends_orphaning(object)) {
            self.released.insert(uid(owner), at);
            if self.faults.is_unreadable(at, TIMEOUT) {
                self.beside.insert(uid(owner), call.agent.clone());
            }
        }
        self.remember(at, &all);
        self.writes += u64::from(changes && call.of_daemon());
        judged
    }

    fn sent(&mut self, moment: network::Moment<'_>, _: &RequestFault) -> Result<(), Breach> {
        let network::Moment { at, call, .. } = moment;
        if !call.of_daemon() {
            return Ok(());
        }
        self.sent_at.push(at);
        let is_discovery = call.path == "/api" || call.path == "/apis";
        if call.resource == "leases" && !call.watch && !call.name.is_empty() {
            self.record_calls += 1;
        } else if !call.watch && !is_discovery {
            self.calls.push(format!("{call}?{}", call.query));
        }
        Ok(())
    }

    fn carried_out(&mut self, moment: network::Moment<'_>, reply: &mut Response<Body>) {
        let network::Moment { sandbox, call, .. } = moment;
        if !call.of_daemon()
            || call.name.is_empty()
            || !KINDS.iter().any(|(_, plural, _)| *plural == call.resource)
        {
            return;
        }
        let object = object(&Stored::now(sandbox), call);
        self.reads.carried_out(call, reply.status(), object.as_ref());
    }

    /// A user gives the object that was just read another owner.
    fn follow_up(&mut self, sandbox: &Sandbox, call: &Call) -> Option<Request<Body>> {
        if self.faults.moves == 0 || call.method != Method::GET || call.name.is_empty() {
            return None;
        }
        let all = Stored::now(sandbox);
        let read = object(&all, call)?;
        let namespace = text(&read, "/metadata/namespace");
        let is_owned = truth::references(&read).next().is_some() && !truth::is_deleting(&read);
        let may_own = |owner: &&Value| {
            let owners = text(owner, "/metadata/namespace");
            uid(owner) != uid(&read)
                && !truth::is_deleting(owner)
                && (owners.is_empty() || owners == namespace)
        };
        let owner = all.objects.iter().filter(|_| is_owned).find(may_own)?;
        self.faults.moves -= 1;
        let owners = json!({"metadata": {"ownerReferences": [reference(owner, Reference::Right)]}});
        let request = Request::patch(path(&read)).header("content-type", "application/merge-patch+json");
        request.body(Body::from(owners.to_string())).ok()
    }

    fn fault(&mut self, moment: network::Moment<'_>, may_fail: bool, _: &mut Dead) -> Option<RequestFault> {
        if moment.call.of_daemon() {
            self.faults.now = moment.at;
        }
        self.faults.fault(moment.call).filter(|_| may_fail)
    }

    fn daemon_started(&mut self, agent: &str, at: Duration) {
        self.started.insert(agent.to_owned(), at);
    }

    fn rewrites(&self, call: &Call) -> Option<Rewrite> {
        self.faults.rewrites(call)
    }

    fn lags_for(&self, at: Duration, call: &Call) -> Duration {
        self.faults.lags_until(call).saturating_sub(at)
    }
}
