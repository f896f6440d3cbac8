//! The two lists that define the daemon: the kinds that it caches, and its controllers.
//!
//! Start, drain, resync, readiness, read barriers, health checks, the labels of metrics, the flags
//! `--controllers` and `--concurrent-*-syncs`, and the tables of the documentation and the chart are derived from
//! these lists. A new controller needs an entry here; see `docs/architecture.md`.

use super::{
    clusterrole_aggregation, cronjob, daemonset, deployment, disruption, endpoint_slice,
    endpoint_slice_mirroring, endpoints, garbage, job, namespace, node_lifecycle, pod_gc, pv_protection,
    pvc_protection, replicaset, replicationcontroller, resource_quota, rolling_update, root_ca_cert,
    serviceaccount, statefulset, taint_eviction, ttl_after_finished,
};
use crate::engine::entry::{ControllerEntry, KindEntry, Registry};
use crate::model::lease::NODE_LEASES;
use crate::model::{
    ClusterRole, ConfigMap, ControllerRevision, CronJob, DaemonSet, Deployment, EndpointSlice, Endpoints,
    Job, Lease, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, PodDisruptionBudget,
    ReplicaSet, ReplicationController, ResourceQuota, Service, ServiceAccount, StatefulSet,
};

/// The kinds that are cached, in the order in which they are listed.
pub static KINDS: [KindEntry; 22] = [
    KindEntry::of::<Deployment>(1),
    KindEntry::of::<ReplicaSet>(2),
    KindEntry::of::<ReplicationController>(4),
    KindEntry::of::<DaemonSet>(5),
    KindEntry::of::<StatefulSet>(8),
    KindEntry::of::<CronJob>(10),
    KindEntry::of::<ControllerRevision>(6),
    KindEntry::of::<Job>(9),
    KindEntry::of::<Node>(7).of_the_cluster(),
    KindEntry::of::<Namespace>(20).of_the_cluster(),
    // One of each in a namespace.
    KindEntry::of::<ServiceAccount>(21).selected_by("metadata.name=default"),
    KindEntry::of::<ConfigMap>(22).selected_by("metadata.name=kube-root-ca.crt"),
    KindEntry::of::<PersistentVolumeClaim>(23),
    KindEntry::of::<PersistentVolume>(24).of_the_cluster(),
    KindEntry::of::<ClusterRole>(25).of_the_cluster(),
    KindEntry::of::<Service>(26),
    KindEntry::of::<EndpointSlice>(27),
    KindEntry::of::<PodDisruptionBudget>(28),
    KindEntry::of::<ResourceQuota>(33),
    KindEntry::of::<Endpoints>(29),
    KindEntry::of::<Lease>(30).of_the_namespace(NODE_LEASES),
    KindEntry::of::<Pod>(3).in_bulk(),
];

/// The controllers, in the order in which they start.
pub static CONTROLLERS: [&ControllerEntry; 24] = [
    &deployment::ENTRY,
    &replicaset::ENTRY,
    &replicationcontroller::ENTRY,
    &daemonset::ENTRY,
    &statefulset::ENTRY,
    &job::ENTRY,
    &cronjob::ENTRY,
    &ttl_after_finished::ENTRY,
    &garbage::ENTRY,
    &namespace::ENTRY,
    &serviceaccount::ENTRY,
    &root_ca_cert::ENTRY,
    &pvc_protection::ENTRY,
    &pv_protection::ENTRY,
    &clusterrole_aggregation::ENTRY,
    &pod_gc::ENTRY,
    &endpoint_slice::ENTRY,
    &endpoints::ENTRY,
    &endpoint_slice_mirroring::ENTRY,
    &disruption::ENTRY,
    &resource_quota::ENTRY,
    &node_lifecycle::ENTRY,
    &taint_eviction::ENTRY,
    &rolling_update::ENTRY,
];

/// The daemon's registry.
pub fn standard() -> Registry {
    Registry::new(&KINDS, &CONTROLLERS)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::controllers::garbage::OF_ANY_KIND;
    use crate::model::Resource;

    #[test]
    fn every_kind_that_a_controller_watches_is_listed_and_none_besides() {
        let listed: BTreeSet<Resource> = KINDS.iter().map(|kind| kind.resource).collect();
        let watched: BTreeSet<Resource> =
            CONTROLLERS.iter().flat_map(|entry| entry.watches).copied().collect();
        assert_eq!(listed, watched);
        let is_watched = |entry: &&&ControllerEntry| entry.watches.contains(&entry.kind);
        assert!(CONTROLLERS.iter().filter(|entry| entry.kind != OF_ANY_KIND).all(|entry| is_watched(&entry)));
    }

    #[test]
    fn no_two_entries_share_an_identifier() {
        fn distinct<T: Ord>(all: impl Iterator<Item = T> + Clone) -> bool {
            all.clone().collect::<BTreeSet<_>>().len() == all.count()
        }
        assert!(distinct(KINDS.iter().map(|kind| kind.seed)));
        assert!(distinct(CONTROLLERS.iter().map(|entry| entry.name)));
        assert!(distinct(CONTROLLERS.iter().map(|entry| entry.flag)));
        assert!(distinct(CONTROLLERS.iter().map(|entry| entry.queue)));
        let names =
            CONTROLLERS.iter().flat_map(|entry| entry.aliases.iter().copied().chain([entry.short_name()]));
        assert!(distinct(names));
    }
}
