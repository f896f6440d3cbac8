//! A bound on log lines that clients cause.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// How long a line stands for those like it.
const PER_LINE: Duration = Duration::from_secs(60);

/// Admits one line a minute. The metrics count what is left out.
#[derive(Debug, Default)]
pub(super) struct LogLimit(Mutex<Option<Instant>>);

impl LogLimit {
    /// Whether to write the line.
    pub(super) fn admits(&self, now: Instant) -> bool {
        let mut last = self.0.lock();
        if last.is_some_and(|last| now.saturating_duration_since(last) < PER_LINE) {
            return false;
        }
        *last = Some(now);
        true
    }
}
