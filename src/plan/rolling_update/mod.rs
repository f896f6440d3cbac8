//! The next step of a rolling update from one ReplicationController to another: the whole decision table is [`plan`].
//!
//! No phase is stored. Each step is computed from what is there, so that any client may stop at any write and any other
//! may go on. One step a look: a resize changes one controller, up if there is room, else down.

pub mod bookkeeping;
pub mod job;
pub mod patches;
pub mod report;
pub mod request;

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;

use super::deployment::rolling::Budget;
use crate::model::int_or_percent::{IntOrPercent, clamp};
use crate::model::{Pod, Record as _, ReplicaSet};
use bookkeeping::HANDING_OVER;

/// The numbers that bound a rolling update, resolved for one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The size at the end.
    pub desired: i32,
    /// How many pods may exist: the size and the surge.
    pub max_total: i64,
    /// How many pods must be available: the size minus those that may be unavailable.
    pub min_available: i64,
}

impl Bounds {
    /// Resolves percentages as for a Deployment: the surge is rounded up, the unavailable pods down, and where both are
    /// 0 one pod may be unavailable.
    pub fn resolve(desired: i32, max_surge: IntOrPercent, max_unavailable: IntOrPercent) -> Self {
        let desired = desired.max(0);
        let surge = i64::from(max_surge.round_up(desired));
        let unavailable = i64::from(max_unavailable.round_down(desired).min(desired));
        let unavailable = if surge == 0 && unavailable == 0 { 1 } else { unavailable };
        let size = i64::from(desired);
        Bounds { desired, max_total: size + surge, min_available: (size - unavailable).max(0) }
    }
}

/// The sizes of the two controllers, and how far the growing one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// `spec.replicas` of the controller that shrinks to 0. Its pods count whether they are ready or not, so that
    /// broken ones block nothing.
    pub shrinking: i32,
    /// `spec.replicas` of the controller that grows.
    pub growing: i32,
    /// How many pods of the growing one are available.
    pub available: i64,
}

/// A resize.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resize {
    /// The growing controller gets this size.
    Up(i32),
    /// The shrinking controller gets this size.
    Down(i32),
}

/// The resize that the bounds allow now: up if there is room, else down. `None` at the end, and while pods must become
/// available first.
pub fn resize(bounds: &Bounds, sizes: &Sizes) -> Option<Resize> {
    let Sizes { shrinking, growing, available } = *sizes;
    let desired = i64::from(bounds.desired);
    let (old, new) = (i64::from(shrinking.max(0)), i64::from(growing.max(0)));
    let available = available.clamp(0, new);
    let budget = Budget {
        max_total: bounds.max_total,
        min_available: bounds.min_available,
        desired: old + new,
        available: old + available,
        unavailable_new: new - available,
        ..Budget::default()
    };
    // Without pods of the shrinking one there is nothing to stay in step with.
    let room = if old == 0 { desired - new } else { budget.scale_up_allowed().min(desired - new) };
    // An update that someone has scaled beyond its size shrinks the growing one at the end.
    if room > 0 || (old == 0 && room < 0) {
        return Some(Resize::Up(clamp(new + room)));
    }
    let is_ready = new >= desired && available >= desired;
    let down = if is_ready { old } else { budget.scale_down_allowed().clamp(0, old) };
    (down > 0).then(|| Resize::Down(clamp(old - down)))
}

/// The treatment of the controller that has shrunk to 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cleanup {
    /// It is deleted.
    Delete,
    /// It takes the pods of the other one over, which is deleted: the survivor has its name, UID and history.
    KeepName,
    /// It stays, with 0 replicas.
    Preserve,
}

/// The observed state of a rolling update. In a rollback the roles are swapped.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// The controller that shrinks; `None` once it is deleted, or for a rollback that has nothing to delete.
    pub shrinking: Option<&'a ReplicaSet>,
    /// The controller that grows.
    pub growing: &'a ReplicaSet,
    /// The pods of the namespace that one of the two selects or owns.
    pub pods: &'a [Arc<Pod>],
    /// The bounds.
    pub bounds: Bounds,
    /// The last step.
    pub cleanup: Cleanup,
    /// The label key in which the selectors of the two differ.
    pub label_key: &'a str,
    /// The time of the decision.
    pub now: Timestamp,
}

/// The next step of a rolling update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Resize the growing controller.
    Grow {
        /// Its new size.
        to: i32,
    },
    /// Resize the shrinking controller.
    Shrink {
        /// Its new size.
        to: i32,
    },
    /// Wait.
    Wait(Wait),
    /// Hand-over, first write: the growing controller gets 0 replicas and another label value, so that its pods stay
    /// without a controller.
    StepAside {
        /// The label value of the pods.
        value: String,
    },
    /// Hand-over, second write: the shrinking controller gets selector, template and size of the other one, and adopts
    /// the pods.
    TakeOver {
        /// The label value of the pods.
        value: String,
    },
    /// Hand-over, third write: delete the growing controller, which owns nothing any more.
    DeleteGrowing,
    /// Delete the shrinking controller, which has 0 replicas and owns no pod.
    DeleteShrinking,
    /// Nothing is left but bookkeeping.
    Finished,
}

/// The reason why a rolling update waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wait {
    /// A controller has yet to create or delete pods after a resize.
    Count {
        /// Its name.
        controller: Arc<str>,
        /// Its size.
        wanted: i32,
        /// How many pods it reports.
        reported: i32,
        /// The API server's refusal to create or delete a pod.
        refusal: Option<String>,
    },
    /// New pods have yet to become available.
    Available {
        /// The name of the growing controller.
        controller: Arc<str>,
        /// Its size.
        wanted: i32,
        /// How many of its pods are available.
        available: i64,
    },
    /// Pods of the shrinking controller are still being deleted.
    Gone {
        /// Its name.
        controller: Arc<str>,
        /// How many.
        pods: usize,
    },
    /// Hand-over: pods have yet to be released.
    Release {
        /// The name of the controller that they still belong to.
        controller: Arc<str>,
        /// How many.
        pods: usize,
    },
    /// Hand-over: the controller has yet to adopt the pods.
    Adopt {
        /// Its name.
        controller: Arc<str>,
        /// How many it owns.
        pods: usize,
        /// How many it must own.
        wanted: i32,
    },
}

/// How many pods of a controller are available: ready for long enough, and not being deleted.
pub fn available(controller: &ReplicaSet, pods: &[Arc<Pod>], now: Timestamp) -> i64 {
    let counts = |pod: &&Arc<Pod>| {
        controller.controls(&pod.meta)
            && pod.is_active()
            && pod.is_available(controller.min_ready_seconds, now)
    };
    i64::try_from(pods.iter().filter(counts).count()).unwrap_or(i64::MAX)
}

/// How many pods of a controller have not ended, those that are being deleted included.
fn owned(controller: &ReplicaSet, pods: &[Arc<Pod>]) -> usize {
    pods.iter().filter(|pod| controller.controls(&pod.meta) && !pod.is_terminal()).count()
}

/// Decides.
///
/// | situation | step |
/// |---|---|
/// | the growing controller has stepped aside | the next step of the hand-over |
/// | a controller reports other pods than its size | wait for its controller manager |
/// | the bounds allow a resize | one resize: up if there is room, else down |
/// | sizes not reached, or not all pods available | wait for pods |
/// | sizes reached, all pods available, others gone | clean up |
pub fn plan(observed: &Observed<'_>) -> Step {
    let Observed { shrinking, growing, pods, bounds, .. } = observed;
    if let Some(value) = growing.annotations.get(HANDING_OVER) {
        return hand_over(observed, value);
    }
    let behind = |controller: &ReplicaSet, is_behind: fn(i32, i32) -> bool| {
        let status = &controller.status;
        let is_stale = status.observed_generation < controller.meta.generation;
        (is_stale || is_behind(status.replicas, controller.replicas)).then(|| {
            Step::Wait(Wait::Count {
                controller: controller.meta.key.name.clone(),
                wanted: controller.replicas,
                reported: status.replicas,
                refusal: refusal(controller),
            })
        })
    };
    // Each in the direction of its resize: pods that a quota withholds from the shrinking one block nothing.
    let waits = shrinking.and_then(|shrinking| behind(shrinking, |is, wanted| is > wanted));
    if let Some(wait) = waits.or_else(|| behind(growing, |is, wanted| is < wanted)) {
        return wait;
    }
    let size = shrinking.map_or(0, |shrinking| shrinking.replicas);
    let available = available(growing, pods, observed.now);
    let sizes = Sizes { shrinking: size, growing: growing.replicas, available };
    match resize(bounds, &sizes) {
        Some(Resize::Up(to)) => return Step::Grow { to },
        Some(Resize::Down(to)) => return Step::Shrink { to },
        None => {}
    }
    let controller = growing.meta.key.name.clone();
    if size > 0 || available < i64::from(bounds.desired) {
        return Step::Wait(Wait::Available { controller, wanted: growing.replicas, available });
    }
    let Some(shrinking) = shrinking else { return Step::Finished };
    let left = owned(shrinking, pods);
    if left > 0 && observed.cleanup != Cleanup::Preserve {
        return Step::Wait(Wait::Gone { controller: shrinking.meta.key.name.clone(), pods: left });
    }
    match observed.cleanup {
        Cleanup::Delete => Step::DeleteShrinking,
        Cleanup::Preserve => Step::Finished,
        Cleanup::KeepName => match value_of(growing, observed.label_key) {
            Some(value) => Step::StepAside { value },
            // Nothing distinguishes its pods, so that they cannot change hands.
            None => Step::Finished,
        },
    }
}

/// The value that a controller's selector wants of a label.
fn value_of(controller: &ReplicaSet, key: &str) -> Option<String> {
    controller.selector.match_labels().find(|(known, _)| *known == key).map(|(_, value)| value.to_string())
}

/// The API server's refusal of pods that a controller reports.
pub fn refusal(controller: &ReplicaSet) -> Option<String> {
    let failure = crate::model::condition::find(&controller.status.conditions, "ReplicaFailure");
    failure.filter(|failure| failure.is_true()).map(|failure| failure.message.to_string())
}

/// The growing controller wants no pods and selects none. What is owned by neither is adopted by the write of the
/// shrinking controller: at 0 replicas it would delete the pods that it adopts, and sized before it would create all of
/// them again.
fn hand_over(observed: &Observed<'_>, value: &str) -> Step {
    let Observed { shrinking, growing, pods, bounds, label_key, .. } = observed;
    let Some(survivor) = shrinking else { return Step::Finished };
    if value_of(survivor, label_key).as_deref() == Some(value) {
        let own = owned(survivor, pods);
        if i64::try_from(own).unwrap_or(i64::MAX) < i64::from(bounds.desired) {
            let controller = survivor.meta.key.name.clone();
            return Step::Wait(Wait::Adopt { controller, pods: own, wanted: bounds.desired });
        }
        return Step::DeleteGrowing;
    }
    let left = owned(growing, pods);
    let status = &growing.status;
    let is_owner = left > 0 || status.replicas > 0 || status.observed_generation < growing.meta.generation;
    if is_owner {
        return Step::Wait(Wait::Release { controller: growing.meta.key.name.clone(), pods: left });
    }
    Step::TakeOver { value: value.to_owned() }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wait::Count { controller, wanted, reported, refusal } => {
                write!(f, "{controller} reports {reported} pods and wants {wanted}")?;
                refusal.as_ref().map_or(Ok(()), |refusal| write!(f, ": {refusal}"))
            }
            Wait::Available { controller, wanted, available } => {
                write!(f, "{available} of {wanted} pods of {controller} are available")
            }
            Wait::Gone { controller, pods } => write!(f, "{pods} pods of {controller} are being deleted"),
            Wait::Release { controller, pods } => write!(f, "{controller} still owns {pods} pods"),
            Wait::Adopt { controller, pods, wanted } => {
                write!(f, "{controller} has adopted {pods} of {wanted} pods")
            }
        }
    }
}
