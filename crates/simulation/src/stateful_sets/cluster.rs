//! The state around a write, by which the write is judged.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::Response;
use serde_json::Value;

use super::identity::stateful_set;
use super::judge::{Commit, Judge};
use crate::engine::breach::Breach;
use crate::engine::call::Call;
use crate::engine::network;
use crate::engine::objects::NAMESPACE;
use crate::engine::request_fault::RequestFault;
use windlass_apiserver::Sandbox;

/// The state before a write.
pub struct Before {
    object: Option<Arc<Value>>,
    pods: Vec<Value>,
    claims: Vec<Value>,
    revisions: Vec<Value>,
}

fn kind(call: &Call) -> Option<&'static str> {
    match &*call.resource {
        "statefulsets" => Some("StatefulSet"),
        "controllerrevisions" => Some("ControllerRevision"),
        "persistentvolumeclaims" => Some("PersistentVolumeClaim"),
        "pods" => Some("Pod"),
        _ => None,
    }
}

impl network::Judge for Judge {
    type Before = Before;

    fn answered(&mut self, _: Duration, call: &Call, _: &RequestFault, reply: &Response<Body>) {
        self.was_answered(call, reply.status());
    }

    fn before(&self, sandbox: &Sandbox, call: &Call) -> Option<Before> {
        let object =
            if call.resource == "events" { None } else { sandbox.object(kind(call)?, NAMESPACE, &call.name) };
        Some(Before {
            object,
            pods: sandbox.objects("Pod"),
            claims: sandbox.objects("PersistentVolumeClaim"),
            revisions: sandbox.objects("ControllerRevision"),
        })
    }

    fn committed(&mut self, moment: network::Moment<'_>, before: Before) -> Result<(), Breach> {
        let network::Moment { sandbox, at, now, call } = moment;
        if call.resource == "events" {
            return self.judge_event(call);
        }
        let after = kind(call).and_then(|kind| sandbox.object(kind, NAMESPACE, &call.name));
        if before.object == after {
            return Ok(());
        }
        let Before { object, pods, claims, revisions } = before;
        let (before, after) = (object.as_deref(), after.as_deref());
        let stateful_set = stateful_set(sandbox);
        Judge::committed(
            self,
            &Commit { at, now, call, before, after, stateful_set, pods, claims, revisions },
        )
    }

    fn daemon_started(&mut self, agent: &str, _: Duration) {
        self.running.insert(agent.to_owned());
    }

    fn daemon_died(&mut self, agent: &str) {
        self.running.remove(agent);
        self.failures.clear();
    }

    fn is_blind(&mut self, until: Duration) {
        self.blind.lags_until(until);
    }
}
