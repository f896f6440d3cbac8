//! Copies of the objects of a rollout, on which the planners act instead of on the API server's.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::nodes::{Kubelet, Nodes, Room};
use crate::model::{Deployment, Pod, Record as _, ReplicaSet, Template, Uid, condition};
use crate::plan::deployment::course::Hold;
use crate::plan::deployment::{self, Write, progress, revision};
use crate::plan::outcome_of::{self, Objects, Synced, annotate};

/// The objects at the beginning: the Deployment as it would be, and what there is.
#[derive(Clone, Debug)]
pub struct Start {
    /// The Deployment with its change, and a generation that its status has not observed.
    pub deployment: Deployment,
    /// Its ReplicaSets.
    pub replica_sets: Vec<ReplicaSet>,
    /// The pods of these.
    pub pods: Vec<Arc<Pod>>,
    /// The time of the change.
    pub now: Timestamp,
    /// The rules of the kubelet.
    pub kubelet: Kubelet,
    /// The quotas of the namespace.
    pub rooms: Vec<Room>,
    /// How many ReplicaSets a quota still allows; `None` without one.
    pub free_replica_sets: Option<i64>,
}

/// The objects.
pub(super) struct Cluster {
    /// The Deployment that owns the ReplicaSets; `None` where these are ReplicationControllers, which nobody owns.
    deployment: Option<Deployment>,
    /// The template that new pods get at first.
    template: Template,
    pub(super) objects: Objects,
    pub(super) nodes: Nodes,
    /// How many ReplicaSets a quota still allows.
    free_replica_sets: Option<i64>,
    /// Whether it has refused one.
    pub(super) is_replica_set_refused: bool,
    /// Why the last plan went no further.
    hold: Option<Hold>,
    /// The failure of the rollout, once there was one that had a ReplicaSet to go back to.
    failure: Option<String>,
}

/// The activity of a round, and the times at which there is something to do again.
#[derive(Default)]
pub(super) struct Round {
    pub(super) is_busy: bool,
    pub(super) looks: Vec<Timestamp>,
}

impl Round {
    pub(super) fn add(&mut self, synced: Synced, now: Timestamp) {
        self.is_busy |= synced.wrote;
        self.looks.extend(synced.requeue_after.and_then(|wait| now.saturating_add(wait).ok()));
    }
}

impl Cluster {
    /// A Deployment's.
    pub(super) fn new(start: Start) -> Self {
        let Start { deployment, replica_sets, pods, now, kubelet, rooms, free_replica_sets } = start;
        let template = deployment.template.clone();
        let sets = Self::of_sets(replica_sets, template, pods, now, kubelet, rooms);
        Cluster { deployment: Some(deployment), free_replica_sets, ..sets }
    }

    /// Those of ReplicationControllers.
    pub(super) fn of_sets(
        replica_sets: Vec<ReplicaSet>,
        template: Template,
        pods: Vec<Arc<Pod>>,
        now: Timestamp,
        kubelet: Kubelet,
        rooms: Vec<Room>,
    ) -> Self {
        let mut objects = Objects::new(now);
        objects.replica_sets =
            replica_sets.into_iter().map(|set| (set.meta.key.name.clone(), Arc::new(set))).collect();
        objects.pods = pods.into_iter().map(|pod| (pod.meta.key.name.clone(), pod)).collect();
        let owners: BTreeMap<&Uid, bool> = objects
            .replica_sets
            .values()
            .map(|set| (&set.meta.uid, set.template.asks_for_the_same_as(&template)))
            .collect();
        let is_new = |pod: &Pod| {
            let owner = pod.meta.controller.as_ref();
            owner.and_then(|owner| owners.get(&owner.uid)).copied().unwrap_or(false)
        };
        let nodes = Nodes::new(&objects, is_new, kubelet, rooms);
        Cluster {
            deployment: None,
            template,
            objects,
            nodes,
            free_replica_sets: None,
            is_replica_set_refused: false,
            hold: None,
            failure: None,
        }
    }

    fn template(&self) -> &Template {
        self.deployment.as_ref().map_or(&self.template, |deployment| &deployment.template)
    }

    fn owned(&self) -> impl Iterator<Item = &Arc<ReplicaSet>> {
        let owns =
            |set: &&Arc<ReplicaSet>| self.deployment.as_ref().is_none_or(|owner| owner.controls(&set.meta));
        self.objects.replica_sets.values().filter(owns)
    }

    /// The name and the size of each ReplicaSet of the Deployment.
    pub(super) fn sizes(&self) -> BTreeMap<Arc<str>, i32> {
        self.owned().map(|set| (set.meta.key.name.clone(), set.replicas)).collect()
    }

    /// The revision of a ReplicaSet, and whether it has the Deployment's template.
    pub(super) fn describe(&self, name: &str) -> Option<(Option<i64>, bool)> {
        let set = self.objects.replica_sets.get(name)?;
        Some((revision::revision_of(set), set.template.asks_for_the_same_as(self.template())))
    }

    /// How many pods the Deployment wants.
    pub(super) fn replicas(&self) -> i32 {
        self.deployment.as_ref().map_or(0, |deployment| deployment.replicas)
    }

    /// How many pods exist that are not being deleted, and how many of them are available.
    pub(super) fn counts(&self) -> (i64, i64) {
        let (mut pods, mut available) = (0, 0);
        for set in self.owned() {
            for pod in self.objects.pods_of(&**set).iter().filter(|pod| pod.is_active()) {
                pods += 1;
                available += i64::from(pod.is_available(set.min_ready_seconds, self.objects.now));
            }
        }
        (pods, available)
    }

    /// Whether the rollout is done, as `kubectl rollout status` has it: deleted pods may still be ending.
    pub(super) fn is_complete(&self) -> bool {
        let Some(Deployment { meta, replicas, status, .. }) = &self.deployment else { return false };
        let counts = [status.replicas, status.updated, status.available];
        status.observed_generation >= meta.generation && counts.iter().all(|count| count == replicas)
    }

    /// Whether the progress deadline has passed.
    pub(super) fn is_past_deadline(&self) -> bool {
        let conditions = self.deployment.as_ref().map(|deployment| &deployment.status.conditions);
        conditions
            .and_then(|conditions| condition::find(conditions, progress::PROGRESSING))
            .is_some_and(|condition| &*condition.reason == progress::TIMED_OUT)
    }

    /// Why the last plan went no further.
    pub(super) fn hold(&self) -> Option<&Hold> {
        self.hold.as_ref()
    }

    /// Whether the rollout has failed, and goes back to the ReplicaSet that serves.
    pub(super) fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Why the policy lets the rollout go no further, in one sentence.
    pub(super) fn stopped_by(&self) -> Option<String> {
        self.failure.clone().or_else(|| match self.hold.as_ref()? {
            Hold::Invalid { defect } => Some(format!("held until its policy can be read: {defect}")),
            Hold::Failed { message, .. } => Some(message.clone()),
            Hold::Step(step) if step.is_timed => {
                Some(format!("held at step {} of {} until its pods are available", step.step, step.of))
            }
            Hold::Step(_) | Hold::Batch { .. } => None,
        })
    }

    /// Sets an annotation of the Deployment, as a user does.
    pub(super) fn annotate(&mut self, key: &'static str, value: &str) {
        if let Some(deployment) = &mut self.deployment {
            annotate(&mut deployment.annotations, key, value);
        }
    }

    /// One sync of the Deployment.
    pub(super) fn sync_deployment(&mut self) -> Round {
        let Some(stored) = &mut self.deployment else { return Round::default() };
        let deployment = stored.clone();
        let observed = outcome_of::deployment::observe(&deployment, &self.objects);
        let plan = deployment::plan(&observed);
        self.hold.clone_from(&plan.course.hold);
        if let Some(Hold::Failed { message, serves: Some(_), .. }) = &self.hold {
            self.failure = Some(message.clone());
        }
        let mut outcome = progress::Outcome::default();
        for write in &plan.writes {
            let difference = match write {
                Write::Create(_) if self.free_replica_sets.is_some_and(|free| free < 1) => {
                    self.is_replica_set_refused = true;
                    outcome.could_not_create("exceeded quota".to_owned());
                    break;
                }
                Write::Create(_) => -1,
                Write::Delete(_) => 1,
                Write::Change(..) | Write::Adopt(_) | Write::Release(_) | Write::RollBack(_) => 0,
            };
            match outcome_of::deployment::apply(write, stored, &mut self.objects) {
                Ok(true) => outcome.succeeded(),
                Ok(false) => {
                    outcome.name_taken();
                    break;
                }
                Err(error) => {
                    outcome.could_not_create(error.to_string());
                    break;
                }
            }
            self.free_replica_sets = self.free_replica_sets.map(|free| free.saturating_add(difference));
        }
        let settled = progress::settle(&observed, &plan, &outcome);
        let wrote = outcome_of::deployment::settle(&settled, stored) || outcome.done() > 0;
        let mut round = Round::default();
        round.add(Synced { wrote, requeue_after: settled.requeue_after }, self.objects.now);
        round
    }

    /// One sync of each ReplicaSet.
    pub(super) fn sync_replica_sets(&mut self) -> Round {
        let template = self.template();
        let owned =
            self.owned().map(|set| (set.meta.key.name.clone(), set.template.asks_for_the_same_as(template)));
        let owned: Vec<(Arc<str>, bool)> = owned.collect();
        let mut round = Round::default();
        for (name, is_new) in owned {
            let nodes = &mut self.nodes;
            let create = |set: &ReplicaSet, objects: &mut Objects| {
                nodes.create_pod(is_new, objects, |objects| {
                    outcome_of::replica_set::create_pod(set, "preview-", objects)
                })
            };
            let synced = outcome_of::replica_set::sync(&name, &mut self.objects, create);
            round.add(synced, self.objects.now);
        }
        round
    }

    /// Makes the pods ready that are due, and drops those whose time is over.
    pub(super) fn run_kubelet(&mut self) -> Round {
        let mut looks = Vec::new();
        Round { is_busy: self.nodes.run(&mut self.objects, &mut looks), looks }
    }

    /// How long after `start` it is.
    pub(super) fn since(&self, start: Timestamp) -> SignedDuration {
        self.objects.now.duration_since(start)
    }
}
