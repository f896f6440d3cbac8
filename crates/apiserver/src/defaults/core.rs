//! Nodes, limit ranges, volumes, services, namespaces and secrets.

use serde_json::{Value, json};

use super::fields::{Object, child, ensure, fill, keep_in_step, objects, remove_empty_list};

pub(crate) fn node(object: &mut Object) {
    /// Structs in Go, which are never absent.
    const INFO: [&str; 10] = [
        "architecture",
        "bootID",
        "containerRuntimeVersion",
        "kernelVersion",
        "kubeProxyVersion",
        "kubeletVersion",
        "machineID",
        "operatingSystem",
        "osImage",
        "systemUUID",
    ];
    if let Some(spec) = ensure(object, "spec") {
        // It was how a kubelet got its configuration; nothing keeps it since 1.24.
        spec.remove("configSource");
        keep_in_step(spec, "podCIDR", "podCIDRs", |range| range);
    }
    let Some(status) = ensure(object, "status") else { return };
    if let Some(capacity) = status.get("capacity").cloned() {
        fill(status, "allocatable", capacity);
    }
    if let Some(endpoint) =
        ensure(status, "daemonEndpoints").and_then(|endpoints| ensure(endpoints, "kubeletEndpoint"))
    {
        fill(endpoint, "Port", 0);
    }
    if let Some(info) = ensure(status, "nodeInfo") {
        INFO.iter().for_each(|field| fill(info, field, ""));
    }
}

/// An event of `v1`: what is a struct or has no tag in Go is never absent.
pub(crate) fn event(object: &mut Object) {
    for field in ["involvedObject", "source"] {
        ensure(object, field);
    }
    for field in ["reportingComponent", "reportingInstance"] {
        fill(object, field, "");
    }
}

pub(crate) fn limit_range(object: &mut Object) {
    if let Some(spec) = child(object, "spec") {
        remove_empty_list(spec, "limits");
        objects(spec, "limits").for_each(crate::admission::limit_range::fill_item);
    }
}

pub(crate) fn volume(object: &mut Object) {
    storage(object, "persistentVolumeReclaimPolicy", "Retain");
    if let Some(spec) = child(object, "spec") {
        super::pods::source(spec);
    }
}

/// The older and the newer field for the source say the same.
pub(crate) fn claim(object: &mut Object) {
    claim_template(object);
    if let Some(spec) = child(object, "spec") {
        // A source of another kind can only stand in the newer field.
        let is_known = |source: &Value| {
            let text = |field: &str| source[field].as_str().unwrap_or_default();
            matches!(
                (text("apiGroup"), text("kind")),
                ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot")
            )
        };
        if spec.get("dataSource").is_some_and(|source| !is_known(source)) {
            spec.remove("dataSource");
        }
        for (given, other) in [("dataSource", "dataSourceRef"), ("dataSourceRef", "dataSource")] {
            let is_elsewhere =
                |source: &Value| source["namespace"].as_str().is_some_and(|name| !name.is_empty());
            if let Some(source) = spec.get(given).filter(|source| source.is_object() && !is_elsewhere(source))
            {
                let mut source = source.clone();
                crate::object::as_map(&mut source).remove("namespace");
                fill(spec, other, source);
            }
        }
    }
}

/// A claim as a StatefulSet has it.
pub(super) fn claim_template(object: &mut Object) {
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

pub(crate) fn service(object: &mut Object) {
    if let Some(spec) = ensure(object, "spec") {
        fill(spec, "type", "ClusterIP");
        fill(spec, "sessionAffinity", "None");
        let kind = spec.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
        if spec.get("sessionAffinity").is_some_and(|affinity| affinity == "None") {
            spec.remove("sessionAffinityConfig");
        } else if spec.get("sessionAffinity").is_some_and(|affinity| affinity == "ClientIP")
            && let Some(config) = ensure(spec, "sessionAffinityConfig")
            && let Some(client) = ensure(config, "clientIP")
        {
            fill(client, "timeoutSeconds", 10_800);
        }
        let has_external =
            spec.get("externalIPs").and_then(Value::as_array).is_some_and(|all| !all.is_empty());
        if matches!(kind.as_str(), "NodePort" | "LoadBalancer") || kind == "ClusterIP" && has_external {
            fill(spec, "externalTrafficPolicy", "Cluster");
        }
        if kind == "LoadBalancer" {
            fill(spec, "allocateLoadBalancerNodePorts", true);
        }
        if kind == "ExternalName" {
            spec.remove("internalTrafficPolicy");
        } else {
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
    if let Some(balancer) = ensure(object, "status").and_then(|status| ensure(status, "loadBalancer")) {
        let has_address = |ingress: &&mut Object| ingress.get("ip").is_some_and(|ip| ip != "");
        objects(balancer, "ingress").filter(has_address).for_each(|ingress| fill(ingress, "ipMode", "VIP"));
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
