//! What a ReplicaSet reports, and when it must be looked at again (upstream: `replica_set_utils.go`).

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::{Observed, Write, active};
use crate::model::{Condition, Pod, ReplicaSetStatus, condition};

/// The one condition type of a ReplicaSet.
pub const REPLICA_FAILURE: &str = "ReplicaFailure";

/// What became of the writes that concern the status: which kind failed, and the API server's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// `FailedCreate` or `FailedDelete`.
    pub reason: &'static str,
    /// The error's text.
    pub message: String,
}

impl Failure {
    /// A failure of `write`; `None` for those that upstream does not report in the status.
    pub fn of(write: &Write, message: String) -> Option<Self> {
        let reason = match write {
            Write::Create(_) => "FailedCreate",
            Write::Delete(_) => "FailedDelete",
            Write::Adopt(_) | Write::Release(_) => return None,
        };
        Some(Failure { reason, message })
    }
}

/// What to report and when to look again.
#[derive(Clone, Debug, PartialEq)]
pub struct Settled {
    /// The whole status as it should be.
    pub status: ReplicaSetStatus,
    /// When the next pod will have been ready for `minReadySeconds`.
    pub look_again: Option<Duration>,
}

/// Computes the status from the pods that were observed and from what failed.
pub fn settle(observed: &Observed<'_>, failure: Option<&Failure>) -> Settled {
    let Observed { set, owned, now, .. } = observed;
    let members: Vec<&Arc<Pod>> = active(set, owned).collect();
    let count = |holds: &dyn Fn(&Pod) -> bool| size(members.iter().filter(|pod| holds(pod)).count());

    let mut conditions = set.status.conditions.clone();
    match failure {
        Some(Failure { reason, message }) => {
            let mut failed = Condition::new(REPLICA_FAILURE, "True", reason, message.as_str(), *now);
            failed.last_update = None;
            condition::set(&mut conditions, failed);
        }
        None => condition::remove(&mut conditions, REPLICA_FAILURE),
    }

    let status = ReplicaSetStatus {
        replicas: size(members.len()),
        fully_labeled: count(&|pod| {
            set.template.labels.iter().all(|(key, value)| pod.meta.labels.get(key) == Some(value))
        }),
        ready: count(&|pod| pod.ready_since.is_some()),
        available: count(&|pod| pod.is_available(set.min_ready_seconds, *now)),
        terminating: Some(size(owned.iter().filter(|pod| pod.is_terminating()).count())),
        observed_generation: set.meta.generation.max(set.status.observed_generation),
        conditions,
    };
    let look_again = members
        .iter()
        .filter(|pod| !pod.is_available(set.min_ready_seconds, *now))
        .filter_map(|pod| pod.available_at(set.min_ready_seconds))
        .min()
        .map(|at| until(at, *now));
    Settled { status, look_again }
}

fn size(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// From now to then; nothing when then has passed.
pub(crate) fn until(then: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(then.duration_since(now)).unwrap_or(Duration::ZERO)
}
