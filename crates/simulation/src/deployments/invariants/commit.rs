//! A write in the form that the invariants judge.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use crate::deployments::objects::controller;
use crate::engine::breach::Breach;
use crate::engine::call::Call;
use crate::engine::objects::{Picture, text};

/// A write that has been committed.
#[derive(Debug)]
pub struct Commit<'a> {
    /// When, since the beginning of the history.
    pub at: Duration,
    /// When, by the clock of the cluster.
    pub now: Timestamp,
    /// The request.
    pub call: &'a Call,
    /// The object before, if there was one.
    pub before: Option<&'a Value>,
    /// The object after, if there is one.
    pub after: Option<&'a Value>,
    /// All objects before the write.
    pub picture: &'a Picture,
}

impl Commit<'_> {
    pub(super) fn breach(&self, invariant: &'static str, what: impl fmt::Display) -> Result<(), Breach> {
        Err(Breach::new(invariant, format!("{what}: {}", self.call)))
    }

    /// The objects of a resource before the write.
    pub(super) fn all(&self, resource: &str) -> impl Iterator<Item = &Arc<Value>> {
        self.picture.get(resource).into_iter().flat_map(|all| all.values())
    }

    /// The objects that `owner` controls.
    pub(super) fn owned(&self, resource: &str, owner: &str) -> Vec<&Value> {
        self.all(resource).map(|object| &**object).filter(|object| controller(object) == owner).collect()
    }

    /// Whether a Deployment only reports that it may not adopt or release a ReplicaSet, or not roll back: until that
    /// is settled it publishes no new counts. kube-controller-manager writes no status at all then.
    pub(super) fn reports_a_refused_handover(&self) -> bool {
        let (Some(before), Some(after), "deployments") = (self.before, self.after, &*self.call.resource)
        else {
            return false;
        };
        let conditions = after["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
        let rolls_back = !text(before, "/metadata/annotations/deprecated.deployment.rollback.to").is_empty();
        let is_refused = |condition: &Value| match text(condition, "/reason") {
            "FailedAdopt" => true,
            "FailedUpdate" => rolls_back,
            _ => false,
        };
        if !conditions.iter().any(|of| of["type"] == "ReplicaFailure" && is_refused(of)) {
            return false;
        }
        let counts = |of: &Value| {
            let mut status = of["status"].as_object().cloned().unwrap_or_default();
            status.remove("conditions");
            status
        };
        counts(before) == counts(after)
    }

    pub(super) fn by_uid(&self, resource: &str, uid: &str) -> Option<&Value> {
        self.all(resource).map(|object| &**object).find(|object| text(object, "/metadata/uid") == uid)
    }
}
