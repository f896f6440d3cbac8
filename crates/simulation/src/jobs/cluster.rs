//! The state around a write, by which the write is judged.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::judge::{Commit, Judge};
use crate::engine::breach::Breach;
use crate::engine::call::{Call, OpenCalls};
use crate::engine::network;
use crate::engine::objects::NAMESPACE;
use windlass_apiserver::Sandbox;

/// The state before a write.
pub struct Before {
    object: Option<Arc<Value>>,
    pods: Vec<Value>,
}

fn kind(call: &Call) -> Option<&'static str> {
    match &*call.resource {
        "jobs" => Some("Job"),
        "pods" => Some("Pod"),
        _ => None,
    }
}

impl network::Judge for Judge {
    type Before = Before;

    fn before(&self, sandbox: &Sandbox, call: &Call) -> Option<Before> {
        let object = sandbox.object(kind(call)?, NAMESPACE, &call.name);
        Some(Before { object, pods: sandbox.objects("Pod") })
    }

    fn committed(&mut self, moment: network::Moment<'_>, before: Before) -> Result<(), Breach> {
        let network::Moment { sandbox, at, now, call } = moment;
        let after = kind(call).and_then(|kind| sandbox.object(kind, NAMESPACE, &call.name));
        let Before { object, pods } = before;
        if object == after {
            return Ok(());
        }
        let jobs = sandbox.objects("Job");
        let (before, after) = (object.as_deref(), after.as_deref());
        Judge::committed(self, &Commit { at, now, call, before, after, jobs, pods })
    }

    fn open_calls(&mut self) -> Option<&mut OpenCalls> {
        Some(&mut self.calls)
    }

    fn daemon_started(&mut self, agent: &str, _: Duration) {
        self.running.insert(agent.to_owned());
    }

    fn daemon_died(&mut self, agent: &str) {
        self.running.remove(agent);
    }

    fn is_blind(&mut self, until: Duration) {
        self.blind.lags_until(until);
    }
}
