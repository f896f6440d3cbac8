//! Objects of the size that real clusters have, as JSON.
#![allow(dead_code)] // Every benchmark uses its own part of this.

pub mod watched;

use serde_json::{Value, json};

/// The fields that a server's field tracking adds to an object: two writers, nearly all fields.
pub fn managed_fields(depth: usize) -> Value {
    let leaf = |n: usize| (format!("f:field{n}"), json!({}));
    let fields: serde_json::Map<String, Value> =
        (0..depth).map(|n| (format!("f:section{n}"), Value::Object((0..12).map(leaf).collect()))).collect();
    let entry = |manager: &str| {
        json!({"manager": manager, "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z",
               "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": fields, "f:spec": fields}})
    };
    json!([entry("kube-controller-manager"), entry("kubelet")])
}

fn container(name: &str) -> Value {
    let env: Vec<Value> = (0..14)
        .map(|n| json!({"name": format!("SETTING_{n}"), "value": format!("value of the setting {n}")}))
        .collect();
    let probe = json!({"httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"}, "periodSeconds": 10,
                       "timeoutSeconds": 1, "successThreshold": 1, "failureThreshold": 3});
    json!({"name": name, "image": format!("registry.example/shop/{name}:1.27.3"), "env": env,
           "ports": [{"containerPort": 8080, "protocol": "TCP"}], "livenessProbe": probe, "readinessProbe": probe,
           "resources": {"limits": {"cpu": "500m", "memory": "512Mi"}, "requests": {"cpu": "100m", "memory": "256Mi"}},
           "volumeMounts": [{"name": "config", "mountPath": "/etc/app"},
                            {"name": "kube-api-access", "mountPath": "/var/run/secrets", "readOnly": true}],
           "imagePullPolicy": "IfNotPresent", "terminationMessagePath": "/dev/termination-log",
           "terminationMessagePolicy": "File"})
}

fn pod_spec() -> Value {
    json!({"containers": [container("app"), container("proxy")], "restartPolicy": "Always",
           "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler", "terminationGracePeriodSeconds": 30,
           "volumes": [{"name": "config", "configMap": {"name": "app", "defaultMode": 420}},
                       {"name": "kube-api-access", "projected": {"defaultMode": 420, "sources": []}}],
           "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}],
           "securityContext": {}, "serviceAccountName": "app"})
}

fn uuid(kind: u8, n: usize) -> String {
    format!("{kind:08x}-0000-4000-8000-{n:012x}")
}

/// Five pods per ReplicaSet, a hundred ReplicaSets per namespace.
const PODS_PER_REPLICA_SET: usize = 5;

/// A running pod of the ReplicaSet number `n / 5`, about 15 KB with its managed fields.
pub fn pod(n: usize) -> String {
    let replica_set = n / PODS_PER_REPLICA_SET;
    let hash = format!("{:09x}", replica_set);
    let condition =
        |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:05Z"});
    let status_of = |name: &str| {
        json!({"name": name, "ready": true, "started": true, "restartCount": 1, "image": "registry.example/shop/app:1",
               "imageID": format!("registry.example/shop/{name}@sha256:{:064x}", n),
               "containerID": format!("containerd://{:064x}", n),
               "state": {"running": {"startedAt": "2026-01-01T00:00:04Z"}}, "lastState": {}})
    };
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("service-{replica_set}-{hash}-{n:05x}"), "generateName": format!("service-{replica_set}-{hash}-"),
            "namespace": format!("team-{}", replica_set / 100), "uid": uuid(1, n), "resourceVersion": (n + 1).to_string(),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app": format!("service-{replica_set}"), "pod-template-hash": hash, "tier": "backend"},
            "annotations": {"prometheus.io/scrape": "true"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("service-{replica_set}-{hash}"),
                                 "uid": uuid(2, replica_set), "controller": true, "blockOwnerDeletion": true}],
            "managedFields": managed_fields(13),
        },
        "spec": {"nodeName": format!("node-{}", n % 100), "containers": pod_spec()["containers"],
                 "volumes": pod_spec()["volumes"], "tolerations": pod_spec()["tolerations"]},
        "status": {"phase": "Running", "podIP": "10.0.0.1", "hostIP": "10.1.0.1", "qosClass": "Burstable",
                   "startTime": "2026-01-01T00:00:01Z",
                   "conditions": [condition("PodScheduled"), condition("Initialized"), condition("ContainersReady"),
                                  condition("Ready")],
                   "containerStatuses": [status_of("app"), status_of("proxy")]},
    })
    .to_string()
}

/// A ReplicaSet of five pods, about 10 KB with its managed fields.
pub fn replica_set(n: usize) -> String {
    let hash = format!("{n:09x}");
    let labels = json!({"app": format!("service-{n}"), "pod-template-hash": hash, "tier": "backend"});
    json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {
            "name": format!("service-{n}-{hash}"), "namespace": format!("team-{}", n / 100), "uid": uuid(2, n),
            "resourceVersion": (n + 1).to_string(), "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": labels,
            "annotations": {"deployment.kubernetes.io/revision": "1", "deployment.kubernetes.io/desired-replicas": "5",
                            "deployment.kubernetes.io/max-replicas": "7"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": format!("service-{n}"),
                                 "uid": uuid(3, n), "controller": true, "blockOwnerDeletion": true}],
            "managedFields": managed_fields(6),
        },
        "spec": {"replicas": 5, "selector": {"matchLabels": labels},
                 "template": {"metadata": {"labels": labels}, "spec": pod_spec()}},
        "status": {"replicas": 5, "fullyLabeledReplicas": 5, "readyReplicas": 5, "availableReplicas": 5,
                   "terminatingReplicas": 0, "observedGeneration": 1},
    })
    .to_string()
}

/// The pods, and so the claims, of each StatefulSet.
const PODS_PER_STATEFUL_SET: usize = 10;

fn claim_spec() -> Value {
    json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "100Gi"}},
           "storageClassName": "standard", "volumeMode": "Filesystem"})
}

/// A StatefulSet of ten pods with a claim each, about 10 KB with its managed fields.
pub fn stateful_set(n: usize) -> String {
    let labels = json!({"app": format!("store-{n}"), "tier": "data"});
    let revision = format!("store-{n}-{n:010x}");
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {
            "name": format!("store-{n}"), "namespace": format!("team-{}", n / 100), "uid": uuid(4, n),
            "resourceVersion": (n + 1).to_string(), "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": labels, "annotations": {"example.com/owner": "data"}, "managedFields": managed_fields(6),
        },
        "spec": {"replicas": PODS_PER_STATEFUL_SET, "serviceName": format!("store-{n}"), "podManagementPolicy": "OrderedReady",
                 "revisionHistoryLimit": 10, "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
                 "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
                 "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod_spec()},
                 "volumeClaimTemplates": [{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
                                           "spec": claim_spec(), "status": {"phase": "Pending"}}]},
        "status": {"replicas": 10, "readyReplicas": 10, "availableReplicas": 10, "currentReplicas": 10, "updatedReplicas": 10,
                   "currentRevision": revision, "updateRevision": revision, "collisionCount": 0, "observedGeneration": 1},
    })
    .to_string()
}

/// The claim of a pod of the StatefulSet number `n / 10`, bound, about 5 KB with its managed fields.
pub fn claim(n: usize) -> String {
    let (stateful_set, ordinal) = (n / PODS_PER_STATEFUL_SET, n % PODS_PER_STATEFUL_SET);
    let mut spec = claim_spec();
    spec["volumeName"] = format!("pvc-{}", uuid(5, n)).into();
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": format!("data-store-{stateful_set}-{ordinal}"), "namespace": format!("team-{}", stateful_set / 100),
            "uid": uuid(5, n), "resourceVersion": (n + 1).to_string(), "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app": format!("store-{stateful_set}"), "tier": "data"},
            "annotations": {"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes",
                            "volume.kubernetes.io/storage-provisioner": "example.com/disk"},
            "finalizers": ["kubernetes.io/pvc-protection"], "managedFields": managed_fields(4),
        },
        "spec": spec,
        "status": {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "100Gi"}},
    })
    .to_string()
}
