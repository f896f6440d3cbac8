//! The defaults of pods, and of the pod templates of workloads.

use serde_json::{Value, json};

use super::fields::{Object, child, ensure, fill, fill_number, keep_in_step, objects};
use super::image;

/// Annotations that were fields of pods before 1.6. No server keeps them.
const OF_INIT_CONTAINERS: [&str; 4] = [
    "pod.alpha.kubernetes.io/init-containers",
    "pod.beta.kubernetes.io/init-containers",
    "pod.alpha.kubernetes.io/init-container-statuses",
    "pod.beta.kubernetes.io/init-container-statuses",
];

/// Drops them from a pod or a template.
pub(super) fn drop_init_containers(object: &mut Object) {
    let Some(metadata) = child(object, "metadata") else { return };
    let Some(annotations) = child(metadata, "annotations") else { return };
    annotations.retain(|key, _| !OF_INIT_CONTAINERS.contains(&key.as_str()));
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
}

pub(crate) fn pod(object: &mut Object) {
    drop_init_containers(object);
    let mut qos = "BestEffort";
    if let Some(spec) = ensure(object, "spec") {
        pod_spec(spec);
        // The rest is for pods alone: in a template it would change the template's hash.
        fill(spec, "enableServiceLinks", true);
        if let Some(resources) = child(spec, "resources") {
            limits_as_requests(resources);
        }
        let host_network = spec.get("hostNetwork").is_some_and(|host| *host == true);
        for list in ["containers", "initContainers"] {
            for container in objects(spec, list) {
                requests_from_limits(container);
                if host_network {
                    host_ports(container);
                }
            }
        }
        qos = qos_class(spec);
    }
    if let Some(status) = ensure(object, "status") {
        fill(status, "phase", "Pending");
        fill(status, "qosClass", qos);
        keep_in_step(status, "podIP", "podIPs", |ip| json!({"ip": ip}));
    }
}

pub(super) fn pod_spec(spec: &mut Object) {
    fill(spec, "dnsPolicy", "ClusterFirst");
    fill(spec, "restartPolicy", "Always");
    fill(spec, "schedulerName", "default-scheduler");
    fill(spec, "terminationGracePeriodSeconds", 30);
    if let Some(context) = ensure(spec, "securityContext") {
        objects(context, "sysctls").for_each(|sysctl| fill(sysctl, "value", ""));
    }
    // The deprecated alias always shows the same account.
    for (set, other) in [("serviceAccountName", "serviceAccount"), ("serviceAccount", "serviceAccountName")] {
        if let Some(Value::String(name)) = spec.get(set).cloned()
            && !name.is_empty()
        {
            fill(spec, other, name);
        }
    }
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for container in objects(spec, list) {
            self::container(container);
        }
    }
    for volume in objects(spec, "volumes") {
        self::volume(volume);
    }
}

fn container(container: &mut Object) {
    let policy = pull_policy(container.get("image").and_then(Value::as_str).unwrap_or_default());
    fill(container, "imagePullPolicy", policy);
    fill(container, "terminationMessagePath", "/dev/termination-log");
    fill(container, "terminationMessagePolicy", "File");
    ensure(container, "resources");
    for port in objects(container, "ports") {
        fill(port, "protocol", "TCP");
    }
    for variable in objects(container, "env") {
        if let Some(source) = child(variable, "valueFrom") {
            if let Some(field) = child(source, "fieldRef") {
                fill(field, "apiVersion", "v1");
            }
            if let Some(resource) = child(source, "resourceFieldRef") {
                fill(resource, "divisor", "0");
            }
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = child(container, name) else { continue };
        fill_number(probe, "timeoutSeconds", 1);
        fill_number(probe, "periodSeconds", 10);
        fill_number(probe, "successThreshold", 1);
        fill_number(probe, "failureThreshold", 3);
        handler(probe);
    }
    if let Some(lifecycle) = child(container, "lifecycle") {
        for hook in ["postStart", "preStop"] {
            if let Some(hook) = child(lifecycle, hook) {
                handler(hook);
            }
        }
    }
}

fn handler(handler: &mut Object) {
    if let Some(get) = child(handler, "httpGet") {
        fill(get, "path", "/");
        fill(get, "scheme", "HTTP");
    }
    if let Some(grpc) = child(handler, "grpc") {
        fill(grpc, "service", "");
    }
}

/// `Always` for `:latest` and untagged images, which may change under the same name.
fn pull_policy(image: &str) -> &'static str {
    if image::tag(image) == Some("latest") { "Always" } else { "IfNotPresent" }
}

fn requests_from_limits(container: &mut Object) {
    if let Some(resources) = child(container, "resources") {
        limits_as_requests(resources);
    }
}

fn limits_as_requests(resources: &mut Object) {
    let Some(Value::Object(limits)) = resources.get("limits").cloned() else { return };
    if let Some(requests) = ensure(resources, "requests") {
        for (name, limit) in limits {
            requests.entry(name).or_insert(limit);
        }
    }
}

/// On the host's network a container's port is the host's.
fn host_ports(container: &mut Object) {
    for port in objects(container, "ports") {
        if let Some(number) = port.get("containerPort").cloned() {
            fill_number(port, "hostPort", number);
        }
    }
}

fn volume(volume: &mut Object) {
    if volume.keys().all(|key| key == "name") {
        volume.insert("emptyDir".into(), json!({}));
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = child(volume, source) {
            fill(source, "defaultMode", 0o644);
        }
    }
    source(volume);
    if let Some(image) = child(volume, "image") {
        let policy = pull_policy(image.get("reference").and_then(Value::as_str).unwrap_or_default());
        fill(image, "pullPolicy", policy);
    }
    if let Some(downward) = child(volume, "downwardAPI") {
        downward_items(downward);
    }
    if let Some(projected) = child(volume, "projected") {
        for source in objects(projected, "sources") {
            if let Some(downward) = child(source, "downwardAPI") {
                downward_items(downward);
            }
            if let Some(token) = child(source, "serviceAccountToken") {
                fill(token, "expirationSeconds", 3600);
            }
        }
    }
    if let Some(claim) = child(volume, "ephemeral").and_then(|source| child(source, "volumeClaimTemplate")) {
        ensure(claim, "metadata");
        if let Some(spec) = child(claim, "spec") {
            fill(spec, "volumeMode", "Filesystem");
        }
    }
}

/// The sources that volumes of pods and PersistentVolumes have in common.
pub(super) fn source(volume: &mut Object) {
    if let Some(path) = child(volume, "hostPath") {
        path.entry("type").or_insert_with(|| "".into());
    }
    if let Some(device) = child(volume, "rbd") {
        fill(device, "pool", "rbd");
        fill(device, "user", "admin");
        fill(device, "keyring", "/etc/ceph/keyring");
    }
    if let Some(target) = child(volume, "iscsi") {
        fill(target, "iscsiInterface", "default");
    }
    if let Some(disk) = child(volume, "azureDisk") {
        for (field, value) in [("cachingMode", "ReadWrite"), ("fsType", "ext4"), ("kind", "Shared")] {
            fill(disk, field, value);
        }
        fill(disk, "readOnly", false);
    }
    if let Some(scale) = child(volume, "scaleIO") {
        fill(scale, "storageMode", "ThinProvisioned");
        fill(scale, "fsType", "xfs");
    }
}

fn downward_items(source: &mut Object) {
    for item in objects(source, "items") {
        if let Some(field) = child(item, "fieldRef") {
            fill(field, "apiVersion", "v1");
        }
        if let Some(resource) = child(item, "resourceFieldRef") {
            fill(resource, "divisor", "0");
        }
    }
}

/// The quality of service class as upstream's `component-helpers` compute it from cpu and memory.
fn qos_class(spec: &Object) -> &'static str {
    let mut any = false;
    let mut guaranteed = true;
    let is_set = |resources: &&Value| {
        ["requests", "limits"]
            .iter()
            .any(|field| resources[*field].as_object().is_some_and(|map| !map.is_empty()))
    };
    let containers =
        ["containers", "initContainers"].into_iter().filter_map(|list| spec.get(list)?.as_array()).flatten();
    // Resources of a pod as a whole take precedence over those of its containers (KEP-2837).
    let all: Vec<&Value> = match spec.get("resources").filter(is_set) {
        Some(resources) => vec![resources],
        None => containers.map(|container| &container["resources"]).collect(),
    };
    for resources in all {
        for name in ["cpu", "memory"] {
            let amount = |kind: &str| {
                let text = resources[kind][name].as_str()?;
                crate::quantity::Quantity::parse(text).filter(|amount| !amount.is_zero())
            };
            let (request, limit) = (amount("requests"), amount("limits"));
            any |= request.is_some() || limit.is_some();
            guaranteed &= limit.is_some() && request == limit;
        }
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}
