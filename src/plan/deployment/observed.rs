//! All that one decision about a Deployment rests on, and the roles its sets play.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use crate::model::count::clamp;
use crate::model::{Deployment, Pod, ReplicaSet, Uid};
use crate::plan::claim::{Claim, claim};

/// What was seen of a Deployment and its surroundings.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// The Deployment.
    pub deployment: &'a Deployment,
    /// Sets whose controller is the Deployment.
    pub owned: Vec<Arc<ReplicaSet>>,
    /// Sets of the namespace without a controller.
    pub orphans: Vec<Arc<ReplicaSet>>,
    /// Whether a fresh read showed the Deployment unchanged in identity and not on its way out. Only
    /// then may an orphan be adopted (S15).
    pub may_adopt: bool,
    /// How many pods of each set still run, those on their way out included. Needed for Recreate only.
    pub running_pods: BTreeMap<Uid, usize>,
    /// The pods that a set waits for, by set: those it lacks ([`lacks_pods`]) and under Recreate those
    /// that still run. Nothing is decided by them; the explanation names them.
    pub awaited_pods: BTreeMap<Uid, Vec<Arc<Pod>>>,
    /// How many pods of a set that lacks some are [`healthy`] as the cache of pods shows it. Its status may be behind.
    pub healthy_pods: BTreeMap<Uid, i64>,
    /// Whether the status of a set says more than its pods do: then `owned` has it put right.
    pub is_overstated: bool,
    /// The time of the decision.
    pub now: Timestamp,
}

impl<'a> Observed<'a> {
    /// A Deployment at this time, without sets or pods.
    pub fn new(deployment: &'a Deployment, now: Timestamp) -> Self {
        Observed {
            deployment,
            owned: Vec::new(),
            orphans: Vec::new(),
            may_adopt: false,
            running_pods: BTreeMap::new(),
            awaited_pods: BTreeMap::new(),
            healthy_pods: BTreeMap::new(),
            is_overstated: false,
            now,
        }
    }

    /// The Deployment's sets by role, without those that it is about to release.
    pub fn sets(&self) -> Sets {
        let Observed { deployment, owned, .. } = self;
        let members = owned
            .iter()
            .filter(|set| claim(*deployment, &deployment.selector, &set.meta) == Claim::Keep)
            .cloned();
        Sets { healthy_pods: self.healthy_pods.clone(), ..Sets::assign(deployment, members) }
    }
}

/// The sets of a Deployment: the one that has its template, and the others, oldest first.
#[derive(Clone, Debug, Default)]
pub struct Sets {
    /// The set that asks for the pods the Deployment asks for.
    pub new: Option<Arc<ReplicaSet>>,
    /// All others, oldest first.
    pub old: Vec<Arc<ReplicaSet>>,
    /// See [`Observed::healthy_pods`].
    pub healthy_pods: BTreeMap<Uid, i64>,
}

impl Sets {
    /// Finds the roles. When several sets have the template, the oldest is the new one, so that every
    /// observer picks the same and the choice never changes (S4).
    fn assign(deployment: &Deployment, members: impl Iterator<Item = Arc<ReplicaSet>>) -> Self {
        let mut old: Vec<Arc<ReplicaSet>> = members.collect();
        old.sort_by(|a, b| (a.meta.created, &a.meta.key).cmp(&(b.meta.created, &b.meta.key)));
        let is_known = |set: &ReplicaSet| {
            !planted!("other annotations make another set")
                || set.annotations.get("gitops") == deployment.annotations.get("gitops")
        };
        let is_new =
            |set: &Arc<ReplicaSet>| set.template.asks_for_the_same_as(&deployment.template) && is_known(set);
        let at = old.iter().position(is_new);
        Sets { new: at.map(|at| old.remove(at)), old, healthy_pods: BTreeMap::new() }
    }

    /// Every set, the new one last.
    pub fn all(&self) -> impl Iterator<Item = &Arc<ReplicaSet>> {
        self.old.iter().chain(&self.new)
    }

    /// Every set that wants pods, the new one last.
    pub fn active(&self) -> impl Iterator<Item = &Arc<ReplicaSet>> {
        self.all().filter(|set| set.replicas > 0)
    }

    /// The pods that all sets together want.
    pub fn wanted(&self) -> i64 {
        self.all().map(|set| i64::from(set.replicas)).sum()
    }

    /// The pods that are available and will still be after their set has been brought to its size.
    ///
    /// A set that has been told to shrink still reports its old pods for a moment. Upstream counts
    /// them, and can take down more than the budget allows.
    pub fn available(&self) -> i64 {
        self.all().map(|set| i64::from(available(set))).sum()
    }
}

/// Whether a set has fewer available pods than it wants, as far as it says itself: only then are its
/// pods worth looking through for an explanation.
pub fn lacks_pods(set: &ReplicaSet) -> bool {
    available(set) < set.replicas
}

/// The available pods that a set certainly has once it has been brought to its size.
///
/// None while the status speaks of another generation: a set that was told to shrink and then to
/// grow again may have lost pods that its status still shows. The price is to wait for one status
/// write. (A generation that is too high was written by somebody else, and says nothing of the counts;
/// the ReplicaSet controller puts it right.) And what a set still has to lose need not be what is unavailable: among ready pods the
/// deletion cost and the crowd on a node outrank their age, so one that is not ready for long enough
/// may stay in place of one that is. For example 10 ready, 9 of them available, told to shrink to 4: 3.
pub(crate) fn available(set: &ReplicaSet) -> i32 {
    let (size, status) = (i64::from(set.replicas), &set.status);
    if status.observed_generation != set.meta.generation {
        return 0;
    }
    let not_for_long = i64::from(status.ready).max(status.available.into()) - i64::from(status.available);
    let shrinks = i64::from(status.replicas) > size || i64::from(status.available) > size;
    let sure = if shrinks { size - not_for_long } else { size };
    clamp(sure.min(status.available.into()).max(0))
}

/// How many of a set's pods are not given up before the others: those that are ready. Those that are ready, but not
/// for long enough, are as good as available ones, unless there are no available ones to confuse them with.
pub fn healthy(ready: i64, available: i64) -> i64 {
    if available > 0 { ready.max(available) } else { 0 }
}

/// The replicas that a set can lose without losing an available pod: those that are not [`healthy`] go first.
///
/// Neither the status nor the cache of pods shows more than there was: a pod that has become ready since is healthy
/// before the status says so, and let go as a sick one it would be missed (S2).
pub(crate) fn sick(set: &ReplicaSet, sets: &Sets) -> i64 {
    let told = healthy(set.status.ready.into(), set.status.available.into());
    let shown = sets.healthy_pods.get(&set.meta.uid).copied().unwrap_or(0);
    (i64::from(set.replicas) - told.max(shown)).max(0)
}
