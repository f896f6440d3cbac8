//! The reads of objects by the daemons: a deletion without a version rests on them.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::{Method, StatusCode};
use serde_json::Value;

use crate::engine::call::Call;
use crate::engine::objects::text;
use crate::garbage::truth;

/// The knowledge that one daemon has read of one object.
#[derive(Clone, Debug, Default)]
struct Read {
    /// The references of the last read, and of the one before.
    last: Option<Vec<Value>>,
    before: Option<Vec<Value>>,
    /// Whether a deletion of it has met another version.
    had_conflict: bool,
}

/// By daemon and UID.
#[derive(Clone, Debug, Default)]
pub(super) struct Reads(BTreeMap<(Arc<str>, String), Read>);

fn claims(references: &[Value]) -> Vec<[&str; 4]> {
    let claim = |reference| ["/apiVersion", "/kind", "/name", "/uid"].map(|field| text(reference, field));
    references.iter().map(claim).collect()
}

impl Reads {
    /// A request of a daemon was carried out. `object` is the one that it names, if there is one.
    pub(super) fn carried_out(&mut self, call: &Call, status: StatusCode, object: Option<&Value>) {
        if call.method == Method::DELETE && status == StatusCode::CONFLICT {
            let uid = text(&call.body, "/preconditions/uid").to_owned();
            self.0.entry((call.agent.clone(), uid)).or_default().had_conflict = true;
        }
        let Some(object) = object.filter(|_| call.method == Method::GET && status.is_success()) else {
            return;
        };
        let uid = text(object, "/metadata/uid").to_owned();
        let read = self.0.entry((call.agent.clone(), uid)).or_default();
        read.before = read.last.take();
        read.last = Some(truth::references(object).cloned().collect());
    }

    /// The references that a deletion without a version may rest on: its author has met a conflict, and has read the same
    /// references twice.
    pub(super) fn agreed(&self, call: &Call) -> Option<&[Value]> {
        let uid = text(&call.body, "/preconditions/uid").to_owned();
        let read = self.0.get(&(call.agent.clone(), uid)).filter(|read| read.had_conflict)?;
        let (last, before) = (read.last.as_deref()?, read.before.as_deref()?);
        (claims(last) == claims(before)).then_some(last)
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}
