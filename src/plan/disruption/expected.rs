//! How many pods there should be, and how many of them must be healthy.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use super::{Memory, Observed, number};
use crate::model::int_or_percent::{IntOrPercent, clamp};
use crate::model::{
    ControllerRef, Deployment, Owner, Pod, PodDisruptionBudget, ReplicaSet, Scale, Threshold, Uid,
};

/// How long pods whose controller does not exist count as unmanaged, before that is an error. A workload that is deleted takes its
/// pods along, some time later; and one cache may show a new pod before another shows its controller.
const VANISHED: Duration = Duration::from_secs(10);

/// Where the scale of a controller of pods comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The cache of ReplicationControllers.
    ReplicationController,
    /// The cache of ReplicaSets, and that of the Deployments above them.
    ReplicaSet,
    /// The cache of StatefulSets.
    StatefulSet,
    /// The API server, which is asked for its `scale`.
    Live,
}

/// Where to look for a controller. Pods of long ago may name the group that ReplicaSets had before.
pub fn source(reference: &ControllerRef) -> Source {
    match (reference.group(), &*reference.kind) {
        ("", "ReplicationController") => Source::ReplicationController,
        ("apps" | "extensions", "ReplicaSet") => Source::ReplicaSet,
        ("apps", "StatefulSet") => Source::StatefulSet,
        _ => Source::Live,
    }
}

/// A controller of pods.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    /// A ReplicaSet, and the Deployment that controls it if that exists, too.
    ReplicaSet(Arc<ReplicaSet>, Option<Arc<Deployment>>),
    /// Something else, with its scale.
    Scaled(Scale),
    /// None of this UID exists.
    Absent,
    /// Its scale cannot be read: this is why.
    Failed(String),
    /// The API server has not answered: this is how.
    Unanswered(String),
}

/// Why there is no number.
#[derive(Debug, PartialEq)]
pub(super) enum Undecided {
    /// A controller was not read: the pods have changed since.
    Unread,
    /// This.
    Failed(String),
}

/// The numbers.
#[derive(Debug, Default)]
pub(super) struct Expected {
    /// How many pods there should be.
    pub pods: i32,
    /// How many healthy ones there must be.
    pub desired: i32,
    /// Whether pods without a controller are not among [`Expected::pods`].
    pub has_unmanaged: bool,
    /// Whether a scale is the last that was read, since the API server does not answer.
    pub is_outdated: bool,
    /// When a controller has been absent for too long, or a scale is read again.
    pub look_again: Option<Duration>,
    /// The controllers that the number is the sum of; `None` if all pods are counted.
    summed: Option<BTreeSet<Owner>>,
}

impl Expected {
    fn look_again(&mut self, after: Duration) {
        self.look_again = Some(self.look_again.map_or(after, |other| other.min(after)));
    }

    /// Whether the number of pods includes this one.
    pub(super) fn includes(&self, pod: &Pod) -> bool {
        let Some(summed) = &self.summed else { return true };
        pod.meta.owner().is_some_and(|owner| summed.contains(&owner))
    }
}

/// Whether the numbers depend on the scales of the pods' controllers.
fn is_of_scales(budget: &PodDisruptionBudget) -> bool {
    match budget.threshold {
        Threshold::MaxUnavailable(_) | Threshold::MinAvailable(IntOrPercent::Percent(_)) => true,
        Threshold::MinAvailable(IntOrPercent::Int(_)) | Threshold::Unset => false,
    }
}

/// The controllers whose scales the API server must be asked for, each once.
pub fn live_owners<'a>(
    budget: &PodDisruptionBudget,
    pods: &'a [Arc<Pod>],
) -> BTreeMap<Owner, &'a ControllerRef> {
    if !is_of_scales(budget) {
        return BTreeMap::new();
    }
    let controlled = pods.iter().filter_map(|pod| Some((pod.meta.owner()?, pod.meta.controller.as_deref()?)));
    controlled.filter(|(_, reference)| source(reference) == Source::Live).collect()
}

/// Counts. The memory is updated in any case.
pub(super) fn count(observed: &Observed<'_>, memory: &mut Memory) -> Result<Expected, Undecided> {
    let Observed { budget, pods, .. } = observed;
    let sum = if is_of_scales(budget) {
        sum(observed, memory)?
    } else {
        memory.absent.clear();
        memory.scales.clear();
        Expected::default()
    };
    Ok(match budget.threshold {
        Threshold::MaxUnavailable(most) => {
            let desired = sum.pods.saturating_sub(most.round_up(sum.pods)).max(0);
            Expected { desired, ..sum }
        }
        Threshold::MinAvailable(least @ IntOrPercent::Percent(_)) => {
            Expected { desired: least.round_up(sum.pods), ..sum }
        }
        Threshold::MinAvailable(least @ IntOrPercent::Int(_)) => {
            let pods = number(pods.len());
            Expected { pods, desired: least.round_up(pods), ..sum }
        }
        Threshold::Unset => sum,
    })
}

/// The sum of the scales of the pods' controllers.
fn sum(observed: &Observed<'_>, memory: &mut Memory) -> Result<Expected, Undecided> {
    let Observed { budget, pods, owners, elapsed, .. } = observed;
    let (absent, last) = (std::mem::take(&mut memory.absent), std::mem::take(&mut memory.scales));
    let mut scales: BTreeMap<Uid, i32> = BTreeMap::new();
    let mut expected = Expected::default();
    let mut summed = BTreeSet::new();
    let (mut failure, mut is_unread) = (None, false);
    for pod in pods {
        let (Some(owner), Some(reference)) = (pod.meta.owner(), &pod.meta.controller) else {
            expected.has_unmanaged = true;
            continue;
        };
        // Many pods have one controller: with the first of them it has counted.
        if summed.contains(&owner) {
            continue;
        }
        let Some(found) = owners.get(&owner) else {
            is_unread = true;
            memory.scales.extend(last.get(&owner).map(|scale| (owner, scale.clone())));
            continue;
        };
        match found {
            Found::ReplicaSet(_, Some(deployment)) => {
                scales.insert(deployment.meta.uid.clone(), deployment.replicas);
            }
            Found::ReplicaSet(replica_set, None) => {
                scales.insert(replica_set.meta.uid.clone(), replica_set.replicas);
            }
            Found::Scaled(scale) => {
                scales.insert(scale.uid.clone(), scale.replicas);
                if source(reference) == Source::Live {
                    memory.scales.insert(owner.clone(), scale.clone());
                    expected.look_again(read_again(&budget.meta.uid, *elapsed));
                }
            }
            Found::Unanswered(how) => match last.get(&owner) {
                Some(scale) => {
                    scales.insert(scale.uid.clone(), scale.replicas);
                    memory.scales.insert(owner.clone(), scale.clone());
                    expected.is_outdated = true;
                }
                None => {
                    failure.get_or_insert_with(|| how.clone());
                    continue;
                }
            },
            Found::Absent => {
                let since = absent.get(&owner).copied().unwrap_or(*elapsed);
                memory.absent.insert(owner, since);
                let left = VANISHED.saturating_sub(elapsed.saturating_sub(since));
                if left.is_zero() {
                    let name = &pod.meta.key.name;
                    failure.get_or_insert_with(|| format!("found no controllers for pod {name:?}"));
                } else {
                    expected.look_again(left);
                }
                continue;
            }
            Found::Failed(why) => {
                failure.get_or_insert_with(|| why.clone());
                continue;
            }
        }
        summed.insert(owner);
    }
    if let Some(why) = failure {
        return Err(Undecided::Failed(why));
    }
    if is_unread {
        return Err(Undecided::Unread);
    }
    let total = scales.values().fold(0_i64, |sum, scale| sum.saturating_add(i64::from((*scale).max(0))));
    Ok(Expected { pods: clamp(total), summed: Some(summed), ..expected })
}

/// When to read scales again that no watch shows: after 27 to 33 seconds, so that many budgets do not read at once.
fn read_again(budget: &Uid, elapsed: Duration) -> Duration {
    let mut hasher = DefaultHasher::new();
    (budget, elapsed).hash(&mut hasher);
    Duration::from_millis(27_000 + hasher.finish() % 6_000)
}
