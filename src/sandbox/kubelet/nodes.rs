//! The simulated nodes.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::sandbox::resources::rfc3339;

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

#[cfg(test)]
mod tests {
    use super::*;

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
