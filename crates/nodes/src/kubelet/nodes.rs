//! The simulated nodes.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::resources::rfc3339;

/// How many pods a simulated node takes. Ten times a real node's default: what a sandbox is asked about
/// is rollouts, and 110 would turn a Deployment of 400 into a question about nodes.
const PODS_PER_NODE: &str = "1000";

/// The name of simulated node `number`, counted from 1.
pub fn name(number: usize) -> String {
    format!("sandbox-node-{number}")
}

/// The address of simulated node `number`: 10.0.0.1 for the first.
fn address(number: usize) -> String {
    format!("10.{}.{}.{}", (number >> 16) & 0x3f, (number >> 8) & 0xff, number & 0xff)
}

/// A node as its kubelet would register it.
pub fn node(number: usize, now: Timestamp) -> Value {
    let name = name(number);
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
            "beta.kubernetes.io/arch": "amd64",
            "beta.kubernetes.io/os": "linux",
        }},
        "spec": {},
        "status": status(number, now),
    })
}

/// The status of a healthy simulated node.
pub fn status(number: usize, now: Timestamp) -> Value {
    let at = rfc3339(now);
    let condition = |type_: &str, status: &str, reason: &str, message: &str| {
        json!({"type": type_, "status": status, "reason": reason, "message": message,
               "lastHeartbeatTime": at, "lastTransitionTime": at})
    };
    let resources =
        json!({"cpu": "64", "memory": "256Gi", "ephemeral-storage": "1Ti", "pods": PODS_PER_NODE});
    json!({
        "capacity": resources,
        "allocatable": resources,
        "addresses": [{"type": "InternalIP", "address": address(number)},
                      {"type": "Hostname", "address": name(number)}],
        "conditions": [
            condition("MemoryPressure", "False", "KubeletHasSufficientMemory",
                "kubelet has sufficient memory available"),
            condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
            condition("PIDPressure", "False", "KubeletHasSufficientPID",
                "kubelet has sufficient PID available"),
            condition("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
        ],
        "nodeInfo": {
            "architecture": "amd64", "operatingSystem": "linux", "osImage": "Windlass sandbox",
            "kernelVersion": "simulated", "containerRuntimeVersion": "sandbox://1",
            "kubeletVersion": "v1.37.0", "kubeProxyVersion": "",
            "machineID": name(number), "systemUUID": name(number), "bootID": name(number),
        },
    })
}

/// The taint that an API server puts on every new node (its admission plugin TaintNodesByCondition). In a
/// real cluster the node lifecycle controller takes it away once the kubelet has reported; with the pod
/// simulator there is none.
const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// The patch that opens a node to pods: `NOT_READY` is gone, other taints stay. `None` if it is not there,
/// or is there rightly, since the node says of itself that it is not ready. A node that nobody reports on
/// counts as ready, because the simulator runs its pods too.
///
/// It carries the resourceVersion, so that a taint which somebody else adds meanwhile is not lost.
pub fn opening(node: &Value) -> Option<Value> {
    let is_not_ready = |taint: &Value| taint["key"] == NOT_READY;
    let list = |pointer: &str| node.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice);
    let taints = list("/spec/taints").filter(|taints| taints.iter().any(is_not_ready))?;
    let reported =
        list("/status/conditions").unwrap_or_default().iter().find(|condition| condition["type"] == "Ready");
    if reported.is_some_and(|condition| condition["status"] != "True") {
        return None;
    }
    let others: Vec<&Value> = taints.iter().filter(|taint| !is_not_ready(taint)).collect();
    // An empty list is left out, as kubectl leaves it out.
    let others = if others.is_empty() { Value::Null } else { json!(others) };
    let version = &node["metadata"]["resourceVersion"];
    Some(json!({"metadata": {"resourceVersion": version}, "spec": {"taints": others}}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tainted(keys: &[&str], ready: Option<&str>) -> Value {
        let taints: Vec<Value> = keys.iter().map(|key| json!({"key": key, "effect": "NoSchedule"})).collect();
        let conditions: Vec<Value> =
            ready.iter().map(|status| json!({"type": "Ready", "status": status})).collect();
        json!({"metadata": {"name": "n", "resourceVersion": "7"}, "spec": {"taints": taints},
               "status": {"conditions": conditions}})
    }

    #[test]
    fn a_node_is_opened_once_and_keeps_its_other_taints() {
        let patch = opening(&tainted(&["gpu", NOT_READY], Some("True"))).unwrap();
        assert_eq!(patch["spec"]["taints"], json!([{"key": "gpu", "effect": "NoSchedule"}]));
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
        let patch = opening(&tainted(&[NOT_READY], None)).unwrap();
        assert_eq!(patch["spec"], json!({"taints": null}), "nobody reports on it but the simulator");
        assert_eq!(opening(&tainted(&["gpu"], Some("True"))), None);
        assert_eq!(opening(&json!({})), None);
    }

    #[test]
    fn a_node_that_says_it_is_not_ready_keeps_the_taint() {
        assert_eq!(opening(&tainted(&[NOT_READY], Some("False"))), None);
        assert_eq!(opening(&tainted(&[NOT_READY], Some("Unknown"))), None);
    }

    #[test]
    fn nodes_are_ready_and_differ_in_name_and_address() {
        let at: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let (first, big) = (node(1, at), node(300, at));
        assert_eq!(first["metadata"]["name"], "sandbox-node-1");
        assert_eq!(first["status"]["addresses"][0]["address"], "10.0.0.1");
        assert_eq!(big["status"]["addresses"][0]["address"], "10.0.1.44");
        let conditions = first["status"]["conditions"].as_array().unwrap();
        assert!(conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True"));
    }
}
