//! The invariants over every committed write of the controller: NS1 to NS4, NS6 and NS7.
//!
//! A write is judged by what the namespace held at that instant, in every kind that the API server has, whether it can
//! be read at the time or not.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Method;
use serde_json::Value;

use super::truth;
use crate::engine::breach::Breach;
use crate::engine::call::Call;
use crate::engine::network::{self, Dead};
use crate::engine::objects::text;
use crate::engine::request_fault::RequestFault;
use windlass_apiserver::Sandbox;

/// Temporary failures.
#[derive(Clone, Copy, Debug, Default)]
pub struct Failures {
    /// Until when discovery fails.
    pub discovery_until: Duration,
    /// A kind that can neither be listed nor deleted, and until when.
    pub broken: Option<(&'static str, Duration)>,
    /// A kind whose objects cannot be deleted by one request, and until when.
    pub split: Option<(&'static str, Duration)>,
}

/// The API server of this game.
pub type Cluster = network::Cluster<Judge>;

/// All invariants and their state.
#[derive(Debug, Default)]
pub struct Judge {
    delay: Duration,
    staleness: Duration,
    /// The time, as far as it is known.
    pub now: Duration,
    /// Temporary failures.
    pub failures: Failures,
    /// When the deletion of each namespace began, by UID.
    begun: BTreeMap<String, Duration>,
    /// How many writes of the controller have changed something.
    pub writes: u64,
}

/// A namespace and what it held before a write.
pub struct Before {
    namespace: Option<Value>,
    content: Vec<Value>,
}

/// The namespace that a call is about, and the part of it; "" is the namespace itself.
fn concerns(call: &Call) -> (&str, &str) {
    match &*call.resource {
        "namespaces" => (&call.name, ""),
        // The path of a namespace reads like that of an object in it.
        "status" | "finalize" => (&call.namespace, &call.resource),
        _ => (&call.namespace, ""),
    }
}

fn without(object: &Value, pointers: &[&str]) -> Value {
    let mut rest = object.clone();
    for pointer in pointers.iter().chain(&["/metadata/resourceVersion", "/metadata/managedFields"]) {
        let (parent, field) = pointer.rsplit_once('/').unwrap_or_default();
        if let Some(map) = rest.pointer_mut(parent).and_then(Value::as_object_mut) {
            map.remove(field);
        }
    }
    rest
}

impl Judge {
    /// Invariants that have seen nothing yet. A namespace may go `delay` after its deletion; `staleness` is how old a
    /// decision may be when it is carried out.
    pub fn new(delay: Duration, staleness: Duration) -> Self {
        Judge { delay, staleness, ..Judge::default() }
    }

    fn judge(&self, at: Duration, call: &Call, before: &Before, after: Option<&Value>) -> Result<(), Breach> {
        let breach = |invariant, what: &str| Err(Breach::new(invariant, format!("{what}: {call}")));
        let Some(namespace) = &before.namespace else { return Ok(()) };
        let same = after.filter(|after| after["metadata"]["uid"] == namespace["metadata"]["uid"]);
        match (call.method.as_str(), concerns(call).1) {
            // A request that arrives after its author was killed names no UID, and finds whatever has the name by then.
            // Nothing in the API prevents that.
            ("DELETE", "") if call.abandoned => Ok(()),
            ("DELETE", "") => self.deletion(call, namespace, &before.content),
            ("PATCH", "status") => match same {
                Some(after) if without(after, &["/status"]) != without(namespace, &["/status"]) => {
                    breach("NS7", "a write of the status changes something else")
                }
                Some(after) if after == namespace && self.staleness.is_zero() => {
                    breach("NS6", "a status is written that is there already")
                }
                _ => Ok(()),
            },
            ("PUT", "finalize") => self.end(at, call, before, namespace, same),
            _ => breach("NS3", "the controller writes something that is not its own"),
        }
    }

    fn deletion(&self, call: &Call, namespace: &Value, content: &[Value]) -> Result<(), Breach> {
        let breach = |invariant, what: &str| Err(Breach::new(invariant, format!("{what}: {call}")));
        if call.resource == "namespaces" {
            return breach("NS3", "the controller deletes a namespace");
        }
        if !truth::is_deleting(namespace) {
            return breach("NS2", "an object of a namespace that stays is deleted");
        }
        if !call.name.is_empty() && !call.body["preconditions"]["uid"].is_string() {
            return breach("NS2", "the deletion of an object names no UID");
        }
        let are_pods_left = content.iter().any(|object| object["kind"] == "Pod");
        if are_pods_left && call.resource != "pods" {
            return breach("NS4", "something else is deleted beside a pod");
        }
        Ok(())
    }

    /// NS1 and NS7: the controller's token comes off a namespace that is empty, in time, and nothing else does.
    fn end(
        &self,
        at: Duration,
        call: &Call,
        before: &Before,
        namespace: &Value,
        after: Option<&Value>,
    ) -> Result<(), Breach> {
        let breach = |invariant, what: String| Err(Breach::new(invariant, format!("{what}: {call}")));
        let foreign = truth::foreign_tokens(namespace);
        let keeps = match after {
            Some(after) => {
                truth::foreign_tokens(after) == foreign
                    && without(after, &["/spec/finalizers"]) == without(namespace, &["/spec/finalizers"])
            }
            // It is gone, so nothing else has kept it.
            None => foreign.is_empty() && truth::strings(&namespace["metadata"]["finalizers"]).is_empty(),
        };
        if !keeps {
            return breach("NS7", "what belongs to others is changed".to_owned());
        }
        if !truth::has_token(namespace) || after.is_some_and(truth::has_token) {
            return Ok(());
        }
        if let Some(object) = before.content.first() {
            let name = text(object, "/metadata/name");
            return breach("NS1", format!("it holds {} {name}, and is let go", object["kind"]));
        }
        let Some(begun) = self.begun.get(text(namespace, "/metadata/uid")) else {
            return breach("NS1", "it is not being deleted, and is let go".to_owned());
        };
        if at.saturating_sub(*begun) < self.delay {
            return breach("NS1", format!("it is let go {:?} after its deletion", at.saturating_sub(*begun)));
        }
        Ok(())
    }
}

impl network::Judge for Judge {
    type Before = Before;

    fn before(&self, sandbox: &Sandbox, call: &Call) -> Option<Before> {
        let (name, _) = concerns(call);
        truth::NAMES.contains(&name).then(|| Before {
            namespace: truth::namespace(sandbox, name),
            content: truth::content(sandbox, name),
        })
    }

    fn committed(&mut self, moment: network::Moment<'_>, before: Before) -> Result<(), Breach> {
        let network::Moment { sandbox, at, call, .. } = moment;
        self.now = at;
        let (name, _) = concerns(call);
        let after = truth::namespace(sandbox, name);
        if let Some(namespace) = after.as_ref().filter(|namespace| truth::is_deleting(namespace)) {
            self.begun.entry(text(namespace, "/metadata/uid").to_owned()).or_insert(at);
        }
        let changes = before.namespace != after || before.content != truth::content(sandbox, name);
        if !call.of_daemon() {
            return Ok(());
        }
        self.writes += u64::from(changes);
        self.judge(at, call, &before, after.as_ref())
    }

    fn fault(&mut self, moment: network::Moment<'_>, may_fail: bool, _: &mut Dead) -> Option<RequestFault> {
        let call = moment.call;
        if !may_fail {
            return None;
        }
        let refused = |code, reason, message: &str| RequestFault::Refuse(code, reason, message.to_owned());
        let Failures { discovery_until, broken, split } = self.failures;
        if (call.path == "/api" || call.path == "/apis") && self.now < discovery_until {
            return Some(refused(503, "ServiceUnavailable", "the server is starting"));
        }
        let is_of_collection = call.name.is_empty() && !call.watch;
        let is_hit = |of: Option<(&str, Duration)>| {
            of.is_some_and(|(plural, until)| call.resource == plural && self.now < until)
        };
        if is_of_collection && is_hit(broken) {
            return Some(refused(500, "InternalError", "conversion webhook failed"));
        }
        let is_split = is_of_collection && call.method == Method::DELETE && is_hit(split);
        is_split.then(|| refused(405, "MethodNotAllowed", "deletecollection is not supported"))
    }
}
