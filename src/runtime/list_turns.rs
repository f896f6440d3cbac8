//! How many lists of a program are under way at a time: whoever watches all kinds would else ask for all objects of the
//! cluster in one moment.
//!
//! A list that sends nothing for a while gives up its turn and goes on without: a kind that does not answer, because its
//! conversion webhook is down for example, holds up no other for long.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio_util::task::AbortOnDropHandle;

/// How long a list may send nothing and keep its turn, at most twice as long if it has just begun to pause.
const SILENCE: Duration = Duration::from_secs(2);

/// A number of turns. Clones share them.
#[derive(Clone, Debug)]
pub struct ListTurns(Arc<Semaphore>);

impl ListTurns {
    /// So many lists at a time.
    pub fn new(at_a_time: usize) -> Self {
        ListTurns(Arc::new(Semaphore::new(at_a_time)))
    }

    /// Waits for a turn, in the order of the calls.
    pub(crate) async fn take(&self) -> Turn {
        // Nobody closes the semaphore; if somebody did, lists would go on without turns.
        let permit = self.0.clone().acquire_owned().await.ok();
        let progress = Arc::new(AtomicBool::new(true));
        let moving = progress.clone();
        let held = tokio::spawn(async move {
            let _permit = permit;
            while moving.swap(false, Ordering::Relaxed) {
                tokio::time::sleep(SILENCE).await;
            }
        });
        Turn { progress, _held: AbortOnDropHandle::new(held) }
    }
}

/// The turn of one list. It ends with its drop, or when the list stands still.
#[derive(Debug)]
pub(crate) struct Turn {
    progress: Arc<AtomicBool>,
    _held: AbortOnDropHandle<()>,
}

impl Turn {
    /// A part of the list has arrived.
    pub(crate) fn progressed(&self) {
        self.progress.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    const MOMENT: Duration = Duration::from_millis(1);

    #[tokio::test(start_paused = true)]
    async fn a_turn_ends_with_its_list() {
        let turns = ListTurns::new(2);
        let (first, _second) = (turns.take().await, turns.take().await);
        assert!(turns.take().now_or_never().is_none());
        drop(first);
        tokio::time::timeout(MOMENT, turns.take()).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_stands_still_loses_its_turn_and_one_that_moves_keeps_it() {
        let turns = ListTurns::new(1);
        let turn = turns.take().await;
        for _ in 0..30 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            turn.progressed();
        }
        assert!(tokio::time::timeout(MOMENT, turns.take()).await.is_err());
        tokio::time::timeout(2 * SILENCE + MOMENT, turns.take()).await.unwrap();
    }
}
