//! The tasks of a daemon, each with a name: one that ends unexpectedly, or panics, is an error that names it.

use std::time::Duration;

use anyhow::anyhow;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::engine::Worker;
use crate::runtime::informers::Informers;
use crate::runtime::leader_election::fence::Fence;
use crate::runtime::leader_election::lease::{Election, LeaseLost};
use crate::runtime::tasks::Ended;

/// How long the election may take to report how the lease was lost.
const LOSS_REPORT_TIMEOUT: Duration = Duration::from_millis(500);

/// How often a standby, or a controller that waits for a kind, drops the keys of deleted objects from its queues.
pub(super) const TIDY_PERIOD: Duration = Duration::from_secs(60);

/// The tasks that run from the start to the end of a daemon.
pub(super) struct Running {
    pub informers: Informers,
    pub resync: Option<AbortOnDropHandle<Ended>>,
    pub events: AbortOnDropHandle<bool>,
    pub election: Option<AbortOnDropHandle<Result<Election, LeaseLost>>>,
    pub fence: Option<Fence>,
}

impl Running {
    /// Waits until this process may act; `false` means that it must stop before that.
    pub async fn elected(
        &mut self,
        workers: &[Box<dyn Worker>],
        shutdown: &CancellationToken,
    ) -> anyhow::Result<bool> {
        let Some(fence) = self.fence.clone() else { return Ok(true) };
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return Ok(false),
                error = self.ended_by_itself() => return Err(error),
                () = fence.wait_open() => return Ok(true),
                () = tokio::time::sleep(TIDY_PERIOD) => {
                    workers.iter().for_each(|worker| worker.drop_deleted_keys());
                }
            }
        }
    }

    /// Waits until a task ends unexpectedly, and names it. Pending otherwise.
    pub async fn ended_by_itself(&mut self) -> anyhow::Error {
        let election = async {
            match &mut self.election {
                Some(election) => election.await,
                None => std::future::pending().await,
            }
        };
        let resync = async {
            match &mut self.resync {
                Some(resync) => resync.await,
                None => std::future::pending().await,
            }
        };
        // The fence is checked here as well, since the election itself may hang.
        let shut = async {
            match &self.fence {
                Some(fence) => {
                    fence.wait_open().await;
                    fence.wait_closed().await
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            ended = election => match ended {
                Ok(Err(lost)) => lost.into(),
                Ok(Ok(_)) => anyhow!("the election ended unexpectedly"),
                Err(error) => anyhow!("the election panicked: {error}"),
            },
            reason = shut => {
                // The election has the reason, unless it hangs. Nothing is written meanwhile.
                let told = tokio::time::timeout(LOSS_REPORT_TIMEOUT, async {
                    match &mut self.election {
                        Some(election) => election.await,
                        None => std::future::pending().await,
                    }
                });
                match told.await {
                    Ok(Ok(Err(lost))) => lost.into(),
                    _ => anyhow!("leader election lost: {reason}"),
                }
            }
            ended = self.informers.ended_by_itself() => by_itself(ended),
            ended = resync => by_itself(ended),
            ended = &mut self.events => anyhow!("the writer of events ended unexpectedly: {ended:?}"),
        }
    }
}

pub(super) fn spawn<T: Send + 'static>(
    task: impl Future<Output = T> + Send + 'static,
) -> AbortOnDropHandle<T> {
    AbortOnDropHandle::new(tokio::spawn(task))
}

pub(super) fn by_itself(ended: Result<Ended, tokio::task::JoinError>) -> anyhow::Error {
    match ended {
        Ok((name, Ok(()))) => anyhow!("{name} ended unexpectedly"),
        Ok((name, Err(panic))) => anyhow!("{name} panicked: {panic}"),
        Err(error) => anyhow!("a task ended unexpectedly: {error}"),
    }
}
