//! The kinds the sandbox serves, in one table: a row says all that is special about a kind, and refers to the functions
//! that do it. The rest of the server knows few kinds by name.

mod cluster;
mod core;
pub(crate) mod lists;
mod network;
pub(crate) mod release;
mod row;
mod served;
mod storage;
mod workloads;

use k8s_openapi::api::autoscaling::v1::Scale;
use k8s_openapi::api::core::v1::Binding;
use k8s_openapi::api::policy::v1::Eviction;

use row::of;
pub(crate) use row::{BASE, By, Generation, Kind, Nulls, StrategyContext, Subresource, Wire};
pub use served::ServedKind;
pub(crate) use served::served;

/// The types of bodies that are not stored.
static BODIES: &[Kind] = &[
    Kind {
        validate: |scale, errors| errors.non_negative("spec.replicas", &scale["spec"]["replicas"]),
        ..of::<Scale>()
    },
    of::<Binding>(),
    of::<Eviction>(),
];

static UNKNOWN: Kind = BASE;

/// The rows of each group, in the order of discovery, which is a real server's (`groupPriorityMinimum`).
static GROUPS: &[&[Kind]] = &[
    core::ROWS,
    workloads::APPS,
    cluster::EVENTS,
    cluster::AUTHENTICATION,
    cluster::AUTHORIZATION,
    workloads::AUTOSCALING,
    workloads::BATCH,
    cluster::CERTIFICATES,
    network::NETWORKING,
    workloads::POLICY,
    cluster::RBAC,
    storage::STORAGE,
    cluster::EXTENSIONS,
    cluster::ADMISSION,
    cluster::SCHEDULING,
    cluster::COORDINATION,
    cluster::NODE,
    network::DISCOVERY,
    cluster::FLOW_CONTROL,
    storage::RESOURCE,
    cluster::AGGREGATION,
];

/// Every kind, in the order of discovery.
pub(crate) fn all() -> impl Iterator<Item = &'static Kind> {
    GROUPS.iter().copied().flatten()
}

/// The built-in kinds whose objects can be created, in the order of their names. Those of a server, with its custom kinds, are
/// [`crate::Sandbox::served_kinds`].
pub fn served_kinds() -> Vec<ServedKind> {
    served(all())
}

#[cfg(test)]
pub(crate) fn find(group: &str, version: &str, plural: &str) -> Option<&'static Kind> {
    all().find(|row| row.group == group && row.version == version && row.plural == plural)
}

/// The row named `kind`, or one without anything special; of the two Event rows the stored one.
pub(crate) fn named(kind: &str) -> &'static Kind {
    all().chain(BODIES).find(|row| row.kind == kind).unwrap_or(&UNKNOWN)
}

/// The row of the type of a body.
pub(crate) fn of_body(api_version: &str, kind: &str) -> Option<&'static Kind> {
    all().chain(BODIES).find(|row| row.kind == kind && row.api_version() == api_version)
}
