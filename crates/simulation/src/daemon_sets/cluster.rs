//! The state around a write to a DaemonSet's cluster, by which the write is judged.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::Value;

use super::judge::{self, Judge};
use crate::engine::breach::Breach;
use crate::engine::call::Call;
use crate::engine::network::{self, Dead};
use crate::engine::objects::NAMESPACE;
use crate::engine::request_fault::RequestFault;
use windlass_apiserver::Sandbox;

/// The state before a write.
pub struct Before {
    object: Option<Arc<Value>>,
    pods: Vec<Value>,
    revisions: Vec<Value>,
}

/// The DaemonSet, if there is one.
pub fn daemon_set(sandbox: &Sandbox) -> Option<Arc<Value>> {
    sandbox.object("DaemonSet", NAMESPACE, "agent")
}

fn object(sandbox: &Sandbox, call: &Call) -> Option<Arc<Value>> {
    let (kind, namespace) = match &*call.resource {
        "daemonsets" => ("DaemonSet", NAMESPACE),
        "controllerrevisions" => ("ControllerRevision", NAMESPACE),
        "nodes" => ("Node", ""),
        "pods" => ("Pod", NAMESPACE),
        _ => return None,
    };
    sandbox.object(kind, namespace, &call.name)
}

impl network::Judge for Judge {
    type Before = Before;

    fn before(&self, sandbox: &Sandbox, call: &Call) -> Option<Before> {
        let is_judged = matches!(&*call.resource, "daemonsets" | "controllerrevisions" | "nodes" | "pods");
        is_judged.then(|| Before {
            object: object(sandbox, call),
            pods: sandbox.objects("Pod"),
            revisions: sandbox.objects("ControllerRevision"),
        })
    }

    fn committed(&mut self, moment: network::Moment<'_>, before: Before) -> Result<(), Breach> {
        let network::Moment { sandbox, at, now, call } = moment;
        let after = object(sandbox, call);
        if before.object == after {
            return Ok(());
        }
        let commit = judge::Commit {
            at,
            now,
            call,
            before: before.object.as_deref(),
            after: after.as_deref(),
            daemon_set: daemon_set(sandbox),
            nodes: sandbox.objects("Node"),
            pods: before.pods,
            revisions: before.revisions,
        };
        Judge::committed(self, &commit)
    }

    fn fault(&mut self, moment: network::Moment<'_>, may_fail: bool, _: &mut Dead) -> Option<RequestFault> {
        let call = moment.call;
        let is_refused = may_fail && self.policy && call.resource == "pods" && call.method == Method::POST;
        let message = "ValidatingAdmissionPolicy 'p' denied request: not now";
        is_refused.then(|| RequestFault::Refuse(403, "Forbidden", message.into()))
    }

    fn daemon_died(&mut self, _: &str) {
        Judge::daemon_died(self);
    }

    fn is_blind(&mut self, until: Duration) {
        self.blind.lags_until(until);
    }
}
