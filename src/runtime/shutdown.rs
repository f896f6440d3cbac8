//! The first signal requests the shutdown, the second ends the process.

use std::io;
use std::task::Poll;

use futures::Stream;
use futures::StreamExt;
use tokio_util::sync::CancellationToken;

/// A signal that ends the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// `SIGTERM`, from the kubelet or an init system. On Windows the end of the console or of the session.
    Term,
    /// `SIGINT`, from a terminal. On Windows Ctrl-C or Ctrl-Break.
    Int,
    /// `SIGHUP`, from a terminal that is closed. Nothing is read anew: files are noticed by themselves.
    Hup,
}

impl Signal {
    /// The exit code that shells give to a program ended by this signal.
    pub fn exit_code(self) -> u8 {
        match self {
            Signal::Term => 143,
            Signal::Int => 130,
            Signal::Hup => 129,
        }
    }
}

/// Catches `SIGTERM`, `SIGINT` and, unless whoever started the process ignores it as `nohup` does, `SIGHUP` from now on.
///
/// # Errors
/// When the handlers cannot be installed.
#[cfg(unix)]
pub fn signals() -> io::Result<impl Stream<Item = Signal> + Send + Unpin> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut term = signal(SignalKind::terminate())?;
    let mut int = signal(SignalKind::interrupt())?;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut hup = if ignores_hangups(&status) { None } else { Some(signal(SignalKind::hangup())?) };
    Ok(futures::stream::poll_fn(move |cx| {
        if let Poll::Ready(Some(())) = term.poll_recv(cx) {
            return Poll::Ready(Some(Signal::Term));
        }
        if let Some(hup) = &mut hup
            && let Poll::Ready(Some(())) = hup.poll_recv(cx)
        {
            return Poll::Ready(Some(Signal::Hup));
        }
        int.poll_recv(cx).map(|received| received.map(|()| Signal::Int))
    }))
}

/// Whether a process ignores `SIGHUP`, by its `/proc/self/status`: the first bit of `SigIgn` is signal 1.
#[cfg(unix)]
fn ignores_hangups(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

/// Catches the console's events from now on, sorted as Go's runtime sorts them, and so kube-controller-manager.
///
/// # Errors
/// When the handlers cannot be installed.
#[cfg(windows)]
pub fn signals() -> io::Result<impl Stream<Item = Signal> + Send + Unpin> {
    use tokio::signal::windows::{ctrl_break, ctrl_c, ctrl_close, ctrl_logoff, ctrl_shutdown};
    let (mut close, mut logoff, mut shutdown) = (ctrl_close()?, ctrl_logoff()?, ctrl_shutdown()?);
    let (mut interrupt, mut brk) = (ctrl_c()?, ctrl_break()?);
    Ok(futures::stream::poll_fn(move |cx| {
        // Polls all of them each time, so that each of them wakes this task.
        let term = [close.poll_recv(cx), logoff.poll_recv(cx), shutdown.poll_recv(cx)];
        let int = [interrupt.poll_recv(cx), brk.poll_recv(cx)];
        if term.iter().any(Poll::is_ready) {
            Poll::Ready(Some(Signal::Term))
        } else if int.iter().any(Poll::is_ready) {
            Poll::Ready(Some(Signal::Int))
        } else {
            Poll::Pending
        }
    }))
}

/// Cancels `shutdown` at the first signal and returns the second, upon which `main` must end the
/// process at once. Pending for ever without a second one.
pub async fn shutdown_on_signals(
    mut signals: impl Stream<Item = Signal> + Unpin,
    shutdown: CancellationToken,
) -> Signal {
    if let Some(signal) = signals.next().await {
        tracing::info!(?signal, "shutting down; a second signal ends the process at once");
        shutdown.cancel();
        if let Some(signal) = signals.next().await {
            tracing::warn!(?signal, "second signal received; the process ends at once");
            return signal;
        }
    }
    std::future::pending().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn a_hangup_that_nohup_ignores_stays_ignored() {
        let status = |mask: &str| format!("SigBlk:\t0000000000000001\nSigIgn:\t{mask}\nSigCgt:\t1\n");
        assert!(ignores_hangups(&status("0000000000001001")));
        assert!(
            !ignores_hangups(&status("0000000000001000"))
                && !ignores_hangups("")
                && !ignores_hangups(&status("x"))
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_signal_requests_the_shutdown_and_the_second_ends_the_process() {
        let (send, receive) = futures::channel::mpsc::unbounded();
        let shutdown = CancellationToken::new();
        let second = tokio::spawn(shutdown_on_signals(receive, shutdown.clone()));
        tokio::task::yield_now().await;
        assert!(!shutdown.is_cancelled());
        send.unbounded_send(Signal::Term).unwrap();
        shutdown.cancelled().await;
        tokio::task::yield_now().await;
        assert!(!second.is_finished());
        send.unbounded_send(Signal::Int).unwrap();
        assert_eq!(second.await.unwrap().exit_code(), 130);
    }
}
