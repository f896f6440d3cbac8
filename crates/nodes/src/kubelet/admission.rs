//! The checks of a kubelet before it starts a pod. A pod that was created with a `nodeName` has passed no scheduler
//! (upstream: `pkg/kubelet/lifecycle/predicate.go`).

use super::{
    KUBELET, Simulator,
    calls::Call,
    calls::Calls,
    lifecycle::Outcome,
    quantity::{NANOS, nanos},
    record::Pod,
    status,
};

/// The reason why a node refuses a pod.
struct Refusal {
    reason: String,
    message: String,
}

impl Simulator {
    /// The requests by which the node refuses the pod.
    pub(super) fn rejection(&mut self, uid: &str, pod: &Pod) -> Option<Calls> {
        let Refusal { reason, message } =
            self.taken_port(uid, pod).or_else(|| self.missing_resource(uid, pod))?;
        let mut calls = Calls::new(Outcome::Moot);
        calls.needed.push(Call::PatchStatus(status::rejected(pod, &reason, &message)));
        self.record_event(pod, &mut calls, KUBELET, "Warning", &reason, &message);
        Some(calls)
    }

    /// Another pod that the node has started has one of the pod's host ports.
    fn taken_port(&self, uid: &str, pod: &Pod) -> Option<Refusal> {
        let ports: Vec<_> = pod.host_ports().collect();
        let is_taken =
            |other: &Pod| other.host_ports().any(|taken| ports.iter().any(|port| port.conflicts(&taken)));
        if ports.is_empty() || !self.life.started_before(uid).any(is_taken) {
            return None;
        }
        let message =
            "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports";
        Some(Refusal { reason: "NodePorts".to_owned(), message: message.to_owned() })
    }

    /// The pods that the node has started leave too little of a resource.
    fn missing_resource(&self, uid: &str, pod: &Pod) -> Option<Refusal> {
        let name = pod.node()?;
        let status = self.life.nodes().get(name)?.status.as_ref()?;
        let allocatable = status.allocatable.as_ref().or(status.capacity.as_ref())?;
        let load = self.life.load_of(name);
        let mut wanted: Vec<(Box<str>, i128)> = pod.requests().into_iter().collect();
        wanted.push(("pods".into(), NANOS));
        for (resource, wanted) in wanted {
            // A kubelet does not judge what its node has never had, such as the devices of another.
            let Some(capacity) = allocatable.get(&*resource).and_then(|quantity| nanos(&quantity.0)) else {
                continue;
            };
            let of = |pod: &Pod| match &*resource {
                "pods" => NANOS,
                resource => {
                    pod.requests().into_iter().find(|(name, _)| **name == *resource).map_or(0, |(_, n)| n)
                }
            };
            // The node has room for all of its pods, also those that it has not started.
            let all = load.map_or(0, |load| match &*resource {
                "pods" => load.pods as i128 * NANOS,
                resource => load.requested.get(resource).copied().unwrap_or(0),
            });
            if wanted <= 0 || all <= capacity {
                continue;
            }
            let used = self.life.started_before(uid).map(of).fold(0, i128::saturating_add);
            if wanted > capacity.saturating_sub(used) {
                // Of CPUs a kubelet counts thousandths.
                let unit = if &*resource == "cpu" { NANOS / 1000 } else { NANOS };
                let [wanted, used, capacity] = [wanted, used, capacity].map(|amount| amount / unit);
                return Some(Refusal {
                    reason: format!("OutOf{resource}"),
                    message: format!(
                        "Node didn't have enough resource: {resource}, requested: {wanted}, used: {used}, capacity: \
                         {capacity}"
                    ),
                });
            }
        }
        None
    }
}
