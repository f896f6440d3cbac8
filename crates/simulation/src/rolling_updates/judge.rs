//! The state that all invariants share: the states that the author of a write could know, the pods, and the promise of
//! an undisturbed update: RU1, RU2 and RU8.
//!
//! A write is judged by the state that it met. Where requests are late or caches lag, each number counts as it was at any
//! moment of the last minute, if that favours the write. An update that nobody disturbs keeps its promise at every write,
//! whatever happens to requests, watches and daemons.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use http::Method;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::truth::{self, Facts, HANDING_OVER, ORIGINAL, REQUEST, STEP_AT, Snapshot, Terms, selects};
use crate::engine::blind::Blind;
use crate::engine::breach::Breach;
use crate::engine::call::Call;
use crate::engine::network;
use crate::engine::objects::{is_available, is_live, name, number, owner, text, uid};
use windlass_apiserver::Sandbox;

/// How long the states are kept.
const KEPT: Duration = Duration::from_secs(130);

/// An update that began with all its pods available, and that nobody has disturbed.
#[derive(Clone, Debug)]
struct Promise {
    new: String,
    max_total: i64,
    min_available: i64,
}

/// The API server of this game.
pub type Cluster = network::Cluster<Judge>;

/// All invariants and their state.
#[derive(Debug, Default)]
pub struct Judge {
    staleness: Duration,
    /// The changes that the author of a write may not know.
    blind: Blind,
    /// Until when two daemons act.
    two_until: Duration,
    states: VecDeque<Snapshot>,
    /// By the name of OLD.
    promises: BTreeMap<String, Promise>,
    /// When the daemon last resized each controller, by UID.
    pub(super) resized: BTreeMap<String, Duration>,
    /// The resizes, as events tell them.
    pub(super) resizes: BTreeSet<String>,
    /// The messages of all conditions.
    pub(super) reports: BTreeSet<String>,
    /// How many writes of the daemons have changed something.
    pub writes: u64,
}

/// The objects before a write.
pub struct Before {
    all: Vec<Value>,
    pods: Vec<Value>,
    replica_sets: Vec<Value>,
}

/// A write of a daemon, and what is there.
pub struct Write<'a> {
    /// When, since the beginning of the history.
    pub at: Duration,
    /// When, by the clock of the cluster.
    pub now: Timestamp,
    /// How late the request may be.
    pub staleness: Duration,
    /// The request.
    pub call: &'a Call,
    /// The states that its author could know, the one that it met among them.
    pub known: Vec<&'a Snapshot>,
}

impl<'a> Write<'a> {
    /// A breach by this write.
    pub fn breach(&self, invariant: &'static str, what: impl std::fmt::Display) -> Breach {
        Breach::new(invariant, format!("{what}: {} {}", self.call, self.call.body))
    }

    /// Whether it may have been sent at this time, which is in whole seconds.
    pub fn may_be_sent_at(&self, time: Timestamp) -> bool {
        let late = self.now.duration_since(time);
        !late.is_negative() && late <= SignedDuration::from_secs(1 + self.staleness.as_secs() as i64)
    }

    /// Everything known of a controller by its name.
    pub fn of(&self, name: &str) -> impl Iterator<Item = &'a Facts> {
        self.known.iter().filter_map(|state| state.facts.get(name)).collect::<Vec<_>>().into_iter()
    }

    /// Everything known of a controller by its UID.
    fn by_uid(&self, of: &str) -> Vec<&'a Facts> {
        self.known
            .iter()
            .flat_map(|state| state.facts.values())
            .filter(|facts| uid(&facts.object) == of)
            .collect()
    }
}

impl Judge {
    /// Invariants that have seen nothing yet. `staleness` is how old a decision may be when it is carried out.
    pub fn new(staleness: Duration) -> Self {
        Judge { staleness, blind: Blind::new(staleness), ..Judge::default() }
    }

    /// Somebody interferes with pods, sizes or templates: no update has to keep its promise.
    pub fn disturb(&mut self) {
        self.promises.clear();
    }

    /// Two daemons act until then. No Lease keeps one from naming a pod otherwise than the other at the same instant.
    pub fn has_two_until(&mut self, until: Duration) {
        self.two_until = self.two_until.max(until);
    }

    fn push(&mut self, state: Snapshot) {
        let from = state.at.saturating_sub(KEPT);
        self.states.push_back(state);
        while self.states.get(1).is_some_and(|second| second.at < from) {
            self.states.pop_front();
        }
    }

    fn known(&self, at: Duration) -> Vec<&Snapshot> {
        // Events at the same instant have no order.
        let from = self.blind.since(at).saturating_sub(Duration::from_millis(1));
        let first = self.states.iter().rposition(|state| state.at < from).unwrap_or(0);
        self.states.range(first..).collect()
    }

    /// RU8: no pod too many is created, and none is deleted that is needed, or changes hands.
    fn pod(&self, write: &Write<'_>, before: &Before) -> Result<(), Breach> {
        let call = write.call;
        if call.abandoned || !truth::is_of_a_controller(&call.body) && call.method == Method::POST {
            return Ok(());
        }
        if call.method == Method::POST {
            let facts = write.by_uid(owner(&call.body));
            let size = facts.iter().map(|facts| facts.size).max();
            let Some(size) = size else {
                return Err(write.breach("RU8", "a pod of no controller is created"));
            };
            let own = before.all.iter().find(|one| uid(one) == owner(&call.body));
            let is_handing_over = before.all.iter().any(|one| truth::annotation(one, HANDING_OVER).is_some());
            let counts = |pod: &&Value| {
                let adopts = || {
                    let selector = own.map(|own| &own["spec"]["selector"]);
                    is_handing_over
                        && owner(pod).is_empty()
                        && selector.is_some_and(|selector| selects(selector, &pod["metadata"]["labels"]))
                };
                is_live(pod) && (owner(pod) == owner(&call.body) || adopts())
            };
            let live = before.pods.iter().filter(counts).count() as i64;
            let most = size + i64::from(write.at < self.two_until);
            return match live < most {
                true => Ok(()),
                false => Err(write.breach("RU8", format!("a pod is created where {live} of {size} live"))),
            };
        }
        let Some(pod) = before.pods.iter().find(|pod| name(pod) == call.name) else { return Ok(()) };
        if call.method != Method::DELETE || !is_live(pod) || !truth::is_of_a_controller(pod) {
            return Ok(());
        }
        let facts = write.by_uid(owner(pod));
        let live = facts.iter().map(|facts| facts.live).max().unwrap_or_default();
        let size = facts.iter().map(|facts| facts.size).min().unwrap_or_default();
        if facts.is_empty() || live <= size {
            return Err(write.breach("RU8", format!("one of {live} pods is deleted, and {size} are wanted")));
        }
        let matches = |facts: &&Facts| selects(&facts.object["spec"]["selector"], &pod["metadata"]["labels"]);
        match facts.iter().any(matches) {
            true => Ok(()),
            false => Err(write.breach("RU8", "a pod that changes hands is deleted")),
        }
    }

    /// RU1 and RU2, at every write: an update that nobody disturbs has enough available pods, and not too many.
    fn keep_promises(
        &mut self,
        call: &Call,
        all: &[Value],
        pods: &[Value],
        now: Timestamp,
    ) -> Result<(), Breach> {
        let request =
            |old: &str| all.iter().find(|one| name(one) == old)?["metadata"]["annotations"][REQUEST].as_str();
        self.promises.retain(|old, promise| request(old) == Some(&promise.new));
        for (old, promise) in &self.promises {
            let both = all.iter().filter(|one| [old, &promise.new].contains(&&name(one).to_owned()));
            let seconds: Vec<(&str, i64)> =
                both.map(|one| (uid(one), number(one, "/spec/minReadySeconds"))).collect();
            let live = |pod: &&Value| {
                is_live(pod) && (owner(pod).is_empty() || seconds.iter().any(|one| one.0 == owner(pod)))
            };
            let is_up = |pod: &&Value| {
                let of = seconds.iter().find(|one| one.0 == owner(pod));
                is_available(pod, of.map_or(0, |one| one.1), now)
            };
            let total = pods.iter().filter(live).count() as i64;
            let available = pods.iter().filter(live).filter(is_up).count() as i64;
            let names = format!("{old} and {}", promise.new);
            if available < promise.min_available {
                let what = format!(
                    "{names} have {available} available pods, and {} are promised: {call}",
                    promise.min_available
                );
                return Err(Breach::new("RU1", what));
            }
            if total > promise.max_total {
                let what = format!(
                    "{names} have {total} pods, and at most {} are promised: {call}",
                    promise.max_total
                );
                return Err(Breach::new("RU2", what));
            }
        }
        Ok(())
    }

    /// A user has asked for an update: what it promises.
    fn promise(&mut self, before: &Snapshot, after: &Snapshot) {
        for (name, old) in &after.facts {
            let Some(target) = old.get(REQUEST) else { continue };
            let was_there = before.facts.get(name).is_some_and(|before| before.get(REQUEST).is_some());
            let new = after.facts.get(target);
            if !was_there {
                // Another update may change the same controllers.
                self.promises.clear();
            }
            let Some(terms) = Terms::read(old, new).filter(|_| !was_there) else { continue };
            let is_fresh = old.get(ORIGINAL).is_none_or(|original| original == old.size.to_string())
                && new.is_some_and(|new| new.live == 0 && new.size == 0)
                && old.available == old.size
                && old.live == old.size
                && terms.desired == old.size
                && !terms.is_rollback;
            let is_alone = after.facts.values().filter(|facts| facts.get(REQUEST).is_some()).count() == 1;
            if is_fresh && is_alone {
                let Terms { max_total, min_available, .. } = terms;
                self.promises
                    .insert(name.clone(), Promise { new: target.to_owned(), max_total, min_available });
            }
        }
    }
}

impl network::Judge for Judge {
    type Before = Before;

    fn before(&self, sandbox: &Sandbox, call: &Call) -> Option<Before> {
        let is_judged = matches!(&*call.resource, "replicationcontrollers" | "pods" | "events");
        is_judged.then(|| Before {
            all: truth::controllers(sandbox),
            pods: sandbox.objects("Pod"),
            replica_sets: sandbox.objects("ReplicaSet"),
        })
    }

    fn committed(&mut self, moment: network::Moment<'_>, before: Before) -> Result<(), Breach> {
        let network::Moment { sandbox, at, now, call } = moment;
        if call.resource == "events" {
            return if call.of_daemon() { self.event(call) } else { Ok(()) };
        }
        let (all, pods) = (truth::controllers(sandbox), sandbox.objects("Pod"));
        if before.all == all && before.pods == pods {
            return Ok(());
        }
        let met = Snapshot::new((at, now), &before.all, &before.pods, &before.replica_sets);
        let left = Snapshot::new((at, now), &all, &pods, &before.replica_sets);
        if !call.of_daemon() {
            self.promise(&met, &left);
        }
        self.push(met);
        let mut judged = Ok(());
        if call.of_daemon() {
            self.writes += 1;
            let known = self.known(at);
            let write = Write { at, now, staleness: self.staleness, call, known };
            judged = match &*call.resource {
                "pods" => self.pod(&write, &before),
                _ => self.controller(&write, &before.all, &all),
            };
        }
        self.learn((at, now), call, &before.all, &all);
        self.push(left);
        judged.and_then(|()| self.keep_promises(call, &all, &pods, now))
    }

    fn is_blind(&mut self, until: Duration) {
        self.blind.lags_until(until);
    }
}

impl Judge {
    /// Judges a write to a controller: of its status, or of the update.
    fn controller(&self, write: &Write<'_>, before: &[Value], after: &[Value]) -> Result<(), Breach> {
        let named = |all: &[Value]| all.iter().find(|one| name(one) == write.call.name).cloned();
        let Some(before) = named(before) else {
            return Err(write.breach("RU5", "the daemon creates a controller"));
        };
        let after = named(after).filter(|after| uid(after) == uid(&before));
        match after {
            None => self.deletion(write, &before),
            Some(after) if write.call.subresource == "status" => self.status(write, &before, &after),
            Some(after) => self.edit(write, &before, &after),
        }
    }

    /// Remembers resizes and reports.
    fn learn(&mut self, (at, now): (Duration, Timestamp), call: &Call, before: &[Value], after: &[Value]) {
        let named = |all: &[Value]| all.iter().find(|one| name(one) == call.name).cloned();
        let Some((before, after)) = named(before).zip(named(after)) else { return };
        let (from, to) = (number(&before, "/spec/replicas"), number(&after, "/spec/replicas"));
        if truth::annotation(&after, STEP_AT).is_none() {
            // The next step belongs to another update, or nothing tells when the last was.
            self.resized.remove(uid(&after));
        }
        if from != to && call.of_daemon() {
            // A request that is late notes when it was sent.
            let noted: Option<Timestamp> = truth::annotation(&after, STEP_AT).and_then(|at| at.parse().ok());
            let late = noted.and_then(|noted| Duration::try_from(now.duration_since(noted)).ok());
            let sent = at.saturating_sub(late.unwrap_or_default());
            self.resized.insert(uid(&after).to_owned(), sent);
            let direction = if to > from { "up" } else { "down" };
            let name = name(&after);
            self.resizes
                .insert(format!("Scaled {direction} replication controller {name} from {from} to {to}"));
        }
        if let Some(condition) = truth::condition(&after) {
            self.reports.insert(text(condition, "/message").to_owned());
        }
    }
}
