//! The invariant over events: SS29.

use http::{Method, StatusCode};

use super::super::identity::{NAME, ordinal};
use super::Judge;
use crate::engine::breach::Breach;
use crate::engine::call::Call;
use crate::engine::objects::text;

/// A refused request about a pod, or a claim of it: whether it creates, changes or deletes, and the ordinal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) enum Refused {
    /// The pod, or what has to be there before it.
    Creation(i64),
    /// Of the pod, or of the owners of its claims.
    Change(i64),
    /// Of the pod.
    Deletion(i64),
}

impl Judge {
    /// Remembers the refusals: a daemon may tell of them.
    pub(in super::super) fn was_answered(&mut self, call: &Call, code: StatusCode) {
        let is_about = matches!(&*call.resource, "pods" | "persistentvolumeclaims");
        if !call.of_daemon() || !is_about || code.is_success() {
            return;
        }
        // The name of a claim ends with that of its pod.
        let pod = call.name.find(&format!("{NAME}-")).map(|at| &call.name[at..]);
        let Some(ordinal) = pod.and_then(ordinal) else { return };
        self.refused.insert(match call.method {
            Method::PATCH => Refused::Change(ordinal),
            Method::DELETE => Refused::Deletion(ordinal),
            _ => Refused::Creation(ordinal),
        });
    }

    /// SS29: an event of a failure tells of a refusal, or of an object in the way.
    pub(in super::super) fn judge_event(&self, call: &Call) -> Result<(), Breach> {
        let (reason, message) = (text(&call.body, "/reason"), text(&call.body, "/message"));
        let failed =
            ["FailedCreate", "FailedUpdate", "FailedDelete"].into_iter().position(|one| one == reason);
        let pod = message.split(' ').find(|word| ordinal(word).is_some());
        let (Some(failed), Some(ordinal)) = (failed, pod.and_then(ordinal)) else { return Ok(()) };
        let refused = [Refused::Creation, Refused::Change, Refused::Deletion][failed](ordinal);
        let in_the_way =
            ["a pod of this name exists", "is being deleted", "that is gone", "has no volume of the claim"];
        let is_told =
            self.refused.contains(&refused) || in_the_way.iter().any(|state| message.contains(state));
        match !call.of_daemon() || is_told {
            true => Ok(()),
            false => Err(Breach::new("SS29", format!("an event of a refusal that never was: {message}"))),
        }
    }
}
