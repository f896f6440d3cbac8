//! S24: an object outside of an owner's namespace, of another kind, or with only the UID in common changes no count,
//! decision or status of that owner.
//!
//! The owner of an object is determined from the stored objects here, not with a rule or index of the controllers: it
//! is the object with that UID among those of the kind that the reference names, in the same namespace. The results
//! of a wrong count are judged by S1, S2, S11, S12 and S20 as well, since they determine an object's owner with
//! [`controller`](super::controller), which follows the same rule. Here two things are judged: how many pods or
//! ReplicaSets an owner reports, and that no daemon writes to an object that only names a UID.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;

use super::Commit;
use super::window::Window;
use crate::engine::breach::Breach;
use crate::engine::call::Call;
use crate::engine::objects::{number, text};

/// The owner reference of an object's controller, if it has one.
fn reference(object: &Value) -> Option<&Value> {
    object["metadata"]["ownerReferences"].as_array()?.iter().find(|owner| owner["controller"] == true)
}

/// Which kind owns the objects of a resource: its resource, API group and kind.
fn owning(resource: &str) -> (&'static str, &'static str, &'static str) {
    match resource {
        "pods" => ("replicasets", "apps", "ReplicaSet"),
        _ => ("deployments", "apps", "Deployment"),
    }
}

/// The UID in an object's owner reference, where kind and API group are those of an owner.
fn claimed<'o>(resource: &str, object: &'o Value) -> Option<&'o str> {
    let (_, group, kind) = owning(resource);
    let owner = reference(object)?;
    let version = text(owner, "/apiVersion");
    let its_group = version.rsplit_once('/').map_or("", |(group, _)| group);
    (its_group == group && owner["kind"] == kind).then(|| text(owner, "/uid"))
}

/// Which objects belong to which owner, now and lately.
#[derive(Debug, Default)]
pub(super) struct Owners {
    /// Where Deployments and ReplicaSets are or were: the resource and the namespace, by UID.
    places: BTreeMap<String, (String, String)>,
    /// How many pods that have not ended a ReplicaSet has had, by its UID; and its present pods.
    pods: BTreeMap<String, Window<usize>>,
    pods_now: BTreeMap<String, BTreeSet<String>>,
    /// How many pods the ReplicaSets of a Deployment have reported, by its UID; and the present number of each.
    reported: BTreeMap<String, Window<i64>>,
    told_now: BTreeMap<String, BTreeMap<String, i64>>,
}

impl Owners {
    /// The UID of the owner of a stored object.
    fn of<'o>(&self, resource: &str, object: &'o Value) -> Option<&'o str> {
        let uid = claimed(resource, object)?;
        let (place, namespace) = self.places.get(uid)?;
        let (owners, ..) = owning(resource);
        (place == owners && *namespace == text(object, "/metadata/namespace")).then_some(uid)
    }

    /// Whether an object names a controller that does not control it, whatever that is.
    fn only_claims(&self, resource: &str, object: &Value) -> bool {
        reference(object).is_some() && self.of(resource, object).is_none()
    }

    pub(super) fn remember(&mut self, commit: &Commit<'_>) {
        let Commit { at, call, before, after, .. } = commit;
        let Some(object) = after.or(*before) else { return };
        let uid = text(object, "/metadata/uid").to_owned();
        if call.resource != "pods" {
            let place = (call.resource.clone(), text(object, "/metadata/namespace").to_owned());
            self.places.entry(uid.clone()).or_insert(place);
        }
        let owner_of = |object: Option<&Value>| self.of(&call.resource, object?).map(str::to_owned);
        let (was, is) = (owner_of(*before), owner_of(*after));
        if call.resource == "pods" {
            let counts =
                after.is_some_and(|pod| !matches!(text(pod, "/status/phase"), "Failed" | "Succeeded"));
            for (owner, is_its) in [(was, false), (is, counts)] {
                let Some(owner) = owner else { continue };
                let now = self.pods_now.entry(owner.clone()).or_default();
                if is_its {
                    now.insert(uid.clone())
                } else {
                    now.remove(&uid)
                };
                let count = now.len();
                // There was no instant between the two.
                self.pods.entry(owner).or_default().set(*at, count);
            }
        } else if call.resource == "replicasets" {
            let says = after.map(|replica_set| number(replica_set, "/status/replicas"));
            for (owner, says) in [(was, None), (is, says)] {
                let Some(owner) = owner else { continue };
                let now = self.told_now.entry(owner.clone()).or_default();
                match says {
                    Some(says) => now.insert(uid.clone(), says),
                    None => now.remove(&uid),
                };
                let sum = now.values().sum();
                self.reported.entry(owner).or_default().set(*at, sum);
            }
        }
    }

    /// A daemon writes in another namespace than the one that all other invariants judge: there it may keep the pods
    /// of ReplicaSets, and must not change an object that only names an owner.
    pub(super) fn elsewhere(
        &self,
        call: &Call,
        there: Option<&Value>,
        replica_sets: &[Value],
    ) -> Result<(), Breach> {
        let breach = |what: &str| Err(Breach::new("S24", format!("{what}: {call} in {}", call.namespace)));
        let is_owned = |pod: &Value| {
            let owner = claimed("pods", pod);
            let namesake = |replica_set: &Value| {
                text(replica_set, "/metadata/namespace") == call.namespace
                    && owner.is_some_and(|uid| text(replica_set, "/metadata/uid") == uid)
            };
            replica_sets.iter().any(namesake)
        };
        match (&*call.resource, &*call.subresource) {
            ("events" | "leases", _) | ("replicasets", "status") => Ok(()),
            ("pods", "") if call.method == http::Method::POST && is_owned(&call.body) => Ok(()),
            ("pods", "") if call.method != http::Method::POST && there.is_none_or(is_owned) => Ok(()),
            ("pods", "") => breach("a write to a pod that no ReplicaSet of its namespace owns"),
            _ => breach("a write for an owner in another namespace"),
        }
    }
}

impl Owners {
    /// S24 for writes in the namespace that all other invariants judge, too. `controllers` are those of pods and ReplicaSets,
    /// by UID.
    pub(super) fn judge(
        &self,
        commit: &Commit<'_>,
        since: Duration,
        controllers: &BTreeMap<String, Window<String>>,
    ) -> Result<(), Breach> {
        let Commit { call, before, after, .. } = commit;
        if let Some(before) = before
            && call.subresource != "status"
            && matches!(&*call.resource, "pods" | "replicasets")
            && self.only_claims(&call.resource, before)
        {
            // Another client may have removed it from its owner a moment ago.
            let owners = controllers.get(text(before, "/metadata/uid"));
            let always = owners.is_some_and(|owners| {
                owners.since(since).all(|owner| owner == crate::deployments::objects::ANOTHER)
            });
            if always {
                return commit.breach("S24", "a write to an object that only names an owner's UID");
            }
        }
        let (Some(after), "status") = (after, &*call.subresource) else { return Ok(()) };
        // Its counts are those of an earlier write, which was judged then.
        if commit.reports_a_refused_handover() {
            return Ok(());
        }
        let (uid, status) =
            (text(after, "/metadata/uid"), |field: &str| number(after, &format!("/status/{field}")));
        let most = match &*call.resource {
            "replicasets" => {
                let lately = self.pods.get(uid).into_iter().flat_map(|pods| pods.since(since));
                i64::try_from(lately.max().copied().unwrap_or(0)).unwrap_or(i64::MAX)
            }
            _ => {
                let lately = self.reported.get(uid).into_iter().flat_map(|reported| reported.since(since));
                lately.max().copied().unwrap_or(0)
            }
        };
        let counts: &[&str] = match &*call.resource {
            "replicasets" => &["replicas", "terminatingReplicas"],
            _ => &["replicas"],
        };
        let counted: i64 = counts.iter().map(|field| status(field)).sum();
        if counted > most {
            return commit.breach("S24", format!("{counted} counted, at most {most} are its own"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_owner_is_found_by_kind_and_namespace() {
        let mut owners = Owners::default();
        owners.places.insert("u-replica-set".into(), ("replicasets".into(), "shop".into()));
        owners.places.insert("u-web".into(), ("deployments".into(), "shop".into()));
        let object = |namespace: &str, api_version: &str, kind: &str, uid: &str| {
            let owner =
                json!({"apiVersion": api_version, "kind": kind, "name": "x", "uid": uid, "controller": true});
            json!({"metadata": {"namespace": namespace, "ownerReferences": [owner]}})
        };
        let check = |resource: &str, object: Value, expected: bool| {
            assert_eq!(owners.of(resource, &object).is_some(), expected, "{resource} {object}");
            assert_eq!(owners.only_claims(resource, &object), !expected, "{resource} {object}");
        };
        check("pods", object("shop", "apps/v1", "ReplicaSet", "u-replica-set"), true);
        check("pods", object("shop", "apps/v1beta2", "ReplicaSet", "u-replica-set"), true);
        check("pods", object("tenant", "apps/v1", "ReplicaSet", "u-replica-set"), false);
        check("pods", object("shop", "v1", "ReplicaSet", "u-replica-set"), false);
        check("pods", object("shop", "apps/v1", "Deployment", "u-replica-set"), false);
        check("pods", object("shop", "apps/v1", "ReplicaSet", "u-web"), false);
        check("pods", object("shop", "apps/v1", "ReplicaSet", "u-unknown"), false);
        check("replicasets", object("shop", "apps/v1", "Deployment", "u-web"), true);
        check("replicasets", object("shop", "example.com/v1", "Deployment", "u-web"), false);
        assert!(!owners.only_claims("pods", &json!({"metadata": {}})), "no owner");
    }

    #[test]
    fn a_status_that_only_reports_a_refused_release_keeps_its_counts() {
        let request = http::Request::patch("/apis/apps/v1/namespaces/shop/deployments/web/status").body(());
        let call = Call::new("d0.1".into(), &request.unwrap().into_parts().0, b"{}");
        let deployment = |replicas: i64, reason: &str| {
            let condition = json!({"type": "ReplicaFailure", "status": "True", "reason": reason});
            json!({"metadata": {"uid": "u-web"}, "status": {"replicas": replicas, "conditions": [condition]}})
        };
        let judged = |before: Value, after: Value| {
            let (before, after) = (Some(&before), Some(&after));
            let picture = crate::engine::objects::Picture::default();
            let (at, now) = (Duration::from_secs(9), jiff::Timestamp::UNIX_EPOCH);
            let commit = Commit { at, now, call: &call, before, after, picture: &picture };
            Owners::default().judge(&commit, Duration::ZERO, &BTreeMap::new())
        };
        assert!(judged(deployment(1, ""), deployment(1, "FailedAdopt")).is_ok());
        assert!(judged(deployment(0, ""), deployment(1, "FailedAdopt")).is_err(), "counted anew");
        assert!(judged(deployment(1, ""), deployment(1, "FailedCreate")).is_err(), "counted as ever");
    }
}
