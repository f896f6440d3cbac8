//! Whether the API server can be reached at all, for the log: one line when it cannot, one a minute while that lasts, and
//! one when it answers again. A request that fails among others that succeed is no outage.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// So many requests in a row without an answer are an outage at once.
const FAILURES: u32 = 3;

/// Fewer are one after this time.
const SILENCE: Duration = Duration::from_secs(2);

/// How often an outage is repeated.
const REMINDER: Duration = Duration::from_secs(60);

/// The outage of one API server. Clones share the state.
#[derive(Clone, Debug, Default)]
pub struct Outage(Arc<Mutex<State>>);

/// The requests without an answer since the last one that had one.
#[derive(Debug, Default)]
struct State {
    since: Option<Instant>,
    failures: u32,
    /// When a line was written last.
    told: Option<Instant>,
}

/// A change that is worth a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum News {
    /// It has begun.
    Begun,
    /// It lasts, for this time.
    Lasts(Duration),
    /// It is over, after this time.
    Over(Duration),
}

impl State {
    fn failed(&mut self, now: Instant) -> Option<News> {
        let since = *self.since.get_or_insert(now);
        self.failures = self.failures.saturating_add(1);
        let lasts = now.saturating_duration_since(since);
        match self.told {
            None if self.failures < FAILURES && lasts < SILENCE => None,
            None => {
                self.told = Some(now);
                Some(News::Begun)
            }
            Some(told) if now.saturating_duration_since(told) >= REMINDER => {
                self.told = Some(now);
                Some(News::Lasts(lasts))
            }
            Some(_) => None,
        }
    }

    fn answered(&mut self, now: Instant) -> Option<News> {
        let State { since, told, .. } = std::mem::take(self);
        let since = told.and(since)?;
        Some(News::Over(now.saturating_duration_since(since)))
    }
}

impl Outage {
    /// A request has had no answer.
    pub(crate) fn failed(&self, host: &str, error: &dyn Display) {
        let mut state = self.0.lock();
        let (news, failures) = (state.failed(Instant::now()), state.failures);
        drop(state);
        match news {
            Some(News::Begun) => {
                tracing::warn!(host, %error, "the API server cannot be reached; requests are repeated until it answers");
            }
            Some(News::Lasts(time)) => {
                let seconds = time.as_secs();
                tracing::warn!(host, seconds, failures, %error, "the API server still cannot be reached");
            }
            Some(News::Over(_)) | None => {}
        }
    }

    /// Whether an outage is told of: then nothing else need say so.
    pub(crate) fn is_told(&self) -> bool {
        self.0.lock().told.is_some()
    }

    /// A request has had an answer, of whatever kind.
    pub(crate) fn answered(&self, host: &str) {
        let mut state = self.0.lock();
        if state.failures == 0 {
            return;
        }
        let failures = state.failures;
        let news = state.answered(Instant::now());
        drop(state);
        if let Some(News::Over(time)) = news {
            let seconds = time.as_secs();
            tracing::info!(host, seconds, failures, "the API server answers again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_outage_has_a_line_when_it_begins_one_a_minute_and_one_at_its_end() {
        let mut state = State::default();
        let (mut news, start) = (Vec::new(), Instant::now());
        for _ in 0..130 {
            // Seven watches fail within a second.
            for _ in 0..7 {
                news.extend(state.failed(Instant::now()));
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        news.extend(state.answered(Instant::now()));
        news.extend(state.answered(Instant::now()));
        let [minute, two] = [60, 120].map(|seconds| News::Lasts(Duration::from_secs(seconds)));
        assert_eq!(news, [News::Begun, minute, two, News::Over(start.elapsed())]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_fails_among_others_is_no_outage() {
        let mut state = State::default();
        for _ in 0..10 {
            assert_eq!((state.failed(Instant::now()), state.failed(Instant::now())), (None, None));
            assert_eq!(state.answered(Instant::now()), None);
        }
        // One alone is, if nothing succeeds for a while.
        assert_eq!(state.failed(Instant::now()), None);
        tokio::time::sleep(SILENCE).await;
        assert_eq!(state.failed(Instant::now()), Some(News::Begun));
    }
}
