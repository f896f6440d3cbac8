//! The state of a server.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use http::Request;
use parking_lot::{Mutex, RwLock};
use tokio_util::sync::CancellationToken;

use crate::admission::plugins::Plugins;
use crate::admission::quota;
use crate::admission::services::Allocator;
use crate::fault_injection::FaultInjector;
use crate::kinds::{self, Kind, StrategyContext};
use crate::names::Names;
use crate::options::Options;
use crate::registry::Registry;
use crate::store::{Limits, Store};

/// The state that all requests of one sandbox share.
pub(crate) struct Server {
    pub(crate) options: Options,
    pub(crate) store: Store,
    pub(crate) names: Names,
    pub(crate) registry: RwLock<Registry>,
    /// Held while the registry is brought in step with the definitions.
    pub(crate) definitions: Mutex<()>,
    pub(crate) fault_injector: RwLock<Option<FaultInjector>>,
    /// Held from the check of a quota until the object is stored.
    pub(crate) quotas: Mutex<()>,
    /// Held while a Service is given addresses and ports, until it is stored.
    pub(crate) services: Mutex<()>,
    /// Cancelled to break the watches that are open.
    watches: Mutex<CancellationToken>,
    pub(crate) sweeps: Sweeps,
}

/// Carries out a request of a sweep before it returns.
pub(crate) type Carrier = Arc<dyn Fn(Request<Vec<u8>>) + Send + Sync>;

/// When the server sweeps, and by whom its requests are sent if not by itself.
#[derive(Default)]
pub(crate) struct Sweeps {
    /// Whether something has been written since the last sweep began.
    pub(crate) is_due: AtomicBool,
    /// Whether a task waits or sweeps.
    pub(crate) is_planned: AtomicBool,
    pub(crate) carrier: RwLock<Option<Carrier>>,
}

impl Server {
    pub(crate) fn new(options: Options) -> Self {
        let fault_injector = RwLock::new(options.on_request.clone());
        let store = Store::new(limits(&options), kinds::all().map(|row| row.kind), quota::charge(&options));
        let names = Names::new(options.seed);
        let (registry, definitions) = (RwLock::default(), Mutex::default());
        let (quotas, services) = (Mutex::default(), Mutex::default());
        let (watches, sweeps) = (Mutex::default(), Sweeps::default());
        Server {
            options,
            store,
            names,
            registry,
            definitions,
            fault_injector,
            quotas,
            services,
            watches,
            sweeps,
        }
    }

    pub(crate) fn strategy_context(&self) -> StrategyContext<'_> {
        StrategyContext {
            now: (self.options.now)(),
            options: &self.options,
            store: &self.store,
            names: &self.names,
        }
    }

    /// Gives Services of this row what they need.
    pub(crate) fn allocator<'a>(&'a self, kind: &'a Kind) -> Allocator<'a> {
        Allocator { kind, store: &self.store, names: &self.names }
    }

    /// The admission plugins that are on.
    pub(crate) fn plugins(&self) -> Plugins<'_> {
        Plugins { enabled: self.options.admission, store: &self.store, names: &self.names }
    }

    /// The token that breaks the watches open now.
    pub(crate) fn watches(&self) -> CancellationToken {
        self.watches.lock().clone()
    }

    pub(crate) fn break_watches(&self) {
        std::mem::take(&mut *self.watches.lock()).cancel();
    }
}

fn limits(options: &Options) -> Limits {
    Limits { changes: options.history, bytes: options.history_bytes }
}
