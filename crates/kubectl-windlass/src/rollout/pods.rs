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
    /// The same, whole and as it was sent.
    #[serde(rename = "reason")]
    pub whole_reason: String,
    /// The texts of its events, to judge whether it can recover.
    #[serde(skip)]
    pub said: String,
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
        let composed = |message: Option<&str>, clean: &dyn Fn(&str) -> String| {
            with_event(message.map(clean), events, clean, now)
        };
        let whole_message = message.map(|message| whole(object, message));
        let (reason, whole_reason) = (composed(message, &harmless), composed(whole_message, &str::to_owned));
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
        }
    }

    /// The state for a summary that counts pods.
    pub fn summary(&self) -> String {
        self.state.clone()
    }
}

/// A message, and the newest warning event beside it.
pub fn with_event(
    message: Option<String>,
    events: &[Value],
    clean: &dyn Fn(&str) -> String,
    now: Timestamp,
) -> String {
    let told = newest_warning(events).map(|event| told(event, clean, now));
    match (message, told) {
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

/// The text of an event, and how often and when it happened.
fn told(event: &Value, clean: &dyn Fn(&str) -> String, now: Timestamp) -> (String, String) {
    let reason = clean(event["reason"].as_str().unwrap_or_default());
    let message = clean(event["message"].as_str().unwrap_or_default());
    let text = if reason.is_empty() { message } else { format!("{reason}: {message}") };
    let count = event.pointer("/series/count").or(event.get("count")).and_then(Value::as_i64).unwrap_or(1);
    let last = happened(event).map(|at| format!("last {} ago", age(at, now)));
    let times = match (count > 1, last) {
        (true, Some(last)) => format!(" ({count} times, {last})"),
        (true, None) => format!(" ({count} times)"),
        (false, Some(last)) => format!(" ({})", last.trim_start_matches("last ")),
        (false, None) => String::new(),
    };
    (text, times)
}
