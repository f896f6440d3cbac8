//! The workers of each controller.

use std::sync::Arc;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::kinds::WatchedKinds;
use super::tasks::TIDY_PERIOD;
use crate::config::ControllerConfig;
use crate::engine::{Context, Worker};
use crate::runtime::tasks::{Ended, named};

/// Starts the controllers that are not switched off, with `--controller-start-interval` between them. One whose kinds
/// cannot all be listed starts by itself as soon as they can.
pub(super) async fn start(
    context: &Arc<Context>,
    controllers: &Arc<[Box<dyn Worker>]>,
    config: &ControllerConfig,
    kinds: &Arc<WatchedKinds>,
    workers: &mut JoinSet<Ended>,
    shutdown: &CancellationToken,
) {
    let mut is_first = true;
    let idle: Vec<&str> = controllers
        .iter()
        .map(|controller| controller.entry())
        .filter(|it| !config.enabled.runs(it))
        .map(|it| it.name)
        .collect();
    if !idle.is_empty() {
        tracing::info!(
            controllers = idle.join(","),
            "these controllers do not run: they are not in --controllers"
        );
    }
    for (at, controller) in controllers.iter().enumerate() {
        let entry = controller.entry();
        let name = entry.name;
        if !config.enabled.runs(entry) {
            // It takes no keys, which would accumulate in its queue.
            controller.shut_down();
            continue;
        }
        let count = config.workers.of(entry);
        if !kinds.may_start(entry) {
            let later = start_later(context.clone(), controllers.clone(), at, count, kinds.clone());
            workers.spawn(named(name, later));
            continue;
        }
        let work = controller.run(count);
        if !std::mem::take(&mut is_first) {
            tokio::select! {
                biased;
                () = tokio::time::sleep(config.start_interval) => {}
                () = shutdown.cancelled() => return,
            }
        }
        is_started(context, name, count);
        workers.spawn(named(name, work));
    }
}

/// Runs a controller once its kinds are listed.
async fn start_later(
    context: Arc<Context>,
    controllers: Arc<[Box<dyn Worker>]>,
    at: usize,
    count: usize,
    kinds: Arc<WatchedKinds>,
) {
    let controller = &controllers[at];
    let entry = controller.entry();
    let prepare = async {
        let prepared = kinds.prepare(entry);
        tokio::pin!(prepared);
        // Its queue holds the objects that exist, and not all that have existed meanwhile.
        while tokio::time::timeout(TIDY_PERIOD, &mut prepared).await.is_err() {
            controller.drop_deleted_keys();
        }
    };
    if context.draining().run_until_cancelled(prepare).await.is_some() {
        is_started(&context, entry.name, count);
        controller.run(count).await;
    }
}

fn is_started(context: &Context, name: &'static str, workers: usize) {
    context.metrics().running_controllers.with_label_values(&[name, "windlass"]).set(1);
    tracing::info!(controller = name, workers, "controller is started");
}
