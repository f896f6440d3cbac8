//! The Endpoints of a Service with a selector: all addresses of one family in one object of its name, at most 1,000.
//!
//! They are compared as sets, so that the order in which another writer has put them makes no write.

mod body;
mod subsets;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde_json::Value;

use super::endpointslice::TriggerTimes;
use crate::model::endpoints::{Endpoints, fingerprint};
use crate::model::{Pod, Service};
pub use subsets::MOST_ADDRESSES;

/// The input of a plan.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// The Service.
    pub service: &'a Service,
    /// The pods that it selects.
    pub pods: Vec<Arc<Pod>>,
    /// The Endpoints of its name, whoever has written them.
    pub endpoints: Option<Arc<Endpoints>>,
    /// When its pods became ready or unready, as of the last sync that has succeeded; `None` before the first.
    pub trigger_times: Option<Arc<TriggerTimes>>,
}

/// The write, and what to remember of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// The write, if one is needed.
    pub write: Option<Write>,
    /// The times for the next sync, to be kept once all is written.
    pub trigger_times: Option<Arc<TriggerTimes>>,
}

/// A write of Endpoints.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// New Endpoints.
    Create(Value),
    /// A change of Endpoints: as they were observed, and the merge patch.
    Update(Arc<Endpoints>, Value),
}

/// Whether Endpoints are to be deleted, since the Service of their name does not exist. Upstream deletes any Endpoints of the name
/// of a Service that was deleted, and at its start all without a Service; here only those whose label says that they were written
/// for one (kubernetes#104062).
pub fn is_left_over(endpoints: &Endpoints) -> bool {
    endpoints.is_managed() && !endpoints.is_lock && !endpoints.meta.is_deleting()
}

/// Plans the Endpoints of a Service. Those of a Service without selector, or of another name, are left to others.
pub fn plan(observed: &Observed<'_>) -> Plan {
    let Observed { service, pods, endpoints, trigger_times } = observed;
    if service.pods().is_none() {
        return Plan::default();
    }
    let (times, trigger) = TriggerTimes::after(trigger_times.as_deref(), service.meta.created, pods);
    let (subsets, is_truncated) = subsets::subsets(service, pods);
    let frame = body::Frame { service, labels: body::labels(service), trigger, is_truncated };
    let write = match endpoints {
        None if service.meta.is_deleting() => None,
        None => Some(Write::Create(frame.new_endpoints(&subsets))),
        Some(there) => {
            let is_same = there.fingerprint == fingerprint(&subsets);
            let needs_write = !is_same || !frame.fits(there);
            needs_write.then(|| Write::Update(there.clone(), frame.patch(there, &subsets)))
        }
    };
    Plan { write, trigger_times: Some(Arc::new(times)) }
}
