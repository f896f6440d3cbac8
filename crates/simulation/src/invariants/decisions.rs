//! S14, S22, S23, and of H1 the calls under way: what a daemon decides on, and how much it does at once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use http::Method;
use serde_json::Value;

use super::{Breach, controller, is_deleting, text};
use crate::call::Call;
use crate::knowledge::{Owner, on_behalf_of, owner_name};
use crate::server::Picture;

/// What a patch is about; each of these is written by one controller, which waits for its own writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Body,
    Owners,
    Status,
}

/// A call under way.
#[derive(Clone, Debug)]
struct Flight {
    agent: String,
    owner: Owner,
    /// The UID of that owner, as far as its author can have known it; see [`for_whom`].
    uid: String,
    /// Whether nothing else may be under way for that owner.
    alone: bool,
    /// Whether a pod is created.
    creates: bool,
    /// Whether it is a status, the last write of a sync.
    status: bool,
    /// When the sync began its writes. They follow each other without an instant between them.
    began: Duration,
}

/// What a sync has created, or tried to.
#[derive(Debug, Default)]
struct Tried {
    /// When it began its writes.
    began: Duration,
    names: BTreeSet<String>,
    /// Those of them that are to be asked for again after a wait.
    waiting: BTreeSet<String>,
    /// How many of them went well.
    made: usize,
}

/// The latest version of an object that an agent was told of, and when, by the UID of the owner for whose sake it wrote.
type Told = BTreeMap<String, (Duration, u64)>;

/// What is remembered of the daemons' calls.
#[derive(Debug, Default)]
pub(super) struct Decisions {
    flights: BTreeMap<u64, Flight>,
    /// When the last write of an agent for an owner ended, and when the first of its sync began.
    ended: BTreeMap<(String, Owner), (Duration, Duration)>,
    /// The creations of the last sync of an agent for a set.
    tried: BTreeMap<(String, String), Tried>,
    /// The latest versions that agents were told of, by agent, UID and part.
    told: BTreeMap<(String, String, Part), Told>,
    /// When agents were last shown an object that they had asked for, and whether it was on its way out, by agent
    /// and UID.
    shown: BTreeMap<(String, String), (Duration, bool)>,
    /// Deletions that agents were told of, by agent and UID.
    gone: BTreeSet<(String, String)>,
}

impl Decisions {
    /// A daemon sends a write.
    pub(super) fn sent(&mut self, at: Duration, call: &Call, picture: &Picture) -> Result<(), Breach> {
        let agent = call.agent.to_string();
        let breach = |invariant, what: String| Err(Breach::new(invariant, format!("{what}: {call}")));
        if call.method == Method::DELETE && self.gone.contains(&(agent.clone(), doomed(call).to_owned())) {
            return breach("S23", "deletes once more what it has deleted".into());
        }
        let Some(mut flight) = Flight::new(call, picture, at) else { return Ok(()) };
        let before = self.ended.get(&(agent.clone(), flight.owner.clone()));
        if let Some((_, began)) = before.filter(|(ended, _)| *ended >= at) {
            flight.began = *began;
        }
        if adopts(call, picture) && !self.was_shown(&agent, controller(&call.body), flight.began) {
            return breach("S15", "adopted without having been told that the owner is there".into());
        }
        if let Some((uid, version)) = based_on(call) {
            let told = |part| self.told.get(&(agent.clone(), uid.clone(), part)).into_iter().flatten();
            // Of what another controller has written since the sync began it need not know.
            let began = flight.began.min(call.known);
            let known = |part| told(part).filter(move |(_, (told, _))| part == own(call) || *told < began);
            // Nor of what was written for an owner that had the name before.
            let own_writes = |owner: &String| *owner == flight.uid || flight.uid.is_empty() || flight.status;
            let newest = awaited(call).iter().flat_map(|part| known(*part));
            let newest =
                newest.filter(|(owner, _)| own_writes(owner)).map(|(_, (_, version))| *version).max();
            if let Some(newest) = newest.filter(|newest| version < *newest) {
                return breach("S23", format!("decided on version {version}, and wrote {newest} itself"));
            }
        }
        let beside =
            || self.flights.values().filter(|f| (&f.agent, &f.owner) == (&flight.agent, &flight.owner));
        if beside().any(|other| flight.alone || other.alone) {
            return breach("S22", "two syncs of one key at once".into());
        }
        if flight.creates {
            let key = (agent, flight.owner.1.clone());
            let tried = self.tried.entry(key).or_default();
            // Another sync may have followed within the instant. It tries the name again that has failed.
            let again = tried.waiting.remove(&call.name);
            if !again && (tried.began != flight.began || tried.names.contains(&call.name)) {
                *tried = Tried { began: flight.began, ..Tried::default() };
            }
            tried.names.insert(call.name.clone());
            // 1, 2, 4, … at once, and the next ones when all of those went well; and a few more, because a reply that
            // is lost looks like a failure, and what follows within the instant need not begin with that name.
            let (names, made) = (tried.names.len(), tried.made);
            if names > 2 * made + 4 {
                return breach("S14", format!("creation {names} after {made} that went well"));
            }
        }
        self.flights.insert(call.id, flight);
        Ok(())
    }

    /// A daemon is shown an object that it has asked for.
    pub(super) fn shown(&mut self, at: Duration, call: &Call, object: &Value) {
        let key = (call.agent.to_string(), text(object, "/metadata/uid").to_owned());
        self.shown.insert(key, (at, is_deleting(object)));
    }

    /// Whether an agent was shown, in the sync that began its writes at `began`, that an owner is there to stay.
    fn was_shown(&self, agent: &str, owner: &str, began: Duration) -> bool {
        let shown = self.shown.get(&(agent.to_owned(), owner.to_owned()));
        shown.is_some_and(|(at, deleting)| *at >= began && !deleting)
    }

    /// A creation has gone well, or has met what it was to create.
    pub(super) fn made(&mut self, call: &Call) {
        let key = (call.agent.to_string(), owner_name(&call.body).to_owned());
        if let Some(tried) = self.tried.get_mut(&key).filter(|tried| tried.names.contains(&call.name)) {
            tried.made += usize::from(call.method == Method::POST && call.resource == "pods");
        }
    }

    /// A daemon is told that its write has succeeded, and which version it made.
    pub(super) fn told(&mut self, at: Duration, call: &Call, version: u64) {
        let agent = call.agent.to_string();
        self.made(call);
        if call.method == Method::DELETE {
            self.gone.insert((agent, doomed(call).to_owned()));
        } else if let Some((uid, _)) = based_on(call) {
            let owner = self.flights.get(&call.id).map(|flight| flight.uid.clone()).unwrap_or_default();
            let told = self.told.entry((agent, uid, own(call))).or_default().entry(owner).or_default();
            if told.1 < version {
                *told = (at, version);
            }
        }
    }

    /// A creation is to be sent again after a wait.
    pub(super) fn waits(&mut self, call: &Call) {
        let key = (call.agent.to_string(), owner_name(&call.body).to_owned());
        if let Some(tried) = self.tried.get_mut(&key).filter(|tried| tried.names.contains(&call.name)) {
            tried.waiting.insert(call.name.clone());
        }
    }

    /// A call is over, in whatever way; who made it, if it was a write. It `goes_on` if it is sent again until then.
    pub(super) fn ended(&mut self, at: Duration, id: u64, goes_on: Option<Duration>) -> Option<String> {
        let Flight { agent, owner, began, status, .. } = self.flights.remove(&id)?;
        if status && goes_on.is_none() {
            self.tried.remove(&(agent.clone(), owner.1.clone()));
            self.ended.remove(&(agent.clone(), owner));
        } else {
            let ended = self.ended.entry((agent.clone(), owner)).or_insert((at, began));
            *ended = (ended.0.max(goes_on.unwrap_or(at)), began);
        }
        Some(agent)
    }

    /// When the sync that a call belongs to began its writes; `None` once its author has given it up.
    pub(super) fn began(&self, id: u64) -> Option<Duration> {
        self.flights.get(&id).map(|flight| flight.began)
    }
}

impl Flight {
    fn new(call: &Call, picture: &Picture, began: Duration) -> Option<Self> {
        let (kind, name) = on_behalf_of(call, picture)?;
        Some(Flight {
            agent: call.agent.to_string(),
            owner: (kind, name),
            uid: for_whom(call, picture).to_owned(),
            // The writes of a Deployment come one after the other, and a status last.
            alone: kind == "Deployment" || call.subresource == "status",
            creates: call.resource == "pods" && call.method == Method::POST,
            status: call.subresource == "status",
            began,
        })
    }
}

/// The UID of the owner for whose sake an object is patched: the one that the patch names, or the one that the object
/// has; "" if somebody has taken that away. What is written for a Deployment is no matter of one that takes its name.
fn for_whom<'a>(call: &'a Call, picture: &'a Picture) -> &'a str {
    let there = || picture.get(&call.resource)?.get(&call.name);
    match text(&call.body, "/metadata/ownerReferences/0/uid") {
        "" => there().map_or("", |object| controller(object)),
        named => named,
    }
}

/// Whether a write takes what is nobody's.
fn adopts(call: &Call, picture: &Picture) -> bool {
    let there = picture.get(&call.resource).and_then(|all| all.get(&call.name));
    let adopts = call.method == Method::PATCH && !controller(&call.body).is_empty();
    adopts && there.is_some_and(|object| controller(object).is_empty())
}

/// The UID of what is to be deleted.
fn doomed(call: &Call) -> &str {
    text(&call.body, "/preconditions/uid")
}

/// The object that a patch is meant for, and the version that it was computed from.
fn based_on(call: &Call) -> Option<(String, u64)> {
    if call.method != Method::PATCH {
        return None;
    }
    let value = |field: &str| match call.body.as_array() {
        Some(steps) => {
            let step = steps.iter().find(|step| step["path"] == format!("/metadata/{field}"))?;
            step["value"].as_str()
        }
        None => call.body["metadata"][field].as_str(),
    };
    Some((value("uid")?.to_owned(), value("resourceVersion")?.parse().ok()?))
}

fn own(call: &Call) -> Part {
    match &*call.subresource {
        "status" => Part::Status,
        _ if call.body["metadata"]["ownerReferences"].is_array() => Part::Owners,
        _ => Part::Body,
    }
}

/// The parts of which the author of a patch has to have seen its own writes. A set's status is written by
/// another controller than the rest of it, which need not know of the claims of that one.
fn awaited(call: &Call) -> &'static [Part] {
    match (&*call.resource, own(call)) {
        ("replicasets", Part::Status) => &[Part::Status, Part::Body],
        ("replicasets", _) => &[Part::Body, Part::Owners],
        _ => &[Part::Body, Part::Owners, Part::Status],
    }
}
