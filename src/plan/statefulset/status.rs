//! The status of a StatefulSet (upstream: `updateStatefulSet`, `completeRollingUpdate`).

use std::sync::Arc;

use jiff::Timestamp;

use super::ordinals::{self, Ordinal};
use super::revisions::History;
use super::{Observed, Plan, members, most_unavailable};
use crate::model::int_or_percent::clamp;
use crate::model::{Condition, Pod, StatefulSet, StatefulSetStatus, StatefulSetStrategy};
use crate::plan::{REPLICA_FAILURE, Urgency};

/// The outcome of a plan, as far as the status depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The `collisionCount` after the name of a new revision was found taken.
    pub collision: Option<i32>,
    /// Whether the revision of the template was not created, so that its generation has not been acted on.
    pub without_revision: bool,
}

/// The numbers of a status. Each pod adds its part.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    replicas: i64,
    ready: i64,
    available: i64,
    current: i64,
    updated: i64,
    /// Pods in range that are updated, available and not being deleted.
    complete: i64,
    /// When the next ready pod will have been ready for `minReadySeconds`.
    pub next_available: Option<Timestamp>,
}

impl Counts {
    /// Counts a pod.
    pub(super) fn add(
        &mut self,
        observed: &Observed<'_>,
        history: &History<'_>,
        ordinal: Ordinal,
        pod: &Pod,
    ) {
        let (is_ready, is_available) =
            (members::is_ready(pod), members::is_available(observed.set, pod, observed.now));
        let is_deleting = pod.meta.is_deleting();
        let is_updated = !is_deleting && history.is_updated(pod);
        self.replicas += 1;
        self.ready += i64::from(is_ready);
        self.available += i64::from(is_available);
        self.current += i64::from(!is_deleting && history.is_current(pod));
        self.updated += i64::from(is_updated);
        let is_in_range = ordinals::wanted(observed.set).contains(&i64::from(ordinal));
        self.complete += i64::from(is_updated && is_available && is_in_range);
        if is_ready
            && !is_available
            && let Some(at) = pod.available_at(observed.set.min_ready_seconds)
        {
            self.next_available = Some(self.next_available.map_or(at, |next| next.min(at)));
        }
    }

    /// A pod is deleted for its template: it counts no more, if it was counted.
    pub(super) fn deleted(&mut self, history: &History<'_>, pod: &Pod) {
        self.current -= i64::from(history.is_current(pod));
    }

    /// Whether there are as many pods as are wanted, all of them updated and available.
    pub(super) fn is_complete(&self, set: &StatefulSet) -> bool {
        self.complete == self.replicas && self.replicas == i64::from(set.replicas)
    }

    /// The status. The update revision becomes the current one once the update is complete, whatever its strategy
    /// (kubernetes#73492, #136831).
    pub(super) fn status(&self, observed: &Observed<'_>, history: &History<'_>) -> StatefulSetStatus {
        let set = observed.set;
        let is_complete = self.is_complete(set);
        let current = if is_complete { self.updated } else { self.current };
        StatefulSetStatus {
            observed_generation: set.meta.generation,
            replicas: clamp(self.replicas),
            ready: clamp(self.ready),
            available: clamp(self.available),
            current: clamp(current),
            updated: clamp(self.updated),
            current_revision: if is_complete { &history.update_name } else { &history.current_name }.clone(),
            update_revision: history.update_name.clone(),
            // Zero is written, too, as upstream writes it.
            collision_count: Some(set.status.collision_count.unwrap_or(0)),
            conditions: conditions(observed, history),
        }
    }
}

/// The status of a StatefulSet that is being deleted: it gets no new revision, and none changes its role. Its generation is
/// observed if there is a revision of it.
pub(super) fn while_deleting(
    observed: &Observed<'_>,
    history: &History<'_>,
    counts: &Counts,
) -> StatefulSetStatus {
    let before = &observed.set.status;
    let status = counts.status(observed, history);
    let is_known = history.has_update();
    StatefulSetStatus {
        observed_generation: if is_known { status.observed_generation } else { before.observed_generation },
        current: clamp(counts.current),
        current_revision: before.current_revision.clone(),
        update_revision: before.update_revision.clone(),
        ..status
    }
}

/// The longest name whose pods can have their label.
const LONGEST_NAME: usize = 52;

/// The reason why no pod can be created at all: the label of its revision would be too long (kubernetes#64023).
pub(super) fn too_long(set: &StatefulSet, history: &History<'_>) -> Option<String> {
    let excess = history.label_excess();
    (excess > 0).then(|| {
        format!(
            "the name of the StatefulSet has {} characters, and the label controller-revision-hash of its pods would \
             be {excess} too long: use a name of at most {LONGEST_NAME}",
            set.meta.key.name.len()
        )
    })
}

/// Our one condition. All others belong to other writers.
fn conditions(observed: &Observed<'_>, history: &History<'_>) -> Vec<Condition> {
    let before = observed.set.status.conditions.first();
    let Some(message) = too_long(observed.set, history) else { return Vec::new() };
    let new = Condition::new(REPLICA_FAILURE, "True", "NameTooLong", message, observed.now);
    let is_known = |before: &&Condition| before.message == new.message && before.reason == new.reason;
    vec![before.filter(is_known).cloned().unwrap_or(Condition { last_update: None, ..new })]
}

/// The status after the execution of a plan.
pub fn settled(set: &StatefulSet, plan: &Plan, outcome: Outcome) -> StatefulSetStatus {
    let mut after = match &plan.status {
        Some(planned) if !outcome.without_revision => planned.clone(),
        _ => set.status.clone(),
    };
    after.collision_count = outcome.collision.or(after.collision_count);
    after
}

/// How soon the status must be written: at once for what others wait for (a generation is observed, a revision changes its
/// role, the update is complete but for what the partition holds back); else within a second. Two processes whose caches
/// differ would write in turn as fast as they can.
///
/// While an update replaces pods, their counts change four times for each and are gathered, unless more pods are unavailable
/// than the update itself may take.
pub fn urgency(set: &StatefulSet, after: &StatefulSetStatus) -> Urgency {
    let before = &set.status;
    let of_new_template = set.replicas.saturating_sub(held_back(set)).max(0);
    let is_over = |status: &StatefulSetStatus| {
        [status.replicas, status.available].iter().all(|count| *count == set.replicas)
            && status.updated >= of_new_template
    };
    let roles = |status: &StatefulSetStatus| -> [Arc<str>; 2] {
        [status.current_revision.clone(), status.update_revision.clone()]
    };
    // Without `rollingUpdate` the count says with which template the next missing pod is created.
    let decides = matches!(set.strategy, StatefulSetStrategy::RollingUpdate { partition: None, .. });
    let is_urgent = before.observed_generation != after.observed_generation
        || (decides && before.current != after.current)
        || before.collision_count != after.collision_count
        || before.conditions != after.conditions
        || roles(before) != roles(after)
        || (is_over(after) && !is_over(before));
    let unavailable = i64::from(set.replicas) - i64::from(after.available);
    let is_rolling = match set.strategy {
        StatefulSetStrategy::RollingUpdate { max_unavailable, .. } => {
            after.current_revision != after.update_revision
                && !is_over(after)
                && unavailable <= most_unavailable(set, max_unavailable)
        }
        StatefulSetStrategy::OnDelete => false,
    };
    match () {
        () if is_urgent => Urgency::Immediate,
        () if is_rolling => Urgency::Gathered,
        () => Urgency::Throttled,
    }
}

/// Whether a StatefulSet is rolled out: all pods are there and available, no other counts, and those that the partition
/// does not hold back have the new template. With `OnDelete` that is once a user has deleted all older pods.
pub fn is_rolled_out(set: &StatefulSet) -> bool {
    let status = &set.status;
    let of_new_template = set.replicas.saturating_sub(held_back(set)).max(0);
    status.observed_generation >= set.meta.generation
        && status.replicas == set.replicas
        && status.available == set.replicas
        && status.updated >= of_new_template
}

/// How many pods the partition keeps on the older template.
pub fn held_back(set: &StatefulSet) -> i32 {
    match set.strategy {
        StatefulSetStrategy::RollingUpdate { partition, .. } => partition.unwrap_or(0).min(set.replicas),
        StatefulSetStrategy::OnDelete => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ControllerRevision, Interner, Record};
    use crate::plan::revisions::data;
    use crate::plan::statefulset::{Members, plan};

    const OWNER: &str = r#""ownerReferences":[{"apiVersion":"apps/v1","kind":"StatefulSet","name":"db","uid":"u","controller":true}]"#;

    /// A StatefulSet of generation 2 that has observed the first, with more metadata.
    fn set(metadata: &str) -> StatefulSet {
        let json = format!(
            r#"{{"metadata":{{"name":"db","namespace":"shop","uid":"u","resourceVersion":"1","generation":2{metadata}}},
                "spec":{{"replicas":1,"selector":{{"matchLabels":{{"app":"db"}}}},
                         "template":{{"metadata":{{"labels":{{"app":"db"}}}},"spec":{{"containers":[]}}}}}},
                "status":{{"observedGeneration":1,"currentRevision":"db-1","updateRevision":"db-1"}}}}"#
        );
        StatefulSet::decode(&json, &mut Interner::default()).unwrap()
    }

    fn pod(phase: &str) -> Arc<Pod> {
        let json = format!(
            r#"{{"metadata":{{"name":"db-0","namespace":"shop","uid":"u-0","resourceVersion":"1","labels":{{"app":"db"}},
                 {OWNER}}},"status":{{"phase":"{phase}","conditions":[
                 {{"type":"Ready","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z"}}]}}}}"#
        );
        Arc::new(Pod::decode(&json, &mut Interner::default()).unwrap())
    }

    fn revision(set: &StatefulSet) -> Arc<ControllerRevision> {
        let data = data(&set.template).unwrap();
        let json = format!(
            r#"{{"metadata":{{"name":"db-1","namespace":"shop","uid":"u-r","resourceVersion":"1",
                 "labels":{{"app":"db","controller.kubernetes.io/hash":"1"}},{OWNER}}},"revision":1,"data":{data}}}"#
        );
        Arc::new(ControllerRevision::decode(&json, &mut Interner::default()).unwrap())
    }

    fn planned(
        set: &StatefulSet,
        pods: Vec<Arc<Pod>>,
        revisions: Vec<Arc<ControllerRevision>>,
    ) -> StatefulSetStatus {
        let observed = Observed {
            set,
            members: Members::of(set, pods, Vec::new()),
            unreadable_pods: 0,
            claims: Default::default(),
            revisions,
            orphan_revisions: Vec::new(),
            may_adopt: true,
            maybe_deleted: Default::default(),
            backoff: Default::default(),
            recent: Default::default(),
            unready: Default::default(),
            foreign: Default::default(),
            now: "2026-01-01T01:00:00Z".parse().unwrap(),
        };
        plan(&observed).status.unwrap()
    }

    #[test]
    fn a_pod_that_has_ended_is_not_ready_whatever_its_condition_says() {
        let set = set("");
        let counts = |phase: &str| {
            let status = planned(&set, vec![pod(phase)], vec![revision(&set)]);
            (status.replicas, status.ready, status.available)
        };
        assert_eq!(counts("Running"), (1, 1, 1));
        for phase in ["Failed", "Succeeded", "Unknown", "Pending"] {
            assert_eq!(counts(phase), (1, 0, 0), "{phase}");
        }
    }

    #[test]
    fn a_statefulset_without_a_collision_counts_none() {
        let set = set("");
        assert_eq!(planned(&set, Vec::new(), vec![revision(&set)]).collision_count, Some(0));
    }

    #[test]
    fn a_deletion_is_observed_where_there_is_a_revision_of_the_template() {
        let set = set(r#","deletionTimestamp":"2026-01-01T00:00:00Z""#);
        let observed = |revisions| planned(&set, Vec::new(), revisions).observed_generation;
        assert_eq!(observed(vec![revision(&set)]), 2);
        assert_eq!(observed(Vec::new()), 1);
    }

    #[test]
    fn the_counts_of_an_update_may_wait_and_its_end_does_not() {
        let mut set = set("");
        set.replicas = 3;
        let rolling = |partition| StatefulSetStrategy::RollingUpdate {
            partition: Some(partition),
            max_unavailable: None,
        };
        let status = |available, updated| StatefulSetStatus {
            replicas: 3,
            available,
            updated,
            current_revision: "db-1".into(),
            update_revision: "db-2".into(),
            ..StatefulSetStatus::default()
        };
        let at_rest =
            |available| StatefulSetStatus { update_revision: "db-1".into(), ..status(available, 3) };
        let mut check = |strategy, before: StatefulSetStatus, after: &StatefulSetStatus, expected| {
            (set.strategy, set.status) = (strategy, before);
            assert_eq!(urgency(&set, after), expected, "{after:?}");
        };
        use Urgency::{Gathered, Immediate, Throttled};
        check(rolling(0), status(2, 1), &status(3, 1), Gathered);
        check(rolling(0), status(3, 1), &status(2, 1), Gathered);
        check(rolling(0), status(2, 1), &status(1, 1), Throttled);
        check(rolling(0), status(2, 3), &status(3, 3), Immediate);
        check(rolling(2), status(2, 1), &status(3, 1), Immediate);
        check(rolling(2), status(3, 1), &status(1, 1), Throttled);
        check(StatefulSetStrategy::OnDelete, status(3, 1), &status(2, 1), Throttled);
        check(rolling(0), at_rest(3), &at_rest(2), Throttled);
        check(rolling(0), at_rest(3), &status(3, 0), Immediate);
    }
}
