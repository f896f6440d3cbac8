//! How many pods to create or delete, which, and what to report (upstream: `replica_set.go`).

pub mod deletion_order;
pub mod failed_pod_backoff;
pub mod kept_failed_pods;
pub mod names;
pub mod new_pod;
pub mod pod_sets;
pub mod slow_start;
pub mod status;
pub mod used_names;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::EventNote;
use super::policy::Policy;
use crate::model::{Pod, Record, ReplicaSet};
use failed_pod_backoff::FailedPodBackoff;
use names::Sequence;
pub use pod_sets::PodSets;
use used_names::UsedNames;

/// The most pods that one sync creates or deletes, so that one large ReplicaSet does not starve the others.
pub const BURST: usize = 500;

/// The input of one decision about a ReplicaSet.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// The ReplicaSet.
    pub replica_set: &'a ReplicaSet,
    /// Its pods, and those that it might adopt.
    pub pod_sets: PodSets,
    /// Whether a fresh read showed the ReplicaSet with the same identity and not being deleted. Only then may an orphan
    /// be adopted (S15). Read only where there are orphans; if the read failed, the plan is empty (S17).
    pub may_adopt: bool,
    /// Active pods of the other ReplicaSets with the same owner, for the co-location rank.
    pub siblings: Vec<Arc<Pod>>,
    /// Names for new pods, by [`choose_names`]; empty when none are missing.
    pub free_names: Vec<String>,
    /// How many pods earlier requests may still create, under names that are taken for the moment, and how many pods exist
    /// that cannot be decoded: as many places are kept free for them.
    pub reserved: usize,
    /// Whether pods that fail at startup are replaced one by one, after a wait. Upstream
    /// replaces them all at once.
    pub failed_pod_backoff: bool,
    /// The policy of its annotations ([`kept_failed_pods::policy_of`]).
    pub policy: Policy,
    /// The time of the decision.
    pub now: Timestamp,
}

/// The plan for one reconcile of a ReplicaSet: writes in order, and events.
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use = "a plan changes nothing until it is executed"]
pub struct Plan {
    /// Writes, in order; the first that fails ends the execution.
    pub writes: Vec<Write>,
    /// Events besides those of the writes.
    pub notes: Vec<EventNote>,
    /// Events about the policy. Each is recorded once per generation.
    pub policy_notes: Vec<EventNote>,
    /// When pods may be created, or failed ones deleted, that may not be now.
    pub requeue_after: Option<Duration>,
}

impl Plan {
    /// Whether pods are created.
    pub fn creates(&self) -> bool {
        self.writes.iter().any(|write| matches!(write, Write::Create { .. }))
    }

    /// Whether the plan is the same whatever pods other ReplicaSets have: which pods are deleted depends on how many
    /// pods their nodes run.
    pub fn compares_no_siblings(&self) -> bool {
        !self.writes.iter().any(|write| matches!(write, Write::Delete(_)))
    }

    /// Whether pods are created or deleted, and fewer than a sync may: no other sync is needed for that.
    pub fn changes_fewer_than_a_burst(&self) -> bool {
        self.writes.iter().any(|write| match write {
            Write::Create { count, .. } => *count < BURST,
            Write::Delete(pods) => pods.len() < BURST,
            Write::Adopt(_) | Write::Release(_) | Write::DeleteFailed(_) => false,
        })
    }
}

/// One write to the pods of a ReplicaSet.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// Adopt an orphan.
    Adopt(Arc<Pod>),
    /// Release a pod whose labels no longer match.
    Release(Arc<Pod>),
    /// Create pods, in slow-start batches.
    Create {
        /// How many.
        count: usize,
        /// Their names. Behind the first `count` are some spare ones, for names that prove to be taken.
        names: Vec<String>,
    },
    /// Delete these pods, in this order.
    Delete(Vec<Arc<Pod>>),
    /// Delete these failed pods, which count towards no size.
    DeleteFailed(Vec<Arc<Pod>>),
}

impl Write {
    /// Whether it adds or removes an owner reference.
    pub fn is_claim(&self) -> bool {
        matches!(self, Write::Adopt(_) | Write::Release(_))
    }
}

/// Whether the ReplicaSet itself shows that work is left: its latest generation is not observed,
/// or it did not have `spec.replicas` pods when its status was written.
pub fn is_unsettled(replica_set: &ReplicaSet) -> bool {
    let (wanted, status) = (replica_set.replicas, &replica_set.status);
    status.observed_generation != replica_set.meta.generation || status.replicas != wanted
}

fn desired(replica_set: &ReplicaSet) -> usize {
    usize::try_from(replica_set.replicas).unwrap_or(0)
}

/// Whether the ReplicaSet has more active pods than `spec.replicas`: then the caller reads the siblings' pods too.
pub fn is_too_large(replica_set: &ReplicaSet, pod_sets: &PodSets) -> bool {
    pod_sets.active.len() + pod_sets.orphans.len() > desired(replica_set)
}

/// How many spare names are chosen.
const SPARE_NAMES: usize = 8;

/// The names for the pods that an owner lacks, and some to spare: the first of its own sequence that no pod is
/// known to have had (S25), and that no pod has, be it one of the `pod_sets` or another, by `is_foreign`. `late`
/// names come first, wherever they are in the sequence: an earlier request may still create a pod under them, and
/// another name would then give a pod too many.
///
/// A pod of ours that came into the cache after the members were read does not count. The number of
/// missing pods was computed without it, so that its name must be requested once more, and be found taken.
fn first_free<'p>(
    sequence: &Sequence,
    active: usize,
    to_create: usize,
    pods: impl Iterator<Item = &'p Arc<Pod>>,
    late: &BTreeSet<String>,
    used: &UsedNames,
    mut is_foreign: impl FnMut(&str) -> bool,
) -> Vec<String> {
    if to_create == 0 {
        return Vec::new();
    }
    let ours: BTreeSet<&str> = pods.map(|pod| &*pod.meta.key.name).collect();
    // More than the names that another process keeps places for.
    let skipped = if planted!("pod names depend on what the cache shows") { active * 40 } else { 0 };
    let others = used.unused().skip(skipped).map(|position| sequence.name(position));
    let others = others.filter(|name| !late.contains(name));
    let names = late.iter().cloned().chain(others);
    names
        .filter(|name| !ours.contains(name.as_str()) && !is_foreign(name))
        .take(to_create + SPARE_NAMES)
        .collect()
}

/// The names for the pods that a ReplicaSet lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChosenNames {
    /// In the order of their use.
    pub free: Vec<String>,
    /// For how many pods places are kept for earlier requests.
    pub reserved: usize,
    /// Names that would have been chosen, but that pods of other owners have. They must be recorded as used: such a
    /// pod may be one of the ReplicaSet's that was released, and its name would be free after its deletion.
    pub foreign: Vec<String>,
}

/// Chooses names for new pods. `late` are the names that an earlier request may still use, and `pod_named` finds a
/// pod of the namespace in the cache.
pub fn choose_names(
    replica_set: &ReplicaSet,
    pod_sets: &PodSets,
    late: BTreeSet<String>,
    used: &UsedNames,
    pod_named: impl Fn(&str) -> Option<Arc<Pod>>,
) -> ChosenNames {
    let to_create = desired(replica_set).saturating_sub(pod_sets.active.len()).min(BURST);
    let sequence = Sequence::of(&replica_set.meta.key.name, &replica_set.meta.uid);
    let is_ours = |pod: &Pod| replica_set.controls(&pod.meta);
    choose(&sequence, pod_sets.active.len(), to_create, pod_sets.all(), is_ours, late, used, pod_named)
}

/// The same for any owner: `to_create` names of its sequence, that none of its pods has.
#[expect(clippy::too_many_arguments, reason = "each is a fact of its own")]
pub fn choose<'p>(
    sequence: &Sequence,
    active: usize,
    to_create: usize,
    pods: impl Iterator<Item = &'p Arc<Pod>>,
    is_ours: impl Fn(&Pod) -> bool,
    late: BTreeSet<String>,
    used: &UsedNames,
    pod_named: impl Fn(&str) -> Option<Arc<Pod>>,
) -> ChosenNames {
    let was_had = |name: &str| sequence.position(name).is_some_and(|position| used.is_used(position));
    // A late request may still create a pod under a name that must not, or cannot now, be requested again. A foreign pod
    // keeps it from that only until it is deleted, at any moment: the place costs two minutes, a surplus pod is worse.
    let is_kept = |name: &&String| match pod_named(name) {
        Some(pod) => !(pod.is_active() && is_ours(&pod)),
        None => was_had(name),
    };
    let reserved = late.iter().filter(is_kept).count() + used.in_doubt();
    let late = late.into_iter().filter(|name| !was_had(name)).collect();
    let mut foreign = Vec::new();
    let is_foreign = |name: &str| {
        let is_foreign = pod_named(name).is_some_and(|pod| !is_ours(&pod));
        foreign.extend(is_foreign.then(|| name.to_owned()));
        is_foreign
    };
    let free = first_free(sequence, active, to_create, pods, &late, used, is_foreign);
    ChosenNames { free, reserved, foreign }
}

/// How many of the missing pods are created, without the places that are kept for earlier requests, and without those
/// that are held back because as many pods failed at startup.
fn to_create(lacking: usize, reserved: usize, held_back: usize) -> usize {
    lacking.saturating_sub(reserved).saturating_sub(held_back).min(BURST)
}

/// Decides.
pub fn plan(observed: &Observed<'_>) -> Plan {
    let Observed {
        replica_set,
        pod_sets,
        may_adopt,
        siblings,
        free_names,
        reserved,
        failed_pod_backoff,
        policy,
        now,
    } = observed;
    let create = |count| Write::Create { count, names: free_names.clone() };
    let mut plan = Plan { policy_notes: policy.notes(), ..Plan::default() };
    // A pod that the selector does not match would be released as soon as it is created, and created again.
    let defective = replica_set.selector.selects_everything()
        || !replica_set.selector.matches(&replica_set.template.labels);
    // The ReplicaSet was read because of an orphan, and is gone or being deleted, which the cache will show soon.
    // `kubectl delete rs --cascade=orphan` looks like this from a cache of ReplicaSets that lags behind the one of
    // pods: every pod that has just lost its owner would be created once more (S17).
    let outlived = !pod_sets.orphans.is_empty() && !may_adopt;
    if replica_set.meta.is_deleting() || defective || outlived {
        return plan;
    }

    let orphans = &pod_sets.orphans;
    plan.writes.extend(pod_sets.to_release.iter().cloned().map(Write::Release));
    plan.writes.extend(orphans.iter().cloned().map(Write::Adopt));
    let (have, desired) = (pod_sets.active.len() + orphans.len(), desired(replica_set));
    if have < desired {
        let lacking = desired - have;
        let mut held_back = 0;
        if let Some(backoff) = FailedPodBackoff::of(pod_sets, *now).filter(|_| *failed_pod_backoff)
            && lacking > *reserved
        {
            // The replacements of the failed pods wait. Others that are missing may fit on other nodes.
            held_back = backoff.failures;
            plan.requeue_after = backoff.wait(*now);
            match plan.requeue_after {
                None => held_back = held_back.min(lacking - *reserved) - 1,
                Some(_) => plan.notes.push(backoff.note()),
            }
        }
        let to_create = to_create(lacking, *reserved, held_back);
        plan.writes.extend((to_create > 0).then(|| create(to_create)));
    } else if have > desired {
        let all: Vec<&Arc<Pod>> = pod_sets.active.iter().chain(orphans).collect();
        let to_delete = (have - desired).min(BURST);
        let siblings = deletion_order::counts_neighbours(replica_set).then_some(&siblings[..]);
        plan.writes.push(Write::Delete(deletion_order::first_to_delete(&all, siblings, to_delete, *now)));
    }
    let kept_failed_pods::Surplus { delete, next } = kept_failed_pods::surplus(observed);
    plan.writes.extend((!delete.is_empty()).then_some(Write::DeleteFailed(delete)));
    plan.requeue_after = plan.requeue_after.into_iter().chain(next.map(|at| status::until(at, *now))).min();
    plan
}

#[cfg(test)]
mod tests {
    use super::used_names::Between;
    use super::*;

    fn free_names(
        replica_set: &ReplicaSet,
        pod_sets: &PodSets,
        late: &BTreeSet<String>,
        used: &UsedNames,
        is_foreign: impl FnMut(&str) -> bool,
    ) -> Vec<String> {
        let sequence = Sequence::of(&replica_set.meta.key.name, &replica_set.meta.uid);
        let active = pod_sets.active.len();
        let to_create = desired(replica_set).saturating_sub(active).min(BURST);
        first_free(&sequence, active, to_create, pod_sets.all(), late, used, is_foreign)
    }
    use crate::model::{Interner, Uid};

    fn replica_set(replicas: i32) -> ReplicaSet {
        let json = format!(
            r#"{{"metadata":{{"name":"web","namespace":"shop","uid":"u","resourceVersion":"7"}},
                "spec":{{"replicas":{replicas},"selector":{{"matchLabels":{{"a":"b"}}}},
                         "template":{{"metadata":{{"labels":{{"a":"b"}}}}}}}}}}"#
        );
        ReplicaSet::decode(&json, &mut Interner::default()).unwrap()
    }

    fn pod(name: &str, more: &str) -> Arc<Pod> {
        let json = format!(
            r#"{{"metadata":{{"name":"{name}","namespace":"shop","uid":"{name}","resourceVersion":"1",
                "creationTimestamp":"2026-01-01T00:00:00Z"{more}}}}}"#
        );
        Arc::new(Pod::decode(&json, &mut Interner::default()).unwrap())
    }

    const OURS: &str = r#","ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":"u","controller":true}]"#;

    fn observed(replica_set: &ReplicaSet, pod_sets: PodSets) -> Observed<'_> {
        let free_names =
            free_names(replica_set, &pod_sets, &BTreeSet::new(), &UsedNames::default(), |_| false);
        let now = "2026-01-01T01:00:00Z".parse().unwrap();
        Observed {
            replica_set,
            pod_sets,
            may_adopt: false,
            siblings: Vec::new(),
            free_names,
            reserved: 0,
            failed_pod_backoff: true,
            policy: kept_failed_pods::policy_of(replica_set),
            now,
        }
    }

    #[test]
    fn a_replica_set_with_an_unobserved_generation_or_missing_pods_is_unsettled() {
        let mut replica_set = replica_set(3);
        replica_set.status.replicas = 3;
        assert!(!is_unsettled(&replica_set));
        replica_set.meta.generation += 1;
        assert!(is_unsettled(&replica_set), "resized");
        replica_set.status.observed_generation = replica_set.meta.generation;
        replica_set.status.replicas = 2;
        assert!(is_unsettled(&replica_set), "a pod is missing");
    }

    #[test]
    fn deletions_depend_on_the_pods_of_siblings_and_creations_do_not() {
        let replica_set = replica_set(1);
        let owned = ["a", "b"].map(|name| pod(name, &format!(r#"{OURS},"labels":{{"a":"b"}}"#)));
        let two = PodSets::of(&replica_set, owned.to_vec(), Vec::new());
        assert!(!plan(&observed(&replica_set, two)).compares_no_siblings());
        let creating = plan(&observed(&replica_set, PodSets::default()));
        assert!(creating.creates() && creating.compares_no_siblings());
    }

    #[test]
    fn a_replica_set_that_a_fresh_read_found_deleted_gets_no_pods() {
        let replica_set = replica_set(3);
        let orphan = pod("orphan", r#","labels":{"a":"b"}"#);
        let observed = observed(&replica_set, PodSets::of(&replica_set, Vec::new(), vec![orphan]));
        assert_eq!(plan(&observed).writes, []);
        let adopting = plan(&Observed { may_adopt: true, ..observed });
        assert!(matches!(&adopting.writes[..], [Write::Adopt(_), Write::Create { count: 2, .. }]));
    }

    #[test]
    fn a_name_that_an_earlier_request_may_still_use_is_requested_first() {
        let (replica_set, used) = (replica_set(2), UsedNames::default());
        let first = free_names(&replica_set, &PodSets::default(), &BTreeSet::new(), &used, |_| false);
        let late = BTreeSet::from([first[5].clone(), first[3].clone()]);
        let names = |foreign: &str| {
            free_names(&replica_set, &PodSets::default(), &late, &used, |name| name == foreign)
        };
        assert_eq!(names("")[..2].iter().cloned().collect::<BTreeSet<_>>(), late);
        assert_eq!(names("")[2..4], first[..2]);
        assert_eq!(names("").iter().collect::<BTreeSet<_>>().len(), 2 + SPARE_NAMES);
        assert_eq!(names(&first[5])[..2], [&first[3], &first[0]].map(String::clone));
    }

    /// The names that are chosen for a ReplicaSet of three that has these pods.
    fn chosen(pods: &[&str], used: &UsedNames) -> Vec<String> {
        let owned = pods.iter().map(|name| pod(name, &format!(r#"{OURS},"labels":{{"a":"b"}}"#))).collect();
        let replica_set = replica_set(3);
        free_names(
            &replica_set,
            &PodSets::of(&replica_set, owned, Vec::new()),
            &BTreeSet::new(),
            used,
            |_| false,
        )
    }

    #[test]
    fn the_name_of_a_deleted_pod_is_not_used_again() {
        let (mut used, sequence) = (UsedNames::default(), Sequence::of("web", &Uid::new("u")));
        let names = chosen(&[], &used)[..3].to_vec();
        for name in &names {
            let at = sequence.position(name).unwrap();
            used.requested(at);
            used.had(at, Between::Free);
        }
        // The one in the middle was deleted by force, or all of them.
        assert_eq!(chosen(&[&names[0], &names[2]], &used)[0], sequence.name(3));
        assert_eq!(chosen(&[], &used)[..2], [sequence.name(3), sequence.name(4)]);
        // After a restart, with an existing pod of a later name.
        let at = |name: &String| (sequence.position(name).unwrap(), false);
        let restarted = UsedNames::of([at(&names[2])]);
        assert_eq!(chosen(&[&names[2]], &restarted)[0], sequence.name(3));
    }

    #[test]
    fn a_creation_whose_reply_was_lost_is_retried_under_the_same_name() {
        let (mut used, sequence) = (UsedNames::default(), Sequence::of("web", &Uid::new("u")));
        let names = chosen(&[], &used)[..3].to_vec();
        names.iter().for_each(|name| used.requested(sequence.position(name).unwrap()));
        for made in [0, 2] {
            used.had(sequence.position(&names[made]).unwrap(), Between::Free);
        }
        assert_eq!(chosen(&[&names[0], &names[2]], &used)[0], names[1]);
    }

    #[test]
    fn places_are_kept_for_earlier_requests_whose_names_are_taken_for_the_moment() {
        let replica_set = replica_set(3);
        let observed = Observed { reserved: 2, ..observed(&replica_set, PodSets::default()) };
        assert!(matches!(&plan(&observed).writes[..], [Write::Create { count: 1, .. }]));
        assert_eq!(plan(&Observed { reserved: 5, ..observed }).writes, []);
    }

    #[test]
    fn a_place_is_kept_for_a_late_request_unless_its_pod_exists_or_its_name_is_requested_again() {
        let (replica_set, sequence) = (replica_set(3), Sequence::of("web", &Uid::new("u")));
        let [ours, foreign, gone, free] = [0, 1, 2, 3].map(|at| sequence.name(at));
        let mut used = UsedNames::default();
        used.requested(2);
        used.had(2, Between::Free);
        let late = BTreeSet::from([ours.clone(), foreign.clone(), gone.clone(), free.clone()]);
        let pod_named = |name: &str| match name {
            name if name == ours => Some(pod(name, OURS)),
            name if name == foreign => Some(pod(name, "")),
            _ => None,
        };
        let chosen = choose_names(&replica_set, &PodSets::default(), late, &used, pod_named);
        assert_eq!(chosen.reserved, 2, "under a name that is another's, and under one that a pod has had");
        let names = chosen.free;
        assert!(names.contains(&free) && !names.contains(&gone) && !names.contains(&foreign), "{names:?}");
    }

    #[test]
    fn the_name_of_a_released_pod_is_reported_and_not_chosen_after_its_deletion() {
        let (replica_set, sequence) = (replica_set(3), Sequence::of("web", &Uid::new("u")));
        let ours = [0, 1].map(|at| pod(&sequence.name(at), &format!(r#"{OURS},"labels":{{"a":"b"}}"#)));
        let pod_sets = PodSets::of(&replica_set, ours.to_vec(), Vec::new());
        // A process that was restarted knows the third pod only as one of another owner.
        let mut used = UsedNames::of([0, 1].map(|at| (at, false)));
        let taken = pod(&sequence.name(2), &OURS.replace(r#""uid":"u""#, r#""uid":"another-owner""#));
        let shown = |name: &str| (*name == *taken.meta.key.name).then(|| taken.clone());
        let chosen = choose_names(&replica_set, &pod_sets, BTreeSet::new(), &used, shown);
        assert_eq!((&chosen.free[0], &chosen.foreign[..]), (&sequence.name(3), &[sequence.name(2)][..]));
        for name in &chosen.foreign {
            used.had(sequence.position(name).unwrap(), Between::Free);
        }
        used.requested(3);
        used.had(3, Between::Free);
        let chosen = choose_names(&replica_set, &pod_sets, BTreeSet::new(), &used, |_| None);
        assert_eq!((&chosen.free[0], &chosen.foreign[..]), (&sequence.name(4), &[][..]));
    }

    #[test]
    fn a_terminating_pod_that_is_no_longer_selected_is_not_counted() {
        let replica_set = replica_set(0);
        let deleting = r#","deletionTimestamp":"2026-01-01T00:30:00Z""#;
        let owned = vec![
            pod("a", &format!(r#"{OURS}{deleting},"labels":{{"a":"b"}}"#)),
            pod("b", &format!(r#"{OURS}{deleting},"labels":{{"a":"other"}}"#)),
        ];
        let observed = observed(&replica_set, PodSets::of(&replica_set, owned, Vec::new()));
        assert_eq!(status::settle(&observed, None).status.terminating, Some(1));
    }
}
