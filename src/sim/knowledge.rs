//! What a daemon can know: how far each of its watches has shown the history, and when it began the calls
//! that are under way. A write is judged by what its author could know, and not by what happened since.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The resources that decisions are made of.
const RESOURCES: [&str; 3] = ["deployments", "replicasets", "pods"];

#[derive(Debug, Default)]
struct Author {
    /// Since when a watch has not shown everything; absent while it has.
    behind: BTreeMap<String, Duration>,
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
        let behind = author.behind.entry(resource.to_owned()).or_insert(since);
        *behind = since.min(*behind);
    }

    /// It has shown everything.
    pub fn catches_up(&mut self, agent: &Arc<str>, resource: &str) {
        if let Some(author) = self.0.get_mut(agent) {
            author.behind.remove(resource);
        }
    }

    /// A call that is no watch begins; the instant up to which its author can know everything.
    pub fn begins(&mut self, agent: &Arc<str>, now: Duration) -> Duration {
        let author = self.0.entry(agent.clone()).or_default();
        if author.calls == 0 && author.ended != Some(now) {
            let shown = RESOURCES.iter().filter_map(|resource| author.behind.get(*resource)).min();
            author.decided = shown.copied().unwrap_or(now);
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
        knowledge.catches_up(&agent, "pods");
        assert_eq!(knowledge.begins(&agent, at(10)), at(7));
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
