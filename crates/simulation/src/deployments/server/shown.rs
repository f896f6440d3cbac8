//! The contents of a reply that a daemon gets.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::Response;
use serde_json::Value;

use crate::deployments::invariants::Invariants;
use crate::engine::call::Call;

/// The version that a write created, from its reply.
#[derive(Clone, Copy, Debug)]
pub(super) struct Version(pub u64);

/// The instant at which a list is complete.
#[derive(Clone, Copy, Debug)]
pub(super) struct Listed(pub Duration);

/// The pods that a list with a label selector has shown.
#[derive(Clone)]
pub(super) struct Selected(pub Vec<Arc<Value>>);

/// The object in a reply, as it was then.
#[derive(Clone, Debug)]
pub(super) struct Shown(pub Arc<Value>);

/// Passes to the invariants what a reply tells a daemon.
pub(super) fn show(invariants: &mut Invariants, now: Duration, call: &Call, reply: &Response<Body>) {
    if let Some(Version(version)) = reply.extensions().get() {
        invariants.write_succeeded(now, call, *version);
    }
    if let Some(Shown(object)) = reply.extensions().get() {
        invariants.object_read(now, call, object);
    }
    if let Some(Selected(pods)) = reply.extensions().get() {
        invariants.selected(call, pods);
    }
    if let Some(Listed(at)) = reply.extensions().get() {
        invariants.listed(*at, &call.agent, &call.resource);
    }
}
