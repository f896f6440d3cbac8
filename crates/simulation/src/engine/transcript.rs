//! A history for readers: at which time which client did what to which object, and with what result. A write that was
//! carried out shows what it changed of the fields that matter; one that was not shows what it requested.
//!
//! ```text
//! 0.000 -- Create { name: "web", replicas: 1, ... }
//! 0.000 user      creates deployment web: size 1, image app:0
//! 0.004 d0.1      creates replicaset web-866d4776bc: size 1, image app:0, owner web/3f21
//! 0.005 d0.1      creates pod web-866d4776bc-x7c2f: ... (the reply is lost)
//! ```
//!
//! Events and renewals of a Lease are left out, and repeated lines are collapsed. `--verbose` shows the log instead,
//! every request with its body.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use http::Method;
use serde::Serialize;
use serde_json::Value;

use super::call::Call;
use super::log::{Entry, Event};
use super::objects::{Picture, is_deleting, text};
use super::request_fault::RequestFault;

/// How many similar lines are shown per second; the others are collapsed.
const REPEATED: usize = 8;

/// A longer transcript shows its beginning and its end.
const BEGINNING: usize = 100;
const END: usize = 60;

/// The fields that matter, with the names that the transcript uses.
const FIELDS: [(&str, &str); 23] = [
    ("size", "/spec/replicas"),
    ("image", "/spec/template/spec/containers/0/image"),
    ("image", "/spec/containers/0/image"),
    ("tier", "/spec/template/metadata/labels/tier"),
    ("strategy", "/spec/strategy/type"),
    ("surge", "/spec/strategy/rollingUpdate/maxSurge"),
    ("unavailable", "/spec/strategy/rollingUpdate/maxUnavailable"),
    ("paused", "/spec/paused"),
    ("minReady", "/spec/minReadySeconds"),
    ("app", "/metadata/labels/app"),
    ("revision", "/metadata/annotations/deployment.kubernetes.io~1revision"),
    ("desired", "/metadata/annotations/deployment.kubernetes.io~1desired-replicas"),
    ("rollback", "/metadata/annotations/deprecated.deployment.rollback.to"),
    ("gitops", "/metadata/annotations/gitops"),
    ("node", "/spec/nodeName"),
    ("phase", "/status/phase"),
    ("observed", "/status/observedGeneration"),
    ("replicas", "/status/replicas"),
    ("updated", "/status/updatedReplicas"),
    ("ready", "/status/readyReplicas"),
    ("available", "/status/availableReplicas"),
    ("terminating", "/status/terminatingReplicas"),
    ("generation", "/metadata/generation"),
];

struct Line {
    at: Duration,
    text: String,
    /// Lines of the same kind are collapsed; lines without a kind are not.
    kind: String,
}

/// The scenario: its acts in a line each, and all else in one.
pub fn scenario<S: Serialize>(scenario: &S) -> Vec<String> {
    let mut whole = serde_json::to_value(scenario).unwrap_or_default();
    let acts = whole.as_object_mut().and_then(|fields| fields.remove("acts")).unwrap_or_default();
    let line = |step: &Value| format!("  {:>8} {}", step["at"], step["act"]);
    let acts = acts.as_array().map(|acts| acts.iter().map(line).collect()).unwrap_or_default();
    [vec![whole.to_string()], acts].concat()
}

/// The lines of the transcript, about these resources. The last one is the breach, if there is one.
pub fn lines(log: &[Entry], resources: &[&str]) -> Vec<String> {
    let mut writer = Writer { resources, ..Writer::default() };
    let breach = log.iter().position(|entry| matches!(entry.event, Event::Breach(_)));
    log.iter().take(breach.map_or(log.len(), |at| at + 1)).for_each(|entry| writer.tell(entry));
    shorten(gather(writer.lines))
}

/// The objects, one line each; a long list shows its beginning and its end.
pub fn objects(picture: &Picture) -> Vec<String> {
    let mut lines = Vec::new();
    for (resource, all) in picture {
        lines.extend(
            all.iter().map(|(name, object)| format!("{}: {}", noun(resource, name), join(&shape(object)))),
        );
    }
    shorten(lines)
}

#[derive(Default)]
struct Writer<'a> {
    resources: &'a [&'a str],
    lines: Vec<Line>,
    /// The remarks to add to a request once it is carried out.
    remarks: BTreeMap<String, VecDeque<String>>,
    leader: String,
}

impl Writer<'_> {
    fn line(&mut self, at: Duration, kind: String, text: String) {
        self.lines.push(Line { at, kind, text });
    }

    fn tell(&mut self, entry: &Entry) {
        let at = entry.at;
        match &entry.event {
            Event::Note(text) => self.line(at, String::new(), format!("-- {text}")),
            Event::Breach(text) => self.line(at, String::new(), format!("!! {text}")),
            Event::Sent(call, request_fault) if !self.matters(call) => {
                if call.of_daemon() && call.resource != "events" && *request_fault != RequestFault::Proceed {
                    self.call(at, call, "", &request_fault.to_string());
                }
            }
            Event::Sent(call, request_fault) if !call.is_write() => {
                // A list shows that a daemon has started. Other reads say little.
                if call.of_daemon()
                    && (call.name.is_empty() && !call.watch || *request_fault != RequestFault::Proceed)
                {
                    self.call(at, call, "", &request_fault.to_string());
                }
            }
            Event::Sent(call, request_fault) if request_fault.is_carried_out() => {
                self.remarks.entry(call.to_string()).or_default().push_back(request_fault.to_string());
            }
            Event::Sent(call, request_fault) => {
                self.call(at, call, &requested(call), &request_fault.to_string())
            }
            Event::Done { call, code, before, after } => {
                if call.resource == "leases" {
                    self.leads(at, call, *code);
                }
                if !self.matters(call) {
                    return;
                }
                let remark = self.remarks.get_mut(&call.to_string()).and_then(VecDeque::pop_front);
                let mut remarks: Vec<String> =
                    remark.into_iter().filter(|remark| !remark.is_empty()).collect();
                let what = if (200..300).contains(code) {
                    changed(before.as_deref(), after.as_deref())
                } else {
                    remarks.insert(0, format!("refused with {code}"));
                    requested(call)
                };
                self.call(at, call, &what, &remarks.join("; "));
            }
        }
    }

    fn call(&mut self, at: Duration, call: &Call, what: &str, remark: &str) {
        let Call { agent, resource, name, subresource, .. } = call;
        let of = if subresource.is_empty() { String::new() } else { format!("{subresource} of ") };
        let object = if name.is_empty() { resource.clone() } else { noun(resource, name) };
        let mut text = format!("{agent:<9} {} {of}{object}", verb(call));
        if !what.is_empty() {
            text = format!("{text}: {what}");
        }
        if !remark.is_empty() {
            text = format!("{text} ({remark})");
        }
        let kind = format!("{agent} {} {resource} {subresource} {remark}", verb(call));
        self.line(at, kind, text);
    }

    /// Whether the request is about objects of the game.
    fn matters(&self, call: &Call) -> bool {
        self.resources.contains(&&*call.resource)
    }

    fn leads(&mut self, at: Duration, call: &Call, code: u16) {
        let Some(holder) = call.body["spec"]["holderIdentity"].as_str() else { return };
        if (200..300).contains(&code) && holder != self.leader {
            self.leader = holder.to_owned();
            let text = if holder.is_empty() { "releases the Lease" } else { "acquires the Lease" };
            self.line(at, String::new(), format!("{:<9} {text}", call.agent));
        }
    }
}

fn verb(call: &Call) -> &'static str {
    match call.method {
        Method::POST => "creates",
        Method::PATCH => "patches",
        Method::PUT => "replaces",
        Method::DELETE => "deletes",
        _ if call.watch => "watches",
        _ if call.name.is_empty() => "lists",
        _ => "reads",
    }
}

fn noun(resource: &str, name: &str) -> String {
    let noun = match resource.strip_suffix("ies") {
        Some(stem) => format!("{stem}y"),
        None => resource.strip_suffix('s').unwrap_or(resource).to_owned(),
    };
    format!("{noun} {name}")
}

/// The fields that matter, with their values.
fn shape(object: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    if is_deleting(object) {
        found.push(("deleting".to_owned(), "yes".to_owned()));
    }
    for (name, pointer) in FIELDS {
        match object.pointer(pointer) {
            None => {}
            Some(Value::String(text)) => found.push((name.into(), text.clone())),
            Some(value) => found.push((name.into(), value.to_string())),
        }
    }
    let owners = object.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    for owner in owners.into_iter().flatten().filter(|owner| owner["controller"] == true) {
        found.push(("owner".into(), format!("{}/{}", text(owner, "/name"), tail(text(owner, "/uid")))));
    }
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    for condition in conditions.into_iter().flatten() {
        let (kind, status) = (text(condition, "/type"), text(condition, "/status"));
        let reason = text(condition, "/reason");
        // Only one condition of a pod matters.
        if !kind.starts_with("PodReadyTo")
            && !matches!(kind, "PodScheduled" | "Initialized" | "ContainersReady")
        {
            let reason = if reason.is_empty() { String::new() } else { format!("/{reason}") };
            found.push((kind.into(), format!("{status}{reason}")));
        }
    }
    for (name, pointer) in [("uid", "/metadata/uid"), ("version", "/metadata/resourceVersion")] {
        if let Some(value) = object.pointer(pointer).and_then(Value::as_str) {
            found.push((name.into(), if name == "uid" { tail(value).to_owned() } else { value.to_owned() }));
        }
    }
    found
}

/// Enough of a UID to distinguish it.
fn tail(uid: &str) -> &str {
    uid.char_indices().rev().nth(3).and_then(|(at, _)| uid.get(at..)).unwrap_or(uid)
}

fn join(fields: &[(String, String)]) -> String {
    fields.iter().map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ")
}

/// The changes that a write made.
fn changed(before: Option<&Value>, after: Option<&Value>) -> String {
    let (before, after) = match (before, after) {
        (None, None) => return "nothing".into(),
        (None, Some(after)) => return join(&shape(after)),
        (Some(_), None) => return "gone".into(),
        (Some(before), Some(after)) => (shape(before), shape(after)),
    };
    let find = |fields: &[(String, String)], name: &str| {
        fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
    };
    let mut changes = Vec::new();
    let gone = before.iter().filter(|(name, _)| find(&after, name).is_none());
    changes.extend(gone.map(|(name, value)| format!("{name} {value} -> none")));
    for (name, value) in &after {
        match find(&before, name) {
            Some(old) if old == *value => {}
            _ if name == "version" => changes.push(format!("version {value}")),
            Some(old) => changes.push(format!("{name} {old} -> {value}")),
            None => changes.push(format!("{name} {value}")),
        }
    }
    if changes.is_empty() { "nothing".into() } else { changes.join(", ") }
}

/// The changes that a write requested and that were not carried out.
fn requested(call: &Call) -> String {
    let Some(steps) = call.body.as_array() else {
        let mut fields = shape(&call.body);
        let uid = text(&call.body, "/preconditions/uid");
        if !uid.is_empty() {
            fields.push(("if uid".into(), tail(uid).to_owned()));
        }
        return join(&fields);
    };
    // A JSON patch.
    let step = |step: &Value| {
        let path = text(step, "/path");
        let name = FIELDS.iter().find(|(_, pointer)| *pointer == path).map_or(path, |(name, _)| name);
        let value: String = step["value"].to_string().chars().take(40).collect();
        if step["op"] == "test" { format!("if {name} {value}") } else { format!("{name} {value}") }
    };
    steps.iter().map(step).collect::<Vec<_>>().join(", ")
}

/// Shows a few lines of each kind per second, and the number of the others: a storm of requests repeats several
/// kinds, in changing order.
fn gather(lines: Vec<Line>) -> Vec<String> {
    let mut gathered: Vec<String> = Vec::new();
    let mut shown: BTreeMap<&str, (u64, usize)> = BTreeMap::new();
    let mut more: Option<(usize, Duration)> = None;
    let say = |more: Option<(usize, Duration)>, gathered: &mut Vec<String>| {
        if let Some((count, until)) = more {
            gathered.push(format!("{:>9} {count} similar lines, until {:.3}", "", until.as_secs_f64()));
        }
    };
    for line in &lines {
        let count = shown.entry(&line.kind).or_default();
        let second = line.at.as_secs();
        *count = if count.0 == second { (second, count.1 + 1) } else { (second, 1) };
        if count.1 > REPEATED && !line.kind.is_empty() {
            more = Some((more.map_or(1, |(count, _)| count + 1), line.at));
            continue;
        }
        say(more.take(), &mut gathered);
        gathered.push(format!("{:>9.3} {}", line.at.as_secs_f64(), line.text));
    }
    say(more, &mut gathered);
    gathered
}

fn shorten(mut lines: Vec<String>) -> Vec<String> {
    if lines.len() > BEGINNING + END + 1 {
        let end = lines.split_off(lines.len() - END);
        let left_out = lines.len() - BEGINNING;
        lines.truncate(BEGINNING);
        lines.push(format!("{:>9} {left_out} lines are omitted", ""));
        lines.extend(end);
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    fn lines(log: &[Entry]) -> Vec<String> {
        super::lines(log, &["deployments", "replicasets", "pods"])
    }

    fn call(method: &str, path: &str, body: &Value) -> Box<Call> {
        let (parts, ()) = http::Request::builder().method(method).uri(path).body(()).unwrap().into_parts();
        Box::new(Call::new("d0.1".into(), &parts, body.to_string().as_bytes()))
    }

    fn sent(call: &Call, request_fault: RequestFault) -> Entry {
        Entry { at: Duration::from_secs(1), event: Event::Sent(Box::new(call.clone()), request_fault) }
    }

    const REPLICA_SET: &str = "/apis/apps/v1/namespaces/shop/replicasets/web-1";

    fn replica_set(size: u32, version: &str) -> Option<Arc<Value>> {
        let owner = json!({"name": "web", "uid": "aaaa-bbbb", "controller": true});
        Some(Arc::new(json!({"metadata": {"ownerReferences": [owner], "resourceVersion": version},
                             "spec": {"replicas": size}})))
    }

    #[test]
    fn a_write_shows_its_changes_and_the_fault_of_its_reply() {
        let scale = call("PATCH", REPLICA_SET, &json!({"spec": {"replicas": 2}}));
        let done = Event::Done {
            call: scale.clone(),
            code: 200,
            before: replica_set(3, "7"),
            after: replica_set(2, "8"),
        };
        let log = [sent(&scale, RequestFault::LoseReply), Entry { at: Duration::from_secs(1), event: done }];
        let expected =
            "    1.000 d0.1      patches replicaset web-1: size 3 -> 2, version 8 (the reply is lost)";
        assert_eq!(lines(&log), [expected]);
    }

    #[test]
    fn a_write_that_never_arrives_shows_what_it_requested() {
        let scale = call(
            "PATCH",
            REPLICA_SET,
            &json!({"metadata": {"resourceVersion": "7"}, "spec": {"replicas": 2}}),
        );
        let delete = call("DELETE", REPLICA_SET, &json!({"preconditions": {"uid": "aaaa-bbbb"}}));
        let back = json!([{"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
                          {"op": "replace", "path": "/spec/replicas", "value": 4}]);
        let back = call("PATCH", REPLICA_SET, &back);
        let log = [scale, delete, back].map(|call| sent(&call, RequestFault::LoseRequest));
        assert_eq!(
            lines(&log),
            [
                "    1.000 d0.1      patches replicaset web-1: size 2, version 7 (never arrives)",
                "    1.000 d0.1      deletes replicaset web-1: if uid bbbb (never arrives)",
                "    1.000 d0.1      patches replicaset web-1: if /metadata/resourceVersion \"7\", size 4 (never arrives)",
            ]
        );
    }

    #[test]
    fn a_refused_write_shows_what_it_requested_and_the_code() {
        let create = call("POST", "/api/v1/namespaces/shop/pods", &json!({"metadata": {"name": "web-1-a"}}));
        let done = Event::Done { call: create.clone(), code: 409, before: None, after: None };
        let log = [sent(&create, RequestFault::Proceed), Entry { at: Duration::from_secs(1), event: done }];
        assert_eq!(lines(&log), ["    1.000 d0.1      creates pod web-1-a (refused with 409)"]);
    }

    #[test]
    fn repeated_lines_within_a_second_are_collapsed() {
        let (delete, create) =
            (call("DELETE", REPLICA_SET, &json!({})), call("POST", REPLICA_SET, &json!({})));
        let round = || [sent(&delete, RequestFault::LoseRequest), sent(&create, RequestFault::LoseRequest)];
        let lines = lines(&(0..10).flat_map(|_| round()).collect::<Vec<_>>());
        assert_eq!(lines.len(), 17, "{lines:?}");
        assert_eq!(lines[16].trim(), "4 similar lines, until 1.000");
    }

    #[test]
    fn it_ends_with_the_breach() {
        let note = |event| Entry { at: Duration::from_secs(1), event };
        let log = [note(Event::Breach("S1: too many".into())), note(Event::Note("the faults end".into()))];
        assert_eq!(lines(&log), ["    1.000 !! S1: too many"]);
    }

    #[test]
    fn a_long_transcript_shows_its_beginning_and_its_end() {
        let lines = shorten((0..1000).map(|n| n.to_string()).collect());
        assert_eq!((&*lines[0], &*lines[160]), ("0", "999"));
        assert_eq!(lines[100].trim(), "840 lines are omitted");
    }

    #[test]
    fn a_transcript_shows_a_change_of_leader() {
        let path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/windlass";
        let renew = |holder: &str| {
            let call = call("PUT", path, &json!({"spec": {"holderIdentity": holder}}));
            let event = Event::Done { call, code: 200, before: None, after: None };
            Entry { at: Duration::from_secs(1), event }
        };
        let lines = lines(&[renew("d0.1"), renew("d0.1"), renew("")]);
        assert_eq!(
            lines,
            ["    1.000 d0.1      acquires the Lease", "    1.000 d0.1      releases the Lease"]
        );
    }
}
