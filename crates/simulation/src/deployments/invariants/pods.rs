//! S3, S11, S12, S15 to S17 for pods.

use std::time::Duration;

use http::Method;
use serde_json::Value;

use super::{Commit, Invariants, Made};
use crate::deployments::objects::{bare, controller};
use crate::deployments::scenario::beginning_of_pods;
use crate::engine::breach::Breach;
use crate::engine::objects::{is_deleting, is_live, number, text};

fn count<'a>(pods: impl IntoIterator<Item = &'a Value>) -> i64 {
    i64::try_from(pods.into_iter().count()).unwrap_or(i64::MAX)
}

/// How long before the writes of a successor the author of an abandoned write may have decided.
const LATEST: Duration = Duration::from_secs(120);

impl Invariants {
    pub(super) fn judge_pods(&self, commit: &Commit<'_>, since: Duration) -> Result<(), Breach> {
        match (&commit.call.method, commit.before, commit.after) {
            (&Method::POST, _, Some(pod)) => self.created(commit, pod, since),
            (&Method::DELETE, Some(pod), _) => self.deleted(commit, pod, since),
            (_, Some(before), Some(after)) => self.claimed(commit, before, after, since),
            _ => Ok(()),
        }
    }

    fn sizes_since(&self, replica_set: &str, since: Duration) -> Vec<i64> {
        self.sizes.get(replica_set).map(|sizes| sizes.since(since).copied().collect()).unwrap_or_default()
    }

    fn created(&self, commit: &Commit<'_>, pod: &Value, since: Duration) -> Result<(), Breach> {
        let uid = controller(pod);
        self.check_owner_exists(commit, uid, since)?;
        // The ReplicaSet may be deleted meanwhile; then the garbage collector deletes the pod.
        let Some(replica_set) = commit.by_uid("replicasets", uid) else { return Ok(()) };
        let (name, owner) = (text(replica_set, "/metadata/name"), &pod["metadata"]["ownerReferences"][0]);
        let is_its =
            owner["kind"] == "ReplicaSet" && owner["apiVersion"] == "apps/v1" && owner["name"] == name;
        if !is_its || !text(pod, "/metadata/name").starts_with(&beginning_of_pods(name)) {
            return commit.breach("outgoing", "a pod that does not name its ReplicaSet");
        }
        let live = count(commit.owned("pods", uid).into_iter().filter(|pod| is_live(pod)));
        let wanted = self.sizes_since(uid, since).into_iter().max().unwrap_or(0);
        let adoptions = self.adoptions.get(uid).filter(|_| commit.call.abandoned).into_iter();
        let adopted = adoptions.flat_map(|adoptions| adoptions.happened(since)).count();
        let excused = adopted
            + self.created_by_a_successor(commit, uid, name, since)
            + self.created_by_another_daemon(commit, uid, name, since);
        if live - i64::try_from(excused).unwrap_or(0) >= wanted {
            return commit.breach("S11", format!("a pod beyond {live} of {wanted}"));
        }
        self.recreated(commit, replica_set)
    }

    /// Pods of a ReplicaSet that this author could not know, because of an abandoned write and names that became
    /// free: see the declared breaches.
    fn created_by_a_successor(&self, commit: &Commit<'_>, uid: &str, name: &str, since: Duration) -> usize {
        let is_other = |pod: &&Made| pod.by != commit.call.agent;
        let is_there = |pod: &Made| commit.by_uid("pods", &pod.uid).is_some_and(is_live);
        let made = || self.made.get(uid).into_iter().flat_map(|made| made.happened(since));
        let stragglers = made()
            .filter(|pod| pod.abandoned && is_there(pod) && (commit.call.abandoned || is_other(pod)))
            .count();
        let missed = stragglers + usize::from(commit.call.abandoned && made().any(|pod| is_other(&pod)));
        // Each of them has a name that became free since its own author decided.
        let since = since.saturating_sub(LATEST);
        missed.min(self.freed.get(&beginning_of_pods(name)).map_or(0, |freed| freed.happened(since).count()))
    }

    /// Pods of a ReplicaSet that this author could not know, because another daemon remembers other names: see the
    /// declared breaches.
    fn created_by_another_daemon(
        &self,
        commit: &Commit<'_>,
        uid: &str,
        name: &str,
        since: Duration,
    ) -> usize {
        let Some(begun) = self.rivals.get(&commit.call.agent) else { return 0 };
        let made = self.made.get(uid).into_iter().flat_map(|made| made.happened(since));
        let theirs: Vec<Duration> = made
            .filter(|pod| pod.by != commit.call.agent && commit.by_uid("pods", &pod.uid).is_some_and(is_live))
            .filter_map(|pod| self.rivals.get(&pod.by).copied())
            .collect();
        let (first, last) =
            theirs.iter().fold((*begun, *begun), |(first, last), at| (first.min(*at), last.max(*at)));
        let freed = self
            .freed
            .get(&beginning_of_pods(name))
            .into_iter()
            .flat_map(|freed| freed.between(first, last))
            .count();
        theirs.len().min(freed)
    }

    /// S3: a Deployment that had Recreate and this template when it created a ReplicaSet, or scaled it up from 0, had
    /// waited for the existing pods of older ReplicaSets. The ReplicaSet controller considers only its own
    /// ReplicaSet, so the Deployment's decision counts.
    fn recreated(&self, commit: &Commit<'_>, replica_set: &Value) -> Result<(), Breach> {
        let (uid, deployment) = (text(replica_set, "/metadata/uid"), controller(replica_set));
        let (Some(terms), Some(begun)) = (self.terms.get(deployment), self.begun.get(uid)) else {
            return Ok(());
        };
        let template = bare(&replica_set["spec"]["template"]);
        if !terms.since(*begun).all(|terms| terms.recreate && bare(&terms.template) == template) {
            return Ok(());
        }
        for other in commit.owned("replicasets", deployment) {
            let other_uid = text(other, "/metadata/uid");
            let was_of = |object: &Value, owner: &str| {
                let owners = self.owners.get(text(object, "/metadata/uid"));
                owners.is_some_and(|owners| {
                    owners.began_before(*begun) && owners.since(*begun).all(|of| of == owner)
                })
            };
            let running = |pod: &&Value| !matches!(text(pod, "/status/phase"), "Failed" | "Succeeded");
            let older = bare(&other["spec"]["template"]) != template;
            let old = || commit.owned("pods", other_uid).into_iter().filter(running);
            if older && was_of(other, deployment) && old().any(|pod| was_of(pod, other_uid)) {
                return commit.breach("S3", "a new pod beside an old one that has not ended");
            }
        }
        Ok(())
    }

    fn deleted(&self, commit: &Commit<'_>, pod: &Value, since: Duration) -> Result<(), Breach> {
        let uid = controller(pod);
        let owners = self.owners.get(text(pod, "/metadata/uid"));
        let owners = || owners.into_iter().flat_map(|owners| owners.since(since));
        if owners().all(|owner| owner.is_empty()) {
            return commit.breach("S12", "the deletion of a pod without an owner");
        }
        if owners().all(|owner| owner.is_empty() || self.was_deleted(commit, owner, since)) {
            return commit.breach("S17", "the deletion of a pod whose ReplicaSet does not exist any more");
        }
        if uid.is_empty() || !is_live(pod) {
            return Ok(());
        }
        let live = count(commit.owned("pods", uid).into_iter().filter(|pod| is_live(pod))) - 1;
        let wanted = self.sizes_since(uid, since).into_iter().min().unwrap_or(0);
        let lost = self.losses.lost_pods(commit, uid, since);
        if live + lost < wanted {
            return commit
                .breach("S12", format!("{live} of {wanted} pods are left, other clients removed {lost}"));
        }
        Ok(())
    }

    fn claimed(
        &self,
        commit: &Commit<'_>,
        before: &Value,
        after: &Value,
        since: Duration,
    ) -> Result<(), Breach> {
        let uid = text(after, "/metadata/uid");
        let (was, is) = (controller(before), controller(after));
        if !super::fields::same_but_the_owner(before, after) {
            return commit.breach("S16", "more than the owner of a pod changed");
        }
        let selected = |replica_set: &str, labels: &Value| self.statuses.selects(replica_set, labels);
        let mut seen = self.labels.get(uid).into_iter().flat_map(|labels| labels.since(since));
        match (was, is) {
            ("", replica_set) if !replica_set.is_empty() => {
                // Changes to it after its author decided are considered there.
                self.check_owner_exists(commit, replica_set, since)?;
                if is_deleting(before) || !selected(replica_set, &after["metadata"]["labels"]) {
                    return commit.breach("S15", "a pod adopted that must not be");
                }
            }
            (replica_set, "") => {
                self.check_owner_exists(commit, replica_set, since)?;
                if seen.all(|labels| selected(replica_set, labels)) {
                    return commit.breach("S16", "a pod released that the selector matches");
                }
            }
            (was, is) if was != is && !was.is_empty() && !is.is_empty() => {
                return commit.breach("S15", format!("a pod adopted that {was} controls"));
            }
            _ => {}
        }
        let owners = after["metadata"]["ownerReferences"]
            .as_array()
            .map_or(0, |owners| owners.iter().filter(|owner| owner["controller"] == true).count());
        if owners > 1 { commit.breach("S15", "a pod with two controllers") } else { Ok(()) }
    }

    /// How many pods that are not available can be lost, and how many available ones, over all ReplicaSets of a
    /// Deployment.
    pub(super) fn available(&self, commit: &Commit<'_>, replica_set: &Value) -> (i64, i64) {
        let min_ready = number(replica_set, "/spec/minReadySeconds");
        let pods = commit.owned("pods", text(replica_set, "/metadata/uid"));
        let live: Vec<&Value> = pods.into_iter().filter(|pod| is_live(pod)).collect();
        let available = count(
            live.iter()
                .copied()
                .filter(|pod| crate::engine::objects::is_available(pod, min_ready, commit.now)),
        );
        (available, count(live) - available)
    }
}
