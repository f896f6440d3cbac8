//! A rolling update that is requested: the next write, and what is reported. The daemon finds the request in the
//! annotations of OLD and stores the report as a condition. The client makes the request from its flags and prints the
//! report. So both say and refuse the same.
//!
//! No phase is stored. Whatever is killed after whichever write, the next look goes on from what is there.

mod under_way;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::bookkeeping::{DESIRED_REPLICAS, HANDING_OVER, ORIGINAL_REPLICAS, SOURCE, size, source_of};
use super::report::{Reason, Report, current};
use super::request::{ALL_OF_OLD, REQUEST, Request, STEP_AT};
use crate::model::{Condition, Pod, Record, ReplicaSet, ReplicationController, Selector};
use crate::plan::EventNote;
use under_way::{Job, RequestedWork};

/// The observed state of a ReplicationController that takes part in an update.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// The controller that is synced: OLD, or NEW after its update.
    pub own: &'a ReplicaSet,
    /// The controllers of the namespace.
    pub all: &'a [Arc<ReplicationController>],
    /// The controllers of other kinds in the namespace that may adopt the pods of a hand-over.
    pub adopters: &'a [Adopter<'a>],
    /// The pods that OLD and NEW own.
    pub pods: &'a [Arc<Pod>],
    /// Whether the controller of ReplicationControllers sees pods change hands in the order in which this planner does:
    /// it runs in the same process, or each hand-over leaves its caches the time to catch up.
    pub controls_pods: bool,
    /// The time of the decision.
    pub now: Timestamp,
}

/// A controller of another kind, which adopts pods by their labels.
#[derive(Clone, Copy, Debug)]
pub struct Adopter<'a> {
    /// Its kind.
    pub kind: &'a str,
    /// Its name.
    pub name: &'a str,
    /// The labels of the pods that it adopts.
    pub selector: &'a Selector,
}

impl<'a> Adopter<'a> {
    /// This one, with its selector.
    pub fn of<T: Record>(controller: &'a T, selector: &'a Selector) -> Self {
        Adopter { kind: T::RESOURCE.kind, name: &controller.meta().key.name, selector }
    }
}

/// One of the two controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The one that is synced.
    Own,
    /// The one that its request names.
    Target,
}

/// A write. Each carries UID and resourceVersion of what it was computed from.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// Report the condition on the controller that is synced.
    Report,
    /// Set annotations; those without a value are removed.
    Annotate(Side, Vec<(&'static str, Option<String>)>),
    /// Resize, and note the time.
    Resize(Side, i32),
    /// Hand-over, first write: NEW gets 0 replicas and this value of the label key, and its pods stay without a
    /// controller.
    StepAside {
        /// The label key.
        key: String,
        /// The label value of the pods.
        value: String,
    },
    /// Hand-over, second write: OLD gets selector and template of NEW with this label, and its size, in one.
    TakeOver {
        /// The label key.
        key: String,
        /// The label value of the pods.
        value: String,
        /// The size.
        replicas: i32,
    },
    /// Delete a controller that has 0 replicas and owns no pod.
    Delete(Side),
}

/// The next write, what is reported, and when to look again.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// At most one.
    pub write: Option<Write>,
    /// The condition of the controller that is synced; `None` leaves it as it is.
    pub report: Option<Report>,
    /// When time alone changes the decision.
    pub look_again: Option<Duration>,
    /// Whether there was no progress for as long as the request allows.
    pub is_late: bool,
}

impl Plan {
    const NOTHING: Plan = Plan { write: None, report: None, look_again: None, is_late: false };

    fn write(write: Write) -> Self {
        Plan { write: Some(write), ..Plan::NOTHING }
    }

    /// Reports, unless that is reported already; then, writes this.
    fn report_then(own: &ReplicaSet, report: Report, write: Option<Write>) -> Self {
        let is_on = report.is_on(own)
            || planted!("a rolling update reports nothing but its first condition") && current(own).is_some();
        let write = if is_on { write } else { Some(Write::Report) };
        Plan { write, report: Some(report), ..Plan::NOTHING }
    }

    fn refuse(own: &ReplicaSet, message: String) -> Self {
        Plan::report_then(own, Report::new(Reason::Refused, message), None)
    }
}

/// Whether the condition says that an update is under way, or that a request is refused.
fn has_open_condition(own: &ReplicaSet) -> bool {
    let is_refused = |condition: &Condition| *condition.reason == *Reason::Refused.name();
    current(own).is_some_and(|condition| condition.is_true() || is_refused(condition))
}

/// Whether there may be something to do for a controller: it has a request, its update was under way or refused, or it is
/// NEW of one that has begun.
pub fn concerns(own: &ReplicaSet) -> bool {
    let has = |annotation| own.annotations.get(annotation).is_some();
    !own.meta.is_deleting() && (has(REQUEST) || (has(SOURCE) && has(STEP_AT)) || has_open_condition(own))
}

/// The names of the controllers beside which a controller takes part in an update: the one that its request names, and
/// the one that it came from.
pub fn partners(own: &ReplicaSet) -> impl Iterator<Item = &str> {
    let source = own.annotations.get(SOURCE).and_then(|source| source.rsplit_once(':'));
    own.annotations.get(REQUEST).into_iter().chain(source.map(|(name, _)| name))
}

/// Decides.
///
/// | situation | next |
/// |---|---|
/// | NEW, and OLD is gone or done with | report on NEW, remove its bookkeeping |
/// | no request, and an update was under way or refused | report that it stopped: the same request may come again, and its answer must differ from the earlier one |
/// | anything in the way | report why; nothing else is written |
/// | the condition is not `True` yet | report first: the client waits for an answer |
/// | the original size is missing | write it, once |
/// | paused, and not handing over | nothing; the sizes stay |
/// | otherwise | the step of [`super::plan`], with the roles swapped in a rollback |
/// | nothing is left | report the end, then remove the request |
pub fn plan(observed: &Observed<'_>) -> Plan {
    let own = observed.own;
    if own.meta.is_deleting() {
        return Plan::NOTHING;
    }
    if own.annotations.get(STEP_AT).is_some()
        && let Some(plan) = finish(observed)
    {
        return plan;
    }
    let request = match Request::read(own) {
        Ok(Some(request)) => request,
        Ok(None) if has_open_condition(own) => {
            let message = format!(
                "The request was removed; {} has {} replicas. To go on, annotate it with {REQUEST} again",
                own.meta.key.name, own.replicas
            );
            return Plan::report_then(own, Report::new(Reason::Stopped, message), None);
        }
        Ok(None) => return Plan::NOTHING,
        Err(problem) => return Plan::refuse(own, problem),
    };
    carry_out(observed, &request)
}

/// Decides for OLD and this request.
pub fn carry_out(observed: &Observed<'_>, request: &Request) -> Plan {
    let own = observed.own;
    match Job::find(observed, request) {
        Ok(RequestedWork::Job(job)) => job.plan(),
        Ok(RequestedWork::End(reason)) => end(own, reason, request.target.as_str()),
        Err(problem) => Plan::refuse(own, problem),
    }
}

/// The end for OLD: the report, then everything of the update is removed from it.
fn end(own: &ReplicaSet, reason: Reason, target: &str) -> Plan {
    let (name, replicas) = (&own.meta.key.name, own.replicas);
    let message = match reason {
        Reason::RolledBack => format!("{name} has its {replicas} replicas again"),
        _ if replicas == 0 => format!("All pods are those of {target}; {name} stays with 0 replicas"),
        _ => format!("{name} has taken all {replicas} pods of {target} over"),
    };
    // Annotations of an earlier update, in which it was NEW, are obsolete with its own.
    let all = ALL_OF_OLD.iter().chain(&[SOURCE, DESIRED_REPLICAS]);
    let present = all.filter(|key| own.annotations.get(key).is_some());
    let removed = present.map(|key| (*key, None)).collect();
    Plan::report_then(own, Report::new(reason, message), Some(Write::Annotate(Side::Own, removed)))
}

/// Decides for NEW once the update deleted OLD, or is done with it; `None` while it is not, and once nothing is left to do.
pub fn finish(observed: &Observed<'_>) -> Option<Plan> {
    let Observed { own, all, .. } = observed;
    let source = own.annotations.get(SOURCE)?;
    let has = |key| own.annotations.get(key).is_some();
    if has(REQUEST) && has(ORIGINAL_REPLICAS) {
        // It is OLD of an update of its own, whose steps it notes.
        return None;
    }
    let old = all.iter().find(|old| source_of(&old.0.meta) == source).map(|old| &old.0);
    let removed = vec![(DESIRED_REPLICAS, None), (SOURCE, None), (STEP_AT, None)];
    let remove = Write::Annotate(Side::Own, removed);
    if let Some(old) = old {
        let is_done = [REQUEST, ORIGINAL_REPLICAS].iter().all(|key| old.annotations.get(key).is_none())
            && own.annotations.get(HANDING_OVER).is_none()
            && old.replicas == 0;
        return is_done.then(|| Plan::write(remove));
    }
    let (name, replicas) = (&own.meta.key.name, own.replicas);
    let old_name = source.rsplit_once(':').map_or(source, |(name, _)| name);
    if let Some(value) = own.annotations.get(HANDING_OVER) {
        return Some(Plan::refuse(
            own,
            format!(
                "{old_name} was deleted while it took the pods of {name} over: the pods with the label value {value} \
                 have no controller; create a ReplicationController that selects them"
            ),
        ));
    }
    Some(match size(own, DESIRED_REPLICAS) {
        Ok(desired) if desired.is_none_or(|desired| desired == replicas) => {
            let message = format!("All {replicas} pods are those of {name}; {old_name} is deleted");
            Plan::report_then(own, Report::new(Reason::Complete, message), Some(remove))
        }
        Ok(desired) => {
            let desired = desired.unwrap_or_default();
            let is_namesake = all.iter().any(|one| *one.0.meta.key.name == *old_name);
            let again = if is_namesake { " and created again" } else { "" };
            Plan::refuse(
                own,
                format!(
                    "{old_name} was deleted{again} in the middle of the update; {name} has {replicas} of {desired} \
                     replicas: scale it to {desired}"
                ),
            )
        }
        Err(problem) => Plan::refuse(own, problem),
    })
}

/// The event about a resize.
pub fn resized(controller: &ReplicaSet, to: i32) -> EventNote {
    let direction = if to > controller.replicas { "up" } else { "down" };
    let (name, from) = (&controller.meta.key.name, controller.replicas);
    let message = format!("Scaled {direction} replication controller {name} from {from} to {to}");
    EventNote::normal("ScalingReplicationController", message)
}

/// The event about a size that another client has changed since the controller was given this one. The next step is
/// computed from what is there.
pub fn changed_by_another(controller: &ReplicaSet, given: i32) -> Option<EventNote> {
    let (name, replicas) = (&controller.meta.key.name, controller.replicas);
    let message = || {
        format!(
            "Replication controller {name} was scaled from {given} to {replicas} by another client; the rolling update \
             goes on from there"
        )
    };
    (replicas != given).then(|| EventNote::warning("RollingUpdateSizeChanged", message()))
}

/// A time as annotations have it, to the second.
pub fn second(now: Timestamp) -> Timestamp {
    now.round(jiff::TimestampRound::new().smallest(jiff::Unit::Second).mode(jiff::RoundMode::Trunc))
        .unwrap_or(now)
}
