//! A thread of its own for the election, so that nothing else in the process delays a renewal of the Lease.
//!
//! The price: the Lease would be kept by a process whose other threads hang. So the renewals end when the rest of the
//! process has run no task for [`STALLED`]; another process leads then.

use std::io;
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::time::{sleep, timeout};

use crate::model::ObjectKey;
use crate::runtime::leader_election::lease::{Election, LeaseLost};
use crate::runtime::leader_election::rules::Loss;

/// How long the rest of the process may run no task. Twice what the longest computation has ever taken, an attack with
/// client certificates.
const STALLED: Duration = Duration::from_secs(60);

/// How often that is checked.
const PROBE_PERIOD: Duration = Duration::from_secs(10);

/// A runtime with one thread. Ends when it is dropped.
pub(super) struct LeaseThread(Option<Runtime>);

impl LeaseThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the system has no thread left.
    pub fn start() -> io::Result<Self> {
        let runtime =
            Builder::new_multi_thread().worker_threads(1).thread_name("lease").enable_all().build()?;
        Ok(LeaseThread(Some(runtime)))
    }

    pub fn handle(&self) -> Option<Handle> {
        self.0.as_ref().map(|runtime| runtime.handle().clone())
    }
}

impl Drop for LeaseThread {
    fn drop(&mut self) {
        // A runtime that is dropped waits for its thread, which tasks of another runtime must not.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Runs the election until `rest`, the runtime of everything else, has stalled.
pub(super) async fn while_alive(
    election: impl Future<Output = Result<Election, LeaseLost>>,
    lease: ObjectKey,
    rest: Handle,
) -> Result<Election, LeaseLost> {
    tokio::select! {
        ended = election => ended,
        () = stalled(&rest, PROBE_PERIOD, STALLED) => {
            let loss = Loss::Stalled(STALLED);
            tracing::error!(%lease, %loss, "lease is no longer renewed; this process ends");
            Err(LeaseLost { lease, loss })
        }
    }
}

/// Waits until a runtime has run no task for `limit`.
async fn stalled(rest: &Handle, period: Duration, limit: Duration) {
    // Also when the whole process was frozen: the time runs from when this task wakes.
    while timeout(limit, rest.spawn(async {})).await.is_ok() {
        sleep(period).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn only_a_runtime_that_runs_nothing_has_stalled() {
        let (lease, rest) = (LeaseThread::start().unwrap(), LeaseThread::start().unwrap());
        let (lease, handle) = (lease.0.as_ref().unwrap(), rest.handle().unwrap());
        let waited =
            lease.block_on(async { timeout(300 * MS, stalled(&handle, MS, Duration::from_secs(60))).await });
        assert!(waited.is_err(), "it runs what it gets");
        let (release, blocked) = mpsc::channel::<()>();
        handle.spawn(async move { blocked.recv().is_err() });
        let waited =
            lease.block_on(async { timeout(Duration::from_secs(60), stalled(&handle, MS, 100 * MS)).await });
        assert!(waited.is_ok());
        drop(release);
    }
}
