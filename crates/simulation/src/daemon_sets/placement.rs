//! On which nodes a DaemonSet runs, within what the scenarios use: one zone label, and taints that are tolerated or
//! not.

use serde_json::Value;

use crate::engine::objects::text;

/// The requirement of a DaemonSet on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Requirement {
    /// No pod.
    None,
    /// An existing pod may stay.
    Stay,
    /// A pod.
    Run,
}

/// Taints that every DaemonSet pod tolerates.
const TOLERATED: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];

/// The requirement of the DaemonSet on the node.
pub fn requirement(daemon_set: &Value, node: &Value) -> Requirement {
    let spec = &daemon_set["spec"]["template"]["spec"];
    let zone = text(spec, "/nodeSelector/zone");
    if !zone.is_empty() && text(node, "/metadata/labels/zone") != zone {
        return Requirement::None;
    }
    let all = spec["tolerations"].as_array().is_some_and(|all| all.iter().any(|t| t["operator"] == "Exists"));
    let taints = node["spec"]["taints"].as_array().map(Vec::as_slice).unwrap_or_default();
    let left: Vec<&str> = taints
        .iter()
        .filter(|taint| !all && !TOLERATED.contains(&(text(taint, "/key"), text(taint, "/effect"))))
        .map(|taint| text(taint, "/effect"))
        .collect();
    match () {
        () if left.contains(&"NoExecute") => Requirement::None,
        () if left.contains(&"NoSchedule") => Requirement::Stay,
        () => Requirement::Run,
    }
}

/// The node that a DaemonSet pod is for.
pub fn target(pod: &Value) -> &str {
    let affinity = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution";
    match text(pod, "/spec/nodeName") {
        "" => pod.pointer(affinity).map_or("", |it| text(it, "/nodeSelectorTerms/0/matchFields/0/values/0")),
        node => node,
    }
}
