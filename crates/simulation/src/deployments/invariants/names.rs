//! S25: the name of a deleted pod is not requested again.
//!
//! Judged from requests and objects alone. A daemon knows these pods: those of its own creations that got a reply,
//! those that it has read, those that it has tried to change or delete, and those that existed at an instant up to
//! which its watches had shown everything, or at its first list of pods if that was later: another watch may lag
//! behind that instant, and a list does not show pods that were deleted before it. A daemon must not request the name
//! of a pod that it knows once that pod is deleted. Nor the name of a pod that it does not know, created by another
//! daemon or in an earlier incarnation, while it knows one with a later name. Of two names the later one is the one
//! that the same daemon requested later. A name that it has requested before it knew of a later one it may request
//! again until it has the pod: the reply may have been lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::Value;

use super::Commit;
use crate::deployments::objects::controller;
use crate::engine::breach::Breach;
use crate::engine::call::Call;
use crate::engine::objects::text;

/// A pod that a daemon has created.
#[derive(Debug)]
struct Made {
    uid: String,
    name: String,
    by: Arc<str>,
    /// The call that created it.
    call: u64,
    at: Duration,
    gone: Option<Duration>,
}

impl Made {
    fn was_deleted(&self, before: Duration) -> bool {
        self.gone.is_some_and(|gone| gone < before)
    }

    fn was_there(&self, at: Duration) -> bool {
        self.at < at && self.gone.is_none_or(|gone| gone > at)
    }
}

/// The pods of one owner.
#[derive(Debug, Default)]
struct Pods {
    made: Vec<Made>,
    /// The order in which each daemon first requested the names.
    requested: BTreeMap<Arc<str>, BTreeMap<String, usize>>,
    /// The UIDs of the pods that each daemon knows.
    known: BTreeMap<Arc<str>, BTreeSet<String>>,
}

impl Pods {
    fn knows(&self, agent: &Arc<str>, pod: &Made) -> bool {
        self.known.get(agent).is_some_and(|known| known.contains(&pod.uid))
    }

    /// Whether any daemon has requested `name` before `other`.
    fn is_later(&self, other: &str, name: &str) -> bool {
        self.requested.values().any(|requested| {
            requested.get(name).zip(requested.get(other)).is_some_and(|(first, then)| first < then)
        })
    }
}

/// State about names.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// By the UID of the owner.
    pods: BTreeMap<String, Pods>,
    /// The instant of the first list of pods that each daemon got. That list does not show pods that were deleted
    /// before.
    listed: BTreeMap<Arc<str>, Duration>,
}

impl Names {
    /// A list has shown a daemon all pods at the time `at`.
    pub(super) fn listed(&mut self, at: Duration, agent: &Arc<str>) {
        if !self.listed.contains_key(agent) {
            self.listed.insert(agent.clone(), at);
        }
    }

    /// A daemon sends a request.
    pub(super) fn sent(&mut self, call: &Call) -> Result<(), Breach> {
        if call.resource != "pods" || !call.subresource.is_empty() {
            return Ok(());
        }
        if call.method != Method::POST {
            let changed =
                |pods: &&mut Pods| pods.made.iter().any(|pod| pod.name == call.name && pod.gone.is_none());
            if let Some(pods) = self.pods.values_mut().find(changed) {
                let there = pods.made.iter().filter(|pod| pod.name == call.name && pod.gone.is_none());
                let there = there.map(|pod| pod.uid.clone());
                pods.known.entry(call.agent.clone()).or_default().extend(there);
            }
            return Ok(());
        }
        let (agent, name, known) = (&call.agent, &call.name, call.known);
        let pods = self.pods.entry(controller(&call.body).to_owned()).or_default();
        let shown = self.listed.get(agent).map(|listed| known.max(*listed));
        let was_seen = |pod: &&Made| shown.is_some_and(|shown| pod.was_there(shown));
        let seen = pods.made.iter().filter(was_seen).map(|pod| pod.uid.clone());
        pods.known.entry(agent.clone()).or_default().extend(seen);
        let breach = |what: String| Err(Breach::new("S25", format!("{what}: {call}")));
        for pod in pods.made.iter().filter(|pod| pod.name == *name && pod.was_deleted(known)) {
            if pods.knows(agent, pod) {
                return breach(format!("the name of pod {}, which it knows to be deleted", pod.uid));
            }
            let later = |other: &&Made| pods.knows(agent, other) && pods.is_later(&other.name, name);
            let has_asked = pods.requested.get(agent).is_some_and(|requested| requested.contains_key(name));
            if let Some(other) = pods.made.iter().find(later).filter(|_| pod.by != *agent && !has_asked) {
                return breach(format!("the name of a pod of {}, and {} came later", pod.by, other.name));
            }
        }
        let requested = pods.requested.entry(agent.clone()).or_default();
        let order = requested.len();
        requested.entry(name.clone()).or_insert(order);
        Ok(())
    }

    /// A daemon gets the reply that its write has succeeded.
    pub(super) fn write_succeeded(&mut self, call: &Call) {
        let Some(pods) = self.pods.get_mut(controller(&call.body)) else { return };
        if let Some(pod) = pods.made.iter().find(|pod| pod.call == call.id && pod.by == call.agent) {
            pods.known.entry(call.agent.clone()).or_default().insert(pod.uid.clone());
        }
    }

    /// A daemon gets an object that it has read.
    pub(super) fn object_read(&mut self, call: &Call, object: &Value) {
        let uid = text(object, "/metadata/uid");
        if let Some(pods) = self.pods.get_mut(controller(object)).filter(|_| call.resource == "pods") {
            pods.known.entry(call.agent.clone()).or_default().insert(uid.to_owned());
        }
    }

    pub(super) fn remember(&mut self, commit: &Commit<'_>) {
        match (commit.before, commit.after) {
            (None, Some(pod)) if commit.call.of_daemon() => {
                let made = Made {
                    uid: text(pod, "/metadata/uid").to_owned(),
                    name: text(pod, "/metadata/name").to_owned(),
                    by: commit.call.agent.clone(),
                    call: commit.call.id,
                    at: commit.at,
                    gone: None,
                };
                self.pods.entry(controller(pod).to_owned()).or_default().made.push(made);
            }
            (Some(pod), None) => {
                // Whichever owner it belongs to in the end.
                let uid = text(pod, "/metadata/uid");
                let mut all = self.pods.values_mut().flat_map(|pods| &mut pods.made);
                if let Some(made) = all.find(|made| made.uid == uid) {
                    made.gone = Some(commit.at);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::engine::objects::Picture;

    fn creation(agent: &str, id: u64, known: u64, name: &str) -> Call {
        let body = pod(name, "");
        let request = http::Request::post("/api/v1/namespaces/shop/pods").body(()).unwrap();
        let call = Call::new(agent.into(), &request.into_parts().0, body.to_string().as_bytes());
        Call { id, known: Duration::from_secs(known), ..call }
    }

    fn pod(name: &str, uid: &str) -> Value {
        json!({"metadata": {"name": name, "uid": uid,
            "ownerReferences": [{"controller": true, "kind": "ReplicaSet", "name": "web", "uid": "u"}]}})
    }

    fn commit(names: &mut Names, at: u64, call: &Call, before: Option<&Value>, after: Option<&Value>) {
        let picture = Picture::default();
        let (at, now) = (Duration::from_secs(at), jiff::Timestamp::UNIX_EPOCH);
        names.remember(&Commit { at, now, call, before, after, picture: &picture });
    }

    /// `agent` creates pods at second 1, named in this order, gets the replies if `replied`, and the first pod is
    /// deleted at second 5.
    fn history(agent: &str, pods: &[&str], replied: bool) -> Names {
        let mut names = Names::default();
        for life in ["d0.1", "d0.2", "d0.3"] {
            names.listed(Duration::ZERO, &life.into());
        }
        for (id, name) in pods.iter().enumerate() {
            let call = creation(agent, id as u64, 0, name);
            names.sent(&call).unwrap();
            commit(&mut names, 1, &call, None, Some(&pod(name, name)));
            if replied {
                names.write_succeeded(&call);
            }
        }
        let mut deletion = creation("monkey", 99, 0, pods[0]);
        deletion.method = Method::DELETE;
        commit(&mut names, 5, &deletion, Some(&pod(pods[0], pods[0])), None);
        names
    }

    #[test]
    fn the_name_of_an_own_deleted_pod_is_not_requested() {
        for known in [1, 5] {
            // As far as its author can know the pod still exists.
            assert!(history("d0.1", &["a"], true).sent(&creation("d0.1", 9, known, "a")).is_ok());
        }
        assert!(history("d0.1", &["a"], true).sent(&creation("d0.1", 9, 6, "a")).is_err());
        assert!(history("d0.1", &["a"], true).sent(&creation("d0.1", 9, 6, "b")).is_ok());
        assert!(history("d0.1", &["a"], false).sent(&creation("d0.1", 9, 6, "a")).is_ok(), "a lost reply");
    }

    #[test]
    fn the_name_of_a_deleted_pod_that_a_watch_has_shown_is_not_requested() {
        let mut names = history("d0.1", &["a"], false);
        names.sent(&creation("d0.1", 8, 3, "b")).unwrap();
        assert!(names.sent(&creation("d0.1", 9, 6, "a")).is_err());
    }

    #[test]
    fn pods_deleted_before_the_first_list_are_unknown() {
        for (listed, may) in [(3, false), (7, true)] {
            let mut names = history("d0.1", &["a"], true);
            names.listed(Duration::from_secs(listed), &"d0.4".into());
            // Another watch lags; that of pods has shown everything since the list.
            names.sent(&creation("d0.4", 8, 2, "b")).unwrap();
            assert_eq!(names.sent(&creation("d0.4", 9, 8, "a")).is_ok(), may, "{listed}");
        }
    }

    #[test]
    fn a_name_requested_before_a_later_one_was_known_may_be_requested_again() {
        let mut names = history("d0.1", &["b", "a"], true);
        names.sent(&creation("d0.2", 8, 0, "b")).unwrap();
        assert!(names.sent(&creation("d0.2", 9, 6, "b")).is_ok());
        assert!(names.sent(&creation("d0.3", 9, 6, "b")).is_err());
    }

    #[test]
    fn a_pod_that_is_deleted_is_known() {
        let mut names = history("d0.1", &["b", "a"], true);
        let mut deletion = creation("d0.2", 98, 6, "a");
        deletion.method = Method::DELETE;
        names.sent(&deletion).unwrap();
        commit(&mut names, 7, &deletion, Some(&pod("a", "a")), None);
        assert!(names.sent(&creation("d0.2", 9, 8, "b")).is_err());
    }

    #[test]
    fn after_a_restart_a_name_may_be_used_again_only_while_no_pod_with_a_later_one_is_known() {
        assert!(history("d0.1", &["a"], true).sent(&creation("d0.2", 9, 6, "a")).is_ok());
        assert!(history("d0.1", &["b", "a"], true).sent(&creation("d0.2", 9, 6, "b")).is_err());
        let mut names = history("d0.1", &["b", "a"], true);
        let mut deletion = creation("monkey", 98, 0, "a");
        deletion.method = Method::DELETE;
        commit(&mut names, 5, &deletion, Some(&pod("a", "a")), None);
        assert!(names.sent(&creation("d0.2", 9, 6, "b")).is_ok(), "the later one has gone, too");
    }
}
