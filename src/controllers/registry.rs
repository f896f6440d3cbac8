//! The two lists that define the daemon: the kinds that it caches, and its controllers.
//!
//! Start, drain, resync, readiness, read barriers, health checks, the labels of metrics, the flags
//! `--controllers` and `--concurrent-*-syncs`, and the tables of the documentation and the chart are derived from
//! these lists. A new controller needs an entry here; see `docs/architecture.md`.

use std::any::Any;
use std::sync::Arc;

use prometheus::IntCounterVec;

use super::driver::Worker;
use super::setup::Setup;
use super::{
    clusterrole_aggregation, daemonset, deployment, garbage, namespace, pv_protection, pvc_protection,
    replicaset, replicationcontroller, rolling_update, root_ca_cert, serviceaccount,
};
use crate::metrics::Metrics;
use crate::model::{
    ClusterRole, ConfigMap, ControllerRevision, DaemonSet, Deployment, Namespace, Node, PersistentVolume,
    PersistentVolumeClaim, Pod, Record, ReplicaSet, ReplicationController, Resource, ServiceAccount,
};
use crate::runtime::api::Api;
use crate::runtime::informer::{Informer, InformerOptions};
use crate::runtime::informers::AnyInformer;

/// The kinds that are cached, in the order in which they are listed.
pub static KINDS: [KindEntry; 13] = [
    KindEntry::of::<Deployment>(1),
    KindEntry::of::<ReplicaSet>(2),
    KindEntry::of::<ReplicationController>(4),
    KindEntry::of::<DaemonSet>(5),
    KindEntry::of::<ControllerRevision>(6),
    KindEntry::of::<Node>(7).of_the_cluster(),
    KindEntry::of::<Namespace>(20).of_the_cluster(),
    // One of each in a namespace.
    KindEntry::of::<ServiceAccount>(21).selected_by("metadata.name=default"),
    KindEntry::of::<ConfigMap>(22).selected_by("metadata.name=kube-root-ca.crt"),
    KindEntry::of::<PersistentVolumeClaim>(23),
    KindEntry::of::<PersistentVolume>(24).of_the_cluster(),
    KindEntry::of::<ClusterRole>(25).of_the_cluster(),
    KindEntry::of::<Pod>(3).in_bulk(),
];

/// The controllers, in the order in which they start.
pub static CONTROLLERS: [&ControllerEntry; 12] = [
    &deployment::ENTRY,
    &replicaset::ENTRY,
    &replicationcontroller::ENTRY,
    &daemonset::ENTRY,
    &garbage::ENTRY,
    &namespace::ENTRY,
    &serviceaccount::ENTRY,
    &root_ca_cert::ENTRY,
    &pvc_protection::ENTRY,
    &pv_protection::ENTRY,
    &clusterrole_aggregation::ENTRY,
    &rolling_update::ENTRY,
];

/// What a controller of objects of any kind has as its kind. Its keys are UIDs, and none of its objects are cached here.
pub const OF_ANY_KIND: Resource = Resource { group: "", version: "", kind: "GarbageCollector", plural: "" };

/// A kind that is cached.
#[derive(Clone, Copy)]
pub struct KindEntry {
    /// The API resource.
    pub resource: Resource,
    /// Distinguishes its jitter from that of the other kinds.
    seed: u64,
    /// Whether its objects are cluster-scoped.
    pub is_of_the_cluster: bool,
    /// The field selector of what is cached.
    field_selector: Option<&'static str>,
    /// Whether no step waits for its first list: there are so many objects that it takes long.
    pub is_in_bulk: bool,
    build: fn(Api, InformerOptions) -> Built,
}

/// An informer, and its store.
pub(super) type Built = (Box<dyn AnyInformer>, Arc<dyn Any + Send + Sync>);

impl KindEntry {
    /// The kind whose objects are decoded as `T`. `seed` distinguishes its jitter from that of the other kinds.
    pub const fn of<T: Record>(seed: u64) -> Self {
        KindEntry {
            resource: T::RESOURCE,
            seed,
            is_of_the_cluster: false,
            field_selector: None,
            is_in_bulk: false,
            build: build::<T>,
        }
    }

    /// The same for a cluster-scoped kind: all objects are listed, whatever `--namespace` is.
    #[must_use]
    pub const fn of_the_cluster(self) -> Self {
        KindEntry { is_of_the_cluster: true, ..self }
    }

    /// The same where only the objects that a field selector such as `metadata.name=default` matches are cached. All
    /// controllers of the daemon see these alone.
    #[must_use]
    pub const fn selected_by(self, field_selector: &'static str) -> Self {
        KindEntry { field_selector: Some(field_selector), ..self }
    }

    /// The same for a kind with so many objects that the process acts before its first list is complete: what it needs
    /// until then, it reads past the cache ([`super::past_caches`]).
    #[must_use]
    pub const fn in_bulk(self) -> Self {
        KindEntry { is_in_bulk: true, ..self }
    }

    pub(super) fn build(&self, api: Api, mut options: InformerOptions) -> Built {
        options.seed ^= self.seed;
        options.namespace = options.namespace.filter(|_| !self.is_of_the_cluster);
        options.field_selector = self.field_selector;
        (self.build)(api, options)
    }
}

fn build<T: Record>(api: Api, options: InformerOptions) -> Built {
    let informer = Informer::<T>::new(api, options);
    let store = informer.store();
    (Box::new(informer), store)
}

/// A controller: all that differs between controllers outside of their own files.
pub struct ControllerEntry {
    /// Its name, kube-controller-manager's if it has it.
    pub name: &'static str,
    /// Its aliases in `--controllers`.
    pub aliases: &'static [&'static str],
    /// The kind of the keys in its queue.
    pub kind: Resource,
    /// These objects in prose, as in the help of its flag.
    pub objects: &'static str,
    /// The flag for the number of concurrent syncs, without its dashes.
    pub flag: &'static str,
    /// Its default.
    pub workers: usize,
    /// The label of its queue in metrics.
    pub queue: &'static str,
    /// The `source.component` of its events.
    pub component: &'static str,
    /// The kinds that it watches.
    pub watches: &'static [Resource],
    /// The counter of syncs that were skipped because a cache was behind.
    pub stale_skips: Option<fn(&Metrics) -> &IntCounterVec>,
    /// Whether `--controllers=*` runs it. One that needs rights over everything runs only if it is named.
    pub is_on_by_default: bool,
    /// Whether kube-controller-manager has it, and must have it switched off.
    pub is_upstream: bool,
    /// How many requests it may send.
    pub requests: Requests,
    /// Builds it and registers its handlers.
    pub install: fn(&mut Setup) -> Box<dyn Worker>,
}

/// How many requests a controller may send, as multiples of `--kube-api-qps` and `--kube-api-burst`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Requests {
    /// On average.
    pub qps: f64,
    /// At once.
    pub burst: u32,
}

impl Requests {
    /// What the flags say.
    pub const AS_CONFIGURED: Requests = Requests { qps: 1.0, burst: 1 };
}

impl ControllerEntry {
    /// Its name without the last word: `deployment`.
    pub fn short_name(&self) -> &'static str {
        self.name.strip_suffix("-controller").unwrap_or(self.name)
    }

    /// Whether `--controllers` accepts this name for it.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.short_name() == name || self.aliases.contains(&name)
    }

    /// Whether it can act in a single namespace: its objects are in namespaces.
    pub fn runs_in_one_namespace(&self) -> bool {
        !KINDS.iter().any(|kind| kind.resource == self.kind && kind.is_of_the_cluster)
    }

    /// The environment variable of its flag.
    pub fn variable(&self) -> String {
        format!("WINDLASS_{}", self.flag.replace('-', "_").to_uppercase())
    }
}

/// Kinds and controllers. The daemon's are [`Registry::standard`].
#[derive(Clone)]
pub struct Registry {
    kinds: Vec<KindEntry>,
    controllers: Vec<&'static ControllerEntry>,
}

impl Registry {
    /// The daemon's registry.
    pub fn standard() -> Self {
        Registry { kinds: KINDS.to_vec(), controllers: CONTROLLERS.to_vec() }
    }

    /// With one more kind.
    #[must_use]
    pub fn with_kind(mut self, kind: KindEntry) -> Self {
        self.kinds.push(kind);
        self
    }

    /// With one more controller.
    #[must_use]
    pub fn with_controller(mut self, controller: &'static ControllerEntry) -> Self {
        self.controllers.push(controller);
        self
    }

    /// The kinds, in the order in which they are listed.
    pub fn kinds(&self) -> &[KindEntry] {
        &self.kinds
    }

    /// The controllers, in the order in which they start.
    pub fn controllers(&self) -> &[&'static ControllerEntry] {
        &self.controllers
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

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
