//! What a seed stands for: a value, so that a part of it can be left out and the rest run again.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::crash_points::CrashPoint;
use super::replay::{Word, bug, milliseconds, name, policy, resource, steps};

/// Names of the Deployments that users make.
pub const NAMES: [&str; 2] = ["web", "api"];

/// One misbehaviour of the network or the API server, towards the daemons only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// This part of the requests, in percent, never arrives.
    LostRequests(u8),
    /// This part is carried out, and the answer lost.
    LostReplies(u8),
    /// This part is carried out up to 40 s late.
    LateRequests(u8),
    /// This part is answered late.
    LateReplies(u8),
    /// This part is refused with a 500 or a 503.
    Refusals(u8),
    /// This part of the writes of pods and ReplicaSets is refused with a 500: an admission webhook cannot be called.
    Webhook(u8),
    /// This part is asked with a 429 to come again.
    Throttled(u8),
    /// This part is asked with a 503 to come again, and half of it carried out all the same.
    Unavailable(u8),
    /// This part of the writes is refused with a conflict that is none.
    Conflicts(u8),
    /// This part of the lists and watches comes to a member of the API server that lags behind the others.
    Behind(u8),
}

/// The clocks of a daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Skew {
    /// By how much the time of day is ahead of the cluster's in each other life of it, in milliseconds.
    pub ahead: i64,
    /// How fast its monotonic clock runs, in percent of the others'. Only the proportion between the clocks of
    /// two candidates counts for an election, so one that is slow stands for others that are fast.
    pub speed: u32,
}

/// Something that somebody does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[allow(missing_docs)] // The fields say it: whose, and what.
pub enum Act {
    /// A user creates a Deployment, unless there is one of this name.
    Create {
        #[serde(deserialize_with = "name")]
        name: Word,
        replicas: u32,
        surge: u32,
        unavailable: u32,
        recreate: bool,
    },
    /// A user changes the image.
    Image {
        #[serde(deserialize_with = "name")]
        name: Word,
        tag: u32,
    },
    /// A user changes it to one that never starts.
    BrokenImage {
        #[serde(deserialize_with = "name")]
        name: Word,
    },
    /// A user, or a horizontal scaler, resizes.
    Scale {
        #[serde(deserialize_with = "name")]
        name: Word,
        replicas: u32,
    },
    /// A user changes the strategy.
    Strategy {
        #[serde(deserialize_with = "name")]
        name: Word,
        surge: u32,
        unavailable: u32,
        recreate: bool,
    },
    /// A user changes the strategy to one in per cent.
    Percent {
        #[serde(deserialize_with = "name")]
        name: Word,
        surge: u32,
        unavailable: u32,
    },
    /// A user pauses or resumes.
    Pause {
        #[serde(deserialize_with = "name")]
        name: Word,
        paused: bool,
    },
    /// A user asks for the last revision, by the annotation.
    RollBack {
        #[serde(deserialize_with = "name")]
        name: Word,
    },
    /// A user puts a label on the template.
    Label {
        #[serde(deserialize_with = "name")]
        name: Word,
        value: u32,
    },
    /// A user changes minReadySeconds.
    MinReady {
        #[serde(deserialize_with = "name")]
        name: Word,
        seconds: u32,
    },
    /// A user deletes it.
    Delete {
        #[serde(deserialize_with = "name")]
        name: Word,
        #[serde(deserialize_with = "policy")]
        policy: Word,
    },
    /// A GitOps tool writes an annotation on the Deployment and its sets.
    Annotate {
        #[serde(deserialize_with = "name")]
        name: Word,
        value: u32,
    },
    /// The pod monkey deletes the n-th pod.
    DeletePod { nth: u32, at_once: bool },
    /// It makes a running pod unready, or ready again.
    Ready { nth: u32, ready: bool },
    /// It lets a pod fail.
    Fail { nth: u32 },
    /// It ends the first pods of a new image right after their set has told that they are available, and a user allows
    /// more to be unavailable before the set tells that they are gone.
    Strike {
        #[serde(deserialize_with = "name")]
        name: Word,
    },
    /// It deletes the n-th pod, and the creation of the next one arrives when its author has given it up, and the name
    /// of the one that was deleted is free.
    Straggle { nth: u32 },
    /// A user wants three more pods, and the creation of the last arrives when its author is dead and its successor has
    /// made what was missing.
    Bequeath {
        #[serde(deserialize_with = "name")]
        name: Word,
    },
    /// A user wants two more pods, and their set tells nothing while an answer is late. Meanwhile it gets a broken image,
    /// and another one when the old pods are ready.
    Linger {
        #[serde(deserialize_with = "name")]
        name: Word,
    },
    /// It takes a pod's label away from its selector.
    Relabel { nth: u32 },
    /// It puts a price on the deletion of a pod.
    Cost { nth: u32, cost: u32 },
    /// It takes a pod away from its owner.
    Orphan { nth: u32 },
    /// It deletes a pod and takes it away from its owner, before it has ended.
    Abandon { nth: u32 },
    /// It gives a pod to another owner.
    Seize { nth: u32 },
    /// A user deletes the n-th set without its pods, and no daemon sees that for a moment.
    Uproot { nth: u32 },
    /// A user deletes a Deployment and creates it anew, and no daemon sees for a moment what becomes of its sets.
    Replace {
        #[serde(deserialize_with = "name")]
        name: Word,
        #[serde(deserialize_with = "policy")]
        policy: Word,
    },
    /// A user creates a pod with the labels of the n-th set's.
    Loner { nth: u32 },
    /// A user takes the label of the n-th set away from its Deployment's selector.
    Disown { nth: u32 },
    /// Somebody wants to be asked before the n-th set goes.
    Guard { nth: u32 },
    /// Somebody wants to be asked before the n-th pod goes.
    Hold { nth: u32 },
    /// A user deletes the namespace, and makes it again in the end.
    EndNamespace,
    /// Somebody annotates a Deployment, or the n-th set or pod, with what no controller expects.
    Hostile {
        #[serde(deserialize_with = "name")]
        name: Word,
        nth: u32,
        value: u32,
    },
    /// A tenant makes pods or ReplicaSets that name the n-th ReplicaSet as their owner, or its Deployment, from another
    /// namespace or as another kind; or writes a wrong name into the n-th pod's reference.
    Forge { nth: u32, form: u32 },
    /// A user creates a ReplicaSet that nobody owns, or resizes it.
    Bare { replicas: u32 },
    /// A user gives the template a container that runs once, and a sidecar.
    Sidecar {
        #[serde(deserialize_with = "name")]
        name: Word,
    },
    /// A container of the n-th pod restarts so often: a regular one, a sidecar, or one that ran once.
    Restart { nth: u32, container: u32, restarts: u32 },
    /// A quota refuses new pods from now on, or does not any more.
    Quota { full: bool },
    /// An admission webhook cannot be called for a while: the daemons' writes of pods and ReplicaSets are refused.
    Webhook { seconds: u32 },
    /// All watches break.
    BreakWatches,
    /// The API server forgets its history.
    Compact,
    /// The watch of a resource shows nothing new to a daemon for a while.
    Lag {
        daemon: usize,
        #[serde(deserialize_with = "resource")]
        resource: Word,
        seconds: u32,
    },
    /// A daemon is killed right after that many more writes.
    Crash { daemon: usize, writes: u32 },
    /// A daemon is asked to stop.
    Stop { daemon: usize },
    /// A daemon can hardly renew its Lease for a while.
    SlowLease { daemon: usize, seconds: u32 },
    /// Whoever leads can hardly renew its Lease for a while, and the watch of who follows shows nothing new of a
    /// resource.
    Depose {
        #[serde(deserialize_with = "resource")]
        resource: Word,
    },
}

impl Default for Skew {
    /// Clocks that are right.
    fn default() -> Self {
        Skew { ahead: 0, speed: 100 }
    }
}

impl Skew {
    /// Whether it is that of clocks that are right.
    pub fn is_right(self) -> bool {
        self == Skew::default()
    }

    /// How long it is in truth what the monotonic clock takes for `time`. Timers have no more than milliseconds.
    pub fn takes_for(self, time: Duration) -> Duration {
        Duration::from_millis((time * 100 / self.speed.max(1)).as_millis().try_into().unwrap_or(u64::MAX))
    }
}

impl Act {
    /// Whether it is a wish that can be fulfilled, and leads to the same in the end however it is timed.
    pub fn is_wish(&self) -> bool {
        matches!(
            self,
            Act::Create { .. }
                | Act::Image { .. }
                | Act::Scale { .. }
                | Act::Strategy { .. }
                | Act::RollBack { .. }
                | Act::Label { .. }
                | Act::MinReady { .. }
        )
    }

    /// Whether it harms the daemons and nobody else.
    pub fn is_fault(&self) -> bool {
        matches!(
            self,
            Act::BreakWatches
                | Act::Compact
                | Act::Lag { .. }
                | Act::Crash { .. }
                | Act::Stop { .. }
                | Act::SlowLease { .. }
                | Act::Depose { .. }
                | Act::Webhook { .. }
        )
    }
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Seeds everything that is left to chance.
    pub seed: u64,
    /// How many daemons run.
    pub daemons: usize,
    /// Whether they agree who acts.
    pub election: bool,
    /// Whether the API server sends lists as streams.
    pub streaming_lists: bool,
    /// From a pod's binding to its readiness.
    #[serde(with = "milliseconds")]
    pub readiness: Duration,
    /// From a pod's deletion to its end.
    #[serde(with = "milliseconds")]
    pub shutdown: Duration,
    /// Whether users wait for rest before they want something else.
    #[serde(default, skip_serializing_if = "is_no")]
    pub calm: bool,
    /// How long the settled cluster is watched in the end.
    #[serde(with = "milliseconds", default = "a_while")]
    pub quiet: Duration,
    /// The planted bug, or "".
    #[serde(default, deserialize_with = "bug", skip_serializing_if = "str::is_empty")]
    pub bug: Word,
    /// The daemons' clocks, in their order; right ones where nothing is said.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clocks: Vec<Skew>,
    /// What the network does.
    pub faults: Vec<Fault>,
    /// What happens with certain writes of the daemons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub points: Vec<CrashPoint>,
    /// Who does what when, in order.
    #[serde(with = "steps")]
    pub acts: Vec<(Duration, Act)>,
    /// Whether users repair in the end what was broken: a Deployment that is paused is resumed, and one
    /// whose image never starts gets another.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub repair: bool,
}

impl Scenario {
    /// Whether it comes to rest. Two leaders who know nothing of each other and see different things undo each
    /// other's work as fast as they can: that is what the election is for, and only safety is owed.
    pub fn owes_rest(&self) -> bool {
        let hides = |act: &Act| matches!(act, Act::Lag { .. } | Act::BreakWatches | Act::Compact);
        let alike = self.faults.is_empty() && !self.acts.iter().any(|(_, act)| hides(act));
        self.election || self.daemons == 1 || alike
    }

    /// How long after the last act the faults go on: where somebody is deposed, until somebody else has led for a
    /// while.
    pub fn tail(&self) -> Duration {
        let deposes = |act: &Act| matches!(act, Act::Depose { .. });
        let is_deposed = self.election && self.acts.iter().any(|(_, act)| deposes(act));
        Duration::from_secs(if is_deposed { 45 } else { 5 })
    }
}

fn is_yes(answer: &bool) -> bool {
    *answer
}

fn is_no(answer: &bool) -> bool {
    !*answer
}

/// How long a settled cluster is watched, as a rule.
pub fn a_while() -> Duration {
    Duration::from_secs(180)
}

fn yes() -> bool {
    true
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Scenario { seed, daemons, election, streaming_lists, calm, quiet, .. } = self;
        let Scenario { readiness, shutdown, bug, clocks, faults, .. } = self;
        writeln!(f, "seed {seed}: daemons={daemons} election={election} streaming_lists={streaming_lists}")?;
        writeln!(f, "  calm={calm}, watched for {quiet:?} in the end")?;
        writeln!(f, "  pods: ready after {readiness:?}, ended after {shutdown:?}; faults: {faults:?}")?;
        if !clocks.is_empty() {
            writeln!(f, "  clocks: {clocks:?}")?;
        }
        if !bug.is_empty() {
            writeln!(f, "  planted: {bug}")?;
        }
        self.points.iter().try_for_each(|point| writeln!(f, "  {point:?}"))?;
        self.acts.iter().try_for_each(|(at, act)| writeln!(f, "  {:>8.3} {act:?}", at.as_secs_f64()))
    }
}
