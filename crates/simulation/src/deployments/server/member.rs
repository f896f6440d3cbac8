//! A member of the API server that lags behind the others: it lists an earlier state, and does not know newer
//! resourceVersions yet.

use std::collections::VecDeque;
use std::time::Duration;

use axum::body::Body;
use http::{Response, Uri};
use serde_json::json;
use tokio::time::Instant;

use super::Judge;
use crate::engine::call::{Call, daemon_of};
use crate::engine::network::replies::refused;

/// How long the versions are remembered. No member lags longer.
const KEPT: Duration = Duration::from_secs(60);

/// How long a member takes to catch up with the others.
const CATCHING_UP: Duration = Duration::from_secs(2);

/// The last version at each time.
#[derive(Debug, Default)]
pub(super) struct Versions(VecDeque<(Duration, u64)>);

impl Versions {
    /// Records that this is the last version now.
    pub(super) fn made(&mut self, at: Duration, version: u64) {
        if self.0.back().is_none_or(|(_, last)| *last < version) {
            self.0.push_back((at, version));
        }
        while self.0.get(1).is_some_and(|(next, _)| at.saturating_sub(*next) > KEPT) {
            self.0.pop_front();
        }
    }

    /// The last version at that time, if it is known.
    fn at(&self, time: Duration) -> Option<u64> {
        self.0.iter().rev().find(|(made, _)| *made <= time).map(|(_, version)| *version)
    }
}

impl Judge {
    /// Lets a lagging member reply: a list shows the member's own state, and the watch that follows shows nothing
    /// until the member has caught up. Returns the member's refusal, if it refuses.
    ///
    /// A real member waits three seconds before it reports that a version is too large. A streaming list waits until
    /// the member has caught up, as its reply must not be older than the request.
    pub(super) fn behind(
        &mut self,
        at: Duration,
        call: &Call,
        parts: &mut http::request::Parts,
    ) -> Option<Response<Body>> {
        let daemon = daemon_of(&call.agent)?;
        let shown = self.versions.at(at.saturating_sub(call.behind))?;
        let query = parts.uri.query().unwrap_or_default();
        let wanted =
            query.split('&').find_map(|pair| pair.strip_prefix("resourceVersion=")?.parse::<u64>().ok());
        match wanted {
            Some(wanted) if call.watch && wanted > shown => {
                let message = format!("Too large resource version: {wanted}, current: {shown}");
                let cause =
                    json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"});
                return Some(refused(504, "Timeout", &message, &[cause]));
            }
            None if !call.watch && !query.contains("continue=") => {
                let (path, and) = (parts.uri.path(), if query.is_empty() { "" } else { "&" });
                let uri = format!("{path}?{query}{and}resourceVersion={shown}&resourceVersionMatch=Exact");
                parts.uri = uri.parse::<Uri>().ok()?;
            }
            _ => {}
        }
        self.lags_at_least(daemon, &call.resource, Instant::now() + CATCHING_UP);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_lags_knows_the_last_version_of_its_time() {
        let mut versions = Versions::default();
        let at = Duration::from_secs;
        for (second, version) in [(1, 11), (5, 12), (5, 0), (5, 13), (9, 14)] {
            versions.made(at(second), version);
        }
        assert_eq!(versions.at(at(0)), None);
        assert_eq!(versions.at(at(4)), Some(11));
        assert_eq!(versions.at(at(5)), Some(13));
        assert_eq!(versions.at(at(8)), Some(13));
        versions.made(at(100), 15);
        assert_eq!(versions.0.len(), 2);
        assert_eq!(versions.at(at(99)), Some(14));
    }
}
