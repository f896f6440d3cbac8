//! One moment of a Deployment, or of a ReplicaSet, and the plans for it.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;
use windlass::model::{Deployment, Record, ReplicaSet};
use windlass::plan::deployment::progress::{Outcome, Settled, settle};
use windlass::plan::deployment::{Observed, Plan, Write, plan};
use windlass::plan::replicaset;

use super::objects::{DeploymentBuilder, PodBuilder, ReplicaSetBuilder, decode, now};

/// A Deployment and its ReplicaSets at [`NOW`](crate::objects::NOW).
pub struct Situation {
    /// The Deployment.
    pub deployment: Deployment,
    /// The ReplicaSets that it owns.
    pub replica_sets: Vec<Arc<ReplicaSet>>,
}

impl Situation {
    /// A Deployment and the ReplicaSets that it owns.
    pub fn new(deployment: DeploymentBuilder, replica_sets: &[ReplicaSetBuilder]) -> Self {
        Self::of(&deployment.json(), replica_sets)
    }

    /// The same of an object, for what the builder has no words for.
    pub fn of(deployment: &Value, replica_sets: &[ReplicaSetBuilder]) -> Self {
        Situation {
            deployment: decode(deployment),
            replica_sets: replica_sets.iter().map(ReplicaSetBuilder::build).collect(),
        }
    }

    /// The planner's input.
    pub fn observed(&self) -> Observed<'_> {
        self.observed_at(now())
    }

    /// The planner's input at another time.
    pub fn observed_at(&self, now: Timestamp) -> Observed<'_> {
        Observed { owned: self.replica_sets.clone(), ..Observed::new(&self.deployment, now) }
    }

    /// The plan for the Deployment.
    pub fn plan(&self) -> Plan {
        plan(&self.observed())
    }

    /// The sizes of the ReplicaSets once the plan is carried out, in the order given; last one to create.
    pub fn sizes_after(&self) -> Vec<i32> {
        let mut sizes: Vec<i32> = self.replica_sets.iter().map(|replica_set| replica_set.replicas).collect();
        for write in &self.plan().writes {
            match write {
                Write::Create(new) => sizes.push(new.replicas),
                Write::Change(replica_set, change) => {
                    let at =
                        self.replica_sets.iter().position(|s| s.meta.uid == replica_set.meta.uid).unwrap();
                    sizes[at] = change.replicas.unwrap_or(sizes[at]);
                }
                other => panic!("{other:?}"),
            }
        }
        sizes
    }

    /// The status after a reconcile whose writes all succeed.
    pub fn settled_at(&self, now: Timestamp) -> Settled {
        let observed = self.observed_at(now);
        let plan = plan(&observed);
        settle(&observed, &plan, &Outcome::after(plan.writes.len()))
    }
}

impl ReplicaSetBuilder {
    fn observing<R>(&self, pods: &[PodBuilder], look: impl FnOnce(&replicaset::Observed<'_>) -> R) -> R {
        let replica_set = self.build();
        let pods = pods.iter().map(PodBuilder::build);
        let (owned, others): (Vec<_>, Vec<_>) = pods.partition(|pod| replica_set.controls(&pod.meta));
        // The store hands out an owner's pods and the orphans; it never hands out another's.
        let orphans = others.into_iter().filter(|pod| pod.meta.controller.is_none()).collect();
        look(&replicaset::Observed {
            replica_set: &replica_set,
            pod_sets: replicaset::PodSets::of(&replica_set, owned, orphans),
            may_adopt: self.may_adopt,
            siblings: Vec::new(),
            free_names: Vec::new(),
            reserved: 0,
            failed_pod_backoff: true,
            policy: windlass::plan::replicaset::kept_failed_pods::policy_of(&replica_set),
            now: now(),
        })
    }

    /// The plan for these pods.
    pub fn plan(&self, pods: &[PodBuilder]) -> replicaset::Plan {
        self.observing(pods, replicaset::plan)
    }

    /// The status for these pods, and when the next sync is due.
    pub fn settled(
        &self,
        pods: &[PodBuilder],
        failure: Option<&replicaset::status::Failure>,
    ) -> replicaset::status::Settled {
        self.observing(pods, |observed| replicaset::status::settle(observed, failure))
    }
}
