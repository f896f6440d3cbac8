//! The input of a plan for a Service, and what one sync leaves to the next.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::cpu_shares::CpuShares;
use super::trigger::TriggerTimes;
use crate::model::service::Service;
use crate::model::{AddressType, EndpointSlice, Node, Pod};

/// The input of a plan.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// The Service.
    pub service: &'a Service,
    /// The pods that it selects.
    pub pods: Vec<Arc<Pod>>,
    /// The nodes of these pods, as far as they are known.
    pub nodes: BTreeMap<Arc<str>, Arc<Node>>,
    /// Its slices that this controller manages and that are not being deleted, in the order of their names.
    pub slices: Vec<Arc<EndpointSlice>>,
    /// The names in its namespace that begin as those of its slices do.
    pub taken: BTreeSet<Arc<str>>,
    /// The shares of the zones in the CPUs, if the Service asks for hints by them, and they are known.
    pub shares: Option<Arc<CpuShares>>,
    /// The outcome of the last sync that has succeeded.
    pub memory: Memory,
    /// The limits.
    pub limits: Limits,
}

/// The limits that the flags set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most endpoints of a slice that is written.
    pub endpoints_per_slice: usize,
    /// Whether slices are deleted whose Service has lost its selector, or became a name.
    pub deletes_left_over: bool,
}

/// The part of a sync that the next one depends on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Memory {
    /// When its pods became ready or unready; `None` before the first sync.
    pub trigger_times: Option<Arc<TriggerTimes>>,
    /// The address types whose endpoints have hints by the CPUs of zones.
    pub hinted: BTreeSet<AddressType>,
    /// The last report of each address type about such hints.
    pub reports: BTreeMap<AddressType, String>,
    /// The pods that were left out because their nodes were unknown, in words.
    pub lost: Vec<String>,
    /// How many addresses were left out since they are none, and how many since they are too many.
    pub skipped: (usize, usize),
    /// The numbers of endpoints and slices.
    pub counts: Counts,
}

/// Numbers for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Endpoints that the Service should have.
    pub endpoints: usize,
    /// Its slices after the writes.
    pub slices: usize,
    /// How many slices there would be if each but the last was full.
    pub ideal: usize,
    /// Endpoints that slices gain.
    pub added: usize,
    /// Endpoints of slices that change.
    pub updated: usize,
    /// Endpoints that slices lose.
    pub removed: usize,
}
