//! A periodic sync of all objects (`--min-resync-period`), as in kube-controller-manager.
//!
//! Nothing depends on it: each key is woken by what concerns it. It is a safety net against bugs.

use std::sync::Arc;
use std::time::Duration;

use super::entry::Worker;

/// Adds every key to its queue after `period`, or up to twice as long, again and again. The jitter keeps
/// several daemons from reading from an API server all at once.
pub async fn resync(workers: Arc<[Box<dyn Worker>]>, period: Duration, seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    loop {
        tokio::time::sleep(period.mul_f64(1.0 + rng.f64())).await;
        tracing::debug!("resync: all keys are queued again");
        workers.iter().for_each(|worker| worker.resync());
    }
}
