//! One sentence for each reason, for logs and for `/debug/deployments`.

use std::fmt::{self, Display, Formatter};

use super::{Limit, Names, PlanReason, Pods, Shortage};
use crate::plan::deployment::{Change, Write};
use crate::plan::policy::unreadable;

impl Display for PlanReason {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            PlanReason::RollingBack { answer } => {
                write!(f, "A rollback is under way: {answer}")
            }
            PlanReason::CreateLimit { reason } => f.write_str(reason),
            PlanReason::Refused { defect } => write!(f, "Windlass does not act on the Deployment: {defect}"),
            PlanReason::BeingDeleted => {
                f.write_str("The Deployment is being deleted: Windlass only updates its status")
            }
            PlanReason::ChangingHands { adopted, released } => {
                match (adopted.names.is_empty(), released.names.is_empty()) {
                    (false, true) => write!(f, "Windlass adopts {adopted} first")?,
                    (true, _) => write!(f, "Windlass releases {released} first")?,
                    (false, false) => write!(f, "Windlass releases {released} and adopts {adopted} first")?,
                }
                f.write_str(": all other writes wait until the cache shows the new owner references")
            }
            PlanReason::InvalidPolicy { defect } => f.write_str(&unreadable(defect)),
            PlanReason::HeldAtStep { step } => step.fmt(f),
            PlanReason::HeldByDelay { until } => {
                write!(f, "The next batch of new pods follows at {until}: windlass.dev/batch-delay")
            }
            PlanReason::Failed { message }
            | PlanReason::Halted { message, .. }
            | PlanReason::SurgeUnschedulable { message } => f.write_str(message),
            PlanReason::TerminatesFirst { at } => write!(
                f,
                "If the new pod fits no node until {at}, an old pod is deleted first: windlass.dev/when-unschedulable"
            ),
            PlanReason::GivesBack { at } => write!(
                f,
                "An old pod has made room: if the new pod fits no node until {at} all the same, the old one comes back"
            ),
            PlanReason::FailsLater { at, serves, rolls_back } => {
                write!(f, "Unless its pods recover, the rollout counts as failed at {at}")?;
                match (serves, rolls_back) {
                    (Some(name), true) => write!(f, ": the Deployment then goes back to {name}"),
                    (Some(name), false) => write!(f, ": then it halts, and {name} serves"),
                    (None, _) => Ok(()),
                }
            }
            PlanReason::Paused => f.write_str(
                "The Deployment is paused: Windlass scales it proportionally, and rolls nothing out",
            ),
            PlanReason::Scaling { from, to } => write!(
                f,
                "spec.replicas changed from {from} to {to}: Windlass scales the ReplicaSets proportionally before \
                 the rollout continues"
            ),
            PlanReason::NewReplicaSet { replica_set, replicas } => {
                let s = if *replicas == 1 { "" } else { "s" };
                write!(
                    f,
                    "No ReplicaSet has the current template: Windlass creates {replica_set} with {replicas} \
                     replica{s}"
                )
            }
            PlanReason::Resizing { replica_set, from, to } => {
                write!(f, "Recreate: no old pod runs, so Windlass scales {replica_set} from {from} to {to}")
            }
            PlanReason::Updating { replica_set } => {
                write!(f, "Windlass updates the annotations or minReadySeconds of ReplicaSet {replica_set}")
            }
            PlanReason::Budget { numbers, up, down } => write!(
                f,
                "At most {} pods may exist and {} are desired, at least {} must be available and {} are: the \
                 budget allows scaling up by {up} and down by {down}",
                numbers.max_total, numbers.desired, numbers.min_available, numbers.available
            ),
            PlanReason::OldPodsStay { staying, because: Limit::NewPodsUnavailable { unavailable_new } } => {
                let (old, new) = (pods(*staying, "old"), pods(*unavailable_new, "unavailable new"));
                write!(f, "{old} must stay: maxUnavailable is used up by {new}")
            }
            PlanReason::OldPodsStay {
                staying,
                because: Limit::Availability { min_available, available },
            } => write!(
                f,
                "{} must stay: at least {min_available} must be available, and {available} {}",
                pods(*staying, "old"),
                are(*available)
            ),
            PlanReason::OldPodsStay { staying, because: Limit::Policy { old_least } } => {
                write!(f, "{} must stay: the rollout policy keeps {old_least}", pods(*staying, "old"))
            }
            PlanReason::OldPodsGoFirst { pods: old } => {
                write!(f, "Recreate: {} must end before a new pod is created", pods(*old, "old"))
            }
            PlanReason::OldPodsEnding { running: 0, .. } => f.write_str(
                "Recreate: the rollout waits until the old ReplicaSets report that their pods have ended",
            ),
            PlanReason::OldPodsEnding { running, pods: named } => {
                write!(
                    f,
                    "Recreate: the rollout waits until {} {}{named}",
                    pods(*running, "old"),
                    end(*running)
                )
            }
            PlanReason::Leaving { pods: surplus } => {
                write!(f, "{} {} not deleted yet", pods(*surplus, "surplus"), are(*surplus))
            }
            PlanReason::StatusBehind { replica_set, observed, generation } => write!(
                f,
                "ReplicaSet {replica_set} has generation {generation}, and its status reports generation {observed}: \
                 its pods count as unavailable until the status catches up"
            ),
            PlanReason::Unavailable(shortage) => shortage.fmt(f),
            PlanReason::ReplicaFailure { replica_set, reason, message } => {
                write!(f, "ReplicaSet {replica_set} reports {reason}: {message}")
            }
            PlanReason::Complete { replicas } => {
                let are = are((*replicas).into());
                write!(
                    f,
                    "Complete: {replicas} of {replicas} pods {are} new and available, and no other pod exists"
                )
            }
            PlanReason::TrimmingHistory { replica_sets, limit } => {
                write!(f, "revisionHistoryLimit is {limit}: Windlass deletes {replica_sets}")
            }
            PlanReason::Deadline { seconds, at } => {
                write!(f, "Without progress, the deadline of {seconds} s passes at {at}")
            }
            PlanReason::DeadlinePassed { seconds } => write!(
                f,
                "The rollout has made no progress for {seconds} s; it continues as soon as its pods become available"
            ),
        }
    }
}

/// `1 old pod`, `2 new pods`.
fn pods(count: i64, which: &str) -> String {
    format!("{count} {which} pod{}", if count == 1 { "" } else { "s" })
}

fn are(count: i64) -> &'static str {
    if count == 1 { "is" } else { "are" }
}

fn end(count: i64) -> &'static str {
    if count == 1 { "ends" } else { "end" }
}

impl Display for Shortage {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Shortage { is_new, replica_set: _, desired, unavailable, .. } = self;
        let Shortage { not_created, not_ready, not_for_long, min_ready_seconds, next_at, .. } = self;
        let age = if *is_new { "new" } else { "old" };
        let are = are(*unavailable);
        // The usual case in the fewest words: "3 of 5 new pods are not ready".
        if not_ready == unavailable {
            write!(f, "{not_ready} of {desired} {age} pods {are} not ready{}", self.pods)?;
        } else {
            write!(f, "{unavailable} of {desired} {age} pods {are} not available")?;
            let mut separator = ": ";
            if *not_created > 0 {
                write!(f, "{separator}{not_created} not created")?;
                separator = "; ";
            }
            if *not_ready > 0 {
                write!(f, "{separator}{not_ready} not ready{}", self.pods)?;
                separator = "; ";
            }
            if *not_for_long > 0 {
                write!(f, "{separator}{not_for_long} ready for less than {min_ready_seconds} s")?;
                if let Some(at) = next_at {
                    write!(f, " (the next becomes available at {at})")?;
                }
            }
        }
        let failed = self.failed.named.len() + self.failed.more;
        if failed > 0 {
            write!(f, "; {failed} failed{}", self.failed)?;
        }
        Ok(())
    }
}

impl Display for Names {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (at, name) in self.names.iter().enumerate() {
            write!(f, "{}{name}", if at == 0 { "" } else { ", " })?;
        }
        if self.more > 0 { write!(f, " and {} more", self.more) } else { Ok(()) }
    }
}

/// In brackets; empty without pods. A message appears once for all the pods with the same reason: it is
/// long, and five pods of one version mostly fail alike.
impl Display for Pods {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.named.is_empty() {
            return Ok(());
        }
        for (at, pod) in self.named.iter().enumerate() {
            write!(f, "{}{}: {}", if at == 0 { " (" } else { ", " }, pod.name, pod.reason)?;
            let is_first = !self.named[..at].iter().any(|other| other.reason == pod.reason);
            if let Some(message) = pod.message.as_ref().filter(|_| is_first) {
                write!(f, " ({message})")?;
            }
        }
        if self.more > 0 { write!(f, " and {} more)", self.more) } else { f.write_str(")") }
    }
}

/// The write, by name and size: `scale web-76f86dcf64 3 -> 2`.
impl Display for Write {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Write::Adopt(replica_set) => write!(f, "adopt {}", replica_set.meta.key.name),
            Write::Release(replica_set) => write!(f, "release {}", replica_set.meta.key.name),
            Write::Create(new) => write!(f, "create {} at {}", new.name, new.replicas),
            Write::Change(replica_set, Change { replicas: Some(to), .. }) => {
                write!(f, "scale {} {} -> {to}", replica_set.meta.key.name, replica_set.replicas)
            }
            Write::Change(replica_set, _) => write!(f, "update {}", replica_set.meta.key.name),
            Write::Delete(replica_set) => write!(f, "delete {}", replica_set.meta.key.name),
            Write::RollBack(rollback) if rollback.back.is_some() => f.write_str("roll the template back"),
            Write::RollBack(_) => f.write_str("remove the rollback annotation"),
        }
    }
}
