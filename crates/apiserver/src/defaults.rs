//! The defaults that an API server writes into objects before it stores them
//! (upstream `pkg/apis/{core,apps}/v1/defaults.go`).
//!
//! Applying them twice changes nothing. As in Go, an empty string counts as "not set", and so does a
//! zero in the probe numbers, which are not pointers upstream.

pub(crate) mod cluster;
mod pods;
pub(crate) mod workloads;

use serde_json::{Map, Value, json};

pub(crate) use pods::pod;
use pods::pod_spec;

use crate::kinds;

type Object = Map<String, Value>;

/// Fills in the defaults of `kind`. Kinds without defaults, and values that are not objects, are left
/// as they are.
pub fn apply(kind: &str, object: &mut Value) {
    if let Some(object) = object.as_object_mut() {
        (kinds::named(kind).defaults)(object);
    }
}

pub(crate) fn controller_revision(object: &mut Object) {
    fill(object, "revision", 0);
}

pub(crate) fn node(object: &mut Object) {
    ensure(object, "spec");
    if let Some(status) = ensure(object, "status")
        && let Some(capacity) = status.get("capacity").cloned()
    {
        fill(status, "allocatable", capacity);
    }
}

pub(crate) fn limit_range(object: &mut Object) {
    if let Some(spec) = child(object, "spec") {
        objects(spec, "limits").for_each(crate::admission::limit_range::fill_item);
    }
}

pub(crate) fn volume(object: &mut Object) {
    storage(object, "persistentVolumeReclaimPolicy", "Retain");
    if let Some(path) = child(object, "spec").and_then(|spec| child(spec, "hostPath")) {
        path.entry("type").or_insert_with(|| "".into());
    }
}

pub(crate) fn claim(object: &mut Object) {
    storage(object, "volumeMode", "Filesystem");
}

/// A volume or a claim is pending until somebody binds it.
fn storage(object: &mut Object, field: &str, value: &str) {
    if let Some(spec) = ensure(object, "spec") {
        fill(spec, field, value);
        fill(spec, "volumeMode", "Filesystem");
    }
    if let Some(status) = ensure(object, "status") {
        fill(status, "phase", "Pending");
    }
}

pub(crate) fn daemon_set(object: &mut Object) {
    if let Some(spec) = ensure(object, "spec") {
        fill(spec, "revisionHistoryLimit", 10);
        if let Some(strategy) = ensure(spec, "updateStrategy") {
            fill(strategy, "type", "RollingUpdate");
            if strategy.get("type").is_some_and(|kind| kind == "RollingUpdate")
                && let Some(rolling) = ensure(strategy, "rollingUpdate")
            {
                fill(rolling, "maxUnavailable", 1);
                fill(rolling, "maxSurge", 0);
            }
        }
        template(spec);
    }
    // These numbers are written even if they are 0 (staging/src/k8s.io/api/apps/v1/types.go).
    if let Some(status) = ensure(object, "status") {
        for field in ["currentNumberScheduled", "desiredNumberScheduled", "numberMisscheduled", "numberReady"]
        {
            fill(status, field, 0);
        }
    }
}

pub(crate) fn deployment(object: &mut Object) {
    if let Some(spec) = ensure(object, "spec") {
        fill(spec, "replicas", 1);
        fill(spec, "revisionHistoryLimit", 10);
        fill(spec, "progressDeadlineSeconds", 600);
        if let Some(strategy) = ensure(spec, "strategy") {
            fill(strategy, "type", "RollingUpdate");
            if strategy.get("type").is_some_and(|kind| kind == "RollingUpdate")
                && let Some(rolling) = ensure(strategy, "rollingUpdate")
            {
                fill(rolling, "maxUnavailable", "25%");
                fill(rolling, "maxSurge", "25%");
            }
        }
        template(spec);
    }
    ensure(object, "status");
}

pub(crate) fn replica_set(object: &mut Object) {
    if let Some(spec) = ensure(object, "spec") {
        fill(spec, "replicas", 1);
        template(spec);
    }
    if let Some(status) = ensure(object, "status") {
        fill(status, "replicas", 0);
    }
}

/// The labels of the template serve as the selector, and as the controller's own, where there are none.
pub(crate) fn replication_controller(object: &mut Object) {
    let labels = object.get("spec").and_then(|spec| spec.pointer("/template/metadata/labels"));
    let labels = labels.filter(|labels| labels.as_object().is_some_and(|map| !map.is_empty())).cloned();
    if let Some(labels) = labels {
        if let Some(spec) = child(object, "spec") {
            fill_map(spec, "selector", &labels);
        }
        if let Some(metadata) = ensure(object, "metadata") {
            fill_map(metadata, "labels", &labels);
        }
    }
    replica_set(object);
}

fn template(spec: &mut Object) {
    if let Some(template) = child(spec, "template")
        && let Some(spec) = ensure(template, "spec")
    {
        pod_spec(spec);
    }
}

pub(crate) fn service(object: &mut Object) {
    if let Some(spec) = ensure(object, "spec") {
        fill(spec, "type", "ClusterIP");
        fill(spec, "sessionAffinity", "None");
        let kind = spec.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
        if spec.get("sessionAffinity").is_some_and(|affinity| affinity == "ClientIP")
            && let Some(config) = ensure(spec, "sessionAffinityConfig")
            && let Some(client) = ensure(config, "clientIP")
        {
            fill(client, "timeoutSeconds", 10_800);
        }
        if matches!(kind.as_str(), "NodePort" | "LoadBalancer") {
            fill(spec, "externalTrafficPolicy", "Cluster");
        }
        if kind == "LoadBalancer" {
            fill(spec, "allocateLoadBalancerNodePorts", true);
        }
        if kind != "ExternalName" {
            fill(spec, "internalTrafficPolicy", "Cluster");
        }
        for port in objects(spec, "ports") {
            fill(port, "protocol", "TCP");
            if let Some(number) = port.get("port").cloned() {
                let unset = |target: &Value| target == "" || target == 0;
                if port.get("targetPort").is_none_or(unset) {
                    port.insert("targetPort".into(), number);
                }
            }
        }
    }
    if let Some(status) = ensure(object, "status") {
        ensure(status, "loadBalancer");
    }
}

pub(crate) fn namespace(object: &mut Object) {
    let mut deleting = false;
    if let Some(metadata) = ensure(object, "metadata") {
        deleting = metadata.contains_key("deletionTimestamp");
        if let Some(name) = metadata.get("name").filter(|name| *name != "").cloned()
            && let Some(labels) = ensure(metadata, "labels")
        {
            labels.insert("kubernetes.io/metadata.name".into(), name);
        }
    }
    // Finalizing means emptying this list; it must not fill up again.
    if let Some(spec) = ensure(object, "spec")
        && !deleting
    {
        fill(spec, "finalizers", json!(["kubernetes"]));
    }
    if let Some(status) = ensure(object, "status") {
        fill(status, "phase", "Active");
    }
}

pub(crate) fn secret(object: &mut Object) {
    fill(object, "type", "Opaque");
    // `stringData` is for writing only: it wins over `data` and is never stored.
    if let Some(Value::Object(plain)) = object.remove("stringData")
        && let Some(data) = ensure(object, "data")
    {
        for (key, text) in plain {
            if let Value::String(text) = text {
                data.insert(key, base64(text.as_bytes()).into());
            }
        }
    }
}

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let group = chunk.iter().fold(0_u32, |group, byte| group << 8 | u32::from(*byte));
        let group = group << (8 * (3 - chunk.len()));
        for position in 0..4 {
            let index = (group >> (18 - 6 * position)) & 63;
            text.push(if position <= chunk.len() { char::from(ALPHABET[index as usize]) } else { '=' });
        }
    }
    text
}

/// Sets a field that is absent or an empty string.
fn fill(object: &mut Object, field: &str, value: impl Into<Value>) {
    if object.get(field).is_none_or(|value| value.is_null() || value == "") {
        object.insert(field.to_owned(), value.into());
    }
}

/// Sets a map that is absent or empty.
fn fill_map(object: &mut Object, field: &str, value: &Value) {
    if object.get(field).is_none_or(|value| value.is_null() || value.as_object().is_some_and(Map::is_empty)) {
        object.insert(field.to_owned(), value.clone());
    }
}

/// Sets a number that is absent or zero.
fn fill_number(object: &mut Object, field: &str, value: impl Into<Value>) {
    if object.get(field).is_none_or(|value| value.is_null() || *value == 0) {
        object.insert(field.to_owned(), value.into());
    }
}

/// The object in a field, created if the field is absent; `None` if something else is there.
fn ensure<'a>(object: &'a mut Object, field: &str) -> Option<&'a mut Object> {
    fill(object, field, json!({}));
    child(object, field)
}

fn child<'a>(object: &'a mut Object, field: &str) -> Option<&'a mut Object> {
    object.get_mut(field)?.as_object_mut()
}

fn objects<'a>(object: &'a mut Object, field: &str) -> impl Iterator<Item = &'a mut Object> {
    object.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}

#[cfg(test)]
mod tests {
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
            ("nginx@sha256:0123", "IfNotPresent"),
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
