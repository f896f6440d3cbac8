//! The life of a daemon's controllers, in five phases: the caches fill, the process becomes leader, the workers start,
//! they run, and everything ends in a stated order.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use futures::future::join_all;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::AbortOnDropHandle;

use super::kinds::WatchedKinds;
use super::lease_thread::while_alive;
use super::tasks::{Running, by_itself, spawn};
use super::{Controllers, work};
use crate::config::ControllerConfig;
use crate::engine::foreign_writers::{Conflict, guard};
use crate::engine::resync::resync;
use crate::engine::{Context, Worker};
use crate::model::Resource;
use crate::runtime::leader_election::lease::{Election, Watchdog};
use crate::runtime::read_barrier::ReadBarrier;
use crate::runtime::tasks::{Ended, named};

/// How long the last events may take to be written.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// Controllers that run.
pub(super) struct Life {
    context: Arc<Context>,
    controllers: Arc<[Box<dyn Worker>]>,
    config: ControllerConfig,
    read_barriers: Vec<Arc<ReadBarrier>>,
    kinds: Arc<WatchedKinds>,
    /// Passes the read barriers of controllers that wait for their caches; idle where all read past them.
    passing: Option<AbortOnDropHandle<()>>,
    seed: u64,
    /// Where the election runs, if not among everything else.
    lease_thread: Option<Handle>,
    /// Until the election starts.
    election: Option<(Election, Watchdog)>,
    shutdown: CancellationToken,
    running: Running,
    workers: JoinSet<Ended>,
    conflict: Option<Conflict>,
    stop: CancellationToken,
    stop_events: CancellationToken,
    stop_election: CancellationToken,
    /// Whatever ends this, by an error or by being dropped, ends its tasks too.
    _stop_on_drop: DropGuard,
}

impl Life {
    /// Starts to list, to watch, and to write events.
    pub fn begin(controllers: Controllers, shutdown: CancellationToken) -> Self {
        let Controllers {
            context,
            informers,
            workers,
            events,
            election,
            lease_thread,
            fence,
            config,
            read_barriers,
            kinds,
            seed,
        } = controllers;
        let (stop, stop_events) = (CancellationToken::new(), CancellationToken::new());
        informers.start(&stop);
        let events = spawn(events.run(stop_events.clone()));
        Life {
            context,
            controllers: workers,
            config,
            read_barriers,
            kinds,
            passing: None,
            seed,
            lease_thread,
            election,
            shutdown,
            running: Running { informers, resync: None, events, election: None, fence },
            workers: JoinSet::new(),
            conflict: None,
            _stop_on_drop: stop.clone().drop_guard(),
            stop,
            stop_events,
            stop_election: CancellationToken::new(),
        }
    }

    /// No decision of a controller before its owners are known, and no election before one controller could act. A kind that
    /// cannot be listed holds up the controllers that watch it, and no other. Pods are not awaited:
    /// until all are known, those of an owner with work left are read past the cache. `false`
    /// means that the process must stop.
    pub async fn fill_caches(&mut self) -> anyhow::Result<bool> {
        let Life { running, shutdown, kinds, .. } = self;
        tokio::select! {
            biased;
            () = kinds.listed() => Ok(true),
            error = running.ended_by_itself() => Err(error),
            () = shutdown.cancelled() => Ok(false),
        }
    }

    /// Waits until this process may act; `false` means that it must stop before that.
    pub async fn lead(&mut self) -> anyhow::Result<bool> {
        if let Some((election, _)) = self.election.take() {
            tracing::info!(lease = %election.lease(), identity = election.identity(), "starting leader election");
            let (lease, stop) = (election.lease().clone(), self.stop_election.clone());
            self.running.election = Some(match &self.lease_thread {
                None => spawn(election.run(stop)),
                Some(thread) => {
                    let run = while_alive(election.run(stop), lease, Handle::current());
                    AbortOnDropHandle::new(thread.spawn(run))
                }
            });
        }
        self.running.elected(&self.controllers, &self.shutdown).await
    }

    /// Records the current versions now that the process leads, and starts the workers.
    pub async fn start_workers(&mut self) -> anyhow::Result<()> {
        let Life {
            context,
            controllers,
            config,
            read_barriers,
            kinds,
            passing,
            shutdown,
            running,
            workers,
            ..
        } = self;
        // An ended task comes first: no worker is started for a lost lease.
        tokio::select! {
            biased;
            error = running.ended_by_itself() => return Err(error),
            () = async {
                // The writes of the leader before are done, whatever a watch that lags shows.
                let Some(()) = shutdown.run_until_cancelled(kinds.record()).await else { return };
                *passing = pass(context, controllers, config, read_barriers);
                work::start(context, controllers, config, kinds, workers, shutdown).await;
            } => {}
        }
        let Life { controllers, config, running, stop, seed, .. } = self;
        if let Some(period) = config.resync_period {
            let (controllers, stop, seed) = (controllers.clone(), stop.clone(), *seed);
            running.resync = Some(spawn(named("the resync", async move {
                stop.run_until_cancelled(resync(controllers, period, seed)).await;
            })));
        }
        Ok(())
    }

    /// Runs until the shutdown, or until another controller acts on the same objects and `--on-conflict=exit` ends it.
    pub async fn work(&mut self) -> anyhow::Result<()> {
        let Life { context, config, shutdown, running, workers, conflict, .. } = self;
        tokio::select! {
            biased;
            () = shutdown.cancelled() => {}
            // In order, so that the event about it is written, and another takes over at once.
            found = guard(context.clone(), config.on_conflict) => *conflict = Some(found),
            error = running.ended_by_itself() => return Err(error),
            Some(ended) = workers.join_next() => return Err(by_itself(ended)),
        }
        Ok(())
    }

    /// Ends everything in order: the syncs, the election, the events, the lease, the watches.
    pub async fn end(mut self, drain: Duration) -> anyhow::Result<()> {
        let drained = self.drain(drain).await?;
        let Life { running, conflict, stop, stop_events, stop_election, .. } = self;
        let Running { informers, resync, events, election, fence } = running;
        let election = match election {
            None => None,
            Some(election) => {
                stop_election.cancel();
                Some(election.await.context("the election panicked")??)
            }
        };
        if let Some(election) = &election {
            election.announce_end();
        }
        stop_events.cancel();
        let flushed = matches!(tokio::time::timeout(FLUSH_TIMEOUT, events).await, Ok(Ok(true)));
        let in_doubt_for = fence.and_then(|fence| fence.in_doubt_for());
        match election {
            // A write of unknown outcome may still arrive, and the next leader would not know of it. So the
            // lease must expire by itself: that takes as long as after a crash, 17 s at most.
            Some(election) if in_doubt_for.is_some() && election.may_hold() => tracing::warn!(
                lease = %election.lease(),
                "lease is not released but must expire: a write whose outcome is unknown may still be \
                 carried out"
            ),
            // Only after the last write: another may lead from then on.
            Some(election) if drained && flushed => {
                election.release().await;
            }
            _ => {}
        }
        stop.cancel();
        informers.finished().await;
        if let Some(resync) = resync {
            let _ended = resync.await;
        }
        if !drained {
            bail!("running syncs did not finish within {drain:?}");
        }
        if !flushed {
            tracing::warn!("shutdown dropped events that were not written in time");
        }
        conflict.map_or(Ok(()), |conflict| Err(conflict.into()))
    }

    /// Whether the running syncs finished in time.
    async fn drain(&mut self, drain: Duration) -> anyhow::Result<bool> {
        let Life { context, controllers, running, workers, .. } = self;
        tracing::info!("shutting down: no new sync starts");
        context.draining().cancel();
        controllers.iter().for_each(|controller| controller.shut_down());
        let finish = async { while workers.join_next().await.is_some() {} };
        let drained = tokio::select! {
            biased;
            drained = tokio::time::timeout(drain, finish) => drained,
            error = running.ended_by_itself() => return Err(error),
        };
        if drained.is_err() {
            workers.shutdown().await;
        }
        Ok(drained.is_ok())
    }
}

/// Passes the read barriers of the caches that controllers wait for, each as soon as a key waits for it.
fn pass(
    context: &Arc<Context>,
    controllers: &[Box<dyn Worker>],
    config: &ControllerConfig,
    read_barriers: &[Arc<ReadBarrier>],
) -> Option<AbortOnDropHandle<()>> {
    let kinds: BTreeSet<Resource> = controllers
        .iter()
        .filter(|worker| config.enabled.runs(worker.entry()))
        .flat_map(|worker| worker.awaited_kinds())
        .copied()
        .collect();
    let awaited: Vec<_> =
        read_barriers.iter().filter(|kind| kinds.contains(&kind.resource())).cloned().collect();
    let context = context.clone();
    (!awaited.is_empty()).then(|| {
        spawn(async move {
            let pass = |kind: &Arc<ReadBarrier>| {
                let (kind, context) = (kind.clone(), context.clone());
                async move {
                    context.barrier().requested(kind.resource()).await;
                    kind.run().await;
                }
            };
            join_all(awaited.iter().map(pass)).await;
        })
    })
}
