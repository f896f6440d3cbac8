//! The bodies of our patches. Each names only the fields we own, and carries the UID and the
//! resourceVersion that it was computed from, so that a write by anybody else in between refuses it.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::model::{Condition, DeploymentStatus, Meta, ReplicaSetStatus, Uid};
use crate::plan::deployment::Change;
use crate::plan::deployment::revision::ROLLBACK_TO;
use crate::plan::deployment::rollback::RollBack;
use crate::plan::replicaset::body::OwnerReference;

/// Makes an object ours (strategic merge: the list of owners is merged by UID).
pub fn adopt(object: &Meta, owner: &OwnerReference<'_>) -> Value {
    json!({"metadata": {
        "uid": object.uid,
        "resourceVersion": object.resource_version.to_string(),
        "ownerReferences": [owner],
    }})
}

/// Lets an object go; its other owners stay.
pub fn release(object: &Meta, owner: &Uid) -> Value {
    json!({"metadata": {
        "uid": object.uid,
        "resourceVersion": object.resource_version.to_string(),
        "ownerReferences": [{"$patch": "delete", "uid": owner}],
    }})
}

/// Resizes a set and brings its annotations up to date (merge patch).
pub fn change(set: &Meta, change: &Change) -> Value {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Spec {
        #[serde(skip_serializing_if = "Option::is_none")]
        replicas: Option<i32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        min_ready_seconds: Option<i32>,
    }
    let Change { replicas, annotations, min_ready_seconds } = change;
    let mut patch = json!({"metadata": {
        "uid": set.uid,
        "resourceVersion": set.resource_version.to_string(),
    }});
    if !annotations.is_empty() {
        patch["metadata"]["annotations"] = json!(annotations);
    }
    if planted!("a change of a set drops its finalizers") {
        patch["metadata"]["finalizers"] = json!([]);
    }
    if replicas.is_some() || min_ready_seconds.is_some() {
        patch["spec"] = json!(Spec { replicas: *replicas, min_ready_seconds: *min_ready_seconds });
    }
    patch
}

/// Rolls a Deployment back, or clears the request for it (JSON patch: a merge would keep what the old
/// template does not have). To replace the resourceVersion is what makes the server compare it.
pub fn roll_back(deployment: &Meta, rollback: &RollBack) -> Value {
    let mut steps = vec![
        json!({"op": "test", "path": "/metadata/uid", "value": deployment.uid}),
        json!({"op": "replace", "path": "/metadata/resourceVersion",
               "value": deployment.resource_version.to_string()}),
    ];
    match &rollback.back {
        None => steps.push(json!({"op": "remove", "path": format!("/metadata/annotations/{ROLLBACK_TO}")})),
        Some((template, annotations)) => steps.extend([
            json!({"op": "replace", "path": "/metadata/annotations", "value": annotations}),
            json!({"op": "replace", "path": "/spec/template", "value": template}),
        ]),
    }
    steps.into()
}

/// The status of a Deployment, and the revision annotation, which `/status` takes too (upstream's
/// strategy keeps spec and labels of the old object, but not its annotations). `None` when it would
/// change nothing.
pub fn deployment_status(
    deployment: &Meta,
    before: &DeploymentStatus,
    after: &DeploymentStatus,
    annotations: &BTreeMap<&str, &str>,
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
    fields.number("terminatingReplicas", before.terminating.unwrap_or(0), terminating.unwrap_or(0));
    fields.number("collisionCount", before.collision_count.unwrap_or(0), collision_count.unwrap_or(0));
    fields.conditions(&before.conditions, conditions);
    fields.into_patch(deployment, annotations)
}

/// The status of a ReplicaSet. `None` when it would change nothing.
pub fn set_status(set: &Meta, before: &ReplicaSetStatus, after: &ReplicaSetStatus) -> Option<Value> {
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
    fields.number("terminatingReplicas", before.terminating.unwrap_or(0), terminating.unwrap_or(0));
    fields.conditions(&before.conditions, conditions);
    fields.into_patch(set, &BTreeMap::new())
}

/// The fields of a status that differ.
#[derive(Default)]
struct Fields(Map<String, Value>);

impl Fields {
    /// Absent and nothing are one: an API server drops zeroes, and a gated field altogether, and a
    /// difference that cannot be stored would be written for ever.
    fn number<N: PartialEq + Into<Value>>(&mut self, name: &str, before: N, after: N) {
        if before != after {
            self.0.insert(name.into(), after.into());
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
        if self.0.is_empty()
            && annotations.is_empty()
            && !planted!("a status that says nothing new is written")
        {
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

    fn set() -> ReplicaSet {
        let json = r#"{"metadata":{"name":"web-1","namespace":"shop","uid":"u-set","resourceVersion":"7"},
            "spec":{},"status":{"replicas":2}}"#;
        ReplicaSet::decode(json, &mut Interner::default()).unwrap()
    }

    #[test]
    fn a_status_patch_names_what_differs_and_nothing_else() {
        let set = set();
        let after = ReplicaSetStatus { replicas: 3, terminating: Some(0), ..set.status.clone() };
        assert_eq!(
            set_status(&set.meta, &set.status, &after).unwrap(),
            json!({"metadata": {"uid": "u-set", "resourceVersion": "7"}, "status": {"replicas": 3}})
        );
    }

    #[test]
    fn nothing_is_written_when_nothing_differs_and_an_absent_number_is_nothing() {
        let set = set();
        let after = ReplicaSetStatus { terminating: Some(0), ..set.status.clone() };
        assert_eq!(set_status(&set.meta, &set.status, &after), None);
    }

    #[test]
    fn conditions_are_named_by_type_and_taken_out_by_directive() {
        let mut set = set();
        let condition = |kind| Condition::new(kind, "True", "R", "m", Timestamp::UNIX_EPOCH);
        set.status.conditions = vec![condition("Theirs"), condition("Old")];
        let mut after = set.status.clone();
        after.conditions = vec![condition("Theirs"), condition("New")];
        let patch = set_status(&set.meta, &set.status, &after).unwrap();
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
