//! An embedded Kubernetes API server, for tests and for demonstrations without a cluster.
//!
//! The guarantee: for the served kinds, a client may rely on the semantics of a real API server. Stale writes are
//! refused, status and spec are separate, deletions are graceful, watches are consistent and can expire. Missing features
//! are refused, not faked: there is no authentication. `managedFields` are kept of all objects but Events and those
//! that a controller owns.
//!
//! [`Sandbox::router`] is an [`axum::Router`], which is a transport for `kube::Client`, and [`Sandbox::serve`] serves the
//! same router on a socket for kubectl. Clock and seed are arguments, so under tokio's paused clock a rollout of minutes
//! takes milliseconds and is reproducible:
//!
//! ```
//! use std::sync::Arc;
//!
//! use k8s_openapi::api::core::v1::Namespace;
//! use windlass_apiserver::{Options, Sandbox};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! let start: jiff::Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
//! let sandbox = Sandbox::new(Options::new(Arc::new(move || start)));
//! let client = kube::Client::new(sandbox.router(), "default");
//! let namespaces: kube::Api<Namespace> = kube::Api::all(client);
//! assert!(namespaces.get("kube-system").await.is_ok());
//! # });
//! ```

// The path of a request: HTTP, kinds, objects.
mod admission;
mod collect;
mod conversion;
mod custom;
mod discovery;
mod fault_injection;
mod go_text;
mod kinds;
mod managed_fields;
mod names;
mod negotiate;
mod object;
mod options;
mod params;
mod protobuf;
mod registry;
mod render;
mod request;
mod rest;
mod selection;
mod server;
mod status;
mod store;
mod warnings;
mod watch;
mod web_pages;

// The semantics of the API, as pure functions.
pub mod defaults;
pub mod openapi;
pub mod quantity;
pub mod selector;
pub mod strategic;
pub mod strict;
pub mod table;
pub mod validate;

#[cfg(test)]
mod robustness;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::serve::ListenerExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

pub use fault_injection::{FaultDecision, FaultInjector, RequestInfo};
pub use kinds::{ServedKind, served_kinds};
pub use options::{Admission, ExpiredWatch, Options};
pub use protobuf::write::value as to_protobuf;

use server::Server;

/// The time that open requests have to end when [`Sandbox::serve`] shuts down.
const DRAIN: Duration = Duration::from_secs(2);

/// The namespaces of every new cluster.
const NAMESPACES: &[&str] = &["default", "kube-node-lease", "kube-public", "kube-system"];

/// A snapshot of a store: see [`Sandbox::back_up`].
#[derive(Clone, Debug)]
pub struct Backup(store::Backup);

/// A cluster's API server in this process. Clones are handles to the same one.
#[derive(Clone)]
pub struct Sandbox {
    server: Arc<Server>,
}

impl Sandbox {
    /// A cluster with the initial namespaces of every cluster, and nothing else but what [`Options::admission`] needs.
    pub fn new(options: Options) -> Self {
        let has_classes = options.admission.contains(&Admission::Priority);
        let server = Arc::new(Server::new(options));
        let namespaces = NAMESPACES.iter().map(|name| {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            (kinds::named("Namespace"), namespace)
        });
        let classes = admission::plugins::system_classes().into_iter().filter(|_| has_classes);
        for (kind, object) in namespaces.chain(classes) {
            if let Err(failure) = rest::insert(&server, kind, object, false, None, &mut Vec::new()) {
                tracing::error!(message = failure.message, "cannot create an initial object");
            }
        }
        Sandbox { server }
    }

    /// The API, for `kube::Client::new(sandbox.router(), "default")` or another HTTP server.
    pub fn router(&self) -> Router {
        self.routes(CancellationToken::new())
    }

    /// Serves the API on a socket, without TLS, until `shutdown` is cancelled. Then open watches end at once, and other
    /// requests have two seconds to end. Requests of web pages are refused: those with an Origin, and on a loopback address
    /// those for any other host than loopback.
    ///
    /// # Errors
    /// Errors of the socket. Failed connections are no error.
    //
    // Boxed, so that the compiler generates code for it once, in this library: an `async fn` is generated again in each
    // crate that awaits it.
    pub fn serve(
        &self,
        listener: tokio::net::TcpListener,
        shutdown: CancellationToken,
    ) -> BoxFuture<'static, std::io::Result<()>> {
        Box::pin(self.clone().serve_on(listener, shutdown))
    }

    async fn serve_on(
        self,
        listener: tokio::net::TcpListener,
        shutdown: CancellationToken,
    ) -> std::io::Result<()> {
        let is_on_loopback = listener.local_addr()?.ip().to_canonical().is_loopback();
        let pages = axum::middleware::from_fn_with_state(is_on_loopback, web_pages::refuse);
        // Without this, a watch event may wait 40 ms for the acknowledgement of the one before.
        let listener = listener.tap_io(|stream| {
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(%error, "cannot set TCP_NODELAY on a connection; small packets may be delayed");
            }
        });
        let serving = axum::serve(listener, self.routes(shutdown.clone()).layer(pages))
            .with_graceful_shutdown(shutdown.clone().cancelled_owned());
        let patience = async {
            shutdown.cancelled().await;
            tokio::time::sleep(DRAIN).await;
        };
        tokio::select! {
            served = serving => served,
            () = patience => Ok(()),
        }
    }

    /// Drops the history, as etcd's compaction does: a watch, an exact list or a continue token from an earlier revision
    /// gets 410. Open watches that are up to date continue.
    pub fn compact(&self) {
        self.server.store.compact();
    }

    /// Ends all open watches, as a restart of the server or a load balancer does.
    pub fn break_watches(&self) {
        self.server.break_watches();
    }

    /// All objects as they are now, for [`Sandbox::restore`].
    pub fn back_up(&self) -> Backup {
        Backup(self.server.store.back_up())
    }

    /// Goes back to a backup, as an API server does whose etcd is restored from a snapshot: what was written since then is
    /// undone, without events. All watches end.
    ///
    /// With `bumps_revision` the next revisions are higher than all before, and watches from before the restore get 410, as
    /// after `etcdutl snapshot restore --bump-revision --mark-compacted`. Without it the revisions of the backup continue, so
    /// that a version can stand for two states of an object, and watches from before the restore hear nothing until the
    /// revisions reach theirs.
    pub fn restore(&self, backup: &Backup, bumps_revision: bool) {
        self.server.store.restore(&backup.0, bumps_revision);
        rest::follow_definitions(&self.server);
        self.server.break_watches();
        collect::soon(&self.server, rest::carry_out);
    }

    /// Hands the requests of [`Options::collect_after`] to `carry_out`, which sends each to [`Sandbox::router`] before it
    /// returns: for a test that records or judges all writes. Otherwise the hook of [`Options::on_request`] does not see them.
    pub fn collect_by(&self, carry_out: impl Fn(http::Request<Vec<u8>>) + Send + Sync + 'static) {
        *self.server.sweeps.carrier.write() = Some(Arc::new(carry_out));
    }

    /// Replaces the hook of [`Options::on_request`] for later requests.
    pub fn on_request(&self, fault_injector: Option<FaultInjector>) {
        *self.server.fault_injector.write() = fault_injector;
    }

    /// The revision of the last write.
    pub fn revision(&self) -> u64 {
        self.server.store.revision()
    }

    /// The kinds whose objects can be created now, those of CustomResourceDefinitions included, in the order of their names.
    pub fn served_kinds(&self) -> Vec<ServedKind> {
        kinds::served(self.server.registry.read().rows())
    }

    /// The stored objects of a kind in the order of namespace and name, read without a request: for checks of a request
    /// against the current state. A custom kind goes by the name of its definition, `widgets.example.com`. Empty for a kind that is not served.
    pub fn objects(&self, kind: &str) -> Vec<Value> {
        match self.server.store.list(kind, "", None, None) {
            Ok(snapshot) => {
                snapshot.objects.into_iter().map(|(_, object)| Value::clone(&object.peek())).collect()
            }
            Err(_) => Vec::new(),
        }
    }

    /// One stored object, read without a request; "" is the namespace of cluster-wide kinds.
    pub fn object(&self, kind: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.server.store.get(kind, &store::Key::new(namespace, name)).map(|object| object.value())
    }

    fn routes(&self, closing: CancellationToken) -> Router {
        let server = self.server.clone();
        Router::new().fallback(move |request: axum::extract::Request| {
            rest::answer(server.clone(), closing.clone(), request)
        })
    }
}

impl fmt::Debug for Sandbox {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Sandbox").field("revision", &self.revision()).finish_non_exhaustive()
    }
}
