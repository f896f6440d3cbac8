//! The bodies of our patches. Each names only the fields we own, and carries the UID and the
//! resourceVersion that it was computed from, so that any write in between causes a conflict.

mod cronjob;
mod disruption;
mod job;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::model::{
    CONTROLLER_REVISION_HASH, ClaimOwner, Condition, DaemonSetStatus, DeploymentStatus, Meta,
    NamespaceStatus, ReplicaSetStatus, StatefulSetStatus,
};
use crate::plan::deployment::Change;
use crate::plan::deployment::revision::ROLLBACK_TO;
use crate::plan::deployment::rollback::RollBack;
use crate::plan::policy::ROLLOUT_STATE;
use crate::plan::revisions::RevisionChange;
pub use cronjob::cron_job_status;
pub use disruption::disruption_status;
pub use job::{adopt_tracked, job_status, release_untracked, track, untrack};

/// Scales a ReplicaSet and updates its annotations (merge patch).
pub fn change(replica_set: &Meta, change: &Change) -> Value {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Spec {
        #[serde(skip_serializing_if = "Option::is_none")]
        replicas: Option<i32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        min_ready_seconds: Option<i32>,
    }
    let Change { replicas, annotations, min_ready_seconds, removed, notes: _ } = change;
    let mut patch = json!({"metadata": {
        "uid": replica_set.uid,
        "resourceVersion": replica_set.resource_version.to_string(),
    }});
    if !annotations.is_empty() {
        patch["metadata"]["annotations"] = json!(annotations);
    }
    for key in removed {
        patch["metadata"]["annotations"][key] = Value::Null;
    }
    if planted!("a patch of a ReplicaSet drops its finalizers") {
        patch["metadata"]["finalizers"] = json!([]);
    }
    if replicas.is_some() || min_ready_seconds.is_some() {
        patch["spec"] = json!(Spec { replicas: *replicas, min_ready_seconds: *min_ready_seconds });
    }
    patch
}

/// Rolls a Deployment back, or removes the rollback annotation (JSON patch: a merge would keep the fields that the
/// old template does not have). Replacing the resourceVersion makes the server compare it.
pub fn roll_back(deployment: &Meta, rollback: &RollBack) -> Value {
    let mut steps = vec![
        json!({"op": "test", "path": "/metadata/uid", "value": deployment.uid}),
        json!({"op": "replace", "path": "/metadata/resourceVersion",
               "value": deployment.resource_version.to_string()}),
    ];
    match &rollback.back {
        None => steps.push(json!({"op": "remove", "path": format!("/metadata/annotations/{ROLLBACK_TO}")})),
        Some((template, annotations)) => {
            let annotations = annotations.iter().map(
                |annotations| json!({"op": "replace", "path": "/metadata/annotations", "value": annotations}),
            );
            steps.extend(annotations);
            steps.push(json!({"op": "replace", "path": "/spec/template", "value": template}));
        }
    }
    steps.into()
}

/// The status of a Deployment, and the revision annotation, which `/status` takes too (upstream's
/// strategy keeps spec and labels of the old object, but not its annotations). `None` when it would
/// change nothing. For `keeps_terminating` see [`crate::engine::gated_field`].
pub fn deployment_status(
    deployment: &Meta,
    before: &DeploymentStatus,
    after: &DeploymentStatus,
    annotations: &BTreeMap<&str, &str>,
    keeps_terminating: bool,
) -> Option<Value> {
    let DeploymentStatus {
        observed_generation,
        replicas,
        updated,
        ready,
        available,
        unavailable,
        terminating,
        collision_count,
        conditions,
    } = after;
    let mut fields = Fields::default();
    fields.number("observedGeneration", before.observed_generation, *observed_generation);
    fields.number("replicas", before.replicas, *replicas);
    fields.number("updatedReplicas", before.updated, *updated);
    fields.number("readyReplicas", before.ready, *ready);
    fields.number("availableReplicas", before.available, *available);
    fields.number("unavailableReplicas", before.unavailable, *unavailable);
    fields.optional("collisionCount", before.collision_count, *collision_count);
    fields.conditions(&before.conditions, conditions);
    fields.terminating(before.terminating, *terminating, keeps_terminating || !annotations.is_empty());
    fields.into_patch(deployment, annotations)
}

/// The status of a ReplicaSet. `None` when it would change nothing. For `keeps_terminating` see
/// [`crate::engine::gated_field`].
pub fn set_status(
    replica_set: &Meta,
    before: &ReplicaSetStatus,
    after: &ReplicaSetStatus,
    keeps_terminating: bool,
) -> Option<Value> {
    let ReplicaSetStatus {
        replicas,
        fully_labeled,
        ready,
        available,
        terminating,
        observed_generation,
        conditions,
    } = after;
    let mut fields = Fields::default();
    fields.number("observedGeneration", before.observed_generation, *observed_generation);
    fields.number("replicas", before.replicas, *replicas);
    fields.number("fullyLabeledReplicas", before.fully_labeled, *fully_labeled);
    fields.number("readyReplicas", before.ready, *ready);
    fields.number("availableReplicas", before.available, *available);
    fields.conditions(&before.conditions, conditions);
    fields.terminating(before.terminating, *terminating, keeps_terminating);
    fields.into_patch(replica_set, &BTreeMap::new())
}

/// The status of a DaemonSet. `None` when it would change nothing. Conditions of other types are not named: they belong to other
/// writers.
pub fn daemon_set_status(
    daemon_set: &Meta,
    before: &DaemonSetStatus,
    after: &DaemonSetStatus,
) -> Option<Value> {
    let DaemonSetStatus {
        observed_generation,
        desired,
        current,
        misscheduled,
        updated,
        ready,
        available,
        unavailable,
        collision_count,
        conditions,
    } = after;
    let mut fields = Fields::default();
    fields.number("observedGeneration", before.observed_generation, *observed_generation);
    fields.number("desiredNumberScheduled", before.desired, *desired);
    fields.number("currentNumberScheduled", before.current, *current);
    fields.number("numberMisscheduled", before.misscheduled, *misscheduled);
    fields.number("updatedNumberScheduled", before.updated, *updated);
    fields.number("numberReady", before.ready, *ready);
    fields.number("numberAvailable", before.available, *available);
    fields.number("numberUnavailable", before.unavailable, *unavailable);
    fields.optional("collisionCount", before.collision_count, *collision_count);
    fields.conditions(&before.conditions, conditions);
    fields.into_patch(daemon_set, &BTreeMap::new())
}

/// The status of a namespace. `None` when it would change nothing.
pub fn namespace_status(
    namespace: &Meta,
    before: &NamespaceStatus,
    after: &NamespaceStatus,
) -> Option<Value> {
    let NamespaceStatus { conditions } = after;
    let mut fields = Fields::default();
    fields.conditions(&before.conditions, conditions);
    fields.into_patch(namespace, &BTreeMap::new())
}

/// The status of a StatefulSet. `None` when it would change nothing. Conditions of other types are not named.
pub fn stateful_set_status(
    set: &Meta,
    before: &StatefulSetStatus,
    after: &StatefulSetStatus,
) -> Option<Value> {
    let StatefulSetStatus {
        observed_generation,
        replicas,
        ready,
        available,
        current,
        updated,
        current_revision,
        update_revision,
        collision_count,
        conditions,
    } = after;
    let mut fields = Fields::default();
    fields.number("observedGeneration", before.observed_generation, *observed_generation);
    fields.number("replicas", before.replicas, *replicas);
    fields.number("readyReplicas", before.ready, *ready);
    fields.number("availableReplicas", before.available, *available);
    fields.number("currentReplicas", before.current, *current);
    fields.number("updatedReplicas", before.updated, *updated);
    fields.text("currentRevision", &before.current_revision, current_revision);
    fields.text("updateRevision", &before.update_revision, update_revision);
    fields.optional("collisionCount", before.collision_count, *collision_count);
    fields.conditions(&before.conditions, conditions);
    fields.into_patch(set, &BTreeMap::new())
}

/// Sets labels of a pod (merge patch).
pub fn labels(pod: &Meta, labels: &BTreeMap<&'static str, String>) -> Value {
    json!({"metadata": {
        "uid": pod.uid,
        "resourceVersion": pod.resource_version.to_string(),
        "labels": labels,
    }})
}

/// Sets the owner references of a claim (merge patch: the list is replaced).
pub fn owners(claim: &Meta, owners: &[ClaimOwner]) -> Value {
    json!({"metadata": {
        "uid": claim.uid,
        "resourceVersion": claim.resource_version.to_string(),
        "ownerReferences": owners,
    }})
}

/// Sets the hash label of a pod (merge patch).
pub fn relabel(pod: &Meta, hash: &str) -> Value {
    json!({"metadata": {
        "uid": pod.uid,
        "resourceVersion": pod.resource_version.to_string(),
        "labels": {CONTROLLER_REVISION_HASH: hash},
    }})
}

/// Sets the hash label, the number or the state of a revision (merge patch).
pub fn change_revision(revision: &Meta, change: &RevisionChange) -> Value {
    let RevisionChange { hash, number, state, notes: _ } = change;
    let mut patch = json!({"metadata": {
        "uid": revision.uid,
        "resourceVersion": revision.resource_version.to_string(),
    }});
    if let Some(hash) = hash {
        patch["metadata"]["labels"] = json!({CONTROLLER_REVISION_HASH: hash});
    }
    if let Some(number) = number {
        patch["revision"] = json!(number);
    }
    if let Some(state) = state {
        patch["metadata"]["annotations"] = json!({ROLLOUT_STATE: state});
    }
    patch
}

/// Sets the finalizers (merge patch).
pub fn finalizers(object: &Meta, finalizers: &[Arc<str>]) -> Value {
    json!({"metadata": {
        "uid": object.uid,
        "resourceVersion": object.resource_version.to_string(),
        "finalizers": finalizers,
    }})
}

/// The fields of a status that differ.
#[derive(Default)]
struct Fields(Map<String, Value>);

impl Fields {
    /// A plain number of the API's types (`int32` with `omitempty`, or `replicas`, which is always present):
    /// the API server stores 0 for absent and absent for 0, so that the two are one.
    fn number<N: PartialEq + Into<Value>>(&mut self, name: &str, before: N, after: N) {
        if before != after {
            self.0.insert(name.into(), after.into());
        }
    }

    /// A text of the API's types (`omitempty`): the empty one is absent.
    fn text(&mut self, name: &str, before: &str, after: &str) {
        if before != after {
            self.0.insert(name.into(), after.into());
        }
    }

    /// A pointer of the API's types (`*int32`): absent means "not known", and 0 is a number. `null` removes it.
    fn optional(&mut self, name: &str, before: Option<i32>, after: Option<i32>) {
        if before != after {
            self.0.insert(name.into(), after.into());
        }
    }

    /// The count of terminating pods, which an API server may drop. Where it does, its absence causes no
    /// write; with another reason it is written, in case the server stores it by now.
    fn terminating(&mut self, before: Option<i32>, after: Option<i32>, is_reason: bool) {
        if is_reason || before.is_some() || !self.0.is_empty() {
            self.optional("terminatingReplicas", before, after);
        }
    }

    /// Conditions are merged by type, so that those of other writers are not named at all.
    fn conditions(&mut self, before: &[Condition], after: &[Condition]) {
        let changed = after.iter().filter(|c| !before.contains(c)).map(condition);
        let removed = before
            .iter()
            .filter(|c| !after.iter().any(|kept| kept.kind == c.kind))
            .map(|c| json!({"$patch": "delete", "type": c.kind}));
        let all: Vec<Value> = changed.chain(removed).collect();
        if !all.is_empty() {
            self.0.insert("conditions".into(), all.into());
        }
    }

    fn into_patch(self, object: &Meta, annotations: &BTreeMap<&str, &str>) -> Option<Value> {
        if self.0.is_empty() && annotations.is_empty() {
            return None;
        }
        let mut metadata = json!({
            "uid": object.uid,
            "resourceVersion": object.resource_version.to_string(),
        });
        if !annotations.is_empty() {
            metadata["annotations"] = json!(annotations);
        }
        Some(json!({"metadata": metadata, "status": self.0}))
    }
}

fn condition(condition: &Condition) -> Value {
    let Condition { kind, status, reason, message, last_update, last_transition } = condition;
    let mut value = json!({"type": kind, "status": status, "reason": reason, "message": message});
    if let Some(at) = last_update {
        value["lastUpdateTime"] = at.to_string().into();
    }
    if let Some(at) = last_transition {
        value["lastTransitionTime"] = at.to_string().into();
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Interner, Record, ReplicaSet};
    use jiff::Timestamp;

    fn replica_set() -> ReplicaSet {
        let json = r#"{"metadata":{"name":"web-1","namespace":"shop","uid":"u-set","resourceVersion":"7"},
            "spec":{},"status":{"replicas":2}}"#;
        ReplicaSet::decode(json, &mut Interner::default()).unwrap()
    }

    #[test]
    fn a_status_patch_names_what_differs_and_nothing_else() {
        let replica_set = replica_set();
        let after = ReplicaSetStatus { replicas: 3, ..replica_set.status.clone() };
        assert_eq!(
            set_status(&replica_set.meta, &replica_set.status, &after, true).unwrap(),
            json!({"metadata": {"uid": "u-set", "resourceVersion": "7"}, "status": {"replicas": 3}})
        );
    }

    #[test]
    fn a_daemon_set_without_a_policy_names_no_condition_and_the_state_of_a_revision_is_an_annotation() {
        let meta = replica_set().meta;
        let before = DaemonSetStatus::default();
        let after = DaemonSetStatus { desired: 3, ..DaemonSetStatus::default() };
        let patch = daemon_set_status(&meta, &before, &after).unwrap();
        assert_eq!(patch["status"], json!({"desiredNumberScheduled": 3}));
        let change = RevisionChange { state: Some("{}".into()), ..RevisionChange::default() };
        let patch = change_revision(&meta, &change);
        assert_eq!(patch["metadata"]["annotations"], json!({"windlass.dev/rollout-state": "{}"}));
    }

    #[test]
    fn nothing_is_written_when_nothing_differs() {
        let replica_set = replica_set();
        assert_eq!(set_status(&replica_set.meta, &replica_set.status, &replica_set.status, true), None);
        let deployment = DeploymentStatus::default();
        assert_eq!(
            deployment_status(&replica_set.meta, &deployment, &deployment, &BTreeMap::new(), true),
            None
        );
    }

    #[test]
    fn an_absent_pointer_is_not_0_in_either_direction() {
        let replica_set = replica_set();
        let counted = |terminating| ReplicaSetStatus { terminating, ..replica_set.status.clone() };
        let written = |before, after| {
            let patch = set_status(&replica_set.meta, &counted(before), &counted(after), true)?;
            Some(patch["status"].clone())
        };
        assert_eq!(written(None, Some(0)), Some(json!({"terminatingReplicas": 0})));
        assert_eq!(written(Some(0), Some(2)), Some(json!({"terminatingReplicas": 2})));
        assert_eq!(written(Some(2), Some(0)), Some(json!({"terminatingReplicas": 0})));
        assert_eq!(written(Some(2), None), Some(json!({"terminatingReplicas": null})), "removed");
        let of_deployment = |before, after| {
            let status = |(terminating, collision_count)| DeploymentStatus {
                terminating,
                collision_count,
                ..DeploymentStatus::default()
            };
            let patch = deployment_status(
                &replica_set.meta,
                &status(before),
                &status(after),
                &BTreeMap::new(),
                true,
            )?;
            Some(patch["status"].clone())
        };
        let written = of_deployment((None, None), (Some(0), None));
        assert_eq!(written, Some(json!({"terminatingReplicas": 0})), "no collisionCount: there was none");
        assert_eq!(
            of_deployment((Some(3), None), (None, Some(1))),
            Some(json!({"terminatingReplicas": null, "collisionCount": 1})),
            "a sum that is not known is not 0"
        );
        assert_eq!(of_deployment((Some(0), Some(0)), (Some(0), Some(0))), None);
    }

    #[test]
    fn a_field_that_the_server_drops_causes_no_write_and_is_part_of_others() {
        let replica_set = replica_set();
        let counted = ReplicaSetStatus { terminating: Some(0), ..replica_set.status.clone() };
        assert_eq!(set_status(&replica_set.meta, &replica_set.status, &counted, false), None);
        let more = ReplicaSetStatus { replicas: 3, ..counted.clone() };
        let patch = set_status(&replica_set.meta, &replica_set.status, &more, false).unwrap();
        assert_eq!(patch["status"], json!({"replicas": 3, "terminatingReplicas": 0}));
        let there = ReplicaSetStatus { terminating: Some(4), ..replica_set.status.clone() };
        let patch = set_status(&replica_set.meta, &there, &counted, false).unwrap();
        assert_eq!(patch["status"], json!({"terminatingReplicas": 0}), "what it has, it keeps");
    }

    #[test]
    fn conditions_are_named_by_type_and_taken_out_by_directive() {
        let mut replica_set = replica_set();
        let condition = |kind| Condition::new(kind, "True", "R", "m", Timestamp::UNIX_EPOCH);
        replica_set.status.conditions = vec![condition("Theirs"), condition("Old")];
        let mut after = replica_set.status.clone();
        after.conditions = vec![condition("Theirs"), condition("New")];
        let patch = set_status(&replica_set.meta, &replica_set.status, &after, true).unwrap();
        assert_eq!(
            patch["status"]["conditions"],
            json!([
                {"type": "New", "status": "True", "reason": "R", "message": "m",
                 "lastUpdateTime": "1970-01-01T00:00:00Z", "lastTransitionTime": "1970-01-01T00:00:00Z"},
                {"$patch": "delete", "type": "Old"},
            ])
        );
    }
}
