//! The defaults that an API server writes into objects before it stores them
//! (upstream `pkg/apis/{core,apps}/v1/defaults.go`).
//!
//! Applying them twice changes nothing. As in Go, an empty string counts as "not set", and so does a
//! zero in the probe numbers, which are not pointers upstream.

pub(crate) mod cluster;
pub(crate) mod core;
mod fields;
mod image;
pub(crate) mod pods;
pub(crate) mod workloads;

use serde_json::Value;

use crate::kinds;

/// Fills in the defaults of `kind`. Kinds without defaults, and values that are not objects, are left
/// as they are.
pub fn apply(kind: &str, object: &mut Value) {
    if let Some(object) = object.as_object_mut() {
        (kinds::named(kind).defaults)(object);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(kind: &str, mut object: Value, pointer: &str, expected: Value) {
        apply(kind, &mut object);
        assert_eq!(object.pointer(pointer).cloned().unwrap_or_default(), expected, "{object:#}");
        let once = object.clone();
        apply(kind, &mut object);
        assert_eq!(object, once, "defaulting twice changes nothing");
    }

    #[test]
    fn a_daemon_set_replaces_one_pod_at_a_time_unless_it_waits_for_deletions() {
        let rolling = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}});
        check("DaemonSet", json!({}), "/spec/updateStrategy", rolling);
        let surge =
            json!({"spec": {"updateStrategy": {"rollingUpdate": {"maxSurge": "10%", "maxUnavailable": 0}}}});
        let expected = json!({"maxSurge": "10%", "maxUnavailable": 0});
        check("DaemonSet", surge, "/spec/updateStrategy/rollingUpdate", expected);
        let by_hand = json!({"spec": {"updateStrategy": {"type": "OnDelete"}}});
        check("DaemonSet", by_hand, "/spec/updateStrategy", json!({"type": "OnDelete"}));
        check(
            "DaemonSet",
            json!({"spec": {"revisionHistoryLimit": 0}}),
            "/spec/revisionHistoryLimit",
            json!(0),
        );
        check("ControllerRevision", json!({}), "/revision", json!(0));
    }

    #[test]
    fn allocatable_defaults_to_the_capacity() {
        let capacity = json!({"pods": "10"});
        check("Node", json!({"status": {"capacity": capacity}}), "/status/allocatable", capacity.clone());
        let both = json!({"status": {"capacity": capacity, "allocatable": {"pods": "9"}}});
        check("Node", both, "/status/allocatable", json!({"pods": "9"}));
    }

    #[test]
    fn the_first_range_of_a_node_is_its_range() {
        let range = |spec: Value, pointer: &str, expected: Value| {
            check("Node", json!({"spec": spec}), pointer, expected);
        };
        range(json!({"podCIDR": "10.1.0.0/24"}), "/spec/podCIDRs", json!(["10.1.0.0/24"]));
        range(json!({"podCIDRs": ["10.1.0.0/24"]}), "/spec/podCIDR", json!("10.1.0.0/24"));
        let both = json!({"podCIDR": "10.2.0.0/24", "podCIDRs": ["10.1.0.0/24", "fd00::/64"]});
        range(both, "/spec/podCIDRs", json!(["10.2.0.0/24"]));
    }

    #[test]
    fn a_minimal_deployment_gets_a_rolling_update_of_one_replica() {
        check(
            "Deployment",
            json!({"spec": {"template": {"spec": {"containers": []}}}}),
            "/spec",
            json!({
                "replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600,
                "strategy": {
                    "type": "RollingUpdate",
                    "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"},
                },
                "template": {"spec": {
                    "containers": [], "dnsPolicy": "ClusterFirst", "restartPolicy": "Always",
                    "schedulerName": "default-scheduler", "securityContext": {},
                    "terminationGracePeriodSeconds": 30,
                }},
            }),
        );
    }

    #[test]
    fn a_replication_controller_takes_selector_and_labels_from_its_template() {
        let foo = json!({"foo": "bar"});
        let template = json!({"metadata": {"labels": foo}, "spec": {"containers": []}});
        let bare = json!({"spec": {"template": template}});
        check("ReplicationController", bare.clone(), "/spec/selector", foo.clone());
        check("ReplicationController", bare.clone(), "/metadata/labels", foo.clone());
        check("ReplicationController", bare.clone(), "/spec/replicas", json!(1));
        check("ReplicationController", bare.clone(), "/status", json!({"replicas": 0}));
        check("ReplicationController", bare, "/spec/template/spec/restartPolicy", json!("Always"));

        let empty = json!({"metadata": {"labels": {}}, "spec": {"selector": {}, "template": template}});
        check("ReplicationController", empty.clone(), "/spec/selector", foo.clone());
        check("ReplicationController", empty, "/metadata/labels", foo.clone());

        let labelled = json!({"metadata": {"labels": {"bar": "foo"}}, "spec": {"template": template}});
        check("ReplicationController", labelled.clone(), "/spec/selector", foo);
        check("ReplicationController", labelled, "/metadata/labels", json!({"bar": "foo"}));

        let chosen = json!({"metadata": {"labels": {"bar": "foo"}},
                            "spec": {"replicas": 0, "selector": {"some": "other"}, "template": template}});
        check("ReplicationController", chosen.clone(), "/spec/selector", json!({"some": "other"}));
        check("ReplicationController", chosen.clone(), "/metadata/labels", json!({"bar": "foo"}));
        check("ReplicationController", chosen, "/spec/replicas", json!(0));

        let unlabelled = json!({"spec": {"template": {"spec": {"containers": []}}}});
        check("ReplicationController", unlabelled.clone(), "/spec/selector", Value::Null);
        check("ReplicationController", unlabelled, "/metadata", Value::Null);
        check("ReplicationController", json!({"spec": {"template": null}}), "/spec/replicas", json!(1));
    }

    #[test]
    fn values_set_by_the_user_are_kept() {
        let strategy = json!({"type": "Recreate"});
        let object = json!({"spec": {"replicas": 0, "revisionHistoryLimit": 0, "strategy": strategy}});
        check("Deployment", object.clone(), "/spec/replicas", json!(0));
        check("Deployment", object.clone(), "/spec/revisionHistoryLimit", json!(0));
        check("Deployment", object, "/spec/strategy", strategy);
        let rolling = json!({"spec": {"strategy": {"rollingUpdate": {"maxSurge": 0}}}});
        let expected = json!({"maxSurge": 0, "maxUnavailable": "25%"});
        check("Deployment", rolling, "/spec/strategy/rollingUpdate", expected);
    }

    #[test]
    fn images_without_a_fixed_tag_are_always_pulled() {
        for (image, policy) in [
            ("nginx", "Always"),
            ("nginx:latest", "Always"),
            ("nginx:1.27", "IfNotPresent"),
            ("registry:5000/nginx", "Always"),
            ("registry:5000/nginx:1.27", "IfNotPresent"),
            ("reg.example.com/x/Y", "IfNotPresent"),
        ] {
            let pod = json!({"spec": {"containers": [{"name": "a", "image": image}]}});
            check("Pod", pod, "/spec/containers/0/imagePullPolicy", json!(policy));
        }
    }

    #[test]
    fn containers_get_their_ports_probes_and_messages() {
        let container = json!({
            "name": "a", "image": "x:1", "ports": [{"containerPort": 80}],
            "readinessProbe": {"httpGet": {"port": 80}, "periodSeconds": 0},
            "env": [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
        });
        let object =
            json!({"spec": {"template": {"spec": {"hostNetwork": true, "containers": [container]}}}});
        check(
            "ReplicaSet",
            object,
            "/spec/template/spec/containers/0",
            json!({
                "name": "a", "image": "x:1", "imagePullPolicy": "IfNotPresent", "resources": {},
                "ports": [{"containerPort": 80, "protocol": "TCP"}],
                "readinessProbe": {
                    "httpGet": {"port": 80, "path": "/", "scheme": "HTTP"}, "timeoutSeconds": 1,
                    "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3,
                },
                "env": [{"name": "IP", "valueFrom": {
                    "fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}
                }}],
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
            }),
        );
    }

    #[test]
    fn a_volume_without_a_source_is_an_empty_directory() {
        let pod = json!({"spec": {"volumes": [{"name": "tmp"}, {"name": "c", "configMap": {"name": "x"}}]}});
        check("Pod", pod.clone(), "/spec/volumes/0", json!({"name": "tmp", "emptyDir": {}}));
        check("Pod", pod, "/spec/volumes/1/configMap", json!({"name": "x", "defaultMode": 420}));
    }

    #[test]
    fn volumes_of_pods_and_of_the_cluster_get_the_same_defaults() {
        let source = json!({
            "rbd": {"monitors": ["a"], "image": "b"},
            "iscsi": {"targetPortal": "a", "iqn": "b", "lun": 0},
            "azureDisk": {"diskName": "a", "diskURI": "b"},
            "scaleIO": {"gateway": "a"},
        });
        let expected = json!({
            "rbd": {"monitors": ["a"], "image": "b", "pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"},
            "iscsi": {"targetPortal": "a", "iqn": "b", "lun": 0, "iscsiInterface": "default"},
            "azureDisk": {
                "diskName": "a", "diskURI": "b", "cachingMode": "ReadWrite", "fsType": "ext4", "readOnly": false,
                "kind": "Shared",
            },
            "scaleIO": {"gateway": "a", "storageMode": "ThinProvisioned", "fsType": "xfs"},
        });
        check("Pod", json!({"spec": {"volumes": [source]}}), "/spec/volumes/0", expected.clone());
        let mut volume = json!({"spec": source});
        apply("PersistentVolume", &mut volume);
        for (name, fields) in expected.as_object().unwrap() {
            assert_eq!(volume["spec"][name], *fields);
        }
        let image = json!({"spec": {"volumes": [{"name": "a", "image": {"reference": "a:1"}}]}});
        check("Pod", image, "/spec/volumes/0/image/pullPolicy", json!("IfNotPresent"));
        let ephemeral =
            json!({"spec": {"volumes": [{"name": "a", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]}});
        let expected = json!({"metadata": {}, "spec": {"volumeMode": "Filesystem"}});
        check("Pod", ephemeral, "/spec/volumes/0/ephemeral/volumeClaimTemplate", expected);
    }

    #[test]
    fn both_fields_for_the_source_of_a_claim_say_the_same() {
        let source = json!({"kind": "PersistentVolumeClaim", "name": "a"});
        for (given, other) in [("dataSource", "dataSourceRef"), ("dataSourceRef", "dataSource")] {
            let claim = json!({"spec": {given: source}});
            check("PersistentVolumeClaim", claim, &format!("/spec/{other}"), source.clone());
        }
        let elsewhere = json!({"spec": {"dataSourceRef": {"kind": "X", "name": "a", "namespace": "b"}}});
        check("PersistentVolumeClaim", elsewhere, "/spec/dataSource", Value::Null);
    }

    #[test]
    fn requests_follow_limits_in_pods_but_not_in_templates() {
        let spec = json!({"containers": [{"name": "a", "resources": {"limits": {"cpu": "1"}}}]});
        check("Pod", json!({"spec": spec}), "/spec/containers/0/resources/requests", json!({"cpu": "1"}));
        check(
            "ReplicaSet",
            json!({"spec": {"template": {"spec": spec}}}),
            "/spec/template/spec/containers/0/resources",
            json!({"limits": {"cpu": "1"}}),
        );
    }

    #[test]
    fn a_pod_on_the_hosts_network_takes_its_ports() {
        let spec =
            json!({"hostNetwork": true, "containers": [{"name": "a", "ports": [{"containerPort": 80}]}]});
        check("Pod", json!({"spec": spec}), "/spec/containers/0/ports/0/hostPort", json!(80));
        let template = json!({"spec": {"template": {"spec": spec}}});
        check("Deployment", template, "/spec/template/spec/containers/0/ports/0/hostPort", Value::Null);
    }

    #[test]
    fn a_pod_starts_pending_with_its_quality_of_service() {
        let pod = |resources: Value| json!({"spec": {"containers": [{"name": "a", "resources": resources}]}});
        let both = json!({"cpu": "1", "memory": "1Gi"});
        check("Pod", pod(json!({})), "/status", json!({"phase": "Pending", "qosClass": "BestEffort"}));
        check("Pod", pod(json!({"requests": {"cpu": "1"}})), "/status/qosClass", json!("Burstable"));
        check("Pod", pod(json!({"limits": both})), "/status/qosClass", json!("Guaranteed"));
        check("Pod", pod(json!({"limits": {"cpu": "1"}})), "/status/qosClass", json!("Burstable"));
    }

    #[test]
    fn a_service_targets_its_own_port_inside_the_cluster() {
        check(
            "Service",
            json!({"spec": {"ports": [{"port": 80}, {"port": 443, "targetPort": "https"}]}}),
            "/spec",
            json!({
                "type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
                "ports": [
                    {"port": 80, "targetPort": 80, "protocol": "TCP"},
                    {"port": 443, "targetPort": "https", "protocol": "TCP"},
                ],
            }),
        );
    }

    #[test]
    fn a_namespace_knows_its_name_and_its_finalizer() {
        let namespace = json!({"metadata": {"name": "shop"}});
        check("Namespace", namespace.clone(), "/spec/finalizers", json!(["kubernetes"]));
        check("Namespace", namespace.clone(), "/status/phase", json!("Active"));
        check("Namespace", namespace, "/metadata/labels", json!({"kubernetes.io/metadata.name": "shop"}));
        let finalized = json!({"metadata": {"name": "shop", "deletionTimestamp": "2026-01-01T00:00:00Z"}});
        check("Namespace", finalized, "/spec", json!({}));
    }

    #[test]
    fn string_data_of_a_secret_becomes_data() {
        for (text, encoded) in
            [("", ""), ("a", "YQ=="), ("ab", "YWI="), ("abc", "YWJj"), ("abcd", "YWJjZA==")]
        {
            check("Secret", json!({"stringData": {"k": text}}), "/data/k", json!(encoded));
        }
        check("Secret", json!({"stringData": {"k": "v"}}), "/stringData", Value::Null);
    }

    #[test]
    fn malformed_objects_are_left_alone() {
        let kinds = "ControllerRevision DaemonSet Deployment ReplicaSet ReplicationController Pod Service Namespace Secret Node Lease";
        for kind in kinds.split(' ') {
            for strange in [
                json!(null),
                json!([1]),
                json!({"spec": 7, "status": [], "metadata": "x"}),
                json!({"spec": {"template": {"spec": {"containers": [3, {"ports": "x", "env": [1]}]}}}}),
            ] {
                apply(kind, &mut strange.clone());
            }
        }
    }
}
