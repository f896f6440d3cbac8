//! Finalizers that keep a PersistentVolumeClaim or a PersistentVolume for as long as something uses it.
//!
//! The API server's admission adds them when an object is created; the controller adds them to what was created
//! without. Nothing is added to an object that is being deleted: the API server refuses that.

use std::sync::Arc;

use crate::model::texts::Texts;
use crate::model::{Meta, PersistentVolume, PersistentVolumeClaim, Pod};

/// The finalizer of claims.
pub const CLAIM_FINALIZER: &str = "kubernetes.io/pvc-protection";

/// The finalizer of volumes.
pub const VOLUME_FINALIZER: &str = "kubernetes.io/pv-protection";

/// A change of an object's finalizer, with the whole list that the object should have then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Protection {
    /// Nothing.
    Keep,
    /// Add it.
    Add(Vec<Arc<str>>),
    /// Remove it, once nothing uses the object: that has the API server delete it.
    Remove(Vec<Arc<str>>),
}

impl Protection {
    fn of(meta: &Meta, finalizers: &Texts, ours: &str) -> Self {
        let is_protected = finalizers.iter().any(|finalizer| finalizer == ours);
        match (meta.is_deleting(), is_protected) {
            (false, false) => Protection::Add(finalizers.iter().chain([ours]).map(Arc::from).collect()),
            (true, true) => {
                Protection::Remove(finalizers.iter().filter(|it| *it != ours).map(Arc::from).collect())
            }
            _ => Protection::Keep,
        }
    }
}

/// Decides about a claim, as far as the cached pods of its namespace show who uses it. Before the finalizer is
/// removed, the pods are listed past the cache: it may not show yet a pod that has just got its node.
pub fn of_claim<'a>(claim: &PersistentVolumeClaim, pods: impl FnOnce() -> Vec<Arc<Pod>> + 'a) -> Protection {
    match Protection::of(&claim.meta, &claim.finalizers, CLAIM_FINALIZER) {
        Protection::Remove(_) if pods().iter().any(|pod| uses(pod, claim)) => Protection::Keep,
        protection => protection,
    }
}

/// Decides about a volume. It is in use while it is bound to a claim.
pub fn of_volume(volume: &PersistentVolume) -> Protection {
    match Protection::of(&volume.meta, &volume.finalizers, VOLUME_FINALIZER) {
        Protection::Remove(_) if volume.is_bound => Protection::Keep,
        protection => protection,
    }
}

/// Whether a pod uses a claim: a volume of it names the claim, and the pod has a node. A pod without one never starts
/// with a claim that is being deleted; one that has ended keeps its volumes until it is deleted (upstream:
/// `podUsesPVC`).
pub fn uses(pod: &Pod, claim: &PersistentVolumeClaim) -> bool {
    pod.node().is_some()
        && pod.meta.key.namespace == claim.meta.key.namespace
        && pod.claims.iter().any(|used| {
            used.is_called(&claim.meta.key.name) && (!used.is_ephemeral() || is_made_for(claim, pod))
        })
}

/// Whether a claim is that of an ephemeral volume of the pod.
fn is_made_for(claim: &PersistentVolumeClaim, pod: &Pod) -> bool {
    let controller = claim.meta.controller.as_deref();
    controller.is_some_and(|owner| owner.uid == pod.meta.uid && &*owner.kind == "Pod")
}

/// The names of the claims that a change of a pod may have set free: it is deleted, has ended or is ending, or has no
/// node. `before` is the pod as it was. Another pod of the same name counts as well.
pub fn freed<'a>(before: Option<&'a Pod>, after: Option<&'a Pod>) -> impl Iterator<Item = String> {
    let gone = before.filter(|before| {
        after.is_none_or(|after| after.meta.uid != before.meta.uid || after.claims != before.claims)
    });
    let idle = after.filter(|after| !after.is_active() || after.node().is_none());
    gone.into_iter().chain(idle).flat_map(|pod| pod.claims.iter().map(|claim| claim.name()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::model::{Interner, Record};

    fn decode<T: Record>(object: &Value) -> T {
        T::decode(&object.to_string(), &mut Interner::default()).unwrap()
    }

    const DELETED: &str = "2026-01-01T00:00:00Z";

    fn claim(finalizers: &[&str], deleted: bool) -> Value {
        let mut claim = json!({"metadata": {"name": "data", "namespace": "shop", "uid": "u-claim",
                                            "resourceVersion": "7", "finalizers": finalizers}});
        if deleted {
            claim["metadata"]["deletionTimestamp"] = DELETED.into();
        }
        claim
    }

    /// A pod that mounts the claim `data`.
    fn pod(node: &str) -> Value {
        json!({"metadata": {"name": "db-0", "namespace": "shop", "uid": "u-pod", "resourceVersion": "8"},
               "spec": {"nodeName": node, "volumes": [
                   {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]},
               "status": {"phase": "Running"}})
    }

    fn with(mut object: Value, pointer: &str, value: Value) -> Value {
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        object.pointer_mut(parent).unwrap()[field] = value;
        object
    }

    fn planned(claim: &Value, pods: &[Value]) -> Protection {
        let pods = pods.iter().map(|pod| Arc::new(decode(pod))).collect();
        of_claim(&decode(claim), || pods)
    }

    fn list(finalizers: &[&str]) -> Vec<Arc<str>> {
        finalizers.iter().map(|finalizer| Arc::from(*finalizer)).collect()
    }

    #[test]
    fn a_claim_without_protection_gets_it_and_keeps_its_other_finalizers() {
        let expected = Protection::Add(list(&["a/b", CLAIM_FINALIZER]));
        assert_eq!(planned(&claim(&["a/b"], false), &[]), expected);
        assert_eq!(planned(&claim(&[CLAIM_FINALIZER], false), &[]), Protection::Keep);
    }

    #[test]
    fn a_deleting_claim_that_nobody_uses_loses_its_protection_only() {
        let deleting = claim(&["a/b", CLAIM_FINALIZER, "c/d"], true);
        assert_eq!(planned(&deleting, &[]), Protection::Remove(list(&["a/b", "c/d"])));
        assert_eq!(planned(&claim(&["a/b"], true), &[]), Protection::Keep, "nothing is added to it");
    }

    #[test]
    fn a_pod_with_a_node_keeps_a_claim_even_after_it_has_ended() {
        let deleting = claim(&[CLAIM_FINALIZER], true);
        let removed = Protection::Remove(Vec::new());
        assert_eq!(planned(&deleting, &[pod("n1")]), Protection::Keep);
        let ended = with(pod("n1"), "/status/phase", "Succeeded".into());
        assert_eq!(planned(&deleting, &[ended]), Protection::Keep);
        assert_eq!(planned(&deleting, &[pod("")]), removed, "it will never start with this claim");
        let another = with(pod("n1"), "/metadata/namespace", "other".into());
        assert_eq!(planned(&deleting, &[another]), removed);
    }

    #[test]
    fn the_claim_of_an_ephemeral_volume_is_that_which_its_pod_owns() {
        let ephemeral = json!([{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]);
        let pod = with(pod("n1"), "/spec/volumes", ephemeral);
        let owned_by = |uid: &str| {
            let owner =
                json!([{"apiVersion": "v1", "kind": "Pod", "name": "db-0", "uid": uid, "controller": true}]);
            let claim = with(claim(&[CLAIM_FINALIZER], true), "/metadata/name", "db-0-scratch".into());
            with(claim, "/metadata/ownerReferences", owner)
        };
        assert_eq!(planned(&owned_by("u-pod"), std::slice::from_ref(&pod)), Protection::Keep);
        let removed = Protection::Remove(Vec::new());
        assert_eq!(planned(&owned_by("u-earlier-pod"), std::slice::from_ref(&pod)), removed);
        let mut shut_down = with(pod, "/metadata/deletionTimestamp", DELETED.into());
        shut_down["metadata"]["deletionGracePeriodSeconds"] = 0.into();
        assert_eq!(planned(&owned_by("u-pod"), &[shut_down]), removed);
    }

    #[test]
    fn a_volume_is_kept_while_it_is_bound() {
        let volume = |phase: &str, deleted: bool| {
            let mut volume = claim(&[VOLUME_FINALIZER], deleted);
            volume["status"] = json!({"phase": phase});
            of_volume(&decode(&volume))
        };
        assert_eq!(volume("Bound", true), Protection::Keep);
        assert_eq!(volume("Released", true), Protection::Remove(Vec::new()));
        assert_eq!(volume("Available", false), Protection::Keep);
        let unprotected = of_volume(&decode(&claim(&[], false)));
        assert_eq!(unprotected, Protection::Add(list(&[VOLUME_FINALIZER])));
    }

    #[test]
    fn a_claim_is_looked_at_again_when_a_pod_sets_it_free() {
        let running: Pod = decode(&pod("n1"));
        let claims = |before: Option<&Pod>, after: Option<&Pod>| freed(before, after).count();
        assert_eq!(claims(None, Some(&running)), 0, "a pod that starts sets nothing free");
        assert_eq!(claims(Some(&running), Some(&running)), 0);
        assert_eq!(claims(Some(&running), None), 1, "deleted");
        let ended: Pod = decode(&with(pod("n1"), "/status/phase", "Failed".into()));
        assert_eq!(claims(Some(&running), Some(&ended)), 1);
        let successor: Pod = decode(&with(pod("n1"), "/metadata/uid", "u-successor".into()));
        assert_eq!(claims(Some(&running), Some(&successor)), 1, "its deletion was missed");
        let unbound: Pod = decode(&pod(""));
        assert_eq!(claims(None, Some(&unbound)), 1);
    }
}
