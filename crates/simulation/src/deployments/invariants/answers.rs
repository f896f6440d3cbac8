//! S28: refusals are reported, a `Retry-After` is followed without a report, and after a creation without a reply
//! nothing else is created before its outcome is known.
//!
//! Judged by the replies that daemons got and by what they sent afterwards: events, statuses and further requests. A
//! missing report is a breach once the daemon does something else for the same owner, so that a daemon that has ended
//! owes nothing. For a Deployment that is its next write: the status ends the sync. The status of a ReplicaSet may
//! have to wait until the write of another controller is in the cache, and events wait behind others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::Value;

use crate::deployments::knowledge::owner_name;
use crate::deployments::objects::controller;
use crate::deployments::scenario::{Act, Fault, Scenario};
use crate::engine::breach::Breach;
use crate::engine::call::Call;
use crate::engine::objects::{Picture, is_deleting, text};
use crate::engine::request_fault::{Answer, WAITS};

/// How long a report may take without other faults.
const PROMPT: Duration = Duration::from_secs(10);

/// How much longer it may take where replies are late or lost: several calls of half a minute.
const HELD_UP: Duration = Duration::from_secs(300);

/// How often a request may be retried after a `Retry-After`. A refusal after that is reported.
const REPETITIONS: u32 = 10;

/// Up to this many events about one object are never dropped by the spam filter.
const EVENTS: u32 = 15;

/// A Deployment or ReplicaSet, by the resource and the UID.
type Owner = (&'static str, String);

/// A report that is due.
#[derive(Clone, Debug)]
struct DueReport {
    agent: Arc<str>,
    owner: Owner,
    name: String,
    since: Duration,
    /// The refused call, for the message.
    call: String,
    /// The reason of the event that is still due.
    event: Option<&'static str>,
    /// Type and status of the condition that is still due.
    condition: Option<(&'static str, &'static str)>,
}

/// A creation without a reply.
#[derive(Debug, Default)]
struct Doubt {
    names: BTreeSet<String>,
    since: Duration,
}

/// State about replies.
#[derive(Debug, Default)]
pub(super) struct Answers {
    patience: Duration,
    /// Open writes.
    open: BTreeMap<u64, Call>,
    due_reports: Vec<DueReport>,
    /// Until when an agent has to wait before it retries a request, and how often in a row.
    waits: BTreeMap<(Arc<str>, String), (Duration, u32)>,
    /// Agents that got a `Retry-After` too often.
    exhausted: BTreeSet<Arc<str>>,
    doubts: BTreeMap<(Arc<str>, String), Doubt>,
    /// All names of pods that an agent has requested, by the UID of the ReplicaSet.
    requested_names: BTreeMap<(Arc<str>, String), BTreeSet<String>>,
    /// How many events an agent has sent about an object, by its name.
    events: BTreeMap<(Arc<str>, String), u32>,
}

impl Answers {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let honest = |fault: &Fault| {
            matches!(fault, Fault::Refusals(_) | Fault::Webhook(_) | Fault::Conflicts(_) | Fault::Behind(_))
        };
        let hidden = scenario.acts.iter().map(|(_, act)| match act {
            Act::Lag { seconds, .. } => u64::from(*seconds),
            _ => 30,
        });
        let held_up = if scenario.faults.iter().all(honest) { Duration::ZERO } else { HELD_UP };
        let patience = PROMPT + held_up + Duration::from_secs(hidden.max().unwrap_or(0));
        Answers { patience, ..Answers::default() }
    }

    /// A daemon sends a write, events included.
    pub(super) fn sent(&mut self, at: Duration, call: &Call, picture: &Picture) -> Result<(), Breach> {
        let breach = |what: String| Err(Breach::new("S28", format!("{what}: {call}")));
        let reports = call.resource == "events" || call.subresource == "status";
        let quoted = reports.then(|| call.body.to_string());
        if let Some(words) =
            WAITS.iter().find(|words| quoted.as_ref().is_some_and(|body| body.contains(**words)))
            && !self.exhausted.contains(&call.agent)
        {
            return breach(format!("reports a Retry-After as a failure, {words:?}"));
        }
        if call.resource == "events" {
            self.event_sent(call);
            return Ok(());
        }
        if !call.is_workload_write() {
            return Ok(());
        }
        let wait = self.waits.get(&(call.agent.clone(), what(call)));
        if let Some((until, _)) = wait.filter(|(until, _)| at < *until) {
            return breach(format!("retried before {until:?}, although Retry-After allows it only then"));
        }
        if call.subresource == "status" {
            self.status_sent(call, picture);
        } else if let Some((owner, _)) = owner(call, picture) {
            self.check_due_reports(at, call, &owner, picture)?;
            if call.resource == "pods" && call.method == Method::POST {
                self.requests_another_name(at, call, &owner.1)?;
            }
        }
        self.open.insert(call.id, call.clone());
        Ok(())
    }

    /// A daemon got a reply.
    pub(super) fn answered(&mut self, at: Duration, call: &Call, answer: &Answer, picture: &Picture) {
        let key = (call.agent.clone(), what(call));
        match answer {
            Answer::Wait(time) => {
                let (until, times) = self.waits.entry(key).or_default();
                *until = at + *time;
                *times += 1;
                if *times > REPETITIONS {
                    self.exhausted.insert(call.agent.clone());
                }
                // It is retried or abandoned; in either case this attempt has got its reply.
                self.open.remove(&call.id);
                return;
            }
            Answer::None => return,
            _ => self.waits.remove(&key),
        };
        self.open.remove(&call.id);
        let is_informative = matches!(answer, Answer::Success | Answer::Other);
        if call.method == Method::GET && call.resource == "pods" && is_informative {
            for ((agent, _), doubt) in &mut self.doubts {
                if *agent == call.agent {
                    doubt.names.remove(&call.name);
                }
            }
        }
        match answer {
            // A refused read changes nothing that the daemon has to report.
            Answer::Refused if call.is_workload_write() => self.report_due(at, call, picture),
            Answer::Success if call.is_workload_write() && call.subresource.is_empty() => {
                self.is_over(call, picture)
            }
            _ => {}
        }
    }

    /// A call has ended: a reply that has not arrived by now never arrives.
    pub(super) fn ended(&mut self, at: Duration, id: u64) {
        let Some(call) = self.open.remove(&id) else { return };
        if call.resource == "pods" && call.method == Method::POST {
            let uid = text(&call.body, "/metadata/ownerReferences/0/uid").to_owned();
            let doubt = self.doubts.entry((call.agent.clone(), uid)).or_default();
            doubt.names.insert(call.name);
            doubt.since = at;
        }
    }

    /// A refusal makes a report due.
    fn report_due(&mut self, at: Duration, call: &Call, picture: &Picture) {
        let Some((owner, name)) = owner(call, picture) else { return };
        let creates = call.method == Method::POST;
        let (event, condition) = match (&*call.resource, &call.method) {
            _ if !call.subresource.is_empty() => return,
            ("pods", &Method::POST) => (Some("FailedCreate"), ("ReplicaFailure", "True")),
            ("pods", &Method::DELETE) => (Some("FailedDelete"), ("ReplicaFailure", "True")),
            ("replicasets", _) if creates => (Some("ReplicaSetCreateError"), ("Progressing", "False")),
            _ => (None, ("ReplicaFailure", "True")),
        };
        let often = self.events.get(&(call.agent.clone(), name.clone())).is_some_and(|sent| *sent >= EVENTS);
        let (agent, call) = (call.agent.clone(), call.to_string());
        let event = event.filter(|_| !often);
        let condition = Some(condition).filter(|wanted| !has(there(picture, &owner), *wanted));
        // One of each kind at a time: the oldest is due first.
        let is_same = |due: &DueReport| {
            (&due.agent, &due.owner) == (&agent, &owner)
                && (due.event.is_some() || event.is_none())
                && (due.condition == condition || condition.is_none())
        };
        if (event.is_some() || condition.is_some()) && !self.due_reports.iter().any(is_same) {
            self.due_reports.push(DueReport { agent, owner, name, since: at, call, event, condition });
        }
    }

    /// A daemon sends an event.
    fn event_sent(&mut self, call: &Call) {
        let (about, reason) = match &call.method {
            // A repeated event increases a count. Its name is that of the object, which may contain dots, and a
            // number after the last dot.
            &Method::PATCH => (call.name.rsplit_once('.').map_or("", |(about, _)| about), ""),
            _ => (text(&call.body, "/involvedObject/name"), text(&call.body, "/reason")),
        };
        *self.events.entry((call.agent.clone(), about.to_owned())).or_default() += 1;
        for due in self.due_reports.iter_mut().filter(|due| due.agent == call.agent && due.name == about) {
            due.event = due.event.filter(|owed| !reason.is_empty() && *owed != reason);
        }
        self.forget_reported();
    }

    /// A daemon sends a status.
    fn status_sent(&mut self, call: &Call, picture: &Picture) {
        let uid = picture.get(&call.resource).and_then(|all| all.get(&call.name));
        let uid = uid.map_or("", |object| text(object, "/metadata/uid"));
        for due in self.due_reports.iter_mut().filter(|due| due.agent == call.agent && due.owner.1 == uid) {
            due.condition = due.condition.filter(|wanted| !has(Some(&call.body), *wanted));
        }
        self.forget_reported();
    }

    /// A write has succeeded: an earlier failure is over, and its condition no longer due.
    fn is_over(&mut self, call: &Call, picture: &Picture) {
        let Some((owner, _)) = owner(call, picture) else { return };
        if owner.0 == "replicasets" {
            let its = |due: &&mut DueReport| due.agent == call.agent && due.owner == owner;
            self.due_reports.iter_mut().filter(its).for_each(|due| due.condition = None);
            self.forget_reported();
        }
    }

    fn forget_reported(&mut self) {
        self.due_reports.retain(|due| due.event.is_some() || due.condition.is_some());
    }

    /// The agent acts for the owner again, so that its missing reports are breaches.
    fn check_due_reports(
        &mut self,
        at: Duration,
        call: &Call,
        owner: &Owner,
        picture: &Picture,
    ) -> Result<(), Breach> {
        // Nothing is reported about a deleted object.
        let gone = |owner: &Owner| there(picture, owner).is_none_or(is_deleting);
        self.due_reports.retain(|due| !gone(&due.owner));
        let patience = self.patience;
        let is_due = |due: &&DueReport| {
            let prompt = due.condition.is_some() && owner.0 == "deployments";
            let left = if prompt { Duration::ZERO } else { patience };
            due.agent == call.agent && due.owner == *owner && at > due.since + left
        };
        let Some(due) = self.due_reports.iter().find(is_due) else { return Ok(()) };
        let DueReport { name, since, call: refused, event, condition, .. } = due;
        let owed = match (condition, event) {
            (Some((kind, _)), _) => format!("the condition {kind}"),
            (None, event) => format!("an event {}", event.unwrap_or_default()),
        };
        Err(Breach::new(
            "S28",
            format!("{name} has not reported a refusal of {since:?} with {owed}: {refused}"),
        ))
    }

    /// A daemon requests a pod under another name while the outcome of an earlier creation is not known.
    fn requests_another_name(&mut self, at: Duration, call: &Call, replica_set: &str) -> Result<(), Breach> {
        let key = (call.agent.clone(), replica_set.to_owned());
        let requested_names = self.requested_names.entry(key.clone()).or_default();
        let is_new = requested_names.insert(call.name.clone());
        let Some(doubt) = self.doubts.get_mut(&key) else { return Ok(()) };
        doubt.names.remove(&call.name);
        match doubt.names.first() {
            Some(name) if is_new && at > doubt.since => {
                let what = format!("requests a new name while the outcome of {name} is unknown: {call}");
                Err(Breach::new("S28", what))
            }
            _ => Ok(()),
        }
    }
}

/// Identifies a request among those of the same agent.
fn what(call: &Call) -> String {
    format!("{} {} {}", call.method, call.path, call.name)
}

/// The owner that a write is made for, and its name.
fn owner(call: &Call, picture: &Picture) -> Option<(Owner, String)> {
    let owners = match &*call.resource {
        "pods" => "replicasets",
        "replicasets" => "deployments",
        _ => return None,
    };
    let uid = match text(&call.body, "/metadata/ownerReferences/0/uid") {
        "" => picture.get(&call.resource)?.get(&call.name).map(|object| controller(object))?,
        named => named,
    };
    let name = match owner_name(&call.body) {
        "" => there(picture, &(owners, uid.to_owned())).map_or("", |owner| text(owner, "/metadata/name")),
        name => name,
    };
    Some(((owners, uid.to_owned()), name.to_owned())).filter(|_| !uid.is_empty() && !name.is_empty())
}

fn there<'a>(picture: &'a Picture, (resource, uid): &Owner) -> Option<&'a Value> {
    let mut all = picture.get(*resource)?.values().map(|object| &**object);
    all.find(|object| text(object, "/metadata/uid") == uid)
}

fn has(object: Option<&Value>, (kind, status): (&str, &str)) -> bool {
    let conditions = object.and_then(|object| object["status"]["conditions"].as_array());
    conditions.into_iter().flatten().any(|c| c["type"] == kind && c["status"] == status)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const PODS: &str = "/api/v1/namespaces/shop/pods";
    const REPLICA_SETS: &str = "/apis/apps/v1/namespaces/shop/replicasets";

    fn call(method: Method, path: &str, body: &Value) -> Call {
        let (parts, ()) = http::Request::builder().method(method).uri(path).body(()).unwrap().into_parts();
        Call { id: 1, ..Call::new("d0.1".into(), &parts, body.to_string().as_bytes()) }
    }

    fn owned_by(kind: &str, name: &str) -> Value {
        json!([{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": format!("u-{name}"), "controller": true}])
    }

    fn creation(pod: &str) -> Call {
        call(
            Method::POST,
            PODS,
            &json!({"metadata": {"name": pod, "ownerReferences": owned_by("ReplicaSet", "web-1")}}),
        )
    }

    fn adoption() -> Call {
        let path = format!("{REPLICA_SETS}/web-1");
        call(Method::PATCH, &path, &json!({"metadata": {"ownerReferences": owned_by("Deployment", "web")}}))
    }

    fn picture() -> Picture {
        let object = |name: &str| {
            let object = json!({"metadata": {"name": name, "uid": format!("u-{name}")}});
            (name.to_owned(), Arc::new(object))
        };
        [("replicasets", "web-1"), ("deployments", "web")]
            .map(|(resource, name)| (resource.to_owned(), [object(name)].into()))
            .into()
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// The invariant after a daemon has sent this and got that reply, in the first second.
    fn after(call: &Call, answer: &Answer) -> Answers {
        let mut answers = Answers { patience: PROMPT, ..Answers::default() };
        assert_eq!(answers.sent(at(1), call, &picture()), Ok(()));
        answers.answered(at(1), call, answer, &picture());
        answers.ended(at(1), call.id);
        answers
    }

    #[test]
    fn a_refused_creation_owes_an_event_and_a_condition() {
        let event = json!({"reason": "FailedCreate", "involvedObject": {"name": "web-1"}});
        let event = call(Method::POST, "/api/v1/namespaces/shop/events", &event);
        let failure = json!({"status": {"conditions": [{"type": "ReplicaFailure", "status": "True"}]}});
        let status = call(Method::PATCH, &format!("{REPLICA_SETS}/web-1/status"), &failure);
        for (reports, is_fine) in
            [(&[][..], false), (&[&event], false), (&[&status], false), (&[&event, &status], true)]
        {
            let mut answers = after(&creation("a"), &Answer::Refused);
            for report in reports {
                assert_eq!(answers.sent(at(2), report, &picture()), Ok(()));
            }
            assert_eq!(answers.sent(at(5), &creation("a"), &picture()), Ok(()), "there is time");
            assert_eq!(answers.sent(at(20), &creation("a"), &picture()).is_ok(), is_fine, "{reports:?}");
        }
    }

    #[test]
    fn a_repeated_event_is_assigned_to_an_object_with_dots_in_its_name() {
        for (event, is_fine) in [("web-1.5.0123456789abcdef", true), ("web-1.0123456789abcdef", false)] {
            let owners = owned_by("ReplicaSet", "web-1.5");
            let creation =
                call(Method::POST, PODS, &json!({"metadata": {"name": "a", "ownerReferences": owners}}));
            let replica_set = json!({"metadata": {"name": "web-1.5", "uid": "u-web-1.5"}});
            let replica_sets = [("web-1.5".to_owned(), Arc::new(replica_set))].into();
            let picture: Picture = [("replicasets".to_owned(), replica_sets)].into();
            let mut answers = Answers { patience: PROMPT, ..Answers::default() };
            answers.answered(at(1), &creation, &Answer::Refused, &picture);
            let failure = json!({"status": {"conditions": [{"type": "ReplicaFailure", "status": "True"}]}});
            let status = call(Method::PATCH, &format!("{REPLICA_SETS}/web-1.5/status"), &failure);
            let count = json!({"count": 2});
            let again = call(Method::PATCH, &format!("/api/v1/namespaces/shop/events/{event}"), &count);
            assert_eq!(answers.sent(at(2), &status, &picture), Ok(()));
            assert_eq!(answers.sent(at(2), &again, &picture), Ok(()));
            assert_eq!(answers.sent(at(20), &creation, &picture).is_ok(), is_fine, "{event}");
        }
    }

    #[test]
    fn a_refused_adoption_is_reported_before_the_next_try() {
        let mut answers = after(&adoption(), &Answer::Refused);
        assert!(answers.sent(at(2), &adoption(), &picture()).is_err());
    }

    #[test]
    fn a_retry_after_is_followed_and_not_reported() {
        let mut answers = after(&creation("a"), &Answer::Wait(at(5)));
        assert!(answers.sent(at(4), &creation("a"), &picture()).is_err(), "too early");
        assert_eq!(answers.sent(at(6), &creation("a"), &picture()), Ok(()));
        let event = json!({"reason": "FailedCreate", "message": format!("Error creating: {}", WAITS[0])});
        let event = call(Method::POST, "/api/v1/namespaces/shop/events", &event);
        assert!(answers.sent(at(6), &event, &picture()).is_err());
    }

    #[test]
    fn without_a_reply_the_name_is_kept_or_looked_up() {
        let other = |answers: &mut Answers| answers.sent(at(9), &creation("b"), &picture());
        assert!(other(&mut after(&creation("a"), &Answer::None)).is_err());
        let mut again = after(&creation("a"), &Answer::None);
        assert_eq!(again.sent(at(8), &creation("a"), &picture()), Ok(()));
        assert_eq!(other(&mut again), Ok(()));
        let mut looked_up = after(&creation("a"), &Answer::None);
        looked_up.answered(
            at(8),
            &call(Method::GET, &format!("{PODS}/a"), &Value::Null),
            &Answer::Other,
            &picture(),
        );
        assert_eq!(other(&mut looked_up), Ok(()));
    }
}
