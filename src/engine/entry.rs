//! The entries that define a kind and a controller. The lists of them are in `controllers/registry.rs`.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use prometheus::IntCounterVec;

use super::setup::Setup;
use crate::metrics::Metrics;
use crate::model::{Record, Resource};
use crate::runtime::api::Api;
use crate::runtime::informer::{Informer, InformerOptions};
use crate::runtime::informers::AnyInformer;

/// A kind that is cached.
#[derive(Clone, Copy)]
pub struct KindEntry {
    /// The API resource.
    pub resource: Resource,
    /// Distinguishes its jitter from that of the other kinds.
    pub(crate) seed: u64,
    /// Whether its objects are cluster-scoped.
    pub is_of_the_cluster: bool,
    /// The only namespace whose objects are cached.
    namespace: Option<&'static str>,
    /// The field selector of what is cached.
    field_selector: Option<&'static str>,
    /// Whether no step waits for its first list: there are so many objects that it takes long.
    pub is_in_bulk: bool,
    build: fn(Api, InformerOptions) -> Built,
}

/// An informer, and its store.
pub(crate) type Built = (Box<dyn AnyInformer>, Arc<dyn Any + Send + Sync>);

impl KindEntry {
    /// The kind whose objects are decoded as `T`. `seed` distinguishes its jitter from that of the other kinds.
    pub const fn of<T: Record>(seed: u64) -> Self {
        KindEntry {
            resource: T::RESOURCE,
            seed,
            is_of_the_cluster: false,
            namespace: None,
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

    /// The same where only the objects of one namespace are cached, whatever `--namespace` is.
    #[must_use]
    pub const fn of_the_namespace(self, namespace: &'static str) -> Self {
        KindEntry { namespace: Some(namespace), ..self }
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

    pub(crate) fn build(&self, api: Api, mut options: InformerOptions) -> Built {
        options.seed ^= self.seed;
        let of_scope = options.namespace.filter(|_| !self.is_of_the_cluster);
        options.namespace = self.namespace.map(str::to_owned).or(of_scope);
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
    /// The limits that the flags set.
    pub const AS_CONFIGURED: Requests = Requests { qps: 1.0, burst: 1 };
}

impl fmt::Debug for ControllerEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
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
    pub fn runs_in_one_namespace(&self, kinds: &[KindEntry]) -> bool {
        !kinds.iter().any(|kind| kind.resource == self.kind && kind.is_of_the_cluster)
    }

    /// The environment variable of its flag.
    pub fn variable(&self) -> String {
        format!("WINDLASS_{}", self.flag.replace('-', "_").to_uppercase())
    }
}

/// A controller as the daemon starts, monitors and stops it, whatever its kind is.
pub trait Worker: Send + Sync {
    /// Its entry in the registry.
    fn entry(&self) -> &'static ControllerEntry;

    /// Syncs this many keys concurrently, until [`Worker::shut_down`] and the running syncs have finished.
    fn run(&self, workers: usize) -> BoxFuture<'static, ()>;

    /// Starts no more syncs.
    fn shut_down(&self);

    /// How long the longest running sync has been running.
    fn longest_running(&self) -> Duration;

    /// Queues every object once more.
    fn resync(&self);

    /// The kinds whose caches it waits for instead of reading past them
    /// ([`super::controller::Controller::AWAITED_KINDS`]).
    fn awaited_kinds(&self) -> &'static [Resource];

    /// Drops the keys of deleted objects, which a standby would accumulate.
    fn drop_deleted_keys(&self);
}

/// Kinds and controllers.
#[derive(Clone)]
pub struct Registry {
    kinds: Vec<KindEntry>,
    controllers: Vec<&'static ControllerEntry>,
}

impl Registry {
    /// These, in the order in which kinds are listed and controllers start.
    pub fn new(kinds: &[KindEntry], controllers: &[&'static ControllerEntry]) -> Self {
        Registry { kinds: kinds.to_vec(), controllers: controllers.to_vec() }
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
