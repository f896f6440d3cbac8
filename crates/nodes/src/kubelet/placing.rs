//! The scheduler's part of the simulator: a node for a pod, or the report that there is none.

use serde_json::json;

use super::{
    Simulator,
    calls::{Call, Calls, pods_path},
    claims::Verdict,
    lifecycle::Outcome,
    record::Pod,
    status,
};
use crate::{
    scheduler,
    volumes::{self, binding::SELECTED_NODE},
};

const SCHEDULER: &str = "default-scheduler";

impl Simulator {
    pub(super) fn waits_for_claims(&self, pod: &Pod) -> bool {
        self.options.volumes && pod.claims().next().is_some()
    }

    pub(super) fn place(&mut self, uid: &str, pod: &Pod) -> Calls {
        self.life.judge_by_needs(uid);
        let verdict = match () {
            () if !self.waits_for_claims(pod) => Verdict::Ready,
            () if !self.claims.are_known() => return Calls::new(Outcome::Blocked),
            () => self.claims.judge(pod),
        };
        let nodes = self.life.nodes().len();
        let (node, unbound, is_hopeless) = match verdict {
            Verdict::Refused(why) if nodes > 0 => {
                return self.refuse(uid, pod, &scheduler::no_node(pod, nodes, &why), Outcome::Blocked);
            }
            Verdict::NodeFirst { claims, is_hopeless } => (self.life.assume(uid), claims, is_hopeless),
            Verdict::Ready | Verdict::Refused(_) => (self.life.assume(uid), Vec::new(), false),
        };
        let node = match node {
            Ok(node) => node,
            Err(why) => return self.refuse(uid, pod, &why, Outcome::Unplaced),
        };
        if !unbound.is_empty() {
            let why = format!("{nodes} node(s) didn't find available persistent volumes to bind");
            let why = scheduler::no_node(pod, nodes, &why);
            let mut calls = match is_hopeless {
                true => self.refuse(uid, pod, &why, Outcome::Blocked),
                false => Calls::new(Outcome::Blocked),
            };
            for (claim, _) in unbound.iter().filter(|(_, selected)| selected.is_none()) {
                let path = format!("{}/{claim}", volumes::claims_path(pod.namespace()));
                let selected = json!({"metadata": {"annotations": {SELECTED_NODE: node}}});
                calls.needed.push(Call::Patch(path, selected));
            }
            return calls;
        }
        let (namespace, name) = (pod.namespace(), pod.name());
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace, "uid": uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        });
        let mut calls = Calls::new(Outcome::Done);
        calls.needed.push(Call::Post(format!("{}/{name}/binding", pods_path(namespace)), binding));
        let message = format!("Successfully assigned {namespace}/{name} to {node}");
        self.record_event(pod, &mut calls, SCHEDULER, "Normal", "Scheduled", &message);
        calls
    }

    /// Reports why the pod has no node, unless that was the last thing reported.
    fn refuse(&mut self, uid: &str, pod: &Pod, why: &str, outcome: Outcome) -> Calls {
        let mut calls = Calls::new(outcome);
        if self.life.record_complaint(uid, why) {
            calls.needed.push(Call::PatchStatus(status::unschedulable(pod, why, (self.options.now)())));
            self.record_event(pod, &mut calls, SCHEDULER, "Warning", "FailedScheduling", why);
        }
        calls
    }
}
