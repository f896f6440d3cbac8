//! The input of one decision about a Deployment, and the roles of its ReplicaSets.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use jiff::Timestamp;

use crate::model::int_or_percent::clamp;
use crate::model::{Deployment, Pod, ReplicaSet, Strategy, Uid};
use crate::plan::claim::{Claim, claim};
use crate::plan::policy::{Kind, PodReplacement, Policy};
use crate::plan::replicaset::status::status_of_pods;

/// The observed state of a Deployment and its ReplicaSets.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// The Deployment.
    pub deployment: &'a Deployment,
    /// ReplicaSets whose controller is the Deployment.
    pub owned: Vec<Arc<ReplicaSet>>,
    /// ReplicaSets of the namespace without a controller.
    pub orphans: Vec<Arc<ReplicaSet>>,
    /// Whether a fresh read showed the Deployment with the same identity and not being deleted. Only
    /// then may an orphan be adopted (S15).
    pub may_adopt: bool,
    /// How many pods of each ReplicaSet still run, terminating ones included. Needed for Recreate only.
    pub running_pods: BTreeMap<Uid, usize>,
    /// The pods that a ReplicaSet waits for, by ReplicaSet: those it lacks ([`lacks_pods`]) and under Recreate
    /// those that still run. The explanation names them; without a policy no decision depends on them.
    pub awaited_pods: BTreeMap<Uid, Vec<Arc<Pod>>>,
    /// How many pods of a ReplicaSet that lacks some are [`healthy`] in the cache of pods. Its status may be behind.
    pub healthy_pods: BTreeMap<Uid, i64>,
    /// Whether the status of a ReplicaSet reports more than its pods show: then `owned` has it corrected.
    pub is_overstated: bool,
    /// How many terminating pods of each ReplicaSet still run. Gathered where the policy depends on it.
    pub terminating: BTreeMap<Uid, i64>,
    /// When the last pod of each ReplicaSet became available. Gathered where the policy depends on it.
    pub latest_available: BTreeMap<Uid, Timestamp>,
    /// The policy that the annotations of the Deployment ask for.
    pub policy: Policy,
    /// The time of the decision.
    pub now: Timestamp,
    /// The result of [`Observed::replica_sets`].
    pub roles: Roles,
}

/// The roles of the ReplicaSets, computed on demand. A copy computes them again: its ReplicaSets may differ.
#[derive(Debug, Default)]
pub struct Roles(OnceLock<ReplicaSets>);

impl Clone for Roles {
    fn clone(&self) -> Self {
        Roles::default()
    }
}

impl<'a> Observed<'a> {
    /// A Deployment at this time, without ReplicaSets or pods.
    pub fn new(deployment: &'a Deployment, now: Timestamp) -> Self {
        Observed::under(policy_of(deployment, now), deployment, now)
    }

    fn under(policy: Policy, deployment: &'a Deployment, now: Timestamp) -> Self {
        Observed {
            deployment,
            owned: Vec::new(),
            orphans: Vec::new(),
            may_adopt: false,
            running_pods: BTreeMap::new(),
            awaited_pods: BTreeMap::new(),
            healthy_pods: BTreeMap::new(),
            is_overstated: false,
            terminating: BTreeMap::new(),
            latest_available: BTreeMap::new(),
            policy,
            now,
            roles: Roles::default(),
        }
    }

    /// The input of a decision, from the ReplicaSets and from the pods of each as `pods_of` returns them. Pods are
    /// read only where the decision depends on them.
    pub fn gather(
        deployment: &'a Deployment,
        owned: Vec<Arc<ReplicaSet>>,
        orphans: Vec<Arc<ReplicaSet>>,
        may_adopt: bool,
        pods_of: impl Fn(&ReplicaSet) -> Vec<Arc<Pod>>,
        now: Timestamp,
    ) -> Self {
        let observed = Observed { orphans, may_adopt, ..Observed::new(deployment, now) };
        observed.with(owned, pods_of)
    }

    /// The same where policies are switched off.
    pub fn without_policy(
        deployment: &'a Deployment,
        owned: Vec<Arc<ReplicaSet>>,
        orphans: Vec<Arc<ReplicaSet>>,
        may_adopt: bool,
        pods_of: impl Fn(&ReplicaSet) -> Vec<Arc<Pod>>,
        now: Timestamp,
    ) -> Self {
        let observed = Observed { orphans, may_adopt, ..Observed::under(Policy::off(), deployment, now) };
        observed.with(owned, pods_of)
    }

    fn with(self, mut owned: Vec<Arc<ReplicaSet>>, pods_of: impl Fn(&ReplicaSet) -> Vec<Arc<Pod>>) -> Self {
        let Observed { deployment, now, .. } = self;
        let recreate = deployment.strategy == Strategy::Recreate;
        let is_overstated = !recreate && correct_overstated(&mut owned, &pods_of, now);
        let mut observed = Observed { is_overstated, ..self };
        observed.gather_for_policy(&owned, &pods_of);
        for replica_set in &owned {
            if !recreate && !lacks_pods(replica_set) {
                continue;
            }
            let mut pods = pods_of(replica_set);
            let uid = || replica_set.meta.uid.clone();
            if recreate {
                // Recreate waits for a pod until it has ended, also while it is terminating.
                let starts_early =
                    observed.policy.pod_replacement == Some(PodReplacement::TerminationStarted);
                let runs = |pod: &&Arc<Pod>| {
                    if starts_early { pod.is_active() } else { !pod.is_terminal() }
                };
                let running = pods.iter().filter(runs).count();
                observed.running_pods.insert(uid(), running);
            } else {
                observed.healthy_pods.insert(uid(), healthy_among(&pods, replica_set.min_ready_seconds, now));
            }
            pods.retain(|pod| {
                replica_set.replicas == 0 || !pod.is_available(replica_set.min_ready_seconds, now)
            });
            if !pods.is_empty() {
                observed.awaited_pods.insert(uid(), pods);
            }
        }
        Observed { owned, ..observed }
    }

    /// Counts of pods that only a policy asks for.
    fn gather_for_policy(
        &mut self,
        owned: &[Arc<ReplicaSet>],
        pods_of: impl Fn(&ReplicaSet) -> Vec<Arc<Pod>>,
    ) {
        let counts_ending = self.policy.terminates_first
            || self.policy.pod_replacement == Some(PodReplacement::TerminationComplete);
        if !counts_ending && self.policy.batch_delay.is_none() {
            return;
        }
        for replica_set in owned {
            let pods = pods_of(replica_set);
            let uid = || replica_set.meta.uid.clone();
            let terminating = count(pods.iter().filter(|pod| pod.is_terminating()));
            if terminating > 0 {
                self.terminating.insert(uid(), terminating);
            }
            let active = pods.iter().filter(|pod| pod.is_active());
            let latest = active.filter_map(|pod| pod.available_at(replica_set.min_ready_seconds)).max();
            self.latest_available.extend(latest.map(|latest| (uid(), latest)));
        }
    }

    /// The Deployment's ReplicaSets by role, without those that it is about to release. Computed once, so that every
    /// caller gets the same.
    pub fn replica_sets(&self) -> &ReplicaSets {
        self.roles.0.get_or_init(|| {
            let Observed { deployment, owned, .. } = self;
            let members = owned
                .iter()
                .filter(|replica_set| {
                    claim(*deployment, &deployment.selector, &replica_set.meta) == Claim::Keep
                })
                .cloned();
            ReplicaSets {
                healthy_pods: self.healthy_pods.clone(),
                ..ReplicaSets::assign(deployment, members)
            }
        })
    }
}

/// The ReplicaSets of a Deployment: the one with its template, and the others, oldest first.
#[derive(Clone, Debug, Default)]
pub struct ReplicaSets {
    /// The ReplicaSet with the Deployment's template.
    pub new: Option<Arc<ReplicaSet>>,
    /// All others, oldest first.
    pub old: Vec<Arc<ReplicaSet>>,
    /// See [`Observed::healthy_pods`].
    pub healthy_pods: BTreeMap<Uid, i64>,
}

impl ReplicaSets {
    /// Finds the roles. When several ReplicaSets have the template, the oldest is the new one, so that every
    /// observer picks the same and the choice never changes (S4).
    fn assign(deployment: &Deployment, members: impl Iterator<Item = Arc<ReplicaSet>>) -> Self {
        let mut old: Vec<Arc<ReplicaSet>> = members.collect();
        old.sort_by(|a, b| (a.meta.created, &a.meta.key).cmp(&(b.meta.created, &b.meta.key)));
        let at = old
            .iter()
            .position(|replica_set| replica_set.template.asks_for_the_same_as(&deployment.template));
        ReplicaSets { new: at.map(|at| old.remove(at)), old, healthy_pods: BTreeMap::new() }
    }

    /// The same with another ReplicaSet in the place of the new one; `None` without it.
    pub(super) fn exchanged(&self, target: &Uid) -> Option<Self> {
        let mut old: Vec<Arc<ReplicaSet>> = self.all().cloned().collect();
        let at = old.iter().position(|replica_set| &replica_set.meta.uid == target)?;
        let new = Some(old.remove(at));
        Some(ReplicaSets { new, old, healthy_pods: self.healthy_pods.clone() })
    }

    /// Every ReplicaSet, the new one last.
    pub fn all(&self) -> impl Iterator<Item = &Arc<ReplicaSet>> {
        self.old.iter().chain(&self.new)
    }

    /// Every ReplicaSet with `spec.replicas` above 0, the new one last.
    pub fn active(&self) -> impl Iterator<Item = &Arc<ReplicaSet>> {
        self.all().filter(|replica_set| replica_set.replicas > 0)
    }

    /// The sum of `spec.replicas` over all ReplicaSets.
    pub fn desired(&self) -> i64 {
        self.all().map(|replica_set| i64::from(replica_set.replicas)).sum()
    }

    /// The pods that are available and will still be after their ReplicaSet has been brought to its size.
    ///
    /// A ReplicaSet that was scaled down still reports its old pods for a moment. Upstream counts them, and can delete
    /// more than the budget allows.
    pub fn available(&self) -> i64 {
        self.all().map(|replica_set| i64::from(available(replica_set))).sum()
    }
}

/// The policy that the annotations of a Deployment ask for.
fn policy_of(deployment: &Deployment, now: Timestamp) -> Policy {
    let can_roll = deployment.strategy != Strategy::Recreate;
    Policy::of(Kind::Deployment, &deployment.annotations, can_roll, now)
}

/// Whether no pods move from one ReplicaSet to another.
pub(super) fn is_at_rest(replica_sets: &[Arc<ReplicaSet>]) -> bool {
    replica_sets.iter().filter(|replica_set| replica_set.replicas > 0).count() < 2
}

/// Corrects the status of each ReplicaSet that reports more than its pods show; returns whether there was one.
///
/// While pods move from one ReplicaSet to another, a ReplicaSet has no more of them than the cache of pods shows,
/// whatever its status reports: the status does not yet count a pod that was deleted or became unready a moment ago,
/// and an old pod that is deleted now would be one too many (S2).
fn correct_overstated(
    replica_sets: &mut [Arc<ReplicaSet>],
    pods_of: impl Fn(&ReplicaSet) -> Vec<Arc<Pod>>,
    now: Timestamp,
) -> bool {
    if is_at_rest(replica_sets) {
        return false;
    }
    let mut overstated = false;
    for replica_set in replica_sets.iter_mut().filter(|replica_set| replica_set.status.available > 0) {
        if let Some(status) = status_of_pods(replica_set, &pods_of(replica_set), now) {
            *replica_set = Arc::new(ReplicaSet { status, ..ReplicaSet::clone(replica_set) });
            overstated = true;
        }
    }
    overstated
}

/// How many of these pods are [`healthy`].
fn healthy_among(pods: &[Arc<Pod>], min_ready_seconds: i32, now: Timestamp) -> i64 {
    let ready = pods.iter().filter(|pod| pod.is_active() && pod.ready_since.is_some());
    let available = ready.clone().filter(|pod| pod.is_available(min_ready_seconds, now));
    healthy(count(ready), count(available))
}

fn count<'a>(pods: impl Iterator<Item = &'a Arc<Pod>>) -> i64 {
    i64::try_from(pods.count()).unwrap_or(i64::MAX)
}

/// Whether a ReplicaSet has fewer available pods than `spec.replicas`, by its own status: only then are its pods
/// read for an explanation.
pub fn lacks_pods(replica_set: &ReplicaSet) -> bool {
    available(replica_set) < replica_set.replicas
}

/// The available pods that a ReplicaSet certainly has once it has been brought to its size.
///
/// None while the status reports another generation: a ReplicaSet that was scaled down and then up again may have
/// lost pods that its status still counts. The price is to wait for one status write. (A generation that is too high
/// was written by another client, and says nothing of the counts; the ReplicaSet controller corrects it.) And the pods
/// that a ReplicaSet still has to delete need not be the unavailable ones: among ready pods the deletion cost and the
/// number of pods on a node outrank their age, so one that is not ready for long enough may stay in place of one that
/// is. For example 10 ready, 9 of them available, scaled down to 4: 3.
pub(crate) fn available(replica_set: &ReplicaSet) -> i32 {
    let (size, status) = (i64::from(replica_set.replicas), &replica_set.status);
    if status.observed_generation != replica_set.meta.generation {
        return 0;
    }
    let not_for_long = i64::from(status.ready).max(status.available.into()) - i64::from(status.available);
    let shrinks = i64::from(status.replicas) > size || i64::from(status.available) > size;
    let sure = if shrinks { size - not_for_long } else { size };
    clamp(sure.min(status.available.into()).max(0))
}

/// How many of a ReplicaSet's pods are not deleted before the others: those that are ready. Those that are ready, but
/// not for long enough, are as good as available ones, unless available ones exist that could be deleted instead.
pub fn healthy(ready: i64, available: i64) -> i64 {
    if available > 0 { ready.max(available) } else { 0 }
}

/// The replicas that a ReplicaSet can lose without losing an available pod: those that are not [`healthy`] come first.
///
/// The higher count of the status and of the cache of pods, since neither shows more than exist: a pod that has
/// become ready since is healthy before the status counts it, and deleted as an unhealthy one it would be missing (S2).
pub(crate) fn unhealthy_replicas(replica_set: &ReplicaSet, replica_sets: &ReplicaSets) -> i64 {
    let reported = healthy(replica_set.status.ready.into(), replica_set.status.available.into());
    let shown = replica_sets.healthy_pods.get(&replica_set.meta.uid).copied().unwrap_or(0);
    (i64::from(replica_set.replicas) - reported.max(shown)).max(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Interner, Record};

    fn decode<T: Record>(json: &str) -> T {
        T::decode(json, &mut Interner::default()).unwrap()
    }

    fn deployment(strategy: &str) -> Deployment {
        decode(&format!(
            r#"{{"metadata":{{"name":"web","namespace":"shop","uid":"u","resourceVersion":"1"}},
                "spec":{{"selector":{{"matchLabels":{{"a":"b"}}}},"template":{{}},"strategy":{{"type":"{strategy}"}}}}}}"#
        ))
    }

    /// A ReplicaSet of two whose status reports both as available.
    fn replica_set(name: &str) -> Arc<ReplicaSet> {
        Arc::new(decode(&format!(
            r#"{{"metadata":{{"name":"{name}","namespace":"shop","uid":"{name}","resourceVersion":"1","generation":1,
                "labels":{{"a":"b"}}}},"spec":{{"replicas":2,"selector":{{}},"template":{{}}}},
                "status":{{"replicas":2,"readyReplicas":2,"availableReplicas":2,"observedGeneration":1}}}}"#
        )))
    }

    fn pod(name: &str, phase: &str, ready: &str, more: &str) -> Arc<Pod> {
        Arc::new(decode(&format!(
            r#"{{"metadata":{{"name":"{name}","namespace":"shop","uid":"{name}","resourceVersion":"1"{more}}},
                "status":{{"phase":"{phase}","conditions":[{{"type":"Ready","status":"{ready}",
                    "lastTransitionTime":"2026-01-01T00:00:00Z"}}]}}}}"#
        )))
    }

    const NOW: &str = "2026-01-01T01:00:00Z";

    fn gathered<'a>(
        deployment: &'a Deployment,
        replica_sets: &[&str],
        pods: impl Fn(&str) -> Vec<Arc<Pod>>,
    ) -> Observed<'a> {
        let owned = replica_sets.iter().map(|name| replica_set(name)).collect();
        let pods_of = |replica_set: &ReplicaSet| pods(&replica_set.meta.key.name);
        Observed::gather(deployment, owned, Vec::new(), false, pods_of, NOW.parse().unwrap())
    }

    fn ready(name: &str) -> Arc<Pod> {
        pod(name, "Running", "True", "")
    }

    #[test]
    fn while_pods_move_a_status_counts_no_more_pods_than_there_are() {
        let web = deployment("RollingUpdate");
        let one_lost = |name: &str| match name {
            "old" => vec![ready("a"), pod("b", "Running", "False", "")],
            _ => vec![ready("c"), ready("d")],
        };
        let observed = gathered(&web, &["old", "new"], one_lost);
        let counts: Vec<_> = observed
            .owned
            .iter()
            .map(|replica_set| (replica_set.status.ready, replica_set.status.available))
            .collect();
        assert_eq!((observed.is_overstated, &counts[..]), (true, &[(1, 1), (2, 2)][..]));
        let at_rest = gathered(&web, &["old"], one_lost);
        assert_eq!((at_rest.is_overstated, at_rest.owned[0].status.ready), (false, 2), "nothing moves");
        let whole = gathered(&web, &["new", "newer"], one_lost);
        assert!(!whole.is_overstated);
    }

    #[test]
    fn the_pods_of_a_replica_set_that_lacks_some_are_counted_from_the_cache_of_pods() {
        let web = deployment("RollingUpdate");
        let pods =
            |_: &str| vec![ready("a"), pod("b", "Running", "False", ""), pod("c", "Failed", "False", "")];
        let observed = gathered(&web, &["old", "new"], pods);
        assert_eq!(observed.healthy_pods, [(Uid::new("old"), 1), (Uid::new("new"), 1)].into());
        let awaited: Vec<usize> = observed.awaited_pods.values().map(Vec::len).collect();
        assert_eq!((awaited, observed.running_pods.len()), (vec![2, 2], 0));
    }

    #[test]
    fn recreate_waits_for_every_pod_that_has_not_ended() {
        let web = deployment("Recreate");
        let leaving = r#","deletionTimestamp":"2026-01-01T00:30:00Z""#;
        let pods = |_: &str| {
            vec![ready("a"), pod("b", "Failed", "False", ""), pod("c", "Running", "False", leaving)]
        };
        let observed = gathered(&web, &["old"], pods);
        assert_eq!(observed.running_pods, [(Uid::new("old"), 2)].into());
        assert!(observed.healthy_pods.is_empty() && !observed.is_overstated);
    }

    #[test]
    fn the_roles_are_found_once_and_a_copy_finds_its_own() {
        let web = deployment("RollingUpdate");
        let observed = gathered(&web, &[], |_| Vec::new());
        assert!(std::ptr::eq(observed.replica_sets(), observed.replica_sets()));
        let mut other = observed.clone();
        other.owned.push(replica_set("web-1"));
        assert_eq!(
            (observed.replica_sets().all().count(), other.replica_sets().all().count()),
            (0, 0),
            "it is not ours"
        );
        assert!(!std::ptr::eq(observed.replica_sets(), other.replica_sets()));
    }
}
