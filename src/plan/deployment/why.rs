//! Why a plan does what it does, and what it waits for: as data, each with a sentence for people.
//!
//! The one guarantee: nothing is decided here, and nothing that was decided is guessed at again. The
//! explanation reads the same observation and the same numbers ([`Budget`]) as the plan, and the plan's
//! writes themselves. The price is a second look at the sets, which are few.

mod bounds;
mod sentence;

use std::sync::Arc;

pub use bounds::shorten;

use jiff::Timestamp;
use serde::{Serialize, Serializer};

use super::observed::{available, lacks_pods};
use super::progress::{PROGRESSING, TIMED_OUT, deadline};
use super::recreate::old_pods_may_run;
use super::rolling::Budget;
use super::status::{REPLICA_FAILURE, counts, is_complete};
use super::{Course, Observed, Plan, Sets, Write, scale};
use crate::model::{
    ContainerText, Deployment, DeploymentStatus, Phase, Pod, ReplicaSet, Strategy, condition,
};

/// One reason for a plan. [`Display`](std::fmt::Display) makes a sentence of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Why {
    /// The Deployment cannot be acted on.
    Refused {
        /// What is wrong with it, in the words of the event.
        defect: String,
    },
    /// The Deployment is on its way out.
    BeingDeleted,
    /// Sets change hands before anything else.
    ChangingHands {
        /// Sets to adopt.
        adopted: Names,
        /// Sets to release.
        released: Names,
    },
    /// The annotation for a rollback is answered before any set is touched.
    RollingBack {
        /// What is done about it, in the words of the event.
        answer: String,
    },
    /// No set is created at present, because each comes back with another template.
    Blocked {
        /// What is wrong, and when the next is tried.
        reason: String,
    },
    /// `spec.paused`.
    Paused,
    /// `spec.replicas` has changed while several sets may want pods.
    Scaling {
        /// What the sets were sized for.
        from: i64,
        /// What is wanted now.
        to: i64,
    },
    /// No set has the template, and one is created.
    NewSet {
        /// Its name.
        set: Arc<str>,
        /// Its first size.
        replicas: i32,
    },
    /// Recreate gives the set for the current template its size: nothing keeps it back.
    Resizing {
        /// Its name.
        set: Arc<str>,
        /// Its size.
        from: i32,
        /// The new one.
        to: i32,
    },
    /// A set gets annotations or `minReadySeconds`, and keeps its size.
    Updating {
        /// Its name.
        set: Arc<str>,
    },
    /// The bounds of a rolling update that is under way.
    Budget {
        /// The numbers that the plan was computed from.
        #[serde(flatten)]
        numbers: Budget,
        /// How many pods more may be wanted, after the old ones that go now.
        up: i64,
        /// How many old pods go now.
        down: i64,
    },
    /// Old pods that may not go yet.
    OldPodsStay {
        /// How many stay.
        staying: i64,
        /// What keeps them.
        because: Limit,
    },
    /// Recreate tells all old pods to go first.
    OldPodsGoFirst {
        /// How many are told to go.
        pods: i64,
    },
    /// Recreate waits until no old pod runs.
    OldPodsEnding {
        /// How many still run; 0 when only their sets have not reported yet.
        running: i64,
        /// Which.
        pods: Pods,
    },
    /// Pods that are surplus and have not left their sets.
    Leaving {
        /// How many.
        pods: i64,
    },
    /// A set's status speaks of an earlier generation, so that nobody knows how many pods it has.
    StatusBehind {
        /// The set.
        set: Arc<str>,
        /// The generation that the status speaks of.
        observed: i64,
        /// The generation of the set.
        generation: i64,
    },
    /// A set has fewer available pods than it wants.
    Unavailable(Shortage),
    /// A set cannot create or delete its pods: a quota, a webhook.
    ReplicaFailure {
        /// The set.
        set: Arc<str>,
        /// `FailedCreate` or `FailedDelete`.
        reason: Arc<str>,
        /// What the API server said.
        message: Arc<str>,
    },
    /// All pods are new and available, and no other is left.
    Complete {
        /// How many pods.
        replicas: i32,
    },
    /// Old sets that the history has no room for are deleted.
    TrimmingHistory {
        /// Which.
        sets: Names,
        /// `spec.revisionHistoryLimit`.
        limit: i32,
    },
    /// When the rollout will have made no progress for too long.
    Deadline {
        /// `spec.progressDeadlineSeconds`.
        seconds: i32,
        /// When it is due.
        #[serde(serialize_with = "as_text")]
        at: Timestamp,
    },
    /// The rollout has made no progress for too long.
    DeadlinePassed {
        /// `spec.progressDeadlineSeconds`.
        seconds: i32,
    },
}

/// What keeps old pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "limit", rename_all = "camelCase")]
pub enum Limit {
    /// New pods that are not available use up what may be missing.
    NewPodsMissing {
        /// How many.
        missing: i64,
    },
    /// No more may be missing.
    Availability {
        /// How many pods must be available.
        least: i64,
        /// How many are.
        available: i64,
    },
}

/// What a set lacks.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Shortage {
    /// Whether it is the set for the current template.
    pub is_new: bool,
    /// The set.
    pub set: Arc<str>,
    /// How many pods it wants.
    pub wanted: i64,
    /// How many of them are not available, or not certain to stay.
    pub unavailable: i64,
    /// How many of them are not created.
    pub not_created: i64,
    /// How many of them are not ready.
    pub not_ready: i64,
    /// How many of them are ready, but not for `min_ready_seconds`.
    pub not_for_long: i64,
    /// `spec.minReadySeconds` of the set.
    pub min_ready_seconds: i32,
    /// When the next of those will have been ready for long enough.
    #[serde(serialize_with = "as_text_if_any", skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Timestamp>,
    /// Pods that are not ready, as far as the cache has them.
    #[serde(skip_serializing_if = "Pods::is_empty")]
    pub pods: Pods,
    /// Pods that have failed. They count for nothing, but may tell why others do not come up.
    #[serde(skip_serializing_if = "Pods::is_empty")]
    pub failed: Pods,
}

/// So many names stand in an explanation at most.
const NAMED: usize = 5;

/// Some names, and how many more there are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Names {
    /// The first five.
    pub names: Vec<Arc<str>>,
    /// How many more there are.
    pub more: usize,
}

impl<'a> FromIterator<&'a Arc<ReplicaSet>> for Names {
    fn from_iter<I: IntoIterator<Item = &'a Arc<ReplicaSet>>>(sets: I) -> Self {
        let mut sets = sets.into_iter();
        let names = sets.by_ref().take(NAMED).map(|set| set.meta.key.name.clone()).collect();
        Names { names, more: sets.count() }
    }
}

/// Some pods with their reasons, and how many more there are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Pods {
    /// The first five; those whose trouble has a name come first.
    pub named: Vec<NamedPod>,
    /// How many more there are.
    pub more: usize,
}

/// A pod that is waited for.
///
/// Two are equal if name and reason are. Messages count (`back-off 20s`, `0/12 nodes`), and an explanation
/// must not be another one for that; see how the daemon keeps them.
#[derive(Clone, Debug, Eq, Serialize)]
pub struct NamedPod {
    /// Its name.
    pub name: Arc<str>,
    /// What the kubelet or the scheduler says of it, such as `ImagePullBackOff`; where they say
    /// nothing, the state it is in.
    pub reason: Arc<str>,
    /// What they say beside it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<Arc<str>>,
    /// What its container said when it ended, which is not for everybody.
    #[serde(skip)]
    pub termination_message: Option<ContainerText>,
}

impl PartialEq for NamedPod {
    fn eq(&self, other: &Self) -> bool {
        let NamedPod { name, reason, message: _, termination_message: _ } = self;
        *name == other.name && *reason == other.reason
    }
}

impl Pods {
    /// Whether there is no pod.
    pub fn is_empty(&self) -> bool {
        self.named.is_empty()
    }

    fn of<'p>(pods: impl Iterator<Item = &'p Arc<Pod>>) -> Self {
        let mut all: Vec<&Arc<Pod>> = pods.collect();
        all.sort_by_key(|pod| (pod.trouble().is_none(), &pod.meta.key));
        let more = all.len().saturating_sub(NAMED);
        all.truncate(NAMED);
        let named = all.into_iter().map(|pod| NamedPod {
            name: pod.meta.key.name.clone(),
            reason: reason(pod),
            message: pod.waiting.as_ref().and_then(|waiting| waiting.message.clone()),
            termination_message: pod.waiting.as_ref().and_then(|waiting| waiting.termination_message.clone()),
        });
        Pods { named: named.collect(), more }
    }
}

fn reason(pod: &Pod) -> Arc<str> {
    if let Some(waiting) = &pod.waiting {
        return waiting.reason.clone();
    }
    let state = match pod.phase {
        Phase::Succeeded => "Succeeded",
        Phase::Failed => "Failed",
        _ if pod.meta.is_deleting() => "Terminating",
        Phase::Unknown => "Unknown",
        Phase::Pending if pod.node().is_none() => "not scheduled",
        Phase::Pending => "Pending",
        Phase::Running if pod.ready_since.is_some() => "ready",
        Phase::Running => "running, not ready",
    };
    state.into()
}

/// Why the plan is what it is. Never empty.
pub(super) fn explain(observed: &Observed<'_>, plan: &Plan) -> Vec<Why> {
    match plan.course {
        Course::Refused => {
            plan.notes.iter().map(|note| Why::Refused { defect: note.message.clone() }).collect()
        }
        Course::CountsOnly => vec![Why::BeingDeleted],
        Course::Handover => match &plan.writes[..] {
            [Write::RollBack(rollback)] => {
                vec![Why::RollingBack { answer: rollback.note.message.clone() }]
            }
            writes => vec![Why::ChangingHands {
                adopted: writes.iter().filter_map(adopted).collect(),
                released: writes.iter().filter_map(released).collect(),
            }],
        },
        Course::Held => held(observed, observed.sets(), plan),
        Course::Rollout => rollout(observed, observed.sets(), plan),
    }
}

fn adopted(write: &Write) -> Option<&Arc<ReplicaSet>> {
    if let Write::Adopt(set) = write { Some(set) } else { None }
}

fn released(write: &Write) -> Option<&Arc<ReplicaSet>> {
    if let Write::Release(set) = write { Some(set) } else { None }
}

fn deleted(write: &Write) -> Option<&Arc<ReplicaSet>> {
    if let Write::Delete(set) = write { Some(set) } else { None }
}

/// What is to be said of the progress deadline once the status is known. Only a rollout is judged by it.
pub fn progress(deployment: &Deployment, plan: &Plan, status: &DeploymentStatus) -> Option<Why> {
    let seconds = deployment.progress_deadline_seconds.filter(|_| plan.course == Course::Rollout)?;
    if condition::find(&status.conditions, PROGRESSING).is_some_and(|c| &*c.reason == TIMED_OUT) {
        return Some(Why::DeadlinePassed { seconds });
    }
    deadline(deployment, status).map(|at| Why::Deadline { seconds, at })
}

fn held(observed: &Observed<'_>, sets: &Sets, plan: &Plan) -> Vec<Why> {
    let deployment = observed.deployment;
    let mut why = Vec::new();
    if deployment.paused {
        why.push(Why::Paused);
    }
    if let Some(from) = scale::scaled_from(deployment, sets) {
        why.push(Why::Scaling { from, to: deployment.replicas.into() });
    }
    why.extend(trimming(deployment, plan));
    if sets.new.as_ref().is_some_and(|new| new.replicas < deployment.replicas) {
        why.extend(old_pods_ending(observed, sets));
    }
    why.extend(waits(observed, sets));
    why
}

fn rollout(observed: &Observed<'_>, sets: &Sets, plan: &Plan) -> Vec<Why> {
    let deployment = observed.deployment;
    let mut why = Vec::new();
    why.extend(plan.blocked.as_ref().map(|blocked| Why::Blocked { reason: blocked.message.clone() }));
    if is_complete(deployment, &counts(deployment, sets)) {
        why.push(Why::Complete { replicas: deployment.replicas });
        why.extend(trimming(deployment, plan));
    }
    for write in &plan.writes {
        match write {
            Write::Create(new) => {
                why.push(Why::NewSet { set: new.name.as_str().into(), replicas: new.replicas });
            }
            Write::Change(set, change) if change.replicas.is_none() => {
                why.push(Why::Updating { set: set.meta.key.name.clone() });
            }
            _ => {}
        }
    }
    match deployment.strategy {
        Strategy::RollingUpdate { .. } => why.extend(rolling(deployment, sets, plan)),
        Strategy::Recreate => match going(sets, plan) {
            0 => why.extend(old_pods_ending(observed, sets).or(resizing(sets, plan))),
            pods => why.push(Why::OldPodsGoFirst { pods }),
        },
    }
    why.extend(waits(observed, sets));
    why
}

fn is_new(sets: &Sets, set: &ReplicaSet) -> bool {
    sets.new.as_ref().is_some_and(|new| new.meta.uid == set.meta.uid)
}

/// How many pods the plan takes from the old sets.
fn going(sets: &Sets, plan: &Plan) -> i64 {
    let shrinks = |write: &Write| match write {
        Write::Change(set, change) if !is_new(sets, set) => {
            Some(i64::from(set.replicas) - i64::from(change.replicas?))
        }
        _ => None,
    };
    plan.writes.iter().filter_map(shrinks).sum()
}

/// The new set's first or next size under Recreate, once nothing keeps it back.
fn resizing(sets: &Sets, plan: &Plan) -> Option<Why> {
    plan.writes.iter().find_map(|write| match write {
        Write::Change(set, change) if is_new(sets, set) => {
            let (set_name, from) = (set.meta.key.name.clone(), set.replicas);
            Some(Why::Resizing { set: set_name, from, to: change.replicas? })
        }
        _ => None,
    })
}

fn rolling(deployment: &Deployment, sets: &Sets, plan: &Plan) -> Vec<Why> {
    let old: i64 = sets.old.iter().map(|set| i64::from(set.replicas)).sum();
    let size = sets.new.as_ref().map_or(0, |new| new.replicas);
    if old == 0 && size == deployment.replicas {
        return Vec::new();
    }
    let numbers = Budget::of(deployment, sets);
    let down = going(sets, plan);
    let mut why = vec![Why::Budget { numbers, up: (numbers.room() + down).max(0), down }];
    let staying = old - down;
    if staying > 0 {
        let because = if numbers.may_go() <= 0 && numbers.missing > 0 {
            Limit::NewPodsMissing { missing: numbers.missing }
        } else {
            Limit::Availability { least: numbers.least, available: numbers.available }
        };
        why.push(Why::OldPodsStay { staying, because });
    }
    why
}

fn old_pods_ending(observed: &Observed<'_>, sets: &Sets) -> Option<Why> {
    let Observed { deployment, running_pods, awaited_pods, .. } = observed;
    if deployment.strategy != Strategy::Recreate || !old_pods_may_run(sets, running_pods) {
        return None;
    }
    let running: usize = sets.old.iter().filter_map(|set| running_pods.get(&set.meta.uid)).sum();
    let running = i64::try_from(running).unwrap_or(i64::MAX);
    let pods = sets.old.iter().filter_map(|set| awaited_pods.get(&set.meta.uid)).flatten();
    Some(Why::OldPodsEnding { running, pods: Pods::of(pods.filter(|pod| !pod.is_terminal())) })
}

fn trimming(deployment: &Deployment, plan: &Plan) -> Option<Why> {
    let sets: Names = plan.writes.iter().filter_map(deleted).collect();
    let limit = deployment.revision_history_limit?;
    (!sets.names.is_empty()).then_some(Why::TrimmingHistory { sets, limit })
}

/// What the sets have still to do or to say, whatever the strategy: the new one's first.
fn waits(observed: &Observed<'_>, sets: &Sets) -> Vec<Why> {
    let mut why = Vec::new();
    for set in sets.new.iter().chain(&sets.old) {
        let (observed_generation, generation) = (set.status.observed_generation, set.meta.generation);
        if observed_generation != generation {
            let set = set.meta.key.name.clone();
            why.push(Why::StatusBehind { set, observed: observed_generation, generation });
        } else if lacks_pods(set) {
            why.push(Why::Unavailable(shortage(observed, set, is_new(sets, set))));
        }
        let failure = condition::find(&set.status.conditions, REPLICA_FAILURE).filter(|c| c.is_true());
        why.extend(failure.map(|failure| Why::ReplicaFailure {
            set: set.meta.key.name.clone(),
            reason: failure.reason.clone(),
            message: failure.message.clone(),
        }));
    }
    let surplus = |set: &Arc<ReplicaSet>| i64::from(set.status.replicas) - i64::from(set.replicas);
    let pods: i64 = sets.all().map(surplus).filter(|&surplus| surplus > 0).sum();
    if pods > 0 {
        why.push(Why::Leaving { pods });
    }
    why
}

/// What a set lacks. The numbers are those of its status, as in the plan; the pods' own state may be a
/// moment ahead of them.
fn shortage(observed: &Observed<'_>, set: &ReplicaSet, is_new: bool) -> Shortage {
    let (wanted, status) = (i64::from(set.replicas), &set.status);
    let [created, ready, available_now] = [status.replicas, status.ready, status.available].map(i64::from);
    let ready = ready.max(available_now);
    let pods = || observed.awaited_pods.get(&set.meta.uid).into_iter().flatten();
    let until_available = |pod: &Arc<Pod>| {
        pod.available_at(set.min_ready_seconds).filter(|&at| pod.is_active() && at > observed.now)
    };
    Shortage {
        is_new,
        set: set.meta.key.name.clone(),
        wanted,
        unavailable: wanted - i64::from(available(set)),
        not_created: (wanted - created).max(0),
        not_ready: (created.min(wanted) - ready).max(0),
        not_for_long: (ready - available_now).min(wanted).max(0),
        min_ready_seconds: set.min_ready_seconds,
        next_at: pods().filter_map(until_available).min(),
        pods: Pods::of(pods().filter(|pod| pod.is_active() && pod.ready_since.is_none())),
        failed: Pods::of(pods().filter(|pod| pod.phase == Phase::Failed && !pod.meta.is_deleting())),
    }
}

fn as_text<S: Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(at)
}

fn as_text_if_any<S: Serializer>(at: &Option<Timestamp>, serializer: S) -> Result<S::Ok, S::Error> {
    match at {
        Some(at) => serializer.collect_str(at),
        None => serializer.serialize_none(),
    }
}
