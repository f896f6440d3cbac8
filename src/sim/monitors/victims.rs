//! S13: the pods that go are those that are missed least.

use std::collections::{BTreeMap, BTreeSet};

use http::Method;
use serde_json::Value;

use super::window::Window;
use super::{Breach, Commit, controller, is_available, is_live, text};
use crate::sim::call::Call;
use crate::sim::server::Picture;

/// The first criteria of the order; those behind them are a matter of taste to everybody but upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Worth {
    assigned: bool,
    phase: u8,
    ready: bool,
    cost: i64,
}

/// What pods have been worth lately, and which were to be deleted.
#[derive(Debug, Default)]
pub(super) struct Victims {
    /// Of the live ones, and whose they were.
    worth: BTreeMap<String, Window<Option<(String, Worth)>>>,
    sentenced: BTreeSet<String>,
}

impl Victims {
    pub(super) fn remember(&mut self, commit: &Commit<'_>) {
        let Some(pod) = commit.after.or(commit.before) else { return };
        let is_there = commit.after.is_some() && is_live(pod);
        let now = is_there.then(|| (controller(pod).to_owned(), Worth::of(pod, commit)));
        self.worth.entry(text(pod, "/metadata/uid").to_owned()).or_default().set(commit.at, now);
    }

    /// A daemon asks for a deletion: no other pod of the set, that it must have seen and has not asked to
    /// delete already, was worth less all the time.
    pub(super) fn condemned(&mut self, call: &Call, picture: &Picture) -> Result<(), Breach> {
        if call.method != Method::DELETE || call.resource != "pods" {
            return Ok(());
        }
        let uid = text(&call.body, "/preconditions/uid");
        if !self.sentenced.insert(uid.to_owned()) {
            return Ok(());
        }
        let since = call.known;
        let Some(lately) = self.worth.get(uid).map(|worth| worth.since(since)) else { return Ok(()) };
        let least = lately.flatten().min_by_key(|(_, worth)| *worth).map(|(_, worth)| worth);
        let pod = picture.get("pods").and_then(|pods| pods.get(&call.name));
        let (Some(least), Some(set)) = (least, pod.map(|pod| controller(pod))) else { return Ok(()) };
        if set.is_empty() {
            return Ok(());
        }
        for other in picture.get("pods").into_iter().flat_map(|pods| pods.values()) {
            let other_uid = text(other, "/metadata/uid");
            let Some(worth) = self.worth.get(other_uid).filter(|worth| worth.began_before(since)) else {
                continue;
            };
            let is_worse = worth
                .since(since)
                .all(|worth| worth.as_ref().is_some_and(|(owner, worth)| owner == set && worth < least));
            if is_worse && !self.sentenced.contains(other_uid) {
                let name = text(other, "/metadata/name");
                return Err(Breach::new("S13", format!("{name} is worth less than {least:?}: {call}")));
            }
        }
        Ok(())
    }
}

impl Worth {
    fn of(pod: &Value, commit: &Commit<'_>) -> Self {
        let cost = text(pod, "/metadata/annotations/controller.kubernetes.io~1pod-deletion-cost");
        Worth {
            assigned: !text(pod, "/spec/nodeName").is_empty(),
            phase: match text(pod, "/status/phase") {
                "Running" => 2,
                "Unknown" => 1,
                _ => 0,
            },
            ready: is_available(pod, 0, commit.now),
            cost: cost.parse().unwrap_or(0),
        }
    }
}
