//! `/debug/workloads`: which workloads have work left, and the first reason of each. What is at rest is counted only.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;

use crate::engine::Context;
use crate::engine::explanations::{Summary, as_text};
use crate::model::Record;

/// The most workloads that are listed. Of more than that a person reads no list.
const MOST: usize = 1000;

/// The index, by its names in the answer.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Index {
    /// Those with work left, the longest first.
    unfinished: Vec<Unfinished>,
    /// How many more there are than are listed.
    left_out: usize,
    /// How many are at rest, by kind.
    at_rest: BTreeMap<&'static str, usize>,
    /// How many have no explanation yet, or no longer, by kind.
    not_explained: BTreeMap<&'static str, usize>,
}

/// A workload with work left.
#[derive(Debug, Serialize)]
struct Unfinished {
    #[serde(serialize_with = "as_text")]
    since: Timestamp,
    kind: &'static str,
    namespace: String,
    name: String,
    /// The first reason.
    why: String,
    /// Where all reasons are.
    path: String,
}

impl Index {
    /// The index once all kinds are added.
    pub(super) fn finish(mut self) -> Self {
        self.unfinished.sort_by(|a, b| (a.since, &a.path).cmp(&(b.since, &b.path)));
        self.left_out = self.unfinished.len().saturating_sub(MOST);
        self.unfinished.truncate(MOST);
        self
    }

    /// Adds the workloads of a kind.
    pub(super) fn add<T: Record>(&mut self, context: &Context) {
        let (kind, plural) = (T::RESOURCE.kind, T::RESOURCE.plural);
        for object in context.store::<T>().all() {
            let key = &object.meta().key;
            match context.explanations().summary(&object.meta().uid) {
                None => *self.not_explained.entry(kind).or_default() += 1,
                Some(Summary::Settled) => *self.at_rest.entry(kind).or_default() += 1,
                Some(Summary::Unfinished { since, why }) => self.unfinished.push(Unfinished {
                    since,
                    kind,
                    namespace: key.namespace.to_string(),
                    name: key.name.to_string(),
                    why,
                    path: format!("/debug/{plural}/{}/{}", key.namespace, key.name),
                }),
            }
        }
    }
}
