//! What a daemon can know: how far each of its watches has shown the history, and when it began the calls
//! that are under way. A write is judged by what its author could know, and not by what happened since.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The resources that decisions are made of.
const RESOURCES: [&str; 3] = ["deployments", "replicasets", "pods"];

/// A time in which a watch does not show everything.
#[derive(Clone, Copy, Debug)]
struct Gap {
    since: Duration,
    /// When it had shown everything again. Whoever writes at that very instant may have decided before.
    until: Option<Duration>,
}

#[derive(Debug, Default)]
struct Author {
    /// The last gap of each watch.
    gaps: BTreeMap<String, Gap>,
    /// Calls under way.
    calls: u32,
    /// How much was known when the first of the calls under way began. A sync makes one call after the
    /// other: calls without an instant between them are one piece of work, decided at its beginning.
    decided: Duration,
    ended: Option<Duration>,
}

/// What the daemons know, by their names.
#[derive(Debug, Default)]
pub struct Knowledge(BTreeMap<Arc<str>, Author>);

impl Knowledge {
    /// A watch of `resource` does not show everything that happens after `since`: it broke, lags, or has not
    /// begun.
    pub fn falls_behind(&mut self, agent: &Arc<str>, resource: &str, since: Duration) {
        let author = self.0.entry(agent.clone()).or_default();
        let gap = author.gaps.entry(resource.to_owned()).or_insert(Gap { since, until: None });
        if gap.until.is_some_and(|until| until < since) {
            gap.since = since;
        }
        *gap = Gap { since: gap.since.min(since), until: None };
    }

    /// It has shown everything.
    pub fn catches_up(&mut self, agent: &Arc<str>, resource: &str, now: Duration) {
        if let Some(gap) = self.0.get_mut(agent).and_then(|author| author.gaps.get_mut(resource)) {
            gap.until.get_or_insert(now);
        }
    }

    /// A call that is no watch begins; the instant up to which its author can know everything.
    pub fn begins(&mut self, agent: &Arc<str>, now: Duration) -> Duration {
        let author = self.0.entry(agent.clone()).or_default();
        if author.calls == 0 && author.ended != Some(now) {
            let gaps = RESOURCES.iter().filter_map(|resource| author.gaps.get(*resource));
            let open = gaps.filter(|gap| gap.until.is_none_or(|until| until == now));
            author.decided = open.map(|gap| gap.since).min().unwrap_or(now);
        }
        author.calls += 1;
        author.decided
    }

    /// It has ended, in whatever way.
    pub fn ends(&mut self, agent: &Arc<str>, now: Duration) {
        if let Some(author) = self.0.get_mut(agent) {
            author.calls = author.calls.saturating_sub(1);
            author.ended = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_author_knows_what_its_slowest_watch_has_shown() {
        let (agent, at) = (Arc::<str>::from("d0.1"), Duration::from_secs);
        let mut knowledge = Knowledge::default();
        assert_eq!(knowledge.begins(&agent, at(5)), at(5));
        knowledge.ends(&agent, at(5));
        knowledge.falls_behind(&agent, "pods", at(6));
        knowledge.falls_behind(&agent, "replicasets", at(7));
        knowledge.falls_behind(&agent, "pods", at(8));
        assert_eq!(knowledge.begins(&agent, at(9)), at(6));
        knowledge.ends(&agent, at(9));
        knowledge.catches_up(&agent, "pods", at(10));
        assert_eq!(knowledge.begins(&agent, at(10)), at(6), "decided before it had caught up");
        knowledge.ends(&agent, at(10));
        assert_eq!(knowledge.begins(&agent, at(11)), at(7));
        knowledge.ends(&agent, at(11));
        knowledge.falls_behind(&agent, "pods", at(12));
        knowledge.catches_up(&agent, "replicasets", at(12));
        assert_eq!(knowledge.begins(&agent, at(13)), at(12));
    }

    #[test]
    fn calls_without_a_pause_are_one_decision() {
        let (agent, at) = (Arc::<str>::from("d0.1"), Duration::from_secs);
        let mut knowledge = Knowledge::default();
        assert_eq!(knowledge.begins(&agent, at(1)), at(1));
        // The first call took ten seconds, and the next one follows at once.
        knowledge.ends(&agent, at(11));
        assert_eq!(knowledge.begins(&agent, at(11)), at(1));
        knowledge.ends(&agent, at(11));
        assert_eq!(knowledge.begins(&agent, at(12)), at(12));
    }
}
