//! All that one decision about a Deployment rests on, and the roles its sets play.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use crate::model::{Deployment, ReplicaSet, Uid};
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
    /// The time of the decision.
    pub now: Timestamp,
}

impl Observed<'_> {
    /// The Deployment's sets by role, without those that it is about to release.
    pub fn sets(&self) -> Sets {
        let Observed { deployment, owned, .. } = self;
        let members = owned
            .iter()
            .filter(|set| claim(&deployment.meta, &deployment.selector, &set.meta) == Claim::Keep)
            .cloned();
        Sets::assign(deployment, members)
    }
}

/// The sets of a Deployment: the one that has its template, and the others, oldest first.
#[derive(Clone, Debug, Default)]
pub struct Sets {
    /// The set that asks for the pods the Deployment asks for.
    pub new: Option<Arc<ReplicaSet>>,
    /// All others, oldest first.
    pub old: Vec<Arc<ReplicaSet>>,
}

impl Sets {
    /// Finds the roles. When several sets have the template, the oldest is the new one, so that every
    /// observer picks the same and the choice never changes (S4).
    fn assign(deployment: &Deployment, members: impl Iterator<Item = Arc<ReplicaSet>>) -> Self {
        let mut old: Vec<Arc<ReplicaSet>> = members.collect();
        old.sort_by(|a, b| (a.meta.created, &a.meta.key).cmp(&(b.meta.created, &b.meta.key)));
        let at = old.iter().position(|set| set.template.asks_for_the_same_as(&deployment.template));
        Sets { new: at.map(|at| old.remove(at)), old }
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

/// A set's available pods that its size lets it keep.
pub(crate) fn available(set: &ReplicaSet) -> i32 {
    set.status.available.min(set.replicas).max(0)
}
