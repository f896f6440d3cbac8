//! That the API server has lost its history is noticed by the Lease and by each cache. It is one incident, and one line at
//! error in the log.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// For how long what is noticed belongs to the same incident. A cache whose watch is quiet notices within some minutes. The
/// price: a second restore within this time is logged at info only.
const SAME_INCIDENT: Duration = Duration::from_secs(600);

/// Knows whether somebody has noticed. Clones share the state.
#[derive(Clone, Debug, Default)]
pub struct LostHistory(Arc<Mutex<Option<Instant>>>);

impl LostHistory {
    /// Somebody notices; whether nobody has before.
    pub(crate) fn is_news(&self) -> bool {
        let (mut last, now) = (self.0.lock(), Instant::now());
        let is_news = last.is_none_or(|last| now.duration_since(last) > SAME_INCIDENT);
        *last = Some(now);
        is_news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_noticed_within_ten_minutes_is_one_incident() {
        let (lost, shared) = (LostHistory::default(), LostHistory::default());
        let (first, second) = (lost.clone(), lost.clone());
        assert!(first.is_news() && !second.is_news() && shared.is_news());
        tokio::time::advance(SAME_INCIDENT).await;
        assert!(!first.is_news());
        tokio::time::advance(SAME_INCIDENT + Duration::from_secs(1)).await;
        assert!(second.is_news() && !first.is_news());
    }
}
