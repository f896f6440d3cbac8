//! The standing of a rollout under its policy: what a command needs to know before it writes, and what shows its effect.
//! Pure, and on the daemon's own planner.

use std::sync::Arc;

use jiff::Timestamp;
use windlass::model::{
    ControllerRevision, Deployment, Interner, Pod, Record as _, ReplicaSet, Strategy, condition,
};
use windlass::plan::daemonset::{self, PlanReason};
use windlass::plan::deployment::course::Hold;
use windlass::plan::deployment::progress::PROGRESSING;
use windlass::plan::deployment::{self as planner, Observed, revision};
use windlass::plan::policy::state::state_of;
use windlass::plan::policy::{BYPASS_UNTIL, Policy, State};

use crate::rollout::last_writes::LastWrites;
use crate::rollout::verdict::is_done;
use crate::rollout::{Workload, daemon_set, decode};

/// The standing of a rollout. Of a DaemonSet, nodes take the place of pods.
#[derive(Clone, Debug)]
pub struct Standing {
    /// Such as `deployment shop/web`.
    pub object: String,
    /// The policy that its annotations ask for.
    pub policy: Policy,
    /// Whether it has a bypass, over or unreadable as it may be.
    pub has_bypass: bool,
    /// The revision of the current template, once a controller has begun it.
    pub revision: Option<i64>,
    /// The state that the controller has recorded for it.
    pub state: State,
    /// Why it goes no further.
    pub hold: Option<Hold>,
    /// The reason of the condition `Progressing`.
    pub progress: String,
    /// Whether it is complete.
    pub is_complete: bool,
    /// `spec.paused`.
    pub is_paused: bool,
    /// Whether a rollout can go back to pods that serve. That of a DaemonSet never can.
    pub can_go_back: bool,
    /// The manager that wrote the status, if it is not Windlass.
    pub foreign: Option<String>,
}

impl Standing {
    /// The standing of a Deployment.
    ///
    /// # Errors
    /// When the Deployment is not what its kind says.
    pub fn of(object: String, workload: &Workload, now: Timestamp) -> Result<Self, serde_json::Error> {
        let interner = &mut Interner::default();
        let deployment: Deployment = decode(&workload.object, interner)?;
        let all = workload.replica_sets.iter().filter_map(|set| decode::<ReplicaSet>(set, interner).ok());
        let all: Vec<Arc<ReplicaSet>> = all.map(Arc::new).collect();
        let owned = all.into_iter().filter(|set| deployment.controls(&set.meta)).collect();
        let pods = workload.pods.iter().filter_map(|pod| decode::<Pod>(pod, interner).ok());
        let pods: Vec<Arc<Pod>> = pods.map(Arc::new).collect();
        let pods_of =
            |set: &ReplicaSet| pods.iter().filter(|pod| set.controls(&pod.meta)).cloned().collect::<Vec<_>>();
        let observed = Observed::gather(&deployment, owned, Vec::new(), false, pods_of, now);
        let plan = planner::plan(&observed);
        let roles = observed.replica_sets();
        let new = roles.new.as_deref();
        let serves = |old: &Arc<ReplicaSet>| old.replicas > 0 && old.status.available > 0;
        let progress = condition::find(&deployment.status.conditions, PROGRESSING);
        let actor = LastWrites::of(&workload.object).status;
        Ok(Standing {
            object,
            has_bypass: deployment.annotations.get(BYPASS_UNTIL).is_some(),
            revision: new.and_then(revision::revision_of),
            state: new.map(state_of).unwrap_or_default(),
            hold: plan.course.hold,
            progress: progress.map_or(String::new(), |progress| progress.reason.to_string()),
            is_complete: is_done(&deployment),
            is_paused: deployment.paused,
            can_go_back: deployment.strategy != Strategy::Recreate && roles.old.iter().any(serves),
            foreign: actor.map(|actor| actor.manager).filter(|manager| manager != "windlass"),
            policy: observed.policy.clone(),
        })
    }

    /// The standing of a DaemonSet.
    ///
    /// # Errors
    /// When the DaemonSet is not what its kind says.
    pub fn of_nodes(object: String, workload: &Workload, now: Timestamp) -> Result<Self, serde_json::Error> {
        let (daemon_set, plan, current) = daemon_set::planned(workload, now)?;
        let policy = daemonset::policy_of(&daemon_set, now);
        let progress = condition::find(&daemon_set.status.conditions, PROGRESSING);
        let actor = LastWrites::of(&workload.object).status;
        let state = |revision: Arc<ControllerRevision>| {
            State::read(revision.rollout_state.as_deref(), &revision.meta.key.name)
        };
        Ok(Standing {
            object,
            has_bypass: workload.object["metadata"]["annotations"][BYPASS_UNTIL].is_string(),
            revision: current.as_ref().map(|current| current.number),
            state: current.map(state).unwrap_or_default(),
            hold: plan.reasons.into_iter().find_map(|reason| match reason {
                PlanReason::HeldAtStep { step } => Some(Hold::Step(step)),
                PlanReason::InvalidPolicy { defect } => Some(Hold::Invalid { defect }),
                _ => None,
            }),
            progress: progress.map_or(String::new(), |progress| progress.reason.to_string()),
            is_complete: daemonset::status::is_rolled_out(&daemon_set, &daemon_set.status),
            is_paused: false,
            can_go_back: false,
            foreign: actor.map(|actor| actor.manager).filter(|manager| manager != "windlass"),
            policy,
        })
    }
}
