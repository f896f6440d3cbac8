//! The owners of claims: when a PersistentVolumeClaim goes with its pod, or with its StatefulSet (upstream:
//! `isClaimOwnerUpToDate`, `updateClaimOwnerRefForSetAndPod`; KEP-1847).
//!
//! No claim is ever deleted here. The garbage collector deletes it, once the owners that it names are gone.

use std::sync::Arc;

use crate::model::{ClaimOwner, Meta, PersistentVolumeClaim, Pod, Record, StatefulSet};

/// The pod of a claim.
#[derive(Clone, Copy, Debug)]
pub struct ClaimPod<'a> {
    /// Its name.
    pub name: &'a str,
    /// The pod, while there is one.
    pub pod: Option<&'a Pod>,
    /// Whether its ordinal is out of range.
    pub is_condemned: bool,
}

impl ClaimPod<'_> {
    fn names(&self, owner: &ClaimOwner) -> bool {
        &*owner.api_version == "v1" && &*owner.kind == "Pod" && &*owner.name == self.name
    }

    fn is(&self, owner: &ClaimOwner) -> bool {
        self.pod.is_some_and(|pod| self.names(owner) && pod.meta.uid == owner.uid)
    }
}

fn names_set(set: &StatefulSet, owner: &ClaimOwner) -> bool {
    &*owner.api_version == "apps/v1"
        && *owner.kind == *StatefulSet::RESOURCE.kind
        && owner.name == set.meta.key.name
}

fn is_set(set: &StatefulSet, owner: &ClaimOwner) -> bool {
    names_set(set, owner) && owner.uid == set.meta.uid
}

/// Whether a claim names a StatefulSet or a pod of these names that is gone: the collector is about to delete it.
pub fn is_stale(set: &StatefulSet, claim: &PersistentVolumeClaim, of: ClaimPod<'_>) -> bool {
    claim
        .owners
        .iter()
        .any(|owner| (names_set(set, owner) && !is_set(set, owner)) || (of.names(owner) && !of.is(owner)))
}

/// Whether another object manages the claim while a policy would delete it.
pub fn is_in_conflict(set: &StatefulSet, claim: &PersistentVolumeClaim, of: ClaimPod<'_>) -> bool {
    (set.deletes_claims_when_deleted || set.deletes_claims_when_scaled)
        && has_other_controller(set, claim, of)
}

fn has_other_controller(set: &StatefulSet, claim: &PersistentVolumeClaim, of: ClaimPod<'_>) -> bool {
    let is_other = |owner: &&ClaimOwner| !is_set(set, owner) && !of.is(owner);
    claim.owners.iter().filter(is_other).any(|owner| owner.controller == Some(true))
}

/// The reference that the policy wants on a claim of this pod.
///
/// | whenDeleted, whenScaled | pod in range | condemned |
/// |---|---|---|
/// | Retain, Retain | none | none |
/// | Delete, Retain | the StatefulSet | the StatefulSet |
/// | Retain, Delete | none | the pod |
/// | Delete, Delete | the StatefulSet | the pod |
pub fn wanted(set: &StatefulSet, of: ClaimPod<'_>) -> Option<ClaimOwner> {
    match of.pod {
        Some(pod) if of.is_condemned && set.deletes_claims_when_scaled => {
            Some(controlled_by("v1", Pod::RESOURCE.kind, &pod.meta))
        }
        _ if set.deletes_claims_when_deleted => {
            Some(controlled_by("apps/v1", StatefulSet::RESOURCE.kind, &set.meta))
        }
        _ => None,
    }
}

fn controlled_by(api_version: &str, kind: &str, owner: &Meta) -> ClaimOwner {
    ClaimOwner {
        api_version: Arc::from(api_version),
        kind: Arc::from(kind),
        name: owner.key.name.clone(),
        uid: owner.uid.clone(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// The owner references to write on a claim; `None` where they are right, or not ours to change: those of a former
/// StatefulSet or pod of the name, and of a claim that another object manages. Entries of others stay as they are.
pub fn owners_to_write(
    set: &StatefulSet,
    claim: &PersistentVolumeClaim,
    of: ClaimPod<'_>,
) -> Option<Vec<ClaimOwner>> {
    if is_stale(set, claim, of) {
        return None;
    }
    let is_ours = |owner: &ClaimOwner| is_set(set, owner) || of.is(owner);
    let is_foreign = has_other_controller(set, claim, of);
    let wanted = wanted(set, of).filter(|_| !is_foreign);
    let has_wanted = |owner: &ClaimOwner| {
        wanted.as_ref().is_some_and(|wanted| owner.uid == wanted.uid && owner.controller == wanted.controller)
    };
    let mut ours = claim.owners.iter().filter(|owner| is_ours(owner));
    let is_right = match (ours.next(), &wanted) {
        (None, None) => true,
        (Some(owner), Some(_)) => has_wanted(owner) && ours.next().is_none(),
        _ => false,
    };
    (!is_right).then(|| claim.owners.iter().filter(|owner| !is_ours(owner)).cloned().chain(wanted).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Interner;

    const SET: &str =
        r#"{"apiVersion":"apps/v1","kind":"StatefulSet","name":"db","uid":"u-set","controller":true}"#;
    const OLD_SET: &str =
        r#"{"apiVersion":"apps/v1","kind":"StatefulSet","name":"db","uid":"u-old","controller":true}"#;
    const POD: &str = r#"{"apiVersion":"v1","kind":"Pod","name":"db-0","uid":"u-pod","controller":true}"#;
    const OLD_POD: &str =
        r#"{"apiVersion":"v1","kind":"Pod","name":"db-0","uid":"u-gone","controller":true}"#;
    const OTHER: &str = r#"{"apiVersion":"v1","kind":"ConfigMap","name":"c","uid":"u-c"}"#;
    const MANAGER: &str = r#"{"apiVersion":"x/v1","kind":"Db","name":"d","uid":"u-d","controller":true}"#;

    fn set(when_deleted: &str, when_scaled: &str) -> StatefulSet {
        let json = format!(
            r#"{{"metadata":{{"name":"db","namespace":"shop","uid":"u-set","resourceVersion":"1"}},"spec":
                {{"persistentVolumeClaimRetentionPolicy":{{"whenDeleted":"{when_deleted}","whenScaled":"{when_scaled}"}}}}}}"#
        );
        StatefulSet::decode(&json, &mut Interner::default()).unwrap()
    }

    fn claim(owners: &[&str]) -> PersistentVolumeClaim {
        let json = format!(
            r#"{{"metadata":{{"name":"data-db-0","namespace":"shop","uid":"u","resourceVersion":"1",
                "ownerReferences":[{}]}}}}"#,
            owners.join(",")
        );
        PersistentVolumeClaim::decode(&json, &mut Interner::default()).unwrap()
    }

    fn pod() -> Pod {
        let json = r#"{"metadata":{"name":"db-0","namespace":"shop","uid":"u-pod","resourceVersion":"1"}}"#;
        Pod::decode(json, &mut Interner::default()).unwrap()
    }

    /// The UIDs of the owners to write.
    fn written(set: &StatefulSet, owners: &[&str], is_condemned: bool) -> Option<Vec<String>> {
        let pod = pod();
        let of = ClaimPod { name: "db-0", pod: Some(&pod), is_condemned };
        let owners = owners_to_write(set, &claim(owners), of)?;
        Some(owners.iter().map(|owner| owner.uid.to_string()).collect())
    }

    #[track_caller]
    fn check(policy: [&str; 2], is_condemned: bool, right: &[&str]) {
        let set = set(policy[0], policy[1]);
        let uid = |owner: &&str| if *owner == SET { "u-set".to_owned() } else { "u-pod".to_owned() };
        for there in [&[][..], &[SET], &[POD], &[SET, POD]] {
            let expected = (there != right).then(|| right.iter().map(uid).collect());
            assert_eq!(written(&set, there, is_condemned), expected, "{policy:?} {is_condemned} {there:?}");
        }
    }

    #[test]
    fn the_policies_say_which_reference_a_claim_has() {
        for is_condemned in [false, true] {
            check(["Retain", "Retain"], is_condemned, &[]);
            check(["Delete", "Retain"], is_condemned, &[SET]);
        }
        check(["Retain", "Delete"], false, &[]);
        check(["Retain", "Delete"], true, &[POD]);
        check(["Delete", "Delete"], false, &[SET]);
        check(["Delete", "Delete"], true, &[POD]);
    }

    #[test]
    fn references_of_others_stay() {
        let set = set("Delete", "Retain");
        assert_eq!(written(&set, &[OTHER, POD], false), Some(vec!["u-c".into(), "u-set".into()]));
        assert_eq!(written(&set, &[OTHER, SET], false), None);
    }

    #[test]
    fn a_claim_of_a_former_pod_or_statefulset_of_the_name_is_left_alone() {
        for policy in ["Retain", "Delete"] {
            for owners in [&[OLD_SET][..], &[OLD_POD], &[OLD_POD, SET], &[OTHER, OLD_SET]] {
                assert_eq!(written(&set(policy, policy), owners, true), None, "{owners:?}");
            }
        }
        let of = ClaimPod { name: "db-0", pod: None, is_condemned: false };
        assert!(is_stale(&set("Retain", "Retain"), &claim(&[POD]), of), "the pod is gone");
        assert!(!is_stale(&set("Retain", "Retain"), &claim(&[SET, OTHER]), of));
    }

    #[test]
    fn a_claim_that_another_object_manages_gets_none_of_ours_and_loses_those_that_it_has() {
        let set = set("Delete", "Delete");
        assert_eq!(written(&set, &[MANAGER], false), None);
        assert_eq!(written(&set, &[MANAGER, SET], false), Some(vec!["u-d".into()]));
        let of = ClaimPod { name: "db-0", pod: None, is_condemned: false };
        assert!(is_in_conflict(&set, &claim(&[MANAGER]), of) && !is_in_conflict(&set, &claim(&[SET]), of));
    }

    #[test]
    fn a_reference_of_ours_that_does_not_control_is_put_right() {
        let set = set("Delete", "Retain");
        let lame = SET.replace("true", "false");
        assert_eq!(written(&set, &[&lame], false), Some(vec!["u-set".into()]));
    }
}
