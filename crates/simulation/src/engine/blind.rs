//! The window in which a judge is blind: what has happened so lately that the author of a write may not know it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::network::BLIND;

/// How far apart two leaders may act without one knowing what the other wrote, on the fastest network.
const TWO_LEADERS: Duration = Duration::from_secs(1);

/// See the module documentation.
#[derive(Debug, Default)]
pub struct Blind {
    /// How old a decision may be when it is carried out.
    staleness: Duration,
    /// From when and until when the caches of a daemon may lag, as its watches are broken or it has just started.
    lag: (Duration, Duration),
    /// When each daemon last wrote.
    wrote: BTreeMap<Arc<str>, Duration>,
}

impl Blind {
    /// Without a lag. `staleness` is how old a decision may be when it is carried out.
    pub fn new(staleness: Duration) -> Self {
        Blind { staleness, ..Blind::default() }
    }

    /// A daemon's caches may lag from now until then, which is [`BLIND`] later.
    pub fn lags_until(&mut self, until: Duration) {
        let since = until.saturating_sub(BLIND);
        self.lag = (if since < self.lag.1 { self.lag.0 } else { since }, until.max(self.lag.1));
    }

    /// Whether a daemon's caches may lag now.
    pub fn lags(&self, at: Duration) -> bool {
        at <= self.lag.1
    }

    /// A decision that is carried out now may know nothing of what has happened since then.
    pub fn since(&self, at: Duration) -> Duration {
        let since = at.saturating_sub(self.staleness);
        if at < self.lag.1 { since.min(self.lag.0) } else { since }
    }

    /// Whether a decision that is carried out now may know nothing of what happened then.
    pub fn hides(&self, then: Duration, at: Duration) -> bool {
        at.saturating_sub(then) < self.staleness || at < self.lag.1 && then >= self.lag.0
    }

    /// A daemon writes.
    pub fn writes(&mut self, agent: &Arc<str>, at: Duration) {
        self.wrote.insert(agent.clone(), at);
    }

    /// Whether a daemon knows all that others have written. One of two leaders does not know what the other has just written.
    pub fn knows_others(&self, agent: &Arc<str>, at: Duration) -> bool {
        let since = self.since(at).min(at.saturating_sub(TWO_LEADERS));
        self.wrote.iter().all(|(who, then)| who == agent || *then < since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_lag_hides_what_has_happened_since_it_began_and_ends() {
        let mut blind = Blind::new(Duration::ZERO);
        assert!(!blind.hides(seconds(100), seconds(100)));
        blind.lags_until(seconds(100) + BLIND);
        blind.lags_until(seconds(110) + BLIND);
        assert_eq!(blind.since(seconds(120)), seconds(100), "two lags that overlap are one");
        assert!(blind.hides(seconds(100), seconds(120)) && !blind.hides(seconds(99), seconds(120)));
        assert!(!blind.hides(seconds(120), seconds(110) + BLIND) && blind.lags(seconds(110) + BLIND));
        assert_eq!(blind.since(seconds(200)), seconds(200));
    }

    #[test]
    fn a_leader_does_not_know_what_the_other_has_just_written() {
        let mut blind = Blind::new(seconds(60));
        let [one, other] = ["d1", "d2"].map(Arc::<str>::from);
        blind.writes(&one, seconds(100));
        assert!(blind.knows_others(&one, seconds(100)) && !blind.knows_others(&other, seconds(160)));
        assert!(blind.knows_others(&other, seconds(161)));
    }
}
