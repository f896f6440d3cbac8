//! The limits of a daemon's knowledge: up to which moment each of its watches has shown the history, and when the
//! daemon decided on its open calls. A write is judged by what its author could know, and not by what happened since.
//!
//! A decision is about one object: a late reply for one Deployment excuses nothing that is done for another.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::Value;

use super::objects::controller;
use super::scenario::{beginning_of, beginning_of_pods};
use crate::engine::call::{Call, daemon_of};
use crate::engine::objects::{Picture, text};

/// The resources that decisions depend on.
const RESOURCES: [&str; 3] = ["deployments", "replicasets", "pods"];

/// A period in which a watch does not show everything.
#[derive(Clone, Copy, Debug)]
struct Gap {
    since: Duration,
    /// When it had shown everything again. A write at that very instant may have been decided before.
    until: Option<Duration>,
}

/// The object that a call is made for: its kind and name.
pub type Owner = (&'static str, String);

/// One sync for an owner: calls at the same instant, decided at its beginning.
#[derive(Debug)]
struct Work {
    /// Open calls.
    calls: u32,
    /// Up to when everything was known when the first of them began.
    decided: Duration,
    ended: Option<Duration>,
}

#[derive(Debug, Default)]
struct Author {
    /// The last gap of each watch.
    gaps: BTreeMap<String, Gap>,
    work: BTreeMap<Owner, Work>,
}

/// The knowledge of the daemons, by daemon.
#[derive(Debug, Default)]
pub struct Knowledge(BTreeMap<Arc<str>, Author>);

impl Knowledge {
    /// A watch of `resource` does not show everything that happens after `since`: it broke, lags, or has not begun.
    pub fn falls_behind(&mut self, agent: &Arc<str>, resource: &str, since: Duration) {
        let author = self.0.entry(agent.clone()).or_default();
        let gap = author.gaps.entry(resource.to_owned()).or_insert(Gap { since, until: None });
        if gap.until.is_some_and(|until| until < since) {
            gap.since = since;
        }
        *gap = Gap { since: gap.since.min(since), until: None };
    }

    /// The same for every incarnation of a daemon.
    pub fn daemon_falls_behind(&mut self, daemon: usize, resource: &str, since: Duration) {
        let lives: Vec<Arc<str>> =
            self.0.keys().filter(|agent| daemon_of(agent) == Some(daemon)).cloned().collect();
        lives.iter().for_each(|agent| self.falls_behind(agent, resource, since));
    }

    /// The watch has shown everything.
    pub fn catches_up(&mut self, agent: &Arc<str>, resource: &str, now: Duration) {
        if let Some(gap) = self.0.get_mut(agent).and_then(|author| author.gaps.get_mut(resource)) {
            gap.until.get_or_insert(now);
        }
    }

    /// Whether a sync for this owner is running: one of its calls is open, has ended at this instant, or is retried
    /// after a wait. What it reads before its first write precedes the decision.
    pub fn is_at_work(&self, agent: &Arc<str>, owner: &Owner, now: Duration) -> bool {
        let work = self.0.get(agent).and_then(|author| author.work.get(owner));
        work.is_some_and(|work| work.calls > 0 || work.ended >= Some(now))
    }

    /// A call begins. Returns the instant up to which its author can know everything.
    pub fn begins(&mut self, agent: &Arc<str>, owner: Option<&Owner>, now: Duration) -> Duration {
        let retry_at = owner.is_some_and(|owner| self.is_at_work(agent, owner, now));
        let author = self.0.entry(agent.clone()).or_default();
        let gaps = RESOURCES.iter().filter_map(|resource| author.gaps.get(*resource));
        let open = gaps.filter(|gap| gap.until.is_none_or(|until| until == now));
        let decided = open.map(|gap| gap.since).min().unwrap_or(now);
        let Some(owner) = owner else { return decided };
        let begun = || Work { calls: 0, decided, ended: None };
        let work = author.work.entry(owner.clone()).or_insert_with(begun);
        if !retry_at {
            *work = begun();
        }
        work.calls += 1;
        work.decided
    }

    /// The call has ended, with whatever result. A status is the `last` call of a sync: the next call belongs to
    /// another decision. The exception is a call that is retried: then the sync continues until `retry_at`.
    pub fn ends(
        &mut self,
        agent: &Arc<str>,
        owner: &Owner,
        last: bool,
        now: Duration,
        retry_at: Option<Duration>,
    ) {
        let Some(author) = self.0.get_mut(agent) else { return };
        let Some(work) = author.work.get_mut(owner) else { return };
        work.calls = work.calls.saturating_sub(1);
        work.ended = work.ended.max(Some(retry_at.unwrap_or(now)));
        if last && work.calls == 0 && retry_at.is_none() {
            author.work.remove(owner);
        }
    }
}

/// The owner that a call is made for; `None` for what is read before a decision.
///
/// A daemon may assume an owner that an object no longer has. The name decides, because ReplicaSets and pods are
/// named after their owners; objects that users created are the exception, and are assigned to the owner that they
/// have.
pub fn on_behalf_of(call: &Call, picture: &Picture) -> Option<Owner> {
    let (kind, owners) = match (&*call.resource, &*call.subresource) {
        ("deployments", _) if call.method == Method::GET => return None,
        ("deployments", _) => return Some(("Deployment", call.name.clone())),
        ("replicasets", "status") => return Some(("ReplicaSet", call.name.clone())),
        ("replicasets", _) => ("Deployment", "deployments"),
        ("pods", _) => ("ReplicaSet", "replicasets"),
        _ => return None,
    };
    let of = |object: &Value| Some(owner_name(object).to_owned()).filter(|name| !name.is_empty());
    let there = || picture.get(&call.resource)?.get(&call.name);
    // Of a long name a pod has only the beginning, which several ReplicaSets share: then that of the pod's owner counts.
    let cut = |beginning: &str| {
        let owners = picture.get(owners).filter(|_| call.resource == "pods")?;
        let mut sharing = owners.keys().filter(|name| beginning_of_pods(name) == beginning);
        let its = there().map_or("", |pod| owner_name(pod));
        sharing.clone().find(|name| **name == its).or_else(|| sharing.next()).cloned()
    };
    let named = || {
        cut(beginning_of(&call.name)).or_else(|| call.name.rsplit_once('-').map(|(name, _)| name.to_owned()))
    };
    let is_there = |name: &String| picture.get(owners).is_some_and(|all| all.contains_key(name));
    let name = of(&call.body)
        .or_else(|| named().filter(is_there))
        .or_else(|| there().and_then(|object| of(object)))
        .or_else(named)?;
    Some((kind, name))
}

/// The name of the controller of an object, or "".
pub fn owner_name(object: &Value) -> &str {
    let owners = object["metadata"]["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default();
    let found = owners.iter().find(|owner| text(owner, "/uid") == controller(object));
    found.map_or("", |owner| text(owner, "/name"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn web() -> Owner {
        ("Deployment", "web".to_owned())
    }

    #[test]
    fn an_author_knows_what_its_slowest_watch_has_shown() {
        let (agent, at) = (Arc::<str>::from("d0.1"), Duration::from_secs);
        let mut knowledge = Knowledge::default();
        assert_eq!(knowledge.begins(&agent, None, at(5)), at(5));
        knowledge.falls_behind(&agent, "pods", at(6));
        knowledge.falls_behind(&agent, "replicasets", at(7));
        knowledge.falls_behind(&agent, "pods", at(8));
        assert_eq!(knowledge.begins(&agent, None, at(9)), at(6));
        knowledge.catches_up(&agent, "pods", at(10));
        assert_eq!(knowledge.begins(&agent, None, at(10)), at(6), "decided before it had caught up");
        assert_eq!(knowledge.begins(&agent, None, at(11)), at(7));
        knowledge.falls_behind(&agent, "pods", at(12));
        knowledge.catches_up(&agent, "replicasets", at(12));
        assert_eq!(knowledge.begins(&agent, None, at(13)), at(12));
    }

    #[test]
    fn calls_without_a_pause_are_one_decision() {
        let (agent, at) = (Arc::<str>::from("d0.1"), Duration::from_secs);
        let mut knowledge = Knowledge::default();
        assert_eq!(knowledge.begins(&agent, Some(&web()), at(1)), at(1));
        // The first call took ten seconds, and the next one begins at once.
        knowledge.ends(&agent, &web(), false, at(11), None);
        assert_eq!(knowledge.begins(&agent, Some(&web()), at(11)), at(1));
        knowledge.ends(&agent, &web(), false, at(11), None);
        assert_eq!(knowledge.begins(&agent, Some(&web()), at(12)), at(12));
    }

    #[test]
    fn a_retried_call_belongs_to_the_same_decision() {
        let (agent, at) = (Arc::<str>::from("d0.1"), Duration::from_secs);
        let mut knowledge = Knowledge::default();
        assert_eq!(knowledge.begins(&agent, Some(&web()), at(1)), at(1));
        knowledge.ends(&agent, &web(), true, at(1), Some(at(6)));
        assert_eq!(knowledge.begins(&agent, Some(&web()), at(6)), at(1));
        knowledge.ends(&agent, &web(), true, at(6), None);
        assert_eq!(knowledge.begins(&agent, Some(&web()), at(6)), at(6));
    }

    #[test]
    fn a_late_call_for_one_owner_excuses_nothing_for_another() {
        let (agent, at) = (Arc::<str>::from("d0.1"), Duration::from_secs);
        let (mut knowledge, api) = (Knowledge::default(), ("Deployment", "api".to_owned()));
        assert_eq!(knowledge.begins(&agent, Some(&api), at(1)), at(1));
        assert_eq!(knowledge.begins(&agent, Some(&web()), at(9)), at(9));
        assert_eq!(knowledge.begins(&agent, Some(&api), at(9)), at(1));
    }

    #[test]
    fn a_call_after_a_status_belongs_to_another_decision() {
        let (agent, at) = (Arc::<str>::from("d0.1"), Duration::from_secs);
        let mut knowledge = Knowledge::default();
        assert_eq!(knowledge.begins(&agent, Some(&web()), at(1)), at(1));
        knowledge.ends(&agent, &web(), true, at(9), None);
        assert!(!knowledge.is_at_work(&agent, &web(), at(9)));
        assert_eq!(knowledge.begins(&agent, Some(&web()), at(9)), at(9));
    }
}
