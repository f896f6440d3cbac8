//! The invariants over every committed write of the collector: GC1 to GC5, and GC9.
//!
//! They know no graph. A write is judged by the objects that are stored at that instant; what was true of an owner shortly
//! before counts only where requests are late, since no request can depend on another object than its own.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::body::Body;
use http::{Method, Response};
use serde_json::Value;

use super::truth::{self, KINDS, Truth};
use crate::call::Call;
use crate::cluster;
use crate::invariants::{Breach, text};
use crate::server::replies::refused;
use windlass_apiserver::Sandbox;

/// How old an answer about an owner may be when its dependents are decided about: the collector keeps one for a second.
const ANSWER: Duration = Duration::from_secs(2);

/// How long a foreground deletion waits for a kind that cannot be read.
const PATIENCE: Duration = Duration::from_secs(30);

/// All invariants and their state.
#[derive(Debug, Default)]
pub struct Judge {
    staleness: Duration,
    /// The time, as far as it is known.
    pub now: Duration,
    /// Until when reads of one object get a 404 that is not about the object.
    pub paths_lost_until: Duration,
    /// A kind whose lists fail, and until when.
    pub broken: Option<(&'static str, Duration)>,
    /// When each owner last waited for its dependents, by UID.
    waited: BTreeMap<String, Duration>,
    /// When each owner was last being deleted without its dependents.
    orphaned: BTreeMap<String, Duration>,
    /// How many writes of the collector have changed something.
    pub writes: u64,
    /// Since when an object has a reference, by the UIDs of both.
    referred: BTreeMap<(String, String), Duration>,
}

/// The objects before a write, and the one that it is about.
pub struct Before {
    all: Vec<Value>,
    object: Option<Value>,
}

fn uid(object: &Value) -> String {
    text(object, "/metadata/uid").to_owned()
}

fn object(all: &[Value], call: &Call) -> Option<Value> {
    let kind = KINDS.iter().find(|(_, plural, _)| *plural == call.resource)?.0;
    let is_it = |object: &&Value| {
        object["kind"] == kind
            && object["metadata"]["name"] == *call.name
            && text(object, "/metadata/namespace") == call.namespace
    };
    all.iter().find(is_it).cloned()
}

impl Judge {
    /// Invariants that have seen nothing yet. `staleness` is how old a decision may be when it is carried out.
    pub fn new(staleness: Duration) -> Self {
        Judge { staleness, ..Judge::default() }
    }

    fn remember(&mut self, at: Duration, all: &[Value]) {
        self.now = at;
        let mut referred = BTreeMap::new();
        for object in all {
            if truth::is_deleting(object) && truth::has_finalizer(object, "foregroundDeletion") {
                self.waited.insert(uid(object), at);
            }
            if truth::is_deleting(object) && truth::has_finalizer(object, "orphan") {
                self.orphaned.insert(uid(object), at);
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

    /// GC1: all owners are absent, or wait for their dependents.
    fn deletion(&self, at: Duration, object: &Value, all: &[Value]) -> Result<(), String> {
        let owners = truth::owners(object, all);
        if owners.is_empty() {
            return Err("it has no owner".to_owned());
        }
        for (reference, owner) in truth::references(object).zip(owners) {
            let is_gone = match owner {
                Truth::Absent | Truth::Waits => true,
                Truth::Exists => self.was_so(self.waited.get(text(reference, "/uid")), at),
                Truth::Unresolvable => false,
            };
            if !is_gone {
                return Err(format!("its owner is {owner:?}: {reference}"));
            }
        }
        Ok(())
    }

    /// GC3 and GC4: an owner that is let go has no dependent that its deletion should have released, or waited for. A
    /// reference that came while the last request was under way cannot be known.
    fn letting_go(&self, at: Duration, owner: &Value, finalizer: &str, all: &[Value]) -> Result<(), String> {
        let is_orphaning = finalizer == "orphan";
        let broken = self.broken.is_some_and(|(_, until)| at < until + PATIENCE);
        if !is_orphaning && broken {
            return Ok(());
        }
        for object in all {
            let namespace = text(object, "/metadata/namespace");
            for reference in truth::references(object) {
                let counts = is_orphaning || reference["blockOwnerDeletion"] == true;
                let since = self.referred.get(&(uid(object), text(reference, "/uid").to_owned()));
                let is_new = since.is_none_or(|since| at.saturating_sub(*since) <= self.staleness + ANSWER);
                if counts && !is_new && truth::means(reference, namespace, owner) {
                    let name = text(object, "/metadata/name");
                    return Err(format!("{} {name} still refers to it", object["kind"]));
                }
            }
        }
        Ok(())
    }

    /// GC5: a patch changes nothing but references to owners that are gone, wait or release their dependents, what blocks
    /// in a circle, and the two finalizers.
    fn patch(&self, at: Duration, before: &Value, after: &Value, all: &[Value]) -> Result<(), String> {
        let namespace = text(before, "/metadata/namespace");
        let without = |object: &Value| {
            let mut rest = object.clone();
            if let Some(metadata) = rest["metadata"].as_object_mut() {
                for field in
                    ["ownerReferences", "finalizers", "resourceVersion", "managedFields", "generation"]
                {
                    metadata.remove(field);
                }
            }
            rest
        };
        if without(before) != without(after) {
            return Err("it changes something else".to_owned());
        }
        let kept: Vec<&Value> = truth::references(after).collect();
        for reference in truth::references(before) {
            let owner = text(reference, "/uid");
            match kept.iter().find(|kept| kept["uid"] == *owner) {
                Some(kept) if *kept == reference => {}
                Some(kept) => {
                    let mut unblocked = reference.clone();
                    unblocked["blockOwnerDeletion"] = false.into();
                    let waits = self.was_so(self.waited.get(owner), at);
                    if **kept != unblocked || !waits {
                        return Err(format!("it changes {reference} to {kept}"));
                    }
                }
                None => {
                    let may_go = match truth::of(reference, namespace, all) {
                        Truth::Absent | Truth::Waits => true,
                        Truth::Exists => {
                            self.was_so(self.waited.get(owner), at)
                                || self.was_so(self.orphaned.get(owner), at)
                        }
                        Truth::Unresolvable => self.orphaned.contains_key(owner),
                    };
                    if !may_go {
                        return Err(format!("it removes the reference to a living owner: {reference}"));
                    }
                }
            }
        }
        if kept.len() > truth::references(before).count() {
            return Err("it adds a reference".to_owned());
        }
        let finalizers =
            |object: &Value| object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        let foreign = |object: &Value| -> Vec<Value> {
            let ours = ["orphan", "foregroundDeletion"];
            finalizers(object).into_iter().filter(|known| !ours.iter().any(|our| known == our)).collect()
        };
        if foreign(before) != foreign(after) || finalizers(after).len() > finalizers(before).len() {
            return Err("it changes the finalizers of others".to_owned());
        }
        Ok(())
    }

    fn judge(&self, at: Duration, call: &Call, before: &Before, after: Option<&Value>) -> Result<(), Breach> {
        let breach = |invariant, what: String| Breach::new(invariant, format!("{what}: {call}"));
        let Some(object) = &before.object else { return Ok(()) };
        let same = after.filter(|after| after["metadata"]["uid"] == object["metadata"]["uid"]);
        if call.method == Method::DELETE {
            let preconditions = &call.body["preconditions"];
            if !preconditions["uid"].is_string() {
                return Err(breach("GC2", "a deletion names no UID".to_owned()));
            }
            let begins = !truth::is_deleting(object);
            return match begins {
                true => self.deletion(at, object, &before.all).map_err(|what| breach("GC1", what)),
                false => Ok(()),
            };
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
}

impl cluster::Judge for Judge {
    type Before = Before;

    fn before(&self, sandbox: &Sandbox, call: &Call) -> Option<Before> {
        KINDS.iter().any(|(_, plural, _)| *plural == call.resource).then(|| {
            let all = truth::objects(sandbox);
            Before { object: object(&all, call), all }
        })
    }

    fn committed(&mut self, commit: cluster::Commit<'_>, before: Before) -> Result<bool, Breach> {
        let cluster::Commit { sandbox, at, call, .. } = commit;
        self.remember(at, &before.all);
        let all = truth::objects(sandbox);
        let after = object(&all, call);
        let changes = before.object != after;
        let judged = match changes && call.of_daemon() {
            true => self.judge(at, call, &before, after.as_ref()),
            false => Ok(()),
        };
        self.remember(at, &all);
        self.writes += u64::from(changes && call.of_daemon());
        judged.map(|()| changes)
    }

    fn refuses(&self, call: &Call) -> Option<Response<Body>> {
        let is_ours = KINDS.iter().any(|(_, plural, _)| *plural == call.resource);
        if is_ours && !call.is_write() && !call.name.is_empty() && self.now < self.paths_lost_until {
            return Some(refused(404, "NotFound", "404 page not found", &[]));
        }
        let (plural, until) = self.broken?;
        let is_hit = call.lists() && call.resource == plural && self.now < until;
        is_hit.then(|| refused(500, "InternalError", "conversion webhook failed", &[]))
    }

    fn daemon_died(&mut self) {}

    fn is_blind(&mut self, _: Duration) {}
}
