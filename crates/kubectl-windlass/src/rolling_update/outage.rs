//! Requests that fail, and may succeed later: the server is busy, restarts, or cannot be reached.

use std::time::Duration;

use tokio::time::Instant;

use super::reporter::Reporter;
use crate::api::ApiError;
use crate::exit::CommandError;

/// The delays between attempts: from the first, doubled, to the last.
const BACKOFF: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(20)];

/// How long requests may fail before the user is told.
const SILENCE: Duration = Duration::from_secs(10);

/// The attempts since requests began to fail.
pub(super) struct Outage {
    /// For how long they may fail.
    limit: Duration,
    since: Option<Instant>,
    delay: Duration,
    is_told: bool,
}

impl Outage {
    /// None yet; one that lasts for longer than `limit` is an error.
    pub(super) fn new(limit: Duration) -> Self {
        Outage { limit, since: None, delay: BACKOFF[0], is_told: false }
    }

    /// A request has succeeded.
    pub(super) fn over(&mut self) {
        *self = Outage::new(self.limit);
    }

    /// Waits before the next attempt.
    ///
    /// # Errors
    /// The error itself, if another attempt would not help or the requests have failed for too long.
    pub(super) async fn wait(
        &mut self,
        error: CommandError,
        reporter: &mut Reporter<'_>,
    ) -> Result<(), CommandError> {
        let since = *self.since.get_or_insert_with(Instant::now);
        if !is_passing(&error) || since.elapsed() >= self.limit {
            return Err(error);
        }
        if since.elapsed() >= SILENCE && !self.is_told {
            self.is_told = true;
            reporter.note(&format!("note: {error}; trying again for {:?} since it began", self.limit));
        }
        tokio::time::sleep(self.delay).await;
        self.delay = (self.delay * 2).min(BACKOFF[1]);
        Ok(())
    }
}

/// Whether the same request may succeed later.
fn is_passing(error: &CommandError) -> bool {
    match error {
        CommandError::Api(ApiError::Unanswered { .. }) => true,
        CommandError::Api(ApiError::Refused { code, .. }) => matches!(code, 429 | 500..=599),
        _ => false,
    }
}
