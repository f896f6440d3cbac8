//! Chooses the fault of each request: an ordered one, or a random one.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use tokio::time::Instant;

use super::{FirstAttempt, Judge};
use crate::deployments::objects::is_named_after;
use crate::deployments::scenario::Fault;
use crate::engine::call::{Call, daemon_of};
use crate::engine::network::{self, Dead};
use crate::engine::request_fault::{OrderedFault, RequestFault};

/// Longer than a daemon waits for a reply.
const GIVEN_UP: Duration = Duration::from_secs(40);

/// Shorter than that.
const LATE: Duration = Duration::from_secs(20);

/// Whether admission webhooks are called for it, in their most common configuration: not for a status.
fn is_admitted(call: &Call) -> bool {
    call.is_write() && matches!(&*call.resource, "pods" | "replicasets") && call.subresource.is_empty()
}

/// The reply of an API server where a required webhook cannot be called.
fn webhook_fails() -> RequestFault {
    let message =
        "Internal error occurred: failed calling webhook \"policy.example.com\": connection refused";
    RequestFault::Refuse(500, "InternalError", message.into())
}

impl Judge {
    pub(super) fn request_fault(&mut self, call: &Call, may_fail: bool, dead: &mut Dead) -> RequestFault {
        if self.quota && call.resource == "pods" && call.method == Method::POST && call.subresource.is_empty()
        {
            let message = format!("pods \"{}\" is forbidden: exceeded quota: pods", call.name);
            return RequestFault::Refuse(403, "Forbidden", message);
        }
        if call.of_daemon()
            && call.is_workload_write()
            && self.history_state.forbidden.is_some_and(|name| is_named_after(&call.name, name))
        {
            return RequestFault::Refuse(500, "InternalError", "etcdserver: request timed out".into());
        }
        if call.of_daemon()
            && self.history_state.sizes_fixed
            && (call.method == Method::PATCH, &*call.resource, &*call.subresource)
                == (true, "replicasets", "")
        {
            let message = format!("replicasets.apps \"{}\" is forbidden: sizes are fixed", call.name);
            return RequestFault::Refuse(403, "Forbidden", message);
        }
        if call.of_daemon()
            && call.is_workload_write()
            && let Some((how, first_attempts)) = &mut self.first_attempts
            && first_attempts.insert(format!("{call} {}", call.body))
        {
            return match how {
                FirstAttempt::Refused => {
                    RequestFault::Refuse(500, "InternalError", "etcdserver: leader changed".into())
                }
                FirstAttempt::Lost => RequestFault::LoseRequest,
            };
        }
        if call.is_workload_write()
            && let Some(daemon) = daemon_of(&call.agent)
            && let Some(carried_out) = self.points.reach(daemon)
        {
            self.kill(dead, &call.agent);
            return if carried_out { RequestFault::LoseReply } else { RequestFault::LoseRequest };
        }
        if call.fills_a_cache()
            && let Some(daemon) = daemon_of(&call.agent)
            && let Some(frozen) = self.frozen.get_mut(&(daemon, call.resource.clone()))
            && std::mem::take(&mut frozen.in_use)
        {
            return RequestFault::Freeze;
        }
        if !may_fail {
            return RequestFault::Proceed;
        }
        if call.resource == "leases"
            && call.is_write()
            && let Some(daemon) = daemon_of(&call.agent)
            && let Some((_, answered)) =
                self.failing_renewals.get_mut(&daemon).filter(|(end, _)| *end > Instant::now())
        {
            return match std::mem::replace(answered, true) {
                // Late, but before the daemon abandons the call.
                false => RequestFault::DelayReply(Duration::from_secs(4)),
                true => RequestFault::LoseRequest,
            };
        }
        if call.is_workload_write()
            && let Some(daemon) = daemon_of(&call.agent)
            && let Some(fuse) = self.writes_until_killed.get_mut(&daemon)
        {
            if *fuse == 0 {
                self.writes_until_killed.remove(&daemon);
                self.kill(dead, &call.agent);
                return RequestFault::LoseReply;
            }
            *fuse -= 1;
        }
        if call.method == Method::POST
            && call.resource == "pods"
            && let Some((others, order)) = self.ordered
        {
            self.ordered = others.checked_sub(1).map(|others| (others, order));
            match order {
                _ if others > 0 => {}
                OrderedFault::AfterAbandoned => return RequestFault::Delay(GIVEN_UP),
                OrderedFault::AfterAuthorKilled => {
                    self.kill(dead, &call.agent);
                    return RequestFault::Delay(GIVEN_UP);
                }
                OrderedFault::LateReply => return RequestFault::DelayReply(LATE),
            }
        }
        if self.history_state.webhook_fails_until.is_some_and(|until| Instant::now() < until)
            && is_admitted(call)
        {
            return webhook_fails();
        }
        let Call { method, resource, name, subresource, .. } = call;
        let what = format!("{} {method} {resource} {name} {subresource}", call.agent);
        let count = self.counts.entry(what.clone()).or_default();
        *count += 1;
        let mut hasher = DefaultHasher::new();
        (self.seed, &what, *count).hash(&mut hasher);
        let mut rng = fastrand::Rng::with_seed(hasher.finish());
        for fault in &self.random {
            let late = Duration::from_millis(*rng.choice(&[300, 3000, 20_000, 40_000]).unwrap_or(&300));
            let dice = rng.u8(..100);
            match *fault {
                Fault::LostRequests(part) if dice < part => return RequestFault::LoseRequest,
                Fault::LostReplies(part) if dice < part && !call.watch => return RequestFault::LoseReply,
                Fault::LateRequests(part) if dice < part => return RequestFault::Delay(late),
                Fault::LateReplies(part) if dice < part => return RequestFault::DelayReply(late),
                Fault::Refusals(part) if dice < part => {
                    let code = if rng.bool() { 500 } else { 503 };
                    return RequestFault::Refuse(
                        code,
                        "InternalError",
                        "etcdserver: request timed out".into(),
                    );
                }
                Fault::Webhook(part) if dice < part && is_admitted(call) => return webhook_fails(),
                Fault::Throttled(part) if dice < part => {
                    let seconds = if call.is_workload_write() { rng.u32(1..6) } else { 1 };
                    return RequestFault::RetryAfter { code: 429, seconds, carried_out: false };
                }
                Fault::Unavailable(part) if dice < part => {
                    let (seconds, carried_out) = (rng.u32(1..6), rng.bool() && call.is_write());
                    return RequestFault::RetryAfter { code: 503, seconds, carried_out };
                }
                Fault::Behind(part) if dice < part && call.fills_a_cache() => {
                    return RequestFault::Behind(Duration::from_millis(rng.u64(500..20_000)));
                }
                Fault::Conflicts(part) if dice < part && call.method == Method::PATCH => {
                    return RequestFault::Refuse(409, "Conflict", "the object has been modified".into());
                }
                _ => {}
            }
        }
        RequestFault::Proceed
    }

    fn kill(&mut self, dead: &mut Dead, agent: &Arc<str>) {
        dead.insert(agent.clone());
        network::Judge::daemon_died(self, agent);
    }
}
