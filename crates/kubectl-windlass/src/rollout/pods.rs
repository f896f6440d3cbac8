//! Pods that are not ready, with the reasons of the kubelet, the scheduler and their events.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use windlass::model::{Phase, Pod};

use crate::text::{age, harmless};

/// The pods whose events are read, and which are shown one by one.
pub const SHOWN: usize = 5;

/// A pod of the object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodView {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// The ReplicaSet or ReplicationController that owns it; of a StatefulSet, the pod's revision.
    pub owner: String,
    /// Whether it has the new template.
    pub is_new: bool,
    /// The node that it is bound to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The state in a word or two.
    pub state: String,
    /// Whether the state is a failure, not one that every pod passes through.
    pub is_failing: bool,
    /// Whether the pod is ready.
    pub is_ready: bool,
    /// Whether the pod is being deleted.
    pub is_deleting: bool,
    /// How often its containers were restarted.
    pub restarts: i32,
    /// When it was created.
    #[serde(serialize_with = "as_text")]
    pub created: Timestamp,
    /// Since when it is not ready, by its conditions.
    #[serde(serialize_with = "as_text")]
    pub since: Timestamp,
    /// The reason that the kubelet, the scheduler or an event gives, for one line of a terminal; empty if there is
    /// none.
    #[serde(skip)]
    pub reason: String,
    /// The same, whole and as it was sent, without the times of the event: it changes when the trouble does.
    #[serde(rename = "reason")]
    pub whole_reason: String,
    /// Its newest warning event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event: Option<EventView>,
    /// The texts of its events, to judge whether it can recover.
    #[serde(skip)]
    pub said: String,
}

/// A warning event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EventView {
    /// Its reason, such as `Failed`.
    pub reason: String,
    /// Its message, as it was sent.
    pub message: String,
    /// How often it happened.
    pub count: i64,
    /// When it happened last.
    #[serde(serialize_with = "as_optional_text", skip_serializing_if = "Option::is_none")]
    pub last: Option<Timestamp>,
}

impl EventView {
    /// An event of either API.
    pub fn of(event: &Value) -> Self {
        let text = |field: &str| event[field].as_str().unwrap_or_default().to_owned();
        let count = event.pointer("/series/count").or(event.get("count")).and_then(Value::as_i64);
        let (reason, message) = (text("reason"), text("message"));
        EventView { reason, message, count: count.unwrap_or(1), last: happened(event) }
    }

    /// The newest warning among events.
    pub fn newest(events: &[Value]) -> Option<Self> {
        newest_warning(events).map(EventView::of)
    }

    /// Its text, cleaned part by part.
    fn text(&self, clean: &dyn Fn(&str) -> String) -> String {
        let (reason, message) = (clean(&self.reason), clean(&self.message));
        if reason.is_empty() { message } else { format!("{reason}: {message}") }
    }

    /// How often and when it happened, in parentheses.
    fn times(&self, now: Timestamp) -> String {
        let last = self.last.map(|at| age(at, now));
        match (self.count > 1, last) {
            (true, Some(last)) => format!(" ({} times, last {last} ago)", self.count),
            (true, None) => format!(" ({} times)", self.count),
            (false, Some(last)) => format!(" ({last} ago)"),
            (false, None) => String::new(),
        }
    }
}

pub(super) fn as_optional_text<S: serde::Serializer>(
    at: &Option<Timestamp>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    at.map(|at| at.to_string()).serialize(serializer)
}

fn as_text<S: serde::Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(at)
}

impl PodView {
    /// A pod of this owner.
    pub fn new(
        pod: &Arc<Pod>,
        object: &Value,
        owner: &str,
        is_new: bool,
        events: &BTreeMap<String, Vec<Value>>,
        now: Timestamp,
    ) -> Self {
        let uid = pod.meta.uid.to_string();
        let events: &[Value] = events.get(&uid).map_or(&[], Vec::as_slice);
        let failure = pod.startup_failure();
        let (state, is_failing) = match (pod.phase, failure) {
            _ if pod.meta.is_deleting() => ("terminating".to_owned(), false),
            (_, Some(waiting)) => (harmless(&waiting.reason), true),
            (Phase::Failed, None) => ("Failed".to_owned(), true),
            (Phase::Succeeded, None) => ("Succeeded".to_owned(), true),
            (Phase::Unknown, None) => ("Unknown".to_owned(), true),
            _ if pod.ready_since.is_some() => ("ready".to_owned(), false),
            (Phase::Pending, None) if pod.node().is_none() => ("not scheduled".to_owned(), false),
            (Phase::Pending, None) => ("starting".to_owned(), false),
            (Phase::Running, None) => ("not ready".to_owned(), false),
        };
        let message = pod.waiting.as_ref().and_then(|waiting| waiting.message.as_deref());
        let event = EventView::newest(events);
        let whole_message = message.map(|message| whole(object, message).to_owned());
        let reason = with_event(message.map(harmless), event.as_ref(), &harmless, Some(now));
        let whole_reason = with_event(whole_message, event.as_ref(), &str::to_owned, None);
        let said: Vec<&str> = events.iter().filter_map(|event| event["message"].as_str()).collect();
        PodView {
            name: pod.meta.key.name.to_string(),
            uid,
            owner: owner.to_owned(),
            is_new,
            node: pod.node().map(|node| node.to_string()),
            state,
            is_failing,
            is_ready: pod.ready_since.is_some() && !pod.is_terminal(),
            is_deleting: pod.meta.is_deleting(),
            restarts: pod.restarts.regular.max(pod.restarts.sidecar),
            created: pod.meta.created,
            since: unready_since(object).unwrap_or(pod.meta.created),
            said: format!("{whole_reason} {}", said.join(" ")),
            reason,
            whole_reason,
            event,
        }
    }

    /// The state for a summary that counts pods.
    pub fn summary(&self) -> String {
        self.state.clone()
    }
}

/// A message, and an event beside it. With the time it also says how often and how long ago that happened.
pub fn with_event(
    message: Option<String>,
    event: Option<&EventView>,
    clean: &dyn Fn(&str) -> String,
    now: Option<Timestamp>,
) -> String {
    let times = |event: &EventView| now.map(|now| event.times(now)).unwrap_or_default();
    match (message, event.map(|event| (event.text(clean), times(event)))) {
        // Mostly they say the same, and the event knows how often.
        (Some(message), Some((text, times))) if text.contains(&message) || message.contains(&text) => {
            format!("{message}{times}")
        }
        (Some(message), Some((text, times))) => format!("{message}; {text}{times}"),
        (Some(message), None) => message,
        (None, Some((text, times))) => format!("{text}{times}"),
        (None, None) => String::new(),
    }
}

/// The message of a waiting container as the kubelet sent it: the daemon's record keeps its beginning, on one line.
fn whole<'a>(object: &'a Value, kept: &'a str) -> &'a str {
    let statuses = ["initContainerStatuses", "containerStatuses"].into_iter();
    let statuses = statuses.flat_map(|field| object["status"][field].as_array().into_iter().flatten());
    let mut messages = statuses.filter_map(|status| status["state"]["waiting"]["message"].as_str());
    let beginning: Vec<&str> = kept.trim_end_matches('…').split_whitespace().collect();
    let beginning = beginning.join(" ");
    let is_meant = |message: &&str| {
        let longest = beginning.len().saturating_mul(4);
        let start: String = message.chars().take(longest).collect();
        start.split_whitespace().collect::<Vec<_>>().join(" ").starts_with(&beginning)
    };
    messages.find(is_meant).unwrap_or(kept)
}

/// Since when the condition `Ready` is not true.
fn unready_since(object: &Value) -> Option<Timestamp> {
    let conditions = object["status"]["conditions"].as_array()?;
    let ready = conditions.iter().find(|condition| condition["type"] == "Ready")?;
    ready["lastTransitionTime"].as_str()?.parse().ok()
}

/// When an event happened last: each API and each client writes another field.
pub(super) fn happened(event: &Value) -> Option<Timestamp> {
    let fields = ["/series/lastObservedTime", "/lastTimestamp", "/eventTime", "/metadata/creationTimestamp"];
    fields.iter().find_map(|field| event.pointer(field)?.as_str()?.parse().ok())
}

/// The newest warning among events.
pub(super) fn newest_warning(events: &[Value]) -> Option<&Value> {
    events.iter().filter(|event| event["type"] == "Warning").max_by_key(|event| happened(event))
}
