//! The check of a kubelet before it starts a pod. A pod that was created with a `nodeName` has passed no scheduler
//! (upstream: `pkg/kubelet/lifecycle/predicate.go`).

use super::{KUBELET, Simulator, calls::Call, calls::Calls, lifecycle::Outcome, record::Pod, status};

const REASON: &str = "NodePorts";
const MESSAGE: &str =
    "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports";

impl Simulator {
    /// The requests by which the node refuses the pod: another pod that it has started has one of its host ports.
    pub(super) fn rejection(&mut self, uid: &str, pod: &Pod) -> Option<Calls> {
        let ports: Vec<_> = pod.host_ports().collect();
        let is_taken =
            |other: &Pod| other.host_ports().any(|taken| ports.iter().any(|port| port.conflicts(&taken)));
        if ports.is_empty() || !self.life.started_before(uid).any(is_taken) {
            return None;
        }
        let mut calls = Calls::new(Outcome::Moot);
        calls.needed.push(Call::PatchStatus(status::rejected(pod, REASON, MESSAGE)));
        self.record_event(pod, &mut calls, KUBELET, "Warning", REASON, MESSAGE);
        Some(calls)
    }
}
