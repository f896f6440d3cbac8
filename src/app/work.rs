//! The workers of each controller.

use std::sync::Arc;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::config::ControllerConfig;
use crate::controllers::Worker;
use crate::metrics::Metrics;
use crate::runtime::tasks::{Ended, named};

/// Starts the controllers that are not switched off, with `--controller-start-interval` between them.
pub(super) async fn start(
    controllers: &Arc<[Box<dyn Worker>]>,
    config: &ControllerConfig,
    metrics: &Metrics,
    workers: &mut JoinSet<Ended>,
    shutdown: &CancellationToken,
) {
    let mut is_first = true;
    for controller in controllers.iter() {
        let entry = controller.entry();
        let name = entry.name;
        if !config.enabled.runs(entry) {
            tracing::info!(controller = name, "controller is switched off by --controllers");
            // It takes no keys, which would accumulate in its queue.
            controller.shut_down();
            continue;
        }
        let count = config.workers.of(entry);
        let work = controller.run(count);
        if !std::mem::take(&mut is_first) {
            tokio::select! {
                biased;
                () = tokio::time::sleep(config.start_interval) => {}
                () = shutdown.cancelled() => return,
            }
        }
        metrics.running_controllers.with_label_values(&[name, "windlass"]).set(1);
        tracing::info!(controller = name, workers = count, "controller is started");
        workers.spawn(named(name, work));
    }
}
