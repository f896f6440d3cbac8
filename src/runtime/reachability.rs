//! When a component last had an answer from the API server, and the last error since: for `/readyz`.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

/// How long the API server may be out of reach before a process is not ready. A watch shows activity every 30 s,
/// and retries after a failure are at most 30 s apart.
pub const OUT_OF_REACH: Duration = Duration::from_secs(60);

/// Whether one component reaches the API server. Clones share the state.
#[derive(Clone, Debug, Default)]
pub struct Reachability(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Since when no list has been complete, and the last error.
    failing_lists: watch::Sender<Option<(Instant, String)>>,
}

#[derive(Debug, Default)]
struct State {
    /// The last answer, or else the first failure; `None` before the first request.
    since: Option<Instant>,
    error: String,
}

impl Reachability {
    /// The server has answered.
    pub(crate) fn record(&self) {
        let mut state = self.0.state.lock();
        state.since = Some(Instant::now());
        state.error.clear();
    }

    /// A request has failed.
    pub(crate) fn failed(&self, error: &dyn Display) {
        let mut state = self.0.state.lock();
        state.since.get_or_insert_with(Instant::now);
        state.error = error.to_string();
    }

    /// A list has failed, whether the server has answered or not.
    pub(crate) fn list_failed(&self, error: &dyn Display) {
        self.0.failing_lists.send_modify(|failing| {
            let since = failing.as_ref().map_or_else(Instant::now, |(since, _)| *since);
            *failing = Some((since, error.to_string()));
        });
    }

    /// A list is complete.
    pub(crate) fn listed(&self) {
        self.0.failing_lists.send_replace(None);
    }

    /// Since when no list has been complete, and the last error, if a list is under way that has failed.
    pub(crate) fn failing_lists(&self) -> Option<(Instant, String)> {
        self.0.failing_lists.borrow().clone()
    }

    /// Waits until no list has been complete for `patience` since one has failed.
    pub(crate) async fn lists_fail_for(&self, patience: Duration) {
        let mut failing = self.0.failing_lists.subscribe();
        loop {
            // The sender lives as long as this.
            let Ok(since) =
                failing.wait_for(Option::is_some).await.map(|failing| failing.as_ref().map(|f| f.0))
            else {
                continue;
            };
            let is_over = |failing: &Option<(Instant, String)>| failing.as_ref().map(|f| f.0) != since;
            let end = since.unwrap_or_else(Instant::now) + patience;
            if tokio::time::timeout_at(end, failing.wait_for(is_over)).await.is_err() {
                return;
            }
        }
    }

    /// When the server last answered, once it has.
    pub(crate) fn last_answer(&self) -> Option<Instant> {
        self.0.state.lock().since
    }

    /// Whether the server has answered within [`OUT_OF_REACH`].
    ///
    /// # Errors
    /// When it has not: the time and the last error, as text for `/readyz`.
    pub fn check(&self) -> Result<(), String> {
        self.failing_for().map_or(Ok(()), |(silent, error)| {
            Err(format!("the API server has been out of reach for {} s: {error}", silent.as_secs()))
        })
    }

    /// For how long there has been no success, if that is longer than [`OUT_OF_REACH`], and the last error.
    pub(crate) fn failing_for(&self) -> Option<(Duration, String)> {
        let state = self.0.state.lock();
        let silent = state.since?.elapsed();
        let error = if state.error.is_empty() { "no answer" } else { &state.error };
        (silent > OUT_OF_REACH).then(|| (silent, error.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_a_silence_of_more_than_a_minute_is_out_of_reach() {
        let reachability = Reachability::default();
        tokio::time::sleep(2 * OUT_OF_REACH).await;
        assert_eq!(reachability.check(), Ok(()), "nothing has been tried");
        reachability.record();
        tokio::time::sleep(OUT_OF_REACH).await;
        reachability.failed(&"connection refused");
        assert_eq!(reachability.check(), Ok(()));
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(
            reachability.check(),
            Err("the API server has been out of reach for 70 s: connection refused".to_owned())
        );
        reachability.record();
        assert_eq!(reachability.check(), Ok(()));
        tokio::time::sleep(Duration::from_secs(61)).await;
        assert!(reachability.check().is_err_and(|error| error.ends_with("61 s: no answer")));
    }

    #[tokio::test(start_paused = true)]
    async fn lists_fail_once_none_has_been_complete_for_a_while() {
        let (reachability, patience) = (Reachability::default(), Duration::from_secs(10));
        let observed = reachability.clone();
        let waiting = tokio::spawn(async move {
            observed.lists_fail_for(patience).await;
            Instant::now()
        });
        reachability.list_failed(&"once");
        tokio::time::sleep(Duration::from_secs(5)).await;
        reachability.listed();
        tokio::time::sleep(Duration::from_secs(60)).await;
        let start = Instant::now();
        reachability.list_failed(&"forbidden");
        tokio::time::sleep(Duration::from_secs(5)).await;
        reachability.list_failed(&"forbidden again");
        assert_eq!(waiting.await.unwrap(), start + patience);
    }
}
