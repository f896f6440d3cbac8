//! The options of a server.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::fault_injection::FaultInjector;

/// The options of a sandbox. [`Options::new`] has the defaults.
#[derive(Clone)]
#[non_exhaustive]
pub struct Options {
    /// The time for `creationTimestamp`, `deletionTimestamp` and ages. Waiting (bookmarks, time-outs,
    /// delays) follows tokio's clock instead.
    pub now: Arc<dyn Fn() -> jiff::Timestamp + Send + Sync>,
    /// Seed of UIDs, generated names and cluster IPs. The default is 0.
    pub seed: u64,
    /// The number of changes of each kind in the history; a watch from before the oldest gets 410. The default is
    /// 10 000, the minimum is 1. Changes that an open watch has not read stay longer, up to eight times as many.
    pub history: usize,
    /// The size in bytes of the objects in the history of each kind, as JSON: an earlier end of the history, for objects
    /// that are large or change often. The default is 2 MiB. Open watches extend it as they extend `history`.
    pub history_bytes: usize,
    /// Time between the bookmarks of a watch that allows them. The default is 10 s.
    pub bookmark_interval: Duration,
    /// The form of the error for a watch from an expired revision.
    pub expired_watch: ExpiredWatch,
    /// Whether `sendInitialEvents` is served (KEP-3157, the WatchList feature); otherwise it is refused
    /// with 422, as by servers before 1.32. The default is true.
    pub streaming_lists: bool,
    /// Whether pods, and the metadata of any object, are served in protobuf to clients that ask for it. The default is true.
    pub protobuf: bool,
    /// Whether StatefulSets have `rollingUpdate.maxUnavailable` (the feature MaxUnavailableStatefulSet). The default is false,
    /// as in 1.36: the field is dropped.
    pub stateful_set_max_unavailable: bool,
    /// Sees every request and decides what happens to it. The default is none.
    pub on_request: Option<FaultInjector>,
    /// Stands in for the garbage collector and the namespace controller of a cluster: this long after a write, what has
    /// no owner left is deleted, foreground and orphaning deletions go on, and namespaces that are being deleted are emptied
    /// and finalized. With nothing to do, nothing runs. The default is none: all of it stays as it is.
    pub collect_after: Option<Duration>,
    /// Whether `status.used` of a quota is what its namespace holds, after each write, whatever a client writes into it. If not, quotas are
    /// charged with what is admitted and never relieved, as kube-apiserver does it, and have no status before a client writes one:
    /// for tests of a quota controller. The default is true.
    pub counts_quotas: bool,
    /// Plugins that judge objects and fill them in, beyond the rules for all. The default is none, as for a test that makes
    /// only the objects it is about; [`Admission::CLUSTER`] has those of a cluster.
    pub admission: &'static [Admission],
}

/// A part of the admission of a cluster, by the name of its plugin where it is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Admission {
    /// A pod's account has to exist; `default` if the pod names none, for which a request waits as long as a real server does
    /// (1 s and more). A controller has to make it in each namespace.
    ServiceAccount,
    /// With [`Admission::ServiceAccount`]: containers get a volume with a token, which is for show, as nobody can log in.
    TokenVolume,
    /// A pod's class has to exist and gives it `priority` and `preemptionPolicy`. The two classes of the system are made at the
    /// start, and only one class is the default.
    Priority,
    /// Pods tolerate for 300 s that their node is not ready or unreachable.
    DefaultTolerationSeconds,
    /// A claim without a class gets the newest StorageClass that is marked as the default.
    DefaultStorageClass,
    /// The same for Ingresses.
    DefaultIngressClass,
    /// PodDisruptionBudgets refuse evictions.
    DisruptionBudgets,
}

impl Admission {
    /// All that a cluster has, but for the volumes of tokens.
    pub const CLUSTER: &[Admission] = &[
        Admission::ServiceAccount,
        Admission::Priority,
        Admission::DefaultTolerationSeconds,
        Admission::DefaultStorageClass,
        Admission::DefaultIngressClass,
        Admission::DisruptionBudgets,
    ];
}

/// The two forms in which servers and proxies report that a watch's revision has expired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExpiredWatch {
    /// An ERROR event in a stream that began with 200, as kube-apiserver does.
    #[default]
    Event,
    /// An HTTP status 410, as aggregated servers and proxies may do.
    Http,
}

impl Options {
    /// The defaults, with this clock.
    pub fn new(now: Arc<dyn Fn() -> jiff::Timestamp + Send + Sync>) -> Self {
        Options {
            now,
            seed: 0,
            history: 10_000,
            history_bytes: 2 << 20,
            bookmark_interval: Duration::from_secs(10),
            expired_watch: ExpiredWatch::default(),
            streaming_lists: true,
            protobuf: true,
            stateful_set_max_unavailable: false,
            on_request: None,
            collect_after: None,
            counts_quotas: true,
            admission: &[],
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Options {
            now: _,
            seed,
            history,
            history_bytes,
            bookmark_interval,
            expired_watch,
            streaming_lists,
            protobuf,
            stateful_set_max_unavailable,
            on_request,
            collect_after,
            counts_quotas,
            admission,
        } = self;
        formatter
            .debug_struct("Options")
            .field("seed", seed)
            .field("history", history)
            .field("history_bytes", history_bytes)
            .field("bookmark_interval", bookmark_interval)
            .field("expired_watch", expired_watch)
            .field("streaming_lists", streaming_lists)
            .field("protobuf", protobuf)
            .field("stateful_set_max_unavailable", stateful_set_max_unavailable)
            .field("on_request", &on_request.is_some())
            .field("collect_after", collect_after)
            .field("counts_quotas", counts_quotas)
            .field("admission", admission)
            .finish_non_exhaustive()
    }
}
