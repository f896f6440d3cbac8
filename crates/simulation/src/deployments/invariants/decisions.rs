//! S14, S22, S23, and H1 for open calls: on which state a daemon decides, and how much it does at once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use http::Method;
use serde_json::Value;

use crate::deployments::knowledge::{Owner, on_behalf_of, owner_name};
use crate::deployments::objects::controller;
use crate::engine::breach::Breach;
use crate::engine::call::Call;
use crate::engine::objects::{Picture, is_deleting, text};

/// The part of an object that a patch changes; each part is written by one controller, which waits for its own
/// writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Body,
    Owners,
    Status,
}

/// An open call.
#[derive(Clone, Debug)]
struct OpenCall {
    agent: String,
    owner: Owner,
    /// The UID of that owner, as far as the author can know it; see [`for_whom`].
    uid: String,
    /// Whether no other call may be open for that owner.
    alone: bool,
    /// Whether a pod is created.
    creates: bool,
    /// Whether it is a status, the last write of a sync.
    status: bool,
    /// When the first write of the sync began. The writes of a sync follow each other at the same instant.
    began: Duration,
}

/// The objects that a sync has created, or tried to create.
#[derive(Debug, Default)]
struct Tried {
    /// When its first write began.
    began: Duration,
    names: BTreeSet<String>,
    /// The names that are retried after a wait.
    waiting: BTreeSet<String>,
    /// How many creations succeeded.
    made: usize,
}

/// The latest version of an object in a reply to an agent, and when, by the UID of the owner that it wrote for.
type Confirmed = BTreeMap<String, (Duration, u64)>;

/// State about the daemons' calls.
#[derive(Debug, Default)]
pub(super) struct Decisions {
    open_calls: BTreeMap<u64, OpenCall>,
    /// When the last write of an agent for an owner ended, and when the first of its sync began.
    ended: BTreeMap<(String, Owner), (Duration, Duration)>,
    /// The creations of the last sync of an agent for a ReplicaSet.
    tried: BTreeMap<(String, String), Tried>,
    /// The latest versions in replies to agents, by agent, UID and part.
    confirmed: BTreeMap<(String, String, Part), Confirmed>,
    /// When agents last read an object, and whether it was being deleted, by agent and UID.
    shown: BTreeMap<(String, String), (Duration, bool)>,
    /// Deletions that replies confirmed to agents, by agent and UID.
    deleted: BTreeSet<(String, String)>,
}

impl Decisions {
    /// A daemon sends a write.
    pub(super) fn sent(&mut self, at: Duration, call: &Call, picture: &Picture) -> Result<(), Breach> {
        let agent = call.agent.to_string();
        let breach = |invariant, what: String| Err(Breach::new(invariant, format!("{what}: {call}")));
        if call.method == Method::DELETE
            && self.deleted.contains(&(agent.clone(), deleted_uid(call).to_owned()))
        {
            return breach("S23", "deletes an object again that it has deleted".into());
        }
        let Some(mut open_call) = OpenCall::new(call, picture, at) else { return Ok(()) };
        let before = self.ended.get(&(agent.clone(), open_call.owner.clone()));
        if let Some((_, began)) = before.filter(|(ended, _)| *ended >= at) {
            open_call.began = *began;
        }
        if adopts(call, picture) && !self.was_shown(&agent, controller(&call.body), open_call.began) {
            return breach("S15", "adopted without reading that the owner exists".into());
        }
        if let Some((uid, version)) = based_on(call) {
            let confirmed =
                |part| self.confirmed.get(&(agent.clone(), uid.clone(), part)).into_iter().flatten();
            // The author need not know what another controller has written since the sync began.
            let began = open_call.began.min(call.known);
            let known = |part| {
                confirmed(part).filter(move |(_, (confirmed, _))| part == own(call) || *confirmed < began)
            };
            // Nor what was written for an earlier owner of the same name.
            let own_writes =
                |owner: &String| *owner == open_call.uid || open_call.uid.is_empty() || open_call.status;
            let newest = awaited(call).iter().flat_map(|part| known(*part));
            let newest =
                newest.filter(|(owner, _)| own_writes(owner)).map(|(_, (_, version))| *version).max();
            if let Some(newest) = newest.filter(|newest| version < *newest) {
                return breach(
                    "S23",
                    format!("decided on version {version}, after it wrote {newest} itself"),
                );
            }
        }
        let beside = || {
            self.open_calls.values().filter(|f| (&f.agent, &f.owner) == (&open_call.agent, &open_call.owner))
        };
        if beside().any(|other| open_call.alone || other.alone) {
            return breach("S22", "two syncs of one key at once".into());
        }
        if open_call.creates {
            let key = (agent, open_call.owner.1.clone());
            let tried = self.tried.entry(key).or_default();
            // Another sync may have followed within the instant. It retries the name that has failed.
            let again = tried.waiting.remove(&call.name);
            if !again && (tried.began != open_call.began || tried.names.contains(&call.name)) {
                *tried = Tried { began: open_call.began, ..Tried::default() };
            }
            tried.names.insert(call.name.clone());
            // 1, 2, 4, … at once, and the next ones once all of those succeeded; and a few more, because a lost reply
            // looks like a failure, and what follows within the instant need not begin with that name.
            let (names, made) = (tried.names.len(), tried.made);
            if names > 2 * made + 4 {
                return breach("S14", format!("creation {names} after {made} successful ones"));
            }
        }
        self.open_calls.insert(call.id, open_call);
        Ok(())
    }

    /// A daemon gets an object that it has read.
    pub(super) fn object_read(&mut self, at: Duration, call: &Call, object: &Value) {
        let key = (call.agent.to_string(), text(object, "/metadata/uid").to_owned());
        self.shown.insert(key, (at, is_deleting(object)));
    }

    /// Whether an agent has read, in the sync that began its writes at `began`, that an owner exists and is not being
    /// deleted.
    fn was_shown(&self, agent: &str, owner: &str, began: Duration) -> bool {
        let shown = self.shown.get(&(agent.to_owned(), owner.to_owned()));
        shown.is_some_and(|(at, deleting)| *at >= began && !deleting)
    }

    /// A creation has succeeded, or the object existed already.
    pub(super) fn made(&mut self, call: &Call) {
        let key = (call.agent.to_string(), owner_name(&call.body).to_owned());
        if let Some(tried) = self.tried.get_mut(&key).filter(|tried| tried.names.contains(&call.name)) {
            tried.made += usize::from(call.method == Method::POST && call.resource == "pods");
        }
    }

    /// A daemon gets the reply that its write has succeeded, and which version it created.
    pub(super) fn write_succeeded(&mut self, at: Duration, call: &Call, version: u64) {
        let agent = call.agent.to_string();
        self.made(call);
        if call.method == Method::DELETE {
            self.deleted.insert((agent, deleted_uid(call).to_owned()));
        } else if let Some((uid, _)) = based_on(call) {
            let owner =
                self.open_calls.get(&call.id).map(|open_call| open_call.uid.clone()).unwrap_or_default();
            let confirmed =
                self.confirmed.entry((agent, uid, own(call))).or_default().entry(owner).or_default();
            if confirmed.1 < version {
                *confirmed = (at, version);
            }
        }
    }

    /// A creation is retried after a wait.
    pub(super) fn waits(&mut self, call: &Call) {
        let key = (call.agent.to_string(), owner_name(&call.body).to_owned());
        if let Some(tried) = self.tried.get_mut(&key).filter(|tried| tried.names.contains(&call.name)) {
            tried.waiting.insert(call.name.clone());
        }
    }

    /// A call has ended, with whatever result. Returns its author, if it was a write. If it is retried,
    /// `retry_at` says when.
    pub(super) fn ended(&mut self, at: Duration, id: u64, retry_at: Option<Duration>) -> Option<String> {
        let OpenCall { agent, owner, began, status, .. } = self.open_calls.remove(&id)?;
        if status && retry_at.is_none() {
            self.tried.remove(&(agent.clone(), owner.1.clone()));
            self.ended.remove(&(agent.clone(), owner));
        } else {
            let ended = self.ended.entry((agent.clone(), owner)).or_insert((at, began));
            *ended = (ended.0.max(retry_at.unwrap_or(at)), began);
        }
        Some(agent)
    }

    /// When the sync of a call began its writes; `None` for an abandoned call.
    pub(super) fn began(&self, id: u64) -> Option<Duration> {
        self.open_calls.get(&id).map(|open_call| open_call.began)
    }
}

impl OpenCall {
    fn new(call: &Call, picture: &Picture, began: Duration) -> Option<Self> {
        let (kind, name) = on_behalf_of(call, picture)?;
        Some(OpenCall {
            agent: call.agent.to_string(),
            owner: (kind, name),
            uid: for_whom(call, picture).to_owned(),
            // The writes of a Deployment are sequential, and the status comes last.
            alone: kind == "Deployment" || call.subresource == "status",
            creates: call.resource == "pods" && call.method == Method::POST,
            status: call.subresource == "status",
            began,
        })
    }
}

/// The UID of the owner for which an object is patched: the one that the patch names, or the one that the object has;
/// "" if another client has removed that. What is written for a Deployment does not concern a later one of the same
/// name.
fn for_whom<'a>(call: &'a Call, picture: &'a Picture) -> &'a str {
    let there = || picture.get(&call.resource)?.get(&call.name);
    match text(&call.body, "/metadata/ownerReferences/0/uid") {
        "" => there().map_or("", |object| controller(object)),
        named => named,
    }
}

/// Whether a write adopts an object without a controller.
fn adopts(call: &Call, picture: &Picture) -> bool {
    let there = picture.get(&call.resource).and_then(|all| all.get(&call.name));
    let adopts = call.method == Method::PATCH && !controller(&call.body).is_empty();
    adopts && there.is_some_and(|object| controller(object).is_empty())
}

/// The UID of the object to delete.
fn deleted_uid(call: &Call) -> &str {
    text(&call.body, "/preconditions/uid")
}

/// The object that a patch is for, and the version that it was computed from.
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

/// The parts of which the author of a patch must have seen its own writes. The status of a ReplicaSet and the rest of
/// it are written by different controllers, which need not know of each other's claims.
fn awaited(call: &Call) -> &'static [Part] {
    match (&*call.resource, own(call)) {
        ("replicasets", Part::Status) => &[Part::Status, Part::Body],
        ("replicasets", _) => &[Part::Body, Part::Owners],
        _ => &[Part::Body, Part::Owners, Part::Status],
    }
}
