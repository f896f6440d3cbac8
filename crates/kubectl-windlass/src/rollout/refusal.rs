//! Why the API server refuses the pods of an object that reports it in an event alone.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use windlass::model::Uid;

use super::last_writes::LastWrites;
use super::pods::{EventView, happened, newest_warning, with_event};
use crate::text::harmless;

/// A refusal counts as long as its event is not older: a controller tries again at least as often.
const REFUSED_WITHIN: SignedDuration = SignedDuration::from_mins(20);

/// Why the API server refuses what the plan of an object creates. The text is foreign, and already harmless.
pub(super) fn current(
    uid: &Uid,
    creates: bool,
    events: &BTreeMap<String, Vec<Value>>,
    last: &LastWrites,
    now: Timestamp,
) -> Option<String> {
    let events = events.get(&uid.to_string())?;
    let event = newest_warning(events).filter(|event| creates && event["reason"] == "FailedCreate")?;
    let at = happened(event)?;
    let is_current =
        now.duration_since(at) <= REFUSED_WITHIN && last.spec.is_none_or(|changed| changed <= at);
    is_current.then(|| with_event(None, Some(&EventView::of(event)), &harmless, Some(now)))
}
