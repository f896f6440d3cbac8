//! The state of a server.

use parking_lot::{Mutex, RwLock};
use tokio_util::sync::CancellationToken;

use crate::admission::quota;
use crate::fault_injection::FaultInjector;
use crate::kinds::{self, StrategyContext};
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
    /// Cancelled to break the watches that are open.
    watches: Mutex<CancellationToken>,
}

impl Server {
    pub(crate) fn new(options: Options) -> Self {
        let fault_injector = RwLock::new(options.on_request.clone());
        let store = Store::new(limits(&options), kinds::all().map(|row| row.kind), quota::CHARGE);
        let names = Names::new(options.seed);
        let (registry, definitions) = (RwLock::default(), Mutex::default());
        let (quotas, watches) = (Mutex::default(), Mutex::default());
        Server { options, store, names, registry, definitions, fault_injector, quotas, watches }
    }

    pub(crate) fn strategy_context(&self) -> StrategyContext<'_> {
        StrategyContext { now: (self.options.now)(), store: &self.store, names: &self.names }
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
