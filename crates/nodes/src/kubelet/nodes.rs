//! The simulated nodes.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};

use crate::api_client::rfc3339;

/// The pod capacity of a simulated node. Ten times a real node's default: a sandbox is for rollouts, and with 110 a
/// Deployment of 400 pods would need more nodes.
const PODS_PER_NODE: &str = "1000";

/// The kubelet version of simulated nodes beside the embedded API server: its own. A newer kubelet than its API server is
/// no cluster that Kubernetes supports.
pub const KUBELET_VERSION: &str = "v1.36.0";

/// The operating system of a simulated node.
const OS_IMAGE: &str = "Windlass sandbox";

/// The name of simulated node `number`, counted from 1.
pub fn name(number: usize) -> String {
    format!("sandbox-node-{number}")
}

/// The number of the simulated node with this name.
pub fn number(text: &str) -> Option<usize> {
    let number = text.strip_prefix("sandbox-node-")?.parse().ok()?;
    (number > 0 && name(number) == text).then_some(number)
}

/// The address of simulated node `number`: 10.0.0.1 for the first.
fn address(number: usize) -> String {
    format!("10.{}.{}.{}", (number >> 16) & 0x3f, (number >> 8) & 0xff, number & 0xff)
}

/// The labels that the kubelet of a node gives it.
fn labels(name: &str) -> Value {
    json!({
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "beta.kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
    })
}

/// A node as its kubelet would register it.
pub fn node(number: usize, version: &str, now: Timestamp) -> Value {
    let name = name(number);
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels(&name)},
        "spec": {},
        "status": status(&name, &address(number), version, now),
    })
}

/// The status of a healthy simulated node.
fn status(name: &str, address: &str, version: &str, now: Timestamp) -> Value {
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
        "addresses": [{"type": "InternalIP", "address": address},
                      {"type": "Hostname", "address": name}],
        "conditions": [
            condition("MemoryPressure", "False", "KubeletHasSufficientMemory",
                "kubelet has sufficient memory available"),
            condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
            condition("PIDPressure", "False", "KubeletHasSufficientPID",
                "kubelet has sufficient PID available"),
            condition("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
        ],
        "nodeInfo": {
            "architecture": "amd64", "operatingSystem": "linux", "osImage": OS_IMAGE,
            "kernelVersion": "simulated", "containerRuntimeVersion": "sandbox://1",
            "kubeletVersion": version, "kubeProxyVersion": "",
            "machineID": name, "systemUUID": name, "bootID": name,
        },
    })
}

/// The reported condition of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Its Ready condition is true, or there is none: only the simulator reports on it, and runs its pods.
    Ready,
    /// Its kubelet reports that it is not ready.
    NotReady,
    /// Its kubelet does not report: running pods keep running, and no pod starts or ends.
    Unknown,
}

impl Condition {
    /// The condition of a node.
    pub fn of(node: &Node) -> Self {
        let conditions =
            node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        match conditions.iter().find(|condition| condition.type_ == "Ready") {
            Some(ready) if ready.status == "Unknown" => Condition::Unknown,
            Some(ready) if ready.status != "True" => Condition::NotReady,
            _ => Condition::Ready,
        }
    }
}

/// A write that a node is waiting for, as a merge patch.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// Of the node itself.
    Node(Value),
    /// Of its status.
    Status(Value),
}

/// Which taints follow from the state of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tainting {
    /// None: a controller looks after them.
    Left,
    /// Those of effect NoSchedule. Of those of effect NoExecute none is added.
    NoSchedule,
    /// All.
    All,
}

/// The status of the condition Ready under which a node has a taint that evicts.
pub fn evicting(node: &Value) -> Option<&str> {
    let is_evicting = |taint: &Value| {
        let key = taint["key"].as_str().unwrap_or_default();
        taint["effect"] == "NoExecute" && (key == NOT_READY || key == UNREACHABLE)
    };
    node["spec"]["taints"].as_array()?.iter().find(|taint| is_evicting(taint))?;
    ready(node)
}

/// The status of the condition Ready.
pub fn ready(node: &Value) -> Option<&str> {
    let conditions = node["status"]["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == "Ready")?["status"].as_str()
}

/// The next write that the kubelet and the node lifecycle controller would make about a node: the status and the labels
/// of one that no kubelet has reported on, such as one that kubectl has created, then the taints that its state calls
/// for. Every patch carries the resourceVersion, so that no concurrent write of another client is lost.
pub fn due(node: &Value, number: usize, version: &str, tainting: Tainting, now: Timestamp) -> Option<Write> {
    let read = json!({"resourceVersion": node["metadata"]["resourceVersion"]});
    let conditions = &node["status"]["conditions"];
    if conditions.as_array().is_none_or(Vec::is_empty) {
        let name = node["metadata"]["name"].as_str().unwrap_or_default();
        let mut status = status(name, &address(number), version, now);
        // An existing status is kept, but an API server gives each node a `nodeInfo` of empty strings and the port 0.
        let mut existing = node["status"].clone();
        if let Some(info) = existing.get_mut("nodeInfo").and_then(Value::as_object_mut) {
            info.retain(|_, value| value != "");
        }
        if existing.pointer("/daemonEndpoints/kubeletEndpoint/Port").is_some_and(|port| *port == 0) {
            existing.as_object_mut().into_iter().for_each(|status| drop(status.remove("daemonEndpoints")));
        }
        json_patch::merge(&mut status, &existing);
        if node["status"]["allocatable"].is_null() {
            status["allocatable"] = status["capacity"].clone();
        }
        return Some(Write::Status(json!({"metadata": read, "status": status})));
    }
    let mut patch = json!({"metadata": read});
    let labels = labels(node["metadata"]["name"].as_str().unwrap_or_default());
    let mut missing = serde_json::Map::new();
    for (key, value) in labels.as_object().into_iter().flatten() {
        if node["metadata"]["labels"][key].is_null() {
            missing.insert(key.clone(), value.clone());
        }
    }
    // Only on nodes whose kubelet is this simulator.
    let labelled = is_simulated(node) && !missing.is_empty();
    if labelled {
        patch["metadata"]["labels"] = Value::Object(missing);
    }
    let taints = if tainting == Tainting::Left { None } else { taints(node, tainting, now) };
    if let Some(taints) = &taints {
        patch["spec"] = json!({"taints": taints});
    }
    (labelled || taints.is_some()).then_some(Write::Node(patch))
}

/// Whether this simulator is the kubelet of a node.
pub fn is_simulated(node: &Value) -> bool {
    node["status"]["nodeInfo"]["osImage"] == OS_IMAGE
}

/// The patch of the status of a node whose heartbeats the node lifecycle controller missed: it has the conditions of a
/// healthy node again. `None` for any other, such as one whose condition a user set.
pub fn revived(node: &Value, now: Timestamp) -> Option<Value> {
    let conditions = node["status"]["conditions"].as_array()?;
    let is_missed = |condition: &Value| {
        let reason = condition["reason"].as_str().unwrap_or_default();
        condition["status"] == "Unknown" && matches!(reason, "NodeStatusUnknown" | "NodeStatusNeverUpdated")
    };
    if !is_simulated(node) || !conditions.iter().any(is_missed) {
        return None;
    }
    let mut healthy = status("", "", "", now)["conditions"].take();
    let healthy = healthy.as_array_mut()?;
    let revived = conditions.iter().map(|condition| {
        let same = healthy.iter().find(|healthy| healthy["type"] == condition["type"]);
        same.filter(|_| is_missed(condition)).unwrap_or(condition).clone()
    });
    let revived: Vec<Value> = revived.collect();
    let version = &node["metadata"]["resourceVersion"];
    Some(json!({"metadata": {"resourceVersion": version}, "status": {"conditions": revived}}))
}

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// Condition, status, and the taint of effect NoSchedule that follows from it
/// (pkg/controller/nodelifecycle/node_lifecycle_controller.go).
const TAINTS: [(&str, &str, &str); 6] = [
    ("Ready", "False", NOT_READY),
    ("Ready", "Unknown", UNREACHABLE),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
];

/// The taint of a cordoned node.
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// The taints of a node as its state calls for them; `None` if it has them already. Taints of others stay. An empty
/// list is null, as kubectl leaves it out.
fn taints(node: &Value, tainting: Tainting, now: Timestamp) -> Option<Value> {
    let conditions = node["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is = |type_: &str, status: &str| {
        conditions.iter().any(|condition| condition["type"] == type_ && condition["status"] == status)
    };
    let cordoned = node["spec"]["unschedulable"] == true;
    let mut wanted: Vec<(&str, &str)> = Vec::new();
    for (type_, _, key) in TAINTS.into_iter().filter(|(type_, status, _)| is(type_, status)) {
        wanted.push((key, "NoSchedule"));
        if type_ == "Ready" {
            wanted.push((key, "NoExecute"));
        }
    }
    if cordoned {
        wanted.push((UNSCHEDULABLE, "NoSchedule"));
    }
    let managed = |taint: &Value| {
        let (key, effect) =
            (taint["key"].as_str().unwrap_or_default(), taint["effect"].as_str().unwrap_or_default());
        match effect {
            "NoSchedule" => key == UNSCHEDULABLE || TAINTS.iter().any(|(_, _, managed)| *managed == key),
            "NoExecute" => key == NOT_READY || key == UNREACHABLE,
            _ => false,
        }
    };
    let is_wanted = |taint: &Value| {
        wanted.iter().any(|(key, effect)| taint["key"] == **key && taint["effect"] == **effect)
    };
    let present = node["spec"]["taints"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut all: Vec<Value> =
        present.iter().filter(|taint| !managed(taint) || is_wanted(taint)).cloned().collect();
    let kept = all.len();
    for (key, effect) in wanted {
        let is_added = effect == "NoSchedule" || tainting == Tainting::All;
        if is_added && !present.iter().any(|taint| taint["key"] == key && taint["effect"] == effect) {
            all.push(json!({"key": key, "effect": effect, "timeAdded": rfc3339(now)}));
        }
    }
    if kept == present.len() && all.len() == kept {
        return None;
    }
    Some(if all.is_empty() { Value::Null } else { Value::Array(all) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    /// A node that has reported, with taints of effect NoSchedule and a Ready condition.
    fn tainted(keys: &[&str], ready: &str) -> Value {
        let taints: Vec<Value> = keys.iter().map(|key| json!({"key": key, "effect": "NoSchedule"})).collect();
        json!({"metadata": {"name": "n", "resourceVersion": "7"}, "spec": {"taints": taints},
               "status": {"conditions": [{"type": "Ready", "status": ready}]}})
    }

    /// The keys and effects of the taints that the node gets.
    fn patched(node: &Value) -> Option<Vec<String>> {
        let Write::Node(patch) = due(node, 1, KUBELET_VERSION, Tainting::All, now())? else {
            panic!("a status: {node}")
        };
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let taints = patch["spec"]["taints"].as_array().map(Vec::as_slice).unwrap_or_default();
        Some(
            taints
                .iter()
                .map(|taint| format!("{}:{}", text(&taint["key"]), text(&taint["effect"])))
                .collect(),
        )
    }

    #[test]
    fn the_not_ready_taint_is_removed_once_and_other_taints_are_kept() {
        assert_eq!(patched(&tainted(&["gpu", NOT_READY], "True")).unwrap(), ["gpu:NoSchedule"]);
        let last = due(&tainted(&[NOT_READY], "True"), 1, KUBELET_VERSION, Tainting::All, now()).unwrap();
        let Write::Node(last) = last else { panic!("{last:?}") };
        assert_eq!(last["spec"], json!({"taints": null}));
        assert_eq!(patched(&tainted(&["gpu"], "True")), None);
    }

    #[test]
    fn taints_follow_the_conditions_and_the_cordon() {
        let not_ready = ["node.kubernetes.io/not-ready:NoSchedule", "node.kubernetes.io/not-ready:NoExecute"];
        assert_eq!(patched(&tainted(&[], "False")).unwrap(), not_ready);
        assert_eq!(patched(&tainted(&[NOT_READY], "False")).unwrap(), not_ready);
        let unreachable =
            ["node.kubernetes.io/unreachable:NoSchedule", "node.kubernetes.io/unreachable:NoExecute"];
        assert_eq!(patched(&tainted(&[NOT_READY], "Unknown")).unwrap(), unreachable);
        let mut node = tainted(&[], "True");
        node["spec"]["unschedulable"] = json!(true);
        let pressure = json!({"type": "DiskPressure", "status": "True"});
        node["status"]["conditions"].as_array_mut().unwrap().push(pressure);
        assert_eq!(
            patched(&node).unwrap(),
            ["node.kubernetes.io/disk-pressure:NoSchedule", "node.kubernetes.io/unschedulable:NoSchedule"]
        );
        let open = patched(&tainted(&[UNSCHEDULABLE, "node.kubernetes.io/disk-pressure"], "True")).unwrap();
        assert!(open.is_empty(), "{open:?}");
        let mut execute = tainted(&["gpu"], "True");
        execute["spec"]["taints"][0]["effect"] = json!("NoExecute");
        assert_eq!(patched(&execute), None, "it belongs to another kubelet");
    }

    #[test]
    fn what_another_controller_looks_after_is_left_to_it() {
        let node = tainted(&["gpu"], "False");
        assert_eq!(due(&node, 1, KUBELET_VERSION, Tainting::Left, now()), None);
        let Some(Write::Node(patch)) = due(&node, 1, KUBELET_VERSION, Tainting::NoSchedule, now()) else {
            panic!("no taint")
        };
        assert_eq!(patch["spec"]["taints"].as_array().unwrap().len(), 2);
        assert_eq!((evicting(&node), ready(&node)), (None, Some("False")));
        let mut evicted = node;
        evicted["spec"]["taints"][0] = json!({"key": NOT_READY, "effect": "NoExecute"});
        assert_eq!(evicting(&evicted), Some("False"));
    }

    #[test]
    fn a_node_whose_heartbeats_were_missed_is_ready_again_and_one_that_a_user_stopped_is_not() {
        let mut sound = node(1, KUBELET_VERSION, now());
        assert_eq!(revived(&sound, now()), None);
        let ready = |node: &mut Value, reason: &str| {
            for condition in node["status"]["conditions"].as_array_mut().unwrap() {
                if condition["type"] == "Ready" {
                    condition["status"] = json!("Unknown");
                    condition["reason"] = json!(reason);
                }
            }
        };
        ready(&mut sound, "NodeStatusUnknown");
        let patch = revived(&sound, now()).unwrap();
        let last = &patch["status"]["conditions"][3];
        assert_eq!(
            (&last["type"], &last["status"], &last["reason"]),
            (&json!("Ready"), &json!("True"), &json!("KubeletReady"))
        );
        let mut foreign = sound.clone();
        foreign["status"]["nodeInfo"]["osImage"] = json!("Debian");
        assert_eq!(revived(&foreign, now()), None, "it has a kubelet of its own");
        ready(&mut sound, "PulledThePlug");
        assert_eq!(revived(&sound, now()), None);
    }

    #[test]
    fn a_node_created_by_a_user_gets_a_status_and_then_its_labels() {
        let capacity = json!({"pods": "7"});
        let bare = json!({"metadata": {"name": "mine", "resourceVersion": "7", "labels": {"kubernetes.io/os": "plan9"}},
                          "status": {"capacity": capacity}});
        let Some(Write::Status(patch)) = due(&bare, 5, "v1.31.4", Tainting::All, now()) else {
            panic!("no status")
        };
        assert_eq!(patch["status"]["addresses"][0]["address"], "10.0.0.5");
        assert_eq!(patch["status"]["nodeInfo"]["kubeletVersion"], "v1.31.4", "that of the API server");
        assert_eq!(patch["status"]["capacity"]["pods"], "7");
        assert_eq!(patch["status"]["allocatable"]["pods"], "7");
        let mut reported = bare;
        json_patch::merge(&mut reported, &patch);
        let Some(Write::Node(patch)) = due(&reported, 5, KUBELET_VERSION, Tainting::All, now()) else {
            panic!("no labels")
        };
        assert_eq!(patch["metadata"]["labels"]["kubernetes.io/hostname"], "mine");
        assert_eq!(patch["metadata"]["labels"]["kubernetes.io/os"], Value::Null, "it has one");
        json_patch::merge(&mut reported, &patch);
        assert_eq!(due(&reported, 5, KUBELET_VERSION, Tainting::All, now()), None);
        assert_eq!(due(&node(1, KUBELET_VERSION, now()), 1, KUBELET_VERSION, Tainting::All, now()), None);
    }

    #[test]
    fn nodes_are_ready_and_differ_in_name_and_address() {
        let at: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let (first, big) = (node(1, KUBELET_VERSION, at), node(300, KUBELET_VERSION, at));
        assert_eq!(first["metadata"]["name"], "sandbox-node-1");
        assert_eq!(first["status"]["addresses"][0]["address"], "10.0.0.1");
        assert_eq!(big["status"]["addresses"][0]["address"], "10.0.1.44");
        let conditions = first["status"]["conditions"].as_array().unwrap();
        assert!(conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True"));
    }
}
