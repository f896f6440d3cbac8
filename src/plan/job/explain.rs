//! The reasons for a plan, as sentences and as data.

use std::collections::BTreeSet;
use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;

use super::backoff::Backoff;
use super::counting::{Counting, Links};
use super::fate::Fate;
use super::manage::Managed;
use super::{Cause, Observed, Write};
use crate::model::{Job, Pod};
use crate::plan::shorten;
use crate::plan::statefulset::explain::Names;

/// The most pods that wait, that an explanation names.
const NAMED: usize = 5;

/// A reason for a plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum PlanReason {
    /// Another controller manages the Job.
    ManagedBy {
        /// `spec.managedBy`.
        controller: Arc<str>,
    },
    /// The Job cannot be acted on.
    Refused {
        /// Why.
        defect: String,
    },
    /// It is Complete or Failed.
    Finished {
        /// Whether it is Complete.
        is_success: bool,
        /// The reason of the condition.
        reason: String,
        /// When it is deleted, with `ttlSecondsAfterFinished`.
        #[serde(skip_serializing_if = "Option::is_none")]
        deleted_after_seconds: Option<i32>,
    },
    /// It is being deleted.
    BeingDeleted,
    /// A fresh read found it gone.
    Gone,
    /// Pods are adopted or released first.
    ChangingHands {
        /// How many.
        pods: usize,
    },
    /// Pods that cannot be decoded.
    Unreadable {
        /// How many.
        pods: usize,
    },
    /// It has succeeded or failed, and pods are left.
    Ending {
        /// Whether it has succeeded.
        is_success: bool,
        /// The reason.
        reason: String,
        /// The reason in words.
        message: String,
        /// Pods that are active and are deleted now.
        active: usize,
    },
    /// It is suspended.
    Suspended {
        /// Pods that have not ended.
        pods: usize,
    },
    /// Pods have ended and are not counted yet.
    Counting {
        /// How many.
        pods: usize,
    },
    /// Pods are created.
    Creating {
        /// Which.
        pods: Names,
    },
    /// Pods are deleted.
    Deleting {
        /// Why.
        why: Cause,
        /// Which.
        pods: Names,
    },
    /// Missing pods wait after failures.
    BackingOff {
        /// How many pods are missing.
        missing: usize,
        /// How many pods have failed since the last success; 0 with a backoff for each index.
        failures: i64,
        /// Until when the first of them waits.
        #[serde(serialize_with = "as_text")]
        until: Timestamp,
        /// The last failure, as the kubelet reports it.
        #[serde(skip_serializing_if = "Option::is_none")]
        last_failure: Option<String>,
    },
    /// Missing pods wait for one that is created to try.
    Trying {
        /// How many pods are missing.
        missing: usize,
        /// How many pods have failed before a container of them started.
        refused: usize,
        /// The last failure, as the kubelet reports it.
        #[serde(skip_serializing_if = "Option::is_none")]
        last_failure: Option<String>,
    },
    /// Pods are being deleted, and the Job waits for them.
    Terminating {
        /// Which, with their nodes.
        pods: Names,
    },
    /// Missing pods wait for earlier requests without an answer.
    Reserved {
        /// How many.
        pods: usize,
    },
    /// Pods that are not running.
    Waiting {
        /// The first five, with what the scheduler or the kubelet reports.
        pods: Vec<String>,
        /// How many more there are.
        more: usize,
    },
    /// Pods run.
    Running {
        /// How many are active.
        active: usize,
        /// How many pods, or indexes, have succeeded.
        succeeded: i64,
        /// How many must; `None` for a work queue.
        #[serde(skip_serializing_if = "Option::is_none")]
        completions: Option<i32>,
    },
}

fn as_text<S: serde::Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(time)
}

/// The report of the kubelet or the scheduler about a pod.
fn reported(pod: &Pod) -> Option<String> {
    let waiting = pod.startup_failure()?;
    Some(match &waiting.message {
        Some(message) => format!("{}: {message}", waiting.reason),
        None => waiting.reason.to_string(),
    })
}

fn named<'p>(pods: impl Iterator<Item = &'p Arc<Pod>>) -> Names {
    pods.map(|pod| pod.meta.key.name.clone()).collect()
}

/// The reasons for the plan. Never empty.
pub(super) fn explain(
    observed: &Observed<'_>,
    counting: &Counting,
    links: &Links,
    fate: Option<&Fate>,
    managed: &Managed,
    backoff: &Backoff,
) -> Vec<PlanReason> {
    let Observed { job, pods, reserved, .. } = observed;
    let active = pods.active().count();
    let mut reasons = Vec::new();
    if let Some(Fate { is_success, reason, message, .. }) = fate {
        let (is_success, reason, message) = (*is_success, reason.clone(), message.clone());
        reasons.push(PlanReason::Ending { is_success, reason, message, active });
    } else if job.is_suspended {
        reasons.push(PlanReason::Suspended { pods: active + pods.terminating().count() });
    }
    let uncounted = links.untrack.len() + links.new_succeeded.len() + links.new_failed.len();
    if uncounted > 0 {
        reasons.push(PlanReason::Counting { pods: uncounted });
    }
    if !managed.create.is_empty() {
        let pods = managed.create.iter().map(|new| Arc::from(new.name.as_str())).collect();
        reasons.push(PlanReason::Creating { pods });
    }
    let causes: BTreeSet<Cause> = managed.delete.iter().map(|deletion| deletion.cause).collect();
    for why in causes {
        let of = managed.delete.iter().filter(|deletion| deletion.cause == why);
        reasons.push(PlanReason::Deleting { why, pods: named(of.map(|deletion| &deletion.pod)) });
    }
    let last_failure = || {
        let last = pods.failed().max_by_key(|owned| owned.finished);
        last.and_then(|owned| reported(&owned.pod))
    };
    if let Some((missing, until)) = managed.backing_off {
        let last_failure = last_failure();
        let failures = if job.backoff_limit_per_index.is_some() { 0 } else { backoff.failures };
        reasons.push(PlanReason::BackingOff { missing, failures, until, last_failure });
    }
    if let Some((missing, refused)) = managed.trying {
        let (refused, last_failure) = (refused.count, last_failure());
        reasons.push(PlanReason::Trying { missing, refused, last_failure });
    }
    if pods.terminating().next().is_some() && (fate.is_some() || managed.behind_terminating > 0) {
        let with_node = |pod: &Pod| match pod.node() {
            Some(node) => format!("{} on node {node}", pod.meta.key.name).into(),
            None => pod.meta.key.name.clone(),
        };
        let pods = pods.terminating().map(|owned| with_node(&owned.pod)).collect();
        reasons.push(PlanReason::Terminating { pods });
    }
    if *reserved > 0 && fate.is_none() {
        reasons.push(PlanReason::Reserved { pods: *reserved });
    }
    let mut waiting = pods
        .active()
        .filter_map(|owned| Some(format!("{}: {}", owned.pod.meta.key.name, reported(&owned.pod)?)));
    let first: Vec<String> = waiting.by_ref().take(NAMED).collect();
    if !first.is_empty() {
        reasons.push(PlanReason::Waiting { pods: first, more: waiting.count() });
    }
    if fate.is_none() && !job.is_suspended {
        let (succeeded, completions) = (counting.succeeded, job.completions);
        reasons.push(PlanReason::Running { active, succeeded, completions });
    }
    reasons
}

/// The reason of a `Failed` condition as a constant, for its event.
pub(super) fn known_failure(reason: &str) -> &'static str {
    match known_reason(reason) {
        "" => "Failed",
        known => known,
    }
}

/// The reason of a condition as a constant; empty for one that upstream does not have.
pub(super) fn known_reason(reason: &str) -> &'static str {
    const KNOWN: [&str; 7] = [
        "CompletionsReached",
        "SuccessPolicy",
        "DeadlineExceeded",
        "PodFailurePolicy",
        "MaxFailedIndexesExceeded",
        "FailedIndexes",
        "BackoffLimitExceeded",
    ];
    KNOWN.into_iter().find(|known| *known == reason).unwrap_or_default()
}

impl PlanReason {
    pub(super) fn finished(job: &Job) -> Self {
        let ended = |kind: &&str| job.status.is_true(kind);
        let kind = ["Complete", "Failed"].into_iter().find(ended).unwrap_or("Complete");
        let condition = crate::model::condition::find(&job.status.conditions, kind);
        PlanReason::Finished {
            is_success: kind == "Complete",
            reason: condition.map(|condition| condition.reason.to_string()).unwrap_or_default(),
            deleted_after_seconds: job.ttl_seconds_after_finished,
        }
    }

    /// Cuts texts of unbounded length to this many bytes.
    pub fn shorten(&mut self, longest: usize) {
        match self {
            PlanReason::Refused { defect: text } => shorten(text, longest),
            PlanReason::Ending { reason, message, .. } => {
                shorten(reason, longest);
                shorten(message, longest);
            }
            PlanReason::Finished { reason, .. } => shorten(reason, longest),
            PlanReason::BackingOff { last_failure: Some(text), .. }
            | PlanReason::Trying { last_failure: Some(text), .. } => shorten(text, longest),
            PlanReason::Waiting { pods, more: _ } => pods.iter_mut().for_each(|pod| shorten(pod, longest)),
            _ => {}
        }
    }

    /// The bytes on the heap. Names that it shares with a cache count in full.
    pub fn heap(&self) -> usize {
        match self {
            PlanReason::ManagedBy { controller } => controller.len(),
            PlanReason::Refused { defect: text } | PlanReason::Finished { reason: text, .. } => {
                text.capacity()
            }
            PlanReason::Ending { reason, message, .. } => reason.capacity() + message.capacity(),
            PlanReason::Creating { pods }
            | PlanReason::Deleting { pods, why: _ }
            | PlanReason::Terminating { pods } => pods.heap(),
            PlanReason::BackingOff { last_failure, .. } | PlanReason::Trying { last_failure, .. } => {
                last_failure.as_ref().map_or(0, String::capacity)
            }
            PlanReason::Waiting { pods, more: _ } => {
                pods.iter().map(|pod| size_of::<String>() + pod.capacity()).sum()
            }
            _ => 0,
        }
    }

    /// Whether this reason leaves nothing to do.
    pub fn is_at_rest(&self) -> bool {
        matches!(
            self,
            PlanReason::ManagedBy { .. } | PlanReason::Finished { .. } | PlanReason::Suspended { pods: 0 }
        )
    }
}

impl Display for Cause {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Cause::Surplus => "more pods are active than the Job needs",
            Cause::Stray => "no index of the Job needs them",
            Cause::Suspended => "the Job is suspended",
            Cause::Fate => "the Job has ended",
        })
    }
}

fn counted(count: usize, kind: &str) -> String {
    format!("{count} {kind}pod{}", if count == 1 { "" } else { "s" })
}

impl Display for PlanReason {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            PlanReason::ManagedBy { controller } => {
                write!(f, "spec.managedBy is {controller}: Windlass leaves the Job and its pods to that controller")
            }
            PlanReason::Refused { defect } => write!(f, "Windlass does not act on the Job: {defect}"),
            PlanReason::Finished { is_success, reason, deleted_after_seconds } => {
                write!(f, "The Job is {} ({reason})", if *is_success { "Complete" } else { "Failed" })?;
                match deleted_after_seconds {
                    Some(seconds) => write!(f, "; ttlSecondsAfterFinished is {seconds}"),
                    None => Ok(()),
                }
            }
            PlanReason::BeingDeleted => {
                f.write_str("The Job is being deleted: Windlass takes its finalizer off the pods and counts none")
            }
            PlanReason::Gone => f.write_str(
                "The API server reports that the Job is gone or being deleted: Windlass adopts and creates nothing",
            ),
            PlanReason::ChangingHands { pods } => write!(
                f,
                "Windlass adopts or releases {} first: all other writes wait until the cache shows the new owner \
                 references",
                counted(*pods, "")
            ),
            PlanReason::Unreadable { pods } => write!(
                f,
                "{} cannot be decoded: Windlass counts, creates and deletes no pod until they can be decoded or are \
                 deleted; the log names them",
                counted(*pods, "")
            ),
            PlanReason::Ending { is_success, reason, message, active } => {
                let fate = if *is_success { "succeeded" } else { "failed" };
                write!(f, "The Job has {fate} ({reason}: {message})")?;
                match active {
                    0 => f.write_str(", and is finished once its pods are counted and gone"),
                    _ => write!(f, ": Windlass deletes {}", counted(*active, "active ")),
                }
            }
            PlanReason::Suspended { pods: 0 } => f.write_str("The Job is suspended"),
            PlanReason::Suspended { pods } => {
                write!(f, "The Job is suspended: {} must go", counted(*pods, ""))
            }
            PlanReason::Counting { pods } => write!(f, "{} ended and not counted yet", counted(*pods, "")),
            PlanReason::Creating { pods } => write!(f, "Windlass creates {pods}"),
            PlanReason::Deleting { why, pods } => write!(f, "Windlass deletes {pods}: {why}"),
            PlanReason::BackingOff { missing, failures, until, last_failure } => {
                match failures {
                    0 => write!(f, "{} of failed indexes wait", counted(*missing, "missing "))?,
                    1 => write!(f, "A pod has failed: {} wait", counted(*missing, "missing "))?,
                    _ => write!(f, "{failures} pods have failed: {} wait", counted(*missing, "missing "))?,
                }
                write!(f, " until {until}")?;
                match last_failure {
                    Some(text) => write!(f, "; the last failure: {text}"),
                    None => Ok(()),
                }
            }
            PlanReason::Trying { missing, refused, last_failure } => {
                write!(
                    f,
                    "The last {refused} pods failed before a container started: they are replaced one at a time, and {} \
                     wait until a container of the next one starts or it has lived for a minute",
                    counted(*missing, "missing ")
                )?;
                match last_failure {
                    Some(text) => write!(f, "; the last failure: {text}"),
                    None => Ok(()),
                }
            }
            PlanReason::Terminating { pods } => write!(
                f,
                "Pods are being deleted, and the Job waits until they are gone: {pods} (a pod on a lost node ends when \
                 the node returns, is deleted, or has the taint node.kubernetes.io/out-of-service)"
            ),
            PlanReason::Reserved { pods } => write!(
                f,
                "{} may still be created by requests without an answer: their places stay free for at most 2 minutes",
                counted(*pods, "")
            ),
            PlanReason::Waiting { pods, more } => {
                write!(f, "Pods are not running: {}", pods.join("; "))?;
                if *more > 0 { write!(f, "; {more} more") } else { Ok(()) }
            }
            PlanReason::Running { active, succeeded, completions } => {
                write!(f, "{}, {succeeded} ", counted(*active, "active "))?;
                match completions {
                    Some(completions) => write!(f, "of {completions} completions succeeded"),
                    None => f.write_str("succeeded; the pods decide when the work is done"),
                }
            }
        }
    }
}

impl Display for Write {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Write::Adopt(pod) => write!(f, "adopt pod {}", pod.meta.key.name),
            Write::Release(pod) => write!(f, "release pod {}", pod.meta.key.name),
            Write::Untrack(pods) => write!(f, "take the finalizer off {}", named(pods.iter())),
            Write::Track(pods) => write!(f, "give the finalizer back to {}", named(pods.iter())),
            Write::Delete(deletions) => {
                write!(f, "delete pods {}", named(deletions.iter().map(|deletion| &deletion.pod)))
            }
            Write::Create(pods) => {
                let names: Names = pods.iter().map(|new| Arc::from(new.name.as_str())).collect();
                write!(f, "create pods {names}")
            }
        }
    }
}
