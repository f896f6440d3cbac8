//! The output of `kubectl get`: the columns and cells of server-side tables
//! (upstream `pkg/printers/internalversion/printers.go`).
//!
//! Columns of priority 1 show up with `-o wide` only. Cells are in the order of the columns.

pub(crate) mod cluster;
pub(crate) mod core;
pub(crate) mod pod;
pub(crate) mod row;
pub(crate) mod workloads;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::kinds::{self, Kind};
use row::Row;

/// The column definitions for a kind.
pub fn columns(kind: &str) -> Value {
    columns_of(kinds::named(kind))
}

/// [`columns`] for a built-in kind.
pub(crate) fn columns_of(kind: &Kind) -> Value {
    defined(kind.columns)
}

fn defined(columns: &[&str]) -> Value {
    let column = |column: &&str| {
        let (priority, column) = column.strip_prefix('*').map_or((0, *column), |rest| (1, rest));
        let (kind, name) = match column.split_at_checked(1) {
            Some(("#", name)) => ("integer", name),
            Some(("?", name)) => ("boolean", name),
            Some(("@", name)) => ("date", name),
            _ => ("string", column),
        };
        json!({
            "name": name,
            "type": kind,
            "format": if name == "Name" { "name" } else { "" },
            "description": "",
            "priority": priority,
        })
    };
    columns.iter().map(column).collect()
}

/// The table of a Scale, which is no kind of its own.
pub(crate) fn of_scale(scale: &Value, now: Timestamp) -> Value {
    let row = Row { object: scale, now };
    let replicas = |at| row.at(at).as_i64().unwrap_or_default();
    let cells = json!([row.name(), replicas("/spec/replicas"), replicas("/status/replicas"), row.age()]);
    json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": row.text("/metadata/resourceVersion")},
        "columnDefinitions": defined(&["Name", "#Desired", "#Available", "Age"]),
        "rows": [{"cells": cells, "object": scale}],
    })
}

/// The cells of one object's row. `now` is what ages are counted to.
pub fn cells(kind: &str, object: &Value, now: Timestamp) -> Vec<Value> {
    cells_of(kinds::named(kind), object, now)
}

/// [`cells`] for a built-in kind.
pub(crate) fn cells_of(kind: &Kind, object: &Value, now: Timestamp) -> Vec<Value> {
    (kind.cells)(&Row { object, now })
}

#[cfg(test)]
mod tests {
    use super::row::{duration, items};
    use super::*;

    pub(super) fn now() -> Timestamp {
        "2026-01-01T12:00:00Z".parse().unwrap()
    }

    #[track_caller]
    pub(super) fn check(kind: &str, object: Value, expected: Value) {
        assert_eq!(Value::from(cells(kind, &object, now())), expected);
        assert_eq!(columns(kind).as_array().unwrap().len(), expected.as_array().unwrap().len());
    }

    #[test]
    fn durations_are_short() {
        for (seconds, expected) in [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (123, "2m3s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (11_400, "3h10m"),
            (28_800, "8h"),
            (172_799, "47h"),
            (172_800, "2d"),
            (273_600, "3d4h"),
            (691_200, "8d"),
            (63_071_999, "729d"),
            (63_158_400, "2y1d"),
            (252_288_000, "8y"),
        ] {
            assert_eq!(duration(jiff::SignedDuration::from_secs(seconds)), expected, "{seconds}");
        }
    }

    #[test]
    fn a_deployment_shows_its_progress() {
        check(
            "Deployment",
            json!({
                "metadata": {"name": "web", "creationTimestamp": "2026-01-01T11:59:55Z"},
                "spec": {
                    "replicas": 3,
                    "selector": {"matchLabels": {"app": "web"}},
                    "template": {"spec": {"containers": [
                        {"name": "a", "image": "a:1"}, {"name": "b", "image": "b:1"},
                    ]}},
                },
                "status": {"readyReplicas": 2, "updatedReplicas": 1, "availableReplicas": 2},
            }),
            json!(["web", "2/3", 1, 2, "5s", "a,b", "a:1,b:1", "app=web"]),
        );
    }

    #[test]
    fn a_replica_set_shows_its_numbers() {
        check(
            "ReplicaSet",
            json!({"metadata": {"name": "web-1"}, "spec": {"replicas": 2}, "status": {"replicas": 1}}),
            json!(["web-1", 2, 1, 0, "<unknown>", "", "", "<none>"]),
        );
    }

    #[test]
    fn a_replication_controller_shows_its_numbers_and_its_labels() {
        check(
            "ReplicationController",
            json!({
                "metadata": {"name": "old", "creationTimestamp": "2026-01-01T11:59:00Z"},
                "spec": {
                    "replicas": 3,
                    "selector": {"tier": "x", "app": "web"},
                    "template": {"spec": {"containers": [{"name": "a", "image": "a:1"}]}},
                },
                "status": {"replicas": 2, "readyReplicas": 1},
            }),
            json!(["old", 3, 2, 1, "60s", "a", "a:1", "app=web,tier=x"]),
        );
        check(
            "ReplicationController",
            json!({"metadata": {"name": "bare"}, "spec": {"template": null}}),
            json!(["bare", 0, 0, 0, "<unknown>", "", "", "<none>"]),
        );
    }

    #[test]
    fn only_wide_output_shows_the_rest() {
        let columns = columns("Deployment");
        let shown = |priority: i64| -> Vec<String> {
            let columns = items(&columns).filter(|column| column["priority"] == priority);
            columns.map(|column| column["name"].as_str().unwrap().to_uppercase()).collect()
        };
        assert_eq!(shown(0), ["NAME", "READY", "UP-TO-DATE", "AVAILABLE", "AGE"]);
        assert_eq!(shown(1), ["CONTAINERS", "IMAGES", "SELECTOR"]);
    }

    #[test]
    fn a_node_shows_readiness_and_roles() {
        check(
            "Node",
            json!({
                "metadata": {"name": "n", "labels": {"node-role.kubernetes.io/control-plane": ""}},
                "spec": {"unschedulable": true},
                "status": {
                    "conditions": [{"type": "Ready", "status": "True"}],
                    "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
                    "nodeInfo": {"kubeletVersion": "v1.37.0"},
                },
            }),
            json!([
                "n",
                "Ready,SchedulingDisabled",
                "control-plane",
                "<unknown>",
                "v1.37.0",
                "10.0.0.1",
                "<none>",
                "<unknown>",
                "<unknown>",
                "<unknown>"
            ]),
        );
    }

    #[test]
    fn the_row_of_an_event_has_its_time_reason_and_object() {
        check(
            "Event",
            json!({
                "metadata": {"name": "web.1"}, "type": "Normal", "reason": "ScalingReplicaSet",
                "message": "Scaled up\n", "count": 3,
                "firstTimestamp": "2026-01-01T11:00:00Z", "lastTimestamp": "2026-01-01T11:59:00Z",
                "involvedObject": {"kind": "Deployment", "name": "web"},
                "source": {"component": "deployment-controller"},
            }),
            json!([
                "60s",
                "Normal",
                "ScalingReplicaSet",
                "deployment/web",
                "",
                "deployment-controller",
                "Scaled up",
                "60m",
                3,
                "web.1"
            ]),
        );
        let newer = json!({
            "metadata": {"name": "e"}, "eventTime": "2026-01-01T11:59:00.000000Z",
            "reportingComponent": "x", "reportingInstance": "x-1",
            "series": {"count": 7, "lastObservedTime": "2026-01-01T11:59:58.000000Z"},
        });
        check("Event", newer, json!(["2s", "", "", "", "", "x, x-1", "", "60s", 7, "e"]));
    }

    #[test]
    fn a_service_shows_where_it_listens() {
        check(
            "Service",
            json!({"metadata": {"name": "s"}, "spec": {
                "type": "NodePort", "clusterIP": "10.1.1.1", "selector": {"app": "web"},
                "ports": [{"port": 80, "nodePort": 30080, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}],
            }}),
            json!(["s", "NodePort", "10.1.1.1", "<none>", "80:30080/TCP,53/UDP", "<unknown>", "app=web"]),
        );
        let balanced = json!({"metadata": {"name": "s"}, "spec": {"type": "LoadBalancer"}});
        check(
            "Service",
            balanced,
            json!(["s", "LoadBalancer", "<none>", "<pending>", "<none>", "<unknown>", "<none>"]),
        );
    }

    #[test]
    fn the_small_kinds_count_their_entries() {
        let named = |mut object: Value| {
            object["metadata"] = json!({"name": "x"});
            object
        };
        check("ConfigMap", named(json!({"data": {"a": "", "b": ""}})), json!(["x", 2, "<unknown>"]));
        check("Secret", named(json!({"type": "Opaque"})), json!(["x", "Opaque", 0, "<unknown>"]));
        check("ServiceAccount", named(json!({})), json!(["x", "<unknown>"]));
        check("Lease", named(json!({"spec": {"holderIdentity": "me"}})), json!(["x", "me", "<unknown>"]));
        check(
            "Namespace",
            named(json!({"status": {"phase": "Active"}})),
            json!(["x", "Active", "<unknown>"]),
        );
    }

    #[test]
    fn malformed_objects_have_rows_too() {
        let kinds = "ControllerRevision DaemonSet Deployment ReplicaSet ReplicationController Pod Service Namespace Node Secret ConfigMap \
                     ServiceAccount Lease Event X";
        for kind in kinds.split(' ') {
            for strange in [json!(null), json!({"spec": 1, "status": [], "metadata": {"name": 1}})] {
                let row = cells(kind, &strange, now());
                assert_eq!(row.len(), columns(kind).as_array().unwrap().len(), "{kind}");
            }
        }
    }
}
