//! Ctrl-C and SIGTERM: a command ends once the write under way has its answer, so that it can say what it has done.

use std::future::pending;
use std::pin::pin;
use std::sync::Arc;

use tokio::sync::watch;

tokio::task_local! {
    /// The writes of the command that this task runs.
    static WRITES: Arc<watch::Sender<Writes>>;
}

/// The writes of a command.
#[derive(Debug, Default)]
struct Writes {
    under_way: usize,
    are_stopped: bool,
}

/// Counts a write for as long as it is under way.
struct UnderWay(Arc<watch::Sender<Writes>>);

impl UnderWay {
    fn new(writes: Arc<watch::Sender<Writes>>) -> Self {
        writes.send_modify(|writes| writes.under_way += 1);
        UnderWay(writes)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.send_modify(|writes| writes.under_way -= 1);
    }
}

/// Runs a command to its end; `None` if a signal ended it. After the first signal no write begins, and the one under way
/// is awaited. A second signal ends that, too.
pub async fn run<T>(command: impl Future<Output = T>, mut signal: impl AsyncFnMut()) -> Option<T> {
    let writes = Arc::new(watch::Sender::new(Writes::default()));
    let mut command = pin!(WRITES.scope(writes.clone(), command));
    tokio::select! {
        biased;
        ended = &mut command => return Some(ended),
        () = signal() => {}
    }
    writes.send_modify(|writes| writes.are_stopped = true);
    let mut seen = writes.subscribe();
    tokio::select! {
        // The command first, so that it reports the write that has just ended.
        biased;
        ended = &mut command => Some(ended),
        _ = seen.wait_for(|writes| writes.under_way == 0) => None,
        () = signal() => None,
    }
}

/// A write of the command. It does not begin once the command is interrupted.
pub async fn write<T>(request: impl Future<Output = T>) -> T {
    let Ok(writes) = WRITES.try_with(Arc::clone) else { return request.await };
    if writes.borrow().are_stopped {
        pending::<()>().await;
    }
    let _under_way = UnderWay::new(writes);
    request.await
}

/// Resolves at Ctrl-C or SIGTERM.
#[cfg(unix)]
pub async fn signal() {
    use tokio::signal::unix::{SignalKind, signal};
    let received = async |kind| match signal(kind) {
        Ok(mut signals) => drop(signals.recv().await),
        Err(_) => pending().await,
    };
    tokio::select! {
        () = received(SignalKind::interrupt()) => {}
        () = received(SignalKind::terminate()) => {}
    }
}

/// Resolves at Ctrl-C.
#[cfg(not(unix))]
pub async fn signal() {
    if tokio::signal::ctrl_c().await.is_err() {
        pending().await
    }
}

/// Reads on a thread of its own, which does not keep the program from ending while a pipe or a terminal blocks. `None` if
/// that thread has ended without a result.
pub async fn on_a_thread<T: Send + 'static>(read: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (send, receive) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || drop(send.send(read())));
    receive.await.ok()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use tokio::time::sleep;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn the_write_under_way_is_finished_and_reported_and_none_follows() {
        let (first, second) = (Cell::new(false), Cell::new(false));
        let command = async {
            write(sleep(3 * SECOND)).await;
            first.set(true);
            write(async { second.set(true) }).await;
        };
        let ended = run(command, async || sleep(2 * SECOND).await).await;
        assert_eq!((ended, first.get(), second.get()), (None, true, false));
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_write_under_way_the_command_ends_at_once() {
        let started = tokio::time::Instant::now();
        let command = async {
            write(sleep(SECOND)).await;
            sleep(100 * SECOND).await;
        };
        assert_eq!(run(command, async || sleep(2 * SECOND).await).await, None);
        assert_eq!(started.elapsed(), 2 * SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_signal_ends_a_write_that_hangs() {
        let started = tokio::time::Instant::now();
        assert_eq!(run(write(pending::<()>()), async || sleep(SECOND).await).await, None);
        assert_eq!(started.elapsed(), 2 * SECOND);
    }
}
