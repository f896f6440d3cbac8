//! One sentence for each reason, for logs and for people who ask.

use std::fmt::{self, Display, Formatter};

use super::{Limit, Names, PlanReason, Pods, Shortage};
use crate::plan::deployment::{Change, Write};

impl Display for PlanReason {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            PlanReason::RollingBack { answer } => {
                write!(f, "a rollback was asked for by annotation: {answer}")
            }
            PlanReason::CreateLimit { reason } => f.write_str(reason),
            PlanReason::Refused { defect } => write!(f, "nothing can be done: {defect}"),
            PlanReason::BeingDeleted => {
                f.write_str("the Deployment is being deleted: only its counts are reported")
            }
            PlanReason::ChangingHands { adopted, released } => {
                match (adopted.names.is_empty(), released.names.is_empty()) {
                    (false, true) => write!(f, "adopting {adopted} first")?,
                    (true, _) => write!(f, "releasing {released} first")?,
                    (false, false) => write!(f, "releasing {released} and adopting {adopted} first")?,
                }
                f.write_str(": anything else waits until the cache shows it")
            }
            PlanReason::Paused => {
                f.write_str("the Deployment is paused: it is scaled in proportion, and nothing is rolled out")
            }
            PlanReason::Scaling { from, to } => write!(
                f,
                "spec.replicas has changed from {from} to {to}: the sets are resized in proportion before the \
                 rollout goes on"
            ),
            PlanReason::NewReplicaSet { replica_set, replicas } => {
                write!(f, "no ReplicaSet has the current template: {replica_set} is created at {replicas}")
            }
            PlanReason::Resizing { replica_set, from, to } => {
                write!(f, "Recreate: no old pod runs, so {replica_set} goes from {from} to {to}")
            }
            PlanReason::Updating { replica_set } => {
                write!(
                    f,
                    "the annotations or minReadySeconds of ReplicaSet {replica_set} are brought up to date"
                )
            }
            PlanReason::Budget { numbers, up, down } => write!(
                f,
                "at most {} pods may exist and {} are wanted, at least {} must be available and {} are: budget \
                 allows {up} more up, {down} more down",
                numbers.max_total, numbers.desired, numbers.min_available, numbers.available
            ),
            PlanReason::OldPodsStay { staying, because: Limit::NewPodsUnavailable { unavailable_new } } => {
                let (old, new) = (pods(*staying, "old"), pods(*unavailable_new, "new"));
                write!(f, "{old} cannot go yet: what may be missing is used up by {new} not available")
            }
            PlanReason::OldPodsStay {
                staying,
                because: Limit::Availability { min_available, available },
            } => write!(
                f,
                "{} cannot go yet: at least {min_available} must be available, and {available} are",
                pods(*staying, "old")
            ),
            PlanReason::OldPodsGoFirst { pods: going } => {
                write!(f, "Recreate: {} must go before the first new one comes", pods(*going, "old"))
            }
            PlanReason::OldPodsEnding { running: 0, .. } => {
                f.write_str("Recreate: waiting for the old sets to report that their pods have ended")
            }
            PlanReason::OldPodsEnding { running, pods: named } => {
                write!(f, "Recreate: waiting for {} to end{named}", pods(*running, "old"))
            }
            PlanReason::Leaving { pods: leaving } => {
                write!(f, "waiting for {} to leave", pods(*leaving, "surplus"))
            }
            PlanReason::StatusBehind { replica_set, observed, generation } => write!(
                f,
                "ReplicaSet {replica_set} is at generation {generation} and its status at {observed}: none of its pods \
                 counts as available until the status has caught up"
            ),
            PlanReason::Unavailable(shortage) => shortage.fmt(f),
            PlanReason::ReplicaFailure { replica_set, reason, message } => {
                write!(f, "ReplicaSet {replica_set}: {reason}: {message}")
            }
            PlanReason::Complete { replicas } => {
                write!(f, "complete: {replicas} of {replicas} pods new and available, and no other left")
            }
            PlanReason::TrimmingHistory { replica_sets, limit } => {
                write!(f, "revisionHistoryLimit is {limit}: deleting {replica_sets}")
            }
            PlanReason::Deadline { seconds, at } => {
                write!(f, "without progress for {seconds} s the rollout counts as stuck: at {at}")
            }
            PlanReason::DeadlinePassed { seconds } => {
                write!(f, "stuck: no progress for {seconds} s; it goes on as soon as its pods let it")
            }
        }
    }
}

/// `1 old pod`, `2 new pods`.
fn pods(count: i64, which: &str) -> String {
    format!("{count} {which} pod{}", if count == 1 { "" } else { "s" })
}

impl Display for Shortage {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Shortage { is_new, replica_set: _, desired, unavailable, .. } = self;
        let Shortage { not_created, not_ready, not_for_long, min_ready_seconds, next_at, .. } = self;
        let age = if *is_new { "new" } else { "old" };
        // The usual case in the fewest words: "3 of 5 new pods not ready".
        if not_ready == unavailable {
            write!(f, "{not_ready} of {desired} {age} pods not ready{}", self.pods)?;
        } else {
            write!(f, "{unavailable} of {desired} {age} pods not available")?;
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
                write!(f, "{separator}{not_for_long} ready, but not for {min_ready_seconds} s")?;
                if let Some(at) = next_at {
                    write!(f, " (the next at {at})")?;
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

/// In brackets; nothing for no pods. A message stands once for all the pods that give the same reason: it
/// is long, and five pods of one version mostly have one trouble.
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

/// What is written, by name and size: `scale web-76f86dcf64 3 -> 2`.
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
            Write::RollBack(rollback) if rollback.back.is_some() => f.write_str("replace the template"),
            Write::RollBack(_) => f.write_str("clear the request for a rollback"),
        }
    }
}
