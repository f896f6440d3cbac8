//! Which counts of a status are stored. The types of the API decide: a plain number is left out where it is 0
//! (`omitempty`; four of a DaemonSet's are not), one behind a pointer is left out where it is not known, and `replicas` of a ReplicaSet or
//! ReplicationController is always there (staging/src/k8s.io/api/apps/v1/types.go and core/v1/types.go).

use serde_json::{Map, Value, json};

use crate::kinds::Kind;
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

/// Brings the status of a workload into the form that the server stores.
pub(super) fn as_stored(kind: &Kind, object: &mut Value) {
    match kind.storage() {
        "DaemonSet" => {
            let status = map_mut(object, "status");
            drop_absent(status);
            for field in DAEMON_SET {
                let number = status.entry(field).or_insert(Value::Null);
                if number.is_null() {
                    *number = json!(0);
                }
            }
        }
        "Deployment" => {
            if let Some(Value::Object(status)) = object.get_mut("status") {
                drop_absent(status);
                drop_zero(status, "replicas");
            }
        }
        "ReplicaSet" | "ReplicationController" => {
            let status = map_mut(object, "status");
            drop_absent(status);
            let replicas = status.entry("replicas").or_insert(Value::Null);
            if replicas.is_null() {
                *replicas = json!(0);
            }
        }
        _ => {}
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
            as_stored(kinds::named(kind).unwrap(), &mut object);
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
