//! Which counts of a status are stored. The types of the API decide: a plain number is left out where it is 0
//! (`omitempty`; four of a DaemonSet's are not), one behind a pointer is left out where it is not known, and `replicas` of a ReplicaSet or
//! ReplicationController is always there (staging/src/k8s.io/api/apps/v1/types.go and core/v1/types.go).

use serde_json::{Map, Value, json};

use crate::object::map_mut;

/// Plain numbers.
const PLAIN: [&str; 9] = [
    "observedGeneration",
    "updatedReplicas",
    "readyReplicas",
    "availableReplicas",
    "unavailableReplicas",
    "fullyLabeledReplicas",
    "updatedNumberScheduled",
    "numberAvailable",
    "numberUnavailable",
];

/// Numbers of a DaemonSet that are always there.
const DAEMON_SET: [&str; 4] =
    ["currentNumberScheduled", "desiredNumberScheduled", "numberMisscheduled", "numberReady"];

/// Numbers behind a pointer.
const POINTERS: [&str; 2] = ["terminatingReplicas", "collisionCount"];

pub(crate) fn of_a_daemon_set(object: &mut Value) {
    let status = map_mut(object, "status");
    drop_absent(status);
    DAEMON_SET.iter().for_each(|field| keep_zero(status, field));
}

pub(crate) fn of_a_deployment(object: &mut Value) {
    if let Some(Value::Object(status)) = object.get_mut("status") {
        drop_absent(status);
        drop_zero(status, "replicas");
    }
}

pub(crate) fn of_a_stateful_set(object: &mut Value) {
    let status = map_mut(object, "status");
    drop_absent(status);
    drop_zero(status, "currentReplicas");
    ["replicas", "availableReplicas"].iter().for_each(|field| keep_zero(status, field));
}

/// Those of a ReplicaSet or ReplicationController.
pub(crate) fn with_replicas(object: &mut Value) {
    let status = map_mut(object, "status");
    drop_absent(status);
    keep_zero(status, "replicas");
}

fn keep_zero(status: &mut Map<String, Value>, field: &str) {
    let number = status.entry(field).or_insert(Value::Null);
    if number.is_null() {
        *number = json!(0);
    }
}

fn drop_absent(status: &mut Map<String, Value>) {
    PLAIN.iter().for_each(|field| drop_zero(status, field));
    for field in POINTERS {
        if status.get(field).is_some_and(Value::is_null) {
            status.remove(field);
        }
    }
}

fn drop_zero(status: &mut Map<String, Value>, field: &str) {
    if status.get(field).is_some_and(|value| value.is_null() || value.as_i64() == Some(0)) {
        status.remove(field);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds;

    #[test]
    fn zeroes_are_dropped_unless_the_type_keeps_them() {
        let stored = |kind: &str, status: Value| {
            let mut object = json!({"status": status});
            (kinds::named(kind).status_form)(&mut object);
            object["status"].clone()
        };
        let zeroes =
            json!({"replicas": 0, "readyReplicas": 0, "observedGeneration": 0, "terminatingReplicas": 0});
        assert_eq!(stored("Deployment", zeroes.clone()), json!({"terminatingReplicas": 0}));
        assert_eq!(stored("ReplicaSet", zeroes), json!({"replicas": 0, "terminatingReplicas": 0}));
        assert_eq!(stored("ReplicationController", json!({})), json!({"replicas": 0}));
        let unknown = json!({"terminatingReplicas": null, "collisionCount": null, "replicas": 3});
        assert_eq!(stored("Deployment", unknown), json!({"replicas": 3}));
        assert_eq!(stored("Pod", json!({"observedGeneration": 0})), json!({"observedGeneration": 0}));
    }
}
