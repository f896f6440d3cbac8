//! The scenario that a seed stands for: a value, so that parts can be left out and the rest run again.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::bounds::{name, policy, resource};
use super::crash_points::CrashPoint;
use crate::engine::game;
use crate::engine::replay::{StaticName, bug, milliseconds, steps};

/// Names of the Deployments that users create.
pub const NAMES: [&str; 2] = ["web", "api"];

/// In some seeds [`NAMES`]`[0]` is called so. The names of its pods keep two letters of the hash of their ReplicaSet.
pub const LONG_NAME: &str = "a-helm-release-with-a-long-name-and-the-chart-component";

/// The start of the names of a ReplicaSet's pods: as in the API server, a name that is generated has no more than 63
/// characters, of which five are random.
pub fn beginning_of_pods(replica_set: &str) -> String {
    let mut beginning = format!("{replica_set}-");
    beginning.truncate(63 - 5);
    beginning
}

/// The beginning of a pod's name without its five random characters.
pub fn beginning_of(pod: &str) -> &str {
    pod.len().checked_sub(5).and_then(|cut| pod.get(..cut)).unwrap_or_default()
}

/// A fault of the network or the API server that affects the daemons only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// This percentage of the requests never arrives.
    LostRequests(u8),
    /// This percentage is carried out, and the reply is lost.
    LostReplies(u8),
    /// This percentage is carried out up to 40 s late.
    LateRequests(u8),
    /// This percentage gets a late reply.
    LateReplies(u8),
    /// This percentage is refused with a 500 or a 503.
    Refusals(u8),
    /// This percentage of the writes of pods and ReplicaSets is refused with a 500: an admission webhook cannot be
    /// called.
    Webhook(u8),
    /// This percentage gets a 429 with `Retry-After`.
    Throttled(u8),
    /// This percentage gets a 503 with `Retry-After`; half of it is carried out all the same.
    Unavailable(u8),
    /// This percentage of the writes is refused with a conflict although there is none.
    Conflicts(u8),
    /// This percentage of the lists and watches reaches a member of the API server that lags behind the others.
    Behind(u8),
}

/// The clocks of a daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Skew {
    /// By how many milliseconds the time of day is ahead of the cluster's, in every other incarnation of the daemon.
    pub ahead: i64,
    /// How fast its monotonic clock runs, in percent of the others'. Only the ratio between the clocks of two
    /// candidates matters for an election, so one slow clock stands for others that are fast.
    pub speed: u32,
}

/// Something that an actor does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[allow(missing_docs)] // The fields say it: whose, and what.
pub enum Act {
    /// A user creates a Deployment, unless one of this name exists.
    Create {
        #[serde(deserialize_with = "name")]
        name: StaticName,
        replicas: u32,
        surge: u32,
        unavailable: u32,
        recreate: bool,
    },
    /// A user changes the image.
    Image {
        #[serde(deserialize_with = "name")]
        name: StaticName,
        tag: u32,
    },
    /// A user changes the image to one that never starts.
    BrokenImage {
        #[serde(deserialize_with = "name")]
        name: StaticName,
    },
    /// A user, or a HorizontalPodAutoscaler, resizes it.
    Scale {
        #[serde(deserialize_with = "name")]
        name: StaticName,
        replicas: u32,
    },
    /// A user changes the strategy.
    Strategy {
        #[serde(deserialize_with = "name")]
        name: StaticName,
        surge: u32,
        unavailable: u32,
        recreate: bool,
    },
    /// A user changes the strategy to one in percent.
    Percent {
        #[serde(deserialize_with = "name")]
        name: StaticName,
        surge: u32,
        unavailable: u32,
    },
    /// A user pauses or resumes.
    Pause {
        #[serde(deserialize_with = "name")]
        name: StaticName,
        paused: bool,
    },
    /// A user requests a rollback to the previous revision, with the annotation.
    RollBack {
        #[serde(deserialize_with = "name")]
        name: StaticName,
    },
    /// A user adds a label to the template.
    Label {
        #[serde(deserialize_with = "name")]
        name: StaticName,
        value: u32,
    },
    /// A user changes minReadySeconds.
    MinReady {
        #[serde(deserialize_with = "name")]
        name: StaticName,
        seconds: u32,
    },
    /// A user deletes it.
    Delete {
        #[serde(deserialize_with = "name")]
        name: StaticName,
        #[serde(deserialize_with = "policy")]
        policy: StaticName,
    },
    /// A GitOps tool writes an annotation on the Deployment and its ReplicaSets.
    Annotate {
        #[serde(deserialize_with = "name")]
        name: StaticName,
        value: u32,
    },
    /// The chaos monkey deletes the n-th pod.
    DeletePod { nth: u32, at_once: bool },
    /// The chaos monkey makes a running pod unready, or ready again.
    Ready { nth: u32, ready: bool },
    /// The chaos monkey makes a pod fail.
    Fail { nth: u32 },
    /// The chaos monkey ends the first pods of a new image right after their ReplicaSet has reported them as
    /// available, and a user raises maxUnavailable before the ReplicaSet reports the loss.
    EndNewPods {
        #[serde(deserialize_with = "name")]
        name: StaticName,
    },
    /// The chaos monkey deletes the n-th pod, and the creation of its replacement arrives after its author has
    /// abandoned it, when the name of the deleted pod is free.
    LateReplacement { nth: u32 },
    /// A user scales up by three pods, and the creation of the last one arrives when its author is dead and the
    /// successor has already created the missing pods.
    LateCreation {
        #[serde(deserialize_with = "name")]
        name: StaticName,
    },
    /// A user scales up by two pods, and their ReplicaSet cannot write its status while a reply is late. Meanwhile
    /// the Deployment gets a broken image, and another image once the old pods are ready.
    LateStatus {
        #[serde(deserialize_with = "name")]
        name: StaticName,
    },
    /// The chaos monkey changes a label of a pod, so that the selector no longer matches.
    Relabel { nth: u32 },
    /// The chaos monkey sets the deletion cost of a pod.
    Cost { nth: u32, cost: u32 },
    /// The chaos monkey removes the owner reference of a pod.
    Orphan { nth: u32 },
    /// The chaos monkey deletes a pod and removes its owner reference while it terminates.
    OrphanTerminating { nth: u32 },
    /// The chaos monkey gives a pod to another owner.
    ChangePodOwner { nth: u32 },
    /// A user deletes the n-th ReplicaSet but not its pods, and no daemon sees that for a moment.
    OrphanPods { nth: u32 },
    /// A user deletes a Deployment and creates it again, and no daemon sees for a moment what happens to its
    /// ReplicaSets.
    Replace {
        #[serde(deserialize_with = "name")]
        name: StaticName,
        #[serde(deserialize_with = "policy")]
        policy: StaticName,
    },
    /// A user creates a pod with the labels of the n-th ReplicaSet's pods.
    OrphanPod { nth: u32 },
    /// A user changes a label of the n-th ReplicaSet, so that its Deployment's selector no longer matches.
    UnselectReplicaSet { nth: u32 },
    /// Another controller puts a finalizer on the n-th ReplicaSet.
    ReplicaSetFinalizer { nth: u32 },
    /// Another controller puts a finalizer on the n-th pod.
    PodFinalizer { nth: u32 },
    /// A user deletes the namespace, and creates it again at the end.
    EndNamespace,
    /// A user puts annotations on a Deployment, or on the n-th ReplicaSet or pod, that no controller expects.
    HostileAnnotation {
        #[serde(deserialize_with = "name")]
        name: StaticName,
        nth: u32,
        value: u32,
    },
    /// A tenant creates pods or ReplicaSets that name the n-th ReplicaSet, or its Deployment, as their owner, from
    /// another namespace or with another kind; or writes a wrong name into the n-th pod's owner reference.
    ForgeOwner { nth: u32, form: u32 },
    /// A user creates a ReplicaSet without an owner, or resizes it.
    OwnerlessReplicaSet { replicas: u32 },
    /// A user adds an init container and a sidecar to the template.
    Sidecar {
        #[serde(deserialize_with = "name")]
        name: StaticName,
    },
    /// A container of the n-th pod has restarted this often: a regular one, a sidecar, or an init container.
    Restart { nth: u32, container: u32, restarts: u32 },
    /// A quota refuses new pods from now on, or no longer does.
    Quota { full: bool },
    /// An admission webhook cannot be called for this time: the daemons' writes of pods and ReplicaSets are refused.
    Webhook { seconds: u32 },
    /// All watches break.
    BreakWatches,
    /// The API server compacts its history.
    Compact,
    /// A daemon's watch of a resource shows nothing new for this time.
    Lag {
        daemon: usize,
        #[serde(deserialize_with = "resource")]
        resource: StaticName,
        seconds: u32,
    },
    /// A daemon is killed right after this many more writes.
    Crash { daemon: usize, writes: u32 },
    /// A daemon is stopped, as by SIGTERM.
    Stop { daemon: usize },
    /// Most renewals of a daemon's Lease fail for this time.
    SlowLease { daemon: usize, seconds: u32 },
    /// Most renewals of the leader's Lease fail for this time, and a watch of the other daemon shows nothing new of a
    /// resource.
    Depose {
        #[serde(deserialize_with = "resource")]
        resource: StaticName,
    },
}

impl Default for Skew {
    /// Clocks that are right.
    fn default() -> Self {
        Skew { ahead: 0, speed: 100 }
    }
}

impl Skew {
    /// Whether the clocks are right.
    pub fn is_right(self) -> bool {
        self == Skew::default()
    }

    /// The real time that passes while the monotonic clock measures `time`. Timers have a resolution of milliseconds.
    pub fn takes_for(self, time: Duration) -> Duration {
        Duration::from_millis((time * 100 / self.speed.max(1)).as_millis().try_into().unwrap_or(u64::MAX))
    }
}

impl Act {
    /// Whether it changes what the users want, can be fulfilled, and has the same result whatever its timing.
    pub fn is_user_change(&self) -> bool {
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

    /// The Deployment that it is about.
    pub fn name_mut(&mut self) -> Option<&mut StaticName> {
        match self {
            Act::Create { name, .. }
            | Act::Image { name, .. }
            | Act::BrokenImage { name }
            | Act::Scale { name, .. }
            | Act::Strategy { name, .. }
            | Act::Percent { name, .. }
            | Act::Pause { name, .. }
            | Act::RollBack { name }
            | Act::Label { name, .. }
            | Act::MinReady { name, .. }
            | Act::Delete { name, .. }
            | Act::Annotate { name, .. }
            | Act::EndNewPods { name }
            | Act::LateCreation { name }
            | Act::LateStatus { name }
            | Act::Replace { name, .. }
            | Act::HostileAnnotation { name, .. }
            | Act::Sidecar { name } => Some(name),
            _ => None,
        }
    }

    /// Whether it affects the daemons and no other client.
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
    /// Seeds every random choice.
    pub seed: u64,
    /// How many daemons run.
    pub daemons: usize,
    /// Whether they run leader election.
    pub election: bool,
    /// Whether the API server sends lists as streams.
    pub streaming_lists: bool,
    /// From a pod's binding until it is ready.
    #[serde(with = "milliseconds")]
    pub readiness: Duration,
    /// From a pod's deletion until it has ended.
    #[serde(with = "milliseconds")]
    pub shutdown: Duration,
    /// Whether users wait until the cluster is settled before their next change.
    #[serde(default, skip_serializing_if = "is_no")]
    pub calm: bool,
    /// How long the settled cluster is watched at the end.
    #[serde(with = "milliseconds", default = "a_while")]
    pub quiet: Duration,
    /// The planted mistake, or "".
    #[serde(default, deserialize_with = "bug", skip_serializing_if = "str::is_empty")]
    pub bug: StaticName,
    /// The daemons' clocks, in the order of the daemons; right clocks where none is given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clocks: Vec<Skew>,
    /// The faults of the network.
    pub faults: Vec<Fault>,
    /// Faults that begin with certain writes of the daemons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub points: Vec<CrashPoint>,
    /// The acts with their times, in order.
    #[serde(with = "steps")]
    pub acts: Vec<(Duration, Act)>,
    /// Whether users repair at the end what they broke: they resume paused Deployments and replace images that never
    /// start.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub repair: bool,
}

impl Scenario {
    /// Whether it has to converge. Two leaders that see different states undo each other's work as fast as they can:
    /// election exists to prevent that, and without it only the safety invariants are judged.
    pub fn must_converge(&self) -> bool {
        let hides = |act: &Act| matches!(act, Act::Lag { .. } | Act::BreakWatches | Act::Compact);
        let alike = self.faults.is_empty() && !self.acts.iter().any(|(_, act)| hides(act));
        self.election || self.daemons == 1 || alike
    }

    /// How long the faults continue after the last act: where a leader is deposed, until another one has led for a
    /// while.
    pub fn tail(&self) -> Duration {
        let deposes = |act: &Act| matches!(act, Act::Depose { .. });
        let is_deposed = self.election && self.acts.iter().any(|(_, act)| deposes(act));
        Duration::from_secs(if is_deposed { 45 } else { 5 })
    }
}

impl game::Scenario for Scenario {
    fn draw(seed: u64) -> Self {
        Scenario::new(seed)
    }

    crate::engine::game::seed_and_bug!();

    fn check(&self) -> Result<(), String> {
        super::bounds::check(self)
    }

    /// Watching a settled cluster for two days finds no more than three minutes with a restart, and takes seconds.
    fn to_search(seed: u64) -> Self {
        Scenario { quiet: a_while(), ..Scenario::new(seed) }
    }

    fn simpler(&self) -> Vec<Self> {
        let mut simpler = vec![self.with_one_daemon(), Scenario { daemons: 1, ..self.clone() }];
        // A right clock is the simplest, although its speed of 100 is the largest number.
        for n in 0..self.clocks.len() {
            let parts: [fn(&mut Skew); 3] =
                [|skew| *skew = Skew::default(), |skew| skew.speed = 100, |skew| skew.ahead = 0];
            simpler.extend(parts.map(|part| {
                let mut righter = self.clone();
                righter.clocks.iter_mut().skip(n).take(1).for_each(part);
                righter
            }));
        }
        simpler
    }
}

impl Scenario {
    /// Without the second daemon, all that is done to it, and the election.
    fn with_one_daemon(&self) -> Self {
        let mut less = Scenario { daemons: 1, election: false, ..self.clone() };
        less.acts.retain(|(_, act)| {
            !matches!(
                act,
                Act::Lag { daemon: 1.., .. }
                    | Act::Crash { daemon: 1.., .. }
                    | Act::Stop { daemon: 1.. }
                    | Act::SlowLease { daemon: 1.., .. }
            )
        });
        less.points.retain(|point| {
            !matches!(point, CrashPoint::Crash { daemon: 1.., .. } | CrashPoint::Lag { daemon: 1.., .. })
        });
        less.clocks.truncate(1);
        less
    }
}

fn is_yes(answer: &bool) -> bool {
    *answer
}

fn is_no(answer: &bool) -> bool {
    !*answer
}

/// How long a settled cluster is watched by default.
pub fn a_while() -> Duration {
    Duration::from_secs(180)
}

fn yes() -> bool {
    true
}
